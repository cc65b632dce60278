/* jobs.h: the jobs of the service, for GET /worker/jobs: those whose streams are open, and those that were over lately.
 * A job stays among the first until its end is written down, and not only until the engine is done with it: the two
 * change places in one moment. [any thread] */
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
    uint64_t owner[2]; /* gate_caller.self of whom it is of */
    enum job_verdict verdict;
    const char *model_ref; /* of the process's lifetime */
    const char *end;       /* why, of static storage: "stop", "length", "INFERENCE_TIMEOUT" */
    uint32_t tokens_in, tokens_out;
    double seconds; /* from arrival to end */
};

/* An open stream's place in the list; its memory is the stream's. job NULL: not submitted yet, and `view` is what is
 * known. */
struct job_place {
    struct job_place *older, *newer;
    struct job *job;
    struct job_view view;
    uint64_t owner[2];
};

struct job_log;
struct job_log *job_log_open(void);    /* NULL: no memory */
void job_log_close(struct job_log *l); /* NULL allowed */

/* Before the job is submitted, with p->view: then there is no moment in which it runs and is not listed. */
void job_log_enter(struct job_log *l, struct job_place *p);
void job_log_follow(struct job_log *l, struct job_place *p, struct job *job);
/* Out of the list, before the job is released; r: into the log, which forgets the oldest of JOB_LOG_MOST; NULL: it was
 * refused. */
void job_log_leave(struct job_log *l, struct job_place *p, const struct job_record *r);

/* The latest of that id. of: of this owner alone; NULL: of anybody. */
enum job_found { JOB_FOUND_NONE = 0, JOB_FOUND_OPEN, JOB_FOUND_PAST };
enum job_found job_log_find(struct job_log *l, const uint64_t *of, const char *id, struct job_view *open,
                            struct job_record *past);
/* Open ones, oldest first, at most `most`: returns how many; past ones, latest first: *n_past of them. of: as above. */
uint32_t job_log_all(struct job_log *l, const uint64_t *of, struct job_view *open, uint32_t most,
                     struct job_record past[JOB_LOG_MOST], uint32_t *n_past);

#endif
