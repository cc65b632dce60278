/* columns.cu: operations alone that move columns or repeat them: slices and concatenations by groups, products whose
 * second factor has one value for a run of columns, or of which one factor is the same for every slot.
 *
 * One pass over memory: a thread makes four neighbouring results. Where everything comes in whole fours they are one
 * load, else four, which lie side by side in neighbouring threads all the same. */
#include "device/cuda/columns.cuh"

#include "device/cuda/launch.cuh"

enum { THREADS = 128 };

static dim3 columns_grid(uint32_t rows, uint32_t width)
{
    return row_grid(rows, (width + 4 * THREADS - 1) / (4 * THREADS));
}

/* ---- columns ------------------------------------------------------------------------------------------- */

/* Result columns [end - n, end) of group g are the part's columns [g * step, g * step + n). */
struct column_part {
    struct row_source x;
    uint32_t n, step, end;
};
struct column_launch {
    uint32_t rows, group; /* group: columns of one in the result */
    struct column_part part[TAPE_IN];
    struct row_source residual;
    struct row_sink out;
};

static __device__ __forceinline__ const float *column_at(const struct column_launch &p, uint32_t row, uint32_t e)
{
    const uint32_t g = e / p.group, c = e % p.group;
    uint32_t i = 0;
#pragma unroll
    for (uint32_t j = 0; j + 1 < TAPE_IN; j++) i += c >= p.part[j].end; /* parts that are not there end at the end */
    const struct column_part &part = p.part[i];
    return source_row(part.x, row) + (uint64_t)g * part.step + (c - (part.end - part.n));
}

template <bool WHOLE>
static __global__ void __launch_bounds__(THREADS) columns_kernel(const __grid_constant__ struct column_launch p)
{
    const uint32_t row = grid_row(), e = (blockIdx.x * THREADS + threadIdx.x) * 4, left = left_of(p.out.width, e);
    wk_release();
    wk_depend();
    if (row >= p.rows) return;
    float4 v = all4(0.0f);
    if (WHOLE && left)
        v = load4<true>(column_at(p, row, e), left, true);
    else if (!WHOLE)
        v = make_float4(
            left > 0 ? __ldcg(column_at(p, row, e)) : 0.0f, left > 1 ? __ldcg(column_at(p, row, e + 1)) : 0.0f,
            left > 2 ? __ldcg(column_at(p, row, e + 2)) : 0.0f, left > 3 ? __ldcg(column_at(p, row, e + 3)) : 0.0f);
    if (p.residual.x) v = add4(v, load4<WHOLE>(source_row(p.residual, row) + e, left, p.residual.wide));
    sink4<WHOLE>(p.out, row, e, within<WHOLE>(v, left));
}

static void add_part(struct column_launch *p, uint32_t i, const struct cuda_rows *x, uint32_t first, uint32_t n,
                     uint32_t step)
{
    struct column_part *part = &p->part[i];
    part->x = source_of(x);
    part->x.x += first;
    part->x.wide = part->x.wide && first % 4 == 0 && n % 4 == 0 && step % 4 == 0;
    part->n = n;
    part->step = step;
    p->group += n;
    for (uint32_t j = i; j < TAPE_IN; j++) p->part[j].end = p->group;
}

