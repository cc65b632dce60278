/* state.c: what a sequence carries from row to row: convolutions, linear attention, the delta rule.
 *
 * A sequence's rows of a step run in order, in one thread for each run of columns: columns do not meet, so nothing
 * that is computed depends on how rows and columns are dealt out. The state lies in the page of the row's block, or,
 * where that block has none, in that of the next one that has, and is changed there in place. A step begins with a
 * copy of the state of the row before it, unless that lies in the same page; so a page that is full is never written
 * again.
 *
 * A page of a scan or delta rule is [heads][slices][dk][STATE_COLUMNS], zero behind a head's last column; that of a
 * convolution the rows that the next row sees, oldest first: [kernel - 1][width]. */
#include "device/cpu/cpu.h"

#include <float.h>
#include <string.h>

enum { CONV_COLUMNS = 32 }; /* of one task */

uint64_t state_bytes(const struct tape_op *op, const struct tape_kv_layer *k)
{
    const bool conv = op->u.state.kind == WK_STATE_CONV;
    const uint64_t columns = (op->u.state.head_v + STATE_COLUMNS - 1) / STATE_COLUMNS * STATE_COLUMNS,
                   floats = conv ? k->state_floats : (uint64_t)op->u.state.heads * op->u.state.head_k * columns,
                   bytes = (floats * sizeof(float) + 63) & ~UINT64_C(63);
    return bytes ? bytes : 64; /* a kernel of one row has no state, and a page all the same */
}

/* ---- pages --------------------------------------------------------------------------------------------- */

static float *page_at(const struct state *a, uint32_t page)
{
    return (float *)(void *)(a->cache + (uint64_t)page * a->page_bytes);
}

/* The state that the sequence's rows of the step begin with; NULL: zero. */
static const float *source(const struct state *a, const struct step_seq *q)
{
    return q->position ? page_at(a, q->pages[a->group][(q->position - 1) / KV_PAGE]) : NULL;
}

