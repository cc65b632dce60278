/* pool.cu: one row a sequence from all of its rows, and the scaling of embeddings to length 1. Not
 * in a decode graph. */
#include "device/cuda/row.cuh"

#include "device/cuda/launch.cuh"

enum { COLUMNS = 32, AHEAD = 8, LENGTH_THREADS = 256 };

struct pool_launch {
    uint32_t width, how;
    const struct cuda_seq *seq;
    const float *x;
    uint64_t x_stride;
    float *running, *y;
    uint64_t y_stride;
};

/* Adds the sequence's rows of one column in order; AHEAD loads are under way at a time. */
static __device__ __forceinline__ float add_rows(float sum, const float *x, uint64_t stride, uint32_t n)
{
    for (uint32_t r = 0; r < n; r += AHEAD) {
        float v[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) v[i] = r + i < n ? __ldcg(x + (r + i) * stride) : 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (r + i < n) sum = __fadd_rn(sum, v[i]);
    }
    return sum;
}

static __global__ void __launch_bounds__(COLUMNS) pool_kernel(const __grid_constant__ struct pool_launch p)
{
    const struct cuda_seq s = p.seq[blockIdx.y];
    const uint32_t column = blockIdx.x * COLUMNS + threadIdx.x;
    if (!s.n_rows || column >= p.width) return;
    const float *x = p.x + (p.how ? s.row : blockIdx.y) * p.x_stride + column;
    float *running = p.running ? p.running + (uint64_t)s.slot * p.width + column : NULL, v;
    switch (p.how) {
    case WK_POOL_MEAN: {
        const float sum = s.position ? add_rows(*running, x, p.x_stride, s.n_rows)
                                     : add_rows(__ldcg(x), x + p.x_stride, p.x_stride, s.n_rows - 1);
        *running = sum;
        v = __fmul_rn(sum, __fdiv_rn(1.0f, (float)(s.position + s.n_rows)));
        break;
    }
    case WK_POOL_FIRST:
        v = s.position ? *running : __ldcg(x);
        *running = v;
        break;
    case WK_POOL_LAST: v = __ldcg(x + (s.n_rows - 1) * p.x_stride); break;
    default: v = __ldcg(x); break;
    }
    p.y[blockIdx.y * p.y_stride + column] = v;
}

/* Squares in F64: thread t adds t, t + 256, ..., then a fixed tree. A row of zeros stays. */
static __global__ void __launch_bounds__(LENGTH_THREADS)
    length_kernel(const struct cuda_seq *seq, float *y, uint64_t y_stride, uint32_t width)
{
    __shared__ double sum[LENGTH_THREADS];
    if (!seq[blockIdx.x].n_rows) return;
    float *row = y + blockIdx.x * y_stride;
    double s = 0.0;
    for (uint32_t i = threadIdx.x; i < width; i += LENGTH_THREADS)
        s = __dadd_rn(s, __dmul_rn((double)row[i], (double)row[i]));
    sum[threadIdx.x] = s;
    for (uint32_t d = LENGTH_THREADS / 2; d; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d) sum[threadIdx.x] = __dadd_rn(sum[threadIdx.x], sum[threadIdx.x + d]);
    }
    __syncthreads();
    const float factor = sum[0] > 0.0 ? (float)__drcp_rn(__dsqrt_rn(sum[0])) : 1.0f;
    for (uint32_t i = threadIdx.x; i < width; i += LENGTH_THREADS) row[i] = __fmul_rn(row[i], factor);
}

wk_status cuda_pool(const struct cuda_pool *p, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("pool", p->seqs, p->width, err);
    if (status != WK_OK) return status;
    if (p->seqs > 65535 || p->how >= WK_POOL_END)
        return wk_fail(err, WK_INTERNAL, "pool: %u sequences, way %u", p->seqs, p->how);
    if ((p->how == WK_POOL_MEAN || p->how == WK_POOL_FIRST) && !p->running)
        return wk_fail(err, WK_INTERNAL, "pool: way %u needs the running rows", p->how);
    const struct pool_launch launch = { p->width, p->how, p->seq, p->x, p->x_stride, p->running, p->y, p->y_stride };
    status = cuda_launch("pool", pool_kernel, dim3((p->width + COLUMNS - 1) / COLUMNS, p->seqs), COLUMNS, 0, false,
                         stream, err, launch);
    if (status == WK_OK && p->l2)
        status = cuda_launch("pool: length", length_kernel, p->seqs, LENGTH_THREADS, 0, false, stream, err, p->seq,
                             p->y, p->y_stride, p->width);
    return status;
}
