/* jwt.h: a signed token (RFC 7519, 7515, the rules of RFC 8725): parsed, verified, its claims checked. Verify only;
 * nothing of a token's header leads to a key but `kid`, by exact comparison. */
#ifndef GATE_JWT_H
#define GATE_JWT_H

#include "jwks.h"

enum {
    JWT_MOST_BYTES = 16384,
    JWT_MOST_SUBJECT = 256, /* bytes */
    JWT_NAMES_BYTES = 12288,
    JWT_SKEW_S = 60 /* by which nbf and iat may lie in the future; exp has none */
};

struct jwt_rules { /* the caller's; texts live as long as it */
    const char *issuer, *audience;
    uint32_t algs;              /* bits of jwt_alg */
    const char *typ;            /* "at+jwt": the header must say this, or this behind "application/"; NULL: anything */
    const char *const *clients; /* [n_clients] that azp and client_id may name; none: not looked at */
    size_t n_clients;
    const char *roles_claim; /* dotted path, "realm_access.roles": a string or strings; NULL: none */
};

struct jwt_claims {
    char subject[JWT_MOST_SUBJECT + 1];
    char client[JWT_MOST_SUBJECT + 1]; /* azp, or else client_id; "": neither is there */
    int64_t expires;                   /* seconds since 1970 */
    uint32_t n_scopes, n_roles;        /* of `names` */
    uint32_t names_len;
    char names[JWT_NAMES_BYTES]; /* [names_len]: scopes, then roles, each terminated */
};

enum jwt_result {
    JWT_FINE = 0,
    JWT_SIZE,      /* empty, or more than JWT_MOST_BYTES */
    JWT_FORM,      /* not three parts of base64url */
    JWT_HEADER,    /* not JSON, twice the same name, a wrong type, no alg */
    JWT_CRIT,      /* asks for extensions that must be understood */
    JWT_ALG,       /* not of the list */
    JWT_TYP,       /* another type of token */
    JWT_KID,       /* not a text of 1 .. JWKS_MOST_KID bytes */
    JWT_NO_KEY,    /* no key of this kid serves this alg; without kid: none, or the only one says no */
    JWT_KEYS,      /* several keys fit */
    JWT_SIGNATURE, /* wrong */
    JWT_CLAIMS,    /* not JSON, twice the same name, a claim that is missing or of a wrong type */
    JWT_ISSUER,
    JWT_AUDIENCE,
    JWT_EXPIRED,
    JWT_EARLY, /* nbf or iat lies in the future */
    JWT_CLIENT,
    JWT_NO_MEMORY
};

/* now: seconds since 1970. On JWT_FINE *out is filled; else err has a text, which repeats nothing of the token.
 * [any thread] */
enum jwt_result jwt_check(const char *token, size_t n, const struct jwks *set, const struct jwt_rules *rules,
                          int64_t now, struct jwt_claims *out, const struct wk_err *err);

const char *jwt_result_name(enum jwt_result result); /* "fine", "size", ..., "no_memory": a label */
/* The names, one after another: NULL gives the first scope; behind the last role comes NULL. */
const char *jwt_next_name(const struct jwt_claims *c, const char *name);

#endif
