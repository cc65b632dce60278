/* cuda_module.c: finds and starts device-cuda.so. Part of every build: what it needs of CUDA is one symbol of that
 * file. */
#include "device/device.h"

#include <dlfcn.h>
#include <string.h>

#include <worker/plugin.h>

#include "plugin/call.h"
#include "plugin/plugin.h"

#define MODULE "device-cuda.so"

static wk_status check(const struct device_module *m, const struct wk_err *err)
{
    if (!m)
        return wk_fail(err, WK_UNSUPPORTED,
                       MODULE " exports no " DEVICE_CUDA_SYMBOL "; install the one that belongs to this worker");
    if (m->struct_size != sizeof *m || m->ops_size != sizeof(struct device_ops) || m->layout != WK_LAYOUT_CUDA ||
        strncmp(m->version, WORKER_VERSION, sizeof m->version) != 0)
        return wk_fail(err, WK_UNSUPPORTED,
                       MODULE " is of another build than this worker (version %.15s, layout %016llx; this is %s, "
                              "%016llx); install both together",
                       m->version, (unsigned long long)m->layout, WORKER_VERSION, (unsigned long long)WK_LAYOUT_CUDA);
    return WK_OK;
}

wk_status device_cuda(const struct device_ops **out, const struct wk_err *err)
{
    static const struct device_ops *ops;
    char text[1024] = "";
    const struct wk_err why = { text, sizeof text };
    void *handle = NULL;
    wk_status s = WK_OK;
    *out = ops;
    if (ops) return WK_OK;
    s = plugin_open_own(MODULE, &handle, &why);
    const struct device_module *m = s ? NULL : dlsym(handle, DEVICE_CUDA_SYMBOL);
    if (!s) s = check(m, &why);
    if (!s) s = m->start(&plugin_calls, &why);
    if (s) return wk_fail(err, s == WK_NO_MEMORY ? s : WK_UNSUPPORTED, "device cuda: %s", text);
    *out = ops = m->ops;
    return WK_OK;
}
