/* kernels_body.h: every kernel, written once over vectors of VW floats. Included by kernels_<isa>.c after it has
 * defined
 *
 *   VW, vf                                     lanes, vector type
 *   vf_load, vf_store, vf_load_n, vf_store_n   whole, and the first n lanes (the others read as 0 and are not written)
 *   vf_set1, vf_add, vf_sub, vf_mul, vf_div, vf_fma (a * b + c)
 *   vf_min, vf_max                             the second operand if either is a NaN
 *   vf_round, vf_pow2                          to nearest even; x * 2^n for a whole n in [-126, 127]
 *   vf_lt (a < b ? x : y), vf_abs, vf_sign     magnitude of the first, sign of the second
 *   vf_sum, vf_top                             fixed tree over the lanes
 *   vf_load_half, vf_store_half                VW IEEE halves
 *   quantize_row                               the SDK's, of this instruction set
 *   SCORES_NQ, VALUES_NQ                       rows of a register tile, by the number of registers
 *   ISA_NAME, ISA_LEVEL, ISA_TABLE */

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

/* ---- elementary functions ------------------------------------------------------------------------------ */

/* e^x = 2^n e^r, |r| <= ln 2 / 2; e^r - 1 - r = r^2 Q(r), Q fitted to a relative error of 2^-28 (minimax, degree 4). */
INLINE vf vf_exp(vf x)
{
    vf low = vf_set1(-87.3f);
    vf c = vf_max(low, vf_min(vf_set1(88.0f), x));
    vf n = vf_round(vf_mul(c, vf_set1(1.44269504f)));
    vf r = vf_fma(n, vf_set1(-0.693145752f), c);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf q = vf_set1(0x1.6dbc64p-10f);
    q = vf_fma(q, r, vf_set1(0x1.124148p-7f));
    q = vf_fma(q, r, vf_set1(0x1.555454p-5f));
    q = vf_fma(q, r, vf_set1(0x1.555486p-3f));
    q = vf_fma(q, r, vf_set1(0.5f));
    vf e = vf_add(vf_fma(vf_mul(r, r), q, r), vf_set1(1.0f));
    return vf_lt(x, low, vf_set1(0.0f), vf_pow2(e, n));
}

/* Near 0 a polynomial (1 - 2 / (e^2x + 1) would cancel), fitted in x^2 on |x| <= 0.64 to 2^-27. */
INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x), z = vf_mul(x, x);
    vf q = vf_set1(-0x1.6f1a70p-8f);
    q = vf_fma(q, z, vf_set1(0x1.50af48p-6f));
    q = vf_fma(q, z, vf_set1(-0x1.b8054cp-5f));
    q = vf_fma(q, z, vf_set1(0x1.110598p-3f));
    q = vf_fma(q, z, vf_set1(-0x1.55552cp-2f));
    vf small = vf_fma(vf_mul(x, z), q, x);
    vf one = vf_set1(1.0f);
    vf large = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(vf_exp(vf_add(a, a)), one)));
    return vf_lt(a, vf_set1(0.625f), small, vf_sign(large, x));
}

INLINE vf vf_sigmoid(vf x)
{
    vf one = vf_set1(1.0f);
    return vf_div(one, vf_add(one, vf_exp(vf_sub(vf_set1(0.0f), x))));
}

INLINE vf vf_silu(vf x) { return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_sub(vf_set1(0.0f), x)))); }

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u): no cancellation for large negative u. */
INLINE vf vf_gelu_tanh(vf x)
{
    vf cube = vf_mul(vf_mul(x, x), x);
    vf u2 = vf_mul(vf_set1(-1.59576912f), vf_fma(vf_set1(0.044715f), cube, x)); /* -2 sqrt(2 / pi) */
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(u2)));
}

/* Phi(x) x. |x| < sqrt 2: erf by a polynomial in z^2 (2^-29); beyond: erfc = e^(-z^2) t R(t), t = 1 / (1 + z/2)
 * (2^-26). */
