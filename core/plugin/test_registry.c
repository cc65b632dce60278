/* test_registry.c: folders, real mapping, and who ends up serving what. Each plugin of the zoo is put into a folder of
 * the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/format.h"
#include "plugin/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

/* ---- a folder of one's own ----------------------------------------------------------------------------- */

struct place {
    char dir[3][64];
    char text[1024];
    struct wk_err err;
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    if (!p) return -1;
    p->err = (struct wk_err){ p->text, sizeof p->text };
    for (int i = 0; i < 3; i++) {
        (void)snprintf(p->dir[i], sizeof p->dir[i], "/tmp/worker-test-plugin-%d-XXXXXX", i);
        if (!mkdtemp(p->dir[i])) return -1;
    }
    (void)unsetenv("WORKER_PLUGIN_PATH");
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    char command[128];
    int failed = 0;
    for (int i = 0; i < 3; i++) {
        (void)snprintf(command, sizeof command, "chmod -R u+rwx %s && rm -r %s", p->dir[i], p->dir[i]);
        failed |= system(command);
    }
    free(p);
    return failed;
}

static void write_file(const char *dir, const char *name, const void *bytes, size_t n)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0644), 0);
}

static uint8_t *read_zoo(const char *zoo, size_t *n)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.so", ZOO_DIR, zoo);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    (void)fclose(f);
    return bytes;
}

static void put(const char *dir, const char *zoo, const char *name)
{
    size_t n;
    uint8_t *bytes = read_zoo(zoo, &n);
    write_file(dir, name, bytes, n);
    free(bytes);
}

static wk_status open_dirs(struct place *p, uint32_t n_dirs, const char *prefer, struct plugin_registry **r)
{
    const char *const dirs[] = { p->dir[0], p->dir[1], p->dir[2] };
    const struct plugin_options o = { .dirs = dirs, .n_dirs = n_dirs, .prefer = &prefer, .n_prefer = prefer != NULL };
    p->text[0] = '\0';
    return plugin_registry_open(&o, r, &p->err);
}

static void assert_words(const char *text, const char *words)
{
    if (!text || !strstr(text, words)) fail_msg("expected \"%s\" in: %s", words, text ? text : "NULL");
}

/* ---- what loads ---------------------------------------------------------------------------------------- */

static void test_good_quant(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    put(p->dir[0], "good", "good.so");
    put(p->dir[0], "good", ".hidden.so");
    put(p->dir[0], "good", "good.so.1");
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 1);
    const struct plugin_entry *e = plugin_at(r, 0), *who = NULL;
    assert_int_equal(e->state, PLUGIN_FOUND);
    assert_null(e->reason);
    assert_null(e->warnings);
    assert_null(e->plugin);
    assert_int_equal(strlen(e->digest), 64);
    assert_string_equal(e->note.id, "org.example.zoo");
    assert_null(plugin_find_type(r, 201, NULL));
    assert_int_equal(e->state, PLUGIN_FOUND);
    const struct wk_type_cpu *t = plugin_find_type(r, 200, &who);
    assert_non_null(t);
    assert_int_equal(e->state, PLUGIN_LOADED);
    assert_ptr_equal(who, e);
    assert_ptr_equal(plugin_find_type_named(r, "ZOO_f"), t);
    assert_null(format_product_of(t, WK_ISA_AVX2)); /* the next best is taken */
    for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++)
        assert_ptr_equal(format_product_for(t, isa), format_product_of(t, WK_ISA_PORTABLE));
    assert_null(plugin_find_type(r, 201, NULL));
    assert_null(plugin_find_type_named(r, "q4_K"));
    assert_null(plugin_find_arch(r, "zoo", NULL));
    assert_null(plugin_at(r, 1));

    /* The mapped code computes: W is 16 x 2 with W[r] = {r, 1}, x = {2, 3}. */
    float w[16][2], tile[32], x[2] = { 2, 3 }, y[16];
    const void *rows[16];
    for (int i = 0; i < 16; i++) {
        w[i][0] = (float)i;
        w[i][1] = 1;
        rows[i] = w[i];
    }
    format_pack(t, tile, rows, 2);
    format_product_for(t, WK_ISA_AVX512)(&(struct wk_cpu_product){ .struct_size = sizeof(struct wk_cpu_product),
                                                                   .activation = WK_ACTIVATION_F32,
                                                                   .k = 2,
                                                                   .n_rows = 1,
                                                                   .n_tiles = 1,
                                                                   .x_stride = 8,
                                                                   .y_stride = 16,
                                                                   .tiles = tile,
                                                                   .x = x,
                                                                   .y = y });
    for (int i = 0; i < 16; i++) assert_true(y[i] == (float)(2 * i + 3));

    char text[256], shortened[8];
    assert_int_equal(plugin_describe(r, WK_KIND_QUANT, text, sizeof text), 15);
    assert_string_equal(text, "good.so (zoo_F)");
    assert_int_equal(plugin_describe(r, WK_KIND_QUANT, shortened, sizeof shortened), 15);
    assert_string_equal(shortened, "good.so");
    (void)plugin_describe(r, WK_KIND_ARCH, text, sizeof text);
    assert_words(text, "none (looked into ");
    assert_words(text, p->dir[0]);
    plugin_registry_close(r);

    /* The same bytes again: not mapped, not started a second time (the zoo would refuse). */
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_non_null(plugin_find_type(r, 200, NULL));
    assert_int_equal(plugin_at(r, 0)->state, PLUGIN_LOADED);
    plugin_registry_close(r);

    /* Other bytes under the name that was vetted are not mapped. */
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    put(p->dir[0], "imports_exit", "good.so");
    assert_null(plugin_find_type(r, 200, NULL));
    assert_int_equal(plugin_at(r, 0)->state, PLUGIN_REFUSED);
    assert_words(plugin_at(r, 0)->reason, "was changed while this worker ran");
    assert_true(plugin_why_not(r, "ggml:200", text, sizeof text));
    assert_words(text, "good.so, which serves ggml:200, was refused: was changed");
    plugin_registry_close(r);
}

