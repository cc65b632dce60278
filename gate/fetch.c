/* fetch.c: requests to other hosts: what may be asked, who waits, deadlines. fetch_helper.c has the process that
 * connects; a thread started here speaks to it and ends every call. */
#include "fetch_inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include "base/monotonic.h"

enum { READY_MS = 20000 /* for the helper's first word */ };

int64_t fetch_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- lists of calls --------------------------------------------------------------------------------------------- */

static void append(struct fetch_calls *list, struct fetch_call *c)
{
    c->next = NULL;
    if (list->last)
        list->last->next = c;
    else
        list->first = c;
    list->last = c;
}

struct fetch_call *fetch_take(struct fetch_calls *list, uint64_t id)
{
    struct fetch_call *before = NULL, *c = list->first;
    while (c && c->id != id) {
        before = c;
        c = c->next;
    }
    if (!c) return NULL;
    if (before)
        before->next = c->next;
    else
        list->first = c->next;
    if (list->last == c) list->last = before;
    c->next = NULL;
    return c;
}

static void free_call(struct fetch_call *c)
{
    if (c->frame) OPENSSL_cleanse(c->frame, c->frame_len);
    free(c->frame);
    fetch_answer_free(&c->answer);
    if (!c->started) (void)pthread_cond_destroy(&c->ended_cond);
    free(c);
}

