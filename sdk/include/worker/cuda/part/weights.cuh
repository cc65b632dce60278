/* worker/cuda/part/weights.cuh: weights as the tensor cores read them in products: f16, already scaled; and the order
 * of arithmetic that all products of a row keep.
 *
 * The weight W = scale * q - min of a tile becomes an f16, w = W / unscale (unscale: a constant of the format, a power
 * of two), before it is multiplied, and not afterwards the sum of its group: then a tile is 16 rows of f16, whatever
 * its format, nothing depends on groups, and a product of 64 columns pays for a scale once and not 64 times. w is
 *     f16(q f16(scale / unscale) - f16(min / unscale)),   q exact, the difference rounded once,
 * so without a minimum and with a scale of 11 bits or fewer it is the nearest f16 of W / unscale. A weight whose w is
 * out of f16's range is infinite: such a product is not finite, never silently wrong. Formats of numbers with a wider
 * range than f16's (F::exact) are the exception: their 32 values have a scale in F32, and their sums are multiplied by
 * it.
 *
 * Order. k is cut into K steps (by k and the family of formats alone). K slice s of 8 has the K steps s, s + 8, ... in
 * that order, and two accumulators: accumulator h adds the h-th 16 of every 32 values of k, one matrix instruction
 * after the other, from 0 on (which 16: as lanes have them, format.cuh; exact: y += scale * (both 16s, and each part)
 * in accumulator 0). A K slice's sum is accumulator 0 + accumulator 1, and the product is unscale times
 *     ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)),
 * a tree that 1, 2, 4 or 8 blocks can share, evenly where the last K slices have a K step less. Two accumulators, since
 * each waits for its own last instruction: with a single row that is what the time of a short launch consists of. Every
 * kernel, whatever its number of warps, columns or blocks, adds exactly so; a column of the tensor cores' result
 * depends on its own column of B alone, and mma.sync and wgmma give the same bits. Hence the bits of a row are the same
 * for 1 and for 64 rows. */
#ifndef WORKER_CUDA_PART_WEIGHTS_CUH
#define WORKER_CUDA_PART_WEIGHTS_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/mma.cuh>

/* Formats that have a way of their own (format.cuh: halves, unscale), and those of a wider range (exact). */
template <class F, class = void> struct wk_has_f16_weights {
    static constexpr bool yes = false;
    static constexpr float unscale = 1.0f;
};
template <class F> struct wk_has_f16_weights<F, decltype(static_cast<void>(F::unscale))> {
    static constexpr bool yes = true;
    static constexpr float unscale = F::unscale;
};
template <class F, class = void> struct wk_is_exact {
    static constexpr bool yes = false;
};
template <class F> struct wk_is_exact<F, decltype(static_cast<void>(F::exact))> {
    static constexpr bool yes = true;
};
/* Formats whose dense products are integer products (part/int8.cuh). */
template <class F, class = void> struct wk_is_int8 {
    static constexpr bool yes = false;
    static constexpr float unscale = 1.0f;
};
template <class F> struct wk_is_int8<F, decltype(static_cast<void>(F::int8_unscale))> {
    static constexpr bool yes = true;
    static constexpr float unscale = F::int8_unscale;
};
/* Weights that stand in the tile as products take them. */
template <class F> constexpr bool wk_is_half() { return F::block == 1 && F::block_bytes == 2 && !wk_is_exact<F>::yes; }
template <class F> __host__ __device__ constexpr float wk_unscale() { return wk_has_f16_weights<F>::unscale; }

/* Is the unit one of the few that need wk_f16_weights' second way (WIDE_RANGE)? Known once its scales are loaded, the
 * same in all lanes. A kernel branches on it once a unit or super-unit. */
template <class S> __device__ __forceinline__ auto wk_wide_range_of(const S &s, int) -> decltype(s.far)
{
    return s.far;
}
template <class S> __device__ __forceinline__ uint32_t wk_wide_range_of(const S &, long) { return 0; }
template <class F> __device__ __forceinline__ bool wk_wide_range(const typename F::scales &s)
{
    return wk_wide_range_of(s, 0) != 0;
}

