/* embed.c: embeddings and scores: OpenAI's /v1/embeddings, llama-server's /embedding and /embeddings, Ollama's
 * /api/embed and /api/embeddings, text-embeddings-inference's /embed, and /rerank in the form of Jina and Cohere, or of
 * the latter.
 *
 * A request is one job, whatever the number of its texts: the engine takes whole texts of several jobs into a step. */
#include <stdlib.h>
#include <string.h>

#include "embed_answer.h"
#include "items.h"
#include "model/rank.h"

/* An interface of this kind: its body's reader and its answer's form. */
struct embed_interface {
    const char *prefix, *field; /* of ids; the member that holds the texts, in refusals */
    bool scores;
    bool untyped; /* clients send bodies without a Content-Type that says JSON */
    bool (*read)(const struct job_request_limits *l, struct embed_request *r, struct refusal *why);
    void (*put)(struct http_text *out, const struct embed_request *q, const struct embed_rows *x);
};

struct embed {
    const struct embed_interface *interface;
    struct embed_request q;
    struct rank_form form; /* of a reranker */
    struct tokens query;   /* the query's ids, encoded once for all documents; without a template */
    bool has_query;        /* they are there */
};

static struct embed *embed_of(const struct stream *x) { return x->own; }

/* ---- prompts ------------------------------------------------------------------------------------------- */

/* Tokens of a text, or of a pair, that is cut. */
static uint32_t most_of(const struct stream *x)
{
    const uint32_t room = stream_prompt_limit(x), most = embed_of(x)->q.most;
    return most && most < room ? most : room;
}

/* The first tokens of a text that is too long, or the last ones; what begins and ends one stays. */
static void cut(const struct stream *x, struct tokens *ids)
{
    const struct embed_request *q = &embed_of(x)->q;
    const struct tokenizer *t = x->m->facts.tokenizer;
    const uint32_t most = most_of(x);
    if (ids->n <= most) return;
    if (q->from_left) {
        const size_t kept = !q->no_special && tokenizer_adds_bos(t) && most > 1;
        memmove(ids->ids + kept, ids->ids + kept + (ids->n - most), (most - kept) * sizeof *ids->ids);
    } else if (!q->no_special && tokenizer_adds_eos(t)) {
        ids->ids[most - 1] = tokenizer_eos(t);
    }
    ids->n = most;
}

/* A text alone, however long it is; appended. */
static wk_status encode_text(struct stream *x, const struct embed_text *from, bool add_special, struct tokens *out,
                             const struct wk_err *err)
{
    enum { OF_BYTE = 16 }; /* bytes for each of the text: a copy, and ids whose room grows by doubling */
    const struct tokenizer_part part = { from->text, from->len, false };
    if (!http_reserve(x->r, from->len * OF_BYTE)) return wk_fail(err, WK_NO_MEMORY, "no memory for the text");
    return work_encode(x->work, x->m->facts.tokenizer, &part, 1, add_special, out, err);
}

static wk_status encode_one(struct stream *x, const struct embed_text *from, struct stream_prompt *p,
                            const struct wk_err *err)
{
    const struct embed_request *q = &embed_of(x)->q;
    const struct tokenizer_part part = { from->text, from->len, false };
    if (from->ids) {
        p->ids.ids = malloc(from->len);
        if (!p->ids.ids) return wk_fail(err, WK_NO_MEMORY, "no memory for %zu ids", from->n_ids);
        memcpy(p->ids.ids, from->ids, from->len);
        p->ids.n = p->ids.cap = from->n_ids;
    } else if (!q->truncate) {
        return stream_encode(x, p, &part, 1, !q->no_special, err);
    } else {
        const wk_status status = encode_text(x, from, !q->no_special, &p->ids, err);
        if (status) return status;
    }
    if (q->truncate) cut(x, &p->ids);
    return WK_OK;
}

