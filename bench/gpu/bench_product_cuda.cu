/* bench/gpu/bench_product_cuda.cu: how near products of quantized tiles come to the GPU's read bandwidth.
 *
 *     bench_product_cuda [all|shapes|models|experts] [all|format] [columns...]
 *
 * shapes: each format at matrices of real models, 1 to 64 columns: dependent launches in a graph over copies that
 * together exceed the L2 cache; GB/s of tiles and the share of R. models: all products of a decode step in a row as an
 * executor launches them (norms in prologues, residuals, gated activation), no attention. experts: gate|up and down of
 * GPT-OSS-20B's experts (top 4 of 32, 2880 x 2880) in a row, for one to 2048 rows. R is what a plain read of 8 GB
 * reaches in the run. Medians of 15 replays. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../core/device/cuda/read_all.cuh"
#include "../../tests/quant/cuda/quant_formats.cuh"

static double R; /* bytes a second */
static cudaStream_t stream;

static __global__ void fill_kernel(uint32_t *p, uint64_t n, uint32_t seed)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ seed;
        h ^= h >> 16;
        h *= 0x85ebca6bu;
        h ^= h >> 13;
        h *= 0xc2b2ae35u;
        p[i] = h ^ h >> 16;
    }
}
/* Scales of blocks of random bytes become small numbers: the upper byte of an f16, or an exponent. */
static __global__ void scale_kernel(unsigned char *rows, uint64_t blocks, uint32_t block_bytes, uint32_t at,
                                    unsigned char value)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < blocks;
         i += (uint64_t)gridDim.x * blockDim.x)
        rows[i * block_bytes + at] = value;
}
static __global__ void float_kernel(float *x, uint64_t n, float value)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
        x[i] = value * (float)((int)(i * 2654435761u >> 16 & 255) - 127);
}
static __global__ void half_kernel(__half *x, uint64_t n)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
        x[i] = __float2half(0.01f * (float)((int)(i * 2654435761u >> 16 & 255) - 127));
}

/* The best of several reads. Its memory is not given back: the driver clears what is, for some time, and what is
 * measured then is a tenth slower. */
static double read_rate(void)
{
    const uint64_t bytes = (uint64_t)8 << 30;
    int processors = 0;
    double best = 0.0;
    uint4 *x;
    cudaEvent_t a, b;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    OK(cudaMalloc(&x, bytes));
    OK(cudaMemset(x, 0, bytes));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    for (int i = 0; i < 8; i++) {
        float ms;
        OK(cudaEventRecord(a, stream));
        read_all<<<READ_ALL_BLOCKS * processors, READ_ALL_THREADS, 0, stream>>>(x, bytes / sizeof *x, (uint32_t *)x);
        OK(cudaEventRecord(b, stream));
        OK(cudaEventSynchronize(b));
        OK(cudaEventElapsedTime(&ms, a, b));
        if (i) best = std::max(best, (double)bytes / (1e-3 * ms)); /* the first wakes the clocks */
    }
    return best;
}

static const struct format *find(const char *name)
{
    for (const struct format &f : formats)
        if (!strcmp(f.name, name)) return &f;
    return NULL;
}
/* Memory that the driver gets back it clears for some time, and what is measured then is a tenth slower: so blocks stay
 * here, for others of up to twice as few bytes, until there are no more. */
