/* worker/cuda/part/epilogue.cuh: from the sum of a product to what is stored. */
#ifndef WORKER_CUDA_PART_EPILOGUE_CUH
#define WORKER_CUDA_PART_EPILOGUE_CUH

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/functions.cuh>
#include <worker/cuda/part/panels.cuh>

/* One output: row r of tile `tile` of segment `seg`, for row `row` of the product. */
struct wk_output_at {
    uint32_t seg, tile, r, row;
    bool on; /* this lane has an output; all lanes of a warp take part, runs of 16 lanes are one tile's rows */
};
/* What it reads besides sums: other: glu: the second segment's bias; else the residual. */
struct wk_output_more {
    float bias, other;
};

__device__ __forceinline__ float wk_residual(const wk_product_args &p, const wk_output_at &o)
{
    return p.residual[(p.in.row_index ? __ldg(p.in.row_index + o.row) : o.row) * p.residual_stride + o.tile * 16 + o.r];
}

__device__ __forceinline__ wk_output_more wk_output_ahead(const wk_product_args &p, const wk_output_at &o,
                                                          uint32_t expert)
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

/* Where value j of row `row` of an act lies, by rows or by runs: in halves. */
__device__ __forceinline__ uint64_t wk_act_at(const wk_segment_args &s, uint32_t row, uint32_t j)
{
    const uint32_t n32 = (s.n + 31) & ~31u;
    return s.kind == WK_CUDA_OUT_RUNS ? wk_run_at(n32, row, j) : (uint64_t)row * n32 + j;
}

/* sum, up: of the tile, and with glu of the second segment's. Called by whole warps. */
__device__ __forceinline__ void wk_output(const wk_product_args &p, const wk_output_at &o, const wk_output_more &more,
                                          float sum, float up)
{
    const wk_segment_args &s = p.seg[o.seg];
    const uint32_t j = o.tile * 16 + o.r;
    const bool in = o.on && j < s.n;
    float v = __fadd_rn(__fmul_rn(sum, s.scale), more.bias);
    if (p.glu) {
        v = wk_glu_value(p.glu, v, __fadd_rn(__fmul_rn(up, p.seg[1].scale), more.other), p.alpha, p.limit);
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
        __half *y = static_cast<__half *>(s.y) + wk_act_at(s, o.row, j);
        if (o.on) {
            *y = h;
            if (o.tile + 1 == s.n_tiles && (o.tile & 1u) == 0)
                y[16] = __float2half_rn(0.0f); /* the act ends at a multiple of 32 */
        }
    }
}

/* ---- short ways: nearly all products of a step are F32, maybe with a bias, a residual and partial sums of squares, or
 * an act of SiLU(gate) times up. In a short launch each instruction behind the sums costs as much as it takes to fetch
 * it, so these go by few. wk_product_args::way says which (and, SILU and F32_FOURS, that all is whole tiles, read and
 * written four values at a time). ---- */

__device__ __forceinline__ float wk_silu_value(float gate, float up)
{
    return wk_glu_value(WK_GLU_SILU, gate, up, 0.0f, 0.0f);
}

/* Where a lane's output goes and what it needs besides sums, at hand before they are. */
struct wk_place {
    uint64_t y, aux, residual; /* addresses; 0 where this lane has none */
    float bias, up_bias, scale, up_scale;
    uint32_t way, squares;
    __device__ __forceinline__ wk_place() {}
    /* Reads nothing that launches write, unless there is a row_index. */
    __device__ __forceinline__ wk_place(const wk_product_args &p, const wk_output_at &o, uint32_t expert = 0)
        : residual(0), bias(0.0f), up_bias(0.0f)
    {
        const wk_segment_args &s = p.seg[o.seg];
        const uint32_t j = o.tile * 16 + o.r;
        const bool in = o.on && j < s.n;
        way = p.way;
        scale = s.scale;
        up_scale = p.seg[1].scale;
        squares = s.aux != NULL;
        if (way == WK_WAY_SILU) {
            y = reinterpret_cast<uint64_t>(static_cast<__half *>(s.y) + wk_act_at(s, o.row, j));
            aux = 0;
        } else {
            y = reinterpret_cast<uint64_t>(static_cast<float *>(s.y) + o.row * s.y_stride + j);
            aux = reinterpret_cast<uint64_t>(s.aux + (uint64_t)o.row * s.n_tiles + o.tile);
        }
        if (in && s.bias) bias = __ldg(s.bias + (uint64_t)expert * s.n + j);
        if (in && p.glu && p.seg[1].bias) up_bias = __ldg(p.seg[1].bias + (uint64_t)expert * s.n + j);
        if (in && !p.glu && p.residual)
            residual = reinterpret_cast<uint64_t>(
                p.residual + (p.in.row_index ? __ldg(p.in.row_index + o.row) : o.row) * p.residual_stride + j);
        if (!in) y = 0;
        if (!o.on || o.r != 0) aux = 0;
        asm volatile(""
                     : "+l"(y), "+l"(aux), "+l"(residual), "+f"(bias), "+f"(up_bias), "+f"(scale), "+f"(up_scale),
                       "+r"(way), "+r"(squares));
    }
    /* The residual: after the wait for the launch before. */
    __device__ __forceinline__ float ahead() const
    {
        float v = 0.0f;
        if (residual) asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(residual) : "memory");
        return v;
    }
    template <bool ANY = true>
    __device__ __forceinline__ void put(const wk_product_args &p, const wk_output_at &o, float other, float sum,
                                        float up) const
    {
        if (way >= WK_WAY_F32) {
            float v = __fadd_rn(__fmul_rn(sum, scale), bias);
            if (p.residual) v = __fadd_rn(v, other);
            if (y) asm volatile("st.global.f32 [%0], %1;" ::"l"(y), "f"(v) : "memory");
            if (squares) {
                const float q = wk_square_sum16(y ? v : 0.0f);
                if (aux) asm volatile("st.global.f32 [%0], %1;" ::"l"(aux), "f"(q) : "memory");
            }
        } else if (!ANY || way == WK_WAY_SILU) {
            const __half h = wk_act_half(
                wk_silu_value(__fadd_rn(__fmul_rn(sum, scale), bias), __fadd_rn(__fmul_rn(up, up_scale), up_bias)),
                p.seg[0].shift);
            if (y) asm volatile("st.global.b16 [%0], %1;" ::"l"(y), "h"(__half_as_ushort(h)) : "memory");
        } else {
            wk_output(p, o, { bias, p.glu ? up_bias : other }, sum, up);
        }
    }
};

