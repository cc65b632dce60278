/* format.h: calls of a number format's functions, which take structs, as the host's code wants to write them. */
#ifndef CORE_PLUGIN_FORMAT_H
#define CORE_PLUGIN_FORMAT_H

#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a tensor without parameters of its own has. */
static const struct wk_tensor_params format_plain = { sizeof(struct wk_tensor_params), 1.0f };

/* Of a function alone, for tests that have no type; quantize: n values, below 2^32, as one row, all alike important. */
static inline void format_call_dequantize(void (*fn)(const struct wk_dequantize *), float *y, const void *blocks,
                                          uint64_t n)
{
    const struct wk_dequantize d = { sizeof d, 0, n, blocks, y, &format_plain };
    fn(&d);
}
static inline wk_status format_call_quantize(wk_status (*fn)(const struct wk_quantize *, const struct wk_err *),
                                             void *blocks, const float *x, uint64_t n, const struct wk_err *err)
{
    const struct wk_quantize q = { sizeof q, (uint32_t)n, n, x, NULL, blocks, &format_plain };
    return fn(&q, err);
}

static inline void format_dequantize(const struct wk_type_cpu *t, float *y, const void *blocks, uint64_t n)
{
    format_call_dequantize(t->dequantize, y, blocks, n);
}
static inline wk_status format_quantize(const struct wk_type_cpu *t, void *blocks, const float *x, uint64_t n,
                                        const struct wk_err *err)
{
    return format_call_quantize(t->quantize, blocks, x, n, err);
}
/* importance: [n] what an error in each value costs, or NULL. */
static inline wk_status format_quantize_row(const struct wk_type_cpu *t, void *blocks, const float *x,
                                            const float *importance, uint32_t n, const struct wk_err *err)
{
    const struct wk_quantize q = { sizeof q, n, n, x, importance, blocks, &format_plain };
    return t->quantize(&q, err);
}

static inline void format_pack(const struct wk_type_cpu *t, void *tile, const void *const *rows, uint32_t k)
{
    const struct wk_pack p = { sizeof p, k, rows, tile, &format_plain };
    t->pack(&p);
}

static inline void format_unpack(const struct wk_type_cpu *t, void *const *rows, const void *tile, uint32_t k)
{
    const struct wk_unpack u = { sizeof u, k, tile, rows, &format_plain };
    t->unpack(&u);
}

/* The product for an instruction set: of those that the type has and a processor of the level `isa` runs, the one that
 * the host prefers. Never NULL for isa >= PORTABLE. */
enum { FORMAT_ISAS = WK_ISA_AVX512 + 1 }; /* levels that this host knows: 0 .. FORMAT_ISAS - 1 */
typedef void (*format_product)(const struct wk_cpu_product *);
format_product format_product_for(const struct wk_type_cpu *t, uint32_t isa);
/* The one that is written for that very set; NULL: the type has none. */
format_product format_product_of(const struct wk_type_cpu *t, uint32_t isa);

#ifdef __cplusplus
}
#endif
#endif
