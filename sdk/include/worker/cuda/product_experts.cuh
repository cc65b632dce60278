/* worker/cuda/product_experts.cuh: products of experts whose items lie by expert: each used expert's weights are read once for up to 8 or 16 items.
 *
 * A unit of work is a tile (glu: a pair) of one expert for one chunk of its items. Units in the order (expert, chunk, tile) are dealt in runs of equal length to a grid
 * that fills the GPU, from the counts that the device made: a block keeps a chunk's activations for all its tiles and seldom sees more than two chunks. Inside, a
 * block is the pipeline of product_few.cuh: a warp streams tiles through a ring across units, eight warps share k, a warp finishes. With 16 columns there are
 * two such groups of eight and one, which take the units by turns, have rings of their own and share the activations. A block that finds its part of the work also lets the next launch
 * begin only then: so products that follow each other on one choice of experts can stream weights before the one before has ended (WK_CUDA_GROUPS_KNOWN). */
#ifndef WORKER_CUDA_PRODUCT_EXPERTS_CUH
#define WORKER_CUDA_PRODUCT_EXPERTS_CUH

#include <worker/cuda/product_few.cuh>
#include <worker/cuda/product_wide.cuh>

/* NT tiles of 8 columns, and as many groups of warps. */
template <int NT> struct wk_experts_shape {
    static constexpr uint32_t columns = 8 * NT, groups = NT, warps = groups * WK_SLOTS, finishers = groups, threads = 32 * (warps + finishers + 1);
    static constexpr uint32_t places = NT == 1 ? WK_FEW_SUMS : 2; /* tiles of a group whose sums may wait */
    static constexpr uint32_t place = WK_SLOTS * NT * WK_WIDE_CELL, sums = groups * places * place, bars = groups * WK_FEW_BARS * 8;
};

struct wk_experts_args {
    wk_product_args p;         /* items: units of a chunk */
    const uint32_t *groups;    /* worker/quant_cuda.h */
    uint32_t experts, capacity, known, start_at; /* capacity: most columns of a chunk; known: groups may be read before the wait; start_at: shared memory: bytes */
};

/* A block's way through its units: those from `tile` on of a chunk of an expert's items, then the next chunk's. */
struct wk_experts_walk {
    uint32_t left, used, expert, at, end, tile; /* units; number among the used experts; places of the chunk's first item and behind the expert's last; first unit here */
    __device__ __forceinline__ uint32_t units(const wk_experts_args &a) const { return min(left, a.p.items - tile); }
    __device__ __forceinline__ uint32_t columns(const wk_experts_args &a) const { return min(a.capacity, end - at); }
    __device__ __forceinline__ void next(const wk_experts_args &a)
    {
        left -= units(a);
        tile = 0;
        at = min(at + a.capacity, end);
        if (at < end || !left) return;
        used++;
        expert = __ldcg(a.groups + used);
        end = __ldcg(a.groups + a.experts + used + 1);
    }
};

/* Where the block begins, by one warp, for all to read. */
__device__ __forceinline__ void wk_experts_start(const wk_experts_args &a, wk_experts_walk *to, uint32_t lane)
{
    const uint32_t *const first = a.groups + a.experts;
    auto chunks = [&](uint32_t i) { return i < a.experts ? (__ldcg(first + i + 1) - __ldcg(first + i) + a.capacity - 1) / a.capacity : 0u; };
    uint32_t n = chunks(lane), all = n;
    for (uint32_t i = lane + 32; i < a.experts; i += 32) all += chunks(i);
    all = __reduce_add_sync(0xffffffffu, all) * a.p.items;
    const uint32_t each = all / gridDim.x, rest = all % gridDim.x, from = blockIdx.x * each + min(blockIdx.x, rest), left = each + (blockIdx.x < rest ? 1 : 0);
    const uint32_t chunk = from / a.p.items;
    if (!left) {
        if (lane == 0) to->left = 0;
        return;
    }
    for (uint32_t i = 0, before = 0;;) {
        uint32_t sum = n; /* of this lane's and those below */
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += below;
        }
        const bool here = chunk < before + sum && chunk >= before + sum - n;
        if (here) {
            const uint32_t used = i + lane;
            *to = { left, used, __ldcg(a.groups + used), __ldcg(first + used) + (chunk - (before + sum - n)) * a.capacity, __ldcg(first + used + 1), from - chunk * a.p.items };
        }
        if (__any_sync(0xffffffffu, here)) return;
        before += __shfl_sync(0xffffffffu, sum, 31);
        i += 32;
        n = chunks(i + lane);
    }
}

