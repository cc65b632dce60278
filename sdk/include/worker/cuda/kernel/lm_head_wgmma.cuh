/* worker/cuda/kernel/lm_head_wgmma.cuh: products of 2 to 64 rows with a great many tiles of a k so short that all
 * activations fit in shared memory, on sm_90a: a vocabulary's.
 *
 * A block has all activations in shared memory, in wgmma's order, and a warp a tile to itself, which it streams through
 * a ring of its own, K slice after K slice. Its lanes make f16 weights in the registers where wgmma wants them. A piece
 * is 128 values of k, and each of its two accumulators a group of products: while one is under way, the weights of the
 * other are made, of this piece or of the next. Nothing is added across warps. Four warps multiply together, tiles that
 * have nothing else to do with each other; while they add sums or store them, the other warpgroups multiply.
 *
 * One loop over the pieces of all tiles, which a table in shared memory describes: with a loop for each K slice, or K
 * slices that are jumped over, the assembler sees products under way where ways meet and makes each wait for the one
 * before.
 *
 * Outputs are F32 with no more than a bias, and go from the sums straight to memory.
 * Order of arithmetic: part/weights.cuh. */
#ifndef WORKER_CUDA_KERNEL_LM_HEAD_WGMMA_CUH
#define WORKER_CUDA_KERNEL_LM_HEAD_WGMMA_CUH

#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/part/wgmma.cuh>

/* What lm_head_wgmma is given. Shared memory, offsets in bytes from its start, which is a multiple of 1024: at 0 all
 * activations; behind them the warps' rings, their tiles, barriers of the rings, the order of a tile's work. */
struct wk_lm_head_wgmma_args {
    wk_product_args p;    /* items: tiles */
    uint32_t depth;       /* stages of a warp's ring, at most WK_WARP_DEPTH */
    uint32_t stage_bytes; /* of a warp's ring: a K step of a tile */
    uint32_t bars_at, rings_at;
    uint32_t tiles_at; /* struct wk_lm_head_wgmma_tiles of each warp */
    uint32_t order_at; /* of a tile's K steps, a word each; then of its pieces */
};

/* Warps of a block: as registers allow. */
__host__ __device__ constexpr uint32_t wk_lm_head_wgmma_warps(uint32_t columns) { return columns > 4 ? 8 : 12; }

/* All activations: a warp has a group of 8 columns, of 64 values after the other. A column that is not there is the
 * last one again: nobody reads what becomes of it. */
template <int NT, class F>
__device__ __forceinline__ void wk_lm_head_wgmma_bring(const wk_product_args &p, uint32_t to, uint32_t warp,
                                                       uint32_t lane)
{
    constexpr uint32_t apart = wk_lm_head_wgmma_warps(NT) / NT, ahead = 7;
    const uint32_t runs = p.k32 / 32, panels = p.k_steps << (p.k_step_shift - 6),
                   row = min(warp % NT * 8 + lane / 4, p.rows - 1);
    const uint32_t c = lane % 8, chunk = lane / 8, low = (chunk ^ c) * 16, high = ((4 + chunk) ^ c) * 16;
    uint32_t i = warp / NT, place = to + (i * NT + warp % NT) * 1024 + c * 128;
    wk_depend();
    const __half *from = static_cast<const __half *>(p.in.x) +
                         (uint64_t)(p.in.row_index ? __ldg(p.in.row_index + row) : row) * p.k32 +
                         lane % 4 * (F::group / 4) + i * 64;
#pragma unroll 1
    for (; i < panels; i += ahead * apart, place += ahead * apart * NT * 1024, from += ahead * apart * 64) {
        uint4 v[ahead][2];
#pragma unroll
        for (uint32_t j = 0; j < ahead; j++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++)
                v[j][h] = 2 * (i + j * apart) + h < runs ? wk_read_run(from + j * apart * 64 + h * 32, F::group)
                                                         : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (uint32_t j = 0; j < ahead; j++) {
            if (i + j * apart >= panels) break;
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) wk_store_run(place + j * apart * NT * 1024 + (h ? high : low), v[j][h]);
        }
    }
    wk_publish();
}

