/* attend.cu: attention of generated rows: one launch does head norms, rotation, the store of k and v, and attention over the paged cache.
 *
 * Work. An item is one split of W pages at absolute positions, of one KV head of one sequence, for a tile of 8 queries (rows x query heads of that KV
 * head), so K and V are read once for all of them. A fixed grid deals the items of the step out by their lengths, in runs; a block without
 * items waits for its predecessor and leaves. Each of the W warps has the page of its index, in a private slot of shared memory that is filled
 * again as soon as it has been used: the first pages are on their way before the launches that this one depends on have finished. Only what
 * earlier steps stored is used of such a page: the block finishes k and v of the step's rows itself, puts them into its copy of the page, and
 * stores them if its tile holds the row's first query. So each is stored once, and no block waits for another.
 *
 * Tensor cores work with positions (K) or values (V, transposed) as the 16 rows and queries as the 8 columns: a column's sums do not depend on
 * its neighbours, and one query costs what eight do, which is little beside the reading.
 *
 * Splits of one tile meet in the workspace: the last block to finish, by an integer counter, adds them up. Orders of addition come from absolute
 * positions alone: within a page, then pages of a split in order, then splits by their index modulo W, then those in order. */
#include "device/cuda/attend.cuh"

#include "device/cuda/launch.cuh"

enum { QUERIES = 8 };

/* ---- items --------------------------------------------------------------------------------------------------------- */

struct item {
    uint32_t seq, kv, tile, split;
    uint32_t row, n_rows, position; /* of the sequence */
    uint32_t tiles, first, last;    /* tiles of queries; splits that any of them sees */
};

__device__ __forceinline__ uint32_t by_group(const attend_args &a, uint32_t x) { return a.group == 1 ? x : __umulhi(x, a.group_magic); }
__device__ __forceinline__ uint32_t tiles_of(const attend_args &a, uint32_t n_rows) { return (n_rows * a.group + QUERIES - 1) / QUERIES; }

template <int W> __device__ __forceinline__ uint32_t first_split(const attend_args &a, const cuda_seq &s) { return first_key(a.window, s.position) / (W * KV_PAGE); }
template <int W> __device__ __forceinline__ uint32_t last_split(const cuda_seq &s) { return (s.position + s.n_rows - 1) / (W * KV_PAGE); }

template <int W> __device__ __forceinline__ uint32_t items_of(const attend_args &a, const cuda_seq &s)
{
    return s.n_rows ? a.kv_heads * tiles_of(a, s.n_rows) * (last_split<W>(s) - first_split<W>(a, s) + 1) : 0;
}

template <int W> __device__ __forceinline__ void item_sequence(item &t, const attend_args &a, const cuda_seq *seqs)
{
    const cuda_seq s = seqs[t.seq];
    t.row = s.row;
    t.n_rows = s.n_rows;
    t.position = s.position;
    t.tiles = tiles_of(a, s.n_rows);
    t.first = first_split<W>(a, s);
    t.last = last_split<W>(s);
}

/* Item `index` of the step; before[s]: items of the sequences ahead of s. */
template <int W> __device__ __forceinline__ void item_seek(item &t, const attend_args &a, const cuda_seq *seqs, const uint32_t *before, uint32_t index)
{
    t.seq = 0;
    while (before[t.seq + 1] <= index) t.seq++;
    item_sequence<W>(t, a, seqs);
    const uint32_t splits = t.last - t.first + 1, i = index - before[t.seq];
    t.split = t.first + i % splits;
    t.tile = i / splits % t.tiles;
    t.kv = i / splits / t.tiles;
}

/* The next one, which exists. */
template <int W> __device__ __forceinline__ void item_next(item &t, const attend_args &a, const cuda_seq *seqs)
{
    if (++t.split <= t.last) return;
    t.split = t.first;
    if (++t.tile < t.tiles) return;
    t.tile = 0;
    if (++t.kv < a.kv_heads) return;
    t.kv = 0;
    do t.seq++;
    while (seqs[t.seq].n_rows == 0);
    item_sequence<W>(t, a, seqs);
    t.split = t.first;
}

/* The tile's rows in the sequence, and the positions that its queries see: of its first row from low on, of its last up to high. */
__device__ __forceinline__ uint32_t tile_row(const item &t, const attend_args &a) { return by_group(a, t.tile * QUERIES); }
__device__ __forceinline__ uint32_t tile_low(const item &t, const attend_args &a) { return first_key(a.window, t.position + tile_row(t, a)); }
__device__ __forceinline__ uint32_t tile_high(const item &t, const attend_args &a)
{
    const uint32_t row = by_group(a, t.tile * QUERIES + QUERIES - 1);
    return t.position + (row < t.n_rows ? row : t.n_rows - 1);
}

