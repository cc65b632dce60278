/* worker/cuda/tiles.cuh: everything of a format but its product, from its device header: WK_TYPE_CUDA(name, F) defines
 * `const struct wk_type_cuda name`.
 *
 *   pack, unpack   a thread computes 4 bytes of a tile, 2 bytes of a row, by F::pack and F::unpack
 *   expand         a warp takes 256 values of the 16 rows through the fragments of the product and stores them in
 *                  runs of 16 bytes; none for a format of several
 *                  parts, which has more bits than f16
 *   gather         the same for single rows, in F32, scaled, added, with their partials
 *
 * value = scale * q - min, each operation rounded, which is what a CPU side dequantizes to. A format whose fragments
 * are rounded (F32: they hold f16) says what its values are by one member more:
 *
 *   void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])   values 8i .. 8i + 7 of a row; those
 *   past k, up to a multiple of 32, are 0
 *
 * Relied on beyond format.cuh: offset(u + super) = offset(u) + offset(super); `block` divides unit * super or is a
 * multiple of it. */
#ifndef WORKER_CUDA_TILES_CUH
#define WORKER_CUDA_TILES_CUH

#include <cuda_runtime.h>

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/quant_cuda.h>

enum {
    WK_TILES_THREADS = 256,
    WK_TILES_WARPS = WK_TILES_THREADS / 32,
    WK_TILES_RUN = 256 /* values of k a warp takes */
};

template <class F, class = void> struct wk_has_eight {
    static constexpr bool yes = false;
};
template <class F>
struct wk_has_eight<F, decltype(F::eight(static_cast<const unsigned char *>(nullptr), 0u, 0u,
                                         static_cast<float *>(nullptr)))> {
    static constexpr bool yes = true;
};

/* ---- file order <-> tiles ------------------------------------------------------------------------------ */

/* Block (tile, y): words of a tile, in steps of the grid. */
template <class F>
__global__ void __launch_bounds__(WK_TILES_THREADS)
    wk_pack_tiles(unsigned char *tiles, const unsigned char *rows, uint64_t row_bytes, uint32_t n_rows, uint32_t k)
{
    const uint32_t tile = blockIdx.x, words = (uint32_t)(F::tile_bytes(k) / 4),
                   super_words = (uint32_t)(F::offset(F::super) / 4);
    wk_tile_rows r;
    r.rows = rows + (uint64_t)tile * 16 * row_bytes;
    r.row_bytes = row_bytes;
    r.n_rows = tile * 16 < n_rows ? min(n_rows - tile * 16, 16u) : 0;
    r.k = k;
    uint32_t *out = reinterpret_cast<uint32_t *>(tiles + tile * wk_tile_stride<F>(k));
    for (uint32_t i = blockIdx.y * WK_TILES_THREADS + threadIdx.x; i < words; i += gridDim.y * WK_TILES_THREADS) {
        uint32_t u = i / super_words * F::super, word = i % super_words, next = u;
        for (uint32_t j = 1; j < F::super; j++) /* the unit that the word belongs to */
            if (word * 4 >= F::offset(j)) next = u + j;
        word -= (uint32_t)(F::offset(next - u) / 4);
        out[i] = F::pack(r, next, word);
    }
}

