/* worker/cuda/part/check.cuh: what every product is held to before a kernel sees it, and what its launches say. */
#ifndef WORKER_CUDA_PART_CHECK_CUH
#define WORKER_CUDA_PART_CHECK_CUH

#include <cuda_runtime.h>

#include <worker/arch.h>
#include <worker/quant_cuda.h>

/* What the runtime says of a call, as a status. */
static inline wk_status wk_product_status(cudaError_t code, const char *what, const struct wk_err *err)
{
    if (code == cudaSuccess) return WK_OK;
    (void)cudaGetLastError();
    return wk_fail(err, code == cudaErrorNoKernelImageForDevice ? WK_UNSUPPORTED : WK_INTERNAL, "%s: %s: %s", what,
                   cudaGetErrorName(code), cudaGetErrorString(code));
}

/* Once a device for each kernel: it may have all of a block's memory; and a multiprocessor divides its memory between
 * L1 and blocks anew only when it is empty: launches that ask for different divisions never overlap. */
static inline wk_status wk_product_prepare(const void *kernel, uint32_t block_bytes, const struct wk_err *err)
{
    const wk_status status =
        wk_product_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)block_bytes),
                          "product: kernel", err);
    return status ? status
                  : wk_product_status(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                           cudaSharedmemCarveoutMaxShared),
                                      "product: kernel", err);
}

/* Rows from there on may be read or written four values of so many bytes at a time. */
static inline bool wk_fours(const void *at, uint64_t stride, uint32_t bytes)
{
    return reinterpret_cast<uintptr_t>(at) % (4 * bytes) == 0 && stride % 4 == 0;
}

/* What the contract excludes whatever the formats and the device, by the field's name. */
static inline wk_status wk_product_check(const wk_cuda_product *p, const struct wk_err *err)
{
#define WK_NEED(cond, ...)                                                     \
    do {                                                                       \
        if (!(cond)) return wk_fail(err, WK_INVALID, "product: " __VA_ARGS__); \
    } while (0)
    WK_NEED(p->input.kind <= WK_CUDA_IN_RUNS, "input kind %u", p->input.kind);
    WK_NEED(p->input.kind == WK_CUDA_IN_RMS || p->input.shift < 64, "input shift %u", p->input.shift);
    WK_NEED(p->input.x && (p->input.kind != WK_CUDA_IN_RMS || p->input.aux), "input x or aux is missing");
    WK_NEED(p->input.kind < WK_CUDA_IN_PANELS || !p->input.row_index, "input row_index with input kind %u",
            p->input.kind);
    WK_NEED(p->input.kind != WK_CUDA_IN_PANELS || p->input.x_stride == wk_cuda_row_places(p->rows),
            "input x_stride of %u rows", p->rows);
    WK_NEED(p->input.kind != WK_CUDA_IN_RMS || p->rows == 1 ||
                (!p->input.row_index && wk_fours(p->input.x, p->input.x_stride, 4) && wk_fours(p->input.w, 0, 4)),
            "input row_index, x, x_stride or w with %u rows", p->rows);
    WK_NEED(!p->glu || (p->glu < WK_GLU_END && p->n_seg == 2 && p->seg[0].n == p->seg[1].n),
            "glu %u of %u segments of %u and %u", p->glu, p->n_seg, p->seg[0].n, p->seg[1].n);
    for (uint32_t i = 0; i < 4; i++)
        WK_NEED(p->map[i].fn < WK_UNARY_END && !(p->glu && p->map[i].fn), "map %u", p->map[i].fn);
    for (uint32_t i = 0; i < p->n_seg; i++) {
        const wk_cuda_segment *s = &p->seg[i];
        WK_NEED(s->tiles && s->n > 0 && s->n <= 1u << 24, "seg %u: n %u", i, s->n);
        if (p->glu && i) continue;
        WK_NEED(s->out.kind <= WK_CUDA_OUT_RUNS && s->out.y && (s->out.kind == WK_CUDA_OUT_F32 || s->out.shift < 64),
                "seg %u: out", i);
        WK_NEED(s->out.kind != WK_CUDA_OUT_F32 || p->rows == 1 || s->out.y_stride >= s->n, "seg %u: y_stride", i);
        WK_NEED(s->out.kind != WK_CUDA_OUT_PANELS ||
                    ((p->out_group == 32 || p->out_group == 16) && s->out.y_stride == wk_cuda_row_places(p->rows)),
                "seg %u: out_group %u or y_stride of panels", i, p->out_group);
        WK_NEED(s->out.kind < WK_CUDA_OUT_PANELS || (p->glu && s->n % 64 == 0), "seg %u: out kind %u of n %u", i,
                s->out.kind, s->n);
    }
    WK_NEED(!p->residual || p->n_seg == 1 || p->glu, "residual with %u segments", p->n_seg);
    WK_NEED(!p->expert || (p->input.kind == WK_CUDA_IN_ACT && !p->residual && p->top_k && p->x_items &&
                           (!p->expert_stride || p->expert_stride >= p->top_k)),
            "expert: input, residual, top_k or x_items");
    WK_NEED(!p->groups == !p->expert && (!p->groups || (p->n_experts > 0 && p->n_experts <= 1u << 24)),
            "groups of %u experts", p->n_experts);
    for (uint32_t i = 1; p->groups && i < p->n_seg; i++)
        WK_NEED(p->seg[i].ggml_type == p->seg[0].ggml_type, "groups: seg %u is of another type", i);
    WK_NEED(!(p->flags & WK_CUDA_GROUPS_KNOWN) || p->groups, "flags %u without groups", p->flags);
#undef WK_NEED
    return WK_OK;
}

#endif
