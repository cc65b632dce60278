/* test_columns.cu: slices and concatenations by groups, and products whose factors repeat, against the same written on
 * the host, bit by bit: nothing is summed. At odd widths, with poison in and around what is written. */
#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

struct input {
    array<float> x;
    uint32_t width, slots, stride;
    bool route; /* slots of one value side by side, ids behind */
};

static struct input make_input(uint32_t rows, uint32_t width, uint32_t slots, bool route, bool odd)
{
    const uint32_t values = route ? 2 * slots : width, stride = odd ? values + 3 : (values + 15) / 16 * 16;
    return { make_noise((size_t)rows * (route ? 1 : slots) * stride, 3), width, slots, stride, route };
}
static float at(const struct input *in, uint32_t row, uint32_t slot, uint32_t column)
{
    const uint32_t s = in->slots == 1 ? 0 : slot;
    return in->route ? in->x.host[(size_t)row * in->stride + s]
                     : in->x.host[((size_t)row * in->slots + s) * in->stride + column];
}

struct alone {
    struct tape_op op;
    struct cuda_alone call;
    struct input in[TAPE_IN];
    uint32_t n, rows;
    array<float> y, part, residual;
    array<uint32_t> index;
};

/* The operation on `rows` rows of `slots` slots, result `width` wide. picked: the rows are a choice of the inputs'. */
static void go(struct alone *a, uint32_t width, uint32_t slots, bool picked, bool with_residual)
{
    const uint32_t items = a->rows * slots, stride = (width + 15) / 16 * 16;
    a->y = make<float>((size_t)items * stride);
    a->part = make<float>((size_t)items * ((width + 15) / 16));
    a->residual = make_noise((size_t)items * stride, 2);
    a->index = make<uint32_t>(a->rows);
    for (uint32_t r = 0; r < a->rows; r++) a->index.host[r] = picked ? (r * 5 + 1) % a->rows : r;
    send(&a->index);
    a->call.op = &a->op;
    a->call.rows = items;
    a->call.width = width;
    a->call.slots = slots;
    for (uint32_t i = 0; i < a->n; i++) {
        const bool index = picked && a->in[i].slots == 1;
        a->call.x[i] = { a->in[i].x.device, a->in[i].stride, index ? a->index.device : NULL };
        a->call.x_width[i] = a->in[i].width;
        a->call.x_slots[i] = a->in[i].slots;
        a->call.x_route[i] = a->in[i].route;
    }
    if (with_residual) a->call.residual = { a->residual.device, stride, NULL };
    a->call.y = a->y.device;
    a->call.y_stride = stride;
    a->call.part = a->part.device;
    LAUNCH(cuda_alone(&a->call, NULL, &error_text));
    receive(&a->y);
    receive(&a->part);
}
static void finish(struct alone *a)
{
    for (uint32_t i = 0; i < a->n; i++) drop(&a->in[i].x);
    drop(&a->y);
    drop(&a->part);
    drop(&a->residual);
    drop(&a->index);
}

/* want(row, slot, column): the value before the residual. */
template <class Want> static void check(const struct alone *a, const char *what, bool picked, Want want)
{
    const uint32_t width = a->call.width, slots = a->call.slots, stride = (uint32_t)a->call.y_stride;
    for (uint32_t item = 0; item < a->call.rows; item++) {
        const float *y = a->y.host + (size_t)item * stride;
        double squares = 0, parts = 0;
        for (uint32_t e = 0; e < stride; e++) {
            if (e >= width) {
                assert_true(isnan(y[e]));
                continue;
            }
            float expected = want(item / slots, item % slots, e);
            if (a->call.residual.x) expected += a->residual.host[(size_t)item * stride + e];
            squares += (double)y[e] * y[e];
            if (y[e] != expected)
                fail_msg("%s: %u wide, %u slots, picked %d: item %u, value %u is %.9g, expected %.9g", what, width,
                         slots, picked, item, e, y[e], expected);
        }
        for (uint32_t i = 0; i < (width + 15) / 16; i++) parts += a->part.host[(size_t)item * ((width + 15) / 16) + i];
        if (!(fabs(parts - squares) <= 1e-6 * squares))
            fail_msg("%s: partials of item %u are %.9g, expected %.9g", what, item, parts, squares);
    }
}

