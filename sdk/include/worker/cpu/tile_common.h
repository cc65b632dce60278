/* worker/cpu/tile_common.h: what a block format states about itself, and what every instruction set does alike with it.
 *
 * A tile is 16 rows of a matrix; a vector lane is a row. Per block of the file there is one record: the 16 rows'
 * blocks, each field transposed so that one 64-byte vector holds 4 bytes of every row. Re-ordering loses no bit, so a
 * record is as long as 16 blocks.
 *
 * A format is three things:
 *   struct wk_tile_layout   which bytes of the file's block are 4-byte words, halves or a bit plane, and where they go;
 *   scales, weights         how a record becomes unsigned bytes and float scales, written once in the vocabulary of
 *                           vec_*.h (struct wk_v: 64 bytes, struct wk_f: 16 floats), so that one source serves
 *                           every instruction set;
 *   struct wk_tile_format   the constants of the arithmetic:
 *
 *       value = scale * (weight - offset) - min
 *                               weight: unsigned, below 2^bits; scale, min: one per `sub` values
 *
 * Product with 8-bit activations, the same for every number of tokens and tiles; per row and 32 values of k, in k
 * order:
 *       dot_i = sum over sub-block i of (weight - offset) * q   exact integer
 *       t     = dot_0 * scale_0;  t = fma(dot_1, scale_1, t)    the second if sub is 16
 *       t     = fma(sum_i, -min_i, t)                           each i, if the format has minima
 *       acc   = fma(t, d, acc)
 * Product with float activations: value as in the formula above, each operation rounded; four sums by k mod 4, fma in k
 * order; then (0 + 1) + (2 + 3). The portable form multiplies and adds where the others use fma. */
#ifndef WORKER_CPU_TILE_COMMON_H
#define WORKER_CPU_TILE_COMMON_H

#include <string.h>

#include <worker/cpu/half.h>
#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Everything below must melt into one function per format: constants of a format fold, its functions inline. Not so
 * where speed does not count and the size of what sanitizers make of it does. */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WK_INLINE static inline __attribute__((always_inline))
#else
#define WK_INLINE static inline
#endif

/* ---- layout: file block <-> record --------------------------------------------------------------------- */

/* A field is `count` elements of 1, 2 or 4 bytes: element e of row r goes to byte to + size * (16 e +
 * r) of the record. */
enum {
    WK_FIELD_BYTES = 1,
    WK_FIELD_HALVES = 2,
    WK_FIELD_WORDS = 4,
    WK_FIELD_BITS = 8 /* one 4-byte word holding a bit for each of 32 values: as a word, with bit 4 g + i moved to bit g
                         of byte i */
};

struct wk_tile_field {
    uint16_t kind, count, from, to; /* from: byte in the file's block; to: byte in the record */
};

struct wk_tile_layout {
    uint32_t block, block_bytes, n_fields, pad; /* values and bytes of a block in the file; block is a multiple of 32 */
    struct wk_tile_field fields[6];             /* together they cover the block; none crosses from body to tail */
};

/* A record is a body of whole 64-byte vectors and a tail of what is left over (16, 32 or 48 bytes: the scales). Four
 * records share a group, tails first, then bodies: vectors stay aligned, nothing is padded, and a tile is read from
 * front to back. A last group of fewer has its tails last, since they are no whole vectors. n: records in the tile. */
WK_INLINE uint32_t wk_body_bytes(uint32_t block_bytes) { return block_bytes * WK_TILE_ROWS & ~63u; }

WK_INLINE uint64_t wk_record_body(uint32_t block_bytes, uint32_t n, uint32_t index)
{
    const uint32_t first = index & ~3u, tail = block_bytes * WK_TILE_ROWS & 63u;
    return (uint64_t)first * block_bytes * WK_TILE_ROWS + (n - first < 4 ? 0 : 4 * tail) +
           (index & 3u) * wk_body_bytes(block_bytes);
}

WK_INLINE uint64_t wk_record_tail(uint32_t block_bytes, uint32_t n, uint32_t index)
{
    const uint32_t first = index & ~3u, tail = block_bytes * WK_TILE_ROWS & 63u;
    return (uint64_t)first * block_bytes * WK_TILE_ROWS +
           (n - first < 4 ? (n - first) * wk_body_bytes(block_bytes) : 0) + (index & 3u) * tail;
}

WK_INLINE uint64_t wk_round_up_64(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }

WK_INLINE uint64_t wk_layout_tile_bytes(const struct wk_tile_layout *l, uint32_t k)
{
    return wk_round_up_64((uint64_t)(k / l->block) * l->block_bytes * WK_TILE_ROWS);
}

