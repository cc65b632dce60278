/* codes.h: the error codes of the HTTP interface. They are an interface: added to, never renamed. */
#ifndef SERVE_CODES_H
#define SERVE_CODES_H

#include <stdbool.h>

enum serve_code {
    SERVE_INVALID_REQUEST = 0,
    SERVE_CONTEXT_LENGTH_EXCEEDED,
    SERVE_NOT_FOUND,
    SERVE_MODEL_NOT_FOUND,
    SERVE_JOB_EXISTS,
    SERVE_ALREADY_COMMITTED,
    SERVE_QUEUE_FULL,
    SERVE_NOT_READY,
    SERVE_INFERENCE_TIMEOUT,
    SERVE_CANCELLED,
    SERVE_VRAM_OOM,
    SERVE_CUDA_ERROR,
    SERVE_INTERNAL,
    SERVE_MODEL_LOAD_FAILED,
    SERVE_INSUFFICIENT_VRAM,
    SERVE_INSUFFICIENT_MEMORY,
    SERVE_UNAUTHORIZED,
    SERVE_FORBIDDEN,
    SERVE_RATE_LIMITED,
    SERVE_GUARDRAIL_BLOCKED,
    SERVE_AUDIT_FAILED,
    SERVE_CONFLICT,
    SERVE_CODE_COUNT
};

struct serve_code_def {
    const char *name;
    int status;     /* HTTP, where the answer has not begun yet */
    bool retriable; /* the same request may succeed later, or elsewhere */
    const char *meaning;
};
extern const struct serve_code_def serve_codes[SERVE_CODE_COUNT];

/* The code of this name; SERVE_INTERNAL: there is none such. */
enum serve_code serve_code_named(const char *name);

#endif
