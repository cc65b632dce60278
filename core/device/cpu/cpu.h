/* cpu.h: the inside of the CPU executor, shared by its files and by nobody else.
 *
 *   weights.c   matrices as 16-row tiles, packed when first used; small vectors as F32; rows of embedding tables
 *   build.c     sizes, and the carving of all memory;  stages.c  launches of a tape -> stages with every pointer
 *               resolved
 *   executor.c  device_ops: plan, open, step, taps, memory, close
 *   product.c   products of tiles with rows: dense and experts, their prologues and epilogues
 *   attend.c    attention over the paged cache
 *   pages.c     bytes of pages to and from other memory
 *   sampling.c  sampled steps: submit, mask and collect
 *   rows.c      everything that computes a row from its own row: embed, norms, maps, route, combine, pool, output
 *   pool.c      threads;  kernels*.c  arithmetic of one row, by instruction set
 *
 * A step is one call of pool_run: every thread walks the stages in order, does its share, and meets the others at a
 * barrier. The order of every sum is fixed by the stage and by absolute positions, so which thread does which share
 * decides nothing but time.
 *
 * Fields, where they do not say otherwise: widths, strides and counts are in values, sizes called bytes in bytes.
 * Pointers are the executor's: into its regions and lists, or into the tape's program, which outlives it. What plan and
 * open have set does not change, so that every thread reads it. */
#ifndef CORE_DEVICE_CPU_CPU_H
#define CORE_DEVICE_CPU_CPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/cpu/kernels.h"
#include "device/cpu/pool.h"
#include "device/kv_pages.h"
#include "sample/sample.h"
#include "tape/tape.h"

enum {
    FEW_ROWS = 8,   /* up to here every thread prepares all activations for itself and owns a fixed run of tiles */
    FEW_TILES = 32, /* tiles a call then, at most */
    FEW_BYTES = 512 << 10, /* bytes a call then, about. With less, a pair's product, which reads two places, begins anew
                              too often; with more, a barrier waits too long for the last call */
    MANY_TILES = 4,        /* tiles a task beyond */
    CHUNK_ROWS =
        256, /* rows a task beyond, at most; fewer where their activations would not stay in the second cache */
    CHUNK_CACHE = 512 << 10, /* bytes of the second cache where it has fewer, or the system does not tell */
    ATTN_ROWS = 24,          /* query rows of a prompt's attention task */
    ATTN_HEADS = 8,          /* query heads of one KV head, */
    ATTN_QUERIES = 64,       /* and rows x heads, in one pass over the cache */
    SPLIT_ROWS = 2,          /* up to here attention may be cut by position too */
    MAX_LAUNCH_OPS = 16
};

/* ---- weights ------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of every slab of a tensor: a run of tiles a slab. */
struct matrix {
    const struct tape_tensor *tensor;                /* the program's */
    const struct wk_type_cpu *type;                  /* of a plugin, which stays mapped */
    void (*product)(const struct wk_cpu_product *p); /* at the executor's instruction set */
    uint32_t first, n;                               /* rows of a slab */
    uint32_t k;                                      /* values of a row */
    uint32_t slabs;                                  /* experts; 1: a plain matrix */
    uint32_t tiles;                                  /* of a slab */
    uint32_t act;                                    /* WK_ACTIVATION_* that it is multiplied with */
    uint64_t tile_bytes;                             /* of one tile: 16 rows of k values */
    uint64_t offset;                                 /* bytes from executor.tiles to its first tile */
    uint64_t state;                                  /* index of its first tile in executor.tile_state */
};

enum tile_state { TILE_EMPTY = 0, TILE_PACKING, TILE_READY };

/* ---- stages -------------------------------------------------------------------------------------------- */

/* Where a stage reads a value's rows: row i of the stage is at base + i * stride, or for a gather (a value of all rows
 * read by a stage of the logits rows) at base + logits_rows[i] * stride. */
