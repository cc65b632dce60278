/* names.c: the keyed hash set of names.h. Source of the hash: Aumasson and Bernstein, "SipHash: a fast short-input
 * PRF", 2012, with one compression and three finalization rounds. */
#include "gguf/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t rotl(uint64_t x, int n) { return x << n | x >> (64 - n); }

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static uint64_t sip_hash(const uint64_t key[2], struct gguf_str s)
{
    uint64_t v[4] = { key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                      key[1] ^ 0x7465646279746573u };
    for (uint64_t i = 0; i <= s.len / 8; i++) {
        uint64_t word = 0;
        if (i < s.len / 8)
            memcpy(&word, s.data + 8 * i, 8);
        else {
            memcpy(&word, s.data + 8 * i, s.len % 8);
            word |= s.len << 56;
        }
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static struct gguf_str name_at(const void *items, size_t stride, uint32_t i)
{
    struct gguf_str s;
    memcpy(&s, (const char *)items + stride * i, sizeof s);
    return s;
}

static bool same(struct gguf_str a, struct gguf_str b) { return a.len == b.len && memcmp(a.data, b.data, a.len) == 0; }

/* The slot that holds `name`, or the empty one where it belongs. The set has an empty slot. */
static uint64_t probe(const struct names *set, const void *items, size_t stride, struct gguf_str name)
{
    uint64_t at = sip_hash(set->key, name) & set->mask;
    while (set->slot[at] && !same(name_at(items, stride, set->slot[at] - 1), name)) at = (at + 1) & set->mask;
    return at;
}

static bool grow(struct names *set, const void *items, size_t stride)
{
    struct names bigger = { .mask = set->slot ? set->mask * 2 + 1 : 15, .used = set->used };
    if (getrandom(bigger.key, sizeof bigger.key, 0) != (ssize_t)sizeof bigger.key) return false;
    bigger.slot = calloc(bigger.mask + 1, sizeof *bigger.slot);
    if (!bigger.slot) return false;
    for (uint64_t i = 0; set->slot && i <= set->mask; i++) {
        if (set->slot[i])
            bigger.slot[probe(&bigger, items, stride, name_at(items, stride, set->slot[i] - 1))] = set->slot[i];
    }
    free(set->slot);
    *set = bigger;
    return true;
}

int64_t names_add(struct names *set, const void *items, size_t stride, uint32_t i)
{
    if ((!set->slot || set->used * 2 > set->mask) && !grow(set, items, stride)) return NAMES_NO_MEMORY;
    uint64_t at = probe(set, items, stride, name_at(items, stride, i));
    if (set->slot[at]) return (int64_t)set->slot[at] - 1;
    set->slot[at] = i + 1;
    set->used++;
    return NAMES_ABSENT;
}

int64_t names_find(const struct names *set, const void *items, size_t stride, struct gguf_str name)
{
    return set->slot ? (int64_t)set->slot[probe(set, items, stride, name)] - 1 : NAMES_ABSENT;
}

void names_free(struct names *set)
{
    free(set->slot);
    *set = (struct names){ 0 };
}
