/* known.c: see known.h. Written a second time, from the formats' descriptions and without the SDK's helpers, so that a
 * mistake in these would show: every value is r(r(step * level) - least), r being the rounding to a float. Products and
 * differences of two floats are rounded twice here, to a double first, which gives the same float: 53 bits are more
 * than 2 * 24 + 1. */
#include "check/known.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static double half_at(const uint8_t *p)
{
    const uint32_t bits = p[0] | (uint32_t)p[1] << 8, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                             : exponent     ? ldexp(1024 + mantissa, (int)exponent - 25)
                                            : ldexp(mantissa, -24);
    return bits >> 15 ? -magnitude : magnitude;
}

static float rounded(double x) { return (float)x; }

static float value(double step, int level, double least) { return rounded((double)rounded(step * level) - least); }

static int low_or_high(uint8_t byte, bool high) { return high ? byte >> 4 : byte & 15; }

/* ---- 32 values: the low halves of 16 bytes, then the high ones ----------------------------------------- */

/* fifth: 32 bits, the highest of each level; NULL: there are none. zero: the level that means 0. */
static void simple(float *y, double step, double least, const uint8_t *nibbles, const uint8_t *fifth, int zero)
{
    for (int i = 0; i < 32; i++) {
        int level = low_or_high(nibbles[i % 16], i >= 16);
        if (fifth) level += (fifth[i / 8] >> i % 8 & 1) * 16;
        y[i] = value(step, level - zero, least);
    }
}

static void by_table(float *y, double step, const uint8_t *nibbles, const int8_t levels[16])
{
    for (int i = 0; i < 32; i++) y[i] = value(step, levels[low_or_high(nibbles[i % 16], i >= 16)], 0);
}

