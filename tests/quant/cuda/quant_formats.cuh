/* quant_formats.cuh: every format as test_product and bench_product_cuda see it: its CPU side's dequantize, its tiles,
 * its family of products. */
#ifndef QUANT_TEST_QUANT_FORMATS_CUH
#define QUANT_TEST_QUANT_FORMATS_CUH

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/product.cuh>
#include <worker/quant.h>

#include "../../../plugins/quant-basic/cuda/plain.cuh"
#include "../../../plugins/quant-basic/cuda/q4_0.cuh"
#include "../../../plugins/quant-basic/cuda/q4_1.cuh"
#include "../../../plugins/quant-basic/cuda/q5_0.cuh"
#include "../../../plugins/quant-basic/cuda/q5_1.cuh"
#include "../../../plugins/quant-basic/cuda/q8_0.cuh"
#include "../../../plugins/quant-iq/cuda/iq1.cuh"
#include "../../../plugins/quant-iq/cuda/iq2.cuh"
#include "../../../plugins/quant-iq/cuda/iq3.cuh"
#include "../../../plugins/quant-iq4/cuda/iq4_nl.cuh"
#include "../../../plugins/quant-iq4/cuda/iq4_xs.cuh"
#include "../../../plugins/quant-mxfp4/cuda/mxfp4.cuh"
#include "../../../plugins/quant-mxfp4/cuda/nvfp4.cuh"
#include "../../../plugins/quant-q4k/cuda/q2_k.cuh"
#include "../../../plugins/quant-q4k/cuda/q3_k.cuh"
#include "../../../plugins/quant-q4k/cuda/q4_k.cuh"
#include "../../../plugins/quant-q4k/cuda/q5_k.cuh"
#include "../../../plugins/quant-q4k/cuda/q6_k.cuh"
#include "../../../plugins/quant-tq/cuda/tq1_0.cuh"
#include "../../../plugins/quant-tq/cuda/tq2_0.cuh"

extern "C" {
extern const struct wk_product_family quant_basic_q8, quant_basic_q41, quant_basic_f16, quant_basic_bf16,
    quant_basic_f32, quant_q4k_k, quant_q4k_k23, quant_mxfp4, quant_iq4_nl, quant_iq4_xs, quant_nvfp4, quant_tq1_0,
    quant_tq2_0, quant_iq2_xxs, quant_iq2_xs, quant_iq2_s, quant_iq3_xxs, quant_iq3_s, quant_iq1_s, quant_iq1_m;
void f32_dequantize(const struct wk_dequantize *in);
void f16_dequantize(const struct wk_dequantize *in);
void bf16_dequantize(const struct wk_dequantize *in);
void q8_0_dequantize(const struct wk_dequantize *in);
void q5_0_dequantize(const struct wk_dequantize *in);
void q5_1_dequantize(const struct wk_dequantize *in);
void q4_0_dequantize(const struct wk_dequantize *in);
void q4_1_dequantize(const struct wk_dequantize *in);
void q2_K_dequantize(const struct wk_dequantize *in);
void q3_K_dequantize(const struct wk_dequantize *in);
void q4_K_dequantize(const struct wk_dequantize *in);
void q5_K_dequantize(const struct wk_dequantize *in);
void q6_K_dequantize(const struct wk_dequantize *in);
void mxfp4_dequantize(const struct wk_dequantize *in);
void iq4_nl_dequantize(const struct wk_dequantize *in);
void iq4_xs_dequantize(const struct wk_dequantize *in);
void nvfp4_dequantize(const struct wk_dequantize *in);
void tq1_0_dequantize(const struct wk_dequantize *in);
void tq2_0_dequantize(const struct wk_dequantize *in);
void iq2_xxs_dequantize(const struct wk_dequantize *in);
void iq2_xs_dequantize(const struct wk_dequantize *in);
void iq2_s_dequantize(const struct wk_dequantize *in);
void iq3_xxs_dequantize(const struct wk_dequantize *in);
void iq3_s_dequantize(const struct wk_dequantize *in);
void iq1_s_dequantize(const struct wk_dequantize *in);
void iq1_m_dequantize(const struct wk_dequantize *in);
}

