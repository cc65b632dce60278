/* step_check.h: what every executor asks of its options and of a step's sequences before it changes anything. */
#ifndef CORE_DEVICE_STEP_CHECK_H
#define CORE_DEVICE_STEP_CHECK_H

#include "device/device.h"

/* Context, sequences, rows and wanted rows within bounds and within what the pass was recorded for; max_rows: of a step
 * on this device. WK_INVALID names the first that is wrong. [any thread] */
wk_status device_check_options(const struct tape_program *p, const struct device_options *o, uint32_t max_rows,
                               const struct wk_err *err);

/* Sequences in order without gaps, positions within the context, page tables that hold every position that is seen,
 * with ids below kv_pages [groups]. WK_INVALID names the first that is wrong. [any thread] */
wk_status step_check_sequences(const struct tape_program *p, const struct device_options *o, const uint32_t *kv_pages,
                               const struct step *s, const struct wk_err *err);

#endif
