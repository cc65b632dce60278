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
    wk_lm_head_args &w = plan.args.lm_head;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, team = (a.glu ? 2 : 1) * WK_LM_HEAD_PARTS,
                   room = wk_room(plan, plan.row->launch.together);
    wk_count_items(a, 1);
    w.stage_bytes = wk_largest_k_step(a);
    w.leaves = WK_K_SLICES / WK_LM_HEAD_PARTS;
    const uint32_t groups = wk_parts(a.rows, 8 * columns), blocks = wk_min(a.items, wk_processors(plan) / groups),
                   warps = wk_parts(a.items, blocks) * team;
    if (warps > WK_LM_HEAD_WARPS) return "a block would have more tiles than warps";
    const uint32_t x = a.k_steps * columns * 512 << (a.k_step_shift - 5), kept = warps * columns * 512 * 2,
                   fixed = x + kept + warps * WK_WARP_DEPTH * 8 + 8,
                   most = wk_min(WK_WARP_DEPTH, wk_parts(a.k_steps, WK_LM_HEAD_PARTS));
    w.depth = room > fixed ? wk_min((room - fixed) / (warps * w.stage_bytes), most) : 0;
    if (w.depth < 2) return "two stages do not fit into shared memory";
    w.x_at = warps * w.depth * w.stage_bytes;
    w.sums_at = w.x_at + x;
    w.bars_at = w.sums_at + kept;
    w.x_bar_at = w.bars_at + warps * WK_WARP_DEPTH * 8;
    plan.shared = w.x_bar_at + 8;
    plan.threads = 32 * warps;
    wk_plan_grid(plan, 1, blocks, groups);
    return NULL;
}

/* A vocabulary's tiles, with outputs that are sums and no more than a bias. Four K steps at least: of each pair of K
 * slices that the tree adds first, one has to have something (wk_lm_head_wgmma_k_slice). */
static inline const char *wk_lm_head_wgmma_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (!wk_plain_sums(a)) return "outputs are not plain F32 sums";
    if (a.in.kind != WK_CUDA_IN_ACT) return "the input is not an act";
    if (a.k_step_shift < 7) return "K steps have fewer than 128 values";
    if (a.k_steps < WK_K_SLICES / 2) return "there are fewer than four K steps";
    return wk_all_tiles(a) > plan.target->measured->lm_head_wgmma_tiles * wk_processors(plan)
               ? NULL
               : "there are few tiles for each multiprocessor";
}
static inline const char *wk_shape_lm_head_wgmma(wk_plan &plan, uint32_t)
{
    wk_lm_head_wgmma_args &w = plan.args.lm_head_wgmma;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, warps = wk_lm_head_wgmma_warps(columns),
                   room = wk_room(plan, plan.row->launch.together);
    wk_count_items(a, 1);
    w.stage_bytes = wk_largest_k_step(a);
    w.rings_at = a.k_steps * columns * 1024 << (a.k_step_shift - 6);
    const uint32_t tiles = warps * (uint32_t)sizeof(wk_lm_head_wgmma_tiles), bars = warps * WK_WARP_DEPTH * 8,
                   order = (a.k_steps + (a.k_steps << (a.k_step_shift - 7))) * 4,
                   fixed = w.rings_at + tiles + bars + order + 1024;
    w.depth = room > fixed ? wk_min((room - fixed) / (warps * w.stage_bytes), WK_WARP_DEPTH) : 0;
    if (w.depth < 3) return "three stages do not fit into shared memory";
    w.tiles_at = w.rings_at + warps * w.depth * w.stage_bytes;
    w.bars_at = w.tiles_at + tiles;
    w.order_at = w.bars_at + bars;
    plan.shared = fixed + warps * w.depth * w.stage_bytes;
    wk_plan_grid(plan, 1, wk_min(a.items, wk_processors(plan)), 1);
    return NULL;
}

#endif
