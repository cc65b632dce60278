/* parallel.c: threads for quantize and for measuring bandwidth. */
#include "parallel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/machine.h"

struct share {
    pthread_t thread;
    bool started;
    void (*work)(void *user, uint32_t index, uint32_t n);
    void *user;
    uint32_t index, n;
};

static void *run_share(void *p)
{
    struct share *s = p;
    s->work(s->user, s->index, s->n);
    return NULL;
}

void parallel(uint32_t n, void (*work)(void *user, uint32_t index, uint32_t n), void *user)
{
    struct share *shares = calloc(n, sizeof *shares);
    for (uint32_t i = 1; shares && i < n; i++) {
        shares[i] = (struct share){ .work = work, .user = user, .index = i, .n = n };
        shares[i].started = pthread_create(&shares[i].thread, NULL, run_share, &shares[i]) == 0;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!shares || !shares[i].started) work(user, i, n);
    for (uint32_t i = 1; shares && i < n; i++)
        if (shares[i].started) (void)pthread_join(shares[i].thread, NULL);
    free(shares);
}

uint32_t parallel_processors(void)
{
    const uint32_t n = machine_processors();
    return n > PARALLEL_MAX ? PARALLEL_MAX : n;
}
