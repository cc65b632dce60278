/* test_multistage.cu: all ways in which multistage can cut a product, of which the choice takes one, give the bits of
 * one row at a time. Exit status 77: no GPU here, or its image has the kernels that multistage stands in for. */
#include "product_test.cuh"

enum { MOST_ROWS = 70 };

/* A format with the kernels that are compared and no others. */
template <class F> struct compared {
    static inline const wk_family_facts facts = wk_family_facts_of<F>();
    static inline wk_kernel_pointers kernels;
    static inline wk_target target;

    template <uint32_t KERNEL> static void prepare()
    {
        const void *const k = kernels.of[KERNEL][0] = wk_kernel_pointer<KERNEL, F>();
        if (k && wk_product_prepare(k, target.device.block_bytes, &err)) printf("%s\n", text), exit(1);
    }
    /* False: multistage is not for this image. */
    static bool open()
    {
        target.family = &facts;
        target.measured = &wk_measured_h200;
        if (wk_cuda_device_read(0, &target.device, &err)) printf("%s\n", text), exit(1);
        if (target.device.can & WK_CUDA_CAN_BULK) return false;
        target.device.processors = 3; /* so that blocks have several items */
        prepare<WK_KERNEL_MULTISTAGE64>();
        prepare<WK_KERNEL_MULTISTAGE32>();
        prepare<WK_KERNEL_MULTISTAGE16>();
        prepare<WK_KERNEL_MULTISTAGE8>();
        prepare<WK_KERNEL_GEMV1>();
        return true;
    }
    static void launch(wk_plan &plan)
    {
        if (wk_plan_launch(plan, kernels, NULL, &err)) printf("%s\n", text), exit(1);
        OK(cudaDeviceSynchronize());
    }
    /* Each row of p by itself. */
    static float *rows_alone(const struct wk_cuda_product *p)
    {
        float *const y = (float *)p->seg[0].out.y;
        for (uint32_t row = 0; row < p->rows; row++) {
            const wk_cuda_product one = wk_product_part(p, row, 1);
            wk_plan plan = wk_plan_of(&target, &one);
            const char *const why = wk_row_take(plan, WK_KERNEL_GEMV1);
            CHECK(!why, "one row: %s", why);
            launch(plan);
        }
        return download(y, (uint64_t)p->rows * p->seg[0].n);
    }
    /* All that fit; how many. */
    static uint32_t cuts(const char *name, const struct wk_cuda_product *p, const float *alone)
    {
        const uint64_t n = (uint64_t)p->rows * p->seg[0].n;
        uint32_t tried = 0;
        for (uint32_t kernel = WK_KERNEL_MULTISTAGE64; kernel <= WK_KERNEL_MULTISTAGE8; kernel++)
            for (uint32_t variant = 0; variant < wk_kernels[kernel].launch.variants; variant++) {
                wk_plan plan = wk_plan_of(&target, p);
                plan.kernel = kernel;
                plan.row = &wk_kernels[kernel];
                plan.threads = plan.row->launch.threads;
                if (plan.row->shape(plan, variant)) continue;
                OK(cudaMemset(p->seg[0].out.y, 0xff, n * sizeof(float)));
                launch(plan);
                float *const y = download((float *)p->seg[0].out.y, n);
                CHECK(memcmp(y, alone, n * sizeof(float)) == 0,
                      "%s %u x %u%s, %u rows, %s, variant %u: not the bits of one row at a time", name, p->seg[0].n,
                      p->k, p->glu ? " and as many" : "", p->rows, plan.row->name, variant);
                free(y);
                tried++;
            }
        return tried;
    }
    static void check(const char *name, uint32_t n, uint32_t k, bool gated)
    {
        const struct format *f = formats;
        while (strcmp(f->name, name)) f++;
        struct matrix m = make_matrix(f, n, k, 1), up = make_matrix(f, n, k, 1);
        struct activations r = make_rows(MOST_ROWS, k, 0);
        float *const y = device<float>((uint64_t)MOST_ROWS * n);
        uint32_t tried = 0;
        for (uint32_t rows : { 3u, 8u, 13u, 30u, 64u, (uint32_t)MOST_ROWS }) {
            struct wk_cuda_product p = base(&m, &r, rows, y);
            if (gated) {
                p.n_seg = 2;
                p.glu = WK_GLU_SILU;
                p.seg[1] = p.seg[0];
                p.seg[1].tiles = up.tiles;
            }
            float *const alone = rows_alone(&p);
            tried += cuts(name, &p, alone);
            free(alone);
        }
        CHECK(tried >= 6 * 4, "%s %u x %u: only %u cuts fit", name, n, k, tried);
        printf("%s %u x %u%s: %u cuts\n", name, n, k, gated ? " and as many" : "", tried);
        OK(cudaFree(y));
        free_rows(&r);
        free_matrix(&up);
        free_matrix(&m);
    }
};

/* k of a part of a K step, of K steps that not all parts have, of several rounds of K slices; tiles cut short. */
static void tests(void)
{
    for (uint32_t k : { 32u, 896u, 2880u }) {
        compared<q8_0>::check("q8_0", 100, k, false);
        compared<q8_0>::check("q8_0", 160, k, true);
    }
    for (uint32_t k : { 256u, 4352u }) {
        compared<q6_k>::check("q6_K", 72, k, false);
        compared<q6_k>::check("q6_K", 72, k, true);
    }
}

int main(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count || !compared<q8_0>::open() || !compared<q6_k>::open()) {
        printf("test_multistage: no GPU here with an image for 8.x\n");
        return 77;
    }
    tests();
    printf("test_multistage: %d failures\n", failures);
    return failures != 0;
}
