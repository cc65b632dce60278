/* test_jinja_memory.c: while a template is opened, a context is made and a text is rendered the n-th allocation fails,
 * for each n: the caller hears of it, and nothing is lost or touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "failing_memory.h"
#include "jinja.h"

/* "raise: " and the words of an exception, or what was printed. The caller's to free. NULL: no memory. */
static char *run(const char *source, const char *json)
{
    static const struct jinja_options options = { 0, 0 };
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    struct jinja_template *t = NULL;
    struct jinja_value *context = NULL;
    struct jinja_result r = { 0 };
    char *out = NULL;
    struct jinja_values *a = jinja_values_new();
    wk_status status = a ? jinja_open(&t, source, strlen(source), &err) : WK_NO_MEMORY;
    if (a && status) assert_true(!t && text[0]);
    if (!status) status = jinja_from_json(a, json, strlen(json), "context", &context, &err);
    if (!status) {
        struct jinja_value *more = jinja_list_add(a, jinja_list(a), jinja_string(a, "<s>", 3, JINJA_TEMPLATE));
        if (!jinja_dict_set(a, context, "more", more)) status = WK_NO_MEMORY;
    }
    if (!status) {
        status = jinja_render(t, context, &options, &r, &err);
        if (r.end == JINJA_DONE || r.end == JINJA_RAISED) {
            status = WK_OK;
            out = r.text ? r.text : r.message;
            *(r.text ? &r.text : &r.message) = NULL;
        } else {
            assert_int_equal(r.end, JINJA_NO_MEMORY);
            assert_true(!r.text && !r.runs && !r.message && text[0]);
        }
    }
    assert_true(status == WK_OK || status == WK_NO_MEMORY);
    assert_true((status == WK_OK) == (out != NULL));
    jinja_result_free(&r);
    jinja_values_free(a);
    jinja_close(t);
    return out;
}

/* All allocations after the n-th fail as well. */
static void every_failure(const char *source, const char *json, size_t least)
{
    const int64_t before = live;
    char *const whole = run(source, json);
    assert_non_null(whole);
    for (uint64_t n = 1;; n++) {
        left = n;
        char *const out = run(source, json);
        const bool failed = !left;
        left = UINT64_MAX;
        if (!failed) {
            assert_string_equal(out, whole);
            free(out);
            assert_in_range(n, least, 1000);
            break;
        }
        assert_null(out);
        assert_int_equal(live, before + 1);
    }
    free(whole);
    assert_int_equal(live, before);
}

static void no_memory(void **state)
{
    (void)state;
    static const char json[] = "{\"l\":[3,1,2,12345678901234567890],\"d\":{\"b\":\"x\",\"a\":[1.5,null]},\"s\":"
                               "\"The quick brown fox\"}";
    /* Containers, iterators that hold a failure back, macros, loops, texts that grow: all of them larger than the
     * heap's first blocks. */
    every_failure("{% macro f(v, w=1) %}{{ v }}{{ caller() if caller is defined }}{% endmacro %}"
                  "{% set ns = namespace(t='', l=[]) %}"
                  "{% for i in range(3000) %}{% set ns.t = ns.t ~ i %}{% endfor %}"
                  "{% for k, v in d|dictsort %}{{ f(k) }}{% call f(v) %}{{ loop.index }}{% endcall %}{% endfor %}"
                  "{{ (ns.t * 40)|length }}{{ ns.t|replace('1', '<1>')|upper|length }}{{ l|map('string')|join(',') }}"
                  "{{ range(4000)|select('odd')|list|length }}{{ ('x' * 100000)|tojson|length }}{{ more }}"
                  "{{ [d] * 1000 == [] }}{{ '%s:%5d'|format(s, 7) }}{{ '{:>9}'.format(s[:3]) }}{{ l|pprint }}"
                  "{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}{{ 3 ** 2000 }}",
                  json, 12);
    every_failure("{{ s|batch(2)|map('nothing')|list if false }}{{ raise_exception('no: ' ~ s * 2000) }}", json, 8);
    every_failure("", "{}", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
