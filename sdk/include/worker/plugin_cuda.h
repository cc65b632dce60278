/* worker/plugin_cuda.h: the one symbol that a quantization plugin's CUDA module exports, and the macro that makes it.
 *
 *     WORKER_PLUGIN_CUDA("org.example.q9", "ggml:99", .n_types = 1, .types = types, .open = open, .serves = serves,
 *         .product = product);
 *
 * The module is NAME-cuda.so in the folder of NAME.so, with the id of that plugin; it claims the types that it serves,
 * all of them types of the plugin. The macro writes the ELF note and the exported struct from the same words. In a C
 * file: no CUDA header is needed. */
#ifndef WORKER_PLUGIN_CUDA_H
#define WORKER_PLUGIN_CUDA_H

#include <worker/plugin.h>
#include <worker/quant_cuda.h>

#if defined(__GNUC__)
/* ... : further fields of struct wk_quant_cuda as designated initializers, in their order. C, or C++20. */
#define WORKER_PLUGIN_CUDA(id_, claims_, ...)                                                                      \
    WK_DEFINE_NOTE(WK_KIND_QUANT_CUDA, WK_CUDA_ABI_MAJOR, WK_CUDA_ABI_MINOR, WK_CUDA_ABI_MINOR, 0, WK_LAYOUT_CUDA, \
                   id_, claims_);                                                                                  \
    WK_EXTERN WK_EXPORT const struct wk_quant_cuda worker_plugin_cuda_v0;                                          \
    const struct wk_quant_cuda worker_plugin_cuda_v0 = { .struct_size = sizeof(struct wk_quant_cuda),              \
                                                         .id = id_,                                                \
                                                         __VA_ARGS__ }
#endif

#endif
