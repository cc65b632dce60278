/* worker/cuda/kernel/moe_several.cuh: products of experts whose items lie by expert, up to sixteen items of an expert
 * at once (one: kernel/moe_decode.cuh).
 *
 * Work units as there, but one is a pair of tiles, of gate and up, or two neighbours, and blocks have runs of equal
 * cost. A multiprocessor has one block: two groups of eight multiplying warps, one warp that streams and three that
 * finish. The groups have work units by turns, each from a ring of its own; a warp has a K slice of both tiles of its
 * group's work unit, so that activations, which all groups find in shared memory once, are loaded once for two tiles:
 * at sixteen columns they would otherwise take all that shared memory can give, and what a K step costs besides its
 * products is paid once for two. A stage of a ring: a K step of each K slice of both tiles, or a piece of one.
 *
 * Order: that of part/weights.cuh. An item's bits depend on its expert's weights and its own input alone. */
#ifndef WORKER_CUDA_KERNEL_MOE_SEVERAL_CUH
#define WORKER_CUDA_KERNEL_MOE_SEVERAL_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/epilogue.cuh>
#include <worker/cuda/part/experts.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

/* By columns, 8 or 16. parts: of eight columns; multiply, finish: warps that do. A cell: a K slice's sums of a tile, 16
 * rows of a part's columns; a tile: all of its cells; a place: of a work unit. */
enum {
    WK_MOE_SEVERAL_TILES = 2,
    WK_MOE_SEVERAL_GROUPS = 2,
    WK_MOE_SEVERAL_STAGES = 12, /* most of both rings */
    WK_MOE_SEVERAL_PLACES = 2,  /* work units whose sums may wait to be finished: one of each group */
    WK_MOE_SEVERAL_MULTIPLY = WK_MOE_SEVERAL_GROUPS * WK_K_SLICES,
    WK_MOE_SEVERAL_FINISH = 3,
    WK_MOE_SEVERAL_THREADS = 32 * (WK_MOE_SEVERAL_MULTIPLY + WK_MOE_SEVERAL_FINISH + 1),
    WK_MOE_SEVERAL_CELL = 16 * 8 * 4,
    WK_MOE_SEVERAL_COST8 = 5,
    WK_MOE_SEVERAL_COST16 = 7, /* of a work unit for up to so many columns, about */
    WK_MOE_SEVERAL_BARS = 2 * (WK_MOE_SEVERAL_STAGES + WK_MOE_SEVERAL_PLACES)
};
template <int COLUMNS> struct wk_moe_several_shape {
    static constexpr uint32_t parts = COLUMNS / 8, tile = parts * WK_K_SLICES * WK_MOE_SEVERAL_CELL,
                              place = WK_MOE_SEVERAL_TILES * tile;
};

struct wk_moe_several_bars : wk_pipeline_bars<WK_MOE_SEVERAL_STAGES, WK_MOE_SEVERAL_PLACES> {
    __device__ __forceinline__ void init(uint32_t lane, bool whole) const /* by a warp */
    {
        static_assert(WK_MOE_SEVERAL_STAGES + WK_MOE_SEVERAL_PLACES <= 32, "a lane a pair of barriers");
        if (lane < WK_MOE_SEVERAL_STAGES) {
            wk_bar_init(full(lane), whole ? 1 : WK_MOE_SEVERAL_TILES * WK_BAR_COPIES);
            wk_bar_init(empty(lane), WK_K_SLICES * WK_BAR_WARP);
        } else if (lane < WK_MOE_SEVERAL_STAGES + WK_MOE_SEVERAL_PLACES) {
            wk_bar_init(summed(lane - WK_MOE_SEVERAL_STAGES), WK_K_SLICES * WK_BAR_WARP);
            wk_bar_init(finished(lane - WK_MOE_SEVERAL_STAGES), WK_MOE_SEVERAL_FINISH * WK_BAR_WARP);
        }
        wk_bar_init_done();
    }
};

/* A block's way through its work units: those from `tile` on of a chunk of an expert's items, then the next chunk's. A
 * work unit of a chunk of more than eight columns costs more, and blocks are dealt equal costs. */
