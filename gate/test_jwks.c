/* test_jwks.c: which keys of an issuer's document are used, and which documents are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/base64url.h"

#include "jwks.h"
#include "test_tokens.h"

static EVP_PKEY *rsa, *ec;

static int set_up(void **state)
{
    (void)state;
    rsa = tokens_rsa(2048, 65537);
    ec = tokens_ec("P-256");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    EVP_PKEY_free(rsa);
    EVP_PKEY_free(ec);
    return 0;
}

/* Takes the text over. n: keys that can be used; 0: refused, with a text that has `why` in it. */
static void expect_set(char *text, uint32_t algs, uint32_t n, const char *why)
{
    struct jwks *set = NULL;
    char said[300] = "";
    const size_t len = strlen(text);
    char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, text, len);
    const wk_status s = jwks_parse(exact, len, algs, &set, &(struct wk_err){ said, sizeof said });
    free(exact);
    if ((s == WK_OK) != (n > 0) || (set ? jwks_count(set) : 0) != n || (why && !strstr(said, why)))
        fail_msg("%.200s: status %d, %u keys, \"%s\" (expected: %u, \"%s\")", text, s, set ? jwks_count(set) : 0, said,
                 n, why ? why : "");
    jwks_release(set);
    free(text);
}

/* One key as it is given: used, or left out and why. Takes the text over. */
static void expect_key(char *jwk, const char *why)
{
    expect_set(tokens_text("{\"keys\":[%s]}", jwk), JWT_ALGS, why ? 0 : 1, why);
    free(jwk);
}

static void test_documents(void **state)
{
    (void)state;
    static const char *const wrong[][2] = { { "", "not JSON" },
                                            { "{", "not JSON" },
                                            { "[]", "\"keys\" is an array" },
                                            { "{}", "\"keys\" is an array" },
                                            { "null", "not JSON" },
                                            { "{\"keys\":null}", "\"keys\" is an array" },
                                            { "{\"keys\":{}}", "\"keys\" is an array" },
                                            { "{\"keys\":\"x\"}", "\"keys\" is an array" },
                                            { "{\"keys\":[]}", "none of the key set's 0 keys" },
                                            { "{\"keys\":[1,null,\"x\",[]]}", "none of the key set's 4 keys" },
                                            { "{\"keys\":[],\"keys\":[]}", "not JSON" },
                                            { "{\"keys\":[{\"kty\":\"RSA\",\"kty\":\"RSA\"}]}", "not JSON" },
                                            { "{\"keys\":[]} x", "not JSON" } };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_set(tokens_text("%s", wrong[i][0]), JWT_ALGS, 0, wrong[i][1]);
    char *r = tokens_jwk(rsa, ""), *e = tokens_jwk(ec, "");
    expect_set(tokens_text("{\"keys\":[1,%s,{},%s,{\"kty\":\"oct\",\"k\":\"AAAA\"}],\"more\":1}", r, e), JWT_ALGS, 2,
               "");
    expect_set(tokens_text("{\"keys\":[%s,%s]}", r, e), JWT_RS256, 1, "");
    expect_set(tokens_text("{\"keys\":[%s]}", e), JWT_RS256, 0, "not in use here");
    char *many = malloc(64000);
    assert_non_null(many);
    for (int n = JWKS_MOST_KEYS; n <= JWKS_MOST_KEYS + 1; n++) {
        many[0] = '\0';
        for (int i = 0; i < n; i++) {
            if (i) strcat(many, ",");
            strcat(many, e);
        }
        expect_set(tokens_text("{\"keys\":[%s]}", many), JWT_ALGS, n <= JWKS_MOST_KEYS ? JWKS_MOST_KEYS : 0, "");
    }
    free(many);
    char *large = malloc(JWKS_MOST_BYTES + 1);
    assert_non_null(large);
    memset(large, ' ', JWKS_MOST_BYTES);
    large[JWKS_MOST_BYTES] = '\0';
    char *all = tokens_text("{\"keys\":[%s]}", e);
    memcpy(large, all, strlen(all));
    expect_set(tokens_text("%s", large), JWT_ALGS, 1, "");
    expect_set(tokens_text("%s ", large), JWT_ALGS, 0, "256 KiB");
    free(all);
    free(large);
    free(r);
    free(e);
}

