/* arch_test.c: see arch_test.h. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <worker/plugin.h>

#include <cmocka.h>

/* ---- files --------------------------------------------------------------------------------------------- */

static void put_key(struct gguf_build *g, const char *architecture, const struct arch_key *key)
{
    char full[128];
    (void)snprintf(full, sizeof full, "%s.%s", architecture, key->name);
    if (!key->whole)
        gguf_build_f32(g, full, (float)key->value);
    else if (key->value < 0)
        gguf_build_i64(g, full, (int64_t)key->value);
    else
        gguf_build_u32(g, full, (uint32_t)key->value);
}

void arch_put_keys(struct gguf_build *g, const char *architecture, const struct arch_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) put_key(g, architecture, &keys[i]);
}

void arch_put_tensors(struct gguf_build *g, const char *prefix, const struct arch_shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char full[64];
        (void)snprintf(full, sizeof full, "%s%s", prefix, shapes[i].name);
        gguf_build_floats(g, full, shapes[i].rows, shapes[i].cols, shapes[i].slabs, NULL);
    }
}

void arch_put_layer(struct gguf_build *g, uint32_t layer, const struct arch_shape *shapes, size_t n)
{
    char prefix[24];
    (void)snprintf(prefix, sizeof prefix, "blk.%u.", (unsigned)layer);
    arch_put_tensors(g, prefix, shapes, n);
}

/* ---- recordings ---------------------------------------------------------------------------------------- */

const struct wk_arch *arch_of(const struct arch_test *t)
{
    static const struct wk_arch *arch; /* a program tests one plugin */
    if (arch) return arch;
    char path[4096];
    const char *folder = getenv("WORKER_PLUGIN_PATH");
    (void)snprintf(path, sizeof path, "%s/%s.so", folder ? folder : ".", t->plugin);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct wk_plugin *plugin = module ? dlsym(module, WK_PLUGIN_SYMBOL) : NULL;
    if (!plugin || plugin->kind != WK_KIND_ARCH || !plugin->arch) fail_msg("%s cannot be used: %s", path, dlerror());
    arch = plugin->arch;
    return arch;
}

const char *arch_name(const struct arch_test *t, uint32_t file)
{
    return t->architecture ? t->architecture(file) : t->plugin;
}

struct arch_opened arch_record_for(const struct arch_test *t, struct gguf_build *g, uint32_t context)
{
    struct tape_options o = test_options();
    struct arch_opened r = { .build = g };
    o.context = context;
    r.file = gguf_build_open(g);
    r.p = test_record(arch_of(t), r.file, &o);
    test_check_program(r.p);
    return r;
}

void arch_close(struct arch_opened *r)
{
    tape_free(r->p);
    gguf_close(r->file);
    gguf_build_free(r->build);
}

const struct tape_op *arch_op(const struct tape_program *p, const char *value)
{
    const uint32_t v = tape_find_value(p, value);
    if (v == TAPE_NONE) fail_msg("no value %s", value);
    return &p->ops[p->values[v].op];
}

static const char *tensor_of(const struct tape_program *p, const char *value, uint32_t i)
{
    const uint32_t t = arch_op(p, value)->t[i];
    return t == TAPE_NONE ? "" : p->tensors[t].name;
}
const char *arch_weight(const struct tape_program *p, const char *value) { return tensor_of(p, value, 0); }
const char *arch_bias(const struct tape_program *p, const char *value) { return tensor_of(p, value, 1); }

void arch_near(double x, double expected)
{
    if (fabs(x - expected) > 1e-6 * fabs(expected)) fail_msg("%.12g, expected %.12g", x, expected);
}

/* ---- attempts ------------------------------------------------------------------------------------------ */

char arch_text[8192];
static unsigned n_cases, n_refused;

wk_status arch_attempt(const struct arch_test *t, struct gguf_build *g, struct gguf_accepted *accepted)
{
    const struct wk_err err = { arch_text, sizeof arch_text };
    struct tape_options o = test_options();
    o.accepted = accepted;
    struct gguf *file = gguf_build_open(g);
    struct tape_program *p;
    arch_text[0] = '\0';
    const wk_status status = tape_record(arch_of(t), file, &o, &p, &err);
    n_cases++;
    if (status == WK_OK) {
        test_check_program(p);
    } else {
        n_refused++;
        assert_null(p);
        assert_true(status == WK_INVALID || status == WK_UNSUPPORTED);
        assert_true(strlen(arch_text) > 10);
    }
    tape_free(p);
    gguf_close(file);
    return status;
}

void arch_must_refuse(const struct arch_test *t, struct gguf_build *g, const char *about)
{
    if (arch_attempt(t, g, NULL) == WK_OK) fail_msg("accepted: %s", about);
    if (!strstr(arch_text, about)) fail_msg("the text does not name %s: %s", about, arch_text);
}

void arch_rope_scaling(const struct arch_test *t, uint32_t file, const char *word)
{
    char key[128], about[128];
    struct gguf_build *g = t->make(file);
    (void)snprintf(key, sizeof key, "%s.rope.scaling.type", arch_name(t, file));
    (void)snprintf(about, sizeof about, "rope.scaling.type is %s; none alone is served", word);
    gguf_build_str(g, key, word);
    arch_must_refuse(t, g, about);
    gguf_build_free(g);
}