static void test_good_arch(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    put(p->dir[0], "arch", "arch.so");
    put(p->dir[0], "imports_exit", "quant.so");
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 2);
    const struct plugin_entry *who = NULL;
    const struct wk_arch *a = plugin_find_arch(r, "zoo", &who);
    assert_non_null(a);
    assert_ptr_equal(who, plugin_at(r, 0));
    assert_int_equal(a->n_keys, 1);
    assert_int_equal(plugin_at(r, 1)->state, PLUGIN_FOUND); /* what nothing asks for is not mapped */
    assert_null(plugin_find_arch(r, "llama", NULL));
    assert_null(plugin_find_arch(r, "zoo_F", NULL)); /* a type's name is no architecture */
    assert_non_null(plugin_find_type(r, 201, NULL));
    assert_string_equal(plugin_at(r, 1)->warnings, "imports exit");
    char text[256];
    (void)plugin_describe(r, WK_KIND_ARCH, text, sizeof text);
    assert_string_equal(text, "arch.so (zoo)");
    plugin_registry_close(r);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    static const struct {
        const char *zoo, *words;
    } rows[] = {
        /* before any code runs: these end the process when they are mapped */
        { "wrong_major", "was built for plugin ABI 7.1, this worker has 1.1; rebuild" },
        { "newer_minor", "needs plugin ABI 1.99 or later" },
        { "unknown_kind", "plugin kind 9 is unknown" },
        { "unknown_flags", "its note has flag 0x4" },
        { "no_note", "not a worker plugin: no note" },
        { "two_notes", "has 2 notes" },
        { "bad_id", "its id is not of the form" },
        { "bad_claims", "\"x\" is not a ggml type" },
        { "claims_twice", "\"12\" twice" },
        { "wrong_claims", "do not begin with \"ggml:\"" },
        { "cuda_malloc", "imports cudaMallocAsync; device memory" },
        { "executable_stack", "asks for an executable stack" },
        { "needs_library", "needs the library \"libzoo_other.so\"" },
        { "runpath", "says where its libraries are looked for (DT_RUNPATH)" },
        { "rpath", "says where its libraries are looked for (DT_RPATH)" },
        { "imports_exit_group", "imports _exit, which ends the process without a word" },
        /* after it is mapped */
        { "no_symbol", "does not export worker_plugin_v1" },
        { "differs", "differs from its note in: id" },
        { "null_quant", "struct wk_plugin.quant is NULL" },
        { "null_pack", "struct wk_type_cpu.pack is NULL" },
        { "null_product", "products[0].product is NULL" },
        { "small_struct", "struct wk_plugin says it has 64 bytes" },
        { "odd_size", "struct wk_type_cpu says it has" },
        { "other_type", "ggml type 201 is not in its note's claims" },
        { "empty_block", "is no block" },
        { "no_f32", "WK_ACTIVATION_F32 is required" },
        { "huge_tile", "tile_bytes(1) is 4160" },
        { "many_claims", "claims more than 256 things" },
        { "init_fails", "did not start: the animals are asleep" },
        { "arch_null_record", "struct wk_arch.record is NULL" },
        { "arch_other_name", "claims architecture \"zoo\"" },
        { "arch_empty_range", "range 9..8 is empty" },
        { "arch_many_keys", "says 4000000000 keys, 0 aliases, 0 ignored names and 0 ignored keys; at most 4096" },
        { "arch_many_aliases", "0 keys, 5000 aliases" },
        { "arch_many_ignored_keys", "0 ignored names and 4097 ignored keys" },
        { "arch_many_ignored", "0 keys, 0 aliases, 4097 ignored names" },
    };
    struct place *p = *state;
    struct plugin_registry *r;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64], path[512];
        (void)snprintf(name, sizeof name, "%s.so", rows[i].zoo);
        (void)snprintf(path, sizeof path, "%s/%s", p->dir[0], name);
        put(p->dir[0], rows[i].zoo, name);
        assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
        assert_int_equal(plugin_count(r), 1);
        const struct plugin_entry *e = plugin_at(r, 0);
        assert_string_equal(e->path, path);
        assert_null(plugin_find_type(r, 200, NULL)); /* maps what was found */
        assert_null(plugin_find_arch(r, "zoo", NULL));
        assert_int_equal(e->state, PLUGIN_REFUSED);
        assert_null(e->plugin);
        assert_words(e->reason, rows[i].words);
        plugin_registry_close(r);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_not_plugins(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    char path[512];
    write_file(p->dir[0], "empty.so", "", 0);
    write_file(p->dir[0], "text.so", "hello, world\n", 13);
    (void)snprintf(path, sizeof path, "%s/folder.so", p->dir[0]);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/pipe.so", p->dir[0]);
    assert_int_equal(mkfifo(path, 0644), 0);
    (void)snprintf(path, sizeof path, "%s/linked.so", p->dir[0]);
    put(p->dir[1], "good", "good.so");
    assert_int_equal(symlink(ZOO_DIR "/good.so", path), 0);
    put(p->dir[0], "good", "writable.so");
    (void)snprintf(path, sizeof path, "%s/writable.so", p->dir[0]);
    assert_int_equal(chmod(path, 0646), 0);
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    static const char *const words[] = {
        "empty file",         "not a regular file",         "a symbolic link",
        "not a regular file", "not an ELF file (13 bytes)", "it is writable by others (mode 646); run chmod go-w"
    };
    assert_int_equal(plugin_count(r), 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(plugin_at(r, i)->state, PLUGIN_REFUSED);
        assert_words(plugin_at(r, i)->reason, words[i]);
    }
    plugin_registry_close(r);

    assert_int_equal(chmod(p->dir[1], 0777), 0);
    (void)snprintf(path, sizeof path, "%s/good.so", p->dir[1]);
    struct plugin_entry e;
    assert_int_equal(plugin_inspect(path, &e, &p->err), WK_INVALID);
    assert_words(p->text, path);
    assert_words(p->text, "its folder is writable by others");
    assert_int_equal(e.state, PLUGIN_REFUSED);
    plugin_entry_clear(&e);
}

