/* bench_grammar.c: what masks cost. bench_grammar RUNS VOCABULARY.gguf FILE.json...: each file holds a list of schemas
 * with documents, as the JSON-Schema test suite has them ({"schema", "tests": [{"data", "valid"}]}) or with texts
 * ({"schema", "valid": [text]}). Every schema that compiles is followed over its valid documents, token by token; the
 * first mask of a grammar counts for itself. All of it is done RUNS times from nothing, and of each step the shortest
 * time is taken, so that what else the machine does is left out. Prints percentiles in microseconds of this thread's
 * time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "tokenizer/tokenizer.h"

static char why[512];
static const struct wk_err err = { why, sizeof why };

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

struct times {
    double *us;
    size_t n, cap;
    size_t before; /* how many earlier runs had; 0 in the first one */
};
static struct times compiles, firsts, masks, accepts, bytes;
static uint64_t hits, misses;
static unsigned refused, documents, stopped;

static void add(struct times *t, double us)
{
    if (t->n < t->before) {
        if (t->us[t->n] > us) t->us[t->n] = us;
        t->n++;
        return;
    }
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 4096;
        double *moved = realloc(t->us, t->cap * sizeof *moved);
        if (!moved) exit(1);
        t->us = moved;
    }
    t->us[t->n++] = us;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, struct times *t)
{
    double sum = 0;
    if (!t->n) return;
    qsort(t->us, t->n, sizeof *t->us, by_size);
    for (size_t i = 0; i < t->n; i++) sum += t->us[i];
    (void)printf("%-20s %8zu  mean %9.2f  p50 %9.2f  p90 %9.2f  p99 %9.2f  max %9.2f\n", name, t->n, sum / (double)t->n,
                 t->us[t->n / 2], t->us[t->n * 9 / 10], t->us[t->n * 99 / 100], t->us[t->n - 1]);
}

/* Follows one document; false: some token of it cannot follow. */
static bool follow(struct grammar *g, const struct grammar_index *x, const struct tokenizer *t, const char *text,
                   bool first)
{
    struct grammar_match *m;
    struct tokens ids = { 0 };
    bool fits = tokenizer_encode(t, text, strlen(text), false, false, &ids, &err) == WK_OK;
    if (grammar_match_open(g, x, &m, &err)) return false;
    for (size_t i = 0; fits && i <= ids.n; i++) {
        struct grammar_mask mask;
        const double begin = now_us();
        const wk_status status = grammar_match_mask(m, &mask, &err);
        add(i || !first ? &masks : &firsts, now_us() - begin);
        if (status || i == ids.n) {
            fits = !status && grammar_match_complete(m);
            break;
        }
        const double middle = now_us();
        fits = grammar_match_accept(m, ids.ids[i], &err) == WK_OK;
        add(&accepts, now_us() - middle);
    }
    grammar_match_close(m);
    tokens_free(&ids);
    return fits;
}

static void measure_case(const json_t *entry, const struct grammar_index *x, const struct tokenizer *t)
{
    char *schema = json_dumps(json_object_get(entry, "schema"), JSON_ENCODE_ANY | JSON_COMPACT);
    const json_t *tests = json_object_get(entry, "tests"), *texts = json_object_get(entry, "valid");
    struct grammar *g;
    struct grammar_figures f;
    bool first = true;
    if (!schema) return;
    const double begin = now_us();
    const wk_status status = grammar_from_schema(schema, strlen(schema), NULL, NULL, &g, &err);
    const double compiled = now_us() - begin;
    free(schema);
    if (status) {
        refused++;
        return;
    }
    add(&compiles, compiled);
    for (size_t i = 0; i < json_array_size(tests ? tests : texts); i++) {
        const json_t *test = json_array_get(tests ? tests : texts, i);
        if (tests && !json_is_true(json_object_get(test, "valid"))) continue;
        char *text = tests ? json_dumps(json_object_get(test, "data"), JSON_ENCODE_ANY)
                           : strdup(json_string_value(test) ? json_string_value(test) : "");
        if (text) stopped += !follow(g, x, t, text, first);
        documents++;
        first = false;
        free(text);
    }
    grammar_figures(g, &f);
    add(&bytes, (double)f.bytes);
    hits += f.hits;
    misses += f.misses;
    grammar_close(g);
}

static void run(int argc, char **argv, const struct grammar_index *x, const struct tokenizer *t)
{
    struct times *all[] = { &compiles, &firsts, &masks, &accepts, &bytes };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i]->before = all[i]->n;
        all[i]->n = 0;
    }
    refused = documents = stopped = 0;
    hits = misses = 0;
    for (int i = 3; i < argc; i++) {
        json_error_t error;
        json_t *list = json_load_file(argv[i], JSON_ALLOW_NUL, &error);
        if (!list) {
            (void)fprintf(stderr, "%s: %s\n", argv[i], error.text);
            continue;
        }
        for (size_t k = 0; k < json_array_size(list); k++) measure_case(json_array_get(list, k), x, t);
        json_decref(list);
    }
}

int main(int argc, char **argv)
{
    struct gguf *file;
    struct tokenizer *t;
    struct grammar_index *x;
    if (argc < 4) {
        (void)fprintf(stderr, "usage: bench_grammar RUNS VOCABULARY.gguf FILE.json...\n");
        return 2;
    }
    const double begin = now_us();
    if (gguf_open(argv[2], &file, &err) || tokenizer_open(file, &t, &err)) {
        (void)fprintf(stderr, "%s\n", why);
        return 1;
    }
    const double opened = now_us();
    if (grammar_index_open(t, tokenizer_size(t), &x, &err)) {
        (void)fprintf(stderr, "%s\n", why);
        return 1;
    }
    (void)printf("%u tokens: tokenizer in %.0f ms, index in %.0f ms\n", tokenizer_size(t), (opened - begin) / 1e3,
                 (now_us() - opened) / 1e3);
    for (long runs = strtol(argv[1], NULL, 10); runs > 0; runs--) run(argc, argv, x, t);
    (void)printf("%u schemas refused; %u documents, %u stopped; masks: %llu found, %llu made\n", refused, documents,
                 stopped, (unsigned long long)hits, (unsigned long long)misses);
    print("compile", &compiles);
    print("first mask", &firsts);
    print("mask", &masks);
    print("accept", &accepts);
    print("bytes of a grammar", &bytes);
    grammar_index_close(x);
    tokenizer_close(t);
    gguf_close(file);
    return 0;
}
