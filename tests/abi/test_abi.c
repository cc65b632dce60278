/* test_abi.c: plugins and a host that were built from different headers. It is built twice, with today's headers and
 * with headers in which every struct that grows has grown (sdk/abi/headers.py), and given folders with recorder.so and
 * eights.so, built from the headers of 1.0, today's and grown ones, by several compilers: each must be taken, and
 * record and compute what the first folder's does, bit for bit.
 *
 * test_abi FOLDER...           all the same
 * test_abi refused FOLDER      in a host of today's headers: plugins and operations that set what it does not know */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_build.h"
#include "plugin/format.h"
#include "plugin/plugin.h"
#include "tape/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

enum { V = 48, E = 32, C = 64, F = 16, EXPERTS = 8, EIGHTS = 1001, ROWS = 16, STEPS = 3 };
enum { LONGER_FREQS = 100, LONGER_DEF = 101 };

static int n_folders;
static char **folders;

/* ---- the recorder's file ---------------------------------------------------------------------------------- */

static struct gguf_build *recorder_file(uint32_t longer, uint32_t set)
{
    static const struct {
        const char *name;
        uint32_t rows, cols, slabs;
    } tensors[] = {
        { "token_embd.weight", V, E, 1 },
        { "position_embd.weight", C, E, 1 },
        { "type_embd.weight", 3, E, 1 },
        { "table.weight", 1, 3, 1 },
        { "unused.thing", 1, 3, 1 },
        { "output_norm.weight", 1, E, 1 },
        { "blk.0.attn_norm.weight", 1, E, 1 },
        { "blk.0.attn_norm.bias", 1, E, 1 },
        { "blk.0.attn_q.weight", 32, E, 1 },
        { "blk.0.attn_q_norm.weight", 1, 8, 1 },
        { "blk.0.k_in_the_file.weight", 16, E, 1 },
        { "blk.0.k_in_the_file.bias", 1, 16, 1 },
        { "blk.0.attn_v.weight", 16, E, 1 },
        { "blk.0.attn_sinks.weight", 1, 4, 1 },
        { "blk.0.attn_output.weight", 2 * E, E, 1 },
        { "blk.0.attn_output.bias", 1, 2 * E, 1 },
        { "blk.0.attn_q2.weight", 32, E, 1 },
        { "blk.0.attn_heads.weight", 8, 8, 4 },
        { "blk.1.ssm_norm.weight", 1, E, 1 },
        { "blk.1.ssm_conv1d.weight", E, 4, 1 },
        { "blk.1.ssm_q.weight", 16, E, 1 },
        { "blk.1.ssm_k.weight", 16, E, 1 },
        { "blk.1.ssm_v.weight", 32, E, 1 },
        { "blk.1.ssm_dt.weight", 4, E, 1 },
        { "blk.1.ssm_beta.weight", 4, E, 1 },
        { "blk.1.ssm_d", 1, E, 1 },
        { "blk.2.ffn_norm.weight", 1, E, 1 },
        { "blk.2.ffn_gate_inp.weight", EXPERTS, E, 1 },
        { "blk.2.exp_probs_b.bias", 1, EXPERTS, 1 },
        { "blk.2.ffn_gate_exps.weight", F, E, EXPERTS },
        { "blk.2.ffn_up_exps.weight", F, E, EXPERTS },
        { "blk.2.ffn_up_exps.bias", EXPERTS, F, 1 },
        { "blk.2.ffn_down_exps.weight", E, F, EXPERTS },
        { "blk.2.twist.gain", 1, E, 1 },
    };
    static const uint32_t windows[3] = { 16, 0, 8 }, sections[5] = { 16, 24, 24, 0, 7 };
    static const float table[3] = { 1, 2, 3 };
    struct gguf_build *g = gguf_build_new("recorder");
    gguf_build_str(g, "worker.type.1001", "org.example.eights");
    gguf_build_u32(g, "recorder.context_length", C);
    gguf_build_u32(g, "recorder.block_count", 3);
    gguf_build_u32(g, "recorder.embedding_length", E);
    gguf_build_f32(g, "recorder.epsilon", 1e-5f);
    gguf_build_f32(g, "recorder.scale", 0.75f);
    gguf_build_str(g, "general.recorder", "all of it");
    gguf_build_bool(g, "recorder.flag", 1);
    gguf_build_u32(g, "recorder.remark", 7);
    gguf_build_array(g, "recorder.window", GGUF_U32, 3, windows);
    gguf_build_array(g, "recorder.sections", GGUF_U32, 5, sections);
    gguf_build_u32(g, "recorder.longer", longer);
    gguf_build_u32(g, "recorder.set", set);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        gguf_build_floats(g, tensors[i].name, tensors[i].rows, tensors[i].cols, tensors[i].slabs, NULL);
    gguf_build_floats(g, "table.weight", 1, 3, 1, table);
    gguf_build_tensor(g, "output.weight", EIGHTS, V, E, 1, NULL, (size_t)V * 36);
    return g;
}

