/* test_schema_clients.c: what real clients send: the ten formats of strict schemas, and schemas in the forms in which
 * libraries of data models write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/schema.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

static struct grammar *compile(const char *schema)
{
    static const struct schema_options strict = { .strict = true };
    struct grammar *g;
    if (grammar_from_schema(schema, strlen(schema), &strict, NULL, &g, &err)) fail_msg("%s: %s", schema, text);
    return g;
}

static void expect(struct grammar *g, const char *schema, const char *json, bool accepted)
{
    struct grammar_match *m;
    assert_int_equal(grammar_match_open(g, NULL, &m, &err), WK_OK);
    const bool taken = !grammar_match_push(m, json, strlen(json), NULL, &err) && grammar_match_complete(m);
    grammar_match_close(m);
    if (taken != accepted) fail_msg("%s: expected %s of %s", schema, accepted ? "yes" : "no", json);
}

/* ---- formats -------------------------------------------------------------------------------------------- */

/* Texts between bars; the first list fits. */
static const struct {
    const char *format, *good, *bad;
} formats[] = {
    { "date", "2024-02-29|2000-02-29|0000-01-01|9999-12-31|2023-04-30",
      "2023-02-29|1900-02-29|2023-04-31|2023-13-01|2023-00-10|2023-1-01|20230101|2023-01-01"
      "T|02023-01-01|2023-01-32" },
    { "time",
      "00:00:00Z|23:59:59.123+23:59|12:30:00-08:00|23:59:60Z|15:59:60-08:00|05:29:60+05:30|"
      "12:00:00z",
      "24:00:00Z|12:60:00Z|12:00:61Z|12:00:00|22:59:60Z|23:59:60+01:00|12:00:00+24:00|12:00"
      ":00+0100|12:00:00.Z|1:00:00Z" },
    { "date-time", "2024-02-29T12:00:00Z|1990-12-31T23:59:60Z|1990-12-31t15:59:60.5-08:00",
      "2023-02-29T12:00:00Z|2024-01-01 12:00:00Z|2024-01-01T12:00:00|2024-01-01|2024-01-01T"
      "25:00:00Z" },
    { "duration", "P1Y|P1Y2M3D|PT1H|PT1H2M3S|P4W|P1DT12H|P0D",
      "P|PT|P1|1Y|P1YT|P1H|PT1D|P1W2D|P1Y2D|PT1H3S|P1.5Y|p1y|P-1D" },
    { "email", "a@b|joe.x+y@example.com|\"a b\"@example.com|a@[127.0.0.1]|a@[IPv6:::1]",
      "a|@b|a@|a@@b|.a@b|a.@b|a..b@c|a b@c|a@-b|a@b..c|a@[::1]|a@exa_mple" },
    { "hostname",
      "a|example.com|x--y.z1|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "a|1.2.3.4",
      "|-a|a-|a..b|.a|a.|a_b|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
      "aa|a b|é" },
    { "ipv4", "0.0.0.0|255.255.255.255|10.1.20.200", "256.0.0.1|1.2.3|1.2.3.4.5|01.2.3.4|1.2.3.|1.2.3.a|0x1.2.3.4" },
    { "ipv6",
      "::|::1|1::|1:2:3:4:5:6:7:8|1::8|::ffff:192.0.2.1|1:2:3:4:5:6:1.2.3.4|1:2:3:4:5:6:7::"
      "|FE80::aBc",
      "|1|1:2:3:4:5:6:7|1:2:3:4:5:6:7:8:9|1::2::3|:1|1:|12345::|g::|::1%eth0|::1/64|::256.1"
      ".1.1|1:2:3:4:5:6:7:1.2.3.4|:::" },
    { "uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380|FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
      "2eb8aa08aa9811eab4aa73b441d16380|2eb8aa08-aa98-11ea-b4aa-73b441d1638|2eb8aa08-aa98-1"
      "1ea-b4aa-73b441d16380 |{2eb8aa08-aa98-11ea-b4aa-73b441d16380}|geb8aa08-aa98-11ea-b4a"
      "a-73b441d16380" },
    { "uri",
      "http://a|urn:a:b|mailto:a@b.c|http://u:p@[::1]:80/a/?q=/?#f/?|a+b-c.d:|file:///x|htt"
      "p://a/%20|data:,x",
      "|a|//a|/a|1a:b|http://a b|http://a/%2|http://[::1|http://a/<|http://a/{x}|http://é|h"
      "ttp://a#b#c|http://a:b" },
};

static void expect_each(struct grammar *g, const char *schema, const char *list, bool accepted)
{
    for (const char *p = list, *end;; p = end + 1) {
        char json[256] = "\"";
        size_t n = 1;
        end = strchr(p, '|');
        if (!end) end = p + strlen(p);
        for (; p < end; p++) {
            if (*p == '"') json[n++] = '\\';
            json[n++] = *p;
        }
        json[n] = '"';
        expect(g, schema, json, accepted);
        if (!*end) return;
    }
}

