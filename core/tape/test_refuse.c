/* test_refuse.c: every way in which a recording or a file is refused, with its text. Each row must fail, and say why in
 * these words. */
#include <stdlib.h>
#include <string.h>

#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <worker/rope.h>

/* ---- one plugin whose record() is the row's ------------------------------------------------------------ */

static void (*recording)(const struct wk_builder *b);

static wk_status toy_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)err;
    (void)meta;
    *model = malloc(1); /* close() must come, also after a refusal */
    return *model ? WK_OK : WK_NO_MEMORY;
}
static void toy_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    recording(b);
}
static const char *const toy_names[] = { "toy" };
static const char *const toy_ignored[] = { "junk.weight", "old.*" };
static const struct wk_alias toy_aliases[] = { { "attn_out", "attn_output" }, { "bare", "sinks.weight" } };
static const struct wk_arch toy = { .struct_size = sizeof toy,
                                    .n_names = 1,
                                    .names = toy_names,
                                    .open = toy_open,
                                    .record = toy_record,
                                    .close = free,
                                    .aliases = toy_aliases,
                                    .n_aliases = 2,
                                    .ignored = toy_ignored,
                                    .n_ignored = 2 };

enum { E = T_E };
static struct gguf_build *toy_file(void)
{
    struct gguf_build *g = gguf_build_new("toy");
    gguf_build_u32(g, "toy.context_length", T_C);
    gguf_build_floats(g, "token_embd.weight", T_V, E, 1, NULL);
    gguf_build_floats(g, "blk.0.w.weight", E, E, 1, NULL);
    gguf_build_floats(g, "output.weight", T_V, E, 1, NULL);
    return g;
}
static struct gguf_build *toy_file_with_vector(void)
{
    struct gguf_build *g = toy_file();
    gguf_build_floats(g, "blk.0.bare", 1, E, 1, NULL);
    return g;
}

/* x = embed; logits(output(w x)): right, and the frame that rows below break. */
static wk_value begin(const struct wk_builder *b)
{
    wk_value x = wk_embed(b, "token_embd", T_V, E);
    wk_layer(b, 0);
    return x;
}
static void finish(const struct wk_builder *b, wk_value x)
{
    x = wk_linear(b, x, "w", E, WK_NONE);
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, x, "output", T_V, WK_NONE));
}
static void good(const struct wk_builder *b) { finish(b, begin(b)); }
static wk_value row_as_vector(const struct wk_builder *b) { return wk_vector(b, "bare", 1, E); }
static void good_with_vector(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, x, row_as_vector(b)));
}

static wk_status attempt(struct gguf_build *g, void (*record)(const struct wk_builder *), char text[8192])
{
    const struct tape_options o = test_options();
    const struct wk_err err = { text, 8192 };
    struct gguf *file = gguf_build_open(g);
    struct tape_program *p;
    recording = record;
    text[0] = '\0';
    wk_status status = tape_record(&toy, file, &o, &p, &err);
    if (status == WK_OK)
        test_check_program(p);
    else
        assert_null(p);
    tape_free(p);
    gguf_close(file);
    return status;
}

/* ---- broken recordings --------------------------------------------------------------------------------- */

static const struct wk_op_attention heads_4_2 = { .heads = 4, .kv_heads = 2, .scale = 1 };
static wk_value attend(const struct wk_builder *b, wk_value q, wk_value k, wk_value v, struct wk_op_attention a)
{
    return wk_attention(b, q, k, v, NULL, &a);
}

