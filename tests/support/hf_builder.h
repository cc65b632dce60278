/* hf_builder.h: small tokenizer.json texts, for tests and fuzz targets. */
#ifndef TESTS_SUPPORT_HF_BUILDER_H
#define TESTS_SUPPORT_HF_BUILDER_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vocab_builder.h"

/* The parts of a tokenizer.json; NULL: the part of hf_byte_level or hf_byte_fallback. */
struct hf_parts {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added, *model;
};

static const char hf_bpe_pre[] =
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";
static const char hf_bpe_decoder[] = "{\"type\":\"ByteLevel\"}";
static const char hf_spm_normalizer[] =
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}";
static const char hf_spm_post[] = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
                                  "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
                                  "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}}";
static const char hf_spm_decoder[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" "
    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
static const char hf_spm_added[] = "[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","
                                   "\"special\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true}]";

struct hf_text {
    char *data;
    size_t n, cap;
};
static inline void hf_put(struct hf_text *t, const char *data, size_t n)
{
    if (!array_reserve((void **)&t->data, &t->cap, t->n + n + 1, 1)) abort();
    memcpy(t->data + t->n, data, n);
    t->data[t->n += n] = '\0';
}
static inline void hf_say(struct hf_text *t, const char *text) { hf_put(t, text, strlen(text)); }
/* The bytes as a string of JSON. */
static inline void hf_string(struct hf_text *t, const char *text, size_t n)
{
    hf_say(t, "\"");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') hf_say(t, "\\");
        hf_put(t, text + i, 1);
    }
    hf_say(t, "\"");
}

/* The tokens [0, n) and the merges of a built GGUF vocabulary as the member "model". pairs: merges as pairs instead of
 * texts. */
static inline void hf_model(struct hf_text *t, const struct builder *b, uint32_t n, const char *head, bool pairs)
{
    char number[32];
    hf_say(t, head);
    hf_say(t, "\"vocab\":{");
    for (uint32_t id = 0; id < n; id++) {
        if (id) hf_say(t, ",");
        hf_string(t, b->token[id].text, b->token[id].len);
        (void)snprintf(number, sizeof number, ":%u", id);
        hf_say(t, number);
    }
    hf_say(t, "},\"merges\":[");
    for (uint32_t i = 0; i < b->n_merges; i++) {
        const char *merge = b->merge[i], *space = strchr(merge + 1, ' ');
        if (i) hf_say(t, ",");
        if (!pairs)
            hf_string(t, merge, strlen(merge));
        else {
            hf_say(t, "[");
            hf_string(t, merge, (size_t)(space - merge));
            hf_say(t, ",");
            hf_string(t, space + 1, strlen(space + 1));
            hf_say(t, "]");
        }
    }
    hf_say(t, "]}");
}

static inline void hf_section(struct hf_text *t, const char *name, const char *given, const char *preset)
{
    hf_say(t, "\"");
    hf_say(t, name);
    hf_say(t, "\":");
    hf_say(t, given ? given : preset);
    hf_say(t, ",");
}

static inline void hf_sections(struct hf_text *t, const struct hf_parts *p, const char *normalizer, const char *pre,
                               const char *post, const char *decoder, const char *added)
{
    hf_say(t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
    hf_section(t, "added_tokens", p->added, added);
    hf_section(t, "normalizer", p->normalizer, normalizer);
    hf_section(t, "pre_tokenizer", p->pre_tokenizer, pre);
    hf_section(t, "post_processor", p->post_processor, post);
    hf_section(t, "decoder", p->decoder, decoder);
    hf_say(t, "\"model\":");
}

/* A byte-level file over builder_bpe's vocabulary: 256 bytes and 12 merges, ids 0..267. */
static inline struct hf_text hf_byte_level(struct builder *b, const struct hf_parts *p, bool pairs)
{
    struct hf_text t = { 0 };
    builder_bpe(b, "gpt-2");
    hf_sections(&t, p, "null", hf_bpe_pre, "null", hf_bpe_decoder, "[]");
    if (p->model)
        hf_say(&t, p->model);
    else
        hf_model(&t, b, b->n,
                 "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":\"\",\"end_of_"
                 "word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,",
                 pairs);
    hf_say(&t, "}");
    return t;
}

/* A byte-fallback file: builder_spm's tokens (0..2 special, 3..258 bytes) and merges that build its longer ones. */
static inline struct hf_text hf_byte_fallback(struct builder *b, const struct hf_parts *p, bool pairs)
{
    static const char *const merges[][2] = { { "h", "e" },
                                             { "\xE2\x96\x81", "t" },
                                             { "i", "n" },
                                             { "t", "he" },
                                             { "\xE2\x96\x81t", "he" },
                                             { "a", "a" },
                                             { "aa", "aa" },
                                             { "\xE2\x96\x81", "\xE2\x96\x81" },
                                             { ".", "." } };
    struct hf_text t = { 0 };
    builder_spm(b);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        (void)snprintf(b->merge[b->n_merges++], sizeof b->merge[0], "%s %s", merges[i][0], merges[i][1]);
    hf_sections(&t, p, hf_spm_normalizer, "null", hf_spm_post, hf_spm_decoder, hf_spm_added);
    if (p->model)
        hf_say(&t, p->model);
    else
        hf_model(&t, b, b->n,
                 "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":null,\"end_"
                 "of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":true,",
                 pairs);
    hf_say(&t, "}");
    return t;
}

#endif