/* A call of the runtime that fails ends the program; text: what a family says of a product that it refuses. */
static inline void ok(cudaError_t e, int line)
{
    if (e == cudaSuccess) return;
    printf("line %d: %s\n", line, cudaGetErrorString(e));
    exit(1);
}
#define OK(call) ok(call, __LINE__)
static char text[256];
static const struct wk_err err = { text, sizeof text };

template <class F>
static __global__ void pack_kernel(unsigned char *tiles, const unsigned char *rows, uint32_t n, uint32_t k)
{
    const uint64_t bytes = F::tile_bytes(k), row_bytes = (uint64_t)(k / F::block) * F::block_bytes;
    const wk_tile_rows r = { rows + blockIdx.x * 16 * row_bytes, row_bytes, min(16u, n - blockIdx.x * 16), k };
    const uint32_t units = (k + F::unit - 1) / F::unit;
    for (uint32_t u = 0; u < units; u++)
        for (uint32_t w = threadIdx.x; F::offset(u) + w * 4 < (u + 1 < units ? F::offset(u + 1) : bytes);
             w += blockDim.x)
            *(uint32_t *)(tiles + blockIdx.x * wk_tile_stride<F>(k) + F::offset(u) + w * 4) = F::pack(r, u, w);
}
template <class F>
static __global__ void unpack_kernel(unsigned char *rows, const unsigned char *tiles, uint32_t n, uint32_t k)
{
    const uint32_t halves = (F::block_bytes + 1) / 2, row_halves = k / F::block * halves;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n * row_halves; i += gridDim.x * blockDim.x) {
        const uint32_t row = i / row_halves, block = i % row_halves / halves, half = i % halves,
                       v = F::unpack(tiles + row / 16 * wk_tile_stride<F>(k), row % 16, block, half);
        unsigned char *to = rows + ((uint64_t)row * (k / F::block) + block) * F::block_bytes + 2 * half;
        to[0] = (unsigned char)v;
        if (2 * half + 1 < F::block_bytes) to[1] = (unsigned char)(v >> 8);
    }
}

template <class F> static __device__ auto wk_part_scale(uint32_t part, int) -> decltype(F::part_scale(part))
{
    return F::part_scale(part);
}
template <class F> static __device__ float wk_part_scale(uint32_t, long) { return 1.0f; }
/* The weights that products multiply with, worker/cuda/part/weights.cuh, as F32 [n][k]. A warp a tile. */
template <class F> static __global__ void weights_kernel(float *w, const unsigned char *tiles, uint32_t n, uint32_t k)
{
    __shared__ uint4 unit[F::super][F::slot / 16];
    const uint32_t lane = threadIdx.x, g = lane / 4, t = lane % 4, units = (k + F::unit - 1) / F::unit;
    const unsigned char *tile = tiles + blockIdx.x * wk_tile_stride<F>(k);
    for (uint32_t u = 0; u < units; u++) {
        typename F::scales s;
        for (uint32_t place = 0; place <= u % F::super; place++) { /* the unit, and in a super-unit those before it */
            typename F::quants q;
            const uint64_t first = F::offset(u - u % F::super + place);
            __syncwarp();
            for (uint32_t i = lane; i < F::slot / 16; i += 32)
                unit[place][i] = first + i * 16 < F::tile_bytes(k)
                                     ? *reinterpret_cast<const uint4 *>(tile + first + i * 16)
                                     : make_uint4(0, 0, 0, 0);
            __syncwarp();
            const unsigned char *at = reinterpret_cast<const unsigned char *>(unit[place]);
            F::load(s, at, place, lane);
            F::load(q, at, place, lane);
            for (uint32_t b = 0; place == u % F::super && b < F::unit / 32; b++) {
                wk_weights32<F> of;
                if (wk_wide_range<F>(s))
                    of.template make<true>(q, s, place, b);
                else
                    of.template make<false>(q, s, place, b);
                for (uint32_t i = 0; i < 8; i++) {
                    const uint32_t row = blockIdx.x * 16 + g + i % 2 * 8,
                                   at_k = u * F::unit +
                                          (wk_is_int8<F>::yes && F::group == 16
                                               ? b / 2 * 64 + 16 * t + b % 2 * 8 + i / 4 * 4
                                               : b * 32 + (F::group == 32 ? 8 * t + i / 4 * 4 : i / 4 * 16 + 4 * t)) +
                                          i % 4 / 2 * 2;
                    for (uint32_t j = 0; j < 2; j++) {
                        float v = 0.0f;
                        for (uint32_t part = 0; part < F::parts;
                             part++) { /* of F32 both are exact, and so is their sum */
                            const float2 two = wk_half2_float(of.a[part][i / 4][i % 4]);
                            v += (j ? two.y : two.x) * wk_part_scale<F>(part, 0);
                        }
                        if (wk_is_exact<F>::yes) v *= i % 2 ? of.scale.y : of.scale.x;
                        if (row < n && at_k + j < k) w[(uint64_t)row * k + at_k + j] = v * wk_unscale<F>();
                    }
                }
            }
        }
    }
}

