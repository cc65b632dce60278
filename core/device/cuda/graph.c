/* graph.c: the programs of generated rows as CUDA graphs: one for each bucket of rows and each end (logits and what is
 * sampled), captured when the model is opened, so that a step launches one thing and the request path makes nothing.
 *
 * From the end of a graph to the first instruction of the next pass 3 us, and 2.5 until its inputs have come over the
 * bus. So plain runs are launched in pairs, as one graph, while at least two others are in flight, for the device has
 * work then until the second one comes: the first is held till then, or till somebody wants its end, or anything else
 * is to be enqueued.
 *
 * Lengths, page tables and tokens are data on the device, so nothing is ever captured again. Before the captures each
 * bucket runs once on padding alone: that loads every kernel, and a kernel that does not run here says so before
 * anybody waits for an answer. The order matters, probably by where the driver puts them: with sample_full's last,
 * steps of one row took 0.6 % longer. Captures are on a stream of their own: a service asks all along whether the
 * device has died (cuda_dead), by the stream of the steps, and asking a stream ends its capture. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>

enum { HOLD_BEHIND = 2 /* runs under way behind which one is held */ };

/* ---- capture ------------------------------------------------------------------------------------------- */

wk_status cuda_capture(struct executor *x, const struct run *r, enum program_kind kind, stage_fn seen, void **exec,
                       const struct wk_err *err)
{
    const bool pair = kind == PROGRAM_PAIR;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t instance = NULL;
    wk_status s = cuda_check(x->device, (int)cudaStreamBeginCapture(x->stream, cudaStreamCaptureModeRelaxed),
                             "cudaStreamBeginCapture", err);
    if (s) return s;
    s = cuda_enqueue_run(x, r, pair ? PROGRAM_PLAIN : kind, NULL, seen, err);
    struct run behind = { .few = true, .behind = true, .rows = r->rows, .seqs = r->seqs };
    if (!s && pair) s = cuda_enqueue_run(x, &behind, PROGRAM_PLAIN, NULL, seen, err);
    const cudaError_t end = cudaStreamEndCapture(x->stream, &graph);
    if (!s) s = cuda_check(x->device, (int)end, "cudaStreamEndCapture", err);
    if (!s) s = cuda_check(x->device, (int)cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate", err);
    if (graph) (void)cudaGraphDestroy(graph);
    if (!s) s = cuda_check(x->device, (int)cudaGraphUpload(instance, x->stream), "cudaGraphUpload", err);
    *exec = instance;
    return s;
}

static wk_status run_padding(struct executor *x, uint32_t rows, enum program_kind kind, const struct wk_err *err)
{
    cuda_padding_run(x, rows);
    wk_status s = cuda_enqueue_run(x, &x->run, kind, NULL, NULL, err);
    if (!s) s = cuda_check(x->device, (int)cudaStreamSynchronize(x->stream), "the first run of the kernels", err);
    x->oldest = x->next_serial;
    return s;
}

static wk_status capture_all(struct executor *x, const struct wk_err *err)
{
    void *const steps = x->stream;
    cudaStream_t own;
    wk_status s = cuda_check(x->device, (int)cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking),
                             "capture: cudaStreamCreate", err);
    if (s) return s;
    x->stream = own;
    for (uint32_t i = 0; i < cuda_captured(x) && !s; i++) {
        const struct run r = { .few = true, .rows = cuda_bucket_at(i), .seqs = cuda_bucket_at(i) };
        for (uint32_t kind = 0; kind < PROGRAM_KINDS && !s; kind++)
            s = cuda_capture(x, &r, (enum program_kind)kind, NULL, &x->graphs[i][kind].exec, err);
    }
    if (!s) s = cuda_check(x->device, (int)cudaStreamSynchronize(own), "capture", err); /* graphs are on the device */
    x->stream = steps;
    if (!cuda_device_dead(x->device)) (void)cudaStreamDestroy(own);
    return s;
}

