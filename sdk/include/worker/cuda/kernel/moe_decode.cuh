/* worker/cuda/kernel/moe_decode.cuh: products of experts whose items lie by expert: each used expert's weights are read
 * once for up to sixteen of its items.
 *
 * A work unit is a tile (glu: a pair) of one expert for one chunk of its items. Work units in the order (expert, chunk,
 * tile) are dealt in runs of equal length to a grid that fills the GPU, from the counts that the device made: a block
 * keeps a chunk's activations for all its tiles and seldom sees more than two chunks. Inside, a block is a pipeline
 * like that of kernel/gemv.cuh: a warp streams tiles through rings across work units, eight warps share a tile's k,
 * warps finish. One item at a time: two blocks a multiprocessor; more: one block with two groups of eight warps, which
 * have the tiles by turns, each from a ring of its own, and the activations once. So there is room for stages of whole
 * tiles, and with weights of four bits the issue of instructions is as scarce as bandwidth: what a stage costs besides
 * its products counts, and so does what the streaming warp does between two copies. A block that finds its part of the
 * work also lets the next launch begin only then: so products that follow each other on one choice of experts can
 * stream weights before the one before has ended (WK_CUDA_GROUPS_KNOWN).
 *
 * Order: that of part/weights.cuh. An item's bits depend on its expert's weights and its own input alone. */
#ifndef WORKER_CUDA_KERNEL_MOE_DECODE_CUH
#define WORKER_CUDA_KERNEL_MOE_DECODE_CUH

#include <type_traits>

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/experts.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>

/* Where the block begins, by one warp, for all to read. All that is known of 32 experts is asked for at once; if each
 * has one item, as those of one row have, the place is known and only that. */
template <int COLUMNS>
__device__ __forceinline__ void wk_moe_decode_start(const wk_experts_args &a, wk_experts_walk *to, uint32_t lane)
{
    if (COLUMNS == 1) {
        uint32_t left;
        const uint32_t *const numbers = a.groups + a.experts;
        const uint32_t from = wk_experts_share(a.p.rows * a.p.items, &left), i = from / a.p.items,
                       used = min(i, a.experts - 1);
        const uint32_t expert = __ldcg(a.groups + used), at = __ldcg(numbers + used), end = __ldcg(numbers + used + 1),
                       all = __ldcg(numbers + a.experts);
        if (all == a.p.rows && at == i && end == i + 1) {
            if (lane == 0) *to = { left, i, expert, at, end, from - i * a.p.items };
            return;
        }
    }
    const uint32_t *const first = a.groups + a.experts;
    struct used {
        uint32_t expert, at, end;
    };
    auto read = [&](uint32_t i) {
        return i < a.experts ? used{ __ldcg(a.groups + i), __ldcg(first + i), __ldcg(first + i + 1) } : used{ 0, 0, 0 };
    };
    auto chunks = [&](const used &u) { return (u.end - u.at + a.capacity - 1) / a.capacity; };
    used u = read(lane);
    uint32_t all = chunks(u);
    for (uint32_t i = lane + 32; i < a.experts; i += 32) all += chunks(read(i));
    all = __reduce_add_sync(0xffffffffu, all) * a.p.items;
    uint32_t left;
    const uint32_t from = wk_experts_share(all, &left), chunk = from / a.p.items;
    if (!left) {
        if (lane == 0) to->left = 0;
        return;
    }
    for (uint32_t i = lane, before = 0;;) {
        uint32_t n = chunks(u), sum = n; /* of this lane's and those below */
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += below;
        }
        const bool here = chunk < before + sum && chunk >= before + sum - n;
        if (here)
            *to = {
                left, i, u.expert, u.at + (chunk - (before + sum - n)) * a.capacity, u.end, from - chunk * a.p.items
            };
        if (__any_sync(0xffffffffu, here)) return;
        before += __shfl_sync(0xffffffffu, sum, 31);
        i += 32;
        u = read(i);
    }
}

