/* test_llama_files.c: see test_llama_files.h. */
#include "test_llama_files.h"

#include <string.h>

static void floats(struct gguf_build *g, uint32_t layer, const char *name, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    arch_put_layer(g, layer, &(struct arch_shape){ name, rows, cols, slabs }, 1);
}

static void attention(struct gguf_build *g, uint32_t l, uint32_t which)
{
    floats(g, l, "attn_norm.weight", 1, T_E, 1);
    floats(g, l, "attn_output.weight", T_E, T_H * T_D, 1);
    floats(g, l, "attn_q.weight", T_H * T_D, T_E, 1);
    floats(g, l, "attn_k.weight", T_G * T_D, T_E, 1);
    floats(g, l, "attn_v.weight", T_G * T_D, T_E, 1);
    if (which == QWEN2 || which == LLAMA_BIASED) {
        floats(g, l, "attn_q.bias", 1, T_H * T_D, 1);
        floats(g, l, "attn_k.bias", 1, T_G * T_D, 1);
        floats(g, l, "attn_v.bias", 1, T_G * T_D, 1);
    }
    if (which == LLAMA_BIASED) floats(g, l, "attn_output.bias", 1, T_E, 1);
    if (which == QWEN3 || which == QWEN3MOE) {
        floats(g, l, "attn_q_norm.weight", 1, T_D, 1);
        floats(g, l, "attn_k_norm.weight", 1, T_D, 1);
    }
}

static void feed_forward(struct gguf_build *g, uint32_t l, uint32_t which)
{
    floats(g, l, "ffn_norm.weight", 1, T_E, 1);
    if (which == MIXTRAL || which == QWEN3MOE) {
        floats(g, l, "ffn_gate_inp.weight", T_X, T_E, 1);
        floats(g, l, "ffn_gate_exps.weight", T_F, T_E, T_X);
        floats(g, l, "ffn_up_exps.weight", T_F, T_E, T_X);
        floats(g, l, "ffn_down_exps.weight", T_E, T_F, T_X);
        return;
    }
    floats(g, l, "ffn_gate.weight", T_F, T_E, 1);
    floats(g, l, "ffn_up.weight", T_F, T_E, 1);
    floats(g, l, "ffn_down.weight", T_E, T_F, 1);
    if (which != LLAMA_BIASED) return;
    floats(g, l, "ffn_gate.bias", 1, T_F, 1);
    floats(g, l, "ffn_up.bias", 1, T_F, 1);
    floats(g, l, "ffn_down.bias", 1, T_E, 1);
}

static const char *architecture_of(uint32_t which)
{
    static const char *const names[LLAMA_FILES] = { "llama", "llama", "llama", "qwen2", "qwen3", "qwen3moe" };
    return names[which];
}

struct gguf_build *llama_file(uint32_t which)
{
    static const struct arch_key all[] = { { "context_length", T_C, true },
                                           { "embedding_length", T_E, true },
                                           { "block_count", T_L, true },
                                           { "feed_forward_length", T_F, true },
                                           { "attention.head_count", T_H, true },
                                           { "attention.head_count_kv", T_G, true },
                                           { "rope.dimension_count", T_D, true },
                                           { "attention.layer_norm_rms_epsilon", 1e-5, false } },
                                 experts[] = { { "expert_count", T_X, true }, { "expert_used_count", T_K, true } };
    const char *a = architecture_of(which);
    struct gguf_build *g = gguf_build_new(a);
    arch_put_keys(g, a, all, ARCH_COUNT(all));
    if (which == MIXTRAL || which == QWEN3MOE) arch_put_keys(g, a, experts, ARCH_COUNT(experts));
    gguf_build_floats(g, "token_embd.weight", T_V, T_E, 1, NULL);
    gguf_build_floats(g, "output_norm.weight", 1, T_E, 1, NULL);
    if (which != QWEN3) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL); /* qwen3: tied */
    if (which == LLAMA_BIASED) gguf_build_floats(g, "output.bias", 1, T_V, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) {
        attention(g, l, which);
        feed_forward(g, l, which);
    }
    return g;
}

/* ---- what a file is without a tensor, or with a row more of it ----------------------------------------- */

static const char *without(uint32_t which, const char *tensor)
{
    if (which == LLAMA_BIASED && strcmp(tensor, "output.weight") == 0)
        return "output.bias is in the file, nothing reads it";
    if (strcmp(tensor, "output.weight") == 0 || (which == LLAMA_BIASED && strstr(tensor, ".bias"))) return NULL;
    return tensor;
}
/* The table of tokens says itself how many there are: a row more is one that the head lacks, or, tied, one token more.
 */
static const char *longer(uint32_t which, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return which == QWEN3 ? NULL : "output.weight";
}

const struct arch_test llama_test = { "llama", LLAMA_FILES, architecture_of, llama_file, without, longer };
