/* attend.cuh: what both attention kernels share: the layout of the paged cache, their arguments, and how a head of q, k
 * or v is finished.
 *
 * Layout. Heads are padded with zeros to one of the sizes that kernels exist for (attend_head). A page holds for each
 * KV head 32 positions of K, then of V: blocks of 8 positions x 8 values in 128 bytes, [position / 8][value /
 * 8][position % 8][value % 8]. So a page of a head is one run of memory that goes to shared memory as it is, where
 * every fragment load, straight or transposed, reads whole blocks: no bank is hit twice.
 *
 * Arithmetic. q, k and v are rounded to f16 after norm and rotation; scores are sums in FP32; probabilities are 2^(s -
 * m) rounded to f16; values are summed in FP32. Masked positions have probability 0 exactly and add nothing, so a tile
 * that a row does not see leaves its bits as they are. */
#ifndef CORE_DEVICE_CUDA_ATTEND_CUH
#define CORE_DEVICE_CUDA_ATTEND_CUH

#include <worker/arch.h>
#include <worker/cuda/part/act.cuh>

#include "device/cuda/kernels.h"
#include "device/cuda/mma.cuh"

/* Size of the kernels that serve a head; 0: none do. */
static inline uint32_t attend_head(uint32_t dk, uint32_t dv)
{
    static const uint32_t sizes[] = { 16, 32, 64, 80, 96, 128, 256 };
    const uint32_t d = dk > dv ? dk : dv;
    if (dk == 0 || dv == 0) return 0;
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (d <= sizes[i]) return sizes[i];
    return 0;
}

/* Halves from the start of a page's K or V of one head to value 8 c of the position in `slot`. */
template <int D> __device__ __forceinline__ uint32_t block_offset(uint32_t slot, uint32_t c)
{
    return ((slot >> 3) * (D / 8) + c) * 64 + (slot & 7) * 8;
}

/* One of q, k, v before it is finished. */
struct attend_source {
    const float *x;
    uint64_t stride;
    const float *rope_table; /* [rows][n][2] or NULL */
    uint32_t rope_n, rope_style;
    struct cuda_head_norm norm;
};

struct attend_args {
    struct attend_source q, k, v;
    const struct cuda_seq *seq;
    const struct cuda_lengths *lengths;
    const uint32_t *pages;
    __half *cache;
    const float *sinks;
    __half *act;
    float *out;
    float *part;          /* workspace: [rows * heads][max_splits][D] */
    float2 *part_max_sum; /* [rows * heads][max_splits] */
    uint32_t *counters;
    uint64_t page_halves, out_stride;
    float scale, softcap;
    uint32_t seqs, page_stride, ring_pages, window;
    uint32_t chunk;      /* these three: of tiles of prompts alone (attend_part_tile.cuh's ANY) */
    const float *slopes; /* [heads] or NULL */
    bool both_ways;
    uint32_t heads, kv_heads, group, dk, dv; /* group: query heads of a KV head */
    uint32_t group_magic;                    /* x / group = high word of x * group_magic, for small x; group > 1 */
    uint32_t shift, act_k, max_splits, head; /* head: the padded size */
    uint32_t table_pages;                    /* of a sequence, at most */
};

static inline struct attend_source attend_source_of(const float *x, uint64_t stride, const float *rope, uint32_t n,
                                                    uint32_t style, struct cuda_head_norm norm)
{
    const struct attend_source s = { x, stride, rope, rope ? n : 0, style, norm };
    return s;
}

/* The same of heads whose values are parts of their keys: the size of a padded key. */
uint32_t latent_head(uint32_t dk, uint32_t dv);

/* Checks the shapes; text names the field. */
wk_status attend_check(const struct cuda_attend *a, const char *what, struct attend_args *out,
                       const struct wk_err *err);
/* The same of tiles, whose q is in q_half. in_key: whether the kernels are those of values in keys. */
wk_status attend_check_tiles(const struct cuda_attend *a, const char *what, bool in_key, const void *q_half,
                             struct attend_args *out, const struct wk_err *err);

/* The current device: multiprocessors, and the shared memory that a block and a multiprocessor may have. */
struct attend_device {
    int processors, block_bytes, processor_bytes;
};
wk_status attend_device_of(struct attend_device *d, const struct wk_err *err);

__device__ __forceinline__ uint32_t first_key(uint32_t window, uint32_t position)
{
    return window && position + 1 > window ? position + 1 - window : 0;
}

/* The same of what `any` attention has, and the last position that a row sees; end: the last of its sequence. */
__device__ __forceinline__ uint32_t first_key_any(const attend_args &a, uint32_t position)
{
    return a.chunk ? position - position % a.chunk : first_key(a.window, position);
}
__device__ __forceinline__ uint32_t last_key_any(const attend_args &a, uint32_t position, uint32_t end)
{
    if (!a.both_ways) return position;
    return a.window && position < end && end - position >= a.window ? position + a.window - 1 : end;
}
/* A score behind scale and cap becomes one with its slope. */
__device__ __forceinline__ float sloped(float s, float slope, uint32_t position, uint32_t key)
{
    return __fmaf_rn(-slope, position < key ? (float)(key - position) : (float)(position - key), s);
}

