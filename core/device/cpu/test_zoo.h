/* test_zoo.h: small random models that between them use every operation, and what they compute in float64. */
#ifndef CORE_DEVICE_CPU_TEST_ZOO_H
#define CORE_DEVICE_CPU_TEST_ZOO_H

#include "plugin/plugin.h"
#include "tape/tape.h"

enum { ZOO_VOCAB = 100, ZOO_CONTEXT = 1536, ZOO_BAD_TOKEN = 99 /* its embedding is infinite, but in ZOO_DENSE */ };

enum zoo_kind {
    ZOO_DENSE,     /* row ranges of a fused tensor, biases, head norms, partial rotation, grouped heads, windows, soft-caps, tied head */
    ZOO_LEARNED,   /* learned positions, layer norm, heads of unequal k and v, every map, mul, cols, custom */
    ZOO_EXPERTS,   /* all routes, experts with biases, clamped and erf gates, sinks, a shared expert */
    ZOO_EMBEDDING, /* mean pooling, L2 */
    ZOO_WIDE,      /* one KV head, long context: attention cut by position */
    ZOO_MAPS,      /* ZOO_LEARNED without its custom operation */
    ZOO_KINDS
};
const char *zoo_name(enum zoo_kind kind);

struct zoo {
    const struct gguf *file; /* kept until zoo_free */
    struct tape_program *program;
};

/* Fails the test on any error. */
void zoo_open(struct zoo *z, enum zoo_kind kind, const struct plugin_registry *plugins, uint32_t max_rows, uint32_t fuse, const char *const *taps, uint32_t n_taps);
void zoo_close(struct zoo *z);
void zoo_free(void);
/* Writes the bytes of a kind that was opened to a file. */
void zoo_save(enum zoo_kind kind, const char *path);
/* Records the tape of an open file of this kind. */
struct tape_program *zoo_record(const struct gguf *file, enum zoo_kind kind, const struct plugin_registry *plugins, uint32_t max_rows, uint32_t fuse, const char *const *taps, uint32_t n_taps);

/* Every value of a program for one sequence of n tokens, operation by operation, in double. value[v]: [n][slots * width]. */
struct reference {
    uint32_t n;
    double **value;   /* [n_values] */
    uint32_t **ids;   /* [n_values], of routes */
    double **scores;  /* [n_values], of attentions: [n][heads][n], -inf where nothing is seen */
    double *embedding;
    uint32_t n_values;
};
void reference_run(struct reference *r, const struct tape_program *p, const uint32_t *tokens, uint32_t n);
void reference_free(struct reference *r);

#endif