/* The K slices in the order in which a tile has them: pairs that the tree adds first, the larger number second, so that
 * K slices without a K step are second ones. */
__device__ __forceinline__ uint32_t wk_lm_head_wgmma_k_slice(uint32_t i)
{
    return (i % 2) * 4 + (i % 4 < 2) * 2 + (i < 4);
}
/* K steps of a K slice. */
__device__ __forceinline__ uint32_t wk_lm_head_wgmma_k_steps(const wk_product_args &p, uint32_t k_slice)
{
    return (p.k_steps + WK_K_SLICES - 1 - k_slice) / WK_K_SLICES;
}

/* A tile's pieces of 128 values in that order: where their activations lie, a multiple of 1024, and below that the leaf
 * of the tree, and the following. */
enum {
    WK_LM_HEAD_WGMMA_MORE = 8,          /* the K slice has pieces before it */
    WK_LM_HEAD_WGMMA_K_SLICE_ENDS = 16, /* ends its K slice */
    WK_LM_HEAD_WGMMA_ALONE = 32,        /* the K slice's neighbour has no K steps */
    WK_LM_HEAD_WGMMA_STAGE = 64,        /* ends its stage */
    WK_LM_HEAD_WGMMA_PLACE = 1024
};

/* In shared memory, behind each other: where the K steps lie in a tile, and its pieces. */
__device__ __forceinline__ void wk_lm_head_wgmma_order(const wk_product_args &p, uint32_t panel, uint32_t *order)
{
    const uint32_t shift = p.k_step_shift - 7, run = 1u << shift;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < p.k_steps << shift; i += blockDim.x) {
        const uint32_t k_step = i >> shift, k_slice = k_step % WK_K_SLICES, in = i & (run - 1);
        uint32_t at = k_step / WK_K_SLICES, leaf = 0;
        for (; wk_lm_head_wgmma_k_slice(leaf) != k_slice; leaf++)
            at += wk_lm_head_wgmma_k_steps(p, wk_lm_head_wgmma_k_slice(leaf));
        const bool ends = in == run - 1, alone = k_slice < 4 && k_slice + 4 >= p.k_steps;
        order[at] = k_step * p.seg[0].k_step_bytes;
        order[p.k_steps + (at << shift) + in] =
            i * 2 * panel | leaf | (k_step >= WK_K_SLICES || in ? WK_LM_HEAD_WGMMA_MORE : 0) |
            (ends && k_step + WK_K_SLICES >= p.k_steps ? WK_LM_HEAD_WGMMA_K_SLICE_ENDS : 0) |
            (alone ? WK_LM_HEAD_WGMMA_ALONE : 0) | (ends ? WK_LM_HEAD_WGMMA_STAGE : 0);
    }
}

__device__ __forceinline__ uint32_t wk_lm_head_wgmma_read(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

/* What a warp asks for: the K steps of its tiles, in shared memory, since registers are scarce. */
struct __align__(16) wk_lm_head_wgmma_tiles
{
    const unsigned char *from; /* the tile; not used where there is none */
    uint32_t next, item;       /* which of the K steps' places comes next; the warp's tile of all */
    uint32_t sums, unused[3];  /* the tile that is multiplied */
    __device__ __forceinline__ void locate(const wk_product_args &p, uint32_t tile)
    {
        uint32_t seg = 0;
        next = 0;
        item = tile;
        if (tile >= p.items) return;
        wk_tile_segment(p, seg, tile);
        from = p.seg[seg].tiles + (uint64_t)tile * p.seg[0].tile_stride;
    }
    /* Asks for the next stage, to a place that all lanes have read; what lies past the end of k becomes zeros. */
    __device__ __forceinline__ void ask(const wk_product_args &p, uint32_t each, uint32_t order, uint32_t to,
                                        uint32_t bar, uint32_t lane)
    {
        __syncwarp();
        wk_lm_head_wgmma_tiles now;
        *reinterpret_cast<uint4 *>(&now) = *reinterpret_cast<const uint4 *>(this);
        if (now.item >= p.items) return;
        const uint32_t whole = p.seg[0].k_step_bytes, tile_bytes = p.seg[0].tile_bytes,
                       at = wk_lm_head_wgmma_read(order + now.next * 4);
        uint32_t bytes = whole;
        if (at + whole > tile_bytes) {
            bytes = tile_bytes - at;
#pragma unroll 1
            for (uint32_t j = bytes + lane * 16; j < whole; j += 512)
                asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + j), "r"(0) : "memory");
            wk_publish();
            __syncwarp();
        }
        const unsigned char *const place = now.from + at;
        if (++now.next == p.k_steps) now.locate(p, now.item + each);
        if (wk_elected()) {
            const uint64_t once = wk_fetch_once();
            wk_bar_expect(bar, bytes);
            wk_fetch(to, place, bytes, bar, once);
            *reinterpret_cast<uint4 *>(this) = *reinterpret_cast<const uint4 *>(&now);
        }
    }
};