/* Block (row, y): bytes of a row, in twos. */
template <class F>
__global__ void __launch_bounds__(WK_TILES_THREADS)
    wk_unpack_tiles(const unsigned char *tiles, unsigned char *rows, uint64_t row_bytes, uint32_t k)
{
    constexpr uint32_t halves = (F::block_bytes + 1) / 2;
    const uint32_t row = blockIdx.x, n = k / F::block * halves;
    const unsigned char *tile = tiles + row / 16 * wk_tile_stride<F>(k);
    unsigned char *out = rows + row * row_bytes;
    for (uint32_t i = blockIdx.y * WK_TILES_THREADS + threadIdx.x; i < n; i += gridDim.y * WK_TILES_THREADS) {
        const uint32_t block = i / halves, half = i % halves, v = F::unpack(tile, row % 16, block, half);
        unsigned char *to = out + (uint64_t)block * F::block_bytes + 2 * half;
        if constexpr (F::block_bytes % 2 == 0) {
            *reinterpret_cast<uint16_t *>(to) = (uint16_t)v;
        } else {
            to[0] = (unsigned char)v;
            if (2 * half + 1 < F::block_bytes) to[1] = (unsigned char)(v >> 8);
        }
    }
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* Unit u where it can be loaded whole: where it lies, or, if the tile ends before it does, a copy with zeros. stage:
 * slot bytes of the warp's own. */
template <class F>
__device__ __forceinline__ const unsigned char *wk_whole_unit(const unsigned char *tile, uint32_t k, uint32_t u,
                                                              unsigned char *stage)
{
    const uint64_t first = F::offset(u);
    if constexpr (F::block % F::unit != 0) {
        const uint64_t tile_bytes = F::tile_bytes(k);
        if (F::offset(u + 1) > tile_bytes) {
            __syncwarp();
            for (uint32_t i = (threadIdx.x & 31u) * 16; i < F::slot; i += 512)
                *reinterpret_cast<uint4 *>(stage + i) = first + i < tile_bytes
                                                            ? *reinterpret_cast<const uint4 *>(tile + first + i)
                                                            : make_uint4(0, 0, 0, 0);
            __syncwarp();
            return stage;
        }
    }
    return tile + first;
}

/* 32 values of rows g and g + 8 as lane (g, t) holds them: group 32: 8t .. 8t + 7; group 16: 4t .. 4t +
 * 3 of either 16. */
template <class F>
__device__ __forceinline__ void wk_values(const typename F::scales &s, const typename F::quants &q, uint32_t u,
                                          uint32_t b, float v[2][8])
{
    static_assert(F::parts == 1, "a format of several parts has eight()");
    uint32_t a[1][2][4];
    F::fragments(q, b, a);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t group = F::group == 32 ? b : 2 * b + i;
        const float2 scale = F::scale(s, group);
        float2 min = make_float2(0.0f, 0.0f);
        if constexpr (F::mins != 0) min = F::min(s, u, group);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const float2 low = wk_half2_float(a[0][i][h]), high = wk_half2_float(a[0][i][h + 2]);
            const float x = h ? scale.y : scale.x, m = h ? min.y : min.x;
            v[h][4 * i] = __fmul_rn(x, __fsub_rn(low.x, F::bias0));
            v[h][4 * i + 1] = __fmul_rn(x, __fsub_rn(low.y, F::bias0));
            v[h][4 * i + 2] = __fmul_rn(x, __fsub_rn(high.x, F::bias1));
            v[h][4 * i + 3] = __fmul_rn(x, __fsub_rn(high.y, F::bias1));
            if constexpr (F::mins != 0) {
#pragma unroll
                for (uint32_t j = 0; j < 4; j++) v[h][4 * i + j] = __fsub_rn(v[h][4 * i + j], m);
            }
        }
    }
}

/* Calls use(first k of the 32, v) for blocks [from, to) of 32 of a run of a tile, by a whole warp. SMALL: units in a
 * loop, a part of the instructions. */
