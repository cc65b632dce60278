/* attend_prompt_sm90.cu: attention of prompt rows on sm_90a, compiled for it alone, for the common head sizes: a
 * warpgroup has 64 rows, its tensor products read keys and values where the copies left them.
 *
 * Pages come in by bulk copies, three or four tiles ahead, announced by one barrier a stage; a second barrier a stage
 * says that every warp is done with it. No other barrier holds the warpgroups together, so that one forms its
 * probabilities while another has the tensor cores. The first thread asks for the copies: tile i + STAGES - 2 when it
 * begins tile i, so its own warpgroup may be one tile ahead of the others. */
#include <worker/cuda/image.cuh>
#include <worker/cuda/part/copy.cuh>
#include <worker/cuda/part/launch.cuh>
#include <worker/cuda/part/wgmma.cuh>

#include "device/cuda/attend_part_tile.cuh"
#include "device/cuda/launch.cuh"

template <int D, int G, int STAGES> struct group_shared {
    __half q[64 * G * D];
    struct {
        __half k[KEYS * D], v[KEYS * D];
    } stage[STAGES];
    uint64_t full[STAGES], empty[STAGES];
};

/* ---- barriers and bulk copies -------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_init(uint64_t *b, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t *b)
{
    asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s,[%0];}" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s,[%0],%1;}" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}
/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *b, uint32_t parity)
{
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1; @!p bra again;}" ::"r"(
                     shared_address(b)),
                 "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *full)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(full))
                 : "memory");
}

/* K and V of 64 positions into a stage; pages that the tile does not see are left out. One thread. */
template <int D, class Stage>
__device__ __forceinline__ void ask_keys(Stage &s, uint64_t *full, const attend_args &a, const tile &t, uint32_t key,
                                         const uint32_t (&ids)[TILE_PAGES], uint32_t kv)
{
    constexpr uint32_t RUN = 32 * D * 2;
    uint32_t n = 0;
    for (uint32_t i = 0; i < TILE_PAGES; i++)
        n += key / KV_PAGE + i >= t.low / KV_PAGE && key / KV_PAGE + i <= t.high / KV_PAGE;
    barrier_expect(full, n * 2 * RUN);
#pragma unroll
    for (uint32_t i = 0; i < TILE_PAGES; i++) {
        if (key / KV_PAGE + i < t.low / KV_PAGE || key / KV_PAGE + i > t.high / KV_PAGE) continue;
        const __half *from = page_of<D>(a, ids[i], kv);
        bulk_copy(s.k + i * 32 * D, from, RUN, full);
        bulk_copy(s.v + i * 32 * D, from + 32 * D, RUN, full);
    }
}

/* The tile's keys from `key` on and values come to the warpgroup's sums. position: of the warp's first row; folded: cap
 * and scale are in f, the factor of the exponent. */
template <int D, class Stage>
__device__ __forceinline__ void add_tile(state<D, 1> &w, const attend_args &a, uint64_t q_at, const Stage &stage,
                                         uint32_t position, uint32_t key, bool folded, float f)
{
    float s[1][KEYS / 8][4];
    const uint64_t k_at = wk_wgmma_plain(shared_address(stage.k), 128, D * 16),
                   v_at = wk_wgmma_plain(shared_address(stage.v), D * 16, 128);
    wk_wgmma_begin();
#pragma unroll
    for (int c = 0; c < D / 16; c++) wk_wgmma_64(s[0], q_at + c * 16, k_at + c * 16, c != 0);
    wk_wgmma_commit();
    wk_wgmma_wait<0>();
    if (!folded) cap_scores<1>(s, a);
    if (key + KEYS - 1 > position || key < first_key(a.window, position + 15))
        mask_scores<1>(s, a.window, position, key);
    tile_softmax<D, 1>(w, s, f);
    uint32_t p[KEYS / 16][4];
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        p[n][0] = pack_half(s[0][2 * n][0], s[0][2 * n][1]);
        p[n][1] = pack_half(s[0][2 * n][2], s[0][2 * n][3]);
        p[n][2] = pack_half(s[0][2 * n + 1][0], s[0][2 * n + 1][1]);
        p[n][3] = pack_half(s[0][2 * n + 1][2], s[0][2 * n + 1][3]);
    }
    wk_wgmma_begin();
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) wk_wgmma<D>::add_turned(w.y[0], p[n], v_at + n * (2 * D));
    wk_wgmma_commit();
    wk_wgmma_wait<0>();
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

