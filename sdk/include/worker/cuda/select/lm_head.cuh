/* worker/cuda/select/lm_head.cuh: the launches of lm_head and lm_head_wgmma, for many tiles: which products suit them,
 * and how shared memory is cut. */
#ifndef WORKER_CUDA_SELECT_LM_HEAD_CUH
#define WORKER_CUDA_SELECT_LM_HEAD_CUH

#include <worker/cuda/kernel/lm_head.cuh>
#include <worker/cuda/kernel/lm_head_wgmma.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/select/plan.cuh>

static inline const char *wk_lm_head_suits(const wk_plan &plan)
{
    return wk_all_tiles(plan.args.common) > plan.target->measured->lm_head_tiles * wk_processors(plan)
               ? NULL
               : "there are few tiles for each multiprocessor";
}
/* All tiles are at work at once. */
static inline const char *wk_shape_lm_head(wk_plan &plan, uint32_t)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, team = (a.glu ? 2 : 1) * WK_LM_HEAD_PARTS,
                   room = wk_room(plan, plan.row->launch.together);
    wk_count_items(a, 1);
    a.slot = wk_largest_step(a);
    w.groups = wk_parts(a.rows, 8 * columns);
    w.blocks = 1;
    w.owned = WK_SLOTS / WK_LM_HEAD_PARTS;
    w.workers = wk_min(a.items, wk_processors(plan) / w.groups);
    w.tiles = wk_parts(a.items, w.workers) * team;
    if (w.tiles > WK_LM_HEAD_WARPS) return "a block would have more tiles than warps";
    const uint32_t x = a.steps * columns * 512 << (a.step_shift - 5), kept = w.tiles * columns * 512 * 2,
                   fixed = x + kept + w.tiles * WK_WARP_DEPTH * 8 + 8,
                   most = wk_min(WK_WARP_DEPTH, wk_parts(a.steps, WK_LM_HEAD_PARTS));
    a.depth = room > fixed ? wk_min((room - fixed) / (w.tiles * a.slot), most) : 0;
    if (a.depth < 2) return "two stages do not fit into shared memory";
    a.x_at = w.tiles * a.depth * a.slot;
    w.kept_at = a.x_at + x;
    a.bars_at = w.kept_at + kept;
    w.order_at = a.bars_at + w.tiles * WK_WARP_DEPTH * 8;
    plan.shared = w.order_at + 8;
    plan.threads = 32 * w.tiles;
    wk_batch_grid(plan, true);
    return NULL;
}

/* A vocabulary's tiles, with outputs that are sums and no more than a bias. Four steps at least: of each pair of slots
 * that the tree adds first, one has to have something (wk_lm_head_wgmma_slot). */
static inline const char *wk_lm_head_wgmma_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (!wk_plain_sums(a)) return "outputs are not plain F32 sums";
    if (a.in.kind != WK_CUDA_IN_ACT) return "the input is not an act";
    if (a.step_shift < 7) return "steps have fewer than 128 values";
    if (a.steps < WK_SLOTS / 2) return "there are fewer than four steps of k";
    return wk_all_tiles(a) > plan.target->measured->lm_head_wgmma_tiles * wk_processors(plan)
               ? NULL
               : "there are few tiles for each multiprocessor";
}
static inline const char *wk_shape_lm_head_wgmma(wk_plan &plan, uint32_t)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, warps = wk_lm_head_wgmma_warps(columns),
                   room = wk_room(plan, plan.row->launch.together);
    wk_count_items(a, 1);
    a.slot = wk_largest_step(a);
    w.groups = w.blocks = 1;
    w.workers = wk_min(a.items, wk_processors(plan));
    w.tiles = warps;
    a.x_at = a.steps * columns * 1024 << (a.step_shift - 6);
    const uint32_t tiles = warps * (uint32_t)sizeof(wk_lm_head_wgmma_tiles), bars = warps * WK_WARP_DEPTH * 8,
                   order = (a.steps + (a.steps << (a.step_shift - 7))) * 4,
                   fixed = a.x_at + tiles + bars + order + 1024;
    a.depth = room > fixed ? wk_min((room - fixed) / (warps * a.slot), WK_WARP_DEPTH) : 0;
    if (a.depth < 3) return "three stages do not fit into shared memory";
    w.kept_at = a.x_at + warps * a.depth * a.slot;
    a.bars_at = w.kept_at + tiles;
    w.order_at = a.bars_at + bars;
    plan.shared = fixed + warps * a.depth * a.slot;
    wk_batch_grid(plan, false);
    return NULL;
}

#endif
