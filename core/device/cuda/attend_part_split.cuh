/* attend_part_split.cuh: what attention of generated rows does with a split of 256 positions: its pages on their way
 * into shared memory, scores, probabilities, values, splits of one tile added up, results. Both kernels are made of it
 * (attend_few.cuh, attend_one.cuh), so their bits are equal. */
#ifndef CORE_DEVICE_CUDA_ATTEND_PART_SPLIT_CUH
#define CORE_DEVICE_CUDA_ATTEND_PART_SPLIT_CUH

#include "device/cuda/attend_part_deal.cuh"

/* ---- pages on their way into shared memory ------------------------------------------------------------- */

/* Shared memory of a split: what every kernel has. Behind it a page of values for each warp. */
template <int D, int W> struct alignas(128) split_shared {
    __half k[W][32 * D];                    /* a page for each warp */
    __half q[QUERIES * D];                  /* [D / 8][QUERIES][8] */
    __half p[W][KV_PAGE * QUERIES];         /* probabilities: [position][query] */
    float max[W][QUERIES], sum[W][QUERIES]; /* of every page: maximum (log2), and the sum of its probabilities */
    float sinks[QUERIES];                   /* of the tile */
    uint32_t last;
    __half *at[2][W];                      /* where the item's pages lie, and the next one's */
    uint64_t k_bar[W], v_bar[1], sent_bar; /* sent_bar: what other blocks of a cluster send */
};

/* What a warp reads of an item: a page, or nothing of it. */
struct page {
    __half *at;
    bool seen;
};

template <int D, int W> __device__ __forceinline__ page page_of_item(const item &t, const attend_args &a, uint32_t warp)
{
    const uint32_t number = t.split * W + warp;
    page p;
    p.seen = number >= t.low / KV_PAGE && number <= t.high / KV_PAGE;
    p.at = p.seen ? page_of<D>(a, __ldg(page_entry(a, t.seq, number)), t.kv) : a.cache;
    return p;
}
/* which: 0 K, 1 V. By a whole warp, once an item, also when it reads nothing. */
template <int D> __device__ __forceinline__ void copy_page(const page &p, uint32_t which, uint32_t to, uint32_t bar)
{
    copy_run(to, p.at + which * (32 * D), p.seen ? 64 * D : 0, bar);
}

/* ---- what a block has to do ---------------------------------------------------------------------------- */

/* Items [begin, end) of a step. */
struct share {
    uint32_t begin, end;
};

/* The block's items of a step of one sequence; t: the first. */
template <int W, int FORM>
__device__ __forceinline__ share deal_sequence(item &t, const attend_args &a, const cuda_seq &q)
{
    item_sequence<W, FORM>(t, a, q);
    const uint32_t items = q.n_rows ? a.kv_heads * t.tiles * (t.last - t.first + 1) : 0;
    share s = { blockIdx.x, blockIdx.x + 1 };
    if (items > gridDim.x) {
        const uint32_t each = items / gridDim.x, rest = items - each * gridDim.x;
        s.begin = blockIdx.x * each + (blockIdx.x < rest ? blockIdx.x : rest);
        s.end = s.begin + each + (blockIdx.x < rest);
    }
    if (s.begin >= items) return share{ 0, 0 };
    item_within<W, FORM>(t, a, q, 0, s.begin);
    return s;
}

/* ---- scores: a page by a warp -------------------------------------------------------------------------- */

