/* test_cli_model.c: the commands at work: generation, tokens, scores, taps, on a crafted model and, where the data are,
 * on a trained one. */
#include "cli.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "maker.h"
#include "test_data.h"

static int setup(void **state)
{
    if (enter_scratch(state)) return -1;
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    make_tiny(&(struct tiny_model){ .path = "long.gguf", .context = 65536 });
    make_tiny(&(struct tiny_model){ .path = "vocabulary.gguf", .vocabulary_only = 1 });
    return 0;
}

static void assert_ok(const struct cli_result *r)
{
    if (r->status != 0) fail_msg("status %d, standard error:\n%s", r->status, r->err);
}

/* ---- run ----------------------------------------------------------------------------------------------- */

static void same_seed_same_ids(void **state)
{
    (void)state;
    struct cli_result a =
        CLI("run", "-m", "tiny.gguf", "-p", "abc", "--seed", "7", "--ids", "-n", "20", "--temperature", "1.5");
    struct cli_result b = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--seed", "7", "--ids", "-n", "20",
                              "--temperature", "1.5", "--threads", "1");
    struct cli_result c = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--seed", "18446744073709551615", "--ids", "-n",
                              "20", "--temperature", "1.5");
    assert_ok(&a);
    assert_ok(&b);
    assert_ok(&c);
    assert_true(matches(a.out, "^[0-9]+( [0-9]+){0,19}\n$"));
    assert_string_equal(a.out, b.out);
    assert_string_not_equal(a.out, c.out);
    assert_true(matches(c.err, "seed 18446744073709551615"));
    assert_true(matches(
        a.err,
        "^worker: [0-9]+ prompt tokens in [0-9.]+ s \\([0-9.]+ tok/s\\), [0-9]+ tokens in [0-9.]+ s \\([0-9.]+ "
        "tok/s\\), seed 7, "
        "finish (stop|length), raw, device cpu \\([a-z0-9]+, [0-9]+ threads, 8-bit activations\\), model tiny\n$"));
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
}

/* What follows the last colon is a scale if it is a number. */
static void adapters_by_file_and_scale(void **state)
{
    (void)state;
    static const char *const scales[] = { "", ":0", ":-0.25" };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        char given[64];
        (void)snprintf(given, sizeof given, "nowhere.gguf%s", scales[i]);
        struct cli_result r = CLI("plan", "tiny.gguf", "--lora", given);
        assert_int_equal(r.status, 1);
        assert_non_null(strstr(r.err, "nowhere.gguf: "));
        cli_free(&r);
    }
    struct cli_result infinite = CLI("run", "-m", "tiny.gguf", "-p", "x", "--lora", "a.gguf:inf"),
                      word = CLI("plan", "tiny.gguf", "--lora", "a.gguf:half"),
                      model = CLI("plan", "tiny.gguf", "--lora", "tiny.gguf");
    assert_int_equal(infinite.status, 2);
    assert_non_null(strstr(infinite.err, "--lora: expected a file of an adapter"));
    assert_non_null(strstr(word.err, "a.gguf:half: "));
    assert_non_null(strstr(model.err, "general.type is not there, expected \"adapter\""));
    cli_free(&infinite);
    cli_free(&word);
    cli_free(&model);
}

/* Without --seed a new one is drawn; giving the printed one back repeats the run. */
static void printed_seed_repeats(void **state)
{
    (void)state;
    unsigned long long seed;
    char text[32];
    struct cli_result a = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--ids", "-n", "30");
    assert_ok(&a);
    const char *at = strstr(a.err, "seed ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "seed %llu", &seed), 1);
    (void)snprintf(text, sizeof text, "%llu", seed);
    struct cli_result b = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--ids", "-n", "30", "--seed", text);
    assert_ok(&b);
    assert_string_equal(a.out, b.out);
    cli_free(&a);
    cli_free(&b);
}

static void environment_reaches_the_run(void **state)
{
    (void)state;
    assert_int_equal(setenv("WORKER_MODEL", "tiny.gguf", 1) | setenv("WORKER_SEED", "99", 1) |
                         setenv("WORKER_MAX_TOKENS", "3", 1),
                     0);
    struct cli_result a = CLI("run", "-p", "abc"), b = CLI("run", "-p", "abc", "--seed", "5");
    assert_int_equal(unsetenv("WORKER_MODEL") | unsetenv("WORKER_SEED") | unsetenv("WORKER_MAX_TOKENS"), 0);
    assert_ok(&a);
    assert_true(matches(a.err, "seed 99, "));
    assert_true(matches(a.err, " [0-3] tokens in "));
    assert_true(matches(b.err, "seed 5, "));
    cli_free(&a);
    cli_free(&b);
}

static void prompt_from_standard_input_and_file(void **state)
{
    (void)state;
    static const char *const piped[] = { "run", "-m", "tiny.gguf", "--temperature", "0", "--ids", "-n", "8", NULL };
    make_file("prompt.txt", "abc", 3);
    struct cli_result a = CLI("run", "-m", "tiny.gguf", "--temperature", "0", "--ids", "-n", "8", "-p", "abc"),
                      b = cli(piped, "abc");
    struct cli_result c = CLI("run", "-m", "tiny.gguf", "--temperature", "0", "--ids", "-n", "8", "-f", "prompt.txt");
    assert_ok(&a);
    assert_ok(&b);
    assert_ok(&c);
    assert_string_equal(a.out, b.out);
    assert_string_equal(a.out, c.out);
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
}

/* logit_bias makes the byte 'z' certain: what comes out is then known. Its id is 3 + 'z'. */
static void stop_string_is_not_printed(void **state)
{
    (void)state;
    struct cli_result all =
        CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "-n", "5", "--logit-bias", "125=100");
    struct cli_result stopped = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "-n", "5",
                                    "--logit-bias", "125=100", "--stop", "zzz", "--stop", "q");
    struct cli_result none = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "-n", "5", "--logit-bias",
                                 "125=100", "--stop", "zz9");
    assert_ok(&all);
    assert_ok(&stopped);
    assert_ok(&none);
    assert_string_equal(all.out, "zzzzz\n");
    assert_string_equal(stopped.out, "\n");
    assert_true(matches(stopped.err, " 3 tokens .*finish stop"));
    assert_string_equal(none.out, "zzzzz\n"); /* what was held back for "zz9" is text after all */
    assert_true(matches(none.err, "finish length"));
    cli_free(&all);
    cli_free(&stopped);
    cli_free(&none);
}

