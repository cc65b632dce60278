/* test_ref.c: references to the hub, names of files, and the choice among those of a repository. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ref.h"

static char text[4096];
static const struct wk_err err = { text, sizeof text };

static void references(void **state)
{
    (void)state;
    static const struct {
        const char *text, *org, *name, *file, *quant; /* org NULL: refused */
    } rows[] = {
        { "hf:org/name", "org", "name", "", "" },
        { "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:q4_k_m", "Qwen", "Qwen2.5-0.5B-Instruct-GGUF", "", "q4_k_m" },
        { "hf:o/n:UD-Q4_K_XL", "o", "n", "", "UD-Q4_K_XL" },
        { "hf:o/n/a.gguf", "o", "n", "a.gguf", "" },
        { "hf:o/n/sub/a b.gguf", "o", "n", "sub/a b.gguf", "" },
        { "hf:o/n/a:b.gguf", "o", "n", "a:b.gguf", "" },
        { "org/name", NULL, NULL, NULL, NULL },
        { "hf:", NULL, NULL, NULL, NULL },
        { "hf:org", NULL, NULL, NULL, NULL },
        { "hf:org/", NULL, NULL, NULL, NULL },
        { "hf:/name", NULL, NULL, NULL, NULL },
        { "hf:../name", NULL, NULL, NULL, NULL },
        { "hf:org/..", NULL, NULL, NULL, NULL },
        { "hf:org/name/", NULL, NULL, NULL, NULL },
        { "hf:org/name:", NULL, NULL, NULL, NULL },
        { "hf:org/name:Q4/x", NULL, NULL, NULL, NULL },
        { "hf:org/name/../x.gguf", NULL, NULL, NULL, NULL },
        { "hf:org/name/a//b.gguf", NULL, NULL, NULL, NULL },
        { "hf:org/name/.hidden.gguf", NULL, NULL, NULL, NULL },
        { "hf:org/name/a\\b.gguf", NULL, NULL, NULL, NULL },
        { "hf:org/name/a\x1b.gguf", NULL, NULL, NULL, NULL },
        { "hf:org/name/a\xff.gguf", NULL, NULL, NULL, NULL },
        { "hf:o rg/name", NULL, NULL, NULL, NULL },
        { "hf:org/na?me", NULL, NULL, NULL, NULL },
        { "hf:org/name@x", NULL, NULL, NULL, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hub_ref ref;
        const wk_status status = ref_read(rows[i].text, &ref, &err);
        if ((status == WK_OK) != (rows[i].org != NULL)) fail_msg("%s: status %d", rows[i].text, status);
        if (status) continue;
        assert_string_equal(ref.org, rows[i].org);
        assert_string_equal(ref.name, rows[i].name);
        assert_string_equal(ref.file, rows[i].file);
        assert_string_equal(ref.quant, rows[i].quant);
    }
    char longest[2048] = "hf:o/n/";
    memset(longest + 7, 'a', sizeof longest - 8);
    struct hub_ref ref;
    assert_int_equal(ref_read(longest, &ref, &err), WK_INVALID);
}

static void quantizations(void **state)
{
    (void)state;
    static const struct {
        const char *path, *quant;
    } rows[] = {
        { "qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M" },
        { "Llama-3.2-1B-Instruct-UD-IQ2_XXS.gguf", "UD-IQ2_XXS" },
        { "Q4_K_M/x-00001-of-00002.gguf", "Q4_K_M" },
        { "BF16/model.BF16-00001-of-00003.gguf", "BF16" },
        { "tinyllama-1.1b-chat-v1.0.Q8_0.gguf", "Q8_0" },
        { "gpt-oss-20b-mxfp4.gguf", "MXFP4" },
        { "gpt-oss-20b-MXFP4_MOE.GGUF", "MXFP4_MOE" },
        { "model_q5_1.gguf", "Q5_1" },
        { "a-TQ1_0.gguf", "TQ1_0" },
        { "ggml-model-f16.gguf", "F16" },
        { "Q8_0/a-Q4_0.gguf", "Q4_0" },
        { "faq2-model.gguf", "" },
        { "model.gguf", "" },
        { ".gguf", "" },
        { "", "" },
        { "Q4_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.gguf", "" },
    };
    char quant[REF_QUANT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ref_quant(rows[i].path, quant);
        assert_string_equal(quant, rows[i].quant);
    }
}