static void test_inspect(void **state)
{
    struct place *p = *state;
    struct plugin_entry e;
    static const struct {
        const char *zoo;
        wk_status status;
        const char *id;
    } rows[] = {
        { "init_fails", WK_OK, "org.example.zoo" }, /* nothing is run */
        { "imports_exit", WK_OK, "org.example.exit" },
        { "wrong_major", WK_UNSUPPORTED, "org.example.zoo" },
        { "bad_id", WK_INVALID, "" },
        { "no_note", WK_INVALID, "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[512], name[64];
        (void)snprintf(name, sizeof name, "%s.so", rows[i].zoo);
        (void)snprintf(path, sizeof path, "%s/%s", p->dir[0], name);
        put(p->dir[0], rows[i].zoo, name);
        assert_int_equal(plugin_inspect(path, &e, &p->err), rows[i].status);
        assert_string_equal(e.note.id, rows[i].id);
        assert_string_equal(e.path, path);
        assert_true((e.reason == NULL) == (rows[i].status == WK_OK));
        assert_null(e.plugin);
        plugin_entry_clear(&e);
    }
    static const char *const paths[] = { "good.so", "./good.so", "", "/", "/nonexistent/folder/x.so", "/tmp/" };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_not_equal(plugin_inspect(paths[i], &e, &p->err), WK_OK);
        plugin_entry_clear(&e);
    }
}

