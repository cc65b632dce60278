/* worker/cuda/part/experts.cuh: products of a mixture of experts, generated rows: work units, their order, and the
 * pipeline of a block. */
#ifndef WORKER_CUDA_PART_EXPERTS_CUH
#define WORKER_CUDA_PART_EXPERTS_CUH

#include <stdint.h>
#include <type_traits>

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

/* By columns, 1, 8 or 16. groups: of eight multiplying warps; blocks: a multiprocessor; parts: of eight columns;
 * multiply, finish: warps that do. A cell: a K slice's sums of a tile, 16 rows of a part's columns; a place: all of a
 * tile. */
template <int COLUMNS> struct wk_experts_shape {
    static constexpr uint32_t groups = COLUMNS == 1 ? 1 : 2, blocks = 2 / groups, parts = COLUMNS > 8 ? COLUMNS / 8 : 1;
    static constexpr uint32_t multiply = groups * WK_K_SLICES, finish = groups, threads = 32 * (multiply + finish + 1);
    static constexpr uint32_t cell = COLUMNS == 1 ? 64 : 512, part = WK_K_SLICES * cell, place = parts * part,
                              places = parts == 1 ? 4 : 2;
};
enum {
    WK_EXPERTS_STAGES = 2,  /* fewest stages of a ring, if one holds more than a K step of each K slice */
    WK_EXPERTS_ROUNDS = 18, /* most rounds in the rings: a round: a K step of each K slice, or a piece of one */
    WK_EXPERTS_PLACES = 4,  /* tiles whose sums may wait to be finished */
    WK_EXPERTS_BARS = 2 * (WK_EXPERTS_ROUNDS + WK_EXPERTS_PLACES)
};

/* What the kernels of experts are given. */
struct wk_experts_args {
    wk_product_args p; /* items: work units of a chunk: tiles of a segment, one or WK_MOE_SEVERAL_TILES; glu: pairs */
    const uint32_t *groups; /* the items by expert (worker/quant_cuda.h), the caller's */
    const uint32_t *chosen; /* moe_one: [top_k] experts of the row's items, the caller's */
    uint32_t experts;       /* of the layer */
    uint32_t capacity;      /* most columns of a chunk */
    uint32_t rounds;        /* moe_decode, moe_one: K steps of a K slice in a stage */
    uint32_t known;         /* 1: groups may be read before the wait */
    uint32_t whole;         /* 1: a stage is a run of a tile's bytes */
    uint32_t tail;     /* bytes that such a tile's last stage lacks of whole K steps, which have places in the ring */
    uint32_t start_at; /* shared memory: offset of struct wk_experts_walk of each block, or moe_several's */
    uint32_t ring;     /* moe_several: bytes from a group's ring to the next one's */
};
/* A block's way through its work units: those from `tile` on of a chunk of an expert's items, then the next chunk's. */
struct wk_experts_walk {
    uint32_t left, used, expert, at, end, tile; /* work units; number among the used experts; places of the chunk's
                                                   first item and behind the expert's last; first work unit here */
    __device__ __forceinline__ uint32_t work_units(const wk_experts_args &a) const
    {
        return min(left, a.p.items - tile);
    }
    __device__ __forceinline__ uint32_t columns(const wk_experts_args &a) const { return min(a.capacity, end - at); }
    __device__ __forceinline__ void next(const wk_experts_args &a)
    {
        left -= work_units(a);
        tile = 0;
        at = min(at + a.capacity, end);
        if (at < end || !left) return;
        used++;
        expert = __ldcg(a.groups + used);
        end = __ldcg(a.groups + a.experts + used + 1);
    }
};
/* Units [from, from + left) of `all` are the block's. */
__device__ __forceinline__ uint32_t wk_experts_share(uint32_t all, uint32_t *left)
{
    const uint32_t each = all / gridDim.x, rest = all % gridDim.x;
    *left = each + (blockIdx.x < rest ? 1 : 0);
    return blockIdx.x * each + min(blockIdx.x, rest);
}
/* A cell of sums, 16 rows x 8 columns: byte of a row's. Four rows are read at once, and no banks
 * collide when they are. */
