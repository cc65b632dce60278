/* parse.c: validates one GGUF file: header, metadata, tensor table, layout of the data section.
 *
 * Bytes come through the cursor only. A count is compared with the bytes that are left before anything is allocated for
 * it, so a file of n bytes makes this allocate less than 8 n bytes. Sums and products of file numbers are checked or
 * avoided. */
#include <stdlib.h>

#include "base/checked.h"
#include "gguf/file.h"

enum {
    HEADER_BYTES = 24,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,             /* key length, key, type, the shortest value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, n_dims, one dimension, type, offset */
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 65536,
};
#define MAX_STRING_BYTES (UINT64_C(16) << 20)
#define MAX_DIMENSION (UINT64_C(1) << 31)

bool gguf_key_ok(struct gguf_str key)
{
    if (key.len < 1 || key.len > GGUF_MAX_KEY) return false;
    for (uint64_t i = 0; i < key.len; i++) {
        if (key.data[i] < 0x20 || key.data[i] > 0x7e) return false;
    }
    return true;
}

bool gguf_name_ok(struct gguf_str name)
{
    if (name.len < 1 || name.len > GGUF_MAX_NAME) return false;
    for (uint64_t i = 0; i < name.len; i++) {
        const unsigned char byte = (unsigned char)name.data[i];
        if (byte < 0x20 || byte == 0x7f) return false;
    }
    return true;
}

/* ---- header -------------------------------------------------------------------------------------------- */

/* The 8 bytes of a safetensors file's length and the brace behind them? */
static bool is_safetensors(struct cursor *c)
{
    uint64_t length;
    c->pos = 0;
    const uint8_t *p = cursor_left(c) > sizeof length ? cursor_take(c, sizeof length + 1, "the beginning") : NULL;
    if (!p) return false;
    memcpy(&length, p, sizeof length);
    return p[sizeof length] == '{' && length < c->size;
}

/* Says what the file is instead, where its first bytes tell. */
static wk_status fail_magic(struct cursor *c, const uint8_t magic[4])
{
    const char *hint = "";
    if (memcmp(magic, "vers", 4) == 0)
        hint = "; it looks like a Git LFS pointer: fetch the file itself with `git lfs pull`";
    else if (magic[0] == '<')
        hint = "; it looks like a web page: download the file itself";
    else if (memcmp(magic, "ggjt", 4) == 0 || memcmp(magic, "tjgg", 4) == 0)
        hint = "; it is a GGML file, older than GGUF: convert it";
    else if (memcmp(magic, "PK\3\4", 4) == 0)
        hint = "; it looks like a PyTorch checkpoint or another zip archive: convert the model to GGUF";
    else if (is_safetensors(c))
        hint = "; it looks like a safetensors file: convert the model to GGUF, or download it as such";
    return cursor_fail(c, 0, WK_INVALID,
                       "not a GGUF file: it begins with %02x %02x %02x %02x, expected 47 47 55 46 (\"GGUF\")%s",
                       magic[0], magic[1], magic[2], magic[3], hint);
}

static wk_status check_version(struct cursor *c, uint32_t version)
{
    if (version == 2 || version == 3) return WK_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return cursor_fail(c, 4, WK_UNSUPPORTED,
                           "the file is big-endian (version bytes in reverse order); only little-endian files are "
                           "supported: convert it");
    if (version == 1)
        return cursor_fail(
            c, 4, WK_UNSUPPORTED,
            "GGUF version 1 (32-bit counts) is obsolete; versions 2 and 3 are supported: convert the model again");
    return cursor_fail(c, 4, WK_UNSUPPORTED, "GGUF version %" PRIu32 " is unknown; versions 2 and 3 are supported",
                       version);
}

/* An entry takes at least `least` bytes: more entries than fit are refused before any is read. */
static wk_status check_count(struct cursor *c, uint64_t at, const char *what, uint64_t count, uint64_t least,
                             uint64_t cap)
{
    const uint64_t left = c->size - HEADER_BYTES;
    if (count > left / least)
        return cursor_fail(c, at, WK_INVALID,
                           "%s count %" PRIu64 " needs at least %" PRIu64 " bytes each, %" PRIu64
                           " are left in all: the file is truncated or damaged; download it again",
                           what, count, least, left);
    if (count > cap)
        return cursor_fail(c, at, WK_UNSUPPORTED, "%s count %" PRIu64 " is above the limit of %" PRIu64, what, count,
                           cap);
    return WK_OK;
}

