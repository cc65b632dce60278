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
#define ZOO_ACTS WK_ACTIVATION_F32
#endif
#ifndef ZOO_TYPE_NAME
#define ZOO_TYPE_NAME "zoo_F"
#endif
#ifndef ZOO_TYPE_FLAGS
#define ZOO_TYPE_FLAGS 0
#endif
#ifndef ZOO_PRODUCT_RESERVED
#define ZOO_PRODUCT_RESERVED 0
#endif
#ifndef ZOO_PRODUCT_TAIL
#define ZOO_PRODUCT_TAIL 0
#endif
#ifndef ZOO_KEY_FLAGS
#define ZOO_KEY_FLAGS WK_KEY_REQUIRED
#endif
#ifndef ZOO_KEY_TYPE
#define ZOO_KEY_TYPE WK_KEY_U32
#endif
#ifndef ZOO_ARCH_FLAGS
#define ZOO_ARCH_FLAGS 0
#endif
#ifndef ZOO_KEY_SIZE
#define ZOO_KEY_SIZE sizeof(struct wk_key)
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
#ifdef ZOO_UNDEFINED
int zoo_nowhere(void);
WK_EXPORT int (*const zoo_use_nowhere)(void) = zoo_nowhere;
#endif
#ifdef ZOO_EXPORTS
WK_EXPORT int zoo_exported(void);
int zoo_exported(void) { return 1; }
#endif
#ifdef ZOO_SECTION /* of bytes that have a relocation */
WK_EXPORT const int zoo_here = 1;
__asm__(".pushsection " ZOO_SECTION "\n.balign 8\n.quad zoo_here\n.popsection\n");
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
ZOO_UNUSED static void zoo_pack(const struct wk_pack *p)
{
    zoo_end("pack");
    for (uint32_t r = 0; r < 16; r++) memcpy((char *)p->tile + (size_t)r * p->k * 4, p->rows[r], (size_t)p->k * 4);
}
ZOO_UNUSED static void zoo_unpack(const struct wk_unpack *p)
{
    for (uint32_t r = 0; r < 16; r++)
        memcpy(p->rows[r], (const char *)p->tile + (size_t)r * p->k * 4, (size_t)p->k * 4);
}
ZOO_UNUSED static void zoo_dequantize(const struct wk_dequantize *in)
{
    float *y = in->y;
    const uint64_t n = in->n;
    zoo_end("dequantize");
    memcpy(y, in->blocks, n * 4);
}
ZOO_UNUSED static wk_status zoo_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    const float *x = in->x;
    const uint64_t n = in->n;
    zoo_end("quantize");
    for (uint64_t i = 0; i < n; i++)
        if (!(x[i] - x[i] == 0.0f)) return wk_fail(err, WK_INVALID, "value %llu is not finite", (unsigned long long)i);
    memcpy(in->blocks, x, n * 4);
    return WK_OK;
}
ZOO_UNUSED static void zoo_product(const struct wk_cpu_product *p)
{
    const float *w = p->tiles;
    zoo_end("product");
    for (uint32_t t = 0; t < p->n_rows; t++) {
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
    *width = wk_meta_u32(meta, 0);
    const char *greeting = meta->host->option(meta->host->self, "greeting");
    if (greeting) meta->host->log(meta->host->self, WK_LOG_WARN, greeting);
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
static const struct wk_key zoo_keys[] = { { "embedding_length", ZOO_KEY_TYPE, ZOO_KEY_FLAGS, ZOO_KEY_MIN, 8, 0 } };
static const struct wk_arch zoo_arch = {
    .struct_size = sizeof(struct wk_arch),
    .flags = ZOO_ARCH_FLAGS,
    WK_ARCH_NAMES(zoo_names),
#ifdef ZOO_ARCH_RESERVED
    .ZOO_ARCH_RESERVED = 5,
#endif
    .keys = zoo_keys,
    .n_keys = ZOO_KEYS,
    .key_size = ZOO_KEY_SIZE,
    .n_aliases = ZOO_ALIASES,
    .n_ignored = ZOO_IGNORED,
    .n_ignored_keys = ZOO_IGNORED_KEYS,
    .open = zoo_open,
    .record = ZOO_RECORD,
    .close = zoo_close,
};
#define ZOO_VTABLE .arch = &zoo_arch
#else
/* ZOO_TAIL: the last word of a type that is 16 bytes longer than this header's, and of its product. */
#ifdef ZOO_TAIL
static const struct {
    struct wk_isa_product p;
    uint64_t tail;
} zoo_longer_products[] = { { { WK_ISA_PORTABLE, 0, ZOO_PRODUCT }, ZOO_PRODUCT_TAIL } };
#define ZOO_PRODUCTS \
    .products = &zoo_longer_products[0].p, .n_products = 1, .product_size = sizeof zoo_longer_products[0]
#else
#define ZOO_PRODUCTS WK_TYPE_PRODUCTS(zoo_products)
static const struct wk_isa_product zoo_products[] = { { WK_ISA_PORTABLE, ZOO_PRODUCT_RESERVED, ZOO_PRODUCT } };
#endif
#ifdef ZOO_TAIL
static const struct {
    struct wk_type_cpu t;
    uint64_t tail[2];
} zoo_longer = { { .struct_size = sizeof zoo_longer,
#define ZOO_TYPE_END  \
    }                 \
    , { 0, ZOO_TAIL } \
    }
#else
static const struct wk_type_cpu zoo_type = { .struct_size = ZOO_TYPE_SIZE,
#define ZOO_TYPE_END }
#endif
                   .ggml_type = ZOO_TYPE,
                   .block = ZOO_BLOCK,
                   .block_bytes = 4,
                   .activations = ZOO_ACTS,
                   .flags = ZOO_TYPE_FLAGS,
                   .name = ZOO_TYPE_NAME,
                   .tile_bytes = zoo_tile_bytes,
                   .scratch_bytes = zoo_scratch_bytes,
                   .pack = ZOO_PACK,
                   .unpack = zoo_unpack,
                   .dequantize = zoo_dequantize,
                   .quantize = zoo_quantize,
                   ZOO_PRODUCTS,
                   ZOO_TYPE_END;
#ifdef ZOO_TWO_TYPES
static const struct wk_isa_product zoo_second_products[] = { { WK_ISA_PORTABLE, 0, zoo_product } };
static const struct wk_type_cpu zoo_second_type = {
    .struct_size = ZOO_TYPE_SIZE,
    .ggml_type = 202,
    .block = 1,
    .block_bytes = 4,
    .activations = WK_ACTIVATION_F32,
    .name = "zoo_G",
    .tile_bytes = zoo_tile_bytes,
    .scratch_bytes = zoo_scratch_bytes,
    .pack = zoo_pack,
    .unpack = zoo_unpack,
    .dequantize = zoo_dequantize,
    .quantize = zoo_quantize,
    WK_TYPE_PRODUCTS(zoo_second_products),
};
static const struct wk_type_cpu *const zoo_types[] = { &zoo_type, &zoo_second_type };
#else
#ifdef ZOO_TAIL
static const struct wk_type_cpu *const zoo_types[] = { &zoo_longer.t };
#else
static const struct wk_type_cpu *const zoo_types[] = { &zoo_type };
#endif
#endif
ZOO_UNUSED static const struct wk_quant zoo_quant = { sizeof(struct wk_quant), sizeof zoo_types / sizeof *zoo_types,
                                                      zoo_types };
#ifdef ZOO_STRAY /* what plugins of the other kind have, which is not looked at */
#define ZOO_VTABLE .arch = (const struct wk_arch *)(const void *)&zoo_quant, .quant = ZOO_QUANT
#else
#define ZOO_VTABLE .quant = ZOO_QUANT
#endif
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
#ifndef ZOO_NO_NOTE
WK_DEFINE_NOTE(ZOO_KIND, ZOO_MAJOR, ZOO_MINOR_MIN, WK_ABI_MINOR, ZOO_FLAGS, WK_LAYOUT_QUANT, ZOO_ID, ZOO_CLAIMS);
#endif
#ifdef ZOO_SECOND_NOTE
#define wk_note_ zoo_second_note
WK_DEFINE_NOTE(ZOO_KIND, ZOO_MAJOR, ZOO_MINOR_MIN, WK_ABI_MINOR, ZOO_FLAGS, WK_LAYOUT_QUANT, ZOO_ID, ZOO_CLAIMS);
#endif
#ifdef ZOO_NO_SYMBOL
#define worker_plugin_v1 worker_plugin_elsewhere
#endif
extern const struct wk_plugin worker_plugin_v1;
WK_EXPORT const struct wk_plugin worker_plugin_v1 = {
    .struct_size = ZOO_STRUCT_SIZE,
    .kind = ZOO_KIND,
    .abi_major = ZOO_MAJOR,
    .abi_minor_min = ZOO_MINOR_MIN,
    .abi_minor_built = WK_ABI_MINOR,
    .flags = ZOO_FLAGS,
    .layout = { WK_HALVES(WK_LAYOUT_QUANT) },
    .id = ZOO_STRUCT_ID,
    .claims = ZOO_CLAIMS,
    .name = "zoo",
    .version = "1",
    .init = zoo_init,
    ZOO_VTABLE,
};
#endif
