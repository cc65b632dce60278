/* engine.h: one thread owns the device; jobs come in, events come out.
 *
 * Every step is one ragged batch under a token budget: first the next row of every running job, then chunks of prompts.
 * A job is admitted when pages for its prompt and all ids that it may generate can be promised. Its ids depend on
 * itself alone: not on neighbours, chunks, prefix hits, time slices or preemption. The engine knows ids only: text,
 * stop strings and chat templates are the caller's. Of a model that gives embeddings a job is texts, whole ones of
 * which are in a step together with others'.
 *
 * Readers never block the engine: a job's events lie in a ring that has room for all of them, written by the engine,
 * read by one thread of the caller. A slow or gone reader costs its own job only. */
#ifndef CORE_ENGINE_ENGINE_H
#define CORE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"
#include "sample/sample.h"

enum { ENGINE_JOB_ID_MAX = 128 /* bytes */ };

/* Which kept page is given up first: the one whose last use is longest ago, or, by Clock, the one under the hand, but
 * that pages which were used again are passed over once: prompts that came once do not push out those that come often.
 */
enum engine_eviction { EVICT_LRU = 0, EVICT_CLOCK };

struct engine_options {
    uint32_t max_sequences; /* jobs that run at once; at most the model's dev.max_sequences and max_logits_rows. Yielded
                               and preempted jobs keep their sampler's slot: without sequences to spare (twice as many
                               are plenty) no job gives way to a new one. Half of those to spare wait for jobs of high
                               priority while these may preempt */
    uint32_t max_batch_tokens; /* rows of a step; at most the model's dev.max_rows. A text that becomes a row may have
                                * more, and is a step by itself */
    uint32_t max_queue;        /* jobs beyond max_sequences that are queued, yielded or preempted */
    bool prefix_cache;
    enum engine_eviction eviction; /* of the prefix cache's pages */
    bool preempt;                  /* a job of high priority that finds no room takes it from a lower one, which
                                    * is computed again later */
    int32_t high_priority;         /* effective priority from which a job is high (5) */
    uint32_t timeslice_tokens; /* ids, or tokens of texts, after which a job below high_priority yields to waiting ones,
                                  keeping its pages; 0: never */
    uint32_t page_events; /* records of the queue of page_events.h, if there is a prefix cache; 0: nothing is told */
    uint64_t completion_bytes; /* of host memory, for whole answers that are given again (completions.c); 0: none */
};

/* How a job that runs no more ended, or why it was never taken. */
enum job_end {
    JOB_STOP = 0,  /* an id of `ends`, which itself is not given out, or job_stop; of texts: all their rows are there */
    JOB_LENGTH,    /* max_tokens ids, or prompt and ids fill the context */
    JOB_CANCELLED, /* job_cancel, engine_cancel */
    JOB_TIMEOUT,   /* its deadline passed */
    JOB_NO_MEMORY, /* the KV cache as a whole has too few pages to go on (VRAM_OOM), or the device ran out of memory;
                      the engine goes on */
    JOB_FAILED,    /* a logit was NaN or infinite, or the step failed; text says which */
    JOB_DEVICE_LOST, /* the device is dead, and so is the engine */
    JOB_DRAINED,     /* it had not begun when the engine was told to drain */
    JOB_GRAMMAR,     /* its constraint allows no id here, nor an end, or has come to a limit; text says which */
    JOB_END_COUNT
};
const char *job_end_name(enum job_end end); /* "stop", "length", "cancelled", ... */

/* Waiting again: JOB_YIELDED with its pages, JOB_PREEMPTED without. */
enum job_state { JOB_QUEUED = 0, JOB_PREFILL, JOB_DECODE, JOB_YIELDED, JOB_PREEMPTED, JOB_OVER };
const char *job_state_name(enum job_state state);

/* Whose the pages are that are kept of a prompt: found by jobs of the same salt alone. Zero: the one of all jobs that
 * have no other. */
struct engine_salt {
    uint64_t word[2];
};

enum { ENGINE_DIGEST = 32 /* bytes */ };

