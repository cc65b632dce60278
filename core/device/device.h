/* device.h: the one interface between what decides (engine, command line) and what computes (CPU now, CUDA as a module).
 *
 * An executor holds one model's weights and its paged KV cache and runs steps. A step is one ragged batch: any number of rows (tokens)
 * of any number of sequences, prompt chunks and single generated tokens mixed. The caller owns sequences, page tables and sampling;
 * the executor owns memory. Nothing of a step outlives it but the keys and values it stored.
 *
 * Determinism: a wanted row's logits depend on its own sequence's tokens alone: not on the other sequences, the chunking, the
 * order of pages or the number of threads. */
#ifndef CORE_DEVICE_DEVICE_H
#define CORE_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

enum { KV_PAGE = 32 };   /* positions a page */
enum { STEP_QUEUE = 4 }; /* submitted steps that may be under way */

/* A row's role decides its kernel class, never the batch. */
enum row_role { ROW_PROMPT = 0, ROW_GENERATED = 1 };

/* One sequence's part of a step: rows [row, row + n_rows) are its tokens at positions [position, position + n_rows). */
struct step_seq {
    uint32_t row, n_rows;
    uint32_t position;             /* of its first row = number of positions already stored */
    enum row_role role;
    const uint32_t *const *pages;  /* [n_groups] page tables; group g: [ceil((position + n_rows) / KV_PAGE)] page ids, or for a window
                                      group a ring of tape_kv_group.ring_pages ids used as table[(p / KV_PAGE) % ring_pages] */
    uint32_t slot;                 /* < max_sequences: whose sampler a submitted step uses, and whose last id TOKEN_LAST means */
    bool failed;                   /* out: a row became NaN or infinite; its logits are not to be used */
};

/* In step.tokens of a submitted step: the id that the row's slot was given by the step before. */
#define TOKEN_LAST UINT32_MAX

struct step {
    uint32_t n_rows, n_seqs, n_wanted;
    const uint32_t *tokens;  /* [n_rows], each < n_vocab */
    struct step_seq *seqs;   /* [n_seqs], rows ascending without gaps */
    const uint32_t *wanted;  /* [n_wanted] row indices, ascending: rows whose logits are computed */
    float *logits;           /* [n_wanted][n_vocab], caller's */
    float *pooled;           /* [n_seqs][width] when the tape has an embedding output, else NULL */
    const bool *cancel;      /* may become true while the step runs: the executor returns WK_CANCELLED soon; NULL: never */
};

/* Bytes by kind, known before anything is allocated. */
enum memory_kind { MEMORY_WEIGHTS = 0, MEMORY_KV, MEMORY_ACTIVATIONS, MEMORY_WORKSPACE, MEMORY_GRAPHS, MEMORY_KINDS };
const char *memory_kind_name(enum memory_kind kind);
struct memory_plan {
    uint64_t bytes[MEMORY_KINDS], total;
    uint64_t kv_bytes_per_page_set; /* one page of every KV layer of every group */
    uint32_t kv_pages[8];           /* pages of each KV group */
};

enum kv_type { KV_F16 = 0, KV_F32 };

struct wk_quant_cuda;

struct device_options {
    uint32_t threads;        /* CPU; 0: one per allowed processor */
    uint32_t isa;            /* CPU: highest WK_ISA_* to use */
    bool exact;              /* F32 activations and sums */
    enum kv_type kv_type;
    uint32_t context;        /* positions a sequence */
    uint32_t max_sequences;
    uint32_t max_rows;       /* of one step */
    uint32_t max_wanted;     /* of one step */
    uint32_t gpu;            /* CUDA: device index */
    /* CUDA: the kernels of a ggml type; refuses with the plugin's name and what is missing. [main thread] */
    wk_status (*find_cuda)(void *user, uint32_t ggml_type, const struct wk_quant_cuda **out, const struct wk_err *err);
    void *find_user;
};

struct tape_program;
struct model_weights;
struct executor;

/* Filled with the bytes of tensor `tensor` after every step that a tap asks for; see tape taps. rows: all rows of the step. */
typedef void (*tap_fn)(void *user, const char *name, const float *data, uint32_t rows, uint32_t width);

/* What a sampled step gave each of its sequences: id UINT32_MAX where it had no wanted row. */
struct step_ids {
    uint32_t *ids;  /* [n_seqs], caller's */
    bool *failed;   /* [n_seqs], caller's: no id could be picked from the logits (NaN or infinite), or `failed` of the step */
};

struct sampler_params;

/* One device. [engine thread] for everything but name. */
struct device_ops {
    const char *name; /* "cpu", "cuda" */
    wk_status (*plan)(const struct tape_program *program, const struct device_options *o, struct memory_plan *out, const struct wk_err *err);
    wk_status (*open)(const struct tape_program *program, const struct model_weights *weights, const struct device_options *o, struct executor **out, const struct wk_err *err);
    wk_status (*step)(struct executor *x, struct step *step, const struct wk_err *err);
    /* Sampling on the device. sampler_set makes a slot ready for a new job: nothing generated yet; after one of the ids `ends` the slot's later
     * steps give UINT32_MAX. submit enqueues a step whose wanted rows (at most one
     * a sequence, its last) are sampled by their slots' samplers instead of giving logits, and counts the id as generated; it may return before the
     * step has run. At most STEP_QUEUE steps are under way; collect waits for the oldest. What `step` points to is copied by submit. A step
     * that is still under way when its sequence ended computes what nobody reads; its pages stay taken until it is collected. */
    wk_status (*sampler_set)(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends, uint32_t n_ends, const struct wk_err *err);
    wk_status (*submit)(struct executor *x, const struct step *step, const struct wk_err *err);
    wk_status (*collect)(struct executor *x, struct step_ids *out, const struct wk_err *err);
    void (*taps)(struct executor *x, tap_fn fn, void *user); /* NULL fn: off */
    void (*memory)(const struct executor *x, struct memory_plan *used);
    void (*close)(struct executor *x); /* NULL allowed */
};

const struct device_ops *device_cpu(void);

#endif
