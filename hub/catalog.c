/* catalog.c: reads the three places. Ollama's store: manifests/HOST/NAMESPACE/MODEL/TAG are documents that name a blob
 * by its digest; the hub's cache: models--ORG--NAME/refs/main holds the name of a folder in snapshots, whose files are
 * links to blobs. Both are other programs' files: every name in them is text from outside. */
#include "catalog.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "ref.h"

enum {
    MOST_SEEN = 200000,      /* entries of folders */
    MOST_DEPTH = 6,          /* folders within folders */
    MOST_MANIFEST = 1 << 20, /* bytes */
    MOST_LISTED = 20,        /* names in an error's text */
    LINES = 3072
};

const char *catalog_place_name(enum catalog_place place)
{
    static const char *const names[CATALOG_PLACES] = { "folder", "ollama", "hub" };
    return names[place];
}

/* ---- where the places are ------------------------------------------------------------------------------ */

static char *joined(const char *folder, const char *rest)
{
    char *out = NULL;
    return folder && asprintf(&out, "%s/%s", folder, rest) >= 0 ? out : NULL;
}

/* A variable that names a folder absolutely; what else stands there is as good as nothing (XDG). */
static const char *folder_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

char *catalog_folder(const char *given)
{
    if (given) return strdup(given);
    const char *data = folder_variable("XDG_DATA_HOME");
    return data ? joined(data, "worker/models") : joined(folder_variable("HOME"), ".local/share/worker/models");
}

static char *ollama_folder(void)
{
    const char *given = folder_variable("OLLAMA_MODELS");
    return given ? strdup(given) : joined(folder_variable("HOME"), ".ollama/models");
}

static char *hub_folder(void)
{
    const char *cache = folder_variable("HF_HUB_CACHE"), *home = folder_variable("HF_HOME"),
               *xdg = folder_variable("XDG_CACHE_HOME");
    if (cache) return strdup(cache);
    if (home) return joined(home, "hub");
    return xdg ? joined(xdg, "huggingface/hub") : joined(folder_variable("HOME"), ".cache/huggingface/hub");
}

/* ---- entries ------------------------------------------------------------------------------------------- */

/* Takes the three texts over; why NULL: the file is there. False: out of memory. */
static bool add(struct catalog *c, enum catalog_place place, char *name, char *path, char *why)
{
    if (c->n >= CATALOG_MOST) c->cut = true;
    if (name && (path || why) && c->n < CATALOG_MOST) {
        struct catalog_entry *more =
            c->n & (c->n - 1) ? c->entries : realloc(c->entries, (c->n ? 2 * c->n : 1) * sizeof *more);
        if (more) {
            c->entries = more;
            c->entries[c->n++] = (struct catalog_entry){ .place = place, .name = name, .path = path, .why = why };
            return true;
        }
    }
    const bool cut = name && (path || why) && c->n >= CATALOG_MOST;
    free(name);
    free(path);
    free(why);
    return cut;
}

/* Bytes of a model's files. Some that are not there are its problem. */
static bool measure(struct catalog_entry *e)
{
    struct stat st;
    uint32_t part, parts = 1;
    size_t stem;
    const bool split = ref_part(e->path, &part, &parts, &stem);
    if (!split) parts = 1;
    for (uint32_t i = 1; i <= parts && i <= REF_MOST_PARTS; i++) {
        char *path = NULL;
        if (split && asprintf(&path, "%.*s-%05u-of-%05u.gguf", (int)stem, e->path, i, parts) < 0) return false;
        const bool there = stat(path ? path : e->path, &st) == 0 && S_ISREG(st.st_mode);
        free(path);
        if (there) {
            e->bytes += (uint64_t)st.st_size;
            e->files++;
        } else if (!e->why && asprintf(&e->why, "its file %u of %u is not there", i, parts) < 0) {
            return false;
        }
    }
    return true;
}

/* ---- folders with .gguf files -------------------------------------------------------------------------- */

