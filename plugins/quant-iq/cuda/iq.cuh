/* quant-iq/cuda/iq.cuh: what the formats of grids share on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four times 32 values. The even one begins with what the
 * block has once: 8 x { d of rows g, g + 8 } (IQ1_M: its scales). A unit has, for each lane (g, t), words of rows g and
 * g + 8: index bytes of the eights 8t .. 8t + 7 of its four 32s, then signs; and, as the format has them, bits more of
 * indices and the codes of scales.
 *
 * Signs of a row: bit 8 i + 4 h + b of the word is that of value i + 4 h of the eight in 32 number b, so that a shift
 * and a mask give the signs of four values as bytes. Where only seven of an eight are stored, the place of the last has
 * a bit of something else, side by side at the word's upper end, and the sign is made when the word is loaded.
 *
 * A level with its sign becomes an f16 by one permutation: the level as the lower byte, a subnormal, the sign as the
 * upper one. Points of the grid are read by the read-only path: few bytes, which stay in L1.
 *
 * Products' weights are f16(level * scale / 16), scale = d * (2 code + 1) * unit: level 2^-24 times scale 2^20, one
 * product a pair. Where some d is so large that this scale is out of f16's range (FAR), the level is made 2^20 unit
 * times larger and multiplied by 2 code + 1, which is exact, and then by d. */
#ifndef QUANT_IQ_CUDA_IQ_CUH
#define QUANT_IQ_CUDA_IQ_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/int8_grid.cuh>

/* ---- geometry -------------------------------------------------------------------------------------------- */

/* FIRST and THEN: words of a lane that are read together; MORE: has a half word of a lane; CODES: words of scales of a
 * unit; HEAD: bytes of a block. F has lane_word, more, code_word and head_word, what they are made of in the file. */
template <class F, uint32_t TYPE, uint32_t BYTES, uint32_t FIRST, uint32_t THEN, bool MORE, uint32_t CODES,
          uint32_t HEAD>
struct iq_tiles {
    static constexpr uint32_t type = TYPE, block = 256, block_bytes = BYTES, unit = 128, super = 2, group = 32,
                              parts = 1, mins = 0, head = HEAD, then_at = 128 * FIRST, more_at = then_at + 128 * THEN,
                              codes_at = more_at + (MORE ? 64 : 0), size = codes_at + 4 * CODES, slot = head + size;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f, unscale = 16.0f;
    static_assert(head + 2 * size == 16 * BYTES, "a tile has the file's bits");
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * (head + 2 * size) + u % 2 * (head + size);
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * (head + 2 * size);
    }
    static __device__ __forceinline__ const unsigned char *body(const unsigned char *unit_at, uint32_t u)
    {
        return unit_at + (u % 2 ? 0 : head);
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2, place = u % 2;
        if (place == 0 && word < head / 4) return F::head_word(r, b, word);
        if (place == 0) word -= head / 4;
        if (word < then_at / 4) return F::lane_word(r, b, place, word / FIRST, word % FIRST);
        if constexpr (THEN > 0)
            if (word < more_at / 4)
                return F::lane_word(r, b, place, (word - then_at / 4) / THEN, FIRST + (word - then_at / 4) % THEN);
        if constexpr (MORE)
            if (word < codes_at / 4) {
                const uint32_t lane = 2 * (word - more_at / 4);
                return F::more(r, b, place, lane) | F::more(r, b, place, lane + 1) << 16;
            }
        if constexpr (CODES > 0) return F::code_word(r, b, place, word - codes_at / 4);
        return 0;
    }

    /* Of block b of a tile: word i of a lane, its half word, the word of codes, of the head. */
    static __device__ __forceinline__ const unsigned char *unit_of(const unsigned char *tile, uint32_t b,
                                                                   uint32_t place)
    {
        return body(tile + offset(2 * b + place), place);
    }
    static __device__ __forceinline__ uint32_t lane_at(const unsigned char *tile, uint32_t b, uint32_t place,
                                                       uint32_t lane, uint32_t i)
    {
        const uint32_t *p = reinterpret_cast<const uint32_t *>(unit_of(tile, b, place));
        return i < FIRST ? p[lane * FIRST + i] : p[then_at / 4 + lane * THEN + i - FIRST];
    }
    static __device__ __forceinline__ uint32_t more_of(const unsigned char *tile, uint32_t b, uint32_t place,
                                                       uint32_t lane)
    {
        return reinterpret_cast<const uint16_t *>(unit_of(tile, b, place) + more_at)[lane];
    }
    static __device__ __forceinline__ uint32_t code_at(const unsigned char *tile, uint32_t b, uint32_t place,
                                                       uint32_t i)
    {
        return reinterpret_cast<const uint32_t *>(unit_of(tile, b, place) + codes_at)[i];
    }
    static __device__ __forceinline__ uint32_t head_at(const unsigned char *tile, uint32_t b, uint32_t i)
    {
        return reinterpret_cast<const uint32_t *>(tile + offset(2 * b))[i];
    }
    /* The half d of a row, where the head is these. */
    static __device__ __forceinline__ uint32_t d_of(const unsigned char *tile, uint32_t row, uint32_t b)
    {
        return head_at(tile, b, row % 8) >> (row / 8 * 16) & 0xffffu;
    }
    /* Two bytes of a block, each by F::byte_of(tile, row, b, i). */
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        return F::byte_of(tile, row, b, 2 * half) | F::byte_of(tile, row, b, 2 * half + 1) << 8;
    }
};

