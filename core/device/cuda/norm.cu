/* norm.cu: norms over whole rows or runs of a row, one block each: to acts, F32, or both.
 *
 * A block holds its run in registers, up to 16,384 values; a longer one is read again for each pass. Partial i of a run
 * goes to lane i % 32 in order of i, then the lanes meet in a fixed tree: the order of wk_rms_scale, for every block
 * size. Every warp adds all partials for itself, which saves a barrier. */
#include "device/cuda/row.cuh"

#include "device/cuda/launch.cuh"

/* A panel: CHUNKS times four values a thread. */
template <uint32_t CHUNKS> struct panel {
    float4 v[CHUNKS];
};

template <bool WHOLE, uint32_t CHUNKS>
static __device__ __forceinline__ void load_panel(struct panel<CHUNKS> &p, const float *x, uint32_t base,
                                                  uint32_t width, bool wide)
{
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t e = base + (c * blockDim.x + threadIdx.x) * 4;
        p.v[c] = load4<WHOLE>(x + e, left_of(width, e), wide);
    }
}

template <bool WHOLE> static __device__ __forceinline__ float4 centred(float4 v, float mean, uint32_t left)
{
    return within<WHOLE>(
        make_float4(__fsub_rn(v.x, mean), __fsub_rn(v.y, mean), __fsub_rn(v.z, mean), __fsub_rn(v.w, mean)), left);
}

static __device__ __forceinline__ float sum16(float4 v)
{
    float s = __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w));
    s = __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 1));
    return __fadd_rn(s, __shfl_xor_sync(0xffffffffu, s, 2));
}

/* Sum over the run of x, or of (x - mean)^2; in every thread. `p` holds the first panel, and again the only one. */
template <bool SQUARES, bool WHOLE, uint32_t CHUNKS, uint32_t MOST>
static __device__ __forceinline__ float run_sum(struct panel<CHUNKS> &p, const float *x, float mean, uint32_t width,
                                                bool wide)
{
    __shared__ float part[MOST * CHUNKS / 4];
    const uint32_t panel_width = 4 * CHUNKS * blockDim.x;
    float sum = 0.0f;
    for (uint32_t base = 0; base < width; base += panel_width) {
        if (base) __syncthreads();
        if (width > panel_width) load_panel<WHOLE>(p, x, base, width, wide);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++) {
            const uint32_t i = c * blockDim.x + threadIdx.x;
            const float s =
                SQUARES ? wk_square_sum16(centred<WHOLE>(p.v[c], mean, left_of(width, base + 4 * i))) : sum16(p.v[c]);
            if ((i & 3u) == 0) part[i / 4] = s;
        }
        __syncthreads();
        const uint32_t n = min(CHUNKS * blockDim.x / 4, (width - base + 15) / 16);
        for (uint32_t i = threadIdx.x & 31u; i < n; i += 32) sum = __fadd_rn(sum, part[i]);
    }
    return wk_warp_sum(sum);
}

static __device__ __forceinline__ float4 scaled(float4 v, float scale, float4 w)
{
    return make_float4(wk_rms_value(v.x, scale, w.x), wk_rms_value(v.y, scale, w.y), wk_rms_value(v.z, scale, w.z),
                       wk_rms_value(v.w, scale, w.w));
}

/* One chunk: for few rows, where time is latency; the weights are then asked for before the wait for x.
 * PLAIN: the usual conversion: aligned rows of a multiple of 32 values, with weights (LAYER: and bias), to acts alone.
 * Tests for anything else would be a third of its instructions. */
