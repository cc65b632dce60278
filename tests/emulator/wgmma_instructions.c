/* wgmma_instructions.c: products of a warpgroup (sm_90a), bulk copies from shared memory, and setmaxnreg.
 *
 * A product is done late: at the wait that says it is over. A in registers is read when it is issued (the machine's
 * compiler keeps such registers), operands in shared memory only then, so that a stage which is given back or written
 * too early shows. Each warp makes its own 16 of the 64 rows. f16 with F32 sums, operands without swizzle (blocks of 8
 * x 8) or with the one of 128 bytes along k; anything else is refused when it runs. The arithmetic is in tensor.h.
 *
 * What a bulk copy stores is written at the wait for its group, of whatever kind: a kernel that ends without one loses
 * it. */
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

#include "tensor.h"

struct product {
    const struct insn *insn;
    uint32_t group, columns, a[4][LANES];
    bool a_in_memory, adds, a_transposed, b_transposed;
    float a_sign, b_sign;
    uint64_t a_at, b_at;
};
struct store {
    uint32_t group;
    uint8_t lane;
    uint64_t to, from;
    uint32_t bytes;
};
struct late_work { /* of a warp: products and stores that are under way */
    struct product *product;
    struct store *store;
    uint32_t n_products, cap_products, n_stores, cap_stores, committed, stores_committed[LANES];
};

void late_work_free(struct late_work *l)
{
    if (!l) return;
    free(l->product);
    free(l->store);
    free(l);
}
static struct late_work *work_of(struct warp *w)
{
    if (!w->late && !(w->late = calloc(1, sizeof *w->late))) abort();
    return w->late;
}

/* ---- products ------------------------------------------------------------------------------------------ */

enum { SWIZZLE_NONE = 0, SWIZZLE_128 = 1 };

/* Where the descriptor finds value k of 16 of row r (of A) or column r (of B). */
static inline uint32_t operand_at(struct warp *w, uint64_t descriptor, bool transposed, uint32_t r, uint32_t k)
{
    const uint32_t start = (uint32_t)(descriptor & 0x3fff) << 4, lead = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4, mode = (uint32_t)(descriptor >> 62);
    if (descriptor >> 49 & 7) fault(w, 0, "wgmma: a descriptor with a base offset, which the emulator does not know");
    if (mode == SWIZZLE_NONE)
        return start + k / 8 * lead + r / 8 * stride + (transposed ? k % 8 * 16 + r % 8 * 2 : r % 8 * 16 + k % 8 * 2);
    if (mode != SWIZZLE_128 || transposed)
        fault(w, 0, "wgmma: a descriptor with swizzle %u%s, which the emulator does not know", mode,
              transposed ? " of a transposed operand" : "");
    const uint32_t linear = start + r / 8 * stride + r % 8 * 128 + k * 2;
    return linear ^ (linear >> 7 & 7) << 4;
}
static inline float operand(struct warp *w, uint64_t descriptor, bool transposed, uint32_t r, uint32_t k)
{
    const uint32_t at = operand_at(w, descriptor, transposed, r, k), offset = at - SHARED_BASE;
    uint16_t h;
    memcpy(&h,
           offset < w->block->shared_end - SHARED_BASE - 1 ? w->block->shared + offset
                                                           : locate(w, SPACE_SHARED, at, 2, 2, 0, false),
           2);
    return _cvtsh_ss(h);
}

static void finish_product(struct warp *w, const struct product *p)
{
    static float a[16][16], b[16][256];
    static int32_t ea[16], eb[16][256];
    const struct insn *i = p->insn;
    const uint32_t first = w->index % 4 * 16;
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t c = 0; c < p->columns; c++) {
            b[k][c] = p->b_sign * operand(w, p->b_at, p->b_transposed, c, k);
            eb[k][c] = tensor_exponent(b[k][c], TENSOR_HALF);
        }
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t k = 0; k < 16; k++)
            a[r][k] =
                p->a_sign *
                (p->a_in_memory
                     ? operand(w, p->a_at, p->a_transposed, first + r, k)
                     : _cvtsh_ss((unsigned short)(p->a[k / 8 * 2 + r / 8][r % 8 * 4 + k % 8 / 2] >> (16 * (k % 2)))));
    for (uint32_t r = 0; r < 16; r++) {
        for (uint32_t k = 0; k < 16; k++) ea[k] = tensor_exponent(a[r][k], TENSOR_HALF);
        for (uint32_t at = 0; at < p->columns; at += TENSOR_COLUMNS) {
            float d[TENSOR_COLUMNS];
            for (uint32_t c = 0; c < TENSOR_COLUMNS; c++)
                d[c] = p->adds ? f32_of(r32(w, i, at / 2 + r / 8 * 2 + c % 2)[r % 8 * 4 + c / 2]) : 0.0f;
            tensor_row(d, a[r], ea, &b[0][at], &eb[0][at], 256, 16);
            for (uint32_t c = 0; c < TENSOR_COLUMNS; c++)
                r32(w, i, at / 2 + r / 8 * 2 + c % 2)[r % 8 * 4 + c / 2] = bits_of(d[c]);
        }
    }
}

