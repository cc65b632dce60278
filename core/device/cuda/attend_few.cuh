/* attend_few.cuh: attention of generated rows: one launch does head norms, rotation, the store of k and v, and
 * attention over the paged cache.
 *
 * Work. An item is one split of W pages at absolute positions, of one KV head of one sequence, for a tile of 8 queries
 * (rows x query heads of that KV head), so K and V are read once for all of them. A fixed grid deals the tiles of the
 * step out evenly, or its pages, cut between items, where whole tiles would keep some blocks busy for longer than a
 * meeting takes; a block without items waits for its predecessor and leaves. What earlier steps stored of an item's
 * pages comes in bulk copies, the next item's while this one is computed, the first one's before the launches that this
 * one depends on have finished. The step's own k and v the block finishes itself, puts them into its copy of the page,
 * and stores them if its tile holds the row's first query: each is stored once, and no block waits for another.
 *
 * With one or two blocks a multiprocessor and its memory full, time is what an item takes from one barrier to the next:
 * one warp looks ahead for all, a new key and value are finished with the queries, and what the next tile needs beside
 * pages is asked for a tile ahead. In generation much of an item's time is its instructions, fetched from afar: where
 * every sequence has one row and a block has splits of one tile at most, it takes a fast path (do_item, do_run), dealt
 * out by lengths alone, of which the host has added up what matters (struct cuda_lengths), and asks for its first
 * pages' entries beside its sequence: from its begin to its first page one round trip after another is what it waits
 * for.
 *
 * Tensor cores work with positions (K) or values (V, transposed) as the 16 rows and queries as the 8 columns: a
 * column's sums do not depend on its neighbours, and one query costs what eight do, which is little beside the reading.
 * First a warp has a page and makes its scores; then the warps agree on the maximum, leave the probabilities in shared
 * memory, and each sums runs of 16 values over all pages of the split.
 *
 * Splits are added in order, by the block that has all of a tile's, as it goes; else from the workspace, by the last
 * block to finish, which an integer counter finds; else, where tiles are few, in shared memory by the blocks of a
 * cluster (attend_one.cuh). All orders of addition come from absolute positions alone, so every way gives the same
 * bits. */
#ifndef CORE_DEVICE_CUDA_ATTEND_FEW_CUH
#define CORE_DEVICE_CUDA_ATTEND_FEW_CUH

#include "device/cuda/attend_part_run.cuh"

enum { FEW_CLUSTER = 4, FEW_SENT = 32 }; /* most blocks of a cluster; fragments that each has room for */

/* ---- shared memory ------------------------------------------------------------------------------------- */

/* Behind few_shared a page of values for each warp, and in clusters what their blocks send. */
template <int D, int W> static constexpr size_t few_bytes(uint32_t cluster)
{
    return sizeof(few_shared<D, W>) + W * 32 * D * sizeof(__half) + (cluster > 1 ? FEW_SENT * SENT_BYTES : 0);
}
/* Most splits of a tile that the blocks of a cluster have room for, as they have for any fewer. */
template <int D> __host__ __device__ constexpr uint32_t most_sent(uint32_t cluster)
{
    uint32_t splits = 1;
    while (splits < FEW_SENT && slices_of<D>(0, part_splits(splits + 1, cluster)) * (splits + 1) <= FEW_SENT) splits++;
    return splits;
}

/* ---- before attention: q of the tile, k and v of the step's rows --------------------------------------- */

/* Heads to finish: the tile's queries, if they are wanted, and k and v of the new positions [from, to) of the split.
 * early: the only one, of a tile of one row, when its queries are, to be kept until its page is there. */
struct jobs {
    uint32_t queries, from, to;
    bool early;
};

template <int W, int FORM> __device__ __forceinline__ jobs jobs_of(const item &t, uint32_t queries)
{
    const uint32_t start = t.split * (W * KV_PAGE), end = t.high + 1;
    jobs j;
    j.queries = queries;
    j.early = FORM == FORM_PLAIN && t.n_rows == 1;
    if (j.early) {
        j.from = t.position;
        j.to = t.position + (queries > 0);
        return j;
    }
    j.from = t.position > start ? t.position : start;
    j.to = end < start + W * KV_PAGE ? end : start + W * KV_PAGE;
    if (j.to < j.from) j.to = j.from;
    return j;
}