/* The kernels of masks and log probabilities once, on a run of padding whose logits are at x->logits. */
static wk_status load_asks(struct executor *x, uint32_t rows, const struct wk_err *err)
{
    struct cuda_masks none = { .words = x->masks.device, .stride = x->masks.words };
    const struct cuda_top_row first = { .top = 1 };
    const struct cuda_top_logprobs top_logprobs = { .n = 1,
                                                    .of = &first,
                                                    .seq = x->prepare.sampled,
                                                    .logits = x->logits,
                                                    .stride = x->logits_stride,
                                                    .serial = x->prepare.serial,
                                                    .out = x->top_logprobs_device,
                                                    .a_run = x->o.max_logits_rows };
    for (uint32_t i = 0; i < rows; i++) none.of_row[i] = CUDA_NO_MASK;
    wk_status s = cuda_enqueue_sample(x, rows, CUDA_SAMPLE_ANY, &none, false, err);
    if (!s) s = cuda_enqueue_sample(x, rows, CUDA_SAMPLE_PLAIN, &none, false, err);
    if (!s) s = cuda_sampler_top_logprobs(x->sampler, &top_logprobs, x->stream, err);
    return s ? s
             : cuda_check(x->device, (int)cudaStreamSynchronize(x->stream),
                          "the first run of masks and log probabilities", err);
}

wk_status cuda_graphs_open(struct executor *x, const struct wk_err *err)
{
    wk_status s = WK_OK;
    /* Wanted rows of prompts use the kernels of every bucket, captured or not. */
    const uint32_t most = x->cap_all < x->run_rows ? x->cap_all : x->run_rows;
    for (uint32_t i = 0; x->n_logits && i < BUCKETS && cuda_bucket_at(i) <= most && !s; i++) {
        for (uint32_t kind = PROGRAM_SAMPLED; kind <= PROGRAM_PLAIN && !s; kind++)
            s = run_padding(x, cuda_bucket_at(i), (enum program_kind)kind, err);
        /* One row and the most: the sampler has a kernel for each. */
        if (!s && (i == 0 || i + 1 == BUCKETS || cuda_bucket_at(i + 1) > most))
            s = load_asks(x, cuda_bucket_at(i), err);
    }
    return s ? s : capture_all(x, err);
}

void cuda_graphs_close(struct executor *x)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (uint32_t kind = 0; kind < PROGRAM_KINDS; kind++) {
            if (x->graphs[i][kind].exec && !cuda_device_dead(x->device))
                (void)cudaGraphExecDestroy(x->graphs[i][kind].exec);
            x->graphs[i][kind].exec = NULL;
        }
}

/* ---- launch -------------------------------------------------------------------------------------------- */

static struct graph *graph_of(struct executor *x, uint32_t rows, enum program_kind kind)
{
    uint32_t i = 0;
    while (cuda_bucket_at(i) < rows) i++;
    return &x->graphs[i][kind];
}

static wk_status launch(struct executor *x, const struct graph *g, const struct wk_err *err)
{
    return cuda_check(x->device, (int)cudaGraphLaunch(g->exec, x->stream), "cudaGraphLaunch", err);
}

wk_status cuda_launch_held(struct executor *x, const struct wk_err *err)
{
    const uint32_t rows = x->held;
    x->held = 0;
    return rows ? launch(x, graph_of(x, rows, PROGRAM_PLAIN), err) : WK_OK;
}

wk_status cuda_launch_few(struct executor *x, const struct run *r, enum program_kind kind, const struct wk_err *err)
{
    const struct graph *g = graph_of(x, r->rows, kind);
    const bool captured = !x->eager && g->exec, plain = captured && kind == PROGRAM_PLAIN;
    if (plain && x->held == r->rows) {
        const wk_status s = launch(x, graph_of(x, r->rows, PROGRAM_PAIR), err);
        if (!s) x->held = 0;
        return s;
    }
    const wk_status s = cuda_launch_held(x, err);
    if (s) return s;
    if (plain && x->next_serial - 1 - x->oldest >= HOLD_BEHIND) {
        x->held = r->rows;
        x->held_serial = r->serial;
        return WK_OK;
    }
    return captured ? launch(x, g, err) : cuda_enqueue_run(x, r, kind, NULL, NULL, err);
}
