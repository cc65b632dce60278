/* answer.c: what goes back: whole answers and streams of events. Everything is written to the socket
 * directly, with a deadline. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "internal.h"

enum {
    HEAD_BYTES = 2048,
    EVENT_NAME_MAX = 64,
    SEND_BUFFER = 65536, /* what a reader who has stopped can have us hold, about; in the kernel */
    PROBE_MS = 50,       /* least time between two comments to a client that has shut down its side */
    RESET_MS = 2         /* a closed socket that is near answers such a comment sooner than this */
};

/* ---- whole answers ------------------------------------------------------------------------------------- */

void http_extra(struct http_request *r, const char *name, const char *value)
{
    if (r->n_extra == HTTP_EXTRA_MAX || strpbrk(name, "\r\n:") || strpbrk(value, "\r\n")) return;
    r->n_extra++;
    http_text_format(&r->extra, "%s: %s\r\n", name, value);
}

/* IMF-fixdate, in whatever locale. */
static void format_date(char out[32])
{
    static const char days[][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[][4] = {
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"
    };
    const time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t)) t = (struct tm){ .tm_mday = 1, .tm_year = 70, .tm_wday = 4 };
    (void)snprintf(out, 32, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days[t.tm_wday], (unsigned)t.tm_mday % 100,
                   months[t.tm_mon], (unsigned)(t.tm_year + 1900) % 10000, (unsigned)t.tm_hour % 100,
                   (unsigned)t.tm_min % 100, (unsigned)t.tm_sec % 100);
}

/* Does the connection go on behind this answer? If the client asked for it, and the next request begins where this one
 * ends: nothing of it may be left, nor may the answer end with the connection. */
static bool keeps(const struct http_request *r, bool framed)
{
    return framed && r->guard.asks_keep && r->vetted && !r->unread && !atomic_load(&r->s->closing) &&
           !connection_is_pressed(r->s);
}

static bool lists_any(const struct http_server *s)
{
    for (uint32_t i = 0; i < s->o.n_origins; i++)
        if (strcmp(s->o.origins[i], "*") == 0) return true;
    return false;
}

/* Status line and the headers that every answer has. framed: the answer itself says where it ends. */
static size_t format_head(struct http_request *r, int status, bool framed, char out[HEAD_BYTES])
{
    char date[32], kept[64];
    format_date(date);
    r->keeps = keeps(r, framed);
    (void)snprintf(kept, sizeof kept, "keep-alive\r\nKeep-Alive: timeout=%d", HTTP_IDLE_MS / 1000);
    int n = snprintf(out, HEAD_BYTES,
                     "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\nX-Request-Id: %s\r\nX-Content-Type-Options: "
                     "nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n",
                     status, status_of(status)->phrase, date, r->keeps ? kept : "close", r->id);
    const char *also = failure_id_header(r);
    if (also) n += snprintf(out + n, HEAD_BYTES - (size_t)n, "%s: %s\r\n", also, r->id);
    if (r->trace[0]) n += snprintf(out + n, HEAD_BYTES - (size_t)n, "traceparent: %s\r\n", r->trace);
    if (r->origin[0] && r->vetted)
        n += snprintf(out + n, HEAD_BYTES - (size_t)n,
                      "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: Retry-After, "
                      "WWW-Authenticate, X-Request-Id, x-should-retry, x-ratelimit-limit-requests, "
                      "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
                      "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens\r\nVary: Origin\r\n",
                      lists_any(r->s) ? "*" : r->origin);
    return (size_t)n;
}

void http_answer(struct http_request *r, int status, const char *type, const void *bytes, size_t n)
{
    if (r->answered) return;
    r->answered = true;
    r->status = status;
    if (r->route && r->s->o.answering) r->s->o.answering(r->s->user, r);
    char head[HEAD_BYTES], tail[160];
    const size_t head_n = format_head(r, status, true, head);
    int tail_n = 0;
    if (status != 204) {
        if (type) tail_n = snprintf(tail, sizeof tail, "Content-Type: %.100s\r\n", type);
        tail_n += snprintf(tail + tail_n, sizeof tail - (size_t)tail_n, "Content-Length: %zu\r\n", n);
    }
    tail_n += snprintf(tail + tail_n, sizeof tail - (size_t)tail_n, "\r\n");
    struct iovec parts[] = {
        { head, head_n },
        { r->extra.data, r->extra.n },
        { tail, (size_t)tail_n },
        { (void *)(uintptr_t)bytes, r->head || status == 204 ? 0 : n },
    };
    (void)socket_send(r, parts, 4, true);
}

