/* test_grammars.c: compiled grammars are kept by their text, within bounds, and followed by one thread while others ask
 * for them. */
#include "grammars.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/constraint.h"
#include "vocab_builder.h"

static struct builder builder;
static struct tokenizer *tokenizer;
static char text[256];
static const struct wk_err err = { text, sizeof text };

static struct grammar_source source(enum grammar_kind kind, const char *of)
{
    return (struct grammar_source){ .kind = kind, .text = { of, strlen(of) } };
}

static struct grammar *get(struct grammars *x, struct grammar_source from)
{
    struct grammar *g;
    if (grammars_get(x, &from, NULL, &g, &err)) fail_msg("%s", text);
    return g;
}

static int open_tokenizer(void **state)
{
    (void)state;
    builder_bpe(&builder, "gpt-2");
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|end of text|>", TOKEN_CONTROL, 0));
    return builder_open(&builder, &tokenizer, NULL);
}
static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

static struct grammars *open_grammars(void)
{
    struct grammars *x;
    assert_int_equal(grammars_open(tokenizer, tokenizer_size(tokenizer), &x, &err), WK_OK);
    return x;
}

static bool stop_at_once(void *user)
{
    ++*(unsigned *)user;
    return true;
}

/* A compile that is ended is told as such, and nothing of it is kept. */
static void test_ended(void **state)
{
    (void)state;
    struct grammars *x = open_grammars();
    struct grammar *g;
    unsigned asked = 0;
    const struct lang_watch watch = { stop_at_once, &asked };
    char *schema = malloc(4000), *p = schema;
    assert_non_null(schema);
    p += sprintf(p, "{\"oneOf\":[");
    for (int i = 0; i < 30; i++) p += sprintf(p, "%s{\"type\":\"string\",\"pattern\":\"x%d\"}", i ? "," : "", i);
    (void)sprintf(p, "]}");
    const struct grammar_source from = source(GRAMMAR_SCHEMA, schema);
    assert_int_equal(grammars_get(x, &from, &watch, &g, &err), WK_CANCELLED);
    assert_null(g);
    assert_int_equal(asked, 1);
    grammar_close(get(x, from));
    grammars_close(x);
    free(schema);
}

static void test_same_text(void **state)
{
    (void)state;
    static const struct lang_word words[] = { { "a", 1 }, { "b", 1 } }, other[] = { { "a", 1 }, { "c", 1 } };
    const struct grammar_source one = { .kind = GRAMMAR_CHOICE, .choices = words, .n_choices = 2 },
                                two = { .kind = GRAMMAR_CHOICE, .choices = other, .n_choices = 2 };
    struct grammar_source strict = source(GRAMMAR_SCHEMA, "{}");
    strict.strict = true;
    const struct grammar_source all[] = {
        source(GRAMMAR_REGEX, "("), source(GRAMMAR_SCHEMA, "{}"), strict, source(GRAMMAR_OBJECT, ""), one, two
    };
    enum { N = sizeof all / sizeof *all };
    struct grammars *x = open_grammars();
    struct grammar *g[N];
    for (size_t i = 1; i < N; i++) {
        assert_null(grammars_kept(x, &all[i]));
        g[i] = get(x, all[i]);
    }
    for (size_t i = 1; i < N; i++) {
        struct grammar *again = get(x, all[i]);
        assert_ptr_equal(again, g[i]);
        grammar_close(again);
        again = grammars_kept(x, &all[i]);
        assert_ptr_equal(again, g[i]);
        for (size_t k = 1; k < i; k++) assert_ptr_not_equal(g[i], g[k]);
        grammar_close(again);
    }
    assert_int_equal(grammars_get(x, &all[0], NULL, &g[0], &err), WK_INVALID); /* a refusal is told each time */
    assert_int_equal(grammars_get(x, &all[0], NULL, &g[0], &err), WK_INVALID);
    for (size_t i = 1; i < N; i++) grammar_close(g[i]);
    grammars_close(x);
}

/* More than are kept: the least recently used go, and what somebody holds stays whole. */
static void test_bounds(void **state)
{
    (void)state;
    struct grammars *x = open_grammars();
    struct grammar *often = get(x, source(GRAMMAR_REGEX, "often")), *once = get(x, source(GRAMMAR_REGEX, "once"));
    for (int i = 0; i < GRAMMARS_MOST + 8; i++) {
        char word[16];
        (void)snprintf(word, sizeof word, "w%d", i);
        grammar_close(get(x, source(GRAMMAR_REGEX, word)));
        struct grammar *again = get(x, source(GRAMMAR_REGEX, "often"));
        assert_ptr_equal(again, often);
        grammar_close(again);
    }
    struct grammar *again = get(x, source(GRAMMAR_REGEX, "once"));
    assert_ptr_not_equal(again, once);
    grammar_close(again);
    grammars_close(x);
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(once, NULL, &m, &err), WK_OK);
    assert_int_equal(grammar_match_push(m, "once", 4, NULL, &err), WK_OK);
    grammar_match_close(m);
    grammar_close(often);
    grammar_close(once);
}

