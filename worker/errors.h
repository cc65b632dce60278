/* errors.h: the stable error codes of the command line, their exit status, and the one way to fail.
 *
 * A failed command writes exactly one line with a code as the last line on standard error:
 *     worker: error: MODEL_LOAD_FAILED: model.gguf: byte 0: ...
 * or, under --log json, an event "error" with code and message. Codes are an interface: they are added to, never
 * renamed. */
#ifndef WORKER_ERRORS_H
#define WORKER_ERRORS_H

#include <stdbool.h>

#include <worker/abi.h>

#include "log/log.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEVICE_LOST = 70, EXIT_INTERRUPTED = 130 };

enum error_code {
    CODE_INVALID_REQUEST = 0,
    CODE_CONTEXT_LENGTH_EXCEEDED,
    CODE_MODEL_LOAD_FAILED,
    CODE_PLUGIN_REFUSED,
    CODE_DEVICE_NOT_FOUND,
    CODE_INVALID_DEVICE,
    CODE_INSUFFICIENT_MEMORY,
    CODE_INSUFFICIENT_VRAM,
    CODE_VRAM_RESIDENCY_FAILED,
    CODE_INFERENCE_FAILED,
    CODE_CUDA_ERROR,
    CODE_OUTPUT_FAILED,
    CODE_LISTEN_FAILED,
    CODE_GATE_FAILED,
    CODE_TLS_FAILED,
    CODE_AUDIT_BROKEN,
    CODE_NOT_READY,
    CODE_PULL_FAILED,
    CODE_INTERNAL,
    CODE_COUNT
};

struct error_def {
    const char *name;
    int status; /* the process's exit status */
    int number; /* of the device interface, as events give it */
    const char *meaning;
};
extern const struct error_def error_table[CODE_COUNT];

/* Where a wk_status came from decides which code it becomes. */
enum stage { STAGE_PLUGINS, STAGE_MODEL, STAGE_TOKENS, STAGE_STEP, STAGE_OUTPUT };
enum error_code error_code_of(enum stage stage, wk_status status);

/* Text of several lines is printed line by line; the last one carries the code. Return the exit status. */
__attribute__((format(printf, 2, 3))) int fail(enum error_code code, const char *format, ...);
int fail_status(enum stage stage, wk_status status, const struct wk_err *err);
/* The same with fields of its own in the event. fields: terminated by an entry of kind LOG_END, at most 8. */
__attribute__((format(printf, 3, 4))) int fail_with(enum error_code code, const struct log_field *fields,
                                                    const char *format, ...);
/* What a failure said, kept for somebody else to say: while a thread catches, its failures write nothing. */
enum { ERROR_FIELDS = 8 };
struct error_caught {
    enum error_code code;
    char text[4096]; /* lines as given; "": nothing failed */
    struct log_field field[ERROR_FIELDS + 1];
    char strings[ERROR_FIELDS][512]; /* that the fields point to */
};
void errors_catch(struct error_caught *into); /* NULL: no more. [of the calling thread] */
/* Says it after all; returns the exit status. */
int error_say(struct error_caught *caught);

/* The last line of a process that ends now, whoever catches. [in a signal's handler] */
void fail_in_handler(enum error_code code, const char *text);

/* Wrong usage found after parsing (options that exclude each other). */
__attribute__((format(printf, 2, 3))) int fail_usage(const char *command, const char *format, ...);

void errors_as_json(void); /* from now on, as --log json asks */
/* From now on an event of failure says model and gpu_device where the failure itself does not; NULL, -1: unknown. Every
 * one has gpu_device, model, vram_required and vram_available, null where there is nothing to say. */
void errors_about(const char *model, int gpu_device);
/* From now on every failure after which dead() is true is the loss of the device, whatever failed for it. */
void errors_watch_device(bool (*dead)(void));

/* A buffer for one error text; holds the up to 16 messages of a refused model. */
#define ERROR_TEXT(name)         \
    char name##_text[4096] = ""; \
    const struct wk_err name = { name##_text, sizeof name##_text }

#endif
