/* quant.h: what the checks of a format share: calls that survive a fault, noise, and matrices with the results that
 * their products should have. A check stops at the first fault of a type and goes on with the next type. Nothing is
 * freed: every check has a process of its own. */
#ifndef CORE_CHECK_QUANT_H
#define CORE_CHECK_QUANT_H

#include "check/guard.h"
#include "check/internal.h"
#include "plugin/format.h"

enum { QUANT_TEXT = 256 };

/* Calls run(c, t) of every type of the plugin. */
void quant_each_type(struct check *c, void (*run)(struct check *c, const struct wk_type_cpu *t));

/* ---- memory that nobody watches: 256-byte aligned, zero, with room beside it; never NULL: the check ends without it
 * --
 */
void *quant_memory(struct check *c, uint64_t bytes);

/* ---- calls: `what` is how texts begin; false: the call ended with a fault, which has been told ---- */
/* fn(user), which calls `function` of the plugin's, `name`: told when it does not return. */
bool quant_call(struct check *c, const char *what, void (*fn)(void *user), void *user, uintptr_t function,
                const char *name);
bool quant_dequantize(struct check *c, const char *what, const struct wk_type_cpu *t, float *y, const void *blocks,
                      uint64_t n);
/* q: without struct_size and tensor. text: [room], what a failure said. */
bool quant_quantize(struct check *c, const char *what, const struct wk_type_cpu *t, struct wk_quantize q,
                    wk_status *status, char *text, size_t room);
bool quant_pack(struct check *c, const char *what, const struct wk_type_cpu *t, void *tile, const void *const *rows,
                uint32_t k);
bool quant_unpack(struct check *c, const char *what, const struct wk_type_cpu *t, void *const *rows, const void *tile,
                  uint32_t k);
/* p: without struct_size and tensor. */
bool quant_product(struct check *c, const char *what, format_product product, struct wk_cpu_product p);
/* fn(user) on a thread with a stack of 256 KiB; where there is none to be had, the check ends. */
void quant_on_thread(struct check *c, void (*fn)(void *user), void *user);

/* ---- types --------------------------------------------------------------------------------------------- */
static inline uint64_t quant_row_bytes(const struct wk_type_cpu *t, uint32_t k)
{
    return (uint64_t)(k / t->block) * t->block_bytes;
}
/* Values of the short row that most checks do with: about 64, or one block. */
static inline uint32_t quant_short_row(const struct wk_type_cpu *t)
{
    return t->block <= 32 ? t->block * (64 / t->block) : t->block;
}
/* Row lengths of a type: one block, odd numbers of blocks, and more than a thousand values. */
enum { QUANT_LENGTHS = 4 };
uint32_t quant_length(const struct wk_type_cpu *t, uint32_t i);
/* "type q4_K: product for avx2, 8-bit activations" */
const char *quant_product_name(const struct wk_type_cpu *t, uint32_t isa, uint32_t form, char text[QUANT_TEXT]);
/* The product for a set, if it is to be looked at: the type has one and the processor runs it; or --isa names the set,
 * and it is what the host takes for it. */
format_product quant_product_of(const struct check *c, const struct wk_type_cpu *t, uint32_t isa);
/* One row of k values x times the one tile that `tile` holds: F32, no biases. y: [WK_TILE_ROWS]. */
static inline struct wk_cpu_product quant_one_row(uint32_t k, const void *tile, const float *x, float *y, void *scratch)
{
    return (struct wk_cpu_product){ .struct_size = sizeof(struct wk_cpu_product),
                                    .activation = WK_ACTIVATION_F32,
                                    .k = k,
                                    .n_rows = 1,
                                    .n_tiles = 1,
                                    .x_stride = sizeof *x * k,
                                    .y_stride = WK_TILE_ROWS,
                                    .tiles = tile,
                                    .x = x,
                                    .y = y,
                                    .scratch = scratch,
                                    .tensor = &format_plain };
}
/* Forms of activations: 0: F32; 1: 8 bits. */
static inline uint32_t quant_forms(const struct wk_type_cpu *t) { return t->activations & WK_ACTIVATION_Q8 ? 2 : 1; }
static inline uint32_t quant_activation(uint32_t form) { return form ? WK_ACTIVATION_Q8 : WK_ACTIVATION_F32; }

