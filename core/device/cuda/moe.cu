/* moe.cu: mixture of experts: the k experts of a row and their weights, and the sum of what they gave. */
#include "device/cuda/groups.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/route.cuh"

/* ---- route: one block a row; the last to end puts all rows' items by expert ---------------------------- */

enum { MOST_THREADS = 1024, GROUP_THREADS = 256, GROUP_BYTES = 47 * 1024 };

struct route_launch {
    uint32_t rows;
    struct route_choice choice;
    struct route_rules rules; /* of SCORED */
    struct row_source logits;
    float *out; /* k weights, k ids, out_stride apart */
    uint64_t out_stride;
    uint32_t *groups, *ticket, words; /* words of shared memory */
    const int32_t *row_seq;
};

/* Dynamic shared memory: keys and logits of the row, SCORED: and scores; then the last block's groups. */
template <bool SCORED>
static __global__ void __launch_bounds__(MOST_THREADS) route_kernel(const __grid_constant__ struct route_launch p)
{
    extern __shared__ uint4 shared[];
    uint32_t *const keys = (uint32_t *)shared;
    const uint32_t row = blockIdx.x;
    wk_release();
    wk_depend();
    const float *const logits = source_row(p.logits, row);
    const struct route_space space = { keys, (float *)(keys + route_padded(p.choice.experts)) };
    (void)route_keys(p.choice.experts, space, [=](uint32_t e) { return __ldcg(logits + e); }, threadIdx.x, blockDim.x);
    __syncthreads();
    float2 softmax = make_float2(0.0f, 0.0f);
    if (SCORED) softmax = score_experts(p.choice, p.rules, space);
    if (threadIdx.x < 32) {
        const route_picks picks =
            pick_experts(p.choice, best_of(keys, p.choice.experts, threadIdx.x), keys, threadIdx.x);
        float *const out = p.out + row * p.out_stride;
        if (SCORED)
            weigh_scored(p.choice, p.rules, picks, space.logits, softmax, out, threadIdx.x);
        else
            weigh_experts(p.choice, picks, space.logits, out, threadIdx.x);
    }
    if (!p.groups || !last_of(p.ticket, gridDim.x)) return;
    group_items_make({ (const uint32_t *)p.out + p.choice.k, p.out_stride, p.row_seq, p.rows, p.choice.k,
                       p.choice.experts, p.groups },
                     keys, p.words);
}

wk_status cuda_route(const struct cuda_route *r, void *stream, const struct wk_err *err)
{
    const bool plain = cuda_route_plain(r);
    const uint32_t arrays = plain ? 2 : 3;
    const size_t picks = (size_t)arrays * route_padded(r->experts);
    uint32_t threads = r->experts < MOST_THREADS ? (r->experts + 31) / 32 * 32 : (uint32_t)MOST_THREADS;
    if (r->groups && threads < GROUP_THREADS) threads = GROUP_THREADS;
    wk_status status = check_rows("route", r->rows, r->experts, err);
    if (status == WK_OK) status = check_grid("route", r->rows, err);
    if (status != WK_OK) return status;
    if (!r->k || r->k > TAPE_MAX_SLOTS || r->k > r->experts || !r->score || r->score >= WK_SCORE_END)
        return wk_fail(err, WK_INTERNAL, "route: top %u of %u by score %u", r->k, r->experts, r->score);
    if (r->groups && !r->ticket) return wk_fail(err, WK_INTERNAL, "route: groups without a ticket");
    if (picks * sizeof(float) > GROUP_BYTES)
        return wk_fail(err, WK_UNSUPPORTED, "route: %u experts; CUDA serves %u", r->experts,
                       GROUP_BYTES / (arrays * (uint32_t)sizeof(float)) / 32 * 32);
    if (r->n_groups && (r->n_groups > TAPE_MAX_ROUTE_GROUPS || r->experts % r->n_groups || !r->groups_used ||
                        r->k > (uint64_t)r->groups_used * (r->experts / r->n_groups)))
        return wk_fail(err, WK_INTERNAL, "route: top %u of %u of %u groups of %u experts", r->k, r->groups_used,
                       r->n_groups, r->experts);
    uint64_t words = r->groups ? group_shared_words(r->experts, threads / 32) : picks;
    if (words > GROUP_BYTES / sizeof(uint32_t)) words = GROUP_BYTES / sizeof(uint32_t);
    if (words < picks) words = picks;
    const struct route_launch p = { r->rows,
                                    choice_of(r, r->experts),
                                    { r->bias, r->n_groups, r->groups_used, r->group_score, r->normalize },
                                    source_of(&r->logits),
                                    (float *)r->out,
                                    r->out_stride,
                                    r->groups,
                                    r->ticket,
                                    (uint32_t)words,
                                    r->row_seq };
    return cuda_launch("route", plain ? route_kernel<false> : route_kernel<true>, r->rows, threads,
                       words * sizeof(uint32_t), r->pdl, stream, err, p);
}