/* Sums have their values here and not later. */
template <int NT> __device__ __forceinline__ void wk_lm_head_wgmma_hold(float (&c)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT; i++) asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]));
}

/* A warp of the multiplying. */
template <class T, int NT> struct wk_lm_head_wgmma_warp {
    static_assert(T::super == 1 && T::unit == 64, "units stand alone, two of them a piece");
    static_assert(!wk_is_half<T>(), "values from memory would need wk_wgmma_replace");
    static constexpr uint32_t panel = NT * 1024; /* 64 values of all columns */
    const wk_lm_head_wgmma_args &a;
    unsigned char *const shared;
    const uint32_t base, lane;
    wk_lm_head_wgmma_tiles *const tiles;
    wk_warp_ring ring;
    uint32_t ring_at, ring_bars; /* addresses of the ring's first stage and barrier */
    typename T::scales s[2];
    typename T::quants q[2];
    uint32_t b[2][4][4];     /* of an accumulator of a piece as f16 */
    const unsigned char *at; /* the piece */
    uint32_t left;           /* stages that are still to come */
    __device__ __forceinline__ wk_lm_head_wgmma_warp(const wk_lm_head_wgmma_args &args, unsigned char *memory,
                                                     uint32_t start, uint32_t warp, uint32_t number)
        : a(args), shared(memory), base(start), lane(number),
          tiles(reinterpret_cast<wk_lm_head_wgmma_tiles *>(memory + args.tiles_at) + warp)
    {
        const wk_product_args &p = a.p;
        ring.parity = 1;
        ring_at = base + a.rings_at + warp * a.depth * a.stage_bytes;
        ring_bars = base + a.bars_at + warp * WK_WARP_DEPTH * 8;
        ring.begin(ring_at, ring_bars, a.depth);
        if (lane < a.depth) wk_bar_init(ring.bar + lane * 8, 1);
        wk_bar_init_done();
        wk_lm_head_wgmma_order(p, panel, reinterpret_cast<uint32_t *>(shared + a.order_at));
        __syncthreads();
        const uint32_t item = warp * gridDim.x + blockIdx.x, each = wk_lm_head_wgmma_warps(NT) * gridDim.x;
        tiles->locate(p, item);
        tiles->sums = item;
        left = item < p.items ? (p.items - item + each - 1) / each * p.k_steps : 0;
#pragma unroll 1
        for (uint32_t i = a.depth; i; i--, turn()) ask();
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
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            T::load(s[i], at + T::offset(i), 0, lane);
            T::load(q[i], at + T::offset(i), 0, lane);
        }
    }
    template <uint32_t ACCUMULATOR, bool WIDE_RANGE> __device__ __forceinline__ void make_unit(uint32_t i)
    {
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t f[1][2][4];
            wk_f16_weights<T, WIDE_RANGE>(q[i], s[i], 0, h, f);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) b[ACCUMULATOR][2 * i + h][j] = f[0][ACCUMULATOR][j];
        }
    }
    /* What an accumulator has of the piece. */
    template <uint32_t ACCUMULATOR> __device__ __forceinline__ void make()
    {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            if (wk_wide_range<T>(s[i]))
                make_unit<ACCUMULATOR, true>(i);
            else
                make_unit<ACCUMULATOR, false>(i);
        }
        wk_wgmma_hold(b[ACCUMULATOR]);
    }
    template <uint32_t ACCUMULATOR> __device__ __forceinline__ void multiply(float (&c)[NT][4], uint32_t x, bool more)
    {
        const uint64_t d = wk_wgmma_swizzled(x) + 2 * ACCUMULATOR;
        wk_wgmma_begin();
        wk_wgmma_first<8 * NT>::add(c, b[ACCUMULATOR][0], d, more);
#pragma unroll
        for (uint32_t i = 1; i < 4; i++)
            wk_wgmma<8 * NT>::add(c, b[ACCUMULATOR][i], d + i / 2 * (panel / 16) + i % 2 * 4);
        wk_wgmma_commit();
    }
    __device__ __forceinline__ void turn() { ring.next(a.stage_bytes, ring_at, ring_bars, a.depth); }
    /* The stage is read. */
    __device__ __forceinline__ void ask()
    {
        tiles->ask(a.p, wk_lm_head_wgmma_warps(NT) * gridDim.x, base + a.order_at, ring.at, ring.bar, lane);
    }
    /* To the next piece. */
    __device__ __forceinline__ void next(bool stage)
    {
        if (stage) {
            turn();
            if (left) left--;
            open();
        } else {
            at += T::offset(2);
            load();
        }
    }
};

