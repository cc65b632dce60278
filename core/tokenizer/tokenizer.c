/* tokenizer.c: opens a tokenizer from a file's metadata and leads a prompt through it: join the parts, cut out special
 * tokens, encode what lies between, add what belongs at the ends. The models themselves are in bpe.c, spm.c,
 * unigram.c and wordpiece.c. */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "tokenizer/model.h"

struct tokenizer {
    struct vocab vocab;
    struct specials specials;
    struct bpe_merges merges;  /* BPE */
    struct pretokenizer words; /* BPE */
    struct unigram unigram;    /* unigram */
    bool strips_right;         /* Phi-3 in a GGUF file: whitespace after most specials vanishes */
    bool json;                 /* from a tokenizer.json: then pipeline has the specials, not `specials` */
    struct hf_pipeline pipeline;
};

/* ---- opening ------------------------------------------------------------------------------------------- */

static bool equals(struct gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, (size_t)s.len) == 0;
}

/* Does the text occur in s, whatever the case of ASCII letters? */
static bool contains(struct gguf_str s, const char *text)
{
    const size_t n = strlen(text);
    for (uint64_t i = 0; i + n <= s.len; i++)
        if (strncasecmp(s.data + i, text, n) == 0) return true;
    return false;
}

static wk_status read_string(const struct gguf *file, const char *key, const char *absent, struct gguf_str *out,
                             const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    *out = (struct gguf_str){ absent, strlen(absent) };
    return kv ? gguf_str(file, kv, out, err) : WK_OK;
}

static wk_status open_bpe(struct tokenizer *t, const struct gguf *file, const struct wk_err *err)
{
    struct gguf_str pre;
    wk_status status = read_string(file, "tokenizer.ggml.pre", "default", &pre, err);
    if (!status) status = pretokenizer_open(&t->words, pre.data, (size_t)pre.len, err);
    if (!status) status = vocab_open(&t->vocab, file, VOCAB_BPE, err);
    if (!status) status = bpe_open(&t->merges, &t->vocab, file, err);
    if (!gguf_find(file, "tokenizer.ggml.add_bos_token")) t->vocab.add_bos = t->words.add_bos;
    return status;
}

static wk_status open_spm(struct tokenizer *t, const struct gguf *file, const struct wk_err *err)
{
    const wk_status status = vocab_open(&t->vocab, file, VOCAB_SPM, err);
    t->vocab.words_part = !status && spm_words_part(&t->vocab);
    return status;
}

static wk_status open_unigram(struct tokenizer *t, const struct gguf *file, const struct wk_err *err)
{
    const wk_status status = vocab_open(&t->vocab, file, VOCAB_UNIGRAM, err);
    return status ? status : unigram_open(&t->unigram, &t->vocab, file, err);
}

/* Of tokenizer.ggml.model. */
enum kind { KIND_NONE, KIND_BPE, KIND_SPM, KIND_WORDPIECE, KIND_UNIGRAM, KIND_OTHER };
static enum kind kind_of(struct gguf_str model)
{
    if (!model.len || equals(model, "no_vocab")) return KIND_NONE;
    return equals(model, "gpt2")    ? KIND_BPE
           : equals(model, "llama") ? KIND_SPM
           : equals(model, "bert")  ? KIND_WORDPIECE
           : equals(model, "t5")    ? KIND_UNIGRAM
                                    : KIND_OTHER;
}

static wk_status open_model(struct tokenizer *t, const struct gguf *file, const struct wk_err *err)
{
    struct gguf_str model, name;
    wk_status status = read_string(file, "tokenizer.ggml.model", "", &model, err);
    if (!status) status = read_string(file, "general.name", "", &name, err);
    if (status) return status;
    switch (kind_of(model)) {
    case KIND_BPE: status = open_bpe(t, file, err); break;
    case KIND_SPM: status = open_spm(t, file, err); break;
    case KIND_UNIGRAM: status = open_unigram(t, file, err); break;
    case KIND_WORDPIECE: status = vocab_open(&t->vocab, file, VOCAB_WORDPIECE, err); break;
    case KIND_NONE:
        return wk_fail(
            err, WK_UNSUPPORTED,
            "the file embeds no tokenizer (tokenizer.ggml.model is absent); give a tokenizer.json with --tokenizer");
    default:
        return wk_fail(err, WK_UNSUPPORTED,
                       "tokenizer.ggml.model: '%.*s' is not supported; supported are gpt2 (byte-level BPE), llama "
                       "(SentencePiece), t5 (SentencePiece's unigram model) and bert (WordPiece)",
                       (int)(model.len < 64 ? model.len : 64), model.data);
    }
    t->strips_right = contains(name, "phi-3") || contains(name, "phi3");
    return status ? status : specials_open_vocab(&t->specials, &t->vocab, err);
}

