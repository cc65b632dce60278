/* attend.c: attention over the paged cache, with the head norms and rotations before it.
 *
 * A page of a KV head holds K as [dk][32 positions] and V as [32 positions][dv]: scores come 16 positions a vector
 * without sums across lanes, and both loops run over memory in order. Softmax works in splits of 256 at absolute
 * positions, each with its own maximum and sum, appended in order; inside a split sums run over d (scores) and over
 * positions (values). So a row's bits are the same alone, in a chunk, and in any packing of rows and heads: packing
 * only shares the loads of K and V.
 *
 * Values that are the first numbers of their keys are not stored: a page's keys are turned into values once for all
 * queries of a pass. A layer that reads another's cache stores nothing.
 *
 * Keys and values of the step's rows are stored first. Where every sequence has one row, the thread that stores a row
 * also attends for it and needs no barrier; otherwise all rows are stored by shares, and then blocks of rows are tasks.
 * One or two rows with a long past are cut by position too, into one task a split. */
#include "device/cpu/cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "device/kv_pages.h"

/* Largest value that a half holds after rounding. */
#define HALF_MOST 65519.0f

static const uint32_t *page_table(const struct executor *x, const struct attend *a, uint32_t seq)
{
    return x->step->seqs[seq].pages[a->group];
}

static uint8_t *page_of(const struct executor *x, const struct attend *a, uint32_t seq, uint32_t head,
                        uint32_t position)
{
    return a->cache + page_table(x, a, seq)[position / KV_PAGE] * a->page_bytes + head * a->head_bytes;
}

/* ---- finishing q, k, v --------------------------------------------------------------------------------- */

/* One head: norm, then rotation. y == v allowed. */
static void finish_head(const struct executor *x, float *y, const float *v, uint32_t n, const struct tape_op *norm,
                        const float *w, const float *b, const struct tape_op *rope, const float *rope_table,
                        uint32_t row)
{
    if (norm) {
        x->kernels->norm(y, v, w, b, n, norm->u.norm.kind, norm->u.norm.eps);
        v = y;
    }
    if (rope) {
        const uint32_t pairs = rope->u.rope.n;
        x->kernels->rope(y, v, rope_table + (uint64_t)row * 2 * pairs, pairs, n, rope->u.rope.style);
        v = y;
    }
    if (v != y) memcpy(y, v, n * sizeof *y);
}

/* Stores k and v of one row of the step for one KV head. */
static void store_row(struct executor *x, const struct attend *a, struct lane *l, uint32_t row, uint32_t head)
{
    const uint32_t position = x->position[row];
    uint8_t *page = page_of(x, a, x->seq[row], head, position);
    const float limit = x->o.kv_type == KV_F16 ? HALF_MOST : FLT_MAX;
    float *t = l->row;
    finish_head(x, t, a->k.base + row * a->k.stride + head * a->dk, a->dk, a->k_norm, a->k_norm_w, a->k_norm_b,
                a->k_rope, a->k_rope_table, row);
    bool good = x->kernels->bounded(t, a->dk, limit);
    x->kernels->store_k[x->o.kv_type](page, t, a->dk, position % KV_PAGE);
    if (!a->value_in_key) {
        finish_head(x, t, a->v.base + row * a->v.stride + head * a->dv, a->dv, a->v_norm, a->v_norm_w, a->v_norm_b,
                    NULL, NULL, row);
        good &= x->kernels->bounded(t, a->dv, limit);
        x->kernels->store_v[x->o.kv_type](page + a->v_offset, t, a->dv, position % KV_PAGE);
    }
    if (!good) fail_row(x, ROWS_ALL, row);
}

/* ---- one pass: `rows` rows of one sequence x `heads` heads of one KV head ------------------------------ */

struct pass {
    const struct attend *a;
    uint32_t seq, kv_head, head, heads; /* head: first query head */
    uint32_t first, rows;               /* of the row set, positions ascending */
    const uint32_t *row;                /* [rows] the same as rows of the step */
};

/* The first position that a row of the step sees, and the last. */
static uint32_t first_key(const struct executor *x, const struct attend *a, uint32_t row)
{
    return kv_first(a->span, x->position[row]);
}
static uint32_t last_key(const struct executor *x, const struct attend *a, uint32_t row)
{
    const uint32_t position = x->position[row];
    if (!a->both_ways) return position;
    const struct step_seq *q = &x->step->seqs[x->seq[row]];
    const uint32_t ahead = q->position + q->n_rows - 1 - position;
    return a->span.window && ahead >= a->span.window ? position + a->span.window - 1 : position + ahead;
}

