/* test_format.c: what only you can know: that the bits mean what your format's definition says, and that the encoder
 * is as good as it should be. That tiles, products and instruction sets agree with reference.c, `worker plugin check`
 * finds out by itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format.h"

enum { N = 4 * BLOCK };

static int failures;
static void check(int ok, const char *what)
{
    if (!ok) failures++;
    (void)printf("%s %s\n", ok ? "ok  " : "FAIL", what);
}

static const struct wk_tensor_params plain = { sizeof plain, 1.0f };

static void dequantize(float *y, const void *blocks, uint64_t n)
{
    const struct wk_dequantize in = { .struct_size = sizeof in, .n = n, .blocks = blocks, .y = y, .tensor = &plain };
    format_dequantize(&in);
}

static wk_status quantize(uint8_t *blocks, const float *x, const float *importance)
{
    const struct wk_quantize in = { .struct_size = sizeof in,
                                    .row_length = N,
                                    .n = N,
                                    .x = x,
                                    .importance = importance,
                                    .blocks = blocks,
                                    .tensor = &plain };
    return format_quantize(&in, NULL);
}

/* Relative rms error of the first n values. */
static double error(const float *x, const float *y, uint32_t n)
{
    double e = 0, s = 0;
    for (uint32_t i = 0; i < n; i++) {
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)x[i] * (double)x[i];
    }
    return sqrt(e / s);
}

int main(void)
{
    /* A block by hand: d is 0.5; byte j has level j for value j and level 15 - j for value j + 16. */
    static const float by_hand[16] = { -63.5f, -44, -33.5f, -25,   -18, -11.5f, -6, 0,
                                       5,      10,  15.5f,  21.5f, 28,  35.5f,  46, 63.5f };
    uint8_t block[BLOCK_BYTES] = { 0x00, 0x38 };
    float y[N], x[N], importance[N];
    int same = 1;
    for (uint32_t j = 0; j < 16; j++) block[2 + j] = (uint8_t)(j | (15 - j) << 4);
    dequantize(y, block, BLOCK);
    for (uint32_t j = 0; j < 16; j++) same &= y[j] == by_hand[j] && y[j + 16] == by_hand[15 - j];
    check(same, "the bits mean what the definition says");

    uint8_t blocks[N / BLOCK * BLOCK_BYTES], again[sizeof blocks];
    for (uint32_t i = 0; i < N; i++) x[i] = (float)(sin(0.37 * i) + sin(1.3 * i) + sin(2.9 * i));
    check(quantize(blocks, x, NULL) == WK_OK, "finite values are encoded");
    dequantize(y, blocks, N);
    const double plain_error = error(x, y, N);
    check(plain_error < 0.1, "with a small error");

    /* Where errors of half of the values cost a hundred times as much, these become smaller. */
    for (uint32_t i = 0; i < N; i++) importance[i] = i % 2 ? 100 : 1;
    double squares[2] = { 0, 0 };
    for (uint32_t i = 1; i < N; i += 2) squares[0] += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    check(quantize(again, x, importance) == WK_OK, "with an importance, too");
    dequantize(y, again, N);
    for (uint32_t i = 1; i < N; i += 2) squares[1] += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    check(squares[1] < squares[0], "which makes important values better");

    memset(x, 0, sizeof x);
    check(quantize(blocks, x, NULL) == WK_OK, "zeros are encoded");
    dequantize(y, blocks, N);
    same = 1;
    for (uint32_t i = 0; i < N; i++) same &= y[i] == 0;
    check(same, "as zeros");
    x[7] = (float)NAN;
    check(quantize(blocks, x, NULL) == WK_INVALID, "NaN is refused");
    x[7] = 1e9f;
    check(quantize(blocks, x, NULL) == WK_INVALID, "and so is what the scale cannot hold");
    return failures != 0;
}
