/* test_hf_json.c: tokenizer.json files made here: what each part does, what is refused and in which words, files that
 * are damaged, texts that are hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "hf_builder.h"

static struct builder builder;
static char error_text[1024];
static const struct wk_err open_err = { error_text, sizeof error_text };

static wk_status open_text(const struct hf_text *t, struct tokenizer **out)
{
    /* A copy that ends where the text ends: a sanitizer sees every byte read beyond. */
    char *copy = malloc(t->n);
    assert_non_null(copy);
    memcpy(copy, t->data, t->n);
    const wk_status status = tokenizer_open_json_text(copy, t->n, "tokenizer.json", NULL, 0, out, &open_err);
    free(copy);
    assert_int_equal(status == WK_OK, *out != NULL);
    return status;
}

static struct tokenizer *open_parts(bool byte_level, const struct hf_parts *p)
{
    struct tokenizer *t;
    struct hf_text text = byte_level ? hf_byte_level(&builder, p, false) : hf_byte_fallback(&builder, p, true);
    if (open_text(&text, &t)) fail_msg("%s", error_text);
    free(text.data);
    return t;
}

/* The ids of a text as the texts of their tokens, with a bar between. */
static const char *cut(const struct tokenizer *t, const char *text, bool special)
{
    static char out[4096];
    struct tokens got = { 0 };
    size_t n = 0;
    assert_int_equal(tokenizer_encode(t, text, strlen(text), special, false, &got, NULL), WK_OK);
    out[0] = '\0';
    for (size_t i = 0; i < got.n; i++) {
        const struct token_bytes s = tokenizer_text(t, got.ids[i]);
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", i ? "|" : "", (int)s.len, s.data);
    }
    tokens_free(&got);
    return out;
}

static void expect_cut(const struct tokenizer *t, const char *text, const char *expected)
{
    const char *got = cut(t, text, true);
    if (strcmp(got, expected)) fail_msg("'%s': got %s, expected %s", text, got, expected);
}

/* ---- the same as a GGUF vocabulary --------------------------------------------------------------------- */

static void test_same_as_gguf(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",      "the the", " the  aaaaaaaaa...", "123 1234", "don't\n\n x", "\xE4\xB8\xAD\xC3\xA9", "\xFF\xFE the",
        "a\xCC", "\t \t",   "<x>the<x>"
    };
    for (int pairs = 0; pairs < 2; pairs++) {
        const struct hf_parts parts = { .added = "[{\"id\":268,\"content\":\"<x>\",\"special\":true}]" };
        struct hf_text json = hf_byte_level(&builder, &parts, pairs);
        struct tokenizer *a, *b;
        if (open_text(&json, &a)) fail_msg("%s", error_text);
        free(json.data);
        builder_token(&builder, "<x>", TOKEN_CONTROL, 0);
        assert_int_equal(builder_open(&builder, &b, NULL), WK_OK);
        assert_int_equal(tokenizer_size(a), tokenizer_size(b));
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            for (int special = 0; special < 2; special++) {
                struct tokens x = { 0 }, y = { 0 };
                char *back;
                size_t len;
                assert_int_equal(tokenizer_encode(a, texts[i], strlen(texts[i]), special, false, &x, NULL), WK_OK);
                assert_int_equal(tokenizer_encode(b, texts[i], strlen(texts[i]), special, false, &y, NULL), WK_OK);
                assert_int_equal(x.n, y.n);
                if (x.n) assert_memory_equal(x.ids, y.ids, x.n * sizeof *x.ids);
                assert_int_equal(tokenizer_decode(a, x.ids, x.n, true, &back, &len, NULL), WK_OK);
                assert_int_equal(len, strlen(texts[i]));
                assert_memory_equal(back, texts[i], len);
                free(back);
                tokens_free(&x);
                tokens_free(&y);
            }
        tokenizer_close(a);
        tokenizer_close(b);
    }
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static void test_byte_fallback(void **state)
{
    (void)state;
    struct tokenizer *t = open_parts(false, &(struct hf_parts){ 0 });
    struct tokens got = { 0 };
    char *back;
    size_t len;
    assert_string_equal(tokenizer_kind(t), "hf-json");
    assert_true(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 2);
    expect_cut(t, "the in", "\u2581the|\u2581|in");
    expect_cut(t, "the\xC3\xA9", "\u2581the|<0xC3>|<0xA9>");
    expect_cut(t, "a\xFF", "\u2581|a|<0xFF>");
    expect_cut(t, "", "");
    expect_cut(t, "<s>the</s> a", "<s>|\u2581the|</s>|\u2581\u2581|a"); /* Prepend knows no exception */
    assert_string_equal(cut(t, "<s>", false), "\u2581|<0x3C>|s|<0x3E>");
    assert_int_equal(tokenizer_encode(t, "the a", 5, false, true, &got, NULL), WK_OK);
    assert_int_equal(got.ids[0], 1);
    assert_int_equal(tokenizer_decode(t, got.ids, got.n, false, &back, &len, NULL), WK_OK);
    assert_string_equal(back, "the a");
    free(back);
    tokens_free(&got);
    tokenizer_close(t);
}

