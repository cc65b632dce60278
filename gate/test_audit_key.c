/* test_audit_key.c: the file of an audit log's key: how it is made, and which are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit.h"

static char folder[] = "/tmp/test_audit_key.XXXXXX";
static char error_text[512];
static const struct wk_err err = { error_text, sizeof error_text };

static int enter(void **state)
{
    (void)state;
    return !mkdtemp(folder) || chdir(folder) != 0;
}

static int leave(void **state)
{
    (void)state;
    return chdir("/") != 0 || rmdir(folder) != 0;
}

static void write_key(const char *bytes)
{
    FILE *f = fopen("key", "wb");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0 && fclose(f) == 0);
    assert_int_equal(chmod("key", 0600), 0);
}

static void test_key_file(void **state)
{
    (void)state;
    char first[AUDIT_KEY_MOST], again[AUDIT_KEY_MOST];
    size_t n, m;
    struct stat s;
    assert_int_equal(audit_key_read("key", false, first, &n, &err), WK_IO);
    assert_int_equal(audit_key_read("key", true, first, &n, &err), WK_OK);
    assert_int_equal(n, 64);
    assert_int_equal(audit_key_read("key", true, again, &m, &err), WK_OK);
    assert_int_equal(m, 64);
    assert_memory_equal(first, again, 64);
    assert_int_equal(stat("key", &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    assert_int_equal(s.st_nlink, 1);
    assert_int_equal(chmod("key", 0644), 0);
    assert_int_equal(audit_key_read("key", true, again, &m, &err), WK_INVALID);
    write_key("0123456789abcde\r\n");
    assert_int_equal(audit_key_read("key", true, again, &m, &err), WK_INVALID);
    assert_null(strstr(error_text, "0123"));
    write_key("0123456789abcdef\r\n");
    assert_int_equal(audit_key_read("key", true, again, &m, &err), WK_OK);
    assert_int_equal(m, 16);
    assert_int_equal(unlink("key"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_key_file) };
    return cmocka_run_group_tests(tests, enter, leave);
}
