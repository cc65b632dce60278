/* attend_part_deal.cuh: what attention of generated rows is dealt out by, and what it is given: the items of a step,
 * and how a head of q, k or v is finished on a fast path from memory to the tensor cores. attend_part_split.cuh has
 * what is done with an item, attend_few.cuh and attend_one.cuh are the kernels. */
#ifndef CORE_DEVICE_CUDA_ATTEND_PART_DEAL_CUH
#define CORE_DEVICE_CUDA_ATTEND_PART_DEAL_CUH

#include "device/cuda/attend.cuh"

enum { QUERIES = 8 }; /* of a tile */

/* What a kernel is for: anything; heads without norms that can be read and rotated by runs of 8; the same, and one row
 * in all (attend_one.cuh): what is decided by rows and sequences falls away. The arithmetic is one. */
enum { FORM_ANY, FORM_PLAIN, FORM_ONE };

/* ---- items --------------------------------------------------------------------------------------------- */

struct item {
    uint32_t seq, kv, tile, split;
    uint32_t row, n_rows, position; /* of the sequence */
    uint32_t tiles, first, last;    /* tiles of queries; splits that any of them sees */
    uint32_t low, high; /* positions that the tile's queries see: its first row from low on, its last up to high */
};

/* Row of the tile's sequence that query x of it belongs to. */
template <int FORM> __device__ __forceinline__ uint32_t row_of_query(const attend_args &a, uint32_t x)
{
    return FORM == FORM_ONE ? 0 : a.group == 1 ? x : __umulhi(x, a.group_magic);
}

template <int W, int FORM>
__device__ __forceinline__ void item_sequence(item &t, const attend_args &a, const cuda_seq &s)
{
    t.row = s.row;
    t.n_rows = FORM == FORM_ONE ? 1 : s.n_rows;
    t.position = s.position;
    t.tiles = (t.n_rows * a.group + QUERIES - 1) / QUERIES;
    t.first = first_key(a.window, s.position) / (W * KV_PAGE);
    t.last = (s.position + t.n_rows - 1) / (W * KV_PAGE);
}

template <int FORM> __device__ __forceinline__ void item_tile(item &t, const attend_args &a)
{
    const uint32_t from = row_of_query<FORM>(a, t.tile * QUERIES),
                   to = row_of_query<FORM>(a, t.tile * QUERIES + QUERIES - 1);
    t.low = first_key(a.window, t.position + from);
    t.high = t.position + (to < t.n_rows ? to : t.n_rows - 1);
}

/* Tile `tile` of the sequence that t is of, over all KV heads. */
template <int FORM> __device__ __forceinline__ void item_of_tile(item &t, const attend_args &a, uint32_t tile)
{
    t.kv = tile;
    if (t.tiles > 1) t.kv /= t.tiles;
    t.tile = tile - t.kv * t.tiles;
    item_tile<FORM>(t, a);
}

/* Item i of a sequence. */
template <int W, int FORM>
__device__ __forceinline__ void item_within(item &t, const attend_args &a, const cuda_seq &s, uint32_t seq, uint32_t i)
{
    item_sequence<W, FORM>(t, a, s);
    const uint32_t splits = t.last - t.first + 1;
    uint32_t tile = i;
    t.seq = seq;
    if (splits > 1) tile /= splits;
    t.split = t.first + (i - tile * splits);
    item_of_tile<FORM>(t, a, tile);
}

/* The next one, which exists. */
template <int W, int FORM>
__device__ __forceinline__ void item_next(item &t, const attend_args &a, const cuda_seq *seqs)
{
    if (++t.split <= t.last) return;
    if (++t.tile == t.tiles) {
        t.tile = 0;
        if (++t.kv == a.kv_heads && FORM != FORM_ONE) {
            t.kv = 0;
            do t.seq++;
            while (seqs[t.seq].n_rows == 0);
            item_sequence<W, FORM>(t, a, seqs[t.seq]);
        }
    }
    t.split = t.first;
    item_tile<FORM>(t, a);
}

