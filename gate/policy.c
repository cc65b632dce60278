/* policy.c: a snapshot of the policy: made of JSON and back, and what is looked up in it.
 *
 * Secrets are found in a table of their hashes with open addressing. Every look-up reads the same number of places, all
 * that the longest needs, and compares each in constant time, so its time does not tell whether there is such a key or
 * how much of a hash was right. To compare with all of 20,000 hashes would be as constant, but takes 0.7 to 1.1 ms for
 * each request; the table takes 0.8 us. */
#include "gate/policy.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "gate/policy_internal.h"

enum { LEAST_SLOTS = 16, MINUTE_S = 60 };
#define FREE UINT32_MAX

/* ---- the table of secrets --------------------------------------------------------------------------------------- */

static uint32_t first_slot(const struct snapshot *s, const uint8_t hash[SECRET_HASH])
{
    uint32_t h;
    memcpy(&h, hash, sizeof h); /* bits of a SHA-256 are as good as any */
    return h & (s->n_slots - 1);
}

static wk_status put_secret(struct snapshot *s, uint32_t key, uint32_t secret, const struct wk_err *err)
{
    const uint8_t *hash = s->keys[key].secrets[secret].hash;
    uint32_t n = 1;
    struct slot *slot;
    for (uint32_t at = first_slot(s, hash);; n++, at = (at + 1) & (s->n_slots - 1)) {
        slot = &s->slots[at];
        if (slot->key == FREE) break;
        if (memcmp(slot->hash, hash, SECRET_HASH) == 0)
            return wk_fail(err, WK_INVALID, "keys: \"%s\" and \"%s\" have the same secret, or one has it twice",
                           s->keys[slot->key].id, s->keys[key].id);
    }
    memcpy(slot->hash, hash, SECRET_HASH);
    slot->key = key;
    slot->secret = secret;
    if (n > s->probes) s->probes = n;
    return WK_OK;
}

static wk_status make_table(struct snapshot *s, const struct wk_err *err)
{
    uint32_t secrets = 0;
    for (uint32_t i = 0; i < s->p.n_keys; i++) secrets += s->keys[i].n_secrets;
    for (s->n_slots = LEAST_SLOTS; s->n_slots < 2 * secrets;) s->n_slots *= 2;
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    if (!s->slots) return wk_fail(err, WK_NO_MEMORY, "no memory for the table of %u secrets", secrets);
    for (uint32_t i = 0; i < s->n_slots; i++) s->slots[i].key = FREE;
    s->probes = 1;
    wk_status status = WK_OK;
    for (uint32_t i = 0; i < s->p.n_keys; i++)
        for (uint32_t j = 0; j < s->keys[i].n_secrets && status == WK_OK; j++) status = put_secret(s, i, j, err);
    return status;
}

enum policy_found policy_find_hash(const struct policy *p, const uint8_t hash[SECRET_HASH], int64_t now, uint32_t *key)
{
    const struct snapshot *s = snapshot_of(p);
    uint32_t found = FREE, secret = 0;
    for (uint32_t i = 0, at = first_slot(s, hash); i < s->probes; i++, at = (at + 1) & (s->n_slots - 1)) {
        const struct slot *slot = &s->slots[at];
        const uint32_t same = 0u - (uint32_t)(CRYPTO_memcmp(slot->hash, hash, SECRET_HASH) == 0);
        found = (found & ~same) | (slot->key & same); /* a free place has no key, also for a hash of zeros */
        secret = (secret & ~same) | (slot->secret & same);
    }
    *key = found;
    if (found == FREE) return POLICY_UNKNOWN;
    const struct policy_key *k = &p->keys[found];
    if (k->disabled) return POLICY_DISABLED;
    return policy_is_over(k->expires, now) || policy_is_over(k->secrets[secret].expires, now) ? POLICY_EXPIRED
                                                                                              : POLICY_FOUND;
}