/* A cell of sums, 16 rows x 8 columns: byte of a row's. Four rows are read at once, and no banks collide when they are. */
__device__ __forceinline__ uint32_t wk_experts_cell(uint32_t row, uint32_t column) { return (column * 16 + (row / 4 ^ column / 2) * 4 + row % 4) * 4; }

/* Barriers of a group: of its ring and its sums. */
__device__ __forceinline__ wk_few_bars wk_experts_bars(const wk_experts_args &a, uint32_t base, uint32_t group) { return { base + a.p.bars_at + group * WK_FEW_BARS * 8 }; }

/* The warps of one slot in all groups wait for each other. */
template <int NT> __device__ __forceinline__ void wk_experts_meet(uint32_t slot)
{
    if (NT == 1) __syncwarp();
    else asm volatile("bar.sync %0, %1;" ::"r"(slot + 1), "n"(32 * NT) : "memory");
}

/* A warp's steps of a chunk's columns: the rows of the items' inputs. A lane keeps to one column. Groups of warps share the work, and each waits for its own part. */
template <int NT, class F> __device__ __forceinline__ void wk_experts_inputs(const wk_experts_args &a, unsigned char *shared, const wk_experts_walk &walk, uint32_t group, uint32_t slot, uint32_t lane)
{
    constexpr uint32_t columns = wk_experts_shape<NT>::columns, apart = 32 / columns;
    const wk_product_args &p = a.p;
    asm volatile("" : "+r"(lane), "+r"(slot), "+r"(group)); /* computed again for each chunk: what is kept between them would take registers from the loop over k */
    const uint32_t c = lane % columns, own = wk_own_steps(p, slot) << p.step_shift;
    if (c < walk.columns(a)) {
        const uint32_t row = wk_input_row(p, __ldcg(a.groups + 2 * a.experts + 1 + walk.at + c) / p.x_items);
        const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
        const float *const sums = p.in.aux + (uint64_t)row * (p.k32 / 8);
        const uint32_t x = (uint32_t)__cvta_generic_to_shared(shared + p.x_at) + c * p.x_stride * 2, first = lane / columns + group * apart;
#pragma unroll 4
        for (uint32_t i = first; i < own / 8; i += NT * apart) {
            const uint32_t k = wk_own_k(p, slot, i * 8);
            wk_copy16_part(x + k * 2, from + (k < p.k32 ? k : 0), k < p.k32 ? 16 : 0);
        }
        if constexpr (wk_terms<F, (int)columns>::biased || F::mins != 0)
#pragma unroll 2
            for (uint32_t i = first; i < own / 32; i += NT * apart) {
                const uint32_t k = wk_own_k(p, slot, i * 32);
                float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (k < p.k32) s = *reinterpret_cast<const float4 *>(sums + k / 8);
                wk_put_terms<(int)columns, F>(p, shared, c, k / 32, s);
            }
    }
    wk_copy_commit();
    wk_copy_wait<0>();
}

/* The streaming warp. Groups of warps have units by turns and rings of their own, filled by turns stage for stage; a chunk's units are dealt anew, so that no group waits for
 * another's units behind the chunk's end. */
