/* worker/cuda/product_args.cuh: one product as its kernels see it. The order of arithmetic that they all keep is that
 * of halves.cuh. */
#ifndef WORKER_CUDA_PRODUCT_ARGS_CUH
#define WORKER_CUDA_PRODUCT_ARGS_CUH

#include <worker/cuda/act.cuh>
#include <worker/cuda/functions.cuh>
#include <worker/cuda/halves.cuh>
#include <worker/cuda/mma.cuh>
#include <worker/quant_cuda.h>

enum {
    WK_SLOTS = 8,
    WK_TYPES_MAX = 4,
    WK_BLOCK_RESERVED = 1024 /* bytes of shared memory that a block takes beside what it asked for */
};
enum { WK_WAY_ANY, WK_WAY_SILU, WK_WAY_F32, WK_WAY_F32_FOURS }; /* of outputs: epilogue.cuh */

struct wk_segment_args {
    const unsigned char *tiles;
    const float *bias;
    void *y;
    float *aux;
    uint64_t y_stride;
    uint32_t tile_stride, tile_bytes; /* from tile to tile; of a tile */
    uint32_t step_bytes, stage_bytes;
    uint32_t n, n_tiles, type; /* type: index in the family */
    float scale;               /* what its sums are multiplied by: 2^shift of the input times the format's unscale */
    uint32_t kind, shift;      /* of the output */
    uint32_t end;              /* without glu: first item of the next segment */
};

struct wk_product_args {
    uint32_t rows, k, k32, steps; /* k32: k rounded up to 32 */
    uint32_t step_units, stage_units, depth,
        slot; /* units of a warp in a step and in a stage of the ring, powers of 2; stages of the ring; bytes a stage */
    uint32_t step_shift;                      /* log2 of the values in a step */
    uint16_t run, rounds;                     /* stages in a step; product_few: steps of a slot in a stage */
    uint32_t stages;                          /* in a tile */
    uint32_t flight;                          /* stages that are under way at once */
    uint32_t turn;                            /* product_few: slots that a warp moves on from tile to tile */
    uint32_t blocks;                          /* a multiprocessor */
    uint32_t n_seg, glu, items;               /* items: tiles (glu: pairs of tiles) in all */
    uint32_t bars_at, x_at, x_stride, red_at; /* shared memory: bytes; x_stride: halves from column to column */
    uint32_t types;                           /* mask of family members in this launch */
    struct wk_cuda_input in;
    const float *residual;
    uint64_t residual_stride;
    float alpha, limit;
    struct {
        uint32_t fn;
        float p;
    } map[4];
    uint32_t x_items;   /* experts: items that share an input row */
    uint32_t out_group; /* results PANELS: their order of k */
    uint32_t way;       /* of outputs: WK_WAY_* */
    struct wk_segment_args seg[4];
};

/* The slots as the tree of halves.cuh has them: leaf i is slot i with its bits turned about. */
__host__ __device__ constexpr uint32_t wk_leaf_slot(uint32_t leaf)
{
    return (leaf & 1u) << 2 | (leaf & 2u) | leaf >> 2;
}
__host__ __device__ constexpr uint32_t wk_log2(uint32_t x) { return x > 1 ? 1 + wk_log2(x / 2) : 0; }
template <class F, class... Rest> struct wk_family {
    static constexpr uint32_t unit = F::unit, super = F::super;
};

/* fn(F()) for member i of the family. */
template <class F, class... Rest, class Fn> __device__ __forceinline__ void wk_for_type(uint32_t i, Fn fn)
{
    if constexpr (sizeof...(Rest) == 0) {
        fn(F());
    } else {
        if (i == 0)
            fn(F());
        else
            wk_for_type<Rest...>(i - 1, fn);
    }
}

#endif
