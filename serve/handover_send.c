/* handover_send.c: POST /worker/handover: the pages of one hand-over to the worker that decodes its prompt. An answer
 * is frames (handover/frames.h). What cannot be sent is refused before the first of them; what fails later breaks the
 * answer off, and the hand-over waits for somebody who asks again. */
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

struct sender {
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

/* ---- may it be sent? ---------------------------------------------------------------------------------- */

/* The pages are of this prompt, and of use to who asks. */
static bool fits(const struct sender *x, struct refusal *why)
{
    char tokens[65];
    if (strcmp(x->q.fingerprint, x->m->fingerprint) != 0)
        return refuse(why, SERVE_CONFLICT, "fingerprint", "fingerprint: this worker's is %s", x->m->fingerprint);
    if (strcmp(x->q.digest, serve_digest(x->m)) != 0) /* it is known: else nothing was offered */
        return refuse(why, SERVE_CONFLICT, "digest", "digest: this worker's weights have another one");
    if (!sha256_hex(x->ids, (size_t)x->blocks * KV_PAGE * sizeof *x->ids, tokens))
        return refuse(why, SERVE_INTERNAL, NULL, "no digest of the prompt can be made");
    if (strcmp(x->q.tokens, tokens) != 0)
        return refuse(why, SERVE_CONFLICT, "tokens", "tokens: the pages of this hand-over are of another prompt");
    return x->q.to <= x->blocks ||
           refuse(why, SERVE_INVALID_REQUEST, "to", "to: expected at most %u blocks, got %u", x->blocks, x->q.to);
}

/* Whoever reads it may just be going: his worker died, and the router asks another one. */
static enum leases_found take(struct sender *x)
{
    const uint64_t until = serve_now_ns() + BUSY_MS * UINT64_C(1000000);
    enum leases_found found;
    while ((found = leases_take(x->s->handover->leases, x->q.id, serve_caller(x->r)->who.salt, &x->lease)) ==
               LEASES_BUSY &&
           serve_now_ns() < until && !http_left(x->r))
        (void)usleep(BUSY_US);
    return found;
}

static bool find(struct sender *x, struct refusal *why)
{
    struct handover *h = x->s->handover;
    char text[256] = "";
    x->m = atomic_load(&x->s->model);
    if (!h || !x->m || engine_layout(x->m->engine, &x->layout, &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_NOT_FOUND, "id", "id: this worker hands no pages over%s%s", text[0] ? ": " : "", text);
    switch (take(x)) {
    case LEASES_FOUND: break;
    case LEASES_BUSY: return refuse(why, SERVE_NOT_READY, "id", "id: this hand-over is being read");
    default:
        return refuse(why, SERVE_NOT_FOUND, "id",
                      "id: there is no such hand-over: it was taken, its time is over, or it is another key's");
    }
    x->ids = engine_lease_tokens(x->lease, &x->blocks);
    if (fits(x, why)) return true;
    leases_return(h->leases, x->q.id, false, serve_now_ns());
    return false;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static bool send_frame(const struct sender *x, const struct frame *f, const void *payload)
{
    uint8_t head[FRAME_BYTES];
    frame_write(f, head);
    return http_bytes(x->r, head, sizeof head) && (!f->bytes || http_bytes(x->r, payload, (size_t)f->bytes));
}

static bool send_head(const struct sender *x)
{
    const struct run_of of = { .layout = &x->layout,
                               .fingerprint = x->m->fingerprint,
                               .digest = serve_digest(x->m),
                               .tokens = x->ids,
                               .n_tokens = x->blocks * KV_PAGE };
    size_t n = 0;
    void *packet = run_make_packet(&of, http_id(x->r), &n);
    const struct frame head = { .kind = FRAME_HEAD, .bytes = n, .sum = packet ? crc32c(0, packet, n) : 0 };
    const bool sent = packet && send_frame(x, &head, packet);
    free(packet);
    return sent;
}

/* Segments that were read are gone; waits until there are fewer than `few`. False: nobody reads them. */
static bool wait_for_readers(struct sender *x, uint32_t few)
{
    const uint64_t until = serve_now_ns() + READ_MS * UINT64_C(1000000);
    for (;;) {
        while (x->n_unread && segment_is_read(&x->unread[0])) {
            segment_close(&x->unread[0]);
            memmove(x->unread, x->unread + 1, --x->n_unread * sizeof *x->unread);
        }
        if (x->n_unread < few) return true;
        if (serve_now_ns() > until || http_left(x->r)) return false;
        (void)usleep(POLL_US);
    }
}

/* A run by shared memory. False: nobody is there. */
static bool send_segment(struct sender *x, const struct frame *run, const struct segment *s)
{
    struct frame f = *run;
    f.kind = FRAME_SEGMENT;
    f.bytes = strlen(s->name);
    x->way = HANDOVER_SHM;
    return send_frame(x, &f, s->name) && wait_for_readers(x, UNREAD_MOST);
}

/* False: the answer is broken off. */
static bool send_run(struct sender *x, uint32_t from, uint32_t to)
{
    const size_t bytes = (size_t)engine_block_bytes(&x->layout, x->blocks, from, to);
    x->bytes += bytes;
    if (bytes && engine_lease_read(x->lease, from, to, x->run, NULL)) return false;
    const struct frame f = {
        .kind = FRAME_RUN, .from = from, .to = to, .bytes = bytes, .sum = crc32c(0, x->run, bytes)
    };
    struct segment *s = &x->unread[x->n_unread];
    x->q.shm = x->q.shm && (!bytes || !segment_create(x->q.id, x->run, bytes, s, NULL));
    if (!x->q.shm || !bytes) return send_frame(x, &f, x->run);
    x->n_unread++;
    return send_segment(x, &f, s);
}

static bool has_left(void *user) { return http_left(user); }

/* From this process's memory, all at once. False: it was not taken so. */
static bool send_peer(struct sender *x)
{
    struct handover *h = x->s->handover;
    const char *name = handover_peer_name(h);
    const struct frame f = { .kind = FRAME_PEER, .from = x->q.from, .to = x->q.to, .bytes = strlen(name) };
    struct handover_offer *o = handover_peer_offer(h, x->q.id, x->lease); /* before anybody can come for it */
    if (!o) return false;
    (void)send_frame(x, &f, name); /* or the client is gone, which the wait sees */
    if (!handover_peer_wait(h, o, has_left, x->r)) return false;
    x->bytes = engine_block_bytes(&x->layout, x->blocks, x->q.from, x->q.to);
    x->way = HANDOVER_PEER;
    return true;
}

/* All that was asked for. False: it broke off. */
static bool send_all(struct sender *x)
{
    static const struct frame end = { .kind = FRAME_END };
    if (!http_stream_begin(x->r, HTTP_BYTES) || !send_head(x)) return false;
    if (x->q.peer && x->q.from < x->q.to && send_peer(x)) return send_frame(x, &end, NULL);
    for (uint32_t at = x->q.from, to; at < x->q.to; at = to) {
        uint32_t ready;
        if (atomic_load(&x->s->state) >= SERVE_OVER) return false;
        if (engine_lease_wait(x->lease, at, READ_MS, &ready) == LEASE_LOST || ready <= at) return false;
        to = run_end(&x->layout, x->blocks, at, ready < x->q.to ? ready : x->q.to);
        if (!send_run(x, at, to)) return false;
    }
    return wait_for_readers(x, 1) && send_frame(x, &end, NULL);
}

static bool make_room(struct sender *x)
{
    x->run_cap = (size_t)run_most(&x->layout, x->blocks);
    if (!http_reserve(x->r, x->run_cap)) return false; /* answered */
    x->run = malloc(x->run_cap);
    if (!x->run)
        serve_refuse(x->s, x->r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for a run of blocks" });
    return x->run;
}

static void send_pages(struct sender *x)
{
    struct handover *h = x->s->handover;
    const uint64_t begun_ns = serve_now_ns();
    const bool near = h->place[0] && x->q.place && strcmp(h->place, x->q.place) == 0;
    x->q.shm = x->q.shm && near && x->s->o->handover.most >= HANDOVER_SHM;
    x->q.peer = x->q.peer && near && handover_peer_name(h);
    const bool sent = make_room(x) && send_all(x);
    for (uint32_t i = 0; i < x->n_unread; i++) segment_close(&x->unread[i]);
    free(x->run);
    leases_return(h->leases, x->q.id, sent, serve_now_ns());
    atomic_fetch_add(&h->bytes_out, x->bytes);
    LOG(sent ? LOG_INFO : LOG_WARN, "kv_give", NULL, log_s("worker_id", x->s->o->worker_id),
        log_s("model_ref", x->m->path), log_s("request_id", http_id(x->r)), log_s("result", sent ? "done" : "broken"),
        log_s("backend", handover_way_name(x->way)), log_u("blocks", x->q.to - x->q.from), log_u("bytes", x->bytes),
        log_f("duration_ms", (double)(serve_now_ns() - begun_ns) * 1e-6), log_s("traceparent", http_trace(x->r)));
}

static void on_handover(void *user, struct http_request *r)
{
    struct sender x = { .s = user, .r = r };
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    if (!serve_body(r, BODY_MOST, &bytes, &n)) return;
    struct handover *h = x.s->handover;
    const bool room = !h || atomic_fetch_add(&h->serving, 1) < HANDOVER_SERVED;
    if (!room)
        (void)refuse(&why, SERVE_NOT_READY, NULL, "%d hand-overs are read, as many as may be at once", HANDOVER_SERVED);
    if (room && read_asked(bytes, n, &x.q, &why) && find(&x, &why)) send_pages(&x);
    if (why.text[0]) serve_refuse(x.s, r, &why);
    json_decref(x.q.body);
    if (h) atomic_fetch_sub(&h->serving, 1);
}

const struct http_route serve_handover_routes[] = { { "POST", "/worker/handover", on_handover, false } };
const uint32_t serve_n_handover_routes = sizeof serve_handover_routes / sizeof *serve_handover_routes;
