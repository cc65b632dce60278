/* bench_template.c: how long chat templates take: opening each of the files given, and rendering 100 messages of 200
 * bytes. bench_template TEMPLATE... */
#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 100, RENDERS = 200, OPENS = 20 };

static double microseconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(JINJA_MAX_TEMPLATE + 1);
    if (!f || !text) {
        (void)fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    *n = fread(text, 1, JINJA_MAX_TEMPLATE + 1, f);
    (void)fclose(f);
    return text;
}

static struct jinja_value *conversation(struct jinja_values *a)
{
    char content[201];
    memset(content, 'x', 200);
    for (int i = 7; i < 200; i += 8) content[i] = ' ';
    struct jinja_value *messages = jinja_list(a), *context = jinja_dict(a);
    for (int i = 0; i < MESSAGES; i++) {
        const char *role = i % 2 ? "assistant" : "user";
        struct jinja_value *m = jinja_dict(a);
        (void)jinja_dict_set(a, m, "role", jinja_string(a, role, strlen(role), JINJA_INPUT));
        (void)jinja_dict_set(a, m, "content", jinja_string(a, content, 200, JINJA_INPUT));
        (void)jinja_list_add(a, messages, m);
    }
    (void)jinja_dict_set(a, context, "bos_token", jinja_string(a, "<s>", 3, JINJA_TEMPLATE));
    (void)jinja_dict_set(a, context, "eos_token", jinja_string(a, "</s>", 4, JINJA_TEMPLATE));
    (void)jinja_dict_set(a, context, "add_generation_prompt", jinja_bool(a, true));
    return jinja_dict_set(a, context, "messages", messages);
}

static void measure(const char *path, const struct jinja_value *context)
{
    char text[512];
    const struct wk_err err = { text, sizeof text };
    size_t n, bytes = 0;
    char *source = read_file(path, &n);
    double open = 1e9, render = 1e9;
    unsigned long long steps = 0;
    struct jinja_template *t = NULL;
    for (int i = 0; i < OPENS; i++) {
        const double begin = microseconds();
        jinja_close(t);
        if (jinja_open(&t, source, n, &err) != WK_OK) break;
        const double took = microseconds() - begin;
        if (took < open) open = took;
    }
    bool good = t != NULL;
    for (int i = 0; good && i < RENDERS; i++) {
        struct jinja_result r;
        const double begin = microseconds();
        good = jinja_render(t, context, NULL, &r, &err) == WK_OK;
        const double took = microseconds() - begin;
        if (took < render) render = took;
        bytes = r.n;
        steps = r.steps;
        jinja_result_free(&r);
    }
    if (good)
        (void)printf("%8.1f us to open, %8.1f us to render %zu bytes in %llu steps: %s\n", open, render, bytes, steps,
                     path);
    else
        (void)printf("%s: %s\n", path, text);
    jinja_close(t);
    free(source);
}

int main(int argc, char **argv)
{
    struct jinja_values *a = jinja_values_new();
    const struct jinja_value *context = conversation(a);
    if (!context) return 1;
    for (int i = 1; i < argc; i++) measure(argv[i], context);
    jinja_values_free(a);
    return 0;
}
