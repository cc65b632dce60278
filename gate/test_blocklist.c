/* test_blocklist.c: against a search that is written as plainly as can be, on all of Unicode, on texts split anywhere;
 * what may be shown before a phrase is known; and the number of steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "blocklist.h"
#include "fold.h"

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct blocklist *build(const struct blocklist_phrase *phrases, size_t n)
{
    struct blocklist *b;
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    const wk_status status = blocklist_build(phrases, n, &b, &err);
    if (status) fail_msg("%s", text);
    return b;
}

/* ---- the reference ---------------------------------------------------------------------------------------------- */

struct symbols {
    unsigned char *at;
    size_t n, cap;
};

static void add(struct symbols *s, unsigned char c)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 256;
        s->at = realloc(s->at, s->cap);
        assert_non_null(s->at);
    }
    s->at[s->n++] = c;
}

static bool in(const char *two_letters, const char *list) { return strstr(list, two_letters) != NULL; }

static bool is_blank(const char *category, utf8proc_int32_t c)
{
    return in(category, "Zs Zl Zp") || (c >= 9 && c <= 13) || c == 0x85;
}

/* What libutf8proc leaves in, and nobody sees. */
static bool is_unseen(utf8proc_int32_t c)
{
    const char *category = utf8proc_category_string(c);
    const bool kept = (c >= 0xfff0 && c < 0xfff9) || c >= 0xe0000;
    const bool noncharacter = (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xffff) >= 0xfffe;
    if (in(category, "Cc")) return !is_blank(category, c);
    return noncharacter || (in(category, "Cn") && kept && c < 0xe1000) || (c >= 0xfff9 && c <= 0xfffb);
}

/* A copy for free, terminated, without them. */
static char *seen_of(const char *text, size_t n)
{
    size_t to = 0;
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c);
        assert_true(len > 0);
        if (!is_unseen(c)) {
            memcpy(copy + to, text + at, (size_t)len);
            to += (size_t)len;
        }
        at += (size_t)len;
    }
    copy[to] = '\0';
    return copy;
}

/* Symbols of a text that is given whole, by libutf8proc's own NFKC_Casefold. */
static struct symbols symbols_of(const char *text, size_t n)
{
    struct symbols s = { 0 };
    char *copy = seen_of(text, n);
    utf8proc_uint8_t *folded = utf8proc_NFKC_Casefold((const utf8proc_uint8_t *)copy);
    free(copy);
    assert_non_null(folded);
    bool word = false, space = false;
    for (const utf8proc_uint8_t *p = folded; *p;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t len = utf8proc_iterate(p, -1, &c);
        assert_true(len > 0);
        const char *category = utf8proc_category_string(c);
        const bool blank = is_blank(category, c);
        if (!(blank && space)) {
            const bool now = in(category, "Lu Ll Lt Nd Nl No") || (word && in(category, "Lm Mn Mc Me"));
            if (now != word) add(&s, 0xff);
            word = now;
            if (blank) add(&s, ' ');
            for (utf8proc_ssize_t i = 0; i < len && !blank; i++) add(&s, p[i]);
        }
        space = blank;
        p += len;
    }
    if (word) add(&s, 0xff);
    free(folded);
    return s;
}

static struct symbols phrase_symbols(const struct blocklist_phrase *p)
{
    struct symbols s = symbols_of(p->bytes, p->len);
    while (s.n && s.at[s.n - 1] == ' ') s.n--;
    size_t begin = s.n && s.at[0] == ' ';
    if (p->anywhere && s.n > begin && s.at[begin] == 0xff) begin++;
    if (p->anywhere && s.n > begin && s.at[s.n - 1] == 0xff) s.n--;
    s.n -= begin;
    if (s.n) memmove(s.at, s.at + begin, s.n);
    return s;
}

