/* kernels.h: the arithmetic of one row, one table of functions an instruction set.
 *
 * Everything that computes with numbers outside a quantization plugin is here: norms, activations, rotation, and the
 * inner loops of attention. The body (kernels_body.h) is written once over a vector type that each kernels_<isa>.c
 * defines, so all tables agree in the order of every sum that a row needs; the width of a vector differs between
 * tables, and with it the last bits.
 *
 * Element-wise functions give each element the same bits wherever it lies in the row (tails included), so callers may
 * cut rows anywhere. No function allocates or fails; pointers need no alignment and must not overlap unless y == x is
 * allowed below. */
#ifndef CORE_DEVICE_CPU_KERNELS_H
#define CORE_DEVICE_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/arch.h>
#include <worker/quant.h>

#include "device/device.h"

/* Positions of one attention split: at absolute multiples, so that no sum depends on how a prompt was cut. */
enum { ATTN_SPLIT = 256 };
/* Columns of a head's values that are kept together in a state: whole vectors of the widest set. */
enum { STATE_COLUMNS = 16 };

struct cpu_kernels {
    const char *name; /* "avx512" */
    uint32_t isa;     /* WK_ISA_* */

    /* y [ceil(n / 32)] from x [n], as worker/cpu/act_q8.h defines it. */
    void (*quantize)(struct wk_activation_q8 *y, const float *x, uint32_t n);
    /* Every |x| <= limit; false for a NaN. */
    bool (*bounded)(const float *x, uint32_t n, float limit);

    /* One run of n values, WK_NORM_*; w and b may be NULL; y == x allowed. */
    void (*norm)(float *y, const float *x, const float *w, const float *b, uint32_t n, uint32_t kind, float eps);
    /* y == a or y == b allowed in all of these. */
    void (*add)(float *y, const float *a, const float *b, uint32_t n);
    void (*mul)(float *y, const float *a, const float *b, uint32_t n);
    void (*scale)(float *y, const float *a, float s, uint32_t n);
    void (*add_scaled)(float *y, const float *a, float s, uint32_t n); /* y = fma(a, s, y) */
    void (*exp)(float *y, const float *x, float shift,
                uint32_t n); /* e^(x - shift); saturates at e^88, 0 below e^-87 */
    void (*map)(float *y, const float *x, uint32_t n, uint32_t fn, float p); /* WK_UNARY_* */
    void (*glu)(float *y, const float *g, const float *u, uint32_t n, uint32_t fn, float alpha,
                float limit); /* WK_GLU_* */
    /* One head of `head` values; table: cos [n] then sin [n], each times mscale; y == x allowed. */
    void (*rope)(float *y, const float *x, const float *table, uint32_t n, uint32_t head, uint32_t style);

    /* ---- attention; [enum kv_type]. A page of one KV head is K [dk][KV_PAGE] then V [KV_PAGE][kv_padded(dv)].
     * -------------- */
    void (*store_k[2])(void *k_page, const float *x, uint32_t dk, uint32_t slot);
    void (*store_v[2])(void *v_page, const float *x, uint32_t dv, uint32_t slot); /* clears the padding */
    /* s[i][0..KV_PAGE) = q[i] . k[position] for nq rows; sums over d in order. */
    void (*scores[2])(float *s, uint32_t s_stride, const float *q, uint32_t q_stride, uint32_t nq, const void *k_page,
                      uint32_t dk);
    /* y[i] [dv] += sum over positions [first, first + n) of the page, in order, of p[i][position] v[position]; dv a
     * multiple of 16. */
    void (*values[2])(float *y, uint32_t y_stride, const float *p, uint32_t p_stride, uint32_t nq, const void *v_page,
                      uint32_t dv, uint32_t first, uint32_t n);
    /* v [KV_PAGE][kv_padded(dv)] = the first dv numbers of a page's keys, as a page of F32 values. */
    void (*turn[2])(float *v, const void *k_page, uint32_t dv);
    /* s [n], n a multiple of 32: cap and scale. */
    void (*cap_scores)(float *s, uint32_t n, float scale, float softcap);
    /* s[i] += slope * -|first + i|, n a multiple of 32: first is the position of s[0] less that of the row. */
    void (*add_slope)(float *s, uint32_t n, int64_t first, float slope);
    /* s [n], n a multiple of 32: e^(s - max) for positions [lo, hi), 0 elsewhere. max = -inf and sum = 0 if there is
     * none. */
    void (*softmax)(float *s, uint32_t n, uint32_t lo, uint32_t hi, float *max, float *sum);
    /* Appends a split's (max, sum, values) to the running ones; sum 0 is an empty split. dv a multiple of 16. */
    void (*combine)(float *y, float *y_max, float *y_sum, const float *split, float max, float sum, uint32_t dv);
    /* out [dv] = y / (sum + e^(sink - max)), sink NULL: none. */
    void (*finish)(float *out, const float *y, float max, float sum, const float *sink, uint32_t dv);

    /* States. Lanes are columns, so no sum is made across them. */

    /* y[c] = sum over i < rows, in order, of w[i * stride + c] x[i][c], + b[c]; b NULL: none. c < n. */
    void (*conv)(float *y, const float *const *x, const float *w, uint32_t stride, const float *b, uint32_t rows,
                 uint32_t n);
    /* One row of STATE_COLUMNS columns of one head's state s [dk][STATE_COLUMNS], v and y [STATE_COLUMNS]:
     * s = e^decay s + k v, y = q s; four sums over dk, i % 4, and their tree. */
    void (*scan)(float *y, float *s, const float *q, const float *k, const float *v, float decay, uint32_t dk);
    /* s = e^decay s; s = s + beta k (v - k s); y = q s. */
    void (*delta)(float *y, float *s, const float *q, const float *k, const float *v, float decay, float beta,
                  uint32_t dk);
};

/* Values of one V row in the cache: whole vectors of the widest set. */
static inline uint32_t kv_padded(uint32_t dv) { return (dv + 15u) & ~15u; }

extern const struct cpu_kernels cpu_kernels_portable;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

/* The best table for `isa` (WK_ISA_*), which the processor must have. */
static inline const struct cpu_kernels *cpu_kernels_for(uint32_t isa)
{
#if defined(__x86_64__)
    if (isa >= WK_ISA_AVX512) return &cpu_kernels_avx512;
    if (isa >= WK_ISA_AVX2) return &cpu_kernels_avx2;
#endif
    (void)isa;
    return &cpu_kernels_portable;
}

#endif
