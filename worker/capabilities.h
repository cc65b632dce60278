/* capabilities.h: how the command line refuses a model for what it asks and nobody serves. */
#ifndef WORKER_CAPABILITIES_H
#define WORKER_CAPABILITIES_H

#include "capability/capability.h"

/* Refuses the file in one error that names each of them; EXIT_DONE: nothing is missing. */
int missing_refuse(const struct missing *m, const char *path);

/* Refuses a model whose <model>.mcd.json contradicts it, or whose descriptor is no subset of this worker's profile. */
int capabilities_check(const struct gguf *file, const char *path, const struct plugin_registry *r,
                       const struct tape_program *program);

#endif
