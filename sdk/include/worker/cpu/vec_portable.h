/* worker/cpu/vec_portable.h: the vocabulary of formats in plain C. vec_avx2.h and vec_avx512.h define the same names.
 *
 * struct wk_v: 16 rows x 4 bytes. struct wk_f: one float a row. Include exactly one vec_*.h in a source
 * file; these and tile_*.h are C11 only. */
#ifndef WORKER_CPU_VEC_H
#define WORKER_CPU_VEC_H

#include <worker/cpu/tile_common.h>

struct wk_v {
    uint32_t u[WK_TILE_ROWS];
};
struct wk_f {
    float f[WK_TILE_ROWS];
};

#define WK_EACH_ROW(r) for (uint32_t r = 0; r < WK_TILE_ROWS; r++)

/* 64 bytes from an address aligned to 64. */
WK_INLINE struct wk_v wk_load(const void *p)
{
    struct wk_v v;
    memcpy(v.u, p, sizeof v.u);
    return v;
}

/* In every byte: (byte >> shift) & mask; a negative shift goes left. The mask must cover bits of the byte's own. */
WK_INLINE struct wk_v wk_field(struct wk_v v, int shift, uint32_t mask)
{
    WK_EACH_ROW(r) v.u[r] = (shift >= 0 ? v.u[r] >> shift : v.u[r] << -shift) & mask * 0x01010101u;
    return v;
}

WK_INLINE struct wk_v wk_or(struct wk_v a, struct wk_v b)
{
    WK_EACH_ROW(r) a.u[r] |= b.u[r];
    return a;
}

/* Of every row's four bytes as one number: (number >> shift) & mask; a negative shift goes left. */
WK_INLINE struct wk_v wk_bits(struct wk_v v, int shift, uint32_t mask)
{
    WK_EACH_ROW(r) v.u[r] = (shift >= 0 ? v.u[r] >> shift : v.u[r] << -shift) & mask;
    return v;
}

/* Byte i of every row in all four of its bytes. */
WK_INLINE struct wk_v wk_spread(struct wk_v v, uint32_t i)
{
    WK_EACH_ROW(r) v.u[r] = (v.u[r] >> 8 * i & 0xffu) * 0x01010101u;
    return v;
}

/* Byte i of every row becomes the eight bits of the row's number from bit first + i step on, a bit of the number; bits
 * beyond the number are any. */
WK_INLINE struct wk_v wk_fan(struct wk_v v, uint32_t first, uint32_t step)
{
    WK_EACH_ROW(r)
    {
        uint32_t u = 0;
        for (uint32_t i = 0; i < 4; i++) u |= (v.u[r] >> (first + i * step) & 0xffu) << 8 * i;
        v.u[r] = u;
    }
    return v;
}

/* Every byte's lower seven bits, and an eighth that makes the number of bits that are set even. */
WK_INLINE struct wk_v wk_even(struct wk_v v)
{
    WK_EACH_ROW(r)
    {
        uint32_t odd = v.u[r] & 0x7f7f7f7fu;
        odd ^= odd >> 4 & 0x0f0f0f0fu;
        odd ^= odd >> 2 & 0x03030303u;
        odd ^= odd >> 1;
        v.u[r] = (v.u[r] & 0x7f7f7f7fu) | (odd & 0x01010101u) << 7;
    }
    return v;
}

