/* test_allowed.c: the list of --plugin-digest: what a list may look like, and that with one nothing else is mapped,
 * however a copy is damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "draw.h"
#include "plugin/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

static char folder[] = "/tmp/worker-test-allowed-XXXXXX", list[64], text[1024];
static const struct wk_err err = { text, sizeof text };

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(list, sizeof list, "%s/list", folder);
    return unsetenv("WORKER_PLUGIN_PATH");
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    return plugin_allow_only(NULL, NULL) || system(command);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0644), 0);
}

struct bytes {
    uint8_t *at;
    size_t n;
    char digest[65];
};

/* One of the zoo; the caller frees it. */
static struct bytes zoo(const char *name)
{
    struct bytes b;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.so", ZOO_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.at = malloc(b.n + 4096);
    assert_non_null(b.at);
    assert_int_equal(fread(b.at, 1, b.n, f), b.n);
    (void)fclose(f);
    assert_true(sha256_hex(b.at, b.n, b.digest));
    return b;
}

static void put(const char *name, const struct bytes *b)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    write_file(path, b->at, b->n);
}

static void allow(const char *content)
{
    write_file(list, content, strlen(content));
    if (plugin_allow_only(list, &err)) fail_msg("%s", text);
}

static wk_status start(const char *path, struct plugin_entry *e, const struct wk_err *told)
{
    return plugin_try(path, NULL, e, told);
}

static wk_status try(const char *name, wk_status (*how)(const char *, struct plugin_entry *, const struct wk_err *))
{
    char path[128];
    struct plugin_entry e;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    text[0] = '\0';
    const wk_status status = how(path, &e, &err);
    plugin_entry_clear(&e);
    return status;
}

static void assert_words(const char *words)
{
    if (!strstr(text, words)) fail_msg("expected \"%s\" in: %s", words, text);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void lists_taken(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "\n",
        "# nothing\n",
        DIGEST "  a.so",
        DIGEST "  a.so\n",
        DIGEST " *a.so\n",
        "# one\n\n" DIGEST "  /b c/a.so\n",
        DIGEST "  a.so\n" DIGEST "  b.so\n",
        "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef  a.so\n",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) allow(rows[i]);
}

static void lists_refused(void **state)
{
    (void)state;
    static const struct {
        const char *content, *words;
    } rows[] = {
        { DIGEST, "line 1: two spaces and a file's name expected after the digest" },
        { DIGEST "\n", "line 1: two spaces" },
        { DIGEST "  ", "line 1: two spaces" },
        { DIGEST "   a.so", "line 1: two spaces" },
        { DIGEST " a.so\n", "line 1: two spaces" },
        { DIGEST "\ta.so\n", "line 1: byte 0x09" },
        { DIGEST "  a.so\r\n", "line 1: byte 0x0d" },
        { "# ok\n" DIGEST "0  a.so\n", "line 2: begins with 65 hex digits, a SHA-256 has 64" },
        { DIGEST "  a.so\n\n" DIGEST "  b\nda39a3ee5e6b4b0d3255bfef95601890afd80709  sha1\n",
          "line 4: begins with 40 hex" },
        { " " DIGEST "  a.so\n", "line 1: begins with 0 hex digits" },
        { "\\" DIGEST "  a\\\\b.so\n", "line 1: begins with 0 hex digits" },
        { "SHA256 (a.so) = " DIGEST "\n", "line 1: begins with 0 hex digits" },
        { "not a list", "line 1: begins with 0 hex digits" },
        { "\xef\xbb\xbf" DIGEST "  a.so\n", "line 1: begins with 0 hex digits" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char prefix[128];
        write_file(list, rows[i].content, strlen(rows[i].content));
        assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
        assert_words(rows[i].words);
        (void)snprintf(prefix, sizeof prefix, "--plugin-digest %s: ", list);
        assert_words(prefix);
    }
    static const char zero[] = DIGEST "  a\0b\n";
    write_file(list, zero, sizeof zero - 1);
    assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
    assert_words("line 1: byte 0x00");
}

/* A list that others can write to is none; nor is what is no file. */
static void list_files_refused(void **state)
{
    (void)state;
    write_file(list, "", 0);
    assert_int_equal(chmod(list, 0646), 0);
    assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
    assert_words("it is writable by others (mode 646)");
    assert_int_equal(chmod(list, 0646), 0);
    assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
    assert_int_equal(plugin_allow_only(folder, &err), WK_INVALID);
    assert_words("not a regular file");
    assert_int_equal(plugin_allow_only("/nowhere/list", &err), WK_IO);
    assert_words("--plugin-digest /nowhere/list: cannot open: No such file");
    assert_int_equal(unlink(list), 0);
    assert_int_equal(mkfifo(list, 0600), 0);
    assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
    assert_words("not a regular file");
    assert_int_equal(unlink(list), 0);
    const size_t most = 1 << 20;
    char *lines = malloc(most + 1);
    assert_non_null(lines);
    memset(lines, '\n', most + 1);
    write_file(list, lines, most);
    assert_int_equal(plugin_allow_only(list, &err), WK_OK);
    write_file(list, lines, most + 1);
    assert_int_equal(plugin_allow_only(list, &err), WK_INVALID);
    assert_words("longer than 1048576 bytes");
    free(lines);
}

/* ---- what it does --------------------------------------------------------------------------------------- */

/* Of every kind of damage that a copy may take: bits, bytes, runs, lengths. */
static void damage(const struct bytes *from, struct bytes *to)
{
    memcpy(to->at, from->at, from->n);
    to->n = from->n;
    const size_t at = draw((uint32_t)from->n), length = draw(64) + 1;
    switch (draw(5)) {
    case 0: to->at[at] ^= (uint8_t)(1u << draw(8)); break;
    case 1: to->at[at] = (uint8_t)(from->at[at] + 1 + draw(255)); break;
    case 2:
        for (size_t i = at; i < at + length && i < to->n; i++) to->at[i] = (uint8_t)~from->at[i];
        break;
    case 3: to->n = at; break;
    default: memset(to->at + to->n, 0, length); to->n += length;
    }
}

static bool is_mapped(const char *name)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found = found || strstr(line, name);
    (void)fclose(f);
    return found;
}