struct operand {
    const float *base; /* NULL: no such input, or swallowed (then temp says where) */
    uint64_t stride;   /* floats from a row to the next */
    uint32_t width;    /* values of an item */
    uint32_t slots;    /* items of a row: of experts one for each that was chosen, else 1 */
    bool gather;       /* row i of the stage is the value's row logits_rows[i] */
};

/* One matrix of a product; the segments' results stand side by side. */
struct product_segment {
    const struct matrix *m;
    const float *bias; /* [slabs][n] or NULL */
    float *out;        /* item i at out + i * n; NULL: the step's logits */
};

struct product {
    uint32_t n_seg, k; /* k: values of a row of x */
    struct product_segment seg[4];
    bool experts;                              /* slot s has the slab that the route names; without a route slab s */
    bool glu_pair;                             /* two segments whose results the gate joins to one */
    bool logits;                               /* results go to the step's logits, of the caller */
    uint32_t slots;                            /* results a row: the route's for experts, else the input's */
    struct operand x;                          /* [rows][slots][k] */
    struct operand route;                      /* chosen experts and their weights; base NULL: none */
    struct operand residual;                   /* added to the result; base NULL: none */
    const struct tape_op *norm, *glu, *map[4]; /* norm: of x before; glu, map: of the result; NULL: none */
    const float *norm_w, *norm_b;              /* [k]; b NULL: none */
    uint32_t n_map;
    uint32_t acts;  /* WK_ACTIVATION_* of all its matrices: forms that x is prepared in */
    uint32_t piece; /* tiles a call when there are few rows */
    uint32_t chunk; /* rows a task when there are many */
    uint32_t *cut;  /* [threads + 1] first tile of each thread, over all segments, when there are few */
};

struct attend {
    const struct tape_op *op, *q_norm, *k_norm, *v_norm, *q_rope, *k_rope;        /* but for op NULL: none */
    const float *q_norm_w, *q_norm_b, *k_norm_w, *k_norm_b, *v_norm_w, *v_norm_b; /* [dk] or [dv]; NULL: none */
    const float *sinks;                        /* [heads], added to the sum of weights as a score; NULL: none */
    const float *q_rope_table, *k_rope_table;  /* [max_rows][2 n] cosines and sines of the step's positions */
    struct operand q, k, v;                    /* [rows][heads * dk], [rows][kv_heads * dk], [rows][kv_heads * dv] */
    float *out;                                /* [rows][heads * dv] */
    uint32_t heads, kv_heads;                  /* of queries, of keys and values */
    uint32_t dk, dv;                           /* values of a head of keys, of values */
    uint32_t group;                            /* of the KV cache, whose page tables it reads */
    struct kv_span span;                       /* positions that a row sees */
    bool both_ways;                            /* later rows of the prompt as well */
    bool value_in_key;                         /* a value is the first dv numbers of its key */
    bool stores;                               /* the cache is its own, not an earlier layer's */
    uint8_t *cache;                            /* [pages], its layer's */
    uint64_t page_bytes, head_bytes, v_offset; /* of one layer's page; of a head in it; from keys to values in a head */
};

/* A convolution, scan or delta rule over the rows of each sequence. */
struct state {
    const struct tape_op *op;
    struct operand in[5];         /* of all rows, in the operation's order */
    const float *w, *b;           /* convolution: [kernel][width], [width] or NULL */
    float *out;                   /* [rows][width] */
    uint32_t width, heads, share; /* width: of a row of out; share: heads of values that have one key and query */
    uint32_t dk, dv, slices;      /* a head's state is [dk][dv]; slices: of STATE_COLUMNS columns, of a head */
    uint32_t group;               /* of the cache, whose pages hold the states */
    uint8_t *cache;               /* [pages], its layer's */
    uint64_t page_bytes;          /* of one layer's page: a sequence's state */
};

