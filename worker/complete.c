/* complete.c: `worker complete`: a text that goes on, by a worker elsewhere; a model in this process does it as `worker
 * run` does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "commands.h"
#include "errors.h"
#include "log/log.h"
#include "prompt.h"
#include "sampling.h"
#include "setup.h"
#include "terminal.h"

struct completing {
    const struct options *o;
    struct terminal out;
    char model[256], reason[32];
    json_int_t tokens_in, tokens_out;
    bool done; /* the worker has said that the answer is over */
    char failure[1024];
};

/* ---- the answer ---------------------------------------------------------------------------------------- */

static void copy(char *out, size_t cap, const json_t *text)
{
    if (json_is_string(text)) (void)snprintf(out, cap, "%s", json_string_value(text));
}

static void take_choice(struct completing *c, const json_t *choice)
{
    const json_t *text = json_object_get(choice, "text");
    if (json_is_string(text)) terminal_write(&c->out, json_string_value(text), json_string_length(text));
    copy(c->reason, sizeof c->reason, json_object_get(choice, "finish_reason"));
}

static bool take_event(void *user, const char *data, size_t n)
{
    struct completing *c = user;
    c->done = n == 6 && memcmp(data, "[DONE]", 6) == 0;
    if (c->done) return false;
    json_t *chunk = json_loadb(data, n, JSON_ALLOW_NUL, NULL);
    const json_t *usage = json_object_get(chunk, "usage");
    const struct wk_err err = { c->failure, sizeof c->failure };
    const bool failed = client_error(chunk, &err);
    if (!chunk) (void)wk_fail(&err, WK_INVALID, "the worker sends what is no JSON: is this a worker?");
    take_choice(c, json_array_get(json_object_get(chunk, "choices"), 0));
    copy(c->model, sizeof c->model, json_object_get(chunk, "model"));
    if (json_is_object(usage)) {
        c->tokens_in = json_integer_value(json_object_get(usage, "prompt_tokens"));
        c->tokens_out = json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    json_decref(chunk);
    return !failed && chunk;
}

static void statistics(const struct completing *c, const struct sampling *s)
{
    const char *reason = interrupted() ? "interrupt" : c->reason;
    if (log_is_json(c->o)) {
        LOG(LOG_INFO, "complete_end", NULL, log_s("model", c->model), log_u("tokens_in", c->tokens_in),
            log_u("tokens_out", c->tokens_out), log_u("seed", s->params.seed), log_s("finish_reason", reason));
        return;
    }
    char line[512];
    struct terminal err = { .out = stderr, .shows = true };
    if (c->done)
        (void)snprintf(line, sizeof line,
                       "worker: %" JSON_INTEGER_FORMAT " prompt tokens, %" JSON_INTEGER_FORMAT " tokens, seed %" PRIu64
                       ", finish %s, model %s\n",
                       c->tokens_in, c->tokens_out, s->params.seed, reason, c->model);
    else
        (void)snprintf(line, sizeof line, "worker: seed %" PRIu64 ", finish %s, model %s\n", s->params.seed, reason,
                       c->model);
    terminal_write(&err, line, strlen(line));
}

/* ---- the request --------------------------------------------------------------------------------------- */

/* A form of the answer, as its own text: what is wrong with it the worker says. */
static int put_form(const struct options *o, json_t *body)
{
    static const struct {
        enum option_id option;
        const char *member;
        bool file;
    } forms[] = { { OPT_JSON_SCHEMA, "guided_json", true },
                  { OPT_GRAMMAR, "guided_grammar", true },
                  { OPT_REGEX, "guided_regex", false } };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct text t;
        const char *given = option_text(o, forms[i].option);
        if (!given) continue;
        const int result = text_read(forms[i].file ? NULL : given, forms[i].file ? given : NULL, &t);
        if (result) return result;
        const int failed = json_object_set_new(body, forms[i].member, json_stringn(t.bytes, t.len));
        text_free(&t);
        if (failed) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the request");
    }
    return EXIT_DONE;
}

static int make_body(const struct options *o, const struct sampling *s, const struct text *prompt, json_t **out)
{
    json_t *body = *out = json_pack("{s:o, s:b, s:{s:b}}", "prompt", json_stringn(prompt->bytes, prompt->len), "stream",
                                    1, "stream_options", "include_usage", 1);
    if (!body || !sampling_put(o, s, body) ||
        (option_flag(o, OPT_PARSE_SPECIAL) && json_object_set_new(body, "parse_special", json_true())))
        return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the request, or --stop is not UTF-8");
    return put_form(o, body);
}

static int ask(struct completing *c, const struct sampling *s, const json_t *body)
{
    struct client *client;
    int result = client_open(c->o, &client);
    if (!result) {
        interrupts_catch();
        result = client_stream(client, "/v1/completions", body, take_event, c);
        terminal_end(&c->out);
        if (c->model[0]) (void)putchar('\n');
        (void)fflush(stdout);
    }
    client_close(client);
    if (!result && c->failure[0]) result = fail(CODE_INVALID_REQUEST, "%s", c->failure);
    if (!result && !c->done && !interrupted())
        result = fail(CODE_INVALID_REQUEST, "the worker's answer broke off before its end");
    if (result) return result;
    statistics(c, s);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_DONE;
}

static int complete(const struct options *o)
{
    struct completing c = { .o = o, .out = { .out = stdout, .shows = isatty(STDOUT_FILENO) } };
    struct sampling *s = calloc(1, sizeof *s);
    struct text prompt = { NULL, 0 };
    json_t *body = NULL;
    if (!s) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the request");
    int result = prompt_check_form(o);
    if (!result) result = sampling_read(o, s);
    if (!result) result = prompt_read(o, &prompt);
    if (!result) result = make_body(o, s, &prompt, &body);
    if (!result) result = ask(&c, s, body);
    json_decref(body);
    text_free(&prompt);
    free(s);
    return result;
}

int command_complete(const struct options *o)
{
    bool elsewhere;
    const int result = client_wanted(o, &elsewhere);
    if (result) return result;
    return elsewhere ? complete(o) : command_run(o);
}
