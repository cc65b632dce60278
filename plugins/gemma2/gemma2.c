/* gemma2.c: Gemma 2 (Gemma Team 2024; 2B, 9B and 27B).
 *
 * A pre-norm transformer with a second norm behind each branch. Embeddings grow by the root of their width, scores and
 * logits are bent by a soft-cap, and every other layer, from the first on, sees a window. Files hold the norms' weights
 * with the 1 that is added to them, and no tensor of the output: it is the embedding's. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { WINDOW = WK_DECODER_KEYS, ATTENTION_CAP, LOGIT_CAP, ATTENTION_SCALE };
enum { LAYERS_OF_27B = 46 };

/* Window and caps have defaults: the first files were written before converters knew these keys, and all published
 * models have these values. What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER, 1, WK_DECODER_MAX_CONTEXT, 4096 },
    { "attn_logit_softcapping", WK_KEY_F32, 0, 0, 1e6, 50 },  /* 0: none */
    { "final_logit_softcapping", WK_KEY_F32, 0, 0, 1e6, 30 }, /* 0: none */
    { "attention.scale", WK_KEY_F32, 0, 0, 100, 0 },          /* default, and 0: see query_scale */
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "gemma2" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct gemma2 {
    struct wk_decoder d;
    uint32_t window; /* of even layers */
    float scale, attention_cap, logit_cap;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Scores are scaled by 1 / sqrt(key_length), but for the 27B model, where it is 1 / sqrt(width / heads): files have no
 * key for it, its number of layers tells. */
static float query_scale(const struct wk_meta *meta, const struct wk_decoder *d)
{
    if (wk_meta_number(meta, ATTENTION_SCALE) > 0) return (float)wk_meta_number(meta, ATTENTION_SCALE);
    return 1 / sqrtf(d->L == LAYERS_OF_27B ? (float)d->E / (float)d->H : (float)d->D);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct gemma2 *m = model;
    const wk_status status = wk_decoder_open(meta, &m->d, err);
    if (status != WK_OK) return status;
    m->window = wk_meta_u32(meta, WINDOW);
    m->attention_cap = (float)wk_meta_number(meta, ATTENTION_CAP);
    m->logit_cap = (float)wk_meta_number(meta, LOGIT_CAP);
    m->scale = query_scale(meta, &m->d);
    return WK_OK;
}

static wk_status gemma2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct gemma2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void gemma2_record(const struct wk_builder *b, const void *model)
{
    const struct gemma2 *m = model;
    const struct wk_decoder *d = &m->d;
    struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = m->scale, .softcap = m->attention_cap };
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_scale(b, wk_embed(b, "token_embd", d->V, d->E), sqrtf((float)d->E)); /* [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        att.window = l % 2 ? 0 : m->window;
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE), d->D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE), d->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* softmax(cap tanh(q k scale / cap)) v [H*Dv] */
        a = wk_linear(b, a, "attn_output", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", d->eps));
        h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        wk_value f = wk_linear(b, h, "ffn_gate", d->F, WK_NONE);
        f = wk_glu(b, WK_GLU_GELU_TANH, f, wk_linear(b, h, "ffn_up", d->F, WK_NONE));
        f = wk_linear(b, f, "ffn_down", d->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", d->eps));
    }
    wk_end_layers(b);
    wk_value logits = wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE);
    wk_logits(b, m->logit_cap > 0 ? wk_softcap(b, logits, m->logit_cap) : logits);
}

static const struct wk_arch gemma2 = { .struct_size = sizeof gemma2,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = gemma2_open,
                                       .record = gemma2_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.gemma2", "arch:gemma2", .name = "gemma2", .version = "1.0.0", .arch = &gemma2);
