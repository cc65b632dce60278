/* worker/cuda/select/split_k.cuh: the launches of split_k, whose clusters share k: which products suit it, and how
 * shared memory is cut. */
#ifndef WORKER_CUDA_SELECT_SPLIT_K_CUH
#define WORKER_CUDA_SELECT_SPLIT_K_CUH

#include <worker/cuda/kernel/split_k.cuh>
#include <worker/cuda/select/plan.cuh>

/* A long k. With a K step a K slice, or less, resident's blocks, which stand beside those of other launches, are worth
 * more: in the chain of a model's products 896 x 896 loses 0.4 to 0.6 us here. */
static inline const char *wk_split_k_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (a.n_seg > 1) return "there are several matrices";
    if (a.in.row_index) return "rows of the input are chosen by an index";
    if (a.k_steps <= WK_K_SLICES) return "no K slice has a second K step";
    if (a.k_steps > WK_K_SLICES * WK_SPLIT_K_ROUNDS) return "a K slice has too many K steps";
    return wk_whole_k_steps(a) ? NULL : "k is not a whole number of K steps";
}
/* Few tiles: a block a multiprocessor, all at once. */
static inline const char *wk_shape_split_k(wk_plan &plan, uint32_t)
{
    wk_split_k_args &w = plan.args.split_k;
    const wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, rounds = wk_parts(a.k_steps, WK_K_SLICES);
    const uint32_t clusters = wk_parts(a.seg[0].n_tiles, WK_SPLIT_K_TILES);
    w.tile_bytes = rounds * a.seg[0].k_step_bytes;
    w.weights_at = rounds * columns * 1024 << (a.k_step_shift - 6);
    w.sums_at = w.weights_at + WK_SPLIT_K_TILES * w.tile_bytes;
    w.way_at = w.sums_at + columns / 2 * WK_K_SLICES * WK_CELL;
    w.bars_at = w.way_at + columns * WK_SPLIT_K_TILES * WK_CELL;
    plan.shared = w.bars_at + WK_SPLIT_K_BARS * 8 + 1024;
    if (plan.shared > wk_room(plan, plan.row->launch.together))
        return "a block's weights do not fit into shared memory";
    if (clusters * WK_K_SLICES > wk_processors(plan) || clusters > wk_clusters(plan, plan.kernel, WK_K_SLICES))
        return "not all blocks find places at once";
    wk_plan_grid(plan, WK_K_SLICES, clusters, 1);
    return NULL;
}

#endif
