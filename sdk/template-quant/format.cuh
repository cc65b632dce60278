/* format.cuh: the format on a GPU; worker/cuda/format.cuh says what each member is, cuda.md of the SDK goes through it.
 *
 * A block of the 16 rows is 288 bytes, no bit more than in the file: for each of 32 lanes { word of row g, word of row
 * g + 8 }, a word being the eight values that the lane gives to the tensor cores, four bits each in their order; then
 * 8 x { d of row g, d of row g + 8 }. Two blocks are a unit. Lane (g, t) is number 4 g + t and has values 8 t .. 8 t
 * + 7. */
#ifndef FORMAT_CUH
#define FORMAT_CUH

#include <worker/cuda/format.cuh>

struct format {
    static constexpr uint32_t type = 23226, block = 32, block_bytes = 18, unit = 64, super = 1, group = 32, slot = 576,
                              parts = 1, mins = 0;
    /* A level plus 127 is a byte; below the exponent of 1024 it is the f16 number 1024 + 127 + level. */
    static constexpr float bias0 = 1151.0f, bias1 = 1151.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 576; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 32) * 288;
    }

    struct scales {
        uint32_t d[2];
    };
    struct quants {
        uint2 q[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        for (int b = 0; b < 2; b++) s.d[b] = *reinterpret_cast<const uint32_t *>(unit + b * 288 + 256 + lane / 4 * 4);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        for (int b = 0; b < 2; b++) q.q[b] = *reinterpret_cast<const uint2 *>(unit + b * 288 + lane * 8);
    }
    /* The bytes of four values: levels plus 127 of four times four bits. __byte_perm chooses four of eight bytes: once
     * of the lower eight levels, once of the upper, then by the highest bits between the two. */
    static __device__ __forceinline__ uint32_t bytes(uint32_t q)
    {
        const uint32_t low = __byte_perm(0x4d3c2700u, 0x7f73685bu, q & 0x7777u),
                       high = __byte_perm(0xaa9e9389u, 0xfedbc6b7u, q & 0x7777u);
        return __byte_perm(low, high, 0x3210u | (q & 0x8888u) >> 1);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        const uint32_t rows[2] = { q.q[b].x, q.q[b].y };
        for (int i = 0; i < 2; i++) /* values 0-3, 4-7 */
            for (int h = 0; h < 2; h++) {
                const uint32_t v = bytes(rows[h] >> (16 * i));
                a[0][i][h] = __byte_perm(v, 0x64646464u, 0x4140);
                a[0][i][h + 2] = __byte_perm(v, 0x64646464u, 0x4342);
            }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i) { return wk_half2_float(s.d[i]); }

    /* Word `word` of unit u, from the file's rows. */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = 2 * u + word / 72, w = word % 72;
        if (w >= 64) return r.half<format>(w - 64, b, 0) | r.half<format>(w - 56, b, 0) << 16;
        const uint32_t lane = w / 2, row = lane / 4 + (w & 1 ? 8 : 0);
        uint32_t v = 0;
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t j = lane % 4 * 8 + i; /* value j is in byte 2 + j % 16, from 16 on in its upper bits */
            v |= (r.byte<format>(row, b, 2 + j % 16) >> (j / 16 * 4) & 15u) << (4 * i);
        }
        return v;
    }
    /* Bytes 2 two and 2 two + 1 of a row's block b, as in the file. */
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t two)
    {
        const unsigned char *p = tile + (uint64_t)b * 288;
        if (two == 0) return reinterpret_cast<const uint16_t *>(p + 256)[row % 8 * 2 + row / 8];
        uint32_t v = 0;
        for (uint32_t i = 0; i < 4; i++) { /* values j, j + 16, j + 1, j + 17 */
            const uint32_t j = 2 * two - 2 + i / 2 + i % 2 * 16;
            const uint32_t w = *reinterpret_cast<const uint32_t *>(p + (row % 8 * 4 + j / 8) * 8 + row / 8 * 4);
            v |= (w >> (j % 8 * 4) & 15u) << (4 * i);
        }
        return v;
    }
};

#endif
