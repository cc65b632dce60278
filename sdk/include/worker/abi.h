/* worker/abi.h: what every plugin and the host agree on before anything else.
 *
 * Versions, status codes, the caller's error buffer, the export macro and the ELF note that the host reads before it
 * maps a plugin. Rules for everything that crosses the boundary: fixed-width integers, pointers and floats only; no
 * implicit padding; a struct is a multiple of 8 bytes.
 *
 * Growth. Within a major version a struct grows at its end alone, a released field keeps its place and its meaning, and
 * zero in a field means "as before". A struct says its size in its first four bytes (arrays of structs by value have
 * their element size beside their pointer). Who receives a struct takes one that is shorter than its own, down to the
 * size that it had in 1.0 (WK_*_SIZE_1_0), and reads what is missing as zero; it takes one that is longer iff the part
 * that it does not know is zero, else it refuses by name. So old and new plugins run in old and new hosts until
 * something new is used. A flag, an enumerator or a kind that a host does not know is refused by name, and so is a
 * field called reserved that is not 0. Enumerators keep their values; those called *_END alone move on. Of a struct
 * that the host gives, a plugin reads the fields that it knows, whatever follows: the host sets a newer field to
 * something that changes a result for such plugins alone as say that they read it. Structs that say no size do not
 * grow, ever: wk_err, wk_value, wk_op (what an operation grows by follows its own fields), blocks of activations.
 *
 * Versions. A plugin sees the names of minor WORKER_ABI_MINOR, which is 0 unless it defines more before the first
 * include, and needs a host of that minor or later; whatever the age of the SDK that it is built with.
 *
 * Threads. Each function says from where it is called. [any thread]: several threads may be inside at one time, also of
 * the same function with the same arguments. [serialised, any one thread]: no two calls of a plugin's functions that
 * say so overlap, and each sees what the one before has written; but it may come from another thread, so memory of a
 * thread is of no use. No plugin starts threads, and none may count on being called by the one that runs main(). */
#ifndef WORKER_ABI_H
#define WORKER_ABI_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#define WK_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define WK_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#define WK_ABI_MAJOR 1
#define WK_ABI_MINOR 1 /* of these headers */
#ifndef WORKER_ABI_MINOR
#define WORKER_ABI_MINOR 0 /* of the oldest host that the plugin runs in */
#endif
#if WORKER_ABI_MINOR > WK_ABI_MINOR
#error "WORKER_ABI_MINOR is newer than this SDK: install a newer one"
#endif

/* Result of every call that can fail. 0 is success; a failed call has written a text into the caller's wk_err. */
typedef int32_t wk_status;
enum {
    WK_OK = 0,
    WK_INVALID = 1,     /* the input is wrong: a file, a number out of range, a shape */
    WK_UNSUPPORTED = 2, /* the input may be right, but nothing loaded serves it */
    WK_NO_MEMORY = 3,   /* memory (host or device) is exhausted */
    WK_IO = 4,          /* the operating system refused: open, read, map */
    WK_INTERNAL = 5,    /* a promise between host and plugin was broken */
    WK_CANCELLED = 6    /* the caller asked to stop */
};

/* Where an error text goes: memory of the caller, valid as long as the caller says; always terminated.
 * A NULL pointer to this struct is allowed everywhere and means "status alone". */
struct wk_err {
    char *text;   /* [cap] bytes, caller's */
    uint64_t cap; /* 0: no text wanted */
};

#if defined(__GNUC__)
#define WK_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#else
#define WK_PRINTF(fmt_index, first_arg)
#endif

/* Write a text and return `status`, so that a failing function can end with `return wk_fail(err, WK_INVALID, "...")`.
 * [any thread] */
WK_PRINTF(3, 4)
static inline wk_status wk_fail(const struct wk_err *err, wk_status status, const char *format, ...)
{
    if (err && err->text && err->cap) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->text, (size_t)err->cap, format, args);
        va_end(args);
    }
    return status;
}

/* Does the struct that the other side gave reach as far as `field`? p: pointer to a struct that begins with
 * struct_size. */
#define WK_HAS(p, type, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))
/* Bytes of a struct up to `field`, its last of some release. */
#define WK_SIZE_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

#if defined(__GNUC__)
#define WK_EXPORT __attribute__((visibility("default")))
#else
#define WK_EXPORT
#endif

/* ---- the host ------------------------------------------------------------------------------------------------ */

enum { WK_LOG_DEBUG = 0, WK_LOG_INFO = 1, WK_LOG_WARN = 2, WK_LOG_ERROR = 3 };

/* What the host gives to init, and to open() of an architecture. Lives as long as the process. */
struct wk_host {
    uint32_t struct_size, abi_minor;
    void *self;
    void (*log)(void *self, uint32_t level, const char *text); /* [any thread]; text is copied */
    /* Value of --plugin-option ID.KEY=VALUE, ID being the plugin's; NULL: not given. An option that was given and is
     * never asked for refuses the start. [any thread]; lives as long as the process. */
    const char *(*option)(void *self, const char *key);
    const void *(*extension)(void *self, const char *id); /* [any thread]; "name/rev" -> const vtable or NULL */
};

/* ---- the ELF note ------------------------------------------------------------------------------------------------
 * Section .note.worker.plugin, name "worker", type WK_NOTE_TYPE. It is also a PT_NOTE segment, so it survives strip;
 * the host reads it with plain file reads and refuses a plugin before any of its code has run. */
#define WK_NOTE_TYPE 0x574b0001u
#define WK_NOTE_NAME "worker"

/* No bit turns one into another. */
enum {
    WK_KIND_ARCH = 1,
    WK_KIND_QUANT = 2,
    WK_KIND_QUANT_CUDA = 4, /* a quantization plugin's kernels: worker/plugin_cuda.h */
    WK_KIND_ARCH_CUDA = 5   /* an architecture's custom operations: worker/plugin_cuda.h */
};

struct wk_note_desc {
    uint32_t desc_size; /* bytes in all, the claims included */
    uint16_t kind;      /* WK_KIND_* */
    uint16_t abi_major; /* *_CUDA: major and minors are those of worker/quant_cuda.h */
    uint16_t abi_minor_min, abi_minor_built;
    uint32_t flags;     /* 0 */
    uint32_t layout[2]; /* low, high half of WK_LAYOUT_* of the kind: 32-bit, since a note is aligned to 4 bytes only */
    uint32_t
        claims_at;     /* bytes from the start to the claims, which end the descriptor; what grows stands before them */
    uint32_t reserved; /* 0 */
    char id[64];       /* "org.worker.llama": reverse domain, [a-z0-9.-], terminated */
    /* what it grows by: 32-bit fields; then, at claims_at: "arch:llama,qwen2" or "ggml:0,1,30" (both QUANT kinds),
     * terminated and filled up with zeros */
};
#define WK_NOTE_DESC_SIZE_1_0 WK_SIZE_TO(struct wk_note_desc, id)
WK_STATIC_ASSERT(WK_NOTE_DESC_SIZE_1_0 == 96, "layout of a note");

/* Head of an ELF note and the fixed part of its descriptor. */
struct wk_note {
    uint32_t namesz, descsz, type; /* Elf64_Nhdr */
    char name[8];                  /* "worker", padded */
    struct wk_note_desc desc;
};
WK_STATIC_ASSERT(offsetof(struct wk_note, desc) == 20, "a descriptor follows the name directly");

#ifdef __cplusplus
}
#endif
#endif
