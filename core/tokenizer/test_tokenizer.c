/* test_tokenizer.c: what can be proved with small vocabularies: agreement with naive reference algorithms, round trips,
 * trust, and the refusal of vocabularies that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tokenizer/pretokenize.h"
#include "base/utf8.h"
#include "vocab_builder.h"

static struct builder builder; /* 0.3 MB: not for the stack */

static struct tokenizer *must_open(void)
{
    char text[1024];
    struct wk_err err = { text, sizeof text };
    struct tokenizer *t;
    if (builder_open(&builder, &t, &err)) fail_msg("%s", text);
    return t;
}

static struct tokens encode(const struct tokenizer *t, const void *bytes, size_t n, bool parse_special)
{
    struct tokens out = { 0 };
    const struct tokenizer_part part = { bytes, n, parse_special };
    assert_int_equal(tokenizer_encode(t, bytes, n, parse_special, false, &out, NULL), WK_OK);
    assert_true(tokenizer_fewest(t, &part, 1) <= out.n);
    return out;
}

static void expect_round_trip(const struct tokenizer *t, const void *bytes, size_t n)
{
    struct tokens ids = encode(t, bytes, n, false);
    char *text;
    size_t len;
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &text, &len, NULL), WK_OK);
    assert_int_equal(len, n);
    assert_memory_equal(text, bytes, n);
    free(text);
    tokens_free(&ids);
}

/* ---- long texts ---------------------------------------------------------------------------------------- */

struct watching {
    unsigned asked, until;
};

static bool stop_then(void *user)
{
    struct watching *w = user;
    return ++w->asked == w->until;
}

/* A long text, of words or without any end, can be stopped wherever it is; whoever lets it run gets the same ids. */
static void expect_stops(const struct tokenizer *t, const char *text, size_t n)
{
    const struct tokenizer_part part = { text, n, false };
    struct tokens all = encode(t, text, n, false);
    struct watching w = { 0 };
    const struct tokenizer_watch watch = { stop_then, &w };
    struct tokens got = { 0 };
    assert_int_equal(tokenizer_encode_watched(t, &part, 1, false, &watch, &got, NULL), WK_OK);
    assert_int_equal(got.n, all.n);
    assert_memory_equal(got.ids, all.ids, all.n * sizeof *all.ids);
    const unsigned asked = w.asked;
    assert_true(asked > 4);
    for (unsigned until = 1; until <= asked; until += 1 + asked / 8) {
        w = (struct watching){ 0, until };
        assert_int_equal(tokenizer_encode_watched(t, &part, 1, false, &watch, &got, NULL), WK_CANCELLED);
        assert_int_equal(got.n, all.n); /* as before */
        assert_int_equal(w.asked, until);
    }
    tokens_free(&got);
    tokens_free(&all);
}

static void test_long_texts(void **state)
{
    (void)state;
    enum { LONG = 1 << 17 };
    char *words = malloc(LONG), *one = malloc(LONG);
    assert_true(words && one);
    for (size_t i = 0; i < LONG; i++) words[i] = " the"[i % 4];
    memset(one, 'a', LONG);
    for (int spm = 0; spm < 2; spm++) {
        if (spm)
            builder_spm(&builder);
        else
            builder_bpe(&builder, "gpt-2");
        struct tokenizer *t = must_open();
        expect_stops(t, words, LONG);
        expect_stops(t, one, LONG);
        const struct tokenizer_part parts[] = { { words, LONG, false }, { one, LONG, true } };
        size_t longest = 0;
        for (uint32_t id = 0; id < tokenizer_size(t); id++)
            if (tokenizer_text(t, id).len > longest) longest = tokenizer_text(t, id).len;
        assert_int_equal(tokenizer_fewest(t, parts, 2), 2 * LONG / longest);
        assert_int_equal(tokenizer_fewest(t, parts, 0), 0);
        tokenizer_close(t);
    }
    free(words);
    free(one);
}

/* ---- byte-level BPE ------------------------------------------------------------------------------------ */

static const char *const pres[] = { "gpt-2",    "llama-bpe",    "dbrx",           "glm4",        "qwen2",
                                    "qwen35",   "gpt-4o",       "tekken",         "default",     "starcoder",
                                    "falcon",   "bloom",        "viking",         "seed-coder",  "bailingmoe",
                                    "superbpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "kimi-k2",
                                    "tiny_aya", "youtu" };

