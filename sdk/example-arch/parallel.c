/* parallel.c: a complete architecture plugin, for a transformer whose attention and feed-forward run side by side on
 * one norm (as in GPT-J, Wang and Komatsuzaki 2021):  x = x + attention(h) + feed_forward(h),  h = norm(x). arch.md
 * lists the operations. */
#include <math.h>
#include <stdlib.h>

#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- which keys of the file it reads: the host checks presence, type and range before open() runs ------ */

enum { CONTEXT, LAYERS, WIDTH, HIDDEN, HEADS, ROPE_BASE, EPS, N_KEYS };
enum { MAX_HEAD = 512 };

static const struct wk_key keys[N_KEYS] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 20, 0 },
    [LAYERS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 256, 0 },
    [WIDTH] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 16, 0 },
    [HIDDEN] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 18, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, 0, 2, 1e9, 10000 },
    [EPS] = { "attention.layer_norm_epsilon", WK_KEY_F32, 0, 1e-12, 0.1, 1e-5 },
};

struct model {
    uint32_t L, E, F, H, D, V; /* layers, width, hidden width, heads, values a head, vocabulary */
    float eps;
    double rope_base;
};

/* ---- open: relations between keys, which ranges cannot say --------------------------------------------- */

static wk_status parallel_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    const uint32_t E = wk_meta_u32(meta, WIDTH), H = wk_meta_u32(meta, HEADS);
    if (E % H || E / H % 2 || E / H > MAX_HEAD)
        return wk_fail(err, WK_INVALID,
                       "embedding_length is %u: %u heads of an even number of values, at most %d, expected", E, H,
                       MAX_HEAD);
    struct model *m = (struct model *)calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    *m = (struct model){ .L = wk_meta_u32(meta, LAYERS),
                         .E = E,
                         .F = wk_meta_u32(meta, HIDDEN),
                         .H = H,
                         .D = E / H,
                         .eps = (float)wk_meta_number(meta, EPS),
                         .rope_base = wk_meta_number(meta, ROPE_BASE) };
    if (!meta->tensor(meta->self, "token_embd.weight", &m->V, NULL, NULL)) {
        free(m);
        return wk_fail(err, WK_INVALID, "token_embd.weight is missing");
    }
    *model = m;
    return WK_OK;
}

/* ---- record: the forward pass, once, as in the paper. Nothing is computed here, nothing needs to be checked ---- */

static void parallel_record(const struct wk_builder *b, const void *model)
{
    const struct model *m = (const struct model *)model;
    const struct wk_op_attention attn = { .heads = m->H, .kv_heads = m->H, .scale = 1.0f / sqrtf((float)m->D) };
    double freq[MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->D / 2, m->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->D / 2, WK_ROPE_INTERLEAVED, 1.0);

    wk_value x = wk_embed(b, "token_embd", m->V, m->E); /* [E] */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        wk_value h = wk_layer_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", m->E, WK_NONE), m->D, &rope); /* [H * D] */
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", m->E, WK_NONE), m->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", m->E, WK_NONE);
        wk_value a = wk_linear(b, wk_attention(b, q, k, v, NULL, &attn), "attn_output", m->E, WK_NONE);
        wk_value f =
            wk_linear(b, wk_gelu_tanh(b, wk_linear(b, h, "ffn_up", m->F, WK_REQUIRED)), "ffn_down", m->E, WK_REQUIRED);
        x = wk_add(b, wk_add(b, x, a), f);
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", m->eps), "output", m->V, WK_OPTIONAL));
}

static void parallel_close(void *model) { free(model); }

/* ---- what is exported ---------------------------------------------------------------------------------- */

static const char *const names[] = { "parallel" }; /* values of general.architecture */
static const struct wk_arch arch = {
    .struct_size = sizeof arch,
    WK_ARCH_NAMES(names),
    WK_ARCH_KEYS(keys),
    .open = parallel_open,
    .record = parallel_record,
    .close = parallel_close,
};

WORKER_PLUGIN(WK_KIND_ARCH, "org.example.parallel", "arch:parallel", .name = "parallel transformer", .version = "1.0",
              .arch = &arch);
