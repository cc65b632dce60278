/* kernels.h: the launches of the CUDA executor that know no format: rows, attention, large products, sampling. C on
 * this side.
 *
 * Every function only enqueues on `stream` (a cudaStream_t): no allocation, no synchronisation, capturable unless it
 * says otherwise. They check shapes first and ask cudaGetLastError after the launch; the text names the launch.
 * Activations ("act") and partials are those of worker/quant_cuda.h.
 *
 * A call's struct is the caller's and is read until the function returns. What it points to is device memory of the
 * caller's, unless said otherwise, and stays until the launch has ended; rows are 256-byte aligned at the start of a
 * buffer. Widths, strides and counts are in values, strides of F32 rows so in floats. One thread at a time calls for a
 * stream. pdl, of every call: see below.
 *
 * Kernels take part in programmatic dependent launch when `pdl` is set, as in every run (rules:
 * worker/cuda/part/act.cuh). */
#ifndef CORE_DEVICE_CUDA_KERNELS_H
#define CORE_DEVICE_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>
#include <worker/quant_cuda.h>

#include "device/device.h"
#include "sample/sample.h"
#include "tape/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a step's rows are, on the device -------------------------------------------------------------
 *
 * Arrays of fixed address; their contents are sent ahead of each step. A row whose seq is CUDA_PADDING fills a bucket:
 * it is computed, stores no key or value, and nobody looks at its result. */
enum { CUDA_PADDING = -1 };
struct cuda_seq {         /* on the device */
    uint32_t row, n_rows; /* rows [row, row + n_rows) of the batch; n_rows 0: padding */
    uint32_t position;    /* of its first row */
    uint32_t slot;        /* sampler slot */
};
/* Of WK_CUDA_FEW sequences: what every block of attention would otherwise look at each of them for. Splits: runs of
 * CUDA_SPLIT positions, from position 0 on. */
enum { CUDA_SPLIT = 8 * KV_PAGE };
struct cuda_lengths {
    uint32_t rows, longest; /* most rows that one has; the largest position of a newest row */
    uint32_t pages, splits; /* up to each one's newest row, in all */
};
static inline void cuda_lengths_add(struct cuda_lengths *l, const struct cuda_seq *s)
{
    if (!s->n_rows) return;
    const uint32_t newest = s->position + s->n_rows - 1;
    l->rows = l->rows < s->n_rows ? s->n_rows : l->rows;
    l->longest = l->longest < newest ? newest : l->longest;
    l->pages += newest / KV_PAGE + 1;
    l->splits += newest / CUDA_SPLIT + 1;
}
struct cuda_batch {
    uint32_t rows, seqs;                    /* rows and sequences launched for (buckets) */
    const uint32_t *token;                  /* [rows]; TOKEN_LAST was replaced by then */
    const uint32_t *position;               /* [rows] of its sequence, from 0 on */
    const int32_t *row_seq;                 /* [rows] index in seq; CUDA_PADDING: none */
    const struct cuda_seq *seq;             /* [seqs] */
    const struct cuda_lengths *lengths;     /* [seqs / WK_CUDA_FEW, rounded up] of each so many of them */
    const uint32_t *pages[TAPE_MAX_GROUPS]; /* group g: [seqs][page_stride[g]] */
    uint32_t page_stride[TAPE_MAX_GROUPS];  /* entries of a table */
};

/* ---- rows.cu: everything that computes a row from its own row ------------------------------------------ */

enum { CUDA_NORM_NONE = 0, CUDA_NORM_RMS = 1 + WK_NORM_RMS, CUDA_NORM_LAYER = 1 + WK_NORM_LAYER };

struct cuda_rows {
    const float *x;        /* row i at x + (index ? index[i] : i) * stride; NULL: none */
    uint64_t stride;       /* floats from a row to the next; 0: all rows are one */
    const uint32_t *index; /* [rows] or NULL */
};

/* Whole-row norm (or none) and conversion: F32 rows to acts of `shift`. The same bits as a product's RMS prologue. */
struct cuda_convert {
    bool pdl;
    uint32_t rows, width, norm; /* norm: CUDA_NORM_* */
    float eps;                  /* of the norm */
    uint32_t shift;             /* acts are 2^-shift of the values */
    struct cuda_rows x;         /* [rows][width] */
    const float *part;  /* partials of x, at the same rows (by index too); NULL: the kernel makes them itself, in the
                           same order */
    const float *w, *b; /* [width] or NULL */
    void *act;          /* out: rows, or by runs (quant_cuda.h); NULL with y: not wanted */
    bool by_runs;       /* how the act lies */
    float *y;           /* out in F32 as well: [rows][y_stride]; NULL: not wanted */
    uint64_t y_stride;
};
wk_status cuda_convert(const struct cuda_convert *c, void *stream, const struct wk_err *err);