/* decode(encode(x)) == x for all bytes, all pairs of bytes and random texts, well-formed or not. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const units[] = { "a",
                                         " ",
                                         "\n",
                                         "\r",
                                         "\t",
                                         ".",
                                         "1",
                                         "'s",
                                         "\xC3\xA9",
                                         "\xE4\xB8\xAD",
                                         "\xCC\x81",
                                         "\xF0\x9F\x98\x80",
                                         "\xE2\x80\xA8",
                                         "\xFF",
                                         "\xC3",
                                         "\xE4\xB8",
                                         "\xED\xA0\x80",
                                         "A",
                                         "$",
                                         "the" };
    srand(3);
    for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
        builder_bpe(&builder, pres[p]);
        struct tokenizer *t = must_open();
        for (unsigned pair = 0; p == 0 && pair < 65536; pair++) {
            const unsigned char bytes[2] = { (unsigned char)(pair >> 8), (unsigned char)pair };
            expect_round_trip(t, bytes, 2);
        }
        for (int round = 0; round < 2000; round++) {
            char text[256];
            size_t n = 0;
            for (int k = rand() % 40; k > 0; k--) {
                const char *unit = units[(size_t)rand() % (sizeof units / sizeof *units)];
                memcpy(text + n, unit, strlen(unit));
                n += strlen(unit);
            }
            expect_round_trip(t, text, n);
        }
        tokenizer_close(t);
    }
}

/* Expected cuts, '|' between pieces. */
static void test_pretokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *cuts;
    } cases[] = {
        { "gpt-2", "Hello| world|'s|   |\t|it| 123|abc|!!|\n\n" },
        { "gpt-2", "a|\xC2\x85|b" },      /* U+0085 is White_Space */
        { "gpt-2", "a|\xE1\xA0\x8E|b" },  /* U+180E is not, though PCRE2's \s has it: a symbol */
        { "gpt-2", "a| \xE1\xA0\x8E|b" }, /* ... which takes the space before it */
        { "llama-bpe", "I|'M| here|123|4|  \n\n|(abc|).\n|x" },
        { "llama-bpe", "don|'\xC5\xBF| x" }, /* (?i:'s) matches the long s */
        { "qwen2", "1|2|3|abc|.def| |1" },
        { "gpt-4o", "Hello|World| HTTPServer's|123|4|./\n" },
        { "tekken", "Hello|World|'s|1|2" },
        { "starcoder", "a|1|2| b" },
        { "default", "a|,|b| |123|4" },
        { "deepseek-v3", "abc|123|4|\xE4\xBD\xA0\xE5\xA5\xBD|!" },
        { "kimi-k2", "Hello|World's| HTTP|123|4|\xE4\xBD\xA0\xE5\xA5\xBD|abc|\xE4\xB8\xAD|'s|!\n" },
        { "kimi-k2",
          "1\xE3\x80\x87| \xE2\xBA\x80" }, /* U+3007 is a number, U+2E80 a symbol: only a run's first counts */
        { "kimi-k2", "\xE2\xBA\x80\xE4\xB8\xAD|\xE3\x82\xAB" },
        { "tiny_aya", "1|234|567| |12|345|,|678|./\n" }, /* threes from the right */
        { "tiny_aya", "123|4|a| |1|234|.|1|234|567" },   /* but not before a letter */
        { "tiny_aya", "123|4|_| |12\xC2\xB2|x|Hello|World's|1|234|\xE2\x91\xA0" },
        { "youtu", "\xE4\xB8\xAD|\xEF\xBC\x8C|\xED\x95\x9C\xEA\xB8\x80|1|2|Hello|World's| !/\n" },
        { "deepseek-coder", "a| b|,|1|2|\n" },
        { "deepseek-llm", "a|12|  " },
        { "deepseek-llm", "a|  |12" },
        { "bloom", "a| b|,| c" },
        { "superbpe", "By the way, |1|234|567| is not |89|.|\xD9\xA1|\xD9\xA2\xD9\xA3\xD9\xA4|123|456|." },
        { "superbpe", "a|123\xC2\xBD"
                      "45|b|12\xC2\xBD|345|678|c|\xC2\xBD|123" }, /* U+00BD is a number, but no digit */
        { "gpt-2", "a|\xFF|\xC3|b" },                             /* stray bytes are pieces of their own */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pretokenizer p;
        struct pretokenizer_scratch s = { 0 };
        char text[128], got[256];
        size_t n = 0, m = 0;
        for (const char *c = cases[i].cuts; *c; c++)
            if (*c != '|') text[n++] = *c;
        assert_int_equal(pretokenizer_open(&p, cases[i].pre, strlen(cases[i].pre), NULL), WK_OK);
        assert_int_equal(pretokenizer_split(&p, &s, text, n, NULL), WK_OK);
        for (size_t k = 0; k < s.n; k++) {
            if (k) got[m++] = '|';
            memcpy(got + m, text + s.piece[k].at, s.piece[k].len);
            m += s.piece[k].len;
        }
        got[m] = '\0';
        if (strcmp(got, cases[i].cuts)) fail_msg("%s: expected '%s', got '%s'", cases[i].pre, cases[i].cuts, got);
        pretokenizer_scratch_free(&s);
        pretokenizer_close(&p);
    }
}

