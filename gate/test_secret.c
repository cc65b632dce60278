/* test_secret.c: the form of keys, and that every wrong character in one is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gate/secret.h"

#include "base/private_file.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

/* Check digits computed by another program (Python's zlib.crc32), so that keys of one version are keys of the next. */
static void test_known(void **state)
{
    (void)state;
    static const char *const known[] = { "wk_abcdefghijklmnopqrstuvwxyzABCD3RvT16",
                                         "wk_0123456789ABCDEFGHIJKLMNOPQRST3FmBbn",
                                         "wk_0000000000000000000000000000000zwz9i",
                                         "wk_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz38klA1" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(secret_well_formed(known[i], strlen(known[i])));
    uint8_t hash[SECRET_HASH];
    char hex[2 * SECRET_HASH + 1], hint[SECRET_HINT + 1];
    assert_true(secret_hash(known[0], hash));
    for (size_t i = 0; i < sizeof hash; i++) (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(hex, "9aafad90dbd2bb31d45c27040cdf5b77082d54d8a7649d4ba14d4bbc248aaf15");
    secret_hint(known[1], hint);
    assert_string_equal(hint, "0123");
}

static void test_made(void **state)
{
    (void)state;
    enum { KEYS = 2000 };
    static char keys[KEYS][SECRET_TEXT];
    uint32_t seen[128] = { 0 };
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(secret_make(keys[i], &err), WK_OK);
        assert_int_equal(strlen(keys[i]), SECRET_CHARS);
        assert_true(secret_well_formed(keys[i], SECRET_CHARS));
        for (size_t j = 3; j < 33; j++) seen[(size_t)keys[i][j]]++;
        for (size_t j = 0; j < i; j++) assert_string_not_equal(keys[i], keys[j]);
    }
    /* 60,000 characters: each of 62 about 968 times, sigma 31. Beyond ten sigma something is wrong. */
    uint32_t used = 0;
    for (size_t c = 0; c < 128; c++) {
        if (!seen[c]) continue;
        used++;
        assert_in_range(seen[c], 968 - 310, 968 + 310);
    }
    assert_int_equal(used, 62);
}

static void test_wrong_characters(void **state)
{
    (void)state;
    char key[SECRET_TEXT];
    assert_int_equal(secret_make(key, &err), WK_OK);
    for (size_t i = 0; i < SECRET_CHARS; i++) {
        const char right = key[i];
        for (int c = 0; c < 256; c++) {
            key[i] = (char)c;
            assert_int_equal(secret_well_formed(key, SECRET_CHARS), (char)c == right);
        }
        key[i] = right;
    }
}

static void test_wrong_length(void **state)
{
    (void)state;
    char key[2 * SECRET_TEXT] = { 0 };
    assert_int_equal(secret_make(key, &err), WK_OK);
    memset(key + SECRET_CHARS, '0', sizeof key - SECRET_CHARS);
    for (size_t n = 0; n < sizeof key; n++) assert_int_equal(secret_well_formed(key, n), n == SECRET_CHARS);
}

static void test_private_files(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        bool ours, anothers; /* is it private, if it is ours, another user's? */
    } rows[] = { { 0600, true, true },   { 0400, true, true },   { 0440, false, true },  { 0640, false, true },
                 { 0660, false, false }, { 0604, false, false }, { 0444, false, false }, { 0450, false, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stat s = { .st_mode = S_IFREG | rows[i].mode, .st_uid = geteuid() };
        assert_int_equal(file_is_private(&s), rows[i].ours);
        s.st_uid++;
        assert_int_equal(file_is_private(&s), rows[i].anothers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_made),
        cmocka_unit_test(test_wrong_characters),
        cmocka_unit_test(test_wrong_length),
        cmocka_unit_test(test_private_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
