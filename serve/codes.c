/* codes.c: the table of error codes. */
#include "codes.h"

#include <string.h>

const struct serve_code_def serve_codes[SERVE_CODE_COUNT] = {
    [SERVE_INVALID_REQUEST] = { "INVALID_REQUEST", 400, false,
                                "the request cannot be used; field names what is wrong" },
    [SERVE_CONTEXT_LENGTH_EXCEEDED] = { "CONTEXT_LENGTH_EXCEEDED", 400, false,
                                        "the prompt has more tokens than the context or --max-tokens-in leaves room "
                                        "for" },
    [SERVE_NOT_FOUND] = { "NOT_FOUND", 404, false, "no such path, job or handle" },
    [SERVE_MODEL_NOT_FOUND] = { "MODEL_NOT_FOUND", 404, false,
                                "the request names another model than the one that is served" },
    [SERVE_JOB_EXISTS] = { "JOB_EXISTS", 409, false, "a job of this id is queued or running" },
    [SERVE_ALREADY_COMMITTED] = { "ALREADY_COMMITTED", 409, false,
                                  "this process serves a model already, and no second one" },
    [SERVE_QUEUE_FULL] = { "QUEUE_FULL", 429, true, "as many jobs wait as may" },
    [SERVE_NOT_READY] = { "NOT_READY", 503, true, "no model yet, unhealthy, or shutting down" },
    [SERVE_INFERENCE_TIMEOUT] = { "INFERENCE_TIMEOUT", 504, false, "the deadline or --inference-timeout-sec passed" },
    [SERVE_CANCELLED] = { "CANCELLED", 499, false, "cancelled by /cancel, or by the end of the process" },
    [SERVE_VRAM_OOM] = { "VRAM_OOM", 500, false, "the KV cache has no room for the job" },
    [SERVE_CUDA_ERROR] = { "CUDA_ERROR", 500, true, "the device was lost; the process ends" },
    [SERVE_INTERNAL] = { "INTERNAL", 500, false, "the job failed, for example on weights that are not numbers" },
    [SERVE_MODEL_LOAD_FAILED] = { "MODEL_LOAD_FAILED", 500, false,
                                  "the model's file cannot be read, is wrong, or asks for what no plugin serves" },
    [SERVE_INSUFFICIENT_VRAM] = { "INSUFFICIENT_VRAM", 503, false, "the device's memory is too small" },
    [SERVE_INSUFFICIENT_MEMORY] = { "INSUFFICIENT_MEMORY", 503, false, "the host's memory is too small" },
    [SERVE_UNAUTHORIZED] = { "UNAUTHORIZED", 401, false, "no key or token, or one that is not valid" },
    [SERVE_FORBIDDEN] = { "FORBIDDEN", 403, false, "the key or token does not have the scope of this path" },
    [SERVE_RATE_LIMITED] = { "RATE_LIMIT_EXCEEDED", 429, true,
                             "the key's requests or tokens of this minute are used up; Retry-After says when there are "
                             "enough again" },
    [SERVE_GUARDRAIL_BLOCKED] = { "GUARDRAIL_BLOCKED", 403, false,
                                  "the blocklist or the policy server does not allow the prompt or the answer" },
    [SERVE_AUDIT_FAILED] = { "AUDIT_FAILED", 503, true,
                             "the audit log cannot be written, and --audit-required demands it" },
    [SERVE_CONFLICT] = { "CONFLICT", 409, false, "there is a key of this id already, or no place for a third secret" },
};

enum serve_code serve_code_named(const char *name)
{
    int c = 0;
    while (c < SERVE_CODE_COUNT && strcmp(serve_codes[c].name, name) != 0) c++;
    return c < SERVE_CODE_COUNT ? (enum serve_code)c : SERVE_INTERNAL;
}
