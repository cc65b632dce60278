/* test_words.c: keyed digests against RFC 4231's vectors, and what of a caller's words is shown. */
#include "log/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "content", "messages", "params", "top_k" };

static bool known(const char *part, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], part, n) == 0) return true;
    return false;
}

/* First of all: nobody has given a key. */
static void random_key(void **state)
{
    char first[65], again[65], other[65];
    (void)state;
    assert_true(log_hmac("abc", 3, first) && log_hmac("abc", 3, again) && log_hmac("abd", 3, other));
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    /* Not the plain digest, which a guess could be tested against. */
    assert_string_not_equal(first, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void given_key(void **state)
{
    unsigned char key[131];
    char hex[65];
    static const char data[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    (void)state;
    memset(key, 0xaa, sizeof key);
    log_key(key, sizeof key); /* RFC 4231, test case 6 */
    assert_true(log_hmac(data, sizeof data - 1, hex));
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    memset(key, 0x0b, 20);
    log_key(key, 20); /* test case 1 */
    assert_true(log_hmac("Hi There", 8, hex));
    assert_string_equal(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_true(log_hmac("", 0, hex));
    assert_int_equal(strlen(hex), 64);
}

static void hidden(const char *shown, const char *text)
{
    char expected[LOG_WORD];
    assert_string_equal(shown, log_hidden(text, expected));
    assert_int_equal(strncmp(shown, "hmac:", 5), 0);
    if (text[0]) assert_null(strstr(shown, text));
}

static void ids(void **state)
{
    char out[LOG_WORD], longest[LOG_ID_MOST + 2];
    (void)state;
    static const char *const usual[] = { "a", "job-1", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "cmpl-x:1/2@host+3=" };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) assert_string_equal(log_id(usual[i], out), usual[i]);
    memset(longest, 'x', sizeof longest);
    longest[LOG_ID_MOST] = '\0';
    assert_string_equal(log_id(longest, out), longest);
    longest[LOG_ID_MOST] = 'x';
    longest[LOG_ID_MOST + 1] = '\0';
    hidden(log_id(longest, out), longest);
    static const char *const odd[] = { "", "my secret prompt", "a\nb", "na\xc3\xafve", "\"quoted\"", "a,b" };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) hidden(log_id(odd[i], out), odd[i]);
    assert_null(log_id(NULL, out));
}

static void fields(void **state)
{
    char out[LOG_WORD], longest[300];
    (void)state;
    static const char *const good[] = { "top_k", "params.top_k", "messages[0].content", "messages[12].content[3]",
                                        "messages[0][1].content" };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_string_equal(log_field_name(good[i], known, out), good[i]);
    static const char *const odd[] = { "secret",        "top_k.secret", "secret.top_k", "top",          "top_kk",
                                       "messages[x]",   "messages[",    "messages[]",   "messages[0]x", ".top_k",
                                       "params..top_k", "params.",      "[0].top_k",    "messages[1",   "top_k " };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) hidden(log_field_name(odd[i], known, out), odd[i]);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    hidden(log_field_name(longest, known, out), longest);
    assert_null(log_field_name("", known, out));
    assert_null(log_field_name(NULL, known, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_key), cmocka_unit_test(given_key),
                                        cmocka_unit_test(ids), cmocka_unit_test(fields) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
