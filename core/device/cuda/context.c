/* context.c: preflight and the device's context. errors.c has the errors that end it.
 *
 * Making a context takes a third of a second and depends on no model: cuda_warm begins it in a thread as soon as the
 * device is known, and whoever needs the context waits for that thread. */
#include "device/cuda/context.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MAJOR = 8 };

/* ---- preflight ----------------------------------------------------------------------------------------- */

/* How many devices there are, or why there is none. */
static wk_status count_devices(struct device_info *out, const struct wk_err *err)
{
    int driver = 0, runtime = 0, count = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    out->driver = (uint32_t)driver;
    out->runtime = (uint32_t)runtime;
    if (driver == 0)
        return wk_fail(
            err, WK_UNSUPPORTED,
            "device cuda: no NVIDIA driver here: libcuda.so.1 is not installed, or not visible in this container");
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver)
        return wk_fail(err, WK_UNSUPPORTED,
                       "device cuda: the NVIDIA driver is too old: it serves CUDA %d.%d, this program needs %d.%d; "
                       "update the driver",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return wk_fail(err, WK_UNSUPPORTED, "device cuda: the NVIDIA driver is there, but no GPU%s%.60s%s",
                       visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "", visible ? "\")" : "");
    }
    if (code == cudaErrorSystemNotReady)
        return wk_fail(err, WK_UNSUPPORTED,
                       "device cuda: the NVIDIA driver is not ready: %s; is the fabric manager running?",
                       cudaGetErrorString(code));
    if (code != cudaSuccess)
        return wk_fail(err, WK_UNSUPPORTED, "device cuda: the NVIDIA driver refuses: %s: %s", cudaGetErrorName(code),
                       cudaGetErrorString(code));
    out->count = (uint32_t)count;
    return WK_OK;
}

wk_status cuda_probe(uint32_t gpu, struct device_info *out, const struct wk_err *err)
{
    struct cudaDeviceProp p;
    *out = (struct device_info){ .index = gpu };
    wk_status s = count_devices(out, err);
    if (s) return s;
    if (gpu >= out->count) {
        if (out->count == 1)
            return wk_fail(err, WK_INVALID, "device cuda: there is no GPU %u: this machine has one, GPU 0", gpu);
        return wk_fail(err, WK_INVALID, "device cuda: there is no GPU %u: this machine has %u, GPU 0 to %u", gpu,
                       out->count, out->count - 1);
    }
    const cudaError_t code = cudaGetDeviceProperties(&p, (int)gpu);
    if (code != cudaSuccess)
        return wk_fail(err, WK_UNSUPPORTED, "device cuda: GPU %u cannot be examined: %s: %s", gpu,
                       cudaGetErrorName(code), cudaGetErrorString(code));
    (void)snprintf(out->name, sizeof out->name, "%.63s", p.name);
    out->major = (uint32_t)p.major;
    out->minor = (uint32_t)p.minor;
    out->multiprocessors = (uint32_t)p.multiProcessorCount;
    out->memory = p.totalGlobalMem;
    if (out->major < LEAST_MAJOR)
        return wk_fail(err, WK_INVALID,
                       "device cuda: GPU %u (%s) has compute capability %u.%u; %d.0 or newer is needed", gpu, out->name,
                       out->major, out->minor, LEAST_MAJOR);
    return WK_OK;
}

/* ---- the context --------------------------------------------------------------------------------------- */

static struct {
    pthread_t thread;
    bool running;
    uint32_t gpu;
    cudaError_t code;
} warming;

/* Makes the context and keeps its own demands small: kernels here take no memory by themselves. All kernels get one
 * division of L1 cache and shared memory: a multiprocessor changes it only when it is empty, and a chain of dependent
 * launches is never to wait for that. */
static cudaError_t make_context(uint32_t gpu)
{
    cudaError_t code = cudaSetDevice((int)gpu);
    if (code == cudaSuccess) code = cudaFree(NULL);
    if (code == cudaSuccess) code = cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1);
    if (code == cudaSuccess) code = cudaDeviceSetCacheConfig(cudaFuncCachePreferShared);
    return code;
}

static void *warm_thread(void *arg)
{
    (void)arg;
    warming.code = make_context(warming.gpu);
    return NULL;
}

static void warm_join(void)
{
    if (warming.running) (void)pthread_join(warming.thread, NULL);
    warming.running = false;
}

void cuda_warm(uint32_t gpu)
{
    static bool registered;
    if (warming.running) return;
    warming.gpu = gpu;
    warming.running =
        pthread_create(&warming.thread, NULL, warm_thread, NULL) == 0; /* else the context is made when it is needed */
    /* The runtime must not be torn down under a thread that makes a context. */
    if (!registered && atexit(warm_join) == 0) registered = true;
}

