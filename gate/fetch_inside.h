/* fetch_inside.h: the two halves of fetch: fetch.c has calls and their ends, fetch_helper.c the process and its socket.
 * All of it is under struct fetch's lock, but for what the helper's half keeps for fetch's thread alone. */
#ifndef GATE_FETCH_INSIDE_H
#define GATE_FETCH_INSIDE_H

#include <pthread.h>
#include <sys/types.h>

#include "base/helper.h"
#include "fetch.h"
#include "fetch_frame.h"

enum { FETCH_LABEL = 200, FETCH_TEXT = FRAME_MOST_FAILURE + 100, FETCH_FAILURE = FETCH_LABEL + 2 + FETCH_TEXT };

/* From fetch_do or fetch_start to its end. */
struct fetch_call {
    struct fetch_call *next; /* in one of struct fetch's lists */
    uint64_t id;
    int64_t deadline; /* fetch_now */
    uint32_t timeout_ms, most_bytes;
    char *frame; /* NULL: the helper's half has it */
    size_t frame_len, charged;
    char label[FETCH_LABEL]; /* the URL without its query */
    bool started;            /* by fetch_start */
    fetch_done done;
    fetch_part part; /* NULL: the answer comes whole */
    size_t parted;   /* bytes that part was given */
    void *arg;
    pthread_cond_t ended_cond; /* of fetch_do */
    bool ended;
    bool failed;
    struct fetch_answer answer;
    char failure[FETCH_FAILURE];
};

struct fetch_calls { /* first in, first out */
    struct fetch_call *first, *last;
};

/* The process; [fetch's thread]. */
struct fetch_helper {
    char program[4096];
    pid_t pid;            /* 0: none */
    int socket;           /* -1: none */
    bool heard;           /* it has said that it is ready */
    int64_t since, again; /* fetch_now: started at; not started before */
    int64_t pause_ms;     /* before the next start */
    char ended[160];      /* how the last one ended; "": none did */
    char *out;            /* the frame that is being sent; NULL: none */
    size_t out_len, out_at;
    struct frame_answer head; /* of the frame that comes in */
    size_t have;              /* bytes of it, head included */
    char *text;               /* its failure or its body; NULL: the head is not complete, or is the first word */
};

struct fetch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int wake;                       /* eventfd */
    struct fetch_calls queue, sent; /* not yet and already with the helper */
    struct fetch_calls over;        /* of fetch_start: done is to be called */
    uint64_t ids, starts;
    uint32_t n_waiting, n_started;
    size_t bytes, started_bytes;
    bool stop, first_over, first_good; /* the first start has succeeded or failed */
    struct fetch_helper helper;
};

int64_t fetch_now(void); /* ms, monotonic */
/* Ends a call that is in no list any more: failure, or, where that is NULL, the answer that was put into it. */
void fetch_end(struct fetch *f, struct fetch_call *c, const char *failure);
/* Takes the call of this id out of the list; NULL: none. */
struct fetch_call *fetch_take(struct fetch_calls *list, uint64_t id);

/* Starts it if it does not run and its pause is over (again). */
void fetch_helper_keep(struct fetch *f);
void fetch_helper_send(struct fetch *f);
void fetch_helper_receive(struct fetch *f);
/* Kills it; calls that were with it fail. why: NULL: as it ended by itself. */
void fetch_helper_end(struct fetch *f, const char *why);
/* WK_INVALID: the request breaks a limit. */
wk_status fetch_check(const struct fetch_request *r, const struct wk_err *err);
/* The frame of a request that was checked, FRAME_STREAM by its part, and these flags besides; the caller's, to be
 * cleansed. NULL: no memory. */
char *fetch_make_frame(const struct fetch_request *r, uint32_t flags, uint64_t id, size_t *len);
/* Where worker-fetch lies, and how it is started: base/helper.h. */
static inline wk_status fetch_helper_find(const char *program, char *out, size_t cap, const struct wk_err *err)
{
    return helper_find("worker-fetch", "connects out", program, out, cap, err);
}
static inline int fetch_helper_spawn(const char *program, int socket, pid_t *pid)
{
    char name[] = "worker-fetch", *const arguments[] = { name, NULL };
    return helper_spawn(program, arguments, socket, pid);
}

#endif
