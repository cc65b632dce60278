/* body.c: bodies of requests, read with a deadline and within the memory that there is for them.
 *
 * Memory: each request's first HTTP_OWN_BYTES count nowhere, so that probes, control routes and small bodies find
 * room whatever large ones take; what goes beyond comes out of what all requests of a server share.
 *
 * Threads: a body that is awaited holds one. Routes that stream have theirs by max_streams; of the others' threads half
 * may wait for bodies, then those of streams that are free, and what comes then is refused within moments: so there are
 * always threads for requests that need no waiting. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "chunks.h"
#include "internal.h"

enum {
    SLICE_MS = 50,
    MOMENT_MS = 20, /* that a body may be behind its head where no thread is to be had for waiting */
    PRESSED_BODY_MS = 1000,
    PRESSED_BODY_RATE =
        65536,       /* bytes a second that a body must come with while no thread is free, after its first second */
    LARGE = 1 << 20, /* a request that had so much memory has the system given back what is free */
    BODY_STEP =
        256 << 10, /* memory is taken as a body comes: who only says that much will come takes none from others */
    PEEK_BYTES = 16384
};

/* ---- memory -------------------------------------------------------------------------------------------- */

static size_t shared_part(size_t bytes) { return bytes > HTTP_OWN_BYTES ? bytes - HTTP_OWN_BYTES : 0; }

static bool never_fits(const struct http_request *r, size_t bytes)
{
    return shared_part(r->taken + bytes) > r->s->o.memory;
}

static void refuse_size(struct http_request *r, size_t bytes)
{
    char text[112];
    (void)snprintf(text, sizeof text, "the request would take %zu MiB of memory; at most %" PRIu64 " MiB are given",
                   (r->taken + bytes) >> 20, r->s->o.memory >> 20);
    answer_refusal(r, 413, text);
}

bool http_reserve(struct http_request *r, size_t bytes)
{
    if (never_fits(r, bytes)) {
        refuse_size(r, bytes);
        return false;
    }
    const size_t more = shared_part(r->taken + bytes) - shared_part(r->taken);
    if (!more || atomic_fetch_add(&r->s->reserved, more) + more <= r->s->o.memory) {
        r->taken += bytes;
        return true;
    }
    atomic_fetch_sub(&r->s->reserved, more);
    answer_busy(r, "there is no memory for a request of this size now");
    return false;
}

void body_free(struct http_request *r)
{
    free(r->body);
    r->body = NULL;
    atomic_fetch_sub(&r->s->reserved, shared_part(r->taken));
    if (r->taken >= LARGE)
        (void)malloc_trim(0); /* of pages between what is still in use; server.c has set what happens to the others */
    r->taken = 0;
}

void http_release(struct http_request *r) { body_free(r); }

/* ---- waiting ------------------------------------------------------------------------------------------- */

/* A thread to wait with for longer than a moment. */
static bool may_wait(struct http_request *r)
{
    if (r->slot || r->waits) return true;
    const unsigned most = r->s->o.reserve > 1 ? r->s->o.reserve / 2 : 1;
    r->waits = atomic_fetch_add(&r->s->bodies, 1) < most;
    if (r->waits) return true;
    atomic_fetch_sub(&r->s->bodies, 1);
    return request_take_slot(r);
}

