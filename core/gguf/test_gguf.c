/* test_gguf.c: header and metadata: what is refused, with which words. */
#include "gguf/test_file.h"

/* A valid file with every metadata type, two tensors, and `head` bytes before its data. */
static struct build small_file(size_t *head)
{
    struct build b = { 0 };
    put_header(&b, 2, 16);
    put_kv_str(&b, "general.architecture", "llama");
    for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
        if (type == GGUF_STRING || type == GGUF_ARRAY) continue;
        char key[16];
        (void)snprintf(key, sizeof key, "scalar.%u", (unsigned)type);
        put_key(&b, key, type);
        put_zeros(&b, gguf_type_size((enum gguf_type)type));
    }
    put_array(&b, "a.strings", GGUF_STRING, 3);
    put_str(&b, "");
    put_str(&b, "x");
    put_bytes(&b, "\0\xff", 2);
    put_array(&b, "a.u16", GGUF_U16, 3);
    put_zeros(&b, 6);
    put_array(&b, "a.bool", GGUF_BOOL, 2);
    put_u8(&b, 1);
    put_u8(&b, 0);
    put_array(&b, "a.empty", GGUF_F64, 0);
    put_vector(&b, "first", 8, 0);
    put_vector(&b, "second", 8, 32);
    *head = b.n;
    put_pad(&b, 32);
    put_zeros(&b, 64);
    return b;
}

static void test_truncation_sweep(void **state)
{
    (void)state;
    size_t head;
    struct build b = small_file(&head);
    assert_opens(&b);
    const size_t whole = b.n;
    for (b.n = 0; b.n <= head; b.n++) assert_refused(&b, WK_INVALID, "byte ");
    /* In the data: until the second tensor begins it has no room; then gguf_tensor_bytes sees what is missing. */
    for (b.n = head + 1; b.n < whole; b.n++) {
        struct gguf *file;
        void *copy;
        const wk_status status = open_copy(b.bytes, b.n, &file, &copy);
        if (b.n <= whole - 32) {
            assert_int_equal(status, WK_INVALID);
            assert_text("truncated");
        } else {
            uint64_t bytes;
            assert_int_equal(status, WK_OK);
            assert_int_equal(gguf_tensor_bytes(file, gguf_tensor_at(file, 1), 1, 4, &bytes, &test_err), WK_INVALID);
            assert_text("truncated");
        }
        gguf_close(file);
        free(copy);
    }
    free_build(&b);
}