enum { BLOCKS = 1024 };
static struct {
    void *p;
    uint64_t bytes;
    bool used;
} block[BLOCKS];
static void *take(uint64_t bytes)
{
    int best = -1, free = -1;
    for (int i = 0; i < BLOCKS; i++) {
        if (!block[i].p)
            free = i;
        else if (!block[i].used && block[i].bytes >= bytes && block[i].bytes <= 2 * bytes &&
                 (best < 0 || block[i].bytes < block[best].bytes))
            best = i;
    }
    if (best < 0 && free >= 0) {
        best = free;
        block[best].bytes = bytes;
        if (cudaMalloc(&block[best].p, bytes) != cudaSuccess) { /* after all */
            (void)cudaGetLastError();
            for (auto &b : block)
                if (b.p && !b.used) OK(cudaFree(b.p)), b.p = NULL;
            OK(cudaMalloc(&block[best].p, bytes));
        }
    }
    if (best < 0) {
        printf("more than %d matrices\n", (int)BLOCKS);
        exit(1);
    }
    block[best].used = true;
    return block[best].p;
}
static void give_back(void *p)
{
    for (auto &b : block)
        if (b.p == p) b.used = false;
}
static unsigned char *tiles_of(const struct format *f, uint32_t n, uint32_t k, uint32_t seed)
{
    const uint64_t blocks = (uint64_t)n * (k / f->block), bytes = blocks * f->block_bytes,
                   size = (n + 15) / 16 * f->tile_stride(k);
    unsigned char *const rows = static_cast<unsigned char *>(take(bytes + 16)), *const tiles =
                                                                                    static_cast<unsigned char *>(
                                                                                        take(size));
    fill_kernel<<<2048, 256>>>((uint32_t *)rows, bytes / 4, seed);
    for (uint32_t at : f->halves)
        if (at != 0xffff) scale_kernel<<<2048, 256>>>(rows, blocks, f->block_bytes, at + 1, 0x10);
    if (f->exponent != 0xffff)
        scale_kernel<<<2048, 256>>>(rows, blocks, f->block_bytes, f->exponent, f->block == 1 ? 0x3c : 116);
    f->pack(tiles, rows, n, k);
    OK(cudaDeviceSynchronize());
    give_back(rows);
    return tiles;
}

enum { MAX_K = 16384, MAX_N = 201088, ROWS = 64 }; /* of any matrix below; y is [ROWS][MAX_N] */
static __half *act[2];
static float *res, *part, *y, *weight;
static void *workspace;
static void buffers(void)
{
    for (int i = 0; i < 2; i++) {
        OK(cudaMalloc(&act[i], ROWS * MAX_K * sizeof(__half)));
        half_kernel<<<256, 256>>>(act[i], ROWS * MAX_K);
    }
    OK(cudaMalloc(&res, ROWS * MAX_K * sizeof(float)));
    OK(cudaMalloc(&part, ROWS * MAX_K / 16 * sizeof(float)));
    OK(cudaMalloc(&weight, MAX_K * sizeof(float)));
    OK(cudaMalloc(&workspace, ROWS * MAX_K * sizeof(float)));
    OK(cudaMalloc(&y, (uint64_t)ROWS * MAX_N * sizeof(float)));
    float_kernel<<<256, 256>>>(res, ROWS * MAX_K, 0.01f);
    float_kernel<<<256, 256>>>(weight, MAX_K, 0.01f);
    float_kernel<<<256, 256>>>(part, ROWS * MAX_K / 16, 0.1f);
    OK(cudaDeviceSynchronize());
}

static void enqueue(const struct format *f, const struct wk_cuda_product *p)
{
    if (f->family->product(p, stream, &err)) {
        printf("%s\n", text);
        exit(1);
    }
}
template <class Fn> static double graph_seconds(Fn fn)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t a, b;
    double t[15];
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    fn();
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    for (int i = -3; i < 15; i++) {
        OK(cudaEventRecord(a, stream));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaEventRecord(b, stream));
        OK(cudaEventSynchronize(b));
        float ms;
        OK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 0) t[i] = 1e-3 * ms;
    }
    std::sort(t, t + 15);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    return t[7];
}
static struct wk_cuda_product product(uint32_t rows, uint32_t k)
{
    struct wk_cuda_product p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.flags = WK_CUDA_DEPENDENT;
    p.rows = rows;
    p.k = k;
    p.n_seg = 1;
    p.input.x = act[0];
    p.workspace = workspace;
    p.seg[0].out.y = y;
    return p;
}

