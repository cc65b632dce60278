/* device.h: the one interface between what decides (engine, command line) and what computes (CPU now, CUDA as a
 * module).
 *
 * An executor holds one model's weights and its paged KV cache and runs steps. A step is one ragged batch: any number
 * of rows (tokens) of any number of sequences, prompt chunks and single generated tokens mixed. The caller owns
 * sequences, page tables and sampling; the executor owns memory. Nothing of a step outlives it but the keys and values
 * that it stored, and states. A step that failed, and was not cancelled, may leave states of its sequences that nobody
 * can go on from.
 *
 * Determinism: a logits row's logits depend on its own sequence's tokens alone: not on the other sequences, the
 * chunking, the order of pages or the number of threads. */
#ifndef CORE_DEVICE_DEVICE_H
#define CORE_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

enum { KV_PAGE = 32 };   /* positions a page */
enum { STEP_QUEUE = 4 }; /* submitted steps that may be in flight */
/* In a page table: the block has no page. */
#define KV_NO_PAGE UINT32_MAX

/* A row's role decides its kernel class, never the batch. */
enum row_role { ROW_PROMPT = 0, ROW_GENERATED = 1 };

/* One sequence's part of a step: rows [row, row + n_rows) are its tokens at positions [position, position + n_rows). */
struct step_seq {
    uint32_t row, n_rows;
    uint32_t position; /* of its first row = number of positions already stored; 0 where a prompt is one step (see
                          tape_whole_prompt), of which n_rows are then all rows */
    enum row_role role;
    const uint32_t *const *pages; /* [n_groups] page tables: position p of the sequence lies in page pages[g][p /
                                     KV_PAGE] of group g. Read for positions from the first that row `position` sees to
                                     position + n_rows - 1; what a window hides has no page. In a group of states the
                                     page has the state behind the last row of its block that was computed: it is read
                                     for the row before `position`, and written for each row of the step whose block has
                                     one. The last row's must; a block between may have KV_NO_PAGE: nothing is kept
                                     there */
    uint32_t slot;   /* < max_sequences: whose sampler a submitted step uses, and whose last id TOKEN_LAST means */
    bool failed;     /* out: a row became NaN or infinite; its logits are not to be used */
    uint32_t second; /* position of the first token of a pair's second text; 0: there is no pair */
};
/* The type of the sequence's token at `position`: 1 of a pair's second text, else 0. */
static inline uint32_t step_token_type(const struct step_seq *s, uint32_t position)
{
    return s->second && position >= s->second;
}

/* In step.tokens of a submitted step: the id that the row's slot was given by the step before. */
#define TOKEN_LAST UINT32_MAX

/* What is asked of a logits row of a submitted step. */
struct step_ask {
    uint32_t id;  /* TOKEN_LAST: its slot samples the row, which is the last of its sequence. Else any row, of which
                     nothing is sampled: the log probability of this id is asked for */
    uint32_t top; /* log probabilities of the id that is drawn or asked for, and of so many of the best, at most
                     SAMPLER_MAX_TOP; STEP_NO_TOP: none, of sampled rows alone */
    bool masked;  /* of sampled rows: the sampler waits for the row's mask, see device_ops.mask */
};
#define STEP_NO_TOP UINT32_MAX

struct step {
    uint32_t n_rows, n_seqs, n_logits_rows;
    const uint32_t *tokens;      /* [n_rows], each < n_vocab */
    struct step_seq *seqs;       /* [n_seqs], rows ascending without gaps */
    const uint32_t *logits_rows; /* [n_logits_rows] row indices, ascending: rows whose logits are computed */
    const struct step_ask
        *asks;          /* [n_logits_rows] of a submitted step; NULL: every logits row is sampled, and no more */
    float *logits;      /* [n_logits_rows][n_vocab], caller's */
    float *pooled;      /* [n_seqs][width] when the tape has an embedding output, else NULL */
    const bool *cancel; /* may become true while the step runs: the executor returns WK_CANCELLED soon, and the step may
                           be submitted again; NULL: never */
};

/* Bytes by kind, known before anything is allocated. */
enum memory_kind { MEMORY_WEIGHTS = 0, MEMORY_KV, MEMORY_ACTIVATIONS, MEMORY_WORKSPACE, MEMORY_GRAPHS, MEMORY_KINDS };
const char *memory_kind_name(enum memory_kind kind);
struct memory_plan {
    uint64_t bytes[MEMORY_KINDS], total;
    uint64_t kv_page_bytes[8]; /* of a page of each KV group, of all its layers together */
    uint32_t kv_pages[8];      /* pages of each KV group */
};

