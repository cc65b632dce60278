/* test_reply.c: where a model's words go: the answer and what stands beside it, stop strings, whole characters, however
 * the output is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "reply.h"
#include "vocab_builder.h"

static struct builder builder;
static struct tokenizer *tokenizer;
static struct harmony_ids ids;
static bool to_terminals;

static int open_vocabulary(void **state)
{
    static const char *const specials[] = { "<|start|>",     "<|end|>",    "<|message|>", "<|channel|>",
                                            "<|constrain|>", "<|return|>", "<|call|>" };
    (void)state;
    builder_bpe(&builder, "gpt-4o");
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        builder_token(&builder, specials[i], TOKEN_CONTROL, 0);
    assert_int_equal(builder_open(&builder, &tokenizer, NULL), WK_OK);
    assert_true(harmony_find_ids(tokenizer, &ids));
    return 0;
}
static int close_vocabulary(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

struct said {
    char *out, *aside;
    bool begun, stopped;
};

/* Takes the output as its ids; as worker run does, it ends at a stop string. */
static struct said reply(const char *output, bool harmony, const char *stop, bool aside, bool cut)
{
    struct said said = { 0 };
    size_t n_out, n_aside;
    FILE *out = open_memstream(&said.out, &n_out), *beside = open_memstream(&said.aside, &n_aside);
    const struct reply_options o = { .tokenizer = tokenizer,
                                     .stops = &stop,
                                     .n_stops = stop != NULL,
                                     .harmony = harmony ? &ids : NULL,
                                     .out = out,
                                     .aside = aside ? beside : NULL,
                                     .out_terminal = to_terminals,
                                     .aside_terminal = to_terminals };
    struct reply *r;
    struct tokens got = { 0 };
    assert_int_equal(reply_open(&o, &r, NULL), WK_OK);
    assert_int_equal(tokenizer_encode(tokenizer, output, strlen(output), true, false, &got, NULL), WK_OK);
    for (size_t i = 0; i < got.n && !said.stopped; i++) said.stopped = reply_take(r, got.ids[i]);
    reply_end(r, cut);
    said.begun = reply_begun(r);
    reply_close(r);
    tokens_free(&got);
    fclose(out);
    fclose(beside);
    return said;
}

static void expect(struct said said, const char *out, const char *aside)
{
    assert_string_equal(said.out, out);
    assert_string_equal(said.aside, aside);
    free(said.out);
    free(said.aside);
}

#define ANALYSIS "<|channel|>analysis<|message|>I think END.<|end|><|start|>assistant"

static void test_channels(void **state)
{
    (void)state;
    expect(reply(ANALYSIS "<|channel|>final<|message|>4.<|return|>", true, NULL, false, false), "4.", "");
    expect(reply(ANALYSIS "<|channel|>final<|message|>4.<|return|>", true, NULL, true, false), "4.",
           "I think END.\n\n");
    expect(reply("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>final<|message|>4.", true,
                 NULL, true, false),
           "I look.\n\n4.", "");
    expect(
        reply("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", true, NULL, true, false),
        "", "[calls functions.f] {}\n\n");
    expect(reply("<|channel|>commentary to=f\x9e <|message|>{}<|call|>", true, NULL, true, false), "",
           "[calls f\xEF\xBF\xBD] {}\n\n");
    expect(reply("Hello", true, NULL, true, false), "Hello", ""); /* a model that forgets its format */
    expect(reply("<|channel|>final<|message|>a", false, NULL, true, false), "finala",
           ""); /* not asked to look: control tokens are nothing */
}

static void test_stops(void **state)
{
    (void)state;
    struct said said = reply(ANALYSIS "<|channel|>final<|message|>The END of it<|return|>", true, "END", true, false);
    assert_true(said.stopped);
    expect(said, "The ", "I think END.\n\n"); /* only the answer is looked at */
    said = reply("<|channel|>final<|message|>The EN", true, "END", false, true);
    assert_false(said.stopped);
    expect(said, "The EN", "");
    expect(reply("one END two", false, "END", false, false), "one ", "");
    expect(reply("EN", true, "END", false, false), "EN", "");
}

/* Characters that ids cut are whole again; what a limit cuts is dropped, what a model leaves unfinished is replaced. */
static void test_characters(void **state)
{
    (void)state;
    expect(reply("<|channel|>final<|message|>\xE4\xB8\xAD\xC3\xA9<|return|>", true, NULL, false, false),
           "\xE4\xB8\xAD\xC3\xA9", "");
    expect(reply("<|channel|>final<|message|>a\xE4\xB8", true, NULL, false, true), "a", "");
    expect(reply("<|channel|>final<|message|>a\xE4\xB8", true, NULL, false, false), "a\xEF\xBF\xBD", "");
    expect(
        reply("<|channel|>analysis<|message|>\xE4\xB8<|end|><|channel|>final<|message|>\xAD", true, NULL, true, false),
        "\xEF\xBF\xBD", "\xEF\xBF\xBD\n\n");
    expect(reply("a\xE4\xB8", false, NULL, false, true), "a", "");
}

/* A terminal is shown what it would obey, wherever ids cut it; a file gets the text as it is. */
static void test_terminals(void **state)
{
    (void)state;
    static const char text[] = "\033]0;x\a\033[2Ja\tb\r\nc\rd\xC2\x9B"
                               "1m\xC2\xA0\x7F\b";
    expect(reply(text, false, NULL, false, false), text, "");
    to_terminals = true;
    expect(reply(text, false, NULL, false, false), "^[]0;x^G^[[2Ja\tb\nc^Md<U+009B>1m\xC2\xA0^?^H", "");
    expect(reply("a\r", false, NULL, false, false), "a^M", "");
    expect(reply("<|channel|>analysis<|message|>\033[1mx\r<|end|><|start|>assistant<|channel|>final<|message|>y\033<|"
                 "return|>",
                 true, NULL, true, false),
           "y^[", "\033[2m^[[1mx^M\033[0m\n\n");
    expect(reply("<|channel|>commentary to=functions.\033c <|message|>{}<|call|>", true, NULL, true, false), "",
           "\033[2m[calls functions.^[c] {}\033[0m\n\n");
    to_terminals = false;
}

static void test_begun(void **state)
{
    (void)state;
    static const struct {
        const char *output;
        bool begun;
    } cases[] = { { "", false },
                  { ANALYSIS, false },
                  { ANALYSIS "<|channel|>final<|message|>", false },
                  { ANALYSIS "<|channel|>final<|message|>x", true },
                  { "x", true } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct said said = reply(cases[i].output, true, NULL, false, true);
        assert_int_equal(said.begun, cases[i].begun);
        free(said.out);
        free(said.aside);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_channels), cmocka_unit_test(test_stops),
                                        cmocka_unit_test(test_characters), cmocka_unit_test(test_terminals),
                                        cmocka_unit_test(test_begun) };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
