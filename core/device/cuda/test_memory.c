/* test_memory.c: regions, pinned memory, lack of memory, what residency finds, the upload and its failures, the digest
 * from the file and from the device, sealing; and in processes of their own, since they do not survive it: writes to
 * sealed weights, and a kernel's fault. */
#include <errno.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sha256.h"
#include "device/cuda/context.h"
#include "device/cuda/test_memory_format.h"
#include "gguf/guard.h"
#include "gguf_build.h"
#include "tape/tape.h"

#include <cmocka.h> /* last: it takes the name `fail` */

extern char **environ;
static char text[512];
static const struct wk_err err = { text, sizeof text };
#define OK(call)                                                  \
    do {                                                          \
        const wk_status ok_ = (call);                             \
        if (ok_) fail_msg("%s: status %d: %s", #call, ok_, text); \
    } while (0)
#define CUDA_OK(call) assert_int_equal((call), cudaSuccess)

/* ---- a model of matrices in the test's format and of vectors ------------------------------------------- */

enum { ROWS = 1000, COLS = 96, EXPERTS = 3, EXPERT_ROWS = 50, WIDE = 32 * 1024, WIDE_ROWS = 100 };

struct fixture {
    char path[64];
    struct gguf *file;
    struct tape_tensor tensor[6];
    struct cuda_load load[9];
    struct cuda_vector vector[2];
    uint32_t n_loads;
    char digest[65];
    struct cuda_upload upload;
    float told[64];
    uint32_t n_told;
};

static void copy_floats(const struct wk_dequantize *d) { memcpy(d->y, d->blocks, d->n * sizeof *d->y); }
static const struct wk_type_cpu f32_cpu = {
    .struct_size = sizeof f32_cpu, .block = 1, .block_bytes = 4, .name = "f32", .dequantize = copy_floats
};

static const struct {
    const char *name;
    uint32_t type, rows, cols, slabs;
} shapes[6] = {
    { "embed", TEST_FORMAT, ROWS, COLS, 1 }, { "norm", 0, 1, 333, 1 },
    { "fused", TEST_FORMAT, 77, COLS, 1 },   { "experts", TEST_FORMAT, EXPERT_ROWS, COLS, EXPERTS },
    { "bias", TEST_FORMAT, 1, 64, 1 },       { "wide", TEST_FORMAT, WIDE_ROWS, WIDE, 1 },
};

static uint64_t shape_bytes(int i)
{
    const uint64_t values = (uint64_t)shapes[i].rows * shapes[i].cols * shapes[i].slabs;
    return shapes[i].type ? values / TEST_BLOCK * TEST_BLOCK_BYTES : values * sizeof(float);
}

static void write_model(struct fixture *f)
{
    struct gguf_build *g = gguf_build_new("test");
    uint32_t noise = 12345;
    struct sha256 *sha = sha256_begin();
    for (int i = 0; i < 6; i++) {
        const size_t bytes = shape_bytes(i);
        uint8_t *data = malloc(bytes);
        for (size_t k = 0; k < bytes; k++) data[k] = (uint8_t)((noise = noise * 1664525u + 1013904223u) >> 24);
        gguf_build_tensor(g, shapes[i].name, shapes[i].type, shapes[i].rows, shapes[i].cols, shapes[i].slabs, data,
                          bytes);
        sha256_update(sha, data, bytes);
        free(data);
    }
    assert_true(sha256_end(sha, f->digest));
    size_t size;
    const void *bytes = gguf_build_bytes(g, &size);
    (void)snprintf(f->path, sizeof f->path, "/tmp/test-memory-XXXXXX");
    const int fd = mkstemp(f->path);
    assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    (void)close(fd);
    gguf_build_free(g);
}

static void open_tensors(struct fixture *f)
{
    OK(gguf_open(f->path, &f->file, &err));
    for (int i = 0; i < 6; i++) {
        struct tape_tensor *t = &f->tensor[i];
        *t = (struct tape_tensor){ 0 };
        (void)snprintf(t->name, sizeof t->name, "%s", shapes[i].name);
        t->in = f->file;
        t->file = gguf_tensor_find(f->file, t->name, strlen(t->name));
        t->type = shapes[i].type ? &test_format_cpu : &f32_cpu;
        t->rows = shapes[i].rows;
        t->cols = shapes[i].cols;
        t->slabs = shapes[i].slabs;
        t->bytes = shape_bytes(i);
    }
}

static void add_load(struct fixture *f, struct cuda_device *d, int tensor, uint32_t first, uint32_t n, uint32_t slab)
{
    struct cuda_load *l = &f->load[f->n_loads++];
    *l = (struct cuda_load){
        .tensor = &f->tensor[tensor], .type = &test_format_cuda, .first = first, .n = n, .slab = slab
    };
    OK(cuda_memory_take(d, MEMORY_WEIGHTS, (n + 15) / 16 * test_format_cuda.tile_bytes(f->tensor[tensor].cols),
                        &l->tiles, &err));
}

static void on_progress(void *user, double fraction)
{
    struct fixture *f = user;
    if (f->n_told < 64) f->told[f->n_told++] = (float)fraction;
}

static void place(struct fixture *f, struct cuda_device *d)
{
    f->n_loads = 0;
    add_load(f, d, 0, 0, ROWS, 0);
    add_load(f, d, 0, 320, 40, 0); /* rows that another load has as well */
    add_load(f, d, 2, 0, 45, 0);   /* one tensor in two runs, neither of whole tiles */
    add_load(f, d, 2, 45, 32, 0);
    for (uint32_t e = 0; e < EXPERTS; e++) add_load(f, d, 3, 0, EXPERT_ROWS, e);
    add_load(f, d, 5, 0, WIDE_ROWS, 0);
    void *at;
    for (int i = 0; i < 2; i++) {
        struct cuda_vector *v = &f->vector[i];
        *v = (struct cuda_vector){ .tensor = &f->tensor[i ? 4 : 1] };
        OK(cuda_memory_take(d, MEMORY_WEIGHTS, (uint64_t)v->tensor->cols * sizeof(float), &at, &err));
        v->device = at;
        OK(cuda_memory_take(d, MEMORY_WEIGHTS, cuda_vector_raw(v->tensor), &v->raw, &err));
    }
    assert_null(f->vector[0].raw);
    assert_non_null(f->vector[1].raw);
    f->n_told = 0;
    f->upload = (struct cuda_upload){ .file = f->file,
                                      .loads = f->load,
                                      .n_loads = f->n_loads,
                                      .vectors = f->vector,
                                      .n_vectors = 2,
                                      .progress = on_progress,
                                      .progress_user = f };
}

static void fixture_open(struct fixture *f, struct cuda_device **d)
{
    write_model(f);
    open_tensors(f);
    OK(cuda_device_open(0, f->file, d, &err));
    place(f, *d);
}

static void fixture_close(struct fixture *f, struct cuda_device *d)
{
    cuda_device_close(d);
    gguf_close(f->file);
    (void)unlink(f->path);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static void test_regions(void **state)
{
    (void)state;
    struct cuda_device *d;
    struct device_memory before, after;
    struct memory_plan used;
    OK(cuda_device_memory(0, &before, &err));
    OK(cuda_device_open(0, NULL, &d, &err));
    const uint64_t bytes[] = { 1, (2 << 20) + 1, 300 << 20 };
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        for (int i = 0; i < 3; i++) {
            void *p;
            uint8_t last = 1;
            OK(cuda_memory_take(d, (enum memory_kind)kind, bytes[i], &p, &err));
            assert_int_equal((uintptr_t)p % (2 << 20), 0);
            CUDA_OK(cudaMemcpy(&last, (uint8_t *)p + bytes[i] - 1, 1, cudaMemcpyDeviceToHost));
            assert_int_equal(last, 0);
        }
    cuda_memory_used(d, &used);
    assert_int_equal(used.bytes[MEMORY_KV], bytes[0] + bytes[1] + bytes[2]);
    assert_int_equal(used.total, MEMORY_KINDS * (bytes[0] + bytes[1] + bytes[2]));
    OK(cuda_device_memory(0, &after, &err));
    assert_int_equal(after.taken, MEMORY_KINDS * ((2ull + 4 + 300) << 20));
    assert_true(before.free - after.free >= after.taken);
    OK(cuda_residency(d, &err));
    void *host, *device;
    OK(cuda_memory_pinned(d, 4096, &host, &device, &err));
    assert_true(cuda_residency_range(d, device, 4096, "pinned", &err) == WK_INTERNAL);
    assert_non_null(strstr(text, "pinned: byte 0 is host memory"));
    cuda_device_close(d);
    OK(cuda_device_memory(0, &after, &err));
    assert_int_equal(after.taken, 0);
}

static void test_too_much(void **state)
{
    (void)state;
    struct cuda_device *d;
    void *p;
    OK(cuda_device_open(0, NULL, &d, &err));
    const uint64_t much[] = { d->info.memory, (uint64_t)1 << 50, UINT64_MAX };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cuda_memory_take(d, MEMORY_KV, much[i], &p, &err), WK_NO_MEMORY);
        assert_non_null(strstr(text, "kv: required "));
        assert_non_null(strstr(text, "available "));
        assert_non_null(strstr(text, d->info.name));
        assert_null(p);
        assert_false(cuda_dead());
    }
    OK(cuda_memory_take(d, MEMORY_KV, 1 << 20, &p, &err)); /* it lives */
    cuda_device_close(d);
}