/* s[i][0..1] = scores of position 16 i + g, s[i][2..3] of position 16 i + 8 + g; of queries 2t, 2t + 1. */
template <int D> __device__ __forceinline__ void page_scores(float (&s)[2][4], uint32_t q, uint32_t k)
{
    const uint32_t lane = threadIdx.x & 31u,
                   address = k + ((lane >> 3) & 1) * (D * 16) + (lane >> 4) * 128 + (lane & 7) * 16;
    float x[2][2][4] = {}; /* even and odd runs of 16 */
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
        uint32_t b[2];
        load_matrices_2(b[0], b[1], q + c * 256 + (lane & 15) * 16);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t r[4];
            load_matrices(r, address + i * (2 * D * 16) + c * 256);
            mma_f16(x[c & 1][i], r[0], r[1], r[2], r[3], b[0], b[1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fadd_rn(x[0][i / 4][i % 4], x[1][i / 4][i % 4]);
}

/* Scale to log2, soft-cap, and -inf where a query does not see the position. */
template <int FORM>
__device__ __forceinline__ void finish_scores(float (&s)[2][4], const attend_args &a, const item &t, uint32_t start)
{
    const uint32_t lane = threadIdx.x & 31u;
    const float log2e = 1.4426950408889634f, scale = __fmul_rn(a.scale, log2e);
    if (__builtin_expect(a.softcap == 0.0f, 1)) {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fmul_rn(s[i / 4][i % 4], scale);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            s[i / 4][i % 4] = __fmul_rn(capped(__fmul_rn(s[i / 4][i % 4], a.scale), a.softcap), log2e);
    }
    if (start + KV_PAGE <= t.position + row_of_query<FORM>(a, t.tile * QUERIES) + 1 &&
        start >= first_key(a.window, t.high))
        return;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t position = t.position + row_of_query<FORM>(a, t.tile * QUERIES + 2 * (lane & 3) + j),
                       low = first_key(a.window, position), seen = position - low;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (start + (lane >> 2) - low + 8 * i > seen) s[i / 2][2 * (i % 2) + j] = -INFINITY;
    }
}

/* The page's maxima; every warp calls it. */
template <int D, int W> __device__ __forceinline__ void leave_max(split_shared<D, W> &m, const float (&s)[2][4])
{
    const uint32_t lane = threadIdx.x & 31u;
    float top[2];
#pragma unroll
    for (int j = 0; j < 2; j++) top[j] = fmaxf(fmaxf(s[0][j], s[0][2 + j]), fmaxf(s[1][j], s[1][2 + j]));
#pragma unroll
    for (int d = 4; d < 32; d <<= 1)
#pragma unroll
        for (int j = 0; j < 2; j++) top[j] = fmaxf(top[j], __shfl_xor_sync(0xffffffffu, top[j], d));
    if (lane < 4) *reinterpret_cast<float2 *>(&m.max[threadIdx.x / 32][2 * lane]) = make_float2(top[0], top[1]);
}

/* Maxima over the split of queries 2t, 2t + 1. */
template <int D, int W> __device__ __forceinline__ float2 split_max(const split_shared<D, W> &m)
{
    float2 x[W], top = make_float2(-INFINITY, -INFINITY);
#pragma unroll
    for (int i = 0; i < W; i++) x[i] = *reinterpret_cast<const float2 *>(&m.max[i][2 * (threadIdx.x & 3u)]);
#pragma unroll
    for (int i = 0; i < W; i++) top = make_float2(fmaxf(top.x, x[i].x), fmaxf(top.y, x[i].y));
    return top;
}

/* Probabilities of the page, rounded to f16, and their sum as rounded. */
template <int D, int W>
__device__ __forceinline__ void leave_probabilities(split_shared<D, W> &m, const float (&s)[2][4], float2 top)
{
    const uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32;
    const float base[2] = { top.x == -INFINITY ? 0.0f : top.x, top.y == -INFINITY ? 0.0f : top.y };
    float sum[2] = { 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const __half2 h = __floats2half2_rn(exp2_fast(__fadd_rn(s[i / 2][i % 2 * 2], -base[0])),
                                            exp2_fast(__fadd_rn(s[i / 2][i % 2 * 2 + 1], -base[1])));
        *reinterpret_cast<__half2 *>(&m.p[warp][(8 * i + (lane >> 2)) * QUERIES + 2 * (lane & 3)]) = h;
        sum[0] = __fadd_rn(sum[0], __low2float(h));
        sum[1] = __fadd_rn(sum[1], __high2float(h));
    }
#pragma unroll
    for (int d = 4; d < 32; d <<= 1)
#pragma unroll
        for (int j = 0; j < 2; j++) sum[j] = __fadd_rn(sum[j], __shfl_xor_sync(0xffffffffu, sum[j], d));
    if (lane < 4) *reinterpret_cast<float2 *>(&m.sum[warp][2 * lane]) = make_float2(sum[0], sum[1]);
}
template <int D, int W> __device__ __forceinline__ float2 split_sum(const split_shared<D, W> &m)
{
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float2 x = *reinterpret_cast<const float2 *>(&m.sum[i][2 * (threadIdx.x & 3u)]);
        sum = make_float2(__fadd_rn(sum.x, x.x), __fadd_rn(sum.y, x.y));
    }
    return sum;
}

/* ---- values: runs of 16 by a warp ---------------------------------------------------------------------- */

/* y = C fragment of values 16 slice .. of V^T P^T over the split's pages; pages outside
 * [low, high] have probabilities 0 and maybe no values: a neighbour's serve. Two pages at a time, so that their loads
 * are under way together. */
