/* test_models.c: gpt2, gpt-oss, gemma2 and Mixtral as an author would record them, their files, and the checker. */
#include "test_models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <worker/rope.h>

/* ---- recordings ---------------------------------------------------------------------------------------- */

static wk_status open_nothing(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)meta;
    (void)err;
    *model = NULL;
    return WK_OK;
}
static void close_nothing(void *model) { (void)model; }

static struct wk_rope_freqs plain_rope(double freq[T_D / 2])
{
    wk_rope_frequencies(freq, T_D / 2, 10000);
    return wk_rope_freqs_of(freq, T_D / 2, WK_ROPE_HALF, 1);
}

static void gpt2_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    const struct wk_op_attention att = { .heads = T_H, .kv_heads = T_H, .scale = 0.35f };
    const struct wk_rows wq = { "attn_qkv", 3 * T_E, 0, T_E, 0 }, wk = { "attn_qkv", 3 * T_E, T_E, T_E, 0 },
                         wv = { "attn_qkv", 3 * T_E, 2 * T_E, T_E, 0 };
    wk_value x = wk_add(b, wk_embed(b, "token_embd", T_V, T_E), wk_embed_pos(b, "position_embd", T_C, T_E, 0));
    for (uint32_t l = 0; l < T_L; l++) {
        wk_layer(b, l);
        wk_value h = wk_layer_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear_rows(b, h, wq, WK_REQUIRED), k = wk_linear_rows(b, h, wk, WK_REQUIRED),
                 v = wk_linear_rows(b, h, wv, WK_REQUIRED);
        x = wk_add(b, x, wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", T_E, WK_REQUIRED));
        h = wk_layer_norm(b, x, "ffn_norm", 1e-5f);
        x = wk_add(
            b, x,
            wk_linear(b, wk_gelu_tanh(b, wk_linear(b, h, "ffn_up", T_F, WK_REQUIRED)), "ffn_down", T_E, WK_REQUIRED));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", 1e-5f), "token_embd", T_V, WK_NONE));
}

static void gpt_oss_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    struct wk_op_attention att = { .heads = T_H, .kv_heads = T_G, .scale = 0.35f };
    double freq[T_D / 2];
    const struct wk_rope_freqs rope = plain_rope(freq);
    wk_value x = wk_embed(b, "token_embd", T_V, T_E);
    for (uint32_t l = 0; l < T_L; l++) {
        wk_layer(b, l);
        att.window = l % 2 ? 0 : 40;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", T_H * T_D, WK_REQUIRED), T_D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", T_G * T_D, WK_REQUIRED), T_D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", T_G * T_D, WK_REQUIRED);
        wk_value a = wk_attention(b, q, k, v, "attn_sinks", &att);
        x = wk_add(b, x, wk_linear(b, a, "attn_output", T_E, WK_REQUIRED));
        h = wk_rms_norm(b, x, "post_attention_norm", 1e-5f);
        wk_value r =
            wk_route(b, wk_linear(b, h, "ffn_gate_inp", T_X, WK_REQUIRED), T_K, WK_SCORE_SOFTMAX_TOPK, 0, 1.0f);
        wk_value g = wk_expert(b, h, r, "ffn_gate_exps", T_X, T_F, WK_REQUIRED),
                 u = wk_expert(b, h, r, "ffn_up_exps", T_X, T_F, WK_REQUIRED);
        wk_value f = wk_glu_op(b, WK_GLU_SILU_CLAMPED, g, u, 1.702f, 7.0f);
        x = wk_add(b, x, wk_combine(b, wk_expert(b, f, r, "ffn_down_exps", T_X, T_E, WK_REQUIRED), r));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", T_V, WK_NONE));
}

