/* test_memory.c: the n-th allocation fails, or the n-th piece taken from an arena, for every n that recording makes: a
 * status, a text, and nothing left behind. */
#include <stdlib.h>
#include <string.h>

#include "tape/arena.h"
#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int64_t until_failure = -1; /* allocations that still succeed; negative: all */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_arena_take(struct arena *a, size_t n, size_t size);
void *__real_arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *cap, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_arena_take(struct arena *a, size_t n, size_t size);
void *__wrap_arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *cap, size_t size);

static int fails(void)
{
    if (until_failure < 0) return 0;
    return until_failure-- == 0;
}
void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_arena_take(struct arena *a, size_t n, size_t size)
{
    return fails() ? NULL : __real_arena_take(a, n, size);
}
void *__wrap_arena_grow(struct arena *a, void *items, uint32_t n, uint32_t *cap, size_t size)
{
    return fails() ? NULL : __real_arena_grow(a, items, n, cap, size);
}

/* One that changes a table, which all models have. */
static struct gguf_build *adapter_file(struct gguf *model)
{
    const struct gguf_kv *kv = gguf_find(model, "general.architecture");
    struct gguf_str s;
    char architecture[64];
    assert_int_equal(gguf_str(model, kv, &s, NULL), WK_OK);
    (void)snprintf(architecture, sizeof architecture, "%.*s", (int)s.len, s.data);
    struct gguf_build *g = gguf_build_new(architecture);
    gguf_build_str(g, "general.type", "adapter");
    gguf_build_str(g, "adapter.type", "lora");
    gguf_build_f32(g, "adapter.lora.alpha", 1);
    gguf_build_floats(g, "token_embd.weight.lora_a", T_V, 2, 1, NULL);
    gguf_build_floats(g, "token_embd.weight.lora_b", T_E, 2, 1, NULL);
    return g;
}

static void every_allocation(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct tape_options o = test_options();
        struct adapter adapter;
        struct gguf_build *g = test_models[i].file();
        struct gguf *file = gguf_build_open(g);
        struct gguf_build *b = adapter_file(file);
        struct gguf *lora = gguf_build_open(b);
        assert_int_equal(adapter_read(lora, 1, &adapter, NULL), WK_OK);
        o.adapters = &adapter;
        o.n_adapters = i % 2; /* with one and without */
        int64_t n = 0;
        for (;; n++) {
            char text[8192] = "";
            const struct wk_err err = { text, sizeof text };
            struct tape_program *p;
            until_failure = n;
            wk_status status = tape_record(test_models[i].arch, file, &o, &p, &err);
            const bool over = until_failure >= 0; /* fewer allocations than n: none failed */
            until_failure = -1;
            if (over) {
                assert_int_equal(status, WK_OK);
                tape_free(p);
                break;
            }
            assert_int_equal(status, WK_NO_MEMORY);
            assert_null(p);
            assert_string_equal(text, "out of memory while the tape was recorded");
        }
        assert_in_range(n, 100, 100000); /* the failures above did happen */
        gguf_close(lora);
        gguf_build_free(b);
        gguf_close(file);
        gguf_build_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