template <int D, int W>
__device__ __forceinline__ void slice_values(float (&y)[4], const split_shared<D, W> &m, uint32_t slice, uint32_t v,
                                             uint32_t low, uint32_t high)
{
    constexpr int CHAINS = W < 4 ? W : 4;
    const uint32_t lane = threadIdx.x & 31u, p_at = shared_address(m.p) + lane * 16;
    const uint32_t address = v + slice * 256 + ((lane >> 3) & 1) * 128 + (lane >> 4) * (D * 16) + (lane & 7) * 16;
    float x[CHAINS][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < W; i += 2) {
        if (i + 1 < low || i > high) continue;
        const uint32_t at[2] = { address + (i < low ? i + 1 : i) * (64 * D),
                                 address + (i + 1 > high ? i : i + 1) * (64 * D) };
        uint32_t p[2][4], v[2][2][4];
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            load_matrices_turned(p[k], p_at + (i + k) * (KV_PAGE * QUERIES * 2));
            load_matrices_turned(v[k][0], at[k]);
            load_matrices_turned(v[k][1], at[k] + 2 * D * 16);
        }
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
#pragma unroll
            for (uint32_t k = 0; k < 2; k++)
                mma_f16(x[(i + k) % CHAINS], v[k][j][0], v[k][j][1], v[k][j][2], v[k][j][3], p[k][2 * j],
                        p[k][2 * j + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        y[i] = __fadd_rn(x[0][i], x[1][i]);
        if constexpr (CHAINS == 4) y[i] = __fadd_rn(y[i], __fadd_rn(x[2][i], x[3][i]));
    }
}

/* What the splits of a tile have come to: maxima (log2) and sums of queries 2t, 2t + 1; y: fragments of the warp's runs
 * of values, not divided yet. */
template <int D, int W> struct total {
    static constexpr int slices = (D / 16 + W - 1) / W;
    float max[2], sum[2], y[slices][4];
};
template <int D, int W> __device__ __forceinline__ void total_begin(total<D, W> &r)
{
#pragma unroll
    for (int j = 0; j < 2; j++) r.max[j] = -INFINITY, r.sum[j] = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * r.slices; i++) r.y[i / 4][i % 4] = 0.0f;
}
/* Factors of what is there and of what is added, when the maximum becomes the larger one of both. */
struct factors {
    float old, add;
};
__device__ __forceinline__ factors raise(float &max, float to)
{
    const float top = fmaxf(max, to), base = top == -INFINITY ? 0.0f : top;
    const factors f = { exp2_fast(__fadd_rn(max, -base)), exp2_fast(__fadd_rn(to, -base)) };
    max = top;
    return f;
}
__device__ __forceinline__ float grown(float x, float y, const factors &f)
{
    return __fmaf_rn(y, f.add, __fmul_rn(x, f.old));
}

/* Maxima and sums of a split come to the total. f: the factors of its values. */
template <int D, int W>
__device__ __forceinline__ void add_sums(total<D, W> &r, factors (&f)[2], const split_shared<D, W> &m, float2 top)
{
    const float2 sum = split_sum(m);
    f[0] = raise(r.max[0], top.x);
    f[1] = raise(r.max[1], top.y);
    r.sum[0] = grown(r.sum[0], sum.x, f[0]);
    r.sum[1] = grown(r.sum[1], sum.y, f[1]);
}

/* ---- splits of one tile in several blocks -------------------------------------------------------------- */

template <int FORM>
__device__ __forceinline__ uint32_t part_index(const attend_args &a, const item &t, uint32_t query, uint32_t split)
{
    const uint32_t all = t.tile * QUERIES + query, at = row_of_query<FORM>(a, all);
    return ((t.row + at) * a.heads + t.kv * a.group + (all - at * a.group)) * a.max_splits + (split - t.first);
}

/* The split's result to the workspace. */
template <int D, int W, int FORM>
__device__ __forceinline__ void leave_split(const attend_args &a, const item &t, const total<D, W> &r, uint32_t n)
{
    const uint32_t warp = threadIdx.x / 32, g = (threadIdx.x & 31u) >> 2;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t query = 2 * (threadIdx.x & 3u) + j;
        if (query >= n) break;
        const uint32_t to = part_index<FORM>(a, t, query, t.split);
#pragma unroll
        for (uint32_t i = 0; i < r.slices; i++) {
            const uint32_t slice = warp + i * W;
            if (slice >= D / 16) break;
            float *y = a.part + (uint64_t)to * D + 16 * slice + g;
            y[0] = r.y[i][j];
            y[8] = r.y[i][2 + j];
        }
        if (warp == 0 && g == 0) a.part_max_sum[to] = make_float2(r.max[j], r.sum[j]);
    }
}

