/* policy.h: the policy document: API keys, roles, limits, guardrails and the scheduler's figures, as an immutable
 * snapshot; and the live policy: the snapshot of now, and the changes that make the next one.
 *
 * The document is JSON with the members `format`, `generation`, `keys`, `roles`, `limits`, `guardrails` and `scheduler`
 * (policy_json.c). It is read strictly: an unknown member, a member that stands twice, a wrong type and a number out of
 * range are refused by their path, "keys[3].scopes[1]". Every change is made on a copy, which is read the same way,
 * stored, and published only then.
 *
 * A rotation makes a second secret of a key, valid at once, and gives the older one an end (a day; 0: now). A third
 * secret is refused while two are valid, unless the grace is 0: no promised time is shortened by mistake, and a key
 * that leaked can always be ended. When a key was used last is the only thing that changes in place: an atomic minute,
 * which all snapshots share and which is written with the next change, at the end, or once an hour.
 *
 * Times are seconds since 1970; 0: never. Callers give the time, so that tests have their own. */
#ifndef GATE_POLICY_H
#define GATE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "gate/scope.h"
#include "gate/secret.h"
#include "gate/store.h"

struct json_t; /* of Jansson */

enum {
    POLICY_FORMAT = 1,                    /* of the document */
    POLICY_MOST_BYTES = STORE_MOST_BYTES, /* of the document */
    POLICY_MOST_KEYS = 10000,
    POLICY_MOST_ROLES = 1000,
    POLICY_MOST_PHRASES = 10000,
    POLICY_PHRASE_BYTES = 256,     /* of a phrase, at most */
    POLICY_ID_BYTES = 64,          /* of an id or tenant, at most: ^[a-z0-9][a-z0-9._-]{0,63}$ */
    POLICY_NAME_BYTES = 128,       /* of a name of a key or role, at most: UTF-8 without control characters */
    POLICY_SECRETS = 2,            /* of a key, at most */
    POLICY_GRACE_S = 24 * 60 * 60, /* of an older secret, unless a rotation says another */
    POLICY_MOST_GRACE_S = 366 * 24 * 60 * 60
};

/* A limit of a key or role: this value is "none" in the document; 0: the default. */
#define POLICY_UNLIMITED UINT64_MAX

struct policy_limits {
    uint64_t requests_per_minute, tokens_per_minute;
};

struct policy_secret {
    uint8_t hash[SECRET_HASH];
    char hint[SECRET_HINT + 1];
    int64_t created, expires;
};

struct policy_key {
    const char *id, *name, *tenant; /* name: "" without one; tenant: its id without one */
    uint32_t scopes;                /* as given: see scope_closure */
    uint32_t n_secrets;
    struct policy_secret secrets[POLICY_SECRETS]; /* the newest last */
    int64_t created, expires;
    bool disabled;
    int32_t max_priority; /* -1: the command line's */
    struct policy_limits limits;
    struct policy_use *use; /* when it was used last: policy_last_used */
};

/* What the members of a role may do: a token of an issuer names roles. */
struct policy_role {
    const char *name;
    const char *tenant; /* NULL: the role says none */
    uint32_t scopes;
    int32_t max_priority; /* -1: the command line's */
    struct policy_limits limits;
};

struct policy_guardrails {
    const char *const *blocklist; /* [n_phrases], UTF-8 */
    uint32_t n_phrases;
    bool block_output;    /* the blocklist is for answers as well */
    const char *opa_url;  /* NULL: none is asked. http://, https:// or unix: */
    const char *opa_path; /* behind /v1/data/ */
    bool opa_send_text;
};

struct policy_scheduler {
    bool has_preempt, has_high_priority, has_timeslice; /* false: the command line's */
    bool preempt;
    int32_t high_priority;
    uint32_t timeslice_tokens;
};

/* One state of the policy. All of it stays as it is until the last reference is released. */
struct policy {
    uint64_t generation;       /* 0: nothing was ever stored */
    uint64_t guardrails_since; /* the generation that brought these guardrails, or that this process began with: what
                                  was compiled from them is good as long as this stays */
    const struct policy_key *keys; /* [n_keys], by id */
    uint32_t n_keys;
    const struct policy_role *roles; /* [n_roles], by name */
    uint32_t n_roles;
    struct policy_limits defaults; /* 0: none */
    struct policy_guardrails guardrails;
    struct policy_scheduler scheduler;
};

/* ---- a snapshot [any thread] ----------------------------------------------------------------------------------- */

/* The document of n bytes as a snapshot with one reference. WK_INVALID: text says where and why; WK_NO_MEMORY. */
wk_status policy_read(const char *json, size_t n, const struct policy **out, const struct wk_err *err);
void policy_release(const struct policy *p); /* NULL: nothing */

