/* quant-q4k/cuda/q3_k.cuh: Q3_K on the device (contract: worker/cuda/format.cuh, worker/cuda/part/int8.cuh).
 *
 * A unit is one block of the 16 rows. A lane has three words for each of its 4 pieces, group 4 i + t of rows g and g +
 * 8: four words of all lanes, the next four, the last four. Then a word for each lane: its four scales of row g in the
 * bytes' lower six bits, the upper two of those of row g + 8 above; then a half: the lower four of these, i from 0 on;
 * then 8 x { d of row g, of row g + 8 }.
 *
 * Of a group and row a field is four values of 3 bits in the same bits of the bytes (0, 2, 1, 3 of four, so that pairs
 * stand in halves). Fields 0 to 3 are those of row g, 4 to 7 those of row g + 8. Of word n (0 to 2) bits 0-2 have field
 * 2 n, bits 3-5 field 2 n + 1. Field 6 has its lower two bits in bits 6-7 of word 0, the third in bit 6 of word 1;
 * field 7 in bits 6-7 of word 2 and in bit 7 of word 1. */
#ifndef QUANT_Q4K_CUDA_Q3_K_CUH
#define QUANT_Q4K_CUDA_Q3_K_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/int8.cuh>

struct q3_k : wk_read_in_pieces {
    static constexpr uint32_t type = 11, block = 256, block_bytes = 110, unit = 256, super = 1, group = 16, slot = 1760,
                              parts = 1, mins = 0;
    enum { WORDS_AT = 1536, FOURS_AT = 1664, D_AT = 1728 };
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 1760; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 1760;
    }

    struct words {
        uint32_t sc[2], d;
    }; /* sc: scale + 32, a byte a piece: of row g, of row g + 8; d of both */
    static __device__ __forceinline__ void load(words &w, const unsigned char *unit, uint32_t lane)
    {
        const uint32_t x = reinterpret_cast<const uint32_t *>(unit + WORDS_AT)[lane],
                       y = __byte_perm(reinterpret_cast<const uint16_t *>(unit + FOURS_AT)[lane], 0, 0x4140);
        w.sc[0] = x & 0x3f3f3f3fu;
        w.sc[1] = wk_and_or(x >> 2, 0x30303030u, wk_and_or(y, 0x000f000fu, y << 4 & 0x0f000f00u));
        w.d = reinterpret_cast<const uint32_t *>(unit + D_AT)[lane / 4];
    }
    /* The eight fields of a piece's words, in bits 0-2 of the bytes. */
    static __device__ __forceinline__ void fields(const uint32_t w[3], uint32_t f[8])
    {
        const uint32_t m = 0x07070707u;
#pragma unroll
        for (uint32_t n = 0; n < 3; n++) {
            f[2 * n] = w[n] & m;
            f[2 * n + 1] = w[n] >> 3 & m;
        }
        f[6] = wk_and_or(w[1] >> 4, 0x04040404u, w[0] >> 6 & 0x03030303u);
        f[7] = wk_and_or(w[1] >> 5, 0x04040404u, w[2] >> 6 & 0x03030303u);
    }

    /* ---- integers: bytes 128 - (q - 4) sc ---- */
    static constexpr bool int8_mins = false;
    static constexpr float int8_unscale = 1.0f;
    struct int8_block {
        words w;
        uint4 q[3];
    };
    static __device__ __forceinline__ void load(int8_block &s, const unsigned char *unit, uint32_t lane)
    {
#pragma unroll
        for (uint32_t n = 0; n < 3; n++) s.q[n] = reinterpret_cast<const uint4 *>(unit)[32 * n + lane];
        load(s.w, unit, lane);
    }
    static __device__ __forceinline__ void int8_bytes(const int8_block &s, uint32_t i, uint32_t a[2][4])
    {
        const uint32_t all[12] = { s.q[0].x, s.q[0].y, s.q[0].z, s.q[0].w, s.q[1].x, s.q[1].y,
                                   s.q[1].z, s.q[1].w, s.q[2].x, s.q[2].y, s.q[2].z, s.q[2].w };
        uint32_t f[8];
        fields(all + 3 * i, f);
#pragma unroll
        for (uint32_t h = 0; h < 2;
             h++) { /* four bytes at once: each is between 0 and 252, so nothing passes from one to the next */
            uint32_t less = 32 - __byte_perm(s.w.sc[h], 0, 0x4440 + i), add = 0x80808080u - less * 0x04040404u;
            asm("" : "+r"(less), "+r"(add)); /* else the compiler makes more of them */
#pragma unroll
            for (uint32_t n = 0; n < 4; n++) a[n / 2][h + n % 2 * 2] = f[4 * h + n] * less + add;
        }
    }
    static __device__ __forceinline__ float int8_value(const int8_block &s, uint32_t h, int32_t sum, int32_t all)
    {
        const float2 d = wk_half2_float(s.w.d);
        return __fmul_rn((float)(128 * all - sum), h ? d.y : d.x);
    }

    /* ---- halves ---- */
    struct scales {
        uint32_t scale[4], far;
    }; /* of the lane's groups, rows g and g + 8: d sc 2^19, far: d sc 4; far: some |d| is 2^-8 or more */
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        words w;
        load(w, unit, lane);
        s.far = wk_h2_any(w.d, 0x1c00);
        const uint32_t up = wk_h2_mul(wk_h2_mul(w.d, s.far ? 0x44004400u /* 4 */ : 0x4c004c00u /* 16 */),
                                      s.far ? 0x3c003c00u : 0x78007800u /* 2^15 */);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            s.scale[i] = wk_h2_mul(wk_h2_add(wk_and_or(__byte_perm(w.sc[0], w.sc[1], 0x4400 + i * 0x1111), 0x003f003fu,
                                                       0x64006400u /* 1024 */),
                                             0xe420e420u /* -1056 */),
                                   up);
    }
    using wk_read_in_pieces::load;
    static constexpr float unscale = 16.0f;
    /* q 2^-23 times d sc 2^19, less d sc / 4. FAR: q 2^-6 times d sc 4. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint32_t i = b / 2, scale = s.scale[i],
                       less = wk_h2_mul(scale, FAR ? 0xac00ac00u /* -2^-4 */ : 0x80088008u /* -2^-21 */);
        const uint32_t *const at = reinterpret_cast<const uint32_t *>(q.unit) + q.lane * 4,
                              w[3] = { at[word_of(3 * i)], at[word_of(3 * i + 1)], at[word_of(3 * i + 2)] };
        uint32_t f[8];
        fields(w, f);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
