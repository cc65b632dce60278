/* test_parts.cu: the kernels of the plugin's own operations against the same written on the host, in doubles: rows
 * wider than a block is, of odd widths and strides, with poison around what is written. */
#include <worker/arch_cuda.h>

#include "device/cuda/test_device.cuh"

extern "C" {
wk_status gemma3n_image(int32_t device, const wk_err *err);
wk_status gemma3n_predict(const wk_custom_cuda_call *call, void *stream, const wk_err *err);
wk_status gemma3n_correct(const wk_custom_cuda_call *call, void *stream, const wk_err *err);
wk_status gemma3n_as_long(const wk_custom_cuda_call *call, void *stream, const wk_err *err);
wk_status gemma3n_above(const wk_custom_cuda_call *call, void *stream, const wk_err *err);
}

enum { PARTS = 4, ROWS = 3, E = 1101, F = 1733 };

struct call {
    wk_custom_cuda_call c;
    array<float> in[3], out;
};

static void add_input(struct call *k, uint32_t width)
{
    const uint32_t i = k->c.n_in++, stride = width + 5;
    k->in[i] = make_noise((size_t)ROWS * stride, 2);
    k->c.in[i] = k->in[i].device;
    k->c.in_stride[i] = stride;
    k->c.in_width[i] = width;
}
static double at(const struct call *k, uint32_t input, uint32_t row, uint32_t i)
{
    return (double)k->in[input].host[row * k->c.in_stride[input] + i];
}

typedef wk_status (*run_fn)(const wk_custom_cuda_call *call, void *stream, const wk_err *err);
static void run(struct call *k, uint32_t width, run_fn fn)
{
    k->c.struct_size = sizeof k->c;
    k->c.n_rows = ROWS;
    k->c.out_width = width;
    k->c.out_stride = width + 3;
    k->out = make<float>((size_t)ROWS * k->c.out_stride);
    k->c.out = k->out.device;
    LAUNCH(fn(&k->c, NULL, &error_text));
    receive(&k->out);
}
static void near(const struct call *k, uint32_t row, uint32_t i, double expected)
{
    const double y = (double)k->out.host[row * k->c.out_stride + i];
    if (!(fabs(y - expected) <= 1e-5)) fail_msg("row %u, value %u: %.9g, expected %.9g", row, i, y, expected);
}
/* Nothing was written between the rows. */
static void end(struct call *k)
{
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint64_t i = k->c.out_width; i < k->c.out_stride; i++)
            assert_true(isnan(k->out.host[r * k->c.out_stride + i]));
    for (uint32_t i = 0; i < k->c.n_in; i++) drop(&k->in[i]);
    drop(&k->out);
}

static void predicts(void **state)
{
    (void)state;
    LAUNCH(gemma3n_image(0, &error_text));
    for (uint32_t later = 0; later < 2; later++) {
        struct call k = {};
        add_input(&k, PARTS * E);
        add_input(&k, PARTS * PARTS);
        if (later) add_input(&k, E);
        run(&k, PARTS * E, gemma3n_predict);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t e = 0; e < E; e++) {
                double part[PARTS];
                for (uint32_t p = 0; p < PARTS; p++)
                    part[p] = at(&k, 0, r, p * E + e) + (p && later ? at(&k, 2, r, e) : 0);
                for (uint32_t q = 0; q < PARTS; q++) {
                    double y = part[q];
                    for (uint32_t p = 0; p < PARTS; p++) y += at(&k, 1, r, q * PARTS + p) * part[p];
                    near(&k, r, q * E + e, y);
                }
            }
        end(&k);
    }
}

static void corrects(void **state)
{
    (void)state;
    struct call k = {};
    add_input(&k, PARTS * E);
    add_input(&k, PARTS);
    add_input(&k, E);
    run(&k, PARTS * E, gemma3n_correct);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < PARTS * E; i++)
            near(&k, r, i, at(&k, 0, r, i) + (1 + at(&k, 1, r, i / E)) * (at(&k, 2, r, i % E) - at(&k, 0, r, i % E)));
    end(&k);
}

static double mean_square(const struct call *k, uint32_t input, uint32_t row, uint32_t first, uint32_t n, double middle)
{
    double sum = 0;
    for (uint32_t i = first; i < first + n; i++) sum += pow(at(k, input, row, i) - middle, 2);
    return sum / n;
}

/* The last part of the first row has no length. */
static void as_long(void **state)
{
    (void)state;
    struct call k = {};
    add_input(&k, (PARTS - 1) * E);
    add_input(&k, E);
    for (uint32_t i = 2 * E; i < 3 * E; i++) k.in[0].host[i] = 0;
    send(&k.in[0]);
    run(&k, (PARTS - 1) * E, gemma3n_as_long);
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t p = 0; p < PARTS - 1; p++) {
            const double wanted = mean_square(&k, 1, r, 0, E, 0), is = mean_square(&k, 0, r, p * E, E, 0);
            const double factor = sqrt(wanted / fmax(is, 1e-5));
            for (uint32_t i = p * E; i < (p + 1) * E; i++) near(&k, r, i, at(&k, 0, r, i) * factor);
        }
    end(&k);
}

/* Of the last row one value is no number, and so is all of it. */
static void above(void **state)
{
    (void)state;
    struct call k = {};
    const float factor = 0.75f;
    uint32_t open = 0;
    add_input(&k, F);
    k.in[0].host[(ROWS - 1) * k.c.in_stride[0] + 7] = NAN;
    send(&k.in[0]);
    k.c.params = &factor;
    assert_int_equal(gemma3n_above(&k.c, NULL, &error_text), WK_INTERNAL);
    k.c.params_bytes = sizeof factor;
    run(&k, F, gemma3n_above);
    for (uint32_t r = 0; r < ROWS - 1; r++) {
        double mean = 0;
        for (uint32_t i = 0; i < F; i++) mean += at(&k, 0, r, i) / F;
        const double least = mean + (double)factor * sqrt(mean_square(&k, 0, r, 0, F, mean));
        for (uint32_t i = 0; i < F; i++) {
            near(&k, r, i, fmax(at(&k, 0, r, i) - least, 0));
            open += k.out.host[r * k.c.out_stride + i] > 0;
        }
    }
    assert_in_range(open, F / 4, F);
    for (uint32_t i = 0; i < F; i++) assert_true(isnan(k.out.host[(ROWS - 1) * k.c.out_stride + i]));
    end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(predicts), cmocka_unit_test(corrects),
                                        cmocka_unit_test(as_long), cmocka_unit_test(above) };
    return no_gpu() ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