static void test_metaspace(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *text, *expected;
    } cases[] = {
        { "\"prepend_scheme\":\"always\",\"split\":false", "the<s>the", "\u2581the|<s>|\u2581the" },
        { "\"prepend_scheme\":\"first\",\"split\":false", "the<s>the", "\u2581the|<s>|the" },
        { "\"prepend_scheme\":\"first\",\"split\":false", "<s>the", "<s>|the" },
        { "\"prepend_scheme\":\"never\",\"split\":false", "the the", "the|\u2581the" },
        { "\"prepend_scheme\":\"always\",\"split\":false", " the", "\u2581the" },
        { "\"prepend_scheme\":\"always\",\"split\":false", "  ...", "\u2581\u2581|..|." }, /* one word */
        { "\"prepend_scheme\":\"always\",\"split\":true", "  ...", "\u2581|\u2581|..|." },
        { "\"prepend_scheme\":\"always\"", "a  the", "\u2581|a|\u2581|\u2581the" },
        { "\"add_prefix_space\":false", "the", "the" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char pre[160];
        (void)snprintf(pre, sizeof pre, "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",%s}", cases[i].pre);
        struct tokenizer *t =
            open_parts(false, &(struct hf_parts){ .normalizer = "null",
                                                  .pre_tokenizer = pre,
                                                  .decoder = "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}" });
        expect_cut(t, cases[i].text, cases[i].expected);
        tokenizer_close(t);
    }
}

