/* worker/cuda/product_middle.cuh: products of 5 to 16 rows on sm_90a.
 *
 * A block takes items of 8 tiles (with glu four pairs), a tile a warp, and multiplies by mma.sync: with so few columns wgmma, whose four warps meet at every instruction, costs more than the
 * weights. Each of the eight warps streams its own tile through a ring of its own: as soon as it has read a stage it asks for the one that comes into its place, so no warp asks for all (a copy
 * costs some hundred clocks beside warps that multiply). Four warps bring the activations, once: 16 bytes a lane in the order of the fragments, all of the block's share of k; then they finish
 * outputs while the others are at the next item.
 *
 * Order of arithmetic and clusters: as product_wide.cuh. */
#ifndef WORKER_CUDA_PRODUCT_MIDDLE_CUH
#define WORKER_CUDA_PRODUCT_MIDDLE_CUH

#include <worker/cuda/product_few.cuh>
#include <worker/cuda/product_wide.cuh>

enum {
    WK_MIDDLE_DEPTH = 12,  /* most stages of a ring */
    WK_MIDDLE_STAGES = 96, /* most stages of a block's share of an item */
    WK_MIDDLE_BARS = WK_MIDDLE_DEPTH * WK_WIDE_TILES + WK_MIDDLE_STAGES + 4
};

template <int NT> struct wk_middle_shape {
    static constexpr uint32_t stage_k = 256; /* most values of k of a stage */
    static constexpr uint32_t teams = NT == 1 ? 4 : 2, warps = WK_WIDE_STREAMS / teams; /* that bring activations, a stage each by turns; warps of a team */
    static constexpr uint32_t column_groups = NT / warps, runs = stage_k / 32;          /* groups of 8 columns of a warp; runs of 32 values of each */
};

/* Blocks of a kernel of so many types that a multiprocessor has room for, and what that leaves of registers. */
__host__ __device__ constexpr uint32_t wk_middle_together(uint32_t types) { return types == 1 ? 2 : 1; }
__host__ __device__ constexpr uint32_t wk_middle_registers(uint32_t together, bool multiplies) { return together == 2 ? (multiplies ? 88 : 64) : multiplies ? 192 : 112; }

struct wk_middle_memory : wk_wide_places {
    using wk_wide_places::wk_wide_places;
    __device__ __forceinline__ uint32_t full(uint32_t warp, uint32_t stage) const { return bars + (warp * WK_MIDDLE_DEPTH + stage) * 8; }
    __device__ __forceinline__ uint32_t x_full(uint32_t stage) const { return bars + (WK_MIDDLE_DEPTH * WK_WIDE_TILES + stage) * 8; }
    __device__ __forceinline__ uint32_t ready(uint32_t buffer) const { return x_full(WK_MIDDLE_STAGES + buffer); }
    __device__ __forceinline__ uint32_t freed(uint32_t buffer) const { return x_full(WK_MIDDLE_STAGES + 2 + buffer); }
};
__device__ __forceinline__ uint32_t wk_middle_rounds(const wk_wide_args &a, uint32_t worker) { return worker < a.p.items ? (a.p.items - worker + a.workers - 1) / a.workers : 0; }

/* ---- activations ---------------------------------------------------------------------------------------------------------------- */

/* A warp's columns of the activations, a stage in registers: lane (c, t) = (lane / 4, lane % 4) has of column c of eight and each run of 32 values those that the fragments have in lanes t.
 * A column that is not there is the last one again: nobody reads what becomes of it. */
template <int NT> struct wk_middle_inputs {
    typedef wk_middle_shape<NT> shape;
    const __half *row[shape::column_groups]; /* at the lane's first value */
    uint4 v[shape::column_groups][shape::runs];

    __device__ __forceinline__ void locate(const wk_wide_args &a, uint32_t group, uint32_t warp, uint32_t lane)
    {
#pragma unroll
        for (uint32_t g = 0; g < shape::column_groups; g++) {
            const uint32_t c = min((warp + g * shape::warps) * 8 + lane / 4, a.p.rows - 1);
            row[g] = static_cast<const __half *>(a.p.in.x) + (uint64_t)(a.p.in.row_index ? __ldg(a.p.in.row_index + c) : c) * a.p.k32 + lane % 4 * (group / 4);
        }
    }
    /* Stage `at` of k; zeros past the end. */
    __device__ __forceinline__ void load(const wk_wide_args &a, uint32_t at, uint32_t group)
    {
        const uint32_t k0 = at * a.stage_k;
        if (k0 + shape::stage_k <= a.p.k32 && a.stage_k == shape::stage_k) {
#pragma unroll
            for (uint32_t g = 0; g < shape::column_groups; g++)
#pragma unroll
                for (uint32_t i = 0; i < shape::runs; i++) v[g][i] = wk_wide_read(row[g] + k0 + 32 * i, group);
        } else {
#pragma unroll
            for (uint32_t g = 0; g < shape::column_groups; g++)
#pragma unroll
                for (uint32_t i = 0; i < shape::runs; i++) v[g][i] = i * 32 < a.stage_k && k0 + i * 32 < a.p.k32 ? wk_wide_read(row[g] + k0 + 32 * i, group) : make_uint4(0, 0, 0, 0);
        }
    }
    /* As lanes have them. */
    __device__ __forceinline__ void store(const wk_wide_args &a, uint32_t x, uint32_t warp, uint32_t lane)
    {
#pragma unroll
        for (uint32_t i = 0; i < shape::runs; i++) {
            if (i * 32 >= a.stage_k) break;
#pragma unroll
            for (uint32_t g = 0; g < shape::column_groups; g++)
                asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(x + ((i * NT + warp + g * shape::warps) * 32 + lane) * 16), "r"(v[g][i].x), "r"(v[g][i].y), "r"(v[g][i].z), "r"(v[g][i].w)
                             : "memory");
        }
    }
};