/* One operation by itself (LAUNCH_ALONE, NORM_ADD): F32 in, F32 out, with partials when part is not NULL. kind:
 * WK_OP_NORM (rows or heads of `group`), WK_OP_ROPE, WK_OP_UNARY, WK_OP_GLU, WK_OP_ADD, WK_OP_MUL, WK_OP_SLICE,
 * WK_OP_CONCAT. slots are rows of their own (rows counts them; of MUL an input of one slot is repeated). An input of
 * stride 0 is the same for all rows. x_route: a route's weights, of MUL alone: slots of one value in one row. y may be
 * an input where each value is made of the same values of the inputs: not for SLICE, CONCAT and ROPE. Norms by groups
 * leave no partials. */
struct cuda_alone {
    bool pdl;
    const struct tape_op *op;                           /* host memory: what is computed */
    uint32_t rows, width;                               /* of the result */
    struct cuda_rows x[TAPE_IN];                        /* inputs in the operation's order; x NULL: there is none */
    uint32_t x_width[TAPE_IN], x_slots[TAPE_IN], slots; /* values of a slot of each; slots of a row of each; of the
                                                           result */
    bool x_route[TAPE_IN];                              /* it is a route's weights */
    const float *w, *b, *rope_table; /* [width] of a norm, or NULL; RoPE table: [rows / slots][n][2] */
    struct cuda_rows residual;       /* x NULL: none; added last */
    float *y;                        /* out: [rows][y_stride] */
    uint64_t y_stride;
    float *part; /* out: partials of y; NULL: not wanted */
};
wk_status cuda_alone(const struct cuda_alone *a, void *stream, const struct wk_err *err);

/* After a large product: y = (x [+ bias]) -> glu of two or maps -> + residual -> F32 (+ partials) or act. In place
 * allowed for F32. */
struct cuda_finish {
    bool pdl;
    uint32_t rows, width;
    const float *x, *u; /* [rows][stride]; u: second input of glu, else NULL */
    uint64_t x_stride, u_stride;
    const float *bias, *u_bias; /* [width] of x and u; NULL: none */
    uint32_t glu;               /* WK_GLU_*; 0: none */
    float alpha, limit;         /* of glu */
    struct {
        uint32_t fn; /* WK_UNARY_*; 0: none, nor any behind it */
        float p;     /* its parameter */
    } map[4];
    struct cuda_rows residual; /* x NULL: none */
    struct wk_cuda_output out; /* F32 rows with partials, or acts */
};
wk_status cuda_finish(const struct cuda_finish *f, void *stream, const struct wk_err *err);

/* Mixture of experts. logits: F32 rows [experts]; choice and weights as struct wk_op_route says; n_groups 0: one;
 * out: route rows: k weights F32, then k ids (uint32). groups: out: the
 * rows' items by expert (wk_cuda_group_words), but for rows of row_seq CUDA_PADDING (row_seq NULL: none is), which then
 * no product computes; NULL: not wanted. With groups, ticket: a word of the caller's, 0 before and after. */
struct cuda_route {
    bool pdl;
    uint32_t rows, experts, k, score;            /* k: chosen of a row; score: WK_SCORE_* */
    float scale;                                 /* factor of the weights */
    bool normalize;                              /* weights of a row are divided by their sum before */
    uint32_t n_groups, groups_used, group_score; /* of experts; groups that a row uses; WK_GROUP_* */
    const float *bias;                           /* [experts] of the choice, or NULL */
    struct cuda_rows logits;                     /* [rows][experts] */
    void *out;                                   /* out: [rows][out_stride] words */
    uint64_t out_stride;                         /* words of 4 bytes */
    uint32_t *groups, *ticket;                   /* out: see above; a word */
    const int32_t *row_seq;                      /* [rows] or NULL */
};
/* Is the choice that of the largest logits, and are the weights a softmax? cuda_router makes no other route. */
static inline bool cuda_route_plain(const struct cuda_route *r)
{
    return r->score != WK_SCORE_SIGMOID && !r->bias && !r->n_groups;
}
wk_status cuda_route(const struct cuda_route *r, void *stream, const struct wk_err *err);
/* The choice that a product by heads makes: ids [heads] = 0, 1, ...; groups: the items of `rows` rows by head. */
struct cuda_heads {
    bool pdl;
    uint32_t rows, heads;
    uint32_t *ids, *groups; /* out: [heads]; wk_cuda_group_words(heads, rows * heads) words */
};
wk_status cuda_heads(const struct cuda_heads *h, void *stream, const struct wk_err *err);
/* The linear in front of a route, and the route. w: plain F32 rows [experts][k]: y = x . w (+ bias), F32 rows. A row's
 * bits do not depend on `rows`. in: what a product reads; the RMS norm's rows are left in act as well, like
 * cuda_convert's, for the experts. route.k 0: no choice; else rows, experts and logits of route are taken from here. */
