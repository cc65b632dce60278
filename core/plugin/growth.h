/* growth.h: the one rule by which a struct of a plugin's is read (worker/abi.h, "Growth"). */
#ifndef CORE_PLUGIN_GROWTH_H
#define CORE_PLUGIN_GROWTH_H

#include <stddef.h>

#include <worker/abi.h>

enum { GROWTH_MAX = 64 * 1024 }; /* bytes that any struct may say it has */

/* Copies `size` bytes of a plugin's struct into `ours`, `known` bytes, of which those that the plugin does not have
 * become zero. least: bytes in ABI 1.0. WK_INVALID: a size below that, above GROWTH_MAX or no multiple of 8.
 * WK_UNSUPPORTED: a byte behind `known` is set. what: "struct wk_arch", for the text. [any thread] */
wk_status growth_copy(void *ours, size_t known, size_t least, const void *theirs, uint64_t size, const char *what,
                      const struct wk_err *err);

/* WK_UNSUPPORTED if a field called reserved is set. what: "struct wk_arch.reserved_names". */
wk_status growth_reserved(uint32_t value, const char *what, const struct wk_err *err);

/* WK_UNSUPPORTED, naming the lowest bit, if `flags` has one that is not in `known`. */
wk_status growth_flags(uint64_t flags, uint64_t known, const char *what, const struct wk_err *err);

#endif