__device__ __forceinline__ cuda_seq load_seq(const cuda_seq *at)
{
    const uint4 x = __ldg(
        reinterpret_cast<const uint4 *>(at)); /* by every warp of every block: from L1 after a multiprocessor's first */
    return cuda_seq{ x.x, x.y, x.z, x.w };
}

/* Of a launch for several sequences: blocks of a cluster, and the most splits that they have room for; 2^32 / these
 * blocks, / all blocks, / the tiles of a row, rounded up (tile 0: do_item does not serve); block i begins with sequence
 * i likely / 2^32, if all have as many items; late: the launch behind begins once pages are there. */
struct few_launch {
    uint32_t cluster, sent, part, share, tile, likely;
    bool late;
};

enum { MEETING = 6 }; /* pages that are read while blocks meet in memory */

/* x / n by what n is there as. */
__device__ __forceinline__ uint32_t over(uint32_t x, uint32_t part) { return __umulhi(x, part); }

/* Pages that a sequence's tiles see, at most: the first, and how many. */
struct pages_seen {
    uint32_t first, n;
};
__device__ __forceinline__ pages_seen tile_pages(const item &t, const attend_args &a)
{
    const uint32_t first = first_key(a.window, t.position) / KV_PAGE;
    return pages_seen{ first, (t.position + t.n_rows - 1) / KV_PAGE - first + 1 };
}

/* How a step is dealt out, as the lanes of a warp have it: each knows what is ahead of sequences 2 lane and 2 lane + 1.
 * Units are whole tiles where these can be dealt out evenly, so that nothing of them has to meet another block's, else
 * pages. meet: the splits of a tile are dealt out to the blocks of a cluster. */
struct dealing {
    uint32_t items[2], units[2]; /* ahead */
    uint32_t all_items, all_units;
    bool meet, whole;
};

/* The sequence that has item or unit `index` of all, which exists: the last with so many ahead of it; those of its like
 * without any lie before it. By a whole warp. */
__device__ __forceinline__ uint32_t seek_seq(const uint32_t (&ahead)[2], uint32_t index)
{
    return __popc(__ballot_sync(0xffffffffu, ahead[0] <= index)) +
           __popc(__ballot_sync(0xffffffffu, ahead[1] <= index)) - 1;
}
__device__ __forceinline__ uint32_t ahead_of(const uint32_t (&ahead)[2], uint32_t seq)
{
    return __shfl_sync(0xffffffffu, seq & 1u ? ahead[1] : ahead[0], seq / 2);
}

/* A block's run of the splits of its tile: from t.split to `to`, of `each` like others of its cluster, or fewer; none:
 * it has nothing to do. */
struct tile_run {
    uint32_t to, each;
    bool none;
};

/* Steps of one row a sequence, of about the same length: sequences have their tiles in order, a cluster or a block
 * each. Whether the step is one; t: the block's tile, and where it begins. Of a window what sequences see at most is
 * taken. */
template <int W, bool MEETS>
__device__ __forceinline__ bool deal_tiles(item &t, tile_run &r, const attend_args &a, const few_launch &launch)
{
    static_assert(W * KV_PAGE == CUDA_SPLIT, "splits as lengths have them");
    const uint32_t cluster = MEETS ? over(blockIdx.x, launch.part) : blockIdx.x, seq = over(cluster, launch.tile);
    const cuda_seq own = load_seq(a.seq + (seq < a.seqs ? seq : 0));
    const uint4 of = __ldg(reinterpret_cast<const uint4 *>(a.lengths));
    const cuda_lengths step = { of.x, of.y, of.z, of.w };
    if (step.rows != 1) return false;
    item_sequence<W, FORM_ONE>(t, a, own);
    const uint32_t unit = MEETS ? CUDA_SPLIT : KV_PAGE, tiles = a.kv_heads * t.tiles,
                   longest = (a.window && step.longest >= a.window ? a.window + unit - 2 : step.longest) / unit + 1;
    if (!MEETS || longest > launch.cluster) {
        const uint32_t share = over(min(MEETS ? step.splits : step.pages, a.seqs * longest) * tiles,
                                    launch.share); /* of a cluster or a block, if all could be dealt out evenly */
        if (MEETS ? longest > launch.sent || over(longest + launch.cluster - 1, launch.part) > share + 2
                  : longest > share + MEETING)
            return false;
    }
    r.each = MEETS ? over(t.last - t.first + launch.cluster, launch.part) : t.last - t.first + 1;
    t.seq = seq;
    t.split = t.first + (blockIdx.x - (MEETS ? cluster * launch.cluster : cluster)) * r.each;
    item_of_tile<FORM_ONE>(t, a, cluster - seq * tiles);
    r.to = t.split + r.each - 1 < t.last ? t.split + r.each - 1 : t.last;
    r.none = seq >= a.seqs || own.n_rows == 0 || t.split > t.last;
    return true;
}

