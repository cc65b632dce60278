/* test_schema.c: JSON Schemas as grammars, by the documents that these accept. Own cases in a plain clone; with test
 * data the JSON-Schema-Test-Suite and the cases of other engines' failure reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "grammar/schema_internal.h"
#include "schema_document.h"
#include "test_data.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

static struct grammar *compile(const char *schema, size_t n, bool strict)
{
    const struct schema_options options = { .strict = strict };
    struct grammar *g = NULL;
    text[0] = '\0';
    (void)grammar_from_schema(schema, n, &options, NULL, &g, &err);
    return g;
}

/* Documents, one a line; those behind a line "--" are not accepted. Given as texts, to the byte. */
static void documents(const char *schema, const char *lines)
{
    struct grammar *g = compile(schema, strlen(schema), false);
    bool expected = true;
    if (!g) fail_msg("%s: %s", schema, text);
    for (const char *p = lines; *p;) {
        const char *end = strchr(p, '\n');
        const size_t n = end ? (size_t)(end - p) : strlen(p);
        if (n == 2 && memcmp(p, "--", 2) == 0)
            expected = false;
        else if (text_accepted(g, p, n, NULL) != expected)
            fail_msg("%s: expected %s of %.*s", schema, expected ? "yes" : "no", (int)n, p);
        p += n + (end != NULL);
    }
    grammar_close(g);
}

static void refused(const char *schema, const char *why)
{
    struct grammar *g = compile(schema, strlen(schema), false);
    if (g) fail_msg("%s: compiled, expected %s", schema, why);
    if (!strstr(text, why) || strchr(text, '\n')) fail_msg("%s: expected '%s' in '%s'", schema, why, text);
}

/* ---- own cases ------------------------------------------------------------------------------------------ */

static void test_types(void **state)
{
    (void)state;
    documents("{\"type\":\"null\"}", "null\n--\nnul\n0\n\"null\"\n null");
    documents("{\"type\":\"boolean\"}", "true\nfalse\n--\n1\n\"true\"");
    documents("{\"type\":[\"integer\",\"null\"]}", "7\n-7\n1.0\nnull\n--\n1.5\n07\n\"7\"\n1e");
    documents("{\"type\":\"string\",\"nullable\":true}", "\"a\"\nnull\n--\n1");
    documents("true", "1\n\"a\"\n[1,{\"a\":null}]\n--\n\n[1,]\n{\"a\"}\n01");
    documents("{\"const\":{\"a\":[1,{\"b\":null}]}}", "{\"a\":[1,{\"b\":null}]}\n--\n{\"a\":[1,{\"b\":0}]}\n{}\n"
                                                      "{\"a\":[1,{\"b\":null}],\"c\":1}\n{\"a\":[1]}");
    documents("{\"enum\":[\"a\",\"ab\",1,12,null,true,[1],{\"k\":1},\"\\u00e9\\\"\"]}",
              "\"a\"\n\"ab\"\n1\n12\nnull\ntrue\n[1]\n{\"k\":1}\n\"\xc3\xa9\\\"\"\n\"\\u0061\"\n--\n"
              "\"abc\"\n2\nfalse\n[]\n[2]\n{}\n\"b\"");
    documents("{\"enum\":[1,\"a\",null],\"type\":[\"string\",\"null\"]}", "\"a\"\nnull\n--\n1");
}