INLINE vf vf_gelu_erf(vf x)
{
    vf z = vf_mul(vf_abs(x), vf_set1(0.707106781f)), z2 = vf_mul(z, z), half = vf_set1(0.5f), one = vf_set1(1.0f);
    vf e = vf_set1(0x1.4ae4c6p-14f);
    e = vf_fma(e, z2, vf_set1(-0x1.a485e8p-11f));
    e = vf_fma(e, z2, vf_set1(0x1.5419f4p-8f));
    e = vf_fma(e, z2, vf_set1(-0x1.b7fbb4p-6f));
    e = vf_fma(e, z2, vf_set1(0x1.ce2d20p-4f));
    e = vf_fma(e, z2, vf_set1(-0x1.81273ep-2f));
    e = vf_fma(e, z2, vf_set1(0x1.20dd74p+0f));
    vf near = vf_fma(half, vf_sign(vf_mul(e, z), x), half);
    vf t = vf_div(one, vf_fma(z, half, one));
    vf r = vf_set1(0x1.7422e2p-4f);
    r = vf_fma(r, t, vf_set1(-0x1.c00eacp-3f));
    r = vf_fma(r, t, vf_set1(0x1.2d8c4ap-4f));
    r = vf_fma(r, t, vf_set1(0x1.10e3e0p-4f));
    r = vf_fma(r, t, vf_set1(0x1.69e5e6p-3f));
    r = vf_fma(r, t, vf_set1(0x1.fab014p-3f));
    r = vf_fma(r, t, vf_set1(0x1.20c1bep-2f));
    r = vf_fma(r, t, vf_set1(0x1.20df08p-2f));
    vf tail = vf_mul(half, vf_mul(vf_exp(vf_sub(vf_set1(0.0f), z2)), vf_mul(t, r)));
    vf far = vf_lt(x, vf_set1(0.0f), tail, vf_sub(one, tail));
    return vf_mul(x, vf_lt(z, one, near, far));
}

/* max(x, 0) + ln(1 + t), t = e^-|x|; ln(1 + t) = 2 atanh(s), s = t / (2 + t) <= 1/3: eight terms of the series. */
INLINE vf vf_softplus(vf x)
{
    vf zero = vf_set1(0.0f), t = vf_exp(vf_min(x, vf_sub(zero, x))), s = vf_div(t, vf_add(vf_set1(2.0f), t)),
       z = vf_mul(s, s), r = vf_set1(1.0f / 15);
    r = vf_fma(r, z, vf_set1(1.0f / 13));
    r = vf_fma(r, z, vf_set1(1.0f / 11));
    r = vf_fma(r, z, vf_set1(1.0f / 9));
    r = vf_fma(r, z, vf_set1(1.0f / 7));
    r = vf_fma(r, z, vf_set1(1.0f / 5));
    r = vf_fma(r, z, vf_set1(1.0f / 3));
    r = vf_fma(r, z, vf_set1(1.0f));
    return vf_add(vf_max(zero, x), vf_mul(vf_add(s, s), r));
}

/* ---- element-wise -------------------------------------------------------------------------------------- */

/* y[i] = expr over v = x[i]; the tail runs the same arithmetic on a partly filled vector. */
#define EACH(n, load, expr)                    \
    do {                                       \
        uint32_t i_ = 0;                       \
        for (; i_ + VW <= (n); i_ += VW) {     \
            load(vf_load, );                   \
            vf_store(y + i_, (expr));          \
        }                                      \
        if (i_ < (n)) {                        \
            uint32_t left_ = (n) - i_;         \
            load(vf_load_n, LEFT);             \
            vf_store_n(y + i_, (expr), left_); \
        }                                      \
    } while (0)
#define LEFT , left_
#define LOAD_X(ld, more) vf v = ld(x + i_ more)
#define LOAD_AB(ld, more) vf va = ld(a + i_ more), vb = ld(b + i_ more)
#define LOAD_YA(ld, more) vf va = ld(a + i_ more), vy = ld(y + i_ more)
#define LOAD_GU(ld, more) vf g1 = ld(g + i_ more), u1 = ld(u + i_ more)