static bool wanted_columns[ROWS + 1];
static void shapes(const char *only)
{
    static const uint32_t list[][2] = { { 128256, 8192 }, { 128256, 4096 }, { 128256, 3072 }, { 28672, 8192 },
                                        { 27648, 5120 },  { 22016, 4096 },  { 9216, 3072 },   { 4096, 4096 },
                                        { 4096, 11008 },  { 151936, 896 },  { 151936, 1024 }, { 128256, 2048 },
                                        { 9728, 896 },    { 1152, 896 },    { 896, 896 },     { 896, 4864 },
                                        { 201088, 2880 }, { 23040, 2880 },  { 5760, 2880 },   { 2880, 2880 } };
    for (const struct format &f : formats) {
        if (only && strcmp(only, f.name)) continue;
        for (auto &s : list) {
            const uint32_t n = s[0], k = s[1];
            if (k % f.block) continue;
            if (n > MAX_N || k > MAX_K) {
                printf("%u x %u: at most %u x %u\n", n, k, (unsigned)MAX_N, (unsigned)MAX_K);
                exit(1);
            }
            const uint64_t bytes = (n + 15) / 16 * f.tile_stride(k);
            const uint32_t copies =
                (uint32_t)std::min<uint64_t>(std::max<uint64_t>(4, 1200000000 / bytes),
                                             64); /* so many that what a graph costs by itself is little */
            unsigned char *w[64];
            for (uint32_t i = 0; i < copies; i++) w[i] = tiles_of(&f, n, k, i + 1);
            printf("%-5s %6u x %5u %6.1f MB:", f.name, n, k, (double)bytes * 1e-6);
            for (uint32_t columns : { 1u, 8u, 32u, 64u }) {
                if (!wanted_columns[columns]) continue;
                const double t = graph_seconds([&] {
                                     for (uint32_t i = 0; i < copies; i++) {
                                         struct wk_cuda_product p = product(columns, k);
                                         p.seg[0].tiles = w[i];
                                         p.seg[0].ggml_type = f.type;
                                         p.seg[0].n = n;
                                         p.seg[0].out.y_stride = n;
                                         enqueue(&f, &p);
                                     }
                                 }) /
                                 copies;
                printf("  %2u: %7.2f us %4.0f GB/s %3.0f %%", columns, 1e6 * t, (double)bytes / t * 1e-9,
                       (double)bytes / t / R * 100);
                if (columns >= 32) printf(" %3.0f TFLOP/s", 2e-12 * n * k * columns / t);
            }
            printf("\n");
            for (uint32_t i = 0; i < copies; i++) give_back(w[i]);
        }
    }
}

/* A segment of a layer's product, by kind of layer (two alternate). */
struct seg {
    uint32_t n;
    const char *type[2];
};
struct model {
    const char *name;
    uint32_t layers, width, hidden, attn; /* attn: width of attention's output */
    struct seg qkv[3], o, gate, up, down, head;
};
static const struct model models[] = {
    { "Qwen2.5-0.5B Q4_K_M",
      24,
      896,
      4864,
      896,
      { { 896, { "q5_0", "q5_0" } }, { 128, { "q5_0", "q5_0" } }, { 128, { "q8_0", "q5_0" } } },
      { 896, { "q5_0", "q5_0" } },
      { 4864, { "q5_0", "q5_0" } },
      { 4864, { "q5_0", "q5_0" } },
      { 896, { "q6_K", "q4_K" } },
      { 151936, { "q8_0", "q8_0" } } },
    { "Phi-3-mini Q4_K_M",
      32,
      3072,
      8192,
      3072,
      { { 9216, { "q5_K", "q5_K" } }, { 0, { NULL, NULL } }, { 0, { NULL, NULL } } },
      { 3072, { "q4_K", "q4_K" } },
      { 8192, { "q4_K", "q4_K" } },
      { 8192, { "q4_K", "q4_K" } },
      { 3072, { "q6_K", "q4_K" } },
      { 32064, { "q6_K", "q6_K" } } },
    { "Llama-2-7B Q8_0",
      32,
      4096,
      11008,
      4096,
      { { 4096, { "q8_0", "q8_0" } }, { 4096, { "q8_0", "q8_0" } }, { 4096, { "q8_0", "q8_0" } } },
      { 4096, { "q8_0", "q8_0" } },
      { 11008, { "q8_0", "q8_0" } },
      { 11008, { "q8_0", "q8_0" } },
      { 4096, { "q8_0", "q8_0" } },
      { 32000, { "q8_0", "q8_0" } } },
};

