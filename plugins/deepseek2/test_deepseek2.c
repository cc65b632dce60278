/* test_deepseek2.c: what deepseek2.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* V2-Lite; the same with its matrices whole, as files of before the split have them; V2; V3; V3's first files, with
 * whole matrices and another name of the bias. */
enum { LITE, WHOLE, V2, V3, V3_WHOLE, FILES };
/* Of the latent row; of a head: what does not rotate, what does, its value; of experts, and of the shared ones. */
enum { LATENT = 16, NOPE = 12, ROPE = 4, VALUE = 8, QUERY = 24, FX = 20, SHARED = 2 };

static bool is_whole(uint32_t file) { return file == WHOLE || file == V3_WHOLE; }
static bool is_lite(uint32_t file) { return file == LITE || file == WHOLE; }
static bool is_v3(uint32_t file) { return file == V3 || file == V3_WHOLE; }

static void put_attention(struct gguf_build *g, uint32_t l, uint32_t file)
{
    static const struct arch_shape all[] = { { "attn_norm.weight", 1, T_E, 1 },
                                             { "attn_kv_a_mqa.weight", LATENT + ROPE, T_E, 1 },
                                             { "attn_kv_a_norm.weight", 1, LATENT, 1 },
                                             { "attn_output.weight", T_E, T_H * VALUE, 1 },
                                             { "ffn_norm.weight", 1, T_E, 1 } },
                                   whole[] = { { "attn_kv_b.weight", T_H * (NOPE + VALUE), LATENT, 1 } },
                                   split[] = { { "attn_k_b.weight", LATENT, NOPE, T_H },
                                               { "attn_v_b.weight", VALUE, LATENT, T_H } },
                                   lite[] = { { "attn_q.weight", T_H * (NOPE + ROPE), T_E, 1 } },
                                   large[] = { { "attn_q_a.weight", QUERY, T_E, 1 },
                                               { "attn_q_a_norm.weight", 1, QUERY, 1 },
                                               { "attn_q_b.weight", T_H * (NOPE + ROPE), QUERY, 1 } };
    arch_put_layer(g, l, all, ARCH_COUNT(all));
    if (is_whole(file))
        arch_put_layer(g, l, whole, ARCH_COUNT(whole));
    else
        arch_put_layer(g, l, split, ARCH_COUNT(split));
    if (is_lite(file))
        arch_put_layer(g, l, lite, ARCH_COUNT(lite));
    else
        arch_put_layer(g, l, large, ARCH_COUNT(large));
}

static void put_feed_forward(struct gguf_build *g, uint32_t l, uint32_t file)
{
    static const struct arch_shape dense[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                                               { "ffn_up.weight", T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 } },
                                   experts[] = { { "ffn_gate_inp.weight", T_X, T_E, 1 },
                                                 { "ffn_gate_exps.weight", FX, T_E, T_X },
                                                 { "ffn_up_exps.weight", FX, T_E, T_X },
                                                 { "ffn_down_exps.weight", T_E, FX, T_X },
                                                 { "ffn_gate_shexp.weight", SHARED * FX, T_E, 1 },
                                                 { "ffn_up_shexp.weight", SHARED * FX, T_E, 1 },
                                                 { "ffn_down_shexp.weight", T_E, SHARED * FX, 1 } },
                                   bias[] = { { "exp_probs_b.bias", 1, T_X, 1 } },
                                   first[] = { { "exp_probs_b", 1, T_X, 1 } };
    if (l == 0) {
        arch_put_layer(g, l, dense, ARCH_COUNT(dense));
        return;
    }
    arch_put_layer(g, l, experts, ARCH_COUNT(experts));
    if (is_v3(file)) arch_put_layer(g, l, is_whole(file) ? first : bias, 1);
}