enum kv_type { KV_F16 = 0, KV_F32 };

struct wk_quant_cuda;
struct wk_arch_cuda;
struct wk_custom_cuda;

struct device_options {
    uint32_t threads; /* CPU; 0: one per allowed processor */
    uint32_t isa;     /* CPU: highest WK_ISA_* to use */
    bool exact;       /* F32 activations and sums */
    enum kv_type kv_type;
    uint32_t context; /* positions a sequence */
    uint32_t max_sequences;
    uint32_t kv_sequences; /* sequences of full length that the KV cache has room for; 0: max_sequences */
    uint64_t
        kv_bytes; /* of the KV cache; 0: what kv_sequences can use. Less: sequences share its pages as they need them */
    uint32_t max_rows;        /* of one step */
    uint32_t max_logits_rows; /* of one step */
    bool hand_over; /* pages pass to and from other executors. CUDA: takes pinned memory for it, and the KV cache is
                       memory that other processes can be given */
    uint32_t gpu;   /* CUDA: device index */
    /* CUDA: the kernels of a ggml type; refuses with the plugin's name and what is missing. [main thread] */
    wk_status (*find_cuda)(void *user, uint32_t ggml_type, const struct wk_quant_cuda **out, const struct wk_err *err);
    /* CUDA: the function of a custom operation of the program's architecture, and its module; the same. NULL: there is
     * none. [main thread] */
    wk_status (*find_custom)(void *user, const char *architecture, const char *name, const struct wk_arch_cuda **module,
                             const struct wk_custom_cuda **out, const struct wk_err *err);
    void *find_user;
    /* CUDA, of loading: told how far it is, 0 to 1, on the thread that opens; NULL: nobody wants to know. */
    void (*progress)(void *user, double fraction);
    void *progress_user;
    const char *digest;    /* CUDA: 64 hex digits that the weights must have, else nothing is opened; NULL: any */
    uint32_t upload_chunk; /* CUDA: bytes sent at a time; 0: as measured best */
};

/* A device as it is found, before anything is opened on it. */
struct device_info {
    char name[64];         /* "NVIDIA H200" */
    uint32_t index, count; /* of count devices */
    uint32_t major, minor; /* compute capability */
    uint32_t multiprocessors;
    uint32_t driver, runtime; /* CUDA versions, 13000 for 13.0 */
    uint64_t memory;          /* bytes in all */
};
/* taken: by this process's regions; overhead: what is neither free nor taken: context, kernels, other processes. */
struct device_memory {
    uint64_t total, free, taken, overhead;
};

/* The weights as they lie on the device. sealed: all bytes are there, their digest is that of the file's, nothing
 * writes to them. */
struct shard_handle {
    uint32_t gpu_device;
    uint64_t vram_bytes;          /* of everything that the model holds there */
    bool sealed, write_protected; /* write_protected: the driver refuses kernels that would write to the weights */
    char digest[65];              /* SHA-256, "" until it is known */
    uint32_t shard_index, total_shards;
};

struct tape_program;
struct model_weights;
struct executor;

/* Filled with the bytes of tensor `tensor` after every step that a tap asks for; see tape taps. rows: all rows of the
 * step. */
typedef void (*tap_fn)(void *user, const char *name, const float *data, uint32_t rows, uint32_t width);
/* A launch that has run: its kind with the name of its first matrix, equal in all layers; seconds; bytes of weights and
 * cache that it had to read. name: until the call returns. */
typedef void (*launch_fn)(void *user, const char *name, double seconds, uint64_t bytes);

/* What a sampled step gave each of its sequences: id UINT32_MAX where it had no logits row, its slot had come to an
 * end, or no id could be picked. */
struct step_ids {
    uint32_t *ids; /* [n_seqs], caller's */
    bool *failed;  /* [n_seqs], caller's: no id could be picked from the logits (NaN or infinite), or `failed` of the
                      step */
    struct sampler_top *top_logprobs; /* [n_logits_rows], caller's: of rows that asked for log probabilities. Its id is
                                 UINT32_MAX where its sequence got no id or failed. NULL: nothing was asked for */
};

