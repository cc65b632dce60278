/* gguf.h: a GGUF file, mapped, parsed and validated; read-only views of its metadata and tensors.
 *
 * Everything is checked before anything is allocated for it: counts and lengths against the bytes that are left, shapes
 * and offsets in checked 64-bit arithmetic, names and keys for uniqueness in linear time. A parsed file's numbers are
 * safe to use; its strings are bytes with a length (not terminated, perhaps not UTF-8). Messages say what was expected,
 * what was found and the byte offset. Block geometry is not known here: who reads a tensor asks gguf_tensor_bytes with
 * the type's geometry.
 *
 * All functions: [any thread]; a `const struct gguf *` may be shared by threads once opened. */
#ifndef CORE_GGUF_GGUF_H
#define CORE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

enum { GGUF_MAX_DIMS = 4, GGUF_MAX_NAME = 63, GGUF_MAX_TENSORS = 10000, GGUF_MAX_KEYS = 65536 };

/* Bytes inside the mapping. */
struct gguf_str {
    const char *data; /* [len], not terminated */
    uint64_t len;
};

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type; /* GGUF_ARRAY: an array of element_type */
    enum gguf_type element_type;
    uint64_t count;  /* elements; 1 unless an array */
    uint64_t offset; /* of the value's first byte in the file; of an array, its first element's */
};

struct gguf_tensor {
    struct gguf_str name;
    uint32_t ggml_type;
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS]; /* ne[0] contiguous; absent dimensions are 1 */
    uint64_t offset;            /* from the data section's start of its shard */
    uint64_t room;              /* bytes up to the next tensor or the section's end */
    uint32_t shard;
};

struct gguf; /* opaque */

/* Opens, maps and validates `path` and, if it is the first of a split file, all its shards. On success *out is the
 * caller's until gguf_close. On failure *out is NULL and err says what, where and what to do. */
wk_status gguf_open(const char *path, struct gguf **out, const struct wk_err *err);
/* The same for one file's bytes in memory, borrowed until gguf_close (tests, fuzzing, the embedded model). `name`
 * appears in messages. */
wk_status gguf_open_memory(const void *bytes, uint64_t size, const char *name, struct gguf **out,
                           const struct wk_err *err);
void gguf_close(struct gguf *file); /* NULL allowed */

const char *gguf_path(const struct gguf *file); /* as given; terminated */
uint32_t gguf_version(const struct gguf *file);
uint64_t gguf_alignment(const struct gguf *file);
uint64_t gguf_file_bytes(const struct gguf *file); /* of all shards */
uint32_t gguf_shard_count(const struct gguf *file);
/* Metadata and tensor table of a shard as they are in its file, from its first byte to where the data begin. */
const void *gguf_header(const struct gguf *file, uint32_t shard, uint64_t *bytes);

uint64_t gguf_kv_count(const struct gguf *file);
const struct gguf_kv *gguf_kv_at(const struct gguf *file, uint64_t i);
const struct gguf_kv *gguf_find(const struct gguf *file, const char *key); /* NULL: absent; O(1) */

/* Typed access; each fails with a text naming key, expected and found type. Integers of any width and sign are accepted
 * where the value fits. *_at: element i of an array (or i = 0 of a scalar). */
wk_status gguf_u64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, uint64_t *out,
                      const struct wk_err *err);
wk_status gguf_i64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, int64_t *out,
                      const struct wk_err *err);
wk_status gguf_f64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, double *out,
                      const struct wk_err *err); /* also from integers */
wk_status gguf_bool_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, bool *out,
                       const struct wk_err *err);
/* The same of one value: an array is refused, however long it is. */
wk_status gguf_u64(const struct gguf *file, const struct gguf_kv *kv, uint64_t *out, const struct wk_err *err);
wk_status gguf_i64(const struct gguf *file, const struct gguf_kv *kv, int64_t *out, const struct wk_err *err);
wk_status gguf_bool(const struct gguf *file, const struct gguf_kv *kv, bool *out, const struct wk_err *err);
/* Strings of an array vary in length: reading them in order 0, 1, 2, ... through a cursor is linear. */
wk_status gguf_str(const struct gguf *file, const struct gguf_kv *kv, struct gguf_str *out, const struct wk_err *err);
struct gguf_strings {
    const struct gguf *file;
    const struct gguf_kv *kv;
    uint64_t next, pos;
};
wk_status gguf_strings_begin(const struct gguf *file, const struct gguf_kv *kv, struct gguf_strings *it,
                             const struct wk_err *err);