void answer_end(struct http_request *r)
{
    if (r->streaming && r->chunked && !r->gone) {
        char end[] = "0\r\n\r\n";
        (void)socket_send(r, &(struct iovec){ end, sizeof end - 1 }, 1, false);
    }
    int left = 0;
    if (!r->keeps || r->gone) {
        if (!r->unread && !ioctl(r->fd, FIONREAD, &left) && left > 0) r->unread = true;
        /* The end of a TLS client's side is bytes, too: come too late, they would have the rest of our answer reset. */
        if (r->tls && !tls_ended(r->tls)) r->unread = true;
        socket_finish(r);
    }
    if (r->s->o.log)
        r->s->o.log(r->s->user, r->method, r->path, r->status, r->in, r->out,
                    (double)(http_now_ns() - r->begun_ns) * 1e-9);
}

/* ---- streams ------------------------------------------------------------------------------------------- */

bool http_stream_begin(struct http_request *r, enum http_stream_kind kind)
{
    static const char *const types[] = { [HTTP_EVENTS] = "text/event-stream",
                                         [HTTP_LINES] = "application/x-ndjson",
                                         [HTTP_BYTES] = "application/octet-stream" };
    if (r->answered) return false;
    r->answered = true;
    r->kind = kind;
    r->status = 200;
    r->chunked = !r->guard.old;
    const int buffer = SEND_BUFFER;
    if (kind != HTTP_BYTES) (void)setsockopt(r->fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    char head[HEAD_BYTES], tail[160];
    const size_t head_n = format_head(r, 200, r->chunked, head);
    const int tail_n =
        snprintf(tail, sizeof tail, "Content-Type: %s\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
                 types[kind], r->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    struct iovec parts[] = { { head, head_n }, { r->extra.data, r->extra.n }, { tail, (size_t)tail_n } };
    if (!socket_send(r, parts, 3, false) || r->head) return false;
    return r->streaming = true;
}

bool http_event(struct http_request *r, const char *event, const char *data, size_t n)
{
    if (!r->streaming || r->gone) return false;
    char name[EVENT_NAME_MAX + 16] = "", prefix[EVENT_NAME_MAX + 48], end[] = "\n\n\r\n";
    const bool line = r->kind == HTTP_LINES;
    const int name_n = line    ? 0
                       : event ? snprintf(name, sizeof name, "event: %.*s\ndata: ", EVENT_NAME_MAX, event)
                               : snprintf(name, sizeof name, "data: ");
    const size_t end_n = line ? 1 : 2;
    int prefix_n = 0;
    if (r->chunked) prefix_n = snprintf(prefix, sizeof prefix, "%zx\r\n", (size_t)name_n + n + end_n);
    memcpy(prefix + prefix_n, name, (size_t)name_n);
    struct iovec parts[] = { { prefix, (size_t)(prefix_n + name_n) },
                             { (void *)(uintptr_t)data, n },
                             { end + 2 - end_n, end_n + (r->chunked ? 2 : 0) } };
    return socket_send(r, parts, 3, false);
}

bool http_bytes(struct http_request *r, const void *bytes, size_t n)
{
    char prefix[24], end[] = "\r\n";
    if (!r->streaming || r->gone) return false;
    const int prefix_n = r->chunked ? snprintf(prefix, sizeof prefix, "%zx\r\n", n) : 0;
    struct iovec parts[] = { { prefix, (size_t)prefix_n },
                             { (void *)(uintptr_t)bytes, n },
                             { end, r->chunked ? sizeof end - 1 : 0 } };
    return socket_send(r, parts, 3, false);
}

bool http_here(struct http_request *r)
{
    const short looks = r->gone ? 0 : socket_look(r);
    if (!looks) return !r->gone;
    if (looks & (POLLERR | POLLHUP | POLLNVAL)) r->gone = true;
    if (r->gone || r->probed || r->answered || r->guard.old) return !r->gone;
    char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    r->probed = true;
    return socket_send(r, &(struct iovec){ text, sizeof text - 1 }, 1, true);
}

bool http_left(struct http_request *r)
{
    if (socket_look(r) & (POLLRDHUP | POLLERR | POLLHUP | POLLNVAL)) r->gone = true;
    return r->gone;
}

bool http_ping(struct http_request *r)
{
    if (r->gone) return false;
    const short looks = socket_look(r);
    if (looks & (POLLERR | POLLHUP | POLLNVAL)) {
        r->gone = true;
        return false;
    }
    if (!r->streaming) return true;
    if (!socket_moves(r) || (r->kind != HTTP_EVENTS && looks & POLLRDHUP)) {
        r->gone = true;
        return false;
    }
    if (r->kind != HTTP_EVENTS) return true;
    const uint64_t silent_ms = (http_now_ns() - r->wrote_ns) / 1000000;
    if (silent_ms < (looks & POLLRDHUP ? PROBE_MS : HTTP_PING_MS)) return true;
    char whole[] = "8\r\n: ping\n\n\r\n";
    struct iovec part = r->chunked ? (struct iovec){ whole, sizeof whole - 1 } : (struct iovec){ whole + 3, 8 };
    struct pollfd reset = { .fd = r->fd };
    if (socket_send(r, &part, 1, false) && looks & POLLRDHUP && poll(&reset, 1, RESET_MS) > 0) r->gone = true;
    return !r->gone;
}
