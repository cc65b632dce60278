/* runtime.c: the functions of the CUDA runtime that the project calls, over the emulator: an H200's attributes, work
 * done when it is asked for, and so streams without concurrency, dependent launches that begin when the one before has
 * ended, and graphs that are lists.
 *
 * A kernel that fails leaves a sticky error, as on the device, and a line on the standard error. EMULATOR_SEED (0: off)
 * permutes warps and arrivals of copies, EMULATOR_MULTIPROCESSORS and EMULATOR_MEMORY_MB say how large the device
 * seems, EMULATOR_TIMES=1 prints each launch's time. */
#include "runtime.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local cudaError_t last_error;

static cudaError_t said(cudaError_t e)
{
    if (e != cudaSuccess) last_error = e;
    return e;
}
static cudaError_t state(void) { return said((cudaError_t)emulator_error_code); }
#define LIVE                                                                    \
    do {                                                                        \
        if (emulator_error_code) return said((cudaError_t)emulator_error_code); \
    } while (0)

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}
/* What a kernel may ask of the GPU that EMULATOR_GPU names by its compute capability (9.0). */
struct gpu {
    const char *name;
    int major, minor;
    uint32_t block_shared, processor_shared; /* bytes: most that a block may have; of a multiprocessor */
};
static const struct gpu *gpu(void)
{
    static const struct gpu known[] = { { "9.0", 9, 0, 232448, 233472 },
                                        { "8.0", 8, 0, 166912, 167936 },
                                        { "8.6", 8, 6, 101376, 102400 },
                                        { "12.0", 12, 0, 101376, 102400 } };
    static const struct gpu *chosen;
    if (chosen) return chosen;
    const char *name = getenv("EMULATOR_GPU");
    for (uint32_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name && *name ? name : "9.0", known[i].name)) return chosen = &known[i];
    (void)fprintf(stderr, "emulator: EMULATOR_GPU is %s; known are 8.0, 8.6, 9.0 and 12.0\n", name);
    exit(2);
}
static int multiprocessors(void) { return (int)setting("EMULATOR_MULTIPROCESSORS", 132); }
uint64_t device_total(void) { return setting("EMULATOR_MEMORY_MB", 2048) << 20; }
static _Atomic uint64_t code_bytes;
void code_loaded(uint64_t bytes) { code_bytes += bytes; }
uint64_t device_left(void) /* a context takes some, too */
{
    enum { CONTEXT = 64 << 20 };
    const uint64_t taken = CONTEXT + code_bytes + device_used() + driver_used(), total = device_total();
    return total > taken ? total - taken : 0;
}

/* ---- modules ------------------------------------------------------------------------------------------- */

struct fat {
    struct module *module;
    const void *data;
};
struct registered {
    const void *host;
    struct fat *fat;
    const char *name;
    struct kernel *kernel;
};
static struct registered *functions;
static uint32_t n_functions, cap_functions;

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct fat_entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
};

/* The PTX of a fat binary, as a text of its own. */
static char *find_ptx(const void *data)
{
    enum { PTX = 1, MAGIC = 0xba55ed50 };
    const struct fat_header *h = data;
    if (h->magic != (uint32_t)MAGIC) return NULL;
    for (const unsigned char *p = (const unsigned char *)data + h->header_bytes, *end = p + h->bytes; p < end;) {
        const struct fat_entry *e = (const struct fat_entry *)(const void *)p;
        if (e->kind == PTX && !e->compressed_bytes) {
            char *text = malloc(e->bytes + 1);
            if (!text) abort();
            memcpy(text, p + e->header_bytes, e->bytes);
            text[e->bytes] = '\0';
            return text;
        }
        p += e->header_bytes + e->bytes;
    }
    return NULL;
}

