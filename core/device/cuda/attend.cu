/* attend.cu: launches attention of generated rows (attend_few.cuh, attend_one.cuh): what is served, grids, clusters,
 * shared memory, workspace; and checks what every attention is given. */
#include "device/cuda/attend_few.cuh"
#include "device/cuda/attend_one.cuh"

#include "device/cuda/launch.cuh"

enum { BLOCK_RESERVED = 1024 }; /* bytes that a block takes beside what it asks for */

/* ---- launch -------------------------------------------------------------------------------------------- */

/* Most splits of a sequence, by a kernel of so many warps; a window may begin within one. */
static uint32_t splits_within(uint32_t warps, uint32_t context)
{
    return (context + warps * KV_PAGE - 1) / (warps * KV_PAGE) + 1;
}

/* The fewest warps that the kernel of a head size has, on any GPU: a split's pages. A block's shared memory holds keys
 * and values of a page for each warp. */
static constexpr uint32_t least_warps_of(uint32_t head) { return head < 96 ? 8 : head <= 128 ? 4 : 2; }

/* Most splits on any GPU: memory is planned without one. */
static uint32_t max_splits_of(uint32_t head, uint32_t context) { return splits_within(least_warps_of(head), context); }

bool cuda_attend_serves(uint32_t dk, uint32_t dv) { return attend_head(dk, dv) != 0; }

uint64_t cuda_attend_page_bytes(uint32_t kv_heads, uint32_t dk, uint32_t dv)
{
    return (uint64_t)kv_heads * KV_PAGE * 2 * attend_head(dk, dv) * sizeof(__half);
}

static uint64_t part_bytes(uint64_t n, uint32_t head) { return (n * head * sizeof(float) + 255) / 256 * 256; }

uint64_t cuda_attend_workspace(uint32_t rows, uint32_t heads, uint32_t dk, uint32_t dv, uint32_t context)
{
    const uint32_t head = attend_head(dk, dv);
    const uint64_t n = (uint64_t)rows * heads * max_splits_of(head, context);
    return part_bytes(n, head) + n * sizeof(float2);
}

uint64_t cuda_attend_counters(uint32_t rows, uint32_t heads) { return (uint64_t)rows * heads; }

static wk_status check_source(const char *what, const char *name, const float *x, const float *rope_table, uint32_t n,
                              uint32_t style, struct cuda_head_norm norm, uint32_t d, const struct wk_err *err)
{
    if (!x) return wk_fail(err, WK_INVALID, "%s: no %s", what, name);
    if (norm.kind > CUDA_NORM_LAYER) return wk_fail(err, WK_INVALID, "%s: %s_norm.kind is %u", what, name, norm.kind);
    if (!rope_table) return WK_OK;
    if (style != WK_ROPE_INTERLEAVED && style != WK_ROPE_HALF)
        return wk_fail(err, WK_INVALID, "%s: %s_rope_style is %u", what, name, style);
    if (2 * (uint64_t)n > d) return wk_fail(err, WK_INVALID, "%s: %s_rope_n is %u for heads of %u", what, name, n, d);
    return WK_OK;
}

/* Can heads of d values be read by runs of 8, and rotated with runs of 8 or within them? */
static bool in_runs(const struct attend_source *s, uint32_t d)
{
    const bool rotated = !s->rope_table || ((uintptr_t)s->rope_table % 16 == 0 &&
                                            s->rope_n % (s->rope_style == WK_ROPE_INTERLEAVED ? 4 : 8) == 0);
    return d % 8 == 0 && (uintptr_t)s->x % 16 == 0 && s->stride % 4 == 0 && rotated;
}

