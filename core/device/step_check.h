/* step_check.h: what every executor asks of a step's sequences before it changes anything. */
#ifndef CORE_DEVICE_STEP_CHECK_H
#define CORE_DEVICE_STEP_CHECK_H

#include "device/device.h"

/* Sequences in order without gaps, positions within the context, page tables that hold every position that is seen,
 * with ids below kv_pages [groups]. WK_INVALID names the first that is wrong. [any thread] */
wk_status step_check_sequences(const struct tape_program *p, const struct device_options *o, const uint32_t *kv_pages,
                               const struct step *s, const struct wk_err *err);

#endif