/* The input row of a lane's column. All items of a single row have its input, whatever their order. */
template <int COLUMNS>
__device__ __forceinline__ uint32_t wk_moe_decode_row(const wk_experts_args &a, const wk_experts_walk &walk,
                                                      uint32_t lane)
{
    const wk_product_args &p = a.p;
    return walk.left && lane % COLUMNS < walk.columns(a)
               ? wk_input_row(p, p.rows > p.x_items
                                     ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + lane % COLUMNS) / p.x_items
                                     : 0)
               : 0;
}
/* A K slice's K steps of a chunk's columns, for the K slice's warps of all groups: the rows of the items' inputs. A
 * lane keeps to one column. */
template <int COLUMNS>
__device__ __forceinline__ void wk_moe_decode_inputs(const wk_experts_args &a, unsigned char *shared,
                                                     const wk_experts_walk &walk, uint32_t row, uint32_t group,
                                                     uint32_t k_slice, uint32_t lane)
{
    typedef wk_experts_shape<COLUMNS> shape;
    constexpr uint32_t apart = 32 * shape::groups / COLUMNS;
    const wk_product_args &p = a.p;
    asm volatile(""
                 : "+r"(lane), "+r"(k_slice), "+r"(group)); /* computed again for each chunk: what is kept between them
                                                            would take registers from the loop over k */
    const uint32_t c = lane % COLUMNS, own = wk_own_k_steps(p, k_slice) << p.k_step_shift;
    auto meet = [&] {
        if (shape::groups > 1)
            asm volatile("bar.sync %0, %1;" ::"r"(1 + k_slice), "n"(32 * shape::groups) : "memory");
        else
            __syncwarp();
    };
    meet(); /* the chunk before is done with */
    if (c < walk.columns(a)) {
        const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
        const uint32_t x = (uint32_t)__cvta_generic_to_shared(shared + p.x_at) + c * p.x_stride * 2,
                       first = (group * 32 + lane) / COLUMNS;
#pragma unroll 4
        for (uint32_t i = first; i < own / 8; i += apart) {
            const uint32_t k = wk_own_k(p, k_slice, i * 8);
            wk_copy16_part(x + k * 2, from + (k < p.k32 ? k : 0), k < p.k32 ? 16 : 0);
        }
    }
    wk_copy_commit();
    wk_copy_wait<0>();
    meet();
}

/* The streaming warp, where stages are runs of a tile's bytes: one lane with little to compute between two copies,
 * since it competes with the multiplying warps for their turns. */
template <uint32_t GROUPS>
__device__ __forceinline__ void wk_moe_decode_stream_whole(const wk_experts_args &a, wk_experts_walk walk,
                                                           uint32_t ring, const wk_experts_bars &bars)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, depth = p.depth, stage_bytes = p.stage_bytes, stages = p.stages,
                   rounds = a.rounds, bytes = stage_bytes / rounds;
    const uint32_t tile_bytes = p.seg[0].tile_bytes;
    wk_experts_order<GROUPS> now(1), old(0);
    uint32_t more = p.stages_in_flight; /* stages that may still be asked for before one has arrived */
    const uint64_t once = wk_fetch_once();
    for (; walk.left; walk.next(a))
        for (uint32_t work_unit = walk.tile, last = work_unit + walk.work_units(a); work_unit < last; work_unit++)
            for (uint32_t j = 0; j < in_item; j++) {
                uint32_t tile, s = wk_item_segment(p, work_unit, &tile);
                if (p.glu) s = j;
                const wk_segment_args &seg = p.seg[s];
                const unsigned char *from = seg.tiles + ((uint64_t)walk.expert * seg.n_tiles + tile) * seg.tile_stride;
                uint32_t left = tile_bytes;
                for (uint32_t stage = stages; stage; stage--) {
                    if (more) {
                        more--;
                    } else {
                        wk_stage_wait(bars.full((old.at(depth) + 1) * rounds - 1), old.state.parity);
                        old.next(stages, depth);
                    }
                    const uint32_t at = now.at(depth);
                    wk_stage_wait(bars.empty(at), now.state.parity);
                    uint32_t full = bars.full(at * rounds), to = ring + at * stage_bytes;
                    for (uint32_t r = rounds; r; r--) {
                        const uint32_t n = min(left, bytes);
                        wk_bar_expect(full, n);
                        wk_fetch(to, from, n, full, once);
                        to += bytes;
                        from += n;
                        left -= n;
                        full += 8;
                    }
                    now.next(stages, depth);
                }
            }
}