static void k_add(float *y, const float *a, const float *b, uint32_t n) { EACH(n, LOAD_AB, vf_add(va, vb)); }
static void k_mul(float *y, const float *a, const float *b, uint32_t n) { EACH(n, LOAD_AB, vf_mul(va, vb)); }
static void k_scale(float *y, const float *x, float s, uint32_t n)
{
    vf f = vf_set1(s);
    EACH(n, LOAD_X, vf_mul(v, f));
}
static void k_add_scaled(float *y, const float *a, float s, uint32_t n)
{
    vf f = vf_set1(s);
    EACH(n, LOAD_YA, vf_fma(va, f, vy));
}
static void k_exp(float *y, const float *x, float shift, uint32_t n)
{
    vf s = vf_set1(shift);
    EACH(n, LOAD_X, vf_exp(vf_sub(v, s)));
}

static void k_map(float *y, const float *x, uint32_t n, uint32_t fn, float p)
{
    vf f = vf_set1(p);
    switch (fn) {
    case WK_UNARY_SCALE: EACH(n, LOAD_X, vf_mul(v, f)); break;
    case WK_UNARY_GELU_TANH: EACH(n, LOAD_X, vf_gelu_tanh(v)); break;
    case WK_UNARY_GELU_ERF: EACH(n, LOAD_X, vf_gelu_erf(v)); break;
    case WK_UNARY_SILU: EACH(n, LOAD_X, vf_silu(v)); break;
    case WK_UNARY_SIGMOID: EACH(n, LOAD_X, vf_sigmoid(v)); break;
    case WK_UNARY_TANH: EACH(n, LOAD_X, vf_tanh(v)); break;
    case WK_UNARY_RELU: EACH(n, LOAD_X, vf_max(vf_set1(0.0f), v)); break;
    case WK_UNARY_SOFTCAP: EACH(n, LOAD_X, vf_mul(f, vf_tanh(vf_div(v, f)))); break;
    case WK_UNARY_SOFTPLUS: EACH(n, LOAD_X, vf_softplus(v)); break;
    case WK_UNARY_EXP: EACH(n, LOAD_X, vf_exp(v)); break;
    default: break;
    }
}

INLINE vf vf_clamp_glu(vf g, vf u, vf alpha, vf limit)
{
    g = vf_min(limit, g);
    u = vf_max(vf_sub(vf_set1(0.0f), limit), vf_min(limit, u));
    return vf_mul(vf_mul(g, vf_sigmoid(vf_mul(alpha, g))), vf_add(u, vf_set1(1.0f)));
}

static void k_glu(float *y, const float *g, const float *u, uint32_t n, uint32_t fn, float alpha, float limit)
{
    vf va = vf_set1(alpha), vl = vf_set1(limit);
    switch (fn) {
    case WK_GLU_SILU: EACH(n, LOAD_GU, vf_mul(vf_silu(g1), u1)); break;
    case WK_GLU_GELU_TANH: EACH(n, LOAD_GU, vf_mul(vf_gelu_tanh(g1), u1)); break;
    case WK_GLU_GELU_ERF: EACH(n, LOAD_GU, vf_mul(vf_gelu_erf(g1), u1)); break;
    case WK_GLU_SILU_CLAMPED: EACH(n, LOAD_GU, vf_clamp_glu(g1, u1, va, vl)); break;
    default: break;
    }
}

static void k_rope(float *y, const float *x, const float *table, uint32_t n, uint32_t head, uint32_t style)
{
    const float *c = table, *s = table + n;
    if (style == WK_ROPE_HALF) {
        for (uint32_t i = 0; i < n; i++) {
            float a = x[i], b = x[i + n];
            y[i] = a * c[i] - b * s[i];
            y[i + n] = a * s[i] + b * c[i];
        }
    } else {
        for (uint32_t i = 0; i < n; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = a * c[i] - b * s[i];
            y[2 * i + 1] = a * s[i] + b * c[i];
        }
    }
    if (y != x && 2 * n < head) memcpy(y + 2 * n, x + 2 * n, (head - 2 * n) * sizeof *y);
}

