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
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
