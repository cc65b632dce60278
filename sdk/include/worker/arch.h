/* worker/arch.h: what an architecture plugin is: a table of metadata keys, and a function that records the forward
 * pass.
 *
 * record() runs once, when a model is opened, before any weight is read. It states the pass as operations on values and
 * named tensors, through the inlines below, and reads like the model's paper. A tensor is declared by being used:
 * recording is at once the validation of the file, the memory plan and the capability list. No code of an architecture
 * plugin runs after a model is open (WK_OP_CUSTOM's own functions apart).
 *
 * A value is one row of real numbers for every token of a step: slots x width (slots is 1 except between route and
 * combine). It has no type, no strides, no batch axis and is never modified. Errors are sticky: a failed call returns
 * the value 0, an operation on value 0 returns 0 in silence, and the host refuses the model afterwards with the first
 * 16 messages. So record() checks nothing and frees nothing.
 *
 * Growth as worker/abi.h has it: an operation says its size, and the minor version that brought what it uses. */
#ifndef WORKER_ARCH_H
#define WORKER_ARCH_H

#include <string.h>

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values, tensors, operations ----------------------------------------------------------------------- */

typedef struct {
    uint32_t id; /* 0: has failed before */
} wk_value;

enum {
    WK_OP_EMBED = 1,
    WK_OP_LINEAR,
    WK_OP_NORM,
    WK_OP_ROPE,
    WK_OP_ATTENTION,
    WK_OP_UNARY,
    WK_OP_GLU,
    WK_OP_ADD,
    WK_OP_MUL,
    WK_OP_SLICE,
    WK_OP_ROUTE,
    WK_OP_EXPERT,
    WK_OP_COMBINE,
    WK_OP_POOL,
    WK_OP_OUTPUT,
    WK_OP_CUSTOM,
    WK_OP_CONCAT,
    WK_OP_LINEAR_HEADS,
    WK_OP_VECTOR,
    WK_OP_STATE,
    WK_OP_END
};

enum { WK_NONE = 0, WK_REQUIRED = 1, WK_OPTIONAL = 2 }; /* a tensor: not used, required, used if the file has it */
enum { WK_EMBED_TOKEN = 0, WK_EMBED_POSITION, WK_EMBED_ROW, WK_EMBED_END = 4 }; /* embed: what picks the row */
#if WORKER_ABI_MINOR >= 1
enum { WK_EMBED_TOKEN_TYPE = 3 };
#endif
enum { WK_NORM_RMS = 0, WK_NORM_LAYER = 1 };
enum { WK_ROPE_INTERLEAVED = 0, WK_ROPE_HALF = 1 }; /* rotate (x[2i], x[2i+1]) or (x[i], x[i+n]) */
enum {
    WK_UNARY_SCALE = 1,
    WK_UNARY_GELU_TANH,
    WK_UNARY_GELU_ERF,
    WK_UNARY_SILU,
    WK_UNARY_SIGMOID,
    WK_UNARY_TANH,
    WK_UNARY_RELU,
    WK_UNARY_SOFTCAP,
    WK_UNARY_SOFTPLUS,
    WK_UNARY_EXP,
    WK_UNARY_END
};
enum { WK_GLU_SILU = 1, WK_GLU_GELU_TANH, WK_GLU_GELU_ERF, WK_GLU_SILU_CLAMPED, WK_GLU_END };
/* A route's weights: softmax over the chosen, softmax over all, sigmoid of each. */
enum { WK_SCORE_SOFTMAX_TOPK = 1, WK_SCORE_SOFTMAX, WK_SCORE_SIGMOID, WK_SCORE_END };
enum { WK_ROUTE_NORMALIZE = 1u << 0 };                  /* weights are divided by their sum */
enum { WK_GROUP_MAX = 1, WK_GROUP_TOP2, WK_GROUP_END }; /* a group's score: its best expert's, the sum of its two */
enum { WK_ATTENTION_BIDIRECTIONAL = 1u << 0 };          /* all positions of the sequence see each other */
enum { WK_STATE_CONV = 1, WK_STATE_SCAN, WK_STATE_DELTA, WK_STATE_END };
enum { WK_POOL_MEAN = 1, WK_POOL_LAST, WK_POOL_FIRST, WK_POOL_END };
/* Reserved for draft models, which read hidden values of another program and give out their own: WK_OUTPUT_HIDDEN, the
 * next value here, and WK_EMBED_HIDDEN, the next one of embed. Until then both are refused as unknown. */
enum { WK_OUTPUT_LOGITS = 1, WK_OUTPUT_EMBEDDING, WK_OUTPUT_END };
enum { WK_OUTPUT_L2_NORM = 1u << 0 };

/* Head of every operation; its own fields follow and grow at the end only. Made by the inlines; copied by the host. */
struct wk_op {
    uint32_t size;        /* bytes in all */
    uint16_t kind, since; /* WK_OP_*; ABI minor that brought what it uses, filled by the inlines */
    uint32_t in[8];       /* value ids; 0: none */
    uint32_t t[8];        /* tensor ids; 0: none */
};

