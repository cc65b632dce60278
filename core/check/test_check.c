/* test_check.c: each plugin of the zoo breaks one rule, and the checks tell that one and no other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

static char folder[] = "/tmp/worker-test-check-XXXXXX",
            alone[64]; /* alone: where a plugin of the zoo notes who has it */

static struct plugin_registry *plugins; /* of the formats that a small model is in */

static int setup(void **state)
{
    (void)state;
    if (setenv("WORKER_PLUGIN_PATH", PLUGINS, 0) ||
        plugin_registry_open(&(struct plugin_options){ .dirs = NULL }, &plugins, NULL))
        return -1;
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(alone, sizeof alone, "%s/alone", folder);
    FILE *f = fopen(alone, "w");
    return !f || fclose(f) || setenv("ZOO_ALONE", alone, 1);
}

static int teardown(void **state)
{
    (void)state;
    plugin_registry_close(plugins);
    return unlink(alone) || rmdir(folder);
}

/* A copy of the plugin in a folder that nobody else writes to. */
static void put(const char *zoo, char path[256])
{
    static uint8_t bytes[1 << 20];
    char from[4096];
    (void)snprintf(from, sizeof from, "%s/%s.so", ZOO_DIR, zoo);
    (void)snprintf(path, 256, "%s/%s.so", folder, zoo);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    if (!in || !out) fail_msg("%s: cannot be copied", from);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1, sizeof bytes - 1);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(in) | fclose(out) | chmod(path, 0644), 0);
}

struct told {
    uint32_t n[CHECK_FAIL + 1];
    char failed[512], warned[512]; /* "static.note load.start" */
    char text[8192];               /* of those that failed, all that was said */
};

static void tell(void *user, const struct check_outcome *o)
{
    struct told *t = user;
    t->n[o->result]++;
    assert_true((o->result == CHECK_PASS) || o->n_texts > 0); /* whoever does not pass says why */
    if (o->result != CHECK_FAIL && o->result != CHECK_WARN) return;
    char *ids = o->result == CHECK_FAIL ? t->failed : t->warned;
    const size_t n = strlen(ids), m = strlen(t->text);
    (void)snprintf(ids + n, sizeof t->failed - n, "%s%s", n ? " " : "", o->def->id);
    if (o->result != CHECK_FAIL) return;
    (void)snprintf(t->text + m, sizeof t->text - m, "%s: %s\n", o->def->id, o->text[0]);
}

static void run_checks(const char *path, struct told *t)
{
    const char *ids[256];
    char text[256] = "";
    struct check_options o = { .path = path, .isa = FORMAT_ISAS, .seconds = 4, .only = ids, .plugins = plugins };
    for (uint32_t i = 0; i < check_count(); i++) /* what is only reported takes a while to measure */
        if (check_group_of(i) != CHECK_PERFORMANCE && o.n_only < 256) ids[o.n_only++] = check_at(i)->id;
    memset(t, 0, sizeof *t);
    if (check_run(&o, tell, t, &(struct wk_err){ text, sizeof text }) != WK_OK) fail_msg("%s: %s", path, text);
}

static void check(const char *zoo, struct told *t)
{
    char path[256];
    put(zoo, path);
    run_checks(path, t);
    assert_int_equal(unlink(path), 0);
}

static void test_good(void **state)
{
    (void)state;
    static const char *const zoo[] = { "good",           "arch",  "conflict",  "two_types",    "longer",
                                       "arch_cuda_good", "stray", "cuda_good", "arch_nothing", "quant_nothing" };
    for (size_t i = 0; i < sizeof zoo / sizeof zoo[0]; i++) {
        struct told t;
        check(zoo[i], &t);
        if (t.n[CHECK_FAIL]) fail_msg("%s: %s", zoo[i], t.text);
        assert_true(t.n[CHECK_PASS] >= 10);
    }
}

