/* quant-q4k/cuda/k4.cuh: the scales that Q4_K and Q5_K share: 8 groups of 32 with a scale and a minimum of 6 bits each.
 *
 * The first 16 bytes of a row's block are d and dmin, then 12 bytes sc: bytes 0-3 and 4-7 hold scales and minima of groups 0-3 in their lower six bits, bytes
 * 8-11 the lower four bits of both for groups 4-7, whose upper two are the upper two of bytes 0-3 and 4-7. So four fields come out of a word at a time. The
 * even unit begins with the first 8 bytes of all 16 rows and then the next 4 of all; the odd one with the last 4 of all. A scale's byte under the exponent of 2^15, times d, minus d 2^15
 * is the exact product in one fma. */
#ifndef QUANT_Q4K_CUDA_K4_CUH
#define QUANT_Q4K_CUDA_K4_CUH

#include <worker/cuda/format.cuh>

enum { K4_EVEN = 192, K4_ODD = 64 };  /* bytes */

struct k4_scales {
    uint2 even[2];            /* of rows g, g + 8: d and dmin; scales of groups 0-3, and upper bits */
    uint32_t low[2], last[2]; /* minima of groups 0-3, and upper bits; odd unit: lower bits of groups 4-7 */
    uint32_t sc[2];           /* four scales of the unit */
    float2 scale, less;       /* d, -d 2^15 */
};

__device__ __forceinline__ void k4_load(k4_scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t row = lane / 4 + 8 * h;
        if (u % 2 == 0) {
            s.even[h] = reinterpret_cast<const uint2 *>(unit)[row];
            s.low[h] = reinterpret_cast<const uint32_t *>(unit + 128)[row];
            s.sc[h] = s.even[h].y & 0x3f3f3f3fu;
        } else {
            s.last[h] = reinterpret_cast<const uint32_t *>(unit)[row];
            s.sc[h] = (s.last[h] & 0x0f0f0f0fu) | (s.even[h].y >> 2 & 0x30303030u);
        }
    }
    s.scale = make_float2(wk_half2_float(s.even[0].x).x, wk_half2_float(s.even[1].x).x);
    s.less = make_float2(__fmul_rn(s.scale.x, -32768.0f), __fmul_rn(s.scale.y, -32768.0f));
}
/* The first 16 bytes of the file's blocks: words w of a unit's scales, and halves of a row's. */
template <class F> __device__ __forceinline__ uint32_t k4_pack(const wk_tile_rows &r, uint32_t u, uint32_t w)
{
    const uint32_t row = u % 2 ? w : w < 32 ? w / 2 : w - 32, at = u % 2 ? 12 : w < 32 ? w % 2 * 4 : 8;
    return r.half<F>(row, u / 2, at) | r.half<F>(row, u / 2, at + 2) << 16;
}
__device__ __forceinline__ uint32_t k4_unpack(const unsigned char *even, const unsigned char *odd, uint32_t row, uint32_t half)
{
    if (half < 4) return reinterpret_cast<const uint16_t *>(even)[row * 4 + half];
    return reinterpret_cast<const uint16_t *>(half < 6 ? even + 128 : odd)[row * 2 + half % 2];
}
__device__ __forceinline__ float2 k4_scale(const k4_scales &s, uint32_t i)
{
    return make_float2(__fmaf_rn(s.scale.x, wk_byte_float(s.sc[0], i), s.less.x), __fmaf_rn(s.scale.y, wk_byte_float(s.sc[1], i), s.less.y));
}
/* Minima of groups 0-3 (u even) or 4-7 of row g + 8 h, a byte each. */
__device__ __forceinline__ uint32_t k4_mins(const k4_scales &s, int h, uint32_t u)
{
    return u % 2 ? (s.last[h] >> 4 & 0x0f0f0f0fu) | (s.low[h] >> 2 & 0x30303030u) : s.low[h] & 0x3f3f3f3fu;
}
__device__ __forceinline__ void k4_min_fragment(const k4_scales &s, uint32_t lane, uint32_t a[4])
{
    const uint32_t t = lane % 4; /* lane (g, t): groups t and t + 4 of rows g and g + 8 */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        a[h] = __float_as_uint(__fsub_rn(wk_byte_float(k4_mins(s, h, 0), t), 32768.0f));
        a[2 + h] = __float_as_uint(__fsub_rn(wk_byte_float(k4_mins(s, h, 1), t), 32768.0f));
    }
}
__device__ __forceinline__ float2 k4_min_scale(const k4_scales &s) { return make_float2(wk_half2_float(s.even[0].x).y, wk_half2_float(s.even[1].x).y); }
/* What value() subtracts in group i of unit u. */
__device__ __forceinline__ float2 k4_min(const k4_scales &s, uint32_t u, uint32_t i)
{
    const float2 d = k4_min_scale(s);
    return make_float2(__fmul_rn(d.x, (float)(k4_mins(s, 0, u) >> (8 * i) & 63u)), __fmul_rn(d.y, (float)(k4_mins(s, 1, u) >> (8 * i) & 63u)));
}

#endif
