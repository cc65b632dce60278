/* base/build_id.h: what this process is made of: the build identities (GNU build ids) of the program and of every
 * library and module that is mapped. Other code, other bytes: a library of the same name and version may compute
 * otherwise. */
#ifndef CORE_BASE_BUILD_ID_H
#define CORE_BASE_BUILD_ID_H

#include <stdbool.h>

/* SHA-256 over the build ids of all mapped objects but the kernel's, in an order of their own. hex: 64 lower-case
 * digits, terminated. False: no memory, or the program has no build id; hex is "". [any thread] */
bool build_identity(char hex[65]);

#endif