/* A multiplying warp. */
template <int COLUMNS, class F>
__device__ __forceinline__ void wk_moe_decode_multiply(const wk_experts_args &a, wk_experts_walk walk,
                                                       unsigned char *shared, const wk_experts_bars &bars,
                                                       uint32_t warp, uint32_t lane)
{
    typedef wk_experts_shape<COLUMNS> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, group = shape::groups == 1 ? 0 : warp / WK_K_SLICES,
                   k_slice = warp % WK_K_SLICES, units = F::super == 2 ? 2 : p.stage_units,
                   own = wk_own_k_steps(p, k_slice);
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) +
                            (COLUMNS == 1 ? 0 : min(lane / 4, a.capacity - 1) * p.x_stride) +
                            (k_slice << p.k_step_shift);
    wk_experts_ring ring = { shared + group * p.depth * p.stage_bytes + (uint32_t)F::offset(units) * k_slice,
                             group * p.depth,
                             { 0, 0 } };
    wk_pipeline_state sum = { group, 1 };
    uint32_t turn = 0,
             row = a.known ? wk_moe_decode_row<COLUMNS>(a, walk, lane)
                           : 0; /* turn: group that has the next tile; row: asked for ahead of the wait if it may be */
    wk_depend();
    wk_release(); /* not before: what the launch before last has made is then known to the next one */
    if (!a.known) row = wk_moe_decode_row<COLUMNS>(a, walk, lane);
    for (; walk.left; walk.next(a), row = wk_moe_decode_row<COLUMNS>(a, walk, lane)) {
        wk_moe_decode_inputs<COLUMNS>(a, shared, walk, row, group, k_slice, lane);
        const uint32_t tiles = walk.work_units(a) * in_item, parts = shape::parts > 1 ? (walk.columns(a) + 7) / 8 : 1;
#pragma unroll 1
        for (uint32_t i = turn == group ? 0 : 1; i < tiles; i += shape::groups) {
            float y[shape::parts][2][4] = {};
            auto tile = [&](auto with) {
                if constexpr (F::super == 2) {
                    wk_experts_tile<F, with, 2>(y, a, ring, bars, x, own, lane);
                } else {
                    if (4 * F::slot <= WK_STAGE_BYTES && units == 4)
                        wk_experts_tile<F, with, 4>(y, a, ring, bars, x, own, lane);
                    else if (units == 2)
                        wk_experts_tile<F, with, 2>(y, a, ring, bars, x, own, lane);
                    else
                        wk_experts_tile<F, with, 1>(y, a, ring, bars, x, own, lane);
                }
            };
            if (shape::parts == 1 || parts == 1)
                tile(std::integral_constant<int, 1>());
            else
                tile(std::integral_constant<int, (int)shape::parts>());
            wk_stage_wait(bars.finished(sum.i), sum.parity);
            uint32_t here =
                lane; /* computed again for each tile: what is kept would take registers from the loop over k */
            asm volatile("" : "+r"(here));
            const uint32_t in_cell = COLUMNS == 1 ? here : wk_experts_cell(here / 4, here % 4 * 2);
            unsigned char *const cell = shared + p.red_at + k_slice * shape::cell + sum.i * shape::place;
            if constexpr (COLUMNS == 1) {
                if (lane % 4 == 0) {
                    *reinterpret_cast<float *>(cell + lane) = __fadd_rn(y[0][0][0], y[0][1][0]);
                    *reinterpret_cast<float *>(cell + lane + 32) = __fadd_rn(y[0][0][2], y[0][1][2]);
                }
            } else {
#pragma unroll
                for (uint32_t part = 0; part < shape::parts; part++)
#pragma unroll
                    for (uint32_t j = 0; j < 4; j++) /* columns 2t, 2t + 1 of row g, and of row g + 8 */
                        if (part < parts)
                            *reinterpret_cast<float *>(cell + part * shape::part + (j / 2 ? in_cell ^ 32u : in_cell) +
                                                       j % 2 * 64) = __fadd_rn(y[part][0][j], y[part][1][j]);
            }
            __syncwarp();
            wk_bar_arrive_warp(bars.summed(sum.i), lane);
            for (uint32_t g = 0; g < shape::groups; g++) sum.next(shape::places);
        }
        turn = (turn + tiles) % shape::groups;
    }
}

