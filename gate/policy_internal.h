/* policy_internal.h: what the parts of the policy share: the snapshot behind struct policy, and the strict reader. */
#ifndef GATE_POLICY_INTERNAL_H
#define GATE_POLICY_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <jansson.h>

#include "gate/policy.h"

/* When a key was used last: one for all snapshots that have the key. */
struct policy_use {
    _Atomic uint32_t refs;
    _Atomic int64_t at;      /* whole minutes, in seconds */
    int64_t saving, written; /* of `at`: in the write under way, in the store. Under the lock of changes */
};

/* A place of the table of secrets. */
struct slot {
    uint8_t hash[SECRET_HASH];
    uint32_t key, secret; /* key: UINT32_MAX: a free place, whose hash is zero */
};

struct snapshot {
    struct policy p;
    _Atomic uint32_t refs;
    json_t *root; /* the document: texts of p are its strings. Parts are shared by snapshots, and never changed */
    struct policy_key *keys;
    json_t **key_objects; /* [n_keys], as keys: borrowed from root */
    struct policy_role *roles;
    const char **phrases;
    struct slot *slots; /* [n_slots], a power of two, at most half full */
    uint32_t n_slots;
    uint32_t probes; /* places that every look-up reads: as many as the longest one needs */
};

static inline struct snapshot *snapshot_of(const struct policy *p) { return (struct snapshot *)(uintptr_t)p; }

/* Of a key or a secret; expires 0: never. */
static inline bool policy_is_over(int64_t expires, int64_t now) { return expires && expires <= now; }

/* The document as a snapshot with one reference; takes the reference to root, on failure too. */
wk_status snapshot_read(json_t *root, struct snapshot **out, const struct wk_err *err);
/* The document with the uses of now, which become `saving`. */
wk_status snapshot_write(const struct snapshot *s, char **json, size_t *n, const struct wk_err *err);

/* ---- policy_json.c: the strict reader. Paths in texts begin with the object that is read. -------------------------
 */

enum key_form {
    KEY_STORED,  /* as in the document */
    KEY_CREATED, /* what an administrator says of a new key */
    KEY_UPDATED  /* the same without its id */
};

/* Fills what the document says; s->root is set. Allocates s->keys, key_objects, roles and phrases, which the caller
 * frees on failure too. */
wk_status json_read_document(struct snapshot *s, const struct wk_err *err);
/* One key alone; what is allocated for it: nothing. */
wk_status json_read_key(const json_t *o, enum key_form form, struct policy_key *key, const struct wk_err *err);
/* Is the member of this name one that the form has? */
wk_status json_check_members(const json_t *o, enum key_form form, const struct wk_err *err);
/* A section alone, by its own path. */
wk_status json_check_section(enum policy_section section, const json_t *o, const struct wk_err *err);
const char *json_section_name(enum policy_section section);

#endif