/* In range adds 0, out of range 1, a NaN itself: the sum is 0 iff all is well. */
INLINE vf vf_out_of(vf a, vf limit) { return vf_lt(limit, a, vf_set1(1.0f), vf_sub(a, a)); }

static bool k_bounded(const float *x, uint32_t n, float limit)
{
    vf most = vf_set1(limit), out = vf_set1(0.0f);
    uint32_t i = 0;
    for (; i + VW <= n; i += VW) out = vf_add(out, vf_out_of(vf_abs(vf_load(x + i)), most));
    if (i < n) out = vf_add(out, vf_out_of(vf_abs(vf_load_n(x + i, n - i)), most));
    return vf_sum(out) == 0.0f;
}

static void k_quantize(struct wk_activation_q8 *y, const float *x, uint32_t n) { quantize_row(x, n, y); }

/* ---- norms: four running vectors, then their tree, then the lanes' tree -------------------------------- */

INLINE float tree4(vf a, vf b, vf c, vf d) { return vf_sum(vf_add(vf_add(a, b), vf_add(c, d))); }

static float sum_squares(const float *x, float mean, uint32_t n)
{
    vf m = vf_set1(mean), s[4] = { vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f) };
    uint32_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) UNROLL for (uint32_t j = 0; j < 4; j++)
        {
            vf d = vf_sub(vf_load(x + i + j * VW), m);
            s[j] = vf_fma(d, d, s[j]);
        }
    for (; i + VW <= n; i += VW) {
        vf d = vf_sub(vf_load(x + i), m);
        s[0] = vf_fma(d, d, s[0]);
    }
    if (i < n) {
        float last[VW];
        for (uint32_t j = 0; j < VW; j++) last[j] = i + j < n ? x[i + j] : mean;
        vf d = vf_sub(vf_load(last), m);
        s[1] = vf_fma(d, d, s[1]);
    }
    return tree4(s[0], s[1], s[2], s[3]);
}

static float sum_values(const float *x, uint32_t n)
{
    vf s[4] = { vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f) };
    uint32_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        UNROLL for (uint32_t j = 0; j < 4; j++) s[j] = vf_add(s[j], vf_load(x + i + j * VW));
    for (; i + VW <= n; i += VW) s[0] = vf_add(s[0], vf_load(x + i));
    if (i < n) s[1] = vf_add(s[1], vf_load_n(x + i, n - i));
    return tree4(s[0], s[1], s[2], s[3]);
}

