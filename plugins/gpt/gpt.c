/* gpt.c: OpenAI's open models: GPT-2, and GPT-OSS (20B and 120B), also in the form in which ollama stores it,
 * architecture gptoss.
 *
 * GPT-2: learned positions, layer norms and biases everywhere, one tensor for q|k|v. GPT-OSS: rotary positions
 * stretched by YaRN, every other layer behind a window, a sink for each head, experts with a clamped gate. open()
 * checks how the numbers of the file fit together; the two record functions are the papers. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    CONTEXT,
    EMBEDDING,
    BLOCKS,
    FEED_FORWARD,
    HEADS,
    LAYER_EPS,
    KV_HEADS,
    KEY_LENGTH,
    VALUE_LENGTH,
    RMS_EPS,
    WINDOW,
    EXPERTS,
    EXPERTS_USED,
    EXPERT_FEED_FORWARD,
    ROPE_DIM,
    ROPE_BASE,
    ROPE_BASE_WINDOW,
    ROPE_TYPE,
    ROPE_FACTOR,
    ROPE_CONTEXT,
    ROPE_MSCALE,
    YARN_EXT,
    YARN_MSCALE,
    YARN_FAST,
    YARN_SLOW,
    YARN_TRUNCATE,
    WINDOW_PATTERN
};
enum { MAX_HEAD = 1024, MAX_LAYERS = 512, MAX_CONTEXT = 1 << 27 };

static const char *const names[] = { "gpt2", "gpt-oss", "gptoss" };
#define NOT_OF_GPT2 WK_KEY_NOT_FOR(0)

/* Ranges: several times what the published models have, small enough that every product below stays inside 32 bits. Up
 * to LAYER_EPS GPT-2's keys as well; what only one of the two needs is asked for in open().
 *
 * This table and ignored_keys know every key that the converter of llama.cpp has (package gguf 0.19.0, constants.py)
 * and that can stand in a file of these models. Whatever else the file says below the architecture's name refuses it:
 * it is about parts that are not computed here. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 },
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_LAYERS, 0 },
    [FEED_FORWARD] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1 << 20, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [LAYER_EPS] = { "attention.layer_norm_epsilon", WK_KEY_F32, 0, 1e-12, 0.1, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, WK_KEY_PER_LAYER, 1, 1024,
                   0 }, /* default: as many as heads */
    [KEY_LENGTH] = { "attention.key_length", WK_KEY_U32, WK_KEY_PER_LAYER, 2, MAX_HEAD,
                     0 }, /* default: embedding / heads */
    [VALUE_LENGTH] = { "attention.value_length", WK_KEY_U32, WK_KEY_PER_LAYER, 1, MAX_HEAD,
                       0 }, /* default: key_length */
    [RMS_EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, 0, 1e-12, 0.1, 0 },
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER | NOT_OF_GPT2, 1, MAX_CONTEXT, 0 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, NOT_OF_GPT2, 1, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, NOT_OF_GPT2, 1, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, WK_KEY_PER_LAYER | NOT_OF_GPT2, 1, 1 << 20,
                              0 }, /* default: feed_forward_length */
    [ROPE_DIM] = { "rope.dimension_count", WK_KEY_U32, WK_KEY_PER_LAYER | NOT_OF_GPT2, 2, MAX_HEAD,
                   0 }, /* default: the whole head */
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, WK_KEY_PER_LAYER | NOT_OF_GPT2, 2, 1e12, 0 },
    [ROPE_BASE_WINDOW] = { "rope.freq_base_swa", WK_KEY_F32, NOT_OF_GPT2, 2, 1e12, 0 }, /* default: freq_base */
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, NOT_OF_GPT2, 0, 0,
                    0 }, /* default: yarn; ollama's files do not say it */
    [ROPE_FACTOR] = { "rope.scaling.factor", WK_KEY_F32, NOT_OF_GPT2, 1, 65536, 1 },
    [ROPE_CONTEXT] = { "rope.scaling.original_context_length", WK_KEY_U32, NOT_OF_GPT2, 1, MAX_CONTEXT,
                       0 }, /* default: context_length */
    [ROPE_MSCALE] = { "rope.scaling.attn_factor", WK_KEY_F32, NOT_OF_GPT2, 0.01, 100, 1 },
    [YARN_EXT] = { "rope.scaling.yarn_ext_factor", WK_KEY_F32, NOT_OF_GPT2, 0, 1, 1 },
    [YARN_MSCALE] = { "rope.scaling.yarn_attn_factor", WK_KEY_F32, NOT_OF_GPT2, 0.01, 100,
                      0 }, /* see wk_yarn_mscale_open */
    [YARN_FAST] = { "rope.scaling.yarn_beta_fast", WK_KEY_F32, NOT_OF_GPT2, 0.001, 1e6, 32 },
    [YARN_SLOW] = { "rope.scaling.yarn_beta_slow", WK_KEY_F32, NOT_OF_GPT2, 0.001, 1e6, 1 },
    /* What model configurations call truncate: bounds rounded to whole pairs. The models were trained without;
       llama.cpp rounds. */
    [YARN_TRUNCATE] = { "rope.scaling.yarn_truncate", WK_KEY_BOOL, NOT_OF_GPT2, 0, 1, 0 },
    /* true, or 1: behind the window. A number n: of n layers all but the last; 0: all. */
    [WINDOW_PATTERN] = { "attention.sliding_window_pattern", WK_KEY_U32, WK_KEY_PER_LAYER | WK_KEY_VARIES | NOT_OF_GPT2,
                         0, MAX_LAYERS, 2 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_SCALES,
    WK_KEYS_NO_EXPERT_GROUPS,
    WK_KEYS_NO_SHARED_EXPERTS,
    WK_KEYS_PLAIN_DECODER,
    { "expert_gating_func", WK_KEY_U32, NOT_OF_GPT2, 3, 3, 3 }, /* softmax over the chosen */
    { "rope.scaling.yarn_log_multiplier", WK_KEY_F32, NOT_OF_GPT2, 0, 0, 0 },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* The embedding's rows are the vocabulary; a scaling is computed the same whether the model was trained with it or not.
 */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "rope.scaling.finetuned" };

