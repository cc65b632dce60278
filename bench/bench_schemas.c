/* bench_schemas.c: how many of a folder's JSON Schemas become grammars, whether these accept the right documents, and
 * how long compiling takes.
 *
 *     build-release/bin/bench_schemas FOLDER [--refused]
 *
 * FOLDER holds files of the form {"schema": ..., "tests": [{"valid": true, "data": ...}, ...]}, as MaskBench's do
 * (guidance-ai/jsonschemabench, maskbench/data). A schema passes if it compiles and all its documents are judged as the
 * file says, in whatever order their keys stand. --refused: a line for each schema that does not compile. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/schema_internal.h"
#include "schema_document.h"

enum { MAX_FILES = 100000 };

static struct {
    uint32_t n, compiled, passed, accepted, rejected, unread;
    double us[MAX_FILES];
} tally;

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static char *read_file(const char *path, size_t *n)
{
    char *bytes = NULL;
    FILE *in = fopen(path, "rb"), *out = in ? open_memstream(&bytes, n) : NULL;
    for (int c; out && (c = fgetc(in)) != EOF;) (void)fputc(c, out);
    if (out) (void)fclose(out);
    if (in) (void)fclose(in);
    return bytes;
}

static bool judge(struct grammar *g, struct json_text data, bool valid, const char *name)
{
    struct schema_ctx c = { .arena = arena_new() };
    if (!c.arena) exit(1);
    if (!js_read(&c, data.data, data.len)) {
        tally.unread++;
        arena_free(c.arena);
        return true;
    }
    const bool accepted = document_accepted(g, c.root);
    arena_free(c.arena);
    if (accepted == valid) return true;
    tally.accepted += accepted;
    tally.rejected += !accepted;
    printf("%s: a%s document is %s\n", name, valid ? " valid" : "n invalid", accepted ? "accepted" : "rejected");
    return false;
}

static bool judge_all(struct grammar *g, struct json_reader *r, const char *name)
{
    bool right = true;
    if (!jr_array(r)) return false;
    while (jr_element(r)) {
        struct json_text key, data = { 0 };
        bool valid = false;
        if (!jr_object(r)) return false;
        while (jr_member(r, &key)) {
            if (jr_is(key, "valid") ? !jr_bool(r, &valid) : jr_is(key, "data") ? !jr_raw(r, &data) : !jr_skip(r))
                return false;
        }
        if (data.data && !judge(g, data, valid, name)) right = false;
    }
    return right;
}

static void one_file(const char *folder, const char *name, bool refused)
{
    char path[4096], text[512];
    const struct wk_err err = { text, sizeof text };
    struct json_reader r;
    struct json_text key, schema = { 0 }, tests = { "[]", 2 };
    size_t n = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    char *bytes = read_file(path, &n);
    if (!bytes) return;
    jr_open(&r, bytes, n, name, "", &err);
    if (jr_object(&r))
        while (jr_member(&r, &key))
            if (jr_is(key, "schema") ? !jr_raw(&r, &schema) : jr_is(key, "tests") ? !jr_raw(&r, &tests) : !jr_skip(&r))
                break;
    jr_close(&r);
    if (schema.data && tally.n < MAX_FILES) {
        struct grammar *g = NULL;
        const double begin = now_us();
        const wk_status status = grammar_from_schema(schema.data, schema.len, NULL, NULL, &g, &err);
        tally.us[tally.n++] = now_us() - begin;
        tally.compiled += g != NULL;
        if (status && refused) printf("%s: %s\n", name, text);
        jr_open(&r, tests.data, tests.len, name, "", &err);
        if (g && judge_all(g, &r, name)) tally.passed++;
        jr_close(&r);
        grammar_close(g);
    }
    free(bytes);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const bool refused = argc == 3 && strcmp(argv[2], "--refused") == 0;
    DIR *d = argc == 2 || refused ? opendir(argv[1]) : NULL;
    if (!d) {
        (void)fprintf(stderr, "usage: bench_schemas FOLDER [--refused]\n");
        return 2;
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".json")) one_file(argv[1], e->d_name, refused);
    (void)closedir(d);
    if (!tally.n) return 1;
    qsort(tally.us, tally.n, sizeof *tally.us, by_value);
    printf("%u schemas, %u compile (%.2f %%), %u pass (%.2f %%)\n", tally.n, tally.compiled,
           100.0 * tally.compiled / tally.n, tally.passed, 100.0 * tally.passed / tally.n);
    printf("documents wrongly accepted %u, wrongly rejected %u, beyond the reader's limits %u\n", tally.accepted,
           tally.rejected, tally.unread);
    printf("compiling: p50 %.0f us, p90 %.0f us, p99 %.0f us, most %.0f us\n", tally.us[tally.n / 2],
           tally.us[tally.n * 9 / 10], tally.us[(size_t)tally.n * 99 / 100], tally.us[tally.n - 1]);
    return 0;
}