/* Makes the context the calling thread's, once it is there. */
static wk_status use_context(uint32_t gpu, const struct wk_err *err)
{
    char what[40];
    (void)snprintf(what, sizeof what, "GPU %u: context", gpu);
    const bool warmed = warming.running && warming.gpu == gpu;
    warm_join();
    const cudaError_t code = warmed && warming.code != cudaSuccess ? warming.code : make_context(gpu);
    return cuda_check(NULL, code, what, err);
}

wk_status cuda_device_memory(uint32_t gpu, struct device_memory *out, const struct wk_err *err)
{
    size_t free_bytes = 0, total = 0;
    *out = (struct device_memory){ 0 };
    wk_status s = use_context(gpu, err);
    if (!s) s = cuda_check(NULL, cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo", err);
    if (s) return s;
    out->total = total;
    out->free = free_bytes;
    out->taken = cuda_memory_taken();
    out->overhead = total - free_bytes > out->taken ? total - free_bytes - out->taken : 0;
    return WK_OK;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static wk_status entry(const char *symbol, void *slot, const struct wk_err *err)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t code = cudaGetDriverEntryPointByVersion(symbol, &function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(symbol, &function, cudaEnableDefault, &found);
#endif
    if (code != cudaSuccess || found != cudaDriverEntryPointSuccess || !function)
        return wk_fail(err, WK_UNSUPPORTED, "device cuda: the driver has no %s; update the driver", symbol);
    memcpy(slot, &function, sizeof function); /* function pointers of all kinds have one size here */
    return WK_OK;
}

static wk_status find_entries(struct cuda_driver *a, const struct wk_err *err)
{
    const struct {
        const char *symbol;
        void *slot;
    } wanted[] = {
        { "cuMemGetAllocationGranularity", &a->granularity },
        { "cuMemCreate", &a->create },
        { "cuMemRelease", &a->release },
        { "cuMemAddressReserve", &a->reserve },
        { "cuMemAddressFree", &a->free },
        { "cuMemMap", &a->map },
        { "cuMemUnmap", &a->unmap },
        { "cuMemSetAccess", &a->set_access },
        { "cuPointerGetAttribute", &a->attribute },
        { "cuGetErrorName", &a->error_name },
        { "cuGetErrorString", &a->error_string },
    };
    wk_status s = WK_OK;
    for (size_t i = 0; !s && i < sizeof wanted / sizeof *wanted; i++) s = entry(wanted[i].symbol, wanted[i].slot, err);
    return s;
}

/* Not every driver has them, nor is everywhere allowed to. */
void cuda_device_share(struct cuda_device *d)
{
    struct cuda_driver *a = &d->driver;
    int possible = 0;
    CUdevice_attribute attribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    PFN_cuDeviceGetAttribute_v2000 ask = NULL;
    d->shared = !entry("cuMemExportToShareableHandle", &a->export_handle, NULL) &&
                !entry("cuMemImportFromShareableHandle", &a->import_handle, NULL) &&
                !entry("cuMemRetainAllocationHandle", &a->retain, NULL) && !entry("cuDeviceGetAttribute", &ask, NULL) &&
                ask(&possible, attribute, (CUdevice)d->info.index) == CUDA_SUCCESS && possible;
}

static wk_status find_granule(struct cuda_device *d, const struct wk_err *err)
{
    enum { GRANULE = 2 << 20 }; /* what memory.h promises; a larger one of the driver's is a multiple */
    const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->info.index } };
    size_t granule = 0;
    wk_status s = cuda_check_driver(d, d->driver.granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                    "cuMemGetAllocationGranularity", err);
    d->granule = granule > GRANULE ? granule : GRANULE;
    return s;
}

wk_status cuda_device_open(uint32_t gpu, const struct gguf *file, struct cuda_device **out, const struct wk_err *err)
{
    *out = NULL;
    if (cuda_dead()) return wk_fail(err, WK_INTERNAL, "GPU %u: an error has ended its context in this process", gpu);
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d) return wk_fail(err, WK_NO_MEMORY, "out of memory for a device");
    wk_status s = cuda_probe(gpu, &d->info, err);
    if (!s && file) d->prefetch = cuda_prefetch_begin(file);
    if (!s) s = use_context(gpu, err);
    if (!s) s = find_entries(&d->driver, err);
    if (!s) s = find_granule(d, err);
    if (!s) s = cuda_check(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "cudaStreamCreate", err);
    if (s) {
        cuda_device_close(d);
        return s;
    }
    cuda_set_live(d->stream);
    *out = d;
    return WK_OK;
}

void cuda_device_close(struct cuda_device *d)
{
    if (!d) return;
    cuda_prefetch_end(d->prefetch);
    cuda_digest_end(d);
    const bool lost = cuda_dead();
    cuda_set_live(NULL);
    if (!lost) {
        if (d->stream) (void)cudaStreamSynchronize(d->stream);
        cuda_memory_close(d);
        if (d->stream) (void)cudaStreamDestroy(d->stream);
    }
    free(d);
}

void *cuda_device_stream(const struct cuda_device *d) { return d->stream; }
const struct device_info *cuda_device_info(const struct cuda_device *d) { return &d->info; }
