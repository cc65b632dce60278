/* falcon_h1.c: Falcon-H1 (TII 2025, 0.5B to 34B).
 *
 * Llama's layers, each with Mamba-2's mixer beside attention: both read the same normed row, and both are added. The
 * multipliers of the checkpoints are in the file's weights. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>
#include <worker/ssm.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { ROPE_TYPE = WK_DECODER_KEYS, SSM };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    WK_KEYS_SSM(WK_KEY_REQUIRED),
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_SCALES,
    WK_KEYS_PLAIN_DECODER,
    { "attention.scale", WK_KEY_F32, 0, 0, 0, 0 },
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
    { "ssm.dt_b_c_rms", WK_KEY_BOOL, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "falcon-h1" };
/* The only norm whose name has no end in these files. */
static const struct wk_alias aliases[] = { { "ffn_norm", "ffn_norm.weight" } };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct falcon_h1 {
    struct wk_decoder d;
    struct wk_ssm ssm;
    float ssm_eps; /* of the norm within the mixer; 0: most sizes have none */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct falcon_h1 *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = wk_ssm_open(meta, SSM, &m->ssm, err);
    m->ssm_eps = wk_meta_has_tensor(meta, "blk.0.ssm_norm.weight") ? m->d.eps : 0;
    return status;
}

static wk_status falcon_h1_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct falcon_h1), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static wk_value attention(const struct wk_builder *b, wk_value h, const struct wk_decoder *d,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE), d->D, rope);
    wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE), d->D, rope);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

static void falcon_h1_record(const struct wk_builder *b, const void *model)
{
    const struct falcon_h1 *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                                    */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        x = wk_add(b, x, attention(b, h, d, &rope));
        x = wk_add(b, x, wk_ssm_mixer(b, h, &m->ssm, d->E, m->ssm_eps));
        h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        wk_value g = wk_linear(b, h, "ffn_gate", d->F, WK_NONE), u = wk_linear(b, h, "ffn_up", d->F, WK_NONE);
        x = wk_add(b, x, wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", d->E, WK_NONE));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch falcon_h1 = { .struct_size = sizeof falcon_h1,
                                          WK_ARCH_NAMES(names),
                                          WK_ARCH_KEYS(keys),
                                          WK_ARCH_ALIASES(aliases),
                                          WK_ARCH_IGNORED_KEYS(ignored_keys),
                                          .open = falcon_h1_open,
                                          .record = falcon_h1_record,
                                          .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.falcon-h1", "arch:falcon-h1", .name = "falcon-h1", .version = "1.0.0",
              .arch = &falcon_h1);
