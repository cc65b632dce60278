/* batch.c: steps: what is in them, and what their ids mean.
 *
 * A step has rows of one kernel class. Those of generated rows hold the next row of every running job, then prompts of
 * few tokens and ids that preempted jobs compute again; those of prompt rows hold chunks of longer prompts, the most
 * important job's first, and those of several owners in turn. Where both classes have work, the device's time is
 * shared; chunks are cut so that one takes about SHARED_SECONDS. None of this is seen in a job's ids: they depend on
 * the class of its rows, and that on its prompt's length alone. */
#include "engine/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/log.h"
#include "tape/tape.h"

enum {
    FEW_GRAPH = 64,       /* rows that a GPU computes at once: what its last graph has room for costs little */
    FEW_LEAST = 16,       /* room for prompts beside rows that give ids, at least */
    FEW_ALONE = 256,      /* generated rows where no job waits for an id */
    PROMPTS_IN_A_ROW = 1, /* steps, while jobs wait for ids: bounds the gap between two of their ids */
    CHUNK_FIRST = 512,    /* rows of the first prompt step, whose time nobody knows */
    CHUNK_LEAST = 64
};
static const double SHARED_SECONDS = 0.030, ALONE_SECONDS = 0.050, PROMPT_SHARE = 0.25, AHEAD_SECONDS = 0.006;

wk_status batch_open(struct engine *e, const struct wk_err *err)
{
    const uint32_t n = e->o.max_sequences;
    bool ok = true;
    const struct device_options *dev = &e->model->dev;
    e->most_logits_rows = dev->max_logits_rows < dev->max_rows ? dev->max_logits_rows : dev->max_rows;
    e->seqs = calloc(n, sizeof *e->seqs);
    e->logits_rows = calloc(e->most_logits_rows, sizeof *e->logits_rows);
    e->asks = calloc(e->most_logits_rows, sizeof *e->asks);
    e->top_logprobs = calloc(e->most_logits_rows, sizeof *e->top_logprobs);
    e->masks = calloc(e->most_logits_rows, sizeof *e->masks);
    e->step_ids = calloc(n, sizeof *e->step_ids);
    e->step_failed = calloc(n, sizeof *e->step_failed);
    e->tokens = calloc(e->o.max_batch_tokens, sizeof *e->tokens);
    for (uint32_t i = 0; i < STEP_QUEUE; i++) {
        e->under_way[i].member = calloc(n, sizeof *e->under_way[i].member);
        ok = ok && e->under_way[i].member;
    }
    ok = ok && e->seqs && e->logits_rows && e->asks && e->top_logprobs && e->masks && e->step_ids && e->step_failed &&
         e->tokens;
    return ok ? WK_OK
              : wk_fail(err, WK_NO_MEMORY, "out of memory for steps of %u jobs and %u rows", n, e->o.max_batch_tokens);
}

void batch_close(struct engine *e)
{
    for (uint32_t i = 0; i < STEP_QUEUE; i++) free(e->under_way[i].member);
    free(e->seqs);
    free(e->logits_rows);
    free(e->asks);
    free(e->top_logprobs);
    free((void *)e->masks);
    free(e->step_ids);
    free(e->step_failed);
    free(e->tokens);
}

/* ---- what a job can do next ---------------------------------------------------------------------------- */

static bool gives_id(const struct job *j) { return j->submitted >= job_known(j) && j->sampled < j->most; }
static bool reads(const struct job *j, enum step_kind kind)
{
    return j->submitted < job_known(j) &&
           (kind == STEP_PROMPT) == (j->submitted < j->n_prompt && j->role == ROW_PROMPT);
}

struct work {
    uint32_t ids, few, prompts;
}; /* jobs that have such rows */

static struct work look(const struct engine *e)
{
    struct work w = { 0 };
    for (uint32_t i = 0; i < e->n_running; i++) {
        const struct job *j = e->running[i];
        w.ids += gives_id(j);
        w.few += reads(j, STEP_GENERATED);
        w.prompts += reads(j, STEP_PROMPT);
    }
    return w;
}

/* ---- which step, how large ----------------------------------------------------------------------------- */

/* Prompts as many as there are, at least a quarter for one and three for several: until they are read, their jobs'
 * places give no ids. */
