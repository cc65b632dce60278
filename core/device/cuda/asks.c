/* asks.c: what rows of a sampled step may ask besides an id.
 *
 * A mask: written by the host after the run's forward pass was enqueued, sent on a stream of its own, so that it
 * travels while the forward pass runs; the sampler waits for it by an event. One run at a time waits for masks, so
 * there is one place for them.
 *
 * Log probabilities: a kernel behind the sampler, for the rows that ask and no others. Its results come through mapped
 * memory, a serial last, as ids do. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <string.h>

#include "device/step_check.h"

/* ---- open and close ------------------------------------------------------------------------------------ */

wk_status cuda_asks_open(struct executor *x, const struct wk_err *err)
{
    const uint64_t masks = (uint64_t)x->run_rows * x->masks.words * sizeof *x->masks.host,
                   top_logprobs = (uint64_t)CUDA_RING * x->o.max_logits_rows * sizeof *x->top_logprobs;
    void *host, *device;
    wk_status s = cuda_memory_pinned(x->device, masks, &host, &device, err);
    if (s) return s;
    x->masks.host = host;
    memset(host, 0, masks);
    s = cuda_memory_pinned(x->device, top_logprobs, &host, &device, err);
    if (s) return s;
    x->top_logprobs = host;
    x->top_logprobs_device = device;
    memset(host, 0, top_logprobs);
    cudaStream_t stream = NULL;
    cudaEvent_t sent = NULL, used = NULL;
    int code = (int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (!code) code = (int)cudaEventCreateWithFlags(&sent, cudaEventDisableTiming);
    if (!code) code = (int)cudaEventCreateWithFlags(&used, cudaEventDisableTiming);
    x->masks.stream = stream;
    x->masks.sent = sent;
    x->masks.used = used;
    return cuda_check(x->device, code, "a stream for masks", err);
}

void cuda_asks_close(struct executor *x)
{
    if (cuda_device_dead(x->device)) return;
    if (x->masks.sent) (void)cudaEventDestroy(x->masks.sent);
    if (x->masks.used) (void)cudaEventDestroy(x->masks.used);
    if (x->masks.stream) (void)cudaStreamDestroy(x->masks.stream);
}

/* ---- masks --------------------------------------------------------------------------------------------- */

bool cuda_run_masked(const struct executor *x, const struct step *s)
{
    for (uint32_t i = 0; s->asks && i < x->run.n_sampled; i++)
        if (s->asks[x->run.ask_of[i]].masked) return true;
    return false;
}

wk_status cuda_send_masks(struct executor *x, const struct step *s, const uint64_t *const *masks,
                          struct cuda_masks *out, const struct wk_err *err)
{
    const struct run *r = &x->run;
    const struct cuda_mask_space *m = &x->masks;
    const size_t given = ((size_t)x->n_logits + 63) / 64 * sizeof *m->host;
    uint16_t n = 0;
    out->words = m->device;
    out->stride = m->words;
    wk_status st = cuda_check(x->device, (int)cudaEventSynchronize(m->sent), "masks sent before", err);
    if (st) return st;
    for (uint32_t i = 0; i < r->n_sampled; i++) {
        out->of_row[i] = CUDA_NO_MASK;
        if (!s->asks[r->ask_of[i]].masked) continue;
        memcpy(m->host + (size_t)n * m->words, masks[r->ask_of[i]], given);
        out->of_row[i] = n++;
    }
    int code = (int)cudaStreamWaitEvent(m->stream, m->used, 0);
    if (!code)
        code = (int)cudaMemcpyAsync(m->device, m->host, (size_t)n * m->words * sizeof *m->host, cudaMemcpyHostToDevice,
                                    m->stream);
    if (!code) code = (int)cudaEventRecord(m->sent, m->stream);
    if (!code) code = (int)cudaStreamWaitEvent(x->stream, m->sent, 0);
    return cuda_check(x->device, code, "masks", err);
}

wk_status cuda_masks_used(struct executor *x, const struct wk_err *err)
{
    return cuda_check(x->device, (int)cudaEventRecord(x->masks.used, x->stream), "masks", err);
}

/* ---- log probabilities --------------------------------------------------------------------------------- */

void cuda_record_top_logprobs(struct executor *x, const struct step *s, struct run_record *to)
{
    const struct run *r = &x->run;
    to->n_top_logprobs = 0;
    for (uint32_t i = 0; s->asks && i < r->n_logits_rows; i++)
        if (s->asks[r->ask_of[i]].top != STEP_NO_TOP)
            to->top[to->n_top_logprobs++] =
                (struct run_top){ .logits_row = i, .ask = r->ask_of[i], .seq = r->logits_row_of[i] };
}

wk_status cuda_enqueue_top_logprobs(struct executor *x, const struct step *s, uint32_t first, uint32_t end,
                                    const struct wk_err *err)
{
    struct cuda_top_row of[CUDA_SAMPLER_ROWS];
    struct cuda_top_logprobs c = { .of = of,
                                   .seq = x->prepare.sampled,
                                   .logits = x->logits,
                                   .stride = x->logits_stride,
                                   .serial = x->prepare.serial,
                                   .out = x->top_logprobs_device,
                                   .first = first,
                                   .a_run = x->o.max_logits_rows };
    for (uint32_t i = first; s->asks && i < end; i++) {
        const struct step_ask *a = &s->asks[x->run.ask_of[i]];
        if (a->top != STEP_NO_TOP)
            of[c.n++] = (struct cuda_top_row){ .row = (uint16_t)(i - first), .top = (uint16_t)a->top, .id = a->id };
    }
    if (!c.n) return WK_OK;
    wk_status st = cuda_launch_held(x, err); /* it has their logits */
    return st ? st : cuda_sampler_top_logprobs(x->sampler, &c, x->stream, err);
}

static const struct cuda_top *top_at(const struct executor *x, uint32_t serial, uint32_t logits_row)
{
    return &x->top_logprobs[(uint64_t)(serial % CUDA_RING) * x->o.max_logits_rows + logits_row];
}

bool cuda_tops_ended(const struct executor *x, uint32_t serial, const struct run_record *r)
{
    for (uint32_t i = 0; i < r->n_top_logprobs; i++)
        if (__atomic_load_n(&top_at(x, serial, r->top[i].logits_row)->serial, __ATOMIC_ACQUIRE) != serial) return false;
    return true;
}

void cuda_harvest_top_logprobs(struct executor *x, uint32_t serial, const struct run_record *r)
{
    struct pending_step *p = &x->pending[r->step];
    for (uint32_t i = 0; i < r->n_top_logprobs; i++) {
        const struct run_top *t = &r->top[i];
        struct sampler_top *to = &p->top_logprobs[t->ask];
        *to = top_at(x, serial, t->logits_row)->top;
        if (to->id == CUDA_NO_ID) p->failed[t->seq] = true;
        if (to->id == CUDA_NO_ID || (t->logits_row < r->n_sampled && p->ids[t->seq] == UINT32_MAX)) to->id = UINT32_MAX;
    }
}
