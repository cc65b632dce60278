/* worker/cuda/select/moe.cuh: the launches of products of experts: moe_one, moe_several and moe_decode: by how many
 * blocks, and how their rings are cut. */
#ifndef WORKER_CUDA_SELECT_MOE_CUH
#define WORKER_CUDA_SELECT_MOE_CUH

#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/kernel/moe_decode.cuh>
#include <worker/cuda/kernel/moe_one.cuh>
#include <worker/cuda/kernel/moe_several.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/select/gemv.cuh>
#include <worker/cuda/select/plan.cuh>

/* What does not depend on the kernel. tiles: of a segment to a work unit. */
static inline void wk_moe_begin(wk_plan &plan, uint32_t tiles)
{
    const wk_cuda_product *p = plan.product;
    wk_experts_args &w = plan.args.experts;
    wk_count_items(w.p, tiles);
    w.groups = p->groups;
    w.experts = p->n_experts;
    w.known = p->flags & WK_CUDA_GROUPS_KNOWN ? 1 : 0;
}
/* Is a stage a run of a tile's bytes? What its last one then lacks of whole K steps has its places in the ring, where a
 * stage of a tile is always at the same places. */
static inline void wk_moe_tail(wk_plan &plan)
{
    wk_experts_args &w = plan.args.experts;
    wk_product_args &a = w.p;
    w.tail = a.k_steps * a.seg[0].k_step_bytes - a.seg[0].tile_bytes;
    w.whole = plan.target->device.can & WK_CUDA_CAN_BULK && a.run == 1 && (!w.tail || a.depth >= a.stages) ? 1 : 0;
    if (w.tail && w.whole)
        a.depth -= a.depth % a.stages;
    else
        w.tail = 0;
}
/* A stage of the rings of moe_decode: so many K steps of each K slice as make `bytes`, or a piece of one. */
static inline void wk_moe_stages(wk_plan &plan, uint32_t bytes)
{
    wk_experts_args &w = plan.args.experts;
    wk_product_args &a = w.p;
    wk_gemv_stages(plan, WK_STAGE_BYTES);
    const uint32_t all = wk_parts(a.k_steps, WK_K_SLICES);
    w.rounds = a.run > 1 ? 1 : wk_min(wk_min(all, WK_EXPERTS_ROUNDS / 4), wk_max(bytes / a.stage_bytes, 1));
    while (all % w.rounds) w.rounds--; /* no stage is partly empty */
    if (w.rounds == 1) return;
    a.stages = all / w.rounds;
    a.stage_bytes = w.rounds * WK_K_SLICES * a.seg[0].k_step_bytes;
}
/* moe_decode: an item at a time. */
static inline const char *wk_shape_moe_decode(wk_plan &plan, uint32_t)
{
    typedef wk_experts_shape<1> shape;
    wk_experts_args &w = plan.args.experts;
    wk_product_args &a = w.p;
    wk_moe_begin(plan, 1);
    w.capacity = 1;
    a.x_stride = a.k_steps * a.k_step_units * plan.target->family->unit;
    const uint32_t red_at = a.x_stride * 2, bars_at = red_at + shape::places * shape::place,
                   start_at = bars_at + WK_EXPERTS_BARS * 8,
                   fixed = start_at + wk_align16((uint32_t)sizeof(wk_experts_walk));
    uint32_t depth = 0;
    for (a.blocks = shape::blocks; a.blocks; a.blocks--) {
        const uint32_t most = wk_room(plan, a.blocks), room = most > fixed ? most - fixed : 0;
        wk_moe_stages(plan, room / WK_EXPERTS_STAGES);
        depth = room / a.stage_bytes;
        if (depth >= 2) break;
    }
    if (depth < 2) return "two stages do not fit into shared memory";
    a.depth = wk_min(depth, WK_EXPERTS_ROUNDS / w.rounds);
    wk_moe_tail(plan);
    a.stages_in_flight = wk_min(wk_max(plan.target->measured->gemv.in_flight / (a.blocks * a.stage_bytes), 1), a.depth);
    const uint32_t ring = wk_align16(a.depth * a.stage_bytes);
    a.x_at = ring;
    a.red_at = ring + red_at;
    a.bars_at = ring + bars_at;
    w.start_at = ring + start_at;
    plan.shared = ring + fixed;
    const uint64_t work_units = (uint64_t)a.rows * a.items, most = (uint64_t)a.blocks * wk_processors(plan);
    plan.grid_x = (uint32_t)(work_units < most ? work_units : most);
    return NULL;
}
/* moe_one: one row, whose items have the blocks in equal parts. */
static inline const char *wk_shape_moe_one(wk_plan &plan, uint32_t variant)
{
    wk_experts_args &w = plan.args.experts;
    wk_product_args &a = w.p;
    const char *const why = wk_shape_moe_decode(plan, variant);
    if (why) return why;
    w.chosen = plan.product->expert;
    if (w.whole)
        a.stages_in_flight =
            wk_min(wk_max(plan.target->measured->moe_one_in_flight / (a.blocks * (a.stage_bytes / w.rounds)), 1),
                   a.depth * w.rounds);
    plan.grid_x = plan.product->top_k;
    plan.grid_y = wk_min(a.items, wk_min(wk_max(a.blocks * wk_processors(plan) / plan.product->top_k, 1), 65535));
    return NULL;
}

