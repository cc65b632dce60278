/* test_scope.c: names of scopes, and what they imply. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "scope.h"

static void test_names(void **state)
{
    (void)state;
    for (uint32_t s = 1; s < SCOPE_ALL; s <<= 1) {
        const char *name = scope_name(s);
        assert_non_null(name);
        assert_int_equal(scope_named(name, strlen(name)), s);
        assert_int_equal(scope_named(name, strlen(name) - 1), 0);
    }
    assert_null(scope_name(0));
    assert_null(scope_name(SCOPE_ALL + 1));
    assert_null(scope_name(SCOPE_INFERENCE | SCOPE_EMBED));
    assert_int_equal(scope_named("Admin", 5), 0);
    assert_int_equal(scope_named("", 0), 0);
}

static void test_closure(void **state)
{
    (void)state;
    assert_int_equal(scope_closure(SCOPE_ADMIN), SCOPE_ADMIN | SCOPE_ADMIN_READ | SCOPE_METRICS);
    assert_int_equal(scope_closure(SCOPE_ADMIN_READ), SCOPE_ADMIN_READ);
    assert_int_equal(scope_closure(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_closure) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
