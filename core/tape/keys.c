/* keys.c: the plugin's table of metadata keys against the file. Every number that a plugin computes with has passed its
 * range here. */
#include <string.h>

#include "tape/internal.h"

#include "plugin/no_host.h"

enum { MAX_TEXT = 4096, MAX_CONTEXT = 1 << 27 };

struct check {
    const struct gguf *file;
    const struct wk_arch *arch;
    struct arena *scratch;
    struct messages *messages;
    struct gguf_accepted *accepted;
    const char *architecture;
    uint32_t which;           /* it is arch->names[which] */
    bool pooled;              /* pooling_type is the host's */
    char name[3 * TAPE_NAME]; /* full name of the key in hand */
};

/* Element i of a number or flag, a flag as 0 or 1. */
static bool number_at(struct check *c, const struct wk_key *k, const struct gguf_kv *kv, uint64_t i, double *out)
{
    char text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    wk_status status;
    if (k->type == WK_KEY_BOOL || ((k->flags & WK_KEY_VARIES) && kv->element_type == GGUF_BOOL)) {
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

static struct gguf_str name_of(const struct check *c) { return (struct gguf_str){ c->name, strlen(c->name) }; }

#define NO_ELEMENT UINT64_MAX
/* Element i, or NO_ELEMENT: the one value. Infinity is in no range but one that ends there, NaN in none. A key of one
 * value that is served: a user may have accepted another. */
static bool in_range(struct check *c, const struct wk_key *k, uint64_t i, double value)
{
    if (value >= k->min && value <= k->max) return true;
    if (k->min < k->max) {
        char element[40] = "";
        if (i != NO_ELEMENT) (void)snprintf(element, sizeof element, "element %llu is ", (unsigned long long)i);
        messages_say(c->messages, WK_INVALID, "%s: %s%.9g, must be %.9g to %.9g", c->name, element, value, k->min,
                     k->max);
        return false;
    }
    if (gguf_accepts(c->accepted, name_of(c))) return false;
    char is[32], served[32];
    (void)snprintf(is, sizeof is, "%.9g", value);
    (void)snprintf(served, sizeof served, "%.9g", k->min);
    const bool flag = k->type == WK_KEY_BOOL;
    messages_say(c->messages, WK_UNSUPPORTED,
                 "%s is %s; %s alone is served; --accept-key %s computes the model as if it did not have the key",
                 c->name,
                 !flag        ? is
                 : value != 0 ? "true"
                              : "false",
                 !flag         ? served
                 : k->min != 0 ? "true"
                               : "false",
                 c->name);
    return false;
}

/* An array of an ARRAY key has any number of elements; else it says one value for each layer. */
static bool check_count(struct check *c, const struct wk_key *k, const struct gguf_kv *kv)
{
    char key[2 * TAPE_NAME];
    uint64_t layers = 0;
    if (k->flags & WK_KEY_ARRAY) {
        if (kv->count <= WK_KEY_ARRAY_MAX) return true;
        messages_say(c->messages, WK_INVALID, "%s: an array of %llu, must be at most %u", c->name,
                     (unsigned long long)kv->count, WK_KEY_ARRAY_MAX);
        return false;
    }
    if (!(k->flags & WK_KEY_PER_LAYER)) {
        messages_say(c->messages, WK_INVALID, "%s: an array of %llu, must be one value", c->name,
                     (unsigned long long)kv->count);
        return false;
    }
    (void)snprintf(key, sizeof key, "%s.block_count", c->architecture);
    const struct gguf_kv *blocks = gguf_find(c->file, key);
    if (blocks && gguf_u64(c->file, blocks, &layers, NULL) == WK_OK && layers && layers == kv->count) return true;
    messages_say(c->messages, WK_INVALID, "%s: an array of %llu, must have one value for each of %llu layers (%s)",
                 c->name, (unsigned long long)kv->count, (unsigned long long)layers, key);
    return false;
}

static bool read_array(struct check *c, const struct wk_key *k, const struct gguf_kv *kv, struct wk_key_value *v)
{
    if (!check_count(c, k, kv)) return false;
    if (kv->count == 0) return true; /* of an ARRAY key */
    double *each = arena_take(c->scratch, (size_t)kv->count, sizeof *each);
    if (!each) {
        messages_no_memory(c->messages);
        return false;
    }
    for (uint64_t i = 0; i < kv->count; i++) {
        if (!number_at(c, k, kv, i, &each[i]) || !in_range(c, k, i, each[i])) return false;
        if (each[i] == each[0] || (k->flags & (WK_KEY_VARIES | WK_KEY_ARRAY))) continue;
        messages_say(c->messages, WK_UNSUPPORTED,
                     "%s: elements 0 and %llu are %.9g and %.9g, one value for all layers is served", c->name,
                     (unsigned long long)i, each[0], each[i]);
        return false;
    }
    v->number = each[0];
    v->numbers = each;
    v->count = (uint32_t)kv->count; /* each of 1 byte at least in the file */
    return true;
}

static bool read_number(struct check *c, const struct wk_key *k, const struct gguf_kv *kv, struct wk_key_value *v)
{
    if (kv->type == GGUF_ARRAY) return read_array(c, k, kv, v);
    if (!number_at(c, k, kv, 0, &v->number) || !in_range(c, k, NO_ELEMENT, v->number)) return false;
    if (!(k->flags & WK_KEY_ARRAY)) return true;
    v->numbers = &v->number; /* which stays where it is as long as open() may read it */
    v->count = 1;
    return true;
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

static bool has_key(const struct check *c, const struct wk_key *k)
{
    if (c->pooled && strcmp(k->name, "pooling_type") == 0) return false;
    return c->which >= 16 || !(k->flags & WK_KEY_NOT_FOR(c->which));
}

static bool read_value(struct check *c, const struct wk_key *k, struct wk_key_value *v)
{
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
    case WK_KEY_BOOL: return read_number(c, k, kv, v);
    case WK_KEY_TEXT: return read_text(c, kv, &v->text);
    default:
        messages_say(c->messages, WK_UNSUPPORTED, "%s: key type %u of a newer ABI", c->name, (unsigned)k->type);
        return false;
    }
}

/* What is not read, or not served and accepted, is as if it were not there. */
static void read_key(struct check *c, const struct wk_key *k, struct wk_key_value *v)
{
    const struct wk_key_value absent = { .number = k->default_number, .text = "" };
    *v = absent;
    if (has_key(c, k) && !read_value(c, k, v)) *v = absent;
}

bool name_listed(const char *const *list, uint32_t n, struct gguf_str name)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(list[i]);
        const bool prefix = len && list[i][len - 1] == '*';
        if (prefix) len--;
        if ((prefix ? name.len >= len : name.len == len) && memcmp(name.data, list[i], len) == 0) return true;
    }
    return false;
}

