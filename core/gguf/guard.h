/* gguf/guard.h: reading tensor data although the file behind them may be cut at any moment.
 *
 * A mapped page that lies behind the end of its file raises SIGBUS when it is touched. Inside a guarded region such a
 * fault in the region's own bytes ends the region with WK_IO; anywhere else SIGBUS does what it did before. */
#ifndef CORE_GGUF_GUARD_H
#define CORE_GGUF_GUARD_H

#include <stdint.h>

#include <worker/abi.h>

/* Installs the handler for the whole process. Without it guarded regions work, but a fault
 * kills. [main thread, once] */
wk_status gguf_guard_install(const struct wk_err *err);

/* Runs fn(arg); a fault at an address in [src, src + n) abandons it and gives WK_IO. fn is left in its middle then, so
 * it must hold no lock and own no memory; it may read the bytes and write elsewhere. Regions may nest. Some 20 ns more
 * than fn itself. [any thread] */
wk_status gguf_guarded(void (*fn)(void *arg), void *arg, const void *src, uint64_t n, const struct wk_err *err);

/* memcpy(dst, src, n) in a guarded region. After a failure dst holds anything. [any thread] */
wk_status gguf_guarded_copy(void *dst, const void *src, uint64_t n, const struct wk_err *err);

#endif
