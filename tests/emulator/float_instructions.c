/* float_instructions.c: floating point. Round to nearest, fused operations and conversions are exact; approximations
 * (ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh, div) are the host's functions, so better than the device's by up to two
 * units of the last place. */
#include <math.h>

#include <immintrin.h>

#include "lanes.h"

static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float min_of(float a, float b)
{
    return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
static inline float max_of(float a, float b)
{
    return isnan(a) ? b : isnan(b) ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

LANES2(add_f32, float, a + b)
LANES2(sub_f32, float, a - b)
LANES2(mul_f32, float, a *b)
LANES3(fma_f32, float, __builtin_fmaf(a, b, c))
LANES2(div_f32, float, a / b)
LANES2(min_f32, float, min_of(a, b))
LANES2(max_f32, float, max_of(a, b))
LANES2(max_nan_f32, float, isnan(a) || isnan(b) ? NAN : max_of(a, b))
LANES1(neg_f32, uint32_t, uint32_t, a ^ 0x80000000u)
LANES1(abs_f32, uint32_t, uint32_t, a & 0x7fffffffu)
LANES2(copysign_f32, uint32_t, (b & 0x7fffffffu) | (a & 0x80000000u)) /* the sign is the first operand's */
LANES1(sqrt_f32, float, float, sqrtf(a))
LANES1(rcp_f32, float, float, 1.0f / a)
LANES1(rcp_ftz_f32, float, float, flushed(1.0f / flushed(a)))
LANES1(rsqrt_f32, float, float, (float)(1.0 / sqrt((double)a)))
LANES1(rsqrt_ftz_f32, float, float, (float)(1.0 / sqrt((double)flushed(a))))
LANES1(ex2_f32, float, float, exp2f(a))
LANES1(ex2_ftz_f32, float, float, flushed(exp2f(flushed(a))))
LANES1(lg2_f32, float, float, log2f(a))
LANES1(lg2_ftz_f32, float, float, log2f(flushed(a)))
LANES1(sin_f32, float, float, sinf(a))
LANES1(cos_f32, float, float, cosf(a))
LANES1(tanh_f32, float, float, tanhf(a))
LANES2(add_f64, double, a + b)
LANES2(sub_f64, double, a - b)
LANES2(mul_f64, double, a *b)
LANES3(fma_f64, double, __builtin_fma(a, b, c))
LANES2(div_f64, double, a / b)
LANES2(min_f64, double, fmin(a, b))
LANES2(max_f64, double, fmax(a, b))
LANES1(neg_f64, uint64_t, uint64_t, a ^ 1ull << 63)
LANES1(abs_f64, uint64_t, uint64_t, a & ~(1ull << 63))
LANES1(sqrt_f64, double, double, sqrt(a))
LANES1(rcp_f64, double, double, 1.0 / a)

/* Directed rounding by the processor's control word; the operation is written as an instruction, so that the compiler
 * cannot move it. */
static inline float fma_rounded(float a, float b, float c, unsigned mode)
{
    const unsigned old = _mm_getcsr();
    _mm_setcsr((old & ~0x6000u) | mode);
    __asm__ volatile("vfmadd213ss %2, %1, %0" : "+x"(a) : "x"(b), "x"(c));
    _mm_setcsr(old);
    return a;
}
LANES3(fma_rm_f32, float, fma_rounded(a, b, c, 0x2000))
LANES3(fma_rp_f32, float, fma_rounded(a, b, c, 0x4000))
LANES3(fma_rz_f32, float, fma_rounded(a, b, c, 0x6000))
LANES2(add_rz_f32, float, fma_rounded(a, 1.0f, b, 0x6000))
LANES2(mul_rz_f32, float, fma_rounded(a, b, -0.0f, 0x6000))
LANES2(add_rm_f32, float, fma_rounded(a, 1.0f, b, 0x2000))
LANES2(add_rp_f32, float, fma_rounded(a, 1.0f, b, 0x4000))

/* ---- comparisons --------------------------------------------------------------------------------------- */

#define COMPARES_F(suffix, T)                           \
    COMPARE(setp_eq_##suffix, T, a == b)                \
    COMPARE(setp_ne_##suffix, T, a<b || a> b)           \
    COMPARE(setp_lt_##suffix, T, a < b)                 \
    COMPARE(setp_le_##suffix, T, a <= b)                \
    COMPARE(setp_gt_##suffix, T, a > b)                 \
    COMPARE(setp_ge_##suffix, T, a >= b)                \
    COMPARE(setp_equ_##suffix, T, !(a < b || a > b))    \
    COMPARE(setp_neu_##suffix, T, a != b)               \
    COMPARE(setp_ltu_##suffix, T, !(a >= b))            \
    COMPARE(setp_leu_##suffix, T, !(a > b))             \
    COMPARE(setp_gtu_##suffix, T, !(a <= b))            \
    COMPARE(setp_geu_##suffix, T, !(a < b))             \
    COMPARE(setp_nan_##suffix, T, isnan(a) || isnan(b)) \
    COMPARE(setp_num_##suffix, T, !isnan(a) && !isnan(b))
COMPARES_F(f32, float)
COMPARES_F(f64, double)

/* ---- halves -------------------------------------------------------------------------------------------- */

static inline float half_to_float(uint32_t h) { return _cvtsh_ss((unsigned short)h); }
static inline uint32_t to_half(float f) { return isnan(f) ? 0x7fff : _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
static inline uint32_t to_half_finite(float f)
{
    return isnan(f) ? 0x7fff
                    : _cvtss_sh(f > 65504.0f    ? 65504.0f
                                : f < -65504.0f ? -65504.0f
                                                : f,
                                _MM_FROUND_TO_NEAREST_INT);
}
static inline uint32_t to_half_zero(float f) { return isnan(f) ? 0x7fff : _cvtss_sh(f, _MM_FROUND_TO_ZERO); }
static inline uint32_t to_bf16(float f)
{
    const uint32_t b = bits_of(f);
    return isnan(f) ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
static enum outcome half_to_f32(struct warp *w, const struct insn *i)
{
    const uint32_t *a = r32(w, i, 1), on = w->active;
    uint32_t *d = r32(w, i, 0);
    for (unsigned l = 0; l < LANES; l += 8) {
        const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(a + l));
        const __m128i packed = _mm_packus_epi32(_mm_and_si128(_mm256_castsi256_si128(h), _mm_set1_epi32(0xffff)),
                                                _mm_and_si128(_mm256_extracti128_si256(h, 1), _mm_set1_epi32(0xffff)));
        uint32_t v[8];
        _mm256_storeu_ps((float *)(void *)v, _mm256_cvtph_ps(packed));
        for (unsigned n = 0; n < 8; n++) d[l + n] = on >> (l + n) & 1 ? v[n] : d[l + n];
    }
    return NEXT;
}
LANES1(f32_to_half, uint32_t, float, to_half(a))
LANES1(f32_to_half_finite, uint32_t, float, to_half_finite(a))
LANES1(f32_to_half_rz, uint32_t, float, to_half_zero(a))
/* Eight at a time: the compiler makes no vectors of the conversion. */
static inline __m256i eight_halves(const float *from, bool finite)
{
    const __m256 v = _mm256_loadu_ps(from), most = _mm256_set1_ps(65504.0f);
    const __m256 kept = finite ? _mm256_min_ps(_mm256_max_ps(v, _mm256_sub_ps(_mm256_setzero_ps(), most)), most) : v;
    const __m256i h = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT)),
                  nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(h, _mm256_set1_epi32(0x7fff), nan);
}
static enum outcome two_halves(struct warp *w, const struct insn *i, bool finite)
{
    const float *a = (const float *)(const void *)r32(w, i, 1), *b = (const float *)(const void *)r32(w, i, 2);
    uint32_t *d = r32(w, i, 0), v[8];
    for (unsigned l = 0; l < LANES; l += 8) {
        _mm256_storeu_si256((__m256i *)(void *)v, _mm256_or_si256(_mm256_slli_epi32(eight_halves(a + l, finite), 16),
                                                                  eight_halves(b + l, finite)));
        for (unsigned n = 0; n < 8; n++) d[l + n] = w->active >> (l + n) & 1 ? v[n] : d[l + n];
    }
    return NEXT;
}
static enum outcome f32_to_half2(struct warp *w, const struct insn *i) { return two_halves(w, i, false); }
static enum outcome f32_to_half2_finite(struct warp *w, const struct insn *i) { return two_halves(w, i, true); }
LANES1(f32_to_bf16, uint32_t, float, to_bf16(a))
LANEWISE(f32_to_bf162, uint32_t, float, float, float, 2, to_bf16(a) << 16 | to_bf16(b))
LANES1(bf16_to_f32, uint32_t, uint32_t, a << 16)
LANES1(u16_to_half, uint32_t, uint32_t, to_half((float)(a & 0xffff)))
LANES1(s16_to_half, uint32_t, uint32_t, to_half((float)(int16_t)a))

/* One rounding: the exact value to F32 by rounding to odd, and from there to nearest. */
static inline uint32_t half_round(double exact)
{
    const float f = (float)exact;
    if (isnan(f) || isinf(f) || (double)f == exact) return to_half(f);
    return to_half(f32_of((bits_of(f) - (fabs((double)f) > fabs(exact))) | 1));
}
static inline double low_half(uint32_t v) { return half_to_float(v & 0xffff); }
static inline double high_half(uint32_t v) { return half_to_float(v >> 16); }
#define HALF2(name, op)                                                  \
    LANES2(name##_f16, uint32_t, half_round(low_half(a) op low_half(b))) \
    LANES2(name##_f16x2, uint32_t,                                       \
           half_round(low_half(a) op low_half(b)) | half_round(high_half(a) op high_half(b)) << 16)
HALF2(add, +)
HALF2(sub, -)
HALF2(mul, *)
LANES3(fma_f16, uint32_t, half_round(low_half(a) * low_half(b) + low_half(c)))
LANES3(fma_f16x2, uint32_t,
       half_round(low_half(a) * low_half(b) + low_half(c)) | half_round(high_half(a) * high_half(b) + high_half(c))
                                                                 << 16)
LANES1(neg_f16, uint32_t, uint32_t, a ^ 0x8000)
LANES1(neg_f16x2, uint32_t, uint32_t, a ^ 0x80008000u)
LANES1(abs_f16, uint32_t, uint32_t, a & 0x7fff)
LANES1(abs_f16x2, uint32_t, uint32_t, a & 0x7fff7fffu)

/* ---- other conversions --------------------------------------------------------------------------------- */

/* Out of range: the nearest; not a number: 0. */
static inline uint32_t float_to_u32(double x)
{
    return isnan(x) || x <= 0 ? 0 : x >= 4294967295.0 ? 0xffffffffu : (uint32_t)x;
}
static inline uint32_t float_to_s32(double x)
{
    return (uint32_t)(isnan(x) ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x);
}
static inline uint64_t float_to_u64(double x) { return isnan(x) || x <= 0 ? 0 : x >= 0x1p64 ? ~0ull : (uint64_t)x; }
static inline uint64_t float_to_s64(double x)
{
    return (uint64_t)(isnan(x) ? 0 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x);
}
static inline uint32_t tf32_away(uint32_t b)
{
    return (b & 0x7f800000u) == 0x7f800000u ? (b & 0x7fffffu ? 0x7fffffffu : b) : (b + 0x1000u) & ~0x1fffu;
}

LANES1(trunc_f32, float, float, truncf(a))
LANES1(rint_f32, float, float, rintf(a))
LANES1(floor_f32, float, float, floorf(a))
LANES1(ceil_f32, float, float, ceilf(a))
LANES1(sat_f32, float, float, isnan(a) ? 0.0f : a <= 0.0f ? 0.0f : a > 1.0f ? 1.0f : a)
LANES1(rint_f64, double, double, rint(a))
LANES1(trunc_f64, double, double, trunc(a))
LANES1(floor_f64, double, double, floor(a))
LANES1(f32_u32, uint32_t, float, float_to_u32(truncf(a)))
LANES1(f32_s32, uint32_t, float, float_to_s32(truncf(a)))
LANES1(f32_u32_rn, uint32_t, float, float_to_u32(rintf(a)))
LANES1(f32_s32_rn, uint32_t, float, float_to_s32(rintf(a)))
LANES1(f32_s32_rm, uint32_t, float, float_to_s32(floorf(a)))
LANES1(f64_u32, uint32_t, double, float_to_u32(trunc(a)))
LANES1(f64_s32, uint32_t, double, float_to_s32(trunc(a)))
LANES1(f64_s32_rn, uint32_t, double, float_to_s32(rint(a)))
LANES1(f64_u64, uint64_t, double, float_to_u64(trunc(a)))
LANES1(f64_u64_rn, uint64_t, double, float_to_u64(rint(a)))
LANES1(f64_s64, uint64_t, double, float_to_s64(trunc(a)))
LANES1(f64_s64_rn, uint64_t, double, float_to_s64(rint(a)))
LANES1(f32_u64, uint64_t, float, float_to_u64(truncf(a)))
LANES1(f32_u64_rn, uint64_t, float, float_to_u64(rintf(a)))
LANES1(f32_s64, uint64_t, float, float_to_s64(truncf(a)))
LANES1(u32_f32, float, uint32_t, (float)a)
LANES1(s32_f32, float, int32_t, (float)a)
LANES1(u64_f32, float, uint64_t, (float)a)
LANES1(s64_f32, float, int64_t, (float)a)
LANES1(u16_f32, float, uint32_t, (float)(a & 0xffff))
LANES1(s16_f32, float, uint32_t, (float)(int16_t)a)
LANES1(u8_f32, float, uint32_t, (float)(a & 0xff))
LANES1(s8_f32, float, uint32_t, (float)(int8_t)a)
LANES1(u32_f64, double, uint32_t, (double)a)
LANES1(s32_f64, double, int32_t, (double)a)
LANES1(u64_f64, double, uint64_t, (double)a)
LANES1(s64_f64, double, int64_t, (double)a)
LANES1(f32_f64, double, float, (double)a)
LANES1(f64_f32, float, double, (float)a)
LANES1(rna_tf32, uint32_t, uint32_t, tf32_away(a))

#define F1(name, fn) { name, "i:i", fn, false }
#define F2(name, fn) { name, "i:ii", fn, false }
#define F3(name, fn) { name, "i:iii", fn, false }
#define D1(name, fn) { name, "l:l", fn, false }
#define D2(name, fn) { name, "l:ll", fn, false }
#define D3(name, fn) { name, "l:lll", fn, false }
#define SETF(s, regs)                                                                                 \
    { "setp.eq." #s, regs, setp_eq_##s, false }, { "setp.ne." #s, regs, setp_ne_##s, false },         \
        { "setp.lt." #s, regs, setp_lt_##s, false }, { "setp.le." #s, regs, setp_le_##s, false },     \
        { "setp.gt." #s, regs, setp_gt_##s, false }, { "setp.ge." #s, regs, setp_ge_##s, false },     \
        { "setp.equ." #s, regs, setp_equ_##s, false }, { "setp.neu." #s, regs, setp_neu_##s, false }, \
        { "setp.ltu." #s, regs, setp_ltu_##s, false }, { "setp.leu." #s, regs, setp_leu_##s, false }, \
        { "setp.gtu." #s, regs, setp_gtu_##s, false }, { "setp.geu." #s, regs, setp_geu_##s, false }, \
        { "setp.nan." #s, regs, setp_nan_##s, false },                                                \
    {                                                                                                 \
        "setp.num." #s, regs, setp_num_##s, false                                                     \
    }
const struct instruction float_instructions[] = { F2("add.rn.f32", add_f32),
                                                  F2("add.f32", add_f32),
                                                  F2("sub.rn.f32", sub_f32),
                                                  F2("sub.f32", sub_f32),
                                                  F2("mul.rn.f32", mul_f32),
                                                  F2("mul.f32", mul_f32),
                                                  F3("fma.rn.f32", fma_f32),
                                                  F3("fma.rm.f32", fma_rm_f32),
                                                  F3("fma.rp.f32", fma_rp_f32),
                                                  F3("fma.rz.f32", fma_rz_f32),
                                                  F2("add.rz.f32", add_rz_f32),
                                                  F2("mul.rz.f32", mul_rz_f32),
                                                  F2("add.rm.f32", add_rm_f32),
                                                  F2("add.rp.f32", add_rp_f32),
                                                  F2("div.rn.f32", div_f32),
                                                  F2("div.approx.f32", div_f32),
                                                  F2("div.full.f32", div_f32),
                                                  F2("min.f32", min_f32),
                                                  F2("max.f32", max_f32),
                                                  F2("max.NaN.f32", max_nan_f32),
                                                  F1("neg.f32", neg_f32),
                                                  F1("abs.f32", abs_f32),
                                                  F2("copysign.f32", copysign_f32),
                                                  F1("sqrt.rn.f32", sqrt_f32),
                                                  F1("sqrt.approx.f32", sqrt_f32),
                                                  F1("rcp.rn.f32", rcp_f32),
                                                  F1("rcp.approx.f32", rcp_f32),
                                                  F1("rcp.approx.ftz.f32", rcp_ftz_f32),
                                                  F1("rsqrt.approx.f32", rsqrt_f32),
                                                  F1("rsqrt.approx.ftz.f32", rsqrt_ftz_f32),
                                                  F1("ex2.approx.f32", ex2_f32),
                                                  F1("ex2.approx.ftz.f32", ex2_ftz_f32),
                                                  F1("lg2.approx.f32", lg2_f32),
                                                  F1("lg2.approx.ftz.f32", lg2_ftz_f32),
                                                  F1("sin.approx.f32", sin_f32),
                                                  F1("cos.approx.f32", cos_f32),
                                                  F1("sin.approx.ftz.f32", sin_f32),
                                                  F1("cos.approx.ftz.f32", cos_f32),
                                                  F1("tanh.approx.f32", tanh_f32),
                                                  D2("add.rn.f64", add_f64),
                                                  D2("add.f64", add_f64),
                                                  D2("sub.rn.f64", sub_f64),
                                                  D2("sub.f64", sub_f64),
                                                  D2("mul.rn.f64", mul_f64),
                                                  D2("mul.f64", mul_f64),
                                                  D3("fma.rn.f64", fma_f64),
                                                  D2("div.rn.f64", div_f64),
                                                  D2("min.f64", min_f64),
                                                  D2("max.f64", max_f64),
                                                  D1("neg.f64", neg_f64),
                                                  D1("abs.f64", abs_f64),
                                                  D1("sqrt.rn.f64", sqrt_f64),
                                                  D1("rcp.rn.f64", rcp_f64),
                                                  D1("rcp.approx.ftz.f64", rcp_f64),
                                                  SETF(f32, "p:ii"),
                                                  SETF(f64, "p:ll"),
                                                  F1("cvt.f32.f16", half_to_f32),
                                                  F1("cvt.rn.f16.f32", f32_to_half),
                                                  F1("cvt.rn.satfinite.f16.f32", f32_to_half_finite),
                                                  F1("cvt.rz.f16.f32", f32_to_half_rz),
                                                  F2("cvt.rn.f16x2.f32", f32_to_half2),
                                                  F2("cvt.rn.satfinite.f16x2.f32", f32_to_half2_finite),
                                                  F1("cvt.rn.bf16.f32", f32_to_bf16),
                                                  F2("cvt.rn.bf16x2.f32", f32_to_bf162),
                                                  F1("cvt.f32.bf16", bf16_to_f32),
                                                  F1("cvt.rn.f16.u16", u16_to_half),
                                                  F1("cvt.rn.f16.s16", s16_to_half),
                                                  F2("add.f16x2", add_f16x2),
                                                  F2("add.rn.f16x2", add_f16x2),
                                                  F2("sub.f16x2", sub_f16x2),
                                                  F2("sub.rn.f16x2", sub_f16x2),
                                                  F2("mul.f16x2", mul_f16x2),
                                                  F2("mul.rn.f16x2", mul_f16x2),
                                                  F3("fma.rn.f16x2", fma_f16x2),
                                                  F2("add.f16", add_f16),
                                                  F2("add.rn.f16", add_f16),
                                                  F2("sub.f16", sub_f16),
                                                  F2("sub.rn.f16", sub_f16),
                                                  F2("mul.f16", mul_f16),
                                                  F2("mul.rn.f16", mul_f16),
                                                  F3("fma.rn.f16", fma_f16),
                                                  F1("neg.f16", neg_f16),
                                                  F1("neg.f16x2", neg_f16x2),
                                                  F1("abs.f16", abs_f16),
                                                  F1("abs.f16x2", abs_f16x2),
                                                  F1("cvt.rzi.f32.f32", trunc_f32),
                                                  F1("cvt.rni.f32.f32", rint_f32),
                                                  F1("cvt.rmi.f32.f32", floor_f32),
                                                  F1("cvt.rpi.f32.f32", ceil_f32),
                                                  F1("cvt.sat.f32.f32", sat_f32),
                                                  D1("cvt.rni.f64.f64", rint_f64),
                                                  D1("cvt.rzi.f64.f64", trunc_f64),
                                                  D1("cvt.rmi.f64.f64", floor_f64),
                                                  F1("cvt.rzi.u32.f32", f32_u32),
                                                  F1("cvt.rzi.s32.f32", f32_s32),
                                                  F1("cvt.rni.u32.f32", f32_u32_rn),
                                                  F1("cvt.rni.s32.f32", f32_s32_rn),
                                                  F1("cvt.rmi.s32.f32", f32_s32_rm),
                                                  { "cvt.rzi.u32.f64", "i:l", f64_u32, false },
                                                  { "cvt.rzi.s32.f64", "i:l", f64_s32, false },
                                                  { "cvt.rni.s32.f64", "i:l", f64_s32_rn, false },
                                                  D1("cvt.rzi.u64.f64", f64_u64),
                                                  D1("cvt.rni.u64.f64", f64_u64_rn),
                                                  D1("cvt.rzi.s64.f64", f64_s64),
                                                  D1("cvt.rni.s64.f64", f64_s64_rn),
                                                  { "cvt.rzi.u64.f32", "l:i", f32_u64, false },
                                                  { "cvt.rni.u64.f32", "l:i", f32_u64_rn, false },
                                                  { "cvt.rzi.s64.f32", "l:i", f32_s64, false },
                                                  F1("cvt.rn.f32.u32", u32_f32),
                                                  F1("cvt.rn.f32.s32", s32_f32),
                                                  F1("cvt.rn.f32.u16", u16_f32),
                                                  F1("cvt.rn.f32.s16", s16_f32),
                                                  F1("cvt.rn.f32.u8", u8_f32),
                                                  F1("cvt.rn.f32.s8", s8_f32),
                                                  { "cvt.rn.f32.u64", "i:l", u64_f32, false },
                                                  { "cvt.rn.f32.s64", "i:l", s64_f32, false },
                                                  { "cvt.rn.f64.u32", "l:i", u32_f64, false },
                                                  { "cvt.rn.f64.s32", "l:i", s32_f64, false },
                                                  D1("cvt.rn.f64.u64", u64_f64),
                                                  D1("cvt.rn.f64.s64", s64_f64),
                                                  { "cvt.f64.f32", "l:i", f32_f64, false },
                                                  { "cvt.rn.f32.f64", "i:l", f64_f32, false },
                                                  F1("cvt.rna.tf32.f32", rna_tf32),
                                                  { NULL, NULL, NULL, false } };
