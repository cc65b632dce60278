/* plugin_check.h: `worker plugin check`. [main thread] */
#ifndef WORKER_PLUGIN_CHECK_H
#define WORKER_PLUGIN_CHECK_H

#include "options.h"

int plugin_check_list(const struct options *o);
/* operands[1]: the file. */
int plugin_check_file(const struct options *o);

#endif
