/* signals.h: the thread that takes SIGTERM and SIGINT, and that ends a process which does not end by itself.
 *
 * The first signal asks for an end; whoever looks at signals_fd hears of it. The second ends the process at once, with
 * status 1, whatever other threads do: one may wait for a driver, a plugin or a client. The same thread keeps the
 * deadline of an end that has begun. SIGHUP, if there is something to be read again, asks for just that. */
#ifndef SERVE_SIGNALS_H
#define SERVE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

struct signals;

/* Blocks the signals in the calling thread, and so in all that it starts later; SIGHUP only with `reloads`: without, it
 * ends the process as ever. worker_id: of the log's lines; it outlives the thread. NULL: no memory, no descriptor or no
 * thread. [main thread, before others are started] */
struct signals *signals_start(const char *worker_id, bool reloads);
/* An eventfd: readable once the first signal has come; its reader resets it. */
int signals_fd(const struct signals *s);
/* The same of SIGHUP. -1: it is not taken. */
int signals_reload_fd(const struct signals *s);
/* The process ends at deadline_ns (CLOCK_MONOTONIC) with this status, unless signals_stop comes first. [any thread] */
void signals_end_at(struct signals *s, uint64_t deadline_ns, int status);
/* The signals stay blocked. NULL allowed. [main thread] */
void signals_stop(struct signals *s);

#endif