/* The phrase whose end comes first; of those the longest; of equal ones the first. */
static uint32_t reference(const struct symbols *phrases, uint32_t n, const struct symbols *text)
{
    for (size_t end = 1; end <= text->n; end++) {
        uint32_t best = BLOCKLIST_NONE;
        for (uint32_t i = 0; i < n; i++) {
            const size_t len = phrases[i].n;
            if (len > end || memcmp(text->at + end - len, phrases[i].at, len) != 0) continue;
            if (best == BLOCKLIST_NONE || len > phrases[best].n) best = i;
        }
        if (best != BLOCKLIST_NONE) return best;
    }
    return BLOCKLIST_NONE;
}

/* Scans in pieces of random length; what may be shown never shrinks, and is in the end all or what precedes a match. */
static struct blocklist_seen scan(struct blocklist *b, const char *text, size_t n, size_t piece, uint64_t *seed)
{
    struct blocklist_scan *s;
    struct blocklist_seen seen = { BLOCKLIST_NONE, 0 };
    assert_int_equal(blocklist_scan_begin(b, &s, NULL), WK_OK);
    for (size_t at = 0; at < n;) {
        size_t len = 1 + (piece > 1 ? draw(seed) % piece : 0);
        if (len > n - at) len = n - at;
        const struct blocklist_seen now = blocklist_scan_feed(s, text + at, len);
        at += len;
        assert_true(now.safe <= at && now.safe >= seen.safe);
        seen = now;
    }
    const struct blocklist_seen end = blocklist_scan_end(s);
    assert_true(end.safe >= seen.safe);
    if (end.phrase == BLOCKLIST_NONE) assert_int_equal(end.safe, n);
    blocklist_scan_free(s);
    return end;
}

/* ---- random texts ----------------------------------------------------------------------------------------------- */

static const int32_t pool[] = {
    'a',    'b',    'A',    ' ',    ' ',    '\n',   '-',    '1',    0x00e9, 0x0301, 0x0323, 0x0345, 0xff41, 0xff22,
    0xfb01, 0x200d, 0x00ad, 0x0130, 0x0131, 0x00df, 0x1e9e, 0x1100, 0x1161, 0x11a8, 0xac00, 0xff76, 0xff9e, 0x3099,
    0x0e01, 0x0e33, 0x4e00, 0x3000, 0x00a0, 0x09c7, 0x09be, 0x2460, 0x0390, 0x1f80, 0x115f, 0x034f, 0xfe0f, 0x02b0,
};

static size_t random_text(char *out, size_t points, uint64_t *seed)
{
    size_t n = 0;
    const size_t some = 2 + draw(seed) % (sizeof pool / sizeof *pool - 1), from = draw(seed) % 42;
    for (size_t i = 0; i < points; i++) {
        const size_t which = draw(seed) % 3 ? draw(seed) % 4 : (from + draw(seed) % some) % 42;
        n += (size_t)utf8proc_encode_char(pool[which], (utf8proc_uint8_t *)out + n);
    }
    return n;
}

static void test_against_the_reference(void **state)
{
    (void)state;
    enum { PHRASES = 12, POINTS = 60 };
    static char bytes[PHRASES][64], text[POINTS * 4];
    uint64_t seed = 424242;
    unsigned found = 0, rounds = 0;
    for (int round = 0; round < 4000; round++) {
        struct blocklist_phrase phrases[PHRASES];
        struct symbols folded[PHRASES];
        uint32_t n = 0;
        for (int i = 0; i < PHRASES; i++) {
            const size_t len = random_text(bytes[n], 1 + draw(&seed) % (round % 2 ? 8 : 4), &seed);
            phrases[n] = (struct blocklist_phrase){ bytes[n], len, draw(&seed) % 2 };
            folded[n] = phrase_symbols(&phrases[n]);
            if (folded[n].n)
                n++;
            else
                free(folded[n].at);
        }
        struct blocklist *b = build(phrases, n);
        for (int i = 0; i < 8; i++, rounds++) {
            const size_t len = random_text(text, 1 + draw(&seed) % POINTS, &seed);
            struct symbols s = symbols_of(text, len);
            const uint32_t expected = reference(folded, n, &s);
            uint32_t whole;
            assert_int_equal(blocklist_find(b, text, len, &whole, NULL), WK_OK);
            assert_int_equal(whole, expected);
            assert_int_equal(scan(b, text, len, 1, &seed).phrase, expected);
            assert_int_equal(scan(b, text, len, 7, &seed).phrase, expected);
            found += expected != BLOCKLIST_NONE;
            free(s.at);
        }
        blocklist_free(b);
        while (n) free(folded[--n].at);
    }
    assert_true(found > rounds / 10 && found < rounds * 9 / 10);
}

