/* worker/cuda/select/gemv.cuh: the launches of gemv and gemv_tall: by how many blocks, and how their rings are cut. */
#ifndef WORKER_CUDA_SELECT_GEMV_CUH
#define WORKER_CUDA_SELECT_GEMV_CUH

#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/select/plan.cuh>

/* Stages begin with a line, as tiles do. */
static inline uint32_t wk_gemv_line(uint32_t bytes) { return (bytes + 127) & ~127u; }

/* A stage of the ring: a piece of a K step for each K slice, of at most `most` bytes where a K step can be cut. */
static inline void wk_gemv_stages(wk_plan &plan, uint32_t most)
{
    wk_product_args &a = plan.args.common;
    uint32_t chunk = wk_largest_k_step(a);
    for (a.run = 1; plan.target->family->super == 1 && a.run < a.k_step_units && chunk > most; a.run *= 2) chunk /= 2;
    a.rounds = 1;
    a.stage_units = a.k_step_units / a.run;
    a.stages = wk_parts(a.k_steps, WK_K_SLICES) * a.run;
    for (uint32_t i = 0; i < a.n_seg; i++) a.seg[i].piece_bytes = a.seg[i].k_step_bytes / a.run;
    a.stage_bytes = WK_K_SLICES * chunk;
    if (a.k_steps < WK_K_SLICES) a.stage_bytes = a.k_steps * chunk; /* the last K step's chunk ends the stage */
}
/* Stages of several rounds of K steps, where these are short: what a stage costs besides is paid for once. */
static inline void wk_gemv_rounds(wk_plan &plan)
{
    wk_product_args &a = plan.args.common;
    const uint32_t k_step_bytes = wk_largest_k_step(a), all = wk_parts(a.k_steps, WK_K_SLICES),
                   most = plan.target->measured->gemv.one_rounds / k_step_bytes;
    if (a.run > 1 || all == 1 || most < 2) return;
    a.stages = wk_parts(all, most);
    a.rounds = (uint16_t)wk_parts(all, a.stages);
    for (uint32_t i = 0; i < a.n_seg; i++) a.seg[i].piece_bytes = a.rounds * a.seg[i].k_step_bytes;
    a.stage_bytes = wk_min(WK_K_SLICES * a.rounds, a.k_steps) * k_step_bytes;
}
/* Stages that a block may ask for before one has arrived. Of one row within measured bounds; where the matrix is large
 * and they are one stage and a half, two, up to a third more: with one a block asks for nothing while it waits. More
 * than that small launches pay for, and stages above 50 KB gain nothing by it. */
static inline uint32_t wk_gemv_stages_in_flight(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    const auto &m = plan.target->measured->gemv;
    const uint32_t stage = a.blocks * a.stage_bytes;
    if (a.rows > 1) return wk_max(m.in_flight / stage, 1);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < a.n_seg; i++) bytes += (uint64_t)a.seg[i].n_tiles * a.seg[i].tile_bytes;
    bytes /= 2 * wk_processors(plan);
    if (bytes <= m.one_most) return wk_max(wk_max((uint32_t)bytes, m.one_least) / stage, 1);
    return wk_max(m.one_most / stage, 2 * m.one_most >= 3 * stage ? 2 : 1);
}
/* Is one block a multiprocessor better? Of a large matrix with two bytes a weight or more, whose tiles take long, where
 * the last round of two would cost too much. */
static inline bool wk_gemv_heavy(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    const uint32_t two = 2 * wk_processors(plan);
    return a.rows == 1 && a.items > two && wk_largest_k_step(a) >= 32u << a.k_step_shift &&
           wk_parts(a.items, two) * two > a.items + a.items / plan.target->measured->gemv.heavy_part;
}
/* The table, in bytes, where there is room for it and two stages beside `own` bytes, if need be stages of one round;
 * else 0. */
static inline uint32_t wk_gemv_table(wk_plan &plan, uint32_t own, uint32_t room)
{
    wk_product_args &a = plan.args.common;
    const uint32_t table = plan.target->family->table_bytes,
                   round = wk_gemv_line(wk_min(WK_K_SLICES, a.k_steps) * wk_largest_k_step(a));
    if (!table || room < own + table + 2 * round) return 0;
    if (room < own + table + 2 * a.stage_bytes) {
        wk_gemv_stages(plan, WK_GEMV_ONE_STAGE);
        a.stage_bytes = wk_gemv_line(a.stage_bytes);
    }
    return table;
}
/* Two blocks a multiprocessor, unless each has two items at most and the ring has room for both: then the next launch's
 * are there early, too. */
