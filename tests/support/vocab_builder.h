/* vocab_builder.h: small vocabularies as GGUF bytes in memory, for tests and fuzz targets. */
#ifndef TESTS_SUPPORT_VOCAB_BUILDER_H
#define TESTS_SUPPORT_VOCAB_BUILDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

enum { BUILDER_TOKENS = 1024, BUILDER_MERGES = 1024 };

struct builder {
    const char *model, *pre, *name, *chat_template; /* NULL: key absent */
    struct {
        char text[64];
        uint32_t len;
        int32_t type;
        float score;
    } token[BUILDER_TOKENS];
    uint32_t n;
    char merge[BUILDER_MERGES][128];
    uint32_t n_merges;
    struct {
        const char *key;
        int64_t value;
        bool flag;
        const int64_t *list; /* not NULL: an array, value elements */
    } extra[16];             /* integers, or booleans */
    uint32_t n_extra;
    const uint8_t *map; /* tokenizer.ggml.precompiled_charsmap, [n_map] */
    size_t n_map;
    int32_t short_types, short_scores; /* entries to leave out of the parallel arrays; -1: no array at all */
    unsigned char *bytes;
    size_t size, cap;
};

static inline void builder_put(struct builder *b, const void *data, size_t n)
{
    if (!array_reserve((void **)&b->bytes, &b->cap, b->size + n, 1)) abort();
    if (n) memcpy(b->bytes + b->size, data, n);
    b->size += n;
}
static inline void builder_u32(struct builder *b, uint32_t v) { builder_put(b, &v, 4); }
static inline void builder_u64(struct builder *b, uint64_t v) { builder_put(b, &v, 8); }
static inline void builder_str(struct builder *b, const char *s, size_t n)
{
    builder_u64(b, n);
    builder_put(b, s, n);
}
static inline void builder_key(struct builder *b, const char *key, uint32_t type)
{
    builder_str(b, key, strlen(key));
    builder_u32(b, type);
}
static inline void builder_text(struct builder *b, const char *key, const char *value)
{
    if (!value) return;
    builder_key(b, key, GGUF_STRING);
    builder_str(b, value, strlen(value));
}
static inline void builder_array(struct builder *b, const char *key, uint32_t type, uint64_t n)
{
    builder_key(b, key, GGUF_ARRAY);
    builder_u32(b, type);
    builder_u64(b, n);
}

static inline uint32_t builder_token_bytes(struct builder *b, const void *text, size_t len, int32_t type, float score)
{
    memcpy(b->token[b->n].text, text, len);
    b->token[b->n].len = (uint32_t)len;
    b->token[b->n].type = type;
    b->token[b->n].score = score;
    return b->n++;
}
static inline uint32_t builder_token(struct builder *b, const char *text, int32_t type, float score)
{
    return builder_token_bytes(b, text, strlen(text), type, score);
}
static inline void builder_merge(struct builder *b, const char *left, const char *right)
{
    char joined[128];
    (void)snprintf(joined, sizeof joined, "%s%s", left, right);
    (void)snprintf(b->merge[b->n_merges++], sizeof b->merge[0], "%s %s", left, right);
    builder_token(b, joined, TOKEN_NORMAL, 0);
}
static inline void builder_int(struct builder *b, const char *key, int64_t value)
{
    b->extra[b->n_extra].key = key;
    b->extra[b->n_extra].flag = false;
    b->extra[b->n_extra].list = NULL;
    b->extra[b->n_extra++].value = value;
}
static inline void builder_ints(struct builder *b, const char *key, const int64_t *list, int64_t n)
{
    builder_int(b, key, n);
    b->extra[b->n_extra - 1].list = list;
}
static inline void builder_flag(struct builder *b, const char *key, bool value)
{
    builder_int(b, key, value);
    b->extra[b->n_extra - 1].flag = true;
}