/* Bits 0, 4, .., 28 of x (all others 0) moved together into bits 0..7, and back. */
WK_INLINE uint32_t wk_gather_bits(uint32_t x)
{
    x = (x | x >> 3) & 0x03030303u;
    x = (x | x >> 6) & 0x000f000fu;
    return (x | x >> 12) & 0xffu;
}

WK_INLINE uint32_t wk_scatter_bits(uint32_t x)
{
    x = (x | x << 12) & 0x000f000fu;
    x = (x | x << 6) & 0x03030303u;
    return (x | x << 3) & 0x11111111u;
}

WK_INLINE uint32_t wk_bits_to_plane(uint32_t file)
{
    uint32_t plane = 0;
    for (uint32_t i = 0; i < 4; i++) plane |= wk_gather_bits(file >> i & 0x11111111u) << 8 * i;
    return plane;
}

WK_INLINE uint32_t wk_plane_to_bits(uint32_t plane)
{
    uint32_t file = 0;
    for (uint32_t i = 0; i < 4; i++) file |= wk_scatter_bits(plane >> 8 * i & 0xffu) << i;
    return file;
}

/* `count` elements of `size` bytes (constant: then an element is a load and a store) of 16 rows, and back. at: the
 * field's place in the tile; offset: that in a row. */
WK_INLINE void wk_pack_elements(uint8_t *at, const uint8_t *const rows[16], uint64_t offset, uint32_t count,
                                const uint32_t size)
{
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        const uint8_t *from = rows[r] + offset;
        for (uint32_t e = 0; e < count; e++) memcpy(at + size * (WK_TILE_ROWS * e + r), from + size * e, size);
    }
}

WK_INLINE void wk_unpack_elements(uint8_t *const rows[16], const uint8_t *at, uint64_t offset, uint32_t count,
                                  const uint32_t size)
{
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        uint8_t *to = rows[r] + offset;
        for (uint32_t e = 0; e < count; e++) memcpy(to + size * e, at + size * (WK_TILE_ROWS * e + r), size);
    }
}

/* One field of 16 blocks to its record. */
WK_INLINE void wk_pack_field(uint8_t *at, const uint8_t *const rows[16], uint64_t block_at,
                             const struct wk_tile_field f)
{
    const uint64_t offset = block_at + f.from;
    switch (f.kind) {
    case WK_FIELD_BYTES: wk_pack_elements(at, rows, offset, f.count, 1); break;
    case WK_FIELD_HALVES: wk_pack_elements(at, rows, offset, f.count, 2); break;
    case WK_FIELD_WORDS: wk_pack_elements(at, rows, offset, f.count, 4); break;
    default:
        for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
            const uint32_t plane = wk_bits_to_plane(wk_load_u32(rows[r] + offset));
            memcpy(at + 4 * r, &plane, 4);
        }
    }
}

WK_INLINE void wk_unpack_field(uint8_t *const rows[16], const uint8_t *at, uint64_t block_at,
                               const struct wk_tile_field f)
{
    const uint64_t offset = block_at + f.from;
    switch (f.kind) {
    case WK_FIELD_BYTES: wk_unpack_elements(rows, at, offset, f.count, 1); break;
    case WK_FIELD_HALVES: wk_unpack_elements(rows, at, offset, f.count, 2); break;
    case WK_FIELD_WORDS: wk_unpack_elements(rows, at, offset, f.count, 4); break;
    default:
        for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
            const uint32_t bits = wk_plane_to_bits(wk_load_u32(at + 4 * r));
            memcpy(rows[r] + offset, &bits, 4);
        }
    }
}

/* Byte of field f of record `index` of n in a tile. */
WK_INLINE uint64_t wk_field_at(uint32_t block_bytes, uint32_t n, uint32_t index, const struct wk_tile_field f)
{
    const uint32_t body = wk_body_bytes(block_bytes);
    return f.to >= body ? wk_record_tail(block_bytes, n, index) + (f.to - body)
                        : wk_record_body(block_bytes, n, index) + f.to;
}

/* wk_type_cpu.pack and .unpack for a layout. */
WK_INLINE void wk_layout_pack(const struct wk_tile_layout *l, void *tile, const void *const rows[16], uint32_t k)
{
    const uint8_t *from[WK_TILE_ROWS];
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) from[r] = (const uint8_t *)rows[r];
    const uint32_t n = k / l->block;
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t i = 0; i < l->n_fields; i++) {
            uint8_t *at = (uint8_t *)tile + wk_field_at(l->block_bytes, n, b, l->fields[i]);
            wk_pack_field(at, from, (uint64_t)b * l->block_bytes, l->fields[i]);
        }
    }
    const uint64_t used = (uint64_t)n * l->block_bytes * WK_TILE_ROWS;
    memset((uint8_t *)tile + used, 0, wk_round_up_64(used) - used);
}

