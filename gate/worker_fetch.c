/* worker_fetch.c: the program that connects out for the worker: reads requests from its standard input, a socket whose
 * other end the worker holds, runs them with libcurl, many at one time, and writes the answers back.
 *
 * It ends with the worker: by a signal when the worker's thread that started it is gone, and at the end of the socket.
 * Signals that ask the worker to end are for the worker: it goes on to need keys and decisions while it drains. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <curl/curl.h>

#include "fetch.h"
#include "fetch_frame.h"

enum { WORKER = 0 /* the socket */, MOST_HEAD = 64 << 10 /* bytes of an answer's header lines */, KEPT = 32 };

struct transfer {
    CURL *easy;
    struct curl_slist *headers;
    struct frame_request *frame;   /* its texts are libcurl's as long as it runs */
    const char *text[FRAME_TEXTS]; /* of frame */
    char *body;
    size_t len, cap, head;
    bool told;          /* of a download: its header was passed on */
    const char *broken; /* why our own functions ended it; NULL: they did not */
    char error[CURL_ERROR_SIZE];
};

struct helper {
    CURLM *multi;
    struct frame_request head; /* of the frame that comes in */
    size_t have;               /* bytes of it */
    struct frame_request *in;  /* NULL: its head is not complete */
};

/* False: the worker is gone. */
static bool tell(const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n) {
        const ssize_t done = send(WORKER, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static bool answer(uint64_t id, uint32_t status, const char *failure, const char *body, size_t len)
{
    const size_t failure_len = strnlen(failure, FRAME_MOST_FAILURE);
    const struct frame_answer a = { .bytes = (uint32_t)(sizeof a + failure_len + len),
                                    .status = status,
                                    .id = id,
                                    .failure_len = (uint32_t)failure_len,
                                    .body_len = (uint32_t)len };
    return tell(&a, sizeof a) && tell(failure, failure_len) && tell(body, len);
}

/* Bytes of a body that comes as a stream. */
static bool answer_part(uint64_t id, uint32_t status, const char *bytes, size_t len)
{
    const struct frame_answer a = {
        .bytes = (uint32_t)(sizeof a + len), .status = status, .id = id, .body_len = (uint32_t)len, .more = 1
    };
    return tell(&a, sizeof a) && tell(bytes, len);
}

static void drop(struct transfer *t)
{
    if (t->easy) curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    explicit_bzero(t->frame, t->frame->bytes);
    free(t->frame);
    free(t->body);
    free(t);
}

static bool is_stream(const struct transfer *t) { return t->frame->flags & FRAME_STREAM; }
static bool is_download(const struct transfer *t) { return t->frame->flags & FRAME_DOWNLOAD; }

static bool keep(struct transfer *t, const char *bytes, size_t n)
{
    if (n > t->cap - t->len) {
        size_t cap = t->cap ? t->cap * 2 : 4096;
        while (cap - t->len < n) cap *= 2;
        char *grown = realloc(t->body, cap);
        if (!grown) {
            t->broken = "out of memory";
            return false;
        }
        t->body = grown;
        t->cap = cap;
    }
    memcpy(t->body + t->len, bytes, n);
    t->len += n;
    return true;
}

/* A line of a download's header. An interim answer (1xx) has one, too, which is forgotten. */
static bool keep_header(struct transfer *t, const char *line, size_t n)
{
    long status = 0;
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) t->len = 0;
    if (!keep(t, line, n)) return false;
    if (n > 2 || line[n - 1] != '\n') return true; /* not the empty line at its end */
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 999) return true;
    t->told = true;
    const bool heard = answer_part(t->frame->id, (uint32_t)status, t->body, t->len);
    t->len = 0;
    return heard;
}

static size_t take_head(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    const size_t more = size * n;
    t->head += more;
    if (t->head > MOST_HEAD) {
        t->broken = "the header of its answer is longer than 64 KiB";
        return 0;
    }
    return !more || !is_download(t) || t->told || keep_header(t, bytes, more) ? more : 0;
}

static size_t pass_on(struct transfer *t, const char *bytes, size_t n)
{
    long status = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->len += n;
    if (status < 100 || status > 999)
        t->broken = "its answer has no status";
    else if (!n || answer_part(t->frame->id, (uint32_t)status, bytes, n))
        return n;
    return 0;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    const size_t more = size * n;
    if (!is_download(t) && more > t->frame->most_bytes - t->len) {
        t->broken = "its answer is longer than allowed";
        return 0;
    }
    if (is_stream(t)) return pass_on(t, bytes, more);
    return keep(t, bytes, more) ? more : 0;
}

