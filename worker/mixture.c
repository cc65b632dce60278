/* mixture.c: the rule by which model files mix types: a type for most matrices and one for the head, and a list of
 * rules for what costs more, or less, in one role and place than elsewhere.
 *
 * Sources: the per-tensor types of published files, whose counts and byte totals the rules reproduce; for mixtures of
 * three bits and less, and of IQ4, what llama.cpp's quantizer gives to each tensor. */
#include "mixture.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The mixtures that rules name. */
enum {
    Q4_K_S = 1 << 0,
    Q4_K_M = 1 << 1,
    Q5_K_M = 1 << 2,
    MXFP4_MOE = 1 << 3,
    Q2_K = 1 << 4,
    Q2_K_S = 1 << 5,
    Q3_K_S = 1 << 6,
    Q3_K_M = 1 << 7,
    Q3_K_L = 1 << 8,
    IQ4 = 1 << 9,
    IQ3_XXS = 1 << 10,
    IQ3_XS = 1 << 11,
    IQ3_S = 1 << 12,
    IQ3_M = 1 << 13,
    IQ2_XXS_XS = 1 << 14,
    IQ2_S_M = 1 << 15,
    IQ1 = 1 << 16,
    TQ = 1 << 17,
    K23 = Q2_K | Q2_K_S | Q3_K_S | Q3_K_M | Q3_K_L,
    IQ3 = IQ3_XXS | IQ3_XS | IQ3_S | IQ3_M,
    IQ12 = IQ2_XXS_XS | IQ2_S_M | IQ1
};

static const struct mixture mixtures[] = {
    /* name       base       head    rules       file_type */
    { "F32", "f32", "f32", 0, 0 },
    { "F16", "f16", "f16", 0, 1 },
    { "BF16", "bf16", "bf16", 0, 32 },
    { "Q4_0", "q4_0", "q6_K", 0, 2 },
    { "Q4_1", "q4_1", "q6_K", 0, 3 },
    { "Q5_0", "q5_0", "q6_K", 0, 8 },
    { "Q5_1", "q5_1", "q6_K", 0, 9 },
    { "Q8_0", "q8_0", "q8_0", 0, 7 },
    { "Q2_K", "q2_K", "q6_K", Q2_K, 10 },
    { "Q2_K_S", "q2_K", "q6_K", Q2_K_S, 21 },
    { "Q3_K_S", "q3_K", "q6_K", Q3_K_S, 11 },
    { "Q3_K_M", "q3_K", "q6_K", Q3_K_M, 12 },
    { "Q3_K_L", "q3_K", "q6_K", Q3_K_L, 13 },
    { "Q4_K_S", "q4_K", "q6_K", Q4_K_S, 14 },
    { "Q4_K_M", "q4_K", "q6_K", Q4_K_M, 15 },
    { "Q5_K_S", "q5_K", "q6_K", 0, 16 },
    { "Q5_K_M", "q5_K", "q6_K", Q5_K_M, 17 },
    { "Q6_K", "q6_K", "q6_K", 0, 18 },
    { "IQ4_NL", "iq4_nl", "q6_K", IQ4, 25 },
    { "IQ4_XS", "iq4_xs", "q6_K", IQ4, 30 },
    { "IQ3_XXS", "iq3_xxs", "q5_K", IQ3_XXS, 23 },
    { "IQ3_XS", "iq3_s", "q6_K", IQ3_XS, 22 },
    { "IQ3_S", "iq3_s", "q6_K", IQ3_S, 26 },
    { "IQ3_M", "iq3_s", "q6_K", IQ3_M, 27 },
    { "IQ2_XXS", "iq2_xxs", "q5_K", IQ2_XXS_XS, 19 },
    { "IQ2_XS", "iq2_xs", "q5_K", IQ2_XXS_XS, 20 },
    { "IQ2_S", "iq2_xs", "q5_K", IQ2_S_M, 28 },
    { "IQ2_M", "iq2_s", "q5_K", IQ2_S_M, 29 },
    { "IQ1_S", "iq1_s", "q5_K", IQ1, 24 },
    { "IQ1_M", "iq1_m", "q5_K", IQ1, 31 },
    { "TQ1_0", "tq1_0", "q6_K", TQ, 36 },
    { "TQ2_0", "tq2_0", "q6_K", TQ, 37 },
    { "MXFP4_MOE", "q8_0", "q8_0", MXFP4_MOE, 38 },
};

