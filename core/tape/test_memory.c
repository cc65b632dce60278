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

static void every_allocation(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct gguf_build *g = test_models[i].file();
        struct gguf *file = gguf_build_open(g);
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
        gguf_close(file);
        gguf_build_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