/* How many heads the block finishes at once: neighbours in different warps. */
template <int D, int W> __device__ __forceinline__ constexpr uint32_t jobs_at_once()
{
    return W * (32 / head_lanes<D>());
}

/* A new key or value into the block's copy of its page, and into the page itself by the tile that has the row's first
 * query. which: 0 K, 1 V. copied: copies will overwrite the page's slot. */
template <int D, int FORM>
__device__ __forceinline__ void put_row(const attend_args &a, const item &t, uint32_t p, uint32_t which, __half *slot,
                                        __half *page, uint4 x, bool copied)
{
    const uint32_t at = block_offset<D>(p % KV_PAGE, threadIdx.x % head_lanes<D>());
    *reinterpret_cast<uint4 *>(slot + at) = x;
    if (copied) wk_publish();
    if ((p - t.position) * a.group / QUERIES == t.tile) *reinterpret_cast<uint4 *>(page + which * (32 * D) + at) = x;
}

/* Where the block stands: parity of the item's barriers; first: of the block's items; more: it has another; raw: the
 * tile's heads are in `raw`. */
struct phase {
    uint32_t index, parity;
    bool first, more, raw;
};

/* ---- pages on their way -------------------------------------------------------------------------------- */

/* The warp's page of item `index`. which: 0 K, 1 V. */
template <int D, int W>
__device__ __forceinline__ void ask_page(const few_shared<D, W> &m, uint32_t index, uint32_t which)
{
    const uint32_t warp = threadIdx.x / 32,
                   to = which ? shared_address(&m + 1) + warp * (64 * D) : shared_address(m.k[warp]);
    const page_copy c = m.copies[index % PLACES][warp];
    copy_run(to, c.from + which * (32 * D), c.bytes, shared_address(which ? m.v_bar : m.k_bar + warp));
}

/* What the last warp does for all while the others sum values, most of which have more to do: the pages of item `index`
 * + 2, which it has looked up in the item before, and the item behind it, of which it looks up the pages, its lanes one
 * each. */
template <int D, int W, int FORM>
__device__ __forceinline__ void look_ahead(few_shared<D, W> &m, const attend_args &a, uint32_t index, uint32_t end,
                                           uint32_t &id)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (index + 2 >= end) return;
    item t = m.items[(index + 2) % PLACES];
    if (lane < W) m.copies[(index + 2) % PLACES][lane] = copy_of_page<D>(a, t, t.split * W + lane, id);
    if (index + 3 >= end) return;
    item_next<W, FORM>(t, a, m.seqs);
    if (lane == 0) m.items[(index + 3) % PLACES] = t;
    id = lane < W ? look_up(a, t, t.split * W + lane) : 0;
}

/* The same for the block's first items, of which t is the first: ahead of the wait for q, and behind it. */
template <int D, int W, int FORM>
__device__ __forceinline__ void look_first(few_shared<D, W> &m, const attend_args &a, item t, const share &all,
                                           uint32_t &id)
{
    const uint32_t lane = threadIdx.x & 31u;
    for (uint32_t i = 1; i < PLACES - 1; i++) {
        if (all.begin + i >= all.end) return;
        item_next<W, FORM>(t, a, m.seqs);
        if (lane == 0) m.items[(all.begin + i) % PLACES] = t;
        if (i == 1) id = lane < W ? look_up(a, t, t.split * W + lane) : 0;
    }
    __syncwarp();
}
template <int D, int W>
__device__ __forceinline__ void look_second(few_shared<D, W> &m, const attend_args &a, const share &all, uint32_t &id)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (all.begin + 1 >= all.end) return;
    const item &t = m.items[(all.begin + 1) % PLACES], &next = m.items[(all.begin + 2) % PLACES];
    if (lane < W) m.copies[(all.begin + 1) % PLACES][lane] = copy_of_page<D>(a, t, t.split * W + lane, id);
    if (all.begin + 2 < all.end) id = lane < W ? look_up(a, next, next.split * W + lane) : 0;
}

/* Heads of a tile of one row to `raw`, ahead of its pages: behind them they would be long on their way. Waited for by
 * their threads, then a barrier. */
