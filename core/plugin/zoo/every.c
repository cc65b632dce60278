/* every.c: a plugin that claims every number that ggml has given to a type, each with ggml's name and block. Nothing is
 * computed: the test of names and geometry changes this file's bytes. */
#include <worker/plugin.h>

static uint64_t none(uint32_t k)
{
    (void)k;
    return 0;
}
static void pack(const struct wk_pack *p) { (void)p; }
static void unpack(const struct wk_unpack *u) { (void)u; }
static void dequantize(const struct wk_dequantize *d) { (void)d; }
static wk_status quantize(const struct wk_quantize *q, const struct wk_err *err)
{
    (void)q;
    return wk_fail(err, WK_UNSUPPORTED, "nothing is computed here");
}
static void product(const struct wk_cpu_product *p) { (void)p; }
static const struct wk_isa_product products[] = { { WK_ISA_PORTABLE, 0, product } };

/* names in arrays, each behind a zero: none is the end of another's bytes */
#define TYPE(number, name_, block_, bytes)                                                                     \
    static const char id_##number[] = "\0" name_;                                                              \
    static uint64_t tile_##number(uint32_t k) { return (UINT64_C(16) * bytes * (k / block_) + 63) / 64 * 64; } \
    static const struct wk_type_cpu type_##number = { .struct_size = sizeof type_##number,                     \
                                                      .ggml_type = number,                                     \
                                                      .block = block_,                                         \
                                                      .block_bytes = bytes,                                    \
                                                      .activations = WK_ACTIVATION_F32,                        \
                                                      .name = id_##number + 1,                                 \
                                                      .tile_bytes = tile_##number,                             \
                                                      .scratch_bytes = none,                                   \
                                                      .pack = pack,                                            \
                                                      .unpack = unpack,                                        \
                                                      .dequantize = dequantize,                                \
                                                      .quantize = quantize,                                    \
                                                      WK_TYPE_PRODUCTS(products) }

/* ggml.h and ggml-common.h; those that were withdrawn as they last were */
TYPE(0, "f32", 1, 4);
TYPE(1, "f16", 1, 2);
TYPE(2, "q4_0", 32, 18);
TYPE(3, "q4_1", 32, 20);
TYPE(4, "q4_2", 16, 10);
TYPE(5, "q4_3", 16, 12);
TYPE(6, "q5_0", 32, 22);
TYPE(7, "q5_1", 32, 24);
TYPE(8, "q8_0", 32, 34);
TYPE(9, "q8_1", 32, 36);
TYPE(10, "q2_K", 256, 84);
TYPE(11, "q3_K", 256, 110);
TYPE(12, "q4_K", 256, 144);
TYPE(13, "q5_K", 256, 176);
TYPE(14, "q6_K", 256, 210);
TYPE(15, "q8_K", 256, 292);
TYPE(16, "iq2_xxs", 256, 66);
TYPE(17, "iq2_xs", 256, 74);
TYPE(18, "iq3_xxs", 256, 98);
TYPE(19, "iq1_s", 256, 50);
TYPE(20, "iq4_nl", 32, 18);
TYPE(21, "iq3_s", 256, 110);
TYPE(22, "iq2_s", 256, 82);
TYPE(23, "iq4_xs", 256, 136);
TYPE(24, "i8", 1, 1);
TYPE(25, "i16", 1, 2);
TYPE(26, "i32", 1, 4);
TYPE(27, "i64", 1, 8);
TYPE(28, "f64", 1, 8);
TYPE(29, "iq1_m", 256, 56);
TYPE(30, "bf16", 1, 2);
TYPE(31, "q4_0_4_4", 32, 18);
TYPE(32, "q4_0_4_8", 32, 18);
TYPE(33, "q4_0_8_8", 32, 18);
TYPE(34, "tq1_0", 256, 54);
TYPE(35, "tq2_0", 256, 66);
TYPE(36, "iq4_nl_4_4", 32, 18);
TYPE(37, "iq4_nl_4_8", 32, 18);
TYPE(38, "iq4_nl_8_8", 32, 18);
TYPE(39, "mxfp4", 32, 17);
TYPE(40, "nvfp4", 64, 36);
TYPE(41, "q1_0", 128, 18);
TYPE(42, "q2_0", 64, 18);

static const struct wk_type_cpu *const types[] = {
    &type_0,  &type_1,  &type_2,  &type_3,  &type_4,  &type_5,  &type_6,  &type_7,  &type_8,  &type_9,  &type_10,
    &type_11, &type_12, &type_13, &type_14, &type_15, &type_16, &type_17, &type_18, &type_19, &type_20, &type_21,
    &type_22, &type_23, &type_24, &type_25, &type_26, &type_27, &type_28, &type_29, &type_30, &type_31, &type_32,
    &type_33, &type_34, &type_35, &type_36, &type_37, &type_38, &type_39, &type_40, &type_41, &type_42
};
static const struct wk_quant quant = { .struct_size = sizeof quant,
                                       .n_types = sizeof types / sizeof *types,
                                       .types = types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.example.every", ZOO_CLAIMS, .name = "every", .version = "1", .quant = &quant);