/* The definition, O(n^2): again and again the adjacent pair of lowest rank, leftmost first. Texts of a and b are one
 * word each. */
static size_t naive_bpe(const char (*merges)[2][16], size_t n_merges, const char *word, char out[][64])
{
    size_t n = strlen(word);
    for (size_t i = 0; i < n; i++) (void)snprintf(out[i], 64, "%c", word[i]);
    for (;;) {
        size_t best = n_merges, at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (size_t r = 0; r < best; r++)
                if (!strcmp(out[i], merges[r][0]) && !strcmp(out[i + 1], merges[r][1])) {
                    best = r;
                    at = i;
                }
        if (best == n_merges) return n;
        (void)snprintf(out[at], 64, "%s%s", merges[best][0], merges[best][1]);
        for (size_t i = at + 1; i + 1 < n; i++) memcpy(out[i], out[i + 1], 64);
        n--;
    }
}

static void test_bpe_against_definition(void **state)
{
    (void)state;
    srand(4);
    for (int round = 0; round < 300; round++) {
        char merges[12][2][16], known[14][16] = { "a", "b" }, parts[64][64];
        size_t n_known = 2, n_merges = 0;
        builder_bpe(&builder, "gpt-2");
        builder.n = 256; /* bytes only */
        builder.n_merges = 0;
        for (int k = 0; k < 12; k++) {
            const char *l = known[(size_t)rand() % n_known], *r = known[(size_t)rand() % n_known];
            char joined[32];
            (void)snprintf(joined, sizeof joined, "%s%s", l, r);
            bool dup = strlen(joined) > 12;
            for (size_t i = 0; i < n_known; i++) dup = dup || !strcmp(known[i], joined);
            if (dup) continue;
            strcpy(merges[n_merges][0], l);
            strcpy(merges[n_merges++][1], r);
            builder_merge(&builder, l, r);
            strcpy(known[n_known++], joined);
        }
        if (!n_merges) continue;
        struct tokenizer *t = must_open();
        for (int w = 0; w < 30; w++) {
            char word[41];
            size_t len = (size_t)(1 + rand() % 40);
            for (size_t i = 0; i < len; i++) word[i] = (char)("aab"[rand() % 3]);
            word[len] = '\0';
            const size_t n = naive_bpe(merges, n_merges, word, parts);
            struct tokens got = encode(t, word, len, false);
            assert_int_equal(got.n, n);
            for (size_t i = 0; i < n; i++) assert_int_equal(got.ids[i], tokenizer_find(t, parts[i], strlen(parts[i])));
            tokens_free(&got);
        }
        tokenizer_close(t);
    }
}

/* ---- special tokens ------------------------------------------------------------------------------------ */

struct cut {
    size_t at, len;
    uint32_t id;
};

/* The definition: special after special, longest first, ids ascending, each cut out of the remaining raw text from left
 * to right. */
static size_t naive_specials(const struct tokenizer *t, uint32_t first, const char *text, size_t n, struct cut *out)
{
    size_t count = 0;
    bool taken[64] = { false };
    for (size_t len = 8; len > 0; len--)
        for (uint32_t id = first; id < tokenizer_size(t); id++) {
            const struct token_bytes s = tokenizer_text(t, id);
            if (s.len != len || tokenizer_find(t, s.data, s.len) != id) continue;
            for (size_t i = 0; i + len <= n; i++) {
                bool free_here = memcmp(text + i, s.data, len) == 0;
                for (size_t k = 0; k < len; k++) free_here = free_here && !taken[i + k];
                if (!free_here) continue;
                memset(taken + i, true, len);
                out[count++] = (struct cut){ i, len, id };
            }
        }
    return count;
}

