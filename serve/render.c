/* render.c: POST /v1/chat/completions/render: the prompt that /v1/chat/completions would make of the same body, as text
 * and as ids. Nothing is queued or computed. */
#include <string.h>

#include "exchange.h"

static bool read_chat(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                      struct refusal *why)
{
    return openai_request_render(bytes, n, l, &e->q, why);
}

static void tell(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out)
{
    struct http_text text = { 0 };
    (void)e;
    for (size_t i = 0; i < p->prompt.n; i++) http_text_add(&text, p->prompt.part[i].bytes, p->prompt.part[i].len);
    http_text_format(out, "{\"object\":\"chat.completion.prompt\",\"model\":");
    http_text_json(out, p->m->name, strlen(p->m->name));
    http_text_format(out, ",\"prompt\":");
    http_text_json(out, text.n ? text.data : "", text.n);
    http_text_format(out, ",\"tokens\":[");
    for (size_t i = 0; i < p->ids.n; i++) http_text_format(out, "%s%u", i ? "," : "", p->ids.ids[i]);
    http_text_format(out, "],\"count\":%zu,\"max_model_len\":%u}\n", p->ids.n, p->m->model->dev.context);
    out->failed = out->failed || text.failed;
    http_text_free(&text);
}

static void on_render(void *user, struct http_request *r)
{
    static const struct interface rendered = { .chat = true, .read = read_chat };
    exchange_render(user, r, &rendered, tell);
}

const struct http_route serve_render_routes[] = { { "POST", "/v1/chat/completions/render", on_render, false } };
const uint32_t serve_n_render_routes = sizeof serve_render_routes / sizeof *serve_render_routes;
