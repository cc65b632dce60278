/* attend_latent.cu: attention over values that are parts of keys: one launch finishes q and k and fills the pages, one
 * attends, and of few generated rows one more adds what the splits of the context gave.
 *
 * The arithmetic of a page is attend_latent.cuh's. Rows of a prompt take their context as one split. Generated rows add
 * it split by split, in order: where tiles fill the machine a block does so itself, as it goes; else every split is a
 * block's, and the next launch adds them, on the same numbers in the same order. So bits depend on neither.
 *
 * Two pages and the rest of a block fit in the 99 KB of shared memory that every GPU has; tiles of 64 rows need 188 KB.
 * Masks are by row, so one kernel serves windows, chunks, slopes, both directions and the cache of another layer. */
#include "device/cuda/attend_latent.cuh"

#include "device/cuda/launch.cuh"

/* ---- sizes --------------------------------------------------------------------------------------------- */

struct latent_size {
    uint32_t keys, values;
};
static const struct latent_size latent_sizes[] = { { 64, 64 }, { 320, 256 }, { 576, 512 } };

/* NULL: too large, or no values. */
static const struct latent_size *latent_size_of(uint32_t dk, uint32_t dv)
{
    for (uint32_t i = 0; dv && i < sizeof latent_sizes / sizeof *latent_sizes; i++)
        if (dk <= latent_sizes[i].keys && dv <= latent_sizes[i].values) return &latent_sizes[i];
    return NULL;
}

uint32_t latent_head(uint32_t dk, uint32_t dv)
{
    const struct latent_size *s = latent_size_of(dk, dv);
    return s ? s->keys : 0;
}

bool cuda_latent_serves(uint32_t dk, uint32_t dv) { return latent_head(dk, dv) != 0; }

uint64_t cuda_latent_page_bytes(uint32_t kv_heads, uint32_t dk, uint32_t dv)
{
    return (uint64_t)kv_heads * KV_PAGE * latent_head(dk, dv) * sizeof(__half);
}

uint64_t cuda_latent_query_bytes(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv)
{
    return (uint64_t)rows * heads * latent_head(dk, dv) * sizeof(__half);
}

/* Most tiles of 16 queries of which each split is a block's. As many blocks as there are more tiles keep memory busy,
 * and partial results, 32 KiB a tile and split, would cost as much as they gain. */
enum { SPLIT_TILES = 64 };

static uint32_t splits_of(uint32_t context) { return split_of((context - 1) / KV_PAGE) + 1; }

uint64_t cuda_latent_workspace(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t context)
{
    const uint64_t all = (uint64_t)rows * heads, pairs = all < 16 * SPLIT_TILES ? all : 16 * SPLIT_TILES;
    return pairs * splits_of(context) * (latent_size_of(dk, dv)->values * sizeof(float) + sizeof(float2));
}

/* ---- the store ----------------------------------------------------------------------------------------- */

enum { STORE_WARPS = 8 };