/* One operation on one row. A swallowed value lives in the thread's temp[i], i = its producer's place in the launch. */
struct row_op {
    const struct tape_op *op;
    struct operand in[TAPE_IN];
    uint32_t temp_in[TAPE_IN];      /* place in the launch of who makes it; TAPE_NONE: in a buffer */
    float *out;                     /* NULL: temp of this place, or the step's logits or pooled rows */
    uint64_t out_stride;            /* floats */
    const float *w, *b;             /* of a norm, a route: [width]; NULL: none */
    const float *rope_table;        /* rope: [max_rows][2 n] */
    const uint8_t *table;           /* embed: rows as in the file, in its mapping */
    const struct wk_type_cpu *type; /* of the table */
    uint64_t row_bytes;             /* of the table */
};

struct lane;
struct executor;
/* One launch of the tape. Which of the parts is set follows the launch's first operation. */
struct stage {
    void (*run)(struct executor *x, const struct stage *s, struct lane *l); /* one thread's share */
    const struct tape_launch *launch;
    enum tape_rows rows; /* that it computes */
    bool tapped;         /* a value of it is watched: see executor.tap */
    struct product product;
    struct attend attend;
    struct state state;
    uint32_t n_ops;     /* of what computes a row from its own row */
    struct row_op *ops; /* [n_ops] */
};

/* What one thread has for itself: written by it alone, but for next. */
struct lane {
    _Alignas(64) uint32_t index; /* of the thread, below pool threads */
    uint32_t phase;              /* pieces of work that it has shared with the others in this step: see phase_begin */
    uint8_t *q8;                 /* [FEW_ROWS] activation rows of 8 bits */
    float *f32;                  /* [FEW_ROWS] the same as F32 */
    float *row;                  /* [widest row] */
    float *y[2];                 /* results of products before their epilogue */
    void *scratch;               /* the plugins': wk_type_cpu.scratch_bytes, the largest */
    uint8_t *gather;             /* [CHUNK_ROWS] activation rows of one expert */
    uint32_t *order, *start, *used; /* items by expert; experts with any */
    float *q, *s, *acc, *sum;       /* attention: [ATTN_QUERIES] x dk, ATTN_SPLIT, dv, dv */
    float *turned;                  /* [KV_PAGE] x dv, of layers whose values are in their keys */
    float *temp[MAX_LAUNCH_OPS];    /* one row of each swallowed value, by its place in the launch */
    _Alignas(
        64) _Atomic uint32_t next[2]; /* next piece of its run of tiles, by parity of the phase; any thread takes */
};

/* Cosines and sines of one rope of the program, made at the start of each step. */
struct rope_table {
    const double *freq; /* [n] radians a position, the program's */
    uint32_t n;         /* pairs of a head that are rotated */
    uint32_t temperature_length;
    double mscale, temperature; /* factor of both, as struct wk_rope_freqs has it */
    float *rows;                /* [max_rows][2 n] */
};

/* Rows [first, first + n) of a row set, all of one sequence: an attention task. */
struct row_block {
    uint32_t first, n, seq;
};

/* One step's rows in order of a row set. */
struct row_set {
    uint32_t n, n_blocks; /* rows; blocks */
    struct row_block *blocks;
};

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Takes pieces of one region, 64-byte aligned. With base NULL it only counts: the same code plans and allocates. A sum
 * that overflows stays at UINT64_MAX. */
struct carve {
    uint8_t *base; /* of the region; NULL: counts */
    uint64_t used; /* bytes */
};
void *carve(struct carve *c, uint64_t n, uint64_t size); /* n pieces of `size` bytes */