enum policy_found {
    POLICY_FOUND = 0,
    POLICY_MALFORMED, /* no key by form; nothing was looked up */
    POLICY_UNKNOWN,
    POLICY_DISABLED,
    POLICY_EXPIRED, /* the key, or this secret of it */
};
/* Whose secret are the n bytes at text? *key: an index of p->keys, also of one that is disabled or expired, else
 * UINT32_MAX. What is well-formed takes the same work whether there is such a key or not. */
enum policy_found policy_find(const struct policy *p, const char *text, size_t n, int64_t now, uint32_t *key);
/* The same for a secret's hash. */
enum policy_found policy_find_hash(const struct policy *p, const uint8_t hash[SECRET_HASH], int64_t now, uint32_t *key);

/* NULL: there is none. */
const struct policy_key *policy_key_of(const struct policy *p, const char *id);
const struct policy_role *policy_role_of(const struct policy *p, const char *name, size_t n);
/* The limits of a key or role with the defaults in their places: 0 is none. */
struct policy_limits policy_limits_of(const struct policy *p, const struct policy_limits *own);

/* A key was used: kept to the minute, in memory, for all snapshots that have the key. No lock, and nothing is written
 * twice in a minute. */
void policy_used(const struct policy_key *key, int64_t now);
int64_t policy_last_used(const struct policy_key *key);

/* For the administrator: a key without hashes, with last_used; {"keys": all of them}; a section as it stands in the
 * document, {} where it does not. The caller's reference; NULL: no memory. */
struct json_t *policy_key_json(const struct policy *p, const struct policy_key *key);
struct json_t *policy_keys_json(const struct policy *p);
enum policy_section { POLICY_LIMITS, POLICY_GUARDRAILS, POLICY_SCHEDULER, POLICY_ROLES };
struct json_t *policy_section_json(const struct policy *p, enum policy_section section);

/* ---- the live policy ------------------------------------------------------------------------------------------- */

struct policies;

/* Loads what `store` has; nothing: an empty policy. Takes the store (closes it on failure, too). store NULL: an empty
 * policy that refuses every change. [any thread] */
wk_status policies_open(const struct store *store, struct policies **out, const struct wk_err *err);
/* Writes the last uses if there are new ones, and frees p; snapshots live on. The status is that of the write. [any
 * thread, the last one] */
wk_status policies_close(struct policies *p, const struct wk_err *err);
/* The snapshot of now; the caller's reference. It waits for no write. [any thread] */
const struct policy *policies_now(struct policies *p);
/* To be called now and then: stores new last uses once an hour at most, unless a change did. [any thread] */
wk_status policies_tick(struct policies *p, int64_t now, const struct wk_err *err);

/* What came of a change. */
struct policy_done {
    enum policy_why {
        POLICY_DONE = 0,
        POLICY_WRONG, /* what was asked for is: the text says where and why */
        POLICY_NO_SUCH_KEY,
        POLICY_KEY_EXISTS, /* create: the id is taken */
        POLICY_CONFLICT,   /* rotate: both secrets are in use; or a limit on a count is reached */
        POLICY_NOT_STORED  /* the store failed, or there is none, or no memory: nothing was published */
    } why;
    uint64_t generation;      /* of the policy that has the change */
    char secret[SECRET_TEXT]; /* of create and rotate: shown once, nowhere kept; the caller wipes it */
};

/* Changes, one at a time, each stored before it is seen. Bodies are objects, borrowed; paths in texts begin in them.
 * The status is WK_OK iff done->why is POLICY_DONE. [any thread; waits for the store]
 *
 * create: id; and, each if wanted: name, tenant, scopes, expires, disabled, limits, max_priority. Without scopes a key
 * may do nothing. update: the same without id; a member that is not named stays, null takes it away. */
wk_status policies_create_key(struct policies *p, const struct json_t *body, int64_t now, struct policy_done *done,
                              const struct wk_err *err);
wk_status policies_update_key(struct policies *p, const char *id, const struct json_t *body, int64_t now,
                              struct policy_done *done, const struct wk_err *err);
wk_status policies_delete_key(struct policies *p, const char *id, int64_t now, struct policy_done *done,
                              const struct wk_err *err);
/* A new secret, good at once. The one before is good for grace_s more seconds, 0 to POLICY_MOST_GRACE_S; 0: it ends
 * now, and so does every other. With two secrets that are good there is no place for a third, unless grace_s is 0. */
wk_status policies_rotate_key(struct policies *p, const char *id, int64_t grace_s, int64_t now,
                              struct policy_done *done, const struct wk_err *err);
/* All of a section. */
wk_status policies_replace(struct policies *p, enum policy_section section, const struct json_t *body, int64_t now,
                           struct policy_done *done, const struct wk_err *err);

#endif
