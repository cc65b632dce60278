/* gemm.c: products of many rows through cuBLASLt, with algorithms that keep a row's bits whatever the number of rows.
 *
 * Left to itself the library may divide a sum along k, and does so by the number of rows: a prompt's bits would depend
 * on how it was cut into chunks. Here only algorithms are taken that leave each sum whole, in one accumulator that goes
 * through k in order. On Hopper the library's are all of one family whose tiles and clusters differ, but not their bits
 * (test_gemm compares them), so a shape has an algorithm for each class of row counts: a 512-row prompt against a
 * narrow matrix is up to 1.8 times as fast as with the tiles that suit 2,048 rows. Where that is not known to hold, one
 * algorithm serves all rows.
 *
 * The library's matrices are column-major: y [rows][n] is its n x rows product of w, transposed, and x. */
#include "device/cuda/kernels.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

enum { CLASSES = 5, MAX_CANDIDATES = 16, ALIGNMENT = 16 /* bytes, of every matrix and every row */ };

/* Most rows of a class, and the number for which the library is asked. The last has no upper limit. */
static const uint32_t class_rows[CLASSES] = { 128, 256, 512, 1024, 2048 };
enum { EVERY_CLASS = 4 }; /* the one that serves all rows where there is but one */

/* Where the family's bits were compared: cuBLASLt 13.1, compute capability 9.0. */
enum { FAMILY = 66, COMPARED_VERSION = 1301, COMPARED_MAJOR = 9 };

struct pinned {
    uint32_t n, k;
    bool loaded[2]; /* without and with an addend */
    cublasLtMatmulAlgo_t algo[CLASSES];
};

struct cuda_gemm {
    cublasLtHandle_t handle; /* made when the first shape is asked for */
    bool by_rows;            /* an algorithm a class */
    struct pinned *shapes;
    uint32_t n_shapes, cap;
};

static wk_status lt_check(cublasStatus_t code, const char *what, const struct wk_err *err)
{
    if (code == CUBLAS_STATUS_SUCCESS) return WK_OK;
    return wk_fail(err, code == CUBLAS_STATUS_ALLOC_FAILED ? WK_NO_MEMORY : WK_INTERNAL, "%s: %s", what,
                   cublasLtGetStatusName(code));
}

/* ---- what the library is told of a product ------------------------------------------------------------- */

struct problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, c, y;
};

static wk_status describe(struct problem *p, uint32_t rows, uint32_t n, uint32_t k, uint64_t w_stride,
                          uint64_t x_stride, uint64_t c_stride, uint64_t y_stride, const struct wk_err *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t code = cublasLtMatmulDescInit(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!code)
        code = cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (!code) code = cublasLtMatrixLayoutInit(&p->w, CUDA_R_16F, k, n, (int64_t)w_stride);
    if (!code) code = cublasLtMatrixLayoutInit(&p->x, CUDA_R_16F, k, rows, (int64_t)x_stride);
    if (!code) code = cublasLtMatrixLayoutInit(&p->c, CUDA_R_32F, n, rows, (int64_t)c_stride);
    if (!code) code = cublasLtMatrixLayoutInit(&p->y, CUDA_R_32F, n, rows, (int64_t)y_stride);
    return lt_check(code, "describing a large product to cuBLASLt", err);
}

/* The strides by which a shape's algorithm is chosen, whatever those of its calls. */
static wk_status describe_canonical(struct problem *p, uint32_t rows, uint32_t n, uint32_t k, const struct wk_err *err)
{
    const uint64_t k32 = wk_act_k(k), n16 = ((uint64_t)n + 15) & ~15ull;
    return describe(p, rows, n, k, k32, k32, n16, n16, err);
}

/* ---- choosing ------------------------------------------------------------------------------------------ */

static wk_status prefer(cublasLtMatmulPreferenceOpaque_t *preference, const struct wk_err *err)
{
    const uint64_t workspace =
        0; /* with more, what divides k crowds the list; what is chosen may use it at other numbers of rows */
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = ALIGNMENT;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES };
    cublasStatus_t code = cublasLtMatmulPreferenceInit(preference);
    if (!code)
        code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace);
    if (!code)
        code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                                    sizeof none);
    for (uint32_t i = 0; !code && i < 4; i++)
        code = cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &alignment, sizeof alignment);
    return lt_check(code, "stating what cuBLASLt may choose from", err);
}

