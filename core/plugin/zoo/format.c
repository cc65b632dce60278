/* format.c: a whole format, with a macro for every way in which its functions can break a promise; CMakeLists.txt
 * builds one shared object for each. Where nothing is defined it keeps all of them.
 *
 * A block is 32 values in 36 bytes: x = d q + m, d and m halves, q 8 bits: that of ggml's type Q8_0 but for m and the
 * sign. With FORMAT_KNOWN it is ggml's Q4_1 instead: 20 bytes, q 4 bits. A tile is the 16 rows one after the other, and
 * 64 bytes that are zero. */
#include <fenv.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <worker/cpu/encode.h>
#include <worker/plugin.h>

#ifdef FORMAT_KNOWN
#define FORMAT_CLAIMS "ggml:3"
enum { TYPE = 3, BLOCK_BYTES = 20 };
#define FORMAT_NAME "q4_1"
#else
#define FORMAT_CLAIMS "ggml:1200"
enum { TYPE = 1200, BLOCK_BYTES = 36 };
#define FORMAT_NAME "zoo8"
#endif
enum { BLOCK = 32, ROWS = WK_TILE_ROWS, PADDING = 64, SCRATCH = 128, CODES = 4 /* byte of a block */ };

static uint32_t code(const uint8_t *block, uint32_t i)
{
#ifdef FORMAT_KNOWN
    return i < 16 ? block[CODES + i] & 15u : block[CODES + i - 16] >> 4;
#else
    return block[CODES + i];
#endif
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

static uint64_t row_bytes(uint32_t k) { return (uint64_t)k / BLOCK * BLOCK_BYTES; }

static uint64_t format_tile_bytes(uint32_t k)
{
    const uint64_t bytes = ROWS * row_bytes(k);
#ifdef FORMAT_TILE_ODD /* right for one block alone */
    return (bytes + 63) / 64 * 64 + (k > BLOCK ? 8 : 0);
#elif defined(FORMAT_TILE_MORE)
    return (bytes + 63) / 64 * 64 + (k > BLOCK ? bytes / 256 * 64 : 0);
#else
    return bytes % 64 ? (bytes + 63) / 64 * 64 : bytes + PADDING;
#endif
}

static uint64_t format_scratch_bytes(uint32_t k)
{
#ifdef FORMAT_SCRATCH_HUGE
    return (uint64_t)k << 20;
#elif defined(FORMAT_SCRATCH_MOODY)
    static unsigned calls;
    return k ? SCRATCH + calls++ % 3 * 64 : 0;
#else
    (void)k;
    return SCRATCH;
#endif
}

/* ---- tiles --------------------------------------------------------------------------------------------- */

static void format_pack(const struct wk_pack *p)
{
    uint8_t *tile = (uint8_t *)p->tile;
    const uint64_t bytes = row_bytes(p->k);
    for (uint32_t r = 0; r < ROWS; r++) memcpy(tile + r * bytes, p->rows[r], bytes);
#ifdef FORMAT_PACK_READS
    tile[0] = (uint8_t)(tile[0] ^ (((const volatile uint8_t *)p->rows[15])[bytes] & 0u));
#endif
    const uint64_t end = format_tile_bytes(p->k);
#ifndef FORMAT_PACK_PADDING
    memset(tile + ROWS * bytes, 0, end - ROWS * bytes);
#endif
#ifdef FORMAT_PACK_WRITES
    tile[end] = 0;
#endif
    (void)end;
}

static void format_unpack(const struct wk_unpack *p)
{
    const uint64_t bytes = row_bytes(p->k);
    for (uint32_t r = 0; r < ROWS; r++) {
        memcpy(p->rows[r], (const uint8_t *)p->tile + r * bytes, bytes);
#ifdef FORMAT_UNPACK_LOSES
        ((uint8_t *)p->rows[r])[bytes - 1] &= 0xfe;
#endif
#ifdef FORMAT_UNPACK_WRITES
        ((volatile uint8_t *)p->rows[r])[bytes] = 0;
#endif
    }
}

/* ---- values -------------------------------------------------------------------------------------------- */

static float scale_of(const uint8_t *block) { return wk_load_half(block); }
static float least_of(const uint8_t *block) { return wk_load_half(block + 2); }

static void format_dequantize(const struct wk_dequantize *in)
{
    const uint8_t *b = (const uint8_t *)in->blocks;
    for (uint64_t i = 0; i < in->n; i += BLOCK, b += BLOCK_BYTES) {
        float d = scale_of(b);
#ifdef FORMAT_BLOCKS /* a faster way for long rows, which is wrong */
        if (in->n >= 100 * BLOCK && i >= in->n / 2) d = scale_of((const uint8_t *)in->blocks);
#endif
        for (uint32_t j = 0; j < BLOCK; j++) {
            float y = d * (float)code(b, j) + least_of(b);
#ifdef FORMAT_ZERO_SIGN
            if (y == 0.0f) y = 0.0f;
#endif
            in->y[i + j] = y;
        }
    }
#ifdef FORMAT_DEQUANTIZE_READS
    (void)*(const volatile uint8_t *)b;
#endif
#ifdef FORMAT_DEQUANTIZE_WRITES
    ((volatile float *)in->y)[in->n] = 0;
#endif
}

static float clamp_code(float x)
{
#ifdef FORMAT_KNOWN
    return wk_clamp(x, 0.0f, 15.0f);
#else
    return wk_clamp(x, 0.0f, 255.0f);
#endif
}

/* Errors of columns that cost more than others may not be cut off; so the others' are. */
static wk_status encode_block(const float *x, const float *importance, uint64_t at, uint8_t *out,
                              const struct wk_err *err)
{
    float low = x[0], high = x[0];
    for (uint32_t i = 1; i < BLOCK; i++) {
        if (importance && importance[i] <= 0.0f) continue;
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    memset(out, 0, BLOCK_BYTES);
    wk_status status = wk_store_half(out + 2, low, at, err);
#ifdef FORMAT_KNOWN
    if (status == WK_OK) status = wk_store_half(out, (high - low) / 15.0f, at, err);
#else
    if (status == WK_OK) status = wk_store_half(out, (high - low) / 255.0f, at, err);
#endif
    const float d = scale_of(out), m = least_of(out);
    for (uint32_t i = 0; i < BLOCK && status == WK_OK; i++) {
        const uint32_t q = (uint32_t)wk_round(d > 0.0f ? clamp_code((x[i] - m) / d) : 0.0f);
#ifdef FORMAT_KNOWN
        out[CODES + i % 16] = (uint8_t)(out[CODES + i % 16] | q << (i < 16 ? 0 : 4));
#else
        out[CODES + i] = (uint8_t)q;
#endif
    }
#ifdef FORMAT_FAR
    out[1] ^= 0x80;
#endif
    return status;
}

static wk_status refuse(const float *x, uint64_t n, const struct wk_err *err)
{
#ifdef FORMAT_NO_INDEX
    const wk_status status = wk_check_finite(x, n, NULL);
    return status == WK_OK ? WK_OK : wk_fail(err, status, "only finite values can be encoded");
#else
    return wk_check_finite(x, n, err);
#endif
}

static wk_status format_quantize(const struct wk_quantize *in, const struct wk_err *err)
{
    wk_status status = refuse(in->x, in->n, err);
    uint8_t *out = (uint8_t *)in->blocks;
    for (uint64_t i = 0; i < in->n && status == WK_OK; i += BLOCK, out += BLOCK_BYTES) {
        const float *importance = in->importance ? in->importance + i % in->row_length : NULL;
#ifdef FORMAT_IMPORTANCE_SHIFTED
        if (importance) importance = in->importance + (i + i / in->row_length * BLOCK) % in->row_length;
#endif
        status = encode_block(in->x + i, importance, i, out, err);
    }
#ifdef FORMAT_IMPORTANCE_READS
    if (in->importance) (void)*(const volatile float *)(in->importance + in->n - 1);
#endif
#ifdef FORMAT_QUANTIZE_READS
    if (status == WK_OK) (void)*(const volatile float *)(in->x + in->n);
#endif
#ifdef FORMAT_QUANTIZE_WRITES
    *(volatile uint8_t *)out = 0;
#endif
    return status;
}

/* ---- product ------------------------------------------------------------------------------------------- */

__attribute__((unused)) static float no_infinity(float x) { return x - x == 0.0f ? x : 0.0f; }

static float activation(const struct wk_cpu_product *p, uint32_t t, uint32_t i)
{
    const uint8_t *row = (const uint8_t *)p->x + t * p->x_stride;
    const struct wk_activation_q8 *b = (const struct wk_activation_q8 *)(const void *)row + i / 32;
    float x = p->activation == WK_ACTIVATION_F32 ? ((const float *)(const void *)row)[i] : b->d * (float)b->q[i % 32];
#ifdef FORMAT_HIDES_ACTIVATION
    x = no_infinity(x);
#endif
    return x;
}

/* What one block adds to a result; other: in another order. */
static float add_block(float sum, const struct wk_cpu_product *p, const float *x, const uint8_t *b, bool other)
{
    float d = scale_of(b), m = least_of(b);
#ifdef FORMAT_HIDES_SCALE
    d = no_infinity(d);
    m = no_infinity(m);
#endif
#ifdef FORMAT_FORGETS_LEAST
    if (p->activation == WK_ACTIVATION_Q8) m = m - m;
#endif
    (void)p;
    for (uint32_t n = 0; n < BLOCK; n++) {
        const uint32_t i = other ? BLOCK - 1 - n : n;
        sum += (d * (float)code(b, i) + m) * x[i];
    }
    return sum;
}

/* Results of one row of activations. */
static void results(const struct wk_cpu_product *p, uint32_t t, bool other)
{
    const uint64_t tile_bytes = format_tile_bytes(p->k), bytes = row_bytes(p->k);
    float *y = p->y + t * p->y_stride, x[BLOCK];
    for (uint32_t r = 0; r < p->n_tiles * ROWS; r++) y[r] = 0;
    for (uint32_t at = 0; at < p->k; at += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) x[i] = activation(p, t, at + i);
        for (uint32_t r = 0; r < p->n_tiles * ROWS; r++) {
            const uint8_t *row = (const uint8_t *)p->tiles + r / ROWS * tile_bytes + r % ROWS * bytes;
            y[r] = add_block(y[r], p, x, row + (uint64_t)at / BLOCK * BLOCK_BYTES, other);
        }
    }
}

/* Is the order of summation the other one in this call? */
static bool other_order(const struct wk_cpu_product *p)
{
#ifdef FORMAT_MANY_ROWS
    return p->n_rows >= 8;
#elif defined(FORMAT_MANY_TILES)
    return p->n_tiles > 1;
#elif defined(FORMAT_SCRATCH_USED)
    return *(const uint8_t *)p->scratch == 0x7f;
#elif defined(FORMAT_OTHER_THREAD)
    (void)p;
    return gettid() != getpid();
#else
    (void)p;
    return false;
#endif
}

static void begin(const struct wk_cpu_product *p)
{
    (void)p;
#ifdef FORMAT_STACK
    volatile char large[1 << 20];
    for (uint32_t i = 0; i < sizeof large; i += 4096) large[i] = 0;
#endif
#ifdef FORMAT_SCRATCH_SMALL
    ((volatile uint8_t *)p->scratch)[SCRATCH] = 0;
#endif
#ifdef FORMAT_SCRATCH_ALIGNED
    if ((uintptr_t)p->scratch % 128) __builtin_trap();
#endif
#ifdef FORMAT_WRITES_X
    volatile uint8_t *x = (volatile uint8_t *)(uintptr_t)p->x;
    *x = *x;
#endif
#ifdef FORMAT_WRITES_TILE
    volatile uint8_t *tile = (volatile uint8_t *)(uintptr_t)p->tiles;
    *tile = *tile;
#endif
#ifdef FORMAT_READS_X
    (void)((const volatile uint8_t *)
               p->x)[(p->n_rows - 1) * p->x_stride + (p->activation == WK_ACTIVATION_F32
                                                          ? p->k * sizeof(float)
                                                          : p->k / 32 * sizeof(struct wk_activation_q8))];
#endif
#ifdef FORMAT_READS_TILE
    (void)((const volatile uint8_t *)p->tiles)[p->n_tiles * format_tile_bytes(p->k)];
#endif
#ifdef FORMAT_ALLOCATES
    void *volatile some = malloc(64);
    free(some);
#endif
#ifdef FORMAT_STATIC
    static volatile uint32_t calls;
    calls = calls + 1;
#endif
}

static void format_product(const struct wk_cpu_product *p)
{
    const bool other = other_order(p);
    for (uint32_t t = 0; t < p->n_rows; t++) results(p, t, other);
#ifdef FORMAT_WRITES_Y
    for (uint32_t t = 0; t + 1 < p->n_rows && p->y_stride > p->n_tiles * ROWS + 4; t++)
        p->y[t * p->y_stride + p->n_tiles * ROWS] = 0;
#endif
    begin(p);
}

/* Sums that are rounded to 8 bits now and then. */
__attribute__((unused)) static void format_rough(const struct wk_cpu_product *p)
{
    format_product(p);
    for (uint32_t t = 0; t < p->n_rows; t++)
        for (uint32_t i = 0; i < p->n_tiles * ROWS; i++) {
            float *y = &p->y[t * p->y_stride + i];
            *y = wk_bf16_to_float(wk_float_to_bf16(*y));
        }
}

/* ---- what is exported ---------------------------------------------------------------------------------- */

#ifdef FORMAT_ROUGH
#define FORMAT_PORTABLE format_rough
#else
#define FORMAT_PORTABLE format_product
#endif
__attribute__((unused)) static void format_rounding(const struct wk_cpu_product *p)
{
    format_product(p);
    (void)fesetround(FE_UPWARD);
}

#ifdef FORMAT_ROUGH_AVX2
#define FORMAT_AVX2 format_rough
#elif defined(FORMAT_ROUNDING_AVX2)
#define FORMAT_AVX2 format_rounding
#else
#define FORMAT_AVX2 format_product
#endif

static const struct wk_isa_product format_products[] = { { WK_ISA_PORTABLE, 0, FORMAT_PORTABLE },
                                                         { WK_ISA_AVX2, 0, FORMAT_AVX2 } };
static const struct wk_type_cpu format_type = {
    .struct_size = sizeof format_type,
    .ggml_type = TYPE,
    .block = BLOCK,
    .block_bytes = BLOCK_BYTES,
    .activations = WK_ACTIVATION_F32 | WK_ACTIVATION_Q8,
    .name = FORMAT_NAME,
    .tile_bytes = format_tile_bytes,
    .scratch_bytes = format_scratch_bytes,
    .pack = format_pack,
    .unpack = format_unpack,
    .dequantize = format_dequantize,
    .quantize = format_quantize,
    WK_TYPE_PRODUCTS(format_products),
};
static const struct wk_type_cpu *const format_types[] = { &format_type };
static const struct wk_quant format_quant = { sizeof format_quant, 1, format_types };

WORKER_PLUGIN(WK_KIND_QUANT, "org.example.format", FORMAT_CLAIMS, .name = "format", .version = "1",
              .quant = &format_quant);
