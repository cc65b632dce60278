/* What templates print, compared with Python's jinja2 3.1.6 set up as transformers does. test_jinja_cases.h has own
 * cases with jinja2's results; data_*: templates of real models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja.h"
#include "test_data.h"
#include "test_jinja_cases.h"
#include "tokenizer/json_reader.h"

enum { NOW = 1783155903 /* 2026-07-04 09:05:03 */ };

struct outcome {
    const char *out, *raised; /* both NULL: another failure */
};

/* Renders and compares; the number of differences. */
static int check(const char *name, const struct jinja_template *t, const struct jinja_value *context,
                 struct outcome want, const char *open_error)
{
    static const struct jinja_options options = { NOW, 0 };
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct jinja_result r = { .end = JINJA_FAILED };
    if (t) (void)jinja_render(t, context, &options, &r, &err);
    const char *const got = r.end == JINJA_DONE ? r.text : r.end == JINJA_RAISED ? r.message : NULL;
    const char *const wanted = want.out ? want.out : want.raised;
    const bool kind = (r.end == JINJA_DONE) == (want.out != NULL) && (r.end == JINJA_RAISED) == (want.raised != NULL);
    const bool same = kind && (!wanted || strcmp(got, wanted) == 0);
    if (!same)
        print_error("%s\n  want %s\n  got  %s\n", name, wanted ? wanted : "an error",
                    got ? got
                    : t ? text
                        : open_error);
    jinja_result_free(&r);
    return !same;
}

static int check_source(const char *source, size_t n, const struct jinja_value *context, struct outcome want)
{
    char text[512] = "";
    struct jinja_template *t;
    (void)jinja_open(&t, source, n, &(struct wk_err){ text, sizeof text });
    const int bad = check(source, t, context, want, text);
    jinja_close(t);
    return bad;
}

static void cases(void **state)
{
    (void)state;
    struct jinja_values *a = jinja_values_new();
    struct jinja_value *context;
    int bad = 0;
    assert_int_equal(jinja_from_json(a, case_context, strlen(case_context), "context", &context, NULL), WK_OK);
    for (size_t i = 0; i < sizeof own_cases / sizeof own_cases[0]; i++)
        bad += check_source(own_cases[i].source, strlen(own_cases[i].source), context,
                            (struct outcome){ own_cases[i].out, own_cases[i].raised });
    jinja_values_free(a);
    assert_int_equal(bad, 0);
}

/* --- Real templates --- */

static char *copy_of(struct json_text t)
{
    char *copy = malloc(t.len + 1);
    assert_non_null(copy);
    memcpy(copy, t.data, t.len);
    copy[t.len] = '\0';
    return copy;
}

/* {"out": text} or {"raise": text} or {"error": name}; the text is the caller's to free. */
static struct outcome read_outcome(struct json_reader *r, char **text)
{
    struct outcome o = { NULL, NULL };
    struct json_text key, value;
    *text = NULL;
    assert_true(jr_object(r));
    while (jr_member(r, &key)) {
        const bool out = jr_is(key, "out"), raised = jr_is(key, "raise");
        assert_true(jr_string(r, &value));
        if (!out && !raised) continue;
        *text = copy_of(value);
        *(out ? &o.out : &o.raised) = *text;
    }
    return o;
}

enum { MAX_CONVERSATIONS = 64 };
struct conversations {
    char *name[MAX_CONVERSATIONS];
    struct jinja_value *context[MAX_CONVERSATIONS];
    int n;
};

static void read_contexts(struct json_reader *r, struct jinja_values *a, struct conversations *c)
{
    struct json_text key, raw;
    assert_true(jr_object(r));
    while (jr_member(r, &key)) {
        assert_true(c->n < MAX_CONVERSATIONS);
        c->name[c->n] = copy_of(key);
        assert_true(jr_raw(r, &raw));
        assert_int_equal(jinja_from_json(a, raw.data, raw.len, "context", &c->context[c->n], NULL), WK_OK);
        c->n++;
    }
}

