/* product.h: what the files of products share: how rows lie before and after a product, and one way to enqueue each
 * kind. Included by them, by stages.c, which chooses between them, and by edges.c.
 *
 *   product_decode.c   the decode path: rows of class few, logits rows of prompts, and what the others do not serve
 *   product_prefill.c  the prefill path of dense products: rows of class many
 *   product_experts.c  the prefill path of experts; routers and routes
 *
 * Each file calls those above it alone. Everything here enqueues on the executor's stream, from its one thread; a
 * failed launch is told in err. */
#ifndef CORE_DEVICE_CUDA_PRODUCT_H
#define CORE_DEVICE_CUDA_PRODUCT_H

#include "device/cuda/executor.h"

/* The input as it lies before a product: acts, or F32 rows with their partials. */
struct product_input {
    struct wk_cuda_input in;
    uint32_t k; /* values of an item */
};
/* Results of one segment or of the stage. */
struct product_output {
    struct wk_cuda_output out;
    uint32_t n; /* values of an item */
};

static inline uint32_t cuda_norm_kind(const struct cuda_product_stage *p)
{
    return p->norm ? 1 + p->norm->u.norm.kind : CUDA_NORM_NONE;
}

/* ---- product_decode.c ------------------------------------------------------------------------------------- */

/* Rows [first, first + rows) of the stage as input of products. Picked rows stay where they are wherever that is
 * possible. */
wk_status cuda_product_input(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             uint32_t first, uint32_t rows, struct product_input *i, const struct wk_err *err);
/* Items of n values where a value lies, F32 rows of their own at y, and where the results of a stage without own
 * outputs go: its value, or the logits from the first row of the chunk on. */
struct product_output cuda_value_output(const struct cuda_value *v, const struct run *r, uint32_t n);
struct product_output cuda_plain_output(float *y, uint32_t n);
struct product_output cuda_stage_output(const struct executor *x, const struct cuda_product_stage *p,
                                        const struct run *r);
/* May one call take the two segments of a gated activation? */
bool cuda_glu_together(const struct cuda_product_stage *p);

/* What the calls of a module have in common that take segments [first_seg, first_seg + n_seg) of a stage. */
struct product_call {
    uint32_t first_seg, n_seg;
    bool epilogue;                /* glu, maps and residual inside */
    struct product_output out[4]; /* [n_seg] */
    uint32_t out_group;           /* results that are panels: their order of k */
};
/* `items` items of them, as many calls as that takes. */
wk_status cuda_product_calls(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             const struct product_input *i, const struct product_call *c, uint32_t items,
                             const struct wk_err *err);
/* Bias of the segments, glu or maps, residual: on results that lie in a and, for glu, in b (else NULL). */
wk_status cuda_product_finish(struct executor *x, const struct cuda_product_stage *p, const struct product_output *a,
                              const struct product_output *b, bool with_bias, uint32_t first, uint32_t rows,
                              const struct product_output *to, const struct wk_err *err);
/* A stage whose segments have one result, and segments [first_seg, first_seg + n_seg) with a result each. */
wk_status cuda_decode_joined(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                             const struct product_input *i, uint32_t first, uint32_t rows, const struct wk_err *err);
wk_status cuda_decode_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               const struct product_input *i, uint32_t first_seg, uint32_t n_seg, uint32_t rows,
                               const struct wk_err *err);

/* ---- product_prefill.c ------------------------------------------------------------------------------------ */

/* As the two above, of all rows of prompts; a matrix that f16 would round only in the second. */
wk_status cuda_prefill_joined(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                              const struct product_input *i, uint32_t rows, const struct wk_err *err);
wk_status cuda_prefill_siblings(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                                const struct product_input *i, uint32_t rows, const struct wk_err *err);

/* attend reads q, k and v of prompts where the stage's product leaves them, side by side (LAYOUT_COLUMNS). */
void cuda_attend_columns(const struct executor *x, const struct cuda_product_stage *p, struct cuda_attend *a);

/* ---- product_experts.c --------------------------------------------------------------------------------- */

/* The order of k of the panels that all segments read; 0: there is none. */
uint32_t cuda_common_panels(const struct cuda_product_stage *p);
/* A stage with large products, of all rows of prompts. */
wk_status cuda_prefill_experts(struct executor *x, const struct cuda_product_stage *p, const struct run *r,
                               uint32_t rows, const struct wk_err *err);
/* A router of the stage; c: where its logits go, and the route behind it, if it makes one. */
wk_status cuda_enqueue_router(struct executor *x, const struct cuda_product_stage *p,
                              const struct cuda_router_segment *g, const struct run *r, uint32_t rows,
                              struct cuda_router *c, const struct wk_err *err);
/* The route of such rows, but for their number and logits; then one behind its router. */
struct cuda_route cuda_route_call(const struct executor *x, const struct cuda_choice *c, enum tape_rows rows);
wk_status cuda_enqueue_route(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t rows,
                             const struct wk_err *err);

#endif
