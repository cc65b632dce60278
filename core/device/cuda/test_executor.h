/* test_executor.h: what the tests of the CUDA executor share: small models that use every operation
 * (tests/support/test_zoo.c) opened on the device, sequences, and steps over them. Included by test programs alone. */
#ifndef WORKER_DEVICE_CUDA_TEST_EXECUTOR_H
#define WORKER_DEVICE_CUDA_TEST_EXECUTOR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_zoo.h"
#include "device/cuda/executor.h"
#include "device/cuda/module.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "sample/sample.h"

#include <cmocka.h>

enum { SEQUENCES = 64, MOST_SEQUENCES = 256, ROWS = 320, V = ZOO_VOCAB, BACK = 40 /* positions that tests go back */ };

static const struct device_ops *const cuda = &cuda_device_ops;
static struct plugin_registry *plugins;
static char text[2048];
static const struct wk_err err = { text, sizeof text };

/* ---- sequences ----------------------------------------------------------------------------------------- */

struct sequence {
    uint32_t tokens[ZOO_CONTEXT], position;
    struct zoo_tables kv;
    float *logits; /* [ZOO_CONTEXT][V] */
    float pooled[256];
    bool failed;
};

struct bench {
    struct zoo z;
    struct executor *x;
    struct memory_plan plan;
    struct zoo_pages pages;
    struct sequence *s; /* [sequences] */
    uint32_t random;
};

struct batch { /* a step under construction */
    struct step_seq seqs[MOST_SEQUENCES];
    uint32_t tokens[ROWS], logits_rows[ROWS], of[MOST_SEQUENCES];
    struct step st;
};

static struct batch t; /* what every test builds; empty after run and after every opening */

static inline uint32_t draw(struct bench *b, uint32_t below)
{
    b->random = b->random * 1664525u + 1013904223u;
    return (b->random >> 8) % below;
}

static const struct wk_quant_cuda *plain; /* NULL: the plugins' own kernels */

extern const struct wk_arch_cuda test_swirl; /* test_swirl.cu */
static inline wk_status find_custom(void *user, const char *architecture, const char *name,
                                    const struct wk_arch_cuda **module, const struct wk_custom_cuda **out,
                                    const struct wk_err *e)
{
    (void)user;
    (void)e;
    assert_string_equal(architecture, "zoo");
    assert_string_equal(name, "swirl");
    *module = &test_swirl;
    *out = test_swirl.customs;
    return WK_OK;
}
static inline wk_status find_cuda(void *user, uint32_t type, const struct wk_quant_cuda **out, const struct wk_err *e)
{
    if (!plain) return plugin_find_cuda(user, type, out, e);
    *out = plain;
    return WK_OK;
}

static uint32_t step_rows = ROWS, sequences = SEQUENCES;
static bool hand_over;

static inline struct device_options options(void)
{
    return (struct device_options){ .kv_type = KV_F16,
                                    .context = ZOO_CONTEXT,
                                    .max_sequences = sequences,
                                    .kv_sequences = 2 * sequences,
                                    .max_rows = step_rows,
                                    .max_logits_rows = step_rows,
                                    .hand_over = hand_over,
                                    .find_cuda = find_cuda,
                                    .find_custom = find_custom,
                                    .find_user = plugins };
}

static inline void bench_open(struct bench *b, enum zoo_kind kind, uint32_t fuse, bool shuffled,
                              const char *const *taps, uint32_t n_taps)
{
    memset(b, 0, sizeof *b);
    memset(&t, 0, sizeof t);
    b->random = 5;
    b->s = calloc(sequences, sizeof *b->s);
    assert_non_null(b->s);
    zoo_open(&b->z, kind, plugins, fuse, taps, n_taps);
    const struct model_weights w = { b->z.file };
    const struct device_options o = options();
    if (cuda->plan(b->z.program, &o, &b->plan, &err) || cuda->open(b->z.program, &w, &o, &b->x, &err))
        fail_msg("%s: %s", zoo_name(kind), text);
    zoo_pages_open(&b->pages, b->z.program, &b->plan, shuffled ? 5 : 0);
    for (uint32_t s = 0; s < sequences; s++) {
        zoo_tables_open(&b->s[s].kv, b->z.program->n_groups);
        uint32_t r = 100 + s;
        for (uint32_t i = 0; i < ZOO_CONTEXT; i++) {
            r = r * 1664525u + 1013904223u;
            b->s[s].tokens[i] = (r >> 10) % ZOO_BAD_TOKEN;
        }
        b->s[s].logits = calloc((size_t)ZOO_CONTEXT * V, sizeof(float));
        assert_non_null(b->s[s].logits);
    }
}

