/* attend_prompt.cu: attention of prompt rows: one launch finishes q, k and v and fills the pages, one attends: tiles of
 * rows against the pages.
 *
 * A block takes a tile of rows of one sequence and one query head and walks over the keys that any of them sees in
 * tiles of 64 absolute positions, two pages, which stream through two stages of shared memory (one where it is small).
 * Scores, probabilities and results stay in registers: a warp owns 16 ROWS rows whole, so a row's maximum and sum never
 * leave it. Keys come from the cache alone, also those of the same step: chunks of any size give the same bits, since a
 * row meets the same tiles in the same order and what it does not see changes nothing.
 *
 * Attention in chunks, with slopes or in both directions has kernels of its own (ANY), on every GPU; and so goes, in
 * steps of generated rows too, what reads another layer's cache: its keys are of the same step. */
#include "device/cuda/attend_part_tile.cuh"
#include "device/cuda/launch.cuh"

/* ---- the store ----------------------------------------------------------------------------------------- */

enum { STORE_WARPS = 8, STORE_HEADS = 4 };

/* Biases of q, k and v, or NULL. */
struct store_bias {
    const float *q, *k, *v;
};

template <int D>
__device__ __forceinline__ void add_bias(head_values<D> &h, const float *bias, uint32_t head, uint32_t d)
{
    const uint32_t lane = threadIdx.x & 31u;
    if (!bias) return;
#pragma unroll
    for (int j = 0; j < (D + 31) / 32; j++)
        if (lane + 32 * j < d) h.x[j] = __fadd_rn(h.x[j], __ldg(bias + head * d + lane + 32 * j));
}

/* A warp finishes STORE_HEADS heads of q, k and v of one row, all asked for before the first is used. q_half:
 * [rows][heads][D]. */
template <int D>
__global__ void __launch_bounds__(32 * STORE_WARPS)
    attend_store(const __grid_constant__ attend_args a, const __grid_constant__ struct store_bias bias, __half *q_half,
                 uint32_t rows)
{
    __shared__ float row_of[STORE_WARPS][D];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u, units = a.heads + (a.k.x ? 2 * a.kv_heads : 0),
                   first = blockIdx.y * STORE_HEADS;
    const uint32_t row = blockIdx.x * STORE_WARPS + warp;
    wk_release();
    wk_depend();
    if (row >= rows) return;
    float *x = row_of[warp];
    head_values<D> h[STORE_HEADS];
#pragma unroll
    for (uint32_t i = 0; i < STORE_HEADS; i++) {
        const uint32_t unit = first + i;
        if (unit < a.heads)
            load_head<D>(h[i], place_head(a.q, row, unit, a.dk));
        else if (unit < units && unit < a.heads + a.kv_heads)
            load_head<D>(h[i], place_head(a.k, row, unit - a.heads, a.dk));
        else if (unit < units)
            load_head<D>(h[i], place_head(a.v, row, unit - a.heads - a.kv_heads, a.dv));
    }
    uint32_t seq = 0, position = 0, id = 0;
    bool stored = false;
    if (first + STORE_HEADS > a.heads && first < units && a.k.x) stored = find_row(a, row, &seq, &position);
    if (stored) id = __ldg(page_entry(a, seq, position / KV_PAGE));
#pragma unroll
    for (uint32_t i = 0; i < STORE_HEADS; i++) {
        const uint32_t unit = first + i;
        if (unit >= units) break;
        const bool q = unit < a.heads, v = unit >= a.heads + a.kv_heads;
        if (!q && !stored) break;
        add_bias<D>(h[i],
                    q   ? bias.q
                    : v ? bias.v
                        : bias.k,
                    q ? unit : unit - a.heads - (v ? a.kv_heads : 0), v ? a.dv : a.dk);
        finish_head<D>(x, h[i], q ? a.q : v ? a.v : a.k, v ? a.dv : a.dk);
        if (lane >= D / 8) continue;
        __half *to = q ? q_half + ((uint64_t)row * a.heads + unit) * D + lane * 8
                       : page_of<D>(a, id, unit - a.heads - (v ? a.kv_heads : 0)) + (v ? 32 * D : 0) +
                             block_offset<D>(position % KV_PAGE, lane);
        *reinterpret_cast<uint4 *>(to) = half_chunk(x + lane * 8);
    }
}

