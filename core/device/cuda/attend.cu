/* attend.cu: attention of generated rows: one launch does head norms, rotation, the store of k and v, and attention over the paged cache.
 *
 * Work. An item is one split of W pages at absolute positions, of one KV head of one sequence, for a tile of 8 queries (rows x query heads of that KV
 * head), so K and V are read once for all of them. A fixed grid deals the items of the step out by their lengths, in runs; a block without
 * items waits for its predecessor and leaves. What earlier steps stored of an item's pages comes in bulk copies, the next item's while this one is
 * computed, the first one's before the launches that this one depends on have finished. The step's own k and v the block finishes itself, puts them
 * into its copy of the page, and stores them if its tile holds the row's first query: each is stored once, and no block waits for another.
 *
 * Tensor cores work with positions (K) or values (V, transposed) as the 16 rows and queries as the 8 columns: a column's sums do not depend on
 * its neighbours, and one query costs what eight do, which is little beside the reading. First a warp has a page and makes its scores; then the warps
 * agree on the maximum, leave the probabilities in shared memory, and each sums runs of 16 values over all pages of the split.
 *
 * Splits are added in order, by the block that has all of a tile's, as it goes; else from the workspace, by the last block to finish, which an
 * integer counter finds; else, where tiles are few, in shared memory by the blocks of a cluster (attend_one.cuh). All orders of addition come
 * from absolute positions alone, so every way gives the same bits. */
#include "device/cuda/attend_one.cuh"

#include "device/cuda/launch.cuh"

enum { FEW_CLUSTER = 4, FEW_SENT = 32 }; /* most blocks of a cluster; fragments that each has room for */
enum { RAW_KEY = QUERIES, RAW_VALUE, RAW_TURNS_Q, RAW_TURNS_K, RAW_ROWS, BLOCK_RESERVED = 1024 /* bytes that a block takes beside what it asks for */ };

/* ---- shared memory ------------------------------------------------------------------------------------------------------------ */

/* What the step holds in all. meet: the splits of a tile are dealt out to the blocks of a cluster, and the items ahead of a sequence are tiles. */
struct list { uint32_t items, tiles; bool meet; };

template <int D, int W> struct alignas(128) few_shared : split_shared<D, W> {
    alignas(16) float raw[RAW_ROWS][D]; /* of the next tile, as they are: queries, a key, a value, the turns of queries and keys */
    cuda_seq seqs[WK_CUDA_FEW];
    uint32_t before[WK_CUDA_FEW + 4];   /* items ahead of each sequence */
    struct list all;
};
/* Behind it one or two stages of values, W pages each, and in clusters what their blocks send. */
template <int D, int W> static size_t few_bytes(uint32_t stages, uint32_t cluster)
{
    return sizeof(few_shared<D, W>) + (size_t)stages * W * 32 * D * sizeof(__half) + (cluster > 1 ? FEW_SENT * SENT_BYTES : 0);
}
/* Most splits of a tile that the blocks of a cluster have room for, as they have for any fewer. */
template <int D> __host__ __device__ constexpr uint32_t most_sent(uint32_t cluster)
{
    uint32_t splits = 1;
    while (splits < FEW_SENT && slices_of<D>(0, part_splits(splits + 1, cluster)) * (splits + 1) <= FEW_SENT) splits++;
    return splits;
}

/* ---- before attention: q of the tile, k and v of the step's rows -------------------------------------------------------- */

/* Heads to finish: the tile's queries, if they are wanted, and k and v of the new positions [from, to) of the split. */
struct jobs { uint32_t queries, from, to; };

template <int W, int FORM> __device__ __forceinline__ jobs jobs_of(const item &t, uint32_t queries)
{
    const uint32_t start = t.split * (W * KV_PAGE), end = t.high + 1;
    jobs j;
    j.queries = queries;
    j.from = t.position > start ? t.position : start;
    j.to = end < start + W * KV_PAGE ? end : start + W * KV_PAGE;
    if (j.to < j.from) j.to = j.from;
    return j;
}

/* How many heads the block finishes at once: neighbours in different warps. */
template <int D, int W> __device__ __forceinline__ constexpr uint32_t jobs_at_once() { return W * (32 / head_lanes<D>()); }

