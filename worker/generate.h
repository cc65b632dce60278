/* generate.h: one generation: prompt ids in, text or ids out, as `worker run` does it. */
#ifndef WORKER_GENERATE_H
#define WORKER_GENERATE_H

#include <stdbool.h>
#include <stdio.h>

#include "chat/chat.h"
#include "model/model.h"
#include "sample/sample.h"

enum finish {
    FINISH_STOP = 0 /* an end-of-generation token or a stop string */,
    FINISH_LENGTH /* max_tokens or the context */,
    FINISH_INTERRUPT
};
const char *finish_name(enum finish f);

struct generation {
    struct model *model; /* loaded, with a tokenizer */
    const uint32_t *prompt;
    uint32_t n_prompt; /* [1 .. context - 1] */
    const struct sampler_params *params;
    uint32_t max_tokens;
    const char *const *stops;
    uint32_t n_stops;
    bool ids;                                    /* print ids separated by spaces */
    const struct harmony_ids *harmony;           /* NULL: the output has no channels */
    const struct chat_marks *marks;              /* of reasoning; NULL: the output is text as it is */
    const struct sampler_constraint *constraint; /* NULL: any text */
    FILE *out, *aside;                           /* reply.h */
    bool out_terminal, aside_terminal;
    /* Filled: */
    uint32_t n_generated;                   /* without the end-of-generation token */
    double prefill_seconds, decode_seconds; /* decode: from the first logits to the last id */
    enum finish finish;
    bool answered; /* something of the output was for the user */
};

/* Streams as it goes: whole UTF-8 characters only, nothing that may still become a stop string. A character that a
 * limit cuts is dropped. Returns an exit status; a failure has been said. An interrupt is no
 * failure: finish says so. */
int generate(struct generation *g);

#endif
