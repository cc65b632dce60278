/* test_product.cu: products of quantized tiles against a double-precision reference over the CPU side's dequantized
 * weights; and the promise that a row's bits depend on nothing but its weights and its input. Exit status 77: no GPU
 * here. */
#include "product_test.cuh"

/* A matrix times every number of rows: near the reference, its partials right, and the bits of the most rows. The
 * largest distance. */
static double check_matrix(const struct format *f, uint32_t n, uint32_t k, uint32_t far)
{
    const uint32_t counts[] = { 256, 1, 2, 3, 7, 8, 9, 16, 17, 33, 64, 65, 130 },
                   most = k == 256 || k == 896 || k == 2880 ? 256 : 64; /* more take long */
    double worst = 0.0;
    struct matrix m = make_matrix(f, n, k, far);
    struct activations r = make_rows(most, k, k == 896 ? 4 : 0);
    double *ref = reference(&m, &r);
    float *all = NULL;
    for (uint32_t count : counts) {
        if (all && count > most) continue;
        const uint32_t rows = count < most ? count : most;
        float *y = device<float>((uint64_t)rows * n), *part = device<float>((uint64_t)rows * ((n + 15) / 16));
        struct wk_cuda_product p = base(&m, &r, rows, y);
        p.seg[0].out.aux = part;
        run(&m, &p);
        float *h = download(y, (uint64_t)rows * n), *hp = download(part, (uint64_t)rows * ((n + 15) / 16));
        const double d = distance(h, ref, (uint64_t)rows * n);
        CHECK(d < 3e-5, "%s %u x %u, %u rows: distance %.3g", f->name, n, k, rows, d);
        worst = fmax(worst, d);
        for (uint32_t i = 0; i < rows * ((n + 15) / 16); i++) {
            double s = 0.0;
            const uint32_t row = i / ((n + 15) / 16), tile = i % ((n + 15) / 16);
            for (uint32_t j = tile * 16; j < n && j < tile * 16 + 16; j++)
                s += (double)h[(uint64_t)row * n + j] * (double)h[(uint64_t)row * n + j];
            CHECK(fabs(hp[i] - s) <= 1e-5 * s, "%s %u x %u, %u rows: partial %u: %g, expected %g", f->name, n, k, rows,
                  i, (double)hp[i], s);
        }
        if (!all) {
            all = h;
        } else {
            CHECK(memcmp(all, h, (uint64_t)rows * n * 4) == 0, "%s %u x %u: %u rows are not the bits of %u", f->name, n,
                  k, rows, most);
            free(h);
        }
        free(hp);
        OK(cudaFree(y));
        OK(cudaFree(part));
    }
    free(all);
    free(ref);
    free_rows(&r);
    free_matrix(&m);
    return worst;
}
static void test_shapes(void)
{
    const uint32_t ks[] = { 32, 64, 96, 256, 896, 2880, 4096, 4864, 11008 };
    for (const struct format *f = formats; f < formats + N_FORMATS; f++) {
        double worst = 0.0;
        for (uint32_t k : ks) {
            if (k % f->block) continue;
            worst = fmax(worst, check_matrix(f, 17, k, 1));
            if (k <= 4096) worst = fmax(worst, check_matrix(f, 1000, k, 1)); /* long rows: few of them */
            if (k == 256 || k == 2880 || k == 4096) worst = fmax(worst, check_matrix(f, k == 256 ? 1000 : 17, k, 10));
        }
        printf("%-5s largest relative distance %.2e\n", f->name, worst);
    }
}

/* Each of two rows alone, the second one chosen by its index: near the reference, and the bits of both together. both:
 * the product of the two. */
static void each_alone(const struct matrix *m, const struct wk_cuda_product *both, const double *ref)
{
    const uint32_t n = m->n, second = 1;
    uint32_t *const index = upload(&second, 1);
    float *const y = (float *)both->seg[0].out.y;
    run(m, both);
    float *all = download(y, 2 * n);
    for (uint32_t row = 0; row < 2; row++) {
        struct wk_cuda_product one = *both;
        one.rows = 1;
        one.input.row_index = row ? index : NULL;
        OK(cudaMemset(y, 0xff, n * sizeof *y));
        run(m, &one);
        float *h = download(y, n);
        const double d = distance(h, ref + row * n, n);
        CHECK(d < 3e-5, "%s %u x %u, row %u alone: distance %.3g", m->f->name, n, m->k, row, d);
        CHECK(memcmp(all + row * n, h, n * sizeof *h) == 0, "%s %u x %u: row %u alone is not the bits of two",
              m->f->name, n, m->k, row);
        free(h);
    }
    free(all);
    OK(cudaFree(index));
}

/* One row of a matrix with several tiles a block, whose warps then change K slices from tile to tile and whose stages
 * wrap round the ring: k of whole K steps, of an odd number of units, and of half a unit more. */
static void test_turns(void)
{
    int processors = 0;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    const uint32_t n = 16 * (4 * (uint32_t)processors + 3) + 5;
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t k : { 2816u, 2880u, 2912u }) {
            if (k % f->block) continue;
            struct matrix m = make_matrix(f, n, k, 1);
            struct activations r = make_rows(2, k, 0);
            double *ref = reference(&m, &r);
            float *y = device<float>(2 * n);
            const struct wk_cuda_product two = base(&m, &r, 2, y);
            each_alone(&m, &two, ref);
            free(ref);
            OK(cudaFree(y));
            free_rows(&r);
            free_matrix(&m);
        }
}

