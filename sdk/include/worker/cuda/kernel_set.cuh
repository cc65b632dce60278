/* worker/cuda/kernel_set.cuh: which kernels of a family a compilation makes.
 *
 * A file of products (WK_PRODUCT_FAMILY of product.cuh) is compiled once for each set of kernels, for the architectures
 * that can run the set and for no others: so no image has kernels that cannot run there, and the sets compile side by
 * side. worker_add_plugin_cuda of the SDK does that (its PRODUCTS), and defines WK_KERNEL_SET.
 *
 * The base set has the host's side. The others export a function each that adds their kernels, as pointers, since the
 * host's side of a kernel template is a symbol of its own file. The base set calls it where a build has an architecture
 * for it (wk_built_for_clusters, wk_built_for_wgmma, wk_built_for_8x), which is the rule of
 * sdk/cmake/kernel-sets.cmake, too. */
#ifndef WORKER_CUDA_KERNEL_SET_CUH
#define WORKER_CUDA_KERNEL_SET_CUH

#define WK_KERNEL_SET_BASE 1     /* every architecture */
#define WK_KERNEL_SET_CLUSTERS 2 /* 9.0 and later: clusters, bulk copies */
#define WK_KERNEL_SET_WGMMA 3    /* 9.0a: products of up to 64 rows by wgmma */
#define WK_KERNEL_SET_LARGE 4    /* 9.0a: products of experts with many items each */
#define WK_KERNEL_SET_8X 5       /* 8.x, which have neither clusters nor bulk copies */

#endif
