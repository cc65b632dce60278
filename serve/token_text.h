/* token_text.h: ids of one job to the texts of its `token` events.
 *
 * Exactly one line an id; the lines' texts together are the job's text: whole UTF-8 characters, nothing that a stop
 * string could still take back, no byte of a stop string ever. A line behind which text is held back waits for the next
 * id, or the end, which may owe it that text. [one thread at a time] */
#ifndef SERVE_TOKEN_TEXT_H
#define SERVE_TOKEN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "chat/chat.h"
#include "token_calls.h"
#include "tokenizer/tokenizer.h"

struct token_text;

struct token_line {
    uint32_t id, index;
    const char *text;
    size_t n;
}; /* text: UTF-8, valid until the next call */

/* piece_max: bytes of the longest token. The stop strings are copied. */
wk_status token_text_open(const struct tokenizer *t, size_t piece_max, const char *const *stops,
                          const size_t *stop_lens, size_t n_stops, struct token_text **out, const struct wk_err *err);
/* Before the first id: the output is harmony's, behind a prompt that ends with <|start|>assistant. The text is then
 * what is for the user; lines of reasoning, calls of tools and headers are empty, and stop strings do not see them. */
void token_text_channels(struct token_text *x, const struct harmony_ids *ids);
/* Before the first id: the answer may begin with reasoning between these marks, which are the chat's. */
void token_text_marks(struct token_text *x, const struct chat_marks *marks);
/* Before the first id, after either of the above: functions may be called. Calls are no text, and stop strings do not
 * see them. c is the text's from now on. */
void token_text_calls(struct token_text *x, struct token_calls *c);
/* Its calls; NULL: none may come. Events are those of the last push, or of the end. */
struct token_calls *token_text_calls_of(const struct token_text *x);
/* Before the first id: stop strings do not count in the text of the first n ids. */
void token_text_hold(struct token_text *x, uint32_t n);
/* The reasoning that the last id made certain: whole characters, valid until the next push; and how many ids were
 * reasoning so far. */
struct token_bytes token_text_reasoning(const struct token_text *x);
uint32_t token_text_reasoning_ids(const struct token_text *x);
void token_text_close(struct token_text *x); /* NULL allowed */

/* Takes the next id; gives the lines that may be sent now, in order: 0 to 2. */
int token_text_push(struct token_text *x, uint32_t id, struct token_line out[2]);
/* Nothing more is wanted: a stop string has come, or the only call. Nothing may be pushed after it. */
bool token_text_over(const struct token_text *x);
/* There was no memory for text: some of it is missing. */
bool token_text_failed(const struct token_text *x);
/* The stop string that the text has come to: its index; STOP_NONE. Nothing may be pushed after it. */
int token_text_stopped(const struct token_text *x);
struct token_bytes token_text_stop(const struct token_text *x, int index); /* the stop string of that index */
/* The end: the line that waited, 0 or 1, with what was held back. cut: a limit or a cancel ended the text, so that a
 * beginning of a character vanishes; else it becomes U+FFFD. */
int token_text_end(struct token_text *x, bool cut, struct token_line out[1]);

/* The longest tokenizer_piece of a vocabulary. */
size_t token_text_piece_max(const struct tokenizer *t);

#endif
