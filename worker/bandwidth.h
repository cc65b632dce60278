/* bandwidth.h: how fast this machine reads memory, measured. */
#ifndef WORKER_BANDWIDTH_H
#define WORKER_BANDWIDTH_H

#include <stdint.h>

/* Bytes a second that n threads read together from a buffer much larger than the caches: the best of several passes.
 * 0: no memory for the buffer. */
double bandwidth_read(uint32_t n_threads);

#endif
