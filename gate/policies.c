/* policies.c: the live policy. A change takes the current document (parts that stay are shared), makes the next one,
 * reads it as strictly as any, stores it, and publishes the snapshot: what was not stored was never seen, and what was
 * acknowledged is on disk.
 *
 * Two locks. `change` is held for all of a change, the store's write included. `current` is held for the moment in
 * which the pointer is read with a reference, or replaced: readers wait for no write. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/hex.h"
#include "gate/policy_internal.h"

enum { TICK_S = 3600 };

struct policies {
    pthread_mutex_t change, current;
    struct store store; /* load NULL: there is none */
    struct snapshot *now;
    bool behind;             /* the last save failed: what is stored may be a generation newer. Under `change` */
    _Atomic int64_t written; /* when the store wrote last, or the first tick was; 0: neither */
    int64_t deleted;         /* the latest `created` of a key that is gone; of no key since. Under `change` */
};

/* ---- readers ---------------------------------------------------------------------------------------------------- */

const struct policy *policies_now(struct policies *p)
{
    (void)pthread_mutex_lock(&p->current);
    struct snapshot *s = p->now;
    atomic_fetch_add(&s->refs, 1);
    (void)pthread_mutex_unlock(&p->current);
    return &s->p;
}

/* ---- opening, closing ----------------------------------------------------------------------------------------------
 */

static wk_status empty_policy(struct snapshot **out, const struct wk_err *err)
{
    return snapshot_read(json_pack("{s:i, s:i}", "format", POLICY_FORMAT, "generation", 0), out, err);
}

static wk_status load_policy(const struct store *store, struct snapshot **out, const struct wk_err *err)
{
    char *json, text[512];
    const struct wk_err inner = { text, sizeof text };
    size_t n;
    uint64_t generation;
    const struct policy *policy = NULL;
    *out = NULL;
    wk_status status = store->load(store->self, &json, &n, &generation, err);
    if (status != WK_OK) return status;
    if (!json) return empty_policy(out, err);
    status = policy_read(json, n, &policy, &inner);
    OPENSSL_cleanse(json, n);
    free(json);
    if (status != WK_OK) return wk_fail(err, status, "the policy that is stored cannot be read: %s", text);
    if (generation && generation != policy->generation) {
        status = wk_fail(err, WK_INVALID, "the policy is of generation %llu, and its store says %llu: it is damaged",
                         (unsigned long long)policy->generation, (unsigned long long)generation);
        policy_release(policy);
        return status;
    }
    *out = snapshot_of(policy);
    return WK_OK;
}

wk_status policies_open(const struct store *store, struct policies **out, const struct wk_err *err)
{
    struct policies *p = calloc(1, sizeof *p);
    *out = NULL;
    wk_status status = p ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for the policy");
    if (status == WK_OK) status = store ? load_policy(store, &p->now, err) : empty_policy(&p->now, err);
    if (status != WK_OK) {
        if (store) store->close(store->self);
        free(p);
        return status;
    }
    if (store) p->store = *store;
    (void)pthread_mutex_init(&p->change, NULL);
    (void)pthread_mutex_init(&p->current, NULL);
    *out = p;
    return WK_OK;
}

/* Writes snapshot s. Under `change`. */
static wk_status store_snapshot(struct policies *p, const struct snapshot *s, const struct wk_err *err)
{
    char *json;
    size_t n;
    wk_status status = snapshot_write(s, &json, &n, err);
    if (status != WK_OK) return status;
    status = p->store.save(p->store.self, json, n, s->p.generation, err);
    OPENSSL_cleanse(json, n);
    free(json);
    p->behind = status != WK_OK;
    for (uint32_t i = 0; status == WK_OK && i < s->p.n_keys; i++) s->keys[i].use->written = s->keys[i].use->saving;
    return status;
}

/* Writes the last uses if there are new ones: the same policy, so of the same generation; not over one that may be
 * newer. Under `change`. */
static wk_status store_uses(struct policies *p, const struct wk_err *err)
{
    const struct snapshot *s = p->now;
    bool news = false;
    for (uint32_t i = 0; i < s->p.n_keys && !news; i++) news = policy_last_used(&s->keys[i]) != s->keys[i].use->written;
    return news && p->store.save && !p->behind ? store_snapshot(p, s, err) : WK_OK;
}