template <int NT> __device__ __forceinline__ void wk_experts_stream(const wk_experts_args &a, wk_experts_walk walk, uint32_t base, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_turn turn[NT], old[NT];
    uint32_t more[NT]; /* stages that may still be asked for before one has arrived */
#pragma unroll
    for (int g = 0; g < NT; g++) turn[g] = { 0, 1 }, old[g] = { 0, 0 }, more[g] = p.flight;
    for (; walk.left; walk.next(a))
        for (uint32_t unit = walk.tile, last = unit + walk.units(a); unit < last; unit += NT)
            for (uint32_t j = 0; j < in_item; j++) {
                const unsigned char *from[NT];
                const wk_segment_args *seg[NT];
#pragma unroll
                for (int g = 0; g < NT; g++) {
                    uint32_t tile, s = wk_few_segment(p, min(unit + g, last - 1), &tile);
                    if (p.glu) s = j;
                    seg[g] = &p.seg[s];
                    from[g] = seg[g]->tiles + ((uint64_t)walk.expert * seg[g]->n_tiles + tile) * seg[g]->tile_bytes;
                }
                for (uint32_t stage = 0; stage < p.stages; stage++) {
                    const uint32_t step = stage / p.run * WK_SLOTS, piece = stage % p.run;
#pragma unroll
                    for (int g = 0; g < NT; g++) {
                        if (unit + g >= last) break;
                        const wk_few_bars bars = wk_experts_bars(a, base, g);
                        const wk_segment_args &to = *seg[g];
                        __syncwarp(); /* one lane copies: another that fell a round of the ring behind would miss a barrier's parity, and wait for good */
                        if (more[g]) {
                            more[g]--;
                        } else {
                            wk_stage_wait(bars.full(old[g].i), old[g].parity);
                            old[g].next(p.depth);
                        }
                        wk_stage_wait(bars.empty(turn[g].i), turn[g].parity);
                        wk_stage_copy8(base + (g * p.depth + turn[g].i) * p.slot, from[g], step * to.step_bytes + piece * to.stage_bytes, to.stage_bytes, to.step_bytes, (uint32_t)to.tile_bytes,
                                       p.steps * to.step_bytes, bars.full(turn[g].i), lane);
                        turn[g].next(p.depth);
                    }
                }
            }
}

/* N units of k of a stage. bias, min: of the first. */
template <class F, int NT, uint32_t N>
__device__ __forceinline__ void wk_experts_units(float y[1][NT][4], const unsigned char *at, const __half *x, uint32_t x_tile, const float *bias, const float *min, uint32_t lane)
{
    constexpr uint32_t columns = 8 * NT, groups = F::unit / F::group, min_floats = F::mins == WK_MINS_GROUP ? groups * columns : F::mins > WK_MINS_SUPER && F::super == 1 ? (F::mins - WK_MINS_SUPER) * 16 * columns : 0;
    typename F::scales s[1];
#pragma unroll
    for (uint32_t v = 0; v < N; v++) {
        if (F::super == 2 && v % 2) wk_wide_unit<F, NT, 1, 1>(y, s, at + F::offset(v), 0, x + v * F::unit, x_tile, bias + v * groups * columns, min + v * min_floats, lane);
        else wk_wide_unit<F, NT, 1, 0>(y, s, at + F::offset(v), 0, x + v * F::unit, x_tile, bias + v * groups * columns, min + v * min_floats, lane);
    }
}

