/* test_read_memory.c: every way reads every byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/read_memory.h"

enum { UNITS = 5 };
static _Alignas(64) unsigned char memory[UNITS * READ_UNIT];

static void test_all_bytes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof memory; i++) memory[i] = (unsigned char)(i * 7 + i / 256);
    const uint64_t all = read_memory(0, memory, sizeof memory);
    for (uint32_t way = 0; way < READ_WAYS; way++) {
        assert_int_equal(read_memory(way, memory, sizeof memory), all);
        for (uint32_t at = 0; at < sizeof memory; at++) {
            memory[at] ^= 1;
            assert_int_not_equal(read_memory(way, memory, sizeof memory), all);
            memory[at] ^= 1;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_all_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
