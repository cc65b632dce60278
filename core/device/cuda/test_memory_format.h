/* test_memory_format.h: a format made for the tests of upload and verification: blocks of 32 values in 34 bytes, tiles
 * with the rows' bytes transposed. */
#ifndef CORE_DEVICE_CUDA_TEST_MEMORY_FORMAT_H
#define CORE_DEVICE_CUDA_TEST_MEMORY_FORMAT_H

#include <worker/quant.h>
#include <worker/quant_cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TEST_FORMAT = 8, TEST_BLOCK = 32, TEST_BLOCK_BYTES = 34 };
extern const struct wk_type_cpu test_format_cpu; /* dequantize alone: value i of a block is its byte i */
extern const struct wk_type_cuda test_format_cuda;

void test_poke(
    void *byte,
    uint8_t xor_with); /* a kernel that changes one byte of device memory; the result is for cudaDeviceSynchronize */

#ifdef __cplusplus
}
#endif
#endif