struct engine_job {
    const char *id; /* 1 to ENGINE_JOB_ID_MAX bytes; unique among its owner's jobs queued and running */
    const uint32_t *prompt;
    uint32_t n_prompt; /* 1 to context - 1; copied */
    /* Of a model that gives embeddings the prompt is texts behind each other: text i ends before prompt[text_ends[i]],
     * rising, the last at n_prompt, and has at most engine_text_most tokens. Each becomes a row (job_pooled), and
     * nothing is generated: members about ids, samplers and pages say nothing. Else n_texts is 0. Copied. */
    const uint32_t *text_ends;
    uint32_t n_texts;
    const uint32_t *text_seconds; /* [n_texts] of each text the tokens before its second part, whose tokens have the
                                     type 1 (step_seq.second); 0: it has none. NULL: none has. Copied */
    uint32_t max_tokens;          /* at least 1; what does not fit in the context ends with JOB_LENGTH */
    const uint32_t *ends;
    uint32_t n_ends;                     /* at most SAMPLER_MAX_ENDS; copied */
    const struct sampler_params *params; /* copied */
    int32_t priority;                    /* larger first; waiting adds 1 for every 2 s */
    uint64_t
        owner; /* whose job it is: owners take turns, whatever the number of their jobs; all of 0 are one owner's */
    struct engine_salt salt;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */

    /* Log probabilities (sample.h), of raw logits: of each id that is generated, and of the top_n best at its place;
     * and of each token of the prompt but the first, given those before it. Rows of a prompt that asks are all
     * computed, cached or not; its pages are kept for others all the same. */
    bool probs, prompt_probs;
    uint32_t top_n, prompt_top_n; /* at most SAMPLER_MAX_TOP */
    bool progress;                /* EVENT_PROGRESS while its prompt is read */

    /* What it may generate, or NULL. The struct is copied. From a submit that succeeds on all calls come from the
     * engine's thread, close at the job's end; a job that is refused leaves it to the caller, nothing called. Other
     * jobs' ids do not change. A job that is answered from the completion cache: close alone, within the submit. */
    const struct sampler_constraint *constraint;
    /* [ENGINE_DIGEST], of all that its masks follow from, or NULL: not known, so no answer is kept. Copied. */
    const uint8_t *constraint_digest;
    bool no_completion; /* its answer is neither looked for in the completion cache nor kept there */
    bool keep; /* its prompt's pages stay under a lease (handover.h: job_lease); no answer that is kept is given.
                  Refused with SUBMIT_INVALID where pages cannot be handed over (engine_layout) */

    /* Another job with the same prompt, or NULL: where they can share a page, this one does not begin before that
     * one's prompt is read, or it is over. So n answers to one prompt cost one prefill: submit the first, then n - 1
     * more that name it, each with a seed of its own; they find all whole pages of the prompt in the prefix cache and
     * compute what is behind them, at most KV_PAGE rows. Without a prefix cache each reads the prompt itself. The ids
     * are those of a job alone with the same seed. The caller may release `after` before this one ends. Log
     * probabilities of the prompt: ask one. Both have the same salt. */
    struct job *after;

    /* Another job of the same reader, or NULL: job_next_any waits for all that were submitted beside one job at once.
     */
    struct job *beside;
};

/* What a job gives its reader, in this order: EVENT_STARTED once prefill begins, EVENT_PROGRESS of a job that asks,
 * EVENT_TOKEN each, EVENT_END once and last (also of a job that never began).
 *
 * The first EVENT_PROGRESS tells n_cached, before any row was computed; then comes one for each step that had rows of
 * the prompt, the last before the first EVENT_TOKEN. Rows of a preempted job that are computed again are not told
 * again.
 */
enum event_kind { EVENT_STARTED = 0, EVENT_PROGRESS, EVENT_TOKEN, EVENT_END };
struct job_event {
    enum event_kind kind;
    uint32_t n_done;    /* EVENT_PROGRESS: rows of the prompt that are computed, cached ones included */
    uint32_t id, index; /* EVENT_TOKEN: the id, 0-based number */
    /* EVENT_TOKEN of a job with probs: [1 + n_top], the id's own first, then those of the best; valid until
     * job_release. EVENT_END of a job with probs that an id of `ends` ended: that id's. Else NULL. */
    const struct sampler_prob *probs;
    uint32_t n_top;   /* top_n, or the vocabulary if that is less */
    enum job_end end; /* EVENT_END */
};

