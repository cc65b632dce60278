/* worker/cuda/product_experts.cuh: products of experts whose items lie by expert: each used expert's weights are read once for up to eight of its items.
 *
 * A unit of work is a tile (glu: a pair) of one expert for one chunk of its items. Units in the order (expert, chunk, tile) are dealt in runs of equal length to a grid
 * that fills the GPU, from the counts that the device made: a block keeps a chunk's activations for all its tiles and seldom sees more than two chunks. Inside, a
 * block is the pipeline of product_few.cuh: a warp streams tiles through a ring across units, eight warps share k, a warp finishes. With weights of four bits the issue of
 * instructions is as scarce as bandwidth: a stage of the ring holds as many steps of each slot as leave room for three stages, one item alone has kernels of its own.
 * A block that finds its part of the work also lets the next launch begin only then: so products that follow each other on one choice of experts can stream weights
 * before the one before has ended (WK_CUDA_GROUPS_KNOWN).
 *
 * Order. Slot s of 8 has the steps s, s + 8, ... (product_args.cuh) and adds their groups in order; the sum is slot 0 + slot 1 + ... An item's bits depend on its expert's weights and
 * its own input alone. */
#ifndef WORKER_CUDA_PRODUCT_EXPERTS_CUH
#define WORKER_CUDA_PRODUCT_EXPERTS_CUH

#include <worker/cuda/product_few.cuh>

/* By columns, 1 or 8. A cell: a slot's sums of a tile, 16 rows of all columns; a place: those of all slots. */
template <int COLUMNS> struct wk_experts_shape {
    static constexpr uint32_t cell = 64 * COLUMNS, place = WK_SLOTS * cell, sums = WK_FEW_SUMS * place;
};
enum { WK_EXPERTS_STAGES = 3 /* fewest stages of the ring, if one holds more than a step of each slot */ };

struct wk_experts_args {
    wk_product_args p;         /* items: units of a chunk */
    const uint32_t *groups;    /* worker/quant_cuda.h */
    uint32_t experts, capacity, rounds, known, start_at; /* capacity: most columns of a chunk; rounds: steps of a slot in a stage; known: groups may be read before the wait; start_at: shared memory: bytes */
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

/* Where the block begins, by one warp, for all to read. All that is known of 32 experts is asked for at once. */
__device__ __forceinline__ void wk_experts_start(const wk_experts_args &a, wk_experts_walk *to, uint32_t lane)
{
    const uint32_t *const first = a.groups + a.experts;
    struct used { uint32_t expert, at, end; };
    auto read = [&](uint32_t i) { return i < a.experts ? used{ __ldcg(a.groups + i), __ldcg(first + i), __ldcg(first + i + 1) } : used{ 0, 0, 0 }; };
    auto chunks = [&](const used &u) { return (u.end - u.at + a.capacity - 1) / a.capacity; };
    used u = read(lane);
    uint32_t all = chunks(u);
    for (uint32_t i = lane + 32; i < a.experts; i += 32) all += chunks(read(i));
    all = __reduce_add_sync(0xffffffffu, all) * a.p.items;
    const uint32_t each = all / gridDim.x, rest = all % gridDim.x, from = blockIdx.x * each + min(blockIdx.x, rest), left = each + (blockIdx.x < rest ? 1 : 0);
    const uint32_t chunk = from / a.p.items;
    if (!left) {
        if (lane == 0) to->left = 0;
        return;
    }
    for (uint32_t i = lane, before = 0;;) {
        uint32_t n = chunks(u), sum = n; /* of this lane's and those below */
#pragma unroll
        for (uint32_t d = 1; d < 32; d <<= 1) {
            const uint32_t below = __shfl_up_sync(0xffffffffu, sum, d);
            if (lane >= d) sum += below;
        }
        const bool here = chunk < before + sum && chunk >= before + sum - n;
        if (here) *to = { left, i, u.expert, u.at + (chunk - (before + sum - n)) * a.capacity, u.end, from - chunk * a.p.items };
        if (__any_sync(0xffffffffu, here)) return;
        before += __shfl_sync(0xffffffffu, sum, 31);
        i += 32;
        u = read(i);
    }
}

/* A cell of sums, 16 rows x 8 columns: byte of a row's. Four rows are read at once, and no banks collide when they are. */
__device__ __forceinline__ uint32_t wk_experts_cell(uint32_t row, uint32_t column) { return (column * 16 + (row / 4 ^ column / 2) * 4 + row % 4) * 4; }

/* A warp's steps of a chunk's columns: the rows of the items' inputs. A lane keeps to one column. */
template <int COLUMNS, class F> __device__ __forceinline__ void wk_experts_inputs(const wk_experts_args &a, unsigned char *shared, const wk_experts_walk &walk, uint32_t slot, uint32_t lane)
{
    constexpr uint32_t apart = 32 / COLUMNS;
    const wk_product_args &p = a.p;
    asm volatile("" : "+r"(lane), "+r"(slot)); /* computed again for each chunk: what is kept between them would take registers from the loop over k */
    const uint32_t c = lane % COLUMNS, own = wk_own_steps(p, slot) << p.step_shift;
    if (c < walk.columns(a)) {
        /* All items of a single row have its input, whatever their order. */
        const uint32_t row = wk_input_row(p, p.rows > p.x_items ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + c) / p.x_items : 0);
        const __half *const from = static_cast<const __half *>(p.in.x) + (uint64_t)row * p.k32;
        const uint32_t x = (uint32_t)__cvta_generic_to_shared(shared + p.x_at) + c * p.x_stride * 2, first = lane / COLUMNS;
#pragma unroll 4
        for (uint32_t i = first; i < own / 8; i += apart) {
            const uint32_t k = wk_own_k(p, slot, i * 8);
            wk_copy16_part(x + k * 2, from + (k < p.k32 ? k : 0), k < p.k32 ? 16 : 0);
        }
    }
    wk_copy_commit();
    wk_copy_wait<0>();
}

