/* queue.c: sampled steps: enqueued by submit, their ids read from the mapped ring by collect.
 *
 * The device writes each id together with the serial of its run, so the host sees a run's end without asking the
 * driver: it looks at memory, and only every millisecond asks whether the stream still lives. A run without logits rows
 * leaves its serial in a word instead. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <string.h>
#include <time.h>

enum { ASK_NS = 1000000 };

static wk_status dead(const struct executor *x, const struct wk_err *err)
{
    return cuda_device_dead(x->device)
               ? cuda_check(x->device, (int)cudaErrorUnknown, "an earlier error ended this device's context", err)
               : WK_OK;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct cuda_sampled result_at(const struct executor *x, uint32_t serial, uint32_t i)
{
    struct cuda_sampled r;
    const uint64_t *at = (const uint64_t *)(const void *)&x->results[(uint64_t)(serial % CUDA_RING) * x->run_rows + i];
    const uint64_t word = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    memcpy(&r, &word, sizeof r);
    return r;
}

static bool ended(const struct executor *x, uint32_t serial)
{
    const struct run_record *r = &x->records[serial % CUDA_RING];
    if (!cuda_tops_ended(x, serial, r)) return false;
    if (!r->few && !r->n_sampled) return (int32_t)(__atomic_load_n(x->mark, __ATOMIC_ACQUIRE) - serial) >= 0;
    for (uint32_t i = 0; i < (r->n_sampled ? r->n_sampled : 1); i++)
        if (result_at(x, serial, i).serial != serial) return false;
    return true;
}

static wk_status wait_for(struct executor *x, uint32_t serial, const struct wk_err *err)
{
    wk_status s = x->held && serial == x->held_serial ? cuda_launch_held(x, err) : WK_OK;
    if (s) return s;
    for (uint64_t asked = now_ns(), spins = 0; !ended(x, serial); spins++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        if (spins % 256 || now_ns() - asked < ASK_NS) continue;
        asked = now_ns();
        const cudaError_t code = cudaStreamQuery(x->stream);
        if (code == cudaErrorNotReady) continue;
        if (code) return cuda_check(x->device, (int)code, "a submitted step", err);
        /* The stream is done; what it wrote is on its way at most. */
        if (cudaStreamSynchronize(x->stream) == cudaSuccess && !ended(x, serial))
            return wk_fail(err, WK_INTERNAL, "run %u ended without its ids", serial);
    }
    return WK_OK;
}

/* The oldest run's ids go to their step. */
static wk_status harvest(struct executor *x, const struct wk_err *err)
{
    const uint32_t serial = x->oldest;
    const struct run_record *r = &x->records[serial % CUDA_RING];
    wk_status s = wait_for(x, serial, err);
    if (s) return s;
    for (uint32_t i = 0; i < r->n_sampled && r->step != TAPE_NONE; i++) {
        struct pending_step *p = &x->pending[r->step];
        const uint32_t id = result_at(x, serial, i).id;
        p->failed[r->seq_of[i]] = id == CUDA_NO_ID;
        p->ids[r->seq_of[i]] = id == CUDA_NO_ID ? UINT32_MAX : id;
    }
    if (r->step != TAPE_NONE) cuda_harvest_top_logprobs(x, serial, r);
    x->oldest++;
    return WK_OK;
}

/* The ring has room for one more run then. */
static wk_status make_room(struct executor *x, const struct wk_err *err)
{
    return x->next_serial - x->oldest < CUDA_RING ? WK_OK : harvest(x, err);
}

wk_status cuda_drain(struct executor *x, const struct wk_err *err)
{
    wk_status s = dead(x, err);
    while (!s && x->oldest != x->next_serial) s = harvest(x, err);
    return s;
}

/* ---- samplers ------------------------------------------------------------------------------------------ */

