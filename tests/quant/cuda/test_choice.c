/* test_choice.c: which kernel products get on six GPUs, over a grid of formats and shapes, against a list in a file. No
 * GPU is needed.
 *
 *     test_choice FILE          compares
 *     test_choice FILE write    writes the list anew, after a change of the choice that is meant
 *
 * A line has a device, the formats, n and k; then for 1 to 64 rows kernel, blocks x blocks, of a cluster, threads,
 * bytes of shared memory. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <worker/arch.h>
#include <worker/cuda/product.h>

#include "device/cuda_like.h"

extern const struct wk_product_family quant_basic_q8, quant_basic_f16, quant_basic_f32, quant_q4k_k, quant_q4k_k23,
    quant_mxfp4, quant_nvfp4, quant_iq2_xxs;

enum { EXPERTS = 32, TOP = 4, LINE = 4096 };

struct shape {
    uint32_t n_seg, n, k, glu;
    bool experts;
};

/* One call's text; returns its length. */
static int tell(const struct wk_product_family *f, const struct wk_cuda_device *d, const struct shape *s,
                uint32_t second, uint32_t rows, char *text, size_t cap)
{
    static const uint32_t some;
    char why[200] = "";
    const struct wk_err err = { why, sizeof why };
    struct wk_cuda_choice c = { .struct_size = sizeof c };
    struct wk_cuda_product p = { .struct_size = sizeof p,
                                 .rows = s->experts ? rows * TOP : rows,
                                 .k = s->k,
                                 .n_seg = s->n_seg,
                                 .glu = s->glu,
                                 .expert = s->experts ? &some : NULL,
                                 .groups = s->experts ? &some : NULL,
                                 .n_experts = EXPERTS,
                                 .top_k = TOP,
                                 .x_items = 1 };
    for (uint32_t i = 0; i < s->n_seg; i++)
        p.seg[i] = (struct wk_cuda_segment){ .ggml_type = f->types[i == 1 ? second : 0],
                                             .n = i && !s->glu ? 256 : s->n,
                                             .out.kind = s->glu ? WK_CUDA_OUT_ACT : WK_CUDA_OUT_F32 };
    if (f->choice(d, &p, &c, &err)) return snprintf(text, cap, " | %u %s", rows, why);
    return snprintf(text, cap, " | %u %s %ux%u c%u t%u s%u%s%s", rows, c.kernel, c.grid_x, c.grid_y, c.cluster,
                    c.threads, c.shared, c.rows < p.rows ? " in parts" : "", c.n_seg < p.n_seg ? " by format" : "");
}

static void line_of(const char *gpu, const struct wk_product_family *f, const struct shape *s, uint32_t second,
                    char line[LINE])
{
    static const uint32_t rows[] = { 1, 8, 16, 32, 64 };
    int at = snprintf(line, LINE, "%s types %u", gpu, f->types[0]);
    if (s->n_seg > 1) at += snprintf(line + at, LINE - (size_t)at, "+%u", f->types[second]);
    at += snprintf(line + at, LINE - (size_t)at, " n %u%s k %u%s", s->n, s->n_seg > 2 ? "+256+256" : "", s->k,
                   s->experts ? " experts"
                   : s->glu   ? " gated"
                              : "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        at += tell(f, cuda_like(gpu), s, second, rows[i], line + at, LINE - (size_t)at);
    (void)snprintf(line + at, LINE - (size_t)at, "\n");
}

/* Compares a line with the file's next, or writes it; returns whether they differ. */
static bool done(FILE *file, bool write, const char *line)
{
    char expected[LINE] = "";
    if (write) return fputs(line, file) < 0;
    if (fgets(expected, sizeof expected, file) && strcmp(expected, line) == 0) return false;
    printf("expected: %sfound:    %s", expected[0] ? expected : "the end of the file\n", line);
    return true;
}

int main(int argc, char **argv)
{
    static const char *const gpus[] = { "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120" };
    static const struct wk_product_family *const families[] = { &quant_basic_q8, &quant_basic_f16, &quant_basic_f32,
                                                                &quant_q4k_k,    &quant_q4k_k23,   &quant_mxfp4,
                                                                &quant_nvfp4,    &quant_iq2_xxs };
    static const struct shape shapes[] = {
        { 1, 1024, 1024, 0, false },
        { 1, 4096, 4096, 0, false },
        { 1, 1024, 4096, 0, false },
        { 1, 896, 4864, 0, false },
        { 3, 896, 896, 0, false },
        { 3, 4096, 4096, 0, false },
        { 2, 4864, 896, WK_GLU_SILU, false },
        { 2, 11008, 4096, WK_GLU_SILU, false },
        { 1, 151936, 1024, 0, false },
        { 1, 151936, 1536, 0, false }, /* K steps of Q8_0 are cut */
        { 1, 128256, 4096, 0, false },
        { 2, 2880, 2816, WK_GLU_SILU, true },
        { 1, 2880, 2816, 0, true },
    };
    char line[LINE];
    const bool write = argc == 3 && strcmp(argv[2], "write") == 0;
    FILE *file = argc == 2 || write ? fopen(argv[1], write ? "w" : "r") : NULL;
    bool differs = !file;
    if (!file) printf("usage: test_choice FILE [write]\n");
    for (size_t g = 0; !differs && g < sizeof gpus / sizeof *gpus; g++)
        for (size_t f = 0; !differs && f < sizeof families / sizeof *families; f++)
            for (size_t s = 0; !differs && s < sizeof shapes / sizeof *shapes; s++) {
                line_of(gpus[g], families[f], &shapes[s], shapes[s].n_seg > 2 && families[f]->n_types > 1, line);
                differs = done(file, write, line);
            }
    if (!differs && !write && fgets(line, sizeof line, file)) {
        printf("expected: %sfound:    the end of the list\n", line);
        differs = true;
    }
    if (file && fclose(file)) differs = true;
    return differs;
}