void **__cudaRegisterFatBinary(void *wrapper);
void **__cudaRegisterFatBinary(void *wrapper)
{
    const struct {
        int magic, version;
        const void *data;
        void *name;
    } *w = wrapper;
    struct fat *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->data = w->data;
    return (void **)(void *)f;
}
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle);
void __cudaUnregisterFatBinary(void **handle)
{
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_functions;)
        if (functions[i].fat == (struct fat *)(void *)handle)
            functions[i] = functions[--n_functions];
        else
            i++;
    (void)pthread_mutex_unlock(&lock); /* its kernels stay: graphs may hold them */
}
char __cudaInitModule(void **handle);
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *size);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *tid,
                            uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    (void)pthread_mutex_lock(&lock);
    if (n_functions == cap_functions) {
        cap_functions = cap_functions ? 2 * cap_functions : 256;
        if (!(functions = realloc(functions, cap_functions * sizeof *functions))) abort();
    }
    functions[n_functions++] = (struct registered){ host, (struct fat *)(void *)handle, name, NULL };
    (void)pthread_mutex_unlock(&lock);
}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant,
        (void)global; /* nothing here copies to symbols: cudaMemcpyToSymbol is not served */
}

/* Under the lock. Reads the kernel's instructions. */
static struct kernel *find_kernel(const void *host)
{
    for (uint32_t i = 0; i < n_functions; i++) {
        struct registered *r = &functions[i];
        char error[700];
        if (r->host != host) continue;
        if (!r->fat->module) {
            char *ptx = find_ptx(r->fat->data);
            if (!ptx) {
                (void)fprintf(stderr,
                              "emulator: kernel %s has no plain PTX: compile with -gencode "
                              "arch=compute_90a,code=compute_90a --no-compress\n",
                              r->name);
                return NULL;
            }
            r->fat->module = module_read(ptx);
            if (r->fat->module->compute > (uint32_t)(gpu()->major * 10 + gpu()->minor)) {
                (void)fprintf(stderr, "emulator: kernel %s is for %u, and EMULATOR_GPU is %d.%d\n", r->name,
                              r->fat->module->compute, gpu()->major, gpu()->minor);
                return NULL;
            }
        }
        if (!r->kernel) r->kernel = module_find(r->fat->module, r->name);
        if (!r->kernel)
            (void)fprintf(stderr, "emulator: kernel %s is not in its module's PTX\n", r->name);
        else if (!kernel_read(r->kernel, error, sizeof error)) {
            (void)fprintf(stderr, "emulator: kernel %s cannot be read: %s\n", r->name, error);
            return NULL;
        }
        return r->kernel;
    }
    return NULL;
}

/* ---- streams, graphs ----------------------------------------------------------------------------------- */

struct CUgraph_st {
    struct work *work;
    uint32_t n, cap;
    int invalidated; /* somebody asked its stream meanwhile */
};
struct CUgraphExec_st {
    struct work *work;
    uint32_t n;
};
struct CUstream_st {
    struct CUgraph_st *capturing;
};
struct CUevent_st {
    struct timespec at;
};

static double now(void) /* seconds of this thread's work: others may share the processor */
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void perform(const struct work *w)
{
    static int times = -1, seeded;
    if (times < 0) times = (int)setting("EMULATOR_TIMES", 0);
    if (!seeded) {
        emulator_seed = (uint32_t)setting("EMULATOR_SEED", 0);
        seeded = 1;
    }
    const double begin = now();
    switch (w->kind) {
    case WORK_LAUNCH:
        if (!launch_run(&w->launch)) (void)fprintf(stderr, "emulator: %s\n", emulator_error);
        if (times)
            (void)fprintf(stderr, "emulator: %8.1f ms %s <<<(%u, %u, %u), %u>>>\n", 1e3 * (now() - begin),
                          w->launch.kernel->name, w->launch.grid[0], w->launch.grid[1], w->launch.grid[2],
                          w->launch.threads[0]);
        break;
    case WORK_COPY:
        for (size_t r = 0; r < w->rows; r++) memmove(w->to + r * w->to_pitch, w->from + r * w->from_pitch, w->bytes);
        break;
    case WORK_FILL: memset(w->to, w->value, w->bytes); break;
    case WORK_MATMUL: w->call(w->told); break;
    }
}
static void release(struct work *w)
{
    free(w->launch.params);
    free(w->told);
}

/* Under the lock. */
static struct CUgraph_st *capture_of(cudaStream_t stream)
{
    return stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread ? stream->capturing : NULL;
}