static void test_numbers(void **state)
{
    (void)state;
    documents("{\"type\":\"integer\",\"minimum\":-17,\"maximum\":305}", "-17\n0\n305\n99\n--\n-18\n306\n1000\n1.5\n05");
    documents("{\"minimum\":0,\"type\":\"number\"}", "0\n0.5\n1e-06\n12\n--\n-1\n-0.1\n\"a\"");
    documents("{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
              "0.5\n0.0001\n--\n0\n1\n-0.1\n0.0\n1.0");
    documents("{\"type\":\"number\",\"multipleOf\":0.01,\"maximum\":1}", "0.01\n0.5\n1\n-3.25\n--\n0.001\n1.01\n0.015");
    documents("{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}],\"minimum\":1}",
              "12\n24\n--\n4\n6\n0\n18");
    documents("{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", "1\n-2\n1.0\n--\n3\n0\n-6\n-0\n0.00\n3.000\n1.5");
    documents("{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", "0.5\n-1.25\n--\n1\n1.0\n1.00\n5e-1");
    documents("{\"type\":\"number\",\"not\":{\"enum\":[0,10,2.50,-0.05]}}",
              "1\n2.51\n-0.5\n100\n0.05\n--\n0\n-0\n0.0\n10\n10.0\n1e1\n2.5\n2.500\n-0.05\n-0.050");
    documents("{\"enum\":[1,5,10,2.5],\"minimum\":2,\"not\":{\"const\":10}}", "5\n2.5\n--\n1\n10");
    documents("{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\",\"minimum\":1,"
              "\"exclusiveMinimum\":true}",
              "2\n--\n1\n2.0");
    refused("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no text fits");
    refused("{\"minimum\":\"5\"}", "\"minimum\" at #");
    refused("{\"properties\":{\"a\":{\"multipleOf\":0}}}", "\"multipleOf\" at #/properties/a");
}

static void test_strings(void **state)
{
    (void)state;
    documents("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
              "\"ab\"\n\"\xc3\xa4\xc3\xb6\xc3\xbc\"\n\"\xf0\x9f\x98\x80\\n\"\n\"\\ud83d\\ude00b\"\n--\n"
              "\"a\"\n\"abcd\"\n\"\\ud83d\\ude00\"");
    documents("{\"type\":\"string\",\"pattern\":\"\\\\S\"}", "\"a\"\n\"  b \"\n--\n\"\"\n\"   \"");
    documents("{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3,\"not\":{\"const\":\"ab\"}}",
              "\"a\"\n\"abc\"\n\"ba\"\n--\n\"ab\"\n\"abcd\"\n\"\"\n\"A\"");
    documents("{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"^.{3}$\"}]}",
              "\"xax\"\n--\n\"xxx\"\n\"a\"");
    documents("{\"type\":\"string\",\"pattern\":\"^a\\\"b\\\\\\\\c$\"}", "\"a\\\"b\\\\c\"\n--\n\"ab\"");
    documents("{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"\n\"2000-02-29\"\n--\n\"2023-02-29\"\n"
                                                           "\"1900-02-29\"\n\"2023-13-01\"\n\"2023-04-31\"");
    documents("{\"type\":\"string\",\"format\":\"date-time\"}",
              "\"2024-02-29T10:11:12Z\"\n\"1998-12-31T15:59:60.123-08:00\"\n\"1963-06-19t08:30:06.283185z\"\n--\n"
              "\"2024-02-29\"\n\"1998-12-31T22:59:60Z\"\n\"2024-02-29T24:00:00Z\"\n\"2024-02-29T10:11:12\"");
    documents("{\"type\":\"string\",\"format\":\"ipv6\",\"maxLength\":5}",
              "\"::1\"\n\"a::b\"\n--\n\"::12345\"\n\":::\"");
    documents("{\"type\":\"string\",\"format\":\"no such format\"}", "\"a\"\n--\n1");
    refused("{\"type\":\"string\",\"pattern\":\"([\"}", "\"pattern\" at #");
    refused("{\"type\":\"string\",\"format\":\"regex\"}", "\"format\" at #");
    assert_null(compile("{\"format\":\"color\"}", 18, true));
    assert_non_null(strstr(text, "\"format\""));
}

