/* attend_part_item.cuh: attention of a block's only item, a split of one tile of a sequence's one row: heads without
 * norms that are rotated whole or not at all. Both kernels of generated rows go this way where they can
 * (attend_few.cuh, attend_one.cuh); and how the blocks of a cluster add up the splits of a tile. */
#ifndef CORE_DEVICE_CUDA_ATTEND_PART_ITEM_CUH
#define CORE_DEVICE_CUDA_ATTEND_PART_ITEM_CUH

#include <worker/cuda/part/cluster.cuh>
#include <worker/cuda/part/launch.cuh>

#include "device/cuda/attend_part_split.cuh"

/* A block finishes at once the tile's queries, the new key and the new value: a head for each group of head_lanes
 * lanes. */
enum { ONE_WARPS = 8, JOB_KEY = QUERIES, JOB_VALUE, JOBS };
/* A cluster: its blocks at most, the tiles that it is for at most, and the splits of a tile that its blocks share at
 * most. Sent: a fragment of 16 values of 8 queries, 16 bytes a lane, then maximum and sum of queries 2t, 2t + 1. */
enum { ONE_CLUSTER = 16, ONE_CLUSTER_TILES = 8, SENT_SPLITS = 16, SENT_BYTES = 512 + 64 };

/* Splits of a tile among the blocks of its cluster, in runs: how many a block has, and how many blocks have any. */
struct parting {
    uint32_t splits, each, blocks;
};
__host__ __device__ constexpr parting part_splits(uint32_t splits, uint32_t cluster)
{
    const uint32_t each = (splits + cluster - 1) / cluster;
    return parting{ splits, each, (splits + each - 1) / each };
}
/* Blocks that add up: block i slices i, i + their number, ...; slices of the block of this rank. */
template <int D> __host__ __device__ constexpr uint32_t adders(const parting &p)
{
    return p.blocks < D / 16 ? p.blocks : D / 16;
}
template <int D> __host__ __device__ constexpr uint32_t slices_of(uint32_t rank, const parting &p)
{
    return rank < adders<D>(p) ? (D / 16 - 1 - rank) / adders<D>(p) + 1 : 0;
}

/* ---- splits of one tile in the blocks of a cluster -----------------------------------------------------
 *
 * Every block has a run of splits and sends slices of 16 values of each to the blocks that add them up, slice i to
 * block i modulo their number. What is sent counts down a barrier in the memory that it goes to; the cluster's own
 * barrier only says that every block has begun, and orders no memory. */

/* The block's split to who adds it up. sent: where such things lie. */
template <int D>
__device__ __forceinline__ void send_split(const split_shared<D, ONE_WARPS> &m, const item &t, const parting &p,
                                           const total<D, ONE_WARPS> &r, uint32_t slice, uint32_t sent)
{
    const uint32_t lane = threadIdx.x & 31u, n = adders<D>(p), bar = shared_address(&m.sent_bar);
    static_assert(r.slices == 1, "a warp has one slice");
    if (slice >= D / 16) return;
    const uint32_t to = sent + ((slice / n) * p.splits + (t.split - t.first)) * SENT_BYTES;
    wk_cluster_send(to + lane * 16, bar, slice % n, r.y[0]);
    const float sums[4] = { r.max[0], r.sum[0], r.max[1], r.sum[1] };
    if (lane < 4) wk_cluster_send(to + 512 + lane * 16, bar, slice % n, sums);
}

/* All splits of the warp's slice of those that the block of this rank adds up, in order; false: it has none. */
template <int D>
__device__ __forceinline__ bool add_sent(const split_shared<D, ONE_WARPS> &m, const parting &p, uint32_t rank,
                                         const unsigned char *sent, total<D, ONE_WARPS> &r)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, splits = p.splits;
    if (warp >= slices_of<D>(rank, p)) return false;
    wk_stage_wait(shared_address(&m.sent_bar), 0);
    const unsigned char *from = sent + warp * splits * SENT_BYTES;
    total_begin(r);
