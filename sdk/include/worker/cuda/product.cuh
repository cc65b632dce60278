/* worker/cuda/product.cuh: the launches of a family of formats: WK_PRODUCT_FAMILY(name, format...) defines `const struct wk_product_family name`.
 *
 * All formats of a family have the same unit and super-unit. What is checked, which kernel takes a product and how its shared memory is cut is decided here
 * from the shape; none of it changes a bit of the result (product_args.cuh). */
#ifndef WORKER_CUDA_PRODUCT_CUH
#define WORKER_CUDA_PRODUCT_CUH

#include <cuda_runtime.h>

#include <worker/cuda/product.h>
#include <worker/cuda/product_experts.cuh>
#include <worker/cuda/product_few.cuh>
#include <worker/cuda/product_wide.cuh>

/* What the kernels' shapes depend on besides the product; one device a process. */
struct wk_product_device {
    uint32_t processors, block_bytes, processor_bytes; /* shared memory: most of a block, of a multiprocessor */
    bool clusters;                                     /* blocks can share their memories */
};
enum { WK_BLOCK_RESERVED = 1024 /* bytes that a block takes beside what it asked for */, WK_FEW_ROWS = 4 /* most rows for which the narrow kernel is the faster one */ };

static inline wk_status wk_product_status(cudaError_t code, const char *what, const struct wk_err *err)
{
    if (code == cudaSuccess) return WK_OK;
    (void)cudaGetLastError();
    return wk_fail(err, code == cudaErrorNoKernelImageForDevice ? WK_UNSUPPORTED : WK_INTERNAL, "%s: %s: %s", what, cudaGetErrorName(code), cudaGetErrorString(code));
}

static inline wk_status wk_product_device_read(int32_t device, wk_product_device *d, const struct wk_err *err)
{
    int v[4] = { 0, 0, 0, 0 };
    const cudaDeviceAttr attribute[4] = { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrClusterLaunch };
    for (int i = 0; i < 4; i++) {
        const wk_status status = wk_product_status(cudaDeviceGetAttribute(&v[i], attribute[i], device), "product: device attribute", err);
        if (status) return status;
    }
    d->processors = (uint32_t)v[0];
    d->block_bytes = (uint32_t)v[1];
    d->processor_bytes = (uint32_t)v[2];
    d->clusters = v[3] != 0;
    return WK_OK;
}

/* Everything the contract excludes, by the field's name. */
static inline wk_status wk_product_check(const wk_cuda_product *p, uint32_t block, const struct wk_err *err)
{
#define WK_NEED(cond, ...) do { if (!(cond)) return wk_fail(err, WK_INVALID, "product: " __VA_ARGS__); } while (0)
    WK_NEED(p->k > 0 && p->k % block == 0 && p->k <= 1u << 24, "k %u", p->k);
    WK_NEED(p->rows > 0 && (p->expert || p->rows <= WK_CUDA_FEW), "rows %u", p->rows);
    WK_NEED(p->input.kind <= WK_CUDA_IN_RMS && (p->input.kind == WK_CUDA_IN_ACT || p->rows <= WK_CUDA_FEW_NORM), "input kind %u with %u rows", p->input.kind, p->rows);
    WK_NEED(p->input.kind == WK_CUDA_IN_RMS || p->input.shift < 64, "input shift %u", p->input.shift);
    WK_NEED(p->input.x && p->input.aux, "input x or aux is missing");
    WK_NEED(!p->glu || (p->glu < WK_GLU_END && p->n_seg == 2 && p->seg[0].n == p->seg[1].n), "glu %u of %u segments of %u and %u", p->glu, p->n_seg, p->seg[0].n, p->seg[1].n);
    for (uint32_t i = 0; i < 4; i++) WK_NEED(p->map[i].fn < WK_MAP_END && !(p->glu && p->map[i].fn), "map %u", p->map[i].fn);
    for (uint32_t i = 0; i < p->n_seg; i++) {
        const wk_cuda_segment *s = &p->seg[i];
        WK_NEED(s->tiles && s->n > 0 && s->n <= 1u << 24, "seg %u: n %u", i, s->n);
        if (p->glu && i) continue;
        WK_NEED(s->out.kind <= WK_CUDA_OUT_ACT && s->out.y && (s->out.kind == WK_CUDA_OUT_F32 || (s->out.aux && s->out.shift < 64)), "seg %u: out", i);
        WK_NEED(s->out.kind == WK_CUDA_OUT_ACT || p->rows == 1 || s->out.y_stride >= s->n, "seg %u: y_stride", i);
    }
    WK_NEED(!p->residual || p->n_seg == 1 || p->glu, "residual with %u segments", p->n_seg);
    WK_NEED(!p->expert || (p->input.kind == WK_CUDA_IN_ACT && !p->residual && p->top_k && p->x_items && p->expert_stride >= p->top_k), "expert: input, residual, top_k or x_items");
    WK_NEED(!p->groups == !p->expert && (!p->groups || (p->n_experts > 0 && p->n_experts <= 1u << 24)), "groups of %u experts", p->n_experts);
    for (uint32_t i = 1; p->groups && i < p->n_seg; i++) WK_NEED(p->seg[i].ggml_type == p->seg[0].ggml_type, "groups: seg %u is of another type", i);
    WK_NEED(!(p->flags & WK_CUDA_GROUPS_KNOWN) || p->groups, "flags %u without groups", p->flags);
#undef WK_NEED
    return WK_OK;
}

