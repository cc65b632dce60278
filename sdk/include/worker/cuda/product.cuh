/* worker/cuda/product.cuh: the launches of a family of formats: WK_PRODUCT_FAMILY(name, format...) defines `const
 * struct wk_product_family name`.
 *
 * All formats of a family have the same unit and super-unit. Here is what all kernels share: what k is cut into, and
 * how many rows a launch has. Which kernel takes those is for select/table.cuh to say. */
#ifndef WORKER_CUDA_PRODUCT_CUH
#define WORKER_CUDA_PRODUCT_CUH

#include <cuda_runtime.h>
#include <stdio.h>

#include <worker/cuda/kernel_set.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/product.h>
#include <worker/cuda/product_large.cuh>
#include <worker/cuda/select/device.cuh>
#include <worker/cuda/select/family.cuh>
#include <worker/cuda/select/kernels.cuh>
#include <worker/cuda/select/launch.cuh>
#include <worker/cuda/select/table.cuh>

/* ---- a product as its kernels see it --------------------------------------------------------------------- */

static inline uint32_t wk_format_index(const wk_family_facts &family, uint32_t type)
{
    uint32_t i = 0;
    while (family.formats[i].type != type) i++;
    return i;
}
/* What a K step of so many values costs, about; 32: besides its values. */
static inline uint64_t wk_k_step_cost(uint32_t k, uint32_t k_step)
{
    return (uint64_t)wk_parts(wk_parts(k, k_step), WK_K_SLICES) * (k_step + 32);
}
/* The way that the outputs go (part/epilogue.cuh). */
static inline uint32_t wk_output_way(const wk_cuda_product *p)
{
    bool plain = !p->glu && !p->map[0].fn, whole = wk_fours(p->residual, p->residual_stride, 4);
    for (uint32_t i = 0; i < p->n_seg; i++) {
        const wk_cuda_segment *s = &p->seg[i];
        plain = plain && s->out.kind == WK_CUDA_OUT_F32;
        whole = whole && s->n % 32 == 0 && wk_fours(s->bias, 0, 4) &&
                (i && p->glu ? true : wk_fours(s->out.y, s->out.y_stride, s->out.kind == WK_CUDA_OUT_F32 ? 4 : 2));
    }
    if (plain) return whole ? WK_WAY_F32_FOURS : WK_WAY_F32;
    return p->glu == WK_GLU_SILU && whole && !p->residual && p->seg[0].out.kind != WK_CUDA_OUT_F32 ? WK_WAY_SILU
                                                                                                   : WK_WAY_ANY;
}
/* All that does not depend on the kernel. */
static inline void wk_product_common(const wk_family_facts &family, const wk_cuda_product *p, wk_product_args *a)
{
    a->rows = p->rows;
    a->k = p->k;
    a->k32 = wk_act_k(p->k);
    /* Part of the order of arithmetic, so by k alone: K steps of 256 values or fewer, as short as keeps 8 warps evenly
     * busy. */
    const uint32_t unit = family.unit;
    a->k_step_units = family.most_units;
    for (uint32_t units = a->k_step_units / 2; family.super == 1 && units; units /= 2)
        if (wk_k_step_cost(p->k, units * unit) < wk_k_step_cost(p->k, a->k_step_units * unit)) a->k_step_units = units;
    a->k_steps = wk_parts(p->k, a->k_step_units * unit);
    a->k_step_shift = wk_log2(a->k_step_units * unit);
    a->n_seg = p->n_seg;
    a->glu = p->glu;
    a->in = p->input;
    float in_scale = 1.0f;
    if (p->input.kind != WK_CUDA_IN_RMS)
        for (uint32_t i = 0; i < p->input.shift; i++) in_scale *= 2.0f;
    a->out_group = p->out_group;
    a->residual = p->residual;
    a->residual_stride = p->residual_stride;
    a->alpha = p->alpha;
    a->limit = p->limit;
    for (int i = 0; i < 4; i++) a->map[i] = { p->map[i].fn, p->map[i].p };
    a->x_items = p->x_items;
    for (uint32_t i = 0; i < p->n_seg; i++) {
        const wk_cuda_segment *s = &p->seg[i];
        const uint32_t type = wk_format_index(family, s->ggml_type);
        const wk_format_facts &f = family.formats[type];
        a->seg[i] = { static_cast<const unsigned char *>(s->tiles),
                      s->bias,
                      s->out.y,
                      s->out.aux,
                      s->out.y_stride,
                      f.tile_stride(p->k),
                      f.tile_bytes(p->k),
                      f.units_bytes(a->k_step_units),
                      0,
                      s->n,
                      (s->n + 15) / 16,
                      type,
                      in_scale * (family.int8 && !p->expert ? f.int8_unscale : f.unscale),
                      s->out.kind,
                      s->out.shift,
                      0 };
        a->types |= 1u << type;
    }
    a->way = wk_output_way(p);
}
/* The plan of a launch of all of p's rows, before its kernel is chosen. */
static inline wk_plan wk_plan_of(const wk_target *t, const wk_cuda_product *p)
{
    wk_plan plan = {};
    plan.target = t;
    plan.product = p;
    plan.rows = p->expert ? p->rows / p->top_k : p->rows;
    wk_product_common(*t->family, p, &plan.args.common);
    return plan;
}

