/* worker/cuda/product_large.cuh: products of experts with many items each, on sm_90a: part of every family
 * (product.cuh).
 *
 * A block of three warpgroups takes units of 256 rows of weights (gated: 128 of gate and the same 128 of up) and a
 * chunk of up to 128 items of one expert. One warpgroup streams: a stage of the ring is one unit of k of the 16 tiles,
 * as they lie in memory, and the chunk's panels of it, both by bulk copies. Two warpgroups have 128 rows each: a warp
 * takes its tile's quants from the stage, makes f16 of them in registers, scale inside, in the very place where wgmma
 * wants its A operand (that is how tiles are laid out), and the tensor cores multiply them with the panels in shared
 * memory. While they do, the warp makes the next 64 values: two buffers of registers, one group of four wgmma under
 * way. Weights never pass through shared memory as f16, which would take all of its bandwidth.
 *
 * A weight is an f16, that of all products (part/weights.cuh), or the nearest one. A sum goes through k in order in one
 * accumulator, from zero: a result depends on the weights and its item alone, not on the chunk, its neighbours or the
 * machine. */
#ifndef WORKER_CUDA_PRODUCT_LARGE_CUH
#define WORKER_CUDA_PRODUCT_LARGE_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/image.cuh>
#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/functions.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/panels.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/part/wgmma.cuh>
#include <worker/cuda/product.h>
#include <worker/cuda/tiles.cuh>

#define WK_LARGE_END 0xffffffffu /* in the place of a unit's number: no more */
enum {
    WK_LARGE_THREADS = 384,
    WK_LARGE_STREAMS = 4 /* warps that ask for copies */,
    WK_LARGE_TILES = 16 /* a unit */,
    WK_LARGE_PANEL = WK_CHUNK * WK_PANEL_ROW,
    WK_LARGE_ROW = 128 * 4 + 16 /* bytes of an item of a warpgroup; what is added keeps lanes to banks of their own */,
    WK_LARGE_ROWS = 16 * WK_LARGE_ROW
};

/* Results: F32 rows by item, or, gated, panels. */
struct wk_large_args {
    uint32_t k, units; /* units of k of the format */
    uint32_t n, n_tiles, row_units, tile_bytes;
    uint32_t experts;                     /* groups, most that can be used */
    const uint32_t *used, *first, *items; /* the groups (quant_cuda.h) */
    const unsigned char *x;               /* panels */
    uint64_t x_panel;                     /* bytes from panel to panel */
    float in_scale;                       /* 2^shift of the input, times the format's unscale */
    uint64_t tile_stride, slab;           /* bytes from tile to tile, from expert to expert */
    struct {
        const unsigned char *tiles;
        const float *bias;
    } seg[2];                   /* of expert 0; bias: [experts][n], or NULL; gated: gate and up */
    uint32_t glu, shift, group; /* gated: WK_GLU_*; shift and order of k of the results */
    float alpha, limit;
    void *y;
    uint64_t y_stride; /* floats from item to item; gated: bytes from panel to panel */
    uint32_t *ticket;  /* 0 before and after: units are dealt to blocks as they ask */
};

/* ---- shared memory ------------------------------------------------------------------------------------- */

template <class F> __host__ __device__ constexpr uint32_t wk_large_panels()
{
    return F::unit / WK_PANEL_K;
} /* a stage */
template <class F, int STAGES, bool GATED> struct wk_large_shared {
    static constexpr uint32_t x = 0, w = x + STAGES * wk_large_panels<F>() * WK_LARGE_PANEL,
                              out = w + (STAGES * WK_LARGE_TILES * F::slot + 127) / 128 * 128,
                              bars = out + 2 * (GATED ? WK_LARGE_PANEL : 2 * WK_LARGE_ROWS),
                              unit = bars + 2 * STAGES * 8, drawn = unit + STAGES * 4, tables = drawn + 4,
                              bytes = tables + sizeof(wk_group_tables) +
                                      1024; /* the start is brought to a multiple of 1024 */
};

/* ---- what a unit of work is ---------------------------------------------------------------------------- */

struct wk_large_unit {
    uint32_t group, tile;               /* tile: the unit's first */
    uint32_t place, item, rows, places; /* of the chunk: first place and item, items, places that are multiplied */
};

/* Units in order: expert by expert, and of an expert the chunks of one unit of rows next to each other: they run at the
 * same time and read the weights once from memory. */
