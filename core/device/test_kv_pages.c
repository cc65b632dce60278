/* test_kv_pages.c: where the KV layers of another executor lie in its memory. */
#include "device/kv_pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { UNCOUNTED = 1000 }; /* pages that no 64 bits count the bytes of */

/* Layer k has k + 1 bytes a page, each layer a multiple of 8. */
static uint64_t layer_bytes(const struct executor *x, uint32_t k, uint32_t pages)
{
    (void)x;
    return pages == UNCOUNTED ? UINT64_MAX : ((uint64_t)pages * (k + 1) + 7) / 8 * 8;
}

static void layers(void **state)
{
    (void)state;
    struct tape_kv_layer layer[4] = { { .group = 0 }, { .group = 1 }, { .group = 0 }, { .group = 1 } };
    const struct tape_program p = { .kv_layers = layer, .n_kv_layers = 4 };
    struct device_share share = { .bytes = 8 + 32 + 16 + 64, .kv_pages = { 5, 16 } };
    uint64_t at[4];
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    assert_int_equal(kv_place_layers(&p, &share, NULL, layer_bytes, at, &err), WK_OK);
    assert_int_equal(at[0], 0);
    assert_int_equal(at[1], 8);
    assert_int_equal(at[2], 8 + 32);
    assert_int_equal(at[3], 8 + 32 + 16);
    while (share.bytes--) /* whichever layer it is that is cut off */
        if (kv_place_layers(&p, &share, NULL, layer_bytes, at, &err) != WK_INVALID || !share.bytes) break;
    assert_int_equal(share.bytes, 0);
    assert_non_null(strstr(text, "has 0 bytes"));
    share = (struct device_share){ .bytes = UINT64_MAX - 1, .kv_pages = { 5, UNCOUNTED } };
    assert_int_equal(kv_place_layers(&p, &share, NULL, layer_bytes, at, &err), WK_INVALID);
    share = (struct device_share){ .bytes = 0, .kv_pages = { 5, 16 } };
    assert_int_equal(kv_place_layers(&(struct tape_program){ .n_kv_layers = 0 }, &share, NULL, layer_bytes, at, &err),
                     WK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
