/* worker/cuda/part/arguments.cuh: one product as its kernels see it. The order of arithmetic that they all keep is that
 * of part/weights.cuh. */
#ifndef WORKER_CUDA_PART_ARGUMENTS_CUH
#define WORKER_CUDA_PART_ARGUMENTS_CUH

#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/quant_cuda.h>

enum {
    WK_TYPES_MAX = 4,
    WK_BLOCK_RESERVED = 1024 /* bytes of shared memory that a block takes beside what it asked for */
};
enum { WK_WAY_ANY, WK_WAY_SILU, WK_WAY_F32, WK_WAY_F32_FOURS }; /* of outputs: part/epilogue.cuh */

/* One matrix of a product. Pointers are the caller's. */
struct wk_segment_args {
    const unsigned char *tiles; /* of 16 rows of weights (format.cuh); experts: of expert 0 */
    const float *bias;          /* [n], experts: [experts][n]; NULL: none */
    void *y;                    /* where results go, of `kind` */
    float *aux;                 /* F32 results: their partials (worker/quant_cuda.h); NULL: none */
    uint64_t y_stride;          /* values from row to row of y; panels: places in a panel */
    uint32_t tile_stride;       /* bytes from tile to tile */
    uint32_t tile_bytes;        /* of a tile */
    uint32_t k_step_bytes;      /* of a K step of a tile */
    uint32_t piece_bytes;       /* what a stage of a ring has of a tile for one K slice */
    uint32_t n, n_tiles;        /* rows of the matrix; tiles, the last with zeros */
    uint32_t type;              /* format: index among those of the kernel */
    float scale;                /* what its sums are multiplied by: 2^shift of the input times the format's unscale */
    uint32_t kind, shift;       /* WK_CUDA_OUT_*; of what is stored as acts */
    uint32_t end;               /* without glu: first item of the next segment */
};

/* What all kernels are given; each has a struct that begins with it (kernel/NAME.cuh), gemv this alone. The fields of
 * rings are those of gemv and moe_*: others leave them. */
struct wk_product_args {
    uint32_t rows, k, k32, k_steps; /* k32: k rounded up to 32; k_steps: that k is cut into */
    uint32_t k_step_units;          /* units of a K step, a power of 2 */
    uint32_t stage_units;           /* ring: units of a stage, for one K slice, a power of 2 */
    uint32_t depth, stage_bytes;    /* ring: stages that it holds; bytes of a stage */
    uint32_t k_step_shift;          /* log2 of the values in a K step */
    uint16_t run, rounds;           /* ring: stages in a K step; gemv: K steps of a K slice in a stage */
    uint32_t stages;                /* ring: of a tile */
    uint32_t stages_in_flight;      /* ring: stages that are asked for at once */
    uint32_t k_slice_rotation;      /* gemv: K slices that a warp moves on from tile to tile */
    uint32_t blocks;                /* gemv, moe_*: blocks a multiprocessor */
    uint32_t n_seg, glu, items;     /* segments; WK_GLU_*, 0: none; pieces of work, of tiles (glu: of pairs of tiles) */
    /* gemv, moe_*: shared memory, offsets in bytes from its start, of barriers, activations, sums; x_stride: halves
     * from column to column of activations. */
    uint32_t bars_at, x_at, x_stride, red_at;
    uint32_t table_bytes; /* gemv: of a table that stands before all that (part/int8_grid.cuh) */
    uint32_t types;       /* mask of formats in this launch */
    struct wk_cuda_input in;
    const float *residual;    /* F32 rows, the caller's; NULL: none */
    uint64_t residual_stride; /* floats from row to row */
    float alpha, limit;       /* of glu */
    struct {
        uint32_t fn; /* WK_UNARY_*; 0: none, nor are there more */
        float p;
    } map[4];
    uint32_t x_items;   /* experts: items that share an input row */
    uint32_t out_group; /* results PANELS: their order of k */
    uint32_t way;       /* of outputs: WK_WAY_* */
    struct wk_segment_args seg[4];
};

