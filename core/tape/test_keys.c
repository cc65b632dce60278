/* test_keys.c: keys that are arrays of any length (WK_KEY_ARRAY): what a plugin is given for each thing that a file may
 * have there, and what refuses the file. tests/support/arch_test_keys.c has arrays of layers. */
#include <stdlib.h>
#include <string.h>

#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SECTIONS, FACTORS, FEATURES, LAYERS, FIXED, CUTS, N_KEYS };
static const struct wk_key keys[] = {
    [SECTIONS] = { "rope.dimension_sections", WK_KEY_U32, WK_KEY_ARRAY, 0, 256, 7 },
    [FACTORS] = { "factors", WK_KEY_F32, WK_KEY_ARRAY, -10, 10, 0.5 },
    [FEATURES] = { "features", WK_KEY_BOOL, WK_KEY_ARRAY, 0, 1, 0 },
    [LAYERS] = { "layer_indices", WK_KEY_U32, WK_KEY_ARRAY, 0, 65535, 0 },
    [FIXED] = { "fixed", WK_KEY_U32, WK_KEY_ARRAY, 3, 3, 3 },
    [CUTS] = { "cuts", WK_KEY_F32, WK_KEY_ARRAY, -INFINITY, 4, 0.5 },
};

static struct {
    uint32_t count, present;
    bool none; /* numbers is NULL */
    double number;
    double first[4], last;
} got[N_KEYS];

static wk_status keys_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)err;
    for (uint32_t k = 0; k < N_KEYS; k++) {
        const double *numbers = wk_meta_numbers(meta, k, &got[k].count);
        got[k].none = numbers == NULL;
        got[k].present = (uint32_t)wk_meta_has(meta, k);
        got[k].number = wk_meta_number(meta, k);
        for (uint32_t i = 0; i < got[k].count; i++) {
            if (i < 4) got[k].first[i] = numbers[i];
            got[k].last = numbers[i];
        }
    }
    *model = NULL;
    return WK_OK;
}
static void keys_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    wk_logits(b, wk_linear(b, wk_embed(b, "token_embd", T_V, T_E), "output", T_V, WK_NONE));
}
static void keys_close(void *model) { (void)model; }

static const char *const names[] = { "keys" };
static const struct wk_arch arch = { .struct_size = sizeof arch,
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     .open = keys_open,
                                     .record = keys_record,
                                     .close = keys_close };

static struct gguf_build *keys_file(void)
{
    struct gguf_build *g = gguf_build_new("keys");
    gguf_build_u32(g, "keys.context_length", T_C);
    gguf_build_floats(g, "token_embd.weight", T_V, T_E, 1, NULL);
    gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    return g;
}

/* Records the file, which it frees. */
static wk_status attempt(struct gguf_build *g, struct gguf_accepted *accepted, char text[1024])
{
    struct tape_options o = test_options();
    struct gguf *file = gguf_build_open(g);
    struct tape_program *p;
    o.accepted = accepted;
    text[0] = '\0';
    memset(got, 0, sizeof got);
    const wk_status status = tape_record(&arch, file, &o, &p, &(struct wk_err){ text, 1024 });
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
    return status;
}

static void taken(struct gguf_build *g)
{
    char text[1024];
    if (attempt(g, NULL, text)) fail_msg("%s", text);
}

static void refused(struct gguf_build *g, wk_status status, const char *expected)
{
    char text[1024];
    assert_int_equal(attempt(g, NULL, text), status);
    if (strcmp(text, expected) != 0 && !strstr(text, expected)) fail_msg("expected \"%s\" in: %s", expected, text);
}

static struct gguf_build *with(const char *key, enum gguf_type element, uint64_t n, const void *elements)
{
    struct gguf_build *g = keys_file();
    gguf_build_array(g, key, element, n, elements);
    return g;
}

static void absent(void **state)
{
    (void)state;
    taken(keys_file());
    for (int k = 0; k < N_KEYS; k++) assert_true(got[k].none && got[k].count == 0 && !got[k].present);
    assert_true(got[SECTIONS].number == 7 && got[FACTORS].number == 0.5);
}

/* Each width of integer, reals, flags; elements differ. */
static void elements(void **state)
{
    (void)state;
    static const uint8_t u8[4] = { 16, 24, 24, 0 };
    static const int32_t i32[4] = { 16, 24, 24, 0 };
    static const uint64_t u64[4] = { 16, 24, 24, 0 };
    static const struct {
        enum gguf_type type;
        const void *bytes;
    } widths[] = { { GGUF_U8, u8 }, { GGUF_I32, i32 }, { GGUF_U64, u64 } };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (uint32_t n = 1; n <= 4; n++) {
            taken(with("keys.rope.dimension_sections", widths[i].type, n, widths[i].bytes));
            assert_int_equal(got[SECTIONS].count, n);
            assert_true(got[SECTIONS].present && got[SECTIONS].number == 16);
            for (uint32_t e = 0; e < n; e++) assert_true(got[SECTIONS].first[e] == (double)u8[e]);
        }
    static const float f32[3] = { -10, 0.25f, 10 };
    static const double f64[3] = { -10, 0.1, 10 };
    taken(with("keys.factors", GGUF_F32, 3, f32));
    assert_true(got[FACTORS].count == 3 && got[FACTORS].first[1] == 0.25);
    taken(with("keys.factors", GGUF_F64, 3, f64));
    assert_true(got[FACTORS].first[1] == 0.1);
    taken(with("keys.factors", GGUF_I32, 2, (const int32_t[]){ -3, 4 }));
    assert_true(got[FACTORS].first[0] == -3 && got[FACTORS].last == 4);
    const float cuts[3] = { 4, -INFINITY, -1e30f };
    taken(with("keys.cuts", GGUF_F32, 3, cuts));
    assert_true(got[CUTS].first[1] == (double)-INFINITY && got[CUTS].last == (double)-1e30f);
    static const uint8_t flags[3] = { 1, 0, 1 };
    taken(with("keys.features", GGUF_BOOL, 3, flags));
    assert_true(got[FEATURES].count == 3 && got[FEATURES].first[0] == 1 && got[FEATURES].first[1] == 0);
}

