/* test_hf_vectors.c: real tokenizer.json files (test data, tokenizer_json/) against Hugging Face's published ids, and
 * against the GGUF vocabularies of the same models: on every text of the vectors and on a mebibyte of mixed scripts.
 * Files are unpacked by unpack.cmake; this test exists where they are present. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gguf/gguf.h"
#include "test_data.h"
#include "tokenizer/tokenizer.h"

/* A tokenizer.json and what it is compared with: the GGUF vocabulary, the vectors of texts with special tokens. nfc:
 * the JSON normalises, so that only texts in that form have the same ids. */
static const struct pair {
    const char *json, *vocabulary;
    uint32_t size;
    bool adds_bos, nfc;
} pairs[] = {
    { "gpt-oss", "gpt-4o", 200019, false, false }, { "gpt2", "gpt-2", 50257, false, false },
    { "qwen2.5", "qwen2", 151665, false, true },   { "llama2", "llama-spm", 32000, true, false },
    { "phi3", "phi-3", 32011, false, false },
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* file: as of tokenizer_open_json. */
static struct tokenizer *open_json(const struct pair *p, const struct gguf *file)
{
    char name[64], path[DATA_PATH_MAX], text[512];
    const struct wk_err err = { text, sizeof text };
    struct tokenizer *t;
    (void)snprintf(name, sizeof name, "%s-tokenizer.json", p->json);
    if (tokenizer_open_json(data_vocabulary(path, name), file, 0, &t, &err)) fail_msg("%s", text);
    return t;
}

static struct gguf *open_gguf(const struct pair *p)
{
    char name[64], path[DATA_PATH_MAX], text[512];
    const struct wk_err err = { text, sizeof text };
    struct gguf *file;
    (void)snprintf(name, sizeof name, "ggml-vocab-%s.gguf", p->vocabulary);
    if (gguf_open(data_vocabulary(path, name), &file, &err)) fail_msg("%s", text);
    return file;
}

static struct tokens encode(const struct tokenizer *t, const char *text, size_t n, bool special, bool ends)
{
    struct tokens got = { 0 };
    const struct tokenizer_part part = { text, n, special };
    assert_int_equal(tokenizer_encode(t, text, n, special, ends, &got, NULL), WK_OK);
    assert_true(tokenizer_fewest(t, &part, 1) <= got.n);
    return got;
}

static bool same(const struct tokens *got, const uint32_t *ids, size_t n)
{
    return got->n == n && (!n || memcmp(got->ids, ids, n * sizeof *ids) == 0);
}

/* ---- files --------------------------------------------------------------------------------------------- */

static void test_every_file_opens(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        struct tokenizer *t = open_json(&pairs[i], NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        print_message("%-8s opened in %.0f ms\n", pairs[i].json,
                      1e3 * (double)(end.tv_sec - begin.tv_sec) + 1e-6 * (double)(end.tv_nsec - begin.tv_nsec));
        assert_string_equal(tokenizer_kind(t), "hf-json");
        assert_int_equal(tokenizer_size(t), pairs[i].size);
        assert_int_equal(tokenizer_adds_bos(t), pairs[i].adds_bos);
        assert_false(tokenizer_adds_eos(t));
        tokenizer_close(t);
    }
}

/* With the model's file: its size, its roles, and the same end-of-generation set as the embedded vocabulary has. */
static void test_roles_of_the_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < PAIRS; i++) {
        struct gguf *file = open_gguf(&pairs[i]);
        struct tokenizer *t = open_json(&pairs[i], file), *own;
        size_t n, n_own;
        assert_int_equal(tokenizer_open(file, &own, NULL), WK_OK);
        const uint32_t *ends = tokenizer_end_ids(t, &n), *own_ends = tokenizer_end_ids(own, &n_own);
        assert_int_equal(tokenizer_size(t), tokenizer_size(own));
        assert_int_equal(tokenizer_bos(t), tokenizer_bos(own));
        assert_int_equal(tokenizer_eos(t), tokenizer_eos(own));
        assert_int_equal(n, n_own);
        assert_memory_equal(ends, own_ends, n * sizeof *ends);
        tokenizer_close(own);
        tokenizer_close(t);
        gguf_close(file);
    }
}