/* rest: the key's name below the architecture's. Some of them the host reads itself. */
static bool is_read(const struct check *c, struct gguf_str rest)
{
    static const char *const own[] = { "context_length", "block_count" };
    static const char *const of_pooling[] = { "pooling_type", "classifier.output_labels" };
    if (name_listed(own, sizeof own / sizeof own[0], rest)) return true;
    if (c->pooled && name_listed(of_pooling, sizeof of_pooling / sizeof of_pooling[0], rest)) return true;
    for (uint32_t i = 0; i < c->arch->n_keys; i++) {
        const struct wk_key *k = &c->arch->keys[i];
        if (!(k->flags & WK_KEY_ABSOLUTE) && has_key(c, k) && name_listed(&k->name, 1, rest)) return true;
    }
    return false;
}

/* A key that nobody reads refuses the file: it may say that this is another model than the one that is computed. */
static void check_unread(struct check *c)
{
    const size_t prefix = strlen(c->architecture);
    for (uint64_t i = 0; i < gguf_kv_count(c->file); i++) {
        const struct gguf_str key = gguf_kv_at(c->file, i)->key;
        if (key.len <= prefix || memcmp(key.data, c->architecture, prefix) != 0 || key.data[prefix] != '.') continue;
        const struct gguf_str rest = { key.data + prefix + 1, key.len - prefix - 1 };
        if (is_read(c, rest) || name_listed(c->arch->ignored_keys, c->arch->n_ignored_keys, rest)) continue;
        if (gguf_accepts(c->accepted, key)) continue;
        const int len = key.len < 100 ? (int)key.len : 100;
        messages_say(c->messages, WK_UNSUPPORTED,
                     "%.*s: nothing reads this key, and it may change what the model computes; --accept-key %.*s "
                     "computes it without",
                     len, key.data, len, key.data);
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
static bool find_architecture(const struct wk_arch *arch, const struct gguf *file, char out[TAPE_NAME], uint32_t *which,
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
    for (*which = 0; *which < arch->n_names; ++*which)
        if (s.len == strlen(arch->names[*which]) && memcmp(s.data, arch->names[*which], (size_t)s.len) == 0)
            return true;
    messages_say(m, WK_UNSUPPORTED, "general.architecture is %s, which this plugin does not serve", out);
    return false;
}

bool keys_check(const struct wk_arch *arch, const struct gguf *file, struct gguf_accepted *accepted,
                const struct wk_host *host, bool pooled, struct arena *scratch, struct wk_meta *meta,
                struct messages *m)
{
    char architecture[TAPE_NAME];
    uint32_t which;
    if (!find_architecture(arch, file, architecture, &which, m)) return false;
    struct wk_key_value *values = arena_take(scratch, arch->n_keys ? arch->n_keys : 1, sizeof *values);
    struct check *c = arena_take(scratch, 1, sizeof *c);
    char *name = arena_take(scratch, sizeof architecture, 1);
    if (!values || !c || !name) {
        messages_no_memory(m);
        return false;
    }
    *c = (struct check){ .file = file,
                         .arch = arch,
                         .scratch = scratch,
                         .messages = m,
                         .accepted = accepted,
                         .architecture = name,
                         .which = which,
                         .pooled = pooled };
    memcpy(name, architecture, sizeof architecture);
    for (uint32_t i = 0; i < arch->n_keys; i++) {
        const struct wk_key *k = &arch->keys[i];
        const bool absolute = (k->flags & WK_KEY_ABSOLUTE) != 0;
        (void)snprintf(c->name, sizeof c->name, "%s%s%s", absolute ? "" : name, absolute ? "" : ".", k->name);
        read_key(c, k, &values[i]);
    }
    check_unread(c);
    *meta = (struct wk_meta){ .struct_size = sizeof *meta,
                              .n_values = arch->n_keys,
                              .architecture = name,
                              .values = values,
                              .value_size = sizeof *values,
                              .host = host ? host : &plugin_no_host,
                              .self = c,
                              .tensor = meta_tensor };
    return m->status == WK_OK;
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
    else if (gguf_u64(file, kv, &n, &err) != WK_OK)
        messages_say(m, WK_INVALID, "%s", text);
    else if (!n || n > MAX_CONTEXT)
        messages_say(m, WK_INVALID, "%s: %llu, must be 1 to %d", name, (unsigned long long)n, MAX_CONTEXT);
    *out = (uint32_t)n;
    return kv && n && n <= MAX_CONTEXT;
}