template <bool GATED>
__device__ __forceinline__ wk_large_unit wk_large_unit_of(const wk_large_args &p, const wk_group_tables &t, uint32_t i)
{
    wk_large_unit u;
    u.group = wk_group_of(t.chunk, p.experts, i / p.row_units);
    const uint32_t first_chunk = t.chunk[u.group], chunks = t.chunk[u.group + 1] - first_chunk,
                   in = i - p.row_units * first_chunk, row_unit = in / chunks, chunk = in % chunks;
    const uint32_t items = t.item[u.group + 1] - t.item[u.group];
    u.tile = row_unit * (GATED ? 8 : 16);
    u.places = wk_chunk_places(items, chunks);
    u.place = t.place[u.group] + chunk * u.places;
    u.item = t.item[u.group] + chunk * u.places;
    u.rows = min(u.places, items - chunk * u.places);
    return u;
}

/* ---- producer ------------------------------------------------------------------------------------------ */

/* Tile i of 16 of a unit: 4 warps x { first, second 64 rows } x 2 warpgroups; gated: the second 64 are up's. */
template <bool GATED> __device__ __forceinline__ uint32_t wk_large_tile(const wk_large_unit &u, uint32_t i)
{
    return u.tile + (GATED ? i / 8 * 4 + i % 4 : i);
}

/* By four warps, each with four tiles of a stage, the first with the panels as well: one warp alone could not ask fast
 * enough. */
template <class F, int STAGES, bool GATED>
__device__ __forceinline__ void wk_large_stream(const wk_large_args &p, const wk_group_tables &t, unsigned char *memory,
                                                uint32_t shared, uint32_t units)
{
    typedef wk_large_shared<F, STAGES, GATED> at;
    constexpr uint32_t PANELS = wk_large_panels<F>();
    volatile uint32_t *const drawn = reinterpret_cast<volatile uint32_t *>(memory + at::drawn);
    const uint32_t lane = threadIdx.x & 31u, part = threadIdx.x / 32 - 8, own = part * 4 + lane % 4,
                   panels = (p.k + WK_PANEL_K - 1) / WK_PANEL_K;
    uint32_t stage = 0, phase = 0;
    for (;;) {
        asm volatile("bar.sync 3, 128;" ::: "memory");
        if (threadIdx.x == 256)
            *drawn =
                atomicInc(p.ticket, units + gridDim.x -
                                        1); /* each block asks once in vain; the last of these brings it back to 0 */
        asm volatile("bar.sync 3, 128;" ::: "memory");
        const uint32_t i = *drawn;
        if (i >= units) break;
        const wk_large_unit u = wk_large_unit_of<GATED>(p, t, i);
        const uint32_t expert = __ldcg(p.used + u.group), tile = wk_large_tile<GATED>(u, own);
        const bool on = lane < 4 && tile < p.n_tiles;
        const unsigned char *const from = p.seg[GATED ? own / 4 % 2 : 0].tiles + expert * p.slab + tile * p.tile_stride;
        const uint32_t tiles_on = __popc(__ballot_sync(0xffffffffu, on)),
                       x_bytes = part ? 0 : ((u.rows + 7) & ~7u) * WK_PANEL_ROW;
        for (uint32_t k = 0; k < p.units; k++) {
            const uint32_t first = (uint32_t)F::offset(k), whole = (uint32_t)F::offset(k + 1) - first,
                           bytes = min(whole, p.tile_bytes - first);
            const uint32_t n = min(PANELS, panels - k * PANELS), full = shared + at::bars + stage * 8,
                           w = shared + at::w + (stage * WK_LARGE_TILES + own) * F::slot;
            wk_stage_wait(full + STAGES * 8, phase ^ 1u);
            if (bytes < whole || n < PANELS) { /* k ends inside of the unit: what is missing is zeros */
                if (lane < 4)
                    for (uint32_t j = bytes; j < whole; j += 16)
                        asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(w + j), "r"(0) : "memory");
                for (uint32_t j = part ? PANELS : n; j < PANELS; j++)
                    for (uint32_t b = lane * 16; b < u.places * WK_PANEL_ROW; b += 512)
                        asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(
                                         shared + at::x + (stage * PANELS + j) * WK_LARGE_PANEL + b),
                                     "r"(0)
                                     : "memory");
                wk_publish();
            }
            __syncwarp();
            if (lane == 0) {
                if (k == 0 && !part)
                    asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared + at::unit + stage * 4), "r"(i)
                                 : "memory"); /* for the consumers */
                asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full),
                             "r"(tiles_on * bytes + n * x_bytes)
                             : "memory");
                for (uint32_t j = 0; !part && j < n; j++)
                    asm volatile(
                        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                            shared + at::x + (stage * PANELS + j) * WK_LARGE_PANEL),
                        "l"(p.x + (k * PANELS + j) * p.x_panel + (uint64_t)u.place * WK_PANEL_ROW), "r"(x_bytes),
                        "r"(full)
                        : "memory");
            }
            __syncwarp();
            if (on)
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(w),
                    "l"(from + first), "r"(bytes), "r"(full)
                    : "memory");
            if (++stage == STAGES) stage = 0, phase ^= 1u;
        }
    }
    wk_stage_wait(shared + at::bars + (STAGES + stage) * 8, phase ^ 1u);
    if (lane == 0) {
        if (!part)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared + at::unit + stage * 4), "r"(WK_LARGE_END) : "memory");
        wk_bar_arrive(shared + at::bars + stage * 8);
    }
}

