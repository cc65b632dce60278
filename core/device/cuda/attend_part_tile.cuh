/* attend_part_tile.cuh: what the kernels of prompt attention share: tiles of rows and of keys, masks, the running
 * softmax, and the results.
 *
 * A block has a tile of rows of one sequence and one query head; it walks over tiles of 64 keys at absolute positions.
 * A warp holds ROWS x 16 whole rows: scores and results are C fragments (mma.cuh), rows g and g + 8 of each 16 in a
 * lane. */
#ifndef CORE_DEVICE_CUDA_ATTEND_PART_TILE_CUH
#define CORE_DEVICE_CUDA_ATTEND_PART_TILE_CUH

#include "device/cuda/attend.cuh"

enum { KEYS = 64, TILE_PAGES = KEYS / KV_PAGE };

/* ---- a tile of rows ------------------------------------------------------------------------------------ */

struct tile {
    uint32_t seq, row, n; /* rows [row, row + n) of the batch */
    uint32_t position;    /* of its first row */
    uint32_t low, high;   /* positions that any of its rows sees: [low, high] */
    uint32_t end;         /* ANY: the last position of its sequence */
};

/* Tile `index` of the step (find_seq_tile). ANY: of attention in chunks, with slopes or in both directions. */
template <int M, bool ANY = false> __device__ bool find_tile(const attend_args &a, uint32_t index, tile &t)
{
    seq_tile s;
    if (!find_seq_tile<M>(a, index, 1, s)) return false;
    const uint32_t first = s.tile * M;
    t.seq = s.seq;
    t.row = s.row + first;
    t.n = s.n_rows - first < M ? s.n_rows - first : M;
    t.position = s.position + first;
    t.low = first_key(a.window, t.position);
    t.high = t.position + t.n - 1;
    if constexpr (ANY) {
        t.end = t.high + (s.n_rows - first - t.n);
        t.low = first_key_any(a, t.position);
        t.high = last_key_any(a, t.high, t.end);
    }
    return true;
}

/* Queries, in blocks as in a page: [M / 8][D / 8][8][8]. Eight lanes fill one block, so that no bank is hit twice. */
template <int D, int M, int T>
__device__ __forceinline__ void load_queries(uint32_t shared, const __half *q_half, const attend_args &a, const tile &t,
                                             uint32_t head)
{
    for (uint32_t i = threadIdx.x; i < M * (D / 8); i += T) {
        const uint32_t block = i / 8, row = block / (D / 8) * 8 + i % 8, c = block % (D / 8);
        const bool valid = row < t.n;
        copy16_or_zero(shared + i * 16, q_half + ((uint64_t)(t.row + (valid ? row : 0)) * a.heads + head) * D + c * 8,
                       valid);
    }
}

__device__ __forceinline__ void load_ids(uint32_t (&ids)[TILE_PAGES], const attend_args &a, const tile &t, uint32_t key)
{
#pragma unroll
    for (uint32_t i = 0; i < TILE_PAGES; i++) {
        const uint32_t page = key / KV_PAGE + i;
        ids[i] = page >= t.low / KV_PAGE && page <= t.high / KV_PAGE ? __ldg(page_entry(a, t.seq, page)) : 0;
    }
}

/* Values of positions outside [low, high] become 0: nobody sees them, but 0 times NaN is NaN. */
template <int D, int T> __device__ __forceinline__ void clear_unseen(__half *v, const tile &t, uint32_t key)
{
    for (uint32_t i = threadIdx.x; i < KEYS * (D / 8); i += T) {
        const uint32_t p = key + i / (D / 8);
        if (p < t.low || p > t.high)
            *reinterpret_cast<uint4 *>(v + block_offset<D>(i / (D / 8), i % (D / 8))) = make_uint4(0, 0, 0, 0);
    }
}

/* ---- a warp: 16 ROWS rows ------------------------------------------------------------------------------ */

template <int D, int ROWS> struct state {
    float y[ROWS][D / 8][4];          /* results, unscaled */
    float max[ROWS][2], sum[ROWS][2]; /* of rows g and g + 8; the sum over the lane's own columns */
};

/* In place of every score of the lane f(score, its row of the warp's, its key of the tile's). */
template <int ROWS, class F> __device__ __forceinline__ void each_score(float (&s)[ROWS][KEYS / 8][4], F f)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[r][n][i] = f(s[r][n][i], 16 * r + 8 * (i / 2) + (lane >> 2), 8 * n + 2 * (lane & 3) + i % 2);
}

/* Soft-cap and scale to log2 where they cannot be folded into the exponent. */
template <int ROWS> __device__ __forceinline__ void cap_scores(float (&s)[ROWS][KEYS / 8][4], const attend_args &a)
{
    each_score(s, [&](float score, uint32_t, uint32_t) {
        const float x = __fmul_rn(score, a.scale);
        return __fmul_rn(a.softcap != 0.0f ? capped(x, a.softcap) : x, 1.4426950408889634f);
    });
}

/* position: of the warp's row 0. */
template <int ROWS>
__device__ __forceinline__ void mask_scores(float (&s)[ROWS][KEYS / 8][4], uint32_t window, uint32_t position,
                                            uint32_t key)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = position + 16 * r + 8 * h + (lane >> 2), low = first_key(window, at);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const uint32_t p = key + 8 * n + 2 * (lane & 3) + j;
                    if (p > at || p < low) s[r][n][2 * h + j] = -INFINITY;
                }
        }
}

