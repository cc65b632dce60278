/* unserved.h: what a program may ask for and a device does not do, refused by name before anything is opened. */
#ifndef CORE_DEVICE_UNSERVED_H
#define CORE_DEVICE_UNSERVED_H

#include <worker/abi.h>

#include "tape/tape.h"

enum device_kind { DEVICE_CPU = 1u << 0, DEVICE_CUDA = 1u << 1 };

/* WK_UNSUPPORTED: names the operation and what of it. [any thread] */
wk_status device_serves(const struct tape_program *p, enum device_kind device, const struct wk_err *err);

#endif