/* The streaming warp. */
__device__ __forceinline__ void wk_experts_stream(const wk_experts_args &a, wk_experts_walk walk, uint32_t ring, const wk_few_bars &bars, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_turn turn = { 0, 1 }, old = { 0, 0 };
    uint32_t more = p.flight; /* stages that may still be asked for before one has arrived */
    for (; walk.left; walk.next(a))
        for (uint32_t unit = walk.tile, last = unit + walk.units(a); unit < last; unit++)
            for (uint32_t j = 0; j < in_item; j++) {
                uint32_t tile, s = wk_few_segment(p, unit, &tile);
                if (p.glu) s = j;
                const wk_segment_args &seg = p.seg[s];
                const unsigned char *const from = seg.tiles + ((uint64_t)walk.expert * seg.n_tiles + tile) * seg.tile_bytes;
                for (uint32_t stage = 0; stage < p.stages; stage++) {
                    const uint32_t at = p.run > 1 ? stage / p.run * WK_SLOTS * seg.step_bytes + stage % p.run * seg.stage_bytes : stage * WK_SLOTS * seg.stage_bytes;
                    __syncwarp(); /* one lane copies: another that fell a round of the ring behind would miss a barrier's parity, and wait for good */
                    if (more) {
                        more--;
                    } else {
                        wk_stage_wait(bars.full(old.i), old.parity);
                        old.next(p.depth);
                    }
                    wk_stage_wait(bars.empty(turn.i), turn.parity);
                    wk_stage_copy8(ring + turn.i * p.slot, from, at, seg.stage_bytes, p.run > 1 ? seg.step_bytes : seg.stage_bytes, (uint32_t)seg.tile_bytes, p.steps * seg.step_bytes, bars.full(turn.i), lane);
                    turn.next(p.depth);
                }
            }
}

