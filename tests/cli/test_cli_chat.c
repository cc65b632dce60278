/* test_cli_chat.c: gpt-oss's conversations and tokenizer.json files on the command line. The model is a small random
 * one of the goldens, whose vocabulary has harmony's control tokens; its tokenizer.json is written here from that
 * vocabulary. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "maker.h"
#include "test_data.h"
#include "hf_builder.h"
#include "base/utf8.h"

static char model[DATA_PATH_MAX];

static void write_json(const struct gguf *file)
{
    static const char *const keys[] = { "tokenizer.ggml.tokens", "tokenizer.ggml.merges" };
    struct gguf_strings it;
    struct gguf_str s;
    struct hf_text vocab = { 0 }, added = { 0 }, merges = { 0 }, all = { 0 };
    char number[64];
    int64_t type;
    assert_int_equal(gguf_strings_begin(file, gguf_find(file, keys[0]), &it, NULL), WK_OK);
    for (uint64_t id = 0; gguf_strings_next(&it, &s); id++) {
        assert_int_equal(gguf_i64_at(file, gguf_find(file, "tokenizer.ggml.token_type"), id, &type, NULL), WK_OK);
        if (type == TOKEN_UNUSED) continue;
        struct hf_text *to = type == TOKEN_CONTROL ? &added : &vocab;
        (void)snprintf(number, sizeof number, "%s%llu",
                       type == TOKEN_CONTROL ? (to->n ? ",{\"id\":" : "{\"id\":") : ":", (unsigned long long)id);
        if (type == TOKEN_CONTROL) {
            hf_say(to, number);
            hf_say(to, ",\"special\":true,\"content\":");
            hf_string(to, s.data, (size_t)s.len);
            hf_say(to, "}");
        } else {
            if (to->n) hf_say(to, ",");
            hf_string(to, s.data, (size_t)s.len);
            hf_say(to, number);
        }
    }
    assert_int_equal(gguf_strings_begin(file, gguf_find(file, keys[1]), &it, NULL), WK_OK);
    while (gguf_strings_next(&it, &s)) {
        if (merges.n) hf_say(&merges, ",");
        hf_string(&merges, s.data, (size_t)s.len);
    }
    hf_say(&all, "{\"added_tokens\":[");
    hf_say(&all, added.data);
    hf_say(&all, "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":"
                 "\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    hf_say(&all, vocab.data);
    hf_say(&all, "},\"merges\":[");
    hf_say(&all, merges.data);
    hf_say(&all, "]}}");
    make_file("own.json", all.data, all.n);
    free(vocab.data);
    free(added.data);
    free(merges.data);
    free(all.data);
}

static int setup(void **state)
{
    struct gguf *file;
    if (enter_scratch(state)) return -1;
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    make_file("bad.json", "{\"model\": {\"type\": \"Unigram\"}}", 30);
    if (gguf_open(golden_file(model, "harmony.gguf"), &file, NULL)) return -1;
    write_json(file);
    gguf_close(file);
    return 0;
}

static void assert_ok(const struct cli_result *r)
{
    if (r->status != 0) fail_msg("status %d, standard error:\n%s", r->status, r->err);
}

static void assert_utf8(const struct cli_result *r)
{
    for (size_t i = 0, n; i < r->out_len; i += n) {
        n = utf8_sequence((const unsigned char *)r->out + i, r->out_len - i);
        assert_true(n > 0);
    }
}

/* A random model writes control tokens in any order: the answer is text all the same, and the prompt is harmony's. */
static void any_output_is_text(void **state)
{
    (void)state;
    for (int seed = 1; seed <= 6; seed++) {
        char text[8];
        (void)snprintf(text, sizeof text, "%d", seed);
        struct cli_result r =
            CLI("run", "-m", model, "--chat", "--reasoning", "-p", "Hi <|end|>", "-n", "80", "--temperature", "2",
                "--seed", text, "--logit-bias", "0=-100"); /* no zero byte: what is said is a C string here */
        assert_ok(&r);
        assert_utf8(&r);
        assert_true(matches(r.err, ", harmony, device cpu"));
        assert_false(matches(r.out, "<\\|"));
        cli_free(&r);
    }
}

static unsigned prompt_tokens(const char *effort)
{
    unsigned n = 0;
    struct cli_result r =
        CLI("run", "-m", model, "--chat", "--reasoning-effort", effort, "-p", "Hi", "-n", "1", "--seed", "1");
    assert_ok(&r);
    const char *at = strstr(r.err, "worker: ");
    for (; at && sscanf(at, "worker: %u prompt tokens", &n) != 1; at = strstr(at + 1, "worker: ")) {}
    cli_free(&r);
    return n;
}

/* The small vocabulary spells the effort byte by byte. */
static void effort_is_in_the_prompt(void **state)
{
    (void)state;
    const unsigned low = prompt_tokens("low"), high = prompt_tokens("high"), medium = prompt_tokens("medium");
    assert_int_equal(high, low + 1);
    assert_int_equal(medium, low + 3);
}