static void test_specials_against_definition(void **state)
{
    (void)state;
    srand(5);
    for (int round = 0; round < 400; round++) {
        builder_bpe(&builder, "gpt-2");
        const uint32_t first = builder.n;
        for (int k = 0; k < 1 + round % 14; k++) {
            char special[9];
            const size_t len = (size_t)(1 + rand() % 8);
            for (size_t i = 0; i < len; i++) special[i] = (char)("xyz"[rand() % 3]);
            special[len] = '\0';
            bool dup = false; /* a one-letter special must not shadow its byte's token */
            for (uint32_t i = 0; i < builder.n; i++) dup = dup || !strcmp(builder.token[i].text, special);
            if (!dup) builder_token(&builder, special, TOKEN_CONTROL, 0);
        }
        struct tokenizer *t = must_open();
        for (int w = 0; w < 40; w++) {
            char text[64];
            struct cut cuts[64];
            for (size_t i = 0; i < sizeof text; i++) text[i] = (char)("xyz"[rand() % 3]);
            const size_t n = naive_specials(t, first, text, sizeof text, cuts);
            struct tokens got = encode(t, text, sizeof text, true);
            size_t specials = 0, at = 0;
            for (size_t i = 0; i < got.n; i++) {
                const size_t len = tokenizer_piece(t, got.ids[i], true).len;
                if (got.ids[i] >= first) {
                    bool found = false;
                    for (size_t k = 0; k < n; k++)
                        found = found || (cuts[k].at == at && cuts[k].len == len && cuts[k].id == got.ids[i]);
                    assert_true(found);
                    specials++;
                }
                at += len;
            }
            assert_int_equal(at, sizeof text);
            assert_int_equal(specials, n);
            tokens_free(&got);
        }
        tokenizer_close(t);
    }
}

