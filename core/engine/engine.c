/* engine.c: open and close, the engine's thread, and how others reach it.
 *
 * The thread goes round: what others ask, deadlines, who runs, steps submitted as far ahead as the device is worth, the
 * oldest collected, ends told, figures published. It sleeps when there is no job. Others leave word in lists under a
 * lock and in one word of bits that the thread looks at between steps. */
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log/log.h"
#include "tape/tape.h"

enum { IDLE_NS = 500000000 };

/* ---- the table of ids ---------------------------------------------------------------------------------- */

static struct job **bucket(struct engine *e, const char *id)
{
    uint64_t h = 14695981039346656037u;
    for (; *id; id++) h = (h ^ (unsigned char)*id) * 1099511628211u;
    return &e->ids[(h ^ h >> 32) & (e->n_ids - 1)];
}

static bool is_called(const struct job *j, const uint64_t *owner, const char *id)
{
    return (!owner || j->owner_key == *owner) && strcmp(j->id, id) == 0;
}

static bool is_taken(struct engine *e, uint64_t owner, const char *id)
{
    const struct job *j = *bucket(e, id);
    while (j && !is_called(j, &owner, id)) j = j->id_next;
    return j != NULL;
}

static void enlist(struct engine *e, struct job *j)
{
    struct job **at = bucket(e, j->id);
    j->id_next = *at;
    *at = j;
    j->live_prev = e->live_last;
    *(e->live_last ? &e->live_last->live_next : &e->live_first) = j;
    e->live_last = j;
    *e->inbox_end = j;
    e->inbox_end = &j->inbox_next;
}

static void delist(struct engine *e, struct job *j)
{
    struct job **at = bucket(e, j->id);
    while (*at != j) at = &(*at)->id_next;
    *at = j->id_next;
    *(j->live_prev ? &j->live_prev->live_next : &e->live_first) = j->live_next;
    *(j->live_next ? &j->live_next->live_prev : &e->live_last) = j->live_prev;
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

void engine_settle(struct engine *e, struct job *j)
{
    pages_drop(e, j);
    if (j->slot != ENGINE_NONE) e->slots[e->n_slots++] = j->slot;
    j->slot = ENGINE_NONE;
    e->schedule_due = true;
    if (j->notified) job_unref(j);
}

void engine_end_job(struct engine *e, struct job *j, enum job_end end, const char *text)
{
    schedule_remove(e, j);
    owner_leave(&e->owners, j->owner);
    j->over = true;
    j->end = end;
    if (j->constraint.close) j->constraint.close(j->constraint.user);
    j->constraint = (struct sampler_constraint){ 0 };
    schedule_after(j);
    lease_end(e, j);
    if (text) (void)snprintf(j->text, sizeof j->text, "%s", text);
    e->ended[e->n_ended++] = j;
    if (!j->in_flight) engine_settle(e, j);
}

/* After everything of them is counted: who reads the end finds the counters as they are after it, and the id free
 * again. Pages are in use for as long as steps of the job are in flight, a few milliseconds more on a GPU. */
static void tell_ended(struct engine *e)
{
    if (!e->n_ended) return;
    const uint64_t now = engine_now();
    (void)pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->n_ended; i++) delist(e, e->ended[i]);
    (void)pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < e->n_ended; i++) {
        struct job *j = e->ended[i];
        const uint64_t first = atomic_load(&j->first_token_ns);
        e->stats.ended[j->end]++;
        stats_add(&e->stats.job_seconds, now - atomic_load(&j->queued_ns));
        if (first) stats_add(&e->stats.decode_seconds, atomic_load(&j->last_token_ns) - first);
        atomic_store(&j->ended_ns, now);
        atomic_store(&j->state, JOB_OVER);
    }
    atomic_fetch_sub(&e->live, e->n_ended);
    stats_publish(e);
    for (uint32_t i = 0; i < e->n_ended; i++) {
        struct job *j = e->ended[i];
        job_tell_end(j, j->end);
        j->notified = true;
        if (!j->in_flight) job_unref(j);
    }
    e->n_ended = 0;
    notifier_flush(&e->notifier);
}

static void end_all(struct engine *e, enum job_end end, const char *text)
{
    while (e->n_running) engine_end_job(e, e->running[e->n_running - 1], end, text);
    while (e->n_waiting) engine_end_job(e, e->waiting[e->n_waiting - 1], end, text);
}

