/* test_pooling.c: decoders whose rows are pooled: what is left on the tape, and what is refused. */
#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Records the model's file, which it frees. NULL: text says why. */
static struct tape_program *attempt(const struct test_model *m, struct gguf_build *g, enum tape_pooling pooling,
                                    struct gguf **file, char text[1024])
{
    struct tape_options o = test_options();
    struct tape_program *p = NULL;
    *file = gguf_build_open(g);
    o.pooling = pooling;
    text[0] = 0;
    const wk_status status = tape_record(m->arch, *file, &o, &p, &(struct wk_err){ text, 1024 });
    assert_int_equal(status == WK_OK, p != NULL);
    gguf_build_free(g);
    return p;
}

/* The architecture's key. */
static const char *key_of(const struct test_model *m, const char *name, char out[128])
{
    (void)snprintf(out, 128, "%s.%s", m->arch->names[0], name);
    return out;
}

static uint32_t count(const struct tape_program *p, uint32_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) n += p->ops[i].kind == kind;
    return n;
}

static bool has_tensor(const struct tape_program *p, const char *name)
{
    bool has = false;
    for (uint32_t i = 0; i < p->n_tensors; i++) has = has || strcmp(p->tensors[i].name, name) == 0;
    return has;
}

/* Of every architecture the rows behind its last norm are pooled, whether the caller asks, the file says it, or both.
 */
static void heads_are_taken_off(void **state)
{
    (void)state;
    static const uint32_t pools[] = {
        [TAPE_POOL_MEAN] = WK_POOL_MEAN, [TAPE_POOL_FIRST] = WK_POOL_FIRST, [TAPE_POOL_LAST] = WK_POOL_LAST
    };
    char key[128], text[1024], digest[3][65];
    for (uint32_t i = 0; i < n_test_models; i++)
        for (uint32_t how = TAPE_POOL_MEAN; how <= TAPE_POOL_LAST; how++)
            for (int by_file = 0; by_file < 3; by_file++) {
                const struct test_model *m = &test_models[i];
                struct gguf_build *g = m->file();
                struct gguf *file;
                if (by_file) gguf_build_u32(g, key_of(m, "pooling_type", key), how);
                struct tape_program *p =
                    attempt(m, g, by_file == 1 ? TAPE_POOL_FILE : (enum tape_pooling)how, &file, text);
                if (!p) fail_msg("%s: %s", m->name, text);
                test_check_program(p);
                assert_int_equal(p->embedding_width, T_E);
                assert_false(tape_gives_logits(p));
                assert_int_equal(count(p, WK_OP_POOL), 1);
                assert_int_equal(count(p, WK_OP_OUTPUT), 1);
                const struct tape_op *pool = &p->ops[p->n_ops - 2], *out = &p->ops[p->n_ops - 1];
                assert_int_equal(pool->u.pool.how, pools[how]);
                assert_int_equal(out->u.output.flags, WK_OUTPUT_L2_NORM);
                assert_string_equal(p->values[pool->in[0]].name, "output_norm");
                assert_true(has_tensor(p, "token_embd.weight"));
                assert_false(has_tensor(p, "output.weight"));
                tape_digest(p, digest[by_file]);
                tape_free(p);
                gguf_close(file);
                if (by_file) assert_string_equal(digest[0], digest[by_file]);
            }
}

static void scores(void **state)
{
    (void)state;
    const struct test_model *m = &test_models[0];
    char key[128], text[1024];
    struct gguf *file;
    struct gguf_build *g = m->file();
    gguf_build_u32(g, key_of(m, "pooling_type", key), 4);
    gguf_build_floats(g, "cls.output.weight", 2, T_E, 1, NULL);
    struct tape_program *p = attempt(m, g, TAPE_POOL_FILE, &file, text);
    if (!p) fail_msg("%s", text);
    test_check_program(p);
    assert_int_equal(p->embedding_width, 2);
    assert_int_equal(p->ops[p->n_ops - 1].u.output.flags, 0);
    tape_free(p);
    gguf_close(file);
}

static void must_refuse(struct gguf_build *g, enum tape_pooling pooling, const char *expected)
{
    char text[1024];
    struct gguf *file;
    struct tape_program *p = attempt(&test_models[0], g, pooling, &file, text);
    if (p) fail_msg("not refused: %s", expected);
    if (!strstr(text, expected)) fail_msg("\"%s\" does not say: %s", text, expected);
    gguf_close(file);
}

static struct gguf_build *with(uint32_t pooling_type)
{
    char key[128];
    struct gguf_build *g = test_models[0].file();
    gguf_build_u32(g, key_of(&test_models[0], "pooling_type", key), pooling_type);
    return g;
}

static void refused(void **state)
{
    (void)state;
    char key[128];
    must_refuse(with(5), TAPE_POOL_FILE, "pooling_type is 5; 0 (the model generates), 1 (mean)");
    must_refuse(with(3), TAPE_POOL_MEAN, "pooling mean was asked for, but the file says how rows are pooled");
    must_refuse(with(3), TAPE_POOL_MEAN, "pooling_type is 3 (last)");
    must_refuse(with(4), TAPE_POOL_LAST, "pooling_type is 4 (scores)");
    must_refuse(with(5), TAPE_POOL_LAST, "pooling_type is 5 (unknown)");
    must_refuse(with(4), TAPE_POOL_FILE, "cls.output.weight is missing");
    struct gguf_build *g = test_models[0].file();
    gguf_build_bool(g, key_of(&test_models[0], "pooling_type", key), 1);
    must_refuse(g, TAPE_POOL_FILE, "pooling_type");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(heads_are_taken_off), cmocka_unit_test(scores),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