struct wk_op_embed {
    struct wk_op o;
    uint32_t index, offset;
};
/* LINEAR, EXPERT, LINEAR_HEADS. slabs: experts, or heads; 0 in LINEAR. */
struct wk_op_linear {
    struct wk_op o;
    uint32_t first, n, slabs, reserved;
};
struct wk_op_norm {
    struct wk_op o;
    uint32_t kind, group;
    float eps;
    uint32_t reserved;
};
struct wk_op_unary {
    struct wk_op o;
    uint32_t fn;
    float p;
};
struct wk_op_glu {
    struct wk_op o;
    uint32_t fn;
    float alpha, limit;
    uint32_t reserved;
};
/* Columns [first, first + n) of each of `groups` equal parts of the row; 0: of the row. */
struct wk_op_slice {
    struct wk_op o;
    uint32_t first, n, groups, reserved;
};
/* The inputs side by side, in each of `groups` equal parts of the result; 0: once. Bit i of `repeated`: input i is one
 * part's, the same in all. */
struct wk_op_concat {
    struct wk_op o;
    uint32_t groups, repeated;
};
/* Experts are chosen by their scores: of WK_SCORE_SOFTMAX the softmax over all experts, of WK_SCORE_SIGMOID the sigmoid
 * of each, whether or not the weights are then divided by their sum. A selection bias (a tensor [experts]) is added to
 * the score in every choice, and counts in no weight. The experts are `groups` equal runs (0: one; at most 64), of
 * which the `groups_used` best by group_score (WK_GROUP_*; 0 without groups), of score + bias, may be chosen from.
 * WK_SCORE_SOFTMAX_TOPK chooses by the logits, without bias and groups. Ties go to the lowest index everywhere. */
struct wk_op_route {
    struct wk_op o;
    uint32_t k, score; /* experts chosen; WK_SCORE_* */
    float scale;       /* of the weights, last */
    uint32_t flags;    /* WK_ROUTE_* */
    uint32_t groups, groups_used, group_score, reserved;
};
/* What a sequence carries from row to row; see the inlines. */
struct wk_op_state {
    struct wk_op o;
    uint32_t kind;          /* WK_STATE_* */
    uint32_t kernel;        /* CONV: rows that a result sees */
    uint32_t heads, groups; /* SCAN, DELTA: of values; of keys and queries */
};
struct wk_op_pool {
    struct wk_op o;
    uint32_t how, reserved;
};
struct wk_op_output {
    struct wk_op o;
    uint32_t what, flags;
};

/* Rotation frequencies: pair i of a head turns by position * freq[i] radians; results are scaled by mscale.
 *
 * temperature_length, temperature (since 1.1): mscale grows with the position, by a factor of 1 + temperature * ln(1 +
 * floor((position + 1) / temperature_length)). Frequencies may be 0: then this factor is all that the operation does.
 */
struct wk_rope_freqs {
    uint32_t struct_size, style; /* style: WK_ROPE_* */
    uint32_t n, reserved;        /* n: pairs; values from 2n on pass unchanged */
    const double *freq;          /* [n], radians a position, plugin's; copied */
    double mscale;
    double temperature;
    uint32_t temperature_length, reserved_temperature; /* positions; 0: mscale is the same everywhere */
};
struct wk_op_rope {
    struct wk_op o;
    uint32_t head, reserved;
    const struct wk_rope_freqs *freqs;
};

/* Attention over the sequence's cache. Row p sees position j iff j <= p, and j > p - window (0: no window), and
 * j / chunk == p / chunk (0: no chunks; else a multiple of 32). BIDIRECTIONAL: j > p as well, where j - p < window; the
 * whole prompt is then one step, and the model generates nothing. */
struct wk_op_attention {
    struct wk_op o;
    uint32_t heads, kv_heads;
    float scale, softcap; /* softcap 0: none */
    uint32_t window, flags;
    uint32_t chunk;
    uint32_t value_in_key; /* the value is the first so many numbers of each key head, and not given; 0: it is given */
    const float *slopes;   /* [heads] ALiBi: slope * -|p - j| is added to the score behind scale and softcap; copied;
                            * NULL: none */
};

/* Rows [first, first + n) of a tensor of `total` rows. */
struct wk_rows {
    const char *name; /* static or alive during record() */
    uint32_t total, first, n, reserved;
};

/* An operation that the tape does not have: computed by the plugin's own function, row by row, fused with nothing. It
 * has no state: a row of the result depends on its own row, its position and the tensors alone. At most 8 inputs of one
 * slot, 8 tensors, 4096 bytes of parameters. On CUDA the function of the same name in the plugin's CUDA module computes
 * it (worker/plugin_cuda.h); without one the model is refused there, by name. */
struct wk_custom_call {
    uint32_t struct_size, n_rows;
    uint32_t n_in, out_width;
    const float *const *in;     /* [n_in] of [n_rows][in_width[i]], host's */
    const uint32_t *in_width;   /* [n_in] */
    const uint32_t *position;   /* [n_rows] */
    const void *params;         /* as given to wk_custom, host's copy */
    float *out;                 /* [n_rows][out_width], host's */
    const float *const *tensor; /* [n_tensors] as given to wk_custom: rows x cols numbers each, host's */
    uint32_t n_tensors, reserved;
};
/* How a model that is divided over several GPUs may divide the operation: not at all, or by columns (column j of the
 * result depends on column j of the inputs alone). */