/* Sampled steps; sampling.c's. */
struct sampling_slot;
struct sampling {
    struct sampler_scratch *scratch; /* of the thread that calls */
    struct sampling_slot *slots;     /* [max_sequences] */
    struct step_seq *seqs;           /* [max_sequences] of the step that runs, */
    uint32_t *tokens;                /* [max_rows] */
    float *logits;                   /* [max_logits_rows] rows */
    uint64_t *mask;                  /* of the id that is picked, a bit each */
    uint32_t *ids;                   /* [STEP_QUEUE][max_sequences] not collected yet, */
    bool *failed;
    struct sampler_top *top_logprobs;                       /* [STEP_QUEUE][max_logits_rows] */
    uint32_t n_seqs[STEP_QUEUE], n_logits_rows[STEP_QUEUE]; /* of steps that are not collected, a ring */
    uint32_t first, n_waiting;                              /* of that ring */
    uint32_t n_steps;                                       /* that were submitted */
    bool unmasked;                                          /* the last step ran and waits for its masks */
};

struct executor {
    const struct tape_program *program; /* the caller's; lives longer */
    struct device_options o;            /* as resolved */
    const struct cpu_kernels *kernels;  /* of the instruction set */
    struct pool *pool;                  /* its own threads; the caller's thread is one of them */
    struct memory_plan plan;
    struct {
        void *base;
        uint64_t bytes;
    } region[MEMORY_KINDS]; /* its own, zeroed; base NULL: planned alone */
    int shared;             /* the file behind the KV cache's region; 0: it is no file */

    void *lists[16]; /* small lists of the heap, which the program alone sizes */
    uint32_t n_lists;
    uint64_t list_bytes;     /* of all lists */
    struct matrix *matrices; /* [n_matrices] */
    uint32_t n_matrices;
    uint64_t n_tiles;               /* of all matrices */
    uint8_t *tiles;                 /* of all matrices, packed when first used, by any thread of the pool */
    _Atomic uint8_t *tile_state;    /* [n_tiles] enum tile_state */
    const uint8_t *zero_row;        /* widest row of a file's matrix, zero */
    bool *is_vector;                /* [n_tensors]: norms, biases, sinks */
    float **vectors;                /* [n_tensors]: their F32 copies, in the weights' region */
    float **buffers;                /* [n_buffers] */
    struct stage *stages;           /* [n_launches] */
    struct row_op *row_ops;         /* of all stages */
    uint32_t *cuts;                 /* of all products */
    struct rope_table *rope_tables; /* [n_rope_tables] */
    uint32_t n_rope_tables;
    uint8_t **cache;     /* [n_kv_layers] pages of each */
    float **conv;        /* [n_kv_layers] weights of convolutions, [kernel][width]; NULL: it is none */
    struct lane *lanes;  /* [threads] */
    uint8_t *shared_q8;  /* [max_rows x slots] activation rows */
    float *shared_f32;   /* [max_rows x slots] the same as F32; written by all threads, each its rows */
    float *route_logits; /* [max_rows][experts] */
    float *partials;     /* attention cut by position: sums of each part */

    struct sampling sampling;

    /* of the step that runs: set by the caller's thread before the pool begins, unless they are atomic */
    struct step *step;               /* the caller's */
    uint32_t *position, *seq;        /* [max_rows] of each row: its position, its sequence's index */
    struct row_set all, logits_rows; /* all rows; those whose logits are wanted */
    bool one_row_each;               /* every sequence has one row */
    bool changes_states;     /* a sequence goes on in the page that it reads its state from: half a step cannot be run
                                again */
    uint32_t first_state;    /* launch; n_launches: none */
    _Atomic uint8_t *failed; /* [max_sequences] a row of it became NaN or infinite */
    _Atomic uint32_t counter[2]; /* tasks that were taken, by parity of the lanes' phase */
    bool stop[2];                /* by parity of the stage; written by thread 0 before the barrier, read after */
    _Atomic int32_t error;       /* first status that a thread met */
    char error_text[256];        /* of that thread, which alone writes it */
    tap_fn tap;                  /* told rows of tapped stages, on thread 0; NULL: nobody wants them */
    void *tap_user;
};

/* ---- weights.c ----------------------------------------------------------------------------------------- */

