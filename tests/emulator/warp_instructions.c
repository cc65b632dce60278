/* warp_instructions.c: what lanes do together: shuffles, votes, barriers of blocks and clusters, and matrices.
 *
 * Such an instruction runs when all lanes that it names are in one group; until then its group blocks. The arithmetic
 * of matrices is in tensor.h. */
#include <string.h>

#include <immintrin.h>

#include "tensor.h"

/* ---- shuffles, votes ----------------------------------------------------------------------------------- */

enum shuffle { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY };

static enum outcome shuffle(struct warp *w, const struct insn *i, enum shuffle mode)
{
    const uint32_t members = r32(w, i, 5)[__builtin_ctz(w->active)];
    uint32_t v[LANES], valid = 0;
    if (!gathered(w, members)) return block_for(w, "shfl.sync of lanes", members);
    memcpy(v, r32(w, i, 2), sizeof v);
    EACH_ACTIVE(w)
    {
        const uint32_t b = r32(w, i, 3)[l] & 31, c = r32(w, i, 4)[l], clamp = c & 31, segment = c >> 8 & 31;
        if (r32(w, i, 5)[l] != members) fault(w, (int)l, "shfl.sync with different members in its lanes");
        if (!(members >> l & 1))
            fault(w, (int)l, "shfl.sync by lane %u, which is not among its members 0x%08x", l, members);
        const uint32_t most = (l & segment) | (clamp & ~segment), least = l & segment;
        uint32_t from = 0;
        bool in = false;
        switch (mode) {
        case SHFL_UP: from = l - b, in = (int32_t)from >= (int32_t)(most); break; /* clamp is 0 there */
        case SHFL_DOWN: from = l + b, in = from <= most; break;
        case SHFL_BFLY: from = l ^ b, in = from <= most; break;
        case SHFL_IDX: from = least | (b & ~segment), in = from <= most; break;
        }
        if (!in) from = l;
        if (in && !(w->active >> from & 1)) fault(w, (int)l, "shfl.sync reads lane %u, which takes no part", from);
        r32(w, i, 0)[l] = v[from];
        valid |= (uint32_t)in << l;
    }
    *pred(w, i, 1) = (*pred(w, i, 1) & ~w->active) | valid;
    return NEXT;
}
static enum outcome shfl_idx(struct warp *w, const struct insn *i) { return shuffle(w, i, SHFL_IDX); }
static enum outcome shfl_up(struct warp *w, const struct insn *i) { return shuffle(w, i, SHFL_UP); }
static enum outcome shfl_down(struct warp *w, const struct insn *i) { return shuffle(w, i, SHFL_DOWN); }
static enum outcome shfl_bfly(struct warp *w, const struct insn *i) { return shuffle(w, i, SHFL_BFLY); }

#define VOTE(name, store)                                                              \
    static enum outcome name(struct warp *w, const struct insn *i)                     \
    {                                                                                  \
        const uint32_t members = r32(w, i, 2)[__builtin_ctz(w->active)];               \
        if (!gathered(w, members)) return block_for(w, "vote.sync of lanes", members); \
        const uint32_t on = w->active, yes = *pred(w, i, 1) & on;                      \
        store;                                                                         \
        return NEXT;                                                                   \
    }
VOTE(vote_ballot, EACH_ACTIVE(w) r32(w, i, 0)[l] = yes)
VOTE(vote_any, *pred(w, i, 0) = (*pred(w, i, 0) & ~on) | (yes ? on : 0))
VOTE(vote_all, *pred(w, i, 0) = (*pred(w, i, 0) & ~on) | (yes == on ? on : 0))
VOTE(vote_uni, *pred(w, i, 0) = (*pred(w, i, 0) & ~on) | (yes == on || !yes ? on : 0))

static enum outcome match_any32(struct warp *w, const struct insn *i)
{
    const uint32_t members = r32(w, i, 2)[__builtin_ctz(w->active)];
    uint32_t v[LANES];
    if (!gathered(w, members)) return block_for(w, "match.sync of lanes", members);
    memcpy(v, r32(w, i, 1), sizeof v);
    EACH_ACTIVE(w)
    {
        uint32_t same = 0;
        for (uint32_t k = 0; k < LANES; k++) same |= (uint32_t)(w->active >> k & 1 && v[k] == v[l]) << k;
        r32(w, i, 0)[l] = same;
    }
    return NEXT;
}

