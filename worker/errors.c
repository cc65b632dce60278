/* errors.c: error codes and how they are said. */
#include "errors.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "log/log.h"

const struct error_def error_table[CODE_COUNT] = {
    [CODE_INVALID_REQUEST] = { "INVALID_REQUEST", EXIT_FAILED, "the text, ids or parameters given cannot be used" },
    [CODE_CONTEXT_LENGTH_EXCEEDED] = { "CONTEXT_LENGTH_EXCEEDED", EXIT_FAILED, "the text is longer than the context" },
    [CODE_MODEL_LOAD_FAILED] = { "MODEL_LOAD_FAILED", EXIT_FAILED, "the model's file cannot be read, is wrong, or asks for what no plugin serves" },
    [CODE_PLUGIN_REFUSED] = { "PLUGIN_REFUSED", EXIT_FAILED, "a plugin or plugin folder that was named cannot be used" },
    [CODE_DEVICE_NOT_FOUND] = { "DEVICE_NOT_FOUND", EXIT_FAILED, "the device asked for is not there" },
    [CODE_INSUFFICIENT_MEMORY] = { "INSUFFICIENT_MEMORY", EXIT_FAILED, "the host's memory is too small" },
    [CODE_INSUFFICIENT_VRAM] = { "INSUFFICIENT_VRAM", EXIT_FAILED, "the device's memory is too small" },
    [CODE_INFERENCE_FAILED] = { "INFERENCE_FAILED", EXIT_FAILED, "a step failed, for example on weights that are not numbers" },
    [CODE_CUDA_ERROR] = { "CUDA_ERROR", EXIT_DEVICE_LOST, "the device was lost; start the process again" },
    [CODE_OUTPUT_FAILED] = { "OUTPUT_FAILED", EXIT_FAILED, "a result could not be written" },
    [CODE_INTERNAL] = { "INTERNAL", EXIT_FAILED, "a promise inside worker or one of its plugins was broken" },
};

static bool as_json;

void errors_as_json(void) { as_json = true; }

enum error_code error_code_of(enum stage stage, wk_status status)
{
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

/* The log escapes what a terminal could obey and wipes a progress bar that stands in the way. */
static int say(enum error_code code, char *text)
{
    char line[4096 + 32];
    for (size_t n = strlen(text); n && text[n - 1] == '\n'; n--) text[n - 1] = '\0';
    if (as_json) {
        LOG(LOG_ERROR, "error", text, log_s("code", error_table[code].name));
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
    return say(code, text);
}

int fail_status(enum stage stage, wk_status status, const struct wk_err *err)
{
    return say(error_code_of(stage, status), err->text);
}

int fail_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "worker %s: ", command);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "; see worker %s --help\n", command);
    va_end(args);
    return EXIT_USAGE;
}