/* ---- noise --------------------------------------------------------------------------------------------- */
float quant_gauss(struct check_draw *d); /* mean 0, sigma 1 */
void quant_bytes(struct check_draw *d, uint8_t *p, uint64_t n);
/* One block of any bits that mean moderate numbers, of magnitudes below 1000; false: a fault, which has been told. */
bool quant_random_block(struct check *c, const struct wk_type_cpu *t, uint8_t *block, struct check_draw *d);
/* Blocks with zero, the smallest and largest numbers, infinities and NaNs in every place where a scale could stand: the
 * i-th of them, over the random bits that are there. */
uint32_t quant_edges(const struct wk_type_cpu *t);
void quant_edge_block(const struct wk_type_cpu *t, uint32_t i, uint8_t *block);

/* ---- products ------------------------------------------------------------------------------------------ */
enum { QUANT_TILES = 3, QUANT_ROWS = QUANT_TILES * WK_TILE_ROWS, QUANT_TOKENS = 64 };
/* A matrix of QUANT_ROWS rows, of which those from `rows` on are zero bytes, as the host gives those past a matrix's
 * end; its tiles; and activations in both forms. */
struct quant_problem {
    const struct wk_type_cpu *t;
    uint32_t k, rows, tokens;
    uint64_t row_bytes, tile_bytes, scratch_bytes, stride[2]; /* stride: bytes between rows of activations */
    uint8_t *file, *tiles, *x[2], *scratch;
    float *weights;                /* [QUANT_ROWS][k]: what dequantize says */
    double *most;                  /* [QUANT_ROWS]: the largest magnitude of a row of weights */
    double *sum[2], *magnitude[2]; /* [form]: [tokens][QUANT_ROWS], and [tokens]: the sum of the magnitudes of x */
};
/* What rows hold besides random blocks: QUANT_PLAIN: nothing; QUANT_EXTREME: instead of them the lowest and highest
 * weights, and activations the largest that there are, so that no sum could be larger; else one edge block each, from
 * that edge on. false: a fault, which has been told; or no encoder, which extremes need. */
enum { QUANT_PLAIN = 1 << 30, QUANT_EXTREME };
bool quant_problem_make(struct check *c, struct quant_problem *p, const struct wk_type_cpu *t, uint32_t k,
                        uint32_t tokens, uint32_t kind, struct check_draw *d);
/* Fills in `sum` and `magnitude`. */
void quant_problem_sums(struct quant_problem *p, struct check *c);
/* Of tiles [tile, tile + tiles) and tokens [token, token + tokens) into y, which begins as NaN. */
bool quant_run(struct check *c, const struct quant_problem *p, const char *what, format_product product, uint32_t form,
               uint32_t tile, uint32_t tiles, uint32_t token, uint32_t tokens, float *y, uint64_t y_stride);
/* How far a result may be from the sum in F64 (sdk/quant.md). */
double quant_bound(const struct quant_problem *p, uint32_t form, uint32_t token, uint32_t row);

/* ---- the checks, of which quant_rules.c has the rules ---- */
void quant_check_sizes(struct check *c); /* quant_tiles.c */
void quant_check_pack(struct check *c);
void quant_check_exact(struct check *c); /* quant_values.c */
void quant_check_blocks(struct check *c);
void quant_check_index(struct check *c);
void quant_check_rows(struct check *c);
void quant_check_near(struct check *c);
void quant_check_product(struct check *c); /* quant_products.c */
void quant_check_row(struct check *c);
void quant_check_finite(struct check *c);
void quant_check_repeat(struct check *c);
void memory_check_values(struct check *c); /* quant_memory.c */
void memory_check_encode(struct check *c);
void memory_check_tiles(struct check *c);
void memory_check_product(struct check *c);
void memory_check_state(struct check *c);
void performance_check_product(struct check *c); /* quant_speed.c */

#endif
