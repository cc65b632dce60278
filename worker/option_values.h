/* option_values.h: what the reader of the command line (options.c) needs of option_values.c beside options.h. */
#ifndef WORKER_OPTION_VALUES_H
#define WORKER_OPTION_VALUES_H

#include "options.h"

/* Prints "worker COMMAND: ...; see worker COMMAND --help" on standard error; false, for the caller to return. */
__attribute__((format(printf, 2, 3))) bool option_usage(enum command c, const char *format, ...);
/* The option of the command whose name is nearest to a mistyped one; NULL: none is near. */
const char *option_nearest(enum command c, const char *name);
/* Checks text against the option's type and range and stores it, without a copy; `where` ("--seed", "WORKER_SEED") is
 * for the message. Not of lists, which have neither default nor environment: option_add. False: it has been said. */
bool option_store(struct options *o, enum option_id id, const char *text, const char *where);
/* The same for one more value of a list. */
bool option_add(struct options *o, enum option_id id, const char *text, const char *where);

#endif