/* Does the item see anything of its page `warp`? */
template <int W> __device__ __forceinline__ bool page_seen(const item &t, const attend_args &a, uint32_t warp)
{
    const uint32_t page = t.split * W + warp;
    return page >= tile_low(t, a) / KV_PAGE && page <= tile_high(t, a) / KV_PAGE;
}

/* ---- a warp's slot: one page of K and V, filled an item ahead ------------------------------------------------------------------- */

/* which: 0 K, 1 V of page `id`. Always closes a group, so that groups can be counted. */
template <int D> __device__ __forceinline__ void copy_page(const attend_args &a, bool seen, uint32_t id, uint32_t kv, uint32_t slot, uint32_t which)
{
    if (seen) {
        const uint32_t lane = threadIdx.x & 31u;
        const uint4 *from = reinterpret_cast<const uint4 *>(page_of<D>(a, id, kv) + which * (32 * D)) + lane;
        const uint32_t to = slot + which * (64 * D) + lane * 16;
#pragma unroll
        for (int i = 0; i < D / 8; i++) copy16(to + i * 512, from + i * 32);
    }
    copy_commit();
}

/* ---- shared memory --------------------------------------------------------------------------------------------------- */

template <int D, int W> struct few_shared {
    __half slot[W][64 * D];
    __half q[QUERIES * D];                    /* [D / 8][QUERIES][8] */
    float row[W][D];                          /* a head that is being finished */
    float max[QUERIES][W], sum[QUERIES][W];   /* of every part: maximum (log2) and sum */
    cuda_seq seqs[WK_CUDA_FEW];
    uint32_t before[WK_CUDA_FEW + 4], last[4];
    float y[4];                               /* [W][queries][D + 4]: unscaled values of every part */
};
template <int D, int W> static size_t few_bytes(uint32_t queries) { return sizeof(few_shared<D, W>) + (size_t)W * queries * (D + 4) * sizeof(float); }

/* ---- before attention: q of the tile, k and v of the step's rows -------------------------------------------------------- */

/* Heads to finish: the tile's n queries, if they are wanted, then k and v of the new positions [from, to) of the split. */
struct jobs { uint32_t queries, from, to, n; };

template <int W> __device__ __forceinline__ jobs jobs_of(const attend_args &a, const item &t, uint32_t queries)
{
    const uint32_t start = t.split * (W * KV_PAGE), end = tile_high(t, a) + 1;
    jobs j;
    j.queries = queries;
    j.from = t.position > start ? t.position : start;
    j.to = end < start + W * KV_PAGE ? end : start + W * KV_PAGE;
    if (j.to < j.from) j.to = j.from;
    j.n = queries + 2 * (j.to - j.from);
    return j;
}

/* One of them: where it lies (found ahead, while nothing may be read yet), and its values. */
template <int D> struct job { head_place at; head_values<D> h; uint32_t id; };

template <int D> __device__ __forceinline__ void job_find(job<D> &x, const attend_args &a, const item &t, const jobs &j, uint32_t i)
{
    if (i < j.queries) {
        const uint32_t query = t.tile * QUERIES + i, at = by_group(a, query);
        x.at = place_head(a.q, t.row + at, t.kv * a.group + (query - at * a.group), a.dk);
    } else if (i < j.n) {
        const uint32_t p = j.from + (i - j.queries) / 2;
        const bool v = (i - j.queries) & 1;
        x.id = __ldg(page_entry(a, t.seq, p / KV_PAGE));
        x.at = place_head(v ? a.v : a.k, t.row + (p - t.position), t.kv, v ? a.dv : a.dk);
    } else {
        x.at.values = x.at.turns = 0;
    }
}

template <int D, int W> __device__ __forceinline__ void job_finish(few_shared<D, W> &m, job<D> &x, const attend_args &a, const item &t, const jobs &j, uint32_t i)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, n = i - j.queries;
    const bool q = i < j.queries, v = !q && (n & 1);
    const attend_source &s = q ? a.q : v ? a.v : a.k;
    finish_head<D>(m.row[warp], x.h, s, v ? a.dv : a.dk);
    if (lane >= D / 8) return;
    const uint4 chunk = half_chunk(m.row[warp] + lane * 8);
    if (q) {
        *reinterpret_cast<uint4 *>(m.q + (lane * QUERIES + i) * 8) = chunk;
        return;
    }
    const uint32_t p = j.from + n / 2, at = (v ? 32 * D : 0) + block_offset<D>(p % KV_PAGE, lane);
    *reinterpret_cast<uint4 *>(m.slot[p / KV_PAGE % W] + at) = chunk;
    if ((p - t.position) * a.group / QUERIES == t.tile) *reinterpret_cast<uint4 *>(page_of<D>(a, x.id, t.kv) + at) = chunk;
}

