/* test_check_quant.c: formats that break one promise each: the check of that rule fails, and no other of a format. */
#include "check/check.h" /* before cmocka.h, which makes `fail` a macro */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* rule: NULL: none is broken. words: of what is found. */
static const struct {
    const char *name, *rule, *words;
} rows[] = {
    { "good", NULL, NULL },
    { "known", NULL, NULL },
    { "tile_odd", "quant.sizes", "expected a multiple of 64" },
    { "tile_more", "quant.sizes", "expected a multiple of 64 in" },
    { "scratch_moody", "quant.sizes", "expected the same answer" },
    { "scratch_huge", "quant.sizes", "every thread has as much" },
    { "zero_sign", "quant.exact", "every rounding counts" },
    { "blocks", "quant.blocks", "its own block alone" },
    { "no_index", "quant.index", "the value's index in the text" },
    { "importance_shifted", "quant.rows", "column i of every row" },
    { "far", "quant.near", "what comes back differs" },
    { "unpack_loses", "quant.pack", "every bit of its rows" },
    { "pack_padding", "quant.pack", "what lay there before" },
    { "rough", "quant.product", "product for portable with F32 activations" },
    { "rough_avx2", "quant.product", "product for avx2 with F32 activations" },
    { "forgets_least", "quant.product", "product for portable with 8-bit activations" },
    { "many_rows", "quant.row", "in a call of" },
    { "many_tiles", "quant.row", "in a call of" },
    { "hides_scale", "quant.finite", "damage must not look like an answer" },
    { "hides_activation", "quant.finite", "expected results that are not finite of that row alone" },
    { "scratch_used", "quant.repeat", "when it is computed again" },
    { "other_thread", "quant.repeat", "when it is computed again" },
    { "stack", "quant.repeat", "SIGSEGV" },
    { "dequantize_reads", "memory.values", "reads at byte 0 past the end of the blocks" },
    { "dequantize_writes", "memory.values", "writes at byte 0 past the end of y" },
    { "importance_reads", "memory.encode", "past the end of importance" },
    { "quantize_reads", "memory.encode", "reads at byte 0 past the end of x" },
    { "quantize_writes", "memory.encode", "writes at byte 0 past the end of the blocks" },
    { "pack_reads", "memory.tiles", "reads at byte 0 past the end of a row" },
    { "pack_writes", "memory.tiles", "writes at byte 0 past the end of the tile" },
    { "unpack_writes", "memory.tiles", "writes at byte 0 past the end of a row" },
    { "scratch_small", "memory.product", "writes at byte 0 past the end of scratch" },
    { "scratch_aligned", "memory.product", "aligned as promised and no more" },
    { "writes_x", "memory.product", "writes x, which it may only read" },
    { "writes_tile", "memory.product", "writes the tiles, which it may only read" },
    { "reads_x", "memory.product", "reads at byte 0 past the end of x" },
    { "reads_tile", "memory.product", "reads at byte 0 past the end of the tiles" },
    { "writes_y", "memory.product", "between two rows of y" },
    { "allocates", "memory.state", "it calls malloc" },
    { "static", "memory.state", "writes its own static data" },
    { "rounding_avx2", "load.floats", "rounded in another way" },
};

struct seen {
    const char *name, *rule, *words;
    uint32_t broken, found;
};

static void tell(void *user, const struct check_outcome *o)
{
    struct seen *s = user;
    const bool expected = s->rule && strcmp(o->def->id, s->rule) == 0;
    bool said = false;
    for (uint32_t i = 0; i < o->n_texts; i++) said = said || (s->words && strstr(o->text[i], s->words));
    s->broken += o->result == CHECK_FAIL;
    s->found += expected && o->result == CHECK_FAIL && said;
    if (o->result == CHECK_FAIL && !(expected && said))
        print_error("%s: %s: %s\n", s->name, o->def->id, o->n_texts ? o->text[0] : "");
}

/* All checks that call a format, but for those that only measure. */
static uint32_t list_checks(const char *only[128])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < check_count() && n < 128; i++)
        if (check_group_of(i) >= CHECK_LOAD && check_group_of(i) != CHECK_PERFORMANCE) only[n++] = check_at(i)->id;
    return n;
}

static wk_status check(const char *name, struct seen *s)
{
    char path[512], text[512];
    const char *only[128];
    const bool all = !s->rule || strstr(name, "avx2"); /* the others' faults are in every product */
    (void)snprintf(path, sizeof path, "%s/format_%s.so", ZOO_DIR, name);
    const struct check_options o = {
        .path = path, .only = only, .n_only = list_checks(only), .isa = all ? FORMAT_ISAS : WK_ISA_PORTABLE
    };
    const wk_status status = check_run(&o, tell, s, &(struct wk_err){ text, sizeof text });
    if (status != WK_OK) print_error("%s: %s\n", name, text);
    return status;
}