static void gemma2_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    struct wk_op_attention att = { .heads = T_H, .kv_heads = T_G, .scale = 0.35f, .softcap = 50.0f };
    double freq[T_D / 2];
    const struct wk_rope_freqs rope = plain_rope(freq);
    wk_value x = wk_scale(b, wk_embed(b, "token_embd", T_V, T_E), sqrtf((float)T_E));
    for (uint32_t l = 0; l < T_L; l++) {
        wk_layer(b, l);
        att.window = l % 2 ? 0 : 40;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-6f);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", T_H * T_D, WK_NONE), T_D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", T_G * T_D, WK_NONE), T_D, &rope);
        wk_value a = wk_attention(b, q, k, wk_linear(b, h, "attn_v", T_G * T_D, WK_NONE), NULL, &att);
        x = wk_add(b, x, wk_rms_norm(b, wk_linear(b, a, "attn_output", T_E, WK_NONE), "post_attention_norm", 1e-6f));
        h = wk_rms_norm(b, x, "ffn_norm", 1e-6f);
        wk_value f = wk_glu(b, WK_GLU_GELU_TANH, wk_linear(b, h, "ffn_gate", T_F, WK_NONE),
                            wk_linear(b, h, "ffn_up", T_F, WK_NONE));
        x = wk_add(b, x, wk_rms_norm(b, wk_linear(b, f, "ffn_down", T_E, WK_NONE), "post_ffw_norm", 1e-6f));
    }
    wk_end_layers(b);
    wk_logits(b,
              wk_softcap(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-6f), "token_embd", T_V, WK_NONE), 30.0f));
}

