/* tokenizer.h: text to token ids and back, as the model's own tokenizer does it.
 *
 * Kinds: gguf-bpe (byte-level BPE, `tokenizer.ggml.model` = gpt2), gguf-spm (SentencePiece BPE with byte fallback, =
 * llama), gguf-unigram (SentencePiece's unigram model, = t5), gguf-wordpiece (BERT's, = bert) and hf-json (either of
 * the two, from a tokenizer.json as Hugging Face's tokenizers write it). The vocabulary is copied out of the file:
 * nothing of it is needed after tokenizer_open. A tokenizer is immutable once open; every function may be called by any
 * thread at the same time.
 *
 * Any bytes can be encoded. What is not UTF-8 is no error: byte-level BPE cuts the text into well-formed runs,
 * pre-tokenised each for itself, and single stray bytes, each a piece of its own (so decoding gives back exactly the
 * bytes); SPM falls back to byte tokens. But a byte-level vocabulary may lack tokens for bytes that hardly any text
 * holds (0xC0, 0xC1, 0xF1 to 0xFF, control characters): they become the unknown token, or where there is none such
 * texts are refused. */
#ifndef CORE_TOKENIZER_TOKENIZER_H
#define CORE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

struct gguf;
struct gguf_accepted;
struct tokenizer; /* opaque */

#define TOKEN_NONE UINT32_MAX
enum {
    TOKENIZER_MAX_VOCAB = 1 << 20,
    TOKENIZER_MAX_TOKEN_BYTES = 64 << 10,
    TOKENIZER_MAX_TEXT = 8 << 20 /* bytes of one encode; about 100 bytes of scratch memory each at worst */
};

enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

/* Refuses, with the key, index and value: an unknown tokenizer model or pre-tokenizer, parallel arrays of other
 * lengths, ids out of range, malformed byte tokens and merges, two normal tokens of one text, a vocabulary that cannot
 * express a byte of ordinary texts. */
wk_status tokenizer_open(const struct gguf *file, struct tokenizer **out, const struct wk_err *err);
/* The same from a tokenizer.json. Its schema is closed: a normalizer, pre-tokenizer, expression, member or model that
 * is not known to the last detail is refused by name, with its path in the JSON. file: the model that it is for, or
 * NULL; which ids begin and end a text is taken from there, and an embedded vocabulary must agree. rows: ids that the
 * model has, 0: unknown; larger ids are refused, smaller vocabularies padded with unused tokens. */
wk_status tokenizer_open_json(const char *path, const struct gguf *file, uint32_t rows, struct tokenizer **out,
                              const struct wk_err *err);
/* The same from memory; name: what messages call it. */
wk_status tokenizer_open_json_text(const char *text, size_t len, const char *name, const struct gguf *file,
                                   uint32_t rows, struct tokenizer **out, const struct wk_err *err);
/* Does the file embed no tokenizer, or one of a kind that is served? */
bool tokenizer_served(const struct gguf *file);
/* The one that a model is to use: json, if it is given; else the vocabulary in its file; else the tokenizer.json in the
 * file's folder. There is none of them: WK_OK, and *out is NULL. Checks the file's keys first. accepted: NULL: none. */
wk_status tokenizer_open_for(const struct gguf *file, const char *json, uint32_t rows, struct gguf_accepted *accepted,
                             struct tokenizer **out, const struct wk_err *err);
/* Refuses a file with a key below "tokenizer." that nobody reads, or whose value is not served. */
wk_status tokenizer_check_keys(const struct gguf *file, struct gguf_accepted *accepted, const struct wk_err *err);
void tokenizer_close(struct tokenizer *t); /* NULL allowed */

const char *tokenizer_kind(const struct tokenizer *t); /* "gguf-bpe", "gguf-wordpiece", "hf-json", ... */
/* SHA-256 of the tokenizer.json, hex; "" where the vocabulary is the model file's own. */
const char *tokenizer_digest(const struct tokenizer *t);
uint32_t tokenizer_size(const struct tokenizer *t); /* number of ids, padding included */

/* Bytes of the tokenizer's, valid until tokenizer_close; not terminated. */
struct token_bytes {
    const char *data;
    size_t len;
};
struct token_bytes tokenizer_text(const struct tokenizer *t,
                                  uint32_t id); /* as the file spells it; empty if id is out of range */
