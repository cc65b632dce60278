/* jwks.c: see jwks.h. Jansson reads the document, libcrypto makes the keys and verifies. */
#include "jwks.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include "base/base64url.h"

enum {
    LEAST_BITS = 2048,
    MOST_BITS = 8192,
    MOST_E_BITS = 64,
    COORDINATE = 32, /* bytes, of P-256 */
    MOST_DER = 80    /* bytes of a signature (r, s) of P-256 in DER */
};

struct jwks_key {
    EVP_PKEY *key;
    enum jwt_alg alg;
    size_t kid_len;
    bool has_kid;
    char kid[JWKS_MOST_KID];
};

struct jwks {
    atomic_uint holders;
    uint32_t n;
    struct jwks_key keys[JWKS_MOST_KEYS];
};

/* ---- one key ---------------------------------------------------------------------------------------------------- */

/* A member that is base64url text; NULL: it is not there, or no such text. The caller's. */
static uint8_t *member_bytes(const json_t *jwk, const char *name, size_t *len)
{
    const json_t *value = json_object_get(jwk, name);
    if (!json_is_string(value)) return NULL;
    const size_t n = json_string_length(value);
    uint8_t *bytes = malloc(n + 1);
    if (bytes && n > 0 && base64url_decode(json_string_value(value), n, bytes, n, len)) return bytes;
    free(bytes);
    return NULL;
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *b)
{
    EVP_PKEY *key = NULL;
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(b);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return key;
}

static const char *weak_rsa(const BIGNUM *n, const BIGNUM *e)
{
    const int bits = BN_num_bits(n);
    if (bits < LEAST_BITS) return "n has less than 2048 bits";
    if (bits > MOST_BITS) return "n has more than 8192 bits";
    if (!BN_is_odd(n)) return "n is even";
    if (!BN_is_odd(e) || BN_num_bits(e) < 17 || BN_num_bits(e) > MOST_E_BITS) /* 65537 has 17 bits, no odd less has */
        return "e is even, below 65537 or above 64 bits";
    return NULL;
}

static const char *make_rsa(const json_t *jwk, EVP_PKEY **out)
{
    size_t n_len = 0, e_len = 0;
    uint8_t *n_bytes = member_bytes(jwk, "n", &n_len), *e_bytes = member_bytes(jwk, "e", &e_len);
    const char *why = NULL;
    BIGNUM *n = NULL, *e = NULL;
    OSSL_PARAM_BLD *b = NULL;
    if (!n_bytes || !e_bytes)
        why = "n or e is no base64url text";
    else if (n_len > MOST_BITS / 8 + 1 || e_len > MOST_E_BITS / 8)
        why = "n or e is too long";
    else if (!(n = BN_bin2bn(n_bytes, (int)n_len, NULL)) || !(e = BN_bin2bn(e_bytes, (int)e_len, NULL)))
        why = "memory is short";
    else if (!(why = weak_rsa(n, e)) &&
             (!(b = OSSL_PARAM_BLD_new()) || OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, n) != 1 ||
              OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, e) != 1 || !(*out = from_params("RSA", b))))
        why = "libcrypto does not take n and e";
    OSSL_PARAM_BLD_free(b);
    BN_free(n);
    BN_free(e);
    free(n_bytes);
    free(e_bytes);
    return why;
}

/* Is it a point of the curve, and not the one at infinity? */
static bool is_point(EVP_PKEY *key)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    const bool good = ctx && EVP_PKEY_public_check(ctx) == 1;
    EVP_PKEY_CTX_free(ctx);
    return good;
}

static const char *make_ec(const json_t *jwk, EVP_PKEY **out)
{
    const char *curve = json_string_value(json_object_get(jwk, "crv"));
    if (!curve || strcmp(curve, "P-256") != 0) return "its curve is not P-256";
    size_t x_len = 0, y_len = 0;
    uint8_t *x = member_bytes(jwk, "x", &x_len), *y = member_bytes(jwk, "y", &y_len);
    uint8_t point[1 + 2 * COORDINATE] = { POINT_CONVERSION_UNCOMPRESSED };
    const char *why = NULL;
    OSSL_PARAM_BLD *b = NULL;
    if (!x || !y || x_len != COORDINATE || y_len != COORDINATE) {
        why = "x or y is not 32 bytes in base64url";
    } else {
        memcpy(point + 1, x, COORDINATE);
        memcpy(point + 1 + COORDINATE, y, COORDINATE);
        if (!(b = OSSL_PARAM_BLD_new()) ||
            OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) != 1 ||
            OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) != 1 ||
            !(*out = from_params("EC", b)) || !is_point(*out))
            why = "x and y are no point of the curve";
    }
    OSSL_PARAM_BLD_free(b);
    free(x);
    free(y);
    return why;
}

/* An absent member is as good as the word; another type is not. */
static bool absent_or(const json_t *jwk, const char *name, const char *word)
{
    const json_t *value = json_object_get(jwk, name);
    return !value || (json_is_string(value) && strcmp(json_string_value(value), word) == 0);
}

static bool may_verify(const json_t *jwk)
{
    const json_t *ops = json_object_get(jwk, "key_ops"), *op;
    size_t i;
    if (!ops) return true;
    json_array_foreach (ops, i, op)
        if (json_is_string(op) && strcmp(json_string_value(op), "verify") == 0) return true;
    return false;
}