/* ---- weights as f16: four A operands of 64 values, the h-th of unit u
 * ----------------------------------------------------------- As all products take them (part/weights.cuh). An exact
 * format, whose scales are F32 there, has two members more, and is the nearest f16 here: bool half_scales(const scales
 * &s)                           are the lane's scales f16 numbers? If any lane's are not, value() is taken in F32 and
 * rounded uint32_t half_scale(const scales &s, uint32_t i, uint32_t h)   group i: scale of row g (h 0) or g + 8 in both
 *   halves: value = fragment * it, rounded once */

template <class F>
__device__ __forceinline__ void wk_weights_rounded(const typename F::scales &s, const typename F::quants &q, uint32_t u,
                                                   uint32_t h, uint32_t (&a)[4][4])
{
#pragma unroll
    for (uint32_t b = 0; b < 2; b++) {
        float v[2][8];
        wk_values<F>(s, q, u, 2 * h + b, v);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            a[2 * b + i / 4][i % 4] =
                wk_two_halves(v[i % 2][i / 4 * 4 + i % 4 / 2 * 2], v[i % 2][i / 4 * 4 + i % 4 / 2 * 2 + 1]);
    }
}
template <class F, bool WIDE_RANGE>
__device__ __forceinline__ void wk_weights_made(const typename F::scales &s, const typename F::quants &q, uint32_t u,
                                                uint32_t h, uint32_t (&a)[4][4])
{
#pragma unroll
    for (uint32_t b = 0; b < 2; b++) {
        uint32_t f[1][2][4];
        if constexpr (wk_is_exact<F>::yes) {
            static_assert(F::group == 32 && F::parts == 1 && F::bias0 == 0.0f && F::bias1 == 0.0f,
                          "fragments are values");
            F::fragments(q, 2 * h + b, f);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                f[0][i / 4][i % 4] = wk_h2_mul(f[0][i / 4][i % 4], F::half_scale(s, 2 * h + b, i % 2));
        } else {
            wk_f16_weights<F, WIDE_RANGE>(q, s, u, 2 * h + b, f);
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) a[2 * b + i / 4][i % 4] = f[0][i / 4][i % 4];
    }
}
template <class F>
__device__ __forceinline__ void wk_weights(const typename F::scales &s, const typename F::quants &q, uint32_t u,
                                           uint32_t h, uint32_t (&a)[4][4])
{
    if constexpr (wk_is_exact<F>::yes) {
        if (__all_sync(0xffffffffu, F::half_scales(s)))
            wk_weights_made<F, false>(s, q, u, h, a);
        else
            wk_weights_rounded<F>(s, q, u, h, a);
    } else {
        if (wk_wide_range<F>(s))
            wk_weights_made<F, true>(s, q, u, h, a);
        else
            wk_weights_made<F, false>(s, q, u, h, a);
    }
}

/* ---- consumers ----------------------------------------------------------------------------------------- */

struct wk_ring {
    uint32_t stage, phase;
};

/* What a warp holds of the weights: quants and scales of a unit of its two tiles, and two buffers of 64 values of k,
 * ready to be multiplied. */
template <class F> struct wk_large_weights {
    static_assert(!wk_is_half<F>(), "values from memory would need wk_wgmma_replace");
    static constexpr uint32_t PANELS = wk_large_panels<F>();
    typename F::scales s[2];
    typename F::quants q;
    uint32_t a[2][4][4];
    /* Step j of unit v of a super-unit: 64 values of tile j / PANELS; its quants are loaded with
     * the tile's first step. */
    __device__ __forceinline__ void load(const unsigned char *tiles, uint32_t v, uint32_t j)
    {
        const uint32_t m = j / PANELS, lane = threadIdx.x & 31u;
        if (j % PANELS) return;
        F::load(s[m], tiles + m * 4 * F::slot, v, lane);
        F::load(q, tiles + m * 4 * F::slot, v, lane);
    }
    __device__ __forceinline__ void make(uint32_t v, uint32_t j)
    {
        wk_weights<F>(s[j / PANELS], q, v, j % PANELS, a[j % 2]);
        wk_wgmma_hold(a[j % 2]);
    }
};