/* The length limit may cut a character: 0xC3 alone (id 3 + 0xC3) is never printed; an impossible byte is U+FFFD. */
static void output_is_valid_utf8(void **state)
{
    (void)state;
    struct cli_result cut =
        CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "-n", "1", "--logit-bias", "198=100");
    struct cli_result bad =
        CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "-n", "1", "--logit-bias", "258=100");
    assert_ok(&cut);
    assert_string_equal(cut.out, "\n");
    assert_string_equal(bad.out, "\xef\xbf\xbd\n");
    cli_free(&cut);
    cli_free(&bad);
}

static void generation_ends_with_the_context(void **state)
{
    (void)state;
    struct cli_result r =
        CLI("run", "-m", "tiny.gguf", "-p", "abc", "--ids", "--temperature", "0", "--logit-bias", "125=100");
    assert_ok(&r);
    assert_true(matches(r.err, "finish length"));
    cli_free(&r);
}

static void context_beyond_the_model_is_said(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "-m", "tiny.gguf", "-p", "abc", "-n", "1", "--context", "128");
    assert_ok(&r);
    assert_true(matches(r.err, "warning: a context of 128 is longer than the 64 that the model is made for"));
    cli_free(&r);
}

/* Whatever a model or a list of ids says, a terminal is not told to do anything; a file gets it as it is. */
static void terminals_obey_no_model(void **state)
{
    (void)state;
    char bias[32];
    struct cli_result id = CLI("tokenize", "-m", "tiny.gguf", "--no-bos", "\033");
    assert_ok(&id);
    const char *escape = strrchr(last_line(id.out), ' ') + 1; /* behind this vocabulary's space in front */
    (void)snprintf(bias, sizeof bias, "%s=100", escape);
    const char *const run[] = { "run",           "-m", "tiny.gguf",    "-p", "x", "-n", "2",
                                "--temperature", "0",  "--logit-bias", bias, NULL },
                      *const decode[] = { "detokenize", "-m", "tiny.gguf", escape, NULL };
    struct cli_result shown = cli_terminal(run), file = cli(run, NULL), text = cli_terminal(decode),
                      bytes = cli(decode, NULL);
    assert_ok(&shown);
    assert_ok(&file);
    assert_string_equal(shown.out, "^[^[\r\n"); /* the terminal's own end of a line */
    assert_string_equal(file.out, "\033\033\n");
    assert_string_equal(text.out, "^[");
    assert_string_equal(bytes.out, "\033");
    cli_free(&id);
    cli_free(&shown);
    cli_free(&file);
    cli_free(&text);
    cli_free(&bytes);
}

static void end_token_stops(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--temperature", "0", "--logit-bias", "2=100");
    assert_ok(&r);
    assert_string_equal(r.out, "\n");
    assert_true(matches(r.err, ", 0 tokens in .*finish stop"));
    cli_free(&r);
}

static void interrupt_still_reports(void **state)
{
    (void)state;
    static const char *const args[] = { "run", "-m",           "long.gguf", "-p", "abc",     "--temperature",
                                        "0",   "--logit-bias", "125=100",   "-n", "1048576", NULL };
    struct cli_result r = cli_interrupt(args);
    assert_int_equal(r.status, 130);
    assert_true(matches(r.err, "finish interrupt"));
    assert_true(matches(r.out, "^z+\n$"));
    cli_free(&r);
}

/* A model with a template is talked to in it unless --raw; the line says which. In this one every byte of the wrapped
 * prompt is a token. */
