/* router.cu: from a row to its experts in one launch: RMS norm, act for the experts, logits of the router's plain F32
 * rows, choice, items by expert.
 *
 * Eight blocks share a row, a block multiplying four experts at a time; or four up to 32 rows, eight experts by two
 * rows at a time. Its twelve warps share k: lane l of warp w takes four values from 128 w + 4 l of every 1536, a sum an
 * expert, in order of k; then the lanes are added by a fixed tree, 3072 values at a time, and then the warps by a fixed
 * tree. So a row's logits depend on no other row, and not on how many are taken at once. The weights of the first four
 * experts and 3072 values and the norm's are in registers when the wait for the previous launch ends, and all that is
 * read after it is asked for at once. The first of the eight blocks chooses: each warp sends what it has straight into
 * its shared memory, counted at a barrier there (before sm_90 one block does it all). The last to choose puts the items
 * by expert. */
#include "device/cuda/groups.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/route.cuh"

enum {
    WARPS = 12,
    THREADS = 32 * WARPS,
    SHARERS = 8,    /* most blocks that share rows */
    MOST_ROWS = 32, /* that blocks share */
    AHEAD = 2,
    TURN = 128 * WARPS, /* values of all warps at a time, and how many times from one reading */
    PIECE = AHEAD * TURN,
    FEW = 4,
    MANY = 8, /* experts of a block at a time: of few rows, whose experts have more blocks; of many, whose acts fewer
                 blocks then make */
    MOST_BYTES = 41 * 1024, /* of dynamic shared memory, */
    MANY_BYTES = 35 * 1024  /* where rows share blocks */
};

struct router_launch {
    uint32_t rows, k, each; /* each: rows that blocks share */
    struct wk_cuda_input in;
    float in_scale;
    bool x_wide, w_wide, norm_wide;
    const float *w, *bias;
    __half *act;
    float *y, *out; /* out: of the choice */
    uint64_t y_stride, out_stride;
    struct route_choice choice;
    uint32_t *groups, *ticket, words; /* words of shared memory */
    const int32_t *row_seq;
};

/* Every value of a row that is read here was written by an earlier kernel: past L1. Which rows they are is known before
 * the wait for the preceding launch. */
static __device__ __forceinline__ uint32_t input_row(const struct router_launch &p, uint32_t row)
{
    return p.in.row_index ? __ldcg(p.in.row_index + row) : row;
}
/* Input row `source`, and its partials. */
template <bool RMS>
static __device__ __forceinline__ const void *router_row(const struct router_launch &p, uint32_t source)
{
    if (RMS) return (const float *)p.in.x + source * p.in.x_stride;
    return (const __half *)p.in.x + (uint64_t)source * act_width(p.k);
}
static __device__ __forceinline__ const float *router_parts(const struct router_launch &p, uint32_t source)
{
    return p.in.aux + (uint64_t)source * ((p.k + 15) / 16);
}

/* ---- between the blocks that share rows ---------------------------------------------------------------- */

#if WK_HAS_CLUSTERS
static __device__ __forceinline__ uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
#endif

/* Before anything is sent: the first sharer is there, and its barrier, which counts `bytes`. */
static __device__ __forceinline__ void sharers_begin(uint64_t *arrived, uint32_t bytes)
{
#if WK_HAS_CLUSTERS
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        wk_bar_init(shared_at(arrived), 1);
        wk_bar_init_done();
        wk_bar_expect(shared_at(arrived), bytes);
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
static __device__ __forceinline__ void sharers_meet()
{
#if WK_HAS_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
/* *at of the first sharer. */
static __device__ __forceinline__ void first_put(float *at, float v, uint64_t *arrived)
{
#if WK_HAS_CLUSTERS
    asm volatile("{ .reg .b32 at, bar; mapa.shared::cluster.u32 at, %0, 0; mapa.shared::cluster.u32 bar, %1, 0; "
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [at], %2, [bar]; }" ::"r"(shared_at(at)),
                 "r"(shared_at(arrived)), "f"(v)
                 : "memory");
#else
    (void)arrived;
    *at = v;
#endif
}
/* All that was sent is there. By all threads of the first sharer. */
static __device__ __forceinline__ void first_wait(uint64_t *arrived)
{
#if WK_HAS_CLUSTERS
    wk_stage_wait(shared_at(arrived), 0);
#else
    (void)arrived;
    __syncthreads();
#endif
}

/* ---- a row --------------------------------------------------------------------------------------------- */

/* wk_rms_scale of a row, its first 32 * 8 partials asked for at once. */
static __device__ __forceinline__ float router_scale(const struct router_launch &p, const float *part, uint32_t lane)
{
    const uint32_t parts = (p.k + 15) / 16;
    float q[8], sum = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) q[j] = 32 * j + lane < parts ? __ldcg(part + 32 * j + lane) : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < 8; j++) sum = __fadd_rn(sum, q[j]);