static void test_header(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        wk_status status;
        const char *text;
    } rows[] = {
        { "", 0, WK_INVALID, "byte 0: the magic number of a GGUF file needs 4 bytes, 0 are left" },
        { "GGU", 3, WK_INVALID, "byte 0: the magic number" },
        { "FUGG\3\0\0\0", 8, WK_INVALID, "not a GGUF file: it begins with 46 55 47 47" },
        { "<!DOCTYPE html><html>....", 25, WK_INVALID, "web page" },
        { "version https://git-lfs.github.com/spec/v1", 42, WK_INVALID, "Git LFS" },
        { "PK\3\4.........", 13, WK_INVALID, "zip archive" },
        { "\2\0\0\0\0\0\0\0{}", 10, WK_INVALID, "safetensors" },
        { "\377\0\0\0\0\0\0\0{}", 10, WK_INVALID, "expected 47 47 55 46 (\"GGUF\")" },
        { "GGUF", 4, WK_INVALID, "byte 4: the version" },
        { "GGUF\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, WK_UNSUPPORTED, "version 0 is unknown" },
        { "GGUF\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, WK_UNSUPPORTED, "version 1 (32-bit counts) is obsolete" },
        { "GGUF\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, WK_UNSUPPORTED, "version 4 is unknown" },
        { "GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, WK_UNSUPPORTED, "big-endian" },
        { "GGUF\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, WK_UNSUPPORTED, "big-endian" },
        { "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23, WK_INVALID,
          "byte 16: the metadata count needs 8 bytes, 7 are left" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = { 0 };
        put(&b, rows[i].bytes, rows[i].n);
        assert_refused(&b, rows[i].status, rows[i].text);
        free_build(&b);
    }
    for (uint32_t version = 2; version <= 3; version++) { /* the smallest legal file */
        struct build b = { 0 };
        put(&b, "GGUF", 4);
        put_u32(&b, version);
        put_zeros(&b, 16);
        assert_opens(&b);
        free_build(&b);
    }
}

static void test_counts(void **state)
{
    (void)state;
    static const uint64_t grid[] = { 1,
                                     2,
                                     GGUF_MAX_TENSORS,
                                     GGUF_MAX_TENSORS + 1,
                                     GGUF_MAX_KEYS,
                                     GGUF_MAX_KEYS + 1,
                                     UINT64_C(1) << 31,
                                     UINT64_C(1) << 32,
                                     (UINT64_C(1) << 63) - 1,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX / 33 + 1,
                                     UINT64_MAX / 14 + 1 };
    for (size_t i = 0; i < COUNT(grid); i++) {
        for (int which = 0; which < 2; which++) {
            struct build b = { 0 };
            put_header(&b, which ? 0 : grid[i], which ? grid[i] : 0);
            assert_refused(&b, WK_INVALID, which ? "byte 16: metadata count" : "byte 8: tensor count");
            free_build(&b);
        }
    }
    /* One byte less than the smallest entry. */
    for (int which = 0; which < 2; which++) {
        struct build b = { 0 };
        put_header(&b, !which, (uint64_t)which);
        put_zeros(&b, which ? 13 : 32);
        assert_refused(&b, WK_INVALID, which ? "byte 16: metadata count 1" : "byte 8: tensor count 1");
        free_build(&b);
    }
    /* As many as fit by bytes, but above the limit. */
    for (int which = 0; which < 2; which++) {
        struct build b = { 0 };
        put_header(&b, which ? 0 : GGUF_MAX_TENSORS + 1, which ? GGUF_MAX_KEYS + 1 : 0);
        put_zeros(&b, 1 << 20);
        assert_refused(&b, WK_UNSUPPORTED, "above the limit");
        free_build(&b);
    }
}

/* One key of the bytes given. */
static struct build one_key(const char *key, size_t n)
{
    struct build b = { 0 };
    put_header(&b, 0, 1);
    put_bytes(&b, key, n);
    put_u32(&b, GGUF_U8);
    put_u8(&b, 7);
    put_pad(&b, 32); /* so that no key is too short for the count's test */
    return b;
}

static void test_keys(void **state)
{
    (void)state;
    char longest[258];
    memset(longest, 'k', sizeof longest);
    const struct {
        const char *key;
        size_t n;
        const char *text;
    } rows[] = {
        { "general.name", 12, NULL },
        { "k", 1, NULL },
        { " ~", 2, NULL },
        { longest, 255, NULL },
        { longest, 256, NULL },
        { longest, 257, "has 257 bytes, at most 256" },
        { "", 0, "empty" },
        { "a\0b", 3, "printable" },
        { "a\n", 2, "printable" },
        { "\x7f", 1, "printable" },
        { "\xc3\xa9", 2, "printable" },
        { "\x1b[2J", 4, "printable" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = one_key(rows[i].key, rows[i].n);
        if (rows[i].text)
            assert_refused(&b, rows[i].n > 256 ? WK_UNSUPPORTED : WK_INVALID, rows[i].text);
        else
            assert_opens(&b);
        free_build(&b);
    }
}

/* Writes a length over the one at `at`. */
static void patch_u64(struct build *b, size_t at, uint64_t value) { memcpy(b->bytes + at, &value, sizeof value); }

static void test_string_lengths(void **state)
{
    (void)state;
    static const uint64_t beyond[] = {
        200, 65536, UINT64_C(1) << 32, (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63, UINT64_MAX - 7, UINT64_MAX
    };
    enum { KEY, VALUE, ELEMENT, NAME, PLACES };
    for (int place = 0; place < PLACES; place++) {
        for (size_t i = 0; i < COUNT(beyond); i++) {
            struct build b = { 0 };
            size_t at[PLACES];
            put_header(&b, 1, 2);
            at[KEY] = b.n;
            put_key(&b, "key", GGUF_STRING);
            at[VALUE] = b.n;
            put_str(&b, "value");
            put_array(&b, "array", GGUF_STRING, 2);
            put_str(&b, "one");
            at[ELEMENT] = b.n;
            put_str(&b, "two");
            at[NAME] = b.n;
            put_vector(&b, "tensor", 8, 0);
            put_pad(&b, 32);
            put_zeros(&b, 32);
            assert_opens(&b);
            patch_u64(&b, at[place], beyond[i]);
            assert_refused(&b, WK_INVALID, "are left: the file is truncated or damaged");
            free_build(&b);
        }
    }
    const size_t over = (16u << 20) + 1;
    for (size_t len = over - 1; len <= over; len++) {
        struct build b = { 0 };
        char *text = calloc(1, len);
        assert_non_null(text);
        put_header(&b, 0, 1);
        put_key(&b, "big", GGUF_STRING);
        put_bytes(&b, text, len);
        if (len == over)
            assert_refused(&b, WK_UNSUPPORTED, "16777217 bytes, at most 16777216");
        else
            assert_opens(&b);
        free(text);
        free_build(&b);
    }
}

static void test_arrays(void **state)
{
    (void)state;
    static const uint64_t counts[] = { 0,
                                       1,
                                       2,
                                       3,
                                       UINT64_C(1) << 31,
                                       UINT64_C(1) << 61,
                                       UINT64_C(1) << 62,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX / 8 + 1,
                                       UINT64_MAX };
    for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
        for (size_t i = 0; i < COUNT(counts); i++) {
            struct build b = { 0 };
            put_header(&b, 0, 1);
            put_array(&b, "array", type, counts[i]);
            put_zeros(&b, 16); /* two empty strings or u64, or more of smaller types */
            const uint32_t size = type == GGUF_STRING ? 8 : gguf_type_size((enum gguf_type)type);
            if (type == GGUF_ARRAY)
                assert_refused(&b, WK_UNSUPPORTED, "array of arrays");
            else if (counts[i] <= 16 / size)
                assert_opens(&b);
            else
                assert_refused(&b, WK_INVALID, "key 'array'");
            free_build(&b);
        }
    }
    static const uint32_t wrong[] = { GGUF_TYPE_COUNT, 255, UINT32_C(1) << 31, UINT32_MAX };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        for (int nested = 0; nested < 2; nested++) {
            struct build b = { 0 };
            put_header(&b, 0, 1);
            if (nested)
                put_array(&b, "key", wrong[i], 1);
            else
                put_key(&b, "key", wrong[i]);
            put_zeros(&b, 32);
            assert_refused(&b, WK_INVALID, "known are 0 to 12");
            free_build(&b);
        }
    }
}

static void test_bools(void **state)
{
    (void)state;
    for (unsigned value = 0; value < 256; value++) {
        for (int array = 0; array < 2; array++) {
            struct build b = { 0 };
            put_header(&b, 0, 1);
            if (array) {
                put_array(&b, "flag", GGUF_BOOL, 2);
                put_u8(&b, 1);
            } else {
                put_key(&b, "flag", GGUF_BOOL);
            }
            put_u8(&b, (uint8_t)value);
            if (value < 2)
                assert_opens(&b);
            else
                assert_refused(&b, WK_INVALID, "expected 0 or 1");
            free_build(&b);
        }
    }
}

static void test_duplicate_keys(void **state)
{
    (void)state;
    enum { N = 3000 };
    for (int same = -1; same < N; same += 1500) { /* none, then the last equals one of several others */
        struct build b = { 0 };
        put_header(&b, 0, N + 1);
        char key[32];
        for (int i = 0; i <= N; i++) {
            (void)snprintf(key, sizeof key, "key.%d", i == N && same >= 0 ? same : i);
            put_kv_u32(&b, key, 1);
        }
        if (same >= 0)
            assert_refused(&b, WK_INVALID, "occurs twice");
        else
            assert_opens(&b);
        free_build(&b);
    }
    struct build b = { 0 }; /* case counts */
    put_header(&b, 0, 2);
    put_kv_u32(&b, "key", 1);
    put_kv_u32(&b, "Key", 1);
    assert_opens(&b);
    free_build(&b);
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint64_t values[] = { 0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       7,
                                       8,
                                       16,
                                       24,
                                       32,
                                       33,
                                       64,
                                       100,
                                       128,
                                       255,
                                       4096,
                                       32768,
                                       65535,
                                       65536,
                                       131072,
                                       UINT64_C(1) << 31,
                                       UINT64_C(1) << 32,
                                       UINT64_C(1) << 62,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX };
    static const uint32_t types[] = { GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_U64, GGUF_I64 };
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t bits = 8 * gguf_type_size((enum gguf_type)types[t]);
        const bool is_signed =
            types[t] == GGUF_I8 || types[t] == GGUF_I16 || types[t] == GGUF_I32 || types[t] == GGUF_I64;
        for (size_t i = 0; i < COUNT(values); i++) {
            if (bits < 64 && values[i] >> bits) continue;
            struct build b = { 0 };
            put_header(&b, 1, 1);
            put_key(&b, "general.alignment", types[t]);
            put(&b, &values[i], bits / 8);
            put_vector(&b, "t", 8, 0);
            const bool negative = is_signed && values[i] >> (bits - 1);
            const bool legal = !negative && values[i] >= 8 && values[i] <= 65536 && (values[i] & (values[i] - 1)) == 0;
            if (legal) {
                put_pad(&b, values[i]);
                put_zeros(&b, 32);
                assert_opens(&b);
            } else {
                put_zeros(&b, 1 << 10);
                assert_refused(&b, WK_INVALID, "general.alignment");
            }
            free_build(&b);
        }
    }
    static const uint32_t wrong[] = { GGUF_F32, GGUF_F64, GGUF_BOOL, GGUF_STRING };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct build b = { 0 };
        put_header(&b, 0, 1);
        put_key(&b, "general.alignment", wrong[i]);
        put_zeros(&b, 8);
        assert_refused(&b, WK_INVALID, "expected an integer");
        free_build(&b);
    }
    struct build b = { 0 };
    put_header(&b, 0, 1);
    put_array(&b, "general.alignment", GGUF_U32, 0);
    assert_refused(&b, WK_INVALID, "expected one integer");
    free_build(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncation_sweep),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_string_lengths),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_bools),
        cmocka_unit_test(test_duplicate_keys),
        cmocka_unit_test(test_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
