/* cuda_calls.h: every function of a plugin's CUDA half, called so that the program can name plugin and call if it
 * crashes, exits or hangs (core/plugin/call.h). A few stores each, when graphs are captured and in steps of many rows;
 * what runs in a captured graph calls none of them. Shapes and errors are those of <worker/quant_cuda.h>. */
#ifndef CORE_DEVICE_CUDA_CALLS_H
#define CORE_DEVICE_CUDA_CALLS_H

#include <stdbool.h>

#include <worker/arch_cuda.h>
#include <worker/quant_cuda.h>

#include "plugin/call.h"

#define CALLED(type, function, what, ...)        \
    struct plugin_call call;                     \
    PLUGIN_CALL(&call, function, what);          \
    const type result = (function)(__VA_ARGS__); \
    plugin_call_end(&call);                      \
    return result

static inline wk_status module_open(const struct wk_quant_cuda *m, int32_t device, const struct wk_err *err)
{
    CALLED(wk_status, m->open, "CUDA open", device, err);
}
static inline bool module_serves(const struct wk_quant_cuda *m, const uint32_t *types, uint32_t n)
{
    CALLED(int32_t, m->serves, "serves", types, n);
}
/* Of a module that has it. */
static inline wk_status module_choice(const struct wk_quant_cuda *m, const struct wk_cuda_device *d,
                                      const struct wk_cuda_product *p, struct wk_cuda_choice *c,
                                      const struct wk_err *err)
{
    CALLED(wk_status, m->choice, "choice", d, p, c, err);
}
static inline wk_status module_product(const struct wk_quant_cuda *m, const struct wk_cuda_product *p, void *stream,
                                       const struct wk_err *err)
{
    CALLED(wk_status, m->product, "CUDA product", p, stream, err);
}
static inline wk_status module_large(const struct wk_quant_cuda *m, const struct wk_cuda_product *p, void *stream,
                                     const struct wk_err *err)
{
    CALLED(wk_status, m->large, "large", p, stream, err);
}
/* Where they are optional, without one as plugins that have none: 0, or rows. */
static inline uint32_t module_panels(const struct wk_quant_cuda *m, uint32_t type)
{
    if (!m->panels) return 0;
    CALLED(uint32_t, m->panels, "panels", type);
}
static inline uint32_t module_norm_rows(const struct wk_quant_cuda *m, const struct wk_cuda_product *p)
{
    if (!m->norm_rows) return 0;
    CALLED(uint32_t, m->norm_rows, "norm_rows", p);
}
static inline uint64_t module_workspace(const struct wk_quant_cuda *m, uint32_t type, uint32_t k, uint32_t rows)
{
    if (!m->workspace) return 0;
    CALLED(uint64_t, m->workspace, "workspace", type, k, rows);
}
static inline struct wk_cuda_layout module_layout(const struct wk_quant_cuda *m, const struct wk_cuda_product *p)
{
    if (!m->layout) return (struct wk_cuda_layout){ .in = WK_CUDA_IN_ACT, .out = WK_CUDA_OUT_ACT };
    CALLED(struct wk_cuda_layout, m->layout, "layout", p);
}

static inline uint64_t type_tile_bytes(const struct wk_type_cuda *t, uint32_t k)
{
    CALLED(uint64_t, t->tile_bytes, "CUDA tile_bytes", k);
}
static inline wk_status type_pack(const struct wk_type_cuda *t, const struct wk_cuda_tiles *of, void *stream,
                                  const struct wk_err *err)
{
    CALLED(wk_status, t->pack, "CUDA pack", of, stream, err);
}
static inline wk_status type_unpack(const struct wk_type_cuda *t, const struct wk_cuda_tiles *of, void *stream,
                                    const struct wk_err *err)
{
    CALLED(wk_status, t->unpack, "unpack", of, stream, err);
}
static inline wk_status type_expand(const struct wk_type_cuda *t, const struct wk_cuda_expand *e, void *stream,
                                    const struct wk_err *err)
{
    CALLED(wk_status, t->expand, "expand", e, stream, err);
}
static inline wk_status type_gather(const struct wk_type_cuda *t, const struct wk_cuda_gather *g, void *stream,
                                    const struct wk_err *err)
{
    CALLED(wk_status, t->gather, "gather", g, stream, err);
}
static inline wk_status custom_open(const struct wk_arch_cuda *m, int32_t device, const struct wk_err *err)
{
    CALLED(wk_status, m->open, "CUDA open", device, err);
}
typedef wk_status (*custom_fn)(const struct wk_custom_cuda_call *c, void *stream, const struct wk_err *err);
static inline wk_status custom_run(custom_fn run, const struct wk_custom_cuda_call *c, void *stream,
                                   const struct wk_err *err)
{
    CALLED(wk_status, run, "custom operation on CUDA", c, stream, err);
}
#undef CALLED

#endif