/* Figures of one job, final once EVENT_END was read. Times: CLOCK_MONOTONIC nanoseconds, 0: not yet. */
struct job_figures {
    uint32_t n_prompt, n_cached, n_generated; /* n_cached: prompt tokens whose pages were found in the prefix cache */
    bool completion_hit; /* the completion cache gave the whole answer: n_cached is n_prompt, all times are one */
    uint32_t preemptions, yields;
    uint64_t queued_ns, started_ns, first_token_ns, last_token_ns, ended_ns;
    char text[256]; /* of JOB_FAILED, JOB_NO_MEMORY, JOB_DEVICE_LOST, JOB_GRAMMAR */
};

struct engine;
struct job;
/* Tokens of a text that becomes a row: it is one step. 0: the model gives no embeddings. [any thread] */
uint32_t engine_text_most(const struct engine *e);

/* Takes the model's executor for itself until engine_close (the model stays the caller's) and starts the engine's
 * thread. WK_INVALID: an option out of range, by name. [main thread] */
wk_status engine_open(struct model *m, const struct engine_options *o, struct engine **out, const struct wk_err *err);

/* Why a job was refused at the door: nothing of it remains. */
enum submit_refusal {
    SUBMIT_OK = 0,
    SUBMIT_INVALID,
    SUBMIT_CONTEXT,
    SUBMIT_NEVER_FITS,
    SUBMIT_QUEUE_FULL,
    SUBMIT_EXISTS,
    SUBMIT_DRAINING,
    SUBMIT_DEAD,
    SUBMIT_NO_MEMORY
};
/* Queues a job, or answers it from the completion cache: then it is over at once, and was in no queue. SUBMIT_CONTEXT:
 * the prompt does not leave room for one id in the context; SUBMIT_NEVER_FITS: all pages together would not hold the
 * prompt and one id. The job is the caller's until job_release. [any thread] */
enum submit_refusal engine_submit(struct engine *e, const struct engine_job *spec, struct job **out,
                                  const struct wk_err *err);

/* The job's next event: true; false: none came within timeout_ms (0: do not wait; below 0: wait without end). After
 * EVENT_END: false at once. [the job's reader] */
bool job_next(struct job *j, struct job_event *out, int timeout_ms);
/* The next event of any of n jobs, of which all but the first were submitted beside it: true, *which of them has it.
 * *which, in: the one that was last read, or 0; the others come first. False: as job_next, at once when all of them are
 * over. [the jobs' reader] */
bool job_next_any(struct job *const *jobs, uint32_t n, uint32_t *which, struct job_event *out, int timeout_ms);
/* Of a job with prompt_probs: log probabilities of token `position` of the prompt, [1 + *n_top] as those of an event,
 * valid until job_release. All are there when the first EVENT_TOKEN was read. NULL: not (yet) computed, as of a job
 * that ended before, or position 0, which nothing comes before. [the job's reader] */
const struct sampler_prob *job_prompt_probs(const struct job *j, uint32_t position, uint32_t *n_top);
/* Of a job of texts that ended with JOB_STOP: the row of text i, as many numbers as the model's embedding has; until
 * job_release. [the job's reader] */
const float *job_pooled(const struct job *j, uint32_t i);
/* Ends the job as JOB_STOP (its text holds a stop string) or JOB_CANCELLED, within one step. Events already in the ring
 * stay; idempotent. [any thread] */
void job_stop(struct job *j);
void job_cancel(struct job *j);
void job_figures(const struct job *j, struct job_figures *out); /* [any thread] */
/* What became of a job that had begun: how many turns there were, and turn i of them, from 0. False: there is none yet,
 * or it is so long ago that it was forgotten: at least the last ENGINE_TURNS - 1 are known. [any thread] */
enum { ENGINE_TURNS = 16 };
enum job_turn_kind { TURN_YIELDED = 0, TURN_PREEMPTED, TURN_RESUMED };
struct job_turn {
    enum job_turn_kind kind; /* TURN_PREEMPTED may follow TURN_YIELDED: its pages were taken, too */
    uint64_t at_ns;          /* CLOCK_MONOTONIC */
};
uint32_t job_turns(const struct job *j);
bool job_turn(const struct job *j, uint32_t i, struct job_turn *out);
/* The reader is done; a job that is not over is cancelled. [the job's reader] */
void job_release(struct job *j); /* NULL allowed */

