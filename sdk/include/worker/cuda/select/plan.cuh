/* worker/cuda/select/plan.cuh: one launch of a product while its kernel is being chosen: what the choice reads, what a
 * kernel's shape writes, and the arithmetic of items, K steps and shared memory that the shapes have in common. */
#ifndef WORKER_CUDA_SELECT_PLAN_CUH
#define WORKER_CUDA_SELECT_PLAN_CUH

#include <worker/cuda/kernel/int8.cuh>
#include <worker/cuda/kernel/lm_head.cuh>
#include <worker/cuda/kernel/lm_head_wgmma.cuh>
#include <worker/cuda/kernel/resident.cuh>
#include <worker/cuda/kernel/resident_cluster.cuh>
#include <worker/cuda/kernel/split_k.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/experts.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/select/device.cuh>
#include <worker/cuda/select/family.cuh>
#include <worker/cuda/select/measured.cuh>

/* The kernels, in the order of the table (select/table.cuh). Numbers: most rows at once; int8: most groups of four. */
enum {
    WK_KERNEL_MOE_ONE,
    WK_KERNEL_MOE_SEVERAL16,
    WK_KERNEL_MOE_SEVERAL8,
    WK_KERNEL_MOE_DECODE,
    WK_KERNEL_INT8_1,
    WK_KERNEL_INT8_2,
    WK_KERNEL_INT8_4,
    WK_KERNEL_INT8_8,
    WK_KERNEL_SPLIT_K32,
    WK_KERNEL_SPLIT_K64,
    WK_KERNEL_RESIDENT_CLUSTER8,
    WK_KERNEL_RESIDENT_CLUSTER16,
    WK_KERNEL_RESIDENT8,
    WK_KERNEL_RESIDENT16,
    WK_KERNEL_LM_HEAD_WGMMA8,
    WK_KERNEL_LM_HEAD_WGMMA16,
    WK_KERNEL_LM_HEAD_WGMMA32,
    WK_KERNEL_LM_HEAD_WGMMA64,
    WK_KERNEL_LM_HEAD32,
    WK_KERNEL_STREAM8,
    WK_KERNEL_STREAM16,
    WK_KERNEL_STREAM32,
    WK_KERNEL_STREAM_WGMMA64,
    WK_KERNEL_STREAM_WGMMA32,
    WK_KERNEL_MULTISTAGE64,
    WK_KERNEL_MULTISTAGE32,
    WK_KERNEL_MULTISTAGE16,
    WK_KERNEL_MULTISTAGE8,
    WK_KERNEL_GEMV_TALL,
    WK_KERNEL_GEMV1,
    WK_KERNEL_GEMV8,
    WK_KERNELS
};

/* A family of formats on a device. */
struct wk_target {
    const wk_family_facts *family;
    const wk_measured *measured;
    wk_cuda_device device;
    /* Clusters that the device holds at once: by kernel, format (n_formats: several), log2 of the blocks. */
    uint32_t clusters[WK_KERNELS][WK_TYPES_MAX + 1][4];
};

struct wk_plan;
/* A row of the table of kernels (select/table.cuh). `why`: what a function says of a product: NULL: the kernel takes
 * it; else a text that says why not. */
struct wk_kernel_row {
    const char *name;  /* of the kernel's file, and the most rows at once */
    uint32_t tiles;    /* of 8 columns that it has at once; int8: records of four rows */
    uint32_t needs;    /* WK_CUDA_CAN_* */
    uint32_t products; /* WK_PRODUCTS_* */
    struct {
        uint32_t from, to; /* experts: rows of which each has top_k items */
    } rows;
    struct {
        uint32_t only, not_with; /* WK_TRAIT_*: the launch has all of these, and none of those */
    } formats;
    struct {
        uint32_t norm_rows; /* most rows of an input that it norms itself; 0: none */
        uint32_t in;        /* WK_CUDA_IN_*: how it takes an input as well as in acts */
        uint32_t in_group;  /* formats of this order of k alone take it so; 0: all */
        uint32_t out;       /* WK_CUDA_OUT_*: how it leaves a gated result as well as in acts */
    } layout;
    struct {
        uint32_t threads, together; /* most threads of a block; blocks a multiprocessor */
        uint32_t cluster, variants; /* most blocks of a cluster (1: none); ways to cut one product that `shape` knows */
    } launch;
    const char *(*suits)(const wk_plan &plan);             /* by k and tiles; NULL: all */
    const char *(*shape)(wk_plan &plan, uint32_t variant); /* writes arguments, grid, threads and shared memory */
    uint64_t (*cost)(const wk_plan &plan);                 /* of what `shape` wrote; NULL: 0, the first that fits */
    bool or_next;                                          /* the next row is taken instead if that costs less */
};
enum { WK_PRODUCTS_DENSE, WK_PRODUCTS_EXPERTS };

struct wk_plan {
    const wk_target *target;
    const wk_cuda_product *product;
    const wk_kernel_row *row; /* of the table: the kernel */
    uint32_t kernel;          /* WK_KERNEL_* */
    uint32_t rows;            /* experts: of which each has top_k items */
    uint32_t grid_x, grid_y, threads, shared;
    uint32_t cluster; /* blocks of a cluster; 0: launched without clusters */
    uint64_t cost;    /* to compare with other kernels by */
    union {           /* what the kernel is given; all begin with `common` */
        wk_product_args common;
        wk_resident_args resident;
        wk_resident_cluster_args resident_cluster;
        wk_split_k_args split_k;
        wk_lm_head_args lm_head;
        wk_lm_head_wgmma_args lm_head_wgmma;
        wk_batch_args batch;
        wk_experts_args experts;
        wk_int8_args int8;
    } args;
};