static void missing(const struct wk_builder *b) { finish(b, wk_linear(b, begin(b), "absent", E, WK_NONE)); }
static void wrong_shape(const struct wk_builder *b) { finish(b, wk_linear(b, begin(b), "w", 2 * E, WK_NONE)); }
static void unread(const struct wk_builder *b)
{
    wk_value x = begin(b);
    (void)wk_linear(b, x, "w", E, WK_NONE);
    finish(b, x);
}
static void no_output(const struct wk_builder *b)
{
    wk_value x = begin(b);
    (void)wk_add(b, x, x);
}
static void two_outputs(const struct wk_builder *b)
{
    finish(b, begin(b));
    finish(b, begin(b));
}
static void no_tokens(const struct wk_builder *b)
{
    wk_logits(b, wk_linear(b, wk_embed_pos(b, "token_embd", T_V, E, 0), "output", T_V, WK_NONE));
}
static void few_logits(const struct wk_builder *b)
{
    wk_value x = wk_linear(b, begin(b), "w", E, WK_NONE);
    wk_end_layers(b);
    wk_logits(b, wk_linear_rows(b, x, (struct wk_rows){ "output", T_V, 0, T_V - 1, 0 }, WK_NONE));
}
static void add_widths(const struct wk_builder *b)
{
    wk_value x = begin(b), y = wk_linear(b, x, "w", E, WK_NONE);
    x = wk_add(b, wk_add(b, x, y), wk_slice(b, y, 0, 20));
    finish(b, x);
}
static void mul_widths(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_binary(b, WK_OP_MUL, x, wk_slice(b, x, 0, 3)));
}
static void glu_widths(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_glu(b, WK_GLU_SILU, x, wk_slice(b, x, 0, 2)));
}
static void cols_past(const struct wk_builder *b) { finish(b, wk_slice(b, begin(b), 30, 3)); }
static void slice_parts(const struct wk_builder *b) { finish(b, wk_slice_groups(b, begin(b), 5, 0, 1)); }
static void slice_part_past(const struct wk_builder *b) { finish(b, wk_slice_groups(b, begin(b), 4, 5, 4)); }
static void slice_nothing(const struct wk_builder *b) { finish(b, wk_slice(b, begin(b), 4, 0)); }
static void concat_with(const struct wk_builder *b, uint32_t first, uint32_t second, uint32_t groups, uint32_t repeated)
{
    struct wk_op_concat c = { .o = wk_op_head(sizeof c, WK_OP_CONCAT), .groups = groups, .repeated = repeated };
    wk_value x = begin(b);
    c.o.in[first] = x.id;
    c.o.in[second] = wk_slice(b, x, 0, 30).id;
    finish(b, wk_append(b, &c.o));
}
static void concat_parts(const struct wk_builder *b) { concat_with(b, 0, 1, 4, 0); }
static void concat_hole(const struct wk_builder *b) { concat_with(b, 0, 2, 0, 0); }
static void concat_repeats(const struct wk_builder *b) { concat_with(b, 0, 1, 2, 4); }
static void concat_none(const struct wk_builder *b) { concat_with(b, 1, 2, 0, 0); }
static void concat_slots(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_concat(b, x, wk_route(b, x, 2, WK_SCORE_SOFTMAX, 0, 1)));
}
static void concat_huge(const struct wk_builder *b)
{
    wk_value x = begin(b);
    for (int i = 0; i < 4; i++) x = wk_concat_groups(b, x, x, 32, 3);
    finish(b, x);
}
static void mul_slots(const struct wk_builder *b)
{
    wk_value x = begin(b), two = wk_route(b, x, 2, WK_SCORE_SOFTMAX, 0, 1);
    finish(b, wk_combine(b, wk_mul(b, two, wk_route(b, x, 3, WK_SCORE_SOFTMAX, 0, 1)), two));
}
static void vector_first(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_mul(b, row_as_vector(b), x));
}
static void vector_elsewhere(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_concat(b, x, row_as_vector(b)));
}
static void vector_norm(const struct wk_builder *b)
{
    (void)begin(b);
    finish(b, wk_rms_norm(b, row_as_vector(b), NULL, 1e-5f));
}
static void vector_width(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, wk_slice(b, x, 0, 16), row_as_vector(b)));
}
static void row_past(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, x, wk_embed_row(b, "w", E, E, E)));
}
static void types_offset(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, x, wk_embed_op(b, "w", E, E, WK_EMBED_TOKEN_TYPE, 1)));
}
static void types_of_one(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, x, wk_embed_token_type(b, "sinks", 1, E)));
}
static void rows_past(const struct wk_builder *b)
{
    finish(b, wk_linear_rows(b, begin(b), (struct wk_rows){ "w", E, 20, 13, 0 }, WK_NONE));
}
static void attention_q(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, wk_slice(b, x, 0, 30), x, heads_4_2));
}
static void attention_v(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, wk_slice(b, x, 0, 16), wk_slice(b, x, 0, 15), heads_4_2));
}
static void attention_heads(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 3, .scale = 1 }));
}
static void attention_no_heads(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .scale = 1 }));
}
static void attention_scale(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = NAN }));
}
static void attention_flags(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .flags = 2 }));
}
static void attention_chunk(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .chunk = 33 }));
}
static void attention_chunk_window(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x,
                     (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .chunk = 64, .window = 8 }));
}
static void attention_chunk_both(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x,
                     (struct wk_op_attention){
                         .heads = 4, .kv_heads = 4, .scale = 1, .chunk = 64, .flags = WK_ATTENTION_BIDIRECTIONAL }));
}
static void attention_slope(const struct wk_builder *b)
{
    static const float slopes[4] = { 1, 0.5f, INFINITY, 0 };
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .slopes = slopes }));
}
static void attention_no_v(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, wk_none(), (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1 }));
}
static void attention_two_v(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .value_in_key = 4 }));
}
static void attention_wide_v(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, attend(b, x, x, wk_none(),
                     (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .value_in_key = 9 }));
}
static void reuse_of(const struct wk_builder *b, bool attention, uint32_t heads, struct wk_op_attention a)
{
    const struct wk_op_attention first = { .heads = 4, .kv_heads = 4, .scale = 1, .window = 8 };
    wk_value x = begin(b), y = attention ? attend(b, x, x, x, first) : x;
    a.heads = heads;
    finish(b, wk_add(b, y, wk_attention_reuse(b, x, y, NULL, &a)));
}
static void reuse_of_none(const struct wk_builder *b)
{
    reuse_of(b, false, 4, (struct wk_op_attention){ .kv_heads = 4, .scale = 1, .window = 8 });
}
static void reuse_heads(const struct wk_builder *b)
{
    reuse_of(b, true, 8, (struct wk_op_attention){ .kv_heads = 4, .scale = 1, .window = 8 });
}
static void reuse_kv_heads(const struct wk_builder *b)
{
    reuse_of(b, true, 4, (struct wk_op_attention){ .kv_heads = 2, .scale = 1, .window = 8 });
}
static void reuse_window(const struct wk_builder *b)
{
    reuse_of(b, true, 4, (struct wk_op_attention){ .kv_heads = 4, .scale = 1 });
}
static void windows(const struct wk_builder *b)
{
    wk_value x = begin(b);
    for (uint32_t i = 0; i < 9; i++)
        x = attend(b, x, x, x, (struct wk_op_attention){ .heads = 4, .kv_heads = 4, .scale = 1, .window = i });
    finish(b, x);
}
static void rope_with(const struct wk_builder *b, uint32_t head, uint32_t n, double freq0, uint32_t style)
{
    double freq[16] = { freq0 };
    const struct wk_rope_freqs f = wk_rope_freqs_of(freq, n, style, 1);
    finish(b, wk_rope(b, begin(b), head, &f));
}
static void rope_head(const struct wk_builder *b) { rope_with(b, 5, 2, 1, 0); }
static void rope_pairs(const struct wk_builder *b) { rope_with(b, 8, 5, 1, 0); }
static void rope_nan(const struct wk_builder *b) { rope_with(b, 8, 4, NAN, 0); }
static void rope_style(const struct wk_builder *b) { rope_with(b, 8, 4, 1, 2); }
static void temperature_with(const struct wk_builder *b, double temperature, uint32_t length, uint32_t reserved)
{
    double freq[4] = { 0 };
    struct wk_rope_freqs f = wk_rope_freqs_of(freq, 4, 0, 1);
    f.temperature = temperature;
    f.temperature_length = length;
    f.reserved_temperature = reserved;
    finish(b, wk_rope(b, begin(b), 8, &f));
}
static void temperature_nan(const struct wk_builder *b) { temperature_with(b, NAN, 32, 0); }
static void temperature_alone(const struct wk_builder *b) { temperature_with(b, 0.5, 0, 0); }
static void temperature_reserved(const struct wk_builder *b) { temperature_with(b, 0.5, 32, 9); }
static void rope_none(const struct wk_builder *b) { finish(b, wk_rope(b, begin(b), 8, NULL)); }
static void norm_eps(const struct wk_builder *b) { finish(b, wk_rms_norm(b, begin(b), NULL, 0)); }
static void norm_nan(const struct wk_builder *b) { finish(b, wk_rms_norm(b, begin(b), NULL, NAN)); }
static void norm_group(const struct wk_builder *b) { finish(b, wk_head_norm(b, begin(b), NULL, 5, 1e-5f)); }
static void norm_kind(const struct wk_builder *b) { finish(b, wk_norm(b, begin(b), NULL, 7, 0, 1e-5f, WK_NONE)); }
static void map_fn(const struct wk_builder *b) { finish(b, wk_unary(b, begin(b), 99, 0)); }
static void map_cap(const struct wk_builder *b) { finish(b, wk_softcap(b, begin(b), 0)); }
static void map_nan(const struct wk_builder *b) { finish(b, wk_scale(b, begin(b), INFINITY)); }
static void glu_fn(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_glu(b, 0, x, x));
}
static void glu_limit(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_glu(b, WK_GLU_SILU_CLAMPED, x, x));
}
static void route_top(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_combine(b, x, wk_route(b, x, 40, WK_SCORE_SOFTMAX_TOPK, 0, 1)));
}
static void route_score(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_combine(b, x, wk_route(b, x, 2, 77, 0, 1)));
}
/* 32 experts */
static void route_of(const struct wk_builder *b, uint32_t k, uint32_t score, uint32_t groups, uint32_t used,
                     uint32_t group_score, const char *bias)
{
    const struct wk_op_route route = {
        .k = k, .score = score, .scale = 1, .groups = groups, .groups_used = used, .group_score = group_score
    };
    wk_value x = begin(b), r = wk_route_op(b, x, bias, &route);
    finish(b, wk_combine(b, wk_mul(b, x, r), wk_none()));
}
static void route_bias(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SOFTMAX_TOPK, 0, 0, 0, "bare"); }
static void route_groups(const struct wk_builder *b)
{
    route_of(b, 2, WK_SCORE_SOFTMAX_TOPK, 4, 2, WK_GROUP_MAX, NULL);
}
static void groups_uneven(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 5, 2, WK_GROUP_MAX, NULL); }
static void groups_none_used(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 4, 0, WK_GROUP_MAX, NULL); }
static void groups_few(const struct wk_builder *b) { route_of(b, 9, WK_SCORE_SOFTMAX, 8, 2, WK_GROUP_MAX, NULL); }
static void groups_past(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SOFTMAX, 4, 5, WK_GROUP_MAX, NULL); }
static void groups_of_one(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 32, 8, WK_GROUP_TOP2, NULL); }
static void groups_many(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 65, 2, WK_GROUP_MAX, NULL); }
static void group_scores(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 4, 2, 3, NULL); }
static void group_score_missing(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 4, 2, 0, NULL); }
static void groups_missing(const struct wk_builder *b) { route_of(b, 2, WK_SCORE_SIGMOID, 0, 2, 0, NULL); }
static void route_flags(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_combine(b, x, wk_route(b, x, 2, WK_SCORE_SIGMOID, 2, 1)));
}
static void combine_slots(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_combine(b, x, wk_route(b, x, 2, WK_SCORE_SOFTMAX_TOPK, 0, 1)));
}
static void combine_no_route(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_combine(b, x, x));
}
static void expert_count(const struct wk_builder *b)
{
    wk_value x = begin(b), r = wk_route(b, x, 2, WK_SCORE_SOFTMAX_TOPK, 0, 1);
    finish(b, wk_combine(b, wk_expert(b, x, r, "w", 1, E, WK_NONE), r));
}
static void slots(const struct wk_builder *b)
{
    wk_value x = begin(b), r = wk_route(b, x, 2, WK_SCORE_SOFTMAX_TOPK, 0, 1);
    finish(b, wk_linear(b, r, "output", T_V, WK_NONE));
}
static void pool_read(const struct wk_builder *b) { finish(b, wk_pool(b, begin(b), WK_POOL_MEAN)); }
static void pool_twice(const struct wk_builder *b)
{
    wk_embedding(b, wk_pool(b, wk_pool(b, begin(b), WK_POOL_MEAN), WK_POOL_MEAN), 0);
}
static void pool_and_rows(const struct wk_builder *b)
{
    wk_value x = begin(b);
    wk_embedding(b, wk_add(b, wk_pool(b, x, WK_POOL_MEAN), x), 0);
}
static void heads_uneven(const struct wk_builder *b) { finish(b, wk_linear_heads(b, begin(b), "w", 5, 32)); }
static void heads_none(const struct wk_builder *b) { finish(b, wk_linear_heads(b, begin(b), "w", 0, 32)); }
static void custom_many(const struct wk_builder *b)
{
    wk_value x[9] = { begin(b) };
    for (int i = 1; i < 9; i++) x[i] = x[0];
    finish(b, wk_custom(b, NULL, x, 9, NULL, 0, NULL, 0));
}
static void pool_how(const struct wk_builder *b) { wk_embedding(b, wk_pool(b, begin(b), 9), 0); }
static void embedding_unpooled(const struct wk_builder *b) { wk_embedding(b, begin(b), 0); }
static void embedding_flags(const struct wk_builder *b) { wk_embedding(b, wk_pool(b, begin(b), WK_POOL_LAST), 6); }
static void output_what(const struct wk_builder *b) { wk_output(b, begin(b), 3, 0); }
static void context_past(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_add(b, x, wk_embed_pos(b, "w", E, E, 2)));
}
static void name_twice(const struct wk_builder *b) { finish(b, wk_name(b, wk_name(b, begin(b), "mine"), "mine")); }
static void name_long(const struct wk_builder *b)
{
    finish(b, wk_name(b, begin(b), "a_name_of_sixty_four_bytes_is_longer_than_any_tensor_may_have_ok_"));
}
static void by_hand(const struct wk_builder *b)
{
    wk_value x = begin(b);
    wk_refuse(b, "the author's own words");
    finish(b, x);
}
static void strange_id(const struct wk_builder *b)
{
    (void)begin(b);
    finish(b, wk_scale(b, (wk_value){ 1234 }, 1));
}
static void strange_zero(const struct wk_builder *b)
{
    (void)begin(b);
    finish(b, wk_scale(b, (wk_value){ 0 }, 1));
}
static void layer_far(const struct wk_builder *b)
{
    wk_value x = begin(b);
    wk_layer(b, 70000);
    wk_layer(b, 0);
    finish(b, x);
}
static void many_ops(const struct wk_builder *b)
{
    wk_value x = begin(b);
    for (int i = 0; i < TAPE_MAX_OPS + 10; i++) x = wk_scale(b, x, 1);
    finish(b, x);
}
static void need_of_later(const struct wk_builder *b)
{
    (void)b->tensor(b->self, "w", ".weight", E, E, 1, 3);
    finish(b, begin(b));
}
static void custom_nothing(const struct wk_builder *b)
{
    wk_value x = begin(b);
    finish(b, wk_custom(b, NULL, &x, 1, NULL, 0, NULL, 0));
}
static uint32_t any_width(const uint32_t *in_width, uint32_t n_in) { return n_in ? in_width[0] : 0; }
static void nothing(const struct wk_custom_call *call) { (void)call; }
static void custom_hole(const struct wk_builder *b)
{
    static const struct wk_custom_def def = { sizeof def, WK_SPLIT_NONE, "odd", any_width, nothing };
    struct wk_op_custom c = { .o = wk_op_head(sizeof c, WK_OP_CUSTOM), .def = &def };
    wk_value x = begin(b);
    c.o.in[0] = c.o.in[2] = x.id;
    finish(b, wk_append(b, &c.o));
}
static uint32_t refuse_width(const uint32_t *in_width, uint32_t n_in) { return n_in == 1 && in_width[0] == 7 ? 7 : 0; }
static uint32_t huge_width(const uint32_t *in_width, uint32_t n_in) { return n_in && in_width[0] ? TAPE_MAX_WIDTH : 0; }
static void copy_row(const struct wk_custom_call *call)
{
    memcpy(call->out, call->in[0], (size_t)call->n_rows * call->out_width * sizeof(float));
}
static void custom_of(const struct wk_builder *b, uint32_t (*width)(const uint32_t *, uint32_t))
{
    static struct wk_custom_def def = { .struct_size = sizeof def, .name = "twist", .cpu = copy_row };
    def.width = width;
    wk_value x = begin(b);
    finish(b, wk_custom(b, &def, &x, 1, NULL, 0, NULL, 0));
}
static void custom_refuses(const struct wk_builder *b) { custom_of(b, refuse_width); }
static void custom_huge(const struct wk_builder *b) { custom_of(b, huge_width); }

