/* test_tiles.cu: the CUDA modules as the host loads them, every type that they serve: tiles there and back, rows,
 * expansion, against the CPU side of the same plugin; products of any of them against a sum in F64. Arguments: types to
 * test, by name; none: all. */
extern "C" {
#include "plugin/format.h"
#include "plugin/plugin.h" /* before cmocka.h, which makes `fail` a macro */
}

#include "device/cuda/test_device.cuh"

enum {
    BITS,
    VALUES,
    WIDE
}; /* arbitrary bits; encoded Gaussian-like values; the same times powers of two from 2^-40 to 2^39, by runs of 32
      (plain types) */

static struct plugin_registry *registry;
static char **names;
static int n_names;

struct pair {
    const struct wk_type_cpu *cpu;
    const struct wk_type_cuda *cuda;
    const struct wk_quant_cuda *module;
};

enum { TYPES_SERVED = 26 };

/* Calls fn for every type that is served on CUDA, and fails if there are fewer than there should be, or one of those
 * that were named is not. */
static void each_type(void (*fn)(const struct pair *))
{
    uint32_t done = 0;
    for (uint32_t type = 0; type <= UINT16_MAX; type++) {
        struct pair p = { plugin_find_type(registry, type, NULL), NULL, NULL };
        bool wanted = p.cpu && n_names == 0;
        for (int n = 0; p.cpu && n < n_names; n++) wanted = wanted || strcmp(names[n], p.cpu->name) == 0;
        if (!wanted) continue;
        const wk_status found = plugin_find_cuda(registry, type, &p.module, &error_text);
        if (found == WK_UNSUPPORTED && !n_names) continue;
        LAUNCH(found);
        for (uint32_t k = 0; k < p.module->n_types; k++)
            if (p.module->types[k]->ggml_type == type) p.cuda = p.module->types[k];
        LAUNCH(p.module->open(0, &error_text));
        fn(&p);
        done++;
    }
    assert_in_range(done, n_names ? n_names : TYPES_SERVED, 1000);
}

static uint64_t bytes_of_row(const struct wk_type_cpu *t, uint32_t k)
{
    return (uint64_t)(k / t->block) * t->block_bytes;
}

/* Random bits of moderate values, of a type that is not made without importance. */
static void fill_row_by_noise(const struct wk_type_cpu *t, uint8_t *row, uint32_t k)
{
    float y[256];
    for (uint32_t i = 0; i < k; i += t->block, row += t->block_bytes) {
        bool moderate = false;
        while (!moderate) {
            for (uint32_t j = 0; j < t->block_bytes; j++) row[j] = (uint8_t)next_noise();
            format_dequantize(t, y, row, t->block);
            moderate = true;
            for (uint32_t j = 0; j < t->block; j++) moderate = moderate && fabsf(y[j]) < 8.0f;
        }
    }
}

static void fill_rows(const struct wk_type_cpu *t, uint8_t *rows, uint32_t n, uint32_t k, int kind)
{
    const uint64_t bytes = bytes_of_row(t, k);
    if (kind == BITS) {
        for (uint64_t i = 0; i < n * bytes; i++) rows[i] = (uint8_t)next_noise();
        return;
    }
    float *x = (float *)malloc(k * sizeof(float));
    const uint32_t different =
        n < 7 ? n : 7; /* encoders take their time; no two rows that share a lane or a word are alike */
    for (uint32_t r = different; r-- > 0;) {
        for (uint32_t i = 0; i < k; i++) x[i] = noise(1.0f) + noise(1.0f) + 0.05f;
        for (uint32_t i = 0; kind == WIDE && i < k; i++) x[i] = ldexpf(x[i], (int)((i / 32 * 37 + r * 11) % 80) - 40);
        const wk_status status = format_quantize(t, rows + r * bytes, x, k, &error_text);
        if (status == WK_UNSUPPORTED)
            fill_row_by_noise(t, rows + r * bytes, k);
        else
            LAUNCH(status);
    }
    for (uint32_t r = different; r < n; r++) memcpy(rows + r * bytes, rows + r % different * bytes, bytes);
    free(x);
}

struct matrix {
    const struct pair *p;
    uint32_t n, k, n_tiles;
    array<uint8_t> rows;
    array<uint8_t> tiles;
};

