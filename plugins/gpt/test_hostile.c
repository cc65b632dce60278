/* test_hostile.c: files with wrong hyper-parameters and wrong tensors. Every one is refused with a text, or, where the
 * numbers happen to make sense, recorded into a program that passes the checker; nothing divides by zero, overflows or
 * takes long. */
#include "test_gpt_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&gpt_test, GPT_OSS);
}

/* Which layers are behind the window: a list, or a number. */
static void window_patterns(void **state)
{
    (void)state;
    static const char key[] = "gpt-oss.attention.sliding_window_pattern";
    static const struct {
        int number; /* -1: the list */
        uint8_t list[T_L];
        bool behind[T_L];
    } rows[] = { { -1, { 1, 0, 1 }, { true, false, true } }, { -1, { 0, 0, 1 }, { false, false, true } },
                 { 2, { 0 }, { true, false, true } },        { 0, { 0 }, { true, true, true } },
                 { 1, { 0 }, { false, false, false } },      { 3, { 0 }, { true, true, false } } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gguf_build *g = gpt_file(GPT_OSS);
        if (rows[i].number < 0)
            gguf_build_array(g, key, GGUF_BOOL, T_L, rows[i].list);
        else
            gguf_build_u32(g, key, (uint32_t)rows[i].number);
        struct arch_opened r = arch_record(&gpt_test, g);
        assert_int_equal(r.p->n_kv_layers, T_L);
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(r.p->ops[r.p->kv_layers[l].op].u.attn.window != 0, rows[i].behind[l]);
        arch_close(&r);
        g = gpt_file(GPT_OSS);
        gguf_build_array(g, key, GGUF_BOOL, T_L - 1, rows[i].list);
        arch_must_refuse(&gpt_test, g, key);
        gguf_build_free(g);
    }
}

static void equal_elements_count_as_one(void **state)
{
    (void)state;
    const uint32_t heads[3] = { T_H, T_H, T_H };
    struct gguf_build *g = gpt_file(GPT2);
    gguf_build_array(g, "gpt2.attention.head_count", GGUF_U32, 3, heads);
    assert_int_equal(arch_attempt(&gpt_test, g, NULL), WK_OK);
    gguf_build_free(g);
}

