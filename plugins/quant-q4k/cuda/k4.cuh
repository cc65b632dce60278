/* quant-q4k/cuda/k4.cuh: the scales that Q4_K and Q5_K share: 8 groups of 32 with a scale and a minimum of 6 bits each.
 *
 * In the file a row's block begins with d and dmin, then 12 bytes: bytes 0-3 and 4-7 hold scales and minima of groups
 * 0-3 in their lower six bits, bytes 8-11 the lower four bits of both for groups 4-7, whose upper two are the upper two
 * of bytes 0-3 and 4-7.
 *
 * On the device the even unit begins with those 16 bytes of all 16 rows, as lanes want them. Lane (g, t) makes the
 * scales and minima of groups t and t + 4, of rows g and g + 8 side by side as pairs of f16, and each group's four
 * lanes then ask the one that made them: an eighth of the work that each lane would have alone. First 8 x { d of rows
 * g, g+8; dmin of rows g, g+8 }; then for each lane a word, for either row in a half: bits 4-9 the scale and 10-15 the
 * minimum of group t, bits 0-3 the upper four of the minimum of group t + 4; then for each lane two bytes, for either
 * row: bits 0-5 the scale of group t + 4, bits 6-7 the lower two of its minimum. */
#ifndef QUANT_Q4K_CUDA_K4_CUH
#define QUANT_Q4K_CUDA_K4_CUH

#include <worker/cuda/format.cuh>

enum { K4_BYTES = 256, K4_WORDS_AT = 64, K4_TWOS_AT = 192 };

struct k4_scales {
    uint32_t scale[2], less[2]; /* of groups t and t + 4, as halves() wants them */
    uint32_t far;               /* some |d| is at least LIMIT */
    uint32_t place, word,
        two; /* for scale() and min(): the unit's place, and what the lane read; two: a byte in each half */
    uint2 d;
};

/* Once a super-unit. scale: d sc 2^SHIFT, far: 2^(SHIFT - 15); less: -dmin m / 16; each the nearest f16. LIMIT: a half,
 * 2^(10 - SHIFT), so that 63 d 2^SHIFT is in range; SHIFT4: Q4_K's, whose scale is used 16 times larger, too. A field
 * of 6 bits under the exponent of 64, times d, less 64 d is the exact product in one fma. */
