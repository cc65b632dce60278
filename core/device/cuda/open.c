/* open.c: the CUDA executor as a device: plan, open, memory, close, and the table of its functions.
 *
 * Opening takes exactly what the plan says, one region a kind, fills the weights, runs every kernel once and captures
 * the graphs; afterwards nothing is taken any more.
 *
 * The driver loads a kernel's code into memory of its own when the kernel first runs. So opening runs all of them: a
 * short prompt, every bucket of generated rows, and the library's kernels of each class of rows, with and without an
 * addend. A request that met one first took 3 to 4 ms more. The emulator counts code as memory, so a test finds a
 * kernel that was forgotten here. */
#include "device/cuda/module.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/executor.h"
#include "model/model.h"
#include "device/cuda_calls.h"

static wk_status plan(const struct tape_program *program, const struct device_options *o, struct memory_plan *out,
                      const struct wk_err *err)
{
    struct executor *x;
    wk_status s = cuda_executor_plan(program, o, &x, err);
    if (s) return s;
    *out = x->plan;
    cuda_lists_free(x);
    free(x);
    return WK_OK;
}

static void close_executor(struct executor *x)
{
    if (!x) return;
    if (x->device) {
        if (!cuda_device_dead(x->device)) (void)cudaStreamSynchronize(x->stream);
        cuda_graphs_close(x);
        cuda_asks_close(x);
        cuda_pages_close(x);
        cuda_sampler_close(x->sampler);
        cuda_gemm_close(x->gemm);
        cuda_device_close(x->device);
    }
    cuda_lists_free(x);
    free(x);
}

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status open_modules(struct executor *x, const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t i = 0; i < x->n_modules && !s; i++) s = module_open(x->modules[i], (int32_t)x->o.gpu, err);
    if (!s && x->arch) s = custom_open(x->arch, (int32_t)x->o.gpu, err);
    /* Planned for large products; an open module knows whether its code for this device has them. */
    for (uint32_t i = 0; i < x->n_matrices && !s; i++) {
        struct cuda_matrix *m = &x->matrices[i];
        if (m->panels) m->panels = module_panels(m->module, m->type->ggml_type);
    }
    return s;
}

static wk_status take_memory(struct executor *x, const struct wk_err *err)
{
    wk_status s = WK_OK;
    /* Graphs are the driver's to make. */
    for (uint32_t i = 0; i < MEMORY_GRAPHS && !s; i++)
        if (x->plan.bytes[i])
            s = cuda_memory_take(x->device, (enum memory_kind)i, x->plan.bytes[i], &x->region[i], err);
    return s ? s : cuda_executor_carve(x, err);
}

static wk_status take_pinned(struct executor *x, const struct wk_err *err)
{
    void *host, *device;
    wk_status s = cuda_memory_pinned(x->device, CUDA_RING * x->prepare.layout.bytes, &host, &device, err);
    if (s) return s;
    x->host = host;
    x->prepare.ring = device;
    memset(host, 0, CUDA_RING * x->prepare.layout.bytes);
    const uint64_t results = (uint64_t)CUDA_RING * x->run_rows * sizeof *x->results;
    s = cuda_memory_pinned(x->device, results + sizeof *x->mark, &host, &device, err);
    if (s) return s;
    memset(host, 0, results + sizeof *x->mark);
    x->results = host;
    x->results_device = device;
    x->mark = (uint32_t *)(void *)((uint8_t *)host + results);
    x->mark_device = (uint32_t *)(void *)((uint8_t *)device + results);
    return WK_OK;
}

static wk_status send_slopes(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    wk_status s = WK_OK;
    for (uint32_t i = 0; i < p->n_ops && !s; i++)
        if (p->ops[i].kind == WK_OP_ATTENTION && p->ops[i].u.attn.slopes)
            s = cuda_check(x->device,
                           (int)cudaMemcpy(x->slopes + cuda_slopes_before(p, i), p->ops[i].u.attn.slopes,
                                           p->ops[i].u.attn.heads * sizeof *x->slopes, cudaMemcpyHostToDevice),
                           "copy of slopes", err);
    return s;
}