static void test_members(void **state)
{
    (void)state;
    static const struct {
        const char *more, *why;
    } rows[] = { { "", NULL },
                 { "\"use\":\"sig\",", NULL },
                 { "\"use\":\"enc\",", "use is not sig" },
                 { "\"use\":null,", "use is not sig" },
                 { "\"use\":[\"sig\"],", "use is not sig" },
                 { "\"alg\":\"RS256\",", NULL },
                 { "\"alg\":\"RS512\",", "alg is not" },
                 { "\"alg\":\"PS256\",", "alg is not" },
                 { "\"alg\":\"HS256\",", "alg is not" },
                 { "\"alg\":256,", "alg is not" },
                 { "\"key_ops\":[\"verify\"],", NULL },
                 { "\"key_ops\":[\"sign\",\"verify\"],", NULL },
                 { "\"key_ops\":[\"encrypt\"],", "key_ops" },
                 { "\"key_ops\":[],", "key_ops" },
                 { "\"key_ops\":\"verify\",", "key_ops" },
                 { "\"kid\":\"\",", "kid" },
                 { "\"kid\":1,", "kid" },
                 { "\"kid\":null,", "kid" },
                 { "\"x5c\":[1],\"x5t\":7,\"x\":\"AA\",", NULL } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) expect_key(tokens_jwk(rsa, rows[i].more), rows[i].why);
    char kid[300];
    memset(kid, 'k', sizeof kid);
    for (int n = JWKS_MOST_KID; n <= JWKS_MOST_KID + 1; n++) {
        char *more = tokens_text("\"kid\":\"%.*s\",", n, kid);
        expect_key(tokens_jwk(ec, more), n <= JWKS_MOST_KID ? NULL : "kid");
        free(more);
    }
    static const char *const types[] = { "\"rsa\"", "\"oct\"", "\"OKP\"", "\"\"", "1", "null", "[\"RSA\"]" };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        expect_key(tokens_text("{\"kty\":%s,\"n\":\"AQAB\",\"e\":\"AQAB\"}", types[i]), "kty");
}

/* n and e of a size and form of one's choice: no key is generated for them. */
static char *rsa_of(size_t n_bytes, uint8_t first, uint8_t last, const char *e)
{
    uint8_t bytes[1100];
    memset(bytes, 0xa5, sizeof bytes);
    bytes[0] = first;
    bytes[n_bytes - 1] = last;
    char *n = tokens_base64(bytes, n_bytes), *out = tokens_text("{\"kty\":\"RSA\",\"n\":\"%s\",\"e\":%s}", n, e);
    free(n);
    return out;
}

static void test_rsa(void **state)
{
    (void)state;
    static const char usual[] = "\"AQAB\"";
    EVP_PKEY *small = tokens_rsa(1024, 65537), *three = tokens_rsa(2048, 3);
    expect_key(tokens_jwk(small, ""), "less than 2048 bits");
    expect_key(tokens_jwk(three, ""), "below 65537");
    EVP_PKEY_free(small);
    EVP_PKEY_free(three);
    expect_key(rsa_of(256, 0x80, 1, usual), NULL);
    expect_key(rsa_of(256, 0x7f, 1, usual), "less than 2048 bits");
    expect_key(rsa_of(257, 0, 1, usual), NULL); /* a zero before it, as some issuers write it */
    expect_key(rsa_of(512, 0xff, 3, usual), NULL);
    expect_key(rsa_of(1024, 0xff, 3, usual), NULL);
    expect_key(rsa_of(1025, 0, 3, usual), NULL);
    expect_key(rsa_of(1025, 1, 3, usual), "more than 8192 bits");
    expect_key(rsa_of(1026, 1, 3, usual), "too long");
    expect_key(rsa_of(256, 0x80, 2, usual), "n is even");
    static const char *const exponents[][2] = { { "\"AQ\"", "e is even, below" },   /* 1 */
                                                { "\"Aw\"", "e is even, below" },   /* 3 */
                                                { "\"AA\"", "e is even, below" },   /* 0 */
                                                { "\"__8\"", "e is even, below" },  /* 65535 */
                                                { "\"AQAA\"", "e is even, below" }, /* 65536 */
                                                { "\"AQAC\"", "e is even, below" }, /* 65538 */
                                                { "\"AQAD\"", NULL },               /* 65539 */
                                                { "\"__________8\"", NULL },        /* 2^64 - 1 */
                                                { "\"AQAAAAAAAAAB\"", "too long" }, /* 2^64 + 1 */
                                                { "\"\"", "no base64url" },
                                                { "\"AQAB=\"", "no base64url" },
                                                { "\"AQA B\"", "no base64url" },
                                                { "\"A\"", "no base64url" },
                                                { "\"AR\"", "no base64url" }, /* bits that are left over */
                                                { "65537", "no base64url" },
                                                { "null", "no base64url" },
                                                { "[\"AQAB\"]", "no base64url" } };
    for (size_t i = 0; i < sizeof exponents / sizeof exponents[0]; i++)
        expect_key(rsa_of(256, 0x80, 1, exponents[i][0]), exponents[i][1]);
    expect_key(tokens_text("{\"kty\":\"RSA\",\"e\":\"AQAB\"}"), "no base64url");
    expect_key(tokens_text("{\"kty\":\"RSA\",\"n\":\"AQAB\"}"), "no base64url");
}

