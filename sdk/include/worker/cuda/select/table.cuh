/* worker/cuda/select/table.cuh: the kernels of products, in order of priority, and the choice of one for a launch.
 *
 * A launch goes to the first row that takes it: the device has what the kernel needs, the number of rows, the formats,
 * k and tiles suit it, and it fits into shared memory. Rows that are joined by `or_next` compete by their costs. Which
 * kernel a product gets never changes a bit of its result (part/weights.cuh). */
#ifndef WORKER_CUDA_SELECT_TABLE_CUH
#define WORKER_CUDA_SELECT_TABLE_CUH

#include <worker/cuda/select/gemv.cuh>
#include <worker/cuda/select/int8.cuh>
#include <worker/cuda/select/lm_head.cuh>
#include <worker/cuda/select/moe.cuh>
#include <worker/cuda/select/multistage.cuh>
#include <worker/cuda/select/plan.cuh>
#include <worker/cuda/select/resident.cuh>
#include <worker/cuda/select/split_k.cuh>
#include <worker/cuda/select/stream.cuh>

/* Capabilities: kernels by mma.sync and by wgmma are launched in clusters, and copy in bulk; multistage stands in for
 * them in images for 8.x, and there alone. */
enum : uint32_t {
    WK_NEEDS_MMA = WK_CUDA_CAN_BULK | WK_CUDA_CAN_CLUSTERS,
    WK_NEEDS_WGMMA = WK_NEEDS_MMA | WK_CUDA_CAN_WGMMA,
    WK_NEEDS_8X = 1u << 31 /* that there are no bulk copies */
};
/* Formats that kernels do not take: those of several rows; of one format at a time; lm_head_wgmma; gemv_tall. */
enum {
    WK_NOT_BATCH = WK_TRAIT_EXACT | WK_TRAIT_INT8 | WK_TRAIT_MIXED,
    WK_NOT_ALONE = WK_NOT_BATCH | WK_TRAIT_SEVERAL,
    WK_NOT_HEAD = WK_NOT_ALONE | WK_TRAIT_SUPER | WK_TRAIT_HALF,
    WK_NOT_TALL = WK_TRAIT_INT8 | WK_TRAIT_NUMBER | WK_TRAIT_ODD | WK_TRAIT_SEVERAL
};