static void test_pre_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *steps, *text, *expected;
    } cases[] = {
        { "{\"type\":\"Digits\",\"individual_digits\":true}", "123", "1|2|3" },
        { "{\"type\":\"Digits\",\"individual_digits\":false}", "123", "123" },
        { "{\"type\":\"Punctuation\"}", "...", ".|.|." },
        { "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "...", "..|." },
        { "{\"type\":\"Split\",\"pattern\":{\"String\":\"h\"},\"behavior\":\"Isolated\",\"invert\":false}", "the",
          "t|h|e" },
        { "{\"type\":\"Split\",\"pattern\":{\"String\":\"h\"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}",
          "the", "th|e" },
        { "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":\"Isolated\",\"invert\":false}",
          "1212", "12|1|2" },
        { "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\r\\n]\"},\"behavior\":\"Isolated\",\"invert\":false}", "the",
          "the" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char pre[512];
        (void)snprintf(pre, sizeof pre,
                       "{\"type\":\"Sequence\",\"pretokenizers\":[%s,{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                       "false,\"use_regex\":false}]}",
                       cases[i].steps);
        struct tokenizer *t = open_parts(true, &(struct hf_parts){ .pre_tokenizer = pre });
        expect_cut(t, cases[i].text, cases[i].expected);
        tokenizer_close(t);
    }
    struct tokenizer *t =
        open_parts(true, &(struct hf_parts){ .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}" });
    expect_cut(t, "the", "\u0120the");
    expect_cut(t, " the", "\u0120the");
    tokenizer_close(t);
}

static void test_added_tokens(void **state)
{
    (void)state;
    static const char added[] =
        "[{\"id\":268,\"content\":\"<l>\",\"lstrip\":true,\"special\":true},{\"id\":269,\"content\":\"<r>\",\"rstrip\":"
        "true,\"special\":true},"
        "{\"id\":270,\"content\":\"qq\",\"single_word\":true,\"normalized\":false,\"special\":false},{\"id\":271,"
        "\"content\":\"<a\",\"special\":true},"
        "{\"id\":272,\"content\":\"<ab>\",\"special\":true},{\"id\":273,\"content\":\"b>c\",\"special\":true},{\"id\":"
        "275,\"content\":\"e\\u0301x\",\"normalized\":true,\"special\":false}]";
    struct tokenizer *t = open_parts(true, &(struct hf_parts){ .added = added, .normalizer = "{\"type\":\"NFC\"}" });
    expect_cut(t, "a \u00A0\n<l> b", "a|<l>|\u0120|b");
    expect_cut(t, "a <r> \u3000b", "a|\u0120|<r>|b");
    expect_cut(t, "qq", "qq");
    expect_cut(t, "aqq", "a|q|q");
    expect_cut(t, "qq\u00E9", "q|q|\u00C3|\u00A9");
    expect_cut(t, "-qq-", "-|qq|-");
    expect_cut(t, "<ab>c", "<ab>|c"); /* the leftmost, of these the longest; what begins inside it comes too late */
    expect_cut(t, "<ab c", "<a|b|\u0120|c");
    expect_cut(t, "<b>c", "<|b>c");
    expect_cut(t, "e\u0301x \u00E9x",
               "e\u0301x|\u0120|e\u0301x");                   /* looked for in normalised text, and normalised itself */
    assert_string_equal(cut(t, "<ab>c", false), "<|a|b|>|c"); /* special ones are for trusted text */
    assert_string_equal(cut(t, "-qq", false), "-|qq");
    assert_int_equal(tokenizer_size(t), 276);
    assert_int_equal(tokenizer_type(t, 274), TOKEN_UNUSED); /* a gap */
    assert_int_equal(tokenizer_type(t, 270), TOKEN_USER_DEFINED);
    tokenizer_close(t);
}

/* Control tokens are found wholly inside trusted parts alone, wherever parts are cut and
 * whatever the normalizer does. */
static void test_trust(void **state)
{
    (void)state;
    static const char added[] = "[{\"id\":268,\"content\":\"<x>\",\"special\":true,\"normalized\":false},{\"id\":269,"
                                "\"content\":\"<y>\",\"special\":true,\"normalized\":true}]";
    static const struct {
        const char *part[3];
        bool trusted[3];
        size_t x, y;
    } cases[] = {
        { { "<x><y>", "", "" }, { true, false, false }, 1, 1 },
        { { "<x><y>", "", "" }, { false, false, false }, 0, 0 },
        { { "<", "x><", "y>" }, { true, false, true }, 0, 0 },
        { { "<x>", "<x><y>", "<y>" }, { true, false, true }, 1, 1 },
        { { "<x", ">", "<y>" }, { true, true, true }, 1, 1 },
        { { "<y>", "e\u0301", "" }, { true, true, false }, 0, 1 },
        { { "<y>", "e\u0301", "" },
          { true, false, false },
          0,
          0 }, /* changed by foreign text: not told apart any more */
        { { "<y><x>", "e\u0301", "" }, { true, false, false }, 1, 1 },
    };
    struct tokenizer *t = open_parts(true, &(struct hf_parts){ .added = added, .normalizer = "{\"type\":\"NFC\"}" });
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer_part parts[3];
        struct tokens got = { 0 };
        size_t x = 0, y = 0;
        for (int k = 0; k < 3; k++)
            parts[k] = (struct tokenizer_part){ cases[i].part[k], strlen(cases[i].part[k]), cases[i].trusted[k] };
        assert_int_equal(tokenizer_encode_parts(t, parts, 3, false, &got, NULL), WK_OK);
        for (size_t k = 0; k < got.n; k++) {
            x += got.ids[k] == 268;
            y += got.ids[k] == 269;
        }
        if (x != cases[i].x || y != cases[i].y) fail_msg("case %zu: %zu and %zu control tokens", i, x, y);
        tokens_free(&got);
    }
    tokenizer_close(t);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static void expect_refused(bool byte_level, const struct hf_parts *p, const char *expected)
{
    struct tokenizer *t;
    struct hf_text text = byte_level ? hf_byte_level(&builder, p, false) : hf_byte_fallback(&builder, p, false);
    if (open_text(&text, &t) == WK_OK) fail_msg("was taken: expected '%s'", expected);
    if (!strstr(error_text, expected)) fail_msg("said: %s\nexpected: %s", error_text, expected);
    if (strchr(error_text, '\n') || strncmp(error_text, "tokenizer.json: ", 16))
        fail_msg("not one line with the file's name: %s", error_text);
    free(text.data);
}

static void test_unknown_parts(void **state)
{
    (void)state;
    static const char *const normalizers[][2] = {
        { "{\"type\":\"NFKC\"}", "normalizer: normalizer NFKC is not supported" },
        { "{\"type\":\"Lowercase\"}", "Lowercase" },
        { "{}", "normalizer: expected an object with a type" },
        { "[]", "normalizer: expected an object, found an array" },
        { "{\"type\":\"NFC\",\"x\":1}", "normalizer.x: unknown member" },
        { "{\"type\":\"NFC\",\"type\":\"NFC\"}", "normalizer.type: this member comes twice" },
        { "{\"type\":\"Prepend\"}", "Prepend: expected a member prepend" },
        { "{\"type\":\"Prepend\",\"prepend\":7}", "normalizer.prepend: expected a string, found a number" },
        { "{\"type\":\"NFC\",\"prepend\":\"x\"}", "NFC: unknown member prepend" },
        { "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"b\"}",
          "Replace with a Regex is not supported" },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"b\"}", "Replace of 0 bytes" },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"bbbbb\"}", "Replace of 1 bytes by 5" },
        { "{\"type\":\"Replace\",\"pattern\":{},\"content\":\"b\"}", "normalizer.pattern: expected String or Regex" },
        { "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"StripAccents\"}]}",
          "normalizer.normalizers[1]: normalizer StripAccents is not supported" },
        { "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\",\"normalizers\":[]}]}",
          "a Sequence inside a Sequence" },
        { "{\"type\":\"Sequence\"}", "Sequence: expected a member normalizers" }
    };
    static const char *const pres[][2] = {
        { "{\"type\":\"Whitespace\"}", "pre_tokenizer: pre-tokenizer Whitespace is not supported" },
        { "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"},\"behavior\":\"Isolated\",\"invert\":false}",
          "pre_tokenizer: unknown regular expression '(a+)+$'" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}\"},"
          "\"behavior\":\"Removed\",\"invert\":false}]}",
          "pre_tokenizer.pretokenizers[0]: Split with behavior Removed" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}\"},"
          "\"behavior\":\"Removed\",\"invert\":true}]}",
          "Split with behavior Removed, inverted," },
        { "{\"type\":\"Split\",\"pattern\":{\"String\":\"ab\"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}",
          "several characters" },
        { "{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\",\"invert\":false}",
          "1 to 32 bytes" },
        { "null", "decoder: does not undo what the byte-fallback model does" },
        { "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":"
          "\"Digits\",\"individual_digits\":true}]}",
          "Digits behind ByteLevel" },
        { "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", "replacement must be U+2581" },
        { "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"last\"}",
          "always, first or never" }
    };
    static const char *const posts[][2] = {
        { "{\"type\":\"BertProcessing\"}", "post_processor: post-processor BertProcessing is not supported" },
        { "{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}",
          "post_processor.single: the text, A, is not part of it" },
        { "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}},{\"Sequence\":{"
          "\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{}}",
          "has no ids of 'x'" },
        { "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}},{\"Sequence\":{"
          "\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"x\":{\"id\":\"x\",\"ids\":[999],\"tokens\":[\"x\"]}}}",
          "id 999 is not in the vocabulary of 268" },
        { "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}},{\"Sequence\":{"
          "\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"x\":{\"id\":\"x\",\"ids\":[1,2],\"tokens\":[\"x\"]}}}",
          "a special token of 2 ids" }
    };
    static const char *const decoders[][2] = { { "null", "decoder: does not undo" },
                                               { "{\"type\":\"WordPiece\"}",
                                                 "decoder: decoder WordPiece is not supported" },
                                               { "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{"
                                                 "\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}]}",
                                                 "decoder.decoders[1]: Strip of anything" } };
    for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++)
        expect_refused(true, &(struct hf_parts){ .normalizer = normalizers[i][0] }, normalizers[i][1]);
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        expect_refused(true, &(struct hf_parts){ .pre_tokenizer = pres[i][0] }, pres[i][1]);
    for (size_t i = 0; i < sizeof posts / sizeof *posts; i++)
        expect_refused(true, &(struct hf_parts){ .post_processor = posts[i][0] }, posts[i][1]);
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        expect_refused(true, &(struct hf_parts){ .decoder = decoders[i][0] }, decoders[i][1]);
}