wk_status columns_alone(const struct cuda_alone *a, const struct row_sink *out, void *stream, const struct wk_err *err)
{
    const struct tape_op *op = a->op;
    const bool slice = op->kind == WK_OP_SLICE;
    const uint32_t groups = slice ? op->u.slice.groups : op->u.concat.groups;
    struct column_launch p = {};
    p.rows = a->rows;
    p.residual = source_of(&a->residual);
    p.out = *out;
    bool all = whole(&p.residual) && whole(out);
    for (uint32_t i = 0; i < (slice ? 1u : (uint32_t)TAPE_IN) && a->x[i].x && groups; i++) {
        const bool repeated = !slice && op->u.concat.repeated >> i & 1;
        const uint32_t width = a->x_width[i] / (repeated ? 1 : groups);
        if (a->x[i].x == a->y) return wk_fail(err, WK_INTERNAL, "columns alone: in place");
        if (a->x_slots[i] != a->slots)
            return wk_fail(err, WK_INTERNAL, "columns alone: %u slots of %u", a->x_slots[i], a->slots);
        add_part(&p, i, &a->x[i], slice ? op->u.slice.first : 0, slice ? op->u.slice.n : width, repeated ? 0 : width);
        all = all && p.part[i].x.wide;
    }
    if (!groups || (uint64_t)p.group * groups != a->width)
        return wk_fail(err, WK_INTERNAL, "columns alone: %u groups of %u in rows of %u", groups, p.group, a->width);
    return cuda_launch("columns alone", all ? columns_kernel<true> : columns_kernel<false>,
                       columns_grid(a->rows, a->width), THREADS, 0, a->pdl, stream, err, p);
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* Slot s of row r is x + (index ? index[r] : r) * row + s * slot. */
struct slot_source {
    const float *x;
    uint64_t row, slot;
    const uint32_t *index;
    bool wide;
};
struct run_launch {
    uint32_t rows, slots, run; /* rows: slots of all; run: columns of one factor */
    struct slot_source a, b;
    struct row_source residual;
    struct row_sink out;
};

static __device__ __forceinline__ const float *slot_at(const struct slot_source &s, uint32_t row, uint32_t slot)
{
    return s.x + (s.index ? s.index[row] : row) * s.row + slot * s.slot;
}

template <bool WHOLE>
static __global__ void __launch_bounds__(THREADS) runs_kernel(const __grid_constant__ struct run_launch p)
{
    const uint32_t item = grid_row(), e = (blockIdx.x * THREADS + threadIdx.x) * 4, left = left_of(p.out.width, e),
                   row = item / p.slots, slot = item % p.slots;
    wk_release();
    wk_depend();
    if (item >= p.rows) return;
    const float *b = slot_at(p.b, row, slot);
    float4 v = load4<WHOLE>(slot_at(p.a, row, slot) + e, left, p.a.wide), f = all4(0.0f);
    if (WHOLE && left)
        f = all4(__ldcg(b + e / p.run));
    else if (!WHOLE)
        f = make_float4(left > 0 ? __ldcg(b + e / p.run) : 0.0f, left > 1 ? __ldcg(b + (e + 1) / p.run) : 0.0f,
                        left > 2 ? __ldcg(b + (e + 2) / p.run) : 0.0f, left > 3 ? __ldcg(b + (e + 3) / p.run) : 0.0f);
    v = mul4(v, f);
    if (p.residual.x) v = add4(v, load4<WHOLE>(source_row(p.residual, item) + e, left, p.residual.wide));
    sink4<WHOLE>(p.out, item, e, within<WHOLE>(v, left));
}

/* Slots follow each other; those of a route's weights in one row; one slot is every slot's. */
static struct slot_source slots_of(const struct cuda_alone *a, uint32_t i)
{
    const uint64_t stride = a->x[i].stride, slots = a->x_slots[i];
    const struct slot_source s = { a->x[i].x, a->x_route[i] ? stride : stride * slots,
                                   slots == 1      ? 0
                                   : a->x_route[i] ? 1
                                                   : stride,
                                   a->x[i].index, aligned16(a->x[i].x) && stride % 4 == 0 && !a->x_route[i] };
    return s;
}

bool runs_needed(const struct cuda_alone *a)
{
    const bool picked = (a->x[0].index || a->x[1].index) && a->slots > 1;
    return picked || a->x_route[0] || a->x_route[1] || (a->x_width[1] != 1 && a->x_width[1] != a->width);
}

wk_status runs_alone(const struct cuda_alone *a, const struct row_sink *out, void *stream, const struct wk_err *err)
{
    if (!a->x_width[1] || a->x_width[0] != a->width || a->width % a->x_width[1])
        return wk_fail(err, WK_INTERNAL, "mul alone: %u by %u values in rows of %u", a->x_width[0], a->x_width[1],
                       a->width);
    for (uint32_t i = 0; i < 2; i++)
        if (a->x_slots[i] != 1 && a->x_slots[i] != a->slots)
            return wk_fail(err, WK_INTERNAL, "mul alone: %u slots of %u", a->x_slots[i], a->slots);
    struct run_launch p = {};
    p.rows = a->rows;
    p.slots = a->slots;
    p.run = a->width / a->x_width[1];
    p.a = slots_of(a, 0);
    p.b = slots_of(a, 1);
    p.residual = source_of(&a->residual);
    p.out = *out;
    const bool all = p.a.wide && p.run % 4 == 0 && whole(&p.residual) && whole(out);
    return cuda_launch("mul alone", all ? runs_kernel<true> : runs_kernel<false>, columns_grid(a->rows, a->width),
                       THREADS, 0, a->pdl, stream, err, p);
}