#pragma unroll 4
    for (uint32_t s = 0; s < splits; s++, from += SENT_BYTES) {
        const float4 x = *reinterpret_cast<const float4 *>(from + lane * 16),
                     of = *reinterpret_cast<const float4 *>(from + 512 + (lane & 3) * 16);
        const factors f = raise(r.max[0], of.x), g = raise(r.max[1], of.z);
        r.sum[0] = grown(r.sum[0], of.y, f);
        r.sum[1] = grown(r.sum[1], of.w, g);
        r.y[0][0] = grown(r.y[0][0], x.x, f);
        r.y[0][1] = grown(r.y[0][1], x.y, g);
        r.y[0][2] = grown(r.y[0][2], x.z, f);
        r.y[0][3] = grown(r.y[0][3], x.w, g);
    }
    return true;
}

/* ---- a block's only item -------------------------------------------------------------------------------
 *
 * The way from the wait to the result is what its time is, and each of its instructions runs once: between the launches
 * of a layer they come from L2 or farther, 50 clocks and more for a line of eight. So it is short code, a loop over
 * values, no more than the item needs; heads of D values that are rotated whole or not at all. And warps go ahead of
 * each other: one without a head to finish does not wait for the launch before, but takes the steps of those that do,
 * with zeros; one that has nothing to do at all, no page and no values either, goes through all steps at once and only
 * arrives at the barriers. What they have executed is near when the others come. */

/* Whether the steps of a model may go this way. */
static inline bool one_item_serves(const attend_args &a)
{
    const bool rotated = a.q.rope_n == a.head / 2 && a.k.rope_n == a.head / 2, straight = !a.q.rope_n && !a.k.rope_n;
    if (a.q.rope_style != a.k.rope_style) return false;
    return a.act && a.softcap == 0.0f && a.dk == a.head && a.dv == a.head && a.head % 32 == 0 && a.head <= 128 &&
           (straight || rotated);
}

/* slice_values by a loop, four pages at a time; those outside [from, to] add nothing. */
template <int D, int W>
__device__ __forceinline__ void sum_slice(float (&y)[4], const split_shared<D, W> &m, uint32_t slice, uint32_t v,
                                          uint32_t from, uint32_t to)
{
    const uint32_t lane = threadIdx.x & 31u, p_at = shared_address(m.p) + lane * 16,
                   address = v + slice * 256 + ((lane >> 3) & 1) * 128 + (lane >> 4) * (D * 16) + (lane & 7) * 16;
    float x[4][4] = {};
#pragma unroll 1
    for (uint32_t i = from & ~3u; i <= to; i += 4)
#pragma unroll
        for (uint32_t half = 0; half < 4; half += 2) {
            if (half && i + half > to) break;
            uint32_t p[2][4], r[2][2][4];
#pragma unroll
            for (uint32_t k = 0; k < 2; k++) {
                const uint32_t at = address + min(max(i + half + k, from), to) * (64 * D);
                load_matrices_turned(p[k], p_at + (i + half + k) * (KV_PAGE * QUERIES * 2));
                load_matrices_turned(r[k][0], at);
                load_matrices_turned(r[k][1], at + 2 * D * 16);
            }
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
#pragma unroll
                for (uint32_t k = 0; k < 2; k++)
                    mma_f16(x[half + k], r[k][j][0], r[k][j][1], r[k][j][2], r[k][j][3], p[k][2 * j], p[k][2 * j + 1]);
        }
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = __fadd_rn(__fadd_rn(x[0][i], x[1][i]), __fadd_rn(x[2][i], x[3][i]));
}

/* page_scores in two steps. */
template <int D> struct page_keys {
    uint32_t x[D / 16][2][4];
};

