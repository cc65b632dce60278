/* test_token_cache.c: tokens that are remembered: for how long, by which keys, how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oidc.h"
#include "token_cache.h"

enum { NOW = 1700000000 };

static struct jwt_claims in, out;

static void claims_of(const char *subject, int64_t expires)
{
    memset(&in, 0, sizeof in);
    (void)snprintf(in.subject, sizeof in.subject, "%s", subject);
    in.expires = expires;
    in.n_scopes = 1;
    in.names_len = (uint32_t)strlen(subject) + 1;
    (void)snprintf(in.names, sizeof in.names, "%s", subject);
}

static void test_life(void **state)
{
    (void)state;
    struct token_cache *c = token_cache_open(), *other = token_cache_open();
    uint8_t a[TOKEN_DIGEST], b[TOKEN_DIGEST], again[TOKEN_DIGEST];
    assert_true(c && other);
    assert_true(token_cache_digest(c, "token a", 7, a) && token_cache_digest(c, "token b", 7, b) &&
                token_cache_digest(c, "token a", 7, again));
    assert_memory_equal(a, again, TOKEN_DIGEST);
    assert_memory_not_equal(a, b, TOKEN_DIGEST);
    assert_true(token_cache_digest(other, "token a", 7, again));
    assert_memory_not_equal(a, again, TOKEN_DIGEST); /* a key of its own */
    claims_of("a", NOW + 3600);
    token_cache_put(c, a, 1, NOW, &in);
    claims_of("b", NOW + 10);
    token_cache_put(c, b, 1, NOW, &in);
    assert_true(token_cache_get(c, a, 1, NOW + OIDC_CACHE_S - 1, &out));
    assert_string_equal(out.subject, "a");
    assert_string_equal(jwt_next_name(&out, NULL), "a");
    assert_false(token_cache_get(c, a, 1, NOW + OIDC_CACHE_S, &out));
    assert_false(token_cache_get(c, a, 2, NOW, &out));     /* the keys are others */
    assert_false(token_cache_get(c, a, 1, NOW - 1, &out)); /* the clock was set back */
    assert_true(token_cache_get(c, b, 1, NOW + 9, &out));
    assert_string_equal(out.subject, "b");
    assert_false(token_cache_get(c, b, 1, NOW + 10, &out)); /* it expires */
    claims_of("a2", NOW + 3600);
    token_cache_put(c, a, 2, NOW + 1, &in);
    assert_true(token_cache_get(c, a, 2, NOW + 1, &out));
    assert_string_equal(out.subject, "a2");
    assert_false(token_cache_get(c, a, 1, NOW + 1, &out));
    token_cache_close(c);
    token_cache_close(other);
    token_cache_close(NULL);
}

static void test_bound(void **state)
{
    (void)state;
    struct token_cache *c = token_cache_open();
    uint8_t digest[TOKEN_DIGEST];
    char token[32];
    assert_non_null(c);
    int held = 0;
    enum { TOKENS = 10 * OIDC_CACHE };
    for (int i = 0; i < TOKENS; i++) {
        const int n = snprintf(token, sizeof token, "token %d", i);
        assert_true(token_cache_digest(c, token, (size_t)n, digest));
        claims_of(token, NOW + 3600);
        token_cache_put(c, digest, 1, NOW, &in);
        assert_true(token_cache_get(c, digest, 1, NOW, &out)); /* the newest is always there */
    }
    for (int i = 0; i < TOKENS; i++) {
        const int n = snprintf(token, sizeof token, "token %d", i);
        assert_true(token_cache_digest(c, token, (size_t)n, digest));
        if (!token_cache_get(c, digest, 1, NOW, &out)) continue;
        assert_string_equal(out.subject, token);
        held++;
    }
    assert_int_equal(held, OIDC_CACHE); /* every place is in use, by chance of 10 times as many */
    token_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_life), cmocka_unit_test(test_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
