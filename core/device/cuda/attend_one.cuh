/* attend_one.cuh: attention of one generated row, when nothing runs beside it: heads without norms that can be read and
 * rotated by runs of 8. Its time is the way from the wait for q, k and v to the result, so all else is done before that
 * wait: pages and RoPE table entries are in flight, addresses are known. The arithmetic is attend_few.cuh's, and so are
 * the items. */
#ifndef CORE_DEVICE_CUDA_ATTEND_ONE_CUH
#define CORE_DEVICE_CUDA_ATTEND_ONE_CUH

#include "device/cuda/attend_part_item.cuh"

template <int D> struct alignas(128) one_shared : split_shared<D, ONE_WARPS> {
    alignas(16) __half value[D]; /* the new one, until its page has arrived */
};
/* Behind it the values, a page for each warp, and what the blocks of a cluster send of the slices that this one adds
 * up: [slice][split]. */
template <int D> static constexpr size_t one_bytes(uint32_t cluster)
{
    uint32_t sent = 0;
    for (uint32_t splits = 2; cluster > 1 && splits <= SENT_SPLITS; splits++) {
        const uint32_t n = slices_of<D>(0, part_splits(splits, cluster)) * splits;
        if (n > sent) sent = n;
    }
    return sizeof(one_shared<D>) + ONE_WARPS * 32 * D * sizeof(__half) + sent * SENT_BYTES;
}

/* Cosines and sines of a lane's run as they lie in memory: of 8 values in halves of a head, of 4 pairs in the first
 * half of it. */
struct run_rope {
    float4 x[4];
    bool rotated, pairs;
    float sign; /* of the sine that an odd value of a pair, or any value in halves, is rotated with */
};

template <int D> __device__ __forceinline__ uint32_t lane_job()
{
    return threadIdx.x / 32 + ONE_WARPS * ((threadIdx.x & 31u) / head_lanes<D>());
}

template <int D> __device__ __forceinline__ void load_run_rope(run_rope &r, const attend_args &a, uint32_t job)
{
    const attend_source &s = job < QUERIES ? a.q : a.k;
    const uint32_t first = run_first<D>(), n = s.rope_n;
    r.rotated = job <= JOB_KEY && first < 2 * n;
    r.pairs = job <= JOB_KEY && s.rope_style == WK_ROPE_INTERLEAVED;
    r.sign = r.rotated && (r.pairs || first >= n) ? 1.0f : -1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) r.x[i] = make_float4(1.0f, 0.0f, 1.0f, 0.0f);
    if (!r.rotated) return;
    const float4 *const from =
        reinterpret_cast<const float4 *>(s.rope_table + (r.pairs ? first : 2 * (first < n ? first : first - n)));
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < 2 || !r.pairs)
            r.x[i] = __ldg(from + i); /* every block reads them: from L1 after a multiprocessor's first warp */
}

/* Where the lane's run lies, and what it is rotated with, if that is not in the run; NULL: nothing. */
struct run_place {
    const float *own, *other;
};

template <int D>
__device__ __forceinline__ run_place place_run(const attend_args &a, const item &t, uint32_t job, uint32_t queries,
                                               bool newest)
{
    const attend_source &s = job < QUERIES ? a.q : job == JOB_KEY ? a.k : a.v;
    const uint32_t head = job < QUERIES ? t.kv * a.group + t.tile * QUERIES + job : t.kv,
                   d = job == JOB_VALUE ? a.dv : a.dk, first = run_first<D>();
    const float *const x = s.x + head * d;
    run_place r = { NULL, NULL };
    if (!(job < QUERIES ? job < queries : job < JOBS && newest) || first >= d) return r;
    r.own = x + first;
    if (job < JOB_VALUE && s.rope_style == WK_ROPE_HALF && first < 2 * s.rope_n) r.other = x + rope_partner(s, first);
    return r;
}

/* The same sums as rope_run's. */
__device__ __forceinline__ uint4 rope_values(const float (&own)[8], const float (&other)[8], const run_rope &r)
{
    float x[8];
    if (r.pairs) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float c = i / 2 % 2 ? r.x[i / 4].z : r.x[i / 4].x, s = i / 2 % 2 ? r.x[i / 4].w : r.x[i / 4].y;
            x[i] = __fadd_rn(__fmul_rn(own[i], c), __fmul_rn(own[i ^ 1], __fmul_rn(s, i % 2 ? r.sign : -1.0f)));
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float c = i % 2 ? r.x[i / 2].z : r.x[i / 2].x, s = i % 2 ? r.x[i / 2].w : r.x[i / 2].y;
            x[i] = __fadd_rn(__fmul_rn(own[i], c), __fmul_rn(other[i], __fmul_rn(s, r.sign)));
        }
    }
    return half_run(x);
}

