/* test_mixture.c: which type each mixture gives to each matrix, beside what the programs that made these names give. */
#include "mixture.h" /* before cmocka.h, which makes `fail` a macro */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *type_of(const char *mixture, const struct mixture_model *m, const char *name)
{
    const struct gguf_tensor t = { .name = { name, strlen(name) }, .n_dims = 2, .ne = { 256, 256, 1, 1 } };
    const struct mixture *found = mixture_named(mixture);
    if (!found) fail_msg("%s: no mixture", mixture);
    return mixture_type(found, m, &t);
}

/* Of 32 layers: in layer 0, then in layer 10. */
static const char *const names[] = {
    "token_embd.weight",     "output.weight",         "blk.0.attn_q.weight",      "blk.0.attn_k.weight",
    "blk.0.attn_v.weight",   "blk.0.attn_qkv.weight", "blk.0.attn_output.weight", "blk.0.ffn_up.weight",
    "blk.0.ffn_down.weight", "blk.10.attn_v.weight",  "blk.10.ffn_gate.weight",   "blk.10.ffn_down.weight",
};
enum { NAMES = sizeof names / sizeof *names };

struct expected {
    const char *mixture, *types; /* in the order of names, a space between */
};

static void check(const struct mixture_model *m, const struct expected *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char got[256] = "";
        for (size_t k = 0; k < NAMES; k++) {
            const size_t at = strlen(got);
            (void)snprintf(got + at, sizeof got - at, "%s%s", k ? " " : "", type_of(expected[i].mixture, m, names[k]));
        }
        if (strcmp(got, expected[i].types) != 0)
            fail_msg("%s:\n  %s, expected\n  %s", expected[i].mixture, got, expected[i].types);
    }
}
#define CHECK(m, table) check(m, table, sizeof table / sizeof *(table))

/* Each query head has a value head of its own; with importance. */
static void test_dense(void **state)
{
    (void)state;
    static const struct expected table[] = {
        /* embedding output q k v qkv attn_output up down; v gate down */
        { "Q4_0", "q4_0 q6_K q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0" },
        { "Q4_K_S", "q4_K q6_K q4_K q4_K q5_K q4_K q4_K q4_K q5_K q4_K q4_K q4_K" },
        { "Q4_K_M", "q4_K q6_K q4_K q4_K q6_K q5_K q4_K q4_K q6_K q4_K q4_K q4_K" },
        { "Q5_K_M", "q5_K q6_K q5_K q5_K q6_K q6_K q5_K q5_K q6_K q5_K q5_K q5_K" },
        { "Q2_K", "q2_K q6_K q2_K q2_K q3_K q3_K q3_K q2_K q3_K q3_K q2_K q3_K" },
        { "Q2_K_S", "q2_K q6_K q2_K q2_K q2_K q2_K q2_K q2_K q4_K q2_K q2_K q2_K" },
        { "Q3_K_S", "q3_K q6_K q3_K q3_K q3_K q3_K q3_K q3_K q3_K q3_K q3_K q3_K" },
        { "Q3_K_M", "q3_K q6_K q3_K q3_K q5_K q5_K q4_K q3_K q5_K q4_K q3_K q4_K" },
        { "Q3_K_L", "q3_K q6_K q3_K q3_K q5_K q5_K q5_K q3_K q5_K q5_K q3_K q5_K" },
        { "IQ4_XS", "iq4_xs q6_K iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs" },
        { "IQ3_M", "iq3_s q6_K iq3_s iq3_s q4_K q4_K q4_K iq3_s q4_K q4_K iq3_s iq3_s" },
        { "IQ3_S", "iq3_s q6_K iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s" },
        { "IQ3_XS", "iq3_s q6_K iq3_xxs iq3_xxs iq3_s iq3_s iq3_s iq3_s iq3_s iq3_s iq3_xxs iq3_s" },
        { "IQ3_XXS", "iq3_s q5_K iq2_s iq2_s iq3_xxs iq3_xxs iq3_s iq3_xxs iq3_xxs iq3_xxs iq3_xxs iq3_xxs" },
        { "IQ2_M", "iq3_s q5_K iq2_s iq2_s iq3_s iq3_s iq3_s iq2_s iq3_s iq3_s iq2_s iq2_s" },
        { "IQ2_S", "iq3_s q5_K iq2_xs iq2_xs iq3_s iq3_s iq3_s iq2_xs iq3_s iq3_s iq2_xs iq2_xs" },
        { "IQ2_XS", "q2_K q5_K iq2_xs iq2_xs q2_K q2_K iq2_xs iq2_xs q2_K q2_K iq2_xs iq2_xs" },
        { "iq2_xxs", "q2_K q5_K iq2_xxs iq2_xxs q2_K q2_K iq2_xxs iq2_xxs q2_K q2_K iq2_xxs iq2_xxs" },
        { "IQ1_S", "q2_K q5_K iq1_s iq1_s q2_K q2_K iq2_xxs iq1_s q2_K q2_K iq1_s iq1_s" },
        { "IQ1_M", "q2_K q5_K iq1_m iq1_m q2_K q2_K iq2_xxs iq1_m q2_K q2_K iq1_m iq1_m" },
        { "TQ1_0", "q4_K q6_K tq1_0 tq1_0 tq1_0 tq1_0 tq1_0 tq1_0 tq1_0 tq1_0 tq1_0 tq1_0" },
    };
    CHECK(&((struct mixture_model){ .layers = 32, .sharing = 1, .weighed = true }), table);
}

