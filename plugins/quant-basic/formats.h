/* quant-basic/formats.h: the eight types of this plugin, and what its source files owe each other.
 *
 * Blocks of 32 values (byte offsets in the file's block; nibble byte j holds value j low, value j + 16 high):
 *   Q4_0 d[0] n[2..17]             y = (q - 8) d         Q4_1 d[0] m[2] n[4..19]            y = q d + m
 *   Q5_0 d[0] h[2..5] n[6..21]     y = (q - 16) d        Q5_1 d[0] m[2] h[4..7] n[8..23]    y = q d + m
 *   Q8_0 d[0] int8[2..33]          y = q d               F32, F16, BF16: one value a block
 * Source: the GGUF format's definition of these types (ggml). */
#ifndef QUANT_BASIC_FORMATS_H
#define QUANT_BASIC_FORMATS_H

#include <worker/cpu/tile_common.h>

/* Records: nibble words first, then the bit plane, then the halves. */
static const struct wk_tile_layout q4_0_layout = {
    32, 18, 2, 0, { { WK_FIELD_WORDS, 4, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 256 } }
};
static const struct wk_tile_layout q4_1_layout = {
    32, 20, 3, 0, { { WK_FIELD_WORDS, 4, 4, 0 }, { WK_FIELD_HALVES, 1, 0, 256 }, { WK_FIELD_HALVES, 1, 2, 288 } }
};
static const struct wk_tile_layout q5_0_layout = {
    32, 22, 3, 0, { { WK_FIELD_WORDS, 4, 6, 0 }, { WK_FIELD_BITS, 1, 2, 256 }, { WK_FIELD_HALVES, 1, 0, 320 } }
};
static const struct wk_tile_layout q5_1_layout = { 32,
                                                   24,
                                                   4,
                                                   0,
                                                   { { WK_FIELD_WORDS, 4, 8, 0 },
                                                     { WK_FIELD_BITS, 1, 4, 256 },
                                                     { WK_FIELD_HALVES, 1, 0, 320 },
                                                     { WK_FIELD_HALVES, 1, 2, 352 } } };
static const struct wk_tile_layout q8_0_layout = {
    32, 34, 2, 0, { { WK_FIELD_WORDS, 8, 2, 0 }, { WK_FIELD_HALVES, 1, 0, 512 } }
};

/* X(name, ggml type, ggml's spelling, values a block, bytes a block, forms of activations) */
#define QUANT_BASIC_TYPES(X)                                         \
    X(f32, 0, "f32", 1, 4, WK_ACTIVATION_F32)                        \
    X(f16, 1, "f16", 1, 2, WK_ACTIVATION_F32)                        \
    X(bf16, 30, "bf16", 1, 2, WK_ACTIVATION_F32)                     \
    X(q8_0, 8, "q8_0", 32, 34, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8) \
    X(q4_0, 2, "q4_0", 32, 18, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8) \
    X(q4_1, 3, "q4_1", 32, 20, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8) \
    X(q5_0, 6, "q5_0", 32, 22, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8) \
    X(q5_1, 7, "q5_1", 32, 24, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8)

#define DECLARE(name, ...)                                                             \
    uint64_t name##_tile_bytes(uint32_t k);                                            \
    void name##_pack(const struct wk_pack *in);                                        \
    void name##_unpack(const struct wk_unpack *in);                                    \
    void name##_dequantize(const struct wk_dequantize *in);                            \
    wk_status name##_quantize(const struct wk_quantize *in, const struct wk_err *err); \
    void name##_product_portable(const struct wk_cpu_product *p);                      \
    void name##_product_avx2(const struct wk_cpu_product *p);                          \
    void name##_product_avx512(const struct wk_cpu_product *p);
QUANT_BASIC_TYPES(DECLARE)
#undef DECLARE

#endif