static wk_status read_header(struct cursor *c, uint32_t *version, uint64_t *n_tensors, uint64_t *n_kv)
{
    const uint8_t *magic = cursor_take(c, 4, "the magic number of a GGUF file");
    if (!magic) return c->status;
    if (memcmp(magic, "GGUF", 4) != 0) return fail_magic(c, magic);
    *version = cursor_u32(c, "the version");
    if (c->status != WK_OK || check_version(c, *version) != WK_OK) return c->status;
    *n_tensors = cursor_u64(c, "the tensor count");
    *n_kv = cursor_u64(c, "the metadata count");
    if (c->status != WK_OK) return c->status;
    if (check_count(c, 8, "tensor", *n_tensors, MIN_TENSOR_BYTES, GGUF_MAX_TENSORS) != WK_OK) return c->status;
    return check_count(c, 16, "metadata", *n_kv, MIN_KV_BYTES, GGUF_MAX_KEYS);
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

/* A string of at most `cap` bytes: u64 length, bytes. */
static struct gguf_str read_string(struct cursor *c, const char *what, uint64_t cap)
{
    const uint64_t at = c->pos;
    const uint64_t len = cursor_u64(c, what);
    if (c->status == WK_OK && len > cap && len <= cursor_left(c))
        (void)cursor_fail(c, at, WK_UNSUPPORTED, "%s has %" PRIu64 " bytes, at most %" PRIu64 " are supported", what,
                          len, cap);
    const uint8_t *p = cursor_take(c, len, what);
    return p ? (struct gguf_str){ (const char *)p, len } : (struct gguf_str){ NULL, 0 };
}

static void read_key(struct cursor *c, struct gguf_kv *kv)
{
    const uint64_t at = c->pos;
    kv->key = read_string(c, "a metadata key", GGUF_MAX_KEY);
    if (c->status == WK_OK && !gguf_key_ok(kv->key))
        (void)cursor_fail(c, at, WK_INVALID, "a metadata key is %s: the file is damaged",
                          kv->key.len ? "not printable ASCII" : "empty");
}

static void read_type(struct cursor *c, struct gguf_kv *kv)
{
    const uint64_t at = c->pos;
    const uint32_t type = cursor_u32(c, "a metadata type");
    if (c->status == WK_OK && type >= GGUF_TYPE_COUNT)
        (void)cursor_fail(c, at, WK_INVALID, "key '%.*s' has type %" PRIu32 ", known are 0 to %d", (int)kv->key.len,
                          kv->key.data, type, GGUF_TYPE_COUNT - 1);
    if (c->status != WK_OK) return;
    kv->type = (enum gguf_type)type;
    kv->element_type = kv->type;
    kv->count = 1;
    if (kv->type != GGUF_ARRAY) return;

    const uint64_t element_at = c->pos;
    const uint32_t element = cursor_u32(c, "an array's element type");
    kv->count = cursor_u64(c, "an array's length");
    if (c->status != WK_OK) return;
    if (element == GGUF_ARRAY)
        (void)cursor_fail(c, element_at, WK_UNSUPPORTED, "key '%.*s' is an array of arrays, which is not supported",
                          (int)kv->key.len, kv->key.data);
    else if (element >= GGUF_TYPE_COUNT)
        (void)cursor_fail(c, element_at, WK_INVALID, "key '%.*s' is an array of type %" PRIu32 ", known are 0 to %d",
                          (int)kv->key.len, kv->key.data, element, GGUF_TYPE_COUNT - 1);
    else
        kv->element_type = (enum gguf_type)element;
}

/* Walks over the value so that every later access is in range: lengths of all strings, bytes of all bools. */
static void read_value(struct cursor *c, struct gguf_kv *kv)
{
    kv->offset = c->pos;
    const uint64_t size = gguf_type_size(kv->element_type);
    const uint64_t least = size ? size : 8; /* a string has at least its length */
    if (kv->count > cursor_left(c) / least) {
        (void)cursor_fail(c, c->pos, WK_INVALID,
                          "key '%.*s': %" PRIu64 " value(s) of type %s need at least %" PRIu64 " bytes each, %" PRIu64
                          " are left in all: the file is truncated or damaged; download it again",
                          (int)kv->key.len, kv->key.data, kv->count, gguf_type_name(kv->element_type), least,
                          cursor_left(c));
        return;
    }
    if (!size) {
        for (uint64_t i = 0; i < kv->count && c->status == WK_OK; i++)
            (void)read_string(c, "a metadata string", MAX_STRING_BYTES);
        return;
    }
    const uint8_t *p = cursor_take(c, kv->count * size, "a metadata value");
    if (!p || kv->element_type != GGUF_BOOL) return;
    for (uint64_t i = 0; i < kv->count; i++) {
        if (p[i] > 1) {
            (void)cursor_fail(c, kv->offset + i, WK_INVALID, "key '%.*s': a bool is %u, expected 0 or 1",
                              (int)kv->key.len, kv->key.data, p[i]);
            return;
        }
    }
}

static wk_status read_metadata(struct shard *s, struct cursor *c, uint64_t n)
{
    s->kv = calloc(n ? n : 1, sizeof *s->kv);
    if (!s->kv) return cursor_fail(c, c->pos, WK_NO_MEMORY, "no memory for %" PRIu64 " metadata entries", n);
    for (s->n_kv = 0; s->n_kv < n; s->n_kv++) {
        struct gguf_kv *kv = &s->kv[s->n_kv];
        const uint64_t at = c->pos;
        read_key(c, kv);
        if (c->status == WK_OK) read_type(c, kv);
        if (c->status == WK_OK) read_value(c, kv);
        if (c->status != WK_OK) return c->status;
        const int64_t twin = names_add(&s->keys, s->kv, sizeof *s->kv, (uint32_t)s->n_kv);
        if (twin == NAMES_NO_MEMORY)
            return cursor_fail(c, at, WK_NO_MEMORY, "no memory for the index of metadata keys");
        if (twin >= 0) {
            const uint64_t first = (uint64_t)((const uint8_t *)s->kv[twin].key.data - s->base) - 8;
            return cursor_fail(c, at, WK_INVALID,
                               "key '%.*s' occurs twice, first at byte %" PRIu64 ": the file is damaged",
                               (int)kv->key.len, kv->key.data, first);
        }
    }
    s->kv_end = c->pos;
    return WK_OK;
}

static wk_status read_alignment(struct shard *s, struct cursor *c)
{
    s->alignment = GGUF_DEFAULT_ALIGNMENT;
    bool present;
    uint64_t value;
    c->status = gguf_shard_u64(s, GGUF_ALIGNMENT_KEY, &present, &value, c->err);
    if (c->status != WK_OK || !present) return c->status;
    if (value < MIN_ALIGNMENT || value > MAX_ALIGNMENT || (value & (value - 1)) != 0)
        return cursor_fail(c, gguf_shard_find(s, GGUF_ALIGNMENT_KEY)->offset, WK_INVALID,
                           GGUF_ALIGNMENT_KEY " is %" PRIu64 ", expected a power of two from %d to %d", value,
                           MIN_ALIGNMENT, MAX_ALIGNMENT);
    s->alignment = value;
    return WK_OK;
}

/* ---- tensor table -------------------------------------------------------------------------------------- */

static void read_shape(struct cursor *c, struct gguf_tensor *t)
{
    const uint64_t at = c->pos;
    t->n_dims = cursor_u32(c, "a tensor's number of dimensions");
    if (c->status != WK_OK) return;
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS) {
        (void)cursor_fail(c, at, WK_INVALID, "tensor '%.*s' has %" PRIu32 " dimensions, expected 1 to %d",
                          (int)t->name.len, t->name.data, t->n_dims, GGUF_MAX_DIMS);
        return;
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        const uint64_t dim_at = c->pos;
        t->ne[i] = i < t->n_dims ? cursor_u64(c, "a tensor's dimension") : 1;
        if (c->status != WK_OK) return;
        if (t->ne[i] < 1 || t->ne[i] > MAX_DIMENSION) {
            (void)cursor_fail(c, dim_at, WK_INVALID,
                              "tensor '%.*s': dimension %" PRIu32 " is %" PRIu64 ", expected 1 to %" PRIu64,
                              (int)t->name.len, t->name.data, i, t->ne[i], MAX_DIMENSION);
            return;
        }
        if (!checked_mul_u64(elements, t->ne[i], &elements) || elements > INT64_MAX) {
            (void)cursor_fail(c, dim_at, WK_INVALID, "tensor '%.*s': the product of its dimensions overflows",
                              (int)t->name.len, t->name.data);
            return;
        }
    }
}

