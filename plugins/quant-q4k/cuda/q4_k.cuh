/* quant-q4k/cuda/q4_k.cuh: Q4_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four groups, the even one beginning with the scales of both
 * (k4.cuh). Quants: chunk c of a unit, of all lanes: { group 2c: word of row g, of row g+8; group 2c
 * + 1: likewise }. */
#ifndef QUANT_Q4K_CUDA_Q4_K_CUH
#define QUANT_Q4K_CUDA_Q4_K_CUH

#include "k4.cuh"

#include <worker/cuda/format.cuh>

struct q4_k {
    static constexpr uint32_t type = 12, block = 256, block_bytes = 144, unit = 128, super = 2, group = 32, slot = 1280,
                              parts = 1, mins = 1;
    static constexpr float bias0 = WK_NIBBLE_BIAS0, bias1 = WK_NIBBLE_BIAS1;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 2304 + u % 2 * 1280;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 2304;
    }

    typedef k4_scales scales;
    struct quants {
        uint4 q[2];
    };
    static __device__ __forceinline__ const unsigned char *plane(const unsigned char *unit, uint32_t u)
    {
        return unit + (u % 2 ? 0 : K4_BYTES);
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        k4_load<14, 0x1c00 /* 2^-8 */>(s, unit, u, lane);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
#pragma unroll
        for (int c = 0; c < 2; c++) q.q[c] = *reinterpret_cast<const uint4 *>(plane(unit, u) + (c * 32 + lane) * 16);
    }
    static __device__ __forceinline__ uint2 words(const quants &q, uint32_t b)
    {
        return b % 2 ? make_uint2(q.q[b / 2].z, q.q[b / 2].w) : make_uint2(q.q[b / 2].x, q.q[b / 2].y);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        wk_nibbles_fragments(words(q, b), a);
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-18 times d sc 2^14, and q 2^-22 times 16 times that, less dmin m / 16. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t u, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        wk_nibbles_fragments(words(q, b), a, 0, 0);
        if constexpr (FAR) wk_h2_lift(a[0]);
        const uint2 f = k4_halves(s, u, b);
        const uint32_t more = wk_h2_mul(f.x, 0x4c004c00u /* 16 */);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            a[0][i / 4][i % 4] =
                wk_h2_fma(a[0][i / 4][i % 4], wk_h2_both(i % 4 < 2 ? more : f.x, i % 2), wk_h2_both(f.y, i % 2));
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return k4_scale(s, i); }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t, uint32_t i) { return k4_min(s, i); }

    /* Group j of the file's block: lower or upper nibbles of bytes 16 + 32 (j / 2) + value. */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2, scale_words = u % 2 ? 0 : K4_BYTES / 4;
        if (word < scale_words) return k4_pack<q4_k>(r, b, word);
        word -= scale_words;
        const uint32_t lane = word / 4 % 32, row = lane / 4 + word % 2 * 8,
                       j = u % 2 * 4 + word / 128 * 2 + word / 2 % 2, at = 16 + j / 2 * 32 + lane % 4 * 8;
        uint32_t v = 0;
        for (uint32_t i = 0; i < 8; i++) v |= wk_nibble_put(r.byte<q4_k>(row, b, at + i) >> (j % 2 * 4) & 15u, i);
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        if (half < 8) return k4_unpack(tile + offset(2 * b), row, half);
        uint32_t v = 0;
        for (uint32_t i = 0; i < 4; i++) { /* nibble i: value 2 (half - 8) % 32 + i / 2 of group j */
            const uint32_t at = 2 * (half - 8), j = at / 32 * 2 + i % 2, value = at % 32 + i / 2, u = j / 4;
            const unsigned char *quants_at = plane(tile + offset(2 * b + u), u);
            const uint32_t w = reinterpret_cast<const uint32_t *>(
                quants_at)[(j % 4 / 2 * 32 + row % 8 * 4 + value / 8) * 4 + j % 2 * 2 + row / 8];
            v |= wk_nibble_get(w, value % 8) << (4 * i);
        }
        return v;
    }
};

#endif
