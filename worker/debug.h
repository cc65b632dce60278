/* debug.h: `worker debug`'s actions that have files of their own. */
#ifndef WORKER_DEBUG_H
#define WORKER_DEBUG_H

#include "options.h"

int debug_kernels(const struct options *o); /* exit status */

#endif
