/* run.c: cuts a step into runs and writes their inputs into the ring.
 *
 * What the caller gave is checked before anything is changed. Generated rows come first, in runs padded to a bucket of
 * rows; then prompts. The rows of one sequence follow each other in order within a run and from run to run. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "device/kv_pages.h"
#include "device/step_check.h"

/* ---- checks -------------------------------------------------------------------------------------------- */

static wk_status check_wanted(const struct executor *x, const struct step *s, bool sampled, const struct wk_err *err)
{
    if (s->n_logits_rows && !x->n_logits)
        return wk_fail(err, WK_INVALID, "%u rows are wanted, but the tape has no logits", s->n_logits_rows);
    return sampled ? step_check_asks(x->program, s, err) : step_check_logits_rows(s, err);
}

wk_status cuda_check_step(const struct executor *x, const struct step *s, bool sampled, const struct wk_err *err)
{
    const wk_status counts = step_check_counts(&x->o, s, err);
    if (counts) return counts;
    wk_status sequences = step_check_sequences(x->program, &x->o, x->plan.kv_pages, s, err);
    if (sequences) return sequences;
    for (uint32_t i = 0; sampled && i < s->n_seqs; i++)
        if (s->seqs[i].slot >= x->o.max_sequences)
            return wk_fail(err, WK_INVALID, "sequence %u: slot %u: there are %u", i, s->seqs[i].slot,
                           x->o.max_sequences);
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->tokens[i] >= x->program->n_vocab && !(sampled && s->tokens[i] == TOKEN_LAST))
            return wk_fail(err, WK_INVALID, "row %u: token %u: the vocabulary has %u", i, s->tokens[i],
                           x->program->n_vocab);
    if (x->program->embedding_width && sampled)
        return wk_fail(err, WK_INVALID, "the tape has an embedding output, which a sampled step does not give");
    if (x->program->embedding_width && !s->pooled)
        return wk_fail(err, WK_INVALID, "the tape has an embedding output but there is no room for it");
    return check_wanted(x, s, sampled, err);
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

struct block {
    struct prepare_line *line;
    uint32_t *pages;
};

static struct block block_of(const struct executor *x, uint32_t serial)
{
    const struct prepare_layout *l = &x->prepare.layout;
    uint8_t *b = x->host + (uint64_t)(serial % CUDA_RING) * l->bytes;
    return (struct block){ .line = (struct prepare_line *)(void *)b, .pages = (uint32_t *)(void *)(b + l->pages) };
}

/* The pages that rows at positions [from, end) see, where the kernels look for them: of a bounded span in turn. */
static void put_pages(const struct executor *x, const struct block *b, uint32_t seq, const struct step_seq *q,
                      uint32_t from, uint32_t end)
{
    uint32_t *to = b->pages + (uint64_t)seq * x->prepare.layout.table;
    for (uint32_t g = 0; g < x->program->n_groups; g++) {
        const uint32_t ring = x->prepare.ring_pages[g],
                       first = kv_first(kv_span(&x->program->groups[g], x->o.context), from) / KV_PAGE,
                       n = (end + KV_PAGE - 1) / KV_PAGE;
        if (!ring && !x->program->groups[g].state)
            memcpy(to + first, q->pages[g] + first, (n - first) * sizeof *to);
        else
            for (uint32_t i = first; i < n; i++) to[ring ? i % ring : i] = kv_step_page(q->pages[g], i);
        to += prepare_pages(ring, end);
    }
}

/* Rows [done, done + n) of a sequence of the step. */
static void put_rows(struct executor *x, const struct run_cursor *c, const struct block *b, uint32_t n)
{
    struct run *r = &x->run;
    const struct step_seq *q = &c->step->seqs[c->seq];
    const uint32_t seq = r->n_seqs++;
    r->seq_of[seq] = c->seq;
    b->line[seq].seq =
        (struct cuda_seq){ .row = r->n_rows, .n_rows = n, .position = q->position + c->done, .slot = q->slot };
    for (uint32_t i = c->done; i < c->done + n; i++) {
        const uint32_t from = q->row + i, row = r->n_rows++;
        const uint32_t token = c->step->tokens[from];
        b->line[row].row.token = (token == TOKEN_LAST ? PREPARE_LAST | q->slot : token) |
                                 (step_token_type(q, q->position + i) ? PREPARE_SECOND : 0);
        b->line[row].row.position = q->position + i;
        b->line[row].row.seq = (int32_t)seq;
        r->row_of[row] = from;
    }
    put_pages(x, b, seq, q, q->position + c->done, q->position + c->done + n);
}

/* The run's row `row` is its next logits row. */
static void put_logits_row(struct run *r, const struct run_cursor *c, const struct block *b, uint32_t row, uint32_t ask)
{
    const uint32_t seq = (uint32_t)b->line[row].row.seq;
    r->ask_of[r->n_logits_rows] = ask;
    r->logits_row_of[r->n_logits_rows] = c->sampled ? r->seq_of[seq] : ask;
    b->line[r->n_logits_rows++].row.logits_row = row;
}

