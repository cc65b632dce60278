/* worker/quant_cuda.h: the CUDA side of a quantization plugin: a second shared object, NAME-cuda.so, beside NAME.so.
 *
 * It is loaded only by processes that run on CUDA. It re-orders a format's bits for the device (the same bits, in tiles
 * of 16 rows), gathers single rows, expands tiles to f16 for large products, and multiplies tiles with up to 64 rows of
 * activations, reading every weight once. Templates in worker/cuda/ make all of that from one small device header per
 * format.
 *
 * Every call that takes a stream only enqueues: no allocation, no synchronisation, capturable into a graph. Pointers
 * are device memory of the host's unless said otherwise, 256-byte aligned at the start of every buffer and tile run. No
 * CUDA header is needed to read this file: a stream is a cudaStream_t given as void *.
 *
 * Activations ("act"): a row of k values is f16 x[k32], k32 = k rounded up to 32, values past k are 0. x holds the real
 * value times 2^-shift, rounded to nearest even, clamped to +-65504. Rows follow each other without gaps. Partials:
 * beside an F32 row of n values, F32 part[ceil(n / 16)]: the sum of the squares of each 16 values, in the order of
 * worker/cuda/part/act.cuh. Runs: acts of 32 rows side by side, by runs of 32 values: f16 x[ceil(rows / 32)][k32 /
 * 32][32 rows][32 values]; rows that are not there have places, too. So one copy brings what a kernel wants of 32 rows,
 * in the order in which its lanes read. Panels: the values of an act cut along k as tensor cores want them
 * (worker/cuda/part/panels.cuh): of items by expert, or of rows, row r at place r of wk_cuda_row_places(rows).
 *
 * Threads, as in abi.h. wk_quant_cuda.open: [serialised, any one thread], once for each device. All others: [any
 * thread], each call with a stream of which no other thread enqueues; `pure` ones also before open, unless they say so.
 *
 * Determinism: the bits of row i of a product depend on the weights and on row i of the input alone: not on the number
 * of rows, the other rows, the other segments, or the machine's number of multiprocessors. */
#ifndef WORKER_QUANT_CUDA_H
#define WORKER_QUANT_CUDA_H

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A version of its own, which host and module must share exactly until the interface has settled: its minor, and the
 * layout of its structs (WK_LAYOUT_CUDA). A module that differs is refused by name on CUDA; its plugin serves the CPU
 * all the same. */
#define WK_CUDA_ABI_MAJOR 0
#define WK_CUDA_ABI_MINOR 3

enum { WK_CUDA_ROWS = 256 }; /* most rows of one product call */
enum { WK_CUDA_FEW = 64 };   /* rows that kernels for few rows take at once: a call of more is several groups of them */
enum { WK_CUDA_FEW_NORM = 8 }; /* most rows of any product with an RMS prologue; of which as many: norm_rows */

static inline uint32_t wk_act_k(uint32_t k) { return (k + 31u) & ~31u; } /* f16 values a row */

/* What a product reads. */
enum { WK_CUDA_IN_ACT = 0, WK_CUDA_IN_RMS = 1, WK_CUDA_IN_PANELS = 2, WK_CUDA_IN_RUNS = 3 };
struct wk_cuda_input {
    uint32_t kind;  /* WK_CUDA_IN_*; PANELS: of `large`, and where `layout` says so; RUNS: where `layout` says so */
    uint32_t shift; /* ACT, PANELS, RUNS: of the stored values */
    float eps;      /* RMS: y = x / sqrt(mean(x^2) + eps) * w, rounded to an act of shift 0 */
    uint32_t pad;
    /* ACT: f16 rows; RUNS: by runs; RMS: F32 rows, x_stride apart, several only with x and w 16-byte aligned, x_stride
     * a multiple of 4 and no row_index; PANELS: [ceil(k / 64)][x_stride] rows of 128 bytes;
     * RUNS, PANELS: no row_index */
    const void *x;
    const float *aux;  /* RMS: partials */
    const float *w;    /* RMS: [k]; NULL: ones */
    uint64_t x_stride; /* RMS: floats from row to row; PANELS: places in a panel */
    /* [rows]: row i of the product is row row_index[i] of x (and of the residual); NULL: row i */
    const uint32_t *row_index;
};