/* Pointers to the texts; false: lengths that do not make the frame, or a zero within a text. */
static bool split(struct transfer *t)
{
    const struct frame_request *f = t->frame;
    const char *at = (const char *)(f + 1), *const end = (const char *)f + f->bytes;
    for (int i = 0; i < FRAME_TEXTS; i++) {
        if ((size_t)(end - at) < (size_t)f->len[i] + 1 || at[f->len[i]] != '\0') return false;
        if (i != FRAME_BODY && memchr(at, 0, f->len[i])) return false;
        t->text[i] = at;
        at += (size_t)f->len[i] + 1;
    }
    return at == end;
}

static bool add_header(struct transfer *t, const char *line)
{
    struct curl_slist *longer = curl_slist_append(t->headers, line);
    if (longer) t->headers = longer;
    return longer != NULL;
}

static bool make_headers(struct transfer *t)
{
    char line[512];
    bool good = add_header(t, "Expect:"); /* none: a body is small */
    if (t->frame->len[FRAME_TYPE]) {
        const int n = snprintf(line, sizeof line, "Content-Type: %s", t->text[FRAME_TYPE]);
        good = good && n > 0 && (size_t)n < sizeof line && add_header(t, line);
    }
    char *lines = strdup(t->text[FRAME_HEADERS]), *rest = NULL;
    if (!lines) return false;
    for (char *l = strtok_r(lines, "\n", &rest); l && good; l = strtok_r(NULL, "\n", &rest)) good = add_header(t, l);
    explicit_bzero(lines, strlen(lines));
    free(lines);
    return good;
}

#define SET(option, value) (good = good && curl_easy_setopt(t->easy, option, value) == CURLE_OK)

static bool only_protocols(struct transfer *t)
{
    bool good = true;
    const bool https_only = t->frame->flags & FRAME_HTTPS_ONLY;
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, https_only ? "https" : "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR, "https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(https_only ? CURLPROTO_HTTPS : CURLPROTO_HTTPS | CURLPROTO_HTTP));
    SET(CURLOPT_REDIR_PROTOCOLS, (long)CURLPROTO_HTTPS);
#endif
    return good;
}

/* What every request has: certificates verified, nothing from the environment, nothing followed, all of it bounded. */
static bool set_rules(struct transfer *t)
{
    bool good = only_protocols(t);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_USERAGENT, "worker");
    if (is_stream(t)) {
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)t->frame->timeout_ms);
        SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
        SET(CURLOPT_LOW_SPEED_TIME, (long)t->frame->timeout_ms / 1000);
    } else {
        SET(CURLOPT_TIMEOUT_MS, (long)t->frame->timeout_ms);
    }
    if (is_download(t))
        SET(CURLOPT_BUFFERSIZE, 256L << 10);
    else
        SET(CURLOPT_MAXFILESIZE, (long)t->frame->most_bytes);
    SET(CURLOPT_WRITEFUNCTION, take_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HEADERFUNCTION, take_head);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_ERRORBUFFER, t->error);
    SET(CURLOPT_PRIVATE, t);
    return good;
}

static bool set_request(struct transfer *t)
{
    bool good = make_headers(t);
    SET(CURLOPT_URL, t->text[FRAME_URL]);
    SET(CURLOPT_HTTPHEADER, t->headers);
    if (t->frame->len[FRAME_CA]) { /* these certificates and no others */
        SET(CURLOPT_CAINFO, t->text[FRAME_CA]);
        SET(CURLOPT_CAPATH, NULL);
    }
    if (t->frame->len[FRAME_CERT]) {
        SET(CURLOPT_SSLCERT, t->text[FRAME_CERT]);
        SET(CURLOPT_SSLKEY, t->text[FRAME_KEY]);
    }
    if (t->frame->len[FRAME_SOCKET]) SET(CURLOPT_UNIX_SOCKET_PATH, t->text[FRAME_SOCKET]);
    const char *method = t->text[FRAME_METHOD];
    const bool get = strcmp(method, "GET") == 0, without = get || strcmp(method, "DELETE") == 0;
    if (!without) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->frame->len[FRAME_BODY]);
        SET(CURLOPT_POSTFIELDS, t->text[FRAME_BODY]);
    }
    if (!get && strcmp(method, "POST") != 0) SET(CURLOPT_CUSTOMREQUEST, method);
    return good;
}