struct walk {
    struct catalog *c;
    enum catalog_place place;
    const char *prefix; /* of names: "hf:ORG/NAME/"; NULL: of the model folder, by depth */
    size_t root;        /* length of the root's path and a / */
    char path[4096];    /* grows and shrinks */
};

/* In the model folder, a file below two folders is what `worker pull` puts there. */
static char *name_file(const struct walk *w)
{
    const char *relative = w->path + w->root, *slash = strchr(relative, '/');
    char *out = NULL;
    size_t n;
    int made;
    if (w->prefix) {
        made = asprintf(&out, "%s%s", w->prefix, relative);
    } else if (slash && strchr(slash + 1, '/')) {
        made = asprintf(&out, "hf:%s", relative);
    } else {
        const char *stem = ref_stem(relative, &n);
        made = asprintf(&out, "%.*s", (int)n, stem);
    }
    return made < 0 ? NULL : out;
}

static bool add_file(struct walk *w)
{
    if (!ref_is_path(w->path + w->root)) return true; /* hidden, or a name that no terminal should see */
    const size_t before = w->c->n;
    return add(w->c, w->place, name_file(w), strdup(w->path), NULL) &&
           (w->c->n == before || measure(&w->c->entries[before]));
}

/* Of the folder in w->path. False: out of memory. Links are followed to files and not to folders: no folder is seen
 * twice. Depth is bounded, so that recursion is. */
static bool walk(struct walk *w, int depth)
{
    const size_t n = strlen(w->path);
    bool ok = true;
    DIR *d = opendir(w->path);
    if (!d) return true; /* what cannot be read holds nothing for us */
    for (const struct dirent *e; ok && (e = readdir(d));) {
        struct stat st, link;
        if (++w->c->seen > MOST_SEEN) w->c->cut = true;
        if (w->c->cut) break;
        if (e->d_name[0] == '.') continue;
        if ((size_t)snprintf(w->path + n, sizeof w->path - n, "/%s", e->d_name) >= sizeof w->path - n) continue;
        if (lstat(w->path, &link) != 0) continue;
        if (S_ISDIR(link.st_mode)) {
            if (depth < MOST_DEPTH) ok = walk(w, depth + 1);
        } else if (ref_begins_model(e->d_name) && stat(w->path, &st) == 0 && S_ISREG(st.st_mode)) {
            ok = add_file(w);
        }
    }
    w->path[n] = '\0';
    (void)closedir(d);
    return ok;
}

static bool walk_from(struct catalog *c, enum catalog_place place, const char *root, const char *prefix)
{
    struct walk w = { .c = c, .place = place, .prefix = prefix };
    const int n = snprintf(w.path, sizeof w.path, "%s", root);
    if (n <= 0 || (size_t)n >= sizeof w.path) return true;
    w.root = (size_t)n + 1;
    return walk(&w, 0);
}

/* ---- Ollama's store ------------------------------------------------------------------------------------ */

/* The digest of the one layer that is a model, in hex[65]; else why. */
static const char *model_layer(const json_t *manifest, char hex[65])
{
    static const char type[] = "application/vnd.ollama.image.model";
    size_t found = 0;
    const json_t *layers = json_object_get(manifest, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *media = json_string_value(json_object_get(layer, "mediaType")),
                   *digest = json_string_value(json_object_get(layer, "digest"));
        if (!media || strcmp(media, type) != 0) continue;
        if (!digest || strncmp(digest, "sha256:", 7) != 0 || strlen(digest) != 71 ||
            strspn(digest + 7, "0123456789abcdef") != 64)
            return "its manifest names no digest of a model";
        if (!found++) (void)snprintf(hex, 65, "%s", digest + 7);
    }
    return found == 1 ? NULL : found ? "it has several model files, which is not served" : "it has no model file here";
}