/* A warp finishes a head of q or k of one row. q_half: [rows][heads][K]. */
template <int K>
__global__ void __launch_bounds__(32 * STORE_WARPS)
    latent_store(const __grid_constant__ attend_args a, __half *q_half, uint32_t rows)
{
    __shared__ float row_of[STORE_WARPS][K];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, unit = blockIdx.y,
                   row = blockIdx.x * STORE_WARPS + warp;
    const bool q = unit < a.heads;
    wk_release();
    wk_depend();
    if (row >= rows) return;
    head_values<K> h;
    load_head<K>(h, place_head(q ? a.q : a.k, row, q ? unit : unit - a.heads, a.dk));
    uint32_t seq = 0, position = 0;
    if (!q && !find_row(a, row, &seq, &position)) return;
    finish_head<K>(row_of[warp], h, q ? a.q : a.k, a.dk);
    __half *const page = q ? q_half + ((uint64_t)row * a.heads + unit) * K
                           : a.cache + (uint64_t)__ldg(page_entry(a, seq, position / KV_PAGE)) * a.page_halves +
                                 (uint64_t)(unit - a.heads) * (KV_PAGE * K);
    for (uint32_t c = lane; c < K / 8; c += 32)
        *reinterpret_cast<uint4 *>(page + (q ? 8 * c : block_offset<K>(position % KV_PAGE, c))) =
            half_chunk(row_of[warp] + 8 * c);
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* few: generated rows: keys of earlier steps are asked for ahead of the launch before, and the context is added split
 * by split; apart: each split is a block's, and its result goes to the workspace. */
struct latent_way {
    bool few, apart;
};

/* The block's pages: [from, to]. false: none. */
struct latent_run {
    uint32_t from, to;
};
__device__ __forceinline__ bool run_of(latent_run &r, const latent_tile &t, bool apart)
{
    r = latent_run{ t.low / KV_PAGE, t.high / KV_PAGE };
    if (!apart) return true;
    const uint32_t begin = blockIdx.z ? split_end(blockIdx.z - 1) : 0, end = split_end(blockIdx.z);
    if (begin > r.to || end <= r.from) return false;
    r.from = begin > r.from ? begin : r.from;
    r.to = end - 1 < r.to ? end - 1 : r.to;
    return true;
}

/* What a split that is a block's leaves: [row][head][split][V], and maxima and sums beside. */
template <int V>
__device__ __forceinline__ void leave_split(const latent_results<V, 1> &y, const latent_row &w, const attend_args &a,
                                            const latent_tile &t, uint32_t kv)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, split = blockIdx.z;
    const latent_query own = query_of(a, t, kv, own_query<1>());
    if (own.there && threadIdx.x % row_lanes<1>() == 0)
        a.part_max_sum[((uint64_t)own.row * a.heads + own.head) * a.max_splits + split] = make_float2(w.max, w.sum);
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const latent_query q = query_of(a, t, kv, 8 * h + (lane >> 2));
        float *to = a.part + (((uint64_t)q.row * a.heads + q.head) * a.max_splits + split) * V + warp * (V / 8) +
                    2 * (lane & 3);
        if (!q.there) continue;
#pragma unroll
        for (int i = 0; i < V / 64; i++)
            *reinterpret_cast<float2 *>(to + 8 * i) = make_float2(y.y[0][i][2 * h], y.y[0][i][2 * h + 1]);
    }
}

template <int K, int V, int TILES>
__device__ __forceinline__ void store_latent(const latent_results<V, TILES> &y, latent_shared<K, TILES> &m,
                                             const latent_row &w, const attend_args &a, const latent_tile &t,
                                             uint32_t kv)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u;
    const latent_query own = query_of(a, t, kv, own_query<TILES>());
    __syncthreads(); /* the factors before have been read */
    if (threadIdx.x % row_lanes<TILES>() == 0)
        m.grow[own_query<TILES>()] =
            value_factor(w.max, w.sum, a.sinks != NULL, a.sinks ? __ldg(a.sinks + own.head) : 0.0f);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < TILES; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = 16 * r + 8 * h + (lane >> 2);
            const latent_query q = query_of(a, t, kv, at);
            const float f = m.grow[at];
            if (!q.there) continue;
#pragma unroll
            for (int i = 0; i < V / 64; i++)
                store_two(a, q.row, q.head, warp * (V / 8) + 8 * i + 2 * (lane & 3), __fmul_rn(y.y[r][i][2 * h], f),
                          __fmul_rn(y.y[r][i][2 * h + 1], f));
        }
    if (own.there) store_tail(a, own.row, own.head, threadIdx.x % row_lanes<TILES>());
}

