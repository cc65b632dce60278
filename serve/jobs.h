/* jobs.h: the jobs that ran lately and are over, for GET /worker/jobs: the engine knows those that are not. [any thread] */
#ifndef SERVE_JOBS_H
#define SERVE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

enum { JOB_LOG_MOST = 256 };

enum job_verdict { JOB_FINISHED = 0, JOB_WAS_CANCELLED, JOB_HAS_FAILED };
const char *job_verdict_name(enum job_verdict v); /* "finished", "cancelled", "failed" */

struct job_record {
    char id[ENGINE_JOB_ID_MAX + 1];
    enum job_verdict verdict;
    const char *end;                 /* why, of static storage: "stop", "length", "INFERENCE_TIMEOUT" */
    uint32_t tokens_in, tokens_out;
    double seconds;                  /* from arrival to end */
};

struct job_log;
struct job_log *job_log_open(void); /* NULL: no memory */
void job_log_close(struct job_log *l); /* NULL allowed */
void job_log_add(struct job_log *l, const struct job_record *r); /* forgets the oldest of JOB_LOG_MOST */
bool job_log_find(struct job_log *l, const char *id, struct job_record *out); /* the latest of that id */
uint32_t job_log_all(struct job_log *l, struct job_record out[JOB_LOG_MOST]); /* latest first */

#endif
