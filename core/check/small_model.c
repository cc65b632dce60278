/* small_model.c: writes the file that an architecture asks for. Its metadata are plain (metadata.c); its tensors are
 * found by recording: a tensor that is missing is added, and the next recording asks for those behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "gguf/gguf.h"
#include "tape/tape.h"

/* PASSES: recordings, each of which finds one tensor more at least. VALUES: of all tensors. */
enum { TENSORS = 1024, PASSES = 512, ROWS = 64, CONTEXT = 128, ALIGNMENT = 32, MODEL_BYTES = 64 << 20 };

struct tensor {
    char name[64];
    uint32_t rows, cols, slabs;
};

struct small_model {
    struct check *check;
    struct tensor tensors[TENSORS];
    uint32_t n_tensors;
    unsigned char *bytes; /* [MODEL_BYTES] */
    size_t n;
    bool full;
};

/* ---- bytes --------------------------------------------------------------------------------------------- */

static void put(struct small_model *m, const void *from, size_t n)
{
    m->full = m->full || n > MODEL_BYTES - m->n;
    if (m->full) return;
    memcpy(m->bytes + m->n, from, n);
    m->n += n;
}
static void put_u32(struct small_model *m, uint32_t x) { put(m, &x, sizeof x); }
static void put_u64(struct small_model *m, uint64_t x) { put(m, &x, sizeof x); }
static void put_str(struct small_model *m, const char *s)
{
    put_u64(m, strlen(s));
    put(m, s, strlen(s));
}
static void pad(struct small_model *m)
{
    static const char zeros[ALIGNMENT];
    put(m, zeros, (ALIGNMENT - m->n % ALIGNMENT) % ALIGNMENT);
}

static uint64_t values_of(const struct tensor *t) { return (uint64_t)t->rows * t->cols * t->slabs; }
static uint64_t bytes_of(const struct tensor *t)
{
    return (values_of(t) * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

static void put_text_key(struct small_model *m, const char *key, const char *value)
{
    put_str(m, key);
    put_u32(m, GGUF_STRING);
    put_str(m, value);
}

static void put_u32_key(struct small_model *m, const char *key, uint32_t value)
{
    put_str(m, key);
    put_u32(m, GGUF_U32);
    put_u32(m, value);
}

static void put_key(struct small_model *m, const char *architecture, const struct wk_key *k,
                    const struct wk_key_value *v)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s", k->flags & WK_KEY_ABSOLUTE ? "" : architecture,
                   k->flags & WK_KEY_ABSOLUTE ? "" : ".", k->name);
    if (k->type == WK_KEY_TEXT) {
        put_text_key(m, name, v->text);
    } else if (k->type == WK_KEY_U32) {
        put_u32_key(m, name, (uint32_t)v->number);
    } else if (k->type == WK_KEY_BOOL) {
        const unsigned char byte = v->number != 0;
        put_str(m, name);
        put_u32(m, GGUF_BOOL);
        put(m, &byte, 1);
    } else {
        const float number = (float)v->number;
        put_str(m, name);
        put_u32(m, GGUF_F32);
        put(m, &number, sizeof number);
    }
}

/* Does the plugin's table have the key? */
static bool has_key(const struct wk_arch *a, const char *name)
{
    bool found = false;
    for (uint32_t i = 0; i < a->n_keys; i++) found = found || strcmp(a->keys[i].name, name) == 0;
    return found;
}

static void put_keys(struct small_model *m, const struct check_metadata *from)
{
    const struct wk_arch *a = from->arch;
    const char *architecture = a->names[from->which];
    char context[128];
    uint64_t n = 1;
    (void)snprintf(context, sizeof context, "%s.context_length", architecture);
    for (uint32_t i = 0; i < a->n_keys; i++) n += wk_meta_has(from->meta, i) != 0;
    put_u64(m, n + !has_key(a, "context_length"));
    put_text_key(m, "general.architecture", architecture);
    if (!has_key(a, "context_length")) put_u32_key(m, context, CONTEXT);
    for (uint32_t i = 0; i < a->n_keys; i++)
        if (wk_meta_has(from->meta, i)) put_key(m, architecture, &a->keys[i], wk_meta_value(from->meta, i));
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* Rows of matrices lie around 0, vectors around 1, as norms' weights do. */
static void put_values(struct small_model *m, const struct tensor *t, struct check_draw *draw)
{
    const float middle = t->rows == 1 ? 1.0f : 0.0f, width = t->rows == 1 ? 0.1f : 0.2f;
    for (uint64_t i = 0; i < values_of(t) && !m->full; i++) {
        const float x = middle + width * ((float)check_draw(draw, 1u << 20) / (float)(1u << 19) - 1.0f);
        put(m, &x, sizeof x);
    }
    pad(m);
}

static void put_tensors(struct small_model *m)
{
    struct check_draw draw = { 0x9e3779b97f4a7c15u };
    uint64_t offset = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        const uint64_t ne[3] = { t->cols, t->rows, t->slabs };
        const uint32_t dims = t->slabs > 1 ? 3 : t->rows > 1 ? 2 : 1;
        put_str(m, t->name);
        put_u32(m, dims);
        put(m, ne, dims * sizeof *ne);
        put_u32(m, 0); /* F32 */
        put_u64(m, offset);
        offset += bytes_of(t);
    }
    pad(m);
    for (uint32_t i = 0; i < m->n_tensors; i++) put_values(m, &m->tensors[i], &draw);
}

