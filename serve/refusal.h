/* refusal.h: why a request is not done, as a value. Checks return one; who handles the request hands it to serve_refuse
 * (inside.h), which alone writes answers of this kind, in the form of the interface that was asked (http/failure.c).
 * Pure functions. [any thread] */
#ifndef SERVE_REFUSAL_H
#define SERVE_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

#include "codes.h"
#include "engine/engine.h"

enum { REFUSAL_MEMBERS = 4 };

struct refusal {
    enum serve_code code;
    char field[96];                     /* "max_tokens", "params.seed"; "": none can be named */
    char text[1024];                    /* "FIELD: expected ..., got ..." */
    char job_id[ENGINE_JOB_ID_MAX + 1]; /* "": not known yet */
    uint32_t retry_after_s;             /* 0: as the code has it */
    struct refusal_member {
        const char *name; /* NULL: there is none; of static storage */
        uint64_t value;
    } more[REFUSAL_MEMBERS]; /* further members of the answer */
};

/* Makes *why a refusal of this code; the job's id, if it is known already, stays. field NULL: none. Returns false,
 * which is what a check returns. */
__attribute__((format(printf, 4, 5))) bool refuse(struct refusal *why, enum serve_code code, const char *field,
                                                  const char *format, ...);
/* A further member, of a refusal that is made. name: of static storage. */
void refusal_add(struct refusal *why, const char *name, uint64_t value);
void refusal_job(struct refusal *why, const char *job_id); /* whom it is about; before or after it is made */

/* What a failure of the library, the end of a job, and the engine's refusal of a job are called. */
enum serve_code serve_code_of_status(wk_status status);
enum serve_code serve_code_of_end(enum job_end end); /* of an end that is none of JOB_STOP and JOB_LENGTH */
enum serve_code serve_code_of_submit(enum submit_refusal refusal);

#endif
