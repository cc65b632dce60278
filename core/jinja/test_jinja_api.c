/* Templates through the module's interface: values, provenance, errors with their places, budgets, threads. What the
 * language prints is in test_jinja.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

static struct jinja_template *opened(const char *source)
{
    struct jinja_template *t;
    if (jinja_open(&t, source, strlen(source), &err) != WK_OK) fail_msg("%s: %s", source, text);
    return t;
}

static struct jinja_result rendered(const char *source, const char *json)
{
    struct jinja_values *a = jinja_values_new();
    struct jinja_value *context;
    struct jinja_result r;
    struct jinja_template *t = opened(source);
    assert_int_equal(jinja_from_json(a, json, strlen(json), "context", &context, &err), WK_OK);
    (void)jinja_render(t, context, NULL, &r, &err);
    jinja_close(t);
    jinja_values_free(a);
    return r;
}

/* The output with [ ] around what is not the template's. */
static void check_runs(const char *source, const char *json, const char *expected)
{
    struct jinja_result r = rendered(source, json);
    char *marked = calloc(1, 3 * r.n + 3);
    size_t at = 0, n = 0;
    assert_int_equal(r.end, JINJA_DONE);
    for (size_t i = 0; i < r.n_runs; i++) {
        assert_int_equal(r.runs[i].begin, at);
        assert_true(r.runs[i].end > at);
        if (i) assert_int_not_equal(r.runs[i].from_template, r.runs[i - 1].from_template);
        if (!r.runs[i].from_template) marked[n++] = '[';
        memcpy(marked + n, r.text + at, r.runs[i].end - at);
        n += r.runs[i].end - at;
        if (!r.runs[i].from_template) marked[n++] = ']';
        at = r.runs[i].end;
    }
    assert_int_equal(at, r.n);
    assert_string_equal(marked, expected);
    free(marked);
    jinja_result_free(&r);
}

static void provenance(void **state)
{
    (void)state;
    check_runs("<s>{{ x }}</s>", "{\"x\":\"a\"}", "<s>[a]</s>");
    check_runs("{{ '<' ~ x ~ '>' }}", "{\"x\":\"a\"}", "<[a]>");
    check_runs("{{ ('<' + x + '>')[1:] }}", "{\"x\":\"ab\"}", "[ab]>");
    check_runs("{{ ('<' + x + '>')[::-1] }}", "{\"x\":\"ab\"}", ">[ba]<");
    check_runs("{{ x.split('|') | join('|') }}", "{\"x\":\"a|b\"}", "[a]|[b]");
    check_runs("{{ x.replace('a', '<s>') }}", "{\"x\":\"bab\"}", "[b]<s>[b]");
    check_runs("{{ '<s>'.replace('s', x) }}", "{\"x\":\"a\"}", "<[a]>");
    check_runs("{{ ('q' ~ x)|upper }}{{ ('q' ~ x).title() }}{{ ('q' ~ x)|capitalize }}", "{\"x\":\"ab\"}",
               "Q[AB]Q[ab]Q[ab]");
    check_runs("{{ ('q' ~ x ~ 'r' ~ x)|upper }}{{ x|pprint }}", "{\"x\":\"ab\"}", "Q[AB]R[AB'ab']");
    check_runs("{{ (' ' ~ x ~ ' ')|trim }}", "{\"x\":\" a \"}", "[a]");
    check_runs("{{ x|tojson }}", "{\"x\":\"a<|x|>\"}", "[\"a<|x|>\"]");
    check_runs("{{ {'k': x}|tojson }}", "{\"x\":\"a\"}", "{\"k\": [\"a\"]}");
    check_runs("{{ x|tojson }}", "{\"x\":[\"a\",1]}", "[[\"a\"], [1]]");
    check_runs("{{ '%s:%5s'|format('t', x) }}", "{\"x\":\"a\"}", "t:    [a]");
    check_runs("{{ '{}-{}'.format('t', x) }}", "{\"x\":\"a\"}", "t-[a]");
    check_runs("{{ x.format('t') }}", "{\"x\":\"<{}>\"}", "[<]t[>]");
    check_runs("{{ (x ~ '\\nt')|indent(2) }}", "{\"x\":\"a\\nb\"}", "[a]\n  [b]\n  t");
    check_runs("{{ x * 2 }}{{ 'a' * n }}", "{\"x\":\"a\",\"n\":2}", "[aa]aa");
    check_runs("{{ n }} {{ n + 1 }} {{ 1 }} {{ x|length }} {{ x == 'a' }}", "{\"x\":\"a\",\"n\":7}",
               "[7] [8] 1 1 True");
    check_runs("{{ x|int }}{{ x|float }}{{ [x]|string }}", "{\"x\":\"5\"}", "[55.0][['5']]");
    check_runs("{% set y %}<{{ x }}>{% endset %}{{ y }}", "{\"x\":\"a\"}", "<[a]>");
    check_runs("{% macro f(v) %}({{ v }}){% endmacro %}{{ f(x)|replace('(', '<') }}", "{\"x\":\"a\"}", "<[a])");
    check_runs("{{ x|e }}{{ x|urlencode }}{{ x|safe }}", "{\"x\":\"<\"}", "[&lt;%3C<]");
    check_runs("{% for c in x %}{{ c }},{% endfor %}", "{\"x\":\"ab\"}", "[a],[b],");
    check_runs("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{\"d\":{\"k\":\"v\"}}", "[k]=[v];");
    check_runs("{{ x|truncate(4, true, '!', 0) }}{{ x|center(8) }}", "{\"x\":\"abcdef\"}", "[abc]! [abcdef] ");
    check_runs("{{ ' '.join([x, 't']) }}{{ x.partition('=')[1] }}", "{\"x\":\"a=b\"}", "[a=b] t[=]");
    check_runs("{{ strftime_now(x) }}{{ strftime_now('%Y') }}", "{\"x\":\"y%Y\"}", "[y1970]1970");
}