/* Those of groups up to `last`, in order. */
static void finish_products(struct warp *w, uint32_t last)
{
    struct late_work *l = work_of(w);
    uint32_t n = 0;
    while (n < l->n_products && l->product[n].group <= last) finish_product(w, &l->product[n++]);
    memmove(l->product, l->product + n, (l->n_products - n) * sizeof *l->product);
    l->n_products -= n;
    if (n) emulator_events++;
}

static struct product *new_product(struct warp *w, const struct insn *i, uint32_t columns)
{
    struct late_work *l = work_of(w);
    if (w->exited || w->lanes != ALL_LANES) fault(w, -1, "wgmma in a warp without all of its 32 lanes");
    if (w->block->n_warps % 4) fault(w, -1, "wgmma in a block of %u warps: not of whole warpgroups", w->block->n_warps);
    if (l->n_products == l->cap_products) {
        l->cap_products = l->cap_products ? 2 * l->cap_products : 16;
        l->product = realloc(l->product, l->cap_products * sizeof *l->product);
        if (!l->product) abort();
    }
    struct product *p = &l->product[l->n_products++];
    memset(p, 0, sizeof *p);
    p->insn = i;
    p->columns = columns;
    p->group = l->committed;
    return p;
}
static float sign_of(struct warp *w, uint32_t bits)
{
    if (bits != 1 && bits != 0xffffffffu) fault(w, -1, "wgmma: a scale of an operand that is neither 1 nor -1");
    return bits == 1 ? 1.0f : -1.0f;
}

/* Sums, then { A's four registers | its descriptor }, B's descriptor, does it add, signs of A and B, { | A transposed
 * }, B transposed. */
static enum outcome a_in_registers(struct warp *w, const struct insn *i, uint32_t columns)
{
    const unsigned at = columns / 2;
    if (!gathered(w, ALL_LANES)) return block_for(w, "wgmma with the rest of its warp", ALL_LANES);
    struct product *p = new_product(w, i, columns);
    for (unsigned n = 0; n < 4; n++) memcpy(p->a[n], r32(w, i, at + n), sizeof p->a[n]);
    p->b_at = r64(w, i, at + 4)[0];
    p->adds = *pred(w, i, at + 5) & 1;
    p->a_sign = sign_of(w, r32(w, i, at + 6)[0]);
    p->b_sign = sign_of(w, r32(w, i, at + 7)[0]);
    p->b_transposed = r32(w, i, at + 8)[0] & 1;
    return NEXT;
}
static enum outcome a_in_memory(struct warp *w, const struct insn *i, uint32_t columns)
{
    const unsigned at = columns / 2;
    if (!gathered(w, ALL_LANES)) return block_for(w, "wgmma with the rest of its warp", ALL_LANES);
    struct product *p = new_product(w, i, columns);
    p->a_in_memory = true;
    p->a_at = r64(w, i, at)[0];
    p->b_at = r64(w, i, at + 1)[0];
    p->adds = *pred(w, i, at + 2) & 1;
    p->a_sign = sign_of(w, r32(w, i, at + 3)[0]);
    p->b_sign = sign_of(w, r32(w, i, at + 4)[0]);
    p->a_transposed = r32(w, i, at + 5)[0] & 1;
    p->b_transposed = r32(w, i, at + 6)[0] & 1;
    return NEXT;
}

static enum outcome commit(struct warp *w, const struct insn *i)
{
    (void)i;
    if (!gathered(w, ALL_LANES)) return block_for(w, "wgmma with the rest of its warp", ALL_LANES);
    work_of(w)->committed++;
    return NEXT;
}
static enum outcome wait(struct warp *w, const struct insn *i)
{
    if (!gathered(w, ALL_LANES)) return block_for(w, "wgmma with the rest of its warp", ALL_LANES);
    const struct late_work *l = work_of(w);
    const uint32_t left = r32(w, i, 0)[0];
    if (l->committed > left) finish_products(w, l->committed - left - 1);
    return NEXT;
}
static enum outcome fence(struct warp *w, const struct insn *i)
{
    (void)i;
    if (!gathered(w, ALL_LANES)) return block_for(w, "wgmma with the rest of its warp", ALL_LANES);
    if (emulator_seed && emulator_random() & 1 && work_of(w)->committed)
        finish_products(w, work_of(w)->committed - 1); /* they may be over already */
    return NEXT;
}
static enum outcome setmaxnreg(struct warp *w, const struct insn *i)
{
    const uint32_t n = r32(w, i, 0)[0];
    if (n < 24 || n > 256 || n % 8) fault(w, -1, "setmaxnreg %u: a multiple of 8 from 24 to 256", n);
    return NEXT;
}

