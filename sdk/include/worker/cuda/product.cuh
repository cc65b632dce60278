/* worker/cuda/product.cuh: the launches of a family of formats: WK_PRODUCT_FAMILY(name, format...) defines `const struct wk_product_family name`.
 *
 * All formats of a family have the same unit and super-unit. What is checked, which kernel takes a product and how its shared memory is cut is decided here
 * from the shape; none of it changes a bit of the result (product_args.cuh). */
#ifndef WORKER_CUDA_PRODUCT_CUH
#define WORKER_CUDA_PRODUCT_CUH

#include <cuda_runtime.h>

#include <worker/cuda/product.h>
#include <worker/cuda/product_check.cuh>
#include <worker/cuda/product_experts_plan.cuh>
#include <worker/cuda/product_few_plan.cuh>
#include <worker/cuda/product_heads.cuh>
#include <worker/cuda/product_middle.cuh>
#include <worker/cuda/product_relay.cuh>
#include <worker/cuda/product_slots.cuh>
#include <worker/cuda/product_small.cuh>
#include <worker/cuda/product_wide.cuh>
#include <worker/cuda/product_whole_plan.cuh>

/* What the kernels' shapes depend on besides the product; one device a process. */
struct wk_product_device {
    uint32_t processors, block_bytes, processor_bytes; /* shared memory: most of a block, of a multiprocessor */
    bool clusters, wgmma;                              /* blocks can share their memories, and there are bulk copies; product_wide's instructions */
};

static inline wk_status wk_product_device_read(int32_t device, wk_product_device *d, const struct wk_err *err)
{
    int v[5] = { 0, 0, 0, 0, 0 };
    const cudaDeviceAttr attribute[5] = { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrClusterLaunch, cudaDevAttrComputeCapabilityMajor };
    for (int i = 0; i < 5; i++) {
        const wk_status status = wk_product_status(cudaDeviceGetAttribute(&v[i], attribute[i], device), "product: device attribute", err);
        if (status) return status;
    }
    d->processors = (uint32_t)v[0];
    d->block_bytes = (uint32_t)v[1];
    d->processor_bytes = (uint32_t)v[2];
    d->clusters = v[3] != 0;
    d->wgmma = v[4] == 9;
    return WK_OK;
}

