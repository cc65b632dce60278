/* test_jwt.c: tokens that must be taken, and tokens that must not, each refused for its own reason. The test signs all
 * of them itself; a forged one differs in one thing from one that is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "jwt.h"
#include "test_tokens.h"

#define NOW 1700000000
#define DATES "\"exp\":1700000600,\"nbf\":1699999990,\"iat\":1699999990"
#define WHO "\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":\"alice\""
#define GOOD "{" WHO "," DATES "}"
#define RS "{\"alg\":\"RS256\",\"kid\":\"r1\"}"
#define ES "{\"alg\":\"ES256\",\"kid\":\"e1\"}"
#define KID(kid) "{\"alg\":\"RS256\",\"kid\":" kid "}"

enum signer { BY_RSA, BY_EC, BY_OTHER_RSA, BY_OTHER_EC, BY_NOBODY, BY_ENC, BY_TWIN };

static EVP_PKEY *rsa, *ec, *other_rsa, *other_ec, *enc;
static struct jwks *keys;
static const struct jwt_rules plain = {
    .issuer = "https://issuer.test", .audience = "worker", .algs = JWT_ALGS, .roles_claim = "realm_access.roles"
};

static EVP_PKEY *key_of(enum signer by)
{
    return by == BY_RSA || by == BY_TWIN ? rsa
           : by == BY_EC                 ? ec
           : by == BY_OTHER_RSA          ? other_rsa
           : by == BY_OTHER_EC           ? other_ec
                                         : enc;
}

static char *token_by(enum signer by, const char *header, const char *claims)
{
    if (by != BY_NOBODY) return tokens_make(header, claims, key_of(by));
    char *text = tokens_unsigned(header, claims), *out = tokens_text("%s.AAAA", text);
    free(text);
    return out;
}

static int set_up(void **state)
{
    (void)state;
    rsa = tokens_rsa(2048, 65537);
    other_rsa = tokens_rsa(2048, 65537);
    enc = tokens_rsa(2048, 65537);
    ec = tokens_ec("P-256");
    other_ec = tokens_ec("P-256");
    char *r = tokens_jwk(rsa, "\"kid\":\"r1\",\"alg\":\"RS256\",\"use\":\"sig\",");
    char *e = tokens_jwk(ec, "\"kid\":\"e1\",\"key_ops\":[\"verify\"],");
    char *t1 = tokens_jwk(rsa, "\"kid\":\"twin\","), *t2 = tokens_jwk(other_rsa, "\"kid\":\"twin\",");
    char *x = tokens_jwk(enc, "\"kid\":\"enc\",\"use\":\"enc\",");
    char *set = tokens_text("{\"keys\":[%s,%s,%s,%s,%s]}", r, e, t1, t2, x), text[300] = "";
    const wk_status s = jwks_parse(set, strlen(set), JWT_ALGS, &keys, &(struct wk_err){ text, sizeof text });
    char *all[] = { r, e, t1, t2, x, set };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    return s || jwks_count(keys) != 4;
}

static int tear_down(void **state)
{
    (void)state;
    jwks_release(keys);
    EVP_PKEY *all[] = { rsa, ec, other_rsa, other_ec, enc };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) EVP_PKEY_free(all[i]);
    return 0;
}

/* Checked in memory that ends with the token. A refusal has a text, and leaves nothing in the claims. */
static void expect_n(const char *name, const char *token, size_t n, const struct jwks *set,
                     const struct jwt_rules *rules, enum jwt_result want)
{
    static struct jwt_claims c;
    char text[300] = "", *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, token, n);
    memset(&c, 0xff, sizeof c);
    const enum jwt_result got = jwt_check(exact, n, set, rules, NOW, &c, &(struct wk_err){ text, sizeof text });
    free(exact);
    if (got != want) fail_msg("%s: %s instead of %s: %s", name, jwt_result_name(got), jwt_result_name(want), text);
    if (want == JWT_FINE) return;
    assert_true(text[0] && strlen(text) < sizeof text - 1);
    assert_true(c.subject[0] == '\0' && c.client[0] == '\0' && c.expires == 0 && c.names_len == 0 && c.n_roles == 0 &&
                c.n_scopes == 0 && !jwt_next_name(&c, NULL));
}

static void expect(const char *name, char *token, enum jwt_result want)
{
    expect_n(name, token, strlen(token), keys, &plain, want);
    free(token);
}

struct row {
    const char *name, *header, *claims;
    enum signer by;
    enum jwt_result want;
};