static void collect(void *user, unsigned char symbol, uint64_t origin)
{
    (void)origin;
    add(user, symbol);
}

static struct symbols fold_all(const void *bytes, size_t n)
{
    struct fold f;
    struct symbols s = { 0 };
    fold_begin(&f, collect, &s);
    for (size_t i = 0; i < n; i++) fold_feed(&f, (const char *)bytes + i, 1);
    fold_end(&f);
    return s;
}

static void same_symbols(const struct symbols *a, const struct symbols *b, int32_t c)
{
    if (a->n != b->n || (a->n && memcmp(a->at, b->at, a->n) != 0)) fail_msg("U+%04X", (unsigned)c);
}

/* Each code point of Unicode between letters, as it is and decomposed in both ways. */
static void test_every_code_point(void **state)
{
    (void)state;
    for (int32_t c = 1; c < 0x110000; c++) {
        char text[8] = "a";
        if (c >= 0xd800 && c < 0xe000) continue;
        const size_t n = 1 + (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)text + 1);
        text[n] = 'Z';
        struct symbols expected = symbols_of(text, n + 1), s = fold_all(text, n + 1);
        same_symbols(&s, &expected, c);
        text[n + 1] = '\0';
        utf8proc_uint8_t *forms[] = { utf8proc_NFD((utf8proc_uint8_t *)text), utf8proc_NFKD((utf8proc_uint8_t *)text) };
        for (int i = 0; i < 2; i++) {
            /* What decomposes to something that folding takes away is no longer the same: as Unicode has it. */
            struct symbols other = fold_all(forms[i], strlen((char *)forms[i]));
            struct symbols right = symbols_of((char *)forms[i], strlen((char *)forms[i]));
            same_symbols(&other, &right, c);
            if (i == 0 && c != 0x0345) same_symbols(&other, &s, c);
            free(other.at);
            free(right.at);
            free(forms[i]);
        }
        free(expected.at);
        free(s.at);
    }
}

/* ---- what is one, and what is not -------------------------------------------------------------------------------- */

