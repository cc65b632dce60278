/* test_tokenizer_threads.c: many threads encode with one tokenizer at the same time (for the thread sanitizer above
 * all). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "hf_builder.h"

static struct builder builder;
static char error_text[512];
static const struct wk_err open_err = { error_text, sizeof error_text };
static const char *const pres[] = { "gpt-2", "llama-bpe", "gpt-4o", "default", "deepseek-llm", NULL /* SPM */ };

enum { THREADS = 8, ROUNDS = 100 };
struct job {
    const struct tokenizer *t;
    struct tokens expected;
    bool equal;
};
static const char shared_text[] = "the the 123 qq aaaaaaa ... \xE4\xB8\xAD\xE4\xB8\xAD <x> \xFF the\n\n  in the";

static void *encode_often(void *arg)
{
    struct job *job = arg;
    job->equal = true;
    for (int i = 0; i < ROUNDS; i++) {
        struct tokens got = { 0 };
        const wk_status status = tokenizer_encode(job->t, shared_text, sizeof shared_text - 1, true, true, &got, NULL);
        job->equal = job->equal && !status && got.n == job->expected.n &&
                     !memcmp(got.ids, job->expected.ids, got.n * sizeof *got.ids);
        tokens_free(&got);
    }
    return NULL;
}

/* The two kinds of tokenizer.json, with a normalizer and added tokens. */
static struct tokenizer *open_json(bool byte_level)
{
    const struct hf_parts parts = { .added = "[{\"id\":400,\"content\":\"<x>\",\"special\":true,\"lstrip\":true},{"
                                             "\"id\":401,\"content\":\"qq\",\"single_word\":true,\"special\":false}]",
                                    .normalizer = byte_level ? "{\"type\":\"NFC\"}" : NULL,
                                    .post_processor = "null" };
    struct hf_text text =
        byte_level ? hf_byte_level(&builder, &parts, false) : hf_byte_fallback(&builder, &parts, false);
    struct tokenizer *t;
    (void)tokenizer_open_json_text(text.data, text.n, "made", NULL, 0, &t, &open_err);
    free(text.data);
    return t;
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof pres / sizeof *pres + 2; p++) {
        struct tokenizer *t =
            p < sizeof pres / sizeof *pres ? builder_open_kind(&builder, pres[p], &open_err) : open_json(p % 2);
        if (!t) fail_msg("%s", error_text);
        struct tokens expected = { 0 };
        struct job jobs[THREADS];
        pthread_t threads[THREADS];
        assert_int_equal(tokenizer_encode(t, shared_text, sizeof shared_text - 1, true, true, &expected, NULL), WK_OK);
        for (int i = 0; i < THREADS; i++) {
            jobs[i] = (struct job){ t, expected, false };
            assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(jobs[i].equal);
        }
        tokens_free(&expected);
        tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
