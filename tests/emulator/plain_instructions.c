/* plain_instructions.c: what a lane does alone with integers, bits and predicates, and moves. */
#include "lanes.h"

/* ---- integers ------------------------------------------------------------------------------------------ */

LANES2(add32, uint32_t, a + b)
LANES2(sub32, uint32_t, a - b)
LANES2(mul32, uint32_t, a *b)
LANES2(add16, uint32_t, (a + b) & 0xffff)
LANES2(sub16, uint32_t, (a - b) & 0xffff)
LANES2(mul16, uint32_t, (a * b) & 0xffff)
LANES2(mul_hi_u16, uint32_t, (a & 0xffff) * (b & 0xffff) >> 16)
LANES3(mad16, uint32_t, (a * b + c) & 0xffff)
LANES2(add64, uint64_t, a + b)
LANES2(sub64, uint64_t, a - b)
LANES2(mul64, uint64_t, a *b)
LANES3(mad32, uint32_t, a *b + c)
LANES3(mad64, uint64_t, a *b + c)
LANES2(mul_hi_u32, uint32_t, ((uint64_t)a * b) >> 32)
LANES2(mul_hi_s32, uint32_t, (uint64_t)((int64_t)(int32_t)a *(int32_t)b) >> 32)
LANES3(mad_hi_u32, uint32_t, (((uint64_t)a * b) >> 32) + c)
LANES2(mul_hi_u64, uint64_t, ((unsigned __int128)a * b) >> 64)
LANES2(mul_hi_s64, uint64_t, (unsigned __int128)((__int128)(int64_t)a *(int64_t)b) >> 64)
LANEWISE(mul_wide_u32, uint64_t, uint32_t, uint32_t, uint32_t, 2, (uint64_t)a *b)
LANEWISE(mul_wide_s32, uint64_t, int32_t, int32_t, int32_t, 2, (int64_t)a *b)
LANEWISE(mul_wide_u16, uint32_t, uint32_t, uint32_t, uint32_t, 2, (a & 0xffff) * (b & 0xffff))
LANEWISE(mul_wide_s16, uint32_t, uint32_t, uint32_t, uint32_t, 2, (int16_t)a *(int16_t)b)
LANEWISE(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, 3, (uint64_t)a *b + c)
LANEWISE(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t, 3, (uint64_t)((int64_t)a *b) + c)
LANEWISE(mad_wide_u16, uint32_t, uint32_t, uint32_t, uint32_t, 3, (a & 0xffff) * (b & 0xffff) + c)
LANES2(div_u32, uint32_t, b ? a / (b ? b : 1) : 0xffffffffu)
LANES2(rem_u32, uint32_t, b ? a % (b ? b : 1) : a)
LANES2(div_s32, int32_t, b == 0 ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / (b ? b : 1))
LANES2(rem_s32, int32_t, b == 0 ? a : b == -1 ? 0 : a % (b ? b : 1))
LANES2(div_u64, uint64_t, b ? a / (b ? b : 1) : ~0ull)
LANES2(rem_u64, uint64_t, b ? a % (b ? b : 1) : a)
LANES2(div_s64, int64_t, b == 0 ? -1 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / (b ? b : 1))
LANES2(rem_s64, int64_t, b == 0 ? a : b == -1 ? 0 : a % (b ? b : 1))
LANES2(div_u16, uint32_t, b & 0xffff ? (a & 0xffff) / (b & 0xffff ? b & 0xffff : 1) : 0xffff)
LANES2(rem_u16, uint32_t, b & 0xffff ? (a & 0xffff) % (b & 0xffff ? b & 0xffff : 1) : a & 0xffff)
LANES2(min_u16, uint32_t, (a & 0xffff) < (b & 0xffff) ? a & 0xffff : b & 0xffff)
LANES2(max_u16, uint32_t, (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff)
LANES2(min_u32, uint32_t, a < b ? a : b)
LANES2(max_u32, uint32_t, a > b ? a : b)
LANES2(min_s32, int32_t, a < b ? a : b)
LANES2(max_s32, int32_t, a > b ? a : b)
LANES2(min_u64, uint64_t, a < b ? a : b)
LANES2(max_u64, uint64_t, a > b ? a : b)
LANES2(min_s64, int64_t, a < b ? a : b)
LANES2(max_s64, int64_t, a > b ? a : b)
LANES2(min_s16, uint32_t, (uint16_t)((int16_t)a < (int16_t)b ? a : b))
LANES2(max_s16, uint32_t, (uint16_t)((int16_t)a > (int16_t)b ? a : b))
LANES1(neg32, uint32_t, uint32_t, 0u - a)
LANES1(neg64, uint64_t, uint64_t, 0u - a)
LANES1(neg16, uint32_t, uint32_t, (0u - a) & 0xffff)
LANES1(abs32, uint32_t, int32_t, a < 0 ? 0u - (uint32_t)a : (uint32_t)a)
LANES1(abs64, uint64_t, int64_t, a < 0 ? 0u - (uint64_t)a : (uint64_t)a)

/* Two of 16 bits. */
LANES2(add_u16x2, uint32_t, ((a + b) & 0xffff) | ((a >> 16) + (b >> 16)) << 16)
LANES2(min_u16x2, uint32_t,
       ((a & 0xffff) < (b & 0xffff) ? a & 0xffff : b & 0xffff) | (a >> 16 < b >> 16 ? a >> 16 : b >> 16) << 16)
LANES2(max_u16x2, uint32_t,
       ((a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff) | (a >> 16 > b >> 16 ? a >> 16 : b >> 16) << 16)
LANES2(min_s16x2, uint32_t,
       ((int16_t)a < (int16_t)b ? a & 0xffff : b & 0xffff) |
           ((int16_t)(a >> 16) < (int16_t)(b >> 16) ? a >> 16 : b >> 16) << 16)
LANES2(max_s16x2, uint32_t,
       ((int16_t)a > (int16_t)b ? a & 0xffff : b & 0xffff) |
           ((int16_t)(a >> 16) > (int16_t)(b >> 16) ? a >> 16 : b >> 16) << 16)

/* Carries: one bit a lane. */
#define CARRY(name, T, WIDE, sum, bits)                                                                               \
    static enum outcome name(struct warp *w, const struct insn *i)                                                    \
    {                                                                                                                 \
        T *d = (T *)(void *)(w->r + i->arg[0]);                                                                       \
        const T *a_ = (const T *)(const void *)(w->r + i->arg[1]), *b_ = (const T *)(const void *)(w->r + i->arg[2]); \
        EACH_ACTIVE(w)                                                                                                \
        {                                                                                                             \
            const WIDE a = a_[l], b = b_[l], in = w->carry >> l & 1, v = sum;                                         \
            d[l] = (T)v;                                                                                              \
            w->carry = (w->carry & ~(1u << l)) | (uint32_t)(v >> bits & 1) << l;                                      \
        }                                                                                                             \
        (void)0;                                                                                                      \
        return NEXT;                                                                                                  \
    }
CARRY(add_cc_u32, uint32_t, uint64_t, a + b + 0 * in, 32)
CARRY(addc_u32, uint32_t, uint64_t, a + b + in, 32)
CARRY(sub_cc_u32, uint32_t, uint64_t, a - b - 0 * in, 32) /* the bit is a borrow */
CARRY(subc_u32, uint32_t, uint64_t, a - b - in, 32)
CARRY(add_cc_u64, uint64_t, unsigned __int128, a + b + 0 * in, 64)
CARRY(addc_u64, uint64_t, unsigned __int128, a + b + in, 64)
CARRY(sub_cc_u64, uint64_t, unsigned __int128, a - b - 0 * in, 64)
CARRY(subc_u64, uint64_t, unsigned __int128, a - b - in, 64)

#define CARRY_MAD(name, product, carry_in)                                                                   \
    static enum outcome name(struct warp *w, const struct insn *i)                                           \
    {                                                                                                        \
        uint32_t *d = r32(w, i, 0);                                                                          \
        EACH_ACTIVE(w)                                                                                       \
        {                                                                                                    \
            const uint64_t p = (uint64_t)r32(w, i, 1)[l] * r32(w, i, 2)[l];                                  \
            const uint64_t v = (uint64_t)(product) + r32(w, i, 3)[l] + ((carry_in) ? w->carry >> l & 1 : 0); \
            d[l] = (uint32_t)v;                                                                              \
            w->carry = (w->carry & ~(1u << l)) | (uint32_t)(v >> 32 & 1) << l;                               \
        }                                                                                                    \
        return NEXT;                                                                                         \
    }
CARRY_MAD(mad_lo_cc, (uint32_t)p, 0)
CARRY_MAD(madc_lo, (uint32_t)p, 1)
CARRY_MAD(mad_hi_cc, p >> 32, 0)
CARRY_MAD(madc_hi, p >> 32, 1)

/* ---- bits ---------------------------------------------------------------------------------------------- */

LANES2(and32, uint32_t, a &b)
LANES2(or32, uint32_t, a | b)
LANES2(xor32, uint32_t, a ^ b)
LANES1(not32, uint32_t, uint32_t, ~a)
LANES1(not16, uint32_t, uint32_t, ~a & 0xffff)
LANES2(and64, uint64_t, a &b)
LANES2(or64, uint64_t, a | b)
LANES2(xor64, uint64_t, a ^ b)
LANES1(not64, uint64_t, uint64_t, ~a)
LANES1(cnot32, uint32_t, uint32_t, a == 0)
LANES2(shl32, uint32_t, b > 31 ? 0 : a << (b & 31))
LANES2(shr_u32, uint32_t, b > 31 ? 0 : a >> (b & 31))
LANEWISE(shr_s32, int32_t, int32_t, uint32_t, uint32_t, 2, a >> (b > 31 ? 31 : b))
LANES2(shl16, uint32_t, b > 15 ? 0 : (a << (b & 15)) & 0xffff)
LANES2(shr_u16, uint32_t, b > 15 ? 0 : (a & 0xffff) >> (b & 15))
LANES2(shr_s16, uint32_t, (uint16_t)((int16_t)a >> (b > 15 ? 15 : b)))
LANEWISE(shl64, uint64_t, uint64_t, uint32_t, uint32_t, 2, b > 63 ? 0 : a << (b & 63))
LANEWISE(shr_u64, uint64_t, uint64_t, uint32_t, uint32_t, 2, b > 63 ? 0 : a >> (b & 63))
LANEWISE(shr_s64, int64_t, int64_t, uint32_t, uint32_t, 2, a >> (b > 63 ? 63 : b))
LANES3(shf_l_wrap, uint32_t, (((uint64_t)b << 32 | a) << (c & 31)) >> 32)
LANES3(shf_r_wrap, uint32_t, ((uint64_t)b << 32 | a) >> (c & 31))
LANES3(shf_l_clamp, uint32_t, c > 31 ? a : (((uint64_t)b << 32 | a) << (c & 31)) >> 32)
LANES3(shf_r_clamp, uint32_t, c > 31 ? b : ((uint64_t)b << 32 | a) >> (c & 31))
LANES1(popc32, uint32_t, uint32_t, __builtin_popcount(a))
LANES1(popc64, uint32_t, uint64_t, __builtin_popcountll(a))
LANES1(clz32, uint32_t, uint32_t, a ? __builtin_clz(a) : 32)
LANES1(clz64, uint32_t, uint64_t, a ? __builtin_clzll(a) : 64)
LANES1(bfind_u32, uint32_t, uint32_t, a ? 31 - __builtin_clz(a) : -1)
LANES1(bfind_shift_u32, uint32_t, uint32_t, a ? __builtin_clz(a) : -1)
LANES1(bfind_u64, uint32_t, uint64_t, a ? 63 - __builtin_clzll(a) : -1)
LANES1(bfind_shift_u64, uint32_t, uint64_t, a ? __builtin_clzll(a) : -1)
static inline uint32_t reversed(uint32_t v)
{
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(v);
}
LANES1(brev32, uint32_t, uint32_t, reversed(a))
LANES1(brev64, uint64_t, uint64_t, (uint64_t)reversed((uint32_t)a) << 32 | reversed((uint32_t)(a >> 32)))

static inline uint32_t extracted(uint32_t a, uint32_t pos, uint32_t len, bool sign)
{
    pos &= 0xff, len &= 0xff;
    const uint32_t top = pos + len - 1 < 31 ? pos + len - 1 : 31;
    const uint32_t ones = len == 0 ? 0 : sign ? a >> top & 1 : 0, low = pos > 31 ? 0 : a >> pos;
    const uint32_t kept = len > 31 ? 32 : len, have = pos > 31 ? 0 : 32 - pos < kept ? 32 - pos : kept;
    const uint32_t mask = have > 31 ? 0xffffffffu : (1u << have) - 1;
    return len == 0 ? 0 : (low & mask) | (ones ? ~mask : 0);
}
LANES3(bfe_u32, uint32_t, extracted(a, b, c, false))
LANES3(bfe_s32, uint32_t, extracted(a, b, c, true))

static enum outcome bfi32(struct warp *w, const struct insn *i) /* d, a into b at c, length */
{
    EACH_ACTIVE(w)
    {
        const uint32_t pos = r32(w, i, 3)[l] & 0xff, len = r32(w, i, 4)[l] & 0xff;
        const uint32_t ones = len > 31 ? 0xffffffffu : (1u << len) - 1, mask = pos > 31 ? 0 : ones << pos;
        r32(w, i, 0)[l] = (r32(w, i, 2)[l] & ~mask) | (pos > 31 ? 0 : r32(w, i, 1)[l] << pos & mask);
    }
    return NEXT;
}
static enum outcome bfi64(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint32_t pos = r32(w, i, 3)[l] & 0xff, len = r32(w, i, 4)[l] & 0xff;
        const uint64_t ones = len > 63 ? ~0ull : (1ull << len) - 1, mask = pos > 63 ? 0 : ones << pos;
        r64(w, i, 0)[l] = (r64(w, i, 2)[l] & ~mask) | (pos > 63 ? 0 : r64(w, i, 1)[l] << pos & mask);
    }
    return NEXT;
}
static enum outcome lop3(struct warp *w, const struct insn *i)
{
    const uint32_t *a_ = r32(w, i, 1), *b_ = r32(w, i, 2), *c_ = r32(w, i, 3), table = r32(w, i, 4)[0], on = w->active;
    uint32_t *d = r32(w, i, 0);
    IN_LANES
    {
        const uint32_t a = a_[l], b = b_[l], c = c_[l];
        uint32_t v = 0;
        v |= table & 1 ? ~a & ~b & ~c : 0;
        v |= table & 2 ? ~a & ~b & c : 0;
        v |= table & 4 ? ~a & b & ~c : 0;
        v |= table & 8 ? ~a & b & c : 0;
        v |= table & 16 ? a & ~b & ~c : 0;
        v |= table & 32 ? a & ~b & c : 0;
        v |= table & 64 ? a & b & ~c : 0;
        v |= table & 128 ? a & b & c : 0;
        d[l] = on >> l & 1 ? v : d[l];
    }
    return NEXT;
}
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t s)
{
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t pick = s >> (4 * i) & 15, byte = (uint32_t)(both >> (8 * (pick & 7))) & 0xff;
        d |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << (8 * i);
    }
    return d;
}
LANES3(prmt, uint32_t, permuted(a, b, c))

