/* call.h: which plugin function each thread is in now, so that a plugin that crashes, exits or hangs can be named.
 *
 * A plugin shares the host's process: what it breaks cannot be contained, only told. Whoever calls a plugin says so
 * before and after. A fatal signal or exit() in between ends the process with status 1 and a last line that names
 * plugin and call; a call that takes over 30 s is named in a warning, and again each minute. */
#ifndef CORE_PLUGIN_CALL_H
#define CORE_PLUGIN_CALL_H

#include <stdint.h>

#include <worker/abi.h>

/* A call, on its caller's stack: what the thread was in before (a plugin may be called while another's call waits). */
struct plugin_call {
    uintptr_t function;
    const char *file, *what;
};

/* file: the plugin's, where there is no function yet; else NULL, and the plugin is found by the function's address.
 * what: "open", a text that lives as long as the process. A few stores, so that kernels may be called this way.
 * [any thread] */
void plugin_call_begin(struct plugin_call *c, const char *file, uintptr_t function, const char *what);
void plugin_call_end(const struct plugin_call *c);
#define PLUGIN_CALL(call, function, what) plugin_call_begin(call, NULL, (uintptr_t)(function), what)

/* A module has a copy of this code, which nobody watches: the program hands it its own functions, and calls are told to
 * these from then on. [main thread], before the module calls any plugin */
struct plugin_calls {
    void (*begin)(struct plugin_call *c, const char *file, uintptr_t function, const char *what);
    void (*end)(const struct plugin_call *c);
};
extern const struct plugin_calls plugin_calls; /* the two above */
void plugin_calls_pass_to(const struct plugin_calls *program);

/* Handles fatal signals and exit(), and starts the thread that looks for slow calls. say: writes the last line, from
 * within a signal's handler. Before gguf_guard_install, which passes on what is not its own. [main thread], once */
wk_status plugin_calls_watch(void (*say)(const char *text), const struct wk_err *err);
/* The same without the thread; in a process that was forked off one that watches, tells another from now on. [the only
 * thread] */
wk_status plugin_calls_catch(void (*say)(const char *text), const struct wk_err *err);
/* Ends the process like that if a thread is in a call, which has taken too long: "did not return within 60 s". Returns
 * if none is. [in a signal's handler] */
void plugin_calls_give_up(const char *limit);

/* ---- of this room -------------------------------------------------------------------------------------- */

/* Remembers where a file is mapped. file: lives as long as the process. [main thread, or under a lock] */
void plugin_call_mapped(const char *file, void *handle);

#endif
