/* registry.c: which folders are looked into, what became of every file, who serves which architecture and type, and
 * with which CUDA module.
 *
 * What a plugin serves is known from its note. It is mapped when any of that is asked for first; then its file is
 * vetted once more, and must be the one that was found. */
#include "plugin/plugin.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "log/log.h"
#include "plugin/vet.h"

enum { MAX_FILES = 4096, MAX_FOLDERS = 64, REASON = 512 };

/* What an entry's note claims: an architecture by its name, or a ggml type, whose name is "". */
struct service {
    char name[64];
    uint32_t type, entry;
};

/* What became of an entry's CUDA module, once somebody asked. */
struct cuda_module {
    bool asked;
    wk_status status;
    char failure[REASON];
    struct wk_quant_cuda *quant;     /* of a quantization; registry's */
    const struct wk_arch_cuda *arch; /* of an architecture; the module's, which is never unmapped */
};

struct folder {
    char *path;
    dev_t device;
    ino_t inode;
};

struct plugin_registry {
    struct plugin_entry *entries;
    uint32_t n_entries;
    struct cuda_module *cuda; /* [n_entries] */
    struct service *services;
    uint32_t n_services;
    struct folder folders[MAX_FOLDERS];
    uint32_t n_folders;
};

static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER; /* of plugins and CUDA modules */

static const char *file_name(const struct plugin_entry *e) { return strrchr(e->path, '/') + 1; }

/* ---- one file ------------------------------------------------------------------------------------------ */

static wk_status no_memory(const struct wk_err *err) { return wk_fail(err, WK_NO_MEMORY, "out of memory"); }

void plugin_entry_clear(struct plugin_entry *e)
{
    free(e->path);
    free(e->reason);
    free(e->claims);
    free(e->warnings);
    free(e->cuda);
    free((void *)(uintptr_t)e->plugin); /* const to everybody else */
}

/* Fills e from what vetting found; e->path is set. Only WK_NO_MEMORY fails. */
static wk_status fill_entry(struct plugin_entry *e, const struct vetted *v, enum plugin_state state, const char *reason,
                            const struct wk_err *err)
{
    e->state = state;
    e->rule = state == PLUGIN_REFUSED ? v->rule : NULL;
    e->note = v->note;
    memcpy(e->digest, v->digest, sizeof e->digest);
    if (!(e->claims = strdup(v->claims))) return no_memory(err);
    if (state != PLUGIN_FOUND && !(e->reason = strdup(reason))) return no_memory(err);
    if (v->warnings[0] && !(e->warnings = strdup(v->warnings))) return no_memory(err);
    return WK_OK;
}

wk_status plugin_inspect(const char *path, struct plugin_entry *entry, const struct wk_err *err)
{
    memset(entry, 0, sizeof *entry);
    struct vetted v;
    char reason[REASON];
    entry->path = strdup(path);
    if (!entry->path) return no_memory(err);
    wk_status status = vet_file(path, &v, &(struct wk_err){ reason, sizeof reason });
    vet_release(&v);
    wk_status filled = fill_entry(entry, &v, status == WK_OK ? PLUGIN_FOUND : PLUGIN_REFUSED, reason, err);
    if (filled != WK_OK) return filled;
    return status == WK_OK ? WK_OK : wk_fail(err, status, "%s: %s", path, reason);
}

static void warn(const char *event, const char *path, const char *reason)
{
    char message[PATH_MAX + REASON];
    (void)snprintf(message, sizeof message, "%s: %s", path, reason);
    LOG(LOG_WARN, event, message, log_s("path", path));
}

static const struct plugin_entry *found_with_id(const struct plugin_registry *r, const char *id)
{
    for (uint32_t i = 0; i < r->n_entries; i++)
        if (r->entries[i].state == PLUGIN_FOUND && strcmp(r->entries[i].note.id, id) == 0) return &r->entries[i];
    return NULL;
}

char *plugin_cuda_path(const char *path)
{
    char *out;
    return asprintf(&out, "%.*s-cuda.so", (int)(strlen(path) - 3), path) < 0 ? NULL : out;
}