/* Whatever a truncated copy does to the loader, it does it before dlopen. */
static void test_truncated_copies(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    size_t n;
    uint8_t *bytes = read_zoo("good", &n);
    uint32_t loaded = 0;
    for (size_t i = 0; i < 100; i++) {
        write_file(p->dir[0], "cut.so", bytes, n * i / 100);
        assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
        const struct plugin_entry *e = plugin_at(r, 0);
        (void)plugin_find_type(r, 200, NULL);
        assert_true(e->state == PLUGIN_LOADED || (e->state == PLUGIN_REFUSED && e->reason));
        loaded += e->state == PLUGIN_LOADED; /* only section headers and symbols for debuggers are missing */
        plugin_registry_close(r);
    }
    assert_in_range(loaded, 0, 99);
    free(bytes);
}

/* ---- CUDA modules: no GPU is needed to find or refuse one ---------------------------------------------- */

static void test_cuda_found(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    const struct wk_quant_cuda *q, *again;
    char path[512];
    put(p->dir[0], "good", "good.so");
    put(p->dir[0], "cuda_good", "good-cuda.so");
    put(p->dir[0], "imports_exit", "other.so");
    (void)snprintf(path, sizeof path, "%s/good-cuda.so", p->dir[0]);
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 2); /* the module is no entry */
    assert_non_null(plugin_at(r, 0)->cuda);
    assert_string_equal(plugin_at(r, 0)->cuda, path);
    assert_null(plugin_at(r, 1)->cuda);
    assert_int_equal(plugin_find_cuda(r, 200, &q, &p->err), WK_OK);
    assert_int_equal(q->n_types, 1);
    assert_int_equal(q->types[0]->ggml_type, 200);
    assert_string_equal(q->id, "org.example.zoo");
    assert_int_equal(unlink(path), 0); /* once */
    assert_int_equal(plugin_find_cuda(r, 200, &again, &p->err), WK_OK);
    assert_ptr_equal(again, q);
    assert_int_equal(plugin_find_cuda(r, 7, &q, &p->err), WK_UNSUPPORTED);
    assert_string_equal(p->text, "q5_1: no plugin serves it");
    assert_null(q);
    plugin_registry_close(r);

    struct plugin_entry e;
    put(p->dir[0], "cuda_good", "good-cuda.so");
    assert_int_equal(plugin_inspect(path, &e, &p->err), WK_OK);
    assert_int_equal(e.note.kind, WK_KIND_QUANT_CUDA);
    assert_null(e.warnings); /* it imports setenv, as CUDA's runtime does */
    plugin_entry_clear(&e);
}

static void test_cuda_absent(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    const struct wk_quant_cuda *q;
    char words[512];
    put(p->dir[0], "good", "good.so");
    put(p->dir[1], "cuda_good", "good-cuda.so"); /* without its plugin: a file like any other */
    put(p->dir[1], "needs_dl", "needs_dl.so");
    assert_int_equal(open_dirs(p, 2, NULL, &r), WK_OK);
    assert_int_equal(plugin_find_cuda(r, 200, &q, &p->err), WK_UNSUPPORTED);
    (void)snprintf(words, sizeof words,
                   "ggml type 200 (zoo_F): good.so has no CUDA kernels: %s/good-cuda.so is not there", p->dir[0]);
    assert_string_equal(p->text, words);
    assert_int_equal(plugin_count(r), 3);
    assert_int_equal(plugin_at(r, 1)->state, PLUGIN_REFUSED);
    assert_words(plugin_at(r, 1)->reason, "the CUDA module of a plugin, org.example.zoo");
    assert_words(plugin_at(r, 2)->reason, "needs the library \"libdl.so.2\"");
    plugin_registry_close(r);
}

static void test_cuda_fewer_types(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    const struct wk_quant_cuda *q;
    char words[512];
    put(p->dir[0], "two_types", "two.so");
    put(p->dir[0], "cuda_two", "two-cuda.so");
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_int_equal(plugin_find_cuda(r, 200, &q, &p->err), WK_OK);
    assert_int_equal(plugin_find_cuda(r, 202, &q, &p->err), WK_UNSUPPORTED);
    (void)snprintf(words, sizeof words, "ggml type 202 (zoo_G): %s/two-cuda.so has no kernels for this type",
                   p->dir[0]);
    assert_string_equal(p->text, words);
    plugin_registry_close(r);
}

