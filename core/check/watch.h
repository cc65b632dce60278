/* watch.h: what a mapped plugin asks of the C library while it is called.
 *
 * The functions of a format promise not to allocate and not to start threads. A plugin reaches the C library by the
 * slots that the dynamic linker filled in for it; those of the functions in question are made to point here, where the
 * call is noted and passed on. Nor do they keep anything between two calls: what the plugin could keep it in can be
 * made read-only. For processes that exist to check a plugin. */
#ifndef CORE_CHECK_WATCH_H
#define CORE_CHECK_WATCH_H

#include <stdbool.h>

#include <worker/abi.h>

/* address: of a function or object of the plugin, which is mapped. Once a plugin; not while another thread runs its
 * code. WK_INTERNAL: nothing is known of what is mapped there. */
wk_status watch_install(const void *address, const struct wk_err *err);
/* From now on the plugin's own data can only be read, or written again: a write is a fault, which guard_call names. */
wk_status watch_freeze(const void *address, bool frozen, const struct wk_err *err);
/* Name of the first such function that was called since; NULL: none. [any thread] */
const char *watch_seen(void);
/* Forgets it. */
void watch_forget(void);

#endif