/* Its CUDA module, if the file is there. Fails only for lack of memory. */
static wk_status note_cuda(struct plugin_entry *e, const struct wk_err *err)
{
    struct stat st;
    if (e->state != PLUGIN_FOUND) return WK_OK;
    e->cuda = plugin_cuda_path(e->path);
    if (!e->cuda) return no_memory(err);
    if (lstat(e->cuda, &st) == 0) return WK_OK;
    free(e->cuda);
    e->cuda = NULL;
    return WK_OK;
}

/* Vets one file and appends its entry. Fails only for lack of memory. */
static wk_status add_file(struct plugin_registry *r, const char *folder, const char *name, const struct wk_err *err)
{
    struct plugin_entry *e = &r->entries[r->n_entries];
    struct vetted v;
    char reason[REASON] = "";
    const struct wk_err text = { reason, sizeof reason };
    memset(e, 0, sizeof *e);
    e->folder = r->n_folders;
    if (asprintf(&e->path, "%s/%s", folder[1] ? folder : "", name) < 0) {
        e->path = NULL;
        return no_memory(err);
    }
    enum plugin_state state = PLUGIN_FOUND;
    wk_status status = vet_file(e->path, &v, &text);
    if (status == WK_OK && kind_is_cuda(v.note.kind)) {
        v.rule = "cuda.module";
        status = wk_fail(&text, WK_INVALID,
                         "the CUDA module of a plugin, %s; it is loaded as NAME-cuda.so from the folder "
                         "of that plugin's NAME.so",
                         v.note.id);
    }
    if (status == WK_OK) {
        const struct plugin_entry *first = found_with_id(r, v.note.id);
        if (first) {
            state = PLUGIN_SHADOWED;
            (void)wk_fail(&text, WK_OK, "%s has the same id, %s, and comes first", first->path, v.note.id);
        }
    }
    if (status != WK_OK) state = PLUGIN_REFUSED;
    vet_release(&v);
    r->n_entries++;
    if (status != WK_OK && !v.foreign) warn("plugin_refused", e->path, reason);
    if (status == WK_OK && v.warnings[0]) warn("plugin_doubtful", e->path, v.warnings);
    status = fill_entry(e, &v, state, reason, err);
    return status == WK_OK ? note_cuda(e, err) : status;
}

/* ---- folders ------------------------------------------------------------------------------------------- */

static int is_plugin_name(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > 3 && strcmp(d->d_name + n - 3, ".so") == 0;
}

/* Is it the CUDA module of another of these names? They are sorted. */
static bool is_cuda_of_another(const char *name, struct dirent *const *names, int n)
{
    static const char ending[] = "-cuda.so";
    char plugin[NAME_MAX + 1];
    const size_t length = strlen(name), end = sizeof ending - 1;
    if (length <= end || strcmp(name + length - end, ending) != 0) return false;
    (void)snprintf(plugin, sizeof plugin, "%.*s.so", (int)(length - end), name);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i]->d_name, plugin) == 0) return true;
    return false;
}
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static wk_status scan(struct plugin_registry *r, const char *path, const char *from, const struct wk_err *err)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, is_plugin_name, by_name);
    if (n < 0) return wk_fail(err, WK_IO, "cannot read plugin folder %s (%s): %s", path, from, strerror(errno));
    wk_status status = WK_OK;
    if ((uint32_t)n > MAX_FILES - r->n_entries)
        status = wk_fail(err, WK_INVALID, "more than %d plugins; is %s the right folder?", MAX_FILES, path);
    if (status == WK_OK && n > 0) {
        struct plugin_entry *grown = realloc(r->entries, (r->n_entries + (size_t)n) * sizeof *grown);
        if (grown)
            r->entries = grown;
        else
            status = no_memory(err);
    }
    for (int i = 0; i < n && status == WK_OK; i++)
        if (!is_cuda_of_another(names[i]->d_name, names, n)) status = add_file(r, path, names[i]->d_name, err);
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    return status;
}