WK_INLINE void wk_layout_unpack(const struct wk_tile_layout *l, void *const rows[16], const void *tile, uint32_t k)
{
    uint8_t *to[WK_TILE_ROWS];
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) to[r] = (uint8_t *)rows[r];
    const uint32_t n = k / l->block;
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t i = 0; i < l->n_fields; i++) {
            const uint8_t *at = (const uint8_t *)tile + wk_field_at(l->block_bytes, n, b, l->fields[i]);
            wk_unpack_field(to, at, (uint64_t)b * l->block_bytes, l->fields[i]);
        }
    }
}

/* ---- tiles of plain elements: [k][16], 2 or 4 bytes each ----------------------------------------------- */

WK_INLINE uint64_t wk_plain_tile_bytes(uint32_t element_bytes, uint32_t k)
{
    return wk_round_up_64((uint64_t)k * element_bytes * WK_TILE_ROWS);
}

WK_INLINE void wk_plain_pack(uint32_t element_bytes, void *tile, const void *const rows[16], uint32_t k)
{
    uint8_t *to = (uint8_t *)tile;
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        const uint8_t *from = (const uint8_t *)rows[r];
        for (uint64_t i = 0; i < k; i++)
            memcpy(to + (i * WK_TILE_ROWS + r) * element_bytes, from + i * element_bytes, element_bytes);
    }
    const uint64_t used = (uint64_t)k * element_bytes * WK_TILE_ROWS;
    memset(to + used, 0, wk_round_up_64(used) - used);
}

WK_INLINE void wk_plain_unpack(uint32_t element_bytes, void *const rows[16], const void *tile, uint32_t k)
{
    const uint8_t *from = (const uint8_t *)tile;
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        uint8_t *to = (uint8_t *)rows[r];
        for (uint64_t i = 0; i < k; i++)
            memcpy(to + i * element_bytes, from + (i * WK_TILE_ROWS + r) * element_bytes, element_bytes);
    }
}

/* tile_bytes, pack and unpack of a type NAME from its NAME_layout, or from the bytes of its plain elements. storage:
 * static, or nothing. */
#define WK_LAYOUT_TILES(name, storage)                                                                            \
    storage uint64_t name##_tile_bytes(uint32_t k) { return wk_layout_tile_bytes(&name##_layout, k); }            \
    storage void name##_pack(const struct wk_pack *p) { wk_layout_pack(&name##_layout, p->tile, p->rows, p->k); } \
    storage void name##_unpack(const struct wk_unpack *p) { wk_layout_unpack(&name##_layout, p->rows, p->tile, p->k); }
#define WK_PLAIN_TILES(name, bytes, storage)                                                            \
    storage uint64_t name##_tile_bytes(uint32_t k) { return wk_plain_tile_bytes(bytes, k); }            \
    storage void name##_pack(const struct wk_pack *p) { wk_plain_pack(bytes, p->tile, p->rows, p->k); } \
    storage void name##_unpack(const struct wk_unpack *p) { wk_plain_unpack(bytes, p->rows, p->tile, p->k); }

/* What the source files of a type NAME owe each other: its functions that WK_TILE_TYPE lists. */
#define WK_TILE_FUNCTIONS(name)                                                        \
    void name##_dequantize(const struct wk_dequantize *in);                            \
    wk_status name##_quantize(const struct wk_quantize *in, const struct wk_err *err); \
    void name##_product_portable(const struct wk_cpu_product *p);                      \
    void name##_product_avx2(const struct wk_cpu_product *p);                          \
    void name##_product_avx512(const struct wk_cpu_product *p);

/* struct wk_type_cpu NAME_type of NAME_tile_bytes, _pack, _unpack, _dequantize, _quantize and the products
 * NAME_product_portable, _avx2 and _avx512. spelling: ggml's; forms: WK_ACTIVATION_*. */