static void model_texts(void **state)
{
    (void)state;
    struct jinja_values *a = jinja_values_new();
    struct jinja_value *context = jinja_dict(a), *list = jinja_list(a);
    assert_non_null(jinja_dict_set(a, context, "bos", jinja_string(a, "<s>", 3, JINJA_TEMPLATE)));
    assert_non_null(jinja_list_add(a, list, jinja_string(a, "u", 1, JINJA_INPUT)));
    assert_non_null(jinja_list_add(a, list, jinja_int(a, -3)));
    assert_non_null(jinja_list_add(a, list, jinja_none(a)));
    assert_non_null(jinja_list_add(a, list, jinja_bool(a, true)));
    assert_non_null(jinja_dict_set(a, context, "l", list));
    assert_non_null(jinja_dict_set(a, context, "l", list));
    assert_null(jinja_string(a, "\xff", 1, JINJA_INPUT));
    assert_null(jinja_dict_set(a, context, "x", NULL));
    assert_null(jinja_list_add(a, context, list));
    assert_ptr_equal(jinja_dict_get(context, "no"), NULL);
    assert_non_null(jinja_dict_get(context, "bos"));
    struct jinja_template *t = opened("{{ bos }}{{ l }}");
    struct jinja_result r;
    assert_int_equal(jinja_render(t, context, NULL, &r, &err), WK_OK);
    assert_string_equal(r.text, "<s>['u', -3, None, True]");
    assert_true(r.runs[0].from_template && r.runs[0].end == 3);
    jinja_result_free(&r);
    jinja_close(t);
    jinja_values_free(a);
    jinja_values_free(NULL);
    jinja_close(NULL);
}

static void variables(void **state)
{
    (void)state;
    struct jinja_template *t =
        opened("{% set a = 1 %}{{ a }}{% for m in messages %}{{ m.role }}{{ m['content'] }}{{ loop.index }}"
               "{% endfor %}{% if enable_thinking is defined %}{{ m.get('x') }}{% endif %}"
               "{% macro f(q) %}{{ q }}{{ tools }}{% endmacro %}");
    assert_true(jinja_reads(t, "messages") && jinja_reads(t, "enable_thinking") && jinja_reads(t, "tools"));
    assert_true(jinja_reads(t, "m"));
    assert_false(jinja_reads(t, "a") || jinja_reads(t, "q") || jinja_reads(t, "loop") || jinja_reads(t, "role"));
    assert_int_equal(jinja_n_variables(t), 4);
    for (size_t i = 0; i < 4; i++) assert_true(jinja_reads(t, jinja_variable(t, i)));
    assert_true(jinja_mentions(t, "role") && jinja_mentions(t, "content") && jinja_mentions(t, "x"));
    assert_false(jinja_mentions(t, "messages"));
    jinja_close(t);
}