/* The RoPE tables were known by the program's frequencies; the device has its own copy. */
static wk_status send_tables(struct executor *x, const struct wk_err *err)
{
    double *to = x->freq;
    for (uint32_t i = 0; i < x->prepare.n_rope_tables; i++) {
        struct prepare_rope_table *t = &x->prepare.rope_table[i];
        wk_status s = cuda_check(x->device, (int)cudaMemcpy(to, t->freq, t->n * sizeof *to, cudaMemcpyHostToDevice),
                                 "copy of rotation frequencies", err);
        if (s) return s;
        t->freq = to;
        to += t->n;
    }
    return WK_OK;
}

static wk_status open_libraries(struct executor *x, const struct wk_err *err)
{
    wk_status s = cuda_gemm_open(&x->gemm, err);
    if (!s && x->n_logits)
        s = cuda_sampler_open(x->o.max_sequences, x->n_logits, x->run_rows, x->sampler_memory, &x->sampler, err);
    if (!s && x->n_logits) x->prepare.last = cuda_sampler_last(x->sampler);
    for (uint32_t i = 0; i < x->program->n_launches && !s; i++) s = cuda_prepare_products(x, &x->stages[i], err);
    return s;
}

/* A prompt of a few made-up tokens, so that no kernel is met for the first time by a request. Its keys and values lie
 * in page 0, which whoever is given that page writes before reading. */
static wk_status warm_prompt(struct executor *x, const struct wk_err *err)
{
    enum { ROWS = 16 };
    const uint32_t tokens[ROWS] = { 0 }, page = 0, *pages[TAPE_MAX_GROUPS];
    uint32_t n = x->o.max_rows < x->o.context ? x->o.max_rows : x->o.context;
    if (n > ROWS) n = ROWS;
    const uint32_t logits_row = n - 1;
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) pages[g] = &page;
    float *logits = calloc((size_t)x->n_logits + 1, sizeof *logits),
          *pooled = calloc((size_t)x->program->embedding_width + 1, sizeof *pooled);
    struct step_seq seq = { .n_rows = n, .role = ROW_PROMPT, .pages = pages };
    struct step step = { .n_rows = n,
                         .n_seqs = 1,
                         .n_logits_rows = x->n_logits ? 1 : 0,
                         .tokens = tokens,
                         .seqs = &seq,
                         .logits_rows = &logits_row,
                         .logits = logits,
                         .pooled = pooled };
    wk_status s =
        logits && pooled ? cuda_step(x, &step, err) : wk_fail(err, WK_NO_MEMORY, "out of memory for a first step");
    free(logits);
    free(pooled);
    return s;
}

/* The kernels that warm_prompt's few rows do not choose. */
static wk_status load_latents(struct executor *x, const struct wk_err *err)
{
    struct cuda_batch batch = x->batch;
    wk_status s = WK_OK;
    batch.rows = batch.seqs = 1;
    for (uint32_t i = 0; i < x->program->n_launches && !s; i++) {
        const struct cuda_stage *stage = &x->stages[i];
        if (stage->kind != STAGE_ATTEND || !stage->attend.call.value_in_key) continue;
        struct cuda_attend a = stage->attend.call;
        a.batch = &batch;
        s = cuda_latent_load(&a, x->q_half, x->stream, err);
    }
    return s;
}