static void test_bad_models(void **state)
{
    (void)state;
    static const char *const models[][2] = {
        { "{\"type\":\"WordPiece\",\"vocab\":{}}", "model.type: model WordPiece is not supported" },
        { "{\"type\":\"Unigram\"}", "model Unigram" },
        { "{}", "model: expected members vocab and merges" },
        { "{\"type\":\"BPE\",\"dropout\":0.1}", "model.dropout: dropout is not supported" },
        { "{\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\"}",
          "model.continuing_subword_prefix: expected null or \"\"" },
        { "{\"vocab\":{},\"merges\":[]}", "model.vocab: is empty" },
        { "{\"vocab\":{\"a\":-1},\"merges\":[]}", "model.vocab.a: expected a whole number" },
        { "{\"vocab\":{\"a\":1.0},\"merges\":[]}", "model.vocab.a: expected a whole number" },
        { "{\"vocab\":{\"a\":1048576},\"merges\":[]}", "model.vocab.a: id 1048576; ids are supported below 1048576" },
        { "{\"vocab\":{\"a\":18446744073709551615},\"merges\":[]}", "ids are supported below" },
        { "{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}", "id 0 is given to two tokens, 'a' and 'b'" },
        { "{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}", "tokens 0 and 1" },
        { "{\"vocab\":{\"\":0},\"merges\":[]}", "a token of 0 bytes" },
        { "{\"vocab\":{\"a\":0},\"merges\":[]}", "a normal token for every byte" },
        { "{\"vocab\":[],\"merges\":[]}", "model.vocab: expected an object" },
        { "{\"vocab\":{\"a\":0},\"merges\":{}}", "model.merges: expected an array" },
        { "{\"vocab\":{\"a\":0},\"merges\":[],\"merges\":[]}", "model.merges: this member comes twice" },
        { "{\"vocab\":{\"a\":0},\"merges\":[],\"extra\":1}", "model.extra: unknown member" },
        { "[]", "model: expected an object, found an array" },
        { "null", "model: expected an object, found null" },
        { "{\"vocab\":{\"\\ud800\":0},\"merges\":[]}", "half a surrogate pair" }
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        expect_refused(true, &(struct hf_parts){ .model = models[i][0] }, models[i][1]);
    expect_refused(false, &(struct hf_parts){ .decoder = "{\"type\":\"ByteLevel\"}" },
                   "decoder: does not undo what the byte-fallback model does");
    expect_refused(false, &(struct hf_parts){ .model = "{\"vocab\":{\"a\":0},\"merges\":[]}" },
                   "not every text could be encoded");
    expect_refused(
        false,
        &(struct hf_parts){ .model = "{\"byte_fallback\":true,\"unk_token\":\"?\",\"vocab\":{\"a\":3},\"merges\":[]}" },
        "model.unk_token: '?' is not in the vocabulary");
    expect_refused(
        false,
        &(struct hf_parts){ .post_processor = "null",
                            .added = "[]",
                            .model = "{\"byte_fallback\":true,\"unk_token\":\"?\",\"vocab\":{\"?\":3},\"merges\":[]}" },
        "byte_fallback needs a token <0x00>");
    expect_refused(false,
                   &(struct hf_parts){ .post_processor = "null",
                                       .model = "{\"byte_fallback\":true,\"vocab\":{\"<0x-1>\":3},\"merges\":[]}" },
                   "no token <0x00>");
    static const char *const added[][2] = {
        { "[{\"id\":0,\"content\":\"other\"}]", "added_tokens: id 0 is given to two tokens" },
        { "[{\"id\":300,\"content\":\"a\"}]", "tokens " },
        { "[{\"id\":300}]", "added_tokens[0]: an added token needs an id and a content" },
        { "[{\"id\":300,\"content\":\"\"}]", "added_tokens[0].content: a token of 0 bytes" },
        { "[{\"id\":300,\"content\":\"xy\"},{\"id\":300,\"content\":\"xy\"}]", "added_tokens[1]: 'xy' comes twice" },
        { "[{\"id\":300,\"content\":\"x y\",\"special\":1}]", "added_tokens[0].special: expected a boolean" },
        { "[{\"id\":300,\"content\":\"xy\",\"wider\":true}]", "added_tokens[0].wider: unknown member" },
        { "{}", "added_tokens: expected an array" },
        { "[{\"id\":4294967296,\"content\":\"xy\"}]", "ids are supported below" }
    };
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        expect_refused(true, &(struct hf_parts){ .added = added[i][0] }, added[i][1]);
}

/* Merges that no vocabulary can follow. */
static void test_bad_merges(void **state)
{
    (void)state;
    static const char *const merges[][2] = { { "\"a b\"",
                                               "model.merges[0]: the result of 'a' and 'b' is not a normal token" },
                                             { "\"a\"", "model.merges[0]: expected two tokens separated by a space" },
                                             { "\"a \"", "right part" },
                                             { "\" a\"", "expected two tokens separated" },
                                             { "\"\"", "expected two tokens" },
                                             { "\"a a\",\"a a\"", "model.merges[1]: this merge comes twice" },
                                             { "[\"a\",\"a\"],[\"aa\"]", "model.merges[1]" },
                                             { "[\"a\",\"a\",\"a\"]", "expected two tokens" },
                                             { "[]", "expected two tokens" },
                                             { "[\"\",\"aa\"]", "left part" },
                                             { "[\"aa\",\"\"]", "right part" },
                                             { "7", "model.merges[0]: expected an array, found a number" },
                                             { "[\"<\",\"x>\"]", "not a normal token" },
                                             { "[1,2]", "expected a string" },
                                             { "\"a a a\"", "right part" } };
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        struct hf_text model = { 0 };
        builder_bpe(&builder, "gpt-2");
        builder.n_merges = 0;
        hf_model(&model, &builder, builder.n, "{\"type\":\"BPE\",", false);
        model.n -= 2; /* "]}" */
        hf_say(&model, merges[i][0]);
        hf_say(&model, "]}");
        expect_refused(
            true,
            &(struct hf_parts){ .model = model.data, .added = "[{\"id\":300,\"content\":\"<x>\",\"special\":true}]" },
            merges[i][1]);
        free(model.data);
    }
}

