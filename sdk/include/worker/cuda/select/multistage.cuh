/* worker/cuda/select/multistage.cuh: the launches of multistage: by how many parts of k, and how shared memory is cut.
 */
#ifndef WORKER_CUDA_SELECT_MULTISTAGE_CUH
#define WORKER_CUDA_SELECT_MULTISTAGE_CUH

#include <worker/cuda/kernel/multistage.cuh>
#include <worker/cuda/select/plan.cuh>

/* Variants: 1, 2, 4, 8 parts of k; with as many blocks a multiprocessor as there may be, then with one. */
enum { WK_MULTISTAGE_PARTS = 4 };

/* Stages of `stage_k` values of k. */
static inline const char *wk_multistage_cut(wk_plan &plan, uint32_t parts, uint32_t together, uint32_t stage_k)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, room = wk_room(plan, together);
    wk_batch_stages(plan, columns, stage_k);
    w.tiles = WK_MULTISTAGE_WARPS / parts;
    w.blocks = parts;
    w.groups = wk_parts(a.rows, 8 * columns);
    w.stages = wk_busiest_k(a, parts) / w.stage_k;
    a.items = wk_parts(wk_all_tiles(a), w.tiles);
    w.workers = wk_min(a.items, wk_max(together * wk_processors(plan) / w.groups, 1));
    const uint32_t sums = WK_MULTISTAGE_WARPS * columns * WK_CELL, fixed = parts == 1 ? 2 * sums : sums,
                   x = parts * w.x_bytes, stage = x + WK_MULTISTAGE_WARPS * w.tile_bytes;
    w.depth = room > fixed ? wk_min((room - fixed) / stage, WK_MULTISTAGE_DEPTH) : 0;
    if (w.depth < 2) return "two stages do not fit into shared memory";
    w.weights_at = w.depth * x;
    w.sums_at = w.depth * stage;
    w.kept_at = w.sums_at + sums;
    plan.shared = w.sums_at + fixed;
    plan.grid_x = w.workers;
    plan.grid_y = w.groups;
    return NULL;
}
/* Stages of 128 values, or of 64 where two of those would not be under way while one is multiplied; of 256 of formats
 * with super-units, which cannot be cut. */
static inline const char *wk_shape_multistage(wk_plan &plan, uint32_t variant)
{
    const uint32_t parts = 1u << variant % WK_MULTISTAGE_PARTS,
                   together = variant < WK_MULTISTAGE_PARTS ? plan.row->launch.together : 1;
    if (plan.args.common.glu && parts == WK_MULTISTAGE_WARPS) return "a pair of tiles has two warps";
    if (plan.target->family->super == 2) return wk_multistage_cut(plan, parts, together, 256);
    if (!wk_multistage_cut(plan, parts, together, 128) && plan.args.batch.depth > 2) return NULL;
    return wk_multistage_cut(plan, parts, together, 64);
}
/* Clocks of the busiest multiprocessor: of a stage of each of its blocks, what is multiplied there, which takes a block
 * alone longer than its share of two; or its bytes, of which a multiprocessor gets its share of memory's, where groups
 * of rows read the same, and of L2's; or the way there and back where few stages are under way. */
static inline uint64_t wk_multistage_cost(const wk_plan &plan)
{
    const wk_batch_args &w = plan.args.batch;
    const wk_product_args &a = w.p;
    const auto &m = plan.target->measured->multistage;
    const uint32_t columns = plan.row->tiles, processors = wk_processors(plan), blocks = w.workers * w.groups,
                   beside = wk_parts(blocks, processors), runs = w.stage_k / 32,
                   share = wk_min(m.memory * processors * w.groups / wk_min(blocks, processors), m.l2);
    const uint32_t multiply = runs * (wk_max(m.run_alone, m.run * beside) + m.run_tile * columns * beside) + m.stage,
                   bytes = WK_MULTISTAGE_WARPS * w.tile_bytes / share + w.blocks * w.x_bytes / m.l2,
                   stage = wk_max(wk_max(multiply, beside * bytes), m.latency / (w.depth - 1));
    return wk_parts(a.items, w.workers) * ((uint64_t)w.stages * stage + m.round + m.round_tile * columns);
}

#endif
