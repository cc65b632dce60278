/* prefetch.c: brings a file into the page cache, and its pages into this process, while the device's context is made.
 *
 * Populating a mapping never raises SIGBUS: a file that was cut answers with an error, which the upload will meet again
 * and report. */
#include "device/cuda/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf/gguf.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; older kernels refuse it, and the upload reads by itself */
#endif

enum { PREFETCH_THREADS = 6, PREFETCH_STEP = 8 << 20 };

struct cuda_prefetch {
    const struct gguf *file;
    pthread_t thread[PREFETCH_THREADS];
    uint32_t n_threads;
    _Atomic bool stop;
    pthread_mutex_t lock;
    uint64_t tensor, offset; /* next to be read, under the lock */
};

/* The next bytes of the file's tensors; false: there are none. */
static bool next_piece(struct cuda_prefetch *p, uintptr_t *first, uintptr_t *end)
{
    const struct gguf_tensor *t = NULL;
    (void)pthread_mutex_lock(&p->lock);
    while ((t = gguf_tensor_at(p->file, p->tensor)) && p->offset >= t->room) {
        p->tensor++;
        p->offset = 0;
    }
    if (t) {
        const uint64_t left = t->room - p->offset, n = left < PREFETCH_STEP ? left : PREFETCH_STEP;
        *first = (uintptr_t)gguf_tensor_data(p->file, t) + p->offset;
        *end = *first + n;
        p->offset += n;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return t != NULL;
}

static void *read_ahead(void *arg)
{
    struct cuda_prefetch *p = arg;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first, end;
    while (!atomic_load_explicit(&p->stop, memory_order_relaxed) && next_piece(p, &first, &end)) {
        first &=
            ~(page - 1); /* a page shared with the tensor before is populated twice: nothing happens the second time */
        if (madvise((void *)first, end - first, MADV_POPULATE_READ) != 0) return NULL;
    }
    return NULL;
}

struct cuda_prefetch *cuda_prefetch_begin(const struct gguf *file)
{
    struct cuda_prefetch *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->file = file;
    if (pthread_mutex_init(&p->lock, NULL) != 0) {
        free(p);
        return NULL;
    }
    while (p->n_threads < PREFETCH_THREADS && pthread_create(&p->thread[p->n_threads], NULL, read_ahead, p) == 0)
        p->n_threads++;
    return p;
}

void cuda_prefetch_end(struct cuda_prefetch *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    for (uint32_t i = 0; i < p->n_threads; i++) (void)pthread_join(p->thread[i], NULL);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}