/* What a matrix is for. A fused one, or one of keys and values of all heads, counts as values in newer mixtures. */
enum {
    EMBEDDING = 1 << 0,
    QUERY = 1 << 1,
    KEY = 1 << 2,
    VALUE = 1 << 3,
    FUSED = 1 << 4,
    LATENT = 1 << 5,
    MIXED = 1 << 6, /* the projection behind attention */
    GATE = 1 << 7,
    UP = 1 << 8,
    DOWN = 1 << 9,
    EXPERT = 1 << 10, /* besides one of the three above */
    SCORES = 1 << 11, /* of a reranker: it reads one row a text, of which no importance is gathered */
    VALUES = VALUE | FUSED | LATENT
};

enum when {
    ALWAYS,
    FIRST_TWO, /* layers */
    FIRST_FOUR,
    FIRST_SIXTEENTH,
    FIRST_EIGHTH,
    FIRST_EIGHTH_UNWEIGHED, /* without an importance matrix */
    MIDDLE,                 /* but the first and the last eighth */
    SENSITIVE,              /* the first and the last eighth, and every third layer between */
    SENSITIVE_OF_8_EXPERTS,
    OF_8_EXPERTS,
    SHARED,            /* four query heads or more share a value head: the matrix is small */
    SHARED_OR_EXPERTS, /* or there are four experts or more */
    LLAMA_70B,
    WEIGHED,
    UNWEIGHED
};

struct rule {
    uint32_t mixtures, roles;
    enum when when;
    const char *type;
};