/* No element, one value, and as many as there may be. */
static void lengths(void **state)
{
    (void)state;
    taken(with("keys.rope.dimension_sections", GGUF_U32, 0, NULL));
    assert_true(got[SECTIONS].present && got[SECTIONS].none && got[SECTIONS].count == 0 && got[SECTIONS].number == 7);
    struct gguf_build *g = keys_file();
    gguf_build_u32(g, "keys.rope.dimension_sections", 12);
    taken(g);
    assert_true(got[SECTIONS].present && got[SECTIONS].count == 1 && got[SECTIONS].first[0] == 12);
    const uint32_t most = WK_KEY_ARRAY_MAX;
    uint16_t *many = calloc(most + 1, sizeof *many);
    assert_non_null(many);
    for (uint32_t i = 0; i < most; i++) many[i] = (uint16_t)i;
    taken(with("keys.layer_indices", GGUF_U16, most, many));
    assert_true(got[LAYERS].count == most && got[LAYERS].last == 65535 && got[LAYERS].first[3] == 3);
    refused(with("keys.layer_indices", GGUF_U16, most + 1, many), WK_INVALID,
            "keys.layer_indices: an array of 65537, must be at most 65536");
    free(many);
}

static void refusals(void **state)
{
    (void)state;
    static const uint32_t last_out[4] = { 0, 1, 256, 257 };
    static const int32_t negative[2] = { 3, -1 };
    static const uint64_t huge[1] = { UINT64_MAX };
    static const float reals[2] = { 1, 2 };
    const float not_finite[3] = { 0, 1, NAN }, infinite[1] = { INFINITY };
    static const uint8_t flags[2] = { 1, 0 };
    static const char *const texts[] = { "a", "b" };
    const struct {
        const char *key;
        enum gguf_type type;
        uint64_t n;
        const void *bytes;
        const char *text;
    } rows[] = {
        { "keys.rope.dimension_sections", GGUF_U32, 4, last_out,
          "keys.rope.dimension_sections: element 3 is 257, must be 0 to 256" },
        { "keys.rope.dimension_sections", GGUF_I32, 2, negative,
          "keys.rope.dimension_sections: element 1 is -1, must be 0 to 256" },
        { "keys.rope.dimension_sections", GGUF_U64, 1, huge,
          "keys.rope.dimension_sections: element 0 is 1.84467441e+19, must be 0 to 256" },
        { "keys.rope.dimension_sections", GGUF_F32, 2, reals,
          "key 'keys.rope.dimension_sections': expected an integer" },
        { "keys.rope.dimension_sections", GGUF_BOOL, 2, flags,
          "key 'keys.rope.dimension_sections': expected an integer" },
        { "keys.factors", GGUF_F32, 3, not_finite, "keys.factors: element 2 is nan, must be -10 to 10" },
        { "keys.factors", GGUF_F32, 1, infinite, "keys.factors: element 0 is inf, must be -10 to 10" },
        { "keys.cuts", GGUF_F32, 1, infinite, "keys.cuts: element 0 is inf, must be -inf to 4" },
        { "keys.cuts", GGUF_F32, 3, not_finite, "keys.cuts: element 2 is nan, must be -inf to 4" },
        { "keys.factors", GGUF_BOOL, 2, flags, "key 'keys.factors': expected a number" },
        { "keys.features", GGUF_U8, 2, flags, "key 'keys.features': expected a bool" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(with(rows[i].key, rows[i].type, rows[i].n, rows[i].bytes), WK_INVALID, rows[i].text);
    struct gguf_build *g = keys_file();
    gguf_build_str_array(g, "keys.rope.dimension_sections", texts, 2);
    refused(g, WK_INVALID, "key 'keys.rope.dimension_sections': expected an integer");
    g = keys_file();
    gguf_build_str(g, "keys.factors", "0.5");
    refused(g, WK_INVALID, "key 'keys.factors': expected a number");
    g = keys_file();
    gguf_build_u32(g, "keys.rope.dimension_sections", 257);
    refused(g, WK_INVALID, "keys.rope.dimension_sections: 257, must be 0 to 256");
}

/* Of one value that is served, each element is held to it; what a user accepts is as if the file did not have it. */
static void one_value(void **state)
{
    (void)state;
    static const uint32_t threes[3] = { 3, 3, 3 }, other[3] = { 3, 3, 4 };
    static const char *const accepted_names[] = { "keys.fixed" };
    struct gguf_accepted accepted = { .names = accepted_names, .n = 1 };
    char text[1024];
    taken(with("keys.fixed", GGUF_U32, 3, threes));
    assert_int_equal(got[FIXED].count, 3);
    refused(with("keys.fixed", GGUF_U32, 3, other), WK_UNSUPPORTED, "keys.fixed is 4; 3 alone is served");
    if (attempt(with("keys.fixed", GGUF_U32, 3, other), &accepted, text)) fail_msg("%s", text);
    assert_true(accepted.used == 1 && !got[FIXED].present && got[FIXED].none && got[FIXED].count == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(absent), cmocka_unit_test(elements), cmocka_unit_test(lengths),
                                        cmocka_unit_test(refusals), cmocka_unit_test(one_value) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