wk_status policies_tick(struct policies *p, int64_t now, const struct wk_err *err)
{
    wk_status status = WK_OK;
    int64_t written = atomic_load(&p->written);
    if (written == 0) atomic_store(&p->written, now);
    if (written == 0 || now - written < TICK_S) return WK_OK;
    (void)pthread_mutex_lock(&p->change);
    if (now - atomic_load(&p->written) >= TICK_S) {
        atomic_store(&p->written, now); /* also if it fails: the next try is in an hour */
        status = store_uses(p, err);
    }
    (void)pthread_mutex_unlock(&p->change);
    return status;
}

wk_status policies_close(struct policies *p, const struct wk_err *err)
{
    const wk_status status = store_uses(p, err);
    if (p->store.close) p->store.close(p->store.self);
    policy_release(&p->now->p);
    (void)pthread_mutex_destroy(&p->change);
    (void)pthread_mutex_destroy(&p->current);
    free(p);
    return status;
}

/* ---- a change ------------------------------------------------------------------------------------------------------
 */

/* One change under way, under `change`. */
struct edit {
    struct policies *p;
    const struct snapshot *old;
    json_t *root; /* the next document: its own object and array of keys; all else is shared with the old one */
    json_t *keys;
    int64_t now;
    struct policy_done *done;
    const struct wk_err *err;
};

static wk_status refuse(struct edit *e, enum policy_why why, wk_status status)
{
    e->done->why = why;
    return status;
}

static wk_status no_memory(struct edit *e)
{
    return refuse(e, POLICY_NOT_STORED, wk_fail(e->err, WK_NO_MEMORY, "no memory for the change of the policy"));
}

static wk_status begin(struct edit *e)
{
    *e->done = (struct policy_done){ 0 };
    (void)pthread_mutex_lock(&e->p->change);
    e->old = e->p->now;
    if (!e->p->store.save)
        return refuse(e, POLICY_NOT_STORED,
                      wk_fail(e->err, WK_UNSUPPORTED, "there is no policy file: start the worker with one"));
    json_t *keys = json_object_get(e->old->root, "keys");
    e->root = json_copy(e->old->root);
    e->keys = keys ? json_copy(keys) : json_array();
    if (!e->root || !e->keys || json_object_set(e->root, "keys", e->keys) != 0) return no_memory(e);
    return WK_OK;
}

/* Keys that were there before have their uses from now on. */
static void adopt_uses(struct snapshot *next, const struct snapshot *old)
{
    for (uint32_t i = 0; i < next->p.n_keys; i++) {
        const struct policy_key *before = policy_key_of(&old->p, next->keys[i].id);
        if (!before) continue;
        free(next->keys[i].use); /* nobody else has it yet */
        next->keys[i].use = before->use;
        atomic_fetch_add(&before->use->refs, 1);
    }
}

static void publish(struct policies *p, struct snapshot *next)
{
    (void)pthread_mutex_lock(&p->current);
    struct snapshot *old = p->now;
    p->now = next;
    (void)pthread_mutex_unlock(&p->current);
    policy_release(&old->p);
}

/* Reads, stores and publishes the document that was made. */
static wk_status commit(struct edit *e, bool guardrails)
{
    struct snapshot *next;
    const uint64_t generation = e->old->p.generation + 1;
    if (json_object_set_new(e->root, "generation", json_integer((json_int_t)generation)) != 0) return no_memory(e);
    wk_status status = snapshot_read(json_incref(e->root), &next, e->err);
    if (status != WK_OK) return refuse(e, status == WK_INVALID ? POLICY_WRONG : POLICY_NOT_STORED, status);
    next->p.guardrails_since = guardrails ? generation : e->old->p.guardrails_since;
    adopt_uses(next, e->old);
    status = store_snapshot(e->p, next, e->err);
    if (status != WK_OK) {
        policy_release(&next->p);
        return refuse(e, POLICY_NOT_STORED, status);
    }
    atomic_store(&e->p->written, e->now);
    publish(e->p, next);
    e->done->generation = generation;
    return WK_OK;
}

/* Ends the change, whatever came of it. */
static wk_status end(struct edit *e, wk_status status)
{
    json_decref(e->keys);
    json_decref(e->root);
    (void)pthread_mutex_unlock(&e->p->change);
    if (status != WK_OK) OPENSSL_cleanse(e->done->secret, sizeof e->done->secret);
    return status;
}

/* ---- keys ----------------------------------------------------------------------------------------------------------
 */