__device__ __forceinline__ uint32_t wk_experts_cell(uint32_t row, uint32_t column)
{
    return (column * 16 + (row / 4 ^ column / 2) * 4 + row % 4) * 4;
}
/* Four rows of a column over all K slices. */
__device__ __forceinline__ void wk_experts_add(float sum[4], const unsigned char *cell)
{
    float v[4][WK_K_SLICES];
#pragma unroll
    for (uint32_t k_slice = 0; k_slice < WK_K_SLICES; k_slice++) {
        const float4 s = *reinterpret_cast<const float4 *>(cell + k_slice * wk_experts_shape<8>::cell);
        v[0][k_slice] = s.x, v[1][k_slice] = s.y, v[2][k_slice] = s.z, v[3][k_slice] = s.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = wk_k_slices_sum(v[i]);
}
/* Zeros where the rings have what tiles lack of whole K steps: always the same places, which no copy writes. By all
 * threads. */
__device__ __forceinline__ void wk_experts_zeros(const wk_experts_args &a, unsigned char *shared, uint32_t rings)
{
    const wk_product_args &p = a.p;
    const uint32_t at = p.seg[0].tile_bytes - (p.stages - 1) * p.stage_bytes;
    for (uint32_t stage = p.stages - 1; stage < rings * p.depth; stage += p.stages)
        for (uint32_t i = threadIdx.x * 16; i < a.tail; i += blockDim.x * 16)
            *reinterpret_cast<uint4 *>(shared + stage * p.stage_bytes + at + i) = make_uint4(0, 0, 0, 0);
}

/* full: of a round; empty: of a stage. */
struct wk_experts_bars : wk_pipeline_bars<WK_EXPERTS_ROUNDS, WK_EXPERTS_PLACES> {
    __device__ __forceinline__ void init(uint32_t lane, uint32_t parts) const /* by a warp */
    {
        static_assert(WK_EXPERTS_ROUNDS + WK_EXPERTS_PLACES <= 32, "a lane a pair of barriers");
        if (lane < WK_EXPERTS_ROUNDS) {
            wk_bar_init(full(lane), WK_BAR_COPIES);
            wk_bar_init(empty(lane), WK_K_SLICES * WK_BAR_WARP);
        } else if (lane < WK_EXPERTS_ROUNDS + WK_EXPERTS_PLACES) {
            wk_bar_init(summed(lane - WK_EXPERTS_ROUNDS), WK_K_SLICES * WK_BAR_WARP);
            wk_bar_init(finished(lane - WK_EXPERTS_ROUNDS), parts * WK_BAR_WARP);
        }
        wk_bar_init_done();
    }
};
/* Stages in the order in which they are asked for: a tile's in the ring of the group that has it. */
template <uint32_t GROUPS> struct wk_experts_order {
    uint32_t group, stage;
    wk_pipeline_state state, first; /* in the group's ring; at the beginning of its tile: groups have a tile each by
                            turns, so theirs are the same */
    __device__ __forceinline__ explicit wk_experts_order(uint32_t parity)
        : group(0), stage(0), state{ 0, parity }, first{ 0, parity }
    {
    }
    __device__ __forceinline__ void next(uint32_t stages, uint32_t depth)
    {
        state.next(depth);
        if (GROUPS == 1 || ++stage < stages) return;
        stage = 0;
        if (group == 0)
            state = first;
        else
            first = state;
        group ^= 1u;
    }
    __device__ __forceinline__ uint32_t at(uint32_t depth) const
    {
        return GROUPS == 1 ? state.i : group * depth + state.i;
    }
};
/* The streaming warp, where a stage is pieces of K steps, or tiles are cut short and a ring has no place for what they
 * lack. */
template <uint32_t GROUPS>
__device__ __forceinline__ void wk_experts_stream(const wk_experts_args &a, wk_experts_walk walk, uint32_t ring,
                                                  const wk_experts_bars &bars, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_experts_order<GROUPS> now(1), old(0);
    uint32_t more = p.stages_in_flight;
    for (; walk.left; walk.next(a))
        for (uint32_t work_unit = walk.tile, last = work_unit + walk.work_units(a); work_unit < last; work_unit++)
            for (uint32_t j = 0; j < in_item; j++) {
                uint32_t tile, s = wk_item_segment(p, work_unit, &tile);
                if (p.glu) s = j;
                const wk_segment_args &seg = p.seg[s];
                const unsigned char *const from =
                    seg.tiles + ((uint64_t)walk.expert * seg.n_tiles + tile) * seg.tile_stride;
                uint32_t at = 0, left = p.run;
                for (uint32_t stage = 0; stage < p.stages; stage++) {
                    __syncwarp(); /* one lane copies: another that fell a round of the ring behind would miss a
                                     barrier's parity, and wait for good */
                    if (more) {
                        more--;
                    } else {
                        wk_stage_wait(bars.full((old.at(p.depth) + 1) * a.rounds - 1), old.state.parity);
                        old.next(p.stages, p.depth);
                    }
                    const uint32_t stage_at = now.at(p.depth);
                    wk_stage_wait(bars.empty(stage_at), now.state.parity);
                    for (uint32_t r = 0; r < a.rounds; r++) {
                        wk_stage_copy8(ring + stage_at * p.stage_bytes + r * WK_K_SLICES * seg.piece_bytes, from, at,
                                       seg.piece_bytes, seg.k_step_bytes, seg.tile_bytes, p.k_steps * seg.k_step_bytes,
                                       bars.full(stage_at * a.rounds + r), lane);
                        at += seg.piece_bytes;
                        if (--left == 0) {
                            left = p.run;
                            at += (WK_K_SLICES - 1) * seg.k_step_bytes;
                        }
                    }
                    now.next(p.stages, p.depth);
                }
            }
}
/* N units of a stage times PARTS tiles of eight columns, `apart` halves from each other. */
template <class F, int PARTS, uint32_t N>
__device__ __forceinline__ void wk_experts_units(float y[PARTS][2][4], const unsigned char *at, const __half *x,
                                                 uint32_t apart, uint32_t lane)
{
    const uint32_t t = lane % 4;
    auto unit = [&](auto place, auto wide_range, const typename F::scales &s, const unsigned char *from,
                    const __half *xs) {
        typename F::quants q;
        F::load(q, from, place, lane);
#pragma unroll
        for (uint32_t b = 0; b < F::unit / 32; b++) {
            wk_weights32<F> w;
            w.template make<wide_range>(q, s, place, b);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                uint32_t x4[4];
                wk_column_words<F>(x4, xs + part * apart, b, t);
                w.add(y[part], x4);
            }
        }
    };
    typedef std::integral_constant<uint32_t, 0> first;
    typedef std::integral_constant<uint32_t, 1> second;
#pragma unroll
    for (uint32_t v = 0; v < N; v += F::super) {
        typename F::scales s;
        F::load(s, at + F::offset(v), 0, lane);
        auto super = [&](auto wide_range) {
            unit(first(), wide_range, s, at + F::offset(v), x + v * F::unit);
            if constexpr (F::super == 2) {
                F::load(s, at + F::offset(v + 1), 1, lane);
                unit(second(), wide_range, s, at + F::offset(v + 1), x + (v + 1) * F::unit);
            }
        };
        if (wk_wide_range<F>(s))
            super(std::true_type());
        else
            super(std::false_type());
    }
}
/* Where a multiplying warp is in its group's ring. */
struct wk_experts_ring {
    const unsigned char *own; /* its part of the first stage */
    uint32_t first;           /* number of that stage */
    wk_pipeline_state state;
};
/* A K slice's sums of a tile. Stages of the ring hold `rounds` K steps of each K slice, or a piece of one, of UNITS
 * units. */