template <int D, int W>
__device__ __forceinline__ void copy_heads(few_shared<D, W> &m, const attend_args &a, const item &t)
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
            from = s.rope_table + (uint64_t)t.row * s.rope_n * 2;
            n = 2 * s.rope_n;
        }
        if (value < n) copy16(shared_address(&m.raw[row][value]), from + value);
    }
    copy_commit();
}

/* What a lane needs of query or key i, row `row` of the batch. */
template <int D, int FORM, bool RAW>
__device__ __forceinline__ void load_head_run(head_run &r, const attend_source &s, const attend_args &a,
                                              const float *rope, bool first)
{
    if (r.x) load_rope<D, FORM, RAW>(r, s, rope);
    if (first) wk_depend();
    load_run<D, FORM, RAW>(r, s, a.dk, true);
}

/* The RoPE table's row for queries, by the second warp, and for keys, by the third, to L1, ahead of the pages, behind
 * which they would be long on their way. What comes back keeps the load. */
__device__ __forceinline__ float touch_rope(const attend_args &a, uint32_t row)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, n = 2 * (warp == 1 ? a.q.rope_n : a.k.rope_n);
    float x = 0.0f;
    if ((warp == 1 || warp == 2) && lane * 32 < n)
        asm volatile("ld.global.nc.f32 %0, [%1];"
                     : "=f"(x)
                     : "l"((warp == 1 ? a.q.rope_table : a.k.rope_table) + (uint64_t)row * n + lane * 32));
    return x;
}

/* Queries and keys; value: the lane's first value, loaded on the way: it is finished when the
 * tile's scores are there. */
template <int D, int W, int FORM, bool MEETS>
__device__ __forceinline__ void finish_keys(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j,
                                            const phase &now, head_run &value)
{
    const uint32_t rows = j.to - j.from, n = j.queries + rows,
                   v = W - 1 - threadIdx.x / 32 + W * ((threadIdx.x & 31u) / head_lanes<D>());
    bool first_round = true;
#pragma unroll 1
    for (uint32_t first = threadIdx.x / 32, i = first + W * ((threadIdx.x & 31u) / head_lanes<D>());;
         i += jobs_at_once<D, W>()) {
        const bool q = i < j.queries;
        const uint32_t query = t.tile * QUERIES + i, at = row_of_query<FORM>(a, query), p = j.from + (i - j.queries),
                       row = t.row + (q ? at : p - t.position);
        const attend_source &s = q ? a.q : a.k;
        head_run r;
        if (FORM == FORM_PLAIN && now.raw) {
            r.x = i < n ? m.raw[q ? i : (uint32_t)RAW_KEY] : NULL;
            value.x = v < rows ? m.raw[RAW_VALUE] : NULL;
            load_head_run<D, FORM, true>(r, s, a, m.raw[q ? RAW_TURNS_Q : RAW_TURNS_K], false);
            load_run<D, FORM, true>(value, a.v, a.dv, false);
        } else {
            r.x = i < n ? s.x + row * s.stride + (q ? t.kv * a.group + (query - at * a.group) : t.kv) * a.dk : NULL;
            load_head_run<D, FORM, false>(r, s, a, s.rope_table + (uint64_t)row * s.rope_n * 2,
                                          now.first && first_round);
            if (first_round) {
                value.x = v < rows ? a.v.x + (t.row + (j.from + v - t.position)) * a.v.stride + t.kv * a.dv : NULL;
                load_run<D, FORM, false>(value, a.v, a.dv, false);
                if (!MEETS && now.first) ask_page(m, now.index, 1);
            }
        }
        first_round = false;
        if (!FORM && (a.q.norm.kind != CUDA_NORM_NONE || a.k.norm.kind != CUDA_NORM_NONE)) norm_run<D>(r, s, a.dk);
        if (i < n && run_first<D>() < D) {
            const uint4 x = rope_run(r, s);
            if (q) {
                *reinterpret_cast<uint4 *>(m.q + (run_first<D>() * QUERIES + i * 8)) = x;
            } else if (j.early) {
                *reinterpret_cast<uint4 *>(m.row[0] + run_first<D>()) = x;
            } else {
                const uint32_t slot = p / KV_PAGE % W;
                wk_stage_wait(shared_address(&m.k_bar[slot]), now.parity);
                put_row<D, FORM>(a, t, p, 0, m.k[slot], m.copies[now.index % PLACES][slot].from, x, now.more);
            }
        }
        first += jobs_at_once<D, W>();
        if (first >= n) break;
    }
    if (j.early && v < rows && run_first<D>() < D)
        *reinterpret_cast<uint4 *>(m.row[1] + run_first<D>()) = half_run(value.own);
}

