/* peer_giver.c: see peer.h: who gives pages. One thread accepts; each connection has a thread of its own, at most
 * CONNECTIONS. A connection that asked for the memory stays open and idle: the taker watches it. */
#include "peer_link.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 2 * PEER_GIVES, RUN_PAGES = 8192, LOOK_MS = 50 };

struct peer_giver {
    struct engine *engine;
    struct packet is;
    struct peer_leases leases;
    char name[PEER_NAME];
    int socket;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t left;
    uint32_t connections;
};
struct connection {
    struct peer_giver *giver;
    int socket;
};

/* ---- answers ------------------------------------------------------------------------------------------- */

static void refuse(const struct connection *c, wk_status status, const char *text)
{
    struct link_refused r = { .status = (int32_t)status };
    (void)snprintf(r.text, sizeof r.text, "%s", text);
    (void)link_send(c->socket, LINK_REFUSED, &r, sizeof r, NULL, 0, -1, &c->giver->stop);
}

/* Is the packet that was sent what this process would say, of these tokens? */
static wk_status compare(const struct peer_giver *g, const uint32_t *tokens, uint32_t n, const uint8_t *sent,
                         size_t bytes, const struct wk_err *err)
{
    struct packet mine = g->is, theirs;
    uint8_t *raw = NULL;
    wk_status s = packet_read(sent, bytes, &theirs, err);
    if (s) return s;
    mine.n_tokens = n;
    if (n) {
        raw = malloc((size_t)n * 4);
        if (!raw) return wk_fail(err, WK_NO_MEMORY, "out of memory for %u tokens", n);
        packet_put_tokens(tokens, n, raw);
        mine.tokens = raw;
    }
    s = packet_check(&mine, &theirs, err);
    free(raw);
    return s;
}

static void give_share(const struct connection *c, const struct link_message *m)
{
    struct peer_giver *g = c->giver;
    char text[252] = "";
    const struct wk_err err = { text, sizeof text };
    struct device_share share;
    wk_status s = compare(g, NULL, 0, m->payload, m->bytes, &err);
    if (!s) s = engine_share(g->engine, &share, &err);
    if (s) {
        refuse(c, s, text);
        return;
    }
    const bool sent = link_send(c->socket, LINK_SHARE, &share, sizeof share, NULL, 0, share.fd, &g->stop);
    (void)close(share.fd);
    struct link_message none;
    if (sent && link_receive(c->socket, &none, true, &g->stop)) link_forget(&none); /* until the taker leaves */
}

/* Blocks [*from, ready), in messages of bounded length. */
static bool send_pages(const struct connection *c, struct engine_lease *l, uint32_t *from, uint32_t ready)
{
    const struct engine_layout *layout = &c->giver->is.layout;
    uint32_t blocks;
    (void)engine_lease_tokens(l, &blocks);
    while (*from < ready) {
        struct device_page pages[RUN_PAGES];
        const uint32_t most = RUN_PAGES / layout->n_groups, left = ready - *from;
        const struct link_pages run = { *from, *from + (left < most ? left : most),
                                        engine_block_pages(layout, blocks, *from,
                                                           *from + (left < most ? left : most)) };
        if (engine_lease_pages(l, run.from, run.to, pages, NULL)) return false;
        if (!link_send(c->socket, LINK_PAGES, &run, sizeof run, pages, run.n * (uint32_t)sizeof *pages, -1,
                       &c->giver->stop))
            return false;
        *from = run.to;
    }
    return true;
}

/* True: the taker has copied all. */
static bool give_lease(const struct connection *c, struct engine_lease *l, uint32_t from)
{
    struct peer_giver *g = c->giver;
    struct link_message m;
    uint32_t blocks, ready;
    (void)engine_lease_tokens(l, &blocks);
    while (from < blocks) {
        const enum lease_state state = engine_lease_wait(l, from, LOOK_MS, &ready);
        if (state == LEASE_LOST) {
            refuse(c, WK_INVALID, engine_lease_text(l));
            return false;
        }
        if (atomic_load(&g->stop) || (ready > from && !send_pages(c, l, &from, ready))) return false;
    }
    if (!link_receive(c->socket, &m, false, &g->stop)) return false;
    const bool taken = m.kind == LINK_TAKEN;
    link_forget(&m);
    return taken && link_send(c->socket, LINK_HELD, NULL, 0, NULL, 0, -1, &g->stop);
}