/* Every byte's digit n, 0 .. 4, as a fraction of 256 in base 3: (byte 3^n mod 256) 3 / 256. */
WK_INLINE struct wk_v wk_thirds(struct wk_v v, uint32_t n)
{
    static const uint32_t power[5] = { 1, 3, 9, 27, 81 };
    WK_EACH_ROW(r)
    {
        const uint32_t even = (v.u[r] & 0x00ff00ffu) * power[n] & 0x00ff00ffu,
                       odd = (v.u[r] >> 8 & 0x00ff00ffu) * power[n] & 0x00ff00ffu;
        v.u[r] = (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
    }
    return v;
}

/* Flip bit 7 of every byte: signed to unsigned with offset 128. */
WK_INLINE struct wk_v wk_flip(struct wk_v v)
{
    WK_EACH_ROW(r) v.u[r] ^= 0x80808080u;
    return v;
}

/* Every byte replaced by table[(byte >> shift) & 15]; shift: 0 .. 4. */
WK_INLINE struct wk_v wk_look_up(struct wk_v v, int shift, const uint8_t table[16])
{
    WK_EACH_ROW(r)
    {
        const uint32_t u = v.u[r] >> shift;
        v.u[r] = table[u & 15u] | (uint32_t)table[u >> 8 & 15u] << 8 | (uint32_t)table[u >> 16 & 15u] << 16 |
                 (uint32_t)table[u >> 24 & 15u] << 24;
    }
    return v;
}

/* Byte i of every row replaced by table[byte & 15], 16 entries further on where bit first + i of the row's number
 * `minus` is set: a level and its opposite. first: a multiple of 4. */
WK_INLINE struct wk_v wk_look_up_signed(struct wk_v v, struct wk_v minus, uint32_t first, const uint8_t table[32])
{
    WK_EACH_ROW(r)
    {
        uint32_t u = 0;
        for (uint32_t i = 0; i < 4; i++)
            u |= (uint32_t)table[(v.u[r] >> 8 * i & 15u) | (minus.u[r] >> (first + i) & 1u) << 4] << 8 * i;
        v.u[r] = u;
    }
    return v;
}

/* Four points of a grid for every row: number i is byte i of `low`, and above it as many bits as the grid's numbers
 * have more than eight, from bit first + i step of the row's number `more` on. Nibble n of point i becomes the lower
 * one of byte n of points[i]; the upper ones are any. */
WK_INLINE void wk_look_up_points(struct wk_v low, struct wk_v more, uint32_t first, uint32_t step,
                                 const struct wk_grid *grid, struct wk_v points[4])
{
    for (uint32_t i = 0; i < 4; i++) {
        WK_EACH_ROW(r)
        {
            const uint32_t above = more.u[r] >> (first + i * step) & ((1u << (grid->bits - 8)) - 1),
                           u = grid->entry[(low.u[r] >> 8 * i & 0xffu) | above << 8];
            points[i].u[r] = (u & 15u) | (u & 0xf0u) << 4 | (u & 0xf00u) << 8 | (u & 0xf000u) << 12;
        }
    }
}

/* Byte i of every row as a float, unsigned and signed. */
WK_INLINE struct wk_f wk_byte(struct wk_v v, uint32_t i)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = (float)(int32_t)(v.u[r] >> 8 * i & 0xffu);
    return f;
}

WK_INLINE struct wk_f wk_signed_byte(struct wk_v v, uint32_t i)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = (float)(int8_t)(v.u[r] >> 8 * i & 0xffu);
    return f;
}

/* The lower two bytes of every row as a half. */
WK_INLINE struct wk_f wk_half(struct wk_v v)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = wk_half_to_float((uint16_t)(v.u[r] & 0xffffu));
    return f;
}

/* 16 halves from an address aligned to 32; 16 bfloat16 likewise; 16 floats aligned to 64. */
WK_INLINE struct wk_f wk_load_halves(const void *p)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = wk_load_half((const uint8_t *)p + 2 * r);
    return f;
}

/* 16 uint16 from an address aligned to 32, as the lower two bytes of every row. */
WK_INLINE struct wk_v wk_load_u16s(const void *p)
{
    struct wk_v v;
    WK_EACH_ROW(r) v.u[r] = wk_load_u16((const uint8_t *)p + 2 * r);
    return v;
}

WK_INLINE struct wk_f wk_load_bf16s(const void *p)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = wk_bf16_to_float(wk_load_u16((const uint8_t *)p + 2 * r));
    return f;
}

/* 16 exponents from an address aligned to 16: wk_exponent_to_float of each, and NaN from 2^100 on, where no scale may
 * be. */
WK_INLINE struct wk_f wk_load_exponents(const void *p)
{
    const uint8_t *e = (const uint8_t *)p;
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = e[r] < 228 ? wk_exponent_to_float(e[r]) : wk_float_from_bits(0x7fc00000u);
    return f;
}

WK_INLINE struct wk_f wk_load_floats(const void *p)
{
    struct wk_f f;
    memcpy(f.f, p, sizeof f.f);
    return f;
}

WK_INLINE void wk_store(float *p, struct wk_f f) { memcpy(p, f.f, sizeof f.f); }

WK_INLINE struct wk_f wk_splat(float x)
{
    struct wk_f f;
    WK_EACH_ROW(r) f.f[r] = x;
    return f;
}

WK_INLINE struct wk_f wk_f_mul(struct wk_f a, struct wk_f b)
{
    WK_EACH_ROW(r) a.f[r] *= b.f[r];
    return a;
}

WK_INLINE struct wk_f wk_f_sub(struct wk_f a, struct wk_f b)
{
    WK_EACH_ROW(r) a.f[r] -= b.f[r];
    return a;
}

#endif
