/* golden.c: golden files (JSON with token ids and the logits of every position) and distances from them. */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void golden_path(char *out, size_t cap, const char *name)
{
    const char *data = getenv("WORKER_TEST_DATA");
    (void)snprintf(out, cap, "%s/%s", data ? data : "../shared/data", name);
}

static bool read_flags(const char *text, struct golden_case *c)
{
    char word[128];
    for (int n; sscanf(text, "%127s%n", word, &n) == 1; text += n) {
        struct golden_adapter *a = &c->adapters[c->n_adapters % GOLDEN_ADAPTERS];
        char file[96];
        if (strcmp(word, "truncate") == 0) {
            c->truncate = true;
            continue;
        }
        if (sscanf(word, "lora=%95[^:]:%lf", file, &a->scale) != 2 || c->n_adapters++ == GOLDEN_ADAPTERS) return false;
        golden_path(a->path, sizeof a->path, file);
    }
    return true;
}

void golden_sources(const struct golden_case *c, struct adapter_source out[GOLDEN_ADAPTERS])
{
    for (uint32_t i = 0; i < c->n_adapters; i++)
        out[i] = (struct adapter_source){ c->adapters[i].path, c->adapters[i].scale };
}

struct golden_case *golden_cases(const char *list, uint32_t *n)
{
    enum { MOST = 256 };
    FILE *f = fopen(list, "rb");
    struct golden_case *cases = calloc(MOST, sizeof *cases);
    char line[512];
    *n = 0;
    while (f && cases && *n < MOST && fgets(line, sizeof line, f)) {
        struct golden_case *c = &cases[*n];
        line[strcspn(line, "#\n")] = '\0';
        int at = 0;
        const int got = sscanf(line, "%95s %95s %u %lf%n", c->model, c->golden, &c->context, &c->loose, &at);
        if (got < 1) continue;
        *n += 1;
        if (got == 4 && read_flags(line + at, c)) continue;
        (void)fprintf(stderr, "%s: %s: expected MODEL GOLDEN CONTEXT LOOSE [truncate] [lora=FILE:SCALE ...]\n", list,
                      line);
        *n = 0;
        break;
    }
    if (f) (void)fclose(f);
    if (*n) return cases;
    (void)fprintf(stderr, "%s: no cases\n", list);
    free(cases);
    return NULL;
}

void golden_read(const char *name, struct golden *g)
{
    char path[1024];
    json_error_t e;
    golden_path(path, sizeof path, name);
    json_t *j = json_load_file(path, 0, &e), *prompt, *generated, *steps;
    if (!j) fail_msg("%s: %s", path, e.text);
    prompt = json_object_get(j, "prompt_tokens");
    generated = json_object_get(j, "generated");
    steps = json_object_get(j, "steps");
    json_t *embedding = json_object_get(j, "embedding");
    *g = (struct golden){ .n_vocab = (uint32_t)json_integer_value(json_object_get(j, "n_vocab")),
                          .n_prompt = (uint32_t)json_array_size(prompt),
                          .n_generated = (uint32_t)json_array_size(generated),
                          .n_steps = embedding ? 1 : (uint32_t)json_array_size(steps),
                          .embedding = embedding != NULL,
                          .second = (uint32_t)json_integer_value(json_object_get(j, "second")) };
    g->tokens = calloc((size_t)g->n_prompt + g->n_generated, sizeof *g->tokens);
    g->logits = calloc((size_t)g->n_steps * g->n_vocab, sizeof *g->logits);
    assert_non_null(g->tokens);
    assert_non_null(g->logits);
    for (uint32_t i = 0; i < g->n_prompt; i++) g->tokens[i] = (uint32_t)json_integer_value(json_array_get(prompt, i));
    for (uint32_t i = 0; i < g->n_generated; i++)
        g->tokens[g->n_prompt + i] = (uint32_t)json_integer_value(json_array_get(generated, i));
    for (uint32_t i = 0; i < g->n_steps; i++) {
        json_t *l = embedding ? embedding : json_object_get(json_array_get(steps, i), "logits");
        assert_int_equal(json_array_size(l), g->n_vocab);
        for (uint32_t v = 0; v < g->n_vocab; v++)
            g->logits[(size_t)i * g->n_vocab + v] = (float)json_number_value(json_array_get(l, v));
    }
    json_decref(j);
}

