/* base/machine.h: what this process may use of the machine: processors and memory, within the limits of its control
 * groups (containers, services).
 *
 * Both versions of control groups are read, wherever they are mounted, and of the process's group and all above it the
 * smallest limit counts. Files that cannot be read limit nothing. [any thread] */
#ifndef CORE_BASE_MACHINE_H
#define CORE_BASE_MACHINE_H

#include <stdint.h>

/* Processors that this thread may run on, no more than the control groups give time for (a quota of 1.5 is two); at
 * least 1. */
uint32_t machine_processors(void);
/* Bytes that the process could take now without swapping: what the machine has available, no more than its control
 * groups still allow. 0: not known. */
uint64_t machine_memory_available(void);
/* Bytes that the process could ever have: the machine's memory, or the smallest limit. 0: not known. */
uint64_t machine_memory(void);

/* The same limits as read below `root`, which stands for the folder "/" ("" is the machine's own): `processors` and
 * `bytes` are what there is without control groups. */
uint32_t machine_processors_within(const char *root, uint32_t processors);
uint64_t machine_memory_within(const char *root, uint64_t bytes);           /* the limit */
uint64_t machine_memory_available_within(const char *root, uint64_t bytes); /* the limit less what is used */

#endif
