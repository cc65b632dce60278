/* attend_latent.cuh: attention over values that are parts of keys (a latent cache): tiles of queries, what a block
 * keeps in shared memory, and what it does with a page.
 *
 * All query heads of a KV head read the same keys, and the values are their first numbers; so a block takes a tile of
 * (row, head) pairs of one sequence and one KV head, one head after the other within a row, and walks over pages: a
 * page comes once into shared memory, meets the queries there, and is met again by their probabilities. Tensor cores
 * have pairs as rows.
 *
 * Layout. A page holds for each KV head 32 positions of K halves, no values: blocks of 8 positions x 8 values as in
 * attend.cuh. Heads are padded with zeros to one of the sizes that kernels exist for (latent_size_of).
 *
 * A score is the sum of four quarters of the key, each a chain of products in one order; a page's probabilities are
 * added in a tree over its positions. So the size of a tile changes no bit, and what a row does not see changes none
 * either: it has probability 0, and a factor of exactly 1 for what was there before. */
#ifndef CORE_DEVICE_CUDA_ATTEND_LATENT_CUH
#define CORE_DEVICE_CUDA_ATTEND_LATENT_CUH

#include "device/cuda/attend.cuh"

enum { LATENT_WARPS = 8, LATENT_THREADS = 32 * LATENT_WARPS, QUARTERS = 4 };
enum { PART_STRIDE = KV_PAGE + 8, P_STRIDE = KV_PAGE + 8 }; /* of rows in shared memory: no bank is hit twice */

/* ---- splits -------------------------------------------------------------------------------------------- */

/* Generated rows add their results split by split, at absolute positions: 32 splits of 4 pages, then 16 for every
 * doubling of the context, so that their number, and the memory of partial results, grows with its logarithm. */
enum { SPLIT_PAGES = 4, FIRST_SPLITS = 32, MORE_SPLITS = 16, FIRST_PAGES = SPLIT_PAGES * FIRST_SPLITS };

static __host__ __device__ __forceinline__ uint32_t split_of(uint32_t page)
{
    if (page < FIRST_PAGES) return page / SPLIT_PAGES;
    uint32_t begin = FIRST_PAGES, split = FIRST_SPLITS;
    while (page / 2 >= begin) begin *= 2, split += MORE_SPLITS;
    return split + (page - begin) / (begin / MORE_SPLITS);
}
/* The page behind a split's last. */
static __host__ __device__ __forceinline__ uint32_t split_end(uint32_t split)
{
    if (split < FIRST_SPLITS) return (split + 1) * SPLIT_PAGES;
    const uint32_t begin = FIRST_PAGES << ((split - FIRST_SPLITS) / MORE_SPLITS);
    return begin + ((split - FIRST_SPLITS) % MORE_SPLITS + 1) * (begin / MORE_SPLITS);
}

/* ---- a tile of queries --------------------------------------------------------------------------------- */

struct latent_tile {
    uint32_t seq, row, position, end; /* of the sequence: its first row in the batch, and that row's position; its
                                         last position */
    uint32_t pair, pairs; /* pairs [pair, pair + pairs) of the sequence: row x group + head of the KV head */
    uint32_t low, high;   /* positions that any of the tile's rows sees */
};

/* Tile `index` of the step (find_seq_tile), of M pairs. */
template <int M> __device__ bool find_latent(const attend_args &a, uint32_t index, latent_tile &t)
{
    seq_tile s;
    if (!find_seq_tile<M>(a, index, a.group, s)) return false;
    const uint32_t all = s.n_rows * a.group;
    t.seq = s.seq;
    t.row = s.row;
    t.position = s.position;
    t.end = t.position + s.n_rows - 1;
    t.pair = s.tile * M;
    t.pairs = all - t.pair < M ? all - t.pair : M;
    t.low = first_key_any(a, t.position + t.pair / a.group);
    t.high = last_key_any(a, t.position + (t.pair + t.pairs - 1) / a.group, t.end);
    return true;
}

/* Query i of a tile; there: it exists. */
struct latent_query {
    uint32_t row, head, position;
    bool there;
};
__device__ __forceinline__ latent_query query_of(const attend_args &a, const latent_tile &t, uint32_t kv, uint32_t i)
{
    const uint32_t pair = t.pair + (i < t.pairs ? i : 0), row = pair / a.group;
    return latent_query{ t.row + row, kv * a.group + (pair - row * a.group), t.position + row, i < t.pairs };
}

/* ---- shared memory ------------------------------------------------------------------------------------- */

