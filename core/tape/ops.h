/* ops.h: what the files share that take one recorded operation: ops.c reads the struct and keeps the table of kinds,
 * take.c and take_attention.c check shapes and numbers of each kind and copy its fields.
 *
 * A take function returns false after it has said why, in words that name the operation as its result would be called,
 * the values that it reads, and both shapes. */
#ifndef CORE_TAPE_OPS_H
#define CORE_TAPE_OPS_H

#include "tape/internal.h"

union any_op {
    struct wk_op o;
    struct wk_op_embed embed;
    struct wk_op_linear linear;
    struct wk_op_norm norm;
    struct wk_op_rope rope;
    struct wk_op_attention attention;
    struct wk_op_unary unary;
    struct wk_op_glu glu;
    struct wk_op_slice slice;
    struct wk_op_route route;
    struct wk_op_pool pool;
    struct wk_op_output output;
    struct wk_op_custom custom;
    struct wk_op_concat concat;
    struct wk_op_state state;
};

/* What take functions fill: the operation, and the name and shape of its result. */
struct draft {
    struct tape_op op;
    char name[TAPE_NAME];
    uint64_t width;
    uint32_t slots;
    bool pooled;
};

enum { ROPE_STYLES = WK_ROPE_HALF + 1 }; /* those that this host knows */

#define REFUSE(status, ...) return messages_say(b->messages, status, __VA_ARGS__), false

static inline const struct tape_value *input(const struct builder *b, const struct draft *d, int i)
{
    return &b->p->values[d->op.in[i]];
}
static inline const struct tape_tensor *weight(const struct builder *b, const struct draft *d, int i)
{
    return d->op.t[i] == TAPE_NONE ? NULL : &b->p->tensors[d->op.t[i]];
}
static inline bool is_vector(const struct builder *b, const struct tape_value *v)
{
    return b->p->ops[v->op].kind == WK_OP_VECTOR;
}
static inline const struct tape_op *producer(const struct builder *b, const struct tape_value *v)
{
    return &b->p->ops[v->op];
}

/* ---- names of results ---------------------------------------------------------------------------------- */

bool name_it(struct builder *b, struct draft *d, const char *base, bool numbered);
bool name_in_scope(struct builder *b, struct draft *d, const char *what, bool numbered); /* blk.7.what */
bool name_after_tensor(struct builder *b, struct draft *d);
bool name_after_input(struct builder *b, struct draft *d,
                      const char *what); /* x.what; if that grows too long, blk.7.what */

/* ---- checks -------------------------------------------------------------------------------------------- */

/* A struct that an operation points to, in the host's size. */
bool grown(struct builder *b, void *ours, size_t known, size_t least, const void *theirs, uint64_t size,
           const char *where, const char *what);
bool one_slot(struct builder *b, const struct draft *d, int i);
bool same_shape(struct builder *b, const struct draft *d);
bool is_route(struct builder *b, const struct draft *d, int i);
bool finite_number(struct builder *b, const struct draft *d, const char *what, double x);
/* A value inside an enumeration that grows with the ABI. */
bool known(struct builder *b, const struct draft *d, const char *what, uint32_t x, uint32_t first, uint32_t end);
/* By the table of kinds: the operation's enumerator, its flags. */
bool known_choice(struct builder *b, const struct draft *d, const union any_op *a);
bool known_flags(struct builder *b, const struct draft *d, const union any_op *a);
bool tensor_is(struct builder *b, const struct draft *d, int i, uint32_t rows, uint32_t cols, uint32_t slabs);
bool as_input(const struct builder *b, struct draft *d, int i); /* the result has input i's shape */

/* ---- one function a kind ------------------------------------------------------------------------------- */

bool take_embed(struct builder *b, const union any_op *a, struct draft *d);
bool take_linear(struct builder *b, const union any_op *a, struct draft *d);
bool take_expert(struct builder *b, const union any_op *a, struct draft *d);
bool take_linear_heads(struct builder *b, const union any_op *a, struct draft *d);
bool take_vector(struct builder *b, const union any_op *a, struct draft *d);
bool take_norm(struct builder *b, const union any_op *a, struct draft *d);
bool take_unary(struct builder *b, const union any_op *a, struct draft *d);
bool take_glu(struct builder *b, const union any_op *a, struct draft *d);
bool take_add(struct builder *b, const union any_op *a, struct draft *d);
bool take_mul(struct builder *b, const union any_op *a, struct draft *d);
bool take_slice(struct builder *b, const union any_op *a, struct draft *d);
bool take_concat(struct builder *b, const union any_op *a, struct draft *d);
bool take_route(struct builder *b, const union any_op *a, struct draft *d);
bool take_combine(struct builder *b, const union any_op *a, struct draft *d);
bool take_pool(struct builder *b, const union any_op *a, struct draft *d);
bool take_output(struct builder *b, const union any_op *a, struct draft *d);
bool take_custom(struct builder *b, const union any_op *a, struct draft *d);
/* take_attention.c: what knows positions */
bool take_rope(struct builder *b, const union any_op *a, struct draft *d);
bool take_attention(struct builder *b, const union any_op *a, struct draft *d);
bool take_state(struct builder *b, const union any_op *a, struct draft *d);

#endif