struct wk_moe_several_walk {
    uint32_t left, used, expert, at, end, tile; /* cost; number among the used experts; places of the chunk's first item
                                                   and behind the expert's last; first work unit here */
    static __device__ __forceinline__ uint32_t cost(uint32_t columns)
    {
        return columns > 8 ? WK_MOE_SEVERAL_COST16 : WK_MOE_SEVERAL_COST8;
    }
    __device__ __forceinline__ uint32_t columns(const wk_experts_args &a) const { return min(a.capacity, end - at); }
    __device__ __forceinline__ uint32_t work_units(const wk_experts_args &a) const
    {
        const uint32_t here = columns(a) > 8 ? (left + WK_MOE_SEVERAL_COST16 - 1) / WK_MOE_SEVERAL_COST16
                                             : (left + WK_MOE_SEVERAL_COST8 - 1) / WK_MOE_SEVERAL_COST8;
        return min(here, a.p.items - tile);
    }
    __device__ __forceinline__ void next(const wk_experts_args &a)
    {
        left -= min(left, work_units(a) * cost(columns(a)));
        tile = 0;
        at = min(at + a.capacity, end);
        if (at < end || !left) return;
        used++;
        expert = __ldcg(a.groups + used);
        end = __ldcg(a.groups + a.experts + used + 1);
    }
};

/* Where the block begins, by one warp, for all to read. All that is known of 32 experts is asked for at once. A work
 * unit is the block's in whose share its cost begins. */
__device__ __forceinline__ void wk_moe_several_start(const wk_experts_args &a, wk_moe_several_walk *to, uint32_t lane)
{
    const uint32_t *const first = a.groups + a.experts;
    struct used {
        uint32_t expert, at, end;
    };
    auto read = [&](uint32_t i) {
        return i < a.experts ? used{ __ldcg(a.groups + i), __ldcg(first + i), __ldcg(first + i + 1) } : used{ 0, 0, 0 };
    };
    auto costs = [&](const used &u) {
        const uint32_t items = u.end - u.at, rest = items % a.capacity;
        return a.p.items * (items / a.capacity * wk_moe_several_walk::cost(a.capacity) +
                            (rest ? wk_moe_several_walk::cost(rest) : 0));
    };
    used u = read(lane);
    uint32_t all = costs(u);
    for (uint32_t i = lane + 32; i < a.experts; i += 32) all += costs(read(i));
    all = __reduce_add_sync(0xffffffffu, all);
    uint32_t left;
    const uint32_t from = wk_experts_share(all, &left);
    if (!left) {
        if (lane == 0) to->left = 0;
        return;
    }
    for (uint32_t i = lane, before = 0;;) {
        uint32_t n = costs(u), sum = n; /* of this lane's and those below */
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += below;
        }
        const bool here = from < before + sum && from >= before + sum - n;
        if (here) {
            wk_moe_several_walk walk = { left, i, u.expert, u.at, u.end, 0 };
            uint32_t in = from - (before + sum - n), cost;
            for (; in >= (cost = wk_moe_several_walk::cost(walk.columns(a))) * a.p.items; in -= cost * a.p.items)
                walk.at += a.capacity;
            walk.tile = (in + cost - 1) / cost;
            walk.left -= min(walk.left, walk.tile * cost - in);
            if (walk.tile == a.p.items) walk.next(a);
            *to = walk;
        }
        if (__any_sync(0xffffffffu, here)) return;
        before += __shfl_sync(0xffffffffu, sum, 31);
        i += 32;
        u = read(i);
    }
}

/* Zeros where the rings have what tiles lack of whole K steps: always the same places, which no copy writes. By all
 * threads. */
__device__ __forceinline__ void wk_moe_several_zeros(const wk_experts_args &a, unsigned char *shared)
{
    const wk_product_args &p = a.p;
    const uint32_t half = p.stage_bytes / 2, at = p.seg[0].tile_bytes - (p.stages - 1) * half;
    for (uint32_t stage = p.stages - 1; stage < WK_MOE_SEVERAL_GROUPS * p.depth; stage += p.stages)
        for (uint32_t i = threadIdx.x * 16; i < WK_MOE_SEVERAL_TILES * a.tail; i += blockDim.x * 16)
            *reinterpret_cast<uint4 *>(shared + stage / p.depth * a.ring + stage % p.depth * p.stage_bytes + at +
                                       (i < a.tail ? i : half + i - a.tail)) = make_uint4(0, 0, 0, 0);
}

