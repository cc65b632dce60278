/* oidc.c: see oidc.h. A thread fetches keys; requests use them, and wait for it only when a token names a key that is
 * not there. */
#include "oidc.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/monotonic.h"
#include "log/log.h"
#include "oidc_times.h"
#include "token_cache.h"

enum { MOST_ISSUER = 1024, MOST_URL = MOST_ISSUER + 64, MOST_CLIENTS = 256, FAILURE = 400 };

struct oidc {
    struct fetch *f;
    char *issuer, *audience, *ca_file, *typ, *roles_claim;
    char **clients;
    struct jwt_rules rules; /* texts are those above */
    struct token_cache *cache;
    _Atomic uint64_t n_remembered;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;  /* for the thread */
    pthread_cond_t ended; /* a fetch has ended */
    bool stop, fetching;
    struct oidc_times times;
    struct jwks *keys; /* NULL: none yet */
    uint64_t n_ended, n_good, n_failed;
    uint32_t waiting;
    char failure[FAILURE]; /* of the last fetch; "": it succeeded */
};

static int64_t seconds(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec;
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* A document of the issuer. */
static wk_status get(struct oidc *o, const char *url, uint32_t timeout_ms, struct fetch_answer *a,
                     const struct wk_err *err)
{
    const struct fetch_request r = { .method = "GET",
                                     .url = url,
                                     .ca_file = o->ca_file,
                                     .timeout_ms = timeout_ms,
                                     .most_bytes = JWKS_MOST_BYTES,
                                     .https_only = true };
    return fetch_do(o->f, &r, a, err);
}

/* ISSUER/.well-known/NAME, with one slash between them. */
static void well_known(const struct oidc *o, const char *name, char url[MOST_URL])
{
    const size_t n = strlen(o->issuer);
    (void)snprintf(url, MOST_URL, "%.*s/.well-known/%s", (int)(o->issuer[n - 1] == '/' ? n - 1 : n), o->issuer, name);
}

/* The discovery document's jwks_uri, to uri [cap]. */
static wk_status read_discovery(const struct oidc *o, const struct fetch_answer *a, char *uri, size_t cap,
                                const struct wk_err *err)
{
    json_error_t said;
    json_t *root = json_loadb(a->body, a->body_len, JSON_REJECT_DUPLICATES, &said);
    const char *issuer = json_string_value(json_object_get(root, "issuer")),
               *keys = json_string_value(json_object_get(root, "jwks_uri"));
    wk_status s = WK_OK;
    if (!root)
        s = wk_fail(err, WK_INVALID, "the issuer's openid-configuration is not JSON: byte %d: %s", said.position,
                    said.text);
    else if (!issuer || strcmp(issuer, o->issuer) != 0)
        s = wk_fail(err, WK_INVALID,
                    "the issuer's openid-configuration names another issuer than the configured %s: both must be the "
                    "same to the last character",
                    o->issuer);
    else if (!keys || strncmp(keys, "https://", 8) != 0 || strlen(keys) >= cap)
        s = wk_fail(err, WK_INVALID, "the issuer's openid-configuration has no jwks_uri that begins with https://");
    else
        (void)snprintf(uri, cap, "%s", keys);
    json_decref(root);
    return s;
}

static wk_status find_uri(struct oidc *o, char *uri, size_t cap, const struct wk_err *err)
{
    char url[MOST_URL];
    struct fetch_answer a;
    well_known(o, "openid-configuration", url);
    wk_status s = get(o, url, OIDC_FETCH_MS, &a, err);
    if (s) return s;
    if (a.status == 200) {
        s = read_discovery(o, &a, uri, cap, err);
    } else if (a.status == 404 || a.status == 410) {
        well_known(o, "jwks.json", url);
        (void)snprintf(uri, cap, "%s", url);
    } else {
        s = wk_fail(err, WK_IO, "%s: status 200 is expected, it is %u", url, a.status);
    }
    fetch_answer_free(&a);
    return s;
}

/* All of it within OIDC_FETCH_MS. */
static wk_status fetch_keys(struct oidc *o, struct jwks **out, const struct wk_err *err)
{
    char uri[FETCH_MOST_URL];
    struct fetch_answer a;
    struct timespec from, to;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    wk_status s = find_uri(o, uri, sizeof uri, err);
    if (s) return s;
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    const int64_t took = (int64_t)(to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    s = get(o, uri, took < OIDC_FETCH_MS ? (uint32_t)(OIDC_FETCH_MS - took) : 1, &a, err);
    if (s) return s;
    if (a.status != 200)
        s = wk_fail(err, WK_IO, "%s: status 200 is expected, it is %u", uri, a.status);
    else
        s = jwks_parse(a.body, a.body_len, o->rules.algs, out, err);
    fetch_answer_free(&a);
    return s;
}

/* The lock is held, and given up meanwhile. */
static void refresh(struct oidc *o)
{
    struct jwks *keys = NULL;
    char text[FAILURE] = "";
    oidc_times_begin(&o->times, seconds(CLOCK_BOOTTIME));
    o->fetching = true;
    (void)pthread_mutex_unlock(&o->lock);
    const wk_status s = fetch_keys(o, &keys, &(struct wk_err){ text, sizeof text });
    (void)pthread_mutex_lock(&o->lock);
    o->fetching = false;
    oidc_times_end(&o->times, !s);
    const bool news = (s != 0) != (o->failure[0] != '\0') || o->n_ended == 0;
    o->n_ended++;
    (void)snprintf(o->failure, sizeof o->failure, "%s", s ? text : "");
    struct jwks *old = NULL;
    if (s) {
        o->n_failed++;
    } else {
        o->n_good++;
        old = o->keys;
        o->keys = keys;
    }
    (void)pthread_cond_broadcast(&o->ended);
    jwks_release(old);
    if (!news || o->stop) return;
    if (s)
        LOG(LOG_WARN, "oidc_keys", text, log_s("issuer", o->issuer), log_b("in_use", o->keys != NULL));
    else
        LOG(LOG_INFO, "oidc_keys", NULL, log_s("issuer", o->issuer), log_u("keys", jwks_count(keys)));
}

static void *run(void *arg)
{
    struct oidc *o = arg;
    (void)pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        const int64_t now = seconds(CLOCK_BOOTTIME), next = oidc_times_next(&o->times, now);
        if (next <= now) {
            refresh(o);
            continue;
        }
        const struct timespec until = clock_in(CLOCK_MONOTONIC, (uint32_t)(next - now) * 1000);
        (void)pthread_cond_timedwait(&o->work, &o->lock, &until);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool is_issuer(const char *text)
{
    static const char scheme[] = "https://";
    if (!text || strncmp(text, scheme, sizeof scheme - 1) != 0) return false;
    const size_t n = strlen(text);
    if (n == sizeof scheme - 1 || n > MOST_ISSUER || text[sizeof scheme - 1] == '/' || strpbrk(text, "?#@\\\""))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= 0x20 || text[i] == 0x7f) return false;
    return true;
}

static wk_status check_config(const struct oidc_config *c, const struct wk_err *err)
{
    if (!is_issuer(c->issuer))
        return wk_fail(err, WK_INVALID,
                       "an issuer is https://HOST[:PORT][/PATH] of at most %d bytes, without user, query and fragment",
                       MOST_ISSUER);
    if (!c->audience || !*c->audience)
        return wk_fail(err, WK_INVALID, "an issuer needs an audience: tokens that it made for others would be taken");
    if (c->algs & ~(uint32_t)JWT_ALGS) return wk_fail(err, WK_INVALID, "RS256 and ES256 are the algs of tokens");
    if (c->n_clients > MOST_CLIENTS) return wk_fail(err, WK_INVALID, "at most %d clients are expected", MOST_CLIENTS);
    return c->ca_file ? fetch_check_ca(c->ca_file, err) : WK_OK;
}

static bool copy(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

static bool copy_config(struct oidc *o, const struct oidc_config *c)
{
    if (!copy(&o->issuer, c->issuer) || !copy(&o->audience, c->audience) || !copy(&o->ca_file, c->ca_file) ||
        !copy(&o->typ, c->typ) || !copy(&o->roles_claim, c->roles_claim ? c->roles_claim : "roles"))
        return false;
    if (c->n_clients && !(o->clients = calloc(c->n_clients, sizeof *o->clients))) return false;
    for (size_t i = 0; i < c->n_clients; i++) {
        if (!copy(&o->clients[i], c->clients[i])) return false;
        o->rules.n_clients++;
    }
    o->rules.issuer = o->issuer;
    o->rules.audience = o->audience;
    o->rules.algs = c->algs ? c->algs : JWT_ALGS;
    o->rules.typ = o->typ;
    o->rules.clients = (const char *const *)o->clients;
    o->rules.roles_claim = o->roles_claim;
    return true;
}

static void free_all(struct oidc *o)
{
    token_cache_close(o->cache);
    jwks_release(o->keys);
    for (size_t i = 0; i < o->rules.n_clients; i++) free(o->clients[i]);
    free(o->clients);
    free(o->issuer);
    free(o->audience);
    free(o->ca_file);
    free(o->typ);
    free(o->roles_claim);
    free(o);
}

static bool make_locks(struct oidc *o)
{
    return pthread_mutex_init(&o->lock, NULL) == 0 && cond_init_monotonic(&o->work) && cond_init_monotonic(&o->ended);
}

wk_status oidc_open(const struct oidc_config *c, struct fetch *f, struct oidc **out, const struct wk_err *err)
{
    *out = NULL;
    const wk_status s = check_config(c, err);
    if (s) return s;
    struct oidc *o = calloc(1, sizeof *o);
    if (!o) return wk_fail(err, WK_NO_MEMORY, "out of memory for the keys of an issuer");
    o->f = f;
    o->times = OIDC_TIMES_FIRST;
    if (!copy_config(o, c) || !(o->cache = token_cache_open()) || !make_locks(o) ||
        pthread_create(&o->thread, NULL, run, o) != 0) {
        free_all(o);
        return wk_fail(err, WK_NO_MEMORY, "out of memory, threads or random bytes for the keys of an issuer");
    }
    *out = o;
    return WK_OK;
}

void oidc_close(struct oidc *o)
{
    if (!o) return;
    (void)pthread_mutex_lock(&o->lock);
    o->stop = true;
    (void)pthread_cond_broadcast(&o->work);
    (void)pthread_mutex_unlock(&o->lock);
    (void)pthread_join(o->thread, NULL);
    (void)pthread_cond_destroy(&o->work);
    (void)pthread_cond_destroy(&o->ended);
    (void)pthread_mutex_destroy(&o->lock);
    free_all(o);
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

/* The keys as they are now; NULL: none, or too old. The caller releases them. */
static struct jwks *hold_keys(struct oidc *o, uint64_t *generation, uint64_t *n_ended)
{
    (void)pthread_mutex_lock(&o->lock);
    struct jwks *keys = oidc_times_usable(&o->times, seconds(CLOCK_BOOTTIME)) ? jwks_hold(o->keys) : NULL;
    *generation = o->n_good;
    *n_ended = o->n_ended;
    (void)pthread_mutex_unlock(&o->lock);
    return keys;
}

/* A key is not there. Waits until a fetch has ended that is under way or is due now. False: there is none, or no time
 * or place to wait. */
static bool wait_for_keys(struct oidc *o, uint64_t n_ended, const struct timespec *until)
{
    (void)pthread_mutex_lock(&o->lock);
    if (o->n_ended == n_ended && !o->fetching && oidc_times_unknown(&o->times, seconds(CLOCK_BOOTTIME)))
        (void)pthread_cond_signal(&o->work);
    bool good = true;
    o->waiting++;
    while (good && o->n_ended == n_ended)
        good = o->waiting <= OIDC_MOST_WAITING && !o->stop &&
               (o->fetching || oidc_times_next(&o->times, seconds(CLOCK_BOOTTIME)) <= seconds(CLOCK_BOOTTIME)) &&
               pthread_cond_timedwait(&o->ended, &o->lock, until) == 0;
    o->waiting--;
    (void)pthread_mutex_unlock(&o->lock);
    return good;
}

static wk_status no_keys(struct oidc *o, const struct wk_err *err)
{
    char failure[FAILURE];
    (void)pthread_mutex_lock(&o->lock);
    (void)snprintf(failure, sizeof failure, "%s", o->failure[0] ? o->failure : "they are still being fetched");
    (void)pthread_mutex_unlock(&o->lock);
    return wk_fail(err, WK_IO, "the token cannot be verified: the issuer's keys are not there: %s", failure);
}

static wk_status check(struct oidc *o, const char *token, size_t n, bool waits, struct jwt_claims *out,
                       enum jwt_result *result, const struct wk_err *err)
{
    uint8_t digest[TOKEN_DIGEST];
    enum jwt_result r = JWT_NO_KEY;
    const struct timespec until = clock_in(CLOCK_MONOTONIC, OIDC_WAIT_MS);
    const bool sized = n > 0 && n <= JWT_MOST_BYTES, digested = sized && token_cache_digest(o->cache, token, n, digest);
    bool judged;
    uint64_t generation, n_ended;
    do {
        struct jwks *keys = hold_keys(o, &generation, &n_ended);
        judged = keys != NULL;
        if (!judged) continue;
        const int64_t now = seconds(CLOCK_REALTIME);
        if (digested && token_cache_get(o->cache, digest, generation, now, out)) {
            r = JWT_FINE;
            atomic_fetch_add_explicit(&o->n_remembered, 1, memory_order_relaxed);
        } else {
            r = jwt_check(token, n, keys, &o->rules, now, out, err);
            if (r == JWT_FINE && digested) token_cache_put(o->cache, digest, generation, now, out);
        }
        jwks_release(keys);
    } while (r == JWT_NO_KEY && waits && wait_for_keys(o, n_ended, &until));
    if (result) *result = r;
    if (!judged) return no_keys(o, err);
    return r == JWT_FINE ? WK_OK : r == JWT_NO_MEMORY ? WK_NO_MEMORY : WK_INVALID;
}

wk_status oidc_check(struct oidc *o, const char *token, size_t n, struct jwt_claims *out, enum jwt_result *result,
                     const struct wk_err *err)
{
    return check(o, token, n, true, out, result, err);
}

wk_status oidc_check_now(struct oidc *o, const char *token, size_t n, struct jwt_claims *out, enum jwt_result *result,
                         const struct wk_err *err)
{
    return check(o, token, n, false, out, result, err);
}

void oidc_state(struct oidc *o, struct oidc_state *out)
{
    *out = (struct oidc_state){ .age_s = -1 };
    (void)pthread_mutex_lock(&o->lock);
    const int64_t now = seconds(CLOCK_BOOTTIME);
    if (oidc_times_usable(&o->times, now)) out->keys = jwks_count(o->keys);
    if (o->times.any) out->age_s = now - o->times.good_at;
    out->fetched = o->n_good;
    out->failed = o->n_failed;
    out->remembered = atomic_load(&o->n_remembered);
    (void)snprintf(out->failure, sizeof out->failure, "%s", o->failure);
    (void)pthread_mutex_unlock(&o->lock);
}

wk_status oidc_ready(struct oidc *o, uint32_t timeout_ms, const struct wk_err *err)
{
    const struct timespec until = clock_in(CLOCK_MONOTONIC, timeout_ms);
    (void)pthread_mutex_lock(&o->lock);
    while (o->n_ended == 0 && pthread_cond_timedwait(&o->ended, &o->lock, &until) == 0) {}
    const bool good = o->keys != NULL;
    (void)pthread_mutex_unlock(&o->lock);
    return good ? WK_OK : no_keys(o, err);
}
