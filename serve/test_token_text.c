/* test_token_text.c: events' texts against the whole text of the same ids: one line an id, joined they are the text up
 * to the first stop string, each is UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "token_text.h"
#include "tokenizer/stop.h"
#include "base/utf8.h"
#include "vocab_builder.h"

enum { MOST = 60 };

static bool whole_characters(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t k = utf8_sequence((const unsigned char *)text + i, n - i);
        if (!k) return false;
        i += k;
    }
    return true;
}

/* The bytes of ids; of the text before the first end of a stop string (the longest that ends there), which is *hit. */
static size_t reference(const struct tokenizer *t, const uint32_t *ids, size_t n_ids, const char *const *stops,
                        const size_t *lens, size_t n_stops, bool cut, char *out, int *hit)
{
    static char bytes[MOST * 64];
    struct utf8_stream stream = { 0 };
    size_t n = 0, end = 0;
    for (size_t i = 0; i < n_ids; i++) {
        const struct token_bytes piece = tokenizer_piece(t, ids[i], false);
        memcpy(bytes + n, piece.data, piece.len);
        n += piece.len;
    }
    *hit = STOP_NONE;
    for (end = 1; end <= n && *hit == STOP_NONE; end++)
        for (size_t i = 0; i < n_stops; i++)
            if (lens[i] <= end && memcmp(bytes + end - lens[i], stops[i], lens[i]) == 0 &&
                (*hit == STOP_NONE || lens[i] > lens[*hit]))
                *hit = (int)i;
    if (*hit != STOP_NONE) n = end - 1 - lens[*hit];
    size_t len = utf8_stream_push(&stream, bytes, n, out);
    if (*hit != STOP_NONE || !cut) len += utf8_stream_flush(&stream, out + len);
    return len;
}

struct joined {
    char text[MOST * 256];
    size_t n;
    uint32_t lines;
    const uint32_t *ids;
};

static void join(struct joined *j, const struct token_line *line, int n)
{
    for (int i = 0; i < n; i++) {
        assert_true(whole_characters(line[i].text, line[i].n));
        assert_int_equal(line[i].index, j->lines);
        assert_int_equal(line[i].id, j->ids[j->lines]);
        memcpy(j->text + j->n, line[i].text, line[i].n);
        j->n += line[i].n;
        j->lines++;
    }
}

static void check(const struct tokenizer *t, const uint32_t *ids, size_t n_ids, const char *const *stops,
                  const size_t *lens, size_t n_stops, bool cut)
{
    static struct joined j;
    static char expected[MOST * 256];
    struct token_text *x;
    struct token_line line[2];
    int hit;
    size_t given = 0;
    j = (struct joined){ .ids = ids };
    assert_int_equal(token_text_open(t, token_text_piece_max(t), stops, lens, n_stops, &x, NULL), WK_OK);
    while (given < n_ids && token_text_stopped(x) == STOP_NONE) join(&j, line, token_text_push(x, ids[given++], line));
    const bool stopped = token_text_stopped(x) != STOP_NONE;
    join(&j, line, token_text_end(x, cut && !stopped, line));
    const size_t n = reference(t, ids, given, stops, lens, n_stops, cut, expected, &hit);
    assert_int_equal(j.lines, given); /* a line for every id, to the last */
    assert_int_equal(token_text_stopped(x), hit);
    assert_int_equal(j.n, n);
    assert_memory_equal(j.text, expected, n);
    token_text_close(x);
}

static void test_random_ids(void **state)
{
    const struct tokenizer *t = *state;
    static const char *const pool[] = { "a",  "th",   "e ",   "\n", "\xf0\x9f\x98\x80", "\xe4\xbd\xa0", "ing", ", ",
                                        "zz", "\xff", " the", "o" };
    srand(4);
    for (int round = 0; round < 20000; round++) {
        uint32_t ids[MOST];
        const char *stops[STOP_MAX];
        size_t lens[STOP_MAX];
        const size_t n_ids = (size_t)rand() % MOST, n_stops = (size_t)rand() % (STOP_MAX + 1);
        for (size_t i = 0; i < n_ids; i++)
            ids[i] = rand() % 3 ? (uint32_t)rand() % 256
                                : (uint32_t)rand() % tokenizer_size(t); /* bytes of characters, and words */
        for (size_t i = 0; i < n_stops; i++) {
            stops[i] = pool[(size_t)rand() % (sizeof pool / sizeof *pool)];
            lens[i] = strlen(stops[i]);
        }
        check(t, ids, n_ids, stops, lens, n_stops, rand() % 2);
    }
}

/* Characters of four bytes whose bytes are ids of their own: nothing is shown before its last byte, and a cut one
 * vanishes. */
static void test_split_character(void **state)
{
    const struct tokenizer *t = *state;
    struct tokens ids = { 0 };
    struct token_text *x;
    struct token_line line[2];
    assert_int_equal(tokenizer_encode(t, "\xf0\x9f\x98\x80", 4, false, false, &ids, NULL), WK_OK);
    assert_true(ids.n >= 2);
    for (size_t cut = 1; cut < ids.n; cut++) {
        assert_int_equal(token_text_open(t, token_text_piece_max(t), NULL, NULL, 0, &x, NULL), WK_OK);
        size_t shown = 0;
        for (size_t i = 0; i < cut; i++) {
            const int n = token_text_push(x, ids.ids[i], line);
            for (int k = 0; k < n; k++) shown += line[k].n;
        }
        assert_int_equal(token_text_end(x, true, line), 1);
        assert_int_equal(shown + line[0].n, 0);
        token_text_close(x);
    }
    tokens_free(&ids);
}