void golden_free(struct golden *g)
{
    free(g->tokens);
    free(g->logits);
}

uint32_t golden_argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void copy_tensors(struct gguf_build *g, const struct gguf *from)
{
    for (uint64_t i = 0; i < gguf_tensor_count(from); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(from, i);
        char name[128];
        (void)snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        gguf_build_tensor(g, name, t->ggml_type, (uint32_t)t->ne[1], (uint32_t)t->ne[0], (uint32_t)t->ne[2],
                          gguf_tensor_data(from, t), (size_t)t->room);
    }
}

struct gguf *golden_open(const char *model, bool truncate, struct gguf_build **built)
{
    char path[1024], text[1024], architecture[64], key[128];
    const struct wk_err err = { text, sizeof text };
    struct gguf *file;
    struct gguf_str s;
    *built = NULL;
    golden_path(path, sizeof path, model);
    if (gguf_open(path, &file, &err) != WK_OK) fail_msg("%s", text);
    if (!truncate) return file;
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    if (!kv || gguf_str(file, kv, &s, &err) != WK_OK) fail_msg("%s: no architecture", path);
    (void)snprintf(architecture, sizeof architecture, "%.*s", (int)s.len, s.data);
    (void)snprintf(key, sizeof key, "%s.rope.scaling.yarn_truncate", architecture);
    *built = gguf_build_new(architecture);
    gguf_build_copy_keys(*built, file);
    copy_tensors(*built, file);
    gguf_build_bool(*built, key, 1);
    gguf_close(file);
    return gguf_build_open(*built);
}

static float top_gap(const float *x, uint32_t n)
{
    const uint32_t best = golden_argmax(x, n);
    float second = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return x[best] - second;
}

static double error_of(const struct golden *g, const float *y, uint32_t row) /* sum of squares */
{
    double sum = 0;
    for (size_t i = (size_t)row * g->n_vocab; i < (size_t)(row + 1) * g->n_vocab; i++)
        sum += ((double)y[i] - g->logits[i]) * ((double)y[i] - g->logits[i]);
    return sum;
}

/* The rows to count: all but the `left_out` worst, of equal ones the first; a NaN is worse than any number. */
static void choose_rows(const struct golden *g, const float *y, uint32_t left_out, bool *counts)
{
    for (uint32_t i = 0; i < g->n_steps; i++) counts[i] = true;
    for (uint32_t n = 0; n < left_out; n++) {
        uint32_t worst = 0;
        double most = -1;
        for (uint32_t i = 0; i < g->n_steps; i++) {
            const double e = counts[i] ? error_of(g, y, i) : -1;
            if (counts[i] && !(e <= most)) worst = i, most = e;
        }
        counts[worst] = false;
    }
}

struct golden_distance golden_compare_but(const struct golden *g, const float *y, uint32_t left_out)
{
    double sum = 0, square = 0, difference = 0, n = 0;
    struct golden_distance d = { 0 };
    bool *counts = calloc(g->n_steps, sizeof *counts);
    assert_non_null(counts);
    assert_true(left_out < g->n_steps);
    choose_rows(g, y, left_out, counts);
    for (size_t i = 0; i < (size_t)g->n_steps * g->n_vocab; i++) {
        const double e = (double)y[i] - g->logits[i];
        if (!counts[i / g->n_vocab]) continue;
        n++;
        sum += g->logits[i];
        square += (double)g->logits[i] * g->logits[i];
        difference += e * e;
        if (!(fabs(e) <= d.most)) d.most = fabs(e);
    }
    const double deviation = sqrt(square / n - sum / n * (sum / n));
    for (uint32_t i = 0; i < g->n_steps; i++) {
        const float *a = g->logits + (size_t)i * g->n_vocab, *b = y + (size_t)i * g->n_vocab;
        if (counts[i] && top_gap(a, g->n_vocab) > 2 * d.most &&
            golden_argmax(a, g->n_vocab) != golden_argmax(b, g->n_vocab))
            d.wrong++;
    }
    d.rms = sqrt(difference / n) / deviation;
    d.element = d.most / deviation;
    free(counts);
    return d;
}

struct golden_distance golden_compare(const struct golden *g, const float *y) { return golden_compare_but(g, y, 0); }