static wk_status finish(struct tokenizer *t, wk_status status, struct tokenizer **out)
{
    if (status)
        tokenizer_close(t);
    else
        *out = t;
    return status;
}

wk_status tokenizer_open(const struct gguf *file, struct tokenizer **out, const struct wk_err *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return wk_fail(err, WK_NO_MEMORY, "no memory for the tokenizer");
    return finish(t, open_model(t, file, err), out);
}

wk_status tokenizer_open_json(const char *path, const struct gguf *file, uint32_t rows, struct tokenizer **out,
                              const struct wk_err *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return wk_fail(err, WK_NO_MEMORY, "no memory for the tokenizer");
    t->json = true;
    return finish(t, hf_open(path, file, rows, &t->vocab, &t->merges, &t->words, &t->pipeline, err), out);
}

wk_status tokenizer_open_json_text(const char *text, size_t len, const char *name, const struct gguf *file,
                                   uint32_t rows, struct tokenizer **out, const struct wk_err *err)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return wk_fail(err, WK_NO_MEMORY, "no memory for the tokenizer");
    t->json = true;
    return finish(t, hf_open_text(text, len, name, file, rows, &t->vocab, &t->merges, &t->words, &t->pipeline, err),
                  out);
}

/* The tokenizer.json in the folder of a file that was opened by its path. false: there is none. */
static bool find_beside(const struct gguf *file, char *out, size_t cap)
{
    const char *path = gguf_path(file), *slash = strrchr(path, '/');
    const int n = snprintf(out, cap, "%.*stokenizer.json", slash ? (int)(slash + 1 - path) : 0, path);
    return n > 0 && (size_t)n < cap && access(path, F_OK) == 0 && access(out, F_OK) == 0;
}

bool tokenizer_served(const struct gguf *file)
{
    struct gguf_str model;
    return read_string(file, "tokenizer.ggml.model", "", &model, NULL) == WK_OK && kind_of(model) != KIND_OTHER;
}

wk_status tokenizer_open_for(const struct gguf *file, const char *json, uint32_t rows, struct gguf_accepted *accepted,
                             struct tokenizer **out, const struct wk_err *err)
{
    struct gguf_str model;
    char beside[4096];
    *out = NULL;
    wk_status status = tokenizer_check_keys(file, accepted, err);
    if (status) return status;
    if (json) return tokenizer_open_json(json, file, rows, out, err);
    status = read_string(file, "tokenizer.ggml.model", "", &model, err);
    if (status) return status;
    if (kind_of(model) != KIND_NONE) return tokenizer_open(file, out, err);
    return find_beside(file, beside, sizeof beside) ? tokenizer_open_json(beside, file, rows, out, err) : WK_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    specials_close(&t->specials);
    hf_pipeline_close(&t->pipeline);
    bpe_close(&t->merges);
    unigram_close(&t->unigram);
    pretokenizer_close(&t->words);
    vocab_close(&t->vocab);
    free(t);
}

/* ---- queries ------------------------------------------------------------------------------------------- */

const char *tokenizer_kind(const struct tokenizer *t)
{
    static const char *const kinds[] = { [VOCAB_SPM] = "gguf-spm",
                                         [VOCAB_BPE] = "gguf-bpe",
                                         [VOCAB_WORDPIECE] = "gguf-wordpiece",
                                         [VOCAB_UNIGRAM] = "gguf-unigram" };
    return t->json ? "hf-json" : kinds[t->vocab.model];
}
const char *tokenizer_digest(const struct tokenizer *t) { return t->pipeline.digest; }
uint32_t tokenizer_size(const struct tokenizer *t) { return t->vocab.n; }
uint32_t tokenizer_bos(const struct tokenizer *t) { return t->vocab.bos; }
uint32_t tokenizer_eos(const struct tokenizer *t) { return t->vocab.eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->vocab.add_bos && t->vocab.bos != TOKEN_NONE; }
bool tokenizer_adds_eos(const struct tokenizer *t) { return t->vocab.add_eos && t->vocab.eos != TOKEN_NONE; }
bool tokenizer_ends(const struct tokenizer *t, uint32_t id) { return vocab_ends(&t->vocab, id); }
uint32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
    return vocab_find(&t->vocab, text, len);
}