static const struct row taken[] = {
    { "RS256", RS, GOOD, BY_RSA, JWT_FINE },
    { "ES256", ES, GOOD, BY_EC, JWT_FINE },
    { "one key of this alg, no kid", "{\"alg\":\"ES256\"}", GOOD, BY_EC, JWT_FINE },
    { "typ is free", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"anything\"}", GOOD, BY_RSA, JWT_FINE },
    { "kid with an escape", KID("\"\\u0072\\u0031\""), GOOD, BY_RSA, JWT_FINE },
    { "aud is a list", RS, "{\"iss\":\"https://issuer.test\",\"aud\":[\"a\",\"worker\"],\"sub\":\"s\"," DATES "}",
      BY_RSA, JWT_FINE },
    { "exp is real", RS, "{" WHO ",\"exp\":1700000001.5}", BY_RSA, JWT_FINE },
    { "exp with an exponent", RS, "{" WHO ",\"exp\":17000001e2}", BY_RSA, JWT_FINE },
    { "nbf and iat within the skew", RS, "{" WHO ",\"exp\":1700000600,\"nbf\":1700000060,\"iat\":1700000060}", BY_RSA,
      JWT_FINE },
    { "claims that nobody knows", RS, "{" WHO "," DATES ",\"jku\":\"x\",\"crit\":[\"x\"],\"alg\":\"none\"}", BY_RSA,
      JWT_FINE },
    { "keys in the header, which are not looked at",
      "{\"alg\":\"RS256\",\"kid\":\"r1\",\"jku\":\"https://a.test/\",\"x5u\":7,\"x5c\":[],\"jwk\":{\"kty\":\"oct\"}}",
      GOOD, BY_RSA, JWT_FINE },
};

