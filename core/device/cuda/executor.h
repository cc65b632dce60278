/* executor.h: the inside of the CUDA executor, shared by its files and by nobody else.
 *
 *   prepare.cu the first kernel of every run
 *   buckets.c  lists; buckets of generated rows, and which are captured
 *   custom.c   operations of an architecture's own module
 *   plan.c     which matrices, vectors and forms of values a tape needs; the carving of all device memory, the same
 *              code for plan and open
 *   product_*  enqueue products: few rows through the plugins' kernels, prompts through expansion and the library's
 *              product, experts of prompts through the plugins' large products (product.h)
 *   edges.c    values between stages: how each lies on its way
 *   build.c    stages of a tape with every pointer resolved
 *   stages.c   enqueues a stage of any kind, and whole programs
 *   run.c      cuts a step into runs, fills their inputs
 *   graph.c    the captured programs of generated rows
 *   times.c    how long each launch of a run takes
 *   asks.c     what sampled steps may ask besides: masks, log probabilities
 *   queue.c    sampled steps;  step.c: steps with logits, taps
 *   pages.c    bytes of pages to and from the host and other processes
 *   open.c     opens and closes an executor;  module.c: device_ops and the module's one symbol
 *
 * Each of them calls functions of those above it alone.
 *
 * A step is one or more runs. A run of class few holds up to 256 generated rows (a bucket of 1, 2, 4 ... 64, 128, 192,
 * 256, filled up with padding) and is one graph launch; a run of class many holds the rows of as many prompts and is
 * launched kernel by kernel. A row's class follows its role alone. All work is on one stream, so runs follow each
 * other, and each leaves nothing but keys, values and states.
 *
 * At one row a dense layer is five launches: q|k|v with the norm in the prologue; attention with rotation and the store
 * of k and v; output projection with the residual; gate|up with the norm and the gated activation; down with the
 * residual. A layer of experts is seven: q|k|v, attention, output, router, gate|up, down, combine. With more rows a
 * norm is a launch of its own, since in a prologue every block would compute it; the module says from how many rows on
 * (norm_rows of worker/quant_cuda.h). Between launches rows are acts (f16) where only products read them, else F32 with
 * the sums of squares of each 16 values, so that a norm needs no pass over the row.
 *
 * Fields, where they do not say otherwise: widths, strides and counts are in values, sizes called bytes in bytes.
 * Pointers of values, caches and spaces are device memory in the executor's regions; lists and structs are the heap's
 * and the executor's; modules, types and operations are the plugins' and the tape's, and live longer. All is used by
 * the one thread that calls the executor. */
#ifndef CORE_DEVICE_CUDA_EXECUTOR_H
#define CORE_DEVICE_CUDA_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/arch_cuda.h>

#include "device/cuda/kernels.h"
#include "device/cuda/memory.h"
#include "device/cuda/prepare.h"
#include "device/device.h"
#include "tape/tape.h"

enum {
    RUN_ROWS = 256, /* most generated rows of a run, and most sequences of one; an executor's own most: run_rows */
    BUCKETS = 10,   /* 1 2 4 ... 64 128 192 256 rows */
    MAX_PARTS = 4,  /* tables that one embedding adds */
    ACT_SHIFT = 4   /* of results of gated activations, maps and products: 2^-4 keeps their outliers inside of f16 */
};

/* ---- what the program needs (plan.c) ------------------------------------------------------------------- */

/* Rows [first, first + n) of every slab of a tensor, as tiles. */
struct cuda_matrix {
    const struct tape_tensor *tensor;
    const struct wk_type_cuda *type;
    const struct wk_quant_cuda *module; /* whose type it is */
    uint32_t first, n;                  /* rows of a slab */
    uint32_t k, slabs, tiles;           /* values of a row; experts, 1: a plain matrix; tiles of a slab */
    uint32_t panels; /* order of k of the panels that its module's large products read; 0: it has none for it, or not on
                        this device */
    uint64_t tile_bytes;
    uint8_t *data; /* [slabs][tiles] of tile_bytes */
};

