/* fuzz_jwt.c: libFuzzer target: any bytes as a token, as an issuer's key set, as the header and claims of a token that
 * is then signed rightly, and as a policy server's answer. The first byte says which. */
#include <stdbool.h>
#include <stddef.h>

#include "jwt.h"
#include "opa.h"
#include "test_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static EVP_PKEY *key;
static struct jwks *keys;

static void open_keys(void)
{
    if (keys) return;
    key = tokens_ec("P-256");
    char *jwk = tokens_jwk(key, "\"kid\":\"e1\","), *set = tokens_text("{\"keys\":[%s]}", jwk);
    tokens_need(jwks_parse(set, strlen(set), JWT_ALGS, &keys, NULL) == WK_OK);
    free(set);
    free(jwk);
}

static void check(const char *token, size_t n, bool is_signed)
{
    static const char *const clients[] = { "chat" };
    static struct jwt_claims c;
    const struct jwt_rules rules[] = {
        { .issuer = "https://issuer.test", .audience = "worker", .algs = JWT_ALGS, .roles_claim = "a.roles" },
        { .issuer = "i", .audience = "w", .algs = JWT_ES256, .typ = "at+jwt", .clients = clients, .n_clients = 1 }
    };
    for (size_t i = 0; i < 2; i++) {
        char text[300] = "";
        const enum jwt_result r =
            jwt_check(token, n, keys, &rules[i], 1700000000, &c, &(struct wk_err){ text, sizeof text });
        uint32_t names = 0;
        for (const char *name = NULL; (name = jwt_next_name(&c, name)) != NULL; names++) tokens_need(*name != '\0');
        tokens_need(names == c.n_scopes + c.n_roles && c.names_len <= JWT_NAMES_BYTES);
        if (r)
            tokens_need(text[0] && !c.subject[0] && !names && jwt_result_name(r));
        else
            tokens_need(is_signed && c.subject[0] && c.expires > 1700000000);
    }
}

static void check_set(const char *bytes, size_t n)
{
    struct jwks *set = NULL;
    char text[300] = "";
    if (jwks_parse(bytes, n, JWT_ALGS, &set, &(struct wk_err){ text, sizeof text }) != WK_OK) {
        tokens_need(text[0] && !set);
        return;
    }
    const struct jwks_key *found;
    tokens_need(jwks_count(set) >= 1 && jwks_count(set) <= JWKS_MOST_KEYS);
    for (int alg = JWT_RS256; alg <= JWT_ES256; alg++)
        if (jwks_find(set, (enum jwt_alg)alg, NULL, 0, &found) == JWKS_FOUND)
            (void)jwks_verify(found, bytes, n, (const uint8_t *)bytes, n);
    jwks_release(set);
}

/* The two texts, with a zero between them, as a token of the test's issuer. */
static void check_signed(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    tokens_need(copy != NULL);
    memcpy(copy, text, n);
    copy[n] = '\0';
    const size_t head = strlen(copy);
    char *token = tokens_make(copy, head < n ? copy + head + 1 : "", key);
    check(token, strlen(token), true);
    free(token);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    open_keys();
    const char *text = (const char *)data + 1;
    struct opa_decision d;
    switch (data[0] % 4) {
    case 0: check(text, size - 1, false); break;
    case 1: check_set(text, size - 1); break;
    case 2: check_signed(text, size - 1); break;
    default:
        tokens_need(opa_read(200, text, size - 1, &d) == (d.kind == OPA_ALLOWED));
        tokens_need((d.kind == OPA_ALLOWED) == (d.reason[0] == '\0') && opa_kind_name(d.kind));
        opa_decision_free(&d);
    }
    return 0;
}