/* Of 4 heads, and as it would be right but for one thing. */
static wk_value scan(const struct wk_builder *b, uint32_t kind, struct wk_op_state s, uint32_t decays, wk_value beta)
{
    wk_value x = begin(b), decay = wk_slice(b, x, 0, decays);
    s.o = wk_op_head(sizeof s, WK_OP_STATE);
    s.kind = kind;
    for (int i = 0; i < 3; i++) s.o.in[i] = x.id;
    s.o.in[3] = decay.id;
    s.o.in[4] = beta.id;
    return wk_append(b, &s.o);
}
static const struct wk_op_state heads_4 = { .heads = 4, .groups = 2 };
static void scan_good(const struct wk_builder *b) { finish(b, scan(b, WK_STATE_SCAN, heads_4, 4, wk_none())); }
static void state_kind(const struct wk_builder *b) { finish(b, scan(b, 9, heads_4, 4, wk_none())); }
static void scan_heads(const struct wk_builder *b)
{
    finish(b, scan(b, WK_STATE_SCAN, (struct wk_op_state){ .heads = 4, .groups = 3 }, 4, wk_none()));
}
static void scan_no_groups(const struct wk_builder *b)
{
    finish(b, scan(b, WK_STATE_SCAN, (struct wk_op_state){ .heads = 4 }, 4, wk_none()));
}
static void scan_parts(const struct wk_builder *b)
{
    finish(b, scan(b, WK_STATE_SCAN, (struct wk_op_state){ .heads = 6, .groups = 3 }, 6, wk_none()));
}
static void scan_decay(const struct wk_builder *b) { finish(b, scan(b, WK_STATE_SCAN, heads_4, 5, wk_none())); }
static void scan_beta(const struct wk_builder *b)
{
    finish(b, scan(b, WK_STATE_SCAN, heads_4, 4, (wk_value){ 1 })); /* the embedding */
}
static void scan_kernel(const struct wk_builder *b)
{
    finish(b, scan(b, WK_STATE_SCAN, (struct wk_op_state){ .heads = 4, .groups = 2, .kernel = 4 }, 4, wk_none()));
}
static void delta_no_beta(const struct wk_builder *b) { finish(b, scan(b, WK_STATE_DELTA, heads_4, 4, wk_none())); }
static void delta_beta(const struct wk_builder *b) { finish(b, scan(b, WK_STATE_DELTA, heads_4, 4, (wk_value){ 1 })); }
static void scan_huge(const struct wk_builder *b)
{
    wk_value x = begin(b);
    for (int i = 0; i < 10; i++) x = wk_concat(b, x, x); /* 32,768 wide */
    x = wk_scan(b, x, x, x, wk_slice(b, x, 0, 1), 1, 1);
    finish(b, wk_slice(b, x, 0, E));
}
static void conv_as(const struct wk_builder *b, uint32_t kernel, uint32_t heads, bool tensor)
{
    struct wk_op_state s = {
        .o = wk_op_head(sizeof s, WK_OP_STATE), .kind = WK_STATE_CONV, .kernel = kernel, .heads = heads
    };
    s.o.in[0] = begin(b).id;
    if (tensor) s.o.t[0] = b->tensor(b->self, "w", ".weight", E, E, 1, WK_REQUIRED);
    finish(b, wk_append(b, &s.o));
}
static void conv_good(const struct wk_builder *b) { conv_as(b, E, 0, true); }
static void conv_rows(const struct wk_builder *b) { conv_as(b, 0, 0, true); }
static void conv_many_rows(const struct wk_builder *b) { conv_as(b, 65, 0, true); }
static void conv_shape(const struct wk_builder *b) { conv_as(b, 4, 0, true); }
static void conv_no_tensor(const struct wk_builder *b) { conv_as(b, 4, 0, false); }
static void conv_heads(const struct wk_builder *b) { conv_as(b, E, 2, true); }
static void conv_missing(const struct wk_builder *b) { finish(b, wk_conv(b, begin(b), "conv1d", 4, WK_NONE)); }

