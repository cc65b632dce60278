/* test_qwen3next.c: what qwen3next.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* LISTED: the file lists its layers, the second has attention; INTERVAL: as older files say it, the same, and tied. */
enum { LISTED, INTERVAL, FILES };
/* Heads of keys and of values, values of each, rows of the convolution; of experts, and of the shared one. */
enum { KEYS = 2, VALUES = 4, KEY = 8, VALUE = 12, KERNEL = 4, FX = 20, FS = 24 };

static void put_layer(struct gguf_build *g, uint32_t l)
{
    enum { INNER = VALUES * VALUE, MIXED = 2 * KEYS * KEY + INNER };
    static const struct arch_shape
        all[] = { { "attn_norm.weight", 1, T_E, 1 },          { "post_attention_norm.weight", 1, T_E, 1 },
                  { "ffn_gate_inp.weight", T_X, T_E, 1 },     { "ffn_gate_exps.weight", FX, T_E, T_X },
                  { "ffn_up_exps.weight", FX, T_E, T_X },     { "ffn_down_exps.weight", T_E, FX, T_X },
                  { "ffn_gate_inp_shexp.weight", 1, T_E, 1 }, { "ffn_gate_shexp.weight", FS, T_E, 1 },
                  { "ffn_up_shexp.weight", FS, T_E, 1 },      { "ffn_down_shexp.weight", T_E, FS, 1 } },
        attention[] = { { "attn_q.weight", 2 * T_H * T_D, T_E, 1 }, { "attn_k.weight", T_G * T_D, T_E, 1 },
                        { "attn_v.weight", T_G * T_D, T_E, 1 },     { "attn_q_norm.weight", 1, T_D, 1 },
                        { "attn_k_norm.weight", 1, T_D, 1 },        { "attn_output.weight", T_E, T_H * T_D, 1 } },
        linear[] = { { "attn_qkv.weight", MIXED, T_E, 1 },    { "attn_gate.weight", INNER, T_E, 1 },
                     { "ssm_ba.weight", 2 * VALUES, T_E, 1 }, { "ssm_conv1d.weight", MIXED, KERNEL, 1 },
                     { "ssm_dt.bias", 1, VALUES, 1 },         { "ssm_a", 1, VALUES, 1 },
                     { "ssm_norm.weight", 1, VALUE, 1 },      { "ssm_out.weight", T_E, INNER, 1 } };
    arch_put_layer(g, l, all, ARCH_COUNT(all));
    if (l == 1)
        arch_put_layer(g, l, attention, ARCH_COUNT(attention));
    else
        arch_put_layer(g, l, linear, ARCH_COUNT(linear));
}

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.key_length", T_D, true },
                                            { "attention.value_length", T_D, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                            { "rope.dimension_count", T_D / 2, true },
                                            { "rope.freq_base", 1e7, false },
                                            { "full_attention_interval", 2, true },
                                            { "expert_count", T_X, true },
                                            { "expert_used_count", T_K, true },
                                            { "expert_feed_forward_length", FX, true },
                                            { "expert_shared_feed_forward_length", FS, true },
                                            { "ssm.conv_kernel", KERNEL, true },
                                            { "ssm.state_size", KEY, true },
                                            { "ssm.group_count", KEYS, true },
                                            { "ssm.inner_size", VALUES * VALUE, true },
                                            { "ssm.time_step_rank", VALUES, true } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    static const uint8_t recurrent[T_L] = { 1, 0, 1 };
    struct gguf_build *g = gguf_build_new("qwen3next");
    arch_put_keys(g, "qwen3next", keys, ARCH_COUNT(keys));
    if (file == LISTED) {
        gguf_build_drop(g, "qwen3next.full_attention_interval");
        gguf_build_array(g, "qwen3next.attention.recurrent_layers", GGUF_BOOL, T_L, recurrent);
        gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    }
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    for (uint32_t l = 0; l < T_L; l++) put_layer(g, l);
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == LISTED ? "output.weight" : NULL;
}

static const struct arch_test test = { "qwen3next", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *state_of(const struct tape_program *p, uint32_t layer, uint32_t kind)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == WK_OP_STATE && p->ops[i].layer == layer && p->ops[i].u.state.kind == kind)
            return &p->ops[i];
    return NULL;
}
static const struct tape_op *made_of(const struct tape_program *p, const struct tape_op *o, uint32_t input)
{
    return &p->ops[p->values[o->in[input]].op];
}

