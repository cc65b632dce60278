/* worker/cuda/select/int8.cuh: how products by whole numbers of more than one row are launched: by how many
 * blocks, and how their shared memory is cut, from the shape alone; none of it changes a bit of the result. */
#ifndef WORKER_CUDA_SELECT_INT8_CUH
#define WORKER_CUDA_SELECT_INT8_CUH

#include <worker/cuda/kernel/int8.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/part/order.cuh>

static inline uint32_t wk_whole_tiles(uint32_t rows) { return (rows + WK_WHOLE_TILE - 1) / WK_WHOLE_TILE; }
static inline uint64_t wk_whole_workspace(uint32_t k, uint32_t rows)
{
    return rows < 2 ? 0 : (uint64_t)wk_whole_tiles(rows) * (k / WK_WHOLE_BLOCK) * WK_WHOLE_RECORD;
}

/* P: what all products of the family share (product.cuh). */
template <class P, class First, class... Rest> struct wk_int8_plan {
    typedef void (*kernel)(const wk_int8_args);
    enum {
        KINDS = 4
    }; /* of kernels: 1, 2, 4, 8 records of four rows. Of several types no more than 4: there are
        * no registers for more */
    static uint32_t kinds(uint32_t types) { return types & (types - 1) ? KINDS - 1 : KINDS; }
    template <class... F> static kernel of(uint32_t kind)
    {
        constexpr int most = sizeof...(F) > 1 ? 4 : 8;
        static const kernel kernels[KINDS] = { wk_product_int8<1, F...>, wk_product_int8<2, F...>,
                                               wk_product_int8<4, F...>, wk_product_int8<most, F...> };
        return kernels[kind];
    }
    static kernel kernel_of(uint32_t types, uint32_t kind)
    {
        if (types & (types - 1)) return of<First, Rest...>(kind);
        static kernel (*const single[P::n_types])(uint32_t) = { of<First>, of<Rest>... };
        return single[wk_log2(types)](kind);
    }
    static wk_status open(const struct wk_err *err)
    {
        wk_status status = WK_OK;
        for (uint32_t type = 0; type <= P::n_types; type++)
            for (uint32_t kind = 0; kind < KINDS && !status; kind++) {
                const kernel k = kernel_of(type < P::n_types ? 1u << type : (1u << P::n_types) - 1, kind);
                status = wk_product_prepare((const void *)k, P::device.block_bytes, err);
            }
        for (uint32_t b = 0; b < 4 && !status; b++)
            clusters[b] = P::clusters_at_once(kernel_of(1, KINDS - 1), 1u << b, WK_INT8_TOGETHER, WK_INT8_THREADS);
        return status ? status : wk_product_prepare((const void *)wk_int8_rows<>, P::device.block_bytes, err);
    }

    /* Shared memory with 2^kind records and clusters of `blocks` in `room`; 0: it does not fit. */
    static uint32_t shape(wk_int8_args *w, uint32_t kind, uint32_t blocks, uint32_t room)
    {
        wk_product_args *a = &w->p;
        const uint32_t records = 1u << kind, stage = WK_INT8_TILES * a->slot + records * WK_WHOLE_RECORD,
                       sums = WK_INT8_TILES * records * WK_WHOLE_TILE * 64;
        const uint32_t fixed = (blocks == 1   ? 3
                                : blocks == 2 ? 2
                                              : 1) *
                                   sums +
                               WK_INT8_BARS * 8; /* those that wait, and in the end all, in the places of the first */
        const uint32_t most = (a->steps + blocks - 1) / blocks + 1; /* stages that a block has, about */
        a->depth = room > fixed ? P::min_of(P::min_of((room - fixed) / stage, WK_INT8_DEPTH), most) : 0;
        if (a->depth < 2) return 0;
        w->blocks = blocks;
        a->x_at = a->depth * WK_INT8_TILES * a->slot;
        a->red_at = a->depth * stage;
        a->bars_at = a->red_at + fixed - WK_INT8_BARS * 8;
        return a->red_at + fixed;
    }
    static inline uint32_t
        clusters[4]; /* by log2 of blocks: that the device holds at once, two blocks a multiprocessor */
    /* Nanoseconds, fitted to 1,900 measured times of both formats: of the steps of a multiprocessor's two blocks, or of
     * one that is alone there in the last round; of beginning and end; of each further round of clusters. Within 1.3 %
     * of the best choice on average. */
    static uint64_t cost(const wk_int8_args *w, uint32_t kind, uint32_t log_blocks)
    {
        const uint32_t records = P::min_of(1u << kind, w->tiles), blocks = 1u << log_blocks,
                       row_groups = groups(w, kind),
                       most = log_blocks ? clusters[log_blocks] : P::max_of(clusters[0] / row_groups, 1);
        const uint64_t items = (uint64_t)w->p.items * (log_blocks ? row_groups : 1), rounds = (items + most - 1) / most,
                       last = (items - (rounds - 1) * most) * (log_blocks ? blocks : row_groups);
        const bool alone = last <= P::device.processors && (log_blocks || rounds == 1);
        const uint64_t turns = (rounds - 1) * 200 + (alone ? 146 : 200);
        return turns * ((w->p.steps + blocks - 1) / blocks) * (272 + 67 * records) / 100 + 235 * records +
               (log_blocks ? (rounds - 1) * (1000 + 487 * records) : 0);
    }
    /* The cheapest: how many records at once, and how many blocks to an item. */
    static uint32_t best(wk_int8_args *w, uint32_t *kind)
    {
        uint64_t least = UINT64_MAX;
        uint32_t room = 0, blocks = 0;
        for (uint32_t k = 0; k < kinds(w->p.types); k++) {
            if (k && 1u << (k - 1) >= w->tiles) break; /* half as many have all rows */
            for (uint32_t b = 0; b < (P::device.clusters ? 4 : 1); b++) {
                if (clusters[b] == 0 || cost(w, k, b) >= least) continue;
                const uint32_t here = shape(w, k, 1u << b, P::room_of(WK_INT8_TOGETHER)) ? P::room_of(WK_INT8_TOGETHER)
                                                                                         : P::device.block_bytes;
                if (!shape(w, k, 1u << b, here)) continue;
                least = cost(w, k, b), *kind = k, blocks = 1u << b, room = here;
            }
        }
        return blocks ? shape(w, *kind, blocks, room) : 0;
    }
    static uint32_t groups(const wk_int8_args *w, uint32_t kind) { return (w->tiles + (1u << kind) - 1) >> kind; }
    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        if (!p->workspace || reinterpret_cast<uintptr_t>(p->workspace) % 256)
            return wk_fail(err, WK_INVALID, "product: workspace of %u rows is missing or not aligned", p->rows);
        wk_int8_args w = {};
        wk_product_args *a = &w.p;
        P::common(p, a);
        P::count_items(a, p->glu ? WK_INT8_TILES / 2 : (uint32_t)WK_INT8_TILES);
        a->slot = P::largest_step(a);
        w.x = static_cast<const unsigned char *>(p->workspace);
        w.tiles = wk_whole_tiles(p->rows);
        uint32_t kind = 0;
        const uint32_t types = a->types, shared = best(&w, &kind);
        if (!shared)
            return wk_fail(err, WK_INVALID, "product: %u rows do not fit into a block's %u bytes of shared memory",
                           p->rows, P::device.block_bytes);
        P::single_type(a);
        const wk_status status =
            P::begin(wk_int8_rows<>, w, dim3((a->steps + WK_SLOTS - 1) / WK_SLOTS, w.tiles * WK_WHOLE_TILE),
                     32 * WK_SLOTS, 0, p->flags, stream, err);
        if (status) return status;
        /* One block to an item: as many as find places take items by turns, without clusters, which older devices do
         * not know. */
        const uint32_t row_groups = groups(&w, kind),
                       workers = w.blocks > 1 ? a->items : P::min_of(a->items, P::max_of(clusters[0] / row_groups, 1)),
                       first = w.blocks > 1 ? 0 : 1;
        cudaLaunchAttribute attribute[2] = {};
        cudaLaunchConfig_t config;
        P::cluster_config(&config, attribute, w.blocks, shared, WK_INT8_THREADS);
        config.gridDim = dim3(workers * w.blocks, row_groups);
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = attribute + first;
        config.numAttrs = (p->flags & WK_CUDA_DEPENDENT ? 2 : 1) - first;
        return wk_product_status(cudaLaunchKernelEx(&config, kernel_of(types, kind), w), "product", err);
    }
};

#endif