/* Plugin and the one rule that it breaks. */
static const struct {
    const char *zoo, *id;
} broken[] = {
    { "text_relocations", "static.code" },
    { "writable_code", "static.code" },
    { "executable_stack", "static.stack" },
    { "runpath", "static.paths" },
    { "rpath", "static.paths" },
    { "no_note", "static.note" },
    { "two_notes", "static.note" },
    { "wrong_major", "static.version" },
    { "newer_minor", "static.version" },
    { "cuda_wrong_layout", "static.version" },
    { "cuda_wrong_minor", "static.version" },
    { "unknown_kind", "static.kind" },
    { "unknown_flags", "static.kind" },
    { "bad_id", "static.id" },
    { "bad_claims", "static.claims" },
    { "claims_twice", "static.claims" },
    { "wrong_claims", "static.claims" },
    { "many_claims", "static.claims" },
    { "needs_library", "static.libraries" },
    { "needs_dl", "static.libraries" },
    { "cuda_malloc", "static.device" },
    { "imports_exit_group", "static.process" },
    { "exports_more", "static.exports" },
    { "undefined", "load.map" },
    { "bomb", "load.map" },
    { "quant_init_crash", "load.map" },
    { "no_symbol", "load.symbol" },
    { "small_struct", "load.size" },
    { "odd_size", "load.size" },
    { "arch_key_size", "load.size" },
    { "longer_set", "load.growth" },
    { "product_longer_set", "load.growth" },
    { "type_flags", "load.growth" },
    { "arch_flags", "load.growth" },
    { "arch_key_flags", "load.growth" },
    { "arch_key_type", "load.growth" },
    { "null_quant", "load.slots" },
    { "null_pack", "load.slots" },
    { "arch_null_record", "load.slots" },
    { "differs", "load.note" },
    { "other_type", "load.claims" },
    { "arch_other_name", "load.claims" },
    { "arch_many_keys", "load.counts" },
    { "arch_many_aliases", "load.counts" },
    { "arch_many_ignored", "load.counts" },
    { "arch_many_ignored_keys", "load.counts" },
    { "arch_empty_range", "load.keys" },
    { "empty_block", "load.type" },
    { "no_f32", "load.type" },
    { "huge_tile", "load.type" },
    { "known_name", "load.known" },
    { "known_block", "load.known" },
    { "null_product", "load.products" },
    { "init_fails", "load.start" },
    { "quant_init_silent", "load.start" },
    { "quant_dequantize_crash", "load.use" },
    { "arch_open_aborts", "load.use" },
    { "arch_record_exits", "load.use" },
    { "arch_close_twice", "load.use" },
    { "quant_init_prints", "load.output" },
    { "quant_init_error_output", "load.output" },
    { "quant_product_prints", "load.output" },
    { "arch_open_prints", "load.output" },
    { "quant_thread", "load.threads" },
    { "quant_open_file", "load.descriptors" },
    { "quant_close_input", "load.descriptors" },
    { "arch_open_file_later", "load.descriptors" },
    { "quant_handler", "load.signals" },
    { "quant_blocked_signal", "load.signals" },
    { "quant_locale", "load.surroundings" },
    { "quant_folder", "load.surroundings" },
    { "quant_umask", "load.surroundings" },
    { "quant_environment", "load.surroundings" },
    { "quant_rounding", "load.floats" },
    { "quant_traps", "load.floats" },
    { "quant_alone", "load.again" },
    { "quant_host_behind", "negotiation.old-host" },
    { "quant_host_minor", "negotiation.new-host" },
    { "quant_host_size", "negotiation.new-host" },
    { "quant_extension", "negotiation.extension" },
    { "arch_stride", "negotiation.recording" },
    { "arch_meta_size", "negotiation.recording" },
    { "arch_builder_size", "negotiation.recording" },
    { "arch_unsupported", "negotiation.unsupported" },
    { "arch_words", "negotiation.words" },
    { "quant_call_size", "negotiation.calls" },
    { "quant_call_behind", "negotiation.calls" },
    { "quant_tensor_behind", "negotiation.calls" },
    { "arch_divides", "errors.metadata" },
    { "arch_elements", "errors.metadata" },
    { "arch_tensor_size", "errors.metadata" },
    { "arch_long_text", "errors.metadata" },
    { "quant_takes_nan", "errors.finite" },
    { "arch_no_text", "errors.text" },
    { "quant_nan_no_text", "errors.text" },
    { "arch_status", "errors.status" },
    { "arch_text_buffer", "errors.buffer" },
    { "arch_text_end", "errors.buffer" },
    { "arch_no_buffer", "errors.buffer" },
    { "quant_nan_buffer", "errors.buffer" },
    { "arch_leak_refused", "errors.leak" },
    { "arch_leak_close", "errors.leak" },
    { "arch_endless", "errors.record" },
    { "arch_long_record", "errors.record" },
    { "arch_keeps", "architecture.kept" },
    { "arch_state", "architecture.pure" },
    { "arch_address", "architecture.pure" },
    { "arch_neighbours", "architecture.rows" },
};