static void test_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char schema[80];
        (void)snprintf(schema, sizeof schema, "{\"type\":\"string\",\"format\":\"%s\"}", formats[i].format);
        struct grammar *g = compile(schema);
        expect_each(g, schema, formats[i].good, true);
        expect_each(g, schema, formats[i].bad, false);
        grammar_close(g);
    }
}

/* ---- schemas -------------------------------------------------------------------------------------------- */

static const struct {
    const char *what, *schema, *good, *bad;
} schemas[] = {
    { "nested models, optional, enumerations by reference, a decimal, a set, a tuple, a map",
      "{\"$defs\":{\"Color\":{\"enum\":[\"red\",\"green\"],\"title\":\"Color\",\"type\":\"string\"},\"Place\":{"
      "\"properties\":{\"town\":{\"title\":\"Town\",\"type\":\"string\"},\"code\":{\"pattern\":\"^\\\\d{5}(-\\\\"
      "d{4})?$\",\"type\":\"string\"}},\"required\":[\"town\",\"code\"],\"title\":\"Place\",\"type\":\"object"
      "\"}},\"properties\":{\"name\":{\"maxLength\":20,\"minLength\":1,\"title\":\"Name\",\"type\":\"string"
      "\"},\"place\":{\"anyOf\":[{\"$ref\":\"#/$defs/Place\"},{\"type\":\"null\"}],\"default\":null},\"colo"
      "rs\":{\"items\":{\"$ref\":\"#/$defs/Color\"},\"title\":\"Colors\",\"type\":\"array\",\"uniqueItems\":"
      "true},\"price\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)["
      "+-]?0*(?:\\\\d{0,3}|(?=[\\\\d.]{1,6}0*$)\\\\d{0,3}\\\\.\\\\d{0,2}0*$)\"}]},\"pair\":{\"maxItems\":2"
      ",\"minItems\":2,\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"type\":\"array\"},\""
      "counts\":{\"additionalProperties\":{\"type\":\"integer\"},\"type\":\"object\"},\"when\":{\"format\""
      ":\"date-time\",\"type\":\"string\"}},\"required\":[\"name\",\"colors\",\"price\",\"pair\",\"counts\",\""
      "when\"],\"title\":\"Order\",\"type\":\"object\"}",
      "{\"name\":\"a\",\"place\":{\"town\":\"b\",\"code\":\"12345-6789\"},\"colors\":[\"red\",\"green\"],\"price"
      "\":\"123.45\",\"pair\":[1,\"x\"],\"counts\":{\"k\":2},\"when\":\"2024-01-01T00:00:00Z\"}",
      "{\"name\":\"a\",\"place\":null,\"colors\":[\"red\",\"red\"],\"price\":1,\"pair\":[1,\"x\"],\"counts\":{}"
      ",\"when\":\"2024-01-01T00:00:00Z\"}" },
    { "a union by discriminator",
      "{\"$defs\":{\"Cat\":{\"properties\":{\"kind\":{\"const\":\"cat\",\"type\":\"string\"},\"lives\":{\"type"
      "\":\"integer\"}},\"required\":[\"kind\",\"lives\"],\"type\":\"object\"},\"Dog\":{\"properties\":{\"kin"
      "d\":{\"const\":\"dog\",\"type\":\"string\"},\"bark\":{\"type\":\"number\"}},\"required\":[\"kind\",\"bar"
      "k\"],\"type\":\"object\"}},\"properties\":{\"pet\":{\"discriminator\":{\"mapping\":{\"cat\":\"#/$def"
      "s/Cat\",\"dog\":\"#/$defs/Dog\"},\"propertyName\":\"kind\"},\"oneOf\":[{\"$ref\":\"#/$defs/Cat\"},{"
      "\"$ref\":\"#/$defs/Dog\"}]}},\"required\":[\"pet\"],\"type\":\"object\"}",
      "{\"pet\":{\"kind\":\"dog\",\"bark\":1.5}}", "{\"pet\":{\"kind\":\"dog\",\"lives\":9}}" },
    { "a recursive model",
      "{\"$defs\":{\"Node\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"left\":{\"anyOf\":[{\"$ref\":\"#/$"
      "defs/Node\"},{\"type\":\"null\"}],\"default\":null}},\"required\":[\"v\"],\"type\":\"object\"}},\"$r"
      "ef\":\"#/$defs/Node\"}",
      "{\"v\":1,\"left\":{\"v\":2,\"left\":null}}", "{\"v\":1,\"left\":{\"left\":null}}" },
    { "any JSON as an alias of itself",
      "{\"$defs\":{\"J\":{\"anyOf\":[{\"additionalProperties\":{\"$ref\":\"#/$defs/J\"},\"type\":\"object\""
      "},{\"items\":{\"$ref\":\"#/$defs/J\"},\"type\":\"array\"},{\"type\":\"string\"},{\"type\":\"integer\"}"
      ",{\"type\":\"null\"}]}},\"$ref\":\"#/$defs/J\"}",
      "{\"a\":[1,{\"b\":null}]}", "{\"a\":[1.5]}" },
    { "draft 7: a tuple, a map as pairs, a set, an intersection, null by type",
      "{\"type\":\"object\",\"properties\":{\"t\":{\"type\":\"array\",\"minItems\":2,\"maxItems\":2,\"items\""
      ":[{\"type\":\"string\"},{\"type\":\"number\"}]},\"s\":{\"type\":\"array\",\"uniqueItems\":true,\"item"
      "s\":{\"type\":\"string\"}},\"n\":{\"type\":[\"string\",\"null\"]},\"both\":{\"allOf\":[{\"type\":\"objec"
      "t\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]},{\"type\":\"object\",\"properti"
      "es\":{\"b\":{\"type\":\"number\"}},\"required\":[\"b\"]}]},\"again\":{\"$ref\":\"#/properties/n\"}},\""
      "required\":[\"t\",\"s\",\"n\",\"both\",\"again\"],\"additionalProperties\":false,\"$schema\":\"http:"
      "//json-schema.org/draft-07/schema#\"}",
      "{\"t\":[\"a\",1],\"s\":[\"x\",\"y\"],\"n\":null,\"both\":{\"a\":\"\",\"b\":0},\"again\":\"z\"}",
      "{\"t\":[\"a\",1],\"s\":[\"x\",\"x\"],\"n\":null,\"both\":{\"a\":\"\",\"b\":0},\"again\":\"z\"}" },
    { "formats written out as patterns, beside the format; safe integers",
      "{\"type\":\"object\",\"properties\":{\"mail\":{\"type\":\"string\",\"format\":\"email\",\"pattern\":\"^"
      "(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*"
      "\\\\.)+[A-Za-z]{2,}$\"},\"span\":{\"type\":\"string\",\"pattern\":\"^P(?:(\\\\d+W)|(?!.*W)(?=\\\\d|T"
      "\\\\d)(\\\\d+Y)?(\\\\d+M)?(\\\\d+D)?(T(?=\\\\d)(\\\\d+H)?(\\\\d+M)?(\\\\d+S)?)?)$\"},\"n\":{\"type\":\"int"
      "eger\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}},\"required\":[\"mail\",\"s"
      "pan\",\"n\"],\"additionalProperties\":false}",
      "{\"mail\":\"a.b@example.com\",\"span\":\"P1DT2H\",\"n\":9007199254740991}",
      "{\"mail\":\"a..b@example.com\",\"span\":\"P1D\",\"n\":1}" },
    { "strict mode: recursion to the root, several types with an enumeration, bounds",
      "{\"type\":\"object\",\"properties\":{\"type\":{\"type\":\"string\",\"enum\":[\"div\",\"form\"]},\"child"
      "ren\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":3},\"unit\":{\"type\":[\"string\",\"nu"
      "ll\"],\"enum\":[\"C\",\"F\",null]},\"step\":{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-130"
      ",\"maximum\":130}},\"required\":[\"type\",\"children\",\"unit\",\"step\"],\"additionalProperties\""
      ":false}",
      "{\"type\":\"div\",\"children\":[{\"type\":\"form\",\"children\":[],\"unit\":null,\"step\":-0.75}],\"u"
      "nit\":\"C\",\"step\":1.5}",
      "{\"type\":\"div\",\"children\":[],\"unit\":\"C\",\"step\":1.3}" },
    { "draft 4: exclusiveMinimum true, items as a list, additionalItems, dependencies",
      "{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"object\",\"properties\":{\""
      "a\":{\"type\":\"number\",\"minimum\":0,\"exclusiveMinimum\":true},\"b\":{\"type\":\"array\",\"items\""
      ":[{\"type\":\"string\"}],\"additionalItems\":false}},\"dependencies\":{\"a\":[\"b\"]},\"additiona"
      "lProperties\":false}",
      "{\"a\":0.5,\"b\":[\"x\"]}", "{\"a\":0.5}" },
    { "anchors, if and else, what is unevaluated",
      "{\"type\":\"object\",\"$dynamicAnchor\":\"n\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"c\":{\"typ"
      "e\":\"array\",\"items\":{\"$dynamicRef\":\"#n\"}}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{"
      "\"const\":\"a\"}}},\"then\":{\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]},\"else"
      "\":{\"properties\":{\"y\":{\"type\":\"null\"}},\"required\":[\"y\"]},\"unevaluatedProperties\":fals"
      "e}",
      "{\"k\":\"a\",\"c\":[{\"k\":\"b\",\"y\":null}],\"x\":1}", "{\"k\":\"a\",\"y\":null}" },
};

static void test_schemas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct grammar *g = compile(schemas[i].schema);
        expect(g, schemas[i].what, schemas[i].good, true);
        expect(g, schemas[i].what, schemas[i].bad, false);
        grammar_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_formats), cmocka_unit_test(test_schemas) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
