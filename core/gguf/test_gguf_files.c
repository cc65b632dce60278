/* test_gguf_files.c: files on disk: kinds, splits, files that shrink, and the golden containers. */
#include "gguf/test_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gguf/guard.h"
#include "test_data.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/test-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d) (void)closedir(d);
    return rmdir(folder);
}

static void write_file(const char *name, const struct build *b)
{
    FILE *f = fopen(in_folder(name), "wb");
    assert_non_null(f);
    if (b->n) assert_int_equal(fwrite(b->bytes, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static void expect_open(const char *name, wk_status expected, const char *text)
{
    struct gguf *file = NULL;
    const wk_status status = gguf_open(in_folder(name), &file, &test_err);
    if (status != expected) fail_msg("%s: status %d, expected %d: %s", name, status, expected, error_text);
    if (text) assert_text(text);
    if (status != WK_OK) assert_null(file);
    gguf_close(file);
}

static struct build two_tensors(void)
{
    struct build b = { 0 };
    put_header(&b, 2, 1);
    put_kv_str(&b, "general.architecture", "llama");
    put_vector(&b, "a", 8, 0);
    put_vector(&b, "b", 8, 32);
    put_pad(&b, 32);
    for (unsigned i = 0; i < 64; i++) put_u8(&b, (uint8_t)i);
    return b;
}

static void test_kinds(void **state)
{
    (void)state;
    struct build b = two_tensors(), empty = { 0 };
    write_file("good.gguf", &b);
    write_file("empty.gguf", &empty);
    b.n = 30;
    write_file("cut.gguf", &b);
    free_build(&b);
    assert_int_equal(mkfifo(in_folder("fifo.gguf"), 0600), 0);
    assert_int_equal(symlink("good.gguf", in_folder("link.gguf")), 0);
    assert_int_equal(symlink("nowhere", in_folder("dangling.gguf")), 0);
    expect_open("good.gguf", WK_OK, NULL);
    expect_open("link.gguf", WK_OK, NULL);
    expect_open("empty.gguf", WK_INVALID, "0 are left");
    expect_open("cut.gguf", WK_INVALID, "truncated");
    expect_open("missing.gguf", WK_IO, "cannot be opened: No such file");
    expect_open("dangling.gguf", WK_IO, "No such file");
    expect_open(".", WK_INVALID, "is a directory, expected a GGUF file, such as the cut.gguf in it");
    assert_int_equal(mkdir(in_folder("hf"), 0700), 0);
    expect_open("hf", WK_INVALID, "is a directory, expected a GGUF file");
    write_file("hf/model.safetensors", &empty);
    expect_open("hf", WK_INVALID, "it holds safetensors");
    expect_open("fifo.gguf", WK_INVALID, "not a regular file");
    struct gguf *file;
    assert_int_equal(gguf_open("/dev/null", &file, &test_err), WK_INVALID);
    assert_text("not a regular file");
}

/* Metadata of several megabytes, more than are loaded at a time, end in the middle of a page. */
static void test_large_metadata(void **state)
{
    (void)state;
    enum { WORDS = 100000 };
    struct build b = { 0 };
    put_header(&b, 1, 3);
    put_array(&b, "words", GGUF_STRING, WORDS);
    char word[32];
    for (int i = 0; i < WORDS; i++) {
        (void)snprintf(word, sizeof word, "word-%d", i);
        put_str(&b, word);
    }
    put_array(&b, "numbers", GGUF_U32, 400000); /* one read longer than a load */
    for (uint32_t i = 0; i < 400000; i++) put_u32(&b, i);
    put_kv_u32(&b, "end", 77);
    put_vector(&b, "t", 8, 0);
    put_pad(&b, 32);
    for (unsigned i = 0; i < 32; i++) put_u8(&b, (uint8_t)(200 + i));
    write_file("large.gguf", &b);

    struct gguf *file;
    assert_int_equal(gguf_open(in_folder("large.gguf"), &file, &test_err), WK_OK);
    assert_int_equal(gguf_file_bytes(file), b.n);
    /* What was validated stays as it was, whatever happens to the file. */
    assert_int_equal(truncate(in_folder("large.gguf"), 0), 0);
    struct gguf_strings it;
    struct gguf_str s;
    assert_int_equal(gguf_strings_begin(file, gguf_find(file, "words"), &it, NULL), WK_OK);
    int n = 0;
    while (gguf_strings_next(&it, &s)) {
        (void)snprintf(word, sizeof word, "word-%d", n++);
        assert_int_equal(s.len, strlen(word));
        assert_memory_equal(s.data, word, s.len);
    }
    assert_int_equal(n, WORDS);
    uint64_t value;
    for (uint64_t i = 0; i < 400000; i += 1234) {
        assert_int_equal(gguf_u64_at(file, gguf_find(file, "numbers"), i, &value, NULL), WK_OK);
        assert_int_equal(value, i);
    }
    assert_int_equal(gguf_u64_at(file, gguf_find(file, "end"), 0, &value, NULL), WK_OK);
    assert_int_equal(value, 77);
    gguf_close(file);
    free_build(&b);
}

/* Metadata beyond the limit are refused before they are read: the file is a hole. */
static void test_metadata_limit(void **state)
{
    (void)state;
    const uint64_t limit = UINT64_C(256) << 20;
    struct build b = { 0 };
    put_header(&b, 0, 1);
    put_array(&b, "huge", GGUF_U8, limit);
    write_file("sparse.gguf", &b);
    free_build(&b);
    assert_int_equal(truncate(in_folder("sparse.gguf"), (off_t)limit * 2), 0);
    expect_open("sparse.gguf", WK_UNSUPPORTED, "larger than the 268435456 bytes");
}

/* ---- split files --------------------------------------------------------------------------------------- */

struct shard_row {
    int no, count, tensors; /* -1: the key is absent */
    const char *tensor;     /* NULL: no tensor */
};

static void write_shard(const char *name, struct shard_row r)
{
    struct build b = { 0 };
    put_header(&b, r.tensor != NULL, (uint64_t)((r.no >= 0) + (r.count >= 0) + (r.tensors >= 0)));
    if (r.no >= 0) {
        put_key(&b, "split.no", GGUF_U16);
        put_u16(&b, (uint16_t)r.no);
    }
    if (r.count >= 0) {
        put_key(&b, "split.count", GGUF_U16);
        put_u16(&b, (uint16_t)r.count);
    }
    if (r.tensors >= 0) {
        put_key(&b, "split.tensors.count", GGUF_I32);
        put_u32(&b, (uint32_t)r.tensors);
    }
    if (r.tensor) {
        put_vector(&b, r.tensor, 8, 0);
        put_pad(&b, 32);
        put_zeros(&b, 32);
    }
    write_file(name, &b);
    free_build(&b);
}

static void test_split_rules(void **state)
{
    (void)state;
    static const struct {
        struct shard_row first, second;
        wk_status status;
        const char *text;
    } rows[] = {
        { { 0, 2, 2, "a" }, { 1, 2, 2, "b" }, WK_OK, NULL },
        { { 0, 2, 1, NULL }, { 1, 2, 1, "b" }, WK_OK, NULL },
        { { 0, 2, 2, "a" }, { 1, 2, 2, "a" }, WK_INVALID, "tensor 'a' is also in shard 1" },
        { { 0, 2, 3, "a" }, { 1, 2, 3, "b" }, WK_INVALID, "split.tensors.count is 3, the shards have 2" },
        { { 0, 2, 2, "a" }, { 0, 2, 2, "b" }, WK_INVALID, "says it is shard 1 of 2" },
        { { 0, 2, 2, "a" }, { 1, 3, 2, "b" }, WK_INVALID, "says it is shard 2 of 3" },
        { { 0, 2, 2, "a" }, { 1, 2, 5, "b" }, WK_INVALID, "with 5 tensors in all" },
        { { 0, 2, 2, "a" }, { -1, -1, -1, "b" }, WK_INVALID, "do not belong together" },
        { { 0, 2, -1, "a" }, { 1, 2, 2, "b" }, WK_INVALID, "some are missing" },
        { { 0, 2, 2, "a" }, { 1, 2, -1, "b" }, WK_INVALID, "some are missing" },
        { { 0, 0, 2, "a" }, { 1, 2, 2, "b" }, WK_INVALID, "do not fit together" },
        { { 2, 2, 2, "a" }, { 1, 2, 2, "b" }, WK_INVALID, "do not fit together" },
        { { 1, 2, 2, "a" }, { 1, 2, 2, "b" }, WK_INVALID, "is shard 2 of 2: open the first" },
        { { 0, 3, 2, "a" }, { 1, 3, 2, "b" }, WK_INVALID, "its name must end in -00001-of-00003.gguf" },
        { { 0, 1, 1, "a" }, { 1, 2, 2, "b" }, WK_OK, NULL },
        { { 0, 1, 2, "a" }, { 1, 2, 2, "b" }, WK_INVALID, "split.tensors.count is 2" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_shard("m-00001-of-00002.gguf", rows[i].first);
        write_shard("m-00002-of-00002.gguf", rows[i].second);
        expect_open("m-00001-of-00002.gguf", rows[i].status, rows[i].text);
    }
    write_shard("m-00001-of-00002.gguf", rows[0].first);
    write_shard("renamed.gguf", rows[0].first);
    expect_open("m-00002-of-00002.gguf", WK_INVALID, "m-00001-of-00002.gguf");
    expect_open("renamed.gguf", WK_INVALID, "its name must end in -00001-of-00002.gguf");
    assert_int_equal(unlink(in_folder("m-00002-of-00002.gguf")), 0);
    expect_open("m-00001-of-00002.gguf", WK_IO, "m-00002-of-00002.gguf: cannot be opened");

    struct build b = { 0 };
    put_header(&b, 0, 3);
    put_kv_u32(&b, "split.no", 0);
    put_kv_u32(&b, "split.count", 2);
    put_kv_u32(&b, "split.tensors.count", 0);
    assert_refused(&b, WK_UNSUPPORTED, "only a path can open");
    free_build(&b);
}

/* The limit on tensors is one for all shards together. */
static void test_split_tensor_limit(void **state)
{
    (void)state;
    for (unsigned shard = 0; shard < 2; shard++) {
        struct build b = { 0 };
        put_header(&b, 5001, 3);
        put_kv_u32(&b, "split.no", shard);
        put_kv_u32(&b, "split.count", 2);
        put_kv_u32(&b, "split.tensors.count", 10002);
        for (unsigned i = 0; i < 5001; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "t%u", shard * 5001 + i);
            put_vector(&b, name, 1, 32 * i);
        }
        put_pad(&b, 32);
        put_zeros(&b, (size_t)32 * 5001);
        write_file(shard ? "n-00002-of-00002.gguf" : "n-00001-of-00002.gguf", &b);
        free_build(&b);
    }
    expect_open("n-00001-of-00002.gguf", WK_UNSUPPORTED, "more than 10000 tensors together");
}

/* ---- files that shrink while their tensors are read ---------------------------------------------------- */

enum { TENSOR_BYTES = 1 << 20 };

static struct gguf *open_megabyte(void)
{
    struct build b = { 0 };
    put_header(&b, 1, 0);
    put_vector(&b, "t", TENSOR_BYTES / 4, 0);
    put_pad(&b, 32);
    for (size_t i = 0; i < TENSOR_BYTES; i++) put_u8(&b, (uint8_t)(i >> 12));
    write_file("shrinks.gguf", &b);
    free_build(&b);
    struct gguf *file = NULL;
    assert_int_equal(gguf_open(in_folder("shrinks.gguf"), &file, &test_err), WK_OK);
    return file;
}

static void read_and_nest(void *arg)
{
    /* The inner region ends well, the outer one faults afterwards. */
    const uint8_t *bytes = arg;
    uint8_t first;
    if (gguf_guarded_copy(&first, bytes, 1, NULL) != WK_OK) return;
    volatile uint8_t sum = first;
    for (size_t i = 0; i < TENSOR_BYTES; i += 4096) sum = (uint8_t)(sum + ((const volatile uint8_t *)bytes)[i]);
}

static void *copy_in_thread(void *arg)
{
    uint8_t *copy = malloc(TENSOR_BYTES);
    if (!copy) return NULL;
    const wk_status status = gguf_guarded_copy(copy, arg, TENSOR_BYTES, NULL);
    free(copy);
    return (void *)(intptr_t)status;
}

static void test_guard(void **state)
{
    (void)state;
    assert_int_equal(gguf_guard_install(&test_err), WK_OK);
    struct gguf *file = open_megabyte();
    const uint8_t *data = gguf_tensor_data(file, gguf_tensor_at(file, 0));
    uint8_t *copy = malloc(TENSOR_BYTES);
    assert_non_null(copy);
    assert_int_equal(gguf_guarded_copy(copy, data, TENSOR_BYTES, &test_err), WK_OK);
    for (size_t i = 0; i < TENSOR_BYTES; i++) assert_int_equal(copy[i], (uint8_t)(i >> 12));

    for (int cut = 19; cut >= 0; cut--) { /* twenty places; the first 256 KiB are private and stay readable */
        assert_int_equal(truncate(in_folder("shrinks.gguf"), (off_t)cut * (TENSOR_BYTES / 20)), 0);
        assert_int_equal(gguf_guarded_copy(copy, data, TENSOR_BYTES, &test_err), WK_IO);
        assert_text("became shorter");
        assert_int_equal(gguf_guarded_copy(copy, data, 128 << 10, &test_err), WK_OK);
    }
    assert_int_equal(gguf_guarded(read_and_nest, (void *)(uintptr_t)data, data, TENSOR_BYTES, &test_err), WK_IO);
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, copy_in_thread, (void *)(uintptr_t)data), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_int_equal((intptr_t)result, WK_IO);
    }
    gguf_close(file);
    free(copy);
}

static void touch_outside(void *arg) { (void)((const volatile uint8_t *)arg)[TENSOR_BYTES - 1]; }

/* A fault that no region covers, and a signal from outside, still kill: in a child. */
static void test_guard_elsewhere(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)signal(SIGBUS, SIG_DFL); /* not a sanitizer's handler, which would exit */
            if (gguf_guard_install(NULL) != WK_OK) _exit(1);
            struct gguf *file = open_megabyte();
            uint8_t *data = (uint8_t *)(uintptr_t)gguf_tensor_data(file, gguf_tensor_at(file, 0));
            if (truncate(in_folder("shrinks.gguf"), 0) != 0) _exit(2);
            if (how == 0)
                touch_outside(data);
            else if (how == 1)
                (void)gguf_guarded(touch_outside, data, data, 100, NULL); /* not in the region's range */
            else
                (void)raise(SIGBUS);
            _exit(3);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGBUS);
    }
}

