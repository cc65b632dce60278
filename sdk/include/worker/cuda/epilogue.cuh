/* worker/cuda/epilogue.cuh: from the sum of a product to what is stored. */
#ifndef WORKER_CUDA_EPILOGUE_CUH
#define WORKER_CUDA_EPILOGUE_CUH

#include <worker/cuda/product_args.cuh>

/* One output: row r of tile `tile` of segment `seg`, for row `row` of the product. */
struct wk_output_at {
    uint32_t seg, tile, r, row;
    bool on;                      /* this lane has an output; all lanes of a warp take part, runs of 16 lanes are one tile's rows */
};
/* What it reads besides sums: other: glu: the second segment's bias; else the residual. */
struct wk_output_more { float bias, other; };

__device__ __forceinline__ float wk_residual(const wk_product_args &p, const wk_output_at &o)
{
    return p.residual[(p.in.row_index ? __ldg(p.in.row_index + o.row) : o.row) * p.residual_stride + o.tile * 16 + o.r];
}

__device__ __forceinline__ wk_output_more wk_output_ahead(const wk_product_args &p, const wk_output_at &o, uint32_t expert)
{
    wk_output_more m = { 0.0f, 0.0f };
    const wk_segment_args &s = p.seg[o.seg];
    const uint32_t j = o.tile * 16 + o.r;
    if (!o.on || j >= s.n) return m;
    if (s.bias) m.bias = __ldg(s.bias + (uint64_t)expert * s.n + j);
    if (p.glu && p.seg[1].bias) m.other = __ldg(p.seg[1].bias + (uint64_t)expert * s.n + j);
    if (!p.glu && p.residual) m.other = wk_residual(p, o);
    return m;
}

/* sum, up: of the tile, and with glu of the second segment's. Called by whole warps. */
__device__ __forceinline__ void wk_output(const wk_product_args &p, const wk_output_at &o, const wk_output_more &more, float sum, float up)
{
    const wk_segment_args &s = p.seg[o.seg];
    const uint32_t j = o.tile * 16 + o.r;
    const bool in = o.on && j < s.n;
    float v = __fadd_rn(__fmul_rn(sum, p.in_scale), more.bias);
    if (p.glu) {
        v = wk_glu_value(p.glu, v, __fadd_rn(__fmul_rn(up, p.in_scale), more.other), p.alpha, p.limit);
    } else {
#pragma unroll 1
        for (int m = 0; m < 4 && p.map[m].fn; m++) v = wk_map_value(p.map[m].fn, v, p.map[m].p);
    }
    if (p.residual) v = __fadd_rn(v, !p.glu ? more.other : in ? wk_residual(p, o) : 0.0f);
    if (!in) v = 0.0f;
    if (s.kind == WK_CUDA_OUT_F32) {
        if (in) static_cast<float *>(s.y)[o.row * s.y_stride + j] = v;
        if (s.aux) {
            const float q = wk_square_sum16(v);
            if (o.on && o.r == 0) s.aux[(uint64_t)o.row * s.n_tiles + o.tile] = q;
        }
    } else {
        const __half h = wk_act_half(v, s.shift);
        const float2 sums = wk_act_sum16(h);
        const uint32_t n32 = (s.n + 31) & ~31u;
        __half *y = static_cast<__half *>(s.y) + (uint64_t)o.row * n32;
        float2 *aux = reinterpret_cast<float2 *>(s.aux) + (uint64_t)o.row * (n32 / 16);
        if (o.on) {
            y[j] = h;
            if (o.r == 0) aux[o.tile] = sums;
            if (o.tile + 1 == s.n_tiles && (o.tile & 1u) == 0) { /* the act ends at a multiple of 32 */
                y[j + 16] = __float2half_rn(0.0f);
                if (o.r == 0) aux[o.tile + 1] = make_float2(0.0f, 0.0f);
            }
        }
    }
}

#endif