__device__ __forceinline__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/* The block leaves the tile after `run` of its splits, of which t is the last. True, in every thread, if all of the
 * tile's splits are there now. */
template <int D, int W, int FORM>
__device__ __forceinline__ bool leave_tile(split_shared<D, W> &m, const attend_args &a, const item &t, uint32_t run)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        fence_device(); /* for all that the barrier has brought together */
        const uint32_t tiles_a_row = (a.group + QUERIES - 1) / QUERIES;
        uint32_t *counter = a.counters + (uint64_t)(t.row * tiles_a_row + t.tile) * a.kv_heads + t.kv;
        m.last = atomicAdd(counter, run) + run == t.last - t.first + 1;
        if (m.last) *counter = 0;
        if (m.last) fence_device();
    }
    __syncthreads();
    return m.last != 0;
}

/* All splits of the tile, in order: of a block that goes on, or when they are too many for its memory. */
template <int D, int W, int FORM>
__device__ __forceinline__ void gather_splits(const attend_args &a, const item &t, total<D, W> &r, uint32_t n)
{
    constexpr uint32_t AT_ONCE = FORM == FORM_ANY ? 2 : 4;
    const uint32_t warp = threadIdx.x / 32, g = (threadIdx.x & 31u) >> 2, query = 2 * (threadIdx.x & 3u);
    const uint32_t from[2] = { part_index<FORM>(a, t, query < n ? query : 0, t.first),
                               part_index<FORM>(a, t, query + 1 < n ? query + 1 : 0, t.first) };
    const total<D, W> none = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, {} };
    r = none;
#pragma unroll
    for (uint32_t i = 0; i < r.slices; i++) {
        const uint32_t slice = warp + i * W < D / 16 ? warp + i * W : 0, splits = t.last - t.first + 1;
#pragma unroll
        for (int j = 0; j < 2; j++) r.max[j] = -INFINITY, r.sum[j] = 0.0f;
#pragma unroll 1
        for (uint32_t s = 0; s < splits; s += AT_ONCE) {
            float2 ms[AT_ONCE][2];
            float y[AT_ONCE][4];
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const bool there = s + k < splits && query + j < n;
                    const float *at = a.part + (uint64_t)(from[j] + s + k) * D + 16 * slice + g;
                    ms[k][j] = there ? __ldcg(a.part_max_sum + from[j] + s + k) : make_float2(-INFINITY, 0.0f);
                    y[k][j] = there ? __ldcg(at) : 0.0f;
                    y[k][2 + j] = there ? __ldcg(at + 8) : 0.0f;
                }
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (s + k >= splits) break;
                    const factors f = raise(r.max[j], ms[k][j].x);
                    r.sum[j] = grown(r.sum[j], ms[k][j].y, f);
                    r.y[i][j] = grown(r.y[i][j], y[k][j], f);
                    r.y[i][2 + j] = grown(r.y[i][2 + j], y[k][2 + j], f);
                }
        }
    }
}

/* The same by a block that ends here, through its memory for keys: all asked for at once. */
template <int D, int W> __device__ __forceinline__ constexpr uint32_t gather_rows()
{
    return W * 16;
} /* of D values, that it has room for */
template <int D, int W, int FORM>
__device__ __forceinline__ void gather_at_once(split_shared<D, W> &m, const attend_args &a, const item &t,
                                               total<D, W> &r, uint32_t n)
{
    const uint32_t warp = threadIdx.x / 32, g = (threadIdx.x & 31u) >> 2, splits = t.last - t.first + 1;
    float *const rows = reinterpret_cast<float *>(m.k);      /* [n][splits][D] */
    float2 *const max_sum = reinterpret_cast<float2 *>(m.p); /* [n][splits] */
    static_assert(sizeof m.p >= gather_rows<D, W>() * sizeof(float2) &&
                      sizeof m.k >= gather_rows<D, W>() * D * sizeof(float),
                  "room for all");
#pragma unroll 1
    for (uint32_t query = 0; query < n; query++) {
        const float *from = a.part + (uint64_t)part_index<FORM>(a, t, query, t.first) * D;
        for (uint32_t i = threadIdx.x * 4; i < splits * D; i += 128 * W)
            copy16(shared_address(rows + query * splits * D + i), from + i);
    }
    copy_commit();
    for (uint32_t i = threadIdx.x; i < n * splits; i += 32 * W)
        max_sum[i] = __ldcg(a.part_max_sum + part_index<FORM>(a, t, i / splits, t.first) + i % splits);
    copy_wait<0>();
    __syncthreads();
    total_begin(r);
#pragma unroll 4
    for (uint32_t s = 0; s < splits; s++)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t query = 2 * (threadIdx.x & 3u) + j, row = (query < n ? query : 0) * splits + s;
            const float2 ms = max_sum[row];
            const factors f = raise(r.max[j], ms.x);
            r.sum[j] = grown(r.sum[j], ms.y, f);
#pragma unroll
            for (uint32_t i = 0; i < r.slices; i++) {
                const float *y = rows + row * D + 16 * (warp + i * W < D / 16 ? warp + i * W : 0) + g;
                r.y[i][j] = grown(r.y[i][j], y[0], f);
                r.y[i][2 + j] = grown(r.y[i][2 + j], y[8], f);
            }
        }
}

