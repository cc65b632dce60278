/* access.c: look-up and typed access. Parsing has walked over every value and the bytes cannot change since, so what is
 * left to check here is what the caller asks for: the type, the element's number, whether the value fits. */
#include "base/checked.h"
#include "gguf/file.h"

static const struct {
    const char *name;
    uint32_t size; /* bytes; 0: varies */
} types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = { "u8", 1 },       [GGUF_I8] = { "i8", 1 },     [GGUF_U16] = { "u16", 2 },
    [GGUF_I16] = { "i16", 2 },     [GGUF_U32] = { "u32", 4 },   [GGUF_I32] = { "i32", 4 },
    [GGUF_F32] = { "f32", 4 },     [GGUF_BOOL] = { "bool", 1 }, [GGUF_U64] = { "u64", 8 },
    [GGUF_I64] = { "i64", 8 },     [GGUF_F64] = { "f64", 8 },   [GGUF_STRING] = { "string", 0 },
    [GGUF_ARRAY] = { "array", 0 },
};

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < GGUF_TYPE_COUNT ? types[type].name : "unknown";
}

uint32_t gguf_type_size(enum gguf_type type) { return (unsigned)type < GGUF_TYPE_COUNT ? types[type].size : 0; }

/* ---- metadata ------------------------------------------------------------------------------------------ */

uint64_t gguf_kv_count(const struct gguf *file) { return file->shards[0].n_kv; }

const struct gguf_kv *gguf_kv_at(const struct gguf *file, uint64_t i)
{
    return i < file->shards[0].n_kv ? &file->shards[0].kv[i] : NULL;
}

const struct gguf_kv *gguf_shard_find(const struct shard *s, const char *key)
{
    const int64_t i = names_find(&s->keys, s->kv, sizeof *s->kv, (struct gguf_str){ key, strlen(key) });
    return i < 0 ? NULL : &s->kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *file, const char *key)
{
    return gguf_shard_find(&file->shards[0], key);
}

static wk_status fail_type(const struct shard *s, const struct gguf_kv *kv, const char *expected,
                           const struct wk_err *err)
{
    return wk_fail(err, WK_INVALID, "%s: key '%.*s': expected %s, found %s%s", s->path, (int)kv->key.len, kv->key.data,
                   expected, kv->type == GGUF_ARRAY ? "an array of " : "", gguf_type_name(kv->element_type));
}

/* The bytes of element i, of a fixed-size type; NULL: there are not so many. */
static const uint8_t *element_at(const struct shard *s, const struct gguf_kv *kv, uint64_t i, const struct wk_err *err)
{
    if (i < kv->count) return s->base + kv->offset + i * gguf_type_size(kv->element_type);
    (void)wk_fail(err, WK_INVALID, "%s: key '%.*s': expected an element %" PRIu64 ", found %" PRIu64 " elements",
                  s->path, (int)kv->key.len, kv->key.data, i, kv->count);
    return NULL;
}

/* An integer of any width: its 64 bits in two's complement, and whether they mean a number below zero. */
struct integer {
    uint64_t bits;
    bool negative;
};

static bool is_integer(enum gguf_type type)
{
    switch (type) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_U16:
    case GGUF_I16:
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_U64:
    case GGUF_I64: return true;
    default: return false;
    }
}

static struct integer read_integer(enum gguf_type type, const uint8_t *p)
{
    uint64_t bits = 0;
    const uint32_t size = gguf_type_size(type);
    memcpy(&bits, p, size);
    const bool is_signed = type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    const bool negative = is_signed && bits >> (8 * size - 1);
    if (negative && size < 8) bits |= UINT64_MAX << (8 * size);
    return (struct integer){ bits, negative };
}

static const uint8_t *integer_at(const struct shard *s, const struct gguf_kv *kv, uint64_t i, const struct wk_err *err)
{
    if (is_integer(kv->element_type)) return element_at(s, kv, i, err);
    (void)fail_type(s, kv, "an integer", err);
    return NULL;
}

static wk_status shard_u64_at(const struct shard *s, const struct gguf_kv *kv, uint64_t i, uint64_t *out,
                              const struct wk_err *err)
{
    const uint8_t *p = integer_at(s, kv, i, err);
    if (!p) return WK_INVALID;
    const struct integer n = read_integer(kv->element_type, p);
    if (n.negative)
        return wk_fail(err, WK_INVALID, "%s: key '%.*s': expected a number from 0, found %" PRId64, s->path,
                       (int)kv->key.len, kv->key.data, (int64_t)n.bits);
    *out = n.bits;
    return WK_OK;
}