/* Byte-level BPE: the 256 byte tokens and a few merges. */
static inline void builder_bpe(struct builder *b, const char *pre)
{
    memset(b, 0, sizeof *b);
    b->model = "gpt2";
    b->pre = pre;
    for (unsigned i = 0; i < 256; i++) {
        char symbol[3] = { 0 };
        vocab_put_symbol((unsigned char)i, symbol);
        builder_token(b, symbol, TOKEN_NORMAL, 0);
    }
    static const char *const merges[][2] = { { "a", "a" }, { "aa", "aa" }, { "aaaa", "aaaa" },
                                             { ".", "." }, { "..", ".." }, { "\xC4\xA0", "\xC4\xA0" },
                                             { "t", "h" }, { "th", "e" },  { "\xC4\xA0", "the" },
                                             { "1", "2" }, { "12", "3" },  { "\xC3\xA4", "\xC2\xB8" } };
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) builder_merge(b, merges[i][0], merges[i][1]);
}

/* SentencePiece: unknown, bos, eos, byte tokens, ASCII letters and a few merged pieces. */
static inline void builder_spm(struct builder *b)
{
    memset(b, 0, sizeof *b);
    b->model = "llama";
    builder_token(b, "<unk>", TOKEN_UNKNOWN, 0);
    builder_token(b, "<s>", TOKEN_CONTROL, 0);
    builder_token(b, "</s>", TOKEN_CONTROL, 0);
    for (unsigned i = 0; i < 256; i++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", i);
        builder_token(b, text, TOKEN_BYTE, 0);
    }
    static const char *const pieces[] = {
        "he", "\xE2\x96\x81t", "in", "the", "\xE2\x96\x81the", "aa", "aaaa", "\xE2\x96\x81\xE2\x96\x81",
        "..", "\xE2\x96\x81"
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) builder_token(b, pieces[i], TOKEN_NORMAL, -(float)i);
    for (char c = 'a'; c <= 'z'; c++) builder_token(b, (char[]){ c, 0 }, TOKEN_NORMAL, -100 - (float)c);
    builder_token(b, ".", TOKEN_NORMAL, -500);
}

/* WordPiece: control tokens, letters as beginnings and as what goes on, a few words and pieces. */
static inline void builder_wordpiece(struct builder *b)
{
    static const char *const specials[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" }, *const pieces[] = {
        "\xE2\x96\x81the",
        "\xE2\x96\x81worker",
        "\xE2\x96\x81queue",
        "s",
        "\xE2\x96\x81un",
        "known",
        "ing",
        "\xE2\x96\x81strasse",
        "\xE2\x96\x81\xE4\xBD\xA0",
        "\xE2\x96\x81\xE5\xA5\xBD",
        "\xE2\x96\x81.",
        "\xE2\x96\x81,",
        "\xE2\x96\x81!"
    };
    memset(b, 0, sizeof *b);
    b->model = "bert";
    b->short_scores = -1;
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) builder_token(b, specials[i], TOKEN_CONTROL, 0);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) builder_token(b, pieces[i], TOKEN_NORMAL, 0);
    for (char c = 'a'; c <= 'f'; c++) {
        const char begins[] = { '\xE2', '\x96', '\x81', c, 0 };
        builder_token(b, begins, TOKEN_NORMAL, 0);
        builder_token(b, begins + 3, TOKEN_NORMAL, 0);
    }
}

/* Unigram: unknown, bos, eos, letters and pieces of the worker's queue. */
static inline void builder_unigram(struct builder *b)
{
    static const char *const pieces[] = {
        "\xE2\x96\x81", "\xE2\x96\x81the", "\xE2\x96\x81worker", "work", "er", "\xE2\x96\x81queue", "th", "he", "aa",
        "aaa"
    };
    memset(b, 0, sizeof *b);
    b->model = "t5";
    builder_token(b, "<unk>", TOKEN_UNKNOWN, 0);
    builder_token(b, "<s>", TOKEN_CONTROL, 0);
    builder_token(b, "</s>", TOKEN_CONTROL, 0);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        builder_token(b, pieces[i], TOKEN_NORMAL, -3 - (float)i / 8);
    for (char c = 'a'; c <= 'z'; c++) builder_token(b, (char[]){ c, 0 }, TOKEN_NORMAL, -8 - (float)(c - 'a') / 64);
    builder_int(b, "tokenizer.ggml.bos_token_id", 1);
    builder_int(b, "tokenizer.ggml.eos_token_id", 2);
    builder_int(b, "tokenizer.ggml.unknown_token_id", 0);
}