static void test_arrays(void **state)
{
    (void)state;
    documents("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
              "[1,2]\n[1,2,3]\n[ 1 , 2 ]\n--\n[]\n[1]\n[1,2,3,4]\n[1,\"a\"]");
    documents("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":false}",
              "[]\n[\"a\"]\n[\"a\",1]\n--\n[1]\n[\"a\",1,2]");
    documents("{\"type\":\"array\",\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":\"null\"}}",
              "[]\n[\"a\",null,null]\n--\n[null]\n[\"a\",1]");
    documents("{\"type\":\"array\",\"contains\":{\"type\":\"integer\"}}", "[1]\n[\"a\",2]\n[1,\"a\"]\n--\n[]\n[\"a\"]");
    documents("{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"minContains\":2,\"maxContains\":3}",
              "[1,2]\n[\"a\",1,\"b\",2,3]\n--\n[]\n[1]\n[1,2,3,4]\n[\"a\",1]");
    documents("{\"type\":\"array\",\"contains\":{\"const\":1},\"minItems\":2,\"maxItems\":3}",
              "[1,2]\n[2,1]\n[2,3,1]\n--\n[1]\n[2,3]\n[1,2,3,4]");
    documents("{\"type\":\"array\",\"contains\":{\"const\":1},\"minItems\":2}", "[1,2]\n[2,2,2,1,2]\n--\n[1]\n[2,2]");
    documents("{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}", "[\"a\"]\n[1,null]\n--\n[]\n[1,2]");
    documents("{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", "[]\n[1]\n--\n[1,1]");
    documents("{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":100000}", "[]\n[\"a\"]\n--\n[1]");
    refused("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"array\"}],\"contains\":{\"type\":\"string\"},"
            "\"maxContains\":2}",
            "\"contains\" at #");
    refused("{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\" at #");
    refused("{\"properties\":{\"a\":{\"type\":\"string\",\"uniqueItems\":true},"
            "\"b\":{\"type\":\"array\",\"uniqueItems\":true}}}",
            "\"uniqueItems\" at #/properties/b");
    refused("{\"type\":\"array\",\"items\":false,\"minItems\":1}", "no text fits");
}

/* Items that came before are remembered: strings by what they say, a few listed values by which are left. */
static void test_unique_items(void **state)
{
    (void)state;
    documents("{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
              "[]\n[\"a\"]\n[\"a\",\"b\",\"ab\",\"\"]\n[\"\\u0062\",\"a\"]\n--\n[\"a\",\"a\"]\n[\"a\",\"b\","
              "\"\\u0061\"]\n[\"\",\"x\",\"\"]\n[1]");
    documents("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":2,\"pattern\":\"^[a-z]+$\"},"
              "\"uniqueItems\":true,\"minItems\":2,\"maxItems\":3}",
              "[\"ab\",\"cd\"]\n[\"ab\",\"cd\",\"ef\"]\n--\n[\"ab\"]\n[\"ab\",\"ab\"]\n[\"a\",\"b\"]\n[\"ab\",\"cd\","
              "\"ef\",\"gh\"]\n[\"ab\",\"cd\",\"ab\"]");
    documents(
        "{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}}",
        "[[\"a\",\"b\"],[\"a\",\"b\"]]\n[[],[\"a\"],[]]\n--\n[[\"a\",\"a\"]]");
    documents("{\"type\":\"object\",\"minProperties\":2,\"additionalProperties\":{\"type\":\"array\",\"items\":{"
              "\"type\":\"string\"},\"uniqueItems\":true}}",
              "{\"a\":[\"x\",\"y\"],\"b\":[\"x\"]}\n--\n{\"a\":[\"x\",\"x\"],\"b\":[]}\n{\"a\":[\"x\"],\"a\":[\"y\"]}");
    documents("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",1,1.0,null]},\"uniqueItems\":true,\"minItems\":2,"
              "\"maxItems\":3}",
              "[\"a\",\"b\"]\n[1,\"a\",null]\n[1.0,\"b\"]\n[null,\"b\",\"a\"]\n--\n[\"a\"]\n[1,1.0]\n[\"a\",\"b\",1,"
              "null]\n[\"a\",\"\\u0061\"]\n[\"a\",null,null]");
    documents("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}",
              "[]\n[true]\n[false,true]\n--\n[true,true]\n[true,false,true]");
    documents("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"uniqueItems\":true,\"minItems\":2}",
              "[\"a\",\"b\"]\n[\"b\",\"a\"]\n--\n[\"a\"]\n[\"a\",\"a\"]");
    refused("{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"uniqueItems\":true,\"minItems\":3}",
            "no text fits");
    refused("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}", "\"uniqueItems\" at #");
    refused("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":9},\"uniqueItems\":true}",
            "\"uniqueItems\" at #");
    refused("{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"uuid\"},\"uniqueItems\":true}",
            "\"uniqueItems\" at #");
    refused("{\"type\":\"array\",\"items\":{\"enum\":[0,1,2,3,4,5,6,7,8,9]},\"uniqueItems\":true}",
            "\"uniqueItems\" at #");
    refused("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"string\"},"
            "\"uniqueItems\":true}",
            "\"uniqueItems\" at #");
}