static void chat_is_the_models_choice(void **state)
{
    (void)state;
    static const char template[] =
        "{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + "
        "eos_token }}{% endif %}"
        "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}{% endfor %}";
    make_tiny(&(struct tiny_model){ .path = "chat.gguf", .chat_template = template });
    struct cli_result chat = CLI("run", "-m", "chat.gguf", "-p", "abc", "-n", "1"),
                      raw = CLI("run", "-m", "chat.gguf", "-p", "abc", "-n", "1", "--raw");
    assert_ok(&chat);
    assert_ok(&raw);
    assert_true(matches(chat.err, "worker: 2[0-9] prompt tokens .*, jinja, "));
    assert_true(matches(raw.err, "worker: 5 prompt tokens .*, raw, "));
    cli_free(&chat);
    cli_free(&raw);
}

static void narration_holds_no_text(void **state)
{
    (void)state;
    struct cli_result r = CLI("run", "-m", "tiny.gguf", "-p", "secretw\xC3\xB6rd", "--log", "json", "-n", "2");
    assert_ok(&r);
    assert_null(strstr(r.err, "secret"));
    assert_true(
        matches(r.err, "\"event\":\"execute_end\".*\"model_ref\":\"tiny.gguf\".*\"vram_bytes\":0,\"tokens_in\":[0-9]+.*"
                       "\"prompt_chars\":10,\"prompt_hmac\":\"[0-9a-f]{64}\"}"));
    assert_null(strstr(r.err, "sha256"));
    cli_free(&r);
    /* A key of one's own: the digest is HMAC-SHA256's, from wherever the key comes. */
    static const char expected[] =
        "\"prompt_hmac\":\"bcaa92843247bc258080d2824bddeba4afb1bd61b4688ca65f60a214e1d9759e\"";
    FILE *f = fopen("key", "wb");
    assert_non_null(f);
    assert_true(fputs("0123456789abcdef\n", f) >= 0 && fclose(f) == 0);
    for (int i = 0; i < 3; i++) {
        if (i == 2) assert_int_equal(setenv("WORKER_AUDIT_KEY", "0123456789abcdef", 1), 0);
        r = i == 2 ? CLI("run", "-m", "tiny.gguf", "-p", "abc", "--log", "json", "-n", "2", "--plain-sha256")
                   : CLI("run", "-m", "tiny.gguf", "-p", "abc", "--log", "json", "-n", "2", "--audit-key",
                         i ? "@key" : "0123456789abcdef");
        assert_ok(&r);
        assert_non_null(strstr(r.err, expected));
        assert_int_equal(strstr(r.err,
                                "\"prompt_sha256\":\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
                                "\"") != NULL,
                         i == 2);
        cli_free(&r);
    }
    assert_int_equal(unsetenv("WORKER_AUDIT_KEY"), 0);
    r = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--audit-key", "tooshortkey");
    assert_int_equal(r.status, 2);
    assert_true(matches(r.err, "--audit-key: expected a key of 16 to 4096 bytes, got 11") &&
                !strstr(r.err, "tooshort"));
    cli_free(&r);
    r = CLI("run", "-m", "tiny.gguf", "-p", "abc", "--audit-key", "@no-such");
    assert_int_equal(r.status, 2);
    cli_free(&r);
}

/* ---- tokenize, score, bench, debug --------------------------------------------------------------------- */

static void tokens_round_trip(void **state)
{
    (void)state;
    struct cli_result ids = CLI("tokenize", "-m", "vocabulary.gguf", "abc \xc3\xa9"),
                      raw = CLI("tokenize", "-m", "vocabulary.gguf", "--no-bos", "abc \xc3\xa9");
    assert_ok(&ids);
    assert_true(matches(ids.out, "^1 [0-9 ]+\n$"));
    assert_string_equal(ids.out + 2, raw.out);
    ids.out[strlen(ids.out) - 1] = '\0';
    struct cli_result text = CLI("detokenize", "-m", "vocabulary.gguf", raw.out);
    assert_ok(&text);
    assert_string_equal(text.out, "abc \xc3\xa9");
    cli_free(&ids);
    cli_free(&raw);
    cli_free(&text);
}

/* A key that nobody reads refuses the file with its name, in every command that computes, unless it is accepted. */
static void unread_keys(void **state)
{
    (void)state;
    static const char *const keys[] = { "llama.attention.layer_indices", "tokenizer.ggml.precompiled_charsmap" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        make_tiny(&(struct tiny_model){ .path = "unread.gguf", .extra_key = keys[i] });
        struct cli_result run = CLI("run", "-m", "unread.gguf", "-p", "x", "-n", "1"),
                          plan = CLI("plan", "unread.gguf"), inspect = CLI("inspect", "--json", "unread.gguf"),
                          accepted = CLI("run", "-m", "unread.gguf", "-p", "x", "-n", "1", "--accept-key", keys[i]),
                          planned = CLI("plan", "unread.gguf", "--accept-key", keys[i]),
                          other = CLI("plan", "unread.gguf", "--accept-key", "llama.other");
        assert_int_equal(run.status, 1);
        assert_non_null(strstr(run.err, keys[i]));
        assert_non_null(strstr(run.err, "--accept-key"));
        assert_int_equal(plan.status, 1);
        assert_non_null(strstr(plan.err, keys[i]));
        assert_int_equal(inspect.status, 0);
        assert_non_null(strstr(inspect.out, "--accept-key"));
        assert_int_equal(other.status, 1);
        assert_ok(&accepted);
        assert_ok(&planned);
        struct cli_result *all[] = { &run, &plan, &inspect, &accepted, &planned, &other };
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) cli_free(all[k]);
    }
    struct cli_result ids = CLI("tokenize", "-m", "unread.gguf", "x");
    assert_int_equal(ids.status, 1);
    cli_free(&ids);
    ids = CLI("tokenize", "-m", "unread.gguf", "--accept-key", keys[1], "x");
    assert_ok(&ids);
    cli_free(&ids);
}