/* Values of the page's positions after `high` become 0: what another sequence left there may be NaN. */
template <int D> __device__ __forceinline__ void clear_unwritten(__half *v, uint32_t start, uint32_t high)
{
    for (uint32_t i = (high + 1 - start) * (D / 8) + (threadIdx.x & 31u); i < KV_PAGE * (D / 8); i += 32)
        *reinterpret_cast<uint4 *>(v + block_offset<D>(i / (D / 8), i % (D / 8))) = make_uint4(0, 0, 0, 0);
}

/* The tile's queries (if they are wanted) and the split's new positions; x: the warp's first job, loaded. Ends with the block in step, and with the
 * slots' copies landed if the split has new positions. */
template <int D, int W> __device__ __forceinline__ void prepare(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j, uint32_t n, job<D> &x)
{
    const uint32_t warp = threadIdx.x / 32, start = (t.split * W + warp) * KV_PAGE, high = tile_high(t, a);
    if (j.to > j.from) {
        if (start <= high && start + KV_PAGE > t.position) {
            copy_wait<0>();
            __syncwarp();
            if (start + KV_PAGE > high) clear_unwritten<D>(m.slot[warp] + 32 * D, start, high);
        }
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t i = warp; i < j.n; i += W) {
        job<D> next;
        job_find<D>(next, a, t, j, i + W);
        load_head<D>(next.h, next.at);
        job_finish<D, W>(m, x, a, t, j, i);
        x = next;
    }
    if (j.queries && n < QUERIES && warp == W - 1) /* queries that do not exist */
        for (uint32_t c = n * (D / 8) + (threadIdx.x & 31u); c < QUERIES * (D / 8); c += 32)
            *reinterpret_cast<uint4 *>(m.q + (c % (D / 8) * QUERIES + c / (D / 8)) * 8) = make_uint4(0, 0, 0, 0);
    __syncthreads();
}

/* ---- one page by one warp ---------------------------------------------------------------------------------------------- */

/* A part's result: queries 2t, 2t + 1; y[i] = C fragment of values 16 i .. of V^T P^T. */
template <int D> struct part { float max[2], sum[2], y[D / 16][4]; };

/* s[i][0..1] = scores of position 16 i + g, s[i][2..3] of position 16 i + 8 + g. */
template <int D> __device__ __forceinline__ void page_scores(float (&s)[2][4], const uint32_t (&q)[D / 8], uint32_t k)
{
    const uint32_t lane = threadIdx.x & 31u, address = k + ((lane >> 3) & 1) * (D * 16) + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
    for (int i = 0; i < 2; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
#pragma unroll
    for (int c = 0; c < D / 16; c++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t r[4];
            load_matrices(r, address + i * (2 * D * 16) + c * 256);
            mma_f16(s[i], r[0], r[1], r[2], r[3], q[2 * c], q[2 * c + 1]);
        }
}

/* Scale to log2, soft-cap, and -inf where a query does not see the position. */
__device__ __forceinline__ void finish_scores(float (&s)[2][4], const attend_args &a, const item &t, uint32_t start)
{
    const uint32_t lane = threadIdx.x & 31u;
    const float log2e = 1.4426950408889634f, scale = __fmul_rn(a.scale, log2e);
    if (a.softcap == 0.0f) {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fmul_rn(s[i / 4][i % 4], scale);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fmul_rn(capped(__fmul_rn(s[i / 4][i % 4], a.scale), a.softcap), log2e);
    }
    if (start + KV_PAGE <= t.position + tile_row(t, a) + 1 && start >= first_key(a.window, tile_high(t, a))) return;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t at = by_group(a, t.tile * QUERIES + 2 * (lane & 3) + j), position = t.position + at, low = first_key(a.window, position);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t p = start + 8 * i + (lane >> 2);
            if (at >= t.n_rows || p > position || p < low) s[i / 2][2 * (i % 2) + j] = -INFINITY;
        }
    }
}