/* An RMS prologue of as many rows as the product takes: the bits of a conversion by itself, then the product. */
static void rms_rows(const struct matrix *m, const struct wk_cuda_product *act, const struct activations *r,
                     const float *w, uint32_t rows, float *y)
{
    const uint64_t n = (uint64_t)rows * m->n;
    struct wk_cuda_product p = *act;
    p.rows = rows;
    p.seg[0].out.y = y;
    run(m, &p);
    float *a = download(y, n);
    p.input.kind = WK_CUDA_IN_RMS;
    p.input.eps = 1e-5f;
    p.input.x = r->x;
    p.input.aux = r->part;
    p.input.w = w;
    p.input.x_stride = m->k;
    OK(cudaMemset(y, 0, n * 4));
    poison(); /* the acts of the run before lie where these have to be */
    run(m, &p);
    float *b = download(y, n);
    CHECK(a[0] == a[0] && memcmp(a, b, n * 4) == 0, "%s, %u x %u%s, %u rows: norm in the prologue gives other bits",
          m->f->name, m->n, m->k, p.glu ? " and as many" : "", rows);
    free(a);
    free(b);
}
/* Formats of short K steps, but those of a wider range than f16, take several rows where k is short. */
static bool rms_several(const struct format *f, uint32_t k)
{
    struct wk_image image;
    OK(wk_image_read(&image));
    return image.wgmma && f->block <= 64 && f->exponent == 0xffff && k <= 1024;
}
static void test_rms(void)
{
    int processors = 0;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t k : { 64u, 256u, 512u, 896u, 1024u, 2880u, 3072u, 4096u, 8192u }) {
            if (k % f->block) continue;
            struct activations r = make_rows(8, k, 0);
            float *w = (float *)malloc(k * 4);
            for (uint32_t i = 0; i < k; i++) w[i] = uniform(0.5f, 1.5f);
            float *dw = upload(w, k);
            for (uint32_t n : { 100u, 16u * processors + 16 }) {
                if (n > 100 && k > 1024) continue;
                struct matrix m = make_matrix(f, n, k);
                float *y = device<float>(8ull * n);
                for (const float *weights : { (const float *)dw, (const float *)NULL }) {
                    convert_kernel<<<8, 32>>>(r.x, r.part, weights, 1e-5f, k, 0, true, r.act);
                    for (uint32_t glu : { 0u, (uint32_t)WK_GLU_SILU }) {
                        struct wk_cuda_product p = base(&m, &r, 1, y);
                        if (glu) p.seg[1] = p.seg[0], p.n_seg = 2, p.glu = glu;
                        const uint32_t most = f->family->norm_rows(&p), expected = !rms_several(f, k) ? 1
                                                                                   : n > 100          ? 4
                                                                                                      : 8;
                        CHECK(most == expected, "%s, %u x %u%s: norm of %u rows in the prologue, expected %u", f->name,
                              n, k, glu ? " and as many" : "", most, expected);
                        for (uint32_t rows = 1; rows <= most; rows++) rms_rows(&m, &p, &r, weights, rows, y);
                    }
                }
                OK(cudaFree(y));
                free_matrix(&m);
            }
            free(w);
            OK(cudaFree(dw));
            free_rows(&r);
        }
}

/* One row of a matrix so high that pairs of warps have tiles to themselves, with a bias: of K steps of 64, 128 and 256
 * values, fewer than there are K slices, and cut short; a norm in the prologue. K steps that are cut into pieces
 * (q8_0, k 1536) are not for such pairs. */
static void test_tall(void)
{
    int processors = 0;
    OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    const uint32_t n = 16 * (32 * (uint32_t)processors + 3) + 5;
    float *bias = (float *)malloc(n * 4);
    for (uint32_t i = 0; i < n; i++) bias[i] = normal();
    float *dbias = upload(bias, n);
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t k : { 512u, 576u, 896u, 1024u, 1280u, 1536u }) {
            if (k % f->block || (k == 1024) != (f->block == 256) || ((k == 512 || k == 1280) && f != formats + 2) ||
                (k == 1536 && f != formats))
                continue;
            struct matrix m = make_matrix(f, n, k, 10);
            struct activations r = make_rows(2, k, 0);
            double *ref = reference(&m, &r);
            for (uint32_t i = 0; i < 2 * n; i++) ref[i] += (double)bias[i % n];
            float *y = device<float>(2 * n);
            struct wk_cuda_product p = base(&m, &r, 2, y);
            p.seg[0].bias = dbias;
            each_alone(&m, &p, ref);
            convert_kernel<<<1, 32>>>(r.x, r.part, NULL, 1e-5f, k, 0, true, r.act);
            rms_rows(&m, &p, &r, NULL, 1, y);
            free(ref);
            OK(cudaFree(y));
            free_rows(&r);
            free_matrix(&m);
        }
    free(bias);
    OK(cudaFree(dbias));
}

static double silu(double x) { return x / (1 + exp(-x)); }

