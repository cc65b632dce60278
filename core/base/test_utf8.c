/* test_utf8.c: the stream gives the same text however the bytes are cut, and only well-formed UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static size_t encode(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xC0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

/* Every code point, cut at every byte: nothing comes out before the last byte, then all of it; surrogates never do. */
static void test_all_code_points(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        unsigned char bytes[4];
        char out[UTF8_STREAM_ROOM(4)];
        const size_t len = encode(c, bytes);
        const bool surrogate = c >= 0xD800 && c < 0xE000;
        assert_int_equal(utf8_sequence(bytes, len), surrogate ? 0 : len);
        if (surrogate) continue;
        assert_int_equal(utf8_decode(bytes, len), c);
        assert_int_equal(utf8_length(bytes[0]), len);
        for (size_t i = 1; i < len; i++) assert_true(utf8_continues(bytes[0], i, bytes[i]));
        assert_true(utf8_is_valid((const char *)bytes, len));
        assert_true(len == 1 || !utf8_is_valid((const char *)bytes, len - 1));
        for (size_t cut = 1; cut < len; cut++) {
            struct utf8_stream s = { 0 };
            assert_int_equal(utf8_sequence(bytes, cut), 0);
            assert_int_equal(utf8_stream_push(&s, bytes, cut, out), 0);
            assert_int_equal(utf8_stream_push(&s, bytes + cut, len - cut, out), len);
            assert_memory_equal(out, bytes, len);
            assert_int_equal(utf8_stream_flush(&s, out), 0);
        }
    }
}

/* Unicode 15, table 3-8 and the neighbouring examples of U+FFFD substitution of maximal subparts;
 * R stands for U+FFFD. */
static void test_maximal_subparts(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "\xF1\x80\x80\xE1\x80\xC2"
          "b\x80"
          "c\x80\xBF"
          "d",
          "RRRbRcRRd" },
        { "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
          "A",
          "RRRRRRRRA" },
        { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
          "A",
          "RRRRRRRRA" },
        { "\xF4\x91\x92\x93\xFF"
          "A\x80\xBF"
          "B",
          "RRRRRARRB" },
        { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
          "A",
          "RRRRA" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[64];
        size_t n = 0;
        for (const char *p = cases[i].out; *p; p++) {
            if (*p == 'R') {
                memcpy(expected + n, "\xEF\xBF\xBD", 3);
                n += 3;
            } else
                expected[n++] = *p;
        }
        for (size_t cut = 0; cut <= strlen(cases[i].in); cut++) {
            char out[128];
            struct utf8_stream s = { 0 };
            size_t m = utf8_stream_push(&s, cases[i].in, cut, out);
            m += utf8_stream_push(&s, cases[i].in + cut, strlen(cases[i].in) - cut, out + m);
            m += utf8_stream_flush(&s, out + m);
            assert_int_equal(m, n);
            assert_memory_equal(out, expected, n);
        }
    }
}

/* Random bytes in random cuts: valid after every push, and equal to the one-shot result. */
static void test_random(void **state)
{
    (void)state;
    static const unsigned char interesting[] = { 'a',  0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED,
                                                 0x9F, 0xEF, 0xF0, 0x90, 0xF4, 0x8F, 0xFF };
    srand(1);
    for (int round = 0; round < 20000; round++) {
        unsigned char in[24];
        char whole[UTF8_STREAM_ROOM(24) + 3], cut[UTF8_STREAM_ROOM(24) * 24];
        for (size_t i = 0; i < sizeof in; i++) in[i] = interesting[(size_t)rand() % sizeof interesting];
        struct utf8_stream a = { 0 }, b = { 0 };
        size_t n = utf8_stream_push(&a, in, sizeof in, whole), m = 0;
        n += utf8_stream_flush(&a, whole + n);
        for (size_t at = 0; at < sizeof in;) {
            size_t take = (size_t)rand() % 5;
            if (take > sizeof in - at) take = sizeof in - at;
            const size_t put = utf8_stream_push(&b, in + at, take, cut + m);
            assert_true(put <= UTF8_STREAM_ROOM(take));
            for (size_t i = m; i < m + put;) {
                const size_t len = utf8_sequence((unsigned char *)cut + i, m + put - i);
                assert_true(len > 0);
                i += len;
            }
            m += put;
            at += take;
        }
        m += utf8_stream_flush(&b, cut + m);
        assert_int_equal(n, m);
        assert_memory_equal(whole, cut, n);
    }
}

static void test_drop(void **state)
{
    (void)state;
    struct utf8_stream s = { 0 };
    char out[32];
    assert_int_equal(utf8_stream_push(&s, "a\xE4\xBD", 3, out), 1);
    utf8_stream_drop(&s);
    assert_int_equal(utf8_stream_flush(&s, out), 0);
    assert_int_equal(utf8_stream_push(&s, "b", 1, out), 1);
    assert_int_equal(out[0], 'b');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
