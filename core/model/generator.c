/* generator.c: prompts in chunks, then steps of one row a sequence, kept in flight. */
#include "model/generator.h"

#include <stdlib.h>
#include <string.h>

#include "model/session.h"

enum sequence_state { SEQUENCE_OVER = 0, SEQUENCE_RUNS };

struct sequence {
    struct session *session;
    enum sequence_state state;
    uint32_t first; /* id of the prompt's last row, not given out yet; GENERATOR_NONE: given */
    uint32_t left;  /* ids wanted beyond those of the steps submitted */
    uint32_t n_ends, ends[SAMPLER_MAX_ENDS];
    const struct sampler_constraint *constraint; /* NULL: none */
    uint64_t *mask;                              /* [ceil(n_vocab / 64)]; NULL: it never had a constraint */
    uint32_t n, min_ids;                         /* ids generated; before an end may come */
    bool blocked;                                /* its constraint allows nothing: to be told */
};

struct generator {
    struct model *model;
    struct sequence *sequences;
    uint32_t n;
    bool begun; /* generator_next was called since the last start */
    /* Steps in flight, oldest first: which sequences they have. */
    struct {
        uint32_t n;
        uint32_t *member;
    } under_way[STEP_QUEUE];
    uint32_t oldest, n_under_way;
    /* For one step, or its result: [n] */
    struct step_seq *seqs;
    uint32_t *tokens, *logits_rows, *ids;
    bool *failed;
    struct step_ask *asks;
    const uint64_t **masks;
    struct step masked; /* the last one submitted, while it waits for masks */
    bool mask_due;
};

/* ---- steps --------------------------------------------------------------------------------------------- */

static wk_status submit(struct generator *g, const struct step *step, const struct wk_err *err)
{
    const uint32_t at = (g->oldest + g->n_under_way) % STEP_QUEUE;
    wk_status status = g->model->device->submit(g->model->executor, step, err);
    for (uint32_t i = 0; i < step->n_seqs; i++)
        session_advance(g->sequences[g->under_way[at].member[i]].session, status ? 0 : step->seqs[i].n_rows);
    if (status) return status;
    g->under_way[at].n = step->n_seqs;
    g->n_under_way++;
    for (uint32_t i = 0; step->asks && i < step->n_logits_rows; i++) g->mask_due = g->mask_due || step->asks[i].masked;
    g->masked = *step;
    return WK_OK;
}

/* Members of the step that is submitted next. */
static uint32_t *next_members(struct generator *g)
{
    return g->under_way[(g->oldest + g->n_under_way) % STEP_QUEUE].member;
}

/* Waits for the oldest step: g->ids and g->failed, in order of its members. */
static wk_status collect(struct generator *g, uint32_t *step, const struct wk_err *err)
{
    wk_status status =
        g->model->device->collect(g->model->executor, &(struct step_ids){ .ids = g->ids, .failed = g->failed }, err);
    *step = g->oldest;
    g->oldest = (g->oldest + 1) % STEP_QUEUE;
    g->n_under_way--;
    return status;
}

/* What is asked of the step's logits rows, which are the last of sequences `member`: NULL: no more than ids. */
static const struct step_ask *asks_of(struct generator *g, const uint32_t *member, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const bool masked = g->sequences[member[i]].constraint != NULL;
        g->asks[i] = (struct step_ask){ .id = TOKEN_LAST, .top = STEP_NO_TOP, .masked = masked };
        any = any || masked;
    }
    return any ? g->asks : NULL;
}

static wk_status make_mask(struct generator *g, struct sequence *q, const struct wk_err *err)
{
    const uint32_t n_vocab = g->model->program->n_vocab;
    if (q->state == SEQUENCE_RUNS) {
        wk_status status = q->constraint->mask(q->constraint->user, q->mask, err);
        if (status) return status;
        if (sampler_mask_allows(q->mask, n_vocab, q->ends, q->n < q->min_ids ? q->n_ends : 0)) return WK_OK;
        q->blocked = true;
        q->state = SEQUENCE_OVER;
    }
    memset(q->mask, 0xff, (n_vocab + 63) / 64 * sizeof *q->mask); /* nobody reads what it is given */
    return WK_OK;
}

