/* embed_answer.h: answers of rows, in the form of each interface. A pure function of what it is given. [any thread] */
#ifndef SERVE_EMBED_ANSWER_H
#define SERVE_EMBED_ANSWER_H

#include "embed_request.h"
#include "http/http.h"

struct embed_rows {
    const char *model, *id;  /* id: of the request */
    uint32_t n, width;       /* width: numbers of a row as the model gives it */
    const float *const *row; /* [n][width] */
    uint64_t tokens;         /* of all texts */
    uint64_t duration_ns;    /* from the request's arrival on */
    uint32_t positive;       /* of scores for several labels: the one that says yes */
};

void embed_put_openai(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
void embed_put_llama(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
void embed_put_ollama(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
void embed_put_ollama_one(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
void embed_put_tei(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
void embed_put_rerank(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);

#endif
