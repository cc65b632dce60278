/* quant-iq4/cuda/iq4_xs.cuh: IQ4_XS on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four groups of 32. The even one begins with the scales of
 * both: 8 x { d of rows g, g + 8 }; then for each lane (g, t) the codes of groups t and t + 4 of both rows: their lower
 * four bits in a half, then the upper two in a byte (iq4_codes). A lane makes these scales for the group's four lanes.
 * Quants: chunk c of a unit, of all lanes: { group 2c: word of row g, of row g+8; group 2c + 1: likewise }
 * (iq4_bits.h). */
#ifndef QUANT_IQ4_CUDA_IQ4_XS_CUH
#define QUANT_IQ4_CUDA_IQ4_XS_CUH

#include "iq4.cuh"

#include <worker/cuda/format.cuh>

struct iq4_xs {
    static constexpr uint32_t type = 23, block = 256, block_bytes = 136, unit = 128, super = 2, group = 32, slot = 1152,
                              parts = 1, mins = 0, scale_bytes = 128, low_at = 32, high_at = 96;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 2176 + u % 2 * 1152;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 2176;
    }

    struct scales {
        uint32_t scale[2], far; /* of groups t and t + 4, as iq4_halves takes them; far: some |d| is 2^-9 or more */
        uint32_t place, d, low, high; /* for scale(): the unit's place, and what the lane read */
    };
    struct quants {
        uint4 q[2];
    };
    static __device__ __forceinline__ const unsigned char *plane(const unsigned char *unit, uint32_t u)
    {
        return unit + (u % 2 ? 0 : scale_bytes);
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        s.place = u % 2;
        if (u % 2) return;
        s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
        s.low = reinterpret_cast<const uint16_t *>(unit + low_at)[lane];
        s.high = unit[high_at + lane];
        s.far = wk_h2_any(s.d, 0x1800);
        const uint32_t up = iq4_up(s.d, s.far != 0);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) /* 1024 + code, less 1056 */
            s.scale[i] = wk_h2_mul(wk_h2_add(iq4_codes(s.low, s.high, i) | 0x64006400u, 0xe420e420u), up);
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
        iq4_fragments(words(q, b), a);
    }
    static constexpr float unscale = 16.0f;
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t u, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        iq4_halves<FAR>(words(q, b), __shfl_sync(0xffffffffu, s.scale[u % 2], (threadIdx.x & 28u) | b), a);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        const uint32_t codes = __shfl_sync(0xffffffffu, iq4_codes(s.low, s.high, s.place), (threadIdx.x & 28u) | i);
        const float2 d = wk_half2_float(s.d);
        return make_float2(__fmul_rn(__fmul_rn(d.x, (float)((int)(codes & 63u) - 32)), 16777216.0f),
                           __fmul_rn(__fmul_rn(d.y, (float)((int)(codes >> 16) - 32)), 16777216.0f));
    }

    /* Of the file's block. */
    static __device__ __forceinline__ uint32_t code(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return (r.byte<iq4_xs>(row, b, 4 + j / 2) >> (4 * (j % 2)) & 15u) | (r.half<iq4_xs>(row, b, 2) >> (2 * j) & 3u)
                                                                                << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (u % 2 == 0 && word < scale_bytes / 4) {
            if (word < low_at / 4) return r.half<iq4_xs>(word, b, 0) | r.half<iq4_xs>(word + 8, b, 0) << 16;
            const bool low = word < high_at / 4;
            uint32_t v = 0;
            for (uint32_t i = 0; i < (low ? 2u : 4u); i++) {
                const uint32_t lane = low ? (word - low_at / 4) * 2 + i : (word - high_at / 4) * 4 + i, g = lane / 4,
                               t = lane % 4,
                               codes[4] = { code(r, g, b, t), code(r, g + 8, b, t), code(r, g, b, t + 4),
                                            code(r, g + 8, b, t + 4) };
                v |= low ? iq4_codes_low(codes) << (16 * i) : iq4_codes_high(codes) << (8 * i);
            }
            return v;
        }
        if (u % 2 == 0) word -= scale_bytes / 4;
        const uint32_t lane = word / 4 % 32, j = u % 2 * 4 + word / 128 * 2 + word / 2 % 2;
        return iq4_pack<iq4_xs>(r, lane / 4 + word % 2 * 8, b, 8 + 16 * j, 8 * (lane % 4));
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *even = tile + offset(2 * b);
        if (half == 0) return reinterpret_cast<const uint16_t *>(even)[row % 8 * 2 + row / 8];
        uint32_t v = 0;
        if (half < 4) { /* 1: upper bits of all groups; 2 and 3: lower ones of four */
            for (uint32_t j = half == 3 ? 4 : 0; j < (half == 2 ? 4u : 8u); j++) {
                const uint32_t lane = row % 8 * 4 + j % 4,
                               codes = iq4_codes(reinterpret_cast<const uint16_t *>(even + low_at)[lane],
                                                 even[high_at + lane], j / 4) >>
                                       (row / 8 * 16);
                v |= half == 1 ? (codes >> 4 & 3u) << (2 * j) : (codes & 15u) << (4 * (j % 4));
            }
            return v;
        }
        for (uint32_t i = 0; i < 4; i++) { /* nibble i of the two bytes: values x, x + 16, x + 1, x + 17 of group j */
            const uint32_t at = 2 * (half - 4), j = at / 16, value = at % 16 + i / 2 + i % 2 * 16, u = j / 4;
            const uint32_t w = reinterpret_cast<const uint32_t *>(plane(
                tile + offset(2 * b + u), u))[(j % 4 / 2 * 32 + row % 8 * 4 + value / 8) * 4 + j % 2 * 2 + row / 8];
            v |= iq4_get(w, value % 8) << (4 * i);
        }
        return v;
    }
};

#endif
