/* sampling.c: sampled steps on the CPU: each runs to its end inside submit, which then picks the ids by core/sample;
 * collect hands them out.
 *
 * So that callers have one way for every device, the rules are those of a device that runs ahead: ids wait in a queue
 * of STEP_QUEUE steps, and TOKEN_LAST stands for the id that a slot was given before. A step with masked rows keeps its
 * logits until its masks come. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/step_check.h"

enum slot_state { SLOT_EMPTY = 0, SLOT_RUNS, SLOT_ENDED, SLOT_FAILED };

struct sampling_slot {
    struct sampler *sampler;
    uint32_t state;   /* enum slot_state */
    uint32_t last;    /* id; UINT32_MAX: none yet */
    uint32_t in_step; /* number of the last step that it was in */
    uint32_t n_ends, ends[SAMPLER_MAX_ENDS];
    uint32_t held; /* ids to come before one of the ends may */
};

/* ---- memory -------------------------------------------------------------------------------------------- */

wk_status sampling_open(struct executor *x, const struct wk_err *err)
{
    const uint32_t n_vocab = x->program->n_vocab;
    if (n_vocab < 1 || n_vocab > SAMPLER_MAX_VOCAB) return WK_OK; /* nothing to sample: sampler_set says so */
    x->list_bytes += (uint64_t)n_vocab * 20;                      /* as sample.h says */
    return sampler_scratch_open(n_vocab, &x->sampling.scratch, err);
}

void sampling_carve(struct executor *x, struct carve *workspace)
{
    struct sampling *s = &x->sampling;
    const uint32_t n = x->o.max_sequences, logits_rows = x->o.max_logits_rows;
    s->slots = carve(workspace, n, sizeof *s->slots);
    s->seqs = carve(workspace, n, sizeof *s->seqs);
    s->tokens = carve(workspace, x->o.max_rows, sizeof *s->tokens);
    s->ids = carve(workspace, (uint64_t)STEP_QUEUE * n, sizeof *s->ids);
    s->failed = carve(workspace, (uint64_t)STEP_QUEUE * n, sizeof *s->failed);
    s->top_logprobs = carve(workspace, (uint64_t)STEP_QUEUE * logits_rows, sizeof *s->top_logprobs);
    s->logits = carve(workspace, (uint64_t)logits_rows * x->program->n_vocab, sizeof *s->logits);
    s->mask = carve(workspace, (x->program->n_vocab + 63) / 64, sizeof *s->mask);
}

void sampling_close(struct executor *x)
{
    struct sampling *s = &x->sampling;
    for (uint32_t i = 0; s->slots && i < x->o.max_sequences; i++) sampler_close(s->slots[i].sampler);
    sampler_scratch_close(s->scratch);
}

/* ---- a job in a slot ----------------------------------------------------------------------------------- */

wk_status sampling_set(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                       uint32_t n_ends, const struct wk_err *err)
{
    struct sampler *sampler;
    if (slot >= x->o.max_sequences)
        return wk_fail(err, WK_INVALID, "sampler slot %u: there are %u", slot, x->o.max_sequences);
    if (n_ends > SAMPLER_MAX_ENDS)
        return wk_fail(err, WK_INVALID, "%u ids that end a sequence: expected at most %d", n_ends, SAMPLER_MAX_ENDS);
    wk_status status = sampler_open(p, x->program->n_vocab, &sampler, err);
    if (status) return status;
    struct sampling_slot *s = &x->sampling.slots[slot];
    sampler_close(s->sampler);
    *s = (struct sampling_slot){
        .sampler = sampler, .state = SLOT_RUNS, .last = UINT32_MAX, .n_ends = n_ends, .held = n_ends ? p->min_ids : 0
    };
    if (n_ends) memcpy(s->ends, ends, n_ends * sizeof *ends);
    return WK_OK;
}

/* ---- a step -------------------------------------------------------------------------------------------- */

