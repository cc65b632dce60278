/* test_preflight.c: one message for each cause that a device cannot be used, and which errors end a context. Needs no
 * GPU: the linker puts the __wrap_ functions between this room and the runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "device/cuda/memory.h"

#include <cmocka.h>

/* ---- the runtime, as a test says it is ----------------------------------------------------------------- */

static struct {
    int driver, count, major, minor;
    cudaError_t count_code, properties_code;
} machine;

cudaError_t __wrap_cudaDriverGetVersion(int *version);
cudaError_t __wrap_cudaRuntimeGetVersion(int *version);
cudaError_t __wrap_cudaGetDeviceCount(int *count);
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device);

cudaError_t __wrap_cudaDriverGetVersion(int *version)
{
    *version = machine.driver;
    return cudaSuccess;
}
cudaError_t __wrap_cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}
cudaError_t __wrap_cudaGetDeviceCount(int *count)
{
    *count = machine.count;
    return machine.count_code;
}
cudaError_t __wrap_cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (device >= machine.count) return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    (void)snprintf(p->name, sizeof p->name, "Test GPU");
    p->major = machine.major;
    p->minor = machine.minor;
    p->multiProcessorCount = 7;
    p->totalGlobalMem = (size_t)24 << 30;
    return machine.properties_code;
}
cudaError_t __wrap_cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device)
{
    return __wrap_cudaGetDeviceProperties(p, device);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static char text[512];
static const struct wk_err err = { text, sizeof text };

static void expect(uint32_t gpu, wk_status expected, const char *part)
{
    struct device_info info;
    struct cuda_device *d = NULL;
    text[0] = '\0';
    const wk_status s = cuda_probe(gpu, &info, &err);
    if (s != expected || (part && !strstr(text, part)))
        fail_msg("expected status %d and \"%s\", got %d and \"%s\"", expected, part ? part : "", s, text);
    if (!expected) return;
    text[0] = '\0';
    assert_int_equal(cuda_device_open(gpu, NULL, &d, &err), expected); /* opening says the same and takes nothing */
    assert_non_null(strstr(text, part));
    assert_null(d);
}

static void causes(void **state)
{
    (void)state;
    machine.driver = 0;
    expect(0, WK_UNSUPPORTED, "no NVIDIA driver here: libcuda.so.1 is not installed");
    machine.driver = 12040;
    machine.count_code = cudaErrorInsufficientDriver;
    expect(0, WK_UNSUPPORTED, "the NVIDIA driver is too old: it serves CUDA 12.4, this program needs 13.0");
    machine.driver = 13000;
    machine.count_code = cudaErrorNoDevice;
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    expect(0, WK_UNSUPPORTED, "the NVIDIA driver is there, but no GPU");
    (void)setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    expect(0, WK_UNSUPPORTED, "no GPU (CUDA_VISIBLE_DEVICES is \"-1\")");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    machine.count_code = cudaSuccess;
    expect(0, WK_UNSUPPORTED, "but no GPU");
    machine.count_code = cudaErrorSystemNotReady;
    expect(0, WK_UNSUPPORTED, "is the fabric manager running?");
    machine.count_code = cudaErrorSystemDriverMismatch;
    expect(0, WK_UNSUPPORTED, "the NVIDIA driver refuses: cudaErrorSystemDriverMismatch");
    machine.count_code = cudaSuccess;
    machine.count = 1;
    machine.major = 7;
    machine.minor = 5;
    expect(0, WK_INVALID, "GPU 0 (Test GPU) has compute capability 7.5; 8.0 or newer is needed");
    expect(1, WK_INVALID, "there is no GPU 1: this machine has one, GPU 0");
    machine.count = 4;
    expect(4, WK_INVALID, "there is no GPU 4: this machine has 4, GPU 0 to 3");
    expect(UINT32_MAX, WK_INVALID, "there is no GPU 4294967295");
    machine.properties_code = cudaErrorDevicesUnavailable;
    expect(2, WK_UNSUPPORTED, "GPU 2 cannot be examined: cudaErrorDevicesUnavailable");
    machine.properties_code = cudaSuccess;
    machine.major = 8;
    machine.minor = 0;
    expect(3, WK_OK, NULL);
}

/* What becomes of the process's device after one error, in a process of its own: 0: it lives, 1: it is dead; more:
 * something else is wrong. */
static int after(int code)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (cuda_dead()) _exit(2);
        const wk_status s = cuda_check(NULL, code, "what failed", &err),
                        expected = code == cudaErrorMemoryAllocation ? WK_NO_MEMORY : WK_INTERNAL;
        if (s != expected || strncmp(text, "what failed: ", 13) != 0) _exit(3);
        if (!strstr(text, cudaGetErrorName((cudaError_t)code))) _exit(4);
        const bool dead = cuda_dead();
        if (dead != (strstr(text, "context is lost") != NULL)) _exit(5);
        if (!dead) _exit(0);
        /* A dead device stays dead, and the first text is the one that is told. */
        struct cuda_device *d = NULL;
        char first[sizeof text];
        memcpy(first, text, sizeof first);
        if (cuda_check(NULL, cudaErrorUnknown, "later", &err) != WK_INTERNAL || strcmp(first, text) != 0) _exit(6);
        if (cuda_device_open(0, NULL, &d, &err) == WK_OK || d) _exit(7);
        cuda_device_close(NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ends_of_a_context(void **state)
{
    (void)state;
    static const int fatal[] = { 226, 700, 702, 710, 714, 715, 716, 717,   718,
                                 719, 721, 810, 911, 214, 220, 999, 12345, -1 };
    static const int survived[] = { 1, 2, 9, 98, 400, 600, 701, 801, 900, 906, 209 };
    machine.driver = 13000;
    machine.count = 1;
    machine.major = 9;
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (after(fatal[i]) != 1) fail_msg("code %d: %d", fatal[i], after(fatal[i]));
    for (size_t i = 0; i < sizeof survived / sizeof *survived; i++)
        if (after(survived[i]) != 0) fail_msg("code %d: %d", survived[i], after(survived[i]));
    assert_false(cuda_dead());
    assert_int_equal(cuda_check(NULL, cudaSuccess, "nothing", &err), WK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(causes), cmocka_unit_test(ends_of_a_context) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