struct format {
    const char *name;
    uint32_t type, block, block_bytes, halves[2],
        exponent; /* byte offsets, 0xffff: none: of f16 fields; of a byte that holds an exponent, or a sign and one */
    bool int8;    /* its dense products are integer products (worker/cuda/part/int8.cuh) */
    const struct wk_product_family *family;
    void (*dequantize)(const struct wk_dequantize *);
    uint64_t (*tile_stride)(uint32_t);
    void (*pack)(unsigned char *, const unsigned char *, uint32_t, uint32_t);
    void (*unpack)(unsigned char *, const unsigned char *, uint32_t, uint32_t);
    void (*weights)(float *, const unsigned char *, uint32_t, uint32_t);
};
/* k, or a little more: blocks are whole. */
static inline uint32_t whole_blocks(const struct format *f, uint32_t k)
{
    return (k + f->block - 1) / f->block * f->block;
}
/* NVFP4 begins with four scales: 1/64 to 1/16; larger ones make activations that an f16 does not hold. */
static inline void put_nvfp4_scales(unsigned char *block, uint32_t bits)
{
    for (uint32_t i = 0; i < 4; i++) block[i] = (unsigned char)(8 + (bits >> 4 * i & 15u));
}
/* IQ1_M has the half d of a block in four nibbles. */
static inline void put_iq1_m_d(unsigned char *block, __half d)
{
    uint16_t bits;
    memcpy(&bits, &d, 2);
    for (uint32_t j = 0; j < 4; j++)
        block[49 + 2 * j] = (unsigned char)((block[49 + 2 * j] & 15u) | (bits >> 4 * j & 15u) << 4);
}
template <class F> static void pack_of(unsigned char *tiles, const unsigned char *rows, uint32_t n, uint32_t k)
{
    pack_kernel<F><<<(n + 15) / 16, 256>>>(tiles, rows, n, k);
}
template <class F> static void unpack_of(unsigned char *rows, const unsigned char *tiles, uint32_t n, uint32_t k)
{
    unpack_kernel<F><<<256, 256>>>(rows, tiles, n, k);
}
template <class F> static void weights_of(float *w, const unsigned char *tiles, uint32_t n, uint32_t k)
{
    weights_kernel<F><<<(n + 15) / 16, 32>>>(w, tiles, n, k);
}
#define FORMAT(F, name, h0, h1, e, family, deq)                                                          \
    { name, F::type,           F::block,   F::block_bytes, { h0, h1 },   e, wk_is_int8<F>::yes, &family, \
      deq,  wk_tile_stride<F>, pack_of<F>, unpack_of<F>,   weights_of<F> }
