/* test_address.c: what is an address, and which addresses are of this machine alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/address.h"

static void reads(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned bits; /* 0: it is none */
        uint8_t bytes[16];
    } rows[] = {
        { "10.1.2.3", 32, { 10, 1, 2, 3 } },
        { "0.0.0.0", 32, { 0 } },
        { "255.255.255.255", 32, { 255, 255, 255, 255 } },
        { "::", 128, { 0 } },
        { "::1", 128, { [15] = 1 } },
        { "2001:DB8::5", 128, { 0x20, 0x01, 0x0d, 0xb8, [15] = 5 } },
        { "::ffff:10.1.2.3", 32, { 10, 1, 2, 3 } },
        { "::FFFF:a01:203", 32, { 10, 1, 2, 3 } },
        { "0:0:0:0:0:ffff:10.1.2.3", 32, { 10, 1, 2, 3 } },
        { "::10.1.2.3", 128, { [12] = 10, 1, 2, 3 } },
        { "::fffe:10.1.2.3", 128, { [10] = 0xff, 0xfe, 10, 1, 2, 3 } },
        { "", 0, { 0 } },
        { "127", 0, { 0 } },
        { "127.1", 0, { 0 } },
        { "127.0.1", 0, { 0 } },
        { "127.0.0.0.1", 0, { 0 } },
        { "127.0.0.256", 0, { 0 } },
        { "0x7f.0.0.1", 0, { 0 } },
        { "2130706433", 0, { 0 } },
        { " 127.0.0.1", 0, { 0 } },
        { "127.0.0.1 ", 0, { 0 } },
        { "127.0.0.1:80", 0, { 0 } },
        { "127.0.0.1/8", 0, { 0 } },
        { "[::1]", 0, { 0 } },
        { "::1%lo", 0, { 0 } },
        { ":::1", 0, { 0 } },
        { "localhost", 0, { 0 } },
        { "lo", 0, { 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct address a;
        memset(&a, 0xaa, sizeof a);
        assert_int_equal(address_read(rows[i].text, &a), rows[i].bits != 0);
        if (!rows[i].bits) continue;
        assert_int_equal(a.bits, rows[i].bits);
        assert_memory_equal(a.bytes, rows[i].bytes, sizeof a.bytes);
    }
}

static struct address of(const char *text)
{
    struct address a;
    assert_true(address_read(text, &a));
    return a;
}

static void networks(void **state)
{
    (void)state;
    static const struct {
        const char *address, *network;
        unsigned counts;
        bool in;
    } rows[] = {
        { "10.1.127.255", "10.1.0.0", 17, true },     { "10.1.128.0", "10.1.0.0", 17, false },
        { "10.1.128.0", "10.1.0.0", 16, true },       { "10.1.0.0", "10.1.0.1", 32, false },
        { "203.0.113.9", "10.0.0.0", 0, true },       { "::1", "0.0.0.0", 0, false },
        { "2001:db8::5", "2001:db8::", 32, true },    { "2001:db8::5", "2001:db8::4", 127, true },
        { "2001:db8::5", "2001:db8::4", 128, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct address a = of(rows[i].address), network = of(rows[i].network);
        assert_int_equal(address_is_in(&a, &network, rows[i].counts), rows[i].in);
    }
}

static void local_hosts(void **state)
{
    (void)state;
    static const char *const local[] = { "127.0.0.1",     "127.0.0.0",       "127.255.255.255", "127.9.9.9",
                                         "::1",           "0:0:0:0:0:0:0:1", "::0.0.0.1",       "::ffff:127.0.0.1",
                                         "::FFFF:7f00:1", "localhost",       "LocalHost" };
    static const char *const other[] = { "",
                                         "0.0.0.0",
                                         "::",
                                         "*",
                                         "126.255.255.255",
                                         "128.0.0.1",
                                         "10.1.2.3",
                                         "::2",
                                         "1::1",
                                         "::127.0.0.1",
                                         "::ffff:0.0.0.0",
                                         "::ffff:10.1.2.3",
                                         "fe80::1",
                                         "127",
                                         "127.1",
                                         "0177.0.0.1",
                                         "0x7f000001",
                                         "2130706433",
                                         "127.evil.example",
                                         "127.0.0.1.evil.example",
                                         "[::1]",
                                         "::1%lo",
                                         "lo",
                                         "eth0",
                                         "localhost.",
                                         "localhost.localdomain",
                                         "localhost:80",
                                         " localhost" };
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) assert_true(address_is_local_host(local[i]));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) assert_false(address_is_local_host(other[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reads), cmocka_unit_test(networks),
                                        cmocka_unit_test(local_hosts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