template <class F, bool SMALL, class Use>
__device__ __forceinline__ void wk_each_block(const unsigned char *tile, uint32_t k, uint32_t run, uint32_t from,
                                              uint32_t to, Use use)
{
    constexpr bool cut = F::block % F::unit != 0 && !wk_has_eight<F>::yes;
    constexpr uint32_t units = F::unit * F::super >= WK_TILES_RUN ? F::super : WK_TILES_RUN / F::unit,
                       blocks = F::unit / 32;
    __shared__ uint4 shared[cut ? WK_TILES_WARPS : 1][cut ? F::slot / 16 : 1];
    const uint32_t lane = threadIdx.x & 31u, n_units = (k + F::unit - 1) / F::unit;
    float v[2][8];
    if constexpr (wk_has_eight<F>::yes) {
        (void)shared;
#pragma unroll SMALL ? 1 : units *blocks
        for (uint32_t i = 0; i < units * blocks; i++) {
            const uint32_t at = (run * units * blocks + i) * 32;
            if (at >= k || i >= to) break;
            if (i < from) continue;
            F::eight(tile, lane / 4, at / 8 + lane % 4, v[0]);
            F::eight(tile, lane / 4 + 8, at / 8 + lane % 4, v[1]);
            use(at, v);
        }
    } else {
        typename F::scales s;
#pragma unroll SMALL ? 1 : units
        for (uint32_t i = 0; i < units; i++) {
            const uint32_t u = run * units + i;
            if (u >= n_units || i * blocks >= to) break;
            typename F::quants q;
            const unsigned char *unit =
                wk_whole_unit<F>(tile, k, u, reinterpret_cast<unsigned char *>(shared[cut ? threadIdx.x / 32 : 0]));
            F::load(s, unit, u, lane); /* of every unit: those of a super-unit may come with its first */
            if ((i + 1) * blocks <= from) continue;
            F::load(q, unit, u, lane);
#pragma unroll
            for (uint32_t b = 0; b < blocks; b++) {
                if (u * F::unit + 32 * b >= k) break;
                if (i * blocks + b < from || i * blocks + b >= to) continue;
                wk_values<F>(s, q, u, b, v);
                use(u * F::unit + 32 * b, v);
            }
        }
    }
}
template <class F> __host__ __device__ constexpr uint32_t wk_run_values()
{
    return F::unit * F::super >= WK_TILES_RUN ? F::unit * F::super : (uint32_t)WK_TILES_RUN;
}

__device__ __forceinline__ uint32_t wk_two_halves(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&h);
}

/* Blocks of a tile one after the other, `parts` of them: a run of the tile for each warp. */
template <class F>
__global__ void __launch_bounds__(WK_TILES_THREADS)
    wk_expand_tiles(const unsigned char *tiles, uint32_t k, uint32_t n_rows, __half *y, uint64_t y_stride,
                    uint32_t parts)
{
    const uint32_t lane = threadIdx.x & 31u, g = lane / 4, t = lane % 4, tile = blockIdx.x / parts, row = tile * 16 + g;
    wk_release();
    wk_depend();
    wk_each_block<F, false>(
        tiles + tile * wk_tile_stride<F>(k), k, blockIdx.x % parts * WK_TILES_WARPS + threadIdx.x / 32, 0,
        wk_run_values<F>() / 32, [&](uint32_t first, const float v[2][8]) {
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                uint4 out = make_uint4(wk_two_halves(v[h][0], v[h][1]), wk_two_halves(v[h][2], v[h][3]),
                                       wk_two_halves(v[h][4], v[h][5]), wk_two_halves(v[h][6], v[h][7]));
                uint32_t at = first + 8 * t;
                if constexpr (F::group == 16 &&
                              !wk_has_eight<F>::yes) { /* neighbours trade fours: the even lane gets eight of the first
                                                          16 values, the odd one of the second */
                    const uint32_t a = __shfl_xor_sync(0xffffffffu, t % 2 ? out.x : out.z, 1),
                                   b = __shfl_xor_sync(0xffffffffu, t % 2 ? out.y : out.w, 1);
                    if (t % 2)
                        out.x = a, out.y = b, at = first + 12 + 4 * t;
                    else
                        out.z = a, out.w = b, at = first + 4 * t;
                }
                if (row + 8 * h < n_rows && at < k) *reinterpret_cast<uint4 *>(y + (row + 8 * h) * y_stride + at) = out;
            }
        });
}

/* What lies at p, of which `left` values exist. */
__device__ __forceinline__ float4 wk_read_four(const float *p, uint32_t left)
{
    if (left >= 4) return __ldcg(reinterpret_cast<const float4 *>(p));
    return make_float4(left > 0 ? __ldcg(p) : 0.0f, left > 1 ? __ldcg(p + 1) : 0.0f, left > 2 ? __ldcg(p + 2) : 0.0f,
                       0.0f);
}

