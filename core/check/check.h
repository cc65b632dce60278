/* check.h: holds one plugin to the rules of sdk/rules.md: `worker plugin check`.
 *
 * A check is a row of a table: the id of its rule, the group that it belongs to, the rule in one sentence, and a
 * function. The function runs in a child process of its own, and the plugin nowhere else: what crashes, exits, hangs or
 * writes to standard output is a finding of the check that it happened in. What is found says what was expected, what
 * was found, and what to do.
 *
 * A check is limited by processor time, not by a clock, so that a busy machine changes no result. Checks that rest on a
 * rule which failed are skipped, so one fault is reported once. */
#ifndef CORE_CHECK_CHECK_H
#define CORE_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "plugin/format.h"
#include "plugin/plugin.h"

enum check_group {
    CHECK_STATIC = 0, /* the file, before any code of it runs */
    CHECK_LOAD,
    CHECK_NEGOTIATION,
    CHECK_ERRORS,
    CHECK_QUANT,
    CHECK_ARCHITECTURE,
    CHECK_CUDA,
    CHECK_MEMORY,
    CHECK_PERFORMANCE, /* reported, never judged */
    CHECK_GROUPS
};
const char *check_group_name(enum check_group group);

/* WARN: worth a look, breaks no rule. SKIP: could not be looked at, and why. */
enum check_result { CHECK_PASS = 0, CHECK_WARN, CHECK_SKIP, CHECK_FAIL };
const char *check_result_name(enum check_result result);

struct check;
/* Kinds of plugins that a check is about. */
enum {
    CHECK_OF_ARCH = 1u << 0,
    CHECK_OF_QUANT = 1u << 1,
    CHECK_OF_CUDA = 1u << 2,
    CHECK_OF_PLUGIN = 3,
    CHECK_OF_ANY = 7
};

struct check_def {
    const char *id;    /* of the rule: "static.note" */
    const char *rule;  /* in one sentence, as sdk/rules.md has it */
    uint32_t kinds;    /* mask of CHECK_OF_* */
    bool gate;         /* where it fails, nothing behind it in the table can be looked at */
    const char *after; /* id of a check without which this one tells nothing: skipped where that one failed; NULL */
    void (*run)(struct check *c); /* in the child; see internal.h */
};

/* The table, group after group, in the order in which they run. */
uint32_t check_count(void);
const struct check_def *check_at(uint32_t i);
enum check_group check_group_of(uint32_t i);
uint32_t check_find(const char *id); /* check_count(): none */

enum { CHECK_TEXTS = 8, CHECK_TEXT = 640 };
struct check_outcome {
    const struct check_def *def;
    enum check_group group;
    enum check_result result;
    uint32_t n_texts, lost; /* lost: texts that found no room */
    char text[CHECK_TEXTS][CHECK_TEXT];
};

struct check_options {
    const char *path;        /* of the plugin, absolute */
    const char *model;       /* a file of its architecture or in its format; NULL: none */
    const char *const *only; /* [n_only] ids; none: all that are about this kind of plugin */
    uint32_t n_only;
    const struct plugin_registry *plugins; /* of the formats and architectures that a model needs besides; NULL: none */
    uint32_t isa;     /* products: as the host takes them on a processor of this level, one WK_ISA_*; FORMAT_ISAS: each
                         that this processor can run */
    uint32_t seconds; /* processor time that a check may take; 0: 60. One that does nothing at all for five seconds, or
                         is not done in ten minutes, is ended as well */
};

/* Runs the checks one after another and tells each outcome. Fails if there is no such id, or no child can be made: what
 * is wrong with the plugin is told, and no failure of this function. [main thread] */
typedef void (*check_tell_fn)(void *user, const struct check_outcome *outcome);
wk_status check_run(const struct check_options *o, check_tell_fn tell, void *user, const struct wk_err *err);

#endif