/* Where a segment's results go. */
enum { WK_CUDA_OUT_F32 = 0, WK_CUDA_OUT_ACT = 1, WK_CUDA_OUT_PANELS = 2, WK_CUDA_OUT_RUNS = 3 };
struct wk_cuda_output {
    uint32_t kind, shift; /* WK_CUDA_OUT_*; ACT, PANELS, RUNS: shift of what is stored; PANELS: of `large`, and where
                             `layout` says so; RUNS: where `layout` says so */
    void *y; /* F32 rows, y_stride apart; f16 rows of wk_act_k(n); panels or runs, as an input of n values has them */
    float *aux;        /* F32: partials; NULL: none */
    uint64_t y_stride; /* F32: floats from row to row; PANELS: places in a panel */
};

struct wk_cuda_segment {
    const void *tiles; /* first tile of a run of ceil(n / 16); experts: of expert 0 */
    const float *bias; /* [n], experts: [experts][n]; NULL: none */
    uint32_t ggml_type, n;
    struct wk_cuda_output out;
};

/* rows x (segments of n columns): v = sum over k + bias; then of the two segments glu, or the maps in order; then +
 * residual; then stored. The functions are those of worker/arch.h (WK_GLU_*, WK_UNARY_* up to
 * WK_UNARY_SOFTCAP), in F32. */
enum {
    WK_CUDA_DEPENDENT = 1u << 0,   /* launched with programmatic dependence on what precedes it in the stream */
    WK_CUDA_GROUPS_KNOWN = 1u << 1 /* what precedes it is a product with the same groups, which lets this one begin only
                                      behind its own wait: they are made */
};
struct wk_cuda_product {
    uint32_t struct_size, flags;
    uint32_t rows, k;    /* rows: 1..WK_CUDA_ROWS (RMS: 1..norm_rows); all are computed */
    uint32_t n_seg, glu; /* glu: WK_GLU_* of seg[0] (gate) and seg[1] (up), results by seg[0].out; 0: none */
    float alpha, limit;
    struct {
        uint32_t fn;
        float p;
    } map[4]; /* applied while fn != 0; only without glu */
    struct wk_cuda_input input;
    struct wk_cuda_segment seg[4];
    const float *residual; /* F32 rows; one segment, or glu; NULL: none */
    uint64_t residual_stride;
    /* Experts: each row i is an item: input row i / x_items, weights of expert expert[(i / top_k) * expert_stride + i %
     * top_k]; NULL: dense. Then rows has no upper limit, the input is an act, and there is no residual. */
    const uint32_t *expert;
    uint32_t expert_stride, top_k, x_items, n_experts; /* expert_stride: top_k or more; 0: all rows have one choice */
    /* The items by expert, n_experts of them (wk_cuda_group_words): each used expert's weights are then read once for
     * several of its items; all segments are of one type; items that are not in the groups are not computed, but for a
     * single row's, which all are; an item's bits are the same whatever others there are. Such a product lets what
     * follows it begin only behind its own wait. NULL: dense. */
    const uint32_t *groups;
    uint32_t *ticket;        /* `large`: a word, 0 before and after */
    uint32_t out_group, pad; /* results PANELS: their order of k: what `panels`, or `layout`, says of what reads them */
    void *workspace; /* what `workspace` asks for, 256-byte aligned; nobody else's until the product has ended */
};

/* Items by expert, made on the device after each choice of experts, for all products of it; words:
 *   [0, n_experts)                  the experts that have items, ascending; then 0
 *   [n_experts, 2 n_experts + 1)    first[i]: place below of the first item of the i-th of them; from the last of them
 * on the number of items there are [2 n_experts + 1, ...)          the items, those of an expert side by side,
 * ascending */
static inline uint64_t wk_cuda_group_words(uint32_t n_experts, uint64_t items)
{
    return 2 * (uint64_t)n_experts + 1 + items;
}

/* Places in a panel of rows of a product that is not `large`. */
static inline uint32_t wk_cuda_row_places(uint32_t rows) { return (rows + 31u) & ~31u; }

