/* module.c: maps a vetted plugin, holds it to its note, and makes the host's own copy of its structs. The only caller
 * of dlopen.
 *
 * Nothing is ever unmapped: exit handlers, thread-local destructors and registered device code outlive a mapping. */
#include "plugin/vet.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log/log.h"
#include "plugin/call.h"

/* Entries of a table that a plugin may say it has: more are a damaged count, and would be read past the table's end. */
enum { MAX_TABLE = 4096 };

/* What this process has mapped; as long as the process. [main thread] */
struct module {
    struct module *next;
    char digest[65];
    char name[64]; /* of the file */
    int fd;        /* stays open: the dynamic linker knows a library by the path it was opened by, and that
                    * path is the number */
    void *handle;
    struct wk_host host; /* given to init */
    bool started;        /* init has been called; its result and its text: */
    wk_status status;
    char failure[256];
};
static struct module *modules;

static void host_log(void *self, uint32_t level, const char *text)
{
    static const enum log_level levels[] = { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
    const struct module *m = self;
    LOG(level <= WK_LOG_ERROR ? levels[level] : LOG_ERROR, "plugin", text, log_s("plugin", m->name));
}

static const void *host_extension(void *self, const char *id)
{
    (void)self;
    (void)id;
    return NULL; /* ABI 0.1 has none */
}

static wk_status map_copy(struct module *m, const struct vetted *v, const struct wk_err *err)
{
    char path[32];
    m->fd = fcntl(v->memfd, F_DUPFD_CLOEXEC, 3);
    if (m->fd < 0) return wk_fail(err, WK_IO, "cannot keep the copy in memory: %s", strerror(errno));
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", m->fd);
    if (access(path, R_OK) != 0)
        return wk_fail(err, WK_IO, "cannot be mapped: there is no %s; mount /proc where this worker runs", path);
    struct plugin_call call;
    plugin_call_begin(&call, m->name, 0, "constructors");
    m->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    plugin_call_end(&call);
    if (m->handle) {
        plugin_call_mapped(m->name, m->handle);
        return WK_OK;
    }
    const char *why = dlerror();
    return wk_fail(err, WK_INVALID, "cannot be mapped: %s", why ? why : "the dynamic linker gave no reason");
}

/* The module with these bytes, mapped now if it was not before. */
static wk_status map(const struct vetted *v, const char *file_name, uint32_t isa, struct module **out,
                     const struct wk_err *err)
{
    for (*out = modules; *out; *out = (*out)->next)
        if (strcmp((*out)->digest, v->digest) == 0) return WK_OK;
    struct module *m = calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    (void)snprintf(m->name, sizeof m->name, "%.63s", file_name);
    wk_status status = map_copy(m, v, err);
    if (status != WK_OK) {
        if (m->fd >= 0) (void)close(m->fd);
        free(m);
        return status;
    }
    memcpy(m->digest, v->digest, sizeof m->digest);
    m->host = (struct wk_host){ .struct_size = sizeof m->host,
                                .abi_minor = WK_ABI_MINOR,
                                .isa = isa,
                                .self = m,
                                .log = host_log,
                                .extension = host_extension };
    m->next = modules;
    *out = modules = m;
    return WK_OK;
}

/* ---- the exported struct ------------------------------------------------------------------------------- */

#define REQUIRE(p, struct_name, slot)                                                                      \
    do {                                                                                                   \
        if (!(p)->slot) return wk_fail(err, WK_INVALID, struct_name "." #slot " is NULL; it is required"); \
    } while (0)

/* Sizes that a struct from a plugin may say it has. */
static wk_status check_size(uint32_t size, size_t least, const char *what, const struct wk_err *err)
{
    if (size >= least && size % 8 == 0 && size <= 64 * 1024) return WK_OK;
    return wk_fail(err, WK_INVALID, "%s says struct_size %u; at least %zu, a multiple of 8 and at most 65536 expected",
                   what, size, least);
}

/* min(theirs, ours) bytes; what they do not have is zero. */
static void copy_prefix(void *ours, size_t size, const void *theirs, uint32_t their_size)
{
    memcpy(ours, theirs, their_size < size ? their_size : size);
}

static wk_status find_exported(const struct module *m, const struct wk_note_desc *n, const struct wk_plugin **out,
                               const struct wk_err *err)
{
    const struct wk_plugin *p = dlsym(m->handle, WK_PLUGIN_SYMBOL);
    if (!p)
        return wk_fail(err, WK_INVALID,
                       "does not export %s; define it with WORKER_PLUGIN and link with the SDK's plugin.map",
                       WK_PLUGIN_SYMBOL);
    wk_status status = check_size(p->struct_size, sizeof *p, "struct wk_plugin", err);
    if (status != WK_OK) return status;
    REQUIRE(p, "struct wk_plugin", id);
    REQUIRE(p, "struct wk_plugin", claims);
    REQUIRE(p, "struct wk_plugin", name);
    REQUIRE(p, "struct wk_plugin", version);
    const char *differs = strcmp(p->id, n->id)           ? "id"
                          : strcmp(p->claims, n->claims) ? "claims"
                          : p->kind != n->kind           ? "kind"
                          : p->abi_major != n->abi_major || p->abi_minor_min != n->abi_minor_min ||
                                  p->abi_minor_built != n->abi_minor_built
                              ? "ABI version"
                          : p->flags != n->flags                                          ? "flags"
                          : memcmp(p->header_hash, n->header_hash, sizeof p->header_hash) ? "header hash"
                                                                                          : NULL;
    if (differs)
        return wk_fail(err, WK_INVALID,
                       "its exported struct differs from its note in: %s; make both with WORKER_PLUGIN", differs);
    if (p->kind == WK_KIND_ARCH)
        REQUIRE(p, "struct wk_plugin", arch);
    else
        REQUIRE(p, "struct wk_plugin", quant);
    *out = p;
    return WK_OK;
}

/* ---- the host's copy ----------------------------------------------------------------------------------- */

/* One allocation: everything that the host reads through its copy, but for the plugin's own tables and strings. */
struct module_copy {
    struct wk_plugin plugin; /* first: the caller frees the block by it */
    struct wk_arch arch;
    struct wk_quant quant;
    const struct wk_type_cpu *list[VET_MAX_CLAIMS];
    struct wk_type_cpu types[VET_MAX_CLAIMS];
};

static bool type_claimed(const struct claims *c, uint32_t type)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->type[i] == type) return true;
    return false;
}