static const struct format formats[] = {
    FORMAT(q8_0, "q8_0", 0, 0xffff, 0xffff, quant_basic_q8, q8_0_dequantize),
    FORMAT(q5_0, "q5_0", 0, 0xffff, 0xffff, quant_basic_q8, q5_0_dequantize),
    FORMAT(q4_0, "q4_0", 0, 0xffff, 0xffff, quant_basic_q8, q4_0_dequantize),
    FORMAT(q4_k, "q4_K", 0, 2, 0xffff, quant_q4k_k, q4_K_dequantize),
    FORMAT(q5_k, "q5_K", 0, 2, 0xffff, quant_q4k_k, q5_K_dequantize),
    FORMAT(q6_k, "q6_K", 208, 0xffff, 0xffff, quant_q4k_k, q6_K_dequantize),
    FORMAT(mxfp4, "mxfp4", 0xffff, 0xffff, 0, quant_mxfp4, mxfp4_dequantize),
    FORMAT(q2_k, "q2_K", 80, 82, 0xffff, quant_q4k_k23, q2_K_dequantize),
    FORMAT(q3_k, "q3_K", 108, 0xffff, 0xffff, quant_q4k_k23, q3_K_dequantize),
    FORMAT(q4_1, "q4_1", 0, 2, 0xffff, quant_basic_q41, q4_1_dequantize),
    FORMAT(q5_1, "q5_1", 0, 2, 0xffff, quant_basic_q41, q5_1_dequantize),
    FORMAT(f16, "f16", 0, 0xffff, 0xffff, quant_basic_f16, f16_dequantize),
    FORMAT(bf16, "bf16", 0xffff, 0xffff, 1, quant_basic_bf16, bf16_dequantize),
    FORMAT(f32, "f32", 0xffff, 0xffff, 3, quant_basic_f32, f32_dequantize),
    FORMAT(iq4_nl, "iq4_nl", 0, 0xffff, 0xffff, quant_iq4_nl, iq4_nl_dequantize),
    FORMAT(iq4_xs, "iq4_xs", 0, 0xffff, 0xffff, quant_iq4_xs, iq4_xs_dequantize),
    FORMAT(nvfp4, "nvfp4", 0xffff, 0xffff, 0xffff, quant_nvfp4, nvfp4_dequantize),
    FORMAT(tq1_0, "tq1_0", 52, 0xffff, 0xffff, quant_tq1_0, tq1_0_dequantize),
    FORMAT(tq2_0, "tq2_0", 64, 0xffff, 0xffff, quant_tq2_0, tq2_0_dequantize),
    FORMAT(iq2_xxs, "iq2_xxs", 0, 0xffff, 0xffff, quant_iq2_xxs, iq2_xxs_dequantize),
    FORMAT(iq2_xs, "iq2_xs", 0, 0xffff, 0xffff, quant_iq2_xs, iq2_xs_dequantize),
    FORMAT(iq2_s, "iq2_s", 0, 0xffff, 0xffff, quant_iq2_s, iq2_s_dequantize),
    FORMAT(iq3_xxs, "iq3_xxs", 0, 0xffff, 0xffff, quant_iq3_xxs, iq3_xxs_dequantize),
    FORMAT(iq3_s, "iq3_s", 0, 0xffff, 0xffff, quant_iq3_s, iq3_s_dequantize),
    FORMAT(iq1_s, "iq1_s", 0, 0xffff, 0xffff, quant_iq1_s, iq1_s_dequantize),
    FORMAT(iq1_m, "iq1_m", 0xffff, 0xffff, 0xffff, quant_iq1_m, iq1_m_dequantize),
};
enum { N_FORMATS = sizeof formats / sizeof *formats };
static const struct wk_product_family *const families[] = {
    &quant_basic_q8, &quant_basic_q41, &quant_basic_f16, &quant_basic_bf16, &quant_basic_f32,
    &quant_q4k_k,    &quant_q4k_k23,   &quant_mxfp4,     &quant_iq4_nl,     &quant_iq4_xs,
    &quant_nvfp4,    &quant_tq1_0,     &quant_tq2_0,     &quant_iq2_xxs,    &quant_iq2_xs,
    &quant_iq2_s,    &quant_iq3_xxs,   &quant_iq3_s,     &quant_iq1_s,      &quant_iq1_m
};

/* The items of `ids` ([rows][stride], the first k of each row) by expert, as worker/quant_cuda.h lays them out, in the
 * plainest way; rows below `skip` have none. The caller frees it. */
static inline uint32_t *items_by_expert(const uint32_t *ids, uint32_t stride, uint32_t rows, uint32_t k,
                                        uint32_t experts, uint32_t skip)
{
    uint32_t *g = (uint32_t *)calloc(wk_cuda_group_words(experts, rows * k), 4), used = 0, items = 0;
    for (uint32_t e = 0; e < experts; e++) {
        const uint32_t before = items;
        for (uint32_t i = skip * k; i < rows * k; i++)
            if (ids[i / k * stride + i % k] == e) g[2 * experts + 1 + items++] = i;
        if (items == before) continue;
        g[used] = e;
        g[experts + used++] = before;
    }
    for (uint32_t i = used; i <= experts; i++) g[experts + i] = items;
    return g;
}

#endif
