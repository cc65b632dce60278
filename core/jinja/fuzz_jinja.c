/* fuzz_jinja.c: libFuzzer target. A template, a NUL, a JSON text that is its context. Build with -DWORKER_FUZZ=ON and
 * clang. */
#include "jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct jinja_result *r)
{
    size_t at = 0;
    if (r->end == JINJA_DONE && (!r->text || r->text[r->n])) abort();
    if (r->end != JINJA_DONE && (r->text || r->n_runs || !r->message)) abort();
    for (size_t i = 0; i < r->n_runs; i++) {
        if (r->runs[i].begin != at || r->runs[i].end <= at) abort();
        at = r->runs[i].end;
    }
    if (r->end == JINJA_DONE && at != r->n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct jinja_options options = { 1783155903, 7200 };
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size;
    struct jinja_template *t;
    if (jinja_open(&t, (const char *)data, n, NULL) != WK_OK) return 0;
    struct jinja_values *values = jinja_values_new();
    struct jinja_value *context = NULL;
    if (end) (void)jinja_from_json(values, (const char *)end + 1, size - n - 1, "context", &context, NULL);
    for (int i = 0; i < 2; i++) { /* nothing of a render stays in the template or the values */
        struct jinja_result r;
        (void)jinja_render(t, context, &options, &r, NULL);
        check(&r);
        jinja_result_free(&r);
    }
    jinja_values_free(values);
    jinja_close(t);
    return 0;
}