/* May prompts multiply an f16 copy of it? */
static inline bool cuda_expands(const struct cuda_matrix *m) { return m->type->expand != NULL; }

/* How a value lies in its buffer. F32: item (row * slots + slot) at data + item * stride, partials behind; ACT: f16
 * rows. */
enum value_form { VALUE_NONE = 0, VALUE_F32, VALUE_ACT };
struct cuda_value {
    enum value_form form;
    enum tape_rows rows;   /* that it is held for: the tape's, but all of them for what attention reads or gives */
    uint32_t width, slots; /* values of an item; items of a row */
    uint32_t shift;        /* of its acts, stored or made from it: they are 2^-shift of its numbers */
    uint64_t stride;       /* F32: floats */
    bool partials;         /* sums of squares for the norm that reads it lie behind the items */
    uint32_t experts;      /* its buffer has room for panels of items of so many; 0: it has not */
    uint64_t aux_offset;   /* bytes from data to partials or groups */
    uint8_t *data;         /* [rows][slots] items */
    float *aux;            /* partials; NULL: none */
    uint32_t *groups;      /* of a route: its items by expert (worker/quant_cuda.h); NULL: none */
};
static inline float *cuda_f32(const struct cuda_value *v) { return (float *)(void *)v->data; }
static inline bool cuda_all_f32(const struct cuda_value *v) { return v->form == VALUE_F32 && v->rows == ROWS_ALL; }

/* ---- stages (build.c) ---------------------------------------------------------------------------------- */