static struct gguf_build *make(uint32_t file)
{
    const bool whole = is_whole(file);
    const struct arch_key keys[] = { { "context_length", T_C, true },
                                     { "embedding_length", T_E, true },
                                     { "block_count", T_L, true },
                                     { "feed_forward_length", T_F, true },
                                     { "attention.head_count", T_H, true },
                                     { "attention.head_count_kv", whole ? T_H : 1, true },
                                     { "attention.key_length", whole ? NOPE + ROPE : LATENT + ROPE, true },
                                     { "attention.value_length", whole ? VALUE : LATENT, true },
                                     { "attention.kv_lora_rank", LATENT, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                     { "leading_dense_block_count", 1, true },
                                     { "expert_count", T_X, true },
                                     { "expert_used_count", T_K, true },
                                     { "expert_shared_count", SHARED, true },
                                     { "expert_feed_forward_length", FX, true },
                                     { "expert_weights_scale", 2.5, false },
                                     { "rope.dimension_count", ROPE, true },
                                     { "rope.scaling.factor", 40, false },
                                     { "rope.scaling.original_context_length", 4096, true },
                                     { "rope.scaling.yarn_log_multiplier", 0.0707, false } },
                          split[] = { { "attention.key_length_mla", NOPE + ROPE, true },
                                      { "attention.value_length_mla", VALUE, true } },
                          large[] = { { "attention.q_lora_rank", QUERY, true },
                                      { "expert_gating_func", is_v3(file) ? 2 : 1, true },
                                      { "expert_group_count", 4, true },
                                      { "expert_group_used_count", 2, true } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("deepseek2");
    arch_put_keys(g, "deepseek2", keys, ARCH_COUNT(keys));
    if (!whole) arch_put_keys(g, "deepseek2", split, ARCH_COUNT(split));
    if (!is_lite(file)) arch_put_keys(g, "deepseek2", large, ARCH_COUNT(large));
    if (is_v3(file)) gguf_build_bool(g, "deepseek2.expert_weights_norm", 1);
    gguf_build_str(g, "deepseek2.rope.scaling.type", "yarn");
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    for (uint32_t l = 0; l < T_L; l++) {
        put_attention(g, l, file);
        put_feed_forward(g, l, file);
    }
    return g;
}

/* The first layer tells which form the file has, and the first with experts whether they have a bias. */
static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "output.weight") == 0) return NULL;
    if (strcmp(tensor, "blk.0.attn_kv_b.weight") == 0) return "attention.key_length_mla is missing";
    if (strcmp(tensor, "blk.1.exp_probs_b.bias") == 0) return "blk.2.exp_probs_b.bias is in the file, nothing reads it";
    if (strcmp(tensor, "blk.1.exp_probs_b") == 0) return "blk.2.exp_probs_b is in the file, nothing reads it";
    return tensor;
}
static const char *longer(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "token_embd.weight") == 0 ? "output.weight" : tensor;
}

static const struct arch_test test = { "deepseek2", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void latent_attention(void **state)
{
    (void)state;
    const double stretch = 1 + 0.0707 * log(40);
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        const struct tape_op *a = arch_op(r.p, "blk.1.attention");
        const bool whole = is_whole(file);
        assert_int_equal(a->u.attn.heads, T_H);
        assert_int_equal(a->u.attn.kv_heads, whole ? T_H : 1);
        assert_int_equal(a->u.attn.value_in_key, whole ? 0 : LATENT);
        assert_int_equal(a->u.attn.head_k, whole ? NOPE + ROPE : LATENT + ROPE);
        assert_int_equal(a->u.attn.head_v, whole ? VALUE : LATENT);
        arch_near((double)a->u.attn.scale, stretch * stretch / sqrt(NOPE + ROPE));
        assert_int_equal(tape_find_value(r.p, "blk.1.attn_q_b") != TAPE_NONE, !is_lite(file));
        if (!whole) {
            assert_int_equal(arch_op(r.p, "blk.1.attn_k_b")->kind, WK_OP_LINEAR_HEADS);
            assert_int_equal(r.p->values[tape_find_value(r.p, "blk.1.attn_v_b")].width, T_H * VALUE);
        }
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "yarn");
        assert_string_equal(c.attention, whole ? "mha" : "mla");
        arch_close(&r);
    }
}

