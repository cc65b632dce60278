/* cublaslt.c: the products that core/device/cuda/gemm.c asks of cuBLASLt: y = scale w^T x + beta c, halves in, F32 out,
 * each sum whole and in the order of k. One way to compute, which says of itself what the library's on Hopper say; but
 * what is chosen for another power of two of rows is another algorithm with code of its own. */
#include "runtime.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

enum { VERSION = 130100, FAMILY = 66, CODES = 32, CODE_BYTES = 1 << 16 /* of an algorithm */ };
struct layout {
    int32_t type;
    uint64_t rows, cols;
    int64_t stride;
};
struct described {
    int32_t transposed_a, transposed_b;
};
_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
                   sizeof(struct described) <= sizeof(cublasLtMatmulDescOpaque_t),
               "what is kept in the library's structs fits");

size_t cublasLtGetVersion(void) { return VERSION; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    memset(desc, 0, size);
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    struct described *d = (struct described *)(void *)desc;
    if (bytes != sizeof(int32_t) ||
        (attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &d->transposed_a : &d->transposed_b, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t stride)
{
    memset(layout, 0, size);
    *(struct layout *)(void *)layout = (struct layout){ (int32_t)type, rows, cols, stride };
    return stride >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size)
{
    memset(preference, 0, size);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    (void)preference, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    const struct described *o = (const struct described *)(const void *)desc;
    const struct layout *w = (const void *)a, *x = (const void *)b, *z = (const void *)c, *y = (const void *)d;
    if (o->transposed_a != CUBLAS_OP_T || o->transposed_b != CUBLAS_OP_N || w->type != CUDA_R_16F ||
        x->type != CUDA_R_16F || y->type != CUDA_R_32F || z->type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return w->rows == x->rows && y->rows == w->cols && y->cols == x->cols && z->rows == y->rows && z->cols == y->cols
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
static void describe(cublasLtMatmulHeuristicResult_t *r, cublasStatus_t state, uint64_t code)
{
    memset(r, 0, sizeof *r);
    r->state = state;
    r->algo.data[0] = FAMILY;
    r->algo.data[1] = code;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *found)
{
    (void)handle, (void)preference;
    const cublasStatus_t s = check(desc, a, b, c, d);
    *found = s == CUBLAS_STATUS_SUCCESS && most > 0;
    uint64_t code = 0;
    while (code + 1 < CODES && ((const struct layout *)(const void *)b)->cols >> code > 1) code++;
    if (*found) describe(out, s, code);
    return s;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *out)
{
    (void)handle;
    const cublasStatus_t s = algo->data[0] == FAMILY ? check(desc, a, b, c, d) : CUBLAS_STATUS_NOT_SUPPORTED;
    describe(out, s, algo->data[1]);
    return s;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written)
{
    const uint32_t v = attribute == CUBLASLT_ALGO_CONFIG_ID           ? (uint32_t)algo->data[0]
                       : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1
                                                                      : 0;
    if (bytes < sizeof v) return CUBLAS_STATUS_INVALID_VALUE;
    memset(value, 0, bytes);
    memcpy(value, &v, sizeof v);
    *written = sizeof v;
    return CUBLAS_STATUS_SUCCESS;
}

struct product {
    struct layout w, x, c, y;
    float scale, beta;
    const uint16_t *pw, *px;
    const float *pc;
    float *py;
};

static void widen(float *to, const uint16_t *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) to[i] = _cvtsh_ss(from[i]);
}
static void multiply(const void *told)
{
    const struct product *p = told;
    const uint64_t k = p->w.rows, n = p->w.cols, rows = p->x.cols;
    float *x = malloc((rows + 1) * k * sizeof *x), *w = x + rows * k;
    if (!x) abort();
    for (uint64_t r = 0; r < rows; r++) widen(x + r * k, p->px + r * (uint64_t)p->x.stride, k);
    for (uint64_t i = 0; i < n; i++) {
        widen(w, p->pw + i * (uint64_t)p->w.stride, k);
        for (uint64_t r = 0; r < rows; r++) {
            float part[16] = { 0 }, sum = 0; /* every sixteenth value, then the sixteen in order */
            uint64_t j = 0;
            for (; j + 16 <= k; j += 16)
                for (unsigned l = 0; l < 16; l++) part[l] = __builtin_fmaf(w[j + l], x[r * k + j + l], part[l]);
            for (; j < k; j++) part[j % 16] = __builtin_fmaf(w[j], x[r * k + j], part[j % 16]);
            for (unsigned l = 0; l < 16; l++) sum += part[l];
            float *y = p->py + r * (uint64_t)p->y.stride + i;
            *y = p->scale * sum + (p->beta != 0 ? p->beta * p->pc[r * (uint64_t)p->c.stride + i] : 0.0f);
        }
    }
    free(x);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    static _Atomic bool loaded[CODES];
    (void)handle, (void)workspace, (void)workspace_bytes;
    const cublasStatus_t s =
        algo->data[0] == FAMILY && algo->data[1] < CODES ? check(desc, la, lb, lc, ld) : CUBLAS_STATUS_INVALID_VALUE;
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    if (!loaded[algo->data[1]]) code_loaded(CODE_BYTES);
    loaded[algo->data[1]] = true;
    struct product *p = malloc(sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    *p = (struct product){ *(const struct layout *)(const void *)la,
                           *(const struct layout *)(const void *)lb,
                           *(const struct layout *)(const void *)lc,
                           *(const struct layout *)(const void *)ld,
                           *(const float *)alpha,
                           *(const float *)beta,
                           a,
                           b,
                           c,
                           d };
    return enqueue(stream, (struct work){ .kind = WORK_MATMUL, .call = multiply, .told = p }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