/* --no-bos adds none; one that the text spells stays. */
static void spelt_bos_stays(void **state)
{
    (void)state;
    static const struct {
        const char *text, *first;
        bool no_bos, begins;
    } rows[] = { { "<s>x", "1 ", true, true }, { "x", "1 ", true, false }, { "<s>x", "1 1 ", false, false } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cli_result r = rows[i].no_bos ? CLI("tokenize", "-m", "tiny.gguf", "--special", "--no-bos", rows[i].text)
                                             : CLI("tokenize", "-m", "tiny.gguf", "--special", rows[i].text);
        assert_ok(&r);
        assert_int_equal(strncmp(r.out, rows[i].first, strlen(rows[i].first)) == 0, rows[i].begins);
        cli_free(&r);
    }
}

static void special_only_when_asked(void **state)
{
    (void)state;
    struct cli_result plain = CLI("tokenize", "-m", "vocabulary.gguf", "--no-bos", "</s>"),
                      special = CLI("tokenize", "-m", "vocabulary.gguf", "--no-bos", "--special", "</s>");
    assert_ok(&plain);
    assert_string_equal(special.out, "2\n");
    assert_string_not_equal(plain.out, "2\n");
    cli_free(&plain);
    cli_free(&special);
}

static double nll_of(const char *ids, const char *context, int windows, int scored)
{
    struct cli_result r = CLI("score", "-m", "tiny.gguf", "--ids", ids, "--exact", "--context", context);
    assert_ok(&r);
    json_t *score = json_loads(r.out, 0, NULL);
    const double nll = json_number_value(json_object_get(score, "nll"));
    assert_int_equal(json_integer_value(json_object_get(score, "windows")), windows);
    assert_int_equal(json_integer_value(json_object_get(score, "scored")), scored);
    json_decref(score);
    cli_free(&r);
    return nll;
}

/* A text longer than the context is its windows, each scored alone. */
static void score_in_windows(void **state)
{
    (void)state;
    const double first = nll_of("1 100 101 102", "4", 1, 3), second = nll_of("103 104", "4", 1, 1);
    assert_true(fabs(nll_of("1 100 101 102 103 104", "4", 2, 4) - (3 * first + second) / 4) < 1e-9);
}

static void score_is_sane(void **state)
{
    (void)state;
    struct stat st;
    struct cli_result r =
        CLI("score", "-m", "tiny.gguf", "--ids", "1 100 101 102 103", "--exact", "--logits", "logits.f32");
    assert_ok(&r);
    json_t *score = json_loads(r.out, 0, NULL);
    const double nll = json_number_value(json_object_get(score, "nll")),
                 perplexity = json_number_value(json_object_get(score, "perplexity"));
    assert_int_equal(json_integer_value(json_object_get(score, "tokens")), 5);
    assert_int_equal(json_integer_value(json_object_get(score, "scored")), 4);
    assert_true(fabs(exp(nll) / perplexity - 1) < 1e-9);
    assert_int_equal(stat("logits.f32", &st), 0);
    assert_int_equal(st.st_size, 5 * TINY_VOCAB * 4);
    /* The file holds what the perplexity was computed from. */
    float logits[5][TINY_VOCAB];
    double sum = 0;
    FILE *f = fopen("logits.f32", "rb");
    assert_non_null(f);
    assert_int_equal(fread(logits, sizeof logits, 1, f), 1);
    (void)fclose(f);
    for (int i = 0; i < 4; i++) {
        double total = 0;
        for (int v = 0; v < TINY_VOCAB; v++) total += exp((double)logits[i][v]);
        sum += log(total) - (double)logits[i][100 + i];
    }
    assert_true(fabs(sum / 4 - nll) < 1e-6);
    json_decref(score);
    cli_free(&r);
}

