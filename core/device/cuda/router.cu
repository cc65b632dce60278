/* router.cu: from a row to its experts in one launch: RMS norm, act for the experts, logits of the router's plain F32 rows, choice, items by expert.
 *
 * Eight blocks share a row, or eight rows; a block multiplies four experts at a time. Its eight warps share k: lane l of warp w takes four values from 128 w + 4 l of every 1024,
 * a sum an expert, in order of k; then the lanes are added by a fixed tree, 3072 values at a time, and then the warps by a fixed tree. So a row's logits depend on no other row, and not
 * on how many are taken at once. The weights of the first four experts and 3072 values and the norm's are in registers when the wait for the preceding launch ends, and all that is read
 * after it is asked for at once. The first of the eight blocks chooses: where there are clusters the others put their logits into its shared memory; before sm_90 the last one to end
 * takes its place and reads them from y. The last to choose puts the items by expert. */
#include "device/cuda/groups.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/route.cuh"

enum {
    WARPS = 8, THREADS = 32 * WARPS,
    SHARERS = 8,                   /* blocks that share rows */
    TOGETHER = 8,                  /* rows that blocks share at most */
    AHEAD = 3, TURN = 128 * WARPS, /* values of all warps at a time, and how many times from one reading */
    PIECE = AHEAD * TURN,
    QUAD = 4,                      /* experts of a block at a time */
    MOST_BYTES = 40 * 1024         /* of dynamic shared memory */
};

struct router_launch {
    uint32_t rows, k, each; /* each: rows that blocks share */
    struct wk_cuda_input in;
    float in_scale;
    bool x_wide, w_wide, norm_wide;
    const float *w, *bias;
    __half *act;
    float *sums, *y, *out; /* out: of the choice */
    uint64_t y_stride, out_stride;
    struct route_choice choice;
    uint32_t *groups, *tickets, words; /* tickets: of the items by expert, then of the rows that blocks share; words of shared memory */
    const int32_t *row_seq;
};

/* Every value of a row that is read here was written by an earlier kernel: past L1. */
static __device__ __forceinline__ uint32_t input_row(const struct wk_cuda_input &in, uint32_t row) { return in.row_index ? __ldcg(in.row_index + row) : row; }

/* ---- between the blocks that share rows ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ void sharers_arrive()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void sharers_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
/* *at of the first sharer. */
static __device__ __forceinline__ void first_put(float *at, float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, 0; st.shared::cluster.f32 [a], %1; }" ::"r"((uint32_t)__cvta_generic_to_shared(at)), "f"(v) : "memory");
#endif
}

/* ---- a row -------------------------------------------------------------------------------------------------------------------- */

/* wk_rms_scale of a row, its first 32 * 8 partials asked for at once. */
static __device__ __forceinline__ float router_scale(const struct router_launch &p, uint32_t source, uint32_t lane)
{
    const uint32_t parts = (p.k + 15) / 16;
    const float *const part = p.in.aux + (uint64_t)source * parts;
    float q[8], sum = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) q[j] = 32 * j + lane < parts ? __ldcg(part + 32 * j + lane) : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) sum = __fadd_rn(sum, q[j]);
#pragma unroll 1
    for (uint32_t i = 256 + lane; i < parts; i += 32) sum = __fadd_rn(sum, __ldcg(part + i));
    return wk_norm_scale(wk_warp_sum(sum), p.k, p.in.eps);
}

/* What a lane reads of a row: four values (RMS), or their act. */
union router_four { float4 f; uint2 h; };
static __device__ __forceinline__ router_four router_read(const struct router_launch &p, uint32_t source, uint32_t e)
{
    router_four v;
    v.f = all4(0.0f);
    if (p.in.kind == WK_CUDA_IN_RMS) v.f = load4<false>((const float *)p.in.x + source * p.in.x_stride + e, left_of(p.k, e), p.x_wide);
    else if (e < act_width(p.k)) v.h = __ldcg((const uint2 *)((const __half *)p.in.x + (uint64_t)source * act_width(p.k) + e));
    return v;
}

/* The same as an act, of its own or by the norm; stored, if this block is to. All lanes of a warp, e growing by 4. */
static __device__ __forceinline__ float4 router_values(const struct router_launch &p, uint32_t row, router_four v, float scale, float4 w, uint32_t e, bool stores)
{
    union { uint2 u; __half2 h[2]; } both;
    both.u = v.h;
    if (p.in.kind == WK_CUDA_IN_RMS) {
        both.h[0] = wk_act_half2(wk_rms_value(v.f.x, scale, w.x), wk_rms_value(v.f.y, scale, w.y), 0);
        both.h[1] = wk_act_half2(wk_rms_value(v.f.z, scale, w.z), wk_rms_value(v.f.w, scale, w.w), 0);
        if (stores) {
            const uint32_t k32 = act_width(p.k);
            const float2 sums = wk_act_sum16(both.h[0], both.h[1]);
            if (e < k32) {
                *(uint2 *)(p.act + (uint64_t)row * k32 + e) = both.u;
                if ((threadIdx.x & 3u) == 0) *(float2 *)(p.sums + (uint64_t)row * (k32 / 8) + e / 8) = sums;
            }
        }
    }
    const float2 low = __half22float2(both.h[0]), high = __half22float2(both.h[1]);
    return make_float4(low.x, low.y, high.x, high.y);
}

