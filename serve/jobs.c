/* jobs.c: a list and a ring under one lock. */
#include "jobs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct job_log {
    pthread_mutex_t lock;
    struct job_place *oldest, *newest;
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

/* ---- open streams -------------------------------------------------------------------------------------- */

void job_log_enter(struct job_log *l, struct job_place *p)
{
    (void)pthread_mutex_lock(&l->lock);
    p->older = l->newest;
    p->newer = NULL;
    *(l->newest ? &l->newest->newer : &l->oldest) = p;
    l->newest = p;
    (void)pthread_mutex_unlock(&l->lock);
}

void job_log_follow(struct job_log *l, struct job_place *p, struct job *job)
{
    (void)pthread_mutex_lock(&l->lock);
    p->job = job;
    (void)pthread_mutex_unlock(&l->lock);
}

void job_log_leave(struct job_log *l, struct job_place *p, const struct job_record *r)
{
    (void)pthread_mutex_lock(&l->lock);
    *(p->older ? &p->older->newer : &l->oldest) = p->newer;
    *(p->newer ? &p->newer->older : &l->newest) = p->older;
    if (r) {
        l->record[l->next] = *r;
        l->next = (l->next + 1) % JOB_LOG_MOST;
        if (l->n < JOB_LOG_MOST) l->n++;
    }
    (void)pthread_mutex_unlock(&l->lock);
}

static void look(const struct job_place *p, struct job_view *out)
{
    if (p->job)
        job_look(p->job, out);
    else
        *out = p->view;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

static const struct job_record *past(const struct job_log *l, uint32_t i)
{
    return &l->record[(l->next + JOB_LOG_MOST - 1 - i) % JOB_LOG_MOST];
}

static bool is_of(const uint64_t owner[2], const uint64_t *of) { return !of || memcmp(owner, of, 16) == 0; }

uint32_t job_log_all(struct job_log *l, const uint64_t *of, struct job_view *open, uint32_t most,
                     struct job_record out[JOB_LOG_MOST], uint32_t *n_past)
{
    uint32_t n = 0;
    (void)pthread_mutex_lock(&l->lock);
    for (const struct job_place *p = l->oldest; p && n < most; p = p->newer)
        if (is_of(p->owner, of)) look(p, &open[n++]);
    *n_past = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (is_of(past(l, i)->owner, of)) out[(*n_past)++] = *past(l, i);
    (void)pthread_mutex_unlock(&l->lock);
    return n;
}

enum job_found job_log_find(struct job_log *l, const uint64_t *of, const char *id, struct job_view *open,
                            struct job_record *out)
{
    enum job_found found = JOB_FOUND_NONE;
    (void)pthread_mutex_lock(&l->lock);
    for (const struct job_place *p = l->newest; p && !found; p = p->older) {
        if (!is_of(p->owner, of) || strcmp(p->view.id, id) != 0) continue;
        look(p, open);
        found = JOB_FOUND_OPEN;
    }
    for (uint32_t i = 0; i < l->n && !found; i++) {
        if (!is_of(past(l, i)->owner, of) || strcmp(past(l, i)->id, id) != 0) continue;
        *out = *past(l, i);
        found = JOB_FOUND_PAST;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return found;
}
