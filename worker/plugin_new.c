/* plugin_new.c: `worker plugin new arch|quant NAME`: writes a folder with a plugin that builds, runs and is tested.
 *
 * What is written are the files of sdk/template-*, which are built and tested as they are: words of theirs, the name,
 * the id, and the type's number of a format, are replaced in texts and file names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "embed.h"
#include "errors.h"
#include "gguf/gguf.h"
#include "json_out.h"
#include "setup.h"

#define ARCH(file) WORKER_TEMPLATES "/template-arch/" file
EMBED(arch_cmake, ARCH("CMakeLists.txt"));
EMBED(arch_make, ARCH("Makefile"));
EMBED(arch_plugin, ARCH("myarch.c"));
EMBED(arch_model, ARCH("tiny_model.c"));

#define QUANT(file) WORKER_TEMPLATES "/template-quant/" file
EMBED(quant_cmake, QUANT("CMakeLists.txt"));
EMBED(quant_make, QUANT("Makefile"));
EMBED(quant_device, QUANT("format.cuh"));
EMBED(quant_format, QUANT("format.h"));
EMBED(quant_kernels, QUANT("kernels.cu"));
EMBED(quant_module, QUANT("module.c"));
EMBED(quant_plugin, QUANT("myquant.c"));
EMBED(quant_avx2, QUANT("product_avx2.c"));
EMBED(quant_avx512, QUANT("product_avx512.c"));
EMBED(quant_portable, QUANT("product_portable.c"));
EMBED(quant_families, QUANT("products.cu"));
EMBED(quant_products, QUANT("products.h"));
EMBED(quant_reference, QUANT("reference.c"));
EMBED(quant_test, QUANT("test_format.c"));

struct source {
    const char *name;
    const unsigned char *begin, *end;
};
#define SOURCE(name, symbol) { name, worker_##symbol##_begin, worker_##symbol##_end }
static const struct source arch_sources[] = {
    SOURCE("CMakeLists.txt", arch_cmake),
    SOURCE("Makefile", arch_make),
    SOURCE("myarch.c", arch_plugin),
    SOURCE("tiny_model.c", arch_model),
};

static const struct source quant_sources[] = {
    SOURCE("CMakeLists.txt", quant_cmake),    SOURCE("Makefile", quant_make),
    SOURCE("format.cuh", quant_device),       SOURCE("format.h", quant_format),
    SOURCE("kernels.cu", quant_kernels),      SOURCE("module.c", quant_module),
    SOURCE("myquant.c", quant_plugin),        SOURCE("product_avx2.c", quant_avx2),
    SOURCE("product_avx512.c", quant_avx512), SOURCE("product_portable.c", quant_portable),
    SOURCE("products.cu", quant_families),    SOURCE("products.h", quant_products),
    SOURCE("reference.c", quant_reference),   SOURCE("test_format.c", quant_test),
};

/* A template, and the words in it that are replaced. */
static const struct plugin_template {
    const char *kind, *name, *id, *type;
    const struct source *sources;
    size_t n_sources;
} templates[] = {
    { "arch", "myarch", "org.example.myarch", NULL, arch_sources, sizeof arch_sources / sizeof *arch_sources },
    { "quant", "myquant", "org.example.myquant", "23226", quant_sources, sizeof quant_sources / sizeof *quant_sources },
};

enum { NAME_MAX_BYTES = 40, WORDS = 3 };
struct word {
    const char *from, *to;
};
struct job {
    const struct plugin_template *from;
    const char *name, *id;
    char default_id[NAME_MAX_BYTES + 16], type[8];
    struct word words[WORDS];
    int folder; /* of the new plugin */
};

/* ---- names ----------------------------------------------------------------------------------------------------- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Is "NAME.c" a file of a template besides the one that is called so? Its program has this name, too. */
static bool is_source(const struct plugin_template *t, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < t->n_sources; i++) {
        const char *file = t->sources[i].name;
        if (strncmp(file, name, n) == 0 && strcmp(file + n, ".c") == 0 && strcmp(name, t->name) != 0) return true;
    }
    return false;
}

/* The name becomes a file, a target of make and CMake, and what model files say: why it cannot; NULL: it can. */
static const char *why_not(const struct plugin_template *t, const char *name)
{
    static const char *const targets[] = { "all",     "clean",   "edit_cache",    "help", "install",
                                           "package", "plugins", "rebuild_cache", "run",  "test" };
    size_t n = 0;
    while (is_letter(name[n]) || (name[n] >= '0' && name[n] <= '9') || name[n] == '-' || name[n] == '_') n++;
    if (name[n] || !is_letter(name[0]) || n > NAME_MAX_BYTES)
        return "expected a letter and then up to 39 letters, digits, - and _";
    bool taken = is_source(t, name);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) taken = taken || strcmp(name, targets[i]) == 0;
    if (taken) return "CMake, make or a file of the template has this name already";
    if (n > 5 && strcmp(name + n - 5, "-cuda") == 0) return "the ending -cuda is that of a format's CUDA module";
    return NULL;
}