wk_status gguf_shard_u64(const struct shard *s, const char *key, bool *present, uint64_t *out, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_shard_find(s, key);
    *present = kv != NULL;
    *out = 0;
    if (!kv) return WK_OK;
    if (kv->type == GGUF_ARRAY) return fail_type(s, kv, "one integer", err);
    return shard_u64_at(s, kv, 0, out, err);
}

wk_status gguf_u64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, uint64_t *out,
                      const struct wk_err *err)
{
    return shard_u64_at(&file->shards[0], kv, i, out, err);
}

wk_status gguf_i64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, int64_t *out,
                      const struct wk_err *err)
{
    const uint8_t *p = integer_at(&file->shards[0], kv, i, err);
    if (!p) return WK_INVALID;
    const struct integer n = read_integer(kv->element_type, p);
    if (!n.negative && n.bits > INT64_MAX)
        return wk_fail(err, WK_INVALID, "%s: key '%.*s': expected a number up to %" PRId64 ", found %" PRIu64,
                       file->shards[0].path, (int)kv->key.len, kv->key.data, INT64_MAX, n.bits);
    *out = (int64_t)n.bits;
    return WK_OK;
}

wk_status gguf_f64_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, double *out,
                      const struct wk_err *err)
{
    const struct shard *s = &file->shards[0];
    const enum gguf_type type = kv->element_type;
    if (type != GGUF_F32 && type != GGUF_F64 && !is_integer(type)) return fail_type(s, kv, "a number", err);
    const uint8_t *p = element_at(s, kv, i, err);
    if (!p) return WK_INVALID;
    if (type == GGUF_F32) {
        float value;
        memcpy(&value, p, sizeof value);
        *out = (double)value;
    } else if (type == GGUF_F64) {
        memcpy(out, p, sizeof *out);
    } else {
        const struct integer n = read_integer(type, p);
        *out = n.negative ? (double)(int64_t)n.bits : (double)n.bits;
    }
    return WK_OK;
}

wk_status gguf_bool_at(const struct gguf *file, const struct gguf_kv *kv, uint64_t i, bool *out,
                       const struct wk_err *err)
{
    const struct shard *s = &file->shards[0];
    if (kv->element_type != GGUF_BOOL) return fail_type(s, kv, "a bool", err);
    const uint8_t *p = element_at(s, kv, i, err);
    if (!p) return WK_INVALID;
    *out = *p != 0;
    return WK_OK;
}

static wk_status one_value(const struct gguf *file, const struct gguf_kv *kv, const char *expected,
                           const struct wk_err *err)
{
    return kv->type == GGUF_ARRAY ? fail_type(&file->shards[0], kv, expected, err) : WK_OK;
}

wk_status gguf_u64(const struct gguf *file, const struct gguf_kv *kv, uint64_t *out, const struct wk_err *err)
{
    const wk_status status = one_value(file, kv, "one integer", err);
    return status ? status : gguf_u64_at(file, kv, 0, out, err);
}

wk_status gguf_i64(const struct gguf *file, const struct gguf_kv *kv, int64_t *out, const struct wk_err *err)
{
    const wk_status status = one_value(file, kv, "one integer", err);
    return status ? status : gguf_i64_at(file, kv, 0, out, err);
}

wk_status gguf_bool(const struct gguf *file, const struct gguf_kv *kv, bool *out, const struct wk_err *err)
{
    const wk_status status = one_value(file, kv, "one bool", err);
    return status ? status : gguf_bool_at(file, kv, 0, out, err);
}

bool gguf_accepts(struct gguf_accepted *accepted, struct gguf_str key)
{
    for (uint32_t i = 0; accepted && i < accepted->n; i++) {
        if (strlen(accepted->names[i]) != key.len || memcmp(accepted->names[i], key.data, (size_t)key.len) != 0)
            continue;
        accepted->used |= UINT64_C(1) << i;
        return true;
    }
    return false;
}

/* The string whose length lies at byte pos. */
static struct gguf_str string_at(const struct shard *s, uint64_t pos)
{
    uint64_t len;
    memcpy(&len, s->base + pos, sizeof len);
    return (struct gguf_str){ (const char *)s->base + pos + sizeof len, len };
}

wk_status gguf_str(const struct gguf *file, const struct gguf_kv *kv, struct gguf_str *out, const struct wk_err *err)
{
    if (kv->type != GGUF_STRING) return fail_type(&file->shards[0], kv, "one string", err);
    *out = string_at(&file->shards[0], kv->offset);
    return WK_OK;
}

