/* test_tokenizer_threads.c: many threads encode with one tokenizer at the same time (for the thread sanitizer above all). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "tokenizer/vocab_builder.h"

static struct builder builder;
static char error_text[512];
static const struct wk_err open_err = { error_text, sizeof error_text };
static const char *const pres[] = { "gpt-2", "llama-bpe", "gpt-4o", "default", "deepseek-llm", NULL /* SPM */ };

enum { THREADS = 8, ROUNDS = 100 };
struct job { const struct tokenizer *t; struct tokens expected; bool equal; };
static const char shared_text[] = "the the 123 aaaaaaa ... \xE4\xB8\xAD\xE4\xB8\xAD <x> \xFF the\n\n  in the";

static void *encode_often(void *arg)
{
    struct job *job = arg;
    job->equal = true;
    for (int i = 0; i < ROUNDS; i++) {
        struct tokens got = { 0 };
        const wk_status status = tokenizer_encode(job->t, shared_text, sizeof shared_text - 1, true, true, &got, NULL);
        job->equal = job->equal && !status && got.n == job->expected.n && !memcmp(got.ids, job->expected.ids, got.n * sizeof *got.ids);
        tokens_free(&got);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
        struct tokenizer *t = builder_open_kind(&builder, pres[p], &open_err);
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