/* bias, glu or maps, residual, gathered rows (or, of a longer k, rows as they stand, without maps too), act output. */
/* An activated pair or maps as the last step of the product p; up: the pair's second matrix. */
static void set_functions(struct wk_cuda_product *p, int glu, const struct matrix *up)
{
    if (glu > 0) {
        p->glu = WK_GLU_SILU;
        p->n_seg = 2;
        p->seg[1] = p->seg[0];
        p->seg[1].tiles = up->tiles;
    } else if (!glu) {
        p->map[0].fn = WK_UNARY_RELU;
        p->map[1].fn = WK_UNARY_SCALE;
        p->map[1].p = 0.25f;
    }
}
static void test_epilogue(void)
{
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t n : { 17u, 40u, 528u, 4300u })
            for (uint32_t rows : { 1u, 5u, 20u, 64u, 150u }) {
                const bool gathered = n != 40;
                if (rows > 64 && (n == 4300 || !gathered)) continue;
                const uint32_t k = gathered ? 512 : 2560, n32 = wk_act_k(n);
                struct matrix m = make_matrix(f, n, k), u = make_matrix(f, n, k);
                struct activations r = make_rows(70, k, 0);
                double *ref = reference(&m, &r), *up = reference(&u, &r);
                float *bias = (float *)malloc(n * 4), *res = (float *)malloc(70u * n * 4);
                uint32_t index[150];
                for (uint32_t i = 0; i < n; i++) bias[i] = normal();
                for (uint32_t i = 0; i < 70 * n; i++) res[i] = normal();
                for (uint32_t i = 0; i < 150; i++) index[i] = gathered ? (i * 37 + 5) % 70 : i;
                float *dbias = upload(bias, n), *dres = upload(res, 70 * n);
                uint32_t *dindex = upload(index, 150);
                for (int glu = gathered ? 0 : -1; glu < 2; glu++) { /* -1: neither that nor maps */
                    double *want = (double *)malloc(rows * n * sizeof(double));
                    for (uint32_t i = 0; i < rows; i++)
                        for (uint32_t j = 0; j < n; j++) {
                            const double a = ref[index[i] * n + j] + (double)bias[j];
                            want[i * n + j] = (glu > 0 ? silu(a) * (up[index[i] * n + j] + (double)bias[j])
                                               : glu   ? a
                                                       : 0.25 * fmax(a, 0)) +
                                              (double)res[index[i] * n + j];
                        }
                    float *y = device<float>(rows * n), *part = device<float>(rows * ((n + 15) / 16));
                    __half *act = device<__half>(rows * n32);
                    struct wk_cuda_product p = base(&m, &r, rows, y);
                    if (gathered) p.input.row_index = dindex;
                    p.residual = dres;
                    p.residual_stride = n;
                    p.seg[0].bias = dbias;
                    p.seg[0].out.aux = part;
                    set_functions(&p, glu, &u);
                    run(&m, &p);
                    float *h = download(y, rows * n);
                    const double d = distance(h, want, rows * n);
                    CHECK(d < 3e-5, "%s, n %u, %u rows, glu %d: distance %.3g", f->name, n, rows, glu, d);
                    p.seg[0].out.kind = WK_CUDA_OUT_ACT;
                    p.seg[0].out.shift = 2;
                    p.seg[0].out.y = act;
                    p.seg[0].out.aux = NULL;
                    run(&m, &p);
                    __half *ha = download(act, rows * n32);
                    for (uint32_t i = 0; i < rows; i++)
                        for (uint32_t j = 0; j < n32; j++) {
                            const float v = __half2float(ha[i * n32 + j]),
                                        expected = __half2float(__float2half_rn(j < n ? h[i * n + j] * 0.25f : 0.0f));
                            CHECK(v == expected, "%s, n %u, %u rows, glu %d: act %u,%u is %g, expected %g", f->name, n,
                                  rows, glu, i, j, (double)v, (double)expected);
                        }
                    free(want);
                    free(h);
                    free(ha);
                    OK(cudaFree(y));
                    OK(cudaFree(part));
                    OK(cudaFree(act));
                }
                free(bias);
                free(res);
                free(ref);
                free(up);
                OK(cudaFree(dbias));
                OK(cudaFree(dres));
                OK(cudaFree(dindex));
                free_rows(&r);
                free_matrix(&m);
                free_matrix(&u);
            }
}

/* Segments side by side, of one type or several: the bits of each by itself. glu of two types
 * against each other too. */