static void test_trust(void **state)
{
    (void)state;
    builder_spm(&builder);
    const uint32_t end = builder_token(&builder, "<|end|>", TOKEN_CONTROL, 0);
    const uint32_t user_defined = builder_token(&builder, "<tool>", TOKEN_USER_DEFINED, 0);
    const uint32_t turn = builder_token(&builder, "<turn>", TOKEN_USER_DEFINED, 0);
    builder_int(&builder, "tokenizer.ggml.eot_token_id", turn);
    struct tokenizer *t = must_open();
    const struct {
        const char *a, *b;
        bool trust_a, trust_b;
        uint32_t id;
        bool found;
    } cases[] = {
        { "the", "<|end|>", true, true, end, true }, { "the", "<|end|>", true, false, end, false },
        { "<|en", "d|>", true, true, end, true },    { "<|en", "d|>", true, false, end, false },
        { "<|en", "d|>", false, true, end, false },  { "the", "</s>", true, false, 2, false },
        { "the", "<s>", false, true, 1, true },      { "a<to", "ol>", false, false, user_defined, true },
        { "a", "<turn>", true, false, turn, false }, /* USER_DEFINED, but it ends texts */
        { "a", "<turn>", false, true, turn, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tokenizer_part parts[] = { { cases[i].a, strlen(cases[i].a), cases[i].trust_a },
                                                { "", 0, true },
                                                { cases[i].b, strlen(cases[i].b), cases[i].trust_b } };
        struct tokens got = { 0 };
        bool found = false;
        assert_int_equal(tokenizer_encode_parts(t, parts, 3, false, &got, NULL), WK_OK);
        for (size_t k = 0; k < got.n; k++) found = found || got.ids[k] == cases[i].id;
        if (found != cases[i].found) fail_msg("case %zu", i);
        tokens_free(&got);
    }
    tokenizer_close(t);
}

/* A text cut into parts of equal trust anywhere has the same ids. */
static void test_parts_are_one_text(void **state)
{
    (void)state;
    builder_spm(&builder);
    builder.name = "Phi-3 like";
    builder_token(&builder, "<|user|>", TOKEN_CONTROL, 0);
    struct tokenizer *t = must_open();
    static const char text[] = "the <|user|>\n  the the<s> in the";
    struct tokens whole = encode(t, text, sizeof text - 1, true);
    for (size_t cut = 0; cut < sizeof text; cut++) {
        const struct tokenizer_part parts[] = { { text, cut, true }, { text + cut, sizeof text - 1 - cut, true } };
        struct tokens got = { 0 };
        assert_int_equal(tokenizer_encode_parts(t, parts, 2, false, &got, NULL), WK_OK);
        assert_int_equal(got.n, whole.n);
        assert_memory_equal(got.ids, whole.ids, got.n * sizeof *got.ids);
        tokens_free(&got);
    }
    tokens_free(&whole);
    tokenizer_close(t);
}

/* ---- SPM ----------------------------------------------------------------------------------------------- */

static void expect_ids(const struct tokenizer *t, const char *text, bool parse_special, bool add_special,
                       const char *const *pieces)
{
    struct tokens got = { 0 };
    size_t n = 0;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), parse_special, add_special, &got, NULL), WK_OK);
    for (; pieces[n]; n++) {
        assert_true(n < got.n);
        const struct token_bytes have = tokenizer_text(t, got.ids[n]);
        if (have.len != strlen(pieces[n]) || memcmp(have.data, pieces[n], have.len))
            fail_msg("'%s': token %zu: expected '%s', got '%.*s'", text, n, pieces[n], (int)have.len, have.data);
    }
    assert_int_equal(got.n, n);
    tokens_free(&got);
}
#define EXPECT(t, text, parse, add, ...) \
    expect_ids(t, text, parse, add, (const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void test_spm(void **state)
{
    (void)state;
    builder_spm(&builder);
    struct tokenizer *t = must_open();
    EXPECT(t, "", false, false);
    EXPECT(t, "", false, true, "<s>");
    EXPECT(t, "the", false, true, "<s>", "\xE2\x96\x81the");
    EXPECT(t, "<s>the", true, true, "<s>", "\xE2\x96\x81the"); /* bos is not doubled */
    EXPECT(t, "the</s>the", true, false, "\xE2\x96\x81the", "</s>", "\xE2\x96\x81the");
    EXPECT(t, "aaaaaa", false, false, "\xE2\x96\x81", "aaaa", "aa"); /* score -5 before -6, then leftmost */
    EXPECT(t, "\xC3\xA9", false, false, "\xE2\x96\x81", "<0xC3>", "<0xA9>");
    EXPECT(t, "\xFFz", false, false, "\xE2\x96\x81", "<0xFF>", "z");
    EXPECT(t, "<0x41>", false, false, "\xE2\x96\x81", "<0x3C>", "<0x30>", "x", "<0x34>", "<0x31>",
           "<0x3E>"); /* never the byte token itself */
    struct tokens ids = encode(t, "the in", 6, false);
    char *text;
    size_t len;
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &text, &len, NULL), WK_OK);
    assert_string_equal(text, "the in");
    free(text);
    const struct token_bytes first = tokenizer_piece(t, ids.ids[0], false); /* a continuation keeps its space */
    assert_int_equal(first.len, 4);
    assert_memory_equal(first.data, " the", 4);
    tokens_free(&ids);
    const uint32_t control[] = { 1, 0, 2 }, beyond[] = { 5, 100000 };
    assert_int_equal(tokenizer_decode(t, control, 3, false, &text, &len, NULL), WK_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(tokenizer_decode(t, control, 3, true, &text, &len, NULL), WK_OK);
    assert_string_equal(text, "<s><unk></s>");
    free(text);
    assert_int_equal(tokenizer_decode(t, beyond, 2, true, &text, &len, NULL), WK_INVALID);
    assert_null(text);
    tokenizer_close(t);
}

static void test_spm_options(void **state)
{
    (void)state;
    builder_spm(&builder);
    builder_flag(&builder, "tokenizer.ggml.add_space_prefix", false);
    builder_flag(&builder, "tokenizer.ggml.add_bos_token", false);
    builder_flag(&builder, "tokenizer.ggml.add_eos_token", true);
    struct tokenizer *t = must_open();
    EXPECT(t, "the", false, true, "the", "</s>");
    tokenizer_close(t);
    builder_spm(&builder);
    builder.name = "my Phi3 model";
    builder_token(&builder, "<|user|>", TOKEN_CONTROL, 0);
    t = must_open();
    EXPECT(t, "<|user|>\n the", true, false, "<|user|>", "\xE2\x96\x81the");
    EXPECT(t, "<s>\nthe", true, false, "<s>", "\xE2\x96\x81", "<0x0A>", "the");
    EXPECT(t, "<|user|>\n", true, false, "<|user|>");
    tokenizer_close(t);
    builder_spm(&builder);
    builder.short_types = -1; /* no token_type: what is control and what a byte is known by role and spelling */
    t = must_open();
    EXPECT(t, "<s>", false, false, "\xE2\x96\x81", "<0x3C>", "s", "<0x3E>");
    EXPECT(t, "<s>", true, false, "<s>");
    tokenizer_close(t);
}

/* Texts with a space inside make words one text: a merge may cross a word's end. */
static void test_spm_words(void **state)
{
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        builder_spm(&builder);
        builder_token(&builder, "a\xE2\x96\x81", joined ? TOKEN_NORMAL : TOKEN_UNUSED, -1);
        struct tokenizer *t = must_open();
        if (joined)
            EXPECT(t, "a a", false, false, "\xE2\x96\x81", "a\xE2\x96\x81", "a");
        else
            EXPECT(t, "a a", false, false, "\xE2\x96\x81", "a", "\xE2\x96\x81", "a");
        if (joined)
            EXPECT(t, " a  a", false, false, "\xE2\x96\x81\xE2\x96\x81", "a\xE2\x96\x81", "\xE2\x96\x81", "a");
        else
            EXPECT(t, " a  a", false, false, "\xE2\x96\x81\xE2\x96\x81", "a", "\xE2\x96\x81\xE2\x96\x81", "a");
        tokenizer_close(t);
    }
}

