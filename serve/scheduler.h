/* scheduler.h: the scheduler's figures, changed while jobs run: the policy's, where it has some, else the command
 * line's. [any thread] */
#ifndef SERVE_SCHEDULER_H
#define SERVE_SCHEDULER_H

#include <jansson.h>

#include "inside.h"

/* The figures that hold; without a model those that will. */
void scheduler_now(const struct serve *s, struct engine_tuning *out);
/* The policy was changed, or a model came. */
void scheduler_follow(struct serve *s);
/* Of a worker without a policy: {preempt, high_priority, timeslice_tokens}, each if wanted, until the process ends.
 * False: *why. */
bool scheduler_set(struct serve *s, const json_t *body, struct refusal *why);

#endif
