/* job.c: a job's memory, its events and its reader; and the notifier.
 *
 * All that a job will ever need is one block of memory, taken by who submits it: prompt, ids, page tables. The ids are
 * the ring: there is room for all of them, so the engine's thread never waits for a reader. One word says how many
 * there are and whether the job is over.
 *
 * A reader that finds nothing says so and sleeps on a word of its own. The engine's thread looks at that word after
 * each event, and hands jobs with sleepers to the notifier, which makes the system calls. Either side writes its own
 * word before it reads the other's, so no wake-up is lost. */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "model/generator.h"
#include "tape/tape.h"

const char *job_end_name(enum job_end end)
{
    static const char *const names[JOB_END_COUNT] = { "stop",   "length",      "cancelled", "timeout", "no_memory",
                                                      "failed", "device_lost", "drained",   "grammar" };
    return (unsigned)end < JOB_END_COUNT ? names[end] : "unknown";
}

const char *job_state_name(enum job_state state)
{
    static const char *const names[] = { "queued", "prefill", "decode", "yielded", "preempted", "over" };
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Entries of a group's page table: a job holds no more pages than there are, but what is hidden has an entry too. */
static uint32_t table_cap(const struct page_pool *p, uint32_t positions)
{
    const uint32_t n = (uint32_t)kv_pages_of(positions);
    return kv_bounded(p->span) || n < p->n ? n : p->n;
}

static void copy_spec(struct job *j, const struct engine_job *spec)
{
    (void)strcpy(j->id, spec->id); /* checked by engine_submit */
    memcpy(j->prompt, spec->prompt, spec->n_prompt * sizeof *j->prompt);
    if (spec->n_ends) memcpy(j->ends, spec->ends, spec->n_ends * sizeof *j->ends);
    if (spec->n_texts) memcpy(j->text_ends, spec->text_ends, spec->n_texts * sizeof *j->text_ends);
    for (uint32_t i = 0; i < spec->n_texts; i++) j->text_seconds[i] = spec->text_seconds ? spec->text_seconds[i] : 0;
    if (spec->params) j->params = *spec->params;
    if (j->params.n_logit_bias) memcpy(j->bias, j->params.logit_bias, j->params.n_logit_bias * sizeof *j->bias);
    j->params.logit_bias = j->bias;
    j->n_texts = spec->n_texts;
    j->n_prompt = spec->n_prompt;
    j->n_ends = spec->n_ends;
    j->priority = spec->priority;
    j->owner_key = spec->owner;
    j->salt = spec->salt;
    j->deadline_ns = spec->deadline_ns;
    if (spec->constraint) j->constraint = *spec->constraint;
    if (spec->constraint && spec->constraint_digest)
        memcpy(j->constraint_digest, spec->constraint_digest, ENGINE_DIGEST);
    j->completion =
        !spec->no_completion && !spec->n_texts && !spec->keep && (!spec->constraint || spec->constraint_digest);
    /* There is nothing to wait for where no page can be shared. */
    if (spec->after && j->engine->prefix.cap && !spec->prompt_probs && spec->n_prompt > KV_PAGE) {
        j->after = spec->after;
        job_ref(j->after);
    }
    j->beside = spec->beside && spec->beside->beside ? spec->beside->beside : spec->beside;
    if (j->beside) job_ref(j->beside);
}

static uint32_t least_top(bool wanted, uint32_t top, uint32_t n_vocab)
{
    return !wanted ? STEP_NO_TOP : top < n_vocab ? top : n_vocab;
}

/* Bytes of what has words of 8: its mask and log probabilities, in front of the rest. */
struct wide {
    uint64_t mask, prompt, generated;
};
static struct wide wide_of(const struct job *j, const struct engine_job *spec, uint32_t n_vocab)
{
    const uint64_t row = sizeof(struct sampler_prob);
    return (struct wide){ .mask = spec->constraint ? (n_vocab + 63) / 64 * sizeof(uint64_t) : 0,
                          .prompt = spec->prompt_probs ? spec->n_prompt * (1ull + j->prompt_top) * row : 0,
                          .generated = spec->probs ? j->most * (1ull + j->top) * row : 0 };
}

/* Returns where the rest begins. */
static uint32_t *lay_wide(struct job *j, const struct wide *w)
{
    uint8_t *at = (uint8_t *)(j + 1);
    j->mask = w->mask ? (uint64_t *)(void *)at : NULL;
    at += w->mask;
    j->prompt_probs = w->prompt ? (struct sampler_prob *)(void *)at : NULL;
    at += w->prompt;
    j->probs = w->generated ? (struct sampler_prob *)(void *)at : NULL;
    return (uint32_t *)(void *)(at + w->generated);
}

/* Ids that it may generate: none of texts. */
static uint32_t most_ids(const struct engine *e, const struct engine_job *spec)
{
    if (spec->n_texts) return 0;
    const uint32_t room = e->model->dev.context - spec->n_prompt;
    return spec->max_tokens < room ? spec->max_tokens : room;
}

wk_status job_new(struct engine *e, const struct engine_job *spec, struct job **out, const struct wk_err *err)
{
    const uint32_t n_vocab = e->model->program->n_vocab, most = most_ids(e, spec),
                   positions = spec->n_prompt + most - 1, n_bias = spec->params ? spec->params->n_logit_bias : 0;
    const uint32_t n_nodes = e->prefix.cap ? spec->n_prompt / KV_PAGE : 0;
    const uint64_t n_progress = spec->progress ? spec->n_prompt + 1ull : 0;
    uint64_t words = spec->n_prompt + n_progress + spec->n_ends + most + n_nodes + 2ull * n_bias +
                     spec->n_texts * (2ull + e->model->program->embedding_width);
    for (uint32_t g = 0; g < e->n_groups; g++) words += table_cap(&e->pool[g], positions);
    struct job first = { .engine = e,
                         .most = most,
                         .slot = ENGINE_NONE,
                         .refs = 2,
                         .top = least_top(spec->probs, spec->top_n, n_vocab),
                         .prompt_top = least_top(spec->prompt_probs, spec->prompt_top_n, n_vocab),
                         .role = !spec->n_texts && spec->n_prompt <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT };
    *out = NULL;
    const struct wide wide = wide_of(&first, spec, n_vocab);
    struct job *j = malloc(sizeof *j + wide.mask + wide.prompt + wide.generated + words * sizeof(uint32_t));
    if (!j)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for a job of %u prompt tokens and %u ids", spec->n_prompt,
                       most);
    *j = first;
    uint32_t *at = lay_wide(j, &wide);
    j->bias = (struct sampler_bias *)(void *)at;
    at += 2ull * n_bias;
    j->prompt = at, at += spec->n_prompt;
    j->ends = at, at += spec->n_ends;
    j->nodes = at, at += n_nodes;
    j->progress = spec->progress ? at : NULL, at += n_progress;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        j->pages[g].cap = table_cap(&e->pool[g], positions);
        j->tables[g] = j->pages[g].table = at;
        at += j->pages[g].cap;
    }
    j->text_ends = at, at += spec->n_texts;
    j->text_seconds = at, at += spec->n_texts;
    j->pooled = (float *)(void *)at;
    j->ids = at; /* last: what is never generated is never touched; a job has ids or rows */
    copy_spec(j, spec);
    j->lease = spec->keep ? lease_new(e, j->prompt, j->n_prompt, lease_refusal(e)) : NULL;
    *out = j;
    if (!spec->keep || j->lease) return WK_OK;
    job_unref(j);
    job_unref(j);
    *out = NULL;
    return wk_fail(err, WK_NO_MEMORY, "out of memory for the lease of %u prompt tokens", spec->n_prompt);
}