/* TILES: of 16 queries. One tile's queries are kept in registers. */
template <int K, int TILES> struct alignas(128) latent_shared {
    __half page[2][KV_PAGE * K];
    __half q[TILES > 1 ? 16 * TILES *K : 8];        /* in blocks as in a page */
    float part[QUARTERS][16 * TILES * PART_STRIDE]; /* scores of the quarters: [query][position] */
    __half p[16 * TILES * P_STRIDE];                /* probabilities: [query][position] */
    float old[16 * TILES], grow[16 * TILES];        /* factors of what was there before, and of what comes to it */
};

/* Asks for a page of a KV head. */
template <int K> __device__ __forceinline__ void ask_latent(uint32_t to, const attend_args &a, uint32_t id, uint32_t kv)
{
    const __half *from = a.cache + (uint64_t)id * a.page_halves + (uint64_t)kv * (KV_PAGE * K);
    for (uint32_t i = threadIdx.x; i < KV_PAGE * K / 8; i += LATENT_THREADS) copy16(to + i * 16, from + i * 8);
}

/* Zeros in place of positions that no row of the tile sees: 0 times NaN is NaN. */
template <int K> __device__ __forceinline__ void clear_latent(__half *page, const latent_tile &t, uint32_t first)
{
    for (uint32_t i = threadIdx.x; i < KV_PAGE * K / 8; i += LATENT_THREADS) {
        const uint32_t slot = i / (K / 8), p = first + slot;
        if (p < t.low || p > t.high)
            *reinterpret_cast<uint4 *>(page + block_offset<K>(slot, i % (K / 8))) = make_uint4(0, 0, 0, 0);
    }
}

/* ---- queries ------------------------------------------------------------------------------------------- */

/* A fragments of the warp's quarter of 16 queries. */
template <int K> struct latent_queries {
    uint32_t x[K / 64][4];
};

/* q_half: [rows][heads][K]. */
template <int K>
__device__ __forceinline__ void load_latent(latent_queries<K> &q, const __half *q_half, const attend_args &a,
                                            const latent_tile &t, uint32_t kv)
{
    const uint32_t lane = threadIdx.x & 31u, first = threadIdx.x / 32 % QUARTERS * (K / QUARTERS) + 2 * (lane & 3);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const latent_query at = query_of(a, t, kv, 8 * h + (lane >> 2));
        const __half *from = q_half + ((uint64_t)at.row * a.heads + at.head) * K + first;
#pragma unroll
        for (int c = 0; c < K / 64; c++)
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
                q.x[c][h + 2 * j] = at.there ? __ldcg(reinterpret_cast<const uint32_t *>(from + 16 * c + 8 * j)) : 0u;
    }
}
/* The same of several tiles, into shared memory. */
template <int K, int TILES>
__device__ __forceinline__ void copy_latent(latent_shared<K, TILES> &m, const __half *q_half, const attend_args &a,
                                            const latent_tile &t, uint32_t kv)
{
    for (uint32_t i = threadIdx.x; i < 16 * TILES * (K / 8); i += LATENT_THREADS) {
        const uint32_t block = i / 8, c = block % (K / 8);
        const latent_query at = query_of(a, t, kv, block / (K / 8) * 8 + i % 8);
        copy16_or_zero(shared_address(m.q) + i * 16, q_half + ((uint64_t)at.row * a.heads + at.head) * K + c * 8,
                       at.there);
    }
}

/* ---- a page -------------------------------------------------------------------------------------------- */

/* The warp's share of the scores: a quarter of the key, 16 positions. */
template <int K, int TILES>
__device__ __forceinline__ void latent_scores(latent_shared<K, TILES> &m, const latent_queries<K> &q, uint32_t page)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, quarter = warp % QUARTERS, side = warp / QUARTERS,
                   first = quarter * (K / 64) * 256;
    const uint32_t k_at =
        page + (2 * side + (lane >> 4)) * (K * 16) + ((lane >> 3) & 1) * 128 + (lane & 7) * 16 + first;
    const uint32_t q_at =
        shared_address(m.q) + ((lane >> 3) & 1) * (K * 16) + (lane >> 4) * 128 + (lane & 7) * 16 + first;
    float s[TILES][2][4] = {};
