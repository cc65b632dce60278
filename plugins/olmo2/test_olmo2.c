/* test_olmo2.c: what olmo2.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { OLMO2, OLMO3, TIED, FILES }; /* OLMO3: windows, and YaRN on the layers without one */

static const uint8_t pattern[T_L + 1] = { 1, 0, 1, 1 };

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                            { "rope.freq_base", 5e5, false } };
    static const struct arch_key newer[] = { { "attention.sliding_window", 40, true },
                                             { "rope.scaling.factor", 8, false },
                                             { "rope.scaling.original_context_length", 16, true },
                                             { "rope.scaling.yarn_attn_factor", 1.2079441541679836, false },
                                             { "rope.scaling.yarn_beta_fast", 32, false },
                                             { "rope.scaling.yarn_beta_slow", 1, false } };
    static const struct arch_shape layer[] = {
        { "attn_q.weight", T_H * T_D, T_E, 1 },
        { "attn_k.weight", T_G * T_D, T_E, 1 },
        { "attn_v.weight", T_G * T_D, T_E, 1 },
        { "attn_q_norm.weight", 1, T_H * T_D, 1 },
        { "attn_k_norm.weight", 1, T_G * T_D, 1 },
        { "attn_output.weight", T_E, T_H * T_D, 1 },
        { "post_attention_norm.weight", 1, T_E, 1 },
        { "ffn_gate.weight", T_F, T_E, 1 },
        { "ffn_up.weight", T_F, T_E, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },
        { "post_ffw_norm.weight", 1, T_E, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("olmo2");
    arch_put_keys(g, "olmo2", keys, ARCH_COUNT(keys));
    if (file == OLMO3) {
        arch_put_keys(g, "olmo2", newer, ARCH_COUNT(newer));
        gguf_build_str(g, "olmo2.rope.scaling.type", "yarn");
        gguf_build_array(g, "olmo2.attention.sliding_window_pattern", GGUF_BOOL, T_L, pattern);
    }
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file != TIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
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
    return file == TIED ? NULL : "output.weight";
}

static const struct arch_test test = { "olmo2", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *op_of(const struct tape_program *p, uint32_t layer, const char *value)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%u.%s", (unsigned)layer, value);
    return arch_op(p, name);
}

static void layers(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make(OLMO2));
    for (uint32_t l = 0; l < T_L; l++) {
        const struct tape_op *a = op_of(r.p, l, "attention"), *q = op_of(r.p, l, "attn_q_norm"),
                             *k = op_of(r.p, l, "attn_k_norm"), *rope = op_of(r.p, l, "attn_q_norm.rope");
        assert_int_equal(a->u.attn.window, 0);
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G && a->u.attn.head_k == T_D);
        arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
        /* over the whole projection: a head's share of it would be a group */
        assert_true(q->u.norm.kind == WK_NORM_RMS && (!q->u.norm.group || q->u.norm.group == T_H * T_D));
        assert_true(k->u.norm.kind == WK_NORM_RMS && (!k->u.norm.group || k->u.norm.group == T_G * T_D));
        assert_true(rope->u.rope.style == WK_ROPE_HALF && rope->u.rope.mscale == 1);
        arch_near(rope->u.rope.freq[1], pow(5e5, -0.25));
        assert_int_equal(op_of(r.p, l, "glu")->u.glu.fn, WK_GLU_SILU);
    }
    assert_string_equal(arch_weight(r.p, "logits"), "output.weight");
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "rope_neox");
    assert_string_equal(c.attention, "gqa");
    assert_int_equal(c.n_vocab, T_V);
    arch_close(&r);
    r = arch_record(&test, make(TIED));
    assert_string_equal(arch_weight(r.p, "logits"), "token_embd.weight");
    arch_close(&r);
}

/* Layers with a window rotate as if there were no scaling. Of 4 pairs and 16 positions before the scaling: the first
 * is mixed half and half, the others are stretched whole. */
