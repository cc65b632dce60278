/* bench.h: what the two measurements of `worker bench` share: of models that generate (bench.c) and of those that give
 * embeddings (bench_texts.c). [main thread] */
#ifndef WORKER_BENCH_H
#define WORKER_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "setup.h"

struct spread {
    double median, least, most;
};
struct spread spread_of(double *values, uint32_t n); /* n >= 1; sorts them */

/* Measures a model that gives embeddings, or a reranker: n texts of so many tokens each, in steps as full as the
 * service makes them, with `repeats` of which the median counts; then prints it. began: when the command did, and
 * opened: seconds from there to the open model. An exit status. */
struct texts {
    uint32_t n, tokens, repeats, threads;
    double began, opened;
    bool json;
};
int bench_texts(const struct texts *t, const struct opened *x);

#endif
