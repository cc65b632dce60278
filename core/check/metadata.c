/* metadata.c: metadata as the host would hand them to open(), made from the plugin's own table of keys: every value is
 * one that the host lets pass, so open() has to stand it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/internal.h"

/* LAYERS_MAX: of which an array has an element each. */
enum { TEXT_MAX = 4096, LAYERS_MAX = 4096, LAYERS = 2, ROWS = 64, COLS = 64, GARBAGE = 0xa5 };

uint32_t check_draw(struct check_draw *d, uint32_t below)
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return (uint32_t)((d->state >> 20) % below);
}

/* What a small model of any architecture says: widths that divide each other. whole: not all have it. */
static const struct {
    const char *name;
    double value;
    bool whole;
} plain[] = {
    { "block_count", LAYERS, false },
    { "context_length", 128, false },
    { "embedding_length", COLS, false },
    { "feed_forward_length", 128, false },
    { "attention.head_count", 4, false },
    { "attention.head_count_kv", 4, false }, /* as many as heads: no architecture refuses that */
    { "attention.key_length", 16, false },
    { "attention.value_length", 16, false },
    { "attention.layer_norm_epsilon", 1e-5, false },
    { "attention.layer_norm_rms_epsilon", 1e-5, false },
    { "attention.sliding_window", 32, true },
    { "rope.dimension_count", 16, false },
    { "rope.freq_base", 10000, false },
    { "expert_count", 4, true },
    { "expert_used_count", 2, true },
    { "expert_feed_forward_length", 64, true },
    { "vocab_size", ROWS, false },
};

static double clamp(const struct wk_key *k, double value)
{
    return value < k->min ? k->min : value > k->max ? k->max : value;
}

/* The key's plain value, if the file of a small model has it. whole: of one that has more. */
static bool plain_value(const struct wk_key *k, bool whole, double *out)
{
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(k->name, plain[i].name) == 0) {
            *out = clamp(k, plain[i].value);
            return whole || !plain[i].whole || (k->flags & WK_KEY_REQUIRED);
        }
    *out = clamp(k, 1);
    return (k->flags & WK_KEY_REQUIRED) != 0;
}

static double whole(const struct wk_key *k, double value) { return k->type == WK_KEY_F32 ? value : floor(value); }

static double number(struct check_metadata *m, const struct wk_key *k, enum metadata_way way)
{
    double value;
    (void)plain_value(k, true, &value);
    if (way == METADATA_SMALLEST) value = k->min;
    if (way == METADATA_LARGEST) value = k->max;
    if (way == METADATA_RANDOM) {
        static const double ends[] = { 0, 1, 2, 3, 7, 64, 255, 4096, 65535, 1e6 };
        const uint32_t how = check_draw(&m->draw, 4);
        const double part = check_draw(&m->draw, 1u << 30) / (double)(1u << 30);
        value = how == 0   ? k->min
                : how == 1 ? k->max
                : how == 2 ? clamp(k, ends[check_draw(&m->draw, sizeof ends / sizeof ends[0])])
                           : k->min + part * (k->max - k->min);
        if (!isfinite(value)) value = k->min;
    }
    return whole(k, value);
}

static const char *word(struct check_metadata *m, enum metadata_way way)
{
    static const char *const words[] = { "",     "none", "linear",   "yarn",  "longrope", "no-such-word",
                                         "%n%s", "0",    "\xff\xfe", "LINEAR" };
    const char *from = way == METADATA_RANDOM    ? words[check_draw(&m->draw, sizeof words / sizeof words[0])]
                       : way == METADATA_STRANGE ? "no-such-word"
                                                 : "none";
    const size_t n = way == METADATA_SMALLEST ? 0 : way == METADATA_LARGEST ? TEXT_MAX : strlen(from);
    char *text = guarded(n + 1, 1, 'a');
    if (!text) return NULL;
    if (way != METADATA_LARGEST) memcpy(text, from, n);
    text[n] = '\0';
    return text;
}

