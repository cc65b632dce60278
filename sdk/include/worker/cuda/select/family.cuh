/* worker/cuda/select/family.cuh: a family of formats as the choice of kernels sees it: numbers instead of types, so
 * that the choice is compiled once and not for each family. */
#ifndef WORKER_CUDA_SELECT_FAMILY_CUH
#define WORKER_CUDA_SELECT_FAMILY_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/kernel/resident.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/int8_grid.cuh>
#include <worker/cuda/part/weights.cuh>

/* Traits of formats, by which kernels take a launch or not. */
enum {
    WK_TRAIT_EXACT = 1u << 0,   /* a wider range than f16's (part/weights.cuh) */
    WK_TRAIT_INT8 = 1u << 1,    /* dense products are integer products (part/int8.cuh) */
    WK_TRAIT_HALF = 1u << 2,    /* weights stand in the tile as products take them */
    WK_TRAIT_NUMBER = 1u << 3,  /* a block is one number, of two bytes or more */
    WK_TRAIT_ODD = 1u << 4,     /* units are not multiples of 64 values */
    WK_TRAIT_SUPER = 1u << 5,   /* units belong together by twos */
    WK_TRAIT_SEVERAL = 1u << 6, /* several formats stand side by side in the launch */
    WK_TRAIT_MIXED = 1u << 7    /* whose orders of k differ, or the two formats of a gated product */
};

template <class F> constexpr uint32_t wk_traits_of()
{
    return (wk_is_exact<F>::yes ? (uint32_t)WK_TRAIT_EXACT : 0u) | (wk_is_int8<F>::yes ? (uint32_t)WK_TRAIT_INT8 : 0u) |
           (wk_is_half<F>() ? (uint32_t)WK_TRAIT_HALF : 0u) | (F::block == 1 ? (uint32_t)WK_TRAIT_NUMBER : 0u) |
           (F::unit % 64 ? (uint32_t)WK_TRAIT_ODD : 0u) | (F::super > 1 ? (uint32_t)WK_TRAIT_SUPER : 0u);
}
/* Of a launch with these formats: one, or all of a family side by side. */
template <class First, class... Rest> constexpr uint32_t wk_launch_traits()
{
    uint32_t traits = wk_traits_of<First>();
    ((traits |=
      wk_traits_of<Rest>() | WK_TRAIT_SEVERAL | (Rest::group != First::group ? (uint32_t)WK_TRAIT_MIXED : 0u)),
     ...);
    return traits;
}

struct wk_format_facts {
    uint32_t type;                             /* ggml type */
    uint32_t block;                            /* values of k in a block of the file */
    uint32_t group;                            /* order of k of its fragments: 32 or 16 (format.cuh) */
    uint32_t pad;                              /* halves between two columns of activations (part/columns.cuh) */
    uint32_t traits;                           /* WK_TRAIT_*, alone */
    float unscale, int8_unscale;               /* what sums are multiplied by; those of integer products */
    uint32_t (*tile_bytes)(uint32_t k);        /* of a tile */
    uint32_t (*tile_stride)(uint32_t k);       /* bytes from tile to tile */
    uint32_t (*units_bytes)(uint32_t n_units); /* bytes of the first units of a tile */
};
struct wk_family_facts {
    uint32_t n_formats;
    uint32_t unit, super; /* of all formats (format.cuh) */
    uint32_t most_units;  /* of a K step */
    uint32_t traits;      /* WK_TRAIT_*, of a launch with several formats */
    bool int8;            /* dense products are integer products */
    uint32_t table_bytes; /* of one row: of a table in shared memory, where there is room */
    bool norms;           /* resident can norm several rows of its input */
    struct wk_format_facts formats[WK_TYPES_MAX];
};

template <class F> uint32_t wk_format_tile_bytes(uint32_t k) { return (uint32_t)F::tile_bytes(k); }
template <class F> uint32_t wk_format_tile_stride(uint32_t k) { return (uint32_t)wk_tile_stride<F>(k); }
template <class F> uint32_t wk_format_units_bytes(uint32_t n_units) { return (uint32_t)F::offset(n_units); }

/* Units of the longest step: 256 values, or fewer where gemv could have only pieces of them that begin inside a line
 * of 128 bytes (wk_tile_stride). */
template <class F> constexpr uint32_t wk_format_most_units()
{
    uint32_t units = F::super > 1 ? F::super : 256 / F::unit;
    while (F::super == 1 && units > 1 && F::offset(units) > WK_GEMV_ONE_STAGE && F::offset(units / 2) % 128) units /= 2;
    return units;
}
template <class First, class... Rest> constexpr uint32_t wk_family_most_units()
{
    uint32_t units = wk_format_most_units<First>();
    ((units = wk_format_most_units<Rest>() < units ? wk_format_most_units<Rest>() : units), ...);
    return units;
}
template <class F> constexpr wk_format_facts wk_facts_of()
{
    return { F::type,
             F::block,
             F::group,
             wk_column_pad<F>(),
             wk_traits_of<F>(),
             wk_unscale<F>(),
             wk_is_int8<F>::unscale,
             wk_format_tile_bytes<F>,
             wk_format_tile_stride<F>,
             wk_format_units_bytes<F> };
}
template <class First, class... Rest> constexpr wk_family_facts wk_family_facts_of()
{
    constexpr uint32_t n = 1 + sizeof...(Rest);
    static_assert(n <= WK_TYPES_MAX && First::super <= 2 &&
                      ((Rest::unit == First::unit && Rest::super == First::super) && ...),
                  "formats of a family have units of one size");
    return { n,
             First::unit,
             First::super,
             wk_family_most_units<First, Rest...>(),
             wk_launch_traits<First, Rest...>(),
             wk_is_int8<First>::yes,
             wk_is_int8_grid<First>() ? (uint32_t)WK_INT8_TABLE : 0u,
             wk_resident_norms<First, Rest...>(),
             { wk_facts_of<First>(), wk_facts_of<Rest>()... } };
}

#endif