struct cuda_router {
    bool pdl;
    uint32_t rows, k, experts;
    struct wk_cuda_input in; /* [rows][k] acts, or F32 rows with partials and the norm's weights */
    const float *w, *bias;   /* bias: [experts] or NULL */
    void *act;               /* RMS: out: [rows] acts of k values; NULL: not wanted */
    float *y;                /* out: [rows][y_stride] logits */
    uint64_t y_stride;
    struct cuda_route route; /* k 0: none */
};
wk_status cuda_router(const struct cuda_router *r, void *stream, const struct wk_err *err);
/* Acts of k values become panels (worker/quant_cuda.h) in the order of k of `group`: item i is row i / x_items of x.
 * groups: of all `items`. places: as many as wk_cuda_panel_places says. */
struct cuda_panels {
    uint32_t k, items, x_items, experts, group; /* values of an item; items of a row of x; order of k: 16 or 32 */
    const uint32_t *groups;                     /* wk_cuda_group_words(experts, items) words */
    const void *x;                              /* [items / x_items] acts of k values */
    void *y;                                    /* out: wk_cuda_panel_bytes(k, places) bytes */
    uint64_t places;                            /* in a panel */
};
wk_status cuda_panels(const struct cuda_panels *p, void *stream, const struct wk_err *err);
/* y = sum over s in order of weight_s * x[i * k + s] (+ residual), with partials. route NULL: all weights are 1. */
struct cuda_combine {
    bool pdl;
    uint32_t rows, width, k; /* k: summed of a row */
    const float *x;          /* [rows][k] of width values, x_stride apart */
    uint64_t x_stride;
    const void *route;         /* [rows][route_stride] words, the first k weights; NULL: all are 1 */
    uint64_t route_stride;     /* words of 4 bytes */
    struct cuda_rows residual; /* x NULL: none */
    float *y;                  /* out: [rows][y_stride] */
    uint64_t y_stride;
    float *part; /* out: partials of y; NULL: not wanted */
};
wk_status cuda_combine(const struct cuda_combine *c, void *stream, const struct wk_err *err);

/* Pooled rows: one a sequence of the batch, over all its rows in order, also those of earlier chunks. how: WK_POOL_*,
 * or 0: row i as it is. l2: then divided by its length. running [slots][width] F32, by seq.slot, lives across a
 * prompt's chunks (MEAN: the sum, FIRST: the row; else NULL). A padding sequence's row is not written. */
struct cuda_pool {
    uint32_t seqs, width, how, l2; /* l2: 0 or 1 */
    const struct cuda_seq *seq;    /* [seqs] */
    const float *x;                /* [rows of all sequences][x_stride] */
    uint64_t x_stride;
    float *running; /* see above */
    float *y;       /* out: [seqs][y_stride] */
    uint64_t y_stride;
};
wk_status cuda_pool(const struct cuda_pool *p, void *stream, const struct wk_err *err);

/* ---- state.cu: states of sequences, over all rows of a run, in order -----------------------------------
 *
 * Cache of one layer: pages of cuda_state_page_bytes follow each other, 256-byte aligned: the F32 state behind the last
 * row of its block, of a scan or delta rule [heads][slices][dk][16], zero behind a head's last column, of a convolution
 * the rows that the next row sees, oldest first: [kernel - 1][width]. A table has a page for every block that the rows
 * of the run are in and for that of the row before: of a block that has none the next one's. A row's bits do not depend
 * on how rows are cut into runs, or on other sequences. The result of a row of padding is 0. */