/* The new values. v: the item's pages, which have arrived. */
template <int D, int W, int FORM>
__device__ __forceinline__ void finish_values(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j,
                                              const phase &now, head_run &r, __half *v)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, n = j.to - j.from;
    if (t.high / KV_PAGE == t.split * W + warp) clear_behind<D>(v + warp * (32 * D), t.high, now.more);
#pragma unroll 1
    for (uint32_t first = W - 1 - warp, i = first + W * (lane / head_lanes<D>()); first < n;) {
        if (!FORM && a.v.norm.kind != CUDA_NORM_NONE) norm_run<D>(r, a.v, a.dv);
        const uint32_t slot = (j.from + i) / KV_PAGE % W;
        if (i < n && run_first<D>() < D)
            put_row<D, FORM>(a, t, j.from + i, 1, v + slot * (32 * D), m.copies[now.index % PLACES][slot].from,
                             half_run(r.own), now.more);
        i += jobs_at_once<D, W>();
        first += jobs_at_once<D, W>();
        if (first >= n) break;
        r.x = i < n ? a.v.x + (t.row + (j.from + i - t.position)) * a.v.stride + t.kv * a.dv : NULL;
        load_run<D, FORM, false>(r, a.v, a.dv, false);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* By every warp, for itself: no block begins to read before it knows its item, and a barrier is further than the same
 * sums made eight times. */
template <int D, int W, int FORM, bool MEETS>
__device__ __forceinline__ dealing deal_out(few_shared<D, W> &m, const attend_args &a, const few_launch &launch)
{
    static_assert(WK_CUDA_FEW == 64, "two sequences a lane");
    const uint32_t lane = threadIdx.x & 31u;
    cuda_seq seqs[2] = {};
    uint32_t tiles[2] = {}, items[2] = {}, pages[2] = {}, splits = 0, longest = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (2 * lane + i < a.seqs) seqs[i] = load_seq(a.seq + 2 * lane + i);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        item t;
        if (threadIdx.x < 32) m.seqs[2 * lane + i] = seqs[i];
        if (!seqs[i].n_rows) continue;
        item_sequence<W, FORM>(t, a, seqs[i]);
        const uint32_t n = t.last - t.first + 1, seen = tile_pages(t, a).n;
        tiles[i] = a.kv_heads * t.tiles;
        items[i] = tiles[i] * n;
        pages[i] = tiles[i] * seen;
        splits = n > splits ? n : splits;
        longest = seen > longest ? seen : longest;
    }
    uint32_t up[3] = { tiles[0] + tiles[1], items[0] + items[1], pages[0] + pages[1] }, all[3];
#pragma unroll
    for (uint32_t step = 1; step < 32; step <<= 1)
#pragma unroll
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t x = __shfl_up_sync(0xffffffffu, up[i], step);
            if (lane >= step) up[i] += x;
        }
#pragma unroll
    for (uint32_t i = 0; i < 3; i++) all[i] = __shfl_sync(0xffffffffu, up[i], 31);
    longest = __reduce_max_sync(0xffffffffu, longest);
    dealing d;
    d.meet = false;
    if (MEETS) { /* unless the longest keeps a cluster busy for longer than the others' splits and a meeting in memory,
                    which is about two of them */
        splits = __reduce_max_sync(0xffffffffu, splits);
        d.meet = splits > 1 && splits <= launch.sent &&
                 over(splits + launch.cluster - 1, launch.part) <= over(all[1], launch.share) + 2;
    }
    const uint32_t rounds = over(all[0] + gridDim.x - 1, launch.share);
    d.whole = d.meet || rounds * longest <= over(all[2], launch.share) + MEETING;
    d.items[0] = up[1] - items[0] - items[1];
    d.items[1] = up[1] - items[1];
    d.units[0] = d.whole ? up[0] - tiles[0] - tiles[1] : up[2] - pages[0] - pages[1];
    d.units[1] = d.whole ? up[0] - tiles[1] : up[2] - pages[1];
    d.all_items = all[1];
    d.all_units = d.whole ? all[0] : all[2];
    return d;
}

