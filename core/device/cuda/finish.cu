/* finish.cu: element-wise work over rows: what follows a large product, conversions without a norm, and single
 * operations.
 *
 * A thread takes two times four values of a row, all of its loads ahead of the first use. Gated activations and the
 * maps of feed-forward layers are kernels of their own; other maps, and several, are looked up value by value. */
#include "device/cuda/row.cuh"

#include <worker/cuda/part/functions.cuh>
#include <worker/cuda/part/launch.cuh>

#include "device/cuda/launch.cuh"

enum { THREADS = 128, CHUNKS = 2, PANEL = THREADS * CHUNKS * 4 };

/* What a kernel does to its operands: 0 nothing, WK_GLU_* or ELEMENT_* of two, MAP + WK_UNARY_* of one, MAPS: those of
 * the launch in order. */
enum { MAP = 64, MAPS = MAP + WK_UNARY_END };

static __device__ __forceinline__ float mapped(const struct element_launch &p, float x)
{
#pragma unroll 1
    for (uint32_t m = 0; m < 4 && p.map[m].fn; m++) x = wk_unary_value(p.map[m].fn, x, p.map[m].p);
    return x;
}

template <uint32_t FN> static __device__ __forceinline__ float applied(const struct element_launch &p, float a, float b)
{
    if (FN == 0) return a;
    if (FN == MAPS) return mapped(p, a);
    if (FN > MAP) return wk_unary_value(FN - MAP, a, p.map[0].p);
    return FN == ELEMENT_ADD   ? __fadd_rn(a, b)
           : FN == ELEMENT_MUL ? __fmul_rn(a, b)
                               : wk_glu_value(FN, a, b, p.alpha, p.limit);
}

/* The operands of four results. */
struct operands {
    float4 a, b, residual;
};

template <bool TWO, bool WHOLE>
static __device__ __forceinline__ struct operands load_operands(const struct element_launch &p, const float *a,
                                                                const float *b, const float *residual, uint32_t e)
{
    const uint32_t left = left_of(p.out.width, e);
    struct operands o;
    o.a = load4<WHOLE>(a + e, left, p.a.wide);
    if (TWO) o.b = p.b_single ? all4(__ldcg(b)) : load4<WHOLE>(b + e, left, p.b.wide);
    if (residual) o.residual = load4<WHOLE>(residual + e, left, p.residual.wide);
    return o;
}

template <uint32_t FN, bool WHOLE>
static __global__ void __launch_bounds__(THREADS) element_kernel(const __grid_constant__ struct element_launch p)
{
    const uint32_t row = grid_row(), first = blockIdx.x * PANEL + threadIdx.x * 4;
    const bool bias_wide = ((uintptr_t)p.a_bias | (uintptr_t)p.b_bias) % 16 == 0;
    constexpr bool TWO = FN != 0 && FN < MAP;
    struct operands o[CHUNKS];
    wk_release();
    wk_depend();
    if (row >= p.rows) return;
    const float *a = source_row(p.a, row), *b = TWO ? source_row(p.b, row) : NULL,
                *residual = p.residual.x ? source_row(p.residual, row) : NULL;
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++) o[c] = load_operands<TWO, WHOLE>(p, a, b, residual, first + c * THREADS * 4);
#pragma unroll
    for (uint32_t c = 0; c < CHUNKS; c++) {
        const uint32_t e = first + c * THREADS * 4, left = left_of(p.out.width, e);
        if (p.a_bias) o[c].a = add4(o[c].a, constant4<WHOLE>(p.a_bias + e, left, bias_wide));
        if (TWO && p.b_bias) o[c].b = add4(o[c].b, constant4<WHOLE>(p.b_bias + e, left, bias_wide));
        float4 v = o[c].a;
        v = make_float4(applied<FN>(p, v.x, o[c].b.x), applied<FN>(p, v.y, o[c].b.y), applied<FN>(p, v.z, o[c].b.z),
                        applied<FN>(p, v.w, o[c].b.w));
        if (residual) v = add4(v, o[c].residual);
        sink4<WHOLE>(p.out, row, e, within<WHOLE>(v, left));
    }
}

