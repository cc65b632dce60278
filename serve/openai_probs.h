/* openai_probs.h: log probabilities as OpenAI's and vLLM's clients read them.
 *
 * Natural logarithms of the model's own distribution (core/sample/sample.h). JSON has no infinity: what is less likely
 * than e^-9999 is told as -9999, as vLLM does. A token's text is its bytes, control tokens as they are spelt. In a chat
 * what is not UTF-8 in it becomes U+FFFD, and `bytes` are exact; a completion's lists, which have no bytes, have
 * "bytes:\xe2\x80" in its place, as OpenAI's. [one thread at a time] */
#ifndef SERVE_OPENAI_PROBS_H
#define SERVE_OPENAI_PROBS_H

#include "http/http.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

/* Entries of tokens, in the form of a chat (`content`) or of a completion (four lists). Zeroed: none. */
struct token_probs {
    struct http_text content;
    struct http_text tokens, values, top_logprobs, offsets;
    size_t chars; /* of the completion's text before the next token */
};

/* Adds a token with its log probability of[0] and those of the n_top best, of[1 + i].
 * For a chat. */
void token_probs_add_content(struct token_probs *p, const struct tokenizer *t, const struct sampler_prob *of,
                             uint32_t n_top);
/* For a completion. of NULL: the first token of a prompt, id, which nothing comes before. chars: of its text that is
 * seen, by which the next one's offset grows. */
void token_probs_add_lists(struct token_probs *p, const struct tokenizer *t, uint32_t id, const struct sampler_prob *of,
                           uint32_t n_top, size_t chars);
/* The object, with every entry since the last call. chat: in a chat's form. */
void token_probs_put(struct http_text *out, struct token_probs *p, bool chat);
/* The same of a chat: the entries alone, with commas between them. */
void token_probs_take(struct http_text *out, struct token_probs *p);
size_t token_probs_bytes(const struct token_probs *p); /* of what waits to be put */
bool token_probs_failed(const struct token_probs *p);  /* no memory: what was put lacks some */
void token_probs_free(struct token_probs *p);

/* vLLM's prompt_logprobs: a list, null for the first token, else {"ID": {"logprob", "rank", "decoded_token"}} with the
 * prompt's token and the n_top best; ranks count from 1. of(user, i): of token i. */
void prompt_probs_put(struct http_text *out, const struct tokenizer *t, size_t n,
                      const struct sampler_prob *(*of)(void *user, size_t i, uint32_t *n_top), void *user,
                      uint32_t n_top);

#endif
