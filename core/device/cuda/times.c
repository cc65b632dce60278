/* times.c: how long each launch of a run of generated rows takes on the device, for whoever looks for what is slow.
 *
 * The run is captured once more, with an event behind each launch, so that what the host does between launches is in no
 * figure. An event ends the overlap of a kernel with the next one: a launch takes some microseconds more here than
 * within a step, which a small one's figure shows. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"

/* Events behind the stages of the run that is captured. */
struct launch_times {
    cudaEvent_t *event;              /* [n_launches] */
    const struct cuda_stage **stage; /* [n] */
    uint32_t n;
};

static wk_status note(struct executor *x, const struct cuda_stage *s, const struct run *r, const struct wk_err *err)
{
    struct launch_times *t = x->times;
    (void)r;
    t->stage[t->n] = s;
    return cuda_check(x->device, (int)cudaEventRecordWithFlags(t->event[t->n++], x->stream, cudaEventRecordExternal),
                      "an event behind a launch", err);
}

/* ---- what a launch reads ------------------------------------------------------------------------------- */

/* The weights of every expert that is chosen, if no two items choose the same. */
static uint64_t product_bytes(const struct cuda_product_stage *p, uint32_t rows)
{
    const uint64_t items = (uint64_t)rows * p->slots;
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < p->n_seg; g++) {
        const struct cuda_matrix *m = p->seg[g].m;
        bytes += (p->experts && m->slabs > items ? items : m->slabs) * m->tiles * m->tile_bytes;
    }
    for (uint32_t g = 0; g < p->n_routers; g++) bytes += (uint64_t)p->routers[g].n * p->k * sizeof(float);
    return bytes;
}

/* Keys and values that the run's sequences see. */
static uint64_t attend_bytes(const struct executor *x, const struct cuda_attend_stage *a, const struct step *step,
                             const struct run *r)
{
    const uint32_t layer = a->op->u.attn.kv_layer;
    const struct kv_span span = kv_span(&x->program->groups[x->program->kv_layers[layer].group], x->o.context);
    uint64_t positions = 0;
    for (uint32_t i = 0; i < r->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[r->seq_of[i]];
        positions += q->position + q->n_rows - kv_first(span, q->position + q->n_rows - 1);
    }
    return positions * (cuda_layer_page_bytes(x, layer) / KV_PAGE);
}

static uint64_t stage_bytes(const struct executor *x, const struct cuda_stage *s, const struct step *step,
                            const struct run *r)
{
    switch (s->kind) {
    case STAGE_PRODUCT: return product_bytes(&s->product, r->rows);
    case STAGE_ROUTE: return product_bytes(&s->route.router, r->rows);
    case STAGE_ATTEND: return attend_bytes(x, &s->attend, step, r);
    case STAGE_STATE: return r->n_seqs * cuda_layer_page_bytes(x, x->program->ops[s->launch->ops[0]].u.state.kv_layer);
    default: return 0;
    }
}

/* ---- the run ------------------------------------------------------------------------------------------- */

/* The launch's kind, and the name of its first matrix without its layer's. */
static void name_of(const struct executor *x, const struct cuda_stage *s, char name[TAPE_NAME + 16])
{
    const struct tape_launch *l = s->launch;
    const char *tensor = l->n_seg ? x->program->tensors[l->seg[0].tensor].name : "", *rest = NULL;
    if (!strncmp(tensor, "blk.", 4)) rest = strchr(tensor + 4, '.');
    if (rest) tensor = rest + 1;
    const char *end = strrchr(tensor, '.');
    (void)snprintf(name, TAPE_NAME + 16, "%s%s%.*s", launch_kind_name(l->kind), *tensor ? " " : "",
                   (int)(end ? end - tensor : (ptrdiff_t)strlen(tensor)), tensor);
}

static wk_status tell(struct executor *x, const struct launch_times *t, const struct step *step, const struct run *r,
                      const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t i = 1; i < t->n && !s; i++) {
        char name[TAPE_NAME + 16];
        float ms = 0;
        s = cuda_check(x->device, (int)cudaEventElapsedTime(&ms, t->event[i - 1], t->event[i]), "a launch's time", err);
        name_of(x, t->stage[i], name);
        if (!s) x->launched(x->launched_user, name, (double)ms * 1e-3, stage_bytes(x, t->stage[i], step, r));
    }
    return s;
}

wk_status cuda_time_run(struct executor *x, const struct step *step, const struct run *r, const struct wk_err *err)
{
    const uint32_t n = x->program->n_launches;
    struct launch_times t = { .event = calloc(n, sizeof *t.event), .stage = calloc(n, sizeof *t.stage) };
    void *exec = NULL;
    wk_status s =
        t.event && t.stage ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory for the times of %u launches", n);
    for (uint32_t i = 0; i < n && !s; i++)
        s = cuda_check(x->device, (int)cudaEventCreate(&t.event[i]), "an event behind a launch", err);
    x->times = &t;
    if (!s) s = cuda_capture(x, r, PROGRAM_LOGITS, note, &exec, err);
    x->times = NULL;
    if (!s) s = cuda_check(x->device, (int)cudaGraphLaunch((cudaGraphExec_t)exec, x->stream), "cudaGraphLaunch", err);
    if (!s) s = cuda_check(x->device, (int)cudaStreamSynchronize(x->stream), "a run whose launches are timed", err);
    if (!s) s = tell(x, &t, step, r, err);
    if (exec && !cuda_device_dead(x->device)) (void)cudaGraphExecDestroy((cudaGraphExec_t)exec);
    for (uint32_t i = 0; t.event && i < n && !cuda_device_dead(x->device); i++)
        if (t.event[i]) (void)cudaEventDestroy(t.event[i]);
    free(t.event);
    free(t.stage);
    return s;
}

void cuda_launches(struct executor *x, launch_fn fn, void *user)
{
    x->launched = fn;
    x->launched_user = user;
}