cudaError_t enqueue(cudaStream_t stream, struct work w)
{
    cudaError_t e = cudaSuccess;
    (void)pthread_mutex_lock(&lock);
    struct CUgraph_st *g = capture_of(stream);
    if (emulator_error_code) {
        e = (cudaError_t)emulator_error_code;
        release(&w);
    } else if (g && w.kind == WORK_MATMUL) {
        e = cudaErrorStreamCaptureUnsupported; /* the project captures none */
        release(&w);
    } else if (g && g->invalidated) {
        e = cudaErrorStreamCaptureInvalidated;
        release(&w);
    } else if (g) {
        if (g->n == g->cap) {
            g->cap = g->cap ? 2 * g->cap : 64;
            if (!(g->work = realloc(g->work, g->cap * sizeof *g->work))) abort();
        }
        g->work[g->n++] = w;
    } else {
        perform(&w);
        release(&w);
    }
    (void)pthread_mutex_unlock(&lock);
    return said(e);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = calloc(1, sizeof **stream);
    return said(*stream ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    (void)flags, (void)priority;
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return state();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return state();
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)pthread_mutex_lock(&lock);
    struct CUgraph_st *g = capture_of(stream);
    if (g) g->invalidated = 1;
    (void)pthread_mutex_unlock(&lock);
    return g ? said(cudaErrorStreamCaptureUnsupported) : state();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)stream, (void)event, (void)flags;
    return state();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    LIVE;
    if (!stream || stream->capturing) return said(cudaErrorIllegalState);
    struct CUgraph_st *const g = calloc(1, sizeof *g);
    (void)pthread_mutex_lock(&lock);
    stream->capturing = g;
    (void)pthread_mutex_unlock(&lock);
    return said(g ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    LIVE;
    if (!stream || !stream->capturing) return said(cudaErrorIllegalState);
    (void)pthread_mutex_lock(&lock);
    struct CUgraph_st *const g = stream->capturing;
    stream->capturing = NULL;
    (void)pthread_mutex_unlock(&lock);
    *graph = NULL;
    if (g->invalidated) {
        (void)cudaGraphDestroy(g);
        return said(cudaErrorStreamCaptureInvalidated);
    }
    *graph = g;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    LIVE;
    struct CUgraphExec_st *x = calloc(1, sizeof *x);
    if (!x || !(x->work = malloc((graph->n + 1) * sizeof *x->work))) abort();
    for (x->n = 0; x->n < graph->n; x->n++) {
        struct work *w = &x->work[x->n];
        *w = graph->work[x->n];
        if (w->launch.params) {
            const size_t bytes = w->launch.kernel->param_bytes + 16;
            unsigned char *own = malloc(bytes);
            if (!own) abort();
            memcpy(own, w->launch.params, bytes);
            w->launch.params = own;
        }
    }
    *exec = x;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)stream;
    LIVE;
    if (!exec) return said(cudaErrorInvalidValue);
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < exec->n && !emulator_error_code; i++) perform(&exec->work[i]);
    (void)pthread_mutex_unlock(&lock);
    return cudaSuccess; /* errors show when somebody waits */
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    return state();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    for (uint32_t i = 0; i < graph->n; i++) release(&graph->work[i]);
    free(graph->work);
    free(graph);
    return state();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    for (uint32_t i = 0; i < exec->n; i++) release(&exec->work[i]);
    free(exec->work);
    free(exec);
    return state();
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    for (uint32_t i = 0; nodes && i < graph->n && i < *n; i++) nodes[i] = (cudaGraphNode_t)(void *)&graph->work[i];
    *n = graph->n;
    return state();
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    const struct work *w = (const void *)node;
    *type = w->kind == WORK_LAUNCH ? cudaGraphNodeTypeKernel
            : w->kind == WORK_FILL ? cudaGraphNodeTypeMemset
                                   : cudaGraphNodeTypeMemcpy;
    return state();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return said(*event ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    (void)clock_gettime(CLOCK_MONOTONIC, &event->at);
    return state();
}
/* In a graph, too: an event has the time of its capture. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    (void)flags;
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return state();
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return state();
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return state();
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(1e3 * (double)(to->at.tv_sec - from->at.tv_sec) + 1e-6 * (double)(to->at.tv_nsec - from->at.tv_nsec));
    return state();
}

/* ---- launches ------------------------------------------------------------------------------------------ */

enum { DEFAULT_SHARED = 49152 };

