/* test_openai_probs.c: log probabilities as JSON, of tokens that are no characters, that look alike, or that cannot be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "openai_probs.h"
#include "vocab_builder.h"

static struct tokenizer *tokenizer;
static uint32_t plain; /* the token "A", whose byte has a token, too */

/* builder_spm's byte tokens. */
static uint32_t of_byte(unsigned char byte) { return 3u + byte; }

static void expect(struct http_text *got, const char *want)
{
    assert_false(got->failed);
    assert_string_equal(got->data, want);
    http_text_free(got);
}

static void chats(void **state)
{
    (void)state;
    struct token_probs p = { 0 };
    struct http_text out = { 0 };
    const struct sampler_prob of[] = { { -0.5, of_byte(0xe2), 2 }, { -0.25, plain, 1 }, { -INFINITY, 2, 2 } };
    token_probs_add_content(&p, tokenizer, of, 2);
    token_probs_add_content(&p, tokenizer, of + 1, 0);
    assert_true(token_probs_bytes(&p) > 0 && !token_probs_failed(&p));
    token_probs_put(&out, &p, true);
    expect(&out, "{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[226],\"top_logprobs\":["
                 "{\"token\":\"A\",\"logprob\":-0.25,\"bytes\":[65]},"
                 "{\"token\":\"</s>\",\"logprob\":-9999,\"bytes\":[60,47,115,62]}]},"
                 "{\"token\":\"A\",\"logprob\":-0.25,\"bytes\":[65],\"top_logprobs\":[]}],\"refusal\":null}");
    assert_int_equal(token_probs_bytes(&p), 0); /* what was put waits no longer */
    out = (struct http_text){ 0 };
    token_probs_put(&out, &p, true);
    expect(&out, "{\"content\":[],\"refusal\":null}");
    token_probs_free(&p);
}

/* Names of an object are not twice there: not the token that is there and among the best, not two of one text. */
static void completions(void **state)
{
    (void)state;
    struct token_probs p = { 0 };
    struct http_text out = { 0 };
    const struct sampler_prob twins[] = { { -1, plain, 2 }, { -0.5, of_byte('A'), 1 }, { -1, plain, 2 } },
                              part[] = { { -2.125, of_byte(0xe2), 9 }, { -0.75, of_byte(0xe3), 1 } };
    token_probs_add_lists(&p, tokenizer, 1, NULL, 0, 0);
    token_probs_add_lists(&p, tokenizer, plain, twins, 2, 1);
    token_probs_add_lists(&p, tokenizer, part[0].id, part, 1, 1);
    token_probs_add_lists(&p, tokenizer, plain, twins, 0, 1);
    token_probs_put(&out, &p, false);
    expect(&out, "{\"tokens\":[\"<s>\",\"A\",\"bytes:\\\\xe2\",\"A\"],"
                 "\"token_logprobs\":[null,-1,-2.125,-1],"
                 "\"top_logprobs\":[null,{\"A\":-1,\"bytes:\\\\x41\":-0.5},"
                 "{\"bytes:\\\\xe2\":-2.125,\"bytes:\\\\xe3\":-0.75},{\"A\":-1}],"
                 "\"text_offset\":[0,0,1,2]}");
    token_probs_free(&p);
}

static const struct sampler_prob *row(void *user, size_t i, uint32_t *n_top)
{
    *n_top = 2;
    return i < 3 ? (const struct sampler_prob *)user + 3 * (i - 1) : NULL;
}

static void prompts(void **state)
{
    (void)state;
    const struct sampler_prob rows[] = { { -3, 2, 9 }, { -0.5, plain, 1 }, { -1, 1, 2 },
                                         { -1, 1, 2 }, { -0.5, plain, 1 }, { -1, 1, 2 } };
    struct http_text out = { 0 }, want = { 0 };
    prompt_probs_put(&out, tokenizer, 4, row, (void *)(uintptr_t)rows, 0);
    expect(&out, "[null,{\"2\":{\"logprob\":-3,\"rank\":9,\"decoded_token\":\"</s>\"}},"
                 "{\"1\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\"<s>\"}},null]");
    out = (struct http_text){ 0 };
    prompt_probs_put(&out, tokenizer, 4, row, (void *)(uintptr_t)rows, 5); /* more than there are */
    http_text_format(&want,
                     "[null,{\"2\":{\"logprob\":-3,\"rank\":9,\"decoded_token\":\"</s>\"},"
                     "\"%u\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"A\"},"
                     "\"1\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\"<s>\"}},"
                     "{\"1\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\"<s>\"},"
                     "\"%u\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"A\"}},null]",
                     plain, plain);
    expect(&out, want.data);
    http_text_free(&want);
}

int main(void)
{
    static struct builder b;
    char text[512] = "";
    builder_spm(&b);
    plain = builder_token(&b, "A", TOKEN_NORMAL, -1);
    if (builder_open(&b, &tokenizer, &(struct wk_err){ text, sizeof text })) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(chats), cmocka_unit_test(completions),
                                        cmocka_unit_test(prompts) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_close(tokenizer);
    return failed;
}
