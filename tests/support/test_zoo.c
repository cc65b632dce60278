/* test_zoo.c: files of the models that test_zoo_record.c records, and pages for their steps. Types of tensors follow
 * from their columns, so that every model mixes several. */
#include "test_zoo_record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/format.h"
#include "device/kv_pages.h"
#include "gguf_build.h"

#include <cmocka.h>

const char *zoo_name(enum zoo_kind kind)
{
    static const char *const names[ZOO_KINDS] = { "dense",  "learned", "experts", "embedding", "wide",
                                                  "maps",   "windows", "routes",  "heads",     "classes",
                                                  "states", "hybrid",  "chunks",  "latent",    "both" };
    return names[kind];
}

/* ---- files --------------------------------------------------------------------------------------------- */

static uint64_t seed;
static double uniform(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 11) / (double)(1ull << 53);
}
static float noise(void) { return (float)((uniform() + uniform() + uniform() + uniform() - 2.0) * 1.73); }

/* rows x cols x slabs of deviation `scale` around `mean`, in a type that the columns allow. */
static void put(struct gguf_build *g, const struct plugin_registry *plugins, const char *name, uint32_t rows,
                uint32_t cols, uint32_t slabs, float mean, float scale, bool plain)
{
    enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q5_0 = 6, TYPE_Q8_0 = 8, TYPE_Q4_K = 12, TYPE_Q6_K = 14 };
    static uint32_t turn;
    const size_t n = (size_t)rows * cols * slabs;
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) v[i] = mean + scale * noise();
    if (!strcmp(name, "token_embd.weight") && plain && rows > ZOO_BAD_TOKEN)
        for (uint32_t i = 0; i < cols; i++) v[(size_t)ZOO_BAD_TOKEN * cols + i] = INFINITY;
    turn++;
    const uint32_t type = plain             ? TYPE_F32
                          : cols % 256 == 0 ? (turn % 2 ? TYPE_Q4_K : TYPE_Q6_K)
                          : cols % 32 == 0  ? (turn % 2 ? TYPE_Q5_0 : TYPE_Q8_0)
                                            : TYPE_F16;
    const struct wk_type_cpu *t = plugin_find_type(plugins, type, NULL);
    if (!t) fail_msg("no plugin serves type %u", type);
    const size_t bytes = n / t->block * t->block_bytes;
    void *blocks = malloc(bytes);
    assert_non_null(blocks);
    if (type == TYPE_F32)
        memcpy(blocks, v, bytes);
    else
        assert_int_equal(format_quantize(t, blocks, v, n, NULL), WK_OK);
    gguf_build_tensor(g, name, type, rows, cols, slabs, blocks, bytes);
    free(blocks);
    free(v);
}

struct shape {
    const char *name;
    uint32_t rows, cols, slabs;
};

static void put_all(struct gguf_build *g, const struct plugin_registry *plugins, enum zoo_kind kind,
                    const struct shape *s, uint32_t n, uint32_t layers)
{
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t i = 0; i < n; i++) {
            char name[64];
            const bool weight = s[i].rows > 1 && strstr(s[i].name, "bias") == NULL,
                       norm = strstr(s[i].name, "norm.weight") != NULL;
            if (strncmp(s[i].name, "blk.", 4)) {
                if (l) continue;
                (void)snprintf(name, sizeof name, "%s", s[i].name);
            } else
                (void)snprintf(name, sizeof name, "blk.%u.%s", l, s[i].name + 4);
            /* The router is F32 as in real files; so are tables that are no head too. */
            const bool plain =
                !weight || strstr(name, "gate_inp") || (strstr(name, "_embd.weight") && kind != ZOO_DENSE);
            const float scale = !weight                 ? (norm ? 0.2f : 0.3f)
                                : strstr(name, "_embd") ? 1.0f
                                                        : 1.0f / sqrtf((float)s[i].cols);
            put(g, plugins, name, s[i].rows, s[i].cols, s[i].slabs, norm ? 1.0f : 0.0f, scale, plain);
        }
}