/* ---- tensor products of a warp, m16n8k16 --------------------------------------------------------------- */

/* K and V of 64 positions; pages outside what the tile sees are left as they are. ids: of the two pages. */
template <int D, int T>
__device__ __forceinline__ void load_keys(uint32_t stage, const attend_args &a, const tile &t, uint32_t key,
                                          const uint32_t (&ids)[TILE_PAGES], uint32_t kv)
{
    constexpr uint32_t RUN = 32 * D / 8; /* 16-byte pieces of K or V of a page */
#pragma unroll
    for (uint32_t i = 0; i < TILE_PAGES; i++) {
        const uint32_t page = key / KV_PAGE + i;
        if (page < t.low / KV_PAGE || page > t.high / KV_PAGE) continue;
        const uint4 *from = reinterpret_cast<const uint4 *>(page_of<D>(a, ids[i], kv));
        for (uint32_t j = threadIdx.x; j < 2 * RUN; j += T) {
            const bool v = j >= RUN;
            copy16(stage + (v ? KEYS * D * 2 : 0) + (i * RUN + (v ? j - RUN : j)) * 16, from + j);
        }
    }
}
/* s[r][n] = C fragment of rows 16 r and keys 8 n. */
template <int D, int ROWS>
__device__ __forceinline__ void tile_scores(float (&s)[ROWS][KEYS / 8][4], uint32_t q, uint32_t k)
{
    const uint32_t lane = threadIdx.x & 31u;
    const uint32_t q_at = q + ((lane >> 3) & 1) * (D * 16) + (lane >> 4) * 128 + (lane & 7) * 16;
    const uint32_t k_at = k + (lane >> 4) * (D * 16) + ((lane >> 3) & 1) * 128 + (lane & 7) * 16;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) s[r][n][0] = s[r][n][1] = s[r][n][2] = s[r][n][3] = 0.0f;
#pragma unroll
    for (int c = 0; c < D / 16; c++) {
        uint32_t x[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) load_matrices(x[r], q_at + r * (2 * D * 16) + c * 256);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            uint32_t b[4];
            load_matrices(b, k_at + n * (D * 16) + c * 256);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma_f16(s[r][n], x[r][0], x[r][1], x[r][2], x[r][3], b[0], b[1]);
                mma_f16(s[r][n + 1], x[r][0], x[r][1], x[r][2], x[r][3], b[2], b[3]);
            }
        }
    }
}

template <int D, int ROWS>
__device__ __forceinline__ void tile_values(state<D, ROWS> &w, const float (&s)[ROWS][KEYS / 8][4], uint32_t v)
{
    const uint32_t lane = threadIdx.x & 31u,
                   v_at = v + ((lane >> 3) & 1) * (D * 16) + (lane >> 4) * 128 + (lane & 7) * 16;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        uint32_t p[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            p[r][0] = pack_half(s[r][2 * n][0], s[r][2 * n][1]);
            p[r][1] = pack_half(s[r][2 * n][2], s[r][2 * n][3]);
            p[r][2] = pack_half(s[r][2 * n + 1][0], s[r][2 * n + 1][1]);
            p[r][3] = pack_half(s[r][2 * n + 1][2], s[r][2 * n + 1][3]);
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t b[4];
            load_matrices_turned(b, v_at + n * (2 * D * 16) + i * 256);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                mma_f16(w.y[r][2 * i], p[r][0], p[r][1], p[r][2], p[r][3], b[0], b[1]);
                mma_f16(w.y[r][2 * i + 1], p[r][0], p[r][1], p[r][2], p[r][3], b[2], b[3]);
            }
        }
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

template <int D, int ROWS, int W, int STAGES> struct prompt_shared {
    __half q[16 * ROWS * W * D];
    struct {
        __half k[KEYS * D], v[KEYS * D];
    } stage[STAGES];
};