/* ---- finishing a head: a lane has a run of 8 values, head_lanes lanes have a head ----------------------
 *
 * The same arithmetic as attend.cuh's, for a short way from memory to the tensor cores instead of few reads: values
 * that rotate each other are read twice. */

template <int D> __device__ __forceinline__ constexpr uint32_t head_lanes()
{
    return D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : D <= 128 ? 16 : 32;
}

/* Values 8 c + i of a head, what each is rotated with, and cosine and sine of the rotation, the sine with the sign that
 * it has in the sum. */
struct head_run {
    const float *x; /* the head; NULL: none */
    float own[8], other[8];
    float2 rope[8];
};

template <int D> __device__ __forceinline__ uint32_t run_first() { return threadIdx.x % head_lanes<D>() * 8; }

__device__ __forceinline__ uint32_t rope_partner(const attend_source &s, uint32_t i)
{
    return s.rope_style == WK_ROPE_INTERLEAVED ? i ^ 1 : i < s.rope_n ? i + s.rope_n : i - s.rope_n;
}

/* RAW: from the block's copy in shared memory. */
template <bool RAW> __device__ __forceinline__ float4 load_4(const float *from)
{
    return RAW ? *reinterpret_cast<const float4 *>(from) : __ldcg(reinterpret_cast<const float4 *>(from));
}

template <bool RAW> __device__ __forceinline__ float4 rope_4(const float *from)
{
    return RAW ? *reinterpret_cast<const float4 *>(from)
               : __ldg(reinterpret_cast<const float4 *>(
                     from)); /* every warp reads them: from L1 after a multiprocessor's first */
}

/* What rotates the lane's run; nothing of the head is read. rope: of the head's row. */
template <int D, int FORM, bool RAW>
__device__ __forceinline__ void load_rope(head_run &r, const attend_source &s, const float *rope)
{
    const uint32_t first = run_first<D>(), n = s.rope_n;
    const bool pairs = s.rope_style == WK_ROPE_INTERLEAVED;
#pragma unroll
    for (int i = 0; i < 8; i++) r.rope[i] = make_float2(1.0f, -0.0f); /* x + 0 * -0 is x */
    if (first >= 2 * n) return;
    if (FORM && pairs) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 t = rope_4<RAW>(rope + first + 4 * i);
            r.rope[4 * i] = make_float2(t.x, -t.y);
            r.rope[4 * i + 1] = make_float2(t.x, t.y);
            r.rope[4 * i + 2] = make_float2(t.z, -t.w);
            r.rope[4 * i + 3] = make_float2(t.z, t.w);
        }
    } else if (FORM) {
        const float *from = rope + 2 * (first < n ? first : first - n);
        const float sign = first < n ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 t = rope_4<RAW>(from + 4 * i);
            r.rope[2 * i] = make_float2(t.x, __fmul_rn(t.y, sign));
            r.rope[2 * i + 1] = make_float2(t.z, __fmul_rn(t.w, sign));
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t k = first + i;
            if (k >= 2 * n) break;
            const float2 t = __ldcg(reinterpret_cast<const float2 *>(rope) + (pairs ? k / 2 : k < n ? k : k - n));
            r.rope[i] = make_float2(t.x, rope_partner(s, k) > k ? -t.y : t.y);
        }
    }
}