/* Without importance a few rules are others; four query heads share a value head. */
static void test_unweighed(void **state)
{
    (void)state;
    static const struct expected table[] = {
        { "Q2_K", "q2_K q6_K q2_K q2_K q4_K q4_K q3_K q2_K q3_K q4_K q2_K q3_K" },
        { "Q2_K_S", "q2_K q6_K q2_K q2_K q4_K q4_K q2_K q2_K q4_K q4_K q2_K q2_K" },
        { "IQ4_XS", "iq4_xs q6_K iq4_xs iq4_xs q5_K q5_K iq4_xs iq4_xs q5_K q5_K iq4_xs iq4_xs" },
        { "IQ3_XS", "iq3_s q6_K iq3_xxs iq3_xxs q4_K q4_K iq3_s iq3_s iq3_s q4_K iq3_xxs iq3_s" },
        { "IQ3_XXS", "iq3_s q5_K iq3_xxs iq3_xxs q4_K q4_K iq3_s iq3_xxs q4_K q4_K iq3_xxs q3_K" },
        { "IQ2_M", "iq3_s q5_K iq2_s iq2_s q4_K q4_K iq3_s iq2_s iq3_s q4_K iq2_s iq2_s" },
        { "IQ1_S", "q2_K q5_K iq1_s iq1_s q4_K q4_K iq2_xxs iq1_s q2_K q4_K iq1_s iq1_s" },
    };
    CHECK(&((struct mixture_model){ .layers = 32, .sharing = 4 }), table);
}

static void test_experts(void **state)
{
    (void)state;
    static const struct expected table[] = {
        { "Q4_K_M", "q4_K q6_K q4_K q8_0 q8_0 q5_K q4_K q4_K q6_K q8_0 q4_K q4_K" },
        { "Q2_K", "q2_K q6_K q2_K q8_0 q8_0 q8_0 q5_K q2_K q3_K q8_0 q2_K q3_K" },
        { "Q3_K_L", "q3_K q6_K q3_K q8_0 q8_0 q8_0 q3_K q3_K q5_K q8_0 q3_K q5_K" },
        { "IQ3_M", "iq3_s q6_K iq3_s q8_0 q8_0 q8_0 q5_K iq3_s q4_K q8_0 iq3_s iq3_s" },
        { "IQ2_XXS", "q2_K q5_K iq2_xxs q4_K q4_K q4_K q5_K iq2_xxs q2_K q4_K iq2_xxs iq2_xxs" },
    };
    const struct mixture_model m = { .layers = 32, .sharing = 4, .experts = 8, .weighed = true };
    CHECK(&m, table);
    assert_string_equal(type_of("MXFP4_MOE", &m, "blk.3.ffn_up_exps.weight"), "mxfp4");
    assert_string_equal(type_of("MXFP4_MOE", &m, "blk.3.ffn_up_shexp.weight"), "q8_0");
    assert_string_equal(type_of("IQ2_XS", &m, "blk.3.ffn_down_exps.weight"), "q2_K");
    assert_string_equal(type_of("IQ2_XS", &m, "blk.4.ffn_down.7.weight"), "iq2_xs");
    assert_string_equal(type_of("IQ3_M", &m, "blk.6.ffn_down_exps.weight"), "q4_K"); /* every third layer */
}

