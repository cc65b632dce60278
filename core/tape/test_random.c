/* test_random.c: random tapes, each under every fusion mask and random taps: every operation is computed, in an order
 * that can run, and no buffer is overwritten while somebody still reads it. The checker knows nothing of how fusion and
 * planning work. */
#include <stdlib.h>
#include <string.h>

#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <worker/rope.h>

enum { E = T_E, X = 24, K = 12, TAPES = 150, LIVE = 12 };

static uint32_t seed;
static uint32_t dice(uint32_t sides)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % sides;
}

/* Values to choose from, with how often each was read: what nobody read is summed at the end. */
struct pool {
    wk_value v[4096];
    uint32_t reads[4096], n;
};
static struct pool pool;

static wk_value pick(void)
{
    uint32_t back = dice(LIVE) + 1, i = back > pool.n ? pool.n - 1 : pool.n - back;
    if (dice(3)) i = pool.n - 1; /* mostly chains */
    pool.reads[i]++;
    return pool.v[i];
}
static void put(wk_value v) { pool.v[pool.n++] = v; }

static wk_value linear(const struct wk_builder *b, wk_value x)
{
    char name[8];
    (void)snprintf(name, sizeof name, "w%u", dice(6));
    return wk_linear(b, x, name, E, dice(2) ? WK_OPTIONAL : WK_NONE);
}
static wk_value rope_of(const struct wk_builder *b, wk_value x, uint32_t head)
{
    double freq[4];
    wk_rope_frequencies(freq, 4, 100 + dice(2));
    const struct wk_rope_freqs f = wk_rope_freqs_of(freq, 4, dice(2), 1);
    return wk_rope(b, x, head, &f);
}
static void attention(const struct wk_builder *b)
{
    static const float slopes[4] = { 0.5f, 0.25f, 0.125f, 0 };
    struct wk_op_attention a = { .heads = 4, .kv_heads = 4, .scale = 1, .window = dice(3) * 16 };
    if (dice(4) == 0) a.window = 0, a.chunk = 32;
    if (dice(4) == 0) a.slopes = slopes;
    if (!a.chunk && dice(8) == 0) a.flags = WK_ATTENTION_BIDIRECTIONAL;
    if (dice(4) == 0) a.value_in_key = 8;
    wk_value x = pick(), q = linear(b, x), k = linear(b, x), v = dice(4) ? linear(b, x) : k;
    if (a.value_in_key) {
        if (v.id != k.id) pool.reads[pool.n] = 0, put(v);
        v = wk_none();
    }
    if (dice(2))
        q = wk_head_norm(b, q, dice(2) ? "n8" : NULL, 8, 1e-5f);
    else if (dice(3) == 0)
        q = wk_head_norm(b, q, NULL, 16, 1e-5f); /* not the heads of attention */
    if (dice(4)) q = rope_of(b, q, dice(4) ? 8 : 16);
    if (dice(4)) k = rope_of(b, k, 8);
    if (dice(4) == 0) k = wk_head_norm(b, k, NULL, 8, 1e-5f); /* after the rope, where no pattern expects it */
    if (dice(8) == 0) {
        pool.reads[pool.n] = 1;
        put(q); /* read by others too */
    }
    const wk_value y = wk_attention(b, q, k, v, NULL, &a);
    put(y);
    if (dice(4)) return;
    a.slopes = NULL; /* another layer over the same cache */
    put(wk_attention_reuse(b, linear(b, y), y, NULL, &a));
}
static void experts(const struct wk_builder *b)
{
    struct wk_op_route route = { .k = K, .score = 1 + dice(WK_SCORE_END - 1), .flags = dice(2), .scale = 2 };
    const bool free_choice = route.score != WK_SCORE_SOFTMAX_TOPK, biased = free_choice && dice(2);
    if (free_choice && dice(2)) route.groups = 4, route.groups_used = 2, route.group_score = 1 + dice(2);
    wk_value x = pick(), r = wk_route_op(b, wk_linear(b, x, "r", X, WK_NONE), biased ? "pb.weight" : NULL, &route),
             y = wk_expert(b, dice(3) ? x : wk_mul(b, x, r), r, "e0", X, E, WK_NONE);
    switch (dice(4)) {
    case 0: y = wk_glu(b, WK_GLU_SILU, y, wk_expert(b, x, r, "e1", X, E, WK_NONE)); break;
    case 1: y = wk_gelu_tanh(b, y); break;
    case 2: y = wk_mul(b, dice(2) ? y : x, wk_slice_groups(b, y, 4, 2, 4)); break;
    default: y = wk_add(b, y, wk_expert(b, x, r, "e1", X, E, WK_NONE)); break;
    }
    if (dice(4) == 0) y = wk_rms_norm(b, y, NULL, 1e-5f);
    y = wk_expert(b, y, r, "e2", X, E, WK_NONE);
    put(wk_combine(b, dice(4) ? y : wk_mul(b, y, r), dice(3) ? r : wk_none()));
}
/* One to eight parts of E columns in all, in one group or more. */
static void parts(const struct wk_builder *b)
{
    struct wk_op_concat c = { .o = wk_op_head(sizeof c, WK_OP_CONCAT), .groups = dice(2) ? 0 : 2 };
    const uint32_t groups = c.groups ? c.groups : 1;
    uint32_t left = E / groups;
    for (uint32_t i = 0; left; i++) {
        const uint32_t n = i == 7 || left < 3 ? left : 1 + dice(left);
        const bool repeated = dice(3) == 0;
        c.repeated |= repeated ? 1u << i : 0;
        c.o.in[i] = wk_slice_groups(b, pick(), repeated ? 0 : groups, dice(E / groups - n + 1), n).id;
        left -= n;
    }
    put(wk_append(b, &c.o));
}
static wk_value constant(const struct wk_builder *b)
{
    return dice(2) ? wk_vector(b, "vec.weight", 1, E) : wk_embed_row(b, "type_embd", 3, E, dice(3));
}
static void sequence_state(const struct wk_builder *b)
{
    wk_value x = pick(), q = linear(b, x), k = dice(2) ? linear(b, x) : q,
             v = dice(2) ? wk_conv(b, linear(b, x), "conv", 4, WK_OPTIONAL) : x;
    const uint32_t heads = dice(2) ? 4 : 8;
    const wk_value decay = wk_slice(b, linear(b, x), 0, heads);
    if (dice(2))
        put(wk_scan(b, q, k, v, decay, heads, 4));
    else
        put(wk_delta(b, q, k, v, decay, wk_unary(b, wk_slice(b, x, 0, heads), WK_UNARY_SIGMOID, 0), heads, 2));
}
static void step(const struct wk_builder *b)
{
    wk_value x;
    switch (dice(17)) {
    case 0:
    case 1: put(linear(b, pick())); break;
    case 2: x = pick(), put(linear(b, x)), put(linear(b, x)); break;
    case 3: put(wk_rms_norm(b, pick(), dice(2) ? "n" : NULL, 1e-5f)); break;
    case 4:
    case 5: x = pick(), put(wk_add(b, x, pick())); break;
    case 6: x = pick(), put(wk_binary(b, WK_OP_MUL, x, wk_linear(b, pick(), "one", 1, WK_NONE))); break;
    case 7: put(wk_unary(b, pick(), 1 + dice(WK_UNARY_END - 2), 2)); break;
    case 8: x = pick(), put(wk_glu(b, WK_GLU_GELU_TANH, linear(b, x), linear(b, dice(4) ? x : pick()))); break;
    case 9: attention(b); break;
    case 14: put(wk_linear_heads(b, pick(), "heads", 4, E / 4)); break;
    case 10: experts(b); break;
    case 11: parts(b); break;
    case 12: x = pick(), put(dice(2) ? wk_add(b, x, constant(b)) : wk_mul(b, x, constant(b))); break;
    case 13: x = pick(), put(wk_mul(b, linear(b, x), wk_slice(b, pick(), dice(8), 4))); break;
    case 15: sequence_state(b); break;
    default: x = wk_rms_norm(b, pick(), "n", 1e-5f), put(wk_add(b, linear(b, x), pick())); break;
    }
}