/* ---- streaming ----------------------------------------------------------------------------------------- */

/* The block's work units one after the other, as places of their tiles. */
struct wk_moe_several_work_units {
    wk_moe_several_walk walk;
    uint32_t work_unit, last;
    __device__ __forceinline__ explicit wk_moe_several_work_units(const wk_experts_args &a,
                                                                  const wk_moe_several_walk &from)
        : walk(from), work_unit(from.tile), last(from.tile + (from.left ? from.work_units(a) : 0))
    {
    }
    __device__ __forceinline__ bool next(const wk_experts_args &a,
                                         const unsigned char *tiles[2]) /* false: there is none */
    {
        const wk_product_args &p = a.p;
        if (work_unit == last) {
            if (!walk.left) return false;
            walk.next(a);
            if (!walk.left) return false;
            work_unit = 0;
            last = walk.work_units(a);
        }
        uint32_t tile;
        const wk_segment_args &seg = p.seg[wk_item_segment(p, work_unit++, &tile)];
        if (!p.glu) tile *= 2;
        const uint64_t at = ((uint64_t)walk.expert * seg.n_tiles + tile) * seg.tile_stride;
        tiles[0] = seg.tiles + at;
        tiles[1] = p.glu                    ? p.seg[1].tiles + at
                   : tile + 1 < seg.n_tiles ? tiles[0] + seg.tile_stride
                                            : tiles[0]; /* the last one alone: twice */
        return true;
    }
};

/* The streaming warp: stages of both groups by turns. WHOLE: a stage of a tile is a run of its bytes; one lane copies,
 * with little to compute between two copies, since it competes with the multiplying warps for their turns. Else all
 * lanes do: stages are pieces of K steps, or tiles are cut short and a ring has no place for what they lack. */
template <bool WHOLE>
__device__ __forceinline__ void wk_moe_several_stream(const wk_experts_args &a, const wk_moe_several_walk &walk,
                                                      uint32_t rings, const wk_moe_several_bars &bars, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t depth = p.depth, stage_bytes = p.stage_bytes, half = stage_bytes / 2, stages = p.stages,
                   tile_bytes = p.seg[0].tile_bytes;
    wk_pipeline_state state = { 0, 1 };
    wk_moe_several_work_units work_units(a, walk);
    const uint64_t once = wk_fetch_once();
    for (;;) {
        const unsigned char *tiles[WK_MOE_SEVERAL_GROUPS][2];
        if (!work_units.next(a, tiles[0])) return;
        const uint32_t groups = work_units.next(a, tiles[1]) ? 2 : 1;
        /* A work unit that begins a chunk waits with its group until the one before has ended: stages of that one must
         * not wait in turn for it to give a stage back. */
        const bool apart = groups == 2 && work_units.work_unit == 1 && depth < stages;
        const wk_pipeline_state begin = state;
        for (uint32_t first = 0, end = apart ? 1 : groups; first < groups; first = end, end = groups) {
            uint32_t at = 0, left = p.run;
            state = begin;
            for (uint32_t stage = 0; stage < stages; stage++) {
#pragma unroll
                for (uint32_t group = 0; group < WK_MOE_SEVERAL_GROUPS; group++) {
                    if (group < first || group >= end) continue;
                    const uint32_t full = bars.full(group * depth + state.i),
                                   to = rings + group * a.ring + state.i * stage_bytes;
                    if (!WHOLE)
                        __syncwarp(); /* one lane copies: another that fell a round of the ring behind would miss a
                                         barrier's parity, and wait for good */
                    wk_stage_wait(bars.empty(group * depth + state.i), state.parity);
                    if (WHOLE) {
                        const uint32_t bytes = min(half, tile_bytes - at);
                        if (wk_elected()) {
                            wk_bar_expect(full, 2 * bytes);
                            wk_fetch(to, tiles[group][0] + at, bytes, full, once);
                            wk_fetch(to + half, tiles[group][1] + at, bytes, full, once);
                        }
                    } else {
                        for (uint32_t i = 0; i < 2; i++)
                            wk_stage_copy8(to + i * half, tiles[group][i], at, p.seg[0].piece_bytes,
                                           p.seg[0].k_step_bytes, tile_bytes, p.k_steps * p.seg[0].k_step_bytes, full,
                                           lane);
                    }
                }
                state.next(depth);
                if (WHOLE) {
                    at += half;
                } else {
                    at += p.seg[0].piece_bytes;
                    if (--left == 0) {
                        left = p.run;
                        at += (WK_K_SLICES - 1) * p.seg[0].k_step_bytes;
                    }
                }
            }
        }
    }
}