/* A multiplying warp. */
template <int NT, class F>
__device__ __forceinline__ void wk_experts_multiply(const wk_experts_args &a, wk_experts_walk walk, unsigned char *shared, const wk_few_bars &bars, uint32_t group, uint32_t slot, uint32_t lane)
{
    typedef wk_experts_shape<NT> shape;
    constexpr uint32_t columns = shape::columns, super_floats = F::mins > WK_MINS_SUPER ? (F::mins - WK_MINS_SUPER) * 16 * columns : 0;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, x_tile = 8 * p.x_stride, chunk = (uint32_t)F::offset(F::super == 2 ? 2 : p.stage_units) * slot;
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) + min(lane / 4, a.capacity - 1) * p.x_stride;
    const wk_terms<F, (int)columns> terms(shared + p.terms_at[0], p.steps << p.step_shift);
    const unsigned char *const ring = shared + group * p.depth * p.slot + chunk;
    unsigned char *const sums = shared + p.red_at + group * shape::places * shape::place + slot * NT * WK_WIDE_CELL;
    const uint32_t in_cell = wk_experts_cell(lane / 4, lane % 4 * 2);
    wk_turn turn = { 0, 0 }, sum = { 0, 1 };
    for (; walk.left; walk.next(a)) {
        wk_experts_meet<NT>(slot); /* the chunk before is done with */
        wk_experts_inputs<NT, F>(a, shared, walk, group, slot, lane);
        wk_experts_meet<NT>(slot);
#pragma unroll 1
        for (uint32_t i = (walk.units(a) + NT - 1 - group) / NT * in_item; i; i--) {
            float y[1][NT][4] = {}, z[1][NT][4] = {}; /* of the partition that the next step is in, and of the other */
            uint32_t step = slot;
#pragma unroll 1
            for (uint32_t stage = 0; stage < p.stages; step += WK_SLOTS) {
                const uint32_t k = step << p.step_shift;
                const __half *xs = x + k;
                const float *bias = terms.bias + k / F::group * columns, *min = terms.min + (F::mins == WK_MINS_GROUP ? k / F::group * columns : k / (F::unit * F::super) * super_floats);
#pragma unroll 1
                for (uint32_t part = F::super == 2 ? 1 : p.run; part; part--, stage++) {
                    wk_stage_wait(bars.full(turn.i), turn.parity);
                    if (step < p.steps) {
                        const unsigned char *const at = ring + turn.i * p.slot;
                        if constexpr (F::super == 2) {
                            wk_experts_units<F, NT, 2>(y, at, xs, x_tile, bias, min, lane);
                        } else {
                            const uint32_t units = p.stage_units;
                            if (NT == 1 && 4 * F::slot <= WK_FEW_STAGE && units == 4) wk_experts_units<F, NT, 4>(y, at, xs, x_tile, bias, min, lane);
                            else if (units == 2) wk_experts_units<F, NT, 2>(y, at, xs, x_tile, bias, min, lane);
                            else wk_experts_units<F, NT, 1>(y, at, xs, x_tile, bias, min, lane);
                            xs += units * F::unit;
                            bias += units * (F::unit / F::group) * columns;
                            min += units * (F::mins == WK_MINS_GROUP ? F::unit / F::group * columns : super_floats);
                        }
                    }
                    __syncwarp();
                    if (lane == 0) wk_bar_arrive(bars.empty(turn.i));
                    turn.next(p.depth);
                }
#pragma unroll
                for (int j = 0; j < NT * 4; j++) {
                    const float v = y[0][j / 4][j % 4];
                    y[0][j / 4][j % 4] = z[0][j / 4][j % 4];
                    z[0][j / 4][j % 4] = v;
                }
            }
            wk_stage_wait(bars.finished(sum.i), sum.parity);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                unsigned char *const cell = sums + sum.i * shape::place + n * WK_WIDE_CELL;
#pragma unroll
                for (uint32_t j = 0; j < 4; j++) /* columns 2t, 2t + 1 of row g, and of row g + 8 */
                    *reinterpret_cast<float *>(cell + (j / 2 ? in_cell ^ 32u : in_cell) + j % 2 * 64) = __fadd_rn(y[0][n][j], z[0][n][j]);
            }
            __syncwarp();
            if (lane == 0) wk_bar_arrive(bars.summed(sum.i));
            sum.next(shape::places);
        }
    }
}

/* Four rows of a column over all slots in order. */
__device__ __forceinline__ void wk_experts_add(float sum[4], const unsigned char *cell, uint32_t stride)
{
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = 0.0f;
#pragma unroll
    for (uint32_t slot = 0; slot < WK_SLOTS; slot++) {
        const float4 v = *reinterpret_cast<const float4 *>(cell + slot * stride);
        sum[0] = __fadd_rn(sum[0], v.x), sum[1] = __fadd_rn(sum[1], v.y), sum[2] = __fadd_rn(sum[2], v.z), sum[3] = __fadd_rn(sum[3], v.w);
    }
}