/* After the step's sequences and asks. */
static wk_status check_slots(struct executor *x, const struct step *step, const struct wk_err *err)
{
    struct sampling *s = &x->sampling;
    uint32_t logits_row = 0;
    s->n_steps++;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[i];
        if (q->slot >= x->o.max_sequences)
            return wk_fail(err, WK_INVALID, "sequence %u: sampler slot %u: there are %u", i, q->slot,
                           x->o.max_sequences);
        struct sampling_slot *slot = &s->slots[q->slot];
        if (slot->in_step == s->n_steps)
            return wk_fail(err, WK_INVALID, "sequence %u: sampler slot %u is in this step twice", i, q->slot);
        slot->in_step = s->n_steps;
        for (; logits_row < step->n_logits_rows && step->logits_rows[logits_row] < q->row + q->n_rows; logits_row++)
            if (step_ask_of(step, logits_row).id == TOKEN_LAST && slot->state == SLOT_EMPTY)
                return wk_fail(err, WK_INVALID, "sequence %u: sampler slot %u was never set", i, q->slot);
    }
    return WK_OK;
}

static wk_status fill_tokens(struct executor *x, const struct step *step, const struct wk_err *err)
{
    struct sampling *s = &x->sampling;
    memcpy(s->tokens, step->tokens, step->n_rows * sizeof *s->tokens);
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[i];
        const uint32_t last = s->slots[q->slot].last;
        for (uint32_t r = q->row; r < step->n_rows && r - q->row < q->n_rows; r++) {
            if (s->tokens[r] != TOKEN_LAST) continue;
            if (s->slots[q->slot].state == SLOT_EMPTY || last == UINT32_MAX)
                return wk_fail(err, WK_INVALID, "row %u: sampler slot %u has given no id yet", r, q->slot);
            s->tokens[r] = last;
        }
    }
    return WK_OK;
}

/* Step 3 of sample.h: what the caller's mask allows, but for the slot's ends while it has too few ids. NULL: all. */
static const uint64_t *mask_of(struct executor *x, const struct sampling_slot *slot, const uint64_t *given)
{
    uint64_t *mask = x->sampling.mask;
    const uint64_t bytes = (x->program->n_vocab + 63) / 64 * sizeof *mask;
    if (!slot->held) return given;
    if (given)
        memcpy(mask, given, bytes);
    else
        memset(mask, 0xff, bytes);
    for (uint32_t i = 0; i < slot->n_ends; i++)
        if (slot->ends[i] < x->program->n_vocab) mask[slot->ends[i] / 64] &= ~(UINT64_C(1) << slot->ends[i] % 64);
    return mask;
}

/* The next id of a slot; UINT32_MAX: it is over, or none can be picked. */
static uint32_t pick(struct executor *x, struct sampling_slot *slot, const float *logits, const uint64_t *mask)
{
    uint32_t id;
    if (slot->state != SLOT_RUNS) return UINT32_MAX;
    if (sampler_pick(slot->sampler, x->sampling.scratch, logits, mask_of(x, slot, mask), &id, NULL) ||
        sampler_accept(slot->sampler, id, NULL)) {
        slot->state = SLOT_FAILED;
        return UINT32_MAX;
    }
    slot->held -= slot->held > 0;
    slot->last = id;
    for (uint32_t i = 0; i < slot->n_ends; i++)
        if (slot->ends[i] == id) slot->state = SLOT_ENDED;
    return id;
}

/* Where the results of the step that is being made go. */
static uint32_t next_entry(const struct sampling *s) { return (s->first + s->n_waiting) % STEP_QUEUE; }

