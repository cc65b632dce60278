/* step.c: steps that give logits: run after run, each waited for; and the taps.
 *
 * The steps of a serving loop are queue.c's. Here logits go to the caller's memory, so many rows at a time as a run of
 * generated rows has, and are looked at: a sequence with one that is not finite has failed. A tapped step runs kernel
 * by kernel and stops after every value that somebody wants to see. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taps ---------------------------------------------------------------------------------------------- */

/* One value of the whole step, in the caller's order of rows. */
struct tap {
    const struct cuda_stage *stage;
    char name[TAPE_NAME + 8];
    uint32_t rows, width;
    float *data;
};
struct tap_store {
    const struct step *step;
    uint32_t n, cap, keys;
    struct tap *tap;
};

static uint32_t step_rows(const struct step *s, enum tape_rows rows)
{
    return rows == ROWS_ALL ? s->n_rows : rows == ROWS_LOGITS ? s->n_logits_rows : s->n_seqs;
}

static wk_status add_tap(struct tap_store *t, const struct cuda_stage *s, const char *name, const char *suffix,
                         uint32_t rows, uint32_t width, float **data, const struct wk_err *err)
{
    char full[TAPE_NAME + 8];
    (void)snprintf(full, sizeof full, "%s%s", name, suffix);
    for (uint32_t i = 0; i < t->n; i++)
        if (!strcmp(t->tap[i].name, full)) {
            *data = t->tap[i].data;
            return WK_OK;
        }
    if (t->n == t->cap) {
        const uint32_t cap = t->cap ? 2 * t->cap : 64;
        struct tap *more = realloc(t->tap, cap * sizeof *more);
        if (!more) return wk_fail(err, WK_NO_MEMORY, "out of memory for %u taps", cap);
        t->tap = more;
        t->cap = cap;
    }
    struct tap *to = &t->tap[t->n];
    *to = (struct tap){
        .stage = s, .rows = rows, .width = width, .data = calloc((size_t)rows * width + 1, sizeof(float))
    };
    memcpy(to->name, full, sizeof full);
    if (!to->data) return wk_fail(err, WK_NO_MEMORY, "out of memory for the tap of %s", full);
    t->n++;
    *data = to->data;
    return WK_OK;
}

/* Where row i of a run lies in the step, by the kind of rows. */
static uint32_t place(const struct run *r, enum tape_rows rows, uint32_t i)
{
    return rows == ROWS_ALL ? r->row_of[i] : rows == ROWS_LOGITS ? r->logits_row_of[i] : r->seq_of[i];
}
static uint32_t asked_rows(const struct run *r, enum tape_rows rows)
{
    return rows == ROWS_ALL ? r->n_rows : rows == ROWS_LOGITS ? r->n_logits_rows : r->n_seqs;
}

static wk_status tap_value(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t v,
                           const struct wk_err *err)
{
    const struct tape_value *t = &x->program->values[v];
    const struct cuda_value *y = &x->values[v];
    const bool route = x->program->ops[t->op].kind == WK_OP_ROUTE;
    const uint32_t n = asked_rows(r, y->rows), items = route ? 1 : y->slots, width = route ? y->slots : y->width,
                   row = t->width * t->slots;
    float *to;
    wk_status st = add_tap(x->taps, s, t->name, "", step_rows(x->taps->step, y->rows), row, &to, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        const float *from = (const float *)(const void *)y->data + (uint64_t)i * items * y->stride;
        st = cuda_check(x->device,
                        (int)cudaMemcpy2DAsync(to + (uint64_t)place(r, y->rows, i) * row, width * sizeof *to, from,
                                               y->stride * sizeof *to, width * sizeof *to, items,
                                               cudaMemcpyDeviceToHost, x->stream),
                        "copy of a tap", err);
    }
    return st ? st : cuda_check(x->device, (int)cudaStreamSynchronize(x->stream), t->name, err);
}