static void k_norm(float *y, const float *x, const float *w, const float *b, uint32_t n, uint32_t kind, float eps)
{
    float mean = kind == WK_NORM_LAYER ? sum_values(x, n) / (float)n : 0.0f;
    vf m = vf_set1(mean), f = vf_set1(1.0f / sqrtf(sum_squares(x, mean, n) / (float)n + eps));
    EACH(n, LOAD_X, vf_mul(vf_sub(v, m), f));
    if (w) k_mul(y, y, w, n);
    if (b) k_add(y, y, b, n);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

INLINE vf load_kv(const void *p, size_t i, const bool half)
{
    return half ? vf_load_half((const uint16_t *)p + i) : vf_load((const float *)p + i);
}

static void store_k_half(void *k_page, const float *x, uint32_t dk, uint32_t slot)
{
    uint16_t *k = k_page, h[VW];
    for (uint32_t d = 0; d < dk; d += VW) {
        uint32_t n = dk - d < VW ? dk - d : VW;
        vf_store_half(h, n == VW ? vf_load(x + d) : vf_load_n(x + d, n));
        for (uint32_t j = 0; j < n; j++) k[(d + j) * KV_PAGE + slot] = h[j];
    }
}
static void store_k_float(void *k_page, const float *x, uint32_t dk, uint32_t slot)
{
    float *k = k_page;
    for (uint32_t d = 0; d < dk; d++) k[d * KV_PAGE + slot] = x[d];
}
static void store_v_half(void *v_page, const float *x, uint32_t dv, uint32_t slot)
{
    uint16_t *v = (uint16_t *)v_page + (size_t)slot * kv_padded(dv);
    uint32_t d = 0;
    for (; d + VW <= dv; d += VW) vf_store_half(v + d, vf_load(x + d));
    for (; d < kv_padded(dv); d += VW) vf_store_half(v + d, d < dv ? vf_load_n(x + d, dv - d) : vf_set1(0.0f));
}
static void store_v_float(void *v_page, const float *x, uint32_t dv, uint32_t slot)
{
    float *v = (float *)v_page + (size_t)slot * kv_padded(dv);
    memcpy(v, x, dv * sizeof *x);
    memset(v + dv, 0, (kv_padded(dv) - dv) * sizeof *v);
}

/* NQ rows x 2 vectors of positions in registers; each sum runs over d alone, so its bits do not depend on NQ. */
INLINE void scores_tile(float *s, uint32_t s_stride, const float *q, uint32_t q_stride, const void *k, uint32_t dk,
                        const uint32_t NQ, const bool half)
{
    for (uint32_t p = 0; p < KV_PAGE; p += 2 * VW) {
        vf a[SCORES_NQ][2];
        UNROLL for (uint32_t i = 0; i < NQ; i++) a[i][0] = a[i][1] = vf_set1(0.0f);
        for (uint32_t d = 0; d < dk; d++) {
            vf k0 = load_kv(k, (size_t)d * KV_PAGE + p, half), k1 = load_kv(k, (size_t)d * KV_PAGE + p + VW, half);
            UNROLL for (uint32_t i = 0; i < NQ; i++)
            {
                vf x = vf_set1(q[(size_t)i * q_stride + d]);
                a[i][0] = vf_fma(x, k0, a[i][0]);
                a[i][1] = vf_fma(x, k1, a[i][1]);
            }
        }
        UNROLL for (uint32_t i = 0; i < NQ; i++)
        {
            vf_store(s + (size_t)i * s_stride + p, a[i][0]);
            vf_store(s + (size_t)i * s_stride + p + VW, a[i][1]);
        }
    }
}

INLINE void scores_all(float *s, uint32_t s_stride, const float *q, uint32_t q_stride, uint32_t nq, const void *k,
                       uint32_t dk, const bool half)
{
    while (nq) {
        uint32_t n = nq < SCORES_NQ ? nq : SCORES_NQ;
        switch (n) {
#if SCORES_NQ == 8
        case 8: scores_tile(s, s_stride, q, q_stride, k, dk, 8, half); break;
        case 7: scores_tile(s, s_stride, q, q_stride, k, dk, 7, half); break;
        case 6: scores_tile(s, s_stride, q, q_stride, k, dk, 6, half); break;
        case 5: scores_tile(s, s_stride, q, q_stride, k, dk, 5, half); break;
#endif
        case 4: scores_tile(s, s_stride, q, q_stride, k, dk, 4, half); break;
        case 3: scores_tile(s, s_stride, q, q_stride, k, dk, 3, half); break;
        case 2: scores_tile(s, s_stride, q, q_stride, k, dk, 2, half); break;
        default: scores_tile(s, s_stride, q, q_stride, k, dk, 1, half); break;
        }
        nq -= n;
        s += (size_t)n * s_stride;
        q += (size_t)n * q_stride;
    }
}
static void scores_half(float *s, uint32_t s_stride, const float *q, uint32_t q_stride, uint32_t nq, const void *k,
                        uint32_t dk)
{
    scores_all(s, s_stride, q, q_stride, nq, k, dk, true);
}
static void scores_float(float *s, uint32_t s_stride, const float *q, uint32_t q_stride, uint32_t nq, const void *k,
                         uint32_t dk)
{
    scores_all(s, s_stride, q, q_stride, nq, k, dk, false);
}

/* 16 numbers of the head at a time: read along the positions, written along the head. */
INLINE void turn_all(float *v, const void *k, uint32_t dv, const bool half)
{
    float t[16][KV_PAGE];
    for (uint32_t d = 0; d < kv_padded(dv); d += 16) {
        const uint32_t n = dv - d < 16 ? dv - d : 16;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < KV_PAGE; j += VW)
                vf_store(t[i] + j, load_kv(k, (size_t)(d + i) * KV_PAGE + j, half));
        if (n < 16) memset(t[n], 0, (16 - n) * sizeof t[n]);
        for (uint32_t j = 0; j < KV_PAGE; j++)
            for (uint32_t i = 0; i < 16; i++) v[(size_t)j * kv_padded(dv) + d + i] = t[i][j];
    }
}
static void turn_half(float *v, const void *k_page, uint32_t dv) { turn_all(v, k_page, dv, true); }
static void turn_float(float *v, const void *k_page, uint32_t dv) { turn_all(v, k_page, dv, false); }