void engine_die(struct engine *e, const char *text)
{
    (void)snprintf(e->dead_text, sizeof e->dead_text, "%s", text);
    atomic_store(&e->dead, true);
    e->mask_due = false;
    LOG(LOG_ERROR, "engine_dead", text, log_u("jobs", e->n_running + e->n_waiting));
    /* Steps in flight are lost with it. */
    for (; e->n_under_way; e->n_under_way--, e->oldest = (e->oldest + 1) % STEP_QUEUE)
        for (uint32_t i = 0; i < e->under_way[e->oldest].n; i++) {
            struct job *j = e->under_way[e->oldest].member[i].job;
            if (!--j->in_flight && j->over) engine_settle(e, j);
        }
    end_all(e, JOB_DEVICE_LOST, text);
    import_collected(e);
}

/* ---- what others ask ----------------------------------------------------------------------------------- */

static struct job *take_inbox(struct engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    struct job *first = e->inbox;
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
    (void)pthread_mutex_unlock(&e->lock);
    return first;
}

static void receive(struct engine *e)
{
    for (struct job *j = take_inbox(e), *next; j; j = next) {
        next = j->inbox_next;
        j->owner = owner_enter(&e->owners, j->owner_key);
        schedule_wait(e, j, atomic_load(&j->queued_ns));
        if (j->deadline_ns && (!e->next_deadline || j->deadline_ns < e->next_deadline))
            e->next_deadline = j->deadline_ns;
    }
    if (atomic_load(&e->dead)) end_all(e, JOB_DEVICE_LOST, e->dead_text);
}

typedef enum job_end (*verdict)(const struct engine *e, const struct job *j,
                                uint64_t now); /* JOB_END_COUNT: it goes on */

static enum job_end as_requested(const struct engine *e, const struct job *j, uint64_t now)
{
    (void)e, (void)now;
    const uint32_t request = atomic_load(&j->request);
    return request == REQUEST_STOP ? JOB_STOP : request == REQUEST_CANCEL ? JOB_CANCELLED : JOB_END_COUNT;
}

static enum job_end as_drained(const struct engine *e, const struct job *j, uint64_t now)
{
    (void)e, (void)now;
    return j->slot == ENGINE_NONE ? JOB_DRAINED : JOB_END_COUNT;
}

static enum job_end as_late(const struct engine *e, const struct job *j, uint64_t now)
{
    (void)e;
    return j->deadline_ns && j->deadline_ns <= now ? JOB_TIMEOUT : JOB_END_COUNT;
}

/* Ending takes a job out of its list: from the back, nobody is missed. */
static void judge(struct engine *e, verdict of, uint64_t now)
{
    for (uint32_t i = e->n_running + e->n_waiting; i-- > 0;) {
        struct job *j = i < e->n_running ? e->running[i] : e->waiting[i - e->n_running];
        const enum job_end end = of(e, j, now);
        if (end != JOB_END_COUNT) engine_end_job(e, j, end, NULL);
    }
}

static void expire(struct engine *e, uint64_t now)
{
    if (!e->next_deadline || now < e->next_deadline) return;
    judge(e, as_late, now);
    e->next_deadline = 0;
    for (uint32_t i = 0; i < e->n_running + e->n_waiting; i++) {
        const struct job *j = i < e->n_running ? e->running[i] : e->waiting[i - e->n_running];
        if (j->deadline_ns && (!e->next_deadline || j->deadline_ns < e->next_deadline))
            e->next_deadline = j->deadline_ns;
    }
}

/* Calls run with no step in flight. */
static void run_calls(struct engine *e)
{
    (void)pthread_mutex_lock(&e->lock);
    struct engine_call_record *first = e->calls;
    e->calls = NULL;
    (void)pthread_mutex_unlock(&e->lock);
    for (struct engine_call_record *c = first, *next; c; c = next) {
        next = c->next;
        const bool ok = !atomic_load(&e->dead);
        if (ok) c->fn(c->user);
        (void)pthread_mutex_lock(&e->lock);
        c->ok = ok;
        c->done = true; /* c is its caller's again */
        (void)pthread_cond_broadcast(&e->called);
        (void)pthread_mutex_unlock(&e->lock);
    }
}