/* ollama's names of GPT-OSS's tensors. */
static const struct wk_alias aliases[] = { { "attn_out", "attn_output" },
                                           { "attn_sinks", "attn_sinks.weight" },
                                           { "ffn_norm", "post_attention_norm" } };

/* ---- the models, in the letters of the papers ---------------------------------------------------------- */

struct rotation {
    uint32_t n; /* pairs that rotate in a head */
    double base, mscale;
    uint32_t stretched; /* by YaRN */
    struct wk_yarn yarn;
};
struct gpt {
    uint32_t L, E, F, V, C;      /* layers, embedding, feed-forward, vocabulary, positions */
    uint32_t H, G, D, Dv;        /* heads, heads of k and v, values a head of q and k, of v */
    uint32_t X, K;               /* experts, experts a token */
    uint32_t window[MAX_LAYERS]; /* of each layer; 0: none */
    float eps;
    const char *head; /* "output" or, tied, "token_embd" */
    struct rotation rotation;
    void (*record)(const struct wk_builder *b, const struct gpt *m);
};
static void gpt2_record(const struct wk_builder *b, const struct gpt *m);
static void gpt_oss_record(const struct wk_builder *b, const struct gpt *m);

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status need(const struct wk_meta *meta, uint32_t key, const struct wk_err *err)
{
    if (wk_meta_has(meta, key)) return WK_OK;
    return wk_fail(err, WK_INVALID, "%.64s.%s is missing", meta->architecture, keys[key].name);
}

static wk_status open_heads(const struct wk_meta *meta, struct gpt *m, const struct wk_err *err)
{
    static const struct wk_head_keys head_keys = { EMBEDDING, HEADS, KV_HEADS, KEY_LENGTH, VALUE_LENGTH, MAX_HEAD };
    struct wk_heads h;
    const wk_status status = wk_heads_open(meta, &head_keys, &h, err);
    if (status != WK_OK) return status;
    m->H = h.heads;
    m->G = h.kv_heads;
    m->D = h.key;
    m->Dv = h.value;
    return WK_OK;
}

