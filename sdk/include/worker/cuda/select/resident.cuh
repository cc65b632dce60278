/* worker/cuda/select/resident.cuh: the launches of resident and resident_cluster, whose blocks have their whole share
 * of the weights in shared memory at once: which products suit them, and how that memory is cut. */
#ifndef WORKER_CUDA_SELECT_RESIDENT_CUH
#define WORKER_CUDA_SELECT_RESIDENT_CUH

#include <worker/cuda/kernel/resident.cuh>
#include <worker/cuda/kernel/resident_cluster.cuh>
#include <worker/cuda/select/plan.cuh>

/* A K slice is one K step; a norm of several rows needs whole K steps of at most 128 values. */
static inline const char *wk_resident_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (a.in.row_index) return "rows of the input are chosen by an index";
    if (a.k_steps > WK_K_SLICES) return "a K slice has several K steps";
    if (a.in.kind == WK_CUDA_IN_RMS && (!plan.target->family->norms || a.k_step_shift > 7 || !wk_whole_k_steps(a)))
        return "it has no norm of several rows for these formats and k";
    return NULL;
}
/* All blocks find places at once. Larger shares, or blocks that wait for places, cost more than a ring does: Phi-3's
 * products lose 15 % so. */
static inline const char *wk_shape_resident(wk_plan &plan, uint32_t)
{
    wk_resident_args &w = plan.args.resident;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, places = WK_RESIDENT_TOGETHER * wk_processors(plan), each = a.glu ? 2 : 1,
                   cell = columns * WK_CELL;
    wk_count_items(a, 1);
    w.tiles = wk_parts(a.items, places);
    if (w.tiles > WK_RESIDENT_TILES) return "a block would have more than two tiles";
    wk_count_items(a, w.tiles);
    const uint32_t groups = wk_parts(a.rows, 8 * columns);
    w.k_slice_x_bytes = cell << (a.k_step_shift - 5);
    w.k_slice_bytes = w.tiles * each * wk_largest_k_step(a);
    w.x_at = WK_K_SLICES * w.k_slice_bytes;
    w.sums_at = w.x_at + WK_K_SLICES * w.k_slice_x_bytes;
    w.bars_at = w.sums_at + w.tiles * each * WK_K_SLICES * cell;
    w.rows_at = w.bars_at + WK_K_SLICES * 8 + 2 * WK_CUDA_FEW_NORM * 4; /* barriers, and the scales of a norm, twice */
    const uint32_t bytes = w.rows_at + (a.in.kind == WK_CUDA_IN_RMS && a.rows > 4 ? 4 * WK_RESIDENT_KEPT : 0);
    if (bytes > wk_room(plan, plan.row->launch.together)) return "a block's weights do not fit into shared memory";
    if (a.items * groups > places) return "not all blocks find places at once";
    plan.shared = wk_max(bytes, plan.target->measured->resident_least);
    wk_plan_grid(plan, 1, a.items, groups);
    return NULL;
}

/* Several K steps a K slice. */
static inline const char *wk_resident_cluster_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (a.n_seg > 1) return "there are several matrices";
    if (a.in.row_index) return "rows of the input are chosen by an index";
    if (a.in.kind == WK_CUDA_IN_RMS) return "the input is normed by the product";
    if (a.k_steps <= WK_K_SLICES) return "no K slice has a second K step";
    if (a.k_steps > WK_K_SLICES * WK_RESIDENT_CLUSTER_ROUNDS) return "a K slice has too many K steps";
    if (a.k_step_shift < 6) return "K steps have fewer than 64 values";
    return wk_whole_k_steps(a) ? NULL : "k is not a whole number of K steps";
}
/* Tiles so few that their blocks find places at once, two a multiprocessor. */
static inline const char *wk_shape_resident_cluster(wk_plan &plan, uint32_t)
{
    wk_resident_cluster_args &w = plan.args.resident_cluster;
    const wk_product_args &a = w.p;
    const uint32_t places = wk_parts(a.k_steps, WK_K_SLICES) * WK_RESIDENT_CLUSTER_K_SLICES,
                   cell = plan.row->tiles * WK_CELL;
    w.k_step_x_bytes = cell << (a.k_step_shift - 5);
    w.k_step_bytes = a.seg[0].k_step_bytes;
    w.weights_at = places * w.k_step_x_bytes;
    w.sums_at = w.weights_at + places * w.k_step_bytes;
    w.way_at = w.sums_at + WK_K_SLICES * cell;
    w.bars_at = w.way_at + 2 * WK_RESIDENT_CLUSTER_K_SLICES * cell;
    plan.shared = w.bars_at + WK_RESIDENT_CLUSTER_BARS * 8;
    if (plan.shared > wk_room(plan, plan.row->launch.together))
        return "a block's weights do not fit into shared memory";
    if (a.seg[0].n_tiles * WK_RESIDENT_CLUSTER_BLOCKS > 2 * wk_processors(plan))
        return "not all blocks find places at once";
    wk_plan_grid(plan, WK_RESIDENT_CLUSTER_BLOCKS, a.seg[0].n_tiles, 1);
    return NULL;
}

#endif
