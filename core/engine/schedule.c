/* schedule.c: who runs.
 *
 * A job that runs has a place, a slot of the device's samplers and the promise of its pages. Waiting are new jobs,
 * yielded ones, which keep pages and slot, and preempted ones, which keep their slot alone. Of an owner's waiting jobs
 * the one of highest effective priority is next, among equals the one that waits longest. Of several owners that one is
 * next whose jobs have the highest claim, among equals the one whose last turn is longest ago: waiting counts for a
 * claim from the owner's last turn on, so a long queue of one's own does not grow older than others' jobs. If the next
 * job cannot begin, only jobs that once ran may pass it, for they hold what it waits for. */
#include "engine/internal.h"

enum { AGE_NS = 2000000000, LOOK_AGAIN_NS = 100000000 };

static int64_t aged(const struct job *j, uint64_t since, uint64_t now)
{
    return (int64_t)j->priority + (int64_t)(now > since ? (now - since) / AGE_NS : 0);
}

static int64_t effective(const struct job *j, uint64_t now) { return aged(j, j->waiting_ns, now); }

static int64_t tier(const struct job *j, uint64_t now)
{
    const uint64_t served = j->owner->served_ns;
    return aged(j, j->waiting_ns > served ? j->waiting_ns : served, now);
}

/* What a job's priority is to other owners' jobs; the same as effective where there are none. */
static int64_t claim(const struct engine *e, const struct job *j, uint64_t now)
{
    return e->owners.n_live > 1 ? tier(j, now) : effective(j, now);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static void put_running(struct engine *e, struct job *j)
{
    uint32_t at = e->n_running++;
    for (; at > 0 && e->running[at - 1]->rank < j->rank; at--) e->running[at] = e->running[at - 1];
    e->running[at] = j;
    j->running = true;
}

void schedule_remove(struct engine *e, struct job *j)
{
    uint32_t i = 0;
    if (j->running) {
        while (e->running[i] != j) i++;
        for (e->n_running--; i < e->n_running; i++) e->running[i] = e->running[i + 1];
        j->running = false;
    } else {
        while (e->waiting[i] != j) i++;
        e->waiting[i] = e->waiting[--e->n_waiting];
    }
    e->schedule_due = true;
}

void schedule_wait(struct engine *e, struct job *j, uint64_t now)
{
    j->waiting_ns = now;
    e->waiting[e->n_waiting++] = j;
    e->schedule_due = true;
}

static void set_state(struct job *j, enum job_state state) { atomic_store(&j->state, (uint32_t)state); }

/* ---- beginning ----------------------------------------------------------------------------------------- */

/* Is there a slot for a job that has none? Jobs that yielded keep theirs, so while a high job may take a place, half of
 * those to spare wait for one. */
static bool has_slot(const struct engine *e, const struct job *j, uint64_t now)
{
    const bool high = claim(e, j, now) >= atomic_load_explicit(&e->high_priority, memory_order_relaxed);
    const uint32_t spare = e->model->dev.max_sequences - e->o.max_sequences;
    return e->n_slots > (high || !atomic_load_explicit(&e->preempt, memory_order_relaxed) ? 0 : spare / 2);
}

static bool can_begin(const struct engine *e, struct job *j, uint64_t now, uint32_t *found)
{
    *found = 0;
    if (j->slot == ENGINE_NONE && !has_slot(e, j, now)) return false;
    return j->has_pages || pages_can_promise(e, j, found);
}

/* Can it begin, if need be with the room of what was imported for others? */
static bool make_room(struct engine *e, struct job *j, uint64_t now, uint32_t *found)
{
    while (!can_begin(e, j, now, found))
        if ((j->slot == ENGINE_NONE && !has_slot(e, j, now)) || !import_give_way(e)) return false;
    return true;
}

static void count_prefix(struct engine *e, struct job *j, uint32_t found)
{
    const uint32_t most = (j->n_prompt - 1) / KV_PAGE;
    if (!e->prefix.cap || !most) return;
    *(found == most ? &e->stats.prefix_full_hits
      : found       ? &e->stats.prefix_partial_hits
                    : &e->stats.prefix_misses) += 1;
    e->stats.cached_tokens += (uint64_t)found * KV_PAGE;
    atomic_store(&j->n_cached, found * KV_PAGE);
}

/* A new job's sampler, where it generates; false: the device refused, and the job is over. */
static bool set_sampler(struct engine *e, struct job *j)
{
    char text[sizeof j->text] = "";
    const struct wk_err err = { text, sizeof text };
    j->slot = e->slots[--e->n_slots];
    if (e->embeds) return true;
    const wk_status s =
        e->model->device->sampler_set(e->model->executor, j->slot, &j->params, j->ends, j->n_ends, &err);
    if (!s) return true;
    if (e->model->device->dead && e->model->device->dead())
        engine_die(e, text);
    else
        engine_end_job(e, j, s == WK_NO_MEMORY ? JOB_NO_MEMORY : JOB_FAILED, text);
    return false;
}

static void begin(struct engine *e, struct job *j, uint32_t found, uint64_t now)
{
    const bool fresh = j->slot == ENGINE_NONE;
    j->rank = claim(e, j, now);
    j->tier = tier(j, now);
    schedule_remove(e, j);
    schedule_after(j);
    if (!j->has_pages) pages_promise(e, j, found);
    j->turn = e->turns++;
    j->owner->served = e->turns;
    j->owner->served_ns = now;
    j->slice = 0;
    put_running(e, j);
    set_state(j, j->n_ids && j->submitted >= job_known(j) ? JOB_DECODE : JOB_PREFILL);
    if (!fresh) {
        e->stats.resumes++;
        job_add_turn(j, TURN_RESUMED, now);
    } else if (set_sampler(e, j)) {
        count_prefix(e, j, found);
    }
}

/* A job that names another begins when that one's prompt is read: then the pages are there that it shares. */
void schedule_after(struct job *j)
{
    if (j->after) job_unref(j->after);
    j->after = NULL;
}

static bool must_wait(const struct job *j) { return j->after && !j->after->n_ids && !j->after->over; }

static bool before(const struct job *a, const struct job *b, uint64_t now)
{
    const int64_t mine = effective(a, now), other = effective(b, now);
    return mine > other || (mine == other && a->waiting_ns < b->waiting_ns);
}

static bool owner_before(const struct owner *a, const struct owner *b)
{
    if (a->claim != b->claim) return a->claim > b->claim;
    return a->served != b->served ? a->served < b->served : a->best->waiting_ns < b->best->waiting_ns;
}

/* j may be its owner's next; the owner stands in the list *all from its first one on. */
static void propose(struct engine *e, struct job *j, uint32_t found, uint64_t now, struct owner **all)
{
    struct owner *o = j->owner;
    const int64_t mine = claim(e, j, now);
    if (o->round != e->owners.round) {
        o->round = e->owners.round;
        o->best = NULL;
        o->other = *all;
        *all = o;
    }
    if (!o->best || mine > o->claim) o->claim = mine;
    if (o->best && !before(j, o->best, now)) return;
    o->best = j;
    o->found = found;
}

/* The waiting job that comes before all others, among all or among those that once ran and can begin. */
static struct job *first_waiting(struct engine *e, uint64_t now, bool begun, uint32_t *found)
{
    struct owner *all = NULL;
    e->owners.round++;
    for (uint32_t i = 0; i < e->n_waiting; i++) {
        struct job *j = e->waiting[i];
        uint32_t here = 0;
        if (must_wait(j) || (begun && (j->slot == ENGINE_NONE || !can_begin(e, j, now, &here)))) continue;
        propose(e, j, here, now, &all);
    }
    const struct owner *best = all;
    for (const struct owner *o = all; o; o = o->other)
        if (owner_before(o, best)) best = o;
    *found = best ? best->found : 0;
    return best ? best->best : NULL;
}

/* ---- giving way ---------------------------------------------------------------------------------------- */

static void park(struct engine *e, struct job *j, uint64_t now)
{
    schedule_remove(e, j);
    schedule_wait(e, j, now);
    set_state(j, JOB_YIELDED);
}

void schedule_drop_pages(struct engine *e, struct job *j)
{
    j->pending_drop = true;
    if (j->in_flight) return;
    pages_drop(e, j);
    /* What it had sampled is collected: nothing of it is in flight. */
    j->sampled = j->n_ids;
    atomic_store(&j->n_done, 0);
    e->schedule_due = true;
}

static void preempt(struct engine *e, struct job *j, uint64_t now, bool pages)
{
    if (j->running) park(e, j, now);
    if (pages) {
        set_state(j, JOB_PREEMPTED);
        schedule_drop_pages(e, j);
    }
    job_add_turn(j, TURN_PREEMPTED, now);
    atomic_fetch_add(&j->preemptions, 1);
    e->stats.preemptions++;
}

/* Is a better to take from than b? The lower rank, then the one that began last: least is lost. */
static bool yields_before(const struct job *a, const struct job *b)
{
    return !b || a->rank < b->rank || (a->rank == b->rank && a->turn > b->turn);
}

void schedule_use_slice(struct engine *e, struct job *j, uint32_t tokens)
{
    const uint32_t slice = atomic_load_explicit(&e->timeslice_tokens, memory_order_relaxed);
    if (slice && (j->slice += tokens) >= slice) e->schedule_due = true;
}

/* A running job whose time slice is used up makes place for c. */
static bool slice_for(struct engine *e, const struct job *c, uint64_t now)
{
    const uint32_t slice = atomic_load_explicit(&e->timeslice_tokens, memory_order_relaxed);
    const int64_t high = atomic_load_explicit(&e->high_priority, memory_order_relaxed);
    struct job *longest = NULL;
    for (uint32_t i = 0; slice && i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (j->slice < slice || j->rank >= high || claim(e, c, now) < j->priority ||
            (longest && j->slice <= longest->slice))
            continue;
        longest = j;
    }
    if (!longest) return false;
    park(e, longest, now);
    job_add_turn(longest, TURN_YIELDED, now);
    atomic_fetch_add(&longest->yields, 1);
    e->stats.yields++;
    return true;
}

/* Jobs that c may take from, first the one to take from first: running ones, and with `pages` yielded ones that hold
 * some. */
static uint32_t find_victims(const struct engine *e, const struct job *c, uint64_t now, bool pages,
                             struct job **victims)
{
    const int64_t high = atomic_load_explicit(&e->high_priority, memory_order_relaxed), mine = claim(e, c, now);
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_running + (pages ? e->n_waiting : 0); i++) {
        struct job *j = i < e->n_running ? e->running[i] : e->waiting[i - e->n_running];
        /* Pages that another engine is about to read stay: it is no longer than until the prompt is read. */
        if (j == c || j->rank >= high || j->rank >= mine || !j->has_pages || (pages && lease_grows(j))) continue;
        uint32_t at = n++;
        for (; at > 0 && yields_before(j, victims[at - 1]); at--) victims[at] = victims[at - 1];
        victims[at] = j;
    }
    return n;
}

