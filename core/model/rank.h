/* rank.h: how a reranker's query and document become one prompt: by the file's own template, or as its tokenizer puts
 * two texts together. [any thread] */
#ifndef CORE_MODEL_RANK_H
#define CORE_MODEL_RANK_H

#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

enum { RANK_PARTS = 5 /* of a template with both texts in it */ };

struct rank_form {
    struct token_bytes template; /* in the file, which outlives it; data NULL: there is none */
};

/* Reads tokenizer.chat_template.rerank. WK_INVALID: a template that does not have {query} and {document} once each. */
wk_status rank_form_open(const struct gguf *file, struct rank_form *out, const struct wk_err *err);
/* The template's parts round the two texts, which are no template: no control token is read in them. Returns how many;
 * 0: there is no template, so tokenizer_encode_pair makes the prompt. */
size_t rank_form_parts(const struct rank_form *form, struct token_bytes query, struct token_bytes document,
                       struct tokenizer_part out[RANK_PARTS]);

#endif