/* In the order of WK_KERNEL_*. */
/* clang-format off */
static constexpr wk_kernel_row wk_kernels[WK_KERNELS] = {
    /* name, tiles, needs, products,
     *     { rows from, to }, { formats only, not with }, { norm rows, input, its group, output },
     *     { threads, blocks a multiprocessor, blocks of a cluster, variants },
     *     suits, shape, cost, or next */
    { "moe_one", 1, 0, WK_PRODUCTS_EXPERTS,
      { 1, 1 }, { 0, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { wk_experts_shape<1>::threads, wk_experts_shape<1>::blocks, 1, 1 },
      NULL, wk_shape_moe_one, NULL, false },
    { "moe_several16", 2, 0, WK_PRODUCTS_EXPERTS,
      { 9, UINT32_MAX }, { 0, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MOE_SEVERAL_THREADS, 1, 1, 1 },
      wk_moe_several16_suits, wk_shape_moe_several, NULL, false },
    { "moe_several8", 1, 0, WK_PRODUCTS_EXPERTS,
      { 2, UINT32_MAX }, { 0, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MOE_SEVERAL_THREADS, 1, 1, 3 },
      NULL, wk_shape_moe_several, NULL, false },
    { "moe_decode", 1, 0, WK_PRODUCTS_EXPERTS,
      { 0, UINT32_MAX }, { 0, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { wk_experts_shape<1>::threads, wk_experts_shape<1>::blocks, 1, 1 },
      NULL, wk_shape_moe_decode, NULL, false },
    { "int8_1", 1, 0, WK_PRODUCTS_DENSE,
      { 2, WK_CUDA_ROWS }, { WK_TRAIT_INT8, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_INT8_THREADS, WK_INT8_TOGETHER, 8, 4 },
      wk_int8_suits, wk_shape_int8, wk_int8_cost, true },
    { "int8_2", 2, 0, WK_PRODUCTS_DENSE,
      { 2, WK_CUDA_ROWS }, { WK_TRAIT_INT8, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_INT8_THREADS, WK_INT8_TOGETHER, 8, 4 },
      wk_int8_suits, wk_shape_int8, wk_int8_cost, true },
    { "int8_4", 4, 0, WK_PRODUCTS_DENSE,
      { 2, WK_CUDA_ROWS }, { WK_TRAIT_INT8, 0 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_INT8_THREADS, WK_INT8_TOGETHER, 8, 4 },
      wk_int8_suits, wk_shape_int8, wk_int8_cost, true },
    { "int8_8", 8, 0, WK_PRODUCTS_DENSE,
      { 2, WK_CUDA_ROWS }, { WK_TRAIT_INT8, WK_TRAIT_SEVERAL }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_INT8_THREADS, WK_INT8_TOGETHER, 8, 4 },
      wk_int8_suits, wk_shape_int8, wk_int8_cost, false },
    { "split_k32", 4, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 17, 32 }, { 0, WK_NOT_ALONE }, { 0, WK_CUDA_IN_PANELS, 0, WK_CUDA_OUT_ACT },
      { WK_SPLIT_K_THREADS, 2, WK_K_SLICES, 1 },
      wk_split_k_suits, wk_shape_split_k, NULL, false },
    { "split_k64", 8, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 33, 64 }, { 0, WK_NOT_ALONE }, { 0, WK_CUDA_IN_PANELS, 0, WK_CUDA_OUT_ACT },
      { WK_SPLIT_K_THREADS, 1, WK_K_SLICES, 1 },
      wk_split_k_suits, wk_shape_split_k, NULL, false },
    { "resident_cluster8", 1, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 2, 8 }, { 0, WK_NOT_ALONE }, { 0, WK_CUDA_IN_RUNS, 0, WK_CUDA_OUT_ACT },
      { 32 * WK_RESIDENT_CLUSTER_WARPS, 2, WK_RESIDENT_CLUSTER_BLOCKS, 1 },
      wk_resident_cluster_suits, wk_shape_resident_cluster, NULL, false },
    { "resident_cluster16", 2, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 9, 16 }, { 0, WK_NOT_ALONE }, { 0, WK_CUDA_IN_RUNS, 0, WK_CUDA_OUT_ACT },
      { 32 * WK_RESIDENT_CLUSTER_WARPS, 2, WK_RESIDENT_CLUSTER_BLOCKS, 1 },
      wk_resident_cluster_suits, wk_shape_resident_cluster, NULL, false },
    { "resident8", 1, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 2, 8 }, { 0, WK_NOT_BATCH }, { WK_CUDA_FEW_NORM, WK_CUDA_IN_RUNS, 0, WK_CUDA_OUT_RUNS },
      { 32 * WK_K_SLICES, 2, 1, 1 },
      wk_resident_suits, wk_shape_resident, NULL, false },
    { "resident16", 2, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 9, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_RUNS, 0, WK_CUDA_OUT_RUNS },
      { 32 * WK_K_SLICES, 2, 1, 1 },
      wk_resident_suits, wk_shape_resident, NULL, false },
    { "lm_head_wgmma8", 1, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 2, 8 }, { 0, WK_NOT_HEAD }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { 32 * wk_lm_head_wgmma_warps(1), 1, 1, 1 },
      wk_lm_head_wgmma_suits, wk_shape_lm_head_wgmma, NULL, false },
    { "lm_head_wgmma16", 2, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 9, 16 }, { 0, WK_NOT_HEAD }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { 32 * wk_lm_head_wgmma_warps(2), 1, 1, 1 },
      wk_lm_head_wgmma_suits, wk_shape_lm_head_wgmma, NULL, false },
    { "lm_head_wgmma32", 4, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 17, 32 }, { 0, WK_NOT_HEAD }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { 32 * wk_lm_head_wgmma_warps(4), 1, 1, 1 },
      wk_lm_head_wgmma_suits, wk_shape_lm_head_wgmma, NULL, false },
    { "lm_head_wgmma64", 8, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 33, 64 }, { 0, WK_NOT_HEAD }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { 32 * wk_lm_head_wgmma_warps(8), 1, 1, 1 },
      wk_lm_head_wgmma_suits, wk_shape_lm_head_wgmma, NULL, false },
    { "lm_head32", 4, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 17, 64 }, { 0, WK_NOT_BATCH | WK_TRAIT_SUPER }, { 0, WK_CUDA_IN_RUNS, 32, WK_CUDA_OUT_PANELS },
      { 32 * WK_LM_HEAD_WARPS, 1, 1, 1 },
      wk_lm_head_suits, wk_shape_lm_head, NULL, false },
    { "stream8", 1, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 2, 8 }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_STREAM_THREADS, WK_STREAM_TOGETHER, 8, WK_STREAM_VARIANTS },
      NULL, wk_shape_stream, wk_stream_cost, false },
    { "stream16", 2, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 9, 16 }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_STREAM_THREADS, WK_STREAM_TOGETHER, 8, WK_STREAM_VARIANTS },
      NULL, wk_shape_stream, wk_stream_cost, false },
    { "stream32", 4, WK_NEEDS_MMA, WK_PRODUCTS_DENSE,
      { 17, 32 }, { 0, WK_NOT_BATCH | WK_TRAIT_SUPER }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_STREAM_THREADS, WK_STREAM_TOGETHER, 8, WK_STREAM_VARIANTS },
      wk_stream32_suits, wk_shape_stream, wk_stream_cost, false },
    { "stream_wgmma64", 8, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 33, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_STREAM_WGMMA_THREADS, 1, 8, 4 },
      NULL, wk_shape_stream_wgmma, wk_stream_wgmma_cost, true },
    { "stream_wgmma32", 4, WK_NEEDS_WGMMA, WK_PRODUCTS_DENSE,
      { 17, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_STREAM_WGMMA_THREADS, 1, 8, 4 },
      NULL, wk_shape_stream_wgmma, wk_stream_wgmma_cost, false },
    { "multistage64", 8, WK_NEEDS_8X, WK_PRODUCTS_DENSE,
      { 33, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MULTISTAGE_THREADS, wk_multistage_together<8>(), 1, WK_MULTISTAGE_PARTS },
      NULL, wk_shape_multistage, wk_multistage_cost, true },
    { "multistage32", 4, WK_NEEDS_8X, WK_PRODUCTS_DENSE,
      { 17, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MULTISTAGE_THREADS, wk_multistage_together<4>(), 1, 2 * WK_MULTISTAGE_PARTS },
      NULL, wk_shape_multistage, wk_multistage_cost, true },
    { "multistage16", 2, WK_NEEDS_8X, WK_PRODUCTS_DENSE,
      { 9, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MULTISTAGE_THREADS, wk_multistage_together<2>(), 1, 2 * WK_MULTISTAGE_PARTS },
      NULL, wk_shape_multistage, wk_multistage_cost, true },
    { "multistage8", 1, WK_NEEDS_8X, WK_PRODUCTS_DENSE,
      { 2, WK_CUDA_ROWS }, { 0, WK_NOT_BATCH }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_MULTISTAGE_THREADS, wk_multistage_together<1>(), 1, 2 * WK_MULTISTAGE_PARTS },
      NULL, wk_shape_multistage, wk_multistage_cost, false },
    { "gemv_tall", 1, 0, WK_PRODUCTS_DENSE,
      { 1, 1 }, { 0, WK_NOT_TALL }, { 1, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_GEMV_TALL_THREADS, 2, 1, 1 },
      wk_gemv_tall_suits, wk_shape_gemv_tall, NULL, false },
    { "gemv1", 1, 0, WK_PRODUCTS_DENSE,
      { 1, 1 }, { 0, 0 }, { 1, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_GEMV_THREADS, 2, 1, 1 },
      NULL, wk_shape_gemv, NULL, false },
    { "gemv8", 1, 0, WK_PRODUCTS_DENSE,
      { 2, 8 }, { 0, WK_TRAIT_INT8 }, { 0, WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT },
      { WK_GEMV_THREADS, 2, 1, 1 },
      NULL, wk_shape_gemv, NULL, false },
};
/* clang-format on */

