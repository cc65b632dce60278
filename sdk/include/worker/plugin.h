/* worker/plugin.h: the one symbol that a plugin exports, and the macro that makes it.
 *
 *     WORKER_PLUGIN(WK_KIND_QUANT, "org.example.q9", "ggml:99", .name = "example", .version = "1.0", .quant =
 *         &my_quant);
 *
 * The macro writes the ELF note and the exported struct from the same words, so the two cannot differ. */
#ifndef WORKER_PLUGIN_H
#define WORKER_PLUGIN_H

#include <worker/abi.h>
#include <worker/arch.h>
#include <worker/hash.h> /* WK_HEADER_HASH: first 64 bits of SHA-256 over the other installed headers */
#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { WK_LOG_DEBUG = 0, WK_LOG_INFO = 1, WK_LOG_WARN = 2, WK_LOG_ERROR = 3 };

/* What the host gives to init. Lives as long as the process. */
struct wk_host {
    uint32_t struct_size, abi_minor;
    uint32_t isa, reserved; /* isa: the WK_ISA_* level that this process uses */
    void *self;
    void (*log)(void *self, uint32_t level, const char *text); /* [any thread]; text is copied */
    const void *(*extension)(void *self, const char *id);      /* [any thread]; "name/rev" -> const vtable or NULL */
};

struct wk_plugin {
    uint32_t struct_size;
    uint16_t kind, abi_major;
    uint16_t abi_minor_min, abi_minor_built;
    uint32_t flags; /* 0 */
    uint32_t header_hash[2];
    const char *id, *claims;    /* as in the note */
    const char *name, *version; /* for people; static */
    wk_status (*init)(const struct wk_host *host,
                      const struct wk_err *err); /* optional; [main thread], once, before anything else */
    const struct wk_arch *arch;                  /* kind ARCH, else NULL */
    const struct wk_quant *quant;                /* kind QUANT, else NULL */
    const void *(*extension)(const char *id);    /* optional; [any thread] */
};

#define WK_PLUGIN_SYMBOL "worker_plugin_v0"

#define WK_HASH_LO ((uint32_t)(WK_HEADER_HASH & 0xffffffffu))
#define WK_HASH_HI ((uint32_t)(WK_HEADER_HASH >> 32))

#if defined(__GNUC__)
#if defined(__has_attribute)
#if __has_attribute(retain)
#define WK_RETAIN __attribute__((retain))
#endif
#endif
#ifndef WK_RETAIN
#define WK_RETAIN
#endif
#if defined(__clang__)
#define WK_NOTE_PLAIN __attribute__((no_sanitize("address"))) /* no red zone inside a section that is read as notes */
#else
#define WK_NOTE_PLAIN
#endif
#define WK_NOTE_SECTION __attribute__((section(".note.worker.plugin"), used, aligned(4))) WK_NOTE_PLAIN WK_RETAIN

/* C only: designated initializers. ... : further fields of struct wk_plugin (.name, .version, .arch or .quant, ...). */
#define WORKER_PLUGIN(kind_, id_, claims_, ...)                                                      \
    WK_NOTE_SECTION static const struct wk_note wk_note_ = { 7,                                      \
                                                             sizeof(struct wk_note_desc),            \
                                                             WK_NOTE_TYPE,                           \
                                                             WK_NOTE_NAME,                           \
                                                             { sizeof(struct wk_note_desc),          \
                                                               kind_,                                \
                                                               WK_ABI_MAJOR,                         \
                                                               0,                                    \
                                                               WK_ABI_MINOR,                         \
                                                               0,                                    \
                                                               { WK_HASH_LO, WK_HASH_HI },           \
                                                               id_,                                  \
                                                               claims_ } };                          \
    extern const struct wk_plugin worker_plugin_v0;                                                  \
    WK_EXPORT const struct wk_plugin worker_plugin_v0 = { .struct_size = sizeof(struct wk_plugin),   \
                                                          .kind = kind_,                             \
                                                          .abi_major = WK_ABI_MAJOR,                 \
                                                          .abi_minor_min = 0,                        \
                                                          .abi_minor_built = WK_ABI_MINOR,           \
                                                          .flags = 0,                                \
                                                          .header_hash = { WK_HASH_LO, WK_HASH_HI }, \
                                                          .id = id_,                                 \
                                                          .claims = claims_,                         \
                                                          __VA_ARGS__ }
#endif

#ifdef __cplusplus
}
#endif
#endif