template <uint32_t SHIFT, uint32_t LIMIT>
__device__ __forceinline__ void k4_load(k4_scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
{
    s.place = u % 2;
    if (u % 2) return;
    const uint2 d = s.d = reinterpret_cast<const uint2 *>(unit)[lane / 4];
    const uint32_t w = reinterpret_cast<const uint32_t *>(unit + K4_WORDS_AT)[lane],
                   v = __byte_perm(reinterpret_cast<const uint16_t *>(unit + K4_TWOS_AT)[lane], 0, 0x4140);
    s.word = w;
    s.two = v;
    s.far = wk_h2_any(d.x, LIMIT);
    const uint32_t up = wk_h2_mul(d.x, wk_h2_twice(s.far ? SHIFT << 10 : (SHIFT + 15) << 10)),
                   off = wk_h2_mul(up, 0xd400d400u /* -64 */), less = wk_h2_mul(d.y, 0x44004400u /* 4 */),
                   m = d.y ^ 0x80008000u;
    s.scale[0] = wk_h2_fma(wk_and_or(w, 0x03f003f0u, 0x54005400u), up, off);
    s.scale[1] = wk_h2_fma(wk_and_or(v << 4, 0x03f003f0u, 0x54005400u), up, off);
    s.less[0] = wk_h2_fma(wk_and_or(w >> 6, 0x03f003f0u, 0x44004400u /* 4 + m / 16 */), m, less);
    s.less[1] = wk_h2_fma(wk_and_or(w << 6, 0x03c003c0u, wk_and_or(v >> 2, 0x00300030u, 0x44004400u)), m, less);
}
/* Of group i of unit u: scale and less of rows g and g + 8. */
__device__ __forceinline__ uint2 k4_halves(const k4_scales &s, uint32_t u, uint32_t i)
{
    const uint32_t lane = (threadIdx.x & 28u) | i;
    return make_uint2(__shfl_sync(0xffffffffu, s.scale[u % 2], lane), __shfl_sync(0xffffffffu, s.less[u % 2], lane));
}

/* Scale (.x) and minimum of group j of a row's block, in the tile's even unit. */
__device__ __forceinline__ uint2 k4_fields(const unsigned char *even, uint32_t row, uint32_t j)
{
    const uint32_t lane = row % 8 * 4 + j % 4,
                   w = reinterpret_cast<const uint16_t *>(even + K4_WORDS_AT)[lane * 2 + row / 8];
    if (j < 4) return make_uint2(w >> 4 & 63u, w >> 10);
    const uint32_t v = even[K4_TWOS_AT + lane * 2 + row / 8];
    return make_uint2(v & 63u, v >> 6 | (w & 15u) << 2);
}
/* Integers of rows g and g + 8 as a pair, of the lane that has group i of the unit, times a pair of halves. */
__device__ __forceinline__ float2 k4_product(uint32_t integers, uint32_t i, float2 d)
{
    const uint32_t v = __shfl_sync(0xffffffffu, integers, (threadIdx.x & 28u) | i) & 0x003f003fu;
    return make_float2(__fmul_rn(d.x, (float)(v & 63u)), __fmul_rn(d.y, (float)(v >> 16)));
}
__device__ __forceinline__ float2 k4_scale(const k4_scales &s, uint32_t i)
{
    return k4_product(s.place ? s.two : s.word >> 4, i, wk_half2_float(s.d.x));
}
__device__ __forceinline__ float2 k4_min(const k4_scales &s, uint32_t i)
{
    return k4_product(s.place ? (s.two >> 6 & 0x00030003u) | (s.word & 0x000f000fu) << 2 : s.word >> 10, i,
                      wk_half2_float(s.d.y));
}

/* The first 16 bytes of the file's blocks: word w of the even unit, and halves of a row's. */
template <class F>
__device__ __forceinline__ uint2 k4_file_fields(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
{
    const uint32_t x = r.byte<F>(row, b, 4 + j % 4), y = r.byte<F>(row, b, 8 + j % 4),
                   z = r.byte<F>(row, b, 12 + j % 4);
    return j < 4 ? make_uint2(x & 63u, y & 63u) : make_uint2((z & 15u) | x >> 6 << 4, z >> 4 | y >> 6 << 4);
}
template <class F> __device__ __forceinline__ uint32_t k4_pack(const wk_tile_rows &r, uint32_t b, uint32_t w)
{
    if (w < K4_WORDS_AT / 4) return r.half<F>(w / 2, b, w % 2 * 2) | r.half<F>(w / 2 + 8, b, w % 2 * 2) << 16;
    uint32_t v = 0;
    for (uint32_t i = 0; i < (w < K4_TWOS_AT / 4 ? 2u : 4u); i++) { /* two rows of a lane; two lanes of two rows */
        const uint32_t lane = w < K4_TWOS_AT / 4 ? w - K4_WORDS_AT / 4 : (w - K4_TWOS_AT / 4) * 2 + i / 2,
                       row = lane / 4 + i % 2 * 8;
        const uint2 low = k4_file_fields<F>(r, row, b, lane % 4), high = k4_file_fields<F>(r, row, b, lane % 4 + 4);
        v |= w < K4_TWOS_AT / 4 ? (low.x << 4 | low.y << 10 | high.y >> 2) << (16 * i)
                                : (high.x | (high.y & 3u) << 6) << (8 * i);
    }
    return v;
}
__device__ __forceinline__ uint32_t k4_unpack(const unsigned char *even, uint32_t row, uint32_t half)
{
    if (half < 2) return reinterpret_cast<const uint16_t *>(even)[row % 8 * 4 + half * 2 + row / 8];
    uint32_t v = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t j = (2 * half + i) % 4;
        const uint2 low = k4_fields(even, row, j), high = k4_fields(even, row, j + 4);
        v |= (half < 4   ? low.x | high.x >> 4 << 6
              : half < 6 ? low.y | high.y >> 4 << 6
                         : (high.x & 15u) | (high.y & 15u) << 4)
             << (8 * i);
    }
    return v;
}

#endif
