/* state.cu: what a sequence carries from row to row: convolutions, linear attention, the delta rule.
 *
 * Scan and delta rule: a warp has STATE_COLUMNS columns of one head's state in registers from the first of a sequence's
 * rows in the run to the last: lane 4 i + j has columns 4 j .. 4 j + 3 of the keys i, i + 8, i + 16, ... Sums over the
 * keys run within a lane, then over the lanes by a fixed tree. So no warp waits for another but for the rows' q and k,
 * which four of them share; those of the rows to come are in flight meanwhile. The state goes to memory where a page is
 * complete and at the end of the run, 512 bytes at a time. It is read before the launch waits for the one in front of
 * it: whoever wrote it was in an earlier run, which had ended before the first launch of this one let others begin.
 *
 * Convolution: a thread has a column; runs of CONV_ROWS rows are blocks of their own. What lies in pages is the first
 * block's business alone, so that nobody reads what another writes: the others begin with rows of the run.
 *
 * Tables name a page for every block: the host puts the next one's where a block has none. So the state of a block is
 * complete in its page where the next block's is another. */
#include "device/cuda/row.cuh"

#include "device/cuda/launch.cuh"

enum { WARPS = 4, THREADS = WARPS * 32, STATE_COLUMNS = 16, KEYS = 8, STAGE = 1024, AHEAD = STAGE / THREADS };
enum { CONV_ROWS = 64, CONV_THREADS = 128 };
static_assert(CONV_ROWS >= TAPE_MAX_KERNEL - 1, "only the first block of a convolution sees rows before the run");

struct state_pages {
    const uint32_t *table; /* [seqs][stride] */
    uint32_t stride, ring;
    uint8_t *cache;
    uint64_t bytes;
};
static __device__ __forceinline__ uint32_t page_id(const struct state_pages &p, uint32_t seq, uint32_t block)
{
    return __ldcg(p.table + (uint64_t)seq * p.stride + (p.ring ? block % p.ring : block));
}
static __device__ __forceinline__ float *page_at(const struct state_pages &p, uint32_t id)
{
    return (float *)(p.cache + id * p.bytes);
}
/* Is row i of the sequence the last of a page, before the end of the run? */
static __device__ __forceinline__ bool completes(const struct state_pages &p, uint32_t seq, const struct cuda_seq &s,
                                                 uint32_t i)
{
    const uint32_t position = s.position + i, block = position / KV_PAGE;
    return position % KV_PAGE == KV_PAGE - 1 && i + 1 < s.n_rows &&
           page_id(p, seq, block) != page_id(p, seq, block + 1);
}

/* ---- scan, delta rule ---------------------------------------------------------------------------------- */

struct scan_launch {
    struct state_pages pages;
    const struct cuda_seq *seq;
    const int32_t *row_seq;
    const float *q, *k, *v, *decay, *beta;
    uint64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;
    float *y;
    uint32_t rows, share, dk, dv, slices, blocks, stage; /* blocks: of WARPS slices, of a head; stage: rows at a time */
};

static __device__ __forceinline__ float4 scale4(float4 a, float f)
{
    return make_float4(__fmul_rn(a.x, f), __fmul_rn(a.y, f), __fmul_rn(a.z, f), __fmul_rn(a.w, f));
}
static __device__ __forceinline__ float4 fma4(float4 a, float f, float4 c)
{
    return make_float4(__fmaf_rn(a.x, f, c.x), __fmaf_rn(a.y, f, c.y), __fmaf_rn(a.z, f, c.z), __fmaf_rn(a.w, f, c.w));
}
/* Over the lanes of the same columns. */
static __device__ __forceinline__ float4 sum_keys(float4 a)
{
#pragma unroll
    for (uint32_t d = 4; d < 32; d *= 2) {
        a.x = __fadd_rn(a.x, __shfl_xor_sync(~0u, a.x, d));
        a.y = __fadd_rn(a.y, __shfl_xor_sync(~0u, a.y, d));
        a.z = __fadd_rn(a.z, __shfl_xor_sync(~0u, a.z, d));
        a.w = __fadd_rn(a.w, __shfl_xor_sync(~0u, a.w, d));
    }
    return a;
}

/* What of a row every lane of a warp needs besides q and k. */
struct own {
    float4 v;
    float decay, beta;
};
template <bool DELTA>
static __device__ __forceinline__ struct own own_of(const struct scan_launch &p, uint32_t row, uint32_t head,
                                                    uint32_t column, uint32_t left)
{
    struct own o;
    o.v = load4<false>(p.v + row * p.v_stride + (uint64_t)head * p.dv + column, left, false);
    o.decay = __ldcg(p.decay + row * p.decay_stride + head);
    o.beta = DELTA ? __ldcg(p.beta + row * p.beta_stride + head) : 0.0f;
    return o;
}