static void attend(struct engine *e, uint64_t now)
{
    const uint32_t bits =
        atomic_load_explicit(&e->attention, memory_order_relaxed) ? atomic_exchange(&e->attention, 0) : 0;
    if (bits) receive(e);
    if (bits & ATTEND_PAGES) import_attend(e);
    if (bits & ATTEND_REQUEST) judge(e, as_requested, now);
    if (bits && atomic_load(&e->draining)) judge(e, as_drained, now);
    if (bits & ATTEND_CLOSE) e->closing = true;
    if (bits & ATTEND_CALL) e->call_waits = true;
    if (e->closing) end_all(e, JOB_CANCELLED, NULL);
    if (e->call_waits && !e->n_under_way) {
        e->call_waits = false;
        run_calls(e);
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* No longer than `most`. */
static void idle(struct engine *e, uint64_t now, uint64_t most)
{
    uint64_t until = now + (most < IDLE_NS ? most : IDLE_NS);
    if (e->next_deadline && e->next_deadline < until) until = e->next_deadline;
    if (e->n_waiting && e->schedule_at < until) until = e->schedule_at;
    atomic_store(&e->asleep, 1);
    if (!atomic_load(&e->attention) && until > now) futex_wait_until(&e->asleep, 1, until);
    atomic_store(&e->asleep, 0);
}

/* Fills the device's queue; true: there is something to come back for at once. */
static bool submit_ahead(struct engine *e)
{
    enum batch_result result = BATCH_SUBMITTED;
    while (result == BATCH_SUBMITTED && batch_wants_more(e) && !atomic_load(&e->dead)) {
        result = e->embeds ? embed_submit(e) : batch_submit(e);
        atomic_store(&e->steps_under_way, e->n_under_way);
    }
    return result == BATCH_AGAIN || e->n_under_way > 0;
}

/* A GPU is current by thread: steps go to the model's, whichever that is. */
static void take_device(const struct engine *e)
{
    struct device_memory unused;
    if (e->model->device->device_memory) (void)e->model->device->device_memory(e->model->dev.gpu, &unused, NULL);
}

static void *engine_main(void *arg)
{
    take_device(arg);
    for (struct engine *e = arg;;) {
        const uint64_t now = engine_now();
        bool more = false;
        attend(e, now);
        expire(e, now);
        if (!e->call_waits && !e->closing) schedule(e, now);
        tell_ended(e); /* before a step that may take long */
        if (!e->call_waits && !e->closing) more = submit_ahead(e);
        if (e->mask_due && e->n_under_way == 1)
            batch_mask(e);
        else if (e->n_under_way)
            batch_collect(e);
        tell_ended(e);
        stats_publish(e);
        atomic_store(&e->steps_under_way, e->n_under_way);
        notifier_flush(&e->notifier);
        const uint64_t events = e->prefix.events ? page_events_turn(&e->prefix) : UINT64_MAX;
        if (more || e->n_under_way || e->call_waits || (e->schedule_due && e->n_waiting)) continue;
        if (e->closing) return NULL;
        idle(e, now, events);
    }
}

/* ---- open and close ------------------------------------------------------------------------------------ */

static wk_status check_options(const struct model *m, const struct engine_options *o, const struct wk_err *err)
{
    const uint32_t rows = m->dev.max_rows;
    if (!m->executor) return wk_fail(err, WK_INVALID, "the model is not loaded");
    const wk_status s = m->program->embedding_width ? WK_OK : model_generates(m, err);
    if (s) return s;
    if (m->device->run_ahead < 1 || m->device->run_ahead > STEP_QUEUE)
        return wk_fail(err, WK_INTERNAL, "device %s: %u steps under way: expected 1 to %d", m->device->name,
                       m->device->run_ahead, STEP_QUEUE);
    const uint32_t logits_rows = m->dev.max_logits_rows < rows ? m->dev.max_logits_rows : rows,
                   sequences = m->dev.max_sequences < logits_rows ? m->dev.max_sequences : logits_rows;
    if (o->max_sequences < 1 || o->max_sequences > sequences)
        return wk_fail(err, WK_INVALID, "max_sequences is %u: expected 1 to %u, the model's sequences and logits rows",
                       o->max_sequences, sequences);
    if (o->max_batch_tokens < o->max_sequences || o->max_batch_tokens > rows)
        return wk_fail(err, WK_INVALID,
                       "max_batch_tokens is %u: expected %u (a row for every sequence) to %u, the rows of a step",
                       o->max_batch_tokens, o->max_sequences, rows);
    if (o->max_queue < 1 || o->max_queue > 1 << 20)
        return wk_fail(err, WK_INVALID, "max_queue is %u: expected 1 to %d", o->max_queue, 1 << 20);
    return WK_OK;
}

static bool allocate(struct engine *e)
{
    const uint32_t jobs = e->o.max_sequences + e->o.max_queue;
    for (e->n_ids = 1; e->n_ids < 2 * jobs;) e->n_ids *= 2;
    e->n_slots = e->model->dev.max_sequences;
    e->ids = calloc(e->n_ids, sizeof *e->ids);
    e->running = calloc(e->o.max_sequences, sizeof *e->running);
    e->waiting = calloc(jobs, sizeof *e->waiting);
    e->ended = calloc(jobs, sizeof *e->ended);
    e->victims = calloc(jobs, sizeof *e->victims);
    e->slots = calloc(e->n_slots, sizeof *e->slots);
    if (!e->ids || !e->running || !e->waiting || !e->ended || !e->victims || !e->slots) return false;
    for (uint32_t i = 0; i < e->n_slots; i++) e->slots[i] = e->n_slots - 1 - i;
    return true;
}

static void engine_free(struct engine *e)
{
    notifier_close(&e->notifier);
    for (struct engine_lease *l = e->released, *next; l; l = next) {
        next = l->next;
        lease_free(l);
    }
    pages_close(e);
    owners_close(&e->owners);
    completions_close(&e->completions);
    batch_close(e);
    embed_close(e);
    (void)pthread_mutex_destroy(&e->lock);
    (void)pthread_mutex_destroy(&e->published.reading);
    (void)pthread_cond_destroy(&e->called);
    free(e->ids);
    free(e->running);
    free(e->waiting);
    free(e->ended);
    free(e->victims);
    free(e->slots);
    free(e);
}

static struct engine *engine_new(struct model *m, const struct engine_options *o)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->model = m;
    e->o = *o;
    e->embeds = m->program->embedding_width != 0;
    e->inbox_end = &e->inbox;
    e->imports_in_end = &e->imports_in;
    (void)pthread_mutex_init(&e->lock, NULL);
    engine_tune(e, o->preempt, o->high_priority, o->timeslice_tokens);
    (void)pthread_mutex_init(&e->published.reading, NULL);
    (void)pthread_cond_init(&e->called, NULL);
    stats_open(e);
    return e;
}

wk_status engine_open(struct model *m, const struct engine_options *o, struct engine **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status s = check_options(m, o, err);
    if (s) return s;
    struct engine *e = engine_new(m, o);
    if (!e) return wk_fail(err, WK_NO_MEMORY, "out of memory for an engine");
    if (!allocate(e))
        s = wk_fail(err, WK_NO_MEMORY, "out of memory for an engine of %u jobs", o->max_sequences + o->max_queue);
    if (!s) s = owners_open(&e->owners, o->max_sequences + o->max_queue, err);
    if (!s) s = completions_open(&e->completions, o->completion_bytes, err);
    if (!s) s = pages_open(e, err);
    if (!s) s = page_events_open(&e->prefix, o->page_events, err);
    if (!s) s = batch_open(e, err);
    if (!s && e->embeds) s = embed_open(e, err);
    if (!s) s = notifier_open(&e->notifier, o->max_sequences + o->max_queue, err);
    if (!s) {
        stats_publish(e);
        s = engine_thread(&e->thread, engine_main, e, err);
    }
    if (s) {
        engine_free(e);
        return s;
    }
    *out = e;
    return WK_OK;
}

void engine_close(struct engine *e)
{
    if (!e) return;
    engine_attention(e, ATTEND_CLOSE);
    __atomic_store_n(&e->step_cancel, true, __ATOMIC_RELAXED);
    (void)pthread_join(e->thread, NULL);
    engine_free(e);
}

/* ---- submit -------------------------------------------------------------------------------------------- */

/* What is wrong of a job that generates. */
static wk_status check_generation(const struct engine *e, const struct engine_job *spec, const struct wk_err *err)
{
    wk_status s;
    if (spec->n_texts)
        s = wk_fail(err, WK_INVALID, "%u texts to be rows: the model generates", spec->n_texts);
    else if (spec->max_tokens < 1)
        s = wk_fail(err, WK_INVALID, "max_tokens is 0: expected at least 1");
    else if (spec->n_ends > SAMPLER_MAX_ENDS)
        s = wk_fail(err, WK_INVALID, "%u ids that end the job: expected at most %d", spec->n_ends, SAMPLER_MAX_ENDS);
    else if ((spec->probs && spec->top_n > SAMPLER_MAX_TOP) ||
             (spec->prompt_probs && spec->prompt_top_n > SAMPLER_MAX_TOP))
        s = wk_fail(err, WK_INVALID, "log probabilities of the best %u ids: expected at most %d",
                    spec->probs && spec->top_n > SAMPLER_MAX_TOP ? spec->top_n : spec->prompt_top_n, SAMPLER_MAX_TOP);
    else
        s = sampler_check(spec->params, e->model->program->n_vocab, err);
    if (!s && ((spec->after && spec->after->engine != e) || (spec->beside && spec->beside->engine != e)))
        s = wk_fail(err, WK_INVALID, "the job %s it is another engine's",
                    spec->after && spec->after->engine != e ? "before" : "beside");
    if (!s && spec->after && !engine_same_salt(&spec->after->salt, &spec->salt))
        s = wk_fail(err, WK_INVALID, "the job before it has another salt");
    return s;
}

static enum submit_refusal check_spec(const struct engine *e, const struct engine_job *spec, const struct wk_err *err)
{
    const struct model *m = e->model;
    const uint32_t n_vocab = m->program->n_vocab;
    const size_t length = spec->id ? strnlen(spec->id, ENGINE_JOB_ID_MAX + 1) : 0;
    wk_status s = WK_OK;
    if (length < 1 || length > ENGINE_JOB_ID_MAX)
        s = wk_fail(err, WK_INVALID, "the job's id has %zu bytes or more: expected 1 to %d", length, ENGINE_JOB_ID_MAX);
    else if (spec->n_prompt < 1)
        s = wk_fail(err, WK_INVALID, "the prompt has no tokens");
    else if (!e->embeds)
        s = check_generation(e, spec, err);
    for (uint32_t i = 0; !s && i < spec->n_prompt; i++)
        if (spec->prompt[i] >= n_vocab)
            s = wk_fail(err, WK_INVALID, "token %u of the prompt is %u: the vocabulary has %u", i, spec->prompt[i],
                        n_vocab);
    if (s) return SUBMIT_INVALID;
    if (e->embeds) return embed_check(e, spec, err);
    if (spec->n_prompt >= m->dev.context) {
        (void)wk_fail(err, WK_INVALID, "a prompt of %u tokens leaves no room for an id in a context of %u",
                      spec->n_prompt, m->dev.context);
        return SUBMIT_CONTEXT;
    }
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (pages_needed(&e->pool[g], spec->n_prompt) > e->pool[g].n) {
            (void)wk_fail(err, WK_NO_MEMORY,
                          "a prompt of %u tokens needs %u pages of the KV cache, which has %u in all", spec->n_prompt,
                          pages_needed(&e->pool[g], spec->n_prompt), e->pool[g].n);
            return SUBMIT_NEVER_FITS;
        }
    return SUBMIT_OK;
}

/* Under the lock. */
static enum submit_refusal check_door(struct engine *e, const struct job *j, const struct wk_err *err)
{
    if (atomic_load(&e->dead))
        return (void)wk_fail(err, WK_INTERNAL, "the engine is dead: %s", e->dead_text), SUBMIT_DEAD;
    if (atomic_load(&e->draining))
        return (void)wk_fail(err, WK_UNSUPPORTED, "the engine takes no more jobs"), SUBMIT_DRAINING;
    if (is_taken(e, j->owner_key, j->id))
        return (void)wk_fail(err, WK_INVALID, "a job \"%s\" is queued or running already", j->id), SUBMIT_EXISTS;
    return SUBMIT_OK;
}

/* Under the lock. */
static enum submit_refusal try_enlist(struct engine *e, struct job *j, const struct wk_err *err)
{
    const enum submit_refusal refusal = check_door(e, j, err);
    if (refusal) return refusal;
    if (atomic_load(&e->live) >= e->o.max_sequences + e->o.max_queue) {
        atomic_fetch_add(&e->refused_full, 1);
        return (void)wk_fail(err, WK_NO_MEMORY, "%u jobs run and %u wait: the queue is full", e->o.max_sequences,
                             e->o.max_queue),
               SUBMIT_QUEUE_FULL;
    }
    atomic_store(&j->queued_ns, engine_now());
    atomic_fetch_add(&e->live, 1);
    atomic_fetch_add(&e->submitted, 1);
    enlist(e, j);
    return SUBMIT_OK;
}

/* The engine's thread never hears of it. */
static void give_answer(struct engine *e, struct job *j)
{
    atomic_fetch_add(&e->submitted, 1);
    if (j->constraint.close) j->constraint.close(j->constraint.user);
    j->constraint = (struct sampler_constraint){ 0 };
    schedule_after(j);
    job_answer(j, engine_now());
    job_unref(j); /* the engine's */
}

enum submit_refusal engine_submit(struct engine *e, const struct engine_job *spec, struct job **out,
                                  const struct wk_err *err)
{
    struct job *j;
    *out = NULL;
    enum submit_refusal refusal = check_spec(e, spec, err);
    if (refusal) return refusal;
    if (job_new(e, spec, &j, err)) return SUBMIT_NO_MEMORY;
    const bool hit = completions_find(&e->completions, j);
    (void)pthread_mutex_lock(&e->lock);
    refusal = hit ? check_door(e, j, err) : try_enlist(e, j, err);
    (void)pthread_mutex_unlock(&e->lock);
    if (refusal) {
        job_unref(j); /* the reader's and the engine's */
        job_unref(j);
        return refusal;
    }
    completions_count(&e->completions, j, hit);
    if (hit)
        give_answer(e, j);
    else
        engine_attention(e, ATTEND_INBOX);
    *out = j;
    return SUBMIT_OK;
}

/* ---- for any thread ------------------------------------------------------------------------------------ */

bool engine_cancel(struct engine *e, const uint64_t *owner, const char *id)
{
    bool found = false;
    (void)pthread_mutex_lock(&e->lock);
    for (struct job *j = *bucket(e, id); j; j = j->id_next) {
        if (!is_called(j, owner, id)) continue;
        job_cancel(j);
        found = true;
    }
    (void)pthread_mutex_unlock(&e->lock);
    return found;
}

void job_look(const struct job *j, struct job_view *out)
{
    *out = (struct job_view){ .state = (enum job_state)atomic_load(&j->state),
                              .priority = j->priority,
                              .n_prompt = j->n_prompt,
                              .n_done = atomic_load(&j->n_done),
                              .n_generated = job_generated(j),
                              .queued_ns = atomic_load(&j->queued_ns) };
    (void)strcpy(out->id, j->id);
}

uint32_t engine_jobs(struct engine *e, struct job_view *out, uint32_t most)
{
    uint32_t n = 0;
    (void)pthread_mutex_lock(&e->lock);
    for (const struct job *j = e->live_first; j; j = j->live_next, n++)
        if (n < most) job_look(j, &out[n]);
    (void)pthread_mutex_unlock(&e->lock);
    return n;
}

void engine_tune(struct engine *e, bool preempt, int32_t high_priority, uint32_t timeslice_tokens)
{
    (void)pthread_mutex_lock(&e->lock); /* who reads them finds those of one change */
    atomic_store(&e->preempt, preempt);
    atomic_store(&e->high_priority, high_priority);
    atomic_store(&e->timeslice_tokens, timeslice_tokens);
    (void)pthread_mutex_unlock(&e->lock);
}

void engine_tuning(struct engine *e, struct engine_tuning *out)
{
    (void)pthread_mutex_lock(&e->lock);
    *out = (struct engine_tuning){ .preempt = atomic_load(&e->preempt),
                                   .high_priority = atomic_load(&e->high_priority),
                                   .timeslice_tokens = atomic_load(&e->timeslice_tokens) };
    (void)pthread_mutex_unlock(&e->lock);
}

bool engine_call(struct engine *e, void (*fn)(void *user), void *user)
{
    struct engine_call_record c = { .fn = fn, .user = user };
    (void)pthread_mutex_lock(&e->lock);
    c.next = e->calls;
    e->calls = &c;
    engine_attention(e, ATTEND_CALL);
    while (!c.done) (void)pthread_cond_wait(&e->called, &e->lock);
    (void)pthread_mutex_unlock(&e->lock);
    return c.ok;
}

void engine_drain(struct engine *e)
{
    (void)pthread_mutex_lock(&e->lock); /* nobody is in the middle of a submission that will be missed */
    atomic_store(&e->draining, true);
    (void)pthread_mutex_unlock(&e->lock);
    engine_attention(e, ATTEND_DRAIN);
}

bool engine_idle(struct engine *e) { return !atomic_load(&e->live) && !atomic_load(&e->steps_under_way); }