/* Lists every matrix and vector that the program's launches use. */
wk_status weights_find(struct executor *x, const struct wk_err *err);
/* Carves the tiles, vectors and convolutions, */
void weights_carve(struct executor *x, struct carve *weights, struct carve *workspace);
wk_status weights_load_vectors(struct executor *x, const struct wk_err *err); /* and fills the latter two */
const struct matrix *weights_matrix(const struct executor *x, uint32_t tensor, uint32_t first, uint32_t n);
/* Tiles [tile, tile + n) of a slab, packed. On a fault of the file the step fails; the pointer is valid all the same.
 * [any thread of the pool] */
const void *weights_tiles(struct executor *x, const struct matrix *m, uint32_t slab, uint32_t tile, uint32_t n);
/* y [width] = one row of a table in the file. */
void weights_row(struct executor *x, const struct row_op *r, uint64_t row, float *y);

/* ---- build.c: sizes and memory ------------------------------------------------------------------------- */

/* A zeroed list in the heap, counted, freed with the executor; NULL: out of memory. */
void *list_new(struct executor *x, uint64_t n, uint64_t size);
wk_status build_lists(struct executor *x, const struct wk_err *err);
/* Fills x->plan and every pointer, from x->program, x->o and x->region (all NULL: plans alone). Writes nothing into the
 * regions. */
wk_status build_carve(struct executor *x, const struct wk_err *err);
uint32_t rope_table_index(const struct executor *x, const struct tape_op *rope); /* n_rope_tables: none */
uint32_t build_row_ops(const struct tape_launch *l);
enum tape_rows build_launch_rows(const struct tape_program *p, const struct tape_launch *l);
uint32_t product_chunk_rows(uint32_t k, uint32_t acts);
uint64_t build_page_bytes(const struct executor *x, const struct tape_kv_layer *k); /* of one layer */
/* Of layer k's pages as they are carved; UINT64_MAX: more than can be counted. */
uint64_t build_layer_bytes(const struct executor *x, uint32_t k, uint32_t pages);

/* ---- stages.c: launches to stages, in the memory that was carved --------------------------------------- */

wk_status build_stages(struct executor *x, const struct wk_err *err);

/* ---- executor.c ---------------------------------------------------------------------------------------- */

wk_status executor_step(struct executor *x, struct step *step, const struct wk_err *err);

/* ---- pages.c: as device_ops says ------------------------------------------------------------------------ */

wk_status pages_read(struct executor *x, const struct device_page *pages, uint32_t n, void *out,
                     const struct wk_err *err);
wk_status pages_write(struct executor *x, const struct device_page *pages, uint32_t n, const void *bytes,
                      const struct wk_err *err);
wk_status pages_share(struct executor *x, struct device_share *out, const struct wk_err *err);
wk_status pages_peer_open(struct executor *x, const struct device_share *share, struct device_peer **out,
                          const struct wk_err *err);
wk_status pages_peer_read(struct executor *x, struct device_peer *p, const struct device_page *from,
                          const struct device_page *to, uint32_t n, const struct wk_err *err);
void pages_peer_close(struct executor *x, struct device_peer *p);
/* A file in memory for the KV cache's region, x->shared; -1: there is none to be had, and the cache is not shared. */
int pages_memory(struct executor *x, uint64_t bytes);

/* ---- sampling.c ---------------------------------------------------------------------------------------- */

wk_status sampling_open(struct executor *x, const struct wk_err *err); /* what is not carved */
void sampling_carve(struct executor *x, struct carve *workspace);
void sampling_close(struct executor *x);
/* As device_ops says. */
wk_status sampling_set(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                       uint32_t n_ends, const struct wk_err *err);
wk_status sampling_submit(struct executor *x, const struct step *step, const struct wk_err *err);
wk_status sampling_collect(struct executor *x, struct step_ids *out, const struct wk_err *err);
wk_status sampling_mask(struct executor *x, const struct step *step, const uint64_t *const *masks,
                        const struct wk_err *err);