/* Device, host, device behind one range of addresses: at every place of the host granule it is found, and named. */
static void test_planted_host_page(void **state)
{
    (void)state;
    enum { GRANULES = 5 };
    struct cuda_device *d;
    OK(cuda_device_open(0, NULL, &d, &err));
    const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    for (uint64_t planted = 0; planted < GRANULES; planted++) {
        const uint64_t n = d->granule;
        CUdeviceptr base;
        CUmemGenericAllocationHandle h;
        assert_int_equal(d->driver.reserve(&base, GRANULES * n, n, 0, 0), 0);
        for (uint64_t i = 0; i < GRANULES; i++) {
            const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .location = { .type = i == planted ? CU_MEM_LOCATION_TYPE_HOST_NUMA
                                                                                  : CU_MEM_LOCATION_TYPE_DEVICE,
                                                             .id = 0 } };
            assert_int_equal(d->driver.create(&h, n, &prop, 0), 0);
            assert_int_equal(d->driver.map(base + i * n, n, 0, h, 0), 0);
            assert_int_equal(d->driver.release(h), 0);
        }
        assert_int_equal(d->driver.set_access(base, GRANULES * n, &access, 1), 0);
        assert_int_equal(cuda_residency_range(d, (void *)(uintptr_t)base, GRANULES * n, "planted", &err), WK_INTERNAL);
        char expected[64];
        (void)snprintf(expected, sizeof expected, "planted: byte %llu is host memory",
                       (unsigned long long)(planted * n));
        if (!strstr(text, expected)) fail_msg("expected \"%s\", got \"%s\"", expected, text);
        d->region[0] =
            (struct cuda_region){ .kind = MEMORY_KV, .asked = GRANULES * n, .bytes = GRANULES * n, .base = base };
        d->n_regions = 1;
        assert_int_equal(cuda_residency(d, &err), WK_INTERNAL);
        d->n_regions = 0;
        assert_int_equal(d->driver.unmap(base, GRANULES * n), 0);
        assert_int_equal(d->driver.free(base, GRANULES * n), 0);
    }
    void *managed = NULL;
    CUDA_OK(cudaMallocManaged(&managed, 1 << 20, cudaMemAttachGlobal));
    assert_int_equal(cuda_residency_range(d, managed, 1 << 20, "weights", &err), WK_INTERNAL);
    assert_non_null(strstr(text, "managed memory"));
    CUDA_OK(cudaFree(managed));
    assert_int_equal(cuda_residency_range(d, text, 1, "weights", &err), WK_INTERNAL);
    cuda_device_close(d);
}

