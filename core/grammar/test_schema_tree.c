/* test_schema_tree.c: what the JSON Schema compiler stands on: the tree with its pointers, exact decimals, references.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

static struct schema_ctx context(void)
{
    struct schema_ctx c = { .err = &err, .arena = arena_new(), .draft = DRAFT_2020 };
    assert_non_null(c.arena);
    assert_int_equal(langs_open(NULL, &c.langs, &err), WK_OK);
    text[0] = '\0';
    return c;
}

static void refused(const char *schema, size_t n, const char *why)
{
    struct schema_ctx c = context();
    assert_false(js_read(&c, schema, n));
    assert_int_not_equal(c.status, WK_OK);
    if (!strstr(text, why)) fail_msg("expected '%s' in '%s'", why, text);
    langs_close(c.langs);
    arena_free(c.arena);
}

static void test_reading(void **state)
{
    (void)state;
    static const char good[] = "{\"a\": [1, {\"b/~\": \"x\\u00e9\"}], \"c\": -0.50e2, \"d\": true}";
    struct schema_ctx c = context();
    assert_true(js_read(&c, good, sizeof good - 1));
    assert_int_equal(c.root->n, 3);
    const struct js_value *item = &js_get(c.root, "a")->item[1], *leaf = js_get(item, "b/~");
    assert_true(text_equal(leaf->text, (struct json_text){ "x\xc3\xa9", 3 }));
    char pointer[64];
    js_pointer(leaf, pointer, sizeof pointer);
    assert_string_equal(pointer, "#/a/1/b~1~0");
    js_pointer(leaf, pointer, 8); /* cut, and terminated */
    assert_true(strlen(pointer) < 8);
    assert_true(js_get(c.root, "d")->truth);
    assert_null(js_get(c.root, "e"));
    langs_close(c.langs);
    arena_free(c.arena);

    refused("{\"a\":1,\"b\":2,\"a\":3}", 19, "there twice");
    refused("{\"a\":1} x", 9, "nothing more");
    refused("", 0, "");
    refused("{\"a\":\"\\ud800\"}", 15, "surrogate");
    char *deep = malloc(400);
    assert_non_null(deep);
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    refused(deep, 400, "levels");
    free(deep);
    char *large = malloc(SCHEMA_MAX_TEXT + 1);
    assert_non_null(large);
    memset(large, ' ', SCHEMA_MAX_TEXT + 1);
    refused(large, SCHEMA_MAX_TEXT + 1, "bytes of text");
    large[0] = '[';
    for (size_t i = 1; i < SCHEMA_MAX_TEXT; i++) large[i] = i % 2 ? '0' : ',';
    refused(large, SCHEMA_MAX_TEXT, "values");
    free(large);
}

static struct dec dec(const char *number) { return dec_of((struct json_text){ number, strlen(number) }); }

static void test_decimals(void **state)
{
    (void)state;
    static const char *const rising[] = { "-1e400",  "-123.5", "-123.25", "-1",     "-0.001", "0",    "1e-400",
                                          "0.00099", "0.001",  "0.01",    "1",      "1.5",    "9.99", "10",
                                          "1.2e2",   "123.25", "1e20",    "1.1e20", "1e400" };
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++)
        for (size_t k = 0; k < sizeof rising / sizeof *rising; k++)
            assert_int_equal(dec_compare(dec(rising[i]), dec(rising[k])), (i > k) - (i < k));
    static const char *const equal[][2] = { { "1", "1.0" },      { "100", "1e2" },       { "0.10", "1E-1" },
                                            { "-0", "0.00e9" },  { "12.50", "1250e-2" }, { "1000.0", "0.1e4" },
                                            { "-0.05", "-5e-2" } };
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        assert_int_equal(dec_compare(dec(equal[i][0]), dec(equal[i][1])), 0);
    assert_true(dec_is_integer(dec("1.50e1")));
    assert_true(dec_is_integer(dec("0.000")));
    assert_false(dec_is_integer(dec("1.5")));

    uint32_t n;
    assert_true(dec_count(dec("2.0"), &n) && n == 2);
    assert_true(dec_count(dec("4e3"), &n) && n == 4000);
    assert_false(dec_count(dec("-1"), &n));
    assert_false(dec_count(dec("1e10"), &n));
    assert_false(dec_count(dec("0.5"), &n));
}

