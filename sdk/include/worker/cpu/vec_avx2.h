/* worker/cpu/vec_avx2.h: the vocabulary of vec_portable.h for AVX2, FMA and F16C: two registers a vector. */
#ifndef WORKER_CPU_VEC_H
#define WORKER_CPU_VEC_H

#include <immintrin.h>

#include <worker/cpu/tile_common.h>

struct wk_v {
    __m256i v[2]; /* rows 0..7, 8..15 */
};
struct wk_f {
    __m256 f[2];
};

WK_INLINE struct wk_v wk_load(const void *p)
{
    const __m256i *from = (const __m256i *)p;
    return (struct wk_v){ { _mm256_load_si256(from), _mm256_load_si256(from + 1) } };
}

WK_INLINE __m256i wk_field8(__m256i v, int shift, uint32_t mask)
{
    const __m256i moved =
        shift >= 0 ? _mm256_srl_epi32(v, _mm_cvtsi32_si128(shift)) : _mm256_sll_epi32(v, _mm_cvtsi32_si128(-shift));
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)mask));
}

WK_INLINE struct wk_v wk_field(struct wk_v v, int shift, uint32_t mask)
{
    return (struct wk_v){ { wk_field8(v.v[0], shift, mask), wk_field8(v.v[1], shift, mask) } };
}

WK_INLINE struct wk_v wk_or(struct wk_v a, struct wk_v b)
{
    return (struct wk_v){ { _mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1]) } };
}

WK_INLINE __m256i wk_bits8(__m256i v, int shift, uint32_t mask)
{
    const __m256i moved =
        shift >= 0 ? _mm256_srl_epi32(v, _mm_cvtsi32_si128(shift)) : _mm256_sll_epi32(v, _mm_cvtsi32_si128(-shift));
    return _mm256_and_si256(moved, _mm256_set1_epi32((int32_t)mask));
}

WK_INLINE struct wk_v wk_bits(struct wk_v v, int shift, uint32_t mask)
{
    return (struct wk_v){ { wk_bits8(v.v[0], shift, mask), wk_bits8(v.v[1], shift, mask) } };
}

WK_INLINE struct wk_v wk_spread(struct wk_v v, uint32_t i)
{
    const __m256i from = _mm256_or_si256(
        _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0)), _mm256_set1_epi8((char)i));
    return (struct wk_v){ { _mm256_shuffle_epi8(v.v[0], from), _mm256_shuffle_epi8(v.v[1], from) } };
}

WK_INLINE __m256i wk_fan8(__m256i v, uint32_t first, uint32_t step)
{
    const __m256i low = _mm256_or_si256(wk_bits8(v, (int)first, 0xff), wk_bits8(v, (int)(first + step) - 8, 0xff00)),
                  high = _mm256_or_si256(wk_bits8(v, (int)(first + 2 * step) - 16, 0xff0000),
                                         wk_bits8(v, (int)(first + 3 * step) - 24, 0xff000000));
    return _mm256_or_si256(low, high);
}

WK_INLINE struct wk_v wk_fan(struct wk_v v, uint32_t first, uint32_t step)
{
    return (struct wk_v){ { wk_fan8(v.v[0], first, step), wk_fan8(v.v[1], first, step) } };
}

/* The eighth bit by the exclusive or of the byte's nibbles. */
WK_INLINE __m256i wk_even8(__m256i v)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
                      _mm_set_epi32(0x00808000, (int)0x80000080, (int)0x80000080, 0x00808000)),
                  seven = _mm256_and_si256(v, _mm256_set1_epi8(0x7f));
    return _mm256_or_si256(
        seven, _mm256_shuffle_epi8(odd, wk_field8(_mm256_xor_si256(seven, _mm256_srli_epi32(seven, 4)), 0, 15)));
}

WK_INLINE struct wk_v wk_even(struct wk_v v) { return (struct wk_v){ { wk_even8(v.v[0]), wk_even8(v.v[1]) } }; }

