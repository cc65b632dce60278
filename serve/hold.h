/* hold.h: an answer's ids, held back until the blocklist is sure of their text: no byte of a blocked phrase leaves,
 * whether it is text, reasoning or a call, since all of them are made of the ids that come out of here. [one thread] */
#ifndef SERVE_HOLD_H
#define SERVE_HOLD_H

#include "engine/engine.h"
#include "gate/blocklist.h"
#include "tokenizer/tokenizer.h"

struct hold;

/* list: one use of it is kept. WK_NO_MEMORY. */
wk_status hold_open(struct blocklist *list, struct hold **out, const struct wk_err *err);
void hold_close(struct hold *h); /* NULL allowed */
/* An EVENT_TOKEN, and what its id stands for: without control tokens, as texts have it, and with them, since what they
 * part (reasoning and answer) is not one word. False: no memory. */
bool hold_take(struct hold *h, const struct job_event *e, struct token_bytes piece, struct token_bytes marked);
/* No further id comes. */
void hold_end(struct hold *h);
/* The next event that may be told; false: none may yet, or ever. */
bool hold_next(struct hold *h, struct job_event *out);
/* The phrase that was found, whose text stays held for good; BLOCKLIST_NONE. */
uint32_t hold_found(const struct hold *h);

#endif