#define REDUX(name, T, start, expression)                                               \
    static enum outcome name(struct warp *w, const struct insn *i)                      \
    {                                                                                   \
        const uint32_t members = r32(w, i, 2)[__builtin_ctz(w->active)];                \
        T v = start;                                                                    \
        if (!gathered(w, members)) return block_for(w, "redux.sync of lanes", members); \
        EACH_ACTIVE(w)                                                                  \
        {                                                                               \
            const T x = (T)r32(w, i, 1)[l];                                             \
            v = expression;                                                             \
        }                                                                               \
        EACH_ACTIVE(w) r32(w, i, 0)[l] = (uint32_t)v;                                   \
        return NEXT;                                                                    \
    }
REDUX(redux_add, uint32_t, 0, v + x)
REDUX(redux_and, uint32_t, ~0u, v &x)
REDUX(redux_or, uint32_t, 0, v | x)
REDUX(redux_xor, uint32_t, 0, v ^ x)
REDUX(redux_max_u, uint32_t, 0, x > v ? x : v)
REDUX(redux_min_u, uint32_t, ~0u, x < v ? x : v)
REDUX(redux_max_s, int32_t, INT32_MIN, x > v ? x : v)
REDUX(redux_min_s, int32_t, INT32_MAX, x < v ? x : v)

static enum outcome activemask(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w) r32(w, i, 0)[l] = w->active;
    return NEXT;
}
static enum outcome elect(struct warp *w, const struct insn *i) /* d|p, members: the lowest */
{
    const uint32_t members = r32(w, i, 2)[__builtin_ctz(w->active)];
    if (!gathered(w, members)) return block_for(w, "elect.sync of lanes", members);
    const uint32_t first = (uint32_t)__builtin_ctz(w->active);
    EACH_ACTIVE(w) r32(w, i, 0)[l] = first;
    *pred(w, i, 1) = (*pred(w, i, 1) & ~w->active) | 1u << first;
    return NEXT;
}
static enum outcome bar_warp(struct warp *w, const struct insn *i)
{
    const uint32_t members = r32(w, i, 0)[__builtin_ctz(w->active)];
    return gathered(w, members) ? NEXT : block_for(w, "bar.warp.sync of lanes", members);
}
static enum outcome nanosleep(struct warp *w, const struct insn *i)
{
    (void)i;
    w->now->what = "nanosleep";
    w->now->which = 0;
    return PAUSE;
}

/* ---- barriers of a block ------------------------------------------------------------------------------- */

static enum outcome arrive_barrier(struct warp *w, uint32_t id, uint32_t expected, bool waits)
{
    struct block *b = w->block;
    if (id >= MAX_BARRIERS) fault(w, -1, "barrier %u of 16", id);
    if (expected % LANES) fault(w, -1, "barrier %u for %u threads: not a multiple of 32", id, expected);
    b->barrier[id].arrived += (uint32_t)__builtin_popcount(w->active);
    const uint32_t need = expected ? expected : b->live; /* threads that have ended are not waited for */
    if (b->barrier[id].arrived && b->barrier[id].expected != expected &&
        b->barrier[id].arrived != (uint32_t)__builtin_popcount(w->active))
        fault(w, -1, "barrier %u is asked for with %u and %u threads (0: all) at once", id, b->barrier[id].expected,
              expected);
    b->barrier[id].expected = expected;
    if (b->barrier[id].arrived > need)
        fault(w, -1, "%u threads at barrier %u, which is for %u", b->barrier[id].arrived, id, need);
    w->now->what = "barrier";
    w->now->which = id;
    if (b->barrier[id].arrived < need) return waits ? WAIT : NEXT;
    b->barrier[id].arrived = 0;
    wake_block(b, "barrier", id);
    return NEXT;
}
static enum outcome bar_all(struct warp *w, const struct insn *i)
{
    return arrive_barrier(w, r32(w, i, 0)[0], 0, true);
}
static enum outcome bar_some(struct warp *w, const struct insn *i)
{
    return arrive_barrier(w, r32(w, i, 0)[__builtin_ctz(w->active)], r32(w, i, 1)[__builtin_ctz(w->active)], true);
}
static enum outcome bar_all_warp(struct warp *w, const struct insn *i)
{
    return gathered(w, w->lanes) ? bar_all(w, i)
                                 : block_for(w, "an aligned barrier with the rest of its warp", w->lanes);
}
static enum outcome bar_some_warp(struct warp *w, const struct insn *i)
{
    return gathered(w, w->lanes) ? bar_some(w, i)
                                 : block_for(w, "an aligned barrier with the rest of its warp", w->lanes);
}
static enum outcome bar_arrive_warp(struct warp *w, const struct insn *i)
{
    if (!gathered(w, w->lanes)) return block_for(w, "an aligned barrier with the rest of its warp", w->lanes);
    return arrive_barrier(w, r32(w, i, 0)[__builtin_ctz(w->active)], r32(w, i, 1)[__builtin_ctz(w->active)], false);
}

