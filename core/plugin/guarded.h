/* guarded.h: a format's function on bytes of a mapped file, which may be cut short at any moment. */
#ifndef CORE_PLUGIN_GUARDED_H
#define CORE_PLUGIN_GUARDED_H

#include <worker/quant.h>

/* y [n] = the n values of `blocks`, which are `bytes` bytes of a mapping, by the plugin's function, told as its call.
 * WK_IO: the file has been cut; y holds anything. [any thread] */
wk_status guarded_dequantize(const struct wk_type_cpu *t, float *y, const void *blocks, uint64_t n, uint64_t bytes,
                             const struct wk_err *err);

#endif
