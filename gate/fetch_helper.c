/* fetch_helper.c: the process worker-fetch as fetch's thread keeps it: started, spoken to, restarted. What it sends is
 * checked as anything from outside: it is the one who speaks to strangers. */
#include "fetch_inside.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "log/log.h"

enum { PAUSE_MS = 100, MOST_PAUSE_MS = 10000, LIVED_MS = 10000 /* so long, and its end is an accident */ };

static void pause_more(struct fetch_helper *h)
{
    const int64_t now = fetch_now();
    if (h->since && now - h->since >= LIVED_MS) h->pause_ms = 0;
    h->again = now + h->pause_ms;
    h->pause_ms = h->pause_ms ? h->pause_ms * 2 : PAUSE_MS;
    if (h->pause_ms > MOST_PAUSE_MS) h->pause_ms = MOST_PAUSE_MS;
}

void fetch_helper_keep(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    if (h->pid || fetch_now() < h->again) return;
    int pair[2] = { -1, -1 }, e = 0;
    h->since = fetch_now();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) e = errno;
    if (!e) e = fetch_helper_spawn(h->program, pair[1], &h->pid);
    if (pair[1] >= 0) (void)close(pair[1]);
    if (!e) {
        h->socket = pair[0];
        f->starts++;
        return;
    }
    h->pid = 0;
    if (pair[0] >= 0) (void)close(pair[0]);
    (void)snprintf(h->ended, sizeof h->ended, "it does not start: %s", strerror(e));
    pause_more(h);
    f->first_over = true;
    (void)pthread_cond_broadcast(&f->opened);
}

static void forget_frames(struct fetch_helper *h)
{
    if (h->out) OPENSSL_cleanse(h->out, h->out_len);
    free(h->out);
    free(h->text);
    h->out = h->text = NULL;
    h->out_len = h->out_at = h->have = 0;
    h->heard = false;
}

void fetch_helper_end(struct fetch *f, const char *why)
{
    struct fetch_helper *h = &f->helper;
    if (!h->pid) return;
    int status = 0;
    pid_t ended = 0;
    (void)close(h->socket);
    h->socket = -1;
    for (int i = 0; i < 20 && !why && ended == 0; i++) { /* it ends by itself: let it, to hear how */
        ended = waitpid(h->pid, &status, WNOHANG);
        if (ended == 0) (void)poll(NULL, 0, 10);
    }
    if (ended == 0) {
        (void)kill(h->pid, SIGKILL);
        do ended = waitpid(h->pid, &status, 0);
        while (ended < 0 && errno == EINTR);
    }
    if (why)
        (void)snprintf(h->ended, sizeof h->ended, "%s", why);
    else if (ended > 0 && WIFSIGNALED(status))
        (void)snprintf(h->ended, sizeof h->ended, "it was ended by signal %d", WTERMSIG(status));
    else
        (void)snprintf(h->ended, sizeof h->ended, "it ended with status %d", ended > 0 ? WEXITSTATUS(status) : -1);
    h->pid = 0;
    forget_frames(h);
    pause_more(h);
    f->first_over = true;
    (void)pthread_cond_broadcast(&f->opened);
    if (!f->stop) LOG(LOG_WARN, "fetch_restart", "worker-fetch is started again", log_s("reason", h->ended));
    char failure[FETCH_TEXT];
    (void)snprintf(failure, sizeof failure, "the helper process that connects out is gone (%s) and starts again",
                   h->ended);
    for (struct fetch_call *c; (c = f->sent.first) != NULL;) fetch_end(f, fetch_take(&f->sent, c->id), failure);
}

void fetch_helper_send(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    while (h->pid && (h->out || f->queue.first)) {
        if (!h->out) {
            struct fetch_call *c = fetch_take(&f->queue, f->queue.first->id);
            h->out = c->frame;
            h->out_len = c->frame_len;
            h->out_at = 0;
            c->frame = NULL;
            c->next = f->sent.first; /* the order of what was sent is nothing to anybody */
            f->sent.first = c;
            if (!f->sent.last) f->sent.last = c;
        }
        const ssize_t n = send(h->socket, h->out + h->out_at, h->out_len - h->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            fetch_helper_end(f, NULL);
            return;
        }
        h->out_at += (size_t)n;
        if (h->out_at < h->out_len) continue;
        OPENSSL_cleanse(h->out, h->out_len);
        free(h->out);
        h->out = NULL;
    }
}

/* The head of an answer is there: whose is it, and can it be? */
static bool meet(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    const struct frame_answer *a = &h->head;
    const uint64_t bytes = (uint64_t)sizeof *a + a->failure_len + a->body_len;
    if (bytes != a->bytes || a->failure_len > FRAME_MOST_FAILURE || a->body_len > FETCH_MOST_ANSWER) return false;
    if (a->more > 1 || (a->more && !(a->status && a->body_len))) return false;
    if (!h->heard) {
        if (a->id != 0 || a->more || a->status != FRAME_HELLO || bytes != sizeof *a) return false;
        h->heard = f->first_over = f->first_good = true;
        (void)pthread_cond_broadcast(&f->opened);
        return true;
    }
    if (a->status ? a->status < 100 || a->status > 999 || a->failure_len : a->body_len) return false;
    const struct fetch_call *c = f->sent.first;
    while (c && c->id != a->id) c = c->next;
    if (c && (a->body_len > c->most_bytes - c->parted || (c->part ? !a->more && a->body_len : a->more))) return false;
    h->text = malloc((size_t)a->failure_len + a->body_len + 1);
    return h->text != NULL;
}

/* A part of a stream is there. Its call stays where it is meanwhile: this thread alone ends calls. */
static void hand_part(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    struct fetch_call *c = f->sent.first;
    while (c && c->id != h->head.id) c = c->next;
    h->have = 0;
    if (c) {
        c->parted += h->head.body_len;
        c->deadline = fetch_now() + c->timeout_ms;
        (void)pthread_mutex_unlock(&f->lock);
        c->part(c->arg, h->head.status, h->text, h->head.body_len);
        (void)pthread_mutex_lock(&f->lock);
    }
    free(h->text);
    h->text = NULL;
}

/* All of an answer is there. */
static void close_answer(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    /* found again by its id: it may have come to its end by time meanwhile */
    struct fetch_call *c = h->text ? fetch_take(&f->sent, h->head.id) : NULL;
    char failure[FETCH_TEXT];
    h->have = 0;
    if (!c) {
        free(h->text);
    } else if (h->head.status) {
        h->text[h->head.body_len] = '\0';
        c->answer = (struct fetch_answer){ h->head.status, h->text, h->head.body_len };
        fetch_end(f, c, NULL);
    } else {
        h->text[h->head.failure_len] = '\0';
        for (char *p = h->text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
        (void)snprintf(failure, sizeof failure, "%s", h->text);
        free(h->text);
        fetch_end(f, c, failure);
    }
    h->text = NULL;
}

void fetch_helper_receive(struct fetch *f)
{
    struct fetch_helper *h = &f->helper;
    while (h->pid) {
        const size_t head = sizeof h->head, whole = h->have < head ? head : h->head.bytes;
        if (h->have == whole) {
            (h->head.more ? hand_part : close_answer)(f);
            continue;
        }
        char *to = h->have < head ? (char *)&h->head + h->have : h->text + (h->have - head);
        const ssize_t n = recv(h->socket, to, whole - h->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            fetch_helper_end(f, NULL);
            return;
        }
        h->have += (size_t)n;
        if (h->have == head && whole == head && !meet(f)) {
            fetch_helper_end(f, "it sent what cannot be, or memory is short");
            return;
        }
    }
}
