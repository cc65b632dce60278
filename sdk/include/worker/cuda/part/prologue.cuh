/* worker/cuda/part/prologue.cuh: activations into shared memory.
 *
 * Eight warps; each brings just the K steps that it multiplies, of all columns, so no barrier is needed before the
 * first product, only __syncwarp. Addresses and constants are at hand before the wait for the preceding launch; after
 * it all is asked for before any of it is used: the way there and back is most of what a prologue costs. */
#ifndef WORKER_CUDA_PART_PROLOGUE_CUH
#define WORKER_CUDA_PART_PROLOGUE_CUH

#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/order.cuh>

enum { WK_AHEAD = 4 }; /* loads of a lane under way */

/* The eight multiplying warps wait for each other. */
__device__ __forceinline__ void wk_sync_k_slices() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* 16 bytes, if so; else anything. From an address that is at hand: the compiler would put it together again from its
 * parts, behind the wait. */
__device__ __forceinline__ uint4 wk_read16(uint64_t at, bool so)
{
    uint4 v;
    asm volatile("{ .reg .pred so; setp.ne.u32 so, %5, 0; @so ld.global.v4.b32 {%0,%1,%2,%3}, [%4]; }"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at), "r"((uint32_t)so)
                 : "memory");
    return v;
}
/* The same of what no launch writes; not put off behind the wait either. */
__device__ __forceinline__ float4 wk_read16_constant(const float *at)
{
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at));
    return v;
}

/* Row i's act: a lane has eight values of every 256 of the warp's, which in k are 2048 apart: eight warps by turns. */
__device__ __forceinline__ void wk_one_act(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                           uint32_t lane, uint32_t row = 0)
{
    const uint32_t padded = p.k_steps << p.k_step_shift, k0 = wk_own_k(p, warp, lane * 8);
    uint64_t from = reinterpret_cast<uint64_t>(static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32 + k0);
    uint32_t to = p.x_at + k0 * 2, in = p.k32 > k0 ? p.k32 - k0 : 0, room = padded > k0 ? padded - k0 : 0,
             indexed = p.in.row_index != NULL; /* in, room: values from the lane's first on */
#pragma unroll 1
    for (uint32_t i = 0; i < room; i += 2048) /* past the end of k */
        if (i >= in) *reinterpret_cast<uint4 *>(shared + to + 2 * i) = make_uint4(0, 0, 0, 0);
    asm volatile("" : "+l"(from), "+r"(to), "+r"(in), "+r"(indexed));
    wk_depend();
    if (indexed) from += ((uint64_t)__ldg(p.in.row_index + row) - row) * p.k32 * 2;
#pragma unroll 1
    for (;;) {
        uint4 v[WK_AHEAD];
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) v[j] = wk_read16(from + 4096 * j, 2048 * j < in);
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++)
            if (2048 * j < in) *reinterpret_cast<uint4 *>(shared + to + 4096 * j) = v[j];
        if (in <= 2048 * WK_AHEAD) break;
        in -= 2048 * WK_AHEAD;
        from += 4096 * WK_AHEAD;
        to += 4096 * WK_AHEAD;
    }
}

/* Four values of a row from the i-th of k, `fill` past the end; WHOLE: all or none, 16-byte aligned. */
template <bool WHOLE> __device__ __forceinline__ float4 wk_four(const float *at, uint32_t i, uint32_t k, float fill)
{
    float4 v = make_float4(fill, fill, fill, fill);
    if (WHOLE) {
        if (i < k) v = *reinterpret_cast<const float4 *>(at);
    } else {
        if (i < k) v.x = at[0];
        if (i + 1 < k) v.y = at[1];
        if (i + 2 < k) v.z = at[2];
        if (i + 3 < k) v.w = at[3];
    }
    return v;
}

/* An F32 row by the RMS norm (several rows have theirs by a launch): a lane has four values of every 128 of the warp's.
 * WHOLE: rows and weights may be read 16 bytes at a time. */
