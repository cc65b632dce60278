/* download.c: see download.h. What worker-fetch sends is checked as anything from outside: it is the one who speaks to
 * strangers. */
#include "download.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "fetch_inside.h"

enum { LOOK_MS = 500, MOST_HEADER = 64 << 10, MOST_PART = 1 << 20 };

struct download {
    char program[4096];
    bool (*stop)(void *user);
    void *user; /* of stop */
    pid_t pid;  /* 0: none */
    int socket;
    uint64_t id;
    bool open; /* an answer is in flight */
    char label[FETCH_LABEL];
    char *header; /* [MOST_HEADER + 1] */
    char *part;   /* [MOST_PART] */
};

/* ---- the process --------------------------------------------------------------------------------------- */

static void end_helper(struct download *d)
{
    if (!d->pid) return;
    (void)close(d->socket);
    (void)kill(d->pid, SIGKILL);
    while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR) {}
    d->pid = 0;
    d->socket = -1;
    d->open = false;
}

static wk_status gone(struct download *d, const struct wk_err *err)
{
    end_helper(d);
    return wk_fail(err, WK_IO, "the helper process that connects out ended, or sent what cannot be");
}

/* Waits until the socket can be read. */
static wk_status wait_for(const struct download *d, const struct wk_err *err)
{
    for (;;) {
        struct pollfd on = { .fd = d->socket, .events = POLLIN };
        if (d->stop && d->stop(d->user)) return wk_fail(err, WK_CANCELLED, "stopped");
        const int n = poll(&on, 1, LOOK_MS);
        if (n > 0) return WK_OK;
        if (n < 0 && errno != EINTR) return wk_fail(err, WK_IO, "poll: %s", strerror(errno));
    }
}

