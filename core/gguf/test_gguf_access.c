/* test_gguf_access.c: typed access: what fits is read, everything else is refused with both types named. */
#include "gguf/test_file.h"

#include <math.h>

struct opened {
    struct gguf *file;
    void *copy;
};

static struct opened open_build(struct build *b)
{
    struct opened o;
    const wk_status status = open_copy(b->bytes, b->n, &o.file, &o.copy);
    if (status != WK_OK) fail_msg("%s", error_text);
    free_build(b);
    return o;
}

static void close_opened(struct opened *o)
{
    gguf_close(o->file);
    free(o->copy);
}

/* One scalar of each type and one array of each but ARRAY, keys "s.<type>" and "a.<type>". */
static struct opened every_type(void)
{
    struct build b = { 0 };
    put_header(&b, 0, 2 * (GGUF_TYPE_COUNT - 1));
    for (uint32_t type = 0; type < GGUF_TYPE_COUNT; type++) {
        if (type == GGUF_ARRAY) continue;
        char key[16];
        const uint32_t size =
            type == GGUF_STRING ? 8 : gguf_type_size((enum gguf_type)type); /* zeros: an empty string */
        (void)snprintf(key, sizeof key, "s.%s", gguf_type_name((enum gguf_type)type));
        put_key(&b, key, type);
        put_zeros(&b, size);
        key[0] = 'a';
        put_array(&b, key, type, 2);
        put_zeros(&b, 2 * size);
    }
    return open_build(&b);
}

static bool is_integer(enum gguf_type type)
{
    return gguf_type_size(type) && type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL;
}

static void expect(wk_status status, bool ok)
{
    if (ok)
        assert_int_equal(status, WK_OK);
    else {
        assert_int_equal(status, WK_INVALID);
        assert_text("expected ");
        assert_text("found ");
    }
}