/* Does a warp take 32 values of a gathered row? */
__host__ __device__ constexpr bool wk_gather_few(uint32_t rows, uint32_t k)
{
    return rows <= WK_CUDA_FEW && k <= 1u << 23;
}

/* Block (row of y, y): a run of the row for each warp, or 32 values where rows are few. The other 15 rows of the tile
 * are computed and dropped.
 *
 * A dependent launch of few rows takes a turn before it waits, with row 0 and no result: once a step, its instructions
 * are in no cache, and so they come while the launch before is at work. */
template <class F>
__global__ void __launch_bounds__(WK_TILES_THREADS) wk_gather_rows(const __grid_constant__ struct wk_cuda_gather c)
{
    constexpr bool eights = F::group == 32 || wk_has_eight<F>::yes; /* of a lane: 8 neighbours, or 4 of each 16 */
    const unsigned char *tiles = static_cast<const unsigned char *>(c.tiles);
    const uint32_t t = threadIdx.x % 4, g = (threadIdx.x & 31u) / 4;
    float *y = c.y + blockIdx.x * c.y_stride;
    float *part = c.part + (uint64_t)blockIdx.x * ((c.k + 15) / 16);
    const bool few = wk_gather_few(gridDim.x, c.k);
    const uint32_t warp = blockIdx.y * WK_TILES_WARPS + threadIdx.x / 32, blocks = wk_run_values<F>() / 32;
    const uint32_t run = few ? warp / blocks : warp, from = few ? warp % blocks : 0, to = few ? from + 1 : blocks;
    uint32_t row = 0, turn;
    /* Not known to the compiler, which would make two pieces of code of the turns and nothing of the first. */
    asm volatile("mov.u32 %0, %1;" : "=r"(turn) : "r"(c.flags & WK_CUDA_DEPENDENT && few ? 0u : 1u));
#pragma unroll 1
    for (; turn < 2; turn++) {
        if (turn) {
            wk_depend();
            wk_release();
            row = __ldcg(c.index + blockIdx.x);
        }
        const bool mine = turn && g == row % 8;
        wk_each_block<F, true>(tiles + row / 16 * wk_tile_stride<F>(c.k), c.k, run, from, to,
                               [&](uint32_t first, const float v[2][8]) {
                                   float4 w[2];
#pragma unroll
                                   for (uint32_t i = 0; i < 2; i++) {
                                       const uint32_t at = first + (eights ? 8 * t + 4 * i : 4 * t + 16 * i),
                                                      left = at < c.k ? c.k - at : 0;
                                       float x[4];
#pragma unroll
                                       for (uint32_t j = 0; j < 4; j++)
                                           x[j] = __fmul_rn(row / 8 % 2 ? v[1][4 * i + j] : v[0][4 * i + j], c.scale);
                                       if (c.add && mine) {
                                           const float4 old = wk_read_four(y + at, left);
                                           x[0] = __fadd_rn(old.x, x[0]), x[1] = __fadd_rn(old.y, x[1]),
                                           x[2] = __fadd_rn(old.z, x[2]), x[3] = __fadd_rn(old.w, x[3]);
                                       }
                                       if (mine && left >= 4)
                                           *reinterpret_cast<float4 *>(y + at) = make_float4(x[0], x[1], x[2], x[3]);
                                       else if (mine)
                                           for (uint32_t j = 0; j < 3; j++)
                                               if (j < left) y[at + j] = x[j];
                                       w[i] = make_float4(left > 0 ? x[0] : 0.0f, left > 1 ? x[1] : 0.0f,
                                                          left > 2 ? x[2] : 0.0f, left > 3 ? x[3] : 0.0f);
                                   }
                                   if (!c.part) return;
                                   if constexpr (eights) {
                                       const float s = wk_square_sum16(w[0], w[1]);
                                       if (mine && t % 2 == 0 && first + 8 * t < c.k) part[(first + 8 * t) / 16] = s;
                                   } else {
                                       const float s[2] = { wk_square_sum16(w[0]), wk_square_sum16(w[1]) };
                                       if (mine && t < 2 && first + 16 * t < c.k)
                                           part[first / 16 + t] = t ? s[1] : s[0];
                                   }
                               });
    }
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static inline wk_status wk_tiles_status(cudaError_t code, const char *what, const struct wk_err *err)
{
    if (code == cudaSuccess) return WK_OK;
    (void)cudaGetLastError();
    return wk_fail(err, WK_INTERNAL, "%s: %s: %s", what, cudaGetErrorName(code), cudaGetErrorString(code));
}

/* Does the device run what this file was compiled for? built: the architectures, for the text. */
static inline wk_status wk_check_image(const void *kernel, int32_t device, const char *built, const struct wk_err *err)
{
    cudaFuncAttributes attributes;
    int major = 0, minor = 0;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel);
    if (code != cudaErrorNoKernelImageForDevice && code != cudaErrorInvalidDeviceFunction)
        return wk_tiles_status(code, "the kernels' attributes", err);
    (void)cudaGetLastError();
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return wk_fail(err, WK_UNSUPPORTED,
                   "kernels were built for the architectures %s, the GPU is %d%d; build with "
                   "-DWORKER_CUDA_ARCHITECTURES=%d%d%s-real",
                   built, major, minor, major, minor, major == 9 && minor == 0 ? "a" : "");
}

