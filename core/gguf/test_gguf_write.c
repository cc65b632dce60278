/* test_gguf_write.c: what the writer writes, the reader reads; what goes wrong leaves nothing behind. */
#include "gguf/test_file.h"

#include <dirent.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static char path[128];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test-gguf-write-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/out.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder); /* fails, and the test with it, if a temporary file is left */
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

static struct gguf_str str(const char *s) { return (struct gguf_str){ s, strlen(s) }; }

static struct gguf_writer *open_writer(void)
{
    struct gguf_writer *w = NULL;
    if (gguf_writer_open(path, &w, &test_err) != WK_OK) fail_msg("%s", error_text);
    return w;
}

/* A source whose metadata have every kind of value, with alignment 64 and split keys of a split of one. */
static struct gguf *source(struct build *b)
{
    put_header(b, 1, 9);
    put_kv_str(b, "general.architecture", "llama");
    put_kv_u32(b, "general.alignment", 64);
    put_kv_u32(b, "general.file_type", 0);
    put_array(b, "words", GGUF_STRING, 2);
    put_str(b, "one");
    put_bytes(b, "t\0wo", 4);
    put_kv_u32(b, "split.no", 0);
    put_kv_u32(b, "split.count", 1);
    put_kv_u32(b, "split.tensors.count", 1);
    put_array(b, "bools", GGUF_BOOL, 3);
    put_u8(b, 1);
    put_u8(b, 0);
    put_u8(b, 1);
    put_kv_u32(b, "last", 9);
    put_vector(b, "t", 8, 0);
    put_pad(b, 64);
    put_zeros(b, 32);
    struct gguf *file = NULL;
    if (gguf_open_memory(b->bytes, b->n, "source", &file, &test_err) != WK_OK) fail_msg("%s", error_text);
    return file;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct build b = { 0 };
    struct gguf *from = source(&b);
    static const char *const except[] = { "general.file_type", NULL };
    static const uint64_t bytes[] = { 1, 31, 32, 33, 1000, 1 << 20 };
    for (size_t piece = 1; piece < 1 << 22; piece = piece * 37 + 1) { /* pieces of many sizes across tensor ends */
        struct gguf_writer *w = open_writer();
        assert_int_equal(gguf_writer_copy_metadata(w, from, except, &test_err), WK_OK);
        assert_int_equal(gguf_writer_u32(w, "general.file_type", 15, &test_err), WK_OK);
        assert_int_equal(gguf_writer_str(w, "general.name", "written", &test_err), WK_OK);
        size_t total = 0;
        for (size_t i = 0; i < COUNT(bytes); i++) {
            char name[8];
            (void)snprintf(name, sizeof name, "t%zu", i);
            assert_int_equal(gguf_writer_tensor(w, str(name), 24, 1, &bytes[i], bytes[i], &test_err), WK_OK);
            total += bytes[i];
        }
        uint8_t *data = malloc(total);
        assert_non_null(data);
        for (size_t i = 0; i < total; i++) data[i] = (uint8_t)(i * 7 + i / 251);
        for (size_t at = 0; at < total; at += piece) {
            const size_t n = piece < total - at ? piece : total - at;
            assert_int_equal(gguf_writer_data(w, data + at, n, &test_err), WK_OK);
        }
        assert_int_equal(gguf_writer_finish(w, &test_err), WK_OK);
        assert_int_equal(files_in_folder(), 1);

        struct gguf *file;
        if (gguf_open(path, &file, &test_err) != WK_OK) fail_msg("%s", error_text);
        assert_int_equal(gguf_alignment(file), 32);
        assert_int_equal(gguf_kv_count(file), 6);
        assert_null(gguf_find(file, "general.alignment"));
        assert_null(gguf_find(file, "split.count"));
        uint64_t value;
        assert_int_equal(gguf_u64_at(file, gguf_find(file, "general.file_type"), 0, &value, NULL), WK_OK);
        assert_int_equal(value, 15);
        assert_int_equal(gguf_u64_at(file, gguf_find(file, "last"), 0, &value, NULL), WK_OK);
        assert_int_equal(value, 9);
        assert_memory_equal(gguf_array_bytes(file, gguf_find(file, "bools"), GGUF_BOOL, NULL), "\1\0\1", 3);
        struct gguf_strings it;
        struct gguf_str s;
        assert_int_equal(gguf_strings_begin(file, gguf_find(file, "words"), &it, NULL), WK_OK);
        assert_true(gguf_strings_next(&it, &s) && s.len == 3);
        assert_true(gguf_strings_next(&it, &s) && s.len == 4 && memcmp(s.data, "t\0wo", 4) == 0);
        assert_int_equal(gguf_str(file, gguf_find(file, "general.name"), &s, NULL), WK_OK);
        assert_memory_equal(s.data, "written", 7);
        size_t at = 0;
        for (size_t i = 0; i < COUNT(bytes); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, i);
            assert_int_equal(gguf_tensor_bytes(file, t, 1, 1, &value, &test_err), WK_OK);
            assert_int_equal(value, bytes[i]);
            assert_memory_equal(gguf_tensor_data(file, t), data + at, value);
            assert_true(t->room - value < 32);
            at += value;
        }
        gguf_close(file);
        free(data);
    }
    gguf_close(from);
    free_build(&b);
}