/* Index among the logits rows of the first that is not before `row`. */
static uint32_t logits_row_from(const struct step *s, uint32_t row)
{
    uint32_t low = 0, high = s->n_logits_rows;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (s->logits_rows[mid] < row)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Where the result of a row goes; NULL: nobody wants it. *logits_row: as logits_row_from, and moves on. */
static float *result(const struct executor *x, const struct stage *s, uint32_t row, uint32_t *logits_row)
{
    if (s->rows == ROWS_ALL) return s->state.out + (uint64_t)row * s->state.width;
    if (*logits_row == x->step->n_logits_rows || x->step->logits_rows[*logits_row] != row) return NULL;
    return s->state.out + (uint64_t)(*logits_row)++ * s->state.width;
}

/* ---- scan, delta rule ---------------------------------------------------------------------------------- */

/* Columns [slice * STATE_COLUMNS, ..) of a head. */
struct slice {
    uint32_t head, first, n; /* first: column of v and of the result; n of them */
    uint64_t offset;         /* floats, in a page */
};

static struct slice slice_at(const struct state *a, uint32_t at)
{
    const uint32_t head = at / a->slices, from = at % a->slices * STATE_COLUMNS;
    return (struct slice){ head, head * a->dv + from, a->dv - from < STATE_COLUMNS ? a->dv - from : STATE_COLUMNS,
                           (uint64_t)at * a->dk * STATE_COLUMNS };
}

static void slice_row(struct executor *x, const struct stage *s, const struct slice *c, float *state, uint32_t row,
                      float *out)
{
    const struct state *a = &s->state;
    const uint32_t key = c->head / a->share * a->dk;
    const float *q = operand_row(x, &a->in[0], row) + key, *k = operand_row(x, &a->in[1], row) + key;
    const float decay = operand_row(x, &a->in[3], row)[c->head];
    float v[STATE_COLUMNS] = { 0 }, y[STATE_COLUMNS];
    memcpy(v, operand_row(x, &a->in[2], row) + c->first, c->n * sizeof *v);
    if (a->op->u.state.kind == WK_STATE_DELTA)
        x->kernels->delta(y, state, q, k, v, decay, operand_row(x, &a->in[4], row)[c->head], a->dk);
    else
        x->kernels->scan(y, state, q, k, v, decay, a->dk);
    /* A number of the state that is not finite makes its y NaN or infinite, whatever q. */
    if (!x->kernels->bounded(y, c->n, FLT_MAX)) fail_row(x, ROWS_ALL, row);
    if (out) memcpy(out + c->first, y, c->n * sizeof *y);
}

static void slice_run(struct executor *x, const struct stage *s, const struct step_seq *q, uint32_t at)
{
    const struct state *a = &s->state;
    const struct slice c = slice_at(a, at);
    const size_t bytes = (size_t)a->dk * STATE_COLUMNS * sizeof(float);
    const float *from = source(a, q);
    uint32_t logits_row = logits_row_from(x->step, q->row);
    for (uint32_t i = 0; i < q->n_rows;) {
        const uint32_t block = (q->position + i) / KV_PAGE;
        float *to = page_at(a, kv_step_page(q->pages[a->group], block));
        if (!from)
            memset(to + c.offset, 0, bytes);
        else if (from != to)
            memcpy(to + c.offset, from + c.offset, bytes);
        from = to;
        for (; i < q->n_rows && (q->position + i) / KV_PAGE == block; i++)
            slice_row(x, s, &c, to + c.offset, q->row + i, result(x, s, q->row + i, &logits_row));
    }
}

/* ---- convolution --------------------------------------------------------------------------------------- */

/* Columns [first, first + n) of a sequence's rows: those of the step, and before them what the state has. */
struct strip {
    const struct executor *x;
    const struct state *a;
    const struct step_seq *q;
    uint32_t first, n, before;  /* before: kernel - 1 */
    float (*old)[CONV_COLUMNS]; /* [before] */
};

/* Row i of the step's, i >= -before. */
static const float *strip_row(const struct strip *t, int64_t i)
{
    if (i < 0) return t->old[i + t->before];
    return operand_row(t->x, &t->a->in[0], t->q->row + (uint32_t)i) + t->first;
}

static void strip_open(struct strip *t)
{
    const float *from = source(t->a, t->q);
    for (uint32_t i = 0; i < t->before; i++)
        if (from)
            memcpy(t->old[i], from + (uint64_t)i * t->a->width + t->first, t->n * sizeof **t->old);
        else
            memset(t->old[i], 0, t->n * sizeof **t->old);
}

/* The state behind row i. */
static void strip_keep(const struct strip *t, uint32_t i, float *page)
{
    for (uint32_t j = 0; j < t->before; j++)
        memcpy(page + (uint64_t)j * t->a->width + t->first, strip_row(t, (int64_t)i - t->before + 1 + j),
               t->n * sizeof *page);
}

static void strip_run(struct executor *x, const struct stage *s, const struct step_seq *q, uint32_t at)
{
    const struct state *a = &s->state;
    const uint32_t first = at * CONV_COLUMNS, kernel = a->op->u.state.kernel, *table = q->pages[a->group];
    float old[TAPE_MAX_KERNEL][CONV_COLUMNS];
    struct strip t = { .x = x,
                       .a = a,
                       .q = q,
                       .first = first,
                       .n = a->width - first < CONV_COLUMNS ? a->width - first : CONV_COLUMNS,
                       .before = kernel - 1,
                       .old = old };
    const float *seen[TAPE_MAX_KERNEL];
    uint32_t logits_row = logits_row_from(x->step, q->row);
    strip_open(&t);
    for (uint32_t i = 0; i < q->n_rows; i++) {
        float *out = result(x, s, q->row + i, &logits_row);
        const uint32_t position = q->position + i;
        if (!x->kernels->bounded(strip_row(&t, i), t.n, FLT_MAX)) fail_row(x, ROWS_ALL, q->row + i);
        for (uint32_t j = 0; j < kernel; j++) seen[j] = strip_row(&t, (int64_t)i - t.before + j);
        if (out) x->kernels->conv(out + first, seen, a->w + first, a->width, a->b ? a->b + first : NULL, kernel, t.n);
        if ((position % KV_PAGE == KV_PAGE - 1 || i == q->n_rows - 1) && table[position / KV_PAGE] != KV_NO_PAGE)
            strip_keep(&t, i, page_at(a, table[position / KV_PAGE]));
    }
}

/* ---- the stage ----------------------------------------------------------------------------------------- */

void state_run(struct executor *x, const struct stage *s, struct lane *l)
{
    const struct state *a = &s->state;
    const bool conv = a->op->u.state.kind == WK_STATE_CONV;
    const uint32_t seqs = x->step->n_seqs,
                   runs = conv ? (a->width + CONV_COLUMNS - 1) / CONV_COLUMNS : a->heads * a->slices;
    /* By columns, then by sequence: a thread has some of each, however long they are. */
    const uint64_t end = share_many(x, (uint64_t)runs * seqs, l->index + 1);
    for (uint64_t i = share_many(x, (uint64_t)runs * seqs, l->index); i < end; i++) {
        const struct step_seq *q = &x->step->seqs[i % seqs];
        if (conv)
            strip_run(x, s, q, (uint32_t)(i / seqs));
        else
            slice_run(x, s, q, (uint32_t)(i / seqs));
    }
}