/* Maxima over the page for the lane's two queries. p: the page's probabilities as B fragments. */
template <int D> __device__ __forceinline__ void page_softmax(part<D> &r, const float (&s)[2][4], uint32_t (&p)[2][2])
{
    float base[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float top = fmaxf(fmaxf(s[0][j], s[0][2 + j]), fmaxf(s[1][j], s[1][2 + j]));
#pragma unroll
        for (int d = 4; d < 32; d <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
        base[j] = top == -INFINITY ? 0.0f : top;
        r.max[j] = top;
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            p[i][h] = turn_matrix(pack_half(exp2_fast(__fadd_rn(s[i][2 * h], -base[0])), exp2_fast(__fadd_rn(s[i][2 * h + 1], -base[1]))));
}

/* y = V^T p, and sum = 1^T p: the sum of the probabilities as they were rounded. */
template <int D> __device__ __forceinline__ void page_values(part<D> &r, const uint32_t (&p)[2][2], uint32_t v)
{
    const uint32_t lane = threadIdx.x & 31u, ones = 0x3c003c00u, address = v + ((lane >> 3) & 1) * 128 + (lane >> 4) * (D * 16) + (lane & 7) * 16;
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < 2; i++) {
        mma_f16(sum, ones, ones, ones, ones, p[i][0], p[i][1]);
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t m[4];
            load_matrices_turned(m, address + i * (2 * D * 16) + c * 256);
            mma_f16(r.y[c], m[0], m[1], m[2], m[3], p[i][0], p[i][1]);
        }
    }
    r.sum[0] = sum[0];
    r.sum[1] = sum[1];
}

/* ---- bringing parts together ------------------------------------------------------------------------------------------- */

template <int D, int W> __device__ __forceinline__ float *part_row(few_shared<D, W> &m, uint32_t queries, uint32_t index, uint32_t query)
{
    return m.y + (index * queries + query) * (D + 4);
}

/* A warp's result becomes part `warp`. */
template <int D, int W> __device__ __forceinline__ void leave_part(few_shared<D, W> &m, const part<D> &r, uint32_t queries, uint32_t n)
{
    const uint32_t warp = threadIdx.x / 32, g = (threadIdx.x & 31u) >> 2, t = threadIdx.x & 3u;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t query = 2 * t + j;
        if (query >= n) continue;
        float *y = part_row<D, W>(m, queries, warp, query) + g;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            y[16 * i] = r.y[i][j];
            y[16 * i + 8] = r.y[i][2 + j];
        }
        if (g == 0) {
            m.max[query][warp] = r.max[j];
            m.sum[query][warp] = r.sum[j];
        }
    }
}

/* Value d of a query over all parts, unscaled; the maximum and sum that go with it. */
struct total { float max, sum, y; };
template <int D, int W> __device__ __forceinline__ total add_parts(few_shared<D, W> &m, uint32_t queries, uint32_t query, uint32_t d)
{
    float max[W], x[W];
    total r = { -INFINITY, 0.0f, 0.0f };
#pragma unroll
    for (int i = 0; i < W; i++) {
        max[i] = m.max[query][i];
        x[i] = part_row<D, W>(m, queries, i, query)[d];
        r.max = fmaxf(r.max, max[i]);
    }
    const float base = r.max == -INFINITY ? 0.0f : r.max;
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float f = exp2_fast(__fadd_rn(max[i], -base));
        r.sum = __fmaf_rn(m.sum[query][i], f, r.sum);
        r.y = __fmaf_rn(x[i], f, r.y);
    }
    return r;
}

/* The tile's results. */
template <int D, int W> __device__ __forceinline__ void store_results(few_shared<D, W> &m, const attend_args &a, const item &t, uint32_t queries, uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll 2
    for (uint32_t base = threadIdx.x - lane; base < n * D; base += 32 * W) {
        const uint32_t i = base + lane, query = i / D, d = i % D, all = t.tile * QUERIES + query, at = by_group(a, all), head = t.kv * a.group + (all - at * a.group);
        const bool valid = i < n * D && d < a.dv;
        float x = 0.0f;
        if (valid) {
            const total r = add_parts<D, W>(m, queries, query, d);
            x = __fmul_rn(r.y, value_factor(r.max, r.sum, a.sinks, head));
        }
        if (a.act) {
            const uint64_t to = (uint64_t)(t.row + at) * a.act_k + head * a.dv + d;
            const __half h = wk_act_half(x, a.shift);
            const float2 sums = wk_act_sum16(h);
            if (valid) a.act[to] = h;
            if (valid && d % 16 == 0) reinterpret_cast<float2 *>(a.sums)[to / 16] = sums;
        } else if (valid) {
            a.out[(t.row + at) * a.out_stride + head * a.dv + d] = x;
        }
    }
    /* What an act has past the row's end is 0. */
    const uint32_t width = a.heads * a.dv;
    if (a.act && a.act_k > width && t.kv == a.kv_heads - 1 && threadIdx.x < a.act_k - width)
        for (uint32_t query = 0; query < n; query++) {
            const uint64_t to = (uint64_t)(t.row + by_group(a, t.tile * QUERIES + query)) * a.act_k + width + threadIdx.x;
            a.act[to] = __float2half_rn(0.0f);
            if (threadIdx.x % 16 == 0) reinterpret_cast<float2 *>(a.sums)[to / 16] = make_float2(0.0f, 0.0f);
        }
}

