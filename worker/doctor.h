/* doctor.h: what `worker doctor` has found on this machine: each finding with how bad it is and the command that mends
 * it. [main thread] */
#ifndef WORKER_DOCTOR_H
#define WORKER_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "errors.h"
#include "options.h"

/* OK: as it should be. NOTE: nothing is wrong, but it is good to know. ADVICE: models are served without it, but
 * something is missing. FAULT: no model can be served. */
enum finding_state { FINDING_OK = 0, FINDING_NOTE, FINDING_ADVICE, FINDING_FAULT };

struct finding {
    const char *check; /* "plugins" */
    enum finding_state state;
    enum error_code code;        /* of a fault */
    char text[1024], mend[8192]; /* mend "": no command does */
};

enum { MOST_FINDINGS = 64 };
struct doctor {
    const struct options *o;
    bool wants_gpu; /* --device cuda */
    bool has_gpu;   /* doctor_driver has seen one */
    struct finding findings[MOST_FINDINGS];
    uint32_t n;
    bool more; /* than are kept */
};

/* Adds one; never NULL. */
__attribute__((format(printf, 4, 5))) struct finding *doctor_find(struct doctor *d, const char *check,
                                                                  enum finding_state state, const char *format, ...);
__attribute__((format(printf, 2, 3))) void doctor_mend(struct finding *f, const char *format, ...);

/* A path as one word of a shell's command. Returns out. */
enum { QUOTED = 2048 };
const char *doctor_quoted(const char *path, char out[QUOTED]);

/* doctor_machine.c: what the system is asked. */
void doctor_processor(struct doctor *d);
void doctor_memory(struct doctor *d);
void doctor_limits(struct doctor *d);
void doctor_port(struct doctor *d);
void doctor_folder(struct doctor *d);
/* An NVIDIA GPU, its driver and its device files, without a call of CUDA's; before doctor_limits. */
void doctor_driver(struct doctor *d);

#endif