/* Items of several kinds that must all come, in any order; one item may be of several kinds. */
static void test_several_contains(void **state)
{
    (void)state;
    documents("{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}",
              "[1,2]\n[2,3,1]\n[\"x\",2,2,1]\n[ 2 , 1 ]\n--\n[]\n[1]\n[2,2]\n[\"1\",2]");
    documents("{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"string\"]},\"minItems\":1,\"allOf\":[{"
              "\"contains\":{\"type\":\"integer\"}},{\"contains\":{\"minimum\":5,\"type\":\"number\"}},{\"contains\":{"
              "\"maximum\":100,\"type\":\"number\"}}]}",
              "[7]\n[1,900]\n[\"a\",5,\"b\"]\n[5.5,1]\n--\n[]\n[1]\n[5.5]\n[900,\"a\"]\n[7,null]");
    documents("{\"type\":\"array\",\"not\":{\"anyOf\":[{\"items\":{\"type\":\"integer\"}},{\"items\":{\"type\":"
              "\"string\"}}]}}",
              "[1,\"a\"]\n[null]\n[\"a\",1,1]\n--\n[]\n[1]\n[\"a\"]\n[\"a\",\"b\"]");
    documents("{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{"
              "\"const\":2}}]}",
              "[1,2]\n[2,2,1]\n--\n[1]\n[2,2]\n[1,2,3]");
    refused("{\"type\":\"array\",\"items\":{\"const\":1},\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{"
            "\"const\":2}}]}",
            "no text fits");
    refused("{\"type\":\"array\",\"maxItems\":3,\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}",
            "\"contains\" at #/allOf/0");
    refused("{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}},{\"contains\":{"
            "\"const\":3}},{\"contains\":{\"const\":4}}]}",
            "\"contains\" at #/allOf/3");
}

static void test_objects(void **state)
{
    (void)state;
    documents("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}},"
              "\"required\":[\"b\",\"c\"]}",
              "{\"b\":1,\"c\":0}\n{\"a\":\"x\",\"b\":1,\"c\":0,\"d\":[]}\n{ \"b\" : 1 , \"c\" : 0 }\n--\n{}\n"
              "{\"b\":1}\n{\"c\":0,\"b\":1}\n{\"b\":1,\"c\":0,\"b\":1}\n{\"b\":1,\"c\":0,\"a\":\"x\"}");
    documents("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},\"properties\":{\"id\":{\"type\":"
              "\"integer\"}},\"required\":[\"id\"]}",
              "{\"id\":1,\"x\":\"y\"}\n--\n{\"id\":\"1\"}\n{\"id\":1,\"x\":2}\n{\"id\":1,\"id\":\"x\"}\n"
              "{\"id\":1,\"\\u0069d\":\"x\"}");
    documents("{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"string\"},\"z$\":{\"minLength\":2}},"
              "\"additionalProperties\":false}",
              "{}\n{\"x-a\":\"1\"}\n{\"az\":7}\n{\"x-z\":\"12\"}\n--\n{\"y\":\"1\"}\n{\"x-a\":1}\n{\"x-z\":\"1\"}\n"
              "{\"x-z\":12}");
    documents("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2},\"minProperties\":1,\"maxProperties\":2}",
              "{\"a\":1}\n{\"ab\":1,\"b\":2}\n--\n{}\n{\"abc\":1}\n{\"a\":1,\"b\":2,\"c\":3}");
    documents("{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
              "{}\n{\"b\":1}\n{\"c\":1}\n--\n{\"a\":1}");
    documents("{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"properties\":{\"a\":true,\"b\":true}}",
              "{}\n{\"b\":1}\n{\"a\":1,\"b\":1}\n--\n{\"a\":1}");
    documents("{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"properties\":{\"a\":true,"
              "\"b\":true},\"dependencies\":{\"a\":{\"properties\":{\"b\":{\"type\":\"integer\"}}}}}",
              "{\"b\":\"x\"}\n{\"a\":1,\"b\":1}\n{\"a\":1}\n--\n{\"a\":1,\"b\":\"x\"}");
    documents("{\"properties\":{\"a\":{}},\"allOf\":[{\"properties\":{\"b\":{}}}],\"unevaluatedProperties\":false,"
              "\"type\":\"object\"}",
              "{\"a\":1,\"b\":2}\n{}\n--\n{\"c\":1}");
    refused("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"b\"],"
            "\"additionalProperties\":false}",
            "no text fits");
    refused("{\"type\":\"object\",\"required\":true}", "\"required\" at #");
}

