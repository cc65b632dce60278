/* give.c: POST /worker/handover: the pages of one hand-over to the worker that decodes its prompt. An answer is frames
 * (handover/frames.h). What cannot be given is refused before the first of them; what fails later breaks the answer
 * off, and the hand-over waits for somebody who asks again. */
#include "handover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "body.h"
#include "caller.h"
#include "engine/handover.h"
#include "handover/crc32c.h"
#include "handover/frames.h"
#include "handover/runs.h"
#include "log/log.h"

enum {
    BODY_MOST = 4096,
    BUSY_MS = 1000,  /* for a hand-over that somebody reads */
    BUSY_US = 10000, /* between two looks whether he still does */
    READ_MS = 5000,  /* until a segment was read: then its reader is gone */
    POLL_US = 100,   /* between two looks whether it was */
    UNREAD_MOST = 4, /* segments that wait to be read */
    BLOCKS_MOST = 1 << 27
};

/* A request as it was read; texts are the body's. */
struct asked {
    json_t *body;
    const char *id, *tokens, *fingerprint, *digest, *place;
    uint32_t from, to;
    bool shm, peer; /* it can read segments, this process's memory; both of `place`; NULL: it said none */
};

struct give {
    struct serve *s;
    struct http_request *r;
    const struct serve_model *m;
    struct asked q;
    struct engine_lease *lease;
    struct engine_layout layout;
    const uint32_t *ids;
    uint32_t blocks;
    char *run; /* [run_cap] */
    size_t run_cap;
    struct segment unread[UNREAD_MOST];
    uint32_t n_unread;
    uint64_t bytes;
    enum handover_way way;
};

/* ---- the request --------------------------------------------------------------------------------------- */

static bool read_word(const struct body_object *o, const char *name, size_t most, const char **out, struct refusal *why)
{
    return body_required(o, name, why) && body_name(o, name, most, out, why);
}

static bool read_ways(const struct body_object *o, struct asked *q, struct refusal *why)
{
    const json_t *ways = json_object_get(o->object, "ways");
    if (!json_is_array(ways) || !json_array_size(ways))
        return body_fail(o, "ways", why, "a list of ways for the pages");
    for (size_t i = 0; i < json_array_size(ways); i++) {
        const json_t *way = json_array_get(ways, i);
        q->shm = q->shm || body_says(way, handover_way_name(HANDOVER_SHM));
        q->peer = q->peer || body_says(way, handover_way_name(HANDOVER_PEER));
    }
    return true;
}

static bool read_asked(const char *bytes, size_t n, struct asked *q, struct refusal *why)
{
    static const char *const names[] = { "id", "from", "to", "tokens", "fingerprint", "digest", "place", "ways" };
    int64_t from = 0, to = 0;
    if (!body_parse(bytes, n, &q->body, why)) return false;
    const struct body_object o = { q->body, "" };
    if (!body_knows(&o, names, sizeof names / sizeof *names, why) || !read_word(&o, "id", LEASES_ID - 1, &q->id, why) ||
        !read_word(&o, "tokens", 64, &q->tokens, why) || !read_word(&o, "fingerprint", 79, &q->fingerprint, why) ||
        !read_word(&o, "digest", 64, &q->digest, why) || !body_name(&o, "place", SEGMENT_PLACE - 1, &q->place, why) ||
        !body_required(&o, "from", why) || !body_integer(&o, "from", 0, BLOCKS_MOST, &from, why) ||
        !body_required(&o, "to", why) || !body_integer(&o, "to", from, BLOCKS_MOST, &to, why))
        return false;
    q->from = (uint32_t)from;
    q->to = (uint32_t)to;
    return read_ways(&o, q, why);
}

/* ---- may it be given? ---------------------------------------------------------------------------------- */

/* The pages are of this prompt, and of use to who asks. */
static bool fits(const struct give *g, struct refusal *why)
{
    char tokens[65];
    if (strcmp(g->q.fingerprint, g->m->fingerprint) != 0)
        return refuse(why, SERVE_CONFLICT, "fingerprint", "fingerprint: this worker's is %s", g->m->fingerprint);
    if (strcmp(g->q.digest, serve_digest(g->m)) != 0) /* it is known: else nothing was offered */
        return refuse(why, SERVE_CONFLICT, "digest", "digest: this worker's weights have another one");
    if (!sha256_hex(g->ids, (size_t)g->blocks * KV_PAGE * sizeof *g->ids, tokens))
        return refuse(why, SERVE_INTERNAL, NULL, "no digest of the prompt can be made");
    if (strcmp(g->q.tokens, tokens) != 0)
        return refuse(why, SERVE_CONFLICT, "tokens", "tokens: the pages of this hand-over are of another prompt");
    return g->q.to <= g->blocks ||
           refuse(why, SERVE_INVALID_REQUEST, "to", "to: expected at most %u blocks, got %u", g->blocks, g->q.to);
}

