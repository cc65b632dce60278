/* test_glm4moe.c: what glm4moe.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* NORMED: heads of q and k are normed, and biases (355B); AIR: biases alone; PLAIN: neither, tied, no shared expert. */
enum { NORMED, AIR, PLAIN, FILES };
enum { FX = 20, SHARED = 2 };

static void put_layer(struct gguf_build *g, uint32_t l, uint32_t file)
{
    static const struct arch_shape all[] = { { "attn_norm.weight", 1, T_E, 1 },
                                             { "attn_q.weight", T_H * T_D, T_E, 1 },
                                             { "attn_k.weight", T_G * T_D, T_E, 1 },
                                             { "attn_v.weight", T_G * T_D, T_E, 1 },
                                             { "attn_output.weight", T_E, T_H * T_D, 1 },
                                             { "post_attention_norm.weight", 1, T_E, 1 } },
                                   norms[] = { { "attn_q_norm.weight", 1, T_D, 1 },
                                               { "attn_k_norm.weight", 1, T_D, 1 } },
                                   biases[] = { { "attn_q.bias", 1, T_H * T_D, 1 },
                                                { "attn_k.bias", 1, T_G * T_D, 1 },
                                                { "attn_v.bias", 1, T_G * T_D, 1 } },
                                   dense[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                                               { "ffn_up.weight", T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 } },
                                   experts[] = { { "ffn_gate_inp.weight", T_X, T_E, 1 },
                                                 { "exp_probs_b.bias", 1, T_X, 1 },
                                                 { "ffn_gate_exps.weight", FX, T_E, T_X },
                                                 { "ffn_up_exps.weight", FX, T_E, T_X },
                                                 { "ffn_down_exps.weight", T_E, FX, T_X } },
                                   shared[] = { { "ffn_gate_shexp.weight", SHARED * FX, T_E, 1 },
                                                { "ffn_up_shexp.weight", SHARED * FX, T_E, 1 },
                                                { "ffn_down_shexp.weight", T_E, SHARED * FX, 1 } };
    arch_put_layer(g, l, all, ARCH_COUNT(all));
    if (file == NORMED) arch_put_layer(g, l, norms, ARCH_COUNT(norms));
    if (file != PLAIN) arch_put_layer(g, l, biases, ARCH_COUNT(biases));
    if (l == 0) {
        arch_put_layer(g, l, dense, ARCH_COUNT(dense));
        return;
    }
    arch_put_layer(g, l, experts, ARCH_COUNT(experts));
    if (file != PLAIN) arch_put_layer(g, l, shared, ARCH_COUNT(shared));
}

static struct gguf_build *make(uint32_t file)
{
    const struct arch_key keys[] = { { "context_length", T_C, true },
                                     { "embedding_length", T_E, true },
                                     { "block_count", T_L, true },
                                     { "feed_forward_length", T_F, true },
                                     { "attention.head_count", T_H, true },
                                     { "attention.head_count_kv", T_G, true },
                                     { "attention.key_length", T_D, true },
                                     { "attention.value_length", T_D, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                     { "rope.dimension_count", T_D / 2, true },
                                     { "rope.freq_base", 1e6, false },
                                     { "leading_dense_block_count", 1, true },
                                     { "expert_count", T_X, true },
                                     { "expert_used_count", T_K, true },
                                     { "expert_feed_forward_length", FX, true },
                                     { "expert_gating_func", 2, true },
                                     { "expert_group_count", 1, true },
                                     { "expert_group_used_count", 1, true },
                                     { "expert_shared_count", file == PLAIN ? 0 : SHARED, true },
                                     { "expert_weights_scale", 2.5, false } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("glm4moe");
    arch_put_keys(g, "glm4moe", keys, ARCH_COUNT(keys));
    gguf_build_bool(g, "glm4moe.expert_weights_norm", 1);
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file != PLAIN) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) put_layer(g, l, file);
    return g;
}

