/* test_schema_walk.c: random schemas, followed at random. What has compiled has a mask wherever a text stands, of which
 * every token can be taken, and every text can be ended: nothing is refused once a job has begun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "grammar/grammar_internal.h"
#include "grammar/schema.h"
#include "vocab_builder.h"

enum { N_SCHEMAS = 1000, STEPS = 60, ENDING = 6000, MAX_DEEP = 4, SCHEMA_BYTES = 1 << 16 };

static char text[512];
static const struct wk_err err = { text, sizeof text };

/* ---- schemas ------------------------------------------------------------------------------------------------ */

static struct {
    char bytes[SCHEMA_BYTES];
    size_t n;
} made;

WK_PRINTF(1, 2)
static void put(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(made.bytes + made.n, sizeof made.bytes - made.n, format, args);
    va_end(args);
    assert_in_range(n, 0, sizeof made.bytes - made.n - 1);
    made.n += (size_t)n;
}

static void schema(uint32_t deep);

static void list(const char *keyword, uint32_t n, uint32_t deep)
{
    put("\"%s\":[", keyword);
    for (uint32_t i = 0; i < n; i++) {
        if (i) put(",");
        schema(deep);
    }
    put("]");
}

static void string(void)
{
    static const char *const patterns[] = { "^[ab]+$", "a", "^(a|b)*a(a|b){3}$", "^.{0,5}$", "b$", "^[^a]*$" };
    put("\"type\":\"string\"");
    if (!draw(3)) put(",\"minLength\":%u", draw(4));
    if (!draw(3)) put(",\"maxLength\":%u", 3 + draw(20));
    if (!draw(2)) put(",\"pattern\":\"%s\"", patterns[draw(6)]);
    if (!draw(6)) put(",\"format\":\"%s\"", draw(2) ? "date-time" : "uuid");
}

static void array(uint32_t deep)
{
    put("\"type\":\"array\",\"items\":");
    schema(deep + 1);
    if (!draw(3)) {
        put(",");
        list("prefixItems", 1 + draw(3), deep + 1);
    }
    if (!draw(3)) put(",\"minItems\":%u", draw(3));
    if (!draw(3)) put(",\"maxItems\":%u", 2 + draw(5));
    if (!draw(6)) put(",\"uniqueItems\":true");
    if (draw(8)) return;
    put(",\"contains\":");
    schema(deep + 1);
}

static void object(uint32_t deep)
{
    const uint32_t n = draw(5);
    put("\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < n; i++) {
        put("%s\"%c%s\":", i ? "," : "", 'a' + (int)i, draw(2) ? "" : "b");
        schema(deep + 1);
    }
    put("}");
    if (!draw(2)) put(",\"required\":[\"%s\"]", draw(2) ? "a" : "zz");
    if (!draw(2)) put(",\"additionalProperties\":false");
    if (!draw(5)) put(",\"minProperties\":%u", draw(4));
    if (!draw(5)) put(",\"maxProperties\":%u", 1 + draw(4));
    if (draw(5)) return;
    put(",\"patternProperties\":{\"^%c\":", 'a' + (int)draw(3));
    schema(deep + 1);
    put(",\"b$\":");
    schema(deep + 1);
    put("}");
}

static void one_kind(uint32_t deep)
{
    switch (draw(deep < MAX_DEEP ? 8 : 5)) {
    case 0: put("\"type\":\"integer\",\"minimum\":%d,\"maximum\":%u", -(int)draw(200), draw(3000)); return;
    case 1: put("\"enum\":[\"a\",\"ab\",%u,[true],{\"a\":null}]", draw(9)); return;
    case 2: put("\"type\":[\"boolean\",\"null\",\"number\"]"); return;
    case 3: string(); return;
    case 4: put("\"$ref\":\"#/$defs/%c\"", 'p' + (int)draw(2)); return;
    case 5: array(deep); return;
    default: object(deep); return;
    }
}

static void schema(uint32_t deep)
{
    static const char *const logic[] = { "anyOf", "anyOf", "oneOf", "allOf" };
    put("{");
    if (deep >= MAX_DEEP || draw(3))
        one_kind(deep);
    else if (draw(8))
        list(logic[draw(4)], 2 + draw(draw(4) ? 3 : 12), deep + 1);
    else {
        put("\"not\":");
        schema(deep + 1);
    }
    put("}");
}

