/* glm4.c: GLM-4-0414 and GLM-Z1 (Z.ai, 9B and 32B).
 *
 * A pre-norm transformer with a second norm behind each branch. Half of a head rotates, neighbours together; q, k and v
 * have biases in some sizes; gate and up are one tensor. */
#define WORKER_ABI_MINOR 1 /* wk_ignore */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { ROPE_TYPE = WK_DECODER_KEYS, NEXTN };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    [NEXTN] = { "nextn_predict_layers", WK_KEY_U32, 0, 0, 16, 0 }, /* left out */
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NEXTN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "glm4" };

/* ---- open ---------------------------------------------------------------------------------------------- */

struct glm4 {
    struct wk_decoder d;
    uint32_t nextn; /* layers behind its own, which predict further tokens and are left out */
};

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct glm4 *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    return status == WK_OK ? wk_nextn_open(meta, NEXTN, &m->d.L, &m->nextn, err) : status;
}

static wk_status glm4_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct glm4), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static wk_value attention(const struct wk_builder *b, wk_value h, const struct wk_decoder *d,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_OPTIONAL), d->D, rope);
    wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_OPTIONAL), d->D, rope);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_OPTIONAL);
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

static wk_value feed_forward(const struct wk_builder *b, wk_value h, const struct wk_decoder *d)
{
    const struct wk_rows wg = { .name = "ffn_up", .total = 2 * d->F, .first = 0, .n = d->F },
                         wu = { .name = "ffn_up", .total = 2 * d->F, .first = d->F, .n = d->F };
    wk_value g = wk_linear_rows(b, h, wg, WK_NONE), u = wk_linear_rows(b, h, wu, WK_NONE);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", d->E, WK_NONE);
}

static void glm4_record(const struct wk_builder *b, const void *model)
{
    const struct glm4 *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_INTERLEAVED, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* x = the token's row [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        wk_value a = attention(b, wk_rms_norm(b, x, "attn_norm", d->eps), d, &rope);
        x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", d->eps));
        wk_value f = feed_forward(b, wk_rms_norm(b, x, "ffn_norm", d->eps), d);
        x = wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", d->eps));
    }
    wk_end_layers(b);
    wk_nextn_ignore(b, d->L, m->nextn);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch glm4 = { .struct_size = sizeof glm4,
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     WK_ARCH_IGNORED_KEYS(ignored_keys),
                                     .open = glm4_open,
                                     .record = glm4_record,
                                     .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.glm4", "arch:glm4", .name = "glm4", .version = "1.0.0", .arch = &glm4);
