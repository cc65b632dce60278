/* gguf_build.c: two lists, keys and tensors, written out as GGUF v3 with alignment 32. */
#include "gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 32, NAME = 128 };

struct bytes {
    unsigned char *at;
    size_t n, cap;
};
struct key {
    char name[NAME];
    struct bytes value; /* type word and payload */
};
struct tensor {
    char name[NAME];
    uint32_t ggml_type, n_dims;
    uint64_t ne[4];
    struct bytes data;
};
struct gguf_build {
    struct key *keys;
    struct tensor *tensors;
    size_t n_keys, n_tensors, cap_keys, cap_tensors;
    struct bytes file;
};

static void stop(const char *why)
{
    fprintf(stderr, "gguf_build: %s\n", why);
    abort();
}

static void put(struct bytes *b, const void *from, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->at = realloc(b->at, b->cap);
        if (!b->at) stop("out of memory");
    }
    if (from && n)
        memcpy(b->at + b->n, from, n);
    else if (n)
        memset(b->at + b->n, 0, n);
    b->n += n;
}
static void put_u32(struct bytes *b, uint32_t x) { put(b, &x, sizeof x); }
static void put_u64(struct bytes *b, uint64_t x) { put(b, &x, sizeof x); }
static void put_str(struct bytes *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}
static void pad(struct bytes *b) { put(b, NULL, (ALIGNMENT - b->n % ALIGNMENT) % ALIGNMENT); }

/* Room for one more zeroed item. */
static void *grow(void *items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap) return items;
    size_t more = *cap ? *cap * 2 : 64;
    items = realloc(items, more * size);
    if (!items) stop("out of memory");
    memset((char *)items + n * size, 0, (more - n) * size);
    *cap = more;
    return items;
}

static void set_name(char out[NAME], const char *name)
{
    if (snprintf(out, NAME, "%s", name) >= NAME) stop("name too long");
}

struct gguf_build *gguf_build_new(const char *architecture)
{
    struct gguf_build *g = calloc(1, sizeof *g);
    if (!g) stop("out of memory");
    if (architecture) gguf_build_str(g, "general.architecture", architecture);
    return g;
}

void gguf_build_free(struct gguf_build *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_keys; i++) free(g->keys[i].value.at);
    for (size_t i = 0; i < g->n_tensors; i++) free(g->tensors[i].data.at);
    free(g->keys);
    free(g->tensors);
    free(g->file.at);
    free(g);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */

static struct bytes *key_value(struct gguf_build *g, const char *key, enum gguf_type type)
{
    size_t i = 0;
    while (i < g->n_keys && strcmp(g->keys[i].name, key) != 0) i++;
    g->keys = grow(g->keys, g->n_keys, &g->cap_keys, sizeof *g->keys);
    if (i == g->n_keys) set_name(g->keys[g->n_keys++].name, key);
    g->keys[i].value.n = 0;
    put_u32(&g->keys[i].value, (uint32_t)type);
    return &g->keys[i].value;
}

void gguf_build_u32(struct gguf_build *g, const char *key, uint32_t value)
{
    put_u32(key_value(g, key, GGUF_U32), value);
}
void gguf_build_i64(struct gguf_build *g, const char *key, int64_t value)
{
    put(key_value(g, key, GGUF_I64), &value, sizeof value);
}
void gguf_build_f32(struct gguf_build *g, const char *key, float value)
{
    put(key_value(g, key, GGUF_F32), &value, sizeof value);
}
void gguf_build_str(struct gguf_build *g, const char *key, const char *value)
{
    put_str(key_value(g, key, GGUF_STRING), value);
}
void gguf_build_bool(struct gguf_build *g, const char *key, int value)
{
    const unsigned char byte = value != 0;
    put(key_value(g, key, GGUF_BOOL), &byte, 1);
}

static struct bytes *array_head(struct gguf_build *g, const char *key, enum gguf_type element, uint64_t count)
{
    struct bytes *b = key_value(g, key, GGUF_ARRAY);
    put_u32(b, (uint32_t)element);
    put_u64(b, count);
    return b;
}
void gguf_build_array(struct gguf_build *g, const char *key, enum gguf_type element, uint64_t count,
                      const void *elements)
{
    put(array_head(g, key, element, count), elements, (size_t)count * gguf_type_size(element));
}
void gguf_build_str_array(struct gguf_build *g, const char *key, const char *const *text, uint64_t count)
{
    struct bytes *b = array_head(g, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) put_str(b, text[i]);
}

