/* worker/cuda/product_heads.cuh: products of 2 to 64 rows with a great many tiles of a k so short that all activations fit in shared memory, on sm_90a: a vocabulary's.
 *
 * A block has all activations in shared memory, in wgmma's order, and a warp a tile to itself, which it streams through a ring of its own (product_held.cuh), slot after slot. Its lanes make f16
 * weights in the registers where wgmma wants them, 64 values of k while the 64 before are multiplied, and sums of slots wait in registers: nothing is added across warps. Four warps multiply
 * together, tiles that have nothing else to do with each other; while they wait for sums or store them, the other warpgroups multiply.
 *
 * Outputs are F32 with no more than a bias, and go from the sums straight to memory. Order of arithmetic: halves.cuh. */
#ifndef WORKER_CUDA_PRODUCT_HEADS_CUH
#define WORKER_CUDA_PRODUCT_HEADS_CUH

#include <worker/cuda/product_held.cuh>

enum { WK_HEADS_TILES = 16 }; /* more than that a multiprocessor */

/* Warps of a block: as registers allow. */
__host__ __device__ constexpr uint32_t wk_heads_warps(uint32_t columns) { return columns > 4 ? 8 : 12; }

/* All activations: a warp has a group of 8 columns, of 64 values after the other. A column that is not there is the last one again: nobody reads what becomes of it. */
template <int NT, class F> __device__ __forceinline__ void wk_heads_bring(const wk_product_args &p, uint32_t to, uint32_t warp, uint32_t lane)
{
    constexpr uint32_t apart = wk_heads_warps(NT) / NT, ahead = 7;
    const uint32_t runs = p.k32 / 32, panels = p.steps << (p.step_shift - 6), row = min(warp % NT * 8 + lane / 4, p.rows - 1);
    const uint32_t c = lane % 8, chunk = lane / 8, low = (chunk ^ c) * 16, high = ((4 + chunk) ^ c) * 16;
    uint32_t i = warp / NT, place = to + (i * NT + warp % NT) * 1024 + c * 128;
    wk_depend();
    const __half *from = static_cast<const __half *>(p.in.x) + (uint64_t)(p.in.row_index ? __ldg(p.in.row_index + row) : row) * p.k32 + lane % 4 * (F::group / 4) + i * 64;
#pragma unroll 1
    for (; i < panels; i += ahead * apart, place += ahead * apart * NT * 1024, from += ahead * apart * 64) {
        uint4 v[ahead][2];
#pragma unroll
        for (uint32_t j = 0; j < ahead; j++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) v[j][h] = 2 * (i + j * apart) + h < runs ? wk_wide_read(from + j * apart * 64 + h * 32, F::group) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t j = 0; j < ahead; j++) {
            if (i + j * apart >= panels) break;
#pragma unroll
            for (uint32_t h = 0; h < 2; h++)
                wk_wide_place_run(place + j * apart * NT * 1024 + (h ? high : low), v[j][h]);
        }
    }
    wk_publish();
}

