/* fuzz_gguf.c: libFuzzer target: any bytes are opened; what opens is read through every accessor.
 *
 * Build: cmake -DCMAKE_C_COMPILER=clang -DWORKER_FUZZ=ON, target fuzz_gguf; run it with a folder
 * of small GGUF files. */
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

static uint64_t seen; /* keeps the reads from being optimized away */

static void touch(const void *bytes, uint64_t n)
{
    const uint8_t *p = bytes;
    for (uint64_t i = 0; i < n; i++) seen += p[i];
}

static void read_kv(const struct gguf *file, const struct gguf_kv *kv, const struct wk_err *err)
{
    const uint64_t last = kv->count; /* one past the end: must be refused */
    for (int round = 0; round < 3; round++) {
        const uint64_t i = round == 0 ? 0 : round == 1 ? last - 1 : last;
        uint64_t u;
        int64_t s;
        double f;
        bool b;
        const wk_status status[] = { gguf_u64_at(file, kv, i, &u, err), gguf_i64_at(file, kv, i, &s, err),
                                     gguf_f64_at(file, kv, i, &f, err), gguf_bool_at(file, kv, i, &b, err) };
        for (size_t k = 0; k < sizeof status / sizeof *status; k++) {
            if (status[k] == WK_OK && i >= kv->count) abort();
        }
    }
    struct gguf_str text;
    struct gguf_strings it;
    if (gguf_str(file, kv, &text, err) == WK_OK) touch(text.data, text.len);
    if (gguf_strings_begin(file, kv, &it, err) == WK_OK) {
        uint64_t n = 0;
        while (gguf_strings_next(&it, &text)) {
            touch(text.data, text.len);
            n++;
        }
        if (n != kv->count) abort();
    }
    for (int type = 0; type < GGUF_TYPE_COUNT; type++) {
        const void *bytes = gguf_array_bytes(file, kv, (enum gguf_type)type, err);
        if (bytes) touch(bytes, kv->count * gguf_type_size((enum gguf_type)type));
    }
}

static void read_tensor(const struct gguf *file, const struct gguf_tensor *t, const struct wk_err *err)
{
    static const struct {
        uint32_t block, bytes;
    } formats[] = { { 1, 4 }, { 1, 1 }, { 32, 17 }, { 32, 34 }, { 256, 144 } };
    touch(gguf_tensor_data(file, t), t->room);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        uint64_t bytes;
        if (gguf_tensor_bytes(file, t, formats[i].block, formats[i].bytes, &bytes, err) == WK_OK && bytes > t->room)
            abort();
    }
    if (gguf_tensor_find(file, t->name.data, t->name.len) != t) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[512];
    const struct wk_err err = { text, sizeof text };
    struct gguf *file;
    if (gguf_open_memory(data, size, "fuzz", &file, &err) != WK_OK) {
        if (file || strncmp(text, "fuzz: ", 6) != 0) abort();
        return 0;
    }
    for (uint64_t i = 0; i < gguf_kv_count(file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(file, i);
        read_kv(file, kv, &err);
        char key[GGUF_MAX_NAME + 1];
        if (kv->key.len >= sizeof key) continue;
        memcpy(key, kv->key.data, kv->key.len);
        key[kv->key.len] = 0;
        if (gguf_find(file, key) != kv) abort();
    }
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) read_tensor(file, gguf_tensor_at(file, i), &err);
    gguf_close(file);
    return 0;
}