wk_status attend_check(const struct cuda_attend *a, const char *what, struct attend_args *out, const struct wk_err *err)
{
    const uint32_t head = a->value_in_key ? latent_head(a->dk, a->dv) : attend_head(a->dk, a->dv);
    if (!head || (a->value_in_key && a->dv > a->dk))
        return wk_fail(err, WK_UNSUPPORTED, "%s: no kernels for heads of %u and %u", what, a->dk, a->dv);
    if (!a->kv_heads || a->heads % a->kv_heads)
        return wk_fail(err, WK_INVALID, "%s: %u heads for %u KV heads", what, a->heads, a->kv_heads);
    if (a->group >= TAPE_MAX_GROUPS || !a->batch->pages[a->group])
        return wk_fail(err, WK_INVALID, "%s: group %u has no page table", what, a->group);
    if (a->window && a->ring_pages && (uint64_t)a->ring_pages * KV_PAGE < a->window)
        return wk_fail(err, WK_INVALID, "%s: a ring of %u pages for a window of %u", what, a->ring_pages, a->window);
    if (a->ring_pages && (uint64_t)a->ring_pages * KV_PAGE < a->chunk)
        return wk_fail(err, WK_INVALID, "%s: a ring of %u pages for chunks of %u", what, a->ring_pages, a->chunk);
    if (a->value_in_key ? a->v != NULL : (a->k != NULL) != (a->v != NULL))
        return wk_fail(err, WK_INVALID, "%s: k or v alone, or v beside values in keys", what);
    if (a->chunk && (a->window || a->chunk % KV_PAGE))
        return wk_fail(err, WK_INVALID, "%s: chunks of %u, a window of %u", what, a->chunk, a->window);
    wk_status s = check_source(what, "q", a->q, a->q_rope_table, a->q_rope_n, a->q_rope_style, a->q_norm, a->dk, err);
    if (s == WK_OK && a->k)
        s = check_source(what, "k", a->k, a->k_rope_table, a->k_rope_n, a->k_rope_style, a->k_norm, a->dk, err);
    if (s == WK_OK && a->v) s = check_source(what, "v", a->v, NULL, 0, 0, a->v_norm, a->dv, err);
    if (s != WK_OK) return s;
    if (a->act ? a->shift > 126 || a->dv % 16 : !a->out)
        return wk_fail(err, WK_INVALID, "%s: no output, or an act of heads of %u", what, a->dv);
    if (!a->cache) return wk_fail(err, WK_INVALID, "%s: no cache", what);
    *out = attend_args{};
    out->q = attend_source_of(a->q, a->q_stride, a->q_rope_table, a->q_rope_n, a->q_rope_style, a->q_norm);
    out->k = attend_source_of(a->k, a->k_stride, a->k_rope_table, a->k_rope_n, a->k_rope_style, a->k_norm);
    out->v = attend_source_of(a->v, a->v_stride, NULL, 0, 0, a->v_norm);
    out->seq = a->batch->seq;
    out->lengths = a->batch->lengths;
    out->seqs = a->batch->seqs;
    out->pages = a->batch->pages[a->group];
    out->page_stride = a->batch->page_stride[a->group];
    out->ring_pages = a->ring_pages;
    out->window = a->window;
    out->chunk = a->chunk;
    out->slopes = a->slopes;
    out->both_ways = a->both_ways;
    out->cache = static_cast<__half *>(a->cache);
    out->page_halves = (a->value_in_key ? cuda_latent_page_bytes(a->kv_heads, a->dk, a->dv)
                                        : cuda_attend_page_bytes(a->kv_heads, a->dk, a->dv)) /
                       sizeof(__half);
    out->sinks = a->sinks;
    out->act = static_cast<__half *>(a->act);
    out->shift = a->shift;
    out->act_k = wk_act_k(a->heads * a->dv);
    out->out = a->out;
    out->out_stride = a->out_stride;
    out->scale = a->scale;
    out->softcap = a->softcap;
    out->heads = a->heads;
    out->kv_heads = a->kv_heads;
    out->group = a->heads / a->kv_heads;
    out->group_magic = out->group > 1 ? (uint32_t)((((uint64_t)1 << 32) + out->group - 1) / out->group) : 0;
    out->dk = a->dk;
    out->dv = a->dv;
    out->head = head;
    return WK_OK;
}

wk_status attend_check_tiles(const struct cuda_attend *a, const char *what, bool in_key, const void *q_half,
                             struct attend_args *out, const struct wk_err *err)
{
    if (a->value_in_key != in_key)
        return wk_fail(err, WK_INVALID, "%s: values %s", what, in_key ? "of their own" : "in keys");
    const wk_status s = attend_check(a, what, out, err);
    if (s != WK_OK) return s;
    if (a->batch->rows == 0 || a->batch->seqs == 0)
        return wk_fail(err, WK_INVALID, "%s: %u rows of %u sequences", what, a->batch->rows, a->batch->seqs);
    if (!q_half) return wk_fail(err, WK_INVALID, "%s: no rows of q", what);
    return WK_OK;
}