static void test_logic(void **state)
{
    (void)state;
    documents("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]},"
              "{\"properties\":{\"b\":{\"type\":\"integer\"}},\"required\":[\"b\"]}]}",
              "{\"a\":\"x\",\"b\":1}\n--\n{\"a\":\"x\"}\n{\"a\":1,\"b\":1}");
    documents("{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"circle\"},\"r\":{\"type\":"
              "\"number\"}},\"required\":[\"kind\",\"r\"],\"additionalProperties\":false},{\"type\":\"object\","
              "\"properties\":{\"kind\":{\"const\":\"circ\"},\"s\":{\"type\":\"string\"}},\"required\":[\"kind\","
              "\"s\"],\"additionalProperties\":false}]}",
              "{\"kind\":\"circle\",\"r\":1}\n{\"kind\":\"circ\",\"s\":\"x\"}\n--\n{\"kind\":\"circ\",\"r\":1}");
    documents("{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0,\"maximum\":9},{\"type\":\"integer\",\"minimum\":5,"
              "\"maximum\":20}]}",
              "1\n15\n--\n7\n21\n5\n9");
    documents("{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
              "{\"a\":1}\n{\"b\":1}\n--\n{}\n{\"a\":1,\"b\":1}\n{\"c\":1}");
    documents("{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":\"array\",\"items\":"
              "{\"type\":\"string\"}}]}",
              "[1]\n[\"a\",\"b\"]\n--\n[]\n[1,\"a\"]");
    documents(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}},\"if\":{\"properties\":{\"a\":"
        "{\"const\":true}},\"required\":[\"a\"]},\"then\":{\"required\":[\"b\"]},\"else\":{\"required\":[\"c\"]}}",
        "{\"a\":true,\"b\":0}\n{\"a\":false,\"c\":0}\n{\"c\":0}\n--\n{\"a\":true}\n{\"a\":false}\n{}\n"
        "{\"a\":true,\"c\":0}");
    documents(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"not\":{\"required\":[\"a\",\"b\"]}}",
        "{}\n{\"a\":1}\n{\"b\":1}\n--\n{\"a\":1,\"b\":1}\n{\"a\":\"x\"}");
    documents("{\"not\":{\"type\":[\"string\",\"object\",\"array\"]}}", "1\nnull\ntrue\n--\n\"a\"\n{}\n[]");
    refused("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no text fits");
    refused("{\"not\":{}}", "no text fits");
    refused("{\"anyOf\":[]}", "\"anyOf\" at #");
    refused(
        "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":true},\"additionalProperties\":{\"type\":\"string\"}}}",
        "\"additionalProperties\" at #/not");
}

static void test_references(void **state)
{
    (void)state;
    documents("{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},"
              "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"],\"additionalProperties\":false}",
              "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}\n--\n{\"v\":1,\"next\":{}}\n{\"v\":1}");
    documents("{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"properties\":{\"x\":{\"$ref\":\"#/$defs/n\",\"minimum\":5}},"
              "\"required\":[\"x\"],\"type\":\"object\"}",
              "{\"x\":5}\n--\n{\"x\":4}\n{\"x\":\"5\"}");
    documents("{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"n\":{\"type\":\"integer\"}},"
              "\"properties\":{\"x\":{\"$ref\":\"#/definitions/n\",\"minimum\":5}},\"required\":[\"x\"],\"type\":"
              "\"object\"}",
              "{\"x\":4}\n--\n{\"x\":\"5\"}");
    /* A tree and a stricter tree: the set of schemas of a node contains itself. */
    documents("{\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"c\":{\"type\":\"array\",\"items\":{\"$ref\":"
              "\"#/$defs/t\"}}}},\"s\":{\"properties\":{\"c\":{\"maxItems\":1,\"items\":{\"$ref\":\"#/$defs/s\"}}}}},"
              "\"allOf\":[{\"$ref\":\"#/$defs/t\"},{\"$ref\":\"#/$defs/s\"}]}",
              "{\"c\":[{\"c\":[{}]}]}\n--\n{\"c\":[{},{}]}\n{\"c\":[{\"c\":[{},{}]}]}\n{\"c\":[1]}");
    refused("{\"$ref\":\"#\"}", "endless");
    refused("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"},{\"type\":\"null\"}]},\"b\":"
            "{\"allOf\":[{\"$ref\":\"#/$defs/a\"}]}}}",
            "endless");
    refused(
        "{\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/a\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}},\"$ref\":\"#/$defs/a\"}",
        "no text fits");
    refused("{\"properties\":{\"a\":{\"$ref\":\"https://example.com/s.json\"}}}", "\"$ref\" at #/properties/a");
    refused("{\"$schema\":\"http://example.com/mine\"}", "\"$schema\"");
}