/* A thread's share of q and k of rows [first, first + stage) of the sequence; 0 behind its last. */
static __device__ __forceinline__ void ask_rows(const struct scan_launch &p, const struct cuda_seq &s, uint32_t first,
                                                uint32_t key, float *ahead)
{
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++) {
        const uint32_t e = threadIdx.x + i * THREADS, r = e / (2 * p.dk), at = e - r * 2 * p.dk, row = first + r;
        ahead[i] = 0.0f;
        if (r >= p.stage || row >= s.n_rows) continue;
        ahead[i] = at < p.dk ? __ldcg(p.q + (s.row + row) * p.q_stride + key + at)
                             : __ldcg(p.k + (s.row + row) * p.k_stride + key + at - p.dk);
    }
}

/* One row: the state goes on, and its result. */
template <uint32_t N, bool DELTA>
static __device__ __forceinline__ float4 scan_row(float4 *state, const struct own &o, const float *q, uint32_t dk,
                                                  uint32_t lane)
{
    const float decay = expf(o.decay);
    const float *k = q + dk;
    float4 u = o.v, y = all4(0.0f);
    if (DELTA) {
        float4 told = all4(0.0f);
#pragma unroll
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t key = i * KEYS + lane / 4;
            told = fma4(scale4(state[i], decay), key < dk ? k[key] : 0.0f, told);
        }
        told = sum_keys(told);
        u = make_float4(__fmul_rn(o.beta, __fsub_rn(u.x, told.x)), __fmul_rn(o.beta, __fsub_rn(u.y, told.y)),
                        __fmul_rn(o.beta, __fsub_rn(u.z, told.z)), __fmul_rn(o.beta, __fsub_rn(u.w, told.w)));
    }
#pragma unroll
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t key = i * KEYS + lane / 4;
        state[i] = fma4(u, key < dk ? k[key] : 0.0f, scale4(state[i], decay));
        y = fma4(state[i], key < dk ? q[key] : 0.0f, y);
    }
    return sum_keys(y);
}

template <uint32_t N>
static __device__ __forceinline__ void load_state(const float *from, uint32_t dk, uint32_t lane, float4 *state)
{
#pragma unroll
    for (uint32_t i = 0; i < N; i++)
        state[i] = from && i * KEYS + lane / 4 < dk ? __ldcg((const float4 *)from + i * 32 + lane) : all4(0.0f);
}
template <uint32_t N>
static __device__ __forceinline__ void store_state(float *to, uint32_t dk, uint32_t lane, const float4 *state)
{
#pragma unroll
    for (uint32_t i = 0; i < N; i++)
        if (i * KEYS + lane / 4 < dk) __stcg((float4 *)to + i * 32 + lane, state[i]);
}

static __device__ __forceinline__ void store4(float *to, float4 y, uint32_t left)
{
    if (left > 0) to[0] = y.x;
    if (left > 1) to[1] = y.y;
    if (left > 2) to[2] = y.z;
    if (left > 3) to[3] = y.w;
}

template <uint32_t N, bool DELTA>
static __global__ void __launch_bounds__(THREADS) scan_kernel(const __grid_constant__ struct scan_launch p)
{
    __shared__ float stage[2][STAGE];
    const uint32_t seq = blockIdx.y, head = blockIdx.x / p.blocks, lane = threadIdx.x % 32,
                   slice = blockIdx.x % p.blocks * WARPS + threadIdx.x / 32,
                   column = slice * STATE_COLUMNS + lane % 4 * 4, left = column < p.dv ? p.dv - column : 0,
                   key = head / p.share * p.dk;
    const bool works = slice < p.slices;
    const struct cuda_seq s = p.seq[seq];
    const uint64_t offset = ((uint64_t)head * p.slices + slice) * p.dk * STATE_COLUMNS;
    float4 state[N];
    wk_release();
    load_state<N>(works && s.n_rows && s.position
                      ? page_at(p.pages, page_id(p.pages, seq, (s.position - 1) / KV_PAGE)) + offset
                      : NULL,
                  p.dk, lane, state);
    wk_depend();
    float *y = p.y + (uint64_t)head * p.dv + column;
    if (works && lane < 4 && seq < p.rows && p.row_seq[seq] == CUDA_PADDING)
        store4(y + seq * p.y_stride, all4(0.0f), left);
    if (!s.n_rows) return;
    float ahead[AHEAD];
    struct own next;
    ask_rows(p, s, 0, key, ahead);
    if (works) next = own_of<DELTA>(p, s.row, head, column, left);
    for (uint32_t first = 0, turn = 0; first < s.n_rows; first += p.stage, turn ^= 1) {
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) stage[turn][threadIdx.x + i * THREADS] = ahead[i];
        __syncthreads();
        if (first + p.stage < s.n_rows) ask_rows(p, s, first + p.stage, key, ahead);
        for (uint32_t i = first; works && i < first + p.stage && i < s.n_rows; i++) {
            const struct own now = next;
            if (i + 1 < s.n_rows) next = own_of<DELTA>(p, s.row + i + 1, head, column, left);
            const float4 sum = scan_row<N, DELTA>(state, now, stage[turn] + (i - first) * 2 * p.dk, p.dk, lane);
            if (lane < 4) store4(y + (s.row + i) * p.y_stride, sum, left);
            if (completes(p.pages, seq, s, i))
                store_state<N>(page_at(p.pages, page_id(p.pages, seq, (s.position + i) / KV_PAGE)) + offset, p.dk, lane,
                               state);
        }
    }
    if (works)
        store_state<N>(page_at(p.pages, page_id(p.pages, seq, (s.position + s.n_rows - 1) / KV_PAGE)) + offset, p.dk,
                       lane, state);
}