struct cuda_operand {
    const struct cuda_value *v;
    bool gather; /* row i is the value's row logits_rows[i] */
};
/* One matrix of a product; the segments' results stand side by side. */
struct cuda_segment {
    const struct cuda_matrix *m;  /* [slabs][n][k] */
    const float *bias;            /* [slabs][n]; NULL: none */
    const struct cuda_value *out; /* NULL: the launch's */
};
/* A linear whose results choose experts. */
struct cuda_router_segment {
    const float *w, *bias;        /* [n][k]; [n] or NULL */
    uint32_t n;                   /* experts */
    const struct cuda_value *out; /* NULL: a route follows in the launch */
};
struct cuda_product_stage {
    uint32_t n_seg, k, slots, n_map;       /* matrices; values of an input item; items of a row; functions of map */
    uint32_t n_routers;                    /* linears that choose experts stand here and not in seg */
    bool experts;                          /* seg are of experts, or of heads: a slab each */
    bool large;                            /* prompts go through large products */
    bool makes_groups;                     /* of heads: the first launch of a run with so many */
    struct cuda_router_segment routers[4]; /* [n_routers] */
    struct cuda_segment seg[4];            /* [n_seg] */
    struct cuda_operand x, residual;       /* [rows][k]; added to the result, v NULL: nothing */
    const struct cuda_edge *in, *choice;   /* by which x comes; by which route comes, NULL: dense, or by heads */
    const struct cuda_edge *result;     /* by which the results go, the first of several; NULL: as their values say */
    const struct cuda_value *route;     /* [rows] NULL: no experts */
    const struct cuda_value *out;       /* [rows] NULL: the step's logits, or results by segment */
    struct cuda_value by_head[2];       /* of heads: input and result, with a slot for each head */
    const struct cuda_value *padded[2]; /* of heads: the same as they lie, where between rows there is more than
                                           heads: by_head is then in f32_scratch; NULL: it is where they lie */
    const struct tape_op *norm, *glu, *map[4]; /* norm: of x before; glu, map: of the result; NULL: none */
    const float *norm_w, *norm_b;              /* [k]; NULL: none */
};
/* How a route chooses, whatever launch makes it. */
struct cuda_choice {
    const struct tape_op *op;
    const float *bias;            /* [experts] of the choice; NULL: none */
    const struct cuda_value *out; /* [rows] routes */
};
/* Router and route in one launch. */
struct cuda_route_stage {
    struct cuda_product_stage router; /* routers[0] alone */
    struct cuda_choice choice;
};
struct cuda_attend_stage {
    const struct tape_op *op;
    struct cuda_attend call, many; /* all that does not change from run to run; many: of prompts */
    const struct cuda_value *out;  /* [rows] */
    bool logits_rows_only;         /* its result is for the logits rows alone */
};
/* One part of an embedding: rows of a table. */
struct cuda_part {
    const struct cuda_matrix *m;
    const uint32_t *index; /* [rows of the run] which row of the table, among the run's inputs */
    float scale;           /* factor of its values */
};
struct cuda_row_stage { /* one operation, or a norm and a sum */
    const struct tape_op *op;
    struct cuda_operand x[TAPE_IN], residual; /* inputs in the operation's order; residual: of a norm and a sum, or of a
                                                 combine; v NULL: there is none */
    const float *vector; /* [vector_width] the second input, where that is a constant row; NULL: it is none */
    uint32_t vector_width;
    const float *w, *b,
        *rope_table; /* [width] of a norm; w: of a route, its bias; rope_table: cosines and sines of the run's rows */
    const struct cuda_value *out; /* NULL: the step's logits, or its pooled rows */
};
/* An operation of the architecture's own module. */
struct cuda_custom_stage {
    const struct tape_op *op;
    wk_status (*run)(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err); /* the plugin's */
    uint32_t n_in;
    const struct cuda_value *in[TAPE_IN], *out; /* [n_in] F32, all rows; so is out */
};
struct cuda_embed_stage {
    uint32_t n_parts;
    struct cuda_part part[MAX_PARTS]; /* [n_parts] in the order of their sum */
    const struct cuda_value *out;     /* [rows] */
};
enum cuda_stage_kind {
    STAGE_EMBED,   /* embed */
    STAGE_PRODUCT, /* product */
    STAGE_ROUTE,   /* route */
    STAGE_ATTEND,  /* attend */
    STAGE_STATE,   /* state */
    STAGE_CUSTOM,  /* custom */
    STAGE_ALONE,   /* row, and all below: one operation, or a norm and a sum */
    STAGE_CHOOSE,  /* a route by itself */
    STAGE_COMBINE, /* sum of experts' results */
    STAGE_POOL,    /* pooled rows */
    STAGE_COPY     /* logits that no product makes at its end */
};
/* One launch of the tape. */
struct cuda_stage {
    const struct tape_launch *launch; /* the program's */
    enum tape_rows rows;              /* that it computes */
    bool tapped, logits;              /* a value of it is watched; it makes the step's logits */
    enum cuda_stage_kind kind;
    union { /* by kind */
        struct cuda_embed_stage embed;
        struct cuda_product_stage product;
        struct cuda_route_stage route;
        struct cuda_attend_stage attend;
        struct cuda_state state; /* all that does not change from run to run */
        struct cuda_custom_stage custom;
        struct cuda_row_stage row;
    };
};

/* ---- edges (edges.c) ----------------------------------------------------------------------------------- */

/* Who makes and who reads a value of the tape. */
struct cuda_use {
    const struct cuda_stage *from; /* that makes it; NULL: it has no buffer, or the edges have not been found yet */
    uint32_t reads;                /* inputs of operations that it is */
    bool by_route;                 /* one of them is the logits of a route */
};
/* How a value lies on its way from one stage to the next. */
enum cuda_layout {
    LAYOUT_VALUE = 0, /* as struct cuda_value says: F32 rows or acts */
    LAYOUT_CALLS,     /* few rows: acts as panels or runs, where the calls of both stages can, else as rows */
    LAYOUT_PANELS,    /* prompts: acts as panels, from large products to large products */
    LAYOUT_COLUMNS /* prompts: q, k and v as F32 rows side by side in f32_scratch, without their biases, for attention
                    */
};
/* A value of the tape and one stage that reads it. A layout other than the value's has no other reader. */
struct cuda_edge {
    uint32_t value;                     /* of the tape */
    const struct cuda_stage *from, *to; /* that makes it, that reads it */
    enum cuda_layout layout;            /* between them */
    uint32_t group;                     /* LAYOUT_PANELS: their order of k */
    bool fused;        /* the stage in front of `to`, a route, has left the rows at x->act as `to` reads them, normed */
    bool groups_ready; /* of a route: its items by expert were there before the previous kernel of `to` ended, so that
                          `to` reads them before its dependency wait */
};
static inline enum cuda_layout cuda_layout_of(const struct cuda_edge *e) { return e ? e->layout : LAYOUT_VALUE; }