/* Sampled rows first: the sampler takes so many, and they are at most as many as there are sequences. */
static void put_all_logits_rows(const struct executor *x, struct run *r, const struct run_cursor *c,
                                const struct block *b)
{
    const struct step *s = c->step;
    for (uint32_t row = 0; row < r->n_rows; row++) {
        const uint32_t ask = x->logits_row_at[r->row_of[row]];
        if (ask == TAPE_NONE || (c->sampled && step_ask_of(s, ask).id != TOKEN_LAST)) continue;
        const struct prepare_row *at = &b->line[row].row;
        if (c->sampled)
            b->line[r->n_sampled++].sampled = (struct cuda_seq){
                .row = row, .n_rows = 1, .position = at->position, .slot = b->line[at->seq].seq.slot
            };
        put_logits_row(r, c, b, row, ask);
    }
    for (uint32_t row = 0; c->sampled && s->asks && row < r->n_rows; row++) {
        const uint32_t ask = x->logits_row_at[r->row_of[row]];
        if (ask != TAPE_NONE && s->asks[ask].id != TOKEN_LAST) put_logits_row(r, c, b, row, ask);
    }
}

/* Of all sequences, by WK_CUDA_FEW. */
static void put_lengths(const struct run *r, const struct block *b)
{
    for (uint32_t i = 0; i < r->seqs; i++) {
        struct cuda_lengths *l = &b->line[i - i % WK_CUDA_FEW].lengths;
        if (i % WK_CUDA_FEW == 0) *l = (struct cuda_lengths){ 0, 0, 0, 0 };
        cuda_lengths_add(l, &b->line[i].seq);
    }
}

/* Fills the run up to its bucket. What is computed for padding goes nowhere. */
static void put_padding(struct run *r, const struct block *b)
{
    r->rows = r->few ? cuda_bucket(r->n_rows) : r->n_rows;
    r->seqs = r->few ? r->rows : r->n_seqs;
    for (uint32_t i = r->n_rows; i < r->rows; i++)
        b->line[i].row.token = b->line[i].row.position = 0, b->line[i].row.seq = CUDA_PADDING;
    for (uint32_t i = r->n_logits_rows; i < r->rows; i++) b->line[i].row.logits_row = 0;
    for (uint32_t i = r->n_seqs; i < r->seqs; i++) b->line[i].seq = (struct cuda_seq){ .n_rows = 0 };
    for (uint32_t i = r->n_sampled; i < r->seqs; i++) b->line[i].sampled = (struct cuda_seq){ .n_rows = 0 };
    put_lengths(r, b);
}

static struct block begin_run(struct executor *x, bool few)
{
    struct run *r = &x->run;
    r->few = few;
    r->serial = x->next_serial;
    r->n_rows = r->n_seqs = r->n_logits_rows = r->n_sampled = 0;
    return block_of(x, r->serial);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

void cuda_begin_step(struct executor *x, const struct step *s)
{
    for (uint32_t i = 0; i < s->n_rows; i++) x->logits_row_at[i] = TAPE_NONE;
    for (uint32_t i = 0; i < s->n_logits_rows; i++) x->logits_row_at[s->logits_rows[i]] = i;
}

const bool *cuda_cancel_of(const struct executor *x, const struct step *s)
{
    bool states = false;
    for (uint32_t g = 0; g < x->program->n_groups; g++) states = states || x->program->groups[g].state;
    for (uint32_t i = 0; states && i < s->n_seqs; i++)
        if (s->seqs[i].position % KV_PAGE) return NULL;
    return s->cancel;
}

/* Prompts that are one step are prompts, whatever they are called. */
static bool is_few(const struct executor *x, const struct step_seq *q)
{
    return q->role == ROW_GENERATED && !tape_whole_prompt(x->program);
}

bool cuda_seek_run(const struct executor *x, struct run_cursor *c)
{
    while (c->seq < c->step->n_seqs && is_few(x, &c->step->seqs[c->seq]) != c->few) c->seq++;
    return c->seq < c->step->n_seqs;
}

void cuda_next_run(struct executor *x, struct run_cursor *c)
{
    const struct step *s = c->step;
    const struct block b = begin_run(x, c->few);
    struct run *r = &x->run;
    for (uint32_t most = c->few && x->cap_all > x->run_rows ? x->run_rows : x->cap_all;
         c->seq < s->n_seqs && r->n_seqs < x->run_rows && r->n_rows < most;) {
        const struct step_seq *q = &s->seqs[c->seq];
        if (is_few(x, q) != c->few) {
            c->seq++;
            continue;
        }
        const uint32_t left = q->n_rows - c->done, n = left < most - r->n_rows ? left : most - r->n_rows;
        put_rows(x, c, &b, n);
        c->done += n;
        if (c->done == q->n_rows) c->seq++, c->done = 0;
    }
    put_all_logits_rows(x, r, c, &b);
    put_padding(r, &b);
    x->next_serial++;
}

void cuda_padding_run(struct executor *x, uint32_t rows)
{
    const struct block b = begin_run(x, true);
    x->run.n_rows = rows; /* for its bucket */
    put_padding(&x->run, &b);
    x->run.n_rows = 0;
    for (uint32_t i = 0; i < x->run.rows; i++) b.line[i].row = (struct prepare_row){ .seq = CUDA_PADDING };
    x->next_serial++;
}

void cuda_resync(struct executor *x)
{
    uint32_t serial = 0;
    x->held = 0;
    if (cudaStreamSynchronize(x->stream) ||
        cudaMemcpy(&serial, x->prepare.serial, sizeof serial, cudaMemcpyDeviceToHost)) {
        (void)cuda_check(x->device, (int)cudaGetLastError(), "after a failed step", NULL);
        return;
    }
    x->next_serial = x->oldest = serial + 1;
}
