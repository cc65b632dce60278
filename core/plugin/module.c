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
#include <strings.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "log/log.h"
#include "plugin/call.h"
#include "plugin/growth.h"
#include "plugin/plugin.h"

/* Entries of a table that a plugin may say it has: more are a damaged count, and would be read past the table's end. */
enum { MAX_TABLE = 4096, MAX_PRODUCTS = 16, MAX_CUSTOMS = 256 };

/* What this process has mapped; as long as the process. [main thread] */
struct module {
    struct module *next;
    char digest[65];
    char name[64]; /* of the file */
    char id[64];
    int fd; /* stays open: the dynamic linker knows a library by the path it was opened by, and that
             * path is the number */
    void *handle;
    struct wk_host host;         /* what every plugin is given */
    const struct wk_host *given; /* that, or what the caller has for it */
    bool started;                /* init has been called; its result and its text: */
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
    return NULL; /* ABI 1.0 has none */
}

static const char *host_option(void *self, const char *key)
{
    const struct module *m = self;
    return plugin_option(m->id, key);
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
static wk_status map(const struct vetted *v, const char *file_name, struct module **out, const struct wk_err *err)
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
    memcpy(m->id, v->note.id, sizeof m->id);
    m->host = (struct wk_host){ .struct_size = sizeof m->host,
                                .abi_minor = WK_ABI_MINOR,
                                .self = m,
                                .log = host_log,
                                .option = host_option,
                                .extension = host_extension };
    m->next = modules;
    *out = modules = m;
    return WK_OK;
}

/* ---- the exported struct ------------------------------------------------------------------------------- */

#define NEED(p, struct_name, slot)                                                                         \
    do {                                                                                                   \
        if (!(p)->slot) return wk_fail(err, WK_INVALID, struct_name "." #slot " is NULL; it is required"); \
    } while (0)
/* `rule` is, here and in the functions below, the rule of sdk/rules.md that is looked at: a failure has broken it. */
#define REQUIRE(p, struct_name, slot) \
    do {                              \
        *rule = "load.slots";         \
        NEED(p, struct_name, slot);   \
    } while (0)

static wk_status copy_struct(void *ours, size_t known, size_t least, const void *theirs, uint64_t size,
                             const char *what, const char **rule, const struct wk_err *err)
{
    const wk_status status = growth_copy(ours, known, least, theirs, size, what, err);
    *rule = status == WK_UNSUPPORTED ? "load.growth" : "load.size";
    return status;
}

static wk_status check_flags(uint64_t flags, uint64_t known, const char *what, const char **rule,
                             const struct wk_err *err)
{
    *rule = "load.growth";
    return growth_flags(flags, known, what, err);
}

/* The exported struct in the host's size, held to the note. */
static wk_status find_exported(const struct module *m, struct vetted *v, struct wk_plugin *p, const struct wk_err *err)
{
    const struct wk_note_desc *n = &v->note;
    const char **rule = &v->rule;
    *rule = "load.symbol";
    const struct wk_plugin *theirs = dlsym(m->handle, WK_PLUGIN_SYMBOL);
    if (!theirs)
        return wk_fail(err, WK_INVALID,
                       "does not export %s; define it with WORKER_PLUGIN and link with the SDK's plugin.map",
                       WK_PLUGIN_SYMBOL);
    wk_status status =
        copy_struct(p, sizeof *p, WK_PLUGIN_SIZE_1_0, theirs, theirs->struct_size, "struct wk_plugin", rule, err);
    if (status != WK_OK) return status;
    REQUIRE(p, "struct wk_plugin", id);
    REQUIRE(p, "struct wk_plugin", claims);
    REQUIRE(p, "struct wk_plugin", name);
    REQUIRE(p, "struct wk_plugin", version);
    const char *differs = strcmp(p->id, n->id)           ? "id"
                          : strcmp(p->claims, v->claims) ? "claims"
                          : p->kind != n->kind           ? "kind"
                          : p->abi_major != n->abi_major || p->abi_minor_min != n->abi_minor_min ||
                                  p->abi_minor_built != n->abi_minor_built
                              ? "ABI version"
                          : p->flags != n->flags                           ? "flags"
                          : memcmp(p->layout, n->layout, sizeof p->layout) ? "layout"
                                                                           : NULL;
    *rule = "load.note";
    if (differs)
        return wk_fail(err, WK_INVALID,
                       "its exported struct differs from its note in: %s; make both with WORKER_PLUGIN", differs);
    if (p->kind == WK_KIND_ARCH) {
        REQUIRE(p, "struct wk_plugin", arch);
        p->quant = NULL; /* what the other kind has means nothing here, and is not looked at */
    } else {
        REQUIRE(p, "struct wk_plugin", quant);
        p->arch = NULL;
    }
    return WK_OK;
}

/* ---- the host's copy ----------------------------------------------------------------------------------- */

/* One allocation: everything that the host reads through its copy, but for the plugin's own tables of names and
 * strings. */
struct module_copy {
    struct wk_plugin plugin; /* first: the caller frees the block by it */
    const struct wk_host *host;
    struct wk_arch arch;
    struct wk_quant quant;
    const struct wk_type_cpu *list[VET_MAX_CLAIMS];
    struct wk_type_cpu types[VET_MAX_CLAIMS];
    struct wk_isa_product products[VET_MAX_CLAIMS][MAX_PRODUCTS];
    struct wk_alias aliases[MAX_TABLE];
    struct wk_key keys[MAX_TABLE];
};

static bool type_claimed(const struct claims *c, uint32_t type)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->type[i] == type) return true;
    return false;
}

