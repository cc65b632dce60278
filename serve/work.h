/* work.h: what a request costs before there is a job, or an answer: its JSON is parsed, its prompt rendered and turned
 * into ids, the grammar of its answer compiled.
 *
 * Small bodies are worked on at once. Of large ones as many as half of the processors, the others wait for their turn:
 * so the engine and probes have the rest. Waiting and work end at the request's deadline, when its client leaves, and
 * when the service drains. What it makes of the body comes out of the memory that all requests have together
 * (http_reserve), and goes back with work_close. [the handler's thread] */
#ifndef SERVE_WORK_H
#define SERVE_WORK_H

#include "grammar/lang.h"
#include "inside.h"
#include "refusal.h"
#include "tokenizer/tokenizer.h"

enum { WORK_SMALL = 64 << 10 /* bytes of a body that is worked on at once: a few milliseconds */ };

struct work {
    struct serve *s;
    struct http_request *r;
    uint64_t deadline_ns;
    bool streams;         /* a client that has only shut down its sending side is still there */
    bool untyped;         /* the body may come without a Content-Type that says JSON */
    bool placed, stopped; /* stopped: why says by what */
    enum serve_code why;
};

/* The deadline is --inference-timeout-sec from now, or X-Deadline if that is earlier. */
void work_open(struct work *w, struct serve *s, struct http_request *r);
/* serve_body, and its turn to be worked on. False: answered. */
bool work_body(struct work *w, size_t most, const char **bytes, size_t *n);
/* A turn for more work than the body's size tells of: one request has one turn. False: why says what ends it. */
bool work_turn(struct work *w, struct refusal *why);
/* tokenizer_encode_parts, which work_stopped ends with WK_CANCELLED. */
wk_status work_encode(struct work *w, const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                      bool add_special, struct tokens *out, const struct wk_err *err);
/* Must it end? True: work_refuse says why. */
bool work_stopped(struct work *w);
/* The same as a grammar's compiler asks it. */
struct lang_watch work_watch(struct work *w);
bool work_refuse(const struct work *w, struct refusal *why); /* always false */
/* The request has been read: its body is freed, its memory and its turn are others'. More than once allowed. */
void work_close(struct work *w);

#endif