static wk_status encode_pair(struct stream *x, const struct embed_text *document, struct stream_prompt *p,
                             const struct wk_err *err)
{
    enum { OF_ID = 8 }; /* bytes for each of the pair, whose room grows by doubling */
    struct embed *e = embed_of(x);
    const struct embed_request *q = &e->q;
    struct tokenizer_part parts[RANK_PARTS];
    struct tokens second = { 0 };
    size_t at = 0;
    const size_t n = rank_form_parts(&e->form, (struct token_bytes){ q->query.text, q->query.len },
                                     (struct token_bytes){ document->text, document->len }, parts);
    if (n) return stream_encode(x, p, parts, n, false, err);
    wk_status status = e->has_query ? WK_OK : encode_text(x, &q->query, false, &e->query, err);
    e->has_query = !status;
    if (!status) status = encode_text(x, document, false, &second, err);
    const struct tokenizer_limits limits = { .all = q->truncate ? most_of(x) : 0,
                                             .second = q->most_document,
                                             .from_left = q->from_left };
    const struct tokens texts[2] = { e->query, second };
    size_t ids = e->query.n + second.n;
    if (limits.all && ids > limits.all) ids = limits.all;
    if (!status && !http_reserve(x->r, ids * OF_ID)) status = wk_fail(err, WK_NO_MEMORY, "no memory for the pair");
    if (!status) status = tokenizer_join_pair(x->m->facts.tokenizer, texts, &limits, &p->ids, &at, err);
    p->second = (uint32_t)at;
    tokens_free(&second);
    return status;
}