bool gguf_strings_next(struct gguf_strings *it, struct gguf_str *out); /* false: at the end */
/* Bytes of a fixed-size array, [count * element size], little-endian, perhaps unaligned; NULL with a text if kv is not
 * such an array. */
const void *gguf_array_bytes(const struct gguf *file, const struct gguf_kv *kv, enum gguf_type element,
                             const struct wk_err *err);
const char *gguf_type_name(enum gguf_type type);
/* Of a tensor: "q4_K" of 12, whether anybody serves it or not; NULL: no type that has a name here. */
const char *gguf_ggml_name(uint32_t ggml_type);
/* From this number on types are nobody's: a file that has tensors of one says in the text GGUF_OWNER_KEY "1000" which
 * plugin's it is. */
#define GGUF_OWN_TYPES 1000u
#define GGUF_OWNER_KEY "worker.type."
/* Values a block of such a type, and bytes of one; false: not known here. Source: ggml. */
bool gguf_ggml_block(uint32_t ggml_type, uint32_t *block, uint32_t *block_bytes);
uint32_t gguf_type_size(enum gguf_type type); /* 0: string and array */

/* Keys that a user accepts although nothing reads them, or though they have a value that is not served: the model is
 * computed as if its file did not have them. */
enum { GGUF_MAX_ACCEPTED = 64 };
struct gguf_accepted {
    const char *const *names; /* [n] full names, the caller's */
    uint32_t n;               /* at most GGUF_MAX_ACCEPTED */
    uint64_t used;            /* bit i: names[i] kept a file from being refused */
};
/* Is the key one of them? Then it is noted as used. accepted NULL: none. */
bool gguf_accepts(struct gguf_accepted *accepted, struct gguf_str key);

uint64_t gguf_tensor_count(const struct gguf *file);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, uint64_t i); /* in file order */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name,
                                           size_t len); /* NULL: absent; O(1) */
/* "iq4_nl"; "ggml type 77" where ggml has no name for the number. Returns out. */
enum { GGUF_TYPE_TEXT = 32 };
const char *gguf_tensor_type_text(uint32_t ggml_type, char out[GGUF_TYPE_TEXT]);
/* Bytes of a tensor whose type has `block` values in `block_bytes`: checked against ne[0] and against the room it has
 * in the file. */
wk_status gguf_tensor_bytes(const struct gguf *file, const struct gguf_tensor *t, uint32_t block, uint32_t block_bytes,
                            uint64_t *out, const struct wk_err *err);
/* First byte in the mapping; valid for the `room` of the tensor, until gguf_close or gguf_release_tensors. */
const void *gguf_tensor_data(const struct gguf *file, const struct gguf_tensor *t);
/* Unmaps the tensors' data, once they are elsewhere: nothing of the file stays mapped, metadata and tensor table can be
 * used as before. Nobody may read tensor data afterwards. Bytes that were borrowed stay. [any thread] */
void gguf_release_tensors(const struct gguf *file);

/* ---- writing (gguf_write.c): used by `worker quantize` and by tests ------------------------------------ */
struct gguf_writer; /* collects metadata and tensor headers, then streams data into a base/result_file.h */
wk_status gguf_writer_open(const char *path, struct gguf_writer **out, const struct wk_err *err);
/* Copies all metadata of `from` except the keys named (NULL-terminated list) and those that describe the layout of its
 * files: general.alignment and split.*. */
wk_status gguf_writer_copy_metadata(struct gguf_writer *w, const struct gguf *from, const char *const *except,
                                    const struct wk_err *err);
wk_status gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value, const struct wk_err *err);
wk_status gguf_writer_str(struct gguf_writer *w, const char *key, const char *value, const struct wk_err *err);
wk_status gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *values, uint64_t n,
                           const struct wk_err *err); /* an array, [n] */
wk_status gguf_writer_tensor(struct gguf_writer *w, struct gguf_str name, uint32_t ggml_type, uint32_t n_dims,
                             const uint64_t *ne, uint64_t bytes, const struct wk_err *err);
/* After the last tensor is declared: data of the tensors in order of declaration, in pieces of any size. */
wk_status gguf_writer_data(struct gguf_writer *w, const void *bytes, uint64_t n, const struct wk_err *err);
wk_status gguf_writer_finish(struct gguf_writer *w,
                             const struct wk_err *err); /* the file appears; w is freed either way */
void gguf_writer_abandon(struct gguf_writer *w);        /* leaves no file; NULL allowed */

#endif
