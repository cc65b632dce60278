/* worker/cuda/product_args.cuh: one product as its kernels see it, and the order of arithmetic that they all keep.
 *
 * Order. k is cut into steps of step_k values (by k and the family of formats alone). Partition w of 16 has the steps w, w + 16, ... and adds their groups
 * in order; then slot i of 8 is partition i + partition i + 8, and the sum is slot 0 + slot 1 + ... Every kernel, whatever its number of warps or
 * columns, adds exactly so; a column of the tensor cores' result depends on its own column of B alone. Hence the bits of a row are the same for
 * 1 and for 64 rows. */
#ifndef WORKER_CUDA_PRODUCT_ARGS_CUH
#define WORKER_CUDA_PRODUCT_ARGS_CUH

#include <worker/cuda/act.cuh>
#include <worker/cuda/format.cuh>
#include <worker/cuda/functions.cuh>
#include <worker/cuda/mma.cuh>
#include <worker/quant_cuda.h>

enum { WK_PARTITIONS = 16, WK_SLOTS = 8, WK_TYPES_MAX = 4 };

struct wk_segment_args {
    const unsigned char *tiles;
    const float *bias;
    void *y;
    float *aux;
    uint64_t y_stride, tile_bytes;
    uint32_t step_bytes, stage_bytes;
    uint32_t n, n_tiles, type; /* type: index in the family */
    uint32_t kind, shift;      /* of the output */
    uint32_t end;              /* without glu: first item of the next segment */
};

struct wk_product_args {
    uint32_t rows, k, k32, steps; /* k32: k rounded up to 32 */
    uint32_t step_units, stage_units, depth, slot; /* units of a warp in a step and in a stage of the ring, powers of 2; stages of the ring; bytes a stage */
    uint32_t step_shift, run, stages; /* log2 of the values in a step; stages in a step; stages in a tile */
    uint32_t flight;              /* stages that are under way at once */
    uint32_t blocks;              /* a multiprocessor */
    uint32_t n_seg, glu, items;   /* items: tiles (glu: pairs of tiles) in all */
    uint32_t bars_at, x_at, x_stride, red_at; /* shared memory: bytes; x_stride: halves from column to column */
    uint32_t terms_at[WK_TYPES_MAX], types;   /* types: mask of family members in this launch */
    float in_scale;               /* 2^shift of the input */
    struct wk_cuda_input in;
    const float *residual;
    uint64_t residual_stride;
    float alpha, limit;
    struct { uint32_t fn; float p; } map[4];
    const uint32_t *expert;
    uint32_t expert_stride, top_k, x_items, first_row; /* first_row: of this launch, experts */
    struct wk_segment_args seg[4];
};

__host__ __device__ constexpr uint32_t wk_log2(uint32_t x) { return x > 1 ? 1 + wk_log2(x / 2) : 0; }
template <class F, class... Rest> struct wk_family { static constexpr uint32_t unit = F::unit, super = F::super; };

/* fn(F()) for member i of the family. */
template <class F, class... Rest, class Fn> __device__ __forceinline__ void wk_for_type(uint32_t i, Fn fn)
{
    if constexpr (sizeof...(Rest) == 0) {
        fn(F());
    } else {
        if (i == 0) fn(F());
        else wk_for_type<Rest...>(i - 1, fn);
    }
}

/* Bytes of what a column's activations add to each group (wk_terms) for columns side by side in shared memory. */
template <class F> __host__ __device__ constexpr uint32_t wk_terms_bytes(uint32_t k, uint32_t columns)
{
    uint32_t bytes = 0;
    if (F::bias0 != 0.0f || F::bias1 != 0.0f) bytes += k / F::group * (columns == 1 ? 16 : 4 * columns);
    if (F::mins == WK_MINS_GROUP) bytes += k / F::group * 4 * columns;
    if (F::mins > WK_MINS_SUPER) bytes += k / (F::unit * F::super) * (F::mins - WK_MINS_SUPER) * 64 * columns;
    return bytes;
}

/* Where the terms of one type lie: bias [group][column] (1 column: each 4 times), then sums for minima: of a group [group][column], or split for tf32
 * [super-unit][8 groups][column][lane % 4]{ high t, high t + 4, low t, low t + 4 }. */
template <class F, int COLUMNS> struct wk_terms {
    static constexpr bool biased = F::bias0 != 0.0f || F::bias1 != 0.0f;
    float *bias, *min;
    __device__ __forceinline__ wk_terms(unsigned char *at, uint32_t k)
    {
        bias = reinterpret_cast<float *>(at);
        min = bias + (biased ? k / F::group * (COLUMNS == 1 ? 4 : COLUMNS) : 0);
    }
    /* The term of group i, whose sums are a (k % 4 in {0,1}) and b. */
    __device__ __forceinline__ void put(uint32_t i, uint32_t column, float a, float b) const
    {
        if constexpr (biased) {
            const float v = -__fmaf_rn(F::bias0, a, __fmul_rn(F::bias1, b));
            if constexpr (COLUMNS == 1) reinterpret_cast<float4 *>(bias)[i] = make_float4(v, v, v, v);
            else bias[i * COLUMNS + column] = v;
        }
        if constexpr (F::mins == WK_MINS_GROUP) min[i * COLUMNS + column] = __fadd_rn(a, b);
        if constexpr (F::mins > WK_MINS_SUPER) {
            const float2 s = wk_tf32_split(__fadd_rn(a, b));
            float *m = min + (i / 8 * COLUMNS + column) * 16 + i % 4 * 4 + i % 8 / 4;
            m[0] = s.x;
            m[2] = s.y;
        }
    }
};

#endif
