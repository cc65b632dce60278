/* row.cuh: what kernels over rows share: where a row is read from, four values at a time, and where four results go.
 *
 * A thread holds four neighbouring values, so a run of 16 is four neighbouring lanes: partials come out of the
 * functions of worker/cuda/part/act.cuh, whatever the size of a block. All rows are read past L1 (__ldcg): under
 * programmatic dependent launch the kernel that wrote them may have run on the same multiprocessor a moment ago. */
#ifndef CORE_DEVICE_CUDA_ROW_CUH
#define CORE_DEVICE_CUDA_ROW_CUH

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/panels.cuh>

#include "device/cuda/kernels.h"

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Row r is x + (index ? index[r] : r / repeat) * stride. */
struct row_source {
    const float *x;
    uint64_t stride;
    const uint32_t *index;
    uint32_t repeat;
    bool wide; /* rows are 16-byte aligned */
};

static inline bool aligned16(const void *p) { return (uintptr_t)p % 16 == 0; }

static inline struct row_source source_of(const float *x, uint64_t stride)
{
    const struct row_source s = { x, stride, NULL, 1, aligned16(x) && stride % 4 == 0 };
    return s;
}
static inline struct row_source source_of(const struct cuda_rows *r)
{
    struct row_source s = source_of(r->x, r->stride);
    s.index = r->index;
    return s;
}

__device__ __forceinline__ uint32_t source_index(const struct row_source &s, uint32_t r)
{
    return s.index ? s.index[r] : s.repeat == 1 ? r : r / s.repeat;
}
__device__ __forceinline__ const float *source_row(const struct row_source &s, uint32_t r)
{
    return s.x + source_index(s, r) * s.stride;
}

/* Values [0, 4) of p, of which `left` exist; the others are 0. WHOLE, here and below: widths are multiples of 4 and all
 * rows 16-byte aligned, so that four values exist or none. */
template <bool WHOLE> __device__ __forceinline__ float4 load4(const float *p, uint32_t left, bool wide)
{
    if (WHOLE) return left ? __ldcg((const float4 *)p) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (wide && left >= 4) return __ldcg((const float4 *)p);
    return make_float4(left > 0 ? __ldcg(p) : 0.0f, left > 1 ? __ldcg(p + 1) : 0.0f, left > 2 ? __ldcg(p + 2) : 0.0f,
                       left > 3 ? __ldcg(p + 3) : 0.0f);
}
/* The same of a vector that no kernel writes. */
template <bool WHOLE> __device__ __forceinline__ float4 constant4(const float *p, uint32_t left, bool wide)
{
    if (WHOLE) return left ? __ldg((const float4 *)p) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (wide && left >= 4) return __ldg((const float4 *)p);
    return make_float4(left > 0 ? __ldg(p) : 0.0f, left > 1 ? __ldg(p + 1) : 0.0f, left > 2 ? __ldg(p + 2) : 0.0f,
                       left > 3 ? __ldg(p + 3) : 0.0f);
}
__device__ __forceinline__ uint32_t act_width(uint32_t k) { return (k + 31u) & ~31u; } /* wk_act_k */
__device__ __forceinline__ uint32_t left_of(uint32_t width, uint32_t e) { return e < width ? width - e : 0; }

