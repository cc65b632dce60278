/* test_gemma3.c: what gemma3.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { PLAIN, UNTIED, FILES }; /* UNTIED: with an output of its own, and a soft-cap */

/* D: values a head. */
static struct gguf_build *make_of(uint32_t file, uint32_t layers, uint32_t D)
{
    const struct arch_key keys[] = {
        { "context_length", T_C, true },          { "embedding_length", T_E, true },
        { "block_count", layers, true },          { "feed_forward_length", T_F, true },
        { "attention.head_count", T_H, true },    { "attention.head_count_kv", T_G, true },
        { "attention.key_length", D, true },      { "attention.value_length", D, true },
        { "attention.sliding_window", 40, true }, { "attention.layer_norm_rms_epsilon", 1e-6, false },
        { "rope.freq_base", 1e6, false },         { "rope.freq_base_swa", 5000, false }
    };
    const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },         { "attn_q.weight", T_H * D, T_E, 1 },
        { "attn_k.weight", T_G * D, T_E, 1 },      { "attn_v.weight", T_G * D, T_E, 1 },
        { "attn_q_norm.weight", 1, D, 1 },         { "attn_k_norm.weight", 1, D, 1 },
        { "attn_output.weight", T_E, T_H * D, 1 }, { "post_attention_norm.weight", 1, T_E, 1 },
        { "ffn_norm.weight", 1, T_E, 1 },          { "ffn_gate.weight", T_F, T_E, 1 },
        { "ffn_up.weight", T_F, T_E, 1 },          { "ffn_down.weight", T_E, T_F, 1 },
        { "post_ffw_norm.weight", 1, T_E, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("gemma3");
    arch_put_keys(g, "gemma3", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) {
        gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
        gguf_build_f32(g, "gemma3.final_logit_softcapping", 30);
    }
    for (uint32_t l = 0; l < layers; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    return g;
}
static struct gguf_build *make(uint32_t file) { return make_of(file, T_L, T_D); }

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
    return file == UNTIED ? "output.weight" : NULL;
}

static const struct arch_test test = { "gemma3", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *op_of(const struct tape_program *p, uint32_t layer, const char *value)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%u.%s", (unsigned)layer, value);
    return arch_op(p, name);
}

/* Every sixth layer, from the last of the first six on, sees all and rotates by the other base. */
static void layers(void **state)
{
    (void)state;
    enum { LAYERS = 13 };
    struct tape_capabilities c;
    struct gguf_build *g = make_of(PLAIN, LAYERS, T_D);
    gguf_build_str(g, "gemma3.rope.scaling.type", "linear");
    gguf_build_f32(g, "gemma3.rope.scaling.factor", 8);
    struct arch_opened r = arch_record(&test, g);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const bool global = l == 5 || l == 11;
        const struct tape_op *a = op_of(r.p, l, "attention"), *q = op_of(r.p, l, "attn_q_norm.rope"),
                             *k = op_of(r.p, l, "attn_k_norm.rope");
        assert_int_equal(a->u.attn.window, global ? 0 : 40);
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G);
        assert_true(a->u.attn.head_k == T_D && a->u.attn.head_v == T_D);
        arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
        assert_true(a->u.attn.softcap == 0);
        assert_ptr_equal(q->u.rope.freq, k->u.rope.freq);
        assert_int_equal(q->u.rope.style, WK_ROPE_HALF);
        arch_near(q->u.rope.freq[0], global ? 1.0 / 8 : 1);
        arch_near(q->u.rope.freq[1], global ? pow(1e6, -0.25) / 8 : pow(5000, -0.25));
        assert_int_equal(op_of(r.p, l, "glu")->u.glu.fn, WK_GLU_GELU_TANH);
    }
    for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
    arch_near((double)arch_op(r.p, "token_embd.scale")->u.unary.p, sqrt(T_E));
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "rope_neox");
    assert_string_equal(c.attention, "gqa swa");
    assert_int_equal(c.n_vocab, T_V);
    arch_close(&r);
}