static int open_tokenizer(void **state)
{
    struct gguf *file;
    char text[512];
    const struct wk_err err = { text, sizeof text };
    if (gguf_open(HAIKU_MODEL, &file, &err) || tokenizer_open(file, (struct tokenizer **)state, &err)) {
        (void)fprintf(stderr, "%s\n", text);
        return -1;
    }
    gguf_close(file);
    return 0;
}

static int close_tokenizer(void **state)
{
    tokenizer_close(*state);
    return 0;
}

/* Harmony: one line an id as always, and the lines' text is the answer's alone; reasoning comes beside it. */
static void test_channels(void **state)
{
    (void)state;
    static const struct {
        const char *output, *stop, *expected, *reasoning;
        uint32_t reasoning_ids;
    } cases[] = {
        { "<|channel|>analysis<|message|>I th\xC3\xA9nk "
          "END.<|end|><|start|>assistant<|channel|>final<|message|>4\xC3\xA9.",
          NULL, "4\xC3\xA9.", "I th\xC3\xA9nk END.", 12 },
        { "<|channel|>analysis<|message|>I think END.<|end|><|start|>assistant<|channel|>final<|message|>The END of it",
          "END", "The ", "I think END.", 11 },
        { "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b\xC3", NULL, "",
          "a\n\nb", 3 },
        { "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>EN", "END",
          "I look.\n\nEN", "", 0 },
        { "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}", NULL, "", "", 0 },
        { "Hello there", NULL, "Hello there", "", 0 },
        { "<|channel|>final", NULL, "", "", 0 },
    };
    static const char *const specials[] = { "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                            "<|constrain|>", "<|return|>", "<|call|>" };
    static struct builder builder;
    static struct joined j;
    struct tokenizer *t;
    struct harmony_ids harmony;
    builder_bpe(&builder, "gpt-4o");
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        builder_token(&builder, specials[i], TOKEN_CONTROL, 0);
    assert_int_equal(builder_open(&builder, &t, NULL), WK_OK);
    assert_true(harmony_find_ids(t, &harmony));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokens ids = { 0 };
        struct token_text *x;
        struct token_line line[2];
        const size_t len = cases[i].stop ? strlen(cases[i].stop) : 0;
        char reasoning[64] = "";
        size_t given = 0, n = 0;
        assert_int_equal(tokenizer_encode(t, cases[i].output, strlen(cases[i].output), true, false, &ids, NULL), WK_OK);
        j = (struct joined){ .ids = ids.ids };
        assert_int_equal(token_text_open(t, token_text_piece_max(t), &cases[i].stop, &len, len != 0, &x, NULL), WK_OK);
        token_text_channels(x, &harmony);
        while (given < ids.n && token_text_stopped(x) == STOP_NONE) {
            join(&j, line, token_text_push(x, ids.ids[given++], line));
            const struct token_bytes said = token_text_reasoning(x);
            assert_true(n + said.len < sizeof reasoning);
            memcpy(reasoning + n, said.data, said.len);
            n += said.len;
        }
        assert_string_equal(reasoning, cases[i].reasoning);
        assert_int_equal(token_text_reasoning_ids(x), cases[i].reasoning_ids);
        join(&j, line, token_text_end(x, false, line));
        assert_int_equal(j.lines, given);
        assert_int_equal(j.n, strlen(cases[i].expected));
        assert_memory_equal(j.text, cases[i].expected, j.n);
        token_text_close(x);
        tokens_free(&ids);
    }
    tokenizer_close(t);
}

/* Reasoning between marks: beside the text, and stop strings do not see it. */
static void test_marks(void **state)
{
    static const struct {
        const char *output, *stop, *expected, *reasoning;
        bool opened;
    } cases[] = {
        { "<think>I th\xC3\xA9nk END.\n</think>\n\n4\xC3\xA9.", NULL, "4\xC3\xA9.", "I th\xC3\xA9nk END.", false },
        { "Hm END</think>The END of it", "END", "The ", "Hm END", true },
        { "Hm <b>END", "END", "", "Hm <b>END", true },
        { "4 <think>END", "END", "4 <think>", "", false },
        { " <thi", NULL, " <thi", "", false },
    };
    static struct joined j;
    const struct tokenizer *t = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct chat_marks marks = { "<think>", "</think>", cases[i].opened };
        struct tokens ids = { 0 };
        struct token_text *x;
        struct token_line line[2];
        const size_t len = cases[i].stop ? strlen(cases[i].stop) : 0;
        char reasoning[64] = "";
        size_t given = 0, n = 0;
        assert_int_equal(tokenizer_encode(t, cases[i].output, strlen(cases[i].output), false, false, &ids, NULL),
                         WK_OK);
        j = (struct joined){ .ids = ids.ids };
        assert_int_equal(token_text_open(t, token_text_piece_max(t), &cases[i].stop, &len, len != 0, &x, NULL), WK_OK);
        token_text_marks(x, &marks);
        while (given < ids.n && token_text_stopped(x) == STOP_NONE) {
            join(&j, line, token_text_push(x, ids.ids[given++], line));
            const struct token_bytes said = token_text_reasoning(x);
            assert_true(n + said.len < sizeof reasoning);
            memcpy(reasoning + n, said.data, said.len);
            n += said.len;
        }
        assert_string_equal(reasoning, cases[i].reasoning);
        assert_int_equal(token_text_reasoning_ids(x) > 0, *cases[i].reasoning != '\0');
        join(&j, line, token_text_end(x, false, line));
        assert_int_equal(j.lines, given);
        assert_int_equal(j.n, strlen(cases[i].expected));
        assert_memory_equal(j.text, cases[i].expected, j.n);
        token_text_close(x);
        tokens_free(&ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_ids), cmocka_unit_test(test_split_character),
                                        cmocka_unit_test(test_channels), cmocka_unit_test(test_marks) };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