__device__ __forceinline__ float4 add4(float4 a, float4 b)
{
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
__device__ __forceinline__ float4 mul4(float4 a, float4 b)
{
    return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z), __fmul_rn(a.w, b.w));
}
__device__ __forceinline__ float4 all4(float x) { return make_float4(x, x, x, x); }
/* Results past the end of a row are 0: they are summed with the last run. */
template <bool WHOLE> __device__ __forceinline__ float4 within(float4 v, uint32_t left)
{
    if (WHOLE) return left ? v : all4(0.0f);
    return left >= 4 ? v : make_float4(left > 0 ? v.x : 0.0f, left > 1 ? v.y : 0.0f, left > 2 ? v.z : 0.0f, 0.0f);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* F32 rows and their partials, an act, or both. */
struct row_sink {
    float *y;
    uint64_t y_stride;
    float *part;
    __half *act;
    uint32_t shift, width;
    bool wide, by_runs; /* by_runs: of the act */
};

static inline struct row_sink sink_f32(float *y, uint64_t y_stride, float *part, uint32_t width)
{
    const struct row_sink s = { y, y_stride, part, NULL, 0, width, aligned16(y) && y_stride % 4 == 0, false };
    return s;
}
static inline struct row_sink sink_act(void *act, uint32_t shift, uint32_t width)
{
    const struct row_sink s = { NULL, 0, NULL, (__half *)act, shift, width, false, false };
    return s;
}
static inline bool whole(const struct row_source *s) { return !s->x || s->wide; }
static inline bool whole(const struct row_sink *s) { return s->width % 4 == 0 && (!s->y || s->wide); }
static inline uint32_t sink_width(const struct row_sink *s) { return s->act ? wk_act_k(s->width) : s->width; }

/* Four values of an act. */
__device__ __forceinline__ void store_act4(__half *at, float4 v, uint32_t shift)
{
    union {
        __half2 h[2];
        uint2 u;
    } both;
    both.h[0] = wk_act_half2(v.x, v.y, shift);
    both.h[1] = wk_act_half2(v.z, v.w, shift);
    *(uint2 *)at = both.u;
}
/* Where value e of row r of k (a multiple of 32) halves lies. */
__device__ __forceinline__ __half *act_at(const struct row_sink &s, uint32_t r, uint32_t k, uint32_t e)
{
    return s.act + (s.by_runs ? wk_run_at(k, r, e) : (uint64_t)r * k + e);
}
__device__ __forceinline__ void act4(const struct row_sink &s, uint32_t r, uint32_t k, uint32_t e, float4 v)
{
    if (e < k) store_act4(act_at(s, r, k, e), v, s.shift);
}

/* Values [e, e + 4) of row r, e a multiple of 4; 0 past the width. By whole warps with e growing by 4 from lane to
 * lane. */
template <bool WHOLE> __device__ __forceinline__ void sink4(const struct row_sink &s, uint32_t r, uint32_t e, float4 v)
{
    if (s.y) {
        float *y = s.y + r * s.y_stride + e;
        const uint32_t left = left_of(s.width, e);
        if (WHOLE) {
            if (left) *(float4 *)y = v;
        } else if (s.wide && left >= 4) {
            *(float4 *)y = v;
        } else {
            if (left > 0) y[0] = v.x;
            if (left > 1) y[1] = v.y;
            if (left > 2) y[2] = v.z;
            if (left > 3) y[3] = v.w;
        }
    }
    if (s.part) {
        const float sum = wk_square_sum16(v);
        if ((threadIdx.x & 3u) == 0 && e < s.width) s.part[(uint64_t)r * ((s.width + 15) / 16) + e / 16] = sum;
    }
    if (s.act) act4(s, r, act_width(s.width), e, v);
}

/* ---- launches ------------------------------------------------------------------------------------------ */

static inline wk_status check_rows(const char *what, uint32_t rows, uint32_t width, const struct wk_err *err)
{
    if (rows && width && width <= TAPE_MAX_WIDTH) return WK_OK;
    return wk_fail(err, WK_INTERNAL, "%s: %u rows of %u values", what, rows, width);
}
/* Blocks of element-wise kernels: panels of a row side by side, then rows. The last rows of the grid may not exist. */
static inline dim3 row_grid(uint32_t rows, uint32_t panels)
{
    const uint32_t most = 32768, y = rows < most ? rows : most;
    return dim3(panels, y, (rows + y - 1) / y);
}
__device__ __forceinline__ uint32_t grid_row() { return blockIdx.z * gridDim.y + blockIdx.y; }

static inline wk_status check_grid(const char *what, uint64_t blocks, const struct wk_err *err)
{
    return blocks <= INT32_MAX ? WK_OK : wk_fail(err, WK_INTERNAL, "%s: %llu blocks", what, (unsigned long long)blocks);
}

/* norm.cu: runs of `width` values, `runs` of them in a row one after the other, each normed by itself. More than one:
 * F32 alone, no partials. */
struct norm_launch {
    bool pdl;
    uint32_t rows, runs, width, norm;
    float eps;
    struct row_source x;
    const float *part, *w, *b;
    struct row_source residual; /* x NULL: none */
    struct row_sink out;
};
wk_status norm_rows(const char *what, const struct norm_launch *n, void *stream, const struct wk_err *err);

/* finish.cu: y = FN(a + a_bias, b + b_bias) -> maps -> + residual. fn: 0 (a alone), WK_GLU_*, or one of these. */
enum { ELEMENT_ADD = WK_GLU_END, ELEMENT_MUL };
struct element_launch {
    bool pdl;
    uint32_t rows, fn;
    float alpha, limit;
    struct row_source a, b, residual;
    const float *a_bias, *b_bias;
    bool b_single; /* b is one value a row */
    struct {
        uint32_t fn;
        float p;
    } map[4];
    struct row_sink out;
};
wk_status element_rows(const char *what, const struct element_launch *e, void *stream, const struct wk_err *err);

#endif