/* Looks into a folder once. named: by the user, who then wants to know if it is not there. */
static wk_status add_folder(struct plugin_registry *r, const char *path, size_t length, bool named, const char *from,
                            const struct wk_err *err)
{
    struct stat st;
    while (length > 1 && path[length - 1] == '/') length--;
    char *copy = strndup(path, length);
    if (!copy) return no_memory(err);
    wk_status status = WK_OK;
    if (copy[0] != '/')
        status = wk_fail(err, WK_INVALID,
                         "plugin folder \"%s\" (%s) is not an absolute path; plugins are never looked up relative to "
                         "the current folder",
                         copy, from);
    else if (stat(copy, &st) != 0)
        status =
            named ? wk_fail(err, WK_IO, "cannot read plugin folder %s (%s): %s", copy, from, strerror(errno)) : WK_OK;
    else {
        bool seen = false;
        for (uint32_t i = 0; i < r->n_folders; i++)
            seen = seen || (r->folders[i].device == st.st_dev && r->folders[i].inode == st.st_ino);
        if (!seen && r->n_folders == MAX_FOLDERS)
            status = wk_fail(err, WK_INVALID, "more than %d plugin folders", MAX_FOLDERS);
        else if (!seen) {
            r->folders[r->n_folders++] = (struct folder){ copy, st.st_dev, st.st_ino };
            return scan(r, copy, from, err);
        }
    }
    free(copy);
    return status;
}

static wk_status add_path_list(struct plugin_registry *r, const char *list, const struct wk_err *err)
{
    for (const char *p = list;; p++) {
        const size_t n = strcspn(p, ":");
        wk_status status = n ? add_folder(r, p, n, true, "WORKER_PLUGIN_PATH", err) : WK_OK;
        if (status != WK_OK) return status;
        p += n;
        if (!*p) return WK_OK;
    }
}

/* Folders that belong to the executable's own installation or build tree. */
static wk_status add_own_folders(struct plugin_registry *r, const struct wk_err *err)
{
    char exe[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return WK_OK; /* no /proc: nothing could be mapped either, and that says so itself */
    exe[n] = '\0';
    for (int up = 0; up < 2; up++) { /* PREFIX/bin/worker -> PREFIX, BUILD/worker/worker -> BUILD */
        char *slash = strrchr(exe, '/');
        if (!slash) return WK_OK;
        *slash = '\0';
    }
    int length = snprintf(path, sizeof path, "%s/%s/worker/plugins", exe, PLUGIN_LIBDIR);
    wk_status status = add_folder(r, path, (size_t)length, false, "installation", err);
    (void)snprintf(path, sizeof path, "%s/CMakeCache.txt", exe);
    if (status != WK_OK || access(path, F_OK) != 0) return status;
    length = snprintf(path, sizeof path, "%s/plugins", exe);
    return add_folder(r, path, (size_t)length, false, "build tree", err);
}

/* ---- who serves what ----------------------------------------------------------------------------------- */

enum { KEY = 80 };

/* "ggml:12" or "arch:llama", as --prefer and messages write it. */
static void service_key(const struct service *s, char key[KEY])
{
    if (s->name[0])
        (void)snprintf(key, KEY, "arch:%s", s->name);
    else
        (void)snprintf(key, KEY, "ggml:%u", s->type);
}

static wk_status collect_services(struct plugin_registry *r, const struct wk_err *err)
{
    struct claims claims;
    r->services = calloc(r->n_entries ? (size_t)r->n_entries * VET_MAX_CLAIMS : 1, sizeof *r->services);
    if (!r->services) return no_memory(err);
    for (uint32_t i = 0; i < r->n_entries; i++) {
        const struct plugin_entry *e = &r->entries[i];
        if (e->state != PLUGIN_FOUND) continue;
        wk_status status = claims_parse(e->note.kind, e->claims, &claims, err);
        if (status != WK_OK) return status; /* cannot be: it was vetted */
        for (uint32_t j = 0; j < claims.n; j++) {
            struct service *s = &r->services[r->n_services++];
            *s = (struct service){ .type = claims.type[j], .entry = i };
            memcpy(s->name, claims.name[j], sizeof s->name);
        }
    }
    return WK_OK;
}

/* The id that --prefer names for `key`; NULL: none. The last one said wins. */
static const char *preferred(const struct plugin_options *o, const char *key)
{
    const size_t n = strlen(key);
    for (uint32_t i = o->n_prefer; i-- > 0;)
        if (strncmp(o->prefer[i], key, n) == 0 && o->prefer[i][n] == '=') return o->prefer[i] + n + 1;
    return NULL;
}

/* Every --prefer must name something that its plugin serves: a typing error is not a preference. */
static wk_status check_preferences(const struct plugin_registry *r, const struct plugin_options *o,
                                   const struct wk_err *err)
{
    for (uint32_t i = 0; i < o->n_prefer; i++) {
        char key[KEY];
        bool served = false;
        for (uint32_t j = 0; j < r->n_services && !served; j++) {
            const struct service *s = &r->services[j];
            service_key(s, key);
            const size_t n = strlen(key);
            served = strncmp(o->prefer[i], key, n) == 0 && o->prefer[i][n] == '=' &&
                     strcmp(o->prefer[i] + n + 1, r->entries[s->entry].note.id) == 0;
        }
        if (!served)
            return wk_fail(err, WK_INVALID,
                           "--prefer %s: no plugin that was found has this id and serves this; write ggml:NUMBER=ID or "
                           "arch:NAME=ID (see worker plugin list)",
                           o->prefer[i]);
    }
    return WK_OK;
}

/* Leaves of what --prefer decides the service that it prefers. */
static void apply_preferences(struct plugin_registry *r, const struct plugin_options *o)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_services; i++) {
        char key[KEY];
        service_key(&r->services[i], key);
        const char *id = preferred(o, key);
        if (!id || strcmp(id, r->entries[r->services[i].entry].note.id) == 0) r->services[kept++] = r->services[i];
    }
    r->n_services = kept;
}

