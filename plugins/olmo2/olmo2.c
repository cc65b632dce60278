/* olmo2.c: OLMo 2 (OLMo Team 2024) and OLMo 3 (2025), whose files have the same name.
 *
 * A transformer without norms before its branches: each branch is normed before it is added, and queries and keys are
 * normed over all heads at once. OLMo 3 has layers that see a window, which the file lists; YaRN stretches the others
 * alone. */
#include <math.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    WINDOW = WK_DECODER_KEYS,
    WINDOW_PATTERN,
    ROPE_BASE_WINDOW,
    ROPE_TYPE,
    ROPE_FACTOR,
    ROPE_CONTEXT,
    YARN_MSCALE,
    YARN_FAST,
    YARN_SLOW
};

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER, 0, WK_DECODER_MAX_CONTEXT, 0 },    /* 0: no windows */
    { "attention.sliding_window_pattern", WK_KEY_U32, WK_KEY_PER_LAYER | WK_KEY_VARIES, 0, 1, 0 }, /* true: a window */
    { "rope.freq_base_swa", WK_KEY_F32, 0, 2, 1e12, 0 }, /* default: freq_base */
    { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 65536, 1 },
    { "rope.scaling.original_context_length", WK_KEY_U32, 0, 1, WK_DECODER_MAX_CONTEXT,
      0 },                                                            /* default: context_length */
    { "rope.scaling.yarn_attn_factor", WK_KEY_F32, 0, 0.01, 100, 0 }, /* see wk_yarn_mscale_open */
    { "rope.scaling.yarn_beta_fast", WK_KEY_F32, 0, 0.001, 1e6, 32 },
    { "rope.scaling.yarn_beta_slow", WK_KEY_F32, 0, 0.001, 1e6, 1 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_SCALES,
    WK_KEYS_PLAIN_DECODER,
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.attn_factor", WK_KEY_F32, 0, 1, 1, 1 },
    { "rope.scaling.yarn_ext_factor", WK_KEY_F32, 0, 1, 1, 1 },
    { "rope.scaling.yarn_log_multiplier", WK_KEY_F32, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean; a scaling is computed the same whether the model
 * was trained with it or not. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.scaling.finetuned" };
static const char *const names[] = { "olmo2" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct olmo2 {
    struct wk_decoder d;                    /* its rope_base is that of layers without a window */
    uint32_t window[WK_DECODER_MAX_LAYERS]; /* of each layer; 0: none */
    double window_base;                     /* of layers with a window */
    uint32_t stretched;                     /* by YaRN, the layers without */
    struct wk_yarn yarn;
    double mscale; /* of the layers without */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status open_windows(const struct wk_meta *meta, struct olmo2 *m, const struct wk_err *err)
{
    const uint32_t window = wk_meta_u32(meta, WINDOW);
    uint32_t n;
    const double *behind = wk_meta_numbers(meta, WINDOW_PATTERN, &n);
    if (!window) return WK_OK;
    if (!n)
        return wk_fail(err, WK_INVALID,
                       "olmo2.attention.sliding_window_pattern must be an array that says of each layer whether it has "
                       "the window of %u positions (attention.sliding_window)",
                       (unsigned)window);
    for (uint32_t l = 0; l < n; l++) m->window[l] = behind[l] > 0 ? window : 0;
    return WK_OK;
}

static wk_status open_yarn(const struct wk_meta *meta, struct olmo2 *m, const struct wk_err *err)
{
    const char *type = wk_meta_text(meta, ROPE_TYPE);
    const double factor = wk_meta_number(meta, ROPE_FACTOR);
    if (!wk_meta_has(meta, ROPE_TYPE) && factor > 1)
        return wk_fail(err, WK_INVALID, "olmo2.rope.scaling.type is missing: rope.scaling.factor is %g", factor);
    if (!wk_meta_has(meta, ROPE_TYPE) || strcmp(type, "none") == 0) return WK_OK;
    if (strcmp(type, "yarn") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none and yarn are served", type);
    const wk_status status = wk_yarn_mscale_open(meta, YARN_MSCALE, factor, &m->mscale, err);
    if (status != WK_OK) return status;
    m->stretched = 1;
    m->yarn =
        (struct wk_yarn){ .base = m->d.rope_base,
                          .factor = factor,
                          .original_context = wk_meta_u32_or(meta, ROPE_CONTEXT, wk_meta_u32(meta, WK_DECODER_CONTEXT)),
                          .beta_fast = wk_meta_number(meta, YARN_FAST),
                          .beta_slow = wk_meta_number(meta, YARN_SLOW),
                          .extrapolation = 1,
                          .rounded = 1 };
    if (m->yarn.beta_fast < m->yarn.beta_slow)
        return wk_fail(err, WK_INVALID, "rope.scaling.yarn_beta_fast is %g, must be at least yarn_beta_slow, %g",
                       m->yarn.beta_fast, m->yarn.beta_slow);
    return WK_OK;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct olmo2 *m = model;
    wk_status status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = open_windows(meta, m, err);
    if (status != WK_OK) return status;
    m->window_base = wk_meta_has(meta, ROPE_BASE_WINDOW) ? wk_meta_number(meta, ROPE_BASE_WINDOW) : m->d.rope_base;
    m->mscale = 1;
    return open_yarn(meta, m, err);
}

static wk_status olmo2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct olmo2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void olmo2_record(const struct wk_builder *b, const void *model)
{
    const struct olmo2 *m = model;
    const struct wk_decoder *d = &m->d;
    struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    double far[WK_DECODER_MAX_HEAD / 2], near[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(far, d->pairs, d->rope_base);
    if (m->stretched) wk_rope_yarn(far, d->pairs, &m->yarn);
    wk_rope_frequencies(near, d->pairs, m->window_base);
    const struct wk_rope_freqs rope_global = wk_rope_freqs_of(far, d->pairs, WK_ROPE_HALF, m->mscale);
    const struct wk_rope_freqs rope_window = wk_rope_freqs_of(near, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                                    */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        att.window = m->window[l];
        const struct wk_rope_freqs *rope = att.window ? &rope_window : &rope_global;
        wk_value q = wk_rms_norm(b, wk_linear(b, x, "attn_q", d->H * d->D, WK_NONE), "attn_q_norm", d->eps);
        wk_value k = wk_rms_norm(b, wk_linear(b, x, "attn_k", d->G * d->D, WK_NONE), "attn_k_norm", d->eps);
        wk_value v = wk_linear(b, x, "attn_v", d->G * d->Dv, WK_NONE);
        q = wk_rope(b, q, d->D, rope);
        k = wk_rope(b, k, d->D, rope);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* [H*Dv] */
        a = wk_linear(b, a, "attn_output", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", d->eps));
        wk_value g = wk_linear(b, x, "ffn_gate", d->F, WK_NONE), u = wk_linear(b, x, "ffn_up", d->F, WK_NONE);
        wk_value f = wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", d->eps));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch olmo2 = { .struct_size = sizeof olmo2,
                                      WK_ARCH_NAMES(names),
                                      WK_ARCH_KEYS(keys),
                                      WK_ARCH_IGNORED_KEYS(ignored_keys),
                                      .open = olmo2_open,
                                      .record = olmo2_record,
                                      .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.olmo2", "arch:olmo2", .name = "olmo2", .version = "1.0.0", .arch = &olmo2);