static void mixtral_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    const struct wk_op_attention att = { .heads = T_H, .kv_heads = T_G, .scale = 0.35f };
    double freq[T_D / 2];
    const struct wk_rope_freqs rope = plain_rope(freq);
    wk_value x = wk_embed(b, "token_embd", T_V, T_E);
    for (uint32_t l = 0; l < T_L; l++) {
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value v = wk_linear(b, h, "attn_v", T_G * T_D,
                               WK_NONE); /* v, k, q: patterns must not depend on the order of recording */
        wk_value k = wk_head_norm(b, wk_linear(b, h, "attn_k", T_G * T_D, WK_NONE), "attn_k_norm", T_D, 1e-5f);
        wk_value q = wk_head_norm(b, wk_linear(b, h, "attn_q", T_H * T_D, WK_NONE), "attn_q_norm", T_D, 1e-5f);
        wk_value a = wk_attention(b, wk_rope(b, q, T_D, &rope), wk_rope(b, k, T_D, &rope), v, NULL, &att);
        x = wk_add(b, wk_linear(b, a, "attn_output", T_E, WK_NONE), x);
        h = wk_rms_norm(b, x, "ffn_norm", 1e-5f);
        wk_value r =
            wk_route(b, wk_linear(b, h, "ffn_gate_inp", T_X, WK_NONE), T_K, WK_SCORE_SOFTMAX, WK_ROUTE_NORMALIZE, 1.0f);
        wk_value u = wk_expert(b, h, r, "ffn_up_exps", T_X, T_F, WK_NONE),
                 g = wk_expert(b, h, r, "ffn_gate_exps", T_X, T_F, WK_NONE);
        x = wk_add(
            b, wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", T_X, T_E, WK_NONE), r), x);
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", T_V, WK_NONE));
}

/* ---- files --------------------------------------------------------------------------------------------- */

struct shape {
    const char *name; /* "%u" means: one a layer */
    uint32_t rows, cols, slabs;
};

static struct gguf_build *make(const char *architecture, const struct shape *shapes, size_t n)
{
    struct gguf_build *g = gguf_build_new(architecture);
    char name[96];
    (void)snprintf(name, sizeof name, "%s.context_length", architecture);
    gguf_build_u32(g, name, T_C);
    for (size_t i = 0; i < n; i++) {
        const bool layered = shapes[i].name[0] == '.';
        for (unsigned l = 0; l < (layered ? (unsigned)T_L : 1u); l++) {
            if (layered)
                (void)snprintf(name, sizeof name, "blk.%u%s", l, shapes[i].name);
            else
                (void)snprintf(name, sizeof name, "%s", shapes[i].name);
            gguf_build_floats(g, name, shapes[i].rows, shapes[i].cols, shapes[i].slabs, NULL);
        }
    }
    return g;
}
#define FILE_OF(architecture, ...)                 \
    const struct shape shapes[] = { __VA_ARGS__ }; \
    return make(architecture, shapes, sizeof shapes / sizeof shapes[0])

static struct gguf_build *gpt2_file(void)
{
    FILE_OF("gpt2", { "token_embd.weight", T_V, T_E, 1 }, { "position_embd.weight", T_C, T_E, 1 },
            { "output_norm.weight", 1, T_E, 1 }, { "output_norm.bias", 1, T_E, 1 }, { ".attn_norm.weight", 1, T_E, 1 },
            { ".attn_norm.bias", 1, T_E, 1 }, { ".attn_qkv.weight", 3 * T_E, T_E, 1 },
            { ".attn_qkv.bias", 1, 3 * T_E, 1 }, { ".attn_output.weight", T_E, T_E, 1 },
            { ".attn_output.bias", 1, T_E, 1 }, { ".ffn_norm.weight", 1, T_E, 1 }, { ".ffn_norm.bias", 1, T_E, 1 },
            { ".ffn_up.weight", T_F, T_E, 1 }, { ".ffn_up.bias", 1, T_F, 1 }, { ".ffn_down.weight", T_E, T_F, 1 },
            { ".ffn_down.bias", 1, T_E, 1 });
}
#define ATTENTION_TENSORS                                                                 \
    { ".attn_norm.weight", 1, T_E, 1 }, { ".attn_q.weight", T_H * T_D, T_E, 1 },          \
        { ".attn_k.weight", T_G * T_D, T_E, 1 }, { ".attn_v.weight", T_G * T_D, T_E, 1 }, \
    {                                                                                     \
        ".attn_output.weight", T_E, T_H *T_D, 1                                           \
    }
#define EXPERT_TENSORS                                                                   \
    { ".ffn_gate_inp.weight", T_X, T_E, 1 }, { ".ffn_gate_exps.weight", T_F, T_E, T_X }, \
        { ".ffn_up_exps.weight", T_F, T_E, T_X },                                        \
    {                                                                                    \
        ".ffn_down_exps.weight", T_E, T_F, T_X                                           \
    }
static struct gguf_build *gpt_oss_file(void)
{
    FILE_OF("gpt-oss", { "token_embd.weight", T_V, T_E, 1 }, { "output.weight", T_V, T_E, 1 },
            { "output_norm.weight", 1, T_E, 1 }, ATTENTION_TENSORS, EXPERT_TENSORS, { ".attn_q.bias", 1, T_H * T_D, 1 },
            { ".attn_k.bias", 1, T_G * T_D, 1 }, { ".attn_v.bias", 1, T_G * T_D, 1 },
            { ".attn_output.bias", 1, T_E, 1 }, { ".attn_sinks.weight", 1, T_H, 1 },
            { ".post_attention_norm.weight", 1, T_E, 1 }, { ".ffn_gate_inp.bias", 1, T_X, 1 },
            { ".ffn_gate_exps.bias", T_X, T_F, 1 }, { ".ffn_up_exps.bias", T_X, T_F, 1 },
            { ".ffn_down_exps.bias", T_X, T_E, 1 });
}
static struct gguf_build *gemma2_file(void)
{
    FILE_OF("gemma2", { "token_embd.weight", T_V, T_E, 1 }, { "output_norm.weight", 1, T_E, 1 }, ATTENTION_TENSORS,
            { ".post_attention_norm.weight", 1, T_E, 1 }, { ".ffn_norm.weight", 1, T_E, 1 },
            { ".ffn_gate.weight", T_F, T_E, 1 }, { ".ffn_up.weight", T_F, T_E, 1 }, { ".ffn_down.weight", T_E, T_F, 1 },
            { ".post_ffw_norm.weight", 1, T_E, 1 });
}
static struct gguf_build *mixtral_file(void)
{
    FILE_OF("mixtral", { "token_embd.weight", T_V, T_E, 1 }, { "output.weight", T_V, T_E, 1 },
            { "output_norm.weight", 1, T_E, 1 }, ATTENTION_TENSORS, EXPERT_TENSORS,
            { ".attn_q_norm.weight", 1, T_D, 1 }, { ".attn_k_norm.weight", 1, T_D, 1 },
            { ".ffn_norm.weight", 1, T_E, 1 });
}

#define ARCH(id, text)                                                               \
    static const char *const id##_names[] = { text };                                \
    static const struct wk_arch id##_arch = { .struct_size = sizeof(struct wk_arch), \
                                              .n_names = 1,                          \
                                              .names = id##_names,                   \
                                              .open = open_nothing,                  \
                                              .record = id##_record,                 \
                                              .close = close_nothing }
ARCH(gpt2, "gpt2");
ARCH(gpt_oss, "gpt-oss");
ARCH(gemma2, "gemma2");
ARCH(mixtral, "mixtral");

