/* rows.cu: conversions and operations that stand alone: each becomes one launch of norm.cu, of finish.cu, of columns.cu
 * or of the small kernel here (rotations). */
#include "device/cuda/columns.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/row.cuh"

wk_status cuda_convert(const struct cuda_convert *c, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("convert", c->rows, c->width, err);
    if (status != WK_OK) return status;
    if (c->norm > CUDA_NORM_LAYER || c->shift > 126 || (!c->act && !c->y))
        return wk_fail(err, WK_INTERNAL, "convert: norm %u, shift %u, %s", c->norm, c->shift,
                       c->act || c->y ? "an output" : "no output");
    struct row_sink out = sink_act(c->act, c->shift, c->width);
    out.by_runs = c->by_runs;
    out.y = c->y;
    out.y_stride = c->y_stride;
    out.wide = aligned16(c->y) && c->y_stride % 4 == 0;
    if (c->norm == CUDA_NORM_NONE) {
        struct element_launch e = {};
        e.pdl = c->pdl;
        e.rows = c->rows;
        e.a = source_of(&c->x);
        e.out = out;
        return element_rows("convert", &e, stream, err);
    }
    struct norm_launch n = {};
    n.pdl = c->pdl;
    n.rows = c->rows;
    n.runs = 1;
    n.width = c->width;
    n.norm = c->norm;
    n.eps = c->eps;
    n.x = source_of(&c->x);
    n.part = c->part;
    n.w = c->w;
    n.b = c->b;
    n.out = out;
    return norm_rows("convert", &n, stream, err);
}

/* ---- one operation alone ------------------------------------------------------------------------------- */

enum { THREADS = 128 };

struct rope_launch {
    struct row_source x, residual;
    const float2 *rope_table; /* [rows][n] */
    uint32_t head, style, n, repeat, rows;
    struct row_sink out;
};

static __device__ __forceinline__ float rotated(const struct rope_launch &p, const float *x, const float2 *rope_table,
                                                uint32_t e)
{
    const uint32_t j = e % p.head; /* within the head */
    if (j >= 2 * p.n) return __ldcg(x + e);
    const bool halves = p.style == WK_ROPE_HALF, second = halves ? j >= p.n : j & 1u;
    const uint32_t i = halves ? (second ? j - p.n : j) : j / 2, apart = halves ? p.n : 1;
    const float a = __ldcg(x + e - (second ? apart : 0)), b = __ldcg(x + e + (second ? 0 : apart));
    const float2 t = __ldcg(rope_table + i);
    return second ? __fadd_rn(__fmul_rn(a, t.y), __fmul_rn(b, t.x)) : __fsub_rn(__fmul_rn(a, t.x), __fmul_rn(b, t.y));
}

static __global__ void __launch_bounds__(THREADS) rope_kernel(const __grid_constant__ struct rope_launch p)
{
    const uint32_t row = grid_row(), e = (blockIdx.x * THREADS + threadIdx.x) * 4, left = left_of(p.out.width, e);
    wk_release();
    wk_depend();
    if (row >= p.rows) return;
    const float *x = source_row(p.x, row);
    const float2 *rope_table = p.rope_table + (uint64_t)(row / p.repeat) * p.n;
    float4 v = make_float4(
        left > 0 ? rotated(p, x, rope_table, e) : 0.0f, left > 1 ? rotated(p, x, rope_table, e + 1) : 0.0f,
        left > 2 ? rotated(p, x, rope_table, e + 2) : 0.0f, left > 3 ? rotated(p, x, rope_table, e + 3) : 0.0f);
    if (p.residual.x) v = add4(v, load4<false>(source_row(p.residual, row) + e, left, p.residual.wide));
    sink4<false>(p.out, row, e, v);
}

static wk_status alone_rope(const struct cuda_alone *a, const struct row_sink *out, void *stream,
                            const struct wk_err *err)
{
    const uint32_t head = a->op->u.rope.head, n = a->op->u.rope.n;
    if (!head || a->width % head || 2 * n > head || !a->rope_table)
        return wk_fail(err, WK_INTERNAL, "rope alone: %u pairs of heads of %u in rows of %u", n, head, a->width);
    if (a->y == a->x[0].x) return wk_fail(err, WK_INTERNAL, "rope alone: in place");
    const struct rope_launch p = { source_of(&a->x[0]),
                                   source_of(&a->residual),
                                   (const float2 *)a->rope_table,
                                   head,
                                   a->op->u.rope.style,
                                   n,
                                   a->slots,
                                   a->rows,
                                   *out };
    return cuda_launch("rope alone", rope_kernel, row_grid(a->rows, (a->width + 4 * THREADS - 1) / (4 * THREADS)),
                       THREADS, 0, a->pdl, stream, err, p);
}

