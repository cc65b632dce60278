/* test_made_vectors.c: ids of the vocabularies that every clone has (both embedded ones and those that
 * tests/reference/vocabularies.py makes) against the plain tokenizers written there; the same vocabulary as a
 * tokenizer.json; and back to the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "test_data.h"
#include "tokenizer/tokenizer.h"

static json_t *vectors;

static int read_vectors(void **state)
{
    (void)state;
    char path[DATA_PATH_MAX];
    json_error_t e;
    vectors = json_load_file(golden_file(path, "vectors.json"), 0, &e);
    if (!vectors) print_message("%s: %s\n", path, e.text);
    return vectors ? 0 : -1;
}

static int free_vectors(void **state)
{
    (void)state;
    json_decref(vectors);
    return 0;
}

/* A name among the goldens, or a path of its own. */
static const char *place(char out[DATA_PATH_MAX], const char *name)
{
    return name[0] == '/' ? name : golden_file(out, name);
}

static struct tokenizer *open_file(const char *name)
{
    char path[DATA_PATH_MAX], text[512];
    const struct wk_err err = { text, sizeof text };
    struct gguf *file;
    struct tokenizer *t = NULL;
    if (gguf_open(place(path, name), &file, &err) || tokenizer_open(file, &t, &err)) fail_msg("%s: %s", name, text);
    gguf_close(file);
    return t;
}

static struct tokenizer *open_json(const char *name)
{
    char path[DATA_PATH_MAX], text[512];
    const struct wk_err err = { text, sizeof text };
    struct tokenizer *t;
    if (tokenizer_open_json(place(path, name), NULL, 0, &t, &err)) fail_msg("%s: %s", name, text);
    return t;
}

static size_t read_hex(const char *hex, char *out, size_t cap)
{
    const size_t n = strlen(hex) / 2;
    assert_true(n < cap);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (char)byte;
    }
    return n;
}

static void print_ids(const char *label, const uint32_t *ids, size_t n)
{
    print_message("  %s:", label);
    for (size_t i = 0; i < n; i++) print_message(" %u", ids[i]);
    print_message("\n");
}

/* Are the ids those of the vector? */
static bool encodes_as(const struct tokenizer *t, const char *name, const json_t *c)
{
    static char text[4096];
    uint32_t want[4096];
    const json_t *ids = json_object_get(c, "ids");
    const size_t n = json_array_size(ids), len = read_hex(json_string_value(json_object_get(c, "hex")), text, 4096);
    const bool special = json_is_true(json_object_get(c, "special"));
    struct tokens got = { 0 };
    assert_true(n <= 4096);
    for (size_t i = 0; i < n; i++) want[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    assert_int_equal(tokenizer_encode(t, text, len, special, false, &got, NULL), WK_OK);
    const bool same = got.n == n && (!n || memcmp(got.ids, want, n * sizeof *want) == 0);
    if (!same) {
        print_message("%s: '%.*s'%s\n", name, (int)len, text, special ? ", special" : "");
        print_ids("expected", want, n);
        print_ids("here", got.ids, got.n);
    }
    tokens_free(&got);
    return same;
}

static void test_ids(void **state)
{
    (void)state;
    size_t wrong = 0, total = 0, v, i;
    const json_t *vocabulary, *c;
    json_array_foreach (vectors, v, vocabulary) {
        const char *name = json_string_value(json_object_get(vocabulary, "file")),
                   *json = json_string_value(json_object_get(vocabulary, "json"));
        struct tokenizer *t = open_file(name), *same = json ? open_json(json) : NULL;
        json_array_foreach (json_object_get(vocabulary, "cases"), i, c) {
            wrong += !encodes_as(t, name, c);
            if (same) wrong += !encodes_as(same, json, c);
            total++;
        }
        tokenizer_close(t);
        tokenizer_close(same);
    }
    print_message("%zu vectors\n", total);
    assert_true(total > 1000);
    assert_int_equal(wrong, 0);
}

/* Text that was read as text comes back byte by byte; SentencePiece's own space becomes a plain one. WordPiece
 * and the unigram model change texts. */
static void test_back_to_text(void **state)
{
    (void)state;
    static char text[4096];
    size_t v, i;
    const json_t *vocabulary, *c;
    json_array_foreach (vectors, v, vocabulary) {
        struct tokenizer *t = open_file(json_string_value(json_object_get(vocabulary, "file")));
        const bool bytes = strcmp(tokenizer_kind(t), "gguf-bpe") == 0;
        if (!bytes && strcmp(tokenizer_kind(t), "gguf-spm") != 0) {
            tokenizer_close(t);
            continue;
        }
        json_array_foreach (json_object_get(vocabulary, "cases"), i, c) {
            const size_t n = read_hex(json_string_value(json_object_get(c, "hex")), text, 4096);
            struct tokens got = { 0 };
            char *back;
            size_t len;
            assert_int_equal(tokenizer_encode(t, text, n, false, false, &got, NULL), WK_OK);
            assert_int_equal(tokenizer_decode(t, got.ids, got.n, true, &back, &len, NULL), WK_OK);
            if (bytes || !memmem(text, n, "\xE2\x96\x81", 3)) {
                assert_int_equal(len, n);
                assert_memory_equal(back, text, n);
            }
            free(back);
            tokens_free(&got);
        }
        tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids), cmocka_unit_test(test_back_to_text) };
    return cmocka_run_group_tests(tests, read_vectors, free_vectors);
}
