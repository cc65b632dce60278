/* model_ref.h: which file a model_ref means. Only files below one folder are ever named, whatever a client sends. */
#ifndef SERVE_MODEL_REF_H
#define SERVE_MODEL_REF_H

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_PATH_MAX = 4096 };

/* `ref` is hf:org/name/file.gguf, hf:org/name (the one model in that folder), or a path in `dir`, relative or beginning
 * with dir. dir: absolute, NULL: nothing can be resolved. No "..", no symbolic link anywhere below dir, regular files
 * alone. False: why, for the client. [any thread] */
bool model_ref_resolve(const char *dir, const char *ref, char out[MODEL_PATH_MAX], char *why, size_t cap);

#endif