const uint32_t *tokenizer_end_ids(const struct tokenizer *t, size_t *n)
{
    *n = t->vocab.n_end;
    return t->vocab.end_ids;
}

struct token_bytes tokenizer_text(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.n ? vocab_text(&t->vocab, id) : (struct token_bytes){ "", 0 };
}

enum token_type tokenizer_type(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.n ? (enum token_type)t->vocab.type[id] : TOKEN_UNUSED;
}

/* ---- encode -------------------------------------------------------------------------------------------- */

bool tokens_add(struct tokens *out, uint32_t id)
{
    if (!array_reserve((void **)&out->ids, &out->cap, out->n + 1, sizeof *out->ids)) return false;
    out->ids[out->n++] = id;
    return true;
}

void tokens_free(struct tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct tokens){ 0 };
}

/* All parts one after the other, with the spans that allow control tokens; neighbours of equal trust are one span. */
struct joined {
    char *text;
    uint32_t n;
    struct trust_span *spans;
    size_t n_spans;
};

static wk_status join(const struct tokenizer_part *parts, size_t n_parts, struct joined *j, const struct wk_err *err)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].len > TOKENIZER_MAX_TEXT - total)
            return wk_fail(err, WK_INVALID, "the text is longer than the %d bytes that can be encoded at once",
                           TOKENIZER_MAX_TEXT);
        total += parts[i].len;
    }
    j->text = malloc(total + 1);
    j->spans = malloc((n_parts + 1) * sizeof *j->spans);
    if (!j->text || !j->spans) return wk_fail(err, WK_NO_MEMORY, "no memory for %zu bytes of text", total);
    for (size_t i = 0; i < n_parts; i++) {
        if (!parts[i].len) continue;
        memcpy(j->text + at, parts[i].bytes, parts[i].len);
        at += parts[i].len;
        if (j->n_spans && j->spans[j->n_spans - 1].control == parts[i].parse_special) j->n_spans--;
        j->spans[j->n_spans++] = (struct trust_span){ (uint32_t)at, parts[i].parse_special };
    }
    j->n = (uint32_t)total;
    return WK_OK;
}

/* Phi-3's added tokens, but for these three, swallow the whitespace to their right. */
static bool strips_right(const struct tokenizer *t, uint32_t id)
{
    if (!t->strips_right || id == TOKEN_NONE) return false;
    static const char *const keep[] = { "<unk>", "<s>", "<|endoftext|>" };
    const struct token_bytes text = vocab_text(&t->vocab, id);
    for (size_t i = 0; i < sizeof keep / sizeof *keep; i++)
        if (text.len == strlen(keep[i]) && memcmp(text.data, keep[i], text.len) == 0) return false;
    return true;
}

static bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* begins: nothing stands before it, or a special token. */
static wk_status encode_text(const struct tokenizer *t, struct encoder *e, const char *text, size_t n, bool begins,
                             struct tokens *out, const struct wk_err *err)
{
    switch (t->vocab.model) {
    case VOCAB_BPE: return bpe_encode(&t->vocab, &t->merges, &t->words, e, text, n, out, err);
    case VOCAB_WORDPIECE: return wordpiece_encode(&t->vocab, e, text, n, out, err);
    case VOCAB_UNIGRAM:
        return unigram_encode(&t->unigram, &t->vocab, e, text, n, t->vocab.add_space_prefix && begins, out, err);
    case VOCAB_SPM: break;
    }
    return spm_encode(&t->vocab, e, text, n, t->vocab.add_space_prefix && begins, out, err);
}

static wk_status encode_fragments(const struct tokenizer *t, struct encoder *e, const char *text, struct tokens *out,
                                  const struct wk_err *err)
{
    uint32_t before = TOKEN_NONE; /* the special to the left, if that is what lies there */
    bool first = true;
    wk_status status = WK_OK;
    for (size_t i = 0; i < e->fragments.n && !status; i++) {
        struct fragment f = e->fragments.list[i];
        if (f.id != TOKEN_NONE) {
            if (!tokens_add(out, f.id)) status = wk_fail(err, WK_NO_MEMORY, "no memory for the ids");
        } else {
            for (; strips_right(t, before) && f.len && is_ascii_space(text[f.at]); f.at++) f.len--;
            if (!f.len) continue;
            status = encode_text(t, e, text + f.at, f.len, first || before != TOKEN_NONE, out, err);
        }
        first = false;
        before = f.id;
    }
    return status;
}

