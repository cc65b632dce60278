/* responder_elsewhere.c: answers of a running worker, by its /v1/chat/completions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "errors.h"
#include "setup.h"
#include "responder.h"
#include "text.h"

struct elsewhere {
    const struct options *o;
    const struct sampling *sampling;
    struct client *client;
};

struct answering {
    struct spoken *spoken;
    char reason[32];
    bool done; /* the worker has said that the answer is over */
    char failure[1024];
};

/* ---- what comes ---------------------------------------------------------------------------------------- */

static void take_calls(struct spoken *s, const json_t *calls)
{
    size_t i;
    json_t *call;
    json_array_foreach (calls, i, call) {
        const json_t *id = json_object_get(call, "id"), *function = json_object_get(call, "function"),
                     *name = json_object_get(function, "name"), *arguments = json_object_get(function, "arguments");
        if (json_is_string(id) && json_is_string(name))
            spoken_call(s, json_string_value(id), json_string_length(id), json_string_value(name),
                        json_string_length(name));
        if (json_is_string(arguments)) spoken_arguments(s, json_string_value(arguments), json_string_length(arguments));
    }
}

static void take_choice(struct answering *a, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta"), *text = json_object_get(delta, "content"),
                 *reasoning = json_object_get(delta, "reasoning_content"),
                 *reason = json_object_get(choice, "finish_reason");
    if (json_is_string(reasoning))
        spoken_reasoning(a->spoken, json_string_value(reasoning), json_string_length(reasoning));
    if (json_is_string(text)) spoken_text(a->spoken, json_string_value(text), json_string_length(text));
    take_calls(a->spoken, json_object_get(delta, "tool_calls"));
    if (json_is_string(reason)) (void)snprintf(a->reason, sizeof a->reason, "%s", json_string_value(reason));
}

static bool take_event(void *user, const char *data, size_t n)
{
    struct answering *a = user;
    a->done = n == 6 && memcmp(data, "[DONE]", 6) == 0;
    if (a->done) return false;
    json_t *chunk = json_loadb(data, n, JSON_ALLOW_NUL, NULL);
    const struct wk_err err = { a->failure, sizeof a->failure };
    const bool failed = client_error(chunk, &err);
    if (!chunk) (void)wk_fail(&err, WK_INVALID, "the worker sends what is no JSON: is this a worker?");
    take_choice(a, json_array_get(json_object_get(chunk, "choices"), 0));
    json_decref(chunk);
    return !failed && chunk && !a->spoken->failed;
}

/* ---- what is asked ------------------------------------------------------------------------------------- */

static json_t *make_body(const struct elsewhere *e, const struct dialog *d)
{
    json_t *body = json_pack("{s:O, s:b}", "messages", d->messages, "stream", 1);
    bool good = body && sampling_put(e->o, e->sampling, body);
    if (d->tools) good = good && !json_object_set(body, "tools", d->tools);
    if (option_given(e->o, OPT_REASONING_EFFORT))
        good = good &&
               !json_object_set_new(body, "reasoning_effort", json_string(option_text(e->o, OPT_REASONING_EFFORT)));
    if (good) return body;
    json_decref(body);
    return NULL;
}

static int answer(void *self, const struct dialog *d, struct spoken *s, enum responder_end *end)
{
    struct elsewhere *e = self;
    struct answering a = { .spoken = s };
    json_t *body = make_body(e, d);
    if (!body) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the request, or --stop is not UTF-8");
    int result = client_stream(e->client, "/v1/chat/completions", body, take_event, &a);
    json_decref(body);
    if (!result && a.failure[0]) result = fail(CODE_INVALID_REQUEST, "%s", a.failure);
    if (!result && !a.done && !s->failed && !interrupted())
        result = fail(CODE_INVALID_REQUEST, "the worker's answer broke off before its end");
    *end = !a.done && interrupted()          ? RESPONDER_INTERRUPT
           : strcmp(a.reason, "length") == 0 ? RESPONDER_LENGTH
                                             : RESPONDER_STOP;
    return result;
}

static void close_elsewhere(void *self)
{
    struct elsewhere *e = self;
    client_close(e->client);
    free(e);
}

/* What the worker serves, which is also the first thing that it is asked: a wrong address or key is told at once. */
static int introduce(struct elsewhere *e, struct responder *out)
{
    json_t *d;
    char name[256];
    const int result = client_object(e->client, "GET", "/v1/models", NULL, 0, NULL, &d);
    if (result) return result;
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(d, "data"), 0), "id"));
    (void)snprintf(out->title, sizeof out->title, "%s at %.200s",
                   text_printable(id ? id : "no model yet", name, sizeof name), client_url(e->client));
    json_decref(d);
    return EXIT_DONE;
}

int responder_elsewhere(const struct options *o, const struct sampling *sampling, struct responder *out)
{
    struct elsewhere *e = calloc(1, sizeof *e);
    *out = (struct responder){ .answer = answer, .close = e ? close_elsewhere : NULL, .self = e };
    if (!e) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the request");
    e->o = o;
    e->sampling = sampling;
    const int result = client_open(o, &e->client);
    return result ? result : introduce(e, out);
}