/* STAGES 1: keys and values come when those before them are no longer read. */
template <int D, int ROWS, int W, int BLOCKS, bool ANY, int STAGES>
__global__ void __launch_bounds__(32 * W, BLOCKS) attend_prompt(const attend_args a, const __half *q_half)
{
    extern __shared__ __align__(128) unsigned char memory[];
    prompt_shared<D, ROWS, W, STAGES> &m = *reinterpret_cast<prompt_shared<D, ROWS, W, STAGES> *>(memory);
    constexpr int M = 16 * ROWS * W, T = 32 * W;
    const uint32_t warp = threadIdx.x / 32, head = blockIdx.x, kv = head / a.group;
    tile t;
    wk_release();
    wk_depend();
    if (!find_tile<M, ANY>(a, blockIdx.y, t)) return;
    const uint32_t first = warp * 16 * ROWS, position = t.position + first; /* of the warp */
    const uint32_t begin = t.low / KEYS * KEYS, q_at = shared_address(m.q) + first * D * 2;
    const bool sloping = ANY && a.slopes, folded = a.softcap == 0.0f && a.scale > 0.0f && !sloping;
    const float slope = sloping ? __ldg(a.slopes + head) : 0.0f;
    const float f = folded ? a.scale * 1.4426950408889634f : 1.0f;

    uint32_t ids[TILE_PAGES];
    load_ids(ids, a, t, begin);
    load_queries<D, M, T>(shared_address(m.q), q_half, a, t, head);
    load_keys<D, T>(shared_address(&m.stage[0]), a, t, begin, ids, kv);
    copy_commit();
    if (begin + KEYS <= t.high) load_ids(ids, a, t, begin + KEYS);

    state<D, ROWS> w = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) w.max[r][0] = w.max[r][1] = -INFINITY;
    uint32_t at = 0;
    for (uint32_t key = begin; key <= t.high; key += KEYS, at ^= STAGES - 1) {
        if (STAGES == 1 && key > begin) {
            __syncthreads();
            load_keys<D, T>(shared_address(&m.stage[0]), a, t, key, ids, kv);
            if (key + KEYS <= t.high) load_ids(ids, a, t, key + KEYS);
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        if (STAGES > 1 && key + KEYS <= t.high) {
            load_keys<D, T>(shared_address(&m.stage[at ^ 1]), a, t, key + KEYS, ids, kv);
            if (key + 2 * KEYS <= t.high) load_ids(ids, a, t, key + 2 * KEYS);
        }
        if (STAGES > 1) copy_commit();
        if (key < t.low || key + KEYS - 1 > t.high) {
            clear_unseen<D, T>(m.stage[at].v, t, key);
            __syncthreads();
        }
        /* A tile that none of the warp's rows sees changes none of them. */
        if (first >= t.n || key > (ANY ? t.high : position + 16 * ROWS - 1) ||
            key + KEYS <= (ANY ? first_key_any(a, position) : first_key(a.window, position)))
            continue;
        float s[ROWS][KEYS / 8][4];
        tile_scores<D, ROWS>(s, q_at, shared_address(m.stage[at].k));
        if (sloping)
            slope_scores<ROWS>(s, a, slope, position, key);
        else if (!folded)
            cap_scores<ROWS>(s, a);
        if (ANY)
            mask_any<ROWS>(s, a, t, position, key);
        else if (key + KEYS - 1 > position || key < first_key(a.window, position + 16 * ROWS - 1))
            mask_scores<ROWS>(s, a.window, position, key);
        tile_softmax<D, ROWS>(w, s, f);
        tile_values<D, ROWS>(w, s, shared_address(m.stage[at].v));
    }
    store_tile<D, ROWS>(w, a, t, first, head, f);
}

/* ---- scores for taps ----------------------------------------------------------------------------------- */