static inline uint32_t wk_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint32_t wk_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t wk_parts(uint32_t n, uint32_t each) { return (n + each - 1) / each; }
static inline uint32_t wk_align16(uint32_t bytes) { return (bytes + 15u) & ~15u; }

/* Are the outputs F32 sums with no more than a bias? */
static inline bool wk_plain_sums(const wk_product_args &a)
{
    bool plain = a.way >= WK_WAY_F32 && !a.residual;
    for (uint32_t i = 0; i < a.n_seg; i++) plain = plain && !a.seg[i].aux;
    return plain;
}
/* Is no K step cut short? */
static inline bool wk_whole_k_steps(const wk_product_args &a) { return a.k == a.k_steps << a.k_step_shift; }
/* Tiles of all segments. */
static inline uint32_t wk_all_tiles(const wk_product_args &a)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < a.n_seg; i++) tiles += a.seg[i].n_tiles;
    return tiles;
}
/* Bytes of the largest K step of a tile. */
static inline uint32_t wk_largest_k_step(const wk_product_args &a)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < a.n_seg; i++) most = wk_max(most, a.seg[i].k_step_bytes);
    return most;
}
/* tiles: of a segment to an item (glu: pairs). */
static inline void wk_count_items(wk_product_args &a, uint32_t tiles)
{
    a.items = 0;
    for (uint32_t i = 0; i < (a.glu ? 1 : a.n_seg); i++) a.seg[i].end = a.items += wk_parts(a.seg[i].n_tiles, tiles);
}
/* Values of k that the busiest of `blocks` blocks has of an item. */
static inline uint32_t wk_busiest_k(const wk_product_args &a, uint32_t blocks)
{
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < blocks; rank++) {
        uint32_t k_steps = 0;
        for (uint32_t leaf = rank * (WK_K_SLICES / blocks); leaf < (rank + 1) * (WK_K_SLICES / blocks); leaf++) {
            const uint32_t k_slice = wk_leaf_k_slice(leaf);
            if (k_slice < a.k_steps) k_steps += wk_parts(a.k_steps - k_slice, WK_K_SLICES);
        }
        most = wk_max(most, k_steps);
    }
    return most << a.k_step_shift;
}
/* Shared memory that a block may have, of `together` a multiprocessor. */
static inline uint32_t wk_room(const wk_cuda_device &d, uint32_t together)
{
    return wk_min(d.processor_bytes / together - WK_BLOCK_RESERVED, d.block_bytes);
}
static inline uint32_t wk_room(const wk_plan &plan, uint32_t together)
{
    return wk_room(plan.target->device, together);
}
static inline uint32_t wk_processors(const wk_plan &plan) { return plan.target->device.processors; }
/* Clusters of `blocks` of a kernel that the device holds at once. */
static inline uint32_t wk_clusters(const wk_plan &plan, uint32_t kernel, uint32_t blocks)
{
    const uint32_t types = plan.args.common.types;
    return plan.target
        ->clusters[kernel][types & (types - 1) ? plan.target->family->n_formats : wk_log2(types)][wk_log2(blocks)];
}

/* ---- kernels of several rows ----------------------------------------------------------------------------- */

/* A stage of a ring: `stage_k` values of k, or a K step if that has fewer. tiles: of columns. */
static inline void wk_batch_stages(wk_plan &plan, uint32_t tiles, uint32_t stage_k)
{
    wk_batch_args &w = plan.args.batch;
    wk_product_args &a = w.p;
    const uint32_t k_step_values = 1u << a.k_step_shift;
    w.k_step_stages = k_step_values > stage_k ? k_step_values / stage_k : 1;
    w.run_shift = wk_log2(w.k_step_stages);
    w.stage_units = a.k_step_units / w.k_step_stages;
    w.tile_bytes = 0;
    for (uint32_t i = 0; i < a.n_seg; i++) {
        a.seg[i].piece_bytes = plan.target->family->formats[a.seg[i].type].units_bytes(w.stage_units);
        w.tile_bytes = wk_max(w.tile_bytes, a.seg[i].piece_bytes);
    }
    w.stage_k = k_step_values / w.k_step_stages;
    w.x_bytes = (w.stage_k + 63) / 64 * tiles * 1024;
}
/* cells: of an item, which the blocks of a cluster finish in equal parts. */
static inline void wk_batch_share(wk_plan &plan, uint32_t blocks, uint32_t clusters, uint32_t cells)
{
    wk_batch_args &w = plan.args.batch;
    w.workers = wk_min(clusters, w.p.items);
    w.blocks = blocks;
    w.owned = wk_parts(cells, blocks);
    w.owned_inverse = 65535 / w.owned + 1;
}
/* The grid: clusters of so many blocks; y: groups of rows, each with all of these. */
static inline void wk_plan_grid(wk_plan &plan, uint32_t cluster, uint32_t clusters, uint32_t y)
{
    plan.cluster = cluster;
    plan.grid_x = clusters * cluster;
    plan.grid_y = y;
}

#endif