const struct test_model test_models[] = {
    { "gpt2", &gpt2_arch, gpt2_file, 5 },
    { "gpt-oss", &gpt_oss_arch, gpt_oss_file, 7 },
    { "gemma2", &gemma2_arch, gemma2_file, 7 },
    { "mixtral", &mixtral_arch, mixtral_file, 7 },
};
const uint32_t n_test_models = sizeof test_models / sizeof test_models[0];

/* ---- recording ----------------------------------------------------------------------------------------- */

/* The tape looks at a type's geometry and name; products are tested where they are. */
static const struct wk_type_cpu *find_type(void *user, uint32_t ggml_type)
{
#define TYPE(number, values, bytes, text)                                                                      \
    {                                                                                                          \
        .struct_size = sizeof(struct wk_type_cpu), .ggml_type = number, .block = values, .block_bytes = bytes, \
        .name = text                                                                                           \
    }
    static const struct wk_type_cpu types[] = {
        TYPE(0, 1, 4, "f32"),       TYPE(1, 1, 2, "f16"),       TYPE(2, 32, 18, "q4_0"),
        TYPE(6, 32, 22, "q5_0"),    TYPE(8, 32, 34, "q8_0"),    TYPE(12, 256, 144, "q4_K"),
        TYPE(13, 256, 176, "q5_K"), TYPE(14, 256, 210, "q6_K"), TYPE(30, 1, 2, "bf16"),
    };
    (void)user;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].ggml_type == ggml_type) return &types[i];
    return NULL;
}
static void describe_types(void *user, char *text, size_t cap)
{
    (void)user;
    (void)snprintf(text, cap, "quant-test.so");
}

struct tape_options test_options(void)
{
    return (struct tape_options){ .fuse = FUSE_ALL, .find_type = find_type, .describe_types = describe_types };
}

struct tape_program *test_record(const struct wk_arch *arch, const struct gguf *file, const struct tape_options *o)
{
    char text[8192] = "";
    const struct wk_err err = { text, sizeof text };
    struct tape_program *p;
    if (tape_record(arch, file, o, &p, &err) != WK_OK) fail_msg("%s", text);
    assert_non_null(p);
    return p;
}

uint32_t test_launches_of_layer(const struct tape_program *p, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) n += p->launches[i].layer == layer;
    return n;
}

/* ---- the checker: runs the launches over buffers that remember whose row they hold --------------------- */

struct machine {
    const struct tape_program *p;
    uint32_t *owner;    /* [buffers] value whose rows lie there */
    uint32_t *computed; /* [ops] times */
    bool *made;         /* [values] exists somewhere already */
};

static void check_read(const struct machine *m, const struct tape_launch *l, uint32_t v, bool all_rows)
{
    const struct tape_value *x = &m->p->values[v];
    if (m->p->ops[x->op].kind == WK_OP_VECTOR) return; /* the reader has its tensor */
    assert_true(m->made[v]);
    assert_true(x->buffer < m->p->n_buffers);
    assert_int_equal(m->owner[x->buffer], v);
    if (x->pooled)
        assert_int_equal(l->rows, ROWS_POOLED);
    else if (all_rows || l->rows != ROWS_LOGITS)
        assert_int_equal(x->rows, ROWS_ALL);
}
static void check_write(struct machine *m, const struct tape_launch *l, uint32_t v)
{
    const struct tape_value *x = &m->p->values[v];
    const struct tape_buffer *b = &m->p->buffers[x->buffer];
    assert_true(x->buffer < m->p->n_buffers);
    assert_int_equal(x->rows, l->rows);
    assert_int_equal(b->rows, x->rows);
    assert_true(b->row_bytes >= (uint64_t)x->width * x->slots * (m->p->ops[x->op].kind == WK_OP_ROUTE ? 8 : 4));
    uint32_t before = m->owner[x->buffer];
    assert_true(before == TAPE_NONE || !m->p->values[before].tapped); /* a tapped value stays to the end */
    for (uint32_t k = 0; k < l->n_ops; k++)                           /* never over an input of the same launch */
        for (int i = 0; i < TAPE_IN; i++) {
            uint32_t in = m->p->ops[l->ops[k]].in[i];
            if (in != TAPE_NONE && m->p->values[in].buffer != TAPE_NONE)
                assert_int_not_equal(m->p->values[in].buffer, x->buffer);
        }
    m->owner[x->buffer] = v;
}

/* ---- do the fields of a launch say what its operations say? -------------------------------------------- */