/* Takes the frame over. False: the two sides do not understand each other. */
static bool begin(struct helper *h, struct frame_request *frame)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t) {
        free(frame);
        return false;
    }
    t->frame = frame;
    if (!split(t)) {
        drop(t);
        return false;
    }
    t->easy = curl_easy_init();
    if (t->easy && set_rules(t) && set_request(t) && curl_multi_add_handle(h->multi, t->easy) == CURLM_OK) return true;
    const bool heard = answer(frame->id, 0, "libcurl refused the request's options, or memory is short", "", 0);
    drop(t);
    return heard;
}

static bool end(struct helper *h, const CURLMsg *m)
{
    struct transfer *t = NULL;
    long status = 0;
    const CURLcode code = m->data.result;
    CURL *easy = m->easy_handle;
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
    (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_multi_remove_handle(h->multi, easy);
    char failure[FRAME_MOST_FAILURE + 1];
    if (code == CURLE_OK && status >= 100 && status <= 999) {
        const bool heard =
            answer(t->frame->id, (uint32_t)status, "", t->body ? t->body : "", is_stream(t) ? 0 : t->len);
        drop(t);
        return heard;
    }
    if (code == CURLE_OPERATION_TIMEDOUT)
        (void)snprintf(failure, sizeof failure,
                       is_stream(t) ? "nothing came for %u ms" : "no complete answer within %u ms",
                       t->frame->timeout_ms);
    else if (code == CURLE_FILESIZE_EXCEEDED)
        (void)snprintf(failure, sizeof failure, "its answer is longer than allowed");
    else
        (void)snprintf(failure, sizeof failure, "%s",
                       t->broken          ? t->broken
                       : t->error[0]      ? t->error
                       : code == CURLE_OK ? "its answer has no status"
                                          : curl_easy_strerror(code));
    const bool heard = answer(t->frame->id, 0, failure, "", 0);
    drop(t);
    return heard;
}

/* What of the socket is there, without waiting. False: its end, or a frame that cannot be. */
static bool hear(struct helper *h)
{
    for (;;) {
        const size_t whole = h->in ? h->head.bytes : sizeof h->head;
        char *to = (h->in ? (char *)h->in : (char *)&h->head) + h->have;
        const ssize_t n = recv(WORKER, to, whole - h->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0) return false;
        h->have += (size_t)n;
        if (h->have < whole) continue;
        if (!h->in) {
            const size_t most = sizeof h->head + FRAME_MOST_TEXTS + FETCH_MOST_BODY;
            if (h->head.bytes <= sizeof h->head || h->head.bytes > most) return false;
            if (!(h->in = malloc(h->head.bytes))) return false;
            memcpy(h->in, &h->head, sizeof h->head);
            continue;
        }
        struct frame_request *frame = h->in;
        h->in = NULL;
        h->have = 0;
        if (!begin(h, frame)) return false;
    }
}

static bool run(struct helper *h)
{
    if (!answer(0, FRAME_HELLO, "", "", 0)) return false;
    for (;;) {
        struct curl_waitfd worker = { .fd = WORKER, .events = CURL_WAIT_POLLIN };
        int running = 0, left = 0;
        if (curl_multi_perform(h->multi, &running) != CURLM_OK) return false;
        const CURLMsg *m;
        while ((m = curl_multi_info_read(h->multi, &left)) != NULL)
            if (m->msg == CURLMSG_DONE && !end(h, m)) return false;
        if (curl_multi_poll(h->multi, &worker, 1, 60000, NULL) != CURLM_OK) return false;
        if (!hear(h)) return false;
    }
}

/* What is under way when the worker is gone is left to the kernel. */
int main(void)
{
    static struct helper h;
    static const int quiet[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) (void)signal(quiet[i], SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); /* bodies may be prompts */
    (void)prctl(PR_SET_NAME, "worker-fetch");
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(h.multi = curl_multi_init())) return 1;
    (void)curl_multi_setopt(h.multi, CURLMOPT_MAXCONNECTS, (long)KEPT);
    (void)run(&h);
    return 0;
}