static void must_be(const struct arch_test *t, struct gguf_build *g, const char *about)
{
    if (about)
        arch_must_refuse(t, g, about);
    else if (arch_attempt(t, g, NULL))
        fail_msg("%s", arch_text);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void try_number(const struct arch_test *t, uint32_t file, const struct wk_key *k, const char *key, double x)
{
    struct gguf_build *g = t->make(file);
    if (k->type == WK_KEY_U32 && isfinite(x))
        gguf_build_i64(g, key, (int64_t)x);
    else
        gguf_build_f32(g, key, (float)x);
    const double stored = k->type == WK_KEY_F32 ? (double)(float)x : x;
    if (!isfinite(stored) || stored < k->min || stored > k->max)
        arch_must_refuse(t, g, key);
    else
        (void)arch_attempt(t, g, NULL);
    gguf_build_free(g);
}

static void try_other_types(const struct arch_test *t, uint32_t file, const struct wk_key *k, const char *key)
{
    const uint32_t unequal[T_L] = { 4, 4, 2 };
    const float unequal_floats[T_L] = { 1.0f, 1.0f, 0.5f };
    struct gguf_build *g = t->make(file);
    if (k->type == WK_KEY_TEXT)
        gguf_build_u32(g, key, 1);
    else
        gguf_build_str(g, key, "4");
    arch_must_refuse(t, g, key);
    if (k->type == WK_KEY_BOOL) {
        gguf_build_u32(g, key, 1);
        arch_must_refuse(t, g, key);
    }
    gguf_build_array(g, key, GGUF_U32, 0, unequal);
    arch_must_refuse(t, g, key);
    if (k->type == WK_KEY_F32)
        gguf_build_array(g, key, GGUF_F32, T_L, unequal_floats);
    else
        gguf_build_array(g, key, GGUF_U32, T_L, unequal);
    arch_must_refuse(t, g, key);
    if (k->type == WK_KEY_U32) {
        gguf_build_f32(g, key, 4.0f);
        arch_must_refuse(t, g, key);
        gguf_build_bool(g, key, 1);
        arch_must_refuse(t, g, key);
    }
    gguf_build_free(g);
}

/* Does the file's architecture have the key? */
static bool has_key(const struct arch_test *t, uint32_t file, const struct wk_key *k)
{
    uint32_t which = 0;
    while (strcmp(arch_of(t)->names[which], arch_name(t, file)) != 0) which++;
    return !(k->flags & WK_KEY_NOT_FOR(which));
}

/* Is the row another architecture's, and the file's has one of the same name? */
static bool has_another(const struct arch_test *t, uint32_t file, const struct wk_key *k)
{
    const struct wk_arch *arch = arch_of(t);
    if (has_key(t, file, k)) return false;
    for (uint32_t i = 0; i < arch->n_keys; i++)
        if (strcmp(arch->keys[i].name, k->name) == 0 && has_key(t, file, &arch->keys[i])) return true;
    return false;
}

static void try_absent(const struct arch_test *t, uint32_t file, const struct wk_key *k, const char *key)
{
    struct gguf_build *g = t->make(file);
    gguf_build_drop(g, key);
    if (k->flags & WK_KEY_REQUIRED && has_key(t, file, k)) {
        arch_must_refuse(t, g, key);
        assert_non_null(strstr(arch_text, "is missing"));
    } else {
        (void)arch_attempt(t, g, NULL);
    }
    gguf_build_free(g);
}

static void try_key(const struct arch_test *t, uint32_t file, const struct wk_key *k)
{
    char key[128];
    (void)snprintf(key, sizeof key, "%s.%s", arch_name(t, file), k->name);
    try_absent(t, file, k, key);
    try_other_types(t, file, k, key);
    if (k->type == WK_KEY_TEXT || k->type == WK_KEY_BOOL) return;
    const double step = k->type == WK_KEY_U32 ? 1 : 0.01;
    const double numbers[] = { 0,
                               1,
                               k->min - step,
                               k->min,
                               k->max,
                               k->max * 1.001 + step,
                               2147483648.0,
                               -1,
                               (double)NAN,
                               (double)INFINITY,
                               (double)-INFINITY,
                               4294967296.0 };
    for (size_t n = 0; n < ARCH_COUNT(numbers); n++) try_number(t, file, k, key, numbers[n]);
}

void arch_every_key(void **state)
{
    const struct arch_test *t = *state;
    const struct wk_arch *arch = arch_of(t);
    n_cases = n_refused = 0;
    for (uint32_t file = 0; file < t->n_files; file++)
        for (uint32_t i = 0; i < arch->n_keys; i++) {
            const struct wk_key *k = &arch->keys[i];
            if (k->flags & WK_KEY_VARIES) continue;                     /* the plugin's own tests have these */
            if (k->type != WK_KEY_TEXT && !(k->min < k->max)) continue; /* arch_converter_keys */
            if (has_another(t, file, k)) continue;
            try_key(t, file, k);
        }
    print_message("%u cases, %u refused\n", n_cases, n_refused);
}

void arch_architectures(void **state)
{
    const struct arch_test *t = *state;
    struct gguf_build *g = t->make(0);
    gguf_build_str(g, "general.architecture", "no-such");
    arch_must_refuse(t, g, "general.architecture is no-such, which this plugin does not serve");
    gguf_build_u32(g, "general.architecture", 4);
    arch_must_refuse(t, g, "general.architecture");
    gguf_build_drop(g, "general.architecture");
    arch_must_refuse(t, g, "general.architecture is missing");
    gguf_build_free(g);
}

void arch_relations(const struct arch_test *t, const struct arch_relation *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct gguf_build *g = t->make(rows[i].file);
        put_key(g, arch_name(t, rows[i].file), &rows[i].key);
        arch_must_refuse(t, g, rows[i].about);
        gguf_build_free(g);
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static void break_tensor(const struct arch_test *t, uint32_t file, const struct gguf_tensor *x)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%.*s", (int)x->name.len, x->name.data);
    const uint32_t cols = (uint32_t)x->ne[0], rows = (uint32_t)x->ne[1], slabs = (uint32_t)x->ne[2];
    struct gguf_build *g = t->make(file);
    gguf_build_drop(g, name);
    must_be(t, g, t->without(file, name));
    if (rows != cols) {
        gguf_build_floats(g, name, cols, rows, slabs, NULL);
        arch_must_refuse(t, g, name);
    }
    gguf_build_floats(g, name, rows + 1, cols, slabs, NULL);
    must_be(t, g, t->longer(file, name));
    gguf_build_floats(g, name, rows, cols + 1, slabs, NULL);
    arch_must_refuse(t, g, name);
    gguf_build_floats(g, name, rows, cols, slabs + 1, NULL);
    arch_must_refuse(t, g, name);
    gguf_build_tensor(g, name, 77, rows, cols, slabs, NULL, 64);
    arch_must_refuse(t, g, name);
    const size_t bytes = (size_t)rows * cols * slabs * sizeof(float);
    if (bytes >= 128) { /* half the bytes are not there */
        gguf_build_tensor(g, name, 0, rows, cols, slabs, NULL, bytes / 2);
        arch_must_refuse(t, g, name);
    }
    gguf_build_free(g);
}

void arch_every_tensor(void **state)
{
    const struct arch_test *t = *state;
    n_cases = n_refused = 0;
    for (uint32_t file = 0; file < t->n_files; file++) {
        struct gguf_build *g = t->make(file);
        struct gguf *whole = gguf_build_open(g);
        for (uint64_t i = 0; i < gguf_tensor_count(whole); i++) break_tensor(t, file, gguf_tensor_at(whole, i));
        gguf_close(whole);
        gguf_build_free(g);
    }
    print_message("%u cases, %u refused\n", n_cases, n_refused);
}

void arch_surplus_tensors(const struct arch_test *t, const struct arch_surplus *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct gguf_build *g = t->make(rows[i].file);
        gguf_build_floats(g, rows[i].tensor, 1, T_E, 1, NULL);
        arch_must_refuse(t, g, rows[i].tensor);
        gguf_build_free(g);
    }
}

