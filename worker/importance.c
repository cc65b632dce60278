/* importance.c: see importance.h. */
#include "importance.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/guard.h"

enum { F32 = 0 };

static bool ends(struct gguf_str name, const char *tail)
{
    const size_t n = strlen(tail);
    return name.len > n && memcmp(name.data + name.len - n, tail, n) == 0;
}

/* Length of the matrix's name in that of its sums; 0: they are none. */
static size_t matrix_name(const struct gguf_tensor *t)
{
    return ends(t->name, IMPORTANCE_SUMS) ? (size_t)t->name.len - strlen(IMPORTANCE_SUMS) : 0;
}

static const struct gguf_tensor *find(const struct importance *i, const char *name, size_t len, const char *tail)
{
    char full[GGUF_MAX_NAME + 1];
    const int n = snprintf(full, sizeof full, "%.*s%s", (int)len, name, tail);
    return n > 0 && (size_t)n < sizeof full ? gguf_tensor_find(i->file, full, (size_t)n) : NULL;
}

/* The numbers of a tensor; *out is the caller's. */
static wk_status read_numbers(const struct importance *i, const struct gguf_tensor *t, float **out, uint64_t *n,
                              const struct wk_err *err)
{
    uint64_t bytes;
    char text[200];
    const struct wk_err inner = { text, sizeof text };
    *out = NULL;
    if (t->ggml_type != F32 || t->ne[2] * t->ne[3] != 1)
        return wk_fail(err, WK_INVALID, "%s: %.*s: expected F32 of two dimensions", gguf_path(i->file),
                       (int)t->name.len, t->name.data);
    wk_status s = gguf_tensor_bytes(i->file, t, 1, sizeof **out, &bytes, &inner);
    if (!s && !(*out = malloc(bytes ? bytes : 1))) return wk_fail(err, WK_NO_MEMORY, "no memory for importances");
    if (!s) s = gguf_guarded_copy(*out, gguf_tensor_data(i->file, t), bytes, &inner);
    *n = bytes / sizeof **out;
    uint64_t bad = 0;
    while (!s && bad < *n && isfinite((*out)[bad]) && (*out)[bad] >= 0) bad++;
    if (!s && bad < *n)
        s = wk_fail(&inner, WK_INVALID, "%.*s: value %" PRIu64 " is %g, expected a finite number that is not below 0",
                    (int)t->name.len, t->name.data, bad, (double)(*out)[bad]);
    if (!s) return WK_OK;
    free(*out);
    *out = NULL;
    return wk_fail(err, s, "%s: %s", gguf_path(i->file), text);
}

static wk_status check_numbers(const struct importance *i, const struct gguf_tensor *t, const struct wk_err *err)
{
    float *numbers;
    uint64_t n;
    const wk_status s = read_numbers(i, t, &numbers, &n, err);
    free(numbers);
    return s;
}

static wk_status check_tensors(const struct importance *i, const struct wk_err *err)
{
    const uint64_t n = gguf_tensor_count(i->file);
    if (!n) return wk_fail(err, WK_INVALID, "%s: an importance matrix without tensors", gguf_path(i->file));
    for (uint64_t k = 0; k < n; k++) {
        const struct gguf_tensor *t = gguf_tensor_at(i->file, k);
        if (ends(t->name, ".in_sum")) continue; /* newer files have means, too, which nothing here uses */
        const bool sums = matrix_name(t);
        if (!sums && !ends(t->name, IMPORTANCE_COUNTS))
            return wk_fail(err, WK_INVALID,
                           "%s: %.*s: expected names that end in " IMPORTANCE_SUMS " or " IMPORTANCE_COUNTS,
                           gguf_path(i->file), (int)t->name.len, t->name.data);
        const size_t len = (size_t)t->name.len - strlen(sums ? IMPORTANCE_SUMS : IMPORTANCE_COUNTS);
        if (!find(i, t->name.data, len, sums ? IMPORTANCE_COUNTS : IMPORTANCE_SUMS))
            return wk_fail(err, WK_INVALID, "%s: %.*s is there, its %s are not", gguf_path(i->file), (int)t->name.len,
                           t->name.data, sums ? "counts" : "sums");
        const wk_status s = check_numbers(i, t, err);
        if (s) return s;
    }
    return WK_OK;
}