/* ---- four values a lane: rows 4 (lane % 4) .. + 3 of a tile, for row `row` of the product, in four neighbouring lanes
 * ---- */

struct wk_four_at {
    uint32_t seg, tile, row;
    bool on;
};
struct wk_four_more {
    float bias[4], other[4];
};

/* v[i] where j + i < n. */
__device__ __forceinline__ void wk_four_load(float o[4], const float *v, uint32_t j, uint32_t n)
{
    if (j + 4 <= n && (reinterpret_cast<uintptr_t>(v) & 15u) == 0) {
        const float4 x = *reinterpret_cast<const float4 *>(v);
        o[0] = x.x, o[1] = x.y, o[2] = x.z, o[3] = x.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) o[i] = j + i < n ? v[i] : 0.0f;
    }
}
__device__ __forceinline__ const float *wk_four_residual(const wk_product_args &p, const wk_four_at &o, uint32_t j)
{
    return p.residual + (p.in.row_index ? __ldg(p.in.row_index + o.row) : o.row) * p.residual_stride + j;
}
__device__ __forceinline__ wk_four_more wk_four_ahead(const wk_product_args &p, const wk_four_at &o,
                                                      uint32_t expert = 0)
{
    wk_four_more m = {};
    const wk_segment_args &s = p.seg[o.seg];
    const uint32_t j = o.tile * 16 + threadIdx.x % 4 * 4;
    if (!o.on) return m;
    if (s.bias) wk_four_load(m.bias, s.bias + (uint64_t)expert * s.n + j, j, s.n);
    if (p.glu && p.seg[1].bias) wk_four_load(m.other, p.seg[1].bias + (uint64_t)expert * s.n + j, j, s.n);
    if (!p.glu && p.residual) wk_four_load(m.other, wk_four_residual(p, o, j), j, s.n);
    return m;
}
/* Values j .. j + 3 of a row, to its place in a panel. */
__device__ __forceinline__ void wk_four_panel(const wk_product_args &p, uint32_t row, uint32_t j, uint2 v)
{
    unsigned char *const to =
        static_cast<unsigned char *>(p.seg[0].y) + (j / WK_PANEL_K * p.seg[0].y_stride + row) * WK_PANEL_ROW;
    *reinterpret_cast<uint32_t *>(to + wk_panel_at(p.out_group, row, j % WK_PANEL_K)) = v.x;
    *reinterpret_cast<uint32_t *>(to + wk_panel_at(p.out_group, row, j % WK_PANEL_K + 2)) = v.y;
}
/* The sum of squares of the tile's 16 outputs of a row, for the RMS norm that reads them. */
__device__ __forceinline__ void wk_four_square_sum(const wk_segment_args &s, const wk_four_at &o, const float v[4])
{
    if (s.aux) {
        const float q = wk_square_sum16(make_float4(v[0], v[1], v[2], v[3]));
        if (o.on && threadIdx.x % 4 == 0) s.aux[(uint64_t)o.row * s.n_tiles + o.tile] = q;
    }
}
__device__ __forceinline__ uint2 wk_four_halves(const float v[4], uint32_t shift)
{
    union {
        uint2 bits;
        __half2 h[2];
    } h;
    h.h[0] = wk_act_half2(v[0], v[1], shift);
    h.h[1] = wk_act_half2(v[2], v[3], shift);
    return h.bits;
}
/* WK_WAY_F32_FOURS. */
__device__ __forceinline__ void wk_four_plain(const wk_product_args &p, const wk_four_at &o, const wk_four_more &more,
                                              uint32_t j, const float sum[4])
{
    const wk_segment_args &s = p.seg[o.seg];
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = __fadd_rn(__fmul_rn(sum[i], s.scale), more.bias[i]);
        if (p.residual) v[i] = __fadd_rn(v[i], more.other[i]);
    }
    if (o.on)
        *reinterpret_cast<float4 *>(static_cast<float *>(s.y) + o.row * s.y_stride + j) =
            make_float4(v[0], v[1], v[2], v[3]);
    wk_four_square_sum(s, o, v);
}
/* WK_WAY_SILU. */
template <bool PANELS>
__device__ __forceinline__ void wk_four_silu(const wk_product_args &p, const wk_four_at &o, const wk_four_more &more,
                                             uint32_t j, const float sum[4], const float up[4])
{
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = wk_silu_value(__fadd_rn(__fmul_rn(sum[i], p.seg[0].scale), more.bias[i]),
                             __fadd_rn(__fmul_rn(up[i], p.seg[1].scale), more.other[i]));
    const uint2 bits = wk_four_halves(v, p.seg[0].shift);
    if (!o.on) return;
    if (PANELS && p.seg[0].kind == WK_CUDA_OUT_PANELS)
        wk_four_panel(p, o.row, j, bits);
    else
        *reinterpret_cast<uint2 *>(static_cast<__half *>(p.seg[0].y) + (uint64_t)o.row * p.seg[0].n + j) = bits;
}
/* WK_WAY_ANY and WK_WAY_F32: the gated activation or the maps, on sums with their bias. */
__device__ __forceinline__ void wk_four_functions(const wk_product_args &p, float v[4], float up[4])
{
    if (p.glu == WK_GLU_SILU_CLAMPED) { /* of models with experts: side by side */
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = wk_clamp_glu(v[i], up[i], p.alpha, p.limit);
    } else if (p.glu || p.map[0].fn) { /* the other functions stand here once: the values pass by */
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            float x = v[0];
            if (p.glu) {
                x = wk_glu_value(p.glu, x, up[0], p.alpha, p.limit);
                up[0] = up[1], up[1] = up[2], up[2] = up[3];
            } else {
#pragma unroll 1
                for (int m = 0; m < 4 && p.map[m].fn; m++) x = wk_map_value(p.map[m].fn, x, p.map[m].p);
            }
            v[0] = v[1], v[1] = v[2], v[2] = v[3], v[3] = x;
        }
    }
}
/* To where the outputs go, F32 or an act. */
template <bool PANELS>
__device__ __forceinline__ void wk_four_store(const wk_product_args &p, const wk_four_at &o, uint32_t j,
                                              const float v[4])
{
    const wk_segment_args &s = p.seg[o.seg];
    if (s.kind == WK_CUDA_OUT_F32) {
        float *const y = static_cast<float *>(s.y) + o.row * s.y_stride + j;
        if (o.on) {
            if (j + 4 <= s.n && (reinterpret_cast<uintptr_t>(y) & 15u) == 0) {
                *reinterpret_cast<float4 *>(y) = make_float4(v[0], v[1], v[2], v[3]);
            } else {
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    if (j + i < s.n) y[i] = v[i];
            }
        }
        wk_four_square_sum(s, o, v);
        return;
    }
    const uint2 bits = wk_four_halves(v, s.shift);
    if (PANELS && s.kind == WK_CUDA_OUT_PANELS) {
        if (o.on) wk_four_panel(p, o.row, j, bits);
    } else if (o.on) {
        __half *const y = static_cast<__half *>(s.y) + (uint64_t)o.row * ((s.n + 31) & ~31u) + j;
        *reinterpret_cast<uint2 *>(y) = bits;
        if (o.tile + 1 == s.n_tiles && (o.tile & 1u) == 0)
            *reinterpret_cast<uint2 *>(y + 16) = make_uint2(0, 0); /* the act ends at a multiple of 32 */
    }
}

