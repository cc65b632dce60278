/* messages.c: Anthropic's interface: /v1/messages, /v1/messages/count_tokens. Errors have its form (http/failure.c). */
#include <stdlib.h>

#include "messages.h"

/* Bytes for each of the body: the chat's, and what a message of it is put together from. */
enum { WRITTEN_TIMES = 3 };

static bool read_body(struct exchange *e, const char *bytes, size_t n, bool counted, const struct job_request_limits *l,
                      struct refusal *why)
{
    e->own = calloc(1, sizeof(struct messages));
    if (!e->own) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    if (!http_reserve(e->work->r, n * WRITTEN_TIMES) || !messages_write(bytes, n, counted, e->own, &e->body, why) ||
        !exchange_read_chat(e, l, why))
        return false;
    e->q.chat.wishes = true;
    return true;
}

static bool read_message(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                         struct refusal *why)
{
    return read_body(e, bytes, n, false, l, why);
}

static bool read_counted(struct exchange *e, const char *bytes, size_t n, const struct job_request_limits *l,
                         struct refusal *why)
{
    return read_body(e, bytes, n, true, l, why);
}

static bool reword(const struct exchange *e, struct refusal *why) { return messages_reword(e->own, why); }

static void forget(struct exchange *e)
{
    if (e->own) messages_free(e->own);
    free(e->own);
}

static void tell_count(const struct exchange *e, const struct exchange_prompt *p, struct http_text *out)
{
    (void)e;
    http_text_format(out, "{\"input_tokens\":%zu}", p->ids.n);
}

static void on_messages(void *user, struct http_request *r)
{
    static const struct interface messages = { .prefix = "msg_",
                                               .chat = true,
                                               .names = messages_names,
                                               .read = read_message,
                                               .reword = reword,
                                               .stream = &messages_stream,
                                               .whole = &messages_whole,
                                               .forget = forget };
    exchange_serve(user, r, &messages);
}

static void on_count(void *user, struct http_request *r)
{
    static const struct interface counted = {
        .chat = true, .names = messages_names, .read = read_counted, .reword = reword, .forget = forget
    };
    exchange_render(user, r, &counted, tell_count);
}

const struct http_route serve_messages_routes[] = {
    { "POST", "/v1/messages", on_messages, true },
    { "POST", "/v1/messages/count_tokens", on_count, false },
};
const uint32_t serve_n_messages_routes = sizeof serve_messages_routes / sizeof *serve_messages_routes;