static void each_is_caught_by_its_rule(void **state)
{
    (void)state;
    bool good = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct seen s = { rows[i].name, rows[i].rule, rows[i].words, 0, 0 };
        if (plugin_detect_isa() < WK_ISA_AVX2 && strstr(rows[i].name, "_avx2")) continue;
        assert_int_equal(check(rows[i].name, &s), WK_OK);
        if (s.broken == (rows[i].rule != NULL) && s.found == s.broken) continue;
        print_error("%s: %u rules broken, expected %s\n", rows[i].name, s.broken, rows[i].rule ? rows[i].rule : "none");
        good = false;
    }
    assert_true(good);
}

/* ---- CUDA modules, whose files need no GPU ------------------------------------------------------------- */

static char folder[] = "/tmp/worker-test-check-quant-XXXXXX";

static void tell_module(void *user, const struct check_outcome *o)
{
    struct check_outcome *last = user;
    *last = *o;
}

/* A copy of a zoo's file in the folder, under a name that says whose module it is. */
static void put(const char *zoo, const char *name, char path[256])
{
    static uint8_t bytes[1 << 20];
    char from[512];
    (void)snprintf(from, sizeof from, "%s/%s.so", ZOO_DIR, zoo);
    (void)snprintf(path, 256, "%s/%s.so", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    if (!in || !out) fail_msg("%s: cannot be copied", from);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1, sizeof bytes - 1);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(in) | fclose(out) | chmod(path, 0644), 0);
}

/* zoo: NULL: there is no module. only: which check. */
static void check_module(const char *zoo, const char *only, struct check_outcome *o)
{
    char plugin[256], module[256] = "", text[512] = "";
    put("good", "zoo", plugin);
    if (zoo) put(zoo, "zoo-cuda", module);
    const struct check_options options = { .path = plugin, .only = &only, .n_only = 1, .isa = FORMAT_ISAS };
    if (check_run(&options, tell_module, o, &(struct wk_err){ text, sizeof text }) != WK_OK) fail_msg("%s", text);
    assert_int_equal(unlink(plugin) | (zoo ? unlink(module) : 0), 0);
}

static void modules(void **state)
{
    (void)state;
    static const struct {
        const char *zoo;
        enum check_result result;
        const char *words;
    } of[] = {
        { NULL, CHECK_SKIP, "there is no zoo-cuda.so beside it" },
        { "cuda_good", CHECK_PASS, "" },
        { "cuda_other_id", CHECK_FAIL, "belongs to org.example.rival" },
        { "cuda_other_claim", CHECK_FAIL, "claims ggml type 201, which its plugin does not serve" },
        { "cuda_wrong_minor", CHECK_FAIL, "0.1" },
        { "cuda_wrong_layout", CHECK_FAIL, "layout" },
        { "cuda_no_symbol", CHECK_FAIL, "does not export" },
        { "cuda_differs", CHECK_FAIL, "differs from its note in: id" },
        { "cuda_small_struct", CHECK_FAIL, "says it has 16 bytes" },
        { "cuda_odd_size", CHECK_FAIL, "struct wk_type_cuda says" },
        { "cuda_other_type", CHECK_FAIL, "not in its note's claims" },
        { "cuda_type_twice", CHECK_FAIL, "has 2 types" },
        { "cuda_null_product", CHECK_FAIL, "product is NULL" },
        { "cuda_null_gather", CHECK_FAIL, "gather is NULL" },
        { "cuda_half_large", CHECK_FAIL, "one of panels and large" },
    };
    struct check_outcome o;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        check_module(of[i].zoo, "cuda.module", &o);
        const char *said = o.n_texts ? o.text[0] : "";
        if (o.result != of[i].result || !strstr(said, of[i].words))
            fail_msg("%s: %s, \"%s\"", of[i].zoo ? of[i].zoo : "none", check_result_name(o.result), said);
    }
    check_module("cuda_other_id", "cuda.product", &o);
    assert_int_equal(o.result, CHECK_SKIP);
    check_module("cuda_good", "cuda.tiles", &o); /* this test's program has no device's module beside it */
    assert_int_equal(o.result, CHECK_SKIP);
    assert_non_null(strstr(o.text[0], "device cuda"));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static int teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(modules), cmocka_unit_test(each_is_caught_by_its_rule) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
