/* plugin.h: finds, vets, maps and registers plugins. The only room that calls dlopen.
 *
 * A plugin is read before it is run: path, file, ELF header, note, claims and imports are checked with plain file
 * reads, each with its own message. It is mapped when something that it claims is asked for first, never unmapped.
 * What is found, shadowed and refused, and why, can be listed. */
#ifndef CORE_PLUGIN_PLUGIN_H
#define CORE_PLUGIN_PLUGIN_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/plugin.h>
#include <worker/arch_cuda.h>
#include <worker/quant_cuda.h>

#ifdef __cplusplus
#define PLUGIN_ATOMIC /* tests with kernels are C++, which has no _Atomic; the layout is the same, they use one thread \
                       */
#else
#define PLUGIN_ATOMIC _Atomic
#endif

/* FOUND: its file may be mapped; LOADED: it is. */
enum plugin_state { PLUGIN_FOUND = 0, PLUGIN_LOADED, PLUGIN_SHADOWED, PLUGIN_REFUSED };

struct plugin_entry {
    char *path;                            /* absolute; registry's */
    PLUGIN_ATOMIC enum plugin_state state; /* what is below is written before the state that says so */
    char *reason;                          /* shadowed or refused: why, without the path; else NULL; registry's */
    const char *rule;                      /* refused: the rule of sdk/rules.md that it breaks; else NULL; static */
    char *warnings;                        /* "imports exit, fork": loaded in spite of it; NULL: none; registry's */
    char *cuda;                            /* path of its CUDA module, not looked into yet; NULL: none; registry's */
    struct wk_note_desc note;              /* as read from the file; zero if there was none to read */
    uint32_t folder;                       /* place of its folder in the order in which they are looked into */
    char *claims;                          /* the note's; "" if there was none to read; registry's */
    char digest[65];                       /* SHA-256 of the file, hex */
    const struct wk_plugin *plugin;        /* host's normalised copy; NULL unless LOADED */
};

/* Reads a list of --plugin-digest: from now on a file whose SHA-256 is not on it is refused before anything of it is
 * read as a plugin or mapped, CUDA modules as well. list: lines as sha256sum writes them, empty ones and such that
 * begin with '#'; its file belongs to root or this user, who alone may write to it; NULL: from now on there is none. A
 * list that cannot be read, or has another line, is an error that names the line. [main thread], before other calls of
 * this room */
wk_status plugin_allow_only(const char *list, const struct wk_err *err);

struct plugin_registry; /* opaque; [any thread] once opened: whoever maps a plugin holds a lock */

struct plugin_options {
    const char *const *dirs; /* [n_dirs] --plugin-dir, in order */
    uint32_t n_dirs;
    const char *const *prefer; /* [n_prefer] "ggml:12=org.example.q4k" or "arch:llama=org.example.llama" */
    uint32_t n_prefer;
    const char *const *given; /* [n_given] --plugin-option: "org.example.rope.factor=4" */
    uint32_t n_given;
};

/* Looks into --plugin-dir folders, then WORKER_PLUGIN_PATH (colon-separated, secure_getenv), then
 * <prefix>/lib/worker/plugins as found from the executable, then the build tree's own folder if the executable lies in
 * a build tree; in a folder, files *.so in order of their names; NAME-cuda.so beside NAME.so is not one of them, but
 * NAME's CUDA module, left alone until somebody asks for it. A folder named on the command line or in the environment
 * that is not absolute or cannot be read is an error. A plugin that is refused is a warning and an entry; a shared
 * object without our note is an entry alone. What plugins of two folders claim the plugin of the earlier folder serves;
 * a plugin of which nothing is left is shadowed. Nothing is mapped. [main thread], once a process. */
wk_status plugin_registry_open(const struct plugin_options *o, struct plugin_registry **out, const struct wk_err *err);
void plugin_registry_close(struct plugin_registry *r); /* frees the lists; never unmaps; NULL allowed */

uint32_t plugin_count(const struct plugin_registry *r);
const struct plugin_entry *plugin_at(const struct plugin_registry *r, uint32_t i);

/* NULL: nobody serves it: nobody claims it, or two do and --prefer does not decide, or who does was refused when it was
 * mapped. The first call for anything of a plugin maps it. */
const struct wk_arch *plugin_find_arch(const struct plugin_registry *r, const char *architecture,
                                       const struct plugin_entry **who);
bool plugin_arch_has_name(const struct wk_arch *arch, const char *architecture);
const struct wk_type_cpu *plugin_find_type(const struct plugin_registry *r, uint32_t ggml_type,
                                           const struct plugin_entry **who);
