/* speed.h: what generating a token reads of memory, from a model's plan. A step cannot be faster than that. */
#ifndef WORKER_SPEED_H
#define WORKER_SPEED_H

#include <stdint.h>

#include "model/model.h"

/* Bytes of weights and cache that a step of so many sequences reads for each of their tokens, when each has `position`
 * tokens before it. The model is planned at least. */
double decode_bytes(const struct model *m, uint32_t sequences, double position);

#endif