enum policy_found policy_find(const struct policy *p, const char *text, size_t n, int64_t now, uint32_t *key)
{
    uint8_t hash[SECRET_HASH];
    *key = UINT32_MAX;
    if (!secret_well_formed(text, n)) return POLICY_MALFORMED;
    return secret_hash(text, hash) ? policy_find_hash(p, hash, now, key) : POLICY_UNKNOWN;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void release_use(struct policy_use *use)
{
    if (use && atomic_fetch_sub(&use->refs, 1) == 1) free(use);
}

static void free_snapshot(struct snapshot *s)
{
    for (uint32_t i = 0; i < s->p.n_keys; i++) release_use(s->keys[i].use);
    free(s->keys);
    free(s->key_objects);
    free(s->roles);
    free(s->phrases);
    free(s->slots);
    json_decref(s->root);
    free(s);
}

void policy_release(const struct policy *p)
{
    if (p && atomic_fetch_sub(&snapshot_of(p)->refs, 1) == 1) free_snapshot(snapshot_of(p));
}

wk_status snapshot_read(json_t *root, struct snapshot **out, const struct wk_err *err)
{
    struct snapshot *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s || !root) {
        free(s);
        json_decref(root);
        return wk_fail(err, WK_NO_MEMORY, "no memory for the policy");
    }
    s->root = root;
    atomic_init(&s->refs, 1);
    wk_status status = json_read_document(s, err);
    if (status == WK_OK) status = make_table(s, err);
    if (status != WK_OK) {
        free_snapshot(s);
        return status;
    }
    s->p.guardrails_since = s->p.generation;
    *out = s;
    return WK_OK;
}

wk_status policy_read(const char *json, size_t n, const struct policy **out, const struct wk_err *err)
{
    json_error_t why;
    struct snapshot *s;
    *out = NULL;
    if (n > POLICY_MOST_BYTES)
        return wk_fail(err, WK_INVALID, "the policy has %zu bytes; at most %d are read", n, POLICY_MOST_BYTES);
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        const enum json_error_code code = json_error_code(&why);
        if (code == json_error_out_of_memory) return wk_fail(err, WK_NO_MEMORY, "no memory for the policy");
        const bool twice = code == json_error_duplicate_key; /* its text names the member; others show content */
        for (char *c = why.text; *c; c++)                    /* a member's name may have what a terminal obeys */
            if ((uint8_t)*c < ' ' || *c == 0x7f) *c = '?';
        return wk_fail(err, WK_INVALID, "line %d, column %d: %s", why.line, why.column,
                       twice                                 ? why.text
                       : code == json_error_invalid_utf8     ? "is no UTF-8"
                       : code == json_error_numeric_overflow ? "a number is out of range"
                                                             : "is no JSON, or goes on behind its end");
    }
    const wk_status status = snapshot_read(root, &s, err);
    if (status == WK_OK) *out = &s->p;
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The key's object with its last use; the same object if that is what it says. The caller's reference; NULL: no
 * memory. */
static json_t *with_use(const struct snapshot *s, uint32_t i)
{
    struct policy_use *use = s->keys[i].use;
    const json_t *said = json_object_get(s->key_objects[i], "last_used");
    use->saving = policy_last_used(&s->keys[i]);
    if (use->saving == (said ? json_integer_value(said) : 0)) return json_incref(s->key_objects[i]);
    json_t *o = json_copy(s->key_objects[i]);
    if (o && json_object_set_new(o, "last_used", json_integer(use->saving)) == 0) return o;
    json_decref(o);
    return NULL;
}

wk_status snapshot_write(const struct snapshot *s, char **json, size_t *n, const struct wk_err *err)
{
    json_t *root = json_copy(s->root), *keys = json_array();
    bool ok = root && keys;
    *json = NULL;
    for (uint32_t i = 0; ok && i < s->p.n_keys; i++) ok = json_array_append_new(keys, with_use(s, i)) == 0;
    if (ok && s->p.n_keys) ok = json_object_set(root, "keys", keys) == 0;
    char *text = ok ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(keys);
    json_decref(root);
    if (!text) return wk_fail(err, WK_NO_MEMORY, "no memory for the text of the policy");
    *n = strlen(text);
    if (*n > POLICY_MOST_BYTES) {
        const size_t long_n = *n;
        free(text);
        return wk_fail(err, WK_INVALID, "the policy would have %zu bytes; at most %d are stored", long_n,
                       POLICY_MOST_BYTES);
    }
    *json = text;
    return WK_OK;
}

