/* worker/ssm.h: Mamba-2's mixer (Dao and Gu 2024), for the models that are made of it and those that have it beside
 * attention: its keys, its sizes and what it records.
 *
 * A short convolution mixes a few neighbouring rows; then each head keeps a state that decays by a factor of the row's
 * own and takes up the outer product of x and B, and C reads it. Code that a plugin compiles in: the worker does not
 * know of it. */
#ifndef WORKER_SSM_H
#define WORKER_SSM_H

#include <worker/arch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a table of keys: five, one behind the other, of which the plugin has the index of the first. flags:
 * WK_KEY_REQUIRED or WK_KEY_NOT_FOR(i), or'ed. Ranges: several times what published models have, small enough that
 * every product of two of them stays inside 32 bits. */
enum { WK_SSM_KERNEL, WK_SSM_STATE, WK_SSM_GROUPS, WK_SSM_INNER, WK_SSM_HEADS, WK_SSM_KEYS };
/* clang-format off */
#define WK_KEYS_SSM(flags)                                          \
    { "ssm.conv_kernel", WK_KEY_U32, flags, 2, 16, 0 },             \
    { "ssm.state_size", WK_KEY_U32, flags, 1, 1024, 0 },            \
    { "ssm.group_count", WK_KEY_U32, flags, 1, 1024, 0 },           \
    { "ssm.inner_size", WK_KEY_U32, flags, 1, 1 << 17, 0 },         \
    { "ssm.time_step_rank", WK_KEY_U32, flags, 1, 4096, 0 }
/* clang-format on */

/* In the letters of the paper. */
struct wk_ssm {
    uint32_t D, H, G, N; /* inner width, heads, groups of B and C, values of a state's row */
    uint32_t kernel;     /* rows that the convolution sees */
};

/* first: index of the first row of WK_KEYS_SSM. */
static inline wk_status wk_ssm_open(const struct wk_meta *meta, uint32_t first, struct wk_ssm *s,
                                    const struct wk_err *err)
{
    s->D = wk_meta_u32(meta, first + WK_SSM_INNER);
    s->H = wk_meta_u32(meta, first + WK_SSM_HEADS);
    s->G = wk_meta_u32(meta, first + WK_SSM_GROUPS);
    s->N = wk_meta_u32(meta, first + WK_SSM_STATE);
    s->kernel = wk_meta_u32(meta, first + WK_SSM_KERNEL);
    if (s->D % s->H)
        return wk_fail(err, WK_INVALID, "ssm.inner_size is %u, must be a multiple of ssm.time_step_rank, %u heads",
                       (unsigned)s->D, (unsigned)s->H);
    if (s->H % s->G)
        return wk_fail(err, WK_INVALID, "ssm.time_step_rank is %u heads, must be a multiple of ssm.group_count, %u",
                       (unsigned)s->H, (unsigned)s->G);
    return WK_OK;
}

/* Over each group's values, with weights for each. One group's norm melts into the product behind it. */
static inline wk_value wk_ssm_norm(const struct wk_builder *b, wk_value y, const struct wk_ssm *s, float eps)
{
    wk_value n;
    if (s->G == 1) return wk_rms_norm(b, y, "ssm_norm", eps);
    n = wk_norm(b, y, NULL, WK_NORM_RMS, s->D / s->G, eps, WK_NONE);
    return wk_mul(b, n, wk_vector(b, "ssm_norm.weight", s->G, s->D / s->G));
}

/* h: a layer's normed row -> the mixer's, `width` wide. eps: of the norm before ssm_out; 0: the model has none. */
static inline wk_value wk_ssm_mixer(const struct wk_builder *b, wk_value h, const struct wk_ssm *s, uint32_t width,
                                    float eps)
{
    const uint32_t D = s->D, BC = s->G * s->N;
    struct wk_rows in; /* z | x B C | dt */
    wk_value z, x, B, C, dt, y, xbc, decay;
    in.name = "ssm_in";
    in.total = 2 * D + 2 * BC + s->H;
    in.reserved = 0;
    in.first = 0;
    in.n = D;
    z = wk_linear_rows(b, h, in, WK_NONE);
    in.first = D;
    in.n = D + 2 * BC;
    xbc = wk_linear_rows(b, h, in, WK_NONE);
    in.first = 2 * D + 2 * BC;
    in.n = s->H;
    dt = wk_linear_rows(b, h, in, WK_NONE);
    dt = wk_unary(b, wk_add(b, dt, wk_vector(b, "ssm_dt.bias", 1, s->H)), WK_UNARY_SOFTPLUS, 0);
    xbc = wk_unary(b, wk_conv(b, xbc, "ssm_conv1d", s->kernel, WK_REQUIRED), WK_UNARY_SILU, 0);
    x = wk_slice(b, xbc, 0, D);
    B = wk_slice(b, xbc, D, BC);
    C = wk_slice(b, xbc, D + BC, BC);
    decay = wk_mul(b, dt, wk_vector(b, "ssm_a", s->H, 1)); /* the file's a is -exp(A_log) */
    y = wk_scan(b, C, B, wk_mul(b, x, dt), decay, s->H, s->G);
    y = wk_add(b, y, wk_mul(b, x, wk_vector(b, "ssm_d", s->H, 1)));
    y = wk_glu(b, WK_GLU_SILU, z, y);
    if (eps > 0) y = wk_ssm_norm(b, y, s, eps);
    return wk_linear(b, y, "ssm_out", width, WK_NONE);
}

#ifdef __cplusplus
}
#endif
#endif
