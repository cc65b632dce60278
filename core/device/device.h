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

enum { KV_PAGE = 32 }; /* positions a page */

/* A row's role decides its kernel class, never the batch. */
enum row_role { ROW_PROMPT = 0, ROW_GENERATED = 1 };

/* One sequence's part of a step: rows [row, row + n_rows) are its tokens at positions [position, position + n_rows). */
struct step_seq {
    uint32_t row, n_rows;
    uint32_t position;             /* of its first row = number of positions already stored */
    enum row_role role;
    const uint32_t *const *pages;  /* [n_groups] page tables; group g: [ceil((position + n_rows) / KV_PAGE)] page ids, or for a window
                                      group a ring of tape_kv_group.ring_pages ids used as table[(p / KV_PAGE) % ring_pages] */
    bool failed;                   /* out: a row became NaN or infinite; its logits are not to be used */
};

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

struct device_options {
    uint32_t threads;        /* CPU; 0: one per allowed processor */
    uint32_t isa;            /* CPU: highest WK_ISA_* to use */
    bool exact;              /* F32 activations and sums */
    enum kv_type kv_type;
    uint32_t context;        /* positions a sequence */
    uint32_t max_sequences;
    uint32_t max_rows;       /* of one step */
    uint32_t max_wanted;     /* of one step */
};

struct tape_program;
struct model_weights;
struct executor;

/* Filled with the bytes of tensor `tensor` after every step that a tap asks for; see tape taps. rows: all rows of the step. */
typedef void (*tap_fn)(void *user, const char *name, const float *data, uint32_t rows, uint32_t width);

/* One device. [engine thread] for everything but name. */
struct device_ops {
    const char *name; /* "cpu", "cuda" */
    wk_status (*plan)(const struct tape_program *program, const struct device_options *o, struct memory_plan *out, const struct wk_err *err);
    wk_status (*open)(const struct tape_program *program, const struct model_weights *weights, const struct device_options *o, struct executor **out, const struct wk_err *err);
    wk_status (*step)(struct executor *x, struct step *step, const struct wk_err *err);
    void (*taps)(struct executor *x, tap_fn fn, void *user); /* NULL fn: off */
    void (*memory)(const struct executor *x, struct memory_plan *used);
    void (*close)(struct executor *x); /* NULL allowed */
};

const struct device_ops *device_cpu(void);

#endif
