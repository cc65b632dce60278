/* attempts.c: see attempts.h. 1,024 sets of 8 places, 24 bytes each. */
#include "attempts.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "siphash.h"

#define SECOND UINT64_C(1000000000)
#define EACH (60 * SECOND / ATTEMPTS_MINUTE)
#define BURST (EACH * ATTEMPTS_AT_ONCE)
enum { SETS = 1024, WAYS = 8 };

/* An address: kind 0 is a free place, 1 what is no address, 4 and 6. */
struct origin {
    uint64_t bits;
    uint64_t kind;
};

struct place {
    struct origin of;
    uint64_t at; /* its attempts are used up until then */
};

struct set {
    pthread_mutex_t lock;
    struct place place[WAYS];
};

struct attempts {
    struct siphash_key hash;
    struct set set[SETS];
};

wk_status attempts_open(struct attempts **out, const struct wk_err *err)
{
    *out = NULL;
    struct attempts *a = calloc(1, sizeof *a);
    if (!a) return wk_fail(err, WK_NO_MEMORY, "no memory for the table of failed authentications");
    const wk_status status = siphash_key_make(&a->hash, err);
    if (status) {
        free(a);
        return status;
    }
    for (int i = 0; i < SETS; i++) (void)pthread_mutex_init(&a->set[i].lock, NULL);
    *out = a;
    return WK_OK;
}

void attempts_close(struct attempts *a)
{
    if (!a) return;
    for (int i = 0; i < SETS; i++) (void)pthread_mutex_destroy(&a->set[i].lock);
    free(a);
}

static struct origin origin_of(const char *address)
{
    struct origin o = { 0, 1 };
    struct address a;
    char plain[INET6_ADDRSTRLEN];
    const size_t n = address ? strcspn(address, "%") : 0; /* fe80::1%eth0 */
    if (!n || n >= sizeof plain) return o;
    memcpy(plain, address, n);
    plain[n] = '\0';
    if (!address_read(plain, &a)) return o;
    o.kind = a.bits == ADDRESS_BITS_4 ? 4 : 6;
    memcpy(&o.bits, a.bytes, o.kind == 4 ? 4 : 8);
    return o;
}

/* The address's place in the set; NULL: it has none. */
static struct place *find(struct set *s, const struct origin *o)
{
    for (int i = 0; i < WAYS; i++)
        if (s->place[i].of.kind == o->kind && s->place[i].of.bits == o->bits) return &s->place[i];
    return NULL;
}

/* The place that is free soonest: one that was never used, one that is paid off, or the one that has least to pay. */
static struct place *take_place(struct set *s, const struct origin *o)
{
    struct place *soonest = &s->place[0];
    for (int i = 1; i < WAYS; i++)
        if (s->place[i].at < soonest->at) soonest = &s->place[i];
    *soonest = (struct place){ .of = *o };
    return soonest;
}

static uint64_t ask(struct attempts *a, const char *address, uint64_t now, int count)
{
    const struct origin o = origin_of(address);
    struct set *s = &a->set[siphash(&a->hash, &o, sizeof o) % SETS];
    uint64_t seconds = 0;
    (void)pthread_mutex_lock(&s->lock);
    struct place *p = find(s, &o);
    const uint64_t at = (p && p->at > now ? p->at : now) + EACH;
    if (at > now + BURST) {
        seconds = (at - now - BURST + SECOND - 1) / SECOND;
    } else if (count) {
        if (!p) p = take_place(s, &o);
        p->at = at;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return seconds;
}

uint64_t attempts_failed(struct attempts *a, const char *address, uint64_t now) { return ask(a, address, now, 1); }
uint64_t attempts_wait(struct attempts *a, const char *address, uint64_t now) { return ask(a, address, now, 0); }
