/* quant_formats.cuh: every format as test_product and bench_product_cuda see it: its CPU side's dequantize, its tiles, its family of products. */
#ifndef QUANT_TEST_QUANT_FORMATS_CUH
#define QUANT_TEST_QUANT_FORMATS_CUH

#include <worker/cuda/product.cuh>

#include "../../quant-basic/cuda/q4_0.cuh"
#include "../../quant-basic/cuda/q5_0.cuh"
#include "../../quant-basic/cuda/q8_0.cuh"
#include "../../quant-q4k/cuda/q4_k.cuh"
#include "../../quant-q4k/cuda/q5_k.cuh"
#include "../../quant-q4k/cuda/q6_k.cuh"

extern "C" {
extern const struct wk_product_family quant_basic_q8, quant_q4k_k;
void q8_0_dequantize(float *y, const void *blocks, uint64_t n);
void q5_0_dequantize(float *y, const void *blocks, uint64_t n);
void q4_0_dequantize(float *y, const void *blocks, uint64_t n);
void q4_K_dequantize(float *y, const void *blocks, uint64_t n);
void q5_K_dequantize(float *y, const void *blocks, uint64_t n);
void q6_K_dequantize(float *y, const void *blocks, uint64_t n);
}

template <class F> static __global__ void pack_kernel(unsigned char *tiles, const unsigned char *rows, uint32_t n, uint32_t k)
{
    const uint64_t bytes = F::tile_bytes(k), row_bytes = (uint64_t)(k / F::block) * F::block_bytes;
    const wk_tile_rows r = { rows + blockIdx.x * 16 * row_bytes, row_bytes, min(16u, n - blockIdx.x * 16), k };
    const uint32_t units = (k + F::unit - 1) / F::unit;
    for (uint32_t u = 0; u < units; u++)
        for (uint32_t w = threadIdx.x; F::offset(u) + w * 4 < (u + 1 < units ? F::offset(u + 1) : bytes); w += blockDim.x)
            *(uint32_t *)(tiles + blockIdx.x * bytes + F::offset(u) + w * 4) = F::pack(r, u, w);
}
template <class F> static __global__ void unpack_kernel(uint16_t *rows, const unsigned char *tiles, uint32_t n, uint32_t k)
{
    const uint32_t halves = F::block_bytes / 2, row_halves = k / F::block * halves;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n * row_halves; i += gridDim.x * blockDim.x) {
        const uint32_t row = i / row_halves, j = i % row_halves;
        rows[i] = (uint16_t)F::unpack(tiles + row / 16 * F::tile_bytes(k), row % 16, j / halves, j % halves);
    }
}

struct format {
    const char *name;
    uint32_t type, block, block_bytes, halves[2]; /* byte offsets of f16 fields, 0xffff: none */
    const struct wk_product_family *family;
    void (*dequantize)(float *, const void *, uint64_t);
    uint64_t (*tile_bytes)(uint32_t);
    void (*pack)(unsigned char *, const unsigned char *, uint32_t, uint32_t);
    void (*unpack)(uint16_t *, const unsigned char *, uint32_t, uint32_t);
};
template <class F> static uint64_t tile_bytes_of(uint32_t k) { return F::tile_bytes(k); }
template <class F> static void pack_of(unsigned char *tiles, const unsigned char *rows, uint32_t n, uint32_t k) { pack_kernel<F><<<(n + 15) / 16, 256>>>(tiles, rows, n, k); }
template <class F> static void unpack_of(uint16_t *rows, const unsigned char *tiles, uint32_t n, uint32_t k) { unpack_kernel<F><<<256, 256>>>(rows, tiles, n, k); }
#define FORMAT(F, name, h0, h1, family, deq) { name, F::type, F::block, F::block_bytes, { h0, h1 }, &family, deq, tile_bytes_of<F>, pack_of<F>, unpack_of<F> }
static const struct format formats[] = {
    FORMAT(q8_0, "q8_0", 0, 0xffff, quant_basic_q8, q8_0_dequantize), FORMAT(q5_0, "q5_0", 0, 0xffff, quant_basic_q8, q5_0_dequantize),
    FORMAT(q4_0, "q4_0", 0, 0xffff, quant_basic_q8, q4_0_dequantize), FORMAT(q4_k, "q4_K", 0, 2, quant_q4k_k, q4_K_dequantize),
    FORMAT(q5_k, "q5_K", 0, 2, quant_q4k_k, q5_K_dequantize),         FORMAT(q6_k, "q6_K", 208, 0xffff, quant_q4k_k, q6_K_dequantize),
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

#endif