static cudaError_t check_launch(const struct launch *l)
{
    const struct kernel *k = l->kernel;
    const uint64_t threads = (uint64_t)l->threads[0] * l->threads[1] * l->threads[2],
                   blocks = (uint64_t)l->cluster[0] * l->cluster[1] * l->cluster[2];
    const uint32_t shared = k->shared_bytes + l->dynamic;
    if (!threads || threads > 1024 || l->threads[2] > 64 || !l->grid[0] || !l->grid[1] || !l->grid[2] ||
        l->grid[1] > 65535 || l->grid[2] > 65535)
        return cudaErrorInvalidConfiguration;
    if (threads > k->max_threads) return cudaErrorLaunchOutOfResources;
    if (shared > gpu()->block_shared || (shared > DEFAULT_SHARED && l->dynamic > k->max_dynamic))
        return cudaErrorInvalidValue;
    if (!blocks || blocks > MAX_CLUSTER || l->grid[0] % l->cluster[0] || l->grid[1] % l->cluster[1] ||
        l->grid[2] % l->cluster[2])
        return cudaErrorInvalidClusterSize;
    return cudaSuccess;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 threads, void **args, size_t shared, cudaStream_t stream,
                          const uint32_t cluster[3], bool cooperative)
{
    LIVE;
    (void)pthread_mutex_lock(&lock);
    struct kernel *k = find_kernel(host);
    (void)pthread_mutex_unlock(&lock);
    if (!k) return said(cudaErrorInvalidDeviceFunction);
    struct work w = { .kind = WORK_LAUNCH,
                      .launch = { .kernel = k,
                                  .grid = { grid.x, grid.y, grid.z },
                                  .threads = { threads.x, threads.y, threads.z },
                                  .cluster = { 1, 1, 1 },
                                  .dynamic = (uint32_t)shared,
                                  .cooperative = cooperative } };
    if (shared > gpu()->block_shared) return said(cudaErrorInvalidValue);
    if (cluster)
        memcpy(w.launch.cluster, cluster, sizeof w.launch.cluster);
    else if (k->cluster[0])
        memcpy(w.launch.cluster, k->cluster, sizeof w.launch.cluster);
    const cudaError_t e = check_launch(&w.launch);
    if (e) return said(e);
    if (!k->loaded) code_loaded((uint64_t)k->n_code * 16);
    k->loaded = true;
    if (!(w.launch.params = calloc(1, k->param_bytes + 16))) abort();
    for (uint32_t i = 0; i < k->n_params; i++)
        memcpy(w.launch.params + k->params[i].offset, args[i], k->params[i].bytes);
    return enqueue(stream, w);
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 threads, void **args, size_t shared,
                             cudaStream_t stream)
{
    return launch(function, grid, threads, args, shared, stream, NULL, false);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 threads, void **args, size_t shared,
                                        cudaStream_t stream)
{
    return launch(function, grid, threads, args, shared, stream, NULL, true);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function, void **args)
{
    uint32_t cluster[3] = { 0, 0, 0 };
    bool cooperative = false;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const cudaLaunchAttribute *a = &c->attrs[i];
        switch (a->id) {
        case cudaLaunchAttributeClusterDimension:
            cluster[0] = a->val.clusterDim.x, cluster[1] = a->val.clusterDim.y, cluster[2] = a->val.clusterDim.z;
            break;
        case cudaLaunchAttributeCooperative: cooperative = a->val.cooperative != 0; break;
        case cudaLaunchAttributeProgrammaticStreamSerialization:
        case cudaLaunchAttributePreferredSharedMemoryCarveout:
        case cudaLaunchAttributePriority: break;
        default:
            (void)fprintf(stderr, "emulator: launch attribute %d is not known\n", (int)a->id);
            return said(cudaErrorInvalidValue);
        }
    }
    return launch(function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream, cluster[0] ? cluster : NULL,
                  cooperative);
}

static _Thread_local struct {
    dim3 grid, threads;
    size_t shared;
    cudaStream_t stream;
} pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared, struct CUstream_st *stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 threads, size_t shared, struct CUstream_st *stream)
{
    pushed.grid = grid, pushed.threads = threads, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *threads, size_t *shared, void *stream)
{
    *grid = pushed.grid, *threads = pushed.threads, *shared = pushed.shared, *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}