static void bench_measures(void **state)
{
    (void)state;
    struct cli_result r = CLI("bench", "-m", "tiny.gguf", "-p", "8", "-n", "4", "-r", "3", "--json");
    assert_ok(&r);
    json_t *b = json_loads(r.out, 0, NULL), *decode = json_object_get(b, "decode_tokens_per_second");
    const double least = json_number_value(json_object_get(decode, "min")),
                 median = json_number_value(json_object_get(decode, "median")),
                 most = json_number_value(json_object_get(decode, "max")),
                 bytes = json_number_value(json_object_get(b, "bytes_per_token"));
    assert_true(0 < least && least <= median && median <= most);
    /* Every weight but the embedding is read, of which one row; the cache adds less than the whole of it. */
    const double weights = 4.0 * (32 + 32 + 32 * (32 + 16 + 16 + 32) + 32 + 3 * 32 * 64 + 32 + 32 * TINY_VOCAB);
    assert_true(bytes > weights && bytes < weights + 12 * 1 * (16 + 16) * 2);
    assert_true(json_number_value(json_object_get(b, "read_bandwidth_bytes_per_second")) > 0);
    json_decref(b);
    cli_free(&r);
}

/* The CPU's launches are not timed. */
static void bench_kernels_want_a_gpu(void **state)
{
    (void)state;
    struct cli_result r = CLI("bench", "-m", "tiny.gguf", "-p", "4", "-n", "1", "-r", "1", "--kernels");
    assert_int_equal(r.status, 2);
    if (!strstr(r.err, "use --device cuda")) fail_msg("%s", r.err);
    cli_free(&r);
    r = CLI("bench", "-m", "tiny.gguf", "--kernels", "--sequences", "2");
    assert_int_equal(r.status, 2);
    if (!strstr(r.err, "--kernels: the launches of one sequence")) fail_msg("%s", r.err);
    cli_free(&r);
}

/* Three sequences read the weights once for all of them, and each its own cache of 40 positions and more. */
/* By flag and by environment: the instruction set that computes is the one that was named, and what the processor does
 * not have is refused by name. */
static void isa_is_forced(void **state)
{
    (void)state;
    static const char *const names[] = { "portable", "avx2", "avx512" };
    bool has[3] = { true, false, false };
#if defined(__x86_64__)
    __builtin_cpu_init();
    has[1] = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    has[2] = has[1] && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
#endif
    for (size_t i = 0; i < 3; i++) {
        char pattern[64];
        struct cli_result flag = CLI("run", "-p", "x", "-n", "1", "--isa", names[i]);
        assert_int_equal(setenv("WORKER_ISA", names[i], 1), 0);
        struct cli_result variable = CLI("score", "--text", "Cat or dog?");
        struct cli_result bench = CLI("bench", "-j", "-p", "4", "-n", "1", "-r", "1");
        assert_int_equal(unsetenv("WORKER_ISA"), 0);
        assert_int_equal(flag.status, has[i] ? 0 : 2);
        assert_int_equal(variable.status, flag.status);
        assert_int_equal(bench.status, flag.status);
        (void)snprintf(pattern, sizeof pattern,
                       has[i] ? "cpu \\(%s, " : "--isa: this processor has no %s; it has portable", names[i]);
        if (!matches(flag.err, pattern)) fail_msg("%s: %s", names[i], flag.err);
        (void)snprintf(pattern, sizeof pattern, "\"isa\": \"%s\"", names[i]);
        if (has[i] && !matches(bench.out, pattern)) fail_msg("%s: %s", names[i], bench.out);
        cli_free(&flag);
        cli_free(&variable);
        cli_free(&bench);
    }
}

static void bench_of_several(void **state)
{
    (void)state;
    struct cli_result r = CLI("bench", "-m", "tiny.gguf", "-p", "8", "-n", "4", "-r", "1", "--sequences", "3",
                              "--depth", "40", "--temperature", "0", "--json");
    assert_ok(&r);
    json_t *b = json_loads(r.out, 0, NULL);
    const double bytes = json_number_value(json_object_get(b, "bytes_per_token")),
                 weights = 4.0 * (32 + 32 * (32 + 16 + 16 + 32) + 32 + 3 * 32 * 64 + 32 + 32 * TINY_VOCAB);
    assert_int_equal(json_integer_value(json_object_get(b, "sequences")), 3);
    assert_int_equal(json_integer_value(json_object_get(b, "depth")), 40);
    assert_true(bytes > weights / 3 + 40 * (16 + 16) * 2 && bytes < weights / 3 + 4 * 32 + 44 * (16 + 16) * 2);
    assert_true(json_number_value(json_object_get(b, "first_token_seconds")) >=
                json_number_value(json_object_get(b, "open_seconds")));
    assert_true(json_number_value(json_object_get(json_object_get(b, "decode_tokens_per_second"), "median")) > 0);
    json_decref(b);
    cli_free(&r);
    r = CLI("bench", "-m", "tiny.gguf", "-p", "8", "-n", "4", "-r", "1", "--sequences", "3", "--constrained", "2",
            "--json");
    assert_ok(&r);
    b = json_loads(r.out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(b, "constrained")), 2);
    assert_true(json_number_value(json_object_get(json_object_get(b, "decode_tokens_per_second"), "median")) > 0);
    json_decref(b);
    cli_free(&r);
    r = CLI("bench", "-m", "tiny.gguf", "--sequences", "3", "--constrained", "4");
    assert_int_equal(r.status, 2);
    assert_non_null(strstr(r.err, "--constrained 4: expected at most --sequences, 3"));
    cli_free(&r);
    r = CLI("bench", "-m", "tiny.gguf", "-p", "8", "-n", "4", "--depth", "61", "--context", "64");
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "CONTEXT_LENGTH_EXCEEDED: 61 + 4"));
    cli_free(&r);
}