static const struct wk_type_cpu *find_type(void *user, uint32_t type)
{
    static const struct wk_type_cpu f32 = {
        .struct_size = sizeof f32, .ggml_type = 0, .block = 1, .block_bytes = 4, .name = "f32"
    };
    return type == 0 ? &f32 : plugin_find_type(user, type, NULL);
}
static const char *type_owner(void *user, uint32_t type) { return plugin_type_owner(user, type); }

static wk_status record(struct plugin_registry *r, uint32_t longer, uint32_t set, struct tape_program **p,
                        struct gguf **file, struct gguf_build **g, char text[2048])
{
    const struct plugin_entry *who = NULL;
    const struct wk_arch *arch = plugin_find_arch(r, "recorder", &who);
    if (!arch) fail_msg("no recorder in the folder");
    const struct tape_options o = {
        .fuse = FUSE_ALL, .find_type = find_type, .type_owner = type_owner, .user = r, .host = plugin_host(who->plugin)
    };
    *g = recorder_file(longer, set);
    *file = gguf_build_open(*g);
    text[0] = '\0';
    return tape_record(arch, *file, &o, p, &(struct wk_err){ text, 2048 });
}

/* ---- what a folder's plugins make ------------------------------------------------------------------------- */

struct made {
    char tape[65];
    float twisted[STEPS][E], values[ROWS * E], products[2][STEPS][ROWS];
    uint8_t blocks[ROWS * 36], tile[ROWS * 36], back[ROWS * 36];
};

static struct plugin_registry *opened(const char *folder)
{
    char text[1024];
    struct plugin_registry *r = NULL;
    const char *const dirs[] = { folder };
    if (plugin_registry_open(&(struct plugin_options){ .dirs = dirs, .n_dirs = 1 }, &r, &(struct wk_err){ text, 1024 }))
        fail_msg("%s", text);
    return r;
}

/* Arguments as a host of later headers would give them: what its struct has beyond this header's fields is not zero. */
#define ARGUMENT(type, name)             \
    struct type name;                    \
    memset(&(name), 0xff, sizeof(name)); \
    name.struct_size = sizeof(name)

static void run_custom(const struct tape_program *p, struct made *m)
{
    const struct tape_op *op = NULL;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == WK_OP_CUSTOM) op = &p->ops[i];
    assert_non_null(op);
    float in[STEPS][E], gain[E];
    const float *ins[1] = { in[0] }, *tensors[1] = { gain };
    const uint32_t in_width[1] = { E }, position[STEPS] = { 3, 5, 9 };
    for (int i = 0; i < STEPS * E; i++) in[i / E][i % E] = (float)i * 0.125f;
    for (int i = 0; i < E; i++) gain[i] = (float)(i - 7);
    ARGUMENT(wk_custom_call, call);
    call.n_rows = STEPS;
    call.n_in = 1;
    call.out_width = E;
    call.in = ins;
    call.in_width = in_width;
    call.position = position;
    call.params = op->u.custom.params;
    call.out = m->twisted[0];
    call.tensor = tensors;
    call.n_tensors = 1;
    call.reserved = 0;
    op->u.custom.def->cpu(&call);
}

static void run_products(const struct wk_type_cpu *t, const struct wk_tensor_params *params, struct made *m)
{
    _Alignas(64) uint8_t tile[ROWS * 36], scratch[E * 4];
    float x[STEPS][E];
    struct wk_activation_q8 q8[STEPS];
    memcpy(tile, m->tile, sizeof tile);
    assert_true(t->tile_bytes(E) == sizeof tile && t->scratch_bytes(E) == sizeof scratch);
    for (int s = 0; s < STEPS; s++) {
        q8[s].d = 0.01f * (float)(s + 1);
        for (int i = 0; i < E; i++) {
            x[s][i] = (float)((i * 7 + s) % 11) - 5.0f;
            q8[s].q[i] = (int8_t)(i - s);
        }
    }
    for (int form = 0; form < 2; form++) {
        ARGUMENT(wk_cpu_product, p);
        p.activation = form ? WK_ACTIVATION_Q8 : WK_ACTIVATION_F32;
        p.k = E;
        p.n_rows = STEPS;
        p.n_tiles = 1;
        p.reserved = 0;
        p.x_stride = form ? sizeof q8[0] : sizeof x[0];
        p.y_stride = ROWS;
        p.tiles = tile;
        p.x = form ? (const void *)q8 : (const void *)x;
        p.y = m->products[form][0];
        p.scratch = scratch;
        p.tensor = params;
        format_product_for(t, WK_ISA_AVX512)(&p);
    }
}