static struct wk_cuda_tiles tiles_call(const struct matrix *m, void *rows)
{
    struct wk_cuda_tiles t = { sizeof t, m->k, m->n_tiles, m->n, m->tiles.device, rows, bytes_of_row(m->p->cpu, m->k) };
    return t;
}

static struct matrix make_matrix(const struct pair *p, uint32_t n, uint32_t k, int kind)
{
    struct matrix m = { p, n, k, (n + 15) / 16, {}, {} };
    const uint64_t bytes = bytes_of_row(p->cpu, k), tile = p->cuda->tile_bytes(k);
    assert_int_equal(tile % 16, 0);
    assert_in_range(tile, 16 * bytes, 16 * bytes + 2 * bytes + 2176);
    m.rows = make<uint8_t>(n * bytes);
    m.tiles = make<uint8_t>(m.n_tiles * tile);
    fill_rows(p->cpu, m.rows.host, n, k, kind);
    send(&m.rows);
    const struct wk_cuda_tiles t = tiles_call(&m, m.rows.device);
    LAUNCH(p->cuda->pack(&t, NULL, &error_text));
    return m;
}
static void drop_matrix(struct matrix *m)
{
    drop(&m->rows);
    drop(&m->tiles);
}

/* The sign of a zero may differ, and which of infinity and NaN a scale that is not finite becomes. */
static bool same(float a, float b)
{
    if (memcmp(&a, &b, 4) == 0 || a == b) return true;
    return !isfinite(a) && !isfinite(b);
}
static bool same_half(uint16_t got, float want)
{
    return same(half_value(got), half_value(half_bits(want))) || (!isfinite(want) && (got & 0x7c00u) == 0x7c00u);
}

static void check_there_and_back(struct matrix *m)
{
    array<uint8_t> back = make<uint8_t>(m->rows.n);
    const struct wk_cuda_tiles t = tiles_call(m, back.device);
    LAUNCH(m->p->cuda->unpack(&t, NULL, &error_text));
    receive(&back);
    receive(&m->tiles);
    for (size_t i = 0; i < back.n; i++)
        if (back.host[i] != m->rows.host[i])
            fail_msg("%s, %u x %u: byte %zu of row %zu is %02x, was %02x", m->p->cpu->name, m->n, m->k,
                     i % (back.n / m->n), i / (back.n / m->n), back.host[i], m->rows.host[i]);
    drop(&back);
}

/* One call of gather: rows [0, rows) at once, scaled, added to what lies there or not, with partials or not. */
struct gather_case {
    uint32_t rows;
    bool pdl, add, part;
    float scale;
};

static void gather_one(const struct matrix *m, const struct gather_case *c)
{
    const uint32_t stride = (m->k + 15) / 16 * 16 + 16, n16 = (m->k + 15) / 16;
    array<uint32_t> index = make<uint32_t>(c->rows);
    array<float> y = make<float>((size_t)c->rows * stride), part = make<float>((size_t)c->rows * n16 + 1);
    float *want = (float *)malloc(m->k * sizeof(float)), *old = (float *)malloc(m->k * sizeof(float));
    for (uint32_t i = 0; i < c->rows; i++) index.host[i] = i == 0 ? m->n - 1 : next_noise() % m->n;
    send(&index);
    for (uint32_t j = 0; j < m->k; j++) old[j] = (float)((int32_t)(next_noise() % 2001) - 1000) * 0x1p-11f;
    poison(&y);
    poison(&part);
    if (c->add) {
        for (uint32_t i = 0; i < c->rows; i++) memcpy(y.host + (size_t)i * stride, old, m->k * sizeof *old);
        send(&y);
    }
    const struct wk_cuda_gather g = { sizeof g,
                                      c->pdl ? (uint32_t)WK_CUDA_DEPENDENT : 0u,
                                      m->k,
                                      c->rows,
                                      m->tiles.device,
                                      index.device,
                                      y.device,
                                      stride,
                                      c->scale,
                                      c->add,
                                      c->part ? part.device : NULL };
    LAUNCH(m->p->cuda->gather(&g, NULL, &error_text));
    receive(&y);
    receive(&part);
    for (uint32_t i = 0; i < c->rows; i++) {
        const float *row = y.host + (size_t)i * stride;
        format_dequantize(m->p->cpu, want, m->rows.host + index.host[i] * bytes_of_row(m->p->cpu, m->k), m->k);
        for (uint32_t j = 0; j < m->k; j++) {
            const float scaled = want[j] * c->scale, expected = c->add ? old[j] + scaled : scaled;
            if (!same(row[j], expected))
                fail_msg("%s, %u x %u: value %u of row %u is %.9g, not %.9g", m->p->cpu->name, m->n, m->k, j,
                         index.host[i], (double)row[j], (double)expected);
        }
        for (uint32_t j = m->k; j < stride; j++)
            if (!isnan(row[j])) fail_msg("%s, %u x %u: written past the row: value %u", m->p->cpu->name, m->n, m->k, j);
        for (uint32_t j = 0; j < n16; j++) {
            float s[16] = {}; /* the tree of wk_square_sum16 */
            for (uint32_t q = 0; q < 16 && 16 * j + q < m->k; q++) s[q] = row[16 * j + q] * row[16 * j + q];
            for (uint32_t d = 1; d < 16; d *= 2)
                for (uint32_t q = 0; q < 16; q += 2 * d) s[q] += s[q + d];
            if (c->part ? !same(part.host[(size_t)i * n16 + j], s[0]) : !isnan(part.host[(size_t)i * n16 + j]))
                fail_msg("%s, %u x %u: partial %u of row %u is %.9g, not %.9g", m->p->cpu->name, m->n, m->k, j,
                         index.host[i], (double)part.host[(size_t)i * n16 + j], (double)s[0]);
        }
    }
    if (!isnan(part.host[(size_t)c->rows * n16]))
        fail_msg("%s, %u x %u: written past the partials", m->p->cpu->name, m->n, m->k);
    free(old);
    free(want);
    drop(&index);
    drop(&y);
    drop(&part);
}

