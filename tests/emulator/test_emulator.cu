/* test_emulator.cu: the emulator itself: that it computes what PTX says where no other test would see a difference, and
 * that it finds what it is there to find. Each fault runs in a child, since a kernel that fails ends the runtime's
 * life. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

extern "C" {
#include <cmocka.h>
}

/* ---- arithmetic ---------------------------------------------------------------------------------------- */

enum { RESULTS = 16 };
static __global__ void instructions(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out)
{
    const uint32_t i = threadIdx.x, x = a[i], y = b[i], z = c[i];
    uint32_t r[RESULTS];
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r[0]) : "r"(x), "r"(y), "r"(z & 0xffff));
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r[1]) : "r"(x), "r"(y), "r"(z));
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r[2]) : "r"(x), "r"(y), "r"(z));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r[3]) : "r"(x), "r"(y & 63), "r"(z & 63));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r[4]) : "r"(x), "r"(y), "r"(z & 63), "r"(x & 31));
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(r[5]) : "r"(x), "r"(y), "r"(z));
    asm("fma.rm.f32 %0, %1, %2, %3;" : "=r"(r[6]) : "r"(x), "r"(y), "r"(z));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[7]) : "r"(x));
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r[8]) : "r"(x), "r"(y));
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r[9]) : "r"(x), "r"(y), "r"(z));
    asm("shl.b32 %0, %1, %2;" : "=r"(r[10]) : "r"(x), "r"(y & 63));
    asm("shr.s32 %0, %1, %2;" : "=r"(r[11]) : "r"(x), "r"(y & 63));
    asm("mul.hi.s32 %0, %1, %2;" : "=r"(r[12]) : "r"(x), "r"(y));
    r[13] = __shfl_sync(~0u, x, (int)(y & 31), 8);
    r[14] = __shfl_up_sync(~0u, x, 3, 16);
    r[15] = __reduce_max_sync(~0u, y);
    for (uint32_t k = 0; k < RESULTS; k++) out[k * 32 + i] = r[k];
}

static float as_float(uint32_t b)
{
    float f;
    memcpy(&f, &b, 4);
    return f;
}
static double half_of(uint32_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}
/* The neighbours of a half or F32 in the order of values say whether a rounding was right, without a second
 * implementation of it. */
static bool nearest_half(uint32_t h, double exact)
{
    if (isnan(exact)) return (h & 0x7fff) > 0x7c00;
    const double v = half_of(h), err = fabs(v - exact);
    if (isinf(v)) return fabs(exact) >= 65520;
    for (int d = -1; d <= 1; d += 2) {
        const uint32_t n = (h & 0x7fff) == 0 && d < 0 ? (h ^ 0x8000) + 1 : h + (uint32_t)d;
        const double other = fabs(half_of(n & 0xffff) - exact);
        if (other < err || (other == err && (h & 1))) return false;
    }
    return true;
}
static uint32_t expected_bit(uint32_t table, uint32_t x, uint32_t y, uint32_t z, unsigned n)
{
    return table >> ((x >> n & 1) << 2 | (y >> n & 1) << 1 | (z >> n & 1)) & 1;
}