/* Sum l / 8 of four, over all lanes, by a tree: in lane l. */
static __device__ __forceinline__ float sum_of_four(const float s[QUAD], uint32_t lane)
{
    const bool high = lane & 16u, odd = lane & 8u;
    const float a = __fadd_rn(high ? s[2] : s[0], __shfl_xor_sync(0xffffffffu, high ? s[0] : s[2], 16));
    const float b = __fadd_rn(high ? s[3] : s[1], __shfl_xor_sync(0xffffffffu, high ? s[1] : s[3], 16));
    float sum = __fadd_rn(odd ? b : a, __shfl_xor_sync(0xffffffffu, odd ? a : b, 8));
#pragma unroll
    for (int d = 4; d; d >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, d));
    return sum;
}

/* ---- the choice ------------------------------------------------------------------------------------------------------------- */

/* Experts of rows [first, end), a warp a row, then items by expert. space: keys and logits of each row; then what groups need. */
static __device__ void router_choose(const struct router_launch &p, uint32_t first, uint32_t end, uint32_t *space)
{
    __shared__ uint32_t picked[WARPS][TAPE_MAX_SLOTS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, padded = route_padded(p.choice.experts), row = first + warp;
    float *const out = p.out + row * p.out_stride;
    if (row < end) {
        uint32_t *const keys = space + warp * 2 * padded;
        float *const logits = (float *)(keys + padded);
        auto logit = [&](uint32_t e) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
            return logits[e];
#else
            return __ldcg(p.y + row * p.y_stride + e);
#endif
        };
        choose_experts(p.choice, { keys, logits, picked[warp] }, logit, out, lane, 32, [] { __syncwarp(); });
    }
    if (!p.groups) return;
    if (p.rows == 1) {
        if (warp == 0) group_items_one(picked[0], !p.row_seq || p.row_seq[0] >= 0 ? p.choice.k : 0, p.choice.experts, p.groups, lane);
        return;
    }
    if (gridDim.y > 1 && !last_of(p.tickets, gridDim.y)) return;
    __syncthreads(); /* the ids that this block stored, and its keys */
    group_items_make({ (const uint32_t *)p.out + p.choice.k, p.out_stride, p.row_seq, p.rows, p.choice.k, p.choice.experts, p.groups }, space, p.words);
}

/* ---- the kernel --------------------------------------------------------------------------------------------------------------- */

/* Block (x, y): experts QUAD * x and on of every QUAD * SHARERS, rows each * y and on. Dynamic shared memory: router_choose's. */
static __global__ void __launch_bounds__(THREADS, 2) router_kernel(const __grid_constant__ struct router_launch p)
{
    extern __shared__ uint4 shared[];
    __shared__ __align__(16) float parts[TOGETHER][QUAD][WARPS];
    __shared__ float scales[TOGETHER];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * p.each, rows = min(p.each, p.rows - first), own = threadIdx.x * 4;
    const uint32_t experts = p.choice.experts, padded = route_padded(experts), result_row = threadIdx.x / QUAD, result = threadIdx.x % QUAD; /* what this thread finishes */
    const bool rms = p.in.kind == WK_CUDA_IN_RMS;
    float4 w[QUAD][AHEAD], norm[AHEAD];
    float bias = 0.0f, scale = 0.0f;
    router_four v[AHEAD], next[AHEAD];
    auto load = [&](uint32_t expert, uint32_t from) {
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) {
            const uint32_t e = from + j * TURN + own;
#pragma unroll
            for (uint32_t i = 0; i < QUAD; i++) w[i][j] = constant4<false>(p.w + (uint64_t)min(expert + i, experts - 1) * p.k + e, left_of(p.k, e), p.w_wide);
            norm[j] = p.in.w ? constant4<false>(p.in.w + e, left_of(p.k, e), p.norm_wide) : all4(1.0f);
        }
        if (p.bias && result_row < rows) bias = __ldg(p.bias + min(expert + result, experts - 1));
    };
    auto read = [&](router_four *to, uint32_t source, uint32_t from) {
#pragma unroll
        for (uint32_t j = 0; j < AHEAD; j++) to[j] = router_read(p, source, from + j * TURN + own);
    };
    wk_release();
    sharers_arrive(); /* the first sharer is there before its memory is written */
    load(blockIdx.x * QUAD, 0);
    sharers_wait();
    wk_depend();
    const uint32_t source = input_row(p.in, first);
    read(v, source, 0);
    if (rms) scale = router_scale(p, rows == 1 ? source : input_row(p.in, first + min(warp, rows - 1)), lane);
    if (rows > 1) {
        if (lane == 0) scales[warp] = scale;
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t expert = blockIdx.x * QUAD, again = 0; !again || expert < experts; expert += QUAD * SHARERS, again = 1) { /* blocks without experts store acts */
#pragma unroll 1
        for (uint32_t from = 0; from < p.k; from += PIECE) {
            if (again || from) {
                load(expert, from);
                read(v, source, from);
            }
#pragma unroll 1
            for (uint32_t r = 0; r < rows; r++) {
                if (r + 1 < rows) read(next, input_row(p.in, first + r + 1), from);
                if (rows > 1) scale = scales[r];
                float sum[QUAD] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
                for (uint32_t j = 0; j < AHEAD; j++) {
                    const uint32_t e = from + j * TURN + own;
                    const float4 x = router_values(p, first + r, v[j], scale, norm[j], e, p.act && !again && e / TURN % SHARERS == blockIdx.x);
#pragma unroll
                    for (uint32_t i = 0; i < QUAD; i++) sum[i] = __fmaf_rn(w[i][j].w, x.w, __fmaf_rn(w[i][j].z, x.z, __fmaf_rn(w[i][j].y, x.y, __fmaf_rn(w[i][j].x, x.x, sum[i]))));
                    v[j] = next[j];
                }
                const float s = sum_of_four(sum, lane);
                float *const part = &parts[r][lane / 8][warp];
                if (lane % 8 == 0) *part = from ? __fadd_rn(*part, s) : s;
            }
        }
        __syncthreads();
        if (result_row < rows && expert + result < experts) {
            const float4 *const part = (const float4 *)parts[result_row][result];
            const float4 a = add4(part[0], part[1]);
            const float y = __fadd_rn(__fmul_rn(__fadd_rn(__fadd_rn(a.x, a.y), __fadd_rn(a.z, a.w)), p.in_scale), bias);
            p.y[(first + result_row) * p.y_stride + expert + result] = y;
            if (p.choice.k) first_put((float *)shared + (2 * result_row + 1) * padded + expert + result, y);
        }
        __syncthreads();
    }
    if (!p.choice.k) return;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    sharers_arrive();
    sharers_wait();
    if (blockIdx.x) return;