static void on_missing(void *user, const char *name, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    struct small_model *m = user;
    struct tensor *t = &m->tensors[m->n_tensors];
    if (m->n_tensors == TENSORS || strlen(name) >= sizeof t->name || !rows || !cols || !slabs) return;
    for (uint32_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return;
    *t = (struct tensor){ .rows = rows, .cols = cols, .slabs = slabs };
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    if (values_of(t) < MODEL_BYTES / sizeof(float)) m->n_tensors++;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static const struct wk_type_cpu *find_type(void *user, uint32_t ggml_type)
{
    const struct small_model *m = user;
    return plugin_find_type(m->check->options->plugins, ggml_type, NULL);
}
static void describe_types(void *user, char *text, size_t cap)
{
    const struct small_model *m = user;
    (void)plugin_describe(m->check->options->plugins, WK_KIND_QUANT, text, cap);
}

/* The file as far as it is known; NULL: it does not fit, or is none. */
static struct gguf *write_file(struct small_model *m, const struct check_metadata *keys, const struct wk_err *err)
{
    struct gguf *file = NULL;
    m->n = 0;
    m->full = false;
    put(m, "GGUF", 4);
    put_u32(m, 3);
    put_u64(m, m->n_tensors);
    put_keys(m, keys);
    put_tensors(m);
    if (m->full)
        (void)wk_fail(err, WK_INVALID, "its tensors are larger than %d bytes", MODEL_BYTES);
    else
        (void)gguf_open_memory(m->bytes, m->n, "a small model", &file, err);
    return file;
}

/* One recording: WK_OK, or a refusal, which may have found tensors. */
static wk_status try_file(struct small_model *m, const struct gguf *file, const struct wk_err *err)
{
    struct tape_program *p = NULL;
    const struct tape_options o = { .context = CONTEXT,
                                    .fuse = FUSE_ALL,
                                    .host = plugin_host(m->check->entry.plugin),
                                    .find_type = find_type,
                                    .describe_types = describe_types,
                                    .missing = on_missing,
                                    .user = m };
    const wk_status status = tape_record(m->check->arch, file, &o, &p, err);
    tape_free(p);
    return status;
}

/* Begins with a table of tokens, whose rows tell open() the vocabulary, or without one. */
static struct gguf *grow_file(struct small_model *m, const struct check_metadata *keys, bool tokens, uint32_t width,
                              const struct wk_err *err)
{
    m->n_tensors = 0;
    if (tokens) on_missing(m, "token_embd.weight", ROWS, width, 1);
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const uint32_t before = m->n_tensors;
        struct gguf *file = write_file(m, keys, err);
        if (!file) return NULL;
        if (try_file(m, file, err) == WK_OK) return file;
        gguf_close(file);
        if (m->n_tensors == before) return NULL;
    }
    return NULL;
}

/* With these metadata, if they will do. */
static struct gguf *make_with(struct small_model *m, uint32_t which, enum metadata_way way, const struct wk_err *err)
{
    struct check_metadata keys;
    const struct wk_arch *a = m->check->arch;
    uint32_t width = ROWS;
    if (!metadata_make(&keys, a, plugin_host(m->check->entry.plugin), UINT32_MAX, way, which, 0)) {
        (void)wk_fail(err, WK_NO_MEMORY, "out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < a->n_keys; i++)
        if (strcmp(a->keys[i].name, "embedding_length") == 0) width = wk_meta_u32(keys.meta, i);
    struct gguf *file = grow_file(m, &keys, true, width, err);
    if (!file) file = grow_file(m, &keys, false, width, err);
    metadata_free(&keys);
    return file;
}

struct gguf *small_model_make(struct check *c, uint32_t which, char text[256])
{
    const struct wk_err err = { text, 256 };
    struct small_model *m = calloc(1, sizeof *m);
    text[0] = '\0';
    if (!m || !(m->bytes = malloc(MODEL_BYTES))) {
        (void)wk_fail(&err, WK_NO_MEMORY, "out of memory");
        return NULL;
    }
    m->check = c;
    if (!c->options->plugins || !plugin_find_type(c->options->plugins, 0, NULL)) {
        (void)wk_fail(&err, WK_UNSUPPORTED, "no plugin serves F32, the type of its tensors");
        return NULL;
    }
    struct gguf *file = make_with(m, which, METADATA_PLAIN, &err);
    return file ? file : make_with(m, which, METADATA_WHOLE, &err);
}