/* A new key or value into the block's copy of its page, and into the page itself by the tile that has the row's first query. which: 0 K, 1 V.
 * copied: copies will overwrite the page's slot. */
template <int D, int FORM> __device__ __forceinline__ void put_row(const attend_args &a, const item &t, uint32_t p, uint32_t which, __half *slot, __half *page, uint4 x, bool copied)
{
    const uint32_t at = block_offset<D>(p % KV_PAGE, threadIdx.x % head_lanes<D>());
    *reinterpret_cast<uint4 *>(slot + at) = x;
    if (copied) stores_before_copies();
    if ((p - t.position) * a.group / QUERIES == t.tile) *reinterpret_cast<uint4 *>(page + which * (32 * D) + at) = x;
}

/* Where the block's pages and the copies into them stand. */
struct phase { uint32_t parity, stage, v_parity; bool first, more, raw; /* first: of the block's items; more: it has another; raw: the tile's heads are in `raw` */ };

/* Heads of a tile of one row to `raw`, ahead of its pages: behind them they would be long on their way. Waited for by their threads, then a barrier. */
template <int D, int W> __device__ __forceinline__ void copy_heads(few_shared<D, W> &m, const attend_args &a, const item &t)
{
    constexpr uint32_t PIECES = D / 4;
    const uint32_t left = a.group - t.tile * QUERIES;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < RAW_ROWS * PIECES; i += 32 * W) {
        const uint32_t row = i / PIECES, value = i % PIECES * 4;
        const float *from;
        uint32_t n = a.dk;
        if (row < QUERIES) {
            from = a.q.x + t.row * a.q.stride + (t.kv * a.group + t.tile * QUERIES + row) * a.dk;
            if (row >= left) continue;
        } else if (row == RAW_KEY) {
            from = a.k.x + t.row * a.k.stride + t.kv * a.dk;
        } else if (row == RAW_VALUE) {
            from = a.v.x + t.row * a.v.stride + t.kv * a.dv;
            n = a.dv;
        } else {
            const attend_source &s = row == RAW_TURNS_Q ? a.q : a.k;
            from = s.turn + (uint64_t)t.row * s.turn_n * 2;
            n = 2 * s.turn_n;
        }
        if (value < n) copy16(shared_address(&m.raw[row][value]), from + value);
    }
    copy_commit();
}

/* What a lane needs of query or key i, row `row` of the batch. */
template <int D, int FORM, bool RAW> __device__ __forceinline__ void load_head_run(head_run &r, const attend_source &s, const attend_args &a, const float *turn, bool first)
{
    if (r.x) load_turns<D, FORM, RAW>(r, s, turn);
    if (first) wk_depend();
    load_run<D, FORM, RAW>(r, s, a.dk, true);
}

