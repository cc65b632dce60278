/* check.c: holds the kernels of a plugin's module to worker/quant_cuda.h on the GPU itself, one type and one rule a
 * call: for `worker plugin check`, in a process that ends afterwards, so that a fault of a kernel costs nobody else.
 * What is compared with is the plugin's own CPU side, which other checks look at. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cpu/half.h>

#include "device/cuda/memory.h"
#include "device/cuda/module.h"
#include "plugin/call.h"
#include "plugin/format.h"

#define TRY(call)                             \
    do {                                      \
        const wk_status status_ = (call);     \
        if (status_ != WK_OK) return status_; \
    } while (0)

struct subject {
    const struct wk_quant_cuda *module;
    const struct wk_type_cuda *cuda;
    const struct wk_type_cpu *cpu;
    cudaStream_t stream;
    uint8_t *memory; /* [MEMORY_BYTES] on the device, of which `used` are taken */
    uint64_t used;
    uint32_t seed;
    const struct wk_err *err;
};

static wk_status ok(const struct subject *s, cudaError_t code, const char *what)
{
    return cuda_check(NULL, (int)code, what, s->err);
}

static uint32_t draw(struct subject *s)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return s->seed >> 8;
}
static float noise(struct subject *s) { return (float)draw(s) / 8388608.0f - 1.0f; } /* [-1, 1) */

/* ---- memory of the device with a guard at either end --------------------------------------------------- */

enum { GUARD = 4096, FILL = 0xff };
#define MEMORY_BYTES (1ull << 30)
struct buffer {
    const char *name;
    uint8_t *base, *p, *host; /* p: on the device; host: [bytes] */
    size_t bytes;
};

static wk_status make(struct subject *s, struct buffer *b, const char *name, size_t bytes)
{
    *b = (struct buffer){ .name = name, .bytes = bytes, .host = malloc(bytes + 1) };
    if (!b->host) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    memset(b->host, FILL, bytes);
    const uint64_t taken = (bytes + 3ull * GUARD - 1) / GUARD * GUARD;
    if (taken > MEMORY_BYTES - s->used)
        return wk_fail(s->err, WK_NO_MEMORY, "%s: %zu bytes, of %llu are left", b->name, bytes,
                       (unsigned long long)(MEMORY_BYTES - s->used));
    b->base = s->memory + s->used;
    s->used += taken;
    b->p = b->base + GUARD;
    TRY(ok(s, cudaMemset(b->base, FILL, bytes + 2 * GUARD), "cudaMemset"));
    return ok(s, cudaDeviceSynchronize(), b->name);
}
static wk_status send(const struct subject *s, const struct buffer *b)
{
    TRY(ok(s, cudaMemcpy(b->p, b->host, b->bytes, cudaMemcpyHostToDevice), b->name));
    return ok(s, cudaDeviceSynchronize(), b->name);
}
/* What the device has now, when all that was enqueued has run. */
static wk_status receive(const struct subject *s, struct buffer *b)
{
    uint8_t guard[2][GUARD];
    TRY(ok(s, cudaStreamSynchronize(s->stream), b->name));
    TRY(ok(s, cudaMemcpy(b->host, b->p, b->bytes, cudaMemcpyDeviceToHost), b->name));
    TRY(ok(s, cudaMemcpy(guard[0], b->base, GUARD, cudaMemcpyDeviceToHost), b->name));
    TRY(ok(s, cudaMemcpy(guard[1], b->p + b->bytes, GUARD, cudaMemcpyDeviceToHost), b->name));
    for (uint32_t i = 0; i < GUARD; i++)
        if (guard[0][GUARD - 1 - i] != FILL || guard[1][i] != FILL)
            return wk_fail(s->err, WK_INTERNAL, "type %s: written %u bytes %s the %zu bytes of %s", s->cpu->name, i,
                           guard[1][i] != FILL ? "behind" : "before", b->bytes, b->name);
    return WK_OK;
}

