/* oidc.h: tokens of one issuer (OpenID Connect): its keys, fetched and kept fresh, and the tokens that they verify.
 *
 * Keys come from the jwks_uri of ISSUER/.well-known/openid-configuration, which must repeat the issuer; where that
 * document is absent (404, 410), from ISSUER/.well-known/jwks.json. A thread of its own fetches them: at once, then
 * every OIDC_REFRESH_S, and when a token names a key that is not there, but for that at most once in OIDC_UNKNOWN_S. A
 * token with an unknown key waits for a fetch that is under way or begins now, at most OIDC_WAIT_MS, so that a rotation
 * of keys loses no request; at most OIDC_MOST_WAITING do so at one time. When the fetch fails, keys stay in use until
 * OIDC_KEYS_S after the last that succeeded. */
#ifndef GATE_OIDC_H
#define GATE_OIDC_H

#include "fetch.h"
#include "jwt.h"

enum {
    OIDC_REFRESH_S = 900,
    OIDC_UNKNOWN_S = 60,
    OIDC_KEYS_S = 86400,
    OIDC_FETCH_MS = 5000,
    OIDC_WAIT_MS = 3000,
    OIDC_MOST_WAITING = 64,
    OIDC_CACHE = 1024, /* verified tokens that are remembered */
    OIDC_CACHE_S = 60  /* for so long, or until they expire */
};

struct oidc;

struct oidc_config {      /* copied */
    const char *issuer;   /* https://..., exactly as in the tokens */
    const char *audience; /* that `aud` must have */
    const char *ca_file;  /* NULL: the system's */
    uint32_t algs;        /* 0: all of jwt_alg */
    const char *typ;      /* as in jwt_rules */
    const char *const *clients;
    size_t n_clients;
    const char *roles_claim; /* NULL: "roles" */
};

/* Does not wait for the issuer. f: outlives it. WK_INVALID: what of the configuration is wrong. [main thread] */
wk_status oidc_open(const struct oidc_config *c, struct fetch *f, struct oidc **out, const struct wk_err *err);
/* No other thread is in a call then, or makes one. NULL allowed. [main thread] */
void oidc_close(struct oidc *o);

/* Whose token is this? WK_OK: *out. WK_INVALID: it is refused (401); WK_IO: there are no keys to judge it by (503), and
 * why; WK_NO_MEMORY. The text repeats nothing of the token. result: which rule, NULL allowed; of WK_IO JWT_NO_KEY.
 * May wait OIDC_WAIT_MS. [any thread] */
wk_status oidc_check(struct oidc *o, const char *token, size_t n, struct jwt_claims *out, enum jwt_result *result,
                     const struct wk_err *err);
/* The same, but a token whose key is not there is refused at once, and does not make the keys be fetched. */
wk_status oidc_check_now(struct oidc *o, const char *token, size_t n, struct jwt_claims *out, enum jwt_result *result,
                         const struct wk_err *err);

struct oidc_state {
    uint32_t keys;    /* 0: none, or too old */
    int64_t age_s;    /* since the last fetch that succeeded; -1: none did */
    uint64_t fetched; /* fetches that succeeded */
    uint64_t failed;
    uint64_t remembered; /* tokens that were known by their digest */
    char failure[400];   /* of the last fetch; "": it succeeded, or none ended */
};
void oidc_state(struct oidc *o, struct oidc_state *out); /* [any thread] */
/* Waits until the first fetch has ended, at most timeout_ms. WK_OK: there are keys. WK_IO: why not. [any thread] */
wk_status oidc_ready(struct oidc *o, uint32_t timeout_ms, const struct wk_err *err);

#endif