/* ---- barriers of a cluster ----------------------------------------------------------------------------- */

static void end_cluster_phase(struct cluster *c)
{
    if (c->arrived < c->live || !c->live) return;
    c->arrived = 0;
    c->phase++;
    emulator_events++;
    for (uint32_t r = 0; r < c->n_blocks; r++) wake_block(&c->block[r], "barrier.cluster", 0);
}
static enum outcome cluster_arrive(struct warp *w, const struct insn *i)
{
    struct cluster *c = w->block->cluster;
    (void)i;
    EACH_ACTIVE(w)
    {
        if (w->cluster_phase[l] != ~0u) fault(w, (int)l, "barrier.cluster.arrive twice without a wait");
        w->cluster_phase[l] = c->phase;
    }
    c->arrived += (uint32_t)__builtin_popcount(w->active);
    end_cluster_phase(c);
    return NEXT;
}
static enum outcome cluster_wait(struct warp *w, const struct insn *i)
{
    (void)i;
    const uint32_t first = (uint32_t)__builtin_ctz(w->active), phase = w->cluster_phase[first];
    if (phase == ~0u) fault(w, (int)first, "barrier.cluster.wait without an arrival");
    EACH_ACTIVE(w) w->cluster_phase[l] = ~0u;
    if (phase != w->block->cluster->phase) return NEXT;
    w->now->what = "barrier.cluster";
    w->now->which = 0;
    return WAIT;
}

/* ---- matrices ------------------------------------------------------------------------------------------ */

static void need_warp(struct warp *w)
{
    if (w->exited || w->lanes != ALL_LANES) fault(w, -1, "a matrix instruction in a warp without all of its 32 lanes");
}

/* d += a b; a [16][k], b [k][8], of a format with that least exponent. */
static void multiply(float d[16][8], const float a[16][16], const float b[16][8], unsigned k, int32_t least)
{
    int32_t ea[16], eb[16][8];
    for (unsigned n = 0; n < k; n++)
        for (unsigned c = 0; c < 8; c++) eb[n][c] = tensor_exponent(b[n][c], least);
    for (unsigned r = 0; r < 16; r++) {
        for (unsigned n = 0; n < k; n++) ea[n] = tensor_exponent(a[r][n], least);
        tensor_row(d[r], a[r], ea, b[0], eb[0], 8, k);
    }
}

static inline float half_at(uint32_t pair, unsigned high) { return _cvtsh_ss((unsigned short)(pair >> (16 * high))); }
static inline float bf16_at(uint32_t pair, unsigned high) { return f32_of((pair >> (16 * high) & 0xffff) << 16); }
static inline float tf32(uint32_t bits) { return f32_of(bits & ~0x1fffu); }

static void get_c(const struct warp *w, const struct insn *i, unsigned at, float d[16][8])
{
    EACH_LANE
    for (unsigned n = 0; n < 4; n++) d[l / 4 + 8 * (n / 2)][2 * (l % 4) + n % 2] = f32_of(r32(w, i, at + n)[l]);
}
static void put_d(const struct warp *w, const struct insn *i, float d[16][8])
{
    EACH_LANE
    for (unsigned n = 0; n < 4; n++) r32(w, i, n)[l] = bits_of(d[l / 4 + 8 * (n / 2)][2 * (l % 4) + n % 2]);
}