enum { WK_SPLIT_NONE = 0, WK_SPLIT_COLUMNS, WK_SPLIT_END };
struct wk_custom_def {
    uint32_t struct_size, split;                                /* split: WK_SPLIT_* */
    const char *name;                                           /* for messages, and of the CUDA function; static */
    uint32_t (*width)(const uint32_t *in_width, uint32_t n_in); /* 0: not these; serialised, as record() */
    void (*cpu)(const struct wk_custom_call *call);             /* [any thread] */
};
struct wk_op_custom {
    struct wk_op o;
    const struct wk_custom_def *def;
    const void *params;
    uint32_t params_bytes, reserved;
};
/* A tensor of a custom operation: its complete name, and its shape. */
struct wk_custom_tensor {
    const char *name;
    uint32_t rows, cols;
};

/* Bytes in ABI 1.0; of operations without fields of their own WK_OP_SIZE_1_0. */
#define WK_OP_SIZE_1_0 WK_SIZE_TO(struct wk_op, t)
#define WK_OP_EMBED_SIZE_1_0 WK_SIZE_TO(struct wk_op_embed, offset)
#define WK_OP_LINEAR_SIZE_1_0 WK_SIZE_TO(struct wk_op_linear, reserved)
#define WK_OP_NORM_SIZE_1_0 WK_SIZE_TO(struct wk_op_norm, reserved)
#define WK_OP_ROPE_SIZE_1_0 WK_SIZE_TO(struct wk_op_rope, freqs)
#define WK_OP_ATTENTION_SIZE_1_0 WK_SIZE_TO(struct wk_op_attention, slopes)
#define WK_OP_UNARY_SIZE_1_0 WK_SIZE_TO(struct wk_op_unary, p)
#define WK_OP_GLU_SIZE_1_0 WK_SIZE_TO(struct wk_op_glu, reserved)
#define WK_OP_SLICE_SIZE_1_0 WK_SIZE_TO(struct wk_op_slice, reserved)
#define WK_OP_ROUTE_SIZE_1_0 WK_SIZE_TO(struct wk_op_route, reserved)
#define WK_OP_POOL_SIZE_1_0 WK_SIZE_TO(struct wk_op_pool, reserved)
#define WK_OP_OUTPUT_SIZE_1_0 WK_SIZE_TO(struct wk_op_output, flags)
#define WK_OP_CUSTOM_SIZE_1_0 WK_SIZE_TO(struct wk_op_custom, reserved)
#define WK_OP_CONCAT_SIZE_1_0 WK_SIZE_TO(struct wk_op_concat, repeated)
#define WK_OP_STATE_SIZE_1_0 WK_SIZE_TO(struct wk_op_state, groups)
#define WK_ROPE_FREQS_SIZE_1_0 WK_SIZE_TO(struct wk_rope_freqs, mscale)
#define WK_CUSTOM_DEF_SIZE_1_0 WK_SIZE_TO(struct wk_custom_def, cpu)
WK_STATIC_ASSERT(WK_OP_SIZE_1_0 == 72 && WK_OP_ATTENTION_SIZE_1_0 == 112 && WK_OP_ROPE_SIZE_1_0 == 88,
                 "layout of operations");

/* The host's side of record(): valid during record() alone, in the thread that it is called in. Plugins call the
 * inlines below, never these. */
struct wk_builder {
    uint32_t struct_size, abi_minor;
    uint32_t context, reserved; /* context: positions allocated a sequence */
    void *self;
    uint32_t (*op)(void *self, const struct wk_op *op); /* copies all; a value id, 0 on error */
    /* name relative to the scope + suffix; shape rows x cols x depth; need WK_REQUIRED or WK_OPTIONAL; tensor id, 0:
     * absent or wrong */
    uint32_t (*tensor)(void *self, const char *name, const char *suffix, uint32_t rows, uint32_t cols, uint32_t depth,
                       uint32_t need);
    uint32_t (*width)(void *self, uint32_t value);
    uint32_t (*read)(void *self, const char *name, float *dst,
                     uint32_t n); /* F32 tensor [n] into dst; 1: found, 0: absent */
    /* 1: this host knows the operation's kind and all that is set in it and in what it points to, inputs and tensors
     * apart; says nothing. */
    uint32_t (*supports)(void *self, const struct wk_op *op);
    void (*scope)(void *self, const char *prefix, uint32_t layer); /* "blk.7.", 7; "" and UINT32_MAX outside layers */
    void (*name)(void *self, uint32_t value, const char *name);    /* a name for taps */
    void (*fail)(void *self, const char *text);                    /* refuse the model, saying why */
    /* Since 1.1. name: complete, or a prefix that ends in '*'. */
    void (*ignore)(void *self, const char *name);
};

/* ---- inlines: one per operation ------------------------------------------------------------------------ */

static inline struct wk_op wk_op_head(uint32_t size, uint16_t kind)
{
    struct wk_op o;
    memset(&o, 0, sizeof o);
    o.size = size;
    o.kind = kind;
    return o;
}
/* op: one of the structs of an operation, `size` bytes, all of it zero but the head: what it grows by is, too. */
static inline void wk_op_init(void *op, uint32_t size, uint16_t kind)
{
    struct wk_op *o = (struct wk_op *)op;
    memset(op, 0, size);
    o->size = size;
    o->kind = kind;
}
static inline wk_value wk_append(const struct wk_builder *b, const struct wk_op *o)
{
    wk_value v;
    v.id = b->op(b->self, o);
    return v;
}
/* Where an input may be left out. */
static inline wk_value wk_none(void)
{
    wk_value v;
    v.id = 0;
    return v;
}
static inline uint32_t wk_width(const struct wk_builder *b, wk_value x) { return b->width(b->self, x.id); }
/* Would this host take such an operation? For a plugin that can do without it. */
static inline int wk_supports(const struct wk_builder *b, const struct wk_op *o)
{
    return b->supports(b->self, o) != 0;
}
/* Positions allocated a sequence. */
static inline uint32_t wk_context(const struct wk_builder *b) { return b->context; }
/* F32 tensor [n] of that full name, into dst [n]. 1: found; 0: absent, or refused. */
static inline int wk_read(const struct wk_builder *b, const char *name, float *dst, uint32_t n)
{
    return b->read(b->self, name, dst, n) != 0;
}