/* n elements; of a key with one value for all layers all equal. */
static bool array(struct check_metadata *m, const struct wk_key *k, enum metadata_way way, uint32_t n,
                  struct wk_key_value *v)
{
    const bool varies = (k->flags & (WK_KEY_VARIES | WK_KEY_ARRAY)) != 0;
    double *each = guarded(n * sizeof *each, sizeof *each, 0);
    if (!each) return false;
    for (uint32_t i = 0; i < n; i++) each[i] = i && !varies ? each[0] : number(m, k, way);
    if (n) v->number = each[0];
    v->numbers = each;
    v->count = n;
    return true;
}

/* Elements of an array of any length. */
static uint32_t any_length(struct check_metadata *m, enum metadata_way way)
{
    return way <= METADATA_WHOLE || way == METADATA_STRANGE ? 1
           : way == METADATA_SMALLEST                       ? 0
           : way == METADATA_LARGEST                        ? WK_KEY_ARRAY_MAX
                                                            : check_draw(&m->draw, 40);
}

static bool fill(struct check_metadata *m, const struct wk_key *k, enum metadata_way way, struct wk_key_value *v)
{
    double value;
    *v = (struct wk_key_value){ .number = k->default_number, .text = "" };
    const bool none = m->which < 16 && (k->flags & WK_KEY_NOT_FOR(m->which));
    const bool required = (k->flags & WK_KEY_REQUIRED) != 0;
    const bool absent = way == METADATA_PLAIN    ? !plain_value(k, false, &value)
                        : way == METADATA_WHOLE  ? !plain_value(k, true, &value)
                        : way == METADATA_RANDOM ? check_draw(&m->draw, 4) == 0
                                                 : way == METADATA_ABSENT;
    if (none || (absent && !required)) return true;
    v->present = 1;
    if (k->type == WK_KEY_TEXT) return (v->text = word(m, way)) != NULL;
    if (k->flags & WK_KEY_ARRAY) return array(m, k, way, any_length(m, way), v);
    const bool layered = (k->flags & WK_KEY_PER_LAYER) && m->layers && m->layers <= LAYERS_MAX;
    if (layered && way >= METADATA_SMALLEST && check_draw(&m->draw, 2)) return array(m, k, way, m->layers, v);
    v->number = number(m, k, way);
    return true;
}

static uint32_t on_tensor(void *self, const char *name, uint32_t *rows, uint32_t *cols, uint32_t *depth)
{
    static const uint32_t sizes[] = { 0, 1, 3, 64, 1u << 24, UINT32_MAX };
    struct check_metadata *m = self;
    const size_t n = strlen(name); /* all of the text is read */
    uint32_t shape[3] = { ROWS, COLS, 1 };
    if (n == 0) return 0;
    if (m->absurd && check_draw(&m->draw, 3) == 0) return 0;
    for (int i = 0; m->absurd && i < 3; i++) shape[i] = sizes[check_draw(&m->draw, 6)];
    if (rows) *rows = shape[0];
    if (cols) *cols = shape[1];
    if (depth) *depth = shape[2];
    return 1;
}

static void describe(struct check_metadata *m, uint32_t key, enum metadata_way way, uint64_t seed)
{
    static const char *const ways[METADATA_WAYS] = {
        "as a small model has it", "absent", "smallest", "largest", "strange", "random"
    };
    const char *name = key < m->arch->n_keys ? m->arch->keys[key].name : "every key";
    (void)snprintf(m->text, sizeof m->text, "%s: %.60s %s%s", m->arch->names[m->which], name, ways[way],
                   m->absurd ? ", tensors of absurd shapes" : "");
    if (way != METADATA_RANDOM) return;
    const size_t n = strlen(m->text);
    (void)snprintf(m->text + n, sizeof m->text - n, " (seed %llu)", (unsigned long long)seed);
}