/* ---- upload -------------------------------------------------------------------------------------------- */

static bool mapped(const char *path)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "re");
    while (fgets(line, sizeof line, f)) found = found || strstr(line, path);
    (void)fclose(f);
    return found;
}

static void check_vectors(const struct fixture *f)
{
    float host[333];
    const float *norm = gguf_tensor_data(f->file, f->tensor[1].file);
    CUDA_OK(cudaMemcpy(host, f->vector[0].device, sizeof host, cudaMemcpyDeviceToHost));
    assert_memory_equal(host, norm, sizeof host);
    const uint8_t *bias = gguf_tensor_data(f->file, f->tensor[4].file);
    CUDA_OK(cudaMemcpy(host, f->vector[1].device, 64 * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) assert_true(host[i] == bias[i / TEST_BLOCK * TEST_BLOCK_BYTES + i % TEST_BLOCK]);
}

/* Every chunk size: a tile a chunk and more than the file a chunk. The digest from file and device is that of the bytes
 * that were written. */
static void test_upload(void **state)
{
    (void)state;
    const uint32_t chunks[] = { 0, 1, 300000, 1 << 20, 32 << 20 };
    for (int i = 0; i < 5; i++) {
        struct fixture f;
        struct cuda_device *d;
        struct shard_handle h;
        char hex[65];
        fixture_open(&f, &d);
        f.upload.chunk = chunks[i];
        if (i == 1) f.upload.digest = f.digest;
        assert_true(mapped(f.path));
        OK(cuda_upload(d, &f.upload, &err));
        assert_true(f.n_told >= 5 && f.told[0] <= 0.25f && f.told[f.n_told - 1] >= 1.0f);
        for (uint32_t k = 0; k < 5; k++) {
            bool told = false;
            for (uint32_t j = 0; j < f.n_told; j++)
                told = told || (f.told[j] >= (float)k / 4 && f.told[j] <= (float)k / 4 + 1e-6f);
            assert_true(told);
        }
        OK(cuda_seal(d, &err));
        cuda_handle(d, &h);
        assert_true(h.sealed);
        assert_string_equal(h.digest, f.digest);
        assert_false(mapped(f.path));
        assert_int_equal(gguf_tensor_count(f.file), 6); /* the tables are there still */
        OK(cuda_verify(d, hex, &err));
        assert_string_equal(hex, f.digest);
        OK(cuda_residency(d, &err));
        if (i == 0) print_message("weights write-protected: %s\n", h.write_protected ? "yes" : "not enforced");
        assert_int_equal(cuda_upload(d, &f.upload, &err), WK_INTERNAL); /* one model a process */
        fixture_close(&f, d);
    }
}

static void test_values(void **state)
{
    (void)state;
    struct fixture f;
    struct cuda_device *d;
    fixture_open(&f, &d);
    f.upload.digest = "0000000000000000000000000000000000000000000000000000000000000000"; /* keeps the file mapped */
    assert_int_equal(cuda_upload(d, &f.upload, &err), WK_INVALID);
    assert_non_null(strstr(text, f.digest));
    struct shard_handle h;
    cuda_handle(d, &h);
    assert_false(h.sealed);
    check_vectors(&f);
    fixture_close(&f, d);
}

/* One bit of the weights, anywhere, and the digest differs. */
static void test_tampered(void **state)
{
    (void)state;
    struct fixture f;
    struct cuda_device *d;
    char hex[65];
    fixture_open(&f, &d);
    OK(cuda_upload(d, &f.upload, &err));
    OK(cuda_seal(d, &err));
    for (uint32_t i = 0; i < d->n_regions; i++) {
        const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                                         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        assert_int_equal(d->driver.set_access(d->region[i].base, d->region[i].bytes, &access, 1), 0);
    }
    uint8_t *const places[] = { f.load[0].tiles, (uint8_t *)f.load[3].tiles + 100, (uint8_t *)f.load[6].tiles + 30,
                                (uint8_t *)f.vector[0].device + 1331, f.vector[1].raw };
    for (int i = 0; i < 5; i++) {
        test_poke(places[i], 1);
        CUDA_OK(cudaDeviceSynchronize());
        OK(cuda_verify(d, hex, &err));
        assert_string_not_equal(hex, f.digest);
        test_poke(places[i], 1);
    }
    OK(cuda_verify(d, hex, &err));
    assert_string_equal(hex, f.digest);
    fixture_close(&f, d);
}

/* The file is cut short under us, at several places: an error, nothing sealed, the process lives and all memory comes
 * back. */
static void test_truncated(void **state)
{
    (void)state;
    OK(gguf_guard_install(&err)); /* cmocka has handlers of its own, anew for each test */
    for (int i = 0; i < 6; i++) {
        struct fixture f;
        struct cuda_device *d;
        struct shard_handle h;
        struct device_memory m;
        fixture_open(&f, &d);
        const off_t size = (off_t)gguf_file_bytes(f.file);
        assert_int_equal(truncate(f.path, size - (off_t)(f.tensor[5].bytes * (uint64_t)i / 6) - 4096), 0);
        assert_int_equal(cuda_upload(d, &f.upload, &err), WK_IO);
        assert_non_null(strstr(text, "became shorter"));
        cuda_handle(d, &h);
        assert_false(h.sealed);
        assert_int_equal(cuda_seal(d, &err), WK_INTERNAL);
        fixture_close(&f, d);
        OK(cuda_device_memory(0, &m, &err));
        assert_int_equal(m.taken, 0);
    }
}

/* The model leaves less than the staging would like: it is sent all the same. Less than one slot needs: that is said,
 * and nothing is lost. */
static void test_full_device(void **state)
{
    (void)state;
    static const uint64_t left[] = { (uint64_t)30 << 20, (uint64_t)4 << 20 };
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        struct cuda_device *d;
        struct device_memory m;
        struct shard_handle h;
        void *ballast;
        fixture_open(&f, &d);
        OK(cuda_device_memory(0, &m, &err));
        OK(cuda_memory_take(d, MEMORY_KV, m.free - left[i], &ballast, &err));
        const wk_status s = cuda_upload(d, &f.upload, &err);
        if (i == 0 && s) fail_msg("%s", text);
        if (i == 1) {
            assert_int_equal(s, WK_NO_MEMORY);
            assert_non_null(strstr(text, "workspace: required "));
        }
        cuda_handle(d, &h);
        if (i == 1) assert_false(h.write_protected || h.sealed);
        assert_false(cuda_dead());
        fixture_close(&f, d);
    }
}

