/* test_growth.c: structs of newer SDKs: taken where nothing new is used, refused by name where something is; and what
 * has a number or a name of somebody else's. The zoo's plugins are mapped one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/format.h"
#include "plugin/growth.h"
#include "plugin/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

static char folder[] = "/tmp/worker-test-growth-XXXXXX";

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

/* One of the zoo's, in a buffer for all. */
static uint8_t bytes[1 << 20];
static size_t read_zoo(const char *zoo)
{
    char from[4096];
    (void)snprintf(from, sizeof from, "%s/%s.so", ZOO_DIR, zoo);
    FILE *in = fopen(from, "rb");
    assert_non_null(in);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_in_range(n, 1, sizeof bytes - 1);
    assert_int_equal(fclose(in), 0);
    return n;
}

/* Maps a copy of the plugin in a folder that nobody else writes to. The text is the caller's. */
static wk_status try_bytes(size_t n, struct plugin_entry *e, char text[1024])
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/one.so", folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out) | chmod(path, 0644), 0);
    text[0] = '\0';
    const wk_status status = plugin_try(path, NULL, e, &(struct wk_err){ text, 1024 });
    assert_int_equal(unlink(path), 0);
    return status;
}

static wk_status try(const char *zoo, struct plugin_entry *e, char text[1024])
{
    return try_bytes(read_zoo(zoo), e, text);
}

static void test_taken(void **state)
{
    (void)state;
    char text[1024];
    struct plugin_entry e;
    if (try("longer", &e, text) != WK_OK) fail_msg("%s", text);
    const struct wk_type_cpu *t = e.plugin->quant->types[0];
    assert_string_equal(t->name, "zoo_F");
    assert_int_equal(t->product_size, sizeof(struct wk_isa_product));
    assert_non_null(format_product_for(t, WK_ISA_AVX512));
    plugin_entry_clear(&e);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *zoo, *words;
    } rows[] = {
        { "longer_set", "struct wk_type_cpu: byte 104 is set, which this host (ABI 1.1) does not know" },
        { "product_longer_set", "struct wk_isa_product: byte 16 is set, which this host (ABI 1.1) does not know" },
        { "type_flags", "struct wk_type_cpu has flag 0x2, which this host (ABI 1.1) does not know" },
        { "other_activations", "struct wk_type_cpu.activations has flag 0x8, which this host (ABI 1.1) does not know" },
        { "product_reserved", "struct wk_isa_product.reserved is 5, must be 0 for this host (ABI 1.1)" },
        { "arch_reserved_names", "struct wk_arch.reserved_names is 5, must be 0" },
        { "arch_reserved_ignored", "struct wk_arch.reserved_ignored is 5, must be 0" },
        { "arch_reserved_ignored_keys", "struct wk_arch.reserved_ignored_keys is 5, must be 0" },
        { "arch_flags", "struct wk_arch has flag 0x8" },
        { "arch_key_flags", "key \"embedding_length\" has flag 0x100" },
        { "arch_key_type", "key \"embedding_length\": this host (ABI 1.1) does not know its type 9" },
        { "arch_key_varies", "key \"embedding_length\": flags 0x8 and type 1: WK_KEY_VARIES goes with" },
        { "arch_key_both", "key \"embedding_length\": flags 0x14 and type 1: WK_KEY_VARIES goes with" },
        { "arch_key_texts", "key \"embedding_length\": flags 0x10 and type 3: WK_KEY_VARIES goes with" },
        { "arch_key_size", "struct wk_arch.keys[0] says it has 32 bytes; at least 40" },
        { "known_name", "type zoo_F: ggml type 12 is q4_K; a format of your own takes a number from 1000 on" },
        { "known_block", "type f16: 1 values in 4 bytes; ggml type 1 has 1 in 2" },
    };
    char text[1024];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct plugin_entry e;
        assert_int_not_equal(try(rows[i].zoo, &e, text), WK_OK);
        if (!strstr(text, rows[i].words)) fail_msg("%s: expected \"%s\" in: %s", rows[i].zoo, rows[i].words, text);
        plugin_entry_clear(&e);
    }
}