enum { CUDA_STATE_HEAD = 256 }; /* dk, dv: at most */
struct cuda_state {
    bool pdl;
    uint32_t kind, width, kernel;   /* WK_STATE_*; width: of the result; kernel: rows that a convolution sees */
    uint32_t heads, groups, dk, dv; /* groups: heads that share keys; values of a head's keys and of its values */
    uint32_t group, ring_pages;     /* of the page table; entries that are used in turn, 0: all */
    const struct cuda_batch *batch; /* host memory */
    const float *x[5];              /* F32 rows: as the inputs of the operation; NULL: there is none */
    uint64_t x_stride[5];
    const float *w, *b; /* convolution: [width][kernel], [width] or NULL */
    float *y;           /* out: [rows][y_stride] */
    uint64_t y_stride;
    void *cache; /* of the layer: as many pages as the tables name */
};
bool cuda_state_serves(uint32_t head_k, uint32_t head_v);
uint64_t cuda_state_page_bytes(const struct cuda_state *a); /* of kind, sizes and heads */
wk_status cuda_state(const struct cuda_state *a, void *stream, const struct wk_err *err);

/* ---- attend.cu, attend_prompt.cu: attention over all sequences of a run ---------------------------------
 *
 * Cache of one KV layer: pages of cuda_attend_page_bytes follow each other, 256-byte aligned; a page holds for every KV
 * head its K, then its V, in the layout of attend.cuh. Zeroed before first use; a page taken from another sequence may
 * hold anything. */
struct cuda_head_norm {
    const float *w, *b; /* [values of a head] or NULL */
    float eps;
    uint32_t kind; /* CUDA_NORM_* */
};
struct cuda_attend {
    bool pdl;
    const struct cuda_batch *batch;     /* host memory */
    uint32_t heads, kv_heads, dk, dv;   /* values of a head of q and k, and of v */
    float scale, softcap;               /* of scores; softcap 0: none */
    uint32_t window, group, ring_pages; /* positions that a row sees, 0: all; page table of the batch; the entry of a
                                           position is position / KV_PAGE, modulo ring_pages unless that is 0 */
    uint32_t chunk;                     /* 0, or with window 0: rows see their own chunk of so many positions alone */
    const float *slopes;                /* [heads], or NULL: * -|distance| behind scale and cap */
    bool value_in_key;                  /* values are the first dv numbers of the keys; v is NULL then */
    bool both_ways;                     /* rows see what comes after them; all rows of a sequence are in the batch */
    const float *q, *k, *v; /* [rows][stride], before head norms and rope; k and v NULL: nothing is stored */
    uint64_t q_stride, k_stride, v_stride;
    const float *q_bias, *k_bias, *v_bias; /* [heads or kv_heads of dk or dv values] added first, by cuda_attend_store
                                              alone; NULL: none */
    struct cuda_head_norm q_norm, k_norm, v_norm;
    const float *q_rope_table, *k_rope_table;                /* [rows][n][2]; NULL: no rope */
    uint32_t q_rope_n, q_rope_style, k_rope_n, k_rope_style; /* pairs of a head that are rotated; WK_ROPE_* */
    const float *sinks;                                      /* [heads] or NULL */
    void *cache;                                             /* of the layer: as many pages as the tables name */
    void *act;      /* out: [rows] acts of heads * dv, for every row of a sequence; only when dv % 16 == 0 */
    uint32_t shift; /* of the acts */
    float *out;     /* out: [rows][out_stride] when act is NULL */
    uint64_t out_stride;
    void *workspace;    /* cuda_attend_workspace bytes; nobody else's until the launch has ended */
    uint32_t *counters; /* cuda_attend_counters zeros; zero again afterwards */
};
/* Chunks, slopes, both directions: tiles of such rows have kernels of their own. */
static inline bool cuda_attend_any(const struct cuda_attend *a) { return a->chunk || a->slopes || a->both_ways; }
/* Do generated rows go by tiles, as prompts do? cuda_attend does not take them then. */
static inline bool cuda_attend_tiles(const struct cuda_attend *a)
{
    return cuda_attend_any(a) || !a->k || a->value_in_key;
}
/* Head sizes that are served; bytes of one page of one KV layer (dk, dv served). */
bool cuda_attend_serves(uint32_t dk, uint32_t dv);
uint64_t cuda_attend_page_bytes(uint32_t kv_heads, uint32_t dk, uint32_t dv);
/* Rows of class few: those of at most WK_CUDA_FEW sequences of a run, any number a sequence, few in practice (rows: of
 * the whole run); norms, rope and the store of k and v are inside. Grid, workspace and counters depend on the buckets
 * and the context (most positions of a sequence) only. Page tables, positions, seq and RoPE tables are read before
 * wk_depend, as is what earlier steps stored in the cache. Not where cuda_attend_tiles. */
