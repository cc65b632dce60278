/* text_routes.c: POST /tokenize and /detokenize, GET /capabilities.
 *
 * The bodies of llama-server {content, add_special, parse_special, with_pieces} and of vLLM {prompt,
 * add_special_tokens, return_token_strs, model} are both understood, and every answer has the names of both. What
 * differs from either: text never becomes a control token unless parse_special says so. */
#include "inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "capability/capability.h"
#include "capability/json_text.h"

static void refuse_body(struct serve *s, struct http_request *r, const struct body_error *why)
{
    serve_refuse(s, r, SERVE_INVALID_REQUEST, NULL, why->field, "%s", why->text);
}

/* The model, if one with a tokenizer is there. NULL: answered. */
static const struct serve_model *model_of(struct serve *s, struct http_request *r)
{
    const struct serve_model *m = atomic_load(&s->model);
    if (!m)
        serve_refuse(s, r, SERVE_NOT_READY, NULL, NULL, "no model is loaded");
    else if (!m->model->tokenizer)
        serve_refuse(s, r, SERVE_INVALID_REQUEST, NULL, NULL, "the model has no tokenizer");
    return m && m->model->tokenizer ? m : NULL;
}

/* `model` of the body, where it is given, is the one that is served. */
static bool is_served(struct serve *s, struct http_request *r, const struct serve_model *m, const struct body_object *o)
{
    struct body_error why = { 0 };
    const char *name = NULL;
    if (!body_name(o, "model", 255, &name, &why)) {
        refuse_body(s, r, &why);
        return false;
    }
    if (!name || strcmp(name, m->name) == 0) return true;
    serve_refuse(s, r, SERVE_NOT_FOUND, NULL, "model", "model: this worker serves %s, not %s", m->name, name);
    return false;
}

/* The body as an object whose names are all in `names`, for the model that is served. False: answered. */
static bool body_of(struct serve *s, struct http_request *r, const struct serve_model *m, const char *const *names,
                    size_t n_names, struct body_object *out)
{
    struct body_error why = { 0 };
    const char *bytes;
    size_t n;
    json_t *body = NULL;
    if (!serve_body(r, HTTP_BODY_MAX, &bytes, &n)) return false;
    if (body_parse(bytes, n, &body, &why)) {
        *out = (struct body_object){ body, "" };
        if (!body_knows(out, names, n_names, &why))
            refuse_body(s, r, &why);
        else if (is_served(s, r, m, out))
            return true;
        json_decref(body);
        return false;
    }
    refuse_body(s, r, &why);
    return false;
}

static void send(struct serve *s, struct http_request *r, const struct http_text *document)
{
    if (document->failed)
        serve_refuse(s, r, SERVE_INTERNAL, NULL, NULL, "no memory for an answer");
    else
        http_answer(r, 200, "application/json", document->data, document->n);
}

/* ---- /tokenize ----------------------------------------------------------------------------------------- */

struct tokenize {
    const char *text;
    size_t n;
    bool add_special, parse_special, pieces, strings;
};

static bool tokenize_fields(const struct body_object *o, struct tokenize *t, struct body_error *why)
{
    const bool content = json_object_get(o->object, "content") != NULL,
               prompt = json_object_get(o->object, "prompt") != NULL;
    if (content == prompt)
        return body_fail(o, content ? "prompt" : "content", why,
                         content ? "content or prompt, not both" : "the text, here or as prompt");
    *t = (struct tokenize){ .add_special = prompt }; /* each spelling with its own default */
    return body_string(o, content ? "content" : "prompt", 0, TOKENIZER_MAX_TEXT, &t->text, &t->n, why) &&
           body_flag(o, content ? "add_special" : "add_special_tokens", &t->add_special, why) &&
           body_flag(o, "parse_special", &t->parse_special, why) && body_flag(o, "with_pieces", &t->pieces, why) &&
           body_flag(o, "return_token_strs", &t->strings, why);
}

/* Bytes that ids and answer take at most, about: an id for each byte, and what is written of it, in text that grows by
 * doubling. */
static size_t tokenize_memory(const struct tokenize *t)
{
    return t->n * (size_t)(16 + (t->pieces ? 64 : 0) + (t->strings ? 24 : 0));
}

static void put_piece(struct http_text *out, const struct tokenizer *t, uint32_t id)
{
    const struct token_bytes piece = tokenizer_piece(t, id, true);
    http_text_json(out, piece.data, piece.len);
}

/* Written as it goes: as a tree of JSON, eight million ids are a gigabyte. */
static void put_tokens(struct http_text *out, const struct serve_model *m, const struct tokens *tokens,
                       const struct tokenize *t)
{
    http_text_format(out, "{\"tokens\":[");
    for (size_t i = 0; i < tokens->n; i++) {
        http_text_format(out, t->pieces ? "%s{\"id\":%u,\"piece\":" : "%s%u", i ? "," : "", tokens->ids[i]);
        if (!t->pieces) continue;
        put_piece(out, m->model->tokenizer, tokens->ids[i]);
        http_text_add(out, "}", 1);
    }
    http_text_format(out, "],\"count\":%zu,\"max_model_len\":%u", tokens->n, m->model->dev.context);
    if (t->strings) http_text_format(out, ",\"token_strs\":[");
    for (size_t i = 0; t->strings && i < tokens->n; i++) {
        if (i) http_text_add(out, ",", 1);
        put_piece(out, m->model->tokenizer, tokens->ids[i]);
    }
    http_text_format(out, t->strings ? "]}\n" : "}\n");
}

