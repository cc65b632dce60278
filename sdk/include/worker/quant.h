/* worker/quant.h: what a quantization plugin serves: the ggml types it claims, each as one struct.
 *
 * A type is: its block geometry, a reference dequantize and quantize, a re-ordering of 16 rows of a matrix into a tile
 * (the same bits in an order that vector units like), and the product of tiles with activations. The host cuts a matrix
 * into runs of 16-row tiles, packs a tile the first time it is needed, deals tiles to threads and applies every
 * epilogue (bias, gated activation, residual).
 *
 * All matrices are as in the file: W [n rows][k], k contiguous (ggml ne = [k, n]). */
#ifndef WORKER_QUANT_H
#define WORKER_QUANT_H

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WK_TILE_ROWS 16u
#define WK_ACT_BLOCK 32u

/* Forms in which activations come. */
enum {
    WK_ACT_F32 = 1u << 0, /* float [k], k as the matrix has it */
    WK_ACT_Q8 = 1u << 1   /* struct wk_act_q8 [ceil(k / 32)]; values past k are 0 */
};

/* 32 activations in 8 bits: x = d * q; d = max|x| / 127, q = x * (127 / max|x|) rounded to nearest even; all zero if
 * max|x| is 0. */
struct wk_act_q8 {
    float d;
    int16_t sum[2]; /* of q[0..15] and of q[16..31]: exact */
    int8_t q[32];   /* -127 .. 127 */
};
WK_STATIC_ASSERT(sizeof(struct wk_act_q8) == 40, "activation block layout");

/* Instruction sets, in rising order; a product that a plugin does not have for a level is served by
 * the next lower one. */
enum {
    WK_ISA_PORTABLE = 0,
    WK_ISA_AVX2 = 1 /* AVX2, FMA, F16C */,
    WK_ISA_AVX512 = 2 /* F, BW, VL, DQ, VBMI, VNNI */,
    WK_ISA_COUNT = 3
};

/* One call: n_tiles consecutive tiles times n_tok rows of activations.
 * y[t * y_stride + i * 16 + r] = sum over k of W[16 i + r][k] * x[t][k], in F32 or better.
 * The bits of each y depend on its own tile and its own row of x alone, never on n_tiles, n_tok or alignment. */
struct wk_cpu_product {
    uint32_t struct_size, act; /* act: one WK_ACT_*, among the type's acts */
    uint32_t k, n_tok, n_tiles, pad;
    uint64_t x_stride; /* bytes from one row of activations to the next */
    uint64_t y_stride; /* floats from one row of results to the next */
    const void *tiles; /* [n_tiles][tile_bytes(k)], 64-byte aligned, host's */
    const void *x;     /* [n_tok] rows, 8-byte aligned, host's */
    float *y;          /* [n_tok][>= 16 n_tiles], host's, overwritten */
    void *scratch;     /* scratch_bytes(k) bytes, 64-byte aligned, host's, one a thread */
};

/* One ggml type. All functions: [any thread, concurrently], no allocation, no state, cannot fail unless they return a
 * status. */
struct wk_type_cpu {
    uint32_t struct_size;
    uint32_t ggml_type;   /* number in the file's tensor table */
    uint32_t block;       /* values a block; a row's length is a multiple of it */
    uint32_t block_bytes; /* bytes a block in the file */
    uint32_t acts;        /* mask of WK_ACT_*: F32 always; Q8 where 8-bit activations make sense */
    uint32_t pad;
    const char *name; /* "q4_K", as ggml spells it; static */

    /* Bytes of a packed tile of 16 rows of k values; a multiple of 64; at least the rows' own bytes and at most 1/8
     * more (+ 64). */
    uint64_t (*tile_bytes)(uint32_t k);
    /* Scratch that product needs for rows of k values, any n_tok, any isa. */
    uint64_t (*scratch_bytes)(uint32_t k);
    /* rows[r]: 16 pointers to rows of k values as in the file (any alignment). A row past the matrix's end is given as
     * zero bytes. */
    void (*pack)(void *tile, const void *const rows[16], uint32_t k);
    /* The inverse: rows[r] gets the file's bytes back, exactly. */
    void (*unpack)(void *const rows[16], const void *tile, uint32_t k);
    /* Reference: n values (a multiple of block) from blocks as in the file; bit-exact with the format's definition. */
    void (*dequantize)(float *y, const void *blocks, uint64_t n);
    /* Reference encoder: n values (a multiple of block). NaN or infinite input: WK_INVALID with the
     * index in the text. */
    wk_status (*quantize)(void *blocks, const float *x, uint64_t n, const struct wk_err *err);
    /* [WK_ISA_COUNT]; [WK_ISA_PORTABLE] is required. */
    void (*product[WK_ISA_COUNT])(const struct wk_cpu_product *p);
};

struct wk_quant {
    uint32_t struct_size, n_types;
    const struct wk_type_cpu *const *types; /* [n_types], static */
};

#ifdef __cplusplus
}
#endif
#endif
