/* test_large.cu: products of experts with many items each (worker/cuda/product_large.cuh) against a plain kernel in F64
 * on the weights that products take (part/weights.cuh): a gated activation from panels to panels, then a product of
 * those to rows; what lies behind, between and beyond stays as it was; and an item's bits do not depend on the others.
 * Exit status 77: no GPU here that has them. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/panels.cuh>
#include <worker/cuda/product.h>

#include "quant_formats.cuh"

enum { N_FAMILIES = sizeof families / sizeof *families };

static int failures;
#define CHECK(cond, ...)                                    \
    do {                                                    \
        if (!(cond)) {                                      \
            if (failures++ < 40) {                          \
                printf("FAIL %s:%d: ", __FILE__, __LINE__); \
                printf(__VA_ARGS__);                        \
                printf("\n");                               \
            }                                               \
        }                                                   \
    } while (0)

static uint32_t seed = 12345;
static uint32_t noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}
static float noise_float(float scale) { return scale * ((float)noise() / 8388608.0f - 1.0f); }

/* ---- memory: poisoned with 0xff (a NaN in f16 and F32), a guard behind --------------------------------- */

enum { GUARD = 512 };
template <class T> struct device {
    T *p;
    size_t n;
};
template <class T> static device<T> make(size_t n)
{
    device<T> d = { NULL, n };
    OK(cudaMalloc((void **)&d.p, n * sizeof(T) + GUARD));
    OK(cudaMemset(d.p, 0xff, n * sizeof(T) + GUARD));
    return d;
}
template <class T> static device<T> send(const std::vector<T> &v)
{
    device<T> d = make<T>(v.size());
    OK(cudaMemcpy(d.p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return d;
}
template <class T> static std::vector<T> receive(const device<T> &d)
{
    std::vector<T> v(d.n);
    unsigned char guard[GUARD];
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(v.data(), d.p, d.n * sizeof(T), cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(guard, d.p + d.n, GUARD, cudaMemcpyDeviceToHost));
    for (int i = 0; i < GUARD; i++) CHECK(guard[i] == 0xff, "written behind an array of %zu bytes", d.n * sizeof(T));
    return v;
}
template <class T> static void drop(device<T> &d) { OK(cudaFree(d.p)); }

/* ---- weights of all experts ---------------------------------------------------------------------------- */

struct weights {
    device<unsigned char> tiles;
    device<float> value; /* [experts][n][k]: as products take them; f16 values */
    device<float> bias;
    uint32_t n, k;
};
static __global__ void round_kernel(float *w, uint64_t n)
{
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        w[i] = __half2float(__float2half(w[i]));
}
static weights make_weights(const struct format *f, uint32_t experts, uint32_t n, uint32_t k)
{
    const uint64_t blocks = (uint64_t)n * (k / f->block), slab = (n + 15) / 16 * f->tile_stride(k);
    weights w = { make<unsigned char>(experts * slab), make<float>((size_t)experts * n * k), {}, n, k };
    std::vector<unsigned char> raw(blocks * f->block_bytes);
    std::vector<float> bias((size_t)experts * n);
    for (float &b : bias) b = noise_float(1);
    for (uint32_t e = 0; e < experts; e++) {
        for (unsigned char &b : raw) b = (unsigned char)noise();
        for (uint64_t b = 0; b < blocks; b++)
            for (int j = 0; j < 2; j++) {
                unsigned char *const block = raw.data() + b * f->block_bytes;
                const __half d = __float2half((noise_float(0.008f) + 0.012f) *
                                              (j == 0 && f->type != 12 && f->type != 13 && noise() % 2 ? -1.0f : 1.0f) *
                                              (f->block == 256 ? 0.05f : 1.0f));
                if (f->halves[j] != 0xffff)
                    memcpy(block + f->halves[j], &d, 2);
                else if (j == 0 && f->type == iq1_m::type)
                    put_iq1_m_d(block, d);
                else if (j == 0 && f->type == nvfp4::type)
                    put_nvfp4_scales(block, noise());
                else if (j == 0 && f->exponent != 0xffff)
                    block[f->exponent] =
                        (unsigned char)(noise() % 64 ? 116 + noise() % 6
                                        : noise() % 4
                                            ? 90 + noise() % 26
                                            : 122 +
                                                  noise() %
                                                      10); /* some of any size, some beyond what a scale in f16 holds */
            }
        device<unsigned char> rows = send(raw);
        f->pack(w.tiles.p + e * slab, rows.p, n, k);
        f->weights(w.value.p + (size_t)e * n * k, w.tiles.p + e * slab, n, k);
        OK(cudaDeviceSynchronize());
        drop(rows);
    }
    if (f->halves[0] == 0xffff)
        round_kernel<<<256, 256>>>(w.value.p, (uint64_t)experts * n * k); /* a format of a wider range than f16 */
    w.bias = send(bias);
    return w;
}
static void drop(weights &w)
{
    drop(w.tiles);
    drop(w.value);
    drop(w.bias);
}

/* ---- a mixture ----------------------------------------------------------------------------------------- */

/* sum over k and sum of magnitudes, in F64. */
static __global__ void plain_product(const float *w, const __half *x, const uint32_t *expert, uint32_t n, uint32_t k,
                                     uint32_t x_items, double2 *out)
{
    const uint32_t j = blockIdx.x * blockDim.x + threadIdx.x, item = blockIdx.y;
    if (j >= n) return;
    const float *const a = w + ((size_t)expert[item] * n + j) * k;
    const __half *const b = x + (size_t)(item / x_items) * k;
    double sum = 0, size = 0;
    for (uint32_t i = 0; i < k; i++) {
        const double v = (double)a[i] * (double)__half2float(b[i]);
        sum += v;
        size += v < 0 ? -v : v;
    }
    out[(size_t)item * n + j] = make_double2(sum, size);
}
static std::vector<double2> plain(const weights &w, const std::vector<uint16_t> &x, const std::vector<uint32_t> &expert,
                                  uint32_t x_items)
{
    device<uint16_t> d_x = send(x);
    device<uint32_t> d_expert = send(expert);
    device<double2> out = make<double2>(expert.size() * w.n);
    plain_product<<<dim3((w.n + 127) / 128, (unsigned)expert.size()), 128>>>(w.value.p, (const __half *)d_x.p,
                                                                             d_expert.p, w.n, w.k, x_items, out.p);
    OK(cudaGetLastError());
    std::vector<double2> r = receive(out);
    drop(d_x), drop(d_expert), drop(out);
    return r;
}
/* What a sum of k products may be off by, for a sum of their magnitudes of 1: the tensor cores cut a sum off, not round
 * it, every 16 products. */
static double error_of(uint32_t k) { return 1.2e-7 * (k / 16 + 8); }
static double glu_of(uint32_t fn, double g, double u, double alpha, double limit)
{
    switch (fn) {
    case WK_GLU_SILU: return g / (1 + exp(-g)) * u;
    case WK_GLU_GELU_TANH: return g / (1 + exp(-2 * 0.7978845608028654 * (g + 0.044715 * g * g * g))) * u;
    case WK_GLU_GELU_ERF: return 0.5 * g * erfc(-g / 1.4142135623730951) * u;
    default:
        g = g > limit ? limit : g;
        u = u > limit ? limit : u < -limit ? -limit : u;
        return g / (1 + exp(-alpha * g)) * (u + 1);
    }
}
static float half_value(uint16_t bits)
{
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}

struct mixture {
    const struct format *f;
    uint32_t experts, top_k, hidden, ff, group;
    weights gate, up, down;
};
static mixture make_mixture(const struct format *f, uint32_t experts, uint32_t top_k, uint32_t hidden, uint32_t ff)
{
    mixture m = { f,
                  experts,
                  top_k,
                  hidden,
                  ff,
                  wk_families_panels(families, N_FAMILIES, f->type),
                  make_weights(f, experts, ff, hidden),
                  make_weights(f, experts, ff, hidden),
                  make_weights(f, experts, hidden, ff) };
    return m;
}

/* Where each item stands: its place in the panels, by the groups as quant_cuda.h has them. */
static std::vector<uint32_t> places_of(const uint32_t *groups, uint32_t experts, uint32_t items)
{
    std::vector<uint32_t> place(items, UINT32_MAX);
    uint32_t at = 0;
    for (uint32_t e = 0; e < experts; e++) {
        const uint32_t first = groups[experts + e], n = groups[experts + e + 1] - first;
        for (uint32_t i = 0; i < n; i++) place[groups[2 * experts + 1 + first + i]] = at + i;
        at += (n + 7) & ~7u;
    }
    return place;
}
static size_t panel_at(uint32_t group, uint64_t places, uint32_t place, uint32_t k)
{
    return ((k / 64) * places + place) * 64 + wk_panel_at(group, place, k) / 2;
}

static struct wk_cuda_product base(const mixture &m, const uint32_t *groups, uint32_t items, uint32_t k,
                                   const uint16_t *x, uint64_t places, uint32_t shift, uint32_t *ticket)
{
    struct wk_cuda_product p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.rows = items;
    p.k = k;
    p.n_seg = 1;
    p.input.kind = WK_CUDA_IN_PANELS;
    p.input.shift = shift;
    p.input.x = x;
    p.input.x_stride = places;
    p.n_experts = m.experts;
    p.groups = groups;
    p.ticket = ticket;
    return p;
}
static struct wk_cuda_segment segment(const mixture &m, const weights &w)
{
    struct wk_cuda_segment s;
    memset(&s, 0, sizeof s);
    s.tiles = w.tiles.p;
    s.bias = w.bias.p;
    s.ggml_type = m.f->type;
    s.n = w.n;
    return s;
}

struct results {
    std::vector<uint16_t> middle;
    std::vector<float> rows;
}; /* by item */

/* Rows of `x` through the mixture: gate and up from panels to panels, down from those to rows. */
static results run(const mixture &m, const std::vector<uint16_t> &x, const std::vector<uint32_t> &expert, uint32_t glu,
                   uint32_t ff_group)
{
    const uint32_t rows = (uint32_t)(x.size() / m.hidden), items = rows * m.top_k;
    const uint64_t places = wk_cuda_panel_places(m.experts, items);
    uint32_t *const groups = items_by_expert(expert.data(), m.top_k, rows, m.top_k, m.experts, 0);
    const std::vector<uint32_t> place = places_of(groups, m.experts, items);
    std::vector<uint16_t> in(wk_cuda_panel_bytes(m.hidden, places) / 2, 0xffff);
    for (uint32_t i = 0; i < items; i++)
        for (uint32_t k = 0; k < (m.hidden + 63) / 64 * 64; k++)
            in[panel_at(m.group, places, place[i], k)] = k < m.hidden ? x[(size_t)(i / m.top_k) * m.hidden + k] : 0;
    device<uint16_t> d_in = send(in), d_middle = make<uint16_t>(wk_cuda_panel_bytes(m.ff, places) / 2);
    device<uint32_t> d_groups = send(std::vector<uint32_t>(groups, groups + wk_cuda_group_words(m.experts, items))),
                     ticket = send(std::vector<uint32_t>(1, 0));
    device<float> y = make<float>((size_t)items * m.hidden);

    struct wk_cuda_product p = base(m, d_groups.p, items, m.hidden, d_in.p, places, 1, ticket.p);
    p.n_seg = 2;
    p.glu = glu, p.alpha = 1.702f, p.limit = 7;
    p.seg[0] = segment(m, m.gate), p.seg[1] = segment(m, m.up);
    p.seg[0].out.kind = WK_CUDA_OUT_PANELS, p.seg[0].out.shift = 2, p.seg[0].out.y = d_middle.p,
    p.seg[0].out.y_stride = places;
    p.out_group = ff_group;
    CHECK(wk_families_large(families, N_FAMILIES, &p, NULL, &err) == WK_OK, "%s: %s", m.f->name, text);
    const std::vector<uint16_t> middle = receive(d_middle);

    /* A reader of the other order: only the values are looked at. */
    if (ff_group == m.group) {
        struct wk_cuda_product q = base(m, d_groups.p, items, m.ff, d_middle.p, places, 2, ticket.p);
        q.seg[0] = segment(m, m.down);
        q.seg[0].out.y = y.p, q.seg[0].out.y_stride = m.hidden;
        CHECK(wk_families_large(families, N_FAMILIES, &q, NULL, &err) == WK_OK, "%s: %s", m.f->name, text);
    }
    results r = { std::vector<uint16_t>((size_t)items * m.ff), receive(y) };
    CHECK(receive(ticket)[0] == 0, "%s: the ticket is left at %u", m.f->name, receive(ticket)[0]);

    std::vector<char> of_item(places, 0);
    for (uint32_t i = 0; i < items; i++) {
        of_item[place[i]] = 1;
        for (uint32_t j = 0; j < (m.ff + 63) / 64 * 64; j++) {
            const uint16_t bits = middle[panel_at(ff_group, places, place[i], j)];
            if (j < m.ff)
                r.middle[(size_t)i * m.ff + j] = bits;
            else
                CHECK(bits == 0, "%s: item %u: a value behind the last is not 0", m.f->name, i);
        }
    }
    for (uint32_t at = 0; at < places; at++)
        for (uint32_t j = 0; !of_item[at] && j < (m.ff + 63) / 64 * 64; j++)
            CHECK(middle[panel_at(ff_group, places, at, j)] == 0xffff, "%s: nobody's place %u was written to",
                  m.f->name, at);
    free(groups);
    drop(d_in), drop(d_middle), drop(d_groups), drop(ticket), drop(y);
    return r;
}

static void check(const mixture &m, const std::vector<uint16_t> &x, const std::vector<uint32_t> &expert, uint32_t glu,
                  const results &r)
{
    const std::vector<double2> g = plain(m.gate, x, expert, m.top_k), u = plain(m.up, x, expert, m.top_k),
                               d = plain(m.down, r.middle, expert, 1);
    const std::vector<float> bg = receive(m.gate.bias), bu = receive(m.up.bias), bd = receive(m.down.bias);
    for (size_t i = 0; i < expert.size(); i++) {
        for (uint32_t j = 0; j < m.ff; j++) {
            const size_t at = i * m.ff + j, b = (size_t)expert[i] * m.ff + j;
            const double gv = 2 * g[at].x + bg[b], uv = 2 * u[at].x + bu[b], expected = glu_of(glu, gv, uv, 1.702, 7),
                         got = 4.0 * (double)half_value(r.middle[at]);
            const double slack = 1e-3 * fabs(expected) + 2e-6 +
                                 error_of(m.hidden) * ((2 * g[at].y + fabs(gv)) * (1 + fabs(uv)) +
                                                       (2 * u[at].y + fabs(uv)) * (1 + fabs(gv)));
            CHECK(fabs(got - expected) <= slack, "%s: gated: item %zu, value %u: %.9g, expected %.9g", m.f->name, i, j,
                  got, expected);
        }
        for (uint32_t j = 0; j < m.hidden; j++) {
            const size_t at = i * m.hidden + j;
            const double b = bd[(size_t)expert[i] * m.hidden + j], expected = 4 * d[at].x + b;
            CHECK(fabs(r.rows[at] - expected) <= error_of(m.ff) * (4 * d[at].y + fabs(b)),
                  "%s: down: item %zu, value %u: %.9g, expected %.9g", m.f->name, i, j, r.rows[at], expected);
        }
    }
}

/* Rows that give expert e counts[e] items, as mixed as may be. */
static std::vector<uint32_t> deal(std::vector<uint32_t> counts)
{
    uint32_t items = 0, e = 0;
    for (uint32_t c : counts) items += c;
    std::vector<uint32_t> expert(items);
    for (uint32_t i = 0; i < items; i++) {
        while (!counts[e % counts.size()]) e++;
        expert[i] = e % (uint32_t)counts.size();
        counts[e++ % counts.size()]--;
    }
    return expert;
}
static std::vector<uint16_t> random_rows(uint32_t rows, uint32_t k)
{
    std::vector<uint16_t> x((size_t)rows * k);
    for (uint16_t &v : x) v = __half_raw(__float2half(noise_float(2))).x;
    return x;
}

static void test_mixture(const mixture &m, const std::vector<uint32_t> &counts, uint32_t glu)
{
    const std::vector<uint32_t> expert = deal(counts);
    const uint32_t rows = (uint32_t)expert.size() / m.top_k;
    const std::vector<uint16_t> x = random_rows(rows, m.hidden);
    const results all = run(m, x, expert, glu, m.group);
    check(m, x, expert, glu, all);

    /* The opposite order of rows, and one row alone: the same bits. */
    std::vector<uint16_t> back(x.size());
    std::vector<uint32_t> back_expert(expert.size());
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(back.data() + (size_t)(rows - 1 - i) * m.hidden, x.data() + (size_t)i * m.hidden, m.hidden * 2);
        memcpy(back_expert.data() + (size_t)(rows - 1 - i) * m.top_k, expert.data() + (size_t)i * m.top_k, m.top_k * 4);
    }
    const results other = run(m, back, back_expert, glu, m.group);
    const size_t ff = (size_t)m.top_k * m.ff, hidden = (size_t)m.top_k * m.hidden;
    for (uint32_t i = 0; i < rows; i++)
        CHECK(!memcmp(all.middle.data() + i * ff, other.middle.data() + (rows - 1 - i) * ff, ff * 2) &&
                  !memcmp(all.rows.data() + i * hidden, other.rows.data() + (rows - 1 - i) * hidden, hidden * 4),
              "%s: row %u has other bits in the opposite order of rows", m.f->name, i);
    const uint32_t one = rows / 2;
    const results alone =
        run(m, std::vector<uint16_t>(x.begin() + (size_t)one * m.hidden, x.begin() + (size_t)(one + 1) * m.hidden),
            std::vector<uint32_t>(expert.begin() + one * m.top_k, expert.begin() + (one + 1) * m.top_k), glu, m.group);
    CHECK(!memcmp(alone.middle.data(), all.middle.data() + one * ff, ff * 2) &&
              !memcmp(alone.rows.data(), all.rows.data() + one * hidden, hidden * 4),
          "%s: row %u alone has other bits", m.f->name, one);
    const results turned = run(m, x, expert, glu, 48 - m.group);
    CHECK(turned.middle == all.middle, "%s: panels of the other order of k hold other values", m.f->name);
}

/* What the contract excludes is refused by name. */
static void test_refusals(const mixture &m)
{
    uint32_t word = 0;
    struct {
        const char *names;
        void (*spoil)(struct wk_cuda_product *);
    } cases[] = {
        { "rows", [](struct wk_cuda_product *p) { p->rows = 0; } },
        { "k 33", [](struct wk_cuda_product *p) { p->k = 33; } },
        { "input kind", [](struct wk_cuda_product *p) { p->input.kind = WK_CUDA_IN_ACT; } },
        { "rows", [](struct wk_cuda_product *p) { p->input.x_stride = 3; } },
        { "groups", [](struct wk_cuda_product *p) { p->groups = NULL; } },
        { "groups", [](struct wk_cuda_product *p) { p->n_experts = WK_CUDA_LARGE_EXPERTS + 1; } },
        { "ticket", [](struct wk_cuda_product *p) { p->ticket = NULL; } },
        { "n_seg", [](struct wk_cuda_product *p) { p->glu = WK_GLU_SILU; } },
        { "map", [](struct wk_cuda_product *p) { p->map[0].fn = WK_UNARY_TANH; } },
        { "out", [](struct wk_cuda_product *p) { p->seg[0].out.kind = WK_CUDA_OUT_ACT; } },
        { "y_stride", [](struct wk_cuda_product *p) { p->seg[0].out.y_stride = 1; } },
        { "ggml_type", [](struct wk_cuda_product *p) { p->seg[0].ggml_type = 1000; } },
    };
    for (auto &c : cases) {
        struct wk_cuda_product p = base(m, &word, 4, m.hidden, (const uint16_t *)&word, 8, 0, &word);
        p.seg[0] = segment(m, m.gate);
        p.seg[0].out.y = &word, p.seg[0].out.y_stride = m.ff;
        c.spoil(&p);
        text[0] = 0;
        CHECK(wk_families_large(families, N_FAMILIES, &p, NULL, &err) == WK_INVALID && strstr(text, c.names),
              "'%s' was not refused: '%s'", c.names, text);
    }
}

int main(void)
{
    int count = 0;
    struct wk_image image;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count || wk_image_read(&image) != cudaSuccess || !image.wgmma) {
        printf("test_large: no GPU of compute capability 9.0 here, or no code for it\n");
        return 77;
    }
    if (wk_families_open(families, N_FAMILIES, 0, &err)) {
        printf("open: %s\n", text);
        return 1;
    }
    for (const struct format *f = formats; f < formats + N_FORMATS; f++) {
        if (!wk_families_panels(families, N_FAMILIES, f->type)) continue;
        mixture m = make_mixture(f, 5, 2, whole_blocks(f, 96), whole_blocks(f, 160)); /* k ends inside of a unit */
        test_mixture(m, { 17, 0, 129, 1, 3 }, WK_GLU_SILU_CLAMPED);
        test_mixture(m, { 3, 0, 1, 6, 0 }, WK_GLU_SILU);
        if (f == formats) {
            test_mixture(m, { 9, 7, 0, 0, 0 }, WK_GLU_GELU_TANH);
            test_mixture(m, { 0, 8, 0, 0, 2 }, WK_GLU_GELU_ERF);
            for (uint32_t n = 7; n < 128; n += 8)
                test_mixture(m, { n, 0, 1, 0, 0 }, WK_GLU_SILU); /* every number of columns */
            test_refusals(m);
        }
        drop(m.gate), drop(m.up), drop(m.down);
        mixture l =
            make_mixture(f, 2, 1, f->block == 256 ? 768 : whole_blocks(f, 1056),
                         f->block == 256 ? 1024 : whole_blocks(f, 544)); /* rings come round, several units of rows */
        test_mixture(l, { 20, 3 }, WK_GLU_SILU_CLAMPED);
        drop(l.gate), drop(l.up), drop(l.down);
        printf("%s: %d failures\n", f->name, failures);
        fflush(stdout);
    }
    return failures != 0;
}