void job_ref(struct job *j) { (void)atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed); }

void job_unref(struct job *j)
{
    if (atomic_fetch_sub(&j->refs, 1) != 1) return;
    if (j->after) job_unref(j->after);
    if (j->beside) job_unref(j->beside);
    engine_lease_release(j->lease);
    free(j);
}

/* ---- what the engine tells ----------------------------------------------------------------------------- */

/* The word that the reader sleeps on. */
static _Atomic uint32_t *wake_word_of(struct job *j) { return j->beside ? &j->beside->waiting : &j->waiting; }

static void wake_reader(struct job *j)
{
    _Atomic uint32_t *word = wake_word_of(j);
    if (atomic_exchange(word, 0)) futex_wake_one(word);
}

static void notify(struct job *j)
{
    struct notifier *n = &j->engine->notifier;
    if (!atomic_load(wake_word_of(j)) || atomic_exchange(&j->notifying, 1)) return;
    const uint32_t tail = atomic_load_explicit(&n->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&n->head, memory_order_acquire) == n->cap) { /* it lags behind: once by ourselves */
        atomic_store(&j->notifying, 0);
        wake_reader(j);
        return;
    }
    atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
    n->ring[tail & (n->cap - 1)] = j;
    atomic_store(&n->tail, tail + 1);
}

static void tell(struct job *j, uint64_t events)
{
    atomic_store(&j->events, events);
    notify(j);
}

/* More rows of its prompt are computed than were told. */
static void add_progress(struct job *j, uint32_t n_done)
{
    const uint32_t n = atomic_load_explicit(&j->n_progress, memory_order_relaxed);
    if (!j->progress || (n && n_done <= j->progress[n - 1])) return;
    j->progress[n] = n_done;
    atomic_store(&j->n_progress, n + 1);
}