static uint32_t tape_seed;
static void record(const struct wk_builder *b, const void *model)
{
    (void)model;
    seed = tape_seed;
    memset(&pool, 0, sizeof pool);
    put(wk_embed(b, "token_embd", T_V, E));
    if (dice(2)) {
        wk_value p = wk_scale(b, wk_embed_pos(b, "position_embd", T_C, E, 0), 2);
        pool.reads[0]++;
        put(wk_add(b, pool.v[0], p));
    }
    uint32_t steps = 3 + dice(40);
    for (uint32_t i = 0; i < steps; i++) {
        wk_layer(b, i / 8);
        step(b);
    }
    wk_end_layers(b);
    wk_value x = pool.v[pool.n - 1];
    for (uint32_t i = 0; i + 1 < pool.n; i++)
        if (!pool.reads[i]) x = wk_add(b, pool.v[i], x);
    if (dice(3) == 0) {
        wk_value y = wk_pool(b, x, WK_POOL_LAST);
        if (dice(2)) y = wk_unary(b, wk_linear(b, y, "token_embd", T_V, WK_NONE), WK_UNARY_TANH, 0);
        wk_embedding(b, dice(3) ? y : wk_add(b, y, y), 0);
    }
    x = wk_linear(b, dice(2) ? wk_rms_norm(b, x, NULL, 1e-5f) : x, "token_embd", T_V, WK_NONE);
    wk_logits(b, dice(3) ? x : wk_softcap(b, x, 30));
}

