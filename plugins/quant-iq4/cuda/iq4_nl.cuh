/* quant-iq4/cuda/iq4_nl.cuh: IQ4_NL on the device (contract: worker/cuda/format.cuh).
 *
 * Half a unit is one block of the 16 rows: 32 lanes x { word of row g, of row g+8 } (iq4_bits.h), then 8 x { d of row
 * g, d of row g+8 }. */
#ifndef QUANT_IQ4_CUDA_IQ4_NL_CUH
#define QUANT_IQ4_CUDA_IQ4_NL_CUH

#include "iq4.cuh"

#include <worker/cuda/format.cuh>

struct iq4_nl {
    static constexpr uint32_t type = 20, block = 32, block_bytes = 18, unit = 64, super = 1, group = 32, slot = 576,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 576; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 32) * 288;
    }

    struct scales {
        uint32_t d[2], far; /* far: some |d| is 2^-4 or more */
    };
    struct quants {
        uint2 q[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) s.d[b] = *reinterpret_cast<const uint32_t *>(unit + b * 288 + 256 + lane / 4 * 4);
        s.far = wk_h2_any(s.d[0] | s.d[1], 0x2c00); /* of either, or of none: too large a one does no harm */
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) q.q[b] = *reinterpret_cast<const uint2 *>(unit + b * 288 + lane * 8);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        iq4_fragments(q.q[b], a);
    }
    static constexpr float unscale = 16.0f;
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        iq4_halves<FAR>(q.q[b], iq4_up(s.d[b], FAR), a);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        const float2 d = wk_half2_float(s.d[i]);
        return make_float2(__fmul_rn(d.x, 16777216.0f), __fmul_rn(d.y, 16777216.0f));
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = 2 * u + word / 72, w = word % 72;
        if (w >= 64) return r.half<iq4_nl>(w - 64, b, 0) | r.half<iq4_nl>(w - 56, b, 0) << 16;
        const uint32_t lane = w / 2;
        return iq4_pack<iq4_nl>(r, lane / 4 + (w & 1 ? 8 : 0), b, 2, 8 * (lane % 4));
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *p = tile + (uint64_t)b * 288;
        if (half == 0) return reinterpret_cast<const uint16_t *>(p + 256)[row % 8 * 2 + row / 8];
        uint32_t v = 0;
        for (uint32_t i = 0; i < 4; i++) { /* nibble i of the two bytes: values j, j + 16, j + 1, j + 17 */
            const uint32_t j = 2 * half - 2 + i / 2 + i % 2 * 16;
            const uint32_t w = *reinterpret_cast<const uint32_t *>(p + (row % 8 * 4 + j / 8) * 8 + row / 8 * 4);
            v |= iq4_get(w, j % 8) << (4 * i);
        }
        return v;
    }
};

#endif
