/* bench/roof_avx512.c: the same with 64-byte loads, and the rate of vpdpbusd. */
#include <immintrin.h>

#include "roof.h"

uint64_t roof_read_avx512(const void *p, uint64_t bytes)
{
    const uint8_t *at = p;
    __m512i sum[4] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
    for (uint64_t i = 0; i < bytes; i += 256) {
        for (uint32_t j = 0; j < 4; j++) sum[j] = _mm512_add_epi64(sum[j], _mm512_load_si512(at + i + 64 * j));
    }
    return (uint64_t)_mm512_reduce_add_epi64(
        _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3])));
}

int32_t roof_vnni_avx512(uint64_t rounds)
{
    __m512i sum[12], w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
    for (int32_t j = 0; j < 12; j++) sum[j] = _mm512_set1_epi32(j);
    for (uint64_t i = 0; i < rounds; i++) {
        for (uint32_t j = 0; j < 12; j++) sum[j] = _mm512_dpbusd_epi32(sum[j], w, x);
        __asm__ volatile("" : "+v"(w), "+v"(x)); /* or the compiler sums one round in closed form */
    }
    for (uint32_t j = 1; j < 12; j++) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
    return _mm512_reduce_add_epi32(sum[0]);
}