template <int D, int G, int BLOCKS, int STAGES>
__global__ void __launch_bounds__(128 * G, BLOCKS)
    attend_prompt_sm90(const __grid_constant__ attend_args a, const __half *q_half)
{
    extern __shared__ __align__(128) unsigned char memory[];
    group_shared<D, G, STAGES> &m = *reinterpret_cast<group_shared<D, G, STAGES> *>(memory);
    constexpr int M = 64 * G, T = 128 * G;
    wk_release();
    wk_depend();
    const uint32_t warp = threadIdx.x / 32, head = blockIdx.x, kv = head / a.group;
    tile t;
    if (!find_tile<M>(a, blockIdx.y, t)) return;
    const uint32_t first = warp * 16, group_first = warp / 4 * 64, position = t.position + first,
                   group_position = t.position + group_first;
    const uint32_t begin = t.low / KEYS * KEYS, tiles = t.high / KEYS - t.low / KEYS + 1;
    const bool folded = a.softcap == 0.0f && a.scale > 0.0f;
    const float f = folded ? a.scale * 1.4426950408889634f : 1.0f;
    const uint64_t q_at = wk_wgmma_plain(shared_address(m.q) + group_first * D * 2, 128, D * 16);

    uint32_t ids[TILE_PAGES] = {}; /* of the tile that is asked for next */
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&m.full[i], 1);
            barrier_init(&m.empty[i], 4 * G);
        }
        wk_publish();
        for (uint32_t i = 0; i < STAGES - 2 && i < tiles; i++) {
            load_ids(ids, a, t, begin + i * KEYS);
            ask_keys<D>(m.stage[i], &m.full[i], a, t, begin + i * KEYS, ids, kv);
        }
        if (STAGES - 2 < tiles) load_ids(ids, a, t, begin + (STAGES - 2) * KEYS);
    }
    __syncwarp();
    load_queries<D, M, T>(shared_address(m.q), q_half, a, t, head);
    copy_commit();
    copy_wait<0>();
    wk_publish();
    __syncthreads();

    state<D, 1> w = {};
    w.max[0][0] = w.max[0][1] = -INFINITY;
#pragma unroll 1
    for (uint32_t i = 0; i < tiles; i++) {
        const uint32_t key = begin + i * KEYS, at = i % STAGES, ahead = i + STAGES - 2;
        if (threadIdx.x == 0 && ahead < tiles) {
            const uint32_t to = ahead % STAGES;
            if (ahead >= STAGES) barrier_wait(&m.empty[to], (ahead / STAGES - 1) & 1);
            ask_keys<D>(m.stage[to], &m.full[to], a, t, begin + ahead * KEYS, ids, kv);
            if (ahead + 1 < tiles) load_ids(ids, a, t, begin + (ahead + 1) * KEYS);
        }
        __syncwarp();
        const bool edge = key < t.low || key + KEYS - 1 > t.high;
        /* A tile that none of the warpgroup's rows sees changes none of them. */
        const bool seen =
            group_first < t.n && key <= group_position + 63 && key + KEYS > first_key(a.window, group_position);
        barrier_wait(&m.full[at],
                     i / STAGES &
                         1); /* also for a tile that is passed over: nobody may be a round ahead of the others */
        if (edge) {
            clear_unseen<D, T>(m.stage[at].v, t, key);
            wk_publish();
            __syncthreads();
        }
        if (seen) add_tile<D>(w, a, q_at, m.stage[at], position, key, folded, f);
        if ((threadIdx.x & 31u) == 0) barrier_arrive(&m.empty[at]);
    }
    store_tile<D, 1>(w, a, t, first, head, f);
}

/* ---- launch -------------------------------------------------------------------------------------------- */

template <int D, int G, int BLOCKS, int STAGES>
static wk_status launch_sm90(const struct attend_args &a, uint32_t rows, const void *q_half, void *stream,
                             const struct wk_err *err)
{
    const size_t bytes = sizeof(group_shared<D, G, STAGES>);
    const wk_status s = cuda_status(cudaFuncSetAttribute(attend_prompt_sm90<D, G, BLOCKS, STAGES>,
                                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                                    "attend_prompt", err);
    if (s != WK_OK) return s;
    const dim3 grid(a.heads, rows / (64 * G) + a.seqs);
    return cuda_launch("attend_prompt", attend_prompt_sm90<D, G, BLOCKS, STAGES>, grid, dim3(128 * G), bytes, true,
                       stream, err, a, static_cast<const __half *>(q_half));
}

wk_status attend_prompt_sm90_launch(const struct attend_args *a, uint32_t rows, const void *q_half, void *stream,
                                    const struct wk_err *err, bool *done)
{
    struct wk_image image;
    *done = false;
    const wk_status s = cuda_image(&image, err);
    if (s != WK_OK || !image.wgmma) return s;
    *done = true;
    switch (a->head) {
    case 64: return launch_sm90<64, 2, 2, 4>(*a, rows, q_half, stream, err);
    case 96: return launch_sm90<96, 3, 1, 4>(*a, rows, q_half, stream, err);
    case 128: return launch_sm90<128, 3, 1, 4>(*a, rows, q_half, stream, err);
    default: *done = false; return WK_OK;
    }
}