static void tokenize(void *user, struct http_request *r)
{
    static const char *const names[] = { "content", "add_special",        "parse_special",     "with_pieces",
                                         "prompt",  "add_special_tokens", "return_token_strs", "model" };
    struct serve *s = user;
    const struct serve_model *m = model_of(s, r);
    struct body_object o;
    struct body_error why = { 0 };
    struct tokenize t;
    struct tokens tokens = { 0 };
    struct http_text out = { 0 };
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    if (!m || !body_of(s, r, m, names, sizeof names / sizeof *names, &o)) return;
    if (!tokenize_fields(&o, &t, &why)) {
        refuse_body(s, r, &why);
    } else if (http_reserve(r, tokenize_memory(&t))) {
        const wk_status status =
            tokenizer_encode(m->model->tokenizer, t.text, t.n, t.parse_special, t.add_special, &tokens, &err);
        if (status)
            serve_refuse(s, r, status == WK_INVALID ? SERVE_INVALID_REQUEST : SERVE_INTERNAL, NULL, NULL, "%s", text);
        else {
            put_tokens(&out, m, &tokens, &t);
            send(s, r, &out);
        }
    }
    http_text_free(&out);
    tokens_free(&tokens);
    json_decref((json_t *)(uintptr_t)o.object);
}

/* ---- /detokenize --------------------------------------------------------------------------------------- */

/* The ids of `tokens`; the caller frees. NULL: why. */
static uint32_t *ids_of(const struct body_object *o, uint32_t n_vocab, size_t *n, struct body_error *why)
{
    const json_t *array = json_object_get(o->object, "tokens");
    *n = json_array_size(array);
    if (!json_is_array(array)) {
        (void)body_fail(o, "tokens", why, "an array of token ids");
        return NULL;
    }
    uint32_t *ids = malloc((*n + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < *n; i++) {
        const json_t *v = json_array_get(array, i);
        if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < (json_int_t)n_vocab) {
            ids[i] = (uint32_t)json_integer_value(v);
            continue;
        }
        (void)snprintf(why->field, sizeof why->field, "tokens");
        if (json_is_integer(v))
            (void)snprintf(why->text, sizeof why->text,
                           "tokens: element %zu is %" JSON_INTEGER_FORMAT ", ids are 0 to %" PRIu32, i,
                           json_integer_value(v), n_vocab - 1);
        else
            (void)snprintf(why->text, sizeof why->text, "tokens: element %zu is no whole number", i);
        free(ids);
        return NULL;
    }
    if (!ids) (void)snprintf(why->text, sizeof why->text, "no memory for the ids");
    return ids;
}

/* The text once as it is, and twice as JSON. */
static size_t detokenize_memory(const struct tokenizer *t, const uint32_t *ids, size_t n, bool special)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += tokenizer_piece(t, ids[i], special).len;
    return bytes * 8;
}

static void put_text(struct http_text *out, const char *text, size_t n)
{
    http_text_format(out, "{\"content\":");
    http_text_json(out, text, n);
    http_text_format(out, ",\"prompt\":");
    http_text_json(out, text, n);
    http_text_format(out, "}\n");
}

static void detokenize(void *user, struct http_request *r)
{
    static const char *const names[] = { "tokens", "special", "model" };
    struct serve *s = user;
    const struct serve_model *m = model_of(s, r);
    struct body_object o;
    struct body_error why = { 0 };
    bool special = false;
    size_t n = 0, len = 0;
    char *decoded = NULL, text[512] = "";
    struct http_text out = { 0 };
    const struct wk_err err = { text, sizeof text };
    if (!m || !body_of(s, r, m, names, sizeof names / sizeof *names, &o)) return;
    const struct tokenizer *t = m->model->tokenizer;
    uint32_t *ids = body_flag(&o, "special", &special, &why) ? ids_of(&o, tokenizer_size(t), &n, &why) : NULL;
    if (!ids) {
        refuse_body(s, r, &why);
    } else if (http_reserve(r, detokenize_memory(t, ids, n, special))) {
        if (tokenizer_decode(t, ids, n, special, &decoded, &len, &err))
            serve_refuse(s, r, SERVE_INTERNAL, NULL, NULL, "%s", text);
        else {
            put_text(&out, decoded, len);
            send(s, r, &out);
        }
    }
    free(ids);
    free(decoded);
    http_text_free(&out);
    json_decref((json_t *)(uintptr_t)o.object);
}

/* ---- /capabilities ------------------------------------------------------------------------------------- */

static void capabilities(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *profile = capabilities_profile(s->plugins, s->o->worker_id, s->device->handle ? &s->info : NULL);
    json_t *descriptor = m ? capabilities_descriptor(m->name, s->plugins, m->model->program) : json_null();
    serve_answer(s, r, 200, json_pack("{s:o, s:o}", "worker", profile, "model", descriptor));
}

const struct http_route serve_text_routes[] = {
    { "POST", "/tokenize", tokenize, false },
    { "POST", "/detokenize", detokenize, false },
    { "GET", "/capabilities", capabilities, false },
};
const uint32_t serve_n_text_routes = sizeof serve_text_routes / sizeof *serve_text_routes;
