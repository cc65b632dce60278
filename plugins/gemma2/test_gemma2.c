/* test_gemma2.c: what gemma2.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { PLAIN, UNTIED, FILES }; /* UNTIED: with an output of its own */

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
                                            { "attention.sliding_window", 40, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                            { "attn_logit_softcapping", 50, false },
                                            { "final_logit_softcapping", 30, false } };
    static const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },
        { "attn_q.weight", T_H * T_D, T_E, 1 },
        { "attn_k.weight", T_G * T_D, T_E, 1 },
        { "attn_v.weight", T_G * T_D, T_E, 1 },
        { "attn_output.weight", T_E, T_H * T_D, 1 },
        { "post_attention_norm.weight", 1, T_E, 1 },
        { "ffn_norm.weight", 1, T_E, 1 },
        { "ffn_gate.weight", T_F, T_E, 1 },
        { "ffn_up.weight", T_F, T_E, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },
        { "post_ffw_norm.weight", 1, T_E, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("gemma2");
    arch_put_keys(g, "gemma2", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
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
    return file == UNTIED ? "output.weight" : NULL;
}

static const struct arch_test test = { "gemma2", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make(PLAIN));
    for (uint32_t l = 0; l < T_L; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        const struct tape_op *a = arch_op(r.p, name);
        assert_int_equal(a->u.attn.window, l % 2 ? 0 : 40);
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G);
        assert_true(a->u.attn.head_k == T_D && a->u.attn.head_v == T_D);
        arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
        arch_near((double)a->u.attn.softcap, 50);
        assert_int_equal(test_launches_of_layer(r.p, l), 7); /* two more than llama's: norms before additions */
    }
    for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
    assert_int_equal(arch_op(r.p, "blk.1.attn_q.rope")->u.rope.style, WK_ROPE_HALF);
    assert_int_equal(arch_op(r.p, "blk.1.glu")->u.glu.fn, WK_GLU_GELU_TANH);
    arch_near((double)arch_op(r.p, "token_embd.scale")->u.unary.p, sqrt(T_E));
    const struct tape_op *cap = arch_op(r.p, "logits");
    assert_int_equal(cap->u.unary.fn, WK_UNARY_SOFTCAP);
    arch_near((double)cap->u.unary.p, 30);
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
    assert_string_equal(arch_weight(r.p, "token_embd.2"), "token_embd.weight"); /* tied */
    arch_close(&r);
    r = arch_record(&test, make(UNTIED));
    assert_string_equal(arch_weight(r.p, "output"), "output.weight");
    arch_close(&r);
}

/* Of the 27B model scores are scaled by the width of a row's part, not of a head. */
static void query_scale(void **state)
{
    (void)state;
    enum { LAYERS = 46, D = 4 };
    static const struct arch_shape more[] = {
        { "attn_q.weight", T_H * D, T_E, 1 },
        { "attn_k.weight", T_G * D, T_E, 1 },
        { "attn_v.weight", T_G * D, T_E, 1 },
        { "attn_output.weight", T_E, T_H * D, 1 },
    };
    struct gguf_build *g = make(PLAIN);
    gguf_build_f32(g, "gemma2.attention.scale", 0.125f);
    struct arch_opened r = arch_record(&test, g);
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 0.125);
    arch_close(&r);
    g = make(PLAIN);
    gguf_build_u32(g, "gemma2.block_count", LAYERS);
    gguf_build_u32(g, "gemma2.attention.key_length", D);
    gguf_build_u32(g, "gemma2.attention.value_length", D);
    for (uint32_t l = 0; l < LAYERS; l++) {
        static const char *const rows[] = { "attn_norm.weight", "post_attention_norm.weight", "ffn_norm.weight",
                                            "post_ffw_norm.weight" };
        static const struct arch_shape net[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                                                 { "ffn_up.weight", T_F, T_E, 1 },
                                                 { "ffn_down.weight", T_E, T_F, 1 } };
        for (size_t i = 0; i < ARCH_COUNT(rows); i++)
            arch_put_layer(g, l, &(struct arch_shape){ rows[i], 1, T_E, 1 }, 1);
        arch_put_layer(g, l, net, ARCH_COUNT(net));
        arch_put_layer(g, l, more, ARCH_COUNT(more));
    }
    r = arch_record(&test, g);
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_E / T_H));
    arch_close(&r);
}

/* The first files have no keys of window and caps: they mean what all published models have. */
static void older_files(void **state)
{
    (void)state;
    static const char *const later[] = { "gemma2.attention.sliding_window", "gemma2.attn_logit_softcapping",
                                         "gemma2.final_logit_softcapping" };
    struct gguf_build *g = make(PLAIN);
    for (size_t i = 0; i < ARCH_COUNT(later); i++) gguf_build_drop(g, later[i]);
    struct arch_opened r = arch_record(&test, g);
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 4096);
    arch_near((double)arch_op(r.p, "blk.0.attention")->u.attn.softcap, 50);
    arch_near((double)arch_op(r.p, "logits")->u.unary.p, 30);
    arch_close(&r);
    g = make(PLAIN);
    gguf_build_f32(g, "gemma2.attn_logit_softcapping", 0); /* none */
    gguf_build_f32(g, "gemma2.final_logit_softcapping", 0);
    r = arch_record(&test, g);
    assert_true(arch_op(r.p, "blk.0.attention")->u.attn.softcap == 0);
    assert_int_equal(arch_op(r.p, "logits")->kind, WK_OP_LINEAR);
    arch_close(&r);
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
        { PLAIN,
          { "attention.head_count", 8, true },
          "blk.0.attn_q.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
        { PLAIN, { "attention.key_length", 7, true }, "rope.dimension_count is 7, must be even" },
        { PLAIN,
          { "attention.value_length", 4, true },
          "blk.0.attn_v.weight: the file has 16 rows x 32 columns, the plugin asks for 8 x 32" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { PLAIN, { "rope.dimension_count", 3, true }, "rope.dimension_count is 3, must be even" },
        { PLAIN, { "rope.scaling.factor", 4, false }, "gemma2.rope.scaling.factor" },
        { PLAIN, { "attention.sliding_window", 0, true }, "gemma2.attention.sliding_window: 0, must be 1 to" },
        { PLAIN, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { PLAIN, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { PLAIN, { "expert_count", 8, true }, "gemma2.expert_count" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { PLAIN, "blk.0.attn_q.bias" },   { PLAIN, "blk.0.attn_q_norm.weight" },
                                                { PLAIN, "blk.3.attn_q.weight" }, { PLAIN, "output_norm.bias" },
                                                { UNTIED, "output.bias" },        { PLAIN, "rope_freqs.weight" } };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),      cmocka_unit_test(heads),           cmocka_unit_test(query_scale),
        cmocka_unit_test(older_files), ARCH_EVERY_PLUGIN(test),           cmocka_unit_test(arrays),
        cmocka_unit_test(relations),   cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
