/* model.c: opens a model in phases: the file's own words, its plugins, the tape, the plan; then the executor.
 *
 * What can be refused is refused before anything is allocated for it, with the text of whoever knows best: the tape for
 * shapes and types, the tokenizer for its vocabulary, the device for its memory. */
#include "model/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "device/kv_pages.h"
#include "base/utf8.h"

/* A text of the file, cut to fit and terminated; false if absent, empty or no text. */
static bool file_text(const struct gguf *file, const char *key, char *out, size_t cap)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    struct gguf_str s;
    out[0] = 0;
    if (!kv || kv->type != GGUF_STRING || gguf_str(file, kv, &s, NULL) || !s.len) return false;
    const size_t n = s.len < cap - 1 ? (size_t)s.len : cap - 1;
    memcpy(out, s.data, n);
    out[n] = 0;
    return true;
}

/* Is the sequence of len bytes a character that one can show? */
static bool is_shown(const char *text, size_t len)
{
    const uint32_t c = len ? utf8_decode((const unsigned char *)text, len) : 0;
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0);
}

void model_name(const struct gguf *file, char out[MODEL_NAME])
{
    const char *path = gguf_path(file), *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path,
               *dot = strrchr(stem, '.');
    struct gguf_str name = { stem, dot && dot > stem ? (uint64_t)(dot - stem) : strlen(stem) }, given;
    const struct gguf_kv *kv = gguf_find(file, "general.name");
    if (kv && kv->type == GGUF_STRING && !gguf_str(file, kv, &given, NULL) && given.len) name = given;
    size_t n = 0;
    for (size_t i = 0; i < name.len;) {
        const size_t len = utf8_sequence((const unsigned char *)name.data + i, name.len - i);
        const struct gguf_str shown = is_shown(name.data + i, len) ? (struct gguf_str){ name.data + i, len }
                                                                   : (struct gguf_str){ "\xef\xbf\xbd", 3 };
        if (n + shown.len >= MODEL_NAME) break;
        memcpy(out + n, shown.data, shown.len);
        n += shown.len;
        i += len ? len : 1;
    }
    out[n] = 0;
}

static wk_status find_arch(struct model *m, const struct wk_plugin *plugin, const struct wk_err *err)
{
    char name[TAPE_NAME], known[2048], key[TAPE_NAME + 8];
    const wk_status status = adapter_not_model(m->file, err);
    if (status) return status;
    if (!file_text(m->file, "general.architecture", name, sizeof name))
        return wk_fail(err, WK_INVALID, "%s: no general.architecture: not a model", gguf_path(m->file));
    if (plugin && plugin->arch && plugin_arch_has_name(plugin->arch, name)) {
        m->arch = plugin->arch;
        m->host = plugin_host(plugin);
        return WK_OK;
    }
    const struct plugin_entry *who;
    m->arch = plugin_find_arch(m->plugins, name, &who);
    if (m->arch) m->host = plugin_host(who->plugin);
    if (m->arch) return WK_OK;
    (void)snprintf(key, sizeof key, "arch:%s", name);
    if (plugin_why_not(m->plugins, key, known, sizeof known)) return wk_fail(err, WK_UNSUPPORTED, "%s", known);
    (void)plugin_describe(m->plugins, WK_KIND_ARCH, known, sizeof known);
    return wk_fail(err, WK_UNSUPPORTED, "architecture \"%s\": no plugin serves it (looked at: %s)", name, known);
}

static wk_status resolve_options(struct model *m, const struct wk_err *err)
{
    struct device_options *d = &m->dev;
    if (!d->max_sequences) d->max_sequences = 1;
    if (!d->max_rows) d->max_rows = DEFAULT_ROWS;
    if (!d->max_logits_rows) d->max_logits_rows = d->max_rows;
    if (d->context) return WK_OK;
    char arch[TAPE_NAME], key[TAPE_NAME + 32];
    uint64_t most = DEFAULT_CONTEXT;
    (void)file_text(m->file, "general.architecture", arch, sizeof arch);
    (void)snprintf(key, sizeof key, "%s.context_length", arch);
    const struct gguf_kv *kv = gguf_find(m->file, key);
    if (kv) {
        wk_status s = gguf_u64(m->file, kv, &most, err);
        if (s) return s;
        if (most < 1) return wk_fail(err, WK_INVALID, "%s is 0: expected at least 1", key);
    }
    d->context = most < DEFAULT_CONTEXT ? (uint32_t)most : DEFAULT_CONTEXT;
    return WK_OK;
}