/* Queries and keys; value: the lane's first value, loaded on the way: it is finished when the tile's scores are there. */
template <int D, int W, int FORM> __device__ __forceinline__ void finish_keys(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j, const phase &now, head_run &value)
{
    const uint32_t rows = j.to - j.from, n = j.queries + rows, v = W - 1 - threadIdx.x / 32 + W * ((threadIdx.x & 31u) / head_lanes<D>());
    bool first_round = true;
#pragma unroll 1
    for (uint32_t first = threadIdx.x / 32, i = first + W * ((threadIdx.x & 31u) / head_lanes<D>());; i += jobs_at_once<D, W>()) {
        const bool q = i < j.queries;
        const uint32_t query = t.tile * QUERIES + i, at = row_of_query<FORM>(a, query), p = j.from + (i - j.queries), row = t.row + (q ? at : p - t.position);
        const attend_source &s = q ? a.q : a.k;
        head_run r;
        if (FORM == FORM_PLAIN && now.raw) {
            r.x = i < n ? m.raw[q ? i : (uint32_t)RAW_KEY] : NULL;
            value.x = v < rows ? m.raw[RAW_VALUE] : NULL;
            load_head_run<D, FORM, true>(r, s, a, m.raw[q ? RAW_TURNS_Q : RAW_TURNS_K], false);
            load_run<D, FORM, true>(value, a.v, a.dv, false);
        } else {
            r.x = i < n ? s.x + row * s.stride + (q ? t.kv * a.group + (query - at * a.group) : t.kv) * a.dk : NULL;
            load_head_run<D, FORM, false>(r, s, a, s.turn + (uint64_t)row * s.turn_n * 2, now.first && first_round);
            if (first_round) {
                value.x = v < rows ? a.v.x + (t.row + (j.from + v - t.position)) * a.v.stride + t.kv * a.dv : NULL;
                load_run<D, FORM, false>(value, a.v, a.dv, false);
            }
        }
        first_round = false;
        if (!FORM && (a.q.norm.kind != CUDA_NORM_NONE || a.k.norm.kind != CUDA_NORM_NONE)) norm_run<D>(r, s, a.dk);
        if (i < n && run_first<D>() < D) {
            const uint4 x = turn_run(r, s);
            if (q) {
                *reinterpret_cast<uint4 *>(m.q + (run_first<D>() * QUERIES + i * 8)) = x;
            } else {
                const uint32_t slot = p / KV_PAGE % W;
                wk_stage_wait(shared_address(&m.k_bar[slot]), now.parity);
                put_row<D, FORM>(a, t, p, 0, m.k[slot], m.at[now.parity][slot], x, now.more);
            }
        }
        first += jobs_at_once<D, W>();
        if (first >= n) break;
    }
}

/* The new values, and zeros in place of the values after `high`: what another sequence left there may be NaN. v: the item's pages, which have arrived. */
template <int D, int W, int FORM> __device__ __forceinline__ void finish_values(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j, const phase &now, head_run &r, __half *v)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, end = t.high + 1, n = j.to - j.from;
    if (end % KV_PAGE && end / KV_PAGE == t.split * W + warp) { /* a lane has position lane % 8 of every 8, and every fourth run of values */
        __half *const from = v + warp * (32 * D) + block_offset<D>(lane % 8, lane / 8);
#pragma unroll
        for (uint32_t i = 0; i < KV_PAGE; i += 8)
#pragma unroll
            for (uint32_t c = 0; c < D / 8; c += 4)
                if (i + lane % 8 >= end % KV_PAGE && c + lane / 8 < D / 8) *reinterpret_cast<uint4 *>(from + block_offset<D>(i, c)) = make_uint4(0, 0, 0, 0);
        if (now.more) stores_before_copies();
    }
#pragma unroll 1
    for (uint32_t first = W - 1 - warp, i = first + W * (lane / head_lanes<D>()); first < n;) {
        if (!FORM && a.v.norm.kind != CUDA_NORM_NONE) norm_run<D>(r, a.v, a.dv);
        const uint32_t slot = (j.from + i) / KV_PAGE % W;
        if (i < n && run_first<D>() < D) put_row<D, FORM>(a, t, j.from + i, 1, v + slot * (32 * D), m.at[now.parity][slot], half_run(r.own), now.more);
        i += jobs_at_once<D, W>();
        first += jobs_at_once<D, W>();
        if (first >= n) break;
        r.x = i < n ? a.v.x + (t.row + (j.from + i - t.position)) * a.v.stride + t.kv * a.dv : NULL;
        load_run<D, FORM, false>(r, a.v, a.dv, false);
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------------- */

/* Sequences to shared memory and the items ahead of each, by the first warp. cluster: blocks of one. */
template <int D, int W, int FORM, bool MEETS> __device__ __forceinline__ void list_items(few_shared<D, W> &m, const attend_args &a, uint32_t cluster)
{
    enum { ROUNDS = WK_CUDA_FEW / 32 };
    const uint32_t lane = threadIdx.x;
    list all = { 0, 0, false };
    cuda_seq seqs[ROUNDS] = {}; /* all asked for before the first is looked at */
    uint32_t tiles_of[ROUNDS] = {}, splits_of[ROUNDS] = {};
#pragma unroll
    for (uint32_t base = 0; base < WK_CUDA_FEW; base += 32)
        if (base + lane < a.seqs) seqs[base / 32] = load_seq(a.seq + base + lane);
#pragma unroll
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!seqs[i].n_rows) continue;
        item t;
        item_sequence<W, FORM>(t, a, seqs[i]);
        tiles_of[i] = a.kv_heads * t.tiles;
        splits_of[i] = t.last - t.first + 1;
    }
    if (MEETS) { /* unless the longest keeps a cluster busy for longer than the others' splits and a meeting in memory, which is about two of them */
        uint32_t items = 0, splits = 0;
#pragma unroll
        for (uint32_t i = 0; i < ROUNDS; i++) items += tiles_of[i] * splits_of[i], splits = splits_of[i] > splits ? splits_of[i] : splits;
        items = __reduce_add_sync(0xffffffffu, items);
        splits = __reduce_max_sync(0xffffffffu, splits);
        all.meet = splits > 1 && splits <= (cluster == 2 ? most_sent<D>(2) : most_sent<D>(FEW_CLUSTER)) && (splits + cluster - 1) / cluster <= items / gridDim.x + 2;
    }
