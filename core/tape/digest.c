/* digest.c: SHA-256 over what a tape computes: operations in canonical form, shapes, and every number in them, in one
 * fixed byte order. Names of values, fusion, buffers and tensor types do not enter: they change nothing that the
 * operations mean. */
#include <string.h>

#include "base/sha256.h"
#include "tape/internal.h"

static void put_u64(struct sha256 *s, uint64_t x)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(x >> (8 * i));
    sha256_update(s, bytes, sizeof bytes);
}
static void put_f32(struct sha256 *s, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_u64(s, bits);
}
static void put_f64(struct sha256 *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_u64(s, bits);
}
static void put_text(struct sha256 *s, const char *text)
{
    put_u64(s, strlen(text));
    sha256_update(s, text, strlen(text));
}

static void put_fields(struct sha256 *s, const struct tape_op *o)
{
    switch (o->kind) {
    case WK_OP_EMBED: put_u64(s, o->u.embed.index), put_u64(s, o->u.embed.offset); break;
    case WK_OP_LINEAR:
    case WK_OP_EXPERT:
    case WK_OP_LINEAR_HEADS:
        put_u64(s, o->u.linear.first), put_u64(s, o->u.linear.n), put_u64(s, o->u.linear.slabs);
        break;
    case WK_OP_NORM: put_u64(s, o->u.norm.kind), put_u64(s, o->u.norm.group), put_f32(s, o->u.norm.eps); break;
    case WK_OP_ROPE:
        put_u64(s, o->u.rope.head), put_u64(s, o->u.rope.style), put_u64(s, o->u.rope.n), put_f64(s, o->u.rope.mscale);
        put_f64(s, o->u.rope.temperature), put_u64(s, o->u.rope.temperature_length);
        for (uint32_t i = 0; i < o->u.rope.n; i++) put_f64(s, o->u.rope.freq[i]);
        break;
    case WK_OP_ATTENTION:
        put_u64(s, o->u.attn.heads), put_u64(s, o->u.attn.kv_heads), put_u64(s, o->u.attn.head_k),
            put_u64(s, o->u.attn.head_v);
        put_f32(s, o->u.attn.scale), put_f32(s, o->u.attn.softcap), put_u64(s, o->u.attn.window);
        put_u64(s, o->u.attn.chunk), put_u64(s, o->u.attn.flags), put_u64(s, o->u.attn.value_in_key);
        put_u64(s, o->u.attn.kv_layer);
        for (uint32_t h = 0; o->u.attn.slopes && h < o->u.attn.heads; h++) put_f32(s, o->u.attn.slopes[h]);
        break;
    case WK_OP_UNARY: put_u64(s, o->u.unary.fn), put_f32(s, o->u.unary.p); break;
    case WK_OP_GLU: put_u64(s, o->u.glu.fn), put_f32(s, o->u.glu.alpha), put_f32(s, o->u.glu.limit); break;
    case WK_OP_SLICE: put_u64(s, o->u.slice.first), put_u64(s, o->u.slice.n), put_u64(s, o->u.slice.groups); break;
    case WK_OP_CONCAT: put_u64(s, o->u.concat.groups), put_u64(s, o->u.concat.repeated); break;
    case WK_OP_STATE:
        put_u64(s, o->u.state.kind), put_u64(s, o->u.state.kernel), put_u64(s, o->u.state.heads),
            put_u64(s, o->u.state.groups);
        break;
    case WK_OP_ROUTE:
        put_u64(s, o->u.route.k), put_u64(s, o->u.route.score), put_f32(s, o->u.route.scale);
        put_u64(s, o->u.route.flags), put_u64(s, o->u.route.groups), put_u64(s, o->u.route.groups_used),
            put_u64(s, o->u.route.group_score);
        break;
    case WK_OP_POOL: put_u64(s, o->u.pool.how); break;
    case WK_OP_OUTPUT: put_u64(s, o->u.output.what), put_u64(s, o->u.output.flags); break;
    case WK_OP_CUSTOM:
        put_text(s, o->u.custom.def->name);
        put_u64(s, o->u.custom.params_bytes);
        sha256_update(s, o->u.custom.params, o->u.custom.params_bytes);
        break;
    default: break; /* ADD, MUL, COMBINE and VECTOR have inputs and tensors alone */
    }
}

void tape_digest(const struct tape_program *p, char hex[65])
{
    struct sha256 *s = sha256_begin();
    hex[0] = '\0';
    if (!s) return;
    put_text(s, "worker tape 1");
    put_text(s, p->architecture);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *o = &p->ops[i];
        put_u64(s, o->kind);
        put_u64(s, o->out == TAPE_NONE ? 0 : p->values[o->out].width);
        for (int k = 0; k < TAPE_IN; k++) put_u64(s, o->in[k]);
        for (int k = 0; k < TAPE_IN; k++) {
            const struct tape_tensor *t = o->t[k] == TAPE_NONE ? NULL : &p->tensors[o->t[k]];
            put_text(s, t ? t->name : "");
            put_u64(s, t ? t->rows : 0), put_u64(s, t ? t->cols : 0), put_u64(s, t ? t->slabs : 0);
        }
        put_fields(s, o);
    }
    (void)sha256_end(s, hex);
}