static bool add_manifest(struct catalog *c, const char *path, char *name)
{
    char hex[65];
    struct stat st;
    char *blob = NULL, *why = NULL;
    const bool small = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MOST_MANIFEST;
    json_t *manifest = small ? json_load_file(path, 0, NULL) : NULL;
    const char *problem = manifest ? model_layer(manifest, hex) : "its manifest cannot be read";
    json_decref(manifest);
    if (problem)
        why = strdup(problem);
    else if (asprintf(&blob, "%s/blobs/sha256-%s", c->folder[CATALOG_OLLAMA], hex) < 0)
        blob = NULL;
    const size_t before = c->n;
    return add(c, CATALOG_OLLAMA, name, blob, why) && (c->n == before || problem || measure(&c->entries[before]));
}

/* HOST/NAMESPACE/MODEL/TAG as Ollama's users write it. */
static char *manifest_name(char part[4][256])
{
    static const char own[] = "registry.ollama.ai";
    char *out = NULL;
    int made;
    if (strcmp(part[0], own) != 0)
        made = asprintf(&out, "ollama:%s/%s/%s:%s", part[0], part[1], part[2], part[3]);
    else if (strcmp(part[1], "library") != 0)
        made = asprintf(&out, "ollama:%s/%s:%s", part[1], part[2], part[3]);
    else
        made = asprintf(&out, "%s:%s", part[2], part[3]);
    return made < 0 ? NULL : out;
}

/* Of four levels of folders, of which `depth` are passed. */
static bool walk_manifests(struct catalog *c, char path[4096], char part[4][256], int depth)
{
    const size_t n = strlen(path);
    bool ok = true;
    DIR *d = opendir(path);
    if (!d) return true;
    for (const struct dirent *e; ok && (e = readdir(d));) {
        if (++c->seen > MOST_SEEN) c->cut = true;
        if (c->cut) break;
        if (!ref_is_path(e->d_name) || strlen(e->d_name) >= sizeof part[0]) continue;
        if ((size_t)snprintf(path + n, 4096 - n, "/%s", e->d_name) >= 4096 - n) continue;
        memcpy(part[depth], e->d_name, strlen(e->d_name) + 1);
        ok = depth == 3 ? add_manifest(c, path, manifest_name(part)) : walk_manifests(c, path, part, depth + 1);
    }
    path[n] = '\0';
    (void)closedir(d);
    return ok;
}

static bool read_ollama(struct catalog *c)
{
    char path[4096], part[4][256];
    const int n = snprintf(path, sizeof path, "%s/manifests", c->folder[CATALOG_OLLAMA]);
    return n <= 0 || (size_t)n >= sizeof path || walk_manifests(c, path, part, 0);
}

/* ---- the hub's cache ----------------------------------------------------------------------------------- */

/* The revision that main was when it was fetched. */
static bool main_revision(const char *repository, char out[128])
{
    char *path = joined(repository, "refs/main");
    FILE *f = path ? fopen(path, "re") : NULL;
    const size_t n = f ? fread(out, 1, 127, f) : 0;
    if (f) (void)fclose(f);
    free(path);
    out[n] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return ref_is_path(out) && !strchr(out, '/');
}

static bool read_repository(struct catalog *c, const char *repository, const char *org, size_t org_len,
                            const char *name)
{
    char revision[128], *snapshot = NULL, *prefix = NULL;
    if (!main_revision(repository, revision)) return true;
    bool ok = asprintf(&snapshot, "%s/snapshots/%s", repository, revision) >= 0;
    if (!ok) snapshot = NULL;
    if (ok && asprintf(&prefix, "hf:%.*s/%s/", (int)org_len, org, name) < 0) {
        ok = false;
        prefix = NULL;
    }
    if (ok) ok = walk_from(c, CATALOG_HUB, snapshot, prefix);
    free(snapshot);
    free(prefix);
    return ok;
}

