/* test_tokenizer_load.c: long hostile texts for every pre-tokenizer and SPM must end, and give the text back. Times
 * are printed, not judged: the test's TIMEOUT is the judge of what is not linear. usage: test_tokenizer_load KIB, the
 * length of the texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "hf_builder.h"

static size_t text_bytes;
static struct builder builder;
static char error_text[512];
static const struct wk_err open_err = { error_text, sizeof error_text };
static const char *const pres[] = { "gpt-2",       "llama-bpe",  "qwen2",      "qwen35",       "gpt-4o",
                                    "tekken",      "default",    "starcoder",  "falcon",       "bloom",
                                    "viking",      "seed-coder", "bailingmoe", "deepseek-llm", "deepseek-coder",
                                    "deepseek-v3", "superbpe",   "kimi-k2",    "tiny_aya",     "youtu",
                                    NULL /* SPM */ };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void expect_text_back(const struct tokenizer *t, const char *text, size_t n)
{
    char message[512], *back;
    struct wk_err err = { message, sizeof message };
    struct tokens ids = { 0 };
    size_t len;
    if (tokenizer_encode(t, text, n, false, false, &ids, &err)) fail_msg("%s", message);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, true, &back, &len, NULL), WK_OK);
    assert_int_equal(len, n);
    assert_memory_equal(back, text, n);
    free(back);
    tokens_free(&ids);
}

/* So much of each unit, whole and with a last character of another class, which is where backtracking begins. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = { "a",        "A",   " ",         "\n",   ".",  "7", "\xE4\xB8\xAD",
                                         "\xCC\x81", " \n", "A\xCC\x81", "\xFF", "'s", "<x" };
    char *text = malloc(text_bytes);
    assert_non_null(text);
    for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
        struct tokenizer *t = builder_open_kind(&builder, pres[p], &open_err);
        if (!t) fail_msg("%s", error_text);
        const char *slowest = "";
        double worst = 0;
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            const size_t len = strlen(units[u]), n = text_bytes / len * len;
            for (size_t i = 0; i < n; i++) text[i] = units[u][i % len];
            text[n - 1] = u % 2 ? text[n - 1] : len == 1 ? '1' : text[n - 1];
            const double begin = seconds();
            expect_text_back(t, text, n);
            if (seconds() - begin > worst) {
                worst = seconds() - begin;
                slowest = units[u];
            }
        }
        print_message("%-16s slowest unit '%s': %.3f s\n", pres[p] ? pres[p] : "(spm)", slowest, worst);
        tokenizer_close(t);
    }
    free(text);
}

static void test_too_long(void **state)
{
    (void)state;
    struct tokenizer *t = builder_open_kind(&builder, "gpt-2", &open_err);
    if (!t) fail_msg("%s", error_text);
    struct tokens ids = { 0 };
    char message[256];
    struct wk_err err = { message, sizeof message };
    const struct tokenizer_part parts[] = { { "a", 1, true },
                                            { "", (size_t)TOKENIZER_MAX_TEXT, true } }; /* refused before it is read */
    assert_int_equal(tokenizer_encode_parts(t, parts, 2, false, &ids, &err), WK_INVALID);
    assert_int_equal(ids.n, 0);
    tokenizer_close(t);
}

/* Long texts of one kind, for a vocabulary made to be slow: the test's TIMEOUT is the judge. */
static void test_json_made_to_be_slow(void **state)
{
    (void)state;
    static const char *const units[] = { "a", " ", ".", "\u2581", "\u0301", "e\u0301", "<", "\xFF", "aaaaaaaaab" };
    struct hf_text added = { 0 };
    char one[700];
    hf_say(&added, "[");
    for (int i = 0; i < 400; i++) { /* a, aa, aaa ... and one that never ends */
        memset(one, 'a', (size_t)(40 + i));
        one[40 + i] = '\0';
        char entry[900];
        (void)snprintf(
            entry, sizeof entry, "%s{\"id\":%d,\"content\":\"%s%s\",\"special\":%s,\"lstrip\":true,\"normalized\":%s}",
            i ? "," : "", 400 + i, one, i % 3 ? "" : "!", i % 2 ? "true" : "false", i % 5 ? "false" : "true");
        hf_say(&added, entry);
    }
    hf_say(&added, "]");
    char *text = malloc(text_bytes);
    assert_non_null(text);
    for (int kind = 0; kind < 2; kind++) {
        const struct hf_parts bytes = { .added = added.data, .normalizer = "{\"type\":\"NFC\"}" }, characters = {
            .added = added.data,
            .post_processor = "null",
            .normalizer = "null",
            .pre_tokenizer =
                "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\",\"split\":true}"
        };
        struct hf_text json =
            kind ? hf_byte_level(&builder, &bytes, false) : hf_byte_fallback(&builder, &characters, false);
        struct tokenizer *t;
        if (tokenizer_open_json_text(json.data, json.n, "made", NULL, 0, &t, &open_err)) fail_msg("%s", error_text);
        free(json.data);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++)
            for (int special = 0; special < 2; special++) {
                struct tokens got = { 0 };
                const size_t len = strlen(units[u]), n = text_bytes / len * len;
                for (size_t i = 0; i < n; i++) text[i] = units[u][i % len];
                assert_int_equal(tokenizer_encode(t, text, n, special, false, &got, NULL), WK_OK);
                assert_true(got.n > 0);
                tokens_free(&got);
            }
        tokenizer_close(t);
    }
    free(text);
    free(added.data);
}

int main(int argc, char **argv)
{
    text_bytes = argc == 2 ? strtoul(argv[1], NULL, 10) << 10 : 0;
    if (!text_bytes) return EXIT_FAILURE;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_too_long), cmocka_unit_test(test_long_runs),
                                        cmocka_unit_test(test_json_made_to_be_slow) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