static void test_no_file_at_all(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "{}", "[]", "null", "{\"version\":\"1.0\"}", "{\"model\":null}", "{\"model\":{}", "\"model\"", "\x00"
    };
    struct tokenizer *t;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_not_equal(
            tokenizer_open_json_text(texts[i], strlen(texts[i]), "tokenizer.json", NULL, 0, &t, &open_err), WK_OK);
        assert_null(t);
    }
    assert_int_equal(tokenizer_open_json("/nonexistent/tokenizer.json", NULL, 0, &t, &open_err), WK_IO);
    assert_int_equal(tokenizer_open_json("/", NULL, 0, &t, &open_err), WK_INVALID);
    assert_int_equal(tokenizer_open_json("/dev/zero", NULL, 0, &t, &open_err), WK_INVALID); /* without end */
    assert_int_equal(tokenizer_open_json_text("{}", 2, "x", NULL, UINT32_MAX, &t, &open_err), WK_INVALID);
}

/* Which tokenizer a model's file uses: the one that is given, its own, the one beside it, none. */
static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static const char *kind_for(const char *folder, const char *name, const char *json)
{
    static char kind[32];
    char path[256];
    struct gguf *file;
    struct tokenizer *t;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(gguf_open(path, &file, NULL), WK_OK);
    if (tokenizer_open_for(file, json, 268, NULL, &t, &open_err)) fail_msg("%s", error_text);
    (void)snprintf(kind, sizeof kind, "%s", t ? tokenizer_kind(t) : "none");
    tokenizer_close(t);
    gguf_close(file);
    return kind;
}

