/* test_data.h: files of the test data, which are no part of the repository, and of the goldens, which every clone
 * makes. A test that needs test data is named data_*: it runs where the program's argument is "data", which CMake
 * passes only where they are present (worker_test). For tests alone, after <cmocka.h>. */
#ifndef TESTS_SUPPORT_TEST_DATA_H
#define TESTS_SUPPORT_TEST_DATA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_PATH_MAX = 1024 };

/* The path of a file below `folder`, an environment variable's value, or below `otherwise`. */
static inline const char *data_path_in(char out[DATA_PATH_MAX], const char *folder, const char *otherwise,
                                       const char *name)
{
    const char *root = getenv(folder);
    assert_in_range(snprintf(out, DATA_PATH_MAX, "%s/%s", root ? root : otherwise, name), 1, DATA_PATH_MAX - 1);
    return out;
}

static inline const char *data_path(char out[DATA_PATH_MAX], const char *name)
{
    return data_path_in(out, "WORKER_TEST_DATA", "../shared/data", name);
}

/* A file of the goldens. */
static inline const char *golden_file(char out[DATA_PATH_MAX], const char *name)
{
    return data_path_in(out, "WORKER_GOLDENS", "goldens", name);
}

/* Before cmocka_run_group_tests: the tests data_* alone, or all others. */
static inline void choose_tests(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "data") == 0)
        cmocka_set_test_filter("data_*");
    else
        cmocka_set_skip_filter("data_*");
}

/* A vocabulary that the tests of the tokenizer have unpacked. */
static inline const char *data_vocabulary(char out[DATA_PATH_MAX], const char *name)
{
    return data_path_in(out, "WORKER_TEST_VOCAB", ".", name);
}

/* All of a file of the test data and a zero byte, the caller's to free. n: its bytes; may be NULL. */
static inline char *data_read(const char *name, size_t *n)
{
    char path[DATA_PATH_MAX];
    FILE *f = fopen(data_path(path, name), "rb");
    if (!f) fail_msg("%s: cannot be read", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long end = ftell(f);
    assert_true(end >= 0);
    rewind(f);
    char *text = malloc((size_t)end + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)end, f), end);
    text[end] = '\0';
    (void)fclose(f);
    if (n) *n = (size_t)end;
    return text;
}

#endif