template <int D> __device__ __forceinline__ void load_keys(page_keys<D> &r, uint32_t k)
{
    const uint32_t lane = threadIdx.x & 31u,
                   address = k + ((lane >> 3) & 1) * (D * 16) + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
    for (int c = 0; c < D / 16; c++)
#pragma unroll
        for (int i = 0; i < 2; i++) load_matrices(r.x[c][i], address + i * (2 * D * 16) + c * 256);
}
template <int D> __device__ __forceinline__ void key_scores(float (&s)[2][4], const page_keys<D> &r, uint32_t q)
{
    float x[2][2][4] = {}; /* even and odd runs of 16 */
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
        uint32_t b[2];
        load_matrices_2(b[0], b[1], q + c * 256 + (threadIdx.x & 15u) * 16);
#pragma unroll
        for (int i = 0; i < 2; i++)
            mma_f16(x[c & 1][i], r.x[c][i][0], r.x[c][i][1], r.x[c][i][2], r.x[c][i][3], b[0], b[1]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fadd_rn(x[0][i / 4][i % 4], x[1][i / 4][i % 4]);
}

/* What a warp does of the item. */
template <int D> struct duty {
    static constexpr uint32_t HEADS = 32 / head_lanes<D>(); /* that a warp finishes */
    uint32_t warp, head, n;                                 /* first query head of the tile, how many there are */
    uint32_t base, from, to; /* page of the split that the first warp has; warps [from, to] have some that are seen */
    uint32_t job, behind;    /* of the lane: query, key or value to finish; place in its page of the newest position */
    bool newest, busy;       /* the split has the newest position, in the page of warp `to`; heads to finish */
    bool seen, slice;        /* a page; a slice of values */
};

template <int D> __device__ __forceinline__ duty<D> duty_of(const attend_args &a, const item &t)
{
    const uint32_t low = t.low / KV_PAGE, high = t.high / KV_PAGE, left = a.group - t.tile * QUERIES;
    duty<D> w;
    w.warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    w.head = t.kv * a.group + t.tile * QUERIES;
    w.n = left < QUERIES ? left : QUERIES;
    w.base = t.split * ONE_WARPS;
    w.from = low > w.base ? low - w.base : 0;
    w.to = high < w.base + ONE_WARPS ? high - w.base : ONE_WARPS - 1;
    w.behind = t.high % KV_PAGE;
    w.newest = t.split == t.last;
    w.seen = w.warp >= w.from && w.warp <= w.to;
    w.slice = w.warp < D / 16;
    const uint32_t jobs = w.n + (w.newest ? 2 : 0), index = w.warp * w.HEADS + (threadIdx.x & 31u) / head_lanes<D>();
    w.busy = w.warp * w.HEADS < jobs;
    w.job = index < w.n ? index : index < jobs ? JOB_KEY + (index - w.n) : (uint32_t)JOBS;
    return w;
}

/* A lane's part of a new query, key or value: two runs of 4 values, which rotate each other or lie behind each other.
 */
struct head_part {
    const float *from;     /* the first run; NULL: none */
    uint32_t first, apart; /* value of the head that it begins with; values to the second run */
    bool rotated, pairs;
    float4 x[2], rope[2]; /* values; cosine and sine of four pairs */
};

template <int D, int FORM>
__device__ __forceinline__ void place_part(head_part &r, const attend_args &a, const item &t, const duty<D> &w)
{
    const attend_source &s = w.job < QUERIES ? a.q : w.job == JOB_KEY ? a.k : a.v;
    const bool rotated = a.q.rope_n != 0, halves = rotated && a.q.rope_style == WK_ROPE_HALF;
    const uint32_t l = threadIdx.x % head_lanes<D>();
    r.from = NULL;
    r.first = 0;
    r.apart = 4;
    r.pairs = !halves;
    r.rotated = rotated; /* without a job it goes the way of the others, ahead of them */
    r.x[0] = r.x[1] = r.rope[0] = r.rope[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (w.job >= JOBS || l >= D / 8) return;
    r.rotated = rotated && w.job != JOB_VALUE;
    if (r.rotated && halves) r.apart = D / 2;
    r.first = r.apart == 4 ? 8 * l : 4 * l;
    const uint32_t row = FORM == FORM_ONE ? 0 : t.row;
    r.from = s.x + row * s.stride + (w.job < QUERIES ? w.head + w.job : t.kv) * D + r.first;
    if (r.rotated) {
        const float4 *const rope = reinterpret_cast<const float4 *>(s.rope_table) + row * (D / 4);
        r.rope[0] = __ldg(rope + 2 * l); /* every block reads them: from L1 after a multiprocessor's first warp */
        r.rope[1] = __ldg(rope + 2 * l + 1);
    }
}

/* The same sums as rope_run's. */
__device__ __forceinline__ void rope_two(float &x, float &y, float c, float s)
{
    const float u = __fadd_rn(__fmul_rn(x, c), __fmul_rn(y, -s));
    y = __fadd_rn(__fmul_rn(y, c), __fmul_rn(x, s));
    x = u;
}
__device__ __forceinline__ void rope_part(head_part &r)
{
    float4 &x = r.x[0], &y = r.x[1];
    const float4 &t = r.rope[0], &u = r.rope[1];
    if (!r.rotated) return;
    if (r.pairs) {
        rope_two(x.x, x.y, t.x, t.y);
        rope_two(x.z, x.w, t.z, t.w);
        rope_two(y.x, y.y, u.x, u.y);
        rope_two(y.z, y.w, u.z, u.w);
    } else {
        rope_two(x.x, y.x, t.x, t.y);
        rope_two(x.y, y.y, t.z, t.w);
        rope_two(x.z, y.z, u.x, u.y);
        rope_two(x.w, y.w, u.z, u.w);
    }
}

/* Where a part goes: into the queries or a page's copy, and into the page itself; halves to its second run. A part
 * without a job: to where the warp's probabilities will be. */
struct part_place {
    __half *at, *page;
    uint32_t apart;
};

template <int D>
__device__ __forceinline__ part_place place_of_part(split_shared<D, ONE_WARPS> &m, __half *v, const item &t,
                                                    const duty<D> &w, const head_part &r)
{
    const uint32_t in_blocks = r.first / 8 * 64 + r.first % 8, offset = block_offset<D>(w.behind, 0) + in_blocks;
    part_place p = { m.p[w.warp], NULL, r.apart == 4 ? 4 : r.apart / 8 * 64 + r.apart % 8 };
    if (!r.from) return p;
    p.at = m.q + w.job * 8 + in_blocks;
    if (w.job < QUERIES) return p;
    p.at = (w.job == JOB_KEY ? m.k[w.to] : v + w.to * (32 * D)) + offset;
    if (t.tile == 0) p.page = m.at[0][w.to] + (w.job == JOB_KEY ? 0 : 32 * D) + offset;
    return p;
}
__device__ __forceinline__ void put_part(const part_place &p, const head_part &r)
{
    const uint2 x = make_uint2(half_bits(wk_act_half2(r.x[0].x, r.x[0].y)),
                               half_bits(wk_act_half2(r.x[0].z, r.x[0].w))),
                y = make_uint2(half_bits(wk_act_half2(r.x[1].x, r.x[1].y)),
                               half_bits(wk_act_half2(r.x[1].z, r.x[1].w)));
    *reinterpret_cast<uint2 *>(p.at) = x;
    *reinterpret_cast<uint2 *>(p.at + p.apart) = y;
    if (!p.page) return;
    *reinterpret_cast<uint2 *>(p.page) = x;
    *reinterpret_cast<uint2 *>(p.page + p.apart) = y;
}

/* Zeros behind the newest value, by the warps that have pages: what another sequence left there may be NaN. */
template <int D> __device__ __forceinline__ void clear_rows(__half *v, const duty<D> &w)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll 1
    for (uint32_t row = w.behind + 1 + (w.warp - w.from); row < KV_PAGE; row += w.to - w.from + 1)
        if (lane < D / 8)
            *reinterpret_cast<uint4 *>(v + w.to * (32 * D) + block_offset<D>(row, lane)) = make_uint4(0, 0, 0, 0);
}

/* Barrier `id` of the block's warps. waits: what others have left is read behind it. */
__device__ __forceinline__ void meet_warps(uint32_t id, bool waits)
{
    if (waits)
        asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(32 * ONE_WARPS) : "memory");
    else
        asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(32 * ONE_WARPS) : "memory");
}

