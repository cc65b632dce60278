/* starcoder2.c: StarCoder 2 (BigCode 2024; 3B, 7B and 15B).
 *
 * A pre-norm transformer of layer norms, with a bias in every norm and product, and a feed-forward network of two
 * matrices with a GELU between them. Published models were trained with a window of 4,096 positions, which their files
 * do not name; as those files say, everything is attended to. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { ROPE_TYPE = WK_DECODER_KEYS };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_LAYER_NORM_DECODER,
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; every norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_rms_epsilon" };
static const char *const names[] = { "starcoder2" };

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    const wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    return status == WK_OK ? wk_decoder_open(meta, model, err) : status;
}

static wk_status starcoder2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct wk_decoder), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void starcoder2_record(const struct wk_builder *b, const void *model)
{
    const struct wk_decoder *d = model;
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* x = the token's row [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        wk_value h = wk_layer_norm(b, x, "attn_norm", d->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_REQUIRED), d->D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_REQUIRED), d->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_REQUIRED);
        wk_value a = wk_attention(b, q, k, v, NULL, &att);
        x = wk_add(b, x, wk_linear(b, a, "attn_output", d->E, WK_REQUIRED));
        h = wk_layer_norm(b, x, "ffn_norm", d->eps);
        wk_value f = wk_gelu_tanh(b, wk_linear(b, h, "ffn_up", d->F, WK_REQUIRED));
        x = wk_add(b, x, wk_linear(b, f, "ffn_down", d->E, WK_REQUIRED));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch starcoder2 = { .struct_size = sizeof starcoder2,
                                           WK_ARCH_NAMES(names),
                                           WK_ARCH_KEYS(keys),
                                           WK_ARCH_IGNORED_KEYS(ignored_keys),
                                           .open = starcoder2_open,
                                           .record = starcoder2_record,
                                           .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.starcoder2", "arch:starcoder2", .name = "starcoder2", .version = "1.0.0",
              .arch = &starcoder2);