static void check_refused(const char *source, const char *expected)
{
    struct jinja_template *t;
    assert_int_equal(jinja_open(&t, source, strlen(source), &err), WK_INVALID);
    assert_null(t);
    if (!strstr(text, expected)) fail_msg("%s: %s", source, text);
}

static void syntax_errors(void **state)
{
    (void)state;
    check_refused("a\n{% if %}", "template line 2, column 7: expected an expression");
    check_refused("{{ 'é' $ }}", "template line 1, column 8: unexpected character U+0024");
    check_refused("{% include 'x' %}", "template line 1, column 4: the statement 'include' is not supported");
    check_refused("{% do x %}", "'do'");
    check_refused("{% import 'x' as y %}", "'import'");
    check_refused("{% from 'x' import y %}", "'from'");
    check_refused("{% extends 'x' %}", "'extends'");
    check_refused("{% autoescape true %}", "'autoescape'");
    check_refused("{% trans %}", "'trans'");
    check_refused("{% endif %}", "unknown statement 'endif'");
    check_refused("{{ x|nothing }}", "no filter is named 'nothing'");
    check_refused("{{ x is nothing }}", "no test is named 'nothing'");
    check_refused("{% for x in y %}", "the block has no end: expected {% endfor %}");
    check_refused("{% raw %}", "raw has no end");
    check_refused("{# x", "a comment has no end");
    check_refused("{{ x", "got end of template");
    check_refused("{{ (x] }}", "unexpected ']', expected ')'");
    check_refused("{{ 'x }}", "a string has no end");
    check_refused("{% break %}", "break outside of a loop");
    check_refused("{% for loop in x %}{% endfor %}", "cannot assign to the special variable loop");
    check_refused("{% set 1 = 2 %}", "cannot assign");
    check_refused("{{ '\\ud800' }}", "names no character");
    check_refused("\xff", "not UTF-8");
    assert_int_equal(jinja_open(&(struct jinja_template *){ NULL }, "", JINJA_MAX_TEMPLATE + 1, &err), WK_INVALID);
}

static void check_failed(const char *source, enum jinja_end end, uint32_t line, uint32_t column, const char *message)
{
    struct jinja_result r = rendered(source, "{\"x\":1,\"s\":\"abc\"}");
    assert_int_equal(r.end, end);
    assert_null(r.text);
    assert_int_equal(r.n_runs, 0);
    if (!strstr(r.message, message)) fail_msg("%s: %s", source, r.message);
    assert_true(strstr(text, message) != NULL);
    if (r.line != line || r.column != column) fail_msg("%s: line %u, column %u", source, r.line, r.column);
    jinja_result_free(&r);
}

static void run_errors(void **state)
{
    (void)state;
    check_failed("a\r\nb{{ raise_exception('no: ' ~ x) }}", JINJA_RAISED, 2, 20, "no: 1");
    check_failed("{{ nope.a }}", JINJA_FAILED, 1, 8, "'nope' is undefined");
    check_failed("{{ x.a.b }}", JINJA_FAILED, 1, 7, "'int object' has no attribute 'a'");
    check_failed("\n\n{{ 1 + 's' }}", JINJA_FAILED, 3, 6, "unsupported operand type(s) for +: 'int' and 'str'");
    check_failed("{{ [].append(1) }}", JINJA_FAILED, 1, 13, "unsafe");
    check_failed("{{ s.__class__.x }}", JINJA_FAILED, 1, 15, "unsafe");
    check_failed("{% if x %}{{ x|nothing }}{% endif %}", JINJA_FAILED, 1, 16, "no filter is named 'nothing'");
}