static inline const char *wk_shape_gemv(wk_plan &plan, uint32_t)
{
    wk_product_args &a = plan.args.common;
    const wk_cuda_device &device = plan.target->device;
    const bool one = a.rows == 1;
    wk_count_items(a, 1);
    const uint32_t padded = a.k_steps * a.k_step_units * plan.target->family->unit, grid = device.processors;
    wk_gemv_stages(plan, one ? (uint32_t)WK_GEMV_ONE_STAGE : (uint32_t)WK_STAGE_BYTES);
    if (one) wk_gemv_rounds(plan);
    a.stage_bytes = wk_gemv_line(a.stage_bytes);
    a.x_stride = one ? padded : padded + 32;
    const uint32_t sums = plan.target->family->int8 ? a.k_steps * (uint32_t)(WK_INT8_SUMS + sizeof(wk_int8_more)) : 0,
                   red_at = wk_align16(a.rows * a.x_stride * 2 + sums),
                   bars_at = red_at + WK_GEMV_SUMS * WK_K_SLICES * 16 * (one ? 1 : 8) * 4,
                   own = bars_at + (uint32_t)(WK_GEMV_BARS * 8 + sizeof(wk_gemv_own)), in_item = a.glu ? 2 : 1,
                   room = wk_room(plan, 2);
    a.table_bytes = one ? wk_gemv_table(plan, own, room) : 0;
    const uint32_t fixed = own + a.table_bytes;
    uint32_t depth = room > fixed ? (room - fixed) / a.stage_bytes : 0,
             most = wk_parts(a.items, grid) * in_item * a.stages;
    const bool heavy = wk_gemv_heavy(plan);
    a.blocks = !heavy && (a.items > 2 * grid || (a.items > grid && (most > depth || most > WK_GEMV_DEPTH))) ? 2 : 1;
    if (depth < 2 || heavy) {
        depth = device.block_bytes > fixed ? (device.block_bytes - fixed) / a.stage_bytes : 0;
        a.blocks = 1;
    }
    most = wk_parts(a.items, a.blocks * grid) * in_item * a.stages;
    a.k_slice_rotation = most > a.stages
                             ? a.k_steps % WK_K_SLICES
                             : 0; /* with several tiles a block those K slices that have a K step more go round */
    depth = wk_min(wk_min(depth, most), WK_GEMV_DEPTH);
    if (depth < 2 && depth < most) return "two stages do not fit into shared memory";
    a.depth = depth;
    a.stages_in_flight = wk_min(wk_gemv_stages_in_flight(plan), depth);
    const uint32_t ring = wk_align16(depth * a.stage_bytes);
    a.bars_at = ring + bars_at;
    a.x_at = ring;
    a.red_at = ring + red_at;
    /* No more blocks a multiprocessor: one too many would take the place of which a neighbour has more. */
    plan.shared = wk_max(ring + fixed, device.processor_bytes / (a.blocks + 1));
    plan.grid_x = wk_min(a.items, a.blocks * grid);
    return NULL;
}
static inline const char *wk_gemv_tall_suits(const wk_plan &plan)
{
    const wk_product_args &a = plan.args.common;
    if (a.n_seg > 1) return "there are several matrices";
    if (!wk_plain_sums(a)) return "outputs are not plain F32 sums";
    return wk_whole_k_steps(a) ? NULL : "k is not a whole number of K steps";
}
/* Of tiles so large that a ring is not full gemv multiplies more than it does besides; where pairs have few tiles, its
 * eight warps are done sooner with the last. */
static inline const char *wk_shape_gemv_tall(wk_plan &plan, uint32_t variant)
{
    const wk_product_args &a = plan.args.common;
    const char *const why = wk_shape_gemv(plan, variant);
    if (why) return why;
    if (a.k_steps > WK_K_SLICES) return "a K slice has several K steps";
    if (a.stages > 1) return "a tile has several stages"; /* of pieces of K steps */
    if (a.depth < WK_GEMV_DEPTH) return "stages are so large that the ring is not full";
    return a.items < a.blocks * wk_processors(plan) * WK_GEMV_TALL_PAIRS * plan.target->measured->gemv.tall_tiles
               ? "there are few tiles for each pair of warps"
               : NULL;
}

#endif