struct sampler_params;
struct sampler_top;

/* A page of a KV group. KV_NO_PAGE: its bytes are passed over. */
struct device_page {
    uint32_t group, page;
};

/* An executor's pages as another process of this host can open them. */
struct device_share {
    int fd;
    uint64_t bytes;       /* of the memory behind it */
    uint32_t kv_pages[8]; /* memory_plan's */
};
struct device_peer; /* another executor's pages, opened */

/* What can be asked of a format's kernels (sdk/rules.md, cuda.*). */
enum device_check {
    DEVICE_CHECK_TILES = 0,
    DEVICE_CHECK_PRODUCT,
    DEVICE_CHECK_ROW,
    DEVICE_CHECK_STREAM,
    DEVICE_CHECKS
};
struct wk_type_cpu;

/* One device. [engine thread] for everything but name. */
struct device_ops {
    const char *name; /* "cpu", "cuda" */
    wk_status (*plan)(const struct tape_program *program, const struct device_options *o, struct memory_plan *out,
                      const struct wk_err *err);
    wk_status (*open)(const struct tape_program *program, const struct model_weights *weights,
                      const struct device_options *o, struct executor **out, const struct wk_err *err);
    wk_status (*step)(struct executor *x, struct step *step, const struct wk_err *err);
    /* Sampling on the device. sampler_set makes a slot ready for a new job: nothing generated yet; after one of the ids
     * `ends` (at most SAMPLER_MAX_ENDS) the slot's later steps give UINT32_MAX, and after a failure too, as failed. The
     * first p->min_ids ids are none of them: they are masked.
     * submit enqueues a step whose logits rows (at most one a sequence, its last) are sampled by their slots' samplers
     * instead of giving logits, and counts the id as generated; it may return before the step has run. step.asks may
     * want log probabilities besides, and of more rows: of those that do not ask nothing is copied or computed. At most
     * STEP_QUEUE steps are in flight; collect waits for the oldest. What `step` points to is copied by submit. A step
     * begins when the one before has ended: a page that no later step reads may be another sequence's in the next,
     * though this one is in flight. A step that is still in flight when its sequence ended
     * computes what nobody reads. */
    wk_status (*sampler_set)(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                             uint32_t n_ends, const struct wk_err *err);
    wk_status (*submit)(struct executor *x, const struct step *step, const struct wk_err *err);
    wk_status (*collect)(struct executor *x, struct step_ids *out, const struct wk_err *err);
    /* A step with masked rows waits: its forward pass is in flight, its ids come after its masks. So masks are made
     * while the device computes, and may follow from the ids of the step before. Until `mask` the step is not collected
     * and no other is submitted; older ones may be collected, and samplers of slots that are not in it set.
     * step: as submitted, with all that it points to. masks [n_logits_rows]: of each masked row [ceil(n_vocab / 64)]
     * words (step 3 of sample.h; the ends that min_ids forbids are masked besides), which are copied. A mask belongs to
     * its row, whatever runs the device cuts the step into. A mask that allows nothing fails its row. An error ends the
     * step as one of submit does. */
    wk_status (*mask)(struct executor *x, const struct step *step, const uint64_t *const *masks,
                      const struct wk_err *err);
    uint32_t run_ahead; /* steps worth having in flight, 1 to STEP_QUEUE; 1: submit itself runs them */
    /* Of an executor opened with hand_over: bytes of pages, of one after the other (memory_plan.kv_page_bytes of its
     * group: its layers in their order), to and from host memory, beside the steps. No step in flight may write to
     * pages that are read, nor read or write those that are written; steps submitted afterwards see what was written.
     * WK_INVALID: there is no such page. [any thread; several at once] */
    wk_status (*pages_read)(struct executor *x, const struct device_page *pages, uint32_t n, void *out,
                            const struct wk_err *err);
    wk_status (*pages_write)(struct executor *x, const struct device_page *pages, uint32_t n, const void *bytes,
                             const struct wk_err *err);
    void (*taps)(struct executor *x, tap_fn fn, void *user); /* NULL fn: off */
    void (*memory)(const struct executor *x, struct memory_plan *used);
    void (*close)(struct executor *x); /* NULL allowed */