void fetch_end(struct fetch *f, struct fetch_call *c, const char *failure)
{
    c->ended = true;
    c->failed = failure != NULL;
    if (failure) (void)snprintf(c->failure, sizeof c->failure, "%s: %s", c->label, failure);
    f->bytes -= c->charged;
    if (!c->started) {
        f->n_waiting--;
        (void)pthread_cond_signal(&c->ended_cond);
        return;
    }
    f->n_started--;
    f->started_bytes -= c->charged;
    append(&f->over, c);
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

/* Ends those whose time is over; *wait_until is brought forward to the next deadline. */
static void expire(struct fetch *f, struct fetch_calls *list, int64_t *wait_until)
{
    const int64_t now = fetch_now();
    for (struct fetch_call *c = list->first, *next; c; c = next) {
        next = c->next;
        if (c->deadline > now) {
            if (c->deadline < *wait_until) *wait_until = c->deadline;
            continue;
        }
        char failure[FETCH_TEXT];
        const struct fetch_helper *h = &f->helper;
        if (h->pid || !h->ended[0])
            (void)snprintf(failure, sizeof failure,
                           c->part ? "nothing came for %u ms" : "no complete answer within %u ms", c->timeout_ms);
        else
            (void)snprintf(failure, sizeof failure, "the helper process that connects out does not run: %s", h->ended);
        fetch_end(f, fetch_take(list, c->id), failure);
    }
}

static void call_back(struct fetch *f)
{
    struct fetch_call *c = f->over.first;
    f->over = (struct fetch_calls){ NULL, NULL };
    if (!c) return;
    (void)pthread_mutex_unlock(&f->lock);
    for (struct fetch_call *next; c; c = next) {
        next = c->next;
        if (c->done) c->done(c->arg, c->failed ? NULL : &c->answer, c->failed ? c->failure : NULL);
        free_call(c);
    }
    (void)pthread_mutex_lock(&f->lock);
}

static void wait_for_work(struct fetch *f, int64_t until)
{
    const struct fetch_helper *h = &f->helper;
    const bool sends = h->pid && (h->out || f->queue.first);
    struct pollfd on[2] = { { f->wake, POLLIN, 0 }, { h->socket, (short)(POLLIN | (sends ? POLLOUT : 0)), 0 } };
    const int64_t left = until - fetch_now();
    const nfds_t n = h->pid ? 2 : 1;
    (void)pthread_mutex_unlock(&f->lock);
    (void)poll(on, n, left <= 0 ? 0 : (int)left);
    if (on[0].revents) {
        uint64_t units;
        (void)!read(f->wake, &units, sizeof units);
    }
    (void)pthread_mutex_lock(&f->lock);
}

static void *run(void *arg)
{
    struct fetch *f = arg;
    (void)pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        int64_t until = fetch_now() + 60000;
        fetch_helper_keep(f);
        fetch_helper_send(f);
        fetch_helper_receive(f);
        expire(f, &f->queue, &until);
        expire(f, &f->sent, &until);
        if (!f->helper.pid && f->helper.again < until) until = f->helper.again;
        if (f->over.first)
            call_back(f); /* and look again at what has come meanwhile */
        else if (!f->stop)
            wait_for_work(f, until);
    }
    fetch_helper_end(f, NULL);
    for (struct fetch_call *c; (c = f->queue.first) != NULL;)
        fetch_end(f, fetch_take(&f->queue, c->id), "the worker ends");
    call_back(f);
    (void)pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void wake(struct fetch *f)
{
    const uint64_t one = 1;
    (void)!write(f->wake, &one, sizeof one);
}

static void destroy(struct fetch *f)
{
    if (f->wake >= 0) (void)close(f->wake);
    (void)pthread_cond_destroy(&f->opened);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

wk_status fetch_open(const char *program, struct fetch **out, const struct wk_err *err)
{
    *out = NULL;
    struct fetch *f = calloc(1, sizeof *f);
    if (!f) return wk_fail(err, WK_NO_MEMORY, "out of memory for what connects out");
    f->helper.socket = -1;
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!cond_init_monotonic(&f->opened)) {
        if (f->wake >= 0) (void)close(f->wake);
        free(f);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for what connects out");
    }
    (void)pthread_mutex_init(&f->lock, NULL);
    wk_status s = f->wake >= 0 ? fetch_helper_find(program, f->helper.program, sizeof f->helper.program, err)
                               : wk_fail(err, WK_IO, "no descriptor for what connects out: %s", strerror(errno));
    if (!s && pthread_create(&f->thread, NULL, run, f) != 0)
        s = wk_fail(err, WK_IO, "no thread for what connects out: raise the limit of threads");
    if (s) {
        destroy(f);
        return s;
    }
    const struct timespec until = clock_in(CLOCK_MONOTONIC, READY_MS);
    (void)pthread_mutex_lock(&f->lock);
    while (!f->first_over && pthread_cond_timedwait(&f->opened, &f->lock, &until) == 0) {}
    const bool good = f->first_good;
    if (!good)
        s = wk_fail(err, WK_IO, "%s does not run: %s", f->helper.program,
                    f->helper.ended[0] ? f->helper.ended : "it did not say that it is ready within 20 s");
    (void)pthread_mutex_unlock(&f->lock);
    if (good)
        *out = f;
    else
        fetch_close(f);
    return s;
}

void fetch_stop(struct fetch *f)
{
    if (!f || f->stop) return; /* nobody else writes it */
    (void)pthread_mutex_lock(&f->lock);
    f->stop = true;
    wake(f);
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
}

void fetch_close(struct fetch *f)
{
    if (!f) return;
    fetch_stop(f);
    destroy(f);
}

uint64_t fetch_starts(struct fetch *f)
{
    (void)pthread_mutex_lock(&f->lock);
    const uint64_t n = f->starts;
    (void)pthread_mutex_unlock(&f->lock);
    return n;
}

void fetch_answer_free(struct fetch_answer *answer)
{
    if (!answer) return;
    free(answer->body);
    *answer = (struct fetch_answer){ 0 };
}

/* ---- a request as a frame --------------------------------------------------------------------------------------- */

static bool is_plain(const char *text) /* no control character, no space */
{
    for (; *text; text++)
        if ((unsigned char)*text <= 0x20 || *text == 0x7f) return false;
    return true;
}

static bool is_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return false;
    return true;
}

static wk_status check_url(const struct fetch_request *r, const struct wk_err *err)
{
    const bool https = r->url && strncmp(r->url, "https://", 8) == 0;
    if (!https && (r->https_only || !r->url || strncmp(r->url, "http://", 7) != 0))
        return wk_fail(err, WK_INVALID, "a URL that begins with %shttps:// is expected",
                       r->https_only ? "" : "http:// or ");
    const char *host = r->url + (https ? 8 : 7);
    const size_t n = strcspn(host, "/?#");
    if (n == 0 || memchr(host, '@', n) || memchr(host, '\\', n) || !is_plain(host) ||
        strnlen(r->url, FETCH_MOST_URL + 1) > FETCH_MOST_URL)
        return wk_fail(err, WK_INVALID,
                       "a URL of at most %d bytes with a host, without user, spaces and control characters is expected",
                       FETCH_MOST_URL);
    return WK_OK;
}

static bool is_method(const struct fetch_request *r)
{
    static const char *const names[] = { "GET", "DELETE", "POST", "PUT", "PATCH" };
    enum { WITHOUT_BODY = 2 };
    for (size_t i = 0; r->method && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], r->method) == 0) return i >= WITHOUT_BODY || !r->body_len;
    return false;
}