static double share_of(enum step_kind kind, const struct work *w)
{
    const double jobs = (double)w->prompts / (w->prompts + w->few + w->ids),
                 few = w->prompts < 3 ? PROMPT_SHARE * w->prompts : 3 * PROMPT_SHARE;
    const double prompt = jobs > few ? jobs : few;
    return !w->prompts || !(w->ids + w->few) ? 1.0 : kind == STEP_PROMPT ? prompt : 1.0 - prompt;
}

/* A class that had nothing to do saved up no time. */
static enum step_kind choose(struct engine *e, const struct work *w)
{
    const bool present[STEP_KINDS] = { w->ids + w->few > 0, w->prompts > 0 };
    for (uint32_t k = 0; k < STEP_KINDS; k++) {
        if (present[k] && !e->present[k] && e->spent[k] < e->spent[1 - k]) e->spent[k] = e->spent[1 - k];
        e->present[k] = present[k];
    }
    enum step_kind kind = present[STEP_PROMPT] ? STEP_PROMPT : STEP_GENERATED;
    if (present[STEP_GENERATED] && present[STEP_PROMPT] && e->spent[STEP_PROMPT] >= e->spent[STEP_GENERATED])
        kind = STEP_GENERATED;
    if (kind == STEP_PROMPT && w->ids &&
        e->prompts_in_a_row >= PROMPTS_IN_A_ROW) { /* what they are owed then is forgotten */
        e->spent[STEP_PROMPT] = e->spent[STEP_GENERATED];
        kind = STEP_GENERATED;
    }
    e->prompts_in_a_row = kind == STEP_PROMPT ? e->prompts_in_a_row + 1 : 0;
    return kind;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t most_rows(const struct engine *e, enum step_kind kind, const struct work *w)
{
    const uint32_t all = e->o.max_batch_tokens;
    if (kind == STEP_GENERATED)
        return least(all, w->ids ? ((w->ids + FEW_LEAST) / FEW_GRAPH + 1) * FEW_GRAPH : FEW_ALONE);
    if (e->row_seconds <= 0) return least(all, CHUNK_FIRST);
    const double rows = (w->ids ? SHARED_SECONDS : ALONE_SECONDS) / e->row_seconds;
    return rows >= all ? all : least(all, rows < CHUNK_LEAST ? CHUNK_LEAST : (uint32_t)rows & ~(uint32_t)(KV_PAGE - 1));
}

/* ---- building ------------------------------------------------------------------------------------------ */

static struct step_record *next_record(struct engine *e)
{
    return &e->under_way[(e->oldest + e->n_under_way) % STEP_QUEUE];
}

static void no_pages(struct engine *e, struct job *j)
{
    char text[sizeof j->text];
    uint64_t pages = 0;
    for (uint32_t g = 0; g < e->n_groups; g++) pages += e->pool[g].n;
    (void)snprintf(text, sizeof text,
                   "the KV cache has no page for position %u: its %" PRIu64 " pages of %d positions are in use",
                   j->submitted, pages, KV_PAGE);
    engine_end_job(e, j, JOB_NO_MEMORY, text);
}

/* Of j's next n rows as many as the step has room for: each row whose logits are looked at takes a place. A prompt
 * whose log probabilities are wanted leaves others a place for their first ids. */
static uint32_t fit_logits_rows(const struct engine *e, const struct step *s, const struct job *j, uint32_t n)
{
    const uint32_t room = e->most_logits_rows - s->n_logits_rows, others = least(e->n_running - 1, room / 2),
                   scored = atomic_load(&j->n_scored);
    if (j->prompt_probs && j->submitted < j->n_prompt)
        return least(n, room - others + (scored > j->submitted ? scored - j->submitted : 0));
    return n - (!room && !j->n_ids && j->submitted + n == j->n_prompt);
}

static void want(struct engine *e, struct step *s, uint32_t row, struct step_ask ask)
{
    e->logits_rows[s->n_logits_rows] = row;
    e->asks[s->n_logits_rows++] = ask;
    if (ask.id != TOKEN_LAST || ask.top != STEP_NO_TOP || ask.masked) s->asks = e->asks;
}

/* What is wanted of j's rows in the step: the log probabilities of its prompt's tokens, each by the row before it, and
 * an id. */
static void add_logits_rows(struct engine *e, struct step *s, struct job *j, struct step_member *m)
{
    const uint32_t row = e->seqs[s->n_seqs].row, end = j->submitted + m->n_rows, scored = atomic_load(&j->n_scored);
    m->logits_row = s->n_logits_rows;
    m->scored = j->submitted > scored ? j->submitted : scored;
    for (uint32_t p = m->scored; j->prompt_probs && p < end && p + 1 < j->n_prompt; p++, m->n_scored++)
        want(e, s, row + p - j->submitted, (struct step_ask){ .id = j->prompt[p + 1], .top = j->prompt_top });
    if (m->sampled)
        want(e, s, row + m->n_rows - 1,
             (struct step_ask){ .id = TOKEN_LAST, .top = j->top, .masked = j->mask != NULL });
}

/* Rows of j go into the step, as many of n as there are pages for; false: for none, and it is over. */
static bool add(struct engine *e, struct step *s, struct job *j, uint32_t n)
{
    struct step_record *r = next_record(e);
    n = pages_grow(e, j, n);
    if (!n) {
        no_pages(e, j);
        return false;
    }
    const uint32_t known = job_known(j);
    const bool id = j->submitted >= known, sampled = id || (!j->n_ids && j->submitted + n == j->n_prompt);
    for (uint32_t i = 0, p = j->submitted; i < n; i++, p++)
        e->tokens[s->n_rows + i] = id ? TOKEN_LAST : p < j->n_prompt ? j->prompt[p] : j->ids[p - j->n_prompt];
    e->seqs[s->n_seqs] = (struct step_seq){ .row = s->n_rows,
                                            .n_rows = n,
                                            .position = j->submitted,
                                            .role = j->submitted < j->n_prompt ? j->role : ROW_GENERATED,
                                            .pages = j->tables,
                                            .slot = j->slot };
    struct step_member *m = &r->member[s->n_seqs];
    *m = (struct step_member){ .job = j, .n_rows = n, .sampled = sampled };
    add_logits_rows(e, s, j, m);
    s->n_seqs++;
    s->n_rows += n;
    return true;
}

/* One row each of the jobs that give ids. A job that ends here leaves the list. */
static void add_ids(struct engine *e, struct step *s)
{
    for (uint32_t i = 0; i < e->n_running;) {
        struct job *j = e->running[i];
        if (!gives_id(j) || add(e, s, j, 1)) i++;
    }
}

/* Whose rows are next, of those whom this step has not looked at: an owner's jobs in their order, owners by the most
 * important job, equal ones in turn. *from: all before it were looked at. */
struct job *batch_next_reader(const struct engine *e, enum step_kind kind, uint32_t *from)
{
    struct job *best = NULL;
    for (uint32_t i = *from; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (!reads(j, kind) || j->looked == e->looks) {
            *from += i == *from;
            continue;
        }
        if (!best || (j->owner != best->owner &&
                      (j->tier > best->tier || (j->tier == best->tier && j->owner->read < best->owner->read))))
            best = j;
        if (e->owners.n_live == 1) break;
    }
    return best;
}

static void add_chunks(struct engine *e, struct step *s, enum step_kind kind, uint32_t most)
{
    uint32_t from = 0;
    e->looks++;
    for (struct job *j; s->n_rows < most && (j = batch_next_reader(e, kind, &from));) {
        const uint32_t end = kind == STEP_PROMPT ? j->n_prompt : job_known(j),
                       n = fit_logits_rows(e, s, j, least(end - j->submitted, most - s->n_rows));
        j->looked = e->looks;
        if (!n) continue;
        if (add(e, s, j, n))
            j->owner->read = ++e->reads;
        else
            from = 0; /* it has left the list */
    }
}

/* ---- submit -------------------------------------------------------------------------------------------- */

void batch_tell_started(struct engine *e, const struct step_record *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct job *j = r->member[i].job;
        if (atomic_load(&j->started_ns)) continue;
        const uint64_t now = engine_now();
        atomic_store(&j->started_ns, now);
        stats_add(&e->stats.queue_seconds, now - atomic_load(&j->queued_ns));
        job_tell_started(j);
    }
    notifier_flush(&e->notifier);
}