/* Whole sums in one block: no split of k, no reduction afterwards. */
static bool undivided(const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 0;
    uint32_t reduction = 0;
    size_t written;
    return !cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                                 &written) &&
           split <= 1 &&
           !cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                                 sizeof reduction, &written) &&
           reduction == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static bool of_family(const cublasLtMatmulAlgo_t *algo)
{
    int32_t id = 0;
    size_t written;
    return !cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written) &&
           id == FAMILY;
}

static bool serves(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t *algo, uint32_t rows, uint32_t n, uint32_t k)
{
    struct problem p;
    cublasLtMatmulHeuristicResult_t found;
    return describe_canonical(&p, rows, n, k, NULL) == WK_OK &&
           !cublasLtMatmulAlgoCheck(handle, &p.op, &p.w, &p.x, &p.c, &p.y, algo, &found) &&
           found.workspaceSize <= cuda_gemm_workspace();
}

/* From a class's fewest rows to its most, or from one row to many. */
static bool serves_class(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t *algo, uint32_t class, bool by_rows,
                         uint32_t n, uint32_t k)
{
    const bool last = class == CLASSES - 1;
    const uint32_t rows[] = { by_rows && class ? class_rows[class - 1] + 1 : 1, class_rows[class],
                              last ? 4096 : class_rows[class], last ? 8192 : class_rows[class] };
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!serves(handle, algo, rows[i], n, k)) return false;
    return true;
}

static wk_status choose(const struct cuda_gemm *g, uint32_t class, uint32_t n, uint32_t k, cublasLtMatmulAlgo_t *algo,
                        const struct wk_err *err)
{
    struct problem p;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t candidates[MAX_CANDIDATES];
    int found = 0;
    wk_status status = describe_canonical(&p, class_rows[class], n, k, err);
    if (status == WK_OK) status = prefer(&preference, err);
    if (status != WK_OK) return status;
    cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(g->handle, &p.op, &p.w, &p.x, &p.c, &p.y, &preference,
                                                         MAX_CANDIDATES, candidates, &found);
    if (code != CUBLAS_STATUS_NOT_SUPPORTED &&
        (status = lt_check(code, "asking cuBLASLt for algorithms", err)) != WK_OK)
        return status;
    for (int i = 0; i < found; i++) {
        const cublasLtMatmulAlgo_t *a = &candidates[i].algo;
        if (candidates[i].state != CUBLAS_STATUS_SUCCESS || !undivided(a) || (g->by_rows && !of_family(a)) ||
            !serves_class(g->handle, a, class, g->by_rows, n, k))
            continue;
        *algo = *a;
        return WK_OK;
    }
    return wk_fail(err, WK_UNSUPPORTED,
                   "cuBLASLt has no algorithm for products of %u x %u that leaves k whole (%d looked at)", n, k, found);
}

/* A shape whose every class has one of the family's, or one for all rows. */
static wk_status choose_all(const struct cuda_gemm *g, struct pinned *s, const struct wk_err *err)
{
    struct cuda_gemm one = *g;
    wk_status status = g->by_rows ? WK_OK : WK_UNSUPPORTED;
    for (uint32_t class = 0; class < CLASSES && status == WK_OK; class ++)
        status = choose(g, class, s->n, s->k, &s->algo[class], NULL);
    if (status != WK_UNSUPPORTED)
        return status == WK_OK ? WK_OK : wk_fail(err, status, "asking cuBLASLt for algorithms of %u x %u", s->n, s->k);
    one.by_rows = false;
    status = choose(&one, EVERY_CLASS, s->n, s->k, &s->algo[EVERY_CLASS], err);
    for (uint32_t class = 0; class < CLASSES; class ++) s->algo[class] = s->algo[EVERY_CLASS];
    return status;
}

/* ---- the interface ------------------------------------------------------------------------------------- */

wk_status cuda_gemm_open(struct cuda_gemm **out, const struct wk_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory");
}

void cuda_gemm_close(struct cuda_gemm *g)
{
    if (!g) return;
    if (g->handle) (void)cublasLtDestroy(g->handle);
    free(g->shapes);
    free(g);
}

uint64_t cuda_gemm_workspace(void) { return 32ull << 20; }

static wk_status start(struct cuda_gemm *g, const struct wk_err *err)
{
    int device = 0, major = 0;
    wk_status status = lt_check(cublasLtCreate(&g->handle), "starting cuBLASLt", err);
    if (status != WK_OK) return status;
    g->by_rows = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                 major == COMPARED_MAJOR && cublasLtGetVersion() / 100 == COMPARED_VERSION;
    return WK_OK;
}

