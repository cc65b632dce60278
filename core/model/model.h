/* model.h: one opened model: a GGUF file, its architecture and quantization plugins, its tape and an executor on a
 * device.
 *
 * Opening is in phases that can stop early: inspect the file, plan (bytes known before anything is allocated), load. */
#ifndef CORE_MODEL_MODEL_H
#define CORE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "device/device.h"
#include "gguf/gguf.h"
#include "plugin/plugin.h"
#include "tape/tape.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_CONTEXT = 4096, DEFAULT_ROWS = 512, MODEL_NAME = 128 };

/* A LoRA adapter to be opened with a model. */
struct adapter_source {
    const char *path; /* alive as long as the model */
    double scale;     /* 0: it is checked, and changes nothing */
};

struct model_options {
    const struct device_ops *device;
    struct device_options
        dev;       /* context 0: min(the file's, DEFAULT_CONTEXT); max_*: 0: 1 sequence, 512 rows, all of them wanted */
    uint32_t fuse; /* FUSE_* */
    enum tape_pooling pooling; /* of a model that generates and whose file does not say: it gives embeddings */
    const char *const *taps;
    uint32_t n_taps;
    const char
        *tokenizer; /* path of a tokenizer.json; NULL: the file's vocabulary, else the tokenizer.json beside it */
    const char *const *accept; /* [n_accept] keys that the file may have unread; alive as long as the model */
    uint32_t n_accept;
    const struct adapter_source *adapters; /* [n_adapters], at most ADAPTERS_MAX, added in this order; read by
                                              model_plan alone */
    uint32_t n_adapters;
    bool identify;                  /* loading makes the model's identity */
    const struct wk_plugin *plugin; /* whose architecture the model is, whoever else serves it; NULL: as the registry
                                       has it */
};

struct model {
    struct gguf *file;
    const struct plugin_registry *plugins;
    const struct wk_arch *arch;
    const struct wk_host *host; /* what its plugin was given */
    struct adapter *adapters;   /* [n_adapters]; their files are the model's */
    uint32_t n_adapters;
    struct tape_program *program;
    struct tokenizer *tokenizer; /* NULL: there is none */
    const struct device_ops *device;
    struct device_options dev; /* as resolved */
    uint32_t step_rows;        /* of a step as asked for; dev.max_rows may be more, for a text that must be one step */
    struct memory_plan plan;
    struct executor *executor;     /* NULL after model_plan */
    char name[MODEL_NAME];         /* model_name */
    struct gguf_accepted accepted; /* used: keys without which it would have been refused */
    bool identify;
    char identity[65]; /* of a loaded model, with model_options.identify: model_identity's; else "" */
    char digest[65];   /* where the weights stay in the file and a digest was demanded: model_digest's; else "" */
    /* Of sessions; an engine that deals pages itself opens none. */
    bool *session_slots; /* [dev.max_sequences] taken */
    struct {
        uint32_t n, *ids;
    } session_pages[TAPE_MAX_GROUPS]; /* free ones of groups of bounded span: sessions take them for a step's rows */
};

/* The weights as an executor sees them: bytes in the mapping. */
struct model_weights {
    const struct gguf *file;
};

/* general.name, else the file's stem, as answers, metrics and terminals can show it: UTF-8, with U+FFFD for control
 * characters and what is no character, cut to fit. */
void model_name(const struct gguf *file, char out[MODEL_NAME]);

/* File, plugins, tape and plan; allocates no device memory. `file` becomes the model's, also on failure. */
wk_status model_plan(struct gguf *file, const struct plugin_registry *plugins, const struct model_options *o,
                     struct model **out, const struct wk_err *err);
/* SHA-256 over the tensors' bytes as in the file and in its order, and then those of each adapter that changes
 * something: reads all of them. hex: 64 lower-case digits. stop:
 * may become true meanwhile: WK_CANCELLED; NULL: never. Not once a device has them and the file was released.
 * [any thread] */
wk_status model_digest(const struct model *m, const atomic_bool *stop, char hex[65], const struct wk_err *err);
/* SHA-256 over the headers of the file, and of each adapter that changes something, their size and a place of every
 * tensor, or all of the weights if these are at most 64 MiB: costs no full read, and tells files of other models,
 * formats and fine-tunings apart, but not every two of larger ones. As model_digest otherwise. */
wk_status model_identity(const struct model *m, char hex[65], const struct wk_err *err);

/* Makes the executor; the model can run steps afterwards. On failure the model stays planned. A demanded digest is
 * checked, before anything is made where the weights stay in the file. */
wk_status model_load(struct model *m, const struct wk_err *err);
void model_close(struct model *m); /* NULL allowed */
/* WK_UNSUPPORTED: its steps give no next tokens. [any thread] */
wk_status model_generates(const struct model *m, const struct wk_err *err);

/* Are its rows scores of two texts, and not embeddings: by the file's pooling_type, or, where it has none, by a
 * reranker's cls.output.weight? [any thread] */
bool model_ranks(const struct model *m);
/* Does the file say that texts become embeddings or scores? (A caller's pooling may say it besides.) [any thread] */
bool model_pools(const struct gguf *file);

/* Bytes of KV cache to take where nobody said how many: those of the plan, made with dev.kv_bytes 0, but no more than
 * `available` bytes of the device's memory leave beside the rest of it (of host memory half, of a GPU's all but a
 * reserve). available 0: unknown. */
uint64_t model_kv_auto(const struct model *m, uint64_t available);
/* Plans again with so many; before model_load. */
wk_status model_set_kv(struct model *m, uint64_t kv_bytes, const struct wk_err *err);

/* One sequence with an equal share of the cache, for callers that run one thing at a time
 * (run, score, bench, tests). */
struct session;
wk_status session_open(struct model *m, struct session **out, const struct wk_err *err);
void session_close(struct session *s);
/* Appends n tokens at the end and computes logits of the last `logits_rows` of them into logits [logits_rows][n_vocab]
 * (logits_rows <= n; logits NULL iff that is 0). Longer runs are cut into chunks of dev.max_rows, but where a prompt is
 * one step (see tape_whole_prompt): there n are all its tokens, at most dev.max_rows, and at most dev.max_logits_rows
 * are logits rows. */
wk_status session_feed(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role, uint32_t logits_rows,
                       float *logits, const struct wk_err *err);
/* The same for a pair of texts, of a model that gives embeddings: tokens from `second` on are the second text's (see
 * step_seq.second). */
wk_status session_feed_pair(struct session *s, const uint32_t *tokens, uint32_t n, uint32_t second,
                            const struct wk_err *err);
/* The row of the whole prompt that the last feed gave [embedding_width], until the next; NULL: the model gives none. */
const float *session_embedding(const struct session *s);
uint32_t session_length(const struct session *s);
void session_reset(struct session *s);

#endif