static const struct shape dense_shapes[] = {
    { "token_embd.weight", V, E, 1 },       { "output_norm.weight", 1, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },    { "blk.attn_qkv.weight", 200, E, 1 },
    { "blk.attn_qkv.bias", 1, 200, 1 },     { "blk.attn_q_norm.weight", 1, 20, 1 },
    { "blk.attn_k_norm.weight", 1, 20, 1 }, { "blk.attn_output.weight", E, 120, 1 },
    { "blk.attn_output.bias", 1, E, 1 },    { "blk.post_norm.weight", 1, E, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },     { "blk.ffn_gate.weight", F, E, 1 },
    { "blk.ffn_up.weight", F, E, 1 },       { "blk.ffn_down.weight", E, F, 1 },
};
static const struct shape learned_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "position_embd.weight", ZOO_CONTEXT, E, 1 },
    { "output_norm.weight", 1, E, 1 },   { "output_norm.bias", 1, E, 1 },
    { "output.weight", V, E, 1 },        { "output.bias", 1, V, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_norm.bias", 1, E, 1 },
    { "blk.attn_q.weight", 64, E, 1 },   { "blk.attn_q.bias", 1, 64, 1 },
    { "blk.attn_k.weight", 64, E, 1 },   { "blk.attn_v.weight", 96, E, 1 },
    { "blk.attn_v.bias", 1, 96, 1 },     { "blk.attn_output.weight", E, 96, 1 },
    { "blk.attn_output.bias", 1, E, 1 }, { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_norm.bias", 1, E, 1 },    { "blk.ffn_up.weight", F, E, 1 },
    { "blk.ffn_up.bias", 1, F, 1 },      { "blk.ffn_down.weight", E, F, 1 },
    { "blk.ffn_down.bias", 1, E, 1 },    { "blk.gate.weight", 1, E, 1 },
    { "blk.gate.bias", 1, 1, 1 },        { "blk.mix.weight", E, E / 2, 1 },
};
static const struct shape experts_shapes[] = {
    { "token_embd.weight", V, E, 1 },
    { "output_norm.weight", 1, E, 1 },
    { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },
    { "blk.attn_q.weight", 256, E, 1 },
    { "blk.attn_q.bias", 1, 256, 1 },
    { "blk.attn_k.weight", 64, E, 1 },
    { "blk.attn_k.bias", 1, 64, 1 },
    { "blk.attn_v.weight", 64, E, 1 },
    { "blk.attn_v.bias", 1, 64, 1 },
    { "blk.attn_sinks.weight", 1, 8, 1 },
    { "blk.attn_output.weight", E, 256, 1 },
    { "blk.attn_output.bias", 1, E, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_gate_inp.weight", X, E, 1 },
    { "blk.ffn_gate_inp.bias", 1, X, 1 },
    { "blk.ffn_gate_exps.weight", F, E, X },
    { "blk.ffn_up_exps.weight", F, E, X },
    { "blk.ffn_down_exps.weight", E, F, X },
};
static const struct shape embedding_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "output_norm.weight", 1, E, 1 },       { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_q.weight", 128, E, 1 },      { "blk.attn_k.weight", 64, E, 1 },
    { "blk.attn_v.weight", 64, E, 1 },   { "blk.attn_output.weight", E, 128, 1 },
};
static const struct shape wide_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "output_norm.weight", 1, E, 1 },       { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_q.weight", 352, E, 1 },      { "blk.attn_k.weight", 32, E, 1 },
    { "blk.attn_v.weight", 32, E, 1 },   { "blk.attn_output.weight", E, 352, 1 },
};

