/* tool_grammar.h: what an answer may be where functions are offered: text in which every call is one of them, in the
 * model's form, and calls alone where one is required. */
#ifndef SERVE_TOOL_GRAMMAR_H
#define SERVE_TOOL_GRAMMAR_H

#include "openai_tools.h"
#include "serve.h"

/* *out: a grammar for all answers to the request, closed by the caller; NULL: they are free, since nothing has to be
 * enforced and the model cannot be masked. Schemas are kept to of strict functions, and, where a call is required, of
 * others if they can be. The model's form of calls is known. False: why names the member: a strict function whose
 * schema cannot be kept to, or a call that cannot be required of this model. [any thread] */
bool tool_grammar_make(const struct serve_model *m, const struct openai_tools *t, struct grammar **out,
                       struct chat_problem *why);

#endif