static void test_segments(void)
{
    const uint32_t members[][3] = { { 0, 1, 2 },  { 3, 4, 5 },    { 6, 6, 6 },   { 7, 8, 7 },
                                    { 9, 10, 9 }, { 14, 14, 14 }, { 15, 15, 15 } };
    for (uint32_t family = 0; family < sizeof members / sizeof *members; family++)
        for (uint32_t k : { 512u, 896u, 4096u })
            for (uint32_t rows : { 1u, 4u, 8u, 12u, 24u, 40u }) {
                if (k % formats[members[family][0]].block) continue;
                const uint32_t ns[4] = { 250, 16, k > 1000 ? 1000u : 9000u,
                                         31 }; /* 9000: several items a block, of more than one type */
                struct matrix m[4];
                struct activations r = make_rows(rows, k, 0);
                float *y[4], *z[4];
                struct wk_cuda_product p = {};
                for (int i = 0; i < 4; i++) {
                    m[i] = make_matrix(formats + members[family][i % 3], ns[i], k);
                    y[i] = device<float>(rows * ns[i]);
                    z[i] = device<float>(rows * ns[i]);
                    const struct wk_cuda_product one = base(&m[i], &r, rows, z[i]);
                    run(&m[i], &one);
                    if (i == 0) p = one;
                    p.seg[i] = one.seg[0];
                    p.seg[i].out.y = y[i];
                }
                p.n_seg = 4;
                run(&m[0], &p);
                for (int i = 0; i < 4; i++) {
                    float *a = download(y[i], rows * ns[i]), *b = download(z[i], rows * ns[i]);
                    CHECK(a[0] == a[0] && memcmp(a, b, rows * ns[i] * 4) == 0,
                          "family %d, k %u, %u rows: segment %d beside others gives other bits", family, k, rows, i);
                    free(a);
                    free(b);
                }
                struct matrix up =
                    make_matrix(formats + members[family][1], ns[2], k); /* of m[2]'s height, of another type */
                double *g = reference(&m[2], &r), *u = reference(&up, &r),
                       *want = (double *)malloc(rows * ns[2] * sizeof(double));
                for (uint32_t i = 0; i < rows * ns[2]; i++) want[i] = silu(g[i]) * u[i];
                p = base(&m[2], &r, rows, y[2]);
                p.seg[1] = p.seg[0];
                p.seg[1].tiles = up.tiles;
                p.seg[1].ggml_type = up.f->type;
                p.n_seg = 2;
                p.glu = WK_GLU_SILU;
                run(&m[2], &p);
                float *a = download(y[2], rows * ns[2]);
                const double d = distance(a, want, rows * ns[2]);
                CHECK(d < 3e-5, "family %d, k %u, %u rows: glu of two types: distance %.3g", family, k, rows, d);
                free(a);
                free(g);
                free(u);
                free(want);
                free_matrix(&up);
                for (int i = 0; i < 4; i++) {
                    OK(cudaFree(y[i]));
                    OK(cudaFree(z[i]));
                    free_matrix(&m[i]);
                }
                free_rows(&r);
            }
}

/* Matrices high enough to fill a GPU with tiles, which products of many rows take another way; k with which all of the
 * activations fit a block's memory, and longer; such a vocabulary's as outputs that nothing but a bias goes to, and in
 * two segments; a small model's gate and up; the highest that models have, at the most rows: the bits of one row. */
static void test_high(void)
{
    enum { PLAIN, GLU, TWO };
    enum { HEAVY = 22016 }; /* of F16 alone: one block a multiprocessor of one row */
    const struct {
        uint32_t n, k, rows, way;
    } shapes[] = { { 27100, 512, 20, PLAIN }, { 27100, 512, 20, GLU },    { 27100, 512, 40, PLAIN },
                   { 27100, 512, 40, GLU },   { 27100, 2048, 40, PLAIN }, { 27100, 2048, 40, GLU },
                   { 4850, 512, 20, GLU },    { 4850, 896, 40, GLU },     { 33900, 640, 7, PLAIN },
                   { 33900, 640, 12, TWO },   { 33900, 896, 27, PLAIN },  { 33900, 640, 27, TWO },
                   { 33900, 640, 50, TWO },   { 201088, 256, 64, PLAIN }, { 201088, 256, 64, GLU },
                   { HEAVY, 512, 9, PLAIN } };
    for (const struct format *f : { formats, formats + 3, formats + 6, formats + 11, formats + 14 })
        for (auto &shape : shapes) {
            const uint32_t n = shape.n, k = shape.k, rows = shape.rows, stride = n + 4,
                           outputs = shape.way == TWO ? 2 : 1;
            if (k % f->block || (n == HEAVY) != (f == formats + 11)) continue;
            struct matrix m = make_matrix(f, n, k);
            struct activations r = make_rows(rows, k, 0);
            float *y = device<float>(outputs * rows * stride), *z = device<float>(outputs * stride),
                  *bias = (float *)malloc(n * 4);
            for (uint32_t i = 0; i < n; i++) bias[i] = normal();
            float *dbias = upload(bias, n);
            struct wk_cuda_product p = base(&m, &r, rows, y);
            p.seg[0].out.y_stride = stride;
            if (shape.way == PLAIN) p.seg[0].bias = dbias;
            if (shape.way != PLAIN) { /* of itself */
                p.seg[1] = p.seg[0];
                p.n_seg = 2;
            }
            if (shape.way == GLU) p.glu = WK_GLU_SILU;
            if (shape.way == TWO) {
                p.seg[1].out.y = y + (uint64_t)rows * stride;
                p.seg[1].bias = dbias;
            }
            run(&m, &p);
            float *all = download(y, outputs * rows * stride);
            for (uint32_t row : { 0u, rows / 3, rows / 2, rows - 1 - rows / 8, rows - 1 }) {
                struct wk_cuda_product one = p;
                one.rows = 1;
                one.input.x = r.act + (uint64_t)row * wk_act_k(k);
                one.seg[0].out.y = z;
                if (shape.way == TWO) one.seg[1].out.y = z + stride;
                run(&m, &one);
                float *h = download(z, outputs * stride);
                for (uint32_t i = 0; i < outputs; i++)
                    CHECK(h[i * stride] == h[i * stride] &&
                              memcmp(h + i * stride, all + ((uint64_t)i * rows + row) * stride, n * 4) == 0,
                          "%s %u x %u, way %u, output %u: row %u of %u has other bits than alone", f->name, n, k,
                          shape.way, i, row, rows);
                free(h);
            }
            free(all);
            free(bias);
            OK(cudaFree(dbias));
            OK(cudaFree(y));
            OK(cudaFree(z));
            free_rows(&r);
            free_matrix(&m);
        }
}