static void test_cuda_refused(void **state)
{
    static const struct {
        const char *zoo, *words;
        wk_status status;
    } rows[] = {
        /* before any code runs */
        { "cuda_wrong_layout", "was built with other structs in worker/quant_cuda.h: layout 0000000055667788",
          WK_UNSUPPORTED },
        { "cuda_wrong_minor", "was built for the CUDA interface 0.1, this worker has 0.3", WK_UNSUPPORTED },
        { "cuda_other_id", "belongs to org.example.rival, not to org.example.zoo", WK_INVALID },
        { "cuda_other_claim", "claims ggml type 201, which its plugin does not serve", WK_INVALID },
        { "good", "is a plugin of kind 2, not a CUDA module", WK_INVALID },
        { "no_note", "not a worker plugin: no note", WK_INVALID },
        { "cuda_malloc", "imports cudaMallocAsync; device memory", WK_INVALID },
        /* after it is mapped */
        { "cuda_no_symbol", "does not export worker_plugin_cuda_v0", WK_INVALID },
        { "cuda_differs", "differs from its note in: id", WK_INVALID },
        { "cuda_small_struct", "struct wk_quant_cuda says it has 16 bytes", WK_INVALID },
        { "cuda_odd_size", "struct wk_type_cuda says it has", WK_INVALID },
        { "cuda_other_type", "ggml type 201 is not in its note's claims", WK_INVALID },
        { "cuda_type_twice", "has 2 types, its note claims 1", WK_INVALID },
        { "cuda_null_product", "struct wk_quant_cuda.product is NULL", WK_INVALID },
        { "cuda_null_gather", "struct wk_type_cuda.gather is NULL", WK_INVALID },
        { "cuda_half_large", "struct wk_quant_cuda has one of panels and large", WK_INVALID },
    };
    struct place *p = *state;
    char path[512], words[600];
    put(p->dir[0], "good", "zoo.so");
    (void)snprintf(path, sizeof path, "%s/zoo-cuda.so", p->dir[0]);
    (void)snprintf(words, sizeof words, "ggml type 200 (zoo_F): %s was refused: ", path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct plugin_registry *r;
        const struct wk_quant_cuda *q;
        put(p->dir[0], rows[i].zoo, "zoo-cuda.so");
        assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK); /* the plugin serves the CPU in spite of it */
        assert_int_equal(plugin_count(r), 1);
        for (int twice = 0; twice < 2; twice++) {
            p->text[0] = '\0';
            assert_int_equal(plugin_find_cuda(r, 200, &q, &p->err), rows[i].status);
            assert_null(q);
            assert_int_equal(strncmp(p->text, words, strlen(words)), 0);
            assert_words(p->text, rows[i].words);
        }
        plugin_registry_close(r);
    }
    struct plugin_registry *r;
    const struct wk_quant_cuda *q;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(ZOO_DIR "/cuda_good.so", path), 0);
    assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
    assert_int_equal(plugin_find_cuda(r, 200, &q, &p->err), WK_INVALID);
    assert_words(p->text, "was refused: a symbolic link");
    plugin_registry_close(r);
}

