/* pull.c: see pull.h. What comes is bytes from outside: its frames, its lengths and its sums are checked before a page
 * is written, and nothing is found in the prefix cache before all of it has come. */
#include "pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "gate/download.h"
#include "handover.h"
#include "handover/crc32c.h"
#include "handover/frames.h"
#include "handover/runs.h"
#include "log/log.h"
#include "trace.h"

enum { PACKET_BESIDE = 64 << 10 /* bytes of a packet, at most, beside its tokens */ };
enum {
    SILENCE_MS = 5000,
    PATIENCE_MS = 10000,       /* for an answer that comes more slowly than SLOWEST: then the prompt is read here */
    CACHED_MS = 1000,          /* the same where nothing is missing */
    SLOWEST_MS_PER_MIB = 1000, /* of an answer, on average */
    REST_MOST = 64 << 10 /* bytes behind what was wanted, that are still read */,
    URL_BYTES = HANDOVER_HOST_MAX + 64,
    HEADER_BYTES = 8192,
    HEADERS = 5
};

struct pull {
    const struct pull_request *q;
    struct serve *s;
    struct handover *h;
    struct engine_layout layout;
    struct engine_import *import; /* NULL: none, or it was committed */
    struct download *helper;
    uint32_t blocks, from, to; /* of the prompt; what is missing */
    enum handover_way way;     /* by which the last run came */
    uint64_t bytes;
    const char *at; /* of what has come: [left] */
    size_t left;
    uint64_t begun_ns, heard; /* since then so many bytes have come */
    bool slow;                /* too slowly */
    char *run;                /* [run_cap] */
    size_t run_cap;
    char text[512]; /* why it came to nothing */
};

static struct wk_err err_of(struct pull *p) { return (struct wk_err){ p->text, sizeof p->text }; }

static enum pull_result fail(struct pull *p, enum pull_result result, const char *text)
{
    (void)snprintf(p->text, sizeof p->text, "%s", text);
    return result;
}

/* ---- the request --------------------------------------------------------------------------------------- */

static bool is_id(const char *id)
{
    return strlen(id) == LEASES_ID - 1 && strspn(id, "0123456789abcdef") == LEASES_ID - 1;
}

/* The operator reads which host to name, if it is one. */
static enum pull_result forbid(struct pull *p)
{
    (void)snprintf(
        p->text, sizeof p->text,
        "remote_host %s: expected 127.0.0.1, ::1, localhost or a host of --handover-peer; if it is a prefill "
        "worker, name it with --handover-peer",
        handover_is_host(p->q->host) ? p->q->host : "is neither a name nor an address");
    return PULL_FORBIDDEN;
}

/* May it be tried at all? */
static enum pull_result check(struct pull *p)
{
    const struct pull_request *q = p->q;
    const struct serve_handover *o = &p->s->o->handover;
    if (!p->blocks) return fail(p, PULL_SHORT, "the prompt has no whole page");
    if (!q->engine || !q->host || !q->port || !q->id || !is_id(q->id))
        return fail(p, PULL_INCOMPLETE,
                    "remote_engine_id, remote_host, remote_port or remote_block_ids is missing, or is not a worker's");
    const char *fingerprint = strchr(q->engine, ':');
    if (!fingerprint || strcmp(fingerprint + 1, q->m->fingerprint) != 0)
        return fail(p, PULL_FOREIGN, "another program, model or device has computed it: its fingerprint is another");
    if (!handover_may_ask(q->host, o->peers, o->n_peers)) return forbid(p);
    return serve_digest(q->m)[0] ? PULL_DONE
                                 : fail(p, PULL_BUSY, "the digest of this worker's weights is not known yet");
}

