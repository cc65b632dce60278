/* columns.cuh: the kernels of columns.cu, which rows.cu gives its work to. */
#ifndef CORE_DEVICE_CUDA_COLUMNS_CUH
#define CORE_DEVICE_CUDA_COLUMNS_CUH

#include "device/cuda/row.cuh"

/* WK_OP_SLICE and WK_OP_CONCAT, any groups. Not in place. */
wk_status columns_alone(const struct cuda_alone *a, const struct row_sink *out, void *stream, const struct wk_err *err);
/* WK_OP_MUL where finish.cu's kernel will not do: factors of runs, weights of a route, picked rows of one slot for
 * several. */
bool runs_needed(const struct cuda_alone *a);
wk_status runs_alone(const struct cuda_alone *a, const struct row_sink *out, void *stream, const struct wk_err *err);

#endif
