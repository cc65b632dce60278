/* session_tokens.h: the tokens that score and debug work on, from --ids, --text or --file. */
#ifndef WORKER_SESSION_TOKENS_H
#define WORKER_SESSION_TOKENS_H

#include "model/model.h"
#include "options.h"
#include "text.h"

/* At least one id, each in the vocabulary, perhaps more than the context holds; the caller frees out->ids. */
int session_tokens(const struct options *o, const struct model *m, struct id_list *out);
/* Before the model is opened: exactly one of the three options is given. */
int session_tokens_usage(const struct options *o);

#endif
