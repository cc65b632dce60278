/* gpt_files.c: see gpt_files.h. */
#include "gpt_files.h"

#include <string.h>

static const char *const architectures[GPT_FILES] = { "gpt2", "gpt2", "gpt-oss", "gptoss" };

static const char *architecture_of(uint32_t which) { return architectures[which]; }

struct shape {
    const char *name;
    uint32_t rows, cols, slabs;
};
static const struct shape gpt2_layer[] = {
    { "attn_norm.weight", 1, T_E, 1 },  { "attn_norm.bias", 1, T_E, 1 },       { "attn_qkv.weight", 3 * T_E, T_E, 1 },
    { "attn_qkv.bias", 1, 3 * T_E, 1 }, { "attn_output.weight", T_E, T_E, 1 }, { "attn_output.bias", 1, T_E, 1 },
    { "ffn_norm.weight", 1, T_E, 1 },   { "ffn_norm.bias", 1, T_E, 1 },        { "ffn_up.weight", T_F, T_E, 1 },
    { "ffn_up.bias", 1, T_F, 1 },       { "ffn_down.weight", T_E, T_F, 1 },    { "ffn_down.bias", 1, T_E, 1 },
};
static const struct shape gpt_oss_layer[] = {
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
    for (size_t i = 0; which == GPTOSS && i < sizeof of_ollama / sizeof of_ollama[0]; i++)
        if (strcmp(name, of_ollama[i][0]) == 0) return of_ollama[i][1];
    return name;
}

static void layer(struct gguf_build *g, unsigned l, uint32_t which)
{
    const bool oss = which == GPT_OSS || which == GPTOSS;
    const struct shape *shapes = oss ? gpt_oss_layer : gpt2_layer;
    const size_t n = oss ? sizeof gpt_oss_layer / sizeof *shapes : sizeof gpt2_layer / sizeof *shapes;
    for (size_t i = 0; i < n; i++) {
        char full[64];
        (void)snprintf(full, sizeof full, "blk.%u.%s", l, stored_name(which, shapes[i].name));
        gguf_build_floats(g, full, shapes[i].rows, shapes[i].cols, shapes[i].slabs, NULL);
    }
}

static void put_u32(struct gguf_build *g, uint32_t which, const char *name, uint32_t value)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s.%s", architectures[which], name);
    gguf_build_u32(g, key, value);
}
static void put_f32(struct gguf_build *g, uint32_t which, const char *name, float value)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s.%s", architectures[which], name);
    gguf_build_f32(g, key, value);
}

static void gpt_oss_keys(struct gguf_build *g, uint32_t which)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = { { "attention.head_count_kv", T_G },
                    { "attention.sliding_window", 40 },
                    { "expert_count", T_X },
                    { "expert_used_count", T_K },
                    { "rope.scaling.original_context_length", 4096 } };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) put_u32(g, which, numbers[i].key, numbers[i].value);
    put_f32(g, which, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32(g, which, "rope.freq_base", 150000);
    put_f32(g, which, "rope.scaling.factor", 32);
    if (which == GPT_OSS) gguf_build_str(g, "gpt-oss.rope.scaling.type", "yarn");
}

struct gguf_build *gpt_file(uint32_t which)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = { { "context_length", T_C },
                    { "embedding_length", T_E },
                    { "block_count", T_L },
                    { "feed_forward_length", T_F },
                    { "attention.head_count", T_H } };
    struct gguf_build *g = gguf_build_new(architectures[which]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) put_u32(g, which, numbers[i].key, numbers[i].value);
    gguf_build_floats(g, "token_embd.weight", T_V, T_E, 1, NULL);
    gguf_build_floats(g, "output_norm.weight", 1, T_E, 1, NULL);
    if (which != GPT2) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL); /* GPT-2 as published: tied */
    if (which == GPT_OSS || which == GPTOSS) {
        gpt_oss_keys(g, which);
    } else {
        put_f32(g, which, "attention.layer_norm_epsilon", 1e-5f);
        gguf_build_floats(g, "output_norm.bias", 1, T_E, 1, NULL);
        gguf_build_floats(g, "position_embd.weight", T_C, T_E, 1, NULL);
    }
    for (unsigned l = 0; l < T_L; l++) layer(g, l, which);
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
