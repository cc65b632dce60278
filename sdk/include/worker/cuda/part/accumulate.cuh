/* worker/cuda/part/accumulate.cuh: the units of a stage times NT tiles of eight columns, by one warp: each fragment of
 * weights is made once and serves all columns. */
#ifndef WORKER_CUDA_PART_ACCUMULATE_CUH
#define WORKER_CUDA_PART_ACCUMULATE_CUH

#include <stdint.h>

#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/mma.cuh>
#include <worker/cuda/part/weights.cuh>

/* A unit at its place in the super-unit; x: of its first run. */
template <class T, int NT, uint32_t PLACE, bool WIDE_RANGE>
__device__ __forceinline__ void wk_add_unit(float (&c)[2][NT][4], const typename T::scales &s,
                                            const typename T::quants &q, const wk_run_words<T, NT> &x)
{
#pragma unroll
    for (uint32_t b = 0; b < T::unit / 32; b++) {
        uint32_t w[1][2][4];
        constexpr int ahead = NT < 2 ? NT : 2; /* as the registers of two blocks allow */
        uint4 v[ahead];
#pragma unroll
        for (int n = 0; n < ahead; n++) v[n] = x.read(b, n);
        wk_f16_weights<T, WIDE_RANGE>(q, s, PLACE, b, w);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            wk_mma(c[0][n], w[0][0], v[n % ahead].x, v[n % ahead].y);
            wk_mma(c[1][n], w[0][1], v[n % ahead].z, v[n % ahead].w);
            if (n + ahead < NT) v[n % ahead] = x.read(b, n + ahead);
            if (NT > 2) asm volatile("" ::: "memory");
        }
    }
}
template <class T, int NT, bool WIDE_RANGE>
__device__ __forceinline__ void wk_add_super(float (&c)[2][NT][4], typename T::scales &s, const unsigned char *w,
                                             const wk_run_words<T, NT> &x, uint32_t lane)
{
    typename T::quants q;
    T::load(q, w, 0, lane);
    wk_add_unit<T, NT, 0, WIDE_RANGE>(c, s, q, x);
    if constexpr (T::super == 2) {
        T::load(s, w + T::offset(1), 1, lane);
        T::load(q, w + T::offset(1), 1, lane);
        wk_add_unit<T, NT, 1, WIDE_RANGE>(c, s, q, x.runs(T::unit / 32));
    }
}
template <class T, int NT, uint32_t N>
__device__ __forceinline__ void wk_add_units(float (&c)[2][NT][4], const unsigned char *w, const wk_run_words<T, NT> &x,
                                             uint32_t lane)
{
#pragma unroll
    for (uint32_t u = 0; u < N; u += T::super) {
        typename T::scales s;
        T::load(s, w + T::offset(u), 0, lane);
        if (wk_wide_range<T>(s))
            wk_add_super<T, NT, true>(c, s, w + T::offset(u), x.runs(u * (T::unit / 32)), lane);
        else
            wk_add_super<T, NT, false>(c, s, w + T::offset(u), x.runs(u * (T::unit / 32)), lane);
    }
}
/* All units of a stage. */
template <class T, int NT>
__device__ __forceinline__ void wk_add_stage(float (&c)[2][NT][4], const unsigned char *w, const wk_run_words<T, NT> &x,
                                             uint32_t units, uint32_t lane)
{
    if constexpr (T::super == 2) {
        wk_add_units<T, NT, 2>(c, w, x, lane);
    } else {
        wk_run_words<T, NT> xs = x;
#pragma unroll 1
        for (; units >= 2; units -= 2, w += T::offset(2), xs = xs.runs(2 * (T::unit / 32)))
            wk_add_units<T, NT, 2>(c, w, xs, lane);
        if (units) wk_add_units<T, NT, 1>(c, w, xs, lane);
    }
}

#endif