/* WK_TRAIT_* of a launch. */
static inline uint32_t wk_plan_traits(const wk_plan &plan)
{
    const wk_family_facts &family = *plan.target->family;
    const wk_product_args &a = plan.args.common;
    uint32_t traits = a.types & (a.types - 1) ? family.traits : family.formats[a.seg[0].type].traits;
    if (a.glu && a.seg[1].type != a.seg[0].type)
        traits |= WK_TRAIT_MIXED; /* a block's tiles of gate and up are asked for alike */
    return traits;
}
static inline const char *wk_traits_text(uint32_t traits)
{
    static const char *const texts[] = {
        "weights have a wider range than f16's",    "the format is multiplied as integers",
        "weights stand in the tile as f16 or bf16", "a block of the format is one number",
        "units are not multiples of 64 values",     "units of the format belong together by twos",
        "several formats stand side by side",       "the formats' tiles are not asked for alike"
    };
    return texts[wk_log2(traits & (0u - traits))];
}
/* Is the row for products of this kind, multiplied so, and for so many rows? */
static inline bool wk_row_is_for(const wk_plan &plan)
{
    const wk_kernel_row &row = *plan.row;
    return row.products == (plan.product->expert ? WK_PRODUCTS_EXPERTS : WK_PRODUCTS_DENSE) &&
           !(row.formats.only & ~wk_plan_traits(plan)) && plan.rows >= row.rows.from && plan.rows <= row.rows.to;
}
/* What the row needs and the device does not have. */
static inline uint32_t wk_row_lacks(const wk_kernel_row &row, const wk_cuda_device &d)
{
    return row.needs & ~(d.can & WK_CUDA_CAN_BULK ? d.can : d.can | WK_NEEDS_8X);
}
/* Why the row does not take the launch, before its memory is cut; NULL: it may. */
static inline const char *wk_row_refuses(const wk_plan &plan)
{
    const wk_kernel_row &row = *plan.row;
    const uint32_t traits = wk_plan_traits(plan), lacks = wk_row_lacks(row, plan.target->device);
    if (!wk_row_is_for(plan)) return "it is for other products or numbers of rows";
    if (lacks & WK_CUDA_CAN_BULK) return "the device has no bulk copies";
    if (lacks & WK_CUDA_CAN_CLUSTERS) return "the device has no clusters";
    if (lacks & WK_CUDA_CAN_WGMMA) return "the device has no wgmma";
    if (lacks) return "the device has bulk copies";
    if (row.formats.not_with & traits) return wk_traits_text(row.formats.not_with & traits);
    if (plan.args.common.in.kind == WK_CUDA_IN_RMS && plan.rows > wk_max(row.layout.norm_rows, 1))
        return "it does not norm so many rows";
    return row.suits ? row.suits(plan) : NULL;
}
/* Row `kernel` for the launch, in the cheapest of its variants. NULL: plan is complete; else why not. */
static inline const char *wk_row_take(wk_plan &plan, uint32_t kernel)
{
    plan.kernel = kernel;
    plan.row = &wk_kernels[kernel];
    const char *why = wk_row_refuses(plan);
    if (why) return why;
    const wk_plan empty = plan;
    bool found = false;
    for (uint32_t variant = 0; variant < plan.row->launch.variants; variant++) {
        wk_plan one = empty;
        one.grid_y = 1;
        one.threads = plan.row->launch.threads;
        const char *const not_so = plan.row->shape(one, variant);
        if (!found && not_so) why = not_so;
        if (not_so) continue;
        one.cost = plan.row->cost ? plan.row->cost(one) : 0;
        if (!found || one.cost < plan.cost) plan = one;
        found = true;
    }
    return found ? NULL : why;
}

/* The kernel for a launch. plan: target, product, rows and args.common are set. False: none takes it. `said`, if any,
 * is told of each row until then what it says. */
template <class Said> static inline bool wk_choose(wk_plan &plan, Said said)
{
    const wk_plan empty = plan;
    bool found = false;
    for (uint32_t kernel = 0; kernel < WK_KERNELS; kernel++) {
        wk_plan one = empty;
        const char *const why = wk_row_take(one, kernel);
        said(one, why);
        if (!why && (!found || one.cost < plan.cost)) plan = one, found = true;
        if (found && !wk_kernels[kernel].or_next) break;
    }
    return found;
}
static inline bool wk_choose(wk_plan &plan)
{
    return wk_choose(plan, [](const wk_plan &, const char *) {});
}

#endif
