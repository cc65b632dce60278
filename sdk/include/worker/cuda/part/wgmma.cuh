/* worker/cuda/part/wgmma.cuh: tensor products of a warpgroup on sm_90a: 64 rows of A, n columns of B in shared memory,
 * F32 sums.
 *
 * A in registers and the sums are those of part/mma.cuh, warp w of the four having rows 16w .. 16w + 15: A is { (g,
 * low), (g
 * + 8, low), (g, high), (g + 8, high) } pairs of k, the sums of n columns are n / 8 fragments of { (g, 2t), (g, 2t +
 * 1), (g + 8, 2t), (g + 8, 2t + 1) }. In shared memory operands lie either
 *   swizzled: columns one after the other in rows of 128 bytes (64 values of k), the 16-byte chunk c of row r at
 *       chunk c ^ (r & 7), the first row at a multiple of 1024
 *   plain:    in blocks of 8 x 8 halves, 128 bytes each
 *
 * Relied on: a step of 16 values of k is added to a sum in one way, whatever the number of columns, and steps in the
 * order in which they were issued; so a column's bits do not depend on how many stand beside it. */
#ifndef WORKER_CUDA_PART_WGMMA_CUH
#define WORKER_CUDA_PART_WGMMA_CUH

#include <stdint.h>

/* Swizzled, from `address` in shared memory on; address + 32 i: from value 16 i of the 64 on. */
__host__ __device__ __forceinline__ uint64_t wk_wgmma_swizzled(uint32_t address)
{
    return (uint64_t)((address & 0x3ffffu) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
/* Plain: start, the distance from block to block along k, and along rows (straight) or columns; for a transposed
 * operand the distances change places. Bytes, multiples of 16. */
__host__ __device__ __forceinline__ uint64_t wk_wgmma_plain(uint32_t address, uint32_t lead, uint32_t stride)
{
    return (uint64_t)((address & 0x3ffffu) >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* Registers that a product reads or sums were written: before the next one. */
__device__ __forceinline__ void wk_wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wk_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most N of the groups committed last are under way. */
template <int N> __device__ __forceinline__ void wk_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Registers of A have their values here and not later, between products: the compiler knows nothing of what is under
 * way. */
template <int N> __device__ __forceinline__ void wk_wgmma_hold(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3]));
}
/* A register of A gets a value, FROM_MEMORY one that comes from there as it is. The assembler takes a product for an
 * instruction that is over when it is issued, and may give the register to anything that is made before the wait: F16's
 * values took such registers. So the new value depends on the old one, which keeps its register until here, behind the
 * wait. zero: 0, and neither compiler may know it. Weights that are computed (all other formats) have kept out of such
 * registers; cmake/check_wgmma.py looks at the machine code of all. */
template <bool FROM_MEMORY> __device__ __forceinline__ void wk_wgmma_replace(uint32_t &a, uint32_t v, uint32_t zero)
{
    if constexpr (FROM_MEMORY)
        asm volatile("lop3.b32 %0, %0, %1, %2, 0xea;" : "+r"(a) : "r"(zero), "r"(v) : "memory");
    else
        a = v;
}

/* c[i] for the first N / 8: += A B, A in registers; add: B straight; add_turned: B transposed. */
template <int N> struct wk_wgmma;

/* c[i] for the first N / 8: = A B, with `more` += A B, B straight. */
template <int N> struct wk_wgmma_first;

#define WK_SUMS1(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define WK_SUMS2(c, i) WK_SUMS1(c, i), WK_SUMS1(c, i + 1)
#define WK_SUMS4(c, i) WK_SUMS2(c, i), WK_SUMS2(c, i + 2)
#define WK_SUMS8(c, i) WK_SUMS4(c, i), WK_SUMS4(c, i + 4)
#define WK_R4 "%0,%1,%2,%3"
#define WK_R8 WK_R4 ",%4,%5,%6,%7"
#define WK_R12 WK_R8 ",%8,%9,%10,%11"
#define WK_R16 WK_R12 ",%12,%13,%14,%15"
#define WK_R20 WK_R16 ",%16,%17,%18,%19"
#define WK_R24 WK_R20 ",%20,%21,%22,%23"
#define WK_R28 WK_R24 ",%24,%25,%26,%27"
#define WK_R32 WK_R28 ",%28,%29,%30,%31"
#define WK_R36 WK_R32 ",%32,%33,%34,%35"
#define WK_R40 WK_R36 ",%36,%37,%38,%39"
#define WK_R44 WK_R40 ",%40,%41,%42,%43"
#define WK_R48 WK_R44 ",%44,%45,%46,%47"
#define WK_R52 WK_R48 ",%48,%49,%50,%51"
#define WK_R56 WK_R52 ",%52,%53,%54,%55"
#define WK_R60 WK_R56 ",%56,%57,%58,%59"
#define WK_R64 WK_R60 ",%60,%61,%62,%63"
/* operands: the places of A and B behind the sums; the sums' registers follow. */
#define WK_WGMMA_ADD(N, turned, registers, operands, ...)                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 {" registers "}," operands ",1,1,1," #turned \
                 ";"                                                                                                  \
                 : __VA_ARGS__                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define WK_WGMMA_OF(N, registers, operands, ...)                                                                \
    template <> struct wk_wgmma<N> {                                                                            \
        template <int M>                                                                                        \
        static __device__ __forceinline__ void add(float (&c)[M][4], const uint32_t (&a)[4], uint64_t b)        \
        {                                                                                                       \
            static_assert(M >= N / 8, "sums of all columns");                                                   \
            WK_WGMMA_ADD(N, 0, registers, operands, __VA_ARGS__);                                               \
        }                                                                                                       \
        template <int M>                                                                                        \
        static __device__ __forceinline__ void add_turned(float (&c)[M][4], const uint32_t (&a)[4], uint64_t b) \
        {                                                                                                       \
            static_assert(M >= N / 8, "sums of all columns");                                                   \
            WK_WGMMA_ADD(N, 1, registers, operands, __VA_ARGS__);                                               \
        }                                                                                                       \
    }
WK_WGMMA_OF(8, WK_R4, "{%4,%5,%6,%7},%8", WK_SUMS1(c, 0));
WK_WGMMA_OF(16, WK_R8, "{%8,%9,%10,%11},%12", WK_SUMS2(c, 0));
WK_WGMMA_OF(24, WK_R12, "{%12,%13,%14,%15},%16", WK_SUMS2(c, 0), WK_SUMS1(c, 2));
WK_WGMMA_OF(32, WK_R16, "{%16,%17,%18,%19},%20", WK_SUMS4(c, 0));
WK_WGMMA_OF(40, WK_R20, "{%20,%21,%22,%23},%24", WK_SUMS4(c, 0), WK_SUMS1(c, 4));
WK_WGMMA_OF(48, WK_R24, "{%24,%25,%26,%27},%28", WK_SUMS4(c, 0), WK_SUMS2(c, 4));
WK_WGMMA_OF(56, WK_R28, "{%28,%29,%30,%31},%32", WK_SUMS4(c, 0), WK_SUMS2(c, 4), WK_SUMS1(c, 6));
WK_WGMMA_OF(64, WK_R32, "{%32,%33,%34,%35},%36", WK_SUMS8(c, 0));
WK_WGMMA_OF(72, WK_R36, "{%36,%37,%38,%39},%40", WK_SUMS8(c, 0), WK_SUMS1(c, 8));
WK_WGMMA_OF(80, WK_R40, "{%40,%41,%42,%43},%44", WK_SUMS8(c, 0), WK_SUMS2(c, 8));
WK_WGMMA_OF(88, WK_R44, "{%44,%45,%46,%47},%48", WK_SUMS8(c, 0), WK_SUMS2(c, 8), WK_SUMS1(c, 10));
WK_WGMMA_OF(96, WK_R48, "{%48,%49,%50,%51},%52", WK_SUMS8(c, 0), WK_SUMS4(c, 8));
WK_WGMMA_OF(104, WK_R52, "{%52,%53,%54,%55},%56", WK_SUMS8(c, 0), WK_SUMS4(c, 8), WK_SUMS1(c, 12));
WK_WGMMA_OF(112, WK_R56, "{%56,%57,%58,%59},%60", WK_SUMS8(c, 0), WK_SUMS4(c, 8), WK_SUMS2(c, 12));
WK_WGMMA_OF(120, WK_R60, "{%60,%61,%62,%63},%64", WK_SUMS8(c, 0), WK_SUMS4(c, 8), WK_SUMS2(c, 12), WK_SUMS1(c, 14));
WK_WGMMA_OF(128, WK_R64, "{%64,%65,%66,%67},%68", WK_SUMS8(c, 0), WK_SUMS8(c, 8));
#define WK_WGMMA_FIRST(N, registers, operands, more, ...)                                                           \
    template <> struct wk_wgmma_first<N> {                                                                          \
        template <int M>                                                                                            \
        static __device__ __forceinline__ void add(float (&c)[M][4], const uint32_t (&a)[4], uint64_t b, bool adds) \
        {                                                                                                           \
            static_assert(M >= N / 8, "sums of all columns");                                                       \
            asm volatile("{.reg .pred p; setp.ne.b32 p," more ",0; wgmma.mma_async.sync.aligned.m64n" #N            \
                         "k16.f32.f16.f16 {" registers "}," operands ",p,1,1,0;}"                                   \
                         : __VA_ARGS__                                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds));                     \
        }                                                                                                           \
    }