/* q of query i = row * heads + head at l->q + i * dk. */
static void load_queries(struct executor *x, const struct pass *p, struct lane *l)
{
    const struct attend *a = p->a;
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t h = 0; h < p->heads; h++)
            finish_head(x, l->q + (r * p->heads + h) * a->dk,
                        operand_row(x, &a->q, p->first + r) + (p->head + h) * a->dk, a->dk, a->q_norm, a->q_norm_w,
                        a->q_norm_b, a->q_rope, a->q_rope_table, p->row[r]);
}

/* Positions that any row of the pass sees in a split: [*from, *to), within it. */
static void split_range(const struct executor *x, const struct pass *p, uint32_t split, uint32_t *from, uint32_t *to)
{
    const uint32_t low = first_key(x, p->a, p->row[0]), high = last_key(x, p->a, p->row[p->rows - 1]) + 1;
    *from = low > split * ATTN_SPLIT ? low : split * ATTN_SPLIT;
    *to = high < (split + 1) * ATTN_SPLIT ? high : (split + 1) * ATTN_SPLIT;
}

/* Scores, scaled, capped and with slopes, of all queries for the pages of [from, to) at l->s + i * ATTN_SPLIT +
 * position in the split. */
static void split_scores(struct executor *x, const struct pass *p, struct lane *l, uint32_t from, uint32_t to)
{
    const struct attend *a = p->a;
    const uint32_t base = from / ATTN_SPLIT * ATTN_SPLIT, start = from / KV_PAGE * KV_PAGE, n = p->rows * p->heads;
    for (uint32_t j = start; j < to; j += KV_PAGE)
        x->kernels->scores[x->o.kv_type](l->s + (j - base), ATTN_SPLIT, l->q, a->dk, n,
                                         page_of(x, a, p->seq, p->kv_head, j), a->dk);
    const uint32_t width = (to - start + KV_PAGE - 1) / KV_PAGE * KV_PAGE;
    for (uint32_t i = 0; i < n; i++)
        x->kernels->cap_scores(l->s + i * ATTN_SPLIT + (start - base), width, a->op->u.attn.scale,
                               a->op->u.attn.softcap);
    for (uint32_t i = 0; a->op->u.attn.slopes && i < n; i++)
        x->kernels->add_slope(l->s + i * ATTN_SPLIT + (start - base), width,
                              (int64_t)start - x->position[p->row[i / p->heads]],
                              a->op->u.attn.slopes[p->head + i % p->heads]);
}

/* One split for all queries: l->acc [n][padded dv], and its maxima and sums. */
static void split_run(struct executor *x, const struct pass *p, struct lane *l, uint32_t split, float *max, float *sum)
{
    const struct attend *a = p->a;
    const uint32_t n = p->rows * p->heads, dv = kv_padded(a->dv);
    uint32_t from, to;
    split_range(x, p, split, &from, &to);
    split_scores(x, p, l, from, to);
    const uint32_t base = split * ATTN_SPLIT, start = from / KV_PAGE * KV_PAGE,
                   width = (to - start + KV_PAGE - 1) / KV_PAGE * KV_PAGE;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = p->row[i / p->heads], low = first_key(x, a, row), last = last_key(x, a, row),
                       lo = low > start ? low - start : 0, hi = last < start ? 0 : last + 1 - start;
        x->kernels->softmax(l->s + i * ATTN_SPLIT + (start - base), width, lo, hi < width ? hi : width, &max[i],
                            &sum[i]);
    }
    memset(l->acc, 0, (size_t)n * dv * sizeof *l->acc);
    for (uint32_t j = start; j < to; j += KV_PAGE) {
        /* Never beyond the last position that was stored: what lies there is another's, and 0 x NaN is NaN. */
        const uint32_t first = j < from ? from - j : 0, end = to - j < KV_PAGE ? to - j : KV_PAGE;
        const uint8_t *page = page_of(x, a, p->seq, p->kv_head, j);
        if (a->value_in_key) x->kernels->turn[x->o.kv_type](l->turned, page, a->dv);
        const void *values = a->value_in_key ? (const void *)l->turned : page + a->v_offset;
        x->kernels->values[a->value_in_key ? KV_F32 : x->o.kv_type](l->acc, dv, l->s + (j - base), ATTN_SPLIT, n,
                                                                    values, dv, first, end - first);
    }
}

static void finish_query(struct executor *x, const struct attend *a, uint32_t i, uint32_t head, const float *y,
                         float max, float sum)
{
    x->kernels->finish(a->out + ((uint64_t)i * a->heads + head) * a->dv, y, max, sum, a->sinks ? a->sinks + head : NULL,
                       a->dv);
}