static wk_status open_rotation(const struct wk_meta *meta, struct gpt *m, const struct wk_err *err)
{
    struct rotation *r = &m->rotation;
    double own;
    wk_status status = wk_rope_pairs_open(meta, ROPE_DIM, m->D, &r->n, err);
    if (status != WK_OK) return status;
    r->base = wk_meta_number(meta, ROPE_BASE);
    r->mscale = wk_meta_number(meta, ROPE_MSCALE);
    if (wk_meta_has(meta, ROPE_BASE_WINDOW) && wk_meta_number(meta, ROPE_BASE_WINDOW) != r->base)
        return wk_fail(err, WK_UNSUPPORTED, "rope.freq_base_swa is %g; %g, as rope.freq_base, is served",
                       wk_meta_number(meta, ROPE_BASE_WINDOW), r->base);
    if (wk_meta_has(meta, ROPE_TYPE) && strcmp(wk_meta_text(meta, ROPE_TYPE), "none") == 0) return WK_OK;
    if (wk_meta_has(meta, ROPE_TYPE) && strcmp(wk_meta_text(meta, ROPE_TYPE), "yarn") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none and yarn are served",
                       wk_meta_text(meta, ROPE_TYPE));
    r->stretched = 1;
    r->yarn = (struct wk_yarn){ .base = r->base,
                                .factor = wk_meta_number(meta, ROPE_FACTOR),
                                .original_context = wk_meta_u32_or(meta, ROPE_CONTEXT, m->C),
                                .beta_fast = wk_meta_number(meta, YARN_FAST),
                                .beta_slow = wk_meta_number(meta, YARN_SLOW),
                                .extrapolation = wk_meta_number(meta, YARN_EXT),
                                .rounded = wk_meta_u32(meta, YARN_TRUNCATE) };
    status = wk_yarn_mscale_open(meta, YARN_MSCALE, r->yarn.factor, &own, err);
    if (status != WK_OK) return status;
    r->mscale *= own;
    if (r->yarn.beta_fast < r->yarn.beta_slow)
        return wk_fail(err, WK_INVALID, "rope.scaling.yarn_beta_fast is %g, must be at least yarn_beta_slow, %g",
                       r->yarn.beta_fast, r->yarn.beta_slow);
    return WK_OK;
}

static wk_status open_gpt2(const struct wk_meta *meta, struct gpt *m, const struct wk_err *err)
{
    wk_status status = need(meta, LAYER_EPS, err);
    if (status != WK_OK) return status;
    m->record = gpt2_record;
    m->eps = (float)wk_meta_number(meta, LAYER_EPS);
    m->F = wk_meta_u32(meta, FEED_FORWARD);
    if (m->G != m->H || m->D != m->E / m->H || m->E % m->H || m->Dv != m->D)
        return wk_fail(err, WK_UNSUPPORTED,
                       "%u heads of %u values, %u of k and %u of v, in a row of %u; gpt2 is served with equal heads "
                       "that fill the row",
                       (unsigned)m->H, (unsigned)m->D, (unsigned)m->G, (unsigned)m->Dv, (unsigned)m->E);
    return WK_OK;
}

/* Layers behind the window: as the file lists them, else of each so many all but the last. */
static void open_windows(const struct wk_meta *meta, struct gpt *m)
{
    const struct wk_key_value *pattern = wk_meta_value(meta, WINDOW_PATTERN);
    for (uint32_t l = 0; l < m->L; l++) {
        const uint32_t n = (uint32_t)(pattern->count ? pattern->numbers[l] : pattern->number);
        const bool behind = pattern->count ? n != 0 : !n || l % n < n - 1;
        m->window[l] = behind ? wk_meta_u32(meta, WINDOW) : 0;
    }
}

/* Window, base and experts have no defaults: a file that lost one would be computed as another model. */
static wk_status open_gpt_oss(const struct wk_meta *meta, struct gpt *m, const struct wk_err *err)
{
    static const uint32_t needed[] = { RMS_EPS, WINDOW, EXPERTS, EXPERTS_USED, ROPE_BASE };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        wk_status status = need(meta, needed[i], err);
        if (status != WK_OK) return status;
    }
    m->record = gpt_oss_record;
    open_windows(meta, m);
    m->eps = (float)wk_meta_number(meta, RMS_EPS);
    m->F = wk_meta_u32_or(meta, EXPERT_FEED_FORWARD, wk_meta_u32(meta, FEED_FORWARD));
    m->X = wk_meta_u32(meta, EXPERTS);
    m->K = wk_meta_u32(meta, EXPERTS_USED);
    if (m->K > m->X)
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be 1 to expert_count, %u", (unsigned)m->K,
                       (unsigned)m->X);
    return open_rotation(meta, m, err);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct gpt *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->C = wk_meta_u32(meta, CONTEXT);
    wk_status status = open_heads(meta, m, err);
    if (status == WK_OK)
        status = strcmp(meta->architecture, "gpt2") == 0 ? open_gpt2(meta, m, err) : open_gpt_oss(meta, m, err);
    if (status != WK_OK) return status;
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status gpt_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct gpt), fill, meta, model, err);
}

