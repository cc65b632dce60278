/* attend_part_run.cuh: what steps of several sequences keep in shared memory, and the fast path of a block that has a
 * run of one tile's splits, of a sequence's one row: attend_part_item.cuh's, split by split. The first split costs what
 * its instructions take to be fetched, so they are few; those behind it find them near. */
#ifndef CORE_DEVICE_CUDA_ATTEND_PART_RUN_CUH
#define CORE_DEVICE_CUDA_ATTEND_PART_RUN_CUH

#include <worker/cuda/part/launch.cuh>

#include "device/cuda/attend_part_item.cuh"

enum { PLACES = 4 }; /* items that are known: the one that is computed and those behind it */
enum { RAW_KEY = QUERIES, RAW_VALUE, RAW_TURNS_Q, RAW_TURNS_K, RAW_ROWS };

/* A page's K and V of a head, behind each other; of each so many bytes are read. */
struct alignas(16) page_copy {
    __half *from;
    uint32_t bytes;
};

template <int D, int W> struct alignas(128) few_shared : split_shared<D, W> {
    alignas(16) float raw[RAW_ROWS][D]; /* of the next tile, as they are: queries, a key, a value, the RoPE table's rows
                                           of queries and keys */
    alignas(16) __half row[2][D];       /* of a tile of one row: the new key and value, until their page has arrived */
    cuda_seq seqs[WK_CUDA_FEW];
    item items[PLACES];
    struct page_copy copies[PLACES][W]; /* of their pages */
};

/* ---- pages --------------------------------------------------------------------------------------------- */

__device__ __forceinline__ bool sees_page(const item &t, uint32_t number)
{
    return number >= t.low / KV_PAGE && number <= t.high / KV_PAGE;
}

/* id: the page that the item's page `number` is in. Of K and V is copied what earlier steps have left, in whole blocks
 * of 8 positions; what lies behind is never seen, or cleared. */
template <int D>
__device__ __forceinline__ page_copy copy_of_page(const attend_args &a, const item &t, uint32_t number, uint32_t id)
{
    const bool seen = sees_page(t, number);
    const uint32_t start = number * KV_PAGE, n = t.position > start ? t.position - start : 0;
    return page_copy{ page_of<D>(a, seen ? id : 0, t.kv),
                      seen ? (n < KV_PAGE ? (n + 7) / 8 : KV_PAGE / 8) * (16 * D) : 0 };
}
__device__ __forceinline__ uint32_t look_up(const attend_args &a, const item &t, uint32_t number)
{
    return sees_page(t, number) ? __ldg(page_entry(a, t.seq, number)) : 0;
}

/* A key or value that was finished early, by the warp that has its page, which has arrived: into the copy, and into the
 * page by the first tile. */
template <int D, int W>
__device__ __forceinline__ void put_early(const few_shared<D, W> &m, const item &t, uint32_t which, __half *copy,
                                          __half *page, bool copied)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (uint32_t c = 0; c < D / 8; c += 32) {
        if (c + lane >= D / 8) break;
        const uint32_t at = block_offset<D>(t.high % KV_PAGE, c + lane);
        const uint4 x = *reinterpret_cast<const uint4 *>(m.row[which] + 8 * (c + lane));
        *reinterpret_cast<uint4 *>(copy + at) = x;
        if (t.tile == 0) *reinterpret_cast<uint4 *>(page + which * (32 * D) + at) = x;
    }
    if (copied) wk_publish();
    __syncwarp();
}

/* Zeros in place of the values after `high`, by the warp that has their page, which has arrived: what another sequence
 * left there may be NaN. */
template <int D> __device__ __forceinline__ void clear_behind(__half *page, uint32_t high, bool copied)
{
    const uint32_t lane = threadIdx.x & 31u,
                   end = (high + 1) %
                         KV_PAGE; /* a lane has position lane % 8 of every 8, and every fourth run of values */
    if (!end) return;
#pragma unroll
    for (uint32_t i = 0; i < KV_PAGE; i += 8)
#pragma unroll
        for (uint32_t c = 0; c < D / 8; c += 4)
            if (i + lane % 8 >= end && c + lane / 8 < D / 8)
                *reinterpret_cast<uint4 *>(page + block_offset<D>(i + lane % 8, c + lane / 8)) = make_uint4(0, 0, 0, 0);
    if (copied) wk_publish();
}

/* ---- a run of splits ----------------------------------------------------------------------------------- */

/* Where a part of a new query, key or value goes: queries as in place_of_part, a key or value to m.row, until its page
 * is there. */
template <int D>
__device__ __forceinline__ part_place place_early(few_shared<D, ONE_WARPS> &m, const duty<D> &w, const head_part &r)
{
    if (w.job >= QUERIES) return part_place{ m.row[w.job - JOB_KEY] + r.first, NULL, r.apart };
    return part_place{ m.q + w.job * 8 + (r.first / 8 * 64 + r.first % 8), NULL,
                       r.apart == 4 ? 4 : r.apart / 8 * 64 + r.apart % 8 };
}

/* Queries to shared memory, with the new key and value if w has them, then the first values are asked for: behind what
 * is small. The launch behind begins: released is whether it did. */
template <int D>
__device__ __forceinline__ void finish_heads(few_shared<D, ONE_WARPS> &m, const duty<D> &w, head_part &r,
                                             const page_copy &own, uint32_t v_at, bool released)
{
    wk_depend();
    if (r.from) {
        r.x[0] = __ldcg(reinterpret_cast<const float4 *>(r.from));
        r.x[1] = __ldcg(reinterpret_cast<const float4 *>(r.from + r.apart));
    }
    copy_run(v_at, own.from + 32 * D, own.bytes, shared_address(m.v_bar));
    if (r.from) {
        rope_part(r);
        put_part(place_early(m, w, r), r);
    }
    __syncthreads();
    if (!released) wk_release();
}

