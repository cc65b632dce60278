/* builder.c: the host's side of record() apart from the operations themselves: tensors by name, small tables read as
 * numbers, scope, names, refusals. Each failure is said once and then travels as id 0. */
#include <string.h>

#include "gguf/guard.h"
#include "tape/internal.h"

enum { MAX_LAYER = 65535 };
#define NO_OPERATION UINT32_MAX /* in tensor_of_file: read as numbers, or left out on purpose */

/* ---- tensors of the file ------------------------------------------------------------------------------- */

static const struct gguf_tensor *find_joined(const struct gguf *file, const char *a, const char *b, const char *c)
{
    char full[4 * TAPE_NAME];
    int len = snprintf(full, sizeof full, "%s%s%s", a, b, c);
    return len > 0 && (size_t)len < sizeof full ? gguf_tensor_find(file, full, (size_t)len) : NULL;
}

const struct gguf_tensor *builder_find_tensor(const struct gguf *file, const struct wk_arch *arch, const char *scope,
                                              const char *name, const char *suffix)
{
    const struct gguf_tensor *t = find_joined(file, scope, name, suffix);
    for (uint32_t i = 0; !t && i < arch->n_aliases; i++) {
        const struct wk_alias *a = &arch->aliases[i];
        size_t len = strlen(name);
        if (strcmp(a->name, name) == 0) t = find_joined(file, scope, a->file_name, suffix);
        /* An alias may also stand for name and suffix: some files have a tensor without ".weight". */
        else if (strncmp(a->name, name, len) == 0 && strcmp(a->name + len, suffix) == 0)
            t = find_joined(file, scope, a->file_name, "");
    }
    return t;
}

bool builder_tensor_shape(const struct gguf_tensor *t, uint32_t *rows, uint32_t *cols, uint32_t *slabs)
{
    bool fits = t->ne[3] == 1;
    for (int i = 0; i < 3; i++) fits = fits && t->ne[i] < UINT32_MAX;
    *cols = fits ? (uint32_t)t->ne[0] : UINT32_MAX;
    *rows = fits ? (uint32_t)t->ne[1] : UINT32_MAX;
    *slabs = fits ? (uint32_t)t->ne[2] : UINT32_MAX;
    return fits;
}

static size_t file_index(const struct gguf *file, const struct gguf_tensor *t)
{
    return (size_t)(t - gguf_tensor_at(file, 0));
}

static void say_shape(struct builder *b, const struct gguf_tensor *t, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    char asked_slabs[24] = "", file_slabs[48] = "";
    if (slabs > 1 || t->ne[2] > 1) {
        (void)snprintf(asked_slabs, sizeof asked_slabs, " x %u", (unsigned)slabs);
        (void)snprintf(file_slabs, sizeof file_slabs, " x %llu slabs", (unsigned long long)t->ne[2]);
    }
    if (t->ne[3] > 1)
        messages_say(b->messages, WK_INVALID,
                     "%.*s: the file has 4 dimensions, the plugin asks for %u rows x %u columns%s", (int)t->name.len,
                     t->name.data, (unsigned)rows, (unsigned)cols, asked_slabs);
    else
        messages_say(b->messages, WK_INVALID,
                     "%.*s: the file has %llu rows x %llu columns%s, the plugin asks for %u x %u%s", (int)t->name.len,
                     t->name.data, (unsigned long long)t->ne[1], (unsigned long long)t->ne[0], file_slabs,
                     (unsigned)rows, (unsigned)cols, asked_slabs);
}

/* A number that two formats may have taken: the file says whose it means. */
static bool check_owner(struct builder *b, const struct gguf *in, const struct gguf_tensor *file)
{
    char key[sizeof GGUF_OWNER_KEY + 12];
    if (!b->options->type_owner) return true;
    const char *id = b->options->type_owner(b->options->user, file->ggml_type);
    (void)snprintf(key, sizeof key, GGUF_OWNER_KEY "%u", (unsigned)file->ggml_type);
    const struct gguf_kv *kv = gguf_find(in, key);
    struct gguf_str said = { "", 0 };
    if (kv && gguf_str(in, kv, &said, NULL) == WK_OK && said.len == strlen(id) && memcmp(said.data, id, said.len) == 0)
        return true;
    if (said.len)
        messages_say(b->messages, WK_UNSUPPORTED, "tensor type %u is a format of %s here, of %.*s in the file (%s)",
                     (unsigned)file->ggml_type, id, said.len < 64 ? (int)said.len : 64, said.data, key);
    else
        messages_say(b->messages, WK_UNSUPPORTED,
                     "tensor type %u is a format of %s here, and the file does not say whose it means; expected the "
                     "text %s, which worker quantize writes",
                     (unsigned)file->ggml_type, id, key);
    return false;
}