static void test_instructions(void **state)
{
    uint32_t h[3][32], out[RESULTS][32], *d[3], *result;
    uint64_t seed = 88172645463325252u;
    (void)state;
    for (int k = 0; k < 3; k++) assert_int_equal(cudaMalloc(&d[k], sizeof h[k]), cudaSuccess);
    assert_int_equal(cudaMalloc(&result, sizeof out), cudaSuccess);
    for (int round = 0; round < 64; round++) {
        uint32_t most = 0;
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 32; i++) {
                seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
                h[k][i] = (uint32_t)(seed >> 16);
                if (round & 1) h[k][i] = (h[k][i] & 0x80ffffffu) | 0x3c000000u; /* floats near one, halves too */
            }
        for (int k = 0; k < 3; k++)
            assert_int_equal(cudaMemcpy(d[k], h[k], sizeof h[k], cudaMemcpyHostToDevice), cudaSuccess);
        instructions<<<1, 32>>>(d[0], d[1], d[2], result);
        assert_int_equal(cudaMemcpy(out, result, sizeof out, cudaMemcpyDeviceToHost), cudaSuccess);
        for (int i = 0; i < 32; i++) most = h[1][i] > most ? h[1][i] : most;
        for (int i = 0; i < 32; i++) {
            const uint32_t x = h[0][i], y = h[1][i], z = h[2][i];
            uint32_t want = 0;
            for (unsigned n = 0; n < 4; n++) {
                const uint32_t s = z >> (4 * n) & 15, v = (uint32_t)((((uint64_t)y << 32) | x) >> (8 * (s & 7))) & 255;
                want |= (s & 8 ? (v & 128 ? 255u : 0) : v) << (8 * n);
            }
            assert_int_equal(out[0][i], want);
            want = 0;
            for (unsigned n = 0; n < 32; n++) want |= expected_bit(0x6a, x, y, z, n) << n;
            assert_int_equal(out[1][i], want);
            assert_int_equal(out[2][i], z & 31 ? y << (z & 31) | x >> (32 - (z & 31)) : y);
            want = 0;
            for (unsigned n = 0; n < 32; n++) { /* the manual's own loop */
                const uint32_t pos = y & 63, len = z & 63, top = pos + len - 1 < 31 ? pos + len - 1 : 31,
                               fill = len ? x >> top & 1 : 0;
                want |= (n < len && pos + n <= 31 ? x >> (pos + n) & 1 : fill) << n;
            }
            assert_int_equal(out[3][i], want);
            want = y;
            for (unsigned n = 0, pos = z & 63; n < (x & 31) && pos + n <= 31; n++)
                want = (want & ~(1u << (pos + n))) | (x >> n & 1) << (pos + n);
            assert_int_equal(out[4][i], want);
            want = z;
            for (unsigned n = 0; n < 4; n++) want += (uint32_t)((int8_t)(x >> (8 * n)) * (int)(y >> (8 * n) & 255));
            assert_int_equal(out[5][i], want);
            if (round & 1) { /* exact in a long double, so the float below is the last that is not above */
                const long double exact = (long double)as_float(x) * as_float(y) + as_float(z);
                const float got = as_float(out[6][i]);
                assert_true((long double)got <= exact && (long double)nextafterf(got, INFINITY) > exact);
                const float t = as_float(out[7][i]);
                assert_int_equal(out[7][i] & 0x1fff, 0);
                assert_true(fabsf(t - as_float(x)) <= ldexpf(1, ilogbf(as_float(x)) - 11));
            }
            for (unsigned n = 0; n < 2; n++) {
                const float f = as_float(n ? x : y);
                const uint32_t got = out[8][i] >> (16 * n) & 0xffff;
                assert_true(fabsf(f) > 65504.0f ? got == ((f < 0 ? 0x8000u : 0) | 0x7bff) : nearest_half(got, f));
                const double a = half_of(x >> (16 * n) & 0xffff), b = half_of(y >> (16 * n) & 0xffff),
                             c = half_of(z >> (16 * n) & 0xffff);
                if (round & 1) assert_true(nearest_half(out[9][i] >> (16 * n) & 0xffff, a * b + c));
            }
            assert_int_equal(out[10][i], (y & 63) > 31 ? 0 : x << (y & 63));
            assert_int_equal(out[11][i], (uint32_t)((int32_t)x >> ((y & 63) > 31 ? 31 : y & 63)));
            assert_int_equal(out[12][i], (uint32_t)(((int64_t)(int32_t)x * (int32_t)y) >> 32));
            assert_int_equal(out[13][i], h[0][(i & ~7) | (y & 7)]);
            assert_int_equal(out[14][i], i % 16 < 3 ? x : h[0][i - 3]);
            assert_int_equal(out[15][i], most);
        }
    }
    for (int k = 0; k < 3; k++) assert_int_equal(cudaFree(d[k]), cudaSuccess);
    assert_int_equal(cudaFree(result), cudaSuccess);
}

/* ---- tensor cores: the same sums in whole numbers, of which none is cut by chance ---------------------- */