wk_status cuda_set_slot(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                        uint32_t n_ends, const struct wk_err *err)
{
    wk_status s = dead(x, err);
    if (!s && !x->sampler) return wk_fail(err, WK_INVALID, "the tape has no logits to sample from");
    if (!s && slot >= x->o.max_sequences)
        return wk_fail(err, WK_INVALID, "slot %u: there are %u", slot, x->o.max_sequences);
    if (!s) s = sampler_check(p, x->program->n_vocab, err);
    if (!s) s = cuda_launch_held(x, err);
    if (!s) s = cuda_sampler_set(x->sampler, slot, p, ends, n_ends, x->stream, err);
    if (!s) x->slot_kind[slot] = cuda_sampler_kind(p);
    return s;
}

/* ---- submit -------------------------------------------------------------------------------------------- */

static enum cuda_sample_kind kind_of(const struct executor *x, const struct step *s)
{
    const struct run *r = &x->run;
    enum cuda_sample_kind least = CUDA_SAMPLE_PLAIN;
    for (uint32_t i = 0; i < r->n_sampled; i++) {
        const enum cuda_sample_kind kind = x->slot_kind[s->seqs[r->logits_row_of[i]].slot];
        least = kind < least ? kind : least;
    }
    return least;
}

/* The last of a run whose logits are made and wait: its ids, and what is asked about them. */
static wk_status sample_run(struct executor *x, const struct step *s, const uint64_t *const *masks,
                            const struct wk_err *err)
{
    const struct run *r = &x->run;
    struct cuda_masks m;
    wk_status st = masks ? cuda_send_masks(x, s, masks, &m, err) : WK_OK;
    if (!st) st = cuda_enqueue_sample(x, r->n_sampled, kind_of(x, s), masks ? &m : NULL, !masks, err);
    if (!st && masks) st = cuda_masks_used(x, err);
    return st ? st : cuda_enqueue_top_logprobs(x, s, 0, r->few ? r->n_logits_rows : r->n_sampled, err);
}

/* Generated rows: one graph, with the sampler in it unless it has to wait. */
static wk_status submit_few(struct executor *x, const struct step *s, const struct wk_err *err)
{
    const struct run *r = &x->run;
    if (x->unmasked) return cuda_launch_few(x, r, PROGRAM_LOGITS, err);
    wk_status st = cuda_launch_few(x, r, (enum program_kind)(PROGRAM_SAMPLED + (uint32_t)kind_of(x, s)), err);
    return st ? st : cuda_enqueue_top_logprobs(x, s, 0, r->n_logits_rows, err);
}

/* Prompts: rows whose log probabilities are asked for, as many at a time as there is room for logits; then those that
 * are sampled. */
static wk_status submit_many(struct executor *x, const struct step *s, const struct wk_err *err)
{
    const struct run *r = &x->run;
    wk_status st = cuda_launch_held(x, err);
    if (!st) st = cuda_enqueue_run(x, r, PROGRAM_SAMPLED, cuda_cancel_of(x, s), NULL, err);
    for (uint32_t at = r->n_sampled, n; !st && at < r->n_logits_rows; at += n) {
        n = r->n_logits_rows - at < x->run_rows ? r->n_logits_rows - at : x->run_rows;
        st = cuda_enqueue_logits(x, r, at, n, err);
        if (!st) st = cuda_enqueue_top_logprobs(x, s, at, at + n, err);
    }
    if (st) return st;
    if (!r->n_sampled) return cuda_mark(x->prepare.serial, x->mark_device, x->stream, err);
    st = cuda_enqueue_logits(x, r, 0, r->n_sampled, err);
    return st || x->unmasked ? st : sample_run(x, s, NULL, err);
}

static void record(struct executor *x, const struct step *s, uint32_t step)
{
    const struct run *r = &x->run;
    struct run_record *to = &x->records[r->serial % CUDA_RING];
    to->few = r->few;
    to->step = step;
    to->n_sampled = r->n_sampled;
    memcpy(to->seq_of, r->logits_row_of, r->n_sampled * sizeof *to->seq_of);
    cuda_record_top_logprobs(x, s, to);
}