/* ---- slice --------------------------------------------------------------------------------------------- */

static void slice_one(uint32_t rows, uint32_t slots, uint32_t groups, uint32_t width, uint32_t first, uint32_t n,
                      bool odd)
{
    for (uint32_t form = 0; form < 4; form++) {
        const bool picked = form & 1 && slots == 1, residual = form & 2;
        struct alone a = {};
        a.rows = rows;
        a.n = 1;
        a.in[0] = make_input(rows, width * groups, slots, false, odd);
        a.op.kind = WK_OP_SLICE;
        a.op.u.slice.first = first;
        a.op.u.slice.n = n;
        a.op.u.slice.groups = groups;
        go(&a, n * groups, slots, picked, residual);
        check(&a, "slice", picked, [&](uint32_t r, uint32_t s, uint32_t e) {
            return at(&a.in[0], picked ? a.index.host[r] : r, s, e / n * width + first + e % n);
        });
        finish(&a);
    }
}
static void test_slice(void **state)
{
    (void)state;
    slice_one(3, 1, 1, 100, 4, 32, false);
    slice_one(5, 1, 16, 192, 128, 64, false);
    slice_one(2, 1, 128, 192, 0, 128, false);
    slice_one(3, 4, 4, 32, 16, 16, false);
    slice_one(3, 1, 7, 33, 5, 11, false);
    slice_one(3, 2, 5, 8, 2, 4, true);
    slice_one(1, 1, 600, 3, 1, 1, false);
}

/* ---- concat -------------------------------------------------------------------------------------------- */

