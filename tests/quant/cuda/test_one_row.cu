/* test_one_row.cu: products of one row of every format against the double-precision reference, of k so long that each
 * K slice has several K steps, in one stage of the ring or in several. Small enough for the emulator. Exit status 77:
 * no GPU here. */
#include "product_test.cuh"

static void one_row(const struct format *f, uint32_t k)
{
    enum { N = 33 };
    struct matrix m = make_matrix(f, N, k);
    struct activations r = make_rows(1, k, 0);
    double *ref = reference(&m, &r);
    float *y = device<float>(N);
    struct wk_cuda_product p = base(&m, &r, 1, y);
    run(&m, &p);
    float *h = download(y, N);
    const double d = distance(h, ref, N);
    CHECK(d < 3e-5, "%s %d x %u: distance %.3g", f->name, N, k, d);
    free(h);
    free(ref);
    OK(cudaFree(y));
    free_rows(&r);
    free_matrix(&m);
}
static void tests(void)
{
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t k : { 2048u, 4096u, 6144u, 8192u, 11008u }) one_row(f, k);
}

int main(void) { return run_tests("test_one_row", tests); }