/* Entries of the warp's pages of a block's first two splits, as asked for before the sequence was known. */
struct early_pages {
    uint32_t id[2];
};

/* The warp's page of the split, then its maxima, which it returns, and probabilities; the new key and value come into
 * their page. own: the page; next, id: that of the split behind it, which is asked for, and the entry of the one behind
 * that, if the block has them. */
template <int D>
__device__ __forceinline__ float2 score_split(few_shared<D, ONE_WARPS> &m, const attend_args &a, const item &t,
                                              uint32_t to, uint32_t warp, const page_copy &own, page_copy &next,
                                              uint32_t &id, __half *v, uint32_t parity)
{
    constexpr uint32_t W = ONE_WARPS;
    const uint32_t k_at = shared_address(m.k[warp]), k_bar = shared_address(&m.k_bar[warp]),
                   number = t.split * W + warp;
    const bool newest = number == t.high / KV_PAGE;
    float s[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = -INFINITY;
    wk_stage_wait(k_bar, parity);
    if (sees_page(t, number)) {
        if (newest) put_early<D, W>(m, t, 0, m.k[warp], own.from, false);
        page_scores<D>(s, shared_address(m.q), k_at);
        finish_scores<FORM_ONE>(s, a, t, number * KV_PAGE);
    }
    __syncwarp();
    if (t.split < to) {
        next = copy_of_page<D>(a, t, number + W, id);
        copy_run(k_at, next.from, next.bytes, k_bar);
        id = t.split + 1 < to ? look_up(a, t, number + 2 * W) : 0;
    }
    leave_max(m, s);
    __syncthreads();
    const float2 top = split_max(m);
    leave_probabilities(m, s, top);
    if (newest) {
        wk_stage_wait(shared_address(m.v_bar), parity);
        clear_behind<D>(v + warp * (32 * D), t.high, false);
        put_early<D, W>(m, t, 1, v + warp * (32 * D), own.from, false);
    }
    __syncthreads();
    return top;
}

/* Splits [t.split, to] of the tile. MEETS: the tile's other splits are in other blocks of the cluster, and each is
 * sent; else they are all, and are added as they come. */
template <int D, bool MEETS>
__device__ __forceinline__ void do_run(few_shared<D, ONE_WARPS> &m, const attend_args &a, item &t, uint32_t to,
                                       const early_pages &pages, __half *v, const parting &part, uint32_t rank,
                                       unsigned char *sent, bool late)
{
    constexpr uint32_t W = ONE_WARPS;
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x & 31u,
                   query = 2 * (lane & 3u), k_bar = shared_address(&m.k_bar[warp]), v_bar = shared_address(m.v_bar);
    const uint32_t k_at = shared_address(m.k[warp]), v_at = shared_address(v) + warp * (64 * D), low = t.low / KV_PAGE,
                   high = t.high / KV_PAGE;
    page_copy own = copy_of_page<D>(a, t, t.split * W + warp, pages.id[0]);
    copy_run(k_at, own.from, own.bytes, k_bar);
    uint32_t id = pages.id[1]; /* of the next split's page */
    item end = t;
    end.split = to;
    const duty<D> w = duty_of<D>(a, end);
    float2 sink = make_float2(0.0f, 0.0f);
    if (a.sinks)
        sink = make_float2(query < w.n ? __ldg(a.sinks + w.head + query) : 0.0f,
                           query + 1 < w.n ? __ldg(a.sinks + w.head + query + 1) : 0.0f);
    head_part head;
    place_part<D, FORM_PLAIN>(head, a, t, w);
    __half *const result = place_result<D>(a, t, w.slice ? warp : 0);
    if (MEETS && threadIdx.x == 0 && rank < adders<D>(part))
        wk_bar_expect(shared_address(&m.sent_bar), slices_of<D>(rank, part) * part.splits * SENT_BYTES);
    __syncthreads(); /* barriers are there */
    finish_heads(m, w, head, own, v_at, MEETS && !late);
    if (MEETS) wk_cluster_wait(); /* all blocks' are */
    total<D, W> r;
    total_begin(r);
#pragma unroll 1
    for (uint32_t parity = 0;; parity ^= 1) {
        const uint32_t base = t.split * W;
        const bool more = t.split < to;
        page_copy next = own;
        const float2 top = score_split<D>(m, a, t, to, warp, own, next, id, v, parity);
        if (w.slice) {
            factors f[2];
            add_sums(r, f, m, top);
            wk_stage_wait(v_bar, parity);
            float y[4];
            sum_slice<D, W>(y, m, warp, shared_address(v), low > base ? low - base : 0,
                            high < base + W ? high - base : W - 1);
#pragma unroll
            for (int k = 0; k < 4; k++) r.y[0][k] = grown(r.y[0][k], y[k], f[k & 1]);
            if constexpr (MEETS) {
                send_split<D>(m, t, part, r, warp, shared_address(sent));
                total_begin(r);
            }
        }
        if (!more) break;
        __syncthreads();
        copy_run(v_at, next.from + 32 * D, next.bytes, v_bar);
        own = next;
        t.split++;
    }
    if constexpr (MEETS) {
        finish_sent<D>(m, a, t, part, rank, sent, sink, w.n);
    } else {
        if (w.slice) store_total<D>(a, result, r, sink, lane >> 2 < w.n);
        store_end<FORM_ONE>(a, t, w.n);
    }
}

#endif
