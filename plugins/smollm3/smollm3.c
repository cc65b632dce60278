/* smollm3.c: SmolLM3 (Hugging Face 2025).
 *
 * Llama's layers, of which every fourth does not rotate queries and keys: it knows no positions. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { PATTERN = 4 /* layers, of which the last does not rotate; no key says so */ };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_SCALES,
    WK_KEYS_PLAIN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "smollm3" };

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    return wk_decoder_open(meta, model, err);
}

static wk_status smollm3_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct wk_decoder), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void smollm3_record(const struct wk_builder *b, const void *model)
{
    const struct wk_decoder *d = model;
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_INTERLEAVED, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                                    */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        wk_value q = wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE);
        wk_value k = wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE);
        wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
        if (l % PATTERN != PATTERN - 1) {
            q = wk_rope(b, q, d->D, &rope);
            k = wk_rope(b, k, d->D, &rope);
        }
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* [H*Dv]                                 */
        x = wk_add(b, x, wk_linear(b, a, "attn_output", d->E, WK_NONE));
        h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        wk_value g = wk_linear(b, h, "ffn_gate", d->F, WK_NONE), u = wk_linear(b, h, "ffn_up", d->F, WK_NONE);
        x = wk_add(b, x, wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", d->E, WK_NONE));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch smollm3 = { .struct_size = sizeof smollm3,
                                        WK_ARCH_NAMES(names),
                                        WK_ARCH_KEYS(keys),
                                        WK_ARCH_IGNORED_KEYS(ignored_keys),
                                        .open = smollm3_open,
                                        .record = smollm3_record,
                                        .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.smollm3", "arch:smollm3", .name = "smollm3", .version = "1.0.0",
              .arch = &smollm3);
