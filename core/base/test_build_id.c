/* test_build_id.c: the identity of what is mapped: the same each time, and another once something else is mapped. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>

#include "base/build_id.h"

static void every_object_counts(void **state)
{
    char first[65], again[65], more[65];
    (void)state;
    assert_true(build_identity(first) && build_identity(again));
    assert_int_equal(strspn(first, "0123456789abcdef"), 64);
    assert_string_equal(first, again);
    void *library = dlopen("libresolv.so.2", RTLD_NOW); /* of the C library itself, and nobody here links it */
    assert_non_null(library);
    assert_true(build_identity(more));
    assert_string_not_equal(first, more);
    (void)dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_object_counts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