static bool same_service(const struct service *a, const struct service *b)
{
    return a->type == b->type && strcmp(a->name, b->name) == 0;
}

/* Says of e that `first` serves one of its claims: in `reason` if that leaves nothing of it, else in `warnings`. */
static wk_status tell_shadow(struct plugin_entry *e, const struct service *s, const struct plugin_entry *first,
                             bool whole, const struct wk_err *err)
{
    char key[KEY], *text = NULL;
    char **place = whole ? &e->reason : &e->warnings;
    service_key(s, key);
    if (asprintf(&text, "%s%s%s comes first for %s", *place ? *place : "", *place ? "; " : "", first->path, key) < 0)
        return no_memory(err);
    free(*place);
    *place = text;
    return WK_OK;
}

/* Who of an earlier folder has the service, among the first n; NULL: nobody. */
static const struct plugin_entry *served_before(const struct plugin_registry *r, uint32_t n, const struct service *s)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct plugin_entry *first = &r->entries[r->services[i].entry];
        if (same_service(&r->services[i], s) && first->folder < r->entries[s->entry].folder) return first;
    }
    return NULL;
}

/* Leaves out what a plugin of an earlier folder claims as well. The services are in order of the entries, and these in
 * order of the folders. */
static wk_status shadow_services(struct plugin_registry *r, const struct wk_err *err)
{
    uint32_t kept = 0;
    for (uint32_t i = 0, end; i < r->n_services; i = end) { /* [i, end): those of one entry */
        const uint32_t before = kept, entry = r->services[i].entry;
        uint32_t left = 0; /* said of the entry below, so it is counted first */
        for (end = i; end < r->n_services && r->services[end].entry == entry; end++)
            left += !served_before(r, before, &r->services[end]);
        for (uint32_t k = i; k < end; k++) {
            const struct service s = r->services[k];
            const struct plugin_entry *first = served_before(r, before, &s);
            if (!first) r->services[kept++] = s;
            const wk_status status = first ? tell_shadow(&r->entries[entry], &s, first, left == 0, err) : WK_OK;
            if (status != WK_OK) return status;
        }
        if (left == 0) r->entries[entry].state = PLUGIN_SHADOWED;
    }
    r->n_services = kept;
    return WK_OK;
}