/* A model that knows no format is shown; one that only reasons until the limit is explained. */
static void forced_outputs(void **state)
{
    (void)state;
    struct cli_result id = CLI("tokenize", "-m", model, "a");
    char bias[64], end[64];
    assert_ok(&id);
    (void)snprintf(bias, sizeof bias, "%d=100", atoi(id.out));
    struct cli_result r =
        CLI("run", "-m", model, "--chat", "-p", "Hi", "-n", "5", "--temperature", "0", "--logit-bias", bias);
    assert_ok(&r);
    assert_string_equal(r.out, "aaaaa\n");
    cli_free(&r);
    cli_free(&id);
    id = CLI("tokenize", "-m", model, "--special", "<|message|>");
    (void)snprintf(end, sizeof end, "%d=100", atoi(id.out));
    r = CLI("run", "-m", model, "--chat", "-p", "Hi", "-n", "5", "--temperature", "0", "--logit-bias", end);
    assert_ok(&r);
    assert_string_equal(r.out, "\n");
    assert_true(matches(r.err, "raise --max-tokens or lower --reasoning-effort"));
    cli_free(&r);
    cli_free(&id);
}

static void tokenizer_json(void **state)
{
    (void)state;
    static const char text[] = "the <|start|> in\xC3\xA9 123\n\n  there";
    struct cli_result a = CLI("tokenize", "-m", model, "--special", text),
                      b = CLI("tokenize", "-m", model, "--tokenizer", "own.json", "--special", text),
                      c = CLI("tokenize", "--tokenizer", "own.json", "--special", text);
    assert_ok(&a);
    assert_ok(&b);
    assert_ok(&c);
    assert_string_equal(a.out, b.out);
    assert_string_equal(a.out, c.out);
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
    a = CLI("run", "-m", model, "--chat", "-p", "Hi", "-n", "30", "--seed", "3", "--ids");
    b = CLI("run", "-m", model, "--chat", "-p", "Hi", "-n", "30", "--seed", "3", "--ids", "--tokenizer", "own.json");
    assert_ok(&a);
    assert_ok(&b);
    assert_string_equal(a.out, b.out);
    cli_free(&a);
    cli_free(&b);
    a = CLI("detokenize", "--tokenizer", "own.json", "65", "66");
    assert_ok(&a);
    cli_free(&a);
}

static void expect_failure(struct cli_result r, int status, const char *pattern)
{
    if (r.status != status || !matches(r.err, pattern)) fail_msg("status %d, standard error:\n%s", r.status, r.err);
    assert_int_equal(r.out_len, 0);
    cli_free(&r);
}

/* What the template makes of a prompt, spelt by hand: the same ids once the text of control tokens is read as them. */
static void parse_special(void **state)
{
    (void)state;
    const char *spelt = "<|im_start|>user\nWrite a haiku about rain<|im_end|>\n<|im_start|>assistant\n";
    struct cli_result a = CLI("run", "--chat", "-p", "Write a haiku about rain", "-n", "20", "--seed", "3", "--ids"),
                      b = CLI("run", "--parse-special", "-p", spelt, "-n", "20", "--seed", "3", "--ids"),
                      c = CLI("run", "--raw", "-p", spelt, "-n", "20", "--seed", "3", "--ids");
    unsigned chat = 0, special = 1, raw = 0;
    assert_ok(&a);
    assert_ok(&b);
    assert_ok(&c);
    assert_string_equal(a.out, b.out);
    assert_int_equal(sscanf(a.err, "worker: %u prompt tokens", &chat), 1);
    assert_int_equal(sscanf(b.err, "worker: %u prompt tokens", &special), 1);
    assert_int_equal(sscanf(c.err, "worker: %u prompt tokens", &raw), 1);
    assert_int_equal(chat, special);
    assert_true(raw > special + 10);
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
    expect_failure(CLI("run", "--parse-special", "--chat", "-p", "x"), 2, "exclude each other");
}

static void refusals(void **state)
{
    (void)state;
    expect_failure(CLI("tokenize", "--tokenizer", "bad.json", "x"), 1,
                   "MODEL_LOAD_FAILED: bad.json: model.type: model Unigram is not supported; supported is BPE\n$");
    expect_failure(CLI("tokenize", "--tokenizer", "absent.json", "x"), 1,
                   "MODEL_LOAD_FAILED: absent.json: No such file");
    expect_failure(CLI("tokenize", "x"), 2, "--model FILE is needed");
    expect_failure(CLI("run", "-m", "tiny.gguf", "--tokenizer", "bad.json", "-p", "x"), 1,
                   "bad.json: model.type: model Unigram");
    expect_failure(CLI("run", "-m", "tiny.gguf", "--reasoning", "-p", "x"), 2,
                   "--reasoning is for chats with models that reason");
    expect_failure(CLI("run", "-m", "tiny.gguf", "--reasoning-effort", "high", "-p", "x"), 2,
                   "--reasoning-effort is for chats with models that reason");
    expect_failure(CLI("run", "--reasoning", "--log", "json", "-p", "x"), 2, "exclude each other");
    expect_failure(CLI("run", "--reasoning-effort", "extreme", "-p", "x"), 2, "none.minimal.low.medium.high");
    expect_failure(CLI("run", "-m", "tiny.gguf", "--tokenizer", "own.json", "-p", "x"), 1,
                   "own.json: .*(the model's vocabulary has 260|belongs to another model)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_output_is_text), cmocka_unit_test(effort_is_in_the_prompt),
        cmocka_unit_test(forced_outputs),     cmocka_unit_test(tokenizer_json),
        cmocka_unit_test(parse_special),      cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