/* ---- launches -------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a product as one of its own. */
static inline wk_cuda_product wk_product_part(const wk_cuda_product *p, uint32_t first, uint32_t n)
{
    wk_cuda_product q = *p;
    q.rows = n;
    if (p->input.row_index) {
        q.input.row_index += first;
    } else { /* acts: a norm has one row */
        q.input.x = static_cast<const __half *>(p->input.x) + (uint64_t)first * wk_act_k(p->k);
    }
    if (p->residual && !p->input.row_index) q.residual += first * p->residual_stride;
    for (uint32_t i = 0; i < p->n_seg; i++) {
        wk_cuda_output *o = &q.seg[i].out;
        if (o->kind == WK_CUDA_OUT_F32) {
            o->y = static_cast<float *>(o->y) + first * o->y_stride;
            if (o->aux) o->aux += (uint64_t)first * ((p->seg[i].n + 15) / 16);
        } else {
            o->y = static_cast<__half *>(o->y) + (uint64_t)first * wk_act_k(p->seg[i].n);
        }
    }
    return q;
}
/* A kernel of one format knows it as its first; of several, each by its index. The format: n_formats: several. */
static inline uint32_t wk_plan_format(wk_plan &plan)
{
    wk_product_args &a = plan.args.common;
    if (a.types & (a.types - 1)) return plan.target->family->n_formats;
    const uint32_t format = wk_log2(a.types);
    a.types = 1;
    for (uint32_t i = 0; i < a.n_seg; i++) a.seg[i].type = 0;
    return format;
}
static inline wk_status wk_plan_launch(wk_plan &plan, const wk_kernel_pointers &kernels, cudaStream_t stream,
                                       const struct wk_err *err)
{
    const void *const kernel = kernels.of[plan.kernel][wk_plan_format(plan)];
    const bool pdl = plan.product->flags & WK_CUDA_DEPENDENT;
    void *args[] = { &plan.args };
    if (plan.row->formats.only & WK_TRAIT_INT8) { /* its activations become integers by a launch before it */
        wk_launch rows(32 * WK_K_SLICES, 0, 0);
        rows.config.gridDim =
            dim3(wk_parts(plan.args.common.k_steps, WK_K_SLICES), plan.args.int8.tiles * WK_INT8_RECORD_ROWS);
        rows.config.stream = stream;
        if (pdl) rows.pdl();
        const wk_status status =
            wk_product_status(cudaLaunchKernelExC(&rows.config, kernels.int8_rows, args), "product", err);
        if (status) return status;
    }
    wk_launch launch(plan.threads, plan.shared, plan.cluster);
    launch.config.gridDim = dim3(plan.grid_x, plan.grid_y);
    launch.config.stream = stream;
    if (pdl) launch.pdl();
    return wk_product_status(cudaLaunchKernelExC(&launch.config, kernel, args), "product", err);
}
/* Segments from `first` on that are launched together. Several formats whose orders of k differ fit gemv alone,
 * whose launch has few rows. More rows are launched by format: the kernels of one format read its weights once. */
