/* gguf/file.h: what the sources of this room share: the parsed file. */
#ifndef CORE_GGUF_FILE_H
#define CORE_GGUF_FILE_H

#include "gguf/cursor.h"
#include "gguf/gguf.h"
#include "gguf/names.h"

#define GGUF_ALIGNMENT_KEY "general.alignment"
enum { GGUF_DEFAULT_ALIGNMENT = 32, GGUF_MAX_KEY = 256 };

/* One file with its own metadata and its own data section; an unsplit model is one shard. */
struct shard {
    char *path;
    const uint8_t *base; /* [size] */
    uint64_t size;
    void *map;       /* what to unmap; NULL: the bytes are borrowed */
    uint64_t loaded; /* of a mapping: bytes from the start that are private memory, whole pages */
    uint32_t version;
    uint64_t alignment;
    uint64_t data_start; /* byte offset of the data section */
    struct gguf_kv *kv;  /* [n_kv] in file order */
    uint64_t n_kv;
    uint64_t kv_end;   /* byte offset behind the last value */
    struct names keys; /* of kv */
};

struct gguf {
    struct shard *shards; /* [n_shards]; metadata that callers see are those of shard 0 */
    uint32_t n_shards;
    struct gguf_tensor *tensors; /* [n_tensors], shard by shard, each in file order */
    uint64_t n_tensors;
    struct names tensor_names;
};

/* parse.c: reads and validates one shard's header, metadata and tensor table, and appends its tensors to `file`. The
 * cursor stands at byte 0 of `s`. What it allocated belongs to *s and *file, also on failure. */
wk_status gguf_parse(struct gguf *file, struct shard *s, uint32_t shard_index, struct cursor *c);

/* parse.c: is this a legal tensor name: 1..63 bytes, none of them a control character? */
bool gguf_name_ok(struct gguf_str name);
/* parse.c: is this a legal key: 1..256 bytes of printable ASCII? */
bool gguf_key_ok(struct gguf_str key);

/* access.c: an unsigned integer of a shard's own metadata. *present says whether the key exists; *out is 0 if not. */
wk_status gguf_shard_u64(const struct shard *s, const char *key, bool *present, uint64_t *out,
                         const struct wk_err *err);
/* access.c: NULL: absent. */
const struct gguf_kv *gguf_shard_find(const struct shard *s, const char *key);

#endif