#define WK_TILE_TYPE(name_, number, spelling, values, bytes, forms)                                             \
    static const struct wk_isa_product name_##_products[] = { { WK_ISA_PORTABLE, 0, name_##_product_portable }, \
                                                              { WK_ISA_AVX2, 0, name_##_product_avx2 },         \
                                                              { WK_ISA_AVX512, 0, name_##_product_avx512 } };   \
    static const struct wk_type_cpu name_##_type = { .struct_size = sizeof(struct wk_type_cpu),                 \
                                                     .ggml_type = number,                                       \
                                                     .block = values,                                           \
                                                     .block_bytes = bytes,                                      \
                                                     .activations = forms,                                      \
                                                     .name = spelling,                                          \
                                                     .tile_bytes = name_##_tile_bytes,                          \
                                                     .scratch_bytes = wk_tile_scratch_bytes,                    \
                                                     .pack = name_##_pack,                                      \
                                                     .unpack = name_##_unpack,                                  \
                                                     .dequantize = name_##_dequantize,                          \
                                                     .quantize = name_##_quantize,                              \
                                                     WK_TYPE_PRODUCTS(name_##_products) };

/* ---- arithmetic ---------------------------------------------------------------------------------------- */

struct wk_v; /* 64 bytes: 16 rows x 4 bytes; vec_*.h */
struct wk_f; /* 16 floats, one a row */

/* The 2^bits points of a grid, each of four nibbles, twice, as an instruction set looks them up: whole, and their lower
 * and upper bytes apart. Four bytes from every entry on are read, so that one more follows the last. */
struct wk_grid {
    const uint16_t *entry;     /* [2^bits + 1], the first nibble lowest */
    const uint8_t *low, *high; /* [2^bits], 64-byte aligned */
    uint32_t bits;             /* 8 .. 11 */
};

struct wk_tile_format {
    const struct wk_tile_layout *layout;
    uint32_t sub;  /* values a scale: 16 or 32 */
    uint32_t bits; /* weight < 2^bits, at most 8 */
    uint32_t offset;
    uint32_t has_min;
    /* One record's scales, and minima if it has them: [block / sub][16 rows] each, 64-byte aligned. tail: see below
     * struct wk_tile_layout. A scale has at most 22 significant bits (a product of two halves has) and is below 2^100:
     * tile_avx512.h relies on it. */
    void (*scales)(const uint8_t *body, const uint8_t *tail, float *scale, float *min);
    /* Values 32 j .. 32 j + 31 of a record as bytes: byte i of a row in w[n] is value 32 j + 4 n + i. */
    void (*weights)(const uint8_t *body, uint32_t j, struct wk_v *w);
};

#define WK_MAX_SUBS 16u   /* scales a block: 256 / 16 */
#define WK_TOKENS_Q8 128u /* tokens that one expansion of a block serves: their sums stay in the first cache */
#define WK_TOKENS_F32 64u
#define WK_PLAIN_RUN 128u /* values of plain elements that meet a token at once: its sums stay in registers */

/* What a thread needs while it works; independent of k. */
struct wk_tile_scratch {
    float acc[WK_TOKENS_Q8 * 2 * WK_TILE_ROWS]; /* [token][2 tiles][16] or [token][4 partial sums][16] */
    float scale[2][WK_MAX_SUBS * WK_TILE_ROWS]; /* [tile][sub-block][16] */
    float min[2][WK_MAX_SUBS * WK_TILE_ROWS];
    float values[WK_PLAIN_RUN * WK_TILE_ROWS]; /* [32][16]; of plain elements [WK_PLAIN_RUN][16] */
};
WK_STATIC_ASSERT(WK_TOKENS_F32 * 4 <= WK_TOKENS_Q8 * 2, "float sums fit");

/* wk_type_cpu.scratch_bytes */
static inline uint64_t wk_tile_scratch_bytes(uint32_t k)
{
    (void)k;
    return sizeof(struct wk_tile_scratch);
}

/* Activations of token t at value k0 (a multiple of 32), Q8 and float. */
WK_INLINE const struct wk_activation_q8 *wk_x_q8(const struct wk_cpu_product *p, uint32_t t, uint32_t k0)
{
    return (const struct wk_activation_q8 *)(const void *)((const uint8_t *)p->x + t * p->x_stride) +
           k0 / WK_ACTIVATION_BLOCK;
}

WK_INLINE const float *wk_x_f32(const struct wk_cpu_product *p, uint32_t t, uint32_t k0)
{
    return (const float *)(const void *)((const uint8_t *)p->x + t * p->x_stride) + k0;
}

/* Sum of the activations that belong to sub-block h of `halves` in a block. */
WK_INLINE int32_t wk_x_sum(const struct wk_activation_q8 *x, uint32_t halves, uint32_t h)
{
    return halves == 1 ? x->sum[0] + x->sum[1] : x->sum[h];
}

#ifdef __cplusplus
}
#endif
#endif