#pragma unroll 1
    for (uint32_t i = 256 + lane; i < parts; i += 32) sum = __fadd_rn(sum, __ldcg(part + i));
    return wk_norm_scale(wk_warp_sum(sum), p.k, p.in.eps);
}

/* What a lane reads of a row: four values (RMS), or their act. WHOLE: as in row.cuh. */
union router_four {
    float4 f;
    uint2 h;
};
template <bool RMS, bool WHOLE>
static __device__ __forceinline__ router_four router_read(const struct router_launch &p, const void *row, uint32_t e)
{
    router_four v;
    v.f = all4(0.0f);
    if (RMS)
        v.f = load4<WHOLE>((const float *)row + e, left_of(p.k, e), p.x_wide);
    else if (e < act_width(p.k))
        v.h = __ldcg((const uint2 *)((const __half *)row + e));
    return v;
}

/* The same as an act, of its own or by the norm. */
struct router_act {
    __half2 low, high;
};
template <bool RMS> static __device__ __forceinline__ router_act router_values(router_four v, float scale, float4 w)
{
    router_act a;
    if (RMS) {
        a.low = wk_act_half2(wk_rms_value(v.f.x, scale, w.x), wk_rms_value(v.f.y, scale, w.y));
        a.high = wk_act_half2(wk_rms_value(v.f.z, scale, w.z), wk_rms_value(v.f.w, scale, w.w));
    } else {
        a.low = *(const __half2 *)&v.h.x;
        a.high = *(const __half2 *)&v.h.y;
    }
    return a;
}
static __device__ __forceinline__ void router_store(const struct router_launch &p, uint32_t row, router_act a,
                                                    uint32_t e)
{
    const uint32_t k32 = act_width(p.k);
    if (e < k32)
        *(uint2 *)(p.act + (uint64_t)row * k32 + e) = make_uint2(*(const uint32_t *)&a.low, *(const uint32_t *)&a.high);
}

/* Sum lane * N / 32 of N, over all lanes, by a tree which is the same for every N. D: distance of the lanes that are
 * added next. */
template <int N, int D = 16> static __device__ __forceinline__ float sum_of(float *s, uint32_t lane)
{
    if constexpr (N > 1) {
        const bool upper = lane & D;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float low = s[i], high = s[i + N / 2];
            s[i] = __fadd_rn(upper ? high : low, __shfl_xor_sync(0xffffffffu, upper ? low : high, D));
        }
        return sum_of<N / 2, D / 2>(s, lane);
    } else if constexpr (D > 0) {
        s[0] = __fadd_rn(s[0], __shfl_xor_sync(0xffffffffu, s[0], D));
        return sum_of<1, D / 2>(s, lane);
    } else {
        return s[0];
    }
}

/* An expert's sums over all warps. */
static __device__ __forceinline__ float sum_of_warps(const float *part)
{
    const float4 a = add4(add4(*(const float4 *)part, *(const float4 *)(part + 4)), *(const float4 *)(part + 8));
    return __fadd_rn(__fadd_rn(a.x, a.y), __fadd_rn(a.z, a.w));
}

