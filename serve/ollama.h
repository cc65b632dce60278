/* ollama.h: what the parts of Ollama's chats share: ollama.c has the requests, ollama_answer.c makes answers of items.
 * [the handler's thread] */
#ifndef SERVE_OLLAMA_H
#define SERVE_OLLAMA_H

#include "exchange.h"
#include "ollama_request.h"

/* Of one request, exchange.own. */
struct ollama {
    struct ollama_body body;
    bool generate; /* /api/generate; else /api/chat */
};
static inline struct ollama *ollama_of(const struct exchange *e) { return e->own; }

extern const struct encoder ollama_stream, ollama_whole;
/* "YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ" of now. */
enum { OLLAMA_TIME = 32 };
void ollama_now(char out[OLLAMA_TIME]);
/* {"model":..., "created_at":..., as every answer begins. */
void ollama_put_head(struct http_text *out, const struct exchange *e, const struct serve_model *m);

#endif
