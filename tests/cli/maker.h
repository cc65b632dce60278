/* maker.h: writes small GGUF files byte by byte, right ones and wrong ones. */
#ifndef TESTS_CLI_MAKER_H
#define TESTS_CLI_MAKER_H

#include <stddef.h>
#include <stdint.h>

/* A llama model that can run: 1 layer, 2 heads of 16, a vocabulary of single bytes and the space, random F32 weights
 * from a fixed seed. */
struct tiny_model {
    const char *path;
    const char *architecture;  /* NULL: llama */
    const char *name;          /* NULL: tiny */
    uint32_t context;          /* 0: 64 */
    uint32_t embedding_type;   /* ggml type written for token_embd; 0: F32. The bytes stay F32. */
    int nan_weight;            /* 1: one weight of the first layer is not a number */
    uint32_t hollow_ffn;       /* not 0: the feed-forward width, and the tensors' bytes are a hole in the file */
    int vocabulary_only;       /* 1: no tensors */
    const char *chat_template; /* NULL: none */
    const char *extra_key;     /* one more key, a 32-bit 7; NULL: none */
};
enum { TINY_EMBED = 32, TINY_VOCAB = 3 + 256 + 1, TINY_NAN_AT = 37 /* index of the NaN in blk.0.attn_q.weight */ };

void make_tiny(const struct tiny_model *m);

/* The tensors of Qwen2.5-0.5B by name and row length, but with rows few enough to write quickly; F32 zeros. */
void make_qwen_shape(const char *path);

/* A layer's tensors of an older Mixtral file, which has one tensor an expert: two experts, rows few and short. */
void make_experts_apart(const char *path);

/* A model of the test plugins' architecture "zoo": an embedding and a head of 256 rows. */
void make_zoo(const char *path);

void make_file(const char *path, const void *bytes, size_t n);
/* The first n bytes of another file. */
void make_truncated(const char *path, const char *from, size_t n);

#endif