/* What one of the two architectures needs and the other does not know: nothing is made up for it. */
static void missing_keys(void **state)
{
    (void)state;
    static const struct {
        enum gpt_file which;
        const char *key;
    } rows[] = {
        { GPT2, "gpt2.attention.layer_norm_epsilon" },   { GPT_OSS, "gpt-oss.attention.layer_norm_rms_epsilon" },
        { GPT_OSS, "gpt-oss.attention.sliding_window" }, { GPT_OSS, "gpt-oss.expert_count" },
        { GPT_OSS, "gpt-oss.expert_used_count" },        { GPT_OSS, "gpt-oss.rope.freq_base" },
        { GPTOSS, "gptoss.attention.sliding_window" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char about[128];
        struct gguf_build *g = gpt_file(rows[i].which);
        (void)snprintf(about, sizeof about, "%s is missing", rows[i].key);
        gguf_build_drop(g, rows[i].key);
        arch_must_refuse(&gpt_test, g, about);
        gguf_build_free(g);
    }
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { GPT2,
          { "attention.head_count", 6, true },
          "embedding_length is 32, must be a multiple of attention.head_count, 6" },
        { GPT2, { "attention.head_count", 32, true }, "a head of 1 values" },
        { GPT2, { "attention.head_count_kv", 2, true }, "gpt2 is served with equal heads that fill the row" },
        { GPT2, { "attention.key_length", 16, true }, "gpt2 is served with equal heads that fill the row" },
        { GPT2, { "attention.value_length", 4, true }, "gpt2 is served with equal heads that fill the row" },
        { GPT2, { "expert_count", 8, true }, "gpt2.expert_count: nothing reads this key" },
        { GPT2,
          { "context_length", 2 * T_C, true },
          "position_embd.weight: the file has 128 rows x 32 columns, the plugin asks for 256 x 32" },
        { GPT2, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { GPT_OSS,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { GPT_OSS, { "rope.dimension_count", 7, true }, "rope.dimension_count is 7, must be even" },
        { GPT_OSS, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { GPT_OSS,
          { "rope.freq_base_swa", 10000, false },
          "rope.freq_base_swa is 10000; 150000, as rope.freq_base, is served" },
        { GPT_OSS,
          { "rope.scaling.yarn_beta_fast", 0.5, false },
          "rope.scaling.yarn_beta_fast is 0.5, must be at least yarn_beta_slow, 1" },
        { GPT_OSS, { "rope.scaling.yarn_attn_factor", 2, false }, "rope.scaling.yarn_attn_factor is 2; 1 + 0.1 ln(" },
        { GPT_OSS, { "expert_used_count", 9, true }, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { GPT_OSS, { "expert_used_count", 0, true }, "gpt-oss.expert_used_count: 0, must be 1 to 64" },
        { GPT_OSS, { "expert_used_count", 65, true }, "gpt-oss.expert_used_count: 65, must be 1 to 64" },
        { GPT_OSS, { "expert_count", 0, true }, "gpt-oss.expert_count: 0, must be 1 to 1024" },
        { GPT_OSS,
          { "expert_count", 16, true },
          "blk.0.ffn_gate_inp.weight: the file has 8 rows x 32 columns, the plugin asks for 16 x 32" },
        { GPT_OSS,
          { "expert_feed_forward_length", 32, true },
          "blk.0.ffn_gate_exps.weight: the file has 64 rows x 32 columns x 8 slabs, the plugin asks for 32 x 32 x 8" },
        { GPT_OSS, { "attention.sliding_window", 0, true }, "gpt-oss.attention.sliding_window: 0, must be 1 to" },
        { GPT_OSS,
          { "attention.sliding_window", 134217729, true },
          "gpt-oss.attention.sliding_window: 134217729, must be 1 to 134217728" },
        { GPT_OSS, { "attention.sliding_window", -128, true }, "gpt-oss.attention.sliding_window: -128, must be 1 to" },
        { GPT_OSS, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&gpt_test, rows, ARCH_COUNT(rows));
    struct gguf_build *g = gpt_file(GPT_OSS);
    gguf_build_str(g, "gpt-oss.rope.scaling.type", "linear");
    arch_must_refuse(&gpt_test, g, "rope.scaling.type is linear; none and yarn are served");
    gguf_build_free(g);
}

/* A window of one position, and one that no context reaches. */
static void extreme_windows(void **state)
{
    (void)state;
    static const uint32_t windows[] = { 1, T_C, T_C + 1, 134217728 };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        struct gguf_build *g = gpt_file(GPT_OSS);
        gguf_build_u32(g, "gpt-oss.attention.sliding_window", windows[i]);
        assert_int_equal(arch_attempt(&gpt_test, g, NULL), WK_OK);
        gguf_build_free(g);
    }
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { GPT2, "blk.0.attn_qkv.biases" },    { GPT2, "blk.0.attn_sinks.weight" },  { GPT2, "blk.0.ffn_gate.weight" },
        { GPT_OSS, "blk.3.attn_q.weight" },   { GPT_OSS, "position_embd.weight" },  { GPT_OSS, "output_norm.bias" },
        { GPT_OSS, "blk.0.ffn_norm.weight" }, { GPT_OSS, "blk.1.attn_out.weight" }, { GPT_OSS, "blk.2.attn_sinks" },
    };
    arch_surplus_tensors(&gpt_test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ARCH_EVERY_PLUGIN(gpt_test),       cmocka_unit_test(arrays),
        cmocka_unit_test(window_patterns), cmocka_unit_test(equal_elements_count_as_one),
        cmocka_unit_test(missing_keys),    cmocka_unit_test(relations),
        cmocka_unit_test(extreme_windows), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