/* Each item: the product with its expert's matrix. */
static void test_experts(void)
{
    for (const struct format *f = formats; f < formats + N_FORMATS; f++) {
        const uint32_t n = 72, k = 512, experts = 5, top_k = 2;
        const uint64_t tiles = (n + 15) / 16 * f->tile_stride(k);
        unsigned char *slabs = device<unsigned char>(experts * tiles);
        struct matrix m[experts];
        for (uint32_t e = 0; e < experts; e++) {
            m[e] = make_matrix(f, n, k);
            OK(cudaMemcpy(slabs + e * tiles, m[e].tiles, tiles, cudaMemcpyDeviceToDevice));
        }
        float *bias = (float *)malloc(experts * n * 4);
        for (uint32_t i = 0; i < experts * n; i++) bias[i] = normal();
        float *dbias = upload(bias, experts * n);
        for (uint32_t rows : { 1u, 7u, 60u }) {
            uint32_t ids[60 * 3];
            for (uint32_t &id : ids) id = random32() % experts;
            uint32_t *dids = upload(ids, rows * 3), *g = items_by_expert(ids, 3, rows, top_k, experts, 0),
                     *dgroups = upload(g, wk_cuda_group_words(experts, rows * top_k));
            float *y = device<float>(rows * top_k * n);
            struct activations r = make_rows(rows, k, 0);
            struct wk_cuda_product p = base(&m[0], &r, rows * top_k, y);
            p.seg[0].tiles = slabs;
            p.seg[0].bias = dbias;
            p.expert = dids;
            p.expert_stride = 3;
            p.top_k = p.x_items = top_k;
            p.n_experts = experts;
            p.groups = dgroups;
            run(&m[0], &p);
            float *h = download(y, rows * top_k * n);
            double *want = (double *)malloc(rows * top_k * n * sizeof *want);
            for (uint32_t e = 0; e < experts; e++) {
                double *ref = reference(&m[e], &r, true);
                for (uint32_t i = 0; i < rows * top_k; i++)
                    for (uint32_t j = 0; j < n && ids[i / top_k * 3 + i % top_k] == e; j++)
                        want[i * n + j] = ref[i / top_k * n + j] + bias[e * n + j];
                free(ref);
            }
            const double d = distance(h, want, rows * top_k * n);
            CHECK(d < 3e-5, "%s, experts of %u rows: distance %.3g", f->name, rows, d);
            run_again(&m[0], &p, h, rows * top_k * n);
            free(want);
            free(h);
            free(g);
            OK(cudaFree(dids));
            OK(cudaFree(dgroups));
            OK(cudaFree(y));
            free_rows(&r);
        }
        free(bias);
        OK(cudaFree(dbias));
        OK(cudaFree(slabs));
        for (uint32_t e = 0; e < experts; e++) free_matrix(&m[e]);
    }
}

/* Two products as dependent launches of a graph, some times over. */
static void chain(const struct format *f, const struct wk_cuda_product *p, const struct wk_cuda_product *q)
{
    struct wk_cuda_product link[2] = { *p, *q };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaMemset(q->seg[0].out.y, 0xff, (uint64_t)q->rows * q->seg[0].out.y_stride * 4));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (struct wk_cuda_product &l : link) {
        l.flags |= WK_CUDA_DEPENDENT;
        const wk_status s = f->family->product(&l, stream, &err);
        CHECK(s == WK_OK, "%s: %s", f->name, text);
    }
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
}

enum { EXPERTS = 9, EXPERTS_K = 3 }; /* experts; of them a row's */
/* Experts of n rows of k values each (gate and up), then of 33 rows that read those (down), by slabs. */
struct mixture {
    const struct format *f;
    uint32_t n, k, down_k;
    unsigned char *slabs[2], *down;
    float *bias; /* of gate, and of up */
    bool has_down() const { return down_k == wk_act_k(n); }
};
static struct mixture make_mixture(const struct format *f, uint32_t n, uint32_t k)
{
    struct mixture x = { f, n, k, whole_blocks(f, wk_act_k(n)), {}, NULL, NULL };
    const uint64_t tiles = (n + 15) / 16 * f->tile_stride(k), down_tiles = 3 * f->tile_stride(x.down_k);
    for (auto &slab : x.slabs) slab = device<unsigned char>(EXPERTS * tiles);
    x.down = device<unsigned char>(EXPERTS * down_tiles);
    for (uint32_t e = 0; e < EXPERTS; e++)
        for (int j = 0; j < 3; j++) {
            struct matrix m = j < 2 ? make_matrix(f, n, k) : make_matrix(f, 33, x.down_k);
            const uint64_t bytes = j < 2 ? tiles : down_tiles;
            OK(cudaMemcpy((j < 2 ? x.slabs[j] : x.down) + e * bytes, m.tiles, bytes, cudaMemcpyDeviceToDevice));
            free_matrix(&m);
        }
    float *bias = (float *)malloc(EXPERTS * n * 4);
    for (uint32_t i = 0; i < EXPERTS * n; i++) bias[i] = normal();
    x.bias = upload(bias, EXPERTS * n);
    free(bias);
    return x;
}
static void free_mixture(struct mixture *x)
{
    OK(cudaFree(x->bias));
    OK(cudaFree(x->slabs[0]));
    OK(cudaFree(x->slabs[1]));
    OK(cudaFree(x->down));
}