/* Those of `key` that are not refused: the first, and how many. */
static const struct service *candidates(const struct plugin_registry *r, const char *key, uint32_t *n)
{
    const struct service *first = NULL;
    char other[KEY];
    *n = 0;
    for (uint32_t i = 0; i < r->n_services; i++) {
        const struct service *s = &r->services[i];
        service_key(s, other);
        if (strcmp(key, other) != 0 || r->entries[s->entry].state == PLUGIN_REFUSED) continue;
        if (!first) first = s;
        ++*n;
    }
    return first;
}

/* ---- mapping ------------------------------------------------------------------------------------------- */

/* What became of a plugin that was found is in its entry afterwards. reason: why it was refused, without the path. */
static wk_status map_file(struct plugin_entry *e, const struct wk_host *host, char reason[REASON])
{
    const struct wk_err err = { reason, REASON };
    struct vetted v;
    struct wk_plugin *plugin = NULL;
    wk_status status = vet_file(e->path, &v, &err);
    if (status == WK_OK && strcmp(v.digest, e->digest) != 0) {
        v.rule = "static.file";
        status = wk_fail(&err, WK_INVALID, "was changed while this worker ran; start it again");
    }
    if (status == WK_OK) status = module_open(&v, file_name(e), host, &plugin, &err);
    vet_release(&v);
    e->plugin = plugin;
    e->rule = status == WK_OK ? NULL : v.rule;
    e->reason = status == WK_OK ? NULL : strdup(reason);
    e->state = status == WK_OK ? PLUGIN_LOADED : PLUGIN_REFUSED;
    return status;
}

wk_status plugin_try(const char *path, const struct wk_host *host, struct plugin_entry *entry, const struct wk_err *err)
{
    char reason[REASON];
    wk_status status = plugin_inspect(path, entry, err);
    if (status != WK_OK) return status;
    if (kind_is_cuda(entry->note.kind))
        return wk_fail(err, WK_UNSUPPORTED, "%s: the CUDA module of %s, which is mapped with it on a GPU alone", path,
                       entry->note.id);
    status = map_file(entry, host, reason);
    return status == WK_OK ? WK_OK : wk_fail(err, status, "%s: %s", path, reason);
}

/* false: it was refused, now or before. */
static bool map_entry(struct plugin_entry *e)
{
    char reason[REASON];
    if (e->state == PLUGIN_LOADED) return true;
    (void)pthread_mutex_lock(&mapping);
    if (e->state == PLUGIN_FOUND && map_file(e, NULL, reason) != WK_OK) warn("plugin_refused", e->path, reason);
    (void)pthread_mutex_unlock(&mapping);
    return e->state == PLUGIN_LOADED;
}

/* Who serves `key`, mapped; NULL: nobody. */
static const struct plugin_entry *find_server(const struct plugin_registry *r, const char *key)
{
    for (;;) {
        uint32_t n;
        const struct service *s = candidates(r, key, &n);
        if (n != 1) return NULL;
        struct plugin_entry *e = &r->entries[s->entry];
        if (map_entry(e)) return e;
    }
}

/* ---- public -------------------------------------------------------------------------------------------- */

wk_status plugin_registry_open(const struct plugin_options *o, struct plugin_registry **out, const struct wk_err *err)
{
    *out = NULL;
    struct plugin_registry *r = calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    wk_status status = plugin_options_keep(o->given, o->n_given, err);
    for (uint32_t i = 0; i < o->n_dirs && status == WK_OK; i++)
        status = add_folder(r, o->dirs[i], strlen(o->dirs[i]), true, "--plugin-dir", err);
    const char *list = secure_getenv("WORKER_PLUGIN_PATH");
    if (status == WK_OK && list) status = add_path_list(r, list, err);
    if (status == WK_OK) status = add_own_folders(r, err);
    if (status == WK_OK) status = collect_services(r, err);
    if (status == WK_OK) status = check_preferences(r, o, err);
    if (status == WK_OK) apply_preferences(r, o);
    if (status == WK_OK) status = shadow_services(r, err);
    if (status == WK_OK && !(r->cuda = calloc(r->n_entries ? r->n_entries : 1, sizeof *r->cuda)))
        status = no_memory(err);
    if (status == WK_OK)
        *out = r;
    else
        plugin_registry_close(r);
    return status;
}