/* ---- multiplying --------------------------------------------------------------------------------------- */

/* N units of a stage of both tiles, `half` bytes from each other, times PARTS tiles of eight columns, `apart` halves
 * from each other. */
template <class F, int PARTS, uint32_t N>
__device__ __forceinline__ void wk_moe_several_stage(float y[2][PARTS][2][4], const unsigned char *at, uint32_t half,
                                                     const __half *x, uint32_t apart, uint32_t lane)
{
    const uint32_t t = lane % 4;
    auto unit = [&](auto place, auto any_wide_range, const typename F::scales s[2], const unsigned char *from,
                    const __half *xs) {
        typename F::quants q[2];
        F::load(q[0], from, place, lane);
        F::load(q[1], from + half, place, lane);
#pragma unroll
        for (uint32_t b = 0; b < F::unit / 32; b++) {
            uint32_t x4[PARTS][4];
#pragma unroll
            for (int part = 0; part < PARTS; part++) wk_column_words<F>(x4[part], xs + part * apart, b, t);
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                wk_weights32<F> w;
                if (any_wide_range && wk_wide_range<F>(s[i]))
                    w.template make<true>(q[i], s[i], place, b);
                else
                    w.template make<false>(q[i], s[i], place, b);
#pragma unroll
                for (int part = 0; part < PARTS; part++) w.add(y[i][part], x4[part]);
            }
        }
    };
    typedef std::integral_constant<uint32_t, 0> first;
    typedef std::integral_constant<uint32_t, 1> second;
#pragma unroll
    for (uint32_t v = 0; v < N; v += F::super) {
        typename F::scales s[2];
        F::load(s[0], at + F::offset(v), 0, lane);
        F::load(s[1], at + half + F::offset(v), 0, lane);
        auto super = [&](auto any_wide_range) {
            unit(first(), any_wide_range, s, at + F::offset(v), x + v * F::unit);
            if constexpr (F::super == 2) {
                F::load(s[0], at + F::offset(v + 1), 1, lane);
                F::load(s[1], at + half + F::offset(v + 1), 1, lane);
                unit(second(), any_wide_range, s, at + F::offset(v + 1), x + (v + 1) * F::unit);
            }
        };
        if (wk_wide_range<F>(s[0]) || wk_wide_range<F>(s[1]))
            super(std::true_type());
        else
            super(std::false_type());
    }
}

/* Where a multiplying warp is in its group's ring. */
struct wk_moe_several_ring {
    const unsigned char *at; /* its part of the stage */
    uint32_t full, empty;    /* the stage's barriers */
    wk_pipeline_state state;
    __device__ __forceinline__ void next(uint32_t stage_bytes, uint32_t depth)
    {
        at += stage_bytes;
        full += 8;
        empty += 8;
        if (++state.i < depth) return;
        at -= depth * stage_bytes;
        full -= 8 * depth;
        empty -= 8 * depth;
        state = { 0, state.parity ^ 1u };
    }
};

/* A K slice's sums of a work unit. A stage holds a K step of each K slice, or a piece of one, of UNITS units; own:
 * those with one of this K slice. */
template <class F, int PARTS, uint32_t UNITS>
__device__ __forceinline__ void wk_moe_several_sums(float y[2][PARTS][2][4], const wk_experts_args &a,
                                                    wk_moe_several_ring &ring, const __half *x, uint32_t own,
                                                    uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t apart = 8 * p.x_stride, half = p.stage_bytes / 2;
    auto leave = [&] {
        __syncwarp();
        wk_bar_arrive_warp(ring.empty, lane);
        ring.next(p.stage_bytes, p.depth);
    };
#pragma unroll 1
    for (uint32_t stage = own; stage; stage--) {
        wk_stage_wait(ring.full, ring.state.parity);
        wk_moe_several_stage<F, PARTS, UNITS>(y, ring.at, half, x, apart, lane);
        x += UNITS * F::unit;
        leave();
    }
#pragma unroll 1
    for (uint32_t stage = own; stage < p.stages; stage++) {
        wk_stage_wait(ring.full, ring.state.parity); /* for nothing, but no parity is missed */
        leave();
    }
}

