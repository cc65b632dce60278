/* golden.h: golden logits of real and tiny models, and how far others are from them. For tests alone: what goes wrong
 * fails the test. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf_build.h"
#include "model/model.h"

struct golden {
    uint32_t n_vocab, n_prompt, n_generated, n_steps;
    uint32_t *tokens; /* [n_prompt + n_generated] */
    float *logits;    /* [n_steps][n_vocab] */
    bool embedding;   /* an encoder's: one step, the prompt's row instead of logits */
    uint32_t second;  /* of an encoder of pairs: tokens before the second text; 0: it is one text */
};

/* One line of a list of cases: MODEL GOLDEN CONTEXT LOOSE [truncate] [lora=FILE:SCALE ...]; # begins a comment. */
enum { GOLDEN_ADAPTERS = 4 };
struct golden_case {
    char model[96], golden[96]; /* below WORKER_TEST_DATA */
    uint32_t context;           /* the golden's own: LongRoPE chooses its factors by it */
    double loose;               /* bound of the relative rms with 8-bit activations */
    bool truncate;              /* the golden rounds YaRN's bounds, as llama.cpp does */
    uint32_t n_adapters;
    struct golden_adapter {
        char path[512]; /* complete */
        double scale;
    } adapters[GOLDEN_ADAPTERS];
};
/* The cases of a list, the caller's to free; NULL, and a line on standard error: it cannot be read, or has none. */
struct golden_case *golden_cases(const char *list, uint32_t *n);

/* Its adapters as model_options has them; out [n_adapters]. */
void golden_sources(const struct golden_case *c, struct adapter_source out[GOLDEN_ADAPTERS]);

/* A file's place among the test data. */
void golden_path(char *out, size_t cap, const char *name);
void golden_read(const char *name, struct golden *g);
void golden_free(struct golden *g);

/* A model of the test data. truncate: a copy in memory that asks for YaRN's bounds rounded to whole pairs, *built
 * behind it; else *built is NULL. */
struct gguf *golden_open(const char *model, bool truncate, struct gguf_build **built);

struct golden_distance {
    double rms, element; /* of all logits, and of the one farthest off, in standard deviations of the golden's */
    double most;         /* the latter as it is */
    uint32_t wrong;      /* other choices although the gap is twice that */
};
struct golden_distance golden_compare(const struct golden *g, const float *y); /* y: [n_steps][n_vocab] */
/* The same without the `left_out` positions that are farthest off: where rounding decides between experts, the others'
 * logits are another function's. */
struct golden_distance golden_compare_but(const struct golden *g, const float *y, uint32_t left_out);
uint32_t golden_argmax(const float *x, uint32_t n);

#endif
