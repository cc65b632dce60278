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
#define WK_ACTIVATION_BLOCK 32u

/* Forms in which activations come. */
enum {
    WK_ACTIVATION_F32 = 1u << 0, /* float [k], k as the matrix has it */
    WK_ACTIVATION_Q8 = 1u << 1   /* struct wk_activation_q8 [ceil(k / 32)]; values past k are 0 */
};

/* 32 activations in 8 bits: x = d * q; d = max|x| / 127, q = x * (127 / max|x|) rounded to nearest even; all zero if
 * max|x| is 0. */
struct wk_activation_q8 {
    float d;
    int16_t sum[2]; /* of q[0..15] and of q[16..31]: exact */
    int8_t q[32];   /* -127 .. 127 */
};
WK_STATIC_ASSERT(sizeof(struct wk_activation_q8) == 40, "layout of an activation block");

/* Instruction sets. The numbers have no order: which of several the host prefers is the host's to know. */
enum {
    WK_ISA_PORTABLE = 0, /* what the compiler assumes of every machine */
    WK_ISA_AVX2 = 1,     /* AVX2, FMA, F16C */
    WK_ISA_AVX512 = 2    /* F, BW, VL, DQ, VBMI, VNNI */
};

/* What a tensor has besides its blocks. */
struct wk_tensor_params {
    uint32_t struct_size;
    float scale; /* each value is this times what its block says: 1, in this ABI */
};

/* n values (a multiple of the type's block) of blocks as in the file. */
struct wk_dequantize {
    uint32_t struct_size, reserved;
    uint64_t n;
    const void *blocks; /* any alignment */
    float *y;           /* [n], host's, overwritten */
    const struct wk_tensor_params *tensor;
};

/* n values, rows of row_length values one after the other, into blocks as in the file. */
struct wk_quantize {
    uint32_t struct_size, row_length; /* row_length: a multiple of the type's block */
    uint64_t n;                       /* a multiple of row_length */
    const float *x;                   /* [n] */
    const float *importance; /* [row_length] how much an error in this column costs, >= 0; NULL: all the same */
    void *blocks;            /* host's, overwritten */
    const struct wk_tensor_params *tensor;
};

/* 16 rows of k values as in the file (any alignment) and their tile. */
struct wk_pack {
    uint32_t struct_size, k;
    const void *const *rows; /* [16]; a row past the matrix's end is given as zero bytes */
    void *tile;              /* [tile_bytes(k)], 64-byte aligned, host's, overwritten */
    const struct wk_tensor_params *tensor;
};
struct wk_unpack {
    uint32_t struct_size, k;
    const void *tile;
    void *const *rows; /* [16], host's, overwritten */
    const struct wk_tensor_params *tensor;
};

/* n_tiles consecutive tiles times n_rows rows of activations.
 * y[t * y_stride + i * 16 + r] = sum over k of W[16 i + r][k] * x[t][k], in F32 or better.
 * The bits of each y depend on its own tile and its own row of x alone, never on n_tiles, n_rows or alignment. */
struct wk_cpu_product {
    uint32_t struct_size, activation; /* activation: one WK_ACTIVATION_*, among the type's */
    uint32_t k, n_rows, n_tiles, reserved;
    uint64_t x_stride; /* bytes from one row of activations to the next */
    uint64_t y_stride; /* floats from one row of results to the next */
    const void *tiles; /* [n_tiles][tile_bytes(k)], 64-byte aligned, host's */
    const void *x;     /* [n_rows] rows, 8-byte aligned, host's */
    float *y;          /* [n_rows][>= 16 n_tiles], host's, overwritten */
    void *scratch;     /* scratch_bytes(k) bytes, 64-byte aligned, host's, one a thread */
    const struct wk_tensor_params *tensor;
};

/* A product written for an instruction set; it is called only where the processor has it. */
struct wk_isa_product {
    uint32_t isa, reserved; /* WK_ISA_*; one that the host does not know is left alone */
    void (*product)(const struct wk_cpu_product *p);
};

/* One ggml type. All functions: [any thread], no allocation, no state, cannot fail unless they return a
 * status. */
struct wk_type_cpu {
    uint32_t struct_size;
    uint32_t ggml_type;   /* number in the file's tensor table */
    uint32_t block;       /* values a block; a row's length is a multiple of it */
    uint32_t block_bytes; /* bytes a block in the file */
    uint32_t activations; /* mask of WK_ACTIVATION_*: F32 always; Q8 where 8-bit activations make sense */
    uint32_t flags;       /* 0 */
    const char *name;     /* "q4_K", as ggml spells it; static */

    /* Bytes of a packed tile of 16 rows of k values; a multiple of 64; at least the rows' own bytes and at most 1/8
     * more (+ 64). Pure. */
    uint64_t (*tile_bytes)(uint32_t k);
    /* Scratch that product needs for rows of k values, any n_rows, any isa. Pure. */
    uint64_t (*scratch_bytes)(uint32_t k);
    void (*pack)(const struct wk_pack *p);
    /* The inverse: the rows get the file's bytes back, exactly. */
    void (*unpack)(const struct wk_unpack *p);
    /* Reference: bit-exact with the format's definition. */
    void (*dequantize)(const struct wk_dequantize *d);
    /* Reference encoder. NaN or infinite input: WK_INVALID with the index in the text. */
    wk_status (*quantize)(const struct wk_quantize *q, const struct wk_err *err);
    const struct wk_isa_product *products; /* [n_products], product_size apart; one of them PORTABLE */
    uint32_t n_products, product_size;
};
#define WK_TYPE_CPU_SIZE_1_0 WK_SIZE_TO(struct wk_type_cpu, product_size)
#define WK_ISA_PRODUCT_SIZE_1_0 WK_SIZE_TO(struct wk_isa_product, product)

/* Fields of struct wk_type_cpu for an array of products, in a designated initializer. */
#define WK_TYPE_PRODUCTS(array)                                                        \
    .products = (array), .n_products = (uint32_t)(sizeof(array) / sizeof((array)[0])), \
    .product_size = sizeof((array)[0])

struct wk_quant {
    uint32_t struct_size, n_types;
    const struct wk_type_cpu *const *types; /* [n_types], static */
};
#define WK_QUANT_SIZE_1_0 WK_SIZE_TO(struct wk_quant, types)

#ifdef __cplusplus
}
#endif
#endif
