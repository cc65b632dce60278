/* output_filter.h: an answer's ids, held back until the blocklist is sure of their text: no byte of a blocked phrase
 * leaves, whether it is text, reasoning or a call, since all of them are made of the ids that come out of here. [one
 * thread] */
#ifndef SERVE_OUTPUT_FILTER_H
#define SERVE_OUTPUT_FILTER_H

#include "engine/engine.h"
#include "gate/blocklist.h"
#include "tokenizer/tokenizer.h"

struct output_filter;

/* list: one use of it is kept. WK_NO_MEMORY. */
wk_status output_filter_open(struct blocklist *list, struct output_filter **out, const struct wk_err *err);
void output_filter_close(struct output_filter *f); /* NULL allowed */
/* An EVENT_TOKEN, and what its id stands for: without control tokens, as texts have it, and with them, since what they
 * part (reasoning and answer) is not one word. False: no memory. */
bool output_filter_take(struct output_filter *f, const struct job_event *e, struct token_bytes piece,
                        struct token_bytes marked);
/* No further id comes. */
void output_filter_end(struct output_filter *f);
/* The next event that may be told; false: none may yet, or ever. */
bool output_filter_next(struct output_filter *f, struct job_event *out);
/* The phrase that was found, whose text stays held for good; BLOCKLIST_NONE. */
uint32_t output_filter_found(const struct output_filter *f);

#endif