static wk_status read_tensor(struct shard *s, struct cursor *c, struct gguf_tensor *t)
{
    const uint64_t name_at = c->pos;
    t->name = read_string(c, "a tensor's name", GGUF_MAX_NAME);
    if (c->status == WK_OK && !gguf_name_ok(t->name))
        return cursor_fail(c, name_at, WK_INVALID, "a tensor's name is %s: the file is damaged",
                           t->name.len ? "not printable" : "empty");
    read_shape(c, t);
    t->ggml_type = cursor_u32(c, "a tensor's type");
    const uint64_t offset_at = c->pos;
    t->offset = cursor_u64(c, "a tensor's offset");
    if (c->status == WK_OK && (t->offset & (s->alignment - 1)) != 0)
        return cursor_fail(c, offset_at, WK_INVALID,
                           "tensor '%.*s' has offset %" PRIu64 ", expected a multiple of the alignment %" PRIu64,
                           (int)t->name.len, t->name.data, t->offset, s->alignment);
    return c->status;
}

/* Byte at which the tensor's entry begins in its file. */
static uint64_t entry_at(const struct shard *s, const struct gguf_tensor *t)
{
    return (uint64_t)((const uint8_t *)t->name.data - s->base) - 8;
}

static wk_status index_tensor(struct gguf *file, struct shard *s, struct cursor *c, uint64_t i)
{
    const struct gguf_tensor *t = &file->tensors[i];
    const int64_t twin = names_add(&file->tensor_names, file->tensors, sizeof *t, (uint32_t)i);
    if (twin == NAMES_ABSENT) return WK_OK;
    if (twin == NAMES_NO_MEMORY) return cursor_fail(c, c->pos, WK_NO_MEMORY, "no memory for the index of tensor names");
    if (file->tensors[twin].shard != t->shard)
        return cursor_fail(c, entry_at(s, t), WK_INVALID,
                           "tensor '%.*s' is also in shard %" PRIu32 ": the shards do not belong together",
                           (int)t->name.len, t->name.data, file->tensors[twin].shard + 1);
    return cursor_fail(c, entry_at(s, t), WK_INVALID,
                       "tensor '%.*s' occurs twice, first at byte %" PRIu64 ": the file is damaged", (int)t->name.len,
                       t->name.data, entry_at(s, &file->tensors[twin]));
}