/* Names now mean blk.<layer>.<name>. */
static inline void wk_layer(const struct wk_builder *b, uint32_t layer)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "blk.%u.", (unsigned)layer);
    b->scope(b->self, prefix, layer);
}
static inline void wk_end_layers(const struct wk_builder *b) { b->scope(b->self, "", UINT32_MAX); }
static inline wk_value wk_name(const struct wk_builder *b, wk_value x, const char *name)
{
    b->name(b->self, x.id, name);
    return x;
}
static inline void wk_refuse(const struct wk_builder *b, const char *text) { b->fail(b->self, text); }
#if WORKER_ABI_MINOR >= 1
/* The file may have a tensor of this complete name, or, where it ends in '*', tensors whose names begin so, that
 * nothing reads: parts of the file that the model does without, which only its keys tell. Names that no key decides
 * belong into `ignored` of struct wk_arch. */
static inline void wk_ignore(const struct wk_builder *b, const char *name) { b->ignore(b->self, name); }
#endif

static inline wk_value wk_embed_op(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width,
                                   uint32_t index, uint32_t offset)
{
    struct wk_op_embed e;
    wk_op_init(&e, sizeof e, WK_OP_EMBED);
    e.index = index;
    e.offset = offset;
    e.o.t[0] = b->tensor(b->self, name, ".weight", rows, width, 1, WK_REQUIRED);
    return wk_append(b, &e.o);
}
/* Row W[token] -> [width]. */
static inline wk_value wk_embed(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width)
{
    return wk_embed_op(b, name, rows, width, WK_EMBED_TOKEN, 0);
}
/* Row W[position + offset] -> [width]; a context that reaches past the table is refused at open. */
static inline wk_value wk_embed_pos(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width,
                                    uint32_t offset)
{
    return wk_embed_op(b, name, rows, width, WK_EMBED_POSITION, offset);
}
/* Row W[row] -> [width], the same for every token. */
static inline wk_value wk_embed_row(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width,
                                    uint32_t row)
{
    return wk_embed_op(b, name, rows, width, WK_EMBED_ROW, row);
}
#if WORKER_ABI_MINOR >= 1
/* Row W[type of the token] -> [width]: 0 for the tokens of a text, 1 for those of the second of two texts that are read
 * together, and for what ends it. rows: at least 2. */
static inline wk_value wk_embed_token_type(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width)
{
    struct wk_op_embed e;
    wk_op_init(&e, sizeof e, WK_OP_EMBED);
    e.o.since = 1;
    e.index = WK_EMBED_TOKEN_TYPE;
    e.o.t[0] = b->tensor(b->self, name, ".weight", rows, width, 1, WK_REQUIRED);
    return wk_append(b, &e.o);
}
#endif
/* A small tensor as a value, the same for every token -> [rows * cols], row after row. name: complete ("ssm_a",
 * "ssm_dt.bias"). Read by wk_add and wk_mul alone, as their second. */
static inline wk_value wk_vector(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t cols)
{
    struct wk_op o;
    wk_op_init(&o, sizeof o, WK_OP_VECTOR);
    o.t[0] = b->tensor(b->self, name, "", rows, cols, 1, WK_REQUIRED);
    return wk_append(b, &o);
}
/* y_j = sum_k W[first + j][k] x_k + bias[first + j] -> [n]. bias: WK_NONE, WK_REQUIRED or WK_OPTIONAL. */
static inline wk_value wk_linear_rows(const struct wk_builder *b, wk_value x, struct wk_rows w, uint32_t bias)
{
    struct wk_op_linear l;
    wk_op_init(&l, sizeof l, WK_OP_LINEAR);
    l.o.in[0] = x.id;
    l.first = w.first;
    l.n = w.n;
    if (x.id) {
        l.o.t[0] = b->tensor(b->self, w.name, ".weight", w.total, wk_width(b, x), 1, WK_REQUIRED);
        if (bias) l.o.t[1] = b->tensor(b->self, w.name, ".bias", 1, w.total, 1, bias);
    }
    return wk_append(b, &l.o);
}
static inline wk_value wk_linear(const struct wk_builder *b, wk_value x, const char *name, uint32_t n, uint32_t bias)
{
    struct wk_rows w;
    w.name = name;
    w.total = w.n = n;
    w.first = w.reserved = 0;
    return wk_linear_rows(b, x, w, bias);
}
/* y[h] = W[h] x[h] for each of `heads` equal parts x[h] of x; W [heads][n][width of x / heads] -> [heads * n]. */
static inline wk_value wk_linear_heads(const struct wk_builder *b, wk_value x, const char *name, uint32_t heads,
                                       uint32_t n)
{
    struct wk_op_linear l;
    wk_op_init(&l, sizeof l, WK_OP_LINEAR_HEADS);
    l.o.in[0] = x.id;
    l.n = n;
    l.slabs = heads;
    if (x.id) l.o.t[0] = b->tensor(b->self, name, ".weight", n, heads ? wk_width(b, x) / heads : 0, heads, WK_REQUIRED);
    return wk_append(b, &l.o);
}
/* RMS: x / sqrt(mean(x^2) + eps) * w. LAYER: (x - mean) / sqrt(variance + eps) * w + b. group: over each run of `group`
 * values with one w[group]; 0: over the row. name NULL: no weight. */