static void check_delta_net(const struct tape_program *p, uint32_t layer)
{
    const struct tape_op *conv = state_of(p, layer, WK_STATE_CONV), *delta = state_of(p, layer, WK_STATE_DELTA);
    assert_true(conv && delta);
    assert_true(conv->u.state.kernel == KERNEL && conv->t[1] == TAPE_NONE);
    assert_true(delta->u.state.heads == VALUES && delta->u.state.groups == KEYS);
    for (uint32_t i = 0; i < 2; i++) { /* q of length 1 / sqrt(KEY), k of length 1 */
        const struct tape_op *scale = made_of(p, delta, i), *norm = made_of(p, scale, 0);
        assert_true(scale->kind == WK_OP_UNARY && norm->kind == WK_OP_NORM && norm->u.norm.group == KEY);
        arch_near((double)scale->u.unary.p, i ? 1 / sqrt(KEY) : 1.0 / KEY);
        arch_near((double)norm->u.norm.eps, 1e-6 / KEY);
        assert_int_equal(made_of(p, norm, 0)->u.slice.first, i * KEYS * KEY); /* all q, all k, all v */
    }
    assert_int_equal(made_of(p, delta, 2)->u.slice.first, 2 * KEYS * KEY);
    const struct tape_op *beta = made_of(p, made_of(p, delta, 4), 0); /* per head of keys: beta, then a */
    assert_true(beta->u.slice.groups == KEYS && beta->u.slice.first == 0 && beta->u.slice.n == VALUES / KEYS);
}

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        check_delta_net(r.p, 0);
        check_delta_net(r.p, 2);
        assert_null(state_of(r.p, 1, WK_STATE_DELTA));
        const struct tape_op *a = arch_op(r.p, "blk.1.attention"), *q = made_of(r.p, a, 0), *k = made_of(r.p, a, 1),
                             *out = arch_op(r.p, "blk.1.attn_output"), *gated = made_of(r.p, out, 0);
        assert_true(q->kind == WK_OP_ROPE && q->u.rope.style == WK_ROPE_HALF && q->u.rope.n == T_D / 4);
        assert_int_equal(k->kind, WK_OP_ROPE);
        arch_near(q->u.rope.freq[1], pow(1e7, -0.5));
        assert_true(gated->kind == WK_OP_MUL && made_of(r.p, gated, 1) == a);
        const struct tape_op *gate = made_of(r.p, made_of(r.p, gated, 0), 0); /* behind each head's query */
        assert_true(gate->u.slice.groups == T_H && gate->u.slice.first == T_D && gate->u.slice.n == T_D);
        assert_string_equal(arch_weight(r.p, "logits"), file == INTERVAL ? "token_embd.weight" : "output.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.attention, "gqa state");
        arch_close(&r);
    }
}

static void experts(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(LISTED));
    const struct tape_op *route = arch_op(r.p, "blk.1.route"), *gate = arch_op(r.p, "blk.1.ffn_gate_inp_shexp");
    assert_true(route->u.route.k == T_K && route->u.route.score == WK_SCORE_SOFTMAX_TOPK && !route->u.route.groups);
    assert_int_equal(r.p->values[gate->out].width, 1);
    assert_string_equal(arch_weight(r.p, "blk.1.post_attention_norm"), "blk.1.post_attention_norm.weight");
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, INTERVAL);
}

/* A bool, or a number, for each layer; without a list the interval, without either 4. */
static void lists_of_layers(void **state)
{
    (void)state;
    static const uint32_t numbers[T_L] = { 1, 0, 1 }, all[T_L] = { 1, 1, 1 }, large[T_L] = { 1, 2, 1 };
    const char *key = "qwen3next.attention.recurrent_layers";
    struct gguf_build *g = make(LISTED);
    gguf_build_array(g, key, GGUF_U32, T_L, numbers);
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_array(g, key, GGUF_U32, T_L, all);
    arch_must_refuse(&test, g, "blk.1.attn_gate.weight: missing in the file");
    gguf_build_array(g, key, GGUF_U32, T_L, large);
    arch_must_refuse(&test, g, key);
    gguf_build_array(g, key, GGUF_U32, 2, numbers);
    arch_must_refuse(&test, g, key);
    gguf_build_u32(g, key, 0);
    arch_must_refuse(&test, g, "blk.0.attn_q.weight: missing in the file");
    gguf_build_drop(g, key);
    arch_must_refuse(&test, g, "blk.1.attn_gate.weight: missing in the file"); /* of every four the last */
    gguf_build_free(g);
}

static void layers_left_out(void **state)
{
    (void)state;
    arch_nextn(&test, INTERVAL);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { LISTED,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { LISTED, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { LISTED, { "expert_used_count", 9, true }, "expert_used_count is 9, must be at most expert_count, 8" },
        { LISTED, { "expert_count", 7, true }, "blk.0.ffn_gate_inp.weight: the file has 8 rows" },
        { LISTED, { "expert_gating_func", 2, true }, "qwen3next.expert_gating_func" },
        { LISTED,
          { "ssm.time_step_rank", 5, true },
          "ssm.inner_size is 48, must be a multiple of ssm.time_step_rank, 5 heads" },
        { LISTED,
          { "ssm.group_count", 3, true },
          "ssm.time_step_rank is 4 heads, must be a multiple of ssm.group_count, 3" },
        { LISTED,
          { "ssm.state_size", 16, true },
          "blk.0.attn_qkv.weight: the file has 80 rows x 32 columns, the plugin asks for 112 x 32" },
        { INTERVAL, { "full_attention_interval", 3, true }, "blk.1.attn_gate.weight: missing in the file" },
        { LISTED, { "rope.scaling.factor", 4, false }, "qwen3next.rope.scaling.factor" },
        { INTERVAL, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, LISTED, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { LISTED, "blk.0.attn_q.weight" }, { LISTED, "blk.1.ssm_out.weight" }, { LISTED, "blk.0.ssm_conv1d.bias" },
        { LISTED, "blk.0.ssm_in.weight" }, { LISTED, "blk.1.attn_q.bias" },    { LISTED, "blk.0.ffn_norm.weight" },
        { LISTED, "blk.0.ssm_a.weight" },  { INTERVAL, "output_norm.bias" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    cmocka_unit_test(experts),         ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),    cmocka_unit_test(lists_of_layers), cmocka_unit_test(layers_left_out),
        cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