/* Panels of items: those of the i-th used expert lie side by side from a multiple of 8 on, behind those of the experts
 * before it; what lies between is nobody's. Places in a panel that always suffice; bytes of panels of k values. */
enum { WK_CUDA_LARGE_EXPERTS = 512 };
static inline uint64_t wk_cuda_panel_places(uint32_t n_experts, uint64_t items)
{
    return ((items + 7) & ~7ull) + 7ull * n_experts;
}
static inline uint64_t wk_cuda_panel_bytes(uint32_t k, uint64_t places)
{
    return ((uint64_t)k + 63) / 64 * places * 128;
}

/* Whole tiles of one matrix. Rows past n_rows are zeros in the tiles. */
struct wk_cuda_tiles {
    uint32_t struct_size, k;
    uint32_t n_tiles, n_rows;
    void *tiles; /* [n_tiles][tile_bytes(k)] */
    void *rows;  /* [n_rows] rows as in the file, row_bytes apart, 16-byte aligned at the start */
    uint64_t row_bytes;
};

/* y[r][i] = f16 of W[r][i], r < n_rows; from k to a multiple of 8 zeros. */
struct wk_cuda_expand {
    uint32_t struct_size, k;
    uint32_t n_rows, flags; /* WK_CUDA_DEPENDENT */
    const void *tiles;
    void *y;           /* f16, y_stride apart */
    uint64_t y_stride; /* halves, a multiple of 8 */
};

/* y[i][0..k) = W[index[i]] * scale, or y[i][0..k) + that: F32, W exactly as the plugin's CPU side dequantizes, product
 * and sum rounded. With WK_CUDA_DEPENDENT the launch waits for the one before, and lets the next begin only then: what
 * comes later may read at once what the launch before wrote. */
struct wk_cuda_gather {
    uint32_t struct_size, flags; /* WK_CUDA_DEPENDENT */
    uint32_t k, rows;
    const void *tiles;
    const uint32_t *index; /* [rows], each < the matrix's rows */
    float *y;
    uint64_t y_stride; /* floats, a multiple of 4 */
    float scale;
    uint32_t add; /* 1: to what lies at y */
    float *part;  /* out: partials of y's rows; NULL: none */
};

/* How acts of a product may lie besides as rows. */
struct wk_cuda_layout {
    uint32_t in;       /* RUNS, PANELS: its input is taken so as well, and faster; ACT: it is not */
    uint32_t in_group; /* PANELS: their order of k, 32 or 16 */
    uint32_t out; /* PANELS (of either order), RUNS: its result, an act of a multiple of 64 values, is left so if that
                     is asked for; ACT: it is not */
};

/* A device for which kernels are chosen. Capabilities: the device and the code that runs on it have them. */
enum {
    WK_CUDA_CAN_DEPENDENT = 1u << 0, /* launches that begin before the previous kernel has ended */
    WK_CUDA_CAN_BULK = 1u << 1,      /* bulk copies, whose bytes a barrier counts */
    WK_CUDA_CAN_CLUSTERS = 1u << 2,  /* clusters: blocks that reach each other's shared memory */
    WK_CUDA_CAN_WGMMA = 1u << 3      /* wgmma */
};
struct wk_cuda_device {
    uint32_t struct_size;
    uint32_t processors;      /* multiprocessors */
    uint32_t block_bytes;     /* most shared memory of a block */
    uint32_t processor_bytes; /* shared memory of a multiprocessor */
    uint32_t can, pad;        /* WK_CUDA_CAN_* */
};

/* The kernel that a product gets, and how it is launched. */
struct wk_cuda_choice {
    uint32_t struct_size;
    uint32_t rows;      /* of the launch; fewer than the product's: that has several launches */
    const char *kernel; /* its name, static */
    uint32_t grid_x, grid_y;
    uint32_t cluster;  /* blocks of a cluster; 0: launched without clusters */
    uint32_t threads;  /* of a block */
    uint32_t shared;   /* bytes of shared memory of a block */
    uint32_t n_seg;    /* segments of the launch; fewer than the product's: the others have launches of their own */
    char why_not[480]; /* "NAME: reason; ...": kernels for so many rows that come first in order of priority */
};

