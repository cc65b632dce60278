/* test_starcoder2.c: what starcoder2.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { TIED, UNTIED, FILES }; /* 3B and 7B; 15B */

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = {
        { "context_length", T_C, true },       { "embedding_length", T_E, true },
        { "block_count", T_L, true },          { "feed_forward_length", T_F, true },
        { "attention.head_count", T_H, true }, { "attention.head_count_kv", T_G, true },
        { "rope.freq_base", 1e6, false },      { "attention.layer_norm_epsilon", 1e-5, false }
    };
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } layer[] = { { "attn_norm", 1, T_E },      { "attn_q", T_H * T_D, T_E },      { "attn_k", T_G * T_D, T_E },
                  { "attn_v", T_G * T_D, T_E }, { "attn_output", T_E, T_H * T_D }, { "ffn_norm", 1, T_E },
                  { "ffn_up", T_F, T_E },       { "ffn_down", T_E, T_F } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 },
                                                 { "output_norm.bias", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("starcoder2");
    arch_put_keys(g, "starcoder2", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++)
        for (size_t i = 0; i < ARCH_COUNT(layer); i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", (unsigned)l, layer[i].name);
            gguf_build_floats(g, name, layer[i].rows, layer[i].cols, 1, NULL);
            (void)snprintf(name, sizeof name, "blk.%u.%s.bias", (unsigned)l, layer[i].name);
            gguf_build_floats(g, name, 1, layer[i].rows == 1 ? layer[i].cols : layer[i].rows, 1, NULL);
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
    return file == TIED ? NULL : "output.weight";
}

static const struct arch_test test = { "starcoder2", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        struct tape_capabilities c;
        static const char *const biased[] = { "blk.0.attn_q",      "blk.1.attn_k", "blk.2.attn_v",
                                              "blk.0.attn_output", "blk.1.ffn_up", "blk.2.ffn_down" };
        for (size_t i = 0; i < ARCH_COUNT(biased); i++) assert_int_not_equal(arch_op(r.p, biased[i])->t[1], TAPE_NONE);
        for (uint32_t l = 0; l < T_L; l++) assert_int_equal(test_launches_of_layer(r.p, l), 5);
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        assert_int_equal(arch_op(r.p, "blk.1.ffn_norm")->u.norm.kind, WK_NORM_LAYER);
        assert_int_not_equal(arch_op(r.p, "output_norm")->t[1], TAPE_NONE);
        const struct tape_op *rope = arch_op(r.p, "blk.1.attn_k.rope");
        assert_true(rope->u.rope.style == WK_ROPE_HALF && rope->u.rope.n == T_D / 2);
        const struct tape_op *down = arch_op(r.p, "blk.1.ffn_down");
        for (uint32_t i = 0; i < r.p->n_ops; i++)
            if (r.p->ops[i].out == down->in[0]) assert_int_equal(r.p->ops[i].u.unary.fn, WK_UNARY_GELU_TANH);
        assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 0);
        assert_string_equal(arch_weight(r.p, "logits"), file == TIED ? "token_embd.weight" : "output.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "rope_neox");
        assert_string_equal(c.attention, "gqa");
        arch_close(&r);
    }
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, TIED);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { TIED,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { TIED, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { TIED, { "rope.scaling.factor", 4, false }, "starcoder2.rope.scaling.factor" },
        { TIED, { "attention.sliding_window", 4096, true }, "starcoder2.attention.sliding_window" },
        { TIED, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { TIED, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { TIED, { "expert_count", 8, true }, "starcoder2.expert_count" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, TIED, "linear");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { TIED, "blk.0.ffn_gate.weight" },
                                                { TIED, "blk.3.attn_q.weight" },
                                                { UNTIED, "output.bias" },
                                                { TIED, "position_embd.weight" } };
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