/* ---- matrices ------------------------------------------------------------------------------------------ */

struct matrix {
    uint32_t n, k, tiles_n;
    uint64_t row_bytes, tile_bytes;
    struct buffer rows, tiles;
};

static wk_status called(const struct subject *s, wk_status status, const char *what)
{
    if (status == WK_OK) return WK_OK;
    if (s->err->text[0]) return status;
    return wk_fail(s->err, status, "type %s: %s fails with status %d and no text", s->cpu->name, what, status);
}
#define CALL(s, what, expression)                                          \
    do {                                                                   \
        struct plugin_call call_;                                          \
        plugin_call_begin(&call_, NULL, (uintptr_t)(s)->cuda->pack, what); \
        const wk_status given_ = (expression);                             \
        plugin_call_end(&call_);                                           \
        TRY(called(s, given_, what));                                      \
    } while (0)

static struct wk_cuda_tiles tiles_call(const struct matrix *m, void *rows)
{
    return (
        struct wk_cuda_tiles){ sizeof(struct wk_cuda_tiles), m->k, m->tiles_n, m->n, m->tiles.p, rows, m->row_bytes };
}

/* Rows of any bits, or of encoded values; packed. */
static wk_status make_matrix(struct subject *s, struct matrix *m, uint32_t n, uint32_t k, bool values)
{
    *m = (struct matrix){ .n = n, .k = k, .tiles_n = (n + 15) / 16 };
    m->row_bytes = (uint64_t)(k / s->cpu->block) * s->cpu->block_bytes;
    m->tile_bytes = s->cuda->tile_bytes(k);
    if (m->tile_bytes % 16 || m->tile_bytes < 16 * m->row_bytes || m->tile_bytes > 128ull * k + 2048)
        return wk_fail(s->err, WK_INTERNAL,
                       "type %s: tile_bytes(%u) is %" PRIu64 ", expected a multiple of 16 in %" PRIu64 "..%" PRIu64,
                       s->cpu->name, k, m->tile_bytes, 16 * m->row_bytes, (uint64_t)128 * k + 2048);
    TRY(make(s, &m->rows, "the rows", n * m->row_bytes));
    TRY(make(s, &m->tiles, "the tiles", m->tiles_n * m->tile_bytes));
    float *x = malloc(k * sizeof *x);
    if (!x) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    for (uint64_t i = 0; i < n * m->row_bytes && !values; i++) m->rows.host[i] = (uint8_t)draw(s);
    for (uint32_t r = 0; r < n && values; r++) {
        for (uint32_t i = 0; i < k; i++) x[i] = noise(s) + noise(s) + 0.05f;
        TRY(format_quantize(s->cpu, m->rows.host + r * m->row_bytes, x, k, s->err));
    }
    free(x);
    TRY(send(s, &m->rows));
    const struct wk_cuda_tiles t = tiles_call(m, m->rows.p);
    CALL(s, "pack", s->cuda->pack(&t, s->stream, s->err));
    return WK_OK;
}

/* Row lengths: few blocks, odd numbers of them, many. */
static uint32_t length(const struct subject *s, uint32_t i)
{
    static const uint32_t blocks[] = { 1, 3, 7, 27 }, single[] = { 1, 33, 100, 1001 };
    return s->cpu->block == 1 ? single[i] : blocks[s->cpu->block > 512 && i > 1 ? 1 : i] * s->cpu->block;
}
enum { LENGTHS = 4 };

/* The sign of a zero may differ, and which of infinity and NaN a scale that is not finite becomes. */
static bool same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || a == b || (!isfinite(a) && !isfinite(b)); }

/* ---- tiles, rows and halves ---------------------------------------------------------------------------- */