bool batch_arm_cancel(struct engine *e, struct step *s, const struct step_record *r)
{
    s->cancel = &e->step_cancel;
    __atomic_store_n(&e->step_cancel, false, __ATOMIC_RELAXED);
    atomic_store(&e->step_jobs, 1); /* ours, so that nobody is the last one before all are counted */
    for (uint32_t i = 0; i < r->n; i++)
        if (!atomic_exchange(&r->member[i].job->in_step, true)) atomic_fetch_add(&e->step_jobs, 1);
    for (uint32_t i = 0; i < r->n; i++)
        if (atomic_load(&r->member[i].job->request) != REQUEST_NONE) batch_leave_step(r->member[i].job);
    return atomic_fetch_sub(&e->step_jobs, 1) > 1 && !(atomic_load(&e->attention) & ATTEND_CLOSE);
}

void batch_leave_step(struct job *j)
{
    struct engine *e = j->engine;
    if (atomic_exchange(&j->in_step, false) && atomic_fetch_sub(&e->step_jobs, 1) == 1)
        __atomic_store_n(&e->step_cancel, true, __ATOMIC_RELAXED);
}

void batch_disarm_cancel(const struct step_record *r)
{
    for (uint32_t i = 0; i < r->n; i++) atomic_store(&r->member[i].job->in_step, false);
}

