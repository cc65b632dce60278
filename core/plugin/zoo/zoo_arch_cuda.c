/* zoo_arch_cuda.c: CUDA modules of zoo.c's architecture, without CUDA: a good one, and such that do one thing wrong. */
#include <worker/plugin_cuda.h>

#define ZOO_UNUSED __attribute__((unused)) /* by one macro or another */

#ifndef ZOO_ID
#define ZOO_ID "org.example.zoo"
#endif
#ifndef ZOO_CLAIMS
#define ZOO_CLAIMS "arch:zoo"
#endif
#ifndef ZOO_STRUCT_ID
#define ZOO_STRUCT_ID ZOO_ID
#endif
#ifndef ZOO_OPEN
#define ZOO_OPEN zoo_open
#endif
#ifndef ZOO_RUN
#define ZOO_RUN zoo_run
#endif
#ifndef ZOO_FLAGS
#define ZOO_FLAGS 0
#endif
#ifndef ZOO_RESERVED
#define ZOO_RESERVED 0
#endif
#ifndef ZOO_N_CUSTOMS
#define ZOO_N_CUSTOMS 1
#endif
#ifndef ZOO_STRUCT_SIZE
#define ZOO_STRUCT_SIZE sizeof(struct wk_arch_cuda)
#endif

#ifdef ZOO_BOMB
__attribute__((constructor)) static void bomb(void) { __builtin_trap(); }
#endif

ZOO_UNUSED static wk_status zoo_open(int32_t device, const struct wk_err *err)
{
    (void)device;
    (void)err;
    return WK_OK;
}
ZOO_UNUSED static wk_status zoo_run(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err)
{
    (void)call;
    (void)stream;
    return wk_fail(err, WK_UNSUPPORTED, "there is no CUDA here");
}

static const struct wk_custom_cuda customs[] = { { "swirl", ZOO_RUN } };

#define ZOO_FIELDS \
    .flags = ZOO_FLAGS, .open = ZOO_OPEN, .customs = customs, .n_customs = ZOO_N_CUSTOMS, .reserved = ZOO_RESERVED
#ifdef ZOO_GOOD
WORKER_ARCH_CUDA(ZOO_ID, ZOO_CLAIMS, ZOO_FIELDS);
#else
WK_DEFINE_NOTE(WK_KIND_ARCH_CUDA, WK_CUDA_ABI_MAJOR, WK_CUDA_ABI_MINOR, WK_CUDA_ABI_MINOR, 0, WK_LAYOUT_CUDA, ZOO_ID,
               ZOO_CLAIMS);
#ifdef ZOO_NO_SYMBOL
#define worker_arch_cuda_v0 worker_arch_cuda_elsewhere
#endif
extern const struct wk_arch_cuda worker_arch_cuda_v0;
WK_EXPORT const struct wk_arch_cuda worker_arch_cuda_v0 = { .struct_size = ZOO_STRUCT_SIZE,
                                                            .id = ZOO_STRUCT_ID,
                                                            ZOO_FIELDS };
#endif
