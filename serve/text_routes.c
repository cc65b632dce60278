/* text_routes.c: POST /tokenize and /detokenize, GET /tokenizer_info and /capabilities.
 *
 * The bodies of llama-server {content, add_special, parse_special, with_pieces} and of vLLM {prompt or messages,
 * add_special_tokens, return_token_strs, model} are both understood, and every answer has the names of both. What
 * differs from either: text never becomes a control token unless parse_special says so. */
#include "inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "capability/capability.h"
#include "capability/json_text.h"
#include "chat/chat.h"
#include "openai_request.h"
#include "work.h"

/* The model, if one with a tokenizer is there. */
static const struct serve_model *model_of(const struct serve *s, struct refusal *why)
{
    const struct serve_model *m = atomic_load(&s->model);
    if (!m)
        (void)refuse(why, SERVE_NOT_READY, NULL, "no model is loaded");
    else if (!m->facts.tokenizer)
        (void)refuse(why, SERVE_INVALID_REQUEST, NULL, "the model has no tokenizer");
    return m && m->facts.tokenizer ? m : NULL;
}

/* `model` of the body, where it is given, is the one that is served. */
static bool is_served(const struct serve_model *m, const struct body_object *o, struct refusal *why)
{
    const char *name = NULL;
    if (!body_name(o, "model", 255, &name, why)) return false;
    return !name || serve_is_called(m, name) ||
           refuse(why, SERVE_NOT_FOUND, "model", "model: this worker serves %s, not %s", m->name, name);
}

/* Opens the request's work and reads its body: an object whose names are all in `names`, for the model that is served;
 * the caller's, as the work is. *text: its bytes. NULL: answered, and no work is open. */
static json_t *open_body(struct work *w, struct serve *s, struct http_request *r, const char *const *names,
                         size_t n_names, const struct serve_model **m, struct token_bytes *text)
{
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    json_t *body = NULL;
    work_open(w, s, r);
    *m = model_of(s, &why);
    const bool read = !*m || work_body(w, HTTP_BODY_MAX, &bytes, &n);
    if (*m && read && body_parse(bytes, n, &body, &why) &&
        body_knows(&(struct body_object){ body, "" }, names, n_names, &why) &&
        is_served(*m, &(struct body_object){ body, "" }, &why)) {
        *text = (struct token_bytes){ bytes, n };
        return body;
    }
    if (read) serve_refuse(s, r, &why);
    json_decref(body);
    work_close(w);
    return NULL;
}

static void send(struct serve *s, struct http_request *r, const struct http_text *document)
{
    if (document->failed)
        serve_refuse(s, r, &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for an answer" });
    else
        http_answer(r, 200, "application/json", document->data, document->n);
}

/* ---- /tokenize ----------------------------------------------------------------------------------------- */

struct tokenize {
    const char *text;
    size_t n;
    bool add_special, parse_special, pieces, strings;
    struct openai_request chat; /* of messages, whose template is put around them; else empty */
};

/* A conversation as /v1/chat/completions would send it. */
static bool tokenize_messages(const struct body_object *o, struct token_bytes body, const struct serve_model *m,
                              struct tokenize *t, struct refusal *why)
{
    *t = (struct tokenize){ 0 };
    if (json_object_get(o->object, "content") || json_object_get(o->object, "prompt"))
        return body_fail(o, "messages", why, "messages alone, without a text");
    if (!body_flag(o, "add_special_tokens", &t->add_special, why) ||
        !body_flag(o, "return_token_strs", &t->strings, why))
        return false;
    if (!m->chat)
        return refuse(why, SERVE_INVALID_REQUEST, "messages", "messages: this model's chat template cannot be used: %s",
                      m->no_chat);
    if (!openai_request_messages(o, body.data, body.len, &t->chat, why)) return false;
    t->n = t->chat.q.prompt_len;
    return true;
}

static bool tokenize_fields(const struct body_object *o, struct token_bytes body, const struct serve_model *m,
                            struct tokenize *t, struct refusal *why)
{
    if (json_object_get(o->object, "messages")) return tokenize_messages(o, body, m, t, why);
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
        put_piece(out, m->facts.tokenizer, tokens->ids[i]);
        http_text_add(out, "}", 1);
    }
    http_text_format(out, "],\"count\":%zu,\"max_model_len\":%u", tokens->n, m->facts.context);
    if (t->strings) http_text_format(out, ",\"token_strs\":[");
    for (size_t i = 0; t->strings && i < tokens->n; i++) {
        if (i) http_text_add(out, ",", 1);
        put_piece(out, m->facts.tokenizer, tokens->ids[i]);
    }
    http_text_format(out, t->strings ? "]}\n" : "}\n");
}

