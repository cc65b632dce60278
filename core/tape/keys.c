/* keys.c: the plugin's table of metadata keys against the file. Every number that a plugin computes with has passed its
 * range here. */
#include <math.h>
#include <string.h>

#include "tape/internal.h"

enum { MAX_TEXT = 4096, MAX_CONTEXT = 1 << 27 };

struct check {
    const struct gguf *file;
    const struct wk_arch *arch;
    struct arena *scratch;
    struct messages *messages;
    char name[3 * TAPE_NAME]; /* full name of the key in hand */
};

/* The value of a number or flag; of an array, the one that all elements have. */
static bool number_at(struct check *c, const struct wk_key *k, const struct gguf_kv *kv, uint64_t i, double *out)
{
    char text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    wk_status status;
    if (k->type == WK_KEY_BOOL) {
        bool flag = false;
        status = gguf_bool_at(c->file, kv, i, &flag, &err);
        *out = flag ? 1.0 : 0.0;
    } else if (k->type == WK_KEY_U32) {
        int64_t n = 0;
        uint64_t u = 0;
        status = gguf_i64_at(c->file, kv, i, &n, NULL);
        *out = (double)n;
        if (status != WK_OK) { /* above 2^63, or no integer: the second call has the right text */
            status = gguf_u64_at(c->file, kv, i, &u, &err);
            *out = (double)u;
        }
    } else {
        status = gguf_f64_at(c->file, kv, i, out, &err);
    }
    if (status != WK_OK) messages_say(c->messages, WK_INVALID, "%s", text);
    return status == WK_OK;
}

static bool read_number(struct check *c, const struct wk_key *k, const struct gguf_kv *kv, double *out)
{
    if (!kv->count) {
        messages_say(c->messages, WK_INVALID, "%s: an empty array, must have a value", c->name);
        return false;
    }
    if (!number_at(c, k, kv, 0, out)) return false;
    for (uint64_t i = 1; i < kv->count; i++) {
        double other;
        if (!number_at(c, k, kv, i, &other)) return false;
        if (other == *out) continue;
        messages_say(c->messages, WK_UNSUPPORTED,
                     "%s: elements 0 and %llu are %.9g and %.9g, one value for all layers is served", c->name,
                     (unsigned long long)i, *out, other);
        return false;
    }
    if (k->type == WK_KEY_BOOL || (isfinite(*out) && *out >= k->min && *out <= k->max)) return true;
    messages_say(c->messages, WK_INVALID, "%s: %.9g, must be %.9g to %.9g", c->name, *out, k->min, k->max);
    return false;
}

static bool read_text(struct check *c, const struct gguf_kv *kv, const char **out)
{
    char text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    struct gguf_str s;
    if (gguf_str(c->file, kv, &s, &err) != WK_OK) {
        messages_say(c->messages, WK_INVALID, "%s", text);
        return false;
    }
    if (s.len > MAX_TEXT || memchr(s.data, '\0', (size_t)s.len)) {
        messages_say(c->messages, WK_INVALID, "%s: a text of %llu bytes, must be at most %d without a zero byte",
                     c->name, (unsigned long long)s.len, MAX_TEXT);
        return false;
    }
    char *copy = arena_take(c->scratch, (size_t)s.len + 1, 1);
    if (!copy) {
        messages_no_memory(c->messages);
        return false;
    }
    if (s.len) memcpy(copy, s.data, (size_t)s.len);
    *out = copy;
    return true;
}

static bool read_key(struct check *c, const struct wk_key *k, struct wk_key_value *v)
{
    *v = (struct wk_key_value){ .num = k->def, .text = "" };
    const struct gguf_kv *kv = gguf_find(c->file, c->name);
    if (!kv) {
        if (!(k->flags & WK_KEY_REQUIRED)) return true;
        messages_say(c->messages, WK_INVALID, "%s is missing", c->name);
        return false;
    }
    v->present = 1;
    switch (k->type) {
    case WK_KEY_U32:
    case WK_KEY_F32:
    case WK_KEY_BOOL: return read_number(c, k, kv, &v->num);
    case WK_KEY_TEXT: return read_text(c, kv, &v->text);
    default:
        messages_say(c->messages, WK_UNSUPPORTED, "%s: key type %u of a newer ABI", c->name, (unsigned)k->type);
        return false;
    }
}

