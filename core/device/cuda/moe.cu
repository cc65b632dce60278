/* moe.cu: mixture of experts: the k experts of a row and their weights, and the sum of what they gave. */
#include "device/cuda/row.cuh"

#include <math.h>

#include "device/cuda/launch.cuh"

/* ---- route: one block a row --------------------------------------------------------------------------------------------
 * An expert's place is the number of experts before it; a thread counts them for its own, so k costs nothing. */

enum { MOST_THREADS = 1024 };

struct route_launch {
    uint32_t rows, experts, k, score;
    float scale;
    struct row_source logits;
    float *out; /* k weights, k ids, out_stride apart */
    uint64_t out_stride;
};

/* Orders as numbers do: -0 as 0; a NaN above all, so that it is picked and its row's weights show it. At least 1. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    if (x != x) return UINT32_MAX;
    const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* How many of the experts have a greater key than expert e, or the same and a lower index. keys: 16-byte aligned, zeros behind the last. */
static __device__ __forceinline__ uint32_t place_of(const uint32_t *keys, uint32_t experts, uint32_t e)
{
    const uint32_t own = keys[e], before = own - 1;
    uint32_t place = 0;
    for (uint32_t j = 0; j < experts; j += 4) {
        const uint4 q = *(const uint4 *)(keys + j);
        place += (q.x > (j < e ? before : own)) + (q.y > (j + 1 < e ? before : own)) + (q.z > (j + 2 < e ? before : own)) + (q.w > (j + 3 < e ? before : own));
    }
    return place;
}

/* Dynamic shared memory: keys [padded], F32 logits [experts]; padded: experts rounded up to 4. */
static __global__ void __launch_bounds__(MOST_THREADS) route_kernel(const __grid_constant__ struct route_launch p)
{
    extern __shared__ uint4 shared[];
    __shared__ uint32_t picked[TAPE_MAX_SLOTS];
    uint32_t *keys = (uint32_t *)shared;
    const uint32_t padded = (p.experts + 3) & ~3u;
    float *logit = (float *)(keys + padded);
    const uint32_t lane = threadIdx.x, row = blockIdx.x;
    wk_release();
    wk_depend();
    const float *x = source_row(p.logits, row);
    for (uint32_t e = threadIdx.x; e < p.experts; e += blockDim.x) {
        logit[e] = __ldcg(x + e);
        keys[e] = key_of(logit[e]);
    }
    if (threadIdx.x < padded - p.experts) keys[p.experts + threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < p.experts; e += blockDim.x) {
        const uint32_t place = place_of(keys, p.experts, e);
        if (place < p.k) picked[place] = e;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const float top = logit[picked[0]];
    float weight[2], sum = 0.0f; /* lane l: picks l and l + 32 */
    for (uint32_t i = 0; i < 2; i++) {
        weight[i] = lane + 32 * i < p.k ? expf(__fsub_rn(logit[picked[lane + 32 * i]], top)) : 0.0f;
        sum = __fadd_rn(sum, weight[i]);
    }
    if (p.score == WK_SOFTMAX_ALL) {
        sum = 0.0f;
        for (uint32_t e = lane; e < p.experts; e += 32) sum = __fadd_rn(sum, expf(__fsub_rn(logit[e], top)));
    }
    sum = wk_warp_sum(sum);
    float *out = p.out + row * p.out_stride;
    for (uint32_t i = 0; i < 2; i++)
        if (lane + 32 * i < p.k) {
            out[lane + 32 * i] = __fmul_rn(__fdiv_rn(weight[i], sum), p.scale);
            ((uint32_t *)out)[p.k + lane + 32 * i] = picked[lane + 32 * i];
        }
}

wk_status cuda_route(const struct cuda_route *r, void *stream, const struct wk_err *err)
{
    const size_t shared = 2ull * ((r->experts + 3) & ~3u) * sizeof(float);
    wk_status status = check_rows("route", r->rows, r->experts, err);
    if (status == WK_OK) status = check_grid("route", r->rows, err);
    if (status != WK_OK) return status;
    if (!r->k || r->k > TAPE_MAX_SLOTS || r->k > r->experts || !r->score || r->score >= WK_SCORE_END) return wk_fail(err, WK_INTERNAL, "route: top %u of %u by score %u", r->k, r->experts, r->score);
    if (shared > 48 * 1024) return wk_fail(err, WK_UNSUPPORTED, "route: %u experts; CUDA serves 6144", r->experts);
    const struct route_launch p = { r->rows, r->experts, r->k, r->score, r->scale, source_of(&r->logits), (float *)r->out, r->out_stride };
    const uint32_t threads = r->experts < MOST_THREADS ? (r->experts + 31) / 32 * 32 : (uint32_t)MOST_THREADS;
    return cuda_launch("route", route_kernel, r->rows, threads, shared, r->dependent, stream, err, p);
}

/* ---- combine ---------------------------------------------------------------------------------------------------------- */

enum { THREADS = 128 };

struct combine_launch {
    uint32_t k, rows;
    struct row_source x, residual;
    const float *route;
    uint64_t route_stride;
    struct row_sink out;
};

/* The first product is rounded, then each further one is added to the sum with one rounding. Four of them are read at a time. */
static __global__ void __launch_bounds__(THREADS) combine_kernel(const __grid_constant__ struct combine_launch p)
{
    enum { AHEAD = 4 };
    const uint32_t row = grid_row(), e = (blockIdx.x * THREADS + threadIdx.x) * 4, left = left_of(p.out.width, e);
    wk_release();
    wk_depend();
    if (row >= p.rows) return;
    const float *weight = p.route + row * p.route_stride;
    float4 v = all4(0.0f), residual = all4(0.0f);
    if (p.residual.x) residual = load4<false>(source_row(p.residual, row) + e, left, p.residual.wide);
    for (uint32_t s = 0; s < p.k; s += AHEAD) {
        float4 x[AHEAD];
        float w[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (s + i < p.k) {
                x[i] = load4<false>(source_row(p.x, row * p.k + s + i) + e, left, p.x.wide);
                w[i] = __ldcg(weight + s + i);
            }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (s + i == 0) v = mul4(x[i], all4(w[i]));
            else if (s + i < p.k) v = make_float4(__fmaf_rn(x[i].x, w[i], v.x), __fmaf_rn(x[i].y, w[i], v.y), __fmaf_rn(x[i].z, w[i], v.z), __fmaf_rn(x[i].w, w[i], v.w));
    }
    if (p.residual.x) v = add4(v, residual);
    sink4<false>(p.out, row, e, within<false>(v, left));
}

wk_status cuda_combine(const struct cuda_combine *c, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("combine", c->rows, c->width, err);
    if (status != WK_OK) return status;
    if (!c->k || c->k > TAPE_MAX_SLOTS) return wk_fail(err, WK_INTERNAL, "combine: %u experts", c->k);
    const struct combine_launch p = { c->k, c->rows, source_of(c->x, c->x_stride), source_of(&c->residual), (const float *)c->route, c->route_stride, sink_f32(c->y, c->y_stride, c->part, c->width) };
    return cuda_launch("combine", combine_kernel, row_grid(c->rows, (c->width + 4 * THREADS - 1) / (4 * THREADS)), THREADS, 0, c->dependent, stream, err, p);
}