static const int8_t iq4_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
/* Twice {0, 0.5, 1, 1.5, 2, 3, 4, 6}; -0 is 0. */
static const int8_t mxfp4_levels[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

static void of_q4_0(const uint8_t *b, float *y) { simple(y, half_at(b), 0, b + 2, NULL, 8); }
static void of_q5_0(const uint8_t *b, float *y) { simple(y, half_at(b), 0, b + 6, b + 2, 16); }
/* Added minima are subtracted negative ones. */
static void of_q4_1(const uint8_t *b, float *y) { simple(y, half_at(b), -half_at(b + 2), b + 4, NULL, 0); }
static void of_q5_1(const uint8_t *b, float *y) { simple(y, half_at(b), -half_at(b + 2), b + 8, b + 4, 0); }
static void of_iq4_nl(const uint8_t *b, float *y) { by_table(y, half_at(b), b + 2, iq4_levels); }
static void of_mxfp4(const uint8_t *b, float *y) { by_table(y, ldexp(1, (int)b[0] - 128), b + 1, mxfp4_levels); }

static void of_q8_0(const uint8_t *b, float *y)
{
    for (int i = 0; i < 32; i++) y[i] = value(half_at(b), b[2 + i] < 128 ? b[2 + i] : b[2 + i] - 256, 0);
}

/* ---- 256 values ---------------------------------------------------------------------------------------- */

/* Two bits of value i: 32 bytes have the lowest two of 32 values, then the next two of the next 32, and so on. */
static int two_bits(const uint8_t *bytes, int i) { return bytes[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3; }

static void of_q2_k(const uint8_t *b, float *y)
{
    for (int i = 0; i < 256; i++) {
        const double step = (double)rounded(half_at(b + 80) * (b[i / 16] & 15)),
                     least = (double)rounded(half_at(b + 82) * (b[i / 16] >> 4));
        y[i] = value(step, two_bits(b + 16, i), least);
    }
}

static void of_q3_k(const uint8_t *b, float *y)
{
    for (int i = 0; i < 256; i++) {
        const int g = i / 16, six = low_or_high(b[96 + g % 8], g >= 8) + (b[104 + g % 4] >> g / 4 * 2 & 3) * 16;
        const int level = two_bits(b + 32, i) - (b[i % 32] >> i / 32 & 1 ? 0 : 4);
        y[i] = value((double)rounded(half_at(b + 108) * (six - 32)), level, 0);
    }
}

/* Q4_K and Q5_K; fifth: 32 bytes, bit g of byte i for value i of group g. */
static void k_with_least(const uint8_t *b, const uint8_t *fifth, const uint8_t *nibbles, float *y)
{
    const uint8_t *s = b + 4;
    for (int i = 0; i < 256; i++) {
        const int g = i / 32, h = g - 4;
        const int scale = g < 4 ? s[g] & 63 : (s[8 + h] & 15) + (s[h] >> 6) * 16,
                  min = g < 4 ? s[4 + g] & 63 : (s[8 + h] >> 4) + (s[4 + h] >> 6) * 16;
        int level = low_or_high(nibbles[g / 2 * 32 + i % 32], g % 2);
        if (fifth) level += (fifth[i % 32] >> g & 1) * 16;
        y[i] = value((double)rounded(half_at(b) * scale), level, (double)rounded(half_at(b + 2) * min));
    }
}
static void of_q4_k(const uint8_t *b, float *y) { k_with_least(b, NULL, b + 16, y); }
static void of_q5_k(const uint8_t *b, float *y) { k_with_least(b, b + 16, b + 48, y); }

static void of_q6_k(const uint8_t *b, float *y)
{
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, j = i % 128, scale = b[192 + i / 16] < 128 ? b[192 + i / 16] : b[192 + i / 16] - 256;
        const int level = low_or_high(b[64 * n + j % 64], j >= 64) + (b[128 + 32 * n + j % 32] >> j / 32 * 2 & 3) * 16;
        y[i] = value((double)rounded(half_at(b + 208) * scale), level - 32, 0);
    }
}

static void of_iq4_xs(const uint8_t *b, float *y)
{
    for (int g = 0; g < 8; g++) {
        const int scale = low_or_high(b[4 + g / 2], g % 2) + (b[2 + g / 4] >> g % 4 * 2 & 3) * 16;
        by_table(y + 32 * g, (double)rounded(half_at(b) * (scale - 32)), b + 8 + 16 * g, iq4_levels);
    }
}

/* Digit n of a byte as a fraction of 256 in base 3. */
static int digit(uint8_t byte, int n)
{
    int rest = byte;
    for (int i = 0; i < n; i++) rest = rest * 3 % 256;
    return rest * 3 / 256;
}

static void of_tq1_0(const uint8_t *b, float *y)
{
    for (int i = 0; i < 256; i++) {
        const int q = i < 160   ? digit(b[i % 32], i / 32)
                      : i < 240 ? digit(b[32 + i % 16], (i - 160) / 16)
                                : digit(b[48 + i % 4], (i - 240) / 4);
        y[i] = value(half_at(b + 52), q - 1, 0);
    }
}

static void of_tq2_0(const uint8_t *b, float *y)
{
    for (int i = 0; i < 256; i++) y[i] = value(half_at(b + 64), two_bits(b, i) - 1, 0);
}

/* ---- 64 values ----------------------------------------------------------------------------------------- */

/* Four bits of exponent, three of mantissa; 127 is 0. */
static void of_nvfp4(const uint8_t *b, float *y)
{
    for (int i = 0; i < 64; i++) {
        const int s = b[i / 16] & 127, exponent = s / 8, byte = b[4 + i / 16 * 8 + i % 8];
        const double step = b[i / 16] == 127 ? 0 : exponent ? ldexp(s % 8 + 8, exponent - 11) : ldexp(s % 8, -10);
        y[i] = value(step, mxfp4_levels[low_or_high((uint8_t)byte, i % 16 >= 8)], 0);
    }
}

/* ---- single values ------------------------------------------------------------------------------------- */

static void of_f16(const uint8_t *b, float *y) { *y = rounded(half_at(b)); }
static void of_f32(const uint8_t *b, float *y) { memcpy(y, b, 4); }
static void of_bf16(const uint8_t *b, float *y)
{
    const uint8_t float_bytes[4] = { 0, 0, b[0], b[1] };
    memcpy(y, float_bytes, 4);
}

bool known_values(uint32_t ggml_type, const uint8_t *block, float *y)
{
    static void (*const of[])(const uint8_t *, float *) = {
        [0] = of_f32,    [1] = of_f16,    [2] = of_q4_0,    [3] = of_q4_1,    [6] = of_q5_0,
        [7] = of_q5_1,   [8] = of_q8_0,   [10] = of_q2_k,   [11] = of_q3_k,   [12] = of_q4_k,
        [13] = of_q5_k,  [14] = of_q6_k,  [20] = of_iq4_nl, [23] = of_iq4_xs, [30] = of_bf16,
        [34] = of_tq1_0, [35] = of_tq2_0, [39] = of_mxfp4,  [40] = of_nvfp4,
    };
    if (ggml_type >= sizeof of / sizeof *of || !of[ggml_type]) return false;
    of[ggml_type](block, y);
    return true;
}