static void budgets(void **state)
{
    (void)state;
    check_failed("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", JINJA_LIMIT, 1, 32,
                 "steps");
    check_failed("{% for i in range(20) %}{{ s * 1000000 }}{% endfor %}", JINJA_LIMIT, 1, 30, "bytes of output");
    check_failed("{% set t = s * 100000000 %}", JINJA_LIMIT, 1, 14, "values take more than");
    check_failed("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", JINJA_LIMIT, 1, 20, "nested deeper");
    check_failed("{{ range(100001) }}", JINJA_FAILED, 1, 9, "range too big");
    check_failed("{{ 2 ** 100000 }}", JINJA_LIMIT, 1, 6, "bits");
    check_failed("{{ [0] * 1000000000 }}", JINJA_LIMIT, 1, 8, "values take more than");
    check_failed("{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
                 JINJA_LIMIT, 1, 96, "nested deeper");
    check_failed("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", JINJA_LIMIT, 1, 36, "nested deeper");
    /* What is read character by character, or printed with hundreds of digits, costs more than what is copied. */
    check_failed(
        "{% set u = '\u00e9' * 300000 %}{% for i in range(100000) %}{{ u.startswith('\u00e9', 299999) }}{% endfor %}",
        JINJA_LIMIT, 1, 70, "steps");
    check_failed("{{ ('\\t' * 1000).expandtabs(1000000) }}", JINJA_LIMIT, 1, 28, "values take more than");
    check_failed("{{ ('a' * 1000000)|wordwrap(1) }}", JINJA_LIMIT, 1, 20, "steps");
    check_failed("{% for i in range(100000) %}{{ '%.300f' % 1e300 }}{% endfor %}", JINJA_LIMIT, 1, 41, "steps");
    check_failed("{% set t = 'a' * 1000000 %}{% for i in range(1000) %}{{ t.upper()[:1] }}{% endfor %}", JINJA_LIMIT, 1,
                 64, "steps");
    check_failed("{{ raise_exception('a' * 9000000) }}", JINJA_LIMIT, 1, 19, "bytes of an exception");
    /* Tuples that are in each other twice, as keys; and what reads all of a long text, again and again. */
    check_failed("{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
                 "{{ {ns.x: 1} }}",
                 JINJA_LIMIT, 1, 101, "steps");
    check_failed("{% set t = s * 1000000 %}{% for i in range(100000) %}{{ t|length }}{% endfor %}", JINJA_LIMIT, 1, 59,
                 "steps");
    check_failed("{% set t = s * 1000000 %}{% for i in range(100000) %}{{ t.startswith(t) }}{% endfor %}", JINJA_LIMIT,
                 1, 69, "steps");
    check_failed("{% set t = s * 1000000 %}{% for i in range(100000) %}{{ {t: 1}[t] }}{% endfor %}", JINJA_LIMIT, 1, 63,
                 "steps");
    static char deep[2048];
    memset(deep, '(', sizeof deep - 1);
    memcpy(deep, "{{ ", 3);
    check_refused(deep, "nested deeper than 200 levels");
    /* Text that grows in a loop is not copied each time. */
    struct jinja_result r =
        rendered("{% set ns = namespace(t='') %}{% for i in range(20000) %}{% set ns.t = ns.t + s %}"
                 "{% endfor %}{{ ns.t|length }}",
                 "{\"s\":\"0123456789\"}");
    assert_int_equal(r.end, JINJA_DONE);
    assert_string_equal(r.text, "200000");
    jinja_result_free(&r);
}

static void check_json(const char *json, const char *expected)
{
    struct jinja_values *a = jinja_values_new();
    struct jinja_value *v;
    const wk_status status = jinja_from_json(a, json, strlen(json), "x", &v, &err);
    if (!expected) {
        assert_int_equal(status, WK_INVALID);
        assert_null(v);
        assert_true(strncmp(text, "x: ", 3) == 0);
    } else {
        struct jinja_value *context = jinja_dict_set(a, jinja_dict(a), "v", v);
        struct jinja_template *t = opened("{{ v }}");
        struct jinja_result r;
        assert_int_equal(jinja_render(t, context, NULL, &r, &err), WK_OK);
        assert_string_equal(r.text, expected);
        jinja_result_free(&r);
        jinja_close(t);
    }
    jinja_values_free(a);
}

