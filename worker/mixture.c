/* mixture.c: the rule by which published GGUF files mix types, as a table and a few exceptions.
 *
 * Source: the per-tensor types of published files, whose counts and byte totals the rule reproduces. */
#include "mixture.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct mixture mixtures[] = {
    /* name         base    head    qkv     more    experts  file_type */
    { "F32", "f32", "f32", "f32", NULL, NULL, 0 },        { "F16", "f16", "f16", "f16", NULL, NULL, 1 },
    { "BF16", "bf16", "bf16", "bf16", NULL, NULL, 32 },   { "Q4_0", "q4_0", "q6_K", "q4_0", NULL, NULL, 2 },
    { "Q4_1", "q4_1", "q6_K", "q4_1", NULL, NULL, 3 },    { "Q5_0", "q5_0", "q6_K", "q5_0", NULL, NULL, 8 },
    { "Q5_1", "q5_1", "q6_K", "q5_1", NULL, NULL, 9 },    { "Q8_0", "q8_0", "q8_0", "q8_0", NULL, NULL, 7 },
    { "Q4_K_S", "q4_K", "q6_K", "q4_K", NULL, NULL, 14 }, { "Q4_K_M", "q4_K", "q6_K", "q5_K", "q6_K", NULL, 15 },
    { "Q5_K_S", "q5_K", "q6_K", "q5_K", NULL, NULL, 16 }, { "Q5_K_M", "q5_K", "q6_K", "q6_K", "q6_K", NULL, 17 },
    { "Q6_K", "q6_K", "q6_K", "q6_K", NULL, NULL, 18 },   { "MXFP4_MOE", "q8_0", "q8_0", "q8_0", NULL, "mxfp4", 38 },
};

const struct mixture *mixture_named(const char *name)
{
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        if (strcasecmp(mixtures[i].name, name) == 0) return &mixtures[i];
    return NULL;
}

/* {architecture}.<key>; 0 if absent, not a number or an array of several. */
static uint32_t architecture_u32(const struct gguf *file, struct gguf_str architecture, const char *key)
{
    char name[160];
    uint64_t value = 0;
    if (architecture.len > 64) return 0;
    int n = snprintf(name, sizeof name, "%.*s.%s", (int)architecture.len, architecture.data, key);
    const struct gguf_kv *kv = n > 0 ? gguf_find(file, name) : NULL;
    if (!kv || gguf_u64(file, kv, &value, NULL) || value > UINT32_MAX) return 0;
    return (uint32_t)value;
}

struct mixture_model mixture_model_of(const struct gguf *file)
{
    struct mixture_model m = { 0, 0, false, false };
    struct gguf_str architecture = { "", 0 };
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    if (kv) (void)gguf_str(file, kv, &architecture, NULL);
    m.layers = architecture_u32(file, architecture, "block_count");
    m.experts = architecture_u32(file, architecture, "expert_count");
    m.tied = !gguf_tensor_find(file, "output.weight", strlen("output.weight"));
    m.llama_70b = m.layers == 80 && architecture.len == 5 && memcmp(architecture.data, "llama", 5) == 0;
    return m;
}

static bool ends_with(struct gguf_str name, const char *end)
{
    size_t n = strlen(end);
    return name.len >= n && memcmp(name.data + name.len - n, end, n) == 0;
}

static bool is(struct gguf_str name, const char *whole) { return name.len == strlen(whole) && ends_with(name, whole); }

static bool contains(struct gguf_str name, const char *part)
{
    return memmem(name.data, name.len, part, strlen(part)) != NULL;
}

/* A matrix of a routed expert: all of them in one tensor ("blk.0.ffn_up_exps.weight"), or one tensor an expert
 * ("blk.0.ffn_up.7.weight"). */
static bool is_expert(struct gguf_str name)
{
    static const char *const stems[] = { ".ffn_gate.", ".ffn_up.", ".ffn_down." };
    if (contains(name, "_exps.")) return true;
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        const char *at = memmem(name.data, name.len, stems[i], strlen(stems[i]));
        if (!at) continue;
        at += strlen(stems[i]);
        return at < name.data + name.len && *at >= '0' && *at <= '9';
    }
    return false;
}

bool mixture_keeps(const struct gguf_tensor *t)
{
    return t->n_dims < 2 || !ends_with(t->name, ".weight") || ends_with(t->name, "_norm.weight") ||
           ends_with(t->name, "ffn_gate_inp.weight") || ends_with(t->name, "ssm_conv1d.weight") ||
           is(t->name, "position_embd.weight") || is(t->name, "token_types.weight");
}

/* N of "blk.N."; 0 outside layers. */
static uint32_t layer_of(struct gguf_str name)
{
    uint32_t layer = 0;
    if (name.len < 5 || memcmp(name.data, "blk.", 4) != 0) return 0;
    for (uint64_t i = 4; i < name.len && name.data[i] >= '0' && name.data[i] <= '9' && layer < 100000; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    return layer;
}

/* The first and the last eighth of the layers, and every third one between. */
static bool sensitive(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

const char *mixture_type(const struct mixture *m, const struct mixture_model *model, const struct gguf_tensor *t)
{
    const struct gguf_str name = t->name;
    const bool value = ends_with(name, "attn_v.weight"), key = ends_with(name, "attn_k.weight"),
               down = contains(name, ".ffn_down");
    const bool four_bits = strcmp(m->base, "q4_K") == 0, eight_experts = m->more && model->experts == 8;
    const uint32_t layer = layer_of(name), n = model->layers;
    if (m->experts && is_expert(name)) return m->experts;
    if (is(name, "output.weight") || (model->tied && is(name, "token_embd.weight"))) return m->head;
    if (ends_with(name, "attn_qkv.weight")) return m->qkv;
    if (eight_experts && (value || key)) return "q8_0"; /* small beside the experts */
    if (m->more && (value || down) && sensitive(layer, n)) return m->more;
    if (four_bits && value && model->llama_70b) return "q5_K";
    if (!m->more && four_bits && ((value && layer < 4) || (down && layer < n / 8))) return "q5_K"; /* Q4_K_S */
    return m->base;
}

const char *mixture_fallback(const char *type)
{
    static const char *const next[][2] = { { "q4_K", "q5_0" },   { "q5_K", "q5_1" },   { "q6_K", "q8_0" },
                                           { "q2_K", "iq4_nl" }, { "q3_K", "iq4_nl" }, { "iq4_xs", "iq4_nl" } };
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++)
        if (strcasecmp(next[i][0], type) == 0) return next[i][1];
    return strcasecmp(type, "f16") == 0 ? NULL : "f16";
}