#define MMA_16(name, value, least)                                                                              \
    static enum outcome name(struct warp *w, const struct insn *i)                                              \
    {                                                                                                           \
        float a[16][16], b[16][8], d[16][8];                                                                    \
        if (!gathered(w, ALL_LANES)) return block_for(w, "mma.sync with the rest of its warp", ALL_LANES);      \
        need_warp(w);                                                                                           \
        EACH_LANE                                                                                               \
        for (unsigned h = 0; h < 2; h++) {                                                                      \
            for (unsigned n = 0; n < 4; n++)                                                                    \
                a[l / 4 + 8 * (n % 2)][2 * (l % 4) + 8 * (n / 2) + h] = value(r32(w, i, 4 + n)[l], h);          \
            for (unsigned n = 0; n < 2; n++) b[2 * (l % 4) + 8 * n + h][l / 4] = value(r32(w, i, 8 + n)[l], h); \
        }                                                                                                       \
        get_c(w, i, 10, d);                                                                                     \
        multiply(d, a, b, 16, least);                                                                           \
        put_d(w, i, d);                                                                                         \
        return NEXT;                                                                                            \
    }
MMA_16(mma_f16, half_at, TENSOR_HALF)
MMA_16(mma_bf16, bf16_at, TENSOR_WIDE)

static enum outcome mma_f16_k8(struct warp *w, const struct insn *i)
{
    float a[16][16], b[16][8], d[16][8];
    if (!gathered(w, ALL_LANES)) return block_for(w, "mma.sync with the rest of its warp", ALL_LANES);
    need_warp(w);
    EACH_LANE
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned n = 0; n < 2; n++) a[l / 4 + 8 * n][2 * (l % 4) + h] = half_at(r32(w, i, 4 + n)[l], h);
        b[2 * (l % 4) + h][l / 4] = half_at(r32(w, i, 6)[l], h);
    }
    get_c(w, i, 7, d);
    multiply(d, a, b, 8, TENSOR_HALF);
    put_d(w, i, d);
    return NEXT;
}
static enum outcome mma_tf32(struct warp *w, const struct insn *i) /* the low 13 bits are not looked at */
{
    float a[16][16], b[16][8], d[16][8];
    if (!gathered(w, ALL_LANES)) return block_for(w, "mma.sync with the rest of its warp", ALL_LANES);
    need_warp(w);
    EACH_LANE
    {
        for (unsigned n = 0; n < 4; n++) a[l / 4 + 8 * (n % 2)][l % 4 + 4 * (n / 2)] = tf32(r32(w, i, 4 + n)[l]);
        for (unsigned n = 0; n < 2; n++) b[l % 4 + 4 * n][l / 4] = tf32(r32(w, i, 8 + n)[l]);
    }
    get_c(w, i, 10, d);
    multiply(d, a, b, 8, TENSOR_WIDE);
    put_d(w, i, d);
    return NEXT;
}
static enum outcome mma_bytes(struct warp *w, const struct insn *i,
                              bool a_signed) /* m16n8k32, saturation off; B signed */
{
    int16_t a[16][32];
    int8_t b[32][8];
    if (!gathered(w, ALL_LANES)) return block_for(w, "mma.sync with the rest of its warp", ALL_LANES);
    need_warp(w);
    EACH_LANE
    for (unsigned h = 0; h < 4; h++) {
        for (unsigned n = 0; n < 4; n++) {
            const uint8_t byte = (uint8_t)(r32(w, i, 4 + n)[l] >> (8 * h));
            a[l / 4 + 8 * (n % 2)][4 * (l % 4) + 16 * (n / 2) + h] = a_signed ? (int16_t)(int8_t)byte : (int16_t)byte;
        }
        for (unsigned n = 0; n < 2; n++) b[4 * (l % 4) + 16 * n + h][l / 4] = (int8_t)(r32(w, i, 8 + n)[l] >> (8 * h));
    }
    EACH_LANE
    for (unsigned n = 0; n < 4; n++) {
        const unsigned r = l / 4 + 8 * (n / 2), c = 2 * (l % 4) + n % 2;
        uint32_t sum = r32(w, i, 10 + n)[l];
        for (unsigned k = 0; k < 32; k++) sum += (uint32_t)(a[r][k] * b[k][c]);
        r32(w, i, n)[l] = sum;
    }
    return NEXT;
}

