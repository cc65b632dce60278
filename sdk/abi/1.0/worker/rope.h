/* worker/rope.h: the frequencies of rotary embeddings, and every scaling of them that GGUF files know, in double.
 *
 * A plugin starts from wk_rope_frequencies and applies what the file asks for: a division by a table (Llama 3.1 and
 * later, LongRoPE), a stretch (linear scaling) or YaRN. The result goes into struct wk_rope_freqs; the operation itself
 * knows no scaling. */
#ifndef WORKER_ROPE_H
#define WORKER_ROPE_H

#include <math.h>

#include <worker/arch.h>

#ifdef __cplusplus
extern "C" {
#endif

/* freq[i] = base^(-i / n), i < n: `n` pairs, radians a position (Su et al. 2021, 3.3). */
static inline void wk_rope_frequencies(double *freq, uint32_t n, double base)
{
    for (uint32_t i = 0; i < n; i++) freq[i] = pow(base, -(double)i / (double)n);
}

/* Linear position interpolation (Chen et al. 2023): positions are `factor` times closer. */
static inline void wk_rope_scale_linear(double *freq, uint32_t n, double factor)
{
    for (uint32_t i = 0; i < n; i++) freq[i] /= factor;
}

/* A factor a pair, from a tensor [n]: rope_freqs (Llama 3.1 and later), rope_factors_long and _short (LongRoPE, Ding et
 * al. 2024). */
static inline void wk_rope_scale_factors(double *freq, uint32_t n, const float *factor)
{
    for (uint32_t i = 0; i < n; i++) freq[i] /= (double)factor[i];
}

/* YaRN (Peng et al. 2023): pairs that turn more than beta_fast times in the original context keep their frequency,
 * pairs that turn less than beta_slow times are stretched by `factor`, those between are mixed. */
struct wk_yarn {
    double base, factor;         /* rope base; context now / original context */
    double original_context;     /* positions the model was trained on */
    double beta_fast, beta_slow; /* 32 and 1 */
    double extrapolation;        /* share of the mixing: 1; 0 is plain stretching */
    uint32_t rounded, pad;       /* 1: bounds rounded outward to whole pairs, as llama.cpp does; 0: as published and as
                                    gpt-oss was trained */
};

/* The pairs between which frequencies are mixed. */
static inline void wk_yarn_bounds(const struct wk_yarn *y, uint32_t n, double *low, double *high)
{
    const double two_pi = 6.283185307179586476925286766559, turns = y->original_context / two_pi;
    double fast = (double)n * log(turns / y->beta_fast) / log(y->base),
           slow = (double)n * log(turns / y->beta_slow) / log(y->base);
    if (y->rounded) {
        fast = floor(fast);
        slow = ceil(slow);
    }
    *low = fmax(fast, 0.0);
    *high = fmin(slow, 2.0 * (double)n - 1.0);
}

static inline void wk_rope_yarn(double *freq, uint32_t n, const struct wk_yarn *y)
{
    double low, high;
    wk_yarn_bounds(y, n, &low, &high);
    for (uint32_t i = 0; i < n; i++) {
        const double ramp = fmin(fmax(((double)i - low) / fmax(0.001, high - low), 0.0), 1.0);
        const double kept = (1.0 - ramp) * y->extrapolation;
        freq[i] = freq[i] / y->factor * (1.0 - kept) + freq[i] * kept;
    }
}

/* What YaRN multiplies q and k with (so that scores grow by its square). */
static inline double wk_yarn_mscale(double factor) { return factor > 1.0 ? 1.0 + 0.1 * log(factor) : 1.0; }

/* freq [n] stays the caller's until wk_rope has copied it. */
static inline struct wk_rope_freqs wk_rope_freqs_of(const double *freq, uint32_t n, uint32_t style, double mscale)
{
    struct wk_rope_freqs f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    f.style = style;
    f.n = n;
    f.freq = freq;
    f.mscale = mscale;
    return f;
}

#ifdef __cplusplus
}
#endif
#endif