static const struct broken {
    void (*record)(const struct wk_builder *b);
    wk_status status;
    const char *text; /* the whole first line */
} broken[] = {
    { missing, WK_INVALID, "blk.0.absent.weight: missing in the file, the plugin asks for 32 rows x 32 columns" },
    { wrong_shape, WK_INVALID, "blk.0.w.weight: the file has 32 rows x 32 columns, the plugin asks for 64 x 32" },
    { unread, WK_INVALID, "blk.0.w is computed and never read" },
    { no_output, WK_INVALID, "neither logits nor embedding recorded" },
    { two_outputs, WK_INVALID, "logits: recorded twice" },
    { no_tokens, WK_INVALID,
      "token_embd: a context of 128 positions (+ 0) reaches past the table's 48 rows; ask for a shorter context" },
    { few_logits, WK_INVALID, "logits: 47 wide, the table of tokens has 48 rows" },
    { add_widths, WK_INVALID, "blk.0.add2: blk.0.add1 is 32 wide, blk.0.w.slice 20" },
    { mul_widths, WK_INVALID, "blk.0.mul1: token_embd is 32 wide, token_embd.slice 3, which does not divide it" },
    { glu_widths, WK_INVALID, "blk.0.glu: token_embd is 32 wide, token_embd.slice 2" },
    { cols_past, WK_INVALID, "token_embd.slice: columns 30 to 33 of token_embd, which is 32 wide" },
    { slice_parts, WK_INVALID, "token_embd.slice: token_embd is 32 wide, not a multiple of 5 groups" },
    { slice_part_past, WK_INVALID, "token_embd.slice: columns 5 to 9 of token_embd, which is 8 wide" },
    { slice_nothing, WK_INVALID, "token_embd.slice: columns 4 to 4 of token_embd, which is 32 wide" },
    { concat_parts, WK_INVALID, "blk.0.concat1: token_embd.slice is 30 wide, not a multiple of 4 groups" },
    { custom_hole, WK_INVALID, "blk.0.odd: input 2 stands behind one that is missing" },
    { concat_hole, WK_INVALID, "blk.0.concat1: input 2 stands behind one that is missing" },
    { concat_repeats, WK_INVALID, "blk.0.concat1: repeated is 0x4 for 2 inputs" },
    { concat_none, WK_INVALID, "blk.0.concat: input 0 is no value or tensor of this model" },
    { concat_slots, WK_INVALID, "blk.0.concat1: token_embd has 1 slots, blk.0.route 2" },
    { concat_huge, WK_INVALID, "blk.0.concat4: 536870912 wide, must be below 16777216" },
    { mul_slots, WK_INVALID, "blk.0.mul1: blk.0.route has 2 slots, blk.0.route.2 3" },
    { vector_first, WK_INVALID, "blk.0.mul: blk.0.bare is a vector, which add and mul alone read, as their second" },
    { vector_elsewhere, WK_INVALID,
      "blk.0.concat: blk.0.bare is a vector, which add and mul alone read, as their second" },
    { vector_norm, WK_INVALID, "blk.0.norm: blk.0.bare is a vector, which add and mul alone read, as their second" },
    { vector_width, WK_INVALID, "blk.0.add1: token_embd.slice is 16 wide, blk.0.bare 32" },
    { row_past, WK_INVALID, "blk.0.w: row 32 of blk.0.w.weight, which has 32" },
    { types_offset, WK_INVALID,
      "blk.0.w: types of tokens, 0 and 1, in blk.0.w.weight, which has 32 rows, from row 1 on" },
    { types_of_one, WK_INVALID,
      "blk.0.sinks: types of tokens, 0 and 1, in blk.0.bare, which has 1 rows, from row 0 on" },
    { rows_past, WK_INVALID, "blk.0.w: rows 20 to 33 of blk.0.w.weight, which has 32" },
    { attention_q, WK_INVALID, "blk.0.attention: q is 32 wide for 4 heads, k 30 for 2" },
    { attention_v, WK_INVALID, "blk.0.attention: v is 15 wide for 2 heads" },
    { attention_heads, WK_INVALID, "blk.0.attention: 4 heads for 3 of k and v, must be a multiple" },
    { attention_no_heads, WK_INVALID, "blk.0.attention: 0 heads for 0 of k and v, must be a multiple" },
    { attention_scale, WK_INVALID, "blk.0.attention: scale is not a finite number" },
    { attention_flags, WK_UNSUPPORTED, "blk.0.attention: flags 0x2 are unknown to this host (ABI 1.1)" },
    { attention_chunk, WK_INVALID,
      "blk.0.attention: chunks of 33 positions must be a multiple of 32, without a window, one-directional" },
    { attention_chunk_window, WK_INVALID,
      "blk.0.attention: chunks of 64 positions must be a multiple of 32, without a window, one-directional" },
    { attention_chunk_both, WK_INVALID,
      "blk.0.attention: chunks of 64 positions must be a multiple of 32, without a window, one-directional" },
    { attention_slope, WK_INVALID, "blk.0.attention: a slope is not a finite number" },
    { attention_no_v, WK_INVALID, "blk.0.attention: no v, and value_in_key is 0 for keys of 8" },
    { attention_two_v, WK_INVALID, "blk.0.attention: v is given, and value_in_key is 4" },
    { attention_wide_v, WK_INVALID, "blk.0.attention: no v, and value_in_key is 9 for keys of 8" },
    { reuse_of_none, WK_INVALID, "blk.0.attention: token_embd is not the result of an attention" },
    { reuse_heads, WK_INVALID, "blk.0.attention.2: q is 32 wide for 8 heads, keys of blk.0.attention have 8" },
    { reuse_kv_heads, WK_INVALID,
      "blk.0.attention.2: kv_heads, window, chunk and value_in_key must be those of blk.0.attention" },
    { reuse_window, WK_INVALID,
      "blk.0.attention.2: kv_heads, window, chunk and value_in_key must be those of blk.0.attention" },
    { windows, WK_INVALID, "blk.0.attention.9: more than 8 different attention windows" },
    { rope_head, WK_INVALID, "token_embd.rope: token_embd is 32 wide, not a multiple of head 5" },
    { rope_pairs, WK_INVALID, "token_embd.rope: 5 pairs in a head of 8" },
    { rope_nan, WK_INVALID, "token_embd.rope: frequency 0 is not a finite number" },
    { rope_style, WK_UNSUPPORTED, "token_embd.rope: style 2 is unknown to this host (ABI 1.1)" },
    { rope_none, WK_INVALID, "token_embd.rope: no frequencies" },
    { temperature_nan, WK_INVALID, "token_embd.rope: temperature is not a finite number" },
    { temperature_alone, WK_INVALID, "token_embd.rope: a temperature of 0.5, and temperature_length is 0" },
    { temperature_reserved, WK_UNSUPPORTED, "token_embd.rope: frequencies: reserved_temperature is 9, must be 0" },
    { norm_eps, WK_INVALID, "blk.0.norm: eps 0 must be above 0" },
    { norm_nan, WK_INVALID, "blk.0.norm: eps nan must be above 0" },
    { norm_group, WK_INVALID, "blk.0.norm: token_embd is 32 wide, not a multiple of 5" },
    { norm_kind, WK_UNSUPPORTED, "blk.0.norm: norm 7 is unknown to this host (ABI 1.1)" },
    { map_fn, WK_UNSUPPORTED, "token_embd.unary: function 99 is unknown to this host (ABI 1.1)" },
    { map_cap, WK_INVALID, "token_embd.softcap: a cap of 0 must be above 0" },
    { map_nan, WK_INVALID, "token_embd.scale: p is not a finite number" },
    { glu_fn, WK_UNSUPPORTED, "blk.0.glu: function 0 is unknown to this host (ABI 1.1)" },
    { glu_limit, WK_INVALID, "blk.0.glu: a limit of 0 must be above 0" },
    { route_top, WK_INVALID, "blk.0.route: top 40 of 32 (1 to 64 are served)" },
    { route_score, WK_UNSUPPORTED, "blk.0.route: score 77 is unknown to this host (ABI 1.1)" },
    { route_bias, WK_INVALID,
      "blk.0.route: a score that is the softmax over the chosen cannot choose them by a bias; WK_SCORE_SOFTMAX with "
      "WK_ROUTE_NORMALIZE has the same weights" },
    { route_groups, WK_INVALID,
      "blk.0.route: a score that is the softmax over the chosen cannot choose them by groups; WK_SCORE_SOFTMAX with "
      "WK_ROUTE_NORMALIZE has the same weights" },
    { groups_uneven, WK_INVALID, "blk.0.route: 5 groups of 32 experts" },
    { groups_none_used, WK_INVALID, "blk.0.route: top 2 of 0 of 4 groups, of 8 experts each" },
    { groups_few, WK_INVALID, "blk.0.route: top 9 of 2 of 8 groups, of 4 experts each" },
    { groups_past, WK_INVALID, "blk.0.route: top 2 of 5 of 4 groups, of 8 experts each" },
    { groups_of_one, WK_INVALID, "blk.0.route: 32 groups of 32 experts" },
    { groups_many, WK_INVALID, "blk.0.route: 65 groups (1 to 64 are served)" },
    { group_scores, WK_UNSUPPORTED, "blk.0.route: group score 3 is unknown to this host (ABI 1.1)" },
    { group_score_missing, WK_UNSUPPORTED, "blk.0.route: group score 0 is unknown to this host (ABI 1.1)" },
    { groups_missing, WK_INVALID, "blk.0.route: 2 groups used of none" },
    { route_flags, WK_UNSUPPORTED, "blk.0.route: flags 0x2 are unknown to this host (ABI 1.1)" },
    { combine_slots, WK_INVALID, "blk.0.combine: token_embd has 1 slots, blk.0.route 2" },
    { combine_no_route, WK_INVALID, "blk.0.combine: token_embd is not the result of a route" },
    { expert_count, WK_INVALID, "blk.0.w: 1 experts, blk.0.route chooses among 32" },
    { slots, WK_INVALID, "blk.0.output.weight: missing in the file, the plugin asks for 48 rows x 1 columns" },
    { pool_read, WK_INVALID, "logits: output is one pooled row a sequence" },
    { pool_twice, WK_INVALID, "blk.0.pool: does not work on blk.0.pool, one pooled row a sequence" },
    { pool_and_rows, WK_INVALID, "blk.0.add: blk.0.pool is one pooled row a sequence, token_embd is not" },
    { heads_uneven, WK_INVALID,
      "blk.0.w.weight: the file has 32 rows x 32 columns x 1 slabs, the plugin asks for 32 x 6 x 5" },
    { heads_none, WK_INVALID, "blk.0.w.weight: the file has 32 rows x 32 columns, the plugin asks for 32 x 0" },
    { custom_many, WK_INVALID, "custom: at most 8 inputs and 8 tensors" },
    { pool_how, WK_UNSUPPORTED, "blk.0.pool: pooling 9 is unknown to this host (ABI 1.1)" },
    { embedding_unpooled, WK_INVALID, "embedding: token_embd is not the result of pool" },
    { embedding_flags, WK_UNSUPPORTED, "embedding: flags 6 is unknown to this host (ABI 1.1)" },
    { output_what, WK_UNSUPPORTED, "logits: output 3 is unknown to this host (ABI 1.1)" },
    { context_past, WK_INVALID,
      "blk.0.w: a context of 128 positions (+ 2) reaches past the table's 32 rows; ask for a shorter context" },
    { name_twice, WK_INVALID, "blk.0.mine: two values of this name" },
    { name_long, WK_INVALID,
      "blk.0.a_name_of_sixty_four_bytes_is_longer_than_any_tensor_may_have_ok: a name has at most 63 bytes" },
    { by_hand, WK_INVALID, "the author's own words" },
    { strange_id, WK_INVALID, "blk.0.unary: input 0 is no value or tensor of this model" },
    { strange_zero, WK_INVALID, "blk.0.unary: input 0 is no value or tensor of this model" },
    { layer_far, WK_INVALID, "layer 70000: at most 65535" },
    { many_ops, WK_INVALID, "more than 65536 operations" },
    { need_of_later, WK_UNSUPPORTED, "w.weight: need 3 is unknown to this host (ABI 1.1)" },
    { custom_nothing, WK_INVALID, "blk.0.custom: no definition" },
    { custom_refuses, WK_INVALID, "blk.0.twist: the plugin's operation refuses inputs of these widths (first: 32)" },
    { state_kind, WK_UNSUPPORTED, "blk.0.state: state 9 is unknown to this host (ABI 1.1)" },
    { scan_heads, WK_INVALID, "blk.0.scan: 4 heads for 3 of keys, must be a multiple" },
    { scan_no_groups, WK_INVALID, "blk.0.scan: 4 heads for 0 of keys, must be a multiple" },
    { scan_parts, WK_INVALID, "blk.0.scan: q is 32 wide for 3 heads, v 32 for 6" },
    { scan_decay, WK_INVALID, "blk.0.scan: decay token_embd.slice is 5 wide, expected 4" },
    { scan_beta, WK_INVALID, "blk.0.scan: input 4 means nothing here" },
    { scan_kernel, WK_INVALID, "blk.0.scan: heads of a convolution, or a kernel or tensor of another state" },
    { scan_huge, WK_INVALID, "blk.0.scan: a state of 1073741824 numbers, at most 268435456" },
    { delta_no_beta, WK_INVALID, "blk.0.delta: input 4 is missing" },
    { delta_beta, WK_INVALID, "blk.0.delta: beta token_embd is 32 wide, expected 4" },
    { conv_rows, WK_INVALID, "blk.0.conv: a kernel of 0 rows, expected 1 to 64" },
    { conv_many_rows, WK_INVALID, "blk.0.conv: a kernel of 65 rows, expected 1 to 64" },
    { conv_shape, WK_INVALID, "blk.0.conv: blk.0.w.weight is 32 x 32 x 1, the operation needs 32 x 4 x 1" },
    { conv_no_tensor, WK_INVALID, "blk.0.conv: a convolution without its tensor" },
    { conv_heads, WK_INVALID, "blk.0.conv: heads of a convolution, or a kernel or tensor of another state" },
    { conv_missing, WK_INVALID, "blk.0.conv1d.weight: missing in the file, the plugin asks for 32 rows x 4 columns" },
    { custom_huge, WK_INVALID, "blk.0.twist: 16777216 wide, must be below 16777216" },
};

