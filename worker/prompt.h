/* prompt.h: the prompt that run and complete are given, and what its answer must be, as options. Functions that return
 * an int have already said what is wrong when it is not EXIT_DONE. [main thread] */
#ifndef WORKER_PROMPT_H
#define WORKER_PROMPT_H

#include "options.h"
#include "text.h"

/* --prompt or the operand, --file, or standard input. text_free. */
int prompt_read(const struct options *o, struct text *out);
/* Of --json-schema, --grammar and --regex one at most, and not from standard input if the prompt is. */
int prompt_check_form(const struct options *o);

#endif
