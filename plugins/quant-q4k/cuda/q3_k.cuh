/* quant-q4k/cuda/q3_k.cuh: Q3_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of eight groups of 16. A unit begins with the quants: a lane has 64 values of 3 bits in 6 words: four
 * words, of all lanes; then two, of all lanes. The even unit ends with the 12 scale bytes, as words: 8 x { words 0, 1 of row g, of row g+8 },
 * 8 x { word 2 of row g, of row g+8 }; then 8 x { d of row g, of row g+8 }.
 *
 * Fields of 3 bits: pair p = 8 (32) + 4 (16) + 2 (row / 8) + upper two of four values. Word i holds pairs 5i .. 5i+4 at bits 0, 3, 6, 9, 12 of each half; pairs 30 and 31
 * are made of bits 15: bit n of pair 30 from word n, of pair 31 from word 3 + n. */
#ifndef QUANT_Q4K_CUDA_Q3_K_CUH
#define QUANT_Q4K_CUDA_Q3_K_CUH

#include <worker/cuda/format.cuh>

struct q3_k {
    static constexpr uint32_t type = 11, block = 256, block_bytes = 110, unit = 128, super = 2, group = 16, slot = 992, parts = 1, mins = 0;
    static constexpr float bias0 = 128.0f + 4, bias1 = 128.0f + 4;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)(u / 2) * 1760 + u % 2 * 992; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k) { return (uint64_t)(k / 256) * 1760; }

    struct scales {
        uint4 w01;      /* words 0, 1 of row g, of row g + 8 */
        uint2 w2;
        uint4 now;      /* the eight scales of this unit + 32, of row g, of row g + 8 */
        float2 d, less; /* d and -d (2^15 + 32) of both rows */
        uint32_t scale[2], up, far; /* for halves(): of groups t and t + 4 of the unit, rows g and g + 8: d sc 2^17, far: d sc 4; up: d 2^17; far: some |d| is 2^-7 or more */
    };
    struct quants { uint32_t w[6]; };
    /* Scales 8 u .. 8 u + 7: four bits of words 0 and 1 below, two of word 2 above. */
    static __device__ __forceinline__ uint2 six(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t u)
    {
        const uint32_t low = 4 * u, high = w2 >> 4 * u;
        return make_uint2((w0 >> low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4, (w1 >> low & 0x0f0f0f0fu) | (high >> 2 & 0x03030303u) << 4);
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) {
            s.w01 = *reinterpret_cast<const uint4 *>(unit + 768 + lane / 4 * 16);
            s.w2 = *reinterpret_cast<const uint2 *>(unit + 896 + lane / 4 * 8);
            const uint32_t d = *reinterpret_cast<const uint32_t *>(unit + 960 + lane / 4 * 4);
            s.far = wk_h2_any(d, 0x2000);
            s.up = wk_h2_mul(wk_h2_mul(d, 0x44004400u /* 4 */), s.far ? 0x3c003c00u : 0x78007800u /* 2^15 */);
            s.d = wk_half2_float(d);
            s.less = make_float2(__fmul_rn(s.d.x, -32800.0f), __fmul_rn(s.d.y, -32800.0f));
        }
        const uint2 a = six(s.w01.x, s.w01.y, s.w2.x, u % 2), b = six(s.w01.z, s.w01.w, s.w2.y, u % 2);
        s.now = make_uint4(a.x, a.y, b.x, b.y);
        const uint32_t select = 0x4400u + lane % 4 * 0x1111u;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) s.scale[i] = wk_h2_mul(wk_h2_add(wk_and_or(__byte_perm(i ? a.y : a.x, i ? b.y : b.x, select), 0x003f003fu, 0x64006400u), 0xe420e420u /* -1056 */), s.up);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        const uint4 v = reinterpret_cast<const uint4 *>(unit)[lane];
        const uint2 x = *reinterpret_cast<const uint2 *>(unit + 512 + lane * 8);
        q.w[0] = v.x, q.w[1] = v.y, q.w[2] = v.z, q.w[3] = v.w, q.w[4] = x.x, q.w[5] = x.y;
    }
    static __device__ __forceinline__ uint32_t pair(const uint32_t w[6], uint32_t p, uint32_t c)
    {
        if (p < 30) return wk_and_or(p % 5 ? w[p / 5] >> 3 * (p % 5 - 1) : w[p / 5] << 3, 0x00380038u, c);
        const uint32_t i = 3 * (p - 30);
        return wk_and_or(w[i + 2] >> 10, 0x00200020u, wk_and_or(w[i + 1] >> 11, 0x00100010u, wk_and_or(w[i] >> 12, 0x00080008u, c)));
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4], uint32_t c = 0x58005800u)
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                a[0][i][h] = pair(q.w, 8 * b + 4 * i + 2 * h, c);
                a[0][i][h + 2] = pair(q.w, 8 * b + 4 * i + 2 * h + 1, c);
            }
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-21 times d sc 2^17, less 4 d sc. */
    template <bool FAR> static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b, uint32_t a[1][2][4])
    {
        fragments(q, b, a, 0);
        if constexpr (FAR) wk_h2_lift(a[0]);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * b + h, scale = __shfl_sync(0xffffffffu, s.scale[i / 4], (threadIdx.x & 28u) | i % 4), less = wk_h2_mul(scale, FAR ? 0xac00ac00u /* -2^-4 */ : 0x80208020u /* -2^-19 */);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) a[0][h][j] = wk_h2_fma(a[0][h][j], wk_h2_both(scale, j % 2), wk_h2_both(less, j % 2));
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return make_float2(__fmaf_rn(s.d.x, wk_byte_float(i < 4 ? s.now.x : s.now.y, i % 4), s.less.x), __fmaf_rn(s.d.y, wk_byte_float(i < 4 ? s.now.z : s.now.w, i % 4), s.less.y));
    }

    /* Where bit n of value v of a unit (row, v) lies: word of the lane, bit in it. */
    static __host__ __device__ __forceinline__ void at(uint32_t row, uint32_t v, uint32_t n, uint32_t *word, uint32_t *bit)
    {
        const uint32_t p = v / 32 * 8 + v / 16 % 2 * 4 + row / 8 * 2 + v / 2 % 2;
        *word = p < 30 ? p / 5 : 3 * (p - 30) + n;
        *bit = (p < 30 ? 3 * (p % 5) + n : 15) + v % 2 * 16;
    }
    /* Value v of the file's block: byte 32 + 32 (v / 128) + v % 32, bits 2 (v / 32 % 4); above them bit v / 32 of byte v % 32. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t v)
    {
        return (r.byte<q3_k>(row, b, 32 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u) | (r.byte<q3_k>(row, b, v % 32) >> (v / 32) & 1u) << 2;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (word >= 240) return r.half<q3_k>(word - 240, b, 108) | r.half<q3_k>(word - 232, b, 108) << 16;
        if (word >= 192) {
            const uint32_t w = word - 192, row = w < 32 ? w / 4 + w / 2 % 2 * 8 : (w - 32) / 2 + w % 2 * 8, from = 96 + (w < 32 ? w % 2 * 4 : 8);
            return r.half<q3_k>(row, b, from) | r.half<q3_k>(row, b, from + 2) << 16;
        }
        const uint32_t lane = word < 128 ? word / 4 : (word - 128) / 2, w = word < 128 ? word % 4 : 4 + word % 2;
        uint32_t x = 0;
        for (uint32_t i = 0; i < 5 * 2; i++) { /* the five pairs of the word */
            const uint32_t p = 5 * w + i / 2, v = p / 8 * 32 + p / 4 % 2 * 16 + lane % 4 * 4 + p % 2 * 2 + i % 2;
            x |= quant(r, lane / 4 + p / 2 % 2 * 8, b, u % 2 * 128 + v) << (3 * (i / 2) + i % 2 * 16);
        }
        for (uint32_t i = 0; i < 2; i++) { /* its bits of pair 30 or 31: values 96 .. 127, second 16, row g + 8 */
            const uint32_t v = 112 + lane % 4 * 4 + w / 3 * 2 + i;
            x |= (quant(r, lane / 4 + 8, b, u % 2 * 128 + v) >> w % 3 & 1u) << (15 + i * 16);
        }
        return x;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t half)
    {
        const unsigned char *even = tile + offset(2 * b);
        if (half == 54) return reinterpret_cast<const uint16_t *>(even + 960)[row % 8 * 2 + row / 8];
        if (half >= 52) return reinterpret_cast<const uint16_t *>(even + 896)[row % 8 * 4 + row / 8 * 2 + half - 52];
        if (half >= 48) return reinterpret_cast<const uint16_t *>(even + 768)[row % 8 * 8 + row / 8 * 4 + half - 48];
        auto bit = [&](uint32_t v, uint32_t n) { /* bit n of value v */
            const uint32_t lane = row % 8 * 4 + v % 16 / 4;
            uint32_t word, in;
            at(row, v % 128, n, &word, &in);
            return reinterpret_cast<const uint32_t *>(tile + offset(2 * b + v / 128))[word < 4 ? lane * 4 + word : 128 + lane * 2 + word - 4] >> in & 1u;
        };
        uint32_t x = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t from = 2 * half + i / 8;
            x |= (from < 32 ? bit(i % 8 * 32 + from, 2) : bit((from - 32) / 32 * 128 + i % 8 / 2 * 32 + from % 32, i % 2)) << i;
        }
        return x;
    }
};

#endif
