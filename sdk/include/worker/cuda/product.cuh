/* worker/cuda/product.cuh: the launches of a family of formats: WK_PRODUCT_FAMILY(name, format...) defines `const
 * struct wk_product_family name`.
 *
 * All formats of a family have the same unit and super-unit. Here is what all kernels share: what k is cut into, what
 * is checked, and how many rows a launch has. Which kernel takes those, and how its shared memory is cut, is for the
 * select/ to say, from the shape; none of it changes a bit of the result (part/weights.cuh). */
#ifndef WORKER_CUDA_PRODUCT_CUH
#define WORKER_CUDA_PRODUCT_CUH

#include <cuda_runtime.h>

#include <worker/cuda/format.cuh>
#include <worker/cuda/image.cuh>
#include <worker/cuda/kernel/gemv.cuh>
#include <worker/cuda/part/arguments.cuh>
#include <worker/cuda/part/check.cuh>
#include <worker/cuda/part/columns.cuh>
#include <worker/cuda/part/order.cuh>
#include <worker/cuda/part/weights.cuh>
#include <worker/cuda/product.h>
#include <worker/cuda/select/batch.cuh>
#include <worker/cuda/select/gemv.cuh>
#include <worker/cuda/select/int8.cuh>
#include <worker/cuda/select/moe_decode.cuh>

/* What the kernels' shapes depend on besides the product; one device a process. */
struct wk_product_device {
    uint32_t processors, block_bytes, processor_bytes; /* shared memory: most of a block, of a multiprocessor */
    bool clusters, wgmma; /* device and image have them: blocks that share their memories, and bulk copies;
                             stream_wgmma's instructions */
};

static inline wk_status wk_product_device_read(int32_t device, wk_product_device *d, const struct wk_err *err)
{
    int v[4] = { 0, 0, 0, 0 };
    const cudaDeviceAttr attribute[4] = { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrClusterLaunch };
    struct wk_image image;
    const wk_status known = wk_product_status(wk_image_read(&image), "product: the kernels' image", err);
    if (known) return known;
    for (int i = 0; i < 4; i++) {
        const wk_status status =
            wk_product_status(cudaDeviceGetAttribute(&v[i], attribute[i], device), "product: device attribute", err);
        if (status) return status;
    }
    d->processors = (uint32_t)v[0];
    d->block_bytes = (uint32_t)v[1];
    d->processor_bytes = (uint32_t)v[2];
    d->clusters = v[3] != 0 && image.clusters;
    d->wgmma = image.wgmma;
    return WK_OK;
}