static wk_status read_tensors(struct gguf *file, struct shard *s, uint32_t shard_index, struct cursor *c, uint64_t n)
{
    const uint64_t first = file->n_tensors;
    if (n > GGUF_MAX_TENSORS - first)
        return cursor_fail(c, 8, WK_UNSUPPORTED, "the shards have more than %d tensors together, the limit",
                           GGUF_MAX_TENSORS);
    struct gguf_tensor *tensors = realloc(file->tensors, (first + n + 1) * sizeof *tensors);
    if (!tensors) return cursor_fail(c, c->pos, WK_NO_MEMORY, "no memory for %" PRIu64 " tensor entries", n);
    file->tensors = tensors;
    for (uint64_t i = first; i < first + n; i++) {
        tensors[i] = (struct gguf_tensor){ .shard = shard_index };
        if (read_tensor(s, c, &tensors[i]) != WK_OK || index_tensor(file, s, c, i) != WK_OK) return c->status;
    }
    file->n_tensors = first + n;
    return WK_OK;
}

/* ---- layout of the data section ------------------------------------------------------------------------ */

struct place {
    uint64_t offset;
    struct gguf_tensor *tensor;
};

static int by_offset(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* Gives each of the n sorted tensors the room up to its successor. Sizes are not known here, so all that can overlap is
 * two tensors at one offset; a tensor larger than its room is refused by gguf_tensor_bytes. */
static wk_status measure_room(struct shard *s, struct cursor *c, const struct place *p, uint64_t n)
{
    const uint64_t section = s->size - s->data_start;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor *t = p[i].tensor;
        if (t->offset >= section)
            return cursor_fail(c, entry_at(s, t), WK_INVALID,
                               "tensor '%.*s' begins %" PRIu64 " bytes into a data section of %" PRIu64
                               " bytes: the file is truncated or damaged; download it again",
                               (int)t->name.len, t->name.data, t->offset, section);
        const uint64_t end = i + 1 < n && p[i + 1].offset < section ? p[i + 1].offset : section;
        t->room = end - t->offset;
        if (t->room == 0) {
            const struct gguf_tensor *next = p[i + 1].tensor;
            return cursor_fail(c, entry_at(s, next), WK_INVALID,
                               "tensors '%.*s' and '%.*s' overlap: both have offset %" PRIu64, (int)t->name.len,
                               t->name.data, (int)next->name.len, next->name.data, t->offset);
        }
    }
    return WK_OK;
}

static wk_status lay_out(struct gguf *file, struct shard *s, struct cursor *c, uint64_t n)
{
    uint64_t start;
    if (!checked_round_up_u64(c->pos, s->alignment, &start) || start > s->size) start = s->size;
    s->data_start = start;
    if (n == 0) return WK_OK; /* a vocabulary alone: nothing need follow */
    struct place *places = malloc(n * sizeof *places);
    if (!places) return cursor_fail(c, c->pos, WK_NO_MEMORY, "no memory for the layout of %" PRIu64 " tensors", n);
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor *t = &file->tensors[file->n_tensors - n + i];
        places[i] = (struct place){ t->offset, t };
    }
    qsort(places, n, sizeof *places, by_offset);
    const wk_status status = measure_room(s, c, places, n);
    free(places);
    return status;
}

wk_status gguf_parse(struct gguf *file, struct shard *s, uint32_t shard_index, struct cursor *c)
{
    uint64_t n_tensors = 0, n_kv = 0;
    if (read_header(c, &s->version, &n_tensors, &n_kv) != WK_OK || read_metadata(s, c, n_kv) != WK_OK ||
        read_alignment(s, c) != WK_OK || read_tensors(file, s, shard_index, c, n_tensors) != WK_OK)
        return c->status;
    return lay_out(file, s, c, n_tensors);
}