enum token_type tokenizer_type(const struct tokenizer *t, uint32_t id); /* TOKEN_UNUSED if id is out of range */
uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len); /* the id spelt so, or TOKEN_NONE */

/* Ids, or TOKEN_NONE. */
uint32_t tokenizer_bos(const struct tokenizer *t);
uint32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);

/* End of generation is a set: the file's eos, eot and eom ids and tokens of well-known texts (`<|im_end|>`,
 * `<|eot_id|>`, ...). */
bool tokenizer_ends(const struct tokenizer *t, uint32_t id);
const uint32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *n); /* ascending */

/* ---- encode -------------------------------------------------------------------------------------------- */

struct tokens {
    uint32_t *ids;
    size_t n, cap;
}; /* zeroed: empty; freed by the caller with tokens_free */
void tokens_free(struct tokens *tokens);

/* One piece of a prompt. parse_special: control tokens spelt in it become their ids. Text of users
 * must have it false. */
struct tokenizer_part {
    const void *bytes;
    size_t len;
    bool parse_special;
};

/* Appends the ids of all parts, encoded as the one text that they make together, so that nothing depends on where a
 * template ends and a user's text begins; but a control token is recognised only if all its bytes are in parts that
 * allow it. USER_DEFINED tokens are recognised everywhere, as in the reference implementations, unless they are ids
 * that end or begin a text. add_special: bos and eos as the file wants them; a bos that the text already begins with is
 * not doubled. On failure out->n is as before. */
wk_status tokenizer_encode_parts(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                                 bool add_special, struct tokens *out, const struct wk_err *err);
/* The same for texts that take long: stop(user) is asked about every millisecond, and true ends it with WK_CANCELLED.
 */
struct tokenizer_watch {
    bool (*stop)(void *user);
    void *user;
};
wk_status tokenizer_encode_watched(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                                   bool add_special, const struct tokenizer_watch *watch, struct tokens *out,
                                   const struct wk_err *err);
/* How many ids a pair may have; 0: any number. */
struct tokenizer_limits {
    size_t all;     /* with what begins and ends the texts: the longer text is cut, at last both alike */
    size_t second;  /* of the second text */
    bool from_left; /* what is cut is the beginning */
};
/* Appends the ids of two texts that are read together, as rerankers are made to: what begins a text, the first, what
 * ends one, the file's separator if it wants one, the second, what ends one. texts: each encoded without what begins
 * and ends it. second: how many of the appended ids come before those that are of the type 1; 0: all are of type 0,
 * which is so of every model but WordPiece. limits NULL: none. WK_INVALID: limits->all leaves no room for any text. */
wk_status tokenizer_join_pair(const struct tokenizer *t, const struct tokens texts[2],
                              const struct tokenizer_limits *limits, struct tokens *out, size_t *second,
                              const struct wk_err *err);
/* The same of texts, whole. watch: NULL: nobody watches. */
wk_status tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_part pair[2],
                                const struct tokenizer_watch *watch, struct tokens *out, size_t *second,
                                const struct wk_err *err);
/* As many ids as these parts become at least, for no id stands for more bytes than the longest token has; without
 * encoding them, in time of their length. 0: nothing can be said. */
size_t tokenizer_fewest(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts);
wk_status tokenizer_encode(const struct tokenizer *t, const void *bytes, size_t n, bool parse_special, bool add_special,
                           struct tokens *out, const struct wk_err *err);

/* ---- decode -------------------------------------------------------------------------------------------- */

/* The bytes that `id` stands for; perhaps a part of a character only. Control, unknown and unused tokens stand for
 * nothing unless show_special. Never strips a space: a continuation keeps the one that its first token has. */
struct token_bytes tokenizer_piece(const struct tokenizer *t, uint32_t id, bool show_special);

/* All ids as one text. If SPM adds a space before a text when encoding, the one at the very beginning is taken off
 * again. *out is allocated (terminated, but may hold NUL bytes), *len its length; the caller frees. Fails on an id out
 * of range. */
wk_status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool show_special, char **out,
                           size_t *len, const struct wk_err *err);

#endif
