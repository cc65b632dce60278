/* errors.c: error codes and how they are said. */
#include "errors.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "log/log.h"

const struct error_def error_table[CODE_COUNT] = {
    [CODE_INVALID_REQUEST] = { "INVALID_REQUEST", EXIT_FAILED, 99, "the text, ids or parameters given cannot be used" },
    [CODE_CONTEXT_LENGTH_EXCEEDED] = { "CONTEXT_LENGTH_EXCEEDED", EXIT_FAILED, 99,
                                       "the text is longer than the context" },
    [CODE_MODEL_LOAD_FAILED] = { "MODEL_LOAD_FAILED", EXIT_FAILED, 4,
                                 "the model's file cannot be read, is wrong, or asks for what no plugin serves" },
    [CODE_PLUGIN_REFUSED] = { "PLUGIN_REFUSED", EXIT_FAILED, 99,
                              "a plugin or plugin folder that was named cannot be used" },
    [CODE_DEVICE_NOT_FOUND] = { "DEVICE_NOT_FOUND", EXIT_FAILED, 1,
                                "the device asked for is not there: no device module, no driver, or no GPU" },
    [CODE_INVALID_DEVICE] = { "INVALID_DEVICE", EXIT_FAILED, 3,
                              "there are GPUs, but not the one asked for, or it is too old" },
    [CODE_INSUFFICIENT_MEMORY] = { "INSUFFICIENT_MEMORY", EXIT_FAILED, 2, "the host's memory is too small" },
    [CODE_INSUFFICIENT_VRAM] = { "INSUFFICIENT_VRAM", EXIT_FAILED, 2, "the device's memory is too small" },
    [CODE_VRAM_RESIDENCY_FAILED] = { "VRAM_RESIDENCY_FAILED", EXIT_FAILED, 6,
                                     "part of the model is not in the device's memory" },
    [CODE_INFERENCE_FAILED] = { "INFERENCE_FAILED", EXIT_FAILED, 5,
                                "a step failed, for example on weights that are not numbers" },
    [CODE_CUDA_ERROR] = { "CUDA_ERROR", EXIT_DEVICE_LOST, 7, "the device was lost; start the process again" },
    [CODE_OUTPUT_FAILED] = { "OUTPUT_FAILED", EXIT_FAILED, 99, "a result could not be written" },
    [CODE_LISTEN_FAILED] = { "LISTEN_FAILED", EXIT_FAILED, 99,
                             "the address or port cannot be listened on, for example because it is in use" },
    [CODE_GATE_FAILED] = { "GATE_FAILED", EXIT_FAILED, 99,
                           "the policy's file, the audit log or an issuer's settings cannot be used" },
    [CODE_TLS_FAILED] = { "TLS_FAILED", EXIT_FAILED, 99, "certificate, key or client CA of TLS cannot be used" },
    [CODE_AUDIT_BROKEN] = { "AUDIT_BROKEN", EXIT_FAILED, 99, "an audit log is not as it was written" },
    [CODE_NOT_READY] = { "NOT_READY", EXIT_FAILED, 99, "the worker that was asked does no work now" },
    [CODE_PULL_FAILED] = { "PULL_FAILED", EXIT_FAILED, 99, "a model could not be fetched from the hub" },
    [CODE_INTERNAL] = { "INTERNAL", EXIT_FAILED, 99, "a promise inside worker or one of its plugins was broken" },
};

static bool as_json;
static bool (*device_dead)(void);
static _Thread_local struct error_caught *catching;

static struct {
    const char *model;
    int gpu_device;
} about = { NULL, -1 };

void errors_as_json(void) { as_json = true; }
void errors_about(const char *model, int gpu_device)
{
    about.model = model;
    about.gpu_device = gpu_device;
}
void errors_watch_device(bool (*dead)(void)) { device_dead = dead; }