static wk_status add_shape(struct cuda_gemm *g, uint32_t n, uint32_t k, struct pinned **out, const struct wk_err *err)
{
    if (g->n_shapes == g->cap) {
        const uint32_t cap = g->cap ? 2 * g->cap : 16;
        struct pinned *grown = realloc(g->shapes, cap * sizeof *grown);
        if (!grown) return wk_fail(err, WK_NO_MEMORY, "out of memory");
        g->shapes = grown;
        g->cap = cap;
    }
    struct pinned *s = &g->shapes[g->n_shapes];
    wk_status status = g->handle ? WK_OK : start(g, err);
    s->n = n;
    s->k = k;
    s->loaded[0] = s->loaded[1] = false;
    if (status == WK_OK) status = choose_all(g, s, err);
    if (status != WK_OK) return status;
    g->n_shapes++;
    *out = s;
    return WK_OK;
}

static wk_status find_shape(struct cuda_gemm *g, uint32_t n, uint32_t k, struct pinned **out, const struct wk_err *err)
{
    for (uint32_t i = 0; i < g->n_shapes; i++)
        if (g->shapes[i].n == n && g->shapes[i].k == k) {
            *out = &g->shapes[i];
            return WK_OK;
        }
    return add_shape(g, n, k, out, err);
}

wk_status cuda_gemm_prepare(struct cuda_gemm *g, uint32_t n, uint32_t k, const struct wk_err *err)
{
    struct pinned *shape;
    return find_shape(g, n, k, &shape, err);
}

static wk_status check_call(const struct cuda_gemm_call *c, const struct wk_err *err)
{
    const uintptr_t bits = (uintptr_t)c->w | (uintptr_t)c->x | (uintptr_t)c->y | (uintptr_t)c->c;
    const char *wrong = !c->rows || !c->n || !c->k           ? "rows, n or k is 0"
                        : bits % ALIGNMENT || !c->workspace  ? "a matrix is not 16-byte aligned, or no workspace"
                        : c->w_stride % 8 || c->x_stride % 8 ? "w_stride or x_stride is no multiple of 8 halves"
                        : c->y_stride % 4 || (c->c && c->c_stride % 4)
                            ? "y_stride or c_stride is no multiple of 4 floats"
                        : c->w_stride < c->k || c->x_stride < c->k           ? "w_stride or x_stride is less than k"
                        : c->y_stride < c->n || (c->c && c->c_stride < c->n) ? "y_stride or c_stride is less than n"
                        : c->c == c->y && c->c_stride != c->y_stride         ? "c is y with another stride"
                                                                             : NULL;
    return wrong ? wk_fail(err, WK_INTERNAL, "large product of %u rows, %u x %u: %s", c->rows, c->n, c->k, wrong)
                 : WK_OK;
}

wk_status cuda_gemm_run(struct cuda_gemm *g, const struct cuda_gemm_call *c, void *stream, const struct wk_err *err)
{
    struct pinned *shape;
    struct problem p;
    wk_status status = check_call(c, err);
    if (status == WK_OK) status = find_shape(g, c->n, c->k, &shape, err);
    if (status == WK_OK)
        status = describe(&p, c->rows, c->n, c->k, c->w_stride, c->x_stride, c->c ? c->c_stride : c->y_stride,
                          c->y_stride, err);
    if (status != WK_OK) return status;
    const float beta = c->c ? 1.0f : 0.0f;
    uint32_t class = 0;
    while (class + 1 < CLASSES && c->rows > class_rows[class]) class ++;
    cublasStatus_t code =
        cublasLtMatmul(g->handle, &p.op, &c->scale, c->w, &p.w, c->x, &p.x, &beta, c->c ? c->c : c->y, &p.c, c->y, &p.y,
                       &shape->algo[class], c->workspace, (size_t)cuda_gemm_workspace(), stream);
    if (!code) return WK_OK;
    return wk_fail(err, WK_INTERNAL, "large product of %u rows, %u x %u: %s", c->rows, c->n, c->k,
                   cublasLtGetStatusName(code));
}

wk_status cuda_gemm_load(struct cuda_gemm *g, const struct cuda_gemm_call *c, void *stream, const struct wk_err *err)
{
    struct pinned *shape;
    wk_status status = find_shape(g, c->n, c->k, &shape, err);
    if (status != WK_OK || shape->loaded[c->c != NULL]) return status;
    shape->loaded[c->c != NULL] = true;
    for (uint32_t class = 0, rows = 1; class < CLASSES && rows <= c->rows && status == WK_OK;
         rows = class_rows[class ++] + 1) {
        struct cuda_gemm_call least = *c;
        least.rows = rows;
        status = cuda_gemm_run(g, &least, stream, err);
    }
    return status;
}