static wk_status open_nothing(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)meta, (void)err;
    *model = NULL;
    return WK_OK;
}
static void close_nothing(void *model) { (void)model; }
static const char *const arch_names[] = { "random" }, *const arch_ignored[] = {
    "*"
}; /* a tape uses what it likes of the file */
static const struct wk_arch arch = { .struct_size = sizeof arch,
                                     .n_names = 1,
                                     .names = arch_names,
                                     .open = open_nothing,
                                     .record = record,
                                     .close = close_nothing,
                                     .ignored = arch_ignored,
                                     .n_ignored = 1 };

static struct gguf *make_file(struct gguf_build **out)
{
    struct gguf_build *g = *out = gguf_build_new("random");
    gguf_build_u32(g, "random.context_length", T_C);
    gguf_build_floats(g, "token_embd.weight", T_V, E, 1, NULL);
    gguf_build_floats(g, "position_embd.weight", T_C, E, 1, NULL);
    for (unsigned l = 0; l < 6; l++) {
        static const struct {
            const char *name;
            uint32_t rows, cols, slabs;
        } t[] = { { "w0", E, E, 1 },        { "w1", E, E, 1 },
                  { "w2", E, E, 1 },        { "w3", E, E, 1 },
                  { "w4", E, E, 1 },        { "w5", E, E, 1 },
                  { "r", X, E, 1 },         { "e0", E, E, X },
                  { "e1", E, E, X },        { "e2", E, E, X },
                  { "n", 1, E, 1 },         { "n8", 1, 8, 1 },
                  { "one", 1, E, 1 },       { "heads", E / 4, E / 4, 4 },
                  { "vec", 1, E, 1 },       { "pb", 1, X, 1 },
                  { "type_embd", 3, E, 1 }, { "conv", E, 4, 1 } };
        for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
            char name[40];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, t[i].name);
            gguf_build_floats(g, name, t[i].rows, t[i].cols, t[i].slabs, NULL);
        }
    }
    return gguf_build_open(g);
}

static void random_tapes(void **state)
{
    (void)state;
    struct gguf_build *g;
    struct gguf *file = make_file(&g);
    uint32_t fewest = 0, launches = 0;
    for (tape_seed = 1; tape_seed <= TAPES; tape_seed++) {
        struct tape_options o = test_options();
        char digest[65] = "", other[65];
        for (uint32_t mask = 0; mask < 12; mask++) { /* all, none, and each off alone */
            o.fuse = mask == 0 ? FUSE_ALL : mask == 1 ? 0 : FUSE_ALL & ~(1u << (mask - 2));
            struct tape_program *p = test_record(&arch, file, &o);
            test_check_program(p);
            if (mask == 0) fewest = p->n_launches, launches += fewest;
            assert_true(p->n_launches >= fewest || mask > 1);
            tape_digest(p, other);
            if (mask) assert_string_equal(digest, other);
            memcpy(digest, other, sizeof digest);
            char tap[3][TAPE_NAME];
            const char *taps[3];
            for (int i = 0; i < 3; i++) {
                uint32_t v = (tape_seed * 7919u + mask * 104729u + (uint32_t)i * 31u) % p->n_values;
                if (p->values[v].pooled || p->ops[p->values[v].op].kind == WK_OP_VECTOR) v = 0;
                memcpy(tap[i], p->values[v].name, sizeof tap[i]);
                taps[i] = tap[i];
            }
            tape_free(p);
            o.taps = taps;
            o.n_taps = 3;
            p = test_record(&arch, file, &o);
            test_check_program(p);
            tape_free(p);
            o.n_taps = 0;
        }
    }
    print_message("%u tapes, %u launches when all fusions are on\n", (unsigned)TAPES, (unsigned)launches);
    gguf_close(file);
    gguf_build_free(g);
}