/* Masks for the step that waits for them; all ids that they follow from were collected. An error loses the step. */
static wk_status give_masks(struct generator *g, const struct wk_err *err)
{
    const uint32_t at = (g->oldest + g->n_under_way - 1) % STEP_QUEUE;
    wk_status status = WK_OK;
    for (uint32_t i = 0; !status && i < g->under_way[at].n && i < g->masked.n_logits_rows; i++) {
        struct sequence *q = &g->sequences[g->under_way[at].member[i]];
        if (q->constraint) status = make_mask(g, q, err);
        g->masks[i] = q->mask;
    }
    /* The device is owed masks all the same. */
    for (uint32_t i = 0; status && i < g->masked.n_logits_rows; i++) {
        struct sequence *q = &g->sequences[g->under_way[at].member[i]];
        if (q->constraint) q->state = SEQUENCE_OVER, (void)make_mask(g, q, NULL);
        g->masks[i] = q->mask;
    }
    const wk_status given = g->model->device->mask(g->model->executor, &g->masked, g->masks, status ? NULL : err);
    g->mask_due = false;
    if (given) g->n_under_way--;
    return status ? status : given;
}

/* What a step gave a sequence, as generator_next says it: into *out. */
static wk_status take(struct sequence *q, uint32_t id, bool failed, uint32_t *out, const struct wk_err *err)
{
    *out = q->blocked ? GENERATOR_BLOCKED : GENERATOR_NONE;
    q->blocked = false;
    if (q->state == SEQUENCE_OVER) return WK_OK;
    *out = failed || id == UINT32_MAX ? GENERATOR_FAILED : id;
    if (*out == GENERATOR_FAILED) q->state = SEQUENCE_OVER;
    for (uint32_t i = 0; i < q->n_ends; i++)
        if (q->ends[i] == id) q->state = SEQUENCE_OVER;
    q->n++;
    return q->constraint && q->state == SEQUENCE_RUNS ? q->constraint->accept(q->constraint->user, id, err) : WK_OK;
}

