/* test_gguf_tensors.c: the tensor table and the layout of the data section. */
#include "gguf/test_file.h"

/* A file with one tensor of this shape and 64 bytes of data. */
static struct build one_tensor(const char *name, size_t name_len, uint32_t n_dims, const uint64_t *ne, uint64_t offset)
{
    struct build b = { 0 };
    put_header(&b, 1, 0);
    put_bytes(&b, name, name_len);
    put_u32(&b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) put_u64(&b, ne[i]);
    put_u32(&b, 0);
    put_u64(&b, offset);
    put_pad(&b, 32);
    put_zeros(&b, 64);
    return b;
}

static void test_names(void **state)
{
    (void)state;
    const uint64_t ne[] = { 4 };
    char longest[65];
    memset(longest, 'n', sizeof longest);
    const struct {
        const char *name;
        size_t n;
        wk_status status;
        const char *text;
    } rows[] = {
        { "blk.0.attn_q.weight", 19, WK_OK, NULL },
        { "n", 1, WK_OK, NULL },
        { "\xc3\xa9", 2, WK_OK, NULL },
        { longest, 63, WK_OK, NULL },
        { longest, 64, WK_UNSUPPORTED, "has 64 bytes, at most 63" },
        { "", 0, WK_INVALID, "empty" },
        { "a\0", 2, WK_INVALID, "not printable" },
        { "\n", 1, WK_INVALID, "not printable" },
        { "\x1f", 1, WK_INVALID, "not printable" },
        { "\x1b[31m", 5, WK_INVALID, "not printable" },
        { "a\x7f", 2, WK_INVALID, "not printable" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = one_tensor(rows[i].name, rows[i].n, 1, ne, 0);
        if (rows[i].text)
            assert_refused(&b, rows[i].status, rows[i].text);
        else
            assert_opens(&b);
        free_build(&b);
    }
}

static void test_dimension_counts(void **state)
{
    (void)state;
    const uint64_t ne[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const uint32_t counts[] = { 0, 1, 2, 3, 4, 5, 6, 255, UINT32_C(1) << 31, UINT32_MAX };
    for (size_t i = 0; i < COUNT(counts); i++) {
        struct build b = one_tensor("t", 1, counts[i], ne, 0);
        if (counts[i] >= 1 && counts[i] <= 4)
            assert_opens(&b);
        else
            assert_refused(&b, WK_INVALID, "dimensions, expected 1 to 4");
        free_build(&b);
    }
}

static void test_dimension_values(void **state)
{
    (void)state;
    static const uint64_t values[] = { 0,
                                       1,
                                       2,
                                       UINT64_C(1) << 31,
                                       (UINT64_C(1) << 31) + 1,
                                       UINT64_C(1) << 32,
                                       (UINT64_C(1) << 63) - 1,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX - 1,
                                       UINT64_MAX };
    for (uint32_t position = 0; position < 4; position++) {
        for (size_t i = 0; i < COUNT(values); i++) {
            uint64_t ne[4] = { 1, 1, 1, 1 };
            ne[position] = values[i];
            struct build b = one_tensor("t", 1, 4, ne, 0);
            if (values[i] >= 1 && values[i] <= UINT64_C(1) << 31)
                assert_opens(&b);
            else
                assert_refused(&b, WK_INVALID, "expected 1 to 2147483648");
            free_build(&b);
        }
    }
}

/* Shapes whose product or size in bytes leaves 64 bits, or comes back small when it wraps. */
static void test_wraps(void **state)
{
    (void)state;
    const uint64_t G = UINT64_C(1) << 30;
    const struct {
        uint64_t ne[4];
        const char *text;
    } at_open[] = {
        { { G * 4, G * 4, 1, 1 }, "expected 1 to" }, /* 2^32 x 2^32 = 0 */
        { { INT64_MAX, 2, 1, 1 }, "expected 1 to" },       { { G * 2, G * 2, 2, 1 }, "overflows" }, /* 2^63: negative */
        { { G * 2, G * 2, 4, 1 }, "overflows" },                                                    /* 2^64 = 0 */
        { { G * 2, G * 2, G * 2, G * 2 }, "overflows" },                                            /* 2^124 */
        { { 1431655765, 1431655765, 9, 4 }, "overflows" }, { { 2, G * 2, G * 2, G * 2 }, "overflows" },
        { { 274177, 67280421, 1000001, 1 }, "overflows" }, /* about 2^64.0001: wraps to a small number */
    };
    for (size_t i = 0; i < COUNT(at_open); i++) {
        struct build b = one_tensor("t", 1, 4, at_open[i].ne, 0);
        assert_refused(&b, WK_INVALID, at_open[i].text);
        free_build(&b);
    }
    const struct {
        uint64_t ne[4];
        uint32_t block, block_bytes;
        const char *text;
    } at_size[] = {
        { { G * 2, G * 2, 1, 1 }, 1, 4, "overflows 64 bits" }, /* 2^62 floats = 2^64 bytes = 0 */
        { { G * 2, G * 2, 1, 1 }, 1, 8, "overflows 64 bits" },
        { { G * 2, G * 2, 1, 1 }, 1, 2, "truncated" }, /* 2^63 bytes: fits a u64, not the file */
        { { G * 2, G, 1, 1 }, 32, 34, "truncated" },
        { { 17, 1, 1, 1 }, 1, 4, "needs 68 bytes, 64 are left" },
        { { 16, 1, 1, 1 }, 1, 4, NULL },
        { { 4, 2, 2, 1 }, 1, 4, NULL },
        { { 33, 1, 1, 1 }, 32, 18, "multiple of its type's block of 32" },
        { { 31, 1, 1, 1 }, 32, 18, "multiple" },
        { { 32, 3, 1, 1 }, 32, 18, NULL },
        { { 32, 4, 1, 1 }, 32, 18, "needs 72 bytes" },
    };
    for (size_t i = 0; i < COUNT(at_size); i++) {
        struct build b = one_tensor("t", 1, 4, at_size[i].ne, 0);
        struct gguf *file;
        void *copy;
        assert_int_equal(open_copy(b.bytes, b.n, &file, &copy), WK_OK);
        uint64_t bytes = 0;
        const wk_status status = gguf_tensor_bytes(file, gguf_tensor_at(file, 0), at_size[i].block,
                                                   at_size[i].block_bytes, &bytes, &test_err);
        assert_int_equal(status, at_size[i].text ? WK_INVALID : WK_OK);
        if (at_size[i].text)
            assert_text(at_size[i].text);
        else
            assert_true(bytes > 0 && bytes <= 64);
        assert_int_equal(gguf_tensor_bytes(file, gguf_tensor_at(file, 0), 0, 4, &bytes, NULL), WK_INTERNAL);
        gguf_close(file);
        free(copy);
        free_build(&b);
    }
}

static void test_offsets(void **state)
{
    (void)state;
    const uint64_t ne[] = { 1 };
    static const struct {
        uint64_t offset;
        const char *text;
    } rows[] = {
        { 0, NULL },
        { 32, NULL },
        { 1, "multiple of the alignment 32" },
        { 31, "multiple" },
        { 33, "multiple" },
        { 48, "multiple" },
        { 64, "begins 64 bytes into a data section of 64 bytes" },
        { 96, "data section" },
        { UINT64_C(1) << 32, "data section" },
        { UINT64_C(1) << 63, "data section" },
        { UINT64_MAX - 31, "data section" },
        { UINT64_MAX, "multiple" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = one_tensor("t", 1, 1, ne, rows[i].offset);
        if (rows[i].text)
            assert_refused(&b, WK_INVALID, rows[i].text);
        else
            assert_opens(&b);
        free_build(&b);
    }
}

/* Three tensors of eight floats, 32 bytes each, at the offsets given, with 160 bytes of data. */
static struct build three(uint64_t a, uint64_t b_offset, uint64_t c)
{
    struct build b = { 0 };
    put_header(&b, 3, 0);
    put_vector(&b, "a", 8, a);
    put_vector(&b, "b", 8, b_offset);
    put_vector(&b, "c", 8, c);
    put_pad(&b, 32);
    put_zeros(&b, 160);
    return b;
}

static void test_overlaps(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset[3], room[3];
        const char *text;
    } rows[] = {
        { { 0, 32, 64 }, { 32, 32, 96 }, NULL },
        { { 64, 32, 0 }, { 96, 32, 32 }, NULL },   /* reversed */
        { { 32, 128, 64 }, { 32, 32, 64 }, NULL }, /* gaps */
        { { 0, 0, 64 }, { 0 }, "tensors 'a' and 'b' overlap" },
        { { 96, 0, 96 }, { 0 }, "tensors 'a' and 'c' overlap" },
        { { 32, 32, 32 }, { 0 }, "tensors 'a' and 'b' overlap" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = three(rows[i].offset[0], rows[i].offset[1], rows[i].offset[2]);
        if (rows[i].text) {
            assert_refused(&b, WK_INVALID, rows[i].text);
        } else {
            struct gguf *file;
            void *copy;
            assert_int_equal(open_copy(b.bytes, b.n, &file, &copy), WK_OK);
            for (uint64_t k = 0; k < 3; k++) {
                const struct gguf_tensor *t = gguf_tensor_at(file, k);
                assert_int_equal(t->room, rows[i].room[k]);
                assert_ptr_equal(gguf_tensor_data(file, t), (const uint8_t *)copy + b.n - 160 + t->offset);
            }
            gguf_close(file);
            free(copy);
        }
        free_build(&b);
    }
    /* A tensor that reaches into its successor is found when its format is known; both are named. */
    struct build b = three(0, 32, 64);
    struct gguf *file;
    void *copy;
    uint64_t bytes;
    assert_int_equal(open_copy(b.bytes, b.n, &file, &copy), WK_OK);
    assert_int_equal(gguf_tensor_bytes(file, gguf_tensor_at(file, 0), 1, 4, &bytes, &test_err), WK_OK);
    assert_int_equal(gguf_tensor_bytes(file, gguf_tensor_at(file, 0), 1, 8, &bytes, &test_err), WK_INVALID);
    assert_text("tensor 'a' needs 64 bytes and overlaps 'b'");
    gguf_close(file);
    free(copy);
    free_build(&b);
}

static void test_duplicate_names(void **state)
{
    (void)state;
    enum { N = 2000 };
    static const int twins[][2] = { { -1, -1 }, { 0, 1 }, { 0, N - 1 }, { N - 2, N - 1 }, { 700, 1400 } };
    for (size_t row = 0; row < COUNT(twins); row++) {
        struct build b = { 0 };
        put_header(&b, N, 0);
        for (int i = 0; i < N; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "blk.%d.weight", i == twins[row][1] ? twins[row][0] : i);
            put_vector(&b, name, 8, 32 * (uint64_t)i);
        }
        put_pad(&b, 32);
        put_zeros(&b, 32 * N);
        if (row)
            assert_refused(&b, WK_INVALID, "occurs twice, first at byte");
        else
            assert_opens(&b);
        free_build(&b);
    }
}

/* Entry k of twenty is damaged: never an early end of the list. */
static void test_damaged_entry(void **state)
{
    (void)state;
    for (int k = 0; k < 20; k++) {
        struct build b = { 0 };
        put_header(&b, 20, 0);
        for (int i = 0; i < 20; i++) {
            char name[16];
            const uint64_t n = i == k ? 0 : 8;
            (void)snprintf(name, sizeof name, "t%d", i);
            put_tensor(&b, name, 1, &n, 32 * (uint64_t)i);
        }
        put_pad(&b, 32);
        put_zeros(&b, 32 * 20);
        char text[32];
        (void)snprintf(text, sizeof text, "tensor 't%d': dimension 0 is 0", k);
        assert_refused(&b, WK_INVALID, text);
        free_build(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_dimension_counts),
        cmocka_unit_test(test_dimension_values),
        cmocka_unit_test(test_wraps),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_duplicate_names),
        cmocka_unit_test(test_damaged_entry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
