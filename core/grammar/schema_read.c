/* schema_read.c: a schema's text as a tree, and what every file of the compiler asks of the tree. See
 * schema_internal.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

enum { SHOWN_POINTER = 160 /* bytes of a pointer in a message */ };

/* ---- memory, steps, failures ---------------------------------------------------------------------------- */

void *sch_take(struct schema_ctx *c, size_t n, size_t size)
{
    size_t bytes;
    if (c->status) return NULL;
    if (__builtin_mul_overflow(n ? n : 1, size, &bytes) || bytes > SCHEMA_MAX_SCRATCH - c->taken) {
        sch_fail(c, WK_INVALID, NULL, NULL, "the schema needs more than %d MiB while it is compiled: make it simpler",
                 SCHEMA_MAX_SCRATCH >> 20);
        return NULL;
    }
    void *p = arena_take(c->arena, bytes, 1);
    if (!p) sch_fail(c, WK_NO_MEMORY, NULL, NULL, "no memory for %zu bytes", bytes);
    c->taken += bytes;
    return p;
}

bool sch_step(struct schema_ctx *c, uint64_t n)
{
    if (c->status) return false;
    return langs_step(c->langs, n) || sch_lang_failed(c, NULL, NULL);
}

bool sch_fail(struct schema_ctx *c, wk_status status, const struct js_value *at, const char *keyword,
              const char *format, ...)
{
    if (c->status) return false;
    char text[384], pointer[SHOWN_POINTER] = "#";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (at) js_pointer(at, pointer, sizeof pointer);
    if (keyword)
        c->status = wk_fail(c->err, status, "JSON schema, \"%s\" at %s: %s", keyword, pointer, text);
    else
        c->status = wk_fail(c->err, status, "JSON schema at %s: %s", pointer, text);
    return false;
}

bool sch_lang_failed(struct schema_ctx *c, const struct js_value *at, const char *keyword)
{
    char text[256] = "a text that is not UTF-8";
    const struct wk_err err = { text, sizeof text };
    const wk_status status = langs_status(c->langs, &err);
    return sch_fail(c, status ? status : WK_INVALID, at, keyword, "%s", text);
}

/* Appends one step of a pointer; a byte that a line of text cannot hold is shown as '?'. */
static size_t put_step(char *out, size_t cap, size_t n, const char *data, size_t len)
{
    if (n + 1 < cap) out[n++] = '/';
    for (size_t i = 0; i < len; i++) {
        const char ch = data[i];
        const bool escaped = ch == '~' || ch == '/';
        if (n + 2 >= cap) break;
        out[n++] = escaped ? '~' : (unsigned char)ch < 0x20 || ch == 0x7F ? '?' : ch;
        if (escaped) out[n++] = ch == '~' ? '0' : '1';
    }
    return n;
}

void js_pointer(const struct js_value *v, char *out, size_t cap)
{
    const struct js_value *path[JR_MAX_DEPTH + 1];
    size_t depth = 0, n = 0;
    for (; v->parent && depth < JR_MAX_DEPTH; v = v->parent) path[depth++] = v;
    out[n++] = '#';
    while (depth--) {
        const struct js_value *step = path[depth], *parent = step->parent;
        if (parent->kind == JR_ARRAY) {
            char digits[24];
            const int len = snprintf(digits, sizeof digits, "%zu", (size_t)(step - parent->item));
            n = put_step(out, cap, n, digits, (size_t)len);
        } else {
            const struct js_member *m =
                (const struct js_member *)(const void *)((const char *)step - offsetof(struct js_member, value));
            n = put_step(out, cap, n, m->key.data, m->key.len);
        }
    }
    /* A character is not cut in two. */
    if (n + 2 >= cap)
        while (n && ((unsigned char)out[n - 1] & 0x80)) n--;
    out[n] = '\0';
}

/* ---- reading -------------------------------------------------------------------------------------------- */

struct reading {
    struct schema_ctx *c;
    struct json_reader r;
    uint32_t values;
    struct js_member *open; /* of all levels that are being read */
    uint32_t n_open, cap_open;
};

static bool keep(struct schema_ctx *c, const struct json_reader *r, struct json_text *text)
{
    if (text->data >= r->begin && text->data < r->end) return true; /* part of the text, which outlives the tree */
    char *copy = sch_take(c, text->len, 1);
    if (!copy) return false;
    memcpy(copy, text->data, text->len);
    text->data = copy;
    return true;
}

