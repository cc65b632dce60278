/* worker/cuda/part/items.cuh: what an item of a product of several rows is made of: tiles, and K slices, of which
 * each of its blocks, or parts of a block, has as many. */
#ifndef WORKER_CUDA_PART_ITEMS_CUH
#define WORKER_CUDA_PART_ITEMS_CUH

#include <stdint.h>

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/order.cuh>

/* Tile `i` of an item: of all segments' tiles in a row; with glu gates first, then their ups. */
__device__ __forceinline__ wk_tile_at wk_batch_tile_of(const wk_batch_args &a, uint32_t item, uint32_t i)
{
    const wk_product_args &p = a.p;
    wk_tile_at at = { 0, item * a.tiles + i, false };
    if (p.glu) {
        at.seg = i >= a.tiles / 2;
        at.tile = item * (a.tiles / 2) + i - at.seg * (a.tiles / 2);
    } else {
        for (; at.seg + 1 < p.n_seg && at.tile >= p.seg[at.seg].n_tiles; at.seg++) at.tile -= p.seg[at.seg].n_tiles;
    }
    at.real = at.tile < p.seg[at.seg].n_tiles;
    return at;
}

/* K slices of a block (multistage: of a part). */
__device__ __forceinline__ uint32_t wk_batch_leaves(const wk_batch_args &a)
{
    return WK_K_SLICES >> (31 - __clz(a.blocks));
}

#endif
