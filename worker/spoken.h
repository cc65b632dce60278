/* spoken.h: an answer while it comes, whoever writes it: shown as it grows, and kept for the conversation. On a
 * terminal reasoning and calls are dim, unless NO_COLOR is set or TERM is dumb, and control characters are shown;
 * elsewhere reasoning is left out. [one thread] */
#ifndef WORKER_SPOKEN_H
#define WORKER_SPOKEN_H

#include <jansson.h>

#include "http/http.h"
#include "terminal.h"

enum spoken_part { SPOKEN_NOTHING = 0, SPOKEN_REASONING, SPOKEN_TEXT, SPOKEN_CALL };

struct spoken {
    struct terminal out;
    bool styled; /* reasoning and calls are dim */
    struct http_text text, reasoning;
    struct http_text id, name, arguments; /* of the call that is open */
    json_t *calls;                        /* complete ones */
    enum spoken_part now;
    bool failed; /* no memory: something is missing */
};

/* terminal: is standard output one? */
void spoken_open(struct spoken *s, bool terminal);
void spoken_close(struct spoken *s);
/* UTF-8. */
void spoken_reasoning(struct spoken *s, const char *bytes, size_t n);
void spoken_text(struct spoken *s, const char *bytes, size_t n);
/* A call begins, which ends what was there before; its arguments follow, as they come. */
void spoken_call(struct spoken *s, const char *id, size_t n_id, const char *name, size_t n_name);
void spoken_arguments(struct spoken *s, const char *bytes, size_t n);
/* The answer is over; cut: a call that is open has no end, and is forgotten. */
void spoken_end(struct spoken *s, bool cut);
/* What was said, as an assistant's message; the caller's. NULL: nothing was, or s->failed. */
json_t *spoken_message(struct spoken *s);

#endif