uint64_t cuda_attend_workspace(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t context); /* bytes */
uint64_t cuda_attend_counters(uint32_t rows, uint32_t heads);                                              /* words */
wk_status cuda_attend(const struct cuda_attend *a, uint32_t context, void *stream, const struct wk_err *err);
/* Prompt rows: first the store (norms, rope, rounding of q into q_half, of k and v into the cache), then tiles of
 * queries against the pages; any number of rows and sequences. Always dependent launches, which read everything behind
 * wk_depend; grids follow from rows and sequences alone. q_half:
 * cuda_attend_query_bytes, 256-byte aligned. */
uint64_t cuda_attend_query_bytes(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv);
wk_status cuda_attend_store(const struct cuda_attend *a, void *q_half, void *stream, const struct wk_err *err);
wk_status cuda_attend_prompt(const struct cuda_attend *a, const void *q_half, void *stream, const struct wk_err *err);
/* Debug: scores before the softmax, F32 out [rows][heads][keys], -inf where nothing is seen; after the store of the
 * same rows. */
wk_status cuda_attend_scores(const struct cuda_attend *a, const void *q_half, uint32_t keys, float *out, void *stream,
                             const struct wk_err *err);

/* ---- attend_latent.cu: the same where values are parts of keys (value_in_key) ----------------------------
 *
 * A page holds for every KV head its K alone. First the store, then attention, for any number of rows and sequences of
 * either class; always dependent launches. */
/* Keys of up to 576 numbers, of which up to 512 are values; the sizes below are of what is served. */
bool cuda_latent_serves(uint32_t dk, uint32_t dv);
uint64_t cuda_latent_page_bytes(uint32_t kv_heads, uint32_t dk, uint32_t dv);
uint64_t cuda_latent_query_bytes(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv);
uint64_t cuda_latent_workspace(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t context); /* bytes */
/* No biases, whatever a says. */
wk_status cuda_latent_store(const struct cuda_attend *a, void *q_half, void *stream, const struct wk_err *err);
/* context: most positions of a sequence, for rows of class few, whose context is cut into splits; page tables, seq and
 * what earlier steps stored are read before wk_depend then. 0: rows of prompts; everything is read behind it. The
 * workspace is that of class few. Grids follow from rows, sequences and context alone; counters are not used. */
wk_status cuda_latent(const struct cuda_attend *a, const void *q_half, uint32_t context, void *stream,
                      const struct wk_err *err);
/* Launches every kernel that a prompt's number of rows may choose, without any work: their code comes into device
 * memory now, not with a request. */
wk_status cuda_latent_load(const struct cuda_attend *a, const void *q_half, void *stream, const struct wk_err *err);
/* As cuda_attend_scores. */
wk_status cuda_latent_scores(const struct cuda_attend *a, const void *q_half, uint32_t keys, float *out, void *stream,
                             const struct wk_err *err);

/* ---- gemm.c: products of many rows through cuBLASLt ----------------------------------------------------
 *
 * y [rows][n] F32 = x [rows][k] f16 . w [n][k] f16, times `scale` (undoes the shift of x), + c when not NULL (c may be
 * y). A row's bits do not depend on `rows`: algorithms never divide k. Matrices 16-byte aligned; w_stride and x_stride
 * multiples of 8 halves, c_stride and y_stride of 4 floats; what lies between a row's end and the next is neither read
 * nor written. */