static const struct row forged[] = {
    /* no signature, or a symmetric one */
    { "alg none", "{\"alg\":\"none\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg None", "{\"alg\":\"None\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg NONE", "{\"alg\":\"NONE\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg nOnE", "{\"alg\":\"nOnE\",\"kid\":\"r1\"}", GOOD, BY_NOBODY, JWT_ALG },
    { "alg none, spelt with an escape", "{\"alg\":\"n\\u006fne\"}", GOOD, BY_NOBODY, JWT_ALG },
    { "alg is empty", "{\"alg\":\"\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg with a space", "{\"alg\":\"RS256 \",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg rs256", "{\"alg\":\"rs256\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg RS512", "{\"alg\":\"RS512\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg PS256", "{\"alg\":\"PS256\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg ES256K", "{\"alg\":\"ES256K\",\"kid\":\"e1\"}", GOOD, BY_EC, JWT_ALG },
    { "alg EdDSA", "{\"alg\":\"EdDSA\",\"kid\":\"e1\"}", GOOD, BY_EC, JWT_ALG },
    { "alg HS256", "{\"alg\":\"HS256\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_ALG },
    { "alg is absent", "{\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "alg is null", "{\"alg\":null,\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "alg is a list", "{\"alg\":[\"RS256\"],\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "alg is a number", "{\"alg\":256,\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "alg stands twice", "{\"alg\":\"RS256\",\"alg\":\"none\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "alg stands twice, once with an escape", "{\"alg\":\"RS256\",\"\\u0061lg\":\"none\",\"kid\":\"r1\"}", GOOD,
      BY_RSA, JWT_HEADER },
    /* keys of others */
    { "another RSA key", RS, GOOD, BY_OTHER_RSA, JWT_SIGNATURE },
    { "another EC key", ES, GOOD, BY_OTHER_EC, JWT_SIGNATURE },
    { "an EC signature under the RSA key", RS, GOOD, BY_EC, JWT_SIGNATURE },
    { "RS256 with the EC key's kid", "{\"alg\":\"RS256\",\"kid\":\"e1\"}", GOOD, BY_RSA, JWT_NO_KEY },
    { "ES256 with the RSA key's kid", "{\"alg\":\"ES256\",\"kid\":\"r1\"}", GOOD, BY_EC, JWT_NO_KEY },
    { "the issuer's key for encryption", KID("\"enc\""), GOOD, BY_ENC, JWT_NO_KEY },
    { "a kid of two keys", KID("\"twin\""), GOOD, BY_TWIN, JWT_KEYS },
    { "no kid and several keys", "{\"alg\":\"RS256\"}", GOOD, BY_RSA, JWT_KEYS },
    { "no kid and another key", "{\"alg\":\"ES256\"}", GOOD, BY_OTHER_EC, JWT_NO_KEY },
    { "jku leads to another key", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"jku\":\"https://attacker.test/jwks.json\"}",
      GOOD, BY_OTHER_RSA, JWT_SIGNATURE },
    { "x5u leads to another key", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"x5u\":\"https://attacker.test/c.pem\"}", GOOD,
      BY_OTHER_RSA, JWT_SIGNATURE },
    /* kid */
    { "kid is unknown", KID("\"r2\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid in other letters", KID("\"R1\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is a prefix", KID("\"r\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid with more behind it", KID("\"r1 \""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is a path", KID("\"../../../../dev/null\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is SQL", KID("\"x' UNION SELECT 'key' -- \""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is a format", KID("\"%s%n%99999d\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is a URL", KID("\"https://attacker.test/r1\""), GOOD, BY_RSA, JWT_NO_KEY },
    { "kid is empty", KID("\"\""), GOOD, BY_RSA, JWT_KID },
    { "kid is null", KID("null"), GOOD, BY_RSA, JWT_KID },
    { "kid is a number", KID("1"), GOOD, BY_RSA, JWT_KID },
    { "kid is a list", KID("[\"r1\"]"), GOOD, BY_RSA, JWT_KID },
    { "kid is an object", KID("{\"r1\":1}"), GOOD, BY_RSA, JWT_KID },
    { "kid stands twice", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"kid\":\"r1\"}", GOOD, BY_RSA, JWT_HEADER },
    { "kid with a zero in it", KID("\"r1\\u0000\""), GOOD, BY_RSA, JWT_HEADER },
    /* the rest of the header */
    { "crit", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"crit\":[\"exp\"]}", GOOD, BY_RSA, JWT_CRIT },
    { "crit is empty", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"crit\":[]}", GOOD, BY_RSA, JWT_CRIT },
    { "crit is null", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"crit\":null}", GOOD, BY_RSA, JWT_CRIT },
    { "crit with b64", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"b64\":false,\"crit\":[\"b64\"]}", GOOD, BY_RSA, JWT_CRIT },
    { "typ is a number", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":1}", GOOD, BY_RSA, JWT_HEADER },
    { "header is a list", "[\"RS256\"]", GOOD, BY_RSA, JWT_HEADER },
    { "header is a text", "\"RS256\"", GOOD, BY_RSA, JWT_HEADER },
    { "header is null", "null", GOOD, BY_RSA, JWT_HEADER },
    { "header is not JSON", "alg=RS256", GOOD, BY_RSA, JWT_HEADER },
    { "header has something behind it", RS "x", GOOD, BY_RSA, JWT_HEADER },
    { "header is two objects", RS RS, GOOD, BY_RSA, JWT_HEADER },
    { "header in single quotes", "{'alg':'RS256','kid':'r1'}", GOOD, BY_RSA, JWT_HEADER },
    { "header with a comment", "{\"alg\":\"RS256\",\"kid\":\"r1\"/**/}", GOOD, BY_RSA, JWT_HEADER },
    { "header with a comma too many", "{\"alg\":\"RS256\",\"kid\":\"r1\",}", GOOD, BY_RSA, JWT_HEADER },
    { "header is not UTF-8", "{\"alg\":\"RS256\",\"kid\":\"r1\",\"x\":\"\xff\"}", GOOD, BY_RSA, JWT_HEADER },
    { "header is in UTF-8 with a mark", "\xef\xbb\xbf" RS, GOOD, BY_RSA, JWT_HEADER },
    /* iss */
    { "another issuer", RS, "{\"iss\":\"https://attacker.test\",\"aud\":\"worker\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_ISSUER },
    { "issuer with a slash", RS, "{\"iss\":\"https://issuer.test/\",\"aud\":\"worker\",\"sub\":\"s\"," DATES "}",
      BY_RSA, JWT_ISSUER },
    { "issuer in other letters", RS, "{\"iss\":\"https://Issuer.test\",\"aud\":\"worker\",\"sub\":\"s\"," DATES "}",
      BY_RSA, JWT_ISSUER },
    { "issuer with more behind it", RS,
      "{\"iss\":\"https://issuer.test.attacker.test\",\"aud\":\"worker\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_ISSUER },
    { "no issuer", RS, "{\"aud\":\"worker\",\"sub\":\"s\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "issuer is null", RS, "{\"iss\":null,\"aud\":\"worker\",\"sub\":\"s\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "issuer is a list", RS, "{\"iss\":[\"https://issuer.test\"],\"aud\":\"worker\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_CLAIMS },
    { "issuer stands twice", RS, "{\"iss\":\"https://issuer.test\"," WHO "," DATES "}", BY_RSA, JWT_CLAIMS },
    /* aud */
    { "another audience", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"billing\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_AUDIENCE },
    { "other audiences", RS, "{\"iss\":\"https://issuer.test\",\"aud\":[\"a\",\"b\"],\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_AUDIENCE },
    { "an empty list of audiences", RS, "{\"iss\":\"https://issuer.test\",\"aud\":[],\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_AUDIENCE },
    { "an audience that begins with ours", RS,
      "{\"iss\":\"https://issuer.test\",\"aud\":\"worker2\",\"sub\":\"s\"," DATES "}", BY_RSA, JWT_AUDIENCE },
    { "ours among words", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"a worker\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_AUDIENCE },
    { "an empty audience", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"\",\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_AUDIENCE },
    { "no audience", RS, "{\"iss\":\"https://issuer.test\",\"sub\":\"s\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "audience is null", RS, "{\"iss\":\"https://issuer.test\",\"aud\":null,\"sub\":\"s\"," DATES "}", BY_RSA,
      JWT_CLAIMS },
    { "audience is an object", RS, "{\"iss\":\"https://issuer.test\",\"aud\":{\"worker\":1},\"sub\":\"s\"," DATES "}",
      BY_RSA, JWT_CLAIMS },
    { "audience with a number in it", RS,
      "{\"iss\":\"https://issuer.test\",\"aud\":[\"worker\",1],\"sub\":\"s\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "audience in a list in a list", RS,
      "{\"iss\":\"https://issuer.test\",\"aud\":[[\"worker\"]],\"sub\":\"s\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "audience stands twice", RS, "{\"aud\":\"billing\"," WHO "," DATES "}", BY_RSA, JWT_CLAIMS },
    /* dates */
    { "expired", RS, "{" WHO ",\"exp\":1699999000}", BY_RSA, JWT_EXPIRED },
    { "expires now: exp has no skew", RS, "{" WHO ",\"exp\":1700000000}", BY_RSA, JWT_EXPIRED },
    { "expires within this second", RS, "{" WHO ",\"exp\":1700000000.9}", BY_RSA, JWT_EXPIRED },
    { "exp is 0", RS, "{" WHO ",\"exp\":0}", BY_RSA, JWT_EXPIRED },
    { "no exp", RS, "{" WHO "}", BY_RSA, JWT_CLAIMS },
    { "exp is null", RS, "{" WHO ",\"exp\":null}", BY_RSA, JWT_CLAIMS },
    { "exp is a text", RS, "{" WHO ",\"exp\":\"1700000600\"}", BY_RSA, JWT_CLAIMS },
    { "exp is a list", RS, "{" WHO ",\"exp\":[1700000600]}", BY_RSA, JWT_CLAIMS },
    { "exp is true", RS, "{" WHO ",\"exp\":true}", BY_RSA, JWT_CLAIMS },
    { "exp is negative", RS, "{" WHO ",\"exp\":-1}", BY_RSA, JWT_CLAIMS },
    { "exp is beyond the year 9999", RS, "{" WHO ",\"exp\":253402300800}", BY_RSA, JWT_CLAIMS },
    { "exp is beyond 64 bits", RS, "{" WHO ",\"exp\":99999999999999999999}", BY_RSA, JWT_CLAIMS },
    { "exp is 1e300", RS, "{" WHO ",\"exp\":1e300}", BY_RSA, JWT_CLAIMS },
    { "exp is infinite", RS, "{" WHO ",\"exp\":1e999}", BY_RSA, JWT_CLAIMS },
    { "exp stands twice", RS, "{" WHO ",\"exp\":1,\"exp\":1700000600}", BY_RSA, JWT_CLAIMS },
    { "exp stands twice, once with an escape", RS, "{" WHO ",\"exp\":1,\"e\\u0078p\":1700000600}", BY_RSA, JWT_CLAIMS },
    { "nbf lies in the future", RS, "{" WHO ",\"exp\":1700000600,\"nbf\":1700000061}", BY_RSA, JWT_EARLY },
    { "iat lies in the future", RS, "{" WHO ",\"exp\":1700000600,\"iat\":1700000061}", BY_RSA, JWT_EARLY },
    { "nbf is a text", RS, "{" WHO ",\"exp\":1700000600,\"nbf\":\"0\"}", BY_RSA, JWT_CLAIMS },
    { "iat is null", RS, "{" WHO ",\"exp\":1700000600,\"iat\":null}", BY_RSA, JWT_CLAIMS },
    /* who */
    { "no sub", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"worker\"," DATES "}", BY_RSA, JWT_CLAIMS },
    { "sub is empty", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":\"\"," DATES "}", BY_RSA,
      JWT_CLAIMS },
    { "sub is a number", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":1," DATES "}", BY_RSA,
      JWT_CLAIMS },
    { "sub with a line's end", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":\"a\\nb\"," DATES "}",
      BY_RSA, JWT_CLAIMS },
    { "sub with a zero", RS, "{\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":\"a\\u0000\"," DATES "}",
      BY_RSA, JWT_CLAIMS },
    { "azp is a list", RS, "{" WHO "," DATES ",\"azp\":[\"a\"]}", BY_RSA, JWT_CLAIMS },
    /* scopes and roles */
    { "scope is a list", RS, "{" WHO "," DATES ",\"scope\":[\"admin\"]}", BY_RSA, JWT_CLAIMS },
    { "scope is null", RS, "{" WHO "," DATES ",\"scope\":null}", BY_RSA, JWT_CLAIMS },
    { "scope with a tabulator", RS, "{" WHO "," DATES ",\"scope\":\"a\\tadmin\"}", BY_RSA, JWT_CLAIMS },
    { "scp is an object", RS, "{" WHO "," DATES ",\"scp\":{\"admin\":true}}", BY_RSA, JWT_CLAIMS },
    { "scp with a number in it", RS, "{" WHO "," DATES ",\"scp\":[\"admin\",1]}", BY_RSA, JWT_CLAIMS },
    { "roles are an object", RS, "{" WHO "," DATES ",\"realm_access\":{\"roles\":{\"admin\":true}}}", BY_RSA,
      JWT_CLAIMS },
    { "roles with null in them", RS, "{" WHO "," DATES ",\"realm_access\":{\"roles\":[null]}}", BY_RSA, JWT_CLAIMS },
    /* the claims as a whole */
    { "claims are a list", RS, "[" GOOD "]", BY_RSA, JWT_CLAIMS },
    { "claims are not JSON", RS, "iss=https://issuer.test", BY_RSA, JWT_CLAIMS },
    { "claims have something behind them", RS, GOOD "{}", BY_RSA, JWT_CLAIMS },
    { "an unknown claim stands twice", RS, "{" WHO "," DATES ",\"x\":1,\"x\":1}", BY_RSA, JWT_CLAIMS },
    { "a name stands twice, deep inside", RS, "{" WHO "," DATES ",\"x\":[{\"y\":{\"z\":1,\"z\":2}}]}", BY_RSA,
      JWT_CLAIMS },
};

static void run_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect(rows[i].name, token_by(rows[i].by, rows[i].header, rows[i].claims), rows[i].want);
}

static void test_taken(void **state)
{
    (void)state;
    run_rows(taken, sizeof taken / sizeof taken[0]);
}

static void test_forged(void **state)
{
    (void)state;
    run_rows(forged, sizeof forged / sizeof forged[0]);
}

/* HS256 with what everybody knows as the secret: the public key, as PEM, as DER, its modulus, nothing. */
static void test_public_key_as_secret(void **state)
{
    (void)state;
    BIO *pem = BIO_new(BIO_s_mem());
    uint8_t *der = NULL;
    char *text = NULL;
    assert_non_null(pem);
    assert_int_equal(PEM_write_bio_PUBKEY(pem, rsa), 1);
    const long pem_len = BIO_get_mem_data(pem, &text);
    const int der_len = i2d_PUBKEY(rsa, &der);
    assert_true(pem_len > 0 && der_len > 0);
    char *n = tokens_number(rsa, OSSL_PKEY_PARAM_RSA_N, 0);
    const struct {
        const void *secret;
        size_t len;
    } secrets[] = {
        { text, (size_t)pem_len }, { text, (size_t)pem_len - 1 }, { der, (size_t)der_len }, { n, strlen(n) }, { "", 0 }
    };
    static const struct {
        const char *header;
        enum jwt_result want;
    } heads[] = { { "{\"alg\":\"HS256\",\"kid\":\"r1\"}", JWT_ALG },
                  { "{\"alg\":\"HS256\"}", JWT_ALG },
                  { RS, JWT_SIGNATURE } };
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        for (size_t k = 0; k < sizeof heads / sizeof heads[0]; k++) {
            char *t = tokens_unsigned(heads[k].header, GOOD);
            size_t len = 0;
            uint8_t *mac = tokens_hmac(secrets[i].secret, secrets[i].len, t, &len);
            expect("public key as secret", tokens_join(t, mac, len), heads[k].want);
        }
    free(n);
    OPENSSL_free(der);
    BIO_free(pem);
}

/* The attacker's key in the header, and a token that it signed. */
static void test_key_in_header(void **state)
{
    (void)state;
    char *jwk = tokens_jwk(other_rsa, "\"kid\":\"r1\",");
    char *heads[] = { tokens_text("{\"alg\":\"RS256\",\"kid\":\"r1\",\"jwk\":%s}", jwk),
                      tokens_text("{\"alg\":\"RS256\",\"kid\":\"r9\",\"jwk\":%s}", jwk),
                      tokens_text("{\"alg\":\"RS256\",\"kid\":\"r1\",\"x5c\":[\"MIIB\"],\"jwk\":%s}", jwk) };
    static const enum jwt_result want[] = { JWT_SIGNATURE, JWT_NO_KEY, JWT_SIGNATURE };
    for (size_t i = 0; i < 3; i++) {
        expect("key in header", token_by(BY_OTHER_RSA, heads[i], GOOD), want[i]);
        free(heads[i]);
    }
    free(jwk);
}

/* What is no token: parts, characters, padding, bytes before and behind. */
static void test_form(void **state)
{
    (void)state;
    char *good = token_by(BY_RSA, RS, GOOD);
    static const struct {
        const char *name, *format;
        enum jwt_result want;
    } forms[] = { { "the token", "%s", JWT_FINE },
                  { "a space behind", "%s ", JWT_FORM },
                  { "a line's end behind", "%s\n", JWT_FORM },
                  { "padding behind", "%s=", JWT_FORM },
                  { "a part more", "%s.AAAA", JWT_FORM },
                  { "five parts", "%s.AAAA.AAAA", JWT_FORM },
                  { "a dot behind", "%s.", JWT_FORM },
                  { "a dot before", ".%s", JWT_FORM },
                  { "a space before", " %s", JWT_FORM },
                  { "Bearer", "Bearer %s", JWT_FORM },
                  { "in quotes", "\"%s\"", JWT_FORM },
                  { "characters of plain base64", "%s+/", JWT_FORM } };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        char *t = tokens_text(forms[i].format, good);
#pragma GCC diagnostic pop
        expect(forms[i].name, t, forms[i].want);
    }
    expect_n("nothing", "", 0, keys, &plain, JWT_SIZE);
    const char *const bare[] = { ".", "..", "...", "a", "a.b", "a..c", ".b.c", "a.b.", "a.b.c", "....", "a.b.c.d.e" };
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) expect(bare[i], tokens_text("%s", bare[i]), JWT_FORM);
    char *dot = strrchr(good, '.');
    expect("no signature", tokens_text("%.*s", (int)(dot - good), good), JWT_FORM);
    expect("an empty signature", tokens_text("%.*s.", (int)(dot - good), good), JWT_FORM);
    expect_n("a zero behind", good, strlen(good) + 1, keys, &plain, JWT_FORM);
    for (size_t at = 0; at < strlen(good); at += 7) { /* a zero, a high byte and a line's end anywhere */
        static const char bad[] = { '\0', '\x80', '\n', '+' };
        for (size_t k = 0; k < sizeof bad; k++) {
            char *t = strdup(good);
            assert_non_null(t);
            t[at] = bad[k];
            static struct jwt_claims c;
            assert_int_equal(jwt_check(t, strlen(good), keys, &plain, NOW, &c, NULL), JWT_FORM);
            free(t);
        }
    }
    free(good);
}

/* Another character anywhere is another token: 256 bytes of signature end in a character with bits to spare, which must
 * be zero, so that each token has one spelling. */
static void test_every_character_counts(void **state)
{
    (void)state;
    static struct jwt_claims c;
    char *const tokens[] = { token_by(BY_RSA, RS, GOOD), token_by(BY_EC, ES, GOOD) };
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(tokens[i]);
        assert_int_equal(jwt_check(tokens[i], n, keys, &plain, NOW, &c, NULL), JWT_FINE);
        for (size_t at = 0; at < n; at++) {
            const char was = tokens[i][at];
            tokens[i][at] = was == 'A' ? 'B' : was == '.' ? 'A' : (char)(was ^ 1);
            assert_int_not_equal(jwt_check(tokens[i], n, keys, &plain, NOW, &c, NULL), JWT_FINE);
            tokens[i][at] = was;
        }
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        const char last = tokens[i][n - 1];
        int spellings = 0;
        for (size_t k = 0; k < sizeof digits - 1; k++) {
            tokens[i][n - 1] = digits[k];
            spellings += jwt_check(tokens[i], n, keys, &plain, NOW, &c, NULL) == JWT_FINE;
        }
        tokens[i][n - 1] = last;
        assert_int_equal(spellings, 1);
        for (size_t k = 1; k < n; k++)
            assert_int_not_equal(jwt_check(tokens[i], n - k, keys, &plain, NOW, &c, NULL), 0);
        free(tokens[i]);
    }
}

static void test_size(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) { /* of exactly 16384 bytes, and of a few more */
        char *filler = malloc(16000);
        assert_non_null(filler);
        char *token = NULL;
        for (size_t n = 11400; n < 12400; n++) {
            memset(filler, 'x', n);
            filler[n] = '\0';
            char *claims = tokens_text("{" WHO "," DATES ",\"x\":\"%s\"}", filler);
            free(token);
            token = token_by(BY_EC, ES, claims);
            free(claims);
            if (strlen(token) >= JWT_MOST_BYTES - 1 + (size_t)over * 2) break;
        }
        assert_true(over ? strlen(token) > JWT_MOST_BYTES : strlen(token) <= JWT_MOST_BYTES);
        expect("size", token, over ? JWT_SIZE : JWT_FINE);
        free(filler);
    }
    char kid[400];
    memset(kid, 'k', sizeof kid - 1);
    for (size_t n = JWKS_MOST_KID; n <= JWKS_MOST_KID + 1; n++) {
        char *head = tokens_text("{\"alg\":\"RS256\",\"kid\":\"%.*s\"}", (int)n, kid);
        expect("length of kid", token_by(BY_RSA, head, GOOD), n <= JWKS_MOST_KID ? JWT_NO_KEY : JWT_KID);
        free(head);
    }
    memset(kid, 's', sizeof kid - 1);
    for (size_t n = JWT_MOST_SUBJECT; n <= JWT_MOST_SUBJECT + 1; n++) {
        char *claims =
            tokens_text("{\"iss\":\"https://issuer.test\",\"aud\":\"worker\",\"sub\":\"%.*s\"," DATES "}", (int)n, kid);
        expect("length of sub", token_by(BY_RSA, RS, claims), n <= JWT_MOST_SUBJECT ? JWT_FINE : JWT_CLAIMS);
        free(claims);
    }
    char *deep = malloc(10001);
    assert_non_null(deep);
    memset(deep, '[', 10000);
    deep[10000] = '\0';
    expect("deep", token_by(BY_RSA, RS, deep), JWT_CLAIMS);
    expect("deep header", token_by(BY_RSA, deep, "{}"), JWT_HEADER);
    free(deep);
}

/* The right text under a signature of another form. */
static void expect_signature(const char *name, const char *header, const uint8_t *bytes, size_t n)
{
    char *text = tokens_unsigned(header, GOOD);
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    expect(name, tokens_join(text, copy, n), JWT_SIGNATURE);
}

static void test_ec_signatures(void **state)
{
    (void)state;
    char *text = tokens_unsigned(ES, GOOD);
    size_t len = 0;
    uint8_t *good = tokens_sign(ec, "SHA256", 0, text, &len), other[200] = { 0 };
    static const uint8_t order[32] = { 0xff, 0xff, 0xff, 0xff, 0,    0,    0,    0,    0xff, 0xff, 0xff,
                                       0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17,
                                       0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51 };
    assert_int_equal(len, 64);
    expect_signature("r and s are zero", ES, other, 64);
    memcpy(other, good, 32);
    expect_signature("s is zero", ES, other, 64);
    memset(other, 0, 32);
    memcpy(other + 32, good + 32, 32);
    expect_signature("r is zero", ES, other, 64);
    memcpy(other, order, 32);
    memcpy(other + 32, order, 32);
    expect_signature("r and s are the order", ES, other, 64);
    memset(other, 0xff, 64);
    expect_signature("r and s are above the order", ES, other, 64);
    memset(other, 0, 64);
    other[31] = other[63] = 1;
    expect_signature("r and s are 1", ES, other, 64);
    memcpy(other, good + 32, 32);
    memcpy(other + 32, good, 32);
    expect_signature("s before r", ES, other, 64);
    memcpy(other, good, 64);
    expect_signature("63 bytes", ES, other, 63);
    other[64] = 0;
    expect_signature("65 bytes", ES, other, 65);
    memset(other, 0, sizeof other);
    memcpy(other + 1, good, 32);
    memcpy(other + 34, good + 32, 32);
    expect_signature("r and s in 33 bytes each", ES, other, 66);
    /* DER, as OpenSSL writes it */
    ECDSA_SIG *sig = ECDSA_SIG_new();
    uint8_t *at = other;
    assert_non_null(sig);
    assert_int_equal(ECDSA_SIG_set0(sig, BN_bin2bn(good, 32, NULL), BN_bin2bn(good + 32, 32, NULL)), 1);
    const int der = i2d_ECDSA_SIG(sig, &at);
    assert_true(der > 64);
    expect_signature("in DER", ES, other, (size_t)der);
    ECDSA_SIG_free(sig);
    expect("the signature itself", tokens_join(text, good, len), JWT_FINE);
}

static void test_rsa_signatures(void **state)
{
    (void)state;
    char *text = tokens_unsigned(RS, GOOD);
    size_t len = 0;
    uint8_t *good = tokens_sign(rsa, "SHA256", 0, text, &len), other[400] = { 0 };
    assert_int_equal(len, 256);
    expect_signature("zeros", RS, other, 256);
    other[255] = 1;
    expect_signature("one", RS, other, 256);
    memset(other, 0xff, 256);
    expect_signature("above n", RS, other, 256);
    memcpy(other, good, 256);
    expect_signature("255 bytes", RS, other, 255);
    other[256] = 0;
    expect_signature("257 bytes", RS, other, 257);
    memmove(other + 1, good, 256);
    other[0] = 0;
    expect_signature("a zero before it", RS, other, 257);
    static uint8_t most[3000];
    expect_signature("2000 bytes", RS, most, 2000);
    for (int pss = 0; pss < 2; pss++) {
        size_t n = 0;
        uint8_t *s = tokens_sign(rsa, pss ? "SHA256" : "SHA512", pss, text, &n);
        expect_signature(pss ? "PSS" : "SHA-512", RS, s, n);
        free(s);
    }
    size_t n = 0;
    char *shorter = strdup(text);
    assert_non_null(shorter);
    shorter[strlen(shorter) - 1] = '\0';
    uint8_t *s = tokens_sign(rsa, "SHA256", 0, shorter, &n);
    expect_signature("of a shorter text", RS, s, n);
    free(s);
    free(shorter);
    expect("the signature itself", tokens_join(text, good, len), JWT_FINE);
}

/* Rules that a configuration adds. */
static void test_rules(void **state)
{
    (void)state;
    static const char *const clients[] = { "chat", "batch" };
    struct jwt_rules typed = plain, listed = plain, rs = plain, es = plain;
    typed.typ = "at+jwt";
    listed.clients = clients;
    listed.n_clients = 2;
    rs.algs = JWT_RS256;
    es.algs = JWT_ES256;
    const struct {
        const struct jwt_rules *rules;
        const char *header, *claims;
        enum signer by;
        enum jwt_result want;
    } rows[] = {
        { &typed, RS, GOOD, BY_RSA, JWT_TYP },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"JWT\"}", GOOD, BY_RSA, JWT_TYP },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"\"}", GOOD, BY_RSA, JWT_TYP },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"at+jwt2\"}", GOOD, BY_RSA, JWT_TYP },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":null}", GOOD, BY_RSA, JWT_HEADER },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"AT+JWT\"}", GOOD, BY_RSA, JWT_FINE },
        { &typed, "{\"alg\":\"RS256\",\"kid\":\"r1\",\"typ\":\"application/at+jwt\"}", GOOD, BY_RSA, JWT_FINE },
        { &listed, RS, GOOD, BY_RSA, JWT_CLIENT },
        { &listed, RS, "{" WHO "," DATES ",\"azp\":\"evil\"}", BY_RSA, JWT_CLIENT },
        { &listed, RS, "{" WHO "," DATES ",\"azp\":\"chat\",\"client_id\":\"evil\"}", BY_RSA, JWT_CLIENT },
        { &listed, RS, "{" WHO "," DATES ",\"azp\":\"\"}", BY_RSA, JWT_CLAIMS },
        { &listed, RS, "{" WHO "," DATES ",\"azp\":\"chat\"}", BY_RSA, JWT_FINE },
        { &listed, RS, "{" WHO "," DATES ",\"client_id\":\"batch\"}", BY_RSA, JWT_FINE },
        { &rs, ES, GOOD, BY_EC, JWT_ALG },
        { &es, RS, GOOD, BY_RSA, JWT_ALG },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *t = token_by(rows[i].by, rows[i].header, rows[i].claims), name[32];
        (void)snprintf(name, sizeof name, "rule %zu", i);
        expect_n(name, t, strlen(t), keys, rows[i].rules, rows[i].want);
        free(t);
    }
}

static void expect_names(const char *claims, const char *roles_claim, uint32_t n_scopes, const char *const *names)
{
    static struct jwt_claims c;
    struct jwt_rules rules = plain;
    char *t = token_by(BY_EC, ES, claims), text[300] = "";
    rules.roles_claim = roles_claim;
    const enum jwt_result r = jwt_check(t, strlen(t), keys, &rules, NOW, &c, &(struct wk_err){ text, sizeof text });
    if (r) fail_msg("%s: %s", claims, text);
    free(t);
    const char *name = NULL;
    uint32_t n = 0;
    for (; names[n]; n++) {
        name = jwt_next_name(&c, name);
        assert_non_null(name);
        assert_string_equal(name, names[n]);
    }
    assert_true(c.n_scopes == n_scopes && c.n_scopes + c.n_roles == n);
    if (n) assert_null(jwt_next_name(&c, name));
    assert_string_equal(c.subject, "alice");
    assert_int_equal(c.expires, 1700000600);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_names(void **state)
{
    (void)state;
    expect_names(GOOD, "roles", 0, (const char *const[]){ NULL });
    expect_names("{" WHO "," DATES ",\"scope\":\"inference  embed \"}", "roles", 2, NAMES("inference", "embed"));
    expect_names("{" WHO "," DATES ",\"scp\":\"a b\",\"roles\":\"one role\"}", "roles", 2, NAMES("a", "b", "one role"));
    expect_names("{" WHO "," DATES ",\"scp\":[\"a\",\"b c\"]}", "roles", 2, NAMES("a", "b c"));
    expect_names("{" WHO "," DATES ",\"scope\":\"a\",\"scp\":[\"admin\"]}", "roles", 1, NAMES("a"));
    expect_names("{" WHO "," DATES ",\"realm_access\":{\"roles\":[\"x\",\"y\"]},\"roles\":[\"admin\"]}",
                 "realm_access.roles", 0, NAMES("x", "y"));
    expect_names("{" WHO "," DATES ",\"https://a.test/roles\":[\"x\"]}", "https://a.test/roles", 0, NAMES("x"));
    expect_names("{" WHO "," DATES ",\"a\":{\"b\":1}}", "a.c", 0, (const char *const[]){ NULL });
    expect_names("{" WHO "," DATES ",\"a\":[\"admin\"]}", "a.0", 0, (const char *const[]){ NULL });
    expect_names("{" WHO "," DATES ",\"a\":{\"\":[\"admin\"]}}", "a.b", 0, (const char *const[]){ NULL });
    expect_names("{" WHO "," DATES ",\"roles\":[\"admin\"]}", NULL, 0, (const char *const[]){ NULL });
}

/* Of a set with one key that has no kid, and of one whose only key has one. */
static void test_without_kid(void **state)
{
    (void)state;
    char *jwk = tokens_jwk(rsa, ""), *set_text = tokens_text("{\"keys\":[%s]}", jwk);
    struct jwks *set = NULL;
    assert_int_equal(jwks_parse(set_text, strlen(set_text), JWT_ALGS, &set, NULL), WK_OK);
    char *t = token_by(BY_RSA, "{\"alg\":\"RS256\"}", GOOD);
    expect_n("neither has a kid", t, strlen(t), set, &plain, JWT_FINE);
    free(t);
    t = token_by(BY_RSA, RS, GOOD);
    expect_n("a kid that the key has not", t, strlen(t), set, &plain, JWT_NO_KEY);
    free(t);
    jwks_release(set);
    free(set_text);
    free(jwk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_public_key_as_secret),
        cmocka_unit_test(test_key_in_header),
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_every_character_counts),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_ec_signatures),
        cmocka_unit_test(test_rsa_signatures),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_without_kid),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