/* What the rows above break. */
static void states(void **state)
{
    (void)state;
    struct gguf_build *g = toy_file();
    char text[8192];
    assert_int_equal(attempt(g, scan_good, text), WK_OK);
    assert_int_equal(attempt(g, conv_good, text), WK_OK);
    gguf_build_free(g);
}

static void broken_recordings(void **state)
{
    (void)state;
    struct gguf_build *g = toy_file_with_vector();
    char text[8192];
    assert_int_equal(attempt(g, good_with_vector, text), WK_OK);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        wk_status status = attempt(g, broken[i].record, text);
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        assert_string_equal(text, broken[i].text);
        assert_int_equal(status, broken[i].status);
    }
    gguf_build_free(g);
}

/* ---- broken files -------------------------------------------------------------------------------------- */

static void unused_tensor(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    gguf_build_floats(g, "blk.0.w.bias", 1, E, 1, NULL);
    gguf_build_floats(g, "junk.weight", 1, 4, 1, NULL); /* on the list of what may lie there */
    gguf_build_floats(g, "old.layer.7", 1, 4, 1, NULL);
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text, "blk.0.w.bias is in the file, nothing reads it");
    gguf_build_drop(g, "blk.0.w.bias");
    assert_int_equal(attempt(g, good, text), WK_OK);
    gguf_build_floats(g, "junk.weights", 1, 4, 1, NULL);
    gguf_build_floats(g, "olde", 1, 4, 1, NULL);
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text, "junk.weights is in the file, nothing reads it\nolde is in the file, nothing reads it");
    gguf_build_free(g);
}