/* Another model's file is refused, by the first token that differs. */
static void test_wrong_model(void **state)
{
    (void)state;
    char name[64], path[DATA_PATH_MAX], text[512];
    const struct wk_err err = { text, sizeof text };
    struct gguf *file = open_gguf(&pairs[2]);
    struct tokenizer *t;
    (void)snprintf(name, sizeof name, "%s-tokenizer.json", pairs[1].json);
    assert_int_equal(tokenizer_open_json(data_vocabulary(path, name), file, 0, &t, &err), WK_INVALID);
    assert_non_null(strstr(text, "belongs to another model"));
    assert_int_equal(tokenizer_open_json(path, NULL, 50000, &t, &err), WK_INVALID);
    assert_non_null(strstr(text, "the model's vocabulary has 50000"));
    assert_null(t);
    gguf_close(file);
}

/* ---- vectors ------------------------------------------------------------------------------------------- */

static size_t json_ids(const json_t *array, uint32_t *ids, size_t cap)
{
    const size_t n = json_array_size(array);
    assert_true(n <= cap);
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    return n;
}

static json_t *load_vectors(const char *relative)
{
    json_error_t error;
    size_t n;
    char *text = data_read(relative, &n);
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, &error);
    if (!root) fail_msg("%s: line %d: %s", relative, error.line, error.text);
    free(text);
    return root;
}

static void expect_vector(const struct tokenizer *t, const struct pair *p, const json_t *text, const json_t *expected,
                          size_t number)
{
    uint32_t ids[4096];
    const size_t n = json_ids(expected, ids, 4096);
    const bool bos = n && tokenizer_adds_bos(t) && ids[0] == tokenizer_bos(t);
    struct tokens got = encode(t, json_string_value(text), json_string_length(text), true, bos);
    if (!same(&got, ids, n)) fail_msg("%s: vector %zu differs: %s", p->json, number, json_string_value(text));
    tokens_free(&got);
}

static void test_hugging_face(void **state)
{
    (void)state;
    json_t *special = load_vectors("tokvec/special-and-chat.json");
    for (size_t i = 0; i < PAIRS; i++) {
        char relative[64];
        size_t k;
        json_t *c;
        struct tokenizer *t = open_json(&pairs[i], NULL);
        (void)snprintf(relative, sizeof relative, "tokvec/hf-%s.json", pairs[i].vocabulary);
        json_t *root = strcmp(pairs[i].json, "phi3") ? load_vectors(relative) : NULL; /* there are none of Phi-3 */
        json_array_foreach (json_object_get(root, "cases"), k, c)
            expect_vector(t, &pairs[i], json_object_get(c, "text"), json_object_get(c, "ids"), k);
        /* Hugging Face's ids, also where llama.cpp's differ: this is its format. */
        json_array_foreach (json_object_get(special, pairs[i].vocabulary), k, c)
            expect_vector(t, &pairs[i], json_object_get(c, "text"), json_object_get(c, "hf"), k);
        json_decref(root);
        tokenizer_close(t);
    }
    json_decref(special);
}

/* ---- the same as GGUF ---------------------------------------------------------------------------------- */

/* Text in form C: the vectors' decomposed ones are left out where the JSON would compose them. */
static bool is_decomposed(const char *text, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (((unsigned char)text[i] == 0xCC || (unsigned char)text[i] == 0xCD) || memcmp(text + i, "\xE2\x84", 2) == 0)
            return true;
    return false;
}

static void compare(const struct pair *p, const struct tokenizer *json, const struct tokenizer *gguf, const char *text,
                    size_t n)
{
    if (p->nfc && is_decomposed(text, n)) return;
    for (int special = 0; special < 2; special++) {
        struct tokens a = encode(json, text, n, special, false), b = encode(gguf, text, n, special, false);
        size_t at = 0;
        while (at < a.n && at < b.n && a.ids[at] == b.ids[at]) at++;
        if (a.n != b.n || at < a.n)
            fail_msg("%s: differs from the GGUF vocabulary at id %zu of %zu and %zu: '%.*s'", p->json, at, a.n, b.n,
                     n < 100 ? (int)n : 100, text);
        tokens_free(&a);
        tokens_free(&b);
    }
}

static void compare_vocabulary_cases(const struct pair *p, const struct tokenizer *json, const struct tokenizer *gguf)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char relative[96];
    size_t n;
    (void)snprintf(relative, sizeof relative, "vocab/ggml-vocab-%s.gguf.inp", p->vocabulary);
    char *in = data_read(relative, &n);
    for (char *at = in; at;) {
        char *end = memmem(at, (size_t)(in + n - at), separator, sizeof separator - 1);
        compare(p, json, gguf, at, (size_t)((end ? end : in + n) - at));
        at = end ? end + sizeof separator - 1 : NULL;
    }
    free(in);
}

/* A mebibyte: words of many scripts, digits, punctuation, white space of all kinds and stray bytes, in a fixed random
 * order. */
