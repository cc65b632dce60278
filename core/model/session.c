/* session.c: one sequence that owns the pages of one of the model's sequence slots: no scheduler, no sharing but of the
 * pages of windows and chunks, which a session has while it needs them: a few at rest, more for the rows of a step. */
#include "model/session.h"

#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"

static struct kv_span span_of(const struct model *m, uint32_t group)
{
    return kv_span(&m->program->groups[group], m->dev.context);
}
static bool bounded(const struct model *m, uint32_t group) { return kv_bounded(span_of(m, group)); }

/* The session's share of a group's pages, and how far it reaches: with what it needs at rest it reaches anywhere. */
static uint32_t share_of(const struct model *m, uint32_t group)
{
    const uint32_t equal = m->plan.kv_pages[group] / m->dev.max_sequences,
                   rest = (uint32_t)kv_rest(span_of(m, group), m->dev.context);
    return equal < rest ? equal : rest;
}

static uint32_t reach(const struct model *m)
{
    uint64_t positions = m->dev.context;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint64_t n = share_of(m, g);
        if (n < kv_rest(span_of(m, g), m->dev.context) && n * KV_PAGE < positions) positions = n * KV_PAGE;
    }
    return (uint32_t)positions;
}

static uint32_t table_of(const struct model *m, uint32_t group)
{
    return bounded(m, group) ? (uint32_t)kv_pages_of(m->dev.context) : share_of(m, group);
}

/* Where layers see all, page i of the slot is page slot * share + i of the cache. */
static void deal_pages(struct session *s)
{
    const struct model *m = s->model;
    uint32_t *at = s->ids;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const uint32_t n = table_of(m, g);
        s->pages[g] = s->held[g].table = at;
        for (uint32_t i = 0; !bounded(m, g) && i < n; i++) at[i] = s->slot * n + i;
        at += n;
    }
}

/* ---- pages of windows, chunks and states --------------------------------------------------------------- */

uint32_t session_grow(struct session *s, uint32_t n)
{
    struct model *m = s->model;
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        if (!bounded(m, g) || span_of(m, g).state) continue;
        /* Beyond what all sessions hold at rest, a step's rows may use what there is. */
        const uint32_t share = share_of(m, g), most = m->plan.kv_pages[g] - (m->dev.max_sequences - 1) * share;
        const uint64_t rows = (uint64_t)(s->held[g].first + most) * KV_PAGE - s->length;
        if (rows < n) n = (uint32_t)rows;
    }
    for (uint32_t g = 0; g < m->program->n_groups; g++)
        for (const uint32_t end = (uint32_t)kv_pages_of((uint64_t)s->length + n); bounded(m, g) && s->held[g].end < end;
             s->held[g].end++) {
            /* Nobody goes on from a state within the step. */
            const bool passed = span_of(m, g).state && s->held[g].end + 1 < end;
            s->held[g].table[s->held[g].end] = passed ? KV_NO_PAGE : m->session_pages[g].ids[--m->session_pages[g].n];
        }
    return n;
}

/* Blocks [from, to) of group g. */
static void give_back(struct session *s, uint32_t g, uint32_t from, uint32_t to)
{
    for (; from < to; from++)
        if (s->held[g].table[from] != KV_NO_PAGE)
            s->model->session_pages[g].ids[s->model->session_pages[g].n++] = s->held[g].table[from];
}

void session_advance(struct session *s, uint32_t n)
{
    s->length += n;
    for (uint32_t g = 0; g < s->model->program->n_groups; g++) {
        const struct kv_span span = span_of(s->model, g);
        const uint32_t first = kv_first(span, s->length) / KV_PAGE, end = (uint32_t)kv_pages_of(s->length);
        if (!kv_bounded(span)) continue;
        give_back(s, g, s->held[g].first, first);
        give_back(s, g, end, s->held[g].end);
        s->held[g].first = first;
        s->held[g].end = end;
    }
}