static bool encode_chat(struct work *w, const struct serve_model *m, const struct tokenize *t, struct tokens *out,
                        struct refusal *why)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct chat_request q = t->chat.chat;
    struct chat_problem problem;
    struct chat_prompt prompt;
    serve_clock(w->s, &q);
    bool ok = chat_render(m->chat, &q, &prompt, &problem) ||
              refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    const wk_status status = ok ? work_encode(w, m->facts.tokenizer, prompt.part, prompt.n, true, out, &err) : WK_OK;
    chat_prompt_free(&prompt);
    if (status == WK_CANCELLED) return work_refuse(w, why);
    return ok && (!status || refuse(why, serve_code_of_status(status), "messages", "messages: %s", text));
}

static bool encode(struct work *w, const struct serve_model *m, const struct tokenize *t, struct tokens *out,
                   struct refusal *why)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    const struct tokenizer_part part = { t->text, t->n, t->parse_special };
    if (t->chat.conversation.n) return encode_chat(w, m, t, out, why);
    const wk_status status = work_encode(w, m->facts.tokenizer, &part, 1, t->add_special, out, &err);
    if (status == WK_CANCELLED) return work_refuse(w, why);
    return !status || refuse(why, serve_code_of_status(status), NULL, "%s", text);
}

static void tokenize(void *user, struct http_request *r)
{
    static const char *const names[] = {
        "content",  "add_special",        "parse_special",         "with_pieces",
        "prompt",   "add_special_tokens", "return_token_strs",     "model",
        "messages", "reasoning_effort",   "add_generation_prompt", "continue_final_message",
        "tools",    "enable_thinking",    "chat_template_kwargs",  "documents"
    };
    struct serve *s = user;
    const struct serve_model *m;
    struct refusal why = { 0 };
    struct tokenize t = { 0 };
    struct tokens tokens = { 0 };
    struct http_text out = { 0 };
    struct work work;
    struct token_bytes text_of_body;
    json_t *body = open_body(&work, s, r, names, sizeof names / sizeof *names, &m, &text_of_body);
    if (!body) return;
    if (!tokenize_fields(&(struct body_object){ body, "" }, text_of_body, m, &t, &why)) {
        serve_refuse(s, r, &why);
    } else if (http_reserve(r, tokenize_memory(&t) +
                                   (t.chat.conversation.n ? chat_memory(&t.chat.conversation, text_of_body.len) : 0))) {
        if (encode(&work, m, &t, &tokens, &why)) {
            put_tokens(&out, m, &tokens, &t);
            send(s, r, &out);
        } else {
            serve_refuse(s, r, &why);
        }
    }
    http_text_free(&out);
    tokens_free(&tokens);
    openai_request_free(&t.chat);
    json_decref(body);
    work_close(&work);
}

/* ---- /detokenize --------------------------------------------------------------------------------------- */