/* ---- heads --------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(256)
    heads_kernel(uint32_t rows, uint32_t heads, uint32_t *ids, uint32_t *groups)
{
    const uint32_t i = blockIdx.x * 256 + threadIdx.x; /* place of an item: those of a head side by side */
    wk_release();
    wk_depend();
    if (i < rows * heads) groups[2 * heads + 1 + i] = i % rows * heads + i / rows;
    if (i <= heads) groups[heads + i] = i * rows;
    if (i < heads) groups[i] = ids[i] = i;
}

wk_status cuda_heads(const struct cuda_heads *h, void *stream, const struct wk_err *err)
{
    if (!h->rows || !h->heads || h->rows > UINT32_MAX / h->heads - 256)
        return wk_fail(err, WK_INTERNAL, "heads: %u rows of %u", h->rows, h->heads);
    const uint32_t items = h->rows * h->heads + 1;
    return cuda_launch("heads", heads_kernel, (items + 255) / 256, 256, 0, h->pdl, stream, err, h->rows, h->heads,
                       h->ids, h->groups);
}

/* ---- combine ------------------------------------------------------------------------------------------- */

enum { THREADS = 128 };

struct combine_launch {
    uint32_t k, rows;
    const float *x, *route;
    uint64_t x_stride, route_stride;
    struct row_source residual;
    struct row_sink out;
    bool x_wide;
};

/* The first product is rounded, then each further one is added to the sum with one rounding. Addresses are made before
 * the wait, and the first four products asked for at once behind it. */
template <bool WHOLE, bool WEIGHTED>
static __global__ void __launch_bounds__(THREADS) combine_kernel(const __grid_constant__ struct combine_launch p)
{
    enum { AHEAD = 4 };
    const uint32_t row = grid_row(), e = (blockIdx.x * THREADS + threadIdx.x) * 4, left = left_of(p.out.width, e);
    const float *x = p.x + (uint64_t)row * p.k * p.x_stride + e,
                *weight = WEIGHTED ? p.route + row * p.route_stride : NULL;
    float4 v = all4(0.0f), residual = all4(0.0f);
    wk_release();
    wk_depend();
    if (row >= p.rows) return;
    if (p.residual.x) residual = load4<WHOLE>(source_row(p.residual, row) + e, left, p.residual.wide);
#pragma unroll 1
    for (uint32_t s = 0; s < p.k; s += AHEAD) {
        float4 y[AHEAD];
        float w[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++, x += p.x_stride, weight++) {
            y[i] = all4(0.0f);
            w[i] = 0.0f;
            if (s + i < p.k) {
                y[i] = load4<WHOLE>(x, left, p.x_wide);
                w[i] = WEIGHTED ? __ldcg(weight) : 1.0f;
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (s + i < p.k) {
                const float4 sum = make_float4(__fmaf_rn(y[i].x, w[i], v.x), __fmaf_rn(y[i].y, w[i], v.y),
                                               __fmaf_rn(y[i].z, w[i], v.z), __fmaf_rn(y[i].w, w[i], v.w));
                v = s + i ? sum : mul4(y[i], all4(w[i]));
            }
    }
    if (p.residual.x) v = add4(v, residual);
    sink4<WHOLE>(p.out, row, e, within<WHOLE>(v, left));
}

wk_status cuda_combine(const struct cuda_combine *c, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("combine", c->rows, c->width, err);
    if (status != WK_OK) return status;
    if (!c->k || c->k > TAPE_MAX_SLOTS) return wk_fail(err, WK_INTERNAL, "combine: %u experts", c->k);
    const struct combine_launch p = { c->k,
                                      c->rows,
                                      c->x,
                                      (const float *)c->route,
                                      c->x_stride,
                                      c->route_stride,
                                      source_of(&c->residual),
                                      sink_f32(c->y, c->y_stride, c->part, c->width),
                                      aligned16(c->x) && c->x_stride % 4 == 0 };
    const bool all = p.x_wide && whole(&p.residual) && whole(&p.out);
    const auto kernel = all        ? c->route ? combine_kernel<true, true> : combine_kernel<true, false>
                               : c->route ? combine_kernel<false, true>
                                   : combine_kernel<false, false>;
    return cuda_launch("combine", kernel, row_grid(c->rows, (c->width + 4 * THREADS - 1) / (4 * THREADS)), THREADS, 0,
                       c->pdl, stream, err, p);
}