/* A plugin's kernel fails in the middle: its text, nothing sealed, and all memory comes back. */
static _Atomic int packs_left;
static wk_status failing_pack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *e)
{
    return packs_left-- > 0 ? test_format_cuda.pack(t, stream, e) : wk_fail(e, WK_INTERNAL, "this pack fails");
}

static void test_failing_pack(void **state)
{
    (void)state;
    struct wk_type_cuda failing = test_format_cuda;
    failing.pack = failing_pack;
    for (int good = 0; good < 8; good++) {
        struct fixture f;
        struct cuda_device *d;
        struct shard_handle h;
        struct device_memory m;
        fixture_open(&f, &d);
        for (uint32_t i = 0; i < f.n_loads; i++) f.load[i].type = &failing;
        packs_left = good;
        assert_int_equal(cuda_upload(d, &f.upload, &err), WK_INTERNAL);
        assert_string_equal(text, "this pack fails");
        assert_true(f.n_told == 0 || f.told[f.n_told - 1] < 1.0f);
        cuda_handle(d, &h);
        assert_false(h.sealed || h.write_protected);
        fixture_close(&f, d);
        OK(cuda_device_memory(0, &m, &err));
        assert_int_equal(m.taken, 0);
        assert_false(cuda_dead());
    }
}

/* ---- what a process does not survive ------------------------------------------------------------------- */

