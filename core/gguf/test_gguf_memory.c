/* test_gguf_memory.c: every allocation of reader and writer fails once; and how much a hostile file can make the reader
 * allocate.
 *
 * The linker puts the __wrap_ functions between the core and the allocator. */
#include "gguf/test_file.h"

#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
int __wrap_asprintf(char **out, const char *format, ...);

static bool counting;
static uint64_t calls, fail_at, asked; /* fail_at: 1 is the first; asked: bytes in all */

static bool refuse(size_t n)
{
    if (!counting) return false;
    asked += n;
    return ++calls == fail_at;
}

void *__wrap_malloc(size_t n) { return refuse(n) ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return refuse(n * size) ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return refuse(n) ? NULL : __real_realloc(p, n); }

char *__wrap_strdup(const char *s)
{
    char *copy = __wrap_malloc(strlen(s) + 1);
    return copy ? strcpy(copy, s) : NULL;
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    *out = __wrap_malloc(512);
    if (!*out) return -1;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(*out, 512, format, args);
    va_end(args);
    return n;
}

static void start(uint64_t nth)
{
    calls = asked = 0;
    fail_at = nth;
    counting = true;
}

static struct build many(int n_kv, int n_tensors)
{
    struct build b = { 0 };
    char name[16];
    put_header(&b, (uint64_t)n_tensors, (uint64_t)n_kv);
    for (int i = 0; i < n_kv; i++) {
        (void)snprintf(name, sizeof name, "%x", (unsigned)i);
        put_key(&b, name, GGUF_U8);
        put_u8(&b, 0);
    }
    for (int i = 0; i < n_tensors; i++) {
        (void)snprintf(name, sizeof name, "%x", (unsigned)i);
        put_vector(&b, name, 1, 32 * (uint64_t)i);
    }
    put_pad(&b, 32);
    put_zeros(&b, 32 * (size_t)n_tensors);
    return b;
}

static void test_reader(void **state)
{
    (void)state;
    struct build b = many(40, 40);
    wk_status status = WK_NO_MEMORY;
    uint64_t nth;
    for (nth = 1; status != WK_OK; nth++) {
        struct gguf *file;
        start(nth);
        status = gguf_open_memory(b.bytes, b.n, "m.gguf", &file, &test_err);
        counting = false;
        if (status != WK_OK) {
            assert_int_equal(status, WK_NO_MEMORY);
            assert_null(file);
            assert_text("no memory");
        }
        gguf_close(file);
        assert_true(nth < 1000);
    }
    assert_true(nth > 6);
    free_build(&b);
}

static wk_status write_once(const struct gguf *from, const char *path)
{
    const uint64_t ne = 8;
    struct gguf_writer *w;
    wk_status status = gguf_writer_open(path, &w, &test_err);
    if (status != WK_OK) return status;
    status = gguf_writer_copy_metadata(w, from, NULL, &test_err);
    if (status == WK_OK) status = gguf_writer_u32(w, "number", 1, &test_err);
    if (status == WK_OK) status = gguf_writer_str(w, "text", "x", &test_err);
    for (unsigned i = 0; i < 20 && status == WK_OK; i++) {
        char name[8];
        const int n = snprintf(name, sizeof name, "t%u", i);
        status = gguf_writer_tensor(w, (struct gguf_str){ name, (uint64_t)n }, 0, 1, &ne, 32, &test_err);
    }
    if (status == WK_OK) {
        const uint8_t data[20 * 32] = { 0 };
        status = gguf_writer_data(w, data, sizeof data, &test_err);
    }
    if (status == WK_OK) return gguf_writer_finish(w, &test_err);
    gguf_writer_abandon(w);
    return status;
}

static void test_writer(void **state)
{
    (void)state;
    struct build b = many(40, 0);
    struct gguf *from;
    assert_int_equal(gguf_open_memory(b.bytes, b.n, "m.gguf", &from, &test_err), WK_OK);
    char path[] = "/tmp/test-gguf-memory-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    wk_status status = WK_NO_MEMORY;
    for (uint64_t nth = 1; status != WK_OK; nth++) {
        start(nth);
        status = write_once(from, path);
        counting = false;
        if (status != WK_OK) assert_int_equal(status, WK_NO_MEMORY);
        assert_true(nth < 2000);
    }
    struct gguf *file;
    assert_int_equal(gguf_open(path, &file, &test_err), WK_OK);
    assert_int_equal(gguf_kv_count(file), 42);
    gguf_close(file);
    assert_int_equal(unlink(path), 0);
    gguf_close(from);
    free_build(&b);
}

/* The densest files: all bytes allocated over time, not only at once, stay below 16 times the file. */
static void test_bound(void **state)
{
    (void)state;
    static const struct {
        int n_kv, n_tensors;
    } rows[] = { { 65536, 0 }, { 0, 10000 }, { 40000, 10000 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = many(rows[i].n_kv, rows[i].n_tensors);
        struct gguf *file;
        start(0);
        const wk_status status = gguf_open_memory(b.bytes, b.n, "m.gguf", &file, &test_err);
        counting = false;
        assert_int_equal(status, WK_OK);
        assert_true(asked < 16 * b.n);
        gguf_close(file);
        free_build(&b);
    }
    static const uint64_t counts[] = { 1000, 10000, 65536, UINT32_MAX, UINT64_MAX };
    for (size_t i = 0; i < COUNT(counts); i++) {
        struct build b = { 0 };
        put_header(&b, counts[i], counts[i]);
        put_zeros(&b, 8);
        struct gguf *file;
        start(0);
        const wk_status status = gguf_open_memory(b.bytes, b.n, "m.gguf", &file, &test_err);
        counting = false;
        assert_int_equal(status, WK_INVALID);
        assert_true(asked < 1024);
        free_build(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_reader), cmocka_unit_test(test_writer),
                                        cmocka_unit_test(test_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