/* Logits row `logits_row`, of sequence i. */
static void take_row(struct executor *x, const struct step *step, uint32_t i, uint32_t logits_row, const uint64_t *mask)
{
    struct sampling *s = &x->sampling;
    const uint32_t entry = next_entry(s), n_vocab = x->program->n_vocab;
    const float *logits = s->logits + (uint64_t)logits_row * n_vocab;
    const struct step_ask a = step_ask_of(step, logits_row);
    struct sampling_slot *slot = &s->slots[step->seqs[i].slot];
    bool *failed = &s->failed[entry * x->o.max_sequences + i];
    uint32_t id = a.id;
    if (id == TOKEN_LAST) {
        if (*failed && slot->state == SLOT_RUNS) slot->state = SLOT_FAILED;
        id = pick(x, slot, logits, mask);
        s->ids[entry * x->o.max_sequences + i] = id;
        *failed = *failed || slot->state == SLOT_FAILED;
    }
    if (a.top == STEP_NO_TOP) return;
    struct sampler_top *top = &s->top_logprobs[entry * x->o.max_logits_rows + logits_row];
    top->id = UINT32_MAX;
    if (id != UINT32_MAX && sampler_top(logits, n_vocab, id, a.top, top, NULL)) *failed = true;
}

/* masks: NULL: no row has one. */
static void sample(struct executor *x, const struct step *step, const uint64_t *const *masks)
{
    struct sampling *s = &x->sampling;
    const uint32_t entry = next_entry(s), first = entry * x->o.max_sequences;
    uint32_t logits_row = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        s->ids[first + i] = UINT32_MAX;
        s->failed[first + i] = s->seqs[i].failed;
        for (const uint32_t end = s->seqs[i].row + s->seqs[i].n_rows;
             logits_row < step->n_logits_rows && step->logits_rows[logits_row] < end; logits_row++)
            take_row(x, step, i, logits_row, step_ask_of(step, logits_row).masked ? masks[logits_row] : NULL);
    }
    s->n_seqs[entry] = step->n_seqs;
    s->n_logits_rows[entry] = step->n_logits_rows;
    s->n_waiting++;
}

static bool has_masks(const struct step *step)
{
    for (uint32_t i = 0; i < step->n_logits_rows; i++)
        if (step_ask_of(step, i).masked) return true;
    return false;
}

wk_status sampling_submit(struct executor *x, const struct step *step, const struct wk_err *err)
{
    struct sampling *s = &x->sampling;
    if (s->n_waiting == STEP_QUEUE)
        return wk_fail(err, WK_INVALID, "%d steps are under way: collect one before the next", STEP_QUEUE);
    if (s->unmasked) return wk_fail(err, WK_INVALID, "a step waits for its masks: give them before the next");
    wk_status status = step_check_counts(&x->o, step, err);
    if (!status) status = step_check_sequences(x->program, &x->o, x->plan.kv_pages, step, err);
    if (!status) status = step_check_asks(x->program, step, err);
    if (!status) status = check_slots(x, step, err);
    if (!status) status = fill_tokens(x, step, err);
    if (status) return status;
    struct step run = *step;
    memcpy(s->seqs, step->seqs, step->n_seqs * sizeof *s->seqs);
    run.seqs = s->seqs;
    run.tokens = s->tokens;
    run.logits = s->logits;
    status = executor_step(x, &run, err);
    s->unmasked = !status && has_masks(step);
    if (!status && !s->unmasked) sample(x, step, NULL);
    return status;
}

wk_status sampling_mask(struct executor *x, const struct step *step, const uint64_t *const *masks,
                        const struct wk_err *err)
{
    if (!x->sampling.unmasked) return wk_fail(err, WK_INVALID, "no step waits for masks");
    sample(x, step, masks);
    x->sampling.unmasked = false;
    return WK_OK;
}

wk_status sampling_collect(struct executor *x, struct step_ids *out, const struct wk_err *err)
{
    struct sampling *s = &x->sampling;
    if (!s->n_waiting) return wk_fail(err, WK_INVALID, "no step is under way");
    const uint32_t entry = s->first * x->o.max_sequences;
    memcpy(out->ids, s->ids + entry, s->n_seqs[s->first] * sizeof *out->ids);
    memcpy(out->failed, s->failed + entry, s->n_seqs[s->first] * sizeof *out->failed);
    if (out->top_logprobs)
        memcpy(out->top_logprobs, s->top_logprobs + s->first * x->o.max_logits_rows,
               s->n_logits_rows[s->first] * sizeof *out->top_logprobs);
    s->first = (s->first + 1) % STEP_QUEUE;
    s->n_waiting--;
    return WK_OK;
}
