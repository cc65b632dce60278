/* sampling.h: how ids are drawn, as the options say: for a model in this process, and as members of a request to a
 * worker elsewhere. [main thread] */
#ifndef WORKER_SAMPLING_H
#define WORKER_SAMPLING_H

#include <jansson.h>

#include "options.h"
#include "sample/sample.h"
#include "tokenizer/stop.h"

enum { SAMPLING_BIASES = 300 };

struct sampling {
    struct sampler_params params; /* points into this structure: do not copy or move it */
    struct sampler_bias bias[SAMPLING_BIASES];
    const char *stops[STOP_MAX]; /* the options' */
    uint32_t n_stops;
};

/* The seed is random where none is given. Returns an exit status; what is wrong has been said. */
int sampling_read(const struct options *o, struct sampling *out);
/* For one more answer: another random seed, where none is given. */
int sampling_seed(const struct options *o, struct sampling *s);
/* max_tokens and the rest as OpenAI's clients name them, into the body of a request. False: no memory, or a stop string
 * that is not UTF-8. */
bool sampling_put(const struct options *o, const struct sampling *s, json_t *body);

#endif
