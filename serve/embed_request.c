/* embed_request.c: see embed_request.h. */
#include "embed_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "openai_names.h"

enum { MOST_POWER = 64 /* of embd_normalize: several times what anybody asks for */ };

static bool no_memory(struct refusal *why) { return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request"); }

void embed_request_free(struct embed_request *r)
{
    for (uint32_t i = 0; r->texts && i < r->n; i++) free(r->texts[i].ids);
    free(r->texts);
    json_decref(r->body);
    r->texts = NULL;
    r->body = NULL;
}

/* Members that would change the answer and are not served. */
struct unserved {
    const char *name, *nothing /* further values that ask for nothing, as JSON; NULL: none */;
};

static bool refuse_unserved(const struct body_object *o, const struct unserved *list, size_t n, struct refusal *why)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(o->object, list[i].name);
        if (v && !openai_names_is_nothing(v, list[i].nothing))
            return refuse(why, SERVE_INVALID_REQUEST, list[i].name, "%s: this worker does not serve it; leave it out",
                          list[i].name);
    }
    return true;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

static bool read_ids(const struct body_object *o, const char *name, const json_t *list,
                     const struct job_request_limits *l, struct embed_text *t, struct refusal *why)
{
    t->n_ids = json_array_size(list);
    t->ids = calloc(t->n_ids, sizeof *t->ids);
    if (!t->ids) return no_memory(why);
    for (size_t i = 0; i < t->n_ids; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= (l->n_vocab ? l->n_vocab : SAMPLER_MAX_VOCAB))
            return body_fail(o, name, why, "ids of the vocabulary");
        t->ids[i] = (uint32_t)json_integer_value(v);
    }
    t->text = (const char *)t->ids;
    t->len = t->n_ids * sizeof *t->ids;
    return true;
}

static bool read_text(const struct body_object *o, const char *name, const json_t *v, struct embed_text *t,
                      struct refusal *why)
{
    if (!json_is_string(v) || !json_string_length(v) || json_string_length(v) > TOKENIZER_MAX_TEXT)
        return body_fail(o, name, why, "texts that are not empty, of at most %d bytes", TOKENIZER_MAX_TEXT);
    t->text = json_string_value(v);
    t->len = json_string_length(v);
    t->chars = (uint32_t)utf8_count(t->text, t->len);
    return true;
}

/* Room for n of them. */
static bool begin_texts(const struct body_object *o, const char *name, size_t n, struct embed_request *r,
                        struct refusal *why)
{
    if (n > EMBED_MOST_TEXTS) return body_fail(o, name, why, "at most %d texts", EMBED_MOST_TEXTS);
    r->texts = calloc(n + 1, sizeof *r->texts);
    return r->texts || no_memory(why);
}

/* --max-prompt-chars, where it was asked for, of all texts. */
static bool few_chars(const struct job_request_limits *l, const struct embed_request *r, const char *name,
                      struct refusal *why)
{
    uint64_t chars = r->query.chars;
    for (uint32_t i = 0; i < r->n; i++) chars += r->texts[i].chars;
    return !l->most_chars || chars <= l->most_chars ||
           refuse(why, SERVE_INVALID_REQUEST, name, "%s: expected at most %u characters, got %llu", name, l->most_chars,
                  (unsigned long long)chars);
}

/* A text, its ids, or a list of either. */
static bool read_texts(const struct body_object *o, const char *name, const struct job_request_limits *l,
                       struct embed_request *r, struct refusal *why)
{
    const json_t *v = json_object_get(o->object, name), *first = json_array_get(v, 0);
    const bool several = json_is_string(first) || json_is_array(first);
    const size_t n = several ? json_array_size(v) : 1;
    if (!body_required(o, name, why) || !begin_texts(o, name, n, r, why)) return false;
    while (r->n < n) {
        const json_t *one = several ? json_array_get(v, r->n) : v;
        struct embed_text *t = &r->texts[r->n++];
        if (!(json_array_size(one) ? read_ids(o, name, one, l, t, why) : read_text(o, name, one, t, why))) return false;
    }
    return few_chars(l, r, name, why);
}

