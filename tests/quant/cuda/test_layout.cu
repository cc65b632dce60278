/* test_layout.cu: products whose acts lie by runs or as panels: where a module says that it takes or leaves them so,
 * the bits of the same by rows; elsewhere a refusal. Exit status 77: no GPU here. */
#include "product_test.cuh"

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/panels.cuh>

/* Halves that lie in the places of rows that are not there. */
enum { NOBODY = 0x7fff };

/* Where value e of row r lies of acts of `places` rows. */
static uint64_t place_in(uint32_t kind, uint32_t group, uint32_t places, uint32_t k32, uint32_t r, uint32_t e)
{
    if (kind == WK_CUDA_IN_RUNS) return ((uint64_t)(r / 32 * (k32 / 32) + e / 32) * 32 + r % 32) * 32 + e % 32;
    return ((uint64_t)(e / WK_PANEL_K) * places + r) * (WK_PANEL_ROW / 2) + wk_panel_at(group, r, e % WK_PANEL_K) / 2;
}
static uint64_t halves_of(uint32_t kind, uint32_t places, uint32_t k32)
{
    return kind == WK_CUDA_IN_RUNS ? (uint64_t)places * k32 : wk_cuda_panel_bytes(k32, places) / 2;
}

static const char *described(const struct matrix *m, const struct wk_cuda_product *p)
{
    static char s[128];
    (void)snprintf(s, sizeof s, "%s, %u x %u%s, %u rows", m->f->name, m->n, m->k, p->glu ? " and as many" : "",
                   p->rows);
    return s;
}

/* The product as it stands, F32 results, and with its input as its module wants it. */
static void check_input(const struct matrix *m, const struct wk_cuda_product *act, const struct wk_cuda_layout &l,
                        float *y)
{
    const uint32_t k32 = wk_act_k(m->k), rows = act->rows, places = wk_cuda_row_places(rows);
    const uint64_t n = (uint64_t)rows * m->n, all = halves_of(l.in, places, k32);
    struct wk_cuda_product p = *act;
    run(m, &p);
    float *a = download(y, n);
    uint16_t *from = download((const uint16_t *)act->input.x, (uint64_t)rows * k32), *to = (uint16_t *)malloc(all * 2);
    for (uint64_t i = 0; i < all; i++) to[i] = NOBODY;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t e = 0; e < k32; e++)
            to[place_in(l.in, l.in_group, places, k32, r, e)] = from[(uint64_t)r * k32 + e];
    uint16_t *placed = upload(to, all);
    p.input.kind = l.in;
    p.input.x = placed;
    p.input.x_stride = l.in == WK_CUDA_IN_PANELS ? places : 0;
    OK(cudaMemset(y, 0, n * 4));
    poison();
    run(m, &p);
    float *b = download(y, n);
    CHECK(a[0] == a[0] && memcmp(a, b, n * 4) == 0, "%s: input kind %u gives other bits", described(m, &p), l.in);
    OK(cudaFree(placed));
    free(from);
    free(to);
    free(a);
    free(b);
}

/* Its act as panels of order `group` or by runs: the values that it leaves by rows, and nothing where no row is. */
static void check_output(const struct matrix *m, const struct wk_cuda_product *f32, uint32_t kind, uint32_t group)
{
    const uint32_t in = kind == WK_CUDA_OUT_RUNS ? WK_CUDA_IN_RUNS : WK_CUDA_IN_PANELS; /* the same layout */
    const uint32_t rows = f32->rows, places = wk_cuda_row_places(rows), n32 = wk_act_k(m->n);
    const uint64_t all = halves_of(in, places, n32);
    uint16_t *y = device<uint16_t>((uint64_t)rows * n32), *z = device<uint16_t>(all);
    struct wk_cuda_product p = *f32;
    p.seg[0].out.kind = WK_CUDA_OUT_ACT;
    p.seg[0].out.shift = 4;
    p.seg[0].out.y = y;
    run(m, &p);
    p.seg[0].out.kind = kind;
    p.seg[0].out.y = z;
    p.seg[0].out.y_stride = places;
    p.out_group = group;
    run(m, &p);
    uint16_t *a = download(y, (uint64_t)rows * n32), *b = download(z, all);
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < places; r++)
        for (uint32_t j = 0; j < m->n; j++)
            wrong += b[place_in(in, group, places, n32, r, j)] != (r < rows ? a[(uint64_t)r * n32 + j] : 0xffff);
    CHECK(wrong == 0, "%s: %llu values of out kind %u, order %u are wrong", described(m, &p), (unsigned long long)wrong,
          kind, group);
    free(a);
    free(b);
    OK(cudaFree(y));
    OK(cudaFree(z));
}