#define FIELD(kind, field) { WK_OP_##kind, offsetof(struct tape_op, u.field), #field }
static const struct {
    uint16_t kind;
    size_t at;
    const char *name;
} fields[] = {
    FIELD(EMBED, embed.index),
    FIELD(EMBED, embed.offset),
    FIELD(LINEAR, linear.first),
    FIELD(LINEAR, linear.n),
    FIELD(EXPERT, linear.first),
    FIELD(EXPERT, linear.n),
    FIELD(EXPERT, linear.slabs),
    FIELD(LINEAR_HEADS, linear.first),
    FIELD(LINEAR_HEADS, linear.n),
    FIELD(LINEAR_HEADS, linear.slabs),
    FIELD(NORM, norm.kind),
    FIELD(NORM, norm.group),
    FIELD(NORM, norm.eps),
    FIELD(ROPE, rope.head),
    FIELD(ROPE, rope.style),
    FIELD(ROPE, rope.temperature),
    FIELD(ROPE, rope.temperature_length),
    FIELD(ATTENTION, attn.kv_heads),
    FIELD(ATTENTION, attn.head_k),
    FIELD(ATTENTION, attn.head_v),
    FIELD(ATTENTION, attn.scale),
    FIELD(ATTENTION, attn.softcap),
    FIELD(ATTENTION, attn.window),
    FIELD(ATTENTION, attn.chunk),
    FIELD(ATTENTION, attn.flags),
    FIELD(ATTENTION, attn.value_in_key),
    FIELD(ATTENTION, attn.kv_layer),
    FIELD(UNARY, unary.fn),
    FIELD(UNARY, unary.p),
    FIELD(GLU, glu.fn),
    FIELD(GLU, glu.alpha),
    FIELD(GLU, glu.limit),
    FIELD(SLICE, slice.first),
    FIELD(SLICE, slice.n),
    FIELD(SLICE, slice.groups),
    FIELD(CONCAT, concat.groups),
    FIELD(CONCAT, concat.repeated),
    FIELD(STATE, state.kind),
    FIELD(STATE, state.kernel),
    FIELD(STATE, state.heads),
    FIELD(STATE, state.groups),
    FIELD(ROUTE, route.k),
    FIELD(ROUTE, route.score),
    FIELD(ROUTE, route.scale),
    FIELD(ROUTE, route.flags),
    FIELD(ROUTE, route.groups),
    FIELD(ROUTE, route.groups_used),
    FIELD(ROUTE, route.group_score),
    FIELD(POOL, pool.how),
    FIELD(OUTPUT, output.what),
    FIELD(OUTPUT, output.flags),
};
#undef FIELD

/* Every number of an operation is in the digest. (heads and pairs say how long other lists are.) */
static void digest_has_every_number(void **state)
{
    (void)state;
    struct gguf_build *g;
    struct gguf *file = make_file(&g);
    const struct tape_options o = test_options();
    bool seen[WK_OP_END] = { false };
    for (tape_seed = 1; tape_seed <= TAPES; tape_seed++) {
        struct tape_program *p = test_record(&arch, file, &o);
        char digest[65], other[65];
        tape_digest(p, digest);
        for (uint32_t i = 0; i < p->n_ops; i++) {
            if (seen[p->ops[i].kind]) continue;
            seen[p->ops[i].kind] = true;
            for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
                if (fields[k].kind != p->ops[i].kind) continue;
                unsigned char *byte = (unsigned char *)&p->ops[i] + fields[k].at;
                *byte ^= 1;
                tape_digest(p, other);
                *byte ^= 1;
                if (!strcmp(digest, other)) fail_msg("%s is not in the digest", fields[k].name);
            }
        }
        tape_free(p);
    }
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        if (!seen[fields[k].kind]) fail_msg("no tape has %s", fields[k].name);
    gguf_close(file);
    gguf_build_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_tapes), cmocka_unit_test(digest_has_every_number) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