template <int K, int V, int TILES>
__global__ void __launch_bounds__(LATENT_THREADS, TILES > 1 ? 1 : 2)
    latent_attend(const __grid_constant__ attend_args a, const __half *q_half, latent_way way)
{
    extern __shared__ __align__(128) unsigned char memory[];
    latent_shared<K, TILES> &m = *reinterpret_cast<latent_shared<K, TILES> *>(memory);
    const uint32_t kv = blockIdx.y;
    latent_tile t;
    latent_run run;
    wk_release();
    if (!way.few) wk_depend();
    if (!find_latent<16 * TILES>(a, blockIdx.x, t) || !run_of(run, t, way.apart)) {
        if (way.few) wk_depend();
        return;
    }
    uint32_t id = __ldg(page_entry(a, t.seq, run.from));
    const bool early = way.few && (run.from + 1) * KV_PAGE <= t.position; /* nothing of the page is of this step */
    if (early) ask_latent<K>(shared_address(m.page[0]), a, id, kv);
    if (way.few) wk_depend();
    if (!early) ask_latent<K>(shared_address(m.page[0]), a, id, kv);
    latent_queries<K> q = {};
    if (TILES > 1)
        copy_latent<K, TILES>(m, q_half, a, t, kv);
    else
        load_latent<K>(q, q_half, a, t, kv);
    copy_commit();
    if (run.from < run.to) id = __ldg(page_entry(a, t.seq, run.from + 1));

    latent_row w = own_row<TILES>(a, t, kv), all = w;
    latent_results<V, TILES> y = {}, total = {}; /* total: of one tile */
    uint32_t edge = way.few ? split_end(split_of(run.from)) : UINT32_MAX, at = 0;
    for (uint32_t page = run.from; page <= run.to; page++, at ^= 1) {
        const uint32_t keys = shared_address(m.page[at]);
        copy_wait<0>();
        __syncthreads();
        if (page < run.to) {
            ask_latent<K>(shared_address(m.page[at ^ 1]), a, id, kv);
            if (page + 1 < run.to) id = __ldg(page_entry(a, t.seq, page + 2));
        }
        copy_commit();
        if (page * KV_PAGE < t.low || (page + 1) * KV_PAGE - 1 > t.high) {
            clear_latent<K>(m.page[at], t, page * KV_PAGE);
            __syncthreads();
        }
        latent_scores<K, TILES>(m, q, keys);
        __syncthreads();
        latent_softmax<K, TILES>(m, w, a, page * KV_PAGE);
        __syncthreads();
        latent_values<K, V, TILES>(y, m, keys);
        if constexpr (TILES == 1) {
            if (way.apart || (page < run.to && page + 1 < edge)) continue;
            add_split<K, V>(total, y, m, all, w);
            edge = split_end(split_of(page + 1));
        }
    }
    if constexpr (TILES > 1)
        store_latent<K, V, TILES>(y, m, w, a, t, kv);
    else if (way.apart)
        leave_split<V>(y, w, a, t, kv);
    else
        store_latent<K, V, TILES>(total, m, all, a, t, kv);
}

/* ---- splits that were a block's each ------------------------------------------------------------------- */

enum { AT_ONCE = 8 }; /* splits that a thread asks for together */

/* A block has a row's head, a thread four values of it: the sums of add_split, in their order. */
template <int V> __global__ void __launch_bounds__(V / 4) latent_meet(const __grid_constant__ attend_args a)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y, column = 4 * threadIdx.x;
    uint32_t seq = 0, position = 0;
    wk_release();
    const bool there = find_row(a, row, &seq, &position);
    wk_depend();
    if (!there) return;
    const uint32_t from = split_of(first_key_any(a, position) / KV_PAGE),
                   to = split_of(last_key_any(a, position, a.seq[seq].position + a.seq[seq].n_rows - 1) / KV_PAGE);
    const uint64_t at = ((uint64_t)row * a.heads + head) * a.max_splits;
    float max = -INFINITY, sum = 0.0f, y[4] = {};
    for (uint32_t split = from; split <= to; split += AT_ONCE) {
        float4 v[AT_ONCE];
        float2 w[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (split + i > to) break;
            v[i] = __ldcg(reinterpret_cast<const float4 *>(a.part + (at + split + i) * V + column));
            w[i] = __ldcg(a.part_max_sum + at + split + i);
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (split + i > to) break;
            const latent_factors f = meet(max, w[i].x);
            const float x[4] = { v[i].x, v[i].y, v[i].z, v[i].w };
            max = f.max;
            sum = __fmaf_rn(w[i].y, f.b, __fmul_rn(sum, f.a));
#pragma unroll
            for (int k = 0; k < 4; k++) y[k] = __fmaf_rn(x[k], f.b, __fmul_rn(y[k], f.a));
        }
    }
    const float f = value_factor(max, sum, a.sinks != NULL, a.sinks ? __ldg(a.sinks + head) : 0.0f);
    store_two(a, row, head, column, __fmul_rn(y[0], f), __fmul_rn(y[1], f));
    store_two(a, row, head, column + 2, __fmul_rn(y[2], f), __fmul_rn(y[3], f));
    store_tail(a, row, head, threadIdx.x);
}