/* Without the list some of these copies run, since nothing else of them is wrong; with it none is mapped. */
static void damaged_copies(void **state)
{
    (void)state;
    enum { COPIES = 1000 };
    const struct bytes good = zoo("good");
    struct bytes bad = { malloc(good.n + 4096), 0, "" };
    char content[128];
    assert_non_null(bad.at);
    (void)snprintf(content, sizeof content, "%s  good.so\n", good.digest);
    allow(content);
    for (int i = 0; i < COPIES; i++) {
        damage(&good, &bad);
        put("bad.so", &bad);
        assert_int_equal(try("bad.so", start), WK_INVALID);
        if (bad.n == 0) continue; /* an empty file, by that */
        assert_true(sha256_hex(bad.at, bad.n, bad.digest));
        assert_words(bad.digest);
        assert_words("is not on the list of --plugin-digest, /tmp/worker-test-allowed-");
        assert_words("/bad.so: its SHA-256");
    }
    assert_false(is_mapped("memfd:bad.so"));
    put("good.so", &good);
    if (try("good.so", start)) fail_msg("%s", text);
    assert_true(is_mapped("memfd:good.so"));
    assert_int_equal(plugin_allow_only(NULL, &err), WK_OK);
    put("bad.so", &(struct bytes){ good.at, good.n + 1, "" }); /* a byte at the end harms nobody */
    if (try("bad.so", plugin_inspect)) fail_msg("%s", text);
    free(good.at);
    free(bad.at);
}

static struct plugin_registry *opened(void)
{
    const char *const dirs[] = { folder };
    struct plugin_registry *r = NULL;
    if (plugin_registry_open(&(struct plugin_options){ .dirs = dirs, .n_dirs = 1 }, &r, &err)) fail_msg("%s", text);
    return r;
}

/* What a folder has that is not listed is listed as refused; a list that changes between finding and mapping is asked
 * again. */
static void registries(void **state)
{
    (void)state;
    const struct bytes good = zoo("good"), arch = zoo("arch");
    char content[256];
    put("good.so", &good);
    put("other.so", &arch);
    (void)snprintf(content, sizeof content, "# the zoo\n%s *good.so\n", good.digest);
    allow(content);
    struct plugin_registry *r = opened();
    assert_null(plugin_find_arch(r, "zoo", NULL));
    assert_non_null(plugin_find_type(r, 200, NULL));
    bool seen = false;
    for (uint32_t i = 0; i < plugin_count(r); i++) {
        const struct plugin_entry *e = plugin_at(r, i);
        if (!strstr(e->path, "other.so")) continue;
        seen = true;
        assert_int_equal(e->state, PLUGIN_REFUSED);
        assert_string_equal(e->digest, arch.digest);
        assert_non_null(strstr(e->reason, "is not on the list of --plugin-digest"));
    }
    assert_true(seen);
    plugin_registry_close(r);
    (void)snprintf(content, sizeof content, "%s  other.so\n", arch.digest);
    allow(content);
    r = opened();
    allow("");
    assert_null(plugin_find_arch(r, "zoo", NULL));
    assert_true(plugin_why_not(r, "arch:zoo", text, sizeof text));
    assert_words(arch.digest);
    plugin_registry_close(r);
    free(good.at);
    free(arch.at);
}

static void cuda_modules(void **state)
{
    (void)state;
    const struct bytes good = zoo("good"), cuda = zoo("cuda_good");
    char content[256];
    const struct wk_quant_cuda *q;
    put("good.so", &good);
    put("good-cuda.so", &cuda);
    (void)snprintf(content, sizeof content, "%s  good.so\n", good.digest);
    allow(content);
    struct plugin_registry *r = opened();
    assert_int_equal(plugin_find_cuda(r, 200, &q, &err), WK_INVALID);
    assert_null(q);
    assert_words("good-cuda.so was refused: its SHA-256, ");
    assert_words(cuda.digest);
    assert_non_null(plugin_find_type(r, 200, NULL)); /* serves the CPU all the same */
    plugin_registry_close(r);
    (void)snprintf(content, sizeof content, "%s  good.so\n%s  good-cuda.so\n", good.digest, cuda.digest);
    allow(content);
    r = opened();
    if (plugin_find_cuda(r, 200, &q, &err)) fail_msg("%s", text);
    assert_non_null(q);
    plugin_registry_close(r);
    free(good.at);
    free(cuda.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(lists_taken),        cmocka_unit_test(lists_refused),
                                        cmocka_unit_test(list_files_refused), cmocka_unit_test(damaged_copies),
                                        cmocka_unit_test(registries),         cmocka_unit_test(cuda_modules) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