/* A kernel's handle is its host function. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 threads, void **args, size_t shared,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 threads, void **args, size_t shared,
                               cudaStream_t stream)
{
    return launch((const void *)kernel, grid, threads, args, shared, stream, NULL, false);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    LIVE;
    (void)pthread_mutex_lock(&lock);
    const struct kernel *k = find_kernel(function);
    (void)pthread_mutex_unlock(&lock);
    memset(out, 0, sizeof *out);
    if (!k) return said(cudaErrorInvalidDeviceFunction);
    out->sharedSizeBytes = k->shared_bytes;
    out->localSizeBytes = k->local_bytes;
    out->maxThreadsPerBlock = (int)k->max_threads;
    out->numRegs = (int)(65536 / (k->max_threads * k->min_blocks) > 255
                             ? 255
                             : 65536 / (k->max_threads * k->min_blocks)); /* at most: only the assembler knows */
    out->ptxVersion = (int)k->module->compute;
    out->binaryVersion = gpu()->major * 10 + gpu()->minor;
    out->maxDynamicSharedSizeBytes = (int)(k->max_dynamic ? k->max_dynamic : DEFAULT_SHARED - k->shared_bytes);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    LIVE;
    (void)pthread_mutex_lock(&lock);
    struct kernel *k = find_kernel(function);
    (void)pthread_mutex_unlock(&lock);
    if (!k) return said(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess; /* division of L1, cluster sizes: nothing to do */
    if (value < 0 || (uint32_t)value + k->shared_bytes > gpu()->block_shared) return said(cudaErrorInvalidValue);
    k->max_dynamic = (uint32_t)value;
    return cudaSuccess;
}
/* By threads and shared memory: registers are not known. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t dynamic)
{
    LIVE;
    (void)pthread_mutex_lock(&lock);
    const struct kernel *k = find_kernel(function);
    (void)pthread_mutex_unlock(&lock);
    if (!k) return said(cudaErrorInvalidDeviceFunction);
    const int by_threads = 2048 / ((threads + 31) / 32 * 32),
              by_shared = (int)(gpu()->processor_shared / (k->shared_bytes + dynamic + SHARED_BASE));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    if (*blocks > 32) *blocks = 32;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t dynamic, unsigned int flags)
{
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic);
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *c)
{
    int blocks = 0, size = 1;
    const cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, function, (int)(c->blockDim.x * c->blockDim.y * c->blockDim.z), c->dynamicSmemBytes);
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
            size = (int)(c->attrs[i].val.clusterDim.x * c->attrs[i].val.clusterDim.y * c->attrs[i].val.clusterDim.z);
    *clusters = blocks * multiprocessors() / size;
    return e;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static struct managed {
    struct managed *next;
    void *p;
    size_t bytes;
} *managed;

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    LIVE;
    *p = NULL;
    if (!bytes) return cudaSuccess;
    if (bytes > device_left()) return said(cudaErrorMemoryAllocation);
    *p = device_alloc(bytes);
    return said(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    return cudaMalloc(p, bytes);
}
cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned int flags)
{
    (void)flags;
    const cudaError_t e = cudaMalloc(p, bytes);
    if (e) return e;
    struct managed *m = malloc(sizeof *m);
    if (!m) abort();
    *m = (struct managed){ managed, *p, bytes };
    managed = m;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    LIVE;
    if (!p) return cudaSuccess;
    for (struct managed **m = &managed; *m; m = &(*m)->next)
        if ((*m)->p == p) {
            struct managed *gone = *m;
            *m = gone->next;
            free(gone);
            break;
        }
    return said(device_free(p) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    (void)stream;
    return cudaFree(p);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = device_total();
    *free_bytes = device_left();
    return state();
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    (void)flags;
    LIVE;
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*p) return said(cudaErrorMemoryAllocation);
    host_add(*p, bytes);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void *p)
{
    if (!p) return state();
    if (!host_remove(p)) return said(cudaErrorInvalidValue);
    free(p);
    return state();
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags)
{
    (void)flags;
    LIVE;
    if (host_has((uint64_t)(uintptr_t)p, 1)) return said(cudaErrorHostMemoryAlreadyRegistered);
    host_add(p, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    return said(host_remove(p) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    (void)flags;
    LIVE;
    if (!host_has((uint64_t)(uintptr_t)host, 1)) return said(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    const uint64_t at = (uint64_t)(uintptr_t)p;
    bool host = false;
    LIVE;
    memset(out, 0, sizeof *out);
    out->type = cudaMemoryTypeUnregistered;
    if (driver_pointer(at, &host))
        out->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    else if (at - arena_base < arena_bytes)
        out->type = cudaMemoryTypeDevice;
    else if (host_has(at, 1))
        out->type = cudaMemoryTypeHost, out->hostPointer = (void *)(uintptr_t)at;
    for (const struct managed *m = managed; m; m = m->next)
        if (at - (uint64_t)(uintptr_t)m->p < m->bytes)
            out->type = cudaMemoryTypeManaged, out->hostPointer = (void *)(uintptr_t)at;
    if (out->type != cudaMemoryTypeUnregistered) out->devicePointer = (void *)(uintptr_t)at;
    return cudaSuccess;
}

static cudaError_t copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                        cudaStream_t stream)
{
    if (rows > 1 && (to_pitch < bytes || from_pitch < bytes)) return said(cudaErrorInvalidPitchValue);
    return enqueue(stream, (struct work){ .kind = WORK_COPY,
                                          .to = to,
                                          .from = from,
                                          .bytes = bytes,
                                          .to_pitch = to_pitch,
                                          .from_pitch = from_pitch,
                                          .rows = rows });
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    return copy(to, 0, from, 0, bytes, 1, NULL);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return copy(to, 0, from, 0, bytes, 1, stream);
}
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                         enum cudaMemcpyKind kind)
{
    (void)kind;
    return copy(to, to_pitch, from, from_pitch, bytes, rows, NULL);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, size_t rows,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return copy(to, to_pitch, from, from_pitch, bytes, rows, stream);
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return enqueue(stream, (struct work){ .kind = WORK_FILL, .to = to, .value = value, .bytes = bytes });
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }

/* ---- the device ---------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return state();
}
cudaError_t cudaSetDevice(int device)
{
    return said(device == 0 ? (cudaError_t)emulator_error_code : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSynchronize(void) { return state(); }
cudaError_t cudaDeviceReset(void) { return state(); }
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    (void)limit, (void)value;
    return state();
}
cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    (void)config;
    return state();
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = emulator_error_code ? (cudaError_t)emulator_error_code : last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void) { return emulator_error_code ? (cudaError_t)emulator_error_code : last_error; }

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (device) return said(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = gpu()->major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = gpu()->minor; break;
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors(); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)gpu()->block_shared; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = DEFAULT_SHARED; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)gpu()->processor_shared; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = SHARED_BASE; break;
    case cudaDevAttrClusterLaunch: *value = gpu()->major >= 9; break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory: *value = 1; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrWarpSize: *value = LANES; break;
    case cudaDevAttrL2CacheSize: *value = 60 << 20; break;
    default:
        (void)fprintf(stderr, "emulator: device attribute %d is not known\n", (int)attribute);
        return said(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (device) return said(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    (void)snprintf(p->name, sizeof p->name, "GPU of %d.%d (emulated)", gpu()->major, gpu()->minor);
    p->totalGlobalMem = device_total();
    p->sharedMemPerBlock = DEFAULT_SHARED;
    p->sharedMemPerBlockOptin = gpu()->block_shared;
    p->sharedMemPerMultiprocessor = gpu()->processor_shared;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = LANES;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->major = gpu()->major;
    p->minor = gpu()->minor;
    p->multiProcessorCount = multiprocessors();
    p->l2CacheSize = 60 << 20;
    p->canMapHostMemory = p->unifiedAddressing = p->cooperativeLaunch = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    (void)version, (void)flags;
    *function = driver_entry(symbol);
    if (found) *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define ERROR(code, text) { code, #code, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorInvalidClusterSize, "cluster misconfiguration"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination"),
    ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
};
const char *cudaGetErrorName(cudaError_t code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].name;
    return "unrecognized error code";
}
/* Of a kernel that failed: the emulator's own text. */
const char *cudaGetErrorString(cudaError_t code)
{
    if (code != cudaSuccess && (int)code == emulator_error_code) return emulator_error;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return errors[i].text;
    return "unrecognized error code";
}