/* The item that the blocks from this unit on begin with: the nearest. t: it, if units are whole tiles. */
template <int W, int FORM>
__device__ __forceinline__ uint32_t item_of_unit(item &t, const dealing &d, const attend_args &a, uint32_t unit)
{
    if (unit >= d.all_units) return d.all_items;
    t.seq = seek_seq(d.units, unit);
    item_sequence<W, FORM>(t, a, load_seq(a.seq + t.seq));
    const uint32_t x = unit - ahead_of(d.units, t.seq), item = ahead_of(d.items, t.seq), splits = t.last - t.first + 1;
    t.split = t.first;
    if (d.whole) {
        item_of_tile<FORM>(t, a, x);
        return item + x * splits;
    }
    const pages_seen p = tile_pages(t, a);
    const uint32_t tile = x / p.n, page = p.first + (x - tile * p.n), split = (page + W / 2) / W;
    return item + tile * splits + (page == p.first || split < t.first ? 0 : split - t.first);
}

/* The block's items: [begin, end), t: the first. */
template <int W, int FORM, bool MEETS>
__device__ __forceinline__ share deal(item &t, const dealing &d, const attend_args &a, const few_launch &launch)
{
    const bool meet = MEETS && d.meet;
    const uint32_t cluster = over(blockIdx.x, launch.part),
                   from = meet ? cluster : __umulhi(d.all_units, blockIdx.x * launch.share);
    share s = { 0, 0 };
    if (from >= d.all_units) return s;
    bool last = meet;
#pragma unroll 1
    for (uint32_t unit = meet                         ? from
                         : blockIdx.x + 1 < gridDim.x ? __umulhi(d.all_units, (blockIdx.x + 1) * launch.share)
                                                      : d.all_units;
         ; unit = from, last = true) {
        s.begin = item_of_unit<W, FORM>(t, d, a, unit);
        if (last) break;
        s.end = s.begin;
    }
    if (meet) {
        const uint32_t each = over(t.last - t.first + launch.cluster, launch.part);
        t.split += (blockIdx.x - cluster * launch.cluster) * each;
        return share{ 0, t.split > t.last ? 0 : t.last - t.split < each ? t.last - t.split + 1 : each };
    }
    if (d.whole || s.begin >= s.end) return s;
    const uint32_t seq = seek_seq(d.items, s.begin);
    item_within<W, FORM>(t, a, load_seq(a.seq + seq), seq, s.begin - ahead_of(d.items, seq));
    return s;
}

/* Steps of one row a sequence, if the tiles can be dealt out so: the block's item or run of splits, and nothing else.
 * False: they cannot, and nothing has been asked for. */
template <int D, bool MEETS>
__device__ __forceinline__ bool short_way(few_shared<D, ONE_WARPS> &m, const attend_args &a, const few_launch &launch,
                                          __half *v, unsigned char *sent)
{
    constexpr int W = ONE_WARPS;
    const uint32_t warp = threadIdx.x / 32, cluster = MEETS ? over(blockIdx.x, launch.part) : blockIdx.x,
                   rank = MEETS ? blockIdx.x - cluster * launch.cluster : 0, seq = over(cluster, launch.tile);
    early_pages early = {}; /* asked for beside the sequence: where there is no window its pages begin with the first */
    if (launch.tile && seq < a.seqs && !a.ring_pages)
#pragma unroll
        for (uint32_t i = 0; i < (MEETS ? 1 : 2); i++)
            if ((rank + i) * W + warp < a.table_pages)
                early.id[i] = __ldg(a.pages + (uint64_t)seq * a.page_stride + (rank + i) * W + warp);
    item t;
    tile_run run;
    if (!launch.tile || !deal_tiles<W, MEETS>(t, run, a, launch)) return false;
    const uint32_t splits = t.last - t.first + 1;
    const parting part = { splits, run.each, run.each == 1 ? splits : (splits + run.each - 1) / run.each };
    if (run.none) {
        if (!MEETS || blockIdx.x == 0)
            wk_depend(); /* the launch ends with the block that waits longest: one is enough */
        return true;
    }
    if (a.ring_pages || t.split != rank)
        early = early_pages{ { look_up(a, t, t.split * W + warp), look_up(a, t, t.split * W + W + warp) } };
    else if (MEETS && run.each > 1)
        early.id[1] = look_up(a, t, t.split * W + W + warp);
    if (MEETS && part.each == 1) {
        const bool seen = sees_page(t, t.split * W + warp);
        do_item<D, FORM_PLAIN>(m, a, t, page{ seen ? page_of<D>(a, early.id[0], t.kv) : a.cache, seen }, v,
                               part.splits > 1, part, rank, sent, launch.late);
    } else {
        do_run<D, MEETS>(m, a, t, run.to, early, v, part, rank, sent, launch.late);
    }
    return true;
}