/* ---- convolution --------------------------------------------------------------------------------------- */

struct conv_launch {
    struct state_pages pages;
    const struct cuda_seq *seq;
    const int32_t *row_seq;
    const float *x, *w, *b; /* w [width][kernel] */
    float *y;
    uint64_t x_stride, y_stride;
    uint32_t rows, width, kernel;
};

/* One column of a sequence's rows: x of row i, or of one before the run. */
struct conv_column {
    const float *x, *old; /* old: the state before the run; NULL: zero */
    uint64_t stride;
    uint32_t width, before;
};
static __device__ __forceinline__ float conv_value(const struct conv_column &c, int32_t i)
{
    if (i >= 0) return __ldcg(c.x + (uint64_t)i * c.stride);
    return c.old ? __ldcg(c.old + (uint64_t)(i + (int32_t)c.before) * c.width) : 0.0f;
}

/* The state behind every page that is complete and behind the last row, from the last to the first: that which the run
 * began with lies in the first one's page, if in any of them. */
static __device__ __forceinline__ void keep_column(const struct conv_launch &p, const struct conv_column &c,
                                                   uint32_t seq, const struct cuda_seq &s, uint32_t column)
{
    const uint32_t last = (s.position + s.n_rows - 1) / KV_PAGE;
    for (uint32_t block = last + 1; block-- > s.position / KV_PAGE;) {
        const uint32_t id = page_id(p.pages, seq, block);
        if (block != last && id == page_id(p.pages, seq, block + 1)) continue;
        const int32_t row = block == last ? (int32_t)s.n_rows - 1 : (int32_t)((block + 1) * KV_PAGE - 1 - s.position);
        float *to = page_at(p.pages, id) + column;
        for (uint32_t j = 0; j < c.before; j++)
            to[(uint64_t)j * p.width] = conv_value(c, row + 1 - (int32_t)c.before + (int32_t)j);
    }
}

static __global__ void __launch_bounds__(CONV_THREADS) conv_kernel(const __grid_constant__ struct conv_launch p)
{
    const uint32_t column = blockIdx.x * CONV_THREADS + threadIdx.x, seq = blockIdx.y, first = blockIdx.z * CONV_ROWS;
    wk_release();
    wk_depend();
    if (column >= p.width) return;
    const struct cuda_seq s = p.seq[seq];
    if (!first && seq < p.rows && p.row_seq[seq] == CUDA_PADDING) p.y[seq * p.y_stride + column] = 0.0f;
    if (first >= s.n_rows) return;
    const struct conv_column c = { p.x + s.row * p.x_stride + column,
                                   !first && s.position
                                       ? page_at(p.pages, page_id(p.pages, seq, (s.position - 1) / KV_PAGE)) + column
                                       : NULL,
                                   p.x_stride, p.width, p.kernel - 1 };
    const float *w = p.w + (uint64_t)column * p.kernel;
    const float bias = p.b ? __ldg(p.b + column) : 0.0f;
    const uint32_t end = first + CONV_ROWS < s.n_rows ? first + CONV_ROWS : s.n_rows;
    for (uint32_t i = first; i < end; i++) {
        float sum = 0.0f;
#pragma unroll 4
        for (uint32_t j = 0; j < p.kernel; j++)
            sum = __fmaf_rn(__ldg(w + j), conv_value(c, (int32_t)(i + j) - (int32_t)c.before), sum);
        p.y[(s.row + i) * p.y_stride + column] = __fadd_rn(sum, bias);
    }
    if (!first) keep_column(p, c, seq, s, column);
}

/* ---- launches ------------------------------------------------------------------------------------------ */

bool cuda_state_serves(uint32_t head_k, uint32_t head_v)
{
    return head_k <= CUDA_STATE_HEAD && head_v <= CUDA_STATE_HEAD;
}