static inline uint32_t wk_segments_together(const wk_target *t, const wk_cuda_product *p, uint32_t first)
{
    const bool apart = p->rows > wk_kernels[WK_KERNEL_GEMV8].rows.to && !p->glu && !p->expert && !t->family->int8 &&
                       t->family->traits & WK_TRAIT_MIXED;
    uint32_t n = 1;
    while (first + n < p->n_seg && (!apart || p->seg[first + n].ggml_type == p->seg[first].ggml_type)) n++;
    return n;
}
/* Segments [first, first + n) of a product as one of their own. */
static inline wk_cuda_product wk_product_segments(const wk_cuda_product *p, uint32_t first, uint32_t n)
{
    wk_cuda_product q = *p;
    q.n_seg = n;
    for (uint32_t i = 0; i < n; i++) q.seg[i] = p->seg[first + i];
    return q;
}
/* One launch; false: this many rows do not fit in one. */
static inline bool wk_product_launch(const wk_target *t, const wk_kernel_pointers &kernels, const wk_cuda_product *p,
                                     cudaStream_t stream, wk_status *status, const struct wk_err *err)
{
    wk_plan plan = wk_plan_of(t, p);
    if (!wk_choose(plan)) return false;
    *status = wk_plan_launch(plan, kernels, stream, err);
    return true;
}

/* ---- what the family says of its products ---------------------------------------------------------------- */

/* Most rows of a product with a norm in its prologue. A block makes all rows for itself, which for more than four of
 * them costs more than a launch unless blocks are so few that each has a multiprocessor. */