/* In halves of 16 bits whose upper byte is the digits' byte: the product with 3^n loses what is beyond 1, the upper
 * half of that with 3 is the digit. */
WK_INLINE __m256i wk_thirds8(__m256i v, uint32_t n)
{
    const __m256i power = _mm256_set1_epi16((short)(n == 0   ? 1
                                                    : n == 1 ? 3
                                                    : n == 2 ? 9
                                                    : n == 3 ? 27
                                                             : 81)),
                  three = _mm256_set1_epi16(3), odd = _mm256_and_si256(v, _mm256_set1_epi16((short)0xff00));
    const __m256i low = _mm256_mulhi_epu16(_mm256_mullo_epi16(_mm256_slli_epi16(v, 8), power), three),
                  high = _mm256_mulhi_epu16(_mm256_mullo_epi16(odd, power), three);
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 8));
}

WK_INLINE struct wk_v wk_thirds(struct wk_v v, uint32_t n)
{
    return (struct wk_v){ { wk_thirds8(v.v[0], n), wk_thirds8(v.v[1], n) } };
}

WK_INLINE struct wk_v wk_flip(struct wk_v v)
{
    const __m256i bit = _mm256_set1_epi8((char)0x80);
    return (struct wk_v){ { _mm256_xor_si256(v.v[0], bit), _mm256_xor_si256(v.v[1], bit) } };
}

WK_INLINE struct wk_v wk_look_up(struct wk_v v, int shift, const uint8_t table[16])
{
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    return (struct wk_v){ { _mm256_shuffle_epi8(t, wk_field8(v.v[0], shift, 15)),
                            _mm256_shuffle_epi8(t, wk_field8(v.v[1], shift, 15)) } };
}

WK_INLINE __m256i wk_look_up_signed8(__m256i v, __m256i minus, uint32_t first, const uint8_t table[32])
{
    const __m128i *from = (const __m128i *)(const void *)table;
    const __m256i bit = _mm256_set1_epi32((int32_t)(0x08040201u << first % 8)), nibbles = wk_field8(v, 0, 15),
                  set = _mm256_cmpeq_epi8(_mm256_and_si256(minus, bit), bit);
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(from)), nibbles),
                              _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(from + 1)), nibbles),
                              set);
}

WK_INLINE struct wk_v wk_look_up_signed(struct wk_v v, struct wk_v minus, uint32_t first, const uint8_t table[32])
{
    const struct wk_v byte = wk_spread(minus, first / 8);
    return (struct wk_v){ { wk_look_up_signed8(v.v[0], byte.v[0], first, table),
                            wk_look_up_signed8(v.v[1], byte.v[1], first, table) } };
}

WK_INLINE __m256i wk_look_up_point8(__m256i number, const uint16_t *entry)
{
    const __m256i point = _mm256_i32gather_epi32((const int *)(const void *)entry, number, 2);
    const __m256i from = _mm256_broadcastsi128_si256(_mm_set_epi32(0x0d0d0c0c, 0x09090808, 0x05050404, 0x01010000));
    const __m256i twice = _mm256_shuffle_epi8(point, from); /* either byte twice; of the second the upper nibble */
    return _mm256_blendv_epi8(twice, _mm256_srli_epi16(twice, 4), _mm256_set1_epi16((short)0xff00));
}

WK_INLINE void wk_look_up_points(struct wk_v low, struct wk_v more, uint32_t first, uint32_t step,
                                 const struct wk_grid *grid, struct wk_v points[4])
{
    const uint32_t above = (1u << grid->bits) - 256;
    for (uint32_t i = 0; i < 4; i++) {
        struct wk_v number = wk_bits(low, 8 * (int)i, 255);
        if (above) number = wk_or(number, wk_bits(more, (int)(first + i * step) - 8, above));
        points[i] = (struct wk_v){ { wk_look_up_point8(number.v[0], grid->entry),
                                     wk_look_up_point8(number.v[1], grid->entry) } };
    }
}

