/* test_attempts.c: how many failures an address has, which addresses are one, and what a flood of others changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attempts.h"
#include "siphash.h"

#define SECOND UINT64_C(1000000000)
#define START (UINT64_C(86400) * SECOND)

static struct attempts *open_attempts(void)
{
    struct attempts *a;
    assert_int_equal(attempts_open(&a, NULL), WK_OK);
    return a;
}

static void use_up(struct attempts *a, const char *address, uint64_t now)
{
    for (int i = 0; i < ATTEMPTS_AT_ONCE; i++) {
        assert_int_equal(attempts_wait(a, address, now), 0);
        assert_int_equal(attempts_failed(a, address, now), 0);
    }
    assert_int_equal(attempts_failed(a, address, now), 6);
    assert_int_equal(attempts_wait(a, address, now), 6);
}

static void test_ten_then_one_each_six_seconds(void **state)
{
    (void)state;
    struct attempts *a = open_attempts();
    use_up(a, "192.0.2.1", START);
    assert_int_equal(attempts_failed(a, "192.0.2.2", START), 0); /* an address of its own */
    for (int i = 0; i < 100; i++) assert_int_equal(attempts_failed(a, "192.0.2.1", START + SECOND), 5);
    assert_int_equal(attempts_failed(a, "192.0.2.1", START + 6 * SECOND - 1), 1);
    assert_int_equal(attempts_failed(a, "192.0.2.1", START + 6 * SECOND), 0);
    assert_int_equal(attempts_failed(a, "192.0.2.1", START + 6 * SECOND), 6);
    use_up(a, "192.0.2.1", START + 66 * SECOND);
    attempts_close(a);
}

static void test_what_is_one_address(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        { "192.0.2.1", "::ffff:192.0.2.1" },
        { "2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff" },
        { "fe80::1%eth0", "fe80::2%eth1" },
        { "", "unix:/run/worker.sock" },
    };
    static const char *const others[] = { "192.0.2.2", "2001:db8:0:2::1", "fe81::1", "::1", "::c000:201" };
    struct attempts *a = open_attempts();
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        use_up(a, same[i][0], START);
        assert_int_equal(attempts_failed(a, same[i][1], START), 6);
    }
    assert_int_equal(attempts_failed(a, NULL, START), 6);
    assert_int_equal(attempts_failed(a, "999.1.1.1 and a long text that is no address at all, whatever it says", START),
                     6);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_int_equal(attempts_wait(a, others[i], START), 0);
    attempts_close(a);
}

/* 100,000 addresses that fail less often than the victim do not have it forgotten, though the table has 8,192 places.
 */
static void test_a_flood_forgets_nobody(void **state)
{
    (void)state;
    struct attempts *a = open_attempts();
    char address[32];
    use_up(a, "203.0.113.7", START);
    use_up(a, "2001:db8:7::1", START);
    for (int i = 0; i < 100000; i++) {
        (void)snprintf(address, sizeof address, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
        for (int j = 0; j < 3; j++) (void)attempts_failed(a, address, START + SECOND);
    }
    assert_int_equal(attempts_failed(a, "203.0.113.7", START + SECOND), 5);
    assert_int_equal(attempts_failed(a, "2001:db8:7::1", START + SECOND), 5);
    attempts_close(a);
}

/* Values of the reference implementation: key 00..0f, texts of 00, 01, ... */
static void test_siphash(void **state)
{
    (void)state;
    const struct siphash_key key = { 0x0706050403020100u, 0x0f0e0d0c0b0a0908u };
    unsigned char text[15];
    for (unsigned char i = 0; i < sizeof text; i++) text[i] = i;
    assert_int_equal(siphash(&key, text, 0), 0x726fdb47dd0e0e31u);
    assert_int_equal(siphash(&key, text, 15), 0xa129ca6149be45e5u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_then_one_each_six_seconds),
        cmocka_unit_test(test_what_is_one_address),
        cmocka_unit_test(test_a_flood_forgets_nobody),
        cmocka_unit_test(test_siphash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