static char *mixed_scripts(size_t *n)
{
    static const char *const words[] = { "the",
                                         "Worker",
                                         "don't",
                                         "I'LL",
                                         "naïve",
                                         "Straße",
                                         "ÉCOLE",
                                         "привет",
                                         "Мир",
                                         "γειά",
                                         "שלום",
                                         "مرحبا",
                                         "العالم",
                                         "नमस्ते",
                                         "ภาษาไทย",
                                         "កាន់តែ",
                                         "你好世界",
                                         "日本語の",
                                         "テスト",
                                         "한국어",
                                         "𝔘𝔫𝔦",
                                         "🌍",
                                         "👩‍💻",
                                         "🇩🇪",
                                         "12",
                                         "3456789",
                                         "٣٤٥",
                                         "½",
                                         "...",
                                         "!?",
                                         "->",
                                         "(x);",
                                         "/path/to",
                                         "http://a.b/c?d=e",
                                         "'s",
                                         "_",
                                         "\\",
                                         "\"",
                                         " ",
                                         "  ",
                                         "\n",
                                         "\r\n",
                                         "\t",
                                         "\n\n\n",
                                         "\xC2\xA0",
                                         "\xE3\x80\x80",
                                         "\xE2\x80\x8B",
                                         "<x>",
                                         "|",
                                         "a",
                                         "Z",
                                         "\xE2\x96\x81" };
    enum { MEBIBYTE = 1 << 20 };
    char *text = malloc(MEBIBYTE + 64);
    uint64_t random = 42;
    assert_non_null(text);
    for (*n = 0; *n < MEBIBYTE;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const char *word = words[(random >> 33) % (sizeof words / sizeof *words)];
        memcpy(text + *n, word, strlen(word));
        *n += strlen(word);
        if (random >> 62 == 1) text[(*n)++] = ' ';
        if ((random >> 40 & 1023) == 7) text[(*n)++] = (char)(0x80 | (random & 0x7F));
    }
    return text;
}

static void test_same_as_gguf(void **state)
{
    (void)state;
    size_t n_mixed;
    char *mixed = mixed_scripts(&n_mixed);
    json_t *special = load_vectors("tokvec/special-and-chat.json");
    for (size_t i = 0; i < PAIRS; i++) {
        struct gguf *file = open_gguf(&pairs[i]);
        struct tokenizer *json = open_json(&pairs[i], NULL), *gguf;
        size_t k;
        json_t *c;
        char relative[64];
        assert_int_equal(tokenizer_open(file, &gguf, NULL), WK_OK);
        compare_vocabulary_cases(&pairs[i], json, gguf);
        (void)snprintf(relative, sizeof relative, "tokvec/hf-%s.json", pairs[i].vocabulary);
        json_t *root = strcmp(pairs[i].json, "phi3") ? load_vectors(relative) : NULL;
        json_array_foreach (json_object_get(root, "cases"), k, c)
            compare(&pairs[i], json, gguf, json_string_value(json_object_get(c, "text")),
                    json_string_length(json_object_get(c, "text")));
        json_array_foreach (json_object_get(special, pairs[i].vocabulary), k, c)
            compare(&pairs[i], json, gguf, json_string_value(json_object_get(c, "text")),
                    json_string_length(json_object_get(c, "text")));
        json_decref(root);
        compare(&pairs[i], json, gguf, mixed, n_mixed);
        tokenizer_close(json);
        tokenizer_close(gguf);
        gguf_close(file);
    }
    json_decref(special);
    free(mixed);
}

/* What was encoded decodes to itself, as a whole and piece by piece. */
static void test_decode(void **state)
{
    (void)state;
    size_t n, len;
    char *mixed = mixed_scripts(&n), *back;
    for (size_t i = 0; i < PAIRS; i++) {
        struct tokenizer *t = open_json(&pairs[i], NULL);
        struct tokens got = encode(t, mixed, 65536, false, false);
        assert_int_equal(tokenizer_decode(t, got.ids, got.n, true, &back, &len, NULL), WK_OK);
        if (pairs[i].nfc)
            assert_true(len > 60000); /* composed */
        else if (strcmp(pairs[i].json, "llama2") && strcmp(pairs[i].json, "phi3")) {
            assert_int_equal(len, 65536);
            assert_memory_equal(back, mixed, len);
        } else
            assert_true(len > 60000); /* U+2581 in the text comes back as a space */
        free(back);
        tokens_free(&got);
        tokenizer_close(t);
    }
    free(mixed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_file_opens), cmocka_unit_test(test_roles_of_the_model),
        cmocka_unit_test(test_wrong_model),      cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_same_as_gguf),     cmocka_unit_test(test_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