/* Scores are written straight into host memory: they would not fit beside the model. */
static wk_status tap_scores(struct executor *x, const struct cuda_stage *s, const struct run *r,
                            const struct wk_err *err)
{
    struct tap_store *t = x->taps;
    const char *name = x->program->values[s->attend.op->out].name;
    const uint64_t row = (uint64_t)s->attend.call.heads * t->keys;
    struct cuda_batch batch = x->batch;
    struct cuda_attend a = s->attend.call;
    float *to, *scores = NULL;
    batch.rows = r->rows;
    batch.seqs = r->seqs;
    a.batch = &batch;
    wk_status st = add_tap(t, s, name, ".scores", t->step->n_rows, (uint32_t)row, &to, err);
    if (!st)
        st = cuda_check(x->device,
                        (int)cudaHostAlloc((void **)&scores, r->rows * row * sizeof *scores, cudaHostAllocMapped),
                        "host memory for the scores of a tap", err);
    if (!st) st = cuda_store_keys(x, &a, err);
    if (!st)
        st = a.value_in_key ? cuda_latent_scores(&a, x->q_half, t->keys, scores, x->stream, err)
                            : cuda_attend_scores(&a, x->q_half, t->keys, scores, x->stream, err);
    if (!st) st = cuda_check(x->device, (int)cudaStreamSynchronize(x->stream), name, err);
    for (uint32_t i = 0; i < r->n_rows && !st; i++) memcpy(to + r->row_of[i] * row, scores + i * row, row * sizeof *to);
    if (scores) (void)cudaFreeHost(scores);
    return st;
}

static wk_status see_stage(struct executor *x, const struct cuda_stage *s, const struct run *r,
                           const struct wk_err *err)
{
    wk_status st = WK_OK;
    for (uint32_t i = 0; s->tapped && i < s->launch->n_ops && !st; i++) {
        const struct tape_op *op = &x->program->ops[s->launch->ops[i]];
        if (op->kind == WK_OP_ATTENTION && op->u.attn.tap_scores) st = tap_scores(x, s, r, err);
        if (!st && op->out != TAPE_NONE && x->program->values[op->out].tapped && x->values[op->out].data)
            st = tap_value(x, s, r, op->out, err);
    }
    return st;
}

static void give_taps(struct executor *x)
{
    for (uint32_t i = 0; i < x->taps->n; i++) {
        const struct tap *t = &x->taps->tap[i];
        x->tap(x->tap_user, t->name, t->data, t->rows, t->width);
    }
}

static void free_taps(struct tap_store *t)
{
    for (uint32_t i = 0; i < t->n; i++) free(t->tap[i].data);
    free(t->tap);
}

/* ---- results ------------------------------------------------------------------------------------------- */

static bool finite(const float *y, uint64_t n)
{
    float sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += y[i] * 0.0f;
    return sum == 0.0f;
}

/* Wanted rows [first, first + n) of the run, which lie at x->logits, to the caller. */
static wk_status give_logits(struct executor *x, struct step *s, const struct run *r, uint32_t first, uint32_t n,
                             const struct wk_err *err)
{
    const uint64_t vocab = x->n_logits, bytes = vocab * sizeof(float);
    for (uint32_t i = 0, run; i < n; i += run) {
        const uint32_t at = r->logits_row_of[first + i];
        for (run = 1; i + run < n && r->logits_row_of[first + i + run] == at + run; run++) continue;
        wk_status st = cuda_check(
            x->device,
            (int)cudaMemcpy2DAsync(s->logits + at * vocab, bytes, x->logits + i * x->logits_stride,
                                   x->logits_stride * sizeof(float), bytes, run, cudaMemcpyDeviceToHost, x->stream),
            "copy of logits", err);
        if (st) return st;
    }
    return WK_OK;
}

