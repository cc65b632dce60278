/* test_unigram.c: SentencePiece's unigram model from a file: spaces, unknown characters, bytes, and files that are
 * refused or whose map lies. Ids of longer texts are in test_made_vectors.c. */
#include "vocab_check.h"

static void test_spaces(void **state)
{
    (void)state;
    builder_unigram(&builder);
    struct tokenizer *t = must_open();
    assert_string_equal(tokenizer_kind(t), "gguf-unigram");
    CHECK(t, "", "");
    CHECK(t, "   ", "");
    CHECK(t, "the worker", "_the _worker");
    CHECK(t, "  the   worker ", "_the _worker");
    CHECK(t, "worker", "_worker");
    CHECK(t, "thework", "_the work");
    CHECK(t, "aaaaa", "_ aa aaa");
    check(t, "the", 3, true, "_the </s>"); /* eos by itself, bos if the file wants it */
    tokenizer_close(t);
    builder_unigram(&builder);
    builder_flag(&builder, "tokenizer.ggml.remove_extra_whitespaces", false);
    builder_flag(&builder, "tokenizer.ggml.add_space_prefix", false);
    builder_flag(&builder, "tokenizer.ggml.add_bos_token", true);
    t = must_open();
    CHECK(t, " the  worker ", "_the _ _worker _");
    CHECK(t, "worker", "work er");
    check(t, "", 0, true, "<s> </s>");
    tokenizer_close(t);
}

static void test_unknown(void **state)
{
    (void)state;
    builder_unigram(&builder);
    struct tokenizer *t = must_open();
    CHECK(t, "the\xC3\xA9\xC3\xA9q", "_the <unk> q"); /* neighbours are one */
    CHECK(t, "a\xFFz", "_ a <unk> z");
    CHECK(t, "<unk></s>", "_ <unk> u n k <unk> s <unk>"); /* text is no control token */
    tokenizer_close(t);
    builder_unigram(&builder);
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", i);
        builder_token(&builder, text, TOKEN_BYTE, 0);
    }
    t = must_open();
    CHECK(t, "the\xC3\xA9", "_the <0xC3> <0xA9>");
    CHECK(t, "<0x41>", "_ <0x3C> <0x30> x <0x34> <0x31> <0x3E>");
    tokenizer_close(t);
}

static void must_refuse(const char *text)
{
    struct tokenizer *t;
    assert_int_not_equal(builder_open(&builder, &t, &err), WK_OK);
    assert_null(t);
    if (!strstr(text_of_error, text)) fail_msg("\"%s\" does not say %s", text_of_error, text);
}

static void refuse_map(const uint8_t *map, size_t n, const char *text)
{
    builder_unigram(&builder);
    builder.map = map;
    builder.n_map = n;
    must_refuse(text);
}

/* Two texts: as XLM-R has them, and all tokens are of one type. */
static void test_pair(void **state)
{
    (void)state;
    const struct tokenizer_part pair[2] = { { "the", 3, false }, { "worker", 6, false } };
    const uint32_t want[] = { 1, 4, 2, 2, 5, 2 };
    struct tokens ids = { 0 };
    size_t second = 9;
    builder_unigram(&builder);
    builder_flag(&builder, "tokenizer.ggml.add_bos_token", true);
    builder_flag(&builder, "tokenizer.ggml.add_sep_token", true);
    struct tokenizer *t = must_open();
    assert_int_equal(tokenizer_encode_pair(t, pair, NULL, &ids, &second, &err), WK_OK);
    assert_int_equal(second, 0);
    assert_int_equal(ids.n, 6);
    assert_memory_equal(ids.ids, want, sizeof want);
    tokens_free(&ids);
    tokenizer_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    static const uint8_t short_map[4] = { 0 }, empty[6] = { 0 }, odd[16] = { 6 }, long_trie[16] = { 16 },
                         unended[9] = { 4, 0, 0, 0, 0, 0, 0, 0, 'x' }, empty_trie[8] = { 4 };
    static uint8_t long_text[8 + 513 + 1];
    refuse_map(short_map, sizeof short_map, "4 bytes; 5 to");
    refuse_map(empty, sizeof empty, "a trie of 0 bytes");
    refuse_map(odd, sizeof odd, "a trie of 6 bytes");
    refuse_map(long_trie, sizeof long_trie, "a trie of 16 bytes");
    refuse_map(unended, sizeof unended, "that end with a zero byte");
    memset(long_text, 'x', sizeof long_text - 1);
    memcpy(long_text, empty_trie, sizeof empty_trie);
    refuse_map(long_text, sizeof long_text, "a text of 513 bytes; at most 512");
    builder_unigram(&builder);
    builder_int(&builder, "tokenizer.ggml.precompiled_charsmap", 5);
    must_refuse("expected an array of bytes");
    builder_unigram(&builder);
    builder.extra[2].value = -1; /* the unknown token */
    must_refuse("needs an unknown token");
    builder_unigram(&builder);
    builder.short_scores = -1;
    must_refuse("tokenizer.ggml.scores is absent");
}