/* Large ones: so many go that the rest is within the bound, the latest stay. */
static void test_bytes(void **state)
{
    (void)state;
    enum { LARGE = 90, BYTES = 800 << 10 };
    static char body[BYTES + 64];
    struct grammars *x = open_grammars();
    struct grammar *g[LARGE];
    uint64_t all = 0;
    for (int pass = 0; pass < 2; pass++) /* the second one from the latest on, which are found */
        for (int k = 0; k < LARGE; k++) {
            const int i = pass ? LARGE - 1 - k : k;
            const size_t n = (size_t)snprintf(body, sizeof body, "root ::= \"%d ", i);
            memset(body + n, 'a', BYTES);
            memcpy(body + n + BYTES, "\"", 2);
            struct grammar *got = get(x, source(GRAMMAR_GBNF, body));
            if (!pass) {
                g[i] = got;
                all += grammar_held(got);
                continue;
            }
            const uint64_t each = all / LARGE;
            if ((uint64_t)(k + 1) * each <= GRAMMARS_BYTES) assert_ptr_equal(got, g[i]);
            if (k == LARGE - 1) assert_ptr_not_equal(got, g[i]);
            grammar_close(got);
        }
    assert_true(all > GRAMMARS_BYTES); /* otherwise this has shown nothing */
    for (int i = 0; i < LARGE; i++) grammar_close(g[i]);
    grammars_close(x);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

enum { ASKERS = 3, ROUNDS = 40, QUEUE = ASKERS * ROUNDS };

/* As between handlers and the engine: what is queued under a lock is followed by one thread. */
static struct {
    struct grammars *x;
    pthread_mutex_t lock;
    struct sampler_constraint queue[QUEUE];
    int n;
    atomic_int failures;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *ask(void *user)
{
    static const char *const schemas[] = { "{\"type\":\"integer\"}", "{\"enum\":[1,2]}", "{\"type\":\"object\"}" };
    (void)user;
    for (int i = 0; i < ROUNDS; i++) {
        const struct grammar_source from = source(GRAMMAR_SCHEMA, schemas[i % 3]);
        const struct grammar_index *index;
        struct sampler_constraint c;
        struct grammar *g = NULL;
        if (grammars_index(shared.x, &index, NULL) || grammars_get(shared.x, &from, NULL, &g, NULL) ||
            constraint_open(g, index, tokenizer, tokenizer_size(tokenizer), NULL, &c, NULL)) {
            shared.failures++;
            continue;
        }
        (void)pthread_mutex_lock(&shared.lock);
        shared.queue[shared.n++] = c;
        (void)pthread_mutex_unlock(&shared.lock);
        grammar_close(g);
    }
    return NULL;
}

static void *follow(void *user)
{
    uint64_t bits[(BUILDER_TOKENS + 63) / 64];
    (void)user;
    for (int done = 0; done < QUEUE - shared.failures;) {
        struct sampler_constraint c = { 0 };
        (void)pthread_mutex_lock(&shared.lock);
        if (done < shared.n) c = shared.queue[done++];
        (void)pthread_mutex_unlock(&shared.lock);
        if (c.user && c.mask(c.user, bits, NULL)) shared.failures++;
        constraint_close(&c);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t follower, askers[ASKERS];
    shared.x = open_grammars();
    assert_int_equal(pthread_create(&follower, NULL, follow, NULL), 0);
    for (int i = 0; i < ASKERS; i++) assert_int_equal(pthread_create(&askers[i], NULL, ask, NULL), 0);
    for (int i = 0; i < ASKERS; i++) (void)pthread_join(askers[i], NULL);
    (void)pthread_join(follower, NULL);
    assert_int_equal(shared.failures, 0);
    grammars_close(shared.x);
}

static void test_no_index(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct grammars *x;
    const struct grammar_index *index;
    builder_bpe(&builder, "gpt-2"); /* without a token that ends generation */
    assert_int_equal(builder_open(&builder, &t, &err), WK_OK);
    assert_int_equal(grammars_open(t, tokenizer_size(t), &x, &err), WK_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(grammars_index(x, &index, &err), WK_UNSUPPORTED);
        assert_non_null(strstr(text, "cannot be constrained"));
    }
    grammars_close(x);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ended),   cmocka_unit_test(test_same_text),
                                        cmocka_unit_test(test_bounds),  cmocka_unit_test(test_bytes),
                                        cmocka_unit_test(test_threads), cmocka_unit_test(test_no_index) };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