static struct wk_key_value *value_at(const struct check_metadata *m, uint32_t i)
{
    return (struct wk_key_value *)(void *)((char *)m->values + (size_t)i * m->meta->value_size);
}

/* How many layers this file has decides how long arrays are. */
static void choose_layers(struct check_metadata *m, uint32_t key, enum metadata_way way)
{
    m->layers = LAYERS;
    for (uint32_t i = 0; i < m->arch->n_keys; i++) {
        const struct wk_key *k = &m->arch->keys[i];
        struct wk_key_value *v = value_at(m, i);
        if (strcmp(k->name, "block_count") != 0 || k->type != WK_KEY_U32) continue;
        (void)fill(m, k, key == i || key == UINT32_MAX ? way : METADATA_PLAIN, v);
        v->numbers = NULL; /* the number of layers is no array */
        v->count = 0;
        m->layers = v->number < LAYERS_MAX ? (uint32_t)v->number : LAYERS_MAX + 1;
    }
}

bool metadata_make(struct check_metadata *m, const struct wk_arch *arch, const struct wk_host *host, uint32_t key,
                   enum metadata_way way, uint64_t seed, uint32_t extra)
{
    *m = (struct check_metadata){ .arch = arch,
                                  .which = (uint32_t)(seed % arch->n_names),
                                  .absurd = way == METADATA_RANDOM && seed % 3 == 2,
                                  .draw = { seed * 0x9e3779b97f4a7c15u + 1 } };
    describe(m, key, way, seed);
    const uint32_t size = (uint32_t)sizeof *m->values + extra;
    m->meta = guarded(sizeof *m->meta + extra, 8, GARBAGE);
    m->values = guarded((size_t)arch->n_keys * size, 8, GARBAGE);
    const char *name = arch->names[m->which];
    char *copy = guarded(strlen(name) + 1, 1, 0);
    if (!m->meta || !m->values || !copy) return false;
    memcpy(copy, name, strlen(name) + 1);
    *m->meta = (struct wk_meta){ .struct_size = (uint32_t)sizeof *m->meta + extra,
                                 .n_values = arch->n_keys,
                                 .architecture = copy,
                                 .values = m->values,
                                 .value_size = size,
                                 .host = host,
                                 .self = m,
                                 .tensor = on_tensor };
    choose_layers(m, key, way);
    for (uint32_t i = 0; i < arch->n_keys; i++) {
        const struct wk_key *k = &arch->keys[i];
        if (strcmp(k->name, "block_count") == 0 && k->type == WK_KEY_U32) continue;
        if (!fill(m, k, key == i || key == UINT32_MAX ? way : METADATA_PLAIN, value_at(m, i))) return false;
    }
    return true;
}

void metadata_free(struct check_metadata *m)
{
    for (uint32_t i = 0; m->meta && m->values && i < m->arch->n_keys; i++) {
        const struct wk_key_value *v = value_at(m, i);
        if (v->text && v->text[0]) guarded_free((void *)(uintptr_t)v->text);
        guarded_free((void *)(uintptr_t)v->numbers);
    }
    guarded_free(m->values);
    if (m->meta) guarded_free((void *)(uintptr_t)m->meta->architecture);
    guarded_free(m->meta);
    m->meta = NULL;
    m->values = NULL;
}

wk_status metadata_open(struct check_metadata *m, struct check_recorder *r, bool early, const struct wk_err *err)
{
    const struct wk_arch *a = m->arch;
    struct plugin_call call;
    void *model = NULL;
    PLUGIN_CALL(&call, a->open, "open");
    const wk_status status = a->open(m->meta, &model, err);
    plugin_call_end(&call);
    if (early || status != WK_OK) metadata_free(m);
    if (status != WK_OK) return status;
    if (r) {
        PLUGIN_CALL(&call, a->record, "record");
        a->record(r->builder, model);
        plugin_call_end(&call);
    }
    PLUGIN_CALL(&call, a->close, "close");
    a->close(model);
    plugin_call_end(&call);
    metadata_free(m);
    return status;
}