/* The first one that fits. */
static const struct rule rules[] = {
    { MXFP4_MOE, EXPERT, ALWAYS, "mxfp4" },
    { Q4_K_M | Q5_K_M | K23 | IQ3 | IQ4, VALUE | KEY, OF_8_EXPERTS, "q8_0" }, /* small beside the experts */
    { K23 | IQ3 | IQ4, FUSED | LATENT, OF_8_EXPERTS, "q8_0" },
    { IQ3 | IQ4 | Q2_K | Q3_K_S | Q3_K_M, MIXED, OF_8_EXPERTS, "q5_K" },
    { Q3_K_L, MIXED, OF_8_EXPERTS, "q3_K" },

    { Q4_K_M | Q5_K_M, VALUE | DOWN, SENSITIVE, "q6_K" },
    { Q4_K_M, FUSED, ALWAYS, "q5_K" },
    { Q5_K_M, FUSED, ALWAYS, "q6_K" },
    { Q4_K_S, VALUE, FIRST_FOUR, "q5_K" },
    { Q4_K_S, DOWN, FIRST_EIGHTH, "q5_K" },
    { Q4_K_S | Q4_K_M, VALUE, LLAMA_70B, "q5_K" },

    { K23 | IQ3, VALUES, LLAMA_70B, "q5_K" },
    { Q2_K | Q2_K_S, VALUES, SHARED, "q4_K" },
    { Q2_K, VALUES | DOWN | MIXED, ALWAYS, "q3_K" },
    { Q2_K_S, DOWN, FIRST_EIGHTH, "q4_K" },
    { Q3_K_M, VALUES, FIRST_TWO, "q5_K" },
    { Q3_K_M, DOWN, FIRST_SIXTEENTH, "q5_K" },
    { Q3_K_M, VALUES | DOWN | MIXED, ALWAYS, "q4_K" },
    { Q3_K_L, VALUES | DOWN | MIXED, ALWAYS, "q5_K" },
    { IQ4, VALUES, SHARED, "q5_K" },
    { IQ4, DOWN, FIRST_EIGHTH_UNWEIGHED, "q5_K" },

    { IQ3_XXS | IQ3_XS | IQ3_S, VALUES, SHARED, "q4_K" },
    { IQ3_XXS, VALUES, UNWEIGHED, "iq3_s" },
    { IQ3_XXS, QUERY | KEY, WEIGHED, "iq2_s" },
    { IQ3_XXS, DOWN, FIRST_EIGHTH_UNWEIGHED, "q4_K" },
    { IQ3_XXS, DOWN, UNWEIGHED, "q3_K" },
    { IQ3_XXS, MIXED | EMBEDDING, ALWAYS, "iq3_s" },
    { IQ3_XS, QUERY | KEY, ALWAYS, "iq3_xxs" },
    { IQ3_XS, GATE | UP, MIDDLE, "iq3_xxs" },
    { IQ3_M, VALUES | MIXED, ALWAYS, "q4_K" },
    { IQ3_M, DOWN, FIRST_EIGHTH, "q4_K" },
    { IQ3_M, DOWN, SENSITIVE_OF_8_EXPERTS, "q4_K" },

    { IQ12, SCORES, ALWAYS, "q5_K" },
    { IQ12, VALUES, SHARED_OR_EXPERTS, "q4_K" },
    { IQ12, KEY, OF_8_EXPERTS, "q4_K" },
    { IQ12, MIXED, OF_8_EXPERTS, "q5_K" },
    { IQ2_S_M, VALUES | MIXED | EMBEDDING, ALWAYS, "iq3_s" },
    { IQ2_S_M, DOWN, FIRST_EIGHTH, "iq3_s" },
    { IQ2_XXS_XS | IQ1, VALUES | EMBEDDING, ALWAYS, "q2_K" },
    { IQ2_XXS_XS | IQ1, DOWN, FIRST_EIGHTH, "q2_K" },
    { IQ1, MIXED, ALWAYS, "iq2_xxs" },
    { TQ, EMBEDDING, ALWAYS, "q4_K" },
};

const struct mixture *mixture_named(const char *name)
{
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        if (strcasecmp(mixtures[i].name, name) == 0) return &mixtures[i];
    return NULL;
}

/* {architecture}.<key>, of an array its first number; 0 if absent or not a number. */
static uint32_t architecture_u32(const struct gguf *file, struct gguf_str architecture, const char *key)
{
    char name[160];
    uint64_t value = 0;
    if (architecture.len > 64) return 0;
    int n = snprintf(name, sizeof name, "%.*s.%s", (int)architecture.len, architecture.data, key);
    const struct gguf_kv *kv = n > 0 ? gguf_find(file, name) : NULL;
    if (!kv || gguf_u64_at(file, kv, 0, &value, NULL) || value > UINT32_MAX) return 0;
    return (uint32_t)value;
}

