/* internal.h: the inside of the engine, shared by its files and by nobody else.
 *
 *   clock.c    time, threads, futexes, and the engine's attention
 *   engine.c   open, close, the engine's thread and how others reach it: submit, cancel, calls, drain
 *   job.c      a job's memory, its events and its reader; the notifier, which wakes readers so that the engine's
 *              thread need not
 *   pages.c    the KV cache's pages: free ones, promised ones, those of a job
 *   lease.c    pages of prompts that stay for another engine;  import.c  pages that come from another engine
 *   prefix.c   whole pages of prompts that are kept for later jobs: a tree over pages
 *   page_events.c  what comes into that tree and goes, told to a reader
 *   completions.c  whole answers that are kept for jobs that ask the same
 *   owners.c   whose jobs they are, and whose turn it is
 *   schedule.c who runs: admission, ageing, time slices, preemption
 *   batch.c    steps: what is in them, submit, collect, what their ids mean
 *   embed.c    steps of texts that become rows
 *   stats.c    counters, histograms, coherent copies of them
 *
 * Who touches what: the engine's thread alone, unless a field says otherwise. `lock` guards the table of ids, the list
 * of live jobs, the inbox and the calls; it is held for a few instructions a job, never across a step. Everything that
 * readers see is atomic. */
#ifndef CORE_ENGINE_INTERNAL_H
#define CORE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/kv_pages.h"
#include "engine/engine.h"
#include "engine/handover.h"

#define ENGINE_NONE UINT32_MAX

/* ---- clock.c ------------------------------------------------------------------------------------------- */

uint64_t engine_now(void); /* CLOCK_MONOTONIC, nanoseconds */
/* Waits while *word == value, until woken or deadline_ns (0: without end); may return early. */
void futex_wait_until(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns);
void futex_wake_one(_Atomic uint32_t *word);
void futex_wake_all(_Atomic uint32_t *word);

/* A thread that blocks signals which are not its own fault. */
wk_status engine_thread(pthread_t *thread, void *(*fn)(void *), void *arg, const struct wk_err *err);
struct engine;
/* Sets bits of what the engine's thread is to look at, and wakes it. [any thread] */
void engine_attention(struct engine *e, uint32_t bits);

