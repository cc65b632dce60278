/* structured.h: what a request says of its answer's form, in the words of each interface: response_format (OpenAI),
 * json_schema and grammar (llama-server), structured_outputs and guided_* (vLLM). One form, or 400. [any thread] */
#ifndef SERVE_STRUCTURED_H
#define SERVE_STRUCTURED_H

#include "body.h"
#include "grammar/lang.h"
#include "grammars.h"

enum { STRUCTURED_CHOICES = 10000 };

struct structured {
    struct grammar_source from; /* kind GRAMMAR_NONE: any text; texts are the body's or its bytes' */
    const char *field;          /* the member that asks for it; of static storage */
    struct lang_word *choices;  /* its own: structured_free */
};

/* o: parsed from bytes; a member that is null is absent. False: why says what is wrong, and nothing needs to be freed.
 * What was read borrows from both. */
bool structured_read(const struct body_object *o, const char *bytes, size_t n, struct structured *out,
                     struct refusal *why);
void structured_free(struct structured *s);

#endif