/* record() leaves tensors out by complete names and by prefixes; what it reads as well stays what it is. */
static void leaves_out(const struct wk_builder *b)
{
    b->ignore(b->self, "blk.1.*");
    b->ignore(b->self, "extra");
    b->ignore(b->self, "output.weight");
    b->ignore(b->self, "blk.0.w.weight");
    finish(b, begin(b));
    b->ignore(b->self, "token_embd.weight");
}
static void tensors_left_out(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    gguf_build_floats(g, "blk.1.w.weight", 1, 4, 1, NULL);
    gguf_build_floats(g, "blk.1.", 1, 4, 1, NULL);
    gguf_build_floats(g, "extra", 1, 4, 1, NULL);
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text, "blk.1.w.weight is in the file, nothing reads it\nblk.1. is in the file, nothing reads "
                              "it\nextra is in the file, nothing reads it");
    assert_int_equal(attempt(g, leaves_out, text), WK_OK);
    gguf_build_floats(g, "blk.10.w.weight", 1, 4, 1, NULL);
    gguf_build_floats(g, "extras", 1, 4, 1, NULL);
    assert_int_equal(attempt(g, leaves_out, text), WK_INVALID);
    assert_string_equal(text,
                        "blk.10.w.weight is in the file, nothing reads it\nextras is in the file, nothing reads it");
    gguf_build_free(g);
}

static void unserved_types(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    gguf_build_tensor(g, "blk.0.w.weight", 39, E, E, 1, NULL, 17 * E);
    gguf_build_tensor(g, "output.weight", 16, T_V, E, 1, NULL, 18 * T_V);
    gguf_build_tensor(g, "token_embd.weight", 39, T_V, E, 1, NULL, 17 * T_V);
    assert_int_equal(attempt(g, good, text), WK_UNSUPPORTED); /* each type once, in the order of use */
    assert_string_equal(
        text, "tensor type mxfp4: no plugin serves it (looked at: quant-test.so; first used by token_embd.weight)\n"
              "tensor type iq2_xxs: no plugin serves it (looked at: quant-test.so; first used by output.weight)");
    gguf_build_tensor(g, "output.weight", 16, T_V, E + 1, 1, NULL, 18 * T_V);
    assert_int_equal(attempt(g, good, text), WK_INVALID); /* a wrong shape weighs more */
    gguf_build_free(g);
}

/* A number from 1000 on is whose the file says; below it is ggml's, or will be. */
static const struct wk_type_cpu *find_own(void *user, uint32_t type)
{
    static struct wk_type_cpu own = { .struct_size = sizeof own, .block = 1, .block_bytes = 4, .name = "own" };
    (void)user;
    own.ggml_type = type;
    return &own;
}
static const char *own_owner(void *user, uint32_t type)
{
    (void)user;
    (void)type;
    return "org.example.mine";
}
static void owners(void **state)
{
    (void)state;
    static const char id[] = "org.example.mine";
    char text[2048], long_id[300];
    memset(long_id, 'm', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = '\0';
    const struct {
        uint32_t type;
        const char *key, *said; /* said NULL: a number */
        const char *words;      /* NULL: taken */
    } rows[] = {
        { 999, NULL, NULL, NULL },
        { 43, NULL, NULL, NULL },
        { 1000, "worker.type.1000", id, NULL },
        { 65535, "worker.type.65535", id, NULL },
        { 1000, NULL, NULL, "the file does not say whose it means; expected the text worker.type.1000" },
        { 1000, "worker.type.1001", id, "expected the text worker.type.1000" },
        { 1000, "worker.type.1000", NULL, "expected the text worker.type.1000" },
        { 1000, "worker.type.1000", "", "expected the text worker.type.1000" },
        { 1000, "worker.type.1000", "org.example.min", "of org.example.mine here, of org.example.min in the file" },
        { 1000, "worker.type.1000", "org.example.mine2", "of org.example.mine here, of org.example.mine2 in the file" },
        { 1000, "worker.type.1000", long_id, "mmmm in the file (worker.type.1000)" },
    };
    struct tape_options o = test_options();
    o.find_type = find_own;
    o.type_owner = own_owner;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tape_program *p;
        struct gguf_build *g = toy_file();
        gguf_build_tensor(g, "blk.0.w.weight", rows[i].type, E, E, 1, NULL, 4 * E * E);
        if (rows[i].key && rows[i].said) gguf_build_str(g, rows[i].key, rows[i].said);
        if (rows[i].key && !rows[i].said) gguf_build_u32(g, rows[i].key, 7);
        struct gguf *file = gguf_build_open(g);
        recording = good;
        const wk_status status = tape_record(&toy, file, &o, &p, &(struct wk_err){ text, sizeof text });
        assert_int_equal(status, rows[i].words ? WK_UNSUPPORTED : WK_OK);
        if (rows[i].words && !strstr(text, rows[i].words)) fail_msg("expected \"%s\" in: %s", rows[i].words, text);
        tape_free(p);
        gguf_close(file);
        gguf_build_free(g);
    }
}

static void broken_shapes(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    const uint64_t four[4] = { E, E, 1, 2 };
    gguf_build_dims(g, "blk.0.w.weight", 0, 4, four, E * E * 8);
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text, "blk.0.w.weight: the file has 4 dimensions, the plugin asks for 32 rows x 32 columns");
    gguf_build_floats(g, "blk.0.w.weight", E, E, 3, NULL);
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text,
                        "blk.0.w.weight: the file has 32 rows x 32 columns x 3 slabs, the plugin asks for 32 x 32 x 1");
    gguf_build_tensor(g, "blk.0.w.weight", 8, E, E, 1, NULL, 34 * E - 34); /* a row short */
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_non_null(strstr(text, "blk.0.w.weight"));
    gguf_build_free(g);
}