template <bool LAYER, bool PLAIN, uint32_t CHUNKS, uint32_t MOST, uint32_t BLOCKS>
static __global__ void __launch_bounds__(MOST, BLOCKS) norm_kernel(const __grid_constant__ struct norm_launch p)
{
    const uint32_t row = PLAIN ? blockIdx.x : blockIdx.x / p.runs, start = PLAIN ? 0 : blockIdx.x % p.runs * p.width,
                   panel_width = 4 * CHUNKS * blockDim.x, width = p.width;
    const bool w_wide = ((uintptr_t)p.w | (uintptr_t)p.b) % 16 == 0, has_w = PLAIN || p.w,
               has_b = PLAIN ? LAYER : p.b != NULL;
    struct panel<CHUNKS> values;
    struct row_sink out = p.out;
    float4 w = all4(1.0f), b = all4(0.0f);
    if (!PLAIN && p.runs > 1) {
        out.y += start;
        out.width = width;
    }
    wk_release();
    if (CHUNKS == 1) {
        const uint32_t e = threadIdx.x * 4, left = left_of(width, e);
        if (has_w) w = constant4<PLAIN>(p.w + e, left, w_wide);
        if (has_b) b = constant4<PLAIN>(p.b + e, left, w_wide);
    }
    wk_depend();
    const float *x = source_row(p.x, row) + start;
    const float *residual = !PLAIN && p.residual.x ? source_row(p.residual, row) + start : NULL;
    load_panel<PLAIN>(values, x, 0, width, p.x.wide);
    const float mean =
        LAYER ? __fdiv_rn(run_sum<false, PLAIN, CHUNKS, MOST>(values, x, 0.0f, width, p.x.wide), (float)width) : 0.0f;
    const float scale =
        wk_norm_scale(run_sum<true, PLAIN, CHUNKS, MOST>(values, x, mean, width, p.x.wide), width, p.eps);
    for (uint32_t base = 0; base < act_width(width); base += panel_width) {
        if (width > panel_width) load_panel<PLAIN>(values, x, base, width, p.x.wide);
#pragma unroll
        for (uint32_t c = 0; c < CHUNKS; c++) {
            const uint32_t e = base + (c * blockDim.x + threadIdx.x) * 4, left = left_of(width, e);
            float4 v = LAYER ? centred<PLAIN>(values.v[c], mean, left) : values.v[c];
            if (CHUNKS > 1 && has_w) w = constant4<PLAIN>(p.w + e, left, w_wide);
            if (CHUNKS > 1 && has_b) b = constant4<PLAIN>(p.b + e, left, w_wide);
            v = scaled(v, scale, w);
            if (has_b) v = add4(v, b);
            if (residual) v = add4(v, load4<false>(residual + e, left, p.residual.wide));
            if (PLAIN)
                act4(out, row, width, e, v);
            else
                sink4<false>(out, row, e, v);
        }
    }
}

static bool plain(const struct norm_launch *n)
{
    return n->runs == 1 && n->width % 32 == 0 && n->x.wide && n->w && aligned16(n->w) && aligned16(n->b) &&
           !n->b == (n->norm != CUDA_NORM_LAYER) && !n->residual.x && n->out.act && !n->out.y && !n->out.part;
}

template <uint32_t CHUNKS, uint32_t MOST, uint32_t BLOCKS>
static wk_status launch(const char *what, const struct norm_launch *n, uint32_t blocks, void *stream,
                        const struct wk_err *err)
{
    /* As few panels as the largest block allows, of equal size. */
    const uint32_t each = 4 * CHUNKS, panels = (n->width + each * MOST - 1) / (each * MOST),
                   threads = ((n->width + each * panels - 1) / (each * panels) + 31) / 32 * 32;
    const bool layer = n->norm == CUDA_NORM_LAYER;
    void (*const kernel[2][2])(struct norm_launch) = {
        { norm_kernel<false, false, CHUNKS, MOST, BLOCKS>, norm_kernel<false, true, CHUNKS, MOST, BLOCKS> },
        { norm_kernel<true, false, CHUNKS, MOST, BLOCKS>, norm_kernel<true, true, CHUNKS, MOST, BLOCKS> }
    };
    return cuda_launch(what, kernel[layer][plain(n)], blocks, threads, 0, n->pdl, stream, err, *n);
}

/* Aligned rows of a multiple of 32 values whose partials came with them, with weights, to acts: nobody has to see the
 * whole row, so each warp has a run of it for itself and adds the partials beside. */
struct given_launch {
    const float *x;
    uint64_t stride;
    const float *part, *w;
    float eps;
    struct row_sink out;
};