/* ---- runs ---------------------------------------------------------------------------------------------- */

enum program_kind {
    PROGRAM_LOGITS = 0,
    PROGRAM_SAMPLED,
    PROGRAM_PLAIN,
    PROGRAM_PAIR,
    PROGRAM_KINDS
}; /* from PROGRAM_SAMPLED on: enum cuda_sample_kind; PAIR, of graphs: two PLAIN, the second behind the first */

struct run {
    bool few;                               /* generated rows, at most run_rows; else prompts */
    bool behind;                            /* enqueued with the run before: its inputs were there when that began */
    uint32_t serial;                        /* runs are counted, from 1; the count may wrap */
    uint32_t rows, seqs;                    /* launched for: a bucket, or as many as there are */
    uint32_t n_rows, n_seqs, n_logits_rows; /* that somebody asked for */
    uint32_t n_sampled;        /* of a sampled run's logits rows the first; the others' log probabilities are
                                  asked for */
    uint32_t seq_of[RUN_ROWS]; /* index in the step */
    uint32_t *row_of;          /* [max rows] index in the step */
    uint32_t *logits_row_of;   /* [max rows] of a logits row: index in the step's logits rows; in a sampled run: in its
                                  sequences */
    uint32_t *ask_of;          /* [max rows] of a logits row: index in the step's logits rows */
};

/* A submitted run that has not been seen to end. */
struct run_record {
    bool few;
    uint32_t step, n_sampled, seq_of[RUN_ROWS]; /* step: place in pending, UINT32_MAX: nobody waits for it */
    uint32_t n_top_logprobs;                    /* of top */
    struct run_top {
        uint32_t logits_row, ask, seq; /* index in the run's logits rows; in the step's, and in its sequences */
    } *top;                            /* [max_logits_rows] rows whose log probabilities are asked for */
};
/* A submitted step that has not been collected; lists are the executor's. */
struct pending_step {
    uint32_t n_seqs, n_logits_rows, last_serial; /* last_serial: of its last run */
    uint32_t *ids;                               /* [max_sequences] */
    bool *failed;                                /* [max_sequences] */
    struct sampler_top *top_logprobs;            /* [max_logits_rows] */
};

/* Walks over the sequences of one class of a step. */
struct run_cursor {
    const struct step *step; /* the caller's */
    bool few, sampled;       /* the class that is walked; the step was submitted */
    uint32_t seq, done;      /* next sequence; rows of it that are in earlier runs */
};

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Masks of one run: written by the host, sent on a stream of their own while the forward pass runs. */
struct cuda_mask_space {
    uint64_t *host, *device;    /* [run_rows][words] */
    uint32_t words;             /* of one mask: a bit an id */
    void *stream, *sent, *used; /* events: all of `host` was sent; nobody reads `device` any more */
};

/* Takes pieces of one region, 256-byte aligned; with base NULL it only counts. A sum that overflows stays at
 * UINT64_MAX. */
struct cuda_carve {
    uint8_t *base;
    uint64_t used;
};

struct graph {
    void *exec; /* cudaGraphExec_t; NULL: not captured */
};

struct executor {
    const struct tape_program *program; /* the caller's; lives longer */
    struct device_options o;            /* as resolved */
    struct memory_plan plan;
    struct cuda_device *device; /* its own; NULL: planned alone */
    void *stream;               /* cudaStream_t, the device's: of all steps */
    uint32_t ptx;               /* as device_ops.ptx says */
    void *region[MEMORY_KINDS]; /* device memory by kind; NULL: planned alone */
    void *lists[40];            /* small lists of the heap */
    uint32_t n_lists;