static wk_status drain(struct generator *g, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (uint32_t step; !status && g->n_under_way;)
        status = g->mask_due && g->n_under_way == 1 ? give_masks(g, err) : collect(g, &step, err);
    return status;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

void generator_close(struct generator *g)
{
    if (!g) return;
    for (uint32_t i = 0; g->sequences && i < g->n; i++) g->sequences[i].state = SEQUENCE_OVER;
    for (uint32_t step; g->n_under_way;)
        (void)(g->mask_due && g->n_under_way == 1 ? give_masks(g, NULL) : collect(g, &step, NULL));
    for (uint32_t i = 0; g->sequences && i < g->n; i++) {
        session_close(g->sequences[i].session);
        free(g->sequences[i].mask);
    }
    for (uint32_t i = 0; i < STEP_QUEUE; i++) free(g->under_way[i].member);
    free(g->sequences);
    free(g->seqs);
    free(g->tokens);
    free(g->logits_rows);
    free(g->ids);
    free(g->failed);
    free(g->asks);
    free((void *)g->masks);
    free(g);
}

static bool allocate(struct generator *g)
{
    bool ok = true;
    g->sequences = calloc(g->n, sizeof *g->sequences);
    g->seqs = calloc(g->n, sizeof *g->seqs);
    g->tokens = calloc(g->n, sizeof *g->tokens);
    g->logits_rows = calloc(g->n, sizeof *g->logits_rows);
    g->ids = calloc(g->n, sizeof *g->ids);
    g->failed = calloc(g->n, sizeof *g->failed);
    g->asks = calloc(g->n, sizeof *g->asks);
    g->masks = calloc(g->n, sizeof *g->masks);
    for (uint32_t i = 0; i < STEP_QUEUE; i++) {
        g->under_way[i].member = calloc(g->n, sizeof *g->under_way[i].member);
        ok = ok && g->under_way[i].member;
    }
    return ok && g->sequences && g->seqs && g->tokens && g->logits_rows && g->ids && g->failed && g->asks && g->masks;
}

wk_status generator_open(struct model *m, uint32_t n, struct generator **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status status = model_generates(m, err);
    if (status) return status;
    if (n < 1 || n > m->dev.max_logits_rows || n > m->dev.max_rows)
        return wk_fail(err, WK_INVALID, "%u sequences that generate together: expected 1 to %u, what a step gives", n,
                       m->dev.max_logits_rows < m->dev.max_rows ? m->dev.max_logits_rows : m->dev.max_rows);
    if (m->device->run_ahead < 1 || m->device->run_ahead > STEP_QUEUE)
        return wk_fail(err, WK_INTERNAL, "device %s: %u steps under way: expected 1 to %d", m->device->name,
                       m->device->run_ahead, STEP_QUEUE);
    struct generator *g = calloc(1, sizeof *g);
    if (!g) return wk_fail(err, WK_NO_MEMORY, "out of memory for a generator");
    g->model = m;
    g->n = n;
    if (!allocate(g)) status = wk_fail(err, WK_NO_MEMORY, "out of memory for a generator of %u sequences", n);
    for (uint32_t i = 0; !status && i < n; i++) {
        g->sequences[i].first = GENERATOR_NONE;
        status = session_open(m, &g->sequences[i].session, err);
    }
    if (status) {
        generator_close(g);
        return status;
    }
    *out = g;
    return WK_OK;
}

/* ---- a prompt ------------------------------------------------------------------------------------------ */

static wk_status submit_chunk(struct generator *g, uint32_t i, const uint32_t *tokens, uint32_t n, enum row_role role,
                              bool last, const struct wk_err *err)
{
    const struct session *s = g->sequences[i].session;
    const uint32_t logits_row = n - 1;
    struct step_seq seq = session_rows(s, 0, n, role);
    struct step step = {
        .n_rows = n, .n_seqs = 1, .n_logits_rows = last, .tokens = tokens, .seqs = &seq, .logits_rows = &logits_row
    };
    next_members(g)[0] = i;
    step.asks = last ? asks_of(g, next_members(g), 1) : NULL;
    wk_status status = submit(g, &step, err);
    return !status && g->mask_due ? give_masks(g, err) : status; /* it follows from no other id */
}

/* To the first id, or to what stopped it. */
static wk_status run_prompt(struct generator *g, uint32_t i, const struct generator_job *job, const struct wk_err *err)
{
    const uint32_t most_rows = g->model->dev.max_rows, ahead = g->model->device->run_ahead;
    const enum row_role role = job->n_prompt <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT;
    wk_status status = WK_OK;
    uint32_t step;
    bool failed = false;
    struct sequence *q = &g->sequences[i];
    q->state = SEQUENCE_RUNS;
    for (uint32_t at = 0, n; !status && at < job->n_prompt; at += n) {
        n = session_grow(g->sequences[i].session, job->n_prompt - at < most_rows ? job->n_prompt - at : most_rows);
        if (job->stop && job->stop()) return wk_fail(err, WK_CANCELLED, "cancelled");
        status = submit_chunk(g, i, job->prompt + at, n, role, at + n == job->n_prompt, err);
        while (!status && (g->n_under_way == ahead || at + n == job->n_prompt) && g->n_under_way) {
            status = collect(g, &step, err);
            failed = failed || g->failed[0];
        }
    }
    if (status) return status;
    return take(q, g->ids[0], failed, &q->first, err);
}

wk_status generator_start(struct generator *g, uint32_t i, const struct generator_job *job, const struct wk_err *err)
{
    const struct model *m = g->model;
    if (i >= g->n) return wk_fail(err, WK_INVALID, "sequence %u of %u", i, g->n);
    const uint32_t reach = g->sequences[i].session->reach;
    if (job->n_prompt < 1 || job->n_prompt > reach)
        return wk_fail(err, WK_INVALID, "a prompt of %u tokens: expected 1 to %u, %s", job->n_prompt, reach,
                       reach == m->dev.context ? "the context" : "its share of the KV cache");
    if (job->most < 1) return wk_fail(err, WK_INVALID, "no ids are wanted");
    if (job->n_ends > SAMPLER_MAX_ENDS)
        return wk_fail(err, WK_INVALID, "%u ids that end a sequence: expected at most %d", job->n_ends,
                       SAMPLER_MAX_ENDS);
    wk_status status = drain(g, err);
    if (status) return status;
    for (uint32_t k = 0; g->begun && k < g->n; k++)
        g->sequences[k].state = SEQUENCE_OVER, g->sequences[k].first = GENERATOR_NONE;
    g->begun = false;
    struct sequence *q = &g->sequences[i];
    q->state = SEQUENCE_OVER;
    q->first = GENERATOR_NONE;
    q->left = job->most - 1;
    q->n_ends = job->n_ends;
    q->n = 0;
    q->min_ids = job->params->min_ids;
    q->blocked = false;
    q->constraint = job->constraint;
    if (q->constraint && !q->mask) q->mask = malloc((m->program->n_vocab + 63) / 64 * sizeof *q->mask);
    if (q->constraint && !q->mask) return wk_fail(err, WK_NO_MEMORY, "out of memory for a mask");
    if (job->n_ends) memcpy(q->ends, job->ends, job->n_ends * sizeof *q->ends);
    session_reset(q->session);
    status = m->device->sampler_set(m->executor, q->session->slot, job->params, job->ends, job->n_ends, err);
    if (!status) status = run_prompt(g, i, job, err);
    if (status) q->state = SEQUENCE_OVER, (void)drain(g, NULL);
    return status;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

/* One more step of all sequences that want one; *any: there was one. */
static wk_status submit_row_each(struct generator *g, bool *any, const struct wk_err *err)
{
    uint32_t n = 0, *member = next_members(g);
    for (uint32_t i = 0; i < g->n; i++) {
        struct sequence *q = &g->sequences[i];
        if (q->state == SEQUENCE_OVER || !q->left || session_length(q->session) == q->session->reach) continue;
        q->left--;
        (void)session_grow(q->session, 1);
        g->seqs[n] = session_rows(q->session, n, 1, ROW_GENERATED);
        g->tokens[n] = TOKEN_LAST;
        g->logits_rows[n] = n;
        member[n++] = i;
    }
    *any = n > 0;
    if (!n) return WK_OK;
    const struct step step = { .n_rows = n,
                               .n_seqs = n,
                               .n_logits_rows = n,
                               .tokens = g->tokens,
                               .seqs = g->seqs,
                               .logits_rows = g->logits_rows,
                               .asks = asks_of(g, member, n) };
    return submit(g, &step, err);
}

static bool give_first(struct generator *g, uint32_t *ids)
{
    bool any = false;
    for (uint32_t i = 0; i < g->n; i++) {
        ids[i] = g->sequences[i].first;
        any = any || ids[i] != GENERATOR_NONE;
        g->sequences[i].first = GENERATOR_NONE;
    }
    return any;
}

wk_status generator_next(struct generator *g, uint32_t *ids, const struct wk_err *err)
{
    const uint32_t ahead = g->model->device->run_ahead;
    const bool first = give_first(g, ids);
    wk_status status = WK_OK;
    uint32_t step;
    g->begun = true;
    /* A device that runs steps inside submit shows the first id before it computes the second. */
    for (bool any = !first || ahead > 1; !status && any;) {
        if (g->mask_due && g->n_under_way > 1) break; /* its masks follow from ids that are to be collected */
        if (g->mask_due) status = give_masks(g, err);
        any = !status && g->n_under_way < ahead;
        if (any) status = submit_row_each(g, &any, err);
    }
    if (status || first || !g->n_under_way) return status;
    status = collect(g, &step, err);
    for (uint32_t i = 0; !status && i < g->under_way[step].n; i++) {
        const uint32_t member = g->under_way[step].member[i];
        status = take(&g->sequences[member], g->ids[i], g->failed[i], &ids[member], err);
    }
    return status;
}