static void encoder_free(struct encoder *e)
{
    free(e->fragments.list);
    free(e->inner.list);
    free(e->normal.data);
    free(e->spare.data);
    pretokenizer_scratch_free(&e->words);
    merger_free(&e->merger);
    free(e->buffer);
}

/* Puts bos before ids[at] unless it is there already, and eos at the end. */
static bool add_ends(const struct tokenizer *t, size_t at, struct tokens *out)
{
    if (tokenizer_adds_bos(t) && (out->n == at || out->ids[at] != t->vocab.bos)) {
        if (!tokens_add(out, 0)) return false;
        memmove(out->ids + at + 1, out->ids + at, (out->n - 1 - at) * sizeof *out->ids);
        out->ids[at] = t->vocab.bos;
    }
    return !tokenizer_adds_eos(t) || tokens_add(out, t->vocab.eos);
}

wk_status tokenizer_encode_watched(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                                   bool add_special, const struct tokenizer_watch *watch, struct tokens *out,
                                   const struct wk_err *err)
{
    const size_t before = out->n;
    struct joined j = { 0 };
    struct encoder e = { .merger.watch = watch };
    wk_status status = join(parts, n_parts, &j, err);
    if (!status && j.n && t->json)
        status =
            hf_encode(&t->vocab, &t->merges, &t->words, &t->pipeline, &e, j.text, j.n, j.spans, j.n_spans, out, err);
    else if (!status && j.n) {
        status = specials_split(&t->specials, j.text, j.n, j.spans, j.n_spans, &e.fragments, err);
        if (!status) status = encode_fragments(t, &e, j.text, out, err);
    }
    if (!status && add_special && !add_ends(t, before, out))
        status = wk_fail(err, WK_NO_MEMORY, "no memory for the ids");
    if (e.merger.stopped) status = wk_fail(err, WK_CANCELLED, "stopped while the text was encoded");
    if (status) out->n = before;
    encoder_free(&e);
    free(j.text);
    free(j.spans);
    return status;
}

wk_status tokenizer_encode_parts(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts,
                                 bool add_special, struct tokens *out, const struct wk_err *err)
{
    return tokenizer_encode_watched(t, parts, n_parts, add_special, NULL, out, err);
}

/* Of the longer one as much as is too much, at last half of the room for each. */
static void fit_pair(size_t n[2], size_t room)
{
    const int less = n[0] > n[1];
    if (n[0] <= room && n[1] <= room - n[0]) return;
    if (n[less] > room / 2) n[less] = room / 2;
    n[!less] = room - n[less];
}

static bool add_ids(struct tokens *out, const struct tokens *from, size_t n, bool from_left)
{
    const size_t first = from_left ? from->n - n : 0;
    for (size_t i = 0; i < n; i++)
        if (!tokens_add(out, from->ids[first + i])) return false;
    return true;
}

wk_status tokenizer_join_pair(const struct tokenizer *t, const struct tokens texts[2],
                              const struct tokenizer_limits *limits, struct tokens *out, size_t *second,
                              const struct wk_err *err)
{
    static const struct tokenizer_limits none = { 0 };
    const struct vocab *v = &t->vocab;
    const struct tokenizer_limits *l = limits ? limits : &none;
    const uint32_t separator = v->sep != TOKEN_NONE ? v->sep : v->eos;
    const bool bos = tokenizer_adds_bos(t), eos = tokenizer_adds_eos(t), sep = v->add_sep && separator != TOKEN_NONE;
    const size_t before = out->n, own = (size_t)bos + 2 * (size_t)eos + sep;
    size_t n[2] = { texts[0].n, texts[1].n };
    if (l->all && l->all <= own)
        return wk_fail(err, WK_INVALID, "a pair of at most %zu tokens: %zu begin and end its texts", l->all, own);
    if (l->second && n[1] > l->second) n[1] = l->second;
    if (l->all) fit_pair(n, l->all - own);
    bool room = !bos || tokens_add(out, v->bos);
    *second = 0;
    for (int i = 0; room && i < 2; i++) {
        if (i && v->model == VOCAB_WORDPIECE) *second = out->n - before;
        room = add_ids(out, &texts[i], n[i], l->from_left) && (!eos || tokens_add(out, v->eos)) &&
               (i || !sep || tokens_add(out, separator));
    }
    if (room) return WK_OK;
    out->n = before;
    return wk_fail(err, WK_NO_MEMORY, "no memory for the ids");
}

