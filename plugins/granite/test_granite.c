/* test_granite.c: what granite.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { DENSE, MOE, SHARED, FILES }; /* the dense one is tied */
enum { SHARED_F = 96 };

static const char *architecture(uint32_t file) { return file == DENSE ? "granite" : "granitemoe"; }

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                            { "rope.dimension_count", T_D, true },
                                            { "rope.freq_base", 1e7, false },
                                            { "attention.scale", 0.0078125, false },
                                            { "embedding_scale", 12, false },
                                            { "residual_scale", 0.25, false },
                                            { "logit_scale", 8, false } };
    static const struct arch_key of_experts[] = { { "expert_count", T_X, true }, { "expert_used_count", T_K, true } };
    static const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },           { "attn_q.weight", T_H * T_D, T_E, 1 },
        { "attn_k.weight", T_G * T_D, T_E, 1 },      { "attn_v.weight", T_G * T_D, T_E, 1 },
        { "attn_output.weight", T_E, T_H * T_D, 1 }, { "ffn_norm.weight", 1, T_E, 1 },
    };
    static const struct arch_shape dense[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                                               { "ffn_up.weight", T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 } };
    static const struct arch_shape experts[] = { { "ffn_gate_inp.weight", T_X, T_E, 1 },
                                                 { "ffn_gate_exps.weight", T_F, T_E, T_X },
                                                 { "ffn_up_exps.weight", T_F, T_E, T_X },
                                                 { "ffn_down_exps.weight", T_E, T_F, T_X } };
    static const struct arch_shape shared[] = { { "ffn_gate_shexp.weight", SHARED_F, T_E, 1 },
                                                { "ffn_up_shexp.weight", SHARED_F, T_E, 1 },
                                                { "ffn_down_shexp.weight", T_E, SHARED_F, 1 } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new(architecture(file));
    arch_put_keys(g, architecture(file), keys, ARCH_COUNT(keys));
    if (file != DENSE) arch_put_keys(g, architecture(file), of_experts, ARCH_COUNT(of_experts));
    if (file == SHARED) gguf_build_u32(g, "granitemoe.expert_shared_feed_forward_length", SHARED_F);
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file != DENSE) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) {
        arch_put_layer(g, l, layer, ARCH_COUNT(layer));
        if (file == DENSE)
            arch_put_layer(g, l, dense, ARCH_COUNT(dense));
        else
            arch_put_layer(g, l, experts, ARCH_COUNT(experts));
        if (file == SHARED) arch_put_layer(g, l, shared, ARCH_COUNT(shared));
    }
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are: a row more is one that the head lacks, or, tied, one token
 * more. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == DENSE ? NULL : "output.weight";
}

static const struct arch_test test = { "granite", FILES, architecture, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        const struct tape_op *a = arch_op(r.p, "blk.1.attention"), *rope = arch_op(r.p, "blk.1.attn_q.rope"),
                             *embed = arch_op(r.p, "token_embd.scale"), *logits = arch_op(r.p, "logits"),
                             *branch = arch_op(r.p, "blk.1.attn_output.scale");
        assert_int_equal(a->u.attn.window, 0);
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G && a->u.attn.head_k == T_D);
        arch_near((double)a->u.attn.scale, 0.0078125);
        assert_int_equal(rope->u.rope.style, WK_ROPE_INTERLEAVED);
        arch_near(rope->u.rope.freq[1], pow(1e7, -0.25));
        assert_true(embed->u.unary.fn == WK_UNARY_SCALE && branch->u.unary.fn == WK_UNARY_SCALE);
        arch_near((double)embed->u.unary.p, 12);
        arch_near((double)branch->u.unary.p, 0.25);
        assert_int_equal(logits->u.unary.fn, WK_UNARY_SCALE);
        arch_near((double)logits->u.unary.p, 1.0 / 8); /* divides */
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "rope_llama");
        assert_string_equal(c.attention, "gqa");
        arch_close(&r);
    }
}