/* What the experts give: gate with its partials, the gated act, and down of that, by item. */
struct mixed {
    float *y, *z, *part;
    __half *act;
};
/* Rows [row, row + rows) of r by their experts. skip: of all rows, those in no group; last: do as a model's last rows.
 */
static void mix(const struct mixture &x, const struct activations &r, const uint32_t *ids, const uint32_t *dids,
                uint32_t stride, uint32_t row, uint32_t rows, uint32_t skip, bool last, const struct mixed &to)
{
    const uint32_t n = x.n, n32 = wk_act_k(n), items = rows * EXPERTS_K;
    const uint64_t item = (uint64_t)row * EXPERTS_K;
    uint32_t *g = items_by_expert(ids + row * stride, stride, rows, EXPERTS_K, EXPERTS, skip),
             *dgroups = upload(g, wk_cuda_group_words(EXPERTS, items));
    struct matrix m = { x.f, n, x.k, NULL, NULL, x.slabs[0] };
    struct wk_cuda_product p = base(&m, &r, items, to.y + item * n);
    p.input.x = r.act + (uint64_t)row * wk_act_k(x.k);
    p.seg[0].bias = x.bias;
    p.seg[0].out.aux = to.part + item * ((n + 15) / 16);
    p.expert = dids + row * stride;
    p.expert_stride = stride;
    p.top_k = p.x_items = EXPERTS_K;
    p.n_experts = EXPERTS;
    p.groups = dgroups;
    run(&m, &p);
    p.n_seg = 2;
    p.seg[1] = p.seg[0];
    p.seg[1].tiles = x.slabs[1];
    p.glu = WK_GLU_SILU_CLAMPED;
    p.alpha = 1.702f;
    p.limit = 7.0f;
    p.seg[0].out = { WK_CUDA_OUT_ACT, 2, to.act + item * n32, NULL, 0 };
    run(&m, &p);
    if (x.has_down()) {
        struct matrix d = { x.f, 33, x.down_k, NULL, NULL, x.down };
        struct activations a = { items, x.down_k, 2, NULL, NULL, to.act + item * n32 };
        struct wk_cuda_product q = base(&d, &a, items, to.z + item * 33);
        q.expert = p.expert;
        q.expert_stride = stride;
        q.top_k = EXPERTS_K;
        q.x_items = 1;
        q.n_experts = EXPERTS;
        q.groups = p.groups;
        q.flags = last ? WK_CUDA_GROUPS_KNOWN : 0;
        run(&d, &q);
        if (last && (rows == 1 || rows == 3 || rows == 64)) chain(x.f, &p, &q);
    }
    free(g);
    OK(cudaFree(dgroups));
}
/* That items [from, items) of n values are the same bits; returns whether the first is a number. */
template <class T>
static void same_items(const T *a, const T *b, uint32_t n, uint32_t from, uint32_t items, const char *what,
                       const struct mixture &x, uint32_t rows, uint32_t spread)
{
    T *one = download(a, items * n), *all = download(b, items * n);
    CHECK(memcmp(one + from * n, all + from * n, (items - from) * n * sizeof(T)) == 0,
          "%s %u x %u, %u rows, spread %u: %s other bits than a row by itself", x.f->name, x.n, x.k, rows, spread,
          what);
    free(one);
    free(all);
}
static void in_no_group(const struct mixed &all, const struct mixture &x, uint32_t from, uint32_t items, uint32_t rows)
{
    float *y = download(all.y, items * x.n);
    CHECK(y[from * x.n] == y[from * x.n], "%s %u x %u, %u rows: the first item was not computed", x.f->name, x.n, x.k,
          rows);
    for (uint32_t i = 0; i < from * x.n; i++)
        CHECK(y[i] != y[i], "%s %u x %u, %u rows: an item that is in no group was computed", x.f->name, x.n, x.k, rows);
    free(y);
}
static void compare_groups(const struct mixture &x, uint32_t rows, uint32_t spread)
{
    const uint32_t n = x.n, n16 = (n + 15) / 16, n32 = wk_act_k(n), items = rows * EXPERTS_K, stride = EXPERTS_K + 2,
                   skip = spread == 1 && rows > 4 ? 2 : 0, from = skip * EXPERTS_K;
    uint32_t *ids = (uint32_t *)malloc(rows * stride * 4);
    for (uint32_t i = 0; i < rows * stride; i++) /* ranks of a row differ, but in the last spread */
        ids[i] = spread == 0   ? (i / stride * 5 + i % stride * (1 + i / stride % 2)) % EXPERTS
                 : spread == 1 ? (random32() % 3 + i % stride * 3) % EXPERTS
                               : 4;
    uint32_t *dids = upload(ids, rows * stride);
    struct activations r = make_rows(rows, x.k, 1);
    struct mixed of[2]; /* a row by itself; all at once */
    for (auto &to : of)
        to = { device<float>(items * n), device<float>(items * 33), device<float>(items * n16),
               device<__half>(items * n32) };
    for (uint32_t row = skip; row < rows; row++) mix(x, r, ids, dids, stride, row, 1, 0, false, of[0]);
    mix(x, r, ids, dids, stride, 0, rows, skip, true, of[1]);
    same_items(of[0].y, of[1].y, n, from, items, "gate has", x, rows, spread);
    in_no_group(of[1], x, from, items, rows);
    same_items(of[0].part, of[1].part, n16, from, items, "partials have", x, rows, spread);
    same_items(of[0].act, of[1].act, n32, from, items, "the gated act has", x, rows, spread);
    if (x.has_down()) same_items(of[0].z, of[1].z, 33, from, items, "down has", x, rows, spread);
    for (auto &to : of) {
        OK(cudaFree(to.y));
        OK(cudaFree(to.z));
        OK(cudaFree(to.part));
        OK(cudaFree(to.act));
    }
    free_rows(&r);
    free(ids);
    OK(cudaFree(dids));
}