struct cuda_gemm;
wk_status cuda_gemm_open(struct cuda_gemm **out, const struct wk_err *err);
void cuda_gemm_close(struct cuda_gemm *g); /* NULL allowed */
uint64_t cuda_gemm_workspace(void);        /* bytes, 256-byte aligned memory of the caller's */
/* Chooses the algorithms of a shape ahead of its first product, on the host alone. WK_UNSUPPORTED: there is none. */
wk_status cuda_gemm_prepare(struct cuda_gemm *g, uint32_t n, uint32_t k, const struct wk_err *err);
struct cuda_gemm_call {
    uint32_t rows, n, k;
    const void *w; /* [n][w_stride] f16 */
    uint64_t w_stride;
    const void *x; /* [rows][x_stride] f16 */
    uint64_t x_stride;
    const float *c; /* [rows][c_stride], or NULL */
    uint64_t c_stride;
    float *y; /* out: [rows][y_stride] */
    uint64_t y_stride;
    float scale;     /* of the product, not of c */
    void *workspace; /* cuda_gemm_workspace bytes */
};
wk_status cuda_gemm_run(struct cuda_gemm *g, const struct cuda_gemm_call *c, void *stream, const struct wk_err *err);
/* Runs what calls of this shape with up to c->rows rows use, once: its code comes into device memory now, not with a
 * request. What x and w hold does not matter; y is overwritten. Does nothing for a shape that it had before. */
wk_status cuda_gemm_load(struct cuda_gemm *g, const struct cuda_gemm_call *c, void *stream, const struct wk_err *err);

/* ---- sampler.cu: core/sample/sample.h, bit for bit ----------------------------------------------------- */

struct cuda_sampler; /* state of all slots, in device memory given by the host */
uint64_t cuda_sampler_bytes(uint32_t slots, uint32_t n_vocab, uint32_t rows);
wk_status cuda_sampler_open(uint32_t slots, uint32_t n_vocab, uint32_t rows, void *memory, struct cuda_sampler **out,
                            const struct wk_err *err);
void cuda_sampler_close(struct cuda_sampler *s);
/* Makes a slot ready for a new job; ordered before later work on the stream. Copies what it is given. ends: ids after
 * which the slot is finished, at most SAMPLER_MAX_ENDS. */
enum { CUDA_SAMPLER_ROWS = 256 }; /* most rows a call */
wk_status cuda_sampler_set(struct cuda_sampler *s, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                           uint32_t n_ends, void *stream, const struct wk_err *err);
/* One id for each row, appended to its slot's history, left in last[slot], and written with its serial number into the
 * mapped ring `out` (one 8-byte store). Row i of logits belongs to seq[i], whose slot no other row has. kind: the least
 * of those of the batch's slots, or a lesser one. A dependent call reads seq, serial and slots before it waits for the
 * launch before it. */
enum cuda_sample_kind {
    CUDA_SAMPLE_ANY = 0,
    CUDA_SAMPLE_PLAIN
}; /* no more than a temperature, or the best id: no bias, no penalties */
enum {
    CUDA_NO_ID = 0xfffffffe
}; /* no id can be picked from the row's logits, or could in an earlier step since cuda_sampler_set;
      UINT32_MAX: padding (seq.n_rows 0), or the slot came to an end before */
struct cuda_sampled {
    uint32_t serial, id; /* of the run; or CUDA_NO_ID, UINT32_MAX */
};
/* Masks of some of a call's rows (step 3 of sample.h). */
enum { CUDA_NO_MASK = 0xffff };
struct cuda_masks {
    const uint64_t *words;              /* on the device: masks of cuda_mask_words(n_vocab) words each */
    uint32_t stride;                    /* words of a mask */
    uint16_t of_row[CUDA_SAMPLER_ROWS]; /* index of the row's mask, CUDA_NO_MASK: all ids are allowed */
};
static inline uint32_t cuda_mask_words(uint32_t n_vocab) /* whole chunks; bits from n_vocab on are not looked at */
{
    return (n_vocab + SAMPLER_CHUNK - 1) / SAMPLER_CHUNK * (SAMPLER_CHUNK / 64);
}
struct cuda_sample {
    bool pdl;
    enum cuda_sample_kind kind;
    uint32_t rows;              /* at most CUDA_SAMPLER_ROWS */
    const struct cuda_seq *seq; /* [rows] */
    const float *logits;        /* [rows][stride] */
    uint64_t stride;
    const uint32_t *serial;         /* device word: number of this step */
    const struct cuda_masks *masks; /* host memory; NULL: no row has one */
    struct cuda_sampled
        *out; /* mapped host memory as the device sees it: [ring][rows_max], ring entry = serial % CUDA_RING */
};
enum { CUDA_RING = 8 };
wk_status cuda_sampler_run(struct cuda_sampler *s, const struct cuda_sample *c, void *stream, const struct wk_err *err);
/* Log probabilities of some rows, after they were sampled: what sampler_top of core/sample finds, bit for bit, into
 * mapped memory; the serial is written last. */
