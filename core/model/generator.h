/* generator.h: sequences that generate together: prompts in, then one id a sequence and step, sampled on the device.
 *
 * Steps are kept in flight ahead of the ids that the caller has seen, as many as the device is worth; what turns out to
 * lie behind a sequence's end is dropped. A sequence's ids depend on its own job alone. While steps are in flight
 * nothing else may run on the model. [engine thread] */
#ifndef CORE_MODEL_GENERATOR_H
#define CORE_MODEL_GENERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "model/model.h"
#include "sample/sample.h"

/* Prompts of at most this many tokens run as generated rows, which are the faster class for so few; the whole prompt's
 * length decides, so that chunks do not. */
enum { GENERATOR_FEW = 64 };

#define GENERATOR_NONE UINT32_MAX /* the sequence was over already: an end, job.most ids, a full context, a failure */
#define GENERATOR_FAILED (UINT32_MAX - 1)  /* no id can be picked: a logit is NaN or infinite; the sequence is over */
#define GENERATOR_BLOCKED (UINT32_MAX - 2) /* its constraint allows no id here; the sequence is over */

struct generator_job {
    const struct sampler_params *params;
    const uint32_t *ends;
    uint32_t n_ends; /* ids that end the sequence, themselves given out; at most SAMPLER_MAX_ENDS */
    const uint32_t *prompt;
    uint32_t n_prompt;  /* 1 to the context */
    uint32_t most;      /* ids wanted, at least 1 */
    bool (*stop)(void); /* asked before each chunk of the prompt: true: WK_CANCELLED; NULL: never */
    /* What the sequence may generate, or NULL; the caller's, who closes it after the sequence's end. A call that fails
     * fails the generator's. */
    const struct sampler_constraint *constraint;
};

struct generator;
/* Takes n of the model's sequences. The model's steps must have room for n logits rows. */
wk_status generator_open(struct model *m, uint32_t n, struct generator **out, const struct wk_err *err);
void generator_close(struct generator *g); /* waits for what is in flight; NULL allowed */
/* Sequence i forgets what it was and runs the job's prompt, to its first id. All that are to generate together are
 * started before generator_next; a start after it ends all others. */
wk_status generator_start(struct generator *g, uint32_t i, const struct generator_job *job, const struct wk_err *err);
/* The next id of each sequence into ids [n]. All GENERATOR_NONE: all are over. */
wk_status generator_next(struct generator *g, uint32_t *ids, const struct wk_err *err);

#endif
