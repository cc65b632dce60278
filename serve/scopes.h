/* scopes.h: which scope each route asks of who calls it: one table for all routes, so that who reviews it reads one
 * page. A route that does not stand in it is not served: the service does not start. */
#ifndef SERVE_SCOPES_H
#define SERVE_SCOPES_H

#include "gate/scope.h"
#include "http/http.h"

/* Everybody's: probes, the page, the description of the interface. */
enum { SCOPE_OPEN = 1u << 31 };

/* The scopes of a route, one of which is enough; 0: it does not stand in the table. [any thread] */
uint32_t serve_scope_of(const struct http_route *route);

#endif
