/* router.cu: from a row to its experts in one launch: RMS norm, act for the experts, logits of the router's plain F32 rows, choice, items by expert.
 *
 * A warp has an expert: lane l takes four values of every 128 of k, a sum for each of the four places, in order of k; then the four and the lanes are added by a fixed tree. So a
 * row's logits depend on no other row, and not on how many are taken at once. Up to eight rows a block has one row and four experts, and the weights of the first 3072 values are in
 * registers when the wait for the preceding launch ends; more rows are taken eight a block. The last block to end of each eight rows chooses their experts, a warp a
 * row; the last of these puts the items by expert. */
#include "device/cuda/groups.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/route.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, TOGETHER = 8 /* rows that share a ticket */, MOST_BYTES = 24 * 1024 /* of dynamic shared memory */ };

struct router_launch {
    uint32_t rows, k;
    struct wk_cuda_input in;
    float in_scale;
    bool x_wide, w_wide, norm_wide;
    const float *w, *bias;
    __half *act;
    float *sums, *y, *out; /* out: of the choice */
    uint64_t y_stride, out_stride;
    struct route_choice choice;
    uint32_t *groups, *tickets, words; /* tickets: of the items by expert, then of each eight rows; words of shared memory */
    const int32_t *row_seq;
};

/* Every value of a row that is read here was written by an earlier kernel: past L1. */
static __device__ __forceinline__ uint32_t input_row(const struct wk_cuda_input &in, uint32_t row) { return in.row_index ? __ldcg(in.row_index + row) : row; }

/* Four values of the act of a row: of its own, or made from F32 by the norm and, if this block is to, stored. All lanes of a warp, e growing by 4. */
static __device__ __forceinline__ float4 router_values(const struct router_launch &p, uint32_t row, uint32_t from, float scale, uint32_t e, bool stores)
{
    const uint32_t k32 = act_width(p.k);
    union { uint2 u; __half2 h[2]; } both;
    both.u = make_uint2(0, 0);
    if (p.in.kind == WK_CUDA_IN_ACT) {
        if (e < k32) both.u = __ldcg((const uint2 *)((const __half *)p.in.x + (uint64_t)from * k32 + e));
    } else {
        const uint32_t left = left_of(p.k, e);
        const float4 x = load4<false>((const float *)p.in.x + from * p.in.x_stride + e, left, p.x_wide), w = p.in.w ? constant4<false>(p.in.w + e, left, p.norm_wide) : all4(1.0f);
        both.h[0] = wk_act_half2(wk_rms_value(x.x, scale, w.x), wk_rms_value(x.y, scale, w.y), 0);
        both.h[1] = wk_act_half2(wk_rms_value(x.z, scale, w.z), wk_rms_value(x.w, scale, w.w), 0);
        const float2 sums = wk_act_sum16(both.h[0], both.h[1]);
        if (stores && e < k32) {
            *(uint2 *)(p.act + (uint64_t)row * k32 + e) = both.u;
            if ((threadIdx.x & 3u) == 0) *(float2 *)(p.sums + (uint64_t)row * (k32 / 8) + e / 8) = sums;
        }
    }
    const float2 low = __half22float2(both.h[0]), high = __half22float2(both.h[1]);
    return make_float4(low.x, low.y, high.x, high.y);
}

/* Experts of the rows whose logits are there, then items by expert. space: keys and logits of each warp's row; then what groups need. */
static __device__ void router_choose(const struct router_launch &p, uint32_t *space)
{
    __shared__ uint32_t picked[WARPS][TAPE_MAX_SLOTS];
    const bool few = p.rows <= TOGETHER;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = few ? 0 : blockIdx.y * TOGETHER, end = min(first + TOGETHER, p.rows), padded = route_padded(p.choice.experts);
    if (!last_of(p.tickets + (few ? 0 : 1 + blockIdx.y), few ? gridDim.x * gridDim.y : gridDim.x)) return;
    uint32_t *const keys = space + warp * 2 * padded;
    for (uint32_t row = first + warp; row < end; row += WARPS) {
        choose_experts(p.choice, { keys, (float *)(keys + padded), picked[warp] }, p.y + row * p.y_stride, p.out + row * p.out_stride, lane, 32, [] { __syncwarp(); });
        __syncwarp();
    }
    if (!p.groups || (!few && !last_of(p.tickets, gridDim.y))) return;
    __syncthreads(); /* the ids that this block stored, and its keys */
    group_items_make({ (const uint32_t *)p.out + p.choice.k, p.out_stride, p.row_seq, p.rows, p.choice.k, p.choice.experts, p.groups }, space, p.words);
}

