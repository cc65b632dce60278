/* test_hostile.c: files with wrong hyper-parameters and wrong tensors. Every one is refused with a text, or, where the
 * numbers happen to make sense, recorded into a program that passes the checker; nothing divides by zero, overflows or
 * takes long. */
#include "test_llama_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&llama_test, LLAMA);
}

static void equal_elements_count_as_one(void **state)
{
    (void)state;
    const uint32_t heads[3] = { T_H, T_H, T_H };
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_array(g, "llama.attention.head_count", GGUF_U32, 3, heads);
    assert_int_equal(arch_attempt(&llama_test, g, NULL), WK_OK);
    gguf_build_free(g);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { LLAMA,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { LLAMA,
          { "attention.head_count", 6, true },
          "embedding_length is 32, must be a multiple of attention.head_count, 6" },
        { LLAMA, { "attention.head_count", 32, true }, "a head of 1 values" },
        { LLAMA, { "rope.dimension_count", 7, true }, "rope.dimension_count is 7, must be even" },
        { LLAMA, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { LLAMA, { "feed_forward_length", 0, true }, "feed_forward_length is 0" },
        { LLAMA, { "rope.scaling.factor", 0.5, false }, "rope.scaling.factor is 0.5, must be 0 (none) or at least 1" },
        { MIXTRAL, { "expert_used_count", 9, true }, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { MIXTRAL, { "expert_used_count", 0, true }, "expert_used_count is 0, must be 1 to expert_count, 8" },
        { MIXTRAL,
          { "expert_count", 16, true },
          "blk.0.ffn_gate_inp.weight: the file has 8 rows x 32 columns, the plugin asks for 16 x 32" },
        { MIXTRAL, { "expert_count", 0, true }, "blk.0.ffn_gate.weight: missing in the file" },
        { QWEN2, { "expert_count", 4, true }, "expert_count is 4; qwen2 is served without experts" },
        { QWEN3MOE, { "expert_count", 0, true }, "expert_count is 0; qwen3moe has experts" },
        { LLAMA, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { LLAMA, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&llama_test, rows, ARCH_COUNT(rows));
}

static void rope_settings_that_do_not_fit(void **state)
{
    (void)state;
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_str(g, "llama.rope.scaling.type", "dynamic");
    arch_must_refuse(&llama_test, g, "rope.scaling.type is dynamic; none, linear and yarn are served");
    gguf_build_str(g, "llama.rope.scaling.type", "yarn");
    gguf_build_f32(g, "llama.rope.scaling.yarn_beta_fast", 0.5f);
    arch_must_refuse(&llama_test, g, "rope.scaling.yarn_beta_fast is 0.5, must be at least yarn_beta_slow, 1");
    gguf_build_free(g);

    g = llama_file(LLAMA);
    gguf_build_str(g, "llama.rope.scaling.type", "yarn");
    gguf_build_f32(g, "llama.rope.scaling.factor", 8);
    gguf_build_f32(g, "llama.rope.scaling.yarn_attn_factor", 1);
    arch_must_refuse(&llama_test, g,
                     "rope.scaling.yarn_attn_factor is 1; 1 + 0.1 ln(rope.scaling.factor), 1.20794, is");
    gguf_build_free(g);

    const float factors[T_D / 2] = { 1, 0, NAN, 1 };
    g = llama_file(LLAMA);
    gguf_build_floats(g, "rope_freqs.weight", 1, T_D / 2, 1, factors);
    arch_must_refuse(&llama_test, g, "blk.0.attn_q.rope: frequency 1 is not a finite number");
    gguf_build_free(g);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = { { LLAMA, "blk.0.attn_q.biases" },
                                                { LLAMA, "blk.3.attn_q.weight" },
                                                { LLAMA, "blk.0.ffn_gate.bias" },
                                                { LLAMA, "rope_freq.weight" },
                                                { LLAMA, "v.blk.0.ln1.weight" } };
    arch_surplus_tensors(&llama_test, rows, ARCH_COUNT(rows));
    struct gguf_build *g = llama_file(QWEN3); /* an arch without biases does not lose one in silence */
    gguf_build_floats(g, "blk.1.attn_norm.bias", 1, T_E, 1, NULL);
    arch_must_refuse(&llama_test, g, "blk.1.attn_norm.bias is in the file, nothing reads it");
    gguf_build_free(g);
    g = llama_file(QWEN3); /* a tied head is rows of the embedding, which have no bias */
    gguf_build_floats(g, "output.bias", 1, T_V, 1, NULL);
    arch_must_refuse(&llama_test, g, "output.bias is in the file, nothing reads it");
    gguf_build_free(g);
    g = llama_file(MIXTRAL); /* biases of experts are rows of one tensor */
    gguf_build_floats(g, "blk.0.ffn_gate.0.bias", 1, T_F, 1, NULL);
    arch_must_refuse(&llama_test, g, "blk.0.ffn_gate.0.bias");
    gguf_build_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ARCH_EVERY_PLUGIN(llama_test),
        cmocka_unit_test(arrays),
        cmocka_unit_test(equal_elements_count_as_one),
        cmocka_unit_test(relations),
        cmocka_unit_test(rope_settings_that_do_not_fit),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