/* AT_ONCE: partials of a lane that are asked for together. Behind the wait stands nothing that can stand before it. */
template <uint32_t THREADS, uint32_t AT_ONCE>
static __global__ void __launch_bounds__(THREADS) given_kernel(const __grid_constant__ struct given_launch p)
{
    const uint32_t row = blockIdx.y, lane = threadIdx.x & 31u, e = (blockIdx.x * THREADS + threadIdx.x) * 4,
                   width = p.out.width, parts = width / 16, left = left_of(width, e);
    const float *x = p.x + row * p.stride + e, *part = p.part + (uint64_t)row * parts + lane;
    __half *y = act_at(p.out, row, width, e);
    float given[AT_ONCE], sum = 0.0f;
    wk_release();
    const float4 w = load4<true>(p.w + e, left, true);
    asm volatile("" : "+l"(x), "+l"(part), "+l"(y)); /* one address each, here */
    wk_at_hand((uint32_t)((uintptr_t)x ^ (uintptr_t)part ^ (uintptr_t)y));
    wk_depend();
    float4 v = load4<true>(x, left, true);
#pragma unroll
    for (uint32_t i = 0; i < AT_ONCE; i++) given[i] = i * 32 + lane < parts ? __ldcg(part + i * 32) : 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < AT_ONCE; i++) sum = __fadd_rn(sum, given[i]);
#pragma unroll 1
    for (uint32_t i = AT_ONCE * 32; i + lane < parts; i += 32) sum = __fadd_rn(sum, __ldcg(part + i));
    v = scaled(v, wk_norm_scale(wk_warp_sum(sum), width, p.eps), w);
    if (left) store_act4(y, v, p.out.shift);
}

/* Of few blocks each has four warps. Many have one of 1,024 registers, what a product of more than 16 rows leaves free
 * of a multiprocessor: so they are there before it ends. */
static wk_status launch_given(const char *what, const struct norm_launch *n, void *stream, const struct wk_err *err)
{
    enum { RUN = 128, FEW_RUNS = 512 };
    const struct given_launch g = { n->x.x, n->x.stride, n->part, n->w, n->eps, n->out };
    const uint32_t runs = (n->width + RUN - 1) / RUN, warps = runs * n->rows <= FEW_RUNS ? 4 : 1;
    void (*const kernel)(struct given_launch) = n->width <= 1024
                                                    ? (warps == 4 ? given_kernel<128, 2> : given_kernel<32, 2>)
                                                : warps == 4 ? given_kernel<128, 8>
                                                             : given_kernel<32, 8>;
    return cuda_launch(what, kernel, dim3((runs + warps - 1) / warps, n->rows), 32 * warps, 0, n->pdl, stream, err, g);
}

wk_status norm_rows(const char *what, const struct norm_launch *launched, void *stream, const struct wk_err *err)
{
    enum { FEW_BLOCKS = 128, SHORT = 512 };
    struct norm_launch n = *launched;
    const uint64_t blocks = (uint64_t)n.rows * n.runs;
    wk_status status = check_grid(what, blocks, err);
    if (status != WK_OK) return status;
    if (n.runs > 1 && (n.out.act || n.out.part))
        return wk_fail(err, WK_INTERNAL, "%s: norms by groups leave no act and no partials", what);
    if (n.part && n.norm == CUDA_NORM_RMS && !n.x.index && plain(&n)) return launch_given(what, &n, stream, err);
    if (n.runs > 1 && n.width % 4) n.x.wide = n.residual.wide = n.out.wide = false;
    if (n.width <= SHORT || (n.width <= 4096 && blocks <= FEW_BLOCKS))
        return launch<1, 1024, 1>(what, &n, (uint32_t)blocks, stream, err);
    if (n.width <= 4096) return launch<4, 256, 5>(what, &n, (uint32_t)blocks, stream, err);
    if (n.width <= 8192) return launch<4, 512, 2>(what, &n, (uint32_t)blocks, stream, err);
    return launch<4, 1024, 1>(what, &n, (uint32_t)blocks, stream, err);
}