/* ---- what is asked of a snapshot --------------------------------------------------------------------------------- */

static int key_against(const void *id, const void *key)
{
    return strcmp((const char *)id, ((const struct policy_key *)key)->id);
}

const struct policy_key *policy_key_of(const struct policy *p, const char *id)
{
    return p->n_keys ? bsearch(id, p->keys, p->n_keys, sizeof *p->keys, key_against) : NULL;
}

struct word {
    const char *text;
    size_t n;
};

static int role_against(const void *word, const void *role)
{
    const struct word *w = word;
    const char *name = ((const struct policy_role *)role)->name;
    const size_t n = strlen(name);
    const int order = memcmp(w->text, name, w->n < n ? w->n : n);
    return order ? order : (w->n > n) - (w->n < n);
}

const struct policy_role *policy_role_of(const struct policy *p, const char *name, size_t n)
{
    const struct word word = { name, n };
    return p->n_roles ? bsearch(&word, p->roles, p->n_roles, sizeof *p->roles, role_against) : NULL;
}

static uint64_t limit_or(uint64_t own, uint64_t fallback) { return own == POLICY_UNLIMITED ? 0 : own ? own : fallback; }

struct policy_limits policy_limits_of(const struct policy *p, const struct policy_limits *own)
{
    return (struct policy_limits){ limit_or(own->requests_per_minute, p->defaults.requests_per_minute),
                                   limit_or(own->tokens_per_minute, p->defaults.tokens_per_minute) };
}

void policy_used(const struct policy_key *key, int64_t now)
{
    const int64_t minute = now - now % MINUTE_S;
    int64_t last = atomic_load_explicit(&key->use->at, memory_order_relaxed);
    while (last < minute && !atomic_compare_exchange_weak_explicit(&key->use->at, &last, minute, memory_order_relaxed,
                                                                   memory_order_relaxed)) {}
}

int64_t policy_last_used(const struct policy_key *key)
{
    return atomic_load_explicit(&key->use->at, memory_order_relaxed);
}

/* The secrets without their hashes. */
static json_t *hints_of(const struct policy_key *key)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < key->n_secrets; i++) {
        const struct policy_secret *secret = &key->secrets[i];
        json_t *o = json_pack("{s:s, s:I}", "hint", secret->hint, "created", (json_int_t)secret->created);
        bool ok = o != NULL;
        if (ok && secret->expires) ok = json_object_set_new(o, "expires", json_integer(secret->expires)) == 0;
        if (!ok) json_decref(o);
        if (!ok || json_array_append_new(list, o) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *policy_key_json(const struct policy *p, const struct policy_key *key)
{
    json_t *o = json_deep_copy(snapshot_of(p)->key_objects[key - p->keys]);
    const int64_t used = policy_last_used(key);
    bool ok = o && json_object_set_new(o, "secrets", hints_of(key)) == 0;
    if (ok && used) ok = json_object_set_new(o, "last_used", json_integer(used)) == 0;
    if (ok) return o;
    json_decref(o);
    return NULL;
}

json_t *policy_keys_json(const struct policy *p)
{
    json_t *list = json_array();
    bool ok = list != NULL;
    for (uint32_t i = 0; ok && i < p->n_keys; i++)
        ok = json_array_append_new(list, policy_key_json(p, &p->keys[i])) == 0;
    json_t *o = ok ? json_pack("{s:O}", "keys", list) : NULL;
    json_decref(list);
    return o;
}

json_t *policy_section_json(const struct policy *p, enum policy_section section)
{
    const json_t *o = json_object_get(snapshot_of(p)->root, json_section_name(section));
    return o ? json_deep_copy(o) : json_object();
}