/* Exit status 10: not enforced; 0: as it should be; else a line that failed. */
static int child_write_sealed(void)
{
    struct fixture f;
    struct cuda_device *d;
    struct shard_handle h;
    void *p;
    fixture_open(&f, &d);
    if (cuda_upload(d, &f.upload, &err) || cuda_seal(d, &err)) return __LINE__;
    cuda_handle(d, &h);
    (void)unlink(f.path);
    test_poke(f.load[0].tiles, 1);
    const cudaError_t code = cudaDeviceSynchronize();
    if (!h.write_protected) return code == cudaSuccess ? 10 : __LINE__;
    if (code == cudaSuccess) return __LINE__;
    if (cuda_check(d, code, "step", &err) != WK_INTERNAL || !strstr(text, "context is lost") || !cuda_dead())
        return __LINE__;
    if (cuda_memory_take(d, MEMORY_KV, 1, &p, &err) == WK_OK) return __LINE__;
    cuda_device_close(d);
    return cuda_device_open(0, NULL, &d, &err) == WK_OK ? __LINE__ : 0;
}

/* A fault that nobody has asked about is found by cuda_dead itself. */
static int child_fault(void)
{
    struct cuda_device *d;
    if (cuda_device_open(0, NULL, &d, &err)) return __LINE__;
    if (cuda_dead()) return __LINE__;
    test_poke((void *)16, 1);
    for (int i = 0; i < 1000 && !cuda_dead(); i++) (void)usleep(1000);
    return cuda_dead() ? 0 : __LINE__;
}