/* ---- the choice ---------------------------------------------------------------------------------------- */

/* Shared memory of the first sharer, in words: sums [rows][experts][WARPS], biases, keys and logits of a row for each
 * warp; then what groups need. */
static __host__ __device__ inline uint64_t router_words(uint32_t experts, uint32_t rows)
{
    const uint32_t choosing = rows == 1 ? 2 : rows < WARPS ? rows : (uint32_t)WARPS;
    return (uint64_t)WARPS * rows * experts + (2ull * choosing + 1) * route_padded(experts);
}

/* Experts of rows [first, first + rows), a warp a row, then items by expert. */
static __device__ void router_choose(const struct router_launch &p, uint32_t first, uint32_t rows, uint32_t *shared)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, experts = p.choice.experts, k = p.choice.k,
                   padded = route_padded(experts);
    const float *const sums = (const float *)shared, *const bias = sums + (uint64_t)WARPS * rows * experts;
    uint32_t *const keys = (uint32_t *)bias + (2 * warp + 1) * padded;
    const struct route_space space = { keys, (float *)(keys + padded) };
    auto look = [&](uint32_t r) {
        const float *const part = sums + (uint64_t)WARPS * r * experts;
        float *const to = p.y + (first + r) * p.y_stride;
        const route_best best = route_keys(
            experts, space,
            [&](uint32_t e) {
                return to[e] = __fadd_rn(__fmul_rn(sum_of_warps(part + WARPS * e), p.in_scale), bias[e]);
            },
            lane, 32);
        __syncwarp();
        return best;
    };
    if (p.rows == 1 && k && k <= 32) { /* two warps pick: one weighs, the other puts the items in order */
        if (warp > 1) return;
        const route_picks picks = pick_experts(p.choice, look(0), keys, lane);
        if (warp == 0)
            weigh_experts(p.choice, picks, space.logits, p.out, lane);
        else if (p.groups)
            group_items_few(lane < k && (!p.row_seq || p.row_seq[0] >= 0) ? picks.own[0] : UINT32_MAX, k, experts,
                            p.groups, lane);
        return;
    }
#pragma unroll 1
    for (uint32_t r = warp; r < rows; r += WARPS) {
        const route_best best = look(r);
        if (k)
            weigh_experts(p.choice, pick_experts(p.choice, best, keys, lane), space.logits,
                          p.out + (first + r) * p.out_stride, lane);
        __syncwarp();
    }
    if (!k || !p.groups || (gridDim.y > 1 && !last_of(p.ticket, gridDim.y))) return;
    __syncthreads(); /* the ids that this block stored, and its keys */
    group_items_make({ (const uint32_t *)p.out + k, p.out_stride, p.row_seq, p.rows, k, experts, p.groups }, shared,
                     p.words);
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* What a thread has of a piece of k: weights of EXPERTS experts, the norm's, and values of ROWS rows. */
template <int ROWS, int EXPERTS> struct router_piece {
    float4 w[EXPERTS][AHEAD], norm[AHEAD];
    router_four v[ROWS][AHEAD];
};

/* Values from `from` on of experts from `expert` on, past the last one that one, and of the norm. */
template <bool RMS, bool WHOLE, int ROWS, int EXPERTS>
static __device__ __forceinline__ void load_weights(router_piece<ROWS, EXPERTS> &c, const struct router_launch &p,
                                                    uint32_t expert, uint32_t from)
{
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++) {
        const uint32_t e = from + j * TURN + threadIdx.x * 4;
#pragma unroll
        for (uint32_t i = 0; i < EXPERTS; i++)
            c.w[i][j] = constant4<WHOLE>(p.w + (uint64_t)min(expert + i, p.choice.experts - 1) * p.k + e,
                                         left_of(p.k, e), p.w_wide);
        if (RMS) c.norm[j] = p.in.w ? constant4<WHOLE>(p.in.w + e, left_of(p.k, e), p.norm_wide) : all4(1.0f);
    }
}