static inline uint32_t wk_product_norm_rows(const wk_target *t, const wk_cuda_product *p)
{
    wk_cuda_product q = *p;
    q.rows = WK_CUDA_FEW_NORM;
    q.input.kind = WK_CUDA_IN_RMS;
    q.input.row_index = NULL;
    wk_plan plan = wk_plan_of(t, &q);
    if (p->expert || !wk_choose(plan) || plan.row->layout.norm_rows < WK_CUDA_FEW_NORM) return 1;
    return plan.args.common.items > t->device.processors ? t->measured->norm_rows_beside : (uint32_t)WK_CUDA_FEW_NORM;
}
/* The columns `layout` of the kernel that the product gets. */
static inline struct wk_cuda_layout wk_product_layout(const wk_target *t, const wk_cuda_product *p)
{
    struct wk_cuda_layout l = { WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT };
    wk_cuda_product q = *p;
    q.input.kind = WK_CUDA_IN_ACT;
    q.input.row_index = NULL;
    wk_plan plan = wk_plan_of(t, &q);
    if (!wk_choose(plan)) return l; /* fewer rows at once */
    const auto &row = plan.row->layout;
    const uint32_t group = t->family->formats[wk_format_index(*t->family, p->seg[0].ggml_type)].group;
    if (!row.in_group || row.in_group == group) l.in = row.in;
    if (l.in == WK_CUDA_IN_PANELS) l.in_group = group;
    if (p->glu) l.out = row.out;
    return l;
}
/* Has p what its layout says, if it has runs or panels at all? */
static inline bool wk_layout_right(const wk_target *t, const wk_cuda_product *p)
{
    const uint32_t in = p->input.kind, out = p->seg[0].out.kind;
    if (in < WK_CUDA_IN_PANELS && out < WK_CUDA_OUT_PANELS) return true;
    const struct wk_cuda_layout l = wk_product_layout(t, p);
    return (in < WK_CUDA_IN_PANELS || in == l.in) && (out < WK_CUDA_OUT_PANELS || out == l.out);
}
/* k is a multiple of the blocks of all formats. */
static inline wk_status wk_product_shaped(const wk_target *t, const wk_cuda_product *p, const struct wk_err *err)
{
    for (uint32_t i = 0; i < p->n_seg; i++) {
        const uint32_t block = t->family->formats[wk_format_index(*t->family, p->seg[i].ggml_type)].block;
        if (p->k == 0 || p->k % block || p->k > 1u << 24) return wk_fail(err, WK_INVALID, "product: k %u", p->k);
    }
    return p->rows > 0 && (p->expert || p->rows <= WK_CUDA_ROWS)
               ? WK_OK
               : wk_fail(err, WK_INVALID, "product: rows %u", p->rows);
}
/* Everything that the contract excludes. */
static inline wk_status wk_product_right(const wk_target *t, const wk_cuda_product *p, const struct wk_err *err)
{
    wk_status status = wk_product_shaped(t, p, err);
    if (!status) status = wk_product_check(p, err);
    if (status) return status;
    if (!wk_layout_right(t, p))
        return wk_fail(err, WK_INVALID, "product: input kind %u or out kind %u of %u rows and k %u", p->input.kind,
                       p->seg[0].out.kind, p->rows, p->k);
    if (p->expert) {
        const uint32_t segments = p->glu ? 1 : p->n_seg;
        uint32_t tiles = 0;
        for (uint32_t i = 0; i < segments; i++) tiles += (p->seg[i].n + 15) / 16;
        return (uint64_t)p->rows * tiles > UINT32_MAX / WK_MOE_SEVERAL_COST16
                   ? wk_fail(err, WK_INVALID, "product: rows %u of %u tiles with experts", p->rows, tiles)
                   : WK_OK;
    }
    if (p->input.kind == WK_CUDA_IN_RMS && p->rows > 1 && p->rows > wk_product_norm_rows(t, p))
        return wk_fail(err, WK_INVALID, "product: input kind %u with %u rows", p->input.kind, p->rows);
    if (t->family->int8 && p->rows > 1 && (!p->workspace || reinterpret_cast<uintptr_t>(p->workspace) % 256))
        return wk_fail(err, WK_INVALID, "product: workspace of %u rows is missing or not aligned", p->rows);
    return WK_OK;
}
static inline wk_status wk_product_too_large(const wk_cuda_product *p, const struct wk_err *err)
{
    return wk_fail(err, WK_INVALID, "product: k %u is too large for %s", p->k, p->expert ? "experts" : "this input");
}
/* As few launches as their memory allows; experts: one. */
static inline wk_status wk_product_rows(const wk_target *t, const wk_kernel_pointers &kernels, const wk_cuda_product *p,
                                        cudaStream_t stream, const struct wk_err *err)
{
    wk_status status = WK_OK;
    uint32_t most = p->rows;
    for (uint32_t first = 0; first < p->rows;) {
        const uint32_t n = wk_min(p->rows - first, most);
        const wk_cuda_product q = p->expert ? *p : wk_product_part(p, first, n);
        if (!wk_product_launch(t, kernels, &q, stream, &status, err)) {
            if (most == 1 || p->expert) return wk_product_too_large(p, err);
            most = n / 2 > 0 ? n / 2 : 1;
            continue;
        }
        if (status) return status;
        first += n;
    }
    return WK_OK;
}
static inline wk_status wk_product_run(const wk_target *t, const wk_kernel_pointers &kernels, const wk_cuda_product *p,
                                       void *stream, const struct wk_err *err)
{
    wk_status status = wk_product_right(t, p, err);
    for (uint32_t first = 0, n; first < p->n_seg && !status; first += n) {
        n = wk_segments_together(t, p, first);
        const wk_cuda_product q = wk_product_segments(p, first, n);
        status = wk_product_rows(t, kernels, &q, static_cast<cudaStream_t>(stream), err);
    }
    return status;
}

/* ---- what it would do on a device -------------------------------------------------------------------------- */