static wk_status check_key(const struct wk_key *k, uint32_t i, const struct wk_err *err)
{
    if (!k->name) return wk_fail(err, WK_INVALID, "struct wk_key %u: name is NULL", i);
    if (k->type < WK_KEY_U32 || k->type > WK_KEY_BOOL)
        return wk_fail(err, WK_INVALID, "key \"%s\": type %u is unknown", k->name, k->type);
    if (k->type == WK_KEY_TEXT) return WK_OK;
    if (!(k->min <= k->max))
        return wk_fail(err, WK_INVALID, "key \"%s\": its range %g..%g is empty", k->name, k->min, k->max);
    return WK_OK;
}

static wk_status copy_arch(struct module_copy *c, const struct wk_arch *theirs, const struct claims *claims,
                           const struct wk_err *err)
{
    struct wk_arch *a = &c->arch;
    wk_status status = check_size(theirs->struct_size, sizeof *a, "struct wk_arch", err);
    if (status != WK_OK) return status;
    copy_prefix(a, sizeof *a, theirs, theirs->struct_size);
    REQUIRE(a, "struct wk_arch", names);
    REQUIRE(a, "struct wk_arch", open);
    REQUIRE(a, "struct wk_arch", record);
    REQUIRE(a, "struct wk_arch", close);
    if (a->n_names != claims->n)
        return wk_fail(err, WK_INVALID, "struct wk_arch has %u names, its note claims %u", a->n_names, claims->n);
    for (uint32_t i = 0; i < claims->n; i++) {
        uint32_t j = 0;
        while (j < a->n_names && a->names[j] && strcmp(a->names[j], claims->name[i]) != 0) j++;
        if (j == a->n_names || !a->names[j])
            return wk_fail(err, WK_INVALID,
                           "its note claims architecture \"%s\", which struct wk_arch.names does not have",
                           claims->name[i]);
    }
    if (a->n_keys > MAX_TABLE || a->n_aliases > MAX_TABLE || a->n_ignored > MAX_TABLE || a->n_ignored_keys > MAX_TABLE)
        return wk_fail(err, WK_INVALID,
                       "struct wk_arch says %u keys, %u aliases, %u ignored names and %u ignored keys; at most %d of "
                       "each expected",
                       a->n_keys, a->n_aliases, a->n_ignored, a->n_ignored_keys, MAX_TABLE);
    if (a->n_keys) REQUIRE(a, "struct wk_arch", keys);
    if (a->n_aliases) REQUIRE(a, "struct wk_arch", aliases);
    if (a->n_ignored) REQUIRE(a, "struct wk_arch", ignored);
    if (a->n_ignored_keys) REQUIRE(a, "struct wk_arch", ignored_keys);
    for (uint32_t i = 0; i < a->n_keys; i++)
        if ((status = check_key(&a->keys[i], i, err)) != WK_OK) return status;
    for (uint32_t i = 0; i < a->n_aliases; i++)
        if (!a->aliases[i].file_name || !a->aliases[i].name)
            return wk_fail(err, WK_INVALID, "struct wk_arch.aliases[%u] has a NULL name", i);
    for (uint32_t i = 0; i < a->n_ignored; i++)
        if (!a->ignored[i]) return wk_fail(err, WK_INVALID, "struct wk_arch.ignored[%u] is NULL", i);
    for (uint32_t i = 0; i < a->n_ignored_keys; i++)
        if (!a->ignored_keys[i]) return wk_fail(err, WK_INVALID, "struct wk_arch.ignored_keys[%u] is NULL", i);
    c->plugin.arch = a;
    return WK_OK;
}

