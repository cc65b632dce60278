/* test_file.h: builds GGUF bytes for the tests of this room, right or wrong, and opens them. */
#ifndef CORE_GGUF_TEST_FILE_H
#define CORE_GGUF_TEST_FILE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct build {
    uint8_t *bytes;
    size_t n, cap;
};

static inline void put(struct build *b, const void *bytes, size_t n)
{
    if (n > b->cap - b->n) {
        b->cap = (b->n + n) * 2;
        b->bytes = realloc(b->bytes, b->cap);
        assert_non_null(b->bytes);
    }
    if (n) memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

static inline void put_u8(struct build *b, uint8_t v) { put(b, &v, sizeof v); }
static inline void put_u16(struct build *b, uint16_t v) { put(b, &v, sizeof v); }
static inline void put_u32(struct build *b, uint32_t v) { put(b, &v, sizeof v); }
static inline void put_u64(struct build *b, uint64_t v) { put(b, &v, sizeof v); }
static inline void put_zeros(struct build *b, size_t n)
{
    for (size_t i = 0; i < n; i++) put_u8(b, 0);
}
static inline void put_bytes(struct build *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}
static inline void put_str(struct build *b, const char *s) { put_bytes(b, s, strlen(s)); }
static inline void put_pad(struct build *b, size_t to) { put_zeros(b, (to - b->n % to) % to); }

static inline void put_header(struct build *b, uint64_t n_tensors, uint64_t n_kv)
{
    put(b, "GGUF", 4);
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_key(struct build *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_u32(b, type);
}

static inline void put_array(struct build *b, const char *key, uint32_t element, uint64_t count)
{
    put_key(b, key, GGUF_ARRAY);
    put_u32(b, element);
    put_u64(b, count);
}

static inline void put_kv_str(struct build *b, const char *key, const char *value)
{
    put_key(b, key, GGUF_STRING);
    put_str(b, value);
}

static inline void put_kv_u32(struct build *b, const char *key, uint32_t value)
{
    put_key(b, key, GGUF_U32);
    put_u32(b, value);
}

static inline void put_tensor(struct build *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) put_u64(b, ne[i]);
    put_u32(b, 0); /* F32 */
    put_u64(b, offset);
}

/* A vector of n floats at `offset`. */
static inline void put_vector(struct build *b, const char *name, uint64_t n, uint64_t offset)
{
    put_tensor(b, name, 1, &n, offset);
}

static inline void free_build(struct build *b)
{
    free(b->bytes);
    *b = (struct build){ 0 };
}

static char error_text[1024];
static const struct wk_err test_err = { error_text, sizeof error_text };

/* Opens a copy of exactly n bytes, so that a read past them is caught; the copy must live as long as the file. */
static inline wk_status open_copy(const void *bytes, size_t n, struct gguf **file, void **copy)
{
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    if (n) memcpy(*copy, bytes, n);
    error_text[0] = 0;
    return gguf_open_memory(*copy, n, "m.gguf", file, &test_err);
}

static inline void assert_text(const char *part)
{
    if (!strstr(error_text, part)) fail_msg("expected \"%s\" in \"%s\"", part, error_text);
}

static inline void check_refused(const struct build *b, wk_status expected, const char *part, const char *where,
                                 int line)
{
    struct gguf *file = NULL;
    void *copy;
    const wk_status status = open_copy(b->bytes, b->n, &file, &copy);
    if (status != expected || file)
        print_error("%s:%d: status %d, expected %d: %s\n", where, line, status, expected, error_text);
    assert_int_equal(status, expected);
    assert_null(file);
    assert_text("m.gguf: ");
    if (!strstr(error_text, part)) print_error("%s:%d\n", where, line);
    assert_text(part);
    free(copy);
}
#define assert_refused(b, status, part) check_refused(b, status, part, __FILE__, __LINE__)

static inline void check_opens(const struct build *b, const char *where, int line)
{
    struct gguf *file = NULL;
    void *copy;
    const wk_status status = open_copy(b->bytes, b->n, &file, &copy);
    if (status != WK_OK) print_error("%s:%d: %s\n", where, line, error_text);
    assert_int_equal(status, WK_OK);
    gguf_close(file);
    free(copy);
}
#define assert_opens(b) check_opens(b, __FILE__, __LINE__)

#endif