/* The page's scores, in units of log2; -inf: not seen. */
template <int D>
__device__ __forceinline__ void score_page(float (&s)[2][4], const page_keys<D> &keys,
                                           const split_shared<D, ONE_WARPS> &m, const attend_args &a, const item &t,
                                           const duty<D> &w)
{
    const uint32_t start = (w.base + w.warp) * KV_PAGE, first_seen = first_key(a.window, t.position),
                   g = (threadIdx.x & 31u) >> 2;
    const float scale = __fmul_rn(a.scale, 1.4426950408889634f);
    key_scores<D>(s, keys, shared_address(m.q));
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = __fmul_rn(s[i / 4][i % 4], scale);
    if (start + KV_PAGE <= t.position + 1 && start >= first_seen) return;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (start + g - first_seen + 8 * i > t.position - first_seen)
            s[i / 2][2 * (i % 2)] = s[i / 2][2 * (i % 2) + 1] = -INFINITY;
}

/* Where a lane's part of a slice of the results goes: of lane 4 g + t query g's values 2t, 2t + 1 and 2t +
 * 8, 2t + 9. */
template <int D> __device__ __forceinline__ __half *place_result(const attend_args &a, const item &t, uint32_t slice)
{
    const uint32_t lane = threadIdx.x & 31u;
    return a.act + (uint64_t)t.row * a.act_k + (t.kv * a.group + t.tile * QUERIES + (lane >> 2)) * D + 16 * slice +
           2 * (lane & 3);
}

