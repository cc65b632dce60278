/* worker/cuda/select/split_k.cuh: the launches of split_k, whose clusters share k: which products suit it, and how
 * shared memory is cut. */
#ifndef WORKER_CUDA_SELECT_SPLIT_K_CUH
#define WORKER_CUDA_SELECT_SPLIT_K_CUH

#include <worker/cuda/kernel/split_k.cuh>
#include <worker/cuda/select/plan.cuh>

/* A long k. With a step a slot, or less, resident's blocks, which stand beside those of other launches, are worth more:
 * in the chain of a model's products 896 x 896 loses 0.4 to 0.6 us here. */
static inline const char *wk_split_k_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (a.n_seg > 1) return "there are several matrices";
    if (a.in.row_index) return "rows of the input are chosen by an index";
    if (a.steps <= WK_SLOTS) return "no slot has a second step of k";
    if (a.steps > WK_SLOTS * WK_SPLIT_K_ROUNDS) return "a slot has too many steps of k";
    return wk_whole_steps(a) ? NULL : "k is not a whole number of steps";
}
/* Few tiles: a block a multiprocessor, all at once. */
static inline const char *wk_shape_split_k(wk_plan &plan, uint32_t)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, rounds = wk_parts(a.steps, WK_SLOTS);
    w.blocks = WK_SLOTS;
    w.workers = wk_parts(a.seg[0].n_tiles, WK_SPLIT_K_TILES);
    w.groups = 1;
    a.slot = rounds * a.seg[0].step_bytes;
    a.x_at = rounds * columns * 1024 << (a.step_shift - 6);
    a.red_at = a.x_at + WK_SPLIT_K_TILES * a.slot;
    w.kept_at = a.red_at + columns / 2 * WK_SLOTS * WK_CELL;
    a.bars_at = w.kept_at + columns * WK_SPLIT_K_TILES * WK_CELL;
    plan.shared = a.bars_at + WK_SPLIT_K_BARS * 8 + 1024;
    if (plan.shared > wk_room(plan, plan.row->launch.together))
        return "a block's weights do not fit into shared memory";
    if (w.workers * WK_SLOTS > wk_processors(plan) || w.workers > wk_clusters(plan, plan.kernel, WK_SLOTS))
        return "not all blocks find places at once";
    wk_batch_grid(plan, false);
    return NULL;
}

#endif