/* A model of embeddings is measured by texts, a reranker too; what is of a decode is refused. */
static void bench_of_texts(void **state)
{
    (void)state;
    char model[DATA_PATH_MAX], ranker[DATA_PATH_MAX];
    (void)golden_file(model, "bert-mean.gguf");
    (void)golden_file(ranker, "bert-score.gguf");
    struct cli_result r = CLI("bench", "-m", model, "-p", "8", "-r", "3", "--sequences", "3", "--json");
    assert_ok(&r);
    json_t *b = json_loads(r.out, 0, NULL), *texts = json_object_get(b, "texts_per_second"),
           *tokens = json_object_get(b, "embed_tokens_per_second");
    const double least = json_number_value(json_object_get(texts, "min")),
                 median = json_number_value(json_object_get(texts, "median")),
                 most = json_number_value(json_object_get(texts, "max"));
    assert_true(0 < least && least <= median && median <= most);
    assert_true(fabs(8 * median / json_number_value(json_object_get(tokens, "median")) - 1) < 1e-9);
    assert_int_equal(json_integer_value(json_object_get(b, "sequences")), 3);
    assert_int_equal(json_integer_value(json_object_get(b, "text_tokens")), 8);
    assert_true(json_number_value(json_object_get(b, "first_embedding_seconds")) >=
                json_number_value(json_object_get(b, "open_seconds")));
    json_decref(b);
    cli_free(&r);
    r = CLI("bench", "-m", ranker, "-p", "8", "-r", "1", "--sequences", "2");
    assert_ok(&r);
    if (!matches(r.out, "embed +[0-9.]+ tok/s median of 1 .*, texts of 8 tokens, 2 in a step\n")) fail_msg("%s", r.out);
    if (!matches(r.out, "texts +[0-9.]+ texts/s")) fail_msg("%s", r.out);
    cli_free(&r);
    static const char *const of_decode[][2] = { { "-n", "4" }, { "--depth", "4" }, { "--constrained", "1" } };
    for (size_t i = 0; i < sizeof of_decode / sizeof *of_decode; i++) {
        r = CLI("bench", "-m", model, "-p", "8", of_decode[i][0], of_decode[i][1]);
        assert_int_equal(r.status, 2);
        if (!matches(r.err, ": .* gives embeddings and generates nothing") || !strstr(r.err, of_decode[i][0]))
            fail_msg("%s", r.err);
        cli_free(&r);
    }
    r = CLI("bench", "-m", model, "-p", "8", "--context", "7");
    assert_int_equal(r.status, 1);
    if (!strstr(r.err, "CONTEXT_LENGTH_EXCEEDED: a text of 8 tokens")) fail_msg("%s", r.err);
    cli_free(&r);
}

static void read_values(const char *path, long skip, float *out, size_t n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 128 + skip, SEEK_SET), 0);
    assert_int_equal(fread(out, sizeof *out, n, f), n);
    (void)fclose(f);
}

/* Of three tokens: the selected logits are the last row's, bit for bit, and the probabilities their softmax. */
static void check_last_row(const json_t *index)
{
    float last[TINY_VOCAB], selected[TINY_VOCAB], probabilities[TINY_VOCAB];
    double sum = 0, all = 0;
    size_t best = 0;
    read_values("taps/logits.npy", 2 * (long)sizeof last, last, TINY_VOCAB);
    read_values("taps/selected_logits.npy", 0, selected, TINY_VOCAB);
    read_values("taps/probabilities.npy", 0, probabilities, TINY_VOCAB);
    assert_memory_equal(last, selected, sizeof last);
    for (size_t i = 0; i < TINY_VOCAB; i++) sum += exp(last[i]);
    for (size_t i = 0; i < TINY_VOCAB; i++) {
        assert_true(fabs(probabilities[i] - exp(last[i]) / sum) <= 1e-6);
        all += probabilities[i];
        if (last[i] > last[best]) best = i;
    }
    assert_true(fabs(all - 1) < 1e-5);
    assert_int_equal(json_integer_value(json_object_get(index, "argmax")), best);
}