/* store_slice to an act. sink: of queries 2t, 2t + 1; valid: query g is there. */
template <int D>
__device__ __forceinline__ void store_total(const attend_args &a, __half *to, const total<D, ONE_WARPS> &r, float2 sink,
                                            bool valid)
{
    float2 factor = make_float2(one_over(r.sum[0]), one_over(r.sum[1]));
    if (a.sinks)
        factor =
            make_float2(value_factor(r.max[0], r.sum[0], true, sink.x), value_factor(r.max[1], r.sum[1], true, sink.y));
    const uint32_t low = turn_matrix(half_bits(
                       wk_act_half2(__fmul_rn(r.y[0][0], factor.x), __fmul_rn(r.y[0][1], factor.y), a.shift))),
                   high = turn_matrix(half_bits(
                       wk_act_half2(__fmul_rn(r.y[0][2], factor.x), __fmul_rn(r.y[0][3], factor.y), a.shift)));
    if (valid) *reinterpret_cast<uint32_t *>(to) = low;
    if (valid) *reinterpret_cast<uint32_t *>(to + 8) = high;
}

/* The blocks of a cluster have sent what they have of a tile: the results of the slices that this one adds up. */
template <int D>
__device__ __forceinline__ void finish_sent(const split_shared<D, ONE_WARPS> &m, const attend_args &a, const item &t,
                                            const parting &p, uint32_t rank, const unsigned char *sent, float2 sink,
                                            uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31u, g = lane >> 2;
    total<D, ONE_WARPS> r;
    if (add_sent<D>(m, p, rank, sent, r))
        store_total<D>(a, place_result<D>(a, t, threadIdx.x / 32 * adders<D>(p) + rank), r, sink, g < n);
    if (rank == 0) store_end<FORM_ONE>(a, t, n);
}

/* The item, of a sequence's one row. mine: the warp's page; meet: its tile has splits in other blocks of the cluster,
 * too, and `sent` is where they send them. */