    struct cuda_matrix *matrices; /* [n_matrices] */
    uint32_t n_matrices;
    float **vectors;                      /* [n_tensors]; those of is_vector, as F32 */
    bool *is_vector;                      /* [n_tensors] norms, biases, sinks, routers */
    const struct wk_quant_cuda **modules; /* [n_modules] of its types, each once */
    uint32_t n_modules;
    struct cuda_load *loads;          /* what the upload fills from the file: matrices, */
    struct cuda_vector *vector_loads; /* and vectors */
    struct cuda_upload upload;        /* of both */
    struct cuda_value *values;        /* [n_values] */
    uint8_t **buffers;                /* [n_buffers] */
    struct cuda_value *heads;         /* [n_heads] the choice of heads, as a route's: slots of them, each its own */
    uint32_t n_heads;
    const struct wk_arch_cuda *arch;       /* the module of the program's custom operations; NULL: it has none */
    const struct wk_custom_cuda **customs; /* [n_ops] NULL: the operation is no custom one */
    uint64_t *buffer_bytes;                /* [n_buffers] */
    struct cuda_stage *stages;             /* [n_launches] */
    struct cuda_use *uses;                 /* [n_values] */
    struct cuda_edge *edges;               /* [n_edges] in the order of the stages that read */
    uint32_t n_edges;
    uint8_t **cache;                   /* [n_kv_layers] pages of each */
    uint32_t cap_all, cap_logits_rows; /* rows of a run at most, padding included */
    uint32_t run_rows; /* generated rows of a run at most, or sequences: a bucket, from WK_CUDA_FEW on as many as there
                          are sequences */
    uint32_t n_logits; /* a row; 0: the tape gives embeddings alone */
    uint32_t page_stride;                  /* entries of the page tables of one sequence in a run's inputs, */
    uint32_t page_offset[TAPE_MAX_GROUPS]; /* and where in them those of a group begin */

    struct prepare prepare;       /* what the first kernel of a run is given */
    struct cuda_batch batch;      /* device addresses of the inputs; rows and seqs are set by run */
    uint8_t *host;                /* the ring of prepare's blocks, in pinned memory */
    uint8_t *act;                 /* converted rows of a product */
    float *f32_scratch[2];        /* results before cuda_finish, rows of products by heads; [1] follows [0] */
    void *scratch, *gemm_space;   /* scratch: f16 weights, panels, or what products of few rows need besides */
    void *q_half, *attend_space;  /* queries as f16; sums of attention that is cut by position */
    uint32_t *attend_counters;    /* parts of it that have ended; zero between launches */
    uint32_t *route_ticket;       /* one, for routes and large products */
    double *freq;                 /* of all RoPE tables */
    float *slopes;                /* of all attentions that have some, see cuda_slopes_before */
    float *logits;                /* [cap_logits_rows] rows of n_logits */
    uint64_t logits_stride;       /* floats from a row to the next */
    float *pooled, *running;      /* [run_rows][embedding_width]; sums of prompts' rows so far */
    void *sampler_memory;         /* the sampler's */
    struct cuda_gemm *gemm;       /* the library's products; its own */
    struct cuda_sampler *sampler; /* its own */
    struct cuda_sampled *results, *results_device;       /* [CUDA_RING][run_rows] */
    uint32_t *mark, *mark_device;                        /* serial of the last unsampled run that ended */
    struct cuda_top *top_logprobs, *top_logprobs_device; /* [CUDA_RING][max_logits_rows] */
    struct cuda_mask_space masks;
    struct cuda_mover *mover;         /* of pages; NULL: they are not handed over */
    enum cuda_sample_kind *slot_kind; /* [max_sequences] */
    struct graph graphs[BUCKETS][PROGRAM_KINDS];
    bool eager; /* no graphs: for tests */

