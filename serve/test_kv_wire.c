/* test_kv_wire.c: batches of events against bytes that msgpack's own packer gives for the same values. */
#include "kv_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "kv_frame.h"

static void expect(const struct page_event *v, uint32_t n, double at, const char *hex)
{
    struct http_text out = { 0 };
    static char text[8192];
    kv_wire_batch(&out, v, n, at);
    assert_false(out.failed);
    assert_true(2 * out.n < sizeof text);
    hex_write(out.data, out.n, text);
    assert_string_equal(text, hex);
    http_text_free(&out);
}

/* [1.5, [{"type": "AllBlocksCleared"}], 0] */
static void test_cleared(void **state)
{
    (void)state;
    const struct page_event v = { .kind = PAGES_CLEARED };
    expect(&v, 1, 1.5, "93cb3ff80000000000009181a474797065b0416c6c426c6f636b73436c656172656400");
}

/* Two that go share an event; hashes of each width of a number. */
static void test_removed(void **state)
{
    (void)state;
    const struct page_event v[] = { { .kind = PAGE_REMOVED, .hash = 127 },
                                    { .kind = PAGE_REMOVED, .hash = 200 },
                                    { .kind = PAGE_REMOVED, .hash = 65535 },
                                    { .kind = PAGE_REMOVED, .hash = 65536 },
                                    { .kind = PAGE_REMOVED, .hash = UINT64_MAX } };
    expect(v, 5, 0,
           "93cb00000000000000009183a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573957fccc8cdffffce0001"
           "0000cfffffffffffffffffa66d656469756da347505500");
}

/* A prompt's two pages in one event, another prompt's in one of its own, with its salt's digest. */
static void test_stored(void **state)
{
    (void)state;
    static char want[8192], numbers[3][KV_PAGE * 2 + 1];
    struct page_event v[3] = { { .kind = PAGE_STORED, .first = true, .hash = 1 },
                               { .kind = PAGE_STORED, .hash = 2, .parent = 1 },
                               { .kind = PAGE_STORED, .first = true, .hash = 3, .salt = { { 1, 2 } } } };
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < KV_PAGE; k++) {
            v[i].tokens[k] = i * KV_PAGE + k;
            (void)snprintf(numbers[i] + 2 * k, 3, "%02x", v[i].tokens[k]);
        }
    const char *before = "a474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573",
               *parent = "b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473",
               *size =
                   "aa626c6f636b5f73697a6520a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472"
                   "615f6b657973";
    (void)snprintf(want, sizeof want, "93cb000000000000000092%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s00", "89", before,
                   "920102", parent, "dc0040", numbers[0], numbers[1], size, "92c0c0", "89", before, "9103", parent,
                   "dc0020", numbers[2], size);
    /* SHA-256 of the two words, little-endian: its first 16 bytes, as text */
    want[strlen(want) - 2] = '\0';
    (void)strcat(want, "9191d920"
                       "3063373330623639393035633565663761346361353236396637323336353430"
                       "00");
    expect(v, 3, 0, want);
}

/* The largest batch fits into a frame. */
static void test_most(void **state)
{
    (void)state;
    static struct page_event v[KV_BATCH];
    struct http_text out = { 0 };
    for (uint32_t i = 0; i < KV_BATCH; i++) {
        v[i] = (struct page_event){ .kind = PAGE_STORED, .first = true, .hash = UINT64_MAX - i, .salt = { { i, 1 } } };
        for (uint32_t k = 0; k < KV_PAGE; k++) v[i].tokens[k] = UINT32_MAX;
    }
    kv_wire_batch(&out, v, KV_BATCH, 1e9);
    assert_false(out.failed);
    assert_true(out.n <= KV_PAYLOAD_MAX / 2);
    assert_memory_equal(out.data + out.n - 1, "\0", 1);
    http_text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cleared), cmocka_unit_test(test_removed),
                                        cmocka_unit_test(test_stored), cmocka_unit_test(test_most) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