void plugin_registry_close(struct plugin_registry *r)
{
    if (!r) return;
    for (uint32_t i = 0; i < r->n_entries; i++) plugin_entry_clear(&r->entries[i]);
    for (uint32_t i = 0; r->cuda && i < r->n_entries; i++) free(r->cuda[i].quant);
    for (uint32_t i = 0; i < r->n_folders; i++) free(r->folders[i].path);
    free(r->entries);
    free(r->cuda);
    free(r->services);
    free(r);
}

uint32_t plugin_count(const struct plugin_registry *r) { return r->n_entries; }
const struct plugin_entry *plugin_at(const struct plugin_registry *r, uint32_t i)
{
    return i < r->n_entries ? &r->entries[i] : NULL;
}

const struct wk_arch *plugin_find_arch(const struct plugin_registry *r, const char *architecture,
                                       const struct plugin_entry **who)
{
    char key[KEY];
    if (snprintf(key, sizeof key, "arch:%s", architecture) >= KEY) return NULL;
    const struct plugin_entry *e = find_server(r, key);
    if (e && who) *who = e;
    return e ? e->plugin->arch : NULL;
}

const struct wk_type_cpu *plugin_find_type(const struct plugin_registry *r, uint32_t ggml_type,
                                           const struct plugin_entry **who)
{
    char key[KEY];
    (void)snprintf(key, sizeof key, "ggml:%u", ggml_type);
    const struct plugin_entry *e = find_server(r, key);
    for (uint32_t i = 0; e && i < e->plugin->quant->n_types; i++) {
        if (e->plugin->quant->types[i]->ggml_type != ggml_type) continue;
        if (who) *who = e;
        return e->plugin->quant->types[i];
    }
    return NULL;
}

/* An architecture's name, a type's; where only the plugin knows that and is not mapped: "ggml:200". */
static const char *service_name(const struct plugin_registry *r, const struct service *s, char out[KEY])
{
    const struct plugin_entry *e = &r->entries[s->entry];
    if (s->name[0]) return s->name;
    if (gguf_ggml_name(s->type)) return gguf_ggml_name(s->type);
    for (uint32_t i = 0; e->state == PLUGIN_LOADED && i < e->plugin->quant->n_types; i++)
        if (e->plugin->quant->types[i]->ggml_type == s->type) return e->plugin->quant->types[i]->name;
    service_key(s, out);
    return out;
}

/* Maps the plugin of a type that has no name of ggml's. */
static void learn_name(const struct plugin_registry *r, const struct service *s)
{
    if (!s->name[0] && !gguf_ggml_name(s->type)) (void)plugin_find_type(r, s->type, NULL);
}

/* The type's number by its name; false: nobody claims it. */
static bool type_named(const struct plugin_registry *r, const char *name, uint32_t *type)
{
    char text[KEY];
    for (uint32_t i = 0; i < r->n_services; i++) {
        const struct service *s = &r->services[i];
        learn_name(r, s);
        if (s->name[0] || strcasecmp(service_name(r, s, text), name) != 0) continue;
        *type = s->type;
        return true;
    }
    return false;
}

const char *plugin_type_owner(const struct plugin_registry *r, uint32_t ggml_type)
{
    const struct plugin_entry *who = NULL;
    return plugin_find_type(r, ggml_type, &who) ? who->note.id : "";
}

const struct wk_type_cpu *plugin_find_type_named(const struct plugin_registry *r, const char *name)
{
    uint32_t type;
    return type_named(r, name, &type) ? plugin_find_type(r, type, NULL) : NULL;
}