    uint32_t next_serial, oldest; /* runs [oldest, next_serial) are under way */
    uint32_t held, held_serial;   /* rows and serial of the run that is launched together with the next, and so not yet;
                                     0: all are launched */
    struct run run;               /* that is being made */
    struct run_cursor cursor;     /* of the submitted step that is being made */
    bool unmasked; /* its last run waits for masks before it is sampled; the step is not among those under way yet */
    uint32_t *logits_row_at; /* [max_rows] place of a row of the step in its logits rows, or TAPE_NONE */
    struct run_record records[CUDA_RING];
    struct pending_step pending[STEP_QUEUE];
    uint32_t first_pending, n_pending;

    tap_fn tap; /* told rows of tapped stages; NULL: nobody wants them */
    void *tap_user;
    struct tap_store *taps; /* of the step that runs; step.c */

    launch_fn launched; /* told of the launches of generated rows; NULL: nobody wants them */
    void *launched_user;
    struct launch_times *times; /* of the run that is captured for that; times.c */
};

/* ---- buckets.c ----------------------------------------------------------------------------------------- */

void *cuda_list(struct executor *x, uint64_t n, uint64_t size); /* zeroed, the executor's; NULL: out of memory */
void cuda_lists_free(struct executor *x);
uint32_t cuda_bucket(uint32_t rows);                 /* the least that holds them, else the largest */
uint32_t cuda_bucket_at(uint32_t i);                 /* rows of bucket i < BUCKETS */
uint32_t cuda_captured(const struct executor *x);    /* buckets that have graphs: the first ones */
uint64_t cuda_graph_bytes(const struct executor *x); /* planned for all graphs */

/* ---- plan.c -------------------------------------------------------------------------------------------- */

/* An executor with its lists and its plan, no device opened. */
wk_status cuda_executor_plan(const struct tape_program *program, const struct device_options *o, struct executor **out,
                             const struct wk_err *err);
/* Fills x->plan and every pointer from x->region (all NULL: plans alone). */
wk_status cuda_executor_carve(struct executor *x, const struct wk_err *err);
const struct cuda_matrix *cuda_matrix_of(const struct executor *x, uint32_t tensor, uint32_t first, uint32_t n);
uint32_t cuda_rope_table_index(const struct executor *x, const struct tape_op *rope);
uint32_t cuda_row_index(const struct executor *x, const struct tape_op *embed); /* in prepare.row; not of tokens */
bool cuda_is_vector(const struct tape_program *p, uint32_t value);
/* Slopes of the program's attentions before operation `op`: where its own lie. */
uint32_t cuda_slopes_before(const struct tape_program *p, uint32_t op);
enum tape_rows cuda_launch_rows(const struct executor *x, const struct tape_launch *l);
/* A linear whose result a route reads: its weights are kept as plain F32 rows, as vectors are, and multiplied by
 * cuda_router. */
bool cuda_is_router(const struct executor *x, const struct tape_segment *g);
/* Is the value made by an operation of the launch itself? */
bool cuda_made_inside(const struct executor *x, const struct tape_launch *l, uint32_t value);
static inline uint64_t cuda_stride(uint32_t width) { return ((uint64_t)width + 15) & ~15ull; }
static inline uint32_t cuda_parts(uint32_t width) { return (width + 15) / 16; }

/* ---- build.c ------------------------------------------------------------------------------------------- */

wk_status cuda_build_stages(struct executor *x, const struct wk_err *err);
wk_status cuda_build_upload(struct executor *x, const struct wk_err *err);

/* ---- edges.c ------------------------------------------------------------------------------------------- */

/* Lists the edges between the stages, which are built, says how each value goes, and tells the stages. */
wk_status cuda_find_edges(struct executor *x, const struct wk_err *err);

/* ---- product_*.c, stages.c: enqueue only ----------------------------------------------------------------- */

/* Chooses the library's algorithms for the stage's large products. */
wk_status cuda_prepare_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err);
/* Runs each of them once, whatever their matrices hold: the library's code lies in device memory before a request
 * comes. */