static char *chain(const char *open, const char *middle, const char *close, unsigned n)
{
    char *out = malloc(n * (strlen(open) + strlen(close)) + strlen(middle) + 1), *p = out;
    assert_non_null(out);
    for (unsigned i = 0; i < n; i++) p = stpcpy(p, open);
    p = stpcpy(p, middle);
    for (unsigned i = 0; i < n; i++) p = stpcpy(p, close);
    return out;
}

/* Schemas that are small and would be large if anything was copied or multiplied out. */
static void test_bombs(void **state)
{
    (void)state;
    char schema[8192];
    size_t n = 0;
    n += (size_t)sprintf(schema, "{\"$ref\":\"#/$defs/n24\",\"$defs\":{\"n0\":{\"type\":\"string\"}");
    for (int i = 1; i <= 24; i++)
        n += (size_t)sprintf(schema + n,
                             ",\"n%d\":{\"type\":\"object\",\"properties\":{\"l\":{\"$ref\":\"#/$defs/n%d\"},\"r\":"
                             "{\"$ref\":\"#/$defs/n%d\"}}}",
                             i, i - 1, i - 1);
    (void)sprintf(schema + n, "}}");
    documents(schema, "{\"l\":{\"r\":{}}}\n--\n{\"l\":1}");

    n = (size_t)sprintf(schema, "{\"type\":\"object\",\"allOf\":[");
    for (int i = 0; i < 20; i++)
        n += (size_t)sprintf(schema + n, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                             i ? "," : "", i, i);
    (void)sprintf(schema + n, "]}");
    refused(schema, "alternatives");

    n = (size_t)sprintf(schema, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{\"d150\":{\"type\":\"null\"}");
    for (int i = 0; i < 150; i++) n += (size_t)sprintf(schema + n, ",\"d%d\":{\"$ref\":\"#/$defs/d%d\"}", i, i + 1);
    (void)sprintf(schema + n, "}}");
    refused(schema, "applied in one place");

    char *deep = chain("{\"not\":", "{\"type\":\"null\"}", "}", 60);
    documents(deep, "null\n--\n1");
    free(deep);
    deep = chain("{\"items\":", "{\"type\":\"null\"}", "}", 200);
    refused(deep, "levels");
    free(deep);
    documents("{\"type\":\"string\",\"maxLength\":100000}", "\"a\"\n--\n1");
    documents("{\"type\":\"object\",\"properties\":{\"x\":{\"description\":\"::= \\\" [^\\\\x00] {1,9} | \\u0000 \"}}}",
              "{\"x\":1}\n--\n[]");
}

static void test_compact(void **state)
{
    (void)state;
    const char *schema = "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":1}}";
    const struct schema_options options = { .compact = true };
    struct grammar *g = NULL;
    assert_int_equal(grammar_from_schema(schema, strlen(schema), &options, NULL, &g, &err), WK_OK);
    assert_true(text_accepted(g, "[2,1]", 5, NULL));
    assert_false(text_accepted(g, "[2, 1]", 6, NULL));
    grammar_close(g);
    assert_int_equal(grammar_from_schema(schema, strlen(schema), NULL, NULL, &g, &err), WK_OK);
    assert_true(text_accepted(g, "[\n    2,\n    1\n]", 16, NULL));
    assert_false(text_accepted(g, "[\n\n2,1]", 7, NULL));                 /* one newline in a run */
    assert_false(text_accepted(g, "[                     1]", 24, NULL)); /* 21 spaces */
    grammar_close(g);
}

