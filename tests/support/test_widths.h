/* test_widths.h: what tests of windows, chunks and states share: models whose layers see as much as is wanted, jobs,
 * and what these give; and the accounts of pages. For tests alone.
 *
 * The answers come from one sequence with a page for every position (of states, two that it uses in turn) and whole
 * prompts in one step, so from no code that deals pages. The accounts are taken between steps, page by page: every page
 * is free, kept or a job's, once; who uses a kept page is counted; what is promised is there. */
#ifndef TESTS_SUPPORT_TEST_WIDTHS_H
#define TESTS_SUPPORT_TEST_WIDTHS_H

#include "test_jobs.h"

#include "engine/internal.h"

/* ---- models -------------------------------------------------------------------------------------------- */

/* A layer for each width; 0: it sees all; STATE: a scan. */
enum { MOST_WIDTHS = 4 };
struct widths {
    uint32_t n;
    uint64_t of[MOST_WIDTHS];
};
#define CHUNK(n) ((uint64_t)(n) << 32)
#define STATE UINT64_MAX
bool has_states(const struct widths *w);
extern uint32_t recorded_flags; /* WK_ATTENTION_*, of models that are opened next */
/* What is 0 in dev is as follows: 1 thread, 8 sequences, 64 rows. */
struct test_model open_model(const struct widths *w, const struct device_ops *device, struct device_options dev);

/* ---- jobs ---------------------------------------------------------------------------------------------- */

/* Prompts of a few beginnings, which part somewhere; ids of every sampler, some of them many windows long. */
struct test_job make(uint32_t i);
/* What the job gives, of a model of one sequence and TEST_CONTEXT rows a step. */
void answer(struct model *m, const struct test_job *t, struct test_answer *out);
enum { KINDS = 30 };
extern struct test_answer answers[KINDS];
void answer_all(const struct widths *w); /* of make(0 to KINDS - 1), into answers */

/* ---- the accounts -------------------------------------------------------------------------------------- */

/* All leases that there are while accounts are taken, each once; the engine knows no list of them. No import is in
 * flight then. */
enum { MOST_TEST_LEASES = 64 };
extern struct engine_lease *test_leases[MOST_TEST_LEASES];
extern uint32_t n_test_leases;
/* [engine's thread, no step in flight] user: the engine. */
void take_accounts(void *user);

#endif
