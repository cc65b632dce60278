/* remote.c: `worker status`, `jobs`, `cancel`, `models` and `metrics`: what a running worker says of itself, for
 * people, or with --json all of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "terminal.h"
#include "text.h"

enum { WORD = 512 };

/* ---- words of an answer -------------------------------------------------------------------------------- */

static const json_t *inside(const json_t *o, const char *name) { return json_object_get(o, name); }

/* A member as a word that a terminal does not obey: a text, a number, "-" for anything else. Returns out. */
static const char *word(const json_t *o, const char *name, char out[WORD])
{
    const json_t *v = inside(o, name);
    if (json_is_integer(v))
        (void)snprintf(out, WORD, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        (void)snprintf(out, WORD, "%.2f", json_real_value(v));
    else
        (void)text_printable(json_is_string(v) ? json_string_value(v) : "-", out, WORD);
    return out;
}

static bool has(const json_t *o, const char *name) { return inside(o, name) && !json_is_null(inside(o, name)); }

static void line(const char *name, const char *text) { (void)printf("%-14s %s\n", name, text); }

/* One GET; the document is the caller's. */
static int get(const struct options *o, const char *path, uint32_t also, uint32_t *status, json_t **out)
{
    struct client *c;
    *out = NULL;
    int result = client_open(o, &c);
    if (!result) result = client_object(c, "GET", path, NULL, also, status, out);
    client_close(c);
    return result;
}

/* ---- status -------------------------------------------------------------------------------------------- */

static void show_model(const json_t *d)
{
    char a[WORD], b[WORD], c[WORD], text[3 * WORD + 32];
    if (!has(d, "model")) return;
    (void)snprintf(text, sizeof text, "%s, %s, context %s", word(d, "model", a), word(d, "quant_kind", b),
                   word(d, "context", c));
    line("model", text);
    line("device", word(d, "device_text", a));
}

static void show_work(const json_t *d)
{
    const json_t *queue = inside(d, "queue"), *kv = inside(d, "kv_cache");
    char a[WORD], b[WORD], c[WORD], text[3 * WORD + 64];
    if (queue) {
        (void)snprintf(text, sizeof text, "%s queued, %s of %s running", word(queue, "queued", a),
                       word(queue, "running", b), word(queue, "max_sequences", c));
        line("jobs", text);
    }
    if (json_is_object(kv)) {
        (void)snprintf(text, sizeof text, "%s of %s pages used, %s kept for later prompts", word(kv, "pages_used", a),
                       word(kv, "pages", b), word(kv, "pages_cached", c));
        line("kv cache", text);
    }
}

int command_status(const struct options *o)
{
    json_t *d;
    uint32_t status;
    char a[WORD], b[WORD], text[2 * WORD + 32];
    int result = get(o, "/health", 503, &status, &d);
    if (result) return result;
    char reason[WORD], detail[WORD];
    (void)word(d, "reason", reason);
    (void)word(d, "detail", detail);
    if (option_flag(o, OPT_JSON)) {
        result = json_print(json_incref(d));
    } else {
        (void)snprintf(text, sizeof text, "%s, version %s", option_text(o, OPT_URL), word(d, "version", a));
        line("worker", text);
        (void)snprintf(text, sizeof text, "%s, %s", word(d, "status", a), word(d, "state", b));
        line("state", text);
        show_model(d);
        show_work(d);
        (void)snprintf(text, sizeof text, "%s s", word(d, "uptime_seconds", a));
        line("up for", text);
    }
    json_decref(d);
    if (!result && status == 503)
        result = fail(CODE_NOT_READY, "the worker does no work now: %s%s%s", reason, detail[0] == '-' ? "" : ": ",
                      detail[0] == '-' ? "" : detail);
    return result;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

struct column {
    const char *title, *member;
    int width; /* 0: the last one */
};

static void show_list(const json_t *list, const struct column *columns, size_t n)
{
    size_t i;
    json_t *row;
    char text[WORD];
    for (size_t k = 0; k < n; k++) (void)printf("%-*s%c", columns[k].width, columns[k].title, k + 1 < n ? ' ' : '\n');
    json_array_foreach (list, i, row)
        for (size_t k = 0; k < n; k++)
            (void)printf("%-*s%c", columns[k].width, word(row, columns[k].member, text), k + 1 < n ? ' ' : '\n');
}

/* The list in a member of the answer. */
static int list(const struct options *o, const char *path, const char *member, const struct column *columns, size_t n)
{
    json_t *d;
    int result = get(o, path, 0, NULL, &d);
    if (result) return result;
    const json_t *rows = inside(d, member);
    if (!json_is_array(rows))
        result = fail(CODE_INVALID_REQUEST, "%s: the answer has no list \"%s\": is this a worker?",
                      option_text(o, OPT_URL), member);
    else if (option_flag(o, OPT_JSON))
        result = json_print(json_incref(d));
    else
        show_list(rows, columns, n);
    json_decref(d);
    return result;
}

int command_jobs(const struct options *o)
{
    static const struct column columns[] = { { "JOB", "job_id", 45 },      { "STATE", "state", 9 },
                                             { "PROMPT", "tokens_in", 7 }, { "OUT", "tokens_out", 7 },
                                             { "SECONDS", "seconds", 8 },  { "END", "end", 0 } };
    return list(o, "/worker/jobs", "jobs", columns, sizeof columns / sizeof *columns);
}

int command_models(const struct options *o)
{
    static const struct column columns[] = { { "MODEL", "id", 30 },
                                             { "CONTEXT", "context_length", 8 },
                                             { "FORMAT", "quantization", 10 },
                                             { "HEALTH", "health", 8 },
                                             { "DEVICE", "device", 0 } };
    return list(o, "/v1/models", "data", columns, sizeof columns / sizeof *columns);
}

/* ---- cancel, metrics ----------------------------------------------------------------------------------- */

int command_cancel(const struct options *o)
{
    struct client *c;
    json_t *d = NULL, *body = json_pack("{s:s}", "job_id", o->operands[0]);
    if (!body) return fail_usage("cancel", "%.80s: expected a job's id in UTF-8", o->operands[0]);
    int result = client_open(o, &c);
    if (!result) result = client_object(c, "POST", "/cancel", body, 0, NULL, &d);
    client_close(c);
    json_decref(body);
    if (result) return result;
    const bool found = json_is_true(inside(d, "found"));
    char name[WORD];
    (void)text_printable(o->operands[0], name, sizeof name);
    if (option_flag(o, OPT_JSON))
        result = json_print(json_incref(d));
    else if (found)
        (void)printf("%s: cancelled\n", name);
    json_decref(d);
    return result || found ? result
                           : fail(CODE_INVALID_REQUEST, "%s: no such job is queued or running; see worker jobs", name);
}

int command_metrics(const struct options *o)
{
    struct client *c;
    struct fetch_answer answer = { 0 };
    int result = client_open(o, &c);
    if (!result) result = client_ask(c, "GET", "/metrics", NULL, 0, &answer);
    client_close(c);
    if (result) return result;
    struct terminal out = { .out = stdout, .shows = isatty(STDOUT_FILENO) };
    terminal_write(&out, answer.body, answer.body_len);
    terminal_end(&out);
    fetch_answer_free(&answer);
    return EXIT_DONE;
}
