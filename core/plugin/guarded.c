/* guarded.c: see guarded.h. The call is told outside of the guard: a file that is cut short leaves the plugin's
 * function by a jump, and the call has ended then, too. */
#include "plugin/guarded.h"

#include "gguf/guard.h"
#include "plugin/call.h"
#include "plugin/format.h"

struct dequantize {
    const struct wk_type_cpu *type;
    float *y;
    const void *blocks;
    uint64_t n;
};

static void run(void *arg)
{
    const struct dequantize *d = arg;
    format_dequantize(d->type, d->y, d->blocks, d->n);
}

wk_status guarded_dequantize(const struct wk_type_cpu *t, float *y, const void *blocks, uint64_t n, uint64_t bytes,
                             const struct wk_err *err)
{
    struct dequantize d = { t, y, blocks, n };
    struct plugin_call call;
    PLUGIN_CALL(&call, t->dequantize, "dequantize");
    const wk_status s = gguf_guarded(run, &d, blocks, bytes, err);
    plugin_call_end(&call);
    return s;
}