static wk_status open_all(struct executor *x, const struct wk_err *err)
{
    wk_status s = cuda_device_open(x->o.gpu, x->program->file, &x->device, err);
    if (s) return s;
    x->stream = cuda_device_stream(x->device);
    if (x->o.hand_over) cuda_device_share(x->device);
    s = open_modules(x, err);
    if (!s) s = cuda_image_ptx(&x->ptx, err);
    if (!s) s = take_memory(x, err);
    if (!s) s = take_pinned(x, err);
    if (!s && x->n_logits) s = cuda_asks_open(x, err);
    if (!s && x->o.hand_over) s = cuda_pages_open(x, err);
    if (!s) s = cuda_build_stages(x, err);
    if (!s) s = cuda_build_upload(x, err);
    if (!s) s = send_tables(x, err);
    if (!s) s = send_slopes(x, err);
    if (!s) s = open_libraries(x, err);
    if (!s) s = cuda_upload(x->device, &x->upload, err);
    for (uint32_t i = 0; i < x->program->n_launches && !s; i++) s = cuda_load_products(x, &x->stages[i], err);
    if (!s) s = load_latents(x, err);
    if (!s) s = warm_prompt(x, err);
    return s ? s : cuda_graphs_open(x, err);
}

static wk_status open_executor(const struct tape_program *program, const struct model_weights *weights,
                               const struct device_options *o, struct executor **out, const struct wk_err *err)
{
    *out = NULL;
    if (weights->file != program->file)
        return wk_fail(err, WK_INTERNAL, "the weights are another file's than the tape's");
    struct executor *x;
    wk_status s = cuda_executor_plan(program, o, &x, err);
    if (s) return s;
    s = open_all(x, err);
    if (s) {
        close_executor(x);
        return s;
    }
    *out = x;
    return WK_OK;
}

/* ---- what is asked of an open one ---------------------------------------------------------------------- */

static void memory(const struct executor *x, struct memory_plan *used)
{
    cuda_memory_used(x->device, used);
    memcpy(used->kv_page_bytes, x->plan.kv_page_bytes, sizeof used->kv_page_bytes);
    memcpy(used->kv_pages, x->plan.kv_pages, sizeof used->kv_pages);
    used->bytes[MEMORY_GRAPHS] = x->plan.bytes[MEMORY_GRAPHS];
    used->total = 0;
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) used->total += used->bytes[i];
}

static void handle(const struct executor *x, struct shard_handle *out)
{
    struct memory_plan used;
    memory(x, &used);
    cuda_handle(x->device, out);
    out->vram_bytes = used.total; /* with the graphs, as planned */
}
static uint32_t ptx(const struct executor *x) { return x->ptx; }
static wk_status seal(struct executor *x, const struct wk_err *err) { return cuda_seal(x->device, err); }
static wk_status verify(struct executor *x, char digest[65], const struct wk_err *err)
{
    return cuda_verify(x->device, digest, err);
}
static wk_status residency(struct executor *x, const struct wk_err *err) { return cuda_residency(x->device, err); }
static wk_status bandwidth(struct executor *x, double *out, const struct wk_err *err)
{
    return cuda_bandwidth(x->device, out, err);
}

const struct device_ops cuda_device_ops = {
    .name = "cuda",
    .plan = plan,
    .open = open_executor,
    .step = cuda_step,
    .sampler_set = cuda_set_slot,
    .submit = cuda_submit,
    .collect = cuda_collect,
    .mask = cuda_mask,
    .run_ahead = STEP_QUEUE,
    .pages_read = cuda_pages_read,
    .pages_write = cuda_pages_write,
    .pin = cuda_pages_pin,
    .unpin = cuda_pages_unpin,
    .share = cuda_pages_share,
    .peer_open = cuda_peer_open,
    .peer_read = cuda_peer_read,
    .peer_close = cuda_peer_close,
    .taps = cuda_taps,
    .memory = memory,
    .close = close_executor,
    .probe = cuda_probe,
    .warm = cuda_warm,
    .device_memory = cuda_device_memory,
    .handle = handle,
    .ptx = ptx,
    .seal = seal,
    .verify = verify,
    .residency = residency,
    .launches = cuda_launches,
    .bandwidth = bandwidth,
    .check_format = cuda_check_format,
    .dead = cuda_dead,
};
