/* module.h: what device-cuda.so is made of, for module.c alone. */
#ifndef CORE_DEVICE_CUDA_MODULE_H
#define CORE_DEVICE_CUDA_MODULE_H

#include "device/device.h"

extern const struct device_ops cuda_device_ops; /* executor.c */

#endif