static inline int32_t byte_of(uint32_t v, uint32_t n, bool sign)
{
    return sign ? (int8_t)(v >> (8 * n)) : (int32_t)(v >> (8 * n) & 0xff);
}
static inline uint32_t dotted(uint32_t a, uint32_t b, uint32_t c, bool sa, bool sb)
{
    int64_t sum = 0;
    for (uint32_t n = 0; n < 4; n++) sum += (int64_t)byte_of(a, n, sa) * byte_of(b, n, sb);
    return c + (uint32_t)sum;
}
LANES3(dp4a_ss, uint32_t, dotted(a, b, c, true, true))
LANES3(dp4a_su, uint32_t, dotted(a, b, c, true, false))
LANES3(dp4a_us, uint32_t, dotted(a, b, c, false, true))
LANES3(dp4a_uu, uint32_t, dotted(a, b, c, false, false))

/* ---- comparisons, selections, predicates --------------------------------------------------------------- */

#define COMPARES(suffix, T)              \
    COMPARE(setp_eq_##suffix, T, a == b) \
    COMPARE(setp_ne_##suffix, T, a != b) \
    COMPARE(setp_lt_##suffix, T, a < b)  \
    COMPARE(setp_le_##suffix, T, a <= b) \
    COMPARE(setp_gt_##suffix, T, a > b)  \
    COMPARE(setp_ge_##suffix, T, a >= b)
COMPARES(u32, uint32_t)
COMPARES(s32, int32_t)
COMPARES(u64, uint64_t)
COMPARES(s64, int64_t)
#define COMPARES16(suffix, T)                         \
    COMPARE(setp_eq_##suffix, uint32_t, (T)a == (T)b) \
    COMPARE(setp_ne_##suffix, uint32_t, (T)a != (T)b) \
    COMPARE(setp_lt_##suffix, uint32_t, (T)a < (T)b)  \
    COMPARE(setp_le_##suffix, uint32_t, (T)a <= (T)b) \
    COMPARE(setp_gt_##suffix, uint32_t, (T)a > (T)b)  \
    COMPARE(setp_ge_##suffix, uint32_t, (T)a >= (T)b)
COMPARES16(u16, uint16_t)
COMPARES16(s16, int16_t)

static enum outcome selp32(struct warp *w, const struct insn *i)
{
    const uint32_t *a = r32(w, i, 1), *b = r32(w, i, 2), p = *pred(w, i, 3), on = w->active;
    uint32_t *d = r32(w, i, 0);
    IN_LANES
    {
        const uint32_t v = p >> l & 1 ? a[l] : b[l];
        d[l] = on >> l & 1 ? v : d[l];
    }
    return NEXT;
}
static enum outcome selp64(struct warp *w, const struct insn *i)
{
    const uint64_t *a = r64(w, i, 1), *b = r64(w, i, 2);
    const uint32_t p = *pred(w, i, 3), on = w->active;
    uint64_t *d = r64(w, i, 0);
    IN_LANES
    {
        const uint64_t v = p >> l & 1 ? a[l] : b[l];
        d[l] = on >> l & 1 ? v : d[l];
    }
    return NEXT;
}
#define PREDICATE(name, expression)                                                                  \
    static enum outcome name(struct warp *w, const struct insn *i)                                   \
    {                                                                                                \
        const uint32_t a = *pred(w, i, 1), b = *pred(w, i, i->n_args > 2 ? 2 : 1), v = (expression); \
        (void)b;                                                                                     \
        *pred(w, i, 0) = (*pred(w, i, 0) & ~w->active) | (v & w->active);                            \
        return NEXT;                                                                                 \
    }
PREDICATE(and_pred, a &b)
PREDICATE(or_pred, a | b)
PREDICATE(xor_pred, a ^ b)
PREDICATE(not_pred, ~a)
PREDICATE(mov_pred, a)

/* ---- moves and integer conversions --------------------------------------------------------------------- */

LANES1(mov32, uint32_t, uint32_t, a)
LANES1(mov16, uint32_t, uint32_t, a & 0xffff)
LANES1(mov64, uint64_t, uint64_t, a)
LANES2(pack16, uint32_t, (a & 0xffff) | b << 16)
LANEWISE(pack32, uint64_t, uint32_t, uint32_t, uint32_t, 2, (uint64_t)b << 32 | a)
static enum outcome unpack16(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint32_t v = r32(w, i, 2)[l];
        r32(w, i, 0)[l] = v & 0xffff;
        r32(w, i, 1)[l] = v >> 16;
    }
    return NEXT;
}
static enum outcome unpack32(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint64_t v = r64(w, i, 2)[l];
        r32(w, i, 0)[l] = (uint32_t)v;
        r32(w, i, 1)[l] = (uint32_t)(v >> 32);
    }
    return NEXT;
}
static enum outcome pack16x4(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    r64(w, i, 0)[l] = (uint64_t)(r32(w, i, 1)[l] & 0xffff) | (uint64_t)(r32(w, i, 2)[l] & 0xffff) << 16 |
                      (uint64_t)(r32(w, i, 3)[l] & 0xffff) << 32 | (uint64_t)r32(w, i, 4)[l] << 48;
    return NEXT;
}
static enum outcome unpack16x4(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint64_t v = r64(w, i, 4)[l];
        for (unsigned n = 0; n < 4; n++) r32(w, i, n)[l] = (uint32_t)(v >> (16 * n) & 0xffff);
    }
    return NEXT;
}
static enum outcome unpack8x4(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint32_t v = r32(w, i, 4)[l];
        for (unsigned n = 0; n < 4; n++) r32(w, i, n)[l] = v >> (8 * n) & 0xff;
    }
    return NEXT;
}
LANES1(to_u8, uint32_t, uint32_t, a & 0xff)
LANES1(to_s8, uint32_t, uint32_t, (int8_t)a)
LANES1(to_s8_in16, uint32_t, uint32_t, (uint16_t)(int8_t)a)
LANES1(to_s16, uint32_t, uint32_t, (int16_t)a)
LANES1(u32_to_64, uint64_t, uint32_t, a)
LANES1(u16_to_64, uint64_t, uint32_t, a & 0xffff)
LANES1(u8_to_64, uint64_t, uint32_t, a & 0xff)
LANES1(s32_to_64, uint64_t, uint32_t, (int64_t)(int32_t)a)
LANES1(s16_to_64, uint64_t, uint32_t, (int64_t)(int16_t)a)
LANES1(s8_to_64, uint64_t, uint32_t, (int64_t)(int8_t)a)
LANES1(from_64, uint32_t, uint64_t, a)
LANES1(u16_from_64, uint32_t, uint64_t, a & 0xffff)
LANES1(u8_from_64, uint32_t, uint64_t, a & 0xff)

/* Generic addresses: global ones are themselves, the others lie in windows. */
LANES1(shared_to_generic, uint64_t, uint64_t, a + SHARED_WINDOW)
LANES1(local_to_generic, uint64_t, uint64_t, a + LOCAL_WINDOW)
LANES1(generic_to_shared, uint64_t, uint64_t, a - SHARED_WINDOW)

const struct instruction plain_instructions[] = { { "add.s32", "i:ii", add32, false },
                                                  { "add.u32", "i:ii", add32, false },
                                                  { "sub.s32", "i:ii", sub32, false },
                                                  { "sub.u32", "i:ii", sub32, false },
                                                  { "add.s16", "i:ii", add16, false },
                                                  { "add.u16", "i:ii", add16, false },
                                                  { "sub.s16", "i:ii", sub16, false },
                                                  { "sub.u16", "i:ii", sub16, false },
                                                  { "add.s64", "l:ll", add64, false },
                                                  { "add.u64", "l:ll", add64, false },
                                                  { "sub.s64", "l:ll", sub64, false },
                                                  { "sub.u64", "l:ll", sub64, false },
                                                  { "mul.lo.s32", "i:ii", mul32, false },
                                                  { "mul.lo.u32", "i:ii", mul32, false },
                                                  { "mul.lo.s16", "i:ii", mul16, false },
                                                  { "mul.lo.u16", "i:ii", mul16, false },
                                                  { "mul.hi.u16", "i:ii", mul_hi_u16, false },
                                                  { "mul.lo.s64", "l:ll", mul64, false },
                                                  { "mul.lo.u64", "l:ll", mul64, false },
                                                  { "mad.lo.s32", "i:iii", mad32, false },
                                                  { "mad.lo.u32", "i:iii", mad32, false },
                                                  { "mad.lo.s16", "i:iii", mad16, false },
                                                  { "mad.lo.u16", "i:iii", mad16, false },
                                                  { "mad.lo.s64", "l:lll", mad64, false },
                                                  { "mad.lo.u64", "l:lll", mad64, false },
                                                  { "mul.hi.u32", "i:ii", mul_hi_u32, false },
                                                  { "mul.hi.s32", "i:ii", mul_hi_s32, false },
                                                  { "mad.hi.u32", "i:iii", mad_hi_u32, false },
                                                  { "mul.hi.u64", "l:ll", mul_hi_u64, false },
                                                  { "mul.hi.s64", "l:ll", mul_hi_s64, false },
                                                  { "mul.wide.u32", "l:ii", mul_wide_u32, false },
                                                  { "mul.wide.s32", "l:ii", mul_wide_s32, false },
                                                  { "mul.wide.u16", "i:ii", mul_wide_u16, false },
                                                  { "mul.wide.s16", "i:ii", mul_wide_s16, false },
                                                  { "mad.wide.u32", "l:iil", mad_wide_u32, false },
                                                  { "mad.wide.s32", "l:iil", mad_wide_s32, false },
                                                  { "mad.wide.u16", "i:iii", mad_wide_u16, false },
                                                  { "div.u32", "i:ii", div_u32, false },
                                                  { "rem.u32", "i:ii", rem_u32, false },
                                                  { "div.s32", "i:ii", div_s32, false },
                                                  { "rem.s32", "i:ii", rem_s32, false },
                                                  { "div.u64", "l:ll", div_u64, false },
                                                  { "rem.u64", "l:ll", rem_u64, false },
                                                  { "div.s64", "l:ll", div_s64, false },
                                                  { "rem.s64", "l:ll", rem_s64, false },
                                                  { "div.u16", "i:ii", div_u16, false },
                                                  { "rem.u16", "i:ii", rem_u16, false },
                                                  { "min.u32", "i:ii", min_u32, false },
                                                  { "max.u32", "i:ii", max_u32, false },
                                                  { "min.s32", "i:ii", min_s32, false },
                                                  { "max.s32", "i:ii", max_s32, false },
                                                  { "min.u64", "l:ll", min_u64, false },
                                                  { "max.u64", "l:ll", max_u64, false },
                                                  { "min.s64", "l:ll", min_s64, false },
                                                  { "max.s64", "l:ll", max_s64, false },
                                                  { "min.u16", "i:ii", min_u16, false },
                                                  { "max.u16", "i:ii", max_u16, false },
                                                  { "min.s16", "i:ii", min_s16, false },
                                                  { "max.s16", "i:ii", max_s16, false },
                                                  { "add.s16x2", "i:ii", add_u16x2, false },
                                                  { "add.u16x2", "i:ii", add_u16x2, false },
                                                  { "min.u16x2", "i:ii", min_u16x2, false },
                                                  { "max.u16x2", "i:ii", max_u16x2, false },
                                                  { "min.s16x2", "i:ii", min_s16x2, false },
                                                  { "max.s16x2", "i:ii", max_s16x2, false },
                                                  { "neg.s32", "i:i", neg32, false },
                                                  { "neg.s64", "l:l", neg64, false },
                                                  { "neg.s16", "i:i", neg16, false },
                                                  { "abs.s32", "i:i", abs32, false },
                                                  { "abs.s64", "l:l", abs64, false },
                                                  { "add.cc.u32", "i:ii", add_cc_u32, false },
                                                  { "add.cc.s32", "i:ii", add_cc_u32, false },
                                                  { "addc.u32", "i:ii", addc_u32, false },
                                                  { "addc.s32", "i:ii", addc_u32, false },
                                                  { "addc.cc.u32", "i:ii", addc_u32, false },
                                                  { "addc.cc.s32", "i:ii", addc_u32, false },
                                                  { "sub.cc.u32", "i:ii", sub_cc_u32, false },
                                                  { "sub.cc.s32", "i:ii", sub_cc_u32, false },
                                                  { "subc.u32", "i:ii", subc_u32, false },
                                                  { "subc.s32", "i:ii", subc_u32, false },
                                                  { "subc.cc.u32", "i:ii", subc_u32, false },
                                                  { "subc.cc.s32", "i:ii", subc_u32, false },
                                                  { "add.cc.u64", "l:ll", add_cc_u64, false },
                                                  { "addc.u64", "l:ll", addc_u64, false },
                                                  { "addc.cc.u64", "l:ll", addc_u64, false },
                                                  { "sub.cc.u64", "l:ll", sub_cc_u64, false },
                                                  { "subc.u64", "l:ll", subc_u64, false },
                                                  { "subc.cc.u64", "l:ll", subc_u64, false },
                                                  { "add.cc.s64", "l:ll", add_cc_u64, false },
                                                  { "addc.s64", "l:ll", addc_u64, false },
                                                  { "mad.lo.cc.u32", "i:iii", mad_lo_cc, false },
                                                  { "madc.lo.u32", "i:iii", madc_lo, false },
                                                  { "madc.lo.cc.u32", "i:iii", madc_lo, false },
                                                  { "mad.hi.cc.u32", "i:iii", mad_hi_cc, false },
                                                  { "madc.hi.u32", "i:iii", madc_hi, false },
                                                  { "madc.hi.cc.u32", "i:iii", madc_hi, false },
                                                  { "and.b32", "i:ii", and32, false },
                                                  { "or.b32", "i:ii", or32, false },
                                                  { "xor.b32", "i:ii", xor32, false },
                                                  { "not.b32", "i:i", not32, false },
                                                  { "and.b16", "i:ii", and32, false },
                                                  { "or.b16", "i:ii", or32, false },
                                                  { "xor.b16", "i:ii", xor32, false },
                                                  { "not.b16", "i:i", not16, false },
                                                  { "and.b64", "l:ll", and64, false },
                                                  { "or.b64", "l:ll", or64, false },
                                                  { "xor.b64", "l:ll", xor64, false },
                                                  { "not.b64", "l:l", not64, false },
                                                  { "cnot.b32", "i:i", cnot32, false },
                                                  { "shl.b32", "i:ii", shl32, false },
                                                  { "shr.u32", "i:ii", shr_u32, false },
                                                  { "shr.b32", "i:ii", shr_u32, false },
                                                  { "shr.s32", "i:ii", shr_s32, false },
                                                  { "shl.b16", "i:ii", shl16, false },
                                                  { "shr.u16", "i:ii", shr_u16, false },
                                                  { "shr.b16", "i:ii", shr_u16, false },
                                                  { "shr.s16", "i:ii", shr_s16, false },
                                                  { "shl.b64", "l:li", shl64, false },
                                                  { "shr.u64", "l:li", shr_u64, false },
                                                  { "shr.b64", "l:li", shr_u64, false },
                                                  { "shr.s64", "l:li", shr_s64, false },
                                                  { "shf.l.wrap.b32", "i:iii", shf_l_wrap, false },
                                                  { "shf.r.wrap.b32", "i:iii", shf_r_wrap, false },
                                                  { "shf.l.clamp.b32", "i:iii", shf_l_clamp, false },
                                                  { "shf.r.clamp.b32", "i:iii", shf_r_clamp, false },
                                                  { "popc.b32", "i:i", popc32, false },
                                                  { "popc.b64", "i:l", popc64, false },
                                                  { "clz.b32", "i:i", clz32, false },
                                                  { "clz.b64", "i:l", clz64, false },
                                                  { "bfind.u32", "i:i", bfind_u32, false },
                                                  { "bfind.shiftamt.u32", "i:i", bfind_shift_u32, false },
                                                  { "bfind.u64", "i:l", bfind_u64, false },
                                                  { "bfind.shiftamt.u64", "i:l", bfind_shift_u64, false },
                                                  { "brev.b32", "i:i", brev32, false },
                                                  { "brev.b64", "l:l", brev64, false },
                                                  { "bfe.u32", "i:iii", bfe_u32, false },
                                                  { "bfe.s32", "i:iii", bfe_s32, false },
                                                  { "bfi.b32", "i:iiii", bfi32, false },
                                                  { "bfi.b64", "l:llii", bfi64, false },
                                                  { "lop3.b32", "i:iiii", lop3, false },
                                                  { "prmt.b32", "i:iii", prmt, false },
                                                  { "dp4a.s32.s32", "i:iii", dp4a_ss, false },
                                                  { "dp4a.s32.u32", "i:iii", dp4a_su, false },
                                                  { "dp4a.u32.s32", "i:iii", dp4a_us, false },
                                                  { "dp4a.u32.u32", "i:iii", dp4a_uu, false },
#define SETP(type, regs, s)                                                                           \
    { "setp.eq." type, regs, setp_eq_##s, false }, { "setp.ne." type, regs, setp_ne_##s, false },     \
        { "setp.lt." type, regs, setp_lt_##s, false }, { "setp.le." type, regs, setp_le_##s, false }, \
        { "setp.gt." type, regs, setp_gt_##s, false },                                                \
    {                                                                                                 \
        "setp.ge." type, regs, setp_ge_##s, false                                                     \
    }
                                                  SETP("u32", "p:ii", u32),
                                                  SETP("s32", "p:ii", s32),
                                                  SETP("b32", "p:ii", u32),
                                                  SETP("u64", "p:ll", u64),
                                                  SETP("s64", "p:ll", s64),
                                                  SETP("b64", "p:ll", u64),
                                                  SETP("u16", "p:ii", u16),
                                                  SETP("s16", "p:ii", s16),
                                                  SETP("b16", "p:ii", u16),
                                                  { "setp.lo.u32", "p:ii", setp_lt_u32, false },
                                                  { "setp.ls.u32", "p:ii", setp_le_u32, false },
                                                  { "setp.hi.u32", "p:ii", setp_gt_u32, false },
                                                  { "setp.hs.u32", "p:ii", setp_ge_u32, false },
                                                  { "selp.b32", "i:iip", selp32, false },
                                                  { "selp.u32", "i:iip", selp32, false },
                                                  { "selp.s32", "i:iip", selp32, false },
                                                  { "selp.f32", "i:iip", selp32, false },
                                                  { "selp.b16", "i:iip", selp32, false },
                                                  { "selp.u16", "i:iip", selp32, false },
                                                  { "selp.s16", "i:iip", selp32, false },
                                                  { "selp.f16", "i:iip", selp32, false },
                                                  { "selp.b64", "l:llp", selp64, false },
                                                  { "selp.u64", "l:llp", selp64, false },
                                                  { "selp.s64", "l:llp", selp64, false },
                                                  { "selp.f64", "l:llp", selp64, false },
                                                  { "and.pred", "p:pp", and_pred, false },
                                                  { "or.pred", "p:pp", or_pred, false },
                                                  { "xor.pred", "p:pp", xor_pred, false },
                                                  { "not.pred", "p:p", not_pred, false },
                                                  { "mov.pred", "p:p", mov_pred, false },
                                                  { "mov.b32", "i:i", mov32, false },
                                                  { "mov.u32", "i:i", mov32, false },
                                                  { "mov.s32", "i:i", mov32, false },
                                                  { "mov.f32", "i:i", mov32, false },
                                                  { "mov.b16", "i:i", mov16, false },
                                                  { "mov.u16", "i:i", mov16, false },
                                                  { "mov.s16", "i:i", mov16, false },
                                                  { "mov.f16", "i:i", mov16, false },
                                                  { "mov.b64", "l:l", mov64, false },
                                                  { "mov.u64", "l:l", mov64, false },
                                                  { "mov.s64", "l:l", mov64, false },
                                                  { "mov.f64", "l:l", mov64, false },
                                                  { "mov.b32.pack2", "i:ii", pack16, false },
                                                  { "mov.b64.pack2", "l:ii", pack32, false },
                                                  { "mov.b32.unpack2", "ii:i", unpack16, false },
                                                  { "mov.b64.unpack2", "ii:l", unpack32, false },
                                                  { "mov.b64.pack4", "l:iiii", pack16x4, false },
                                                  { "mov.b64.unpack4", "iiii:l", unpack16x4, false },
                                                  { "mov.b32.unpack4", "iiii:i", unpack8x4, false },
                                                  { "cvt.u32.u16", "i:i", mov16, false },
                                                  { "cvt.s32.u16", "i:i", mov16, false },
                                                  { "cvt.u16.u32", "i:i", mov16, false },
                                                  { "cvt.s16.s32", "i:i", mov16, false },
                                                  { "cvt.u16.s32", "i:i", mov16, false },
                                                  { "cvt.u32.u8", "i:i", to_u8, false },
                                                  { "cvt.u16.u8", "i:i", to_u8, false },
                                                  { "cvt.u8.u32", "i:i", to_u8, false },
                                                  { "cvt.u8.u16", "i:i", to_u8, false },
                                                  { "cvt.s32.s8", "i:i", to_s8, false },
                                                  { "cvt.s16.s8", "i:i", to_s8_in16, false },
                                                  { "cvt.u32.s8", "i:i", to_s8, false },
                                                  { "cvt.s32.s16", "i:i", to_s16, false },
                                                  { "cvt.u32.s16", "i:i", to_s16, false },
                                                  { "cvt.u32.u32", "i:i", mov32, false },
                                                  { "cvt.u64.u32", "l:i", u32_to_64, false },
                                                  { "cvt.s64.s32", "l:i", s32_to_64, false },
                                                  { "cvt.u64.s32", "l:i", s32_to_64, false },
                                                  { "cvt.u64.u16", "l:i", u16_to_64, false },
                                                  { "cvt.u64.u8", "l:i", u8_to_64, false },
                                                  { "cvt.s64.u32", "l:i", u32_to_64, false },
                                                  { "cvt.s64.s16", "l:i", s16_to_64, false },
                                                  { "cvt.s64.s8", "l:i", s8_to_64, false },
                                                  { "cvt.u32.u64", "i:l", from_64, false },
                                                  { "cvt.s32.s64", "i:l", from_64, false },
                                                  { "cvt.u32.s64", "i:l", from_64, false },
                                                  { "cvt.s32.u64", "i:l", from_64, false },
                                                  { "cvt.u16.u64", "i:l", u16_from_64, false },
                                                  { "cvt.u16.s64", "i:l", u16_from_64, false },
                                                  { "cvt.u8.u64", "i:l", u8_from_64, false },
                                                  { "cvta.to.global.u64", "l:l", mov64, false },
                                                  { "cvta.global.u64", "l:l", mov64, false },
                                                  { "cvta.shared.u64", "l:l", shared_to_generic, false },
                                                  { "cvta.to.shared.u64", "l:l", generic_to_shared, false },
                                                  { "cvta.local.u64", "l:l", local_to_generic, false },
                                                  { NULL, NULL, NULL, false } };