struct cuda_top {
    struct sampler_top top; /* id CUDA_NO_ID: the logits cannot be used */
    uint32_t serial;
};
struct cuda_top_row {
    uint16_t row, top; /* row of logits; how many of the best, at most SAMPLER_MAX_TOP */
    uint32_t id;       /* TOKEN_LAST: that the row's slot was given last */
};
struct cuda_top_logprobs {
    uint32_t n;                    /* 1 to CUDA_SAMPLER_ROWS */
    const struct cuda_top_row *of; /* [n], host memory */
    const struct cuda_seq *seq;    /* as of cuda_sample */
    const float *logits;           /* [rows][stride] */
    uint64_t stride;
    const uint32_t *serial; /* device word: number of this step */
    struct cuda_top *out;   /* mapped host memory as the device sees it: [ring][a_run], of row r entry first + r */
    uint32_t first, a_run;  /* first: of this call's rows; a_run: entries of a run */
};
wk_status cuda_sampler_top_logprobs(const struct cuda_sampler *s, const struct cuda_top_logprobs *c, void *stream,
                                    const struct wk_err *err);
const uint32_t *cuda_sampler_last(const struct cuda_sampler *s); /* [slots] on the device; 0 until a first id */
enum cuda_sample_kind cuda_sampler_kind(const struct sampler_params *p);
/* From now on as on devices without clusters: a test runs both ways. */
void cuda_sampler_without_clusters(struct cuda_sampler *s);

/* ---- pages.cu ------------------------------------------------------------------------------------------ */

/* Copies of at most CUDA_MOVE_BYTES each, of whole 16 bytes at multiples of 16: device memory of any GPU that this one
 * reads, or mapped memory of the host. */
enum { CUDA_MOVE_BYTES = 32 << 10 };
struct cuda_move {
    const void *from;
    void *to;
    uint64_t bytes; /* a multiple of 16, at most CUDA_MOVE_BYTES */
};
/* moves [n]: mapped memory, read when the launch runs. */
wk_status cuda_move_pages(const struct cuda_move *moves, uint32_t n, void *stream, const struct wk_err *err);

/* ---- layouts --------------------------------------------------------------------------------------------
 *
 * A C compiler and nvcc's both lay these out. The first are written by one side and read by the other in memory that
 * both see, some of them as whole words of 8 or 16 bytes; the rest are calls, of C files into CUDA C++. */

#define CUDA_LAID_OUT(type, bytes, field, at) \
    WK_STATIC_ASSERT(sizeof(struct type) == (bytes) && offsetof(struct type, field) == (at), "struct " #type)
CUDA_LAID_OUT(cuda_seq, 16, slot, 12);
CUDA_LAID_OUT(cuda_lengths, 16, splits, 12);
CUDA_LAID_OUT(cuda_sampled, 8, id, 4);
CUDA_LAID_OUT(cuda_top, 200, serial, 192);
CUDA_LAID_OUT(cuda_top_row, 8, id, 4);
CUDA_LAID_OUT(cuda_move, 24, bytes, 16);
CUDA_LAID_OUT(cuda_batch, 144, page_stride, 112);
CUDA_LAID_OUT(cuda_rows, 24, index, 16);
CUDA_LAID_OUT(cuda_convert, 104, y_stride, 96);
CUDA_LAID_OUT(cuda_alone, 368, part, 360);
CUDA_LAID_OUT(cuda_finish, 168, out, 136);
CUDA_LAID_OUT(cuda_route, 112, row_seq, 104);
CUDA_LAID_OUT(cuda_heads, 32, groups, 24);
CUDA_LAID_OUT(cuda_router, 224, route, 112);
CUDA_LAID_OUT(cuda_panels, 56, places, 48);
CUDA_LAID_OUT(cuda_combine, 96, part, 88);
CUDA_LAID_OUT(cuda_pool, 64, y_stride, 56);
CUDA_LAID_OUT(cuda_state, 168, cache, 160);
CUDA_LAID_OUT(cuda_head_norm, 24, kind, 20);
CUDA_LAID_OUT(cuda_attend, 312, counters, 304);
CUDA_LAID_OUT(cuda_masks, 528, of_row, 12);
CUDA_LAID_OUT(cuda_sample, 64, out, 56);
CUDA_LAID_OUT(cuda_top_logprobs, 64, a_run, 60);

#ifdef __cplusplus
}
#endif
#endif