#pragma unroll
    for (uint32_t base = 0; base < WK_CUDA_FEW; base += 32) {
        if (base >= a.seqs) break;
        if (base + lane < a.seqs) m.seqs[base + lane] = seqs[base / 32];
        const uint32_t tiles = tiles_of[base / 32];
        uint32_t n = all.meet ? tiles : tiles * splits_of[base / 32];
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, n, d);
            if (lane >= d) n += below;
        }
        if (base + lane < a.seqs) m.before[base + lane + 1] = all.items + n;
        all.items += __shfl_sync(0xffffffffu, n, 31);
        all.tiles += __reduce_add_sync(0xffffffffu, tiles);
    }
    if (lane == 0) {
        m.before[0] = 0;
        m.all = all;
    }
}

/* The sequence of item `index`: the last with items ahead of it up to that; those of its like without items lie before it. */
template <int D, int W> __device__ __forceinline__ uint32_t seek_seq(const few_shared<D, W> &m, const attend_args &a, uint32_t index)
{
    uint32_t seq = 0;
#pragma unroll
    for (uint32_t step = WK_CUDA_FEW / 2; step; step /= 2)
        if (seq + step < a.seqs && m.before[seq + step] <= index) seq += step;
    return seq;
}
template <int D, int W, int FORM> __device__ __forceinline__ void item_seek(item &t, const few_shared<D, W> &m, const attend_args &a, uint32_t index)
{
    const uint32_t seq = seek_seq(m, a, index);
    item_within<W, FORM>(t, a, m.seqs[seq], seq, index - m.before[seq]);
}

/* The first tile that begins at item `index` or behind it. */
template <int D, int W, int FORM> __device__ __forceinline__ uint32_t next_tile(const few_shared<D, W> &m, const attend_args &a, uint32_t index)
{
    if (index >= m.all.items) return m.all.items;
    item t;
    item_seek<D, W, FORM>(t, m, a, index);
    return t.split == t.first ? index : index + (t.last + 1 - t.split);
}

/* The block's items: [begin, end), t: the first. Whole tiles if they can be dealt out evenly, so that nothing of them has to meet another block's. */
template <int D, int W, int FORM, bool MEETS> __device__ __forceinline__ share deal(item &t, few_shared<D, W> &m, const attend_args &a, uint32_t cluster)
{
    if (!MEETS && a.seqs == 1) return deal_sequence<W, FORM>(t, a, load_seq(a.seq));
    if (threadIdx.x < 32) list_items<D, W, FORM, MEETS>(m, a, cluster);
    __syncthreads();
    const list all = m.all;
    if (MEETS && all.meet) {
        const uint32_t tile = blockIdx.x / cluster, seq = seek_seq(m, a, tile);
        if (tile >= all.items) return share{ 0, 0 };
        item_sequence<W, FORM>(t, a, m.seqs[seq]);
        t.seq = seq;
        const uint32_t each = part_splits(t.last - t.first + 1, cluster).each;
        t.split = t.first + blockIdx.x % cluster * each;
        item_of_tile<FORM>(t, a, tile - m.before[seq]);
        return share{ 0, t.split > t.last ? 0 : t.last - t.split < each ? t.last - t.split + 1 : each };
    }
    const uint32_t each = all.items / gridDim.x, rest = all.items - each * gridDim.x, rounds = (all.tiles + gridDim.x - 1) / gridDim.x;
    share s;
    s.begin = blockIdx.x * each + (blockIdx.x < rest ? blockIdx.x : rest);
    s.end = s.begin + each + (blockIdx.x < rest);
    if (rounds * gridDim.x * 4 <= all.tiles * 5) s = share{ next_tile<D, W, FORM>(m, a, s.begin), next_tile<D, W, FORM>(m, a, s.end) };
    if (s.begin < s.end) item_seek<D, W, FORM>(t, m, a, s.begin);
    return s;
}

