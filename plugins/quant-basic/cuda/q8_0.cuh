/* quant-basic/cuda/q8_0.cuh: Q8_0 on the device (contract: worker/cuda/format.cuh).
 *
 * Half a unit is one block of the 16 rows: 32 lanes x { row g: 8 values, row g+8: 8 values } as bytes q + 128, then 8 x
 * { d of row g, d of row g+8 }. A byte under the exponent of 1024 is 1024 + 128 + q. */
#ifndef QUANT_BASIC_CUDA_Q8_0_CUH
#define QUANT_BASIC_CUDA_Q8_0_CUH

#include <worker/cuda/format.cuh>

struct q8_0 {
    static constexpr uint32_t type = 8, block = 32, block_bytes = 34, unit = 64, super = 1, group = 32, slot = 1088,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 1152.0f, bias1 = 1152.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 1088; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 32) * 544;
    }

    struct scales {
        uint32_t d[2];
    };
    struct quants {
        uint4 q[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) s.d[b] = *reinterpret_cast<const uint32_t *>(unit + b * 544 + 512 + lane / 4 * 4);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) q.q[b] = *reinterpret_cast<const uint4 *>(unit + b * 544 + lane * 16);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t c;
        asm("mov.b32 %0, 0x64646464;"
            : "=r"(c)); /* from a register: as a constant it is part of the permutation, and the selector is moved to a
                           register, for each anew */
        const uint4 v = q.q[b];
        a[0][0][0] = __byte_perm(v.x, c, 0x4140);
        a[0][0][1] = __byte_perm(v.z, c, 0x4140);
        a[0][0][2] = __byte_perm(v.x, c, 0x4342);
        a[0][0][3] = __byte_perm(v.z, c, 0x4342);
        a[0][1][0] = __byte_perm(v.y, c, 0x4140);
        a[0][1][1] = __byte_perm(v.w, c, 0x4140);
        a[0][1][2] = __byte_perm(v.y, c, 0x4342);
        a[0][1][3] = __byte_perm(v.w, c, 0x4342);
    }
    static constexpr float unscale = 1.0f;
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        fragments(q, b, a);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            a[0][i / 4][i % 4] =
                wk_h2_mul(wk_h2_add(a[0][i / 4][i % 4], 0xe480e480u /* -1152 */), wk_h2_both(s.d[b], i % 2));
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return wk_half2_float(s.d[i]); }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = 2 * u + word / 136, w = word % 136;
        if (w >= 128) return r.half<q8_0>(w - 128, b, 0) | r.half<q8_0>(w - 120, b, 0) << 16;
        const uint32_t lane = w / 4, row = lane / 4 + (w & 2 ? 8 : 0), at = 2 + 8 * (lane % 4) + (w & 1 ? 4 : 0);
        uint32_t v = 0;
        for (uint32_t i = 0; i < 4; i++) v |= r.byte<q8_0>(row, b, at + i) << (8 * i);
        return v ^ 0x80808080u;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *p = tile + (uint64_t)b * 544;
        if (half == 0) return reinterpret_cast<const uint16_t *>(p + 512)[row % 8 * 2 + row / 8];
        const uint32_t j = 2 * half - 2; /* value */
        return *reinterpret_cast<const uint16_t *>(p + (row % 8 * 4 + j / 8) * 16 + row / 8 * 8 + j % 8) ^ 0x8080u;
    }
};

#endif