/* Who serves the tensor's type, and its bytes. A missing type is said once; recording goes on, so that all missing
 * types are said. */
static bool serve(struct builder *b, struct tape_tensor *t)
{
    const struct tape_options *o = b->options;
    const struct gguf_tensor *file = t->file;
    t->type = o->find_type(o->user, file->ggml_type);
    if (!t->type) {
        if (file->ggml_type < 256 && b->type_refused[file->ggml_type]) return true;
        if (file->ggml_type < 256) b->type_refused[file->ggml_type] = 1;
        char asked[160] = "", type[GGUF_TYPE_TEXT];
        if (o->describe_types) o->describe_types(o->user, asked, sizeof asked);
        messages_say(b->messages, WK_UNSUPPORTED,
                     "tensor type %s: no plugin serves it (looked at: %s; first used by %s)",
                     gguf_tensor_type_text(file->ggml_type, type), asked[0] ? asked : "none", t->name);
        return true;
    }
    if (file->ggml_type >= GGUF_OWN_TYPES && !check_owner(b, t->in, file)) return false;
    char text[200];
    const struct wk_err err = { text, sizeof text };
    wk_status status = gguf_tensor_bytes(t->in, file, t->type->block, t->type->block_bytes, &t->bytes, &err);
    if (status != WK_OK) messages_say(b->messages, status, "%s", text);
    return status == WK_OK;
}

/* Slab i of a tensor whose slabs are tensors of the file: the alias's name with the number for '#'. */
static const struct gguf_tensor *find_slab(const struct builder *b, const struct wk_alias *a, const char *suffix,
                                           uint32_t i)
{
    char name[TAPE_NAME];
    const char *hash = strchr(a->file_name, '#');
    const int len =
        hash ? snprintf(name, sizeof name, "%.*s%u%s", (int)(hash - a->file_name), a->file_name, (unsigned)i, hash + 1)
             : -1;
    return len > 0 && len < TAPE_NAME ? find_joined(b->p->file, b->scope, name, suffix) : NULL;
}

/* All slabs of a tensor that the file has slab by slab; NULL: it has not, or why was said. */
static const struct gguf_tensor **find_slabs(struct builder *b, const char *name, const char *suffix, uint32_t slabs)
{
    const struct wk_alias *a = NULL;
    for (uint32_t i = 0; i < b->arch->n_aliases && !a; i++)
        if (strcmp(b->arch->aliases[i].name, name) == 0 && find_slab(b, &b->arch->aliases[i], suffix, 0))
            a = &b->arch->aliases[i];
    if (!a) return NULL;
    const struct gguf_tensor **list = arena_take(b->arena, slabs, sizeof *list);
    if (!list) {
        messages_no_memory(b->messages);
        return NULL;
    }
    for (uint32_t i = 0; i < slabs; i++) {
        list[i] = find_slab(b, a, suffix, i);
        const struct gguf_tensor *t = list[i], *first = list[0];
        if (t && t->ggml_type == first->ggml_type && memcmp(t->ne, first->ne, sizeof t->ne) == 0 && t->ne[2] == 1)
            continue;
        messages_say(b->messages, WK_INVALID, "%s%s (number %u for #)%s: %s", b->scope, a->file_name, (unsigned)i,
                     suffix, t ? "of another type or shape than number 0" : "missing in the file");
        return NULL;
    }
    return list;
}

static bool check_slabs(struct builder *b, struct tape_tensor *t)
{
    char text[200];
    const struct wk_err err = { text, sizeof text };
    uint64_t bytes;
    for (uint32_t i = 1; t->type && i < t->slabs; i++) {
        if (gguf_tensor_bytes(b->p->file, t->slab_files[i], t->type->block, t->type->block_bytes, &bytes, &err)) {
            messages_say(b->messages, WK_INVALID, "%s", text);
            return false;
        }
    }
    t->bytes *= t->slabs;
    return true;
}

