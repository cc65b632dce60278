/* test_capability.c: a descriptor against a profile: each part of it that the profile lacks is said, in one sentence.
 */
#include "capability/capability.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char profile[] =
    "{\"supports_architecture\":[\"llama\",\"gpt-oss\"],\"supports_positional\":[\"rope_llama\",\"yarn\"],"
    "\"supports_attention\":[\"mha\",\"gqa\",\"swa\"],\"supports_quant\":[\"f32\",\"q4_k\"],\"max_context\":4096,"
    "\"max_vocab\":1000}";

static json_t *descriptor(void)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:i, s:i}", "architecture", "llama", "positional", "yarn", "attention",
                     "gqa swa", "quant", "f32", "q4_k", "context_max", 4096, "vocab_size", 1000);
}

static void subset(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value; /* JSON; NULL: as it was */
        const char *sentence;    /* NULL: a subset */
    } rows[] = {
        { "architecture", NULL, NULL },
        { "attention", "\"mha\"", NULL },
        { "quant", "[]", NULL },
        { "architecture", "\"mamba\"", "model requires architecture mamba, worker only supports llama, gpt-oss" },
        { "positional", "\"alibi\"", "model requires positional alibi, worker only supports rope_llama, yarn" },
        { "attention", "\"mqa\"", "model requires attention mqa, worker only supports mha, gqa, swa" },
        { "attention", "\"gqa swa sinks\"", "model requires attention sinks, worker only supports mha, gqa, swa" },
        { "attention", "\"gq\"", "model requires attention gq, worker only supports mha, gqa, swa" },
        { "quant", "[\"f32\", \"iq2_xs\"]", "model requires iq2_xs, worker only supports f32, q4_k" },
        { "context_max", "4097", "model requires context 4097, worker only supports up to 4096" },
        { "vocab_size", "1001", "model requires vocabulary 1001, worker only supports up to 1000" },
    };
    json_t *ecp = json_loads(profile, 0, NULL);
    assert_non_null(ecp);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct missing missing = { .n = 0 };
        json_t *mcd = descriptor();
        if (rows[i].value)
            assert_int_equal(json_object_set_new(mcd, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL)),
                             0);
        capabilities_compare(mcd, ecp, &missing);
        assert_int_equal(missing.n, rows[i].sentence != NULL);
        if (rows[i].sentence) assert_string_equal(missing.sentence[0], rows[i].sentence);
        missing_free(&missing);
        json_decref(mcd);
    }
    json_decref(ecp);
}

static void all_are_said(void **state)
{
    (void)state;
    struct missing missing = { .n = 0 };
    json_t *mcd = descriptor(), *nothing = json_object();
    capabilities_compare(mcd, nothing, &missing);
    assert_int_equal(missing.n, 8); /* architecture, positional, two words of attention, two types, two numbers */
    missing_free(&missing);
    json_decref(mcd);
    json_decref(nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(subset), cmocka_unit_test(all_are_said) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
