/* format.h: calls of a number format's functions, which take structs, as the host's code wants to write them. */
#ifndef CORE_PLUGIN_FORMAT_H
#define CORE_PLUGIN_FORMAT_H

#include <worker/quant.h>

/* What a tensor without parameters of its own has. */
static const struct wk_tensor_params format_plain = { sizeof(struct wk_tensor_params), 1.0f };

static inline void format_dequantize(const struct wk_type_cpu *t, float *y, const void *blocks, uint64_t n)
{
    t->dequantize(&(struct wk_dequantize){
        .struct_size = sizeof(struct wk_dequantize), .n = n, .blocks = blocks, .y = y, .tensor = &format_plain });
}

/* n values, below 2^32, as one row. */
static inline wk_status format_quantize(const struct wk_type_cpu *t, void *blocks, const float *x, uint64_t n,
                                        const struct wk_err *err)
{
    return t->quantize(&(struct wk_quantize){ .struct_size = sizeof(struct wk_quantize),
                                              .row_length = (uint32_t)n,
                                              .n = n,
                                              .x = x,
                                              .blocks = blocks,
                                              .tensor = &format_plain },
                       err);
}

static inline void format_pack(const struct wk_type_cpu *t, void *tile, const void *const *rows, uint32_t k)
{
    t->pack(&(struct wk_pack){
        .struct_size = sizeof(struct wk_pack), .k = k, .rows = rows, .tile = tile, .tensor = &format_plain });
}

static inline void format_unpack(const struct wk_type_cpu *t, void *const *rows, const void *tile, uint32_t k)
{
    t->unpack(&(struct wk_unpack){
        .struct_size = sizeof(struct wk_unpack), .k = k, .tile = tile, .rows = rows, .tensor = &format_plain });
}

/* The product for an instruction set: of those that the type has and a processor of the level `isa` runs, the one that
 * the host prefers. Never NULL for isa >= PORTABLE. */
enum { FORMAT_ISAS = WK_ISA_AVX512 + 1 }; /* levels that this host knows: 0 .. FORMAT_ISAS - 1 */
typedef void (*format_product)(const struct wk_cpu_product *);
format_product format_product_for(const struct wk_type_cpu *t, uint32_t isa);
/* The one that is written for that very set; NULL: the type has none. */
format_product format_product_of(const struct wk_type_cpu *t, uint32_t isa);

#endif
