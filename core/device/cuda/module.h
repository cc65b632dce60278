/* module.h: what device-cuda.so is made of, for module.c alone. */
#ifndef CORE_DEVICE_CUDA_MODULE_H
#define CORE_DEVICE_CUDA_MODULE_H

#include "device/device.h"

extern const struct device_ops cuda_device_ops; /* open.c */

/* device_ops.check_format (check.c). */
wk_status cuda_check_format(uint32_t gpu, enum device_check what, const struct wk_quant_cuda *module,
                            const struct wk_type_cpu *cpu, const struct wk_err *err);

#endif