wk_status fetch_check(const struct fetch_request *r, const struct wk_err *err)
{
    const wk_status s = check_url(r, err);
    if (s) return s;
    if (!is_method(r))
        return wk_fail(err, WK_INVALID, "GET or DELETE without a body, or POST, PUT or PATCH are expected");
    if (r->body_len > FETCH_MOST_BODY || r->most_bytes > FETCH_MOST_ANSWER || r->timeout_ms < 1 ||
        r->timeout_ms > FETCH_MOST_TIMEOUT_MS || (r->part && r->timeout_ms < 2000) || r->n_headers > FETCH_MOST_HEADERS)
        return wk_fail(err, WK_INVALID, "the request's body, time, headers or largest answer are beyond the limits");
    bool good = !r->content_type || (is_line(r->content_type) && strlen(r->content_type) <= 256);
    for (size_t i = 0; i < r->n_headers; i++)
        good = good && is_line(r->headers[i]) && strchr(r->headers[i], ':') && strlen(r->headers[i]) <= 8192;
    good = good && (!r->ca_file || strlen(r->ca_file) < 4096) && (!r->unix_socket || strlen(r->unix_socket) < 108) &&
           (!r->cert_file || strlen(r->cert_file) < 4096) && (!r->key_file || strlen(r->key_file) < 4096) &&
           !r->cert_file == !r->key_file;
    return good ? WK_OK : wk_fail(err, WK_INVALID, "headers on one line of at most 8192 bytes and paths are expected");
}

/* Neither a FIFO nor a device is opened: nobody waits. */
wk_status fetch_check_ca(const char *file, const struct wk_err *err)
{
    struct stat st;
    if (stat(file, &st)) return wk_fail(err, WK_INVALID, "%s: %s", file, strerror(errno));
    FILE *f = S_ISREG(st.st_mode) ? fopen(file, "re") : NULL;
    if (!f)
        return wk_fail(err, WK_INVALID, "%s: %s", file,
                       S_ISREG(st.st_mode) ? strerror(errno) : "expected a file of certificates in PEM");
    X509 *one = PEM_read_X509(f, NULL, NULL, NULL);
    const bool found = one != NULL;
    X509_free(one);
    (void)fclose(f);
    ERR_clear_error();
    return found ? WK_OK : wk_fail(err, WK_INVALID, "%s: expected certificates in PEM, found none", file);
}

static void add_text(struct frame_request *head, char **at, enum frame_text which, const void *text, size_t n)
{
    head->len[which] = (uint32_t)n;
    if (n) memcpy(*at, text, n);
    (*at)[n] = '\0';
    *at += n + 1;
}