/* The input row of a lane's column. All items of a single row have its input, whatever their order. */
template <int COLUMNS>
__device__ __forceinline__ uint32_t wk_moe_several_row(const wk_experts_args &a, const wk_moe_several_walk &walk,
                                                       uint32_t lane)
{
    const wk_product_args &p = a.p;
    return walk.left && lane % COLUMNS < walk.columns(a)
               ? wk_input_row(p, p.rows > p.x_items
                                     ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + lane % COLUMNS) / p.x_items
                                     : 0)
               : 0;
}
/* Activations of a chunk's columns: a K slice's K steps one after the other, as its warps come to them, behind those of
 * the K slices before. */
__device__ __forceinline__ uint32_t wk_moe_several_x(const wk_product_args &p, uint32_t k_slice)
{
    return (k_slice * (p.k_steps / WK_K_SLICES) + min(k_slice, p.k_steps % WK_K_SLICES)) << p.k_step_shift;
}
/* By the K slice's warps of both groups; row: of the lane's column. */
template <int COLUMNS>
__device__ __forceinline__ void wk_moe_several_inputs(const wk_experts_args &a, unsigned char *shared, uint32_t columns,
                                                      uint32_t row, uint32_t group, uint32_t k_slice, uint32_t lane)
{
    constexpr uint32_t apart = 32 * WK_MOE_SEVERAL_GROUPS / COLUMNS;
    const wk_product_args &p = a.p;
    asm volatile(""
                 : "+r"(lane), "+r"(k_slice), "+r"(group)); /* computed again for each chunk: what is kept between them
                                                            would take registers from the loop over k */
    const uint32_t c = lane % COLUMNS, own = wk_own_k_steps(p, k_slice) << p.k_step_shift;
    auto meet = [&] {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + k_slice), "n"(32 * WK_MOE_SEVERAL_GROUPS) : "memory");
    };
    meet(); /* the chunk before is done with */
    if (c < columns) {
        const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
        const uint32_t x = (uint32_t)__cvta_generic_to_shared(shared + p.x_at) +
                           (c * p.x_stride + wk_moe_several_x(p, k_slice)) * 2,
                       first = (group * 32 + lane) / COLUMNS;
#pragma unroll 4
        for (uint32_t i = first; i < own / 8; i += apart) {
            const uint32_t k = wk_own_k(p, k_slice, i * 8);
            wk_copy16_part(x + i * 16, from + (k < p.k32 ? k : 0), k < p.k32 ? 16 : 0);
        }
    }
    wk_copy_commit();
    wk_copy_wait<0>();
    meet();
}