/* An array of structs by value: n of `size` bytes each, into n of `known`. */
static wk_status copy_array(void *ours, size_t known, size_t least, const void *theirs, uint32_t n, uint32_t size,
                            const char *what, const char **rule, const struct wk_err *err)
{
    char name[64];
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s[%u]", what, i);
        const wk_status status = copy_struct((char *)ours + i * known, known, least,
                                             (const char *)theirs + (size_t)i * size, size, name, rule, err);
        if (status != WK_OK) return status;
    }
    return WK_OK;
}

static wk_status check_key(const struct wk_key *k, uint32_t i, const char **rule, const struct wk_err *err)
{
    enum { FLAGS = WK_KEY_REQUIRED | WK_KEY_ABSOLUTE | WK_KEY_PER_LAYER | WK_KEY_VARIES | WK_KEY_ARRAY };
    char what[96];
    *rule = "load.keys";
    if (!k->name) return wk_fail(err, WK_INVALID, "struct wk_key %u: name is NULL", i);
    *rule = "load.growth";
    if (k->type < WK_KEY_U32 || k->type > WK_KEY_BOOL)
        return wk_fail(err, WK_UNSUPPORTED, "key \"%s\": this host (ABI %d.%d) does not know its type %u", k->name,
                       WK_ABI_MAJOR, WK_ABI_MINOR, k->type);
    (void)snprintf(what, sizeof what, "key \"%.64s\"", k->name);
    const wk_status status = check_flags(k->flags & 0xffffu, FLAGS, what, rule, err); /* above: WK_KEY_NOT_FOR */
    if (status != WK_OK) return status;
    *rule = "load.keys";
    const uint32_t arrays = k->flags & (WK_KEY_PER_LAYER | WK_KEY_VARIES | WK_KEY_ARRAY);
    if (arrays == WK_KEY_VARIES || (arrays & WK_KEY_ARRAY && arrays != WK_KEY_ARRAY) ||
        (arrays && k->type == WK_KEY_TEXT))
        return wk_fail(err, WK_INVALID,
                       "key \"%s\": flags 0x%x and type %u: WK_KEY_VARIES goes with WK_KEY_PER_LAYER, WK_KEY_ARRAY "
                       "with neither, and none of them with a text",
                       k->name, arrays, k->type);
    if (k->type == WK_KEY_TEXT) return WK_OK;
    if (!(k->min <= k->max))
        return wk_fail(err, WK_INVALID, "key \"%s\": its range %g..%g is empty", k->name, k->min, k->max);
    return WK_OK;
}