static void give_pages(const struct connection *c, const struct link_message *m)
{
    struct peer_giver *g = c->giver;
    struct link_ask ask;
    char text[252] = "";
    uint32_t blocks;
    if (m->bytes < sizeof ask) return;
    memcpy(&ask, m->payload, sizeof ask);
    ask.ticket[PEER_TICKET - 1] = 0;
    struct engine_lease *l = g->leases.find(g->leases.user, ask.ticket);
    if (!l) {
        refuse(c, WK_INVALID, "there is no such hand-over, or not any more");
        return;
    }
    const uint32_t *tokens = engine_lease_tokens(l, &blocks);
    const wk_status s = compare(g, tokens, blocks * KV_PAGE, m->payload + sizeof ask, m->bytes - sizeof ask,
                                &(struct wk_err){ text, sizeof text });
    bool taken = false;
    if (s || ask.from > blocks)
        refuse(c, s ? s : WK_INVALID, s ? text : "the blocks that are asked for are behind the last");
    else
        taken = give_lease(c, l, ask.from);
    g->leases.done(g->leases.user, ask.ticket, l, taken);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    struct connection *c = arg;
    struct peer_giver *g = c->giver;
    struct link_message m;
    if (link_receive(c->socket, &m, false, &g->stop)) {
        if (m.kind == LINK_ASK_SHARE)
            give_share(c, &m);
        else if (m.kind == LINK_ASK_PAGES)
            give_pages(c, &m);
        link_forget(&m);
    }
    (void)close(c->socket);
    free(c);
    (void)pthread_mutex_lock(&g->lock);
    g->connections--;
    (void)pthread_cond_signal(&g->left);
    (void)pthread_mutex_unlock(&g->lock);
    return NULL;
}

static bool take_place(struct peer_giver *g)
{
    (void)pthread_mutex_lock(&g->lock);
    const bool free_one = g->connections < CONNECTIONS;
    g->connections += free_one;
    (void)pthread_mutex_unlock(&g->lock);
    return free_one;
}

static void leave_place(struct peer_giver *g)
{
    (void)pthread_mutex_lock(&g->lock);
    g->connections--;
    (void)pthread_mutex_unlock(&g->lock);
}

/* Who is refused finds the connection closed. */
static void greet(struct peer_giver *g, int socket)
{
    struct connection *c = link_same_user(socket) && take_place(g) ? malloc(sizeof *c) : NULL;
    pthread_attr_t detached;
    pthread_t thread;
    if (c) {
        *c = (struct connection){ g, socket };
        (void)pthread_attr_init(&detached);
        (void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        const bool begun = !pthread_create(&thread, &detached, serve, c);
        (void)pthread_attr_destroy(&detached);
        if (begun) return;
        leave_place(g);
        free(c);
    }
    (void)close(socket);
}

static void *accept_all(void *arg)
{
    struct peer_giver *g = arg;
    while (!atomic_load(&g->stop)) {
        struct pollfd p = { .fd = g->socket, .events = POLLIN };
        if (poll(&p, 1, LOOK_MS) <= 0) continue;
        const int one = accept4(g->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (one >= 0) greet(g, one);
    }
    return NULL;
}

wk_status peer_giver_open(struct engine *e, const struct packet *is, const struct peer_leases *leases,
                          struct peer_giver **out, const struct wk_err *err)
{
    struct device_share share;
    *out = NULL;
    wk_status s = engine_share(e, &share, err); /* is it possible at all? */
    if (s) return s;
    (void)close(share.fd);
    struct peer_giver *g = calloc(1, sizeof *g);
    if (!g) return wk_fail(err, WK_NO_MEMORY, "out of memory for giving pages");
    g->engine = e;
    g->is = *is;
    g->is.n_tokens = 0;
    g->leases = *leases;
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->left, NULL);
    g->socket = link_listen(g->name, err);
    if (g->socket < 0)
        s = WK_IO;
    else if (pthread_create(&g->thread, NULL, accept_all, g))
        s = wk_fail(err, WK_NO_MEMORY, "no thread for giving pages");
    if (!s) {
        *out = g;
        return WK_OK;
    }
    if (g->socket >= 0) (void)close(g->socket);
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_cond_destroy(&g->left);
    free(g);
    return s;
}

const char *peer_giver_name(const struct peer_giver *g) { return g->name; }

void peer_giver_close(struct peer_giver *g)
{
    if (!g) return;
    atomic_store(&g->stop, true);
    (void)pthread_join(g->thread, NULL);
    (void)close(g->socket);
    (void)pthread_mutex_lock(&g->lock);
    while (g->connections) (void)pthread_cond_wait(&g->left, &g->lock);
    (void)pthread_mutex_unlock(&g->lock);
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_cond_destroy(&g->left);
    free(g);
}
