/* quant_tiles.c: how large a format's tiles are, and that they hold the file's bits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check/quant.h"

/* Row lengths in blocks: few, odd, and as many as the longest rows that there are have. */
static const uint32_t lengths[] = { 1, 2, 3, 5, 7, 8, 9, 31, 33, 63, 127, 255, 1023, 4095, 16383 };
enum { LENGTHS = sizeof lengths / sizeof *lengths };
#define SCRATCH_MOST ((uint64_t)64 << 20) /* a thread */

struct asked {
    const struct wk_type_cpu *t;
    uint32_t k;
    uint64_t tile, scratch;
};
static void ask_sizes(void *user)
{
    struct asked *a = user;
    a->tile = a->t->tile_bytes(a->k);
    a->scratch = a->t->scratch_bytes(a->k);
}

static bool ask(struct check *c, struct asked *a)
{
    char what[QUANT_TEXT];
    (void)snprintf(what, sizeof what, "type %s: tile_bytes or scratch_bytes of %u values", a->t->name, a->k);
    return quant_call(c, what, ask_sizes, a, (uintptr_t)a->t->tile_bytes, "tile_bytes");
}

static bool sizes_of(struct check *c, const struct wk_type_cpu *t, uint32_t k)
{
    struct asked first = { .t = t, .k = k }, other = { .t = t, .k = t->block }, again = first;
    const uint64_t least = WK_TILE_ROWS * quant_row_bytes(t, k), most = least + least / 8 + 64;
    if (!ask(c, &first) || !ask(c, &other) || !ask(c, &again)) return false;
    if (first.tile % 64 || first.tile < least || first.tile > most) {
        check_fail(c,
                   "type %s: tile_bytes(%u) is %" PRIu64 ", expected a multiple of 64 in %" PRIu64 "..%" PRIu64
                   ": 16 rows of the file are %" PRIu64 " bytes, and nothing is added to them",
                   t->name, k, first.tile, least, most, least);
        return false;
    }
    if (first.scratch > SCRATCH_MOST) {
        check_fail(c,
                   "type %s: scratch_bytes(%u) is %" PRIu64 ", expected at most %" PRIu64 ": every thread has as much",
                   t->name, k, first.scratch, SCRATCH_MOST);
        return false;
    }
    if (again.tile == first.tile && again.scratch == first.scratch) return true;
    check_fail(c,
               "type %s: tile_bytes(%u) and scratch_bytes(%u) were %" PRIu64 " and %" PRIu64 ", and then %" PRIu64
               " and %" PRIu64 "; expected the same answer to the same question",
               t->name, k, k, first.tile, first.scratch, again.tile, again.scratch);
    return false;
}

static void check_sizes(struct check *c, const struct wk_type_cpu *t)
{
    for (uint32_t i = 0; i < LENGTHS && (uint64_t)lengths[i] * t->block <= 1u << 24; i++)
        if (!sizes_of(c, t, lengths[i] * t->block)) return;
}

void quant_check_sizes(struct check *c) { quant_each_type(c, check_sizes); }

/* ---- there and back ------------------------------------------------------------------------------------ */

struct rows {
    uint8_t *bytes; /* 16 rows, `bytes_each` each */
    const void *in[WK_TILE_ROWS];
    void *out[WK_TILE_ROWS];
};

static struct rows rows_at(struct check *c, uint64_t bytes_each, uint32_t off)
{
    struct rows r = { .bytes = quant_memory(c, WK_TILE_ROWS * bytes_each + off) };
    r.bytes += off;
    for (uint32_t i = 0; i < WK_TILE_ROWS; i++) r.in[i] = r.out[i] = r.bytes + i * bytes_each;
    return r;
}

/* Any bits at any address; the last rows are the host's zero row, one address for all of them. */
static bool pack_one(struct check *c, const struct wk_type_cpu *t, uint32_t k, uint32_t present, struct check_draw *d)
{
    char what[2][QUANT_TEXT];
    const uint64_t bytes = quant_row_bytes(t, k), tile_bytes = t->tile_bytes(k);
    struct rows in = rows_at(c, bytes, 1), out = rows_at(c, bytes, 3);
    uint8_t *tile = quant_memory(c, tile_bytes), *again = quant_memory(c, tile_bytes), *zero = quant_memory(c, bytes);
    (void)snprintf(what[0], QUANT_TEXT, "type %s: pack of %u values", t->name, k);
    (void)snprintf(what[1], QUANT_TEXT, "type %s: unpack of %u values", t->name, k);
    quant_bytes(d, in.bytes, present * bytes);
    for (uint32_t r = present; r < WK_TILE_ROWS; r++) in.in[r] = zero;
    memset(tile, 0xa5, tile_bytes);
    memset(again, 0x5a, tile_bytes);
    memset(out.bytes, 0xc3, WK_TILE_ROWS * bytes);
    if (!quant_pack(c, what[0], t, tile, in.in, k) || !quant_pack(c, what[0], t, again, in.in, k) ||
        !quant_unpack(c, what[1], t, out.out, tile, k))
        return false;
    for (uint64_t i = 0; i < WK_TILE_ROWS * bytes; i++) {
        if (out.bytes[i] == in.bytes[i]) continue;
        check_fail(c,
                   "type %s: of %u values, byte %" PRIu64 " of row %" PRIu64
                   " is 0x%02x after pack and unpack, expected 0x%02x as it was: a tile holds every bit of its rows",
                   t->name, k, i % bytes, i / bytes, out.bytes[i], in.bytes[i]);
        return false;
    }
    for (uint64_t i = 0; i < tile_bytes; i++) {
        if (tile[i] == again[i]) continue;
        check_fail(c,
                   "%s: byte %" PRIu64 " of the tile depends on what lay there before; expected all of the tile to be "
                   "written, its padding as zeros",
                   what[0], i);
        return false;
    }
    return true;
}

static void check_pack(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x9e3779b97f4a7c15u };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++)
        for (uint32_t present = WK_TILE_ROWS; present > 0; present = present == WK_TILE_ROWS ? 5 : 0)
            if (!pack_one(c, t, quant_length(t, i), present, &d)) return;
}

void quant_check_pack(struct check *c) { quant_each_type(c, check_pack); }
