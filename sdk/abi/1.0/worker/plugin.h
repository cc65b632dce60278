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
#include <worker/layout.h> /* WK_LAYOUT_*: first 64 bits of SHA-256 over the structs of a kind; for people */
#include <worker/quant.h>

#ifdef __cplusplus
extern "C" {
#endif

struct wk_plugin {
    uint32_t struct_size;
    uint16_t kind, abi_major;
    uint16_t abi_minor_min, abi_minor_built;
    uint32_t flags; /* 0 */
    uint32_t layout[2];
    const char *id, *claims;    /* as in the note */
    const char *name, *version; /* for people; static */
    wk_status (*init)(const struct wk_host *host,
                      const struct wk_err *err); /* optional; [serialised, any one thread], once, before all else */
    const struct wk_arch *arch;                  /* kind ARCH, else NULL */
    const struct wk_quant *quant;                /* kind QUANT, else NULL */
    const void *(*extension)(const char *id);    /* optional; [any thread] */
};

#define WK_PLUGIN_SIZE_1_0 WK_SIZE_TO(struct wk_plugin, extension)
#define WK_PLUGIN_SYMBOL "worker_plugin_v1"

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

#define WK_HALVES(x) (uint32_t)((x) & 0xffffffffu), (uint32_t)((x) >> 32)
#define WK_CLAIMS_BYTES(claims_) ((sizeof(claims_) + 3u) / 4u * 4u)
/* The ELF note. id_, claims_: string literals. */
#define WK_DEFINE_NOTE(kind_, major_, minor_min_, minor_, flags_, layout_, id_, claims_) \
    WK_NOTE_SECTION static const struct {                                                \
        struct wk_note head;                                                             \
        char claims[WK_CLAIMS_BYTES(claims_)];                                           \
    } wk_note_ = { { sizeof WK_NOTE_NAME,                                                \
                     sizeof(struct wk_note_desc) + WK_CLAIMS_BYTES(claims_),             \
                     WK_NOTE_TYPE,                                                       \
                     WK_NOTE_NAME,                                                       \
                     { sizeof(struct wk_note_desc) + WK_CLAIMS_BYTES(claims_),           \
                       kind_,                                                            \
                       major_,                                                           \
                       minor_min_,                                                       \
                       minor_,                                                           \
                       flags_,                                                           \
                       { WK_HALVES(layout_) },                                           \
                       sizeof(struct wk_note_desc),                                      \
                       0,                                                                \
                       id_ } },                                                          \
                   claims_ }

#ifdef __cplusplus
#define WK_EXTERN extern "C"
#else
#define WK_EXTERN extern
#endif
#define WK_LAYOUT_OF(kind_) ((kind_) == WK_KIND_ARCH ? WK_LAYOUT_ARCH : WK_LAYOUT_QUANT)

/* ... : further fields of struct wk_plugin as designated initializers, in their order (.name, .version, .init, .arch or
 * .quant, .extension). C, or C++20. */
#define WORKER_PLUGIN(kind_, id_, claims_, ...)                                                                \
    WK_DEFINE_NOTE(kind_, WK_ABI_MAJOR, WORKER_ABI_MINOR, WK_ABI_MINOR, 0, WK_LAYOUT_OF(kind_), id_, claims_); \
    WK_EXTERN WK_EXPORT const struct wk_plugin worker_plugin_v1;                                               \
    const struct wk_plugin worker_plugin_v1 = { .struct_size = sizeof(struct wk_plugin),                       \
                                                .kind = kind_,                                                 \
                                                .abi_major = WK_ABI_MAJOR,                                     \
                                                .abi_minor_min = WORKER_ABI_MINOR,                             \
                                                .abi_minor_built = WK_ABI_MINOR,                               \
                                                .flags = 0,                                                    \
                                                .layout = { WK_HALVES(WK_LAYOUT_OF(kind_)) },                  \
                                                .id = id_,                                                     \
                                                .claims = claims_,                                             \
                                                __VA_ARGS__ }
#endif

#ifdef __cplusplus
}
#endif
#endif