static void pass_run(struct executor *x, const struct pass *p, struct lane *l)
{
    const struct attend *a = p->a;
    const uint32_t n = p->rows * p->heads, dv = kv_padded(a->dv);
    float max[ATTN_QUERIES], sum[ATTN_QUERIES], all_max[ATTN_QUERIES], all_sum[ATTN_QUERIES] = { 0 };
    load_queries(x, p, l);
    for (uint32_t split = first_key(x, a, p->row[0]) / ATTN_SPLIT;
         split <= last_key(x, a, p->row[p->rows - 1]) / ATTN_SPLIT; split++) {
        split_run(x, p, l, split, max, sum);
        for (uint32_t i = 0; i < n; i++)
            x->kernels->combine(l->sum + (size_t)i * dv, &all_max[i], &all_sum[i], l->acc + (size_t)i * dv, max[i],
                                sum[i], dv);
    }
    for (uint32_t i = 0; i < n; i++)
        finish_query(x, a, p->first + i / p->heads, p->head + i % p->heads, l->sum + (size_t)i * dv, all_max[i],
                     all_sum[i]);
}

/* Query heads of a pass, of `left`. Keys that are turned serve as many as there is room for. */
static uint32_t pass_heads(const struct attend *a, uint32_t left)
{
    const uint32_t most = a->value_in_key ? ATTN_QUERIES : ATTN_HEADS;
    return left < most ? left : most;
}

/* Rows [first, first + n) of the row set, one sequence, one KV head: in passes of at most ATTN_QUERIES queries. */
static void block_attend(struct executor *x, const struct stage *s, struct lane *l, uint32_t first, uint32_t n,
                         uint32_t seq, uint32_t kv_head)
{
    const struct attend *a = &s->attend;
    const uint32_t group = a->heads / a->kv_heads;
    uint32_t row[ATTN_ROWS];
    for (uint32_t h = 0, heads; h < group; h += heads) {
        heads = pass_heads(a, group - h);
        const uint32_t most = ATTN_QUERIES / heads < ATTN_ROWS ? ATTN_QUERIES / heads : ATTN_ROWS;
        for (uint32_t at = 0, rows; at < n; at += rows) {
            rows = n - at < most ? n - at : most;
            for (uint32_t r = 0; r < rows; r++) row[r] = step_row(x, s->rows, first + at + r);
            pass_run(x, &(struct pass){ a, seq, kv_head, kv_head * group + h, heads, first + at, rows, row }, l);
        }
    }
}

/* ---- cut by position ----------------------------------------------------------------------------------- */

static uint32_t most_splits(const struct executor *x) { return (x->o.context + ATTN_SPLIT - 1) / ATTN_SPLIT; }

uint64_t attend_partial_bytes(const struct executor *x, uint32_t heads, uint32_t dv)
{
    return (uint64_t)SPLIT_ROWS * heads * most_splits(x) * (kv_padded(dv) + 16) * sizeof(float);
}

/* One query's partial result of one split: values [padded dv], maximum, sum. */
static float *partial(const struct executor *x, const struct attend *a, uint32_t i, uint32_t head, uint32_t split)
{
    return x->partials + (((uint64_t)i * a->heads + head) * most_splits(x) + split) * (kv_padded(a->dv) + 16);
}

static void cut_task(struct executor *x, const struct stage *s, struct lane *l, uint32_t i, uint32_t kv_head,
                     uint32_t split)
{
    const struct attend *a = &s->attend;
    const uint32_t group = a->heads / a->kv_heads, row = step_row(x, s->rows, i), dv = kv_padded(a->dv);
    float max[ATTN_QUERIES], sum[ATTN_QUERIES];
    for (uint32_t h = 0, heads; h < group; h += heads) {
        heads = pass_heads(a, group - h);
        const struct pass p = { a, x->seq[row], kv_head, kv_head * group + h, heads, i, 1, &row };
        load_queries(x, &p, l);
        split_run(x, &p, l, split, max, sum);
        for (uint32_t j = 0; j < heads; j++) {
            float *to = partial(x, a, i, p.head + j, split);
            memcpy(to, l->acc + (size_t)j * dv, dv * sizeof *to);
            to[dv] = max[j];
            to[dv + 1] = sum[j];
        }
    }
}

/* Is it worth two more barriers? Few rows, a long past, and threads that would otherwise wait. */
static bool worth_cutting(const struct executor *x, const struct attend *a, const struct row_set *set)
{
    const uint32_t threads = pool_active(x->pool);
    if (set->n > SPLIT_ROWS || threads == 1) return false;
    uint32_t longest = 0;
    for (uint32_t b = 0; b < set->n_blocks; b++) {
        if (set->blocks[b].n > 1) return false;
        const uint32_t row = set == &x->logits_rows ? x->step->logits_rows[set->blocks[b].first] : set->blocks[b].first,
                       seen = last_key(x, a, row) + 1 - first_key(x, a, row);
        if (seen > longest) longest = seen;
    }
    const uint32_t tasks = set->n * a->kv_heads, rounds = (tasks + threads - 1) / threads;
    return longest >= 4 * ATTN_SPLIT && 4 * tasks < 3 * rounds * threads;
}