/* Whoever reads it may just be going: his worker died, and the router asks another one. */
static enum leases_found take(struct give *g)
{
    const uint64_t until = serve_now_ns() + BUSY_MS * UINT64_C(1000000);
    enum leases_found found;
    while ((found = leases_take(g->s->handover->leases, g->q.id, serve_caller(g->r)->who.salt, &g->lease)) ==
               LEASES_BUSY &&
           serve_now_ns() < until && !http_left(g->r))
        (void)usleep(BUSY_US);
    return found;
}

static bool find(struct give *g, struct refusal *why)
{
    struct handover *h = g->s->handover;
    char text[256] = "";
    g->m = atomic_load(&g->s->model);
    if (!h || !g->m || engine_layout(g->m->engine, &g->layout, &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_NOT_FOUND, "id", "id: this worker hands no pages over%s%s", text[0] ? ": " : "", text);
    switch (take(g)) {
    case LEASES_FOUND: break;
    case LEASES_BUSY: return refuse(why, SERVE_NOT_READY, "id", "id: this hand-over is being read");
    default:
        return refuse(why, SERVE_NOT_FOUND, "id",
                      "id: there is no such hand-over: it was taken, its time is over, or it is another key's");
    }
    g->ids = engine_lease_tokens(g->lease, &g->blocks);
    if (fits(g, why)) return true;
    leases_return(h->leases, g->q.id, false, serve_now_ns());
    return false;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static bool send_frame(const struct give *g, const struct frame *f, const void *payload)
{
    uint8_t head[FRAME_BYTES];
    frame_write(f, head);
    return http_bytes(g->r, head, sizeof head) && (!f->bytes || http_bytes(g->r, payload, (size_t)f->bytes));
}

static bool send_head(const struct give *g)
{
    const struct run_of of = { .layout = &g->layout,
                               .fingerprint = g->m->fingerprint,
                               .digest = serve_digest(g->m),
                               .tokens = g->ids,
                               .n_tokens = g->blocks * KV_PAGE };
    size_t n = 0;
    void *packet = run_make_packet(&of, http_id(g->r), &n);
    const struct frame head = { .kind = FRAME_HEAD, .bytes = n, .sum = packet ? crc32c(0, packet, n) : 0 };
    const bool sent = packet && send_frame(g, &head, packet);
    free(packet);
    return sent;
}

/* Segments that were read are gone; waits until there are fewer than `few`. False: nobody reads them. */
static bool wait_for_readers(struct give *g, uint32_t few)
{
    const uint64_t until = serve_now_ns() + READ_MS * UINT64_C(1000000);
    for (;;) {
        while (g->n_unread && segment_is_read(&g->unread[0])) {
            segment_close(&g->unread[0]);
            memmove(g->unread, g->unread + 1, --g->n_unread * sizeof *g->unread);
        }
        if (g->n_unread < few) return true;
        if (serve_now_ns() > until || http_left(g->r)) return false;
        (void)usleep(POLL_US);
    }
}

/* A run by shared memory. False: nobody is there. */
static bool give_segment(struct give *g, const struct frame *run, const struct segment *s)
{
    struct frame f = *run;
    f.kind = FRAME_SEGMENT;
    f.bytes = strlen(s->name);
    g->way = HANDOVER_SHM;
    return send_frame(g, &f, s->name) && wait_for_readers(g, UNREAD_MOST);
}

/* False: the answer is broken off. */
static bool give_run(struct give *g, uint32_t from, uint32_t to)
{
    const size_t bytes = (size_t)engine_block_bytes(&g->layout, g->blocks, from, to);
    g->bytes += bytes;
    if (bytes && engine_lease_read(g->lease, from, to, g->run, NULL)) return false;
    const struct frame f = {
        .kind = FRAME_RUN, .from = from, .to = to, .bytes = bytes, .sum = crc32c(0, g->run, bytes)
    };
    struct segment *s = &g->unread[g->n_unread];
    g->q.shm = g->q.shm && (!bytes || !segment_create(g->q.id, g->run, bytes, s, NULL));
    if (!g->q.shm || !bytes) return send_frame(g, &f, g->run);
    g->n_unread++;
    return give_segment(g, &f, s);
}

static bool has_left(void *user) { return http_left(user); }

/* From this process's memory, all at once. False: it was not taken so. */
static bool give_peer(struct give *g)
{
    struct handover *h = g->s->handover;
    const char *name = handover_peer_name(h);
    const struct frame f = { .kind = FRAME_PEER, .from = g->q.from, .to = g->q.to, .bytes = strlen(name) };
    struct handover_offer *o = handover_peer_offer(h, g->q.id, g->lease); /* before anybody can come for it */
    if (!o) return false;
    (void)send_frame(g, &f, name); /* or the client is gone, which the wait sees */
    if (!handover_peer_wait(h, o, has_left, g->r)) return false;
    g->bytes = engine_block_bytes(&g->layout, g->blocks, g->q.from, g->q.to);
    g->way = HANDOVER_PEER;
    return true;
}

/* All that was asked for. False: it broke off. */
static bool give_all(struct give *g)
{
    static const struct frame end = { .kind = FRAME_END };
    if (!http_stream_begin(g->r, HTTP_BYTES) || !send_head(g)) return false;
    if (g->q.peer && g->q.from < g->q.to && give_peer(g)) return send_frame(g, &end, NULL);
    for (uint32_t at = g->q.from, to; at < g->q.to; at = to) {
        uint32_t ready;
        if (atomic_load(&g->s->state) >= SERVE_OVER) return false;
        if (engine_lease_wait(g->lease, at, READ_MS, &ready) == LEASE_LOST || ready <= at) return false;
        to = run_end(&g->layout, g->blocks, at, ready < g->q.to ? ready : g->q.to);
        if (!give_run(g, at, to)) return false;
    }
    return wait_for_readers(g, 1) && send_frame(g, &end, NULL);
}

static bool make_room(struct give *g)
{
    g->run_cap = (size_t)run_most(&g->layout, g->blocks);
    if (!http_reserve(g->r, g->run_cap)) return false; /* answered */
    g->run = malloc(g->run_cap);
    if (!g->run)
        serve_refuse(g->s, g->r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for a run of blocks" });
    return g->run;
}

static void give(struct give *g)
{
    struct handover *h = g->s->handover;
    const uint64_t begun_ns = serve_now_ns();
    const bool near = h->place[0] && g->q.place && strcmp(h->place, g->q.place) == 0;
    g->q.shm = g->q.shm && near && g->s->o->handover.most >= HANDOVER_SHM;
    g->q.peer = g->q.peer && near && handover_peer_name(h);
    const bool given = make_room(g) && give_all(g);
    for (uint32_t i = 0; i < g->n_unread; i++) segment_close(&g->unread[i]);
    free(g->run);
    leases_return(h->leases, g->q.id, given, serve_now_ns());
    atomic_fetch_add(&h->bytes_out, g->bytes);
    LOG(given ? LOG_INFO : LOG_WARN, "kv_give", NULL, log_s("worker_id", g->s->o->worker_id),
        log_s("model_ref", g->m->path), log_s("request_id", http_id(g->r)), log_s("result", given ? "done" : "broken"),
        log_s("backend", handover_way_name(g->way)), log_u("blocks", g->q.to - g->q.from), log_u("bytes", g->bytes),
        log_f("duration_ms", (double)(serve_now_ns() - begun_ns) * 1e-6), log_s("traceparent", http_trace(g->r)));
}

static void on_handover(void *user, struct http_request *r)
{
    struct give g = { .s = user, .r = r };
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    if (!serve_body(r, BODY_MOST, &bytes, &n)) return;
    struct handover *h = g.s->handover;
    const bool room = !h || atomic_fetch_add(&h->serving, 1) < HANDOVER_SERVED;
    if (!room)
        (void)refuse(&why, SERVE_NOT_READY, NULL, "%d hand-overs are read, as many as may be at once", HANDOVER_SERVED);
    if (room && read_asked(bytes, n, &g.q, &why) && find(&g, &why)) give(&g);
    if (why.text[0]) serve_refuse(g.s, r, &why);
    json_decref(g.q.body);
    if (h) atomic_fetch_sub(&h->serving, 1);
}

const struct http_route serve_give_routes[] = { { "POST", "/worker/handover", on_handover, false } };
const uint32_t serve_n_give_routes = sizeof serve_give_routes / sizeof *serve_give_routes;
