/* test_module.cu: see test_module.h. */
#include "test_module.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/functions.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/panels.cuh>

#include "plugin/format.h"

namespace
{

const struct wk_type_cpu *const *cpu_types;
int32_t mixed_types;
const uint32_t PANELS = 16; /* order of k of those that are taken */

uint64_t tile_bytes(uint32_t k) { return 16ull * k * 8; } /* F32, then room for the bytes of any format */

wk_status check(cudaError_t code, const char *what, const struct wk_err *err)
{
    return code == cudaSuccess ? WK_OK
                               : wk_fail(err, WK_INTERNAL, "test module: %s: %s", what, cudaGetErrorString(code));
}

uint64_t row_bytes(uint32_t type, uint32_t k)
{
    return (uint64_t)(k / cpu_types[type]->block) * cpu_types[type]->block_bytes;
}

/* Synchronous, against the contract: nobody captures a pack. */
template <uint32_t TYPE> wk_status pack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err)
{
    const uint64_t bytes = row_bytes(TYPE, t->k), tile = tile_bytes(t->k);
    std::vector<uint8_t> rows(t->n_rows * t->row_bytes), tiles(t->n_tiles * tile, 0);
    wk_status s = check(
        cudaMemcpyAsync(rows.data(), t->rows, rows.size(), cudaMemcpyDeviceToHost, (cudaStream_t)stream), "rows", err);
    if (!s) s = check(cudaStreamSynchronize((cudaStream_t)stream), "rows", err);
    for (uint32_t r = 0; r < t->n_rows && !s; r++) {
        uint8_t *to = tiles.data() + r / 16 * tile;
        format_dequantize(cpu_types[TYPE], (float *)to + (uint64_t)(r % 16) * t->k, rows.data() + r * t->row_bytes,
                          t->k);
        memcpy(to + 64ull * t->k + (r % 16) * bytes, rows.data() + r * t->row_bytes, bytes);
    }
    if (!s)
        s = check(cudaMemcpyAsync(t->tiles, tiles.data(), tiles.size(), cudaMemcpyHostToDevice, (cudaStream_t)stream),
                  "tiles", err);
    return s ? s : check(cudaStreamSynchronize((cudaStream_t)stream), "tiles", err);
}

template <uint32_t TYPE> wk_status unpack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err)
{
    const uint64_t bytes = row_bytes(TYPE, t->k), tile = tile_bytes(t->k);
    wk_status s = WK_OK;
    for (uint32_t r = 0; r < t->n_rows && !s; r++)
        s = check(cudaMemcpyAsync((uint8_t *)t->rows + r * t->row_bytes,
                                  (uint8_t *)t->tiles + r / 16 * tile + 64ull * t->k + (r % 16) * bytes, bytes,
                                  cudaMemcpyDeviceToDevice, (cudaStream_t)stream),
                  "unpack", err);
    return s;
}

__device__ uint32_t act_k(uint32_t k) { return (k + 31u) & ~31u; }
__device__ const float *weights(const void *tiles, uint32_t k, uint32_t row)
{
    return (const float *)((const uint8_t *)tiles + (uint64_t)(row / 16) * 128 * k) + (uint64_t)(row % 16) * k;
}

__global__ void expand_kernel(struct wk_cuda_expand e)
{
    const float *w = weights(e.tiles, e.k, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < e.k; i += blockDim.x)
        ((__half *)e.y)[blockIdx.x * e.y_stride + i] = __float2half_rn(w[i]);
}
wk_status expand(const struct wk_cuda_expand *e, void *stream, const struct wk_err *err)
{
    expand_kernel<<<e->n_rows, 128, 0, (cudaStream_t)stream>>>(*e);
    return check(cudaGetLastError(), "expand", err);
}

__global__ void __launch_bounds__(128) gather_kernel(struct wk_cuda_gather g)
{
    const float *w = weights(g.tiles, g.k, g.index[blockIdx.x]);
    float *y = g.y + blockIdx.x * g.y_stride, *part = g.part + (uint64_t)blockIdx.x * ((g.k + 15) / 16);
    for (uint32_t at = 0; at < g.k; at += blockDim.x) {
        const uint32_t c = at + threadIdx.x;
        const float x = c < g.k ? __fmul_rn(w[c], g.scale) : 0.0f, v = g.add && c < g.k ? __fadd_rn(y[c], x) : x,
                    square = wk_square_sum16(v);
        if (c < g.k) y[c] = v;
        if (g.part && c < g.k && c % 16 == 0) part[c / 16] = square;
    }
}
wk_status gather(const struct wk_cuda_gather *g, void *stream, const struct wk_err *err)
{
    gather_kernel<<<g->rows, 128, 0, (cudaStream_t)stream>>>(*g);
    return check(cudaGetLastError(), "gather", err);
}

