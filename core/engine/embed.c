/* embed.c: steps of texts that become rows.
 *
 * A text is one step, or a part of one: where rows see what comes behind them, or are pooled, nothing of it can be put
 * off. So a step has whole texts, of as many jobs as it has room for, owners in turn and each job one text a round; and
 * its pages are dealt from the first on, for nothing of it is read again. The step has run when embed_submit returns. A
 * row depends on its own text alone. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "tape/tape.h"

/* ---- open and close ------------------------------------------------------------------------------------ */

static wk_status check_model(const struct model *m, const struct wk_err *err)
{
    for (uint32_t g = 0; g < m->program->n_groups; g++)
        if (m->program->groups[g].state)
            return wk_fail(err, WK_UNSUPPORTED, "%s gives embeddings and has states: it is not served", m->name);
    return WK_OK;
}

/* A text has all its pages at once, whatever its rows see. */
static uint32_t most_tokens(const struct model *m)
{
    uint64_t most = m->dev.context < m->dev.max_rows ? m->dev.context : m->dev.max_rows;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint64_t room = (uint64_t)m->plan.kv_pages[g] * KV_PAGE;
        if (room < most) most = room;
    }
    return (uint32_t)most;
}

wk_status embed_open(struct engine *e, const struct wk_err *err)
{
    const struct model *m = e->model;
    struct texts *t = &e->texts;
    uint32_t n_pages = 0;
    const wk_status s = check_model(m, err);
    if (s) return s;
    t->most = most_tokens(m);
    t->n_seqs = m->dev.max_sequences;
    for (uint32_t g = 0; g < m->program->n_groups; g++)
        if (m->plan.kv_pages[g] > n_pages) n_pages = m->plan.kv_pages[g];
    struct step_seq *seqs = realloc(e->seqs, t->n_seqs * sizeof *seqs);
    if (seqs) e->seqs = seqs;
    struct step_member *member = realloc(e->under_way[0].member, t->n_seqs * sizeof *member);
    if (member) e->under_way[0].member = member;
    uint32_t *tokens = realloc(e->tokens, m->dev.max_rows * sizeof *tokens);
    if (tokens) e->tokens = tokens;
    t->pages = calloc((size_t)n_pages + 1, sizeof *t->pages);
    t->tables = calloc(t->n_seqs, sizeof *t->tables);
    t->rows = calloc((size_t)t->n_seqs * m->program->embedding_width, sizeof *t->rows);
    if (!seqs || !member || !tokens || !t->pages || !t->tables || !t->rows)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for steps of %u texts", t->n_seqs);
    for (uint32_t i = 0; i < n_pages; i++) t->pages[i] = i;
    return WK_OK;
}

void embed_close(struct engine *e)
{
    free(e->texts.pages);
    free((void *)e->texts.tables);
    free(e->texts.rows);
}

uint32_t engine_text_most(const struct engine *e) { return e->texts.most; }