static void make_schema(void)
{
    made.n = 0;
    put("{\"$defs\":{\"p\":");
    schema(1);
    put(",\"q\":");
    schema(1);
    put("},");
    list(draw(2) ? "anyOf" : "allOf", 1 + draw(2), 0);
    put("}");
}

/* ---- a vocabulary ------------------------------------------------------------------------------------------- */

static struct builder builder;
static struct tokenizer *tokenizer;
static struct grammar_index *vocabulary;

static int open_vocabulary(void **state)
{
    (void)state;
    static const char *const pieces[] = { "{\"", "\":", "\",\"", "}]", "[[", "aa", "ab", "true", "null", "12" };
    builder_bpe(&builder, "gpt-2");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        (void)builder_token(&builder, pieces[i], TOKEN_USER_DEFINED, 0);
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|end|>", TOKEN_CONTROL, 0));
    return builder_open(&builder, &tokenizer, &err) ||
           grammar_index_open(tokenizer, tokenizer_size(tokenizer), &vocabulary, &err);
}

static int close_vocabulary(void **state)
{
    (void)state;
    grammar_index_close(vocabulary);
    tokenizer_close(tokenizer);
    return 0;
}

/* ---- following ---------------------------------------------------------------------------------------------- */

static uint32_t allowed(const struct grammar_mask *mask, uint32_t k)
{
    for (uint32_t id = 0; id < tokenizer_size(tokenizer); id++)
        if (mask->bits[id / 64] >> id % 64 & 1 && !k--) return id;
    fail_msg("%u tokens are allowed, and not so many found", mask->n_allowed);
    return 0;
}

/* Towards the end: what closes, and of the rest what comes first. */
static uint32_t closing(const struct grammar_mask *mask)
{
    static const char order[] = "\"]},:0";
    for (const char *c = order; *c; c++)
        for (uint32_t id = 0; id < tokenizer_size(tokenizer); id++) {
            const struct token_bytes bytes = grammar_index_bytes(vocabulary, id);
            if (mask->bits[id / 64] >> id % 64 & 1 && bytes.len == 1 && bytes.data[0] == *c) return id;
        }
    return allowed(mask, draw(mask->n_allowed));
}

/* Follows a grammar; true: its text has been ended. */
static bool walk(struct grammar *g)
{
    struct grammar_match *m;
    bool ended = false;
    if (grammar_match_open(g, vocabulary, &m, &err)) fail_msg("%s: %s", made.bytes, text);
    for (uint32_t i = 0; i < ENDING && !ended; i++) {
        struct grammar_mask mask;
        if (grammar_match_mask(m, &mask, &err)) fail_msg("%s: after %u tokens: %s", made.bytes, i, text);
        const bool complete = grammar_match_complete(m);
        const uint32_t end = tokenizer_size(tokenizer) - 1;
        assert_int_equal(mask.bits[end / 64] >> end % 64 & 1, complete);
        const uint32_t id = i < STEPS ? allowed(&mask, draw(mask.n_allowed)) : complete ? end : closing(&mask);
        if (grammar_match_accept(m, id, &err)) fail_msg("%s: token %u: %s", made.bytes, id, text);
        ended = id == end;
    }
    grammar_match_close(m);
    return ended;
}

static void test_random_schemas(void **state)
{
    (void)state;
    uint32_t compiled = 0, ended = 0, over_limit = 0;
    for (uint32_t i = 0; i < N_SCHEMAS; i++) {
        struct grammar *g;
        make_schema();
        const wk_status status = grammar_from_schema(made.bytes, made.n, NULL, NULL, &g, &err);
        assert_true(status == WK_OK || status == WK_INVALID || status == WK_UNSUPPORTED);
        if (status) continue;
        compiled++;
        for (int k = 0; k < 2; k++) ended += walk(g);
        over_limit += g->over_limit;
        grammar_close(g);
    }
    print_message("%u of %u compile, %u of %u texts ended, %u needed too many stacks\n", compiled, N_SCHEMAS, ended,
                  2 * compiled, over_limit);
    assert_true(2 * compiled > N_SCHEMAS);
    assert_true(ended > 2 * compiled * 9 / 10); /* the others are in recursion that is not closed in time */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random_schemas) };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