/* All of the block's, once. */
template <int NT, class... F> __device__ __forceinline__ void wk_middle_bring(const wk_wide_args &a, const wk_middle_memory &m, uint32_t rank, uint32_t worker, uint32_t warp, uint32_t lane)
{
    typedef wk_middle_shape<NT> shape;
    const uint32_t group = wk_wide_group<F...>(a.p.seg[0].type), stages = worker < a.p.items ? wk_wide_stages(a, rank) : 0, team = warp / shape::warps, in_team = warp % shape::warps;
    const uint16_t *const order = reinterpret_cast<const uint16_t *>(m.at + a.order_at);
    wk_middle_inputs<NT> x;
    wk_few_touch(a.p);
    wk_depend();
    x.locate(a, group, in_team, lane);
#pragma unroll 1
    for (uint32_t i = team; i < stages; i += shape::teams) {
        x.load(a, order[i], group);
        x.store(a, m.x + i * a.x_bytes, in_team, lane);
        __syncwarp();
        if (lane == 0) wk_bar_arrive(m.x_full(i));
    }
}

/* ---- multiplication ------------------------------------------------------------------------------------------------------------- */

/* A warp's tile, stage after stage, item after item. */
struct wk_middle_tiles {
    const unsigned char *from;
    uint32_t item, next, stages; /* of what is asked for next: item, stage; stages of an item */
    uint32_t tile_bytes, step_bytes, stage_bytes, real;
    __device__ __forceinline__ void locate(const wk_wide_args &a, uint32_t i, uint32_t warp)
    {
        item = i;
        next = 0;
        if (i >= a.p.items) return;
        const wk_wide_tile t = wk_wide_tile_of(a.p, i, warp);
        const wk_segment_args &s = a.p.seg[t.seg];
        from = s.tiles + t.tile * s.tile_bytes;
        real = t.real;
        tile_bytes = (uint32_t)s.tile_bytes;
        step_bytes = s.step_bytes;
        stage_bytes = s.stage_bytes;
    }
    /* Asks for the next stage, to a place that all lanes have read; what lies past the end of k becomes zeros. */
    __device__ __forceinline__ void ask(const wk_wide_args &a, const unsigned char *memory, uint32_t to, uint32_t bar, uint32_t warp, uint32_t lane)
    {
        if (item >= a.p.items) return;
        const uint32_t k = reinterpret_cast<const uint16_t *>(memory + a.order_at)[next], in = (k & (a.p.run - 1)) * stage_bytes, first = (k >> a.run_shift) * step_bytes + in;
        const uint32_t whole = min(stage_bytes, step_bytes - in), bytes = first < tile_bytes ? min(whole, tile_bytes - first) : 0;
#if WK_HAS_WGMMA
        if (bytes < whole) {
            for (uint32_t j = bytes + lane * 16; j < whole; j += 512) asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + j), "r"(0) : "memory");
            wk_publish();
            __syncwarp();
        }
        if (lane == 0) {
            wk_wide_expect(bar, real ? bytes : 0);
            if (real && bytes)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from + first), "r"(bytes), "r"(bar) : "memory");
        }
#endif
        if (++next == stages) locate(a, item + a.workers, warp);
    }
};