enum submit_refusal embed_check(const struct engine *e, const struct engine_job *spec, const struct wk_err *err)
{
    uint32_t from = 0;
    if (!spec->n_texts || spec->keep || spec->constraint)
        return (void)wk_fail(err, WK_INVALID, "the model gives embeddings: it generates nothing"), SUBMIT_INVALID;
    for (uint32_t i = 0; i < spec->n_texts; from = spec->text_ends[i++]) {
        const uint32_t end = spec->text_ends[i];
        if (end <= from || end > spec->n_prompt || (i + 1 == spec->n_texts && end != spec->n_prompt))
            return (void)wk_fail(err, WK_INVALID, "text %u ends at %u: expected %u to %u", i, end, from + 1,
                                 spec->n_prompt),
                   SUBMIT_INVALID;
        if (end - from > e->texts.most)
            return (void)wk_fail(err, WK_INVALID, "text %u has %u tokens: at most %u are one step", i, end - from,
                                 e->texts.most),
                   SUBMIT_CONTEXT;
    }
    return SUBMIT_OK;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* Pages that are dealt already, of each group. */
struct dealt {
    uint32_t n[TAPE_MAX_GROUPS];
};

static bool has_room(const struct engine *e, const struct step *s, const struct dealt *d, uint32_t n)
{
    const struct model *m = e->model;
    if (!s->n_rows) return true; /* a text by itself fits: embed_check */
    if (s->n_seqs == e->texts.n_seqs || s->n_rows >= e->o.max_batch_tokens || n > e->o.max_batch_tokens - s->n_rows)
        return false;
    for (uint32_t g = 0; g < m->program->n_groups; g++)
        if (kv_pages_of(n) > m->plan.kv_pages[g] - d->n[g]) return false;
    return true;
}

/* j's next text; false: the step has no room for it. */
static bool add_text(struct engine *e, struct step *s, struct dealt *d, struct job *j)
{
    const uint32_t n = j->text_ends[j->texts_submitted] - j->submitted, i = s->n_seqs;
    if (!has_room(e, s, d, n)) return false;
    memcpy(e->tokens + s->n_rows, j->prompt + j->submitted, n * sizeof *e->tokens);
    for (uint32_t g = 0; g < e->model->program->n_groups; g++) {
        e->texts.tables[i][g] = e->texts.pages + d->n[g];
        d->n[g] += (uint32_t)kv_pages_of(n);
    }
    e->seqs[i] = (struct step_seq){ .row = s->n_rows,
                                    .n_rows = n,
                                    .role = ROW_PROMPT,
                                    .pages = e->texts.tables[i],
                                    .second = j->text_seconds[j->texts_submitted] };
    e->under_way[0].member[i] = (struct step_member){ .job = j, .n_rows = n };
    j->submitted += n;
    j->texts_submitted++;
    s->n_seqs++;
    s->n_rows += n;
    return true;
}

static void add_texts(struct engine *e, struct step *s)
{
    struct dealt d = { { 0 } };
    for (bool more = true; more;) {
        uint32_t from = 0;
        more = false;
        e->looks++;
        for (struct job *j; (j = batch_next_reader(e, STEP_PROMPT, &from)); j->looked = e->looks) {
            if (!add_text(e, s, &d, j)) continue;
            j->owner->read = ++e->reads;
            more = true;
        }
    }
}

/* The step came to nothing: its texts are still to be read. */
static void take_back(const struct step_record *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct job *j = r->member[i].job;
        j->submitted = j->computed;
        j->texts_submitted = j->texts_done;
    }
}

/* Texts of a job lie in their order. */
static void take_row(struct engine *e, const struct step_member *m, const float *row, bool failed)
{
    static const char why[] = "a number of an embedding became infinite or NaN: the weights are damaged or overflow";
    const uint32_t width = e->model->program->embedding_width;
    struct job *j = m->job;
    if (j->over) return;
    if (failed) {
        batch_count_failure(e, why);
        engine_end_job(e, j, JOB_FAILED, why);
        return;
    }
    memcpy(j->pooled + (uint64_t)j->texts_done * width, row, width * sizeof *row);
    j->computed += m->n_rows;
    j->texts_done++;
    e->stats.failures = 0;
    job_tell_done(j, j->computed);
    schedule_use_slice(e, j, m->n_rows);
    if (j->texts_done < j->n_texts) return;
    e->stats.prompt_tokens += j->n_prompt;
    stats_add(&e->stats.prefill_seconds, engine_now() - atomic_load(&j->started_ns));
    engine_end_job(e, j, JOB_STOP, NULL);
}

static void take_rows(struct engine *e, const struct step *s, const struct step_record *r)
{
    const uint32_t width = e->model->program->embedding_width;
    e->stats.steps++;
    e->stats.prompt_steps++;
    e->stats.step_rows += s->n_rows;
    e->stats.batch_rows = s->n_rows;
    e->stats.batch_sequences = s->n_seqs;
    for (uint32_t i = 0; i < r->n; i++)
        take_row(e, &r->member[i], e->texts.rows + (uint64_t)i * width, s->seqs[i].failed);
}

enum batch_result embed_submit(struct engine *e)
{
    const struct device_ops *d = e->model->device;
    struct step_record *r = &e->under_way[0];
    struct step s = { .tokens = e->tokens, .seqs = e->seqs, .logits_rows = e->logits_rows, .pooled = e->texts.rows };
    char text[sizeof e->dead_text] = "";
    add_texts(e, &s);
    r->n = s.n_seqs;
    if (!r->n) return BATCH_NOTHING;
    batch_tell_started(e, r);
    const wk_status status = batch_arm_cancel(e, &s, r)
                                 ? d->step(e->model->executor, &s, &(struct wk_err){ text, sizeof text })
                                 : WK_CANCELLED;
    batch_disarm_cancel(r);
    if (!status) {
        take_rows(e, &s, r);
        return BATCH_AGAIN;
    }
    take_back(r);
    if (status != WK_CANCELLED) batch_refused(e, r, status, text);
    return BATCH_AGAIN;
}