/* to = x + y. Here and not elsewhere: registers that products under way write must not be read, of which the compiler
 * knows nothing. */
template <int NT>
__device__ __forceinline__ void wk_lm_head_wgmma_add(float (&to)[NT][4], const float (&x)[NT][4],
                                                     const float (&y)[NT][4])
{
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) to[i / 4][i % 4] = __fadd_rn(x[i / 4][i % 4], y[i / 4][i % 4]);
    wk_lm_head_wgmma_hold(to);
}
/* Whole sectors: of a row of the product eight lanes have eight outputs. */
template <int NT>
__device__ __forceinline__ void wk_lm_head_wgmma_outputs(const wk_product_args &p, uint32_t tile,
                                                         const float (&c)[NT][4], uint32_t lane)
{
    uint32_t seg = 0;
    wk_tile_segment(p, seg, tile);
    const wk_segment_args &s = p.seg[seg];
    const uint32_t j = tile * 16 + lane / 4, row = lane % 4 * 2, rows = p.rows > row ? p.rows - row : 0;
    const float scale = s.scale, bias[2] = { s.bias && j < s.n ? __ldg(s.bias + j) : 0.0f,
                                             s.bias && j + 8 < s.n ? __ldg(s.bias + j + 8) : 0.0f };
    float *y = static_cast<float *>(s.y) + row * s.y_stride + j;
    if (p.rows == 8 * NT && tile * 16 + 16 <= s.n) { /* no questions */
#pragma unroll
        for (uint32_t i = 0; i < 2 * NT; i++) {
            y[0] = __fadd_rn(__fmul_rn(c[i / 2][i % 2], scale), bias[0]);
            y[8] = __fadd_rn(__fmul_rn(c[i / 2][2 + i % 2], scale), bias[1]);
            y += i % 2 ? 7 * s.y_stride : s.y_stride;
            asm volatile("" : "+l"(y)); /* one addition, and not again from the beginning */
        }
        return;
    }
#pragma unroll
    for (uint32_t n = 0; n < NT; n++, y += 6 * s.y_stride)
#pragma unroll
        for (uint32_t i = 0; i < 2; i++, y += s.y_stride) {
            if (n * 8 + i >= rows) continue;
            if (j < s.n) y[0] = __fadd_rn(__fmul_rn(c[n][i], scale), bias[0]);
            if (j + 8 < s.n) y[8] = __fadd_rn(__fmul_rn(c[n][2 + i], scale), bias[1]);
        }
}

/* A K slice's accumulators go into the tree, with the tile's last one to memory. Sums are made where they wait: nothing
 * is moved. */
