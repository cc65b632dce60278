/* worker/cuda/select/moe_decode.cuh: how products of experts are launched: which kernel, and how its shared memory
 * is cut, from the shape alone; none of it changes a bit of the result. */
#ifndef WORKER_CUDA_SELECT_MOE_DECODE_CUH
#define WORKER_CUDA_SELECT_MOE_DECODE_CUH

#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/kernel/moe_decode.cuh>
#include <worker/cuda/kernel/moe_one.cuh>
#include <worker/cuda/kernel/moe_several.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/experts.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/ring.cuh>
#include <worker/cuda/product.h>

/* P: what all products of the family share (product.cuh). */
template <class P, class First, class... Rest> struct wk_moe_decode_plan {
    static wk_status open(const struct wk_err *err)
    {
        const void *kernels[] = {
            (const void *)wk_product_moe_decode<1, First>,   (const void *)wk_product_moe_decode<1, Rest>...,
            (const void *)wk_product_moe_several<8, First>,  (const void *)wk_product_moe_several<8, Rest>...,
            (const void *)wk_product_moe_several<16, First>, (const void *)wk_product_moe_several<16, Rest>...,
            (const void *)wk_product_moe_one<First>,         (const void *)wk_product_moe_one<Rest>...
        };
        wk_status status = WK_OK;
        for (uint32_t i = 0; !status && i < sizeof kernels / sizeof *kernels; i++)
            status = wk_product_prepare(kernels[i], P::device.block_bytes, err);
        return status;
    }

    /* A stage of the rings of moe_decode: so many steps of each slot as make `bytes`, or a piece of one. */
    static void experts_stages(wk_experts_args *w, uint32_t bytes)
    {
        wk_product_args *a = &w->p;
        P::gemv::stages(a, WK_STAGE_BYTES);
        const uint32_t all = (a->steps + WK_SLOTS - 1) / WK_SLOTS;
        w->rounds = a->run > 1 ? 1 : P::min_of(P::min_of(all, WK_EXPERTS_ROUNDS / 4), P::max_of(bytes / a->slot, 1));
        while (all % w->rounds) w->rounds--; /* no stage is partly empty */
        if (w->rounds == 1) return;
        a->stages = all / w->rounds;
        a->slot = w->rounds * WK_SLOTS * a->seg[0].step_bytes;
    }
    /* Shared memory of moe_decode of 1, 8 or 16 columns, of which `capacity` are used; 0: it does not fit. */
    template <int COLUMNS> static uint32_t experts_shape(wk_experts_args *w)
    {
        typedef wk_experts_shape<COLUMNS> shape;
        wk_product_args *a = &w->p;
        const uint32_t padded = a->steps * a->step_units * P::unit, type = a->seg[0].type;
        uint32_t at = 0;
        a->x_stride =
            COLUMNS > 1 ? padded + P::pads[type] : padded; /* lanes that load together meet no other's banks */
        const uint32_t x_at = at;
        at += w->capacity * a->x_stride * 2;
        const uint32_t red_at = at;
        at += shape::places * shape::place;
        const uint32_t bars_at = at;
        at += WK_EXPERTS_BARS * 8;
        const uint32_t start_at = at;
        at += P::align(sizeof(wk_experts_walk));
        uint32_t depth = 0;
        for (a->blocks = shape::blocks; a->blocks; a->blocks--) {
            const uint32_t most = P::room_of(a->blocks), room = most > at ? most - at : 0;
            experts_stages(w, room / (WK_EXPERTS_STAGES * shape::groups));
            depth = room / (shape::groups * a->slot);
            if (depth >= 2) break;
        }
        if (depth < 2) return 0;
        a->depth = P::min_of(depth, WK_EXPERTS_ROUNDS / (shape::groups * w->rounds)); /* of a group's ring */
        w->tail = a->steps * a->seg[0].step_bytes - a->seg[0].tile_bytes;
        w->whole = P::device.clusters && a->run == 1 && (!w->tail || a->depth >= a->stages) ? 1 : 0;
        if (w->tail && w->whole)
            a->depth -= a->depth % a->stages; /* a stage of a tile is always at the same places */
        else
            w->tail = 0;
        a->flight = WK_GEMV_FLIGHT / (a->blocks * a->slot);
        a->flight =
            P::min_of(P::max_of(a->flight, 1),
                      a->depth + (shape::groups - 1) *
                                     (a->depth / a->stages *
                                      a->stages)); /* what has arrived is seen before its place is asked for again */
        const uint32_t ring = P::align(shape::groups * a->depth * a->slot);
        a->x_at = ring + x_at;
        a->red_at = ring + red_at;
        a->bars_at = ring + bars_at;
        w->start_at = ring + start_at;
        return ring + at;
    }
    /* Shared memory of moe_several of 8 or 16 columns, of which `capacity` are used; 0: it does not fit. */
    template <int COLUMNS> static uint32_t several_shape(wk_experts_args *w)
    {
        wk_product_args *a = &w->p;
        P::gemv::stages(a, WK_STAGE_BYTES);
        const uint32_t padded = a->steps * a->step_units * P::unit, type = a->seg[0].type,
                       step_bytes = a->seg[0].step_bytes;
        a->x_stride = padded + P::pads[type]; /* lanes that load together meet no other's banks */
        const uint32_t red_at = w->capacity * a->x_stride * 2,
                       bars_at = red_at + WK_MOE_SEVERAL_PLACES * wk_moe_several_shape<COLUMNS>::place,
                       start_at = bars_at + WK_MOE_SEVERAL_BARS * 8;
        const uint32_t at = start_at + P::align(sizeof(wk_moe_several_walk)),
                       room = P::device.block_bytes > at ? P::device.block_bytes - at : 0;
        w->tail = a->steps * step_bytes - a->seg[0].tile_bytes;
        /* What the last stage of a tile lacks of eight steps has no place in a ring that ends with it. */
        const uint32_t lack = a->run == 1 && a->steps > WK_SLOTS ? (a->stages * WK_SLOTS - a->steps) * step_bytes : 0;
        a->slot *= WK_MOE_SEVERAL_TILES;
        a->blocks = 1;
        auto ring = [&] { return P::align(a->depth * a->slot - (a->depth % a->stages ? 0 : lack)); };
        a->depth = P::min_of(P::max_of(WK_GEMV_FLIGHT / (WK_MOE_SEVERAL_GROUPS * a->slot), 2),
                             WK_MOE_SEVERAL_STAGES / WK_MOE_SEVERAL_GROUPS);
        while (a->depth > 1 && WK_MOE_SEVERAL_GROUPS * ring() > room) a->depth--;
        if (a->depth < 2) return 0;
        w->whole = P::device.clusters && a->run == 1 && (!w->tail || a->depth >= a->stages) ? 1 : 0;
        if (w->tail && w->whole)
            a->depth -= a->depth % a->stages; /* a stage of a tile is always at the same places */
        else
            w->tail = 0;
        w->ring = ring();
        const uint32_t rings = WK_MOE_SEVERAL_GROUPS * w->ring;
        a->x_at = rings;
        a->red_at = rings + red_at;
        a->bars_at = rings + bars_at;
        w->start_at = rings + start_at;
        return rings + at;
    }
    template <int COLUMNS> static void (*experts_kernel(uint32_t type))(const wk_experts_args)
    {
        if constexpr (COLUMNS == 1) {
            static void (*const kernels[P::n_types])(const wk_experts_args) = { wk_product_moe_decode<1, First>,
                                                                                wk_product_moe_decode<1, Rest>... };
            return kernels[type];
        } else {
            static void (*const kernels[P::n_types])(const wk_experts_args) = {
                wk_product_moe_several<COLUMNS, First>, wk_product_moe_several<COLUMNS, Rest>...
            };
            return kernels[type];
        }
    }
    template <int COLUMNS>
    static bool experts(const wk_cuda_product *p, wk_experts_args *w, uint32_t capacity, void *stream,
                        wk_status *status, const struct wk_err *err)
    {
        const uint32_t type = w->p.seg[0].type;
        w->capacity = capacity;
        P::count_items(&w->p, COLUMNS == 1 || w->p.glu ? 1 : WK_MOE_SEVERAL_TILES);
        uint32_t shared = 0, threads = WK_MOE_SEVERAL_THREADS;
        if constexpr (COLUMNS == 1)
            shared = experts_shape<1>(w), threads = wk_experts_shape<1>::threads;
        else
            shared = several_shape<COLUMNS>(w);
        if (!shared) return false;
        P::single_type(&w->p);
        const uint64_t units = (uint64_t)p->rows * w->p.items, most = w->p.blocks * P::device.processors;
        *status = P::begin(experts_kernel<COLUMNS>(type), *w, dim3((uint32_t)(units < most ? units : most)), threads,
                           shared, p->flags, stream, err);
        return true;
    }
    /* One row: its items have the blocks in equal parts. */
    static bool experts_one(const wk_cuda_product *p, wk_experts_args w, void *stream, wk_status *status,
                            const struct wk_err *err)
    {
        static void (*const kernels[P::n_types])(const wk_experts_args) = { wk_product_moe_one<First>,
                                                                            wk_product_moe_one<Rest>... };
        const uint32_t type = w.p.seg[0].type;
        w.capacity = 1;
        w.groups = p->expert;
        const uint32_t shared = experts_shape<1>(&w);
        if (!shared) return false;
        if (w.whole)
            w.p.flight =
                P::min_of(P::max_of(WK_MOE_ONE_FLIGHT / (w.p.blocks * (w.p.slot / w.rounds)), 1), w.p.depth * w.rounds);
        P::single_type(&w.p);
        const uint32_t workers = P::max_of(w.p.blocks * P::device.processors / p->top_k, 1);
        *status = P::begin(kernels[type], w, dim3(p->top_k, P::min_of(w.p.items, P::min_of(workers, 65535))),
                           wk_experts_shape<1>::threads, shared, p->flags, stream, err);
        return true;
    }
    /* One column where no expert has more than one item, as a rule; 16 where many have more than eight. */
    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        wk_experts_args w = {};
        P::common(p, &w.p);
        P::count_items(&w.p, 1);
        w.groups = p->groups;
        w.experts = p->n_experts;
        w.known = p->flags & WK_CUDA_GROUPS_KNOWN ? 1 : 0;
        if ((uint64_t)p->rows * w.p.items > UINT32_MAX / WK_MOE_SEVERAL_COST16)
            return wk_fail(err, WK_INVALID, "product: rows %u of %u tiles with experts", p->rows, w.p.items);
        const uint32_t rows = p->rows / p->top_k;
        wk_status status = WK_OK;
        if (rows == 1 && experts_one(p, w, stream, &status, err)) return status;
        if (rows > 8 && p->rows > 4 * p->n_experts && experts<16>(p, &w, 16, stream, &status, err)) return status;
        for (uint32_t capacity = rows > 8 ? 8 : rows; capacity > 1; capacity /= 2)
            if (experts<8>(p, &w, capacity, stream, &status, err)) return status;
        if (experts<1>(p, &w, 1, stream, &status, err)) return status;
        return wk_fail(err, WK_INVALID, "product: k %u is too large for experts", p->k);
    }
};

#endif