#else
    if (!last_of(p.tickets + 1 + blockIdx.y, SHARERS)) return;
#endif
    router_choose(p, first, first + rows, (uint32_t *)shared);
}

/* Of any number of rows up to this. */
uint32_t cuda_router_tickets(uint32_t rows)
{
    const uint32_t groups = (rows + TOGETHER - 1) / TOGETHER, single = rows < TOGETHER ? rows : (uint32_t)TOGETHER;
    return 1 + (groups > single ? groups : single);
}

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

/* Blocks of a cluster: the code for sm_90 needs one. */
static wk_status router_cluster(uint32_t *cluster, const struct wk_err *err)
{
    int device = 0, clusters = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess) code = cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
    *cluster = clusters ? SHARERS : 1;
    return cuda_status(code, "router", err);
}

wk_status cuda_router(const struct cuda_router *r, void *stream, const struct wk_err *err)
{
    uint32_t cluster;
    wk_status status = check_router(r, err);
    if (status == WK_OK) status = router_cluster(&cluster, err);
    if (status != WK_OK) return status;
    const struct wk_cuda_input *in = &r->in;
    const uint32_t each = r->rows <= TOGETHER ? 1 : (uint32_t)TOGETHER, height = (r->rows + each - 1) / each;
    struct router_launch p = { r->rows, r->k, each, *in, 1.0f, aligned16(in->x) && in->x_stride % 4 == 0, aligned16(r->w) && r->k % 4 == 0, aligned16(in->w), r->w, r->bias, (__half *)r->act, r->sums,
                               r->y, (float *)r->route.out, r->y_stride, r->route.out_stride, { r->experts, r->route.k, r->route.score, r->route.scale }, r->route.groups, r->route.ticket, 0,
                               r->route.row_seq };
    for (uint32_t i = 0; i < in->shift && in->kind == WK_CUDA_IN_ACT; i++) p.in_scale *= 2.0f;
    /* Keys and logits of a row a warp, which is more than groups need. More experts than fit choose in a launch of their own. */
    const uint64_t picks = 2ull * each * route_padded(r->experts);
    const bool apart = r->route.k && picks > MOST_BYTES / sizeof(uint32_t);
    const uint64_t words = r->route.k && !apart ? picks : 0;
    p.words = (uint32_t)words;
    if (apart) p.choice.k = 0;
    if (height > 65535) return wk_fail(err, WK_UNSUPPORTED, "router: %u rows", r->rows);
    status = cuda_launch_clusters("router", router_kernel, dim3(SHARERS, height), cluster, THREADS, words * sizeof(uint32_t), r->dependent, stream, err, p);
    if (status != WK_OK || !apart) return status;
    struct cuda_route route = r->route;
    route.dependent = r->dependent;
    route.rows = r->rows;
    route.experts = r->experts;
    route.logits = { r->y, r->y_stride, NULL };
    return cuda_route(&route, stream, err);
}