/* ---- adapters ------------------------------------------------------------------------------------------ */

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

static wk_status open_adapters(struct model *m, const struct model_options *o, const struct wk_err *err)
{
    if (!o->n_adapters) return WK_OK;
    if (o->n_adapters > ADAPTERS_MAX)
        return wk_fail(err, WK_INVALID, "%u adapters: at most %d", o->n_adapters, ADAPTERS_MAX);
    m->adapters = calloc(o->n_adapters, sizeof *m->adapters);
    if (!m->adapters) return wk_fail(err, WK_NO_MEMORY, "out of memory for %u adapters", o->n_adapters);
    for (uint32_t i = 0; i < o->n_adapters; i++) {
        struct gguf *file;
        for (uint32_t k = 0; k < i; k++)
            if (same_file(o->adapters[k].path, o->adapters[i].path))
                return wk_fail(err, WK_INVALID, "%s: an adapter that is given twice", o->adapters[i].path);
        wk_status s = gguf_open(o->adapters[i].path, &file, err);
        if (s) return s;
        m->adapters[m->n_adapters++].file = file;
        s = adapter_read(file, o->adapters[i].scale, &m->adapters[i], err);
        if (s) return s;
    }
    return WK_OK;
}

/* ---- the tape ------------------------------------------------------------------------------------------ */

static const char *type_owner(void *user, uint32_t ggml_type) { return plugin_type_owner(user, ggml_type); }
static const struct wk_type_cpu *find_type(void *user, uint32_t ggml_type)
{
    return plugin_find_type(user, ggml_type, NULL);
}
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

static wk_status record(struct model *m, const struct model_options *o, const struct wk_err *err)
{
    /* The registry is immutable; the tape hands it back as it was given. */
    void *registry = (void *)(uintptr_t)m->plugins;
    const struct tape_options t = { .context = m->dev.context,
                                    .fuse = o->fuse,
                                    .pooling = o->pooling,
                                    .taps = o->taps,
                                    .n_taps = o->n_taps,
                                    .accepted = &m->accepted,
                                    .adapters = m->adapters,
                                    .n_adapters = m->n_adapters,
                                    .host = m->host,
                                    .find_type = find_type,
                                    .type_owner = type_owner,
                                    .describe_types = describe_types,
                                    .user = registry };
    const wk_status status = tape_record(m->arch, m->file, &t, &m->program, err);
    return status ? status : plugin_options_all_asked(err);
}

/* A text that becomes a row is one step, so every one that the context holds must be. */
static void widen_steps(struct model *m)
{
    m->step_rows = m->dev.max_rows;
    if (m->program->embedding_width && m->dev.max_rows < m->dev.context) m->dev.max_rows = m->dev.context;
}

/* Without any, a model still runs on ids; so does one that generates no text where the file's own is of a kind that is
 * not served. */
static wk_status open_tokenizer(struct model *m, const char *json, const struct wk_err *err)
{
    if (!json && !tape_gives_logits(m->program) && !tokenizer_served(m->file)) return WK_OK;
    return tokenizer_open_for(m->file, json, m->program->n_vocab, &m->accepted, &m->tokenizer, err);
}

wk_status model_plan(struct gguf *file, const struct plugin_registry *plugins, const struct model_options *o,
                     struct model **out, const struct wk_err *err)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m) {
        gguf_close(file);
        return wk_fail(err, WK_NO_MEMORY, "out of memory opening a model");
    }
    m->file = file;
    m->plugins = plugins;
    m->device = o->device;
    m->dev = o->dev;
    m->accepted = (struct gguf_accepted){ .names = o->accept, .n = o->n_accept };
    m->identify = o->identify;
    model_name(m->file, m->name);
    wk_status s = find_arch(m, o->plugin, err);
    if (!s) s = resolve_options(m, err);
    if (!s) s = open_adapters(m, o, err);
    if (!s) s = record(m, o, err);
    if (!s) widen_steps(m);
    if (!s) s = open_tokenizer(m, o->tokenizer, err);
    if (!s) s = m->device->plan(m->program, &m->dev, &m->plan, err);
    if (s) {
        model_close(m);
        return s;
    }
    *out = m;
    return WK_OK;
}