static void test_types(void **state)
{
    (void)state;
    struct opened o = every_type();
    assert_int_equal(gguf_kv_count(o.file), 2 * (GGUF_TYPE_COUNT - 1));
    assert_null(gguf_kv_at(o.file, gguf_kv_count(o.file)));
    assert_null(gguf_find(o.file, "absent"));
    assert_null(gguf_find(o.file, ""));
    for (uint64_t i = 0; i < gguf_kv_count(o.file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(o.file, i);
        const enum gguf_type type = kv->element_type;
        const bool array = kv->type == GGUF_ARRAY, number = is_integer(type) || type == GGUF_F32 || type == GGUF_F64;
        assert_int_equal(kv->count, array ? 2 : 1);
        uint64_t u;
        int64_t s;
        double f;
        bool b;
        struct gguf_str text;
        struct gguf_strings it;
        for (uint64_t k = 0; k < kv->count; k++) {
            expect(gguf_u64_at(o.file, kv, k, &u, &test_err), is_integer(type));
            expect(gguf_i64_at(o.file, kv, k, &s, &test_err), is_integer(type));
            expect(gguf_f64_at(o.file, kv, k, &f, &test_err), number);
            expect(gguf_bool_at(o.file, kv, k, &b, &test_err), type == GGUF_BOOL);
        }
        assert_int_equal(gguf_u64_at(o.file, kv, kv->count, &u, &test_err), WK_INVALID);
        assert_int_equal(gguf_i64_at(o.file, kv, UINT64_MAX, &s, &test_err), WK_INVALID);
        assert_int_equal(gguf_f64_at(o.file, kv, UINT64_C(1) << 61, &f, &test_err), WK_INVALID);
        assert_int_equal(gguf_bool_at(o.file, kv, kv->count, &b, &test_err), WK_INVALID);
        expect(gguf_str(o.file, kv, &text, &test_err), !array && type == GGUF_STRING);
        expect(gguf_strings_begin(o.file, kv, &it, &test_err), array && type == GGUF_STRING);
        for (int wanted = 0; wanted < GGUF_TYPE_COUNT; wanted++) {
            const void *bytes = gguf_array_bytes(o.file, kv, (enum gguf_type)wanted, &test_err);
            expect(bytes ? WK_OK : WK_INVALID, array && (int)type == wanted && type != GGUF_STRING);
        }
    }
    close_opened(&o);
}

static void test_integer_ranges(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t bits;
        bool as_u64, as_i64;
        int64_t value;
        double real;
    } rows[] = {
        { GGUF_U8, 0xff, true, true, 255, 255 },
        { GGUF_I8, 0xff, false, true, -1, -1 },
        { GGUF_I8, 0x80, false, true, -128, -128 },
        { GGUF_I8, 0x7f, true, true, 127, 127 },
        { GGUF_U16, 0xffff, true, true, 65535, 65535 },
        { GGUF_I16, 0x8000, false, true, -32768, -32768 },
        { GGUF_U32, 0xffffffff, true, true, 4294967295, 4294967295.0 },
        { GGUF_I32, 0x80000000, false, true, -INT64_C(2147483648), -2147483648.0 },
        { GGUF_U64, UINT64_MAX, true, false, -1, 18446744073709551615.0 },
        { GGUF_U64, INT64_MAX, true, true, INT64_MAX, 9223372036854775807.0 },
        { GGUF_I64, UINT64_C(1) << 63, false, true, INT64_MIN, -9223372036854775808.0 },
        { GGUF_I64, UINT64_MAX, false, true, -1, -1 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = { 0 };
        put_header(&b, 0, 1);
        put_key(&b, "n", rows[i].type);
        put(&b, &rows[i].bits, gguf_type_size((enum gguf_type)rows[i].type));
        struct opened o = open_build(&b);
        const struct gguf_kv *kv = gguf_find(o.file, "n");
        uint64_t u = 0;
        int64_t s = 0;
        double f = 0;
        expect(gguf_u64_at(o.file, kv, 0, &u, &test_err), rows[i].as_u64);
        expect(gguf_i64_at(o.file, kv, 0, &s, &test_err), rows[i].as_i64);
        assert_int_equal(gguf_f64_at(o.file, kv, 0, &f, NULL), WK_OK);
        if (rows[i].as_u64) assert_true(u == (uint64_t)rows[i].value);
        if (rows[i].as_i64) assert_true(s == rows[i].value);
        assert_true(f == rows[i].real);
        close_opened(&o);
    }
}

static void test_floats(void **state)
{
    (void)state;
    struct build b = { 0 };
    const float f32[] = { 1.5f, -0.25f, INFINITY };
    const double f64 = 0.1;
    put_header(&b, 0, 2);
    put_array(&b, "f32", GGUF_F32, 3);
    put(&b, f32, sizeof f32);
    put_key(&b, "f64", GGUF_F64);
    put(&b, &f64, sizeof f64);
    struct opened o = open_build(&b);
    double value;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(gguf_f64_at(o.file, gguf_find(o.file, "f32"), i, &value, NULL), WK_OK);
        assert_true(value == (double)f32[i]);
    }
    assert_int_equal(gguf_f64_at(o.file, gguf_find(o.file, "f64"), 0, &value, NULL), WK_OK);
    assert_true(value == 0.1);
    assert_memory_equal(gguf_array_bytes(o.file, gguf_find(o.file, "f32"), GGUF_F32, NULL), f32, sizeof f32);
    close_opened(&o);
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        size_t n;
    } words[] = { { "a", 1 }, { "", 0 }, { "b\0c", 3 }, { "\xff\xfe", 2 }, { "last", 4 } };
    struct build b = { 0 };
    put_header(&b, 0, 2);
    put_array(&b, "words", GGUF_STRING, COUNT(words));
    for (size_t i = 0; i < COUNT(words); i++) put_bytes(&b, words[i].s, words[i].n);
    put_kv_str(&b, "word", "hello");
    struct opened o = open_build(&b);
    struct gguf_strings it;
    struct gguf_str s;
    assert_int_equal(gguf_strings_begin(o.file, gguf_find(o.file, "words"), &it, NULL), WK_OK);
    for (size_t i = 0; i < COUNT(words); i++) {
        assert_true(gguf_strings_next(&it, &s));
        assert_int_equal(s.len, words[i].n);
        assert_memory_equal(s.data, words[i].s, s.len);
    }
    assert_false(gguf_strings_next(&it, &s));
    assert_false(gguf_strings_next(&it, &s));
    assert_int_equal(gguf_str(o.file, gguf_find(o.file, "word"), &s, NULL), WK_OK);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "hello", 5);
    close_opened(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_integer_ranges),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
