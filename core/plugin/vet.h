/* vet.h: the steps between finding a file and running it, and what they hand to each other. Private to this room.
 *
 *   vet_file          path, file, digest, ELF, note, claims, imports: on a sealed copy in memory, so that what was
 *                     vetted is what is mapped
 *   module_open       maps the copy, compares the exported struct with the note, starts the plugin, copies its structs
 *   module_open_cuda  the same for a quantization plugin's CUDA module; module_open_arch_cuda: an architecture's */
#ifndef CORE_PLUGIN_VET_H
#define CORE_PLUGIN_VET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <worker/plugin.h>
#include <worker/arch_cuda.h>
#include <worker/quant_cuda.h>

enum { VET_MAX_CLAIMS = 256, VET_CLAIMS_TEXT = 8192 }; /* things claimed; bytes of the text that claims them */

struct vetted {
    int memfd;                    /* sealed copy of the file; -1: none */
    char digest[65];              /* of the copy */
    struct wk_note_desc note;     /* as in the file, once it has been read; checked when vet_file returned WK_OK */
    char claims[VET_CLAIMS_TEXT]; /* the note's, terminated; "" as long as it has not been read */
    bool foreign;                 /* it has no note: not ours, and no reason for a warning */
    char warnings[128];           /* "imports exit, fork"; "" */
    const char *rule;             /* after a failure: the rule of sdk/rules.md that is broken, static */
};

/* Who can replace a plugin, its folder or the list of those that are allowed can run code as this user: WK_INVALID
 * where that is neither root nor the user himself. noun: "it" or "its folder". [any thread] */
wk_status vet_owner(const struct stat *st, const char *noun, const struct wk_err *err);

/* Opens a file that is to be mapped as code: an absolute path, no link; file, folder and all folders above written by
 * nobody but root and this user (above, sticky folders such as /tmp will do). *fd: the caller's if it is not negative,
 * also on failure. [any thread] */
wk_status vet_open(const char *path, int *fd, const struct wk_err *err);

/* path: absolute. Texts say what is wrong with the file, without its path. The caller releases *out in every case. [any
 * thread] */
wk_status vet_file(const char *path, struct vetted *out, const struct wk_err *err);
void vet_release(struct vetted *v);
/* WK_INVALID if there is a list of --plugin-digest and the digest is not on it. [any thread] */
wk_status allowed_check(const char digest[65], const struct wk_err *err);
/* Everything of vet_file but path, copy, digest and the list of --plugin-digest. */
wk_status vet_bytes(const uint8_t *bytes, uint64_t size, struct vetted *out, const struct wk_err *err);

/* A note's claims, parsed. */
struct claims {
    uint32_t n;
    uint32_t type[VET_MAX_CLAIMS]; /* kinds QUANT and QUANT_CUDA: ggml types */
    char name[VET_MAX_CLAIMS][64]; /* kind ARCH: architectures */
};
wk_status claims_parse(uint16_t kind, const char *text, struct claims *out, const struct wk_err *err);

/* Maps the copy, checks what the plugin's structs hold against the note and the ABI, starts it, and makes the host's
 * copy of the structs with every slot filled: one block, which the caller frees. Bytes that were mapped before are
 * neither mapped nor started again. file_name: for the plugin's log lines. host: what it is given, alive as long as the
 * process; NULL: what every plugin gets. A failure leaves the rule in v. [main thread] */
wk_status module_open(struct vetted *v, const char *file_name, const struct wk_host *host, struct wk_plugin **out,
                      const struct wk_err *err);
/* The same for the CUDA module of `plugin`, a quantization; nothing of it is called. [main thread] */
wk_status module_open_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                           struct wk_quant_cuda **out, const struct wk_err *err);
/* And for that of an architecture: its custom operations. *out is the module's own, which is never unmapped. */
wk_status module_open_arch_cuda(const struct vetted *v, const char *file_name, const struct wk_plugin *plugin,
                                const struct wk_arch_cuda **out, const struct wk_err *err);

/* Is it the kind of a CUDA module, which is mapped with its plugin on a GPU alone? */
static inline bool kind_is_cuda(uint16_t kind) { return kind == WK_KIND_QUANT_CUDA || kind == WK_KIND_ARCH_CUDA; }

/* Keeps copies of the options of --plugin-option, in the place of what was kept before. [main thread], before a plugin
 * is mapped. */
wk_status plugin_options_keep(const char *const *list, uint32_t n, const struct wk_err *err);

#endif