/* ---- scores for taps ----------------------------------------------------------------------------------- */

/* A block a (row, head), a thread a key. */
template <int K>
__global__ void latent_tap(const __grid_constant__ attend_args a, const __half *q_half, uint32_t keys, float *out)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y, kv = head / a.group;
    const __half *q = q_half + ((uint64_t)row * a.heads + head) * K;
    uint32_t seq = 0, position = 0;
    const bool any = find_row(a, row, &seq, &position);
    const uint32_t end = any ? last_key_any(a, position, a.seq[seq].position + a.seq[seq].n_rows - 1) : 0;
    for (uint32_t p = threadIdx.x; p < keys; p += blockDim.x) {
        float s = -INFINITY;
        if (any && p >= first_key_any(a, position) && p <= end) {
            const __half *k =
                a.cache + (uint64_t)*page_entry(a, seq, p / KV_PAGE) * a.page_halves + (uint64_t)kv * (KV_PAGE * K);
            s = 0.0f;
            for (uint32_t d = 0; d < K; d++)
                s = __fmaf_rn(__half2float(q[d]), __half2float(k[block_offset<K>(p % KV_PAGE, d / 8) + d % 8]), s);
            s = __fmul_rn(s, a.scale);
            if (a.softcap != 0.0f) s = capped(s, a.softcap);
            if (a.slopes) s = sloped(s, a.slopes[head], position, p);
        }
        out[((uint64_t)row * a.heads + head) * keys + p] = s;
    }
}

/* ---- launches ------------------------------------------------------------------------------------------ */

template <int K>
static wk_status launch_store(const struct cuda_attend *a, const struct attend_args &x, void *q_half, void *stream,
                              const struct wk_err *err)
{
    const dim3 grid((a->batch->rows + STORE_WARPS - 1) / STORE_WARPS, x.heads + (a->k ? x.kv_heads : 0));
    return cuda_launch("latent_store", latent_store<K>, grid, dim3(32 * STORE_WARPS), 0, true, stream, err, x,
                       static_cast<__half *>(q_half), a->batch->rows);
}

wk_status cuda_latent_store(const struct cuda_attend *a, void *q_half, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "latent_store", true, q_half, &x, err);
    if (s != WK_OK) return s;
    switch (x.head) {
    case 64: return launch_store<64>(a, x, q_half, stream, err);
    case 320: return launch_store<320>(a, x, q_half, stream, err);
    default: return launch_store<576>(a, x, q_half, stream, err);
    }
}

/* Tiles of M queries of a KV head that the rows fill, at most. */
static uint64_t most_tiles(const struct cuda_attend *a, const struct attend_args &x, uint32_t m)
{
    const uint64_t rows = a->batch->rows, by_row = rows * ((x.group + m - 1) / m), by_seq = rows * x.group / m + x.seqs;
    return by_row < by_seq ? by_row : by_seq;
}