/* NULL: *out is made; else why it is left out. */
static const char *make_key(const json_t *jwk, uint32_t algs, struct jwks_key *out)
{
    const char *type = json_string_value(json_object_get(jwk, "kty"));
    const json_t *kid = json_object_get(jwk, "kid");
    *out = (struct jwks_key){ 0 };
    if (!type) return "kty is missing";
    if (strcmp(type, "RSA") == 0)
        out->alg = JWT_RS256;
    else if (strcmp(type, "EC") == 0)
        out->alg = JWT_ES256;
    else
        return "kty is neither RSA nor EC";
    if (!(out->alg & algs)) return "keys of its kty are not in use here";
    if (!absent_or(jwk, "use", "sig")) return "use is not sig";
    if (!absent_or(jwk, "alg", out->alg == JWT_RS256 ? "RS256" : "ES256")) return "alg is not the one of its kty here";
    if (!may_verify(jwk)) return "key_ops has no verify";
    if (kid) {
        out->kid_len = json_string_length(kid);
        if (!json_is_string(kid) || out->kid_len < 1 || out->kid_len > JWKS_MOST_KID)
            return "kid is no text of 1 to 256 bytes";
        memcpy(out->kid, json_string_value(kid), out->kid_len);
        out->has_kid = true;
    }
    const char *why = out->alg == JWT_RS256 ? make_rsa(jwk, &out->key) : make_ec(jwk, &out->key);
    if (why) {
        EVP_PKEY_free(out->key);
        out->key = NULL;
    }
    return why;
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

wk_status jwks_parse(const char *bytes, size_t n, uint32_t algs, struct jwks **out, const struct wk_err *err)
{
    *out = NULL;
    if (n > JWKS_MOST_BYTES) return wk_fail(err, WK_INVALID, "a key set of at most 256 KiB is expected");
    json_error_t said;
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &said), *jwk;
    if (!root) return wk_fail(err, WK_INVALID, "the key set is not JSON: byte %d: %s", said.position, said.text);
    const json_t *keys = json_object_get(root, "keys");
    if (!json_is_array(keys) || json_array_size(keys) > JWKS_MOST_KEYS) {
        json_decref(root);
        return wk_fail(err, WK_INVALID, "a key set is an object whose \"keys\" is an array of at most %d keys",
                       JWKS_MOST_KEYS);
    }
    struct jwks *set = calloc(1, sizeof *set);
    const char *first = NULL;
    size_t i;
    if (set) {
        atomic_init(&set->holders, 1);
        json_array_foreach (keys, i, jwk) {
            const char *why = make_key(jwk, algs, &set->keys[set->n]);
            if (!why) set->n++;
            if (!first) first = why;
        }
    }
    const size_t all = json_array_size(keys);
    json_decref(root);
    if (set && set->n) {
        *out = set;
        return WK_OK;
    }
    const bool memory = !set;
    jwks_release(set);
    if (memory) return wk_fail(err, WK_NO_MEMORY, "out of memory for a key set");
    return wk_fail(err, WK_INVALID, "none of the key set's %zu keys can be used%s%s", all, first ? "; the first: " : "",
                   first ? first : "");
}

struct jwks *jwks_hold(struct jwks *set)
{
    (void)atomic_fetch_add(&set->holders, 1);
    return set;
}

void jwks_release(struct jwks *set)
{
    if (!set || atomic_fetch_sub(&set->holders, 1) != 1) return;
    for (uint32_t i = 0; i < set->n; i++) EVP_PKEY_free(set->keys[i].key);
    free(set);
}

uint32_t jwks_count(const struct jwks *set) { return set->n; }

enum jwks_found jwks_find(const struct jwks *set, enum jwt_alg alg, const char *kid, size_t kid_len,
                          const struct jwks_key **out)
{
    uint32_t fit = 0;
    *out = NULL;
    for (uint32_t i = 0; i < set->n; i++) {
        const struct jwks_key *k = &set->keys[i];
        if (k->alg != alg) continue;
        if (kid && (!k->has_kid || k->kid_len != kid_len || memcmp(k->kid, kid, kid_len) != 0)) continue;
        fit++;
        *out = k;
    }
    if (fit == 1) return JWKS_FOUND;
    *out = NULL;
    return fit ? JWKS_SEVERAL : JWKS_NONE;
}

/* ---- signatures ------------------------------------------------------------------------------------------------- */

/* r and s as libcrypto wants them, to der [MOST_DER]; 0: they cannot be. */
static size_t to_der(const uint8_t *rs, uint8_t *der)
{
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(rs, COORDINATE, NULL), *s = BN_bin2bn(rs + COORDINATE, COORDINATE, NULL);
    size_t len = 0;
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s) == 1) {
        r = s = NULL; /* sig's now */
        const int n = i2d_ECDSA_SIG(sig, NULL);
        uint8_t *at = der;
        if (n > 0 && n <= MOST_DER && i2d_ECDSA_SIG(sig, &at) == n) len = (size_t)n;
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return len;
}

bool jwks_verify(const struct jwks_key *key, const void *text, size_t n, const uint8_t *signature, size_t signature_len)
{
    uint8_t der[MOST_DER];
    if (key->alg == JWT_ES256) {
        if (signature_len != 2 * COORDINATE || !(signature_len = to_der(signature, der))) return false;
        signature = der;
    } else if (signature_len != (size_t)EVP_PKEY_get_size(key->key)) {
        return false;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const bool good = ctx && EVP_DigestVerifyInit_ex(ctx, NULL, "SHA256", NULL, NULL, key->key, NULL) == 1 &&
                      EVP_DigestVerify(ctx, signature, signature_len, text, n) == 1;
    EVP_MD_CTX_free(ctx);
    return good;
}
