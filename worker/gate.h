/* gate.h: the gate as options ask for it. Functions that return an int have already said what is wrong when it is not
 * EXIT_DONE. [main thread] */
#ifndef WORKER_GATE_H
#define WORKER_GATE_H

#include "gate/gate.h"
#include "options.h"

enum { PASSPHRASE_MOST = 4096 };

/* The policy's passphrase, [*n], which the caller wipes; n 0: there is none. */
int gate_passphrase(const struct options *o, char out[PASSPHRASE_MOST], size_t *n);
/* Starts what asks other hosts, if an option may need it; *out NULL: none does. */
int fetch_start_for(const struct options *o, struct fetch **out);
/* Opens what `worker serve` was asked for; *out NULL: nothing. exposed: an address beyond this machine is served.
 * fetch: of fetch_start_for, outlives the gate. */
int gate_start(const struct options *o, bool exposed, struct fetch *fetch, struct gate **out);
/* A text out of a secret option, or of the file that another names: the caller's, [most + 1], which it wipes. "":
 * neither is given. */
int secret_option(const struct options *o, enum option_id text, enum option_id file, size_t most, char *out, size_t *n);

#endif