/* A device that runs a step inside submit can be told to stop; the others are never far behind. */
static wk_status run(struct engine *e, struct step *s, const struct step_record *r, const struct wk_err *err)
{
    const struct device_ops *d = e->model->device;
    if (d->run_ahead > 1) return d->submit(e->model->executor, s, err);
    const wk_status status = batch_arm_cancel(e, s, r) ? d->submit(e->model->executor, s, err) : WK_CANCELLED;
    batch_disarm_cancel(r);
    return status;
}

/* Jobs end with INTERNAL each for itself; that no step succeeds any more is the service's to know. */
void batch_count_failure(struct engine *e, const char *text)
{
    struct engine_stats *s = &e->stats;
    (void)snprintf(s->failure_text, sizeof s->failure_text, "%s", text);
    if (s->failures < UINT32_MAX) s->failures++;
    if (s->failures == ENGINE_FAILING) LOG(LOG_ERROR, "engine_failing", text, log_u("steps", s->failures));
}

void batch_refused(struct engine *e, const struct step_record *r, wk_status status, const char *text)
{
    if (e->model->device->dead && e->model->device->dead())
        engine_die(e, text);
    else {
        if (status != WK_NO_MEMORY) batch_count_failure(e, text);
        for (uint32_t i = 0; i < r->n; i++)
            if (!r->member[i].job->over)
                engine_end_job(e, r->member[i].job, status == WK_NO_MEMORY ? JOB_NO_MEMORY : JOB_FAILED, text);
    }
}

/* The step is in flight. */
static void commit(struct engine *e, struct step_record *r, const struct step *s, const struct work *w)
{
    e->stats.steps++; /* what it gives back it still reads */
    r->n_rows = s->n_rows;
    r->asks = r->scores = false;
    r->share = share_of(r->kind, w);
    r->charged = r->kind == STEP_PROMPT ? e->row_seconds * s->n_rows : e->step_seconds;
    e->spent[r->kind] += r->charged / r->share;
    for (uint32_t i = 0; i < r->n; i++) {
        struct job *j = r->member[i].job;
        j->submitted += r->member[i].n_rows;
        pages_settle(e, j);
        j->sampled += r->member[i].sampled;
        j->in_flight++;
    }
    for (uint32_t i = 0; s->asks && i < s->n_logits_rows; i++) {
        r->asks = r->asks || s->asks[i].top != STEP_NO_TOP;
        r->scores = r->scores || s->asks[i].id != TOKEN_LAST;
        e->mask_due = e->mask_due || s->asks[i].masked;
    }
    e->masked = *s;
    e->n_under_way++;
    e->stats.prompt_steps += r->kind == STEP_PROMPT;
    e->stats.step_rows += s->n_rows;
    e->stats.batch_rows = s->n_rows;
    e->stats.batch_sequences = s->n_seqs;
}

bool batch_wants_more(const struct engine *e)
{
    double seconds = 0;
    if (e->mask_due) return false;
    for (uint32_t i = 0; i < e->n_under_way; i++) seconds += e->under_way[(e->oldest + i) % STEP_QUEUE].charged;
    return e->n_under_way < e->model->device->run_ahead && (e->n_under_way < 2 || seconds < AHEAD_SECONDS);
}