/* The lane's run to where it is wanted: q; the page's copy, whose keys have arrived, and the page; m.value and the
 * page. */
template <int D>
__device__ __forceinline__ void put_run(one_shared<D> &m, const attend_args &a, const item &t, uint32_t job, uint4 x,
                                        uint32_t parity, bool more)
{
    const uint32_t first = run_first<D>(), slot = t.high / KV_PAGE % ONE_WARPS,
                   at = block_offset<D>(t.high % KV_PAGE, first / 8);
    if (job < QUERIES) {
        *reinterpret_cast<uint4 *>(m.q + (first * QUERIES + job * 8)) = x;
        return;
    }
    if (job == JOB_KEY) {
        wk_stage_wait(shared_address(&m.k_bar[slot]), parity);
        *reinterpret_cast<uint4 *>(m.k[slot] + at) = x;
        if (more) wk_publish();
    } else {
        *reinterpret_cast<uint4 *>(m.value + first) = x;
    }
    if (t.tile == 0) *reinterpret_cast<uint4 *>(m.at[parity][slot] + (job == JOB_VALUE ? 32 * D : 0) + at) = x;
}

/* The new value into the item's pages, which have arrived, and zeros behind it: what another sequence left there may be
 * NaN. */
template <int D> __device__ __forceinline__ void put_value(const one_shared<D> &m, __half *v, uint32_t high, bool more)
{
    const uint32_t lane = threadIdx.x & 31u, newest = high % KV_PAGE;
    __half *const page = v + high / KV_PAGE % ONE_WARPS * (32 * D);
#pragma unroll
    for (uint32_t c = threadIdx.x / 32; c < D / 8; c += ONE_WARPS)
        if (lane >= newest)
            *reinterpret_cast<uint4 *>(page + block_offset<D>(lane, c)) =
                lane == newest ? *reinterpret_cast<const uint4 *>(m.value + 8 * c) : make_uint4(0, 0, 0, 0);
    if (more) wk_publish();
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* A block's run of the step's items. meet: they are splits of one tile, of which other blocks of the cluster have the
 * rest; part: how it is cut then. */
struct one_share {
    share all;
    parting part;
    bool meet;
};

/* t: the block's first item. cluster: blocks of one, 1: there are none; rank: the block's in it. */
__device__ __forceinline__ one_share deal_one(item &t, const attend_args &a, const cuda_seq &seq, uint32_t cluster,
                                              uint32_t rank)
{
    constexpr int W = ONE_WARPS;
    one_share s;
    s.all = deal_sequence<W, FORM_ONE>(t, a, seq);
    const uint32_t splits = t.last - t.first + 1;
    s.meet = seq.n_rows && cluster > 1 && splits > 1 && splits <= SENT_SPLITS;
    s.part = parting{ splits, splits, 1 };
    if (s.meet) {
        s.part = part_splits(splits, cluster);
        const uint32_t tile = blockIdx.x / cluster, from = rank * s.part.each, to = from + s.part.each;
        s.all.begin = tile * splits + from;
        s.all.end =
            tile < a.kv_heads * t.tiles && from < splits ? tile * splits + (to < splits ? to : splits) : s.all.begin;
        if (s.all.begin < s.all.end) item_within<W, FORM_ONE>(t, a, seq, 0, s.all.begin);
    }
    return s;
}

/* What a block knows on its way through its items. */
struct one_walk {
    bool first, same, whole; /* of the block's items; of the tile of the one before; the block has all splits of its
                                tile */
    uint32_t run, parity;    /* run: splits of the tile that the block has done */
};

/* The lane's head of the item, a query's, the new key's or value's. rope: what it is rotated with. Returns the sink of
 * the thread's query. */
template <int D>
__device__ __forceinline__ float begin_one(one_shared<D> &m, const attend_args &a, const item &t, const one_walk &w,
                                           uint32_t n, run_rope &rope, bool more)
{
    const uint32_t job = lane_job<D>();
    const bool newest = t.split == t.last;
    const run_place at = place_run<D>(a, t, job, w.same ? 0 : n, newest);
    float own[8] = {}, other[8] = {}, sink = 0.0f;
    if (!w.same && a.sinks && threadIdx.x < n) sink = __ldg(a.sinks + t.kv * a.group + t.tile * QUERIES + threadIdx.x);
    if (!w.first) load_run_rope<D>(rope, a, job);
    if (w.first) wk_depend();
    if (at.own) load_8<false>(own, at.own);
    if (at.other) load_8<false>(other, at.other);
    if (run_first<D>() < D && (job < QUERIES ? !w.same : job < JOBS && newest))
        put_run(m, a, t, job, rope_values(own, other, rope), w.parity, more);
    __syncthreads();
    return sink;
}

/* The warp's page, then the split's maxima, which it returns, and probabilities; the new value comes into its page.
 * pages: those of the next item, if there is more. */
template <int D>
__device__ __forceinline__ float2 score_one(one_shared<D> &m, const attend_args &a, const item &t, const one_walk &w,
                                            const page &pages, float sink, __half *v, bool more)
{
    constexpr int W = ONE_WARPS;
    const uint32_t warp = threadIdx.x / 32, k_bar = shared_address(&m.k_bar[warp]), low = t.low / KV_PAGE,
                   high = t.high / KV_PAGE, base = t.split * W;
    float s[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = -INFINITY;
    wk_stage_wait(k_bar, w.parity);
    if (base + warp >= low && base + warp <= high) {
        page_scores<D>(s, shared_address(m.q), shared_address(m.k[warp]));
        finish_scores<FORM_ONE>(s, a, t, (base + warp) * KV_PAGE);
    }
    __syncwarp();
    if (more) copy_page<D>(pages, 0, shared_address(m.k[warp]), k_bar);
    leave_max(m, s);
    __syncthreads();
    if (!w.same && threadIdx.x < QUERIES) m.sinks[threadIdx.x] = sink;
    const float2 top = split_max(m);
    leave_probabilities(m, s, top);
    if (t.split == t.last) {
        wk_stage_wait(shared_address(m.v_bar), w.parity);
        put_value<D>(m, v, t.high, more);
    }
    __syncthreads();
    return top;
}

/* The split's values come to the tile's. top: its maxima; pages: as above. */
template <int D>
__device__ __forceinline__ void sum_one(total<D, ONE_WARPS> &r, one_shared<D> &m, const item &t, const one_walk &w,
                                        const page &pages, float2 top, __half *v, bool more)
{
    constexpr int W = ONE_WARPS;
    const uint32_t warp = threadIdx.x / 32, v_bar = shared_address(m.v_bar), low = t.low / KV_PAGE,
                   high = t.high / KV_PAGE, base = t.split * W;
    factors f[2];
    add_sums(r, f, m, top);
    wk_stage_wait(v_bar, w.parity);
#pragma unroll
    for (uint32_t i = 0; i < r.slices; i++) {
        if (warp + i * W >= D / 16) break;
        float y[4];
        slice_values<D, W>(y, m, warp + i * W, shared_address(v), low > base ? low - base : 0,
                           high < base + W ? high - base : W - 1);
#pragma unroll
        for (int k = 0; k < 4; k++) r.y[i][k] = grown(r.y[i][k], y[k], f[k & 1]);
    }
    if (more) {
        __syncthreads();
        copy_page<D>(pages, 1, shared_address(v) + warp * (64 * D), v_bar);
    }
}

/* All items of the block, t the first, whose warp's page `pages` is; rank, sent, late: as in the kernel. */
template <int D>
__device__ __forceinline__ void do_items(one_shared<D> &m, const attend_args &a, item &t, page &pages,
                                         const one_share &s, __half *v, uint32_t rank, unsigned char *sent, bool late)
{
    constexpr int W = ONE_WARPS;
    const uint32_t warp = threadIdx.x / 32, k_bar = shared_address(&m.k_bar[warp]), v_bar = shared_address(m.v_bar);
    if (threadIdx.x == 0) begin_barrier(v_bar, W);
    if ((threadIdx.x & 31u) == 0) m.at[0][warp] = pages.at;
    __syncwarp();
    copy_page<D>(pages, 0, shared_address(m.k[warp]), k_bar);
    __syncthreads(); /* barriers are there */
    copy_page<D>(pages, 1, shared_address(v) + warp * (64 * D), v_bar);
    if (late) wk_release();
    if (s.meet && threadIdx.x == 0 && rank < adders<D>(s.part))
        wk_bar_expect(shared_address(&m.sent_bar), slices_of<D>(rank, s.part) * s.part.splits * SENT_BYTES);
    run_rope rope;
    load_run_rope<D>(rope, a, lane_job<D>());
    one_walk w = { true, false, false, 0, 0 };
    total<D, W> r;
#pragma unroll 1
    for (uint32_t index = s.all.begin;;) {
        item next = t;
        const bool more = index + 1 < s.all.end, next_same = more && t.split < t.last;
        const uint32_t left = a.group - t.tile * QUERIES, n = left < QUERIES ? left : QUERIES;
        if (more) {
            item_next<W, FORM_ONE>(next, a, NULL);
            pages = page_of_item<D, W>(next, a, warp);
        }
        float sink = 0.0f;
        if (!w.same || t.split == t.last) sink = begin_one<D>(m, a, t, w, n, rope, more);
        if (more && (threadIdx.x & 31u) == 0) m.at[w.parity ^ 1u][warp] = pages.at;
        if (!w.same) {
            w.whole = !s.meet && t.split == t.first && t.last - t.first < s.all.end - index;
            w.run = 0;
        }
        if (!w.same || !w.whole) total_begin(r);
        const float2 top = score_one<D>(m, a, t, w, pages, sink, v, more);
        sum_one<D>(r, m, t, w, pages, top, v, more);
        w.run++;
        if constexpr (D % 32 == 0)
            if (s.meet) {
                if (w.first) wk_cluster_wait();
                send_split<D>(m, t, s.part, r, warp, shared_address(sent));
                if (!more)
                    finish_sent<D>(m, a, t, s.part, rank, sent,
                                   *reinterpret_cast<const float2 *>(&m.sinks[2 * (threadIdx.x & 3u)]), n);
            }
        if (__builtin_expect(!w.whole && !s.meet, 0)) leave_split<D, W, FORM_ONE>(a, t, r, n);
        if (!next_same && !s.meet) end_tile<D, W, FORM_ONE>(m, a, t, r, n, w.run, w.whole, !more);
        if (!more) break;
        t = next;
        index++;
        w.same = next_same;
        w.first = false;
        w.parity ^= 1u;
    }
}

/* cluster: blocks of one, 1: there are none. near: do_item serves. late: the launch behind begins once the pages are
 * there, because its weights would be ahead of them and of q. */
template <int D>
__global__ void __launch_bounds__(32 * ONE_WARPS, 2)
    attend_one(const __grid_constant__ attend_args a, uint32_t cluster, bool near, bool late)
{
    extern __shared__ __align__(128) unsigned char memory[];
    one_shared<D> &m = *reinterpret_cast<one_shared<D> *>(memory);
    const uint32_t warp = threadIdx.x / 32, rank = blockIdx.x & (cluster - 1);
    __half *const v = reinterpret_cast<__half *>(&m + 1);
    if (!late) wk_release();
    const cuda_seq seq = load_seq(a.seq);
    if ((threadIdx.x & 31u) == 0) begin_barrier(shared_address(&m.k_bar[warp]), 1);
    if (cluster > 1) {
        if (threadIdx.x == 0) begin_barrier(shared_address(&m.sent_bar), 1);
        wk_cluster_arrive();
    }
    item t;
    const one_share s = deal_one(t, a, seq, cluster, rank);
    if (s.all.begin >= s.all.end) { /* the launch ends with the block that waits longest: one is enough */
        if (blockIdx.x == 0) wk_depend();
        return;
    }
    unsigned char *const sent = reinterpret_cast<unsigned char *>(v + ONE_WARPS * 32 * D);
    page pages = page_of_item<D, ONE_WARPS>(t, a, warp); /* not looked up before the item is known: the instructions for
                                                            that cost more than the journey, which the wait for q hides
                                                          */
    if constexpr (D % 32 == 0)
        if (near && s.all.begin + 1 == s.all.end && (s.meet || t.last == t.first)) {
            do_item<D, FORM_ONE>(m, a, t, pages, v, s.meet, s.part, rank, sent, late);
            return;
        }
    do_items<D>(m, a, t, pages, s, v, rank, sent, late);
}

#endif