__device__ __forceinline__ const uint32_t *page_entry(const attend_args &a, uint32_t seq, uint32_t page)
{
    return a.pages + (uint64_t)seq * a.page_stride + (a.ring_pages ? page % a.ring_pages : page);
}
template <int D> __device__ __forceinline__ __half *page_of(const attend_args &a, uint32_t id, uint32_t kv)
{
    return a.cache + (uint64_t)id * a.page_halves + (uint64_t)kv * (64 * D);
}

/* Sequence and position of a row of the batch; false: padding. By a whole warp. */
__device__ __forceinline__ bool find_row(const attend_args &a, uint32_t row, uint32_t *seq, uint32_t *position)
{
    const uint32_t lane = threadIdx.x & 31u;
    for (uint32_t base = 0; base < a.seqs; base += 32) {
        cuda_seq s = {};
        if (base + lane < a.seqs) s = a.seq[base + lane];
        const uint32_t found = __ballot_sync(0xffffffffu, row >= s.row && row - s.row < s.n_rows);
        if (!found) continue;
        const int at = __ffs(found) - 1;
        *seq = base + at;
        *position = __shfl_sync(0xffffffffu, s.position - s.row, at) + row;
        return true;
    }
    return false;
}

/* A tile of a sequence: which of its tiles it is, and the sequence. */
struct seq_tile {
    uint32_t tile, seq, row, position, n_rows;
};

/* Tile `index` of the step, from the last: later rows see more, and long work is to begin first. A tile has M pairs of
 * a row and one of `heads` heads. false: there are fewer. By a whole warp. */
template <int M>
__device__ __forceinline__ bool find_seq_tile(const attend_args &a, uint32_t index, uint32_t heads, seq_tile &t)
{
    const uint32_t lane = threadIdx.x & 31u;
    for (uint32_t base = (a.seqs + 31) / 32 * 32; base > 0;) {
        base -= 32;
        cuda_seq s = {};
        if (base + lane < a.seqs) s = a.seq[base + lane];
        const uint32_t tiles = (s.n_rows * heads + M - 1) / M;
        uint32_t from = tiles; /* tiles of this and later sequences of the 32 */
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t above = __shfl_down_sync(0xffffffffu, from, d);
            if (lane + d < 32) from += above;
        }
        const uint32_t found = __ballot_sync(0xffffffffu, index < from && index >= from - tiles);
        if (found) {
            const int at = __ffs(found) - 1;
            t.tile = __shfl_sync(0xffffffffu, from, at) - 1 - index;
            t.n_rows = __shfl_sync(0xffffffffu, s.n_rows, at);
            t.seq = base + at;
            t.row = __shfl_sync(0xffffffffu, s.row, at);
            t.position = __shfl_sync(0xffffffffu, s.position, at);
            return true;
        }
        index -= __shfl_sync(0xffffffffu, from, 0);
    }
    return false;
}

/* ---- finishing a head: by one whole warp, in shared memory --------------------------------------------- */

/* Values lane, lane + 32, ... of a head, and cosine and sine of pairs lane, lane + 32, ...: asked for together, so that
 * only one wait is seen. */
template <int D> struct head_values {
    float x[(D + 31) / 32];
    float2 rope[(D + 63) / 64];
};

/* Where a head and its row of the RoPE table lie, and how many values and pairs there are. */
struct head_place {
    const float *x;
    const float2 *rope;
    uint32_t values, pairs;
};

__device__ __forceinline__ head_place place_head(const attend_source &s, uint32_t row, uint32_t head, uint32_t d)
{
    return head_place{ s.x + row * s.stride + head * d,
                       reinterpret_cast<const float2 *>(s.rope_table) + (uint64_t)row * s.rope_n, d, s.rope_n };
}

template <int D> __device__ __forceinline__ void load_head(head_values<D> &h, const head_place &p)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (int j = 0; j < (D + 31) / 32; j++) h.x[j] = lane + 32 * j < p.values ? __ldcg(p.x + lane + 32 * j) : 0.0f;
#pragma unroll
    for (int j = 0; j < (D + 63) / 64; j++)
        h.rope[j] = lane + 32 * j < p.pairs ? __ldcg(p.rope + lane + 32 * j) : make_float2(0.0f, 0.0f);
}

/* Sum over a head from the sums of its runs of 16 (the same in all lanes of a run): the tree of wk_rms_scale, the runs
 * being its lanes. */