/* ---- vocabularies that lie ----------------------------------------------------------------------------- */

static void expect_refused(wk_status status, const char *what)
{
    char text[1500];
    struct wk_err err = { text, sizeof text };
    struct tokenizer *t;
    const wk_status got = builder_open(&builder, &t, &err);
    if (got != status || !strstr(text, what))
        fail_msg("expected '%s', got status %d '%s'", what, (int)got, got ? text : "");
    assert_null(t);
}

/* Does the built file pass, or is it refused for the key, which can be accepted? */
static void check_keys(const char *key, bool refused)
{
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct gguf *file;
    struct tokenizer *t;
    struct gguf_accepted accepted = { .names = &key, .n = 1 };
    builder_write(&builder);
    assert_int_equal(gguf_open_memory(builder.bytes, builder.size, "built vocabulary", &file, &err), WK_OK);
    const wk_status status = tokenizer_open_for(file, NULL, 0, NULL, &t, &err);
    tokenizer_close(t);
    if ((status == WK_UNSUPPORTED) != refused || (refused && !strstr(text, key))) fail_msg("%s: %s", key, text);
    assert_int_equal(tokenizer_open_for(file, NULL, 0, &accepted, &t, &err), WK_OK);
    assert_int_equal(accepted.used, refused);
    tokenizer_close(t);
    gguf_close(file);
    free(builder.bytes);
    builder.bytes = NULL;
    builder.size = builder.cap = 0;
}

static void test_ids_out_of_range(void **state)
{
    (void)state;
    static const char *const keys[] = { "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
                                        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id" };
    static const int64_t bad[] = { -2, INT64_MIN, INT64_MAX, 1 << 20, UINT32_MAX - 1, 0 /* n itself */ };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            for (int spm = 0; spm < 2; spm++) {
                if (spm)
                    builder_spm(&builder);
                else
                    builder_bpe(&builder, "gpt-2");
                builder_int(&builder, keys[k], bad[i] ? bad[i] : (int64_t)builder.n);
                expect_refused(WK_INVALID, keys[k]);
            }
    builder_bpe(&builder, "gpt-2"); /* -1 is a spelling of "none" */
    builder_int(&builder, "tokenizer.ggml.bos_token_id", -1);
    struct tokenizer *t = must_open();
    assert_int_equal(tokenizer_bos(t), TOKEN_NONE);
    tokenizer_close(t);
}

/* Of keys that end an answer every id of an array counts; other keys have one value. */
static void test_arrays_of_ids(void **state)
{
    (void)state;
    static const char *const sets[] = { "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eos_token_ids",
                                        "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" },
                             *const scalars[] = {
                                 "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.unknown_token_id",
                                 "tokenizer.ggml.padding_token_id", "tokenizer.ggml.add_bos_token",
                                 "tokenizer.ggml.add_eos_token",    "tokenizer.ggml.add_space_prefix"
                             };
    static const int64_t two[2] = { 2, 7 }, none_first[3] = { -1, 9, 9 }, far[2] = { 2, 1 << 20 }, many[33] = { 2 };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct tokenizer *t;
        builder_bpe(&builder, "gpt-2");
        builder_ints(&builder, sets[i], two, 2);
        t = must_open();
        assert_true(tokenizer_ends(t, 2) && tokenizer_ends(t, 7) && !tokenizer_ends(t, 9));
        if (!i) assert_int_equal(tokenizer_eos(t), 2);
        tokenizer_close(t);
        builder_bpe(&builder, "gpt-2");
        builder_ints(&builder, sets[i], none_first, 3);
        t = must_open();
        assert_true(tokenizer_ends(t, 9) && !tokenizer_ends(t, 2));
        tokenizer_close(t);
        builder_bpe(&builder, "gpt-2");
        builder_ints(&builder, sets[i], far, 2);
        expect_refused(WK_INVALID, sets[i]);
        builder_bpe(&builder, "gpt-2");
        builder_ints(&builder, sets[i], many, 33);
        expect_refused(WK_INVALID, sets[i]);
        builder_bpe(&builder, "gpt-2");
        builder_ints(&builder, sets[i], two, 0);
        expect_refused(WK_INVALID, sets[i]);
    }
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        for (int64_t n = 0; n <= 2; n++) {
            builder_spm(&builder);
            builder_ints(&builder, scalars[i], two, n);
            expect_refused(WK_INVALID, scalars[i]);
        }
}