    /* Devices other than the CPU; NULL there. */
    /* Host memory between whose `bytes` and pages nothing is copied by the processor, until it is unpinned: a multiple
     * of the machine's pages. [any thread] */
    wk_status (*pin)(struct executor *x, void *memory, uint64_t bytes, const struct wk_err *err);
    void (*unpin)(struct executor *x, void *memory);
    /* The executor's memory of pages; out->fd is the caller's. WK_UNSUPPORTED: driver or machine cannot, and why.
     * [any thread] */
    wk_status (*share)(struct executor *x, struct device_share *out, const struct wk_err *err);
    /* Another executor's, of the same program and layout; share->fd stays the caller's. WK_UNSUPPORTED: not from this
     * device; WK_INVALID: it is no such memory. [any thread] */
    wk_status (*peer_open)(struct executor *x, const struct device_share *share, struct device_peer **out,
                           const struct wk_err *err);
    /* Pages from[i] of the peer into pages to[i], as pages_write does; KV_NO_PAGE in `to` is passed over. */
    wk_status (*peer_read)(struct executor *x, struct device_peer *p, const struct device_page *from,
                           const struct device_page *to, uint32_t n, const struct wk_err *err);
    void (*peer_close)(struct executor *x, struct device_peer *p); /* NULL allowed [any thread] */
    /* Is there such a device, and can it run this? Takes nothing on it. WK_UNSUPPORTED: no driver, an old one, or no
     * device at all; WK_INVALID: this index is not there or is too old; each its own text. */
    wk_status (*probe)(uint32_t gpu, struct device_info *out, const struct wk_err *err);
    /* Begins what takes time and depends on no model, in a thread. memory and open wait for it. */
    void (*warm)(uint32_t gpu);
    /* Makes the device the calling thread's, too: a thread that is to run steps and did not open the executor begins
     * with it. */
    wk_status (*device_memory)(uint32_t gpu, struct device_memory *out, const struct wk_err *err);
    void (*handle)(const struct executor *x, struct shard_handle *out); /* [any thread] */
    /* The compute capability (80: 8.0) of the PTX that the driver compiled the device's kernels from, since this build
     * has no machine code for the GPU; 0: it has. [any thread] */
    uint32_t (*ptx)(const struct executor *x);
    wk_status (*seal)(struct executor *x, const struct wk_err *err); /* waits until the handle is sealed, or fails */
    wk_status (*verify)(struct executor *x, char digest[65],
                        const struct wk_err *err); /* the digest again, from device memory */
    wk_status (*residency)(struct executor *x,
                           const struct wk_err *err); /* every byte in device memory, and nowhere else? */
    /* From now on `step` tells fn of every launch on generated rows but the first, and takes longer; NULL fn: off. No
     * other thread uses the device meanwhile. */
    void (*launches)(struct executor *x, launch_fn fn, void *user);
    wk_status (*bandwidth)(struct executor *x, double *out,
                           const struct wk_err *err); /* bytes a second that reading alone reaches, measured */
    /* Holds the kernels of one type to a rule, beside the type's CPU side: in a process that does nothing else and
     * ends. WK_UNSUPPORTED: the module has none of the type; any other failure: the rule is broken, and how. */
    wk_status (*check_format)(uint32_t gpu, enum device_check what, const struct wk_quant_cuda *module,
                              const struct wk_type_cpu *cpu, const struct wk_err *err);
    bool (*dead)(void); /* true: an error ended the device's context, the process has to end. [any thread] */
};

const struct device_ops *device_cpu(void);
/* Loads the CUDA module of this installation, device-cuda.so, once a process. WK_UNSUPPORTED: there is none, or it
 * cannot be used, and why. No device is looked at: that is probe's. [main thread] */
wk_status device_cuda(const struct device_ops **out, const struct wk_err *err);

struct plugin_calls;

/* What device-cuda.so exports, as DEVICE_CUDA_SYMBOL. Module and program come from one build and say
 * so to each other. */
struct device_module {
    uint32_t struct_size, ops_size;
    char version[16]; /* of the program */
    uint64_t layout;  /* WK_LAYOUT_CUDA */
    const struct device_ops *ops;
    /* Before anything else of the module. calls: whom it tells of calls of plugins (core/plugin/call.h). */
    wk_status (*start)(const struct plugin_calls *calls, const struct wk_err *err);
};
#define DEVICE_CUDA_SYMBOL "worker_device_cuda_v0"

#endif