/* v goes through maps, then meets the residual; what comes out? */
static uint32_t check_tail(const struct tape_program *p, const struct tape_launch *l, uint32_t v)
{
    for (uint32_t i = 0; i < l->n_map; i++) {
        const struct tape_op *map = &p->ops[l->map[i]];
        assert_true(map->kind == WK_OP_UNARY && map->in[0] == v);
        v = map->out;
    }
    if (l->add == TAPE_NONE) return v;
    const struct tape_op *add = &p->ops[l->add];
    assert_int_equal(add->kind, WK_OP_ADD);
    assert_true((add->in[0] == v && add->in[1] == l->residual) || (add->in[1] == v && add->in[0] == l->residual));
    return add->out;
}

static void check_product(const struct tape_program *p, const struct tape_launch *l)
{
    uint32_t x = l->x;
    if (l->norm != TAPE_NONE) {
        assert_true(p->ops[l->norm].kind == WK_OP_NORM && p->ops[l->norm].in[0] == x && !p->ops[l->norm].u.norm.group &&
                    p->values[x].slots == 1);
        x = p->ops[l->norm].out;
    }
    assert_in_range(l->n_seg, 1, 4);
    for (uint32_t i = 0; i < l->n_seg; i++) {
        const struct tape_segment *s = &l->seg[i];
        const struct tape_op *o = &p->ops[s->op];
        assert_true(o->in[0] == x && o->t[0] == s->tensor && o->t[1] == s->bias && o->u.linear.first == s->first &&
                    o->u.linear.n == s->n);
        assert_int_equal(o->in[1], l->kind == LAUNCH_ROUTE ? TAPE_NONE : l->route);
        assert_true(s->out == TAPE_NONE || s->out == o->out);
    }
    uint32_t v = p->ops[l->seg[0].op].out;
    if (l->glu != TAPE_NONE) {
        assert_true(l->n_seg == 2 && p->ops[l->glu].in[0] == v && p->ops[l->glu].in[1] == p->ops[l->seg[1].op].out);
        v = p->ops[l->glu].out;
    }
    v = check_tail(p, l, v);
    if (l->add != TAPE_NONE) assert_int_equal(p->ops[l->seg[0].op].kind, WK_OP_LINEAR);
    const struct tape_op *last = &p->ops[l->ops[l->n_ops - 1]];
    if (l->logits)
        assert_true(last->kind == WK_OP_OUTPUT && last->in[0] == v && l->out == v);
    else if (l->kind == LAUNCH_ROUTE)
        assert_true(last->kind == WK_OP_ROUTE && last->in[0] == v && last->out == l->out);
    else if (l->out != TAPE_NONE)
        assert_int_equal(l->out, v);
    else
        for (uint32_t i = 0; i < l->n_seg; i++) assert_int_not_equal(l->seg[i].out, TAPE_NONE);
}

static uint32_t check_link(const struct tape_program *p, uint32_t op, uint16_t kind, uint32_t head, uint32_t v)
{
    if (op == TAPE_NONE) return v; /* TAPE_NONE, too: where no key or value is given */
    assert_true(p->ops[op].kind == kind && p->ops[op].in[0] == v);
    assert_int_equal(kind == WK_OP_ROPE ? p->ops[op].u.rope.head : p->ops[op].u.norm.group, head);
    return p->ops[op].out;
}
static void check_attend(const struct tape_program *p, const struct tape_launch *l)
{
    const struct tape_op *a = &p->ops[l->attention];
    const uint32_t dk = a->u.attn.head_k, dv = a->u.attn.head_v;
    assert_int_equal(a->in[0],
                     check_link(p, l->q_rope, WK_OP_ROPE, dk, check_link(p, l->q_norm, WK_OP_NORM, dk, l->q)));
    assert_int_equal(a->in[1],
                     check_link(p, l->k_rope, WK_OP_ROPE, dk, check_link(p, l->k_norm, WK_OP_NORM, dk, l->k)));
    assert_int_equal(a->in[2], check_link(p, l->v_norm, WK_OP_NORM, dv, l->v));
    assert_int_equal(a->out, l->out);
}