/* The only place of these bytes. */
static uint8_t *find(size_t n, const void *what, size_t size)
{
    uint8_t *found = NULL;
    for (size_t i = 0; i + size <= n; i++) {
        if (memcmp(bytes + i, what, size) != 0) continue;
        assert_null(found);
        found = bytes + i;
    }
    assert_non_null(found);
    return found;
}

static void expect(size_t n, const char *words)
{
    char text[1024];
    struct plugin_entry e;
    if (try_bytes(n, &e, text) == WK_OK) fail_msg("taken; expected \"%s\"", words);
    if (!strstr(text, words)) fail_msg("expected \"%s\" in: %s", words, text);
    plugin_entry_clear(&e);
}

/* Every number of ggml's: taken as ggml has it, refused with another block, size of a block, or name. */
static void test_every_number(void **state)
{
    (void)state;
    enum { NUMBERS = 43 };
    char text[1024], words[128];
    struct plugin_entry e;
    struct wk_type_cpu types[NUMBERS];
    const size_t n = read_zoo("every");
    if (try_bytes(n, &e, text) != WK_OK) fail_msg("%s", text);
    assert_int_equal(e.plugin->quant->n_types, NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++) types[i] = *e.plugin->quant->types[i];
    plugin_entry_clear(&e); /* what was mapped stays, and with it the names */
    for (uint32_t i = 0; i < NUMBERS; i++) {
        const struct wk_type_cpu *t = &types[i];
        char quoted[64] = ""; /* "\0name\0": no name is the end of another */
        assert_int_equal(t->ggml_type, i);
        uint32_t *head = (uint32_t *)(void *)find(n, t, offsetof(struct wk_type_cpu, activations));
        for (int field = 2; field <= 3; field++) { /* block, block_bytes */
            head[field] *= 2;
            (void)snprintf(words, sizeof words, "type %s: %u values in %u bytes; ggml type %u has %u in %u", t->name,
                           head[2], head[3], i, t->block, t->block_bytes);
            expect(n, words);
            head[field] /= 2;
        }
        (void)snprintf(quoted + 1, sizeof quoted - 1, "%s", t->name);
        uint8_t *name = find(n, quoted, strlen(t->name) + 2) + 1;
        name[0] = 'x';
        (void)snprintf(words, sizeof words, "type x%s: ggml type %u is %s; a format of your own takes a number",
                       t->name + 1, i, t->name);
        expect(n, words);
        name[0] = (uint8_t)t->name[0];
    }
    if (try_bytes(n, &e, text) != WK_OK) fail_msg("%s", text);
    plugin_entry_clear(&e);
}

/* The rule itself: every length from none to beyond the host's, every byte behind it. */
static void test_rule(void **state)
{
    (void)state;
    uint8_t theirs[64], ours[32];
    char text[256];
    const struct wk_err err = { text, sizeof text };
    for (uint64_t size = 0; size <= sizeof theirs; size++) {
        memset(theirs, 0, sizeof theirs);
        memset(theirs, 0xab, size < sizeof ours ? size : sizeof ours);
        memset(ours, 0xcd, sizeof ours);
        const bool legal = size >= 16 && size % 8 == 0;
        assert_int_equal(growth_copy(ours, sizeof ours, 16, theirs, size, "s", &err), legal ? WK_OK : WK_INVALID);
        for (size_t i = 0; legal && i < sizeof ours; i++) assert_int_equal(ours[i], i < size ? 0xab : 0);
        for (uint64_t i = sizeof ours; legal && i < size; i++) {
            char words[64];
            theirs[i] = 1;
            assert_int_equal(growth_copy(ours, sizeof ours, 16, theirs, size, "s", &err), WK_UNSUPPORTED);
            (void)snprintf(words, sizeof words, "s: byte %d is set", (int)i);
            assert_non_null(strstr(text, words));
            theirs[i] = 0;
        }
    }
    assert_int_equal(growth_copy(ours, sizeof ours, 16, theirs, GROWTH_MAX + 8, "s", &err), WK_INVALID);
    assert_int_equal(growth_flags(5, 7, "s", &err), WK_OK);
    assert_int_equal(growth_flags(0x8000000000000005u, 5, "s", &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "s has flag 0x8000000000000000"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_taken), cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_rule), cmocka_unit_test(test_every_number) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
