/* worker/cuda/product.h: the product of a module made of families of formats. C.
 *
 * A family is a set of formats that share one kernel (worker/cuda/product.cuh) and may stand side by side in one
 * launch. */
#ifndef WORKER_CUDA_PRODUCT_H
#define WORKER_CUDA_PRODUCT_H

#include <worker/quant_cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

struct wk_product_family {
    const uint32_t *types; /* ggml types [n_types] */
    uint32_t n_types, pad;
    wk_status (*open)(int32_t device, const struct wk_err *err);
    uint32_t (*norm_rows)(const struct wk_cuda_product *p);
    struct wk_cuda_layout (*layout)(const struct wk_cuda_product *p);
    uint64_t (*workspace)(uint32_t k, uint32_t rows); /* bytes, of a dense product */
    wk_status (*product)(const struct wk_cuda_product *p, void *stream, const struct wk_err *err);
    wk_status (*choice)(const struct wk_cuda_device *d, const struct wk_cuda_product *p, struct wk_cuda_choice *c,
                        const struct wk_err *err);
    /* As struct wk_quant_cuda has them, of one of these types. */
    uint32_t (*panels)(uint32_t ggml_type);
    wk_status (*large)(const struct wk_cuda_product *p, void *stream, const struct wk_err *err);
};

static inline int32_t wk_family_has(const struct wk_product_family *f, uint32_t type)
{
    for (uint32_t i = 0; i < f->n_types; i++)
        if (f->types[i] == type) return 1;
    return 0;
}

/* The family that has all these types, or NULL. */
static inline const struct wk_product_family *wk_family_of(const struct wk_product_family *const *families,
                                                           uint32_t n_families, const uint32_t *types, uint32_t n)
{
    for (uint32_t i = 0; i < n_families; i++) {
        uint32_t j = 0;
        while (j < n && wk_family_has(families[i], types[j])) j++;
        if (j == n && n) return families[i];
    }
    return NULL;
}

static inline wk_status wk_families_open(const struct wk_product_family *const *families, uint32_t n_families,
                                         int32_t device, const struct wk_err *err)
{
    for (uint32_t i = 0; i < n_families; i++) {
        const wk_status status = families[i]->open(device, err);
        if (status) return status;
    }
    return WK_OK;
}

/* The family that a product is of, or NULL. */
static inline const struct wk_product_family *wk_families_of(const struct wk_product_family *const *families,
                                                             uint32_t n_families, const struct wk_cuda_product *p)
{
    uint32_t types[4];
    for (uint32_t i = 0; i < p->n_seg; i++) types[i] = p->seg[i].ggml_type;
    return wk_family_of(families, n_families, types, p->n_seg);
}

static inline uint32_t wk_families_norm_rows(const struct wk_product_family *const *families, uint32_t n_families,
                                             const struct wk_cuda_product *p)
{
    const struct wk_product_family *f = wk_families_of(families, n_families, p);
    return f ? f->norm_rows(p) : 1;
}

static inline struct wk_cuda_layout wk_families_layout(const struct wk_product_family *const *families,
                                                       uint32_t n_families, const struct wk_cuda_product *p)
{
    const struct wk_product_family *f = wk_families_of(families, n_families, p);
    const struct wk_cuda_layout rows = { WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT };
    return f ? f->layout(p) : rows;
}

static inline uint64_t wk_families_workspace(const struct wk_product_family *const *families, uint32_t n_families,
                                             uint32_t type, uint32_t k, uint32_t rows)
{
    const struct wk_product_family *f = wk_family_of(families, n_families, &type, 1);
    return f ? f->workspace(k, rows) : 0;
}

/* The family of a product of which nothing is known yet. */
static inline wk_status wk_families_find(const struct wk_product_family *const *families, uint32_t n_families,
                                         const struct wk_cuda_product *p, const struct wk_product_family **f,
                                         const struct wk_err *err)
{
    if (p->struct_size < sizeof *p) return wk_fail(err, WK_INVALID, "product: struct_size %u", p->struct_size);
    if (p->n_seg < 1 || p->n_seg > 4) return wk_fail(err, WK_INVALID, "product: n_seg %u", p->n_seg);
    *f = wk_families_of(families, n_families, p);
    return *f ? WK_OK
              : wk_fail(err, WK_INVALID,
                        "product: seg ggml_type: these types (the first is %u) are not served together",
                        p->seg[0].ggml_type);
}

