/* phi3.c: Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Microsoft 2024).
 *
 * A pre-norm transformer whose q|k|v are one tensor, and gate|up another. Long models divide the frequencies of
 * rotation by one of two tables (LongRoPE), and Phi-4-mini rotates three quarters of a head. */
#include <math.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { ROPE_TYPE = WK_DECODER_KEYS, ROPE_CONTEXT, ROPE_MSCALE };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 }, /* files with tables have none, or longrope */
    [ROPE_CONTEXT] = { "rope.scaling.original_context_length", WK_KEY_U32, 0, 1, WK_DECODER_MAX_CONTEXT,
                       0 }, /* default: context_length */
    [ROPE_MSCALE] = { "rope.scaling.attn_factor", WK_KEY_F32, 0, 0.01, 100, 1 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean; a scaling is computed the same whether the model
 * was trained with it or not. The window that files name is one about which Phi-3's own reference disagrees by a
 * position; like llama.cpp we attend to everything, which is the same up to 2,047 positions. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.scaling.finetuned", "attention.sliding_window" };
static const char *const names[] = { "phi3" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct phi3 {
    struct wk_decoder d;
    uint32_t trained; /* positions, at first: with more the long table serves */
    uint32_t longrope;
    double mscale; /* of rotated q and k, by either table */
};

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct phi3 *m = model;
    m->trained = wk_meta_u32_or(meta, ROPE_CONTEXT, wk_meta_u32(meta, WK_DECODER_CONTEXT));
    m->mscale = wk_meta_number(meta, ROPE_MSCALE);
    m->longrope = strcmp(wk_meta_text(meta, ROPE_TYPE), "longrope") == 0;
    if (wk_meta_has(meta, ROPE_TYPE) && !m->longrope && strcmp(wk_meta_text(meta, ROPE_TYPE), "none") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none and longrope are served",
                       wk_meta_text(meta, ROPE_TYPE));
    return wk_decoder_open(meta, &m->d, err);
}

static wk_status phi3_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct phi3), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* LongRoPE: the long table serves if more positions are allocated than the model was first trained on. Both are read,
 * so that neither counts as unknown. */
static void divide_by_factors(const struct wk_builder *b, const struct phi3 *m, double *freq)
{
    float many[WK_DECODER_MAX_HEAD / 2], few[WK_DECODER_MAX_HEAD / 2];
    const int has_many = wk_read(b, "rope_factors_long.weight", many, m->d.pairs),
              has_few = wk_read(b, "rope_factors_short.weight", few, m->d.pairs);
    if (has_many != has_few)
        wk_refuse(b, "rope_factors_long.weight and rope_factors_short.weight: the file has one without the other");
    else if (has_many)
        wk_rope_scale_factors(freq, m->d.pairs, wk_context(b) > m->trained ? many : few);
    else if (m->longrope)
        wk_refuse(
            b, "rope.scaling.type is longrope, but rope_factors_long.weight and rope_factors_short.weight are missing");
}

/* Rows [first, first + n) of a tensor of `total`. */
static wk_value part(const struct wk_builder *b, wk_value h, const char *name, uint32_t total, uint32_t first,
                     uint32_t n)
{
    const struct wk_rows rows = { .name = name, .total = total, .first = first, .n = n };
    return wk_linear_rows(b, h, rows, WK_NONE);
}

static wk_value attention(const struct wk_builder *b, wk_value h, const struct wk_decoder *d,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    const uint32_t nq = d->H * d->D, nk = d->G * d->D, nv = d->G * d->Dv, total = nq + nk + nv;
    wk_value q = wk_rope(b, part(b, h, "attn_qkv", total, 0, nq), d->D, rope);
    wk_value k = wk_rope(b, part(b, h, "attn_qkv", total, nq, nk), d->D, rope);
    wk_value v = part(b, h, "attn_qkv", total, nq + nk, nv);
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

static void phi3_record(const struct wk_builder *b, const void *model)
{
    const struct phi3 *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    divide_by_factors(b, m, freq);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, m->mscale);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* x = the token's row [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        x = wk_add(b, x, attention(b, wk_rms_norm(b, x, "attn_norm", d->eps), d, &rope));
        wk_value h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        wk_value g = part(b, h, "ffn_up", 2 * d->F, 0, d->F), u = part(b, h, "ffn_up", 2 * d->F, d->F, d->F);
        x = wk_add(b, x, wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", d->E, WK_NONE));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch phi3 = { .struct_size = sizeof phi3,
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     WK_ARCH_IGNORED_KEYS(ignored_keys),
                                     .open = phi3_open,
                                     .record = phi3_record,
                                     .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.phi3", "arch:phi3", .name = "phi3", .version = "1.0.0", .arch = &phi3);
