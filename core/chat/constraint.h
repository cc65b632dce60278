/* constraint.h: a grammar as what a job may generate (sampler_constraint), behind the reasoning that may come first.
 *
 * The grammar holds for the answer alone. A model that thinks between marks, or in harmony's channels, does so freely;
 * the grammar takes over where the answer begins, and generation cannot end before. Where reasoning ends is decided as
 * think.h decides it, which is also what tells readers the two apart. In harmony headers are constrained, too:
 * reasoning at most once, then the final channel, so that the whole of what a user sees is the answer.
 *
 * Threads: constraint_open touches nothing of the grammar, so it may be called while other jobs follow the same one.
 * The constraint's own calls all come from one thread: the engine's. */
#ifndef CORE_CHAT_CONSTRAINT_H
#define CORE_CHAT_CONSTRAINT_H

#include "chat/chat.h"
#include "grammar/grammar.h"
#include "sample/sample.h"

/* What may stand before the answer, and what the output may be instead. Of marks and header at most one is given. */
struct constraint_lead {
    const struct chat_marks *marks; /* reasoning between these, which are the chat's; NULL: none */
    struct grammar *header;         /* constraint_harmony's; NULL: the output is no message of harmony's */
    struct grammar *other;          /* behind the reasoning: calls, which in harmony have headers of their own; NULL */
};

/* The headers and the reasoning before harmony's final content, behind a prompt that ends with <|start|>assistant. Like
 * any grammar it may have any number of constraints. WK_INVALID: the vocabulary has no such tokens. [any thread] */
wk_status constraint_harmony(const struct tokenizer *t, struct grammar **out, const struct wk_err *err);

/* Keeps g and the lead's grammars; x, t and the marks must outlive it. n_vocab: of the index. lead NULL: the answer
 * begins at once. A mask that fails says why: a dead end, or a limit of the grammar (WK_UNSUPPORTED, WK_INVALID). [any
 * thread] */
wk_status constraint_open(struct grammar *g, const struct grammar_index *x, const struct tokenizer *t, uint32_t n_vocab,
                          const struct constraint_lead *lead, struct sampler_constraint *out, const struct wk_err *err);
/* Of one that no job has taken; nothing: allowed. */
void constraint_close(struct sampler_constraint *c);

#endif