static inline wk_value wk_norm(const struct wk_builder *b, wk_value x, const char *name, uint32_t kind, uint32_t group,
                               float eps, uint32_t bias)
{
    struct wk_op_norm n;
    wk_op_init(&n, sizeof n, WK_OP_NORM);
    n.o.in[0] = x.id;
    n.kind = kind;
    n.group = group;
    n.eps = eps;
    if (name && x.id) {
        uint32_t width = group ? group : wk_width(b, x);
        n.o.t[0] = b->tensor(b->self, name, ".weight", 1, width, 1, WK_REQUIRED);
        if (bias) n.o.t[1] = b->tensor(b->self, name, ".bias", 1, width, 1, bias);
    }
    return wk_append(b, &n.o);
}
static inline wk_value wk_rms_norm(const struct wk_builder *b, wk_value x, const char *name, float eps)
{
    return wk_norm(b, x, name, WK_NORM_RMS, 0, eps, WK_NONE);
}
static inline wk_value wk_head_norm(const struct wk_builder *b, wk_value x, const char *name, uint32_t head, float eps)
{
    return wk_norm(b, x, name, WK_NORM_RMS, head, eps, WK_NONE);
}
static inline wk_value wk_layer_norm(const struct wk_builder *b, wk_value x, const char *name, float eps)
{
    return wk_norm(b, x, name, WK_NORM_LAYER, 0, eps, WK_REQUIRED);
}
/* Rotary embedding of every head of `head` values; see wk_rope_freqs and worker/rope.h. */
static inline wk_value wk_rope(const struct wk_builder *b, wk_value x, uint32_t head, const struct wk_rope_freqs *freqs)
{
    struct wk_op_rope r;
    wk_op_init(&r, sizeof r, WK_OP_ROPE);
    r.o.in[0] = x.id;
    r.head = head;
    r.freqs = freqs;
    return wk_append(b, &r.o);
}
/* Stores k and v at the position, then softmax(scale q k + mask) v. q [heads * Dk], k [kv_heads * Dk], v [kv_heads *
 * Dv] -> [heads * Dv]. v: wk_none() where it is in the key. sinks: name of a tensor [heads] with one extra logit a
 * head, or NULL. */
static inline wk_value wk_attention(const struct wk_builder *b, wk_value q, wk_value k, wk_value v, const char *sinks,
                                    const struct wk_op_attention *attn)
{
    struct wk_op_attention a = *attn;
    a.o = wk_op_head(sizeof a, WK_OP_ATTENTION);
    a.o.in[0] = q.id;
    a.o.in[1] = k.id;
    a.o.in[2] = v.id;
    if (sinks) a.o.t[0] = b->tensor(b->self, sinks, ".weight", 1, attn->heads, 1, WK_REQUIRED);
    return wk_append(b, &a.o);
}
/* The same over the keys and values that an earlier attention stored: `source` is that one's result. kv_heads, window,
 * chunk and value_in_key are the source's. */
static inline wk_value wk_attention_reuse(const struct wk_builder *b, wk_value q, wk_value source, const char *sinks,
                                          const struct wk_op_attention *attn)
{
    struct wk_op_attention a = *attn;
    a.o = wk_op_head(sizeof a, WK_OP_ATTENTION);
    a.o.in[0] = q.id;
    a.o.in[3] = source.id;
    if (sinks) a.o.t[0] = b->tensor(b->self, sinks, ".weight", 1, attn->heads, 1, WK_REQUIRED);
    return wk_append(b, &a.o);
}
/* y_t[c] = sum over i < kernel of W[c][i] x_(t - kernel + 1 + i)[c] (+ bias[c]), x being 0 before the sequence ->
 * [width of x]. W [width of x][kernel]; bias: WK_NONE, WK_REQUIRED or WK_OPTIONAL. */
static inline wk_value wk_conv(const struct wk_builder *b, wk_value x, const char *name, uint32_t kernel, uint32_t bias)
{
    struct wk_op_state s;
    wk_op_init(&s, sizeof s, WK_OP_STATE);
    s.o.in[0] = x.id;
    s.kind = WK_STATE_CONV;
    s.kernel = kernel;
    if (x.id) {
        const uint32_t width = wk_width(b, x);
        s.o.t[0] = b->tensor(b->self, name, ".weight", width, kernel, 1, WK_REQUIRED);
        if (bias) s.o.t[1] = b->tensor(b->self, name, ".bias", 1, width, 1, bias);
    }
    return wk_append(b, &s.o);
}
/* Linear attention with a state S[h] [Dv][Dk] a head, 0 before the sequence. q, k [groups * Dk], v [heads * Dv], decay
 * [heads] -> [heads * Dv]; head h has the key and query of group h / (heads / groups). In every row
 *     S[h] = exp(decay[h]) S[h] + v[h] k^T,  y[h] = S[h] q.
 * Mamba-2: q is C, k is B, v is dt x, decay is dt a. */