void plugin_each_name(const struct plugin_registry *r, uint16_t kind, void (*fn)(void *user, const char *name),
                      void *user)
{
    for (uint32_t i = 0; i < r->n_services; i++) {
        char key[KEY], text[KEY];
        uint32_t n;
        const struct service *s = &r->services[i];
        if (!s->name[0] == (kind == WK_KIND_ARCH)) continue;
        learn_name(r, s);
        service_key(s, key);
        if (candidates(r, key, &n) == s && n == 1) fn(user, service_name(r, s, text));
    }
}

/* Of those who claim `key`: two that are not refused, else one that is. */
static bool explain(const struct plugin_registry *r, const char *key, char *text, size_t cap)
{
    const struct plugin_entry *usable[2] = { NULL }, *refused = NULL;
    char other[KEY];
    for (uint32_t i = 0; i < r->n_services; i++) {
        const struct plugin_entry *e = &r->entries[r->services[i].entry];
        service_key(&r->services[i], other);
        if (strcmp(key, other) != 0) continue;
        if (e->state == PLUGIN_REFUSED)
            refused = refused ? refused : e;
        else if (!usable[1])
            usable[usable[0] != NULL] = e;
    }
    if (usable[1])
        (void)snprintf(text, cap, "two plugins serve %s: %s (%s) and %s (%s); choose with --prefer %s=%s", key,
                       usable[0]->note.id, usable[0]->path, usable[1]->note.id, usable[1]->path, key,
                       usable[0]->note.id);
    else if (refused)
        (void)snprintf(text, cap, "%s, which serves %s, was refused: %s", refused->path, key,
                       refused->reason ? refused->reason : "out of memory");
    else
        text[0] = '\0';
    return text[0] != '\0';
}

bool plugin_why_not(const struct plugin_registry *r, const char *key, char *text, size_t cap)
{
    char number[KEY];
    uint32_t type;
    if (strncmp(key, "arch:", 5) != 0 && strncmp(key, "ggml:", 5) != 0 && type_named(r, key, &type)) {
        (void)snprintf(number, sizeof number, "ggml:%u", type);
        key = number;
    }
    return explain(r, key, text, cap);
}

/* Vets and maps the CUDA module at `path` as that of the plugin: *quant or *arch, by its kind. */
static wk_status open_cuda(const char *path, const struct wk_plugin *plugin, struct wk_quant_cuda **quant,
                           const struct wk_arch_cuda **arch, const struct wk_err *err)
{
    const char *name = strrchr(path, '/') + 1;
    struct vetted v;
    wk_status status = vet_file(path, &v, err);
    if (status == WK_OK)
        status = plugin->kind == WK_KIND_ARCH ? module_open_arch_cuda(&v, name, plugin, arch, err)
                                              : module_open_cuda(&v, name, plugin, quant, err);
    vet_release(&v);
    return status;
}

wk_status plugin_try_cuda(const char *path, const struct wk_plugin *plugin, struct wk_quant_cuda **out,
                          const struct wk_err *err)
{
    *out = NULL;
    return open_cuda(path, plugin, out, NULL, err);
}

/* What became of the entry's CUDA module, which is looked into at the first call. */
static const struct cuda_module *cuda_of(const struct plugin_registry *r, const struct plugin_entry *e)
{
    struct cuda_module *m = &r->cuda[e - r->entries];
    (void)pthread_mutex_lock(&mapping);
    if (!m->asked)
        m->status = open_cuda(e->cuda, e->plugin, &m->quant, &m->arch, &(struct wk_err){ m->failure, REASON });
    m->asked = true;
    (void)pthread_mutex_unlock(&mapping);
    return m;
}