struct tensor {
    const struct format *f;
    unsigned char *w;
};
enum { Q, K, V, O, GATE, UP, DOWN, TENSORS };

static void set_input(struct wk_cuda_product *p, const struct model *m, const struct format *f)
{
    if (p->rows > f->family->norm_rows(p)) return; /* norm in the prologue, where it may be */
    p->input.kind = WK_CUDA_IN_RMS;
    p->input.eps = 1e-5f;
    p->input.x = res;
    p->input.aux = part;
    p->input.w = weight;
    p->input.x_stride = m->width;
}
static void set_residual(struct wk_cuda_product *p, const struct model *m)
{
    p->seg[0].out.y = res;
    p->seg[0].out.y_stride = m->width;
    p->seg[0].out.aux = part;
    p->residual = res;
    p->residual_stride = m->width;
}
static void set_segment(struct wk_cuda_product *p, uint32_t i, uint32_t n, const struct tensor &t)
{
    p->seg[i].tiles = t.w;
    p->seg[i].ggml_type = t.f->type;
    p->seg[i].n = n;
}
static void enqueue_layer(const struct model *m, const struct tensor *t, uint32_t columns)
{
    struct wk_cuda_product p = product(columns, m->width);
    p.n_seg = 0;
    for (uint32_t i = Q, at = 0; i <= V && t[i].f; i++) {
        set_segment(&p, p.n_seg, m->qkv[i].n, t[i]);
        p.seg[p.n_seg].out.y = y + at;
        p.seg[p.n_seg++].out.y_stride = 16384;
        at += m->qkv[i].n;
    }
    set_input(&p, m, t[Q].f);
    enqueue(t[Q].f, &p);
    p = product(columns, m->attn);
    set_segment(&p, 0, m->width, t[O]);
    set_residual(&p, m);
    enqueue(t[O].f, &p);
    p = product(columns, m->width);
    p.n_seg = 2;
    p.glu = WK_GLU_SILU;
    set_segment(&p, 0, m->hidden, t[GATE]);
    set_segment(&p, 1, m->hidden, t[UP]);
    p.seg[0].out.kind = WK_CUDA_OUT_ACT;
    p.seg[0].out.y = act[1];
    p.seg[0].out.shift = 4;
    set_input(&p, m, t[GATE].f);
    enqueue(t[GATE].f, &p);
    p = product(columns, m->hidden);
    p.input.x = act[1];
    p.input.shift = 4;
    set_segment(&p, 0, m->width, t[DOWN]);
    set_residual(&p, m);
    enqueue(t[DOWN].f, &p);
}
static void run_model(const struct model *m)
{
    struct tensor t[40][TENSORS], head;
    uint64_t bytes = 0;
    uint32_t seed = 0, products = 4 * m->layers + 1;
    auto make = [&](const struct seg &s, uint32_t kind, uint32_t k) {
        struct tensor made = { s.n ? find(s.type[kind]) : NULL, NULL };
        made.w = made.f ? tiles_of(made.f, s.n, k, ++seed) : NULL;
        if (made.f) bytes += (s.n + 15) / 16 * made.f->tile_stride(k);
        return made;
    };
    for (uint32_t l = 0; l < m->layers; l++) {
        for (int i = Q; i <= V; i++) t[l][i] = make(m->qkv[i], l % 2, m->width);
        t[l][O] = make(m->o, l % 2, m->attn);
        t[l][GATE] = make(m->gate, l % 2, m->width);
        t[l][UP] = make(m->up, l % 2, m->width);
        t[l][DOWN] = make(m->down, l % 2, m->hidden);
    }
    head = make(m->head, 0, m->width);
    printf("%s, %u products, %.3f GB:", m->name, products, (double)bytes * 1e-9);
    for (uint32_t columns : { 1u, 2u, 8u, 16u, 32u, 64u }) {
        if (!wanted_columns[columns]) continue;
        const double s = graph_seconds([&] {
            for (uint32_t l = 0; l < m->layers; l++) enqueue_layer(m, t[l], columns);
            struct wk_cuda_product p = product(columns, m->width);
            set_segment(&p, 0, m->head.n, head);
            set_input(&p, m, head.f);
            p.seg[0].out.y_stride = m->head.n;
            enqueue(head.f, &p);
        });
        printf("\n  %2u columns: %8.1f us, %5.2f a product, %.2f TB/s, %4.1f %% of R, %.0f tok/s", columns, 1e6 * s,
               1e6 * s / products, (double)bytes / s * 1e-12, (double)bytes / s / R * 100, columns / s);
    }
    printf("\n");
    for (uint32_t l = 0; l < m->layers; l++)
        for (auto &x : t[l]) give_back(x.w);
    give_back(head.w);
}