/* Bounds of the mixture of frequencies are whole pairs, and nothing else is scaled. */
static void positions(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(LITE));
    for (uint32_t i = 0; i < r.p->n_ops; i++) {
        const struct tape_op *o = &r.p->ops[i];
        if (o->kind != WK_OP_ROPE) continue;
        assert_true(o->u.rope.style == WK_ROPE_INTERLEAVED && o->u.rope.head == ROPE && o->u.rope.n == ROPE / 2);
        arch_near(o->u.rope.mscale, 1);
        /* 2 ln(4096 / 64 pi) / ln 10000 = 0.65: up to pair 0; 2 ln(4096 / 2 pi) / ln 10000 = 1.41: from pair 2 on */
        arch_near(o->u.rope.freq[0], 1);
        arch_near(o->u.rope.freq[1], 0.01 / 40 * 0.5 + 0.01 * 0.5);
    }
    arch_close(&r);
    struct gguf_build *g = make(LITE);
    gguf_build_str(g, "deepseek2.rope.scaling.type", "none");
    r = arch_record(&test, g);
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(NOPE + ROPE));
    arch_close(&r);
}

static const struct tape_op *route_of(const struct tape_program *p) { return arch_op(p, "blk.1.route"); }

static void choice_of_experts(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(LITE));
    const struct tape_op *o = route_of(r.p);
    assert_true(o->u.route.k == T_K && o->u.route.score == WK_SCORE_SOFTMAX && !o->u.route.flags &&
                !o->u.route.groups && o->t[0] == TAPE_NONE);
    arch_near((double)o->u.route.scale, 2.5);
    assert_int_equal(tape_find_value(r.p, "blk.0.route"), TAPE_NONE); /* a dense layer */
    assert_string_equal(arch_weight(r.p, "blk.2.ffn_down_shexp"), "blk.2.ffn_down_shexp.weight");
    arch_close(&r);
    r = arch_record(&test, make(V2));
    o = route_of(r.p);
    assert_true(o->u.route.score == WK_SCORE_SOFTMAX && o->u.route.groups == 4 && o->u.route.groups_used == 2 &&
                o->u.route.group_score == WK_GROUP_MAX && o->t[0] == TAPE_NONE);
    arch_close(&r);
    r = arch_record(&test, make(V3));
    o = route_of(r.p);
    assert_true(o->u.route.score == WK_SCORE_SIGMOID && o->u.route.flags == WK_ROUTE_NORMALIZE &&
                o->u.route.group_score == WK_GROUP_TOP2);
    assert_string_equal(r.p->tensors[o->t[0]].name, "blk.1.exp_probs_b.bias");
    arch_close(&r);
}