enum batch_result batch_submit(struct engine *e)
{
    struct step_record *r = next_record(e);
    struct step s = { .tokens = e->tokens, .seqs = e->seqs, .logits_rows = e->logits_rows };
    char text[sizeof e->dead_text] = "";
    const struct work w = look(e);
    if (!w.ids && !w.few && !w.prompts) return BATCH_NOTHING;
    r->kind = choose(e, &w);
    if (r->kind == STEP_GENERATED) add_ids(e, &s);
    add_chunks(e, &s, r->kind, most_rows(e, r->kind, &w));
    r->n = s.n_seqs;
    if (!r->n) return BATCH_AGAIN;
    batch_tell_started(e, r);
    if (e->prefix.events) (void)page_events_turn(&e->prefix); /* what made room for it: the step may take long */
    r->submitted_ns = engine_now();
    const wk_status status = run(e, &s, r, &(struct wk_err){ text, sizeof text });
    if (!status) {
        commit(e, r, &s, &w);
        return BATCH_SUBMITTED;
    }
    for (uint32_t i = 0; i < r->n; i++) pages_settle(e, r->member[i].job);
    if (status != WK_CANCELLED) batch_refused(e, r, status, text);
    return BATCH_AGAIN;
}

/* ---- masks --------------------------------------------------------------------------------------------- */

/* What the grammar itself is to blame for, a dead end or one of its limits, is told apart from a failure of ours. */
static void constraint_failed(struct engine *e, struct job *j, wk_status status, const char *why)
{
    char text[sizeof j->text];
    const bool grammar = status == WK_INVALID || status == WK_UNSUPPORTED;
    (void)snprintf(text, sizeof text, "%s%s", grammar ? "" : "the constraint failed: ", why);
    engine_end_job(e, j, grammar ? JOB_GRAMMAR : JOB_FAILED, text);
}

/* The mask of j's next id. Of a job that is over nobody reads what it is given. */
static void make_mask(struct engine *e, struct job *j)
{
    char text[sizeof j->text] = "";
    const uint32_t n_vocab = e->model->program->n_vocab, held = j->n_ids < j->params.min_ids ? j->n_ends : 0;
    const wk_status status =
        j->over ? WK_OK : j->constraint.mask(j->constraint.user, j->mask, &(struct wk_err){ text, sizeof text });
    if (status)
        constraint_failed(e, j, status, text);
    else if (!j->over && !sampler_mask_allows(j->mask, n_vocab, j->ends, held))
        engine_end_job(e, j, JOB_GRAMMAR, "the grammar allows no token here");
    if (j->over) memset(j->mask, 0xff, (n_vocab + 63) / 64 * sizeof *j->mask);
}

void batch_mask(struct engine *e)
{
    struct step_record *r = &e->under_way[e->oldest];
    char text[sizeof e->dead_text] = "";
    const uint64_t from = engine_now();
    for (uint32_t i = 0; i < r->n; i++) {
        const struct step_member *m = &r->member[i];
        if (!m->sampled || !m->job->mask) continue;
        make_mask(e, m->job);
        e->masks[m->logits_row + m->n_scored] = m->job->mask;
    }
    const wk_status status =
        e->model->device->mask(e->model->executor, &e->masked, e->masks, &(struct wk_err){ text, sizeof text });
    stats_add(&e->stats.mask_wait_seconds, engine_now() - from);
    e->mask_due = false;
    if (!status) return;
    batch_refused(e, r, status, text);
    if (!e->n_under_way) return; /* the engine died */
    e->n_under_way--;
    for (uint32_t i = 0; i < r->n; i++)
        if (!--r->member[i].job->in_flight) engine_settle(e, r->member[i].job);
}

/* ---- collect ------------------------------------------------------------------------------------------- */

static void first_id(struct engine *e, struct job *j, uint64_t now)
{
    atomic_store(&j->first_token_ns, now);
    atomic_store(&j->state, JOB_DECODE);
    stats_add(&e->stats.prefill_seconds, now - atomic_load(&j->started_ns));
    stats_add(&e->stats.first_token_seconds, now - atomic_load(&j->queued_ns));
    e->stats.prompt_tokens += j->n_prompt;
    e->schedule_due = true; /* who waits for its prompt begins */
}

/* The id goes into the job's constraint, if it has one. */
static void accept(struct engine *e, struct job *j, uint32_t id)
{
    char text[sizeof j->text] = "";
    const wk_status status = j->constraint.accept
                                 ? j->constraint.accept(j->constraint.user, id, &(struct wk_err){ text, sizeof text })
                                 : WK_OK;
    if (status) constraint_failed(e, j, status, text);
}