template <class F, class... Rest> struct wk_family {
    using first = F;
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

/* Which order of k the fragments of type i have; all of a launch the same. */
template <class F, class... Rest> __device__ __forceinline__ uint32_t wk_family_group(uint32_t i)
{
    if constexpr (sizeof...(Rest) == 0)
        return F::group;
    else
        return i == 0 ? F::group : wk_family_group<Rest...>(i - 1);
}

/* ---- items, tiles, K steps --------------------------------------------------------------------------------- */

/* Item as segment and tile. With glu an item is a tile of both segments. */
__device__ __forceinline__ uint32_t wk_item_segment(const wk_product_args &p, uint32_t item, uint32_t *tile)
{
    uint32_t s = 0;
    *tile = item;
    if (!p.glu)
        for (; s + 1 < p.n_seg && item >= p.seg[s].end; s++) *tile = item - p.seg[s].end;
    return s;
}
/* A word of every line of the arguments is read: what is read after the wait is then at hand. */
__device__ __forceinline__ void wk_touch_args(const wk_product_args &p)
{
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(&p);
    uint32_t any = 0;
#pragma unroll
    for (uint32_t i = 0; i < sizeof p / 4; i += 16) any |= words[i];
    wk_at_hand(any);
}
/* Of tile `tile` of all to the tile's segment and its number there. */
__device__ __forceinline__ void wk_tile_segment(const wk_product_args &p, uint32_t &seg, uint32_t &tile)
{
    for (; seg + 1 < p.n_seg && tile >= p.seg[seg].n_tiles; seg++) tile -= p.seg[seg].n_tiles;
}
/* Row of the input that row i of the product reads. */
__device__ __forceinline__ uint32_t wk_input_row(const wk_product_args &p, uint32_t i)
{
    return p.in.row_index ? __ldg(p.in.row_index + i) : i;
}
/* A warp's K steps are those of its K slice: warp, warp + 8, ... */
__device__ __forceinline__ uint32_t wk_own_k_steps(const wk_product_args &p, uint32_t warp)
{
    return warp < p.k_steps ? (p.k_steps - warp + WK_K_SLICES - 1) / WK_K_SLICES : 0;
}
/* The i-th value of k of the warp's K steps. */
__device__ __forceinline__ uint32_t wk_own_k(const wk_product_args &p, uint32_t warp, uint32_t i)
{
    return ((warp + (i >> p.k_step_shift) * WK_K_SLICES) << p.k_step_shift) + (i & ((1u << p.k_step_shift) - 1));
}

/* ---- kernels with rings of tiles: stream, stream_wgmma, multistage
 * -------------------------------------------------------------------------------- */

/* What stream, stream_wgmma and multistage are given. */
struct wk_batch_args {
    wk_product_args p;         /* items: of `tiles` or WK_ITEM_TILES tiles */
    uint32_t stage_units;      /* units of a stage, a power of 2 */
    uint32_t depth;            /* stages that the ring holds */
    uint32_t tile_bytes;       /* of a tile in a stage */
    uint32_t k_step_stages;    /* stages in a K step */
    uint32_t stages;           /* stream, multistage: of the busiest block's or part's share of k */
    uint32_t run_shift;        /* stream_wgmma: log2 of the stages in a K step */
    uint32_t stage_k, x_bytes; /* values of k of a stage; bytes of its activations */
    uint32_t workers;          /* clusters, or blocks, of a group of rows */
    uint32_t tiles;            /* stream, multistage: of an item */
    uint32_t blocks;           /* of a cluster: 1, 2, 4, 8; multistage: parts of k in a block */
    uint32_t groups;           /* of rows, as many as the kernel has columns, each with workers of its own; stream: 1 */
    uint32_t owned;            /* cells (glu: pairs of them) that a block finishes of an item */
    uint32_t owned_inverse;    /* stream: 2^16 over that, rounded up */
    uint32_t buffers, buffer;  /* of sums: 1 or 2; bytes of one */
    /* Shared memory, offsets in bytes from its start, where activations lie. */
    uint32_t bars_at, weights_at, sums_at;
    uint32_t order_at; /* stream_wgmma: the order of an item's stages */
    uint32_t kept_at;  /* where sums of some K slices wait for those of others, in clusters of one or two blocks */
};
/* Shared memory: the stages' activations, the stages' tiles, sums, barriers. */
struct wk_batch_memory {
    uint32_t base, x, w, sums, kept, bars; /* shared addresses */
    unsigned char *at;                     /* generic: of base */
    __device__ __forceinline__ wk_batch_memory(const wk_batch_args &a, uint32_t start, unsigned char *generic)
        : base(start), x(start), w(start + a.weights_at), sums(start + a.sums_at), kept(start + a.kept_at),
          bars(start + a.bars_at), at(generic)
    {
    }
};
/* Tile `i` of an item: with glu gates first, then their ups. */
struct wk_tile_at {
    uint32_t seg, tile;
    bool real;
};

#endif