/* Is there more to come in time? Answers when not. */
static bool wait_for_body(struct http_request *r, uint64_t from_ns, size_t got)
{
    const bool allowed = may_wait(r);
    const uint64_t limit = from_ns + (uint64_t)(allowed ? r->s->o.body_ms : MOMENT_MS) * 1000000;
    for (;;) {
        const uint64_t now = http_now_ns(), age_ms = (now - from_ns) / 1000000;
        const bool dawdles =
            request_no_thread_free(r->s) && age_ms > PRESSED_BODY_MS && got < PRESSED_BODY_RATE * age_ms / 1000;
        if (now >= limit && !allowed) {
            answer_busy(r, "too many bodies are awaited now");
            return false;
        }
        if (now >= limit || dawdles) {
            answer_refusal(r, 408, "the body took too long");
            return false;
        }
        const uint64_t slice = now + (uint64_t)SLICE_MS * 1000000;
        if (socket_wait(r, POLLIN, slice < limit ? slice : limit)) return true;
        if (atomic_load(&r->s->closing)) {
            answer_busy(r, "the server is shutting down");
            return false;
        }
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* What socket_read said, which is not more than 0: true: call it again. Else it is answered, if anybody is there. */
static bool recv_again(struct http_request *r, ssize_t n, uint64_t from_ns, size_t got, const char *ended)
{
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_for_body(r, from_ns, got);
    if (n == 0) answer_refusal(r, 400, ended);
    r->gone = n < 0 || r->gone;
    return false;
}

/* Room for another step of a body of at most `most` bytes. */
static bool more_room(struct http_request *r, size_t *room, size_t most)
{
    const size_t step = most - *room < BODY_STEP ? most - *room : BODY_STEP;
    if (!http_reserve(r, step)) return false;
    *room += step;
    return true;
}

static bool read_sized(struct http_request *r, size_t size)
{
    const uint64_t from = http_now_ns();
    size_t room = 0, got = 0;
    while (got < size) {
        if (got == room && !more_room(r, &room, size)) return false;
        const ssize_t n = socket_read(r, r->body + got, room - got);
        if (n > 0)
            got += (size_t)n;
        else if (!recv_again(r, n, from, got, "the body is shorter than Content-Length says"))
            return false;
    }
    r->in += size;
    return true;
}

static void refuse_most(struct http_request *r, const char *what, size_t size, size_t most)
{
    char text[96];
    (void)snprintf(text, sizeof text, "the body has %s%zu bytes; at most %zu are taken", what, size, most);
    answer_refusal(r, 413, text);
}

/* Takes from the socket what is the body's, and not a byte of what follows. */
static bool read_chunks(struct http_request *r, size_t most, size_t *got)
{
    const uint64_t from = http_now_ns();
    struct chunks c = { 0 };
    char in[PEEK_BYTES];
    size_t room = 0, used, made;
    for (;;) {
        const ssize_t n = socket_peek(r, in, sizeof in);
        if (n <= 0) {
            if (!recv_again(r, n, from, *got, "the body ends before its last chunk")) return false;
            continue;
        }
        const enum chunks_verdict v = chunks_decode(&c, in, (size_t)n, &used, r->body + *got, room - *got, &made);
        if (!socket_take(r, in, used)) {
            r->gone = true;
            return false;
        }
        *got += made;
        r->in += used;
        if (v == CHUNKS_DONE) return true;
        if (v == CHUNKS_BAD) {
            answer_refusal(r, 400, c.reason);
            return false;
        }
        if (v == CHUNKS_FULL && room == most) {
            refuse_most(r, "more than ", most, most);
            return false;
        }
        if (v == CHUNKS_FULL && !more_room(r, &room, most)) return false;
    }
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    if (!type || strncasecmp(type, json, sizeof json - 1)) return false;
    const char *rest = type + sizeof json - 1;
    return !rest[strspn(rest, " ")] || rest[strspn(rest, " ")] == ';';
}

/* What `curl -d` says of any body, and a page's form. */
static bool is_form(const char *type) { return strcasecmp(type, "application/x-www-form-urlencoded") == 0; }

static bool has_type(const struct http_request *r, enum http_body_type wanted)
{
    const char *type = http_header(r, "Content-Type");
    const bool of_a_page = r->origin[0] || http_header(r, "Sec-Fetch-Site");
    const bool unsaid = !type || is_form(type);
    return wanted == HTTP_ANY_TYPE || (wanted == HTTP_JSON_OR_UNSAID && unsaid && !of_a_page) || is_json(type);
}

static bool go_on(struct http_request *r)
{
    char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    return !r->guard.expects || r->guard.old || socket_send(r, &(struct iovec){ text, sizeof text - 1 }, 1, true);
}

static bool read_body(struct http_request *r, size_t most, size_t *n)
{
    const size_t size = (size_t)r->guard.length;
    bool ok = go_on(r);
    if (ok && r->guard.chunked)
        ok = read_chunks(r, most, n);
    else if (ok && (ok = read_sized(r, size)))
        *n = size;
    if (r->waits) atomic_fetch_sub(&r->s->bodies, 1);
    r->waits = false;
    r->unread = !ok;
    return ok;
}

bool http_body(struct http_request *r, size_t most, enum http_body_type type, const char **bytes, size_t *n)
{
    const char *coding = http_header(r, "Content-Encoding");
    const bool chunked = r->guard.chunked;
    const size_t size = (size_t)r->guard.length, room = chunked ? most : size;
    *bytes = "";
    *n = 0;
    if (size > most) {
        refuse_most(r, "", size, most);
        return false;
    }
    if (never_fits(r, size)) {
        refuse_size(r, size);
        return false;
    }
    if (coding && strcasecmp(coding, "identity")) {
        answer_refusal(r, 415, "a body with a Content-Encoding is not taken");
        return false;
    }
    if (!size && !chunked) return true;
    if (!has_type(r, type)) {
        answer_refusal(r, 415,
                       "the body must be JSON, and the header Content-Type say so: Content-Type: application/json");
        return false;
    }
    r->body = malloc(room + 1); /* addresses: what has not come yet takes no memory, and none of what others may have */
    if (!r->body) {
        answer_busy(r, "there is no memory for a body of this size now");
        return false;
    }
    if (!read_body(r, most, n)) return false;
    r->body[*n] = 0;
    *bytes = r->body;
    return true;
}
