/* test_peers.c: which workers may be asked for pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "peers.h"

static void ways(void **state)
{
    (void)state;
    for (int way = 0; way < HANDOVER_WAYS; way++)
        assert_int_equal(handover_way_named(handover_way_name((enum handover_way)way)), way);
    assert_int_equal(handover_way_named("tcp"), HANDOVER_WAYS);
}

static void entries(void **state)
{
    (void)state;
    static const char *const good[] = { "10.1.2.3", "10.1.0.0/16", "0.0.0.0/0", "::1",
                                        "fd00::/8", "prefill-0",   "a.example", "10.0.0.1/32" };
    static const char *const bad[] = { "",      "10.1.2.3/33", "10.1.2.3/", "10.1.2.3/x",   "10.1.2.3:80", "a b",
                                       "-a",    "fd00::/129",  "http://a",  "10.1",         "0x7f.1",      "a/8",
                                       "1/2/3", "127",         "a.0x1",     "10.1.2.3/1000" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(handover_is_peer(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(handover_is_peer(bad[i]));
    assert_true(handover_is_host("10.1.2.3"));
    assert_true(handover_is_host("fd00::1"));
    assert_false(handover_is_host("10.1.0.0/16"));
    assert_false(handover_is_host("10.1.2.3:80"));
}

static void asked(void **state)
{
    (void)state;
    static const char *const list[] = { "10.1.0.0/17", "prefill-0.example", "2001:db8::/33", "192.0.2.7" };
    static const struct {
        const char *host;
        bool alone, listed; /* without entries, with these */
    } rows[] = {
        { "127.0.0.1", true, true },
        { "127.9.9.9", true, true },
        { "::1", true, true },
        { "localhost", true, true },
        { "::ffff:127.0.0.1", true, true },
        { "10.1.0.1", false, true },
        { "10.1.127.255", false, true },
        { "10.1.128.0", false, false },
        { "::ffff:10.1.0.1", false, true },
        { "192.0.2.7", false, true },
        { "192.0.2.8", false, false },
        { "Prefill-0.Example", false, true },
        { "prefill-1.example", false, false },
        { "2001:db8::5", false, true },
        { "2001:db8:8000::5", false, false },
        { "0.0.0.0", false, false },
        { "::", false, false },
        { "127.1", false, false },
        { "2130706433", false, false },
        { "0x7f000001", false, false },
        { "169.254.169.254", false, false },
        { "", false, false },
        { "prefill-0.example@evil", false, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(handover_may_ask(rows[i].host, NULL, 0), rows[i].alone);
        assert_int_equal(handover_may_ask(rows[i].host, list, sizeof list / sizeof *list), rows[i].listed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ways), cmocka_unit_test(entries), cmocka_unit_test(asked) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
