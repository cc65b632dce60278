/* zoo.c: one small plugin with a macro for every way to be wrong; CMakeLists.txt builds one shared object for each.
 *
 * The format is real: single F32 values, tiles of 16 rows one after the other. So is the architecture: an embedding and
 * a head. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <worker/plugin.h>

#define ZOO_UNUSED __attribute__((unused)) /* by one macro or another */

#ifndef ZOO_ID
#define ZOO_ID "org.example.zoo"
#endif
#ifndef ZOO_STRUCT_ID
#define ZOO_STRUCT_ID ZOO_ID
#endif
#ifndef ZOO_CLAIMS
#ifdef ZOO_ARCH
#define ZOO_CLAIMS "arch:zoo"
#else
#define ZOO_CLAIMS "ggml:200"
#endif
#endif
#ifndef ZOO_KIND
#ifdef ZOO_ARCH
#define ZOO_KIND WK_KIND_ARCH
#else
#define ZOO_KIND WK_KIND_QUANT
#endif
#endif
#ifndef ZOO_HASH_LO
#define ZOO_HASH_LO WK_HASH_LO
#endif
#ifndef ZOO_MAJOR
#define ZOO_MAJOR WK_ABI_MAJOR
#endif
#ifndef ZOO_MINOR_MIN
#define ZOO_MINOR_MIN 0
#endif
#ifndef ZOO_FLAGS
#define ZOO_FLAGS 0
#endif
#ifndef ZOO_QUANT
#define ZOO_QUANT &zoo_quant
#endif
#ifndef ZOO_PACK
#define ZOO_PACK zoo_pack
#endif
#ifndef ZOO_PRODUCT
#define ZOO_PRODUCT zoo_product
#endif
#ifndef ZOO_STRUCT_SIZE
#define ZOO_STRUCT_SIZE sizeof(struct wk_plugin)
#endif
#ifndef ZOO_TYPE_SIZE
#define ZOO_TYPE_SIZE sizeof(struct wk_type_cpu)
#endif
#ifndef ZOO_TYPE
#define ZOO_TYPE 200
#endif
#ifndef ZOO_BLOCK
#define ZOO_BLOCK 1
#endif
#ifndef ZOO_ACTS
#define ZOO_ACTS WK_ACT_F32
#endif
#ifndef ZOO_TILE
#define ZOO_TILE 0
#endif
#ifndef ZOO_RECORD
#define ZOO_RECORD zoo_record
#endif
#ifndef ZOO_NAME
#define ZOO_NAME "zoo"
#endif
#ifndef ZOO_KEY_MIN
#define ZOO_KEY_MIN 1
#endif
#ifndef ZOO_INIT_STATUS
#define ZOO_INIT_STATUS WK_OK
#endif

#ifdef ZOO_BOMB
__attribute__((constructor)) static void zoo_bomb(void) { __builtin_trap(); }
#endif

#ifdef ZOO_ENDS
static int zoo_overflow(int depth)
{
    volatile char here[4096];
    here[0] = (char)depth;
    return depth < 0 ? here[0] : zoo_overflow(depth + 1) + here[0];
}