static void test_without_tensors(void **state)
{
    (void)state;
    struct gguf_writer *w = open_writer();
    assert_int_equal(gguf_writer_str(w, "general.architecture", "llama", &test_err), WK_OK);
    assert_int_equal(gguf_writer_finish(w, &test_err), WK_OK);
    struct gguf *file;
    assert_int_equal(gguf_open(path, &file, &test_err), WK_OK);
    assert_int_equal(gguf_tensor_count(file), 0);
    assert_int_equal(gguf_kv_count(file), 1);
    gguf_close(file);
}

/* Each mistake is refused, nothing is renamed over the destination, and the temporary file disappears. */
static void test_mistakes(void **state)
{
    (void)state;
    (void)unlink(path);
    const uint64_t ne = 8, huge[4] = { 1, 1, 1, 1 };
    const uint8_t bytes[64] = { 0 };
    for (int mistake = 0; mistake < 10; mistake++) {
        struct gguf_writer *w = open_writer();
        wk_status status = WK_OK;
        assert_int_equal(gguf_writer_u32(w, "key", 1, &test_err), WK_OK);
        assert_int_equal(gguf_writer_tensor(w, str("t"), 0, 1, &ne, 32, &test_err), WK_OK);
        switch (mistake) {
        case 0: status = gguf_writer_u32(w, "key", 2, &test_err); break;
        case 1: status = gguf_writer_str(w, "", "x", &test_err); break;
        case 2: status = gguf_writer_str(w, "line\n", "x", &test_err); break;
        case 3: status = gguf_writer_tensor(w, str("t"), 0, 1, &ne, 32, &test_err); break;
        case 4: status = gguf_writer_tensor(w, str("u"), 0, 5, huge, 32, &test_err); break;
        case 5: status = gguf_writer_tensor(w, str("u"), 0, 1, huge, UINT64_MAX - 40, &test_err); break;
        case 6: status = gguf_writer_tensor(w, (struct gguf_str){ "", 0 }, 0, 1, &ne, 32, &test_err); break;
        case 7: status = gguf_writer_data(w, bytes, 33, &test_err); break;
        case 8:
            assert_int_equal(gguf_writer_data(w, bytes, 8, &test_err), WK_OK);
            status = gguf_writer_u32(w, "late", 1, &test_err);
            break;
        default:
            assert_int_equal(gguf_writer_data(w, bytes, 31, &test_err), WK_OK);
            break; /* a byte is missing: finish says so */
        }
        if (mistake < 9) assert_int_not_equal(status, WK_OK);
        assert_int_equal(gguf_writer_finish(w, &test_err), WK_INTERNAL);
        assert_text(mistake < 9 ? "an earlier step" : "tensor 't' has 31 of 32 bytes");
        assert_int_equal(files_in_folder(), 0);
    }
}

static void test_abandon(void **state)
{
    (void)state;
    const uint64_t ne = 8;
    struct gguf_writer *w = open_writer();
    assert_int_equal(gguf_writer_tensor(w, str("t"), 0, 1, &ne, 32, &test_err), WK_OK);
    assert_int_equal(gguf_writer_data(w, "12345678", 8, &test_err), WK_OK);
    gguf_writer_abandon(w);
    gguf_writer_abandon(NULL);
    assert_int_equal(files_in_folder(), 0);
    assert_int_equal(gguf_writer_open("/nowhere/at/all.gguf", &w, &test_err), WK_IO);
    assert_text("cannot be created");
}

/* The file system refuses in the middle. */
static void test_file_too_large(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = { 1 << 20, before.rlim_max };
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum { BYTES = 3 << 20 };
    const uint64_t ne = BYTES;
    uint8_t *data = calloc(1, BYTES);
    assert_non_null(data);
    struct gguf_writer *w = open_writer();
    assert_int_equal(gguf_writer_tensor(w, str("t"), 24, 1, &ne, BYTES, &test_err), WK_OK);
    const wk_status status = gguf_writer_data(w, data, BYTES, &test_err);
    if (status != WK_OK) assert_text("cannot be written: File too large");
    assert_int_not_equal(gguf_writer_finish(w, &test_err), WK_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(files_in_folder(), 0);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_without_tensors), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_abandon),    cmocka_unit_test(test_file_too_large),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