/* A multiplying warp. Stages of the ring hold `rounds` steps of each slot, or a piece of one. */
template <int COLUMNS, class F>
__device__ __forceinline__ void wk_experts_multiply(const wk_experts_args &a, wk_experts_walk walk, unsigned char *shared, const wk_few_bars &bars, uint32_t slot, uint32_t lane)
{
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1, piece_units = F::super == 2 ? 2 : p.stage_units, chunk = (uint32_t)F::offset(piece_units), rounds = a.rounds, stages = p.stages, run = p.run, slot_bytes = p.slot;
    const uint32_t step_values = 1u << p.step_shift, depth = p.depth, advance = run > 1 ? piece_units * F::unit : WK_SLOTS * step_values, own = wk_own_steps(p, slot);
    const __half *const x = reinterpret_cast<const __half *>(shared + p.x_at) + (COLUMNS == 1 ? 0 : min(lane / 4, a.capacity - 1) * p.x_stride) + slot * step_values;
    const unsigned char *const ring = shared + chunk * slot;
    unsigned char *const sums = shared + p.red_at + slot * wk_experts_shape<COLUMNS>::cell;
    const uint32_t in_cell = COLUMNS == 1 ? lane : wk_experts_cell(lane / 4, lane % 4 * 2);
    wk_turn turn = { 0, 0 }, sum = { 0, 1 };
    const unsigned char *at = ring;
    for (; walk.left; walk.next(a)) {
        __syncwarp(); /* the chunk before is done with */
        wk_experts_inputs<COLUMNS, F>(a, shared, walk, slot, lane);
        __syncwarp();
#pragma unroll 1
        for (uint32_t i = walk.units(a) * in_item; i; i--) {
            float y[2][4] = {};
            const __half *xs = x;
            uint32_t left = own, piece = 0;
#pragma unroll 1
            for (uint32_t stage = stages; stage; stage--) {
                const uint32_t here = min(rounds, left);
                const unsigned char *from = at;
                wk_stage_wait(bars.full(turn.i), turn.parity);
#pragma unroll 1
                for (uint32_t r = here; r; r--) {
                    if constexpr (F::super == 2) {
                        wk_few_units<F, COLUMNS, 2>(y, from, xs, lane);
                    } else {
                        if (4 * F::slot <= WK_FEW_STAGE && piece_units == 4) wk_few_units<F, COLUMNS, 4>(y, from, xs, lane);
                        else if (piece_units == 2) wk_few_units<F, COLUMNS, 2>(y, from, xs, lane);
                        else wk_few_units<F, COLUMNS, 1>(y, from, xs, lane);
                    }
                    from += chunk * WK_SLOTS;
                    xs += advance;
                }
                __syncwarp();
                if (lane == 0) wk_bar_arrive(bars.empty(turn.i));
                turn.next(depth);
                at = turn.i ? at + slot_bytes : ring;
                left -= here;
                if (run > 1) { /* a step is cut: on to its next piece, or behind the other slots' steps */
                    if (++piece < run) {
                        left += here;
                    } else {
                        xs += (WK_SLOTS - 1) * step_values;
                        piece = 0;
                    }
                }
            }
            wk_stage_wait(bars.finished(sum.i), sum.parity);
            unsigned char *const cell = sums + sum.i * wk_experts_shape<COLUMNS>::place;
            if constexpr (COLUMNS == 1) {
                if (lane % 4 == 0) {
                    *reinterpret_cast<float *>(cell + lane) = __fadd_rn(y[0][0], y[1][0]);
                    *reinterpret_cast<float *>(cell + lane + 32) = __fadd_rn(y[0][2], y[1][2]);
                }
            } else {
#pragma unroll
                for (uint32_t j = 0; j < 4; j++) /* columns 2t, 2t + 1 of row g, and of row g + 8 */
                    *reinterpret_cast<float *>(cell + (j / 2 ? in_cell ^ 32u : in_cell) + j % 2 * 64) = __fadd_rn(y[0][j], y[1][j]);
            }
            __syncwarp();
            if (lane == 0) wk_bar_arrive(bars.summed(sum.i));
            sum.next(WK_FEW_SUMS);
        }
    }
}

