/* peer_taker.c: see peer.h: who takes pages. The memory of each giver is opened once; the connection that it came by
 * stays open and ends with the giver. Memory of a giver that has ended would stay on its GPU until it is given back
 * here. */
#include "peer_link.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct known {
    char name[PEER_NAME]; /* "": none */
    struct device_peer *memory;
    int watch;
    uint32_t users;
    uint64_t used; /* when it was last asked for: the number */
};
struct peer_taker {
    struct engine *engine;
    pthread_mutex_t lock;
    uint64_t turns;
    struct known known[PEER_OPEN];
};

/* ---- givers -------------------------------------------------------------------------------------------- */

static bool ended(const struct known *k)
{
    struct pollfd p = { .fd = k->watch, .events = POLLIN };
    return poll(&p, 1, 0) > 0; /* a giver sends nothing there any more */
}

static void forget(struct peer_taker *t, struct known *k)
{
    engine_peer_close(t->engine, k->memory);
    (void)close(k->watch);
    *k = (struct known){ .watch = -1 };
}

static wk_status refused(const struct link_message *m, const struct wk_err *err)
{
    struct link_refused r;
    if (m->kind != LINK_REFUSED || m->bytes != sizeof r)
        return wk_fail(err, WK_INVALID, "the worker that gives the pages answered with a message of another kind");
    memcpy(&r, m->payload, sizeof r);
    r.text[sizeof r.text - 1] = 0;
    return wk_fail(err, r.status == WK_UNSUPPORTED ? WK_UNSUPPORTED : WK_INVALID, "the worker that gives the pages: %s",
                   r.text);
}

static wk_status broken(const atomic_bool *stop, const struct wk_err *err)
{
    if (stop && atomic_load(stop)) return wk_fail(err, WK_CANCELLED, "cancelled");
    return wk_fail(err, WK_INVALID, "the worker that gives the pages broke off");
}

static wk_status ask(int socket, enum link_kind kind, const struct link_ask *what, const struct packet *mine,
                     const atomic_bool *stop, const struct wk_err *err)
{
    const size_t n = packet_bytes(mine);
    uint8_t *bytes = n <= LINK_MOST - sizeof *what ? malloc(n) : NULL;
    if (!bytes) return wk_fail(err, WK_NO_MEMORY, "out of memory for a packet of %zu bytes", n);
    packet_write(mine, bytes);
    const bool sent = link_send(socket, kind, what, what ? (uint32_t)sizeof *what : 0, bytes, (uint32_t)n, -1, stop);
    free(bytes);
    return sent ? WK_OK : broken(stop, err);
}

static wk_status open_memory(struct peer_taker *t, struct known *k, const char *name, const struct packet *mine,
                             const atomic_bool *stop, const struct wk_err *err)
{
    struct packet control = *mine;
    struct link_message m;
    struct device_share share;
    control.n_tokens = control.last_id = 0;
    control.tokens = NULL;
    const int socket = link_connect(name, err);
    if (socket < 0) return WK_UNSUPPORTED;
    wk_status s = ask(socket, LINK_ASK_SHARE, NULL, &control, stop, err);
    if (!s && !link_receive(socket, &m, false, stop)) s = broken(stop, err);
    if (!s) {
        if (m.kind != LINK_SHARE || m.bytes != sizeof share || m.fd < 0)
            s = refused(&m, err);
        else {
            memcpy(&share, m.payload, sizeof share);
            share.fd = m.fd;
            s = engine_peer_open(t->engine, &share, &k->memory, err);
        }
        link_forget(&m);
    }
    if (s) {
        (void)close(socket);
        return s;
    }
    memcpy(k->name, name, strnlen(name, PEER_NAME - 1) + 1);
    k->watch = socket;
    return WK_OK;
}

/* A place for one more: an empty one, or that of who was asked longest ago. */
static struct known *place(struct peer_taker *t)
{
    struct known *best = NULL;
    for (uint32_t i = 0; i < PEER_OPEN; i++) {
        struct known *k = &t->known[i];
        if (!k->users && (!best || k->used < best->used)) best = k;
    }
    if (best && best->name[0]) forget(t, best);
    return best;
}

static wk_status use(struct peer_taker *t, const char *name, const struct packet *mine, const atomic_bool *stop,
                     struct known **out, const struct wk_err *err)
{
    wk_status s = WK_OK;
    struct known *k = NULL;
    if (!name[0] || strnlen(name, PEER_NAME) == PEER_NAME)
        return wk_fail(err, WK_INVALID, "a worker's name of no bytes, or more than %d", PEER_NAME - 1);
    (void)pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < PEER_OPEN && !k; i++)
        if (!strcmp(t->known[i].name, name)) k = &t->known[i];
    if (k && ended(k))
        s = wk_fail(err, WK_INVALID, "the worker that gives the pages has ended");
    else if (!k) {
        k = place(t);
        s = k ? open_memory(t, k, name, mine, stop, err)
              : wk_fail(err, WK_UNSUPPORTED, "pages of %d other workers are on their way", PEER_OPEN);
    }
    if (!s) {
        k->users++;
        k->used = ++t->turns;
        *out = k;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return s;
}