void job_tell_started(struct job *j)
{
    add_progress(j, atomic_load(&j->n_cached));
    tell(j, atomic_load_explicit(&j->events, memory_order_relaxed) | EVENT_STARTED_BIT);
}

void job_tell_done(struct job *j, uint32_t n_done)
{
    atomic_store(&j->n_done, n_done);
    if (!j->progress) return;
    add_progress(j, n_done);
    notify(j);
}

void job_tell_id(struct job *j, uint32_t id)
{
    const uint64_t events = atomic_load_explicit(&j->events, memory_order_relaxed);
    j->ids[(uint32_t)events] = id;
    tell(j, events + 1);
}

void job_tell_end(struct job *j, enum job_end end)
{
    tell(j, atomic_load_explicit(&j->events, memory_order_relaxed) | EVENT_OVER_BIT | (uint64_t)end << EVENT_END_SHIFT);
}

void job_add_turn(struct job *j, enum job_turn_kind kind, uint64_t now)
{
    const uint32_t n = atomic_load(&j->n_turns);
    atomic_store(&j->turns[n % ENGINE_TURNS], now << 2 | (uint64_t)kind);
    atomic_store(&j->n_turns, n + 1);
}

void job_answer(struct job *j, uint64_t now)
{
    j->over = j->completion_hit = true;
    atomic_store(&j->n_cached, j->n_prompt);
    atomic_store(&j->n_done, j->n_prompt);
    add_progress(j, j->n_prompt);
    atomic_store(&j->queued_ns, now);
    atomic_store(&j->started_ns, now);
    if (j->n_ids) atomic_store(&j->first_token_ns, now);
    if (j->n_ids) atomic_store(&j->last_token_ns, now);
    atomic_store(&j->ended_ns, now);
    atomic_store(&j->state, JOB_OVER);
    atomic_store(&j->events, j->n_ids | EVENT_STARTED_BIT | EVENT_OVER_BIT | (uint64_t)j->end << EVENT_END_SHIFT);
}

/* ---- the reader ---------------------------------------------------------------------------------------- */

static bool read_event(struct job *j, struct job_event *out)
{
    const uint64_t events = atomic_load(&j->events); /* first: what was told before an id is then there */
    if (!j->read.started && (events & EVENT_STARTED_BIT)) {
        j->read.started = true;
        *out = (struct job_event){ .kind = EVENT_STARTED };
        return true;
    }
    if (j->read.started && j->read.n_progress < atomic_load(&j->n_progress)) {
        *out = (struct job_event){ .kind = EVENT_PROGRESS, .n_done = j->progress[j->read.n_progress++] };
        return true;
    }
    if (j->read.n < (uint32_t)events) {
        *out = (struct job_event){ .kind = EVENT_TOKEN, .id = j->ids[j->read.n], .index = j->read.n };
        if (j->probs) out->probs = job_row(j->probs, j->top, j->read.n), out->n_top = j->top;
        j->read.n++;
        return true;
    }
    if (!(events & EVENT_OVER_BIT)) return false;
    j->read.over = true;
    *out = (struct job_event){ .kind = EVENT_END, .end = (enum job_end)(events >> EVENT_END_SHIFT) };
    if (j->probs && j->by_id) out->probs = job_row(j->probs, j->top, j->read.n), out->n_top = j->top;
    completions_keep(&j->engine->completions, j, out->end);
    return true;
}

/* The next event of any, from behind *which on. */
static bool read_any(struct job *const *jobs, uint32_t n, uint32_t *which, struct job_event *out)
{
    for (uint32_t i = 1; i <= n; i++) {
        const uint32_t at = (*which + i) % n;
        if (jobs[at]->read.over || !read_event(jobs[at], out)) continue;
        *which = at;
        return true;
    }
    return false;
}

static bool all_read(struct job *const *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!jobs[i]->read.over) return false;
    return true;
}

bool job_next_any(struct job *const *jobs, uint32_t n, uint32_t *which, struct job_event *out, int timeout_ms)
{
    if (all_read(jobs, n)) return false;
    if (read_any(jobs, n, which, out)) return true;
    if (!timeout_ms) return false;
    _Atomic uint32_t *word = wake_word_of(jobs[0]);
    const uint64_t deadline = timeout_ms < 0 ? 0 : engine_now() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        atomic_store(word, 1);
        const bool there = read_any(jobs, n, which, out);
        const bool late = !there && deadline && engine_now() >= deadline;
        if (there || late) {
            atomic_store(word, 0);
            return there;
        }
        futex_wait_until(word, 1, deadline);
    }
}