/* Up to 64 rows a warp takes 32 values, then more. */
static void check_gather(const struct matrix *m)
{
    const uint32_t rows = m->n < 5 ? 5 : m->n < WK_CUDA_FEW ? m->n : (uint32_t)WK_CUDA_FEW;
    const struct gather_case cases[] = { { rows, false, false, false, 1.0f },
                                         { rows, true, false, true, 1.0f },
                                         { 1, true, true, true, 0.75f },
                                         { WK_CUDA_FEW + 3, false, true, true, 1.5f },
                                         { WK_CUDA_FEW + 3, true, false, false, 1.0f } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) gather_one(m, &cases[i]);
}

static void check_expand(const struct matrix *m)
{
    const uint32_t whole = (m->k + 7) / 8 * 8, stride = whole + 8;
    array<uint16_t> y = make<uint16_t>((size_t)m->n * stride);
    float *want = (float *)malloc(m->k * sizeof(float));
    const struct wk_cuda_expand e = { sizeof e, m->k, m->n, 0, m->tiles.device, y.device, stride };
    LAUNCH(m->p->cuda->expand(&e, NULL, &error_text));
    receive(&y);
    for (uint32_t r = 0; r < m->n; r++) {
        const uint16_t *got = y.host + (size_t)r * stride;
        format_dequantize(m->p->cpu, want, m->rows.host + r * bytes_of_row(m->p->cpu, m->k), m->k);
        for (uint32_t j = 0; j < m->k; j++)
            if (!same_half(got[j], want[j]))
                fail_msg("%s, %u x %u: half %u of row %u is %.9g, not that of %.9g", m->p->cpu->name, m->n, m->k, j, r,
                         (double)half_value(got[j]), (double)want[j]);
        for (uint32_t j = m->k; j < stride; j++)
            if (got[j] != (j < whole ? 0 : 0xffff))
                fail_msg("%s, %u x %u: past the row, half %u: %04x", m->p->cpu->name, m->n, m->k, j, got[j]);
    }
    free(want);
    drop(&y);
}

static void check_type(const struct pair *p)
{
    static const uint32_t rows[] = { 1, 7, 16, 17, 33, 100 }, lengths[] = { 1, 2, 3, 4, 7, 8, 11, 15, 27, 43 },
                          single[] = { 1, 5, 31, 32, 33, 64, 100, 896, 1001, 2880 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const uint32_t k = p->cpu->block == 1 ? single[i] : lengths[i] * p->cpu->block;
        for (int kind = BITS; kind <= VALUES; kind++) {
            struct matrix m = make_matrix(p, rows[(i + (uint32_t)kind) % 6], k, kind);
            check_there_and_back(&m);
            check_gather(&m);
            if (p->cuda->expand)
                check_expand(&m);
            else
                assert_int_equal(p->cpu->ggml_type, 0);
            drop_matrix(&m);
        }
    }
}
static void test_types(void **state)
{
    (void)state;
    each_type(check_type);
}