static wk_status check_unpack(struct subject *s, struct matrix *m)
{
    struct buffer back;
    TRY(make(s, &back, "the rows", m->rows.bytes));
    const struct wk_cuda_tiles t = tiles_call(m, back.p);
    CALL(s, "unpack", s->cuda->unpack(&t, s->stream, s->err));
    TRY(receive(s, &back));
    TRY(receive(s, &m->tiles));
    for (uint64_t i = 0; i < back.bytes; i++)
        if (back.host[i] != m->rows.host[i])
            return wk_fail(s->err, WK_INTERNAL,
                           "type %s, %u x %u: byte %" PRIu64 " of row %" PRIu64
                           " is 0x%02x after pack and unpack, expected 0x%02x as it was",
                           s->cpu->name, m->n, m->k, i % m->row_bytes, i / m->row_bytes, back.host[i], m->rows.host[i]);
    return WK_OK;
}

static wk_status check_gather(struct subject *s, struct matrix *m)
{
    enum { ROWS = 5 };
    struct buffer index, y;
    const uint64_t stride = (m->k + 15) / 16 * 16 + 16;
    float *want = malloc(m->k * sizeof *want);
    if (!want) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    TRY(make(s, &index, "the indices", ROWS * sizeof(uint32_t)));
    TRY(make(s, &y, "y", ROWS * stride * sizeof(float)));
    for (uint32_t i = 0; i < ROWS; i++) ((uint32_t *)(void *)index.host)[i] = i ? draw(s) % m->n : m->n - 1;
    TRY(send(s, &index));
    const struct wk_cuda_gather g = { .struct_size = sizeof g,
                                      .k = m->k,
                                      .rows = ROWS,
                                      .tiles = m->tiles.p,
                                      .index = (const uint32_t *)(const void *)index.p,
                                      .y = (float *)(void *)y.p,
                                      .y_stride = stride,
                                      .scale = 1 };
    CALL(s, "gather", s->cuda->gather(&g, s->stream, s->err));
    TRY(receive(s, &y));
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint32_t row = ((uint32_t *)(void *)index.host)[i];
        const float *got = (const float *)(void *)y.host + i * stride;
        format_dequantize(s->cpu, want, m->rows.host + row * m->row_bytes, m->k);
        for (uint32_t j = 0; j < m->k; j++)
            if (!same(got[j], want[j]))
                return wk_fail(
                    s->err, WK_INTERNAL,
                    "type %s, %u x %u: gather makes %a of value %u of row %u, expected %a as dequantize does",
                    s->cpu->name, m->n, m->k, (double)got[j], j, row, (double)want[j]);
        for (uint64_t j = m->k; j < stride; j++)
            if (!isnan(got[j]))
                return wk_fail(s->err, WK_INTERNAL, "type %s, %u x %u: gather writes %" PRIu64 " values behind a row",
                               s->cpu->name, m->n, m->k, j - m->k);
    }
    free(want);
    return WK_OK;
}

static wk_status check_expand(struct subject *s, struct matrix *m)
{
    struct buffer y;
    const uint64_t whole = (m->k + 7) / 8 * 8, stride = whole + 8;
    if (!s->cuda->expand) return WK_OK;
    float *want = malloc(m->k * sizeof *want);
    if (!want) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    TRY(make(s, &y, "the halves", m->n * stride * 2));
    const struct wk_cuda_expand e = { sizeof e, m->k, m->n, 0, m->tiles.p, y.p, stride };
    CALL(s, "expand", s->cuda->expand(&e, s->stream, s->err));
    TRY(receive(s, &y));
    for (uint32_t r = 0; r < m->n; r++) {
        const uint16_t *got = (const uint16_t *)(void *)y.host + r * stride;
        format_dequantize(s->cpu, want, m->rows.host + r * m->row_bytes, m->k);
        for (uint64_t j = 0; j < stride; j++) {
            const bool right = j >= whole ? got[j] == 0xffff
                               : j >= m->k
                                   ? got[j] == 0
                                   : same(wk_half_to_float(got[j]), wk_half_to_float(wk_float_to_half(want[j])));
            if (!right)
                return wk_fail(s->err, WK_INTERNAL,
                               "type %s, %u x %u: half %" PRIu64
                               " of row %u is 0x%04x, expected that of dequantize, and "
                               "zeros up to a multiple of 8",
                               s->cpu->name, m->n, m->k, j, r, got[j]);
        }
    }
    free(want);
    return WK_OK;
}

