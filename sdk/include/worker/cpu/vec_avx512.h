/* worker/cpu/vec_avx512.h: the vocabulary of vec_portable.h for AVX-512: one register a vector. */
#ifndef WORKER_CPU_VEC_H
#define WORKER_CPU_VEC_H

#include <immintrin.h>

#include <worker/cpu/tile_common.h>

struct wk_v {
    __m512i v;
};
struct wk_f {
    __m512 f;
};

WK_INLINE struct wk_v wk_load(const void *p) { return (struct wk_v){ _mm512_load_si512(p) }; }

WK_INLINE struct wk_v wk_field(struct wk_v v, int shift, uint32_t mask)
{
    const __m512i moved =
        shift >= 0 ? _mm512_srl_epi32(v.v, _mm_cvtsi32_si128(shift)) : _mm512_sll_epi32(v.v, _mm_cvtsi32_si128(-shift));
    return (struct wk_v){ _mm512_and_si512(moved, _mm512_set1_epi8((char)mask)) };
}

WK_INLINE struct wk_v wk_or(struct wk_v a, struct wk_v b) { return (struct wk_v){ _mm512_or_si512(a.v, b.v) }; }

WK_INLINE struct wk_v wk_bits(struct wk_v v, int shift, uint32_t mask)
{
    const __m512i moved =
        shift >= 0 ? _mm512_srl_epi32(v.v, _mm_cvtsi32_si128(shift)) : _mm512_sll_epi32(v.v, _mm_cvtsi32_si128(-shift));
    return (struct wk_v){ _mm512_and_si512(moved, _mm512_set1_epi32((int32_t)mask)) };
}

WK_INLINE struct wk_v wk_spread(struct wk_v v, uint32_t i)
{
    const __m512i from = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    return (struct wk_v){ _mm512_shuffle_epi8(v.v, _mm512_or_si512(from, _mm512_set1_epi8((char)i))) };
}

/* For vpmultishiftqb: byte i of a row is the eight bits of its number from bit first + i step on; bits that are not the
 * number's are any. The compiler must not know the value: a constant it would keep in a register through the loop over
 * tokens, which needs them all. */
WK_INLINE __m512i wk_shifts(int first, int step)
{
    uint32_t of_even = 0;
    for (int i = 0; i < 4; i++) of_even |= (uint32_t)((first + i * step) & 63) << 8 * i;
    __m512i shifts = _mm512_set1_epi64((long long)(of_even | (uint64_t)(of_even ^ 0x20202020u) << 32));
    __asm__ volatile("" : "+v"(shifts));
    return shifts;
}

WK_INLINE struct wk_v wk_fan(struct wk_v v, uint32_t first, uint32_t step)
{
    return (struct wk_v){ _mm512_multishift_epi64_epi8(wk_shifts((int)first, (int)step), v.v) };
}

/* n with its eighth bit: bit i of 0x6996 tells whether the four bits of i are odd in number. */
#define WK_EVEN(n) ((n) | (0x6996 >> (((n) ^ (n) >> 4) & 15) & 1) << 7)
#define WK_EVEN_4(n) WK_EVEN(n), WK_EVEN((n) + 1), WK_EVEN((n) + 2), WK_EVEN((n) + 3)
#define WK_EVEN_16(n) WK_EVEN_4(n), WK_EVEN_4((n) + 4), WK_EVEN_4((n) + 8), WK_EVEN_4((n) + 12)
#define WK_EVEN_32(n) WK_EVEN_16(n), WK_EVEN_16((n) + 16)

WK_INLINE struct wk_v wk_even(struct wk_v v)
{
    static const uint8_t even[128] = { WK_EVEN_32(0), WK_EVEN_32(32), WK_EVEN_32(64), WK_EVEN_32(96) };
    const __m512i low = _mm512_loadu_si512(even), high = _mm512_loadu_si512(even + 64);
    return (struct wk_v){ _mm512_permutex2var_epi8(low, v.v, high) };
}

/* In halves of 16 bits whose upper byte is the digits' byte: the product with 3^n loses what is beyond 1, the upper
 * half of that with 3 is the digit. */
WK_INLINE struct wk_v wk_thirds(struct wk_v v, uint32_t n)
{
    const __m512i power = _mm512_set1_epi16((short)(n == 0   ? 1
                                                    : n == 1 ? 3
                                                    : n == 2 ? 9
                                                    : n == 3 ? 27
                                                             : 81)),
                  three = _mm512_set1_epi16(3), odd = _mm512_and_si512(v.v, _mm512_set1_epi16((short)0xff00));
    const __m512i low = _mm512_mulhi_epu16(_mm512_mullo_epi16(_mm512_slli_epi16(v.v, 8), power), three),
                  high = _mm512_mulhi_epu16(_mm512_mullo_epi16(odd, power), three);
    return (struct wk_v){ _mm512_or_si512(low, _mm512_slli_epi16(high, 8)) };
}

WK_INLINE struct wk_v wk_flip(struct wk_v v)
{
    return (struct wk_v){ _mm512_xor_si512(v.v, _mm512_set1_epi8((char)0x80)) };
}

/* vpermb takes six bits of each index; the table four times over makes two of them irrelevant and saves the masks. */
WK_INLINE struct wk_v wk_look_up(struct wk_v v, int shift, const uint8_t table[16])
{
    const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    return (struct wk_v){ _mm512_permutexvar_epi8(_mm512_srl_epi32(v.v, _mm_cvtsi32_si128(shift)), t) };
}