/* NQ rows x ND vectors of the head; each sum runs over positions alone. */
INLINE void values_tile(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, const void *v, uint32_t dv,
                        uint32_t first, uint32_t n, const uint32_t NQ, const uint32_t ND, const bool half)
{
    vf a[VALUES_NQ][4];
    UNROLL for (uint32_t i = 0; i < NQ; i++) UNROLL for (uint32_t d = 0; d < ND; d++) a[i][d] =
        vf_load(y + (size_t)i * y_stride + d * VW);
    for (uint32_t j = first; j < first + n; j++) {
        vf x[4];
        UNROLL for (uint32_t d = 0; d < ND; d++) x[d] = load_kv(v, (size_t)j * dv + d * VW, half);
        UNROLL for (uint32_t i = 0; i < NQ; i++)
        {
            vf w = vf_set1(p[(size_t)i * p_stride + j]);
            UNROLL for (uint32_t d = 0; d < ND; d++) a[i][d] = vf_fma(w, x[d], a[i][d]);
        }
    }
    UNROLL for (uint32_t i = 0; i < NQ; i++) UNROLL for (uint32_t d = 0; d < ND; d++)
        vf_store(y + (size_t)i * y_stride + d * VW, a[i][d]);
}

/* All vectors of NQ rows: fours, then what is left. dv is a multiple of 16, so of VW. */
INLINE void values_rows(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, const void *v, uint32_t dv,
                        uint32_t first, uint32_t n, const uint32_t NQ, const bool half)
{
    const size_t size = half ? sizeof(uint16_t) : sizeof(float);
    uint32_t d = 0;
    for (; d + 4 * VW <= dv; d += 4 * VW)
        values_tile(y + d, y_stride, p, p_stride, (const char *)v + d * size, dv, first, n, NQ, 4, half);
    for (; d + 2 * VW <= dv; d += 2 * VW)
        values_tile(y + d, y_stride, p, p_stride, (const char *)v + d * size, dv, first, n, NQ, 2, half);
    for (; d < dv; d += VW)
        values_tile(y + d, y_stride, p, p_stride, (const char *)v + d * size, dv, first, n, NQ, 1, half);
}

INLINE void values_all(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, uint32_t nq, const void *v,
                       uint32_t dv, uint32_t first, uint32_t n, const bool half)
{
    while (nq) {
        uint32_t rows = nq < VALUES_NQ ? nq : VALUES_NQ;
        switch (rows) {
#if VALUES_NQ == 6
        case 6: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 6, half); break;
        case 5: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 5, half); break;
        case 4: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 4, half); break;
#endif
        case 3: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 3, half); break;
        case 2: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 2, half); break;
        default: values_rows(y, y_stride, p, p_stride, v, dv, first, n, 1, half); break;
        }
        nq -= rows;
        y += (size_t)rows * y_stride;
        p += (size_t)rows * p_stride;
    }
}
static void values_half(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, uint32_t nq, const void *v,
                        uint32_t dv, uint32_t first, uint32_t n)
{
    values_all(y, y_stride, p, p_stride, nq, v, dv, first, n, true);
}
static void values_float(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, uint32_t nq, const void *v,
                         uint32_t dv, uint32_t first, uint32_t n)
{
    values_all(y, y_stride, p, p_stride, nq, v, dv, first, n, false);
}

