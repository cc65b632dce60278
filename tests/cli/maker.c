/* maker.c: GGUF v3 files for tests, written independently of the product's own writer. */
#include "maker.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { U32 = 4, F32 = 6, TEXT = 8, ARRAY = 9, ALIGN = 32 };

struct maker {
    char *meta, *info;
    FILE *metadata, *tensors, *data; /* data: a temporary file */
    size_t meta_len, info_len;
    uint64_t n_kv, n_tensors, offset;
    uint32_t random;
    bool hollow; /* tensors' bytes are not written */
};

static void put(FILE *f, const void *bytes, size_t n) { assert_int_equal(fwrite(bytes, 1, n, f), n); }
static void put_u32(FILE *f, uint32_t v) { put(f, &v, sizeof v); }
static void put_u64(FILE *f, uint64_t v) { put(f, &v, sizeof v); }
static void put_text(FILE *f, const char *text)
{
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

static void begin(struct maker *m)
{
    *m = (struct maker){ .random = 42 };
    m->metadata = open_memstream(&m->meta, &m->meta_len);
    m->tensors = open_memstream(&m->info, &m->info_len);
    m->data = tmpfile();
    assert_true(m->metadata && m->tensors && m->data);
}

static void key(struct maker *m, const char *name, uint32_t type)
{
    put_text(m->metadata, name);
    put_u32(m->metadata, type);
    m->n_kv++;
}

static void key_u32(struct maker *m, const char *name, uint32_t value)
{
    key(m, name, U32);
    put_u32(m->metadata, value);
}

static void key_f32(struct maker *m, const char *name, float value)
{
    key(m, name, F32);
    put(m->metadata, &value, sizeof value);
}

static void key_text(struct maker *m, const char *name, const char *value)
{
    key(m, name, TEXT);
    put_text(m->metadata, value);
}

static void key_array(struct maker *m, const char *name, uint32_t element, uint64_t n)
{
    key(m, name, ARRAY);
    put_u32(m->metadata, element);
    put_u64(m->metadata, n);
}

/* About uniform in -1..1 (Numerical Recipes' generator). */
static float random_weight(struct maker *m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return (float)((double)(m->random >> 8) / 8388608.0 - 1.0);
}

/* amplitude 0: all `constant`. nan_at < 0: none. */
static void tensor(struct maker *m, const char *name, uint32_t type, uint32_t ne0, uint32_t ne1, float amplitude,
                   float constant, int nan_at)
{
    const uint64_t n = (uint64_t)ne0 * (ne1 ? ne1 : 1);
    put_text(m->tensors, name);
    put_u32(m->tensors, ne1 ? 2 : 1);
    put_u64(m->tensors, ne0);
    if (ne1) put_u64(m->tensors, ne1);
    put_u32(m->tensors, type);
    put_u64(m->tensors, m->offset);
    m->n_tensors++;
    for (uint64_t i = 0; i < n && !m->hollow; i++) {
        const float v = nan_at >= 0 && i == (uint64_t)nan_at ? NAN
                        : amplitude > 0                      ? amplitude * random_weight(m)
                                                             : constant;
        put(m->data, &v, sizeof v);
    }
    m->offset += n * sizeof(float);
    for (; m->offset % ALIGN; m->offset++)
        if (!m->hollow) put(m->data, "", 1);
}

static void finish(struct maker *m, const char *path)
{
    char buffer[65536];
    size_t n;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fclose(m->metadata) | fclose(m->tensors), 0);
    put(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, m->n_tensors);
    put_u64(out, m->n_kv);
    put(out, m->meta, m->meta_len);
    put(out, m->info, m->info_len);
    for (size_t at = 24 + m->meta_len + m->info_len; at % ALIGN; at++) put(out, "", 1);
    const long start = ftell(out);
    rewind(m->data);
    while ((n = fread(buffer, 1, sizeof buffer, m->data)) > 0) put(out, buffer, n);
    assert_int_equal(fclose(out), 0);
    if (m->hollow) assert_int_equal(truncate(path, start + (off_t)m->offset), 0);
    (void)fclose(m->data);
    free(m->meta);
    free(m->info);
}

/* <unk> <s> </s>, then a token for each byte, then the space. */
static void byte_vocabulary(struct maker *m)
{
    char name[16];
    key_text(m, "tokenizer.ggml.model", "llama");
    key_array(m, "tokenizer.ggml.tokens", TEXT, TINY_VOCAB);
    put_text(m->metadata, "<unk>");
    put_text(m->metadata, "<s>");
    put_text(m->metadata, "</s>");
    for (unsigned b = 0; b < 256; b++) {
        (void)snprintf(name, sizeof name, "<0x%02X>", b);
        put_text(m->metadata, name);
    }
    put_text(m->metadata, "\xe2\x96\x81");
    key_array(m, "tokenizer.ggml.scores", F32, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) put(m->metadata, &(float){ 0 }, sizeof(float));
    key_array(m, "tokenizer.ggml.token_type", 5 /* I32 */, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++)
        put_u32(m->metadata, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1); /* unknown, control, byte, normal */
    key_u32(m, "tokenizer.ggml.bos_token_id", 1);
    key_u32(m, "tokenizer.ggml.eos_token_id", 2);
    key_u32(m, "tokenizer.ggml.unknown_token_id", 0);
}

