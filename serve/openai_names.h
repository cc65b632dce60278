/* openai_names.h: every member of a request of /v1 that is known, and what becomes of it. One table: what is not in it
 * is ignored, as OpenAI's clients expect. Pure functions. [any thread] */
#ifndef SERVE_OPENAI_NAMES_H
#define SERVE_OPENAI_NAMES_H

#include "body.h"

/* Refuses by name what is known, not served, and asks for something. chat: of /v1/chat/completions. */
bool openai_names_check(const struct body_object *o, bool chat, struct refusal *why);
/* Is it one of them? n bytes. */
bool openai_names_has(const char *name, size_t n);

#endif
