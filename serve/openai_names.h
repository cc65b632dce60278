/* openai_names.h: every member of a request of /v1, /completion and /infill that is known, and what
 * becomes of it. One table: what is not in it
 * is ignored, as OpenAI's clients expect. Pure functions. [any thread] */
#ifndef SERVE_OPENAI_NAMES_H
#define SERVE_OPENAI_NAMES_H

#include "body.h"

enum openai_route {
    OPENAI_CHAT = 1,
    OPENAI_COMPLETION = 2,
    OPENAI_RENDER = 4, /* a chat's prompt alone */
    OPENAI_LLAMA = 8,  /* llama-server's /completion */
    OPENAI_INFILL = 16 /* its /infill */
};

/* Refuses by name what is known, not served on this route, and asks for something. */
bool openai_names_check(const struct body_object *o, enum openai_route route, struct refusal *why);
/* Is the value one by which clients write out that they ask for nothing: false, 0, "", [], {}, or one of a JSON
 * array's? nothing NULL: no further ones. */
bool openai_names_is_nothing(const json_t *v, const char *nothing);
/* Is it one of them? n bytes. */
bool openai_names_has(const char *name, size_t n);

#endif