#pragma unroll
    for (int c = 0; c < K / 64; c++) {
        uint32_t b[4];
        load_matrices(b, k_at + c * 256);
#pragma unroll
        for (int r = 0; r < TILES; r++) {
            uint32_t x[4] = { q.x[c][0], q.x[c][1], q.x[c][2], q.x[c][3] };
            if (TILES > 1) load_matrices(x, q_at + r * (2 * K * 16) + c * 256);
            mma_f16(s[r][0], x[0], x[1], x[2], x[3], b[0], b[1]);
            mma_f16(s[r][1], x[0], x[1], x[2], x[3], b[2], b[3]);
        }
    }
    float *to = m.part[quarter] + (lane >> 2) * PART_STRIDE + 16 * side + 2 * (lane & 3);
#pragma unroll
    for (int r = 0; r < TILES; r++)
#pragma unroll
        for (int i = 0; i < 4; i++) /* rows g and g + 8, positions 2t and 8 + 2t */
            *reinterpret_cast<float2 *>(to + (16 * r + 8 * (i & 1)) * PART_STRIDE + 8 * (i / 2)) =
                make_float2(s[r][i / 2][2 * (i & 1)], s[r][i / 2][2 * (i & 1) + 1]);
}

/* A warp has 2 TILES queries for itself, neighbouring lanes one: what it sees, and its maximum and sum so far. */
struct latent_row {
    uint32_t position, low, high;
    float slope, max, sum;
};
template <int TILES> __device__ __forceinline__ constexpr uint32_t row_lanes() { return 16 / TILES; }
template <int TILES> __device__ __forceinline__ uint32_t own_query() { return threadIdx.x / row_lanes<TILES>(); }

template <int TILES>
__device__ __forceinline__ latent_row own_row(const attend_args &a, const latent_tile &t, uint32_t kv)
{
    const latent_query q = query_of(a, t, kv, own_query<TILES>());
    return latent_row{ q.position,
                       first_key_any(a, q.position),
                       last_key_any(a, q.position, t.end),
                       a.slopes ? __ldg(a.slopes + q.head) : 0.0f,
                       -INFINITY,
                       0.0f };
}

/* A score of the row in units of log2; -inf where it sees nothing. */
__device__ __forceinline__ float latent_score(const attend_args &a, const latent_row &w, float s, uint32_t position)
{
    s = __fmul_rn(s, a.scale);
    if (a.softcap != 0.0f) s = capped(s, a.softcap);
    if (a.slopes) s = sloped(s, w.slope, w.position, position);
    return position < w.low || position > w.high ? -INFINITY : __fmul_rn(s, 1.4426950408889634f);
}

/* Factors of two results of maxima a and b (log2) that are added; the new maximum. */
struct latent_factors {
    float max, a, b;
};
__device__ __forceinline__ latent_factors meet(float a, float b)
{
    const float max = fmaxf(a, b), base = max == -INFINITY ? 0.0f : max;
    return latent_factors{ max, exp2_fast(__fadd_rn(a, -base)), exp2_fast(__fadd_rn(b, -base)) };
}