/* Appends the tensor, whose file, place and shape are set, under the name that the plugin has for it; its id. */
static uint32_t add_tensor(struct builder *b, const struct tape_tensor *tensor, const char *asked)
{
    struct tape_program *p = b->p;
    p->tensors = arena_grow(b->arena, p->tensors, p->n_tensors, &b->cap_tensors, sizeof *p->tensors);
    b->asked = arena_grow(b->scratch, b->asked, p->n_tensors, &b->cap_asked, sizeof *b->asked);
    if (!p->tensors || !b->asked) {
        p->n_tensors = 0;
        messages_no_memory(b->messages);
        return 0;
    }
    struct tape_tensor *t = &p->tensors[p->n_tensors];
    *t = *tensor;
    (void)snprintf(t->name, sizeof t->name, "%.*s", (int)t->file->name.len, t->file->name.data);
    int len = snprintf(b->asked[p->n_tensors], TAPE_NAME, "%s", asked);
    if (len < 0 || len >= TAPE_NAME) {
        messages_say(b->messages, WK_INVALID, "%s: a name has at most %d bytes", asked, TAPE_NAME - 1);
        return 0;
    }
    if (!serve(b, t) || (t->slab_files && !check_slabs(b, t))) return 0;
    return ++p->n_tensors;
}

uint32_t builder_adapter_tensor(struct builder *b, uint32_t i, const struct gguf_tensor *file, uint32_t rows,
                                uint32_t cols, uint32_t slabs)
{
    const struct tape_tensor t = {
        .in = b->options->adapters[i].file, .adapter = 1 + i, .file = file, .rows = rows, .cols = cols, .slabs = slabs
    };
    return add_tensor(b, &t, "");
}

static uint32_t add_model_tensor(struct builder *b, const struct tape_tensor *tensor, const char *name,
                                 const char *suffix)
{
    char asked[4 * TAPE_NAME];
    (void)snprintf(asked, sizeof asked, "%s%s%s", b->scope, name, strcmp(suffix, ".weight") == 0 ? "" : suffix);
    const uint32_t id = add_tensor(b, tensor, asked);
    for (uint32_t i = 0; id && i < (tensor->slab_files ? tensor->slabs : 1); i++)
        b->tensor_of_file[file_index(b->p->file, tape_slab_file(tensor, i))] = id;
    return id;
}

static uint32_t on_tensor(void *self, const char *name, const char *suffix, uint32_t rows, uint32_t cols,
                          uint32_t slabs, uint32_t need)
{
    struct builder *b = self;
    if (b->messages->status == WK_NO_MEMORY) return 0;
    if (need != WK_REQUIRED && need != WK_OPTIONAL) {
        messages_say(b->messages, WK_UNSUPPORTED, "%s%s%s: need %u is unknown to this host (ABI %d.%d)", b->scope, name,
                     suffix, (unsigned)need, WK_ABI_MAJOR, WK_ABI_MINOR);
        return 0;
    }
    const struct gguf_tensor *t = builder_find_tensor(b->p->file, b->arch, b->scope, name, suffix);
    const struct gguf_tensor **slab_files = NULL;
    if (!t && slabs > 1) {
        const uint32_t said = b->messages->n;
        slab_files = find_slabs(b, name, suffix, slabs);
        if (!slab_files && (b->messages->n != said || b->messages->lost)) return 0;
        if (slab_files) t = slab_files[0];
    }
    if (!t) {
        if (need == WK_REQUIRED && b->options->missing) {
            char full[2 * TAPE_NAME];
            (void)snprintf(full, sizeof full, "%s%s%s", b->scope, name, suffix);
            b->options->missing(b->options->user, full, rows, cols, slabs);
        }
        if (need == WK_REQUIRED)
            messages_say(b->messages, WK_INVALID,
                         "%s%s%s: missing in the file, the plugin asks for %u rows x %u columns", b->scope, name,
                         suffix, (unsigned)rows, (unsigned)cols);
        return 0;
    }
    uint32_t has_rows, has_cols, has_slabs;
    if (!builder_tensor_shape(t, &has_rows, &has_cols, &has_slabs) || has_rows != rows || has_cols != cols ||
        has_slabs != (slab_files ? 1 : slabs)) {
        say_shape(b, t, rows, cols, slabs);
        return 0;
    }
    uint32_t known = b->tensor_of_file[file_index(b->p->file, t)];
    if (known && known != NO_OPERATION) return known;
    const struct tape_tensor tensor = {
        .in = b->p->file, .file = t, .slab_files = slab_files, .rows = rows, .cols = cols, .slabs = slabs
    };
    return add_model_tensor(b, &tensor, name, suffix);
}

