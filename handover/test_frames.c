/* test_frames.c: frames of pages as they are written and read, and what is none; the check sum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "crc32c.h"
#include "frames.h"

static void there_and_back(void **state)
{
    (void)state;
    static const struct frame frames[] = { { FRAME_HEAD, 0, 0, 1000, 1 },
                                           { FRAME_RUN, 0, 1, UINT64_C(1) << 40, UINT32_MAX },
                                           { FRAME_SEGMENT, 5, 9, 52, 7 },
                                           { FRAME_PEER, 0, 9, 63, 0 },
                                           { FRAME_END, 0, 0, 0, 0 } };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        uint8_t bytes[FRAME_BYTES];
        struct frame f;
        frame_write(&frames[i], bytes);
        assert_int_equal(frame_read(bytes, &f, NULL), WK_OK);
        assert_int_equal(f.kind, frames[i].kind);
        assert_int_equal(f.from, frames[i].from);
        assert_int_equal(f.to, frames[i].to);
        assert_true(f.bytes == frames[i].bytes);
        assert_int_equal(f.sum, frames[i].sum);
    }
}

/* What one byte of a good frame makes of it. */
static wk_status with(size_t at, uint8_t value)
{
    uint8_t bytes[FRAME_BYTES];
    struct frame f;
    frame_write(&(struct frame){ FRAME_RUN, 1, 2, 3, 4 }, bytes);
    bytes[at] = value;
    return frame_read(bytes, &f, NULL);
}

static void none(void **state)
{
    (void)state;
    assert_int_equal(with(8, 1), WK_OK);
    assert_int_equal(with(0, 'X'), WK_INVALID);
    assert_int_equal(with(4, 2), WK_UNSUPPORTED);
    assert_int_equal(with(6, 0), WK_INVALID);
    assert_int_equal(with(6, 6), WK_INVALID);
    assert_int_equal(with(6, FRAME_HEAD), WK_INVALID); /* with blocks */
    assert_int_equal(with(6, FRAME_END), WK_INVALID);  /* with a payload */
    assert_int_equal(with(8, 2), WK_INVALID);          /* no block */
    assert_int_equal(with(16, 0), WK_INVALID);         /* no byte */
    assert_int_equal(with(31, 1), WK_INVALID);         /* what has no meaning */
    uint8_t bytes[FRAME_BYTES];
    struct frame f;
    frame_write(&(struct frame){ FRAME_SEGMENT, 1, 2, 64, 4 }, bytes);
    assert_int_equal(frame_read(bytes, &f, NULL), WK_INVALID); /* a name that is too long */
    frame_write(&(struct frame){ FRAME_HEAD, 0, 0, FRAME_HEAD_MAX + 1, 4 }, bytes);
    assert_int_equal(frame_read(bytes, &f, NULL), WK_INVALID);
}

/* RFC 3720, B.4, and the usual check value. */
static void sums(void **state)
{
    (void)state;
    uint8_t bytes[32] = { 0 };
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x46dd794e);
    static const char nine[] = "123456789";
    assert_int_equal(crc32c(0, nine, 9), 0xe3069283);
    for (size_t i = 0; i <= 9; i++) assert_int_equal(crc32c(crc32c(0, nine, i), &nine[i], 9 - i), 0xe3069283);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(there_and_back), cmocka_unit_test(none),
                                        cmocka_unit_test(sums) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