template <class First, class... Rest> struct wk_product_of {
    static constexpr uint32_t n_types = 1 + sizeof...(Rest), unit = First::unit, super = First::super;
    static_assert(n_types <= WK_TYPES_MAX && super <= 2 && ((Rest::unit == unit && Rest::super == super) && ...),
                  "formats of a family have units of one size");
    static constexpr uint32_t types[n_types] = { First::type, Rest::type... };
    static constexpr uint32_t slots[n_types] = { First::slot, Rest::slot... },
                              groups[n_types] = { First::group, Rest::group... },
                              pads[n_types] = { wk_column_pad<First>(), wk_column_pad<Rest>()... };
    static constexpr float unscales[n_types] = { wk_unscale<First>(), wk_unscale<Rest>()... },
                           whole_unscales[n_types] = { wk_is_whole<First>::unscale, wk_is_whole<Rest>::unscale... };
    static constexpr bool whole = wk_is_whole<First>::yes; /* dense products go by whole numbers */
    static inline wk_product_device device;
    typedef wk_gemv_plan<wk_product_of, First, Rest...> gemv;
    typedef wk_moe_decode_plan<wk_product_of, First, Rest...> moe_decode;
    typedef wk_int8_plan<wk_product_of, First, Rest...> int8;
    typedef wk_batch_plan<wk_product_of, First, Rest...> batch;

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
    static uint32_t tile_bytes(uint32_t i, uint32_t k)
    {
        return of_type(i, [k](auto f) { return (uint32_t) decltype(f)::tile_bytes(k); });
    }
    static uint32_t tile_stride(uint32_t i, uint32_t k)
    {
        return of_type(i, [k](auto f) { return (uint32_t)wk_tile_stride<decltype(f)>(k); });
    }
    static uint32_t step_bytes(uint32_t i, uint32_t units)
    {
        return of_type(i, [units](auto f) { return (uint32_t) decltype(f)::offset(units); });
    }
    static wk_status open(int32_t device_index, const struct wk_err *err)
    {
        wk_status status = wk_product_device_read(device_index, &device, err);
        if (!status) status = gemv::open(err);
        if (!status) status = moe_decode::open(err);
        if constexpr (whole)
            return status ? status : int8::open(err);
        else
            return status ? status : batch::open(err);
    }

    /* Units of the longest step: 256 values, or fewer where gemv could have only pieces of them that begin
     * inside a line of 128 bytes (wk_tile_stride). */
    template <class F> static constexpr uint32_t longest_of()
    {
        uint32_t units = super > 1 ? super : 256 / unit;
        while (super == 1 && units > 1 && F::offset(units) > WK_GEMV_ONE_STAGE && F::offset(units / 2) % 128)
            units /= 2;
        return units;
    }
    static constexpr uint32_t longest_step()
    {
        uint32_t units = longest_of<First>();
        ((units = longest_of<Rest>() < units ? longest_of<Rest>() : units), ...);
        return units;
    }
    static uint64_t step_cost(uint32_t k, uint32_t step)
    {
        return ((k + step - 1) / step + WK_SLOTS - 1) / WK_SLOTS * (uint64_t)(step + 32);
    }

    /* All that does not depend on the number of columns. */
    static void common(const wk_cuda_product *p, wk_product_args *a)
    {
        *a = wk_product_args();
        a->rows = p->rows;
        a->k = p->k;
        a->k32 = wk_act_k(p->k);
        /* Part of the order of arithmetic, so by k alone: steps of 256 values or fewer, as short as keeps 8 warps
         * evenly busy; 32: what a step costs besides. */
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
            a->seg[i] = { static_cast<const unsigned char *>(s->tiles),
                          s->bias,
                          s->out.y,
                          s->out.aux,
                          s->out.y_stride,
                          tile_stride(type, p->k),
                          tile_bytes(type, p->k),
                          step_bytes(type, a->step_units),
                          0,
                          s->n,
                          (s->n + 15) / 16,
                          type,
                          in_scale * (whole && !p->expert ? whole_unscales : unscales)[type],
                          s->out.kind,
                          s->out.shift,
                          0 };
            a->types |= 1u << type;
            if (slots[type] > a->slot) a->slot = slots[type];
        }
        a->way = way(p);
    }
    /* The way that the outputs go (part/epilogue.cuh). */
    static uint32_t way(const wk_cuda_product *p)
    {
        bool plain = !p->glu && !p->map[0].fn, whole = wk_fours(p->residual, p->residual_stride, 4);
        for (uint32_t i = 0; i < p->n_seg; i++) {
            const wk_cuda_segment *s = &p->seg[i];
            plain = plain && s->out.kind == WK_CUDA_OUT_F32;
            whole = whole && s->n % 32 == 0 && wk_fours(s->bias, 0, 4) &&
                    (i && p->glu ? true : wk_fours(s->out.y, s->out.y_stride, s->out.kind == WK_CUDA_OUT_F32 ? 4 : 2));
        }
        if (plain) return whole ? WK_WAY_F32_FOURS : WK_WAY_F32;
        return p->glu == WK_GLU_SILU && whole && !p->residual && p->seg[0].out.kind != WK_CUDA_OUT_F32 ? WK_WAY_SILU
                                                                                                       : WK_WAY_ANY;
    }
    /* Are the outputs F32 sums with no more than a bias? */
    static bool plain_sums(const wk_product_args *a)
    {
        bool plain = a->way >= WK_WAY_F32 && !a->residual;
        for (uint32_t i = 0; i < a->n_seg; i++) plain = plain && !a->seg[i].aux;
        return plain;
    }
    /* Is no step cut short? */
    static bool whole_steps(const wk_product_args *a) { return a->k == a->steps << a->step_shift; }

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
    /* Shared memory that a block may have, of `together` a multiprocessor. */
    static uint32_t room_of(uint32_t together)
    {
        return min_of(device.processor_bytes / together - WK_BLOCK_RESERVED, device.block_bytes);
    }

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
        for (uint32_t i = 0; i < (a->glu ? 1 : a->n_seg); i++)
            a->seg[i].end = a->items += (a->seg[i].n_tiles + tiles - 1) / tiles;
    }

    template <class Args>
    static wk_status begin(void (*kernel)(const Args), const Args &a, dim3 grid, uint32_t threads, uint32_t shared,
                           uint32_t flags, void *stream, const struct wk_err *err)
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
    /* A launch in clusters of `blocks`; its grid and stream, and whether it depends on the one before (numAttrs 2), are
     * the caller's to set. */
    static void cluster_config(cudaLaunchConfig_t *config, cudaLaunchAttribute attribute[2], uint32_t blocks,
                               uint32_t shared, uint32_t threads)
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
    /* Clusters of `blocks` that the device holds at once, of `together` blocks a multiprocessor with all memory that
     * these may have. */
    template <class Args>
    static uint32_t clusters_at_once(void (*kernel)(const Args), uint32_t blocks, uint32_t together, uint32_t threads)
    {
        if (blocks == 1 || !device.clusters) return together * device.processors;
        cudaLaunchAttribute attribute[2] = {};
        cudaLaunchConfig_t config;
        int n = 0;
        cluster_config(&config, attribute, blocks, room_of(together), threads);
        if (cudaOccupancyMaxActiveClusters(&n, kernel, &config) == cudaSuccess) return n > 0 ? (uint32_t)n : 0;
        (void)cudaGetLastError();
        return 0;
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

    /* One launch; false: this many rows do not fit in one. */
    static bool launch(const wk_cuda_product *p, void *stream, wk_status *status, const struct wk_err *err)
    {
        wk_product_args a;
        common(p, &a);
        if (p->rows > 1 && batch::launch(p, a, stream, status, err)) return true;
        return p->rows <= 8 && gemv::launch(p, &a, stream, status, err);
    }

    static wk_status product(const wk_cuda_product *p, void *stream, const struct wk_err *err)
    {
        wk_status status = wk_product_check(p, block(p), err);
        if (status) return status;
        if (!batch::layout_right(p))
            return wk_fail(err, WK_INVALID, "product: input kind %u or out kind %u of %u rows and k %u", p->input.kind,
                           p->seg[0].out.kind, p->rows, p->k);
        if (p->expert) return moe_decode::product(p, stream, err);
        if constexpr (whole)
            if (p->rows > 1 && p->input.kind == WK_CUDA_IN_ACT) return int8::product(p, stream, err);
        if (p->input.kind == WK_CUDA_IN_RMS && p->rows > 1 && p->rows > batch::norm_rows(p))
            return wk_fail(err, WK_INVALID, "product: input kind %u with %u rows", p->input.kind, p->rows);
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

#define WK_PRODUCT_FAMILY(name, ...)                                                      \
    extern "C" const struct wk_product_family name;                                       \
    const struct wk_product_family name = { wk_product_of<__VA_ARGS__>::types,            \
                                            wk_product_of<__VA_ARGS__>::n_types,          \
                                            0,                                            \
                                            wk_product_of<__VA_ARGS__>::open,             \
                                            wk_product_of<__VA_ARGS__>::batch::norm_rows, \
                                            wk_product_of<__VA_ARGS__>::batch::layout,    \
                                            wk_product_of<__VA_ARGS__>::workspace,        \
                                            wk_product_of<__VA_ARGS__>::product }

#endif
