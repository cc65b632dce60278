/* lanes.h: instructions that do the same in each lane: an expression of a lane's operands, for all lanes at once where
 * all run. Registers of 16 bits lie in slots of 32 with zeros above. */
#ifndef TESTS_EMULATOR_LANES_H
#define TESTS_EMULATOR_LANES_H

#include <string.h>

#include "emulator.h"

static inline float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static inline uint32_t bits_of(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}
static inline double f64_of(uint64_t bits)
{
    double f;
    memcpy(&f, &bits, 8);
    return f;
}
static inline uint64_t bits64_of(double f)
{
    uint64_t b;
    memcpy(&b, &f, 8);
    return b;
}

/* For all lanes, which depend on nothing but themselves, though a destination may be a source. */
#ifdef __clang__
#define IN_LANES _Pragma("clang loop vectorize(assume_safety)") EACH_LANE
#else
#define IN_LANES _Pragma("GCC ivdep") EACH_LANE
#endif

/* d, a, b, c: the operands' lanes, of types TD and TS; D the destination's type in memory. */
#define LANEWISE(name, TD, TA, TB, TC, n_sources, expression)                              \
    static enum outcome name(struct warp *w, const struct insn *i)                         \
    {                                                                                      \
        TD *d_ = (TD *)(void *)(w->r + i->arg[0]);                                         \
        const TA *a_ = (const TA *)(const void *)(w->r + i->arg[1]);                       \
        const TB *b_ = (const TB *)(const void *)(w->r + i->arg[(n_sources) > 1 ? 2 : 1]); \
        const TC *c_ = (const TC *)(const void *)(w->r + i->arg[(n_sources) > 2 ? 3 : 1]); \
        const uint32_t on = w->active;                                                     \
        if (on == ALL_LANES) {                                                             \
            IN_LANES                                                                       \
            {                                                                              \
                const TA a = a_[l];                                                        \
                const TB b = b_[l];                                                        \
                const TC c = c_[l];                                                        \
                (void)a, (void)b, (void)c;                                                 \
                d_[l] = (TD)(expression);                                                  \
            }                                                                              \
        } else {                                                                           \
            IN_LANES                                                                       \
            {                                                                              \
                const TA a = a_[l];                                                        \
                const TB b = b_[l];                                                        \
                const TC c = c_[l];                                                        \
                (void)a, (void)b, (void)c;                                                 \
                const TD v = (TD)(expression);                                             \
                d_[l] = on >> l & 1 ? v : d_[l];                                           \
            }                                                                              \
        }                                                                                  \
        return NEXT;                                                                       \
    }
#define LANES1(name, TD, TA, expression) LANEWISE(name, TD, TA, TA, TA, 1, expression)
#define LANES2(name, T, expression) LANEWISE(name, T, T, T, T, 2, expression)
#define LANES3(name, T, expression) LANEWISE(name, T, T, T, T, 3, expression)

/* A predicate of two sources. */
#define COMPARE(name, T, expression)                                                                                  \
    static enum outcome name(struct warp *w, const struct insn *i)                                                    \
    {                                                                                                                 \
        const T *a_ = (const T *)(const void *)(w->r + i->arg[1]), *b_ = (const T *)(const void *)(w->r + i->arg[2]); \
        uint32_t v = 0;                                                                                               \
        EACH_LANE                                                                                                     \
        {                                                                                                             \
            const T a = a_[l];                                                                                        \
            const T b = b_[l];                                                                                        \
            v |= (uint32_t)(expression) << l;                                                                         \
        }                                                                                                             \
        *pred(w, i, 0) = (*pred(w, i, 0) & ~w->active) | (v & w->active);                                             \
        return NEXT;                                                                                                  \
    }

#endif