static void test_words_and_letters(void **state)
{
    (void)state;
    static const struct {
        const char *phrase, *text;
        bool anywhere, found;
    } cases[] = {
        { "sex", "Essex", false, false },
        { "sex", "sexton", false, false },
        { "sex", "SEX", false, true },
        { "sex", "a _sex_ b", false, true },
        { "sex", "sex2", false, false },
        { "sex", "Essex", true, true },
        { "sex", "s\u00adex", false, true },
        { "sex", "s\u200de\u200bx", false, true },
        { "sex", "s\001e\033x", false, true }, /* control characters */
        { "sex", "s\177e\302\237x", false, true },
        { "sex", "s\ufff9e\ufffe\U0010ffffx\U000e01f0", false, true },
        { "sex", "s\302\205ex", false, false }, /* white space */
        { "s\001ex", "sex", false, true },
        { "sex", "\uff33\uff25\uff38", false, true },
        { "sex", "se\u0301x", false, false },
        { "sex", "sex\u0301", false, false },
        { "sex", "sex\u0301", true, true }, /* NFKC has no such letter: the bytes of the phrase are there */
        { "caf\u00e9", "CAFE\u0301", false, true },
        { "cafe\u0301", "Caf\u00c9", false, true },
        { "cafe", "caf\u00e9", false, false },
        { "cafe", "cafe\u0301", true, false },
        { "office", "o\ufb03ce", false, true },
        { "strasse", "Stra\u00dfe", false, true },
        { "stra\u00dfe", "STRASSE", false, true },
        { "istanbul", "ISTANBUL", false, true },
        { "istanbul", "\u0130STANBUL", false, false }, /* i with a dot above: no language is known */
        { "\u0130stanbul", "i\u0307stanbul", false, true },
        { "diyarbakir", "diyarbak\u0131r", false, false },
        { "\u03c3\u03bf\u03c6\u03cc\u03c2", "\u03a3\u039f\u03a6\u038c\u03a3", false, true },
        { "\ud55c\uae00", "\u1112\u1161\u11ab\u1100\u1173\u11af", false, true },
        { "\ud558", "\u1112\u1161\u11ab", true, false }, /* the syllable goes on */
        { "\ub2e8\uc5b4", "\ub2e8\uc5b4\ub97c", false, true },
        { "\u60aa\u3044", "\u3068\u3066\u3082\u60aa\u3044\u3067\u3059", false, true },
        { "\u30ac\u30b9", "\uff76\uff9e\uff7d", false, true },
        { "bad  word", "a bad\n\t word", false, true },
        { " bad word ", "a bad word.", false, true },
        { "bad word", "bad-word", false, false },
        { "@foo", "x@foo y", false, true },
        { "@foo", "x@foot", false, false },
        { "c++", "in C++17", false, true },
        { "\xe0\xa4\x95", "\xe0\xa4\x95\xe0\xa4\xbf", false, true },
        { "\u2460", "1", false, true },
        { "a", "", false, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct blocklist_phrase p = { cases[i].phrase, strlen(cases[i].phrase), cases[i].anywhere };
        struct blocklist *b = build(&p, 1);
        uint32_t phrase;
        assert_int_equal(blocklist_find(b, cases[i].text, strlen(cases[i].text), &phrase, NULL), WK_OK);
        if ((phrase == 0) != cases[i].found) fail_msg("case %zu: %s in %s", i, cases[i].phrase, cases[i].text);
        blocklist_free(b);
    }
}

/* ---- hold-back -------------------------------------------------------------------------------------------------- */

/* Byte by byte: nothing of the phrase leaves, and of other text no more is held than could become one. */
static void test_no_byte_of_a_phrase_leaves(void **state)
{
    (void)state;
    static const char *const list[] = { "bad word", "caf\u00e9 noir", "a^a^a^b", "\ud55c\uae00" };
    static const struct {
        const char *before, *phrase;
        uint32_t which;
    } cases[] = {
        { "good words and ", "bad word", 0 },
        { "bad wor bad", " bad word", 0 },
        { "bad wording, ", "b\u00adad\n  WORD", 0 },
        { "un caf\u00e9 ", "CAFE\u0301 noir", 1 },
        { "a^a^a^", "a^a^a^b", 2 },
        { "\ud55c ", "\u1112\u1161\u11ab\u1100\u1173\u11af", 3 },
        { "\xff\xe2\x82", "\uff42ad word", 0 },
    };
    struct blocklist_phrase phrases[4];
    for (int i = 0; i < 4; i++) phrases[i] = (struct blocklist_phrase){ list[i], strlen(list[i]), false };
    struct blocklist *b = build(phrases, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        const size_t before = strlen(cases[i].before);
        const int n = snprintf(text, sizeof text, "%s%s", cases[i].before, cases[i].phrase);
        struct blocklist_scan *s;
        struct blocklist_seen seen = { BLOCKLIST_NONE, 0 };
        assert_int_equal(blocklist_scan_begin(b, &s, NULL), WK_OK);
        for (int k = 0; k < n; k++) {
            seen = blocklist_scan_feed(s, text + k, 1);
            assert_true(seen.safe <= before + (cases[i].phrase[0] == ' '));
        }
        assert_int_equal(seen.phrase, BLOCKLIST_NONE); /* more of the word may come */
        seen = blocklist_scan_end(s);
        assert_int_equal(seen.phrase, cases[i].which);
        assert_true(seen.safe <= before + (cases[i].phrase[0] == ' '));
        assert_true(seen.safe + 7 >= before);
        seen = blocklist_scan_feed(s, "more", 4); /* nothing changes any more */
        assert_int_equal(seen.phrase, cases[i].which);
        blocklist_scan_free(s);
    }
    struct blocklist_scan *s;
    assert_int_equal(blocklist_scan_begin(b, &s, NULL), WK_OK);
    assert_int_equal(blocklist_scan_feed(s, "hello", 5).safe, 4); /* a mark may follow the o */
    assert_int_equal(blocklist_scan_feed(s, " ", 1).safe, 5);
    assert_int_equal(blocklist_scan_feed(s, "b", 1).safe, 6);
    assert_int_equal(blocklist_scan_feed(s, "ad w", 4).safe, 6);
    assert_int_equal(blocklist_scan_feed(s, "ex\xc3", 3).safe, 12);
    assert_int_equal(blocklist_scan_end(s).safe, 14);
    blocklist_scan_free(s);
    blocklist_free(b);
}

/* ---- size and steps --------------------------------------------------------------------------------------------- */

static void test_ten_thousand_phrases(void **state)
{
    (void)state;
    static char words[BLOCKLIST_PHRASES][24];
    static struct blocklist_phrase phrases[BLOCKLIST_PHRASES + 1];
    uint64_t seed = 777;
    for (int i = 0; i < BLOCKLIST_PHRASES; i++) {
        const int n = snprintf(words[i], sizeof words[i], "%c%c %x", (int)('a' + draw(&seed) % 26),
                               (int)('a' + draw(&seed) % 26), 100000 + 7 * i);
        phrases[i] = (struct blocklist_phrase){ words[i], (size_t)n, false };
    }
    struct blocklist *b = build(phrases, BLOCKLIST_PHRASES);
    for (uint32_t i = 0; i < BLOCKLIST_PHRASES; i++) {
        char text[64];
        uint32_t phrase;
        const int n = snprintf(text, sizeof text, "so %s, then", words[i]);
        assert_int_equal(blocklist_find(b, text, (size_t)n, &phrase, NULL), WK_OK);
        assert_int_equal(phrase, i);
        (void)snprintf(text, sizeof text, "so %.20s0, then", words[i]);
        assert_int_equal(blocklist_find(b, text, (size_t)n + 1, &phrase, NULL), WK_OK);
        assert_int_equal(phrase, BLOCKLIST_NONE);
    }
    blocklist_free(b);
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    phrases[BLOCKLIST_PHRASES] = phrases[0];
    assert_int_equal(blocklist_build(phrases, BLOCKLIST_PHRASES + 1, &b, &err), WK_INVALID);
    assert_non_null(strstr(text, "10000"));
    /* The largest list there is fits, and one that folding makes larger than that is refused. */
    static char large[BLOCKLIST_PHRASES][BLOCKLIST_PHRASE_BYTES];
    for (int i = 0; i < BLOCKLIST_PHRASES; i++) {
        for (int k = 0; k < BLOCKLIST_PHRASE_BYTES; k++) large[i][k] = (char)('a' + draw(&seed) % 26);
        phrases[i] = (struct blocklist_phrase){ large[i], BLOCKLIST_PHRASE_BYTES, false };
    }
    b = build(phrases, BLOCKLIST_PHRASES);
    blocklist_free(b);
    for (int i = 0; i < BLOCKLIST_PHRASES; i++) {
        for (int k = 0; k + 3 <= BLOCKLIST_PHRASE_BYTES; k += 3)
            memcpy(large[i] + k, "\xef\xb7\xba", 3); /* 18 letters */
        phrases[i].len = 255;
    }
    assert_int_equal(blocklist_build(phrases, BLOCKLIST_PHRASES, &b, &err), WK_INVALID);
    assert_non_null(strstr(text, "4194304"));
}

static void test_steps_are_linear(void **state)
{
    (void)state;
    enum { N = 200000, LIST = 256 };
    static char as[LIST + 1], text[N];
    struct blocklist_phrase phrases[LIST + 2];
    memset(as, 'a', LIST);
    for (size_t i = 0; i < LIST; i++) phrases[i] = (struct blocklist_phrase){ as, i + 1, false };
    static char with_b[LIST];
    memset(with_b, 'a', LIST - 1);
    with_b[LIST - 1] = 'b';
    phrases[LIST] = (struct blocklist_phrase){ with_b, LIST, true };
    static const char spaced[] =
        "b bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb bb c";
    phrases[LIST + 1] = (struct blocklist_phrase){ spaced, sizeof spaced - 1, false };
    struct blocklist *b = build(phrases, LIST + 2);
    static const char *const units[] = { "a", "aac", "bb ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", "\u00e9\u0301", "\xff" };
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        const size_t len = strlen(units[u]);
        size_t n = 0;
        for (; n + len <= N; n += len) memcpy(text + n, units[u], len);
        struct blocklist_scan *s;
        assert_int_equal(blocklist_scan_begin(b, &s, NULL), WK_OK);
        assert_int_equal(blocklist_scan_feed(s, text, n).phrase, BLOCKLIST_NONE);
        /* A byte that is no UTF-8 is three symbols, any other one at most, and a border before it. */
        assert_true(blocklist_scan_steps(s) <= 2 * 4 * n);
        assert_true(blocklist_scan_steps(s) >= n / 2);
        (void)blocklist_scan_end(s);
        blocklist_scan_free(s);
    }
    blocklist_free(b);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static char long_phrase[BLOCKLIST_PHRASE_BYTES + 1];
    memset(long_phrase, 'x', sizeof long_phrase);
    static const struct {
        struct blocklist_phrase p;
        const char *says;
    } cases[] = {
        { { "", 0, false }, "phrase 2: expected 1 to 256 bytes, got 0" },
        { { long_phrase, sizeof long_phrase, false }, "phrase 2: expected 1 to 256 bytes, got 257" },
        { { "\xc3", 1, false }, "phrase 2: expected UTF-8" },
        { { "\xed\xa0\x80", 3, false }, "phrase 2: expected UTF-8" },
        { { "\xc0\xaf", 2, false }, "phrase 2: expected UTF-8" },
        { { "\xf4\x90\x80\x80", 4, false }, "phrase 2: expected UTF-8" },
        { { " \n", 2, false }, "phrase 2: it holds nothing" },
        { { "\u200d\u00ad", 5, false }, "phrase 2: it holds nothing" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct blocklist_phrase phrases[] = { { "ok", 2, false }, cases[i].p };
        struct blocklist *b;
        char text[256] = "";
        const struct wk_err err = { text, sizeof text };
        assert_int_equal(blocklist_build(phrases, 2, &b, &err), WK_INVALID);
        assert_null(b);
        if (!strstr(text, cases[i].says)) fail_msg("case %zu: %s", i, text);
        assert_int_equal(blocklist_build(phrases + 1, 1, &b, &err), WK_INVALID); /* nothing stands before it */
    }
    struct blocklist *b = build(NULL, 0), *same = blocklist_share(b);
    uint32_t phrase;
    blocklist_free(b);
    assert_int_equal(blocklist_find(same, "anything", 8, &phrase, NULL), WK_OK);
    assert_int_equal(phrase, BLOCKLIST_NONE);
    blocklist_free(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_reference), cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_words_and_letters),     cmocka_unit_test(test_no_byte_of_a_phrase_leaves),
        cmocka_unit_test(test_ten_thousand_phrases),  cmocka_unit_test(test_steps_are_linear),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