/* Where the key stands in the document; *key: what the snapshot says of it. */
static wk_status find_key(struct edit *e, const char *id, size_t *index, const struct policy_key **key)
{
    *key = policy_key_of(&e->old->p, id);
    for (*index = 0; *key && *index < json_array_size(e->keys); ++*index)
        if (json_array_get(e->keys, *index) == e->old->key_objects[*key - e->old->p.keys]) return WK_OK;
    return refuse(e, POLICY_NO_SUCH_KEY, wk_fail(e->err, WK_INVALID, "there is no key of this id"));
}

/* A new secret, whose text goes to done. NULL: done->why says why not. */
static json_t *new_secret(struct edit *e, wk_status *status)
{
    uint8_t hash[SECRET_HASH];
    char hex[2 * SECRET_HASH + 1], hint[SECRET_HINT + 1];
    *status = secret_make(e->done->secret, e->err);
    if (*status == WK_OK && !secret_hash(e->done->secret, hash))
        *status = wk_fail(e->err, WK_INTERNAL, "libcrypto has no SHA-256, or no memory");
    if (*status != WK_OK) {
        e->done->why = POLICY_NOT_STORED;
        return NULL;
    }
    hex_write(hash, sizeof hash, hex);
    secret_hint(e->done->secret, hint);
    json_t *o = json_pack("{s:s, s:s, s:I}", "hash", hex, "hint", hint, "created", (json_int_t)e->now);
    if (!o) *status = no_memory(e);
    return o;
}

/* A key is told from one of its id that was deleted by when it was made, so two of one second must not have one. */
static int64_t made_at(const struct edit *e) { return e->now > e->p->deleted ? e->now : e->p->deleted + 1; }

static wk_status create(struct edit *e, const json_t *body)
{
    struct policy_key key;
    wk_status status = json_read_key(body, KEY_CREATED, &key, e->err);
    if (status != WK_OK) return refuse(e, POLICY_WRONG, status);
    if (policy_key_of(&e->old->p, key.id))
        return refuse(e, POLICY_KEY_EXISTS, wk_fail(e->err, WK_INVALID, "id: there is a key \"%s\" already", key.id));
    if (json_array_size(e->keys) >= POLICY_MOST_KEYS)
        return refuse(
            e, POLICY_CONFLICT,
            wk_fail(e->err, WK_INVALID, "there are %d keys, the most that there can be: delete one", POLICY_MOST_KEYS));
    json_t *secret = new_secret(e, &status);
    if (!secret) return status;
    json_t *o = json_deep_copy(body);
    if (!o || json_object_set_new(o, "created", json_integer((json_int_t)made_at(e))) != 0 ||
        json_object_set_new(o, "secrets", json_pack("[O]", secret)) != 0 || json_array_append(e->keys, o) != 0)
        status = no_memory(e);
    json_decref(o);
    json_decref(secret);
    return status == WK_OK ? commit(e, false) : status;
}

static wk_status update(struct edit *e, const char *id, const json_t *body)
{
    struct policy_key key;
    const struct policy_key *before;
    size_t at;
    wk_status status = find_key(e, id, &at, &before);
    if (status != WK_OK) return status;
    status = json_check_members(body, KEY_UPDATED, e->err);
    if (status != WK_OK) return refuse(e, POLICY_WRONG, status);
    json_t *o = json_copy(json_array_get(e->keys, at)), *changes = json_deep_copy(body);
    bool ok = o && changes;
    for (void *it = ok ? json_object_iter(changes) : NULL; ok && it; it = json_object_iter_next(changes, it)) {
        const char *name = json_object_iter_key(it);
        if (json_is_null(json_object_iter_value(it)))
            (void)json_object_del(o, name);
        else
            ok = json_object_set(o, name, json_object_iter_value(it)) == 0;
    }
    status = ok ? json_read_key(o, KEY_STORED, &key, e->err) : no_memory(e);
    if (ok && status != WK_OK) status = refuse(e, POLICY_WRONG, status);
    if (status == WK_OK && json_array_set(e->keys, at, o) != 0) status = no_memory(e);
    json_decref(changes);
    json_decref(o);
    return status == WK_OK ? commit(e, false) : status;
}