static wk_status check_names(const struct wk_arch *a, const struct claims *claims, const char **rule,
                             const struct wk_err *err)
{
    *rule = "load.claims";
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
    return WK_OK;
}

/* The arrays that the host reads through its own copies. */
static wk_status copy_tables(struct module_copy *c, const char **rule, const struct wk_err *err)
{
    struct wk_arch *a = &c->arch;
    *rule = "load.counts";
    if (a->n_keys > MAX_TABLE || a->n_aliases > MAX_TABLE || a->n_ignored > MAX_TABLE || a->n_ignored_keys > MAX_TABLE)
        return wk_fail(err, WK_INVALID,
                       "struct wk_arch says %u keys, %u aliases, %u ignored names and %u ignored keys; at most %d of "
                       "each expected",
                       a->n_keys, a->n_aliases, a->n_ignored, a->n_ignored_keys, MAX_TABLE);
    if (a->n_keys) REQUIRE(a, "struct wk_arch", keys);
    if (a->n_aliases) REQUIRE(a, "struct wk_arch", aliases);
    if (a->n_ignored) REQUIRE(a, "struct wk_arch", ignored);
    if (a->n_ignored_keys) REQUIRE(a, "struct wk_arch", ignored_keys);
    wk_status status = copy_array(c->keys, sizeof *c->keys, WK_KEY_SIZE_1_0, a->keys, a->n_keys, a->key_size,
                                  "struct wk_arch.keys", rule, err);
    if (status == WK_OK)
        status = copy_array(c->aliases, sizeof *c->aliases, WK_ALIAS_SIZE_1_0, a->aliases, a->n_aliases, a->alias_size,
                            "struct wk_arch.aliases", rule, err);
    a->keys = c->keys;
    a->key_size = sizeof *c->keys;
    a->aliases = c->aliases;
    a->alias_size = sizeof *c->aliases;
    return status;
}