static void leave(struct peer_taker *t, struct known *k)
{
    (void)pthread_mutex_lock(&t->lock);
    k->users--;
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- pages --------------------------------------------------------------------------------------------- */

/* One message's pages; *from: the block that it has to begin with. */
static wk_status copy(const struct link_message *m, const struct known *k, struct engine_import *i,
                      const struct engine_layout *layout, uint32_t blocks, uint32_t *from, const struct wk_err *err)
{
    struct link_pages run;
    if (m->kind != LINK_PAGES || m->bytes < sizeof run) return refused(m, err);
    memcpy(&run, m->payload, sizeof run);
    if (run.from != *from || run.to <= run.from || run.to > blocks ||
        run.n != engine_block_pages(layout, blocks, run.from, run.to) ||
        m->bytes != sizeof run + (uint64_t)run.n * sizeof(struct device_page))
        return wk_fail(err, WK_INVALID, "the worker that gives the pages named %u pages of blocks %u to %u", run.n,
                       run.from, run.to);
    struct device_page *pages = malloc(run.n ? run.n * sizeof *pages : 1);
    if (!pages) return wk_fail(err, WK_NO_MEMORY, "out of memory for a list of %u pages", run.n);
    memcpy(pages, m->payload + sizeof run, run.n * sizeof *pages);
    const wk_status s = engine_import_peer(i, run.from, run.to, k->memory, pages, err);
    free(pages);
    *from = run.to;
    return s;
}

static wk_status take_all(int socket, const struct known *k, const struct packet *mine, struct engine_import *i,
                          const atomic_bool *stop, const struct wk_err *err)
{
    struct link_message m;
    uint32_t from, blocks;
    engine_import_range(i, &from, &blocks);
    while (from < blocks) {
        if (!link_receive(socket, &m, true, stop)) return broken(stop, err);
        const wk_status s = copy(&m, k, i, &mine->layout, blocks, &from, err);
        link_forget(&m);
        if (s) return s;
    }
    /* Only if the pages were held until now they are what was read. */
    if (!link_send(socket, LINK_TAKEN, NULL, 0, NULL, 0, -1, stop) || !link_receive(socket, &m, false, stop))
        return broken(stop, err);
    const wk_status s = m.kind == LINK_HELD ? WK_OK : refused(&m, err);
    link_forget(&m);
    return s;
}

wk_status peer_take(struct peer_taker *t, const char *name, const char *ticket, const struct packet *mine,
                    struct engine_import *i, const atomic_bool *stop, const struct wk_err *err)
{
    struct known *k = NULL;
    struct link_ask what = { .from = 0 };
    uint32_t blocks;
    engine_import_range(i, &what.from, &blocks);
    if (mine->n_tokens != blocks * KV_PAGE)
        return wk_fail(err, WK_INVALID, "a packet of %u tokens for an import of %u", mine->n_tokens, blocks * KV_PAGE);
    memcpy(what.ticket, ticket, strnlen(ticket, PEER_TICKET - 1));
    wk_status s = use(t, name, mine, stop, &k, err);
    if (s) return s;
    const int socket = link_connect(name, err);
    s = socket < 0 ? WK_INVALID : ask(socket, LINK_ASK_PAGES, &what, mine, stop, err);
    if (!s) s = take_all(socket, k, mine, i, stop, err);
    if (socket >= 0) (void)close(socket);
    leave(t, k);
    return s;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

wk_status peer_taker_open(struct engine *e, struct peer_taker **out, const struct wk_err *err)
{
    struct peer_taker *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return wk_fail(err, WK_NO_MEMORY, "out of memory for taking pages");
    t->engine = e;
    (void)pthread_mutex_init(&t->lock, NULL);
    return WK_OK;
}

/* The lock is held for as long as a giver is asked for its memory, which may be silent: then at the next call. */
void peer_taker_tick(struct peer_taker *t)
{
    if (pthread_mutex_trylock(&t->lock)) return;
    for (uint32_t i = 0; i < PEER_OPEN; i++)
        if (t->known[i].name[0] && !t->known[i].users && ended(&t->known[i])) forget(t, &t->known[i]);
    (void)pthread_mutex_unlock(&t->lock);
}

void peer_taker_close(struct peer_taker *t)
{
    if (!t) return;
    for (uint32_t i = 0; i < PEER_OPEN; i++)
        if (t->known[i].name[0]) forget(t, &t->known[i]);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}