/* Probabilities of the page that begins at `first`, by the warps that have the rows. */
template <int K, int TILES>
__device__ __forceinline__ void latent_softmax(latent_shared<K, TILES> &m, latent_row &w, const attend_args &a,
                                               uint32_t first)
{
    constexpr uint32_t LANES = row_lanes<TILES>(), KEYS = KV_PAGE / LANES;
    const uint32_t row = own_query<TILES>(), key = threadIdx.x % LANES * KEYS;
    float s[KEYS], top = w.max;
#pragma unroll
    for (uint32_t j = 0; j < KEYS; j++) {
        const uint32_t at = row * PART_STRIDE + key + j;
        const float x = __fadd_rn(__fadd_rn(m.part[0][at], m.part[1][at]), __fadd_rn(m.part[2][at], m.part[3][at]));
        s[j] = latent_score(a, w, x, first + key + j);
        top = fmaxf(top, s[j]);
    }
#pragma unroll
    for (uint32_t d = 1; d < LANES; d <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    const float base = top == -INFINITY ? 0.0f : top, old = exp2_fast(__fadd_rn(w.max, -base));
#pragma unroll
    for (uint32_t j = 0; j < KEYS; j++) s[j] = exp2_fast(__fadd_rn(s[j], -base));
#pragma unroll
    for (uint32_t j = 0; j < KEYS; j += 2)
        *reinterpret_cast<uint32_t *>(m.p + row * P_STRIDE + key + j) = pack_half(s[j], s[j + 1]);
#pragma unroll
    for (uint32_t n = 1; n < KEYS; n <<= 1)
#pragma unroll
        for (uint32_t j = 0; j < KEYS; j += 2 * n) s[j] = __fadd_rn(s[j], s[j + n]);
#pragma unroll
    for (uint32_t d = 1; d < LANES; d <<= 1) s[0] = __fadd_rn(s[0], __shfl_xor_sync(0xffffffffu, s[0], d));
    w.sum = __fmaf_rn(w.sum, old, s[0]);
    w.max = top;
    if (key == 0) m.old[row] = old;
}

/* Results of the warp's V / 8 columns, unscaled: C fragments. */
template <int V, int TILES> struct latent_results {
    float y[TILES][V / 64][4];
};

/* The page's values times their probabilities, to what was there before. */
template <int K, int V, int TILES>
__device__ __forceinline__ void latent_values(latent_results<V, TILES> &w, const latent_shared<K, TILES> &m,
                                              uint32_t page)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u;
    const uint32_t p_at =
        shared_address(m.p) + (((lane >> 3) & 1) * 8 + (lane & 7)) * (P_STRIDE * 2) + (lane >> 4) * 16;
    const uint32_t v_at = page + (lane >> 3) * (K * 16) + warp * (V / 64) * 128 + (lane & 7) * 16;
    uint32_t p[TILES][2][4];
#pragma unroll
    for (int r = 0; r < TILES; r++) {
        load_matrices(p[r][0], p_at + r * (16 * P_STRIDE * 2));
        load_matrices(p[r][1], p_at + r * (16 * P_STRIDE * 2) + 32);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float old = m.old[16 * r + 8 * h + (lane >> 2)];
#pragma unroll
            for (int i = 0; i < V / 64; i++) {
                w.y[r][i][2 * h] = __fmul_rn(w.y[r][i][2 * h], old);
                w.y[r][i][2 * h + 1] = __fmul_rn(w.y[r][i][2 * h + 1], old);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < V / 64; i++) {
        uint32_t b[4]; /* of 8 positions each */
        load_matrices_turned(b, v_at + i * 128);
#pragma unroll
        for (int r = 0; r < TILES; r++) {
            mma_f16(w.y[r][i], p[r][0][0], p[r][0][1], p[r][0][2], p[r][0][3], b[0], b[1]);
            mma_f16(w.y[r][i], p[r][1][0], p[r][1][1], p[r][1][2], p[r][1][3], b[2], b[3]);
        }
    }
}

/* ---- splits added, results ----------------------------------------------------------------------------- */

/* A split's result to those before it; w: its row of the split, all: of those before. */
template <int K, int V>
__device__ __forceinline__ void add_split(latent_results<V, 1> &total, latent_results<V, 1> &y, latent_shared<K, 1> &m,
                                          latent_row &all, latent_row &w)
{
    const uint32_t g = (threadIdx.x & 31u) >> 2;
    const latent_factors f = meet(all.max, w.max);
    all.sum = __fmaf_rn(w.sum, f.b, __fmul_rn(all.sum, f.a));
    all.max = f.max;
    w.max = -INFINITY;
    w.sum = 0.0f;
    __syncthreads(); /* the factors of the page have been read */
    if (threadIdx.x % row_lanes<1>() == 0) m.old[own_query<1>()] = f.a, m.grow[own_query<1>()] = f.b;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V / 64; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t row = g + 8 * (k / 2);
            total.y[0][i][k] = __fmaf_rn(y.y[0][i][k], m.grow[row], __fmul_rn(total.y[0][i][k], m.old[row]));
            y.y[0][i][k] = 0.0f;
        }
}

/* Two finished values of a row's head, of columns [column, column + 2). */
__device__ __forceinline__ void store_two(const attend_args &a, uint32_t row, uint32_t head, uint32_t column, float x,
                                          float y)
{
    if (column >= a.dv) return;
    if (a.act) {
        *reinterpret_cast<__half2 *>(a.act + (uint64_t)row * a.act_k + head * a.dv + column) =
            wk_act_half2(x, y, a.shift);
        return;
    }
    float *to = a.out + row * a.out_stride + head * a.dv + column;
    to[0] = x;
    if (column + 1 < a.dv) to[1] = y;
}

/* What an act has past the row's end is 0; by the first lanes of whoever stores the last head. */
__device__ __forceinline__ void store_tail(const attend_args &a, uint32_t row, uint32_t head, uint32_t lane)
{
    const uint32_t column = a.heads * a.dv + 2 * lane;
    if (a.act && head == a.heads - 1 && column < a.act_k)
        *reinterpret_cast<__half2 *>(a.act + (uint64_t)row * a.act_k + column) = __float2half2_rn(0.0f);
}

#endif