/* The scale of a branch is that of the chosen experts' weights, and of the shared one's result. */
static void feed_forward(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(DENSE));
    arch_near((double)arch_op(r.p, "blk.1.ffn_down.scale")->u.unary.p, 0.25);
    arch_close(&r);
    for (uint32_t file = MOE; file <= SHARED; file++) {
        r = arch_record(&test, make(file));
        const struct tape_op *route = arch_op(r.p, "blk.1.route");
        assert_int_equal(route->u.route.k, T_K);
        assert_int_equal(route->u.route.score, WK_SCORE_SOFTMAX_TOPK);
        arch_near((double)route->u.route.scale, 0.25);
        if (file == SHARED) arch_near((double)arch_op(r.p, "blk.1.ffn_down_shexp.scale")->u.unary.p, 0.25);
        assert_string_equal(arch_weight(r.p, "blk.2.ffn_down_exps"), "blk.2.ffn_down_exps.weight");
        arch_close(&r);
    }
}

/* Absent, and 0: the scores' is a head's, the others are 1, which is no operation. */
static void no_scales(void **state)
{
    (void)state;
    static const char *const keys[] = { "granite.attention.scale", "granite.embedding_scale", "granite.residual_scale",
                                        "granite.logit_scale" };
    for (uint32_t zero = 0; zero < 2; zero++) {
        struct gguf_build *g = make(DENSE);
        for (size_t i = 0; i < ARCH_COUNT(keys); i++)
            if (zero)
                gguf_build_f32(g, keys[i], 0);
            else
                gguf_build_drop(g, keys[i]);
        struct arch_opened r = arch_record(&test, g);
        arch_near((double)arch_op(r.p, "blk.0.attention")->u.attn.scale, 1 / sqrt(T_D));
        assert_int_equal(arch_op(r.p, "logits")->kind, WK_OP_LINEAR);
        for (uint32_t i = 0; i < r.p->n_ops; i++) assert_int_not_equal(r.p->ops[i].kind, WK_OP_UNARY);
        arch_close(&r);
    }
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, DENSE);
    arch_arrays(&test, SHARED);
}

static void rotation(void **state)
{
    (void)state;
    struct gguf_build *g = make(DENSE);
    gguf_build_bool(g, "granite.rope.scaling.finetuned", 0); /* nothing rotates */
    arch_must_refuse(&test, g, "granite.rope.scaling.finetuned is false; true alone is served");
    gguf_build_bool(g, "granite.rope.scaling.finetuned", 1);
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_str(g, "granite.rope.scaling.type", "yarn");
    arch_must_refuse(&test, g, "granite.rope.scaling.type");
    gguf_build_free(g);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { DENSE,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { DENSE,
          { "attention.key_length", 16, true },
          "blk.0.attn_q.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
        { DENSE, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { DENSE, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { DENSE, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { DENSE,
          { "expert_count", 8, true },
          "granite.expert_count is 8, granite.expert_shared_feed_forward_length is 0; granite is served without" },
        { DENSE, { "expert_shared_feed_forward_length", 8, true }, "granite.expert_shared_feed_forward_length" },
        { DENSE, { "n_deepstack_layers", 2, true }, "granite.n_deepstack_layers" },
        { MOE, { "expert_used_count", 9, true }, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { MOE, { "expert_used_count", 0, true }, "expert_used_count is 0, must be 1 to expert_count, 8" },
        { MOE, { "expert_count", 0, true }, "granitemoe.expert_count is 0, must be at least 1" },
        { MOE, { "expert_count", 7, true }, "blk.0.ffn_gate_inp.weight: the file has 8 rows" },
        { MOE, { "expert_gating_func", 2, true }, "granitemoe.expert_gating_func" },
        { MOE,
          { "expert_shared_feed_forward_length", SHARED_F, true },
          "blk.0.ffn_gate_shexp.weight: missing in the file" },
        { SHARED,
          { "expert_shared_feed_forward_length", 0, true },
          "blk.0.ffn_gate_shexp.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { DENSE, "blk.0.attn_q.bias" },
                                                { DENSE, "blk.0.ffn_gate_inp.weight" },
                                                { DENSE, "rope_freqs.weight" },
                                                { MOE, "blk.0.ffn_up_shexp.weight" },
                                                { MOE, "blk.0.exp_probs_b.bias" },
                                                { SHARED, "blk.0.ffn_gate.weight" },
                                                { SHARED, "blk.0.ffn_gate_inp_shexp.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    cmocka_unit_test(feed_forward),    cmocka_unit_test(no_scales),
        ARCH_EVERY_PLUGIN(test),     cmocka_unit_test(arrays),          cmocka_unit_test(rotation),
        cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