/* ---- record: GPT-2 ------------------------------------------------------------------------------------- */

/* q, k or v: a third of attn_qkv. */
static wk_value third(const struct wk_builder *b, wk_value h, const struct gpt *m, uint32_t i)
{
    return wk_linear_rows(b, h, (struct wk_rows){ .name = "attn_qkv", .total = 3 * m->E, .first = i * m->E, .n = m->E },
                          WK_REQUIRED);
}
static void gpt2_record(const struct wk_builder *b, const struct gpt *m)
{
    const struct wk_op_attention att = { .heads = m->H, .kv_heads = m->H, .scale = 1 / sqrtf((float)m->D) };

    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    x = wk_add(b, x, wk_embed_pos(b, "position_embd", m->C, m->E, 0));
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        wk_value h = wk_layer_norm(b, x, "attn_norm", m->eps);
        wk_value q = third(b, h, m, 0), k = third(b, h, m, 1), v = third(b, h, m, 2);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* softmax(q k / sqrt D) v          [E]   */
        x = wk_add(b, x, wk_linear(b, a, "attn_output", m->E, WK_REQUIRED));
        h = wk_layer_norm(b, x, "ffn_norm", m->eps);
        wk_value u = wk_gelu_tanh(b, wk_linear(b, h, "ffn_up", m->F, WK_REQUIRED));
        x = wk_add(b, x, wk_linear(b, u, "ffn_down", m->E, WK_REQUIRED));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", m->eps), m->head, m->V, WK_NONE));
}

/* ---- record: GPT-OSS ----------------------------------------------------------------------------------- */

static struct wk_rope_freqs rotate(const struct rotation *r, double *freq)
{
    wk_rope_frequencies(freq, r->n, r->base);
    if (r->stretched) wk_rope_yarn(freq, r->n, &r->yarn);
    return wk_rope_freqs_of(freq, r->n, WK_ROPE_HALF, r->mscale);
}

static wk_value experts(const struct wk_builder *b, wk_value h, const struct gpt *m)
{
    wk_value r = wk_route(b, wk_linear(b, h, "ffn_gate_inp", m->X, WK_REQUIRED), m->K, WK_SCORE_SOFTMAX_TOPK, 0, 1.0f);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, m->F, WK_REQUIRED);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, m->F, WK_REQUIRED);
    wk_value f = wk_glu_op(b, WK_GLU_SILU_CLAMPED, g, u, 1.702f, 7.0f);
    return wk_combine(b, wk_expert(b, f, r, "ffn_down_exps", m->X, m->E, WK_REQUIRED), r);
}

static void gpt_oss_record(const struct wk_builder *b, const struct gpt *m)
{
    struct wk_op_attention att = { .heads = m->H, .kv_heads = m->G, .scale = 1 / sqrtf((float)m->D) };
    double freq[MAX_HEAD / 2];
    const struct wk_rope_freqs rope = rotate(&m->rotation, freq);

    wk_value x = wk_embed(b, "token_embd", m->V, m->E); /* x = the token's row              [E]   */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        att.window = m->window[l];
        wk_value h = wk_rms_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", m->H * m->D, WK_REQUIRED), m->D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", m->G * m->D, WK_REQUIRED), m->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", m->G * m->Dv, WK_REQUIRED);
        wk_value a = wk_attention(b, q, k, v, "attn_sinks", &att); /* one more logit a head, no value  [H*D] */
        x = wk_add(b, x, wk_linear(b, a, "attn_output", m->E, WK_REQUIRED));
        h = wk_rms_norm(b, x, "post_attention_norm", m->eps); /* the file's name for the norm before the experts */
        x = wk_add(b, x, experts(b, h, m));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->head, m->V, WK_NONE));
}

static void gpt_record(const struct wk_builder *b, const void *model)
{
    const struct gpt *m = model;
    m->record(b, m);
}

static const struct wk_arch gpt = { .struct_size = sizeof gpt,
                                    WK_ARCH_NAMES(names),
                                    WK_ARCH_KEYS(keys),
                                    WK_ARCH_IGNORED_KEYS(ignored_keys),
                                    WK_ARCH_ALIASES(aliases),
                                    .open = gpt_open,
                                    .record = gpt_record,
                                    .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.gpt", "arch:gpt2,gpt-oss,gptoss", .name = "gpt", .version = "1.0.0",
              .arch = &gpt);