static uint32_t on_read(void *self, const char *name, float *dst, uint32_t n)
{
    struct builder *b = self;
    const struct gguf_tensor *t = builder_find_tensor(b->p->file, b->arch, b->scope, name, "");
    if (!t) return 0;
    uint32_t rows, cols, slabs;
    if (!builder_tensor_shape(t, &rows, &cols, &slabs) || cols != n || rows != 1 || slabs != 1) {
        say_shape(b, t, 1, n, 1);
        return 0;
    }
    if (t->ggml_type != 0) {
        char type[GGUF_TYPE_TEXT];
        messages_say(b->messages, WK_INVALID, "%.*s: type %s, must be f32", (int)t->name.len, t->name.data,
                     gguf_tensor_type_text(t->ggml_type, type));
        return 0;
    }
    char text[200];
    const struct wk_err err = { text, sizeof text };
    uint64_t bytes;
    wk_status status = gguf_tensor_bytes(b->p->file, t, 1, sizeof *dst, &bytes, &err);
    if (status == WK_OK) status = gguf_guarded_copy(dst, gguf_tensor_data(b->p->file, t), bytes, &err);
    if (status != WK_OK) {
        messages_say(b->messages, status, "%s", text);
        return 0;
    }
    uint32_t *known = &b->tensor_of_file[file_index(b->p->file, t)];
    if (!*known) *known = NO_OPERATION;
    return 1;
}

/* ---- the rest of the table ----------------------------------------------------------------------------- */

static uint32_t on_width(void *self, uint32_t value)
{
    const struct builder *b = self;
    return value && value <= b->p->n_values ? b->p->values[value - 1].width : 0;
}

static void on_scope(void *self, const char *prefix, uint32_t layer)
{
    struct builder *b = self;
    if (layer != UINT32_MAX && layer > MAX_LAYER) {
        messages_say(b->messages, WK_INVALID, "layer %u: at most %u", (unsigned)layer, (unsigned)MAX_LAYER);
        return;
    }
    int len = snprintf(b->scope, sizeof b->scope, "%s", prefix);
    if (len < 0 || (size_t)len >= sizeof b->scope)
        messages_say(b->messages, WK_INVALID, "scope %.40s: at most %zu bytes", prefix, sizeof b->scope - 1);
    b->layer = layer;
    if (layer != UINT32_MAX && layer >= b->p->n_layers) b->p->n_layers = layer + 1;
}

static void on_name(void *self, uint32_t value, const char *name)
{
    struct builder *b = self;
    if (!value || value > b->p->n_values) return;
    char full[TAPE_NAME];
    int len = snprintf(full, sizeof full, "%s%s", b->scope, name);
    if (len <= 0 || (size_t)len >= sizeof full)
        messages_say(b->messages, WK_INVALID, "%s%.64s: a name has at most %d bytes", b->scope, name, TAPE_NAME - 1);
    else if (labels_has(b->labels, full))
        messages_say(b->messages, WK_INVALID, "%s: two values of this name", full);
    else if (!labels_take(b->labels, full))
        messages_no_memory(b->messages);
    else
        memcpy(b->p->values[value - 1].name, full, sizeof full);
}

static void on_fail(void *self, const char *text)
{
    struct builder *b = self;
    messages_say(b->messages, WK_INVALID, "%s", text);
}

static void on_ignore(void *self, const char *name)
{
    struct builder *b = self;
    for (uint64_t i = 0; i < gguf_tensor_count(b->p->file); i++)
        if (!b->tensor_of_file[i] && name_listed(&name, 1, gguf_tensor_at(b->p->file, i)->name))
            b->tensor_of_file[i] = NO_OPERATION;
}

void builder_table(struct builder *b, struct wk_builder *out)
{
    *out = (struct wk_builder){ .struct_size = sizeof *out,
                                .abi_minor = WK_ABI_MINOR,
                                .context = b->p->context,
                                .self = b,
                                .op = builder_op,
                                .tensor = on_tensor,
                                .width = on_width,
                                .read = on_read,
                                .supports = builder_supports,
                                .scope = on_scope,
                                .name = on_name,
                                .fail = on_fail,
                                .ignore = on_ignore };
}