/* The same of an architecture's custom operations. */
static void test_custom(void **state)
{
    static const struct {
        const char *zoo, *name, *words;
        wk_status status;
    } rows[] = {
        { "arch_cuda_good", "swirl", "", WK_OK },
        { "arch_cuda_good", "swift", "has no function of this name", WK_UNSUPPORTED },
        { "arch_cuda_other_id", "swirl", "belongs to org.example.rival, not to org.example.zoo", WK_INVALID },
        { "arch_cuda_other_claim", "swirl", "claims architecture second, which its plugin does not serve", WK_INVALID },
        { "cuda_good", "swirl", "is a plugin of kind 4, not a CUDA module of an architecture (kind 5)", WK_INVALID },
        { "arch_cuda_no_symbol", "swirl", "does not export worker_arch_cuda_v0", WK_INVALID },
        { "arch_cuda_differs", "swirl", "differs from its note in: id", WK_INVALID },
        { "arch_cuda_small_struct", "swirl", "struct wk_arch_cuda says it has 16 bytes", WK_INVALID },
        { "arch_cuda_flags", "swirl", "struct wk_arch_cuda has flag 0x2", WK_UNSUPPORTED },
        { "arch_cuda_reserved", "swirl", "struct wk_arch_cuda.reserved is 7, must be 0", WK_UNSUPPORTED },
        { "arch_cuda_none", "swirl", "has 0 custom operations, 1 to 256 expected", WK_INVALID },
        { "arch_cuda_many", "swirl", "has 2147483648 custom operations, 1 to 256 expected", WK_INVALID },
        { "arch_cuda_null_open", "swirl", "struct wk_arch_cuda.open is NULL", WK_INVALID },
        { "arch_cuda_null_run", "swirl", "customs[0] lacks a name or a function", WK_INVALID },
        { NULL, "swirl", "operation \"swirl\": zoo.so has no CUDA code", WK_UNSUPPORTED },
    };
    struct place *p = *state;
    const struct wk_arch_cuda *module;
    const struct wk_custom_cuda *custom;
    char path[512];
    put(p->dir[0], "arch", "zoo.so");
    (void)snprintf(path, sizeof path, "%s/zoo-cuda.so", p->dir[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct plugin_registry *r;
        if (rows[i].zoo)
            put(p->dir[0], rows[i].zoo, "zoo-cuda.so");
        else
            assert_int_equal(unlink(path), 0);
        assert_int_equal(open_dirs(p, 1, NULL, &r), WK_OK);
        assert_int_equal(plugin_count(r), 1);
        for (int twice = 0; twice < 2; twice++) {
            p->text[0] = '\0';
            assert_int_equal(plugin_find_custom(r, "zoo", rows[i].name, &module, &custom, &p->err), rows[i].status);
            assert_true(!custom == (rows[i].status != WK_OK) && !module == !custom);
            assert_words(p->text, rows[i].words);
        }
        assert_int_equal(plugin_find_custom(r, "nobody", "swirl", &module, &custom, &p->err), WK_UNSUPPORTED);
        plugin_registry_close(r);
    }
}

/* ---- several ------------------------------------------------------------------------------------------- */

static void test_shadowed(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    put(p->dir[0], "wrong_major", "a.so"); /* refused: does not shadow */
    put(p->dir[1], "good", "z.so");
    put(p->dir[2], "differs", "b.so");
    put(p->dir[2], "good", "a.so");
    assert_int_equal(open_dirs(p, 3, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 4);
    assert_int_equal(plugin_at(r, 0)->state, PLUGIN_REFUSED);
    assert_int_equal(plugin_at(r, 1)->state, PLUGIN_FOUND);
    assert_int_equal(plugin_at(r, 2)->state, PLUGIN_SHADOWED);
    assert_int_equal(plugin_at(r, 3)->state, PLUGIN_SHADOWED);
    assert_words(plugin_at(r, 2)->reason, plugin_at(r, 1)->path);
    assert_words(plugin_at(r, 2)->reason, "org.example.zoo");
    plugin_registry_close(r);
}

/* A claim is served by the earlier folder's plugin, the rest of a plugin's claims by itself. */
static void test_earlier_folder(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    const struct plugin_entry *who;
    put(p->dir[0], "conflict", "rival.so");
    put(p->dir[1], "two_types", "two.so");
    put(p->dir[2], "good", "good.so");
    assert_int_equal(open_dirs(p, 3, NULL, &r), WK_OK);
    assert_non_null(plugin_find_type(r, 200, &who));
    assert_string_equal(who->note.id, "org.example.rival");
    assert_non_null(plugin_find_type(r, 202, &who));
    assert_string_equal(who->note.id, "org.example.two");
    assert_words(who->warnings, "rival.so comes first for ggml:200");
    assert_null(who->reason);
    assert_int_equal(plugin_at(r, 2)->state, PLUGIN_SHADOWED);
    assert_words(plugin_at(r, 2)->reason, "rival.so comes first for ggml:200");
    plugin_registry_close(r);
    assert_int_equal(open_dirs(p, 3, "ggml:200=org.example.zoo", &r), WK_OK);
    assert_non_null(plugin_find_type(r, 200, &who));
    assert_string_equal(who->note.id, "org.example.zoo");
    assert_null(who->warnings);
    plugin_registry_close(r);
}

static void test_conflict(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    const struct plugin_entry *who;
    put(p->dir[0], "good", "good.so");
    put(p->dir[0], "conflict", "rival.so");
    put(p->dir[1], "imports_exit", "other.so");
    put(p->dir[0], "arch_other", "the-arch.so");
    put(p->dir[0], "arch_rival", "rival-arch.so");
    char text[1024];
    /* It stops what needs it, and nothing else. */
    assert_int_equal(open_dirs(p, 2, NULL, &r), WK_OK);
    assert_null(plugin_find_type(r, 200, &who));
    assert_null(plugin_find_arch(r, "zoo", &who));
    assert_non_null(plugin_find_type(r, 201, &who));
    assert_non_null(plugin_find_arch(r, "second", &who));
    assert_true(plugin_why_not(r, "ggml:200", text, sizeof text));
    assert_words(text, "two plugins serve ggml:200: org.example.zoo");
    assert_words(text, "org.example.rival");
    assert_words(text, "--prefer ggml:200=org.example.zoo");
    assert_true(plugin_why_not(r, "arch:zoo", text, sizeof text));
    assert_words(text, "two plugins serve arch:zoo: org.example.rival-arch");
    assert_false(plugin_why_not(r, "ggml:7", text, sizeof text));
    assert_string_equal(text, "");
    plugin_registry_close(r);
    assert_int_equal(open_dirs(p, 2, "ggml:200=org.example.rival", &r), WK_OK);
    assert_non_null(plugin_find_type(r, 200, &who));
    assert_string_equal(who->plugin->id, "org.example.rival");
    plugin_registry_close(r);
    assert_int_equal(open_dirs(p, 2, "ggml:200=org.example.zoo", &r), WK_OK);
    assert_non_null(plugin_find_type(r, 200, &who));
    assert_string_equal(who->plugin->id, "org.example.zoo");
    assert_null(plugin_find_arch(r, "zoo", &who));
    plugin_registry_close(r);
    static const char *const wrong[] = { "ggml:200=org.example.nobody", "ggml:2=org.example.zoo", "ggml:200", "", "=",
                                         "arch:zoo_F=org.example.zoo" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(open_dirs(p, 2, wrong[i], &r), WK_INVALID);
        assert_words(p->text, "--prefer");
    }
}

static void test_folders(void **state)
{
    struct place *p = *state;
    struct plugin_registry *r;
    char list[512];
    put(p->dir[1], "good", "good.so");
    (void)snprintf(list, sizeof list, "%s:%s/::%s", p->dir[0], p->dir[1],
                   p->dir[1]); /* one folder twice, one empty name */
    assert_int_equal(setenv("WORKER_PLUGIN_PATH", list, 1), 0);
    assert_int_equal(open_dirs(p, 2, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 1);
    assert_int_equal(plugin_at(r, 0)->state, PLUGIN_FOUND);
    plugin_registry_close(r);
    assert_int_equal(open_dirs(p, 0, NULL, &r), WK_OK);
    assert_int_equal(plugin_count(r), 1);
    plugin_registry_close(r);

    static const struct {
        const char *path, *words;
    } wrong[] = { { "/nonexistent/plugins", "No such file" },
                  { "plugins", "not an absolute path" },
                  { ".", "not an absolute path" },
                  { "/dev/null", "Not a directory" } };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(setenv("WORKER_PLUGIN_PATH", wrong[i].path, 1), 0);
        assert_int_not_equal(open_dirs(p, 1, NULL, &r), WK_OK);
        assert_words(p->text, wrong[i].words);
        assert_words(p->text, wrong[i].path);
        const struct plugin_options o = { .dirs = &wrong[i].path, .n_dirs = 1 };
        assert_int_equal(unsetenv("WORKER_PLUGIN_PATH"), 0);
        assert_int_not_equal(plugin_registry_open(&o, &r, &p->err), WK_OK);
        assert_words(p->text, "--plugin-dir");
    }
}

/* Who can write to a folder above can put another in the plugin's place; in a sticky one, only the owner of what lies
 * there. */
static void test_above(void **state)
{
    struct place *p = *state;
    char path[600], folder[512];
    struct plugin_entry e;
    static const struct {
        mode_t above;
        wk_status status;
    } rows[] = { { 0755, WK_OK }, { 0700, WK_OK }, { 0777, WK_INVALID }, { 0757, WK_INVALID }, { 01777, WK_OK } };
    (void)snprintf(folder, sizeof folder, "%s/plugins", p->dir[0]);
    assert_int_equal(mkdir(folder, 0755), 0);
    put(folder, "good", "good.so");
    (void)snprintf(path, sizeof path, "%s/good.so", folder);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(chmod(p->dir[0], rows[i].above), 0);
        assert_int_equal(plugin_inspect(path, &e, &p->err), rows[i].status);
        if (rows[i].status != WK_OK) {
            assert_words(p->text, "the folder /tmp/worker-test-plugin-0-");
            assert_words(p->text, "above it is writable by others");
        }
        plugin_entry_clear(&e);
    }
    assert_int_equal(chmod(p->dir[0], 0700), 0);
    if (geteuid() != 0) return;
    assert_int_equal(chmod(p->dir[0], 0775), 0); /* root's group may have members */
    assert_int_equal(plugin_inspect(path, &e, &p->err), WK_INVALID);
    plugin_entry_clear(&e);
    assert_int_equal(chmod(p->dir[0], 0755), 0);
    assert_int_equal(chown(p->dir[0], 12345, 0), 0);
    assert_int_equal(plugin_inspect(path, &e, &p->err), WK_INVALID);
    assert_words(p->text, "above it is owned by user 12345");
    plugin_entry_clear(&e);
    assert_int_equal(chown(p->dir[0], 0, 0), 0);
}

/* Where there is no /proc, the plugin is refused with a text that says so. In a child that has no other root than the
 * plugin's folder. */
static void test_without_proc(void **state)
{
    struct place *p = *state;
    if (geteuid() != 0) skip();
    put(p->dir[0], "conflict", "rival.so"); /* bytes that this test has to map itself */
    put(p->dir[0], "arch", "extra.so");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *const dirs[] = { "/" };
        const struct plugin_options o = { .dirs = dirs, .n_dirs = 1 };
        struct plugin_registry *r;
        int code = 3;
        size_t n;
        uint8_t *bytes = read_zoo("imports_exit", &n);
        bytes[n - 1] ^=
            1; /* the last section header: bytes that nothing reads, so that these bytes were never mapped */
        write_file(p->dir[0], "fresh.so", bytes, n);
        free(bytes);
        if (chroot(p->dir[0]) == 0 && chdir("/") == 0 && plugin_registry_open(&o, &r, &p->err) == WK_OK) {
            code = 2;
            (void)plugin_find_type(r, 201, NULL);
            for (uint32_t i = 0; i < plugin_count(r); i++)
                if (strstr(plugin_at(r, i)->path, "fresh.so") && plugin_at(r, i)->state == PLUGIN_REFUSED &&
                    strstr(plugin_at(r, i)->reason, "mount /proc"))
                    code = 0;
            plugin_registry_close(r);
        }
        _exit(code);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_isa(void **state)
{
    (void)state;
    const uint32_t isa = plugin_detect_isa();
    assert_in_range(isa, WK_ISA_PORTABLE, FORMAT_ISAS - 1);
#if defined(__x86_64__)
    /* The compiler's own idea, found by other means. */
    assert_int_equal(isa >= WK_ISA_AVX2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(isa >= WK_ISA_AVX512, __builtin_cpu_supports("avx512vbmi") &&
                                               __builtin_cpu_supports("avx512vnni") &&
                                               __builtin_cpu_supports("avx512dq"));
#endif
}

static void product_portable(const struct wk_cpu_product *p) { (void)p; }
static void product_avx512(const struct wk_cpu_product *p) { (void)p->k; }

/* Names, what is refused of them on processors of each level, and which product such a processor takes. */
static void test_isa_named(void **state)
{
    (void)state;
    static const char *const names[FORMAT_ISAS] = { "portable", "avx2", "avx512" };
    static const struct wk_isa_product products[] = { { WK_ISA_AVX512, 0, product_avx512 },
                                                      { WK_ISA_PORTABLE, 0, product_portable } };
    const struct wk_type_cpu type = { .struct_size = sizeof type, WK_TYPE_PRODUCTS(products) };
    char text[256];
    const struct wk_err err = { text, sizeof text };
    uint32_t isa;
    for (uint32_t here = 0; here < FORMAT_ISAS; here++) {
        for (uint32_t i = 0; i < FORMAT_ISAS; i++) {
            const wk_status status = plugin_isa_named(names[i], here, &isa, &err);
            assert_int_equal(status, i <= here ? WK_OK : WK_UNSUPPORTED);
            assert_int_equal(isa, i);
            assert_string_equal(plugin_isa_name(i), names[i]);
        }
        assert_ptr_equal(format_product_for(&type, here), here < WK_ISA_AVX512 ? product_portable : product_avx512);
    }
    assert_int_equal(plugin_isa_named("avx512", WK_ISA_AVX2, &isa, &err), WK_UNSUPPORTED);
    assert_string_equal(text, "this processor has no avx512; it has portable, avx2");
    assert_int_equal(plugin_isa_named("AVX2", WK_ISA_AVX512, &isa, &err), WK_INVALID);
    assert_string_equal(text, "AVX2 is no instruction set; expected one of portable, avx2, avx512");
    assert_string_equal(plugin_isa_name(FORMAT_ISAS), "?");
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(test_good_quant),
        ROW(test_good_arch),
        ROW(test_refused),
        ROW(test_not_plugins),
        ROW(test_inspect),
        ROW(test_truncated_copies),
        ROW(test_cuda_found),
        ROW(test_cuda_absent),
        ROW(test_cuda_fewer_types),
        ROW(test_cuda_refused),
        ROW(test_custom),
        ROW(test_shadowed),
        ROW(test_earlier_folder),
        ROW(test_conflict),
        ROW(test_folders),
        ROW(test_above),
        ROW(test_without_proc),
        cmocka_unit_test(test_isa),
        cmocka_unit_test(test_isa_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