wk_status session_open(struct model *m, struct session **out, const struct wk_err *err)
{
    *out = NULL;
    if (!m->executor) return wk_fail(err, WK_INTERNAL, "a session needs a loaded model");
    uint32_t slot = 0;
    while (slot < m->dev.max_sequences && m->session_slots[slot]) slot++;
    if (slot == m->dev.max_sequences)
        return wk_fail(err, WK_NO_MEMORY, "all %u sequences of the model are in use", m->dev.max_sequences);
    struct session *s = calloc(1, sizeof *s);
    uint64_t pages = 0;
    for (uint32_t g = 0; g < m->program->n_groups; g++) pages += table_of(m, g);
    if (s) {
        s->ids = calloc(pages + 1, sizeof *s->ids);
        s->logits_rows = calloc(m->dev.max_logits_rows, sizeof *s->logits_rows);
        s->pooled = m->program->embedding_width ? calloc(m->program->embedding_width, sizeof *s->pooled) : NULL;
    }
    if (!s || !s->ids || !s->logits_rows || (m->program->embedding_width && !s->pooled)) {
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
    if (s->model) {
        session_reset(s);
        s->model->session_slots[s->slot] = false;
    }
    free(s->ids);
    free(s->logits_rows);
    free(s->pooled);
    free(s);
}

static wk_status feed_chunk(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role,
                            uint32_t logits_rows, float *logits, const struct wk_err *err)
{
    struct step_seq seq = session_rows(s, 0, n, role);
    struct step step = { .n_rows = n,
                         .n_seqs = 1,
                         .n_logits_rows = logits_rows,
                         .tokens = tokens,
                         .seqs = &seq,
                         .logits_rows = s->logits_rows,
                         .logits = logits,
                         .pooled = s->pooled };
    for (uint32_t i = 0; i < logits_rows; i++) s->logits_rows[i] = n - logits_rows + i;
    wk_status st = s->model->device->step(s->model->executor, &step, err);
    if (!st && seq.failed)
        st = wk_fail(err, WK_INVALID,
                     "a number became infinite or NaN between positions %u and %u: the weights are damaged or overflow",
                     s->length, s->length + n);
    session_advance(s, st ? 0 : n);
    return st;
}

/* A prompt that must be one step. */
static wk_status feed_whole(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role,
                            uint32_t logits_rows, float *logits, const struct wk_err *err)
{
    const struct device_options *d = &s->model->dev;
    const char *why = s->model->program->bidirectional ? "its attention sees both directions" : "it gives an embedding";
    if (s->length)
        return wk_fail(err, WK_INVALID, "%s: %s: a prompt is one step, %u tokens of it came before", s->model->name,
                       why, s->length);
    if (n > d->max_rows)
        return wk_fail(err, WK_INVALID, "%s: %s: a prompt is one step, which has at most %u rows, not %u",
                       s->model->name, why, d->max_rows, n);
    if (logits_rows > d->max_logits_rows)
        return wk_fail(err, WK_INVALID, "%s: %s: a prompt is one step, which gives at most %u rows of logits, not %u",
                       s->model->name, why, d->max_logits_rows, logits_rows);
    if (session_grow(s, n) == n) return feed_chunk(s, tokens, n, role, logits_rows, logits, err);
    session_advance(s, 0);
    return wk_fail(err, WK_NO_MEMORY, "%s: too few pages of the KV cache are free for a prompt of %u tokens",
                   s->model->name, n);
}

wk_status session_feed(struct session *s, const uint32_t *tokens, uint32_t n, enum row_role role, uint32_t logits_rows,
                       float *logits, const struct wk_err *err)
{
    const struct device_options *d = &s->model->dev;
    if (logits_rows > n || (logits_rows > 0) != (logits != NULL))
        return wk_fail(err, WK_INTERNAL, "%u logits of %u tokens, %s room for them", logits_rows, n,
                       logits ? "with" : "without");
    if (n > d->context - s->length)
        return wk_fail(err, WK_INVALID, "%u tokens after %u: the context is %u", n, s->length, d->context);
    if (n > s->reach - s->length)
        return wk_fail(err, WK_NO_MEMORY, "%u tokens after %u: this sequence's share of the KV cache holds %u", n,
                       s->length, s->reach);
    if (tape_whole_prompt(s->model->program)) return feed_whole(s, tokens, n, role, logits_rows, logits, err);
    for (uint32_t at = 0, rows; at < n; at += rows) {
        rows = n - at < d->max_rows ? n - at : d->max_rows;
        /* Rows before the logits rows, or as many logits rows as a step gives. */
        const uint32_t plain = n - logits_rows > at ? n - logits_rows - at : 0;
        if (plain && rows > plain && rows - plain > d->max_logits_rows) rows = plain;
        if (!plain && rows > d->max_logits_rows) rows = d->max_logits_rows;
        rows = session_grow(s, rows);
        const uint32_t want = rows > plain ? rows - plain : 0;
        wk_status st = feed_chunk(s, tokens + at, rows, role, want, logits, err);
        if (st) return st;
        if (want) logits += (uint64_t)want * s->model->program->n_vocab;
    }
    return WK_OK;
}

wk_status session_feed_pair(struct session *s, const uint32_t *tokens, uint32_t n, uint32_t second,
                            const struct wk_err *err)
{
    s->second = second;
    const wk_status status = session_feed(s, tokens, n, ROW_PROMPT, 0, NULL, err);
    s->second = 0;
    return status;
}

const float *session_embedding(const struct session *s) { return s->pooled; }
uint32_t session_length(const struct session *s) { return s->length; }

void session_reset(struct session *s)
{
    s->length = 0;
    for (uint32_t g = 0; g < s->model->program->n_groups; g++) {
        give_back(s, g, s->held[g].first, s->held[g].end);
        s->held[g].first = s->held[g].end = 0;
    }
}
