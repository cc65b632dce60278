/* gguf_write.c: writes a GGUF v3 file: metadata and tensor headers are collected, then tensor data stream through.
 *
 * The file appears when it is complete and on disk (base/result_file.h), so nobody ever sees half a model. Tensors lie
 * one after another in order of declaration, each padded to 32 bytes. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/result_file.h"
#include "gguf/file.h"

struct buffer {
    uint8_t *bytes;
    uint64_t n, cap;
};

/* A key, or a tensor and its size. The name is this table's own copy. */
struct entry {
    struct gguf_str name;
    uint64_t bytes;
};

struct table {
    struct entry *entries;
    uint64_t n, cap;
    struct names names;
};

struct gguf_writer {
    struct result_file out;
    struct buffer metadata, headers; /* as they will lie in the file */
    struct table keys, tensors;
    uint64_t next_offset;   /* of the next tensor to be declared */
    bool streaming;         /* the part before the tensor data is written */
    uint64_t current, done; /* tensor that is being written, and its bytes so far */
    bool failed;            /* a call has failed: the file must not be finished */
};

static wk_status fail(struct gguf_writer *w, wk_status status, const struct wk_err *err, const char *text)
{
    w->failed = true;
    return wk_fail(err, status, "%s: %s", w->out.path, text);
}

static wk_status write_failed(struct gguf_writer *w, const struct wk_err *err)
{
    w->failed = true;
    return result_file_failed(&w->out, err);
}