template <int K, int V, int TILES>
static wk_status launch_tiles(const struct attend_args &x, uint64_t tiles, const void *q_half, latent_way way,
                              void *stream, const struct wk_err *err)
{
    constexpr size_t bytes = sizeof(latent_shared<K, TILES>);
    static_assert(TILES > 1 || bytes <= WK_LEAST_BLOCK_BYTES, "fits on every GPU"); /* more: where has_room says so */
    const wk_status s = cuda_status(
        cudaFuncSetAttribute(latent_attend<K, V, TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "latent_attend", err);
    if (s != WK_OK) return s;
    const dim3 grid((uint32_t)tiles, x.kv_heads, way.apart ? x.max_splits : 1);
    return cuda_launch("latent_attend", latent_attend<K, V, TILES>, grid, dim3(LATENT_THREADS), bytes, true, stream,
                       err, x, static_cast<const __half *>(q_half), way);
}

/* Has a block room for tiles of 64 queries? */
template <int K> static bool has_room(const struct attend_device &d)
{
    return sizeof(latent_shared<K, 4>) <= (size_t)d.block_bytes;
}

template <int K, int V>
static wk_status launch_latent(const struct cuda_attend *a, struct attend_args &x, const void *q_half, uint32_t context,
                               void *stream, const struct wk_err *err)
{
    const uint64_t pairs = (uint64_t)a->batch->rows * x.heads;
    struct attend_device d = {}; /* generated rows leave zeros: no room, so tiles of 16 */
    wk_status s = context ? WK_OK : attend_device_of(&d, err);
    if (s == WK_OK && has_room<K>(d) && 2 * pairs / 64 >= (uint64_t)d.processors) /* they fill half of the machine */
        return launch_tiles<K, V, 4>(x, most_tiles(a, x, 64), q_half, latent_way{ false, false }, stream, err);
    const uint64_t tiles = most_tiles(a, x, 16);
    x.max_splits = context ? splits_of(context) : 1;
    const bool apart = x.max_splits > 1 && tiles * x.kv_heads <= SPLIT_TILES;
    x.part = static_cast<float *>(a->workspace);
    x.part_max_sum = reinterpret_cast<float2 *>(x.part + (apart ? pairs * x.max_splits * V : 0));
    if (s == WK_OK) s = launch_tiles<K, V, 1>(x, tiles, q_half, latent_way{ context != 0, apart }, stream, err);
    if (s != WK_OK || !apart) return s;
    return cuda_launch("latent_meet", latent_meet<V>, dim3(a->batch->rows, x.heads), dim3(V / 4), 0, true, stream, err,
                       x);
}

/* A block of each kernel that finds no sequence. */
template <int K, int V>
static wk_status load_latent_kernels(struct attend_args &x, const void *q_half, void *stream, const struct wk_err *err)
{
    const latent_way prompt = { false, false };
    struct attend_device d;
    x.seqs = 0;
    wk_status s = attend_device_of(&d, err);
    if (s == WK_OK) s = launch_tiles<K, V, 1>(x, 1, q_half, prompt, stream, err);
    return s != WK_OK || !has_room<K>(d) ? s : launch_tiles<K, V, 4>(x, 1, q_half, prompt, stream, err);
}

wk_status cuda_latent_load(const struct cuda_attend *a, const void *q_half, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "latent_load", true, q_half, &x, err);
    if (s != WK_OK) return s;
    switch (x.head) {
    case 64: return load_latent_kernels<64, 64>(x, q_half, stream, err);
    case 320: return load_latent_kernels<320, 256>(x, q_half, stream, err);
    default: return load_latent_kernels<576, 512>(x, q_half, stream, err);
    }
}

wk_status cuda_latent(const struct cuda_attend *a, const void *q_half, uint32_t context, void *stream,
                      const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "latent", true, q_half, &x, err);
    if (s != WK_OK) return s;
    if (context && !a->workspace) return wk_fail(err, WK_INVALID, "latent: no workspace");
    switch (x.head) {
    case 64: return launch_latent<64, 64>(a, x, q_half, context, stream, err);
    case 320: return launch_latent<320, 256>(a, x, q_half, context, stream, err);
    default: return launch_latent<576, 512>(a, x, q_half, context, stream, err);
    }
}

template <int K>
static wk_status launch_tap(const struct attend_args &x, const void *q_half, uint32_t rows, uint32_t keys, float *out,
                            void *stream, const struct wk_err *err)
{
    return cuda_launch("latent_tap", latent_tap<K>, dim3(rows, x.heads), dim3(128), 0, false, stream, err, x,
                       static_cast<const __half *>(q_half), keys, out);
}

wk_status cuda_latent_scores(const struct cuda_attend *a, const void *q_half, uint32_t keys, float *out, void *stream,
                             const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "latent_scores", true, q_half, &x, err);
    if (s != WK_OK) return s;
    if (!out || !keys) return wk_fail(err, WK_INVALID, "latent_scores: no output");
    switch (x.head) {
    case 64: return launch_tap<64>(x, q_half, a->batch->rows, keys, out, stream, err);
    case 320: return launch_tap<320>(x, q_half, a->batch->rows, keys, out, stream, err);
    default: return launch_tap<576>(x, q_half, a->batch->rows, keys, out, stream, err);
    }
}
