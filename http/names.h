/* names.h: whose names are in Host and Origin. Pure functions, but for the names of this machine.
 *
 * A web page that has its own name resolve to our address (DNS rebinding) is of one origin with us for its browser; but
 * it must send that name as Host. So only what no stranger can have resolve as he likes is served: addresses,
 * localhost, this machine's own names, and those that were allowed. */
#ifndef HTTP_NAMES_H
#define HTTP_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "guard.h"

enum { NAMES_OWN_MAX = 16 };

/* The names that this machine gives itself: its host name, the first part of that, and the names that stand on a line
 * with either in /etc/hosts. Strings are the caller's to free. Returns how many. [main thread] */
uint32_t names_own(char *out[NAMES_OWN_MAX]);

/* The value of a Host header without its port. */
struct guard_span names_of_host(struct guard_span host);
/* An IPv4 address of four decimal numbers, or an IPv6 address in brackets: other spellings are names to us. */
bool names_address(struct guard_span name);
/* Is it one of these, in any case of letters? "*" is every one. */
bool names_listed(struct guard_span name, const char *const *list, uint32_t n);

#endif
