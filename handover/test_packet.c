/* test_packet.c: what is written is read as the same; everything else is refused by what is wrong with it. */
#include "packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crc32c.h"

static char text[256];
static const struct wk_err err = { text, sizeof text };

enum { TOKENS = 7 * KV_PAGE, BYTES = 208 + 2 * 32 + TOKENS * 4 + 4 };
static uint8_t tokens[4 * TOKENS];

static struct packet sample(void)
{
    struct packet p = { .request_id = "request-1",
                        .sums = PACKET_SUMS_RUNS,
                        .n_tokens = TOKENS,
                        .last_id = 3 * (TOKENS - 1),
                        .seed = 0x1122334455667788u,
                        .counter = 9,
                        .layout = { .n_groups = 2,
                                    .group = { { .layers = 3, .page_bytes = 6144 },
                                               { .window = 40, .layers = 2, .page_bytes = 4096 } },
                                    .kv_type = KV_F16,
                                    .version = 1 },
                        .ranks = 1,
                        .heads = 4,
                        .tokens = tokens };
    uint32_t ids[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = 3 * i;
    packet_put_tokens(ids, TOKENS, tokens);
    memset(p.digest, 0xd1, sizeof p.digest);
    memset(p.fingerprint, 0xf1, sizeof p.fingerprint);
    return p;
}

static void test_round(void **state)
{
    (void)state;
    const struct packet p = sample();
    struct packet q;
    uint8_t bytes[BYTES];
    assert_int_equal(packet_bytes(&p), BYTES);
    packet_write(&p, bytes);
    assert_memory_equal(bytes, "WKVP\1\0\1\0", 8);
    assert_int_equal(packet_read(bytes, BYTES, &q, &err), WK_OK);
    assert_string_equal(q.request_id, "request-1");
    assert_memory_equal(q.digest, p.digest, sizeof p.digest);
    assert_memory_equal(q.fingerprint, p.fingerprint, sizeof p.fingerprint);
    assert_memory_equal(q.tokens, tokens, sizeof tokens);
    assert_memory_equal(&q.layout, &p.layout, sizeof p.layout);
    assert_true(q.n_tokens == TOKENS && q.last_id == p.last_id && q.seed == p.seed && q.counter == 9 && q.heads == 4);
    /* 7 pages of the first group; of the second what position 224 sees: from 185 on. */
    assert_int_equal(q.bytes, 7 * 6144 + 2 * 4096);
    assert_int_equal(packet_check(&p, &q, &err), WK_OK);
    assert_false(packet_is_control(&q));
}

/* No blob: who sent it, and that is all. */
static void test_control(void **state)
{
    (void)state;
    struct packet p = sample(), q;
    uint8_t bytes[BYTES];
    p.n_tokens = p.last_id = 0;
    p.tokens = NULL;
    assert_int_equal(packet_bytes(&p), BYTES - sizeof tokens);
    packet_write(&p, bytes);
    assert_int_equal(packet_read(bytes, packet_bytes(&p), &q, &err), WK_OK);
    assert_true(packet_is_control(&q) && !q.bytes);
    assert_int_equal(packet_check(&p, &q, &err), WK_OK);
}

/* Cut anywhere, and with any byte another. */
static void test_damaged(void **state)
{
    (void)state;
    const struct packet p = sample();
    struct packet q;
    uint8_t *bytes = malloc(BYTES);
    assert_non_null(bytes);
    packet_write(&p, bytes);
    for (size_t n = 0; n < BYTES; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        assert_int_equal(packet_read(cut, n, &q, &err), WK_INVALID);
        free(cut);
    }
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] ^= 0x40;
        assert_int_not_equal(packet_read(bytes, BYTES, &q, &err), WK_OK);
        bytes[i] ^= 0x40;
    }
    assert_int_equal(packet_read(bytes, BYTES, &q, &err), WK_OK);
    free(bytes);
}

/* The field's n bytes at `at` are `value`, and the sum is right. */
static void expect(uint32_t at, uint32_t n, uint64_t value, wk_status status, const char *why)
{
    const struct packet p = sample();
    struct packet q;
    uint8_t bytes[BYTES];
    packet_write(&p, bytes);
    for (uint32_t i = 0; i < n; i++) bytes[at + i] = (uint8_t)(value >> 8 * i);
    const uint32_t sum = crc32c(0, bytes, BYTES - 4);
    for (uint32_t i = 0; i < 4; i++) bytes[BYTES - 4 + i] = (uint8_t)(sum >> 8 * i);
    assert_int_equal(packet_read(bytes, BYTES, &q, &err), status);
    if (!strstr(text, why)) fail_msg("byte %u: \"%s\", expected \"%s\"", at, text, why);
}