enum { EXPERTS = 32, TOP = 4 };
/* A layer's choice: TOP different experts a row, the first of a shuffle. Returns how many are used; *ids and *groups
 * are on the device, to be freed. */
static uint32_t choose(uint32_t rows, uint32_t *seed, uint32_t **ids, uint32_t **groups)
{
    uint32_t *id = (uint32_t *)malloc(rows * TOP * sizeof *id), used = 0;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t all[EXPERTS];
        for (uint32_t e = 0; e < EXPERTS; e++) all[e] = e;
        for (uint32_t s = 0; s < TOP; s++) {
            *seed = *seed * 1664525u + 1013904223u;
            std::swap(all[s], all[s + (*seed >> 8) % (EXPERTS - s)]);
            id[r * TOP + s] = all[s];
        }
    }
    uint32_t *g = items_by_expert(id, TOP, rows, TOP, EXPERTS, 0);
    for (uint32_t e = 0; e < EXPERTS; e++) used += g[EXPERTS + e + 1] > g[EXPERTS + e];
    const uint64_t words = wk_cuda_group_words(EXPERTS, rows * TOP);
    OK(cudaMalloc(ids, rows * TOP * sizeof *id));
    OK(cudaMalloc(groups, words * sizeof *g));
    OK(cudaMemcpy(*ids, id, rows * TOP * sizeof *id, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(*groups, g, words * sizeof *g, cudaMemcpyHostToDevice));
    free(id);
    free(g);
    return used;
}

/* Layers of gate|up and down with a choice of experts each; two layers' weights by turns exceed
 * the cache many times. */
