/* test_device.cuh: for tests of launches: arrays on the device with poison around and in them, noise, and what a run
 * without a GPU says. */
#ifndef CORE_DEVICE_CUDA_TEST_DEVICE_CUH
#define CORE_DEVICE_CUDA_TEST_DEVICE_CUH

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include <cmocka.h>
}

#include <worker/abi.h>

#define CUDA_OK(call)                                                                   \
    do {                                                                                \
        const cudaError_t code_ = (call);                                               \
        if (code_ != cudaSuccess) fail_msg("%s: %s", #call, cudaGetErrorString(code_)); \
    } while (0)

/* 77 to return from main when there is no GPU, else 0. */
static inline int no_gpu(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess && n > 0) return 0;
    (void)fprintf(stderr, "no GPU here: skipped\n");
    return 77;
}

static char error_memory[512];
static const struct wk_err error_text = { error_memory, sizeof error_memory };
#define LAUNCH(call)                                                  \
    do {                                                              \
        if ((call) != WK_OK) fail_msg("%s: %s", #call, error_memory); \
    } while (0)

static inline uint32_t next_noise(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}
static inline float noise(float scale) { return scale * ((float)next_noise() / 8388608.0f - 1.0f); }

/* n values of T on the host and on the device; GUARD bytes of 0xff (as floats: NaN) before and after them on the
 * device. */
enum { GUARD = 256 };
template <class T> struct array {
    T *host, *device;
    size_t n;
    char *memory;
};
template <class T> static array<T> make(size_t n)
{
    array<T> a = { (T *)malloc(n * sizeof(T)), NULL, n, NULL };
    CUDA_OK(cudaMalloc((void **)&a.memory, n * sizeof(T) + 2 * GUARD));
    CUDA_OK(cudaMemset(a.memory, 0xff, n * sizeof(T) + 2 * GUARD));
    memset(a.host, 0xff, n * sizeof(T));
    a.device = (T *)(a.memory + GUARD);
    return a;
}
template <class T> static void poison(const array<T> *a) { CUDA_OK(cudaMemset(a->device, 0xff, a->n * sizeof(T))); }
template <class T> static void send(const array<T> *a)
{
    CUDA_OK(cudaMemcpy(a->device, a->host, a->n * sizeof(T), cudaMemcpyHostToDevice));
}
/* What the device has now; fails if something was written outside. */
template <class T> static void receive(const array<T> *a)
{
    unsigned char guard[2][GUARD];
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(a->host, a->device, a->n * sizeof(T), cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(guard[0], a->memory, GUARD, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaMemcpy(guard[1], a->device + a->n, GUARD, cudaMemcpyDeviceToHost));
    for (int i = 0; i < GUARD; i++)
        if (guard[0][i] != 0xff || guard[1][i] != 0xff)
            fail_msg("written outside of an array of %zu bytes: %d bytes %s it", a->n * sizeof(T), i,
                     guard[0][i] != 0xff ? "into the guard before" : "after");
}
template <class T> static void drop(array<T> *a)
{
    CUDA_OK(cudaFree(a->memory));
    free(a->host);
    a->host = NULL;
}
static inline array<float> make_noise(size_t n, float scale)
{
    array<float> a = make<float>(n);
    for (size_t i = 0; i < n; i++) a.host[i] = noise(scale);
    send(&a);
    return a;
}

static inline float half_value(uint16_t bits)
{
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}
static inline uint16_t half_bits(float x) { return __half_raw(__float2half_rn(x)).x; }

#endif