/* ---- splits ---------------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t part_index(const attend_args &a, const item &t, uint32_t query, uint32_t split)
{
    const uint32_t all = t.tile * QUERIES + query, at = by_group(a, all);
    return ((t.row + at) * a.heads + t.kv * a.group + (all - at * a.group)) * a.max_splits + (split - t.first);
}

/* The split's result to the workspace. */
template <int D, int W> __device__ __forceinline__ void leave_split(few_shared<D, W> &m, const attend_args &a, const item &t, uint32_t queries, uint32_t n)
{
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n * D; i += 32 * W) {
        const uint32_t query = i / D, d = i % D;
        const uint64_t to = part_index(a, t, query, t.split);
        const total r = add_parts<D, W>(m, queries, query, d);
        a.part[to * D + d] = r.y;
        if (d == 0) a.part_max_sum[to] = make_float2(r.max, r.sum);
    }
}

/* The block leaves the tile after `run` of its splits, of which t is the last. True, in every thread, if all of the tile's splits are there now. */
template <int D, int W> __device__ __forceinline__ bool leave_tile(few_shared<D, W> &m, const attend_args &a, const item &t, uint32_t run)
{
    const uint32_t all = t.last - t.first + 1;
    if (run == all) {
        __syncthreads();
        return true;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t tiles_a_row = (a.group + QUERIES - 1) / QUERIES;
        uint32_t *counter = a.counters + (uint64_t)(t.row * tiles_a_row + t.tile) * a.kv_heads + t.kv;
        m.last[0] = atomicAdd(counter, run) + run == all;
        if (m.last[0]) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return m.last[0] != 0;
}

/* All splits of the tile as W parts: split s belongs to part s % W, added there in order, a warp a part. Ends in step. */
template <int D, int W> __device__ __forceinline__ void gather_splits(few_shared<D, W> &m, const attend_args &a, const item &t, uint32_t queries, uint32_t n)
{
    constexpr uint32_t VECTORS = D / 4, AT_ONCE = 2;
    const uint32_t index = threadIdx.x / 32, lane = threadIdx.x & 31u, from = (t.first + W - 1 - index) / W * W + index;
#pragma unroll 1
    for (uint32_t i = lane; i < n * VECTORS; i += 32 * AT_ONCE) {
        float max[AT_ONCE], sum[AT_ONCE];
        float4 y[AT_ONCE];
        uint32_t base[AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t v = i + 32 * k < n * VECTORS ? i + 32 * k : 0;
            base[k] = part_index(a, t, v / VECTORS, t.first);
            max[k] = -INFINITY;
            sum[k] = 0.0f;
            y[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll 1
        for (uint32_t s = from; s <= t.last; s += W) {
            float2 ms[AT_ONCE];
            float4 x[AT_ONCE];
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                const uint64_t at = base[k] + (s - t.first);
                ms[k] = make_float2(-INFINITY, 0.0f);
                if (i + 32 * k >= n * VECTORS) continue;
                ms[k] = __ldcg(a.part_max_sum + at);
                x[k] = __ldcg(reinterpret_cast<const float4 *>(a.part + at * D) + (i + 32 * k) % VECTORS);
            }
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++) {
                if (i + 32 * k >= n * VECTORS) continue;
                const float top = fmaxf(max[k], ms[k].x), low = top == -INFINITY ? 0.0f : top, f = exp2_fast(__fadd_rn(max[k], -low)), e = exp2_fast(__fadd_rn(ms[k].x, -low));
                sum[k] = __fmaf_rn(ms[k].y, e, __fmul_rn(sum[k], f));
                y[k].x = __fmaf_rn(x[k].x, e, __fmul_rn(y[k].x, f));
                y[k].y = __fmaf_rn(x[k].y, e, __fmul_rn(y[k].y, f));
                y[k].z = __fmaf_rn(x[k].z, e, __fmul_rn(y[k].z, f));
                y[k].w = __fmaf_rn(x[k].w, e, __fmul_rn(y[k].w, f));
                max[k] = top;
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; k++) {
            const uint32_t v = i + 32 * k, query = v / VECTORS;
            if (v >= n * VECTORS) break;
            *reinterpret_cast<float4 *>(part_row<D, W>(m, queries, index, query) + v % VECTORS * 4) = y[k];
            if (v % VECTORS == 0) {
                m.max[query][index] = max[k];
                m.sum[query][index] = sum[k];
            }
        }
    }
    __syncthreads();
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------------- */

/* Sequences to shared memory and the items ahead of each; ends in step. */
template <int D, int W> __device__ __forceinline__ uint32_t list_items(few_shared<D, W> &m, const attend_args &a)
{
    if (threadIdx.x < 32) {
        const uint32_t lane = threadIdx.x;
        uint32_t carry = 0;
        for (uint32_t base = 0; base < a.seqs; base += 32) {
            cuda_seq s = {};
            if (base + lane < a.seqs) {
                const uint4 x = __ldcg(reinterpret_cast<const uint4 *>(a.seq + base + lane));
                s = cuda_seq{ x.x, x.y, x.z, x.w };
                m.seqs[base + lane] = s;
            }
            uint32_t n = items_of<W>(a, s);
#pragma unroll
            for (uint32_t d = 1; d < 32; d <<= 1) {
                const uint32_t below = __shfl_up_sync(0xffffffffu, n, d);
                if (lane >= d) n += below;
            }
            if (base + lane < a.seqs) m.before[base + lane + 1] = carry + n;
            carry += __shfl_sync(0xffffffffu, n, 31);
        }
        if (lane == 0) m.before[0] = 0;
    }
    __syncthreads();
    return m.before[a.seqs];
}

/* Where a block's run that would begin at item `index` begins; t: that item, unless it is behind the last. Where a block has several tiles it takes
 * whole ones, so that nothing of them has to meet another block's. */
template <int W> __device__ __forceinline__ uint32_t cut_items(item &t, const attend_args &a, const cuda_seq *seqs, const uint32_t *before, uint32_t index, uint32_t total)
{
    if (index >= total) return total;
    item_seek<W>(t, a, seqs, before, index);
    const uint32_t splits = t.last - t.first + 1, ahead = t.last + 1 - t.split;
    if (ahead == splits || splits * 4 * gridDim.x > total) return index;
    t.split = t.last;
    if (index + ahead < total) item_next<W>(t, a, seqs);
    return index + ahead;
}

template <int D, int W> __global__ void __launch_bounds__(32 * W, D <= 128 ? 2 : 1) attend_few(const __grid_constant__ attend_args a, uint32_t queries)
{
    extern __shared__ __align__(128) unsigned char memory[];
    few_shared<D, W> &m = *reinterpret_cast<few_shared<D, W> *>(memory);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, slot = shared_address(m.slot[warp]);
    wk_release();
    const uint32_t total = list_items<D, W>(m, a), share = total / gridDim.x, rest = total % gridDim.x;
    item t, u;
    const uint32_t first = blockIdx.x * share + (blockIdx.x < rest ? blockIdx.x : rest);
    const uint32_t end = cut_items<W>(u, a, m.seqs, m.before, first + share + (blockIdx.x < rest), total), begin = cut_items<W>(t, a, m.seqs, m.before, first, total);
    if (begin >= end) {
        wk_depend();
        return;
    }
    bool seen = page_seen<W>(t, a, warp);
    const uint32_t id = seen ? __ldg(page_entry(a, t.seq, t.split * W + warp)) : 0;
    copy_page<D>(a, seen, id, t.kv, slot, 0);
    copy_page<D>(a, seen, id, t.kv, slot, 1);
    uint32_t q[D / 8], run = 0; /* run: splits of the tile that the block has done */
    uint32_t left = t.n_rows * a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
    jobs j = jobs_of<W>(a, t, n);
    job<D> x;
    job_find<D>(x, a, t, j, warp);
    wk_depend();
    load_head<D>(x.h, x.at);
#pragma unroll 1
    for (uint32_t index = begin; index < end; index++) {
        /* The item after this one, whose page goes into the slot as soon as it is free. */
        item next = t;
        if (index + 1 < end) item_next<W>(next, a, m.seqs);
        const bool next_seen = index + 1 < end && page_seen<W>(next, a, warp), same = index + 1 < end && next.seq == t.seq && next.kv == t.kv && next.tile == t.tile;
        const uint32_t next_id = next_seen ? __ldg(page_entry(a, next.seq, next.split * W + warp)) : 0;
        prepare<D, W>(m, a, t, j, n, x);
        if (j.queries) {
#pragma unroll
            for (int c = 0; c < D / 8; c += 2) load_matrices_2(q[c], q[c + 1], shared_address(m.q) + c * 128 + (lane & 15) * 16);
        }
        part<D> r = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f }, {} };
        float s[2][4];
        if (seen) {
            copy_wait<1>();
            __syncwarp();
            page_scores<D>(s, q, slot);
            __syncwarp();
        }
        copy_page<D>(a, next_seen, next_id, next.kv, slot, 0);
        if (seen) {
            uint32_t p[2][2];
            finish_scores(s, a, t, (t.split * W + warp) * KV_PAGE);
            page_softmax<D>(r, s, p);
            copy_wait<1>();
            __syncwarp();
            page_values<D>(r, p, slot + 64 * D);
            __syncwarp();
        }
        copy_page<D>(a, next_seen, next_id, next.kv, slot, 1);
        leave_part<D, W>(m, r, queries, n);
        __syncthreads();
        /* The next item's heads are on their way while this one is stored. */
        const uint32_t last_n = n;
        if (index + 1 < end) {
            left = next.n_rows * a.group - next.tile * QUERIES;
            n = left < QUERIES ? left : QUERIES;
            j = jobs_of<W>(a, next, same ? 0 : n);
            job_find<D>(x, a, next, j, warp);
            load_head<D>(x.h, x.at);
        }
        bool whole = t.first == t.last;
        run++;
        if (!whole) {
            leave_split<D, W>(m, a, t, queries, last_n);
            if (!same && leave_tile<D, W>(m, a, t, run)) {
                gather_splits<D, W>(m, a, t, queries, last_n);
                whole = true;
            }
        }
        if (whole) store_results<D, W>(m, a, t, queries, last_n);
        if (!same) run = 0;
        t = next;
        seen = next_seen;
    }
}

/* ---- launch ------------------------------------------------------------------------------------------------------------------ */

/* Warps of the kernel of a head size: a split's pages. Shared memory holds a page for each. */
static uint32_t warps_of(uint32_t head) { return head <= 128 ? 8 : 4; }

/* Most splits of a sequence; a window may begin within one. */
static uint32_t max_splits_of(uint32_t head, uint32_t context) { return (context + warps_of(head) * KV_PAGE - 1) / (warps_of(head) * KV_PAGE) + 1; }

bool cuda_attend_serves(uint32_t dk, uint32_t dv) { return attend_head(dk, dv) != 0; }

uint64_t cuda_attend_page_bytes(uint32_t kv_heads, uint32_t dk, uint32_t dv) { return (uint64_t)kv_heads * KV_PAGE * 2 * attend_head(dk, dv) * sizeof(__half); }

static uint64_t part_bytes(uint64_t n, uint32_t head) { return (n * head * sizeof(float) + 255) / 256 * 256; }

uint64_t cuda_attend_workspace(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t context)
{
    const uint32_t head = attend_head(dk, dv);
    const uint64_t n = (uint64_t)rows * heads * max_splits_of(head, context);
    return part_bytes(n, head) + n * sizeof(float2);
}

uint64_t cuda_attend_counters(uint32_t rows, uint32_t heads) { return (uint64_t)rows * heads; }

static wk_status check_source(const char *what, const char *name, const float *x, const float *turn, uint32_t n, uint32_t style, struct cuda_head_norm norm, uint32_t d,
                              const struct wk_err *err)
{
    if (!x) return wk_fail(err, WK_INVALID, "%s: no %s", what, name);
    if (norm.kind > CUDA_NORM_LAYER) return wk_fail(err, WK_INVALID, "%s: %s_norm.kind is %u", what, name, norm.kind);
    if (!turn) return WK_OK;
    if (style != WK_ROPE_PAIRS && style != WK_ROPE_HALVES) return wk_fail(err, WK_INVALID, "%s: %s_turn_style is %u", what, name, style);
    if (2 * (uint64_t)n > d) return wk_fail(err, WK_INVALID, "%s: %s_turn_n is %u for heads of %u", what, name, n, d);
    return WK_OK;
}

wk_status attend_check(const struct cuda_attend *a, const char *what, struct attend_args *out, const struct wk_err *err)
{
    const uint32_t head = attend_head(a->dk, a->dv);
    if (!head) return wk_fail(err, WK_UNSUPPORTED, "%s: heads of %u and %u: up to %d are served", what, a->dk, a->dv, ATTEND_MAX_HEAD);
    if (!a->kv_heads || a->heads % a->kv_heads) return wk_fail(err, WK_INVALID, "%s: %u heads for %u KV heads", what, a->heads, a->kv_heads);
    if (a->group >= TAPE_MAX_GROUPS || !a->batch->pages[a->group]) return wk_fail(err, WK_INVALID, "%s: group %u has no page table", what, a->group);
    if (a->window && a->ring_pages && (uint64_t)a->ring_pages * KV_PAGE < a->window) return wk_fail(err, WK_INVALID, "%s: a ring of %u pages for a window of %u", what, a->ring_pages, a->window);
    wk_status s = check_source(what, "q", a->q, a->q_turn, a->q_turn_n, a->q_turn_style, a->q_norm, a->dk, err);
    if (s == WK_OK) s = check_source(what, "k", a->k, a->k_turn, a->k_turn_n, a->k_turn_style, a->k_norm, a->dk, err);
    if (s == WK_OK) s = check_source(what, "v", a->v, NULL, 0, 0, a->v_norm, a->dv, err);
    if (s != WK_OK) return s;
    if (a->act ? !a->sums || a->shift > 126 || a->dv % 16 : !a->out) return wk_fail(err, WK_INVALID, "%s: no output, or an act of heads of %u", what, a->dv);
    if (!a->cache) return wk_fail(err, WK_INVALID, "%s: no cache", what);
    *out = attend_args{};
    out->q = attend_source_of(a->q, a->q_stride, a->q_turn, a->q_turn_n, a->q_turn_style, a->q_norm);
    out->k = attend_source_of(a->k, a->k_stride, a->k_turn, a->k_turn_n, a->k_turn_style, a->k_norm);
    out->v = attend_source_of(a->v, a->v_stride, NULL, 0, 0, a->v_norm);
    out->seq = a->batch->seq;
    out->seqs = a->batch->seqs;
    out->pages = a->batch->pages[a->group];
    out->page_stride = a->batch->page_stride[a->group];
    out->ring_pages = a->ring_pages;
    out->window = a->window;
    out->cache = static_cast<__half *>(a->cache);
    out->page_halves = cuda_attend_page_bytes(a->kv_heads, a->dk, a->dv) / sizeof(__half);
    out->sinks = a->sinks;
    out->act = static_cast<__half *>(a->act);
    out->sums = a->sums;
    out->shift = a->shift;
    out->act_k = wk_act_k(a->heads * a->dv);
    out->out = a->out;
    out->out_stride = a->out_stride;
    out->scale = a->scale;
    out->softcap = a->softcap;
    out->heads = a->heads;
    out->kv_heads = a->kv_heads;
    out->group = a->heads / a->kv_heads;
    out->group_magic = out->group > 1 ? (uint32_t)((((uint64_t)1 << 32) + out->group - 1) / out->group) : 0;
    out->dk = a->dk;
    out->dv = a->dv;
    out->head = head;
    return WK_OK;
}

/* Blocks: enough for every item that the buckets and the context allow, at most as many as stand side by side; bits do not depend on it. */
template <int D, int W> static wk_status launch_few(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream, const struct wk_err *err)
{
    const uint32_t rows = a->batch->rows, all = rows * x.group, queries = all < QUERIES ? all : (uint32_t)QUERIES;
    const size_t bytes = few_bytes<D, W>(queries);
    int device = 0, processors = 0, most = 0;
    wk_status s = cuda_status(cudaGetDevice(&device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "attend", err);
    if (s == WK_OK && bytes > (size_t)most) s = wk_fail(err, WK_UNSUPPORTED, "attend: %zu bytes of shared memory are needed, the device has %d", bytes, most);
    if (s == WK_OK) s = cuda_status(cudaFuncSetAttribute(attend_few<D, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attend", err);
    if (s != WK_OK) return s;
    const uint64_t side = rows > 4 && 2 * (bytes + 1024) <= (size_t)most + 1024 ? 2 : 1;
    const uint64_t items = (uint64_t)x.kv_heads * ((all + QUERIES - 1) / QUERIES + x.seqs) * max_splits_of(D, context), blocks = side * (uint64_t)processors;
    return cuda_launch("attend", attend_few<D, W>, dim3((uint32_t)(items < blocks ? items : blocks)), dim3(32 * W), bytes, a->dependent, stream, err, x, queries);
}

wk_status cuda_attend(const struct cuda_attend *a, uint32_t context, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check(a, "attend", &x, err);
    if (s != WK_OK) return s;
    const struct cuda_batch *b = a->batch;
    if (b->rows == 0 || b->rows > WK_CUDA_FEW || b->seqs == 0 || b->seqs > WK_CUDA_FEW) return wk_fail(err, WK_INVALID, "attend: %u rows of %u sequences", b->rows, b->seqs);
    if (!a->workspace || !a->counters) return wk_fail(err, WK_INVALID, "attend: no workspace or counters");
    x.max_splits = max_splits_of(x.head, context);
    if ((uint64_t)b->rows * a->heads * x.max_splits > UINT32_MAX) return wk_fail(err, WK_INVALID, "attend: %u rows of %u heads with a context of %u", b->rows, a->heads, context);
    x.part = static_cast<float *>(a->workspace);
    x.part_max_sum = reinterpret_cast<float2 *>(static_cast<char *>(a->workspace) + part_bytes((uint64_t)b->rows * a->heads * x.max_splits, x.head));
    x.counters = a->counters;
    switch (x.head) {
    case 16: return launch_few<16, 8>(a, x, context, stream, err);
    case 32: return launch_few<32, 8>(a, x, context, stream, err);
    case 64: return launch_few<64, 8>(a, x, context, stream, err);
    case 80: return launch_few<80, 8>(a, x, context, stream, err);
    case 96: return launch_few<96, 8>(a, x, context, stream, err);
    case 128: return launch_few<128, 8>(a, x, context, stream, err);
    default: return launch_few<256, 4>(a, x, context, stream, err);
    }
}