/* The secrets that stay beside a new one: none, or the newest that is not over, with its end. NULL: see done->why. */
static json_t *staying(struct edit *e, const struct policy_key *key, const json_t *object, int64_t grace_s,
                       wk_status *status)
{
    json_t *list = json_array();
    size_t good = 0, newest = 0;
    for (size_t i = 0; i < key->n_secrets; i++) {
        if (policy_is_over(key->secrets[i].expires, e->now)) continue;
        good++;
        newest = i;
    }
    if (grace_s > 0 && good == POLICY_SECRETS) {
        json_decref(list);
        *status = refuse(e, POLICY_CONFLICT,
                         wk_fail(e->err, WK_INVALID,
                                 "the key has %d secrets that are good: wait until one is over, or rotate with a grace "
                                 "of 0, which ends both",
                                 POLICY_SECRETS));
        return NULL;
    }
    if (grace_s > 0 && good && list) {
        const int64_t end_at = e->now + grace_s, before = key->secrets[newest].expires;
        json_t *o = json_copy(json_array_get(json_object_get(object, "secrets"), newest));
        if (!o || json_object_set_new(o, "expires", json_integer(before && before < end_at ? before : end_at)) != 0 ||
            json_array_append(list, o) != 0) {
            json_decref(list);
            list = NULL;
        }
        json_decref(o);
    }
    *status = list ? WK_OK : no_memory(e);
    return list;
}

static wk_status rotate(struct edit *e, const char *id, int64_t grace_s)
{
    const struct policy_key *key;
    size_t at;
    wk_status status = find_key(e, id, &at, &key);
    if (status != WK_OK) return status;
    if (grace_s < 0 || grace_s > POLICY_MOST_GRACE_S)
        return refuse(e, POLICY_WRONG,
                      wk_fail(e->err, WK_INVALID, "grace: %lld is not from 0 to %d seconds", (long long)grace_s,
                              POLICY_MOST_GRACE_S));
    json_t *list = staying(e, key, json_array_get(e->keys, at), grace_s, &status);
    if (!list) return status;
    json_t *o = json_copy(json_array_get(e->keys, at)), *secret = new_secret(e, &status);
    if (status == WK_OK && (!o || json_array_append(list, secret) != 0 || json_object_set(o, "secrets", list) != 0 ||
                            json_array_set(e->keys, at, o) != 0))
        status = no_memory(e);
    json_decref(secret);
    json_decref(o);
    json_decref(list);
    return status == WK_OK ? commit(e, false) : status;
}

/* ---- the interface
 * --------------------------------------------------------------------------------------------------- */

wk_status policies_create_key(struct policies *p, const json_t *body, int64_t now, struct policy_done *done,
                              const struct wk_err *err)
{
    struct edit e = { .p = p, .now = now, .done = done, .err = err };
    wk_status status = begin(&e);
    if (status == WK_OK) status = create(&e, body);
    return end(&e, status);
}

wk_status policies_update_key(struct policies *p, const char *id, const json_t *body, int64_t now,
                              struct policy_done *done, const struct wk_err *err)
{
    struct edit e = { .p = p, .now = now, .done = done, .err = err };
    wk_status status = begin(&e);
    if (status == WK_OK) status = update(&e, id, body);
    return end(&e, status);
}

wk_status policies_delete_key(struct policies *p, const char *id, int64_t now, struct policy_done *done,
                              const struct wk_err *err)
{
    struct edit e = { .p = p, .now = now, .done = done, .err = err };
    const struct policy_key *key;
    size_t at;
    int64_t created = 0;
    wk_status status = begin(&e);
    if (status == WK_OK) status = find_key(&e, id, &at, &key);
    if (status == WK_OK) created = key->created;
    if (status == WK_OK && json_array_remove(e.keys, at) != 0) status = no_memory(&e);
    if (status == WK_OK) status = commit(&e, false);
    if (status == WK_OK && created > p->deleted) p->deleted = created;
    return end(&e, status);
}

wk_status policies_rotate_key(struct policies *p, const char *id, int64_t grace_s, int64_t now,
                              struct policy_done *done, const struct wk_err *err)
{
    struct edit e = { .p = p, .now = now, .done = done, .err = err };
    wk_status status = begin(&e);
    if (status == WK_OK) status = rotate(&e, id, grace_s);
    return end(&e, status);
}

wk_status policies_replace(struct policies *p, enum policy_section section, const json_t *body, int64_t now,
                           struct policy_done *done, const struct wk_err *err)
{
    struct edit e = { .p = p, .now = now, .done = done, .err = err };
    wk_status status = begin(&e);
    if (status == WK_OK) {
        status = json_check_section(section, body, err);
        if (status != WK_OK) status = refuse(&e, status == WK_INVALID ? POLICY_WRONG : POLICY_NOT_STORED, status);
    }
    if (status == WK_OK && json_object_set_new(e.root, json_section_name(section), json_deep_copy(body)) != 0)
        status = no_memory(&e);
    if (status == WK_OK) status = commit(&e, section == POLICY_GUARDRAILS);
    return end(&e, status);
}