/* ---- the product: one block a row ---------------------------------------------------------------------- */

__device__ float dot(const struct wk_cuda_segment &g, uint32_t k, uint32_t expert, uint32_t c, const __half *x)
{
    const float *w = weights((const uint8_t *)g.tiles + (uint64_t)expert * ((g.n + 15) / 16) * 128 * k, k, c);
    float sum = 0;
    for (uint32_t i = 0; i < k; i++) sum = __fmaf_rn(w[i], __half2float(x[i]), sum);
    return sum;
}

/* Where value c of row i is in panels and in runs. */
__device__ uint64_t in_panels(uint32_t group, uint64_t places, uint32_t i, uint32_t c)
{
    return ((c / WK_PANEL_K * places + i) * WK_PANEL_ROW + wk_panel_at(group, i, c % WK_PANEL_K)) / 2;
}
__device__ uint64_t in_runs(uint32_t k, uint32_t i, uint32_t c)
{
    return ((uint64_t)(i / 32 * (act_k(k) / 32) + c / 32) * 32 + i % 32) * 32 + c % 32;
}

__device__ __half act_value(const struct wk_cuda_input &in, uint32_t k, uint32_t i, uint32_t c)
{
    const __half *x = (const __half *)in.x;
    return in.kind == WK_CUDA_IN_PANELS ? x[in_panels(PANELS, in.x_stride, i, c)]
           : in.kind == WK_CUDA_IN_RUNS ? x[in_runs(k, i, c)]
                                        : x[(uint64_t)i * act_k(k) + c];
}

/* Value v of column c (0 past the end) of row i; all lanes of a warp come here. */
__device__ void store(const struct wk_cuda_output &o, uint32_t group, uint32_t n, uint32_t i, uint32_t c, float v)
{
    if (o.kind == WK_CUDA_OUT_PANELS) {
        if (c < n) ((__half *)o.y)[in_panels(group, o.y_stride, i, c)] = wk_act_half(v, o.shift);
        return;
    }
    if (o.kind == WK_CUDA_OUT_RUNS) {
        if (c < n) ((__half *)o.y)[in_runs(n, i, c)] = wk_act_half(v, o.shift);
        return;
    }
    if (o.kind == WK_CUDA_OUT_ACT) {
        const __half h = c < n ? wk_act_half(v, o.shift) : __float2half_rn(0.0f);
        if (c < act_k(n)) ((__half *)o.y)[(uint64_t)i * act_k(n) + c] = h;
        return;
    }
    const float square = wk_square_sum16(c < n ? v : 0.0f);
    if (c >= n) return;
    ((float *)o.y)[i * o.y_stride + c] = v;
    if (o.aux && c % 16 == 0) o.aux[(uint64_t)i * ((n + 15) / 16) + c / 16] = square;
}

__global__ void __launch_bounds__(128) product_kernel(struct wk_cuda_product p)
{
    extern __shared__ __half x[];
    const uint32_t i = blockIdx.x, from = p.expert ? i / p.x_items : p.input.row_index ? p.input.row_index[i] : i;
    wk_depend();
    if (p.input.kind == WK_CUDA_IN_RMS) {
        const uint32_t n16 = (p.k + 15) / 16;
        const float scale = wk_rms_scale(p.input.aux + (uint64_t)from * n16, n16, p.k, p.input.eps);
        for (uint32_t j = threadIdx.x; j < p.k; j += blockDim.x)
            x[j] = wk_act_half(wk_rms_value(((const float *)p.input.x)[from * p.input.x_stride + j], scale,
                                            p.input.w ? p.input.w[j] : 1.0f),
                               0);
    } else
        for (uint32_t j = threadIdx.x; j < p.k; j += blockDim.x) x[j] = act_value(p.input, p.k, from, j);
    __syncthreads();
    if (!p.expert && p.rows > 1) { /* by way of the workspace */
        __half *const w = (__half *)p.workspace + (uint64_t)i * p.k;
        for (uint32_t j = threadIdx.x; j < p.k; j += blockDim.x) w[j] = x[j], x[j] = 0.0f;
        __syncthreads();
        for (uint32_t j = threadIdx.x; j < p.k; j += blockDim.x) x[p.k - 1 - j] = w[p.k - 1 - j];
        __syncthreads();
    }
    const uint32_t expert = p.expert ? p.expert[(uint64_t)(i / p.top_k) * p.expert_stride + i % p.top_k] : 0;
    const float unit = p.input.kind != WK_CUDA_IN_RMS ? (float)(1u << p.input.shift) : 1.0f;
    for (uint32_t s = 0; s < (p.glu ? 1 : p.n_seg); s++) {
        const struct wk_cuda_segment &g = p.seg[s];
        for (uint32_t at = 0; at < g.n; at += blockDim.x) {
            const uint32_t c = at + threadIdx.x;
            float v = 0;
            if (c < g.n) {
                v = __fmul_rn(dot(g, p.k, expert, c, x), unit);
                if (g.bias) v = __fadd_rn(v, g.bias[(uint64_t)expert * g.n + c]);
                if (p.glu) {
                    float u = __fmul_rn(dot(p.seg[1], p.k, expert, c, x), unit);
                    if (p.seg[1].bias) u = __fadd_rn(u, p.seg[1].bias[(uint64_t)expert * g.n + c]);
                    v = wk_glu_value(p.glu, v, u, p.alpha, p.limit);
                }
                for (uint32_t m = 0; m < 4 && p.map[m].fn; m++) v = wk_map_value(p.map[m].fn, v, p.map[m].p);
                if (p.residual) v = __fadd_rn(v, p.residual[from * p.residual_stride + c]);
            }
            store(g.out, p.out_group, g.n, i, c, v);
        }
    }
}