/* As bit 4 of the index, of which vpermb takes six bits: the table twice over makes the sixth irrelevant. */
WK_INLINE struct wk_v wk_look_up_signed(struct wk_v v, struct wk_v minus, uint32_t first, const uint8_t table[32])
{
    const __m512i t = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)table)),
                  bit = _mm512_multishift_epi64_epi8(wk_shifts((int)first - 4, 1), minus.v);
    return (struct wk_v){ _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(_mm512_set1_epi8(16), bit, v.v, 0xca), t) };
}

/* One byte of 64 points: bit 7 of each number and those above it choose between halves of the table. */
WK_INLINE __m512i wk_of_128(__m512i low, const uint8_t *table)
{
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), low, _mm512_load_si512(table + 64));
}

WK_INLINE __m512i wk_of_256(__m512i low, const __mmask64 bit[4], const uint8_t *table)
{
    return _mm512_mask_blend_epi8(bit[0], wk_of_128(low, table), wk_of_128(low, table + 128));
}

WK_INLINE __m512i wk_of_512(__m512i low, const __mmask64 bit[4], const uint8_t *table)
{
    return _mm512_mask_blend_epi8(bit[1], wk_of_256(low, bit, table), wk_of_256(low, bit, table + 256));
}

WK_INLINE __m512i wk_of_1024(__m512i low, const __mmask64 bit[4], const uint8_t *table)
{
    return _mm512_mask_blend_epi8(bit[2], wk_of_512(low, bit, table), wk_of_512(low, bit, table + 512));
}

WK_INLINE __m512i wk_of_table(__m512i low, const __mmask64 bit[4], const uint8_t *table, uint32_t bits)
{
    if (bits == 8) return wk_of_256(low, bit, table);
    if (bits == 9) return wk_of_512(low, bit, table);
    if (bits == 10) return wk_of_1024(low, bit, table);
    return _mm512_mask_blend_epi8(bit[3], wk_of_1024(low, bit, table), wk_of_1024(low, bit, table + 1024));
}

WK_INLINE void wk_look_up_points(struct wk_v low, struct wk_v more, uint32_t first, uint32_t step,
                                 const struct wk_grid *grid, struct wk_v points[4])
{
    const uint8_t *lows = grid->low, *highs = grid->high;
    if (grid->bits > 9) __asm__ volatile("" : "+r"(lows), "+r"(highs)); /* more vectors than registers: see wk_shifts */
    const __m512i high = grid->bits > 8 ? wk_fan(more, first, step).v : low.v;
    const __mmask64 bit[4] = { _mm512_movepi8_mask(low.v), _mm512_test_epi8_mask(high, _mm512_set1_epi8(1)),
                               _mm512_test_epi8_mask(high, _mm512_set1_epi8(2)),
                               _mm512_test_epi8_mask(high, _mm512_set1_epi8(4)) };
    const __m512i lower = wk_of_table(low.v, bit, lows, grid->bits), upper = wk_of_table(low.v, bit, highs, grid->bits);
    for (int i = 0; i < 4; i++) {
        const __m512i two = _mm512_multishift_epi64_epi8(wk_shifts(8 * i, 4), lower);
        points[i].v = _mm512_mask_multishift_epi64_epi8(two, 0xccccccccccccccccu, wk_shifts(8 * i - 8, 4), upper);
    }
}

WK_INLINE struct wk_f wk_byte(struct wk_v v, uint32_t i)
{
    const __m512i moved = _mm512_srl_epi32(v.v, _mm_cvtsi32_si128(8 * (int)i));
    return (struct wk_f){ _mm512_cvtepi32_ps(_mm512_and_si512(moved, _mm512_set1_epi32(0xff))) };
}

WK_INLINE struct wk_f wk_signed_byte(struct wk_v v, uint32_t i)
{
    const __m512i moved = _mm512_sll_epi32(v.v, _mm_cvtsi32_si128(24 - 8 * (int)i));
    return (struct wk_f){ _mm512_cvtepi32_ps(_mm512_srai_epi32(moved, 24)) };
}

WK_INLINE struct wk_f wk_half(struct wk_v v) { return (struct wk_f){ _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v.v)) }; }

WK_INLINE struct wk_f wk_load_halves(const void *p)
{
    return (struct wk_f){ _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p)) };
}

WK_INLINE struct wk_v wk_load_u16s(const void *p)
{
    return (struct wk_v){ _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p)) };
}

WK_INLINE struct wk_f wk_load_bf16s(const void *p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p));
    return (struct wk_f){ _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)) };
}

WK_INLINE struct wk_f wk_load_exponents(const void *p)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)p));
    const __mmask16 subnormal = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)),
                    too_large = _mm512_cmpgt_epu32_mask(e, _mm512_set1_epi32(227));
    __m512i f = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    f = _mm512_mask_sllv_epi32(f, subnormal, _mm512_set1_epi32(0x00200000), e);
    return (struct wk_f){ _mm512_castsi512_ps(_mm512_mask_mov_epi32(f, too_large, _mm512_set1_epi32(0x7fc00000))) };
}

WK_INLINE struct wk_f wk_load_floats(const void *p) { return (struct wk_f){ _mm512_load_ps(p) }; }

WK_INLINE void wk_store(float *p, struct wk_f f) { _mm512_store_ps(p, f.f); }

WK_INLINE struct wk_f wk_splat(float x) { return (struct wk_f){ _mm512_set1_ps(x) }; }

WK_INLINE struct wk_f wk_f_mul(struct wk_f a, struct wk_f b) { return (struct wk_f){ _mm512_mul_ps(a.f, b.f) }; }

WK_INLINE struct wk_f wk_f_sub(struct wk_f a, struct wk_f b) { return (struct wk_f){ _mm512_sub_ps(a.f, b.f) }; }

#endif