static wk_status give_pooled(struct executor *x, struct step *s, const struct run *r, const struct wk_err *err)
{
    const uint64_t width = x->program->embedding_width;
    wk_status st = WK_OK;
    for (uint32_t i = 0; i < r->n_seqs && !st; i++)
        st = cuda_check(x->device,
                        (int)cudaMemcpyAsync(s->pooled + r->seq_of[i] * width, x->pooled + i * width,
                                             width * sizeof(float), cudaMemcpyDeviceToHost, x->stream),
                        "copy of an embedding", err);
    return st;
}

static void find_failed(const struct executor *x, struct step *s)
{
    const uint64_t vocab = x->n_logits, width = x->program->embedding_width;
    for (uint32_t i = 0, seq = 0; i < s->n_logits_rows; i++) {
        while (s->seqs[seq].row + s->seqs[seq].n_rows <= s->logits_rows[i]) seq++;
        if (!finite(s->logits + i * vocab, vocab)) s->seqs[seq].failed = true;
    }
    for (uint32_t i = 0; width && i < s->n_seqs; i++)
        if (!finite(s->pooled + i * width, width)) s->seqs[i].failed = true;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* Up to the logits, of prompts without them. */
static wk_status start_run(struct executor *x, const struct step *s, const bool *cancel, const struct wk_err *err)
{
    const struct run *r = &x->run;
    if (!r->few || x->tap) return cuda_enqueue_run(x, r, PROGRAM_LOGITS, cancel, x->tap ? see_stage : NULL, err);
    return x->launched ? cuda_time_run(x, s, r, err) : cuda_launch_few(x, r, PROGRAM_LOGITS, err);
}

static wk_status run_logits(struct executor *x, struct step *s, const bool *cancel, const struct wk_err *err)
{
    const struct run *r = &x->run;
    wk_status st = start_run(x, s, cancel, err);
    if (!st && r->few) st = give_logits(x, s, r, 0, r->n_logits_rows, err);
    for (uint32_t at = 0, n; !r->few && at < r->n_logits_rows && !st; at += n) {
        n = r->n_logits_rows - at < x->run_rows ? r->n_logits_rows - at : x->run_rows;
        st = cuda_enqueue_logits(x, r, at, n, err);
        if (!st) st = give_logits(x, s, r, at, n, err);
    }
    if (!st && x->program->embedding_width) st = give_pooled(x, s, r, err);
    return st ? st : cuda_check(x->device, (int)cudaStreamSynchronize(x->stream), "a step", err);
}

static wk_status run_all(struct executor *x, struct step *s, const struct wk_err *err)
{
    const bool *cancel = cuda_cancel_of(x, s);
    for (uint32_t few = 2; few-- > 0;) {
        struct run_cursor c = { .step = s, .few = few };
        while (cuda_seek_run(x, &c)) {
            cuda_next_run(x, &c);
            const wk_status st = run_logits(x, s, cancel, err);
            if (st) return st;
            x->oldest = x->next_serial;
            if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED)) return wk_fail(err, WK_CANCELLED, "cancelled");
        }
    }
    return WK_OK;
}

wk_status cuda_step(struct executor *x, struct step *step, const struct wk_err *err)
{
    wk_status s = cuda_check_step(x, step, false, err);
    if (!s && x->unmasked) return wk_fail(err, WK_INVALID, "a step waits for its masks: give them first");
    if (!s) s = cuda_drain(x, err);
    if (s) return s;
    struct tap_store taps = { .step = step };
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const uint32_t end = step->seqs[i].position + step->seqs[i].n_rows;
        step->seqs[i].failed = false;
        if (end > taps.keys) taps.keys = end;
    }
    x->taps = &taps;
    cuda_begin_step(x, step);
    s = run_all(x, step, err);
    if (s)
        cuda_resync(x);
    else
        find_failed(x, step);
    if (!s && x->tap) give_taps(x);
    free_taps(&taps);
    x->taps = NULL;
    return s;
}

void cuda_taps(struct executor *x, tap_fn fn, void *user)
{
    x->tap = fn;
    x->tap_user = user;
}
