/* rates.c: see rates.h. A table of ids: chains from a power of two of buckets, and a clock's hand that looks for a
 * place to use again. Quotas are exact: a time has a fraction whose denominator is the limit, so that a limit of 7
 * admits 7 at once, and the 8th to the nanosecond. */
#include "rates.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "siphash.h"

#define SECOND UINT64_C(1000000000)
#define WINDOW (60 * SECOND)
#define NONE UINT32_MAX
enum { PLACES_MOST = 1 << 20, LOOKS = 64 /* places that one request looks at for a free one */ };

/* A quota that is used up to `at` + part / limit nanoseconds. */
struct quota {
    uint64_t at, part, limit;
    uint64_t returned; /* nanoseconds given back, ever */
};

struct place {
    pthread_mutex_t lock; /* of the quotas, for who holds the table's lock for reading */
    struct quota requests, tokens;
    uint64_t generation; /* of its use for one id */
    uint32_t next, n;    /* in the bucket's chain; bytes of the id, 0: free */
    char id[RATES_ID_MOST];
};

struct rates {
    pthread_rwlock_t lock; /* of the chains and the places' ids */
    struct siphash_key hash;
    struct place *places;
    uint32_t *buckets;
    uint32_t n_places, mask, used, hand;
};

/* ---- quotas ---------------------------------------------------------------------------------------------------- */

/* n * 60 s / limit: nanoseconds, and *part / limit of one. n <= RATES_LIMIT_MOST, and at most the limit. */
static uint64_t cost_of(uint64_t n, uint64_t limit, uint64_t *part)
{
    const uint64_t minute = n * 60, rest = minute % limit * SECOND; /* below 2^38 and 2^62 */
    *part = rest % limit;
    return minute / limit * SECOND + rest / limit;
}

/* What is used up as of now, in parts of this limit. */
static struct quota as_of(const struct quota *q, uint64_t limit, uint64_t now)
{
    struct quota x = *q;
    if (x.limit != limit && x.part) {
        x.at++;
        x.part = 0;
    }
    x.limit = limit;
    if (x.at < now) {
        x.at = now;
        x.part = 0;
    }
    return x;
}

static void charge(struct quota *q, uint64_t n)
{
    uint64_t part;
    q->at += cost_of(n, q->limit, &part);
    q->part += part;
    if (q->part >= q->limit) {
        q->part -= q->limit;
        q->at++;
    }
}

static uint64_t rounded_up(const struct quota *q) { return q->at + (q->part > 0); }

/* How long until q, charged, is within the burst. */
static uint64_t wait_of(const struct quota *q, uint64_t now)
{
    const uint64_t end = rounded_up(q);
    return end > now + WINDOW ? end - now - WINDOW : 0;
}

/* floor((60 s - used) * limit / 60 s), without a product that is too large: whole seconds, and the rest of one. */
static struct rates_figure figure_of(const struct quota *q, uint64_t now)
{
    struct rates_figure f = { .limit = q->limit, .reset_ns = rounded_up(q) - now };
    if (f.reset_ns > WINDOW) return f;
    uint64_t seconds = (now + WINDOW - q->at) / SECOND, rest = (now + WINDOW - q->at) % SECOND;
    if (rest * q->limit < q->part) {
        seconds--; /* there is one: else 60 s would be used up, and a part of a nanosecond more */
        rest += SECOND;
    }
    f.remaining = (seconds * q->limit + (rest * q->limit - q->part) / SECOND) / 60;
    return f;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

wk_status rates_open(uint32_t places, struct rates **out, const struct wk_err *err)
{
    *out = NULL;
    if (!places || places > PLACES_MOST)
        return wk_fail(err, WK_INVALID, "expected 1 to %d places for rates, got %u", PLACES_MOST, places);
    uint32_t buckets = 1;
    while (buckets < places) buckets *= 2;
    struct rates *r = calloc(1, sizeof *r);
    if (!r) return wk_fail(err, WK_NO_MEMORY, "no memory for the table of rates");
    r->places = calloc(places, sizeof *r->places);
    r->buckets = malloc(buckets * sizeof *r->buckets);
    r->mask = buckets - 1;
    const wk_status status = r->places && r->buckets
                                 ? siphash_key_make(&r->hash, err)
                                 : wk_fail(err, WK_NO_MEMORY, "no memory for rates of %u keys", places);
    if (status) {
        free(r->places);
        free(r->buckets);
        free(r);
        return status;
    }
    for (uint32_t i = 0; i < buckets; i++) r->buckets[i] = NONE;
    pthread_rwlockattr_t fair;
    (void)pthread_rwlockattr_init(&fair);
    (void)pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&r->lock, &fair);
    (void)pthread_rwlockattr_destroy(&fair);
    for (; r->n_places < places; r->n_places++) (void)pthread_mutex_init(&r->places[r->n_places].lock, NULL);
    *out = r;
    return WK_OK;
}

void rates_close(struct rates *r)
{
    if (!r) return;
    for (uint32_t i = 0; i < r->n_places; i++) (void)pthread_mutex_destroy(&r->places[i].lock);
    (void)pthread_rwlock_destroy(&r->lock);
    free(r->places);
    free(r->buckets);
    free(r);
}