/* Block (x, y): experts WARPS * x and on, rows ROWS * y and on. */
template <uint32_t ROWS> static __global__ void __launch_bounds__(THREADS) router_kernel(const __grid_constant__ struct router_launch p)
{
    enum { PIECE = ROWS == 1 ? 3072 : 512, AHEAD = PIECE / 128 }; /* values of k at a time */
    extern __shared__ uint4 shared[];
    __shared__ float4 x[ROWS][PIECE / 4];
    __shared__ float scales[ROWS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, expert = blockIdx.x * WARPS + warp, first = blockIdx.y * ROWS, rows = min(ROWS, p.rows - first), k32 = act_width(p.k);
    const bool rms = p.in.kind == WK_CUDA_IN_RMS;
    const float *const weights = p.w + (uint64_t)min(expert, p.choice.experts - 1) * p.k;
    float4 w[AHEAD], sum[ROWS];
    auto load = [&](uint32_t from) {
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t e = from + (j * 32 + lane) * 4;
            w[j] = constant4<false>(weights + e, left_of(p.k, e), p.w_wide);
        }
    };
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) sum[r] = all4(0.0f);
    wk_release();
    load(0);
    wk_depend();
    if (rms)
        for (uint32_t r = warp; r < rows; r += WARPS) {
            const uint32_t parts = (p.k + 15) / 16;
            const float scale = wk_rms_scale(p.in.aux + (uint64_t)input_row(p.in, first + r) * parts, parts, p.k, p.in.eps);
            if (lane == 0) scales[r] = scale;
        }
    __syncthreads();
    for (uint32_t from = 0;;) {
        const uint32_t end = min(from + PIECE, k32);
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t source = input_row(p.in, first + r);
            const float scale = rms ? scales[r] : 0.0f;
            for (uint32_t i = from; i < end; i += 4 * THREADS) {
                const uint32_t e = i + threadIdx.x * 4;
                const float4 v = router_values(p, first + r, source, scale, e, p.act && i / (4 * THREADS) % gridDim.x == blockIdx.x);
                if (e < end) x[r][(e - from) / 4] = v;
            }
        }
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t at = j * 32 + lane;
            if (from + at * 4 >= p.k) break;
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++) {
                if (r >= rows) break;
                const float4 v = x[r][at];
                sum[r] = make_float4(__fmaf_rn(w[j].x, v.x, sum[r].x), __fmaf_rn(w[j].y, v.y, sum[r].y), __fmaf_rn(w[j].z, v.z, sum[r].z), __fmaf_rn(w[j].w, v.w, sum[r].w));
            }
        }
        from += PIECE;
        if (from >= p.k) break;
        load(from);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        const float s = wk_warp_sum(__fadd_rn(__fadd_rn(sum[r].x, sum[r].y), __fadd_rn(sum[r].z, sum[r].w)));
        if (r < rows && expert < p.choice.experts && lane == 0) p.y[(first + r) * p.y_stride + expert] = __fadd_rn(__fmul_rn(s, p.in_scale), p.bias ? __ldg(p.bias + expert) : 0.0f);
    }
    if (p.choice.k) router_choose(p, (uint32_t *)shared);
}

uint32_t cuda_router_tickets(uint32_t rows) { return 1 + (rows + TOGETHER - 1) / TOGETHER; }

static wk_status check_router(const struct cuda_router *r, const struct wk_err *err)
{
    wk_status status = check_rows("router", r->rows, r->k, err);
    if (status != WK_OK) return status;
    if (!r->experts || !r->w || !r->y || r->y_stride < r->experts || !r->in.x || !r->in.aux || r->in.kind > WK_CUDA_IN_RMS || r->in.shift >= 64)
        return wk_fail(err, WK_INTERNAL, "router: %u experts, input kind %u", r->experts, r->in.kind);
    if (!r->act != !r->sums || (r->act && r->in.kind != WK_CUDA_IN_RMS)) return wk_fail(err, WK_INTERNAL, "router: an act of input kind %u", r->in.kind);
    if (r->route.k && (r->route.k > TAPE_MAX_SLOTS || r->route.k > r->experts || !r->route.score || r->route.score >= WK_SCORE_END || !r->route.out || !r->route.ticket))
        return wk_fail(err, WK_INTERNAL, "router: top %u of %u by score %u", r->route.k, r->experts, r->route.score);
    return WK_OK;
}

wk_status cuda_router(const struct cuda_router *r, void *stream, const struct wk_err *err)
{
    wk_status status = check_router(r, err);
    if (status != WK_OK) return status;
    const struct wk_cuda_input *in = &r->in;
    struct router_launch p = { r->rows, r->k, *in, 1.0f, aligned16(in->x) && in->x_stride % 4 == 0, aligned16(r->w) && r->k % 4 == 0, aligned16(in->w), r->w, r->bias, (__half *)r->act, r->sums, r->y,
                               (float *)r->route.out, r->y_stride, r->route.out_stride, { r->experts, r->route.k, r->route.score, r->route.scale }, r->route.groups, r->route.ticket, 0, r->route.row_seq };
    for (uint32_t i = 0; i < in->shift && in->kind == WK_CUDA_IN_ACT; i++) p.in_scale *= 2.0f;
    /* Keys and logits of a row a warp, which is more than groups need. More experts than fit choose in a launch of their own. */
    const uint64_t picks = 2ull * WARPS * route_padded(r->experts);
    const bool apart = r->route.k && picks > MOST_BYTES / sizeof(uint32_t);
    const uint64_t words = r->route.k && !apart ? picks : 0;
    p.words = (uint32_t)words;
    if (apart) p.choice.k = 0;
    const uint32_t each = r->rows <= TOGETHER ? 1 : TOGETHER, blocks = (r->experts + WARPS - 1) / WARPS, height = (r->rows + each - 1) / each;
    if (height > 65535) return wk_fail(err, WK_UNSUPPORTED, "router: %u rows", r->rows);
    const dim3 grid(blocks, height);
    status = r->rows <= TOGETHER ? cuda_launch("router", router_kernel<1>, grid, THREADS, words * sizeof(uint32_t), r->dependent, stream, err, p)
                                 : cuda_launch("router", router_kernel<TOGETHER>, grid, THREADS, words * sizeof(uint32_t), r->dependent, stream, err, p);
    if (status != WK_OK || !apart) return status;
    struct cuda_route route = r->route;
    route.dependent = r->dependent;
    route.rows = r->rows;
    route.experts = r->experts;
    route.logits = { r->y, r->y_stride, NULL };
    return cuda_route(&route, stream, err);
}
