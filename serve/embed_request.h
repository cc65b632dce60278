/* embed_request.h: the bodies of requests for embeddings and for scores: OpenAI's, llama-server's, Ollama's and
 * text-embeddings-inference's for texts, Jina's, Cohere's and the latter's for documents. Null is the same as absent;
 * names that nobody knows are ignored; what is known to change an answer and is not served is refused by name. Pure
 * functions. [any thread] */
#ifndef SERVE_EMBED_REQUEST_H
#define SERVE_EMBED_REQUEST_H

#include "job_request.h"

enum { EMBED_MOST_TEXTS = 2048 /* of a request, as OpenAI has it */ };

/* A text, or ids, which are its own; text is then the ids' bytes. */
struct embed_text {
    const char *text;
    size_t len;
    uint32_t chars;
    uint32_t *ids;
    size_t n_ids;
};

struct embed_request {
    json_t *body;      /* owns every string */
    const char *model; /* NULL: not named */
    struct embed_text *texts;
    uint32_t n;          /* texts, or documents; 0: Ollama's clients may ask for none */
    bool base64;         /* rows as the bytes of their numbers */
    bool truncate;       /* a text, or a pair, that is too long is cut, and not refused */
    uint32_t most;       /* tokens of a text, or of a pair, that is cut; 0: as many as the model reads */
    bool from_left;      /* what is cut is the beginning */
    bool no_special;     /* ids that begin and end a text are left out */
    uint32_t dimensions; /* the first numbers of a row alone; 0: all */
    uint32_t power;      /* rows have the length 1 by this power; 0: by 2, Euclid's */
    bool by_largest;     /* ... or the largest number 32760, as llama-server has it */
    int32_t priority;
    /* Of documents. */
    struct embed_text query;
    uint32_t most_document; /* tokens of a document, which is cut; 0: any number */
    uint32_t top;           /* so many of the best */
    bool tei;               /* in the form of text-embeddings-inference, where documents are called texts */
    bool raw;               /* scores as the model gives them, and not from 0 to 1 */
    bool documents;         /* results repeat the texts */
};

/* The body of one interface. False: why says field, value and range; embed_request_free in either case. */
bool embed_read_openai(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
bool embed_read_llama(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
bool embed_read_ollama(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
bool embed_read_ollama_one(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
bool embed_read_tei(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
bool embed_read_rerank(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
void embed_request_free(struct embed_request *r);

#endif