static bool list_pages(struct model *m)
{
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        if (!kv_bounded(kv_span(&m->program->groups[g], m->dev.context)) || m->session_pages[g].ids) continue;
        uint32_t *ids = malloc(m->plan.kv_pages[g] * sizeof *ids);
        if (!ids) return false;
        m->session_pages[g].ids = ids;
        for (uint32_t i = m->session_pages[g].n = m->plan.kv_pages[g]; i > 0; i--) *ids++ = i - 1;
    }
    return true;
}

/* Of weights that stay in the file; a GPU's module compares by itself. */
static wk_status check_digest(struct model *m, const struct wk_err *err)
{
    if (m->device->handle || !m->dev.digest) return WK_OK;
    wk_status s = model_digest(m, NULL, m->digest, err);
    if (s || strcmp(m->digest, m->dev.digest) == 0) return s;
    return wk_fail(err, WK_INVALID, "%s: the weights' digest is %s, %s was demanded: another model, or a damaged file",
                   gguf_path(m->file), m->digest, m->dev.digest);
}

wk_status model_load(struct model *m, const struct wk_err *err)
{
    const struct model_weights weights = { m->file };
    if (m->executor) return WK_OK;
    if (!m->session_slots) m->session_slots = calloc(m->dev.max_sequences, sizeof *m->session_slots);
    if (!m->session_slots || !list_pages(m))
        return wk_fail(err, WK_NO_MEMORY, "out of memory for %u sequences", m->dev.max_sequences);
    wk_status s = m->identify ? model_identity(m, m->identity, err) : WK_OK;
    if (!s) s = check_digest(m, err);
    return s ? s : m->device->open(m->program, &weights, &m->dev, &m->executor, err);
}

uint64_t model_kv_auto(const struct model *m, uint64_t available)
{
    const uint64_t gpu_reserve = 512u << 20, all = m->plan.bytes[MEMORY_KV], others = m->plan.total - all;
    if (!available) return all;
    uint64_t room = available > others ? available - others : 0;
    if (!m->device->probe)
        room /= 2;
    else
        room = room > gpu_reserve ? room - gpu_reserve : 0;
    return room < all ? (room ? room : 1) : all;
}

wk_status model_set_kv(struct model *m, uint64_t kv_bytes, const struct wk_err *err)
{
    if (m->executor) return wk_fail(err, WK_INTERNAL, "the cache of a loaded model has its size");
    m->dev.kv_bytes = kv_bytes;
    return m->device->plan(m->program, &m->dev, &m->plan, err);
}

wk_status model_generates(const struct model *m, const struct wk_err *err)
{
    if (!m->program->n_vocab || m->program->embedding_width)
        return wk_fail(err, WK_UNSUPPORTED,
                       "%s gives embeddings or scores, not tokens: use worker embed or worker serve", m->name);
    if (m->program->bidirectional)
        return wk_fail(err, WK_UNSUPPORTED, "%s attends in both directions: it generates nothing", m->name);
    return WK_OK;
}

enum { POOLING_RANK = 4 };

/* The file's pooling_type; of rerankers as converters write them, which have none, POOLING_RANK; else 0. */
static uint64_t file_pooling(const struct gguf *file)
{
    static const char scores[] = "cls.output.weight";
    char arch[TAPE_NAME], key[TAPE_NAME + 16];
    uint64_t how = 0;
    (void)file_text(file, "general.architecture", arch, sizeof arch);
    (void)snprintf(key, sizeof key, "%s.pooling_type", arch);
    const struct gguf_kv *kv = gguf_find(file, key);
    if (!kv) return gguf_tensor_find(file, scores, sizeof scores - 1) ? POOLING_RANK : 0;
    return gguf_u64(file, kv, &how, NULL) ? 0 : how;
}

bool model_ranks(const struct model *m) { return m->program->embedding_width && file_pooling(m->file) == POOLING_RANK; }

bool model_pools(const struct gguf *file) { return file_pooling(file) != 0; }

void model_close(struct model *m)
{
    if (!m) return;
    if (m->device) m->device->close(m->executor);
    tokenizer_close(m->tokenizer);
    tape_free(m->program);
    for (uint32_t i = 0; i < m->n_adapters; i++) gguf_close(m->adapters[i].file);
    free(m->adapters);
    gguf_close(m->file);
    free(m->session_slots);
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(m->session_pages[g].ids);
    free(m);
}