/* The ids of `tokens`; the caller frees. NULL: why. */
static uint32_t *ids_of(const struct body_object *o, uint32_t n_vocab, size_t *n, struct refusal *why)
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
        if (json_is_integer(v))
            (void)refuse(why, SERVE_INVALID_REQUEST, "tokens",
                         "tokens: element %zu is %" JSON_INTEGER_FORMAT ", ids are 0 to %" PRIu32, i,
                         json_integer_value(v), n_vocab - 1);
        else
            (void)refuse(why, SERVE_INVALID_REQUEST, "tokens", "tokens: element %zu is no whole number", i);
        free(ids);
        return NULL;
    }
    if (!ids) (void)refuse(why, SERVE_INTERNAL, NULL, "no memory for the ids");
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
    const struct serve_model *m;
    struct refusal why = { 0 };
    bool special = false;
    size_t n = 0, len = 0;
    char *decoded = NULL, text[512] = "";
    struct http_text out = { 0 };
    const struct wk_err err = { text, sizeof text };
    struct work work;
    struct token_bytes text_of_body;
    json_t *body = open_body(&work, s, r, names, sizeof names / sizeof *names, &m, &text_of_body);
    if (!body) return;
    const struct body_object o = { body, "" };
    const struct tokenizer *t = m->facts.tokenizer;
    uint32_t *ids = body_flag(&o, "special", &special, &why) ? ids_of(&o, tokenizer_size(t), &n, &why) : NULL;
    if (!ids) {
        serve_refuse(s, r, &why);
    } else if (http_reserve(r, detokenize_memory(t, ids, n, special))) {
        if (tokenizer_decode(t, ids, n, special, &decoded, &len, &err)) {
            (void)refuse(&why, SERVE_INTERNAL, NULL, "%s", text);
            serve_refuse(s, r, &why);
        } else {
            put_text(&out, decoded, len);
            send(s, r, &out);
        }
    }
    free(ids);
    free(decoded);
    http_text_free(&out);
    json_decref(body);
    work_close(&work);
}

/* ---- /tokenizer_info ----------------------------------------------------------------------------------- */

static json_t *spelt(const struct tokenizer *t, uint32_t id)
{
    if (id == TOKEN_NONE) return json_null();
    const struct token_bytes text = tokenizer_text(t, id);
    return json_bytes(text.data, text.len);
}

/* The names of vLLM's: those of a tokenizer_config.json. */
static void tokenizer_info(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct refusal why = { 0 };
    const struct serve_model *m = model_of(s, &why);
    if (!m) {
        serve_refuse(s, r, &why);
        return;
    }
    const struct tokenizer *t = m->facts.tokenizer;
    const struct gguf_kv *kv = gguf_find(m->facts.file, "tokenizer.chat_template");
    struct gguf_str template;
    const bool has = kv && !gguf_str(m->facts.file, kv, &template, NULL);
    size_t n = 0;
    const uint32_t *ids = tokenizer_end_ids(t, &n);
    json_t *ends = json_array();
    for (size_t i = 0; i < n; i++) (void)json_array_append_new(ends, json_integer(ids[i]));
    serve_answer(s, r, 200,
                 json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:b, s:b, s:o}", "tokenizer_class", tokenizer_kind(t),
                           "vocab_size", (json_int_t)tokenizer_size(t), "model_max_length",
                           (json_int_t)m->facts.context, "bos_token", spelt(t, tokenizer_bos(t)), "eos_token",
                           spelt(t, tokenizer_eos(t)), "eos_token_ids", ends, "add_bos_token", tokenizer_adds_bos(t),
                           "add_eos_token", tokenizer_adds_eos(t), "chat_template",
                           has ? json_bytes(template.data, template.len) : json_null()));
}

/* ---- /capabilities ------------------------------------------------------------------------------------- */

static void capabilities(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *profile = capabilities_profile(s->plugins, s->o->worker_id, s->device->handle ? &s->info : NULL);
    json_t *descriptor = m ? capabilities_descriptor(m->name, s->plugins, m->facts.program) : json_null();
    serve_answer(s, r, 200, json_pack("{s:o, s:o}", "worker", profile, "model", descriptor));
}

const struct http_route serve_text_routes[] = {
    { "POST", "/tokenize", tokenize, false },
    { "POST", "/detokenize", detokenize, false },
    { "GET", "/tokenizer_info", tokenizer_info, false },
    { "GET", "/capabilities", capabilities, false },
};
const uint32_t serve_n_text_routes = sizeof serve_text_routes / sizeof *serve_text_routes;