/* The head of the types that have a half d as their first two bytes. */
template <class F>
__device__ __forceinline__ uint32_t iq_halves_of_rows(const wk_tile_rows &r, uint32_t b, uint32_t row)
{
    return r.half<F>(row, b, 0) | r.half<F>(row + 8, b, 0) << 16;
}

/* ---- signs ------------------------------------------------------------------------------------------------- */

/* Eight bits each of four 32s, as the word has them, and those of one of them. */
__device__ __forceinline__ uint32_t iq_sign_place(uint32_t b, uint32_t value)
{
    return 8 * (value % 4) + value / 4 * 4 + b;
}
__device__ __forceinline__ uint32_t iq_sign_put(uint32_t eight, uint32_t b)
{
    uint32_t w = 0;
    for (uint32_t i = 0; i < 8; i++) w |= (eight >> i & 1u) << iq_sign_place(b, i);
    return w;
}
__device__ __forceinline__ uint32_t iq_sign_get(uint32_t w, uint32_t b)
{
    uint32_t eight = 0;
    for (uint32_t i = 0; i < 8; i++) eight |= (w >> iq_sign_place(b, i) & 1u) << i;
    return eight;
}
/* The places of last values, and their signs so that of each eight they are even in number. */
#define IQ_LAST 0xf0000000u
__device__ __forceinline__ uint32_t iq_even(uint32_t w)
{
    uint32_t odd = w & ~IQ_LAST;
    odd ^= odd << 16;
    odd ^= odd << 8;
    return (w & ~IQ_LAST) | ((odd ^ odd << 4) & IQ_LAST);
}
/* What the places of last values of rows g and g + 8 have instead: four bits in the lower end of either half. */
__device__ __forceinline__ uint32_t iq_instead(uint32_t g, uint32_t g8) { return g >> 28 | (g8 >> 12 & 0x000f0000u); }

/* ---- weights ------------------------------------------------------------------------------------------------ */

/* Four levels, and the bits 8 i + bit of a row's signs, as two pairs. */
__device__ __forceinline__ void iq_pairs(uint32_t levels, uint32_t signs, uint32_t bit, uint32_t pair[2])
{
    const uint32_t upper = signs << (7 - bit) & 0x80808080u;
    pair[0] = __byte_perm(levels, upper, 0x5140);
    pair[1] = __byte_perm(levels, upper, 0x7362);
}

/* 2 code + 1 of two rows, whose codes are the lower four bits of either half. */
__device__ __forceinline__ uint32_t iq_odd(uint32_t codes)
{
    return wk_h2_add((codes << 1 & 0x001e001eu) | 0x64006400u, 0xe3fee3feu /* -1023 */);
}