static uint32_t *bucket_of(struct rates *r, const char *id, size_t n)
{
    return &r->buckets[siphash(&r->hash, id, n) & r->mask];
}

static struct place *find(struct rates *r, const char *id, size_t n)
{
    for (uint32_t i = *bucket_of(r, id, n); i != NONE; i = r->places[i].next)
        if (r->places[i].n == n && memcmp(r->places[i].id, id, n) == 0) return &r->places[i];
    return NULL;
}

static bool paid_off(const struct quota *q, uint64_t now) { return rounded_up(q) <= now; }

static void forget(struct rates *r, struct place *p)
{
    const uint32_t index = (uint32_t)(p - r->places);
    uint32_t *link = bucket_of(r, p->id, p->n);
    while (*link != index) link = &r->places[*link].next;
    *link = p->next;
    p->n = 0;
}

/* A place that nobody uses, or whose id has nothing to pay off. NULL: none of those looked at. */
static struct place *take_place(struct rates *r, uint64_t now)
{
    if (r->used < r->n_places) return &r->places[r->used++];
    for (int i = 0; i < LOOKS; i++) {
        struct place *p = &r->places[r->hand];
        r->hand = (r->hand + 1) % r->n_places;
        if (!paid_off(&p->requests, now) || !paid_off(&p->tokens, now)) continue;
        forget(r, p);
        return p;
    }
    return NULL;
}

/* With the table's lock for writing. NULL: there is no place. */
static struct place *insert(struct rates *r, const char *id, size_t n, uint64_t now)
{
    struct place *p = take_place(r, now);
    if (!p) return NULL;
    uint32_t *bucket = bucket_of(r, id, n);
    p->requests = p->tokens = (struct quota){ 0 };
    p->generation++;
    p->n = (uint32_t)n;
    memcpy(p->id, id, n);
    p->next = *bucket;
    *bucket = (uint32_t)(p - r->places);
    return p;
}

/* The id's place with the table's lock held for reading or writing; it is held too when there is none. */
static struct place *enter(struct rates *r, const char *id, size_t n, uint64_t now)
{
    (void)pthread_rwlock_rdlock(&r->lock);
    struct place *p = find(r, id, n);
    if (p) return p;
    (void)pthread_rwlock_unlock(&r->lock);
    (void)pthread_rwlock_wrlock(&r->lock);
    p = find(r, id, n);
    return p ? p : insert(r, id, n, now);
}

/* ---- reserve and settle ---------------------------------------------------------------------------------------- */

static wk_status check(const char *id, size_t n, const struct rates_limits *limits, const struct wk_err *err)
{
    if (!id || !n || n > RATES_ID_MOST)
        return wk_fail(err, WK_INVALID, "expected an id of 1 to %d bytes for rates, got %zu", RATES_ID_MOST, n);
    if (limits->requests > RATES_LIMIT_MOST || limits->tokens > RATES_LIMIT_MOST)
        return wk_fail(err, WK_INVALID, "a limit is at most %u in 60 s", RATES_LIMIT_MOST);
    return WK_OK;
}

static void tell(struct rates_answer *a, const struct quota *requests, const struct quota *tokens,
                 const struct rates_limits *limits, uint64_t now)
{
    if (limits->requests) a->requests = figure_of(requests, now);
    if (limits->tokens) a->tokens = figure_of(tokens, now);
}

/* With the place's lock. */
static void reserve(struct place *p, const struct rates_limits *limits, uint64_t n, uint64_t now,
                    struct rates_answer *a)
{
    const struct quota had_requests = as_of(&p->requests, limits->requests, now);
    const struct quota had_tokens = as_of(&p->tokens, limits->tokens, now);
    struct quota requests = had_requests, tokens = had_tokens;
    if (limits->requests) charge(&requests, 1);
    if (limits->tokens && n <= limits->tokens) charge(&tokens, n);
    const uint64_t wait = limits->requests ? wait_of(&requests, now) : 0;
    const uint64_t wait_tokens = limits->tokens ? wait_of(&tokens, now) : 0;
    if (limits->tokens && n > limits->tokens) {
        a->verdict = RATES_NEVER;
        a->what = "tokens";
    } else if (wait || wait_tokens) {
        a->verdict = RATES_WAIT;
        a->what = wait_tokens > wait ? "tokens" : "requests";
        a->wait_ns = wait_tokens > wait ? wait_tokens : wait;
    }
    if (a->verdict) {
        tell(a, &had_requests, &had_tokens, limits, now);
        return;
    }
    if (limits->requests) p->requests = requests;
    if (limits->tokens) p->tokens = tokens;
    tell(a, &requests, &tokens, limits, now);
}