/* 32 values of k, number b of the unit (u: any unit of the same place in a super-unit), by a whole warp: A of two
 * m16n8k16. Not for exact formats. */
template <class F, bool WIDE_RANGE = false>
__device__ __forceinline__ void wk_f16_weights(const typename F::quants &q, const typename F::scales &s, uint32_t u,
                                               uint32_t b, uint32_t a[1][2][4])
{
    static_assert(!wk_is_exact<F>::yes && F::parts == 1, "one f16 a weight");
    if constexpr (wk_has_f16_weights<F>::yes) {
        F::template halves<WIDE_RANGE>(q, s, u, b, a);
    } else {
        F::fragments(q, b, a);
        uint32_t scale = 0, less = 0;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            if (i == 0 || F::group == 16) {
                const uint32_t group = F::group == 32 ? b : 2 * b + i;
                scale = wk_h2_round(F::scale(s, group));
                if constexpr (F::mins != 0) {
                    const float2 m = F::min(s, u, group);
                    less = wk_h2_round(make_float2(-m.x, -m.y));
                }
            }
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) { /* rows g, g + 8; k % 4 in {0, 1}, then in {2, 3} */
                uint32_t v = a[0][i][j];
                const float bias = j < 2 ? F::bias0 : F::bias1;
                if (bias != 0.0f) v = wk_h2_add(v, wk_h2_round(make_float2(-bias, -bias)));
                if constexpr (F::mins != 0)
                    v = wk_h2_fma(v, wk_h2_both(scale, j % 2), wk_h2_both(less, j % 2));
                else
                    v = wk_h2_mul(v, wk_h2_both(scale, j % 2));
                a[0][i][j] = v;
            }
        }
    }
}

/* Exact formats: what a sum of 32 is multiplied by: scale / unscale. */
template <class F>
__device__ __forceinline__ auto wk_sum_scale(const typename F::scales &s, uint32_t b,
                                             int) -> decltype(F::sum_scale(s, b))
{
    return F::sum_scale(s, b);
}
template <class F> __device__ __forceinline__ float2 wk_sum_scale(const typename F::scales &s, uint32_t b, long)
{
    return F::scale(s, b);
}

/* The same 32 values for several tiles of 8 columns: weights, made once, and y[accumulator] += them times a tile's x:
 * words of B of the first 16, of the second. */
template <class F> struct wk_weights32 {
    uint32_t a[F::parts][2][4];
    float2 scale; /* exact: of rows g and g + 8 */
    template <bool WIDE_RANGE>
    __device__ __forceinline__ void make(const typename F::quants &q, const typename F::scales &s, uint32_t u,
                                         uint32_t b)
    {
        if constexpr (wk_is_exact<F>::yes) {
            static_assert(F::group == 32, "a scale for 32 values");
            F::fragments(q, b, a);
            scale = wk_sum_scale<F>(s, b, 0);
        } else {
            wk_f16_weights<F, WIDE_RANGE>(q, s, u, b, a);
        }
    }
    __device__ __forceinline__ void add(float y[2][4], const uint32_t x[4]) const
    {
        if constexpr (wk_is_exact<F>::yes) {
#pragma unroll
            for (uint32_t part = 0; part < F::parts; part++) {
                float c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
                wk_mma(c, a[part][0], x[0], x[1]);
                wk_mma(c, a[part][1], x[2], x[3]);
                float2 f = scale;
                if constexpr (F::parts > 1)
                    f = make_float2(__fmul_rn(f.x, F::part_scale(part)), __fmul_rn(f.y, F::part_scale(part)));
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) y[0][i] = __fmaf_rn(i < 2 ? f.x : f.y, c[i], y[0][i]);
            }
        } else {
            wk_mma(y[0], a[0][0], x[0], x[1]);
            wk_mma(y[1], a[0][1], x[2], x[3]);
        }
    }
};

#endif
