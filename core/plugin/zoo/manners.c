/* manners.c: plugins whose file is as it should be, and which break one rule when they run. CMakeLists.txt builds one
 * shared object for each BAD_*, of the kind that the rule is about (ZOO_ARCH: an architecture). */
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <worker/plugin.h>

enum {
    BAD_NOTHING,
    /* when it is started */
    BAD_INIT_CRASH,
    BAD_INIT_SILENT,
    BAD_INIT_PRINTS,
    BAD_INIT_ERROR_OUTPUT,
    BAD_THREAD,
    BAD_OPEN_FILE,
    BAD_CLOSE_INPUT,
    BAD_HANDLER,
    BAD_BLOCKED_SIGNAL,
    BAD_LOCALE,
    BAD_FOLDER,
    BAD_UMASK,
    BAD_ENVIRONMENT,
    BAD_ROUNDING,
    BAD_TRAPS,
    BAD_ALONE,
    BAD_HOST_BEHIND,
    BAD_HOST_MINOR,
    BAD_HOST_SIZE,
    BAD_EXTENSION,
    /* an architecture */
    BAD_OPEN_PRINTS,
    BAD_OPEN_FILE_LATER,
    BAD_OPEN_ABORTS,
    BAD_RECORD_EXITS,
    BAD_CLOSE_TWICE,
    BAD_STRIDE,
    BAD_META_SIZE,
    BAD_BUILDER_SIZE,
    BAD_UNSUPPORTED,
    BAD_WORDS,
    BAD_DIVIDES,
    BAD_ELEMENTS,
    BAD_TENSOR_SIZE,
    BAD_LONG_TEXT,
    BAD_TEXT_BUFFER,
    BAD_TEXT_END,
    BAD_NO_BUFFER,
    BAD_NO_TEXT,
    BAD_STATUS,
    BAD_LEAK_REFUSED,
    BAD_LEAK_CLOSE,
    BAD_ENDLESS,
    BAD_LONG_RECORD,
    BAD_KEEPS,
    BAD_STATE,
    BAD_ADDRESS,
    BAD_NEIGHBOURS,
    /* a format */
    BAD_DEQUANTIZE_CRASH,
    BAD_PRODUCT_PRINTS,
    BAD_CALL_SIZE,
    BAD_CALL_BEHIND,
    BAD_TENSOR_BEHIND,
    BAD_TAKES_NAN,
    BAD_NAN_NO_TEXT,
    BAD_NAN_BUFFER
};
#define BAD(what) (ZOO_BAD == BAD_##what)

/* ---- start --------------------------------------------------------------------------------------------- */

static void on_signal(int number) { (void)number; }
static void *do_nothing(void *user)
{
    for (;;) (void)pause();
    return user;
}

static void start_thread(void)
{
    pthread_t thread;
    (void)pthread_create(&thread, NULL, do_nothing, NULL);
}