wk_status cuda_load_products(struct executor *x, const struct cuda_stage *s, const struct wk_err *err);
/* Rows of `width` values from where they lie to y. */
wk_status cuda_copy_rows(struct executor *x, uint32_t rows, uint32_t width, struct cuda_rows from, float *y,
                         uint64_t y_stride, const struct wk_err *err);
/* Finishes q and k of attention by tiles, and stores what its pages hold. */
wk_status cuda_store_keys(struct executor *x, const struct cuda_attend *a, const struct wk_err *err);
/* One stage. A stage of logits makes those of `rows` logits rows from `first` on, at x->logits. */
wk_status cuda_enqueue_stage(struct executor *x, const struct cuda_stage *s, const struct run *r, uint32_t first,
                             uint32_t rows, const struct wk_err *err);
/* Everything up to the logits (many: without them). seen: called after every stage, NULL: not. */
typedef wk_status (*stage_fn)(struct executor *x, const struct cuda_stage *s, const struct run *r,
                              const struct wk_err *err);
wk_status cuda_enqueue_run(struct executor *x, const struct run *r, enum program_kind kind, const bool *cancel,
                           stage_fn seen, const struct wk_err *err);
/* Logits of logits rows [first, first + rows) of a prompt run. */
wk_status cuda_enqueue_logits(struct executor *x, const struct run *r, uint32_t first, uint32_t rows,
                              const struct wk_err *err);
/* Samples the first `rows` logits rows, whose logits are at x->logits. masks: NULL: none. */
wk_status cuda_enqueue_sample(struct executor *x, uint32_t rows, enum cuda_sample_kind kind,
                              const struct cuda_masks *masks, bool pdl, const struct wk_err *err);
static inline uint32_t cuda_stage_rows(const struct run *r, enum tape_rows rows)
{
    if (rows == ROWS_POOLED) return r->seqs;
    return rows == ROWS_ALL || r->few ? r->rows : r->n_logits_rows;
}
/* A failed launch in words: which launch, layer and tensor; a lost device is marked as such. */
wk_status cuda_launch_failed(struct executor *x, const struct cuda_stage *s, wk_status status, const char *text,
                             const struct wk_err *err);

/* ---- custom.c ------------------------------------------------------------------------------------------ */

wk_status cuda_find_customs(struct executor *x, const struct wk_err *err);
wk_status cuda_custom_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                            const struct wk_err *err);
wk_status cuda_enqueue_custom(struct executor *x, const struct cuda_stage *s, uint32_t rows, const struct wk_err *err);

/* ---- graph.c ------------------------------------------------------------------------------------------- */

wk_status cuda_graphs_open(struct executor *x, const struct wk_err *err);
void cuda_graphs_close(struct executor *x);
/* A run as a graph, `exec` (cudaGraphExec_t), which the caller destroys; a pair of runs for PROGRAM_PAIR. seen: as of
 * cuda_enqueue_run. */
wk_status cuda_capture(struct executor *x, const struct run *r, enum program_kind kind, stage_fn seen, void **exec,
                       const struct wk_err *err);
/* The run x->run. With others under way a plain one may be held. */
wk_status cuda_launch_few(struct executor *x, const struct run *r, enum program_kind kind, const struct wk_err *err);
/* Before anything else is enqueued, and before its end is waited for: launches the run that is held,
 * if there is one. */
wk_status cuda_launch_held(struct executor *x, const struct wk_err *err);

/* ---- times.c ------------------------------------------------------------------------------------------- */

void cuda_launches(struct executor *x, launch_fn fn, void *user);
/* Runs r, generated rows of the step, and tells x->launched of its launches. */
wk_status cuda_time_run(struct executor *x, const struct step *step, const struct run *r, const struct wk_err *err);

/* ---- run.c --------------------------------------------------------------------------------------------- */

wk_status cuda_check_step(const struct executor *x, const struct step *s, bool sampled, const struct wk_err *err);
/* Is there another run? The cursor then stands at its first sequence. */
bool cuda_seek_run(const struct executor *x, struct run_cursor *c);
/* Makes that run in x->run, with its block of inputs, for which the ring has room; and a run of padding alone. */
void cuda_next_run(struct executor *x, struct run_cursor *c);
void cuda_padding_run(struct executor *x, uint32_t rows);
void cuda_begin_step(struct executor *x, const struct step *s);
/* The step's flag; NULL where the step changes the page of states that it begins from, since it could not be submitted
 * again. */