static bool read_hub(struct catalog *c)
{
    bool ok = true;
    DIR *d = opendir(c->folder[CATALOG_HUB]);
    if (!d) return true;
    for (const struct dirent *e; ok && (e = readdir(d));) {
        const char *org = e->d_name + 8, *dashes = strncmp(e->d_name, "models--", 8) == 0 ? strstr(org, "--") : NULL;
        if (++c->seen > MOST_SEEN) c->cut = true;
        if (c->cut) break;
        if (!dashes || dashes == org || !ref_is_path(e->d_name)) continue;
        char *repository = joined(c->folder[CATALOG_HUB], e->d_name);
        ok = repository && read_repository(c, repository, org, (size_t)(dashes - org), dashes + 2);
        free(repository);
    }
    (void)closedir(d);
    return ok;
}

/* ---- the catalog --------------------------------------------------------------------------------------- */

static int by_place_and_name(const void *a, const void *b)
{
    const struct catalog_entry *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return strcmp(x->name, y->name);
}

wk_status catalog_open(const char *model_dir, struct catalog *out, const struct wk_err *err)
{
    *out = (struct catalog){ .folder = { catalog_folder(model_dir), ollama_folder(), hub_folder() } };
    bool ok = true;
    if (out->folder[CATALOG_FOLDER]) ok = walk_from(out, CATALOG_FOLDER, out->folder[CATALOG_FOLDER], NULL);
    if (ok && out->folder[CATALOG_OLLAMA]) ok = read_ollama(out);
    if (ok && out->folder[CATALOG_HUB]) ok = read_hub(out);
    if (!ok) return wk_fail(err, WK_NO_MEMORY, "no memory for the list of models");
    if (out->n) qsort(out->entries, out->n, sizeof *out->entries, by_place_and_name);
    return WK_OK;
}

void catalog_close(struct catalog *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->entries[i].name);
        free(c->entries[i].path);
        free(c->entries[i].why);
    }
    for (int p = 0; p < CATALOG_PLACES; p++) free(c->folder[p]);
    free(c->entries);
    *c = (struct catalog){ 0 };
}

/* ---- names --------------------------------------------------------------------------------------------- */

bool catalog_is_path(const char *text)
{
    const size_t n = strlen(text);
    if (ref_is_hub(text) || strncmp(text, "ollama:", 7) == 0) return false;
    return strchr(text, '/') || (n >= 5 && strcasecmp(text + n - 5, ".gguf") == 0);
}

/* MODEL of "MODEL:latest" and "ollama:..." of either. */
static bool is_ollama_name(const char *listed, const char *name)
{
    const char *a = strncmp(listed, "ollama:", 7) == 0 ? listed + 7 : listed,
               *b = strncmp(name, "ollama:", 7) == 0 ? name + 7 : name;
    const size_t n = strlen(b);
    return strncmp(a, b, n) == 0 && (!a[n] || strcmp(a + n, ":latest") == 0);
}

static bool is_called(const struct catalog_entry *e, const char *name)
{
    size_t n;
    if (e->place == CATALOG_OLLAMA) return is_ollama_name(e->name, name);
    if (strcmp(e->name, name) == 0) return true;
    const char *stem = ref_stem(e->path, &n);
    return strlen(name) == n && strncmp(stem, name, n) == 0;
}

/* What stands behind hf:ORG/NAME/ of a listed name; NULL: it is of another repository. */
static const char *file_of(const struct catalog_entry *e, const struct hub_ref *ref)
{
    char prefix[2 * REF_NAME + 8];
    const int n = snprintf(prefix, sizeof prefix, "hf:%s/%s/", ref->org, ref->name);
    return e->place != CATALOG_OLLAMA && strncmp(e->name, prefix, (size_t)n) == 0 ? e->name + n : NULL;
}

static void add_line(char *lines, size_t *len, const char *name)
{
    const int n = snprintf(lines + *len, LINES - *len, "  %s\n", name);
    if (n > 0 && (size_t)n < LINES - *len)
        *len += (size_t)n;
    else
        lines[*len] = '\0';
}