/* Takes what a job of high priority lacks from lower ones. True: it may begin now; false: not, or not yet. */
static bool preempt_for(struct engine *e, struct job *c, uint64_t now)
{
    uint32_t found;
    if (!atomic_load_explicit(&e->preempt, memory_order_relaxed) ||
        claim(e, c, now) < atomic_load_explicit(&e->high_priority, memory_order_relaxed))
        return false;
    if (c->slot == ENGINE_NONE && !e->n_slots) return false;
    const bool place = e->n_running < e->o.max_sequences, pages = c->has_pages || pages_can_promise(e, c, &found);
    uint32_t n = find_victims(e, c, now, !pages, e->victims);
    if (!n) return false;
    if (pages) {
        preempt(e, e->victims[0], now, false);
        return true;
    }
    uint32_t enough = 1;
    while (enough <= n && !pages_would_do(e, c, e->victims, enough)) enough++;
    if (enough > n) return false;
    bool freed = place;
    for (uint32_t i = 0; i < enough; i++) {
        freed = freed || e->victims[i]->running;
        preempt(e, e->victims[i], now, true);
    }
    if (!freed) {
        n = find_victims(e, c, now, false, e->victims);
        if (n) preempt(e, e->victims[0], now, false);
    }
    return true;
}

/* ---- every step ---------------------------------------------------------------------------------------- */

/* Pages of preempted jobs are on their way: whom they were taken for is first. */
static bool pages_come(const struct engine *e)
{
    for (uint32_t i = 0; i < e->n_waiting; i++)
        if (e->waiting[i]->pending_drop) return true;
    return false;
}

void schedule(struct engine *e, uint64_t now)
{
    if (!e->schedule_due && now < e->schedule_at) return;
    e->schedule_due = false;
    e->schedule_at = now + LOOK_AGAIN_NS;
    while (e->n_waiting && !pages_come(e) && !atomic_load_explicit(&e->dead, memory_order_relaxed)) {
        uint32_t found = 0;
        struct job *head = first_waiting(e, now, false, &found), *next = head;
        if (!head) return;
        if (!make_room(e, head, now, &found)) next = first_waiting(e, now, true, &found);
        if (next && (e->n_running < e->o.max_sequences || slice_for(e, next, now)))
            begin(e, next, found, now);
        else if (!preempt_for(e, head, now))
            return;
    }
}