template <class First, class... Rest> struct wk_product_of {
    static constexpr uint32_t n_types = 1 + sizeof...(Rest), unit = First::unit, super = First::super;
    static_assert(n_types <= WK_TYPES_MAX && super <= 2 && ((Rest::unit == unit && Rest::super == super) && ...), "formats of a family have units of one size");
    static constexpr uint32_t types[n_types] = { First::type, Rest::type... };
    static constexpr uint32_t slots[n_types] = { First::slot, Rest::slot... }, groups[n_types] = { First::group, Rest::group... };
    static constexpr uint32_t widest = 4; /* tiles of 8 columns that a warp's registers have room for */
    static inline wk_product_device device;

    static uint32_t index(uint32_t type)
    {
        uint32_t i = 0;
        while (types[i] != type) i++;
        return i;
    }
    static uint64_t tile_bytes(uint32_t i, uint32_t k)
    {
        uint64_t bytes = 0, j = 0;
        ((bytes = j++ == i ? First::tile_bytes(k) : bytes), ..., (bytes = j++ == i ? Rest::tile_bytes(k) : bytes));
        return bytes;
    }
    static uint32_t step_bytes(uint32_t i, uint32_t units)
    {
        uint32_t j = 0, bytes = (uint32_t)First::offset(units);
        ((bytes = ++j == i ? (uint32_t)Rest::offset(units) : bytes), ...);
        return bytes;
    }
    static uint32_t terms_bytes(uint32_t i, uint32_t k, uint32_t columns)
    {
        uint32_t j = 0, bytes = wk_terms_bytes<First>(k, columns);
        ((bytes = ++j == i ? wk_terms_bytes<Rest>(k, columns) : bytes), ...);
        return bytes;
    }

    static wk_status open(int32_t device_index, const struct wk_err *err)
    {
        wk_status status = wk_product_device_read(device_index, &device, err);
        const void *kernels[] = { (const void *)wk_product_few<1, First, Rest...>, (const void *)wk_product_few<1, First>, (const void *)wk_product_few<1, Rest>...,
                                  (const void *)wk_product_few<8, First, Rest...>, (const void *)wk_product_few<8, First>, (const void *)wk_product_few<8, Rest>...,  (const void *)wide_of(1, 1), (const void *)wide_of(1, 2),
                                  (const void *)wide_of(2, 1), (const void *)wide_of(2, 2), (const void *)wide_of(4, 1), (const void *)wide_of(4, 2),
                                  (const void *)wk_product_experts<1, First>, (const void *)wk_product_experts<1, Rest>..., (const void *)wk_product_experts<8, First>, (const void *)wk_product_experts<8, Rest>... };
        for (uint32_t i = 0; !status && i < sizeof kernels / sizeof *kernels; i++)
            status = wk_product_status(cudaFuncSetAttribute(kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)device.block_bytes), "product: kernel", err);
        /* A multiprocessor divides its memory between L1 and blocks anew only when it is empty: launches that ask for different divisions never overlap. */
        for (uint32_t i = 0; !status && i < sizeof kernels / sizeof *kernels; i++)
            status = wk_product_status(cudaFuncSetAttribute(kernels[i], cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared), "product: kernel", err);
        return status;
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
        a->step_units = super > 1 ? super : 256 / unit;
        for (uint32_t units = a->step_units / 2; super == 1 && units; units /= 2)
            if (step_cost(p->k, units * unit) < step_cost(p->k, a->step_units * unit)) a->step_units = units;
        a->steps = (p->k + a->step_units * unit - 1) / (a->step_units * unit);
        a->step_shift = wk_log2(a->step_units * unit);
        a->n_seg = p->n_seg;
        a->glu = p->glu;
        a->in = p->input;
        a->in_scale = 1.0f;
        if (p->input.kind == WK_CUDA_IN_ACT)
            for (uint32_t i = 0; i < p->input.shift; i++) a->in_scale *= 2.0f;
        a->residual = p->residual;
        a->residual_stride = p->residual_stride;
        a->alpha = p->alpha;
        a->limit = p->limit;
        for (int i = 0; i < 4; i++) a->map[i] = { p->map[i].fn, p->map[i].p };
        a->expert = p->expert;
        a->expert_stride = p->expert_stride;
        a->top_k = p->top_k;
        a->x_items = p->x_items;
        for (uint32_t i = 0; i < p->n_seg; i++) {
            const wk_cuda_segment *s = &p->seg[i];
            const uint32_t type = index(s->ggml_type);
            a->seg[i] = { static_cast<const unsigned char *>(s->tiles), s->bias, s->out.y, s->out.aux, s->out.y_stride, tile_bytes(type, p->k),
                          step_bytes(type, a->step_units), 0, s->n, (s->n + 15) / 16, type, s->out.kind, s->out.shift, 0 };
            a->types |= 1u << type;
            if (slots[type] > a->slot) a->slot = slots[type];
        }
    }

    static uint32_t align(uint32_t bytes) { return (bytes + 15u) & ~15u; }

    /* A stage of the ring of product_few: a piece of a step for each slot. */
    static void few_stages(wk_product_args *a)
    {
        uint32_t chunk = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) chunk = max_of(chunk, a->seg[i].step_bytes);
        for (a->run = 1; super == 1 && a->run < a->step_units && chunk > WK_FEW_STAGE; a->run *= 2) chunk /= 2;
        a->stage_units = a->step_units / a->run;
        a->stages = (a->steps + WK_SLOTS - 1) / WK_SLOTS * a->run;
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].stage_bytes = a->seg[i].step_bytes / a->run;
        a->slot = WK_SLOTS * chunk;
        if (a->steps < WK_SLOTS) a->slot = a->steps * chunk; /* the last step's chunk ends the stage */
    }
    /* Shared memory of product_few for `columns` (1 or 8), of which `copies` (experts: rows) are launched side by side; 0: it does not fit. */
    static uint32_t few_shape(wk_product_args *a, uint32_t columns, uint32_t copies)
    {
        const uint32_t padded = a->steps * a->step_units * unit, grid = device.processors;
        few_stages(a);
        uint32_t at = 0;
        const uint32_t x_at = at;
        a->x_stride = columns == 1 ? padded : padded + 32;
        at += align((columns == 1 ? 1 : a->rows) * a->x_stride * 2);
        uint32_t terms_at[WK_TYPES_MAX] = {};
        for (uint32_t i = 0; i < n_types; i++)
            if (a->types >> i & 1u) {
                terms_at[i] = at;
                at += align(terms_bytes(i, padded, columns));
            }
        const uint32_t red_at = at;
        at += WK_FEW_SUMS * WK_SLOTS * 16 * columns * 4;
        const uint32_t bars_at = at;
        at += WK_FEW_BARS * 8;
        const uint32_t in_item = a->glu ? 2 : 1;
        a->blocks = a->items * (uint64_t)copies > grid ? 2 : 1;
        uint32_t room = device.processor_bytes / 2 - WK_BLOCK_RESERVED;
        if (room > device.block_bytes) room = device.block_bytes;
        uint32_t depth = room > at ? (room - at) / a->slot : 0;
        if (depth < 2) depth = device.block_bytes > at ? (device.block_bytes - at) / a->slot : 0, a->blocks = 1;
        const uint32_t most = (a->items + a->blocks * grid - 1) / (a->blocks * grid) * in_item * a->stages;
        if (depth > most) depth = most;
        if (depth > WK_FEW_DEPTH) depth = WK_FEW_DEPTH;
        if (depth < 2 && depth < most) return 0;
        a->depth = depth;
        a->flight = WK_FEW_FLIGHT / (a->blocks * a->slot);
        a->flight = a->flight < 1 ? 1 : a->flight < depth ? a->flight : depth;
        const uint32_t ring = align(depth * a->slot);
        a->bars_at = ring + bars_at;
        a->x_at = ring + x_at;
        a->red_at = ring + red_at;
        for (uint32_t i = 0; i < n_types; i++) a->terms_at[i] = ring + terms_at[i];
        /* One block a multiprocessor: the next one would take the place of which a neighbour has more. */
        return a->blocks == 1 ? max_of(ring + at, device.processor_bytes / 2) : ring + at;
    }
    /* A kernel of one type knows it as its first. */
    static void single_type(wk_product_args *a)
    {
        const uint32_t type = a->seg[0].type;
        a->terms_at[0] = a->terms_at[type];
        a->types = 1;
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].type = 0;
    }
    /* The kernel for a launch: of one type if it has one. */
    static void (*few_kernel(uint32_t types, uint32_t columns))(const wk_product_args)
    {
        static void (*const single[2][n_types])(const wk_product_args) = { { wk_product_few<1, First>, wk_product_few<1, Rest>... }, { wk_product_few<8, First>, wk_product_few<8, Rest>... } };
        if (types & (types - 1)) return columns == 1 ? wk_product_few<1, First, Rest...> : wk_product_few<8, First, Rest...>;
        return single[columns != 1][wk_log2(types)];
    }

    /* How product_wide takes `tiles` tiles of 8 columns and `high` tiles of rows at a time; false: it does not fit. */
    static bool wide_shape(wk_wide_args *w, uint32_t tiles, uint32_t high, uint32_t serial, void (*kernel)(const wk_wide_args), cudaLaunchConfig_t *config)
    {
        wk_product_args *a = &w->p;
        const uint32_t columns = 8 * tiles;
        w->serial = serial;
        w->column_groups = (a->rows + columns - 1) / columns;
        w->slot_steps = (a->steps + WK_SLOTS - 1) / WK_SLOTS;
        w->magic = 65536 / w->slot_steps + 1;
        w->items = wide_items(a, high);
        uint32_t slot = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) slot = max_of(slot, a->seg[i].step_bytes); /* a stage is a step, or half of it, or a quarter */
        for (a->run = 1; super == 1 && a->run < a->step_units && slot > WK_WIDE_STAGE; a->run *= 2) slot /= 2;
        a->stage_units = a->step_units / a->run;
        for (uint32_t i = 0; i < a->n_seg; i++) a->seg[i].stage_bytes = a->seg[i].step_bytes / a->run;
        w->apart = slot;
        a->slot = slot *= high;
        bool sixteen = true; /* a lane's column begins where its loads, of 8 or 16 bytes, meet no other's banks */
        for (uint32_t i = 0; i < n_types; i++) sixteen = sixteen && (!(a->types >> i & 1u) || groups[i] == 16);
        w->places = high > 1 || !a->glu ? high * tiles : (tiles + 1) / 2 * 2;
        w->buffer = WK_SLOTS * w->places * WK_WIDE_CELL;
        for (w->whole = serial;; w->whole = 0) {
            const uint32_t held = (w->slot_steps << a->step_shift) * (w->whole ? (uint32_t)WK_SLOTS : 1u);
            a->x_stride = held + (sixteen ? 16 : 32);
            uint32_t at = align(columns * a->x_stride * 2);
            for (uint32_t i = 0; i < n_types; i++)
                if (a->types >> i & 1u) {
                    a->terms_at[i] = at;
                    at += align(terms_bytes(i, held, columns));
                }
            w->inputs = at;
            if (serial && !w->whole) at *= 2;
            a->bars_at = at;
            at += WK_WIDE_WARPS * WK_WIDE_DEPTH * 8 + 16;
            a->red_at = at;
            for (a->blocks = tiles * high < 8 ? 2 : 1; a->blocks; a->blocks--) { /* room for two blocks, one of them the next launch's, if possible */
                uint32_t room = device.processor_bytes / a->blocks - WK_BLOCK_RESERVED;
                if (room > device.block_bytes) room = device.block_bytes;
                for (uint32_t buffers = 1; buffers <= (serial ? 1 : 2); buffers++) {
                    const uint32_t fixed = at + buffers * w->buffer;
                    if (room < fixed + 2 * WK_WIDE_WARPS * slot) continue;
                    a->depth = (room - fixed) / (WK_WIDE_WARPS * slot);
                    if (a->depth > WK_WIDE_DEPTH) a->depth = WK_WIDE_DEPTH;
                    const uint32_t ring = WK_WIDE_WARPS * a->depth * slot;
                    config->dynamicSmemBytes = ring + fixed;
                    int clusters = (int)(a->blocks * device.processors);
                    if (!serial) {
                        config->gridDim = dim3(WK_SLOTS);
                        if (cudaOccupancyMaxActiveClusters(&clusters, kernel, config) != cudaSuccess || clusters < 1) {
                            (void)cudaGetLastError();
                            continue;
                        }
                    }
                    w->workers = max_of((uint32_t)clusters / w->column_groups, 1);
                    if (w->workers > w->items) w->workers = w->items;
                    if (w->workers < w->items && buffers == 1 && !serial) continue;
                    config->gridDim = dim3(w->workers * w->column_groups * (serial ? 1 : WK_SLOTS));
                    a->x_at = ring;
                    for (uint32_t i = 0; i < n_types; i++) a->terms_at[i] += ring;
                    a->bars_at += ring;
                    a->red_at += ring;
                    return true;
                }
            }
            if (!w->whole) return false;
        }
    }
    static uint32_t wide_items(wk_product_args *a, uint32_t high)
    {
        const uint32_t of_item = a->glu && high == 1 ? WK_WIDE_WARPS / 2 : WK_WIDE_WARPS;
        return (count_items(a, high) + of_item - 1) / of_item;
    }
    static uint32_t max_of(uint32_t a, uint32_t b) { return a > b ? a : b; }
    static uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

    static uint32_t count_items(wk_product_args *a, uint32_t tiles_an_item)
    {
        uint32_t items = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) {
            if (a->glu && i) break;
            items += a->glu ? a->seg[i].n_tiles : (a->seg[i].n_tiles + tiles_an_item - 1) / tiles_an_item;
            a->seg[i].end = items;
        }
        a->items = items;
        return items;
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
    static wk_status start(void (*kernel)(const wk_product_args), const wk_product_args &a, uint32_t grid_y, uint32_t threads, uint32_t shared, uint32_t flags, void *stream,
                           const struct wk_err *err)
    {
        const uint32_t most = a.blocks * device.processors;
        return begin(kernel, a, dim3(a.items < most ? a.items : most, grid_y), threads, shared, flags, stream, err);
    }

    /* Rows [first, first + n) of a product as one of its own. */
    static wk_cuda_product part(const wk_cuda_product *p, uint32_t first, uint32_t n)
    {
        wk_cuda_product q = *p;
        q.rows = n;
        if (p->input.row_index) {
            q.input.row_index += first;
        } else if (p->input.kind == WK_CUDA_IN_RMS) {
            q.input.x = static_cast<const float *>(p->input.x) + first * p->input.x_stride;
            q.input.aux += (uint64_t)first * ((p->k + 15) / 16);
        } else {
            q.input.x = static_cast<const __half *>(p->input.x) + (uint64_t)first * wk_act_k(p->k);
            q.input.aux += (uint64_t)first * (wk_act_k(p->k) / 8);
        }
        if (p->residual && !p->input.row_index) q.residual += first * p->residual_stride;
        for (uint32_t i = 0; i < p->n_seg; i++) {
            wk_cuda_output *o = &q.seg[i].out;
            const uint32_t n32 = wk_act_k(p->seg[i].n);
            if (o->kind == WK_CUDA_OUT_F32) {
                o->y = static_cast<float *>(o->y) + first * o->y_stride;
                if (o->aux) o->aux += (uint64_t)first * ((p->seg[i].n + 15) / 16);
            } else {
                o->y = static_cast<__half *>(o->y) + (uint64_t)first * n32;
                if (o->aux) o->aux += (uint64_t)first * (n32 / 8);
            }
        }
        return q;
    }

    typedef void (*wide_kernel)(const wk_wide_args);
    static wide_kernel wide_of(uint32_t tiles, uint32_t high)
    {
        switch (tiles * 2 + high) {
        case 3: return wk_product_wide<1, 1, First, Rest...>;
        case 4: return wk_product_wide<1, 2, First, Rest...>;
        case 5: return wk_product_wide<2, 1, First, Rest...>;
        case 6: return wk_product_wide<2, 2, First, Rest...>;
        case 9: return wk_product_wide<4, 1, First, Rest...>;
        default: return wk_product_wide<4, 2, First, Rest...>;
        }
    }
    static bool wide_launch(const wk_cuda_product *p, const wk_wide_args *w, uint32_t tiles, uint32_t high, uint32_t serial, void *stream, wk_status *status, const struct wk_err *err)
    {
        const wide_kernel kernel = wide_of(tiles, high);
        cudaLaunchAttribute attribute[2] = {};
        attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[0].val.programmaticStreamSerializationAllowed = 1;
        attribute[1].id = cudaLaunchAttributeClusterDimension;
        attribute[1].val.clusterDim.x = WK_SLOTS;
        attribute[1].val.clusterDim.y = attribute[1].val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.blockDim = dim3(WK_WIDE_THREADS);
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = p->flags & WK_CUDA_DEPENDENT ? attribute : attribute + 1;
        config.numAttrs = (p->flags & WK_CUDA_DEPENDENT ? 1 : 0) + (serial ? 0 : 1);
        wk_wide_args shaped = *w;
        if (!wide_shape(&shaped, tiles, high, serial, kernel, &config)) return false;
        *status = wk_product_status(cudaLaunchKernelEx(&config, kernel, shaped), "product", err);
        return true;
    }
    static bool wide(const wk_cuda_product *p, wk_wide_args *w, void *stream, wk_status *status, const struct wk_err *err)
    {
        const bool pairs_of_two = p->glu && p->seg[0].ggml_type != p->seg[1].ggml_type; /* a row of two tiles is of one type */
        uint32_t tiles = 1;
        while (tiles < widest && 8 * tiles < p->rows) tiles *= 2;
        for (; tiles; tiles /= 2) {
            const uint32_t groups = (p->rows + 8 * tiles - 1) / (8 * tiles), rows = wide_items(&w->p, 2), blocks = rows * groups;
            /* Serial, if it fills three quarters of its rounds of one block a multiprocessor. */
            const bool serial = blocks * 4 >= (blocks + device.processors - 1) / device.processors * device.processors * 3;
            if ((serial || !device.clusters) && !pairs_of_two && wide_launch(p, w, tiles, 2, 1, stream, status, err)) return true;
            if (!device.clusters) continue;
            /* Two tiles a row, if there are enough of them and room. */
            const bool high = p->glu ? !pairs_of_two : blocks * WK_SLOTS * 10 >= device.processors * 9 && w->p.k32 / WK_SLOTS * tiles * 16 <= WK_WIDE_ROOM;
            if (wide_launch(p, w, tiles, high ? 2 : 1, 0, stream, status, err)) return true;
            if (high && wide_launch(p, w, tiles, 1, 0, stream, status, err)) return true;
        }
        return false;
    }

    /* One launch; false: this many rows do not fit in one. */
    static bool launch(const wk_cuda_product *p, void *stream, wk_status *status, const struct wk_err *err)
    {
        wk_wide_args w = {};
        common(p, &w.p);
        if (p->rows <= WK_FEW_ROWS) {
            wk_product_args a = w.p;
            const uint32_t types = a.types, columns = p->rows == 1 ? 1 : 8;
            count_items(&a, 1);
            const uint32_t shared = few_shape(&a, columns, 1);
            if (shared) {
                if (!(types & (types - 1))) single_type(&a);
                *status = start(few_kernel(types, columns), a, 1, WK_FEW_THREADS, shared, p->flags, stream, err);
                return true;
            }
        }
        return p->rows > 1 && wide(p, &w, stream, status, err);
    }

    /* A stage of the ring of product_experts: so many steps of each slot as make `bytes`, or a piece of one. */
    static void experts_stages(wk_experts_args *w, uint32_t bytes)
    {
        wk_product_args *a = &w->p;
        few_stages(a);
        const uint32_t all = (a->steps + WK_SLOTS - 1) / WK_SLOTS;
        w->rounds = a->run > 1 ? 1 : min_of(all, max_of(bytes / a->slot, 1));
        if (w->rounds == 1) return;
        a->stages = (all + w->rounds - 1) / w->rounds;
        a->slot = 0;
        for (uint32_t i = 0; i < a->n_seg; i++) {
            a->seg[i].stage_bytes = a->seg[i].step_bytes * w->rounds;
            a->slot = max_of(a->slot, a->seg[i].stage_bytes * WK_SLOTS);
        }
    }
    /* Shared memory of product_experts of 1 or 8 columns, of which `capacity` are used; 0: it does not fit. */
    template <int COLUMNS> static uint32_t experts_shape(wk_experts_args *w)
    {
        wk_product_args *a = &w->p;
        const uint32_t padded = a->steps * a->step_units * unit, type = a->seg[0].type;
        uint32_t at = 0;
        a->x_stride = COLUMNS > 1 ? padded + (groups[type] == 16 ? 16 : 32) : padded; /* lanes that load together meet no other's banks */
        const uint32_t x_at = at;
        at += w->capacity * a->x_stride * 2;
        const uint32_t terms_at = at;
        at += align(terms_bytes(type, padded, COLUMNS));
        const uint32_t red_at = at;
        at += wk_experts_shape<COLUMNS>::sums;
        const uint32_t bars_at = at;
        at += WK_FEW_BARS * 8;
        const uint32_t start_at = at;
        at += align(sizeof(wk_experts_walk));
        uint32_t depth = 0;
        for (a->blocks = 2; a->blocks; a->blocks--) {
            uint32_t room = device.processor_bytes / a->blocks - WK_BLOCK_RESERVED;
            if (room > device.block_bytes) room = device.block_bytes;
            room = room > at ? room - at : 0;
            experts_stages(w, room / WK_EXPERTS_STAGES);
            depth = room / a->slot;
            if (depth >= 2) break;
        }
        if (depth < 2) return 0;
        a->depth = depth < WK_FEW_DEPTH ? depth : (uint32_t)WK_FEW_DEPTH;
        a->flight = WK_FEW_FLIGHT / (a->blocks * a->slot);
        a->flight = a->flight < 1 ? 1 : a->flight < a->depth ? a->flight : a->depth;
        const uint32_t ring = align(a->depth * a->slot);
        a->x_at = ring + x_at;
        a->terms_at[type] = ring + terms_at;
        a->red_at = ring + red_at;
        a->bars_at = ring + bars_at;
        w->start_at = ring + start_at;
        return ring + at;
    }
    static void (*experts_kernel(uint32_t type, uint32_t columns))(const wk_experts_args)
    {
        static void (*const kernels[2][n_types])(const wk_experts_args) = { { wk_product_experts<1, First>, wk_product_experts<1, Rest>... }, { wk_product_experts<8, First>, wk_product_experts<8, Rest>... } };
        return kernels[columns > 1][type];
    }
    /* One column where no expert has more than one item, as a rule. */
    static wk_status experts(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        wk_experts_args w = {};
        common(p, &w.p);
        count_items(&w.p, 1);
        w.groups = p->groups;
        w.experts = p->n_experts;
        w.known = p->flags & WK_CUDA_GROUPS_KNOWN ? 1 : 0;
        if ((uint64_t)p->rows * w.p.items > UINT32_MAX) return wk_fail(err, WK_INVALID, "product: rows %u of %u tiles with experts", p->rows, w.p.items);
        const uint32_t type = w.p.seg[0].type, rows = p->rows / p->top_k;
        uint32_t shared = 0;
        for (w.capacity = rows > 8 ? 8 : rows > 1 ? rows : 1; w.capacity > 1 && !(shared = experts_shape<8>(&w));) w.capacity /= 2;
        if (w.capacity == 1) shared = experts_shape<1>(&w);
        if (!shared) return wk_fail(err, WK_INVALID, "product: k %u is too large for experts", p->k);
        single_type(&w.p);
        const uint64_t units = (uint64_t)p->rows * w.p.items, most = w.p.blocks * device.processors;
        return begin(experts_kernel(type, w.capacity), w, dim3((uint32_t)(units < most ? units : most)), WK_FEW_THREADS, shared, p->flags, stream, err);
    }

    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        wk_status status = wk_product_check(p, block(p), err);
        if (status) return status;
        if (p->expert) return experts(p, stream, err);
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
    const struct wk_product_family name = { wk_product_of<__VA_ARGS__>::types, wk_product_of<__VA_ARGS__>::n_types, 0, wk_product_of<__VA_ARGS__>::open, wk_product_of<__VA_ARGS__>::product }

#endif