/* A block a (row, head), a thread a key. */
template <int D> __global__ void attend_scores(const attend_args a, const __half *q_half, uint32_t keys, float *out)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y, kv = head / a.group;
    const __half *q = q_half + ((uint64_t)row * a.heads + head) * D;
    float *y = out + ((uint64_t)row * a.heads + head) * keys;
    uint32_t seq = 0, position = 0;
    const bool any = find_row(a, row, &seq, &position);
    for (uint32_t p = threadIdx.x; p < keys; p += blockDim.x) {
        float s = -INFINITY;
        if (any && p >= first_key_any(a, position) &&
            p <= last_key_any(a, position, a.seq[seq].position + a.seq[seq].n_rows - 1)) {
            const __half *k = page_of<D>(a, *page_entry(a, seq, p / KV_PAGE), kv);
            s = 0.0f;
            for (uint32_t d = 0; d < D; d++)
                s = __fmaf_rn(__half2float(q[d]), __half2float(k[block_offset<D>(p % KV_PAGE, d / 8) + d % 8]), s);
            s = __fmul_rn(s, a.scale);
            if (a.softcap != 0.0f) s = capped(s, a.softcap);
            if (a.slopes) s = sloped(s, a.slopes[head], position, p);
        }
        y[p] = s;
    }
}

/* ---- launches ------------------------------------------------------------------------------------------ */

uint64_t cuda_attend_query_bytes(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv)
{
    return (uint64_t)rows * heads * attend_head(dk, dv) * sizeof(__half);
}

template <int D>
static wk_status launch_store(const struct cuda_attend *a, const struct attend_args &x, void *q_half, void *stream,
                              const struct wk_err *err)
{
    const dim3 grid((a->batch->rows + STORE_WARPS - 1) / STORE_WARPS,
                    (x.heads + (a->k ? 2 * x.kv_heads : 0) + STORE_HEADS - 1) / STORE_HEADS);
    return cuda_launch("attend_store", attend_store<D>, grid, dim3(32 * STORE_WARPS), 0, true, stream, err, x,
                       store_bias{ a->q_bias, a->k_bias, a->v_bias }, static_cast<__half *>(q_half), a->batch->rows);
}

wk_status cuda_attend_store(const struct cuda_attend *a, void *q_half, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "attend_store", false, q_half, &x, err);
    if (s != WK_OK) return s;
    switch (x.head) {
    case 16: return launch_store<16>(a, x, q_half, stream, err);
    case 32: return launch_store<32>(a, x, q_half, stream, err);
    case 64: return launch_store<64>(a, x, q_half, stream, err);
    case 80: return launch_store<80>(a, x, q_half, stream, err);
    case 96: return launch_store<96>(a, x, q_half, stream, err);
    case 128: return launch_store<128>(a, x, q_half, stream, err);
    default: return launch_store<256>(a, x, q_half, stream, err);
    }
}

/* Tiles: at most one more than a sequence's rows fill. */
template <int D, int ROWS, int W, int BLOCKS, bool ANY, int STAGES>
static wk_status launch_stages(const struct cuda_attend *a, const struct attend_args &x, const void *q_half,
                               void *stream, const struct wk_err *err)
{
    const auto kernel = attend_prompt<D, ROWS, W, BLOCKS, ANY, STAGES>;
    const size_t bytes = sizeof(prompt_shared<D, ROWS, W, STAGES>);
    const wk_status s = cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attend_prompt", err);
    if (s != WK_OK) return s;
    const dim3 grid(x.heads, a->batch->rows / (16 * ROWS * W) + x.seqs);
    return cuda_launch("attend_prompt", kernel, grid, dim3(32 * W), bytes, true, stream, err, x,
                       static_cast<const __half *>(q_half));
}

/* Two stages where a block has room for them: heads of 256 have not on 8.6, 8.9 and 12.x. */
template <int D, int ROWS, int W, int BLOCKS, bool ANY = false>
static wk_status launch_prompt(const struct cuda_attend *a, const struct attend_args &x, const void *q_half,
                               void *stream, const struct wk_err *err)
{
    constexpr size_t bytes = sizeof(prompt_shared<D, ROWS, W, 2>);
    if constexpr (bytes > WK_LEAST_BLOCK_BYTES) {
        static_assert(sizeof(prompt_shared<D, ROWS, W, 1>) <= WK_LEAST_BLOCK_BYTES, "one stage fits on every GPU");
        struct attend_device d = {};
        const wk_status s = attend_device_of(&d, err);
        if (s != WK_OK) return s;
        if (bytes > (size_t)d.block_bytes) return launch_stages<D, ROWS, W, BLOCKS, ANY, 1>(a, x, q_half, stream, err);
    }
    return launch_stages<D, ROWS, W, BLOCKS, ANY, 2>(a, x, q_half, stream, err);
}