/* The head is the embedding: of no mixture less than the head's type. Llama 70B. */
static void test_others(void **state)
{
    (void)state;
    const struct mixture_model tied = { .layers = 32, .sharing = 1, .tied = true, .weighed = true },
                               large = { .layers = 80, .sharing = 8, .llama_70b = true, .weighed = true };
    assert_string_equal(type_of("IQ1_S", &tied, "token_embd.weight"), "q5_K");
    assert_string_equal(type_of("TQ2_0", &tied, "token_embd.weight"), "q6_K");
    static const char *const values[] = { "Q4_K_S", "Q4_K_M", "Q3_K_S", "Q3_K_M", "Q2_K", "IQ3_XXS", "IQ3_M" };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_string_equal(type_of(values[i], &large, "blk.31.attn_v.weight"), "q5_K");
    assert_string_equal(type_of("IQ2_S", &large, "blk.31.attn_v.weight"), "q4_K");
    for (size_t i = 0; i < 2; i++) { /* what makes a reranker's scores is read once a text: without importance */
        const char *name = i ? "cls.output.weight" : "cls.weight";
        assert_string_equal(type_of("IQ1_S", &tied, name), "q5_K");
        assert_string_equal(type_of("IQ2_M", &tied, name), "q5_K");
        assert_string_equal(type_of("Q4_K_M", &tied, name), "q4_K");
    }
    assert_null(mixture_named("Q3_K"));
    assert_string_equal(mixture_fallback("iq2_xxs", false), "iq4_nl");
    assert_string_equal(mixture_fallback("tq1_0", false), "q4_0");
    assert_string_equal(mixture_fallback("q5_K", false), "q5_1");
    assert_string_equal(mixture_fallback("q5_K", true), "q8_0"); /* the head of IQ2 and less in a narrow model */
    assert_string_equal(mixture_fallback("q8_0", true), "f16");
    assert_null(mixture_fallback("f16", true));
}

static bool of_step(uint32_t layers, uint32_t ahead, const char *name)
{
    const struct gguf_tensor t = { .name = { name, strlen(name) }, .n_dims = 2, .ne = { 256, 256, 1, 1 } };
    return mixture_is_of_step(&(struct mixture_model){ .layers = layers, .ahead = ahead }, &t);
}

static void test_layers_ahead(void **state)
{
    (void)state;
    assert_true(of_step(12, 2, "blk.9.attn_q.weight"));
    assert_false(of_step(12, 2, "blk.10.attn_q.weight"));
    assert_false(of_step(12, 2, "blk.11.nextn.eh_proj.weight"));
    assert_true(of_step(12, 0, "blk.11.attn_q.weight") && of_step(12, 0, "blk.12.attn_q.weight"));
    assert_false(of_step(12, 0, "output.weight"));
    assert_true(of_step(2, 2, "blk.1.attn_q.weight")); /* no such model: nothing is left out */
    assert_true(of_step(0, 1, "blk.0.attn_q.weight"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_dense), cmocka_unit_test(test_unweighed),
                                        cmocka_unit_test(test_experts), cmocka_unit_test(test_others),
                                        cmocka_unit_test(test_layers_ahead) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