/* The same values of `row`, as the i-th. */
template <bool RMS, bool WHOLE, int ROWS, int EXPERTS>
static __device__ __forceinline__ void load_row(router_piece<ROWS, EXPERTS> &c, const struct router_launch &p,
                                                uint32_t i, const void *row, uint32_t from)
{
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++) c.v[i][j] = router_read<RMS, WHOLE>(p, row, from + j * TURN + threadIdx.x * 4);
}
/* Of ROWS rows from `row` on; past `last` that one. */
template <bool RMS, bool WHOLE, int ROWS, int EXPERTS>
static __device__ __forceinline__ void load_rows(router_piece<ROWS, EXPERTS> &c, const struct router_launch &p,
                                                 uint32_t first, uint32_t row, uint32_t rows, uint32_t from)
{
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++)
        load_row<RMS, WHOLE>(c, p, i, router_row<RMS>(p, input_row(p, first + min(row + i, rows - 1))), from);
}

/* Norms of the block's rows, a warp a row: to `scales`, if there are several. parts: of the warp's first. Returns that
 * of the warp's. */
static __device__ __forceinline__ float router_scales(float *scales, const struct router_launch &p, const float *parts,
                                                      uint32_t first, uint32_t rows)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float scale = router_scale(p, parts, lane);
    if (rows > 1) {
        if (lane == 0 && warp < rows) scales[warp] = scale;
#pragma unroll 1
        for (uint32_t r = warp + WARPS; r < rows; r += WARPS) {
            scale = router_scale(p, router_parts(p, input_row(p, first + r)), lane);
            if (lane == 0) scales[r] = scale;
        }
        __syncthreads();
    }
    return scale;
}

/* The i-th row of a piece as an act, and its sums: sum[EXPERTS]. */
template <bool RMS, int ROWS, int EXPERTS>
static __device__ __forceinline__ void router_multiply(float *sum, router_act (&act)[AHEAD],
                                                       const router_piece<ROWS, EXPERTS> &c, uint32_t i, float scale)
{
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++) {
        act[j] = router_values<RMS>(c.v[i][j], scale, c.norm[j]);
        const float2 low = __half22float2(act[j].low), high = __half22float2(act[j].high);
#pragma unroll
        for (uint32_t q = 0; q < EXPERTS; q++)
            sum[q] =
                __fmaf_rn(c.w[q][j].w, high.y,
                          __fmaf_rn(c.w[q][j].z, high.x,
                                    __fmaf_rn(c.w[q][j].y, low.y, __fmaf_rn(c.w[q][j].x, low.x, j ? sum[q] : 0.0f))));
    }
}

/* Acts of ROWS rows from `row` of the block's on, those of the piece from `from` on that are the block's of its sharers
 * to store. */
template <int ROWS>
static __device__ __forceinline__ void router_store_acts(const struct router_launch &p,
                                                         const router_act (&act)[ROWS][AHEAD], uint32_t first,
                                                         uint32_t row, uint32_t rows, uint32_t from)
{
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++)
        if (((from / TURN + j + 1) & (gridDim.x - 1)) == blockIdx.x)
#pragma unroll
            for (uint32_t i = 0; i < ROWS; i++)
                if (row + i < rows) router_store(p, first + row + i, act[i][j], from + j * TURN + threadIdx.x * 4);
}

/* Block (x, y): experts EXPERTS * x and on of every EXPERTS * the number of sharers, rows each * y and on, ROWS at a
 * time. SINGLE: one row, at most PIECE values and EXPERTS experts a block, so that nothing is done twice. Dynamic
 * shared memory: router_words. */