template <bool WHOLE>
__device__ __forceinline__ void wk_one_rms(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                           uint32_t lane)
{
    const uint32_t padded = p.k_steps << p.k_step_shift, k0 = wk_own_k(p, warp, lane * 4), runs = (p.k + 15) / 16;
    const uint32_t odd =
        p.k_step_shift == 8 ? 128 : 1024; /* in k, from an even 128 of the warp to the next; from even to even: 2048 */
    const float *from = static_cast<const float *>(p.in.x) + wk_now(k0),
                *part = p.in.aux + wk_now(lane), *const weights = p.in.w + k0;
    __half *const x = reinterpret_cast<__half *>(shared + p.x_at) + k0;
    auto load = [&](float4 *to, const float *at, uint32_t i, float fill) {
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            const uint32_t k = i + j / 2 * 2048 + j % 2 * odd;
            to[j] = wk_four<WHOLE>(at + k, k0 + k, p.k, fill);
        }
    };
    float4 v[WK_AHEAD], w[WK_AHEAD];
    if (p.in.w)
        load(w, weights, 0, 1.0f);
    else
        for (uint32_t j = 0; j < WK_AHEAD; j++) w[j] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
    wk_depend();
    if (p.in.row_index) {
        const uint64_t there = __ldg(p.in.row_index);
        from += there * p.in.x_stride;
        part += there * runs;
    }
    float scale = 0.0f;
#pragma unroll 1
    for (uint32_t i = 0; i < padded; i += 4096) {
        if (i == 0) {
            float s = 0.0f, q[8];
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) q[j] = 32 * j + lane < runs ? part[32 * j] : 0.0f;
            load(v, from, i, 0.0f);
#pragma unroll
            for (uint32_t j = 0; j < 8; j++) s = __fadd_rn(s, q[j]);
#pragma unroll 1
            for (uint32_t n = 256 + lane; n < runs; n += 32) s = __fadd_rn(s, part[n - lane]);
            scale = wk_norm_scale(wk_warp_sum(s), p.k, p.in.eps);
        } else if (p.in.w) {
            load(v, from, i, 0.0f);
            load(w, weights, i, 1.0f);
        } else {
            load(v, from, i, 0.0f);
        }
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            const uint32_t k = i + j / 2 * 2048 + j % 2 * odd;
            if ((warp << p.k_step_shift) + k >= padded) break; /* no lane's */
            const __half2 low =
                wk_act_half2(wk_rms_value(v[j].x, scale, w[j].x), wk_rms_value(v[j].y, scale, w[j].y), 0);
            const __half2 high =
                wk_act_half2(wk_rms_value(v[j].z, scale, w[j].z), wk_rms_value(v[j].w, scale, w[j].w), 0);
            if (k0 + k >= padded) continue;
            uint2 bits;
            bits.x = *reinterpret_cast<const uint32_t *>(&low);
            bits.y = *reinterpret_cast<const uint32_t *>(&high);
            *reinterpret_cast<uint2 *>(x + k) = bits;
        }
    }
}

/* The same of a short row of whole K steps, at most J times 128 values of it a warp's and 64 J partials: few
 * instructions behind the wait. */
template <uint32_t J> __device__ __forceinline__ bool wk_is_short_rms(const wk_product_args &p)
{
    return !p.in.row_index && p.k_step_shift >= 7 && p.k == p.k_steps << p.k_step_shift &&
           (p.k_steps + WK_K_SLICES - 1) / WK_K_SLICES << (p.k_step_shift - 7) <= J && p.k <= 1024 * J;
}
template <uint32_t J>
__device__ __forceinline__ void wk_short_rms(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                             uint32_t lane)
{
    const uint32_t k0 = wk_own_k(p, warp, lane * 4), odd = p.k_step_shift == 8 ? 128 : 1024,
                   left = p.k > k0 ? p.k - k0 : 0;
    uint64_t from = reinterpret_cast<uint64_t>(static_cast<const float *>(p.in.x) + k0),
             part = reinterpret_cast<uint64_t>(p.in.aux + lane);
    uint32_t to = p.x_at + k0 * 2, runs = p.k / 16 > lane ? p.k / 16 - lane : 0,
             have = 0; /* have: of the 128s; runs: partials from the lane's first on */
    float4 w[J];
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        const uint32_t k = j / 2 * 2048 + j % 2 * odd;
        w[j] = make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        if (p.in.w && k < left) w[j] = wk_read16_constant(p.in.w + k0 + k);
        have |= k < left ? 1u << j : 0;
    }
    asm volatile("" : "+l"(from), "+l"(part), "+r"(to), "+r"(runs), "+r"(have));
    wk_at_hand((uint32_t)(from ^ part) ^ (uint32_t)((from ^ part) >> 32) ^ to ^ runs ^ have);
    wk_depend();
    float q[2 * J], s = 0.0f;
    uint4 v[J];