static wk_status receive(struct download *d, void *to, size_t n, const struct wk_err *err)
{
    for (char *at = to; n;) {
        const wk_status status = wait_for(d, err);
        if (status) return status;
        const ssize_t got = recv(d->socket, at, n, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
        if (got <= 0) return gone(d, err);
        at += got;
        n -= (size_t)got;
    }
    return WK_OK;
}

/* The helper reads what it is sent at once. */
static bool send_all(const struct download *d, const char *at, size_t n)
{
    while (n) {
        const ssize_t done = send(d->socket, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static wk_status start_helper(struct download *d, const struct wk_err *err)
{
    int pair[2];
    struct frame_answer hello;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return wk_fail(err, WK_IO, "no socket for what connects out: %s", strerror(errno));
    const int e = fetch_helper_spawn(d->program, pair[1], &d->pid);
    (void)close(pair[1]);
    if (e) {
        (void)close(pair[0]);
        d->pid = 0;
        return wk_fail(err, WK_IO, "%s does not start: %s", d->program, strerror(e));
    }
    d->socket = pair[0];
    const wk_status status = receive(d, &hello, sizeof hello, err);
    if (status) { /* also if it was stopped: the first word, unread, would be taken for the next answer */
        end_helper(d);
        return status;
    }
    return hello.id == 0 && hello.status == FRAME_HELLO && hello.bytes == sizeof hello ? WK_OK : gone(d, err);
}

void download_watch(struct download *d, bool (*stop)(void *user), void *user)
{
    d->stop = stop;
    d->user = user;
}

wk_status download_open(const char *program, struct download **out, const struct wk_err *err)
{
    *out = NULL;
    struct download *d = calloc(1, sizeof *d);
    if (!d) return wk_fail(err, WK_NO_MEMORY, "out of memory for what connects out");
    d->socket = -1;
    d->header = malloc(MOST_HEADER + 1);
    d->part = malloc(MOST_PART);
    wk_status status = d->header && d->part ? fetch_helper_find(program, d->program, sizeof d->program, err)
                                            : wk_fail(err, WK_NO_MEMORY, "out of memory for what connects out");
    if (!status) status = start_helper(d, err);
    if (status)
        download_close(d);
    else
        *out = d;
    return status;
}

void download_close(struct download *d)
{
    if (!d) return;
    end_helper(d);
    free(d->header);
    free(d->part);
    free(d);
}

/* ---- an answer ----------------------------------------------------------------------------------------- */

/* A frame of the answer in flight, its body into `to`. *n: bytes; *end: no more of it comes. */
static wk_status frame(struct download *d, char *to, size_t cap, uint32_t *http, size_t *n, bool *end,
                       const struct wk_err *err)
{
    struct frame_answer a;
    char failure[FRAME_MOST_FAILURE + 1];
    wk_status status = receive(d, &a, sizeof a, err);
    if (status) return status;
    if (a.bytes != (uint64_t)sizeof a + a.failure_len + a.body_len || a.failure_len > FRAME_MOST_FAILURE ||
        a.body_len > cap || a.id != d->id || a.more > 1 || (a.more && (!a.body_len || !a.status)) ||
        (a.status ? a.status < 100 || a.status > 999 || a.failure_len : a.body_len) || (!a.more && a.body_len))
        return gone(d, err);
    *http = a.status;
    *n = a.body_len;
    *end = !a.more;
    status = a.status ? receive(d, to, a.body_len, err) : receive(d, failure, a.failure_len, err);
    if (status) return status;
    if (*end) d->open = false; /* not before: what is stopped in between is not read any more */
    if (a.status) return WK_OK;
    failure[a.failure_len] = '\0';
    for (char *c = failure; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    return wk_fail(err, WK_IO, "%s: %s", d->label, failure);
}

static wk_status ask(struct download *d, const struct fetch_request *r, const struct wk_err *err)
{
    size_t len = 0;
    char *bytes = fetch_make_frame(r, FRAME_STREAM | FRAME_DOWNLOAD, ++d->id, &len);
    if (!bytes) return wk_fail(err, WK_NO_MEMORY, "out of memory for a request to another host");
    const bool sent = send_all(d, bytes, len);
    OPENSSL_cleanse(bytes, len);
    free(bytes);
    if (!sent) return gone(d, err);
    d->open = true;
    return WK_OK;
}

wk_status download_begin(struct download *d, const struct fetch_request *r, uint32_t *status, const char **header,
                         const struct wk_err *err)
{
    struct fetch_request get = *r;
    get.most_bytes = 0;
    get.part = NULL;
    *header = NULL;
    wk_status s = r->timeout_ms >= 2000 ? fetch_check(&get, err)
                                        : wk_fail(err, WK_INVALID, "a silence of at least 2000 ms is expected");
    if (s) return s;
    if (d->open) end_helper(d); /* the rest of the answer before */
    if (!d->pid) s = start_helper(d, err);
    const size_t label = strcspn(r->url, "?#");
    (void)snprintf(d->label, sizeof d->label, "%.*s", (int)(label < FETCH_LABEL ? label : FETCH_LABEL - 1), r->url);
    if (!s) s = ask(d, &get, err);
    size_t n = 0;
    bool end = false;
    if (!s) s = frame(d, d->header, MOST_HEADER, status, &n, &end, err);
    if (s) return s;
    if (end || memchr(d->header, 0, n)) return gone(d, err);
    d->header[n] = '\0';
    *header = d->header;
    return WK_OK;
}

wk_status download_next(struct download *d, const char **bytes, size_t *n, const struct wk_err *err)
{
    uint32_t http;
    bool end = false;
    *n = 0;
    *bytes = d->part;
    if (!d->open) return WK_OK;
    const wk_status s = frame(d, d->part, MOST_PART, &http, n, &end, err);
    if (s) *n = 0;
    return s;
}

bool download_header(const char *header, const char *name, char *out, size_t cap)
{
    const size_t name_len = strlen(name);
    for (const char *line = header; *line;) {
        const size_t n = strcspn(line, "\n");
        if (n > name_len && strncasecmp(line, name, name_len) == 0 && line[name_len] == ':') {
            const char *from = line + name_len + 1, *end = line + n;
            while (from < end && (*from == ' ' || *from == '\t')) from++;
            while (end > from && strchr(" \t\r", end[-1])) end--;
            if ((size_t)(end - from) >= cap) return false;
            memcpy(out, from, (size_t)(end - from));
            out[end - from] = '\0';
            return true;
        }
        line += n + (line[n] == '\n');
    }
    return false;
}