/* The finishing warp: 16 rows of a tile in 16 lanes, with glu the second segment's in the upper ones. */
__device__ __forceinline__ void wk_moe_decode_finish_one(const wk_experts_args &a, wk_experts_walk walk,
                                                         const unsigned char *shared, const wk_experts_bars &bars,
                                                         uint32_t lane)
{
    typedef wk_experts_shape<1> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_pipeline_state sum = { 0, 0 };
    wk_output_at o = {};
    o.r = lane % 16;
    o.on = lane < 16;
    for (; walk.left; walk.next(a)) {
        o.row = __ldcg(a.groups + 2 * a.experts + 1 + walk.at);
        uint32_t work_unit = walk.tile;
        const uint32_t last = work_unit + walk.work_units(a);
        o.seg = wk_item_segment(p, work_unit, &o.tile);
        wk_output_more next = wk_output_ahead(p, o, walk.expert);
#pragma unroll 1
        for (; work_unit < last; work_unit++) {
            const uint32_t place = sum.i; /* pairs begin at even places */
            const wk_output_at now = o;
            const wk_output_more more = next;
            if (work_unit + 1 < last) {
                o.seg = wk_item_segment(p, work_unit + 1, &o.tile);
                next = wk_output_ahead(p, o, walk.expert);
            }
            wk_stage_wait(bars.summed(place), sum.parity);
            if (p.glu) wk_stage_wait(bars.summed(place + 1), sum.parity);
            const float *const v =
                reinterpret_cast<const float *>(shared + p.red_at + (place + (p.glu ? lane / 16 : 0)) * shape::place) +
                o.r;
            float sums[WK_K_SLICES];
#pragma unroll
            for (uint32_t k_slice = 0; k_slice < WK_K_SLICES; k_slice++) sums[k_slice] = v[k_slice * 16];
            const float s = wk_k_slices_sum(sums);
            __syncwarp();
            wk_bar_arrive_warp(bars.finished(place), in_item, lane);
            wk_output(p, now, more, s, p.glu ? __shfl_down_sync(0xffffffffu, s, 16) : 0.0f);
            for (uint32_t i = 0; i < in_item; i++) sum.next(shape::places);
        }
    }
}

template <int COLUMNS, class F>
__global__ void __launch_bounds__(wk_experts_shape<COLUMNS>::threads, wk_experts_shape<COLUMNS>::blocks)
    wk_product_moe_decode(const __grid_constant__ wk_experts_args a)
{
    typedef wk_experts_shape<COLUMNS> shape;
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_experts_bars bars = { base + p.bars_at };
    wk_experts_walk *const start = reinterpret_cast<wk_experts_walk *>(shared + a.start_at);
    if (warp == shape::multiply) bars.init(lane, shape::parts);
    if (a.tail) wk_experts_zeros(a, shared, shape::groups);
    if (!a.known) {
        if (warp >= shape::multiply) wk_touch_args(p);
        wk_depend();
    }
    if (warp == 0) wk_moe_decode_start<COLUMNS>(a, start, lane);
    __syncthreads();
    const wk_experts_walk walk = *start;
    if (warp == shape::multiply + shape::finish) {
        if (!a.whole)
            wk_experts_stream<shape::groups>(a, walk, base, bars, lane);
        else if (lane == 0)
            wk_moe_decode_stream_whole<shape::groups>(a, walk, base, bars);
        __syncwarp();
        wk_depend();
        return;
    }
    if (warp >= shape::multiply) {
        wk_depend();
        wk_release();
    }
    if (warp < shape::multiply)
        wk_moe_decode_multiply<COLUMNS, F>(a, walk, shared, bars, warp, lane);
    else
        wk_moe_decode_finish_one(a, walk, shared, bars, lane);
}

#endif
