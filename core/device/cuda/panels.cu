/* panels.cu: acts of rows become panels of items by expert (worker/cuda/part/panels.cuh), what the plugins' large
 * products read.
 *
 * A block has PLACES places of one or more panels. Eight lanes write one place's row of 128 bytes, a chunk of 16 each,
 * so what a warp stores is one run; each lane reads four pairs of values that stand 16 or 8 bytes apart in the row, and
 * whose neighbours the lanes beside it read. */
#include <worker/cuda/part/panels.cuh>

#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"

enum {
    THREADS = 256,
    CHUNKS = 8 /* of 16 bytes a place */,
    PLACES = THREADS / CHUNKS,
    AT_ONCE = 4 /* panels that are read at once */,
    PANELS = 12 /* a block */
};

struct panels_launch {
    const uint32_t *x; /* acts, by pairs of values */
    uint32_t k32, x_items, experts, group, panels;
    const uint32_t *first, *items;
    unsigned char *y;
    uint64_t y_panel;
};

static __global__ void __launch_bounds__(THREADS) panels_kernel(const __grid_constant__ struct panels_launch p)
{
    __shared__ wk_group_tables t;
    if (threadIdx.x < 32) wk_make_group_tables(t, p.first, p.experts);
    __syncthreads();
    const uint32_t place = blockIdx.x * PLACES + threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS,
                   half = c / 4 * 32; /* half: its first value in the panel */
    if (place >= t.place[p.experts]) return;
    const uint32_t e = wk_group_of(t.place, p.experts, place), i = t.item[e] + place - t.place[e];
    if (i >= t.item[e + 1]) return; /* between two experts */
    const uint32_t first = half + (p.group == 32 ? c % 4 * 2 : c % 4 / 2 * 16 + c % 2 * 2),
                   step = p.group == 32 ? 4 : 2; /* of its pairs: first value, pairs from one to the next */
    const uint32_t *const x = p.x + (uint64_t)(__ldg(p.items + i) / p.x_items) * (p.k32 / 2) + first / 2;
    unsigned char *const y = p.y + (uint64_t)place * WK_PANEL_ROW + (c ^ (place & 7u)) * 16;
    const uint32_t end = min(p.panels, (blockIdx.y + 1) * PANELS);
    for (uint32_t from = blockIdx.y * PANELS; from < end; from += AT_ONCE) {
        uint32_t v[AT_ONCE][4];
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++)
#pragma unroll
            for (uint32_t w = 0; w < 4; w++)
                v[j][w] = from + j < end && (from + j) * WK_PANEL_K + half < p.k32
                              ? __ldg(x + (from + j) * (WK_PANEL_K / 2) + w * step)
                              : 0u;
#pragma unroll
        for (uint32_t j = 0; j < AT_ONCE; j++)
            if (from + j < end)
                *reinterpret_cast<uint4 *>(y + (from + j) * p.y_panel) = make_uint4(v[j][0], v[j][1], v[j][2], v[j][3]);
    }
}

wk_status cuda_panels(const struct cuda_panels *p, void *stream, const struct wk_err *err)
{
    const uint32_t panels = (p->k + WK_PANEL_K - 1) / WK_PANEL_K;
    if (!p->k || !p->items || !p->x_items || !p->experts || p->experts > WK_CUDA_LARGE_EXPERTS ||
        (p->group != 32 && p->group != 16) || !p->groups)
        return wk_fail(err, WK_INTERNAL, "panels: %u items of %u values, %u a row, %u experts, order %u", p->items,
                       p->k, p->x_items, p->experts, p->group);
    const uint32_t *const first = p->groups + p->experts;
    const struct panels_launch l = { (const uint32_t *)p->x,
                                     wk_act_k(p->k),
                                     p->x_items,
                                     p->experts,
                                     p->group,
                                     panels,
                                     first,
                                     first + p->experts + 1,
                                     (unsigned char *)p->y,
                                     p->places * WK_PANEL_ROW };
    return cuda_launch("panels", panels_kernel,
                       dim3((unsigned)((p->places + PLACES - 1) / PLACES), (panels + PANELS - 1) / PANELS),
                       dim3(THREADS), 0, false, stream, err, l);
}
