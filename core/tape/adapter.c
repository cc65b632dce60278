/* adapter.c: see adapter.h. Source of names and of the factor: the files that llama.cpp's converter writes. */
#include "tape/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const tails[] = { [ADAPTER_A] = ".lora_a", [ADAPTER_B] = ".lora_b" };
enum { TAIL = 7 };

static bool is_text(const struct gguf *file, const struct gguf_kv *kv, const char *text)
{
    struct gguf_str s;
    return kv && kv->type == GGUF_STRING && gguf_str(file, kv, &s, NULL) == WK_OK && s.len == strlen(text) &&
           memcmp(s.data, text, s.len) == 0;
}

wk_status adapter_not_model(const struct gguf *file, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, "general.type");
    if (is_text(file, kv, "adapter"))
        return wk_fail(err, WK_INVALID, "%s: an adapter, not a model: give it with --lora beside its --model",
                       gguf_path(file));
    if (is_text(file, kv, "imatrix"))
        return wk_fail(err, WK_INVALID,
                       "%s: an importance matrix, not a model: give it to worker quantize with --imatrix",
                       gguf_path(file));
    return WK_OK;
}

/* A key that must have this very text. */
static wk_status want_text(const struct gguf *file, const char *key, const char *text, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    struct gguf_str s = { "", 0 };
    if (is_text(file, kv, text)) return WK_OK;
    if (kv && kv->type == GGUF_STRING) (void)gguf_str(file, kv, &s, NULL);
    return wk_fail(err, WK_INVALID, "%s: %s is %s%.*s%s, expected \"%s\": not a LoRA adapter", gguf_path(file), key,
                   kv ? "\"" : "not there", s.len < 64 ? (int)s.len : 64, s.data, kv ? "\"" : "", text);
}

/* A text that may be there, cut to fit. */
static wk_status read_text(const struct gguf *file, const char *key, char *out, size_t cap, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    struct gguf_str s;
    out[0] = '\0';
    if (!kv) return WK_OK;
    char text[200];
    if (gguf_str(file, kv, &s, &(struct wk_err){ text, sizeof text }))
        return wk_fail(err, WK_INVALID, "%s: %s", gguf_path(file), text);
    (void)snprintf(out, cap, "%.*s", s.len < cap - 1 ? (int)s.len : (int)cap - 1, s.data);
    return WK_OK;
}

/* A key below "adapter." that nothing reads might change what the adapter means. */
static wk_status check_keys(const struct gguf *file, const struct wk_err *err)
{
    static const char *const known[] = { "adapter.type", "adapter.lora.alpha", "adapter.lora.task_name",
                                         "adapter.lora.prompt_prefix" };
    static const char head[] = "adapter.", tokens[] = "adapter.alora.invocation_tokens";
    if (gguf_find(file, tokens))
        return wk_fail(err, WK_UNSUPPORTED,
                       "%s: %s: an adapter that is switched on by tokens (aLoRA) is not served; one without them is",
                       gguf_path(file), tokens);
    for (uint64_t i = 0; i < gguf_kv_count(file); i++) {
        const struct gguf_str key = gguf_kv_at(file, i)->key;
        bool found = key.len < sizeof head - 1 || memcmp(key.data, head, sizeof head - 1) != 0;
        for (size_t k = 0; !found && k < sizeof known / sizeof *known; k++)
            found = key.len == strlen(known[k]) && memcmp(key.data, known[k], key.len) == 0;
        if (!found)
            return wk_fail(err, WK_UNSUPPORTED, "%s: %.*s: no such key of an adapter is known", gguf_path(file),
                           key.len < 96 ? (int)key.len : 96, key.data);
    }
    return WK_OK;
}

static wk_status read_alpha(const struct gguf *file, double *out, const struct wk_err *err)
{
    static const char key[] = "adapter.lora.alpha";
    const struct gguf_kv *kv = gguf_find(file, key);
    char text[200] = "";
    if (!kv)
        return wk_fail(err, WK_INVALID, "%s: %s is missing: how strong the adapter is cannot be known", gguf_path(file),
                       key);
    if (kv->type == GGUF_ARRAY || gguf_f64_at(file, kv, 0, out, &(struct wk_err){ text, sizeof text }) ||
        !isfinite(*out))
        return wk_fail(err, WK_INVALID, "%s: %s: expected a finite number%s%s", gguf_path(file), key,
                       text[0] ? "; " : "", text);
    return WK_OK;
}

size_t adapter_name(const struct gguf_tensor *t, enum adapter_half *half)
{
    if (t->name.len <= TAIL) return 0;
    const size_t len = (size_t)t->name.len - TAIL;
    for (int h = 0; h < 2; h++) {
        if (memcmp(t->name.data + len, tails[h], TAIL) != 0) continue;
        *half = (enum adapter_half)h;
        return len;
    }
    return 0;
}

static const struct gguf_tensor *find_half(const struct gguf *file, const char *name, size_t len,
                                           enum adapter_half half)
{
    char full[GGUF_MAX_NAME + 1];
    const int n = snprintf(full, sizeof full, "%.*s%s", (int)len, name, tails[half]);
    return n > 0 && (size_t)n < sizeof full ? gguf_tensor_find(file, full, (size_t)n) : NULL;
}

const struct gguf_tensor *adapter_find(const struct adapter *a, const char *name, enum adapter_half half)
{
    return find_half(a->file, name, strlen(name), half);
}

static wk_status check_tensors(const struct gguf *file, const struct wk_err *err)
{
    if (!gguf_tensor_count(file)) return wk_fail(err, WK_INVALID, "%s: an adapter without tensors", gguf_path(file));
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        enum adapter_half half = ADAPTER_A;
        const size_t len = adapter_name(t, &half);
        if (!len)
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: %.*s: expected names that end in .lora_a or .lora_b; an adapter that replaces tensors "
                           "is not served",
                           gguf_path(file), (int)t->name.len, t->name.data);
        const enum adapter_half other = half == ADAPTER_A ? ADAPTER_B : ADAPTER_A;
        if (!find_half(file, t->name.data, len, other))
            return wk_fail(err, WK_INVALID, "%s: %.*s is there, %.*s%s is not", gguf_path(file), (int)t->name.len,
                           t->name.data, (int)len, t->name.data, tails[other]);
    }
    return WK_OK;
}

wk_status adapter_read(struct gguf *file, double scale, struct adapter *out, const struct wk_err *err)
{
    *out = (struct adapter){ .file = file, .scale = scale };
    if (!isfinite(scale))
        return wk_fail(err, WK_INVALID, "%s: a scale of %g: expected a finite number", gguf_path(file), scale);
    wk_status s = want_text(file, "general.type", "adapter", err);
    if (!s) s = want_text(file, "adapter.type", "lora", err);
    if (!s) s = check_keys(file, err);
    if (!s) s = read_alpha(file, &out->alpha, err);
    if (!s) s = read_text(file, "general.architecture", out->architecture, sizeof out->architecture, err);
    if (!s) s = read_text(file, "adapter.lora.task_name", out->task, sizeof out->task, err);
    if (!s) s = read_text(file, "adapter.lora.prompt_prefix", out->prefix, sizeof out->prefix, err);
    return s ? s : check_tensors(file, err);
}

float adapter_factor(const struct adapter *a, uint64_t rank)
{
    return (float)(a->alpha != 0 ? a->scale * a->alpha / (double)rank : a->scale);
}