static __global__ void multiply_once(const uint32_t *a, const uint32_t *b, const float *c, float *d)
{
    const uint32_t l = threadIdx.x;
    float r[4];
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, "
        "%12, %13};"
        : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
        : "r"(a[4 * l]), "r"(a[4 * l + 1]), "r"(a[4 * l + 2]), "r"(a[4 * l + 3]), "r"(b[2 * l]), "r"(b[2 * l + 1]),
          "f"(c[4 * l]), "f"(c[4 * l + 1]), "f"(c[4 * l + 2]), "f"(c[4 * l + 3]));
    for (int n = 0; n < 4; n++) d[4 * l + n] = r[n];
}

/* mantissa * 2^exponent of a half or F32; the exponent that aligns terms is 10 or 23 above. */
struct parts {
    int64_t mantissa;
    int exponent;
};
static struct parts parts_of(uint32_t bits, int fraction, int exponent_bits)
{
    const int e = (int)(bits >> fraction & ((1u << exponent_bits) - 1)), bias = (1 << (exponent_bits - 1)) - 1;
    const int64_t m = (bits & ((1u << fraction) - 1)) | (e ? 1u << fraction : 0);
    return { bits >> (fraction + exponent_bits) & 1 ? -m : m, (e ? e : 1) - bias - fraction };
}
static int64_t cut(int64_t m, int shift)
{
    return shift >= 0 ? m * ((int64_t)1 << shift) : shift < -62 ? 0 : m < 0 ? -(-m >> -shift) : m >> -shift;
}
static double whole_sum(const uint16_t *a, const uint16_t *b, float c)
{
    struct parts term[17];
    int most = -10000;
    int64_t sum = 0;
    uint32_t bits;
    memcpy(&bits, &c, 4);
    for (int k = 0; k < 16; k++) {
        const struct parts x = parts_of(a[k], 10, 5), y = parts_of(b[k], 10, 5);
        term[k] = { x.mantissa * y.mantissa, x.exponent + y.exponent };
        if (term[k].mantissa && term[k].exponent + 20 > most) most = term[k].exponent + 20;
    }
    term[16] = parts_of(bits, 23, 8);
    if (term[16].mantissa && term[16].exponent + 23 > most) most = term[16].exponent + 23;
    for (int k = 0; k < 17; k++) sum += term[k].mantissa ? cut(term[k].mantissa, term[k].exponent - (most - 25)) : 0;
    int shift = 0;
    while ((sum < 0 ? -sum : sum) >> (24 + shift)) shift++; /* 24 bits are left */
    return sum ? ldexp((double)(cut(sum, -shift) * ((int64_t)1 << shift)), most - 25) : 0.0;
}

static void test_tensor(void **state)
{
    uint16_t a[16][16], b[8][16];
    uint32_t fa[128], fb[64], *da, *db;
    float c[16][8], fc[128], fd[128], *dc, *dd;
    uint32_t seed = 7;
    (void)state;
    assert_int_equal(cudaMalloc(&da, sizeof fa) | cudaMalloc(&db, sizeof fb) | cudaMalloc(&dc, sizeof fc) |
                         cudaMalloc(&dd, sizeof fd),
                     cudaSuccess);
    for (int round = 0; round < 200; round++) {
        const uint32_t spread = round % 4 == 0   ? 0x0c00
                                : round % 4 == 1 ? 0x3c00
                                : round % 4 == 2 ? 0
                                                 : 0x7800; /* exponents that vary: few, many, none (subnormal), all */
        auto half = [&]() {
            seed = seed * 1664525u + 1013904223u;
            return (uint16_t)((seed >> 16 & (0x83ff | spread)) | (round % 4 < 2 ? 0x3000 & ~spread : 0));
        };
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < 16; k++) a[r][k] = half();
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < 16; k++) b[n][k] = half();
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++) {
                seed = seed * 1664525u + 1013904223u;
                c[r][n] = round % 5 ? ldexpf((float)(int32_t)seed, -31 - (int)(seed % 40)) : 0.0f;
            }
        for (int l = 0; l < 32; l++) {
            const int g = l / 4, t = 2 * (l % 4);
            for (int n = 0; n < 4; n++)
                fa[4 * l + n] = a[g + 8 * (n % 2)][t + 8 * (n / 2)] | (uint32_t)a[g + 8 * (n % 2)][t + 8 * (n / 2) + 1]
                                                                          << 16;
            for (int n = 0; n < 2; n++) fb[2 * l + n] = b[g][t + 8 * n] | (uint32_t)b[g][t + 8 * n + 1] << 16;
            for (int n = 0; n < 4; n++) fc[4 * l + n] = c[g + 8 * (n / 2)][t + n % 2];
        }
        assert_int_equal(cudaMemcpy(da, fa, sizeof fa, cudaMemcpyHostToDevice) |
                             cudaMemcpy(db, fb, sizeof fb, cudaMemcpyHostToDevice) |
                             cudaMemcpy(dc, fc, sizeof fc, cudaMemcpyHostToDevice),
                         cudaSuccess);
        multiply_once<<<1, 32>>>(da, db, dc, dd);
        assert_int_equal(cudaMemcpy(fd, dd, sizeof fd, cudaMemcpyDeviceToHost), cudaSuccess);
        for (int l = 0; l < 32; l++)
            for (int n = 0; n < 4; n++) {
                const int r = l / 4 + 8 * (n / 2), k = 2 * (l % 4) + n % 2;
                assert_true((double)fd[4 * l + n] == whole_sum(a[r], b[k], c[r][k]));
            }
    }
    assert_int_equal(cudaFree(da) | cudaFree(db) | cudaFree(dc) | cudaFree(dd), cudaSuccess);
}