static enum outcome mma_s8(struct warp *w, const struct insn *i) { return mma_bytes(w, i, true); }
static enum outcome mma_u8(struct warp *w, const struct insn *i) { return mma_bytes(w, i, false); }

/* n matrices of 8 x 8 halves: lane 8 m + r has the address of row r of matrix m; lane l gets two neighbours of row l /
 * 4, or of column l / 4. */
static enum outcome load_matrices(struct warp *w, const struct insn *i, unsigned n, bool transposed)
{
    uint16_t m[4][8][8];
    if (!gathered(w, ALL_LANES)) return block_for(w, "ldmatrix with the rest of its warp", ALL_LANES);
    need_warp(w);
    for (unsigned l = 0; l < 8 * n; l++) {
        const uint64_t at =
            i->wide & 1 ? r64(w, i, n)[l] + (uint64_t)(int64_t)i->imm[0] : r32(w, i, n)[l] + (uint32_t)i->imm[0];
        memcpy(m[l / 8][l % 8], locate(w, SPACE_SHARED, at, 16, 16, (int)l, false), 16);
    }
    EACH_LANE
    for (unsigned k = 0; k < n; k++) {
        const unsigned r = l / 4, c = 2 * (l % 4);
        r32(w, i, k)[l] =
            transposed ? (uint32_t)m[k][c + 1][r] << 16 | m[k][c][r] : (uint32_t)m[k][r][c + 1] << 16 | m[k][r][c];
    }
    return NEXT;
}
static enum outcome ldmatrix_x1(struct warp *w, const struct insn *i) { return load_matrices(w, i, 1, false); }
static enum outcome ldmatrix_x2(struct warp *w, const struct insn *i) { return load_matrices(w, i, 2, false); }
static enum outcome ldmatrix_x4(struct warp *w, const struct insn *i) { return load_matrices(w, i, 4, false); }
static enum outcome ldmatrix_x1_trans(struct warp *w, const struct insn *i) { return load_matrices(w, i, 1, true); }
static enum outcome ldmatrix_x2_trans(struct warp *w, const struct insn *i) { return load_matrices(w, i, 2, true); }
static enum outcome ldmatrix_x4_trans(struct warp *w, const struct insn *i) { return load_matrices(w, i, 4, true); }

/* The other way: lane l has two neighbours of row l / 4 of each matrix. */
static enum outcome stmatrix_x4(struct warp *w, const struct insn *i)
{
    if (!gathered(w, ALL_LANES)) return block_for(w, "stmatrix with the rest of its warp", ALL_LANES);
    need_warp(w);
    for (unsigned l = 0; l < 32; l++) {
        const uint64_t at =
            i->wide & 1 ? r64(w, i, 0)[l] + (uint64_t)(int64_t)i->imm[0] : r32(w, i, 0)[l] + (uint32_t)i->imm[0];
        uint32_t row[4];
        for (unsigned t = 0; t < 4; t++) row[t] = r32(w, i, 1 + l / 8)[l % 8 * 4 + t];
        memcpy(locate(w, SPACE_SHARED, at, 16, 16, (int)l, true), row, 16);
    }
    return NEXT;
}

static enum outcome movmatrix(struct warp *w, const struct insn *i)
{
    uint16_t m[8][8];
    if (!gathered(w, ALL_LANES)) return block_for(w, "movmatrix with the rest of its warp", ALL_LANES);
    need_warp(w);
    EACH_LANE
    for (unsigned h = 0; h < 2; h++) m[l / 4][2 * (l % 4) + h] = (uint16_t)(r32(w, i, 1)[l] >> (16 * h));
    EACH_LANE r32(w, i, 0)[l] = (uint32_t)m[2 * (l % 4) + 1][l / 4] << 16 | m[2 * (l % 4)][l / 4];
    return NEXT;
}