/* ---- stages -------------------------------------------------------------------------------------------- */

/* Bytes of a prepared row of k activations, a multiple of 8. */
uint64_t product_row_bytes(uint32_t k, uint32_t act);
void product_run(struct executor *x, const struct stage *s, struct lane *l);
void route_run(struct executor *x, const struct stage *s, struct lane *l);
void attend_run(struct executor *x, const struct stage *s, struct lane *l);
void state_run(struct executor *x, const struct stage *s, struct lane *l);
/* Bytes of a layer's state, which begins at a multiple of 64. */
uint64_t state_bytes(const struct tape_op *op, const struct tape_kv_layer *k);
void rows_run(struct executor *x, const struct stage *s, struct lane *l);

/* One run of ops on row i of the stage. */
void rows_one(struct executor *x, const struct stage *s, struct lane *l, uint32_t i);
/* Norm over the whole row or over runs of op->u.norm.group. */
void norm_row(const struct executor *x, const struct tape_op *op, const float *w, const float *b, float *y,
              const float *v, uint32_t width);
/* cos and sin of this thread's share of the step's rows. */
void make_rope_rows(struct executor *x, uint32_t thread);
/* Bytes for the results of attention cut by position. */
uint64_t attend_partial_bytes(const struct executor *x, uint32_t heads, uint32_t dv);
/* Scores before the softmax of one attention: out [rows of the stage][heads][keys], -inf where nothing is seen.
 * Debugging; thread 0. */
uint32_t attend_keys(const struct executor *x); /* of the longest sequence */
void attend_scores(struct executor *x, const struct stage *s, uint32_t keys, float *out);

/* ---- small things that every stage needs --------------------------------------------------------------- */

static inline uint32_t stage_rows(const struct executor *x, enum tape_rows rows)
{
    return rows == ROWS_ALL ? x->step->n_rows : rows == ROWS_LOGITS ? x->step->n_logits_rows : x->step->n_seqs;
}
/* Row of the step behind row i of a row set (not pooled). */
static inline uint32_t step_row(const struct executor *x, enum tape_rows rows, uint32_t i)
{
    return rows == ROWS_LOGITS ? x->step->logits_rows[i] : i;
}
static inline uint32_t row_sequence(const struct executor *x, enum tape_rows rows, uint32_t i)
{
    return rows == ROWS_POOLED ? i : x->seq[step_row(x, rows, i)];
}
static inline const float *operand_row(const struct executor *x, const struct operand *o, uint32_t i)
{
    return o->base + (o->gather ? x->step->logits_rows[i] : i) * o->stride;
}
static inline void fail_row(struct executor *x, enum tape_rows rows, uint32_t i)
{
    atomic_store_explicit(&x->failed[row_sequence(x, rows, i)], 1, memory_order_relaxed);
}
/* First of `n` things, at most 2^40, that thread t of the step does; t = its threads gives n. */
static inline uint64_t share_many(const struct executor *x, uint64_t n, uint32_t t)
{
    return n * t / pool_active(x->pool);
}
static inline uint32_t share(const struct executor *x, uint32_t n, uint32_t t) { return (uint32_t)share_many(x, n, t); }

/* A phase of tasks that threads take one by one; phases are separated by barriers. The order decides no sum. */
static inline void phase_begin(struct executor *x, struct lane *l)
{
    const uint32_t other = (l->phase + 1) & 1;
    if (l->index == 0) atomic_store_explicit(&x->counter[other], 0, memory_order_relaxed);
    for (uint32_t t = l->index; t < x->o.threads; t += pool_active(x->pool))
        atomic_store_explicit(&x->lanes[t].next[other], 0, memory_order_relaxed);
}
static inline uint32_t phase_take(struct executor *x, const struct lane *l)
{
    return atomic_fetch_add_explicit(&x->counter[l->phase & 1], 1, memory_order_relaxed);
}
static inline void phase_end(struct lane *l) { l->phase++; }

#endif