WK_WGMMA_FIRST(8, WK_R4, "{%4,%5,%6,%7},%8", "%9", WK_SUMS1(c, 0));
WK_WGMMA_FIRST(16, WK_R8, "{%8,%9,%10,%11},%12", "%13", WK_SUMS2(c, 0));
WK_WGMMA_FIRST(32, WK_R16, "{%16,%17,%18,%19},%20", "%21", WK_SUMS4(c, 0));
WK_WGMMA_FIRST(64, WK_R32, "{%32,%33,%34,%35},%36", "%37", WK_SUMS8(c, 0));

/* c (=, with `more`: +=) A B^T, 64 x 64, both straight in shared memory. */
__device__ __forceinline__ void wk_wgmma_64(float (&c)[8][4], uint64_t a, uint64_t b, bool more)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p,%34,0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WK_R32
                 "},%32,%33,p,1,1,0,0;}"
                 : WK_SUMS8(c, 0)
                 : "l"(a), "l"(b), "r"((int)more));
}

#undef WK_WGMMA_OF
#undef WK_WGMMA_ADD
#undef WK_WGMMA_FIRST
#undef WK_SUMS1
#undef WK_SUMS2
#undef WK_SUMS4
#undef WK_SUMS8
#undef WK_R4
#undef WK_R8
#undef WK_R12
#undef WK_R16
#undef WK_R20
#undef WK_R24
#undef WK_R28
#undef WK_R32
#undef WK_R36
#undef WK_R40
#undef WK_R44
#undef WK_R48
#undef WK_R52
#undef WK_R56
#undef WK_R60
#undef WK_R64

#endif