template <class F, int PARTS, uint32_t UNITS>
__device__ __forceinline__ void wk_experts_tile(float y[PARTS][2][4], const wk_experts_args &a, wk_experts_ring &ring,
                                                const wk_experts_bars &bars, const __half *x, uint32_t own,
                                                uint32_t lane)
{
    constexpr uint32_t chunk = (uint32_t)F::offset(UNITS);
    const wk_product_args &p = a.p;
    const uint32_t rounds = a.rounds, run = p.run, k_step_values = 1u << p.k_step_shift,
                   advance = run > 1 ? UNITS * F::unit : WK_K_SLICES * k_step_values, apart = 8 * p.x_stride;
    uint32_t left = own, piece = 0;
#pragma unroll 1
    for (uint32_t stage = p.stages; stage; stage--) {
        const uint32_t here = min(rounds, left);
        const unsigned char *from = ring.own + ring.state.i * p.stage_bytes;
        uint32_t full = bars.full((ring.first + ring.state.i) * rounds);
#pragma unroll 1
        for (uint32_t r = here; r; r--) {
            wk_stage_wait(full, ring.state.parity);
            full += 8;
            wk_experts_units<F, PARTS, UNITS>(y, from, x, apart, lane);
            from += chunk * WK_K_SLICES;
            x += advance;
        }
        for (uint32_t r = here; r < rounds; r++, full += 8)
            wk_stage_wait(full, ring.state.parity); /* for nothing, but no parity is missed */
        __syncwarp();
        wk_bar_arrive_warp(bars.empty(ring.first + ring.state.i), lane);
        ring.state.next(p.depth);
        left -= here;
        if (run > 1) { /* a K step is cut: on to its next piece, or behind the other K slices' K steps */
            if (++piece < run) {
                left += here;
            } else {
                x += (WK_K_SLICES - 1) * k_step_values;
                piece = 0;
            }
        }
    }
}

#endif
