/* test_smollm3.c: what smollm3.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { PLAIN, UNTIED, FILES }; /* UNTIED: with an output of its own */

static struct gguf_build *make_of(uint32_t file, uint32_t layers)
{
    const struct arch_key keys[] = { { "context_length", T_C, true },
                                     { "embedding_length", T_E, true },
                                     { "block_count", layers, true },
                                     { "feed_forward_length", T_F, true },
                                     { "attention.head_count", T_H, true },
                                     { "attention.head_count_kv", T_G, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                     { "rope.dimension_count", T_D, true },
                                     { "rope.freq_base", 5e6, false } };
    static const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },           { "attn_q.weight", T_H * T_D, T_E, 1 },
        { "attn_k.weight", T_G * T_D, T_E, 1 },      { "attn_v.weight", T_G * T_D, T_E, 1 },
        { "attn_output.weight", T_E, T_H * T_D, 1 }, { "ffn_norm.weight", 1, T_E, 1 },
        { "ffn_gate.weight", T_F, T_E, 1 },          { "ffn_up.weight", T_F, T_E, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("smollm3");
    arch_put_keys(g, "smollm3", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < layers; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    return g;
}
static struct gguf_build *make(uint32_t file) { return make_of(file, T_L); }

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

static const struct arch_test test = { "smollm3", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

/* The fourth layer and the eighth do not rotate. */
static void layers(void **state)
{
    (void)state;
    enum { LAYERS = 9 };
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make_of(PLAIN, LAYERS));
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        const struct tape_op *a = arch_op(r.p, name);
        assert_true(a->u.attn.window == 0 && a->u.attn.heads == T_H && a->u.attn.kv_heads == T_G);
        arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
        for (uint32_t i = 0; i < 2; i++) {
            const struct tape_op *made = &r.p->ops[r.p->values[a->in[i]].op]; /* q, k */
            if (l == 3 || l == 7) {
                assert_int_equal(made->kind, WK_OP_LINEAR);
                continue;
            }
            assert_int_equal(made->kind, WK_OP_ROPE);
            assert_int_equal(made->u.rope.style, WK_ROPE_INTERLEAVED);
            arch_near(made->u.rope.freq[1], pow(5e6, -0.25));
        }
        assert_int_equal(test_launches_of_layer(r.p, l), 5); /* as llama's */
    }
    for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "rope_llama");
    assert_string_equal(c.attention, "gqa");
    arch_close(&r);
}

static void heads(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(PLAIN));
    assert_string_equal(arch_weight(r.p, "logits"), "token_embd.weight"); /* tied */
    arch_close(&r);
    r = arch_record(&test, make(UNTIED));
    assert_string_equal(arch_weight(r.p, "logits"), "output.weight");
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
          { "attention.key_length", 16, true },
          "blk.0.attn_q.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { PLAIN, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { PLAIN, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { PLAIN, { "attention.sliding_window", 8, true }, "smollm3.attention.sliding_window" },
        { PLAIN, { "rope.scaling.factor", 2, false }, "smollm3.rope.scaling.factor" },
        { PLAIN, { "expert_count", 8, true }, "smollm3.expert_count" },
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
        cmocka_unit_test(layers), cmocka_unit_test(heads),     ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays), cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
