/* mixture.h: which type `worker quantize` gives to each tensor. Knows names of types and the rules that model files
 * follow, never the bits or the geometry of a type: those come from the plugins. */
#ifndef WORKER_MIXTURE_H
#define WORKER_MIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/gguf.h"
#include "plugin/plugin.h"

struct mixture {
    const char *name;   /* "Q4_K_M" */
    const char *base;   /* every matrix that no rule gives another type */
    const char *head;   /* output.weight, or token_embd.weight where the output is tied to it */
    uint32_t rules;     /* mask: which rules apply */
    uint32_t file_type; /* general.file_type */
};

/* What the rules read of the model's metadata. */
struct mixture_model {
    uint32_t layers, experts, sharing; /* sharing: query heads of a value head */
    uint32_t ahead;                    /* of the layers, the last ones: they predict tokens further ahead */
    bool tied;                         /* no output.weight */
    bool llama_70b;                    /* eighty llama layers: eight query heads share one value head */
    bool weighed;                      /* an importance matrix is given */
};

const struct mixture *mixture_named(const char *name); /* any case; NULL: not a mixture */
struct mixture_model mixture_model_of(const struct gguf *file, bool weighed);

/* True if the tensor stays as it is: vectors, biases, norms, routers, convolutions of states, learned positions and
 * kinds of tokens. */
bool mixture_keeps(const struct gguf_tensor *t);
/* A matrix of a layer that the model's steps read: not one outside the layers, nor of those that predict further ahead.
 */
bool mixture_is_of_step(const struct mixture_model *m, const struct gguf_tensor *t);
/* Name of the type that the rules give, before any fallback. */
const char *mixture_type(const struct mixture *m, const struct mixture_model *model, const struct gguf_tensor *t);
/* Is it the head: output.weight, or the token_embd.weight that it is tied to? */
bool mixture_is_head(const struct mixture_model *model, const struct gguf_tensor *t);
/* The type to take instead where a row does not divide into the blocks of `type`, of the head Q8_0; NULL: there is
 * none. */
const char *mixture_fallback(const char *type, bool head);

#endif
