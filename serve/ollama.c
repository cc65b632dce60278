/* ollama.c: Ollama's interface: POST /api/chat and /api/generate. Streams are lines of JSON; failures are {"error":
 * text}, also as the last line of a stream (http/failure.c gives it to every failure below /api). */
#include "ollama.h"

#include <stdlib.h>

/* What refusals call the members that were read as a chat's or a completion's. */
#define COMMON_NAMES                                                                                                   \
    { "max_tokens", "options.num_predict", false }, { "temperature", "options.temperature", false },                   \
        { "top_k", "options.top_k", false }, { "top_p", "options.top_p", false }, { "min_p", "options.min_p", false }, \
        { "seed", "options.seed", false }, { "stop", "options.stop", false },                                          \
        { "repetition_penalty", "options.repeat_penalty", false },                                                     \
        { "presence_penalty", "options.presence_penalty", false },                                                     \
        { "frequency_penalty", "options.frequency_penalty", false }, { "response_format", "format", true },            \
        { "reasoning_effort", "think", false },                                                                        \
    {                                                                                                                  \
        "enable_thinking", "think", false                                                                              \
    }
static const struct exchange_name chat_names[] = { COMMON_NAMES, { NULL, NULL, false } };
static const struct exchange_name generate_names[] = { COMMON_NAMES,
                                                       { "messages", "prompt", true },
                                                       { NULL, NULL, false } };
static const struct exchange_name system_names[] = {
    COMMON_NAMES, { "messages[0]", "system", true }, { "messages", "prompt", true }, { NULL, NULL, false }
};
static const struct exchange_name raw_names[] = { COMMON_NAMES,
                                                  { "logprobs", "top_logprobs", false },
                                                  { NULL, NULL, false } };

/* ---- requests ------------------------------------------------------------------------------------------ */

static bool read_chat(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                      struct refusal *why);
static bool read_generate(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                          struct refusal *why);
static void forget(struct exchange *e);

#define INTERFACE(is_chat, read_, names_) \
    { .prefix = "ollama-",                \
      .chat = is_chat,                    \
      .names = names_,                    \
      .read = read_,                      \
      .stream = &ollama_stream,           \
      .whole = &ollama_whole,             \
      .kind = HTTP_LINES,                 \
      .untyped = true,                    \
      .forget = forget }
static const struct interface chat = INTERFACE(true, read_chat, chat_names);
static const struct interface generate = INTERFACE(true, read_generate, generate_names);
static const struct interface with_system = INTERFACE(true, read_generate, system_names);
static const struct interface raw = INTERFACE(false, read_generate, raw_names);

/* Nothing is asked of the model but to be there, which it is, or to go, which a worker's never does. False: *why says
 * why not, or it was answered. */
static bool answer_loaded(const struct exchange *e, struct refusal *why)
{
    struct http_text out = { 0 };
    const struct ollama *own = ollama_of(e);
    const char *name = own->body.model;
    const struct serve_model *m = serve_ready(e->work->s, why);
    if (!m) return false;
    if (name && !serve_suits_name(m, name, "model", why)) return false;
    ollama_put_head(&out, e, m);
    http_text_format(&out, ",%s,\"done\":true,\"done_reason\":\"%s\"}\n",
                     own->generate ? "\"response\":\"\"" : "\"message\":{\"role\":\"assistant\",\"content\":\"\"}",
                     own->body.asks == OLLAMA_UNLOAD ? "unload" : "load");
    if (out.failed)
        (void)refuse(why, SERVE_INTERNAL, NULL, "no memory for the answer");
    else
        http_answer(e->work->r, 200, "application/json", out.data, out.n);
    http_text_free(&out);
    return false;
}

static bool read_body(struct exchange *e, bool is_generate, const char *bytes, size_t n,
                      const struct job_request_limits *l, struct refusal *why)
{
    const struct serve_model *m = atomic_load(&e->work->s->model);
    const struct ollama_limits limits = { .context = m ? m->facts.context : 0,
                                          .max_tokens_out = l->max_tokens_out,
                                          .most_tokens = l->most_tokens,
                                          .always_reasons = m && m->chat && chat_is_harmony(m->chat) };
    struct ollama *own = e->own = calloc(1, sizeof *own);
    if (!own) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    own->generate = is_generate;
    if (!ollama_write(is_generate, bytes, n, &limits, &own->body, &e->body, why)) return false;
    if (own->body.asks == OLLAMA_LOAD || own->body.asks == OLLAMA_UNLOAD) return answer_loaded(e, why);
    if (own->body.asks == OLLAMA_SYSTEM) e->interface = &with_system;
    if (own->body.asks == OLLAMA_RAW) e->interface = &raw;
    return own->body.asks == OLLAMA_RAW ? exchange_read_completion(e, l, why) : exchange_read_chat(e, l, why);
}

static bool read_chat(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                      struct refusal *why)
{
    return read_body(e, false, bytes, n, l, why);
}

static bool read_generate(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                          struct refusal *why)
{
    return read_body(e, true, bytes, n, l, why);
}

static void forget(struct exchange *e)
{
    if (e->own) free(ollama_of(e)->body.model);
    free(e->own);
}

/* ---- the routes ---------------------------------------------------------------------------------------- */

static void on_chat(void *user, struct http_request *r) { exchange_serve(user, r, &chat); }
static void on_generate(void *user, struct http_request *r) { exchange_serve(user, r, &generate); }

const struct http_route serve_ollama_routes[] = {
    { "POST", "/api/chat", on_chat, true },
    { "POST", "/api/generate", on_generate, true },
};
const uint32_t serve_n_ollama_routes = sizeof serve_ollama_routes / sizeof *serve_ollama_routes;
