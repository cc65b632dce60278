/* gemma3.c: Gemma 3 (Gemma Team 2025), text: 270M, 1B, 4B, 12B and 27B.
 *
 * Gemma 2's layers with a norm of each head of q and k instead of the soft-caps. Five of six layers see a window; every
 * sixth is global. The two kinds rotate by different bases, and the global ones alone are stretched. Files hold the
 * norms' weights with the 1 that is added to them, and no tensor of the output: it is the embedding's. */
#include <math.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { WINDOW = WK_DECODER_KEYS, LOGIT_CAP, ROPE_BASE_WINDOW, ROPE_TYPE, ROPE_FACTOR };
enum { PATTERN = 6 /* layers, of which the last is global; no key says so */, LAYERS_OF_27B = 62 };

/* Older files do not have the base of the layers with a window: it is 10000 in all published models. What stands
 * neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER, 0, WK_DECODER_MAX_CONTEXT, 0 }, /* 0: all are global */
    { "final_logit_softcapping", WK_KEY_F32, 0, 0, 1e6, 0 },                                    /* 0: none */
    { "rope.freq_base_swa", WK_KEY_F32, 0, 2, 1e12, 10000 },
    { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 65536, 1 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "attn_logit_softcapping", WK_KEY_F32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean; a scaling is computed the same whether the model
 * was trained with it or not. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.scaling.finetuned" };
static const char *const names[] = { "gemma3" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct gemma3 {
    struct wk_decoder d; /* its rope_base is that of global layers */
    uint32_t window;     /* of the others; 0: none */
    float scale, logit_cap;
    double window_base, stretch; /* of layers with a window; of global ones */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status open_rotation(const struct wk_meta *meta, struct gemma3 *m, const struct wk_err *err)
{
    const char *type = wk_meta_text(meta, ROPE_TYPE);
    const double factor = wk_meta_number(meta, ROPE_FACTOR);
    m->window_base = wk_meta_number(meta, ROPE_BASE_WINDOW);
    m->stretch = 1;
    if (!wk_meta_has(meta, ROPE_TYPE) && factor > 1)
        return wk_fail(err, WK_INVALID, "gemma3.rope.scaling.type is missing: rope.scaling.factor is %g", factor);
    if (!wk_meta_has(meta, ROPE_TYPE) || strcmp(type, "none") == 0) return WK_OK;
    if (strcmp(type, "linear") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none and linear are served", type);
    m->stretch = factor;
    return WK_OK;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct gemma3 *m = model;
    const struct wk_decoder *d = &m->d;
    wk_status status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = open_rotation(meta, m, err);
    if (status != WK_OK) return status;
    m->window = wk_meta_u32(meta, WINDOW);
    m->logit_cap = (float)wk_meta_number(meta, LOGIT_CAP);
    /* The 27B model's scores are scaled by the width of a row's part, not of a head; no key says so either. */
    m->scale = 1 / sqrtf(d->L == LAYERS_OF_27B ? (float)d->E / (float)d->H : (float)d->D);
    return WK_OK;
}

static wk_status gemma3_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct gemma3), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void gemma3_record(const struct wk_builder *b, const void *model)
{
    const struct gemma3 *m = model;
    const struct wk_decoder *d = &m->d;
    struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = m->scale };
    double far[WK_DECODER_MAX_HEAD / 2], near[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(far, d->pairs, d->rope_base);
    wk_rope_scale_linear(far, d->pairs, m->stretch);
    wk_rope_frequencies(near, d->pairs, m->window_base);
    const struct wk_rope_freqs rope_global = wk_rope_freqs_of(far, d->pairs, WK_ROPE_HALF, 1);
    const struct wk_rope_freqs rope_window = wk_rope_freqs_of(near, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_scale(b, wk_embed(b, "token_embd", d->V, d->E), sqrtf((float)d->E)); /* [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        att.window = l % PATTERN == PATTERN - 1 ? 0 : m->window;
        const struct wk_rope_freqs *rope = att.window ? &rope_window : &rope_global;
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        wk_value q = wk_head_norm(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE), "attn_q_norm", d->D, d->eps);
        wk_value k = wk_head_norm(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE), "attn_k_norm", d->D, d->eps);
        wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
        q = wk_rope(b, q, d->D, rope);
        k = wk_rope(b, k, d->D, rope);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* [H*Dv] */
        a = wk_linear(b, a, "attn_output", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", d->eps));
        h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        wk_value g = wk_linear(b, h, "ffn_gate", d->F, WK_NONE), u = wk_linear(b, h, "ffn_up", d->F, WK_NONE);
        wk_value f = wk_linear(b, wk_glu(b, WK_GLU_GELU_TANH, g, u), "ffn_down", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", d->eps));
    }
    wk_end_layers(b);
    wk_value logits = wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE);
    wk_logits(b, m->logit_cap > 0 ? wk_softcap(b, logits, m->logit_cap) : logits);
}

static const struct wk_arch gemma3 = { .struct_size = sizeof gemma3,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = gemma3_open,
                                       .record = gemma3_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.gemma3", "arch:gemma3", .name = "gemma3", .version = "1.0.0", .arch = &gemma3);
