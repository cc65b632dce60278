/* worker/cuda/select/stream.cuh: the launches of stream and stream_wgmma, which bring weights through a ring: how many
 * blocks share an item, and how shared memory is cut. */
#ifndef WORKER_CUDA_SELECT_STREAM_CUH
#define WORKER_CUDA_SELECT_STREAM_CUH

#include <worker/cuda/kernel/stream.cuh>
#include <worker/cuda/kernel/stream_wgmma.cuh>
#include <worker/cuda/select/plan.cuh>

/* Variants: clusters of 1, 2, 4, 8 blocks; of each, items of 8, 6, 4 tiles. Of equal cost the first is taken. */
enum { WK_STREAM_SIZES = 3, WK_STREAM_VARIANTS = 4 * WK_STREAM_SIZES };

/* Where wgmma is there, too, 17 rows and more go by stream only if the launch is short. */
static inline const char *wk_stream32_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    return !(plan.target->device.can & WK_CUDA_CAN_WGMMA) ||
                   (uint64_t)wk_all_tiles(a) * a.k <= plan.target->measured->short_launch
               ? NULL
               : "the launch is so long that wgmma is better";
}
/* All of the block's activations stay. */
static inline const char *wk_shape_stream(wk_plan &plan, uint32_t variant)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, blocks = 1u << variant / WK_STREAM_SIZES, each = a.glu ? 2 : 1,
                   clusters = wk_clusters(plan, plan.kernel, blocks), room = wk_room(plan, plan.row->launch.together);
    w.tiles = WK_STREAM_TILES - variant % WK_STREAM_SIZES * 2;
    w.groups = 1;
    wk_batch_stages(plan, columns, plan.target->family->super == 2 ? 256 : 128);
    w.stages = wk_busiest_k(a, blocks) / w.stage_k;
    a.items = wk_parts(wk_all_tiles(a), w.tiles);
    if (clusters == 0) return "the device has no room for a cluster";
    if (w.stages > WK_STREAM_STAGES) return "a block's share of k has too many stages";
    wk_batch_share(plan, blocks, clusters, w.tiles / each * columns);
    w.buffers = w.workers < a.items ? 2 : 1;
    w.buffer = w.owned * blocks * each * WK_CELL;
    const uint32_t x = w.stages * w.x_bytes, kept = blocks <= 2 ? 2 / blocks * WK_ITEM_TILES * columns * WK_CELL : 0,
                   fixed = x + w.buffers * w.buffer + kept + WK_STREAM_BARS * 8;
    w.depth = room > fixed ? wk_min((room - fixed) / (w.tiles * w.tile_bytes), WK_STREAM_DEPTH) : 0;
    if (w.depth < 2) return "activations and two stages do not fit into shared memory";
    w.weights_at = x;
    w.sums_at = x + w.depth * w.tiles * w.tile_bytes;
    w.kept_at = w.sums_at + w.buffers * w.buffer;
    w.bars_at = w.kept_at + kept;
    plan.shared = w.bars_at + WK_STREAM_BARS * 8;
    plan.threads = 32 * (w.tiles + WK_STREAM_STREAMS);
    wk_plan_grid(plan, w.blocks, w.workers * w.groups, 1);
    return NULL;
}
/* Clocks of the multiplying warps of the busiest multiprocessor: a stage takes each warp so long alone, longer beside
 * others, and longest where few stages are under way; the blocks of a last, partial round have more room. Eight blocks
 * find places together late if all such places are wanted. Of equal choices that with the larger items is the better
 * one. */