template <bool RAW> __device__ __forceinline__ void load_8(float (&x)[8], const float *from)
{
    const float4 a = load_4<RAW>(from), b = load_4<RAW>(from + 4);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* d: values of a head; other: also what the run is rotated with, if it is not in the run. */
template <int D, int FORM, bool RAW>
__device__ __forceinline__ void load_run(head_run &r, const attend_source &s, uint32_t d, bool other)
{
    const uint32_t first = run_first<D>();
    other = other && s.rope_style == WK_ROPE_HALF;
#pragma unroll
    for (int i = 0; i < 8; i++) r.own[i] = r.other[i] = 0.0f;
    if (!r.x || first >= d) return;
    if (FORM) {
        load_8<RAW>(r.own, r.x + first);
        if (other && first < 2 * s.rope_n) load_8<RAW>(r.other, r.x + rope_partner(s, first));
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            if (first + i >= d) break;
            r.own[i] = __ldcg(r.x + first + i);
            if (other && first + i < 2 * s.rope_n) r.other[i] = __ldcg(r.x + rope_partner(s, first + i));
        }
    }
}

/* Sum over a head's lanes of the sums of their runs, in all of them: the tree of wk_rms_scale, runs of 16 being its
 * lanes. */
template <int D> __device__ __forceinline__ float add_head(const float (&x)[8])
{
    float s = __fadd_rn(__fadd_rn(__fadd_rn(x[0], x[1]), __fadd_rn(x[2], x[3])),
                        __fadd_rn(__fadd_rn(x[4], x[5]), __fadd_rn(x[6], x[7])));
#pragma unroll
    for (uint32_t n = 1; n < head_lanes<D>(); n <<= 1) s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, n));
    return s;
}

/* By a whole warp, whatever its lanes have. */
template <int D> __device__ __forceinline__ void norm_run(head_run &r, const attend_source &s, uint32_t d)
{
    const struct cuda_head_norm &n = s.norm;
    const uint32_t first = run_first<D>();
    const bool halves = s.rope_style == WK_ROPE_HALF;
    float x[8];
    const float mean = __fdiv_rn(add_head<D>(r.own), (float)d);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        if (n.kind == CUDA_NORM_LAYER && first + i < d) r.own[i] = __fadd_rn(r.own[i], -mean);
        if (n.kind == CUDA_NORM_LAYER && halves && first + i < 2 * s.rope_n) r.other[i] = __fadd_rn(r.other[i], -mean);
        x[i] = __fmul_rn(r.own[i], r.own[i]);
    }
    const float scale = __frsqrt_rn(__fadd_rn(__fdiv_rn(add_head<D>(x), (float)d), n.eps));
    if (n.kind == CUDA_NORM_NONE || !r.x) return;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t k = first + i;
        if (k >= d) break;
        r.own[i] = wk_rms_value(r.own[i], scale, n.w ? __ldg(n.w + k) : 1.0f);
        if (n.b) r.own[i] = __fadd_rn(r.own[i], __ldg(n.b + k));
        if (k >= 2 * s.rope_n || !halves) continue;
        const uint32_t p = rope_partner(s, k);
        r.other[i] = wk_rms_value(r.other[i], scale, n.w ? __ldg(n.w + p) : 1.0f);
        if (n.b) r.other[i] = __fadd_rn(r.other[i], __ldg(n.b + p));
    }
}

__device__ __forceinline__ uint4 half_run(const float (&x)[8])
{
    __half2 h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) h[i] = wk_act_half2(x[2 * i], x[2 * i + 1], 0);
    return make_uint4(half_bits(h[0]), half_bits(h[1]), half_bits(h[2]), half_bits(h[3]));
}
__device__ __forceinline__ uint4 rope_run(const head_run &r, const attend_source &s)
{
    const bool pairs = s.rope_style == WK_ROPE_INTERLEAVED;
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = __fadd_rn(__fmul_rn(r.own[i], r.rope[i].x), __fmul_rn(pairs ? r.own[i ^ 1] : r.other[i], r.rope[i].y));
    return half_run(x);
}

#endif