static wk_status encode(struct stream *x, struct stream_prompt *p, const struct wk_err *err)
{
    const struct embed *e = embed_of(x);
    const struct embed_text *from = &e->q.texts[p - x->prompts];
    p->text = from->text;
    p->len = from->len;
    p->chars = from->chars;
    p->as_sent = !from->ids;
    return e->interface->scores ? encode_pair(x, from, p, err) : encode_one(x, from, p, err);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static void nothing_freed(struct stream *x) { (void)x; } /* documents may be told again */
static void nothing_started(struct stream *x, struct answer *a) { (void)x, (void)a; }
static void nothing_ended(struct stream *x, struct answer *a, const struct ending *e) { (void)x, (void)a, (void)e; }

static bool fill(const struct stream *x, const struct embed *e, const float **rows, struct http_text *out)
{
    const struct answer *a = &x->answers[0];
    for (uint32_t i = 0; i < e->q.n; i++) rows[i] = job_pooled(a->job, i);
    const struct embed_rows all = { .model = x->m->name,
                                    .id = x->q.job_id,
                                    .n = e->q.n,
                                    .width = x->m->facts.width,
                                    .row = rows,
                                    .tokens = stream_tokens_in(x, a),
                                    .duration_ns = serve_now_ns() - x->arrived_ns,
                                    .positive = x->m->facts.positive };
    e->interface->put(out, &e->q, &all);
    return !out->failed;
}

static void done(struct stream *x)
{
    enum { OF_NUMBER = 32 /* bytes of text, which grows by doubling */ };
    const struct embed *e = embed_of(x);
    struct refusal why = { .code = SERVE_INTERNAL, .text = "no memory for the answer" };
    if (!http_reserve(x->r, (size_t)e->q.n * x->m->facts.width * OF_NUMBER)) return; /* it was answered */
    const float **rows = calloc(e->q.n, sizeof *rows);
    if (rows && fill(x, e, rows, &x->line)) {
        http_answer(x->r, 200, "application/json", x->line.data, x->line.n);
    } else {
        refusal_job(&why, x->q.job_id);
        serve_fail(x->r, &why);
    }
    free((void *)rows);
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static bool suits_scores(const struct serve_model *m, struct embed *e, struct refusal *why)
{
    char text[256] = "";
    if (m->facts.ranks != e->interface->scores)
        return refuse(why, SERVE_INVALID_REQUEST, "model", "model: %s gives %s; use POST %s", m->name,
                      m->facts.ranks ? "scores of a query and documents" : "embeddings, not scores",
                      m->facts.ranks ? "/v1/rerank" : "/v1/embeddings");
    if (m->facts.ranks && rank_form_open(m->facts.file, &e->form, &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_INVALID_REQUEST, "model", "model: %s: %s", m->name, text);
    if (m->facts.ranks && m->facts.positive == UINT32_MAX)
        return refuse(why, SERVE_INVALID_REQUEST, "model",
                      "model: %s has %u labels, which are no relevance: one label, or yes and no, are expected",
                      m->name, m->facts.width);
    return true;
}

static bool suits_cut(const struct serve *s, const struct serve_model *m, const struct embed *e, struct refusal *why)
{
    const struct embed_request *q = &e->q;
    const uint32_t room = engine_text_most(m->engine), asked = s->o->max_tokens_in,
                   most = asked && asked < room ? asked : room;
    return q->most <= most ||
           refuse(why, SERVE_INVALID_REQUEST, "truncate_prompt_tokens",
                  "truncate_prompt_tokens: expected -1, or at most %u, as many as a text may have, got %u", most,
                  q->most);
}

/* Pairs that are put together by a template are not cut, and the query is encoded with each document. */
static bool suits_template(const struct serve_model *m, const struct embed *e, struct refusal *why)
{
    enum { MOST_READ = 8 * TOKENIZER_MAX_TEXT /* bytes of a query in all its pairs: bounds the time of a request */ };
    const struct embed_request *q = &e->q;
    if (!e->form.template.data) return true;
    if (q->truncate || q->most_document)
        return refuse(why, SERVE_INVALID_REQUEST, q->truncate ? "truncate" : "max_tokens_per_doc",
                      "%s: the file of %s puts query and document into a template: they are not cut",
                      q->truncate ? "truncate" : "max_tokens_per_doc", m->name);
    return q->query.len <= MOST_READ / q->n ||
           refuse(why, SERVE_INVALID_REQUEST, "query",
                  "query: expected a text of at most %u bytes, for it is read with each of %u documents, got %zu",
                  MOST_READ / q->n, q->n, q->query.len);
}

/* What only the model tells. */
static bool suits(const struct serve *s, const struct serve_model *m, struct embed *e, struct refusal *why)
{
    const struct embed_request *q = &e->q;
    if (q->model && !serve_suits_name(m, q->model, "model", why)) return false;
    if (!stream_suits(m, true, why) || !suits_scores(m, e, why)) return false;
    if (!suits_cut(s, m, e, why) || !suits_template(m, e, why)) return false;
    if (!q->dimensions || q->dimensions == m->facts.width) return true;
    if (q->dimensions > m->facts.width)
        return refuse(why, SERVE_INVALID_REQUEST, "dimensions",
                      "dimensions: expected at most %u, the numbers of this model's embeddings, got %u", m->facts.width,
                      q->dimensions);
    return s->o->matryoshka ||
           refuse(why, SERVE_INVALID_REQUEST, "dimensions",
                  "dimensions: a part of an embedding says little unless the model was trained for it, which its file "
                  "does not tell; the worker's flag --matryoshka says so");
}

/* Nothing to compute. */
static void answer_none(const struct stream *x, const struct embed *e)
{
    struct http_text out = { 0 };
    e->interface->put(&out, &e->q, &(struct embed_rows){ .model = x->m->name, .id = "", .width = x->m->facts.width });
    if (out.failed)
        serve_refuse(x->s, x->r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for the answer" });
    else
        http_answer(x->r, 200, "application/json", out.data, out.n);
    http_text_free(&out);
}

/* False: answered. */
static bool read_request(struct work *w, struct embed *e, const struct serve_model **m)
{
    const struct serve *s = w->s;
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    *m = serve_ready(s, &why);
    if (*m) {
        const struct job_request_limits limits = { .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                                   .n_vocab = (*m)->facts.n_vocab,
                                                   .max_priority = caller_max_priority(s, w->r) };
        if (!work_body(w, HTTP_BODY_MAX, &bytes, &n)) return false;
        if (body_parse(bytes, n, &e->q.body, &why)) {
            body_drop_nulls(e->q.body);
            if (e->interface->read(&limits, &e->q, &why) && suits(s, *m, e, &why)) return true;
        }
    }
    serve_refuse(w->s, w->r, &why);
    return false;
}

static void serve_rows(struct serve *s, struct http_request *r, const struct embed_interface *i)
{
    const struct stream_form form = { .encode = encode,
                                      .release = nothing_freed,
                                      .started = nothing_started,
                                      .end = nothing_ended,
                                      .done = done,
                                      .error = items_whole_error,
                                      .field = i->field,
                                      .whole = true };
    struct work work;
    struct embed e = { .interface = i };
    struct stream x = {
        .form = &form, .s = s, .r = r, .work = &work, .own = &e, .embeds = true, .each = 1, .arrived_ns = serve_now_ns()
    };
    work_open(&work, s, r);
    work.untyped = i->untyped;
    atomic_fetch_add(&s->streams, 1); /* before the state is read: who drains waits for us, or we see that it drains */
    if (read_request(&work, &e, &x.m)) {
        x.n_prompts = e.q.n;
        x.query = (struct token_bytes){ e.q.query.text, e.q.query.len };
        x.q.priority = e.q.priority;
        if (e.q.n)
            stream_run(&x, i->prefix);
        else
            answer_none(&x, &e);
    }
    embed_request_free(&e.q);
    tokens_free(&e.query);
    work_close(&work);
    atomic_fetch_sub(&s->streams, 1);
}

/* ---- the routes ---------------------------------------------------------------------------------------- */

static const struct embed_interface
    openai = { "embd-", "input", false, false, embed_read_openai, embed_put_openai },
    llama = { "embd-", "content", false, false, embed_read_llama, embed_put_llama },
    ollama = { "embd-", "input", false, true, embed_read_ollama, embed_put_ollama },
    ollama_one = { "embd-", "prompt", false, true, embed_read_ollama_one, embed_put_ollama_one },
    tei = { "embd-", "inputs", false, false, embed_read_tei, embed_put_tei },
    rerank = { "rerank-", "documents", true, false, embed_read_rerank, embed_put_rerank };

static void on_openai(void *user, struct http_request *r) { serve_rows(user, r, &openai); }
static void on_llama(void *user, struct http_request *r) { serve_rows(user, r, &llama); }
static void on_ollama(void *user, struct http_request *r) { serve_rows(user, r, &ollama); }
static void on_ollama_one(void *user, struct http_request *r) { serve_rows(user, r, &ollama_one); }
static void on_tei(void *user, struct http_request *r) { serve_rows(user, r, &tei); }
static void on_rerank(void *user, struct http_request *r) { serve_rows(user, r, &rerank); }

const struct http_route serve_embed_routes[] = {
    { "POST", "/v1/embeddings", on_openai, true },
    { "POST", "/embedding", on_llama, true },
    { "POST", "/embeddings", on_llama, true },
    { "POST", "/api/embed", on_ollama, true },
    { "POST", "/api/embeddings", on_ollama_one, true },
    { "POST", "/embed", on_tei, true },
    { "POST", "/v1/rerank", on_rerank, true },
    { "POST", "/v2/rerank", on_rerank, true },
    { "POST", "/rerank", on_rerank, true },
    { "POST", "/reranking", on_rerank, true },
    { "POST", "/v1/reranking", on_rerank, true },
};
const uint32_t serve_n_embed_routes = sizeof serve_embed_routes / sizeof *serve_embed_routes;