static void check_fields(const struct tape_program *p, const struct tape_launch *l)
{
    const struct tape_op *first = &p->ops[l->ops[0]], *last = &p->ops[l->ops[l->n_ops - 1]];
    switch (l->kind) {
    case LAUNCH_PRODUCT:
    case LAUNCH_ROUTE: check_product(p, l); break;
    case LAUNCH_ATTEND: check_attend(p, l); break;
    case LAUNCH_COMBINE:
        assert_true(first->kind == WK_OP_COMBINE && first->in[0] == l->x && first->in[1] == l->route);
        assert_int_equal(l->out, check_tail(p, l, first->out));
        break;
    case LAUNCH_NORM_ADD:
        assert_true(l->ops[0] == l->norm && first->kind == WK_OP_NORM && first->in[0] == l->x && l->add != TAPE_NONE);
        assert_int_equal(l->out, check_tail(p, l, first->out));
        break;
    case LAUNCH_STATE:
        assert_true(l->n_ops == 1 && first->kind == WK_OP_STATE && l->out == first->out && l->x == first->in[0]);
        break;
    case LAUNCH_ALONE: assert_true(l->n_ops == 1 && l->out == first->out && l->x == first->in[0]); break;
    case LAUNCH_OUTPUT:
        assert_true(l->x == first->in[0] && last->kind == WK_OP_OUTPUT && (l->n_ops == 1 || last->in[0] == first->out));
        break;
    default: assert_true(l->kind == LAUNCH_EMBED && first->kind == WK_OP_EMBED && l->out == last->out); break;
    }
}

static bool within(const struct tape_launch *l, uint32_t op)
{
    for (uint32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i] == op) return true;
    return false;
}

static void run_launch(struct machine *m, uint32_t i)
{
    const struct tape_program *p = m->p;
    const struct tape_launch *l = &p->launches[i];
    assert_in_range(l->n_ops, 1, 16);
    check_fields(p, l);
    for (uint32_t k = 0; k < l->n_ops; k++) {
        const struct tape_op *o = &p->ops[l->ops[k]];
        if (k) assert_true(l->ops[k - 1] < l->ops[k]);
        assert_true(o->launch <= i);
        m->computed[l->ops[k]]++;
        if (l->ops[k] == l->norm && l->kind != LAUNCH_NORM_ADD)
            m->computed[l->ops[k]] = 1; /* made again in each prologue */
        for (int n = 0; n < TAPE_IN; n++) {
            if (o->in[n] == TAPE_NONE || within(l, p->values[o->in[n]].op)) continue;
            const bool stored = (o->kind == WK_OP_ATTENTION && n > 0) || o->kind == WK_OP_STATE;
            check_read(m, l, o->in[n], stored || o->kind == WK_OP_POOL);
        }
    }
    if (l->kind == LAUNCH_ATTEND) { /* k and v are stored for all rows, also where their ropes are inside */
        if (l->k != TAPE_NONE) assert_int_equal(p->values[l->k].rows, ROWS_ALL);
        if (l->v != TAPE_NONE) assert_int_equal(p->values[l->v].rows, ROWS_ALL);
    }
    for (uint32_t s = 0; s < l->n_seg; s++)
        if (l->seg[s].out != TAPE_NONE && !(l->logits && l->seg[s].out == l->out)) {
            check_write(m, l, l->seg[s].out);
            m->made[l->seg[s].out] = true;
        }
    if (l->logits)
        assert_int_equal(p->values[l->out].buffer, TAPE_NONE);
    else if (l->out != TAPE_NONE) {
        check_write(m, l, l->out);
        m->made[l->out] = true;
    }
}

void test_check_program(const struct tape_program *p)
{
    struct machine m = { .p = p,
                         .owner = malloc((p->n_buffers + 1) * sizeof *m.owner),
                         .computed = calloc(p->n_ops, sizeof *m.computed),
                         .made = calloc(p->n_values, sizeof *m.made) };
    assert_true(m.owner && m.computed && m.made);
    for (uint32_t i = 0; i < p->n_buffers; i++) m.owner[i] = TAPE_NONE;
    for (uint32_t i = 0; i < p->n_launches; i++) run_launch(&m, i);
    for (uint32_t i = 0; i < p->n_ops; i++) assert_int_equal(m.computed[i], p->ops[i].kind != WK_OP_VECTOR);
    for (uint32_t v = 0; v < p->n_values; v++) {
        if (!p->values[v].tapped) continue;
        assert_int_equal(p->values[v].rows, ROWS_ALL);
        assert_int_equal(m.owner[p->values[v].buffer], v);
    }
    free(m.owner);
    free(m.computed);
    free(m.made);
}