template <int N> __device__ __forceinline__ void wk_multiply(float (&c)[16][4], const uint32_t (&a)[4][4], uint64_t b)
{
    wk_wgmma_begin();
#pragma unroll
    for (int i = 0; i < 4; i++) wk_wgmma<N>::add(c, a[i], b + 2 * i);
    wk_wgmma_commit();
}
/* 64 values of k, 16 n columns, as one group. One loop over k serves all n: a loop for each is more than the compiler
 * finds registers for. Fence and commit stand in each branch: elsewhere the compiler adds its own, and a wait for one
 * group then waits for all. Bits of n, since a jump through a table costs 4 %. */
__device__ __forceinline__ void wk_multiply(uint32_t n, float (&c)[16][4], const uint32_t (&a)[4][4], uint64_t b)
{
    if (n & 8u)
        wk_multiply<128>(c, a, b);
    else if (n & 4u)
        if (n & 2u)
            if (n & 1u)
                wk_multiply<112>(c, a, b);
            else
                wk_multiply<96>(c, a, b);
        else if (n & 1u)
            wk_multiply<80>(c, a, b);
        else
            wk_multiply<64>(c, a, b);
    else if (n & 2u)
        if (n & 1u)
            wk_multiply<48>(c, a, b);
        else
            wk_multiply<32>(c, a, b);
    else
        wk_multiply<16>(c, a, b);
}

/* The sums of a unit for chunks of 16 n16 places: c[0] the warpgroup's first 64 rows, c[1] its second. A step is 64
 * values of k of one of them: it is multiplied while the next is made. */
template <class F, int STAGES, bool GATED>
__device__ __forceinline__ void wk_large_sums(float (&c)[2][16][4], uint32_t n16, const wk_large_args &p,
                                              const unsigned char *memory, uint32_t shared, wk_ring &ring)
{
    typedef wk_large_shared<F, STAGES, GATED> at;
    constexpr uint32_t PANELS = wk_large_panels<F>(), STEPS = 2 * PANELS, ALL = F::super * STEPS;
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32;
    const unsigned char *const tiles = memory + at::w + (warp / 4 * 8 + warp % 4) * F::slot;
    wk_large_weights<F> w;
    uint32_t before = 0, x = shared + at::x + ring.stage * PANELS * WK_LARGE_PANEL,
             full = shared + at::bars + ring.stage * 8; /* before: the stage to be given back next; 0: none */
    wk_stage_wait(full, ring.phase);
    w.load(tiles + ring.stage * WK_LARGE_TILES * F::slot, 0, 0);
    w.make(0, 0);
    for (uint32_t u = 0;;) {
#pragma unroll
        for (uint32_t i = 0; i < ALL; i++) {
            const uint32_t j = i % STEPS;
            wk_multiply(n16, c[j / PANELS], w.a[j % 2], wk_wgmma_swizzled(x + j % PANELS * WK_LARGE_PANEL));
            if (i == ALL - 1) {
                u += F::super;
                if (u >= p.units) break;
            }
            const uint32_t v = (i + 1) % ALL / STEPS, next = (i + 1) % STEPS, full_now = full;
            if (next == 0) {
                if (++ring.stage == STAGES) ring.stage = 0, ring.phase ^= 1u;
                x = shared + at::x + ring.stage * PANELS * WK_LARGE_PANEL;
                full = shared + at::bars + ring.stage * 8;
                wk_stage_wait(full, ring.phase);
            }
            w.load(tiles + ring.stage * WK_LARGE_TILES * F::slot, v, next);
            wk_wgmma_wait<1>(); /* the step before this one is over */
            if (j == 0) {
                if (before) wk_bar_arrive_warp(before, lane);
                before = full_now + STAGES * 8;
            }
            w.make(v, next);
        }
        if (u >= p.units) break;
    }
    wk_wgmma_wait<0>();
    wk_bar_arrive_warp(before, lane);
    if (++ring.stage == STAGES) ring.stage = 0, ring.phase ^= 1u;
}

