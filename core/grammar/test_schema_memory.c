/* test_schema_memory.c: while schemas are compiled the n-th allocation fails, for each n: the caller hears of it, and
 * nothing is lost or touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "failing_memory.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

/* All allocations after the n-th fail as well. */
static void every_failure(const char *schema)
{
    for (uint64_t n = 1;; n++) {
        char text[256] = "";
        const struct wk_err err = { text, sizeof text };
        struct grammar *g = NULL;
        left = n;
        const wk_status status = grammar_from_schema(schema, strlen(schema), NULL, NULL, &g, &err);
        const bool failed = !left;
        left = UINT64_MAX;
        if (!failed) {
            assert_int_equal(status, WK_OK);
            grammar_close(g);
            assert_in_range(n, 10, 10000);
            return;
        }
        if (status == WK_OK) { /* what failed was only wanted for speed */
            grammar_close(g);
            continue;
        }
        assert_null(g);
        assert_true(text[0]);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    every_failure(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"y\\u0041\",3,[1],{\"k\":null}]},\"b\":{\"type\":"
        "\"integer\",\"minimum\":1,\"multipleOf\":3,\"not\":{\"const\":9}}},\"required\":[\"a\",\"z\"],"
        "\"patternProperties\":{\"^x-\":{\"type\":\"string\",\"format\":\"date\"}},\"additionalProperties\":"
        "{\"type\":\"boolean\"}}");
    every_failure(
        "{\"$defs\":{\"t\":{\"$anchor\":\"t\",\"type\":\"array\",\"items\":{\"$ref\":\"#t\"},\"contains\":"
        "{\"minItems\":1},\"maxContains\":2}},\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"type\":[\"array\",\"null\"],"
        "\"prefixItems\":[{\"type\":\"string\",\"pattern\":\"a\"}]},{\"if\":{\"type\":\"string\"},\"then\":"
        "{\"minLength\":3}}]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
