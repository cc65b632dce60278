/* toy8.cuh: toy8 on the device; worker/cuda/format.cuh says what each member is. quant.md, "On CUDA", goes through it.
 *
 * A block of the 16 rows is 576 bytes, no bit more than in the file: for each of 32 lanes { 8 values of row g, 8 of row
 * g+8 }, in the order in which the lane gives them to the tensor cores; then 8 x { d of row g, d of row g+8, m of row
 * g, m of row g+8 }. Two blocks are a unit. */
#ifndef TOY8_CUH
#define TOY8_CUH

#include <worker/cuda/format.cuh>

struct toy8 {
    static constexpr uint32_t type = 1000, block = 32, block_bytes = 36, unit = 64, super = 1, group = 32, slot = 1152,
                              parts = 1, mins = 1;
    static constexpr float bias0 = 1024.0f, bias1 = 1024.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 1152; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 32) * 576;
    }

    struct scales {
        uint2 d[2];
    };
    struct quants {
        uint4 q[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        for (int b = 0; b < 2; b++) s.d[b] = *reinterpret_cast<const uint2 *>(unit + b * 576 + 512 + lane / 4 * 8);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        for (int b = 0; b < 2; b++) q.q[b] = *reinterpret_cast<const uint4 *>(unit + b * 576 + lane * 16);
    }
    /* A byte below the exponent of 1024 is the f16 number 1024 + q: one instruction makes two of them. */
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        const uint32_t v[2][2] = { { q.q[b].x, q.q[b].y }, { q.q[b].z, q.q[b].w } }; /* [row g, g+8][values 0-3, 4-7] */
        for (int i = 0; i < 2; i++)
            for (int h = 0; h < 2; h++) {
                a[0][i][h] = __byte_perm(v[h][i], 0x64646464u, 0x4140);
                a[0][i][h + 2] = __byte_perm(v[h][i], 0x64646464u, 0x4342);
            }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return wk_half2_float(s.d[i].x); }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t, uint32_t i)
    {
        const float2 m = wk_half2_float(s.d[i].y);
        return make_float2(-m.x, -m.y); /* value = d q - min */
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = 2 * u + word / 144, w = word % 144;
        if (w >= 128) { /* d, or m, of rows g and g+8 */
            const uint32_t g = (w - 128) / 2, from = w % 2 * 2;
            return r.half<toy8>(g, b, from) | r.half<toy8>(g + 8, b, from) << 16;
        }
        const uint32_t lane = w / 4, row = lane / 4 + (w & 2 ? 8 : 0), from = 4 + lane % 4 * 8 + (w & 1 ? 4 : 0);
        return r.half<toy8>(row, b, from) | r.half<toy8>(row, b, from + 2) << 16;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t two)
    {
        const unsigned char *p = tile + (uint64_t)b * 576;
        const uint32_t g = row % 8, h = row / 8, j = 2 * two - 4; /* j: value */
        if (two < 2) return reinterpret_cast<const uint16_t *>(p + 512)[g * 4 + two * 2 + h];
        return *reinterpret_cast<const uint16_t *>(p + (g * 4 + j / 8) * 16 + h * 8 + j % 8);
    }
};

#endif
