/* internal.h: what the checks of all groups share. A group is one file: it defines one `const struct check_list
 * checks_GROUP`, an array of check_def, which table.c names in the order in which groups run.
 *
 * To add a check, write a function that takes `struct check *`, a row for it, and a row in sdk/rules.md with the same
 * id and sentence (test_check_rules compares them); then a plugin in core/plugin/zoo that breaks this rule and no
 * other. A check that says nothing has passed. It runs in a process of its own: it need not free, it may leave any
 * time, and what the plugin does to the process is over when it ends. Calls of the plugin stand between PLUGIN_CALL and
 * plugin_call_end, so that a crash is told with the function's name. */
#ifndef CORE_CHECK_INTERNAL_H
#define CORE_CHECK_INTERNAL_H

#include <stddef.h>

#include "check/check.h"
#include "plugin/call.h"

struct check_list {
    enum check_group group;
    const struct check_def *defs; /* [n] */
    uint32_t n;
};
#define CHECK_LIST(name, group_, array) \
    const struct check_list name = { group_, array, sizeof(array) / sizeof((array)[0]) }
extern const struct check_list checks_architecture;
extern const struct check_list checks_static, checks_load, checks_negotiation, checks_errors, checks_quant, checks_cuda,
    checks_memory, checks_performance;

/* A check in its process. */
struct check {
    const struct check_def *def;
    const struct check_options *options;
    struct plugin_entry entry; /* after check_start */
    const struct wk_arch *arch;
    const struct wk_quant *quant; /* of which one is set then */
    int report;                   /* descriptor to the parent */
};

/* What is found. "expected ..., found ...; what to do". Up to CHECK_TEXTS are kept; the worst decides. */
void check_fail(struct check *c, const char *format, ...) WK_PRINTF(2, 3);
void check_warn(struct check *c, const char *format, ...) WK_PRINTF(2, 3);
/* A remark that judges nothing: a number that was measured. */
void check_note(struct check *c, const char *format, ...) WK_PRINTF(2, 3);
/* Nothing could be looked at, because. */
void check_skip(struct check *c, const char *format, ...) WK_PRINTF(2, 3);
/* Ends the check here, also from within a callback that the plugin called. */
__attribute__((noreturn)) void check_leave(struct check *c);

/* Maps and starts the plugin. host: what it is given, NULL: what every plugin gets. false: it was refused, which has
 * been told: as a failure, but as a skip where `def` is the rule of a later step than the one that is broken. */
bool check_start(struct check *c, const struct wk_host *host);
/* Calls what a host calls of a started plugin, with plain input: open, record and close, or the functions of each type.
 */
void check_exercise(struct check *c);

/* ---- guarded.c: memory whose ends are watched ---------------------------------------------------------- */

/* n bytes, filled with `fill`, which end where a page begins that nobody may touch: a byte read or written behind them
 * is a crash. align: a power of two up to 64, of the address; where n is no multiple of it, the few bytes that are left
 * before the page are not watched. NULL: no memory. */
void *guarded(size_t n, size_t align, unsigned char fill);
void guarded_free(void *p); /* from here on every touch is a crash; NULL allowed */

/* ---- metadata.c: what a model's file may say, without a file ------------------------------------------- */

/* Numbers that depend on a seed alone (xorshift). below: at least 1. */
struct check_draw {
    uint64_t state;
};
uint32_t check_draw(struct check_draw *d, uint32_t below); /* 0 .. below - 1 */

enum metadata_way {
    METADATA_PLAIN = 0, /* what a small model says */
    METADATA_WHOLE,     /* and what one with experts and windows says besides */
    METADATA_ABSENT,    /* the file does not have it, where the table allows that */
    METADATA_SMALLEST,  /* of the range; of a text: none */
    METADATA_LARGEST,   /* of a text: 4096 bytes */
    METADATA_STRANGE,   /* a text: a word that means nothing; else as of a small model */
    METADATA_RANDOM,
    METADATA_WAYS
};
/* The metadata that the host hands to open(), in guarded memory. */
struct check_metadata {
    struct wk_meta *meta;
    const struct wk_arch *arch;
    uint32_t which;  /* architecture arch->names[which] */
    uint32_t layers; /* value of block_count */
    bool absurd;     /* shapes of tensors are drawn; else they are plain */
    struct check_draw draw;
    char text[160]; /* for people: which key has which value */
    struct wk_key_value *values;
};
/* Every key is plain but `key`, which goes `way`; key UINT32_MAX: all of them go that way. All values are within what
 * the plugin's own table allows. extra: bytes, a multiple of 8, by which this host's structs are longer than the
 * plugin knows, none of them zero. false: no memory. */
bool metadata_make(struct check_metadata *m, const struct wk_arch *arch, const struct wk_host *host, uint32_t key,
                   enum metadata_way way, uint64_t seed, uint32_t extra);
void metadata_free(struct check_metadata *m);

/* ---- recorder.c: a builder that takes everything ------------------------------------------------------- */

/* FNV-1a of bytes that come in pieces; a hash begins as CHECK_HASH. */
#define CHECK_HASH UINT64_C(0xcbf29ce484222325)
void check_hash(uint64_t *hash, const void *bytes, size_t n);

enum { RECORD_CALLS = 1 << 20, RECORD_OPS = 65536 };
/* It takes every operation and every tensor, gives values a width, and counts. */
struct check_recorder {
    struct wk_builder *builder;
    struct check *check;
    uint32_t ops, calls; /* at most RECORD_CALLS: the check is left there, and errors.record fails. A host takes
                            RECORD_OPS operations, so a record() that goes on and on is not counting anything */
    uint64_t hash;       /* of operations, tensors and names, in order */
    bool supports;       /* the answer to wk_supports */
    uint32_t width[RECORD_OPS + 1];
};
/* extra: as of metadata_make. NULL: no memory. */
struct check_recorder *recorder_make(struct check *c, uint32_t extra);
void recorder_free(struct check_recorder *r);

/* open(), and if it took the metadata record() and close(); frees the metadata, at the end or (early) before record().
 * Returns open's status. err: what open() is given. r NULL: no record(). */
wk_status metadata_open(struct check_metadata *m, struct check_recorder *r, bool early, const struct wk_err *err);

/* ---- small_model.c: a model of the architecture that is checked, as small as can be ---------------------- */

/* A file in memory of plain metadata, with the tensors that record() asks for: F32, made of a seed. It lives as long as
 * the process. NULL: none could be made, and why. The text is [256]. */
struct gguf *small_model_make(struct check *c, uint32_t which, char text[256]);

#endif
