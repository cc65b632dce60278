/* test_oidc_times.c: when an issuer is asked for its keys: a day of it without a clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "oidc.h"
#include "oidc_times.h"

enum { START = 1000 };

static void fetched(struct oidc_times *t, int64_t now, bool good)
{
    assert_true(oidc_times_next(t, now) <= now);
    oidc_times_begin(t, now);
    oidc_times_end(t, good);
}

static void test_regular(void **state)
{
    (void)state;
    struct oidc_times t = OIDC_TIMES_FIRST;
    assert_false(oidc_times_usable(&t, START));
    fetched(&t, START, true);
    for (int i = 1; i < 200; i++) {
        assert_int_equal(oidc_times_next(&t, START + (i - 1) * OIDC_REFRESH_S + 1), START + i * OIDC_REFRESH_S);
        assert_true(oidc_times_usable(&t, START + i * OIDC_REFRESH_S));
        fetched(&t, START + i * OIDC_REFRESH_S, true);
    }
}

/* Nobody can come in before the first success: tries come soon, then every minute, and tokens make none of them. */
static void test_first_fails(void **state)
{
    (void)state;
    struct oidc_times t = OIDC_TIMES_FIRST;
    int64_t now = START;
    static const int pause[] = { 1, 2, 4, 8, 16, 32, 60, 60, 60 };
    for (size_t i = 0; i < sizeof pause / sizeof pause[0]; i++) {
        fetched(&t, now, false);
        assert_false(oidc_times_unknown(&t, now));
        assert_int_equal(oidc_times_next(&t, now), now + pause[i]);
        now += pause[i];
        assert_false(oidc_times_usable(&t, now));
    }
    fetched(&t, now, true);
    assert_true(oidc_times_usable(&t, now));
    assert_true(oidc_times_unknown(&t, now + 1)); /* what was asked before the first success does not count */
}

static void test_unknown(void **state)
{
    (void)state;
    struct oidc_times t = OIDC_TIMES_FIRST;
    fetched(&t, START, true);
    assert_true(oidc_times_unknown(&t, START + 5));
    fetched(&t, START + 5, true);
    assert_int_equal(oidc_times_next(&t, START + 6), START + 5 + OIDC_REFRESH_S);
    for (int s = 6; s < 65; s++) { /* as often as one likes: one fetch, when the minute is over */
        assert_false(oidc_times_unknown(&t, START + s));
        assert_int_equal(oidc_times_next(&t, START + s), START + 65);
    }
    assert_true(oidc_times_unknown(&t, START + 65));
    fetched(&t, START + 65, false);
    assert_int_equal(oidc_times_next(&t, START + 66), START + 125);
    int fetches = 0;
    for (int64_t now = START + 66; now < START + 66 + 3600; now++) /* an hour of attack, the issuer down */
        if (oidc_times_unknown(&t, now)) {
            fetched(&t, now, false);
            fetches++;
        }
    assert_int_equal(fetches, 60);
}

static void test_old_keys(void **state)
{
    (void)state;
    struct oidc_times t = OIDC_TIMES_FIRST;
    fetched(&t, START, true);
    int64_t now = START + OIDC_REFRESH_S;
    for (; now < START + OIDC_KEYS_S; now += 60) {
        assert_true(oidc_times_usable(&t, now));
        fetched(&t, now, false);
        assert_int_equal(oidc_times_next(&t, now), now + 60);
    }
    assert_true(oidc_times_usable(&t, START + OIDC_KEYS_S - 1));
    assert_false(oidc_times_usable(&t, START + OIDC_KEYS_S));
    fetched(&t, now, true);
    assert_true(oidc_times_usable(&t, now + OIDC_KEYS_S - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_regular), cmocka_unit_test(test_first_fails),
                                        cmocka_unit_test(test_unknown), cmocka_unit_test(test_old_keys) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
