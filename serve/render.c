/* render.c: prompts that are shown, and not computed: POST /v1/chat/completions/render and /v1/completions/render, what
 * the routes without /render would make of the same body, as text and as ids; how many ids that are
 * (/v1/chat/completions/input_tokens); and the text alone (llama-server's /apply-template). */
#include <string.h>

#include "exchange.h"

static bool read_chat(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                      struct refusal *why)
{
    return openai_request_render(bytes, n, l, &e->q, why);
}

static bool read_completion(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                            struct refusal *why)
{
    return openai_request_completion(bytes, n, l, &e->q, why);
}

static void put_text(const struct exchange_prompt *p, struct http_text *out)
{
    http_text_json(out, p->text.n ? p->text.data : "", p->text.n);
}

/* token_ids are the tokens by vLLM's name. */
static void tell_prompt(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out)
{
    http_text_format(
        out, "{\"object\":\"%s\",\"model\":", e->interface->chat ? "chat.completion.prompt" : "text_completion.prompt");
    http_text_json(out, p->m->name, strlen(p->m->name));
    http_text_format(out, ",\"prompt\":");
    put_text(p, out);
    for (int name = 0; name < 2; name++) {
        http_text_format(out, name ? "],\"token_ids\":[" : ",\"tokens\":[");
        for (size_t i = 0; i < p->ids.n; i++) http_text_format(out, "%s%u", i ? "," : "", p->ids.ids[i]);
    }
    http_text_format(out, "],\"count\":%zu,\"max_model_len\":%u}", p->ids.n, p->m->facts.context);
}

static void tell_text(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out)
{
    (void)e;
    http_text_format(out, "{\"prompt\":");
    put_text(p, out);
    http_text_add(out, "}", 1);
}

static const struct interface chat = { .chat = true, .read = read_chat }, completion = { .read = read_completion };

static void on_render(void *user, struct http_request *r) { exchange_render(user, r, &chat, tell_prompt); }
static void on_template(void *user, struct http_request *r) { exchange_render(user, r, &chat, tell_text); }
static void on_count(void *user, struct http_request *r) { exchange_render(user, r, &chat, exchange_tell_count); }
static void on_completion(void *user, struct http_request *r) { exchange_render(user, r, &completion, tell_prompt); }

const struct http_route serve_render_routes[] = {
    { "POST", "/v1/chat/completions/render", on_render, false },
    { "POST", "/v1/chat/completions/input_tokens", on_count, false },
    { "POST", "/chat/completions/input_tokens", on_count, false }, /* llama-server's */
    { "POST", "/v1/completions/render", on_completion, false },
    { "POST", "/apply-template", on_template, false },
};
const uint32_t serve_n_render_routes = sizeof serve_render_routes / sizeof *serve_render_routes;
