/* jobs.c: a ring under a lock. */
#include "jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct job_log {
    pthread_mutex_t lock;
    uint32_t next, n;
    struct job_record record[JOB_LOG_MOST];
};

const char *job_verdict_name(enum job_verdict v)
{
    static const char *const names[] = { "finished", "cancelled", "failed" };
    return names[v];
}

struct job_log *job_log_open(void)
{
    struct job_log *l = calloc(1, sizeof *l);
    if (l) (void)pthread_mutex_init(&l->lock, NULL);
    return l;
}

void job_log_close(struct job_log *l)
{
    if (l) (void)pthread_mutex_destroy(&l->lock);
    free(l);
}

void job_log_add(struct job_log *l, const struct job_record *r)
{
    (void)pthread_mutex_lock(&l->lock);
    l->record[l->next] = *r;
    l->next = (l->next + 1) % JOB_LOG_MOST;
    if (l->n < JOB_LOG_MOST) l->n++;
    (void)pthread_mutex_unlock(&l->lock);
}

uint32_t job_log_all(struct job_log *l, struct job_record out[JOB_LOG_MOST])
{
    (void)pthread_mutex_lock(&l->lock);
    const uint32_t n = l->n;
    for (uint32_t i = 0; i < n; i++) out[i] = l->record[(l->next + JOB_LOG_MOST - 1 - i) % JOB_LOG_MOST];
    (void)pthread_mutex_unlock(&l->lock);
    return n;
}

bool job_log_find(struct job_log *l, const char *id, struct job_record *out)
{
    bool found = false;
    (void)pthread_mutex_lock(&l->lock);
    for (uint32_t i = 0; i < l->n && !found; i++) {
        const struct job_record *r = &l->record[(l->next + JOB_LOG_MOST - 1 - i) % JOB_LOG_MOST];
        found = strcmp(r->id, id) == 0;
        if (found) *out = *r;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return found;
}
