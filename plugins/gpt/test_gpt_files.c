/* test_gpt_files.c: see test_gpt_files.h. */
#include "test_gpt_files.h"

#include <string.h>

static const char *const architectures[GPT_FILES] = { "gpt2", "gpt2", "gpt-oss", "gptoss" };

static const char *architecture_of(uint32_t which) { return architectures[which]; }

static const struct arch_shape gpt2_layer[] = {
    { "attn_norm.weight", 1, T_E, 1 },  { "attn_norm.bias", 1, T_E, 1 },       { "attn_qkv.weight", 3 * T_E, T_E, 1 },
    { "attn_qkv.bias", 1, 3 * T_E, 1 }, { "attn_output.weight", T_E, T_E, 1 }, { "attn_output.bias", 1, T_E, 1 },
    { "ffn_norm.weight", 1, T_E, 1 },   { "ffn_norm.bias", 1, T_E, 1 },        { "ffn_up.weight", T_F, T_E, 1 },
    { "ffn_up.bias", 1, T_F, 1 },       { "ffn_down.weight", T_E, T_F, 1 },    { "ffn_down.bias", 1, T_E, 1 },
};
static const struct arch_shape gpt_oss_layer[] = {
    { "attn_norm.weight", 1, T_E, 1 },           { "attn_q.weight", T_H *T_D, T_E, 1 },
    { "attn_q.bias", 1, T_H *T_D, 1 },           { "attn_k.weight", T_G *T_D, T_E, 1 },
    { "attn_k.bias", 1, T_G *T_D, 1 },           { "attn_v.weight", T_G *T_D, T_E, 1 },
    { "attn_v.bias", 1, T_G *T_D, 1 },           { "attn_output.weight", T_E, T_H *T_D, 1 },
    { "attn_output.bias", 1, T_E, 1 },           { "attn_sinks.weight", 1, T_H, 1 },
    { "post_attention_norm.weight", 1, T_E, 1 }, { "ffn_gate_inp.weight", T_X, T_E, 1 },
    { "ffn_gate_inp.bias", 1, T_X, 1 },          { "ffn_gate_exps.weight", T_F, T_E, T_X },
    { "ffn_gate_exps.bias", T_X, T_F, 1 },       { "ffn_up_exps.weight", T_F, T_E, T_X },
    { "ffn_up_exps.bias", T_X, T_F, 1 },         { "ffn_down_exps.weight", T_E, T_F, T_X },
    { "ffn_down_exps.bias", T_X, T_E, 1 },
};

static const char *stored_name(uint32_t which, const char *name)
{
    static const char *const of_ollama[][2] = { { "attn_output.weight", "attn_out.weight" },
                                                { "attn_output.bias", "attn_out.bias" },
                                                { "attn_sinks.weight", "attn_sinks" },
                                                { "post_attention_norm.weight", "ffn_norm.weight" } };
    for (size_t i = 0; which == GPTOSS && i < ARCH_COUNT(of_ollama); i++)
        if (strcmp(name, of_ollama[i][0]) == 0) return of_ollama[i][1];
    return name;
}

static void layer(struct gguf_build *g, uint32_t l, uint32_t which)
{
    const bool oss = which == GPT_OSS || which == GPTOSS;
    const struct arch_shape *shapes = oss ? gpt_oss_layer : gpt2_layer;
    const size_t n = oss ? ARCH_COUNT(gpt_oss_layer) : ARCH_COUNT(gpt2_layer);
    for (size_t i = 0; i < n; i++) {
        struct arch_shape stored = shapes[i];
        stored.name = stored_name(which, stored.name);
        arch_put_layer(g, l, &stored, 1);
    }
}

struct gguf_build *gpt_file(uint32_t which)
{
    static const struct arch_key all[] = { { "context_length", T_C, true },
                                           { "embedding_length", T_E, true },
                                           { "block_count", T_L, true },
                                           { "feed_forward_length", T_F, true },
                                           { "attention.head_count", T_H, true } },
                                 gpt2[] = { { "attention.layer_norm_epsilon", 1e-5, false } },
                                 gpt_oss[] = { { "attention.head_count_kv", T_G, true },
                                               { "attention.sliding_window", 40, true },
                                               { "expert_count", T_X, true },
                                               { "expert_used_count", T_K, true },
                                               { "rope.scaling.original_context_length", 4096, true },
                                               { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                               { "rope.freq_base", 150000, false },
                                               { "rope.scaling.factor", 32, false } };
    const char *a = architectures[which];
    struct gguf_build *g = gguf_build_new(a);
    arch_put_keys(g, a, all, ARCH_COUNT(all));
    gguf_build_floats(g, "token_embd.weight", T_V, T_E, 1, NULL);
    gguf_build_floats(g, "output_norm.weight", 1, T_E, 1, NULL);
    if (which != GPT2) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL); /* GPT-2 as published: tied */
    if (which == GPT_OSS || which == GPTOSS) {
        arch_put_keys(g, a, gpt_oss, ARCH_COUNT(gpt_oss));
        if (which == GPT_OSS) gguf_build_str(g, "gpt-oss.rope.scaling.type", "yarn");
    } else {
        arch_put_keys(g, a, gpt2, ARCH_COUNT(gpt2));
        gguf_build_floats(g, "output_norm.bias", 1, T_E, 1, NULL);
        gguf_build_floats(g, "position_embd.weight", T_C, T_E, 1, NULL);
    }
    for (uint32_t l = 0; l < T_L; l++) layer(g, l, which);
    return g;
}

/* ---- what a file is without a tensor, or with a row more of it ----------------------------------------- */

/* A missing tensor is asked for by the plugin's name. */
static const char *without(uint32_t which, const char *tensor)
{
    static char asked[80];
    static const char *const of_ollama[][2] = { { "attn_out.", "attn_output." },
                                                { "ffn_norm.", "post_attention_norm." } };
    if (strcmp(tensor, "output.weight") == 0) return NULL; /* tied */
    for (size_t i = 0; which == GPTOSS && i < ARCH_COUNT(of_ollama); i++) {
        const char *at = strstr(tensor, of_ollama[i][0]);
        if (!at) continue;
        (void)snprintf(asked, sizeof asked, "%.*s%s%s: missing", (int)(at - tensor), tensor, of_ollama[i][1],
                       at + strlen(of_ollama[i][0]));
        return asked;
    }
    return tensor;
}
/* The table of tokens says itself how many there are: a row more is one that the head lacks, or, tied, one token more.
 */
static const char *longer(uint32_t which, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return which == GPT2 ? NULL : "output.weight";
}

const struct arch_test gpt_test = { "gpt", GPT_FILES, architecture_of, gpt_file, without, longer };