static void run_format(const struct wk_type_cpu *t, struct made *m)
{
    float x[ROWS * E], importance[E];
    const void *rows[ROWS];
    void *back[ROWS];
    char text[256];
    ARGUMENT(wk_tensor_params, params);
    params.scale = 1;
    for (int i = 0; i < ROWS * E; i++) x[i] = (float)((i * 37) % 101) * 0.25f - 11.0f;
    for (int i = 0; i < E; i++) importance[i] = (float)(i % 3);
    ARGUMENT(wk_quantize, q);
    q.row_length = E;
    q.n = ROWS * E;
    q.x = x;
    q.importance = importance;
    q.blocks = m->blocks;
    q.tensor = &params;
    if (t->quantize(&q, &(struct wk_err){ text, sizeof text })) fail_msg("%s", text);
    ARGUMENT(wk_dequantize, d);
    d.reserved = 0;
    d.n = ROWS * E;
    d.blocks = m->blocks;
    d.y = m->values;
    d.tensor = &params;
    t->dequantize(&d);
    for (int i = 0; i < ROWS; i++) {
        rows[i] = m->blocks + i * 36;
        back[i] = m->back + i * 36;
    }
    ARGUMENT(wk_pack, p);
    p.k = E;
    p.rows = rows;
    p.tile = m->tile;
    p.tensor = &params;
    t->pack(&p);
    ARGUMENT(wk_unpack, u);
    u.k = E;
    u.tile = m->tile;
    u.rows = back;
    u.tensor = &params;
    t->unpack(&u);
    assert_memory_equal(m->back, m->blocks, sizeof m->back);
    run_products(t, &params, m);
    x[3] = 1.0f / 0.0f;
    assert_int_equal(t->quantize(&q, &(struct wk_err){ text, sizeof text }), WK_INVALID);
    assert_string_equal(text, "value 3 is not finite");
}

static void make(const char *folder, struct made *m)
{
    char text[2048];
    struct gguf_build *g;
    struct gguf *file;
    struct tape_program *p;
    const struct plugin_entry *who = NULL;
    struct plugin_registry *r = opened(folder);
    memset(m, 0, sizeof *m);
    if (record(r, 0, 0, &p, &file, &g, text)) fail_msg("%s: %s", folder, text);
    tape_digest(p, m->tape);
    run_custom(p, m);
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
    const struct wk_type_cpu *t = plugin_find_type(r, EIGHTS, &who);
    if (!t) fail_msg("%s: no eights", folder);
    assert_string_equal(who->plugin->name, "eights");
    assert_int_equal(t->n_products, 1); /* the one of a later host's instruction set is left alone */
    run_format(t, m);
    assert_non_null(plugin_find_arch(r, "recorder", &who));
    assert_non_null(who->plugin->extension("recorder/1"));
    assert_null(who->plugin->extension("recorder/2"));
    plugin_registry_close(r);
}

static void all_the_same(void **state)
{
    (void)state;
    struct made first, other;
    make(folders[0], &first);
    assert_true(first.products[0][0][0] != 0.0f);
    for (int i = 1; i < n_folders; i++) {
        make(folders[i], &other);
        if (strcmp(first.tape, other.tape) != 0) fail_msg("%s records another tape", folders[i]);
        if (memcmp(&first, &other, sizeof first) != 0) fail_msg("%s computes something else", folders[i]);
    }
}

/* Every operation, and what operations point to, 16 bytes longer than the plugin's header has it: the same tape. */
static const uint32_t longer_kinds[] = {
    WK_OP_EMBED,   WK_OP_LINEAR, WK_OP_NORM,   WK_OP_ROPE,         WK_OP_ATTENTION, WK_OP_UNARY,
    WK_OP_GLU,     WK_OP_ADD,    WK_OP_MUL,    WK_OP_SLICE,        WK_OP_ROUTE,     WK_OP_EXPERT,
    WK_OP_COMBINE, WK_OP_POOL,   WK_OP_OUTPUT, WK_OP_CUSTOM,       WK_OP_CONCAT,    WK_OP_STATE,
    WK_OP_VECTOR,  LONGER_FREQS, LONGER_DEF,   WK_OP_LINEAR_HEADS,
};
enum { N_LONGER = sizeof longer_kinds / sizeof *longer_kinds };