/* 2^20 unit times d, which is in range unless the unit is FAR. unit: 1 >> LOW. */
template <uint32_t LOW> __device__ __forceinline__ uint32_t iq_up(uint32_t d)
{
    constexpr uint32_t more = (15 + 5 - LOW) << 10;
    return wk_h2_mul(wk_h2_mul(d, 0x78007800u /* 2^15 */), more | more << 16);
}
/* Is d of some row so large that 31 times iq_up of it is out of range? */
template <uint32_t LOW> __device__ __forceinline__ uint32_t iq_is_far(uint32_t d)
{
    return wk_h2_any(d, (15 - 9 + LOW) << 10);
}

/* Pairs of rows g and g + 8 to weights. scale: iq_up times odd; FAR: odd itself. */
template <bool FAR, uint32_t LOW>
__device__ __forceinline__ void iq_weights(const uint32_t g[4], const uint32_t g8[4], uint32_t scale, uint32_t d,
                                           uint32_t a[1][2][4])
{
    wk_rows_fragments(g, g8, a[0]);
    if constexpr (FAR) {
        constexpr uint32_t more = (15 + 5 - LOW) << 10;
        wk_h2_lift(a[0]);
        scale = wk_h2_mul(scale, more | more << 16);
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t v = wk_h2_mul(a[0][i / 4][i % 4], wk_h2_both(scale, i % 2));
        if constexpr (FAR) v = wk_h2_mul(v, wk_h2_both(d, i % 2));
        a[0][i / 4][i % 4] = v;
    }
}

/* ---- integer products (worker/cuda/part/int8_grid.cuh) ------------------------------------------------------ */

/* Where the head begins with the halves d. */
struct iq_integers : wk_int8_grid {
    static __device__ __forceinline__ uint32_t int8_ds(const unsigned char *at, uint32_t lane)
    {
        return reinterpret_cast<const uint32_t *>(at)[lane / 4];
    }
};
/* What sums of levels, and of those that are negative, are multiplied by. */
__device__ __forceinline__ void iq_sign_factors(uint2 odd, uint2 *first, uint2 *second)
{
    *first = odd;
    *second = make_uint2(0u - 2 * odd.x, 0u - 2 * odd.y);
}
/* The bits 8 i + bit of a row's signs as bytes of ones. */
__device__ __forceinline__ uint32_t iq_mask(uint32_t signs, uint32_t bit)
{
    uint32_t mask;
    asm("prmt.b32 %0, %1, %1, 0xba98;" : "=r"(mask) : "r"(signs << (7 - bit)));
    return mask;
}
/* The uppermost bit, as many times as a word has bits. */
__device__ __forceinline__ uint32_t iq_repeat(uint32_t v)
{
    uint32_t all;
    asm("prmt.b32 %0, %1, %1, 0xbbbb;" : "=r"(all) : "r"(v));
    return all;
}
/* Levels with their signs: no level is 0, so nothing passes from one byte to the next. */
__device__ __forceinline__ uint32_t iq_signed(uint32_t levels, uint32_t mask)
{
    return (levels ^ mask) + (mask & 0x01010101u);
}
/* The line of a table of byte b of a word of indices, and in the line byte `in` of low, whose byte `zero` is 0. */
__device__ __forceinline__ uint32_t iq_line(uint32_t indices, uint32_t b, uint32_t low, uint32_t in, uint32_t zero)
{
    return __byte_perm(indices, low, 0x4404 + zero * 0x1100 + b * 0x10 + in);
}

/* Lane of the four that share rows g and g + 8 whose 32 is number b. */
__device__ __forceinline__ uint32_t iq_ask(uint32_t v, uint32_t b)
{
    return __shfl_sync(0xffffffffu, v, (threadIdx.x & 28u) | b);
}

__device__ __forceinline__ float iq_half(uint32_t bits) { return wk_half2_float(bits).x; }

#endif