static inline void bench_close(struct bench *b)
{
    cuda->close(b->x);
    zoo_pages_close(&b->pages);
    for (uint32_t s = 0; s < sequences; s++) {
        zoo_tables_close(&b->s[s].kv);
        free(b->s[s].logits);
    }
    free(b->s);
    zoo_close(&b->z);
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* The next n tokens of sequence s; rows from position `from` on are wanted. */
static inline void add(struct bench *b, struct batch *to, uint32_t s, uint32_t n, enum row_role role, uint32_t from)
{
    struct sequence *q = &b->s[s];
    zoo_hold(&b->pages, &q->kv, q->position, n, BACK);
    to->seqs[to->st.n_seqs] = (struct step_seq){ .row = to->st.n_rows,
                                                 .n_rows = n,
                                                 .position = q->position,
                                                 .role = role,
                                                 .pages = q->kv.tables,
                                                 .slot = s,
                                                 .second = zoo_second(s) };
    to->of[to->st.n_seqs++] = s;
    for (uint32_t i = 0; i < n; i++) {
        if (q->position + i >= from) to->logits_rows[to->st.n_logits_rows++] = to->st.n_rows;
        to->tokens[to->st.n_rows++] = q->tokens[q->position + i];
    }
    to->st.tokens = to->tokens;
    to->st.seqs = to->seqs;
    to->st.logits_rows = to->logits_rows;
}

static inline void run(struct bench *b, struct batch *of)
{
    struct step *st = &of->st;
    float *logits = calloc((size_t)ROWS * V, sizeof *logits), *pooled = calloc((size_t)sequences * 256, sizeof *pooled);
    assert_non_null(logits);
    assert_non_null(pooled);
    st->logits = logits;
    st->pooled = b->z.program->embedding_width ? pooled : NULL;
    if (cuda->step(b->x, st, &err)) fail_msg("%s", text);
    for (uint32_t i = 0; i < st->n_logits_rows; i++) {
        uint32_t seq = 0;
        while (of->seqs[seq].row + of->seqs[seq].n_rows <= of->logits_rows[i]) seq++;
        const uint32_t position = of->seqs[seq].position + of->logits_rows[i] - of->seqs[seq].row;
        memcpy(b->s[of->of[seq]].logits + (size_t)position * V, logits + (size_t)i * V, V * sizeof *logits);
    }
    for (uint32_t i = 0; i < st->n_seqs; i++) {
        struct sequence *s = &b->s[of->of[i]];
        s->failed |= of->seqs[i].failed;
        s->position += of->seqs[i].n_rows;
        zoo_hold(&b->pages, &s->kv, s->position, 0, BACK);
        memcpy(s->pooled, pooled + (size_t)i * 256, sizeof s->pooled);
    }
    free(logits);
    free(pooled);
    memset(of, 0, sizeof *of);
}

static inline void prompt(struct bench *b, uint32_t s, uint32_t n, uint32_t from)
{
    add(b, &t, s, n, ROW_PROMPT, from);
    run(b, &t);
}

static inline void same_bits(const float *a, const float *b, size_t n, const char *what, uint32_t detail)
{
    size_t wrong = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (memcmp(a + i, b + i, sizeof *a)) wrong++, first = i;
    if (wrong)
        fail_msg("%s %u: %zu of %zu logits, first row %zu, logit %zu: %.9g and %.9g", what, detail, wrong, n, first / V,
                 first % V, (double)a[first], (double)b[first]);
}

static const enum zoo_kind kinds[] = { ZOO_DENSE,   ZOO_MAPS,    ZOO_EXPERTS, ZOO_EMBEDDING, ZOO_WIDE,
                                       ZOO_WINDOWS, ZOO_ROUTES,  ZOO_CHUNKS,  ZOO_BOTH,      ZOO_HEADS,
                                       ZOO_CLASSES, ZOO_LEARNED, ZOO_STATES,  ZOO_HYBRID,    ZOO_LATENT };
static const enum zoo_kind chat_kinds[] = { ZOO_DENSE, ZOO_MAPS,    ZOO_EXPERTS, ZOO_WINDOWS, ZOO_ROUTES, ZOO_CHUNKS,
                                            ZOO_HEADS, ZOO_LEARNED, ZOO_STATES,  ZOO_HYBRID,  ZOO_LATENT };
/* The first can be gone on from at any row whose pages are there; states only where they are. */
enum { KINDS = sizeof kinds / sizeof *kinds, CHAT_KINDS = sizeof chat_kinds / sizeof *chat_kinds, STATELESS = 8 };

/* Opens the plugins and runs `tests` in it, or skips (77) where there is no GPU. */
static inline int test_main(int (*tests)(int argc, char **argv), int argc, char **argv)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &plugins, &err)) {
        printf("%s\n", text);
        return 1;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    const int failed = tests(argc, argv);
    zoo_free();
    plugin_registry_close(plugins);
    return failed;
}

#endif
