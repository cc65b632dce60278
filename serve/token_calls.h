/* token_calls.h: the calls of functions in one answer, and the text around them.
 *
 * What the model writes comes as ids, whose form the model's row tells (tools/tools.h), or as messages of harmony's.
 * Either way it becomes events in the order of the answer. [one thread at a time] */
#ifndef SERVE_TOKEN_CALLS_H
#define SERVE_TOKEN_CALLS_H

#include "harmony/harmony.h"
#include "tools/tools.h"

struct token_calls;

/* m NULL: harmony. masked: what the model writes is known to be calls once it begins like one, so that a limit alone
 * ends the answer inside; harmony's calls are then told as they come. seed: makes the calls' ids; one answer's is not
 * another's. single: the answer ends with its first call. m and set must outlive it. */
wk_status token_calls_open(const struct tools_model *m, const struct tools_set *set, uint64_t seed, bool single,
                           bool masked, struct token_calls **out, const struct wk_err *err);
void token_calls_close(struct token_calls *c); /* NULL allowed */

/* What was told so far is forgotten. */
void token_calls_begin(struct token_calls *c);
/* An id and its bytes; id TOKEN_NONE: bytes alone. What is text is appended to it, here and below. False: no memory. */
bool token_calls_push(struct token_calls *c, uint32_t id, struct token_bytes piece, struct byte_buffer *text);
/* An event of a message that is a call (harmony_calls). Not masked: a call is told once it is complete. */
bool token_calls_message(struct token_calls *c, const struct harmony_header *h, const struct harmony_event *e,
                         struct byte_buffer *text);
/* Before the first id: what is written is calls alone, so that no text comes of ids (of harmony's messages it does). */
void token_calls_alone(struct token_calls *c);
/* Before the last calls of the two above and below: a limit ends the answer. If that is inside of a masked call, what
 * came of it stays told, and it has no end. */
void token_calls_cut(struct token_calls *c);
/* The answer is over. */
bool token_calls_finish(struct token_calls *c, struct byte_buffer *text);
/* Is something held back until it is known what it is? */
bool token_calls_holds(const struct token_calls *c);
/* single, and the call is there. */
bool token_calls_over(const struct token_calls *c);

/* What was told since token_calls_begin, in order; never TOOLS_TEXT. Valid until it is called again. */
const struct tools_event *token_calls_events(const struct token_calls *c, size_t *n);
/* Complete calls, and what began like one and was none. */
uint32_t token_calls_complete(const struct token_calls *c);
uint32_t token_calls_malformed(const struct token_calls *c);

#endif
