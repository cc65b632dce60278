/* worker/cuda/select/int8.cuh: the launches of int8, integer products of more than one row: by how many
 * blocks, and how shared memory is cut. */
#ifndef WORKER_CUDA_SELECT_INT8_CUH
#define WORKER_CUDA_SELECT_INT8_CUH

#include <worker/cuda/kernel/int8.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/select/plan.cuh>

static inline uint32_t wk_int8_records_of(uint32_t rows)
{
    return (rows + WK_INT8_RECORD_ROWS - 1) / WK_INT8_RECORD_ROWS;
}
static inline uint64_t wk_int8_workspace(uint32_t k, uint32_t rows)
{
    return rows < 2 ? 0 : (uint64_t)wk_int8_records_of(rows) * (k / WK_INT8_BLOCK) * WK_INT8_RECORD;
}

/* Clusters at once of `blocks`, as the largest kernel's. */
static inline uint32_t wk_int8_clusters(const wk_plan &plan, uint32_t blocks)
{
    return plan.target->clusters[WK_KERNEL_INT8_8][0][wk_log2(blocks)];
}
static inline uint32_t wk_int8_groups(const wk_plan &plan)
{
    return wk_parts(wk_int8_records_of(plan.args.common.rows), plan.row->tiles);
}
static inline const char *wk_int8_suits(const wk_plan &plan)
{
    const uint32_t records = plan.row->tiles;
    return records > 1 && records / 2 >= wk_int8_records_of(plan.args.common.rows)
               ? "half as many records have all rows"
               : NULL;
}
/* Shared memory with clusters of `blocks` in `room`; 0: it does not fit. */
static inline uint32_t wk_int8_cut(wk_plan &plan, uint32_t blocks, uint32_t room)
{
    wk_int8_args &w = plan.args.int8;
    const wk_product_args &a = w.p;
    const uint32_t records = plan.row->tiles, stage = WK_INT8_TILES * w.tile_bytes + records * WK_INT8_RECORD,
                   sums = WK_INT8_TILES * records * WK_INT8_RECORD_ROWS * 64;
    const uint32_t fixed = (blocks == 1   ? 3
                            : blocks == 2 ? 2
                                          : 1) *
                               sums +
                           WK_INT8_BARS * 8; /* those that wait, and in the end all, in the places of the first */
    const uint32_t most = wk_parts(a.k_steps, blocks) + 1; /* stages that a block has, about */
    w.depth = room > fixed ? wk_min(wk_min((room - fixed) / stage, WK_INT8_DEPTH), most) : 0;
    if (w.depth < 2) return 0;
    w.blocks = blocks;
    w.x_at = w.depth * WK_INT8_TILES * w.tile_bytes;
    w.sums_at = w.depth * stage;
    w.bars_at = w.sums_at + fixed - WK_INT8_BARS * 8;
    return w.sums_at + fixed;
}
/* Variants: clusters of 1, 2, 4, 8 blocks. One block to an item: as many as find places take items by turns, without
 * clusters, which older devices do not know. */
static inline const char *wk_shape_int8(wk_plan &plan, uint32_t variant)
{
    wk_int8_args &w = plan.args.int8;
    const uint32_t blocks = 1u << variant, clusters = wk_int8_clusters(plan, blocks);
    if (blocks > 1 && !(plan.target->device.can & WK_CUDA_CAN_CLUSTERS)) return "the device has no clusters";
    if (clusters == 0) return "the device has no room for a cluster";
    wk_count_items(w.p, w.p.glu ? WK_INT8_TILES / 2 : (uint32_t)WK_INT8_TILES);
    w.tile_bytes = wk_largest_k_step(w.p);
    w.x = static_cast<const unsigned char *>(plan.product->workspace);
    w.tiles = wk_int8_records_of(w.p.rows);
    plan.shared = wk_int8_cut(plan, blocks, wk_room(plan, plan.row->launch.together));
    if (!plan.shared) plan.shared = wk_int8_cut(plan, blocks, plan.target->device.block_bytes);
    if (!plan.shared) return "two stages do not fit into shared memory";
    plan.grid_y = wk_int8_groups(plan);
    plan.grid_x = blocks > 1 ? w.p.items * blocks : wk_min(w.p.items, wk_max(clusters / plan.grid_y, 1));
    plan.cluster = blocks > 1 ? blocks : 0;
    return NULL;
}
/* Nanoseconds: of the K steps of a multiprocessor's two blocks, or of one that is alone there in the last round; of
 * beginning and end; of each further round of clusters. */
static inline uint64_t wk_int8_cost(const wk_plan &plan)
{
    const wk_int8_args &w = plan.args.int8;
    const auto &m = plan.target->measured->int8;
    const uint32_t records = wk_min(plan.row->tiles, w.tiles), blocks = w.blocks, row_groups = plan.grid_y,
                   clusters = wk_int8_clusters(plan, blocks),
                   most = blocks > 1 ? clusters : wk_max(clusters / row_groups, 1);
    const uint64_t items = (uint64_t)w.p.items * (blocks > 1 ? row_groups : 1), rounds = (items + most - 1) / most,
                   last = (items - (rounds - 1) * most) * (blocks > 1 ? blocks : row_groups);
    const bool alone = last <= wk_processors(plan) && (blocks > 1 || rounds == 1);
    const uint64_t turns = (rounds - 1) * m.shared + (alone ? m.alone : m.shared);
    return turns * wk_parts(w.p.k_steps, blocks) * (m.k_step + m.k_step_record * records) / 100 + m.record * records +
           (blocks > 1 ? (rounds - 1) * (m.round + m.round_record * records) : 0);
}

#endif