struct mixture_model mixture_model_of(const struct gguf *file, bool weighed)
{
    struct mixture_model m = { .weighed = weighed };
    struct gguf_str architecture = { "", 0 };
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    if (kv) (void)gguf_str(file, kv, &architecture, NULL);
    m.layers = architecture_u32(file, architecture, "block_count");
    m.ahead = architecture_u32(file, architecture, "nextn_predict_layers");
    m.experts = architecture_u32(file, architecture, "expert_count");
    const uint32_t heads = architecture_u32(file, architecture, "attention.head_count"),
                   values = architecture_u32(file, architecture, "attention.head_count_kv");
    m.sharing = values ? heads / values : 1;
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

static bool is_of_layer(struct gguf_str name) { return name.len > 4 && memcmp(name.data, "blk.", 4) == 0; }

/* N of "blk.N."; 0 outside layers. */
static uint32_t layer_of(struct gguf_str name)
{
    uint32_t layer = 0;
    if (!is_of_layer(name)) return 0;
    for (uint64_t i = 4; i < name.len && name.data[i] >= '0' && name.data[i] <= '9' && layer < 100000; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    return layer;
}

bool mixture_is_of_step(const struct mixture_model *m, const struct gguf_tensor *t)
{
    const bool some_ahead = m->ahead && m->ahead < m->layers;
    return is_of_layer(t->name) && !(some_ahead && layer_of(t->name) >= m->layers - m->ahead);
}

/* The first and the last eighth of the layers, and every third one between. */
static bool sensitive(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static uint32_t roles_of(struct gguf_str name)
{
    static const struct {
        uint32_t role;
        const char *end;
    } ends[] = { { QUERY, "attn_q.weight" },        { KEY, "attn_k.weight" },       { VALUE, "attn_v.weight" },
                 { FUSED, "attn_qkv.weight" },      { LATENT, "attn_kv_b.weight" }, { MIXED, "attn_output.weight" },
                 { EMBEDDING, "token_embd.weight" } };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i].end)) return ends[i].role;
    if (is(name, "cls.weight") || is(name, "cls.output.weight")) return SCORES;
    const uint32_t role = contains(name, ".ffn_down")   ? DOWN
                          : contains(name, ".ffn_gate") ? GATE
                          : contains(name, ".ffn_up")   ? UP
                                                        : 0;
    return is_expert(name) ? role | EXPERT : role;
}

static bool holds(enum when when, const struct mixture_model *m, uint32_t layer)
{
    const uint32_t n = m->layers;
    switch (when) {
    case ALWAYS: return true;
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_SIXTEENTH: return layer < n / 16;
    case FIRST_EIGHTH: return layer < n / 8;
    case FIRST_EIGHTH_UNWEIGHED: return layer < n / 8 && !m->weighed;
    case MIDDLE: return layer >= n / 8 && layer < 7 * n / 8;
    case SENSITIVE: return sensitive(layer, n);
    case SENSITIVE_OF_8_EXPERTS: return m->experts == 8 && sensitive(layer, n);
    case OF_8_EXPERTS: return m->experts == 8;
    case SHARED: return m->sharing >= 4;
    case SHARED_OR_EXPERTS: return m->sharing >= 4 || m->experts >= 4;
    case LLAMA_70B: return m->llama_70b;
    case WEIGHED: return m->weighed;
    case UNWEIGHED: return !m->weighed;
    }
    return false;
}

bool mixture_is_head(const struct mixture_model *model, const struct gguf_tensor *t)
{
    return is(t->name, "output.weight") || (model->tied && is(t->name, "token_embd.weight"));
}

const char *mixture_type(const struct mixture *m, const struct mixture_model *model, const struct gguf_tensor *t)
{
    const struct gguf_str name = t->name;
    const uint32_t layer = layer_of(name), roles = roles_of(name);
    if (mixture_is_head(model, t)) return m->head;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((rules[i].mixtures & m->rules) && (rules[i].roles & roles) && holds(rules[i].when, model, layer))
            return rules[i].type;
    return m->base;
}

const char *mixture_fallback(const char *type, bool head)
{
    static const char *const next[][2] = { { "q4_K", "q5_0" },      { "q5_K", "q5_1" },    { "q6_K", "q8_0" },
                                           { "q2_K", "iq4_nl" },    { "q3_K", "iq4_nl" },  { "iq4_xs", "iq4_nl" },
                                           { "iq3_xxs", "iq4_nl" }, { "iq3_s", "iq4_nl" }, { "iq2_xxs", "iq4_nl" },
                                           { "iq2_xs", "iq4_nl" },  { "iq2_s", "iq4_nl" }, { "iq1_s", "iq4_nl" },
                                           { "iq1_m", "iq4_nl" },   { "tq1_0", "q4_0" },   { "tq2_0", "q4_0" } };
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++)
        if (strcasecmp(next[i][0], type) == 0) return head ? "q8_0" : next[i][1];
    return strcasecmp(type, "f16") == 0 ? NULL : "f16";
}
