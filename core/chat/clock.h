/* clock.h: the time that templates are told when they ask for it (strftime_now). [any thread] */
#ifndef CORE_CHAT_CLOCK_H
#define CORE_CHAT_CLOCK_H

#include <stdbool.h>

#include "jinja/jinja.h"

/* The machine's, in its own time zone. */
struct jinja_options chat_clock_now(void);
/* A day or a time of RFC 3339: "2026-07-04", "2026-07-04T09:05:03", "2026-07-04T09:05:03+02:00". Templates see the time
 * as it is written; without a zone it counts as UTC. False: it is none. */
bool chat_clock_read(const char *text, struct jinja_options *out);

#endif