static wk_status copy_type(struct wk_type_cpu *t, const struct wk_type_cpu *theirs, const struct claims *claims,
                           const struct wk_err *err)
{
    wk_status status = check_size(theirs->struct_size, sizeof *t, "struct wk_type_cpu", err);
    if (status != WK_OK) return status;
    copy_prefix(t, sizeof *t, theirs, theirs->struct_size);
    REQUIRE(t, "struct wk_type_cpu", name);
    REQUIRE(t, "struct wk_type_cpu", tile_bytes);
    REQUIRE(t, "struct wk_type_cpu", scratch_bytes);
    REQUIRE(t, "struct wk_type_cpu", pack);
    REQUIRE(t, "struct wk_type_cpu", unpack);
    REQUIRE(t, "struct wk_type_cpu", dequantize);
    REQUIRE(t, "struct wk_type_cpu", quantize);
    REQUIRE(t, "struct wk_type_cpu", product[WK_ISA_PORTABLE]);
    if (!type_claimed(claims, t->ggml_type))
        return wk_fail(err, WK_INVALID, "type %s: ggml type %u is not in its note's claims", t->name, t->ggml_type);
    if (t->block == 0 || t->block > 65536 || t->block_bytes == 0 || t->block_bytes > 1024 * 1024)
        return wk_fail(err, WK_INVALID,
                       "type %s: %u values in %u bytes is no block (1..65536 values, 1..1048576 bytes)", t->name,
                       t->block, t->block_bytes);
    if (!(t->acts & WK_ACT_F32) || (t->acts & ~(uint32_t)(WK_ACT_F32 | WK_ACT_Q8)))
        return wk_fail(err, WK_INVALID, "type %s: acts 0x%x; WK_ACT_F32 is required, WK_ACT_Q8 allowed", t->name,
                       t->acts);
    for (uint32_t i = 1; i < WK_ISA_COUNT; i++)
        if (!t->product[i]) t->product[i] = t->product[i - 1];
    return WK_OK;
}

static wk_status copy_quant(struct module_copy *c, const struct wk_quant *theirs, const struct claims *claims,
                            const struct wk_err *err)
{
    struct wk_quant *q = &c->quant;
    wk_status status = check_size(theirs->struct_size, sizeof *q, "struct wk_quant", err);
    if (status != WK_OK) return status;
    copy_prefix(q, sizeof *q, theirs, theirs->struct_size);
    REQUIRE(q, "struct wk_quant", types);
    if (q->n_types != claims->n)
        return wk_fail(err, WK_INVALID, "struct wk_quant has %u types, its note claims %u", q->n_types, claims->n);
    for (uint32_t i = 0; i < q->n_types; i++) {
        if (!q->types[i]) return wk_fail(err, WK_INVALID, "struct wk_quant.types[%u] is NULL", i);
        if ((status = copy_type(&c->types[i], q->types[i], claims, err)) != WK_OK) return status;
        for (uint32_t j = 0; j < i; j++)
            if (c->types[j].ggml_type == c->types[i].ggml_type)
                return wk_fail(err, WK_INVALID, "serves ggml type %u twice", c->types[i].ggml_type);
        c->list[i] = &c->types[i];
    }
    q->types = c->list;
    c->plugin.quant = q;
    return WK_OK;
}

/* ---- the three steps ----------------------------------------------------------------------------------- */