static void sixteen_messages(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    for (unsigned i = 0; i < 40; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "extra%u", i);
        gguf_build_floats(g, name, 1, 4, 1, NULL);
    }
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    unsigned lines = 1;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, 17);
    assert_non_null(strstr(text, "extra15 is in the file, nothing reads it\n... and 24 more"));
    char small[40];
    const struct wk_err err = { small, sizeof small };
    const struct tape_options o = test_options();
    struct gguf *file = gguf_build_open(g);
    struct tape_program *p;
    assert_int_equal(tape_record(&toy, file, &o, &p, &err), WK_INVALID);
    assert_int_equal(strlen(small), sizeof small - 1); /* as much as the caller has room for */
    assert_int_equal(tape_record(&toy, file, &o, &p, NULL), WK_INVALID);
    gguf_close(file);
    gguf_build_free(g);
}

/* One missing tensor is one message: what depends on it is silent. */
static void errors_are_sticky(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    gguf_build_drop(g, "token_embd.weight");
    assert_int_equal(attempt(g, good, text), WK_INVALID);
    assert_string_equal(text, "token_embd.weight: missing in the file, the plugin asks for 48 rows x 32 columns");
    gguf_build_free(g);
}

static void aliased(const struct wk_builder *b)
{
    wk_value x = wk_linear(b, begin(b), "attn_output", E, WK_OPTIONAL);
    const struct wk_op_attention a = { .heads = 4, .kv_heads = 4, .scale = 1 };
    finish(b, wk_attention(b, x, x, x, "sinks", &a));
}
static void aliases(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct gguf_build *g = toy_file();
    gguf_build_floats(g, "blk.0.attn_out.weight", E, E, 1, NULL);
    gguf_build_floats(g, "blk.0.attn_out.bias", 1, E, 1, NULL);
    gguf_build_floats(g, "blk.0.bare", 1, 4, 1, NULL); /* stands for name and suffix */
    struct gguf *file = gguf_build_open(g);
    recording = aliased;
    struct tape_program *p = test_record(&toy, file, &o);
    uint32_t v = tape_find_value(p, "blk.0.attn_output"); /* values bear the plugin's names, tensors the file's */
    assert_int_not_equal(v, TAPE_NONE);
    assert_string_equal(p->tensors[p->ops[p->values[v].op].t[0]].name, "blk.0.attn_out.weight");
    assert_string_equal(p->tensors[p->ops[p->values[v].op].t[1]].name, "blk.0.attn_out.bias");
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
}

/* ---- the growth rule ----------------------------------------------------------------------------------- */

static struct {
    struct wk_op_attention a;
    uint32_t next[4];
} longer;
static uint32_t longer_bytes, new_kind;
static int supported[3];

static void put_longer(const struct wk_builder *b)
{
    wk_value x = begin(b), y;
    longer.a =
        (struct wk_op_attention){ .o = { .size = longer_bytes, .kind = WK_OP_ATTENTION, .in = { x.id, x.id, x.id } },
                                  .heads = 4,
                                  .kv_heads = 4,
                                  .scale = 1 };
    y.id = b->op(b->self, &longer.a.o);
    finish(b, y);
}
static void put_new_kind(const struct wk_builder *b)
{
    const struct wk_op o = { .size = sizeof o, .kind = (uint16_t)new_kind, .since = 4 };
    (void)begin(b);
    longer.a.o.kind = WK_OP_ATTENTION;
    supported[0] = wk_supports(b, &o);
    longer.a.o.size = sizeof longer.a;
    supported[1] = wk_supports(b, &longer.a.o);
    longer.a.o.size = sizeof longer;
    longer.next[0] = 1;
    supported[2] = wk_supports(b, &longer.a.o);
    longer.next[0] = 0;
    finish(b, wk_append(b, &o));
}
static void put_reserved(const struct wk_builder *b)
{
    const struct wk_op_norm n = { .o = { .size = sizeof n, .kind = WK_OP_NORM, .in = { begin(b).id } },
                                  .eps = 1e-5f,
                                  .reserved = 1 };
    finish(b, wk_append(b, &n.o));
}
static void put_third_input(const struct wk_builder *b)
{
    wk_value x = begin(b);
    const struct wk_op o = { .size = sizeof o, .kind = WK_OP_ADD, .in = { x.id, x.id, x.id } };
    finish(b, wk_append(b, &o));
}

/* Of every kind, what is set and known, and one field at a time that is not. */
static uint32_t unknown_at, unknown_value, asked_kind;
static int was_supported;
static union {
    struct wk_op o;
    struct wk_op_rope rope;
    struct wk_op_custom custom;
    uint32_t words[64];
} asked_op;
static void ask(const struct wk_builder *b)
{
    (void)begin(b);
    const uint32_t known = asked_op.words[unknown_at];
    asked_op.o.kind = (uint16_t)asked_kind;
    asked_op.words[unknown_at] = unknown_value;
    was_supported = wk_supports(b, &asked_op.o);
    finish(b, wk_append(b, &asked_op.o));
    asked_op.words[unknown_at] = known;
}
#define AT(type, field) sizeof(struct type), offsetof(struct type, field) / 4
static void enumerators(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind, size, at, low, end; /* low to end - 1 are known */
    } rows[] = {
        { WK_OP_EMBED, AT(wk_op_embed, index), 0, WK_EMBED_END },
        { WK_OP_NORM, AT(wk_op_norm, kind), 0, WK_NORM_LAYER + 1 },
        { WK_OP_UNARY, AT(wk_op_unary, fn), 1, WK_UNARY_END },
        { WK_OP_GLU, AT(wk_op_glu, fn), 1, WK_GLU_END },
        { WK_OP_ROUTE, AT(wk_op_route, score), 1, WK_SCORE_END },
        { WK_OP_ROUTE, AT(wk_op_route, group_score), 0, WK_GROUP_END },
        { WK_OP_ROUTE, AT(wk_op_route, flags), 0, WK_ROUTE_NORMALIZE + 1 },
        { WK_OP_ATTENTION, AT(wk_op_attention, flags), 0, WK_ATTENTION_BIDIRECTIONAL + 1 },
        { WK_OP_STATE, AT(wk_op_state, kind), 1, WK_STATE_END },
        { WK_OP_POOL, AT(wk_op_pool, how), 1, WK_POOL_END },
        { WK_OP_OUTPUT, AT(wk_op_output, what), 1, WK_OUTPUT_END },
        { WK_OP_OUTPUT, AT(wk_op_output, flags), 0, WK_OUTPUT_L2_NORM + 1 },
    };
    char text[8192];
    struct gguf_build *g = toy_file();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t value = 0; value < rows[i].end + 3; value++) {
            memset(&asked_op, 0, sizeof asked_op);
            asked_op.o.size = rows[i].size;
            if (rows[i].kind == WK_OP_ROUTE) asked_op.words[offsetof(struct wk_op_route, score) / 4] = 1;
            if (rows[i].kind == WK_OP_OUTPUT) asked_op.words[offsetof(struct wk_op_output, what) / 4] = 2;
            asked_kind = rows[i].kind;
            unknown_at = rows[i].at;
            unknown_value = value;
            assert_int_not_equal(attempt(g, ask, text), WK_OK); /* it has no inputs */
            if (was_supported != (value >= rows[i].low && value < rows[i].end))
                fail_msg("kind %u, word %u, value %u", asked_kind, unknown_at, value);
        }
    gguf_build_free(g);
}

/* The same of what an operation points to. */
static void pointed(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    struct {
        struct wk_rope_freqs f;
        uint64_t tail;
    } freqs = { { .struct_size = sizeof freqs.f }, 0 };
    struct {
        struct wk_custom_def d;
        uint64_t tail;
    } def = { { .struct_size = sizeof def.d }, 0 };
    for (int step = 0; step < 5; step++) {
        freqs.f.struct_size = step >= 3 ? sizeof freqs : sizeof freqs.f;
        def.d.struct_size = step >= 3 ? sizeof def : sizeof def.d;
        freqs.f.style = step == 1 ? 2 : 0;
        def.d.split = step == 1 ? WK_SPLIT_END : 0;
        freqs.f.reserved = step == 2;
        def.d.struct_size -= step == 2 ? 8 : 0;
        freqs.tail = def.tail = step == 4;
        for (int i = 0; i < 2; i++) {
            memset(&asked_op, 0, sizeof asked_op);
            asked_kind = i ? WK_OP_CUSTOM : WK_OP_ROPE;
            unknown_at = unknown_value = 0; /* its size */
            if (i)
                asked_op.custom.def = &def.d;
            else
                asked_op.rope.freqs = &freqs.f;
            unknown_value = i ? sizeof(struct wk_op_custom) : sizeof(struct wk_op_rope);
            assert_int_not_equal(attempt(g, ask, text), WK_OK);
            if (was_supported != (step == 0 || step == 3)) fail_msg("%s, step %d", i ? "custom" : "rope", step);
        }
    }
    gguf_build_free(g);
}