struct wk_type_cuda {
    uint32_t struct_size, ggml_type;
    /* Bytes from tile to tile, 16 rows of k values: a multiple of 16; at least the rows' own bytes and at most 8 a
     * value (+ 2048), else the plan refuses it. What is more than the rows' own is memory lost; a multiple of 128 is
     * worth it (wk_tile_stride). Pure. */
    uint64_t (*tile_bytes)(uint32_t k);
    wk_status (*pack)(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err); /* tiles from rows */
    wk_status (*unpack)(const struct wk_cuda_tiles *t, void *stream,
                        const struct wk_err *err); /* rows from tiles: the file's bytes, exactly */
    wk_status (*expand)(const struct wk_cuda_expand *e, void *stream,
                        const struct wk_err *err); /* NULL: f16 would lose bits; large products go through `product` */
    wk_status (*gather)(const struct wk_cuda_gather *g, void *stream, const struct wk_err *err);
};

/* The exported struct, WK_PLUGIN_CUDA_SYMBOL. */
struct wk_quant_cuda {
    uint32_t struct_size, n_types;
    const char *id;                          /* of the plugin that it belongs to */
    const struct wk_type_cuda *const *types; /* [n_types], static */
    /* Once a device, before anything else; checks that its kernels run there. WK_UNSUPPORTED with the architectures
     * that it was built for. */
    wk_status (*open)(int32_t device, const struct wk_err *err);
    /* 1: one call of product takes segments of these types together. Always 1 for equal types. Pure. */
    int32_t (*serves)(const uint32_t *ggml_types, uint32_t n);
    /* WK_INVALID, naming the field, for what the contract above excludes. */
    wk_status (*product)(const struct wk_cuda_product *p, void *stream, const struct wk_err *err);
    /* Products of experts with many items each, for prompts, by code for 9.0 (90a) alone; both NULL: there are none.
     * panels: the order of k (32 or 16) of the panels that `large` reads of this type; 0: it does not serve the type,
     * or, once the module is open, the code that the device runs has none. Changes nothing. large: by groups of at most
     * WK_CUDA_LARGE_EXPERTS experts, the input PANELS in that order. Either one segment, results F32 without partials,
     * or two of one type with glu, results PANELS. No maps, no residual. An item's bits depend on its expert's weights
     * and its own input alone, but they are not those of `product`. */
    uint32_t (*panels)(uint32_t ggml_type);
    wk_status (*large)(const struct wk_cuda_product *p, void *stream, const struct wk_err *err);
    /* Most rows that such a product takes as RMS, 1 to WK_CUDA_FEW_NORM: more are normed by a launch of their own
     * before it, because that costs less or because it has no kernel for them. Of p only types, k, n and glu are looked
     * at, no pointers. The bits of a row are the same either way. NULL: always 1. Pure, after open. */
    uint32_t (*norm_rows)(const struct wk_cuda_product *p);
    /* How acts of such a product of p->rows rows may lie; however they do, the bits are the same. Of p only rows,
     * types, k, n, glu, kinds of outputs and whether there are experts, maps, partials and a residual are looked at,
     * nothing that pointers lead to. NULL: as rows alone. Pure, after open. */
    struct wk_cuda_layout (*layout)(const struct wk_cuda_product *p);
    /* Bytes that a dense product of so many rows needs at p->workspace for segments of the type: of several types the
     * most of them; never fewer of more rows. NULL: none. Pure. */
    uint64_t (*workspace)(uint32_t ggml_type, uint32_t k, uint32_t rows);
    /* The first launch of such a product on device d, which need not be there: nothing is launched, no driver is asked.
     * Of p only rows, types, k, n, glu, n_experts, top_k, the kinds of input and outputs and whether there are experts,
     * maps, partials and a residual are looked at, nothing that pointers lead to. WK_INVALID, naming the field, for
     * what it cannot take. NULL: the module does not tell. Pure, also before open. */
    wk_status (*choice)(const struct wk_cuda_device *d, const struct wk_cuda_product *p, struct wk_cuda_choice *c,
                        const struct wk_err *err);
};

#define WK_PLUGIN_CUDA_SYMBOL "worker_plugin_cuda_v0"

#ifdef __cplusplus
}
#endif
#endif
