/* quant-q4k/cuda/q3_k.cuh: Q3_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of eight groups of 16. A unit begins with the quants: a lane has 64 values of 3 bits in 6 words: four words, of all lanes; then two,
 * of all lanes. The even unit ends with the 12 scale bytes of all rows and d, as lanes want them (k4.cuh says why). Lane (g, t) makes the scales of groups t and t + 4 of both units, of rows
 * g and g + 8. First a word for each lane, for either row in a half: bits 4-9 and 10-15 the scales of groups t and t + 4 of the even unit, bits 0-3 the upper four of that of group t + 4 of
 * the odd unit; then two bytes for each lane, for either row: bits 0-5 the scale of group t of the odd unit, bits 6-7 the lower two of that of group t + 4; then 8 x { d of row g, of row g+8 }.
 *
 * Fields of 3 bits: word i < 6 holds the pairs of group i, in either half: those of row g at bits 1 and 4 (of four values the lower two, the upper two), those of row g + 8 at 10 and 13, so that
 * one turn by 9 serves both. At bit 7 words 0, 1, 2 hold three pairs of group 6, words 3, 4, 5 of group 7; the fourth is made of their bits 0. */
#ifndef QUANT_Q4K_CUDA_Q3_K_CUH
#define QUANT_Q4K_CUDA_Q3_K_CUH

#include <worker/cuda/format.cuh>

