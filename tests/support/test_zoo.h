/* test_zoo.h: small random models that between them use every operation, and what they compute in float64. */
#ifndef TESTS_SUPPORT_TEST_ZOO_H
#define TESTS_SUPPORT_TEST_ZOO_H

#include "plugin/plugin.h"
#include "tape/tape.h"

enum { ZOO_VOCAB = 100, ZOO_CONTEXT = 1536, ZOO_BAD_TOKEN = 99 /* its embedding is infinite, but in ZOO_DENSE */ };

enum zoo_kind {
    ZOO_DENSE, /* row ranges of a fused tensor, biases, head norms, partial rotation, grouped heads, windows, soft-caps,
                  tied head */
    ZOO_LEARNED,   /* learned positions, layer norm, heads of unequal k and v, every map, mul, cols, custom */
    ZOO_EXPERTS,   /* all routes, experts with biases, clamped and erf gates, sinks, a shared expert */
    ZOO_EMBEDDING, /* mean pooling, L2 */
    ZOO_WIDE,      /* one KV head, long context: attention cut by position */
    ZOO_MAPS,      /* ZOO_LEARNED without its custom operation */
    ZOO_WINDOWS,   /* windows alone, of many widths */
    ZOO_ROUTES,    /* every score, bias and groups of routes, weights on inputs, sums without; columns and concatenation
                      by groups, vectors, constant rows, factors that repeat */
    ZOO_HEADS,     /* products by heads */
    ZOO_CLASSES,   /* ZOO_EMBEDDING with products and a function behind pool */
    ZOO_STATES,    /* states alone: convolutions of few rows and of more than a page, scan, delta rule */
    ZOO_HYBRID,    /* attention with and without a window, a scan, a convolution of one row */
    ZOO_CHUNKS,    /* attention in chunks, with slopes, over another layer's cache */
    ZOO_LATENT,    /* values that are parts of keys */
    ZOO_BOTH,      /* attention in both directions, pooled */
    ZOO_KINDS
};
const char *zoo_name(enum zoo_kind kind);

struct zoo {
    const struct gguf *file; /* kept until zoo_free */
    struct tape_program *program;
};

/* Fails the test on any error. */
void zoo_open(struct zoo *z, enum zoo_kind kind, const struct plugin_registry *plugins, uint32_t fuse,
              const char *const *taps, uint32_t n_taps);
void zoo_close(struct zoo *z);
void zoo_free(void);
/* Writes the bytes of a kind that was opened to a file. */
void zoo_save(enum zoo_kind kind, const char *path);
/* Records the tape of an open file of this kind. */
struct tape_program *zoo_record(const struct gguf *file, enum zoo_kind kind, const struct plugin_registry *plugins,
                                uint32_t fuse, const char *const *taps, uint32_t n_taps);

/* The pages of a device's cache, dealt to sequences as a step needs them and taken back behind windows, so that every
 * page serves many. */
struct memory_plan;
struct zoo_pages {
    const struct tape_program *program;
    uint32_t *free[TAPE_MAX_GROUPS], n_free[TAPE_MAX_GROUPS];
};
struct zoo_tables {
    uint32_t *pages[TAPE_MAX_GROUPS]; /* a page for each block, or KV_NO_PAGE */
    const uint32_t *tables[TAPE_MAX_GROUPS];
};
void zoo_pages_open(struct zoo_pages *p, const struct tape_program *program, const struct memory_plan *plan,
                    uint32_t order); /* order 0: ascending, else shuffled by it */
void zoo_pages_close(struct zoo_pages *p);
void zoo_tables_open(struct zoo_tables *t, uint32_t n_groups);
void zoo_tables_close(struct zoo_tables *t);
/* The sequence has pages for what its rows [position, position + n) see and store, and for no more; but for what rows
 * up to `back` positions before see. Of states, of the blocks that a step passes, some have none. */
void zoo_hold(struct zoo_pages *p, struct zoo_tables *t, uint32_t position, uint32_t n, uint32_t back);

/* Every value of a program for one sequence of n tokens, those from position `second` on of type 1 (0: none),
 * operation by operation, in double. value[v]: [n][slots *
 * width]. */
struct reference {
    uint32_t n;
    double **value;  /* [n_values] */
    uint32_t **ids;  /* [n_values], of routes */
    double **scores; /* [n_values], of attentions: [n][heads][n], -inf where nothing is seen */
    double *embedding;
    uint32_t n_values;
};
void reference_run(struct reference *r, const struct tape_program *p, const uint32_t *tokens, uint32_t n,
                   uint32_t second);
/* Where the tests' sequence s has its second text (step_seq.second); the first of them is the reference's. */
static inline uint32_t zoo_second(uint32_t s) { return s % 4 == 3 ? 0 : 23 + 5 * s; }
void reference_free(struct reference *r);

#endif