static void concat_one(uint32_t rows, uint32_t slots, uint32_t groups, uint32_t repeated, const uint32_t *n,
                       uint32_t inputs, bool odd)
{
    for (uint32_t form = 0; form < 4; form++) {
        const bool picked = form & 1 && slots == 1, residual = form & 2;
        uint32_t group = 0;
        struct alone a = {};
        a.rows = rows;
        a.n = inputs;
        for (uint32_t i = 0; i < inputs; i++) {
            a.in[i] = make_input(rows, repeated >> i & 1 ? n[i] : n[i] * groups, slots, false, odd && i);
            group += n[i];
        }
        a.op.kind = WK_OP_CONCAT;
        a.op.u.concat.groups = groups;
        a.op.u.concat.repeated = repeated;
        go(&a, group * groups, slots, picked, residual);
        check(&a, "concat", picked, [&](uint32_t r, uint32_t s, uint32_t e) {
            uint32_t i = 0, c = e % group;
            while (c >= n[i]) c -= n[i++];
            return at(&a.in[i], picked ? a.index.host[r] : r, s, (repeated >> i & 1 ? 0 : e / group * n[i]) + c);
        });
        finish(&a);
    }
}
static void test_concat(void **state)
{
    (void)state;
    static const uint32_t one[] = { 40 }, two[] = { 128, 64 }, odd[] = { 5, 1, 30 },
                          eight[] = { 4, 8, 12, 4, 16, 4, 4, 20 }, ones[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    concat_one(2, 1, 1, 0, one, 1, false);
    concat_one(5, 1, 1, 0, two, 2, false);
    concat_one(3, 1, 16, 2, two, 2, false);
    concat_one(3, 1, 128, 2, two, 2, false);
    concat_one(3, 3, 4, 1, two, 2, false);
    concat_one(3, 1, 6, 5, odd, 3, false);
    concat_one(3, 2, 1, 0, odd, 3, true);
    concat_one(3, 1, 3, 0x91, eight, 8, false);
    concat_one(3, 1, 5, 0xff, ones, 8, true);
}

/* ---- mul ----------------------------------------------------------------------------------------------- */

static void mul_one(uint32_t rows, uint32_t width, uint32_t factors, uint32_t slots_x, uint32_t slots_y, bool route,
                    bool odd)
{
    const uint32_t slots = slots_x > slots_y ? slots_x : slots_y, run = width / factors;
    for (uint32_t form = 0; form < 4; form++) {
        const bool picked = form & 1 && slots_x == 1, residual = form & 2;
        struct alone a = {};
        a.rows = rows;
        a.n = 2;
        a.in[0] = make_input(rows, width, slots_x, false, odd);
        a.in[1] = make_input(rows, factors, slots_y, route, false);
        a.op.kind = WK_OP_MUL;
        go(&a, width, slots, picked, residual);
        check(&a, "mul", picked, [&](uint32_t r, uint32_t s, uint32_t e) {
            const uint32_t x = picked ? a.index.host[r] : r, y = picked && slots_y == 1 ? a.index.host[r] : r;
            return at(&a.in[0], x, s, e) * at(&a.in[1], y, s, e / run);
        });
        finish(&a);
    }
}
static void test_mul(void **state)
{
    (void)state;
    mul_one(3, 96, 96, 1, 1, false, false);
    mul_one(3, 96, 1, 1, 1, false, false);
    mul_one(3, 4096, 32, 1, 1, false, false);
    mul_one(3, 99, 33, 1, 1, false, false);
    mul_one(3, 60, 10, 2, 2, false, true);
    mul_one(3, 64, 64, 1, 3, false, false);
    mul_one(3, 64, 16, 3, 1, false, false);
    mul_one(3, 64, 1, 3, 3, false, false);
    mul_one(5, 256, 1, 1, 4, true, false);
    mul_one(5, 77, 1, 1, 9, true, false);
    mul_one(5, 256, 1, 4, 4, true, true);
    mul_one(5, 1, 1, 1, 2, true, false);
}

/* A vector is an input of stride 0, for whole rows and for runs, also of several slots. */
static void test_vector(void **state)
{
    (void)state;
    for (uint32_t factors = 8; factors <= 64; factors *= 8)
        for (uint32_t slots = 1; slots <= 3; slots += 2)
            for (uint32_t add = 0; add < 2; add++) {
                struct alone a = {};
                if (add && (factors != 64 || slots != 1)) continue;
                a.rows = 5;
                a.n = 2;
                a.in[0] = make_input(a.rows, 64, slots, false, false);
                a.in[1] = make_input(1, factors, 1, false, false);
                a.in[1].stride = 0;
                a.op.kind = add ? WK_OP_ADD : WK_OP_MUL;
                go(&a, 64, slots, false, false);
                check(&a, "vector", false, [&](uint32_t r, uint32_t s, uint32_t e) {
                    const float x = at(&a.in[0], r, s, e), f = a.in[1].x.host[e / (64 / factors)];
                    return add ? x + f : x * f;
                });
                finish(&a);
            }
}

static void test_refusals(void **state)
{
    (void)state;
    float x[4];
    struct tape_op op = {};
    struct cuda_alone a = {};
    a.op = &op;
    a.rows = a.slots = a.x_slots[0] = a.x_slots[1] = 1;
    a.width = 12;
    a.x_width[0] = 12;
    a.x_width[1] = 5;
    a.x[0].x = a.x[1].x = x;
    a.x[0].stride = a.x[1].stride = 16;
    op.kind = WK_OP_MUL;
    assert_int_equal(cuda_alone(&a, NULL, &error_text), WK_INTERNAL);
    assert_non_null(strstr(error_memory, "12 by 5 values in rows of 12"));
    op.kind = WK_OP_CONCAT;
    op.u.concat.groups = 2;
    assert_int_equal(cuda_alone(&a, NULL, &error_text), WK_INTERNAL);
    assert_non_null(strstr(error_memory, "2 groups of 8 in rows of 12"));
    a.y = x;
    assert_int_equal(cuda_alone(&a, NULL, &error_text), WK_INTERNAL);
    assert_non_null(strstr(error_memory, "in place"));
}

int main(void)
{
    const int skipped = no_gpu();
    if (skipped) return skipped;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_slice), cmocka_unit_test(test_concat),
                                        cmocka_unit_test(test_mul), cmocka_unit_test(test_vector),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