/* ---- bulk copies to global memory ---------------------------------------------------------------------- */

static enum outcome bulk_store(struct warp *w, const struct insn *i)
{
    struct late_work *x = work_of(w);
    EACH_ACTIVE(w)
    {
        const uint64_t to = i->wide & 1 ? r64(w, i, 0)[l] + (uint64_t)(int64_t)i->imm[0] : r32(w, i, 0)[l],
                       from = r32(w, i, 1)[l] + (uint32_t)i->imm[1];
        const uint32_t bytes = r32(w, i, 2)[l];
        if (bytes % 16 || !bytes) fault(w, (int)l, "cp.async.bulk of %u bytes: not a multiple of 16", bytes);
        (void)locate(w, SPACE_GLOBAL, to, bytes, 16, (int)l, true);
        (void)locate(w, SPACE_SHARED, from, bytes, 16, (int)l, false);
        if (x->n_stores == x->cap_stores) {
            x->cap_stores = x->cap_stores ? 2 * x->cap_stores : 16;
            x->store = realloc(x->store, x->cap_stores * sizeof *x->store);
            if (!x->store) abort();
        }
        x->store[x->n_stores++] = (struct store){ x->stores_committed[l], (uint8_t)l, to, from, bytes };
    }
    return NEXT;
}
static enum outcome bulk_commit(struct warp *w, const struct insn *i)
{
    (void)i;
    EACH_ACTIVE(w) work_of(w)->stores_committed[l]++;
    return NEXT;
}
static enum outcome bulk_wait(struct warp *w, const struct insn *i)
{
    struct late_work *x = work_of(w);
    uint32_t kept = 0;
    for (uint32_t n = 0; n < x->n_stores; n++) {
        const struct store *s = &x->store[n];
        if (w->active >> s->lane & 1 && s->group + r32(w, i, 0)[s->lane] < x->stores_committed[s->lane]) {
            memcpy(locate(w, SPACE_GLOBAL, s->to, s->bytes, 16, s->lane, true),
                   locate(w, SPACE_SHARED, s->from, s->bytes, 16, s->lane, false), s->bytes);
            emulator_events++;
        } else
            x->store[kept++] = *s;
    }
    x->n_stores = kept;
    return NEXT;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

#define A4 "aaaa"
#define A8 A4 A4
#define A16 A8 A8
#define A32 A16 A16
/* clang-format off */
#define SIZES(X) \
    X(8, A4) X(16, A8) X(24, A8 A4) X(32, A16) X(40, A16 A4) X(48, A16 A8) X(56, A16 A8 A4) X(64, A32) \
    X(72, A32 A4) X(80, A32 A8) X(88, A32 A8 A4) X(96, A32 A16) X(104, A32 A16 A4) X(112, A32 A16 A8) \
    X(120, A32 A16 A8 A4) X(128, A32 A32)
/* clang-format on */
#define FUNCTIONS(n, sums)                                                                                      \
    static enum outcome registers_##n(struct warp *w, const struct insn *i) { return a_in_registers(w, i, n); } \
    static enum outcome memory_##n(struct warp *w, const struct insn *i) { return a_in_memory(w, i, n); }
#define ENTRIES(n, sums)                                                                                  \
    { "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16", sums ":iiiilpiii", registers_##n, true }, \
        { "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16", sums ":llpiiii", memory_##n, true },
SIZES(FUNCTIONS)
const struct instruction wgmma_instructions[] = { SIZES(ENTRIES){ "wgmma.fence.sync.aligned", "", fence, true },
                                                  { "wgmma.commit_group.sync.aligned", "", commit, true },
                                                  { "wgmma.wait_group.sync.aligned", ":i", wait, true },
                                                  { "setmaxnreg.inc.sync.aligned.u32", ":i", setmaxnreg, true },
                                                  { "setmaxnreg.dec.sync.aligned.u32", ":i", setmaxnreg, true },
                                                  { "cp.async.bulk.global.shared::cta.bulk_group", ":mmi", bulk_store,
                                                    false },
                                                  { "cp.async.bulk.commit_group", "", bulk_commit, false },
                                                  { "cp.async.bulk.wait_group", ":i", bulk_wait, false },
                                                  { "cp.async.bulk.wait_group.read", ":i", bulk_wait, false },
                                                  { NULL, NULL, NULL, false } };