static inline uint64_t wk_stream_cost(const wk_plan &plan)
{
    const wk_batch_args &w = plan.args.batch;
    const wk_product_args &a = w.p;
    const auto &m = plan.target->measured->stream;
    const uint32_t rounds = wk_parts(a.items, w.workers), last = a.items - (rounds - 1) * w.workers;
    auto stage = [&](uint32_t clusters) {
        const uint32_t warps = clusters * w.blocks > wk_processors(plan) ? WK_STREAM_TOGETHER * w.tiles : w.tiles;
        return wk_max((m.stage_alone + m.stage_beside * warps) * w.stage_k / 256 + m.stage_fixed,
                      m.stage_latency / (2 * w.depth - 1));
    };
    const uint64_t clocks = w.stages * ((uint64_t)(rounds - 1) * stage(w.workers) + stage(last)) +
                            (plan.row->tiles == 4 ? m.round32 * rounds : 0);
    return (clocks + (w.blocks == 8 && w.workers == wk_clusters(plan, plan.kernel, 8) ? m.full8 : 0)) *
           (100 + WK_STREAM_TILES - w.tiles);
}

/* Stages of `stage_k` values of k. */
static inline const char *wk_stream_wgmma_cut(wk_plan &plan, uint32_t blocks, uint32_t stage_k)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t columns = plan.row->tiles, each = a.glu ? 2 : 1, room = wk_room(plan, plan.row->launch.together);
    w.groups = wk_parts(a.rows, 8 * columns);
    wk_count_items(a, a.glu ? WK_ITEM_TILES / 2 : (uint32_t)WK_ITEM_TILES);
    const uint32_t clusters = wk_clusters(plan, plan.kernel, blocks) / w.groups,
                   kept = blocks <= 2 ? WK_ITEM_TILES * columns * WK_CELL : 0;
    wk_batch_stages(plan, columns, stage_k);
    if (clusters == 0) return "the device has no room for a cluster of each group of rows";
    if (a.k_steps * w.k_step_stages > WK_STREAM_WGMMA_STAGES) return "k has too many stages";
    wk_batch_share(plan, blocks, clusters, WK_ITEM_TILES / each * columns);
    w.buffers = blocks > 1 && w.workers < a.items ? 2 : 1; /* one: each item is finished before the next */
    w.buffer = w.owned * blocks * each * WK_CELL;
    const uint32_t fixed = 1024 + w.buffers * w.buffer + kept + WK_STREAM_WGMMA_BARS * 8 + WK_STREAM_WGMMA_STAGES * 2,
                   stage = w.x_bytes + WK_ITEM_TILES * w.tile_bytes;
    w.depth = room > fixed ? wk_min((room - fixed) / stage, WK_STREAM_WGMMA_DEPTH) : 0;
    if (w.depth < 2) return "two stages do not fit into shared memory";
    w.weights_at = w.depth * w.x_bytes;
    w.sums_at = w.depth * stage;
    w.kept_at = w.sums_at + w.buffers * w.buffer;
    w.bars_at = w.kept_at + kept;
    w.order_at = w.bars_at + WK_STREAM_WGMMA_BARS * 8;
    plan.shared = w.order_at + WK_STREAM_WGMMA_STAGES * 2 + 1024;
    wk_plan_grid(plan, w.blocks, w.workers * w.groups, 1);
    return NULL;
}
/* Variants: clusters of 1, 2, 4, 8 blocks. Groups of rows in clusters of 8 leave the next launch no room to begin
 * early. */
static inline const char *wk_shape_stream_wgmma(wk_plan &plan, uint32_t variant)
{
    const uint32_t columns = plan.row->tiles, blocks = 1u << variant;
    if (blocks == 8 && 8 * columns < plan.args.common.rows) return "groups of rows are not in clusters of 8";
    if (columns == 4 && !wk_stream_wgmma_cut(plan, blocks, 256) && plan.args.batch.depth >= 3) return NULL;
    return wk_stream_wgmma_cut(plan, blocks, 128);
}
static inline uint64_t wk_stream_wgmma_cost(const wk_plan &plan)
{
    const wk_batch_args &w = plan.args.batch;
    const auto &m = plan.target->measured->stream_wgmma;
    const uint32_t columns = plan.row->tiles;
    const uint64_t rounds = wk_parts(w.p.items, w.workers), pieces = wk_busiest_k(w.p, w.blocks) / 64;
    return rounds * (pieces * (m.piece + m.piece_tile * columns) + m.round + m.round_tile * columns +
                     (w.blocks > 1 ? m.round_cluster : 0)) +
           (w.blocks > 1 ? m.cluster : 0);
}

#endif