/* org.example.NAME, in the letters that an id may have. */
static void make_id(const char *name, char out[NAME_MAX_BYTES + 16])
{
    char *c = out + sprintf(out, "org.example.");
    for (; *name; name++) *c++ = (char)(*name == '_' ? '-' : *name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    *c = '\0';
}

/* A number of nobody's for a format, from its id: two authors who never met seldom draw the same. FNV-1a. */
static uint32_t own_type(const char *id)
{
    uint32_t h = 2166136261u;
    for (; *id; id++) h = (h ^ (unsigned char)*id) * 16777619u;
    return GGUF_OWN_TYPES + h % (UINT16_MAX + 1 - GGUF_OWN_TYPES);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Writes the text with every word replaced; of two that begin at one place the first in the list. */
static void replace(const struct job *job, const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n;) {
        const struct word *w = job->words;
        while (w < job->words + WORDS &&
               !(w->from && n - i >= strlen(w->from) && !memcmp(text + i, w->from, strlen(w->from))))
            w++;
        if (w < job->words + WORDS) {
            (void)fputs(w->to, out);
            i += strlen(w->from);
        } else {
            (void)fputc(text[i++], out);
        }
    }
}

/* A file's own name, which is short. */
static void replaced_name(const struct job *job, const char *name, char out[128])
{
    memset(out, 0, 128);
    FILE *f = fmemopen(out, 127, "w");
    if (!f) return;
    replace(job, name, strlen(name), f);
    (void)fclose(f);
}

static bool write_file(const struct job *job, const struct source *s)
{
    char name[128];
    replaced_name(job, s->name, name);
    const int fd = openat(job->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        if (fd >= 0) (void)close(fd);
        return false;
    }
    replace(job, (const char *)s->begin, (size_t)(s->end - s->begin), f);
    const bool written = !ferror(f);
    return fclose(f) == 0 && written;
}

static void remove_all(const struct job *job)
{
    char name[128];
    for (size_t i = 0; i < job->from->n_sources; i++) {
        replaced_name(job, job->from->sources[i].name, name);
        (void)unlinkat(job->folder, name, 0);
    }
    (void)rmdir(job->name);
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static int report(const struct job *job, bool json)
{
    char name[128];
    json_t *files = json_array();
    for (size_t i = 0; i < job->from->n_sources; i++) {
        replaced_name(job, job->from->sources[i].name, name);
        if (json)
            (void)json_array_append_new(files, json_string(name));
        else
            (void)printf("%s/%s\n", job->name, name);
    }
    if (json)
        return json_print(json_pack("{s:s, s:s, s:s, s:o}", "folder", job->name, "kind", job->from->kind, "id", job->id,
                                    "files", files));
    json_decref(files);
    (void)printf("\n%s is in %s/. Build and test it:\n\n    cd %s\n    cmake -B build && cmake --build build && ctest "
                 "--test-dir build\n\nor, without CMake:\n\n    make test\n",
                 job->id, job->name, job->name);
    return EXIT_DONE;
}

static int write_folder(struct job *job, bool json)
{
    if (mkdir(job->name, 0755) != 0)
        return fail(CODE_OUTPUT_FAILED, "%s: %s", job->name,
                    errno == EEXIST ? "exists already; choose another name, or remove it" : strerror(errno));
    job->folder = open(job->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool written = job->folder >= 0;
    for (size_t i = 0; written && i < job->from->n_sources; i++) written = write_file(job, &job->from->sources[i]);
    const int why = errno;
    if (!written && job->folder >= 0) remove_all(job);
    if (job->folder >= 0) (void)close(job->folder);
    return written ? report(job, json) : fail(CODE_OUTPUT_FAILED, "%s: %s", job->name, strerror(why));
}

int plugin_new(const struct options *o)
{
    struct job job = { .name = o->operands[2], .id = option_text(o, OPT_PLUGIN_ID) };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        if (strcmp(o->operands[1], templates[i].kind) == 0) job.from = &templates[i];
    if (!job.from) return fail_usage("plugin", "new %.40s: expected arch or quant", o->operands[1]);
    const char *reason = why_not(job.from, job.name);
    if (reason) return fail_usage("plugin", "new: name \"%.80s\": %s", job.name, reason);
    make_id(job.name, job.default_id);
    if (!job.id) job.id = job.default_id;
    if (!plugin_id_ok(job.id))
        return fail_usage("plugin",
                          "--id \"%.80s\": expected org.example.name: lower-case letters, digits, . and -, at most 63",
                          job.id);
    (void)snprintf(job.type, sizeof job.type, "%u", own_type(job.id));
    job.words[0] = (struct word){ job.from->id, job.id };
    job.words[1] = (struct word){ job.from->name, job.name };
    job.words[2] = (struct word){ job.from->type, job.type };
    return write_folder(&job, option_flag(o, OPT_JSON));
}