/* Ends the process if ZOO_END says "HOW:PLACE". */
static void zoo_end(const char *place)
{
    static volatile int depth;
    const char *how = getenv("ZOO_END"), *at = how ? strchr(how, ':') : NULL;
    if (!at || strcmp(at + 1, place) != 0) return;
    if (how[0] == 's') /* segv, by a page that may not be touched */
        *(volatile int *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 1;
    if (how[0] == 'f') (void)raise(SIGFPE);
    if (how[0] == 'a') abort();
    if (how[0] == 'e') exit(0);
    if (how[0] == 'q') quick_exit(0);
    if (how[0] == 'o') (void)zoo_overflow(depth);
    for (;;) (void)pause();
}
__attribute__((constructor)) static void zoo_begin(void) { zoo_end("constructors"); }
#else
#define zoo_end(place) (void)0
#endif

#ifdef ZOO_NEEDS_OTHER
int zoo_other(void);
WK_EXPORT int (*const zoo_use_other)(void) = zoo_other;
#endif
#ifdef ZOO_IMPORT_CUDA
int cudaMallocAsync(void **p, size_t n, void *stream);
WK_EXPORT int (*const zoo_use_cuda)(void **, size_t, void *) = cudaMallocAsync;
#endif

/* ---- format -------------------------------------------------------------------------------------------- */

ZOO_UNUSED static uint64_t zoo_tile_bytes(uint32_t k)
{
    zoo_end("tile_bytes");
    return (uint64_t)k * 4 * WK_TILE_ROWS + ZOO_TILE;
}
ZOO_UNUSED static uint64_t zoo_scratch_bytes(uint32_t k)
{
    (void)k;
    zoo_end("scratch_bytes");
    return 0;
}
ZOO_UNUSED static void zoo_pack(void *tile, const void *const rows[16], uint32_t k)
{
    zoo_end("pack");
    for (uint32_t r = 0; r < 16; r++) memcpy((char *)tile + (size_t)r * k * 4, rows[r], (size_t)k * 4);
}
ZOO_UNUSED static void zoo_unpack(void *const rows[16], const void *tile, uint32_t k)
{
    for (uint32_t r = 0; r < 16; r++) memcpy(rows[r], (const char *)tile + (size_t)r * k * 4, (size_t)k * 4);
}
ZOO_UNUSED static void zoo_dequantize(float *y, const void *blocks, uint64_t n)
{
    zoo_end("dequantize");
    memcpy(y, blocks, n * 4);
}
ZOO_UNUSED static wk_status zoo_quantize(void *blocks, const float *x, uint64_t n, const struct wk_err *err)
{
    zoo_end("quantize");
    for (uint64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0.0f)) return wk_fail(err, WK_INVALID, "value %llu is not finite", (unsigned long long)i);
    memcpy(blocks, x, n * 4);
    return WK_OK;
}
ZOO_UNUSED static void zoo_product(const struct wk_cpu_product *p)
{
    const float *w = p->tiles;
    zoo_end("product");
    for (uint32_t t = 0; t < p->n_tok; t++) {
        const float *x = (const float *)(const void *)((const char *)p->x + t * p->x_stride);
        for (uint32_t i = 0; i < p->n_tiles * 16; i++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < p->k; k++) sum += w[(size_t)i * p->k + k] * x[k];
            p->y[t * p->y_stride + i] = sum;
        }
    }
}

/* ---- architecture -------------------------------------------------------------------------------------- */

ZOO_UNUSED static wk_status zoo_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    zoo_end("open");
    uint32_t *width = malloc(sizeof *width);
    if (!width) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    *width = (uint32_t)meta->value[0].num;
    *model = width;
    return WK_OK;
}
ZOO_UNUSED static void zoo_record(const struct wk_builder *b, const void *model)
{
    const uint32_t *width = model;
    zoo_end("record");
    wk_logits(b, wk_linear(b, wk_embed(b, "token_embd", 256, *width), "output", 256, WK_NONE));
}
ZOO_UNUSED static void zoo_close(void *model)
{
    zoo_end("close");
    free(model);
}

/* ---- what is exported ---------------------------------------------------------------------------------- */

#ifdef ZOO_ARCH
#ifdef ZOO_SECOND_NAME
static const char *const zoo_names[] = { ZOO_NAME, ZOO_SECOND_NAME };
#else
static const char *const zoo_names[] = { ZOO_NAME };
#endif
#ifndef ZOO_KEYS
#define ZOO_KEYS 1
#endif
#ifndef ZOO_ALIASES
#define ZOO_ALIASES 0
#endif
#ifndef ZOO_IGNORED_KEYS
#define ZOO_IGNORED_KEYS 0
#endif
#ifndef ZOO_IGNORED
#define ZOO_IGNORED 0
#endif
static const struct wk_key zoo_keys[] = { { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, ZOO_KEY_MIN, 8, 0 } };
static const struct wk_arch zoo_arch = {
    .struct_size = sizeof(struct wk_arch),
    .n_names = sizeof zoo_names / sizeof *zoo_names,
    .names = zoo_names,
    .keys = zoo_keys,
    .n_keys = ZOO_KEYS,
    .n_aliases = ZOO_ALIASES,
    .n_ignored = ZOO_IGNORED,
    .n_ignored_keys = ZOO_IGNORED_KEYS,
    .open = zoo_open,
    .record = ZOO_RECORD,
    .close = zoo_close,
};
#define ZOO_VTABLE .arch = &zoo_arch
#else
static const struct wk_type_cpu zoo_type = {
    .struct_size = ZOO_TYPE_SIZE,
    .ggml_type = ZOO_TYPE,
    .block = ZOO_BLOCK,
    .block_bytes = 4,
    .acts = ZOO_ACTS,
    .name = "zoo_F",
    .tile_bytes = zoo_tile_bytes,
    .scratch_bytes = zoo_scratch_bytes,
    .pack = ZOO_PACK,
    .unpack = zoo_unpack,
    .dequantize = zoo_dequantize,
    .quantize = zoo_quantize,
    .product = { ZOO_PRODUCT },
};
#ifdef ZOO_TWO_TYPES
static const struct wk_type_cpu zoo_second_type = {
    .struct_size = ZOO_TYPE_SIZE,
    .ggml_type = 202,
    .block = 1,
    .block_bytes = 4,
    .acts = WK_ACT_F32,
    .name = "zoo_G",
    .tile_bytes = zoo_tile_bytes,
    .scratch_bytes = zoo_scratch_bytes,
    .pack = zoo_pack,
    .unpack = zoo_unpack,
    .dequantize = zoo_dequantize,
    .quantize = zoo_quantize,
    .product = { zoo_product },
};
static const struct wk_type_cpu *const zoo_types[] = { &zoo_type, &zoo_second_type };
#else
static const struct wk_type_cpu *const zoo_types[] = { &zoo_type };
#endif
ZOO_UNUSED static const struct wk_quant zoo_quant = { sizeof(struct wk_quant), sizeof zoo_types / sizeof *zoo_types,
                                                      zoo_types };