/* By id, also a queued one; of one owner, or NULL: of all who have a job of this id. False: there is none such, or it
 * is over. [any thread] */
bool engine_cancel(struct engine *e, const uint64_t *owner, const char *id);

/* Jobs queued and running, oldest first, at most `most`; returns how many there are. [any thread] */
struct job_view {
    char id[ENGINE_JOB_ID_MAX + 1];
    enum job_state state;
    int32_t priority;
    uint32_t n_prompt, n_done /* prompt rows computed */, n_generated;
    uint64_t queued_ns;
};
uint32_t engine_jobs(struct engine *e, struct job_view *out, uint32_t most);
/* One job, also one that is over (JOB_OVER), until job_release. [any thread] */
void job_look(const struct job *j, struct job_view *out);

/* Counters since the start and gauges of now, written by the engine after every step; one coherent copy without
 * stopping it. [any thread] */
enum { ENGINE_BUCKETS = 24 }; /* le: engine_bucket(i) seconds; the last: +Inf */
struct engine_histogram {
    uint64_t count[ENGINE_BUCKETS];
    uint64_t n;
    double sum;
}; /* not cumulative */
double engine_bucket(uint32_t i);
struct engine_stats {
    uint64_t ended[JOB_END_COUNT], refused_full, submitted;
    uint64_t prompt_tokens, cached_tokens,
        generated_tokens; /* prompt_tokens: of prompts that gave an id, cached ones included */
    /* By admitted jobs whose prompt has a whole page before its last token: all such pages found, some, none. */
    uint64_t prefix_full_hits, prefix_partial_hits, prefix_misses, prefix_evicted_pages;
    uint64_t preemptions, yields, resumes, steps, prompt_steps, step_rows; /* prompt_steps: of rows of prompts */
    uint64_t high_tokens, low_tokens;                                      /* generated, by priority class */
    uint32_t queued, running, prefilling, batch_rows, batch_sequences;
    uint64_t pages, pages_used, pages_cached; /* of all KV groups; used: by jobs; cached: by the prefix cache alone */
    double usage; /* share of its pages that jobs hold of the KV group in which they hold most */
    struct engine_histogram queue_seconds, prefill_seconds, first_token_seconds, inter_token_seconds, decode_seconds,
        job_seconds;
    /* Of steps with constrained jobs: from when all ids were known that their masks follow from until the masks were
     * given. A device that is still at the step's forward pass then has lost nothing. */
    struct engine_histogram mask_wait_seconds;
    /* The completion cache: jobs that it answered, jobs that it could have answered and did not know, answers that it
     * gave up for others, and what it holds. Jobs that it answered count in `submitted` and `ended`, in nothing else.
     */
    uint64_t completion_hits, completion_misses, completion_evicted, completion_bytes, completions;
    uint64_t progress_ns; /* when the engine's thread last did something; it does at least every second, also idle */
    bool draining, dead;
    char dead_text[256];
    /* Steps that failed since a job last got an id: from ENGINE_FAILING on nothing works any more, as far as the engine
     * knows. */
    uint32_t failures;
    char failure_text[256]; /* of the last one */
};
enum { ENGINE_FAILING = 3 };
void engine_stats(struct engine *e, struct engine_stats *out);

/* Live change of preempt, high_priority and timeslice_tokens, and what they are now. [any thread] */
void engine_tune(struct engine *e, bool preempt, int32_t high_priority, uint32_t timeslice_tokens);
struct engine_tuning {
    bool preempt;
    int32_t high_priority;
    uint32_t timeslice_tokens;
};
void engine_tuning(struct engine *e, struct engine_tuning *out);

/* Runs fn on the engine's thread between two steps with none in flight (residency, verify, seal), and waits for it.
 * False: the engine is dead. [any thread] */
bool engine_call(struct engine *e, void (*fn)(void *user), void *user);

/* Nothing new is taken; queued jobs end with JOB_DRAINED, running ones go on. [any thread] */
void engine_drain(struct engine *e);
bool engine_idle(struct engine *e); /* no job queued or running [any thread] */
/* Cancels what still runs, stops the thread, frees all. Every job and lease must be released, every import committed or
 * aborted, every peer closed. NULL allowed. [main thread] */
void engine_close(struct engine *e);

#endif
