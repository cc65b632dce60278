/* leases.c: see leases.h. A table of at most some hundred entries, walked whole: an id is compared with all of them in
 * the same time, whether it is there or not. */
#include "leases.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>

#include "base/hex.h"

enum { ID_BYTES = (LEASES_ID - 1) / 2 };

struct entry {
    struct engine_lease *lease; /* NULL: the place is free */
    char id[LEASES_ID];
    uint64_t salt[2], ends_ns;
    bool read;
};

struct leases {
    pthread_mutex_t lock;
    void (*drop)(struct engine_lease *lease);
    struct entry *list; /* [most] */
    uint32_t most, reserved;
    struct leases_figures figures;
};

wk_status leases_open(uint32_t most, void (*drop)(struct engine_lease *lease), struct leases **out,
                      const struct wk_err *err)
{
    struct leases *t = calloc(1, sizeof *t);
    if (t) t->list = calloc(most ? most : 1, sizeof *t->list);
    if (!t || !t->list || pthread_mutex_init(&t->lock, NULL) != 0) {
        if (t) free(t->list);
        free(t);
        return wk_fail(err, WK_NO_MEMORY, "no memory for %u hand-overs", most);
    }
    t->drop = drop;
    t->most = most;
    *out = t;
    return WK_OK;
}

void leases_close(struct leases *t)
{
    if (!t) return;
    leases_end(t);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->list);
    free(t);
}

/* ---- places -------------------------------------------------------------------------------------------- */

bool leases_reserve(struct leases *t)
{
    (void)pthread_mutex_lock(&t->lock);
    const bool room = t->reserved + t->figures.waiting < t->most;
    t->reserved += room;
    t->figures.full += !room;
    (void)pthread_mutex_unlock(&t->lock);
    return room;
}

void leases_unreserve(struct leases *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->reserved--;
    (void)pthread_mutex_unlock(&t->lock);
}

static uint64_t end_of(uint64_t now_ns) { return now_ns + LEASES_WAIT_S * UINT64_C(1000000000); }

bool leases_add(struct leases *t, struct engine_lease *lease, const uint64_t salt[2], uint64_t now_ns,
                char id[LEASES_ID])
{
    unsigned char random[ID_BYTES];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) return false;
    hex_write(random, sizeof random, id);
    (void)pthread_mutex_lock(&t->lock);
    struct entry *e = t->list; /* a place was reserved: one of them is free */
    while (e->lease) e++;
    *e = (struct entry){ .lease = lease, .salt = { salt[0], salt[1] }, .ends_ns = end_of(now_ns) };
    memcpy(e->id, id, sizeof e->id);
    t->reserved--;
    t->figures.waiting++;
    t->figures.offered++;
    (void)pthread_mutex_unlock(&t->lock);
    return true;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* The lock is held. NULL: there is none. */
static struct entry *find(struct leases *t, const char *id)
{
    struct entry *found = NULL;
    char asked[LEASES_ID] = "";
    if (strlen(id) != LEASES_ID - 1) return NULL;
    memcpy(asked, id, LEASES_ID - 1);
    for (uint32_t i = 0; i < t->most; i++)
        if (!CRYPTO_memcmp(t->list[i].id, asked, LEASES_ID - 1) && t->list[i].lease) found = &t->list[i];
    return found;
}

/* The lock is held. The lease, for the caller to end without it. */
static struct engine_lease *clear(struct leases *t, struct entry *e)
{
    struct engine_lease *lease = e->lease;
    *e = (struct entry){ 0 };
    t->figures.waiting--;
    return lease;
}

enum leases_found leases_take(struct leases *t, const char *id, const uint64_t salt[2], struct engine_lease **out)
{
    enum leases_found found = LEASES_UNKNOWN;
    (void)pthread_mutex_lock(&t->lock);
    struct entry *e = find(t, id);
    if (e && e->salt[0] == salt[0] && e->salt[1] == salt[1]) found = e->read ? LEASES_BUSY : LEASES_FOUND;
    if (found == LEASES_FOUND) {
        e->read = true;
        *out = e->lease;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return found;
}

void leases_return(struct leases *t, const char *id, bool taken, uint64_t now_ns)
{
    struct engine_lease *lease = NULL;
    (void)pthread_mutex_lock(&t->lock);
    struct entry *e = find(t, id); /* there: what is read does not end */
    e->read = false;
    e->ends_ns = end_of(now_ns);
    t->figures.taken += taken;
    if (taken) lease = clear(t, e);
    (void)pthread_mutex_unlock(&t->lock);
    if (lease) t->drop(lease);
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

/* The next one that ends, taken out; NULL: none does. */
static struct engine_lease *next_over(struct leases *t, uint64_t now_ns, bool all)
{
    struct engine_lease *lease = NULL;
    (void)pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->most && !lease; i++) {
        struct entry *e = &t->list[i];
        if (!e->lease || e->read || (!all && e->ends_ns > now_ns)) continue;
        t->figures.expired += !all;
        lease = clear(t, e);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return lease;
}

static void end_over(struct leases *t, uint64_t now_ns, bool all)
{
    for (struct engine_lease *lease; (lease = next_over(t, now_ns, all));) t->drop(lease);
}

void leases_tick(struct leases *t, uint64_t now_ns) { end_over(t, now_ns, false); }
void leases_end(struct leases *t) { end_over(t, 0, true); }

void leases_figures(struct leases *t, struct leases_figures *out)
{
    (void)pthread_mutex_lock(&t->lock);
    *out = t->figures;
    (void)pthread_mutex_unlock(&t->lock);
}