/* The first layer tells whether heads are normed. */
static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "blk.0.attn_q_norm.weight") == 0)
        return "blk.1.attn_q_norm.weight is in the file, nothing reads it";
    return strcmp(tensor, "output.weight") == 0 || strstr(tensor, "attn_q.bias") || strstr(tensor, "attn_k.bias") ||
                   strstr(tensor, "attn_v.bias")
               ? NULL
               : tensor;
}
/* The embedding says itself how many tokens there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == PLAIN ? NULL : "output.weight";
}

static const struct arch_test test = { "glm4moe", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        struct tape_capabilities c;
        const struct tape_op *rope = arch_op(r.p, file == NORMED ? "blk.1.attn_q_norm.rope" : "blk.1.attn_q.rope");
        assert_true(rope->u.rope.style == WK_ROPE_HALF && rope->u.rope.head == T_D && rope->u.rope.n == T_D / 4);
        arch_near(rope->u.rope.freq[1], 0.001); /* 1000000^(-1 / 2): of the part that rotates */
        arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_D));
        assert_int_equal(arch_op(r.p, "blk.2.attn_v")->t[1] != TAPE_NONE, file != PLAIN);
        assert_int_equal(tape_find_value(r.p, "blk.1.attn_k_norm") != TAPE_NONE, file == NORMED);
        assert_string_equal(arch_weight(r.p, "blk.0.post_attention_norm"), "blk.0.post_attention_norm.weight");
        assert_string_equal(arch_weight(r.p, "logits"), file == PLAIN ? "token_embd.weight" : "output.weight");
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        tape_describe(r.p, &c);
        assert_string_equal(c.attention, "gqa");
        arch_close(&r);
    }
}

static void choice_of_experts(void **state)
{
    (void)state;
    struct gguf_build *g = make(AIR);
    struct arch_opened r = arch_record(&test, g);
    const struct tape_op *o = arch_op(r.p, "blk.1.route");
    assert_true(o->u.route.k == T_K && o->u.route.score == WK_SCORE_SIGMOID && !o->u.route.groups &&
                o->u.route.flags == WK_ROUTE_NORMALIZE);
    arch_near((double)o->u.route.scale, 2.5);
    assert_string_equal(r.p->tensors[o->t[0]].name, "blk.1.exp_probs_b.bias");
    assert_int_equal(tape_find_value(r.p, "blk.0.route"), TAPE_NONE); /* a dense layer */
    assert_string_equal(arch_weight(r.p, "blk.2.ffn_down_shexp"), "blk.2.ffn_down_shexp.weight");
    arch_close(&r);
    g = make(AIR); /* absent, and 0 */
    gguf_build_drop(g, "glm4moe.expert_weights_norm");
    gguf_build_f32(g, "glm4moe.expert_weights_scale", 0);
    r = arch_record(&test, g);
    assert_int_equal(arch_op(r.p, "blk.1.route")->u.route.flags, 0);
    arch_near((double)arch_op(r.p, "blk.1.route")->u.route.scale, 1);
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, AIR);
}

static void layers_left_out(void **state)
{
    (void)state;
    arch_nextn(&test, NORMED);
    arch_nextn(&test, AIR);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { AIR,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { AIR, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { AIR, { "rope.dimension_count", 3, true }, "rope.dimension_count is 3, must be even" },
        { AIR, { "rope.scaling.factor", 4, false }, "glm4moe.rope.scaling.factor" },
        { AIR, { "expert_used_count", 9, true }, "expert_used_count is 9, must be at most expert_count, 8" },
        { AIR, { "expert_count", 7, true }, "blk.1.ffn_gate_inp.weight: the file has 8 rows" },
        { AIR, { "expert_gating_func", 1, true }, "glm4moe.expert_gating_func" },
        { AIR, { "expert_group_count", 2, true }, "glm4moe.expert_group_count" },
        { AIR, { "expert_shared_count", 0, true }, "blk.1.ffn_gate_shexp.weight is in the file, nothing reads it" },
        { AIR,
          { "expert_shared_count", 1, true },
          "blk.1.ffn_gate_shexp.weight: the file has 40 rows x 32 columns, the plugin asks for 20 x 32" },
        { PLAIN, { "expert_shared_count", 1, true }, "blk.1.ffn_gate_shexp.weight: missing in the file" },
        { AIR, { "leading_dense_block_count", 2, true }, "blk.1.ffn_gate.weight: missing in the file" },
        { AIR, { "leading_dense_block_count", 0, true }, "blk.0.ffn_gate_inp.weight: missing in the file" },
        { AIR, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { AIR, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, AIR, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { AIR, "blk.1.ffn_gate.weight" }, { AIR, "blk.0.attn_output.bias" },      { AIR, "blk.1.attn_q_norm.weight" },
        { AIR, "blk.0.ffn_norm.weight" }, { AIR, "blk.2.nextn.eh_proj.weight" },  { AIR, "blk.0.exp_probs_b.bias" },
        { PLAIN, "output_norm.bias" },    { PLAIN, "blk.1.ffn_up_shexp.weight" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(choice_of_experts), ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),          cmocka_unit_test(layers_left_out),   cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