static inline uint64_t builder_keys(const struct builder *b)
{
    return (uint64_t)(b->model != NULL) + (b->pre != NULL) + (b->name != NULL) + (b->chat_template != NULL) + 1 +
           (b->short_types >= 0) + (b->short_scores >= 0) + (b->n_merges > 0) + (b->n_map > 0) + b->n_extra;
}

/* The file's bytes, in b->bytes, [b->size]. */
static inline void builder_write(struct builder *b)
{
    builder_put(b, "GGUF", 4);
    builder_u32(b, 3);
    builder_u64(b, 0);
    builder_u64(b, builder_keys(b));
    builder_text(b, "tokenizer.ggml.model", b->model);
    builder_text(b, "tokenizer.ggml.pre", b->pre);
    builder_text(b, "general.name", b->name);
    builder_text(b, "tokenizer.chat_template", b->chat_template);
    builder_array(b, "tokenizer.ggml.tokens", GGUF_STRING, b->n);
    for (uint32_t i = 0; i < b->n; i++) builder_str(b, b->token[i].text, b->token[i].len);
    if (b->short_types >= 0) {
        builder_array(b, "tokenizer.ggml.token_type", GGUF_I32, b->n - (uint32_t)b->short_types);
        for (uint32_t i = 0; i < b->n - (uint32_t)b->short_types; i++) builder_put(b, &b->token[i].type, 4);
    }
    if (b->short_scores >= 0) {
        builder_array(b, "tokenizer.ggml.scores", GGUF_F32, b->n - (uint32_t)b->short_scores);
        for (uint32_t i = 0; i < b->n - (uint32_t)b->short_scores; i++) builder_put(b, &b->token[i].score, 4);
    }
    if (b->n_map) builder_array(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, b->n_map);
    builder_put(b, b->map, b->n_map);
    if (b->n_merges) builder_array(b, "tokenizer.ggml.merges", GGUF_STRING, b->n_merges);
    for (uint32_t i = 0; i < b->n_merges; i++) builder_str(b, b->merge[i], strlen(b->merge[i]));
    for (uint32_t i = 0; i < b->n_extra; i++) {
        if (b->extra[i].list) {
            builder_array(b, b->extra[i].key, GGUF_I64, (uint64_t)b->extra[i].value);
            builder_put(b, b->extra[i].list, (size_t)b->extra[i].value * sizeof *b->extra[i].list);
            continue;
        }
        builder_key(b, b->extra[i].key, b->extra[i].flag ? GGUF_BOOL : GGUF_I64);
        builder_put(b, &b->extra[i].value, b->extra[i].flag ? 1 : 8);
    }
}

/* Opens what was built and frees the bytes: a tokenizer keeps nothing of its file. */
static inline wk_status builder_open(struct builder *b, struct tokenizer **t, const struct wk_err *err)
{
    struct gguf *file = NULL;
    *t = NULL;
    builder_write(b);
    wk_status status = gguf_open_memory(b->bytes, b->size, "built vocabulary", &file, err);
    if (!status) status = tokenizer_open(file, t, err);
    gguf_close(file);
    free(b->bytes);
    b->bytes = NULL;
    b->size = b->cap = 0;
    return status;
}

/* The small vocabulary of a pre-tokenizer, or of SPM (pre NULL), with one control token "<x>". NULL with *err's text on
 * failure. */
static inline struct tokenizer *builder_open_kind(struct builder *b, const char *pre, const struct wk_err *err)
{
    struct tokenizer *t;
    if (pre)
        builder_bpe(b, pre);
    else
        builder_spm(b);
    builder_token(b, "<x>", TOKEN_CONTROL, 0);
    return builder_open(b, &t, err) ? NULL : t;
}

#endif