/* A family on a device that is not asked for anything. */
static inline wk_target wk_target_like(const wk_family_facts *family, const wk_cuda_device *d)
{
    wk_target t = {};
    t.family = family;
    t.measured = &wk_measured_h200;
    t.device = *d;
    for (uint32_t kernel = 0; kernel < WK_KERNELS; kernel++)
        for (uint32_t format = 0; format <= family->n_formats; format++) wk_kernel_clusters(NULL, kernel, format, &t);
    return t;
}
/* As wk_quant_cuda's. */
static inline wk_status wk_product_choice(const wk_family_facts *family, const wk_cuda_device *d,
                                          const wk_cuda_product *p, wk_cuda_choice *c, const struct wk_err *err)
{
    if (d->struct_size < sizeof *d) return wk_fail(err, WK_INVALID, "choice: device struct_size %u", d->struct_size);
    if (c->struct_size < sizeof *c) return wk_fail(err, WK_INVALID, "choice: struct_size %u", c->struct_size);
    if (d->processors == 0 || d->block_bytes == 0 || d->processor_bytes < 4 * WK_BLOCK_RESERVED)
        return wk_fail(err, WK_INVALID, "choice: device of %u processors with %u bytes, %u a block", d->processors,
                       d->processor_bytes, d->block_bytes);
    if (p->expert && p->top_k == 0) return wk_fail(err, WK_INVALID, "choice: top_k of a product of experts is 0");
    const wk_target target = wk_target_like(family, d);
    wk_status status = wk_product_shaped(&target, p, err);
    if (status) return status;
    const wk_cuda_product launched = wk_product_segments(p, 0, wk_segments_together(&target, p, 0));
    for (wk_cuda_product q = launched; q.rows; q.rows = p->expert ? 0 : q.rows / 2) {
        wk_plan plan = wk_plan_of(&target, &q);
        size_t at = 0;
        c->why_not[0] = 0;
        const bool found = wk_choose(plan, [&](const wk_plan &one, const char *why) {
            if (!why || !wk_row_is_for(one) || at >= sizeof c->why_not) return;
            at += (size_t)snprintf(c->why_not + at, sizeof c->why_not - at, "%s%s: %s", at ? "; " : "", one.row->name,
                                   why);
        });
        if (!found) continue;
        c->rows = q.rows;
        c->n_seg = q.n_seg;
        c->kernel = plan.row->name;
        c->grid_x = plan.grid_x;
        c->grid_y = plan.grid_y;
        c->cluster = plan.cluster;
        c->threads = plan.threads;
        c->shared = plan.shared;
        return WK_OK;
    }
    return wk_product_too_large(p, err);
}

/* A family's own: its facts, its kernels, and the one device of the process. */
template <class First, class... Rest> struct wk_product_of {
    static constexpr uint32_t n_types = 1 + sizeof...(Rest);
    static constexpr uint32_t types[n_types] = { First::type, Rest::type... };
    static inline const wk_family_facts facts = wk_family_facts_of<First, Rest...>();
    static inline wk_kernel_pointers kernels;
    static inline wk_target target;

    /* kernels: those of other sets are there. */
    static wk_status open(int32_t device, const struct wk_err *err)
    {
        target.family = &facts;
        target.measured = &wk_measured_h200;
        add<WK_KERNEL_SET_BASE>(&kernels);
        const wk_status status = wk_cuda_device_read(device, &target.device, err);
        return status ? status : wk_kernels_open(kernels, &target, err);
    }
    template <uint32_t SET> static void add(wk_kernel_pointers *p) { wk_kernel_pointers_of<SET, 0, First, Rest...>(p); }
    static uint32_t norm_rows(const wk_cuda_product *p) { return wk_product_norm_rows(&target, p); }
    static struct wk_cuda_layout layout(const wk_cuda_product *p) { return wk_product_layout(&target, p); }
    static uint64_t workspace(uint32_t k, uint32_t rows) { return facts.int8 ? wk_int8_workspace(k, rows) : 0; }
    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        return wk_product_run(&target, kernels, p, stream, err);
    }
    static wk_status choice(const wk_cuda_device *d, const wk_cuda_product *p, wk_cuda_choice *c,
                            const struct wk_err *err)
    {
        return wk_product_choice(&facts, d, p, c, err);
    }
};