static inline wk_value wk_scan_op(const struct wk_builder *b, uint32_t kind, wk_value q, wk_value k, wk_value v,
                                  wk_value decay, wk_value beta, uint32_t heads, uint32_t groups)
{
    struct wk_op_state s;
    wk_op_init(&s, sizeof s, WK_OP_STATE);
    s.o.in[0] = q.id;
    s.o.in[1] = k.id;
    s.o.in[2] = v.id;
    s.o.in[3] = decay.id;
    s.o.in[4] = beta.id;
    s.kind = kind;
    s.heads = heads;
    s.groups = groups;
    return wk_append(b, &s.o);
}
static inline wk_value wk_scan(const struct wk_builder *b, wk_value q, wk_value k, wk_value v, wk_value decay,
                               uint32_t heads, uint32_t groups)
{
    return wk_scan_op(b, WK_STATE_SCAN, q, k, v, decay, wk_none(), heads, groups);
}
/* The gated delta rule, beta [heads]: S[h] = exp(decay[h]) S[h]; S[h] = S[h] + beta[h] (v[h] - S[h] k) k^T; y[h] =
 * S[h] q. */
static inline wk_value wk_delta(const struct wk_builder *b, wk_value q, wk_value k, wk_value v, wk_value decay,
                                wk_value beta, uint32_t heads, uint32_t groups)
{
    return wk_scan_op(b, WK_STATE_DELTA, q, k, v, decay, beta, heads, groups);
}
static inline wk_value wk_unary(const struct wk_builder *b, wk_value x, uint32_t fn, float p)
{
    struct wk_op_unary m;
    wk_op_init(&m, sizeof m, WK_OP_UNARY);
    m.o.in[0] = x.id;
    m.fn = fn;
    m.p = p;
    return wk_append(b, &m.o);
}
static inline wk_value wk_scale(const struct wk_builder *b, wk_value x, float p)
{
    return wk_unary(b, x, WK_UNARY_SCALE, p);
}
static inline wk_value wk_softcap(const struct wk_builder *b, wk_value x, float cap)
{
    return wk_unary(b, x, WK_UNARY_SOFTCAP, cap);
}
static inline wk_value wk_gelu_tanh(const struct wk_builder *b, wk_value x)
{
    return wk_unary(b, x, WK_UNARY_GELU_TANH, 0.0f);
}

/* act(g) * u; CLAMP: g = min(g, limit), u = clamp(u, -limit, limit), g * sigmoid(alpha g) * (u + 1). */
static inline wk_value wk_glu_op(const struct wk_builder *b, uint32_t fn, wk_value g, wk_value u, float alpha,
                                 float limit)
{
    struct wk_op_glu o;
    wk_op_init(&o, sizeof o, WK_OP_GLU);
    o.o.in[0] = g.id;
    o.o.in[1] = u.id;
    o.fn = fn;
    o.alpha = alpha;
    o.limit = limit;
    return wk_append(b, &o.o);
}
static inline wk_value wk_glu(const struct wk_builder *b, uint32_t fn, wk_value g, wk_value u)
{
    return wk_glu_op(b, fn, g, u, 0.0f, 0.0f);
}

static inline wk_value wk_binary(const struct wk_builder *b, uint16_t kind, wk_value x, wk_value y)
{
    struct wk_op o;
    wk_op_init(&o, sizeof o, kind);
    o.in[0] = x.id;
    o.in[1] = y.id;
    return wk_append(b, &o);
}
static inline wk_value wk_add(const struct wk_builder *b, wk_value x, wk_value y)
{
    return wk_binary(b, WK_OP_ADD, x, y);
}
/* Every value of y multiplies a run of (width of x / width of y) values of x. One of them may have 1 slot where the
 * other has k: it is then repeated. */
static inline wk_value wk_mul(const struct wk_builder *b, wk_value x, wk_value y)
{
    return wk_binary(b, WK_OP_MUL, x, y);
}
/* Columns [first, first + n) of each of `groups` equal parts of x -> [groups * n]. */
static inline wk_value wk_slice_groups(const struct wk_builder *b, wk_value x, uint32_t groups, uint32_t first,
                                       uint32_t n)
{
    struct wk_op_slice c;
    wk_op_init(&c, sizeof c, WK_OP_SLICE);
    c.o.in[0] = x.id;
    c.first = first;
    c.n = n;
    c.groups = groups;
    return wk_append(b, &c.o);
}
/* Columns [first, first + n). */
static inline wk_value wk_slice(const struct wk_builder *b, wk_value x, uint32_t first, uint32_t n)
{
    return wk_slice_groups(b, x, 0, first, n);
}
/* x [groups * n_x] and y [groups * n_y], or [n_y] if bit 1 of `repeated` is set (bit 0: x) -> for each group its part
 * of x, then its part of y. */
static inline wk_value wk_concat_groups(const struct wk_builder *b, wk_value x, wk_value y, uint32_t groups,
                                        uint32_t repeated)
{
    struct wk_op_concat c;
    wk_op_init(&c, sizeof c, WK_OP_CONCAT);
    c.o.in[0] = x.id;
    c.o.in[1] = y.id;
    c.groups = groups;
    c.repeated = repeated;
    return wk_append(b, &c.o);
}
/* x, then y. */
static inline wk_value wk_concat(const struct wk_builder *b, wk_value x, wk_value y)
{
    return wk_concat_groups(b, x, y, 0, 0);
}
/* The best of r [experts], largest first, ties to the lowest index -> k slots of [1]: their weights; the ids travel
 * along. bias: complete name of the selection bias, or NULL. See struct wk_op_route. */