static void k_cap_scores(float *s, uint32_t n, float scale, float softcap)
{
    vf f = vf_set1(scale), c = vf_set1(softcap);
    for (uint32_t i = 0; i < n; i += VW) {
        vf v = vf_mul(vf_load(s + i), f);
        vf_store(s + i, softcap != 0.0f ? vf_mul(c, vf_tanh(vf_div(v, c))) : v);
    }
}

static void k_add_slope(float *s, uint32_t n, int64_t first, float slope)
{
    float lane[VW];
    for (uint32_t j = 0; j < VW; j++) lane[j] = (float)j;
    vf index = vf_load(lane), f = vf_set1(-slope);
    for (uint32_t i = 0; i < n; i += VW) {
        vf distance = vf_abs(vf_add(vf_set1((float)(first + i)), index));
        vf_store(s + i, vf_fma(f, distance, vf_load(s + i)));
    }
}

static void k_softmax(float *s, uint32_t n, uint32_t lo, uint32_t hi, float *max, float *sum)
{
    float lane[VW];
    for (uint32_t j = 0; j < VW; j++) lane[j] = (float)j;
    vf none = vf_set1(-INFINITY), top = none, l = vf_set1((float)lo), h = vf_set1((float)hi), index = vf_load(lane),
       step = vf_set1((float)VW);
    for (uint32_t i = 0; i < n; i += VW, index = vf_add(index, step)) {
        vf v = vf_lt(index, l, none, vf_lt(index, h, vf_load(s + i), none));
        vf_store(s + i, v);
        top = vf_max(v, top);
    }
    *max = vf_top(top);
    *sum = 0.0f;
    if (*max == -INFINITY) {
        memset(s, 0, n * sizeof *s);
        return;
    }
    vf m = vf_set1(*max), total = vf_set1(0.0f);
    for (uint32_t i = 0; i < n; i += VW) {
        vf e = vf_exp(vf_sub(vf_load(s + i), m));
        vf_store(s + i, e);
        total = vf_add(total, e);
    }
    *sum = vf_sum(total);
}

INLINE float exp_one(float x)
{
    float y[VW];
    vf_store(y, vf_exp(vf_set1(x)));
    return y[0];
}

static void k_combine(float *y, float *y_max, float *y_sum, const float *split, float max, float sum, uint32_t dv)
{
    if (sum == 0.0f) return;
    if (*y_sum == 0.0f) {
        memcpy(y, split, dv * sizeof *y);
        *y_max = max;
        *y_sum = sum;
        return;
    }
    float m = *y_max > max ? *y_max : max, old = exp_one(*y_max - m), new = exp_one(max - m);
    vf a = vf_set1(old), b = vf_set1(new);
    for (uint32_t d = 0; d < dv; d += VW) vf_store(y + d, vf_fma(vf_load(split + d), b, vf_mul(vf_load(y + d), a)));
    *y_max = m;
    *y_sum = *y_sum * old + sum * new;
}

static void k_finish(float *out, const float *y, float max, float sum, const float *sink, uint32_t dv)
{
    float factor = 1.0f / sum;
    if (sink) {
        float m = *sink > max ? *sink : max, w = exp_one(max - m);
        factor = w / (sum * w + exp_one(*sink - m));
    }
    k_scale(out, y, factor, dv);
}

/* ---- states -------------------------------------------------------------------------------------------- */

static void k_conv(float *y, const float *const *x, const float *w, uint32_t stride, const float *b, uint32_t rows,
                   uint32_t n)
{
    for (uint32_t c = 0; c < n; c += VW) {
        const uint32_t lanes = n - c < VW ? n - c : VW;
        vf a = vf_set1(0.0f);
        for (uint32_t i = 0; i < rows; i++) {
            const float *xi = x[i] + c, *wi = w + (size_t)i * stride + c;
            a = lanes == VW ? vf_fma(vf_load(wi), vf_load(xi), a)
                            : vf_fma(vf_load_n(wi, lanes), vf_load_n(xi, lanes), a);
        }
        if (b) a = vf_add(a, lanes == VW ? vf_load(b + c) : vf_load_n(b + c, lanes));
        vf_store_n(y + c, a, lanes);
    }
}

