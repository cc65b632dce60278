/* module.c: the one symbol of device-cuda.so. */
#include "device/cuda/module.h"

#include <worker/plugin.h>

#include "gguf/guard.h"
#include "plugin/call.h"

/* The module has its own copy of what it shares with the program, so it needs its own handler for files that shrink;
 * calls of plugins are the program's to know. */
static wk_status start(const struct plugin_calls *calls, const struct wk_err *err)
{
    plugin_calls_pass_to(calls);
    return gguf_guard_install(err);
}

WK_EXPORT extern const struct device_module worker_device_cuda_v0;
const struct device_module worker_device_cuda_v0 = {
    .struct_size = sizeof(struct device_module),
    .ops_size = sizeof(struct device_ops),
    .version = WORKER_VERSION,
    .layout = WK_LAYOUT_CUDA,
    .ops = &cuda_device_ops,
    .start = start,
};