static wk_status check_tiles(struct subject *s)
{
    static const uint32_t rows[] = { 1, 17, 33, 7 };
    for (uint32_t i = 0; i < 2 * LENGTHS; i++) {
        struct matrix m;
        TRY(make_matrix(s, &m, rows[i % LENGTHS], length(s, i / 2), i % 2));
        TRY(check_unpack(s, &m));
        TRY(check_gather(s, &m));
        TRY(check_expand(s, &m));
    }
    return WK_OK;
}

/* ---- products ------------------------------------------------------------------------------------------ */

enum { MOST = WK_CUDA_FEW };
struct product {
    struct matrix m;
    struct buffer x, y, workspace; /* f16 [MOST][k32]; F32 [MOST][n] */
};

static wk_status make_product(struct subject *s, struct product *p, uint32_t n, uint32_t k)
{
    const uint32_t k32 = wk_act_k(k);
    const uint64_t bytes = s->module->workspace ? s->module->workspace(s->cpu->ggml_type, k, MOST) : 0;
    TRY(make_matrix(s, &p->m, n, k, true));
    TRY(make(s, &p->x, "the activations", (size_t)MOST * k32 * 2));
    TRY(make(s, &p->y, "y", (size_t)MOST * n * sizeof(float)));
    TRY(make(s, &p->workspace, "the workspace", bytes));
    for (uint64_t i = 0; i < (uint64_t)MOST * k32; i++)
        ((uint16_t *)(void *)p->x.host)[i] = i % k32 < k ? wk_float_to_half(2 * noise(s)) : 0;
    return send(s, &p->x);
}

/* Rows [first, first + rows) into the begin of y, which is NaN before. */
static wk_status enqueue(const struct subject *s, const struct product *p, uint32_t first, uint32_t rows)
{
    struct wk_cuda_product c = { .struct_size = sizeof c, .rows = rows, .k = p->m.k, .n_seg = 1 };
    c.workspace = p->workspace.p;
    c.input.x = p->x.p + (size_t)first * wk_act_k(p->m.k) * 2;
    c.seg[0].tiles = p->m.tiles.p;
    c.seg[0].ggml_type = s->cpu->ggml_type;
    c.seg[0].n = p->m.n;
    c.seg[0].out.y = p->y.p;
    c.seg[0].out.y_stride = p->m.n;
    CALL(s, "product", s->module->product(&c, s->stream, s->err));
    return WK_OK;
}
static wk_status run(const struct subject *s, struct product *p, uint32_t first, uint32_t rows)
{
    TRY(ok(s, cudaMemsetAsync(p->y.p, FILL, p->y.bytes, s->stream), "cudaMemsetAsync"));
    TRY(enqueue(s, p, first, rows));
    TRY(receive(s, &p->y));
    TRY(receive(s, &p->workspace));
    for (uint64_t i = (uint64_t)rows * p->m.n; i < (uint64_t)MOST * p->m.n; i++)
        if (!isnan(((float *)(void *)p->y.host)[i]))
            return wk_fail(s->err, WK_INTERNAL, "type %s: a product of %u rows writes row %" PRIu64, s->cpu->name, rows,
                           i / p->m.n);
    return WK_OK;
}

/* Activations that begin at any row are aligned as 256 bytes want it only where rows are whole lines. */
static uint32_t first_row(const struct product *p, uint32_t rows)
{
    uint32_t first = MOST - rows;
    while (first > 0 && (uint64_t)first * wk_act_k(p->m.k) * 2 % 256) first--;
    return first;
}