/* Rows of tiles past the matrix are zeros: whoever pads a matrix reads them. */
static void check_padding(const struct pair *p)
{
    if (!p->cuda->expand) return;
    const uint32_t k = p->cpu->block == 1 ? 70 : 3 * p->cpu->block, stride = (k + 7) / 8 * 8;
    struct matrix m = make_matrix(p, 18, k, VALUES);
    array<uint16_t> y = make<uint16_t>((size_t)32 * stride);
    const struct wk_cuda_expand e = { sizeof e, k, 32, 0, m.tiles.device, y.device, stride };
    LAUNCH(p->cuda->expand(&e, NULL, &error_text));
    receive(&y);
    for (uint32_t i = 18 * stride; i < 32 * stride; i++)
        if (y.host[i] & 0x7fffu)
            fail_msg("%s: half %u of padding row %u is %04x", p->cpu->name, i % stride, i / stride, y.host[i]);
    drop(&y);
    drop_matrix(&m);
}
static void test_padding(void **state)
{
    (void)state;
    each_type(check_padding);
}

/* The same tiles, whatever else is packed with them. */
static void check_alone(const struct pair *p)
{
    const uint32_t k = p->cpu->block == 1 ? 320 : 5 * p->cpu->block;
    struct matrix m = make_matrix(p, 48, k, BITS);
    array<uint8_t> one = make<uint8_t>(p->cuda->tile_bytes(k));
    struct wk_cuda_tiles t = tiles_call(&m, m.rows.device + 32 * bytes_of_row(p->cpu, k));
    t.tiles = one.device;
    t.n_tiles = 1;
    t.n_rows = 16;
    LAUNCH(p->cuda->pack(&t, NULL, &error_text));
    receive(&one);
    receive(&m.tiles);
    assert_memory_equal(one.host, m.tiles.host + 2 * one.n, one.n);
    drop(&one);
    drop_matrix(&m);
}
static void test_alone(void **state)
{
    (void)state;
    each_type(check_alone);
}

/* ---- products ------------------------------------------------------------------------------------------ */

static array<uint16_t> make_act(uint32_t rows, uint32_t k)
{
    const uint32_t k32 = wk_act_k(k);
    array<uint16_t> a = make<uint16_t>((size_t)rows * k32);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < k32; i++) a.host[(size_t)r * k32 + i] = i < k ? half_bits(noise(2.0f)) : (uint16_t)0;
    send(&a);
    return a;
}

/* Relative to the sum of |w x|: products of plain types are exact, their sums in F32; a block's weights are multiplied
 * as f16, with a scale and a minimum rounded before (test_product looks at each of them). */
static double tolerance(const struct wk_type_cpu *t) { return t->block == 1 ? 2e-6 : 1e-3; }

static void check_product_of(const struct pair *p, uint32_t n, uint32_t k, uint32_t rows, int kind)
{
    struct matrix m = make_matrix(p, n, k, kind);
    array<uint16_t> a = make_act(rows, k);
    array<float> y = make<float>((size_t)rows * n);
    float *w = (float *)malloc(k * sizeof(float)), *x = (float *)malloc((size_t)rows * k * sizeof(float));
    for (uint32_t i = 0; i < rows * k; i++) x[i] = half_value(a.host[(size_t)(i / k) * wk_act_k(k) + i % k]);
    struct wk_cuda_product c = {};
    array<uint8_t> workspace =
        make<uint8_t>(p->module->workspace ? (size_t)p->module->workspace(p->cpu->ggml_type, k, rows) + 1 : 1);
    c.struct_size = sizeof c;
    c.rows = rows;
    c.k = k;
    c.workspace = workspace.device;
    c.n_seg = 1;
    c.input.x = a.device;
    c.seg[0].tiles = m.tiles.device;
    c.seg[0].ggml_type = p->cpu->ggml_type;
    c.seg[0].n = n;
    c.seg[0].out.y = y.device;
    c.seg[0].out.y_stride = n;
    LAUNCH(p->module->product(&c, NULL, &error_text));
    receive(&y);
    double worst = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        format_dequantize(p->cpu, w, m.rows.host + i * bytes_of_row(p->cpu, k), k);
        for (uint32_t r = 0; r < rows; r++) {
            double want = 0.0, size = 1e-300;
            for (uint32_t j = 0; j < k; j++) {
                const double term = (double)w[j] * (double)x[(size_t)r * k + j];
                want += term;
                size += fabs(term);
            }
            const double off = fabs((double)y.host[(size_t)r * n + i] - want) / size;
            if (!(off <= worst)) worst = off;
        }
    }
    if (!(worst <= tolerance(p->cpu)))
        fail_msg("%s, %u x %u, %u rows: off by %g of the sum of magnitudes", p->cpu->name, n, k, rows, worst);
    free(w);
    free(x);
    drop(&a);
    drop(&y);
    drop(&workspace);
    drop_matrix(&m);
}

