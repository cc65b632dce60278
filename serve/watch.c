/* watch.c: looks at the device from the engine's thread, between steps: is everything still resident, and how much
 * memory is there? Only this thread waits for the device; what it saw is cached for everybody else. */
#include "inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/monotonic.h"
#include "log/log.h"

enum { MEMORY_EVERY_S = 5 };

struct watch {
    struct serve *s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop_cond;
    bool stop;
};

/* What one look does on the engine's thread. */
struct look {
    const struct model *model;
    bool residency; /* else: memory */
    wk_status status;
    struct device_memory memory;
    char text[256];
};

static void look(void *user)
{
    struct look *k = user;
    const struct wk_err err = { k->text, sizeof k->text };
    k->status = k->residency ? k->model->device->residency(k->model->executor, &err)
                             : k->model->device->device_memory(k->model->dev.gpu, &k->memory, &err);
}

static void look_at_memory(struct serve *s, const struct serve_model *m)
{
    struct look k = { .model = m->model };
    if (!m->model->device->device_memory || !engine_call(m->engine, look, &k) || k.status) return;
    (void)pthread_mutex_lock(&s->memory_lock);
    s->memory = k.memory;
    s->memory_known = true;
    (void)pthread_mutex_unlock(&s->memory_lock);
}

static void look_at_residency(struct serve *s, const struct serve_model *m)
{
    struct look k = { .model = m->model, .residency = true };
    if (!m->model->device->residency || !engine_call(m->engine, look, &k) || !k.status) return;
    serve_set_unhealthy(s, SERVE_NOT_READY, k.text);
    LOG(LOG_ERROR, "error", k.text, log_s("code", "VRAM_RESIDENCY_FAILED"), log_u("device_code", 6),
        log_s("worker_id", s->o->worker_id), log_u("gpu_device", s->info.index));
}

/* True: it is time to end. */
static bool sleep_a_second(struct watch *w)
{
    const struct timespec until = clock_in(CLOCK_MONOTONIC, 1000);
    (void)pthread_mutex_lock(&w->lock);
    while (!w->stop && pthread_cond_timedwait(&w->stop_cond, &w->lock, &until) != ETIMEDOUT) {}
    const bool stop = w->stop;
    (void)pthread_mutex_unlock(&w->lock);
    return stop;
}

static void *run(void *user)
{
    struct watch *w = user;
    struct serve *s = w->s;
    for (uint64_t second = 0; !sleep_a_second(w);) {
        const struct serve_model *m = atomic_load(&s->model);
        if (!m || serve_state_of(s) != SERVE_READY) continue;
        if (second % MEMORY_EVERY_S == 0) look_at_memory(s, m);
        second++; /* seconds of being ready: the loader has just looked at residency */
        if (second % s->o->residency_s == 0) look_at_residency(s, m);
    }
    return NULL;
}

struct watch *watch_start(struct serve *s)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w || !cond_init_monotonic(&w->stop_cond)) {
        free(w);
        return NULL;
    }
    w->s = s;
    (void)pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, run, w) == 0) return w;
    (void)pthread_cond_destroy(&w->stop_cond);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void watch_stop(struct watch *w)
{
    if (!w) return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->stop_cond);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->stop_cond);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

bool serve_memory(struct serve *s, struct device_memory *out)
{
    (void)pthread_mutex_lock(&s->memory_lock);
    const bool known = s->memory_known;
    if (known) *out = s->memory;
    (void)pthread_mutex_unlock(&s->memory_lock);
    return known;
}