/* What a block knows on its way through its items. */
struct walk {
    phase now;
    bool same, whole, next_raw; /* the item is of the tile of the one before; the block has all splits of its tile; the
                                   next tile's heads will be in `raw` */
    uint32_t run, ahead;        /* splits of the tile that the block has done; what the last warp has looked up */
};
/* What an item is, for all warps: pages that it sees, and its split's first. */
struct extent {
    uint32_t low, high, base;
};

/* Heads that the item needs, before its pages. Returns the sink of the thread's query. */
template <int D, int W, int FORM, bool MEETS>
__device__ __forceinline__ float begin_item(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j,
                                            walk &w, const share &all, uint32_t n, head_run &value, __half *v)
{
    const uint32_t v_bar = shared_address(m.v_bar);
    float sink = 0.0f;
    if (w.now.raw && !w.same) {
        copy_wait<0>();
        __syncthreads();
    }
    finish_keys<D, W, FORM, MEETS>(m, a, t, j, w.now, value);
    if (a.sinks && !w.same && threadIdx.x < n) {
        const uint32_t query = t.tile * QUERIES + threadIdx.x;
        sink = __ldg(a.sinks + t.kv * a.group + (query - row_of_query<FORM>(a, query) * a.group));
    }
    if (w.now.first && j.to > j.from && !j.early) { /* its values are there, or as late as its keys */
        wk_stage_wait(v_bar, 0);
        finish_values<D, W, FORM>(m, a, t, j, w.now, value, v);
    }
    if (w.now.first && threadIdx.x / 32 == W - 1) look_second<D, W>(m, a, all, w.ahead);
    __syncthreads();
    if (!MEETS && w.now.first) wk_release();
    return sink;
}

/* The item is its tile's first in this block: what the next tile needs beside pages is asked for. */
template <int D, int W, int FORM>
__device__ __forceinline__ void begin_tile(few_shared<D, W> &m, const attend_args &a, const item &t, walk &w,
                                           const share &all)
{
    w.next_raw = false;
    if (FORM == FORM_PLAIN && t.last - t.split + 1 < all.end - w.now.index) {
        item next = t;
        next.split = next.last;
        item_next<W, FORM>(next, a, m.seqs);
        w.next_raw = next.n_rows == 1;
        if (w.next_raw) copy_heads(m, a, next);
    }
    w.whole = t.split == t.first && t.last - t.first < all.end - w.now.index;
    w.run = 0;
}