/* A warp of the multiplying. */
template <class T, int NT> struct wk_heads_warp {
    static_assert(T::super == 1, "units stand alone");
    static constexpr uint32_t halves = T::unit / 64, pieces = halves > 1 ? halves : 2; /* of 64 values: of a unit, of the loop */
    const wk_wide_args &a;
    unsigned char *const shared;
    const uint32_t base, lane;
    wk_held_tiles tiles;
    wk_held_ring ring;
    typename T::scales s;
    typename T::quants q;
    uint32_t b[2][4][4]; /* two times 64 values as f16 */
    float c[2][NT][4];
    const unsigned char *at; /* the unit */
    uint32_t left, leaf;     /* stages that are still to come; next of the tile */
    __device__ __forceinline__ wk_heads_warp(const wk_wide_args &args, unsigned char *memory, uint32_t start, uint32_t warp, uint32_t number) : a(args), shared(memory), base(start), lane(number)
    {
        const wk_product_args &p = a.p;
        ring.parity = 1;
        ring.start = base + p.x_at + warp * p.depth * p.slot;
        ring.bars = base + p.bars_at + warp * WK_HELD_DEPTH * 8;
        ring.begin(a);
        if (lane < p.depth) wk_bar_init(ring.bar + lane * 8, 1);
        wk_bar_init_done();
        __syncwarp();
        tiles.first = 0;
        tiles.unit = warp * gridDim.x + blockIdx.x;
        tiles.each = wk_heads_warps(NT) * gridDim.x;
        tiles.locate(a, 0);
        left = tiles.unit < p.items ? ((p.items - tiles.unit + tiles.each - 1) / tiles.each) * p.steps : 0;
#pragma unroll 1
        for (uint32_t i = p.depth; i; i--, ring.next(a)) tiles.ask(a, ring.at, ring.bar, 0, lane);
    }
    /* The ring's next stage; where there is none, what happens to lie there: nothing of it is stored. */
    __device__ __forceinline__ void open()
    {
        at = shared + (ring.at - base);
        if (left) wk_stage_wait(ring.bar, ring.parity);
        load();
    }
    __device__ __forceinline__ void load()
    {
        T::load(s, at, 0, lane);
        T::load(q, at, 0, lane);
    }
    /* Piece i of the loop. */
    __device__ __forceinline__ void make(uint32_t i)
    {
        if (wk_far<T>(s)) wk_wide_make<T, true>(q, s, 0, i % halves, b[i % 2]);
        else wk_wide_make<T, false>(q, s, 0, i % halves, b[i % 2]);
        wk_wide_hold(b[i % 2]);
    }
    /* The loop's pieces are multiplied, each while the next one is made. */
    __device__ __forceinline__ void multiply(uint32_t &x, bool last)
    {
#pragma unroll
        for (uint32_t i = 0; i < pieces; i++, x += NT * 1024) {
            wk_wide_multiply<NT>(c, b[i % 2], x);
            if (i + 1 == pieces && last) {
                __syncwarp();
                tiles.ask(a, ring.at, ring.bar, 0, lane);
                ring.next(a);
                if (left) left--;
                open();
            } else if ((i + 1) % halves == 0) {
                at += T::offset(1);
                load();
            }
            wk_wgmma_wait<1>(); /* the products before these are over */
            make((i + 1) % pieces);
        }
    }
    /* The sum of 2^LEVEL slots, in c[0]. A loop rather than code for each, where that would be much. */
    template <int LEVEL> __device__ __forceinline__ void sum()
    {
        if constexpr (LEVEL == 0) {
            const wk_product_args &p = a.p;
#pragma unroll
            for (int i = 0; i < 8 * NT; i++) c[i / 4 / NT][i / 4 % NT][i % 4] = 0.0f;
#pragma unroll 1
            for (uint32_t step = wk_wide_slot(leaf++); step < p.steps; step += WK_SLOTS) {
                uint32_t x = base + (step << (p.step_shift - 6)) * NT * 1024;
#pragma unroll 1
                for (uint32_t n = (1u << (p.step_shift - 6)) / pieces; n; n--) multiply(x, n == 1);
            }
            wk_wgmma_wait<0>();
            add(c[0], c[1]);
        } else {
            float kept[NT][4];
#pragma unroll (LEVEL > 1 ? 1 : 2)
            for (uint32_t i = 0; i < 2; i++) {
                sum<LEVEL - 1>();
                if (i) break;
#pragma unroll
                for (int j = 0; j < 4 * NT; j++) kept[j / 4][j % 4] = c[0][j / 4][j % 4];
            }
            add(kept, c[0]);
        }
    }
    __device__ __forceinline__ void add(const float (&x)[NT][4], const float (&y)[NT][4])
    {
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) c[0][i / 4][i % 4] = __fadd_rn(x[i / 4][i % 4], y[i / 4][i % 4]);
    }
};

/* Whole sectors: of a row of the product eight lanes have eight outputs. */
template <int NT> __device__ __forceinline__ void wk_heads_outputs(const wk_product_args &p, uint32_t tile, const float (&c)[NT][4], uint32_t lane)
{
    uint32_t seg = 0;
    wk_held_segment(p, seg, tile);
    const wk_segment_args &s = p.seg[seg];
    const uint32_t j = tile * 16 + lane / 4, row = lane % 4 * 2, rows = p.rows > row ? p.rows - row : 0;
    const float scale = s.scale, bias[2] = { s.bias && j < s.n ? __ldg(s.bias + j) : 0.0f, s.bias && j + 8 < s.n ? __ldg(s.bias + j + 8) : 0.0f };
    float *y = static_cast<float *>(s.y) + row * s.y_stride + j;
#pragma unroll
    for (uint32_t n = 0; n < NT; n++, y += 6 * s.y_stride)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++, y += s.y_stride) {
            if (n * 8 + i >= rows) continue;
            if (j < s.n) y[0] = __fadd_rn(__fmul_rn(c[n][i], scale), bias[0]);
            if (j + 8 < s.n) y[8] = __fadd_rn(__fmul_rn(c[n][2 + i], scale), bias[1]);
        }
}

template <int NT, class F> __global__ void __launch_bounds__(32 * wk_heads_warps(NT), 1) wk_product_heads(const __grid_constant__ wk_wide_args a)
{
#if WK_HAS_WGMMA
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(wk_shared), base = (start + 1023u) & ~1023u, lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    wk_heads_warp<F, NT> w(a, reinterpret_cast<unsigned char *>(wk_shared) + (base - start), base, warp, lane);
    wk_release();
    wk_heads_bring<NT, F>(p, base, warp, lane);
    __syncthreads();
    w.open();
    w.make(0);
    const uint32_t each = wk_heads_warps(NT) * gridDim.x;
    uint32_t unit = warp * gridDim.x + blockIdx.x;
#pragma unroll 1
    for (uint32_t first = warp / 4 * 4 * gridDim.x + blockIdx.x; first < p.items; first += each, unit += each) { /* as long as a warp of the four has a tile */
        w.leaf = 0;
        w.template sum<3>();
        if (unit < p.items) wk_heads_outputs(p, unit, w.c[0], lane);
    }
#else
    asm volatile("trap;");
    (void)a;
#endif
}

#endif