/* ---- faults -------------------------------------------------------------------------------------------- */

enum fault {
    PAST_END,
    FREED,
    MISALIGNED,
    HOST_POINTER,
    PAST_SHARED,
    PARTED_BARRIER,
    NOT_INITIALISED,
    NEVER_ARRIVES,
    PAST_ARRIVALS,
    GREEDY_SPIN
};
static __global__ void do_wrong(enum fault f, float *p)
{
    __shared__ float s[32];
    __shared__ alignas(8) uint64_t barrier;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(&barrier);
    uint32_t done = 0;
    switch (f) {
    case PAST_END: p[1024 + threadIdx.x] = 1; break;
    case FREED:
    case HOST_POINTER: p[threadIdx.x] = 1; break;
    case MISALIGNED: *(float2 *)(p + 1) = make_float2(1, 2); break;
    case PAST_SHARED:
        s[threadIdx.x] = p[0];
        p[0] = s[threadIdx.x + 1024];
        break;
    case PARTED_BARRIER:
        if (threadIdx.x < 16)
            __syncthreads();
        else
            while (((volatile float *)p)[0] != 7.0f) continue;
        break;
    case GREEDY_SPIN:
        while (((volatile float *)p)[blockIdx.x == 0 ? 1 : 0] != 7.0f) continue;
        break; /* for a block that runs later */
    case NEVER_ARRIVES:
    case PAST_ARRIVALS:
        asm volatile("mbarrier.init.shared.b64 [%0], 2;" ::"r"(at));
        for (int n = 0; n < (f == PAST_ARRIVALS ? 3 : 1) && threadIdx.x == 0; n++) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 16;" ::"r"(at) : "memory");
        }
        /* falls through */
    case NOT_INITIALISED:
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(at)
                         : "memory");
        break;
    }
}
static int run_wrong(enum fault f, const char *text)
{
    static float ours[64];
    float *p = NULL;
    if (cudaMalloc(&p, 4096) || cudaMemset(p, 0, 4096)) return 2;
    if (f == FREED && cudaFree(p)) return 2;
    do_wrong<<<1, 32>>>(f, f == HOST_POINTER ? ours : p);
    const cudaError_t e = cudaDeviceSynchronize();
    if (e != cudaSuccess && strstr(cudaGetErrorString(e), text) && strstr(cudaGetErrorString(e), "do_wrong")) return 0;
    (void)printf("expected \"%s\", got \"%s\"\n", text, cudaGetErrorString(e));
    return 1;
}
static int child(int (*body)(int, const char *), int what, const char *text, uint32_t seed)
{
    int status = 0;
    char number[16];
    (void)fflush(stdout);
    const pid_t id = fork();
    if (id == 0) {
        (void)snprintf(number, sizeof number, "%u", seed);
        (void)setenv("EMULATOR_SEED", number, 1);
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        const int code = body(what, text);
        (void)fflush(stdout);
        _exit(code);
    }
    assert_true(id > 0 && waitpid(id, &status, 0) == id && WIFEXITED(status));
    return WEXITSTATUS(status);
}
static int wrong_body(int f, const char *text) { return run_wrong((enum fault)f, text); }