/* The client's own key goes along: pages are given to who has the same rights. */
static size_t add_headers(const struct pull *p, char store[HEADERS][HEADER_BYTES], const char *out[HEADERS])
{
    static const char *const passed[] = { "Authorization", "x-api-key" };
    char trace[HTTP_TRACE_BYTES + 1];
    struct http_request *r = p->q->work->r;
    size_t n = 0;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        const char *value = http_header(r, passed[i]);
        if (value && (size_t)snprintf(store[n], HEADER_BYTES, "%s: %s", passed[i], value) < HEADER_BYTES) n++;
    }
    if (trace_parent(r, trace)) /* the span there is part of this request's */
        (void)snprintf(store[n++], HEADER_BYTES, "traceparent: %s", trace);
    (void)snprintf(store[n++], HEADER_BYTES, "X-Request-Id: %s", http_id(r));
    (void)snprintf(store[n++], HEADER_BYTES, "Connection: keep-alive");
    for (size_t i = 0; i < n; i++) out[i] = store[i];
    return n;
}

/* What is asked for; false: no memory for it. */
static bool put_body(const struct pull *p, struct http_text *out)
{
    char tokens[65];
    const struct pull_request *q = p->q;
    if (!sha256_hex(q->ids, (size_t)p->blocks * KV_PAGE * sizeof *q->ids, tokens)) return false;
    http_text_format(out,
                     "{\"id\":\"%s\",\"from\":%u,\"to\":%u,\"tokens\":\"%s\",\"fingerprint\":\"%s\",\"digest\":\"%s\"",
                     q->id, p->from, p->to, tokens, q->m->fingerprint, serve_digest(q->m));
    if (p->s->o->handover.most >= HANDOVER_SHM && p->h->place[0])
        http_text_format(out, ",\"place\":\"%s\"", p->h->place);
    http_text_format(out, ",\"ways\":[");
    for (int way = 0; way <= (int)p->s->o->handover.most; way++)
        http_text_format(out, "%s\"%s\"", way ? "," : "", handover_way_name((enum handover_way)way));
    http_text_format(out, "]}");
    return !out->failed;
}

/* Who gives a byte now and then, in a header that does not end or in a body, holds pages, a helper and the client no
 * longer than who is silent. Asked before each part of an answer. */
static bool is_stopped(void *user)
{
    struct pull *p = user;
    const uint64_t ms = (serve_now_ns() - p->begun_ns) / 1000000;
    const uint64_t patience = p->import && p->from == p->to ? CACHED_MS : PATIENCE_MS;
    p->slow = ms > patience + (p->heard >> 20) * SLOWEST_MS_PER_MIB;
    return p->slow || work_stopped(p->q->work);
}

static enum pull_result result_of(struct pull *p, uint32_t status)
{
    if (status == 200) return PULL_DONE;
    const char *const why = status == 400 && !p->s->o->handover.ca ? ": if it serves https, give --handover-ca"
                            : status == 401 || status == 403       ? ": it does not take the key of this client"
                            : status == 404                        ? ": it does not have the hand-over any more, or it "
                                                                     "is another key's"
                                                                   : "";
    (void)snprintf(p->text, sizeof p->text, "the prefill worker answers %u%s", status, why);
    return status == 404 ? PULL_UNKNOWN : status == 409 ? PULL_FOREIGN : PULL_REFUSED;
}

static enum pull_result broken(struct pull *p, wk_status status)
{
    if (status != WK_CANCELLED) return PULL_UNREACHABLE;
    return p->slow ? fail(p, PULL_UNREACHABLE, "the answer comes too slowly: reading the prompt here is faster")
                   : fail(p, PULL_STOPPED, "the request ended meanwhile");
}