char *fetch_make_frame(const struct fetch_request *r, uint32_t flags, uint64_t id, size_t *len)
{
    const char *text[FRAME_TEXTS] = { [FRAME_METHOD] = r->method,
                                      [FRAME_URL] = r->url,
                                      [FRAME_TYPE] = r->content_type ? r->content_type : "",
                                      [FRAME_HEADERS] = "",
                                      [FRAME_CA] = r->ca_file ? r->ca_file : "",
                                      [FRAME_SOCKET] = r->unix_socket ? r->unix_socket : "",
                                      [FRAME_CERT] = r->cert_file ? r->cert_file : "",
                                      [FRAME_KEY] = r->key_file ? r->key_file : "" };
    size_t n[FRAME_TEXTS] = { 0 }, bytes = sizeof(struct frame_request);
    for (int i = 0; i < FRAME_BODY; i++) n[i] = strlen(text[i]);
    for (size_t i = 0; i < r->n_headers; i++) n[FRAME_HEADERS] += strlen(r->headers[i]) + 1;
    n[FRAME_BODY] = r->body_len;
    for (int i = 0; i < FRAME_TEXTS; i++) bytes += n[i] + 1;
    char *frame = malloc(bytes), *headers = malloc(n[FRAME_HEADERS] + 1);
    if (frame && headers) {
        char *h = headers;
        for (size_t i = 0; i < r->n_headers; i++) {
            const size_t k = strlen(r->headers[i]);
            memcpy(h, r->headers[i], k);
            h[k] = '\n';
            h += k + 1;
        }
        struct frame_request head = { .bytes = (uint32_t)bytes,
                                      .flags = flags | (r->https_only ? FRAME_HTTPS_ONLY : 0u) |
                                               (r->part ? FRAME_STREAM : 0u),
                                      .id = id,
                                      .timeout_ms = r->timeout_ms,
                                      .most_bytes = r->most_bytes };
        char *at_text = frame + sizeof head;
        for (int i = 0; i < FRAME_TEXTS; i++)
            add_text(&head, &at_text, (enum frame_text)i,
                     i == FRAME_BODY      ? r->body
                     : i == FRAME_HEADERS ? headers
                                          : text[i],
                     n[i]);
        memcpy(frame, &head, sizeof head);
    } else {
        free(frame);
        frame = NULL;
    }
    if (headers) OPENSSL_cleanse(headers, n[FRAME_HEADERS]);
    free(headers);
    *len = bytes;
    return frame;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* Room for it, by the limits; the lock is held. */
static bool has_room(const struct fetch *f, const struct fetch_call *c)
{
    if (c->charged > FETCH_MOST_BYTES - f->bytes) return false;
    if (!c->started) return f->n_waiting < FETCH_MOST_WAITING;
    return f->n_started < FETCH_MOST_STARTED && c->charged <= FETCH_MOST_BYTES / 2 - f->started_bytes;
}

/* Queues a new call; the lock is held when it succeeds. */
static wk_status submit(struct fetch *f, const struct fetch_request *r, struct fetch_call *c, const struct wk_err *err)
{
    (void)pthread_mutex_lock(&f->lock);
    const uint64_t id = ++f->ids;
    (void)pthread_mutex_unlock(&f->lock);
    /* The helper's time is a little shorter than ours, so that it says what it waits for. */
    struct fetch_request sent = *r;
    sent.timeout_ms = r->timeout_ms - (r->timeout_ms > 1000 ? 100 : r->timeout_ms / 10);
    c->frame = fetch_make_frame(&sent, 0, id, &c->frame_len);
    if (!c->frame) return wk_fail(err, WK_NO_MEMORY, "out of memory for a request to another host");
    c->id = id;
    c->deadline = fetch_now() + r->timeout_ms;
    c->timeout_ms = r->timeout_ms;
    c->most_bytes = r->most_bytes;
    c->charged = c->frame_len + r->most_bytes;
    const size_t label = strcspn(r->url, "?#");
    (void)snprintf(c->label, sizeof c->label, "%.*s", (int)(label < FETCH_LABEL ? label : FETCH_LABEL - 1), r->url);
    (void)pthread_mutex_lock(&f->lock);
    if (f->stop || !has_room(f, c)) {
        const bool stop = f->stop;
        (void)pthread_mutex_unlock(&f->lock);
        return wk_fail(err, WK_IO, "%s: %s", c->label,
                       stop ? "the worker ends" : "too many requests to other hosts are under way");
    }
    f->bytes += c->charged;
    if (c->started) {
        f->started_bytes += c->charged;
        f->n_started++;
    } else {
        f->n_waiting++;
    }
    append(&f->queue, c);
    wake(f);
    return WK_OK;
}

wk_status fetch_do(struct fetch *f, const struct fetch_request *r, struct fetch_answer *answer,
                   const struct wk_err *err)
{
    *answer = (struct fetch_answer){ 0 };
    wk_status s = r->part ? wk_fail(err, WK_INVALID, "an answer in parts is of fetch_start") : fetch_check(r, err);
    if (s) return s;
    struct fetch_call *c = calloc(1, sizeof *c);
    if (!c) return wk_fail(err, WK_NO_MEMORY, "out of memory for a request to another host");
    if (pthread_cond_init(&c->ended_cond, NULL) != 0) {
        free(c);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for a request to another host");
    }
    s = submit(f, r, c, err);
    if (!s) {
        while (!c->ended) (void)pthread_cond_wait(&c->ended_cond, &f->lock); /* its thread ends every call in time */
        (void)pthread_mutex_unlock(&f->lock);
        if (c->failed) {
            s = wk_fail(err, WK_IO, "%s", c->failure);
        } else {
            *answer = c->answer;
            c->answer = (struct fetch_answer){ 0 };
        }
    }
    free_call(c);
    return s;
}

wk_status fetch_start(struct fetch *f, const struct fetch_request *r, fetch_done done, void *arg,
                      const struct wk_err *err)
{
    wk_status s = fetch_check(r, err);
    if (s) return s;
    struct fetch_call *c = calloc(1, sizeof *c);
    if (!c) return wk_fail(err, WK_NO_MEMORY, "out of memory for a request to another host");
    c->started = true;
    c->done = done;
    c->part = r->part;
    c->arg = arg;
    s = submit(f, r, c, err);
    if (!s)
        (void)pthread_mutex_unlock(&f->lock);
    else
        free_call(c);
    return s;
}
