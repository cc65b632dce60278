/* render.c: POST /v1/chat/completions/render: the prompt that /v1/chat/completions would make of the same body, as text
 * and as ids. Nothing is queued or computed. */
#include "openai_request.h"

#include <string.h>

#include "caller.h"
#include "inside.h"
#include "work.h"

struct rendering {
    struct work *work;
    const struct serve_model *m;
    struct openai_request q;
    struct chat_prompt prompt;
    struct tokens tokens;
};

static bool read_request(struct rendering *x, struct refusal *why)
{
    const struct serve *s = x->work->s;
    const struct job_request_limits limits = { .most_chars = s->o->limit_prompt_chars ? s->o->max_prompt_chars : 0,
                                               .max_tokens_out = s->o->max_tokens_out,
                                               .most_tokens = s->o->limit_tokens_out ? s->o->max_tokens_out : INT32_MAX,
                                               .n_vocab = x->m->model->program->n_vocab,
                                               .max_priority = caller_max_priority(s, x->work->r) };
    const char *bytes;
    size_t n;
    if (!work_body(x->work, HTTP_BODY_MAX, &bytes, &n)) return false;
    if (!openai_request_render(bytes, n, &limits, &x->q, why)) return false;
    if (x->q.model && !serve_is_called(x->m, x->q.model))
        return refuse(why, SERVE_MODEL_NOT_FOUND, "model", "model: this worker serves %s, not %.255s", x->m->name,
                      x->q.model);
    return x->m->chat || refuse(why, SERVE_INVALID_REQUEST, "messages",
                                "messages: this model's chat template cannot be used: %s", x->m->no_chat);
}

/* False: answered, or why says it. */
static bool make(struct rendering *x, struct refusal *why)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct chat_request *q = &x->q.chat;
    struct chat_problem problem;
    serve_clock(x->work->s, q);
    if (!http_reserve(x->work->r, chat_memory(&x->q.conversation, q->tools.len + q->documents.len + q->kwargs.len)))
        return false;
    if (!chat_render(x->m->chat, q, &x->prompt, &problem))
        return refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    const wk_status status =
        work_encode(x->work, x->m->model->tokenizer, x->prompt.part, x->prompt.n, true, &x->tokens, &err);
    if (status == WK_CANCELLED) return work_refuse(x->work, why);
    return !status || refuse(why, serve_code_of_status(status), "messages", "messages: %s", text);
}

static void answer(const struct rendering *x)
{
    struct http_text text = { 0 }, out = { 0 };
    for (size_t i = 0; i < x->prompt.n; i++) http_text_add(&text, x->prompt.part[i].bytes, x->prompt.part[i].len);
    http_text_format(&out, "{\"object\":\"chat.completion.prompt\",\"model\":");
    http_text_json(&out, x->m->name, strlen(x->m->name));
    http_text_format(&out, ",\"prompt\":");
    http_text_json(&out, text.n ? text.data : "", text.n);
    http_text_format(&out, ",\"tokens\":[");
    for (size_t i = 0; i < x->tokens.n; i++) http_text_format(&out, "%s%u", i ? "," : "", x->tokens.ids[i]);
    http_text_format(&out, "],\"count\":%zu,\"max_model_len\":%u}\n", x->tokens.n, x->m->model->dev.context);
    if (out.failed || text.failed)
        serve_refuse(x->work->s, x->work->r,
                     &(struct refusal){ .code = SERVE_INTERNAL, .text = "no memory for an answer" });
    else
        http_answer(x->work->r, 200, "application/json", out.data, out.n);
    http_text_free(&text);
    http_text_free(&out);
}

static void on_render(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct refusal why = { 0 };
    struct work work;
    work_open(&work, s, r);
    struct rendering x = { .work = &work, .m = serve_ready(s, &why) };
    if (x.m && read_request(&x, &why) && make(&x, &why))
        answer(&x);
    else if (why.text[0])
        serve_refuse(s, r, &why);
    chat_prompt_free(&x.prompt);
    tokens_free(&x.tokens);
    openai_request_free(&x.q);
    work_close(&work);
}

const struct http_route serve_render_routes[] = { { "POST", "/v1/chat/completions/render", on_render, false } };
const uint32_t serve_n_render_routes = sizeof serve_render_routes / sizeof *serve_render_routes;