/* ---- what several have --------------------------------------------------------------------------------- */

static bool read_common(const struct body_object *o, const struct job_request_limits *l, struct embed_request *r,
                        struct refusal *why)
{
    int64_t priority = 0;
    if (!body_name(o, "model", 255, &r->model, why) ||
        !body_integer(o, "priority", REQUEST_LEAST_PRIORITY, l->max_priority, &priority, why))
        return false;
    r->priority = (int32_t)priority;
    return true;
}

static bool read_dimensions(const struct body_object *o, struct embed_request *r, struct refusal *why)
{
    int64_t n = 0;
    if (!body_integer(o, "dimensions", 1, INT32_MAX, &n, why)) return false;
    r->dimensions = (uint32_t)n;
    return true;
}

/* What is to become of texts that are too long, in the words of several servers: whether they are cut, to how many
 * tokens, and where. */
static bool read_cut(const struct body_object *o, struct embed_request *r, struct refusal *why)
{
    static const char *const sides[] = { "truncation_side", "truncation_direction" };
    int64_t most = 0;
    if (!body_flag(o, "truncate", &r->truncate, why) || !body_flag(o, "truncation", &r->truncate, why) ||
        !body_integer(o, "truncate_prompt_tokens", -1, INT32_MAX, &most, why))
        return false;
    if (json_object_get(o->object, "truncate_prompt_tokens")) {
        if (!most) return body_fail(o, "truncate_prompt_tokens", why, "-1, which is the context, or 1 or more");
        r->truncate = true;
        r->most = most > 0 ? (uint32_t)most : 0;
    }
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        const json_t *v = json_object_get(o->object, sides[i]);
        const bool left = body_says(v, "left") || body_says(v, "Left");
        if (v && !left && !body_says(v, "right") && !body_says(v, "Right"))
            return body_fail(o, sides[i], why, "left or right");
        r->from_left = r->from_left || left;
    }
    return true;
}

/* ---- OpenAI's, and llama-server's ---------------------------------------------------------------------- */

bool embed_read_openai(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    static const struct unserved unserved[] = { { "embed_dtype", "[\"float32\"]" },
                                                { "endianness", "[\"native\",\"little\"]" },
                                                { "messages", NULL } };
    const struct body_object o = { r->body, "" };
    const json_t *format = json_object_get(r->body, "encoding_format");
    bool special = true, normal = true;
    if (format && !body_says(format, "float") && !body_says(format, "base64"))
        return body_fail(&o, "encoding_format", why, "float or base64");
    r->base64 = body_says(format, "base64");
    if (!body_flag(&o, "add_special_tokens", &special, why) || !body_flag(&o, "normalize", &normal, why)) return false;
    if (!normal) return body_fail(&o, "normalize", why, "true: rows have the length 1");
    r->no_special = !special;
    return read_common(&o, l, r, why) && read_dimensions(&o, r, why) && read_cut(&o, r, why) &&
           read_texts(&o, "input", l, r, why) && refuse_unserved(&o, unserved, sizeof unserved / sizeof *unserved, why);
}

bool embed_read_llama(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    static const struct unserved unserved[] = { { "encoding_format", "[\"float\"]" }, { "dimensions", NULL } };
    const struct body_object o = { r->body, "" };
    const bool content = json_object_get(r->body, "content") != NULL;
    int64_t power = 2;
    if (!body_integer(&o, "embd_normalize", 0, MOST_POWER, &power, why)) return false;
    r->power = (uint32_t)power;
    r->by_largest = !power;
    if (content && json_object_get(r->body, "input")) return body_fail(&o, "input", why, "content or input, not both");
    return read_common(&o, l, r, why) && read_texts(&o, content ? "content" : "input", l, r, why) &&
           refuse_unserved(&o, unserved, sizeof unserved / sizeof *unserved, why);
}