wk_status rates_reserve(struct rates *r, const char *id, size_t n, const struct rates_limits *limits, uint64_t tokens,
                        uint64_t now, struct rates_hold *hold, struct rates_answer *answer, const struct wk_err *err)
{
    *hold = (struct rates_hold){ 0 };
    *answer = (struct rates_answer){ .verdict = RATES_ADMITTED };
    const wk_status status = check(id, n, limits, err);
    if (status || (!limits->requests && !limits->tokens)) return status;
    struct place *p = enter(r, id, n, now);
    if (!p) {
        answer->verdict = RATES_FULL;
        answer->what = limits->requests ? "requests" : "tokens";
        answer->wait_ns = SECOND;
        answer->requests = (struct rates_figure){ limits->requests, limits->requests, 0 };
        answer->tokens = (struct rates_figure){ limits->tokens, limits->tokens, 0 };
    } else {
        (void)pthread_mutex_lock(&p->lock);
        reserve(p, limits, tokens, now, answer);
        if (answer->verdict == RATES_ADMITTED && limits->tokens)
            *hold = (struct rates_hold){ .tokens = tokens,
                                         .limit = limits->tokens,
                                         .until = p->tokens.at,
                                         .returned = p->tokens.returned,
                                         .generation = p->generation,
                                         .place = (uint32_t)(p - r->places),
                                         .held = 1 };
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_rwlock_unlock(&r->lock);
    return WK_OK;
}

/* Gives back what was not used, as far as time has not paid it off. The reservation ends at h->until, moved back by all
 * that was returned since it was made; the part of it that lies before now is lost, as if it had been used. So at any
 * moment, all reservations together can still give back no more than what is used up ahead of that moment. */
static void give_back(struct quota *q, const struct rates_hold *h, uint64_t unused, uint64_t now)
{
    uint64_t part, back = cost_of(unused, h->limit, &part);
    const uint64_t since = q->returned - h->returned;
    if (h->until <= now || h->until - now <= since || q->at <= now) return;
    if (back > h->until - now - since) back = h->until - now - since;
    if (back > q->at - now) back = q->at - now;
    q->at -= back;
    q->returned += back;
}

static void charge_more(struct quota *q, const struct rates_hold *h, uint64_t more, uint64_t now)
{
    uint64_t part;
    *q = as_of(q, q->limit, now);
    q->at += cost_of(more < h->limit ? more : h->limit, h->limit, &part);
}

void rates_settle(struct rates *r, struct rates_hold *hold, uint64_t used, uint64_t now)
{
    if (!hold->held) return;
    (void)pthread_rwlock_rdlock(&r->lock);
    struct place *p = &r->places[hold->place];
    if (p->n && p->generation == hold->generation) {
        (void)pthread_mutex_lock(&p->lock);
        if (used <= hold->tokens)
            give_back(&p->tokens, hold, hold->tokens - used, now);
        else
            charge_more(&p->tokens, hold, used - hold->tokens, now);
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_rwlock_unlock(&r->lock);
    *hold = (struct rates_hold){ 0 };
}

wk_status rates_look(struct rates *r, const char *id, size_t n, const struct rates_limits *limits, uint64_t now,
                     struct rates_answer *answer, const struct wk_err *err)
{
    struct quota requests = { 0 }, tokens = { 0 };
    *answer = (struct rates_answer){ .verdict = RATES_ADMITTED };
    const wk_status status = check(id, n, limits, err);
    if (status) return status;
    (void)pthread_rwlock_rdlock(&r->lock);
    struct place *p = find(r, id, n);
    if (p) {
        (void)pthread_mutex_lock(&p->lock);
        requests = p->requests;
        tokens = p->tokens;
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)pthread_rwlock_unlock(&r->lock);
    requests = as_of(&requests, limits->requests, now);
    tokens = as_of(&tokens, limits->tokens, now);
    tell(answer, &requests, &tokens, limits, now);
    return WK_OK;
}

/* ---- for headers ------------------------------------------------------------------------------------------------ */

uint64_t rates_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

uint64_t rates_retry_after(uint64_t wait_ns)
{
    const uint64_t seconds = wait_ns / SECOND + (wait_ns % SECOND > 0);
    return seconds ? seconds : 1;
}

const char *rates_duration(uint64_t ns, char out[RATES_TEXT])
{
    const uint64_t ms = ns / 1000000 + (ns % 1000000 > 0);
    const uint64_t hours = ms / 3600000, minutes = ms / 60000 % 60, seconds = ms / 1000 % 60;
    unsigned rest = (unsigned)(ms % 1000);
    int n = 0, digits = 3;
    if (ms && ms < 1000) {
        (void)snprintf(out, RATES_TEXT, "%ums", rest);
        return out;
    }
    if (hours) n += snprintf(out + n, RATES_TEXT - (size_t)n, "%uh", (unsigned)hours);
    if (hours || minutes) n += snprintf(out + n, RATES_TEXT - (size_t)n, "%um", (unsigned)minutes);
    n += snprintf(out + n, RATES_TEXT - (size_t)n, "%u", (unsigned)seconds);
    for (; rest && rest % 10 == 0; digits--) rest /= 10;
    if (rest) n += snprintf(out + n, RATES_TEXT - (size_t)n, ".%0*u", digits, rest);
    (void)snprintf(out + n, RATES_TEXT - (size_t)n, "s");
    return out;
}
