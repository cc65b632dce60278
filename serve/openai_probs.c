/* openai_probs.c: see openai_probs.h. */
#include "openai_probs.h"

#include <string.h>

#include "base/utf8.h"

static void put_value(struct http_text *out, double logprob)
{
    http_text_format(out, "%.12g", logprob > -9999 ? logprob : -9999.0);
}

static void put_token(struct http_text *out, const struct tokenizer *t, uint32_t id)
{
    const struct token_bytes piece = tokenizer_piece(t, id, true);
    http_text_json(out, piece.data, piece.len);
}

/* ---- a chat's entries ---------------------------------------------------------------------------------- */

/* {"token", "logprob", "bytes", without the closing brace. */
static void put_entry(struct http_text *out, const struct tokenizer *t, const struct sampler_prob *of)
{
    const struct token_bytes piece = tokenizer_piece(t, of->id, true);
    http_text_format(out, "{\"token\":");
    http_text_json(out, piece.data, piece.len);
    http_text_format(out, ",\"logprob\":");
    put_value(out, of->logprob);
    http_text_format(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.len; i++) http_text_format(out, "%s%u", i ? "," : "", (unsigned char)piece.data[i]);
    http_text_add(out, "]", 1);
}

void token_probs_add_content(struct token_probs *p, const struct tokenizer *t, const struct sampler_prob *of,
                             uint32_t n_top)
{
    struct http_text *out = &p->content;
    if (out->n) http_text_add(out, ",", 1);
    put_entry(out, t, &of[0]);
    http_text_format(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < n_top; i++) {
        if (i) http_text_add(out, ",", 1);
        put_entry(out, t, &of[1 + i]);
        http_text_add(out, "}", 1);
    }
    http_text_format(out, "]}");
}

/* ---- a completion's lists ------------------------------------------------------------------------------ */

static bool is_whole(struct token_bytes text)
{
    for (size_t i = 0, n; i < text.len; i += n) {
        n = utf8_sequence((const unsigned char *)text.data + i, text.len - i);
        if (!n) return false;
    }
    return true;
}

/* A list has no bytes beside its tokens: one that is not whole characters is spelt as OpenAI spells it, and so is one
 * whose text was `taken` by another. */
static void put_list_token(struct http_text *out, struct token_bytes text, bool taken)
{
    if (!taken && is_whole(text)) {
        http_text_json(out, text.data, text.len);
        return;
    }
    http_text_format(out, "\"bytes:");
    for (size_t i = 0; i < text.len; i++) http_text_format(out, "\\\\x%02x", (unsigned char)text.data[i]);
    http_text_add(out, "\"", 1);
}

/* Of the ids before number i of `of` one has the same text. */
static bool is_taken(const struct tokenizer *t, const struct sampler_prob *of, uint32_t i)
{
    const struct token_bytes text = tokenizer_piece(t, of[i].id, true);
    for (uint32_t k = 0; k < i; k++) {
        const struct token_bytes other = tokenizer_piece(t, of[k].id, true);
        if (of[k].id != of[i].id && other.len == text.len && memcmp(other.data, text.data, text.len) == 0) return true;
    }
    return false;
}

/* The token that is there and the best, each once. */
static void put_top_logprobs(struct http_text *out, const struct tokenizer *t, const struct sampler_prob *of,
                             uint32_t n_top)
{
    http_text_add(out, "{", 1);
    for (uint32_t i = 0; i <= n_top; i++) {
        if (i && of[i].id == of[0].id) continue;
        if (i) http_text_add(out, ",", 1);
        put_list_token(out, tokenizer_piece(t, of[i].id, true), is_taken(t, of, i));
        http_text_add(out, ":", 1);
        put_value(out, of[i].logprob);
    }
    http_text_add(out, "}", 1);
}

void token_probs_add_lists(struct token_probs *p, const struct tokenizer *t, uint32_t id, const struct sampler_prob *of,
                           uint32_t n_top, size_t chars)
{
    struct http_text *const lists[] = { &p->tokens, &p->values, &p->top_logprobs, &p->offsets };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i]->n) http_text_add(lists[i], ",", 1);
    put_list_token(&p->tokens, tokenizer_piece(t, id, true), false);
    if (of)
        put_value(&p->values, of->logprob);
    else
        http_text_format(&p->values, "null");
    if (of)
        put_top_logprobs(&p->top_logprobs, t, of, n_top);
    else
        http_text_format(&p->top_logprobs, "null");
    http_text_format(&p->offsets, "%zu", p->chars);
    p->chars += chars;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static void move(struct http_text *out, struct http_text *from)
{
    if (from->n) http_text_add(out, from->data, from->n);
    out->failed = out->failed || from->failed;
    from->n = 0;
}

void token_probs_take(struct http_text *out, struct token_probs *p) { move(out, &p->content); }

void token_probs_put(struct http_text *out, struct token_probs *p, bool chat)
{
    if (chat) {
        http_text_format(out, "{\"content\":[");
        move(out, &p->content);
        http_text_format(out, "],\"refusal\":null}");
        return;
    }
    http_text_format(out, "{\"tokens\":[");
    move(out, &p->tokens);
    http_text_format(out, "],\"token_logprobs\":[");
    move(out, &p->values);
    http_text_format(out, "],\"top_logprobs\":[");
    move(out, &p->top_logprobs);
    http_text_format(out, "],\"text_offset\":[");
    move(out, &p->offsets);
    http_text_format(out, "]}");
}

size_t token_probs_bytes(const struct token_probs *p)
{
    return p->content.n + p->tokens.n + p->values.n + p->top_logprobs.n + p->offsets.n;
}

bool token_probs_failed(const struct token_probs *p)
{
    return p->content.failed || p->tokens.failed || p->values.failed || p->top_logprobs.failed || p->offsets.failed;
}

void token_probs_free(struct token_probs *p)
{
    http_text_free(&p->content);
    http_text_free(&p->tokens);
    http_text_free(&p->values);
    http_text_free(&p->top_logprobs);
    http_text_free(&p->offsets);
}

/* ---- prompts ------------------------------------------------------------------------------------------- */

static void put_ranked(struct http_text *out, const struct tokenizer *t, const struct sampler_prob *of)
{
    http_text_format(out, "\"%u\":{\"logprob\":", of->id);
    put_value(out, of->logprob);
    http_text_format(out, ",\"rank\":%u,\"decoded_token\":", of->rank);
    put_token(out, t, of->id);
    http_text_add(out, "}", 1);
}

static void put_place(struct http_text *out, const struct tokenizer *t, const struct sampler_prob *of, uint32_t n_top)
{
    http_text_add(out, "{", 1);
    put_ranked(out, t, &of[0]);
    for (uint32_t i = 1; i <= n_top; i++) {
        if (of[i].id == of[0].id) continue;
        http_text_add(out, ",", 1);
        put_ranked(out, t, &of[i]);
    }
    http_text_add(out, "}", 1);
}

void prompt_probs_put(struct http_text *out, const struct tokenizer *t, size_t n,
                      const struct sampler_prob *(*of)(void *user, size_t i, uint32_t *n_top), void *user,
                      uint32_t n_top)
{
    http_text_add(out, "[", 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t there = 0;
        const struct sampler_prob *here = i ? of(user, i, &there) : NULL;
        if (i) http_text_add(out, ",", 1);
        if (here)
            put_place(out, t, here, there < n_top ? there : n_top);
        else
            http_text_format(out, "null");
    }
    http_text_add(out, "]", 1);
}
