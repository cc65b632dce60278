/* gemma3n/cuda/parts.cu: the plugin's own operations, as gemma3n.c says what they are. Element-wise ones have a thread
 * a column of all parts; the others a block a part or a row, which sums in one fixed order. */
#include <cuda_runtime.h>

#include <worker/arch_cuda.h>
#include <worker/cuda/tiles.cuh>

enum { PARTS = 4, COLUMNS = 128, THREADS = 512 };

/* Rows in two dimensions of the grid, the first of them columns or parts; the last rows may not exist. */
static dim3 grid_of(const struct wk_custom_cuda_call *c, uint32_t x)
{
    const uint32_t most = 32768, y = c->n_rows < most ? c->n_rows : most;
    return dim3(x, y, (c->n_rows + y - 1) / y);
}
static __device__ __forceinline__ uint32_t row_of() { return blockIdx.z * gridDim.y + blockIdx.y; }
static __device__ __forceinline__ const float *row_at(const struct wk_custom_cuda_call &c, int i, uint32_t row)
{
    return c.in[i] + row * c.in_stride[i];
}

/* ---- AltUp --------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(COLUMNS) predict_kernel(const __grid_constant__ struct wk_custom_cuda_call c)
{
    const uint32_t row = row_of(), e = blockIdx.x * COLUMNS + threadIdx.x, width = c.out_width / PARTS;
    if (row >= c.n_rows || e >= width) return;
    const float *x = row_at(c, 0, row) + e, *factor = row_at(c, 1, row);
    const float later = c.n_in > 2 ? row_at(c, 2, row)[e] : 0.0f;
    float *y = c.out + row * c.out_stride + e, part[PARTS];
    for (uint32_t p = 0; p < PARTS; p++) part[p] = p ? x[p * width] + later : x[0];
    for (uint32_t q = 0; q < PARTS; q++) {
        float sum = 0.0f;
        for (uint32_t p = 0; p < PARTS; p++) sum += factor[q * PARTS + p] * part[p];
        y[q * width] = part[q] + sum;
    }
}

static __global__ void __launch_bounds__(COLUMNS) correct_kernel(const __grid_constant__ struct wk_custom_cuda_call c)
{
    const uint32_t row = row_of(), e = blockIdx.x * COLUMNS + threadIdx.x, width = c.out_width / PARTS;
    if (row >= c.n_rows || e >= width) return;
    const float *x = row_at(c, 0, row) + e, *factor = row_at(c, 1, row);
    const float lacked = row_at(c, 2, row)[e] - x[0];
    float *y = c.out + row * c.out_stride + e;
    for (uint32_t q = 0; q < PARTS; q++) y[q * width] = x[q * width] + (1.0f + factor[q]) * lacked;
}

static uint32_t columns_of(const struct wk_custom_cuda_call *c)
{
    return (c->out_width / PARTS + COLUMNS - 1) / COLUMNS;
}
extern "C" wk_status gemma3n_predict(const struct wk_custom_cuda_call *c, void *stream, const struct wk_err *err)
{
    predict_kernel<<<grid_of(c, columns_of(c)), COLUMNS, 0, (cudaStream_t)stream>>>(*c);
    return wk_tiles_status(cudaGetLastError(), "predict", err);
}
extern "C" wk_status gemma3n_correct(const struct wk_custom_cuda_call *c, void *stream, const struct wk_err *err)
{
    correct_kernel<<<grid_of(c, columns_of(c)), COLUMNS, 0, (cudaStream_t)stream>>>(*c);
    return wk_tiles_status(cudaGetLastError(), "correct", err);
}

/* ---- magnitudes and spreads ---------------------------------------------------------------------------- */

/* The sum of all threads' x, in every thread, always in the same order. */
static __device__ float block_sum(float x)
{
    __shared__ float sum[THREADS];
    sum[threadIdx.x] = x;
    for (uint32_t n = THREADS / 2; n; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n) sum[threadIdx.x] += sum[threadIdx.x + n];
    }
    __syncthreads();
    const float all = sum[0];
    __syncthreads(); /* the next call writes there */
    return all;
}

/* Of (x - middle)^2. */
static __device__ float mean_square(const float *x, uint32_t n, float middle)
{
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) sum += (x[i] - middle) * (x[i] - middle);
    return block_sum(sum) / (float)n;
}

static __global__ void __launch_bounds__(THREADS) as_long_kernel(const __grid_constant__ struct wk_custom_cuda_call c)
{
    const uint32_t row = row_of(), width = c.in_width[1], first = blockIdx.x * width;
    if (row >= c.n_rows) return;
    const float *x = row_at(c, 0, row) + first;
    float *y = c.out + row * c.out_stride + first;
    const float is = mean_square(x, width, 0.0f), wanted = mean_square(row_at(c, 1, row), width, 0.0f);
    const float factor = sqrtf(wanted / (is < 1e-5f ? 1e-5f : is));
    for (uint32_t i = threadIdx.x; i < width; i += THREADS) y[i] = x[i] * factor;
}

extern "C" wk_status gemma3n_as_long(const struct wk_custom_cuda_call *c, void *stream, const struct wk_err *err)
{
    as_long_kernel<<<grid_of(c, c->out_width / c->in_width[1]), THREADS, 0, (cudaStream_t)stream>>>(*c);
    return wk_tiles_status(cudaGetLastError(), "as_long", err);
}

static __global__ void __launch_bounds__(THREADS)
    above_kernel(const __grid_constant__ struct wk_custom_cuda_call c, float factor)
{
    const uint32_t row = row_of(), n = c.out_width;
    if (row >= c.n_rows) return;
    const float *x = row_at(c, 0, row);
    float *y = c.out + row * c.out_stride, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    const float mean = block_sum(sum) / (float)n, least = mean + factor * sqrtf(mean_square(x, n, mean));
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const float over = x[i] - least;
        y[i] = over <= 0.0f ? 0.0f : over; /* not a number: as it is */
    }
}

extern "C" wk_status gemma3n_above(const struct wk_custom_cuda_call *c, void *stream, const struct wk_err *err)
{
    float factor;
    if (c->params_bytes != sizeof factor) return wk_fail(err, WK_INTERNAL, "above: one factor expected");
    memcpy(&factor, c->params, sizeof factor);
    above_kernel<<<grid_of(c, 1), THREADS, 0, (cudaStream_t)stream>>>(*c, factor);
    return wk_tiles_status(cudaGetLastError(), "above", err);
}

extern "C" wk_status gemma3n_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)correct_kernel, device, WK_CUDA_BUILT, err);
}