wk_status plugin_find_cuda(const struct plugin_registry *r, uint32_t ggml_type, const struct wk_quant_cuda **out,
                           const struct wk_err *err)
{
    *out = NULL;
    const struct plugin_entry *e = NULL;
    const struct wk_type_cpu *t = plugin_find_type(r, ggml_type, &e);
    char text[GGUF_TYPE_TEXT];
    if (!t) return wk_fail(err, WK_UNSUPPORTED, "%s: no plugin serves it", gguf_tensor_type_text(ggml_type, text));
    if (!e->cuda)
        return wk_fail(err, WK_UNSUPPORTED, "ggml type %u (%s): %s has no CUDA kernels: %.*s-cuda.so is not there",
                       ggml_type, t->name, file_name(e), (int)(strlen(e->path) - 3), e->path);
    const struct cuda_module *m = cuda_of(r, e);
    if (m->status != WK_OK)
        return wk_fail(err, m->status, "ggml type %u (%s): %s was refused: %s", ggml_type, t->name, e->cuda,
                       m->failure);
    for (uint32_t i = 0; i < m->quant->n_types; i++) {
        if (m->quant->types[i]->ggml_type != ggml_type) continue;
        *out = m->quant;
        return WK_OK;
    }
    return wk_fail(err, WK_UNSUPPORTED, "ggml type %u (%s): %s has no kernels for this type", ggml_type, t->name,
                   e->cuda);
}

wk_status plugin_find_custom(const struct plugin_registry *r, const char *architecture, const char *name,
                             const struct wk_arch_cuda **module, const struct wk_custom_cuda **out,
                             const struct wk_err *err)
{
    const struct plugin_entry *e = NULL;
    *module = NULL;
    *out = NULL;
    if (!plugin_find_arch(r, architecture, &e))
        return wk_fail(err, WK_UNSUPPORTED, "architecture %s: no plugin serves it", architecture);
    if (!e->cuda)
        return wk_fail(err, WK_UNSUPPORTED, "operation \"%s\": %s has no CUDA code: %.*s-cuda.so is not there", name,
                       file_name(e), (int)(strlen(e->path) - 3), e->path);
    const struct cuda_module *m = cuda_of(r, e);
    if (m->status != WK_OK)
        return wk_fail(err, m->status, "operation \"%s\": %s was refused: %s", name, e->cuda, m->failure);
    for (uint32_t i = 0; i < m->arch->n_customs; i++) {
        if (strcmp(m->arch->customs[i].name, name) != 0) continue;
        *module = m->arch;
        *out = &m->arch->customs[i];
        return WK_OK;
    }
    return wk_fail(err, WK_UNSUPPORTED, "operation \"%s\": %s has no function of this name", name, e->cuda);
}

/* A text that grows as snprintf does: `length` counts what would have been written. */
struct growing {
    char *text;
    size_t cap, length;
};

static void append(struct growing *g, const char *piece)
{
    const size_t n = strlen(piece);
    for (size_t i = 0; i < n && g->length + i + 1 < g->cap; i++) {
        g->text[g->length + i] = piece[i];
        g->text[g->length + i + 1] = '\0';
    }
    g->length += n;
}

int plugin_describe(const struct plugin_registry *r, uint16_t kind, char *text, size_t cap)
{
    struct growing g = { text, cap, 0 };
    if (cap) text[0] = '\0';
    uint32_t last = UINT32_MAX; /* services of one entry lie together */
    for (uint32_t i = 0; i < r->n_services; i++) {
        const struct service *s = &r->services[i];
        char name[KEY];
        if (!s->name[0] == (kind == WK_KIND_ARCH)) continue;
        if (s->entry == last)
            append(&g, ", ");
        else {
            if (last != UINT32_MAX) append(&g, "), ");
            append(&g, file_name(&r->entries[s->entry]));
            append(&g, " (");
        }
        append(&g, service_name(r, s, name));
        last = s->entry;
    }
    if (last != UINT32_MAX)
        append(&g, ")");
    else {
        append(&g, "none (looked into ");
        for (uint32_t i = 0; i < r->n_folders; i++) {
            if (i) append(&g, ", ");
            append(&g, r->folders[i].path);
        }
        append(&g, r->n_folders ? ")" : "no folder; give --plugin-dir)");
    }
    return (int)(g.length < INT_MAX ? g.length : INT_MAX);
}
