/* worker/cuda/select/gemv.cuh: how gemv is launched: by how many blocks, and how their rings are cut, from
 * the shape alone; none of it changes a bit of the result. */
#ifndef WORKER_CUDA_SELECT_GEMV_CUH
#define WORKER_CUDA_SELECT_GEMV_CUH

#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/int8.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>

/* P: what all products of the family share (product.cuh). */
template <class P, class First, class... Rest> struct wk_gemv_plan {
    typedef void (*kernel)(const wk_product_args);
    template <int COLUMNS, class... F> static constexpr kernel of()
    {
        if constexpr (P::whole && COLUMNS > 1)
            return NULL; /* those are wk_int8_plan's */
        else
            return wk_product_gemv<COLUMNS, F...>;
    }
    /* The kernel for a launch: of one type if it has one. */
    static kernel kernel_of(uint32_t types, uint32_t columns)
    {
        static const kernel single[2][P::n_types] = { { of<1, First>(), of<1, Rest>()... },
                                                      { of<8, First>(), of<8, Rest>()... } };
        if (types & (types - 1)) return columns == 1 ? of<1, First, Rest...>() : of<8, First, Rest...>();
        return single[columns != 1][wk_log2(types)];
    }
    /* gemv_tall, of one type: not of whole numbers, nor of weights of two bytes and more, whose tiles are too large,
     * nor of units of which a step could have eight. */
    template <class F> static constexpr kernel tall_of()
    {
        if constexpr (P::whole || F::block == 1 || F::unit % 64)
            return NULL;
        else
            return wk_product_gemv_tall<F>;
    }
    static kernel tall_of(uint32_t types)
    {
        static const kernel single[P::n_types] = { tall_of<First>(), tall_of<Rest>()... };
        return single[wk_log2(types)];
    }
    static wk_status open(const struct wk_err *err)
    {
        const kernel kernels[] = { of<1, First, Rest...>(), of<1, First>(),   of<1, Rest>()..., of<8, First, Rest...>(),
                                   of<8, First>(),          of<8, Rest>()..., tall_of<First>(), tall_of<Rest>()... };
        wk_status status = WK_OK;
        for (uint32_t i = 0; !status && i < sizeof kernels / sizeof *kernels; i++)
            if (kernels[i]) status = wk_product_prepare((const void *)kernels[i], P::device.block_bytes, err);
        return status;
    }

    /* A stage of the ring of gemv: a piece of a step for each slot, of at most `most` bytes where a step can be
     * cut. */
    static void stages(wk_product_args *a, uint32_t most)
    {
        uint32_t chunk = P::largest_step(a);
        for (a->run = 1; P::super == 1 && a->run < a->step_units && chunk > most; a->run *= 2) chunk /= 2;
        a->rounds = 1;
        a->stage_units = a->step_units / a->run;
        a->stages = (a->steps + WK_SLOTS - 1) / WK_SLOTS * a->run;
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].stage_bytes = a->seg[i].step_bytes / a->run;
        a->slot = WK_SLOTS * chunk;
        if (a->steps < WK_SLOTS) a->slot = a->steps * chunk; /* the last step's chunk ends the stage */
    }
    /* Stages of several rounds of steps, where these are short: what a stage costs besides is paid for once. */
    static void rounds(wk_product_args *a)
    {
        const uint32_t step = P::largest_step(a), all = (a->steps + WK_SLOTS - 1) / WK_SLOTS,
                       most = WK_GEMV_ROUNDS / step;
        if (a->run > 1 || all == 1 || most < 2) return;
        a->stages = (all + most - 1) / most;
        a->rounds = (uint16_t)((all + a->stages - 1) / a->stages);
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].stage_bytes = a->rounds * a->seg[i].step_bytes;
        a->slot = P::min_of(WK_SLOTS * a->rounds, a->steps) * step;
    }
    /* Stages of gemv that a block may ask for before one has arrived. Of one row WK_FEW_ONE_*'s bytes; where the
     * matrix is large and they are one stage and a half, two, up to a third more: with one a block asks for nothing
     * while it waits. More than that small launches pay for, and stages above 50 KB gain nothing by it. */
    static uint32_t flight(const wk_product_args *a, uint32_t columns)
    {
        const uint32_t stage = a->blocks * a->slot;
        if (columns > 1) return P::max_of(WK_GEMV_FLIGHT / stage, 1);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) bytes += (uint64_t)a->seg[i].n_tiles * a->seg[i].tile_bytes;
        bytes /= 2 * P::device.processors;
        if (bytes <= WK_GEMV_ONE_MOST) return P::max_of(P::max_of((uint32_t)bytes, WK_GEMV_ONE_LEAST) / stage, 1);
        return P::max_of(WK_GEMV_ONE_MOST / stage, 2 * WK_GEMV_ONE_MOST >= 3 * stage ? 2 : 1);
    }
    /* Shared memory of gemv for `columns` (1 or 8); 0: it does not fit. */
    static uint32_t shape(wk_product_args *a, uint32_t columns)
    {
        const uint32_t padded = a->steps * a->step_units * P::unit, grid = P::device.processors;
        stages(a, columns == 1 ? (uint32_t)WK_GEMV_ONE_STAGE : (uint32_t)WK_STAGE_BYTES);
        if (columns == 1) rounds(a);
        a->slot = (a->slot + 127) & ~127u; /* stages begin with a line, as tiles do */
        uint32_t at = 0;
        const uint32_t x_at = at;
        a->x_stride = columns == 1 ? padded : padded + 32;
        at += P::align((columns == 1 ? 1 : a->rows) * a->x_stride * 2 +
                       (P::whole ? a->steps * (uint32_t)(WK_WHOLE_SUMS + sizeof(wk_whole_more)) : 0));
        const uint32_t red_at = at;
        at += WK_GEMV_SUMS * WK_SLOTS * 16 * columns * 4;
        const uint32_t bars_at = at;
        at += WK_GEMV_BARS * 8 + sizeof(wk_gemv_own);
        const uint32_t in_item = a->glu ? 2 : 1;
        const uint32_t room = P::room_of(2);
        uint32_t depth = room > at ? (room - at) / a->slot : 0,
                 most = (a->items + grid - 1) / grid * in_item * a->stages;
        /* Two blocks a multiprocessor, unless each has two items at most and the ring has room for both: then the next
         * launch's are there early, too. Of a large matrix with two bytes a weight or more, whose tiles take long, one
         * where the last round of two would cost a tenth. */
        const bool heavy = columns == 1 && a->items > 2 * grid && P::largest_step(a) >= 32u << a->step_shift &&
                           (a->items + 2 * grid - 1) / (2 * grid) * (2 * grid) > a->items + a->items / 10;
        a->blocks =
            !heavy && (a->items > 2 * grid || (a->items > grid && (most > depth || most > WK_GEMV_DEPTH))) ? 2 : 1;
        if (depth < 2 || heavy)
            depth = P::device.block_bytes > at ? (P::device.block_bytes - at) / a->slot : 0, a->blocks = 1;
        most = (a->items + a->blocks * grid - 1) / (a->blocks * grid) * in_item * a->stages;
        a->turn = most > a->stages ? a->steps % WK_SLOTS
                                   : 0; /* with several tiles a block those slots that have a step more go round */
        if (depth > most) depth = most;
        if (depth > WK_GEMV_DEPTH) depth = WK_GEMV_DEPTH;
        if (depth < 2 && depth < most) return 0;
        a->depth = depth;
        a->flight = P::min_of(flight(a, columns), depth);
        const uint32_t ring = P::align(depth * a->slot);
        a->bars_at = ring + bars_at;
        a->x_at = ring + x_at;
        a->red_at = ring + red_at;
        /* No more blocks a multiprocessor: one too many would take the place of which a neighbour has more. */
        return P::max_of(ring + at, P::device.processor_bytes / (a->blocks + 1));
    }
    /* Does gemv_tall take what shape() has laid out? Of tiles so large that a ring is not full gemv
     * multiplies more than it does besides; where pairs have few tiles, eight warps are done sooner with the last. */
    static bool tall(const wk_product_args *a)
    {
        const bool suits =
            a->n_seg == 1 && P::plain_sums(a) && a->stages == 1 && P::whole_steps(a) && a->depth == WK_GEMV_DEPTH;
        return suits && a->items >= a->blocks * P::device.processors * WK_GEMV_TALL_PAIRS * WK_GEMV_TALL_TILES &&
               tall_of(a->types);
    }
    /* False: this many rows do not fit in one launch. a: common() of p. */
    static bool launch(const wk_cuda_product *p, wk_product_args *a, void *stream, wk_status *status,
                       const struct wk_err *err)
    {
        const uint32_t types = a->types, columns = p->rows == 1 ? 1 : 8;
        P::count_items(a, 1);
        const uint32_t shared = shape(a, columns);
        if (!shared) return false;
        const bool pairs = columns == 1 && tall(a);
        P::single_type(a);
        const kernel k = pairs ? tall_of(types) : kernel_of(types, columns);
        const uint32_t threads = pairs ? (uint32_t)WK_GEMV_TALL_THREADS : (uint32_t)WK_GEMV_THREADS;
        *status = P::begin(k, *a, dim3(P::min_of(a->items, a->blocks * P::device.processors)), threads, shared,
                           p->flags, stream, err);
        return true;
    }
};

#endif