template <int D> __device__ __forceinline__ float add_runs(const float (&run)[(D + 31) / 32])
{
    constexpr int N = D <= 32 ? 1 : D <= 64 ? 2 : D <= 128 ? 4 : D <= 256 ? 8 : D <= 512 ? 16 : 32;
    float s[N];
#pragma unroll
    for (int j = 0; j < N; j++)
        s[j] = j < (D + 31) / 32 ? __fadd_rn(run[j < (D + 31) / 32 ? j : 0],
                                             __shfl_xor_sync(0xffffffffu, run[j < (D + 31) / 32 ? j : 0], 16))
                                 : 0.0f;
#pragma unroll
    for (int n = 1; n < N; n <<= 1)
#pragma unroll
        for (int j = 0; j < N; j += 2 * n) s[j] = __fadd_rn(s[j], s[j + n]);
    return s[0];
}

/* The sum of a run of 16 in 16 neighbouring lanes, by wk_square_sum16's tree. */
__device__ __forceinline__ float run_sum(float x)
{
#pragma unroll
    for (int d = 1; d < 16; d <<= 1) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

template <int D>
__device__ __forceinline__ void norm_head(head_values<D> &h, const struct cuda_head_norm &n, uint32_t d)
{
    constexpr int N = (D + 31) / 32;
    const uint32_t lane = threadIdx.x & 31u;
    float run[N];
    if (n.kind == CUDA_NORM_LAYER) {
#pragma unroll
        for (int j = 0; j < N; j++) run[j] = run_sum(h.x[j]);
        const float mean = __fdiv_rn(add_runs<D>(run), (float)d);
#pragma unroll
        for (int j = 0; j < N; j++) h.x[j] = lane + 32 * j < d ? __fadd_rn(h.x[j], -mean) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < N; j++) run[j] = wk_square_sum16(h.x[j]);
    const float scale = __frsqrt_rn(__fadd_rn(__fdiv_rn(add_runs<D>(run), (float)d), n.eps));
#pragma unroll
    for (int j = 0; j < N; j++) {
        const uint32_t i = lane + 32 * j;
        if (i >= d) continue;
        h.x[j] = wk_rms_value(h.x[j], scale, n.w ? __ldg(n.w + i) : 1.0f);
        if (n.b) h.x[j] = __fadd_rn(h.x[j], __ldg(n.b + i));
    }
}

/* Norm and rotation of the head that the warp has loaded, into row[0, D): zeros past d. Ends with the warp in step. */
template <int D>
__device__ __forceinline__ void finish_head(float *row, head_values<D> &h, const attend_source &s, uint32_t d)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (s.norm.kind != CUDA_NORM_NONE) norm_head<D>(h, s.norm, d);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < (D + 31) / 32; j++)
        if (lane + 32 * j < D) row[lane + 32 * j] = h.x[j];
    __syncwarp();
#pragma unroll
    for (int j = 0; j < (D + 63) / 64; j++) {
        const uint32_t i = lane + 32 * j;
        if (i >= s.rope_n) break;
        const uint32_t ia = s.rope_style == WK_ROPE_INTERLEAVED ? 2 * i : i,
                       ib = s.rope_style == WK_ROPE_INTERLEAVED ? 2 * i + 1 : i + s.rope_n;
        const float a = row[ia], b = row[ib];
        row[ia] = __fsub_rn(__fmul_rn(a, h.rope[j].x), __fmul_rn(b, h.rope[j].y));
        row[ib] = __fadd_rn(__fmul_rn(a, h.rope[j].y), __fmul_rn(b, h.rope[j].x));
    }
    __syncwarp();
}

/* Eight finished values as f16. */
__device__ __forceinline__ uint4 half_chunk(const float *row)
{
    __half2 h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) h[i] = __halves2half2(wk_act_half(row[2 * i], 0), wk_act_half(row[2 * i + 1], 0));
    return make_uint4(half_bits(h[0]), half_bits(h[1]), half_bits(h[2]), half_bits(h[3]));
}

/* ---- scores -------------------------------------------------------------------------------------------- */

/* scale and soft-cap: c tanh(s / c), tanh x = 1 - 2 / (e^2x + 1). */
__device__ __forceinline__ float capped(float s, float cap)
{
    const float e = exp2_fast(__fmul_rn(s, __fdividef(2.885390081777927f, cap)));
    return __fmul_rn(cap, __fadd_rn(1.0f, -__fdividef(2.0f, __fadd_rn(e, 1.0f))));
}

/* 1 / x to 1 ulp, of what is no subnormal. */
__device__ __forceinline__ float one_over(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}

/* What 1 / sum becomes with a sink; max in units of log2. */
__device__ __forceinline__ float value_factor(float max, float sum, bool sinks, float sink)
{
    if (!sinks) return one_over(sum);
    sink = __fmul_rn(sink, 1.4426950408889634f);
    const float m = fmaxf(sink, max), w = exp2_fast(__fadd_rn(max, -m));
    return __fdividef(w, __fmaf_rn(sum, w, exp2_fast(__fadd_rn(sink, -m))));
}

#endif