/* All rows' items together: the bits of a row by itself, for every spread of items: all of one expert, few or all
 * experts used, more items than columns; F32 and act results, the latter read by a product that knows the groups early;
 * rows without items stay as they were. */
static void test_groups(void)
{
    const struct {
        uint32_t n, k;
    } shapes[] = { { 256, 256 }, { 40, 2880 }, { 24, 9216 } };
    const uint32_t counts[] = { 1, 2, 3, 7, 8, 16, 33, 64, 150 };
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (auto &shape : shapes) {
            const uint32_t k = whole_blocks(f, shape.k);
            struct mixture x = make_mixture(f, shape.n, k);
            for (uint32_t rows : counts)
                for (uint32_t spread = 0; spread < 3; spread++) {
                    /* All counts by one format of a family; long rows: few of them. */
                    const bool first = f == formats || f->family != f[-1].family;
                    if ((!first && rows != 3 && rows != 33) || (rows > 64 && k > 256 && (spread != 1 || k > 2880)) ||
                        (rows > 8 && k > 256 && spread == 2) || (k > 4096 && (rows != 33 || spread)))
                        continue;
                    compare_groups(x, rows, spread);
                }
            free_mixture(&x);
        }
}

/* A chain of dependent launches in a graph: the bits of plain ones. */
static void test_dependent(void)
{
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t rows : { 1u, 8u, 40u }) {
            const uint32_t k = 1024, links = 12;
            struct matrix m = make_matrix(f, k, k);
            struct activations r = make_rows(rows, k, 0);
            __half *act[2] = { device<__half>(rows * k), device<__half>(rows * k) };
            float *y[2] = { device<float>(rows * k), device<float>(rows * k) };
            cudaStream_t stream;
            OK(cudaStreamCreate(&stream));
            for (int how = 0; how < 2; how++) {
                cudaGraph_t graph;
                cudaGraphExec_t exec;
                if (how) OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
                for (uint32_t i = 0; i < links; i++) {
                    struct wk_cuda_product p = base(&m, &r, rows, y[how]);
                    p.flags = how ? WK_CUDA_DEPENDENT : 0;
                    p.map[0].fn = WK_UNARY_TANH;
                    if (i) p.input.x = act[i % 2];
                    if (i + 1 < links) {
                        p.seg[0].out.kind = WK_CUDA_OUT_ACT;
                        p.seg[0].out.y = act[(i + 1) % 2];
                    }
                    const wk_status s = f->family->product(&p, stream, &err);
                    CHECK(s == WK_OK, "%s: %s", f->name, text);
                }
                if (how) {
                    OK(cudaStreamEndCapture(stream, &graph));
                    OK(cudaGraphInstantiate(&exec, graph, 0));
                    for (int i = 0; i < 20; i++) OK(cudaGraphLaunch(exec, stream));
                }
                OK(cudaStreamSynchronize(stream));
                if (how) {
                    OK(cudaGraphExecDestroy(exec));
                    OK(cudaGraphDestroy(graph));
                }
            }
            float *a = download(y[0], rows * k), *b = download(y[1], rows * k);
            CHECK(a[0] == a[0] && memcmp(a, b, rows * k * 4) == 0, "%s, %u rows: dependent launches give other bits",
                  f->name, rows);
            free(a);
            free(b);
            for (int i = 0; i < 2; i++) {
                OK(cudaFree(act[i]));
                OK(cudaFree(y[i]));
            }
            OK(cudaStreamDestroy(stream));
            free_rows(&r);
            free_matrix(&m);
        }
}

/* A workspace that is asked for has to be there. */
static void test_workspaces(void)
{
    float *y = device<float>(4 * 32);
    for (const struct format *f = formats; f < formats + N_FORMATS; f++) {
        if (256 % f->block) continue;
        struct matrix q = make_matrix(f, 32, 256);
        struct activations x = make_rows(4, 256, 0);
        struct wk_cuda_product p = base(&q, &x, 4, y);
        const uint64_t bytes = f->family->workspace(256, 4);
        CHECK((bytes != 0) == f->int8 && f->family->workspace(256, 1) == 0 && f->family->workspace(256, 5) >= bytes,
              "%s asks for a workspace of %llu bytes", f->name, (unsigned long long)bytes);
        for (void *w : { (void *)NULL, (void *)((unsigned char *)p.workspace + 16) }) {
            p.workspace = w;
            text[0] = 0;
            if (bytes)
                CHECK(f->family->product(&p, NULL, &err) == WK_INVALID && strstr(text, "workspace"),
                      "%s: a workspace at %p was not refused: '%s'", f->name, w, text);
        }
        free_rows(&x);
        free_matrix(&q);
    }
    OK(cudaFree(y));
}