/* Where many experts have more than eight items. */
static inline const char *wk_moe_several16_suits(const wk_plan &plan)
{
    return plan.product->rows > 4 * plan.product->n_experts ? NULL : "few experts have more than eight items";
}
/* Variants: columns of the kernel that are used: all, or of fewer rows so many; half of them; a quarter. */
static inline const char *wk_shape_moe_several(wk_plan &plan, uint32_t variant)
{
    wk_experts_args &w = plan.args.experts;
    wk_product_args &a = w.p;
    const uint32_t columns = 8 * plan.row->tiles,
                   place = (columns == 16 ? wk_moe_several_shape<16>::place : wk_moe_several_shape<8>::place);
    wk_moe_begin(plan, a.glu ? 1 : WK_MOE_SEVERAL_TILES);
    w.capacity = (plan.rows < 8 ? plan.rows : columns) >> variant;
    if (w.capacity < 2) return "fewer than two columns fit into shared memory";
    wk_gemv_stages(plan, WK_STAGE_BYTES);
    const uint32_t k_step_bytes = a.seg[0].k_step_bytes;
    a.x_stride = a.k_steps * a.k_step_units * plan.target->family->unit +
                 plan.target->family->formats[a.seg[0].type].pad; /* lanes that load together meet no other's banks */
    const uint32_t red_at = w.capacity * a.x_stride * 2, bars_at = red_at + WK_MOE_SEVERAL_PLACES * place,
                   start_at = bars_at + WK_MOE_SEVERAL_BARS * 8,
                   fixed = start_at + wk_align16((uint32_t)sizeof(wk_moe_several_walk)),
                   room = plan.target->device.block_bytes > fixed ? plan.target->device.block_bytes - fixed : 0;
    /* What the last stage of a tile lacks of eight K steps has no place in a ring that ends with it. */
    const uint32_t lack =
        a.run == 1 && a.k_steps > WK_K_SLICES ? (a.stages * WK_K_SLICES - a.k_steps) * k_step_bytes : 0;
    a.stage_bytes *= WK_MOE_SEVERAL_TILES;
    a.blocks = 1;
    auto ring = [&] { return wk_align16(a.depth * a.stage_bytes - (a.depth % a.stages ? 0 : lack)); };
    a.depth = wk_min(wk_max(plan.target->measured->gemv.in_flight / (WK_MOE_SEVERAL_GROUPS * a.stage_bytes), 2),
                     WK_MOE_SEVERAL_STAGES / WK_MOE_SEVERAL_GROUPS);
    while (a.depth > 1 && WK_MOE_SEVERAL_GROUPS * ring() > room) a.depth--;
    if (a.depth < 2) return "two stages do not fit into shared memory";
    wk_moe_tail(plan);
    w.ring = ring();
    const uint32_t rings = WK_MOE_SEVERAL_GROUPS * w.ring;
    a.x_at = rings;
    a.red_at = rings + red_at;
    a.bars_at = rings + bars_at;
    w.start_at = rings + start_at;
    plan.shared = rings + fixed;
    const uint64_t work_units = (uint64_t)a.rows * a.items;
    plan.grid_x = (uint32_t)(work_units < wk_processors(plan) ? work_units : wk_processors(plan));
    return NULL;
}

#endif