bool job_next(struct job *j, struct job_event *out, int timeout_ms)
{
    uint32_t which = 0;
    return job_next_any(&j, 1, &which, out, timeout_ms);
}

const struct sampler_prob *job_prompt_probs(const struct job *j, uint32_t position, uint32_t *n_top)
{
    if (!j->prompt_probs || position < 1 || position > atomic_load(&j->n_scored)) return NULL;
    *n_top = j->prompt_top;
    return job_row(j->prompt_probs, j->prompt_top, position - 1);
}

const float *job_pooled(const struct job *j, uint32_t i)
{
    return j->pooled + (uint64_t)i * j->engine->model->program->embedding_width;
}

static void ask(struct job *j, uint32_t request)
{
    uint32_t none = REQUEST_NONE;
    (void)atomic_compare_exchange_strong(&j->request, &none, request);
    batch_leave_step(j);
    engine_attention(j->engine, ATTEND_REQUEST);
}

static bool is_over(const struct job *j) { return atomic_load(&j->events) & EVENT_OVER_BIT; }

void job_stop(struct job *j)
{
    if (!is_over(j)) ask(j, REQUEST_STOP);
}
void job_cancel(struct job *j)
{
    if (!is_over(j)) ask(j, REQUEST_CANCEL);
}

void job_release(struct job *j)
{
    if (!j) return;
    job_cancel(j);
    job_unref(j);
}

void job_figures(const struct job *j, struct job_figures *out)
{
    const uint64_t events = atomic_load(&j->events);
    *out = (struct job_figures){ .n_prompt = j->n_prompt,
                                 .n_cached = atomic_load(&j->n_cached),
                                 .n_generated = (uint32_t)events,
                                 .completion_hit = j->completion_hit,
                                 .preemptions = atomic_load(&j->preemptions),
                                 .yields = atomic_load(&j->yields),
                                 .queued_ns = atomic_load(&j->queued_ns),
                                 .started_ns = atomic_load(&j->started_ns),
                                 .first_token_ns = atomic_load(&j->first_token_ns),
                                 .last_token_ns = atomic_load(&j->last_token_ns),
                                 .ended_ns = atomic_load(&j->ended_ns) };
    if (events & EVENT_OVER_BIT) (void)strcpy(out->text, j->text);
}

uint32_t job_turns(const struct job *j) { return atomic_load(&j->n_turns); }

bool job_turn(const struct job *j, uint32_t i, struct job_turn *out)
{
    if (i >= atomic_load(&j->n_turns)) return false;
    const uint64_t turn = atomic_load(&j->turns[i % ENGINE_TURNS]);
    *out = (struct job_turn){ .kind = (enum job_turn_kind)(turn & 3), .at_ns = turn >> 2 };
    return atomic_load(&j->n_turns) - i < ENGINE_TURNS; /* else a newer one may have taken its place meanwhile */
}

/* ---- the notifier -------------------------------------------------------------------------------------- */

static void *notifier_main(void *arg)
{
    struct notifier *n = arg;
    uint32_t head = 0;
    for (;;) {
        if (head == atomic_load(&n->tail)) {
            if (atomic_load(&n->stop)) return NULL;
            atomic_store(&n->asleep, 1);
            if (head == atomic_load(&n->tail) && !atomic_load(&n->stop)) futex_wait_until(&n->asleep, 1, 0);
            atomic_store(&n->asleep, 0);
            continue;
        }
        struct job *j = n->ring[head & (n->cap - 1)];
        atomic_store(&n->head, ++head);
        atomic_store(&j->notifying, 0);
        wake_reader(j);
        job_unref(j);
    }
}

wk_status notifier_open(struct notifier *n, uint32_t jobs, const struct wk_err *err)
{
    n->cap = 1;
    while (n->cap < jobs) n->cap *= 2;
    n->ring = calloc(n->cap, sizeof *n->ring);
    if (!n->ring) return wk_fail(err, WK_NO_MEMORY, "out of memory for an engine of %u jobs", jobs);
    wk_status s = engine_thread(&n->thread, notifier_main, n, err);
    n->started = !s;
    return s;
}

void notifier_flush(struct notifier *n)
{
    if (atomic_load_explicit(&n->tail, memory_order_relaxed) == atomic_load(&n->head)) return;
    if (atomic_exchange(&n->asleep, 0)) futex_wake_one(&n->asleep);
}

void notifier_close(struct notifier *n)
{
    if (n->started) {
        atomic_store(&n->stop, true);
        if (atomic_exchange(&n->asleep, 0)) futex_wake_one(&n->asleep);
        (void)pthread_join(n->thread, NULL);
    }
    free(n->ring);
}