/* Four rows of a column over all slots. */
__device__ __forceinline__ void wk_experts_add(float sum[4], const unsigned char *cell)
{
    float v[4][WK_SLOTS];
#pragma unroll
    for (uint32_t slot = 0; slot < WK_SLOTS; slot++) {
        const float4 s = *reinterpret_cast<const float4 *>(cell + slot * wk_experts_shape<8>::cell);
        v[0][slot] = s.x, v[1][slot] = s.y, v[2][slot] = s.z, v[3][slot] = s.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = wk_slots_sum(v[i]);
}

/* The finishing warp for 8 columns: four rows of a column a lane. */
__device__ __forceinline__ void wk_experts_finish_eight(const wk_experts_args &a, wk_experts_walk walk, const unsigned char *shared, const wk_few_bars &bars, uint32_t lane)
{
    typedef wk_experts_shape<8> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    const unsigned char *const cells = shared + p.red_at + wk_experts_cell(lane % 4 * 4, lane / 4);
    wk_turn sum = { 0, 0 };
    wk_four_at o = {};
    for (; walk.left; walk.next(a)) {
        o.on = lane / 4 < walk.columns(a);
        o.row = o.on ? __ldcg(a.groups + 2 * a.experts + 1 + walk.at + lane / 4) : 0;
#pragma unroll 1
        for (uint32_t unit = walk.tile, last = unit + walk.units(a); unit < last; unit++) {
            const uint32_t place = sum.i; /* pairs begin at even places */
            o.seg = wk_few_segment(p, unit, &o.tile);
            wk_four_more more = wk_four_ahead(p, o, walk.expert);
            wk_stage_wait(bars.summed(place), sum.parity);
            if (p.glu) wk_stage_wait(bars.summed(place + 1), sum.parity);
            float v[4], up[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            wk_experts_add(v, cells + place * shape::place);
            if (p.glu) wk_experts_add(up, cells + (place + 1) * shape::place);
            __syncwarp();
            if (lane < in_item) wk_bar_arrive(bars.finished(place + lane));
            wk_four_output(p, o, more, v, up);
            for (uint32_t i = 0; i < in_item; i++) sum.next(WK_FEW_SUMS);
        }
    }
}

/* The same for one column: 16 rows of a tile in 16 lanes, with glu the second segment's in the upper ones. */
__device__ __forceinline__ void wk_experts_finish_one(const wk_experts_args &a, wk_experts_walk walk, const unsigned char *shared, const wk_few_bars &bars, uint32_t lane)
{
    typedef wk_experts_shape<1> shape;
    const wk_product_args &p = a.p;
    const uint32_t in_item = p.glu ? 2 : 1;
    wk_turn sum = { 0, 0 };
    wk_output_at o = {};
    o.r = lane % 16;
    o.on = lane < 16;
    for (; walk.left; walk.next(a)) {
        o.row = __ldcg(a.groups + 2 * a.experts + 1 + walk.at);
#pragma unroll 1
        for (uint32_t unit = walk.tile, last = unit + walk.units(a); unit < last; unit++) {
            const uint32_t place = sum.i; /* pairs begin at even places */
            o.seg = wk_few_segment(p, unit, &o.tile);
            const wk_output_more more = wk_output_ahead(p, o, walk.expert);
            wk_stage_wait(bars.summed(place), sum.parity);
            if (p.glu) wk_stage_wait(bars.summed(place + 1), sum.parity);
            const float *const v = reinterpret_cast<const float *>(shared + p.red_at + (place + (p.glu ? lane / 16 : 0)) * shape::place) + o.r;
            float sums[WK_SLOTS];
#pragma unroll
            for (uint32_t slot = 0; slot < WK_SLOTS; slot++) sums[slot] = v[slot * 16];
            const float s = wk_slots_sum(sums);
            __syncwarp();
            if (lane < in_item) wk_bar_arrive(bars.finished(place + lane));
            wk_output(p, o, more, s, p.glu ? __shfl_down_sync(0xffffffffu, s, 16) : 0.0f);
            for (uint32_t i = 0; i < in_item; i++) sum.next(WK_FEW_SUMS);
        }
    }
}

template <int COLUMNS, class F> __global__ void __launch_bounds__(WK_FEW_THREADS, 2) wk_product_experts(const __grid_constant__ wk_experts_args a)
{
    extern __shared__ uint4 wk_shared[];
    unsigned char *const shared = reinterpret_cast<unsigned char *>(wk_shared);
    const wk_product_args &p = a.p;
    const uint32_t lane = threadIdx.x & 31u, warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), base = (uint32_t)__cvta_generic_to_shared(shared);
    const wk_few_bars bars = { base + p.bars_at };
    wk_experts_walk *const start = reinterpret_cast<wk_experts_walk *>(shared + a.start_at);
    if (warp == WK_SLOTS && lane == 0) bars.init(p.depth);
    if (!a.known) {
        if (warp == WK_SLOTS) wk_few_touch(p);
        wk_depend();
    }
    if (warp == 0) wk_experts_start(a, start, lane);
    __syncthreads();
    const wk_experts_walk walk = *start;
    if (warp > WK_SLOTS) {
        wk_experts_stream(a, walk, base, bars, lane);
        wk_depend();
        return;
    }
    wk_depend();
    wk_release(); /* not before: what the launch before last has made is then known to the next one */
    if (warp < WK_SLOTS) wk_experts_multiply<COLUMNS, F>(a, walk, shared, bars, warp, lane);
    else if constexpr (COLUMNS == 1) wk_experts_finish_one(a, walk, shared, bars, lane);
    else wk_experts_finish_eight(a, walk, shared, bars, lane);
}

#endif