/* A hash of words, taken one by one; h begins as a seed. */
static inline uint64_t engine_mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}
static inline bool engine_same_salt(const struct engine_salt *a, const struct engine_salt *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

/* ---- pages.c ------------------------------------------------------------------------------------------- */

/* One KV group's pages. free + evictable >= promised, always: a page that was promised can be had. */
struct page_pool {
    uint32_t n, n_free, *free; /* [n] a stack */
    uint64_t *freed;           /* [n] steps up to this one may still read what a free page had */
    uint32_t promised;   /* that admitted jobs may still take; and of each kept page of a bounded span the jobs that use
                            it, but for one: each has paid for it */
    struct kv_span span; /* what a row sees */
};

/* A job's pages of one group, by blocks of KV_PAGE positions. Of a bounded span it holds, once a step is under way,
 * those that its next row sees; a step's rows may take more while the step is built. */
struct job_pages {
    uint32_t *table; /* [cap] page ids; those of blocks [first, end) are held */
    uint32_t cap, first, end;
    uint32_t promise; /* pages that it was promised and has not taken; of a bounded span those that it gives back are
                         promised again */
};

/* ---- job.c --------------------------------------------------------------------------------------------- */

enum { REQUEST_NONE = 0, REQUEST_STOP, REQUEST_CANCEL };

struct job {
    struct engine *engine;
    /* As submitted. */
    char id[ENGINE_JOB_ID_MAX + 1];
    uint32_t *prompt, n_prompt, *ends, n_ends;
    uint32_t most;                /* ids: max_tokens, or what the context has room for */
    uint32_t n_texts, *text_ends; /* 0: it generates */
    uint32_t *text_seconds;       /* [n_texts] */
    struct sampler_params params;
    struct sampler_bias *bias;
    int32_t priority;
    uint64_t deadline_ns, owner_key;
    struct engine_salt salt;
    enum row_role role;                   /* of its prompt's rows */
    struct sampler_constraint constraint; /* mask NULL: none */
    uint64_t *mask;                       /* [ceil(n_vocab / 64)], if it has one */
    uint32_t top, prompt_top;             /* STEP_NO_TOP: no log probabilities */
    struct job *after;                    /* a reference; NULL: it may begin */
    uint64_t constraint_digest[ENGINE_DIGEST / 8];
    bool completion; /* its answer may be kept, or be one that was kept */

    /* Between engine and reader. events: number of ids, and EVENT_*_BIT; the engine's thread writes, its ids lie before
     * it. */
    uint32_t *ids;                             /* [most] */
    struct sampler_prob *probs, *prompt_probs; /* [most], [n_prompt], rows: job_row */
    float *pooled;                             /* [n_texts][embedding_width]; all are there before its end is told */
    uint32_t *progress;          /* [n_prompt + 1] rising: rows of the prompt that were computed; NULL: nobody asks */
    _Atomic uint32_t n_progress; /* of them; each is there before the ids that follow from it */
    _Atomic uint32_t n_scored;   /* rows of its prompt whose log probabilities are there */
    _Atomic uint64_t events;
    _Atomic uint32_t waiting;   /* 1: the reader sleeps on it */
    struct job *beside;         /* a reference: the reader sleeps on that job's; NULL: on its own */
    _Atomic uint32_t notifying; /* 1: it lies in the notifier's ring */
    _Atomic uint32_t refs;      /* reader, engine, notifier */
    struct {
        bool started, over;
        uint32_t n, n_progress;
    } read; /* the reader's */

    /* What anybody may read. */
    _Atomic uint32_t state, n_cached, n_done, preemptions, yields;
    _Atomic uint64_t queued_ns, started_ns, first_token_ns, last_token_ns, ended_ns;
    _Atomic uint32_t n_turns;
    _Atomic uint64_t turns[ENGINE_TURNS]; /* the last ones: time << 2 | kind */
    char text[256];                       /* before the end is told */
    bool by_id;                           /* the same: an id of ends ended it */
    bool completion_hit;                  /* before anybody knows of the job */

    _Atomic uint32_t request; /* REQUEST_*: the first that came; any thread */
    _Atomic bool in_step;     /* a step that can be cancelled has rows of it, and it is one of step_jobs */

    /* Under the engine's lock. */
    struct job *live_prev, *live_next, *id_next, *inbox_next;

    /* The engine's thread. */
    enum job_end end;
    bool over, notified, running; /* notified: the reader knows that it is over */
    bool has_pages, pending_drop; /* has_pages: promised or held; pending_drop: they go once no step has them */
    uint32_t slot;                /* the device's sampler; ENGINE_NONE: none yet */
    uint32_t in_flight;           /* steps under way that have rows of it */
    uint32_t submitted;           /* positions in submitted steps */
    uint32_t computed;            /* positions in collected steps */
    uint32_t sampled;             /* ids of submitted steps */
    uint32_t n_ids;               /* ids of collected steps */
    uint32_t texts_submitted;     /* whole texts of `submitted`; of those that were computed: texts_done */
    uint32_t texts_done;
    uint32_t slice;      /* ids, or tokens of texts, since it last began to run */
    uint64_t waiting_ns; /* since when it has been waiting */
    struct owner *owner; /* from when the thread knows of it until it is over */
    int64_t rank;        /* effective priority when it last began to run */
    int64_t tier;        /* the same as owners are compared by, also where there is but one */
    uint64_t looked;     /* the last step that had or could have had rows of its prompt: engine.looks */
    uint64_t turn;       /* how many began to run before it */
    struct job_pages pages[TAPE_MAX_GROUPS];
    const uint32_t *tables[TAPE_MAX_GROUPS];
    struct engine_lease *lease;            /* a reference; NULL: its pages are not kept for another engine */
    uint32_t *nodes, n_nodes, n_committed; /* of the prefix cache, held: blocks [0, n_nodes) of its prompt; blocks
                                           [n_committed, n_nodes) are its own, in steps under way */
};

#define EVENT_STARTED_BIT (1ull << 32)
#define EVENT_OVER_BIT (1ull << 33)
#define EVENT_END_SHIFT 40 /* enum job_end */

/* A checked job with all memory that it will need. */
wk_status job_new(struct engine *e, const struct engine_job *spec, struct job **out, const struct wk_err *err);
void job_ref(struct job *j);
void job_unref(struct job *j);
/* Row `at` of log probabilities, each of 1 + the `top` best. */
static inline struct sampler_prob *job_row(struct sampler_prob *probs, uint32_t top, uint32_t at)
{
    return probs + (uint64_t)at * (1 + top);
}
/* The engine's side: what the reader shall see. */
void job_tell_started(struct job *j);
void job_tell_done(struct job *j, uint32_t n_done); /* rows of its prompt that are computed */
void job_tell_id(struct job *j, uint32_t id);
void job_tell_end(struct job *j, enum job_end end);
void job_add_turn(struct job *j, enum job_turn_kind kind, uint64_t now);
/* The whole answer at once, by the thread that submits: ids, end and log probabilities are there. */
void job_answer(struct job *j, uint64_t now);
static inline uint32_t job_generated(const struct job *j)
{
    return (uint32_t)atomic_load_explicit(&j->events, memory_order_acquire);
}
/* Positions whose tokens are known: the prompt, and ids that were generated before it was preempted. */
static inline uint32_t job_known(const struct job *j) { return j->n_prompt + (j->n_ids ? j->n_ids - 1 : 0); }
/* Positions that it will have computed at most. */
static inline uint32_t job_positions(const struct job *j) { return j->n_prompt + j->most - 1; }

/* Wakes readers: the engine's thread hands it jobs whose readers sleep, once a step. */
struct notifier {
    pthread_t thread;
    bool started;
    struct job **ring;
    uint32_t cap;                /* a power of two */
    _Atomic uint32_t head, tail; /* taken, given */
    _Atomic uint32_t asleep;
    _Atomic bool stop;
};
wk_status notifier_open(struct notifier *n, uint32_t jobs, const struct wk_err *err);
void notifier_flush(struct notifier *n); /* lets it run if something was given */
void notifier_close(struct notifier *n);

/* ---- prefix.c ------------------------------------------------------------------------------------------ */

/* Who uses what is kept, and which of the rest goes next. LRU: what nobody uses, in order of its last use; the oldest
 * goes. Clock: all that is kept, in a ring that begins at the hand; the hand passes over what is used, and once over
 * what was used again since it came by. */
struct prefix_list {
    struct prefix_link {
        uint32_t users, older, newer;
        bool again;             /* Clock: was used again */
    } *link;                    /* [cap] older, newer: LRU: while nobody uses it */
    uint32_t oldest, newest, n; /* n: nobody uses them */
    bool clock;
};
struct prefix_node {
    uint32_t tokens[KV_PAGE];
    uint32_t parent;         /* ENGINE_NONE: the prompt's beginning */
    struct engine_salt salt; /* of a prompt's beginning; what is below it is found through it alone */
    uint32_t role, hash;
    uint32_t n_below; /* nodes whose parent it is */
    uint32_t next;    /* in its bucket, or in the list of unused nodes */
    bool committed;   /* its step was collected, and was good: it can be found */
};
struct prefix {
    uint64_t seed;
    uint32_t cap, n_groups;
    struct prefix_node *nodes;    /* [cap] */
    uint32_t *pages;              /* [cap][n_groups]; ENGINE_NONE: of a group of bounded span, not kept */
    uint32_t *buckets, n_buckets; /* a power of two */
    uint32_t unused;
    struct page_events *events; /* NULL: nobody is told */
    struct prefix_list held;    /* nodes, by jobs */
    /* Of each group of bounded span: nodes that have a page of it, by jobs whose next rows see this page. */
    struct {
        struct kv_span span;
        struct prefix_list used;
    } group[TAPE_MAX_GROUPS];
};
/* Room for cap whole pages of groups with these spans [n_groups]. cap 0: a cache that finds and keeps nothing. */
wk_status prefix_open(struct prefix *p, uint32_t cap, enum engine_eviction eviction, const struct kv_span *spans,
                      uint32_t n_groups, const struct wk_err *err);
void prefix_close(struct prefix *p);
/* The longest chain of kept pages that tokens begin with and a job can go on from, at most n pages: of groups with
 * bounded span only pages that its next row sees must be there. Into nodes [n], none of them held. */
uint32_t prefix_find(const struct prefix *p, const struct engine_salt *salt, enum row_role role, const uint32_t *tokens,
                     uint32_t n, uint32_t *nodes);
/* The same, whatever pages of bounded span are there: nobody can go on from there as it is. */
uint32_t prefix_chain(const struct prefix *p, const struct engine_salt *salt, enum row_role role,
                      const uint32_t *tokens, uint32_t n, uint32_t *nodes);
void prefix_hold(struct prefix *p, uint32_t node);
/* Holders of a node hold all nodes above it and drop the lowest first, so that what is evicted has nothing below it. */
void prefix_drop(struct prefix *p, uint32_t node);
/* The node of these tokens below `parent`, held: a committed one that was there, or (*added) a new one without pages,
 * which nobody finds before it is committed. ENGINE_NONE: another job computes it just now, or there is no room. */
uint32_t prefix_add(struct prefix *p, const struct engine_salt *salt, enum row_role role, uint32_t parent,
                    const uint32_t *tokens, bool *added);
void prefix_commit(struct prefix *p, uint32_t node); /* its step was collected, and was good */
/* Gives up an uncommitted node, whose pages nobody uses, or the next that goes of those that nobody holds (there must
 * be one): its pages [n_groups]. */
const uint32_t *prefix_remove(struct prefix *p, uint32_t node);
const uint32_t *prefix_evict(struct prefix *p);
static inline uint32_t prefix_users(const struct prefix *p, uint32_t node) { return p->held.link[node].users; }
static inline uint32_t *prefix_pages(const struct prefix *p, uint32_t node)
{
    return p->pages + (uint64_t)node * p->n_groups;
}

/* A node's page of a group of bounded span: given by the job that uses it; used by one more job, or by one less: how
 * many use it besides. */
void prefix_give_page(struct prefix *p, uint32_t group, uint32_t node, uint32_t page);
uint32_t prefix_use_page(struct prefix *p, uint32_t group, uint32_t node);
uint32_t prefix_leave_page(struct prefix *p, uint32_t group, uint32_t node);
/* Takes the page of the group that goes next of those that nobody uses (there must be one). */
uint32_t prefix_evict_page(struct prefix *p, uint32_t group);
/* Pages of the group that are kept for nobody. */
static inline uint32_t prefix_evictable(const struct prefix *p, uint32_t group)
{
    return kv_bounded(p->group[group].span) ? p->group[group].used.n : p->held.n;
}

/* ---- page_events.c ------------------------------------------------------------------------------------- */

/* p->events, if there is a cache, with room for `records`; 0: none. [before the engine's thread is started] */
wk_status page_events_open(struct prefix *p, uint32_t records, const struct wk_err *err);
void page_events_close(struct prefix *p);
/* The tree's, with events: the node was committed; it goes, committed or not. */
void page_events_stored(struct prefix *p, uint32_t node);
void page_events_removed(struct prefix *p, uint32_t node);
/* Of each turn, with events: how many nanoseconds later an idle engine shall take the next one; UINT64_MAX: any. */
uint64_t page_events_turn(struct prefix *p);

/* ---- completions.c ------------------------------------------------------------------------------------- */

struct completions {
    bool ready;
    uint64_t cap, seed; /* cap: bytes; 0: nothing is kept */
    struct completion **buckets;
    uint32_t n_buckets;   /* a power of two */
    pthread_mutex_t lock; /* of what follows, and of all that is kept; the engine's thread never takes it */
    struct completion *oldest, *newest;
    uint64_t bytes, n, hits, misses, evicted, ended[2]; /* ended: by an id, for the length */
};
wk_status completions_open(struct completions *c, uint64_t cap, const struct wk_err *err);
void completions_close(struct completions *c);
/* Is there an answer to j? Its ids, log probabilities and end are j's then. [who submits] */
bool completions_find(struct completions *c, struct job *j);
void completions_count(struct completions *c, const struct job *j, bool hit); /* it was taken */
/* j's end was read. [j's reader] */
void completions_keep(struct completions *c, const struct job *j, enum job_end end);
void completions_stats(struct completions *c, struct engine_stats *out); /* [any thread] */

/* ---- lease.c, import.c --------------------------------------------------------------------------------- */

struct engine_lease {
    struct engine *engine;
    _Atomic uint32_t refs;
    uint32_t blocks, *tokens;        /* [blocks * KV_PAGE] */
    uint32_t first[TAPE_MAX_GROUPS]; /* the first block that has a page of the group */

    /* What readers wait for. */
    _Atomic uint32_t state, ready, wake_word, sleepers;
    char text[160]; /* before LEASE_LOST */

    /* The engine's thread; readers: of blocks below `ready`. */
    uint32_t *pages;                /* [blocks][n_groups] */
    uint32_t *nodes;                /* [blocks] of the prefix cache: */
    uint32_t n_held;                /* blocks [0, n_held) are held, */
    uint32_t used[TAPE_MAX_GROUPS]; /* of groups of bounded span pages of blocks [first, used) are used, also of nodes
                                       that are only its job's yet */
    bool counted;                   /* in engine.leased */
    struct engine_lease *next;      /* of those that nobody refers to */
    struct engine_lease *older;     /* of committed imports */
};
/* For a prompt; *why not: it is lost from the beginning. NULL: no memory. [any thread] */
struct engine_lease *lease_new(struct engine *e, const uint32_t *prompt, uint32_t n_prompt, const char *why_not);
const char *lease_refusal(const struct engine *e); /* why this engine gives and takes no pages; NULL: it does */
/* Of a job: its pages are promised; it was given nodes; nodes are committed; it drops its pages; it is over. All do
 * nothing for a job without a lease. */
void lease_begin(struct engine *e, struct job *j);
void lease_use(struct engine *e, struct job *j);
void lease_follow(struct engine *e, struct job *j);
void lease_forget(struct engine *e, struct job *j);
void lease_end(struct engine *e, struct job *j);
static inline bool lease_grows(const struct job *j)
{
    return j->lease && atomic_load_explicit(&j->lease->state, memory_order_relaxed) == LEASE_GROWING;
}
void lease_set(struct engine_lease *l, enum lease_state state, const char *text); /* and wakes who waits */
/* Counts what a lease or an import will hold; false: there is no room for that, and nothing is counted. */
bool lease_count(struct engine *e, struct engine_lease *l);
void lease_uncount(struct engine *e, struct engine_lease *l);
void lease_unpin(struct engine *e, struct engine_lease *l); /* gives back what it holds and uses, ready or not */
void lease_free(struct engine_lease *l);
/* Pages of blocks from *block on, as many whole blocks as there is room for, at most to block `to`; *block: the next.
 */
enum { LEASE_RUN = 512 };
uint32_t lease_pages(const struct engine_lease *l, uint32_t *block, uint32_t to, uint32_t most,
                     struct device_page *out);
/* Blocks [from, to) of its pages are written. [any thread] */
wk_status lease_write(struct engine_lease *l, uint32_t from, uint32_t to, const void *bytes, const struct wk_err *err);

/* What others asked for since the last time. */
void import_attend(struct engine *e);
/* A step was collected, or all are lost: imports that waited for it may begin. */
void import_collected(struct engine *e);
/* Gives up one committed import, which only saves work. False: there is none. */
bool import_give_way(struct engine *e);

/* ---- owners.c ------------------------------------------------------------------------------------------ */

struct owner {
    uint64_t key;
    uint32_t live;              /* its jobs that are not over */
    uint64_t served, served_ns; /* its last turn to begin a job: the number, from 1, and when; 0: none yet */
    uint64_t read;              /* its last turn to have rows of a prompt in a step; 0: none yet */
    struct owner *next;         /* in its bucket */
    /* While the next job is looked for: the round in which this is about it, the best of its jobs and what was found
     * of that one's prompt, the highest claim, and another owner that has some. */
    uint64_t round;
    struct job *best;
    uint32_t found;
    int64_t claim;
    struct owner *other;
};
struct owners {
    struct owner *all, **buckets; /* [n], [n_buckets] */
    uint32_t n, n_known, n_buckets /* a power of two */, n_live /* that have jobs */;
    uint64_t round;
};
wk_status owners_open(struct owners *o, uint32_t jobs, const struct wk_err *err); /* for so many jobs */
void owners_close(struct owners *o);
/* The owner of one more job, of one less. */
struct owner *owner_enter(struct owners *o, uint64_t key);
void owner_leave(struct owners *o, struct owner *x);

/* ---- embed.c ------------------------------------------------------------------------------------------- */

/* What steps of texts need. */
struct texts {
    uint32_t most;   /* tokens of one: it is one step */
    uint32_t n_seqs; /* of a step */
    uint32_t *pages; /* [most pages of a group] 0, 1, 2, ...: a text's page table is a part of it */
    const uint32_t *(*tables)[TAPE_MAX_GROUPS]; /* [n_seqs] */
    float *rows;                                /* [n_seqs][embedding_width] */
};
wk_status embed_open(struct engine *e, const struct wk_err *err);
/* May a job's texts be rows of this engine's? */
enum submit_refusal embed_check(const struct engine *e, const struct engine_job *spec, const struct wk_err *err);
void embed_close(struct engine *e);

/* ---- the engine ---------------------------------------------------------------------------------------- */

/* Steps are of one kernel class each: generated rows (the next row of every running job; short prompts; ids of
 * preempted jobs again), or prompt rows. */
enum step_kind { STEP_GENERATED = 0, STEP_PROMPT, STEP_KINDS };

struct step_member {
    struct job *job;
    uint32_t n_rows;
    bool sampled;
    uint32_t logits_row, n_scored, scored; /* its logits rows are [logits_row, ..) of the step's: first n_scored rows of
                                          its prompt, from row `scored` on, then the one that is sampled */
};
struct step_record {
    enum step_kind kind;
    uint32_t n, n_rows;
    bool asks, scores; /* somebody wants log probabilities; of a prompt's tokens */
    uint64_t submitted_ns;
    double share, charged;      /* the class's part of the time, and the seconds that it was charged in advance */
    struct step_member *member; /* [max_sequences] */
};

struct engine_call_record {
    void (*fn)(void *user);
    void *user;
    bool done, ok;
    struct engine_call_record *next;
};

/* Why the engine's thread should look up. */
enum {
    ATTEND_INBOX = 1,
    ATTEND_REQUEST = 2,
    ATTEND_CALL = 4,
    ATTEND_DRAIN = 8,
    ATTEND_CLOSE = 16,
    ATTEND_EVENTS = 32,
    ATTEND_PAGES = 64
};

struct engine {
    struct model *model;
    struct engine_options o; /* preempt, high_priority, timeslice_tokens: see tune */
    pthread_t thread;

    /* Any thread. */
    _Atomic uint32_t attention, asleep;
    _Atomic uint32_t live; /* jobs that are not over */
    _Atomic uint32_t steps_under_way;
    _Atomic uint64_t submitted, refused_full;
    _Atomic bool draining, dead;
    char dead_text[256]; /* before dead */
    _Atomic bool preempt;
    _Atomic int32_t high_priority;
    _Atomic uint32_t timeslice_tokens;
    bool embeds;                /* the model gives embeddings: jobs are texts, and no page outlives a step */
    bool step_cancel;           /* of the step that runs inside submit; atomic builtins alone: the device reads it
                                 * as a plain bool */
    _Atomic uint32_t step_jobs; /* of that step, that are not to end; a cancel that comes late may stop the next step
                                 * for nothing, which then runs again */

    struct completions completions;
    pthread_mutex_t lock;
    pthread_cond_t called;
    struct job **ids;
    uint32_t n_ids; /* hash table by id; a power of two */
    struct job *live_first, *live_last, *inbox, **inbox_end;
    struct engine_call_record *calls;
    struct engine_import *imports_in, **imports_in_end; /* asked for something */
    struct engine_lease *released;                      /* nobody refers to them any more */
    _Atomic uint32_t n_leases;                          /* any thread: leases and imports that there are */

    /* The engine's thread. */
    struct page_pool pool[TAPE_MAX_GROUPS];
    uint32_t n_groups;
    struct prefix prefix;
    uint64_t leased[TAPE_MAX_GROUPS]; /* pages that leases and imports hold or will hold */
    struct engine_import *ripening;   /* imports that wait for steps */
    struct engine_lease *imported;    /* committed, the newest first */
    struct owners owners;
    struct job **running;
    uint32_t n_running; /* [max_sequences] by rank, then turn */
    struct job **waiting;
    uint32_t n_waiting; /* [max_sequences + max_queue] */
    struct job **ended;
    uint32_t n_ended;         /* [max_sequences + max_queue] over, to be told */
    struct job **victims;     /* [max_sequences + max_queue] */
    uint32_t *slots, n_slots; /* free ones, a stack */
    uint64_t next_deadline, schedule_at, turns;
    uint64_t looks, reads; /* steps that looked for rows of prompts; turns of owners at it */
    bool schedule_due, call_waits, closing;

    struct step_record under_way[STEP_QUEUE];
    uint32_t oldest, n_under_way;
    struct step_seq *seqs;
    uint32_t *tokens, *logits_rows, *step_ids; /* logits_rows: [most_logits_rows] */
    bool *step_failed;
    struct step_ask *asks;            /* [most_logits_rows] */
    struct sampler_top *top_logprobs; /* [most_logits_rows] */
    const uint64_t **masks;           /* [most_logits_rows] */
    uint32_t most_logits_rows;        /* rows of a step */
    struct texts texts;               /* of a model that gives embeddings */
    struct step masked;               /* the last step, while it waits for masks: seqs, tokens and so on are its */
    bool mask_due;
    double spent[STEP_KINDS]; /* seconds of the device by share: the class that has had less is next */
    bool present[STEP_KINDS]; /* there was something of the class when the last step was chosen */
    uint32_t prompts_in_a_row;
    double row_seconds;  /* of a prompt row, lately; 0: not known */
    double step_seconds; /* of a step of generated rows, lately */
    uint64_t last_collect_ns;

    struct notifier notifier;
    struct engine_stats stats; /* the thread's own */
    struct {
        struct engine_stats copy[3];
        _Atomic uint32_t middle;
        uint32_t back, front;
        pthread_mutex_t reading;
    } published;
};

/* Ends a job: its place is free at once, its pages and slot when no step under way has it; told at the end of the turn.
 * text: NULL, or why. */
void engine_end_job(struct engine *e, struct job *j, enum job_end end, const char *text);
/* What a job that is over, and in no step any more, still has. */
void engine_settle(struct engine *e, struct job *j);
/* The device is lost: every job ends. */
void engine_die(struct engine *e, const char *text);

/* pages.c */
wk_status pages_open(struct engine *e, const struct wk_err *err);
void pages_close(struct engine *e);
/* Pages of one group that a job of so many positions holds at most between steps. */
uint32_t pages_needed(const struct page_pool *p, uint64_t positions);
/* Pages of group g that nobody was promised; takes one that is there, promised or spare; gives one back. */
uint64_t pages_spare(const struct engine *e, uint32_t g);
uint32_t pages_take(struct engine *e, uint32_t g);
void pages_put_free(struct engine *e, uint32_t g, uint32_t page);
void pages_evict_node(struct engine *e); /* the next that goes of those that nobody holds, with all its pages */
/* Of a group of bounded span: one more or one less needs node's page. */
void pages_use(struct engine *e, uint32_t g, uint32_t node);
void pages_leave(struct engine *e, uint32_t g, uint32_t node);
/* Can all that j may need be promised? Finds its prompt's kept pages, into j->nodes and *found. */
bool pages_can_promise(const struct engine *e, struct job *j, uint32_t *found);
void pages_promise(struct engine *e, struct job *j, uint32_t found); /* after pages_can_promise said yes */
/* Takes pages for as many of j's next `rows` rows as there are pages for; returns how many. 0: none is left that was
 * not promised to others. */
uint32_t pages_grow(struct engine *e, struct job *j, uint32_t rows);
/* A step with j's rows up to `submitted` is under way, or its step came to nothing: keeps whole pages of its prompt,
 * gives back what its next row does not see. */
void pages_settle(struct engine *e, struct job *j);
void pages_commit(struct engine *e, struct job *j); /* j's rows up to `computed` are good */
/* What could not be kept before, because another job just computed the same, perhaps can now. */
void pages_keep(struct engine *e, struct job *j);
void pages_drop(struct engine *e, struct job *j); /* all of it; no step under way has it */
/* Would the pages of these jobs, given back, be enough for j? */
bool pages_would_do(const struct engine *e, struct job *j, struct job *const *victims, uint32_t n);

/* schedule.c */
void schedule(struct engine *e, uint64_t now);
void schedule_remove(struct engine *e, struct job *j); /* from running or waiting */
void schedule_wait(struct engine *e, struct job *j, uint64_t now);
void schedule_after(struct job *j);                                        /* it waits for no other job any more */
void schedule_use_slice(struct engine *e, struct job *j, uint32_t tokens); /* of j, that is running */
void schedule_drop_pages(struct engine *e, struct job *j);                 /* a preempted job's, if no step has it */

/* batch.c */
wk_status batch_open(struct engine *e, const struct wk_err *err);
void batch_close(struct engine *e);
enum batch_result {
    BATCH_NOTHING = 0,
    BATCH_SUBMITTED,
    BATCH_AGAIN /* a job has ended or is to end: look at the others first */
};
enum batch_result batch_submit(struct engine *e); /* one step */
bool batch_wants_more(const struct engine *e); /* too few steps under way; long ones are soon enough, for what comes new
                                                  waits behind them */
void batch_collect(struct engine *e);          /* the oldest step */
/* For embed.c: what all steps do. */
struct job *batch_next_reader(const struct engine *e, enum step_kind kind, uint32_t *from);
void batch_tell_started(struct engine *e, const struct step_record *r);
/* The step is cancelled when the last of its jobs is to end, until it is disarmed: what the others wait for goes on, or
 * who cancels often enough would keep them from it. False: all of them are to end already. */
bool batch_arm_cancel(struct engine *e, struct step *s, const struct step_record *r);
void batch_leave_step(struct job *j); /* j is to end. [any thread] */
void batch_disarm_cancel(const struct step_record *r);
void batch_refused(struct engine *e, const struct step_record *r, wk_status status, const char *text);
void batch_count_failure(struct engine *e, const char *text);
enum batch_result embed_submit(struct engine *e); /* one step of texts, which has run when this returns */
void batch_mask(struct engine *e); /* masks for the step that waits for them, which is the only one under way */

/* stats.c */
void stats_open(struct engine *e);
void stats_add(struct engine_histogram *h, uint64_t ns);
void stats_publish(struct engine *e);

#endif