/* PANELS: a gated activation's act may go so. */
template <bool PANELS = false>
__device__ __forceinline__ void wk_four_output(const wk_product_args &p, const wk_four_at &o, wk_four_more &more,
                                               float sum[4], float up[4])
{
    const wk_segment_args &s = p.seg[o.seg];
    const uint32_t j = o.tile * 16 + threadIdx.x % 4 * 4;
    if (p.way == WK_WAY_F32_FOURS) {
        wk_four_plain(p, o, more, j, sum);
        return;
    }
    if (p.way == WK_WAY_SILU) {
        wk_four_silu<PANELS>(p, o, more, j, sum, up);
        return;
    }
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __fadd_rn(__fmul_rn(sum[i], s.scale), more.bias[i]);
    if (p.glu) {
#pragma unroll
        for (int i = 0; i < 4; i++) up[i] = __fadd_rn(__fmul_rn(up[i], p.seg[1].scale), more.other[i]);
        if (p.residual && o.on) wk_four_load(more.other, wk_four_residual(p, o, j), j, s.n);
    }
    wk_four_functions(p, v, up);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if (p.residual) v[i] = __fadd_rn(v[i], more.other[i]);
        if (j + i >= s.n) v[i] = 0.0f;
    }
    wk_four_store<PANELS>(p, o, j, v);
}

#endif
