/* test_phi3.c: what phi3.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum {
    SHORT,
    LONG,
    MINI,
    FILES
}; /* Phi-3 of 4K, of 128K; Phi-4-mini: three quarters of a head rotate, a tied output */
enum { TRAINED = 64, TIED = MINI };
static const float few[T_D / 2] = { 1, 1.5f, 2, 2.5f }, many[T_D / 2] = { 1, 4, 16, 64 };

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-5, false } },
                                 longer_ones[] = { { "rope.scaling.original_context_length", TRAINED, true },
                                                   { "rope.scaling.attn_factor", 1.1902381, false } };
    static const struct arch_shape layer[] = { { "attn_norm.weight", 1, T_E, 1 },
                                               { "attn_qkv.weight", (T_H + 2 * T_G) * T_D, T_E, 1 },
                                               { "attn_output.weight", T_E, T_H * T_D, 1 },
                                               { "ffn_norm.weight", 1, T_E, 1 },
                                               { "ffn_up.weight", 2 * T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 } },
                                   outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    const uint32_t rotate = file == MINI ? T_D / 4 * 3 : T_D;
    struct gguf_build *g = gguf_build_new("phi3");
    arch_put_keys(g, "phi3", keys, ARCH_COUNT(keys));
    gguf_build_u32(g, "phi3.rope.dimension_count", rotate);
    gguf_build_u32(g, "phi3.attention.sliding_window", file == MINI ? 0 : 2047);
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file != TIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    if (file == SHORT) return g;
    arch_put_keys(g, "phi3", longer_ones, ARCH_COUNT(longer_ones));
    gguf_build_floats(g, "rope_factors_short.weight", 1, rotate / 2, 1, few);
    gguf_build_floats(g, "rope_factors_long.weight", 1, rotate / 2, 1, many);
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "output.weight") == 0) return NULL;
    return strncmp(tensor, "rope_", 5) == 0 ? "the file has one without the other" : tensor;
}
/* The embedding says itself how many tokens there are: a row more is one that the head lacks, or, tied, one token
 * more. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == TIED ? NULL : "output.weight";
}

static const struct arch_test test = { "phi3", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        struct tape_capabilities c;
        for (uint32_t l = 0; l < T_L; l++) assert_int_equal(test_launches_of_layer(r.p, l), 5);
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        const struct tape_op *k = arch_op(r.p, "blk.0.attn_qkv.2"), *u = arch_op(r.p, "blk.0.ffn_up.2");
        assert_true(k->u.linear.first == T_H * T_D && k->u.linear.n == T_G * T_D);
        assert_true(u->u.linear.first == T_F && u->u.linear.n == T_F); /* gate, then up */
        const struct tape_op *rope = arch_op(r.p, "blk.0.attn_qkv.rope");
        assert_true(rope->u.rope.style == WK_ROPE_HALF && rope->u.rope.head == T_D);
        assert_int_equal(rope->u.rope.n, file == MINI ? 3 : 4);
        arch_near((double)arch_op(r.p, "blk.0.attention")->u.attn.scale, 1 / sqrt(T_D));
        assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 0);
        assert_string_equal(arch_weight(r.p, "logits"), file == TIED ? "token_embd.weight" : "output.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, file == SHORT ? "rope_neox" : "longrope");
        arch_close(&r);
    }
}

/* By the positions that are allocated, not by those that are used. */
static void table_by_context(void **state)
{
    (void)state;
    static const struct {
        uint32_t file, context;
        double factor;
    } rows[] = { { LONG, TRAINED, 2 }, { LONG, TRAINED + 1, 16 }, { LONG, 0, 16 },
                 { MINI, TRAINED, 2 }, { MINI, TRAINED + 1, 16 }, { SHORT, 0, 1 } };
    for (size_t i = 0; i < ARCH_COUNT(rows); i++) {
        struct arch_opened r = arch_record_for(&test, make(rows[i].file), rows[i].context);
        const struct tape_op *o = arch_op(r.p, "blk.0.attn_qkv.rope");
        arch_near(o->u.rope.freq[2], pow(10000, -2.0 / o->u.rope.n) / rows[i].factor);
        arch_near(o->u.rope.mscale, rows[i].file == SHORT ? 1 : 1.1902381);
        arch_close(&r);
    }
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, SHORT);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { SHORT,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { SHORT,
          { "attention.head_count_kv", 4, true },
          "blk.0.attn_qkv.weight: the file has 64 rows x 32 columns, the plugin asks for 96 x 32" },
        { SHORT, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { SHORT, { "rope.scaling.factor", 4, false }, "phi3.rope.scaling.factor" },
        { LONG,
          { "rope.dimension_count", 6, true },
          "rope_factors_long.weight: the file has 1 rows x 4 columns, the plugin asks for 1 x 3" },
        { LONG, { "rope.scaling.attn_factor", 0, false }, "phi3.rope.scaling.attn_factor" },
        { SHORT, { "expert_count", 16, true }, "phi3.expert_count" },
        { SHORT, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { SHORT, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void scalings(void **state)
{
    (void)state;
    struct gguf_build *g = make(SHORT);
    gguf_build_str(g, "phi3.rope.scaling.type", "yarn");
    arch_must_refuse(&test, g, "rope.scaling.type is yarn; none and longrope are served");
    gguf_build_str(g, "phi3.rope.scaling.type", "longrope");
    arch_must_refuse(
        &test, g,
        "rope.scaling.type is longrope, but rope_factors_long.weight and rope_factors_short.weight are missing");
    gguf_build_str(g, "phi3.rope.scaling.type", "none");
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_free(g);
    const float factors[T_D / 2] = { 1, 0, NAN, 1 };
    g = make(LONG);
    gguf_build_str(g, "phi3.rope.scaling.type", "longrope");
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_floats(g, "rope_factors_long.weight", 1, T_D / 2, 1, factors);
    arch_must_refuse(&test, g, "blk.0.attn_qkv.rope: frequency 1 is not a finite number");
    gguf_build_free(g);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { SHORT, "blk.0.ffn_gate.weight" },
                                                { SHORT, "blk.0.attn_qkv.bias" },
                                                { LONG, "rope_freqs.weight" },
                                                { MINI, "output.bias" },
                                                { MINI, "blk.3.attn_norm.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(table_by_context), ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),          cmocka_unit_test(relations),        cmocka_unit_test(scalings),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