/* A warpgroup without rows lets the stages pass. */
template <class F, int STAGES, bool GATED>
__device__ __forceinline__ void wk_large_pass(const wk_large_args &p, uint32_t shared, wk_ring &ring)
{
    for (uint32_t u = 0; u < p.units; u++) {
        const uint32_t full = shared + wk_large_shared<F, STAGES, GATED>::bars + ring.stage * 8;
        wk_stage_wait(full, ring.phase);
        __syncwarp();
        wk_bar_arrive_warp(full + STAGES * 8, threadIdx.x & 31u);
        if (++ring.stage == STAGES) ring.stage = 0, ring.phase ^= 1u;
    }
}

/* ---- results ------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void wk_group_barrier()
{
    if (threadIdx.x < 128)
        asm volatile("bar.sync 1, 128;" ::: "memory");
    else
        asm volatile("bar.sync 2, 128;" ::: "memory");
}

/* An 8 x 8 matrix of halves, a pair of columns of row g a lane, turned. */
__device__ __forceinline__ uint32_t wk_turned(uint32_t x)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
__device__ __forceinline__ uint32_t wk_act_bits(float low, float high, uint32_t shift)
{
    union {
        __half2 h;
        uint32_t u;
    } v;
    v.h = wk_act_half2(low, high, shift);
    return v.u;
}

/* Gated: the warpgroup's 64 features of every item are one panel's rows: made in shared memory, stored by one bulk
 * copy. */
template <uint32_t GLU>
__device__ __forceinline__ void wk_large_gate(float (&c)[2][16][4], const wk_large_args &p, const wk_large_unit &u,
                                              uint32_t expert, uint32_t out)
{
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, n = p.n;
    const uint32_t first = (u.tile + warp) * 16 + g; /* features first and first + 8 */
    float bias[2][2] = {};
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            if (p.seg[m].bias && first + 8 * h < n)
                bias[m][h] = __ldg(p.seg[m].bias + (uint64_t)expert * n + first + 8 * h);
    if (threadIdx.x % 128 == 0)
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); /* what the unit before stored has been read */
    wk_group_barrier();
    uint32_t to[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
        to[h] = out + g * WK_PANEL_ROW + wk_panel_at(p.group, g, warp % 4 * 16 + 8 * h + 2 * t);
#pragma unroll
    for (uint32_t i = 0; i < 16; i++) {
        if (8 * i >= u.rows) break;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float v[2];
#pragma unroll
            for (int j = 0; j < 2; j++)
                v[j] = wk_glu_value(GLU, __fadd_rn(__fmul_rn(c[0][i][2 * h + j], p.in_scale), bias[0][h]),
                                    __fadd_rn(__fmul_rn(c[1][i][2 * h + j], p.in_scale), bias[1][h]), p.alpha, p.limit);
            const uint32_t bits = wk_turned(first + 8 * h < n ? wk_act_bits(v[0], v[1], p.shift)
                                                              : 0u); /* now item 8i + g, a pair of features */
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to[h] + i * 8 * WK_PANEL_ROW), "r"(bits) : "memory");
        }
    }
    wk_publish();
    wk_group_barrier();
    if (threadIdx.x % 128 == 0) {
        const uint64_t at = (uint64_t)(u.tile / 4 + warp / 4) * p.y_stride + (uint64_t)u.place * WK_PANEL_ROW;
        asm volatile(
            "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(static_cast<unsigned char *>(p.y) + at),
            "r"(out), "r"(u.rows * WK_PANEL_ROW)
            : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

/* F32 rows: 16 items at a time through shared memory, two buffers, and from there a warp stores the 512 bytes that the
 * warpgroup has of an item at once. */
__device__ __forceinline__ void wk_large_rows(float (&c)[2][16][4], const wk_large_args &p, const wk_large_unit &u,
                                              uint32_t expert, unsigned char *out)
{
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32, w = warp % 4, g = lane / 4, t = lane % 4;
    const uint32_t group_first = (u.tile + warp / 4 * 8) * 16, first = w * 16 + g,
                   mine = group_first +
                          4 * lane; /* first + 64 m + 8 h: what is here; mine: the four features that are stored */
    const bool wide = mine + 4 <= p.n && (reinterpret_cast<uintptr_t>(p.y) | p.y_stride * 4) % 16 == 0;
    float bias[2][2] = {};
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
            if (p.seg[0].bias && group_first + first + 64 * m + 8 * h < p.n)
                bias[m][h] = __ldg(p.seg[0].bias + (uint64_t)expert * p.n + group_first + first + 64 * m + 8 * h);
#pragma unroll
    for (uint32_t pair = 0; pair < 8; pair++) {
        if (16 * pair >= u.rows) break;
        float *const rows = reinterpret_cast<float *>(out + pair % 2 * WK_LARGE_ROWS);
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) /* item 2t + j % 2 of eight, feature + 8 (j / 2) */
#pragma unroll
                for (uint32_t m = 0; m < 2; m++)
                    rows[(8 * i + 2 * t + j % 2) * (WK_LARGE_ROW / 4) + first + 64 * m + 8 * (j / 2)] =
                        __fadd_rn(__fmul_rn(c[m][2 * pair + i][j], p.in_scale), bias[m][j / 2]);
        wk_group_barrier();
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t row = w * 4 + i, column = 16 * pair + row;
            if (column >= u.rows) break;
            const float4 v = *reinterpret_cast<const float4 *>(rows + row * (WK_LARGE_ROW / 4) + 4 * lane);
            float *const y = static_cast<float *>(p.y) + __ldcg(p.items + u.item + column) * p.y_stride + mine;
            if (wide) {
                *reinterpret_cast<float4 *>(y) = v;
            } else {
                if (mine < p.n) y[0] = v.x;
                if (mine + 1 < p.n) y[1] = v.y;
                if (mine + 2 < p.n) y[2] = v.z;
                if (mine + 3 < p.n) y[3] = v.w;
            }
        }
    }
    wk_group_barrier(); /* the next unit writes to the first buffer again */
}