static void test_ec(void **state)
{
    (void)state;
    char *x = tokens_number(ec, OSSL_PKEY_PARAM_EC_PUB_X, 32), *y = tokens_number(ec, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    static const char format[] = "{\"kty\":\"EC\",\"crv\":%s,\"x\":\"%s\",\"y\":\"%s\"}",
                      zero[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    expect_key(tokens_text(format, "\"P-256\"", x, y), NULL);
    static const char *const curves[] = { "\"P-384\"", "\"secp256k1\"", "\"p-256\"", "\"\"", "null", "256" };
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
        expect_key(tokens_text(format, curves[i], x, y), "curve is not P-256");
    expect_key(tokens_text(format, "\"P-256\"", y, x), "no point");
    expect_key(tokens_text(format, "\"P-256\"", x, x), "no point");
    expect_key(tokens_text(format, "\"P-256\"", zero, zero), "no point");
    expect_key(tokens_text(format, "\"P-256\"", "__________________________________________8", y), "no point");
    expect_key(tokens_text(format, "\"P-256\"", "", y), "32 bytes");
    expect_key(tokens_text(format, "\"P-256\"", x, "AAAA"), "32 bytes");
    char *long_x = tokens_number(ec, OSSL_PKEY_PARAM_EC_PUB_X, 33);
    expect_key(tokens_text(format, "\"P-256\"", long_x, y), "32 bytes");
    expect_key(tokens_text("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":1,\"y\":2}"), "32 bytes");
    free(long_x);
    free(x);
    free(y);
}

static void test_find(void **state)
{
    (void)state;
    char *r1 = tokens_jwk(rsa, "\"kid\":\"a\","), *r2 = tokens_jwk(rsa, "\"kid\":\"b\","),
         *e1 = tokens_jwk(ec, "\"kid\":\"a\",");
    char *text = tokens_text("{\"keys\":[%s,%s,%s]}", r1, r2, e1);
    struct jwks *set = NULL;
    const struct jwks_key *key, *same;
    assert_int_equal(jwks_parse(text, strlen(text), JWT_ALGS, &set, NULL), WK_OK);
    assert_int_equal(jwks_find(set, JWT_RS256, "a", 1, &key), JWKS_FOUND);
    assert_int_equal(jwks_find(set, JWT_ES256, "a", 1, &same), JWKS_FOUND); /* of another kty: another key */
    assert_ptr_not_equal(key, same);
    assert_int_equal(jwks_find(set, JWT_ES256, "b", 1, &key), JWKS_NONE);
    assert_null(key);
    assert_int_equal(jwks_find(set, JWT_RS256, "ab", 2, &key), JWKS_NONE);
    assert_int_equal(jwks_find(set, JWT_RS256, NULL, 0, &key), JWKS_SEVERAL);
    assert_null(key);
    assert_int_equal(jwks_find(set, JWT_ES256, NULL, 0, &key), JWKS_FOUND);
    assert_ptr_equal(key, same);
    jwks_release(jwks_hold(set));
    jwks_release(set);
    jwks_release(NULL);
    free(text);
    free(r1);
    free(r2);
    free(e1);
}

static void test_base64url(void **state)
{
    (void)state;
    uint8_t out[8];
    size_t len = 9;
    assert_true(base64url_decode("", 0, out, 0, &len) && len == 0);
    assert_true(base64url_decode("_-8", 3, out, 2, &len) && len == 2 && out[0] == 0xff && out[1] == 0xef);
    static const char *const wrong[] = { "A",  "AAAAA", "AA==", "AA=",      "A A", "+/AA",
                                         "AB", "AAB",   "AA\n", "\xc3\xa4", "AA." };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(base64url_decode(wrong[i], strlen(wrong[i]), out, sizeof out, &len));
    assert_false(base64url_decode("AAAA", 4, out, 2, &len));
    assert_true(base64url_decode("AAAA", 4, out, 3, &len));
    for (size_t n = 0; n < 64; n++) { /* what is written is read */
        uint8_t in[64], back[64];
        for (size_t i = 0; i < n; i++) in[i] = (uint8_t)(i * 37 + n);
        char *text = tokens_base64(in, n);
        assert_true(base64url_decode(text, strlen(text), back, n, &len) && len == n && memcmp(in, back, n) == 0);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_documents), cmocka_unit_test(test_members),
                                        cmocka_unit_test(test_rsa),       cmocka_unit_test(test_ec),
                                        cmocka_unit_test(test_find),      cmocka_unit_test(test_base64url) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