static uint32_t meta_tensor(void *self, const char *full_name, uint32_t *rows, uint32_t *cols, uint32_t *slabs)
{
    const struct check *c = self;
    /* "blk.7.attn_q.weight" -> "blk.7.", "attn_q", ".weight", so that aliases work on the last parts here as they do in
     * record() */
    char scope[TAPE_NAME] = "", name[TAPE_NAME];
    const char *rest = full_name, *dot;
    if (strncmp(full_name, "blk.", 4) == 0 && (dot = strchr(full_name + 4, '.')) && dot + 1 - full_name < TAPE_NAME) {
        rest = dot + 1;
        memcpy(scope, full_name, (size_t)(rest - full_name));
    }
    const char *suffix = strrchr(rest, '.');
    int len = snprintf(name, sizeof name, "%.*s", suffix ? (int)(suffix - rest) : (int)strlen(rest), rest);
    if (len < 0 || len >= TAPE_NAME) return 0;
    const struct gguf_tensor *t = builder_find_tensor(c->file, c->arch, scope, name, suffix ? suffix : "");
    if (!t) return 0;
    uint32_t shape[3];
    (void)builder_tensor_shape(t, &shape[0], &shape[1],
                               &shape[2]); /* a shape that no record() can want reads as the largest numbers */
    if (rows) *rows = shape[0];
    if (cols) *cols = shape[1];
    if (slabs) *slabs = shape[2];
    return 1;
}

/* general.architecture as a terminated string of at most TAPE_NAME - 1 bytes that the plugin claims. */
static bool find_architecture(const struct wk_arch *arch, const struct gguf *file, char out[TAPE_NAME],
                              struct messages *m)
{
    char text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    struct gguf_str s;
    if (!kv) {
        messages_say(m, WK_INVALID, "general.architecture is missing");
        return false;
    }
    if (gguf_str(file, kv, &s, &err) != WK_OK) {
        messages_say(m, WK_INVALID, "%s", text);
        return false;
    }
    (void)snprintf(out, TAPE_NAME, "%.*s", s.len < TAPE_NAME ? (int)s.len : TAPE_NAME - 1, s.data);
    for (uint32_t i = 0; i < arch->n_names; i++)
        if (s.len == strlen(arch->names[i]) && memcmp(s.data, arch->names[i], (size_t)s.len) == 0) return true;
    messages_say(m, WK_UNSUPPORTED, "general.architecture is %s, which this plugin does not serve", out);
    return false;
}

bool keys_check(const struct wk_arch *arch, const struct gguf *file, struct arena *scratch, struct wk_meta *meta,
                struct messages *m)
{
    char architecture[TAPE_NAME];
    if (!find_architecture(arch, file, architecture, m)) return false;
    struct wk_key_value *values = arena_take(scratch, arch->n_keys ? arch->n_keys : 1, sizeof *values);
    struct check *c = arena_take(scratch, 1, sizeof *c);
    char *name = arena_take(scratch, sizeof architecture, 1);
    if (!values || !c || !name) {
        messages_no_memory(m);
        return false;
    }
    *c = (struct check){ .file = file, .arch = arch, .scratch = scratch, .messages = m };
    memcpy(name, architecture, sizeof architecture);
    bool ok = true;
    for (uint32_t i = 0; i < arch->n_keys; i++) {
        const struct wk_key *k = &arch->keys[i];
        const bool absolute = (k->flags & WK_KEY_ABSOLUTE) != 0;
        (void)snprintf(c->name, sizeof c->name, "%s%s%s", absolute ? "" : name, absolute ? "" : ".", k->name);
        ok = read_key(c, k, &values[i]) && ok;
    }
    *meta = (struct wk_meta){ .struct_size = sizeof *meta,
                              .n_values = arch->n_keys,
                              .architecture = name,
                              .value = values,
                              .self = c,
                              .tensor = meta_tensor };
    return ok;
}

bool keys_context(const struct gguf *file, const char *architecture, uint32_t asked, uint32_t *out, struct messages *m)
{
    *out = asked;
    if (asked && asked <= MAX_CONTEXT) return true;
    if (asked) {
        messages_say(m, WK_INVALID, "a context of %u positions was asked for, at most %d are served", (unsigned)asked,
                     MAX_CONTEXT);
        return false;
    }
    char name[2 * TAPE_NAME], text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    (void)snprintf(name, sizeof name, "%s.context_length", architecture);
    const struct gguf_kv *kv = gguf_find(file, name);
    uint64_t n = 0;
    if (!kv)
        messages_say(m, WK_INVALID, "%s is missing; ask for a context", name);
    else if (gguf_u64_at(file, kv, 0, &n, &err) != WK_OK)
        messages_say(m, WK_INVALID, "%s", text);
    else if (!n || n > MAX_CONTEXT)
        messages_say(m, WK_INVALID, "%s: %llu, must be 1 to %d", name, (unsigned long long)n, MAX_CONTEXT);
    *out = (uint32_t)n;
    return kv && n && n <= MAX_CONTEXT;
}