void make_tiny(const struct tiny_model *t)
{
    struct maker m;
    const char *architecture = t->architecture ? t->architecture : "llama";
    char name[96];
    const uint32_t E = TINY_EMBED, F = t->hollow_ffn ? t->hollow_ffn : 64, V = TINY_VOCAB;
    begin(&m);
    m.hollow = t->hollow_ffn != 0;
    key_text(&m, "general.architecture", architecture);
    key_text(&m, "general.name", t->name ? t->name : "tiny");
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = { { "embedding_length", 32 },       { "block_count", 1 },
                    { "feed_forward_length", F },     { "attention.head_count", 2 },
                    { "attention.head_count_kv", 1 }, { "rope.dimension_count", 16 } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(name, sizeof name, "%s.%s", architecture, numbers[i].key);
        key_u32(&m, name, numbers[i].value);
    }
    (void)snprintf(name, sizeof name, "%s.context_length", architecture);
    key_u32(&m, name, t->context ? t->context : 64);
    (void)snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", architecture);
    key_f32(&m, name, 1e-5f);
    byte_vocabulary(&m);
    if (t->extra_key) key_u32(&m, t->extra_key, 7);
    if (t->chat_template) key_text(&m, "tokenizer.chat_template", t->chat_template);
    if (!t->vocabulary_only) {
        const int nan_at = t->nan_weight ? TINY_NAN_AT : -1;
        tensor(&m, "token_embd.weight", t->embedding_type, E, V, 1, 0, -1);
        tensor(&m, "blk.0.attn_norm.weight", 0, E, 0, 0, 1, -1);
        tensor(&m, "blk.0.attn_q.weight", 0, E, 32, 0.3f, 0, nan_at);
        tensor(&m, "blk.0.attn_k.weight", 0, E, 16, 0.3f, 0, -1);
        tensor(&m, "blk.0.attn_v.weight", 0, E, 16, 0.3f, 0, -1);
        tensor(&m, "blk.0.attn_output.weight", 0, 32, E, 0.3f, 0, -1);
        tensor(&m, "blk.0.ffn_norm.weight", 0, E, 0, 0, 1, -1);
        tensor(&m, "blk.0.ffn_gate.weight", 0, E, F, 0.3f, 0, -1);
        tensor(&m, "blk.0.ffn_up.weight", 0, E, F, 0.3f, 0, -1);
        tensor(&m, "blk.0.ffn_down.weight", 0, F, E, 0.3f, 0, -1);
        tensor(&m, "output_norm.weight", 0, E, 0, 0, 1, -1);
        tensor(&m, "output.weight", 0, E, V, 0.5f, 0, -1);
    }
    finish(&m, t->path);
}

void make_qwen_shape(const char *path)
{
    /* name, length of a row, rows (0: a vector) */
    static const struct {
        const char *name;
        uint32_t ne0, ne1;
    } layer[] = { { "attn_norm.weight", 896, 0 }, { "attn_q.weight", 896, 14 },      { "attn_q.bias", 896, 0 },
                  { "attn_k.weight", 896, 2 },    { "attn_k.bias", 128, 0 },         { "attn_v.weight", 896, 2 },
                  { "attn_v.bias", 128, 0 },      { "attn_output.weight", 896, 14 }, { "ffn_norm.weight", 896, 0 },
                  { "ffn_gate.weight", 896, 4 },  { "ffn_up.weight", 896, 4 },       { "ffn_down.weight", 4864, 4 } };
    struct maker m;
    char name[64];
    begin(&m);
    key_text(&m, "general.architecture", "qwen2");
    key_u32(&m, "qwen2.block_count", 24);
    tensor(&m, "token_embd.weight", 0, 896, 16, 0, 0.5f, -1);
    for (unsigned i = 0; i < 24; i++) {
        for (size_t k = 0; k < sizeof layer / sizeof *layer; k++) {
            (void)snprintf(name, sizeof name, "blk.%u.%s", i, layer[k].name);
            tensor(&m, name, 0, layer[k].ne0, layer[k].ne1, 0, 0.5f, -1);
        }
    }
    tensor(&m, "output_norm.weight", 0, 896, 0, 0, 1, -1);
    finish(&m, path);
}

void make_experts_apart(const char *path)
{
    static const char *const names[] = { "token_embd.weight",         "blk.0.attn_q.weight",
                                         "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate.0.weight",
                                         "blk.0.ffn_up.0.weight",     "blk.0.ffn_down.0.weight",
                                         "blk.0.ffn_gate.1.weight",   "blk.0.ffn_up.1.weight",
                                         "blk.0.ffn_down.1.weight",   "output.weight" };
    struct maker m;
    begin(&m);
    key_text(&m, "general.architecture", "llama");
    key_u32(&m, "llama.block_count", 1);
    key_u32(&m, "llama.expert_count", 2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tensor(&m, names[i], 0, 64, 2, 0.5f, 0, -1);
    finish(&m, path);
}

void make_zoo(const char *path)
{
    struct maker m;
    begin(&m);
    key_text(&m, "general.architecture", "zoo");
    key_u32(&m, "zoo.embedding_length", 8);
    tensor(&m, "token_embd.weight", 0, 8, 256, 1, 0, -1);
    tensor(&m, "output.weight", 0, 8, 256, 1, 0, -1);
    finish(&m, path);
}

void make_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    put(f, bytes, n);
    assert_int_equal(fclose(f), 0);
}

void make_truncated(const char *path, const char *from, size_t n)
{
    char *bytes = malloc(n);
    FILE *f = fopen(from, "rb");
    assert_true(bytes && f);
    assert_int_equal(fread(bytes, 1, n, f), n);
    (void)fclose(f);
    make_file(path, bytes, n);
    free(bytes);
}