static int by_key(const void *a, const void *b)
{
    const struct json_text *x = *(const struct json_text *const *)a, *y = *(const struct json_text *const *)b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int order = n ? memcmp(x->data, y->data, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* The key that these members have twice, or NULL. */
static const struct json_text *twice(struct reading *g, const struct js_member *m, uint32_t n)
{
    if (n < 2) return NULL;
    const struct json_text **keys = malloc(n * sizeof *keys);
    const struct json_text *found = NULL;
    if (!keys) {
        sch_fail(g->c, WK_NO_MEMORY, NULL, NULL, "no memory for %u keys", n);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) keys[i] = &m[i].key;
    qsort(keys, n, sizeof *keys, by_key);
    for (uint32_t i = 1; i < n && !found; i++)
        if (by_key(&keys[i - 1], &keys[i]) == 0) found = keys[i];
    free(keys);
    return found;
}

static bool read_value(struct reading *g, struct js_value *out);

/* Members or items of one level: gathered on the stack of all levels, then copied to their own place. */
static bool read_level(struct reading *g, struct js_value *out)
{
    const bool object = out->kind == JR_OBJECT;
    const uint32_t first = g->n_open;
    struct json_text key = { 0 };
    if (object ? !jr_object(&g->r) : !jr_array(&g->r)) return false;
    while (object ? jr_member(&g->r, &key) : jr_element(&g->r)) {
        struct js_member *grown = arena_grow(g->c->arena, g->open, g->n_open, &g->cap_open, sizeof *grown);
        if (!grown) return sch_fail(g->c, WK_NO_MEMORY, NULL, NULL, "no memory for %u members", g->n_open);
        g->open = grown;
        if (object && !keep(g->c, &g->r, &key)) return false;
        struct js_member m = { .key = key };
        const uint32_t at = g->n_open++;
        if (!read_value(g, &m.value)) return false;
        g->open[at] = m;
    }
    if (g->r.status || g->c->status) return false;
    out->n = g->n_open - first;
    const struct json_text *again = object && out->n ? twice(g, g->open + first, out->n) : NULL;
    if (again)
        return jr_fail(&g->r, WK_INVALID, "the key \"%.*s\" is there twice", (int)(again->len < 64 ? again->len : 64),
                       again->data);
    if (object) {
        struct js_member *m = sch_take(g->c, out->n, sizeof *m);
        if (!m) return false;
        if (out->n) memcpy(m, g->open + first, out->n * sizeof *m);
        out->member = m;
    } else {
        struct js_value *item = sch_take(g->c, out->n, sizeof *item);
        if (!item) return false;
        for (uint32_t i = 0; i < out->n; i++) item[i] = g->open[first + i].value;
        out->item = item;
    }
    g->n_open = first;
    return true;
}

/* C's stack holds a frame of each level, of which the reader allows JR_MAX_DEPTH. */
static bool read_value(struct reading *g, struct js_value *out)
{
    if (++g->values > SCHEMA_MAX_VALUES) return jr_fail(&g->r, WK_INVALID, "more than %d values", SCHEMA_MAX_VALUES);
    out->kind = (uint8_t)jr_peek(&g->r);
    out->order = g->values;
    switch (out->kind) {
    case JR_OBJECT:
    case JR_ARRAY: return read_level(g, out);
    case JR_STRING: return jr_string(&g->r, &out->text) && keep(g->c, &g->r, &out->text);
    case JR_BOOL: return jr_bool(&g->r, &out->truth);
    case JR_NULL: return jr_null(&g->r);
    default: return jr_raw(&g->r, &out->text);
    }
}

/* Children learn where their parent is once that has its last place. */
static void adopt(struct js_value *v)
{
    for (uint32_t i = 0; (v->kind == JR_OBJECT || v->kind == JR_ARRAY) && i < v->n; i++) {
        struct js_value *child = v->kind == JR_OBJECT ? &v->member[i].value : &v->item[i];
        child->parent = v;
        adopt(child);
    }
}

bool js_read(struct schema_ctx *c, const char *text, size_t len)
{
    struct reading g = { .c = c };
    if (len > SCHEMA_MAX_TEXT)
        return sch_fail(c, WK_INVALID, NULL, NULL, "%zu bytes of text, of which %d are allowed", len, SCHEMA_MAX_TEXT);
    struct js_value *root = sch_take(c, 1, sizeof *root);
    if (!root) return false;
    jr_open(&g.r, text, len, "JSON schema", "", c->err);
    const bool read = read_value(&g, root) && jr_finish(&g.r);
    if (!read && !c->status) c->status = g.r.status;
    jr_close(&g.r);
    if (!read) return false;
    adopt(root);
    c->root = root;
    return true;
}

/* ---- asking --------------------------------------------------------------------------------------------- */

bool text_equal(struct json_text a, struct json_text b)
{
    return a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
}

const struct js_value *js_find(const struct js_value *object, struct json_text key)
{
    if (!object || object->kind != JR_OBJECT) return NULL;
    for (uint32_t i = 0; i < object->n; i++)
        if (text_equal(object->member[i].key, key)) return &object->member[i].value;
    return NULL;
}

const struct js_value *js_get(const struct js_value *object, const char *key)
{
    return js_find(object, (struct json_text){ key, strlen(key) });
}

bool js_equal(const struct js_value *a, const struct js_value *b)
{
    if (a == b) return true;
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JR_BOOL: return a->truth == b->truth;
    case JR_STRING: return text_equal(a->text, b->text);
    case JR_NUMBER: return dec_compare(dec_of(a->text), dec_of(b->text)) == 0;
    case JR_ARRAY:
        for (uint32_t i = 0; a->n == b->n && i < a->n; i++)
            if (!js_equal(&a->item[i], &b->item[i])) return false;
        return a->n == b->n;
    case JR_OBJECT:
        for (uint32_t i = 0; a->n == b->n && i < a->n; i++) {
            const struct js_value *other = js_find(b, a->member[i].key);
            if (!other || !js_equal(&a->member[i].value, other)) return false;
        }
        return a->n == b->n;
    default: return true;
    }
}