static int run_child(const char *what)
{
    char *const args[] = { "test_memory", (char *)(uintptr_t)what, NULL };
    pid_t pid;
    int status = 0;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ), 0);
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_write_to_sealed(void **state)
{
    (void)state;
    const int status = run_child("write-sealed");
    print_message("a write to sealed weights: %s\n", status == 10 ? "not refused by this driver" : "ends the context");
    if (status != 10) assert_int_equal(status, 0);
}

static void test_fault(void **state)
{
    (void)state;
    assert_int_equal(run_child("fault"), 0);
}

/* ---- preflight ----------------------------------------------------------------------------------------- */

static void test_probe(void **state)
{
    (void)state;
    struct device_info info;
    OK(cuda_probe(0, &info, &err));
    print_message("%s, compute capability %u.%u, %u multiprocessors, driver %u, runtime %u\n", info.name, info.major,
                  info.minor, info.multiprocessors, info.driver, info.runtime);
    assert_int_equal(cuda_probe(info.count, &info, &err), WK_INVALID);
    assert_non_null(strstr(text, "there is no GPU"));
    struct cuda_device *d;
    assert_int_equal(cuda_device_open(4000000000u, NULL, &d, &err), WK_INVALID);
    assert_null(d);
}

int main(int argc, char **argv)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        (void)fprintf(stderr, "no GPU here: skipped\n");
        return 77;
    }
    if (gguf_guard_install(&err)) return 1;
    if (argc == 2 && strcmp(argv[1], "write-sealed") == 0) return child_write_sealed();
    if (argc == 2 && strcmp(argv[1], "fault") == 0) return child_fault();
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    cuda_warm(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),           cmocka_unit_test(test_regions),
        cmocka_unit_test(test_too_much),        cmocka_unit_test(test_planted_host_page),
        cmocka_unit_test(test_upload),          cmocka_unit_test(test_values),
        cmocka_unit_test(test_tampered),        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_failing_pack),    cmocka_unit_test(test_full_device),
        cmocka_unit_test(test_write_to_sealed), cmocka_unit_test(test_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