wk_status gguf_strings_begin(const struct gguf *file, const struct gguf_kv *kv, struct gguf_strings *it,
                             const struct wk_err *err)
{
    if (kv->type != GGUF_ARRAY || kv->element_type != GGUF_STRING)
        return fail_type(&file->shards[0], kv, "an array of strings", err);
    *it = (struct gguf_strings){ file, kv, 0, kv->offset };
    return WK_OK;
}

bool gguf_strings_next(struct gguf_strings *it, struct gguf_str *out)
{
    if (it->next >= it->kv->count) return false;
    *out = string_at(&it->file->shards[0], it->pos);
    it->pos += sizeof(uint64_t) + out->len;
    it->next++;
    return true;
}

const void *gguf_array_bytes(const struct gguf *file, const struct gguf_kv *kv, enum gguf_type element,
                             const struct wk_err *err)
{
    if (kv->type == GGUF_ARRAY && kv->element_type == element && gguf_type_size(element))
        return file->shards[0].base + kv->offset;
    char expected[40];
    (void)snprintf(expected, sizeof expected, "an array of fixed size, of %s", gguf_type_name(element));
    (void)fail_type(&file->shards[0], kv, expected, err);
    return NULL;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

uint64_t gguf_tensor_count(const struct gguf *file) { return file->n_tensors; }

const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, uint64_t i)
{
    return i < file->n_tensors ? &file->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name, size_t len)
{
    const int64_t i =
        names_find(&file->tensor_names, file->tensors, sizeof *file->tensors, (struct gguf_str){ name, len });
    return i < 0 ? NULL : &file->tensors[i];
}

/* Says who is in the way of a tensor that needs more than its room. */
static wk_status fail_room(const struct gguf *file, const struct gguf_tensor *t, uint64_t bytes,
                           const struct wk_err *err)
{
    const struct shard *s = &file->shards[t->shard];
    const uint64_t at = s->data_start + t->offset;
    for (uint64_t i = 0; i < file->n_tensors; i++) {
        const struct gguf_tensor *next = &file->tensors[i];
        if (next->shard == t->shard && next->offset == t->offset + t->room)
            return wk_fail(err, WK_INVALID,
                           "%s: byte %" PRIu64 ": tensor '%.*s' needs %" PRIu64
                           " bytes and overlaps '%.*s', which begins after %" PRIu64,
                           s->path, at, (int)t->name.len, t->name.data, bytes, (int)next->name.len, next->name.data,
                           t->room);
    }
    return wk_fail(err, WK_INVALID,
                   "%s: byte %" PRIu64 ": tensor '%.*s' needs %" PRIu64 " bytes, %" PRIu64
                   " are left: the file is truncated; download it again",
                   s->path, at, (int)t->name.len, t->name.data, bytes, t->room);
}

wk_status gguf_tensor_bytes(const struct gguf *file, const struct gguf_tensor *t, uint32_t block, uint32_t block_bytes,
                            uint64_t *out, const struct wk_err *err)
{
    const struct shard *s = &file->shards[t->shard];
    if (block == 0 || block_bytes == 0)
        return wk_fail(err, WK_INTERNAL,
                       "%s: tensor '%.*s': a block of %" PRIu32 " values in %" PRIu32 " bytes is no format", s->path,
                       (int)t->name.len, t->name.data, block, block_bytes);
    if (t->ne[0] % block)
        return wk_fail(err, WK_INVALID,
                       "%s: tensor '%.*s': its first dimension is %" PRIu64
                       ", expected a multiple of its type's block of %" PRIu32,
                       s->path, (int)t->name.len, t->name.data, t->ne[0], block);
    uint64_t bytes = t->ne[0] / block;
    bool fits = checked_mul_u64(bytes, block_bytes, &bytes);
    for (int i = 1; i < GGUF_MAX_DIMS; i++) fits = fits && checked_mul_u64(bytes, t->ne[i], &bytes);
    if (!fits)
        return wk_fail(err, WK_INVALID, "%s: tensor '%.*s': its size in bytes overflows 64 bits", s->path,
                       (int)t->name.len, t->name.data);
    if (bytes > t->room) return fail_room(file, t, bytes, err);
    *out = bytes;
    return WK_OK;
}

const void *gguf_tensor_data(const struct gguf *file, const struct gguf_tensor *t)
{
    const struct shard *s = &file->shards[t->shard];
    return s->base + s->data_start + t->offset;
}
