/* cuda_like.h: GPUs by name, as the choice of kernels sees them (struct wk_cuda_device), for what is asked without one.
 */
#ifndef CORE_DEVICE_CUDA_LIKE_H
#define CORE_DEVICE_CUDA_LIKE_H

struct wk_cuda_device; /* worker/quant_cuda.h */

/* Compute capabilities, each with a card that has it. */
#define CUDA_LIKE_NAMES "sm_80|sm_86|sm_89|sm_90|sm_100|sm_120"

/* name: one of CUDA_LIKE_NAMES. NULL: it is none. Static. [any thread] */
const struct wk_cuda_device *cuda_like(const char *name);

#endif