static void check_refused(const struct matrix *m, const struct wk_cuda_product *act, const char *what)
{
    text[0] = 0;
    CHECK(m->f->family->product(act, NULL, &err) == WK_INVALID && strstr(text, "kind"), "%s: %s: was not refused: '%s'",
          described(m, act), what, text);
}
static void refuse(const struct matrix *m, const struct wk_cuda_product *act, const struct wk_cuda_layout &l)
{
    for (uint32_t kind : { (uint32_t)WK_CUDA_IN_PANELS, (uint32_t)WK_CUDA_IN_RUNS }) {
        struct wk_cuda_product p = *act;
        p.input.kind = kind;
        p.input.x_stride = wk_cuda_row_places(p.rows);
        if (kind != l.in) check_refused(m, &p, "an input that it does not take");
    }
    for (uint32_t kind : { (uint32_t)WK_CUDA_OUT_PANELS, (uint32_t)WK_CUDA_OUT_RUNS }) {
        struct wk_cuda_product p = *act;
        p.seg[0].out.kind = kind;
        p.seg[0].out.y_stride = wk_cuda_row_places(p.rows);
        p.out_group = 32;
        if (kind != l.out) check_refused(m, &p, "an act that it does not leave");
    }
}

/* expected: what k-quants (or else the basic ones) take of 17 to 64 rows of one matrix, and runs of fewer. */
static void test_layouts(uint32_t k, uint32_t n, uint32_t expected, bool k_quants)
{
    int by_kind[WK_CUDA_IN_RUNS + 1] = {}, out = 0;
    struct wk_image image;
    OK(wk_image_read(&image));
    for (const struct format *f = formats; f < formats + N_FORMATS; f++) {
        if (k % f->block) continue;
        struct activations r = make_rows(65, k, k == 896 ? 4 : 0);
        struct matrix m = make_matrix(f, n, k);
        float *y = device<float>(65ull * n);
        for (uint32_t glu : { 0u, (uint32_t)WK_GLU_SILU, (uint32_t)WK_GLU_GELU_TANH })
            for (uint32_t rows : { 8u, 17u, 32u, 40u, 64u, 65u }) {
                struct wk_cuda_product p = base(&m, &r, rows, y);
                if (glu) p.seg[1] = p.seg[0], p.n_seg = 2, p.glu = glu;
                const struct wk_cuda_layout l = f->family->layout(&p);
                const bool few = rows <= 64 && (rows > 16 || expected == WK_CUDA_IN_RUNS),
                           sure = f->family == (k_quants ? &quant_q4k_k : &quant_basic_q8) && image.wgmma && few &&
                                  (expected != WK_CUDA_IN_PANELS || !glu);
                if (sure) CHECK(l.in == expected, "%s: takes kind %u, expected %u", described(&m, &p), l.in, expected);
                if (rows > 64)
                    CHECK(l.in == WK_CUDA_IN_ACT && l.out == WK_CUDA_OUT_ACT, "%s: takes kind %u, leaves %u",
                          described(&m, &p), l.in, l.out);
                by_kind[l.in]++;
                out += l.out != WK_CUDA_OUT_ACT;
                if (l.in != WK_CUDA_IN_ACT) check_input(&m, &p, l, y);
                for (uint32_t group = 16; l.out != WK_CUDA_OUT_ACT && group <= 32; group *= 2)
                    check_output(&m, &p, l.out, group);
                refuse(&m, &p, l);
            }
        OK(cudaFree(y));
        free_matrix(&m);
        free_rows(&r);
    }
    printf("%u x %u: %d products by rows, %d as panels, %d by runs; %d leave acts otherwise than as rows\n", n, k,
           by_kind[WK_CUDA_IN_ACT], by_kind[WK_CUDA_IN_PANELS], by_kind[WK_CUDA_IN_RUNS], out);
}

static void tests(void)
{
    int processors = 0;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    test_layouts(896, (16u * 2 * processors + 127) / 64 * 64, WK_CUDA_IN_RUNS, false); /* lm_head */
    for (uint32_t n : { 896u, 40u }) test_layouts(4096, n, WK_CUDA_IN_PANELS, false);  /* split_k */
    test_layouts(4864, 896, WK_CUDA_IN_PANELS, true);
}

int main(void) { return run_tests("test_layout", tests); }
