/* model_facts.h: what handlers need of the model that is served. It is made once, when the model is open, and constant
 * until it is closed, so every thread may read it. What opens, watches and describes a model itself (load.c,
 * identity.c, watch.c, health.c, live.c) has it whole: serve_model.model. */
#ifndef SERVE_MODEL_FACTS_H
#define SERVE_MODEL_FACTS_H

#include "model/model.h"

/* Pointers are the model's. */
struct model_facts {
    const struct tokenizer *tokenizer;  /* never NULL */
    const struct gguf *file;            /* for its metadata */
    const struct tape_program *program; /* the recorded pass, for a descriptor of it */
    const char *architecture;           /* as in general.architecture */
    const struct adapter *adapters;     /* [n_adapters], those of scale 0 among them */
    uint32_t n_adapters;
    const char *identity;         /* 64 hex digits of model_identity, or "" */
    uint32_t n_vocab;             /* ids are below it */
    uint32_t context;             /* positions that a sequence can have here: prompt and answer */
    uint32_t trained_context;     /* positions that the file promises; 0: it does not say */
    uint32_t width;               /* numbers of an embedding, or a reranker's scores; 0: it generates */
    bool ranks;                   /* they are scores of a query and a document */
    uint32_t positive;            /* of scores: the one that says yes; UINT32_MAX: the labels are of another kind */
    uint32_t attention_layers;    /* layers that keep something in the KV cache */
    uint64_t bytes[MEMORY_KINDS]; /* of device memory, or of the host's on a CPU */
    uint64_t total_bytes;         /* of these */
    uint64_t position_bytes;      /* of the KV cache, for each position of a sequence; states not counted */
    bool on_gpu;                  /* the weights are in a GPU's memory: there is a handle */

    /* Of model_facts.c. */
    const struct device_ops *device;
    const struct executor *executor;
};

/* Of a loaded model that has a tokenizer. */
struct model_facts model_facts_of(const struct model *m);
/* Where the weights lie and whether they are sealed. On a CPU, where there is nothing to say, all zero. */
struct shard_handle model_facts_handle(const struct model_facts *f);

#endif