static void growth(void **state)
{
    (void)state;
    char text[8192];
    struct gguf_build *g = toy_file();
    longer_bytes = sizeof longer;
    assert_int_equal(attempt(g, put_longer, text), WK_OK); /* longer, and zero where we know nothing */
    longer.next[0] = 1;
    assert_int_equal(attempt(g, put_longer, text), WK_UNSUPPORTED);
    assert_string_equal(
        text, "blk.0.attention: byte 112 is set, which this host (ABI 1.1) does not know; use a newer worker");
    longer.next[0] = 0;
    longer.next[2] = 0x100;
    assert_int_equal(attempt(g, put_longer, text), WK_UNSUPPORTED);
    assert_string_equal(
        text, "blk.0.attention: byte 121 is set, which this host (ABI 1.1) does not know; use a newer worker");
    longer.next[2] = 0;
    longer_bytes = sizeof(struct wk_op_attention) - 8; /* shorter than its first version */
    assert_int_equal(attempt(g, put_longer, text), WK_INVALID);
    assert_string_equal(
        text, "blk.0.attention says it has 104 bytes; at least 112, a multiple of 8 and at most 65536 expected");
    longer_bytes = 1u << 30;
    assert_int_equal(attempt(g, put_longer, text), WK_INVALID);
    for (new_kind = 0; new_kind < 40; new_kind += new_kind ? 23 : WK_OP_END) {
        assert_int_equal(attempt(g, put_new_kind, text), WK_UNSUPPORTED);
        char expected[80];
        (void)snprintf(expected, sizeof expected, "blk.0.op %u needs ABI 1.4, this host has 1.1", new_kind);
        assert_string_equal(text, expected);
        assert_true(!supported[0] && supported[1] && !supported[2]);
    }
    assert_int_equal(attempt(g, put_reserved, text), WK_UNSUPPORTED);
    assert_string_equal(text, "blk.0.norm: byte 84 is set, unknown to this host (ABI 1.1)");
    assert_int_equal(attempt(g, put_third_input, text), WK_UNSUPPORTED);
    assert_string_equal(text, "blk.0.add: byte 16 is set, unknown to this host (ABI 1.1)");
    gguf_build_free(g);
}

/* ---- reading small tables, embeddings, custom operations: what is right -------------------------------- */

static float read_back[4];
static uint32_t read_found;
static void reads(const struct wk_builder *b)
{
    read_found = b->read(b->self, "rope_freqs.weight", read_back, 4);
    finish(b, begin(b));
}
static void small_tables(void **state)
{
    (void)state;
    char text[8192];
    const float numbers[4] = { 1, 2, 3, 4.5f };
    struct gguf_build *g = toy_file();
    assert_int_equal(attempt(g, reads, text), WK_OK);
    assert_int_equal(read_found, 0);
    gguf_build_floats(g, "rope_freqs.weight", 1, 4, 1, numbers);
    assert_int_equal(attempt(g, reads, text), WK_OK);
    assert_int_equal(read_found, 1);
    assert_memory_equal(read_back, numbers, sizeof numbers);
    assert_int_equal(attempt(g, good, text), WK_INVALID); /* read by nobody */
    gguf_build_floats(g, "rope_freqs.weight", 1, 5, 1, NULL);
    assert_int_equal(attempt(g, reads, text), WK_INVALID);
    assert_string_equal(text, "rope_freqs.weight: the file has 1 rows x 5 columns, the plugin asks for 1 x 4");
    gguf_build_tensor(g, "rope_freqs.weight", 1, 1, 4, 1, NULL, 8);
    assert_int_equal(attempt(g, reads, text), WK_INVALID);
    assert_string_equal(text, "rope_freqs.weight: type f16, must be f32");
    gguf_build_free(g);
}

static uint32_t same_width(const uint32_t *in_width, uint32_t n_in) { return n_in == 1 ? in_width[0] : 0; }
static void twist_and_embed(const struct wk_builder *b)
{
    static const struct wk_custom_def def = {
        .struct_size = sizeof def, .name = "twist", .width = same_width, .cpu = copy_row
    };
    static const uint32_t params[2] = { 7, 8 };
    wk_value x = begin(b);
    x = wk_custom(b, &def, &x, 1, NULL, 0, params, sizeof params);
    x = wk_linear(b, x, "w", E, WK_NONE);
    wk_end_layers(b);
    wk_embedding(b, wk_pool(b, x, WK_POOL_MEAN), WK_OUTPUT_L2_NORM);
    wk_logits(b, wk_linear(b, x, "output", T_V, WK_NONE));
}
static void both_outputs_and_a_custom_operation(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct gguf_build *g = toy_file();
    struct gguf *file = gguf_build_open(g);
    recording = twist_and_embed;
    struct tape_program *p = test_record(&toy, file, &o);
    test_check_program(p);
    assert_int_equal(p->embedding_width, E);
    const struct tape_op *twist = &p->ops[p->values[tape_find_value(p, "blk.0.twist")].op];
    assert_int_equal(p->launches[twist->launch].kind, LAUNCH_ALONE);
    assert_int_equal(((const uint32_t *)twist->u.custom.params)[1], 8);
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        if (l->kind != LAUNCH_OUTPUT) continue;
        outputs++;
        assert_true(l->n_ops == 2 && l->rows == ROWS_POOLED && p->ops[l->ops[1]].u.output.flags == WK_OUTPUT_L2_NORM);
        assert_string_equal(p->values[l->x].name, "blk.0.w");
    }
    assert_int_equal(outputs, 1);
    assert_int_equal(p->values[tape_find_value(p, "blk.0.w")].rows, ROWS_ALL); /* pooling reads the whole prompt */
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
}

static void contexts(void **state)
{
    (void)state;
    static const struct {
        uint32_t context;
        const char *text;
    } rows[] = { { 0, "toy.context_length is missing; ask for a context" },
                 { 1u << 30, "a context of 1073741824 positions was asked for, at most 134217728 are served" } };
    struct gguf_build *g = toy_file();
    gguf_build_drop(g, "toy.context_length");
    struct gguf *file = gguf_build_open(g);
    char text[400];
    const struct wk_err err = { text, sizeof text };
    struct tape_options o = test_options();
    struct tape_program *p;
    recording = good;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        o.context = rows[i].context;
        assert_int_equal(tape_record(&toy, file, &o, &p, &err), WK_INVALID);
        assert_string_equal(text, rows[i].text);
    }
    o.context = 77;
    p = test_record(&toy, file, &o);
    assert_int_equal(p->context, 77);
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_recordings),
        cmocka_unit_test(unused_tensor),
        cmocka_unit_test(tensors_left_out),
        cmocka_unit_test(unserved_types),
        cmocka_unit_test(broken_shapes),
        cmocka_unit_test(sixteen_messages),
        cmocka_unit_test(errors_are_sticky),
        cmocka_unit_test(aliases),
        cmocka_unit_test(growth),
        cmocka_unit_test(owners),
        cmocka_unit_test(enumerators),
        cmocka_unit_test(pointed),
        cmocka_unit_test(small_tables),
        cmocka_unit_test(both_outputs_and_a_custom_operation),
        cmocka_unit_test(contexts),
        cmocka_unit_test(states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