static void cut_run(struct executor *x, const struct stage *s, struct lane *l, uint32_t n)
{
    const struct attend *a = &s->attend;
    const uint32_t splits = most_splits(x), dv = kv_padded(a->dv);
    phase_begin(x, l);
    for (uint32_t t; (t = phase_take(x, l)) < n * a->kv_heads * splits;) {
        const uint32_t split = t % splits, kv_head = t / splits % a->kv_heads, i = t / splits / a->kv_heads,
                       row = step_row(x, s->rows, i);
        if (split >= first_key(x, a, row) / ATTN_SPLIT && split <= last_key(x, a, row) / ATTN_SPLIT)
            cut_task(x, s, l, i, kv_head, split);
    }
    phase_end(l);
    pool_barrier(x->pool);
    for (uint32_t t = share(x, n * a->heads, l->index); t < share(x, n * a->heads, l->index + 1); t++) {
        const uint32_t i = t / a->heads, head = t % a->heads, row = step_row(x, s->rows, i);
        float max = 0, sum = 0;
        for (uint32_t split = first_key(x, a, row) / ATTN_SPLIT; split <= last_key(x, a, row) / ATTN_SPLIT; split++) {
            const float *from = partial(x, a, i, head, split);
            x->kernels->combine(l->sum, &max, &sum, from, from[dv], from[dv + 1], dv);
        }
        finish_query(x, a, i, head, l->sum, max, sum);
    }
}

/* ---- the stage ----------------------------------------------------------------------------------------- */

/* Every sequence has one row and all are computed: store and attend in one task. */
static void solo_run(struct executor *x, const struct stage *s, struct lane *l, uint32_t n)
{
    const struct attend *a = &s->attend;
    phase_begin(x, l);
    for (uint32_t t; (t = phase_take(x, l)) < n * a->kv_heads;) {
        const uint32_t i = t / a->kv_heads, kv_head = t % a->kv_heads, row = step_row(x, s->rows, i);
        if (a->stores) store_row(x, a, l, row, kv_head);
        block_attend(x, s, l, i, 1, x->seq[row], kv_head);
    }
    phase_end(l);
}

void attend_run(struct executor *x, const struct stage *s, struct lane *l)
{
    const struct attend *a = &s->attend;
    const struct row_set *set = s->rows == ROWS_ALL ? &x->all : &x->logits_rows;
    const uint32_t rows = x->step->n_rows;
    const bool cut = worth_cutting(x, a, set);
    if (x->one_row_each && set->n == rows && !cut) {
        solo_run(x, s, l, rows);
        return;
    }
    /* Items by head, then by row: a thread fills pages in order. */
    const uint32_t items = a->stores ? rows * a->kv_heads : 0;
    for (uint32_t i = share(x, items, l->index); i < share(x, items, l->index + 1); i++)
        store_row(x, a, l, i % rows, i / rows);
    if (a->stores) pool_barrier(x->pool);
    if (cut) {
        cut_run(x, s, l, set->n);
        return;
    }
    /* The longest pasts first, so that no long task is left for the end. */
    phase_begin(x, l);
    for (uint32_t t; (t = phase_take(x, l)) < set->n_blocks * a->kv_heads;) {
        const struct row_block *b = &set->blocks[set->n_blocks - 1 - t / a->kv_heads];
        block_attend(x, s, l, b->first, b->n, b->seq, t % a->kv_heads);
    }
    phase_end(l);
}

uint32_t attend_keys(const struct executor *x)
{
    uint32_t keys = 0;
    for (uint32_t r = 0; r < x->step->n_rows; r++)
        if (x->position[r] + 1 > keys) keys = x->position[r] + 1;
    return keys;
}

void attend_scores(struct executor *x, const struct stage *s, uint32_t keys, float *out)
{
    const struct attend *a = &s->attend;
    struct lane *l = &x->lanes[0];
    const uint32_t group = a->heads / a->kv_heads, rows = stage_rows(x, s->rows);
    for (uint64_t i = 0; i < (uint64_t)rows * a->heads * keys; i++) out[i] = -INFINITY;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t head = 0; head < a->heads; head++, out += keys) {
            const uint32_t row = step_row(x, s->rows, i);
            const struct pass p = { a, x->seq[row], head / group, head, 1, i, 1, &row };
            load_queries(x, &p, l);
            for (uint32_t split = first_key(x, a, row) / ATTN_SPLIT; split <= last_key(x, a, row) / ATTN_SPLIT;
                 split++) {
                uint32_t from, end;
                split_range(x, &p, split, &from, &end);
                split_scores(x, &p, l, from, end);
                memcpy(out + from, l->s + from % ATTN_SPLIT, (end - from) * sizeof *out);
            }
        }
}
