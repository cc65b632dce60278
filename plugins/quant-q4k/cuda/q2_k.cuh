/* quant-q4k/cuda/q2_k.cuh: Q2_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of eight groups of 16. A unit is: 32 lanes x 4 words, a word for each 32 values: rows g and g+8, values
 * 4t .. 4t+3 of both 16s; then 8 x { scale bytes of row g, of row g+8 }. The even unit ends with 8 x { d and dmin of row g, of row g+8 }.
 *
 * Fields of 2 bits: of the first 16 at bits 2 to 9 of either half of the word, of the second there, too, once the word is turned right by 8: two bits each of the lower two values of row g, the upper two, the same of
 * row g + 8. */
#ifndef QUANT_Q4K_CUDA_Q2_K_CUH
#define QUANT_Q4K_CUDA_Q2_K_CUH

#include <worker/cuda/format.cuh>

struct q2_k {
    static constexpr uint32_t type = 10, block = 256, block_bytes = 84, unit = 128, super = 2, group = 16, slot = 704, parts = 1, mins = 1;
    static constexpr float bias0 = 256.0f, bias1 = 64.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)(u / 2) * 1344 + u % 2 * 704; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k) { return (uint64_t)(k / 256) * 1344; }

    struct scales {
        uint4 now;      /* the scales of this unit: eight bytes of row g, eight of row g + 8 */
        uint4 mins;     /* the minima likewise: of the even unit in the lower four bits, of the odd unit above */
        uint2 dm;       /* d and dmin of row g, of row g + 8 */
        /* For halves(): of groups t and t + 4 of the unit, d sc 2^18 of row g and d sc 2^14 of row g + 8, far: d sc 2; -dmin m / 16. up, down: what integers are multiplied by. far: some |d| is 2^-6 or more. */
        uint32_t scale[2], less[2], up, down, far;
    };
    struct quants { uint4 q; };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        const uint32_t low = 0x0f0f0f0fu;
        const uint4 sc = *reinterpret_cast<const uint4 *>(unit + 512 + lane / 4 * 16);
        s.now = make_uint4(sc.x & low, sc.y & low, sc.z & low, sc.w & low);
        if (u % 2 == 0) {
            s.dm = *reinterpret_cast<const uint2 *>(unit + 640 + lane / 4 * 8);
            s.mins = make_uint4(sc.x >> 4 & low, sc.y >> 4 & low, sc.z >> 4 & low, sc.w >> 4 & low);
            const uint32_t d = __byte_perm(s.dm.x, s.dm.y, 0x5410);
            s.far = wk_h2_any(d, 0x2400);
            s.up = s.far ? wk_h2_mul(d, 0x40004000u /* 2 */) : wk_h2_mul(wk_h2_mul(d, 0x3c004800u /* 8 and 1 */), 0x74007800u /* 2^15 and 2^14 */);
            s.down = wk_h2_mul(__byte_perm(s.dm.x, s.dm.y, 0x7632), 0xac00ac00u /* -2^-4 */);
        } else {
            s.mins = make_uint4(wk_and_or(sc.x, ~low, s.mins.x), wk_and_or(sc.y, ~low, s.mins.y), wk_and_or(sc.z, ~low, s.mins.z), wk_and_or(sc.w, ~low, s.mins.w));
        }
        const uint32_t select = 0x4400u + lane % 4 * 0x1111u;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t v = __byte_perm(i ? sc.y : sc.x, i ? sc.w : sc.z, select);
            s.scale[i] = wk_h2_mul(wk_h2_add(wk_and_or(v, 0x000f000fu, 0x64006400u), 0xe400e400u /* -1024 */), s.up);
            s.less[i] = wk_h2_mul(wk_h2_add(wk_and_or(v >> 4, 0x000f000fu, 0x64006400u), 0xe400e400u), s.down);
        }
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane) { q.q = reinterpret_cast<const uint4 *>(unit)[lane]; }
    /* As they lie, those of row g + 8 four bits higher, or BROUGHT where those of row g are. */
    template <bool BROUGHT> static __device__ __forceinline__ void fields(const quants &q, uint32_t b, uint32_t a[1][2][4], uint32_t c0, uint32_t c1)
    {
        const uint32_t w = b == 0 ? q.q.x : b == 1 ? q.q.y : b == 2 ? q.q.z : q.q.w;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t v = h ? __funnelshift_r(w, w, 8) : w, v8 = BROUGHT ? v >> 4 : v;
            a[0][h][0] = wk_and_or(v, 0x000c000cu, c0);
            a[0][h][1] = wk_and_or(v8, BROUGHT ? 0x000c000cu : 0x00c000c0u, c0);
            a[0][h][2] = wk_and_or(v, 0x00300030u, c1);
            a[0][h][3] = wk_and_or(v8, BROUGHT ? 0x00300030u : 0x03000300u, c1);
        }
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4]) { fields<true>(q, b, a, 0x5c005c00u, 0x54005400u); }
    static constexpr float unscale = 16.0f;
    /* Fields of row g are q 2^-22 and q 2^-20: times d sc 2^18, and a quarter of it, less dmin m / 16. Those of row g + 8 are 16 times larger, their scale 16 times smaller. FAR: both rows' as q 2^-5 and q 2^-3, times
     * d sc 2. */
    template <bool FAR> static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b, uint32_t a[1][2][4])
    {
        fields<false>(q, b, a, 0, 0);
        if constexpr (FAR)
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) a[0][i / 4][i % 4] = wk_h2_mul(wk_h2_mul(a[0][i / 4][i % 4], 0x70007000u /* 2^13 */), i % 2 ? 0x3c003c00u : 0x4c004c00u /* 16 */);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * b + h, of = (threadIdx.x & 28u) | i % 4;
            const uint32_t scale = __shfl_sync(0xffffffffu, s.scale[i / 4], of), less = __shfl_sync(0xffffffffu, s.less[i / 4], of), quarter = wk_h2_mul(scale, 0x34003400u);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) a[0][h][j] = wk_h2_fma(a[0][h][j], wk_h2_both(j < 2 ? scale : quarter, j % 2), wk_h2_both(less, j % 2));
        }
    }
    /* Scale, or minimum, of group i of unit u, of row g (h 0) or g + 8. */
    static __device__ __forceinline__ float integer(const uint4 &m, uint32_t u, uint32_t h, uint32_t i)
    {
        return (float)((h ? (i / 4 ? m.w : m.z) : i / 4 ? m.y : m.x) >> (i % 4 * 8 + u % 2 * 4) & 15u);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return make_float2(__fmul_rn(wk_half2_float(s.dm.x).x, integer(s.now, 0, 0, i)), __fmul_rn(wk_half2_float(s.dm.y).x, integer(s.now, 0, 1, i)));
    }
    static __device__ __forceinline__ float2 min(const scales &s, uint32_t u, uint32_t i)
    {
        const float2 m = min_scale(s);
        return make_float2(__fmul_rn(m.x, integer(s.mins, u, 0, i)), __fmul_rn(m.y, integer(s.mins, u, 1, i)));
    }
    static __device__ __forceinline__ float2 min_scale(const scales &s) { return make_float2(wk_half2_float(s.dm.x).y, wk_half2_float(s.dm.y).y); }

    /* Value v of the file's block: byte 16 + 32 (v / 128) + v % 32, bits 2 (v / 32 % 4). */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (word >= 160) return r.half<q2_k>((word - 160) / 2 + word % 2 * 8, b, 80) | r.half<q2_k>((word - 160) / 2 + word % 2 * 8, b, 82) << 16;
        if (word >= 128) {
            const uint32_t w = word - 128, row = w / 4 + w / 2 % 2 * 8, at = u % 2 * 8 + w % 2 * 4;
            return r.half<q2_k>(row, b, at) | r.half<q2_k>(row, b, at + 2) << 16;
        }
        const uint32_t lane = word / 4, at = 16 + u % 2 * 32 + lane % 4 * 4, shift = word % 4 * 2;
        uint32_t v = 0;
        for (uint32_t i = 0; i < 16; i++) { /* i: pair m of the 16 and the row, value i % 4 */
            const uint32_t m = i / 4;
            v |= (r.byte<q2_k>(lane / 4 + m % 2 * 8, b, at + m / 2 * 16 + i % 4) >> shift & 3u) << (4 * m + i / 2 % 2 * 2 + i % 2 * 16);
        }
        return __funnelshift_l(v, v, 2);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t half)
    {
        const uint32_t at = 2 * half;
        const unsigned char *even = tile + offset(2 * b);
        if (at >= 80) return reinterpret_cast<const uint16_t *>(even + 640)[row % 8 * 4 + row / 8 * 2 + (at - 80) / 2];
        if (at < 16) return *reinterpret_cast<const uint16_t *>(tile + offset(2 * b + at / 8) + 512 + row % 8 * 16 + row / 8 * 8 + at % 8);
        uint32_t x = 0;
        for (uint32_t i = 0; i < 8; i++) { /* field i of the two bytes: value `in` of 32 number i % 4 */
            const uint32_t in = (at - 16) % 32 + i / 4, m = in / 16 * 2 + row / 8, lane = row % 8 * 4 + in % 16 / 4;
            const uint32_t w = reinterpret_cast<const uint32_t *>(tile + offset(2 * b + (at - 16) / 32))[lane * 4 + i % 4];
            x |= (__funnelshift_r(w, w, 4 * m + in / 2 % 2 * 2 + in % 2 * 16 + 2) & 3u) << (2 * i);
        }
        return x;
    }
};

#endif
