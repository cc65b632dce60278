/* worker/plugin_cuda.h: the one symbol that a plugin's CUDA module exports, and the macros that make it.
 *
 *     WORKER_PLUGIN_CUDA("org.example.q9", "ggml:99", .n_types = 1, .types = types, .open = open, .serves = serves,
 *         .product = product);
 *
 *     WORKER_ARCH_CUDA("org.example.swirl", "arch:swirl", .open = open, .customs = customs, .n_customs = 1);
 *
 * The module is NAME-cuda.so in the folder of NAME.so, with the id of that plugin; it claims types or architectures of
 * the plugin. The macro writes the ELF note and the exported struct from the same words. In a C
 * file: no CUDA header is needed. */
#ifndef WORKER_PLUGIN_CUDA_H
#define WORKER_PLUGIN_CUDA_H

#include <worker/arch_cuda.h>
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
/* The same of an architecture: further fields of struct wk_arch_cuda. */
#define WORKER_ARCH_CUDA(id_, claims_, ...)                                                                            \
    WK_DEFINE_NOTE(WK_KIND_ARCH_CUDA, WK_CUDA_ABI_MAJOR, WK_CUDA_ABI_MINOR, WK_CUDA_ABI_MINOR, 0, WK_LAYOUT_CUDA, id_, \
                   claims_);                                                                                           \
    WK_EXTERN WK_EXPORT const struct wk_arch_cuda worker_arch_cuda_v0;                                                 \
    const struct wk_arch_cuda worker_arch_cuda_v0 = { .struct_size = sizeof(struct wk_arch_cuda),                      \
                                                      .id = id_,                                                       \
                                                      __VA_ARGS__ }
#endif

#endif