static wk_status sums(struct subject *s, struct product *p, uint32_t rows)
{
    /* Single values are multiplied as they are; those of blocks as f16, their scales rounded before. */
    const double tolerance = s->cpu->block == 1 ? 2e-6 : 1e-3;
    float *w = malloc(p->m.k * sizeof *w);
    if (!w) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    TRY(run(s, p, 0, rows));
    for (uint32_t i = 0; i < p->m.n; i++) {
        format_dequantize(s->cpu, w, p->m.rows.host + i * p->m.row_bytes, p->m.k);
        for (uint32_t r = 0; r < rows; r++) {
            const uint16_t *x = (const uint16_t *)(void *)p->x.host + (size_t)r * wk_act_k(p->m.k);
            const double got = (double)((float *)(void *)p->y.host)[(uint64_t)r * p->m.n + i];
            double want = 0, size = 1e-30;
            for (uint32_t j = 0; j < p->m.k; j++) {
                const double term = (double)w[j] * (double)wk_half_to_float(x[j]);
                want += term;
                size += fabs(term);
            }
            if (!(fabs(got - want) <= tolerance * size))
                return wk_fail(s->err, WK_INTERNAL,
                               "type %s, %u x %u, %u rows: result %u of row %u is %.9g, expected %.9g within %.3g",
                               s->cpu->name, p->m.n, p->m.k, rows, i, r, got, want, tolerance * size);
        }
    }
    free(w);
    return WK_OK;
}

static const uint32_t counts[] = { 1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, MOST };
enum { COUNTS = sizeof counts / sizeof *counts };

static wk_status check_product(struct subject *s)
{
    for (uint32_t i = 0; i < LENGTHS; i++) {
        struct product p;
        TRY(make_product(s, &p, i % 2 ? 33 : 48, length(s, i)));
        for (uint32_t n = 0; n < COUNTS; n++) TRY(sums(s, &p, counts[n]));
    }
    return WK_OK;
}

/* A row's bits in every company. */
static wk_status check_row(struct subject *s)
{
    for (uint32_t i = 1; i < LENGTHS; i += 2) {
        struct product p;
        TRY(make_product(s, &p, 40, length(s, i)));
        TRY(run(s, &p, 0, MOST));
        float *all = malloc(p.y.bytes);
        if (!all) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
        memcpy(all, p.y.host, p.y.bytes);
        for (uint32_t n = 0; n < COUNTS; n++) {
            const uint32_t first = first_row(&p, counts[n]);
            TRY(run(s, &p, first, counts[n]));
            for (uint32_t j = 0; j < counts[n] * p.m.n; j++)
                if (memcmp(p.y.host + 4ull * j, all + first * p.m.n + j, 4) != 0)
                    return wk_fail(
                        s->err, WK_INTERNAL,
                        "type %s, k %u: result %u of row %u is %a in a call of %u rows, and %a in one of %d; "
                        "expected the same bits",
                        s->cpu->name, p.m.k, j % p.m.n, first + j / p.m.n, (double)((float *)(void *)p.y.host)[j],
                        counts[n], (double)all[first * p.m.n + j], MOST);
        }
        free(all);
    }
    return WK_OK;
}

/* ---- what is enqueued ---------------------------------------------------------------------------------- */

static wk_status look_at_nodes(const struct subject *s, cudaGraph_t graph)
{
    size_t n = 0;
    TRY(ok(s, cudaGraphGetNodes(graph, NULL, &n), "cudaGraphGetNodes"));
    if (!n) return wk_fail(s->err, WK_INTERNAL, "type %s: a product enqueues nothing on its stream", s->cpu->name);
    cudaGraphNode_t *nodes = calloc(n, sizeof *nodes);
    if (!nodes) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    TRY(ok(s, cudaGraphGetNodes(graph, nodes, &n), "cudaGraphGetNodes"));
    for (size_t i = 0; i < n; i++) {
        enum cudaGraphNodeType type;
        TRY(ok(s, cudaGraphNodeGetType(nodes[i], &type), "cudaGraphNodeGetType"));
        if (type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset || type == cudaGraphNodeTypeEmpty)
            continue;
        return wk_fail(
            s->err, WK_INTERNAL,
            "type %s: a product enqueues a node of kind %d; expected kernels and memsets alone: no allocation, "
            "no copy, no call of the host",
            s->cpu->name, (int)type);
    }
    free(nodes);
    return WK_OK;
}

