/* test_glm4.c: what glm4.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { BIASED, PLAIN, TIED, FILES }; /* 9B has biases of q, k and v, 32B has none; TIED: without an output */

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "rope.dimension_count", T_D / 2, true },
                                            { "attention.layer_norm_rms_epsilon", 1.5625e-7, false } };
    static const struct arch_shape layer[] = { { "attn_norm.weight", 1, T_E, 1 },
                                               { "attn_q.weight", T_H * T_D, T_E, 1 },
                                               { "attn_k.weight", T_G * T_D, T_E, 1 },
                                               { "attn_v.weight", T_G * T_D, T_E, 1 },
                                               { "attn_output.weight", T_E, T_H * T_D, 1 },
                                               { "post_attention_norm.weight", 1, T_E, 1 },
                                               { "ffn_norm.weight", 1, T_E, 1 },
                                               { "ffn_up.weight", 2 * T_F, T_E, 1 },
                                               { "ffn_down.weight", T_E, T_F, 1 },
                                               { "post_ffw_norm.weight", 1, T_E, 1 } },
                                   biases[] = { { "attn_q.bias", 1, T_H * T_D, 1 },
                                                { "attn_k.bias", 1, T_G * T_D, 1 },
                                                { "attn_v.bias", 1, T_G * T_D, 1 } },
                                   outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("glm4");
    arch_put_keys(g, "glm4", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file != TIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) {
        arch_put_layer(g, l, layer, ARCH_COUNT(layer));
        if (file == BIASED) arch_put_layer(g, l, biases, ARCH_COUNT(biases));
    }
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 || strstr(tensor, ".bias") ? NULL : tensor;
}
/* The embedding says itself how many tokens there are: a row more is one that the head lacks, or, tied, one token
 * more. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == TIED ? NULL : "output.weight";
}

static const struct arch_test test = { "glm4", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        struct tape_capabilities c;
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(test_launches_of_layer(r.p, l), 7); /* two more than llama's: norms before additions */
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        const struct tape_op *rope = arch_op(r.p, "blk.1.attn_q.rope"), *up = arch_op(r.p, "blk.1.ffn_up.2");
        assert_true(rope->u.rope.style == WK_ROPE_INTERLEAVED && rope->u.rope.head == T_D && rope->u.rope.n == T_D / 4);
        arch_near(rope->u.rope.freq[1], 0.01);                           /* 10000^(-1 / 2): of the half that rotates */
        assert_true(up->u.linear.first == T_F && up->u.linear.n == T_F); /* gate, then up */
        arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_D));
        assert_int_equal(arch_op(r.p, "blk.2.attn_v")->t[1] != TAPE_NONE, file == BIASED);
        assert_string_equal(arch_weight(r.p, "blk.0.post_attention_norm"), "blk.0.post_attention_norm.weight");
        assert_string_equal(arch_weight(r.p, "logits"), file == TIED ? "token_embd.weight" : "output.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.attention, "gqa");
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
        { PLAIN,
          { "feed_forward_length", 2 * T_F, true },
          "blk.0.ffn_up.weight: the file has 128 rows x 32 columns, the plugin asks for 256 x 32" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { PLAIN, { "rope.dimension_count", 3, true }, "rope.dimension_count is 3, must be even" },
        { PLAIN, { "rope.scaling.factor", 4, false }, "glm4.rope.scaling.factor" },
        { PLAIN, { "attention.sliding_window", 64, true }, "glm4.attention.sliding_window" },
        { PLAIN, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { PLAIN, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { PLAIN, { "expert_count", 8, true }, "glm4.expert_count" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, PLAIN, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { PLAIN, "blk.0.ffn_gate.weight" },    { PLAIN, "blk.0.attn_output.bias" },
        { PLAIN, "blk.0.attn_q_norm.weight" }, { PLAIN, "blk.3.nextn.eh_proj.weight" },
        { BIASED, "blk.3.attn_q.weight" },     { TIED, "output_norm.bias" }
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

static void layers_left_out(void **state)
{
    (void)state;
    arch_nextn(&test, PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    ARCH_EVERY_PLUGIN(test),           cmocka_unit_test(arrays),
        cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors), cmocka_unit_test(layers_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