static wk_status not_found(const struct catalog *c, const char *name, const struct wk_err *err)
{
    char lines[LINES] = "";
    size_t len = 0;
    for (size_t i = 0; i < c->n && i < MOST_LISTED; i++) add_line(lines, &len, c->entries[i].name);
    if (c->n > MOST_LISTED) add_line(lines, &len, "... (worker list shows all)");
    const char *folder[CATALOG_PLACES];
    for (int p = 0; p < CATALOG_PLACES; p++) folder[p] = c->folder[p] ? c->folder[p] : "(HOME is not set)";
    return wk_fail(err, WK_INVALID,
                   "%s%s%.200s: no model is called that in %.300s (--model-dir), in %.300s (Ollama) or in %.300s (the "
                   "hub's cache); %s",
                   c->n ? "these models are there:\n" : "", lines, name, folder[0], folder[1], folder[2],
                   ref_is_hub(name) ? "worker pull fetches it" : "a file is named by a path, with a / or .gguf");
}

static wk_status ambiguous(const struct catalog *c, const char *name, enum catalog_place place,
                           const struct wk_err *err)
{
    char lines[LINES] = "";
    size_t len = 0, n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->entries[i].place != place || !is_called(&c->entries[i], name)) continue;
        if (++n <= MOST_LISTED) add_line(lines, &len, c->entries[i].path);
    }
    return wk_fail(err, WK_INVALID, "%s%.200s: %zu models are called that: name the file by its path", lines, name, n);
}

/* hf: of one place: the files that it has of the repository, of which one is chosen. */
static wk_status find_hub(const struct catalog *c, const struct hub_ref *ref, enum catalog_place place,
                          const struct catalog_entry **out, const struct wk_err *err)
{
    size_t n = 0, chosen = 0;
    const char **files = malloc((c->n + 1) * sizeof *files);
    const struct catalog_entry **of = malloc((c->n + 1) * sizeof *of);
    wk_status status = files && of ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for the list of models");
    *out = NULL;
    for (size_t i = 0; !status && i < c->n; i++) {
        const char *file = c->entries[i].place == place ? file_of(&c->entries[i], ref) : NULL;
        if (!file) continue;
        files[n] = file;
        of[n++] = &c->entries[i];
    }
    if (!status && n) status = ref_choose(ref, files, n, &chosen, err);
    if (!status && n) *out = of[chosen];
    free(files);
    free(of);
    return status;
}

static wk_status there(const struct catalog_entry *e, const struct wk_err *err)
{
    return e->why ? wk_fail(err, WK_INVALID, "%.200s: %s", e->name, e->why) : WK_OK;
}

wk_status catalog_find(const struct catalog *c, const char *name, const struct catalog_entry **out,
                       const struct wk_err *err)
{
    const bool hub = ref_is_hub(name), ollama = strncmp(name, "ollama:", 7) == 0;
    struct hub_ref ref;
    *out = NULL;
    if (hub) {
        wk_status status = ref_read(name, &ref, err);
        if (status) return status;
    }
    for (int p = 0; p < CATALOG_PLACES; p++) {
        const enum catalog_place place = (enum catalog_place)p;
        const struct catalog_entry *found = NULL;
        size_t n = 0;
        if ((ollama && place != CATALOG_OLLAMA) || (hub && place == CATALOG_OLLAMA)) continue;
        if (hub) {
            wk_status status = find_hub(c, &ref, place, &found, err);
            if (status && status != WK_UNSUPPORTED) return status; /* another place may have it */
            n = found != NULL;
        }
        for (size_t i = 0; !hub && i < c->n; i++) {
            if (c->entries[i].place != place || !is_called(&c->entries[i], name)) continue;
            if (!n++) found = &c->entries[i];
        }
        if (n > 1) return ambiguous(c, name, place, err);
        *out = found;
        if (found) return there(found, err);
    }
    return not_found(c, name, err);
}
