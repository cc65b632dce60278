/* step_check.h: what every executor checks of its options and of a step before it changes anything. */
#ifndef CORE_DEVICE_STEP_CHECK_H
#define CORE_DEVICE_STEP_CHECK_H

#include "device/device.h"

/* Context, sequences, rows and logits rows within bounds and within what the pass was recorded for; max_rows: of a step
 * on this device. WK_INVALID names the first that is wrong. [any thread] */
wk_status device_check_options(const struct tape_program *p, const struct device_options *o, uint32_t max_rows,
                               const struct wk_err *err);

/* Sequences in order without gaps, positions within the context, page tables that hold every position that is seen,
 * with ids below kv_pages [groups]. WK_INVALID names the first that is wrong. [any thread] */
wk_status step_check_sequences(const struct tape_program *p, const struct device_options *o, const uint32_t *kv_pages,
                               const struct step *s, const struct wk_err *err);

/* Counts of rows, sequences and logits rows within the options. */
wk_status step_check_counts(const struct device_options *o, const struct step *s, const struct wk_err *err);

/* Wanted rows of a step that is not submitted: ascending, with room for their logits. */
wk_status step_check_logits_rows(const struct step *s, const struct wk_err *err);

/* What the logits rows of a submitted step ask for: ids of the vocabulary, sampled rows the last of their sequences. */
wk_status step_check_asks(const struct tape_program *p, const struct step *s, const struct wk_err *err);

/* Pages that are to be read or written: groups of the program, and pages below kv_pages [groups] or KV_NO_PAGE. */
wk_status step_check_pages(const struct tape_program *p, const uint32_t *kv_pages, const struct device_page *pages,
                           uint32_t n, const struct wk_err *err);

/* The same of pages from[i] of another executor, which has their_pages, and to[i] of this one: of one group each. */
wk_status step_check_peer(const struct tape_program *p, const uint32_t *their_pages, const struct device_page *from,
                          const uint32_t *kv_pages, const struct device_page *to, uint32_t n, const struct wk_err *err);

/* What is asked of logits row i of a submitted step. */
static inline struct step_ask step_ask_of(const struct step *s, uint32_t i)
{
    return s->asks ? s->asks[i] : (struct step_ask){ .id = TOKEN_LAST, .top = STEP_NO_TOP };
}

#endif