static inline wk_value wk_route_op(const struct wk_builder *b, wk_value r, const char *bias,
                                   const struct wk_op_route *route)
{
    struct wk_op_route o = *route;
    o.o = wk_op_head(sizeof o, WK_OP_ROUTE);
    o.o.in[0] = r.id;
    if (bias && r.id) o.o.t[0] = b->tensor(b->self, bias, "", 1, wk_width(b, r), 1, WK_REQUIRED);
    return wk_append(b, &o.o);
}
static inline wk_value wk_route(const struct wk_builder *b, wk_value r, uint32_t k, uint32_t score, uint32_t flags,
                                float scale)
{
    struct wk_op_route o;
    memset(&o, 0, sizeof o);
    o.k = k;
    o.score = score;
    o.flags = flags;
    o.scale = scale;
    return wk_route_op(b, r, NULL, &o);
}
/* y[s] = W[e_s] x[s] + b[e_s] for the slots of `route`; x has 1 or k slots; W [n_expert][n][width of x]. */
static inline wk_value wk_expert(const struct wk_builder *b, wk_value x, wk_value route, const char *name,
                                 uint32_t n_expert, uint32_t n, uint32_t bias)
{
    struct wk_op_linear l;
    wk_op_init(&l, sizeof l, WK_OP_EXPERT);
    l.o.in[0] = x.id;
    l.o.in[1] = route.id;
    l.n = n;
    l.slabs = n_expert;
    if (x.id) {
        l.o.t[0] = b->tensor(b->self, name, ".weight", n, wk_width(b, x), n_expert, WK_REQUIRED);
        if (bias) l.o.t[1] = b->tensor(b->self, name, ".bias", n_expert, n, 1, bias);
    }
    return wk_append(b, &l.o);
}
/* sum over slots, in order, of weight_s * y[s] -> one slot. route: wk_none() where every weight is 1. */
static inline wk_value wk_combine(const struct wk_builder *b, wk_value y, wk_value route)
{
    return wk_binary(b, WK_OP_COMBINE, y, route);
}

/* One row a sequence, over the prompt's rows in position order. */
static inline wk_value wk_pool(const struct wk_builder *b, wk_value x, uint32_t how)
{
    struct wk_op_pool p;
    wk_op_init(&p, sizeof p, WK_OP_POOL);
    p.o.in[0] = x.id;
    p.how = how;
    return wk_append(b, &p.o);
}
static inline void wk_output(const struct wk_builder *b, wk_value x, uint32_t what, uint32_t flags)
{
    struct wk_op_output o;
    wk_op_init(&o, sizeof o, WK_OP_OUTPUT);
    o.o.in[0] = x.id;
    o.what = what;
    o.flags = flags;
    (void)wk_append(b, &o.o);
}
static inline void wk_logits(const struct wk_builder *b, wk_value x) { wk_output(b, x, WK_OUTPUT_LOGITS, 0); }
static inline void wk_embedding(const struct wk_builder *b, wk_value x, uint32_t flags)
{
    wk_output(b, x, WK_OUTPUT_EMBEDDING, flags);
}

/* in: [n_in <= 8]; tensors: [n_tensors <= 8], or NULL; params: copied. */
static inline wk_value wk_custom(const struct wk_builder *b, const struct wk_custom_def *def, const wk_value *in,
                                 uint32_t n_in, const struct wk_custom_tensor *tensors, uint32_t n_tensors,
                                 const void *params, uint32_t params_bytes)
{
    struct wk_op_custom c;
    if (n_in > 8 || n_tensors > 8) {
        wk_refuse(b, "custom: at most 8 inputs and 8 tensors");
        return wk_none();
    }
    wk_op_init(&c, sizeof c, WK_OP_CUSTOM);
    for (uint32_t i = 0; i < n_in; i++) {
        if (!in[i].id) return wk_none(); /* has failed before */
        c.o.in[i] = in[i].id;
    }
    for (uint32_t i = 0; i < n_tensors; i++)
        c.o.t[i] = b->tensor(b->self, tensors[i].name, "", tensors[i].rows, tensors[i].cols, 1, WK_REQUIRED);
    c.def = def;
    c.params = params;
    c.params_bytes = params_bytes;
    return wk_append(b, &c.o);
}

/* ---- metadata and the plugin's own struct -------------------------------------------------------------- */

enum { WK_KEY_U32 = 1, WK_KEY_F32 = 2, WK_KEY_TEXT = 3, WK_KEY_BOOL = 4 };
enum {
    WK_KEY_REQUIRED = 1u << 0,
    WK_KEY_ABSOLUTE = 1u << 1,  /* name is complete, not below "<architecture>."; not one of "tokenizer." */
    WK_KEY_PER_LAYER = 1u << 2, /* may be an array with an element for each layer (block_count); all equal */
    WK_KEY_VARIES = 1u << 3,    /* with PER_LAYER: elements may differ, open() reads them all */
    WK_KEY_ARRAY = 1u << 4 /* not with these two, not TEXT: an array of 0 to WK_KEY_ARRAY_MAX elements, or one value,
                              which counts as an array of one; wk_meta_numbers reads them */
};
#define WK_KEY_ARRAY_MAX 65536u
#define WK_KEY_NOT_FOR(i) (1u << (16 + (i))) /* the plugin's architecture names[i], i below 16, has no such key */