template <class First, class... Rest> struct wk_product_of {
    static constexpr uint32_t n_types = 1 + sizeof...(Rest), unit = First::unit, super = First::super;
    static_assert(n_types <= WK_TYPES_MAX && super <= 2 && ((Rest::unit == unit && Rest::super == super) && ...), "formats of a family have units of one size");
    static constexpr uint32_t types[n_types] = { First::type, Rest::type... };
    static constexpr uint32_t slots[n_types] = { First::slot, Rest::slot... }, groups[n_types] = { First::group, Rest::group... }, pads[n_types] = { wk_few_pad<First>(), wk_few_pad<Rest>()... };
    static constexpr float unscales[n_types] = { wk_unscale<First>(), wk_unscale<Rest>()... }, whole_unscales[n_types] = { wk_is_whole<First>::unscale, wk_is_whole<Rest>::unscale... };
    static constexpr bool whole = wk_is_whole<First>::yes; /* dense products go by whole numbers */
    static inline wk_product_device device;
    typedef wk_few_plan<wk_product_of, First, Rest...> few;
    typedef wk_experts_plan<wk_product_of, First, Rest...> experts;
    typedef wk_whole_plan<wk_product_of, First, Rest...> numbers;

    static uint32_t index(uint32_t type)
    {
        uint32_t i = 0;
        while (types[i] != type) i++;
        return i;
    }
    /* What fn says of member i. */
    template <class Fn> static uint32_t of_type(uint32_t i, Fn fn)
    {
        uint32_t j = 0, value = fn(First());
        ((value = ++j == i ? fn(Rest()) : value), ...);
        return value;
    }
    static uint32_t tile_bytes(uint32_t i, uint32_t k) { return of_type(i, [k](auto f) { return (uint32_t)decltype(f)::tile_bytes(k); }); }
    static uint32_t tile_stride(uint32_t i, uint32_t k) { return of_type(i, [k](auto f) { return (uint32_t)wk_tile_stride<decltype(f)>(k); }); }
    static uint32_t step_bytes(uint32_t i, uint32_t units) { return of_type(i, [units](auto f) { return (uint32_t)decltype(f)::offset(units); }); }
    static wk_status open(int32_t device_index, const struct wk_err *err)
    {
        wk_status status = wk_product_device_read(device_index, &device, err);
        if (!status) status = few::open(err);
        if (!status) status = experts::open(err);
        if constexpr (whole) return status ? status : numbers::open(err);
        else return status ? status : wide_open(err);
    }

    /* Units of the longest step: 256 values, or fewer where product_few could have only pieces of them that begin inside a line of 128 bytes (wk_tile_stride). */
    template <class F> static constexpr uint32_t longest_of()
    {
        uint32_t units = super > 1 ? super : 256 / unit;
        while (super == 1 && units > 1 && F::offset(units) > WK_FEW_ONE_STAGE && F::offset(units / 2) % 128) units /= 2;
        return units;
    }
    static constexpr uint32_t longest_step()
    {
        uint32_t units = longest_of<First>();
        ((units = longest_of<Rest>() < units ? longest_of<Rest>() : units), ...);
        return units;
    }
    static uint64_t step_cost(uint32_t k, uint32_t step) { return ((k + step - 1) / step + WK_SLOTS - 1) / WK_SLOTS * (uint64_t)(step + 32); }

    /* All that does not depend on the number of columns. */
    static void common(const wk_cuda_product *p, wk_product_args *a)
    {
        *a = wk_product_args();
        a->rows = p->rows;
        a->k = p->k;
        a->k32 = wk_act_k(p->k);
        /* Part of the order of arithmetic, so by k alone: steps of 256 values or fewer, as short as keeps 8 warps evenly busy; 32: what a step costs besides. */
        a->step_units = longest_step();
        for (uint32_t units = a->step_units / 2; super == 1 && units; units /= 2)
            if (step_cost(p->k, units * unit) < step_cost(p->k, a->step_units * unit)) a->step_units = units;
        a->steps = (p->k + a->step_units * unit - 1) / (a->step_units * unit);
        a->step_shift = wk_log2(a->step_units * unit);
        a->n_seg = p->n_seg;
        a->glu = p->glu;
        a->in = p->input;
        float in_scale = 1.0f;
        if (p->input.kind != WK_CUDA_IN_RMS)
            for (uint32_t i = 0; i < p->input.shift; i++) in_scale *= 2.0f;
        a->out_group = p->out_group;
        a->residual = p->residual;
        a->residual_stride = p->residual_stride;
        a->alpha = p->alpha;
        a->limit = p->limit;
        for (int i = 0; i < 4; i++) a->map[i] = { p->map[i].fn, p->map[i].p };
        a->x_items = p->x_items;
        for (uint32_t i = 0; i < p->n_seg; i++) {
            const wk_cuda_segment *s = &p->seg[i];
            const uint32_t type = index(s->ggml_type);
            a->seg[i] = { static_cast<const unsigned char *>(s->tiles), s->bias, s->out.y, s->out.aux, s->out.y_stride, tile_stride(type, p->k),
                          tile_bytes(type, p->k), step_bytes(type, a->step_units), 0, s->n, (s->n + 15) / 16, type, in_scale * (whole && !p->expert ? whole_unscales : unscales)[type], s->out.kind, s->out.shift, 0 };
            a->types |= 1u << type;
            if (slots[type] > a->slot) a->slot = slots[type];
        }
        a->way = way(p);
    }
    /* The way that the outputs go (epilogue.cuh). */
    static uint32_t way(const wk_cuda_product *p)
    {
        bool plain = !p->glu && !p->map[0].fn, whole = wk_fours(p->residual, p->residual_stride, 4);
        for (uint32_t i = 0; i < p->n_seg; i++) {
            const wk_cuda_segment *s = &p->seg[i];
            plain = plain && s->out.kind == WK_CUDA_OUT_F32;
            whole = whole && s->n % 32 == 0 && wk_fours(s->bias, 0, 4) && (i && p->glu ? true : wk_fours(s->out.y, s->out.y_stride, s->out.kind == WK_CUDA_OUT_F32 ? 4 : 2));
        }
        if (plain) return whole ? WK_WAY_F32_FOURS : WK_WAY_F32;
        return p->glu == WK_GLU_SILU && whole && !p->residual && p->seg[0].out.kind != WK_CUDA_OUT_F32 ? WK_WAY_SILU : WK_WAY_ANY;
    }

    static uint32_t align(uint32_t bytes) { return (bytes + 15u) & ~15u; }

    /* A kernel of one type knows it as its first; of several, each by its index. */
    static void single_type(wk_product_args *a)
    {
        if (a->types & (a->types - 1)) return;
        a->types = 1;
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].type = 0;
    }
    static uint32_t max_of(uint32_t a, uint32_t b) { return a > b ? a : b; }
    static uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

    static uint32_t tiles_of(const wk_product_args *a) /* of all segments */
    {
        uint32_t tiles = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) tiles += a->seg[i].n_tiles;
        return tiles;
    }
    static uint32_t largest_step(const wk_product_args *a) /* bytes */
    {
        uint32_t step = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) step = max_of(step, a->seg[i].step_bytes);
        return step;
    }
    /* tiles: of a segment to an item (glu: pairs) */
    static void count_items(wk_product_args *a, uint32_t tiles)
    {
        a->items = 0;
        for (uint32_t i = 0; i < (a->glu ? 1 : a->n_seg); i++) a->seg[i].end = a->items += (a->seg[i].n_tiles + tiles - 1) / tiles;
    }

    template <class Args>
    static wk_status begin(void (*kernel)(const Args), const Args &a, dim3 grid, uint32_t threads, uint32_t shared, uint32_t flags, void *stream, const struct wk_err *err)
    {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = shared;
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = &attribute;
        config.numAttrs = flags & WK_CUDA_DEPENDENT ? 1 : 0;
        return wk_product_status(cudaLaunchKernelEx(&config, kernel, a), "product", err);
    }
    /* Rows [first, first + n) of a product as one of its own. */
    static wk_cuda_product part(const wk_cuda_product *p, uint32_t first, uint32_t n)
    {
        wk_cuda_product q = *p;
        q.rows = n;
        if (p->input.row_index) {
            q.input.row_index += first;
        } else { /* acts: a norm has one row */
            q.input.x = static_cast<const __half *>(p->input.x) + (uint64_t)first * wk_act_k(p->k);
        }
        if (p->residual && !p->input.row_index) q.residual += first * p->residual_stride;
        for (uint32_t i = 0; i < p->n_seg; i++) {
            wk_cuda_output *o = &q.seg[i].out;
            if (o->kind == WK_CUDA_OUT_F32) {
                o->y = static_cast<float *>(o->y) + first * o->y_stride;
                if (o->aux) o->aux += (uint64_t)first * ((p->seg[i].n + 15) / 16);
            } else {
                o->y = static_cast<__half *>(o->y) + (uint64_t)first * wk_act_k(p->seg[i].n);
            }
        }
        return q;
    }

    /* ---- product_small (1 or 2 tiles of 8 columns), product_relay (1 or 2), product_middle (1, 2 or 4), product_wide and product_slots (4 or 8), product_held (4), product_heads (1, 2, 4 or 8) ---- */

    typedef void (*wide_kernel)(const wk_wide_args);
    /* The kernels: tiles of 8 columns, and blocks a multiprocessor. */
    enum { SMALL8, SMALL16, RELAY8, RELAY16, MIDDLE8, MIDDLE16, MIDDLE32, WIDE32, WIDE64, SLOTS32, SLOTS64, HELD32, HEADS8, HEADS16, HEADS32, HEADS64, WIDE_KINDS };
    static constexpr bool is_small(uint32_t kind) { return kind <= SMALL16; }
    static constexpr bool is_relay(uint32_t kind) { return kind == RELAY8 || kind == RELAY16; }
    static constexpr bool is_middle(uint32_t kind) { return kind >= MIDDLE8 && kind <= MIDDLE32; }
    static constexpr bool is_slots(uint32_t kind) { return kind == SLOTS32 || kind == SLOTS64; }
    static constexpr bool is_heads(uint32_t kind) { return kind >= HEADS8; }
    static constexpr uint32_t wide_tiles(uint32_t kind)
    {
        const uint32_t tiles[WIDE_KINDS] = { 1, 2, 1, 2, 1, 2, 4, 4, 8, 4, 8, 4, 1, 2, 4, 8 };
        return tiles[kind];
    }
    static uint32_t wide_threads(uint32_t kind, uint32_t item_tiles)
    {
        const uint32_t warps = is_small(kind) ? (uint32_t)WK_SLOTS : is_relay(kind) ? (uint32_t)WK_RELAY_WARPS : is_middle(kind) ? item_tiles + WK_MIDDLE_STREAMS : is_slots(kind) ? (uint32_t)WK_SLOT_WARPS : kind >= HELD32 ? item_tiles : (uint32_t)WK_WIDE_THREADS / 32;
        return 32 * warps;
    }
    static constexpr uint32_t wide_together(uint32_t kind) { return is_small(kind) || is_middle(kind) || is_relay(kind) || kind == SLOTS32 ? (uint32_t)WK_MIDDLE_TOGETHER : 1; }
    template <uint32_t KIND, class... F> static constexpr wide_kernel wide_one()
    {
        if constexpr (((wk_is_exact<F>::yes || wk_is_whole<F>::yes) || ...) || ((KIND == MIDDLE32 || KIND == HELD32 || is_heads(KIND)) && super > 1) || ((is_slots(KIND) || is_heads(KIND) || is_relay(KIND)) && sizeof...(F) > 1) || (is_heads(KIND) && (wk_is_half<F>() || ...))) return NULL;
        else if constexpr (is_small(KIND)) return wk_product_small<wide_tiles(KIND), F...>;
        else if constexpr (is_relay(KIND)) return wk_product_relay<wide_tiles(KIND), F...>;
        else if constexpr (is_middle(KIND)) return wk_product_middle<wide_tiles(KIND), F...>;
        else if constexpr (is_slots(KIND)) return wk_product_slots<wide_tiles(KIND), F...>;
        else if constexpr (KIND == HELD32) return wk_product_held<wide_tiles(KIND), F...>;
        else if constexpr (is_heads(KIND)) return wk_product_heads<wide_tiles(KIND), F...>;
        else return wk_product_wide<wide_tiles(KIND), F...>;
    }
    template <uint32_t KIND> static wide_kernel wide_of(uint32_t types)
    {
        static const wide_kernel kernels[n_types] = { wide_one<KIND, First>(), wide_one<KIND, Rest>()... };
        if (!(types & (types - 1))) return kernels[wk_log2(types)];
        if constexpr (((Rest::group == First::group) && ...)) return wide_one<KIND, First, Rest...>();
        else return NULL;
    }
    static wide_kernel wide_of(uint32_t kind, uint32_t types)
    {
        static wide_kernel (*const of[WIDE_KINDS])(uint32_t) = { wide_of<SMALL8>, wide_of<SMALL16>, wide_of<RELAY8>, wide_of<RELAY16>, wide_of<MIDDLE8>, wide_of<MIDDLE16>, wide_of<MIDDLE32>, wide_of<WIDE32>, wide_of<WIDE64>, wide_of<SLOTS32>, wide_of<SLOTS64>, wide_of<HELD32>, wide_of<HEADS8>, wide_of<HEADS16>, wide_of<HEADS32>, wide_of<HEADS64> };
        return of[kind](types);
    }
    static inline uint32_t wide_clusters[WIDE_KINDS][n_types + 1][4]; /* by kernel, type (n_types: several), log2 of blocks: clusters that the device holds at once */
    static uint32_t wide_room(uint32_t kind) /* shared memory of a block */
    {
        const uint32_t room = device.processor_bytes / wide_together(kind) - WK_BLOCK_RESERVED;
        return room < device.block_bytes ? room : device.block_bytes;
    }
    static void wide_config(cudaLaunchConfig_t *config, cudaLaunchAttribute attribute[2], uint32_t blocks, uint32_t shared, uint32_t threads)
    {
        attribute[0].id = cudaLaunchAttributeClusterDimension;
        attribute[0].val.clusterDim = { blocks, 1, 1 };
        attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[1].val.programmaticStreamSerializationAllowed = 1;
        *config = cudaLaunchConfig_t();
        config->gridDim = dim3(blocks);
        config->blockDim = dim3(threads);
        config->dynamicSmemBytes = shared;
        config->attrs = attribute;
        config->numAttrs = 1;
    }
    static wk_status wide_open(const struct wk_err *err)
    {
        for (uint32_t kind = 0; device.wgmma && kind < WIDE_KINDS; kind++)
            for (uint32_t type = 0; type <= n_types; type++) {
                const wide_kernel kernel = type == n_types && n_types == 1 ? NULL : wide_of(kind, type < n_types ? 1u << type : 3u);
                if (!kernel) continue;
                const wk_status status = wk_product_prepare((const void *)kernel, device.block_bytes, err);
                if (status) return status;
                for (uint32_t b = 0; b < 4; b++) {
                    cudaLaunchAttribute attribute[2] = {};
                    cudaLaunchConfig_t config;
                    int clusters = (int)(device.processors * wide_together(kind));
                    wide_config(&config, attribute, 1u << b, wide_room(kind), wide_threads(kind, WK_MIDDLE_TILES));
                    if (b && (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess || clusters < 0)) {
                        (void)cudaGetLastError();
                        clusters = 0;
                    }
                    wide_clusters[kind][type][b] = (uint32_t)clusters;
                }
            }
        return WK_OK;
    }
    /* Values of k that the busiest block of `blocks` has of an item. */
    static uint32_t wide_k(const wk_product_args *a, uint32_t blocks)
    {
        uint32_t most = 0;
        for (uint32_t rank = 0; rank < blocks; rank++) {
            uint32_t steps = 0;
            for (uint32_t leaf = rank * (WK_SLOTS / blocks); leaf < (rank + 1) * (WK_SLOTS / blocks); leaf++) {
                const uint32_t slot = wk_leaf_slot(leaf);
                if (slot < a->steps) steps += (a->steps - slot + WK_SLOTS - 1) / WK_SLOTS;
            }
            most = max_of(most, steps);
        }
        return most << a->step_shift;
    }
    /* A stage: `stage_k` values of k, or a step if that has fewer. */
    static void wide_stages(wk_wide_args *w, uint32_t tiles, uint32_t stage_k)
    {
        wk_product_args *a = &w->p;
        const uint32_t step_k = 1u << a->step_shift;
        a->run = step_k > stage_k ? step_k / stage_k : 1;
        w->run_shift = wk_log2(a->run);
        a->stage_units = a->step_units / a->run;
        a->slot = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) {
            a->seg[i].stage_bytes = step_bytes(a->seg[i].type, a->stage_units);
            a->slot = max_of(a->slot, a->seg[i].stage_bytes);
        }
        w->stage_k = step_k / a->run;
        w->x_bytes = (w->stage_k + 63) / 64 * tiles * 1024;
    }
    static uint32_t wide_clusters_of(const wk_product_args *a, uint32_t kind, uint32_t blocks)
    {
        return wide_clusters[kind][a->types & (a->types - 1) ? n_types : wk_log2(a->types)][wk_log2(blocks)];
    }
    static void wide_share(wk_wide_args *w, uint32_t blocks, uint32_t clusters, uint32_t cells)
    {
        wk_product_args *a = &w->p;
        w->workers = clusters < a->items ? clusters : a->items;
        w->blocks = blocks;
        w->owned = (cells + blocks - 1) / blocks;
        w->owned_inverse = 65535 / w->owned + 1;
    }
    /* Shared memory of product_small with `tiles` of a segment (glu: pairs) to an item; 0: it does not fit. */
    static uint32_t small_shape(wk_wide_args *w, uint32_t kind, uint32_t tiles)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = wide_tiles(kind), each = a->glu ? 2 : 1, cell = columns * WK_WIDE_CELL;
        count_items(a, tiles);
        w->tiles = tiles;
        w->blocks = 1;
        w->workers = a->items;
        w->groups = (a->rows + 8 * columns - 1) / (8 * columns);
        w->x_bytes = cell << (a->step_shift - 5);
        a->slot = tiles * each * largest_step(a);
        a->x_at = WK_SLOTS * a->slot;
        a->red_at = a->x_at + WK_SLOTS * w->x_bytes;
        a->bars_at = a->red_at + tiles * each * WK_SLOTS * cell;
        w->kept_at = a->bars_at + WK_SLOTS * 8 + 2 * WK_CUDA_FEW_NORM * 4; /* barriers, and the scales of a norm, twice */
        const uint32_t bytes = w->kept_at + (a->in.kind == WK_CUDA_IN_RMS && a->rows > 4 ? 4 * WK_SMALL_KEPT : 0);
        return bytes <= wide_room(kind) ? max_of(bytes, WK_SMALL_LEAST) : 0;
    }
    /* Shared memory of product_relay; 0: it does not fit. */
    static uint32_t relay_shape(wk_wide_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t places = (a->steps + WK_SLOTS - 1) / WK_SLOTS * WK_RELAY_SLOTS, cell = wide_tiles(kind) * WK_WIDE_CELL;
        w->tiles = 1;
        w->blocks = WK_RELAY_BLOCKS;
        w->workers = a->seg[0].n_tiles;
        w->groups = 1;
        w->x_bytes = cell << (a->step_shift - 5);
        a->slot = a->seg[0].step_bytes;
        a->x_at = places * w->x_bytes;
        a->red_at = a->x_at + places * a->slot;
        w->kept_at = a->red_at + WK_SLOTS * cell;
        a->bars_at = w->kept_at + 2 * WK_RELAY_SLOTS * cell;
        const uint32_t bytes = a->bars_at + WK_RELAY_BARS * 8;
        return bytes <= wide_room(kind) ? bytes : 0;
    }
    /* Shared memory of product_slots; 0: it does not fit. */
    static uint32_t slots_shape(wk_wide_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = wide_tiles(kind), rounds = (a->steps + WK_SLOTS - 1) / WK_SLOTS;
        w->blocks = WK_SLOTS;
        w->workers = (a->seg[0].n_tiles + WK_SLOT_TILES - 1) / WK_SLOT_TILES;
        w->groups = 1;
        a->slot = rounds * a->seg[0].step_bytes;
        a->x_at = rounds * columns * 1024 << (a->step_shift - 6);
        a->red_at = a->x_at + WK_SLOT_TILES * a->slot;
        w->kept_at = a->red_at + columns / 2 * WK_SLOTS * WK_WIDE_CELL;
        a->bars_at = w->kept_at + columns * WK_SLOT_TILES * WK_WIDE_CELL;
        const uint32_t bytes = a->bars_at + WK_SLOT_BARS * 8 + 1024;
        return bytes <= wide_room(kind) ? bytes : 0;
    }
    /* Shared memory of product_middle in clusters of `blocks` with items of `item_tiles`; 0: it does not fit. All of the block's activations stay. */
    static uint32_t middle_shape(wk_wide_args *w, uint32_t kind, uint32_t blocks, uint32_t item_tiles)
    {
        wk_product_args *a = &w->p;
        const uint32_t tiles = wide_tiles(kind), each = a->glu ? 2 : 1, room = wide_room(kind);
        w->groups = 1;
        const uint32_t clusters = wide_clusters_of(a, kind, blocks);
        const uint32_t all = tiles_of(a);
        wide_stages(w, tiles, super == 2 ? 256 : 128);
        a->stages = wide_k(a, blocks) / w->stage_k;
        a->items = (all + item_tiles - 1) / item_tiles;
        if (clusters == 0 || a->stages > WK_MIDDLE_STAGES) return 0;
        w->tiles = item_tiles;
        wide_share(w, blocks, clusters, item_tiles / each * tiles);
        w->buffers = w->workers < a->items ? 2 : 1;
        w->buffer = w->owned * blocks * each * WK_WIDE_CELL;
        const uint32_t x = a->stages * w->x_bytes, kept = blocks <= 2 ? 2 / blocks * WK_WIDE_TILES * tiles * WK_WIDE_CELL : 0, fixed = x + w->buffers * w->buffer + kept + WK_MIDDLE_BARS * 8;
        a->depth = room > fixed ? min_of((room - fixed) / (item_tiles * a->slot), (uint32_t)WK_MIDDLE_DEPTH) : 0;
        if (a->depth < 2) return 0;
        a->x_at = x;
        a->red_at = x + a->depth * item_tiles * a->slot;
        w->kept_at = a->red_at + w->buffers * w->buffer;
        a->bars_at = w->kept_at + kept;
        return a->bars_at + WK_MIDDLE_BARS * 8;
    }
    /* Shared memory of product_wide in clusters of `blocks`, `stage_k` values of k a stage; 0: it does not fit. */
    static uint32_t wide_shape(wk_wide_args *w, uint32_t kind, uint32_t blocks, uint32_t stage_k)
    {
        wk_product_args *a = &w->p;
        const uint32_t tiles = wide_tiles(kind), each = a->glu ? 2 : 1, room = wide_room(kind);
        w->groups = (a->rows + 8 * tiles - 1) / (8 * tiles);
        count_items(a, a->glu ? WK_WIDE_TILES / 2 : (uint32_t)WK_WIDE_TILES);
        const uint32_t clusters = wide_clusters_of(a, kind, blocks) / w->groups, kept = blocks <= 2 ? WK_WIDE_TILES * tiles * WK_WIDE_CELL : 0;
        wide_stages(w, tiles, stage_k);
        if (clusters == 0 || a->steps * a->run > WK_WIDE_STAGES) return 0;
        wide_share(w, blocks, clusters, WK_WIDE_TILES / each * tiles);
        w->buffers = blocks > 1 && w->workers < a->items ? 2 : 1; /* one: each item is finished before the next */
        w->buffer = w->owned * blocks * each * WK_WIDE_CELL;
        const uint32_t fixed = 1024 + w->buffers * w->buffer + kept + WK_WIDE_BARS * 8 + WK_WIDE_STAGES * 2, stage = w->x_bytes + WK_WIDE_TILES * a->slot;
        a->depth = room > fixed ? (room - fixed) / stage : 0;
        if (a->depth > WK_WIDE_DEPTH) a->depth = WK_WIDE_DEPTH;
        if (a->depth < 2) return 0;
        a->x_at = a->depth * w->x_bytes;
        a->red_at = a->depth * stage;
        w->kept_at = a->red_at + w->buffers * w->buffer;
        a->bars_at = w->kept_at + kept;
        w->order_at = a->bars_at + WK_WIDE_BARS * 8;
        return w->order_at + WK_WIDE_STAGES * 2 + 1024;
    }
    /* Clocks of the multiplying warps of the busiest multiprocessor, as measured for the products of four models: a stage takes each warp so long alone, longer beside others, and longest where few stages are
     * under way; the blocks of a last, partial round have more room. Eight blocks find places together late if all such places are wanted. Of equal choices that with the larger items is the better one. */
    static uint64_t middle_cost(const wk_wide_args *w, uint32_t kind)
    {
        const wk_product_args *a = &w->p;
        const uint32_t rounds = (a->items + w->workers - 1) / w->workers, last = a->items - (rounds - 1) * w->workers;
        auto stage = [&](uint32_t clusters) {
            const uint32_t warps = clusters * w->blocks > device.processors ? WK_MIDDLE_TOGETHER * w->tiles : w->tiles;
            return max_of((400 + 50 * warps) * w->stage_k / 256 + 300, 4200 / (2 * a->depth - 1));
        };
        const uint64_t clocks = a->stages * ((uint64_t)(rounds - 1) * stage(w->workers) + stage(last)) + (kind == MIDDLE32 ? 600 * rounds : 0);
        return (clocks + (w->blocks == 8 && w->workers == wide_clusters_of(a, kind, 8) ? 700 : 0)) * (100 + WK_MIDDLE_TILES - w->tiles);
    }
    /* Which kernel, blocks to an item, and tiles of an item (product_small, product_middle) or values of k of a stage (product_wide). */
    struct wide_plan { uint32_t kind, blocks, size; uint64_t cost; };
    /* Shared memory of product_held; 0: it does not fit, or not all tiles are at work at once. */
    static uint32_t held_shape(wk_wide_args *w)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = wide_tiles(HELD32), team = (a->glu ? 2 : 1) * WK_HELD_PARTS, room = wide_room(HELD32);
        count_items(a, 1);
        a->slot = largest_step(a);
        w->groups = (a->rows + 8 * columns - 1) / (8 * columns);
        w->blocks = 1;
        w->owned = WK_SLOTS / WK_HELD_PARTS;
        w->workers = min_of(a->items, device.processors / w->groups);
        w->tiles = (a->items + w->workers - 1) / w->workers * team;
        const uint32_t x = a->steps * columns * 512 << (a->step_shift - 5), kept = w->tiles * columns * 512 * 2, fixed = x + kept + w->tiles * WK_HELD_DEPTH * 8 + 8;
        a->depth = room > fixed ? min_of((room - fixed) / (w->tiles * a->slot), min_of(WK_HELD_DEPTH, (a->steps + WK_HELD_PARTS - 1) / WK_HELD_PARTS)) : 0;
        if (w->tiles > WK_HELD_WARPS || a->depth < 2) return 0;
        a->x_at = w->tiles * a->depth * a->slot;
        w->kept_at = a->x_at + x;
        a->bars_at = w->kept_at + kept;
        w->order_at = a->bars_at + w->tiles * WK_HELD_DEPTH * 8;
        return w->order_at + 8;
    }
    /* With more than two tiles a multiprocessor. As measured for gate and up of Q5_0 and 896 values: 8.3 -> 6.5 and 14.0 -> 9.0 us at 32 and 64 rows (at 8 rows 5.9 for product_small's 4.5); fewer tiles are
     * better by product_small or product_middle. */
    static bool held_choice(wk_wide_args *w, wide_plan *best)
    {
        const wk_product_args *a = &w->p;
        if (a->rows <= 16 || a->rows > 64 || tiles_of(a) <= 2 * device.processors || !wide_of(HELD32, a->types) || !held_shape(w)) return false;
        *best = { HELD32, 1, 0, 0 };
        return true;
    }
    /* Shared memory of product_heads; 0: it does not fit. */
    static uint32_t heads_shape(wk_wide_args *w, uint32_t kind)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = wide_tiles(kind), warps = wk_heads_warps(columns), room = wide_room(kind);
        count_items(a, 1);
        a->slot = largest_step(a);
        w->groups = w->blocks = 1;
        w->workers = min_of(a->items, device.processors);
        w->tiles = warps;
        a->x_at = a->steps * columns * 1024 << (a->step_shift - 6);
        const uint32_t tiles = warps * (uint32_t)sizeof(wk_heads_tiles), bars = warps * WK_HELD_DEPTH * 8, order = (a->steps + (a->steps << (a->step_shift - 7))) * 4, fixed = a->x_at + tiles + bars + order + 1024;
        a->depth = room > fixed ? min_of((room - fixed) / (warps * a->slot), (uint32_t)WK_HELD_DEPTH) : 0;
        w->kept_at = a->x_at + warps * a->depth * a->slot;
        a->bars_at = w->kept_at + tiles;
        w->order_at = a->bars_at + bars;
        return a->depth < 3 ? 0 : fixed + warps * a->depth * a->slot;
    }
    /* A vocabulary's tiles, with outputs that are sums and no more than a bias. As measured in a model for Q8_0 of 151936 x 896: 40 -> 33 us at 8 rows, 53 -> 41 at 32, 89 -> 61 at 64. Four steps at least: of each
     * pair of slots that the tree adds first, one has to have something (wk_heads_slot). */
    static bool heads_choice(wk_wide_args *w, wide_plan *best)
    {
        const wk_product_args *a = &w->p;
        const uint32_t rows = a->rows, kind = rows <= 8 ? HEADS8 : rows <= 16 ? HEADS16 : rows <= 32 ? HEADS32 : HEADS64;
        bool plain = a->way >= WK_WAY_F32 && !a->residual && a->in.kind == WK_CUDA_IN_ACT;
        for (uint32_t i = 0; i < a->n_seg; i++) plain = plain && !a->seg[i].aux;
        if (!plain || rows > 64 || a->step_shift < 7 || a->steps < WK_SLOTS / 2 || tiles_of(a) <= WK_HEADS_TILES * device.processors || !wide_of(kind, a->types) || !heads_shape(w, kind)) return false;
        *best = { kind, 1, 0, 0 };
        return true;
    }
    static uint32_t wide_plan_shape(wk_wide_args *w, const wide_plan &plan)
    {
        if (is_small(plan.kind)) return small_shape(w, plan.kind, plan.size);
        if (is_relay(plan.kind)) return relay_shape(w, plan.kind);
        if (is_middle(plan.kind)) return middle_shape(w, plan.kind, plan.blocks, plan.size);
        if (is_slots(plan.kind)) return slots_shape(w, plan.kind);
        if (is_heads(plan.kind)) return heads_shape(w, plan.kind);
        return plan.kind == HELD32 ? held_shape(w) : wide_shape(w, plan.kind, plan.blocks, plan.size);
    }
    static void middle_choice(wk_wide_args *w, uint32_t kind, wide_plan *best)
    {
        for (uint32_t b = 1; b <= (device.clusters ? 8u : 1u); b *= 2)
            for (uint32_t t = WK_MIDDLE_TILES; t >= WK_MIDDLE_TILES / 2; t -= 2) {
                if (!middle_shape(w, kind, b, t)) continue;
                const uint64_t cost = middle_cost(w, kind);
                if (cost < best->cost) *best = { kind, b, t, cost };
            }
    }
    /* Where a slot is one step and all blocks find places at once. Larger shares, or blocks that wait for places, cost more than a ring does: Phi-3's products lose 15 % so. */
    static bool small_choice(wk_wide_args *w, wide_plan *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t places = WK_SMALL_TOGETHER * device.processors, kind = a->rows > 8 ? SMALL16 : SMALL8;
        count_items(a, 1);
        const uint32_t tiles = (a->items + places - 1) / places;
        if (a->in.row_index || a->steps > WK_SLOTS || tiles > WK_SMALL_TILES || !small_shape(w, kind, tiles)) return false;
        if (a->items * w->groups > places) return false;
        *best = { kind, 1, tiles, 0 };
        return true;
    }
    /* Several steps a slot, and tiles so few that their blocks find places at once, two a multiprocessor. */
    static bool relay_choice(wk_wide_args *w, wide_plan *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t kind = a->rows > 8 ? RELAY16 : RELAY8;
        if (!device.clusters || a->n_seg > 1 || a->in.row_index || a->in.kind == WK_CUDA_IN_RMS || a->rows > 16 || !wide_of(kind, a->types)) return false;
        if (a->steps <= WK_SLOTS || a->steps > WK_SLOTS * WK_RELAY_ROUNDS || a->step_shift < 6 || a->k != a->steps << a->step_shift || !relay_shape(w, kind)) return false;
        if (w->workers * WK_RELAY_BLOCKS > 2 * device.processors) return false;
        *best = { kind, WK_RELAY_BLOCKS, 0, 0 };
        return true;
    }
    /* A long k and few tiles: a block a multiprocessor, all at once. With a step a slot, or less, product_small's blocks, which stand beside those of other launches, are worth more: in the chain of a
     * model's products 896 x 896 loses 0.4 to 0.6 us here. */
    static bool slots_choice(wk_wide_args *w, wide_plan *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t kind = a->rows > 32 ? SLOTS64 : SLOTS32;
        if (!device.clusters || a->n_seg > 1 || a->in.row_index || a->rows <= 16 || a->rows > 64 || !wide_of(kind, a->types)) return false;
        if (a->steps <= WK_SLOTS || a->steps > WK_SLOTS * WK_SLOT_ROUNDS || a->k != a->steps << a->step_shift || !slots_shape(w, kind)) return false;
        if (w->workers * WK_SLOTS > device.processors || w->workers > wide_clusters_of(a, kind, WK_SLOTS)) return false;
        *best = { kind, WK_SLOTS, 0, 0 };
        return true;
    }
    /* Most rows of a product with a norm in its prologue. A block makes all rows for itself, which for more than four of them costs more than a launch unless blocks are so few that each has a multiprocessor. */
    static uint32_t norm_rows(const wk_cuda_product *p)
    {
        wk_wide_args w = {};
        wide_plan plan;
        wk_cuda_product q = *p;
        q.rows = WK_CUDA_FEW_NORM;
        q.input.kind = WK_CUDA_IN_RMS;
        q.input.row_index = NULL;
        common(&q, &w.p);
        const bool small = wk_small_norms<First, Rest...>() && !p->expert && wide_takes(w.p) && small_choice(&w, &plan) && w.p.step_shift <= 7 && w.p.k == w.p.steps << w.p.step_shift;
        return !small ? 1 : w.p.items > device.processors ? 4 : WK_CUDA_FEW_NORM;
    }
    /* product_slots takes panels; product_small and product_relay runs, product_held those of formats whose lanes read a run as it stands. Gated, product_held leaves panels, product_small runs. */
    static struct wk_cuda_layout layout(const wk_cuda_product *p)
    {
        struct wk_cuda_layout l = { WK_CUDA_IN_ACT, 0, WK_CUDA_OUT_ACT };
        wk_wide_args w = {};
        wk_cuda_product q = *p;
        q.input.kind = WK_CUDA_IN_ACT;
        q.input.row_index = NULL;
        common(&q, &w.p);
        if (p->expert || p->rows == 1 || !wide_takes(w.p)) return l;
        const uint32_t kind = wide_best(&w).kind, group = groups[w.p.seg[0].type];
        if (is_slots(kind)) l.in = WK_CUDA_IN_PANELS, l.in_group = group;
        if (is_small(kind) || is_relay(kind) || (kind == HELD32 && group == 32)) l.in = WK_CUDA_IN_RUNS;
        if (p->glu) l.out = kind == HELD32 ? WK_CUDA_OUT_PANELS : is_small(kind) ? WK_CUDA_OUT_RUNS : WK_CUDA_OUT_ACT;
        return l;
    }
    static bool layout_right(const wk_cuda_product *p)
    {
        const uint32_t in = p->input.kind, out = p->seg[0].out.kind;
        if (in < WK_CUDA_IN_PANELS && out < WK_CUDA_OUT_PANELS) return true;
        const struct wk_cuda_layout l = layout(p);
        return (in < WK_CUDA_IN_PANELS || in == l.in) && (out < WK_CUDA_OUT_PANELS || out == l.out);
    }
    static void wide_choice(wk_wide_args *w, uint32_t kind, wide_plan *best)
    {
        wk_product_args *a = &w->p;
        const uint32_t t = wide_tiles(kind), most = !device.clusters ? 1 : 8 * t < a->rows ? 4 : 8; /* groups in clusters of 8 leave the next launch no room to begin early */
        for (uint32_t b = 1; b <= most; b *= 2) {
            uint32_t k = t == 4 ? 256 : 128;
            if (!wide_shape(w, kind, b, k) || (a->depth < 3 && k == 256)) k = 128;
            if (!wide_shape(w, kind, b, k)) continue;
            const uint64_t rounds = (a->items + w->workers - 1) / w->workers, pieces = wide_k(a, b) / 64;
            const uint64_t cost = rounds * (pieces * (300 + 40 * t) + 500 + 100 * t + (b > 1 ? 600 : 0)) + (b > 1 ? 1000 : 0);
            if (cost < best->cost) *best = { kind, b, k, cost };
        }
    }
    /* Small enough that a launch is mostly beginning and end: then two blocks a multiprocessor, and what product_middle does before it waits, are worth more than wgmma. As measured at 32 rows: 15 % at
     * 4096 x 4096 of Q8_0, nothing from 12288 x 4096 on. */
    static bool wide_small(const wk_product_args *a)
    {
        return (uint64_t)tiles_of(a) * a->k <= 1u << 20;
    }
    static wide_plan wide_best(wk_wide_args *w)
    {
        wide_plan best = { 0, 0, 0, UINT64_MAX };
        const uint32_t rows = w->p.rows;
        if (slots_choice(w, &best) || relay_choice(w, &best) || small_choice(w, &best) || heads_choice(w, &best) || held_choice(w, &best)) return best;
        if (rows <= 16) {
            middle_choice(w, rows <= 8 ? MIDDLE8 : MIDDLE16, &best);
            return best;
        }
        if (rows <= 32 && wide_small(&w->p) && wide_of(MIDDLE32, w->p.types)) middle_choice(w, MIDDLE32, &best);
        if (best.blocks) return best;
        if (rows > 32) wide_choice(w, WIDE64, &best);
        wide_choice(w, WIDE32, &best);
        return best;
    }
    static bool wide_takes(const wk_product_args &a)
    {
        for (uint32_t i = 1; i < a.n_seg; i++)
            if (groups[a.seg[i].type] != groups[a.seg[0].type] || (a.glu && a.seg[i].type != a.seg[0].type)) return false; /* a block's tiles of gate and up are asked for alike */
        return device.wgmma && wide_of(MIDDLE8, a.types);
    }
    static bool wide(const wk_cuda_product *p, const wk_product_args &args, void *stream, wk_status *status, const struct wk_err *err)
    {
        wk_wide_args wide = {}, *const w = &wide;
        wide.p = args;
        wk_product_args *a = &w->p;
        const uint32_t types = a->types;
        if (!wide_takes(args)) return false;
        const wide_plan plan = wide_best(w);
        const uint32_t shared = plan.blocks ? wide_plan_shape(w, plan) : 0;
        if (!shared) return false;
        cudaLaunchAttribute attribute[2] = {};
        cudaLaunchConfig_t config;
        wide_config(&config, attribute, w->blocks, shared, wide_threads(plan.kind, w->tiles));
        config.gridDim = plan.kind == HELD32 || is_small(plan.kind) ? dim3(w->workers, w->groups) : dim3(w->workers * w->blocks * w->groups);
        config.stream = static_cast<cudaStream_t>(stream);
        single_type(a);
        config.numAttrs = p->flags & WK_CUDA_DEPENDENT ? 2 : 1;
        *status = wk_product_status(cudaLaunchKernelEx(&config, wide_of(plan.kind, types), *w), "product", err);
        return true;
    }

    /* One launch; false: this many rows do not fit in one. */
    static bool launch(const wk_cuda_product *p, void *stream, wk_status *status, const struct wk_err *err)
    {
        wk_product_args a;
        common(p, &a);
        if (p->rows > 1 && wide(p, a, stream, status, err)) return true;
        return p->rows <= 8 && few::launch(p, &a, stream, status, err);
    }

    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        wk_status status = wk_product_check(p, block(p), err);
        if (status) return status;
        if (!layout_right(p)) return wk_fail(err, WK_INVALID, "product: input kind %u or out kind %u of %u rows and k %u", p->input.kind, p->seg[0].out.kind, p->rows, p->k);
        if (p->expert) return experts::product(p, stream, err);
        if constexpr (whole)
            if (p->rows > 1 && p->input.kind == WK_CUDA_IN_ACT) return numbers::product(p, stream, err);
        if (p->input.kind == WK_CUDA_IN_RMS && p->rows > 1 && p->rows > norm_rows(p)) return wk_fail(err, WK_INVALID, "product: input kind %u with %u rows", p->input.kind, p->rows);
        uint32_t most = p->rows;
        for (uint32_t first = 0; first < p->rows;) {
            const uint32_t n = p->rows - first < most ? p->rows - first : most;
            const wk_cuda_product q = part(p, first, n);
            if (!launch(&q, stream, &status, err)) {
                if (most == 1) return wk_fail(err, WK_INVALID, "product: k %u is too large for this input", p->k);
                most = n / 2 > 0 ? n / 2 : 1;
                continue;
            }
            if (status) return status;
            first += n;
        }
        return WK_OK;
    }
    static uint64_t workspace(uint32_t k, uint32_t rows) { return whole ? wk_whole_workspace(k, rows) : 0; }
    static uint32_t block(const wk_cuda_product *p) /* largest of the types in it: what k is a multiple of */
    {
        const uint32_t blocks[n_types] = { First::block, Rest::block... };
        uint32_t b = 1;
        for (uint32_t i = 0; i < p->n_seg; i++) b = max_of(b, blocks[index(p->seg[i].ggml_type)]);
        return b;
    }
};

#define WK_PRODUCT_FAMILY(name, ...)                                                                                                                                  \
    extern "C" const struct wk_product_family name;                                                                                                                   \
    const struct wk_product_family name = { wk_product_of<__VA_ARGS__>::types, wk_product_of<__VA_ARGS__>::n_types, 0, wk_product_of<__VA_ARGS__>::open, wk_product_of<__VA_ARGS__>::norm_rows, wk_product_of<__VA_ARGS__>::layout, wk_product_of<__VA_ARGS__>::workspace, wk_product_of<__VA_ARGS__>::product }

#endif