/* A unit at its place in the super-unit; x: the lane's of its first run. */
template <class T, int NT, uint32_t PLACE, bool FAR>
__device__ __forceinline__ void wk_middle_unit(float (&c)[2][NT][4], const typename T::scales &s, const typename T::quants &q, const uint4 *x)
{
#pragma unroll
    for (uint32_t b = 0; b < T::unit / 32; b++) {
        uint32_t w[1][2][4];
        uint4 v[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) v[n] = x[(b * NT + n) * 32];
        wk_halves<T, FAR>(q, s, PLACE, b, w);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            wk_mma(c[0][n], w[0][0], v[n].x, v[n].y);
            wk_mma(c[1][n], w[0][1], v[n].z, v[n].w);
        }
    }
}
template <class T, int NT, bool FAR> __device__ __forceinline__ void wk_middle_super(float (&c)[2][NT][4], typename T::scales &s, const unsigned char *w, const uint4 *x, uint32_t lane)
{
    typename T::quants q;
    T::load(q, w, 0, lane);
    wk_middle_unit<T, NT, 0, FAR>(c, s, q, x);
    if constexpr (T::super == 2) {
        T::load(s, w + T::offset(1), 1, lane);
        T::load(q, w + T::offset(1), 1, lane);
        wk_middle_unit<T, NT, 1, FAR>(c, s, q, x + T::unit / 32 * NT * 32);
    }
}
template <class T, int NT, uint32_t N> __device__ __forceinline__ void wk_middle_units(float (&c)[2][NT][4], const unsigned char *w, const uint4 *x, uint32_t lane)
{
#pragma unroll
    for (uint32_t u = 0; u < N; u += T::super) {
        typename T::scales s;
        T::load(s, w + T::offset(u), 0, lane);
        if (wk_far<T>(s)) wk_middle_super<T, NT, true>(c, s, w + T::offset(u), x + u * (T::unit / 32) * NT * 32, lane);
        else wk_middle_super<T, NT, false>(c, s, w + T::offset(u), x + u * (T::unit / 32) * NT * 32, lane);
    }
}

/* The sum of the block's slots of the warp's tile. */
template <class T, int NT>
__device__ __forceinline__ void wk_middle_sums(float (&sum)[NT][4], const wk_wide_args &a, const wk_middle_memory &m, wk_middle_tiles &tiles, wk_turn &ring, uint32_t rank, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t leaves = WK_SLOTS / a.blocks;
    unsigned char *const two = m.at + (m.kept - m.base) + warp * WK_WIDE_CELL, *const four = two + NT * WK_WIDE_TILES * WK_WIDE_CELL; /* sums of so many slots wait */
    uint32_t at = 0;
#pragma unroll 1
    for (uint32_t leaf = 0; leaf < leaves; leaf++) {
        const uint32_t slot = wk_wide_slot(rank * leaves + leaf);
        float c[2][NT][4] = {};
#pragma unroll 1
        for (uint32_t n = slot < p.steps ? (p.steps - slot + WK_SLOTS - 1) / WK_SLOTS * p.run : 0; n; n--, at++) {
            wk_stage_wait(m.full(warp, ring.i), ring.parity);
            wk_stage_wait(m.x_full(at), 0);
            const unsigned char *w = m.at + (m.w - m.base) + (ring.i * WK_WIDE_TILES + warp) * p.slot;
            const uint4 *x = reinterpret_cast<const uint4 *>(m.at + at * a.x_bytes) + lane;
            if constexpr (T::super == 2) {
                wk_middle_units<T, NT, 2>(c, w, x, lane);
            } else {
                uint32_t units = p.stage_units;
#pragma unroll 1
                for (; units >= 2; units -= 2, w += T::offset(2), x += 2 * (T::unit / 32) * NT * 32) wk_middle_units<T, NT, 2>(c, w, x, lane);
                if (units) wk_middle_units<T, NT, 1>(c, w, x, lane);
            }
            __syncwarp();
            tiles.ask(a, m.at, m.w + (ring.i * WK_WIDE_TILES + warp) * p.slot, m.full(warp, ring.i), warp, lane);
            ring.next(p.depth);
        }
        wk_wide_slot_done<NT>(sum, c, leaf, leaves, two, four);
    }
}

/* ---- sums to outputs ------------------------------------------------------------------------------------------------------------- */

/* A finishing warp. */
__device__ __forceinline__ void wk_middle_finish(const wk_wide_args &a, const wk_middle_memory &m, uint32_t rank, uint32_t worker, uint32_t warp, uint32_t lane)
{
    const uint32_t rounds = wk_middle_rounds(a, worker);
#pragma unroll 1
    for (uint32_t r = 0; r < rounds; r++) {
        const uint32_t buffer = r % a.buffers;
        for (uint32_t i = warp; i < min(a.owned, (uint32_t)WK_WIDE_TILES); i += WK_WIDE_STREAMS)
            wk_wide_outputs(a, m.at + (m.sums - m.base) + buffer * a.buffer, rank, worker + r * a.workers, m.ready(buffer), r / a.buffers & 1u, i, lane);
        __syncwarp();
        if (r + a.buffers < rounds && lane < a.blocks) wk_wide_arrive_at(m.freed(buffer), lane);
    }
}

