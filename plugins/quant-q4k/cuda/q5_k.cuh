/* quant-q4k/cuda/q5_k.cuh: Q5_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four groups, the even one beginning with the scales of both
 * (k4.cuh). Quants: per lane two runs of 32 values of 5 bits in 5 words (wk_fives), run c of groups 2c and 2c + 1: pair
 * 8 (group % 2) + 4 h + i: row g + 8 h, values 8t + 2i and 8t + 2i + 1. First four words of run 0, of all lanes; then
 * of run 1; then the fifth words of both. */
#ifndef QUANT_Q4K_CUDA_Q5_K_CUH
#define QUANT_Q4K_CUDA_Q5_K_CUH

#include "k4.cuh"

#include <worker/cuda/format.cuh>

struct q5_k {
    static constexpr uint32_t type = 13, block = 256, block_bytes = 176, unit = 128, super = 2, group = 32, slot = 1536,
                              parts = 1, mins = 1;
    static constexpr float bias0 = WK_FIVES_BIAS, bias1 = WK_FIVES_BIAS;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 2816 + u % 2 * 1536;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 2816;
    }

    typedef k4_scales scales;
    struct quants {
        uint32_t w[2][5];
    };
    static __device__ __forceinline__ const unsigned char *plane(const unsigned char *unit, uint32_t u)
    {
        return unit + (u % 2 ? 0 : K4_BYTES);
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        k4_load<15, 0x2800 /* 2^-5 */>(s, unit, u, lane);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const uint2 last = *reinterpret_cast<const uint2 *>(plane(unit, u) + 1024 + lane * 8);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint4 v = *reinterpret_cast<const uint4 *>(plane(unit, u) + (c * 32 + lane) * 16);
            q.w[c][0] = v.x, q.w[c][1] = v.y, q.w[c][2] = v.z, q.w[c][3] = v.w, q.w[c][4] = c ? last.y : last.x;
        }
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4],
                                                     uint32_t c = 0x50005000u)
    {
        uint32_t o[16]; /* what the other group of the run needs is not computed here */
        wk_fives(q.w[b / 2], o, c);
        wk_rows_fragments(o + 8 * (b % 2), o + 8 * (b % 2) + 4, a[0]);
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-19 times d sc 2^15, less dmin m / 16. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t u, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        fragments(q, b, a, 0);
        if constexpr (FAR) wk_h2_lift(a[0]);
        const uint2 f = k4_halves(s, u, b);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            a[0][i / 4][i % 4] = wk_h2_fma(a[0][i / 4][i % 4], wk_h2_both(f.x, i % 2), wk_h2_both(f.y, i % 2));
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return k4_scale(s, i); }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t, uint32_t i) { return k4_min(s, i); }

    /* Group j of the file's block: lower or upper nibbles of bytes 48 + 32 (j / 2) + value, bit j of byte 16 + value
     * above. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j,
                                                     uint32_t value)
    {
        return (r.byte<q5_k>(row, b, 48 + j / 2 * 32 + value) >> (j % 2 * 4) & 15u) |
               (r.byte<q5_k>(row, b, 16 + value) >> j & 1u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2, scale_words = u % 2 ? 0 : K4_BYTES / 4;
        if (word < scale_words) return k4_pack<q5_k>(r, b, word);
        word -= scale_words;
        const uint32_t lane = word < 256 ? word / 4 % 32 : (word - 256) / 2, c = word < 256 ? word / 128 : word % 2,
                       w = word < 256 ? word % 4 : 4;
        uint32_t v = 0;
        for (uint32_t p = 0; p < 16; p++) {
            if (p < 15 && p / 3 != w) continue;
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t q =
                    quant(r, lane / 4 + p / 4 % 2 * 8, b, u % 2 * 4 + 2 * c + p / 8, lane % 4 * 8 + p % 4 * 2 + i);
                v |= p < 15 ? q << ((p % 3 == 0 ? 5 : p % 3 == 1 ? 10 : 0) + 16 * i) : (q >> w & 1u) << (15 + 16 * i);
            }
        }
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        if (half < 8) return k4_unpack(tile + offset(2 * b), row, half);
        auto bit = [&](uint32_t j, uint32_t value,
                       uint32_t n) { /* bit n of the value's quant in group j */
                                     const uint32_t u = j / 4, lane = row % 8 * 4 + value / 8;
                                     const unsigned char *quants_at = plane(tile + offset(2 * b + u), u);
                                     uint32_t w, at;
                                     wk_five_at(j % 2 * 8 + row / 8 * 4 + value % 8 / 2, value % 2, n, &w, &at);
                                     return *reinterpret_cast<const uint32_t *>(
                                                quants_at + (w < 4 ? (j % 4 / 2 * 32 + lane) * 16 + w * 4
                                                                   : 1024 + lane * 8 + j % 4 / 2 * 4)) >>
                                                at &
                                            1u;
        };
        uint32_t v = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t at = 2 * half + i / 8; /* byte of the file's block */
            v |= (at < 48 ? bit(i % 8, at - 16, 4) : bit((at - 48) / 32 * 2 + i % 8 / 4, (at - 48) % 32, i % 4)) << i;
        }
        return v;
    }
};

#endif