static const struct shape routes_shapes[] = {
    { "token_embd.weight", V, E, 1 },
    { "position_embd.weight", ZOO_CONTEXT, E, 1 },
    { "type_embd.weight", 3, E, 1 },
    { "output_norm.weight", 1, E, 1 },
    { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },
    { "blk.attn_q.weight", 128, E, 1 },
    { "blk.attn_kv.weight", 96, E, 1 },
    { "blk.head_gate.weight", 4, E, 1 },
    { "blk.attn_output.weight", E, 96, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_gate_inp.weight", RX, E, 1 },
    { "blk.ffn_gate_up_exps.weight", 2 * RF, E, RX },
    { "blk.ffn_down_exps.weight", E, RF, RX },
};

/* What is no matrix, and what one layer has. */
static void put_routes(struct gguf_build *g, const struct plugin_registry *plugins)
{
    put_all(g, plugins, ZOO_ROUTES, routes_shapes, sizeof routes_shapes / sizeof *routes_shapes, ROUTES);
    for (uint32_t l = 0; l < ROUTES; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.head_gain", l);
        put(g, plugins, name, 4, 1, 1, 1, 0.2f, true);
        (void)snprintf(name, sizeof name, "blk.%u.layer_bias", l);
        put(g, plugins, name, 1, E, 1, 0, 0.3f, true);
        (void)snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", l);
        if (zoo_biased(l)) put(g, plugins, name, 1, RX, 1, 0, 0.2f, true);
    }
    put(g, plugins, "blk.0.mix.weight", E, 192, 1, 0, 0.07f, false);
    put(g, plugins, "blk.0.mix_gate.weight", 4, E, 1, 0, 0.06f, false);
    put(g, plugins, "blk.2.expert_gain", 1, RF, 1, 1, 0.2f, true);
}

static const struct shape heads_shapes[] = {
    { "token_embd.weight", V, E, 1 },        { "output_norm.weight", 1, E, 1 },  { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },     { "blk.attn_q.weight", 128, E, 1 }, { "blk.attn_k_b.weight", 64, 32, 4 },
    { "blk.attn_k.weight", 64, E, 1 },       { "blk.attn_v.weight", 64, E, 1 },  { "blk.attn_v_b.weight", 32, 64, 4 },
    { "blk.attn_output.weight", E, 128, 1 },
};

static const struct shape states_shapes[] = {
    { "token_embd.weight", V, E, 1 },     { "output_norm.weight", 1, E, 1 },  { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },  { "blk.ssm_in.weight", 156, E, 1 }, { "blk.ssm_conv1d.weight", 156, 4, 1 },
    { "blk.ssm_conv1d.bias", 1, 156, 1 }, { "blk.ssm_k.weight", 36, E, 1 },   { "blk.conv_long.weight", 36, 40, 1 },
    { "blk.ssm_dt.weight", 6, E, 1 },     { "blk.ssm_dt.bias", 1, 6, 1 },     { "blk.k_norm.weight", 1, 18, 1 },
    { "blk.ssm_out.weight", E, 120, 1 },
};

static void put_layers(struct gguf_build *g, const struct plugin_registry *plugins, const struct attend_layers *layers)
{
    put(g, plugins, "token_embd.weight", V, E, 1, 0, 1.0f, true);
    put(g, plugins, "output_norm.weight", 1, E, 1, 1.0f, 0.2f, true);
    put(g, plugins, "output.weight", V, E, 1, 0, 0.06f, false);
    if (layers == &zoo_both) put(g, plugins, "type_embd.weight", 2, E, 1, 0, 1.0f, true);
    for (uint32_t l = 0; l < layers->n; l++) {
        const struct attend_layer *a = &layers->layer[l];
        const uint32_t kv = a->reuse ? 0 : a->kv_heads * a->head,
                       out = a->heads * (a->value_in_key ? a->value_in_key : a->head);
        const struct {
            const char *name;
            uint32_t rows, cols;
            float mean, scale;
        } tensors[] = { { "attn_norm", 1, E, 1.0f, 0.2f },
                        { "attn_q", a->heads * a->head, E, 0, 0.06f },
                        { "attn_k", kv, E, 0, 0.06f },
                        { "attn_v", a->value_in_key ? 0 : kv, E, 0, 0.06f },
                        { "attn_sinks", a->sinks, a->heads, 0, 0.3f },
                        { "attn_output", E, out, 0, 1.0f / sqrtf((float)out) } };
        for (uint32_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, tensors[i].name);
            if (tensors[i].rows)
                put(g, plugins, name, tensors[i].rows, tensors[i].cols, 1, tensors[i].mean, tensors[i].scale,
                    tensors[i].rows == 1);
        }
    }
}