static void test_unread_keys(void **state)
{
    (void)state;
    static const char *const wrong[] = { "tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.eos_token_idx",
                                         "tokenizer.rwkv.world", "tokenizer.ggml.bos_token_ids", "tokenizer.x" },
                             *const flags[] = { "tokenizer.ggml.normalizer.lowercase",
                                                "tokenizer.ggml.remove_extra_whitespaces" },
                             *const right[] = { "tokenizer.ggml.mask_token_id",
                                                "tokenizer.ggml.seperator_token_id",
                                                "tokenizer.ggml.fim_pre_token_id",
                                                "tokenizer.huggingface.json",
                                                "tokenizer.chat_template.tool_use",
                                                "tokenizers.x",
                                                "token" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        builder_spm(&builder);
        builder_int(&builder, wrong[i], 1);
        check_keys(wrong[i], true);
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (int value = 0; value < 2; value++) {
            builder_spm(&builder);
            builder_flag(&builder, flags[i], value);
            check_keys(flags[i], value);
        }
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        builder_spm(&builder);
        builder_int(&builder, right[i], 1);
        check_keys(right[i], false);
    }
}

/* Byte-level vocabularies without tokens for bytes that hardly any text holds. */
static void test_missing_bytes(void **state)
{
    (void)state;
    static const unsigned char rare[] = { 0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA,
                                          0xFB, 0xFC, 0xFD, 0xFE, 0xFF, 0xF1, 0x00, 0x1F };
    enum { LEFT_OUT, UNKNOWN, CONTROL, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        struct tokens ids = { 0 };
        char text[256];
        const struct wk_err err = { text, sizeof text };
        builder_bpe(&builder, "gpt-2");
        for (size_t i = 0; i < sizeof rare; i++) builder.token[rare[i]].type = TOKEN_UNUSED;
        const uint32_t unk = builder_token(&builder, "<unk>", kind == CONTROL ? TOKEN_CONTROL : TOKEN_UNKNOWN, 0);
        if (kind != LEFT_OUT) builder_int(&builder, "tokenizer.ggml.unknown_token_id", unk);
        struct tokenizer *t = must_open();
        for (size_t i = 0; i < sizeof rare; i++) {
            const char word[3] = { 'a', (char)rare[i], 'b' };
            const wk_status status = tokenizer_encode(t, word, 3, false, false, &ids, &err);
            char hex[8];
            (void)snprintf(hex, sizeof hex, "0x%02X", (unsigned)rare[i]);
            if (kind == UNKNOWN) {
                assert_int_equal(status, WK_OK);
                assert_int_equal(ids.n, 3);
                assert_int_equal(ids.ids[1], unk);
            } else {
                assert_int_equal(status, WK_INVALID);
                assert_non_null(strstr(text, hex));
                assert_int_equal(ids.n, 0);
            }
            ids.n = 0;
        }
        assert_int_equal(tokenizer_encode(t, "aaaa", 4, false, false, &ids, &err), WK_OK);
        assert_int_equal(ids.n, 1);
        tokens_free(&ids);
        tokenizer_close(t);
    }
    builder_bpe(&builder, "gpt-2"); /* bytes that texts are made of must have a token */
    builder.token[0xE4].type = TOKEN_UNUSED;
    expect_refused(WK_INVALID, "0xE4 has none");
}