wk_status importance_open(const char *path, struct importance *out, const struct wk_err *err)
{
    struct gguf_str type = { "", 0 };
    *out = (struct importance){ NULL };
    wk_status s = gguf_open(path, &out->file, err);
    if (s) return s;
    const struct gguf_kv *kv = gguf_find(out->file, "general.type");
    if (!kv || kv->type != GGUF_STRING || gguf_str(out->file, kv, &type, NULL) || type.len != strlen(IMPORTANCE_TYPE) ||
        memcmp(type.data, IMPORTANCE_TYPE, type.len) != 0)
        s = wk_fail(err, WK_INVALID, "%s: general.type is not \"" IMPORTANCE_TYPE "\": no importance matrix", path);
    if (!s) s = check_tensors(out, err);
    if (s) importance_close(out);
    return s;
}

void importance_close(struct importance *i)
{
    gguf_close(i->file);
    i->file = NULL;
}

static uint64_t slabs_of(const struct gguf_tensor *t) { return t->ne[2] * t->ne[3]; }

wk_status importance_suits(const struct importance *i, const struct gguf *model, const struct wk_err *err)
{
    for (uint64_t k = 0; k < gguf_tensor_count(i->file); k++) {
        const struct gguf_tensor *sums = gguf_tensor_at(i->file, k);
        const size_t len = matrix_name(sums);
        if (!len) continue;
        const struct gguf_tensor *counts = find(i, sums->name.data, len, IMPORTANCE_COUNTS),
                                 *t = gguf_tensor_find(model, sums->name.data, len);
        if (!t)
            return wk_fail(err, WK_INVALID,
                           "%s: %.*s: the model has no such tensor: an importance matrix of another model",
                           gguf_path(i->file), (int)len, sums->name.data);
        const uint64_t n = counts->ne[0] * counts->ne[1], all = sums->ne[0] * sums->ne[1];
        if (all % t->ne[0] || all / t->ne[0] != slabs_of(t) || (n != 1 && n != slabs_of(t)))
            return wk_fail(err, WK_INVALID,
                           "%s: %.*s: %" PRIu64 " sums and %" PRIu64 " counts, the model's tensor has %" PRIu64
                           " columns in %" PRIu64 " slabs: an importance matrix of another model",
                           gguf_path(i->file), (int)len, sums->name.data, all, n, t->ne[0], slabs_of(t));
    }
    return WK_OK;
}

bool importance_has(const struct importance *i, const struct gguf_tensor *t)
{
    return find(i, t->name.data, (size_t)t->name.len, IMPORTANCE_SUMS);
}

/* In units of the largest; all alike where nothing was seen. What counts at all counts so much that products of it with
 * weights do not come to nothing. */
static void scale_slab(float *w, uint64_t k, float count)
{
    const float least = 0x1p-40f;
    float most = 0;
    for (uint64_t j = 0; j < k; j++) most = fmaxf(most, w[j]);
    for (uint64_t j = 0; j < k; j++) {
        if (!(count > 0 && most > 0))
            w[j] = 1;
        else if (w[j] > 0)
            w[j] = fmaxf(w[j] / most, least);
    }
}

static wk_status all_alike(const struct gguf_tensor *t, float **out, const struct wk_err *err)
{
    const uint64_t n = slabs_of(t) * t->ne[0]; /* not more than the tensor's values, which are in memory */
    *out = malloc(n * sizeof **out);
    if (!*out) return wk_fail(err, WK_NO_MEMORY, "no memory for importances");
    for (uint64_t j = 0; j < n; j++) (*out)[j] = 1;
    return WK_OK;
}

wk_status importance_of(const struct importance *i, const struct gguf_tensor *t, float **out, const struct wk_err *err)
{
    const struct gguf_tensor *sums = find(i, t->name.data, (size_t)t->name.len, IMPORTANCE_SUMS),
                             *seen = find(i, t->name.data, (size_t)t->name.len, IMPORTANCE_COUNTS);
    float *counts;
    uint64_t n, all;
    *out = NULL;
    if (!sums) return all_alike(t, out, err);
    wk_status s = read_numbers(i, seen, &counts, &n, err);
    if (!s) s = read_numbers(i, sums, out, &all, err);
    for (uint64_t slab = 0; !s && slab < slabs_of(t); slab++)
        scale_slab(*out + slab * t->ne[0], t->ne[0], counts[n == 1 ? 0 : slab]);
    free(counts);
    return s;
}
