/* test_swirl.cu: the CUDA side of the zoo's custom operation (tests/support/test_zoo.c), as an architecture's plugin
 * would have it. */
#include <cuda_runtime.h>

#include <worker/arch_cuda.h>

struct swirl {
    wk_custom_cuda_call call;
    float half;
};

static __global__ void __launch_bounds__(128) swirl_kernel(const __grid_constant__ struct swirl s)
{
    const wk_custom_cuda_call &c = s.call;
    const uint32_t row = blockIdx.x;
    const float near = 1.0f / (1.0f + (float)c.position[row]);
    for (uint32_t i = threadIdx.x; i < c.out_width; i += blockDim.x)
        c.out[row * c.out_stride + i] = c.in[0][row * c.in_stride[0] + i] * s.half +
                                        c.in[1][row * c.in_stride[1] + i] * near + c.tensor[0][i] * c.tensor[1][0];
}

static wk_status run(const wk_custom_cuda_call *c, void *stream, const wk_err *err)
{
    if (c->n_in != 2 || c->n_tensors != 2 || c->params_bytes != sizeof(float))
        return wk_fail(err, WK_INVALID, "swirl: 2 inputs, 2 tensors and a number expected");
    const swirl s = { *c, *(const float *)c->params };
    swirl_kernel<<<c->n_rows, 128, 0, (cudaStream_t)stream>>>(s);
    const cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? WK_OK : wk_fail(err, WK_INTERNAL, "swirl: %s", cudaGetErrorString(e));
}

static wk_status open(int32_t, const wk_err *) { return WK_OK; }

static const wk_custom_cuda customs[] = { { "swirl", run } };
extern "C" const wk_arch_cuda test_swirl;
const wk_arch_cuda test_swirl = { sizeof test_swirl, 0, "org.example.zoo", open, customs, 1, 0 };