uint64_t cuda_state_page_bytes(const struct cuda_state *a)
{
    const uint64_t floats =
                       a->kind == WK_STATE_CONV
                           ? (uint64_t)(a->kernel - 1) * a->width
                           : (uint64_t)a->heads * a->dk * ((a->dv + STATE_COLUMNS - 1) / STATE_COLUMNS * STATE_COLUMNS),
                   bytes = (floats * sizeof(float) + 255) & ~(uint64_t)255;
    return bytes ? bytes : 256; /* a convolution of one row has no state, and a page all the same */
}

static struct state_pages pages_of(const struct cuda_state *a)
{
    const struct state_pages p = { a->batch->pages[a->group], a->batch->page_stride[a->group], a->ring_pages,
                                   (uint8_t *)a->cache, cuda_state_page_bytes(a) };
    return p;
}

template <bool DELTA>
static wk_status launch_scan(const struct cuda_state *a, const struct scan_launch *p, void *stream,
                             const struct wk_err *err)
{
    const char *what = DELTA ? "delta" : "scan";
    const dim3 grid(a->heads * p->blocks, a->batch->seqs);
    if (a->dk <= 32) return cuda_launch(what, scan_kernel<4, DELTA>, grid, THREADS, 0, a->pdl, stream, err, *p);
    if (a->dk <= 64) return cuda_launch(what, scan_kernel<8, DELTA>, grid, THREADS, 0, a->pdl, stream, err, *p);
    if (a->dk <= 128) return cuda_launch(what, scan_kernel<16, DELTA>, grid, THREADS, 0, a->pdl, stream, err, *p);
    return cuda_launch(what, scan_kernel<32, DELTA>, grid, THREADS, 0, a->pdl, stream, err, *p);
}

static wk_status scan(const struct cuda_state *a, void *stream, const struct wk_err *err)
{
    if (!a->heads || !a->groups || a->heads % a->groups || !a->dk || !a->dv || !cuda_state_serves(a->dk, a->dv))
        return wk_fail(err, WK_INTERNAL, "state: %u heads for %u, of %u and %u", a->heads, a->groups, a->dk, a->dv);
    struct scan_launch p = {};
    p.pages = pages_of(a);
    p.seq = a->batch->seq;
    p.row_seq = a->batch->row_seq;
    p.q = a->x[0];
    p.k = a->x[1];
    p.v = a->x[2];
    p.decay = a->x[3];
    p.beta = a->x[4];
    p.q_stride = a->x_stride[0];
    p.k_stride = a->x_stride[1];
    p.v_stride = a->x_stride[2];
    p.decay_stride = a->x_stride[3];
    p.beta_stride = a->x_stride[4];
    p.y = a->y;
    p.y_stride = a->y_stride;
    p.rows = a->batch->rows;
    p.share = a->heads / a->groups;
    p.dk = a->dk;
    p.dv = a->dv;
    p.slices = (a->dv + STATE_COLUMNS - 1) / STATE_COLUMNS;
    p.blocks = (p.slices + WARPS - 1) / WARPS;
    p.stage = STAGE / 2 / a->dk < 16 ? STAGE / 2 / a->dk : 16;
    return a->kind == WK_STATE_DELTA ? launch_scan<true>(a, &p, stream, err) : launch_scan<false>(a, &p, stream, err);
}

static wk_status conv(const struct cuda_state *a, void *stream, const struct wk_err *err)
{
    if (!a->kernel || a->kernel > TAPE_MAX_KERNEL)
        return wk_fail(err, WK_INTERNAL, "state: a convolution of %u rows", a->kernel);
    struct conv_launch p = {};
    p.pages = pages_of(a);
    p.seq = a->batch->seq;
    p.row_seq = a->batch->row_seq;
    p.x = a->x[0];
    p.x_stride = a->x_stride[0];
    p.w = a->w;
    p.b = a->b;
    p.y = a->y;
    p.y_stride = a->y_stride;
    p.rows = a->batch->rows;
    p.width = a->width;
    p.kernel = a->kernel;
    const dim3 grid((a->width + CONV_THREADS - 1) / CONV_THREADS, a->batch->seqs,
                    (a->batch->rows + CONV_ROWS - 1) / CONV_ROWS);
    return cuda_launch("conv", conv_kernel, grid, CONV_THREADS, 0, a->pdl, stream, err, p);
}

wk_status cuda_state(const struct cuda_state *a, void *stream, const struct wk_err *err)
{
    wk_status status = check_rows("state", a->batch->rows, a->width, err);
    if (status != WK_OK) return status;
    if (!a->batch->seqs || a->batch->seqs > 65535)
        return wk_fail(err, WK_INTERNAL, "state: %u sequences", a->batch->seqs);
    return a->kind == WK_STATE_CONV ? conv(a, stream, err) : scan(a, stream, err);
}