static void test_faults(void **state)
{
    static const struct {
        enum fault fault;
        const char *text;
    } cases[] = {
        { PAST_END, "no device memory there" }, { FREED, "no device memory there" },
        { MISALIGNED, "misaligned" },           { HOST_POINTER, "neither device memory nor host memory" },
        { PAST_SHARED, "the block has" },       { PARTED_BARRIER, "deadlock" },
        { NOT_INITIALISED, "not initialised" }, { NEVER_ARRIVES, "deadlock" },
        { PAST_ARRIVALS, "more arrivals" },     { GREEDY_SPIN, "deadlock" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(child(wrong_body, cases[i].fault, cases[i].text, 0), 0);
}

/* ---- what is not waited for ---------------------------------------------------------------------------- */

enum wait { ASYNC_WITHOUT, ASYNC_WITH, BULK_WITHOUT, BULK_WITH, WARPS_WITHOUT, WARPS_WITH };
static __global__ void copy_through(enum wait how, const float *from, float *to)
{
    __shared__ alignas(16) float s[128];
    __shared__ alignas(8) uint64_t barrier;
    const uint32_t t = threadIdx.x, at = (uint32_t)__cvta_generic_to_shared(&barrier);
    uint32_t done = 0;
    if (how <= ASYNC_WITH) {
        __pipeline_memcpy_async(&s[t], &from[t], 4);
        __pipeline_commit();
        if (how == ASYNC_WITH) __pipeline_wait_prior(0);
    } else if (how <= BULK_WITH) {
        if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
        __syncthreads();
        if (t == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" ::"r"(at) : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
                    (uint32_t)__cvta_generic_to_shared(s)),
                "l"(from), "r"(at)
                : "memory");
        }
        while (how == BULK_WITH && !done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(at)
                         : "memory");
    } else {
        s[t] = from[t];
    }
    if (how != WARPS_WITHOUT) __syncthreads();
    to[t] = how >= WARPS_WITHOUT ? ((volatile float *)s)[t ^ 96] : ((volatile float *)s)[t];
    while (how == BULK_WITHOUT && !done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
}
static int copy_body(int how, const char *text)
{
    float host[128], *p = NULL;
    int wrong = 0;
    (void)text;
    for (int i = 0; i < 128; i++) host[i] = (float)i;
    if (cudaMalloc(&p, 1024) || cudaMemcpy(p, host, 512, cudaMemcpyHostToDevice)) return 2;
    copy_through<<<1, 128>>>((enum wait)how, p, p + 128);
    if (cudaMemcpy(host, p + 128, 512, cudaMemcpyDeviceToHost)) return 2;
    for (int i = 0; i < 128; i++) wrong += !(host[i] == (float)(how >= WARPS_WITHOUT ? i ^ 96 : i));
    return wrong != 0;
}
static void test_waits(void **state)
{
    (void)state;
    assert_int_equal(child(copy_body, ASYNC_WITHOUT, NULL, 0), 1);
    assert_int_equal(child(copy_body, BULK_WITHOUT, NULL, 0), 1);
    assert_int_equal(child(copy_body, WARPS_WITHOUT, NULL, 0), 1);
    for (uint32_t seed = 0; seed < 5; seed++)
        for (int how = ASYNC_WITH; how <= WARPS_WITH; how += 2) assert_int_equal(child(copy_body, how, NULL, seed), 0);
}

int main(void)
{
    /* children first: the seed is read at a process's first launch */
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_faults), cmocka_unit_test(test_waits),
                                        cmocka_unit_test(test_instructions), cmocka_unit_test(test_tensor) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