/* What the contract excludes is refused by name. */
static void test_refusals(void)
{
    struct matrix m = make_matrix(formats, 32, 64);
    struct activations r = make_rows(4, 64, 0);
    float *y = device<float>(4 * 32);
    struct {
        const char *names;
        void (*spoil)(struct wk_cuda_product *);
    } cases[] = {
        { "rows", [](struct wk_cuda_product *p) { p->rows = WK_CUDA_ROWS + 1; } },
        { "rows", [](struct wk_cuda_product *p) { p->rows = 0; } },
        { "k", [](struct wk_cuda_product *p) { p->k = 33; } },
        { "k", [](struct wk_cuda_product *p) { p->k = 0; } },
        { "kind", [](struct wk_cuda_product *p) { p->input.kind = 4; } },
        { "aux",
          [](struct wk_cuda_product *p) {
              p->input.kind = WK_CUDA_IN_RMS;
              p->rows = 1;
          } },
        { "glu", [](struct wk_cuda_product *p) { p->glu = WK_GLU_SILU; } },
        { "map", [](struct wk_cuda_product *p) { p->map[1].fn = WK_UNARY_END; } },
        { "seg 0", [](struct wk_cuda_product *p) { p->seg[0].n = 0; } },
        { "y_stride", [](struct wk_cuda_product *p) { p->seg[0].out.y_stride = 31; } },
        { "out", [](struct wk_cuda_product *p) { p->seg[0].out.y = NULL; } },
        { "residual",
          [](struct wk_cuda_product *p) {
              p->residual = (const float *)p->input.x;
              p->seg[1] = p->seg[0];
              p->n_seg = 2;
          } },
        { "expert", [](struct wk_cuda_product *p) { p->expert = (const uint32_t *)p->input.x; } },
        { "groups", [](struct wk_cuda_product *p) { p->groups = (const uint32_t *)p->input.x; } },
        { "flags", [](struct wk_cuda_product *p) { p->flags = WK_CUDA_GROUPS_KNOWN; } },
        { "kind",
          [](struct wk_cuda_product *p) {
              p->input.kind = WK_CUDA_IN_RMS;
              p->input.aux = (const float *)p->input.x;
              p->rows = WK_CUDA_FEW_NORM + 1;
          } },
        { "row_index",
          [](struct wk_cuda_product *p) {
              p->input.kind = WK_CUDA_IN_RMS;
              p->input.aux = (const float *)p->input.x;
              p->input.row_index = (const uint32_t *)p->input.x;
          } },
        { "x_stride",
          [](struct wk_cuda_product *p) {
              p->input.kind = WK_CUDA_IN_RMS;
              p->input.aux = (const float *)p->input.x;
              p->input.x_stride = 66;
          } },
    };
    for (auto &c : cases) {
        struct wk_cuda_product p = base(&m, &r, 4, y);
        c.spoil(&p);
        text[0] = 0;
        CHECK(m.f->family->product(&p, NULL, &err) == WK_INVALID && strstr(text, c.names), "'%s' was not refused: '%s'",
              c.names, text);
    }
    OK(cudaFree(y));
    free_rows(&r);
    free_matrix(&m);
}

/* The same product many times: the same bits. Kernels of 17 rows and more multiply while they load: where one is in the
 * other's way it is now and then. */
static void test_again(void)
{
    const struct {
        uint32_t n, k;
    } shapes[] = { { 896, 896 }, { 896, 4096 }, { 896, 4864 }, { 4608, 4096 }, { 33900, 640 } };
    for (const struct format *f = formats; f < formats + N_FORMATS; f++)
        for (auto &shape : shapes) {
            const uint32_t n = shape.n, k = shape.k, most = 64;
            if (k % f->block || (n > 10000 && f != formats)) continue;
            struct matrix m = make_matrix(f, n, k);
            struct activations r = make_rows(most, k, 0);
            float *y = device<float>(most * n);
            for (uint32_t rows : { 1u, 8u, 20u, 40u, most }) { /* of 288 tiles and a k of 4096: stream_wgmma; of 2,119
                                                                  tiles: lm_head_wgmma; of 56: split_k and others */
                const struct wk_cuda_product p = base(&m, &r, rows, y);
                run(&m, &p);
                float *first = download(y, rows * n);
                run_again(&m, &p, first, rows * n);
                free(first);
            }
            OK(cudaFree(y));
            free_rows(&r);
            free_matrix(&m);
        }
}

static void tests(void)
{
    test_shapes();
    test_turns();
    test_again();
    test_rms();
    test_tall();
    test_epilogue();
    test_segments();
    test_high();
    test_experts();
    test_groups();
    test_dependent();
    test_refusals();
    test_workspaces();
}

int main(void) { return run_tests("test_product", tests); }