#pragma unroll
            for (uint32_t j = 0; j < 4;
                 j++) { /* rows g, g + 8 of the lower two of four values, then of the upper two */
                const uint32_t field = f[j % 2 * 4 + b % 2 * 2 + h];
                uint32_t x = (j < 2 ? field << 1 : field >> 7) & 0x000e000eu;
                if constexpr (FAR) x = wk_h2_mul(wk_h2_mul(x, 0x68006800u /* 2^11 */), 0x54005400u /* 64 */);
                a[0][h][j] = wk_h2_fma(x, wk_h2_both(scale, j % 2), wk_h2_both(less, j % 2));
            }
    }

    /* ---- single values ---- */
    /* Word n of a lane's 12, from the lane's first on. */
    static __host__ __device__ __forceinline__ constexpr uint32_t word_of(uint32_t n) { return n / 4 * 128 + n % 4; }
    /* Bit n of value v of group j of a row: the unit's word, and where in it. */
    struct bit {
        uint32_t word, at;
    };
    static __device__ __forceinline__ bit bit_at(uint32_t row, uint32_t j, uint32_t v, uint32_t n)
    {
        const uint32_t field = row / 8 * 4 + v / 4, third = n / 2,
                       of = field < 6 ? field / 2
                            : third   ? 1
                                      : (field - 6) * 2;
        const uint32_t in = field < 6 ? field % 2 * 3 + n : third ? field : 6 + n;
        return { (row % 8 * 4 + j % 4) * 4 + word_of(j / 4 * 3 + of), wk_int8_byte(v) * 8 + in };
    }
    static __device__ __forceinline__ uint32_t quant_bit(const unsigned char *unit, uint32_t row, uint32_t v,
                                                         uint32_t n) /* v: of the block */
    {
        const bit b = bit_at(row, v / 16, v % 16, n);
        return reinterpret_cast<const uint32_t *>(unit)[b.word] >> b.at & 1u;
    }
    /* Scale of group j, + 32. */
    static __device__ __forceinline__ uint32_t scale_of(const unsigned char *unit, uint32_t row, uint32_t j)
    {
        const uint32_t lane = row % 8 * 4 + j % 4, i = j / 4, x = unit[WORDS_AT + lane * 4 + i];
        return row < 8 ? x & 63u : (x >> 6) << 4 | (unit[FOURS_AT + lane * 2 + i / 2] >> (i % 2 * 4) & 15u);
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const unsigned char *const unit = tile + offset(i / 32);
        const uint32_t j = i % 32 / 2, *const at = reinterpret_cast<const uint32_t *>(unit) + (row % 8 * 4 + j % 4) * 4,
                       w[3] = { at[word_of(j / 4 * 3)], at[word_of(j / 4 * 3 + 1)], at[word_of(j / 4 * 3 + 2)] };
        const float2 d = wk_half2_float(*reinterpret_cast<const uint32_t *>(unit + D_AT + row % 8 * 4));
        const float scale = __fmul_rn(row < 8 ? d.x : d.y, (float)((int)scale_of(unit, row, j) - 32));
        uint32_t f[8];
        fields(w, f);
        const uint32_t low = row < 8 ? (i % 2 ? f[2] : f[0])
                             : i % 2 ? f[6]
                                     : f[4],
                       high = row < 8 ? (i % 2 ? f[3] : f[1])
                              : i % 2 ? f[7]
                                      : f[5];
#pragma unroll
        for (uint32_t n = 0; n < 8; n++)
            v[n] = __fmul_rn(scale, (float)((int)((n < 4 ? low : high) >> (wk_int8_byte(n) * 8) & 7u) - 4));
    }

    /* Value v of the file's block: byte 32 + 32 (v / 128) + v % 32, bits 2 (v / 32 % 4); above them bit v / 32 of byte
     * v % 32. */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t v)
    {
        return (r.byte<q3_k>(row, b, 32 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u) |
               (r.byte<q3_k>(row, b, v % 32) >> (v / 32) & 1u) << 2;
    }
    /* Scale j + 32 of a row's block in the file: four bits of byte 96 + j % 8, two of byte 104 + j % 4. */
    static __device__ __forceinline__ uint32_t file_scale(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t j)
    {
        return (r.byte<q3_k>(row, b, 96 + j % 8) >> (j / 8 * 4) & 15u) |
               (r.byte<q3_k>(row, b, 104 + j % 4) >> (j / 4 * 2) & 3u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t b, uint32_t word)
    {
        uint32_t x = 0;
        if (word >= D_AT / 4)
            return r.half<q3_k>(word - D_AT / 4, b, 108) | r.half<q3_k>(word - D_AT / 4 + 8, b, 108) << 16;
        if (word >= FOURS_AT / 4) { /* of two lanes */
            for (uint32_t i = 0; i < 8; i++) {
                const uint32_t lane = (word - FOURS_AT / 4) * 2 + i / 4;
                x |= (file_scale(r, lane / 4 + 8, b, i % 4 * 4 + lane % 4) & 15u) << (4 * i);
            }
            return x;
        }
        if (word >= WORDS_AT / 4) {
            const uint32_t lane = word - WORDS_AT / 4;
            for (uint32_t i = 0; i < 4; i++)
                x |= (file_scale(r, lane / 4, b, 4 * i + lane % 4) |
                      file_scale(r, lane / 4 + 8, b, 4 * i + lane % 4) >> 4 << 6)
                     << (8 * i);
            return x;
        }
        const uint32_t lane = word % 128 / 4, n = word / 128 * 4 + word % 4, j = n / 3 * 4 + lane % 4, of = n % 3;
        for (uint32_t v = 0; v < 4; v++) { /* a byte */
            const uint32_t at = wk_int8_byte(v) * 8;
            auto field = [&](uint32_t f) { return quant(r, lane / 4 + f / 4 * 8, b, j * 16 + f % 4 * 4 + v); };
            x |= (field(2 * of) | field(2 * of + 1) << 3) << at;
            x |= (of == 0 ? field(6) & 3u : of == 2 ? field(7) & 3u : field(6) >> 2 | field(7) >> 2 << 1) << (at + 6);
        }
        return x;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *const unit = tile + offset(b);
        uint32_t x = 0;
        if (half == 54) return reinterpret_cast<const uint16_t *>(unit + D_AT)[row % 8 * 2 + row / 8];
        if (half >= 48) {
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t j = 2 * (half - 48) + i;
                if (j < 8)
                    x |= ((scale_of(unit, row, j) & 15u) | (scale_of(unit, row, j + 8) & 15u) << 4) << (8 * i);
                else
                    for (uint32_t n = 0; n < 4; n++) x |= scale_of(unit, row, j - 8 + 4 * n) >> 4 << (2 * n + 8 * i);
            }
            return x;
        }
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t from = 2 * half + i / 8;
            x |= (from < 32 ? quant_bit(unit, row, i % 8 * 32 + from, 2)
                            : quant_bit(unit, row, (from - 32) / 32 * 128 + i % 8 / 2 * 32 + from % 32, i % 2))
                 << i;
        }
        return x;
    }
};

#endif