static void tap_writes_a_folder(void **state)
{
    (void)state;
    char head[129] = "";
    struct cli_result r =
        CLI("debug", "tap", "-m", "tiny.gguf", "--ids", "1 100 101", "--tap", "all", "--out", "taps", "--exact");
    assert_ok(&r);
    json_t *index = json_load_file("taps/index.json", 0, NULL), *taps = json_object_get(index, "taps");
    assert_int_equal(json_array_size(json_object_get(index, "ids")), 3);
    bool query = false, scores = false, logits = false, selected = false, probabilities = false;
    for (size_t i = 0; i < json_array_size(taps); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(taps, i), "name"));
        query = query || strcmp(name, "blk.0.attn_q.rope") == 0;
        scores = scores || strcmp(name, "blk.0.attention.scores") == 0;
        logits = logits || strcmp(name, "logits") == 0;
        selected = selected || strcmp(name, "selected_logits") == 0;
        probabilities = probabilities || strcmp(name, "probabilities") == 0;
    }
    assert_true(query && scores && logits && selected && probabilities);
    check_last_row(index);
    FILE *f = fopen("taps/blk.0.attn_q.rope.npy", "rb");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, 128, f), 128);
    (void)fclose(f);
    assert_memory_equal(head, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 32), }",
                        69);
    assert_int_equal(head[127], '\n');
    struct stat st;
    assert_int_equal(stat("taps/blk.0.attn_q.rope.npy", &st), 0);
    assert_int_equal(st.st_size, 128 + 3 * 32 * 4);
    struct cli_result made = CLI("debug", "tap", "-m", "tiny.gguf", "--ids", "1 100 101", "--tap", "probabilities",
                                 "--tap", "selected_logits", "--out", "made", "--exact");
    assert_ok(&made);
    assert_int_equal(system("cmp -s taps/probabilities.npy made/probabilities.npy && "
                            "cmp -s taps/selected_logits.npy made/selected_logits.npy && "
                            "test \"$(ls made | wc -l)\" = 3"),
                     0);
    cli_free(&made);
    struct cli_result none =
        CLI("debug", "tap", "-m", "tiny.gguf", "--ids", "1", "--tap", "output_embedding", "--out", "none");
    assert_int_equal(none.status, 1);
    assert_true(matches(none.err, "tiny: gives no embedding, which is what output_embedding is"));
    cli_free(&none);
    struct cli_result again = CLI("debug", "tap", "-m", "tiny.gguf", "--ids", "1 100", "--tap", "all", "--out", "taps");
    assert_int_equal(again.status, 1);
    assert_true(matches(again.err, "OUTPUT_FAILED: taps: is not empty"));
    json_decref(index);
    cli_free(&r);
    cli_free(&again);
}

/* An encoder runs on ids, and on a text, which is the same; a tokenizer that is not served refuses the text. */
static void encoder_on_ids(void **state)
{
    (void)state;
    char model[DATA_PATH_MAX], command[2 * DATA_PATH_MAX];
    (void)golden_file(model, "bert-mean.gguf");
    struct cli_result r =
        CLI("debug", "tap", "-m", model, "--ids", "2 8 9 3", "--tap", "output_embedding", "--out", "row", "--exact");
    assert_ok(&r);
    float row[48];
    double square = 0;
    read_values("row/output_embedding.npy", 0, row, 48);
    for (int i = 0; i < 48; i++) square += (double)row[i] * (double)row[i];
    assert_true(fabs(square - 1) < 1e-5);
    cli_free(&r);
    r = CLI("debug", "tap", "-m", model, "--text", "word3 word4", "--tap", "output_embedding", "--out", "text",
            "--exact");
    assert_ok(&r);
    cli_free(&r);
    assert_int_equal(system("cmp -s row/output_embedding.npy text/output_embedding.npy"), 0);
    (void)snprintf(command, sizeof command,
                   "LC_ALL=C sed 's/\\(tokenizer.ggml.model............\\)bert/\\1rwkv/' '%s' >rwkv.gguf", model);
    assert_int_equal(system(command), 0);
    r = CLI("debug", "tap", "-m", "rwkv.gguf", "--text", "word3", "--tap", "output_embedding", "--out", "none");
    assert_int_equal(r.status, 1);
    assert_true(matches(r.err, "INVALID_REQUEST: .*no tokenizer of a kind that is served; give token ids with --ids"));
    cli_free(&r);
    r = CLI("debug", "tap", "-m", model, "--ids", "2 7", "--tap", "probabilities", "--out", "none");
    assert_int_equal(r.status, 1);
    assert_true(matches(r.err, "gives no logits, of which selected_logits and probabilities are made"));
    cli_free(&r);
    r = CLI("inspect", model);
    assert_ok(&r);
    assert_true(matches(r.out, "attention +mha bidirectional"));
    cli_free(&r);
    r = CLI("run", "-m", model, "--prompt", "word7");
    assert_int_equal(r.status, 1);
    assert_true(matches(r.err, "MODEL_LOAD_FAILED"));
    cli_free(&r);
}