/* What was enqueued of a step that failed is computed and read by nobody. */
static wk_status give_up(struct executor *x, wk_status s)
{
    const uint32_t step = (x->first_pending + x->n_pending) % STEP_QUEUE, failed = x->next_serial - 1;
    for (uint32_t i = x->oldest; i != x->next_serial; i++)
        if (x->records[i % CUDA_RING].step == step) x->records[i % CUDA_RING].step = TAPE_NONE;
    /* Older steps first: the run that failed has no end to wait for. */
    while (x->oldest != failed && !harvest(x, NULL)) continue;
    cuda_resync(x);
    return s;
}

/* The step's runs, from where the cursor stands. masks NULL: up to the first that has to wait for its own. */
static wk_status go_on(struct executor *x, const struct step *s, const uint64_t *const *masks, const struct wk_err *err)
{
    const uint32_t at = (x->first_pending + x->n_pending) % STEP_QUEUE;
    struct run_cursor *c = &x->cursor;
    wk_status st = WK_OK;
    for (bool more = false; !st;) {
        if (x->unmasked) {
            if (!masks) return WK_OK;
            st = sample_run(x, s, masks, err);
            x->unmasked = false;
        }
        if (!st) more = cuda_seek_run(x, c);
        if (!st && more) st = make_room(x, err);
        if (st) break;
        if (!more && !c->few) {
            x->n_pending++;
            return WK_OK;
        }
        if (!more) {
            *c = (struct run_cursor){ .step = s, .sampled = true };
            continue;
        }
        cuda_next_run(x, c);
        record(x, s, at);
        x->unmasked = cuda_run_masked(x, s);
        st = x->run.few ? submit_few(x, s, err) : submit_many(x, s, err);
        x->pending[at].last_serial = x->run.serial;
    }
    x->unmasked = false;
    return give_up(x, st);
}

wk_status cuda_submit(struct executor *x, const struct step *step, const struct wk_err *err)
{
    wk_status s = dead(x, err);
    if (!s && x->unmasked) return wk_fail(err, WK_INVALID, "a step waits for its masks: give them before the next");
    if (!s && x->tap) return wk_fail(err, WK_INVALID, "taps see steps with logits alone");
    if (!s) s = cuda_check_step(x, step, true, err);
    if (s) return s;
    if (x->n_pending == STEP_QUEUE)
        return wk_fail(err, WK_INVALID, "%d steps are under way already: collect one first", STEP_QUEUE);
    struct pending_step *p = &x->pending[(x->first_pending + x->n_pending) % STEP_QUEUE];
    p->n_seqs = step->n_seqs;
    p->n_logits_rows = step->n_logits_rows;
    for (uint32_t i = 0; i < step->n_seqs; i++) p->ids[i] = UINT32_MAX, p->failed[i] = false;
    cuda_begin_step(x, step);
    x->cursor = (struct run_cursor){ .step = step, .few = true, .sampled = true };
    return go_on(x, step, NULL, err);
}

wk_status cuda_mask(struct executor *x, const struct step *step, const uint64_t *const *masks, const struct wk_err *err)
{
    wk_status s = dead(x, err);
    if (!s && !x->unmasked) return wk_fail(err, WK_INVALID, "no step waits for masks");
    if (s) return s;
    x->cursor.step = step;
    return go_on(x, step, masks, err);
}

wk_status cuda_collect(struct executor *x, struct step_ids *out, const struct wk_err *err)
{
    if (!x->n_pending) return wk_fail(err, WK_INVALID, "no step is under way");
    const struct pending_step *p = &x->pending[x->first_pending];
    wk_status s = dead(x, err);
    while (!s && x->oldest != x->next_serial && (int32_t)(p->last_serial - x->oldest) >= 0) s = harvest(x, err);
    if (s) return s;
    memcpy(out->ids, p->ids, p->n_seqs * sizeof *out->ids);
    memcpy(out->failed, p->failed, p->n_seqs * sizeof *out->failed);
    if (out->top_logprobs) memcpy(out->top_logprobs, p->top_logprobs, p->n_logits_rows * sizeof *out->top_logprobs);
    x->first_pending = (x->first_pending + 1) % STEP_QUEUE;
    x->n_pending--;
    return WK_OK;
}