static void block_signal(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Is a process running that has started it before? ZOO_ALONE: a file that says which. */
static int is_taken(void)
{
    const char *path = getenv("ZOO_ALONE");
    char text[32] = "";
    FILE *f = path ? fopen(path, "r+") : NULL;
    if (!f) return 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    const int other = n ? atoi(text) : 0;
    const int taken = other && other != getpid() && kill(other, 0) == 0;
    rewind(f);
    if (!taken) (void)fprintf(f, "%-20d", (int)getpid());
    (void)fclose(f);
    return taken;
}

static wk_status init(const struct wk_host *host, const struct wk_err *err)
{
    static volatile int *nowhere;
    if (BAD(INIT_CRASH)) return *nowhere;
    if (BAD(INIT_SILENT)) return WK_UNSUPPORTED;
    if (BAD(INIT_PRINTS)) (void)printf("hello\n");
    if (BAD(INIT_ERROR_OUTPUT)) (void)fprintf(stderr, "hello\n");
    if (BAD(THREAD)) start_thread();
    if (BAD(OPEN_FILE)) (void)open("/dev/null", O_RDONLY);
    if (BAD(CLOSE_INPUT)) (void)close(STDIN_FILENO);
    if (BAD(HANDLER)) (void)signal(SIGUSR1, on_signal);
    if (BAD(BLOCKED_SIGNAL)) block_signal();
    if (BAD(LOCALE)) (void)setlocale(LC_ALL, "C.UTF-8");
    if (BAD(FOLDER)) (void)!chdir("/");
    if (BAD(UMASK)) (void)umask(0);
    if (BAD(ENVIRONMENT)) (void)setenv("OMP_NUM_THREADS", "1", 1);
    if (BAD(ROUNDING)) (void)fesetround(FE_TOWARDZERO);
    if (BAD(TRAPS)) (void)feenableexcept(FE_DIVBYZERO);
    if (BAD(ALONE) && is_taken()) return wk_fail(err, WK_IO, "another process has started it");
    if (BAD(HOST_BEHIND) && ((const volatile uint64_t *)(const void *)host)[sizeof *host / 8] == 1)
        return wk_fail(err, WK_UNSUPPORTED, "expected something else behind the host");
    if (BAD(HOST_MINOR) && host->abi_minor > WK_ABI_MINOR) return wk_fail(err, WK_UNSUPPORTED, "of another minor");
    if (BAD(HOST_SIZE) && host->struct_size != sizeof *host) return wk_fail(err, WK_UNSUPPORTED, "of another size");
    return WK_OK;
}

static const void *extension(const char *id)
{
    static const int something = 1;
    (void)id;
    return BAD(EXTENSION) ? &something : NULL;
}

#ifdef ZOO_ARCH
/* ---- an architecture ----------------------------------------------------------------------------------- */

enum { WIDTH, HEADS, MODE, LIST, KEYS };
static const struct wk_key keys[KEYS] = {
    [WIDTH] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 4096, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, 0, 0, 64, 1 },
    [MODE] = { "mode", WK_KEY_TEXT, 0, 0, 0, 0 },
    [LIST] = { "list", WK_KEY_U32, WK_KEY_ARRAY, 0, 7, 0 },
};

struct model {
    uint32_t width, head, last;
    const char *kept;
};

static wk_status refuse(const struct wk_err *err, const char *text)
{
    static char copy[8192];
    if (BAD(NO_TEXT)) return WK_INVALID;
    if (BAD(STATUS)) return wk_fail(err, 77, "%s", text);
    if (BAD(NO_BUFFER)) memcpy(err->text, "refused", err->cap < 8 ? 1 : 8);
    if (BAD(TEXT_BUFFER) && err && err->text) memcpy(err->text, "a mode that it does not know", 29);
    if (BAD(TEXT_END) && err && err->text) memset(err->text, 'a', (size_t)err->cap);
    if (BAD(TEXT_BUFFER) || BAD(TEXT_END)) return WK_INVALID;
    (void)snprintf(copy, sizeof copy, "%s", text);
    return wk_fail(err, WK_INVALID, "%s", copy);
}

static uint32_t divided(uint32_t a, uint32_t b)
{
    const volatile uint32_t by = BAD(DIVIDES) || b ? b : 1;
    return a / by;
}

static uint32_t last_of(const struct wk_key_value *v)
{
    static volatile double last;
    if (v->count) last = v->numbers[BAD(ELEMENTS) ? 7 : v->count - 1]; /* there are as many as the file has */
    return (uint32_t)last;
}

/* The rows of the table of tokens, each once. */
static void count_rows(const struct wk_meta *meta)
{
    uint32_t rows = 0;
    static unsigned char room[1 << 16];
    volatile unsigned char *const seen = room; /* volatile: else a compiler leaves out what nobody reads */
    if (!meta->tensor(meta->self, "token_embd.weight", &rows, NULL, NULL)) return;
    for (uint32_t i = 0; BAD(TENSOR_SIZE) && i < rows; i++) seen[i] = 1;
}