/* A multiplying warp. */
template <int COLUMNS, class F>
__device__ __forceinline__ void wk_moe_several_multiply(const wk_experts_args &a, wk_moe_several_walk walk,
                                                        unsigned char *shared, const wk_moe_several_bars &bars,
                                                        uint32_t warp, uint32_t lane)
{
    typedef wk_moe_several_shape<COLUMNS> shape;
    const wk_product_args &p = a.p;
    const uint32_t group = warp / WK_K_SLICES, k_slice = warp % WK_K_SLICES, units = F::super == 2 ? 2 : p.stage_units,
                   own = wk_own_k_steps(p, k_slice) * p.run;
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) +
                            min(lane / 4, a.capacity - 1) * p.x_stride + wk_moe_several_x(p, k_slice);
    wk_moe_several_ring ring = { shared + group * a.ring + (uint32_t)F::offset(units) * k_slice,
                                 bars.full(group * p.depth),
                                 bars.empty(group * p.depth),
                                 { 0, 0 } };
    uint32_t turn = 0, sum = 1,
             row = a.known ? wk_moe_several_row<COLUMNS>(a, walk, lane)
                           : 0; /* turn: group that has the next work unit; sum: parity of its place; row: asked for
                                   ahead of the wait if it may be */
    wk_depend();
    wk_release(); /* not before: what the launch before last has made is then known to the next one */
    if (!a.known) row = wk_moe_several_row<COLUMNS>(a, walk, lane);
    for (; walk.left; walk.next(a), row = wk_moe_several_row<COLUMNS>(a, walk, lane)) {
        wk_moe_several_inputs<COLUMNS>(a, shared, walk.columns(a), row, group, k_slice, lane);
        const uint32_t here = walk.work_units(a), parts = shape::parts > 1 ? (walk.columns(a) + 7) / 8 : 1;
#pragma unroll 1
        for (uint32_t i = turn == group ? 0 : 1; i < here; i += WK_MOE_SEVERAL_GROUPS) {
            float y[2][shape::parts][2][4] = {};
            auto sums = [&](auto with) {
                float v[2][with][2][4] = {};
                if constexpr (F::super == 2) {
                    wk_moe_several_sums<F, with, 2>(v, a, ring, x, own, lane);
                } else {
                    if (4 * F::slot <= WK_STAGE_BYTES && units == 4)
                        wk_moe_several_sums<F, with, 4>(v, a, ring, x, own, lane);
                    else if (units == 2)
                        wk_moe_several_sums<F, with, 2>(v, a, ring, x, own, lane);
                    else
                        wk_moe_several_sums<F, with, 1>(v, a, ring, x, own, lane);
                }
#pragma unroll
                for (int j = 0; j < 8 * with; j++)
                    y[j / (4 * with)][j / 4 % with][0][j % 4] =
                        __fadd_rn(v[j / (4 * with)][j / 4 % with][0][j % 4], v[j / (4 * with)][j / 4 % with][1][j % 4]);
            };
            if (shape::parts == 1 || parts == 1)
                sums(std::integral_constant<int, 1>());
            else
                sums(std::integral_constant<int, (int)shape::parts>());
            wk_stage_wait(bars.finished(group), sum);
            sum ^= 1u;
            uint32_t own_lane =
                lane; /* computed again for each work unit: what is kept would take registers from the loop over k */
            asm volatile("" : "+r"(own_lane));
            const uint32_t in_cell = wk_experts_cell(own_lane / 4, own_lane % 4 * 2);
            unsigned char *const cells = shared + p.red_at + group * shape::place + k_slice * WK_MOE_SEVERAL_CELL;
#pragma unroll
            for (uint32_t tile = 0; tile < 2; tile++)
#pragma unroll
                for (uint32_t part = 0; part < shape::parts; part++)
#pragma unroll
                    for (uint32_t j = 0; j < 4; j++) /* columns 2t, 2t + 1 of row g, and of row g + 8 */
                        if (part < parts)
                            *reinterpret_cast<float *>(
                                cells + tile * shape::tile + part * WK_K_SLICES * WK_MOE_SEVERAL_CELL +
                                (j / 2 ? in_cell ^ 32u : in_cell) + j % 2 * 64) = y[tile][part][0][j];
            __syncwarp();
            wk_bar_arrive_warp(bars.summed(group), lane);
        }
        turn = (turn + here) % WK_MOE_SEVERAL_GROUPS;
    }
}

/* ---- finishing ----------------------------------------------------------------------------------------- */

/* What a finishing warp is at: four rows of a column of a tile a lane; without glu there is a second tile, which the
 * matrix may lack. */
struct wk_moe_several_at {
    wk_four_at o;
    wk_four_more more, second;
    __device__ __forceinline__ wk_four_at other(const wk_product_args &p) const
    {
        return { o.seg, o.tile + 1, o.row, o.on && o.tile + 1 < p.seg[o.seg].n_tiles };
    }
    __device__ __forceinline__ void ahead(const wk_product_args &p, uint32_t work_unit, uint32_t expert)
    {
        o.seg = wk_item_segment(p, work_unit, &o.tile);
        if (!p.glu) o.tile *= 2;
        more = wk_four_ahead(p, o, expert);
        if (!p.glu) second = wk_four_ahead(p, other(p), expert);
    }
};

/* A finishing warp: the parts of all work units go round among them. All see each work unit's sums come and let its
 * place go, so that none misses a barrier's parity. What a part reads besides sums is asked for one ahead. */
