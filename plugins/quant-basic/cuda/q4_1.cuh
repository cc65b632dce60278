/* quant-basic/cuda/q4_1.cuh: Q4_1 on the device (contract: worker/cuda/format.cuh).
 *
 * Half a unit is one block of the 16 rows: 32 lanes x { word of row g, of row g+8 }, then 8 x { d of row g, d of row
 * g+8, m of row g, m of row g+8 }. */
#ifndef QUANT_BASIC_CUDA_Q4_1_CUH
#define QUANT_BASIC_CUDA_Q4_1_CUH

#include <worker/cuda/format.cuh>

struct q4_1 {
    static constexpr uint32_t type = 3, block = 32, block_bytes = 20, unit = 64, super = 1, group = 32, slot = 640,
                              parts = 1, mins = 1;
    static constexpr float bias0 = WK_NIBBLE_BIAS0, bias1 = WK_NIBBLE_BIAS1;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 640; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 32) * 320;
    }

    struct scales {
        uint2 d[2];
        uint32_t far;
    }; /* far: some |d| is 2^-2 or more */
    struct quants {
        uint2 q[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) s.d[b] = *reinterpret_cast<const uint2 *>(unit + b * 320 + 256 + lane / 4 * 8);
        s.far = wk_h2_any(s.d[0].x | s.d[1].x, 0x3400); /* of either, or of none: too large a one does no harm */
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) q.q[b] = *reinterpret_cast<const uint2 *>(unit + b * 320 + lane * 8);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        wk_nibbles_fragments(q.q[b], a);
    }
    static constexpr float unscale = 16.0f;
    /* Plus m / 16. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        wk_nibbles_halves<FAR>(q.q[b], s.d[b].x, wk_h2_mul(s.d[b].y, 0x2c002c00u /* 2^-4 */), a);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return wk_half2_float(s.d[i].x); }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t, uint32_t i)
    {
        const float2 m = wk_half2_float(s.d[i].y);
        return make_float2(-m.x, -m.y);
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = 2 * u + word / 80, w = word % 80;
        if (w >= 64)
            return r.half<q4_1>((w - 64) / 2, b, w % 2 * 2) | r.half<q4_1>((w - 64) / 2 + 8, b, w % 2 * 2) << 16;
        const uint32_t lane = w / 2, row = lane / 4 + (w & 1 ? 8 : 0),
                       first = 8 * (lane % 4); /* value j: low (j < 16) or high nibble of byte j % 16 */
        uint32_t v = 0;
        for (uint32_t i = 0; i < 8; i++)
            v |= wk_nibble_put(r.byte<q4_1>(row, b, 4 + (first + i) % 16) >> (first < 16 ? 0 : 4) & 15u, i);
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *p = tile + (uint64_t)b * 320;
        if (half < 2) return reinterpret_cast<const uint16_t *>(p + 256)[row % 8 * 4 + half * 2 + row / 8];
        uint32_t v = 0;
        for (uint32_t i = 0; i < 4; i++) { /* nibble i of the two bytes: values j, j + 16, j + 1, j + 17 */
            const uint32_t j = 2 * half - 4 + i / 2 + i % 2 * 16;
            const uint32_t w = *reinterpret_cast<const uint32_t *>(p + (row % 8 * 4 + j / 8) * 8 + row / 8 * 4);
            v |= wk_nibble_get(w, j % 8) << (4 * i);
        }
        return v;
    }
};

#endif
