/* worker/cuda/select/batch.cuh: how products of 2 to 64 rows are launched on 9.0 and later: which kernel takes one, by
 * how many blocks, and how their shared memory is cut, from the shape alone; none of it changes a bit of the result.
 * Numbers in choices were measured on an H200 (docs/performance.md). */
#ifndef WORKER_CUDA_SELECT_BATCH_CUH
#define WORKER_CUDA_SELECT_BATCH_CUH

#include <worker/cuda/image.cuh>
#include <worker/cuda/kernel/lm_head.cuh>
#include <worker/cuda/kernel/lm_head_wgmma.cuh>
#include <worker/cuda/kernel/resident.cuh>
#include <worker/cuda/kernel/resident_cluster.cuh>
#include <worker/cuda/kernel/split_k.cuh>
#include <worker/cuda/kernel/stream.cuh>
#include <worker/cuda/kernel/stream_wgmma.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/reduce.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/part/weights.cuh>

/* P: what all products of the family share (product.cuh). */
template <class P, class First, class... Rest> struct wk_batch_plan {
    typedef void (*kernel)(const wk_batch_args);
    /* The kernels, with the most rows that they take at once; more are groups with blocks of their own. */
    enum {
        RESIDENT8,
        RESIDENT16,
        RESIDENT_CLUSTER8,
        RESIDENT_CLUSTER16,
        STREAM8,
        STREAM16,
        STREAM32,
        STREAM_WGMMA32,
        STREAM_WGMMA64,
        SPLIT_K32,
        SPLIT_K64,
        LM_HEAD32,
        LM_HEAD_WGMMA8,
        LM_HEAD_WGMMA16,
        LM_HEAD_WGMMA32,
        LM_HEAD_WGMMA64,
        KINDS
    };
    static constexpr bool is_resident(uint32_t kind) { return kind <= RESIDENT16; }
    static constexpr bool is_resident_cluster(uint32_t kind)
    {
        return kind == RESIDENT_CLUSTER8 || kind == RESIDENT_CLUSTER16;
    }
    static constexpr bool is_stream(uint32_t kind) { return kind >= STREAM8 && kind <= STREAM32; }
    static constexpr bool is_split_k(uint32_t kind) { return kind == SPLIT_K32 || kind == SPLIT_K64; }
    static constexpr bool is_lm_head_wgmma(uint32_t kind) { return kind >= LM_HEAD_WGMMA8; }
    /* The others multiply by mma.sync; all copy in bulk and know clusters. */
    static constexpr bool is_wgmma(uint32_t kind)
    {
        return kind == STREAM_WGMMA32 || kind == STREAM_WGMMA64 || is_split_k(kind) || is_lm_head_wgmma(kind);
    }
    static constexpr uint32_t columns_of(uint32_t kind) /* tiles of 8 */
    {
        const uint32_t tiles[KINDS] = { 1, 2, 1, 2, 1, 2, 4, 4, 8, 4, 8, 4, 1, 2, 4, 8 };
        return tiles[kind];
    }
    static uint32_t threads(uint32_t kind, uint32_t item_tiles)
    {
        const uint32_t warps = is_resident(kind)           ? (uint32_t)WK_SLOTS
                               : is_resident_cluster(kind) ? (uint32_t)WK_RESIDENT_CLUSTER_WARPS
                               : is_stream(kind)           ? item_tiles + WK_STREAM_STREAMS
                               : is_split_k(kind)          ? (uint32_t)WK_SPLIT_K_WARPS
                               : kind >= LM_HEAD32         ? item_tiles
                                                           : (uint32_t)WK_STREAM_WGMMA_THREADS / 32;
        return 32 * warps;
    }
    /* Blocks a multiprocessor. */
    static constexpr uint32_t together(uint32_t kind)
    {
        return is_resident(kind) || is_stream(kind) || is_resident_cluster(kind) || kind == SPLIT_K32
                   ? (uint32_t)WK_STREAM_TOGETHER
                   : 1;
    }
    /* Is there a kernel for these formats, alone or side by side? */
    template <uint32_t KIND, class... F> static constexpr bool has()
    {
        if (!(is_wgmma(KIND) ? wk_built_for_wgmma() : wk_built_for_clusters())) return false;
        if (((wk_is_exact<F>::yes || wk_is_whole<F>::yes) || ...)) return false;
        if ((KIND == STREAM32 || KIND == LM_HEAD32 || is_lm_head_wgmma(KIND)) && P::super > 1) return false;
        if ((is_split_k(KIND) || is_lm_head_wgmma(KIND) || is_resident_cluster(KIND)) && sizeof...(F) > 1) return false;
        return !(is_lm_head_wgmma(KIND) && (wk_is_half<F>() || ...));
    }
    template <uint32_t KIND, class... F> static constexpr kernel one()
    {
        if constexpr (!has<KIND, F...>())
            return NULL;
        else if constexpr (is_resident(KIND))
            return wk_product_resident<columns_of(KIND), F...>;
        else if constexpr (is_resident_cluster(KIND))
            return wk_product_resident_cluster<columns_of(KIND), F...>;
        else if constexpr (is_stream(KIND))
            return wk_product_stream<columns_of(KIND), F...>;
        else if constexpr (is_split_k(KIND))
            return wk_product_split_k<columns_of(KIND), F...>;
        else if constexpr (KIND == LM_HEAD32)
            return wk_product_lm_head<columns_of(KIND), F...>;
        else if constexpr (is_lm_head_wgmma(KIND))
            return wk_product_lm_head_wgmma<columns_of(KIND), F...>;
        else
            return wk_product_stream_wgmma<columns_of(KIND), F...>;
    }
    template <uint32_t KIND> static kernel kernel_of(uint32_t types)
    {
        static const kernel kernels[P::n_types] = { one<KIND, First>(), one<KIND, Rest>()... };
        if (!(types & (types - 1))) return kernels[wk_log2(types)];
        if constexpr (((Rest::group == First::group) && ...))
            return one<KIND, First, Rest...>();
        else
            return NULL;
    }
    static kernel kernel_of(uint32_t kind, uint32_t types)
    {
        static kernel (*const of[KINDS])(
            uint32_t) = { kernel_of<RESIDENT8>,          kernel_of<RESIDENT16>,      kernel_of<RESIDENT_CLUSTER8>,
                          kernel_of<RESIDENT_CLUSTER16>, kernel_of<STREAM8>,         kernel_of<STREAM16>,
                          kernel_of<STREAM32>,           kernel_of<STREAM_WGMMA32>,  kernel_of<STREAM_WGMMA64>,
                          kernel_of<SPLIT_K32>,          kernel_of<SPLIT_K64>,       kernel_of<LM_HEAD32>,
                          kernel_of<LM_HEAD_WGMMA8>,     kernel_of<LM_HEAD_WGMMA16>, kernel_of<LM_HEAD_WGMMA32>,
                          kernel_of<LM_HEAD_WGMMA64> };
        return P::device.clusters && (P::device.wgmma || !is_wgmma(kind)) ? of[kind](types) : NULL;
    }

    /* ---- what the device holds ---- */

    static inline uint32_t at_once[KINDS][P::n_types + 1][4]; /* by kernel, type (n_types: several), log2 of blocks:
                                                                 clusters that the device holds at once */
    static uint32_t clusters_of(const wk_product_args *a, uint32_t kind, uint32_t blocks)
    {
        return at_once[kind][a->types & (a->types - 1) ? P::n_types : wk_log2(a->types)][wk_log2(blocks)];
    }
    static uint32_t room_of(uint32_t kind) { return P::room_of(together(kind)); }
    static wk_status open(const struct wk_err *err)
    {
        for (uint32_t kind = 0; kind < KINDS; kind++)
            for (uint32_t type = 0; type <= P::n_types; type++) {
                const kernel k =
                    type == P::n_types && P::n_types == 1 ? NULL : kernel_of(kind, type < P::n_types ? 1u << type : 3u);
                if (!k) continue;
                const wk_status status = wk_product_prepare((const void *)k, P::device.block_bytes, err);
                if (status) return status;
                for (uint32_t b = 0; b < 4; b++)
                    at_once[kind][type][b] =
                        P::clusters_at_once(k, 1u << b, together(kind), threads(kind, WK_STREAM_TILES));
            }
        return WK_OK;
    }

    /* ---- each kernel: the shared memory of a shape, and whether it is the best of all for it ---- */

    /* Which kernel, blocks to an item, and tiles of an item (resident, stream) or values of k of a stage
     * (stream_wgmma). */
    struct choice {
        uint32_t kind, blocks, size;
        uint64_t cost;
    };
    /* Values of k that the busiest block of `blocks` has of an item. */
    static uint32_t k_of(const wk_product_args *a, uint32_t blocks)
    {
        uint32_t most = 0;
        for (uint32_t rank = 0; rank < blocks; rank++) {
            uint32_t steps = 0;
            for (uint32_t leaf = rank * (WK_SLOTS / blocks); leaf < (rank + 1) * (WK_SLOTS / blocks); leaf++) {
                const uint32_t slot = wk_leaf_slot(leaf);
                if (slot < a->steps) steps += (a->steps - slot + WK_SLOTS - 1) / WK_SLOTS;
            }
            most = P::max_of(most, steps);
        }
        return most << a->step_shift;
    }
    /* A stage: `stage_k` values of k, or a step if that has fewer. */
    static void stages(wk_batch_args *w, uint32_t tiles, uint32_t stage_k)
    {
        wk_product_args *a = &w->p;
        const uint32_t step_k = 1u << a->step_shift;
        a->run = step_k > stage_k ? step_k / stage_k : 1;
        w->run_shift = wk_log2(a->run);
        a->stage_units = a->step_units / a->run;
        a->slot = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) {
            a->seg[i].stage_bytes = P::step_bytes(a->seg[i].type, a->stage_units);
            a->slot = P::max_of(a->slot, a->seg[i].stage_bytes);
        }
        w->stage_k = step_k / a->run;
        w->x_bytes = (w->stage_k + 63) / 64 * tiles * 1024;
    }
    static void share(wk_batch_args *w, uint32_t blocks, uint32_t clusters, uint32_t cells)
    {
        wk_product_args *a = &w->p;
        w->workers = clusters < a->items ? clusters : a->items;
        w->blocks = blocks;
        w->owned = (cells + blocks - 1) / blocks;
        w->owned_inverse = 65535 / w->owned + 1;
    }
    /* Shared memory of resident with `tiles` of a segment (glu: pairs) to an item; 0: it does not fit. */
    static uint32_t resident_shape(wk_batch_args *w, uint32_t kind, uint32_t tiles)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = columns_of(kind), each = a->glu ? 2 : 1, cell = columns * WK_CELL;
        P::count_items(a, tiles);
        w->tiles = tiles;
        w->blocks = 1;
        w->workers = a->items;
        w->groups = (a->rows + 8 * columns - 1) / (8 * columns);
        w->x_bytes = cell << (a->step_shift - 5);
        a->slot = tiles * each * P::largest_step(a);
        a->x_at = WK_SLOTS * a->slot;
        a->red_at = a->x_at + WK_SLOTS * w->x_bytes;
        a->bars_at = a->red_at + tiles * each * WK_SLOTS * cell;
        w->kept_at =
            a->bars_at + WK_SLOTS * 8 + 2 * WK_CUDA_FEW_NORM * 4; /* barriers, and the scales of a norm, twice */
        const uint32_t bytes = w->kept_at + (a->in.kind == WK_CUDA_IN_RMS && a->rows > 4 ? 4 * WK_RESIDENT_KEPT : 0);
        return bytes <= room_of(kind) ? P::max_of(bytes, WK_RESIDENT_LEAST) : 0;
    }
    /* Where a slot is one step and all blocks find places at once. Larger shares, or blocks that wait for places, cost
     * more than a ring does: Phi-3's products lose 15 % so. */
    static bool resident_choice(wk_batch_args *w, choice *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t places = WK_RESIDENT_TOGETHER * P::device.processors,
                       kind = a->rows > 8 ? RESIDENT16 : RESIDENT8;
        P::count_items(a, 1);
        const uint32_t tiles = (a->items + places - 1) / places;
        if (a->in.row_index || a->steps > WK_SLOTS || tiles > WK_RESIDENT_TILES || !resident_shape(w, kind, tiles))
            return false;
        if (a->items * w->groups > places) return false;
        *best = { kind, 1, tiles, 0 };
        return true;
    }
    /* Shared memory of resident_cluster; 0: it does not fit. */
    static uint32_t resident_cluster_shape(wk_batch_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t places = (a->steps + WK_SLOTS - 1) / WK_SLOTS * WK_RESIDENT_CLUSTER_SLOTS,
                       cell = columns_of(kind) * WK_CELL;
        w->tiles = 1;
        w->blocks = WK_RESIDENT_CLUSTER_BLOCKS;
        w->workers = a->seg[0].n_tiles;
        w->groups = 1;
        w->x_bytes = cell << (a->step_shift - 5);
        a->slot = a->seg[0].step_bytes;
        a->x_at = places * w->x_bytes;
        a->red_at = a->x_at + places * a->slot;
        w->kept_at = a->red_at + WK_SLOTS * cell;
        a->bars_at = w->kept_at + 2 * WK_RESIDENT_CLUSTER_SLOTS * cell;
        const uint32_t bytes = a->bars_at + WK_RESIDENT_CLUSTER_BARS * 8;
        return bytes <= room_of(kind) ? bytes : 0;
    }
    /* Several steps a slot, and tiles so few that their blocks find places at once, two a multiprocessor. */
    static bool resident_cluster_choice(wk_batch_args *w, choice *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t kind = a->rows > 8 ? RESIDENT_CLUSTER16 : RESIDENT_CLUSTER8;
        if (a->n_seg > 1 || a->in.row_index || a->in.kind == WK_CUDA_IN_RMS || a->rows > 16 ||
            !kernel_of(kind, a->types))
            return false;
        if (a->steps <= WK_SLOTS || a->steps > WK_SLOTS * WK_RESIDENT_CLUSTER_ROUNDS || a->step_shift < 6 ||
            !P::whole_steps(a) || !resident_cluster_shape(w, kind))
            return false;
        if (w->workers * WK_RESIDENT_CLUSTER_BLOCKS > 2 * P::device.processors) return false;
        *best = { kind, WK_RESIDENT_CLUSTER_BLOCKS, 0, 0 };
        return true;
    }
    /* Shared memory of split_k; 0: it does not fit. */
    static uint32_t split_k_shape(wk_batch_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = columns_of(kind), rounds = (a->steps + WK_SLOTS - 1) / WK_SLOTS;
        w->blocks = WK_SLOTS;
        w->workers = (a->seg[0].n_tiles + WK_SPLIT_K_TILES - 1) / WK_SPLIT_K_TILES;
        w->groups = 1;
        a->slot = rounds * a->seg[0].step_bytes;
        a->x_at = rounds * columns * 1024 << (a->step_shift - 6);
        a->red_at = a->x_at + WK_SPLIT_K_TILES * a->slot;
        w->kept_at = a->red_at + columns / 2 * WK_SLOTS * WK_CELL;
        a->bars_at = w->kept_at + columns * WK_SPLIT_K_TILES * WK_CELL;
        const uint32_t bytes = a->bars_at + WK_SPLIT_K_BARS * 8 + 1024;
        return bytes <= room_of(kind) ? bytes : 0;
    }
    /* A long k and few tiles: a block a multiprocessor, all at once. With a step a slot, or less, resident's
     * blocks, which stand beside those of other launches, are worth more: in the chain of a model's products 896 x 896
     * loses 0.4 to 0.6 us here. */
    static bool split_k_choice(wk_batch_args *w, choice *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t kind = a->rows > 32 ? SPLIT_K64 : SPLIT_K32;
        if (a->n_seg > 1 || a->in.row_index || a->rows <= 16 || a->rows > 64 || !kernel_of(kind, a->types))
            return false;
        if (a->steps <= WK_SLOTS || a->steps > WK_SLOTS * WK_SPLIT_K_ROUNDS || !P::whole_steps(a) ||
            !split_k_shape(w, kind))
            return false;
        if (w->workers * WK_SLOTS > P::device.processors || w->workers > clusters_of(a, kind, WK_SLOTS)) return false;
        *best = { kind, WK_SLOTS, 0, 0 };
        return true;
    }
    /* Shared memory of lm_head; 0: it does not fit, or not all tiles are at work at once. */
    static uint32_t lm_head_shape(wk_batch_args *w)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = columns_of(LM_HEAD32), team = (a->glu ? 2 : 1) * WK_LM_HEAD_PARTS,
                       room = room_of(LM_HEAD32);
        P::count_items(a, 1);
        a->slot = P::largest_step(a);
        w->groups = (a->rows + 8 * columns - 1) / (8 * columns);
        w->blocks = 1;
        w->owned = WK_SLOTS / WK_LM_HEAD_PARTS;
        w->workers = P::min_of(a->items, P::device.processors / w->groups);
        w->tiles = (a->items + w->workers - 1) / w->workers * team;
        const uint32_t x = a->steps * columns * 512 << (a->step_shift - 5), kept = w->tiles * columns * 512 * 2,
                       fixed = x + kept + w->tiles * WK_WARP_DEPTH * 8 + 8;
        a->depth = room > fixed
                       ? P::min_of((room - fixed) / (w->tiles * a->slot),
                                   P::min_of(WK_WARP_DEPTH, (a->steps + WK_LM_HEAD_PARTS - 1) / WK_LM_HEAD_PARTS))
                       : 0;
        if (w->tiles > WK_LM_HEAD_WARPS || a->depth < 2) return 0;
        a->x_at = w->tiles * a->depth * a->slot;
        w->kept_at = a->x_at + x;
        a->bars_at = w->kept_at + kept;
        w->order_at = a->bars_at + w->tiles * WK_WARP_DEPTH * 8;
        return w->order_at + 8;
    }
    /* With more than two tiles a multiprocessor. As measured for gate and up of Q5_0 and 896 values: 8.3 -> 6.5
     * and 14.0 -> 9.0 us at 32 and 64 rows (at 8 rows 5.9 for resident's 4.5); fewer tiles are better by
     * resident or stream. */
    static bool lm_head_choice(wk_batch_args *w, choice *best)
    {
        const wk_product_args *a = &w->p;
        if (a->rows <= 16 || a->rows > 64 || P::tiles_of(a) <= 2 * P::device.processors ||
            !kernel_of(LM_HEAD32, a->types) || !lm_head_shape(w))
            return false;
        *best = { LM_HEAD32, 1, 0, 0 };
        return true;
    }
    /* Shared memory of lm_head_wgmma; 0: it does not fit. */
    static uint32_t lm_head_wgmma_shape(wk_batch_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = columns_of(kind), warps = wk_lm_head_wgmma_warps(columns), room = room_of(kind);
        P::count_items(a, 1);
        a->slot = P::largest_step(a);
        w->groups = w->blocks = 1;
        w->workers = P::min_of(a->items, P::device.processors);
        w->tiles = warps;
        a->x_at = a->steps * columns * 1024 << (a->step_shift - 6);
        const uint32_t tiles = warps * (uint32_t)sizeof(wk_lm_head_wgmma_tiles), bars = warps * WK_WARP_DEPTH * 8,
                       order = (a->steps + (a->steps << (a->step_shift - 7))) * 4,
                       fixed = a->x_at + tiles + bars + order + 1024;
        a->depth = room > fixed ? P::min_of((room - fixed) / (warps * a->slot), (uint32_t)WK_WARP_DEPTH) : 0;
        w->kept_at = a->x_at + warps * a->depth * a->slot;
        a->bars_at = w->kept_at + tiles;
        w->order_at = a->bars_at + bars;
        return a->depth < 3 ? 0 : fixed + warps * a->depth * a->slot;
    }
    /* A vocabulary's tiles, with outputs that are sums and no more than a bias. As measured in a model for Q8_0 of
     * 151936 x 896: 40 -> 33 us at 8 rows, 53 -> 41 at 32, 89 -> 61 at 64. Four steps at least: of each pair of slots
     * that the tree adds first, one has to have something (wk_lm_head_wgmma_slot). */
    static bool lm_head_wgmma_choice(wk_batch_args *w, choice *best)
    {
        const wk_product_args *a = &w->p;
        const uint32_t rows = a->rows, kind = rows <= 8    ? LM_HEAD_WGMMA8
                                              : rows <= 16 ? LM_HEAD_WGMMA16
                                              : rows <= 32 ? LM_HEAD_WGMMA32
                                                           : LM_HEAD_WGMMA64;
        if (!P::plain_sums(a) || a->in.kind != WK_CUDA_IN_ACT || rows > 64 || a->step_shift < 7 ||
            a->steps < WK_SLOTS / 2 || P::tiles_of(a) <= WK_LM_HEAD_WGMMA_TILES * P::device.processors ||
            !kernel_of(kind, a->types) || !lm_head_wgmma_shape(w, kind))
            return false;
        *best = { kind, 1, 0, 0 };
        return true;
    }
    /* Shared memory of stream in clusters of `blocks` with items of `item_tiles`; 0: it does not fit. All of
     * the block's activations stay. */
    static uint32_t stream_shape(wk_batch_args *w, uint32_t kind, uint32_t blocks, uint32_t item_tiles)
    {
        wk_product_args *a = &w->p;
        const uint32_t tiles = columns_of(kind), each = a->glu ? 2 : 1, room = room_of(kind);
        w->groups = 1;
        const uint32_t clusters = clusters_of(a, kind, blocks);
        const uint32_t all = P::tiles_of(a);
        stages(w, tiles, P::super == 2 ? 256 : 128);
        a->stages = k_of(a, blocks) / w->stage_k;
        a->items = (all + item_tiles - 1) / item_tiles;
        if (clusters == 0 || a->stages > WK_STREAM_STAGES) return 0;
        w->tiles = item_tiles;
        share(w, blocks, clusters, item_tiles / each * tiles);
        w->buffers = w->workers < a->items ? 2 : 1;
        w->buffer = w->owned * blocks * each * WK_CELL;
        const uint32_t x = a->stages * w->x_bytes,
                       kept = blocks <= 2 ? 2 / blocks * WK_ITEM_TILES * tiles * WK_CELL : 0,
                       fixed = x + w->buffers * w->buffer + kept + WK_STREAM_BARS * 8;
        a->depth = room > fixed ? P::min_of((room - fixed) / (item_tiles * a->slot), (uint32_t)WK_STREAM_DEPTH) : 0;
        if (a->depth < 2) return 0;
        a->x_at = x;
        a->red_at = x + a->depth * item_tiles * a->slot;
        w->kept_at = a->red_at + w->buffers * w->buffer;
        a->bars_at = w->kept_at + kept;
        return a->bars_at + WK_STREAM_BARS * 8;
    }
    /* Clocks of the multiplying warps of the busiest multiprocessor, as measured for the products of four models: a
     * stage takes each warp so long alone, longer beside others, and longest where few stages are under way; the blocks
     * of a last, partial round have more room. Eight blocks find places together late if all such places are wanted. Of
     * equal choices that with the larger items is the better one. */
    static uint64_t stream_cost(const wk_batch_args *w, uint32_t kind)
    {
        const wk_product_args *a = &w->p;
        const uint32_t rounds = (a->items + w->workers - 1) / w->workers, last = a->items - (rounds - 1) * w->workers;
        auto stage = [&](uint32_t clusters) {
            const uint32_t warps =
                clusters * w->blocks > P::device.processors ? WK_STREAM_TOGETHER * w->tiles : w->tiles;
            return P::max_of((400 + 50 * warps) * w->stage_k / 256 + 300, 4200 / (2 * a->depth - 1));
        };
        const uint64_t clocks = a->stages * ((uint64_t)(rounds - 1) * stage(w->workers) + stage(last)) +
                                (kind == STREAM32 ? 600 * rounds : 0);
        return (clocks + (w->blocks == 8 && w->workers == clusters_of(a, kind, 8) ? 700 : 0)) *
               (100 + WK_STREAM_TILES - w->tiles);
    }
    static void stream_choice(wk_batch_args *w, uint32_t kind, choice *best)
    {
        for (uint32_t b = 1; b <= 8; b *= 2)
            for (uint32_t t = WK_STREAM_TILES; t >= WK_STREAM_TILES / 2; t -= 2) {
                if (!stream_shape(w, kind, b, t)) continue;
                const uint64_t cost = stream_cost(w, kind);
                if (cost < best->cost) *best = { kind, b, t, cost };
            }
    }
    /* Shared memory of stream_wgmma in clusters of `blocks`, `stage_k` values of k a stage; 0: it does not fit. */
    static uint32_t stream_wgmma_shape(wk_batch_args *w, uint32_t kind, uint32_t blocks, uint32_t stage_k)
    {
        wk_product_args *a = &w->p;
        const uint32_t tiles = columns_of(kind), each = a->glu ? 2 : 1, room = room_of(kind);
        w->groups = (a->rows + 8 * tiles - 1) / (8 * tiles);
        P::count_items(a, a->glu ? WK_ITEM_TILES / 2 : (uint32_t)WK_ITEM_TILES);
        const uint32_t clusters = clusters_of(a, kind, blocks) / w->groups,
                       kept = blocks <= 2 ? WK_ITEM_TILES * tiles * WK_CELL : 0;
        stages(w, tiles, stage_k);
        if (clusters == 0 || a->steps * a->run > WK_STREAM_WGMMA_STAGES) return 0;
        share(w, blocks, clusters, WK_ITEM_TILES / each * tiles);
        w->buffers = blocks > 1 && w->workers < a->items ? 2 : 1; /* one: each item is finished before the next */
        w->buffer = w->owned * blocks * each * WK_CELL;
        const uint32_t fixed =
                           1024 + w->buffers * w->buffer + kept + WK_STREAM_WGMMA_BARS * 8 + WK_STREAM_WGMMA_STAGES * 2,
                       stage = w->x_bytes + WK_ITEM_TILES * a->slot;
        a->depth = room > fixed ? (room - fixed) / stage : 0;
        if (a->depth > WK_STREAM_WGMMA_DEPTH) a->depth = WK_STREAM_WGMMA_DEPTH;
        if (a->depth < 2) return 0;
        a->x_at = a->depth * w->x_bytes;
        a->red_at = a->depth * stage;
        w->kept_at = a->red_at + w->buffers * w->buffer;
        a->bars_at = w->kept_at + kept;
        w->order_at = a->bars_at + WK_STREAM_WGMMA_BARS * 8;
        return w->order_at + WK_STREAM_WGMMA_STAGES * 2 + 1024;
    }
    /* Small enough that a launch is mostly beginning and end: then two blocks a multiprocessor, and what stream
     * does before it waits, are worth more than wgmma. As measured at 32 rows: 15 % at 4096 x 4096 of Q8_0, nothing
     * from 12288 x 4096 on. */
    static bool is_short_launch(const wk_product_args *a) { return (uint64_t)P::tiles_of(a) * a->k <= 1u << 20; }
    static void stream_wgmma_choice(wk_batch_args *w, uint32_t kind, choice *best)
    {
        wk_product_args *a = &w->p;
        if (!kernel_of(kind, a->types)) return;
        const uint32_t t = columns_of(kind),
                       most = 8 * t < a->rows
                                  ? 4
                                  : 8; /* groups in clusters of 8 leave the next launch no room to begin early */
        for (uint32_t b = 1; b <= most; b *= 2) {
            uint32_t k = t == 4 ? 256 : 128;
            if (!stream_wgmma_shape(w, kind, b, k) || (a->depth < 3 && k == 256)) k = 128;
            if (!stream_wgmma_shape(w, kind, b, k)) continue;
            const uint64_t rounds = (a->items + w->workers - 1) / w->workers, pieces = k_of(a, b) / 64;
            const uint64_t cost =
                rounds * (pieces * (300 + 40 * t) + 500 + 100 * t + (b > 1 ? 600 : 0)) + (b > 1 ? 1000 : 0);
            if (cost < best->cost) *best = { kind, b, k, cost };
        }
    }
    static choice best_of(wk_batch_args *w)
    {
        choice best = { 0, 0, 0, UINT64_MAX };
        const uint32_t rows = w->p.rows;
        if (split_k_choice(w, &best) || resident_cluster_choice(w, &best) || resident_choice(w, &best) ||
            lm_head_wgmma_choice(w, &best) || lm_head_choice(w, &best))
            return best;
        if (rows <= 16) {
            stream_choice(w, rows <= 8 ? STREAM8 : STREAM16, &best);
            return best;
        }
        if (rows <= 32 && (is_short_launch(&w->p) || !P::device.wgmma) && kernel_of(STREAM32, w->p.types))
            stream_choice(w, STREAM32, &best);
        if (best.blocks) return best;
        if (rows > 32) stream_wgmma_choice(w, STREAM_WGMMA64, &best);
        stream_wgmma_choice(w, STREAM_WGMMA32, &best);
        return best;
    }
    /* Of what best_of() chose. */
    static uint32_t shape(wk_batch_args *w, const choice &best)
    {
        if (is_resident(best.kind)) return resident_shape(w, best.kind, best.size);
        if (is_resident_cluster(best.kind)) return resident_cluster_shape(w, best.kind);
        if (is_stream(best.kind)) return stream_shape(w, best.kind, best.blocks, best.size);
        if (is_split_k(best.kind)) return split_k_shape(w, best.kind);
        if (is_lm_head_wgmma(best.kind)) return lm_head_wgmma_shape(w, best.kind);
        return best.kind == LM_HEAD32 ? lm_head_shape(w) : stream_wgmma_shape(w, best.kind, best.blocks, best.size);
    }

    /* ---- launch, and what the family says of its products of several rows ---- */

    /* Formats of one group, each with a kernel. */
    static bool takes(const wk_product_args &a)
    {
        for (uint32_t i = 1; i < a.n_seg; i++)
            if (P::groups[a.seg[i].type] != P::groups[a.seg[0].type] || (a.glu && a.seg[i].type != a.seg[0].type))
                return false; /* a block's tiles of gate and up are asked for alike */
        return kernel_of(STREAM8, a.types) != NULL;
    }
    /* False: not by these kernels. args: common() of p. */
    static bool launch(const wk_cuda_product *p, const wk_product_args &args, void *stream, wk_status *status,
                       const struct wk_err *err)
    {
        if (!takes(args)) return false;
        wk_batch_args wide = {}, *const w = &wide;
        wide.p = args;
        wk_product_args *a = &w->p;
        const uint32_t types = a->types;
        const choice best = best_of(w);
        const uint32_t shared = best.blocks ? shape(w, best) : 0;
        if (!shared) return false;
        cudaLaunchAttribute attribute[2] = {};
        cudaLaunchConfig_t config;
        P::cluster_config(&config, attribute, w->blocks, shared, threads(best.kind, w->tiles));
        config.gridDim = best.kind == LM_HEAD32 || is_resident(best.kind) ? dim3(w->workers, w->groups)
                                                                          : dim3(w->workers * w->blocks * w->groups);
        config.stream = static_cast<cudaStream_t>(stream);
        P::single_type(a);
        config.numAttrs = p->flags & WK_CUDA_DEPENDENT ? 2 : 1;
        *status = wk_product_status(cudaLaunchKernelEx(&config, kernel_of(best.kind, types), *w), "product", err);
        return true;
    }
    /* Most rows of a product with a norm in its prologue. A block makes all rows for itself, which for more than four
     * of them costs more than a launch unless blocks are so few that each has a multiprocessor. */
    static uint32_t norm_rows(const wk_cuda_product *p)
    {
        wk_batch_args w = {};
        choice best;
        wk_cuda_product q = *p;
        q.rows = WK_CUDA_FEW_NORM;
        q.input.kind = WK_CUDA_IN_RMS;
        q.input.row_index = NULL;
        P::common(&q, &w.p);
        const bool small = wk_resident_norms<First, Rest...>() && !p->expert && takes(w.p) &&
                           resident_choice(&w, &best) && w.p.step_shift <= 7 && P::whole_steps(&w.p);
        return !small ? 1 : w.p.items > P::device.processors ? 4 : WK_CUDA_FEW_NORM;
    }
    /* split_k takes panels; resident and resident_cluster runs, lm_head those of formats whose lanes read
     * a run as it stands. Gated, lm_head leaves panels, resident runs. */
    static struct wk_cuda_layout layout(const wk_cuda_product *p)
    {
        struct wk_cuda_layout l = { WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT };
        wk_batch_args w = {};
        wk_cuda_product q = *p;
        q.input.kind = WK_CUDA_IN_ACT;
        q.input.row_index = NULL;
        P::common(&q, &w.p);
        if (p->expert || p->rows == 1 || !takes(w.p)) return l;
        const choice best = best_of(&w);
        if (!best.blocks) return l; /* fewer rows at once */
        const uint32_t kind = best.kind, group = P::groups[w.p.seg[0].type];
        if (is_split_k(kind)) l.in = WK_CUDA_IN_PANELS, l.in_group = group;
        if (is_resident(kind) || is_resident_cluster(kind) || (kind == LM_HEAD32 && group == 32))
            l.in = WK_CUDA_IN_RUNS;
        if (p->glu)
            l.out = kind == LM_HEAD32 ? WK_CUDA_OUT_PANELS : is_resident(kind) ? WK_CUDA_OUT_RUNS : WK_CUDA_OUT_ACT;
        return l;
    }
    /* Has p what layout() says, if it has runs or panels at all? */
    static bool layout_right(const wk_cuda_product *p)
    {
        const uint32_t in = p->input.kind, out = p->seg[0].out.kind;
        if (in < WK_CUDA_IN_PANELS && out < WK_CUDA_OUT_PANELS) return true;
        const struct wk_cuda_layout l = layout(p);
        return (in < WK_CUDA_IN_PANELS || in == l.in) && (out < WK_CUDA_OUT_PANELS || out == l.out);
    }
};

#endif