template <int NT, class... F> __device__ __forceinline__ void wk_middle_consume(const wk_wide_args &a, const wk_middle_memory &m, uint32_t rank, uint32_t worker, uint32_t warp, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t each = p.glu ? 2 : 1, tiles = WK_WIDE_TILES / each, in_cell = wk_wide_in_cell(lane / 4, lane % 4), rounds = wk_middle_rounds(a, worker);
    const uint32_t cells = tiles * NT > rank * a.owned ? min(a.owned, tiles * NT - rank * a.owned) : 0; /* that this block finishes */
    wk_turn ring = { 0, 0 };
    wk_middle_tiles own;
    own.stages = wk_wide_stages(a, rank);
    own.locate(a, own.stages ? worker : p.items, warp);
#pragma unroll 1
    for (uint32_t i = 0; i < p.depth; i++) own.ask(a, m.at, m.w + (i * WK_WIDE_TILES + warp) * p.slot, m.full(warp, i), warp, lane);
    wk_depend();
    if (a.blocks > 1) wk_wide_cluster_wait();
#pragma unroll 1
    for (uint32_t r = 0; r < rounds; r++) {
        const uint32_t buffer = r % a.buffers;
        const wk_wide_tile at = wk_wide_tile_of(p, worker + r * a.workers, warp);
        float c[NT][4];
        wk_for_type<F...>(sizeof...(F) > 1 ? p.seg[at.seg].type : 0, [&](auto format) { wk_middle_sums<decltype(format), NT>(c, a, m, own, ring, rank, warp, lane); });
        if (r >= a.buffers) wk_stage_wait(m.freed(buffer), (r / a.buffers - 1) & 1u); /* all have read what was there */
        if (a.blocks > 1 && threadIdx.x == 0) wk_wide_expect(m.ready(buffer), cells * each * a.blocks * WK_WIDE_CELL);
        /* Of column tile n: cell n tiles + warp % tiles of all. */
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t i = n * tiles + warp % tiles, to = i / a.owned, there = buffer * a.buffer + (rank * a.owned * each + i % a.owned * each + warp / tiles) * WK_WIDE_CELL + in_cell;
            if (a.blocks > 1) wk_wide_send(m.sums + there, m.ready(buffer), to, c[n]);
            else *reinterpret_cast<float4 *>(m.at + (m.sums - m.base) + there) = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
        }
        __syncwarp();
        if (a.blocks == 1 && lane == 0) wk_bar_arrive(m.ready(buffer));
    }
}

template <int NT, class... F> __global__ void __launch_bounds__(WK_WIDE_THREADS, wk_middle_together(sizeof...(F))) wk_product_middle(const __grid_constant__ wk_wide_args a)
{
#if WK_HAS_WGMMA
    extern __shared__ uint4 wk_shared[];
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), rank = blockIdx.x % a.blocks, worker = blockIdx.x / a.blocks;
    const wk_middle_memory m(a, (uint32_t)__cvta_generic_to_shared(wk_shared), reinterpret_cast<unsigned char *>(wk_shared));
    for (uint32_t i = threadIdx.x; i < WK_MIDDLE_BARS; i += WK_WIDE_THREADS) {
        const uint32_t last = i - (WK_MIDDLE_BARS - 4); /* ready, ready, freed, freed */
        wk_bar_init(m.bars + i * 8, i < WK_MIDDLE_DEPTH * WK_WIDE_TILES ? 1 : i < WK_MIDDLE_BARS - 4 ? wk_middle_shape<NT>::warps : last > 1 ? WK_WIDE_STREAMS * a.blocks : a.blocks > 1 ? 1 : WK_WIDE_TILES);
    }
    wk_bar_init_done();
    for (uint32_t i = threadIdx.x, n = wk_wide_stages(a, rank); i < n; i += WK_WIDE_THREADS) reinterpret_cast<uint16_t *>(m.at + a.order_at)[i] = (uint16_t)wk_wide_order(a, rank, i);
    wk_release();
    __syncthreads();
    if (a.blocks > 1) wk_wide_cluster_arrive();
    if (warp >= WK_WIDE_TILES) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(wk_middle_registers(wk_middle_together(sizeof...(F)), false)));
        wk_middle_bring<NT, F...>(a, m, rank, worker, warp - WK_WIDE_TILES, lane);
        if (a.blocks > 1) wk_wide_cluster_wait();
        wk_middle_finish(a, m, rank, worker, warp - WK_WIDE_TILES, lane);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(wk_middle_registers(wk_middle_together(sizeof...(F)), true)));
        wk_middle_consume<NT, F...>(a, m, rank, worker, warp, lane);
    }
#else
    asm volatile("trap;");
    (void)a;
#endif
}

#endif
