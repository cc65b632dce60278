/* test_wordpiece.c: WordPiece from a file: what begins and ends a text, what of a text makes words, and files that are
 * refused. Ids of longer texts are in test_made_vectors.c. */
#include "vocab_check.h"

static void test_words(void **state)
{
    (void)state;
    char long_word[101 * 2 + 1] = "";
    builder_wordpiece(&builder);
    struct tokenizer *t = must_open();
    assert_string_equal(tokenizer_kind(t), "gguf-wordpiece");
    CHECK(t, "", "");
    CHECK(t, " \t\r\n\xC2\xA0\xE3\x80\x80 ", "");
    CHECK(t, "The WORKERS", "_the _worker s");
    CHECK(t, "unknowning", "_un known ing");
    CHECK(t, "the.worker,!", "_the _. _worker _, _!");
    CHECK(t, "zebra", "[UNK]"); /* no letter z */
    CHECK(t, "the zebra the", "_the [UNK] _the");
    CHECK(t, "ing", "[UNK]");                                  /* it begins no word */
    CHECK(t, "caf\xC3\xA9 cafe\xCC\x81", "_c a f e _c a f e"); /* accents go, composed or not */
    CHECK(t,
          "d\xC2\xAD"
          "e\xE2\x80\x8B"
          "f\x01",
          "_d e f"); /* a soft hyphen, a space without width, a control */
    CHECK(t, "a\0b", "_a b");
    CHECK(t, "a\xFFz", "[UNK]");
    CHECK(t,
          "a\xFF"
          "b",
          "_a b"); /* what is no UTF-8 is left out */
    CHECK(t,
          "\xE4\xBD\xA0\xE5\xA5\xBD"
          "a",
          "_\xE4\xBD\xA0 _\xE5\xA5\xBD _a");
    CHECK(t, "[CLS]", "[UNK] [UNK] [UNK]"); /* text is no control token */
    CHECK(t, "\xE2\x96\x81the", "[UNK]");   /* nor does it begin a word by itself */
    for (int i = 0; i < 100; i++) long_word[i] = 'a';
    check(t, long_word, 50, false,
          "_a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a");
    long_word[100] = 'a';
    check(t, long_word, 101, false, "[UNK]");
    check(t, "the", 3, true, "[CLS] _the [SEP]");
    check(t, "", 0, true, "[CLS] [SEP]");
    tokenizer_close(t);
    builder_wordpiece(&builder);
    builder_flag(&builder, "tokenizer.ggml.normalizer.lowercase", false);
    t = must_open();
    CHECK(t, "The the", "[UNK] _the");
    CHECK(t, "caf\xC3\xA9", "[UNK]");
    tokenizer_close(t);
}

static void test_roles(void **state)
{
    (void)state;
    const struct tokenizer_part pair[2] = { { "the", 3, false }, { "worker", 6, false } };
    struct tokens ids = { 0 };
    size_t second;
    /* The keys of the roles win, whatever ids begin and end texts elsewhere. */
    builder_wordpiece(&builder);
    builder_int(&builder, "tokenizer.ggml.bos_token_id", 0);
    builder_int(&builder, "tokenizer.ggml.eos_token_id", 4);
    struct tokenizer *t = must_open();
    assert_int_equal(tokenizer_bos(t), 2);
    assert_int_equal(tokenizer_eos(t), 3);
    assert_int_equal(tokenizer_encode_pair(t, pair, NULL, &ids, &second, &err), WK_OK);
    const uint32_t want[] = { 2, 5, 3, 6, 3 };
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.ids, want, sizeof want);
    assert_int_equal(second, 3);
    tokens_free(&ids);
    tokenizer_close(t);
    builder_wordpiece(&builder);
    builder_flag(&builder, "tokenizer.ggml.add_sep_token", true);
    builder_flag(&builder, "tokenizer.ggml.add_bos_token", false);
    t = must_open();
    assert_int_equal(tokenizer_encode_pair(t, pair, NULL, &ids, &second, &err), WK_OK);
    const uint32_t apart[] = { 5, 3, 3, 6, 3 };
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.ids, apart, sizeof apart);
    assert_int_equal(second, 3);
    tokens_free(&ids);
    tokenizer_close(t);
}