/* Of a key that is absent or 0, and the bias's name of before. */
static void defaults(void **state)
{
    (void)state;
    struct gguf_build *g = make(V3_WHOLE);
    gguf_build_drop(g, "deepseek2.expert_weights_norm");
    gguf_build_f32(g, "deepseek2.expert_weights_scale", 0);
    struct arch_opened r = arch_record(&test, g);
    const struct tape_op *o = route_of(r.p);
    assert_true(o->t[0] != TAPE_NONE && !o->u.route.flags);
    arch_near((double)o->u.route.scale, 1);
    arch_close(&r);
    g = make(LITE);
    gguf_build_u32(g, "deepseek2.leading_dense_block_count", 0);
    gguf_build_u32(g, "deepseek2.expert_group_count", 1);
    arch_must_refuse(&test, g, "blk.0.ffn_gate_inp.weight: missing in the file");
    gguf_build_free(g);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { LITE, { "attention.head_count_kv", 4, true }, "attention.head_count_kv is 4, must be 1, the latent row's" },
        { WHOLE,
          { "attention.head_count_kv", 1, true },
          "attention.head_count_kv is 1, must be 4, as many as heads where attn_kv_b is whole" },
        { LITE,
          { "attention.key_length", 16, true },
          "attention.key_length and value_length are 16 and 16, must be kv_lora_rank + rope.dimension_count, 20, and" },
        { LITE, { "attention.value_length", 8, true }, "must be kv_lora_rank + rope.dimension_count" },
        { WHOLE, { "attention.key_length_mla", 20, true }, "must be a head's, 20 and 8, where attn_kv_b is whole" },
        { LITE,
          { "attention.key_length_mla", 20, true },
          "blk.0.attn_q.weight: the file has 64 rows x 32 columns, the plugin asks for 80 x 32" },
        { LITE,
          { "attention.value_length_mla", 4, true },
          "blk.0.attn_v_b.weight: the file has 8 rows x 16 columns x 4 slabs, the plugin asks for 4 x 16 x 4" },
        { LITE,
          { "rope.dimension_count", 16, true },
          "rope.dimension_count is 16, must be even and less than the 16 values of a head" },
        { LITE, { "rope.dimension_count", 3, true }, "rope.dimension_count is 3, must be even" },
        { LITE, { "attention.q_lora_rank", 24, true }, "blk.0.attn_q_a.weight: missing in the file" },
        { V2, { "attention.q_lora_rank", 0, true }, "blk.0.attn_q.weight: missing in the file" },
        { LITE, { "expert_used_count", 9, true }, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { LITE, { "expert_used_count", 0, true }, "expert_used_count is 0, must be 1 to expert_count, 8" },
        { LITE, { "expert_feed_forward_length", 0, true }, "expert_feed_forward_length is 0, must be at least 1" },
        { LITE, { "expert_count", 0, true }, "blk.1.ffn_gate.weight: missing in the file" },
        { LITE, { "expert_shared_count", 0, true }, "blk.1.ffn_gate_shexp.weight is in the file, nothing reads it" },
        { LITE,
          { "expert_shared_count", 1, true },
          "blk.1.ffn_gate_shexp.weight: the file has 40 rows x 32 columns, the plugin asks for 20 x 32" },
        { LITE, { "leading_dense_block_count", 2, true }, "blk.1.ffn_gate.weight: missing in the file" },
        { V2, { "expert_group_count", 3, true }, "expert_count is 8, must be a multiple of expert_group_count, 3" },
        { V2, { "expert_group_count", 8, true }, "expert_group_count, 8, twice it at least" },
        { V2, { "expert_group_used_count", 0, true }, "expert_group_used_count is 0, must be 1 to expert_group_count" },
        { V2, { "expert_group_used_count", 5, true }, "expert_group_used_count is 5, must be 1 to expert_group_count" },
        { V3, { "expert_used_count", 5, true }, "have room for the 5 experts of a token" },
        { V3, { "expert_gating_func", 3, true }, "deepseek2.expert_gating_func" },
        { LITE,
          { "rope.scaling.yarn_beta_fast", 0.5, false },
          "rope.scaling.yarn_beta_fast is 0.5, must be at least yarn_beta_slow, 1" },
        { LITE, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { LITE, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    struct gguf_build *g = make(LITE);
    gguf_build_str(g, "deepseek2.rope.scaling.type", "linear");
    arch_must_refuse(&test, g, "rope.scaling.type is linear; none and yarn are served");
    gguf_build_drop(g, "deepseek2.rope.scaling.type");
    arch_must_refuse(&test, g, "deepseek2.rope.scaling.type is missing: rope.scaling.factor is 40");
    gguf_build_str(g, "deepseek2.rope.scaling.type", "yarn");
    gguf_build_drop(g, "deepseek2.rope.scaling.yarn_log_multiplier");
    arch_must_refuse(&test, g, "deepseek2.rope.scaling.yarn_log_multiplier is missing");
    gguf_build_free(g);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { LITE, "blk.0.attn_q_a.weight" },    { LITE, "blk.1.attn_kv_b.weight" },
        { WHOLE, "blk.1.attn_k_b.weight" },   { LITE, "blk.2.exp_probs_b.bias" },
        { LITE, "blk.1.ffn_gate.weight" },    { LITE, "blk.0.attn_k.weight" },
        { V3, "blk.3.nextn.eh_proj.weight" }, { LITE, "output.bias" },
        { V2, "blk.0.attn_q.weight" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

static void layers_left_out(void **state)
{
    (void)state;
    arch_nextn(&test, V3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_attention), cmocka_unit_test(positions),       cmocka_unit_test(choice_of_experts),
        cmocka_unit_test(defaults),         ARCH_EVERY_PLUGIN(test),           cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),  cmocka_unit_test(layers_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