template <int NT>
__device__ __forceinline__ void wk_lm_head_wgmma_sum(const wk_product_args &p, uint32_t piece, float (&even)[NT][4],
                                                     const float (&odd)[NT][4], float (&one)[NT][4],
                                                     float (&two)[NT][4], float (&four)[NT][4],
                                                     wk_lm_head_wgmma_tiles *tiles, uint32_t lane)
{
    if (piece & WK_LM_HEAD_WGMMA_ALONE) {
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) one[i / 4][i % 4] = 0.0f;
        wk_lm_head_wgmma_hold(one);
    } else if (!(piece & 1u)) {
        wk_lm_head_wgmma_add(one, even, odd);
        return;
    }
    wk_lm_head_wgmma_add(even, even, odd);
    if (!(piece & 2u)) {
        wk_lm_head_wgmma_add(two, one, even);
        return;
    }
    wk_lm_head_wgmma_add(even, one, even);
    if (!(piece & 4u)) {
        wk_lm_head_wgmma_add(four, two, even);
        return;
    }
    wk_lm_head_wgmma_add(even, two, even);
    wk_lm_head_wgmma_add(even, four, even);
    const uint32_t item = tiles->sums;
    __syncwarp();
    if (lane == 0) tiles->sums = item + wk_lm_head_wgmma_warps(NT) * gridDim.x;
    if (item < p.items) wk_lm_head_wgmma_outputs(p, item, even, lane);
}

template <int NT, class F>
__global__ void __launch_bounds__(32 * wk_lm_head_wgmma_warps(NT), 1)
    wk_product_lm_head_wgmma(const __grid_constant__ wk_lm_head_wgmma_args a)
{
    extern __shared__ uint4 wk_shared[];
    const wk_product_args &p = a.p;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(wk_shared), base = (start + 1023u) & ~1023u,
                   lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared) + (base - start);
    wk_lm_head_wgmma_warp<F, NT> w(a, shared, base, warp, lane);
    wk_release();
    wk_lm_head_wgmma_bring<NT, F>(p, base, warp, lane);
    __syncthreads();
    w.open();
    w.template make<0>();
    const uint32_t each = wk_lm_head_wgmma_warps(NT) * gridDim.x, first = warp / 4 * 4 * gridDim.x + blockIdx.x,
                   order = base + a.order_at + p.k_steps * 4, pieces = p.k_steps << (p.k_step_shift - 7);
    uint32_t piece = 0, now = wk_lm_head_wgmma_read(order);
    float even[NT][4], odd[NT][4], one[NT][4], two[NT][4],
        four[NT][4]; /* the accumulators; sums of one K slice, of two, of four */
    uint32_t was = 0, left = first < p.items ? (p.items - first + each - 1) / each * pieces
                                             : 0; /* pieces: as long as a warp of the four has a tile */
#pragma unroll 1
    for (;; left--) {
        wk_wgmma_wait<0>();
        wk_lm_head_wgmma_hold(even);
        wk_lm_head_wgmma_hold(odd);
        if (was & WK_LM_HEAD_WGMMA_K_SLICE_ENDS) wk_lm_head_wgmma_sum(p, was, even, odd, one, two, four, w.tiles, lane);
        if (!left) break;
        const uint32_t x = base + now / WK_LM_HEAD_WGMMA_PLACE * WK_LM_HEAD_WGMMA_PLACE;
        /* Accumulator 0, accumulator 1, the next piece's accumulator 0: each is made while the one before is
         * multiplied. In between stand branches (asking, opening, the loop's end), across which the assembler moves
         * nothing; else it makes weights before it issues products, and waits before it makes weights. */
        w.template multiply<0>(even, x, now & WK_LM_HEAD_WGMMA_MORE);
        if (now & WK_LM_HEAD_WGMMA_STAGE) w.ask();
        w.template make<1>();
        w.template multiply<1>(odd, x, now & WK_LM_HEAD_WGMMA_MORE);
        w.next(now & WK_LM_HEAD_WGMMA_STAGE);
        was = now;
        if (++piece == pieces) piece = 0;
        now = wk_lm_head_wgmma_read(order + piece * 4);
        wk_wgmma_wait<1>();
        w.template make<0>();
    }
}

#endif