static void check_product(const struct pair *p)
{
    static const struct {
        uint32_t n, blocks, rows;
    } shapes[] = { { 17, 1, 1 }, { 40, 3, 1 }, { 33, 9, 3 }, { 100, 16, 8 }, { 48, 5, 33 }, { 257, 11, 64 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const uint32_t k = shapes[i].blocks * (p->cpu->block == 1 ? 77 : p->cpu->block);
        check_product_of(p, shapes[i].n, k, shapes[i].rows, VALUES);
        if (p->cpu->ggml_type == 0 || p->cpu->ggml_type == 30)
            check_product_of(p, shapes[i].n, k, shapes[i].rows, WIDE);
    }
}
static void test_products(void **state)
{
    (void)state;
    each_type(check_product);
}

static void check_serves(const struct pair *p)
{
    const uint32_t same_types[] = { p->cpu->ggml_type, p->cpu->ggml_type, p->cpu->ggml_type },
                   other[] = { p->cpu->ggml_type, 9999 };
    assert_int_equal(p->module->serves(same_types, 1), 1);
    assert_int_equal(p->module->serves(same_types, 3), 1);
    assert_int_equal(p->module->serves(other, 2), 0);
}
static void test_serves(void **state)
{
    (void)state;
    each_type(check_serves);
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void assert_refused(wk_status status, const char *words)
{
    assert_int_equal(status, WK_INVALID);
    if (!strstr(error_memory, words)) fail_msg("expected \"%s\" in: %s", words, error_memory);
}

static void check_refusals(const struct pair *p)
{
    struct matrix m = make_matrix(p, 20, p->cpu->block * 2, VALUES);
    const struct wk_cuda_tiles good = tiles_call(&m, m.rows.device);
    array<uint16_t> y = make<uint16_t>(64);
    struct wk_cuda_tiles t = good;
    t.struct_size = 8;
    assert_refused(p->cuda->pack(&t, NULL, &error_text), "pack: struct_size 8");
    t = good;
    t.k = 0;
    assert_refused(p->cuda->unpack(&t, NULL, &error_text), "unpack: k 0");
    t = good;
    t.n_rows = 33;
    assert_refused(p->cuda->pack(&t, NULL, &error_text), "pack: n_rows 33 in 2 tiles");
    t = good;
    t.row_bytes--;
    assert_refused(p->cuda->pack(&t, NULL, &error_text), "pack: row_bytes");
    t = good;
    t.rows = NULL;
    assert_refused(p->cuda->pack(&t, NULL, &error_text), "pack: tiles or rows is missing");
    struct wk_cuda_expand e = { sizeof e, m.k, 1, 0, m.tiles.device, y.device, m.k + 1 };
    if (p->cuda->expand) assert_refused(p->cuda->expand(&e, NULL, &error_text), "expand: y_stride");
    struct wk_cuda_gather g = { sizeof g, 0, m.k, 1, m.tiles.device, NULL, (float *)y.device, m.k, 1.0f, 0, NULL };
    assert_refused(p->cuda->gather(&g, NULL, &error_text), "gather: tiles, index or y is missing");
    drop(&y);
    drop_matrix(&m);
}
static void test_refusals(void **state)
{
    (void)state;
    each_type(check_refusals);
}

int main(int argc, char **argv)
{
    if (no_gpu()) return 77;
    const struct plugin_options o = {};
    if (plugin_registry_open(&o, &registry, &error_text) != WK_OK) {
        (void)fprintf(stderr, "%s\n", error_memory);
        return 1;
    }
    names = argv + 1;
    n_names = argc - 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_types),  cmocka_unit_test(test_padding),
                                        cmocka_unit_test(test_alone),  cmocka_unit_test(test_products),
                                        cmocka_unit_test(test_serves), cmocka_unit_test(test_refusals) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