WK_INLINE __m256 wk_byte8(__m256i v, uint32_t i)
{
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srl_epi32(v, _mm_cvtsi32_si128(8 * (int)i)), _mm256_set1_epi32(0xff)));
}

WK_INLINE struct wk_f wk_byte(struct wk_v v, uint32_t i)
{
    return (struct wk_f){ { wk_byte8(v.v[0], i), wk_byte8(v.v[1], i) } };
}

WK_INLINE __m256 wk_signed_byte8(__m256i v, uint32_t i)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sll_epi32(v, _mm_cvtsi32_si128(24 - 8 * (int)i)), 24));
}

WK_INLINE struct wk_f wk_signed_byte(struct wk_v v, uint32_t i)
{
    return (struct wk_f){ { wk_signed_byte8(v.v[0], i), wk_signed_byte8(v.v[1], i) } };
}

WK_INLINE struct wk_f wk_half(struct wk_v v)
{
    const __m256i four = _mm256_packus_epi32(_mm256_and_si256(v.v[0], _mm256_set1_epi32(0xffff)),
                                             _mm256_and_si256(v.v[1], _mm256_set1_epi32(0xffff))),
                  all = _mm256_permute4x64_epi64(four, 0xd8); /* fours of either by turns, in order */
    return (struct wk_f){ { _mm256_cvtph_ps(_mm256_castsi256_si128(all)),
                            _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1)) } };
}

WK_INLINE struct wk_f wk_load_halves(const void *p)
{
    const __m128i *from = (const __m128i *)p;
    return (struct wk_f){ { _mm256_cvtph_ps(_mm_load_si128(from)), _mm256_cvtph_ps(_mm_load_si128(from + 1)) } };
}

WK_INLINE struct wk_v wk_load_u16s(const void *p)
{
    const __m128i *from = (const __m128i *)p;
    return (struct wk_v){ { _mm256_cvtepu16_epi32(_mm_load_si128(from)),
                            _mm256_cvtepu16_epi32(_mm_load_si128(from + 1)) } };
}

WK_INLINE __m256 wk_load_bf16s8(const __m128i *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128(from)), 16));
}

WK_INLINE struct wk_f wk_load_bf16s(const void *p)
{
    return (struct wk_f){ { wk_load_bf16s8((const __m128i *)p), wk_load_bf16s8((const __m128i *)p + 1) } };
}

WK_INLINE __m256 wk_exponents8(__m128i bytes)
{
    const __m256i e = _mm256_cvtepu8_epi32(bytes), too_large = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(227));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i f = _mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1)));
    return _mm256_castsi256_ps(_mm256_or_si256(f, too_large)); /* all bits set: a quiet NaN */
}

WK_INLINE struct wk_f wk_load_exponents(const void *p)
{
    const __m128i bytes = _mm_load_si128((const __m128i *)p);
    return (struct wk_f){ { wk_exponents8(bytes), wk_exponents8(_mm_srli_si128(bytes, 8)) } };
}

WK_INLINE struct wk_f wk_load_floats(const void *p)
{
    return (struct wk_f){ { _mm256_load_ps((const float *)p), _mm256_load_ps((const float *)p + 8) } };
}

WK_INLINE void wk_store(float *p, struct wk_f f)
{
    _mm256_store_ps(p, f.f[0]);
    _mm256_store_ps(p + 8, f.f[1]);
}

WK_INLINE struct wk_f wk_splat(float x) { return (struct wk_f){ { _mm256_set1_ps(x), _mm256_set1_ps(x) } }; }

WK_INLINE struct wk_f wk_f_mul(struct wk_f a, struct wk_f b)
{
    return (struct wk_f){ { _mm256_mul_ps(a.f[0], b.f[0]), _mm256_mul_ps(a.f[1], b.f[1]) } };
}

WK_INLINE struct wk_f wk_f_sub(struct wk_f a, struct wk_f b)
{
    return (struct wk_f){ { _mm256_sub_ps(a.f[0], b.f[0]), _mm256_sub_ps(a.f[1], b.f[1]) } };
}

#endif
