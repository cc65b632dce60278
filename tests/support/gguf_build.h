/* gguf_build.h: makes GGUF files in memory for tests: set keys and tensors, replace or drop some, take the bytes or
 * open them.
 *
 * For tests alone: what goes wrong here (memory, a name too long) ends the program with a text. */
#ifndef TESTS_SUPPORT_GGUF_BUILD_H
#define TESTS_SUPPORT_GGUF_BUILD_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/gguf.h"

struct gguf_build;

struct gguf_build *gguf_build_new(const char *architecture); /* with general.architecture set; NULL: without */
void gguf_build_free(struct gguf_build *g);                  /* NULL allowed */

/* A key that is there already gets the new value, of whatever type. */
void gguf_build_u32(struct gguf_build *g, const char *key, uint32_t value);
void gguf_build_i64(struct gguf_build *g, const char *key, int64_t value);
void gguf_build_f32(struct gguf_build *g, const char *key, float value);
void gguf_build_bool(struct gguf_build *g, const char *key, int value);
void gguf_build_str(struct gguf_build *g, const char *key, const char *value);
/* Elements of a fixed size, little-endian, as in the file. */
void gguf_build_array(struct gguf_build *g, const char *key, enum gguf_type element, uint64_t count,
                      const void *elements);
void gguf_build_str_array(struct gguf_build *g, const char *key, const char *const *text, uint64_t count);
/* Copies every key of an open file but the one of its architecture's name. */
void gguf_build_copy_keys(struct gguf_build *g, const struct gguf *from);

/* Rows x cols x slabs as the project says it: ne = [cols, rows, slabs], trailing dimensions of 1 left out. data:
 * `bytes` bytes, copied; NULL: zeros. A tensor that is there already is replaced. */
void gguf_build_tensor(struct gguf_build *g, const char *name, uint32_t ggml_type, uint32_t rows, uint32_t cols,
                       uint32_t slabs, const void *data, size_t bytes);
/* F32; data [slabs * rows * cols] or NULL: zeros. */
void gguf_build_floats(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols, uint32_t slabs,
                       const float *data);
/* F32, made of `seed` alone: a single row is `scale` throughout, as a norm's weights are, others lie evenly in [-scale,
 * scale). */
void gguf_build_noise(struct gguf_build *g, uint32_t seed, const char *name, uint32_t rows, uint32_t cols, float scale);
/* Any dimensions at all, zeros. */
void gguf_build_dims(struct gguf_build *g, const char *name, uint32_t ggml_type, uint32_t n_dims, const uint64_t *ne,
                     size_t bytes);

void gguf_build_drop(struct gguf_build *g, const char *name); /* a key or a tensor; absent is fine */

const void *gguf_build_bytes(struct gguf_build *g, size_t *size); /* g's, until the next call on g */
struct gguf *gguf_build_open(struct gguf_build *g);               /* to be closed before the next call on g */

#endif