static void test_contradictions(void **state)
{
    (void)state;
    expect(0, 1, 'X', WK_INVALID, "no packet");
    expect(4, 2, 2, WK_UNSUPPORTED, "a packet of version 2: this program reads version 1");
    expect(6, 2, 2, WK_INVALID, "the kind of sums is 2");
    expect(8, 4, BYTES + 1, WK_INVALID, "a packet of 1173 bytes, of which 1172 came");
    expect(12, 4, TOKENS + 1, WK_INVALID, "the number of tokens is 225");
    expect(12, 4, TOKENS - KV_PAGE, WK_INVALID, "the number of tokens is 192");
    expect(12, 4, 0xffffffe0, WK_INVALID, "the number of tokens is 4294967264");
    expect(16, 1, 7, WK_INVALID, "a byte of the request's id is 7");
    expect(40, 1, 'x', WK_INVALID, "a byte of the request's id is 120");
    expect(144, 4, 1, WK_INVALID, "the last id is 1");
    expect(168, 4, 9, WK_INVALID, "the cache type is 9");
    expect(176, 4, 1, WK_INVALID, "the rank is 1");
    expect(180, 4, 0, WK_INVALID, "the rank is 0");
    expect(184, 8, UINT64_MAX, WK_INVALID, "the number of KV heads is 4294967295");
    expect(192, 8, 1, WK_INVALID, "the number of bytes is 1");
    expect(200, 4, 3, WK_INVALID, "the number of tokens is 224");
    expect(200, 4, TAPE_MAX_GROUPS + 1, WK_INVALID, "the number of groups is 9");
    expect(204, 4, 5, WK_INVALID, "what is reserved is 5");
    expect(208, 4, 64, WK_INVALID, "a group's first block is 0");
    expect(212, 4, 33, WK_INVALID, "a group's chunk is 33");
    expect(216, 4, 1, WK_INVALID, "a group's first block is 1");
    expect(220, 4, 6, WK_INVALID, "a group's number of pages is 6");
    expect(224, 4, 0, WK_INVALID, "a group's number of layers is 0");
    expect(228, 4, 1, WK_INVALID, "what is reserved of a group is 1");
    expect(232, 8, UINT64_MAX / 2, WK_INVALID, "bytes of a page is 9223372036854775807");
}

static void test_foreign(void **state)
{
    (void)state;
    const struct packet mine = sample();
    struct packet p;
    uint8_t other[sizeof tokens];
#define FOREIGN(change, why)                                         \
    p = mine;                                                        \
    change;                                                          \
    assert_int_equal(packet_check(&mine, &p, &err), WK_UNSUPPORTED); \
    assert_non_null(strstr(text, why))
    FOREIGN(p.digest[31] = 0, "of another model");
    FOREIGN(p.fingerprint[0] = 0, "computed by another program, device or setting");
    FOREIGN(p.layout.version = 2, "another version of the layout: 2, here it is 1");
    FOREIGN(p.layout.kv_type = KV_F32, "another cache type: 1, here it is 0");
    FOREIGN(p.layout.n_groups = 1, "another number of groups: 1");
    FOREIGN(p.layout.group[1].window = 41, "another window: 41, here it is 40");
    FOREIGN(p.layout.group[1].chunk = 32, "another chunk: 32");
    FOREIGN(p.layout.group[0].layers = 4, "another number of layers: 4");
    FOREIGN(p.layout.group[0].page_bytes = 1, "another size of a page: 1");
    FOREIGN(p.ranks = 2, "another number of ranks: 2");
    FOREIGN(p.rank = 1, "another rank: 1");
    FOREIGN(p.first_head = 1, "another first head: 1");
    FOREIGN(p.heads = 2, "another number of heads: 2");
    FOREIGN(p.generated = 1, "another number of generated ids: 1");
    FOREIGN(p.n_tokens = KV_PAGE, "another number of tokens: 32");
    memcpy(other, tokens, sizeof other);
    other[100] ^= 1;
    FOREIGN(p.tokens = other, "of another prompt");
#undef FOREIGN
    p = mine;
    (void)strcpy(p.request_id, "another");
    p.sums = PACKET_SUMS_NONE;
    assert_int_equal(packet_check(&mine, &p, &err), WK_OK);
}

/* RFC 3720's values; and the same however the bytes are cut, one by one without the instruction for eight. */
static void test_sums(void **state)
{
    (void)state;
    enum { MOST = 40000 };
    static uint8_t bytes[MOST];
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
    uint32_t r = 7, one = 0;
    for (uint32_t i = 0; i < MOST; i++) r = r * 1664525u + 1013904223u, bytes[i] = (uint8_t)(r >> 24);
    for (uint32_t n = 0; n < MOST; one = crc32c(one, bytes + n++, 1)) {
        if (n % 1021 == 0) assert_int_equal(crc32c(0, bytes, n), one);
        if (n % 1021 == 5) assert_int_equal(crc32c(crc32c(0, bytes, n / 3), bytes + n / 3, n - n / 3), one);
    }
    assert_int_equal(crc32c(0, bytes, MOST), one);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_round),   cmocka_unit_test(test_control),
                                        cmocka_unit_test(test_damaged), cmocka_unit_test(test_contradictions),
                                        cmocka_unit_test(test_foreign), cmocka_unit_test(test_sums) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
