/* refusal.c: refusals, and what the library's and the engine's failures are called. */
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool refuse(struct refusal *why, enum serve_code code, const char *field, const char *format, ...)
{
    va_list args;
    why->code = code;
    why->retry_after_s = 0;
    memset(why->more, 0, sizeof why->more);
    (void)snprintf(why->field, sizeof why->field, "%s", field ? field : "");
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

void refusal_add(struct refusal *why, const char *name, uint64_t value)
{
    size_t i = 0;
    while (i < REFUSAL_MEMBERS && why->more[i].name) i++;
    if (i < REFUSAL_MEMBERS) why->more[i] = (struct refusal_member){ name, value };
}

void refusal_job(struct refusal *why, const char *job_id)
{
    (void)snprintf(why->job_id, sizeof why->job_id, "%s", job_id);
}

/* ---- what is called what ------------------------------------------------------------------------------- */

static const enum serve_code of_status[] = {
    [WK_OK] = SERVE_INTERNAL,
    [WK_INVALID] = SERVE_INVALID_REQUEST,
    [WK_UNSUPPORTED] = SERVE_INVALID_REQUEST,
    [WK_NO_MEMORY] = SERVE_INTERNAL,
    [WK_IO] = SERVE_INTERNAL,
    [WK_INTERNAL] = SERVE_INTERNAL,
    [WK_CANCELLED] = SERVE_CANCELLED,
};

static const enum serve_code of_end[JOB_END_COUNT] = {
    [JOB_STOP] = SERVE_INTERNAL,           [JOB_LENGTH] = SERVE_INTERNAL,
    [JOB_CANCELLED] = SERVE_CANCELLED,     [JOB_TIMEOUT] = SERVE_INFERENCE_TIMEOUT,
    [JOB_NO_MEMORY] = SERVE_VRAM_OOM,      [JOB_FAILED] = SERVE_INTERNAL,
    [JOB_DEVICE_LOST] = SERVE_CUDA_ERROR,  [JOB_DRAINED] = SERVE_NOT_READY,
    [JOB_GRAMMAR] = SERVE_INVALID_REQUEST,
};

static const enum serve_code of_submit[] = {
    [SUBMIT_OK] = SERVE_INTERNAL,
    [SUBMIT_INVALID] = SERVE_INVALID_REQUEST,
    [SUBMIT_CONTEXT] = SERVE_CONTEXT_LENGTH_EXCEEDED,
    [SUBMIT_NEVER_FITS] = SERVE_VRAM_OOM,
    [SUBMIT_QUEUE_FULL] = SERVE_QUEUE_FULL,
    [SUBMIT_EXISTS] = SERVE_JOB_EXISTS,
    [SUBMIT_DRAINING] = SERVE_NOT_READY,
    [SUBMIT_DEAD] = SERVE_CUDA_ERROR,
    [SUBMIT_NO_MEMORY] = SERVE_INTERNAL,
};

#define LOOK_UP(table, i) ((unsigned)(i) < sizeof(table) / sizeof *(table) ? (table)[i] : SERVE_INTERNAL)

enum serve_code serve_code_of_status(wk_status status) { return LOOK_UP(of_status, status); }
enum serve_code serve_code_of_end(enum job_end end) { return LOOK_UP(of_end, end); }
enum serve_code serve_code_of_submit(enum submit_refusal refusal) { return LOOK_UP(of_submit, refusal); }