static inline wk_status wk_families_product(const struct wk_product_family *const *families, uint32_t n_families,
                                            const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    const struct wk_product_family *f;
    const wk_status status = wk_families_find(families, n_families, p, &f, err);
    return status ? status : f->product(p, stream, err);
}

static inline wk_status wk_families_choice(const struct wk_product_family *const *families, uint32_t n_families,
                                           const struct wk_cuda_device *d, const struct wk_cuda_product *p,
                                           struct wk_cuda_choice *c, const struct wk_err *err)
{
    const struct wk_product_family *f;
    const wk_status status = wk_families_find(families, n_families, p, &f, err);
    return status ? status : f->choice(d, p, c, err);
}

/* Products of experts with many items each (struct wk_quant_cuda). */
static inline uint32_t wk_families_panels(const struct wk_product_family *const *families, uint32_t n_families,
                                          uint32_t type)
{
    const struct wk_product_family *f = wk_family_of(families, n_families, &type, 1);
    return f ? f->panels(type) : 0;
}

static inline wk_status wk_families_large(const struct wk_product_family *const *families, uint32_t n_families,
                                          const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    if (p->struct_size < sizeof *p) return wk_fail(err, WK_INVALID, "large product: struct_size %u", p->struct_size);
    const uint32_t type = p->seg[0].ggml_type;
    const struct wk_product_family *f = wk_family_of(families, n_families, &type, 1);
    if (!f || !f->panels(type)) return wk_fail(err, WK_INVALID, "large product: seg ggml_type: %u is not served", type);
    return f->large(p, stream, err);
}

/* Defines what a module whose families are in the array `families` answers with; WORKER_PLUGIN_CUDA(...,
 * WK_FAMILIES_CALLS) hands it to the host. */
#define WK_FAMILIES(families)                                                                                  \
    enum { N_FAMILIES = sizeof(families) / sizeof *(families) };                                               \
    static int32_t families_serves(const uint32_t *ggml_types, uint32_t n)                                     \
    {                                                                                                          \
        return wk_family_of(families, N_FAMILIES, ggml_types, n) != NULL;                                      \
    }                                                                                                          \
    static wk_status families_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err) \
    {                                                                                                          \
        return wk_families_product(families, N_FAMILIES, p, stream, err);                                      \
    }                                                                                                          \
    static uint32_t families_panels(uint32_t ggml_type)                                                        \
    {                                                                                                          \
        return wk_families_panels(families, N_FAMILIES, ggml_type);                                            \
    }                                                                                                          \
    static wk_status families_large(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)   \
    {                                                                                                          \
        return wk_families_large(families, N_FAMILIES, p, stream, err);                                        \
    }                                                                                                          \
    static uint32_t families_norm_rows(const struct wk_cuda_product *p)                                        \
    {                                                                                                          \
        return wk_families_norm_rows(families, N_FAMILIES, p);                                                 \
    }                                                                                                          \
    static struct wk_cuda_layout families_layout(const struct wk_cuda_product *p)                              \
    {                                                                                                          \
        return wk_families_layout(families, N_FAMILIES, p);                                                    \
    }                                                                                                          \
    static uint64_t families_workspace(uint32_t ggml_type, uint32_t k, uint32_t rows)                          \
    {                                                                                                          \
        return wk_families_workspace(families, N_FAMILIES, ggml_type, k, rows);                                \
    }                                                                                                          \
    static wk_status families_choice(const struct wk_cuda_device *d, const struct wk_cuda_product *p,          \
                                     struct wk_cuda_choice *c, const struct wk_err *err)                       \
    {                                                                                                          \
        return wk_families_choice(families, N_FAMILIES, d, p, c, err);                                         \
    }
#define WK_FAMILIES_CALLS                                                                                       \
    .serves = families_serves, .product = families_product, .panels = families_panels, .large = families_large, \
    .norm_rows = families_norm_rows, .layout = families_layout, .workspace = families_workspace,                \
    .choice = families_choice

#ifdef __cplusplus
}
#endif
#endif
