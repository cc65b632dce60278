/* test_module.h: a quantization module for tests of the executor: every type that the CPU side dequantizes, as F32
 * tiles with the file's bytes behind them, and the products of worker/quant_cuda.h in the plainest form: one thread a
 * result, sums in the order of k. Slow, and hard to get wrong. */
#ifndef CORE_DEVICE_CUDA_TEST_MODULE_H
#define CORE_DEVICE_CUDA_TEST_MODULE_H

#include <worker/quant.h>
#include <worker/quant_cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TEST_TYPES = 40 };
/* cpu [TEST_TYPES]: by ggml type, NULL: not served; read when tiles are packed. serves() says yes to equal types, and
 * to mixed ones when asked to. */
const struct wk_quant_cuda *test_module(const struct wk_type_cpu *const *cpu, int32_t mixed);

#ifdef __cplusplus
}
#endif
#endif