/* Whatever a map holds, an encode ends, and reads nothing beyond it. */
static void test_lying_maps(void **state)
{
    (void)state;
    static const char text[] = "the worker's queue \xC3\xA9\xE4\xBD\xA0 \xFF aaaaaaaaaaaaaaaa";
    uint8_t map[1024];
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 400; round++) {
        const uint32_t units = 1 + (uint32_t)(round * 7) % 200, bytes = 4 * units;
        for (size_t i = 0; i < sizeof map; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            map[i] = (uint8_t)x;
            /* Small offsets, and labels that occur: else nothing is ever found. */
            if (i % 4 == 0 && i >= 4) map[i] = (uint8_t)text[x / 256 % (sizeof text - 1)];
            if (i % 4 == 1 && i >= 4) map[i] &= (uint8_t)(round % 2 ? 0x7D : 0x01);
            if (i % 4 > 1 && i >= 4) map[i] &= (uint8_t)(round % 3 ? 0x00 : 0x01);
        }
        map[0] = (uint8_t)bytes, map[1] = (uint8_t)(bytes >> 8), map[2] = map[3] = 0;
        const size_t n = 4 + bytes + 1 + (size_t)round % 16;
        map[n - 1] = 0;
        builder_unigram(&builder);
        builder.map = map;
        builder.n_map = n;
        struct tokenizer *t = must_open();
        struct tokens ids = { 0 };
        assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, false, true, &ids, &err), WK_OK);
        tokens_free(&ids);
        tokenizer_close(t);
    }
}

static bool stops(void *user) { return --*(int *)user < 0; }

/* A map whose units go in circles, so that every text of a's begins a text of it: the time of an encode grows as the
 * text does, not as its square; and while a text is normalised it can be stopped. */
static void test_circle(void **state)
{
    (void)state;
    enum { UNITS = 256, LONG = 1 << 18 };
    static uint8_t map[4 + 4 * UNITS + 2] = { 0, 4 };
    uint8_t *unit = map + 4 + 4 * 'a';
    unit[0] = 'a', unit[1] = 'a' << 2 & 0xff, unit[2] = 'a' >> 6; /* its children lie where it is found from: at 'a' */
    builder_unigram(&builder);
    builder.map = map;
    builder.n_map = sizeof map;
    struct tokenizer *t = must_open();
    char *text = malloc(LONG);
    assert_non_null(text);
    memset(text, 'a', LONG);
    struct tokens ids = { 0 };
    assert_int_equal(tokenizer_encode(t, text, LONG, false, false, &ids, &err), WK_OK);
    assert_int_equal(ids.n, 1 + (LONG + 2) / 3); /* _ and aaa's */
    ids.n = 0;
    int looks = 3;
    const struct tokenizer_watch watch = { stops, &looks };
    const struct tokenizer_part part = { text, LONG, false };
    assert_int_equal(tokenizer_encode_watched(t, &part, 1, false, &watch, &ids, &err), WK_CANCELLED);
    assert_int_equal(ids.n, 0);
    free(text);
    tokens_free(&ids);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_spaces),     cmocka_unit_test(test_unknown),
                                        cmocka_unit_test(test_pair),       cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_lying_maps), cmocka_unit_test(test_circle) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
