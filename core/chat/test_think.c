/* test_think.c: reasoning told apart from text, wherever the ids are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "chat/think.h"
#include "vocab_builder.h"

static struct builder builder;

struct said {
    char text[2][1024]; /* the answer, its reasoning */
    size_t n[2];
};

static void hear(void *user, bool reasoning, const char *bytes, size_t n)
{
    struct said *s = user;
    assert_true(s->n[reasoning] + n < sizeof s->text[0]);
    memcpy(s->text[reasoning] + s->n[reasoning], bytes, n);
    s->text[reasoning][s->n[reasoning] += n] = '\0';
}

/* Ids of a text cut into pieces of at most `most` bytes, each encoded for itself; marks are tokens where the vocabulary
 * has them and a piece begins with one. */
static size_t cut(const struct tokenizer *t, const char *text, size_t most, uint32_t out[1024])
{
    static const char *const marks[] = { "<think>", "</think>" };
    size_t n = 0;
    for (size_t i = 0; text[i];) {
        struct tokens ids = { 0 };
        size_t len = strnlen(text + i, most);
        bool special = false;
        for (size_t k = 0; k < 2; k++)
            if (strncmp(text + i, marks[k], strlen(marks[k])) == 0 &&
                tokenizer_find(t, marks[k], strlen(marks[k])) != TOKEN_NONE) {
                len = strlen(marks[k]);
                special = true;
            }
        const char *mark = special ? NULL : memchr(text + i + 1, '<', len - 1);
        if (mark) len = (size_t)(mark - (text + i));
        assert_int_equal(tokenizer_encode(t, text + i, len, special, false, &ids, NULL), WK_OK);
        assert_true(n + ids.n < 1024);
        memcpy(out + n, ids.ids, ids.n * sizeof *out);
        n += ids.n;
        i += len;
        tokens_free(&ids);
    }
    return n;
}

static const struct {
    const char *text, *reasoning, *answer;
    bool opened;
} cases[] = {
    { "<think>\nHm. So <b> it is.\n</think>\n\nYes.", "Hm. So <b> it is.", "Yes.", false },
    { " \n<think>a</think>b", "a", "b", false },
    { "Hm.\n</think>\nYes.", "Hm.", "Yes.", true },
    { "</think>Yes <think> is a mark.</think>", "", "Yes <think> is a mark.</think>", true },
    { "<think></think>", "", "", false },
    { "No thought: <think>x</think>", "", "No thought: <think>x</think>", false },
    { "<thin", "", "<thin", false },
    { "<think>never ends </thin", "never ends </thin", "", false },
    { "<think>a  \n  b\n\n</think>", "a  \n  b", "", false },
    { "", "", "", true },
};

static void test_cuts(void **state)
{
    (void)state;
    char text[256];
    struct wk_err err = { text, sizeof text };
    /* The marks as control tokens, as tokens that show themselves, and as text. */
    static const int types[] = { TOKEN_CONTROL, TOKEN_USER_DEFINED, 0 };
    for (size_t k = 0; k < 3; k++) {
        struct tokenizer *t;
        builder_bpe(&builder, "gpt-2");
        if (types[k]) {
            builder_token(&builder, "<think>", types[k], 0);
            builder_token(&builder, "</think>", types[k], 0);
        }
        if (builder_open(&builder, &t, &err)) fail_msg("%s", text);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (size_t most = 1; most < 40; most++) {
                const struct chat_marks marks = { "<think>", "</think>", cases[i].opened };
                uint32_t ids[1024];
                struct think think;
                struct said said = { 0 };
                const size_t n = cut(t, cases[i].text, most, ids);
                /* A mark that is a control token says nothing where no mark can be. */
                if (types[k] == TOKEN_CONTROL && strstr(cases[i].answer, "think>")) continue;
                think_begin(&think, t, &marks);
                for (size_t at = 0; at < n; at++) (void)think_push(&think, ids[at], hear, &said);
                think_finish(&think, hear, &said);
                assert_string_equal(said.text[0], cases[i].answer);
                assert_string_equal(said.text[1], cases[i].reasoning);
            }
        tokenizer_close(t);
    }
}

/* Ids are counted as reasoning from the first mark to the last. */
static void test_counts(void **state)
{
    (void)state;
    struct tokenizer *t;
    uint32_t ids[1024];
    struct think think;
    struct said said = { 0 };
    const struct chat_marks marks = { "<think>", "</think>", false };
    builder_bpe(&builder, "gpt-2");
    builder_token(&builder, "<think>", TOKEN_CONTROL, 0);
    builder_token(&builder, "</think>", TOKEN_CONTROL, 0);
    assert_int_equal(builder_open(&builder, &t, NULL), WK_OK);
    const size_t n = cut(t, "<think>xyz</think>uv", 1, ids);
    size_t counted = 0;
    think_begin(&think, t, &marks);
    for (size_t i = 0; i < n; i++) counted += think_push(&think, ids[i], hear, &said);
    assert_int_equal(n, 7);
    assert_int_equal(counted, 5);
    tokenizer_close(t);
}

/* However much there is of it, blanks and beginnings of marks are never lost. */
static void test_long_blanks(void **state)
{
    (void)state;
    struct tokenizer *t;
    uint32_t ids[1024];
    struct think think;
    struct said said = { 0 };
    char text[800] = "x";
    const struct chat_marks marks = { "<think>", "</think>", true };
    memset(text + 1, ' ', 600);
    (void)snprintf(text + 601, 100, "y</think>");
    builder_bpe(&builder, "gpt-2");
    assert_int_equal(builder_open(&builder, &t, NULL), WK_OK);
    think_begin(&think, t, &marks);
    const size_t n = cut(t, text, 1, ids);
    for (size_t i = 0; i < n; i++) (void)think_push(&think, ids[i], hear, &said);
    assert_int_equal(said.n[1], 602);
    assert_int_equal(said.n[0], 0);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cuts), cmocka_unit_test(test_counts),
                                        cmocka_unit_test(test_long_blanks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