struct q3_k {
    static constexpr uint32_t type = 11, block = 256, block_bytes = 110, unit = 128, super = 2, group = 16, slot = 992, parts = 1, mins = 0;
    static constexpr float bias0 = 64.0f + 4, bias1 = 64.0f + 4;
    enum { WORDS_AT = 768, TWOS_AT = 896, D_AT = 960 };
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)(u / 2) * 1760 + u % 2 * 992; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k) { return (uint64_t)(k / 256) * 1760; }

    struct scales {
        uint32_t scale[2], up, far; /* for halves(): of groups t and t + 4 of the unit, rows g and g + 8: d sc 2^19, far: d sc 4; up: d 2^19; far: some |d| is 2^-8 or more */
        uint32_t sc[2], word, two, d; /* sc: sc + 32 of both rows at bit 4 of the halves; word, two: what the lane read, two as a byte in each half */
    };
    struct quants { uint32_t w[6]; };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) {
            s.word = reinterpret_cast<const uint32_t *>(unit + WORDS_AT)[lane];
            s.two = __byte_perm(reinterpret_cast<const uint16_t *>(unit + TWOS_AT)[lane], 0, 0x4140);
            s.d = reinterpret_cast<const uint32_t *>(unit + D_AT)[lane / 4];
            s.far = wk_h2_any(s.d, 0x1c00);
            s.up = wk_h2_mul(wk_h2_mul(s.d, s.far ? 0x44004400u /* 4 */ : 0x4c004c00u /* 16 */), s.far ? 0x3c003c00u : 0x78007800u /* 2^15 */);
        }
        s.sc[0] = (u % 2 ? s.two << 4 : s.word) & 0x03f003f0u;
        s.sc[1] = u % 2 ? wk_and_or(s.word << 6, 0x03c003c0u, s.two >> 2 & 0x00300030u) : s.word >> 6 & 0x03f003f0u;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) s.scale[i] = wk_h2_mul(wk_h2_add(s.sc[i] | 0x54005400u /* 64 */, 0xd600d600u /* -96 */), s.up);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        const uint4 v = reinterpret_cast<const uint4 *>(unit)[lane];
        const uint2 x = *reinterpret_cast<const uint2 *>(unit + 512 + lane * 8);
        q.w[0] = v.x, q.w[1] = v.y, q.w[2] = v.z, q.w[3] = v.w, q.w[4] = x.x, q.w[5] = x.y;
    }
    /* Pair j of group i: rows g and g + 8 of the lower two values of four, then of the upper two; of groups 6 and 7 the last is made of bits 0. Where its lowest bit lies in the half of its word. */
    static __host__ __device__ __forceinline__ constexpr uint32_t first(uint32_t i, uint32_t j) { return i < 6 ? 1 + j / 2 * 3 + j % 2 * 9 : j < 3 ? 7 : 0; }
    /* Where halves() has it, or BROUGHT to bit 4. */
    static __device__ __forceinline__ constexpr uint32_t place(uint32_t i, uint32_t j) { return i < 6 ? 1 + j / 2 * 3 : j < 3 ? 7 : 1; }
    template <bool BROUGHT> static __device__ __forceinline__ uint32_t pair(const uint32_t w[6], uint32_t i, uint32_t j, uint32_t c)
    {
        const uint32_t to = BROUGHT ? 4 : place(i, j), one = 0x00010001u;
        if (i >= 6 && j == 3) {
            const uint32_t *const v = w + 3 * (i - 6);
            return (((v[2] & one) * 2 + (v[1] & one)) * 2 + (v[0] & one)) << to | c;
        }
        const uint32_t v = w[i < 6 ? i : 3 * (i - 6) + j], from = first(i, j);
        return wk_and_or(from > to ? v >> (from - to) : v << (to - from), 0x00070007u << to, c);
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) a[0][i / 4][i % 4] = pair<true>(q.w, 2 * b + i / 4, i % 4, 0x54005400u);
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-23 at bit 1, times d sc 2^19, and as much less as the bit is higher; less d sc / 4. FAR: all as q 2^-6. */
    template <bool FAR> static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b, uint32_t a[1][2][4])
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * b + h, scale = __shfl_sync(0xffffffffu, s.scale[i / 4], (threadIdx.x & 28u) | i % 4), less = wk_h2_mul(scale, FAR ? 0xac00ac00u /* -2^-4 */ : 0x80088008u /* -2^-21 */);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t at = place(i, j);
                uint32_t v = pair<false>(q.w, i, j, 0), of = scale;
                if constexpr (FAR) v = wk_h2_mul(wk_h2_mul(v, 0x68006800u /* 2^11 */), at == 1 ? 0x54005400u /* 64 */ : at == 4 ? 0x48004800u /* 8 */ : 0x3c003c00u);
                else if (at > 1) of = wk_h2_mul(scale, at == 4 ? 0x30003000u /* 2^-3 */ : 0x24002400u /* 2^-6 */);
                a[0][h][j] = wk_h2_fma(v, wk_h2_both(of, j % 2), wk_h2_both(less, j % 2));
            }
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        const uint32_t sc = __shfl_sync(0xffffffffu, s.sc[i / 4], (threadIdx.x & 28u) | i % 4) >> 4;
        const float2 d = wk_half2_float(s.d);
        return make_float2(__fmul_rn(d.x, (float)((int)(sc & 63u) - 32)), __fmul_rn(d.y, (float)((int)(sc >> 16) - 32)));
    }

    /* Where bit n of value v of a unit (row, v) lies: word of the lane, bit in it. */
    static __host__ __device__ __forceinline__ void at(uint32_t row, uint32_t v, uint32_t n, uint32_t *word, uint32_t *bit)
    {
        const uint32_t i = v / 16, j = v / 2 % 2 * 2 + row / 8;
        *word = i < 6 ? i : 3 * (i - 6) + (j < 3 ? j : n);
        *bit = first(i, j) + (i < 6 || j < 3 ? n : 0) + v % 2 * 16;
    }
    /* Value v of the file's block: byte 32 + 32 (v / 128) + v % 32, bits 2 (v / 32 % 4); above them bit v / 32 of byte v % 32. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t v)
    {
        return (r.byte<q3_k>(row, b, 32 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u) | (r.byte<q3_k>(row, b, v % 32) >> (v / 32) & 1u) << 2;
    }
    /* Scale j + 32 of a row's block in the file: four bits of byte 96 + j % 8, two of byte 104 + j % 4. */
    static __device__ __forceinline__ uint32_t file_scale(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return (r.byte<q3_k>(row, b, 96 + j % 8) >> (j / 8 * 4) & 15u) | (r.byte<q3_k>(row, b, 104 + j % 4) >> (j / 4 * 2) & 3u) << 4;
    }
    /* The same, in the tile's even unit. */
    static __device__ __forceinline__ uint32_t tile_scale(const unsigned char *even, uint32_t row, uint32_t j)
    {
        const uint32_t of = (row % 8 * 4 + j % 4) * 2 + row / 8, w = reinterpret_cast<const uint16_t *>(even + WORDS_AT)[of], v = even[TWOS_AT + of];
        return j < 4 ? w >> 4 & 63u : j < 8 ? w >> 10 : j < 12 ? v & 63u : v >> 6 | (w & 15u) << 2;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        uint32_t x = 0;
        if (word >= D_AT / 4) return r.half<q3_k>(word - D_AT / 4, b, 108) | r.half<q3_k>(word - D_AT / 4 + 8, b, 108) << 16;
        if (word >= WORDS_AT / 4) {
            const bool twos = word >= TWOS_AT / 4;
            for (uint32_t i = 0; i < (twos ? 4u : 2u); i++) { /* two rows of a lane; two lanes of two rows */
                const uint32_t lane = twos ? (word - TWOS_AT / 4) * 2 + i / 2 : word - WORDS_AT / 4, row = lane / 4 + i % 2 * 8, t = lane % 4, last = file_scale(r, row, b, t + 12);
                x |= twos ? (file_scale(r, row, b, t + 8) | (last & 3u) << 6) << (8 * i) : (file_scale(r, row, b, t) << 4 | file_scale(r, row, b, t + 4) << 10 | last >> 2) << (16 * i);
            }
            return x;
        }
        const uint32_t lane = word < 128 ? word / 4 : (word - 128) / 2, w = word < 128 ? word % 4 : 4 + word % 2;
        for (uint32_t i = 0; i < 6 * 2; i++) { /* pairs of group w, then of a later group the pair at bit 7, then one of which a bit is here */
            const uint32_t j = i < 8 ? i / 2 : i < 10 ? w % 3 : 3, group = i < 8 ? w : 6 + w / 3, v = group * 16 + lane % 4 * 4 + j / 2 * 2 + i % 2;
            const uint32_t q = quant(r, lane / 4 + j % 2 * 8, b, u % 2 * 128 + v);
            x |= (i < 10 ? q << first(group, j) : q >> w % 3 & 1u) << (i % 2 * 16);
        }
        return x;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t half)
    {
        const unsigned char *even = tile + offset(2 * b);
        uint32_t x = 0;
        if (half == 54) return reinterpret_cast<const uint16_t *>(even + D_AT)[row % 8 * 2 + row / 8];
        if (half >= 48) {
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t j = 2 * (half - 48) + i;
                if (j < 8) x |= ((tile_scale(even, row, j) & 15u) | (tile_scale(even, row, j + 8) & 15u) << 4) << (8 * i);
                else
                    for (uint32_t n = 0; n < 4; n++) x |= tile_scale(even, row, j - 8 + 4 * n) >> 4 << (2 * n + 8 * i);
            }
            return x;
        }
        auto bit = [&](uint32_t v, uint32_t n) { /* bit n of value v */
            const uint32_t lane = row % 8 * 4 + v % 16 / 4;
            uint32_t word, in;
            at(row, v % 128, n, &word, &in);
            return reinterpret_cast<const uint32_t *>(tile + offset(2 * b + v / 128))[word < 4 ? lane * 4 + word : 128 + lane * 2 + word - 4] >> in & 1u;
        };
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t from = 2 * half + i / 8;
            x |= (from < 32 ? bit(i % 8 * 32 + from, 2) : bit((from - 32) / 32 * 128 + i % 8 / 2 * 32 + from % 32, i % 2)) << i;
        }
        return x;
    }
};

#endif
