/* reply.h: what a model writes, on its way to the user: ids to bytes, messages to where they belong, stop strings,
 * whole characters. */
#ifndef WORKER_REPLY_H
#define WORKER_REPLY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "chat/chat.h"

struct reply_options {
    const struct tokenizer *tokenizer;
    const char *const *stops;
    uint32_t n_stops; /* matched in what is written to out */
    const struct harmony_ids
        *harmony; /* NULL: all of the output is the answer. Else the prompt ended with <|start|>assistant */
    const struct chat_marks *marks;    /* the answer may begin with reasoning between these; NULL: it has none */
    FILE *out;                         /* the answer; NULL: nowhere */
    FILE *aside;                       /* reasoning, and harmony's calls of tools; NULL: nowhere */
    bool out_terminal, aside_terminal; /* control characters are shown; what stands aside is dim */
};

struct reply; /* [one thread] */
wk_status reply_open(const struct reply_options *o, struct reply **out, const struct wk_err *err);
void reply_close(struct reply *r); /* NULL allowed */

/* Writes what the id makes certain: whole characters, nothing that may still become a stop string. True: a stop string
 * is complete. */
bool reply_take(struct reply *r, uint32_t id);
/* The output is over: what was held back. cut: by a limit, which drops a character that it cut; after a stop string
 * there is nothing left. */
void reply_end(struct reply *r, bool cut);
/* Has any of the output been for the user? */
bool reply_begun(const struct reply *r);

#endif