#define C(name, signature, fn) { name, signature, fn, true }
#define LDMATRIX(x, regs, fn)                                                                     \
    C("ldmatrix.sync.aligned.m8n8." x ".shared.b16", regs ":m", ldmatrix_##fn),                   \
        C("ldmatrix.sync.aligned.m8n8." x ".trans.shared.b16", regs ":m", ldmatrix_##fn##_trans), \
        C("ldmatrix.sync.aligned.m8n8." x ".shared::cta.b16", regs ":m", ldmatrix_##fn),          \
        C("ldmatrix.sync.aligned.m8n8." x ".trans.shared::cta.b16", regs ":m", ldmatrix_##fn##_trans)
const struct instruction warp_instructions[] = {
    C("shfl.sync.idx.b32", "ip_:iiii", shfl_idx),
    C("shfl.sync.up.b32", "ip_:iiii", shfl_up),
    C("shfl.sync.down.b32", "ip_:iiii", shfl_down),
    C("shfl.sync.bfly.b32", "ip_:iiii", shfl_bfly),
    C("vote.sync.ballot.b32", "i:pi", vote_ballot),
    C("vote.sync.any.pred", "p:pi", vote_any),
    C("vote.sync.all.pred", "p:pi", vote_all),
    C("vote.sync.uni.pred", "p:pi", vote_uni),
    C("match.any.sync.b32", "i:ii", match_any32),
    C("redux.sync.add.u32", "i:ii", redux_add),
    C("redux.sync.add.s32", "i:ii", redux_add),
    C("redux.sync.and.b32", "i:ii", redux_and),
    C("redux.sync.or.b32", "i:ii", redux_or),
    C("redux.sync.xor.b32", "i:ii", redux_xor),
    C("redux.sync.max.u32", "i:ii", redux_max_u),
    C("redux.sync.min.u32", "i:ii", redux_min_u),
    C("redux.sync.max.s32", "i:ii", redux_max_s),
    C("redux.sync.min.s32", "i:ii", redux_min_s),
    C("activemask.b32", "i:", activemask),
    C("elect.sync", "ip:i", elect),
    C("bar.warp.sync", ":i", bar_warp),
    { "nanosleep.u32", ":i", nanosleep, false },
    C("bar.sync", ":i", bar_all_warp),
    C("bar.sync", ":ii", bar_some_warp),
    C("barrier.sync.aligned", ":i", bar_all_warp),
    C("barrier.sync.aligned", ":ii", bar_some_warp),
    C("bar.arrive", ":ii", bar_arrive_warp),
    C("barrier.sync", ":i", bar_all),
    C("barrier.sync", ":ii", bar_some),
    C("bar.cta.sync", ":i", bar_all_warp),
    C("barrier.cta.sync", ":i", bar_all),
    C("barrier.cluster.arrive.relaxed", "", cluster_arrive),
    C("barrier.cluster.arrive.release", "", cluster_arrive),
    C("barrier.cluster.arrive", "", cluster_arrive),
    C("barrier.cluster.arrive.relaxed.aligned", "", cluster_arrive),
    C("barrier.cluster.arrive.release.aligned", "", cluster_arrive),
    C("barrier.cluster.arrive.aligned", "", cluster_arrive),
    C("barrier.cluster.wait", "", cluster_wait),
    C("barrier.cluster.wait.acquire", "", cluster_wait),
    C("barrier.cluster.wait.aligned", "", cluster_wait),
    C("barrier.cluster.wait.acquire.aligned", "", cluster_wait),
    C("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "iiii:iiiiiiiiii", mma_f16),
    C("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "iiii:iiiiiiiiii", mma_bf16),
    C("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "iiii:iiiiiii", mma_f16_k8),
    C("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "iiii:iiiiiiiiii", mma_tf32),
    C("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "iiii:iiiiiiiiii", mma_s8),
    C("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "iiii:iiiiiiiiii", mma_u8),
    LDMATRIX("x1", "i", x1),
    LDMATRIX("x2", "ii", x2),
    LDMATRIX("x4", "iiii", x4),
    C("movmatrix.sync.aligned.m8n8.trans.b16", "i:i", movmatrix),
    C("stmatrix.sync.aligned.m8n8.x4.shared.b16", ":miiii", stmatrix_x4),
    C("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16", ":miiii", stmatrix_x4),
    { NULL, NULL, NULL, false }
};