/* Pairs that are cut: "the" first, "worker" second, between [CLS] and two [SEP]. */
static void test_limits(void **state)
{
    (void)state;
    enum { CLS = 2, SEP = 3, MOST = 6 };
    static const struct {
        struct tokenizer_limits limits;
        size_t n[2], want[2]; /* of each text: what there is, what is left */
    } rows[] = {
        { { 0 }, { 5, 6 }, { 5, 6 } },
        { { .all = 14 }, { 5, 6 }, { 5, 6 } },
        { { .all = 13 }, { 5, 6 }, { 5, 5 } },
        { { .all = 13 }, { 6, 5 }, { 5, 5 } },
        { { .all = 9 }, { 2, 6 }, { 2, 4 } },
        { { .all = 9 }, { 6, 2 }, { 4, 2 } },
        { { .all = 10 }, { 5, 6 }, { 3, 4 } },
        { { .all = 10 }, { 6, 5 }, { 4, 3 } },
        { { .all = 4 }, { 6, 6 }, { 0, 1 } },
        { { .second = 2 }, { 6, 6 }, { 6, 2 } },
        { { .all = 8, .second = 2 }, { 6, 6 }, { 3, 2 } },
        { { .all = 8, .second = 2, .from_left = true }, { 6, 6 }, { 3, 2 } },
    };
    uint32_t first[MOST] = { 5, 5, 5, 5, 5, 4 }, last[MOST] = { 6, 6, 6, 6, 6, 4 };
    builder_wordpiece(&builder);
    struct tokenizer *t = must_open();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tokens texts[2] = { { first + MOST - rows[i].n[0], rows[i].n[0], 0 },
                                         { last + MOST - rows[i].n[1], rows[i].n[1], 0 } };
        struct tokens ids = { 0 };
        size_t second, at = 0;
        assert_int_equal(tokenizer_join_pair(t, texts, &rows[i].limits, &ids, &second, &err), WK_OK);
        assert_int_equal(ids.n, rows[i].want[0] + rows[i].want[1] + 3);
        assert_int_equal(ids.ids[at++], CLS);
        for (int k = 0; k < 2; k++) {
            const size_t from = rows[i].limits.from_left ? texts[k].n - rows[i].want[k] : 0;
            for (size_t j = 0; j < rows[i].want[k]; j++) assert_int_equal(ids.ids[at++], texts[k].ids[from + j]);
            assert_int_equal(ids.ids[at++], SEP);
            if (!k) assert_int_equal(second, at);
        }
        tokens_free(&ids);
    }
    struct tokens ids = { 0 };
    size_t second;
    const struct tokens none[2] = { { 0 } };
    const struct tokenizer_limits few = { .all = 3 }, left = { .from_left = true };
    assert_int_equal(tokenizer_join_pair(t, none, &left, &ids, &second, &err), WK_OK);
    assert_int_equal(ids.n, 3);
    ids.n = 0;
    assert_int_equal(tokenizer_join_pair(t, none, &few, &ids, &second, &err), WK_INVALID);
    assert_non_null(strstr(text_of_error, "3 begin and end its texts"));
    assert_int_equal(ids.n, 0);
    tokens_free(&ids);
    tokenizer_close(t);
}

static void must_refuse(const char *text)
{
    struct tokenizer *t;
    assert_int_not_equal(builder_open(&builder, &t, &err), WK_OK);
    assert_null(t);
    if (!strstr(text_of_error, text)) fail_msg("\"%s\" does not say %s", text_of_error, text);
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t needed[] = { 1, 2, 3 };
    static const char *const names[] = { "[UNK]", "[CLS]", "[SEP]" };
    for (size_t i = 0; i < 3; i++) {
        builder_wordpiece(&builder);
        builder.token[needed[i]].text[1] = 'x';
        must_refuse(names[i]);
    }
    builder_wordpiece(&builder);
    builder_int(&builder, "tokenizer.ggml.cls_token_id", 1000);
    must_refuse("tokenizer.ggml.cls_token_id: id 1000");
    builder_wordpiece(&builder);
    builder_int(&builder, "tokenizer.ggml.normalizer.lowercase", 1);
    must_refuse("tokenizer.ggml.normalizer.lowercase");
    builder_wordpiece(&builder);
    builder_token(&builder, "ing", TOKEN_NORMAL, 0);
    must_refuse("are both normal");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_words), cmocka_unit_test(test_roles),
                                        cmocka_unit_test(test_limits), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
