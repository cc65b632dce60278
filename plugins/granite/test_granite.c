/* test_granite.c: what granite.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* The dense ones are tied. Of hybrids the second layer has attention; the dense one rotates. */
enum { DENSE, MOE, SHARED, HYBRID, HYBRID_DENSE, FILES };
enum { SHARED_F = 96, INNER = 64, SSM_HEADS = 4, STATE = 8, KERNEL = 4 };

static bool is_dense(uint32_t file) { return file == DENSE || file == HYBRID_DENSE; }
static bool is_hybrid(uint32_t file) { return file >= HYBRID; }
static bool has_shared(uint32_t file) { return file == SHARED || file == HYBRID; }

static const char *architecture(uint32_t file)
{
    if (is_hybrid(file)) return "granitehybrid";
    return file == DENSE ? "granite" : "granitemoe";
}

static void put_keys(struct gguf_build *g, uint32_t file)
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
                                            { "logit_scale", 8, false } },
                                 of_experts[] = { { "expert_count", T_X, true }, { "expert_used_count", T_K, true } },
                                 of_shared[] = { { "expert_shared_feed_forward_length", SHARED_F, true } },
                                 of_hybrids[] = { { "ssm.conv_kernel", KERNEL, true },
                                                  { "ssm.state_size", STATE, true },
                                                  { "ssm.group_count", 1, true },
                                                  { "ssm.inner_size", INNER, true },
                                                  { "ssm.time_step_rank", SSM_HEADS, true },
                                                  { "expert_shared_feed_forward_length", SHARED_F, true } };
    static const uint32_t kv_heads[T_L] = { 0, T_G, 0 };
    const char *name = architecture(file);
    arch_put_keys(g, name, keys, ARCH_COUNT(keys));
    if (!is_dense(file)) arch_put_keys(g, name, of_experts, ARCH_COUNT(of_experts));
    if (file == SHARED) arch_put_keys(g, name, of_shared, ARCH_COUNT(of_shared));
    if (!is_hybrid(file)) return;
    arch_put_keys(g, name, of_hybrids, ARCH_COUNT(of_hybrids));
    gguf_build_array(g, "granitehybrid.attention.head_count_kv", GGUF_U32, T_L, kv_heads);
    gguf_build_bool(g, "granitehybrid.rope.scaling.finetuned", file == HYBRID_DENSE);
}

static void put_mixer(struct gguf_build *g, uint32_t l, uint32_t file)
{
    enum { MIXED = INNER + 2 * STATE };
    static const struct arch_shape attention[] = { { "attn_q.weight", T_H * T_D, T_E, 1 },
                                                   { "attn_k.weight", T_G * T_D, T_E, 1 },
                                                   { "attn_v.weight", T_G * T_D, T_E, 1 },
                                                   { "attn_output.weight", T_E, T_H * T_D, 1 } },
                                   mixer[] = { { "ssm_in.weight", INNER + MIXED + SSM_HEADS, T_E, 1 },
                                               { "ssm_conv1d.weight", MIXED, KERNEL, 1 },
                                               { "ssm_conv1d.bias", 1, MIXED, 1 },
                                               { "ssm_dt.bias", 1, SSM_HEADS, 1 },
                                               { "ssm_a", SSM_HEADS, 1, 1 },
                                               { "ssm_d", SSM_HEADS, 1, 1 },
                                               { "ssm_norm.weight", 1, INNER, 1 },
                                               { "ssm_out.weight", T_E, INNER, 1 } };
    if (is_hybrid(file) && l != 1)
        arch_put_layer(g, l, mixer, ARCH_COUNT(mixer));
    else
        arch_put_layer(g, l, attention, ARCH_COUNT(attention));
}

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_shape norms[] = { { "attn_norm.weight", 1, T_E, 1 }, { "ffn_norm.weight", 1, T_E, 1 } },
                                   dense[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                                               { "ffn_up.weight", T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 } },
                                   experts[] = { { "ffn_gate_inp.weight", T_X, T_E, 1 },
                                                 { "ffn_gate_exps.weight", T_F, T_E, T_X },
                                                 { "ffn_up_exps.weight", T_F, T_E, T_X },
                                                 { "ffn_down_exps.weight", T_E, T_F, T_X } },
                                   shared[] = { { "ffn_gate_shexp.weight", SHARED_F, T_E, 1 },
                                                { "ffn_up_shexp.weight", SHARED_F, T_E, 1 },
                                                { "ffn_down_shexp.weight", T_E, SHARED_F, 1 } },
                                   outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new(architecture(file));
    put_keys(g, file);
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (!is_dense(file)) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) {
        arch_put_layer(g, l, norms, ARCH_COUNT(norms));
        put_mixer(g, l, file);
        if (is_dense(file))
            arch_put_layer(g, l, dense, ARCH_COUNT(dense));
        else
            arch_put_layer(g, l, experts, ARCH_COUNT(experts));
        if (has_shared(file)) arch_put_layer(g, l, shared, ARCH_COUNT(shared));
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
    return is_dense(file) ? NULL : "output.weight";
}