template <bool RMS, bool WHOLE, int ROWS, int EXPERTS, bool SINGLE>
static __global__ void __launch_bounds__(THREADS, !RMS ? 2 : 1)
    router_kernel(const __grid_constant__ struct router_launch p)
{
    enum { SUMS = ROWS * EXPERTS };
    extern __shared__ uint4 shared[];
    __shared__ float before[MOST_ROWS][EXPERTS][WARPS]; /* sums of the pieces before */
    __shared__ float scales[MOST_ROWS];
    __shared__ uint64_t arrived;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * p.each,
                   rows = SINGLE ? 1 : min(p.each, p.rows - first);
    const uint32_t experts = p.choice.experts, result = lane * SUMS / 32,
                   result_row = result / EXPERTS; /* which of the sums this lane has */
    float *const sums = (float *)shared;
    float scale = 0.0f;
    router_piece<ROWS, EXPERTS> c;
    wk_release();
    sharers_begin(&arrived, rows * experts * WARPS * (uint32_t)sizeof(float));
    load_weights<RMS, WHOLE>(c, p, blockIdx.x * EXPERTS, 0);
    if (blockIdx.x == 0) {
#pragma unroll 1
        for (uint32_t e = threadIdx.x; e < experts; e += THREADS)
            sums[(uint64_t)WARPS * rows * experts + e] = p.bias ? __ldg(p.bias + e) : 0.0f;
        __syncthreads();
    }
    const void *row[ROWS];
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) {
        row[i] = router_row<RMS>(p, input_row(p, first + min(i, rows - 1)));
        asm volatile("" : "+l"(row[i])); /* made here, not behind the wait */
    }
    const float *parts = router_parts(p, input_row(p, first + min(warp, rows - 1)));
    asm volatile("" : "+l"(parts));
    sharers_meet();
    wk_depend();
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i++) load_row<RMS, WHOLE>(c, p, i, row[i], 0);
    if (RMS) scale = router_scales(scales, p, parts, first, rows);
#pragma unroll 1
    for (uint32_t expert = blockIdx.x * EXPERTS, again = 0; !again || (!SINGLE && expert < experts);
         expert += EXPERTS * gridDim.x, again = 1) { /* blocks without experts store acts */
#pragma unroll 1
        for (uint32_t from = 0; !from || (!SINGLE && from < p.k); from += PIECE) {
            if (!SINGLE && (again || from)) {
                load_weights<RMS, WHOLE>(c, p, expert, from);
                load_rows<RMS, WHOLE>(c, p, first, 0, rows, from);
            }
#pragma unroll 1
            for (uint32_t r = 0; r < rows; r += ROWS) {
                float sum[SUMS];
                router_act act[ROWS][AHEAD];
#pragma unroll
                for (uint32_t i = 0; i < ROWS; i++) {
                    if (RMS && rows > 1) scale = scales[min(r + i, rows - 1)];
                    router_multiply<RMS>(sum + i * EXPERTS, act[i], c, i, scale);
                }
                if (r + ROWS < rows) load_rows<RMS, WHOLE>(c, p, first, r + ROWS, rows, from);
                float s = sum_of<SUMS>(sum, lane);
                if (lane % (32 / SUMS) == 0 && r + result_row < rows) {
                    float *const part = &before[r + result_row][result % EXPERTS][warp];
                    if (!SINGLE && from) s = __fadd_rn(*part, s);
                    if (!SINGLE && from + PIECE < p.k)
                        *part = s;
                    else if (expert + result % EXPERTS < experts)
                        first_put(sums + ((uint64_t)(r + result_row) * experts + expert + result % EXPERTS) * WARPS +
                                      warp,
                                  s, &arrived);
                }
                /* Behind what the first sharer waits for; itself it stores last. */
                if (RMS && p.act && !again) router_store_acts<ROWS>(p, act, first, r, rows, from);
            }
        }
    }
    if (blockIdx.x) return;
    first_wait(&arrived);
    router_choose(p, first, rows, (uint32_t *)shared);
}