#define WK_TILES_NEED(cond, ...)                                   \
    do {                                                           \
        if (!(cond)) return wk_fail(err, WK_INVALID, __VA_ARGS__); \
    } while (0)

template <class F> struct wk_tiles_of {
    static uint64_t tile_bytes(uint32_t k) { return wk_tile_stride<F>(k); }
    static uint32_t steps(uint64_t n, uint32_t of) /* gridDim.y */
    {
        const uint64_t blocks = (n + of - 1) / of;
        return (uint32_t)(blocks < 65535 ? blocks : 65535);
    }
    static wk_status check_tiles(const wk_cuda_tiles *t, const char *what, const struct wk_err *err)
    {
        constexpr uint32_t align = F::block_bytes % 2 ? 1 : 2;
        WK_TILES_NEED(t->struct_size >= sizeof *t, "%s: struct_size %u", what, t->struct_size);
        WK_TILES_NEED(t->k > 0 && t->k % F::block == 0 && t->k <= 1u << 24, "%s: k %u", what, t->k);
        WK_TILES_NEED(t->n_rows <= (uint64_t)t->n_tiles * 16, "%s: n_rows %u in %u tiles", what, t->n_rows, t->n_tiles);
        WK_TILES_NEED(t->tiles && t->rows, "%s: tiles or rows is missing", what);
        WK_TILES_NEED(t->row_bytes >= (uint64_t)(t->k / F::block) * F::block_bytes && t->row_bytes % align == 0,
                      "%s: row_bytes %llu", what, (unsigned long long)t->row_bytes);
        return WK_OK;
    }
    static wk_status pack(const wk_cuda_tiles *t, void *stream, const struct wk_err *err)
    {
        const wk_status status = check_tiles(t, "pack", err);
        if (status || !t->n_tiles) return status;
        wk_pack_tiles<F><<<dim3(t->n_tiles, steps(F::tile_bytes(t->k) / 4, WK_TILES_THREADS)), WK_TILES_THREADS, 0,
                           static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned char *>(t->tiles),
                                                                static_cast<const unsigned char *>(t->rows),
                                                                t->row_bytes, t->n_rows, t->k);
        return wk_tiles_status(cudaGetLastError(), "pack", err);
    }
    static wk_status unpack(const wk_cuda_tiles *t, void *stream, const struct wk_err *err)
    {
        const wk_status status = check_tiles(t, "unpack", err);
        if (status || !t->n_rows) return status;
        wk_unpack_tiles<F>
            <<<dim3(t->n_rows, steps((uint64_t)(t->k / F::block) * ((F::block_bytes + 1) / 2), WK_TILES_THREADS)),
               WK_TILES_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const unsigned char *>(t->tiles),
                                                                         static_cast<unsigned char *>(t->rows),
                                                                         t->row_bytes, t->k);
        return wk_tiles_status(cudaGetLastError(), "unpack", err);
    }
    static wk_status expand(const wk_cuda_expand *e, void *stream, const struct wk_err *err)
    {
        WK_TILES_NEED(e->struct_size >= sizeof *e, "expand: struct_size %u", e->struct_size);
        WK_TILES_NEED(e->k > 0 && e->k % F::block == 0 && e->k <= 1u << 24, "expand: k %u", e->k);
        WK_TILES_NEED(e->tiles && e->y, "expand: tiles or y is missing");
        WK_TILES_NEED(e->y_stride >= e->k && e->y_stride % 8 == 0, "expand: y_stride %llu",
                      (unsigned long long)e->y_stride);
        if (!e->n_rows) return WK_OK;
        const uint32_t tiles = (e->n_rows - 1) / 16 + 1, parts = steps(e->k, wk_run_values<F>() * WK_TILES_WARPS);
        WK_TILES_NEED((uint64_t)tiles * parts <= INT32_MAX, "expand: n_rows %u of k %u", e->n_rows, e->k);
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(tiles * parts);
        config.blockDim = dim3(WK_TILES_THREADS);
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = &attribute;
        config.numAttrs = e->flags & WK_CUDA_DEPENDENT ? 1 : 0;
        return wk_tiles_status(cudaLaunchKernelEx(&config, wk_expand_tiles<F>,
                                                  static_cast<const unsigned char *>(e->tiles), e->k, e->n_rows,
                                                  static_cast<__half *>(e->y), e->y_stride, parts),
                               "expand", err);
    }
    static wk_status gather(const wk_cuda_gather *g, void *stream, const struct wk_err *err)
    {
        WK_TILES_NEED(g->struct_size >= sizeof *g, "gather: struct_size %u", g->struct_size);
        WK_TILES_NEED(g->k > 0 && g->k % F::block == 0 && g->k <= 1u << 24, "gather: k %u", g->k);
        WK_TILES_NEED(g->tiles && g->index && g->y, "gather: tiles, index or y is missing");
        WK_TILES_NEED(g->y_stride >= g->k && g->y_stride % 4 == 0, "gather: y_stride %llu",
                      (unsigned long long)g->y_stride);
        WK_TILES_NEED(g->add <= 1, "gather: add %u", g->add);
        if (!g->rows) return WK_OK;
        /* The same division of L1 and shared memory as the products': a multiprocessor has to be empty to change it,
         * and launches of a step are to overlap. */
        const wk_status status =
            wk_tiles_status(cudaFuncSetAttribute(wk_gather_rows<F>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                 cudaSharedmemCarveoutMaxShared),
                            "gather", err);
        if (status) return status;
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim =
            dim3(g->rows, steps(g->k, (wk_gather_few(g->rows, g->k) ? 32 : wk_run_values<F>()) * WK_TILES_WARPS));
        config.blockDim = dim3(WK_TILES_THREADS);
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = &attribute;
        config.numAttrs = g->flags & WK_CUDA_DEPENDENT ? 1 : 0;
        return wk_tiles_status(cudaLaunchKernelEx(&config, wk_gather_rows<F>, *g), "gather", err);
    }
};
#undef WK_TILES_NEED

#define WK_TYPE_CUDA(name, F)                                                                                     \
    extern "C" const struct wk_type_cuda name;                                                                    \
    const struct wk_type_cuda name = { sizeof(struct wk_type_cuda), F::type,                                      \
                                       wk_tiles_of<F>::tile_bytes,  wk_tiles_of<F>::pack,                         \
                                       wk_tiles_of<F>::unpack,      F::parts > 1 ? NULL : wk_tiles_of<F>::expand, \
                                       wk_tiles_of<F>::gather }

#endif