static bool append(struct buffer *b, const void *bytes, uint64_t n)
{
    if (n > b->cap - b->n) {
        uint64_t cap = b->cap * 2 > b->n + n ? b->cap * 2 : b->n + n;
        uint8_t *grown = realloc(b->bytes, cap);
        if (!grown) return false;
        b->bytes = grown;
        b->cap = cap;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return true;
}

static bool append_u32(struct buffer *b, uint32_t value) { return append(b, &value, sizeof value); }

static bool append_u64(struct buffer *b, uint64_t value) { return append(b, &value, sizeof value); }

static bool append_str(struct buffer *b, struct gguf_str s) { return append_u64(b, s.len) && append(b, s.data, s.len); }

/* Adds a copy of `name`. WK_INVALID: it is there already. */
static wk_status add_entry(struct table *t, struct gguf_str name, uint64_t bytes)
{
    if (t->n == t->cap) {
        const uint64_t cap = t->cap ? t->cap * 2 : 16;
        struct entry *grown = realloc(t->entries, cap * sizeof *grown);
        if (!grown) return WK_NO_MEMORY;
        t->entries = grown;
        t->cap = cap;
    }
    char *copy = malloc(name.len ? name.len : 1);
    if (!copy) return WK_NO_MEMORY;
    memcpy(copy, name.data, name.len);
    t->entries[t->n] = (struct entry){ { copy, name.len }, bytes };
    const int64_t twin = names_add(&t->names, t->entries, sizeof *t->entries, (uint32_t)t->n);
    if (twin == NAMES_ABSENT) {
        t->n++;
        return WK_OK;
    }
    free(copy);
    return twin == NAMES_NO_MEMORY ? WK_NO_MEMORY : WK_INVALID;
}

static void free_table(struct table *t)
{
    for (uint64_t i = 0; i < t->n; i++) free((char *)(uintptr_t)t->entries[i].name.data);
    free(t->entries);
    names_free(&t->names);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static void free_writer(struct gguf_writer *w)
{
    free_table(&w->keys);
    free_table(&w->tensors);
    free(w->metadata.bytes);
    free(w->headers.bytes);
    free(w);
}

wk_status gguf_writer_open(const char *path, struct gguf_writer **out, const struct wk_err *err)
{
    *out = NULL;
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for a writer", path);
    const wk_status status = result_file_open(path, &w->out, err);
    if (status == WK_OK)
        *out = w;
    else
        free_writer(w);
    return status;
}

void gguf_writer_abandon(struct gguf_writer *w)
{
    if (!w) return;
    result_file_abandon(&w->out);
    free_writer(w);
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

static wk_status begin_kv(struct gguf_writer *w, struct gguf_str key, const struct wk_err *err)
{
    if (w->streaming) return fail(w, WK_INTERNAL, err, "metadata after tensor data");
    if (!gguf_key_ok(key)) return fail(w, WK_INVALID, err, "a metadata key must be 1 to 256 bytes of printable ASCII");
    if (w->keys.n == GGUF_MAX_KEYS) return fail(w, WK_INVALID, err, "too many metadata keys");
    const wk_status status = add_entry(&w->keys, key, 0);
    if (status == WK_NO_MEMORY) return fail(w, status, err, "no memory for the metadata");
    if (status != WK_OK) {
        w->failed = true;
        return wk_fail(err, status, "%s: metadata key '%.*s' is given twice", w->out.path, (int)key.len, key.data);
    }
    return WK_OK;
}

/* Keys that describe how the source lies in its files, not what it contains. */
static bool describes_layout(struct gguf_str key)
{
    static const char *const keys[] = { GGUF_ALIGNMENT_KEY, "split.no", "split.count", "split.tensors.count" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (key.len == strlen(keys[i]) && memcmp(key.data, keys[i], key.len) == 0) return true;
    }
    return false;
}

static bool listed(const char *const *list, struct gguf_str key)
{
    for (; list && *list; list++) {
        if (key.len == strlen(*list) && memcmp(key.data, *list, key.len) == 0) return true;
    }
    return false;
}

wk_status gguf_writer_copy_metadata(struct gguf_writer *w, const struct gguf *from, const char *const *except,
                                    const struct wk_err *err)
{
    const struct shard *s = &from->shards[0];
    for (uint64_t i = 0; i < s->n_kv; i++) {
        const struct gguf_str key = s->kv[i].key;
        if (describes_layout(key) || listed(except, key)) continue;
        const wk_status status = begin_kv(w, key, err);
        if (status != WK_OK) return status;
        /* An entry reaches from its key's length to the next one's. */
        const uint8_t *first = (const uint8_t *)key.data - sizeof key.len;
        const uint8_t *end =
            i + 1 < s->n_kv ? (const uint8_t *)s->kv[i + 1].key.data - sizeof key.len : s->base + s->kv_end;
        if (!append(&w->metadata, first, (uint64_t)(end - first)))
            return fail(w, WK_NO_MEMORY, err, "no memory for the metadata");
    }
    return WK_OK;
}

wk_status gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value, const struct wk_err *err)
{
    const struct gguf_str k = { key, strlen(key) };
    const wk_status status = begin_kv(w, k, err);
    if (status != WK_OK) return status;
    if (!append_str(&w->metadata, k) || !append_u32(&w->metadata, GGUF_U32) || !append_u32(&w->metadata, value))
        return fail(w, WK_NO_MEMORY, err, "no memory for the metadata");
    return WK_OK;
}

wk_status gguf_writer_str(struct gguf_writer *w, const char *key, const char *value, const struct wk_err *err)
{
    const struct gguf_str k = { key, strlen(key) };
    const wk_status status = begin_kv(w, k, err);
    if (status != WK_OK) return status;
    if (!append_str(&w->metadata, k) || !append_u32(&w->metadata, GGUF_STRING) ||
        !append_str(&w->metadata, (struct gguf_str){ value, strlen(value) }))
        return fail(w, WK_NO_MEMORY, err, "no memory for the metadata");
    return WK_OK;
}

wk_status gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *values, uint64_t n,
                           const struct wk_err *err)
{
    const struct gguf_str k = { key, strlen(key) };
    const wk_status status = begin_kv(w, k, err);
    if (status != WK_OK) return status;
    bool stored = append_str(&w->metadata, k) && append_u32(&w->metadata, GGUF_ARRAY) &&
                  append_u32(&w->metadata, GGUF_STRING) && append_u64(&w->metadata, n);
    for (uint64_t i = 0; stored && i < n; i++)
        stored = append_str(&w->metadata, (struct gguf_str){ values[i], strlen(values[i]) });
    return stored ? WK_OK : fail(w, WK_NO_MEMORY, err, "no memory for the metadata");
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

wk_status gguf_writer_tensor(struct gguf_writer *w, struct gguf_str name, uint32_t ggml_type, uint32_t n_dims,
                             const uint64_t *ne, uint64_t bytes, const struct wk_err *err)
{
    if (w->streaming) return fail(w, WK_INTERNAL, err, "a tensor is declared after tensor data");
    if (!gguf_name_ok(name))
        return fail(w, WK_INVALID, err, "a tensor name must be 1 to 63 bytes without control characters");
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS || bytes == 0)
        return fail(w, WK_INVALID, err, "a tensor has 1 to 4 dimensions and at least one byte");
    if (w->tensors.n == GGUF_MAX_TENSORS) return fail(w, WK_INVALID, err, "too many tensors");
    uint64_t end;
    if (!checked_add_u64(w->next_offset, bytes, &end) || !checked_round_up_u64(end, GGUF_DEFAULT_ALIGNMENT, &end))
        return fail(w, WK_INVALID, err, "the tensors' sizes overflow 64 bits");
    const wk_status status = add_entry(&w->tensors, name, bytes);
    if (status == WK_INVALID) {
        w->failed = true;
        return wk_fail(err, status, "%s: tensor '%.*s' is declared twice", w->out.path, (int)name.len, name.data);
    }
    bool stored = status == WK_OK && append_str(&w->headers, name) && append_u32(&w->headers, n_dims) &&
                  append(&w->headers, ne, n_dims * sizeof *ne) && append_u32(&w->headers, ggml_type) &&
                  append_u64(&w->headers, w->next_offset);
    if (!stored) return fail(w, WK_NO_MEMORY, err, "no memory for the tensor headers");
    w->next_offset = end;
    return WK_OK;
}

static bool put(struct gguf_writer *w, const void *bytes, uint64_t n) { return result_file_write(&w->out, bytes, n); }

/* Zeros from byte `at` to the next multiple of the alignment. */
static bool put_padding(struct gguf_writer *w, uint64_t at)
{
    static const uint8_t zeros[GGUF_DEFAULT_ALIGNMENT];
    return put(w, zeros, -at % GGUF_DEFAULT_ALIGNMENT);
}

/* Everything before the tensor data. */
static wk_status begin_streaming(struct gguf_writer *w, const struct wk_err *err)
{
    struct buffer start = { 0 };
    const bool stored = append(&start, "GGUF", 4) && append_u32(&start, 3) && append_u64(&start, w->tensors.n) &&
                        append_u64(&start, w->keys.n);
    const bool written = stored && put(w, start.bytes, start.n) && put(w, w->metadata.bytes, w->metadata.n) &&
                         put(w, w->headers.bytes, w->headers.n) &&
                         put_padding(w, start.n + w->metadata.n + w->headers.n);
    free(start.bytes);
    if (!stored) return fail(w, WK_NO_MEMORY, err, "no memory for the header");
    if (!written) return write_failed(w, err);
    w->streaming = true;
    return WK_OK;
}

wk_status gguf_writer_data(struct gguf_writer *w, const void *bytes, uint64_t n, const struct wk_err *err)
{
    if (w->failed) return wk_fail(err, WK_INTERNAL, "%s: an earlier step of writing failed", w->out.path);
    const wk_status started = w->streaming ? WK_OK : begin_streaming(w, err);
    if (started != WK_OK) return started;
    const uint8_t *next = bytes;
    while (n) {
        if (w->current == w->tensors.n) return fail(w, WK_INTERNAL, err, "more tensor data than was declared");
        const uint64_t size = w->tensors.entries[w->current].bytes;
        const uint64_t piece = n < size - w->done ? n : size - w->done;
        if (!put(w, next, piece)) return write_failed(w, err);
        next += piece;
        n -= piece;
        w->done += piece;
        if (w->done < size) continue;
        if (!put_padding(w, size)) return write_failed(w, err);
        w->current++;
        w->done = 0;
    }
    return WK_OK;
}

static wk_status finish(struct gguf_writer *w, const struct wk_err *err)
{
    const wk_status status =
        gguf_writer_data(w, NULL, 0, err); /* a file without tensors has no data call before this */
    if (status != WK_OK) return status;
    if (w->current < w->tensors.n) {
        const struct entry *t = &w->tensors.entries[w->current];
        return wk_fail(err, WK_INTERNAL, "%s: tensor '%.*s' has %" PRIu64 " of %" PRIu64 " bytes", w->out.path,
                       (int)t->name.len, t->name.data, w->done, t->bytes);
    }
    return result_file_finish(&w->out, err);
}

wk_status gguf_writer_finish(struct gguf_writer *w, const struct wk_err *err)
{
    const wk_status status = finish(w, err);
    gguf_writer_abandon(w); /* nothing more to remove where it was finished */
    return status;
}
