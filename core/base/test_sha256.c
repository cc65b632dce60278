/* test_sha256.c: the vectors of FIPS 180-4, whole and in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static const struct {
    const char *text, *hex;
} vectors[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

static void whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        char hex[65];
        assert_true(sha256_hex(vectors[i].text, strlen(vectors[i].text), hex));
        assert_string_equal(hex, vectors[i].hex);
    }
}

static void in_pieces(void **state)
{
    (void)state;
    const char *text = vectors[2].text;
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        char hex[65];
        struct sha256 *s = sha256_begin();
        assert_non_null(s);
        sha256_update(s, text, cut);
        sha256_update(s, text + cut, strlen(text) - cut);
        assert_true(sha256_end(s, hex));
        assert_string_equal(hex, vectors[2].hex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whole), cmocka_unit_test(in_pieces) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