static wk_status copy_structs(const struct wk_plugin *theirs, const struct claims *claims, struct module_copy **out,
                              const struct wk_err *err)
{
    struct module_copy *c = calloc(1, sizeof *c);
    if (!c) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    copy_prefix(&c->plugin, sizeof c->plugin, theirs, theirs->struct_size);
    wk_status status = theirs->kind == WK_KIND_ARCH ? copy_arch(c, theirs->arch, claims, err)
                                                    : copy_quant(c, theirs->quant, claims, err);
    if (status == WK_OK)
        *out = c;
    else
        free(c);
    return status;
}

/* init, once for the same bytes, and then the first call that answers a number. */
static wk_status start(struct module *m, const struct module_copy *c, const struct wk_err *err)
{
    if (!m->started) {
        const struct wk_err text = { m->failure, sizeof m->failure };
        m->started = true;
        struct plugin_call call;
        PLUGIN_CALL(&call, c->plugin.init, "init");
        m->status = c->plugin.init ? c->plugin.init(&m->host, &text) : WK_OK;
        plugin_call_end(&call);
        if (m->status != WK_OK && !m->failure[0])
            (void)snprintf(m->failure, sizeof m->failure, "status %d and no text", m->status);
    }
    if (m->status != WK_OK) return wk_fail(err, m->status, "did not start: %s", m->failure);
    for (uint32_t i = 0; i < c->quant.n_types; i++) {
        const struct wk_type_cpu *t = &c->types[i];
        const uint64_t least = (uint64_t)WK_TILE_ROWS * t->block_bytes;
        struct plugin_call call;
        PLUGIN_CALL(&call, t->tile_bytes, "tile_bytes");
        const uint64_t tile = t->tile_bytes(t->block);
        plugin_call_end(&call);
        if (tile % 64 || tile < least || tile > least + least / 8 + 64)
            return wk_fail(err, WK_INVALID,
                           "type %s: tile_bytes(%u) is %" PRIu64 "; a multiple of 64 in %" PRIu64 "..%" PRIu64
                           " expected",
                           t->name, t->block, tile, least, least + least / 8 + 64);
    }
    return WK_OK;
}

/* ---- CUDA modules -------------------------------------------------------------------------------------- */

struct cuda_copy {
    struct wk_quant_cuda quant; /* first: the caller frees the block by it */
    const struct wk_type_cuda *list[VET_MAX_CLAIMS];
    struct wk_type_cuda types[VET_MAX_CLAIMS];
};

static wk_status find_exported_cuda(const struct module *m, const struct wk_note_desc *n,
                                    const struct wk_quant_cuda **out, const struct wk_err *err)
{
    const struct wk_quant_cuda *q = dlsym(m->handle, WK_PLUGIN_CUDA_SYMBOL);
    if (!q)
        return wk_fail(err, WK_INVALID,
                       "does not export %s; define it with WORKER_PLUGIN_CUDA and link with the SDK's plugin-cuda.map",
                       WK_PLUGIN_CUDA_SYMBOL);
    wk_status status = check_size(q->struct_size, sizeof *q, "struct wk_quant_cuda", err);
    if (status != WK_OK) return status;
    REQUIRE(q, "struct wk_quant_cuda", id);
    REQUIRE(q, "struct wk_quant_cuda", types);
    REQUIRE(q, "struct wk_quant_cuda", open);
    REQUIRE(q, "struct wk_quant_cuda", serves);
    REQUIRE(q, "struct wk_quant_cuda", product);
    if (!q->panels != !q->large)
        return wk_fail(err, WK_INVALID, "struct wk_quant_cuda has one of panels and large; expected both or neither");
    const char *differs = strcmp(q->id, n->id)                                            ? "id"
                          : memcmp(q->header_hash, n->header_hash, sizeof q->header_hash) ? "header hash"
                                                                                          : NULL;
    if (differs)
        return wk_fail(err, WK_INVALID,
                       "its exported struct differs from its note in: %s; make both with WORKER_PLUGIN_CUDA", differs);
    *out = q;
    return WK_OK;
}

