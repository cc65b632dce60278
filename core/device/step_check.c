/* step_check.c: options, and a step: its sequences, their page tables and what is asked of its rows, checked the same
 * way for every device. */
#include "device/step_check.h"

#include "device/kv_pages.h"
#include "sample/sample.h"
#include "tape/tape.h"

wk_status device_check_options(const struct tape_program *p, const struct device_options *o, uint32_t max_rows,
                               const struct wk_err *err)
{
    enum { MAX_CONTEXT = 1 << 26, MAX_SEQUENCES = 1 << 16 };
    if (o->context < 1 || o->context > MAX_CONTEXT)
        return wk_fail(err, WK_INVALID, "context of %u positions: expected 1 to %d", o->context, MAX_CONTEXT);
    if (o->context > p->context)
        return wk_fail(err, WK_INVALID, "context of %u positions: the tape was recorded for %u", o->context,
                       p->context);
    if (o->max_sequences < 1 || o->max_sequences > MAX_SEQUENCES)
        return wk_fail(err, WK_INVALID, "%u sequences: expected 1 to %d", o->max_sequences, MAX_SEQUENCES);
    if (o->max_rows < 1 || o->max_rows > max_rows)
        return wk_fail(err, WK_INVALID, "%u rows a step: expected 1 to %u", o->max_rows, max_rows);
    if (o->max_logits_rows < 1 || o->max_logits_rows > o->max_rows)
        return wk_fail(err, WK_INVALID, "%u logits rows a step: expected 1 to %u, the rows a step", o->max_logits_rows,
                       o->max_rows);
    return WK_OK;
}

wk_status step_check_counts(const struct device_options *o, const struct step *s, const struct wk_err *err)
{
    if (s->n_rows < 1 || s->n_rows > o->max_rows)
        return wk_fail(err, WK_INVALID, "%u rows: expected 1 to %u", s->n_rows, o->max_rows);
    if (s->n_seqs < 1 || s->n_seqs > o->max_sequences)
        return wk_fail(err, WK_INVALID, "%u sequences: expected 1 to %u", s->n_seqs, o->max_sequences);
    if (s->n_logits_rows > o->max_logits_rows)
        return wk_fail(err, WK_INVALID, "%u logits rows: expected at most %u", s->n_logits_rows, o->max_logits_rows);
    return WK_OK;
}

wk_status step_check_logits_rows(const struct step *s, const struct wk_err *err)
{
    for (uint32_t i = 0; i < s->n_logits_rows; i++)
        if (s->logits_rows[i] >= s->n_rows || (i && s->logits_rows[i] <= s->logits_rows[i - 1]))
            return wk_fail(err, WK_INVALID, "logits row %u is %u: expected ascending rows below %u", i,
                           s->logits_rows[i], s->n_rows);
    if (s->n_logits_rows && !s->logits)
        return wk_fail(err, WK_INVALID, "%u rows are wanted but there is no room for their logits", s->n_logits_rows);
    return WK_OK;
}

static wk_status check_pages(const struct tape_program *p, const uint32_t *kv_pages, const struct step_seq *q,
                             uint32_t seq, const struct wk_err *err)
{
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const uint32_t oldest = kv_first(kv_span(&p->groups[g], UINT32_MAX), q->position) / KV_PAGE,
                       last = (q->position + q->n_rows - 1) / KV_PAGE;
        if (!q->pages || !q->pages[g])
            return wk_fail(err, WK_INVALID, "sequence %u: no page table for cache group %u", seq, g);
        for (uint32_t i = oldest; i <= last; i++) {
            const uint32_t id = q->pages[g][i];
            /* A state that begins here or passes through need not be kept here. */
            if (p->groups[g].state && id == KV_NO_PAGE && i < last && i * KV_PAGE >= q->position) continue;
            if (id >= kv_pages[g])
                return wk_fail(err, WK_INVALID, "sequence %u: page %u of group %u: there are %u", seq, id, g,
                               kv_pages[g]);
        }
    }
    return WK_OK;
}