/* stages: of values: with two the next item's are asked for before this one's are used. MEETS: several sequences, in clusters of so many blocks. */
template <int D, int W, int FORM, bool MEETS> __global__ void __launch_bounds__(32 * W, D <= 128 ? 2 : 1) attend_few(const __grid_constant__ attend_args a, uint32_t stages, uint32_t cluster)
{
    extern __shared__ __align__(128) unsigned char memory[];
    few_shared<D, W> &m = *reinterpret_cast<few_shared<D, W> *>(memory);
    const uint32_t warp = threadIdx.x / 32, k_bar = shared_address(&m.k_bar[warp]), v_bar = shared_address(m.v_bar), v_slot = shared_address(&m + 1) + warp * (64 * D);
    wk_release();
    const uint32_t guess = warp < a.table_pages ? __ldg(page_entry(a, 0, warp)) : 0;
    if ((threadIdx.x & 31u) == 0) begin_barrier(k_bar, 1);
    if (threadIdx.x == 0) begin_barrier(v_bar, W);
    if (threadIdx.x == 0) begin_barrier(v_bar + 8, W);
    if (MEETS && threadIdx.x == 0) begin_barrier(shared_address(&m.sent_bar), 1);
    if (MEETS) cluster_arrive();
    item t;
    const share all = deal<D, W, FORM, MEETS>(t, m, a, cluster);
    if (all.begin >= all.end) {
        wk_depend();
        return;
    }
    const bool meet = MEETS && m.all.meet && t.last > t.first;
    page pages = first_page<D, W>(t, a, warp, guess);
    if ((threadIdx.x & 31u) == 0) m.at[0][warp] = pages.at;
    __syncwarp();
    copy_page<D>(pages, 0, shared_address(m.k[warp]), k_bar);
    __syncthreads(); /* barriers are there */
    copy_page<D>(pages, 1, v_slot, v_bar);
    const uint32_t rank = blockIdx.x % cluster;
    const parting part = part_splits(t.last - t.first + 1, cluster); /* of the tile that the cluster has */
    unsigned char *const sent = reinterpret_cast<unsigned char *>(&m + 1) + stages * (W * 64 * D);
    if constexpr (MEETS)
        if (meet && threadIdx.x == 0 && rank < adders<D>(part)) expect_bytes(shared_address(&m.sent_bar), slices_of<D>(rank, part) * part.splits * SENT_BYTES);
    phase now = { 0, 0, 0, true, false, false };
    bool same = false, whole = false; /* the item is of the tile of the one before; the block has all splits of its tile */
    uint32_t run = 0;                 /* splits of the tile that the block has done */
    total<D, W> r;
#pragma unroll 1
    for (uint32_t index = all.begin;; index++) {
        item next = t;
        now.more = index + 1 < all.end;
        if (now.more) {
            item_next<W, FORM>(next, a, m.seqs);
            pages = page_of_item<D, W>(next, a, warp);
        }
        const bool next_same = now.more && t.split < t.last, next_raw = FORM == FORM_PLAIN && now.more && !next_same && next.n_rows == 1;
        const uint32_t left = t.n_rows * a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
        const jobs j = jobs_of<W, FORM>(t, same ? 0 : n);
        __half *const v = reinterpret_cast<__half *>(&m + 1) + now.stage * (W * 32 * D);
        head_run value;
        if (!same || j.to > j.from) {
            if (now.raw) __syncthreads(); /* their threads have waited for the tile's heads */
            finish_keys<D, W, FORM>(m, a, t, j, now, value);
            if (now.first && j.to > j.from) { /* its values are there, or as late as its keys */
                wk_stage_wait(v_bar, 0);
                finish_values<D, W, FORM>(m, a, t, j, now, value, v);
            }
            __syncthreads();
        }
        if (next_raw) copy_heads(m, a, next);
        if (now.more && (threadIdx.x & 31u) == 0) m.at[now.parity ^ 1u][warp] = pages.at;
        if (!same) {
            whole = t.split == t.first && t.last - t.first < all.end - index;
            run = 0;
        }
        if (!same || !whole) total_begin(r);

        float s[2][4];
        const uint32_t low = t.low / KV_PAGE, high = t.high / KV_PAGE, base = t.split * W;
#pragma unroll
        for (int i = 0; i < 8; i++) s[i / 4][i % 4] = -INFINITY;
        wk_stage_wait(k_bar, now.parity);
        if (base + warp >= low && base + warp <= high) {
            page_scores<D>(s, shared_address(m.q), shared_address(m.k[warp]));
            finish_scores<FORM>(s, a, t, (base + warp) * KV_PAGE);
        }
        __syncwarp();
        if (now.more) copy_page<D>(pages, 0, shared_address(m.k[warp]), k_bar);
        leave_max(m, s);
        __syncthreads();
        /* Every warp is through with the values of the item before. */
        if (now.more && stages == 2) copy_page<D>(pages, 1, v_slot + (now.stage ^ 1u) * (W * 64 * D), v_bar + (now.stage ^ 1u) * 8);
        if (a.sinks && !same && threadIdx.x < n) {
            const uint32_t query = t.tile * QUERIES + threadIdx.x;
            m.sinks[threadIdx.x] = __ldg(a.sinks + t.kv * a.group + (query - row_of_query<FORM>(a, query) * a.group));
        }
        const float2 top = split_max(m);
        leave_probabilities(m, s, top);
        if (__builtin_expect(j.to > j.from && !now.first, 0)) {
            wk_stage_wait(v_bar + now.stage * 8, now.v_parity);
            finish_values<D, W, FORM>(m, a, t, j, now, value, v);
        }
        __syncthreads();

        const float2 sum = split_sum(m);
        factors f[2];
        f[0] = raise(r.max[0], top.x);
        f[1] = raise(r.max[1], top.y);
        r.sum[0] = grown(r.sum[0], sum.x, f[0]);
        r.sum[1] = grown(r.sum[1], sum.y, f[1]);
        wk_stage_wait(v_bar + now.stage * 8, now.v_parity);
#pragma unroll
        for (uint32_t i = 0; i < r.slices; i++) {
            if (warp + i * W >= D / 16 || high < base || low >= base + W) break; /* nothing is seen of the split, nothing is added */
            float y[4];
            slice_values<D, W>(y, m, warp + i * W, shared_address(v), low > base ? low - base : 0, high < base + W ? high - base : W - 1);
#pragma unroll
            for (int k = 0; k < 4; k++) r.y[i][k] = grown(r.y[i][k], y[k], f[k & 1]);
        }
        if (now.more && stages == 1) {
            __syncthreads();
            copy_page<D>(pages, 1, v_slot, v_bar);
        }
        if (next_raw) copy_wait<0>();
        if constexpr (MEETS)
            if (meet) {
                if (now.first) cluster_meet(); /* all blocks' barriers are there */
                send_split<D>(m, t, part, r, warp, shared_address(sent));
            }

        run++;
        if (__builtin_expect(!whole && !meet, 0)) leave_split<D, W, FORM>(a, t, r, n);
        if (!next_same && !meet) {
            if (__builtin_expect(!whole, 0) && leave_tile<D, W, FORM>(m, a, t, run)) {
                if (!now.more && n * (t.last - t.first + 1) <= gather_rows<D, W>()) gather_at_once<D, W, FORM>(m, a, t, r, n);
                else gather_splits<D, W, FORM>(a, t, r, n);
                whole = true;
            }
            if (whole) store_results<D, W, FORM>(m, a, t, r, n);
        }
        if (!now.more) break;
        t = next;
        same = next_same;
        now.first = false;
        now.raw = next_raw;
        now.parity ^= 1u;
        now.v_parity ^= stages == 1 || now.stage;
        now.stage ^= stages - 1;
    }
    if constexpr (MEETS)
        if (meet) {
            const uint32_t left = t.n_rows * a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
            if (add_sent<D>(m, part, rank, sent, r)) store_slice<FORM>(a, t, r.y[0], result_factors(m, a, r.max, r.sum), warp * adders<D>(part) + rank, n);
            if (rank == 0) store_end<FORM>(a, t, n);
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

/* Can heads of d values be read by runs of 8, and turned with runs of 8 or within them? */
static bool in_runs(const struct attend_source *s, uint32_t d)
{
    const bool turned = !s->turn || ((uintptr_t)s->turn % 16 == 0 && s->turn_n % (s->turn_style == WK_ROPE_PAIRS ? 4 : 8) == 0);
    return d % 8 == 0 && (uintptr_t)s->x % 16 == 0 && s->stride % 4 == 0 && turned;
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

struct device_size { int processors, block_bytes, processor_bytes, clusters; };

static wk_status size_device(struct device_size *d, const struct wk_err *err)
{
    int device = 0;
    wk_status s = cuda_status(cudaGetDevice(&device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&d->block_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&d->processor_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "attend", err);
    if (s == WK_OK) s = cuda_status(cudaDeviceGetAttribute(&d->clusters, cudaDevAttrClusterLaunch, device), "attend", err);
    return s;
}

template <class... Params, class... Args>
static wk_status launch(void (*kernel)(Params...), const struct device_size *d, uint64_t blocks, uint32_t cluster, uint32_t warps, size_t bytes, const struct cuda_attend *a, void *stream, const struct wk_err *err,
                        Args... args)
{
    if (bytes > (size_t)d->block_bytes) return wk_fail(err, WK_UNSUPPORTED, "attend: %zu bytes of shared memory are needed, the device has %d", bytes, d->block_bytes);
    const wk_status s = cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attend", err);
    return s == WK_OK ? cuda_launch_clusters("attend", kernel, dim3((uint32_t)blocks), cluster, dim3(32 * warps), bytes, a->dependent, stream, err, args...) : s;
}

/* Blocks of a cluster that share the splits of a tile: 1, or at most as many as there are splits and as multiprocessors for each tile, if the device holds so many
 * clusters. bytes: shared memory of a block, by the size of a cluster. */
template <class... Params> static uint32_t cluster_of(void (*kernel)(Params...), const struct device_size *d, uint32_t warps, size_t (*bytes)(uint32_t), uint64_t tiles, uint32_t splits)
{
    uint32_t size = 1;
    while (d->clusters && size < splits && size < ONE_CLUSTER && 2 * size * tiles <= (uint64_t)d->processors) size *= 2;
    if (size > 8 && cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess) size = 8;
    for (; size > 1; size /= 2) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = size;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(size);
        config.blockDim = dim3(32 * warps);
        config.dynamicSmemBytes = bytes(size);
        config.attrs = &attribute;
        config.numAttrs = 1;
        int there = 0;
        if (bytes(size) > (size_t)d->block_bytes || cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes(size)) != cudaSuccess) continue;
        if (cudaOccupancyMaxActiveClusters(&there, kernel, &config) == cudaSuccess && (uint64_t)there >= tiles) break;
    }
    (void)cudaGetLastError();
    return size;
}

/* Most splits that a tile's rows see. */
static uint32_t seen_splits(const struct attend_args &x, uint32_t split, uint32_t rows, uint32_t context)
{
    const uint32_t all = (context + split - 1) / split, most = x.window ? (x.window + rows + split - 2) / split + 1 : all;
    return most < all ? most : all;
}

/* Blocks: enough for every item that the buckets and the context allow, at most as many as stand side by side; few rows leave room for the launches
 * before and behind. Several sequences with few tiles: a cluster for each tile. Bits depend on none of it. */
template <int D, int W, int FORM> static wk_status launch_form(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream, const struct wk_err *err)
{
    const uint32_t rows = a->batch->rows;
    struct device_size d = {};
    const wk_status s = size_device(&d, err);
    if (s != WK_OK) return s;
    const uint64_t items = (uint64_t)x.kv_heads * ((rows * x.group + QUERIES - 1) / QUERIES + x.seqs) * max_splits_of(D, context), tiles = (uint64_t)x.kv_heads * x.seqs;
    const uint64_t side = rows > 4 && tiles > (uint64_t)d.processors && 2 * (few_bytes<D, W>(1, 1) + BLOCK_RESERVED) <= (size_t)d.processor_bytes ? 2 : 1, most = side * (uint64_t)d.processors;
    const uint64_t most_tiles = (uint64_t)x.kv_heads * rows * ((x.group + QUERIES - 1) / QUERIES);
    const uint64_t blocks = items < most ? items : most;
    if constexpr (FORM == FORM_PLAIN && W == ONE_WARPS) {
        const uint32_t splits = seen_splits(x, W * KV_PAGE, rows, context), most_blocks = splits < FEW_CLUSTER ? splits : (uint32_t)FEW_CLUSTER;
        const uint32_t cluster = x.seqs > 1 ? cluster_of(attend_few<D, W, FORM, true>, &d, W, [](uint32_t size) { return few_bytes<D, W>(1, size); }, most_tiles, most_blocks) : 1;
        const uint64_t clusters = blocks / cluster > most_tiles ? blocks / cluster : most_tiles;
        if (cluster > 1) return launch(attend_few<D, W, FORM, true>, &d, clusters * cluster, cluster, W, few_bytes<D, W>(1, cluster), a, stream, err, x, 1, cluster);
    }
    const uint32_t stages = rows > 4 && side == 1 && few_bytes<D, W>(2, 1) <= (size_t)d.block_bytes ? 2 : 1;
    return launch(attend_few<D, W, FORM, false>, &d, blocks, 1, W, few_bytes<D, W>(stages, 1), a, stream, err, x, stages, 1);
}

template <int D> static wk_status launch_one(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream, const struct wk_err *err)
{
    struct device_size d = {};
    const wk_status s = size_device(&d, err);
    if (s != WK_OK) return s;
    const uint32_t length = ONE_WARPS * KV_PAGE, whole = (context + length - 1) / length, within = x.window ? (x.window + length - 2) / length + 1 : whole, splits = within < whole ? within : whole;
    const uint64_t tiles = (uint64_t)x.kv_heads * ((x.group + QUERIES - 1) / QUERIES), items = tiles * splits;
    const bool near = one_item_serves(x);
    const uint32_t cluster = near && tiles <= ONE_CLUSTER_TILES ? cluster_of(attend_one<D>, &d, ONE_WARPS, one_bytes<D>, tiles, splits) : 1;
    const uint64_t side = cluster == 1 && 2 * (one_bytes<D>(1) + BLOCK_RESERVED) <= (size_t)d.processor_bytes ? 2 : 1; /* two on a multiprocessor: one's pages are on their way while the other computes */
    const uint64_t most = cluster > 1 && splits <= SENT_SPLITS ? tiles * cluster : items, blocks = most < side * d.processors ? most : side * d.processors;
    return launch(attend_one<D>, &d, cluster > 1 ? (blocks / cluster > tiles ? blocks / cluster : tiles) * cluster : blocks, cluster, ONE_WARPS, one_bytes<D>(cluster), a, stream, err, x, cluster, near);
}

template <int D, int W> static wk_status launch_few(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream, const struct wk_err *err)
{
    const bool norms = x.q.norm.kind != CUDA_NORM_NONE || x.k.norm.kind != CUDA_NORM_NONE || x.v.norm.kind != CUDA_NORM_NONE;
    if (norms || !in_runs(&x.q, x.dk) || !in_runs(&x.k, x.dk) || !in_runs(&x.v, x.dv)) return launch_form<D, W, FORM_ANY>(a, x, context, stream, err);
    if constexpr (W == ONE_WARPS)
        if (a->batch->rows == 1 && x.seqs == 1) return launch_one<D>(a, x, context, stream, err);
    return launch_form<D, W, FORM_PLAIN>(a, x, context, stream, err);
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
    x.table_pages = (context + KV_PAGE - 1) / KV_PAGE;
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