static void heads(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(PLAIN));
    assert_string_equal(arch_weight(r.p, "logits"), "token_embd.weight"); /* tied */
    arch_close(&r);
    r = arch_record(&test, make(UNTIED));
    assert_int_equal(arch_op(r.p, "logits")->u.unary.fn, WK_UNARY_SOFTCAP);
    arch_near((double)arch_op(r.p, "logits")->u.unary.p, 30);
    assert_string_equal(arch_weight(r.p, "output"), "output.weight");
    arch_close(&r);
}

/* Of the 27B model scores are scaled by the width of a row's part, not of a head. */
static void query_scale(void **state)
{
    (void)state;
    enum { D = 4 };
    struct arch_opened r = arch_record(&test, make_of(PLAIN, 62, D));
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_E / T_H));
    arch_close(&r);
    r = arch_record(&test, make_of(PLAIN, 61, D));
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(D));
    arch_close(&r);
}

/* Older files do not have the base of layers with a window; a file without a window has none such. */
static void absent_keys(void **state)
{
    (void)state;
    struct gguf_build *g = make(PLAIN);
    gguf_build_drop(g, "gemma3.rope.freq_base_swa");
    struct arch_opened r = arch_record(&test, g);
    arch_near(arch_op(r.p, "blk.0.attn_q_norm.rope")->u.rope.freq[1], 0.1);
    arch_close(&r);
    g = make(PLAIN);
    gguf_build_drop(g, "gemma3.attention.sliding_window");
    r = arch_record(&test, g);
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 0);
    arch_near(arch_op(r.p, "blk.0.attn_q_norm.rope")->u.rope.freq[1], pow(1e6, -0.25));
    arch_close(&r);
    g = make(PLAIN);
    gguf_build_str(g, "gemma3.rope.scaling.type", "none");
    r = arch_record(&test, g);
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, PLAIN);
}

static void rotation(void **state)
{
    (void)state;
    struct gguf_build *g = make(PLAIN);
    gguf_build_f32(g, "gemma3.rope.scaling.factor", 8);
    arch_must_refuse(&test, g, "gemma3.rope.scaling.type is missing: rope.scaling.factor is 8");
    gguf_build_str(g, "gemma3.rope.scaling.type", "yarn");
    arch_must_refuse(&test, g, "rope.scaling.type is yarn; none and linear are served");
    gguf_build_free(g);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { PLAIN,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { PLAIN,
          { "attention.head_count", 8, true },
          "blk.0.attn_q.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
        { PLAIN, { "attention.key_length", 7, true }, "rope.dimension_count is 7, must be even" },
        { PLAIN,
          { "attention.value_length", 4, true },
          "blk.0.attn_v.weight: the file has 16 rows x 32 columns, the plugin asks for 8 x 32" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { PLAIN, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { PLAIN, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { PLAIN, { "attn_logit_softcapping", 50, false }, "gemma3.attn_logit_softcapping" },
        { PLAIN, { "attention.scale", 0.1, false }, "gemma3.attention.scale" },
        { PLAIN, { "attention.sliding_window_pattern", 6, true }, "gemma3.attention.sliding_window_pattern" },
        { PLAIN, { "vision.block_count", 27, true }, "gemma3.vision.block_count" },
        { PLAIN, { "rope.scaling.original_context_length", 64, true }, "gemma3.rope.scaling.original_context_length" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { PLAIN, "blk.0.attn_q.bias" },   { PLAIN, "blk.3.attn_q_norm.weight" },
                                                { PLAIN, "blk.3.attn_q.weight" }, { PLAIN, "output_norm.bias" },
                                                { UNTIED, "output.bias" },        { PLAIN, "rope_freqs.weight" },
                                                { PLAIN, "v.patch_embd.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),      cmocka_unit_test(heads),     cmocka_unit_test(query_scale),
        cmocka_unit_test(absent_keys), ARCH_EVERY_PLUGIN(test),     cmocka_unit_test(arrays),
        cmocka_unit_test(rotation),    cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