static wk_status check_seq(const struct tape_program *p, const struct device_options *o, const uint32_t *kv_pages,
                           const struct step *s, uint32_t i, uint32_t row, const struct wk_err *err)
{
    const struct step_seq *q = &s->seqs[i];
    if (q->row != row)
        return wk_fail(err, WK_INVALID, "sequence %u begins at row %u: expected %u, rows ascend without gaps", i,
                       q->row, row);
    if (q->n_rows < 1 || q->n_rows > s->n_rows - row)
        return wk_fail(err, WK_INVALID, "sequence %u has %u rows: expected 1 to %u", i, q->n_rows, s->n_rows - row);
    if (q->position > o->context || q->n_rows > o->context - q->position)
        return wk_fail(err, WK_INVALID, "sequence %u: %u rows from position %u: the context is %u", i, q->n_rows,
                       q->position, o->context);
    /* Nothing of a step is kept but keys and values, so what is pooled must be there at once; and so must be what rows
     * see that come before it. */
    if (tape_whole_prompt(p) && q->position)
        return wk_fail(err, WK_INVALID, "sequence %u: %s needs its whole prompt in one step, it begins at %u", i,
                       p->bidirectional ? "attention in both directions" : "an embedding", q->position);
    return check_pages(p, kv_pages, q, i, err);
}

wk_status step_check_sequences(const struct tape_program *p, const struct device_options *o, const uint32_t *kv_pages,
                               const struct step *s, const struct wk_err *err)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        wk_status st = check_seq(p, o, kv_pages, s, i, row, err);
        if (st) return st;
        row += s->seqs[i].n_rows;
    }
    if (row != s->n_rows) return wk_fail(err, WK_INVALID, "the sequences have %u rows, the step %u", row, s->n_rows);
    return WK_OK;
}

/* Row `row` is wanted; `last`: it is the last of its sequence. */
static wk_status check_ask(const struct tape_program *p, uint32_t row, struct step_ask a, bool last,
                           const struct wk_err *err)
{
    const bool sampled = a.id == TOKEN_LAST;
    if (sampled && !last)
        return wk_fail(err, WK_INVALID, "row %u is to be sampled: only the last row of a sequence can be", row);
    if (!sampled && a.id >= p->n_vocab)
        return wk_fail(err, WK_INVALID, "row %u: the probability of id %u: the vocabulary has %u", row, a.id,
                       p->n_vocab);
    if (a.top > SAMPLER_MAX_TOP && !(sampled && a.top == STEP_NO_TOP))
        return wk_fail(err, WK_INVALID, "row %u: the best %u ids: expected at most %d", row, a.top, SAMPLER_MAX_TOP);
    if (a.masked && !sampled) return wk_fail(err, WK_INVALID, "row %u has a mask, but it is not sampled", row);
    return WK_OK;
}

wk_status step_check_asks(const struct tape_program *p, const struct step *s, const struct wk_err *err)
{
    for (uint32_t i = 0, seq = 0; i < s->n_logits_rows; i++) {
        const uint32_t row = s->logits_rows[i];
        if (row >= s->n_rows || (i && row <= s->logits_rows[i - 1]))
            return wk_fail(err, WK_INVALID, "logits row %u is %u: expected ascending rows below %u", i, row, s->n_rows);
        while (row - s->seqs[seq].row >= s->seqs[seq].n_rows) seq++;
        wk_status st = check_ask(p, row, step_ask_of(s, i), row == s->seqs[seq].row + s->seqs[seq].n_rows - 1, err);
        if (st) return st;
    }
    return WK_OK;
}

wk_status step_check_pages(const struct tape_program *p, const uint32_t *kv_pages, const struct device_page *pages,
                           uint32_t n, const struct wk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (pages[i].group >= p->n_groups)
            return wk_fail(err, WK_INVALID, "page %u of group %u: there are %u groups", pages[i].page, pages[i].group,
                           p->n_groups);
        if (pages[i].page >= kv_pages[pages[i].group] && pages[i].page != KV_NO_PAGE)
            return wk_fail(err, WK_INVALID, "page %u of group %u, which has %u", pages[i].page, pages[i].group,
                           kv_pages[pages[i].group]);
    }
    return WK_OK;
}

wk_status step_check_peer(const struct tape_program *p, const uint32_t *their_pages, const struct device_page *from,
                          const uint32_t *kv_pages, const struct device_page *to, uint32_t n, const struct wk_err *err)
{
    wk_status s = step_check_pages(p, kv_pages, to, n, err);
    if (!s) s = step_check_pages(p, their_pages, from, n, err);
    for (uint32_t i = 0; !s && i < n; i++)
        if (from[i].group != to[i].group || (from[i].page == KV_NO_PAGE && to[i].page != KV_NO_PAGE))
            s = wk_fail(err, WK_INVALID, "page %u of group %u for page %u of group %u", from[i].page, from[i].group,
                        to[i].page, to[i].group);
    return s;
}