template <int COLUMNS>
__device__ __forceinline__ void wk_moe_several_finish(const wk_experts_args &a, wk_moe_several_walk walk,
                                                      const unsigned char *shared, const wk_moe_several_bars &bars,
                                                      uint32_t warp, uint32_t lane)
{
    typedef wk_moe_several_shape<COLUMNS> shape;
    const wk_product_args &p = a.p;
    const unsigned char *const cells = shared + p.red_at + wk_experts_cell(lane % 4 * 4, lane / 4);
    wk_moe_several_at next = {};
    wk_pipeline_state sum = { 0, 0 };
    uint32_t own = warp; /* number of the warp's next part among the chunk's */
    for (; walk.left; walk.next(a)) {
        const uint32_t columns = walk.columns(a), many = shape::parts > 1 && columns > 8 ? 1 : 0,
                       work_units = walk.work_units(a);
        uint32_t rows[shape::parts];
#pragma unroll
        for (uint32_t part = 0; part < shape::parts; part++)
            rows[part] = part * 8 + lane / 4 < columns
                             ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + part * 8 + lane / 4)
                             : UINT32_MAX;
        auto ahead = [&] {
            if (own >> many >= work_units) return;
            next.o.row = shape::parts > 1 && (own & many) ? rows[shape::parts - 1] : rows[0];
            next.o.on = next.o.row != UINT32_MAX;
            if (!next.o.on) next.o.row = 0;
            next.ahead(p, walk.tile + (own >> many), walk.expert);
        };
        ahead();
#pragma unroll 1
        for (uint32_t work_unit = 0; work_unit < work_units; work_unit++) {
            const uint32_t finished = bars.finished(sum.i);
            const unsigned char *const sums =
                cells + sum.i * shape::place + (own & many) * (WK_K_SLICES * WK_MOE_SEVERAL_CELL);
            wk_stage_wait(bars.summed(sum.i), sum.parity);
            sum.next(WK_MOE_SEVERAL_PLACES);
            if (own >> many != work_unit) {
                wk_bar_arrive_warp(finished, lane);
                continue;
            }
            wk_moe_several_at now = next;
            float v[4], up[4];
            wk_experts_add(v, sums);
            wk_experts_add(up, sums + shape::tile);
            __syncwarp();
            wk_bar_arrive_warp(finished, lane);
            own += WK_MOE_SEVERAL_FINISH;
            ahead();
            wk_four_output(p, now.o, now.more, v, up);
            if (!p.glu) wk_four_output(p, now.other(p), now.second, up, v);
        }
        own -= work_units << many;
    }
}

template <int COLUMNS, class F>
__global__ void __launch_bounds__(WK_MOE_SEVERAL_THREADS, 1)
    wk_product_moe_several(const __grid_constant__ wk_experts_args a)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0),
                   base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_moe_several_bars bars = { base + p.bars_at };
    wk_moe_several_walk *const start = reinterpret_cast<wk_moe_several_walk *>(shared + a.start_at);
    if (warp == WK_MOE_SEVERAL_MULTIPLY) bars.init(lane, a.whole);
    if (a.tail) wk_moe_several_zeros(a, shared);
    if (!a.known) {
        if (warp >= WK_MOE_SEVERAL_MULTIPLY) wk_touch_args(p);
        wk_depend();
    }
    if (warp == 0) wk_moe_several_start(a, start, lane);
    __syncthreads();
    const wk_moe_several_walk walk = *start;
    if (warp == WK_MOE_SEVERAL_MULTIPLY + WK_MOE_SEVERAL_FINISH) {
        if (!a.whole)
            wk_moe_several_stream<false>(a, walk, base, bars, lane);
        else
            wk_moe_several_stream<true>(a, walk, base, bars, lane);
        __syncwarp();
        wk_depend();
        return;
    }
    if (warp >= WK_MOE_SEVERAL_MULTIPLY) {
        wk_depend();
        wk_release();
    }
    if (warp < WK_MOE_SEVERAL_MULTIPLY)
        wk_moe_several_multiply<COLUMNS, F>(a, walk, shared, bars, warp, lane);
    else
        wk_moe_several_finish<COLUMNS>(a, walk, shared, bars, warp - WK_MOE_SEVERAL_MULTIPLY, lane);
}

#endif