template <int D, int FORM>
__device__ __forceinline__ void do_item(split_shared<D, ONE_WARPS> &m, const attend_args &a, const item &t,
                                        const page &mine, __half *v, bool meet, const parting &part, uint32_t rank,
                                        unsigned char *sent, bool late)
{
    const duty<D> w = duty_of<D>(a, t);
    const uint32_t query = 2 * (threadIdx.x & 3u), g = (threadIdx.x & 31u) >> 2,
                   k_bar = shared_address(&m.k_bar[w.warp]);
    const bool waits = w.busy || w.seen || w.slice,
               changed = w.newest && w.warp == w.to; /* changed: the new key comes into the warp's page */
    copy_two_runs(shared_address(m.k[w.warp]), shared_address(v) + w.warp * (64 * D), mine.at, mine.seen ? 64 * D : 0,
                  k_bar);
    if ((threadIdx.x & 31u) == 0) m.at[0][w.warp] = mine.at;
    float2 sink = make_float2(0.0f, 0.0f);
    if (a.sinks)
        sink = make_float2(query < w.n ? __ldg(a.sinks + w.head + query) : 0.0f,
                           query + 1 < w.n ? __ldg(a.sinks + w.head + query + 1) : 0.0f);
    head_part own;
    place_part<D, FORM>(own, a, t, w);
    __half *const result = place_result<D>(a, t, w.slice ? w.warp : 0);
    __syncthreads(); /* barriers are there */
    const part_place place = place_of_part(m, v, t, w, own);
    if (meet && threadIdx.x == 0 && rank < adders<D>(part))
        wk_bar_expect(shared_address(&m.sent_bar), slices_of<D>(rank, part) * part.splits * SENT_BYTES);
    if (late && w.warp == 0) {
#pragma unroll 1
        for (uint32_t i = w.from; i <= w.to; i++) wk_stage_wait(shared_address(&m.k_bar[i]), 0);
        wk_release();
    }
    if (meet) wk_cluster_wait(); /* they have begun together */
    if (w.busy) {
        wk_depend();
        if (own.from) {
            own.x[0] = __ldcg(reinterpret_cast<const float4 *>(own.from));
            own.x[1] = __ldcg(reinterpret_cast<const float4 *>(own.from + own.apart));
        }
    }
    page_keys<D> keys; /* those that are there before the queries */
    if (w.seen && !changed) {
        wk_stage_wait(k_bar, 0);
        load_keys<D>(keys, shared_address(m.k[w.warp]));
    }
    if (w.newest && (w.busy || w.seen)) wk_stage_wait(shared_address(&m.k_bar[w.to]), 0);
    if (w.newest && w.seen) clear_rows<D>(v, w);
    rope_part(own);
    put_part(place, own);
    meet_warps(1, waits);
    float s[2][4];
    if (changed) load_keys<D>(keys, shared_address(m.k[w.warp]));
    if (w.seen || !waits) score_page<D>(s, keys, m, a, t, w);
#pragma unroll
    for (int i = 0; i < 8; i++) s[i / 4][i % 4] = w.seen ? s[i / 4][i % 4] : -INFINITY;
    leave_max(m, s);
    meet_warps(2, waits);
    float2 top = split_max(m);
    if (!waits) top = make_float2(0.0f, 0.0f);
    leave_probabilities(m, s, top);
    meet_warps(3, waits);
    if (w.slice || !waits) {
        total<D, ONE_WARPS> r; /* that of the split, as it would be added to nothing */
        sum_slice<D, ONE_WARPS>(r.y[0], m, w.slice ? w.warp : 0, shared_address(v), w.from, w.to);
#pragma unroll
        for (int i = 0; i < 4; i++) r.y[0][i] = __fadd_rn(r.y[0][i], 0.0f);
        const float2 sum = split_sum(m);
        r.max[0] = top.x, r.max[1] = top.y, r.sum[0] = sum.x, r.sum[1] = sum.y;
        if (__builtin_expect(!meet, 1))
            store_total<D>(a, result, r, sink, waits && g < w.n);
        else if (w.slice)
            send_split<D>(m, t, part, r, w.warp, shared_address(sent));
    }
    if (!w.busy) wk_depend();
    if (__builtin_expect(meet, 0))
        finish_sent<D>(m, a, t, part, rank, sent, sink, w.n);
    else
        store_end<FORM_ONE>(a, t, w.n);
}

#endif
