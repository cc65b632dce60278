/* cohere.c: Cohere's models: Command R and R+, Aya (architecture command-r), Command R7B and A (cohere2).
 *
 * A parallel transformer: one layer norm, without a bias, feeds attention and feed-forward network, whose results are
 * both added to the row that it normed. Neighbours rotate. Command R+ norms each head of q and k with weights of its
 * own. In cohere2 three layers of four see a window and rotate; the fourth sees everything and has no positions. Files
 * have no key for that pattern, which is every published model's. Logits are multiplied by logit_scale. */
#include <math.h>
#include <stdio.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { WINDOW = WK_DECODER_KEYS, LOGIT_SCALE, ROPE_TYPE };
enum { PATTERN = 4 }; /* of so many layers the last sees everything */

static const char *const names[] = { "command-r", "cohere2" };
#define NOT_OF_COMMAND_R WK_KEY_NOT_FOR(0)

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_LAYER_NORM_DECODER,
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER | NOT_OF_COMMAND_R, 1,
                 WK_DECODER_MAX_CONTEXT, 0 },
    [LOGIT_SCALE] = { "logit_scale", WK_KEY_F32, WK_KEY_REQUIRED, 1e-6, 1e6, 0 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; every norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_rms_epsilon" };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct cohere {
    struct wk_decoder d;
    uint32_t window; /* 0: none, and every layer rotates */
    uint32_t head_norms;
    float logit_scale;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct cohere *m = model;
    m->window = wk_meta_u32(meta, WINDOW);
    m->head_norms = wk_meta_has_tensor(meta, "blk.0.attn_q_norm.weight");
    m->logit_scale = (float)wk_meta_number(meta, LOGIT_SCALE);
    const wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    return status == WK_OK ? wk_decoder_open(meta, &m->d, err) : status;
}

static wk_status cohere_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct cohere), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static wk_value norm(const struct wk_builder *b, wk_value x, const char *name, const struct cohere *m)
{
    return wk_norm(b, x, name, WK_NORM_LAYER, 0, m->d.eps, WK_NONE);
}

/* Of each head, with weights for each. */
static wk_value head_norm(const struct wk_builder *b, wk_value x, const char *name, uint32_t heads,
                          const struct cohere *m)
{
    char weight[32];
    (void)snprintf(weight, sizeof weight, "%s.weight", name);
    wk_value n = wk_norm(b, x, NULL, WK_NORM_LAYER, m->d.D, m->d.eps, WK_NONE);
    return wk_name(b, wk_mul(b, n, wk_vector(b, weight, heads, m->d.D)), name);
}

/* rope: NULL in a layer without positions. */
static wk_value attention(const struct wk_builder *b, wk_value h, const struct cohere *m,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_op_attention att = {
        .heads = m->d.H, .kv_heads = m->d.G, .scale = 1 / sqrtf((float)m->d.D), .window = rope ? m->window : 0
    };
    wk_value q = wk_linear(b, h, "attn_q", m->d.H * m->d.D, WK_NONE);
    wk_value k = wk_linear(b, h, "attn_k", m->d.G * m->d.D, WK_NONE);
    wk_value v = wk_linear(b, h, "attn_v", m->d.G * m->d.Dv, WK_NONE);
    if (m->head_norms) {
        q = head_norm(b, q, "attn_q_norm", m->d.H, m);
        k = head_norm(b, k, "attn_k_norm", m->d.G, m);
    }
    if (rope) {
        q = wk_rope(b, q, m->d.D, rope);
        k = wk_rope(b, k, m->d.D, rope);
    }
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", m->d.E, WK_NONE);
}

static void cohere_record(const struct wk_builder *b, const void *model)
{
    const struct cohere *m = model;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->d.pairs, m->d.rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->d.pairs, WK_ROPE_INTERLEAVED, 1);

    wk_value x = wk_embed(b, "token_embd", m->d.V, m->d.E); /* x = the token's row [E] */
    for (uint32_t l = 0; l < m->d.L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        const int everything = m->window && l % PATTERN == PATTERN - 1;
        wk_value h = norm(b, x, "attn_norm", m);
        x = wk_add(b, x, attention(b, h, m, everything ? NULL : &rope));
        wk_value g = wk_linear(b, h, "ffn_gate", m->d.F, WK_NONE), u = wk_linear(b, h, "ffn_up", m->d.F, WK_NONE);
        x = wk_add(b, x, wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", m->d.E, WK_NONE));
    }
    wk_end_layers(b);
    wk_value logits = wk_linear(b, norm(b, x, "output_norm", m), m->d.head, m->d.V, WK_NONE);
    wk_logits(b, wk_scale(b, logits, m->logit_scale));
}

static const struct wk_arch cohere = { .struct_size = sizeof cohere,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = cohere_open,
                                       .record = cohere_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.cohere", "arch:command-r,cohere2", .name = "cohere", .version = "1.0.0",
              .arch = &cohere);