template <uint32_t FN>
static wk_status launch(const char *what, const struct element_launch *e, void *stream, const struct wk_err *err)
{
    const dim3 grid = row_grid(e->rows, (sink_width(&e->out) + PANEL - 1) / PANEL);
    const bool all = whole(&e->a) && (e->b_single || whole(&e->b)) && whole(&e->residual) && whole(&e->out) &&
                     aligned16(e->a_bias) && aligned16(e->b_bias);
    return cuda_launch(what, all ? element_kernel<FN, true> : element_kernel<FN, false>, grid, THREADS, 0, e->pdl,
                       stream, err, *e);
}

wk_status element_rows(const char *what, const struct element_launch *e, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows(what, e->rows, e->out.width, err);
    if (status != WK_OK) return status;
    if (e->fn && e->map[0].fn) return wk_fail(err, WK_INTERNAL, "%s: maps after a function of two inputs", what);
    for (uint32_t m = 0; m < 4; m++)
        if (e->map[m].fn >= WK_UNARY_END) return wk_fail(err, WK_INTERNAL, "%s: map %u is unknown", what, e->map[m].fn);
    switch (e->fn ? e->fn : !e->map[0].fn ? 0 : e->map[1].fn ? (uint32_t)MAPS : MAP + e->map[0].fn) {
    case 0: return launch<0>(what, e, stream, err);
    case WK_GLU_SILU: return launch<WK_GLU_SILU>(what, e, stream, err);
    case WK_GLU_GELU_TANH: return launch<WK_GLU_GELU_TANH>(what, e, stream, err);
    case WK_GLU_GELU_ERF: return launch<WK_GLU_GELU_ERF>(what, e, stream, err);
    case WK_GLU_SILU_CLAMPED: return launch<WK_GLU_SILU_CLAMPED>(what, e, stream, err);
    case ELEMENT_ADD: return launch<ELEMENT_ADD>(what, e, stream, err);
    case ELEMENT_MUL: return launch<ELEMENT_MUL>(what, e, stream, err);
    case MAP + WK_UNARY_SCALE: return launch<MAP + WK_UNARY_SCALE>(what, e, stream, err);
    case MAP + WK_UNARY_GELU_TANH: return launch<MAP + WK_UNARY_GELU_TANH>(what, e, stream, err);
    case MAP + WK_UNARY_GELU_ERF: return launch<MAP + WK_UNARY_GELU_ERF>(what, e, stream, err);
    case MAP + WK_UNARY_SILU: return launch<MAP + WK_UNARY_SILU>(what, e, stream, err);
    case MAP + WK_UNARY_SIGMOID:
    case MAP + WK_UNARY_TANH:
    case MAP + WK_UNARY_RELU:
    case MAP + WK_UNARY_SOFTPLUS:
    case MAP + WK_UNARY_EXP:
    case MAP + WK_UNARY_SOFTCAP:
    case MAPS: return launch<MAPS>(what, e, stream, err);
    default: return wk_fail(err, WK_INTERNAL, "%s: function %u is unknown", what, e->fn);
    }
}

wk_status cuda_finish(const struct cuda_finish *f, void *stream, const struct wk_err *err)
{
    struct element_launch e = {};
    if (!f->glu != !f->u)
        return wk_fail(err, WK_INTERNAL, "finish: glu %u with%s a second input", f->glu, f->u ? "" : "out");
    if (f->glu >= WK_GLU_END) return wk_fail(err, WK_INTERNAL, "finish: glu %u is unknown", f->glu);
    e.pdl = f->pdl;
    e.rows = f->rows;
    e.fn = f->glu;
    e.alpha = f->alpha;
    e.limit = f->limit;
    e.a = source_of(f->x, f->x_stride);
    e.a_bias = f->bias;
    if (f->u) {
        e.b = source_of(f->u, f->u_stride);
        e.b_bias = f->u_bias;
    }
    for (uint32_t m = 0; m < 4; m++) {
        e.map[m].fn = f->map[m].fn;
        e.map[m].p = f->map[m].p;
    }
    e.residual = source_of(&f->residual);
    e.out = f->out.kind == WK_CUDA_OUT_ACT ? sink_act(f->out.y, f->out.shift, f->width)
                                           : sink_f32((float *)f->out.y, f->out.y_stride, f->out.aux, f->width);
    return element_rows("finish", &e, stream, err);
}