wk_status attend_device_of(struct attend_device *d, const struct wk_err *err)
{
    int device = 0;
    wk_status s = cuda_status(cudaGetDevice(&device), "attend", err);
    if (s == WK_OK)
        s = cuda_status(cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, device), "attend", err);
    if (s == WK_OK)
        s = cuda_status(cudaDeviceGetAttribute(&d->block_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                        "attend", err);
    if (s == WK_OK)
        s = cuda_status(
            cudaDeviceGetAttribute(&d->processor_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device), "attend",
            err);
    return s;
}

struct device_size : attend_device {
    bool clusters;
};

static wk_status size_device(struct device_size *d, const struct wk_err *err)
{
    wk_status s = attend_device_of(d, err);
    struct wk_image image;
    if (s == WK_OK) s = cuda_image(&image, err);
    d->clusters = s == WK_OK && image.clusters;
    return s;
}

template <class... Params, class... Args>
static wk_status launch(void (*kernel)(Params...), const struct device_size *d, uint64_t blocks, uint32_t cluster,
                        uint32_t warps, size_t bytes, const struct cuda_attend *a, void *stream,
                        const struct wk_err *err, Args... args)
{
    if (bytes > (size_t)d->block_bytes)
        return wk_fail(err, WK_UNSUPPORTED, "attend: %zu bytes of shared memory are needed, the device has %d", bytes,
                       d->block_bytes);
    const wk_status s = cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), "attend", err);
    return s == WK_OK ? cuda_launch_clusters("attend", kernel, dim3((uint32_t)blocks), cluster, dim3(32 * warps), bytes,
                                             a->pdl, stream, err, args...)
                      : s;
}

/* Whether the device holds so many clusters of this size. bytes: shared memory of a block. */
template <class... Params>
static bool holds_clusters(void (*kernel)(Params...), const struct device_size *d, uint32_t warps, size_t bytes,
                           uint32_t size, uint64_t clusters)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(size);
    config.blockDim = dim3(32 * warps);
    config.dynamicSmemBytes = bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int there = 0;
    const bool holds =
        bytes <= (size_t)d->block_bytes &&
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&there, kernel, &config) == cudaSuccess && (uint64_t)there >= clusters;
    (void)cudaGetLastError();
    return holds;
}

/* Blocks of a cluster that share the splits of a tile: 1, or at most as many as there are splits and as multiprocessors
 * for each tile, if the device holds so many clusters. bytes: shared memory of a block, by the size of a cluster. */