static wk_status copy_arch(struct module_copy *c, const struct wk_arch *theirs, const struct claims *claims,
                           const char **rule, const struct wk_err *err)
{
    struct wk_arch *a = &c->arch;
    wk_status status =
        copy_struct(a, sizeof *a, WK_ARCH_SIZE_1_0, theirs, theirs->struct_size, "struct wk_arch", rule, err);
    if (status == WK_OK) status = check_flags(a->flags, 0, "struct wk_arch", rule, err);
    if (status == WK_OK) status = growth_reserved(a->reserved_names, "struct wk_arch.reserved_names", err);
    if (status == WK_OK) status = growth_reserved(a->reserved_ignored, "struct wk_arch.reserved_ignored", err);
    if (status == WK_OK)
        status = growth_reserved(a->reserved_ignored_keys, "struct wk_arch.reserved_ignored_keys", err);
    if (status != WK_OK) return status;
    REQUIRE(a, "struct wk_arch", names);
    REQUIRE(a, "struct wk_arch", open);
    REQUIRE(a, "struct wk_arch", record);
    REQUIRE(a, "struct wk_arch", close);
    if ((status = check_names(a, claims, rule, err)) != WK_OK) return status;
    if ((status = copy_tables(c, rule, err)) != WK_OK) return status;
    for (uint32_t i = 0; i < a->n_keys; i++)
        if ((status = check_key(&a->keys[i], i, rule, err)) != WK_OK) return status;
    *rule = "load.slots";
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

/* Those of instruction sets that the host knows, each once. */
static wk_status copy_products(struct wk_type_cpu *t, struct wk_isa_product *ours, const char **rule,
                               const struct wk_err *err)
{
    uint32_t n = 0;
    bool portable = false;
    *rule = "load.products";
    if (!t->n_products || t->n_products > MAX_PRODUCTS)
        return wk_fail(err, WK_INVALID, "type %s: %u products, 1 to %d expected", t->name, t->n_products, MAX_PRODUCTS);
    for (uint32_t i = 0; i < t->n_products; i++) {
        struct wk_isa_product *p = &ours[n];
        wk_status status =
            copy_struct(p, sizeof *p, WK_ISA_PRODUCT_SIZE_1_0, (const char *)t->products + (size_t)i * t->product_size,
                        t->product_size, "struct wk_isa_product", rule, err);
        if (status == WK_OK) *rule = "load.growth";
        if (status == WK_OK) status = growth_reserved(p->reserved, "struct wk_isa_product.reserved", err);
        if (status != WK_OK) return status;
        *rule = "load.products";
        if (!p->product) return wk_fail(err, WK_INVALID, "type %s: products[%u].product is NULL", t->name, i);
        for (uint32_t j = 0; j < n; j++)
            if (ours[j].isa == p->isa)
                return wk_fail(err, WK_INVALID, "type %s: two products for instruction set %u", t->name, p->isa);
        portable = portable || p->isa == WK_ISA_PORTABLE;
        n += p->isa <= WK_ISA_AVX512;
    }
    if (!portable) return wk_fail(err, WK_INVALID, "type %s: no product for WK_ISA_PORTABLE; it is required", t->name);
    t->products = ours;
    t->n_products = n;
    t->product_size = sizeof *ours;
    return WK_OK;
}

/* A number of ggml's means what ggml means by it: a file of anybody's is read right, and --prefer and `worker quantize`
 * find the type by its name. */
static wk_status check_known_type(const struct wk_type_cpu *t, const struct wk_err *err)
{
    const char *name = gguf_ggml_name(t->ggml_type);
    uint32_t block, bytes;
    if (name && strcasecmp(name, t->name) != 0)
        return wk_fail(err, WK_INVALID, "type %s: ggml type %u is %s; a format of your own takes a number from 1000 on",
                       t->name, t->ggml_type, name);
    if (gguf_ggml_block(t->ggml_type, &block, &bytes) && (t->block != block || t->block_bytes != bytes))
        return wk_fail(err, WK_INVALID, "type %s: %u values in %u bytes; ggml type %u has %u in %u", t->name, t->block,
                       t->block_bytes, t->ggml_type, block, bytes);
    return WK_OK;
}

static wk_status copy_type(struct wk_type_cpu *t, struct wk_isa_product *products, const struct wk_type_cpu *theirs,
                           const struct claims *claims, const char **rule, const struct wk_err *err)
{
    wk_status status =
        copy_struct(t, sizeof *t, WK_TYPE_CPU_SIZE_1_0, theirs, theirs->struct_size, "struct wk_type_cpu", rule, err);
    if (status == WK_OK) status = check_flags(t->flags, 0, "struct wk_type_cpu", rule, err);
    if (status != WK_OK) return status;
    REQUIRE(t, "struct wk_type_cpu", name);
    REQUIRE(t, "struct wk_type_cpu", tile_bytes);
    REQUIRE(t, "struct wk_type_cpu", scratch_bytes);
    REQUIRE(t, "struct wk_type_cpu", pack);
    REQUIRE(t, "struct wk_type_cpu", unpack);
    REQUIRE(t, "struct wk_type_cpu", dequantize);
    REQUIRE(t, "struct wk_type_cpu", quantize);
    REQUIRE(t, "struct wk_type_cpu", products);
    *rule = "load.claims";
    if (!type_claimed(claims, t->ggml_type))
        return wk_fail(err, WK_INVALID, "type %s: ggml type %u is not in its note's claims", t->name, t->ggml_type);
    *rule = "load.type";
    if (t->block == 0 || t->block > 65536 || t->block_bytes == 0 || t->block_bytes > 1024 * 1024)
        return wk_fail(err, WK_INVALID,
                       "type %s: %u values in %u bytes is no block (1..65536 values, 1..1048576 bytes)", t->name,
                       t->block, t->block_bytes);
    if (!(t->activations & WK_ACTIVATION_F32))
        return wk_fail(err, WK_INVALID, "type %s: activations 0x%x; WK_ACTIVATION_F32 is required", t->name,
                       t->activations);
    status =
        check_flags(t->activations, WK_ACTIVATION_F32 | WK_ACTIVATION_Q8, "struct wk_type_cpu.activations", rule, err);
    if (status != WK_OK) return status;
    *rule = "load.known";
    status = check_known_type(t, err);
    return status == WK_OK ? copy_products(t, products, rule, err) : status;
}

static wk_status copy_quant(struct module_copy *c, const struct wk_quant *theirs, const struct claims *claims,
                            const char **rule, const struct wk_err *err)
{
    struct wk_quant *q = &c->quant;
    wk_status status =
        copy_struct(q, sizeof *q, WK_QUANT_SIZE_1_0, theirs, theirs->struct_size, "struct wk_quant", rule, err);
    if (status != WK_OK) return status;
    REQUIRE(q, "struct wk_quant", types);
    *rule = "load.claims";
    if (q->n_types != claims->n)
        return wk_fail(err, WK_INVALID, "struct wk_quant has %u types, its note claims %u", q->n_types, claims->n);
    for (uint32_t i = 0; i < q->n_types; i++) {
        *rule = "load.slots";
        if (!q->types[i]) return wk_fail(err, WK_INVALID, "struct wk_quant.types[%u] is NULL", i);
        if ((status = copy_type(&c->types[i], c->products[i], q->types[i], claims, rule, err)) != WK_OK) return status;
        *rule = "load.claims";
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

static wk_status copy_structs(struct module_copy *c, const struct claims *claims, const char **rule,
                              const struct wk_err *err)
{
    return c->plugin.kind == WK_KIND_ARCH ? copy_arch(c, c->plugin.arch, claims, rule, err)
                                          : copy_quant(c, c->plugin.quant, claims, rule, err);
}

const struct wk_host *plugin_host(const struct wk_plugin *p)
{
    return ((const struct module_copy *)(const void *)p)->host;
}

/* init, once for the same bytes, and then the first call that answers a number. */
static wk_status start(struct module *m, const struct module_copy *c, const char **rule, const struct wk_err *err)
{
    *rule = "load.start";
    if (!m->started) {
        const struct wk_err text = { m->failure, sizeof m->failure };
        m->started = true;
        struct plugin_call call;
        PLUGIN_CALL(&call, c->plugin.init, "init");
        m->status = c->plugin.init ? c->plugin.init(m->given, &text) : WK_OK;
        plugin_call_end(&call);
        if (m->status != WK_OK && !m->failure[0])
            (void)snprintf(m->failure, sizeof m->failure, "status %d and no text", m->status);
    }
    if (m->status != WK_OK) return wk_fail(err, m->status, "did not start: %s", m->failure);
    *rule = "load.type";
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
    if (q->struct_size != sizeof *q)
        return wk_fail(err, WK_INVALID, "struct wk_quant_cuda says it has %u bytes, %zu expected", q->struct_size,
                       sizeof *q);
    NEED(q, "struct wk_quant_cuda", id);
    NEED(q, "struct wk_quant_cuda", types);
    NEED(q, "struct wk_quant_cuda", open);
    NEED(q, "struct wk_quant_cuda", serves);
    NEED(q, "struct wk_quant_cuda", product);
    if (!q->panels != !q->large)
        return wk_fail(err, WK_INVALID, "struct wk_quant_cuda has one of panels and large; expected both or neither");
    if (strcmp(q->id, n->id) != 0)
        return wk_fail(err, WK_INVALID,
                       "its exported struct differs from its note in: id; make both with WORKER_PLUGIN_CUDA");
    *out = q;
    return WK_OK;
}

static wk_status copy_type_cuda(struct wk_type_cuda *t, const struct wk_type_cuda *theirs, const struct claims *claims,
                                const struct wk_err *err)
{
    if (theirs->struct_size != sizeof *t)
        return wk_fail(err, WK_INVALID, "struct wk_type_cuda says it has %u bytes, %zu expected", theirs->struct_size,
                       sizeof *t);
    *t = *theirs;
    NEED(t, "struct wk_type_cuda", tile_bytes);
    NEED(t, "struct wk_type_cuda", pack);
    NEED(t, "struct wk_type_cuda", unpack);
    NEED(t, "struct wk_type_cuda", gather);
    if (!type_claimed(claims, t->ggml_type))
        return wk_fail(err, WK_INVALID, "ggml type %u is not in its note's claims", t->ggml_type);
    return WK_OK;
}

static wk_status copy_quant_cuda(struct cuda_copy *c, const struct wk_quant_cuda *theirs, const struct claims *claims,
                                 const struct wk_err *err)
{
    c->quant = *theirs;
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

static bool has_type(const struct wk_quant *quant, uint32_t type)
{
    for (uint32_t i = 0; i < quant->n_types; i++)
        if (quant->types[i]->ggml_type == type) return true;
    return false;
}

bool plugin_arch_has_name(const struct wk_arch *arch, const char *architecture)
{
    for (uint32_t i = 0; i < arch->n_names; i++)
        if (strcmp(arch->names[i], architecture) == 0) return true;
    return false;
}

/* The module is the plugin's own: of its kind and id, and claims nothing that the plugin does not have. */
static wk_status check_belongs(const struct wk_note_desc *n, const struct claims *claims,
                               const struct wk_plugin *plugin, const struct wk_err *err)
{
    const bool arch = plugin->kind == WK_KIND_ARCH;
    const uint16_t kind = arch ? WK_KIND_ARCH_CUDA : WK_KIND_QUANT_CUDA;
    if (n->kind != kind)
        return wk_fail(err, WK_INVALID, "is a plugin of kind %u, not a CUDA module%s (kind %u)", n->kind,
                       arch ? " of an architecture" : "", kind);
    if (strcmp(n->id, plugin->id) != 0) return wk_fail(err, WK_INVALID, "belongs to %s, not to %s", n->id, plugin->id);
    for (uint32_t i = 0; i < claims->n; i++) {
        if (arch && !plugin_arch_has_name(plugin->arch, claims->name[i]))
            return wk_fail(err, WK_INVALID, "claims architecture %s, which its plugin does not serve", claims->name[i]);
        if (!arch && !has_type(plugin->quant, claims->type[i]))
            return wk_fail(err, WK_INVALID, "claims ggml type %u, which its plugin does not serve", claims->type[i]);
    }
    return WK_OK;
}

/* Maps the module once it is known to be the plugin's. */
static wk_status map_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                          struct claims *claims, struct module **out, const struct wk_err *err)
{
    wk_status status = claims_parse(v->note.kind, v->claims, claims, err);
    if (status == WK_OK) status = check_belongs(&v->note, claims, plugin, err);
    return status == WK_OK ? map(v, file_name, out, err) : status;
}

wk_status module_open_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                           struct wk_quant_cuda **out, const struct wk_err *err)
{
    struct module *m = NULL;
    const struct wk_quant_cuda *theirs = NULL;
    struct cuda_copy *copy = NULL;
    struct claims claims;
    wk_status status = map_cuda(v, file_name, plugin, &claims, &m, err);
    if (status == WK_OK) status = find_exported_cuda(m, &v->note, &theirs, err);
    if (status == WK_OK && !(copy = calloc(1, sizeof *copy))) status = wk_fail(err, WK_NO_MEMORY, "out of memory");
    if (status == WK_OK) status = copy_quant_cuda(copy, theirs, &claims, err);
    if (status == WK_OK)
        *out = &copy->quant;
    else
        free(copy);
    return status;
}

static wk_status find_exported_arch_cuda(const struct module *m, const struct wk_note_desc *n,
                                         const struct wk_arch_cuda **out, const struct wk_err *err)
{
    const struct wk_arch_cuda *a = dlsym(m->handle, WK_ARCH_CUDA_SYMBOL);
    if (!a)
        return wk_fail(err, WK_INVALID,
                       "does not export %s; define it with WORKER_ARCH_CUDA and link with the SDK's plugin-cuda.map",
                       WK_ARCH_CUDA_SYMBOL);
    if (a->struct_size != sizeof *a)
        return wk_fail(err, WK_INVALID, "struct wk_arch_cuda says it has %u bytes, %zu expected", a->struct_size,
                       sizeof *a);
    NEED(a, "struct wk_arch_cuda", id);
    NEED(a, "struct wk_arch_cuda", open);
    NEED(a, "struct wk_arch_cuda", customs);
    if (strcmp(a->id, n->id) != 0)
        return wk_fail(err, WK_INVALID,
                       "its exported struct differs from its note in: id; make both with WORKER_ARCH_CUDA");
    wk_status status = growth_flags(a->flags, 0, "struct wk_arch_cuda", err);
    if (status == WK_OK) status = growth_reserved(a->reserved, "struct wk_arch_cuda.reserved", err);
    if (status != WK_OK) return status;
    if (!a->n_customs || a->n_customs > MAX_CUSTOMS)
        return wk_fail(err, WK_INVALID, "struct wk_arch_cuda has %u custom operations, 1 to %d expected", a->n_customs,
                       MAX_CUSTOMS);
    for (uint32_t i = 0; i < a->n_customs; i++)
        if (!a->customs[i].name || !a->customs[i].run)
            return wk_fail(err, WK_INVALID, "struct wk_arch_cuda.customs[%u] lacks a name or a function", i);
    *out = a;
    return WK_OK;
}

wk_status module_open_arch_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                                const struct wk_arch_cuda **out, const struct wk_err *err)
{
    struct module *m = NULL;
    struct claims claims;
    const wk_status status = map_cuda(v, file_name, plugin, &claims, &m, err);
    return status == WK_OK ? find_exported_arch_cuda(m, &v->note, out, err) : status;
}

/* ---- plugins ------------------------------------------------------------------------------------------- */

wk_status module_open(struct vetted *v, const char *file_name, const struct wk_host *host, struct wk_plugin **out,
                      const struct wk_err *err)
{
    struct module *m = NULL;
    struct claims claims;
    v->rule = "static.claims";
    wk_status status = claims_parse(v->note.kind, v->claims, &claims, err);
    if (status == WK_OK) v->rule = "load.map";
    if (status == WK_OK) status = map(v, file_name, &m, err);
    struct module_copy *copy = status == WK_OK ? calloc(1, sizeof *copy) : NULL;
    if (status == WK_OK && !copy) status = wk_fail(err, WK_NO_MEMORY, "out of memory");
    if (status == WK_OK) status = find_exported(m, v, &copy->plugin, err);
    if (status == WK_OK) status = copy_structs(copy, &claims, &v->rule, err);
    if (status == WK_OK && !m->started) m->given = host ? host : &m->host;
    if (status == WK_OK) copy->host = m->given;
    if (status == WK_OK) status = start(m, copy, &v->rule, err);
    if (status == WK_OK)
        *out = &copy->plugin;
    else
        free(copy);
    return status;
}