static void longer_operations(void **state)
{
    (void)state;
    assert_int_equal(N_LONGER, WK_OP_END - 1 + 2); /* an operation that is new stands above */
    char text[2048], first[65], other[65];
    for (int f = 0; f < n_folders; f++) {
        struct plugin_registry *r = opened(folders[f]);
        for (int i = -1; i < N_LONGER; i++) {
            struct gguf_build *g;
            struct gguf *file;
            struct tape_program *p;
            if (record(r, i < 0 ? 0 : longer_kinds[i], 0, &p, &file, &g, text)) fail_msg("%s: %s", folders[f], text);
            tape_digest(p, i < 0 ? first : other);
            if (i >= 0) assert_string_equal(first, other);
            tape_free(p);
            gguf_close(file);
            gguf_build_free(g);
        }
        plugin_registry_close(r);
    }
}

/* ---- what is not known ------------------------------------------------------------------------------------ */

static void set_operations(void **state)
{
    (void)state;
    char text[2048];
    struct plugin_registry *r = opened(folders[0]);
    for (int i = 0; i < N_LONGER; i++) {
        struct gguf_build *g;
        struct gguf *file;
        struct tape_program *p = NULL;
        const wk_status status = record(r, longer_kinds[i], 1, &p, &file, &g, text);
        if (status != WK_UNSUPPORTED || !strstr(text, " is set, which this host (ABI 1.1) does not know"))
            fail_msg("kind %u: status %d, %s", longer_kinds[i], status, text);
        assert_null(p);
        gguf_close(file);
        gguf_build_free(g);
    }
    plugin_registry_close(r);
}

static wk_status try(const char *path, char text[1024])
{
    struct plugin_entry e;
    text[0] = '\0';
    const wk_status status = plugin_try(path, NULL, &e, &(struct wk_err){ text, 1024 });
    plugin_entry_clear(&e);
    return status;
}

static void set_structs(void **state)
{
    (void)state;
    static const struct {
        const char *file, *words;
    } rows[] = {
        { "set_plugin", "struct wk_plugin: byte " },       { "set_arch", "struct wk_arch: byte " },
        { "set_key", "struct wk_arch.keys[0]: byte " },    { "set_alias", "struct wk_arch.aliases[0]: byte " },
        { "set_quant", "struct wk_quant: byte " },         { "set_type", "struct wk_type_cpu: byte " },
        { "set_product", "struct wk_isa_product: byte " },
    };
    char path[4096], text[1024];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(path, sizeof path, "%s/%s.so", folders[0], rows[i].file);
        assert_int_equal(try(path, text), WK_UNSUPPORTED);
        if (!strstr(text, rows[i].words) || !strstr(text, "is set, which this host (ABI 1.1) does not know"))
            fail_msg("%s: expected \"%s\" in: %s", rows[i].file, rows[i].words, text);
    }
}

/* A note that has grown, with a byte set in what this host does not know. */
static void set_note(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 20];
    char path[4096], copy[] = "/tmp/worker-test-abi-XXXXXX", changed[64], text[1024];
    (void)snprintf(path, sizeof path, "%s/eights.so", folders[0]);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_int_equal(fclose(f), 0);
    struct wk_note_desc *d = NULL;
    static const char id[64] = "org.example.eights";
    for (size_t i = offsetof(struct wk_note_desc, id); i + sizeof id < n && !d; i += 4)
        if (memcmp(bytes + i, id, sizeof id) == 0)
            d = (struct wk_note_desc *)(void *)(bytes + i - offsetof(struct wk_note_desc, id));
    assert_non_null(d);
    assert_int_equal(d->claims_at, sizeof *d + 16);
    ((uint8_t *)d)[sizeof *d + 9] = 1;
    assert_non_null(mkdtemp(copy));
    (void)snprintf(changed, sizeof changed, "%s/note.so", copy);
    f = fopen(changed, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f) | chmod(changed, 0644), 0);
    assert_int_equal(try(changed, text), WK_UNSUPPORTED);
    if (!strstr(text, "byte 105 of its note is set")) fail_msg("%s", text);
    assert_int_equal(unlink(changed) | rmdir(copy), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest same[] = { cmocka_unit_test(all_the_same), cmocka_unit_test(longer_operations) };
    const struct CMUnitTest refused[] = { cmocka_unit_test(set_operations), cmocka_unit_test(set_structs),
                                          cmocka_unit_test(set_note) };
    const int first = argc > 1 && strcmp(argv[1], "refused") == 0 ? 2 : 1;
    if (argc <= first) return 2;
    n_folders = argc - first;
    folders = argv + first;
    (void)unsetenv("WORKER_PLUGIN_PATH");
    return first == 2 ? cmocka_run_group_tests(refused, NULL, NULL) : cmocka_run_group_tests(same, NULL, NULL);
}