static void take_id(struct engine *e, struct job *j, uint32_t id, uint64_t now)
{
    e->stats.failures = 0;
    for (uint32_t i = 0; i < j->n_ends; i++)
        if (j->ends[i] == id) {
            j->by_id = true;
            engine_end_job(e, j, JOB_STOP, NULL);
            return;
        }
    if (j->n_ids)
        stats_add(&e->stats.inter_token_seconds, now - atomic_load(&j->last_token_ns));
    else
        first_id(e, j, now);
    atomic_store(&j->last_token_ns, now);
    job_tell_id(j, id);
    j->n_ids++;
    e->stats.generated_tokens++;
    *(j->priority >= atomic_load_explicit(&e->high_priority, memory_order_relaxed) ? &e->stats.high_tokens
                                                                                   : &e->stats.low_tokens) += 1;
    schedule_use_slice(e, j, 1);
    if (j->n_ids == j->most)
        engine_end_job(e, j, JOB_LENGTH, NULL);
    else
        accept(e, j, id);
}

/* The log probabilities that the step found: of tokens of the prompt, and of the id that is given next. */
static void take_probs(struct engine *e, struct job *j, const struct step_member *m)
{
    const struct sampler_top *top_logprobs = e->top_logprobs + m->logits_row;
    for (uint32_t i = 0; i < m->n_scored; i++)
        sampler_probs(&top_logprobs[i], job_row(j->prompt_probs, j->prompt_top, m->scored + i));
    if (m->n_scored) atomic_store(&j->n_scored, m->scored + m->n_scored);
    if (m->sampled && j->probs) sampler_probs(&top_logprobs[m->n_scored], job_row(j->probs, j->top, j->n_ids));
}

static void take(struct engine *e, const struct step_member *m, uint32_t id, bool failed, uint64_t now)
{
    struct job *j = m->job;
    j->in_flight--;
    if (j->over) {
        if (!j->in_flight) engine_settle(e, j);
        return;
    }
    if (failed || (m->sampled && id == UINT32_MAX)) {
        const char *why =
            failed ? "a logit became infinite or NaN: the weights are damaged or overflow" : "the device gave no id";
        batch_count_failure(e, why);
        engine_end_job(e, j, JOB_FAILED, why);
        return;
    }
    if (j->computed - m->n_rows < j->n_prompt) job_tell_done(j, least(j->computed, j->n_prompt));
    take_probs(e, j, m);
    if (m->sampled) take_id(e, j, id, now);
    if (j->pending_drop && !j->in_flight)
        schedule_drop_pages(e, j);
    else if (!j->over && j->running && j->n_ids && j->computed >= job_known(j))
        atomic_store(&j->state, JOB_DECODE);
}

/* How long the step had the device, against what was thought. Short chunks say little about the time of a row, and
 * those whose rows give log probabilities nothing. */
static void account(struct engine *e, const struct step_record *r, uint64_t now)
{
    const uint64_t from = r->submitted_ns > e->last_collect_ns ? r->submitted_ns : e->last_collect_ns;
    const double seconds = (double)(now - from) * 1e-9, row = seconds / r->n_rows;
    e->last_collect_ns = now;
    e->spent[r->kind] += (seconds - r->charged) / r->share;
    if (r->kind == STEP_GENERATED)
        e->step_seconds += (seconds - e->step_seconds) / 4;
    else if (r->scores)
        return;
    else if (e->row_seconds <= 0)
        e->row_seconds = row;
    else
        e->row_seconds += (row - e->row_seconds) * (r->n_rows < 256 ? r->n_rows / 1024.0 : 0.25);
}

/* First of all jobs: what one has computed another may be waiting for, which keeps its pages. */
static void commit_pages(struct engine *e, const struct step_record *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        r->member[i].job->computed += r->member[i].n_rows;
        if (!e->step_failed[i]) pages_commit(e, r->member[i].job);
    }
    for (uint32_t i = 0; i < r->n; i++)
        if (!e->step_failed[i] && lease_grows(r->member[i].job)) pages_keep(e, r->member[i].job);
}

void batch_collect(struct engine *e)
{
    struct step_record *r = &e->under_way[e->oldest];
    char text[sizeof e->dead_text] = "";
    const wk_status status = e->model->device->collect(
        e->model->executor, &(struct step_ids){ e->step_ids, e->step_failed, r->asks ? e->top_logprobs : NULL },
        &(struct wk_err){ text, sizeof text });
    if (status) {
        engine_die(e, text);
        return;
    }
    const uint64_t now = engine_now();
    account(e, r, now);
    e->oldest = (e->oldest + 1) % STEP_QUEUE;
    e->n_under_way--;
    commit_pages(e, r);
    import_collected(e);
    for (uint32_t i = 0; i < r->n; i++) take(e, &r->member[i], e->step_ids[i], e->step_failed[i], now);
}