static wk_status open_model(const struct wk_meta *meta, void **out, const struct wk_err *err)
{
    const struct wk_key_value *values = meta->values;
    if (BAD(OPEN_PRINTS)) (void)puts("opening");
    if (BAD(OPEN_FILE_LATER)) (void)open("/dev/null", O_RDONLY);
    if (BAD(OPEN_ABORTS)) abort();
    if (BAD(META_SIZE) && meta->struct_size != sizeof *meta) return wk_fail(err, WK_UNSUPPORTED, "of another size");
    struct model *m = calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    const char *mode = wk_meta_text(meta, MODE);
    char small[64] = "";
    if (BAD(LONG_TEXT)) (void)strcpy(small, mode);
    m->width = BAD(STRIDE) ? (uint32_t)values[HEADS].number + wk_meta_u32(meta, WIDTH) : wk_meta_u32(meta, WIDTH);
    m->head = divided(m->width, wk_meta_u32(meta, HEADS));
    m->last = last_of(wk_meta_value(meta, LIST));
    m->kept = BAD(KEEPS) ? meta->architecture : small[0] ? "x" : "";
    count_rows(meta);
    if (mode[0] && strcmp(mode, "none") != 0 && !BAD(WORDS)) {
        if (!BAD(LEAK_REFUSED)) free(m);
        return refuse(err, "a mode that it does not know");
    }
    *out = m;
    return WK_OK;
}

/* Adds what the row before had. */
static uint32_t added_width(const uint32_t *in_width, uint32_t n_in)
{
    (void)n_in;
    return in_width[0];
}
static void add_before(const struct wk_custom_call *call)
{
    static _Atomic float before;
    for (uint32_t i = 0; i < call->n_rows * call->out_width; i++) {
        call->out[i] = call->in[0][i] + before;
        before = call->in[0][i];
    }
}
static const struct wk_custom_def neighbours = {
    .struct_size = sizeof neighbours, .name = "neighbours", .width = added_width, .cpu = add_before
};

static void record(const struct wk_builder *b, const void *model)
{
    const struct model *m = model;
    static uint32_t times;
    static const void *first;
    struct wk_op_unary op;
    if (BAD(RECORD_EXITS)) exit(0);
    if (BAD(BUILDER_SIZE) && b->struct_size != sizeof *b) return;
    wk_value x = wk_embed(b, "token_embd", 64, m->width);
    op.o = wk_op_head(sizeof op, WK_OP_UNARY);
    op.fn = WK_UNARY_SILU;
    op.p = 0;
    if (BAD(UNSUPPORTED) && !wk_supports(b, &op.o)) *(volatile uint32_t *)NULL = 1;
    if (BAD(KEEPS) && m->kept[0] == 'x') x = wk_scale(b, x, 2.0f);
    if (BAD(STATE) && times++ % 2) x = wk_scale(b, x, 2.0f);
    if (!first) first = model;
    if (BAD(ADDRESS) && first != model) x = wk_scale(b, x, 2.0f);
    for (uint64_t i = 0; BAD(ENDLESS) || (BAD(LONG_RECORD) && i < UINT32_MAX); i++) x = wk_scale(b, x, 2.0f);
    if (BAD(NEIGHBOURS)) x = wk_custom(b, &neighbours, &x, 1, NULL, 0, NULL, 0);
    wk_logits(b, wk_linear(b, x, "output", 64, WK_NONE));
}

static void close_model(void *model)
{
    void *volatile again = model;
    if (BAD(CLOSE_TWICE)) free(again);
    if (!BAD(LEAK_CLOSE)) free(model);
}