/* A finishing warp: 8 columns at a time, four rows of a column a lane. */
template <int NT> __device__ __forceinline__ void wk_experts_finish(const wk_experts_args &a, wk_experts_walk walk, const unsigned char *shared, const wk_few_bars &bars, uint32_t group, uint32_t lane)
{
    typedef wk_experts_shape<NT> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    const unsigned char *const cells = shared + p.red_at + group * shape::places * shape::place + wk_experts_cell(lane % 4 * 4, lane / 4);
    wk_turn sum = { 0, 0 };
    for (; walk.left; walk.next(a)) {
        const uint32_t columns = walk.columns(a);
        uint32_t item[NT];
#pragma unroll
        for (int n = 0; n < NT; n++) item[n] = n * 8 + lane / 4 < columns ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + n * 8 + lane / 4) : 0;
#pragma unroll 1
        for (uint32_t unit = walk.tile + group, last = walk.tile + walk.units(a); unit < last; unit += NT) {
            const uint32_t place = sum.i; /* pairs begin at even places */
            wk_four_at o = {};
            o.seg = wk_few_segment(p, unit, &o.tile);
#pragma unroll 1
            for (uint32_t n = 0; n * 8 < columns; n++) {
                o.row = NT > 1 && n ? item[NT - 1] : item[0];
                o.on = n * 8 + lane / 4 < columns;
                wk_four_more more = wk_four_ahead(p, o, walk.expert);
                if (n == 0) {
                    wk_stage_wait(bars.summed(place), sum.parity);
                    if (p.glu) wk_stage_wait(bars.summed(place + 1), sum.parity);
                }
                float v[4], up[4] = {};
                wk_experts_add(v, cells + place * shape::place + n * WK_WIDE_CELL, NT * WK_WIDE_CELL);
                if (p.glu) wk_experts_add(up, cells + (place + 1) * shape::place + n * WK_WIDE_CELL, NT * WK_WIDE_CELL);
                if ((n + 1) * 8 >= columns) { /* all is read */
                    __syncwarp();
                    if (lane < in_item) wk_bar_arrive(bars.finished(place + lane));
                }
                wk_four_output(p, o, more, v, up);
            }
            for (uint32_t i = 0; i < in_item; i++) sum.next(shape::places);
        }
    }
}

template <int NT, class F> __global__ void __launch_bounds__(wk_experts_shape<NT>::threads, NT == 1 ? 2 : 1) wk_product_experts(const __grid_constant__ wk_experts_args a)
{
    typedef wk_experts_shape<NT> shape;
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), base = (uint32_t)__cvta_generic_to_shared(shared);
    wk_experts_walk *const start = reinterpret_cast<wk_experts_walk *>(shared + a.start_at);
    if (warp == shape::warps && lane < shape::groups) wk_experts_bars(a, base, lane).init(p.depth);
    if (!a.known) wk_depend();
    if (warp == 0) wk_experts_start(a, start, lane);
    __syncthreads();
    const wk_experts_walk walk = *start;
    if (warp > shape::warps + shape::finishers - 1) {
        wk_experts_stream<NT>(a, walk, base, lane);
        wk_depend();
        return;
    }
    wk_depend();
    wk_release(); /* not before: what the launch before last has made is then known to the next one */
    const uint32_t group = warp < shape::warps ? warp / WK_SLOTS : warp - shape::warps;
    if (warp < shape::warps) wk_experts_multiply<NT, F>(a, walk, shared, wk_experts_bars(a, base, group), group, warp % WK_SLOTS, lane);
    else wk_experts_finish<NT>(a, walk, shared, wk_experts_bars(a, base, group), group, lane);
}

#endif