template <class... Params>
static uint32_t cluster_of(void (*kernel)(Params...), const struct device_size *d, uint32_t warps,
                           size_t (*bytes)(uint32_t), uint64_t tiles, uint32_t splits)
{
    uint32_t size = 1;
    while (d->clusters && size < splits && size < ONE_CLUSTER && 2 * size * tiles <= (uint64_t)d->processors) size *= 2;
    if (size > 8 && cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
        size = 8;
    while (size > 1 && !holds_clusters(kernel, d, warps, bytes(size), size, tiles)) size /= 2;
    return size;
}

/* Most splits that a tile's rows see. */
static uint32_t seen_splits(const struct attend_args &x, uint32_t split, uint32_t rows, uint32_t context)
{
    const uint32_t all = (context + split - 1) / split,
                   most = x.window ? (x.window + rows + split - 2) / split + 1 : all;
    return most < all ? most : all;
}

/* 2^32 / n, rounded up; of 1 the most there is. */
static uint32_t part_of(uint64_t n) { return n > 1 ? (uint32_t)((((uint64_t)1 << 32) + n - 1) / n) : UINT32_MAX; }

/* busy: blocks that all sequences have. */
static struct few_launch few_launch_of(uint64_t blocks, uint64_t busy, uint32_t seqs)
{
    const uint64_t one = (uint64_t)1 << 32, likely = (one * seqs + busy - 1) / busy;
    return few_launch{ .cluster = 1,
                       .sent = 0,
                       .part = UINT32_MAX,
                       .share = part_of(blocks),
                       .tile = 0,
                       .likely = likely < one ? (uint32_t)likely : UINT32_MAX,
                       .late = false };
}

/* Several sequences with few tiles: a cluster for each tile. cluster: its blocks; 1: tiles are too many, nothing is
 * launched. */
template <int D, int W>
static wk_status launch_clusters(const struct cuda_attend *a, const struct attend_args &x, const struct device_size *d,
                                 uint64_t blocks, uint32_t context, void *stream, const struct wk_err *err,
                                 uint32_t *cluster)
{
    const auto kernel = attend_few<D, W, FORM_PLAIN, true>;
    const uint32_t splits = seen_splits(x, W * KV_PAGE, a->batch->rows, context),
                   row_tiles = x.kv_heads * ((x.group + QUERIES - 1) / QUERIES);
    const uint64_t tiles = (uint64_t)a->batch->rows * row_tiles;
    uint32_t size =
        cluster_of(kernel, d, W, few_bytes<D, W>, tiles, splits < FEW_CLUSTER ? splits : (uint32_t)FEW_CLUSTER);
    /* A block for each of three splits is worth more than a multiprocessor for each block. */
    if (size == 2 && splits > 2 && holds_clusters(kernel, d, W, few_bytes<D, W>(3), 3, tiles)) size = 3;
    *cluster = size;
    if (size == 1) return WK_OK;
    const uint64_t clusters = blocks / size > tiles ? blocks / size : tiles;
    struct few_launch l = few_launch_of(clusters * size, tiles * size, x.seqs);
    l.cluster = size;
    l.sent = most_sent<D>(size);
    l.part = part_of(size);
    l.tile = one_item_serves(x) && row_tiles > 1 ? part_of(row_tiles) : 0;
    l.late = l.tile && clusters * size <= (uint64_t)d->processors; /* few blocks: a late begin costs the launch behind
                                                                      less than its copies would cost them */
    return launch(kernel, d, clusters * size, size, W, few_bytes<D, W>(size), a, stream, err, x, l);
}

/* Blocks: enough for every item that the buckets and the context allow, at most as many as stand side by side; few rows
 * leave room for the launches before and behind. Bits depend on none of it. */
template <int D, int W, int FORM>
static wk_status launch_form(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream,
                             const struct wk_err *err)
{
    const uint32_t rows = a->batch->rows;
    struct device_size d = {};
    const wk_status s = size_device(&d, err);
    if (s != WK_OK) return s;
    const uint64_t items = (uint64_t)x.kv_heads * ((rows * x.group + QUERIES - 1) / QUERIES + x.seqs) *
                           splits_within(W, context),
                   tiles = (uint64_t)x.kv_heads * x.seqs;
    const uint64_t side = rows > 4 && tiles > (uint64_t)d.processors &&
                                  2 * (few_bytes<D, W>(1) + BLOCK_RESERVED) <= (size_t)d.processor_bytes
                              ? 2
                              : 1,
                   most = side * (uint64_t)d.processors;
    const uint64_t blocks = items < most ? items : most;
    if constexpr (FORM == FORM_PLAIN && W == ONE_WARPS)
        if (x.seqs > 1) {
            uint32_t cluster = 1;
            const wk_status done = launch_clusters<D, W>(a, x, &d, blocks, context, stream, err, &cluster);
            if (cluster > 1) return done;
        }
    struct few_launch l = few_launch_of(blocks, blocks, x.seqs);
    const uint32_t row_tiles = x.kv_heads * ((x.group + QUERIES - 1) / QUERIES);
    if (one_item_serves(x) && row_tiles > 1 && row_tiles * (uint64_t)x.seqs <= blocks) l.tile = part_of(row_tiles);
    return launch(attend_few<D, W, FORM, false>, &d, blocks, 1, W, few_bytes<D, W>(1), a, stream, err, x, l);
}

template <int D>
static wk_status launch_one(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream,
                            const struct wk_err *err)
{
    struct device_size d = {};
    const wk_status s = size_device(&d, err);
    if (s != WK_OK) return s;
    const uint32_t length = ONE_WARPS * KV_PAGE, whole = (context + length - 1) / length,
                   within = x.window ? (x.window + length - 2) / length + 1 : whole,
                   splits = within < whole ? within : whole;
    const uint64_t tiles = (uint64_t)x.kv_heads * ((x.group + QUERIES - 1) / QUERIES), items = tiles * splits;
    const bool near = one_item_serves(x),
               late = tiles <= ONE_CLUSTER_TILES; /* few blocks: a late begin costs the launch behind less than its
                                                     weights' copies would cost them */
    const uint32_t cluster = near && late ? cluster_of(attend_one<D>, &d, ONE_WARPS, one_bytes<D>, tiles, splits) : 1;
    const uint64_t side = cluster == 1 && 2 * (one_bytes<D>(1) + BLOCK_RESERVED) <= (size_t)d.processor_bytes
                              ? 2
                              : 1; /* two on a multiprocessor: one's pages are on their way while the other computes */
    const uint64_t most = cluster > 1 && splits <= SENT_SPLITS ? tiles * cluster : items,
                   blocks = most < side * d.processors ? most : side * d.processors;
    return launch(attend_one<D>, &d,
                  cluster > 1 ? (blocks / cluster > tiles ? blocks / cluster : tiles) * cluster : blocks, cluster,
                  ONE_WARPS, one_bytes<D>(cluster), a, stream, err, x, cluster, near, late);
}

template <int D, int W>
static wk_status launch_few(const struct cuda_attend *a, const struct attend_args &x, uint32_t context, void *stream,
                            const struct wk_err *err)
{
    const bool norms =
        x.q.norm.kind != CUDA_NORM_NONE || x.k.norm.kind != CUDA_NORM_NONE || x.v.norm.kind != CUDA_NORM_NONE;
    if (norms || !in_runs(&x.q, x.dk) || !in_runs(&x.k, x.dk) || !in_runs(&x.v, x.dv))
        return launch_form<D, W, FORM_ANY>(a, x, context, stream, err);
    if constexpr (W == ONE_WARPS)
        if (a->batch->rows == 1 && x.seqs == 1) return launch_one<D>(a, x, context, stream, err);
    return launch_form<D, W, FORM_PLAIN>(a, x, context, stream, err);
}

/* By W warps, or, where a block's shared memory is too small for their pages (8.6, 8.9, 12.x), by half as many. Which
 * of them is the device's, so all steps there have the same splits. */
template <int D, int W>
static wk_status launch_fitting(const struct cuda_attend *a, const struct attend_args &x, uint32_t context,
                                void *stream, const struct wk_err *err)
{
    constexpr size_t bytes =
        W == ONE_WARPS && one_bytes<D>(1) > few_bytes<D, W>(1) ? one_bytes<D>(1) : few_bytes<D, W>(1);
    constexpr bool everywhere = bytes <= WK_LEAST_BLOCK_BYTES;
    static_assert(least_warps_of(D) == (everywhere ? W : W / 2), "memory is planned for the fewest warps");
    if constexpr (!everywhere) {
        static_assert(few_bytes<D, W / 2>(1) <= WK_LEAST_BLOCK_BYTES, "half as many fit on every GPU");
        struct attend_device d = {};
        const wk_status s = attend_device_of(&d, err);
        if (s != WK_OK) return s;
        if (bytes > (size_t)d.block_bytes) return launch_few<D, W / 2>(a, x, context, stream, err);
    }
    return launch_few<D, W>(a, x, context, stream, err);
}

wk_status cuda_attend(const struct cuda_attend *a, uint32_t context, void *stream, const struct wk_err *err)
{
    struct attend_args x;
    const wk_status s = attend_check(a, "attend", &x, err);
    if (s != WK_OK) return s;
    const struct cuda_batch *b = a->batch;
    if (b->rows == 0 || b->seqs == 0 || b->seqs > WK_CUDA_FEW)
        return wk_fail(err, WK_INVALID, "attend: %u rows of %u sequences", b->rows, b->seqs);
    if (cuda_attend_tiles(a))
        return wk_fail(err, WK_INVALID, "attend: chunks, slopes, both directions, values in keys or no keys: not here");
    if (!a->workspace || !a->counters || !b->lengths)
        return wk_fail(err, WK_INVALID, "attend: no workspace, counters or lengths");
    x.max_splits = max_splits_of(x.head, context);
    x.table_pages = (context + KV_PAGE - 1) / KV_PAGE;
    if ((uint64_t)b->rows * a->heads * x.max_splits > UINT32_MAX)
        return wk_fail(err, WK_INVALID, "attend: %u rows of %u heads with a context of %u", b->rows, a->heads, context);
    x.part = static_cast<float *>(a->workspace);
    x.part_max_sum = reinterpret_cast<float2 *>(static_cast<char *>(a->workspace) +
                                                part_bytes((uint64_t)b->rows * a->heads * x.max_splits, x.head));
    x.counters = a->counters;
    switch (x.head) {
    case 16: return launch_fitting<16, 8>(a, x, context, stream, err);
    case 32: return launch_fitting<32, 8>(a, x, context, stream, err);
    case 64: return launch_fitting<64, 8>(a, x, context, stream, err);
    case 80: return launch_fitting<80, 8>(a, x, context, stream, err);
    case 96: return launch_fitting<96, 8>(a, x, context, stream, err);
    case 128: return launch_fitting<128, 8>(a, x, context, stream, err);
    default: return launch_fitting<256, 4>(a, x, context, stream, err);
    }
}