static const char *const names[] = { "manners" };
static const struct wk_arch arch = {
    .struct_size = sizeof arch,
    WK_ARCH_NAMES(names),
    WK_ARCH_KEYS(keys),
    .open = open_model,
    .record = record,
    .close = close_model,
};
WORKER_PLUGIN(WK_KIND_ARCH, "org.example.manners", "arch:manners", .name = "manners", .version = "1", .init = init,
              .arch = &arch, .extension = extension);

#else
/* ---- a format: single values, tiles of 16 rows one after the other ------------------------------------- */

static uint64_t tile_bytes(uint32_t k) { return (uint64_t)k * 4 * WK_TILE_ROWS; }
static uint64_t scratch_bytes(uint32_t k)
{
    (void)k;
    return 0;
}
static void pack(const struct wk_pack *p)
{
    for (uint32_t r = 0; r < 16; r++) memcpy((char *)p->tile + (size_t)r * p->k * 4, p->rows[r], (size_t)p->k * 4);
}
static void unpack(const struct wk_unpack *p)
{
    for (uint32_t r = 0; r < 16; r++)
        memcpy(p->rows[r], (const char *)p->tile + (size_t)r * p->k * 4, (size_t)p->k * 4);
}
static void dequantize(const struct wk_dequantize *d)
{
    static volatile int *nowhere;
    volatile uint64_t behind = 0;
    if (BAD(DEQUANTIZE_CRASH)) *nowhere = 1;
    if (BAD(CALL_BEHIND)) behind = ((const volatile uint64_t *)(const void *)d)[sizeof *d / 8];
    if (BAD(TENSOR_BEHIND)) behind = ((const volatile uint64_t *)(const void *)d->tensor)[sizeof *d->tensor / 8];
    (void)behind;
    memcpy(d->y, d->blocks, d->n * 4);
}
static wk_status quantize(const struct wk_quantize *q, const struct wk_err *err)
{
    for (uint64_t i = 0; i < q->n && !BAD(TAKES_NAN); i++) {
        if (q->x[i] - q->x[i] == 0.0f) continue;
        if (BAD(NAN_NO_TEXT)) return WK_INVALID;
        if (BAD(NAN_BUFFER) && err && err->text) (void)sprintf(err->text, "value %llu", (unsigned long long)i);
        if (BAD(NAN_BUFFER)) return WK_INVALID;
        return wk_fail(err, WK_INVALID, "value %llu is not finite", (unsigned long long)i);
    }
    memcpy(q->blocks, q->x, q->n * 4);
    return WK_OK;
}
static void product(const struct wk_cpu_product *p)
{
    const float *w = p->tiles;
    if (BAD(PRODUCT_PRINTS)) (void)puts("product");
    if (BAD(CALL_SIZE) && p->struct_size != sizeof *p) return;
    for (uint32_t t = 0; t < p->n_rows; t++) {
        const float *x = (const float *)(const void *)((const char *)p->x + t * p->x_stride);
        for (uint32_t i = 0; i < p->n_tiles * 16; i++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < p->k; k++) sum += w[(size_t)i * p->k + k] * x[k];
            p->y[t * p->y_stride + i] = sum;
        }
    }
}

static const struct wk_isa_product products[] = { { WK_ISA_PORTABLE, 0, product } };
static const struct wk_type_cpu type = {
    .struct_size = sizeof type,
    .ggml_type = 1200,
    .block = 1,
    .block_bytes = 4,
    .activations = WK_ACTIVATION_F32,
    .name = "manners",
    .tile_bytes = tile_bytes,
    .scratch_bytes = scratch_bytes,
    .pack = pack,
    .unpack = unpack,
    .dequantize = dequantize,
    .quantize = quantize,
    WK_TYPE_PRODUCTS(products),
};
static const struct wk_type_cpu *const types[] = { &type };
static const struct wk_quant quant = { sizeof quant, 1, types };
WORKER_PLUGIN(WK_KIND_QUANT, "org.example.manners", "ggml:1200", .name = "manners", .version = "1", .init = init,
              .quant = &quant, .extension = extension);
#endif