enum { COLUMN_VECTORS = STATE_COLUMNS / VW, STATE_SUMS = 4 };

struct columns {
    vf v[COLUMN_VECTORS];
};
INLINE struct columns columns_set(float x)
{
    struct columns c;
    UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) c.v[j] = vf_set1(x);
    return c;
}
INLINE struct columns columns_load(const float *p)
{
    struct columns c;
    UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) c.v[j] = vf_load(p + j * VW);
    return c;
}
INLINE void columns_store(float *p, struct columns c)
{
    UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) vf_store(p + j * VW, c.v[j]);
}
INLINE void columns_store_sum(float *y, const struct columns *sum)
{
    struct columns c;
    UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) c.v[j] =
        vf_add(vf_add(sum[0].v[j], sum[1].v[j]), vf_add(sum[2].v[j], sum[3].v[j]));
    columns_store(y, c);
}

/* s = d s + u k, y = q s. */
INLINE void state_row(float *y, float *s, const float *q, const float *k, struct columns u, vf d, uint32_t dk)
{
    struct columns sum[STATE_SUMS];
    UNROLL for (uint32_t i = 0; i < STATE_SUMS; i++) sum[i] = columns_set(0.0f);
    for (uint32_t i = 0; i < dk; i++, s += STATE_COLUMNS) {
        struct columns c = columns_load(s), *a = &sum[i % STATE_SUMS];
        const vf ki = vf_set1(k[i]), qi = vf_set1(q[i]);
        UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++)
        {
            c.v[j] = vf_fma(u.v[j], ki, vf_mul(d, c.v[j]));
            a->v[j] = vf_fma(c.v[j], qi, a->v[j]);
        }
        columns_store(s, c);
    }
    columns_store_sum(y, sum);
}

static void k_scan(float *y, float *s, const float *q, const float *k, const float *v, float decay, uint32_t dk)
{
    state_row(y, s, q, k, columns_load(v), vf_exp(vf_set1(decay)), dk);
}

static void k_delta(float *y, float *s, const float *q, const float *k, const float *v, float decay, float beta,
                    uint32_t dk)
{
    const vf d = vf_exp(vf_set1(decay)), rate = vf_set1(beta);
    struct columns sum[STATE_SUMS], u = columns_load(v);
    float told[STATE_COLUMNS];
    UNROLL for (uint32_t i = 0; i < STATE_SUMS; i++) sum[i] = columns_set(0.0f);
    for (uint32_t i = 0; i < dk; i++) {
        const struct columns c = columns_load(s + (size_t)i * STATE_COLUMNS);
        struct columns *a = &sum[i % STATE_SUMS];
        const vf ki = vf_set1(k[i]);
        UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) a->v[j] = vf_fma(vf_mul(d, c.v[j]), ki, a->v[j]);
    }
    columns_store_sum(told, sum);
    const struct columns t = columns_load(told);
    UNROLL for (uint32_t j = 0; j < COLUMN_VECTORS; j++) u.v[j] = vf_mul(rate, vf_sub(u.v[j], t.v[j]));
    state_row(y, s, q, k, u, d, dk);
}

const struct cpu_kernels ISA_TABLE = {
    .name = ISA_NAME,
    .isa = ISA_LEVEL,
    .quantize = k_quantize,
    .bounded = k_bounded,
    .norm = k_norm,
    .add = k_add,
    .mul = k_mul,
    .scale = k_scale,
    .add_scaled = k_add_scaled,
    .exp = k_exp,
    .map = k_map,
    .glu = k_glu,
    .rope = k_rope,
    .store_k = { store_k_half, store_k_float },
    .store_v = { store_v_half, store_v_float },
    .scores = { scores_half, scores_float },
    .values = { values_half, values_float },
    .turn = { turn_half, turn_float },
    .cap_scores = k_cap_scores,
    .add_slope = k_add_slope,
    .softmax = k_softmax,
    .combine = k_combine,
    .finish = k_finish,
    .conv = k_conv,
    .scan = k_scan,
    .delta = k_delta,
};