/* The same of attention in chunks and in both directions. */
template <int ROWS>
__device__ __forceinline__ void mask_any(float (&s)[ROWS][KEYS / 8][4], const attend_args &a, const tile &t,
                                         uint32_t position, uint32_t key)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = position + 16 * r + 8 * h + (lane >> 2), low = first_key_any(a, at),
                           high = last_key_any(a, at, t.end);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const uint32_t p = key + 8 * n + 2 * (lane & 3) + j;
                    if (p > high || p < low) s[r][n][2 * h + j] = -INFINITY;
                }
        }
}

/* cap_scores with slopes. */
template <int ROWS>
__device__ __forceinline__ void slope_scores(float (&s)[ROWS][KEYS / 8][4], const attend_args &a, float slope,
                                             uint32_t position, uint32_t key)
{
    each_score(s, [&](float score, uint32_t row, uint32_t of) {
        const float x = __fmul_rn(score, a.scale);
        return __fmul_rn(sloped(a.softcap != 0.0f ? capped(x, a.softcap) : x, slope, position + row, key + of),
                         1.4426950408889634f);
    });
}

/* Probabilities 2^((s - max) f) in place of scores, and everything so far brought to the new maximum. */
template <int D, int ROWS>
__device__ __forceinline__ void tile_softmax(state<D, ROWS> &w, float (&s)[ROWS][KEYS / 8][4], float f)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = w.max[r][h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[r][n][2 * h], s[r][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float base = top == -INFINITY ? 0.0f : __fmul_rn(top, f),
                        old = exp2_fast(
                            __fadd_rn(__fmul_rn(w.max[r][h], f), -base)); /* 1 exactly where nothing changes */
            w.max[r][h] = top;
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const float p = exp2_fast(__fmaf_rn(s[r][n][2 * h + j], f, -base));
                    s[r][n][2 * h + j] = p;
                    sum = __fadd_rn(sum, p);
                }
            w.sum[r][h] = __fmaf_rn(w.sum[r][h], old, sum);
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                w.y[r][i][2 * h] = __fmul_rn(w.y[r][i][2 * h], old);
                w.y[r][i][2 * h + 1] = __fmul_rn(w.y[r][i][2 * h + 1], old);
            }
        }
}

/* ---- results ------------------------------------------------------------------------------------------- */

/* One run of 16 values of one row, 4 lanes: two of values 8 i .., two of 8 i + 8 .. each. */
__device__ __forceinline__ void store_run(const attend_args &a, uint64_t row, uint32_t column, bool valid, float x0,
                                          float x1, float x2, float x3)
{
    const uint32_t t = threadIdx.x & 3u;
    if (!a.act) {
        float *y = a.out + row * a.out_stride + column + 2 * t;
        const uint32_t left = a.dv - column % a.dv;
        if (valid && 2 * t < left) y[0] = x0;
        if (valid && 2 * t + 1 < left) y[1] = x1;
        if (valid && 2 * t + 8 < left) y[8] = x2;
        if (valid && 2 * t + 9 < left) y[9] = x3;
        return;
    }
    if (!valid) return;
    __half *y = a.act + row * a.act_k + column + 2 * t;
    *reinterpret_cast<__half2 *>(y) = wk_act_half2(x0, x1, a.shift);
    *reinterpret_cast<__half2 *>(y + 8) = wk_act_half2(x2, x3, a.shift);
}

template <int D, int ROWS>
__device__ void store_tile(state<D, ROWS> &w, const attend_args &a, const tile &t, uint32_t first, uint32_t head,
                           float f)
{
    const uint32_t lane = threadIdx.x & 31u;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t i = first + 16 * r + 8 * h + (lane >> 2);
            float sum = w.sum[r][h];
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 1));
            sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
            const float factor =
                value_factor(__fmul_rn(w.max[r][h], f), sum, a.sinks != NULL, a.sinks ? __ldg(a.sinks + head) : 0.0f);
#pragma unroll
            for (int c = 0; c < D / 16; c++)
                store_run(a, t.row + i, head * a.dv + 16 * c, i < t.n && 16 * c < a.dv,
                          __fmul_rn(w.y[r][2 * c][2 * h], factor), __fmul_rn(w.y[r][2 * c][2 * h + 1], factor),
                          __fmul_rn(w.y[r][2 * c + 1][2 * h], factor), __fmul_rn(w.y[r][2 * c + 1][2 * h + 1], factor));
            /* What an act has past the row's end is 0. */
            const uint32_t width = a.heads * a.dv;
            if (a.act && head == a.heads - 1 && i < t.n)
                for (uint32_t c = width + (lane & 3) * 2; c < a.act_k; c += 8)
                    *reinterpret_cast<__half2 *>(a.act + (uint64_t)(t.row + i) * a.act_k + c) = __float2half2_rn(0.0f);
        }
}

/* The kernels of sm_90a, in builds for it; done: false where they do not run: another device, or a head size that has
 * none. */
wk_status attend_prompt_sm90_launch(const struct attend_args *a, uint32_t rows, const void *q_half, void *stream,
                                    const struct wk_err *err, bool *done);

#endif