template <class F, int STAGES, bool GATED>
__device__ __forceinline__ void wk_large_consume(const wk_large_args &p, const wk_group_tables &t,
                                                 unsigned char *memory, uint32_t shared)
{
    typedef wk_large_shared<F, STAGES, GATED> at;
    wk_ring ring = { 0, 0 };
    const uint32_t group = threadIdx.x / 128;
    for (;;) {
        wk_stage_wait(shared + at::bars + ring.stage * 8, ring.phase);
        const uint32_t i = *reinterpret_cast<const volatile uint32_t *>(memory + at::unit + ring.stage * 4);
        if (i == WK_LARGE_END) break;
        const wk_large_unit u = wk_large_unit_of<GATED>(p, t, i);
        if (wk_large_tile<GATED>(u, group * 8) >= p.n_tiles) {
            wk_large_pass<F, STAGES, GATED>(p, shared, ring);
            continue;
        }
        const uint32_t expert = __ldcg(p.used + u.group);
        float c[2][16][4];
#pragma unroll
        for (int n = 0; n < 16; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) c[0][n][j] = c[1][n][j] = 0.0f;
        wk_large_sums<F, STAGES, GATED>(c, u.places / 16, p, memory, shared, ring);
        if constexpr (GATED) {
            const uint32_t image = shared + at::out + group * WK_LARGE_PANEL;
            switch (p.glu) {
            case WK_GLU_SILU: wk_large_gate<WK_GLU_SILU>(c, p, u, expert, image); break;
            case WK_GLU_GELU_TANH: wk_large_gate<WK_GLU_GELU_TANH>(c, p, u, expert, image); break;
            case WK_GLU_GELU_ERF: wk_large_gate<WK_GLU_GELU_ERF>(c, p, u, expert, image); break;
            default: wk_large_gate<WK_GLU_SILU_CLAMPED>(c, p, u, expert, image); break;
            }
        } else {
            wk_large_rows(c, p, u, expert, memory + at::out + group * 2 * WK_LARGE_ROWS);
        }
    }
    if (GATED && threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

template <class F, int STAGES, bool GATED>
__global__ void __launch_bounds__(WK_LARGE_THREADS, 1) wk_large_product(const __grid_constant__ wk_large_args p)
{
    typedef wk_large_shared<F, STAGES, GATED> at;
    extern __shared__ unsigned char raw[];
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(raw), shared = (start + 1023) & ~1023u,
                   warp = threadIdx.x / 32;
    unsigned char *const memory = raw + (shared - start);
    wk_group_tables &tables = *reinterpret_cast<wk_group_tables *>(memory + at::tables);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            wk_bar_init(shared + at::bars + i * 8, WK_LARGE_STREAMS);
            wk_bar_init(shared + at::bars + (STAGES + i) * 8, 8 * WK_BAR_WARP);
        }
        wk_bar_init_done();
    }
    wk_depend();
    if (warp == 1) wk_make_group_tables(tables, p.first, p.experts);
    __syncthreads();
    if (warp >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        wk_large_stream<F, STAGES, GATED>(p, tables, memory, shared, p.row_units * tables.chunk[p.experts]);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        wk_large_consume<F, STAGES, GATED>(p, tables, memory, shared);
    }
}

/* ---- launches: a family of formats --------------------------------------------------------------------- */

typedef void (*wk_large_kernel)(const wk_large_args);