/* One metadata key that the plugin reads. The host checks type, range and number of elements before open() runs. Any
 * integer type in the file will do for U32, of a VARIES key a bool, too. Of min and max that are equal the file is
 * told that this value alone is served: a key that changes nothing as long as it has this value stands here so. Range
 * and type hold for each element of an array. */
struct wk_key {
    const char *name; /* "attention.head_count": below the architecture's name */
    uint32_t type, flags;
    double min, max;       /* inclusive; U32, F32 and BOOL */
    double default_number; /* when absent and not required; may lie outside of the range: "absent" as a number */
};
struct wk_key_value {
    double number;    /* U32, F32, BOOL; the default when absent or an empty array; of an array the first element */
    const char *text; /* TEXT: terminated, host's, valid during open; "" when absent */
    uint32_t present;
    uint32_t count;        /* elements of an array; 0: none, or one value, not of an ARRAY key */
    const double *numbers; /* [count], host's, valid during open; NULL where count is 0 */
};

/* What open() sees of the file; valid during open alone. */
struct wk_meta {
    uint32_t struct_size, n_values;
    const char *architecture; /* value of general.architecture */
    const void *values;       /* [n_values] of struct wk_key_value, value_size apart: wk_meta_value */
    uint32_t value_size, reserved;
    const struct wk_host *host; /* options, log */
    void *self;
    /* Shape of a tensor as rows x cols x depth; 1: present, 0: absent. Any of the outputs may be NULL. */
    uint32_t (*tensor)(void *self, const char *full_name, uint32_t *rows, uint32_t *cols, uint32_t *depth);
};

/* What the file has for key number i of the plugin's table. */
static inline const struct wk_key_value *wk_meta_value(const struct wk_meta *m, uint32_t i)
{
    return (const struct wk_key_value *)(const void *)((const char *)m->values + (size_t)i * m->value_size);
}
static inline double wk_meta_number(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->number; }
static inline uint32_t wk_meta_u32(const struct wk_meta *m, uint32_t i) { return (uint32_t)wk_meta_number(m, i); }
static inline const char *wk_meta_text(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->text; }
/* Elements of an array: [*count], valid during open. *count 0: the file has none, or one value of a PER_LAYER key,
 * which is wk_meta_number. */
static inline const double *wk_meta_numbers(const struct wk_meta *m, uint32_t i, uint32_t *count)
{
    *count = wk_meta_value(m, i)->count;
    return wk_meta_value(m, i)->numbers;
}
static inline int wk_meta_has(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->present != 0; }

struct wk_alias {
    const char *file_name, *name;
}; /* last parts: "attn_out" in the file means "attn_output"; "ffn_gate.#" means "ffn_gate_exps", whose matrices are
      tensors of their own, numbered from 0 */

struct wk_arch {
    uint32_t struct_size, flags; /* flags: 0 */
    const char *const *names;    /* [n_names] values of general.architecture */
    uint32_t n_names, reserved_names;
    const struct wk_key *keys; /* [n_keys], key_size apart */
    uint32_t n_keys, key_size;
    const struct wk_alias *aliases; /* [n_aliases], alias_size apart; or NULL */
    uint32_t n_aliases, alias_size;
    const char *const *ignored; /* [n_ignored] full tensor names, or prefixes ending in '*', that the file may have and
                                   nothing reads */
    uint32_t n_ignored, reserved_ignored;
    /* [n_ignored_keys] below the architecture's name, or prefixes ending in '*': keys that a file may have and that
     * change nothing. One that stands neither here nor in `keys` refuses the file. */
    const char *const *ignored_keys;
    uint32_t n_ignored_keys, reserved_ignored_keys;
    /* These three: [serialised, any one thread], of all models of a process; nothing comes between an open and its
     * close. A service plans models beside the one that it serves, so they are called again at any time.
     * Checks relations between keys and fills *model, which close() frees. On failure
     * *model is not used. */
    wk_status (*open)(const struct wk_meta *meta, void **model, const struct wk_err *err);
    void (*record)(const struct wk_builder *b, const void *model); /* no allocation that outlives it */
    void (*close)(void *model);
};

/* Fields of struct wk_arch for an array of each kind, in a designated initializer: WK_ARCH_NAMES(names), ... */
#define WK_COUNT_OF(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define WK_ARCH_NAMES(array) .names = (array), .n_names = WK_COUNT_OF(array)
#define WK_ARCH_KEYS(array) .keys = (array), .n_keys = WK_COUNT_OF(array), .key_size = sizeof((array)[0])
#define WK_ARCH_ALIASES(array) .aliases = (array), .n_aliases = WK_COUNT_OF(array), .alias_size = sizeof((array)[0])
#define WK_ARCH_IGNORED(array) .ignored = (array), .n_ignored = WK_COUNT_OF(array)
#define WK_ARCH_IGNORED_KEYS(array) .ignored_keys = (array), .n_ignored_keys = WK_COUNT_OF(array)

#define WK_KEY_SIZE_1_0 WK_SIZE_TO(struct wk_key, default_number)
#define WK_ALIAS_SIZE_1_0 WK_SIZE_TO(struct wk_alias, name)
#define WK_ARCH_SIZE_1_0 WK_SIZE_TO(struct wk_arch, close)

#ifdef __cplusplus
}
#endif
#endif