static void test_broken(void **state)
{
    (void)state;
    uint32_t wrong = 0;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct told t;
        check(broken[i].zoo, &t);
        if (strcmp(t.failed, broken[i].id) == 0) continue;
        print_error("%s: expected %s, found \"%s\": %s\n", broken[i].zoo, broken[i].id, t.failed, t.text);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* What breaks no rule is a warning, and of one check alone. */
static void test_warned(void **state)
{
    (void)state;
    static const struct {
        const char *zoo, *id;
    } rows[] = { { "lazy", "static.now" }, { "imports_exit", "static.process" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct told t;
        check(rows[i].zoo, &t);
        if (t.failed[0] || strcmp(t.warned, rows[i].id) != 0)
            fail_msg("%s: expected a warning of %s, found \"%s\" and failures %s", rows[i].zoo, rows[i].id, t.warned,
                     t.text);
    }
}

/* What is wrong with the file, and not with what is in it. */
static void test_files(void **state)
{
    (void)state;
    char path[256], link[256];
    struct told t;
    put("good", path);
    assert_int_equal(chmod(path, 0666), 0);
    run_checks(path, &t);
    assert_string_equal(t.failed, "static.file");
    assert_int_equal(chmod(path, 0644), 0);
    (void)snprintf(link, sizeof link, "%s/link.so", folder);
    assert_int_equal(symlink(path, link), 0);
    run_checks(link, &t);
    assert_string_equal(t.failed, "static.file");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(truncate(path, 5000), 0);
    run_checks(path, &t);
    assert_string_equal(t.failed, "static.elf");
    assert_int_equal(truncate(path, 0), 0);
    run_checks(path, &t);
    assert_string_equal(t.failed, "static.file");
    assert_int_equal(unlink(path), 0);
    run_checks(path, &t);
    assert_string_equal(t.failed, "static.file");
}

/* Every way to end the process, from every function, is told with the function's name. */
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        const char *zoo, *end, *id, *words;
    } rows[] = {
        { "end_arch", "segv:constructors", "load.map", "ended with SIGSEGV while the host called its constructors" },
        { "end_arch", "abort:init", "load.map", "ended with SIGABRT while the host called its init" },
        { "end_arch", "exit:open", "load.use", "called exit while the host called its open" },
        { "end_arch", "quick_exit:record", "load.use", "called exit while the host called its record" },
        { "end_arch", "fpe:close", "load.use", "ended with SIGFPE while the host called its close" },
        { "end_arch", "hang:open", "load.use", "did not return within" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct told t;
        assert_int_equal(setenv("ZOO_END", rows[i].end, 1), 0);
        check(rows[i].zoo, &t);
        assert_int_equal(unsetenv("ZOO_END"), 0);
        if (strcmp(t.failed, rows[i].id) != 0 || !strstr(t.text, rows[i].words))
            fail_msg("%s: expected %s, \"%s\", found \"%s\": %s", rows[i].end, rows[i].id, rows[i].words, t.failed,
                     t.text);
    }
}

static void test_only(void **state)
{
    (void)state;
    char path[256], text[256] = "";
    const char *const one[] = { "static.note", "load.start" }, *const wrong[] = { "static.nothing" };
    struct told t = { .failed = "" };
    put("two_notes", path);
    const struct wk_err err = { text, sizeof text };
    struct check_options o = { .path = path, .only = one, .n_only = 2 };
    assert_int_equal(check_run(&o, tell, &t, &err), WK_OK);
    assert_string_equal(t.failed, "static.note");
    assert_int_equal(t.n[CHECK_FAIL] + t.n[CHECK_SKIP] + t.n[CHECK_PASS], 2);
    o.only = wrong;
    o.n_only = 1;
    assert_int_equal(check_run(&o, tell, &t, &err), WK_INVALID);
    assert_non_null(strstr(text, "static.nothing: there is no check of this id"));
    assert_int_equal(unlink(path), 0);
}

/* ---- the table and the page ---------------------------------------------------------------------------- */

/* The next cell of a row "| a | b |" without its signs of code; false: there is none. */
static bool next_cell(const char **at, char cell[1024])
{
    const char *begin = *at + strspn(*at, "| "), *end = strchr(begin, '|');
    size_t n = 0;
    if (!end) return false;
    *at = end;
    while (end > begin && end[-1] == ' ') end--;
    for (const char *c = begin; c < end && n < 1023; c++)
        if (*c != '`') cell[n++] = *c;
    cell[n] = '\0';
    return true;
}

/* sdk/rules.md has each check, with its sentence, and no id of a group that is none. */
static void test_rules(void **state)
{
    (void)state;
    char line[4096], id[1024], rule[1024];
    FILE *f = fopen(RULES, "r");
    assert_non_null(f);
    bool *seen = calloc(check_count(), sizeof *seen);
    assert_non_null(seen);
    while (fgets(line, sizeof line, f)) {
        const char *at = line;
        if (line[0] != '|' || !next_cell(&at, id) || !next_cell(&at, rule) || !strchr(id, '.')) continue;
        if (strncmp(id, "host.", 5) == 0) continue;
        const uint32_t i = check_find(id);
        if (i == check_count()) fail_msg("sdk/rules.md has %s, which is no check", id);
        if (strcmp(rule, check_at(i)->rule) != 0)
            fail_msg("%s:\nsdk/rules.md: %s\nthe table:    %s", id, rule, check_at(i)->rule);
        if (seen[i]) fail_msg("sdk/rules.md has %s twice", id);
        seen[i] = true;
    }
    for (uint32_t i = 0; i < check_count(); i++)
        if (!seen[i])
            fail_msg("sdk/rules.md has no row with this check: | `%s` | %s |", check_at(i)->id, check_at(i)->rule);
    free(seen);
    (void)fclose(f);
}

/* Ids are unique, begin with their group's name, and what they wait for comes before. */
static void test_table(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < check_count(); i++) {
        const struct check_def *def = check_at(i);
        const char *group = check_group_name(check_group_of(i));
        assert_int_equal(check_find(def->id), i);
        assert_int_equal(strncmp(def->id, group, strlen(group)), 0);
        assert_int_equal(def->id[strlen(group)], '.');
        assert_non_null(def->run);
        assert_true(def->kinds != 0);
        if (def->after) assert_true(check_find(def->after) < i);
    }
}

/* A sanitizer takes the place of what the zoo's plugins are told by: its allocator says nothing of leaks, its handlers
 * write and exit where a signal is expected. */
int main(void)
{
#if defined(SANITIZED)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_only),
    };
    (void)test_good;
    (void)test_broken;
    (void)test_warned;
    (void)test_ends;
#else
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_rules),  cmocka_unit_test(test_good),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_files),  cmocka_unit_test(test_ends),
        cmocka_unit_test(test_only),   cmocka_unit_test(test_warned),
    };
#endif
    return cmocka_run_group_tests(tests, setup, teardown);
}