/* Id of the plugin that serves the type; "": nobody does. The registry's. */
const char *plugin_type_owner(const struct plugin_registry *r, uint32_t ggml_type);
/* Type by name, as `worker quantize` takes it ("q4_K", any case). */
const struct wk_type_cpu *plugin_find_type_named(const struct plugin_registry *r, const char *name);
/* Why nobody serves what is claimed: "two plugins serve ggml:12: ...". key: "arch:llama", "ggml:12" or a type's name.
 * false, text "": nobody claims it. */
bool plugin_why_not(const struct plugin_registry *r, const char *key, char *text, size_t cap);
/* Calls fn for the name of each architecture (kind WK_KIND_ARCH) or type (WK_KIND_QUANT) that is served, in order of
 * the entries. Maps only plugins of types that have no name of ggml's. */
void plugin_each_name(const struct plugin_registry *r, uint16_t kind, void (*fn)(void *user, const char *name),
                      void *user);
/* The CUDA kernels of a type: of the module beside the plugin that serves it, which is vetted and mapped when first
 * asked for; nothing of it is called. *out lives as long as the registry. WK_UNSUPPORTED: nobody serves the type, or
 * not on CUDA; else what is wrong with the module's file. */
wk_status plugin_find_cuda(const struct plugin_registry *r, uint32_t ggml_type, const struct wk_quant_cuda **out,
                           const struct wk_err *err);
/* The function of a custom operation of the plugin that serves the architecture, in the CUDA module beside it, and the
 * module; as plugin_find_cuda. */
wk_status plugin_find_custom(const struct plugin_registry *r, const char *architecture, const char *name,
                             const struct wk_arch_cuda **module, const struct wk_custom_cuda **out,
                             const struct wk_err *err);
/* "llama.so (llama, qwen2), quant-basic.so (f32, f16)": what was looked at, for refusals. Returns the length as
 * snprintf does. */
int plugin_describe(const struct plugin_registry *r, uint16_t kind, char *text, size_t cap);

/* Is a text of the form of a plugin's id: "org.example.name", lower-case letters, digits, '.', '-', at most 63 of them?
 * [any thread] */
bool plugin_id_ok(const char *id);

/* Vets one file without running it (`worker plugin info`). *entry: filled as far as the file allows, also on failure,
 * when its state is PLUGIN_REFUSED and reason says why; after success PLUGIN_FOUND. plugin_entry_clear in either case.
 * [any thread] */
wk_status plugin_inspect(const char *path, struct plugin_entry *entry, const struct wk_err *err);

/* The same, and then maps and starts it: after success the state is PLUGIN_LOADED. host: what the plugin is given,
 * which lives as long as the process; NULL: what every plugin gets. [main thread] */
wk_status plugin_try(const char *path, const struct wk_host *host, struct plugin_entry *entry,
                     const struct wk_err *err);
/* Frees what an entry that one of these two has filled points to. */
void plugin_entry_clear(struct plugin_entry *entry);

/* Where the CUDA module of the plugin at `path` lies: NAME-cuda.so beside NAME.so. The caller's; NULL: no memory. */
char *plugin_cuda_path(const char *path);
/* Vets and maps the CUDA module at `path` as that of `plugin`, which was mapped; nothing of it is called. The caller
 * frees *out. [main thread] */
wk_status plugin_try_cuda(const char *path, const struct wk_plugin *plugin, struct wk_quant_cuda **out,
                          const struct wk_err *err);

/* What --plugin-option gave plugin `id` for `key`; NULL: nothing. [any thread] */
const char *plugin_option(const char *id, const char *key);
/* WK_INVALID, naming it, if an option was given that no plugin has asked for: called when a model has been opened. */
wk_status plugin_options_all_asked(const struct wk_err *err);
/* What the plugin's host gave it. p: of an entry that is LOADED. */
const struct wk_host *plugin_host(const struct wk_plugin *p);

/* Maps a part of this installation that is no plugin: PREFIX/lib/worker/NAME as found from the executable, or
 * BUILD/lib/worker/NAME in a build tree; its path, owner and permissions are held to what a plugin's are. Never
 * unmapped. WK_UNSUPPORTED: there is none, and where it was looked for. [main thread] */
wk_status plugin_open_own(const char *name, void **handle, const struct wk_err *err);

/* Highest WK_ISA_* that this processor and operating system can run. */
uint32_t plugin_detect_isa(void);
/* "portable", "avx2", "avx512"; "?" for a number that this host does not know. */
const char *plugin_isa_name(uint32_t isa);
/* The WK_ISA_* of that name. WK_INVALID: there is none; WK_UNSUPPORTED: a processor of level `here` does not have it.
 * The text says which it has. [any thread] */
wk_status plugin_isa_named(const char *name, uint32_t here, uint32_t *isa, const struct wk_err *err);

#endif
