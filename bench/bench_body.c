/* bench_body.c: how long it takes to read a request's JSON: prompts of 32,768 characters, unescaped, of three bytes
 * each, and fully escaped. Prints the best and the median of many rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/body.h"

enum { CHARACTERS = 32768, ROUNDS = 300 };

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(const char *name, const char *unit)
{
    static const char before[] = "{\"job_id\":\"j\",\"max_tokens\":16,\"temperature\":0.7,\"prompt\":\"",
                      behind[] = "\"}";
    const size_t width = strlen(unit), n = sizeof before - 1 + width * CHARACTERS + sizeof behind - 1;
    char *text = malloc(n + 1), *at = text;
    double ms[ROUNDS];
    if (!text) return 1;
    at = (char *)memcpy(at, before, sizeof before - 1) + (sizeof before - 1);
    for (int i = 0; i < CHARACTERS; i++) at = (char *)memcpy(at, unit, width) + width;
    memcpy(at, behind, sizeof behind);
    for (int round = 0; round < ROUNDS; round++) {
        struct refusal why = { 0 };
        json_t *body;
        const double from = now_ms();
        volatile size_t memory = body_memory(text, n);
        (void)memory;
        if (!body_parse(text, n, &body, &why)) {
            (void)fprintf(stderr, "%s: %s\n", name, why.text);
            return 1;
        }
        ms[round] = now_ms() - from;
        json_decref(body);
    }
    qsort(ms, ROUNDS, sizeof *ms, by_size);
    (void)printf("%-22s %7zu bytes  best %.3f ms  median %.3f ms\n", name, n, ms[0], ms[ROUNDS / 2]);
    free(text);
    return 0;
}

int main(void)
{
    return measure("unescaped", "a") | measure("unescaped, 3 bytes", "\xe4\xb8\xad") | measure("escaped", "\\u0061") |
           measure("escaped, 3 bytes", "\\u4e2d");
}
