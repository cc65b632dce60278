/* tool_grammar.h: what an answer may be where functions are offered: text in which every call is one of them, in the
 * model's form, and calls alone where one is required, or where text is held to a form of its own. */
#ifndef SERVE_TOOL_GRAMMAR_H
#define SERVE_TOOL_GRAMMAR_H

#include "openai_tools.h"
#include "serve.h"
#include "work.h"

/* *out: a grammar for all answers to the request, closed by the caller; NULL: they are free, since nothing has to be
 * enforced and the model cannot be masked. Schemas are kept to of strict functions, and, where a call is required, of
 * others if they can be. form: how the model writes calls, NULL: as harmony's messages. formed: the grammar is of calls
 * alone, since another one says what else an answer may be. What is not kept is compiled in the request's turn. False:
 * why names the member: a strict function whose schema cannot be kept to, or a call that cannot be required of this
 * model; WK_CANCELLED: the request must end (work_stopped). [the handler's thread] */
bool tool_grammar_make(const struct serve_model *m, const struct tools_model *form, const struct openai_tools *t,
                       bool formed, struct work *work, struct grammar **out, struct chat_problem *why);

#endif