static void windows(void **state)
{
    (void)state;
    struct gguf_build *g = make(OLMO3);
    gguf_build_f32(g, "olmo2.rope.freq_base_swa", 5000);
    struct arch_opened r = arch_record(&test, g);
    for (uint32_t l = 0; l < T_L; l++) {
        const struct tape_op *a = op_of(r.p, l, "attention"), *rope = op_of(r.p, l, "attn_k_norm.rope");
        assert_int_equal(a->u.attn.window, pattern[l] ? 40 : 0);
        arch_near(rope->u.rope.freq[0], 1);
        arch_near(rope->u.rope.freq[1], pattern[l] ? pow(5000, -0.25) : pow(5e5, -0.25) / 8);
        arch_near(rope->u.rope.mscale, pattern[l] ? 1 : 1 + 0.1 * log(8));
    }
    arch_close(&r);
    g = make(OLMO3);
    gguf_build_drop(g, "olmo2.rope.scaling.yarn_attn_factor"); /* means the same */
    r = arch_record(&test, g);
    arch_near(op_of(r.p, 1, "attn_q_norm.rope")->u.rope.mscale, 1 + 0.1 * log(8));
    arch_near(op_of(r.p, 0, "attn_q_norm.rope")->u.rope.freq[1], pow(5e5, -0.25)); /* without a base of its own */
    arch_close(&r);
    g = make(OLMO3);
    gguf_build_drop(g, "olmo2.rope.scaling.original_context_length"); /* that of the file */
    r = arch_record(&test, g);
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, OLMO2);
    static const uint32_t two[T_L] = { 1, 2, 0 }, fits[T_L] = { 0, 0, 1 };
    static const char key[] = "olmo2.attention.sliding_window_pattern";
    struct gguf_build *g = make(OLMO3);
    for (uint64_t n = 0; n <= T_L + 1; n++) {
        gguf_build_array(g, key, GGUF_BOOL, n, pattern);
        if (n != T_L) arch_must_refuse(&test, g, key);
    }
    gguf_build_array(g, key, GGUF_U32, T_L, two);
    arch_must_refuse(&test, g, key);
    gguf_build_array(g, key, GGUF_U32, T_L, fits);
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_u32(g, key, 1);
    arch_must_refuse(&test, g, "olmo2.attention.sliding_window_pattern must be an array");
    gguf_build_str(g, key, "all");
    arch_must_refuse(&test, g, key);
    gguf_build_drop(g, key);
    arch_must_refuse(&test, g, "olmo2.attention.sliding_window_pattern must be an array");
    gguf_build_free(g);
}

static void rotation(void **state)
{
    (void)state;
    struct gguf_build *g = make(OLMO3);
    gguf_build_str(g, "olmo2.rope.scaling.type", "linear");
    arch_must_refuse(&test, g, "rope.scaling.type is linear; none and yarn are served");
    gguf_build_drop(g, "olmo2.rope.scaling.type");
    arch_must_refuse(&test, g, "olmo2.rope.scaling.type is missing: rope.scaling.factor is 8");
    gguf_build_str(g, "olmo2.rope.scaling.type", "none");
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_free(g);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { OLMO2,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { OLMO2,
          { "attention.key_length", 16, true },
          "blk.0.attn_q.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
        { OLMO2, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { OLMO2, { "block_count", 4, true }, "blk.3.attn_q.weight: missing in the file" },
        { OLMO2, { "block_count", 2, true }, "blk.2.attn_q.weight is in the file, nothing reads it" },
        { OLMO2, { "attention.clamp_kqv", 8, false }, "olmo2.attention.clamp_kqv" },
        { OLMO3, { "rope.scaling.yarn_attn_factor", 1, false }, "rope.scaling.yarn_attn_factor is 1; 1 + 0.1 ln(" },
        { OLMO3,
          { "rope.scaling.yarn_beta_slow", 33, false },
          "yarn_beta_fast is 32, must be at least yarn_beta_slow" },
        { OLMO3, { "rope.scaling.yarn_ext_factor", 0.5, false }, "olmo2.rope.scaling.yarn_ext_factor" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { OLMO2, "blk.0.attn_q.bias" },
                                                { OLMO2, "blk.0.attn_norm.weight" },
                                                { OLMO2, "blk.0.ffn_norm.weight" },
                                                { OLMO3, "output.bias" },
                                                { TIED, "rope_freqs.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(windows),  ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),          cmocka_unit_test(rotation), cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