static struct gguf_build *build_file(enum zoo_kind kind, const struct plugin_registry *plugins)
{
#define SHAPES(s) s, sizeof s / sizeof *s
    struct gguf_build *g = gguf_build_new("zoo");
    seed = 77 + (uint64_t)kind;
    switch (kind) {
    case ZOO_DENSE: put_all(g, plugins, kind, SHAPES(dense_shapes), L); break;
    case ZOO_LEARNED:
        put_all(g, plugins, kind, SHAPES(learned_shapes), L);
        for (uint32_t l = 0; l < L; l++) {
            put(g, plugins, l ? "blk.1.swirl.shift" : "blk.0.swirl.shift", 1, E / 2, 1, 0, 0.3f, true);
            put(g, plugins, l ? "blk.1.swirl.factor" : "blk.0.swirl.factor", 1, 1, 1, 0.5f, 0.1f, true);
        }
        break;
    case ZOO_MAPS: put_all(g, plugins, kind, SHAPES(learned_shapes), L); break;
    case ZOO_HEADS:
        put_all(g, plugins, kind, SHAPES(heads_shapes), 1);
        put(g, plugins, "blk.1.attn_norm.weight", 1, E, 1, 1.0f, 0.2f, true);
        put(g, plugins, "blk.1.attn_q.weight", 75, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.1.attn_k_b.weight", 40, 25, 3, 0, 0.2f, false);
        put(g, plugins, "blk.1.attn_k.weight", 40, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.1.attn_v.weight", 40, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.1.attn_v_b.weight", 25, 40, 3, 0, 0.16f, false);
        put(g, plugins, "blk.1.attn_output.weight", E, 75, 1, 0, 0.12f, true);
        break;
    case ZOO_EXPERTS:
        put_all(g, plugins, kind, SHAPES(experts_shapes), 3);
        put(g, plugins, "blk.0.ffn_gate_exps.bias", X, F, 1, 0, 0.3f, true);
        put(g, plugins, "blk.0.ffn_up_exps.bias", X, F, 1, 0, 0.3f, true);
        put(g, plugins, "blk.0.ffn_down_exps.bias", X, E, 1, 0, 0.3f, true);
        put(g, plugins, "blk.2.shared_gate.weight", 1, E, 1, 0, 0.06f, true);
        put(g, plugins, "blk.2.ffn_gate.weight", F, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.2.ffn_up.weight", F, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.2.ffn_down.weight", E, F, 1, 0, 0.06f, false);
        break;
    case ZOO_CLASSES:
        put(g, plugins, "cls.weight", E, E, 1, 0, 0.06f, false);
        put(g, plugins, "cls.bias", 1, E, 1, 0, 0.3f, true);
        put(g, plugins, "cls_out.weight", 3, E, 1, 0, 0.06f, false);
        put(g, plugins, "cls_out.bias", 1, 3, 1, 0, 0.3f, true);
        put_all(g, plugins, kind, SHAPES(embedding_shapes), 1);
        break;
    case ZOO_STATES:
        put_all(g, plugins, kind, SHAPES(states_shapes), L);
        put(g, plugins, "blk.0.ssm_beta_wide.weight", 120, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.1.ssm_beta.weight", 6, E, 1, 0, 0.06f, false);
        break;
    case ZOO_HYBRID:
        put_all(g, plugins, kind, SHAPES(embedding_shapes), 3);
        put(g, plugins, "blk.1.conv_one.weight", 128, 1, 1, 1, 0.3f, true);
        break;
    case ZOO_EMBEDDING: put_all(g, plugins, kind, SHAPES(embedding_shapes), 1); break;
    case ZOO_ROUTES: put_routes(g, plugins); break;
    case ZOO_WINDOWS: put_all(g, plugins, kind, SHAPES(embedding_shapes), WINDOWS); break;
    case ZOO_CHUNKS: put_layers(g, plugins, &zoo_chunks); break;
    case ZOO_LATENT: put_layers(g, plugins, &zoo_latent); break;
    case ZOO_BOTH: put_layers(g, plugins, &zoo_both); break;
    default: put_all(g, plugins, kind, SHAPES(wide_shapes), 1); break;
    }
    return g;
}

static const struct wk_type_cpu *find_type(void *user, uint32_t type) { return plugin_find_type(user, type, NULL); }
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

struct tape_program *zoo_record(const struct gguf *file, enum zoo_kind kind, const struct plugin_registry *plugins,
                                uint32_t fuse, const char *const *taps, uint32_t n_taps)
{
    static char text[4096];
    const struct wk_err err = { text, sizeof text };
    struct tape_program *p;
    const struct tape_options o = { .context = ZOO_CONTEXT,
                                    .fuse = fuse,
                                    .taps = taps,
                                    .n_taps = n_taps,
                                    .find_type = find_type,
                                    .describe_types = describe_types,
                                    .user = (void *)(uintptr_t)plugins };
    if (tape_record(&zoo_archs[kind], file, &o, &p, &err)) fail_msg("%s: %s", zoo_name(kind), text);
    return p;
}

/* Each kind's file, made when first asked for: quantizing takes longer than the tests. */
static struct {
    struct gguf_build *build;
    struct gguf *file;
    const void *bytes;
    size_t size;
} files[ZOO_KINDS];

void zoo_open(struct zoo *z, enum zoo_kind kind, const struct plugin_registry *plugins, uint32_t fuse,
              const char *const *taps, uint32_t n_taps)
{
    if (!files[kind].build) {
        files[kind].build = build_file(kind, plugins);
        files[kind].bytes = gguf_build_bytes(files[kind].build, &files[kind].size);
        if (gguf_open_memory(files[kind].bytes, files[kind].size, zoo_name(kind), &files[kind].file, NULL))
            fail_msg("%s: cannot open what was built", zoo_name(kind));
    }
    z->file = files[kind].file;
    z->program = zoo_record(z->file, kind, plugins, fuse, taps, n_taps);
}

void zoo_close(struct zoo *z) { tape_free(z->program); }

void zoo_free(void)
{
    for (uint32_t k = 0; k < ZOO_KINDS; k++) {
        gguf_close(files[k].file);
        gguf_build_free(files[k].build);
    }
}

void zoo_save(enum zoo_kind kind, const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(files[kind].bytes, 1, files[kind].size, f), files[kind].size);
    assert_int_equal(fclose(f), 0);
}

/* ---- pages --------------------------------------------------------------------------------------------- */

enum { BLOCKS = ZOO_CONTEXT / KV_PAGE };

void zoo_pages_open(struct zoo_pages *p, const struct tape_program *program, const struct memory_plan *plan,
                    uint32_t order)
{
    *p = (struct zoo_pages){ .program = program };
    for (uint32_t g = 0; g < program->n_groups; g++) {
        const uint32_t n = p->n_free[g] = plan->kv_pages[g];
        uint32_t *ids = p->free[g] = calloc(n, sizeof *ids);
        assert_non_null(ids);
        for (uint32_t i = 0; i < n; i++) ids[i] = n - 1 - i;
        for (uint32_t i = n - 1; order && i > 0; i--) {
            order = order * 1664525u + 1013904223u;
            const uint32_t j = (order >> 8) % (i + 1), id = ids[i];
            ids[i] = ids[j];
            ids[j] = id;
        }
    }
}

void zoo_pages_close(struct zoo_pages *p)
{
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(p->free[g]);
}

void zoo_tables_open(struct zoo_tables *t, uint32_t n_groups)
{
    *t = (struct zoo_tables){ 0 };
    for (uint32_t g = 0; g < n_groups; g++) {
        t->tables[g] = t->pages[g] = malloc(BLOCKS * sizeof **t->pages);
        assert_non_null(t->pages[g]);
        memset(t->pages[g], 0xff, BLOCKS * sizeof **t->pages);
    }
}

void zoo_tables_close(struct zoo_tables *t)
{
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(t->pages[g]);
}

/* Does rows [position, position + n) need a page of this block of states? Beside the one that they begin from and the
 * last it may be there, and be kept then, or not. */
static bool holds_state(uint32_t block, uint32_t position, uint32_t n)
{
    const uint32_t last = n ? (position + n - 1) / KV_PAGE : 0;
    return block * KV_PAGE < position || block == last || (last - block) % 3 == 1;
}

void zoo_hold(struct zoo_pages *p, struct zoo_tables *t, uint32_t position, uint32_t n, uint32_t back)
{
    for (uint32_t g = 0; g < p->program->n_groups; g++) {
        const bool state = p->program->groups[g].state;
        const struct kv_span span = kv_span(&p->program->groups[g], ZOO_CONTEXT);
        const uint32_t from = kv_first(span, position > back ? position - back : 0) / KV_PAGE,
                       end = (uint32_t)kv_pages_of(position + n);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            if ((i >= from && i < end) || t->pages[g][i] == KV_NO_PAGE) continue;
            p->free[g][p->n_free[g]++] = t->pages[g][i];
            t->pages[g][i] = KV_NO_PAGE;
        }
        for (uint32_t i = from; i < end; i++) {
            if (t->pages[g][i] != KV_NO_PAGE || (state && !holds_state(i, position, n))) continue;
            if (!p->n_free[g]) fail_msg("group %u has too few pages for %u rows at %u", g, n, position);
            t->pages[g][i] = p->free[g][--p->n_free[g]];
        }
    }
}