static wk_status alone_norm(const struct cuda_alone *a, const struct row_sink *out, void *stream,
                            const struct wk_err *err)
{
    const uint32_t group = a->op->u.norm.group ? a->op->u.norm.group : a->width;
    if (a->width % group) return wk_fail(err, WK_INTERNAL, "norm alone: groups of %u in rows of %u", group, a->width);
    struct norm_launch n = {};
    n.pdl = a->pdl;
    n.rows = a->rows;
    n.runs = a->width / group;
    n.width = group;
    n.norm = 1 + a->op->u.norm.kind;
    n.eps = a->op->u.norm.eps;
    n.x = source_of(&a->x[0]);
    n.w = a->w;
    n.b = a->b;
    n.residual = source_of(&a->residual);
    n.out = *out;
    return norm_rows("norm alone", &n, stream, err);
}

static wk_status alone_elements(const struct cuda_alone *a, const struct row_sink *out, void *stream,
                                const struct wk_err *err)
{
    const struct tape_op *op = a->op;
    struct element_launch e = {};
    e.pdl = a->pdl;
    e.rows = a->rows;
    e.residual = source_of(&a->residual);
    e.out = *out;
    e.a = source_of(&a->x[0]);
    if (op->kind == WK_OP_GLU || op->kind == WK_OP_ADD || op->kind == WK_OP_MUL) {
        e.b = source_of(&a->x[1]);
        if (a->x_slots[0] == 1) e.a.repeat = a->slots;
        if (a->x_slots[1] == 1) e.b.repeat = a->slots;
        e.b_single = op->kind == WK_OP_MUL && a->x_width[1] == 1 && a->width != 1;
    }
    switch (op->kind) {
    case WK_OP_UNARY:
        e.map[0].fn = op->u.unary.fn;
        e.map[0].p = op->u.unary.p;
        return element_rows("map alone", &e, stream, err);
    case WK_OP_GLU:
        e.fn = op->u.glu.fn;
        e.alpha = op->u.glu.alpha;
        e.limit = op->u.glu.limit;
        return element_rows("glu alone", &e, stream, err);
    case WK_OP_ADD: e.fn = ELEMENT_ADD; return element_rows("add alone", &e, stream, err);
    case WK_OP_MUL: e.fn = ELEMENT_MUL; return element_rows("mul alone", &e, stream, err);
    default: /* WK_OP_SLICE, of one group */
        if (a->y == a->x[0].x) return wk_fail(err, WK_INTERNAL, "columns alone: in place");
        e.a.x += op->u.slice.first;
        e.a.wide = e.a.wide && op->u.slice.first % 4 == 0;
        return element_rows("columns alone", &e, stream, err);
    }
}

wk_status cuda_alone(const struct cuda_alone *a, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("an operation alone", a->rows, a->width, err);
    if (status != WK_OK) return status;
    if (!a->slots || a->rows % a->slots)
        return wk_fail(err, WK_INTERNAL, "an operation alone: %u rows of %u slots", a->rows, a->slots);
    const struct row_sink out = sink_f32(a->y, a->y_stride, a->part, a->width);
    switch (a->op->kind) {
    case WK_OP_NORM: return alone_norm(a, &out, stream, err);
    case WK_OP_ROPE: return alone_rope(a, &out, stream, err);
    case WK_OP_UNARY:
    case WK_OP_GLU:
    case WK_OP_ADD: return alone_elements(a, &out, stream, err);
    case WK_OP_MUL: return runs_needed(a) ? runs_alone(a, &out, stream, err) : alone_elements(a, &out, stream, err);
    case WK_OP_SLICE:
        return a->op->u.slice.groups > 1 ? columns_alone(a, &out, stream, err) : alone_elements(a, &out, stream, err);
    case WK_OP_CONCAT: return columns_alone(a, &out, stream, err);
    default: return wk_fail(err, WK_INTERNAL, "operation %u is no launch of its own", a->op->kind);
    }
}