/* The results of one template; how many differ. */
static int check_results(struct json_reader *r, const char *file, const struct conversations *c, int *n)
{
    char path[256], text[512] = "", name[512];
    size_t size;
    int bad = 0;
    struct json_text key;
    struct jinja_template *t;
    (void)snprintf(path, sizeof path, "templates_real/templates/%s", file);
    char *source = data_read(path, &size);
    (void)jinja_open(&t, source, size, &(struct wk_err){ text, sizeof text });
    assert_true(jr_object(r));
    while (jr_member(r, &key)) {
        int i = 0;
        while (i < c->n && !jr_is(key, c->name[i])) i++;
        assert_in_range(i, 0, c->n - 1);
        char *expected;
        const struct outcome want = read_outcome(r, &expected);
        (void)snprintf(name, sizeof name, "%s %s", file, c->name[i]);
        bad += check(name, t, c->context[i], want, text);
        free(expected);
        ++*n;
    }
    jinja_close(t);
    free(source);
    return bad;
}

static void data_templates(void **state)
{
    (void)state;
    char path[DATA_PATH_MAX], command[DATA_PATH_MAX + 32];
    const size_t room = 64 << 20;
    char *json = malloc(room);
    assert_non_null(json);
    (void)snprintf(command, sizeof command, "xz -dc '%s'", data_path(path, "templates_real/vectors.json.xz"));
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t size = fread(json, 1, room, f);
    assert_int_equal(pclose(f), 0);
    struct jinja_values *a = jinja_values_new();
    struct conversations c = { .n = 0 };
    struct json_reader r;
    struct json_text key;
    int bad = 0, n = 0;
    jr_open(&r, json, size, "vectors.json", "", NULL);
    assert_true(jr_object(&r));
    while (jr_member(&r, &key)) {
        if (jr_is(key, "contexts")) {
            read_contexts(&r, a, &c);
        } else if (jr_is(key, "results")) {
            assert_true(jr_object(&r));
            while (jr_member(&r, &key)) {
                char *file = copy_of(key);
                bad += check_results(&r, file, &c, &n);
                free(file);
            }
        } else {
            assert_true(jr_skip(&r));
        }
    }
    assert_true(jr_finish(&r));
    jr_close(&r);
    for (int i = 0; i < c.n; i++) free(c.name[i]);
    jinja_values_free(a);
    free(json);
    assert_true(n > 4000);
    assert_int_equal(bad, 0);
}

static int check_quirk(const char *raw, size_t n, const struct jinja_value *context)
{
    struct json_reader r;
    struct json_text key, value;
    char *source = NULL, *expected = NULL;
    struct outcome want = { NULL, NULL };
    bool skip = false;
    jr_open(&r, raw, n, "quirk", "", NULL);
    assert_true(jr_object(&r));
    while (jr_member(&r, &key)) {
        const bool t = jr_is(key, "t"), out = jr_is(key, "out"), raised = jr_is(key, "raise");
        skip |= jr_is(key, "skip");
        assert_true(jr_string(&r, &value));
        if (t) source = copy_of(value);
        if (out || raised) {
            expected = copy_of(value);
            *(out ? &want.out : &want.raised) = expected;
        }
    }
    jr_close(&r);
    const int bad = skip ? 0 : check_source(source, strlen(source), context, want);
    free(source);
    free(expected);
    return bad;
}

static void data_quirks(void **state)
{
    (void)state;
    size_t size;
    char *json = data_read("templates_real/quirks.json", &size);
    struct jinja_values *a = jinja_values_new();
    struct jinja_value *context = NULL;
    struct json_reader r;
    struct json_text key, raw;
    int bad = 0, n = 0;
    jr_open(&r, json, size, "quirks.json", "", NULL);
    assert_true(jr_object(&r));
    while (jr_member(&r, &key)) {
        if (jr_is(key, "ctx")) {
            assert_true(jr_raw(&r, &raw));
            assert_int_equal(jinja_from_json(a, raw.data, raw.len, "context", &context, NULL), WK_OK);
        } else if (jr_is(key, "cases")) {
            assert_non_null(context);
            assert_true(jr_array(&r));
            for (; jr_element(&r); n++) {
                assert_true(jr_raw(&r, &raw));
                bad += check_quirk(raw.data, raw.len, context);
            }
        } else {
            assert_true(jr_skip(&r));
        }
    }
    assert_true(jr_finish(&r));
    jr_close(&r);
    jinja_values_free(a);
    free(json);
    assert_true(n > 100);
    assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cases), cmocka_unit_test(data_templates),
                                        cmocka_unit_test(data_quirks) };
    choose_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