static void exit_with_seven(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    _exit(7);
}

/* Who had the signal before gets what is not ours, even after something was, and after the handler was installed a
 * second time. */
static void test_guard_passes_on(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct sigaction action = { .sa_sigaction = exit_with_seven, .sa_flags = SA_SIGINFO };
        if (sigaction(SIGBUS, &action, NULL) != 0 || gguf_guard_install(NULL) != WK_OK ||
            gguf_guard_install(NULL) != WK_OK)
            _exit(1);
        struct gguf *file = open_megabyte();
        uint8_t *data = (uint8_t *)(uintptr_t)gguf_tensor_data(file, gguf_tensor_at(file, 0));
        if (truncate(in_folder("shrinks.gguf"), 0) != 0) _exit(2);
        if (gguf_guarded(touch_outside, data, data, TENSOR_BYTES, NULL) != WK_IO) _exit(3);
        touch_outside(data);
        _exit(4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* ---- tensors that are elsewhere by now ----------------------------------------------------------------- */

static bool is_mapped(const char *path)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found = found || strstr(line, path);
    (void)fclose(f);
    return found;
}

static void test_release(void **state)
{
    (void)state;
    struct gguf *file = open_megabyte();
    const struct gguf_tensor *t = gguf_tensor_at(file, 0);
    const uint8_t *data = gguf_tensor_data(file, t);
    assert_true(is_mapped("shrinks.gguf"));
    gguf_release_tensors(file);
    assert_false(is_mapped("shrinks.gguf"));
    assert_ptr_equal(gguf_tensor_find(file, "t", 1), t); /* the table is there still, also when the file is not */
    assert_int_equal(unlink(in_folder("shrinks.gguf")), 0);
    assert_int_equal(t->ne[0], TENSOR_BYTES / 4);
    gguf_release_tensors(file);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        touch_outside((void *)(uintptr_t)data);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    gguf_close(file);

    struct build b = two_tensors(); /* borrowed bytes stay as they are */
    assert_int_equal(gguf_open_memory(b.bytes, b.n, "memory", &file, &test_err), WK_OK);
    gguf_release_tensors(file);
    volatile uint8_t sum = *(const uint8_t *)gguf_tensor_data(file, gguf_tensor_at(file, 1));
    (void)sum;
    gguf_close(file);
    free_build(&b);
}

/* ---- golden containers --------------------------------------------------------------------------------- */

static struct gguf *open_data(const char *name)
{
    struct gguf *file = NULL;
    char path[DATA_PATH_MAX];
    const wk_status status = gguf_open(data_path(path, name), &file, &test_err);
    if (status != WK_OK) fail_msg("%s", error_text);
    return file;
}

static void assert_same_tensors(const struct gguf *a, const struct gguf *b)
{
    assert_int_equal(gguf_tensor_count(a), gguf_tensor_count(b));
    for (uint64_t i = 0; i < gguf_tensor_count(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_find(b, x->name.data, x->name.len);
        assert_non_null(y);
        assert_int_equal(x->ggml_type, y->ggml_type);
        assert_memory_equal(x->ne, y->ne, sizeof x->ne);
        uint64_t n, m;
        assert_int_equal(gguf_tensor_bytes(a, x, 1, 4, &n, NULL), WK_OK);
        assert_int_equal(gguf_tensor_bytes(b, y, 1, 4, &m, NULL), WK_OK);
        assert_int_equal(n, m);
        assert_memory_equal(gguf_tensor_data(a, x), gguf_tensor_data(b, y), n);
    }
}

static void data_containers(void **state)
{
    (void)state;
    struct gguf *whole = open_data("stories260K/stories260K-f32.gguf");
    struct gguf *v2 = open_data("container/stories260K-f32.v2.gguf");
    struct gguf *split = open_data("container/stories260K-split-00001-of-00003.gguf");
    assert_int_equal(gguf_version(whole), 3);
    assert_int_equal(gguf_version(v2), 2);
    assert_int_equal(gguf_shard_count(whole), 1);
    assert_int_equal(gguf_shard_count(split), 3);
    assert_int_equal(gguf_file_bytes(split), 507488 + 381440 + 165664);
    assert_same_tensors(whole, v2);
    assert_same_tensors(whole, split);
    gguf_close(whole);
    gguf_close(v2);
    gguf_close(split);
    struct gguf *file;
    char path[DATA_PATH_MAX];
    assert_int_equal(gguf_open(data_path(path, "container/bigendian.gguf"), &file, &test_err), WK_UNSUPPORTED);
    assert_text("big-endian");
    assert_int_equal(gguf_open(data_path(path, "container/stories260K-split-00002-of-00003.gguf"), &file, &test_err),
                     WK_INVALID);
    assert_text("stories260K-split-00001-of-00003.gguf");
}

static void data_all_types(void **state)
{
    (void)state;
    struct gguf *f = open_data("container/allkv-align64.gguf");
    static const struct {
        const char *key;
        bool is_unsigned;
        int64_t value;
    } integers[] = {
        { "test.u8", true, 255 },         { "test.i8", false, -128 },       { "test.u16", true, 65535 },
        { "test.i16", false, -32768 },    { "test.u32", true, 4294967295 }, { "test.i32", false, INT32_MIN },
        { "test.i64", false, INT64_MIN },
    };
    assert_int_equal(gguf_alignment(f), 64);
    for (size_t i = 0; i < COUNT(integers); i++) {
        int64_t s;
        uint64_t u;
        assert_int_equal(gguf_i64_at(f, gguf_find(f, integers[i].key), 0, &s, NULL), WK_OK);
        assert_true(s == integers[i].value);
        assert_int_equal(gguf_u64_at(f, gguf_find(f, integers[i].key), 0, &u, NULL),
                         integers[i].is_unsigned ? WK_OK : WK_INVALID);
    }
    uint64_t u;
    double d;
    bool yes, no;
    struct gguf_str s;
    assert_int_equal(gguf_u64_at(f, gguf_find(f, "test.u64"), 0, &u, NULL), WK_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(gguf_f64_at(f, gguf_find(f, "test.f32"), 0, &d, NULL), WK_OK);
    assert_true(d == 1.5);
    assert_int_equal(gguf_f64_at(f, gguf_find(f, "test.f64"), 0, &d, NULL), WK_OK);
    assert_true(d == 3.141592653589793);
    assert_int_equal(gguf_bool_at(f, gguf_find(f, "test.bool_t"), 0, &yes, NULL), WK_OK);
    assert_int_equal(gguf_bool_at(f, gguf_find(f, "test.bool_f"), 0, &no, NULL), WK_OK);
    assert_true(yes && !no);
    static const char text[] = "h\xc3\xa9llo \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80\n\t\"\\";
    assert_int_equal(gguf_str(f, gguf_find(f, "test.str"), &s, NULL), WK_OK);
    assert_int_equal(s.len, sizeof text - 1);
    assert_memory_equal(s.data, text, s.len);

    static const uint64_t lengths[] = { 1, 0, 2, 300 };
    struct gguf_strings it;
    assert_int_equal(gguf_strings_begin(f, gguf_find(f, "test.arr_str"), &it, NULL), WK_OK);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        assert_true(gguf_strings_next(&it, &s));
        assert_int_equal(s.len, lengths[i]);
    }
    assert_false(gguf_strings_next(&it, &s));
    static const int32_t i32[] = { 1, -2, 3 };
    static const float f32[] = { 0.5f, -1.25f };
    static const uint8_t bools[] = { 1, 0, 1 };
    assert_memory_equal(gguf_array_bytes(f, gguf_find(f, "test.arr_i32"), GGUF_I32, NULL), i32, sizeof i32);
    assert_memory_equal(gguf_array_bytes(f, gguf_find(f, "test.arr_f32"), GGUF_F32, NULL), f32, sizeof f32);
    assert_memory_equal(gguf_array_bytes(f, gguf_find(f, "test.arr_bool"), GGUF_BOOL, NULL), bools, sizeof bools);
    gguf_close(f);
}

/* Every model of the golden data opens, and each of its tensors has a byte. */
static void data_everything(void **state)
{
    (void)state;
    static const char *const folders[] = { "tiny", "stories260K", "vocab" };
    int opened = 0;
    char path[DATA_PATH_MAX];
    for (size_t i = 0; i < COUNT(folders); i++) {
        DIR *d = opendir(data_path(path, folders[i]));
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
            const char *dot = strrchr(e->d_name, '.');
            if (!dot || strcmp(dot, ".gguf") != 0) continue;
            char name[320];
            (void)snprintf(name, sizeof name, "%s/%s", folders[i], e->d_name);
            struct gguf *file = open_data(name);
            assert_non_null(gguf_find(file, "general.architecture"));
            for (uint64_t k = 0; k < gguf_tensor_count(file); k++) assert_true(gguf_tensor_at(file, k)->room > 0);
            gguf_close(file);
            opened++;
        }
        (void)closedir(d);
    }
    assert_true(opened >= 15);
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_large_metadata),
        cmocka_unit_test(test_metadata_limit),
        cmocka_unit_test(test_split_rules),
        cmocka_unit_test(test_split_tensor_limit),
        cmocka_unit_test(test_guard_elsewhere),
        cmocka_unit_test(test_guard_passes_on),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_release),
        cmocka_unit_test(data_containers),
        cmocka_unit_test(data_all_types),
        cmocka_unit_test(data_everything),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