wk_status tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_part pair[2],
                                const struct tokenizer_watch *watch, struct tokens *out, size_t *second,
                                const struct wk_err *err)
{
    struct tokens texts[2] = { { 0 } };
    wk_status status = WK_OK;
    for (int i = 0; !status && i < 2; i++)
        status = tokenizer_encode_watched(t, &pair[i], 1, false, watch, &texts[i], err);
    if (!status) status = tokenizer_join_pair(t, texts, NULL, out, second, err);
    for (int i = 0; i < 2; i++) tokens_free(&texts[i]);
    return status;
}

wk_status tokenizer_encode(const struct tokenizer *t, const void *bytes, size_t n, bool parse_special, bool add_special,
                           struct tokens *out, const struct wk_err *err)
{
    const struct tokenizer_part part = { bytes, n, parse_special };
    return tokenizer_encode_parts(t, &part, 1, add_special, out, err);
}

/* Can white space vanish beside a special token? */
static bool strips_space(const struct tokenizer *t)
{
    const struct specials *both[] = { &t->pipeline.raw, &t->pipeline.normalized };
    bool strips = t->strips_right;
    for (int k = 0; t->json && k < 2; k++)
        for (uint32_t i = 0; i < both[k]->n; i++)
            strips = strips || both[k]->flags[i] & (SPECIAL_STRIPS_LEFT | SPECIAL_STRIPS_RIGHT);
    return strips;
}

size_t tokenizer_fewest(const struct tokenizer *t, const struct tokenizer_part *parts, size_t n_parts)
{
    enum { NFC_SHRINKS = 4 }; /* no sequence becomes less than a fourth of its bytes; most, three jamo, a third */
    bool composes = false;
    /* A word of any length may be one unknown token. */
    if (t->vocab.model == VOCAB_WORDPIECE || t->vocab.model == VOCAB_UNIGRAM) return 0;
    for (uint32_t i = 0; t->json && i < t->pipeline.n_steps; i++) {
        const struct hf_step *s = &t->pipeline.step[i];
        if (s->kind == HF_REPLACE && s->to_len < s->from_len) return 0;
        composes = composes || s->kind == HF_NFC;
    }
    const bool visible_only = strips_space(t);
    size_t plain = 0, high = 0;
    for (size_t p = 0; p < n_parts; p++) {
        const unsigned char *bytes = parts[p].bytes;
        for (size_t i = 0; i < parts[p].len; i++) {
            plain += bytes[i] < 0x80 && !(visible_only && is_ascii_space((char)bytes[i]));
            high += bytes[i] >= 0x80;
        }
    }
    if (visible_only) high = 0; /* some of it may be white space */
    return (plain + (composes ? high / NFC_SHRINKS : high)) / t->vocab.longest;
}

/* ---- decode -------------------------------------------------------------------------------------------- */

struct token_bytes tokenizer_piece(const struct tokenizer *t, uint32_t id, bool show_special)
{
    const enum token_type type = tokenizer_type(t, id);
    const bool silent = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_UNUSED;
    return id >= t->vocab.n || (silent && !show_special) ? (struct token_bytes){ "", 0 } : vocab_piece(&t->vocab, id);
}

wk_status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, bool show_special, char **out,
                           size_t *len, const struct wk_err *err)
{
    size_t room = 1, used = 0;
    *out = NULL;
    *len = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= t->vocab.n)
            return wk_fail(err, WK_INVALID, "id %u (number %zu) is not in the vocabulary of %u tokens", ids[i], i,
                           t->vocab.n);
        room += tokenizer_piece(t, ids[i], show_special).len;
    }
    char *text = malloc(room);
    if (!text) return wk_fail(err, WK_NO_MEMORY, "no memory for the text of %zu ids", n);
    bool at_start = t->vocab.model != VOCAB_BPE && t->vocab.add_space_prefix;
    for (size_t i = 0; i < n; i++) {
        struct token_bytes piece = tokenizer_piece(t, ids[i], show_special);
        if (!piece.len) continue;
        if (at_start && piece.data[0] == ' ' && t->vocab.type[ids[i]] == TOKEN_NORMAL)
            piece = (struct token_bytes){ piece.data + 1, piece.len - 1 };
        at_start = false;
        memcpy(text + used, piece.data, piece.len);
        used += piece.len;
    }
    text[used] = '\0';
    *out = text;
    *len = used;
    return WK_OK;
}