#pragma unroll
    for (uint32_t j = 0; j < J; j++) v[j] = wk_read16(from + (j / 2 * 2048 + j % 2 * odd) * 4, have >> j & 1u);
#pragma unroll
    for (uint32_t i = 0; i < 2 * J; i++) {
        q[i] = 0.0f;
        if (32 * i < runs) asm volatile("ld.global.f32 %0, [%1];" : "=f"(q[i]) : "l"(part + 128 * i) : "memory");
    }
#pragma unroll
    for (uint32_t i = 0; i < 2 * J; i++) s = __fadd_rn(s, q[i]);
    const float scale = wk_norm_scale(wk_warp_sum(s), p.k, p.in.eps);
#pragma unroll
    for (uint32_t j = 0; j < J; j++) {
        if (!(have >> j & 1u)) continue;
        const __half2 low = wk_act_half2(wk_rms_value(__uint_as_float(v[j].x), scale, w[j].x),
                                         wk_rms_value(__uint_as_float(v[j].y), scale, w[j].y));
        const __half2 high = wk_act_half2(wk_rms_value(__uint_as_float(v[j].z), scale, w[j].z),
                                          wk_rms_value(__uint_as_float(v[j].w), scale, w[j].w));
        *reinterpret_cast<uint2 *>(shared + to + (j / 2 * 2048 + j % 2 * odd) * 2) =
            make_uint2(*reinterpret_cast<const uint32_t *>(&low), *reinterpret_cast<const uint32_t *>(&high));
    }
}

/* Act rows: values 16 bytes at a time, zeros past k32. A lane keeps to one column. */
template <int COLUMNS>
__device__ __forceinline__ void wk_prologue_act(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                                uint32_t rows)
{
    constexpr uint32_t apart = 32 / COLUMNS;
    const uint32_t lane = threadIdx.x & 31u, c = lane % COLUMNS, own = wk_own_k_steps(p, warp) << p.k_step_shift,
                   row = c < rows ? wk_input_row(p, c) : 0;
    if (c >= rows) return;
    __half *const x = reinterpret_cast<__half *>(shared + p.x_at) + c * p.x_stride;
    const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
    for (uint32_t i = lane / COLUMNS; i < own / 8; i += apart * WK_AHEAD) {
        uint4 v[WK_AHEAD];
        uint32_t k[WK_AHEAD];
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++) {
            k[j] = wk_own_k(p, warp, (i + apart * j) * 8);
            v[j] = make_uint4(0, 0, 0, 0);
            if (i + apart * j < own / 8 && k[j] < p.k32) v[j] = *reinterpret_cast<const uint4 *>(from + k[j]);
        }
#pragma unroll
        for (uint32_t j = 0; j < WK_AHEAD; j++)
            if (i + apart * j < own / 8) *reinterpret_cast<uint4 *>(x + k[j]) = v[j];
    }
}

/* All columns of the launch. Waits for the preceding one. */
template <int COLUMNS>
__device__ __forceinline__ void wk_prologue(const wk_product_args &p, unsigned char *shared, uint32_t warp,
                                            uint32_t lane)
{
    if constexpr (COLUMNS == 1) {
        if (p.in.kind == WK_CUDA_IN_ACT)
            wk_one_act(p, shared, warp, lane);
        else if (p.k % 4 || p.in.x_stride % 4 ||
                 (reinterpret_cast<uintptr_t>(p.in.x) | reinterpret_cast<uintptr_t>(p.in.w)) % 16)
            wk_one_rms<false>(p, shared, warp, lane);
        else if (wk_is_short_rms<1>(p))
            wk_short_rms<1>(p, shared, warp, lane);
        else if (wk_is_short_rms<4>(p))
            wk_short_rms<4>(p, shared, warp, lane);
        else
            wk_one_rms<true>(p, shared, warp, lane);
    } else {
        wk_depend();
        wk_prologue_act<COLUMNS>(p, shared, warp, p.rows);
    }
    __syncwarp();
}

#endif