static void copy_strings(struct gguf_build *g, const char *name, const struct gguf *from, const struct gguf_kv *kv)
{
    struct gguf_strings it;
    struct gguf_str s;
    struct bytes *b = array_head(g, name, GGUF_STRING, kv->count);
    if (gguf_strings_begin(from, kv, &it, NULL) != WK_OK) stop("an array of strings cannot be read");
    while (gguf_strings_next(&it, &s)) {
        put_u64(b, s.len);
        put(b, s.data, (size_t)s.len);
    }
}
static void copy_scalar(struct gguf_build *g, const char *name, const struct gguf *from, const struct gguf_kv *kv)
{
    double f = 0;
    int64_t i = 0;
    bool flag = false;
    struct gguf_str s;
    if (kv->type == GGUF_STRING && gguf_str(from, kv, &s, NULL) == WK_OK) {
        struct bytes *b = key_value(g, name, GGUF_STRING);
        put_u64(b, s.len);
        put(b, s.data, (size_t)s.len);
    } else if (kv->type == GGUF_BOOL && gguf_bool_at(from, kv, 0, &flag, NULL) == WK_OK) {
        gguf_build_bool(g, name, flag);
    } else if (gguf_i64_at(from, kv, 0, &i, NULL) == WK_OK) {
        gguf_build_i64(g, name, i);
    } else if (gguf_f64_at(from, kv, 0, &f, NULL) == WK_OK) {
        gguf_build_f32(g, name, (float)f);
    } else {
        stop("a key cannot be read");
    }
}
void gguf_build_copy_keys(struct gguf_build *g, const struct gguf *from)
{
    for (uint64_t i = 0; i < gguf_kv_count(from); i++) {
        const struct gguf_kv *kv = gguf_kv_at(from, i);
        char name[NAME];
        if (snprintf(name, sizeof name, "%.*s", (int)kv->key.len, kv->key.data) >= NAME) stop("name too long");
        if (strcmp(name, "general.architecture") == 0) continue;
        if (kv->type != GGUF_ARRAY)
            copy_scalar(g, name, from, kv);
        else if (kv->element_type == GGUF_STRING)
            copy_strings(g, name, from, kv);
        else
            gguf_build_array(g, name, kv->element_type, kv->count, gguf_array_bytes(from, kv, kv->element_type, NULL));
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static void put_tensor(struct gguf_build *g, const char *name, uint32_t ggml_type, uint32_t n_dims, const uint64_t *ne,
                       const void *data, size_t bytes)
{
    size_t i = 0;
    while (i < g->n_tensors && strcmp(g->tensors[i].name, name) != 0) i++;
    g->tensors = grow(g->tensors, g->n_tensors, &g->cap_tensors, sizeof *g->tensors);
    if (i == g->n_tensors) set_name(g->tensors[g->n_tensors++].name, name);
    struct tensor *t = &g->tensors[i];
    t->ggml_type = ggml_type;
    t->n_dims = n_dims;
    for (uint32_t d = 0; d < 4; d++) t->ne[d] = d < n_dims ? ne[d] : 1;
    t->data.n = 0;
    put(&t->data, data, bytes);
}

void gguf_build_tensor(struct gguf_build *g, const char *name, uint32_t ggml_type, uint32_t rows, uint32_t cols,
                       uint32_t slabs, const void *data, size_t bytes)
{
    const uint64_t ne[3] = { cols, rows, slabs };
    put_tensor(g, name, ggml_type, slabs > 1 ? 3 : rows > 1 ? 2 : 1, ne, data, bytes);
}
void gguf_build_floats(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols, uint32_t slabs,
                       const float *data)
{
    gguf_build_tensor(g, name, 0, rows, cols, slabs, data, (size_t)rows * cols * slabs * sizeof *data);
}
void gguf_build_noise(struct gguf_build *g, uint32_t seed, const char *name, uint32_t rows, uint32_t cols, float scale)
{
    float *v = calloc((size_t)rows * cols, sizeof *v);
    if (!v) stop("out of memory");
    for (uint32_t i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (rows == 1 ? 1.0f : (float)(seed >> 8) / 8388608.0f - 1.0f) * scale;
    }
    gguf_build_floats(g, name, rows, cols, 1, v);
    free(v);
}
void gguf_build_dims(struct gguf_build *g, const char *name, uint32_t ggml_type, uint32_t n_dims, const uint64_t *ne,
                     size_t bytes)
{
    put_tensor(g, name, ggml_type, n_dims, ne, NULL, bytes);
}

void gguf_build_drop(struct gguf_build *g, const char *name)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        if (strcmp(g->keys[i].name, name) != 0) continue;
        free(g->keys[i].value.at);
        memmove(&g->keys[i], &g->keys[i + 1], (--g->n_keys - i) * sizeof *g->keys);
        memset(&g->keys[g->n_keys], 0, sizeof *g->keys);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        if (strcmp(g->tensors[i].name, name) != 0) continue;
        free(g->tensors[i].data.at);
        memmove(&g->tensors[i], &g->tensors[i + 1], (--g->n_tensors - i) * sizeof *g->tensors);
        memset(&g->tensors[g->n_tensors], 0, sizeof *g->tensors);
    }
}

/* ---- the file ------------------------------------------------------------------------------------------ */

const void *gguf_build_bytes(struct gguf_build *g, size_t *size)
{
    struct bytes *f = &g->file;
    f->n = 0;
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, g->n_tensors);
    put_u64(f, g->n_keys);
    for (size_t i = 0; i < g->n_keys; i++) {
        put_str(f, g->keys[i].name);
        put(f, g->keys[i].value.at, g->keys[i].value.n);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct tensor *t = &g->tensors[i];
        put_str(f, t->name);
        put_u32(f, t->n_dims);
        put(f, t->ne, t->n_dims * sizeof *t->ne);
        put_u32(f, t->ggml_type);
        put_u64(f, offset);
        offset += (t->data.n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    pad(f);
    for (size_t i = 0; i < g->n_tensors; i++) {
        if (g->tensors[i].data.n) put(f, g->tensors[i].data.at, g->tensors[i].data.n);
        pad(f);
    }
    *size = f->n;
    return f->at;
}

struct gguf *gguf_build_open(struct gguf_build *g)
{
    char text[300] = "";
    const struct wk_err err = { text, sizeof text };
    size_t size;
    const void *bytes = gguf_build_bytes(g, &size);
    struct gguf *file;
    if (gguf_open_memory(bytes, size, "built", &file, &err) != WK_OK) stop(text);
    return file;
}