const bool *cuda_cancel_of(const struct executor *x, const struct step *s);
/* After a failure: waits for what was enqueued and asks the device which run it has begun last. */
void cuda_resync(struct executor *x);

/* ---- step.c, queue.c ----------------------------------------------------------------------------------- */

wk_status cuda_step(struct executor *x, struct step *step, const struct wk_err *err);
void cuda_taps(struct executor *x, tap_fn fn, void *user);
wk_status cuda_set_slot(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                        uint32_t n_ends, const struct wk_err *err);
wk_status cuda_submit(struct executor *x, const struct step *step, const struct wk_err *err);
wk_status cuda_collect(struct executor *x, struct step_ids *out, const struct wk_err *err);
wk_status cuda_mask(struct executor *x, const struct step *step, const uint64_t *const *masks,
                    const struct wk_err *err);
/* Waits until nothing is under way. */
wk_status cuda_drain(struct executor *x, const struct wk_err *err);

/* ---- pages.c: as device_ops says ------------------------------------------------------------------------ */

wk_status cuda_pages_open(struct executor *x, const struct wk_err *err); /* stream, events, pinned memory */
void cuda_pages_close(struct executor *x);
wk_status cuda_pages_read(struct executor *x, const struct device_page *pages, uint32_t n, void *out,
                          const struct wk_err *err);
wk_status cuda_pages_write(struct executor *x, const struct device_page *pages, uint32_t n, const void *bytes,
                           const struct wk_err *err);
wk_status cuda_pages_pin(struct executor *x, void *memory, uint64_t bytes, const struct wk_err *err);
void cuda_pages_unpin(struct executor *x, void *memory);
wk_status cuda_pages_share(struct executor *x, struct device_share *out, const struct wk_err *err);
wk_status cuda_peer_open(struct executor *x, const struct device_share *share, struct device_peer **out,
                         const struct wk_err *err);
wk_status cuda_peer_read(struct executor *x, struct device_peer *p, const struct device_page *from,
                         const struct device_page *to, uint32_t n, const struct wk_err *err);
void cuda_peer_close(struct executor *x, struct device_peer *p);
/* plan.c: bytes of a page of layer k alone, and of the layer's pages as they are carved. */
uint64_t cuda_layer_page_bytes(const struct executor *x, uint32_t k);
uint64_t cuda_layer_bytes(const struct executor *x, uint32_t k, uint32_t pages);

/* ---- asks.c -------------------------------------------------------------------------------------------- */

wk_status cuda_asks_open(struct executor *x, const struct wk_err *err); /* streams, events, pinned memory */
void cuda_asks_close(struct executor *x);
/* Does a row of x->run wait for a mask? */
bool cuda_run_masked(const struct executor *x, const struct step *s);
/* Sends the masks of x->run's rows and makes what is enqueued next wait for them. */
wk_status cuda_send_masks(struct executor *x, const struct step *s, const uint64_t *const *masks,
                          struct cuda_masks *out, const struct wk_err *err);
wk_status cuda_masks_used(struct executor *x, const struct wk_err *err); /* by what was enqueued before */
/* Notes what log probabilities x->run's rows ask for; finds those of logits rows [first, end), whose logits are at
 * x->logits; has `r` got all of them; and hands them to their step. */
void cuda_record_top_logprobs(struct executor *x, const struct step *s, struct run_record *to);
wk_status cuda_enqueue_top_logprobs(struct executor *x, const struct step *s, uint32_t first, uint32_t end,
                                    const struct wk_err *err);
bool cuda_tops_ended(const struct executor *x, uint32_t serial, const struct run_record *r);
void cuda_harvest_top_logprobs(struct executor *x, uint32_t serial, const struct run_record *r);

#endif