static wk_status copy_type_cuda(struct wk_type_cuda *t, const struct wk_type_cuda *theirs, const struct claims *claims,
                                const struct wk_err *err)
{
    wk_status status = check_size(theirs->struct_size, sizeof *t, "struct wk_type_cuda", err);
    if (status != WK_OK) return status;
    copy_prefix(t, sizeof *t, theirs, theirs->struct_size);
    REQUIRE(t, "struct wk_type_cuda", tile_bytes);
    REQUIRE(t, "struct wk_type_cuda", pack);
    REQUIRE(t, "struct wk_type_cuda", unpack);
    REQUIRE(t, "struct wk_type_cuda", gather);
    if (!type_claimed(claims, t->ggml_type))
        return wk_fail(err, WK_INVALID, "ggml type %u is not in its note's claims", t->ggml_type);
    return WK_OK;
}

static wk_status copy_quant_cuda(struct cuda_copy *c, const struct wk_quant_cuda *theirs, const struct claims *claims,
                                 const struct wk_err *err)
{
    copy_prefix(&c->quant, sizeof c->quant, theirs, theirs->struct_size);
    if (theirs->n_types != claims->n)
        return wk_fail(err, WK_INVALID, "struct wk_quant_cuda has %u types, its note claims %u", theirs->n_types,
                       claims->n);
    for (uint32_t i = 0; i < claims->n; i++) {
        if (!theirs->types[i]) return wk_fail(err, WK_INVALID, "struct wk_quant_cuda.types[%u] is NULL", i);
        wk_status status = copy_type_cuda(&c->types[i], theirs->types[i], claims, err);
        if (status != WK_OK) return status;
        for (uint32_t j = 0; j < i; j++)
            if (c->types[j].ggml_type == c->types[i].ggml_type)
                return wk_fail(err, WK_INVALID, "serves ggml type %u twice", c->types[i].ggml_type);
        c->list[i] = &c->types[i];
    }
    c->quant.types = c->list;
    return WK_OK;
}

/* The module is the plugin's own: its id, and no type that the plugin does not have. */
static wk_status check_belongs(const struct wk_note_desc *n, const struct claims *claims,
                               const struct wk_plugin *plugin, const struct wk_err *err)
{
    if (n->kind != WK_KIND_QUANT_CUDA)
        return wk_fail(err, WK_INVALID, "is a plugin of kind %u, not a CUDA module (kind %d)", n->kind,
                       WK_KIND_QUANT_CUDA);
    if (strcmp(n->id, plugin->id) != 0) return wk_fail(err, WK_INVALID, "belongs to %s, not to %s", n->id, plugin->id);
    for (uint32_t i = 0; i < claims->n; i++) {
        uint32_t j = 0;
        while (j < plugin->quant->n_types && plugin->quant->types[j]->ggml_type != claims->type[i]) j++;
        if (j == plugin->quant->n_types)
            return wk_fail(err, WK_INVALID, "claims ggml type %u, which its plugin does not serve", claims->type[i]);
    }
    return WK_OK;
}

wk_status module_open_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                           struct wk_quant_cuda **out, const struct wk_err *err)
{
    struct module *m = NULL;
    const struct wk_quant_cuda *theirs = NULL;
    struct cuda_copy *copy = NULL;
    struct claims claims;
    wk_status status = claims_parse(v->note.kind, v->note.claims, &claims, err);
    if (status == WK_OK) status = check_belongs(&v->note, &claims, plugin, err);
    if (status == WK_OK) status = map(v, file_name, 0, &m, err); /* 0: no init that would be told an instruction set */
    if (status == WK_OK) status = find_exported_cuda(m, &v->note, &theirs, err);
    if (status == WK_OK && !(copy = calloc(1, sizeof *copy))) status = wk_fail(err, WK_NO_MEMORY, "out of memory");
    if (status == WK_OK) status = copy_quant_cuda(copy, theirs, &claims, err);
    if (status == WK_OK)
        *out = &copy->quant;
    else
        free(copy);
    return status;
}

/* ---- plugins ------------------------------------------------------------------------------------------- */

wk_status module_open(const struct vetted *v, const char *file_name, uint32_t isa, struct wk_plugin **out,
                      const struct wk_err *err)
{
    struct module *m = NULL;
    const struct wk_plugin *theirs = NULL;
    struct module_copy *copy = NULL;
    struct claims claims;
    wk_status status = claims_parse(v->note.kind, v->note.claims, &claims, err);
    if (status == WK_OK) status = map(v, file_name, isa, &m, err);
    if (status == WK_OK) status = find_exported(m, &v->note, &theirs, err);
    if (status == WK_OK) status = copy_structs(theirs, &claims, &copy, err);
    if (status == WK_OK) status = start(m, copy, err);
    if (status == WK_OK)
        *out = &copy->plugin;
    else
        free(copy);
    return status;
}