/* ---- test data ------------------------------------------------------------------------------------------ */

static struct js_value *parse(struct schema_ctx *c, const char *json, size_t n)
{
    *c = (struct schema_ctx){ .err = &err, .arena = arena_new() };
    assert_non_null(c->arena);
    if (!js_read(c, json, n)) fail_msg("%s", text);
    return (struct js_value *)(uintptr_t)c->root;
}

/* A value as text. */
static void write_json(FILE *f, const struct js_value *v)
{
    switch (v->kind) {
    case JR_OBJECT:
    case JR_ARRAY:
        (void)fputc(v->kind == JR_OBJECT ? '{' : '[', f);
        for (uint32_t i = 0; i < v->n; i++) {
            if (i) (void)fputc(',', f);
            if (v->kind == JR_OBJECT) {
                const struct js_value key = { .kind = JR_STRING, .text = v->member[i].key };
                write_json(f, &key);
                (void)fputc(':', f);
            }
            write_json(f, v->kind == JR_OBJECT ? &v->member[i].value : &v->item[i]);
        }
        (void)fputc(v->kind == JR_OBJECT ? '}' : ']', f);
        return;
    case JR_STRING:
        (void)fputc('"', f);
        for (size_t i = 0; i < v->text.len; i++) {
            const unsigned char c = (unsigned char)v->text.data[i];
            if (c < 0x20 || c == '"' || c == '\\')
                (void)fprintf(f, "\\u%04x", c);
            else
                (void)fputc(c, f);
        }
        (void)fputc('"', f);
        return;
    case JR_NUMBER: (void)fwrite(v->text.data, 1, v->text.len, f); return;
    case JR_BOOL: (void)fputs(v->truth ? "true" : "false", f); return;
    default: (void)fputs("null", f);
    }
}

static struct grammar *compile_value(const struct js_value *schema, const char *draft)
{
    char *json = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&json, &n);
    assert_non_null(f);
    if (draft && schema->kind == JR_OBJECT && !js_get(schema, "$schema")) {
        (void)fprintf(f, "{\"$schema\":\"%s\"%s", draft, schema->n ? "," : "}");
        for (uint32_t i = 0; i < schema->n; i++) {
            const struct js_value key = { .kind = JR_STRING, .text = schema->member[i].key };
            write_json(f, &key);
            (void)fputc(':', f);
            write_json(f, &schema->member[i].value);
            (void)fputc(i + 1 < schema->n ? ',' : '}', f);
        }
    } else
        write_json(f, schema);
    assert_int_equal(fclose(f), 0);
    struct grammar *g = compile(json, n, false);
    free(json);
    return g;
}

struct tally {
    uint32_t documents, compiled, accepted, rejected; /* the last two: wrongly */
};

/* Documents that are left out: digits beyond the caps (numbers of more than 20 digits, exponents of bounded numbers).
 */
static bool is_capped(const char *file)
{
    return strcmp(file, "optional/bignum.json") == 0 || strcmp(file, "optional/float-overflow.json") == 0;
}

static char *read_suite(const char *name, size_t *n)
{
    char path[DATA_PATH_MAX], *bytes = NULL;
    FILE *in = fopen(data_path_in(path, "WORKER_TEST_SUITE", ".", name), "rb"), *out = open_memstream(&bytes, n);
    if (!in) fail_msg("%s: cannot be read", path);
    assert_non_null(out);
    for (int c; (c = fgetc(in)) != EOF;) (void)fputc(c, out);
    assert_int_equal(fclose(out), 0);
    (void)fclose(in);
    return bytes;
}