enum { WK_LARGE_STAGES = 7, WK_LARGE_ROOM = 227 * 1024 };
/* The longest ring that there is room for. */
template <class F, bool GATED, int STAGES = WK_LARGE_STAGES> __host__ __device__ constexpr int wk_large_stages()
{
    if constexpr (wk_large_shared<F, STAGES, GATED>::bytes <= WK_LARGE_ROOM)
        return STAGES;
    else
        return wk_large_stages<F, GATED, STAGES - 1>();
}

/* Has the format such kernels? Not those whose weights stand in the tile as products take them, or are more than an
 * f16, or whose dense products are integer products: their fragments have an order of k of their own (format.cuh). And
 * of exact ones those that have what is said above. */
template <class F, class = void> struct wk_has_half_scales {
    static constexpr bool yes = !wk_is_exact<F>::yes;
};
template <class F> struct wk_has_half_scales<F, decltype((void)&F::half_scales)> {
    static constexpr bool yes = true;
};
template <class F> constexpr bool wk_has_large()
{
    return F::parts == 1 && !wk_is_half<F>() && !(wk_is_int8<F>::yes && F::group == 16) && F::unit % WK_PANEL_K == 0 &&
           wk_has_half_scales<F>::yes;
}

/* What a launch has of its format. */
template <class F> struct wk_large_format {
    template <bool GATED> static constexpr wk_large_kernel kernel()
    {
        if constexpr (wk_has_large<F>())
            return wk_large_product<F, wk_large_stages<F, GATED>(), GATED>;
        else
            return NULL;
    }
    template <bool GATED> static constexpr int bytes()
    {
        if constexpr (wk_has_large<F>())
            return (int)wk_large_shared<F, wk_large_stages<F, GATED>(), GATED>::bytes;
        else
            return 0;
    }
    static void complete(wk_large_args *a)
    {
        a->units = (a->k + F::unit - 1) / F::unit;
        a->tile_bytes = (uint32_t)F::tile_bytes(a->k);
        a->tile_stride = wk_tile_stride<F>(a->k);
        a->slab = a->n_tiles * a->tile_stride;
        if (!wk_is_exact<F>::yes) a->in_scale *= wk_unscale<F>(); /* those have it in their weights here */
    }
};