#define ZOO_VTABLE .quant = ZOO_QUANT
#endif

static wk_status zoo_init(const struct wk_host *host, const struct wk_err *err)
{
    zoo_end("init");
    static int started; /* a second start of the same mapping is the host's fault */
    if (started++ || !WK_HAS(host, struct wk_host, extension)) return wk_fail(err, WK_INTERNAL, "started twice");
    host->log(host->self, WK_LOG_DEBUG, "the zoo is open");
    if (host->extension(host->self, "worker.unknown/1")) return wk_fail(err, WK_INTERNAL, "the host knows everything");
#ifdef ZOO_IMPORT_EXIT
    if (started > 9) ZOO_IMPORT_EXIT(1); /* never; the import is there */
#endif
    return ZOO_INIT_STATUS == WK_OK ? WK_OK : wk_fail(err, ZOO_INIT_STATUS, "the animals are asleep");
}

#ifdef ZOO_GOOD
WORKER_PLUGIN(WK_KIND_QUANT, ZOO_ID, ZOO_CLAIMS, .name = "zoo", .version = "1", .init = zoo_init, ZOO_VTABLE);
#else
#define ZOO_NOTE(name)                                                                  \
    WK_NOTE_SECTION static const struct wk_note name = { 7,                             \
                                                         sizeof(struct wk_note_desc),   \
                                                         WK_NOTE_TYPE,                  \
                                                         WK_NOTE_NAME,                  \
                                                         { sizeof(struct wk_note_desc), \
                                                           ZOO_KIND,                    \
                                                           ZOO_MAJOR,                   \
                                                           ZOO_MINOR_MIN,               \
                                                           WK_ABI_MINOR,                \
                                                           ZOO_FLAGS,                   \
                                                           { ZOO_HASH_LO, WK_HASH_HI }, \
                                                           ZOO_ID,                      \
                                                           ZOO_CLAIMS } }
#ifndef ZOO_NO_NOTE
ZOO_NOTE(zoo_note);
#endif
#ifdef ZOO_SECOND_NOTE
ZOO_NOTE(zoo_second_note);
#endif
#ifdef ZOO_NO_SYMBOL
#define worker_plugin_v0 worker_plugin_elsewhere
#endif
extern const struct wk_plugin worker_plugin_v0;
WK_EXPORT const struct wk_plugin worker_plugin_v0 = {
    .struct_size = ZOO_STRUCT_SIZE,
    .kind = ZOO_KIND,
    .abi_major = ZOO_MAJOR,
    .abi_minor_min = ZOO_MINOR_MIN,
    .abi_minor_built = WK_ABI_MINOR,
    .flags = ZOO_FLAGS,
    .header_hash = { ZOO_HASH_LO, WK_HASH_HI },
    .id = ZOO_STRUCT_ID,
    .claims = ZOO_CLAIMS,
    .name = "zoo",
    .version = "1",
    .init = zoo_init,
    ZOO_VTABLE,
};
#endif