/* The warp's page, then the split's maxima, which it returns, and probabilities; new values come into their page. */
template <int D, int W, int FORM>
__device__ __forceinline__ float2 score_item(few_shared<D, W> &m, const attend_args &a, const item &t, const jobs &j,
                                             const walk &w, const extent &e, float sink, head_run &value, __half *v)
{
    const uint32_t warp = threadIdx.x / 32, k_bar = shared_address(&m.k_bar[warp]), v_bar = shared_address(m.v_bar);
    const bool newest = j.early && e.base + warp == e.high; /* the warp has the page of the new key and value */
    float s[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = -INFINITY;
    wk_stage_wait(k_bar, w.now.parity);
    if (e.base + warp >= e.low && e.base + warp <= e.high) {
        if (newest) put_early<D>(m, t, 0, m.k[warp], m.copies[w.now.index % PLACES][warp].from, w.now.more);
        page_scores<D>(s, shared_address(m.q), shared_address(m.k[warp]));
        finish_scores<FORM>(s, a, t, (e.base + warp) * KV_PAGE);
    }
    __syncwarp();
    if (w.now.more) ask_page(m, w.now.index + 1, 0);
    leave_max(m, s);
    __syncthreads();
    if (a.sinks && !w.same && threadIdx.x < QUERIES) m.sinks[threadIdx.x] = sink;
    const float2 top = split_max(m);
    leave_probabilities(m, s, top);
    if (newest) {
        wk_stage_wait(v_bar, w.now.parity);
        clear_behind<D>(v + warp * (32 * D), t.high, w.now.more);
        put_early<D>(m, t, 1, v + warp * (32 * D), m.copies[w.now.index % PLACES][warp].from, w.now.more);
    } else if (__builtin_expect(!j.early && j.to > j.from && !w.now.first, 0)) {
        wk_stage_wait(v_bar, w.now.parity);
        finish_values<D, W, FORM>(m, a, t, j, w.now, value, v);
    }
    __syncthreads();
    return top;
}

/* The split's values come to the tile's. top: its maxima. */
template <int D, int W>
__device__ __forceinline__ void sum_item(total<D, W> &r, few_shared<D, W> &m, const walk &w, const extent &e,
                                         float2 top, __half *v)
{
    const uint32_t warp = threadIdx.x / 32;
    factors f[2];
    add_sums(r, f, m, top);
    wk_stage_wait(shared_address(m.v_bar), w.now.parity);
#pragma unroll
    for (uint32_t i = 0; i < r.slices; i++) {
        if (warp + i * W >= D / 16 || e.high < e.base || e.low >= e.base + W)
            break; /* nothing is seen of the split, nothing is added */
        float y[4];
        slice_values<D, W>(y, m, warp + i * W, shared_address(v), e.low > e.base ? e.low - e.base : 0,
                           e.high < e.base + W ? e.high - e.base : W - 1);
#pragma unroll
        for (int k = 0; k < 4; k++) r.y[i][k] = grown(r.y[i][k], y[k], f[k & 1]);
    }
    if (w.now.more) {
        __syncthreads();
        ask_page(m, w.now.index + 1, 1);
    }
}

/* The block's first pages are asked for, and what is behind them looked up; t: the first item of `all`, which there is.
 * likely, guess: the sequence that it was taken for, and the entry of the warp's page in that sequence. */
template <int D, int W, int FORM, bool MEETS>
__device__ __forceinline__ uint32_t begin_items(few_shared<D, W> &m, const attend_args &a, const item &t,
                                                const share &all, uint32_t likely, uint32_t guess)
{
    const uint32_t warp = threadIdx.x / 32;
    uint32_t ahead = t.seq == likely && t.split == 0 && !a.ring_pages ? guess : look_up(a, t, t.split * W + warp);
    if ((threadIdx.x & 31u) == 0) m.copies[all.begin % PLACES][warp] = copy_of_page<D>(a, t, t.split * W + warp, ahead);
    __syncwarp();
    const float near = FORM == FORM_PLAIN && !MEETS ? touch_rope(a, t.row) : 0.0f;
    ask_page(m, all.begin, 0);
    __syncthreads(); /* barriers are there */
    if (MEETS) ask_page(m, all.begin, 1);
    if (warp == W - 1) look_first<D, W, FORM>(m, a, t, all, ahead);
    asm volatile("" ::"f"(near));
    return ahead;
}

/* The cluster's blocks have sent what they have of the tile that it has: the block's part of its results. */
template <int D, int W, int FORM>
__device__ __forceinline__ void end_meeting(few_shared<D, W> &m, const attend_args &a, const item &t,
                                            const parting &part, uint32_t rank, const unsigned char *sent,
                                            total<D, W> &r)
{
    const uint32_t left = t.n_rows * a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
    if (add_sent<D>(m, part, rank, sent, r))
        store_slice<FORM>(a, t, r.y[0], result_factors(m, a, r.max, r.sum), threadIdx.x / 32 * adders<D>(part) + rank,
                          n);
    if (rank == 0) store_end<FORM>(a, t, n);
}

/* MEETS: several sequences with few tiles, in clusters. Else blocks fill the multiprocessors, and what they ask for is
 * more than memory brings until the step's heads are wanted: these are asked for ahead of the first values, and the
 * launch behind begins when they are here. Steps of one row a sequence go the short ways where the tiles can be dealt
 * out so. */
template <int D, int W, int FORM, bool MEETS>
__global__ void __launch_bounds__(32 * W, D <= 128 ? 2 : 1)
    attend_few(const __grid_constant__ attend_args a, const few_launch launch)
{
    extern __shared__ __align__(128) unsigned char memory[];
    few_shared<D, W> &m = *reinterpret_cast<few_shared<D, W> *>(memory);
    const uint32_t warp = threadIdx.x / 32;
    __half *const v = reinterpret_cast<__half *>(&m + 1);
    if (MEETS && !launch.late) wk_release();
    if ((threadIdx.x & 31u) == 0) begin_barrier(shared_address(&m.k_bar[warp]), 1);
    if (threadIdx.x == 0) begin_barrier(shared_address(m.v_bar), W);
    if (MEETS && threadIdx.x == 0) begin_barrier(shared_address(&m.sent_bar), 1);
    begun_barriers();
    if (MEETS) wk_cluster_arrive();
    unsigned char *const sent = reinterpret_cast<unsigned char *>(v + W * 32 * D);
    if constexpr (FORM == FORM_PLAIN && W == ONE_WARPS && D % 32 == 0)
        if (short_way<D, MEETS>(m, a, launch, v, sent)) return;
    if (MEETS && launch.late) wk_release();
    const uint32_t likely = min(__umulhi(blockIdx.x, launch.likely), a.seqs - 1),
                   guess = warp < a.table_pages ? __ldg(a.pages + (uint64_t)likely * a.page_stride + warp) : 0;
    const dealing dealt = deal_out<D, W, FORM, MEETS>(m, a, launch);
    item t;
    const share all = deal<W, FORM, MEETS>(t, dealt, a, launch);
    if (all.begin >= all.end) {
        wk_depend();
        return;
    }
    const bool meet = MEETS && dealt.meet && t.last > t.first;
    walk w = { { all.begin, 0, true, false, false }, false, false, false, 0, 0 };
    w.ahead = begin_items<D, W, FORM, MEETS>(m, a, t, all, likely, guess);
    const uint32_t rank = blockIdx.x - over(blockIdx.x, launch.part) * launch.cluster;
    const parting part = part_splits(t.last - t.first + 1, launch.cluster); /* of the tile that the cluster has */
    if constexpr (MEETS)
        if (meet && threadIdx.x == 0 && rank < adders<D>(part))
            wk_bar_expect(shared_address(&m.sent_bar), slices_of<D>(rank, part) * part.splits * SENT_BYTES);
    total<D, W> r;
#pragma unroll 1
    for (;; w.now.index++) {
        w.now.more = w.now.index + 1 < all.end;
        const uint32_t left = t.n_rows * a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
        const extent e = { t.low / KV_PAGE, t.high / KV_PAGE, t.split * W };
        const jobs j = jobs_of<W, FORM>(t, w.same ? 0 : n);
        head_run value;
        float sink = 0.0f;
        if (!w.same || j.to > j.from) sink = begin_item<D, W, FORM, MEETS>(m, a, t, j, w, all, n, value, v);
        if (!w.same) begin_tile<D, W, FORM>(m, a, t, w, all);
        if (!w.same || !w.whole) total_begin(r);
        const float2 top = score_item<D, W, FORM>(m, a, t, j, w, e, sink, value, v);
        if (warp == W - 1) look_ahead<D, W, FORM>(m, a, w.now.index, all.end, w.ahead);
        sum_item<D, W>(r, m, w, e, top, v);
        if constexpr (MEETS)
            if (meet) {
                if (w.now.first) wk_cluster_wait(); /* all blocks' barriers are there */
                send_split<D>(m, t, part, r, warp, shared_address(sent));
            }
        w.run++;
        w.same = w.now.more && t.split < t.last;
        if (__builtin_expect(!w.whole && !meet, 0)) leave_split<D, W, FORM>(a, t, r, n);
        if (!w.same && !meet) end_tile<D, W, FORM>(m, a, t, r, n, w.run, w.whole, !w.now.more);
        if (!w.now.more) break;
        t = m.items[(w.now.index + 1) % PLACES];
        w.now.first = false;
        if (!w.same) w.now.raw = w.next_raw;
        w.now.parity ^= 1u;
    }
    if constexpr (MEETS)
        if (meet) end_meeting<D, W, FORM>(m, a, t, part, rank, sent, r);
}

#endif