/* What a file of products has, by the set of kernels that it is compiled for (kernel_set.cuh): the family; or what adds
 * the kernels of the set to it. */
#ifndef WK_KERNEL_SET
#define WK_PRODUCT_FAMILY(name, ...)                                                                       \
    static_assert(false, "a file of products is one of PRODUCTS of worker_add_plugin_cuda, which defines " \
                         "WK_KERNEL_SET")
#elif WK_KERNEL_SET == WK_KERNEL_SET_CLUSTERS
#define WK_PRODUCT_FAMILY(name, ...)             \
    void name##_clusters(wk_kernel_pointers *p); \
    void name##_clusters(wk_kernel_pointers *p) { wk_product_of<__VA_ARGS__>::add<WK_KERNEL_SET>(p); }
#elif WK_KERNEL_SET == WK_KERNEL_SET_WGMMA
#define WK_PRODUCT_FAMILY(name, ...)          \
    void name##_wgmma(wk_kernel_pointers *p); \
    void name##_wgmma(wk_kernel_pointers *p) { wk_product_of<__VA_ARGS__>::add<WK_KERNEL_SET>(p); }
#elif WK_KERNEL_SET == WK_KERNEL_SET_8X
#define WK_PRODUCT_FAMILY(name, ...)       \
    void name##_8x(wk_kernel_pointers *p); \
    void name##_8x(wk_kernel_pointers *p) { wk_product_of<__VA_ARGS__>::add<WK_KERNEL_SET>(p); }
#elif WK_KERNEL_SET == WK_KERNEL_SET_LARGE
#define WK_PRODUCT_FAMILY(name, ...)                          \
    void name##_large(wk_large_of<__VA_ARGS__>::pointers *p); \
    void name##_large(wk_large_of<__VA_ARGS__>::pointers *p) { wk_large_of<__VA_ARGS__>::add(p); }
#else
#define WK_PRODUCT_FAMILY(name, ...)                                                                  \
    void name##_clusters(wk_kernel_pointers *p);                                                      \
    void name##_wgmma(wk_kernel_pointers *p);                                                         \
    void name##_large(wk_large_of<__VA_ARGS__>::pointers *p);                                         \
    void name##_8x(wk_kernel_pointers *p);                                                            \
    static wk_status name##_open(int32_t device, const struct wk_err *err)                            \
    {                                                                                                 \
        if constexpr (wk_built_for_clusters()) name##_clusters(&wk_product_of<__VA_ARGS__>::kernels); \
        if constexpr (wk_built_for_8x()) name##_8x(&wk_product_of<__VA_ARGS__>::kernels);             \
        if constexpr (wk_built_for_wgmma()) {                                                         \
            name##_wgmma(&wk_product_of<__VA_ARGS__>::kernels);                                       \
            name##_large(&wk_large_of<__VA_ARGS__>::kernels);                                         \
        }                                                                                             \
        const wk_status status = wk_product_of<__VA_ARGS__>::open(device, err);                       \
        return status ? status : wk_large_of<__VA_ARGS__>::open(device, err);                         \
    }                                                                                                 \
    extern "C" const struct wk_product_family name;                                                   \
    const struct wk_product_family name = { wk_product_of<__VA_ARGS__>::types,                        \
                                            wk_product_of<__VA_ARGS__>::n_types,                      \
                                            0,                                                        \
                                            name##_open,                                              \
                                            wk_product_of<__VA_ARGS__>::norm_rows,                    \
                                            wk_product_of<__VA_ARGS__>::layout,                       \
                                            wk_product_of<__VA_ARGS__>::workspace,                    \
                                            wk_product_of<__VA_ARGS__>::product,                      \
                                            wk_product_of<__VA_ARGS__>::choice,                       \
                                            wk_large_of<__VA_ARGS__>::panels,                         \
                                            wk_large_of<__VA_ARGS__>::product }
#endif

#endif
