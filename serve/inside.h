/* inside.h: what the parts of the service share among themselves. */
#ifndef SERVE_INSIDE_H
#define SERVE_INSIDE_H

#include <jansson.h>
#include <time.h>

#include "chat/clock.h"
#include "refusal.h"
#include "serve.h"

static inline uint64_t serve_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
/* 0: one of them has not been yet. */
static inline double serve_ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0;
}

/* As answers tell a time: to the millisecond. */
static inline double serve_seconds(uint64_t ns) { return (double)(ns / 1000000) * 1e-3; }

/* The time that templates are told: --template-date, else now. */
static inline void serve_clock(const struct serve *s, struct chat_request *q)
{
    q->clock_set = s->o->clock_set;
    q->clock = q->clock_set ? s->o->clock : chat_clock_now();
}

/* ---- serve.c ------------------------------------------------------------------------------------------- */
/* Answers with the refusal, in the form of the request's interface, counts it and narrates it. [a handler] */
void serve_refuse(struct serve *s, struct http_request *r, const struct refusal *why);
/* A job's failure, which is told by its end and counted there: as the whole answer, or, once a stream has begun, as the
 * document of its last event. [a handler] */
void serve_fail(struct http_request *r, const struct refusal *why);
void serve_put_failure(struct http_text *out, const struct http_request *r, const struct refusal *why);
/* The body as JSON, and room for what it is parsed into; http_body. [a handler] */
bool serve_body(struct http_request *r, size_t most, const char **bytes, size_t *n);
/* Room for what a body is parsed into. False: answered. [a handler] */
bool serve_reserve_tree(struct http_request *r, const char *bytes, size_t n);
/* Answers with a document, which is released; NULL (no memory for it): 500. [a handler] */
void serve_answer(struct serve *s, struct http_request *r, int status, json_t *document);
/* The model, if work can be taken; else NULL, refused NOT_READY. [any thread] */
const struct serve_model *serve_ready(const struct serve *s, struct refusal *why);
/* The same; NULL: the request was answered with the refusal. [a handler] */
const struct serve_model *serve_ready_for(struct serve *s, struct http_request *r);
/* "http://127.0.0.1:7531", as URLs of the main port begin. [any thread] */
struct serve_place {
    char text[96];
};
struct serve_place serve_place(const struct serve *s);
/* The main thread looks around soon. [any thread] */
void serve_wake(struct serve *s);
/* For good; the first reason stays. [any thread] */
void serve_set_unhealthy(struct serve *s, enum serve_code code, const char *text);

/* ---- other_paths.c ------------------------------------------------------------------------------------- */
/* What to say of a path that another server's interface has and this one has not; NULL: none of those. [any thread] */
const char *serve_other_path(const char *path);

/* ---- load.c -------------------------------------------------------------------------------------------- */
/* Becomes the loader: false: another one is at work. */
bool load_claim(struct serve *s);
/* Opens model and engine and makes the service ready, in a thread of its own, with load_claim; load_join waits for it.
 * path NULL: the embedded model. ref: what answers call it; NULL: the path. shard_id NULL: as the model and device are
 * called. */
struct load {
    struct serve *s;
    const char *path, *ref, *digest, *shard_id;
    bool seal, ok;
    struct serve_failure why;
    pthread_t thread;
};
bool load_start(struct load *l);
void load_join(struct load *l);
/* {shard_id, gpu_device, vram_bytes, sealed, ...} of the loaded model; NULL: no memory. [any thread] */
json_t *load_handle(const struct serve *s, const struct serve_model *m);
/* Is the model called that, by its name or an alias, or that and :latest, as some clients complete every name? */
bool serve_is_called(const struct serve_model *m, const char *name);
/* False: it is not called that, and *why says so of this member of a request. */
bool serve_suits_name(const struct serve_model *m, const char *name, const char *member, struct refusal *why);
bool load_sealed(const struct serve_model *m); /* also true of a CPU, where nothing is sealed */
void load_close(struct serve *s);              /* engine, model; every job is released. [main thread] */

/* ---- watch.c ------------------------------------------------------------------------------------------- */
struct watch;
struct watch *watch_start(struct serve *s); /* NULL: no thread */
void watch_stop(struct watch *w);           /* NULL allowed; may wait for a step */

#endif