/* ---- results ------------------------------------------------------------------------------------------- */

/* What the results of queries 2t, 2t + 1 are multiplied by. */
template <int D, int W>
__device__ __forceinline__ float2 result_factors(const split_shared<D, W> &m, const attend_args &a,
                                                 const float (&max)[2], const float (&sum)[2])
{
    const uint32_t query = 2 * (threadIdx.x & 3u);
    return make_float2(value_factor(max[0], sum[0], a.sinks != NULL, m.sinks[query]),
                       value_factor(max[1], sum[1], a.sinks != NULL, m.sinks[query + 1]));
}

/* Results of the tile's queries 2t, 2t + 1, values 16 slice + g and + 8. */
template <int FORM>
__device__ __forceinline__ void store_slice(const attend_args &a, const item &t, const float (&y)[4], float2 factor,
                                            uint32_t slice, uint32_t n)
{
    const uint32_t g = (threadIdx.x & 31u) >> 2, d = 16 * slice + g;
    if (16 * slice >= a.dv) return;
#pragma unroll
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t query = 2 * (threadIdx.x & 3u) + j, all = t.tile * QUERIES + (query < n ? query : 0),
                       at = row_of_query<FORM>(a, all), head = t.kv * a.group + (all - at * a.group);
        const float x = __fmul_rn(y[j], j ? factor.y : factor.x), z = __fmul_rn(y[2 + j], j ? factor.y : factor.x);
        if (!a.act) {
            float *to = a.out + (t.row + at) * a.out_stride + head * a.dv + d;
            if (query < n && d < a.dv) to[0] = x;
            if (query < n && d + 8 < a.dv) to[8] = z;
            continue;
        }
        if (query >= n) continue;
        __half *const to = a.act + (uint64_t)(t.row + at) * a.act_k + head * a.dv + d;
        to[0] = wk_act_half(x, a.shift);
        to[8] = wk_act_half(z, a.shift);
    }
}

/* What an act has past the row's end is 0; by a block. */
template <int FORM> __device__ __forceinline__ void store_end(const attend_args &a, const item &t, uint32_t n)
{
    const uint32_t width = a.heads * a.dv;
    if (!a.act || a.act_k <= width || t.kv != a.kv_heads - 1 || threadIdx.x >= a.act_k - width) return;
    for (uint32_t query = 0; query < n; query++)
        a.act[(uint64_t)(t.row + row_of_query<FORM>(a, t.tile * QUERIES + query)) * a.act_k + width + threadIdx.x] =
            __float2half_rn(0.0f);
}

/* The tile's results. */
template <int D, int W, int FORM>
__device__ __forceinline__ void store_results(const split_shared<D, W> &m, const attend_args &a, const item &t,
                                              const total<D, W> &r, uint32_t n)
{
    const float2 factor = result_factors(m, a, r.max, r.sum);
#pragma unroll
    for (uint32_t i = 0; i < r.slices; i++) store_slice<FORM>(a, t, r.y[i], factor, threadIdx.x / 32 + i * W, n);
    store_end<FORM>(a, t, n);
}

/* The block leaves the tile after `run` of its splits, of which t is the last: its results, if they are whole, or
 * become so because the others have left theirs. last: the block ends here. */
template <int D, int W, int FORM>
__device__ __forceinline__ void end_tile(split_shared<D, W> &m, const attend_args &a, const item &t, total<D, W> &r,
                                         uint32_t n, uint32_t run, bool &whole, bool last)
{
    if (__builtin_expect(!whole, 0) && leave_tile<D, W, FORM>(m, a, t, run)) {
        if (last && n * (t.last - t.first + 1) <= gather_rows<D, W>())
            gather_at_once<D, W, FORM>(m, a, t, r, n);
        else
            gather_splits<D, W, FORM>(a, t, r, n);
        whole = true;
    }
    if (whole) store_results<D, W, FORM>(m, a, t, r, n);
}

#endif