/* Tiles of half the rows: a step of generated rows has few in each. */
static wk_status launch_any(const struct cuda_attend *a, const struct attend_args &x, const void *q_half, void *stream,
                            const struct wk_err *err)
{
    switch (x.head) {
    case 16: return launch_prompt<16, 1, 4, 2, true>(a, x, q_half, stream, err);
    case 32: return launch_prompt<32, 1, 4, 2, true>(a, x, q_half, stream, err);
    case 64: return launch_prompt<64, 1, 4, 2, true>(a, x, q_half, stream, err);
    case 80: return launch_prompt<80, 1, 4, 2, true>(a, x, q_half, stream, err);
    case 96: return launch_prompt<96, 1, 4, 2, true>(a, x, q_half, stream, err);
    case 128: return launch_prompt<128, 1, 4, 2, true>(a, x, q_half, stream, err);
    default: return launch_prompt<256, 1, 4, 1, true>(a, x, q_half, stream, err);
    }
}

wk_status cuda_attend_prompt(const struct cuda_attend *a, const void *q_half, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    bool done = false;
    wk_status s = attend_check_tiles(a, "attend_prompt", false, q_half, &x, err);
    if (s == WK_OK && cuda_attend_any(a)) return launch_any(a, x, q_half, stream, err);
    if constexpr (wk_built_for_wgmma())
        if (s == WK_OK) s = attend_prompt_sm90_launch(&x, a->batch->rows, q_half, stream, err, &done);
    if (s != WK_OK || done) return s;
    switch (x.head) {
    case 16: return launch_prompt<16, 2, 4, 2>(a, x, q_half, stream, err);
    case 32: return launch_prompt<32, 2, 4, 2>(a, x, q_half, stream, err);
    case 64: return launch_prompt<64, 2, 4, 2>(a, x, q_half, stream, err);
    case 80: return launch_prompt<80, 2, 4, 2>(a, x, q_half, stream, err);
    case 96: return launch_prompt<96, 2, 4, 2>(a, x, q_half, stream, err);
    case 128: return launch_prompt<128, 2, 4, 2>(a, x, q_half, stream, err);
    default: return launch_prompt<256, 1, 4, 1>(a, x, q_half, stream, err);
    }
}

template <int D>
static wk_status launch_scores(const struct attend_args &x, const void *q_half, uint32_t rows, uint32_t keys,
                               float *out, void *stream, const struct wk_err *err)
{
    return cuda_launch("attend_scores", attend_scores<D>, dim3(rows, x.heads), dim3(128), 0, false, stream, err, x,
                       static_cast<const __half *>(q_half), keys, out);
}

wk_status cuda_attend_scores(const struct cuda_attend *a, const void *q_half, uint32_t keys, float *out, void *stream,
                             const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check_tiles(a, "attend_scores", false, q_half, &x, err);
    if (s != WK_OK) return s;
    if (!out || !keys) return wk_fail(err, WK_INVALID, "attend_scores: no output");
    const uint32_t rows = a->batch->rows;
    switch (x.head) {
    case 16: return launch_scores<16>(x, q_half, rows, keys, out, stream, err);
    case 32: return launch_scores<32>(x, q_half, rows, keys, out, stream, err);
    case 64: return launch_scores<64>(x, q_half, rows, keys, out, stream, err);
    case 80: return launch_scores<80>(x, q_half, rows, keys, out, stream, err);
    case 96: return launch_scores<96>(x, q_half, rows, keys, out, stream, err);
    case 128: return launch_scores<128>(x, q_half, rows, keys, out, stream, err);
    default: return launch_scores<256>(x, q_half, rows, keys, out, stream, err);
    }
}