static void digest_of_a_file(void **state)
{
    (void)state;
    char digest[65];
    struct cli_result r = CLI("verify", "-m", "tiny.gguf", "--json"), plain = CLI("verify", "-m", "tiny.gguf");
    assert_ok(&r);
    assert_ok(&plain);
    json_t *document = json_loads(r.out, 0, NULL);
    (void)snprintf(digest, sizeof digest, "%s", json_string_value(json_object_get(document, "digest")));
    assert_int_equal(strspn(digest, "0123456789abcdef"), 64);
    assert_true(json_is_null(json_object_get(document, "handle")));
    assert_non_null(strstr(plain.out, digest));
    json_decref(document);
    cli_free(&r);
    cli_free(&plain);
    r = CLI("run", "-m", "tiny.gguf", "-p", "abc", "-n", "2", "--digest", digest);
    assert_ok(&r);
    cli_free(&r);
    digest[7] = digest[7] == '0' ? '1' : '0';
    static const char *const commands[][4] = {
        { "run", "-p", "abc" }, { "score", "--text", "abc" }, { "bench", "-p", "4" }, { "verify" }
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *args[16] = { NULL };
        int n = 0;
        while (commands[i][n]) args[n] = commands[i][n], n++;
        args[n++] = "-m", args[n++] = "tiny.gguf", args[n++] = "--digest", args[n++] = digest;
        r = cli(args, NULL);
        assert_int_equal(r.status, 1);
        assert_true(
            matches(r.err, "MODEL_LOAD_FAILED.*the weights' digest is [0-9a-f]{64}, [0-9a-f]{64} was demanded"));
        cli_free(&r);
    }
}

static void tape_is_printed(void **state)
{
    (void)state;
    struct cli_result r = CLI("debug", "tape", "-m", "tiny.gguf");
    assert_ok(&r);
    assert_true(matches(r.out, "attn_q"));
    assert_true(matches(r.out, "digest [0-9a-f]{64}\n$"));
    cli_free(&r);
}

/* ---- a trained model ----------------------------------------------------------------------------------- */

static void trained(const char *name, bool exact)
{
    char model[DATA_PATH_MAX], file[DATA_PATH_MAX], relative[96];
    (void)snprintf(relative, sizeof relative, "stories260K/%s.gguf", name);
    (void)data_path(model, relative);
    (void)snprintf(relative, sizeof relative, "stories260K/golden/%s.json", name);
    (void)data_path(file, relative);
    json_t *expected = json_load_file(file, 0, NULL), *generated = json_object_get(expected, "generated");
    char ids[4096] = "", count[16];
    size_t n = json_array_size(generated), len = 0;
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(ids + len, sizeof ids - len, "%s%d", i ? " " : "",
                                (int)json_integer_value(json_array_get(generated, i)));
    (void)snprintf(ids + len, sizeof ids - len, "\n");
    (void)snprintf(count, sizeof count, "%zu", n);
    struct cli_result r = CLI("run", "-m", model, "-p", "Once upon a time", "--raw", "--temperature", "0", "--ids",
                              "-n", count, exact ? "--exact" : "--log=plain");
    assert_ok(&r);
    assert_string_equal(r.out, ids);
    json_decref(expected);
    cli_free(&r);
}

static void data_f32_exact(void **state)
{
    (void)state;
    trained("stories260K-f32", true);
}
static void data_f32_default(void **state)
{
    (void)state;
    trained("stories260K-f32", false);
}
static void data_q4_k_m_exact(void **state)
{
    (void)state;
    trained("stories260K-ffn256-Q4_K_M", true);
}
static void data_q8_0_default(void **state)
{
    (void)state;
    trained("stories260K-ffn256-Q8_0", false);
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_seed_same_ids),
                                        cmocka_unit_test(adapters_by_file_and_scale),
                                        cmocka_unit_test(printed_seed_repeats),
                                        cmocka_unit_test(environment_reaches_the_run),
                                        cmocka_unit_test(prompt_from_standard_input_and_file),
                                        cmocka_unit_test(stop_string_is_not_printed),
                                        cmocka_unit_test(output_is_valid_utf8),
                                        cmocka_unit_test(generation_ends_with_the_context),
                                        cmocka_unit_test(context_beyond_the_model_is_said),
                                        cmocka_unit_test(end_token_stops),
                                        cmocka_unit_test(terminals_obey_no_model),
                                        cmocka_unit_test(interrupt_still_reports),
                                        cmocka_unit_test(chat_is_the_models_choice),
                                        cmocka_unit_test(narration_holds_no_text),
                                        cmocka_unit_test(tokens_round_trip),
                                        cmocka_unit_test(unread_keys),
                                        cmocka_unit_test(spelt_bos_stays),
                                        cmocka_unit_test(special_only_when_asked),
                                        cmocka_unit_test(score_is_sane),
                                        cmocka_unit_test(score_in_windows),
                                        cmocka_unit_test(bench_measures),
                                        cmocka_unit_test(bench_kernels_want_a_gpu),
                                        cmocka_unit_test(bench_of_several),
                                        cmocka_unit_test(bench_of_texts),
                                        cmocka_unit_test(isa_is_forced),
                                        cmocka_unit_test(tap_writes_a_folder),
                                        cmocka_unit_test(tape_is_printed),
                                        cmocka_unit_test(encoder_on_ids),
                                        cmocka_unit_test(digest_of_a_file),
                                        cmocka_unit_test(data_f32_exact),
                                        cmocka_unit_test(data_f32_default),
                                        cmocka_unit_test(data_q4_k_m_exact),
                                        cmocka_unit_test(data_q8_0_default) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
