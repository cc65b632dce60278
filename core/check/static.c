/* static.c: what the file says before any code of it runs. The loader's own steps decide, on the file's bytes; here
 * each has its id, and there are some that the loader does not insist on. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "check/internal.h"
#include "plugin/elf.h"
#include "plugin/vet.h"

/* The loader's answer, if it is by this very rule. */
static void run_loader(struct check *c)
{
    struct vetted v;
    char text[CHECK_TEXT] = "";
    if (vet_file(c->options->path, &v, &(struct wk_err){ text, sizeof text }) == WK_OK) return;
    if (strcmp(v.rule, c->def->id) == 0)
        check_fail(c, "%s", text);
    else if (check_find(v.rule) < check_find(c->def->id))
        check_skip(c, "not looked at: the file is refused before, by %s: %.400s", v.rule, text);
}

/* Doubtful imports are warnings of the loader. */
static void run_process(struct check *c)
{
    struct vetted v;
    run_loader(c);
    if (vet_file(c->options->path, &v, NULL) == WK_OK && v.warnings[0])
        check_warn(
            c,
            "%s: expected none of these in a plugin; link it without what calls them, or be sure that it is never "
            "called",
            v.warnings);
}

/* The bytes of the file as the loader sees them; false: it refuses them, and says so under another id. */
static bool view(struct check *c, struct elf_view *elf)
{
    struct vetted v;
    struct stat st;
    if (vet_file(c->options->path, &v, NULL) != WK_OK || fstat(v.memfd, &st) != 0) {
        check_skip(c, "not looked at: the file is refused, by %s", v.rule);
        return false;
    }
    const void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, v.memfd, 0);
    return bytes != MAP_FAILED && elf_check(bytes, (uint64_t)st.st_size, elf, NULL) == WK_OK;
}

/* What old linkers put into every shared object. */
static bool is_linkers(const char *name)
{
    static const char *const names[] = { "_init", "_fini", "_end", "_edata", "__bss_start" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static wk_status count_export(void *user, const char *name)
{
    struct check *c = user;
    static const char *const ours[] = { "worker_plugin_v", "worker_plugin_cuda_v", "worker_arch_cuda_v" };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strncmp(name, ours[i], strlen(ours[i])) == 0) return WK_OK;
    if (!is_linkers(name))
        check_fail(c,
                   "exports %.200s; expected %s alone: another plugin, or a library, may mean something else by that "
                   "name; link it with the SDK's plugin.map",
                   name, WK_PLUGIN_SYMBOL);
    return WK_OK;
}

static void run_exports(struct check *c)
{
    struct elf_view elf;
    char text[256];
    if (!view(c, &elf)) return;
    if (elf_each_export(&elf, count_export, c, &(struct wk_err){ text, sizeof text }) != WK_OK)
        check_warn(c, "what it exports cannot be told: %s", text);
}

static void run_now(struct check *c)
{
    struct elf_view elf;
    bool relro = false;
    if (!view(c, &elf)) return;
    for (uint32_t i = 0; i < elf.n_segments; i++) relro = relro || elf.segment[i].p_type == PT_GNU_RELRO;
    if (!elf.bound_now || !relro)
        check_warn(
            c, "%s; expected both, so that nothing can write to its table of functions: link it with -z relro -z now",
            elf.bound_now ? "has no PT_GNU_RELRO" : "is not bound at once (DF_BIND_NOW)");
}

static const struct check_def checks[] = {
    { "static.file",
      "A plugin is a regular file; it, its folder and all folders above belong to root or to the user who runs the "
      "worker, and nobody else can write to them (a group of the user's own name without other members is nobody "
      "else).",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.digest", "Where there is a list of --plugin-digest, its SHA-256 is on it.", CHECK_OF_ANY, true, NULL,
      run_loader },
    { "static.elf", "It is a whole 64-bit shared object for this machine.", CHECK_OF_ANY, true, NULL, run_loader },
    { "static.code", "No relocations lie in its code, and no segment is both writable and executable.", CHECK_OF_ANY,
      true, NULL, run_loader },
    { "static.stack", "It asks for no executable stack.", CHECK_OF_ANY, true, NULL, run_loader },
    { "static.paths", "It does not say where libraries are looked for, and brings none in by filters or audits.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.note", "It has one note, as WORKER_PLUGIN makes it.", CHECK_OF_ANY, true, NULL, run_loader },
    { "static.version",
      "The major version of its ABI is this worker's, and the oldest minor that it runs with is not newer; of a CUDA "
      "module the version and the layout of quant_cuda.h are this worker's.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.kind", "Its kind is one that this worker knows, and its note has no flag that it does not know.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.id", "Its id has the form org.example.name: lower-case letters, digits, points, hyphens; at most 63.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.claims", "Its claims are arch:a,b or ggml:1,2, nothing twice and at most 256 things.", CHECK_OF_ANY, true,
      NULL, run_loader },
    { "static.libraries",
      "It needs no library but libc, libm, libgcc_s, libstdc++, libpthread, the dynamic linker, libcudart, libcublas "
      "and libcublasLt; a CUDA module also libdl and librt.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.device", "It takes no device memory, makes no stream and synchronizes nothing by functions of CUDA.",
      CHECK_OF_ANY, true, NULL, run_loader },
    { "static.process", "It does not end the process by _exit.", CHECK_OF_ANY, true, NULL, run_process },
    { "static.exports", "It exports one symbol, worker_plugin_v1, worker_plugin_cuda_v0 or worker_arch_cuda_v0.",
      CHECK_OF_ANY, false, NULL, run_exports },
    { "static.now", "It is bound at once, and its tables are read-only afterwards.", CHECK_OF_ANY, false, NULL,
      run_now },
};
CHECK_LIST(checks_static, CHECK_STATIC, checks);