/* ---- text-embeddings-inference's ----------------------------------------------------------------------- */

bool embed_read_tei(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    static const struct unserved unserved[] = { { "prompt_name", NULL } };
    const struct body_object o = { r->body, "" };
    bool normal = true;
    if (!body_flag(&o, "normalize", &normal, why)) return false;
    if (!normal) return body_fail(&o, "normalize", why, "true: rows have the length 1");
    return read_common(&o, l, r, why) && read_dimensions(&o, r, why) && read_cut(&o, r, why) &&
           read_texts(&o, "inputs", l, r, why) &&
           refuse_unserved(&o, unserved, sizeof unserved / sizeof *unserved, why);
}

/* ---- Ollama's ------------------------------------------------------------------------------------------ */

/* `options` are about answers and the machine, which is the command line's. */
static bool read_ollama(const struct job_request_limits *l, const char *name, struct embed_request *r,
                        struct refusal *why)
{
    const struct body_object o = { r->body, "" };
    const json_t *v = json_object_get(r->body, name);
    r->truncate = true;
    if (!body_flag(&o, "truncate", &r->truncate, why) || !read_common(&o, l, r, why) || !read_dimensions(&o, r, why))
        return false;
    /* No text, no row: its clients load a model so. */
    if (!v || (json_is_string(v) && !json_string_length(v)) || (json_is_array(v) && !json_array_size(v)))
        return begin_texts(&o, name, 0, r, why);
    return read_texts(&o, name, l, r, why);
}

bool embed_read_ollama(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    return read_ollama(l, "input", r, why);
}

bool embed_read_ollama_one(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    const struct body_object o = { r->body, "" };
    const json_t *v = json_object_get(r->body, "prompt");
    if (v && !json_is_string(v)) return body_fail(&o, "prompt", why, "a text");
    return read_ollama(l, "prompt", r, why);
}

/* ---- documents ----------------------------------------------------------------------------------------- */

/* A document: a text, or an object that has one. */
static const json_t *text_of(const json_t *document)
{
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

bool embed_read_rerank(const struct job_request_limits *l, struct embed_request *r, struct refusal *why)
{
    static const struct unserved unserved[] = { { "max_chunks_per_doc", NULL }, { "rank_fields", NULL } };
    const struct body_object o = { r->body, "" };
    r->tei = json_object_get(r->body, "texts") && !json_object_get(r->body, "documents");
    const char *name = r->tei ? "texts" : "documents";
    const json_t *list = json_object_get(r->body, name);
    const size_t n = json_array_size(list);
    int64_t top = INT32_MAX, most = 0;
    if (!r->tei && json_object_get(r->body, "texts")) return body_fail(&o, "texts", why, "no texts beside documents");
    if (!read_common(&o, l, r, why) || !body_required(&o, "query", why) ||
        !read_text(&o, "query", json_object_get(r->body, "query"), &r->query, why) || !body_required(&o, name, why))
        return false;
    if (!n) return body_fail(&o, name, why, "a list of one text or more");
    if (!begin_texts(&o, name, n, r, why)) return false;
    while (r->n < n) {
        const json_t *one = text_of(json_array_get(list, r->n));
        if (!read_text(&o, name, one, &r->texts[r->n++], why)) return false;
    }
    if (!body_integer(&o, "top_n", 1, INT32_MAX, &top, why) || !body_flag(&o, "raw_scores", &r->raw, why) ||
        !body_flag(&o, r->tei ? "return_text" : "return_documents", &r->documents, why) ||
        !body_integer(&o, "max_tokens_per_doc", 1, INT32_MAX, &most, why) || !read_cut(&o, r, why))
        return false;
    r->most_document = (uint32_t)most;
    r->top = top < (int64_t)n ? (uint32_t)top : (uint32_t)n;
    return few_chars(l, r, name, why) && refuse_unserved(&o, unserved, sizeof unserved / sizeof *unserved, why);
}