static void test_tokenizer_of_a_model(void **state)
{
    (void)state;
    char folder[] = "/tmp/worker-tokenizer-XXXXXX", path[256];
    static const char *const names[] = { "own.gguf", "none.gguf", "tokenizer.json" };
    assert_non_null(mkdtemp(folder));
    builder_bpe(&builder, "gpt-2");
    builder_write(&builder);
    write_file(folder, names[0], builder.bytes, builder.size);
    free(builder.bytes);
    builder_bpe(&builder, "gpt-2");
    builder.model = NULL; /* as a file that has no tokenizer */
    builder.n_merges = 0;
    builder_write(&builder);
    write_file(folder, names[1], builder.bytes, builder.size);
    free(builder.bytes);
    assert_string_equal(kind_for(folder, names[0], NULL), "gguf-bpe");
    assert_string_equal(kind_for(folder, names[1], NULL), "none");
    struct hf_text text = hf_byte_level(&builder, &(struct hf_parts){ 0 }, false);
    write_file(folder, names[2], text.data, text.n);
    free(text.data);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_string_equal(kind_for(folder, names[0], NULL), "gguf-bpe");
    assert_string_equal(kind_for(folder, names[1], NULL), "hf-json");
    assert_string_equal(kind_for(folder, names[0], path), "hf-json");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* ---- damage -------------------------------------------------------------------------------------------- */

/* Every cut, and many changed bytes: a tokenizer or a line, nothing else. What opens must encode. */
static void test_damage(void **state)
{
    (void)state;
    const struct hf_parts parts = {
        .added = "[{\"id\":268,\"content\":\"<x>\",\"special\":true,\"rstrip\":true,\"normalized\":false}]",
        .normalizer = "{\"type\":\"NFC\"}"
    };
    for (int kind = 0; kind < 2; kind++) {
        struct hf_text text =
            kind ? hf_byte_level(&builder, &parts, true) : hf_byte_fallback(&builder, &(struct hf_parts){ 0 }, false);
        struct tokenizer *t;
        const size_t n = text.n;
        uint64_t random = 7;
        for (text.n = 1; text.n < n; text.n += text.n < 1500 ? 1 : 37)
            assert_int_not_equal(open_text(&text, &t), WK_OK);
        text.n = n;
        for (int round = 0; round < 2000; round++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const size_t at = (random >> 33) % n;
            const char before = text.data[at];
            static const char bytes[] = "\"{}[]:,\\0919aAetn \x80\xFF";
            text.data[at] = bytes[(random >> 20) % (sizeof bytes - 1)];
            if (open_text(&text, &t) == WK_OK) {
                struct tokens got = { 0 };
                static const char probe[] = "the <x> a\xCC\x81 123\xFF..";
                assert_int_equal(tokenizer_encode(t, probe, sizeof probe - 1, round & 1, true, &got, NULL), WK_OK);
                for (size_t i = 0; i < got.n; i++) assert_true(got.ids[i] < tokenizer_size(t));
                tokens_free(&got);
                tokenizer_close(t);
            }
            text.data[at] = before;
        }
        free(text.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_gguf),
        cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_unknown_parts),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_bad_merges),
        cmocka_unit_test(test_no_file_at_all),
        cmocka_unit_test(test_tokenizer_of_a_model),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
