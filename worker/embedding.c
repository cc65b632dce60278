/* embedding.c: `worker embed`: the embeddings of texts, or a reranker's scores of documents, a line of JSON each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "model/rank.h"
#include "setup.h"
#include "text.h"

struct embedding {
    const struct model *model;
    struct session *session;
    struct token_bytes query; /* data NULL: none */
    struct rank_form form;    /* with a query */
    uint32_t n;               /* texts so far */
};

static int print_row(const struct embedding *e, size_t n_tokens)
{
    const float *row = session_embedding(e->session);
    const uint32_t width = e->model->program->embedding_width;
    (void)printf("{\"index\":%u,\"tokens\":%zu,\"%s\":[", e->n, n_tokens, e->query.data ? "scores" : "embedding");
    for (uint32_t i = 0; i < width; i++) (void)printf(i ? ",%.9g" : "%.9g", (double)row[i]);
    return puts("]}") < 0 ? fail(CODE_OUTPUT_FAILED, "standard output cannot be written") : EXIT_DONE;
}

static wk_status encode(const struct embedding *e, struct token_bytes text, struct tokens *out, size_t *second,
                        const struct wk_err *err)
{
    const struct tokenizer *t = e->model->tokenizer;
    struct tokenizer_part parts[RANK_PARTS];
    if (!e->query.data) return tokenizer_encode(t, text.data, text.len, false, true, out, err);
    const size_t n = rank_form_parts(&e->form, e->query, text, parts);
    if (n) return tokenizer_encode_parts(t, parts, n, false, out, err);
    const struct tokenizer_part pair[2] = { { e->query.data, e->query.len, false }, { text.data, text.len, false } };
    return tokenizer_encode_pair(t, pair, NULL, out, second, err);
}

static int embed_text(struct embedding *e, const char *bytes, size_t n)
{
    struct tokens tokens = { 0 };
    size_t second = 0;
    ERROR_TEXT(err);
    wk_status status = encode(e, (struct token_bytes){ bytes, n }, &tokens, &second, &err);
    int result = status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
    if (!result && !tokens.n) result = fail(CODE_INVALID_REQUEST, "text %u: no tokens: it is empty", e->n);
    if (!result && tokens.n > e->model->dev.context)
        result = fail(CODE_CONTEXT_LENGTH_EXCEEDED,
                      "text %u has %zu tokens, the context is %u; shorten it or raise --context", e->n, tokens.n,
                      e->model->dev.context);
    if (!result) {
        session_reset(e->session);
        status = session_feed_pair(e->session, tokens.ids, (uint32_t)tokens.n, (uint32_t)second, &err);
        result = status ? fail_status(STAGE_STEP, status, &err) : print_row(e, tokens.n);
    }
    tokens_free(&tokens);
    e->n++;
    return result;
}

/* Each line of a file is a text, without the CR of a CR LF; empty ones are passed over. */
static int embed_lines(struct embedding *e, const char *path)
{
    struct text text;
    int result = text_read(NULL, path ? path : "-", &text);
    if (result) return result;
    for (size_t at = 0, end; !result && at < text.len; at = end + 1) {
        const char *newline = memchr(text.bytes + at, '\n', text.len - at);
        end = newline ? (size_t)(newline - text.bytes) : text.len;
        const size_t n = end - at - (end > at && text.bytes[end - 1] == '\r');
        if (n) result = embed_text(e, text.bytes + at, n);
    }
    text_free(&text);
    return result;
}

/* Does the model do what is asked? */
static int check_model(const struct options *o, const struct model *m, struct embedding *e)
{
    const bool ranks = model_ranks(m), query = option_text(o, OPT_QUERY);
    ERROR_TEXT(err);
    if (!m->program->embedding_width)
        return fail(CODE_INVALID_REQUEST, "%s generates text; with --pooling mean, first or last it gives embeddings",
                    m->name);
    if (ranks != query)
        return fail(CODE_INVALID_REQUEST,
                    ranks ? "%s is a reranker: it needs --query TEXT"
                          : "%s gives embeddings, not scores: leave --query out, which is of a reranker",
                    m->name);
    if (!m->tokenizer)
        return fail(CODE_INVALID_REQUEST, "%s: the file has no tokenizer%s; give a tokenizer.json with --tokenizer",
                    m->name, tokenizer_served(m->file) ? "" : " of a kind that is served");
    if (ranks && rank_form_open(m->file, &e->form, &err))
        return fail(CODE_INVALID_REQUEST, "%s: %s", m->name, err_text);
    return EXIT_DONE;
}

static int embed_all(const struct options *o, struct embedding *e)
{
    const char *path = option_text(o, OPT_FILE);
    int result = EXIT_DONE;
    if (!o->n_operands) return embed_lines(e, path);
    for (int i = 0; !result && i < o->n_operands; i++) result = embed_text(e, o->operands[i], strlen(o->operands[i]));
    return result;
}

int command_embed(const struct options *o)
{
    struct opened x = { 0 };
    struct embedding e = { 0 };
    const char *query = option_text(o, OPT_QUERY);
    ERROR_TEXT(err);
    if (o->n_operands && option_text(o, OPT_FILE)) return fail_usage("embed", "expected either TEXT or --file FILE");
    int result =
        open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS_BEST, .max_logits_rows = 1, .load = true }, &x);
    if (!result) result = check_model(o, x.model, &e);
    const wk_status status = result ? WK_OK : session_open(x.model, &e.session, &err);
    if (status) result = fail_status(STAGE_MODEL, status, &err);
    e.model = x.model;
    if (query) e.query = (struct token_bytes){ query, strlen(query) };
    if (!result) result = embed_all(o, &e);
    session_close(e.session);
    opened_close(&x);
    return result;
}