static wk_status check_router(const struct cuda_router *r, const struct wk_err *err)
{
    wk_status status = check_rows("router", r->rows, r->k, err);
    if (status != WK_OK) return status;
    if (!r->experts || !r->w || !r->y || r->y_stride < r->experts || !r->in.x ||
        (r->in.kind == WK_CUDA_IN_RMS && !r->in.aux) || r->in.kind > WK_CUDA_IN_RMS || r->in.shift >= 64)
        return wk_fail(err, WK_INTERNAL, "router: %u experts, input kind %u", r->experts, r->in.kind);
    if (r->act && r->in.kind != WK_CUDA_IN_RMS)
        return wk_fail(err, WK_INTERNAL, "router: an act of input kind %u", r->in.kind);
    if (r->route.k &&
        (r->route.k > TAPE_MAX_SLOTS || r->route.k > r->experts || !r->route.score || r->route.score >= WK_SCORE_END ||
         !r->route.out || !r->route.ticket || !cuda_route_plain(&r->route)))
        return wk_fail(err, WK_INTERNAL, "router: top %u of %u by score %u", r->route.k, r->experts, r->route.score);
    return WK_OK;
}

/* Blocks of a cluster: the code for sm_90 needs one. */
static wk_status router_cluster(uint32_t *cluster, const struct wk_err *err)
{
    struct wk_image image;
    const wk_status status = cuda_image(&image, err);
    *cluster = status == WK_OK && image.clusters ? SHARERS : 1;
    return status;
}

wk_status cuda_router(const struct cuda_router *r, void *stream, const struct wk_err *err)
{
    uint32_t cluster;
    wk_status status = check_router(r, err);
    if (status == WK_OK) status = router_cluster(&cluster, err);
    if (status != WK_OK) return status;
    const struct wk_cuda_input *in = &r->in;
    /* Rows that blocks share: of few each has blocks of its own, of many not more than one round of blocks or two; as
     * many as have room. No bit depends on it. */
    const uint32_t high = in->kind == WK_CUDA_IN_RMS ? 16 : 32;
    const uint64_t most = MOST_BYTES / sizeof(uint32_t);
    uint32_t each = 1;
    while (each < MOST_ROWS && each * high < r->rows &&
           router_words(r->experts, 2 * each) <= MANY_BYTES / sizeof(uint32_t))
        each *= 2;
    const uint32_t height = (r->rows + each - 1) / each;
    const uint64_t words = router_words(r->experts, each);
    if (words > most) return wk_fail(err, WK_UNSUPPORTED, "router: %u experts; CUDA serves 608", r->experts);
    if (height > 65535) return wk_fail(err, WK_UNSUPPORTED, "router: %u rows", r->rows);
    struct router_launch p = { r->rows,
                               r->k,
                               each,
                               *in,
                               1.0f,
                               aligned16(in->x) && in->x_stride % 4 == 0,
                               aligned16(r->w) && r->k % 4 == 0,
                               aligned16(in->w),
                               r->w,
                               r->bias,
                               (__half *)r->act,
                               r->y,
                               (float *)r->route.out,
                               r->y_stride,
                               r->route.out_stride,
                               choice_of(&r->route, r->experts),
                               r->route.groups,
                               r->route.ticket,
                               (uint32_t)words,
                               r->route.row_seq };
    for (uint32_t i = 0; i < in->shift && in->kind == WK_CUDA_IN_ACT; i++) p.in_scale *= 2.0f;
    const bool weights = r->k % 4 == 0 && p.w_wide, all = weights && p.x_wide && p.norm_wide,
               single = each == 1 && r->k <= PIECE && r->experts <= FEW * cluster, many = all && each > 1;
    if (many && cluster > 1) cluster /= MANY / FEW;
    const auto kernel = in->kind == WK_CUDA_IN_RMS ? many     ? router_kernel<true, true, 2, MANY, false>
                                                     : !all   ? router_kernel<true, false, 1, FEW, false>
                                                     : single ? router_kernel<true, true, 1, FEW, true>
                                                              : router_kernel<true, true, 1, FEW, false>
                        : weights ? router_kernel<false, true, 4, FEW, false>
                                                   : router_kernel<false, false, 4, FEW, false>;
    return cuda_launch_clusters("router", kernel, dim3(cluster, height), cluster, THREADS, words * sizeof(uint32_t),
                                r->pdl, stream, err, p);
}