void arch_nextn(const struct arch_test *t, uint32_t file)
{
    static const char *const tensors[] = { "blk.3.attn_norm.weight", "blk.3.nextn.eh_proj.weight",
                                           "blk.4.nextn.shared_head_norm.weight" };
    const struct arch_key blocks = { "block_count", T_L + 2, true }, two = { "nextn_predict_layers", 2, true },
                          one = { "nextn_predict_layers", 1, true }, all = { "nextn_predict_layers", T_L + 2, true };
    const char *name = arch_name(t, file);
    struct arch_opened plain = arch_record(t, t->make(file));
    struct gguf_build *g = t->make(file);
    put_key(g, name, &blocks);
    for (size_t i = 0; i < ARCH_COUNT(tensors); i++) gguf_build_floats(g, tensors[i], 1, 7, 1, NULL);
    arch_must_refuse(t, g, "blk.3.attn_norm.weight: the file has 1 rows");
    put_key(g, name, &one);
    arch_must_refuse(t, g, "blk.3.attn_norm.weight: the file has 1 rows");
    put_key(g, name, &all);
    arch_must_refuse(t, g, "nextn_predict_layers is 5, must be less than block_count, 5");
    put_key(g, name, &two);
    gguf_build_floats(g, "blk.5.nextn.eh_proj.weight", 1, 7, 1, NULL);
    arch_must_refuse(t, g, "blk.5.nextn.eh_proj.weight is in the file, nothing reads it");
    gguf_build_drop(g, "blk.5.nextn.eh_proj.weight");
    struct arch_opened r = arch_record(t, g);
    assert_true(r.p->n_layers == T_L && r.p->n_ops == plain.p->n_ops && r.p->n_tensors == plain.p->n_tensors);
    for (uint32_t i = 0; i < r.p->n_tensors; i++) assert_string_equal(r.p->tensors[i].name, plain.p->tensors[i].name);
    arch_close(&r);
    arch_close(&plain);
}