static void test_lying_vocabularies(void **state)
{
    (void)state;
    builder_spm(&builder);
    builder.short_types = 1;
    expect_refused(WK_INVALID, "tokenizer.ggml.token_type: has");
    builder_spm(&builder);
    builder.short_scores = 1;
    expect_refused(WK_INVALID, "tokenizer.ggml.scores: has");
    builder_spm(&builder);
    builder.short_scores = -1;
    expect_refused(WK_INVALID, "scores is absent");
    builder_spm(&builder);
    builder.token[270].score = (float)(0.0 * -(double)__builtin_inf());
    expect_refused(WK_INVALID, "tokenizer.ggml.scores[270] is not a number");
    builder_spm(&builder);
    builder.token[5].type = 7;
    expect_refused(WK_INVALID, "tokenizer.ggml.token_type[5]: 7");
    static const char *const bytes[] = { "<0xZZ>", "<0x-1>", "<0x100>", "<0x4>",  "<0x 4>", "<0x41",
                                         "0x41",   "<0X41>", "<0x+1>",  "<0x4g>", "",       "<0x41>x" };
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        builder_spm(&builder);
        builder_token(&builder, bytes[i], TOKEN_BYTE, 0);
        expect_refused(WK_INVALID, "a byte token must be spelt <0xHH>");
    }
    builder_spm(&builder);
    builder_token(&builder, "the", TOKEN_NORMAL, 0);
    expect_refused(WK_INVALID, "have the same text");
    builder_spm(&builder);
    builder.token[3].type = TOKEN_CONTROL; /* <0x00> is no byte token now, and there is no unknown token */
    builder.token[0].type = TOKEN_CONTROL;
    builder_int(&builder, "tokenizer.ggml.unknown_token_id", -1);
    expect_refused(WK_INVALID, "no token <0x00>");
    builder_bpe(&builder, "gpt-2");
    builder.token[65].type = TOKEN_CONTROL;
    expect_refused(WK_INVALID, "0x41 has none");
    builder_bpe(&builder, "gpt-2");
    strcpy(builder.merge[3], "nospace");
    expect_refused(WK_INVALID, "tokenizer.ggml.merges[3]");
    builder_bpe(&builder, "gpt-2");
    strcpy(builder.merge[2], "a q");
    expect_refused(WK_INVALID, "tokenizer.ggml.merges[2]: the result");
    builder_bpe(&builder, "gpt-2");
    strcpy(builder.merge[2], " a");
    expect_refused(WK_INVALID, "tokenizer.ggml.merges[2]: expected");
    builder_bpe(&builder, "gpt-2"); /* a merge that would let users spell a control token */
    builder_merge(&builder, "b", "c");
    builder.token[builder.n - 1].type = TOKEN_CONTROL;
    expect_refused(WK_INVALID, "is not a normal token");
    builder_bpe(&builder, "gpt-2");
    builder.n_merges = 0;
    expect_refused(WK_INVALID, "merges is absent");
    builder_bpe(&builder, "klingon");
    expect_refused(WK_UNSUPPORTED, "unknown pre-tokenizer 'klingon'; known ones: gpt-2 phi-2");
    builder_bpe(&builder, "gpt-2 phi-2");
    expect_refused(WK_UNSUPPORTED, "unknown pre-tokenizer");
    builder_bpe(&builder, "gpt-2");
    builder.model = "rwkv";
    expect_refused(WK_UNSUPPORTED, "'rwkv' is not supported");
    builder_bpe(&builder, "gpt-2");
    builder.model = NULL;
    expect_refused(WK_UNSUPPORTED, "--tokenizer");
}

/* What looks odd but occurs in real files is taken. */
static void test_odd_but_valid(void **state)
{
    (void)state;
    builder_bpe(&builder, NULL); /* no pre: default */
    builder_token(&builder, "", TOKEN_NORMAL, 0);
    builder_token(&builder, "", TOKEN_UNUSED, 0);
    builder_token(&builder, "[PAD]", TOKEN_UNUSED, 0);
    builder_token(&builder, "[PAD]", TOKEN_UNUSED, 0);
    const uint32_t raw =
        builder_token_bytes(&builder, " \xFF", 2, TOKEN_NORMAL, 0); /* outside the byte alphabet: stands for itself */
    struct tokenizer *t = must_open();
    assert_int_equal(tokenizer_piece(t, raw, false).len, 2);
    assert_int_equal(tokenizer_piece(t, raw - 1, false).len, 0);
    assert_int_equal(tokenizer_text(t, UINT32_MAX).len, 0);
    assert_int_equal(tokenizer_type(t, UINT32_MAX), TOKEN_UNUSED);
    expect_round_trip(t, "[PAD] the", 9);
    tokenizer_close(t);
    builder_spm(&builder); /* smaller than SentencePiece's fixed ids */
    builder.n = 1;
    t = must_open();
    assert_int_equal(tokenizer_bos(t), TOKEN_NONE);
    EXPECT(t, "ab", false, true, "<unk>", "<unk>", "<unk>", "<unk>", "<unk>"); /* the escaped space is three bytes */
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_pretokenizers),
        cmocka_unit_test(test_bpe_against_definition),
        cmocka_unit_test(test_specials_against_definition),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_parts_are_one_text),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_spm_options),
        cmocka_unit_test(test_spm_words),
        cmocka_unit_test(test_ids_out_of_range),
        cmocka_unit_test(test_arrays_of_ids),
        cmocka_unit_test(test_unread_keys),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_lying_vocabularies),
        cmocka_unit_test(test_odd_but_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