/* Some products take a norm of several rows, others of one. */
uint32_t norm_rows(const struct wk_cuda_product *p) { return p->n_seg > 1 ? 4 : 1; }

/* Products of one matrix take panels, or of fewer than 32 rows runs, as others do; gated activations leave what one
 * matrix takes. */
struct wk_cuda_layout layout(const struct wk_cuda_product *p)
{
    const bool few = p->rows < 32;
    const uint32_t in = p->n_seg > 1 || few ? WK_CUDA_IN_RUNS : WK_CUDA_IN_PANELS, out = !p->glu ? WK_CUDA_OUT_ACT
                                                                                         : few   ? WK_CUDA_OUT_RUNS
                                                                                                 : WK_CUDA_OUT_PANELS;
    return { in, PANELS, out };
}

uint64_t workspace(uint32_t, uint32_t k, uint32_t rows) { return rows > 1 ? (uint64_t)rows * k * 2 : 0; }

wk_status product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    if (!p->expert && p->rows > 1 && (!p->workspace || (uintptr_t)p->workspace % 256))
        return wk_fail(err, WK_INVALID, "test module: %u rows without a workspace", p->rows);
    if (!p->expert && (p->rows < 1 || p->rows > WK_CUDA_ROWS))
        return wk_fail(err, WK_INVALID, "test module: %u rows", p->rows);
    if (p->input.kind == WK_CUDA_IN_RMS && p->rows > (p->input.row_index ? 1 : norm_rows(p)))
        return wk_fail(err, WK_INVALID, "test module: %u rows with a norm", p->rows);
    if (p->expert && (p->residual || p->input.kind == WK_CUDA_IN_RMS || p->input.row_index))
        return wk_fail(err, WK_INVALID, "test module: an expert product with a norm, a residual or picked rows");
    if (p->residual && p->n_seg > 1 && !p->glu)
        return wk_fail(err, WK_INVALID, "test module: a residual of several segments");
    for (uint32_t s = 1; s < p->n_seg; s++)
        if (!mixed_types && p->seg[s].ggml_type != p->seg[0].ggml_type)
            return wk_fail(err, WK_INVALID, "test module: types that it does not serve together");
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = p->rows;
    config.blockDim = 128;
    config.dynamicSmemBytes = p->k * 2 + 16;
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = p->flags & WK_CUDA_DEPENDENT ? 1 : 0;
    return check(cudaLaunchKernelEx(&config, product_kernel, *p), "product", err);
}

wk_status open(int32_t, const struct wk_err *) { return WK_OK; }

int32_t serves(const uint32_t *types, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (!mixed_types && types[i] != types[0]) return 0;
    return 1;
}

#define TYPE(t) { sizeof(struct wk_type_cuda), t, tile_bytes, pack<t>, unpack<t>, expand, gather }
const struct wk_type_cuda types[] = { TYPE(0),  TYPE(1),  TYPE(2),  TYPE(6), TYPE(8),
                                      TYPE(12), TYPE(13), TYPE(14), TYPE(30) };
const struct wk_type_cuda *const list[] = { &types[0], &types[1], &types[2], &types[3], &types[4],
                                            &types[5], &types[6], &types[7], &types[8] };
const struct wk_quant_cuda module = { sizeof module, sizeof list / sizeof *list,
                                      "test",        list,
                                      open,          serves,
                                      product,       NULL,
                                      NULL,          norm_rows,
                                      layout,        workspace,
                                      NULL };

} // namespace

const struct wk_quant_cuda *test_module(const struct wk_type_cpu *const *cpu, int32_t mixed)
{
    cpu_types = cpu;
    mixed_types = mixed;
    return &module;
}