static void parts(void **state)
{
    (void)state;
    uint32_t part = 0, of = 0;
    size_t stem = 0;
    assert_true(ref_part("a-00002-of-00003.gguf", &part, &of, &stem));
    assert_int_equal(part, 2);
    assert_int_equal(of, 3);
    assert_int_equal(stem, 1);
    static const char *const not_parts[] = { "-00002-of-00003.gguf",
                                             "a-00004-of-00003.gguf",
                                             "a-00000-of-00003.gguf",
                                             "a-0002-of-00003.gguf",
                                             "a-00002-of-00003.bin",
                                             "a-000x2-of-00003.gguf",
                                             "a-00002_of-00003.gguf",
                                             "a.gguf",
                                             "" };
    for (size_t i = 0; i < sizeof not_parts / sizeof *not_parts; i++)
        assert_false(ref_part(not_parts[i], &part, &of, &stem));
    assert_true(ref_begins_model("x/a-00001-of-00003.gguf"));
    assert_false(ref_begins_model("x/a-00002-of-00003.gguf"));
    assert_false(ref_begins_model("a.gguf.part"));
    size_t n;
    assert_memory_equal(ref_stem("x/a-00001-of-00003.gguf", &n), "a", 1);
    assert_int_equal(n, 1);
    (void)ref_stem("tiny.gguf", &n);
    assert_int_equal(n, 4);
}

static const char *const many[] = { "README.md",
                                    "m-Q4_K_M.gguf",
                                    "m-Q4_K_S.gguf",
                                    "m-UD-Q4_K_M.gguf",
                                    "m-UD-Q2_K_XL.gguf",
                                    "mmproj-F16.gguf",
                                    "imatrix_m.gguf",
                                    "BF16/m-BF16-00001-of-00002.gguf",
                                    "BF16/m-BF16-00002-of-00002.gguf",
                                    "../escape.gguf",
                                    "a/m-Q8_0.gguf",
                                    "b/m-Q8_0.gguf" };

static void choices(void **state)
{
    (void)state;
    static const struct {
        const char *ref;
        int chosen; /* -1: none, -2: several */
        const char *said;
    } rows[] = {
        { "hf:o/n:Q4_K_M", 1, NULL },
        { "hf:o/n:q4_k_s", 2, NULL },
        { "hf:o/n:UD-Q4_K_M", 3, NULL },
        { "hf:o/n:Q2_K_XL", 4, NULL },
        { "hf:o/n:BF16", 7, NULL },
        { "hf:o/n/m-Q4_K_S.gguf", 2, NULL },
        { "hf:o/n/m-Q4_K_S", 2, NULL },
        { "hf:o/n/BF16/m-BF16-00001-of-00002.gguf", 7, NULL },
        { "hf:o/n/BF16/m-BF16-00002-of-00002.gguf", 7, NULL },
        { "hf:o/n/BF16/m-BF16", 7, NULL },
        { "hf:o/n/mmproj-F16.gguf", 5, NULL },
        { "hf:o/n", -2, "hf:o/n/m-Q4_K_M.gguf" },
        { "hf:o/n:Q8_0", -2, "hf:o/n/b/m-Q8_0.gguf" },
        { "hf:o/n:Q4_K", -1, "no GGUF model in Q4_K is there" },
        { "hf:o/n:F16", -1, "hf:o/n/BF16/m-BF16-00001-of-00002.gguf" },
        { "hf:o/n/other.gguf", -1, "called other.gguf" },
        { "hf:o/n/escape.gguf", -1, "called escape.gguf" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hub_ref ref;
        size_t chosen = 99;
        assert_int_equal(ref_read(rows[i].ref, &ref, &err), WK_OK);
        const wk_status status = ref_choose(&ref, many, sizeof many / sizeof *many, &chosen, &err);
        const wk_status expected = rows[i].chosen == -1 ? WK_UNSUPPORTED : rows[i].chosen == -2 ? WK_INVALID : WK_OK;
        if (status != expected) fail_msg("%s: status %d: %s", rows[i].ref, status, status ? text : "");
        if (rows[i].said && !strstr(text, rows[i].said)) fail_msg("%s: %s", rows[i].ref, text);
        if (!status) assert_int_equal(chosen, rows[i].chosen);
        if (status) assert_null(strstr(text, "mmproj"));
        if (status && rows[i].chosen == -1) assert_null(strstr(text, "../escape"));
    }
}

static void one_and_none(void **state)
{
    (void)state;
    static const char *const one[] = { "config.json", "mmproj-a.gguf", "a.gguf" }, *const none[] = { "a.safetensors" };
    struct hub_ref ref;
    size_t chosen;
    assert_int_equal(ref_read("hf:o/n", &ref, &err), WK_OK);
    assert_int_equal(ref_choose(&ref, one, 3, &chosen, &err), WK_OK);
    assert_int_equal(chosen, 2);
    assert_int_equal(ref_choose(&ref, none, 1, &chosen, &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "no GGUF model is there"));
    assert_int_equal(ref_choose(&ref, none, 0, &chosen, &err), WK_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(references), cmocka_unit_test(quantizations),
                                        cmocka_unit_test(parts), cmocka_unit_test(choices),
                                        cmocka_unit_test(one_and_none) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
