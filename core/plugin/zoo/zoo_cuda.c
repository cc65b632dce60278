/* zoo_cuda.c: a CUDA module without a kernel in it, with a macro for every way to be wrong. It belongs to zoo.c's
 * plugin; whoever calls one of its functions while looking for kernels ends the process. */
#include <stdlib.h>

#include <worker/plugin_cuda.h>

#define ZOO_UNUSED __attribute__((unused)) /* by one macro or another */

#ifndef ZOO_ID
#define ZOO_ID "org.example.zoo"
#endif
#ifndef ZOO_STRUCT_ID
#define ZOO_STRUCT_ID ZOO_ID
#endif
#ifndef ZOO_CLAIMS
#define ZOO_CLAIMS "ggml:200"
#endif
#ifndef ZOO_LAYOUT
#define ZOO_LAYOUT WK_LAYOUT_CUDA
#endif
#ifndef ZOO_MINOR
#define ZOO_MINOR WK_CUDA_ABI_MINOR
#endif
#ifndef ZOO_STRUCT_SIZE
#define ZOO_STRUCT_SIZE sizeof(struct wk_quant_cuda)
#endif
#ifndef ZOO_TYPE_SIZE
#define ZOO_TYPE_SIZE sizeof(struct wk_type_cuda)
#endif
#ifndef ZOO_TYPE
#define ZOO_TYPE 200
#endif
#ifndef ZOO_GATHER
#define ZOO_GATHER zoo_gather
#endif
#ifndef ZOO_PRODUCT
#define ZOO_PRODUCT zoo_product
#endif
#ifndef ZOO_PANELS
#define ZOO_PANELS NULL
#endif
#ifndef ZOO_N_TYPES
#define ZOO_N_TYPES 1
#endif

#ifdef ZOO_BOMB
__attribute__((constructor)) static void zoo_bomb(void) { __builtin_trap(); }
#endif

WK_EXPORT int (*const zoo_imports)(const char *, const char *, int) =
    setenv; /* as a CUDA runtime that was linked in does: no reason for a warning here */

static uint64_t zoo_tile_bytes(uint32_t k)
{
    __builtin_trap();
    return k;
}
static wk_status zoo_tiles(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err)
{
    __builtin_trap();
    return t && stream && err;
}
static wk_status zoo_expand(const struct wk_cuda_expand *e, void *stream, const struct wk_err *err)
{
    __builtin_trap();
    return e && stream && err;
}
ZOO_UNUSED static wk_status zoo_gather(const struct wk_cuda_gather *g, void *stream, const struct wk_err *err)
{
    __builtin_trap();
    return g && stream && err;
}
static wk_status zoo_open(int32_t device, const struct wk_err *err)
{
    __builtin_trap();
    return device && err;
}
static int32_t zoo_serves(const uint32_t *types, uint32_t n)
{
    __builtin_trap();
    return types && n;
}
ZOO_UNUSED static wk_status zoo_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    __builtin_trap();
    return p && stream && err;
}
ZOO_UNUSED static uint32_t zoo_panels(uint32_t type)
{
    __builtin_trap();
    return type;
}

static const struct wk_type_cuda zoo_type = {
    .struct_size = ZOO_TYPE_SIZE,
    .ggml_type = ZOO_TYPE,
    .tile_bytes = zoo_tile_bytes,
    .pack = zoo_tiles,
    .unpack = zoo_tiles,
    .expand = zoo_expand,
    .gather = ZOO_GATHER,
};
static const struct wk_type_cuda *const zoo_types[] = { &zoo_type, &zoo_type };

#define ZOO_FIELDS                                                                                              \
    .n_types = ZOO_N_TYPES, .types = zoo_types, .open = zoo_open, .serves = zoo_serves, .product = ZOO_PRODUCT, \
    .panels = ZOO_PANELS
#ifdef ZOO_GOOD
WORKER_PLUGIN_CUDA(ZOO_ID, ZOO_CLAIMS, ZOO_FIELDS);
#else
WK_DEFINE_NOTE(WK_KIND_QUANT_CUDA, WK_CUDA_ABI_MAJOR, ZOO_MINOR, ZOO_MINOR, 0, ZOO_LAYOUT, ZOO_ID, ZOO_CLAIMS);
#ifdef ZOO_NO_SYMBOL
#define worker_plugin_cuda_v0 worker_plugin_cuda_elsewhere
#endif
extern const struct wk_quant_cuda worker_plugin_cuda_v0;
WK_EXPORT const struct wk_quant_cuda worker_plugin_cuda_v0 = { .struct_size = ZOO_STRUCT_SIZE,
                                                               .id = ZOO_STRUCT_ID,
                                                               ZOO_FIELDS };
#endif