static const struct arch_test test = { "granite", FILES, architecture, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < HYBRID; file++) {
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

/* The second layer alone has attention, without positions but in the dense one; the mixer's branch is scaled, too. */
static void hybrids(void **state)
{
    (void)state;
    for (uint32_t file = HYBRID; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        const struct tape_op *a = arch_op(r.p, "blk.1.attention");
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G);
        arch_near((double)a->u.attn.scale, 0.0078125);
        assert_int_equal(tape_find_value(r.p, "blk.1.attn_k.rope") != TAPE_NONE, file == HYBRID_DENSE);
        assert_int_equal(tape_find_value(r.p, "blk.0.attention"), TAPE_NONE);
        assert_int_equal(tape_find_value(r.p, "blk.1.ssm_out"), TAPE_NONE);
        for (uint32_t l = 0; l < T_L; l += 2) {
            char name[32];
            (void)snprintf(name, sizeof name, "blk.%u.ssm_out.scale", (unsigned)l);
            arch_near((double)arch_op(r.p, name)->u.unary.p, 0.25);
        }
        assert_int_equal(r.p->n_kv_layers, 1 + 2 * 2); /* keys and values; a convolution's rows and a state twice */
        assert_int_equal(tape_find_value(r.p, "blk.2.ffn_up_shexp") != TAPE_NONE, file == HYBRID);
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, file == HYBRID_DENSE ? "rope_llama" : "none");
        assert_string_equal(c.attention, "gqa state");
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

/* A number for each layer: attention where it is not 0. */
static void layers_of_hybrids(void **state)
{
    (void)state;
    static const uint32_t unequal[T_L] = { 4, 2, 0 }, odd[T_L] = { 0, 3, 0 }, none[T_L] = { 0, 0, 0 },
                          all[T_L] = { 2, 2, 2 }, large[T_L] = { 0, 1025, 0 };
    struct gguf_build *g = make(HYBRID);
    const char *key = "granitehybrid.attention.head_count_kv";
    gguf_build_array(g, key, GGUF_U32, T_L, unequal);
    arch_must_refuse(&test, g, "attention.head_count_kv is 2 in layer 1, 4 before; one number and 0 are served");
    gguf_build_array(g, key, GGUF_U32, T_L, odd);
    arch_must_refuse(&test, g, "attention.head_count is 4, must be a multiple of head_count_kv, 3");
    gguf_build_array(g, key, GGUF_U32, T_L, none);
    arch_must_refuse(&test, g, "blk.1.ssm_in.weight: missing in the file");
    gguf_build_array(g, key, GGUF_U32, T_L, all);
    arch_must_refuse(&test, g, "blk.0.attn_q.weight: missing in the file");
    gguf_build_u32(g, key, 2); /* of all layers */
    arch_must_refuse(&test, g, "blk.0.attn_q.weight: missing in the file");
    gguf_build_array(g, key, GGUF_U32, T_L, large);
    arch_must_refuse(&test, g, key);
    gguf_build_array(g, key, GGUF_U32, 2, odd);
    arch_must_refuse(&test, g, key);
    gguf_build_drop(g, key);
    arch_must_refuse(&test, g, "granitehybrid.attention.head_count_kv is missing");
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
        { HYBRID,
          { "ssm.time_step_rank", 3, true },
          "ssm.inner_size is 64, must be a multiple of ssm.time_step_rank, 3 heads" },
        { HYBRID,
          { "ssm.group_count", 3, true },
          "ssm.time_step_rank is 4 heads, must be a multiple of ssm.group_count, 3" },
        { HYBRID, { "expert_count", 0, true }, "blk.0.ffn_gate.weight: missing in the file" },
        { HYBRID_DENSE, { "expert_count", 8, true }, "expert_used_count is 0, must be 1 to expert_count, 8" },
        { DENSE, { "ssm.conv_kernel", 4, true }, "granite.ssm.conv_kernel" },
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
                                                { HYBRID, "blk.0.attn_q.weight" },
                                                { HYBRID, "blk.1.ssm_in.weight" },
                                                { HYBRID_DENSE, "blk.0.ffn_up_shexp.weight" },
                                                { SHARED, "blk.0.ffn_gate_inp_shexp.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(feed_forward),      cmocka_unit_test(no_scales),
        cmocka_unit_test(hybrids),         cmocka_unit_test(layers_of_hybrids), ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),          cmocka_unit_test(rotation),          cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