static bool divides(const char *number, const char *unit)
{
    uint64_t units;
    int64_t exp;
    assert_true(dec_units(dec(unit), &units, &exp));
    return dec_is_multiple(dec(number), units, exp);
}

static void test_multiples(void **state)
{
    (void)state;
    assert_true(divides("0.0075", "0.0001"));
    assert_false(divides("0.00751", "0.0001"));
    assert_true(divides("4.02", "0.01"));
    assert_true(divides("-21", "7"));
    assert_false(divides("22", "7"));
    assert_true(divides("1e308", "0.125"));
    assert_false(divides("1e308", "0.123456789"));
    assert_true(divides("0", "13"));
    assert_true(divides("300", "1.5e1"));
    assert_false(divides("1e30", "7"));

    uint64_t a = 4;
    int64_t exp = 0;
    assert_true(units_lcm(&a, &exp, 6, 0) && a == 12 && exp == 0);
    assert_true(units_lcm(&a, &exp, 25, -2) && a == 1200 && exp == -2); /* of 12 and 0.25 */
    a = 999999999999999989u;
    exp = 0;
    assert_false(units_lcm(&a, &exp, 999999999999999967u, 0));
    uint64_t units;
    assert_false(dec_units(dec("1234567890123456789"), &units, &exp));
    assert_false(dec_units(dec("1e19"), &units, &exp));
}

/* Where the reference of the schema's `ref` member leads; NULL: refused. */
static void leads(const char *schema, const char *pointer)
{
    struct schema_ctx c = context();
    char found_at[128] = "nowhere";
    if (!js_read(&c, schema, strlen(schema))) fail_msg("%s", text);
    assert_true(ref_collect(&c));
    const struct js_value *from = js_get(c.root, "from");
    if (!from) from = c.root;
    const struct js_value *found = ref_resolve(&c, from, "$ref", js_get(from, "$ref"));
    if (found) js_pointer(found, found_at, sizeof found_at);
    if (strcmp(found_at, pointer) != 0) fail_msg("%s: expected %s, found %s (%s)", schema, pointer, found_at, text);
    langs_close(c.langs);
    arena_free(c.arena);
}

static void test_references(void **state)
{
    (void)state;
    leads("{\"$ref\":\"#\"}", "#");
    leads("{\"$ref\":\"#/$defs/a~1b/items/1\",\"$defs\":{\"a/b\":{\"items\":[{},{}]}}}", "#/$defs/a~1b/items/1");
    leads("{\"$ref\":\"#/$defs/a%20%25\",\"$defs\":{\"a %\":true}}", "#/$defs/a %");
    leads("{\"$ref\":\"#/$defs/b\",\"$defs\":{\"a\":true}}", "nowhere");
    leads("{\"$ref\":\"#/$defs/a/0\",\"$defs\":{\"a\":[1]}}", "nowhere");
    leads("{\"$ref\":\"#x\",\"$defs\":{\"a\":{\"$anchor\":\"x\"}}}", "#/$defs/a");
    leads("{\"$ref\":\"#x\",\"enum\":[{\"$anchor\":\"x\"}]}", "nowhere");
    leads("{\"$id\":\"http://h/a/b.json\",\"$ref\":\"../c/d.json#x\","
          "\"$defs\":{\"e\":{\"$id\":\"/c/d.json\",\"$defs\":{\"f\":{\"$anchor\":\"x\"}}}}}",
          "#/$defs/e/$defs/f");
    leads("{\"$id\":\"http://h/a\",\"$ref\":\"http://h/a#/$defs/e\",\"$defs\":{\"e\":{}}}", "#/$defs/e");
    leads("{\"$ref\":\"other.json\",\"$defs\":{\"e\":{\"$id\":\"other.json\"}}}", "#/$defs/e");
    leads("{\"$ref\":\"urn:x:1\",\"$defs\":{\"e\":{\"$id\":\"urn:x:1\"}}}", "#/$defs/e");
    leads("{\"$ref\":\"https://example.com/s\"}", "nowhere");
    leads("{\"$ref\":\"e\",\"$defs\":{\"e\":{\"$id\":\"e\"},\"f\":{\"$id\":\"e\"}}}", "nowhere");
    leads("{\"from\":{\"$ref\":\"#/x\"},\"x\":{}}", "#/x");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_reading), cmocka_unit_test(test_decimals),
                                        cmocka_unit_test(test_multiples), cmocka_unit_test(test_references) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
