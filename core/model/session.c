/* session.c: one sequence that owns the pages of one of the model's sequence slots: no scheduler, no sharing. */
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

/* The session's share of a group's pages, and how far it reaches: a ring that is there whole reaches anywhere. */
static uint32_t pages_of(const struct model *m, uint32_t group) { return m->plan.kv_pages[group] / m->dev.max_sequences; }

static uint32_t reach(const struct model *m)
{
    uint64_t positions = m->dev.context;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint32_t ring = m->program->groups[g].ring_pages, n = pages_of(m, g);
        if ((!ring || n < ring) && (uint64_t)n * KV_PAGE < positions) positions = (uint64_t)n * KV_PAGE;
    }
    return (uint32_t)positions;
}

/* Page i of the slot is page slot * pages_of + i of the cache. */
static void deal_pages(struct session *s)
{
    const struct model *m = s->model;
    uint32_t *at = s->ids;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint32_t n = pages_of(m, g);
        s->pages[g] = at;
        for (uint32_t i = 0; i < n; i++) *at++ = s->slot * n + i;
    }
}

wk_status session_open(struct model *m, struct session **out, const struct wk_err *err)
{
    *out = NULL;
    if (!m->executor) return wk_fail(err, WK_INTERNAL, "a session needs a loaded model");
    uint32_t slot = 0;
    while (slot < m->dev.max_sequences && m->session_slots[slot]) slot++;
    if (slot == m->dev.max_sequences) return wk_fail(err, WK_NO_MEMORY, "all %u sequences of the model are in use", m->dev.max_sequences);
    struct session *s = calloc(1, sizeof *s);
    uint64_t pages = 0;
    for (uint32_t g = 0; g < m->program->n_groups; g++) pages += pages_of(m, g);
    if (s) {
        s->ids = calloc(pages + 1, sizeof *s->ids);
        s->wanted = calloc(m->dev.max_wanted, sizeof *s->wanted);
        s->pooled = m->program->embedding_width ? calloc(m->program->embedding_width, sizeof *s->pooled) : NULL;
    }
    if (!s || !s->ids || !s->wanted || (m->program->embedding_width && !s->pooled)) {
        session_close(s);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for a session of %u positions", m->dev.context);
    }
    s->model = m;
    s->slot = slot;
    m->session_slots[slot] = true;
    s->reach = reach(m);
    deal_pages(s);
    *out = s;
    return WK_OK;
}

void session_close(struct session *s)
{
    if (!s) return;
    if (s->model) s->model->session_slots[s->slot] = false;
    free(s->ids);
    free(s->wanted);
    free(s->pooled);
    free(s);
}

static wk_status feed_chunk(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role, uint32_t wanted, float *logits, const struct wk_err *err)
{
    struct step_seq seq = session_rows(s, 0, n, role);
    struct step step = { .n_rows = n, .n_seqs = 1, .n_wanted = wanted, .tokens = tokens, .seqs = &seq, .wanted = s->wanted, .logits = logits, .pooled = s->pooled };
    for (uint32_t i = 0; i < wanted; i++) s->wanted[i] = n - wanted + i;
    wk_status st = s->model->device->step(s->model->executor, &step, err);
    if (st) return st;
    if (seq.failed) return wk_fail(err, WK_INVALID, "a number became infinite or NaN between positions %u and %u: the weights are damaged or overflow", s->length, s->length + n);
    s->length += n;
    return WK_OK;
}

wk_status session_feed(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role, uint32_t wanted, float *logits, const struct wk_err *err)
{
    const struct device_options *d = &s->model->dev;
    if (wanted > n || (wanted > 0) != (logits != NULL)) return wk_fail(err, WK_INTERNAL, "%u logits of %u tokens, %s room for them", wanted, n, logits ? "with" : "without");
    if (n > d->context - s->length) return wk_fail(err, WK_INVALID, "%u tokens after %u: the context is %u", n, s->length, d->context);
    if (n > s->reach - s->length) return wk_fail(err, WK_NO_MEMORY, "%u tokens after %u: this sequence's share of the KV cache holds %u", n, s->length, s->reach);
    for (uint32_t at = 0, rows; at < n; at += rows) {
        rows = n - at < d->max_rows ? n - at : d->max_rows;
        /* Rows before the wanted ones, or as many wanted ones as a step gives. */
        const uint32_t plain = n - wanted > at ? n - wanted - at : 0;
        if (plain && rows > plain && rows - plain > d->max_wanted) rows = plain;
        if (!plain && rows > d->max_wanted) rows = d->max_wanted;
        const uint32_t want = rows > plain ? rows - plain : 0;
        wk_status st = feed_chunk(s, tokens + at, rows, role, want, logits, err);
        if (st) return st;
        if (want) logits += (uint64_t)want * s->model->program->n_vocab;
    }
    return WK_OK;
}

uint32_t session_length(const struct session *s) { return s->length; }
void session_reset(struct session *s) { s->length = 0; }
