/* test_falcon_h1.c: what falcon-h1.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* PLAIN: tied, no norm in the mixer; NORMED: with one, of two groups. */
enum { PLAIN, NORMED, FILES };
enum { INNER = 48, SSM_HEADS = 4, STATE = 8, KERNEL = 4 };

static uint32_t groups(uint32_t file) { return file == NORMED ? 2 : 1; }

static struct gguf_build *make(uint32_t file)
{
    const uint32_t G = groups(file), mixed = INNER + 2 * G * STATE;
    const struct arch_key keys[] = { { "context_length", T_C, true },
                                     { "embedding_length", T_E, true },
                                     { "block_count", T_L, true },
                                     { "feed_forward_length", T_F, true },
                                     { "attention.head_count", T_H, true },
                                     { "attention.head_count_kv", T_G, true },
                                     { "attention.key_length", T_D, true },
                                     { "attention.value_length", T_D, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                     { "rope.freq_base", 1e11, false },
                                     { "ssm.conv_kernel", KERNEL, true },
                                     { "ssm.state_size", STATE, true },
                                     { "ssm.group_count", G, true },
                                     { "ssm.inner_size", INNER, true },
                                     { "ssm.time_step_rank", SSM_HEADS, true } };
    const struct arch_shape layer[] = { { "attn_norm.weight", 1, T_E, 1 },
                                        { "attn_q.weight", T_H * T_D, T_E, 1 },
                                        { "attn_k.weight", T_G * T_D, T_E, 1 },
                                        { "attn_v.weight", T_G * T_D, T_E, 1 },
                                        { "attn_output.weight", T_E, T_H * T_D, 1 },
                                        { "ssm_in.weight", INNER + mixed + SSM_HEADS, T_E, 1 },
                                        { "ssm_conv1d.weight", mixed, KERNEL, 1 },
                                        { "ssm_conv1d.bias", 1, mixed, 1 },
                                        { "ssm_dt.bias", 1, SSM_HEADS, 1 },
                                        { "ssm_a", SSM_HEADS, 1, 1 },
                                        { "ssm_d", SSM_HEADS, 1, 1 },
                                        { "ssm_out.weight", T_E, INNER, 1 },
                                        { "ffn_norm", 1, T_E, 1 },
                                        { "ffn_gate.weight", T_F, T_E, 1 },
                                        { "ffn_up.weight", T_F, T_E, 1 },
                                        { "ffn_down.weight", T_E, T_F, 1 } },
                            norm[] = { { "ssm_norm.weight", G, INNER / G, 1 } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("falcon-h1");
    arch_put_keys(g, "falcon-h1", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == NORMED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) {
        arch_put_layer(g, l, layer, ARCH_COUNT(layer));
        if (file == NORMED) arch_put_layer(g, l, norm, 1);
    }
    return g;
}

/* The first layer tells whether mixers have a norm. */
static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "blk.0.ssm_norm.weight") == 0) return "blk.1.ssm_norm.weight is in the file, nothing reads it";
    return strcmp(tensor, "output.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == NORMED ? "output.weight" : NULL;
}

static const struct arch_test test = { "falcon-h1", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

/* Attention and the mixer read one norm's row, and both are added to the layer's. */
static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        const struct tape_op *q = arch_op(r.p, "blk.1.attn_q"), *in = arch_op(r.p, "blk.1.ssm_in"),
                             *rope = arch_op(r.p, "blk.1.attn_q.rope"), *out = arch_op(r.p, "blk.1.ssm_out");
        assert_int_equal(q->in[0], in->in[0]);
        assert_int_equal(q->in[0], tape_find_value(r.p, "blk.1.attn_norm"));
        assert_true(rope->u.rope.style == WK_ROPE_HALF && rope->u.rope.n == T_D / 2);
        arch_near(rope->u.rope.freq[1], pow((double)(float)1e11, -0.25));
        arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_D));
        assert_int_equal(r.p->values[out->in[0]].width, INNER);
        assert_int_equal(r.p->ops[r.p->values[out->in[0]].op].kind, file == NORMED ? WK_OP_MUL : WK_OP_GLU);
        assert_string_equal(arch_weight(r.p, "blk.2.ffn_norm"), "blk.2.ffn_norm");
        assert_int_equal(r.p->n_kv_layers, 3 * T_L); /* keys and values, a convolution's rows, a state */
        assert_string_equal(arch_weight(r.p, "logits"), file == PLAIN ? "token_embd.weight" : "output.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "rope_neox");
        assert_string_equal(c.attention, "gqa state");
        arch_close(&r);
    }
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, PLAIN);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { PLAIN,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { PLAIN,
          { "ssm.time_step_rank", 5, true },
          "ssm.inner_size is 48, must be a multiple of ssm.time_step_rank, 5 heads" },
        { PLAIN,
          { "ssm.group_count", 3, true },
          "ssm.time_step_rank is 4 heads, must be a multiple of ssm.group_count, 3" },
        { NORMED,
          { "ssm.group_count", 1, true },
          "blk.0.ssm_in.weight: the file has 132 rows x 32 columns, the plugin asks for 116 x 32" },
        { PLAIN, { "rope.scaling.factor", 4, false }, "falcon-h1.rope.scaling.factor" },
        { PLAIN, { "embedding_scale", 5, false }, "falcon-h1.embedding_scale" },
        { PLAIN, { "expert_count", 8, true }, "falcon-h1.expert_count" },
        { PLAIN, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { PLAIN, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, PLAIN, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { PLAIN, "blk.1.ssm_norm.weight" }, { PLAIN, "blk.0.attn_q.bias" }, { PLAIN, "blk.0.attn_output.bias" },
        { PLAIN, "blk.0.ssm_in.bias" },     { NORMED, "output_norm.bias" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    ARCH_EVERY_PLUGIN(test),           cmocka_unit_test(arrays),
        cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