static void suite_file(const char *path, const char *file, const char *draft, struct tally *t)
{
    size_t n;
    struct schema_ctx c;
    char *json = read_suite(path, &n);
    const struct js_value *groups = parse(&c, json, n);
    for (uint32_t i = 0; i < groups->n; i++) {
        const struct js_value *group = &groups->item[i], *tests = js_get(group, "tests");
        struct grammar *g = compile_value(js_get(group, "schema"), draft);
        t->documents += tests->n;
        for (uint32_t k = 0; g && k < tests->n; k++) {
            const struct js_value *test = &tests->item[k];
            const bool valid = js_get(test, "valid")->truth;
            const bool accepted = document_accepted(g, js_get(test, "data"));
            t->compiled++;
            if (accepted == valid || (valid && is_capped(file))) continue;
            const struct json_text what = js_get(group, "description")->text, which = js_get(test, "description")->text;
            print_message("%s: %s: %.*s: %.*s\n", accepted ? "accepted" : "rejected", file, (int)what.len, what.data,
                          (int)which.len, which.data);
            t->accepted += accepted;
            t->rejected += !accepted;
        }
        grammar_close(g);
    }
    arena_free(c.arena);
    free(json);
}

/* Every file of a draft. Of the mandatory ones format.json is left out: it says that formats are not enforced, which
 * the optional ones and this compiler contradict; and draft 7's optional content.json, whose keywords are annotations.
 */
static struct tally suite(const char *name, const char *draft)
{
    struct tally t = { 0 };
    size_t n;
    char *list = read_suite("files", &n);
    const size_t prefix = strlen(name);
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, name, prefix) != 0 || line[prefix] != '/') continue;
        const char *file = line + prefix + 1;
        if (strcmp(file, "format.json") == 0 || strcmp(file, "optional/content.json") == 0) continue;
        suite_file(line, file, draft, &t);
    }
    free(list);
    print_message("%s: %u documents, %u compiled, %u wrongly accepted, %u wrongly rejected\n", name, t.documents,
                  t.compiled, t.accepted, t.rejected);
    return t;
}

static void data_suite_2020(void **state)
{
    (void)state;
    const struct tally t = suite("draft2020-12", NULL);
    assert_int_equal(t.accepted, 0);
    assert_int_equal(t.rejected, 0);
    assert_true(t.compiled * 100 >= t.documents * 80); /* the bar is 60 */
}

static void data_suite_7(void **state)
{
    (void)state;
    const struct tally t = suite("draft7", "http://json-schema.org/draft-07/schema#");
    assert_int_equal(t.accepted, 0);
    assert_int_equal(t.rejected, 0);
    assert_true(t.compiled * 100 >= t.documents * 80);
}

/* Of their schemas one is nested 200 deep, so these are read by a library. */
static void data_reports(void **state)
{
    (void)state;
    char path[DATA_PATH_MAX];
    json_t *cases = json_load_file(data_path(path, "schemas/issue_cases.json"), JSON_ALLOW_NUL, NULL), *one;
    size_t i, k;
    assert_in_range(json_array_size(cases), 76, 10000);
    json_array_foreach (cases, i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *expect = json_string_value(json_object_get(one, "expect"));
        char *schema = json_dumps(json_object_get(one, "schema"), JSON_COMPACT | JSON_ENCODE_ANY);
        assert_non_null(schema);
        struct grammar *g = compile(schema, strlen(schema), false);
        if (strcmp(expect, g ? "refuse" : "ok") == 0) fail_msg("%s: expected %s: %s", id, expect, text);
        for (int valid = 0; g && valid < 2; valid++) {
            json_t *list = json_object_get(one, valid ? "valid" : "invalid"), *document;
            json_array_foreach (list, k, document) {
                struct schema_ctx c = { .err = &err, .arena = arena_new() };
                const char *t = json_string_value(document);
                bool accepted = text_accepted(g, t, strlen(t), NULL);
                if (!accepted && js_read(&c, t, strlen(t))) accepted = document_accepted(g, c.root);
                if (accepted != valid) fail_msg("%s: %s", id, t);
                arena_free(c.arena);
            }
        }
        grammar_close(g);
        free(schema);
    }
    json_decref(cases);
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),   cmocka_unit_test(test_numbers),      cmocka_unit_test(test_strings),
        cmocka_unit_test(test_arrays),  cmocka_unit_test(test_unique_items), cmocka_unit_test(test_several_contains),
        cmocka_unit_test(test_objects), cmocka_unit_test(test_logic),        cmocka_unit_test(test_references),
        cmocka_unit_test(test_bombs),   cmocka_unit_test(test_compact),      cmocka_unit_test(data_suite_2020),
        cmocka_unit_test(data_suite_7), cmocka_unit_test(data_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