static void experts(const struct format *f)
{
    enum { WIDTH = 2880, LAYERS = 8, MOST = 2048 };
    const uint64_t tiles = WIDTH / 16 * f->tile_stride(WIDTH);
    unsigned char *w[2][3];
    __half *x, *hidden;
    float *out, *bias;
    for (uint32_t i = 0; i < 6; i++) w[i / 3][i % 3] = tiles_of(f, EXPERTS * WIDTH, WIDTH, i + 1);
    OK(cudaMalloc(&x, MOST * WIDTH * sizeof *x));
    OK(cudaMalloc(&hidden, (uint64_t)MOST * TOP * WIDTH * sizeof *hidden));
    OK(cudaMalloc(&out, (uint64_t)MOST * TOP * WIDTH * sizeof *out));
    OK(cudaMalloc(&bias, EXPERTS * WIDTH * sizeof *bias));
    half_kernel<<<256, 256>>>(x, MOST * WIDTH);
    float_kernel<<<256, 256>>>(bias, EXPERTS * WIDTH, 0.01f);
    printf("%s, %u experts of 3 x %u x %u, top %u: microseconds a layer\n", f->name, EXPERTS, WIDTH, WIDTH, TOP);
    for (uint32_t rows : { 1u, 2u, 4u, 8u, 16u, 32u, 64u, 512u, (uint32_t)MOST }) {
        uint32_t *ids[LAYERS], *groups[LAYERS], seed = rows;
        double used = 0;
        for (uint32_t l = 0; l < LAYERS; l++) used += choose(rows, &seed, &ids[l], &groups[l]) / (double)LAYERS;
        printf("  %4u rows, %4.1f experts:", rows, used);
        for (uint32_t part = 1; part < 4; part++) { /* gate|up, down, both */
            const double t =
                graph_seconds([&] {
                    for (uint32_t l = 0; l < LAYERS; l++) {
                        struct wk_cuda_product p = product(rows * TOP, WIDTH);
                        p.expert = ids[l];
                        p.groups = groups[l];
                        p.n_experts = EXPERTS;
                        p.expert_stride = p.top_k = p.x_items = TOP;
                        p.input.x = x;
                        p.n_seg = 2;
                        p.glu = WK_GLU_SILU_CLAMPED;
                        p.alpha = 1.702f;
                        p.limit = 7.0f;
                        for (uint32_t i = 0; i < 2; i++)
                            p.seg[i] = { w[l % 2][i], bias, f->type, WIDTH, { WK_CUDA_OUT_ACT, 4, hidden, NULL, 0 } };
                        if (part & 1) enqueue(f, &p);
                        p.glu = 0;
                        p.n_seg = p.x_items = 1;
                        p.input.x = hidden;
                        p.input.shift = 4;
                        p.seg[0] = { w[l % 2][2], bias, f->type, WIDTH, { WK_CUDA_OUT_F32, 0, out, NULL, WIDTH } };
                        if (part == 3) p.flags |= WK_CUDA_GROUPS_KNOWN;
                        if (part & 2) enqueue(f, &p);
                    }
                }) /
                LAYERS;
            const double bytes = used * (double)tiles * (part == 3 ? 3 : part == 1 ? 2 : 1);
            printf("%s %6.1f us", part == 1 ? " " : part == 2 ? " +" : " =", 1e6 * t);
            if (part == 3) printf(" (%2.0f %% of R)", bytes / t / R * 100);
            if (part == 3 && rows > 16) printf(" %.0f TFLOP/s", 6e-12 * rows * TOP * WIDTH * WIDTH / t);
        }
        printf("\n");
        for (uint32_t l = 0; l < LAYERS; l++) {
            OK(cudaFree(ids[l]));
            OK(cudaFree(groups[l]));
        }
    }
    for (uint32_t i = 0; i < 6; i++) give_back(w[i / 3][i % 3]);
    OK(cudaFree(x));
    OK(cudaFree(hidden));
    OK(cudaFree(out));
    OK(cudaFree(bias));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all", *only = argc > 2 && strcmp(argv[2], "all") ? argv[2] : NULL;
    for (uint32_t i = 1; i <= ROWS; i++) wanted_columns[i] = argc <= 3;
    for (int i = 3; i < argc; i++)
        if (atoi(argv[i]) > 0 && atoi(argv[i]) <= ROWS) wanted_columns[atoi(argv[i])] = true;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const struct wk_product_family *f : families)
        if (f->open(0, &err)) {
            printf("open: %s\n", text);
            return 1;
        }
    R = read_rate();
    printf("R %.2f TB/s\n", R * 1e-12);
    buffers();
    const bool all = !strcmp(what, "all");
    if (all || !strcmp(what, "shapes")) shapes(only);
    if (all || !strcmp(what, "experts"))
        for (const struct format &f : formats)
            if (2880 % f.block == 0 && (!only || !strcmp(only, f.name))) experts(&f);
    if (all || !strcmp(what, "models"))
        for (const struct model &m : models)
            if (!getenv("MODEL") || strstr(m.name, getenv("MODEL"))) run_model(&m);
    return 0;
}
