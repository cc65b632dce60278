/* ref.h: what hf:org/name, hf:org/name/FILE and hf:org/name:QUANT mean: the parts of such a reference, the quantization
 * that a file's name tells, and which of a repository's files it names. It touches neither files nor the network, and
 * takes every name as text from outside. [any thread] */
#ifndef HUB_REF_H
#define HUB_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    REF_NAME = 97,        /* bytes of an organization's or a repository's name, with the zero */
    REF_FILE = 1024,      /* of a file's path in its repository, the same */
    REF_QUANT = 32,       /* of a quantization, the same */
    REF_MOST_PARTS = 1000 /* of a split model */
};

struct hub_ref {
    char org[REF_NAME], name[REF_NAME];
    char file[REF_FILE];   /* "": none was named */
    char quant[REF_QUANT]; /* "": none was named */
};

bool ref_is_hub(const char *text); /* it begins with hf: */
/* WK_INVALID: it is no such reference. */
wk_status ref_read(const char *text, struct hub_ref *out, const struct wk_err *err);

/* A relative path that leads nowhere else: parts of 1 to 255 bytes of UTF-8 without control characters and backslashes,
 * none of which begins with a dot. */
bool ref_is_path(const char *path);
/* A .gguf that is no later part of a split model. */
bool ref_begins_model(const char *path);
/* Of a -00002-of-00003.gguf: which part of how many, and the length of the name before that. False: not split. */
bool ref_part(const char *path, uint32_t *part, uint32_t *parts, size_t *stem);
/* The file name without folders, -00001-of-00003 and .gguf. n: its length. */
const char *ref_stem(const char *path, size_t *n);
/* The quantization that a file's name tells, in capitals: "Q4_K_M", "UD-Q4_K_XL"; "": none. */
void ref_quant(const char *path, char out[REF_QUANT]);
/* Is it an image projector or an importance matrix, as repositories have them beside models? */
bool ref_is_companion(const char *path);

/* Which of a repository's files, of whatever kinds, the reference names: *out is the index of the model's only or first
 * file. WK_UNSUPPORTED: none; WK_INVALID: more than one; the text lists what there is, in lines, and says how to name
 * one. */
wk_status ref_choose(const struct hub_ref *ref, const char *const *files, size_t n, size_t *out,
                     const struct wk_err *err);

#endif