template <class... Formats> struct wk_large_of {
    static constexpr uint32_t n_types = sizeof...(Formats), types[n_types] = { Formats::type... },
                              groups[n_types] = { (wk_has_large<Formats>() ? Formats::group : 0u)... },
                              blocks[n_types] = { Formats::block... };
    static constexpr int bytes[n_types][2] = { { wk_large_format<Formats>::template bytes<false>(),
                                                 wk_large_format<Formats>::template bytes<true>() }... };
    /* The kernels of each format, plain and gated; NULL: it has none, or the build has no architecture for them. */
    struct pointers {
        wk_large_kernel of[n_types][2];
    };
    static inline pointers kernels;
    static void add(pointers *p)
    {
        *p = { { { wk_large_format<Formats>::template kernel<false>(),
                   wk_large_format<Formats>::template kernel<true>() }... } };
    }
    static inline bool opened;
    static inline uint32_t processors; /* 0: the image has no such kernels */

    static uint32_t panels(uint32_t type)
    {
        for (uint32_t i = 0; i < n_types && (processors || !opened); i++)
            if (types[i] == type) return groups[i];
        return 0;
    }

    static wk_status open(int32_t device, const struct wk_err *err)
    {
        struct wk_image image;
        int count = 0;
        wk_status status = wk_tiles_status(wk_image_read(&image), "large product: the kernels' image", err);
        if (!status)
            status = wk_tiles_status(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                                     "large product: device attribute", err);
        opened = !status;
        if (status || !image.wgmma) return status;
        processors = (uint32_t)count;
        for (uint32_t i = 0; i < 2 * n_types && !status; i++) status = prepare(i / 2, i % 2, err);
        return status;
    }
    static wk_status prepare(uint32_t type, uint32_t gated, const struct wk_err *err)
    {
        const wk_large_kernel kernel = kernels.of[type][gated];
        if (!kernel) return WK_OK;
        wk_status status = wk_tiles_status(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes[type][gated]),
            "large product: kernel", err);
        if (!status)
            status = wk_tiles_status(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                          cudaSharedmemCarveoutMaxShared),
                                     "large product: kernel", err);
        return status;
    }

    /* Everything the contract excludes, by the field's name. */
    static wk_status check(const wk_cuda_product *p, uint32_t block, const struct wk_err *err)
    {
#define WK_NEED(cond, ...)                                                           \
    do {                                                                             \
        if (!(cond)) return wk_fail(err, WK_INVALID, "large product: " __VA_ARGS__); \
    } while (0)
        const wk_cuda_output *o = &p->seg[0].out;
        WK_NEED(p->k > 0 && p->k % block == 0 && p->k <= 1u << 24, "k %u", p->k);
        WK_NEED(p->groups && p->n_experts > 0 && p->n_experts <= WK_CUDA_LARGE_EXPERTS && p->ticket,
                "groups of %u experts, or no ticket", p->n_experts);
        WK_NEED(p->input.kind == WK_CUDA_IN_PANELS && p->input.x && p->input.shift < 64 && !p->input.row_index,
                "input kind %u, shift %u", p->input.kind, p->input.shift);
        WK_NEED(p->rows > 0 && p->input.x_stride >= p->rows, "rows %u", p->rows);
        WK_NEED(p->n_seg == (p->glu ? 2u : 1u) && p->glu < WK_GLU_END, "n_seg %u, glu %u", p->n_seg, p->glu);
        for (uint32_t i = 0; i < p->n_seg; i++)
            WK_NEED(p->seg[i].tiles && p->seg[i].n > 0 && p->seg[i].n <= 1u << 24 && p->seg[i].n == p->seg[0].n &&
                        p->seg[i].ggml_type == p->seg[0].ggml_type,
                    "seg %u: n %u", i, p->seg[i].n);
        WK_NEED(!p->map[0].fn && !p->residual, "map or residual");
        WK_NEED(o->y && o->kind == (p->glu ? WK_CUDA_OUT_PANELS : WK_CUDA_OUT_F32) && !o->aux, "seg 0: out");
        WK_NEED(p->glu ? (p->out_group == 32 || p->out_group == 16) && o->shift < 64 && o->y_stride >= p->rows
                       : p->rows == 1 || o->y_stride >= p->seg[0].n,
                "seg 0: y_stride or shift, out_group %u", p->out_group);
        WK_NEED(((uint64_t)p->rows / WK_CHUNK + p->n_experts) * ((p->seg[0].n + 127) / 128) < 1u << 30,
                "rows %u of n %u", p->rows, p->seg[0].n);
#undef WK_NEED
        return WK_OK;
    }
    static wk_large_args arguments(const wk_cuda_product *p)
    {
        const wk_cuda_output *o = &p->seg[0].out;
        wk_large_args a = {};
        a.k = p->k;
        a.n = p->seg[0].n;
        a.n_tiles = (a.n + 15) / 16;
        a.row_units = p->glu ? (a.n_tiles + 7) / 8 : (a.n_tiles + 15) / 16;
        a.experts = p->n_experts;
        a.used = p->groups;
        a.first = p->groups + p->n_experts;
        a.items = a.first + p->n_experts + 1;
        a.x = static_cast<const unsigned char *>(p->input.x);
        a.x_panel = p->input.x_stride * WK_PANEL_ROW;
        a.in_scale = 1.0f;
        for (uint32_t i = 0; i < p->input.shift; i++) a.in_scale *= 2.0f;
        for (uint32_t i = 0; i < p->n_seg; i++)
            a.seg[i].tiles = static_cast<const unsigned char *>(p->seg[i].tiles), a.seg[i].bias = p->seg[i].bias;
        a.glu = p->glu;
        a.shift = o->shift;
        a.group = p->out_group;
        a.alpha = p->alpha;
        a.limit = p->limit;
        a.y = o->y;
        a.y_stride = p->glu ? o->y_stride * WK_PANEL_ROW : o->y_stride;
        a.ticket = p->ticket;
        return a;
    }
    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        uint32_t type = 0;
        while (types[type] != p->seg[0].ggml_type) type++;
        wk_status status = check(p, blocks[type], err);
        if (status) return status;
        if (!processors)
            return wk_fail(err, WK_UNSUPPORTED,
                           "large product: there are no such kernels for this device (only of 90a, for 9.0)");
        wk_large_args a = arguments(p);
        uint32_t i = 0;
        ((i++ == type ? wk_large_format<Formats>::complete(&a) : (void)0), ...);
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(processors);
        config.blockDim = dim3(WK_LARGE_THREADS);
        config.dynamicSmemBytes = (size_t)bytes[type][p->glu != 0];
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = &attribute;
        config.numAttrs = p->flags & WK_CUDA_DEPENDENT ? 1 : 0;
        return wk_tiles_status(cudaLaunchKernelEx(&config, kernels.of[type][p->glu != 0], a), "large product", err);
    }
};

#endif