/* A product captured in the strictest mode, and run again: the same bits. Many more take no memory. */
static wk_status check_stream(struct subject *s)
{
    enum { AGAIN = 20 };
    struct product p;
    size_t before = 0, after = 0, all = 0;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    TRY(make_product(s, &p, 40, length(s, 2)));
    TRY(run(s, &p, 0, 3)); /* what a kernel's first launch takes is taken */
    uint8_t *eager = malloc(p.y.bytes);
    if (!eager) return wk_fail(s->err, WK_NO_MEMORY, "out of memory");
    memcpy(eager, p.y.host, p.y.bytes);
    TRY(ok(s, cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture"));
    const wk_status status = enqueue(s, &p, 0, 3);
    const cudaError_t ended = cudaStreamEndCapture(s->stream, &graph);
    TRY(status);
    if (ended != cudaSuccess)
        return wk_fail(
            s->err, WK_INTERNAL,
            "type %s: a product cannot be captured (%s); expected a call that only enqueues on the stream it is "
            "given: no allocation, no synchronization, no other stream",
            s->cpu->name, cudaGetErrorString(ended));
    TRY(look_at_nodes(s, graph));
    TRY(ok(s, cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate"));
    TRY(ok(s, cudaMemsetAsync(p.y.p, FILL, p.y.bytes, s->stream), "cudaMemsetAsync"));
    TRY(ok(s, cudaGraphLaunch(exec, s->stream), "cudaGraphLaunch"));
    TRY(receive(s, &p.y));
    if (memcmp(eager, p.y.host, p.y.bytes) != 0)
        return wk_fail(s->err, WK_INTERNAL, "type %s: a captured product gives other bits than the call itself",
                       s->cpu->name);
    TRY(ok(s, cudaMemGetInfo(&before, &all), "cudaMemGetInfo"));
    for (uint32_t i = 0; i < AGAIN; i++) TRY(enqueue(s, &p, 0, 3));
    TRY(receive(s, &p.y));
    TRY(ok(s, cudaMemGetInfo(&after, &all), "cudaMemGetInfo"));
    free(eager);
    if (after == before) return WK_OK;
    return wk_fail(s->err, WK_INTERNAL, "type %s: %d products leave %zu bytes less free on the device", s->cpu->name,
                   AGAIN, before - after);
}

/* ---- one rule ------------------------------------------------------------------------------------------ */

static wk_status check_on(struct subject *s, struct cuda_device *d, uint32_t gpu, enum device_check what)
{
    static wk_status (*const checks[DEVICE_CHECKS])(struct subject *) = { check_tiles, check_product, check_row,
                                                                          check_stream };
    void *memory;
    TRY(cuda_memory_take(d, MEMORY_WORKSPACE, MEMORY_BYTES, &memory, s->err));
    s->memory = memory;
    s->stream = cuda_device_stream(d);
    CALL(s, "open", s->module->open((int32_t)gpu, s->err));
    return checks[what](s);
}

wk_status cuda_check_format(uint32_t gpu, enum device_check what, const struct wk_quant_cuda *module,
                            const struct wk_type_cpu *cpu, const struct wk_err *err)
{
    struct subject s = { .module = module, .cpu = cpu, .seed = 1, .err = err };
    struct cuda_device *d;
    for (uint32_t i = 0; i < module->n_types; i++)
        if (module->types[i]->ggml_type == cpu->ggml_type) s.cuda = module->types[i];
    if (!s.cuda) return wk_fail(err, WK_UNSUPPORTED, "type %s: the module has no kernels for it", cpu->name);
    TRY(cuda_device_open(gpu, NULL, &d, err));
    const wk_status status = check_on(&s, d, gpu, what);
    cuda_device_close(d);
    return status;
}