enum error_code error_code_of(enum stage stage, wk_status status)
{
    if (device_dead && device_dead()) return CODE_CUDA_ERROR;
    if (status == WK_NO_MEMORY) return CODE_INSUFFICIENT_MEMORY;
    if (status == WK_INTERNAL && stage != STAGE_PLUGINS) return CODE_INTERNAL;
    switch (stage) {
    case STAGE_PLUGINS: return CODE_PLUGIN_REFUSED;
    case STAGE_MODEL: return CODE_MODEL_LOAD_FAILED;
    case STAGE_TOKENS: return CODE_INVALID_REQUEST;
    case STAGE_STEP: return CODE_INFERENCE_FAILED;
    case STAGE_OUTPUT: return CODE_OUTPUT_FAILED;
    }
    return CODE_INTERNAL;
}

void errors_catch(struct error_caught *into)
{
    catching = into;
    if (into) into->text[0] = '\0';
}

static int keep(struct error_caught *c, enum error_code code, const struct log_field *fields, const char *text)
{
    int n = 0;
    c->code = code;
    (void)snprintf(c->text, sizeof c->text, "%s", text);
    for (; fields && n < ERROR_FIELDS && fields[n].kind != LOG_END; n++) {
        c->field[n] = fields[n];
        if (fields[n].kind != LOG_STR) continue;
        (void)snprintf(c->strings[n], sizeof c->strings[n], "%s", fields[n].str ? fields[n].str : "");
        c->field[n].str = c->strings[n];
    }
    c->field[n] = (struct log_field){ 0 };
    return error_table[code].status;
}

static bool has(const struct log_field *fields, int n, const char *key)
{
    while (n && strcmp(fields[n - 1].key, key) != 0) n--;
    return n != 0;
}

enum { EVENT_FIELDS = 2 + ERROR_FIELDS + 4 + 1 };

/* What every event of a failure has, after its own fields. */
static void event_fields(enum error_code code, const struct log_field *fields, struct log_field all[EVENT_FIELDS])
{
    const struct log_field always[] = { about.gpu_device < 0 ? log_s("gpu_device", NULL)
                                                             : log_u("gpu_device", about.gpu_device),
                                        log_s("model", about.model), log_s("vram_required", NULL),
                                        log_s("vram_available", NULL) };
    int n = 2;
    all[0] = log_s("code", error_table[code].name);
    all[1] = log_u("device_code", error_table[code].number);
    for (int i = 0; fields && i < ERROR_FIELDS && fields[i].kind != LOG_END; i++) all[n++] = fields[i];
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!has(all, n, always[i].key)) all[n++] = always[i];
    all[n] = (struct log_field){ 0 };
}

/* The log escapes what a terminal could obey and wipes a progress bar that stands in the way. */
static int say(enum error_code code, const struct log_field *fields, char *text)
{
    char line[4096 + 32];
    for (size_t n = strlen(text); n && text[n - 1] == '\n'; n--) text[n - 1] = '\0';
    if (catching) return keep(catching, code, fields, text);
    if (as_json) {
        struct log_field all[EVENT_FIELDS];
        event_fields(code, fields, all);
        log_event(LOG_ERROR, "error", text, all);
        return error_table[code].status;
    }
    char *last = text;
    for (char *end; (end = strchr(last, '\n')); last = end + 1) {
        *end = '\0';
        LOG(LOG_ERROR, "error", last);
    }
    (void)snprintf(line, sizeof line, "%s: %s", error_table[code].name, last);
    LOG(LOG_ERROR, "error", line);
    return error_table[code].status;
}

int fail(enum error_code code, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return say(code, NULL, text);
}

int fail_with(enum error_code code, const struct log_field *fields, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return say(code, fields, text);
}

int error_say(struct error_caught *caught) { return say(caught->code, caught->field, caught->text); }

int fail_status(enum stage stage, wk_status status, const struct wk_err *err)
{
    return say(error_code_of(stage, status), NULL, err->text);
}

void fail_in_handler(enum error_code code, const char *text)
{
    char line[1024];
    struct log_field fields[EVENT_FIELDS];
    event_fields(code, NULL, fields);
    (void)snprintf(line, sizeof line, "%s: %s", error_table[code].name, text);
    log_last_words("error", as_json ? text : line, fields);
}

int fail_usage(const char *command, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++) /* what was typed stands in it: a line, and nothing that a terminal obeys */
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    (void)fprintf(stderr, "worker %s: %s; see worker %s --help\n", command, text, command);
    return EXIT_USAGE;
}
