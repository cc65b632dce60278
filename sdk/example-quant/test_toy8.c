/* test_toy8.c: the four promises of a format, checked on the plugin as it was built: test_toy8 FILE.so */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include <worker/cpu/act_q8.h>
#include <worker/plugin.h>

enum { K = 320, TOKENS = 3 };

static int failures;
static void check(int ok, const char *what)
{
    if (!ok) failures++;
    printf("%s %s\n", ok ? "ok  " : "FAIL", what);
}

static const struct wk_tensor_params plain = { sizeof plain, 1.0f };

static wk_status quantize(const struct wk_type_cpu *t, void *blocks, const float *row)
{
    const struct wk_quantize q = {
        .struct_size = sizeof q, .row_length = K, .n = K, .x = row, .blocks = blocks, .tensor = &plain
    };
    return t->quantize(&q, NULL);
}

static void dequantize(const struct wk_type_cpu *t, float *row, const void *blocks)
{
    const struct wk_dequantize d = { .struct_size = sizeof d, .n = K, .blocks = blocks, .y = row, .tensor = &plain };
    t->dequantize(&d);
}

static void pack_and_unpack(const struct wk_type_cpu *t, const void *const *from, void *tile, void *const *to)
{
    const struct wk_pack p = { .struct_size = sizeof p, .k = K, .rows = from, .tile = tile, .tensor = &plain };
    const struct wk_unpack u = { .struct_size = sizeof u, .k = K, .tile = tile, .rows = to, .tensor = &plain };
    t->pack(&p);
    t->unpack(&u);
}

int main(int argc, char **argv)
{
    void *handle = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct wk_plugin *p = handle ? (const struct wk_plugin *)dlsym(handle, WK_PLUGIN_SYMBOL) : NULL;
    if (!p) return fprintf(stderr, "usage: test_toy8 /path/to/toy8.so\n"), 2;
    const struct wk_type_cpu *t = p->quant->types[0];
    static float w[16][K], back[16][K], x[TOKENS][K], y[2][TOKENS][16];
    static unsigned char file[16][K * 2], again[16][K * 2];
    static struct wk_activation_q8 q[TOKENS][K / WK_ACTIVATION_BLOCK];
    const void *rows[16];
    void *rows_again[16];
    void *tile = aligned_alloc(64, t->tile_bytes(K));
    if (!tile) return 2;
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < K; i++) w[r][i] = (float)sin(r + 0.37 * i) + 0.1f;
    for (int n = 0; n < TOKENS; n++)
        for (int i = 0; i < K; i++) x[n][i] = (float)cos(n + 0.11 * i);

    int encoded = 1, close = 1, same = 1, f32 = 1, q8 = 1;
    for (int r = 0; r < 16; r++) {
        encoded &= quantize(t, file[r], w[r]) == WK_OK;
        dequantize(t, back[r], file[r]);
        for (int i = 0; i < K; i++)
            close &= fabsf(back[r][i] - w[r][i]) < 2.0f / 255.0f; /* a step of d, and the rounding of d and m */
        rows[r] = file[r];
        rows_again[r] = again[r];
    }
    check(encoded && close, "quantize, then dequantize: within a step");
    w[0][7] = (float)NAN;
    check(quantize(t, again[0], w[0]) == WK_INVALID, "NaN is refused");

    pack_and_unpack(t, rows, tile, rows_again);
    for (int r = 0; r < 16; r++) same &= memcmp(file[r], again[r], K / t->block * t->block_bytes) == 0;
    check(same, "pack, then unpack: every bit");

    struct wk_cpu_product c = { .struct_size = sizeof c,
                                .activation = WK_ACTIVATION_F32,
                                .k = K,
                                .n_rows = TOKENS,
                                .n_tiles = 1,
                                .x_stride = sizeof x[0],
                                .y_stride = 16,
                                .tiles = tile,
                                .x = x,
                                .y = y[0][0],
                                .tensor = &plain };
    t->products[0].product(&c);
    for (int n = 0; n < TOKENS; n++) wk_quantize_act_q8(x[n], K, q[n]);
    c.activation = WK_ACTIVATION_Q8;
    c.x = q;
    c.x_stride = sizeof q[0];
    c.y = y[1][0];
    t->products[0].product(&c);
    for (int n = 0; n < TOKENS; n++)
        for (int r = 0; r < 16; r++) {
            double want = 0, size = 0;
            for (int i = 0; i < K; i++) {
                want += (double)back[r][i] * (double)x[n][i];
                size += fabs((double)back[r][i] * (double)x[n][i]);
            }
            f32 &= fabs((double)y[0][n][r] - want) <= 1e-5 * size;
            q8 &= fabs((double)y[1][n][r] - want) <= 1e-2 * size;
        }
    check(f32, "product with floats: the dot product of what dequantize says");
    check(q8, "product with 8-bit activations: close to it");
    free(tile);
    return failures != 0;
}