static void json(void **state)
{
    (void)state;
    check_json("{\"b\":1,\"a\":[true,false,null,-0,1.5,1e3,\"\\u00e9\\n\"],\"b\":2}",
               "{'b': 2, 'a': [True, False, None, 0, 1.5, 1000.0, 'é\\n']}");
    check_json("[123456789012345678901234567890, -9223372036854775808, 1e999, -0.0]",
               "[123456789012345678901234567890, -9223372036854775808, inf, -0.0]");
    check_json("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"a\":2,\"i\":3}",
               "{'a': 2, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1, 'g': 1, 'h': 1, 'i': 3}");
    check_json("[1,]", NULL);
    check_json("{\"a\" 1}", NULL);
    check_json("\"\\ud800\"", NULL);
    check_json("1 2", NULL);
    check_json("", NULL);
}

/* A thread's stack as small as the service's. Sanitizers make frames larger. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 2 << 20 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { STACK = 2 << 20 };
#else
enum { STACK = 256 << 10 };
#endif
#else
enum { STACK = 256 << 10 };
#endif

static char *nested(const char *open, const char *middle, const char *close, int n)
{
    const size_t o = strlen(open), c = strlen(close), m = strlen(middle);
    char *source = calloc(1, 8 + (o + c) * (size_t)n + m), *p = source + 3;
    memcpy(source, "{{ ", 3);
    for (int i = 0; i < n; i++, p += o) memcpy(p, open, o);
    memcpy(p, middle, m);
    p += m;
    for (int i = 0; i < n; i++, p += c) memcpy(p, close, c);
    memcpy(p, " }}", 4);
    return source;
}

static void *nest_deeply(void *unused)
{
    static const struct {
        const char *open, *middle, *close, *out;
    } cases[] = { { "(", "1", ")", "1" },      { "-", "1", "", "1" },
                  { "not ", "1", "", "True" }, { "[", "1", "]", NULL },
                  { "{1:", "1", "}", NULL },   { "(", "1", ")|string", "1" },
                  { "x[", "1", "]", "" },      { "1 if 0 else ", "2", "", "2" },
                  { "", "1", "+1", "181" } };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *source = nested(cases[i].open, cases[i].middle, cases[i].close, 180), *deeper;
        struct jinja_result r = rendered(source, "{\"x\":{}}");
        if (r.end != JINJA_DONE || (cases[i].out && strcmp(r.text, cases[i].out) != 0)) return source;
        jinja_result_free(&r);
        free(source);
        deeper = nested(cases[i].open, cases[i].middle, cases[i].close, 100000);
        struct jinja_template *t;
        if (jinja_open(&t, deeper, strlen(deeper), NULL) == WK_OK) return deeper;
        free(deeper);
    }
    return NULL;
}

static void *render_often(void *shared)
{
    for (int i = 0; i < 50; i++) {
        struct jinja_result r;
        struct jinja_values *a = jinja_values_new();
        const char *text_of = "{\"l\":[3,1,2],\"s\":\"x\"}";
        struct jinja_value *context;
        if (jinja_from_json(a, text_of, strlen(text_of), "x", &context, NULL) != WK_OK) return "JSON";
        if (jinja_render(shared, context, NULL, &r, NULL) != WK_OK || strcmp(r.text, "123xxx") != 0) return "render";
        jinja_result_free(&r);
        jinja_values_free(a);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct jinja_template *t =
        opened("{% macro f(v) %}{{ v }}{% endmacro %}{{ l|sort|join }}{% for i in l %}{{ f(s) }}{% endfor %}");
    pthread_t thread[4];
    pthread_attr_t small;
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, STACK), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&thread[i], &small, render_often, t), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
    void *failed;
    assert_int_equal(pthread_create(&thread[0], &small, nest_deeply, NULL), 0);
    assert_int_equal(pthread_join(thread[0], &failed), 0);
    if (failed) fail_msg("%.200s", (const char *)failed);
    (void)pthread_attr_destroy(&small);
    jinja_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(provenance), cmocka_unit_test(model_texts),
                                        cmocka_unit_test(variables),  cmocka_unit_test(syntax_errors),
                                        cmocka_unit_test(run_errors), cmocka_unit_test(budgets),
                                        cmocka_unit_test(json),       cmocka_unit_test(threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