/* Asks, and reads the answer's header. */
static enum pull_result ask(struct pull *p)
{
    const struct serve_options *o = p->s->o;
    const struct wk_err err = err_of(p);
    char url[URL_BYTES];
    const char *headers[HEADERS], *answer;
    uint32_t status = 0;
    struct http_text body = { 0 };
    char(*store)[HEADER_BYTES] = malloc(HEADERS * sizeof *store);
    if (!store || !put_body(p, &body)) {
        free(store);
        http_text_free(&body);
        return fail(p, PULL_NO_ROOM, "no memory for a request");
    }
    const bool six = strchr(p->q->host, ':');
    (void)snprintf(url, sizeof url, "%s://%s%s%s:%u/worker/handover", o->handover.ca ? "https" : "http", six ? "[" : "",
                   p->q->host, six ? "]" : "", p->q->port);
    const struct fetch_request request = { .method = "POST",
                                           .url = url,
                                           .content_type = "application/json",
                                           .headers = headers,
                                           .n_headers = add_headers(p, store, headers),
                                           .body = body.data,
                                           .body_len = body.n,
                                           .ca_file = o->handover.ca,
                                           .cert_file = o->handover.ca ? o->tls_cert : NULL,
                                           .key_file = o->handover.ca ? o->tls_key : NULL,
                                           .timeout_ms = SILENCE_MS,
                                           .https_only = o->handover.ca != NULL };
    const wk_status good = download_begin(p->helper, &request, &status, &answer, &err);
    explicit_bzero(store, HEADERS * sizeof *store);
    free(store);
    http_text_free(&body);
    return good ? broken(p, good) : result_of(p, status);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* Exactly n bytes of it. */
static enum pull_result take(struct pull *p, void *out, size_t n)
{
    const struct wk_err err = err_of(p);
    for (char *to = out; n;) {
        if (!p->left) {
            const wk_status status = download_next(p->helper, &p->at, &p->left, &err);
            if (status) return broken(p, status);
            if (!p->left) return fail(p, PULL_UNREACHABLE, "the answer ends before its end");
            p->heard += p->left;
        }
        const size_t some = n < p->left ? n : p->left;
        memcpy(to, p->at, some);
        to += some;
        p->at += some;
        p->left -= some;
        n -= some;
    }
    return PULL_DONE;
}

static enum pull_result take_frame(struct pull *p, struct frame *f)
{
    uint8_t bytes[FRAME_BYTES];
    const struct wk_err err = err_of(p);
    const enum pull_result result = take(p, bytes, sizeof bytes);
    if (result) return result;
    const wk_status status = frame_read(bytes, f, &err);
    return !status ? PULL_DONE : status == WK_UNSUPPORTED ? PULL_FOREIGN : PULL_DAMAGED;
}

/* Room for a run: no more than runs may have. */
static bool make_room(struct pull *p, uint64_t bytes)
{
    if (bytes <= p->run_cap) return true;
    char *run = realloc(p->run, (size_t)bytes);
    if (!run) return false;
    p->run = run;
    p->run_cap = (size_t)bytes;
    return true;
}

/* The blocks of a run, which lie in shared memory, or follow. */
static enum pull_result take_blocks(struct pull *p, const struct frame *f, uint64_t bytes)
{
    char name[SEGMENT_NAME] = "";
    const struct wk_err err = err_of(p);
    if (f->kind == FRAME_RUN) {
        if (f->bytes != bytes) return fail(p, PULL_DAMAGED, "a run of blocks has not the bytes that its blocks have");
        p->way = HANDOVER_CHANNEL;
        return take(p, p->run, (size_t)bytes);
    }
    enum pull_result result = take(p, name, (size_t)f->bytes); /* frame_read: it has room */
    if (result) return result;
    p->way = HANDOVER_SHM;
    const wk_status status = segment_read(p->q->id, name, p->run, (size_t)bytes, &err);
    return !status ? PULL_DONE : PULL_DAMAGED;
}

static enum pull_result take_run(struct pull *p, const struct frame *f, uint32_t at)
{
    const struct wk_err err = err_of(p);
    if (f->from != at || f->to > p->to) return fail(p, PULL_DAMAGED, "runs of blocks do not follow each other");
    const uint64_t bytes = engine_block_bytes(&p->layout, p->blocks, f->from, f->to);
    if (f->to - f->from > 1 && bytes > RUN_BYTES)
        return fail(p, PULL_DAMAGED, "a run of blocks is longer than one may be");
    if (!bytes) return PULL_DONE;
    if (!make_room(p, bytes)) return fail(p, PULL_NO_ROOM, "no memory for a run of blocks");
    const enum pull_result result = take_blocks(p, f, bytes);
    if (result) return result;
    if (crc32c(0, p->run, (size_t)bytes) != f->sum)
        return fail(p, PULL_DAMAGED, "a run of blocks has another check sum");
    p->bytes += bytes;
    return engine_import_write(p->import, f->from, f->to, p->run, &err) ? PULL_NO_ROOM : PULL_DONE;
}

static struct run_of mine(const struct pull *p)
{
    return (struct run_of){ .layout = &p->layout,
                            .fingerprint = p->q->m->fingerprint,
                            .digest = serve_digest(p->q->m),
                            .tokens = p->q->ids,
                            .n_tokens = p->blocks * KV_PAGE };
}

/* From the other process's memory. What cannot be had so comes in runs. */
static enum pull_result take_peer(struct pull *p, const struct frame *f, uint32_t *at)
{
    char name[FRAME_NAME_MAX + 1] = "";
    struct packet packet;
    const struct wk_err err = err_of(p);
    if (f->from != *at || f->to != p->to)
        return fail(p, PULL_DAMAGED, "other blocks can be copied than were asked for");
    const enum pull_result result = take(p, name, (size_t)f->bytes);
    if (result) return result;
    const struct run_of of = mine(p);
    uint8_t *tokens = malloc(of.n_tokens * sizeof *of.tokens);
    if (tokens && run_packet(&of, tokens, &packet) &&
        !handover_peer_take(p->h, name, p->q->id, &packet, p->import, &err)) {
        p->way = HANDOVER_PEER;
        p->bytes = engine_block_bytes(&p->layout, p->blocks, p->from, p->to);
        *at = p->to;
    }
    free(tokens);
    p->begun_ns = serve_now_ns(); /* copying has limits of its own */
    p->heard = 0;
    return PULL_DONE;
}

/* The packet: what the blocks are of, by the word of who has computed them. */
static enum pull_result take_head(struct pull *p)
{
    struct frame f;
    enum pull_result result = take_frame(p, &f);
    if (result) return result;
    if (f.kind != FRAME_HEAD) return fail(p, PULL_DAMAGED, "the first frame of an answer is no head");
    if (f.bytes > PACKET_BESIDE + (uint64_t)p->blocks * KV_PAGE * sizeof *p->q->ids)
        return fail(p, PULL_FOREIGN, "a packet is longer than that of this prompt");
    if (!make_room(p, f.bytes)) return fail(p, PULL_NO_ROOM, "no memory for a packet");
    result = take(p, p->run, (size_t)f.bytes);
    if (result) return result;
    if (crc32c(0, p->run, (size_t)f.bytes) != f.sum) return fail(p, PULL_DAMAGED, "a packet has another check sum");
    const struct run_of of = mine(p);
    const struct wk_err err = err_of(p);
    const wk_status status = run_check_packet(p->run, (size_t)f.bytes, &of, &err);
    return !status ? PULL_DONE : status == WK_UNSUPPORTED ? PULL_FOREIGN : PULL_DAMAGED;
}

static enum pull_result take_answer(struct pull *p)
{
    struct frame f;
    uint32_t at = p->from;
    enum pull_result result = take_head(p);
    while (!result && !(result = take_frame(p, &f))) {
        if (f.kind == FRAME_END)
            return at == p->to ? PULL_DONE : fail(p, PULL_DAMAGED, "the answer ends before its last block");
        if (f.kind == FRAME_HEAD) return fail(p, PULL_DAMAGED, "an answer has a second head");
        if (f.kind == FRAME_PEER) {
            result = take_peer(p, &f, &at);
        } else {
            result = take_run(p, &f, at);
            at = f.to;
        }
    }
    return result;
}

/* To the end of an answer whose last frame was read: the helper and its connection are good for the next one then. Not
 * of one that was given up: who gives may wait for a segment that nobody reads, and the prompt is to be computed now.
 */
static void finish(struct pull *p)
{
    for (size_t rest = 0; rest < REST_MOST; rest += p->left)
        if (download_next(p->helper, &p->at, &p->left, NULL) || !p->left) return;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static enum pull_result reserve(struct pull *p)
{
    const struct wk_err err = err_of(p);
    const struct pull_request *q = p->q;
    if (engine_import_begin(q->m->engine, q->ids, q->n_ids, &q->salt, &p->import, &err)) return PULL_NO_ROOM;
    engine_import_range(p->import, &p->from, &p->to);
    return PULL_DONE;
}

static enum pull_result pull(struct pull *p)
{
    enum pull_result result = check(p);
    if (result) return result;
    p->helper = handover_helper(p->h, p->q->work);
    if (!p->helper)
        return work_stopped(p->q->work) ? fail(p, PULL_STOPPED, "the request ended meanwhile")
                                        : fail(p, PULL_BUSY, "as many prompts are pulled as --decode-pool-size allows");
    result = reserve(p);
    p->begun_ns = serve_now_ns();
    download_watch(p->helper, is_stopped, p);
    if (!result) result = ask(p); /* also where nothing is missing: then the pages there are given back */
    if (!result) result = take_answer(p);
    if (!result) finish(p);
    handover_helper_back(p->h, p->helper);
    return p->import && p->from == p->to ? PULL_CACHED : result;
}

/* Pages came by a lesser way than this worker allows: why, unless it is said already. */
static void explain_way(struct pull *p)
{
    const enum handover_way most = p->s->o->handover.most;
    if (p->text[0] || !p->bytes || p->way >= most) return;
    (void)snprintf(p->text, sizeof p->text,
                   "not by %s: the prefill worker does not allow it, runs as another user or sees another /dev/shm, or "
                   "had no room",
                   handover_way_name(most));
}

static void narrate(const struct pull *p, enum pull_result result, uint64_t ns)
{
    const bool good = result == PULL_DONE || result == PULL_CACHED || result == PULL_SHORT;
    LOG(good ? LOG_INFO : LOG_WARN, "kv_pull", p->text[0] ? p->text : NULL, log_s("worker_id", p->s->o->worker_id),
        log_s("job_id", p->q->job_id), log_s("model_ref", p->q->m->path), log_s("request_id", http_id(p->q->work->r)),
        log_s("result", pull_result_name(result)), log_s("backend", handover_way_name(p->way)),
        log_u("blocks", result == PULL_DONE ? p->to - p->from : 0), log_u("bytes", p->bytes),
        log_f("duration_ms", (double)ns * 1e-6), log_s("traceparent", http_trace(p->q->work->r)));
}

struct engine_lease *pull_pages(const struct pull_request *q, bool *in_vain)
{
    struct pull p = { .q = q, .s = q->work->s, .h = q->work->s->handover, .blocks = engine_blocks(q->n_ids) };
    const uint64_t begun_ns = serve_now_ns();
    struct engine_lease *lease = NULL;
    const struct wk_err err = err_of(&p);
    enum pull_result result = engine_layout(q->m->engine, &p.layout, &err) ? PULL_NO_ROOM : pull(&p);
    if (result == PULL_DONE || result == PULL_CACHED)
        lease = engine_import_commit(p.import);
    else
        engine_import_abort(p.import);
    free(p.run);
    if (!lease && (result == PULL_DONE || result == PULL_CACHED)) result = fail(&p, PULL_NO_ROOM, "the engine ends");
    const uint64_t ns = serve_now_ns() - begun_ns;
    handover_count(p.h, result);
    if (result == PULL_DONE) {
        handover_count_pages(p.h, p.way, ns, p.bytes);
        explain_way(&p);
    }
    narrate(&p, result, ns);
    *in_vain = result != PULL_DONE && (p.slow || result == PULL_UNREACHABLE || result == PULL_BUSY);
    return lease;
}
