/* hf_json.c: opens a tokenizer.json (Hugging Face tokenizers): its vocabulary, merges and added tokens become a struct
 * vocab and a merge table like those of a GGUF file, and everything said of vocab.c holds here too: what passes is safe
 * to use by index.
 *
 * The file is read into memory whole and walked twice: once from end to end, which proves it to be JSON, finds its
 * parts wherever they stand and counts the merges, and then part by part in the order in which they need each other.
 * Nothing is built that grows faster than the file. */
#include "tokenizer/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "gguf/gguf.h"

enum { MAX_FILE = 256 << 20 };

enum section {
    S_VERSION,
    S_TRUNCATION,
    S_PADDING,
    S_ADDED,
    S_NORMALIZER,
    S_PRETOKENIZER,
    S_POSTPROCESSOR,
    S_DECODER,
    S_MODEL,
    S_COUNT
};
static const char *const section_names[S_COUNT] = { "version",        "truncation", "padding",
                                                    "added_tokens",   "normalizer", "pre_tokenizer",
                                                    "post_processor", "decoder",    "model" };

/* What is gathered while a file is opened. */
struct entry {
    uint32_t id, at, len;
}; /* a token's text is texts[at .. at + len) */
struct added {
    uint32_t id, at, len;
    uint8_t flags;
    bool normalized, special;
};
struct opening {
    const char *name;
    char vocab_path[256], merges_path[256], added_path[256]; /* as messages of other files say them */
    const struct wk_err *err;
    struct json_text section[S_COUNT], vocab, merges; /* section: of the model nothing */
    uint64_t n_merges;
    struct byte_buffer texts;
    struct entry *entry; /* the model's tokens, in the order of the file */
    size_t n_entries, entry_cap;
    struct added *added;
    size_t n_added, added_cap;
    uint32_t rows, embedded,
        n; /* ids that the model has, and the vocabulary in its file, 0: unknown; ids that there are here */
    char unk[256];
    bool byte_fallback, ignore_merges;
};

static wk_status no_memory(const struct opening *o) { return wk_fail(o->err, WK_NO_MEMORY, "%s: no memory", o->name); }

/* ---- tokens -------------------------------------------------------------------------------------------- */

static bool keep_text(struct opening *o, struct json_reader *r, struct json_text s, uint32_t *at)
{
    if (s.len < 1 || s.len > TOKENIZER_MAX_TOKEN_BYTES)
        return jr_fail(r, WK_INVALID, "a token of %zu bytes; 1 to %d are supported", s.len, TOKENIZER_MAX_TOKEN_BYTES);
    if (!array_reserve((void **)&o->texts.data, &o->texts.cap, o->texts.n + s.len, 1))
        return jr_fail(r, WK_NO_MEMORY, "no memory");
    memcpy(o->texts.data + o->texts.n, s.data, s.len);
    *at = (uint32_t)o->texts.n; /* a file has at most MAX_FILE bytes */
    o->texts.n += s.len;
    return true;
}

static bool read_id(struct opening *o, struct json_reader *r, uint32_t *out)
{
    const uint64_t limit = o->rows ? o->rows : TOKENIZER_MAX_VOCAB;
    uint64_t id;
    if (!jr_u64(r, &id)) return false;
    if (id >= limit)
        return jr_fail(r, WK_INVALID, "id %llu; %s %llu", (unsigned long long)id,
                       o->rows ? "the model's vocabulary has" : "ids are supported below", (unsigned long long)limit);
    *out = (uint32_t)id;
    if (*out >= o->n) o->n = *out + 1;
    return true;
}

static wk_status read_vocab(struct opening *o)
{
    struct json_reader r;
    struct json_text key;
    jr_open(&r, o->vocab.data, o->vocab.len, o->name, "model.vocab", o->err);
    if (jr_object(&r)) {
        while (jr_member(&r, &key)) {
            struct entry e = { .len = (uint32_t)key.len };
            if (o->n_entries == TOKENIZER_MAX_VOCAB)
                (void)jr_fail(&r, WK_INVALID, "more than %d tokens", TOKENIZER_MAX_VOCAB);
            else if (!array_reserve((void **)&o->entry, &o->entry_cap, o->n_entries + 1, sizeof *o->entry))
                (void)jr_fail(&r, WK_NO_MEMORY, "no memory");
            if (r.status || !keep_text(o, &r, key, &e.at) || !read_id(o, &r, &e.id)) break;
            o->entry[o->n_entries++] = e;
        }
        if (!r.status && !o->n_entries) (void)jr_fail(&r, WK_INVALID, "is empty");
    }
    jr_close(&r);
    return r.status;
}

static bool read_added_token(struct opening *o, struct json_reader *r)
{
    static const char *const names[] = { "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special" };
    bool flags[7] = { false };
    struct added a = { 0 };
    struct json_text content;
    uint64_t seen = 0;
    flags[5] = true; /* what the format takes for granted, until special says otherwise */
    if (!jr_object(r)) return false;
    for (size_t i; (i = hf_member(r, names, 7, &seen)) != SIZE_MAX;) {
        if (i == 0  ? !read_id(o, r, &a.id)
            : i > 1 ? !jr_bool(r, &flags[i])
                    : !jr_string(r, &content) || !keep_text(o, r, content, &a.at))
            return false;
        if (i == 1) a.len = (uint32_t)(o->texts.n - a.at);
    }
    if (r->status || (seen & 3) != 3) return jr_fail(r, WK_INVALID, "an added token needs an id and a content");
    a.flags = (uint8_t)((flags[2] ? SPECIAL_WORD : 0) | (flags[3] ? SPECIAL_STRIPS_LEFT : 0) |
                        (flags[4] ? SPECIAL_STRIPS_RIGHT : 0));
    a.special = flags[6];
    a.normalized = seen & 1 << 5 ? flags[5] : !a.special;
    if (!array_reserve((void **)&o->added, &o->added_cap, o->n_added + 1, sizeof *o->added))
        return jr_fail(r, WK_NO_MEMORY, "no memory");
    o->added[o->n_added++] = a;
    return true;
}

static wk_status read_added(struct opening *o)
{
    struct json_reader r;
    jr_open(&r, o->section[S_ADDED].data, o->section[S_ADDED].len, o->name, "added_tokens", o->err);
    if (!jr_null(&r) && jr_array(&r))
        while (jr_element(&r)) {
            if (o->n_added == TOKENIZER_MAX_VOCAB)
                (void)jr_fail(&r, WK_INVALID, "more than %d tokens", TOKENIZER_MAX_VOCAB);
            if (r.status || !read_added_token(o, &r)) break;
        }
    jr_close(&r);
    return r.status;
}

/* Texts in the order of ids. A token of the model that is added as well must have its id there too. */
static wk_status place_tokens(struct opening *o, struct vocab *v)
{
    uint32_t at = 0;
    v->n = o->n;
    if (o->rows > v->n) v->n = o->rows;
    if (o->embedded > v->n) v->n = o->embedded;
    struct entry *by_id = calloc(v->n, sizeof *by_id);
    v->text_at = malloc((v->n + (size_t)1) * sizeof *v->text_at);
    v->text = malloc(o->texts.n ? o->texts.n : 1);
    v->type = malloc(v->n);
    wk_status status = by_id && v->text_at && v->text && v->type ? WK_OK : no_memory(o);
    for (size_t i = 0; !status && i < o->n_entries + o->n_added; i++) {
        const bool is_added = i >= o->n_entries;
        const struct added *a = is_added ? &o->added[i - o->n_entries] : NULL;
        const struct entry e = is_added ? (struct entry){ a->id, a->at, a->len } : o->entry[i], *have = &by_id[e.id];
        if (!have->len)
            by_id[e.id] = e;
        else if (!is_added || have->len != e.len || memcmp(o->texts.data + have->at, o->texts.data + e.at, e.len) != 0)
            status = wk_fail(o->err, WK_INVALID, "%s: %s: id %u is given to two tokens, '%.*s' and '%.*s'", o->name,
                             is_added ? "added_tokens" : "model.vocab", e.id, (int)(have->len < 64 ? have->len : 64),
                             o->texts.data + have->at, (int)(e.len < 64 ? e.len : 64), o->texts.data + e.at);
    }
    for (uint32_t id = 0; !status && id < v->n; id++) {
        v->text_at[id] = at;
        v->type[id] = by_id[id].len ? TOKEN_NORMAL : TOKEN_UNUSED;
        if (by_id[id].len) memcpy(v->text + at, o->texts.data + by_id[id].at, by_id[id].len);
        if (by_id[id].len > v->longest) v->longest = by_id[id].len;
        at += by_id[id].len;
    }
    if (!status) v->text_at[v->n] = at;
    free(by_id);
    return status;
}

static bool is_text(const struct vocab *v, uint32_t id, const char *text)
{
    const struct token_bytes t = vocab_text(v, id);
    return t.len == strlen(text) && memcmp(t.data, text, t.len) == 0;
}

static wk_status set_types(struct opening *o, struct vocab *v)
{
    for (uint32_t id = 0; o->byte_fallback && id < v->n; id++)
        if (vocab_byte_value(vocab_text(v, id)) >= 0) v->type[id] = TOKEN_BYTE;
    for (size_t i = 0; i < o->n_added; i++) {
        const struct added *a = &o->added[i];
        if (v->type[a->id] == TOKEN_CONTROL || v->type[a->id] == TOKEN_USER_DEFINED || v->type[a->id] == TOKEN_UNKNOWN)
            return wk_fail(o->err, WK_INVALID, "%s: added_tokens[%zu]: '%.*s' comes twice", o->name, i,
                           (int)(a->len < 64 ? a->len : 64), o->texts.data + a->at);
        v->type[a->id] = !a->special ? TOKEN_USER_DEFINED : is_text(v, a->id, o->unk) ? TOKEN_UNKNOWN : TOKEN_CONTROL;
    }
    return WK_OK;
}

/* No two ids may have one text, whatever their types: the format's own table could not hold them. */
static wk_status check_texts(const struct opening *o, const struct vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++) {
        const struct token_bytes text = vocab_text(v, id);
        const uint32_t found = text.len ? vocab_find(v, text.data, text.len) : id;
        if (found != id)
            return wk_fail(o->err, WK_INVALID, "%s: tokens %u and %u have the same text '%.*s'", o->name,
                           found < id ? found : id, found < id ? id : found, (int)(text.len < 64 ? text.len : 64),
                           text.data);
    }
    return WK_OK;
}

/* ---- model --------------------------------------------------------------------------------------------- */

/* null and "" mean that there is none. */
static bool read_nothing(struct json_reader *r)
{
    struct json_text s;
    if (jr_null(r)) return true;
    return jr_string(r, &s) && (!s.len || jr_fail(r, WK_UNSUPPORTED, "expected null or \"\", found '%.*s'",
                                                  (int)(s.len < 64 ? s.len : 64), s.data));
}

static bool read_unk(struct opening *o, struct json_reader *r)
{
    struct json_text s;
    if (jr_null(r)) return true;
    if (!jr_string(r, &s)) return false;
    if (s.len >= sizeof o->unk) return jr_fail(r, WK_INVALID, "a token of %zu bytes", s.len);
    memcpy(o->unk, s.data, s.len);
    o->unk[s.len] = '\0';
    return true;
}

static bool read_optional_bool(struct json_reader *r, bool *out) { return jr_null(r) || jr_bool(r, out); }

static bool find_merges(struct opening *o, struct json_reader *r)
{
    (void)jr_peek(r);
    o->merges.data = r->at;
    if (!jr_array(r)) return false;
    for (; jr_element(r); o->n_merges++)
        if (!jr_skip(r)) return false;
    o->merges.len = (size_t)(r->at - o->merges.data);
    return !r->status;
}

static bool read_model(struct opening *o, struct json_reader *r)
{
    enum { TYPE, DROPOUT, UNK, PREFIX, SUFFIX, FUSE, FALLBACK, IGNORE, VOCAB, MERGES, COUNT };
    static const char *const names[COUNT] = { "type",
                                              "dropout",
                                              "unk_token",
                                              "continuing_subword_prefix",
                                              "end_of_word_suffix",
                                              "fuse_unk",
                                              "byte_fallback",
                                              "ignore_merges",
                                              "vocab",
                                              "merges" };
    struct json_text type; /* files of before 2020 do not say it */
    uint64_t seen = 0;
    bool fuse, ok = jr_object(r);
    for (size_t i; ok && (i = hf_member(r, names, COUNT, &seen)) != SIZE_MAX;) {
        switch (i) {
        case TYPE:
            ok = jr_string(r, &type) &&
                 (jr_is(type, "BPE") || jr_fail(r, WK_UNSUPPORTED, "model %.*s is not supported; supported is BPE",
                                                (int)(type.len < 64 ? type.len : 64), type.data));
            break;
        case DROPOUT:
            ok = jr_null(r) || jr_fail(r, WK_UNSUPPORTED, "dropout is not supported: encoding would be random");
            break;
        case UNK: ok = read_unk(o, r); break;
        case PREFIX:
        case SUFFIX: ok = read_nothing(r); break;
        case FUSE: ok = read_optional_bool(r, &fuse); break;
        case FALLBACK: ok = read_optional_bool(r, &o->byte_fallback); break;
        case IGNORE: ok = read_optional_bool(r, &o->ignore_merges); break;
        case VOCAB: ok = jr_raw(r, &o->vocab); break;
        default: ok = find_merges(o, r); break;
        }
    }
    return !r->status &&
           ((o->vocab.data && o->merges.data) || jr_fail(r, WK_INVALID, "expected members vocab and merges"));
}

static bool read_merge(struct json_reader *r, struct byte_buffer *left_copy, struct token_bytes *left,
                       struct token_bytes *right)
{
    struct json_text s;
    if (jr_peek(r) == JR_STRING)
        return jr_string(r, &s) && (bpe_split(s.data, s.len, left, right) ||
                                    jr_fail(r, WK_INVALID, "expected two tokens separated by a space, found '%.*s'",
                                            (int)(s.len < 64 ? s.len : 64), s.data));
    if (!jr_array(r) || !jr_element(r) || !jr_string(r, &s)) return jr_fail(r, WK_INVALID, "expected two tokens");
    /* The second string may take the first one's place in the reader. */
    if (!array_reserve((void **)&left_copy->data, &left_copy->cap, s.len, 1))
        return jr_fail(r, WK_NO_MEMORY, "no memory");
    if (s.len) memcpy(left_copy->data, s.data, s.len);
    *left = (struct token_bytes){ left_copy->data, s.len };
    if (!jr_element(r) || !jr_string(r, &s)) return jr_fail(r, WK_INVALID, "expected two tokens");
    *right = (struct token_bytes){ s.data, s.len };
    return !jr_element(r) ? !r->status : jr_fail(r, WK_INVALID, "expected two tokens");
}

static wk_status read_merges(struct opening *o, const struct vocab *v, struct bpe_merges *m)
{
    struct json_reader r;
    struct byte_buffer left_copy = { 0 };
    struct token_bytes left, right;
    char text[256];
    const struct wk_err why = { text, sizeof text };
    bool twice;
    wk_status status = bpe_begin(m, v, o->n_merges, o->merges_path, o->err);
    if (status) return status;
    jr_open(&r, o->merges.data, o->merges.len, o->name, "model.merges", o->err);
    for (bool ok = jr_array(&r); ok && jr_element(&r);) {
        if (!read_merge(&r, &left_copy, &left, &right)) break;
        status = bpe_add_merge(m, v, left, right, &twice, &why);
        if (status)
            (void)jr_fail(&r, status, "%s", text);
        else if (twice)
            (void)jr_fail(&r, WK_INVALID, "this merge comes twice");
        ok = !r.status;
    }
    jr_close(&r);
    free(left_copy.data);
    return r.status;
}

/* ---- added tokens as specials -------------------------------------------------------------------------- */

/* Tokens that are looked for in normalised text are spelt as the normalizer leaves them. */
static wk_status open_specials(struct opening *o, const struct vocab *v, struct hf_pipeline *p, bool normalized)
{
    struct special *list = malloc((o->n_added ? o->n_added : 1) * sizeof *list);
    struct byte_buffer texts = { 0 }, one = { 0 }, spare = { 0 };
    uint32_t n = 0;
    wk_status status = list ? WK_OK : no_memory(o);
    for (size_t i = 0; !status && i < o->n_added; i++) {
        const struct added *a = &o->added[i];
        if (a->normalized != normalized) continue;
        struct token_bytes text = vocab_text(v, a->id);
        if (normalized) {
            status = hf_normalize(p, text.data, text.len, &one, &spare, o->err);
            if (!status && (texts.n + one.n > SPECIAL_MAX_BYTES ||
                            !array_reserve((void **)&texts.data, &texts.cap, texts.n + one.n, 1)))
                status = wk_fail(
                    o->err, WK_INVALID,
                    "%s: added_tokens: the texts of special tokens are longer than the %d bytes that are supported",
                    o->name, SPECIAL_MAX_BYTES);
            if (status) break;
            if (one.n) memcpy(texts.data + texts.n, one.data, one.n);
            text = (struct token_bytes){ "", one.n }; /* its bytes are found below */
            texts.n += one.n;
        }
        if (text.len) list[n++] = (struct special){ text, a->id, special_is_control(v, a->id), a->flags };
    }
    size_t at = 0;
    for (uint32_t i = 0; normalized && i < n; at += list[i++].text.len)
        list[i].text.data = texts.data + at; /* the buffer moves no more */
    if (!status)
        status = specials_open(normalized ? &p->normalized : &p->raw, list, n, true, v->seed, o->added_path, o->err);
    free(list);
    free(texts.data);
    free(one.data);
    free(spare.data);
    return status;
}

/* ---- roles --------------------------------------------------------------------------------------------- */

static uint32_t first_added(const struct vocab *v, const char *const *texts)
{
    for (; *texts; texts++) {
        const uint32_t id = vocab_find(v, *texts, strlen(*texts));
        if (id != TOKEN_NONE && v->type[id] != TOKEN_NORMAL) return id;
    }
    return TOKEN_NONE;
}

/* A tokenizer.json names no roles but those that its post-processor puts round a text. The model's file knows them;
 * without one the texts tell. */
static wk_status set_roles(struct opening *o, struct vocab *v, const struct gguf *file)
{
    static const char *const begins[] = { "<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", NULL };
    static const char *const ends[] = { "<|return|>",    "<|im_end|>", "<|eot_id|>", "<|end_of_text|>",
                                        "<|endoftext|>", "</s>",       "<eos>",      NULL };
    struct hf_ends put;
    wk_status status = hf_read_postprocessor(&put, v, o->section[S_POSTPROCESSOR], o->name, o->err);
    if (status) return status;
    v->bos = put.before != TOKEN_NONE ? put.before : first_added(v, begins);
    v->eos = put.after != TOKEN_NONE ? put.after : first_added(v, ends);
    if (o->unk[0]) v->unk = vocab_find(v, o->unk, strlen(o->unk));
    if (o->unk[0] && v->unk == TOKEN_NONE)
        return wk_fail(o->err, WK_INVALID, "%s: model.unk_token: '%s' is not in the vocabulary", o->name, o->unk);
    if (file && (status = vocab_read_roles(v, file, o->err))) return status;
    if (put.said) { /* then it is this file that decides what is put round a text */
        v->add_bos = put.before != TOKEN_NONE;
        v->add_eos = put.after != TOKEN_NONE;
        if (v->add_bos) v->bos = put.before;
        if (v->add_eos) v->eos = put.after;
    }
    return WK_OK;
}

/* The model's file may embed a vocabulary as well: then both must mean the same by an id. */
static wk_status compare_embedded(const struct opening *o, const struct vocab *v, const struct gguf *file)
{
    const struct gguf_kv *kv = file ? gguf_find(file, "tokenizer.ggml.tokens") : NULL;
    struct gguf_strings it;
    struct gguf_str s;
    if (!kv || gguf_strings_begin(file, kv, &it, NULL)) return WK_OK;
    for (uint32_t id = 0; id < v->n && gguf_strings_next(&it, &s); id++) {
        const struct token_bytes text = vocab_text(v, id);
        if (v->type[id] == TOKEN_NORMAL && (text.len != s.len || memcmp(text.data, s.data, text.len) != 0))
            return wk_fail(
                o->err, WK_INVALID,
                "%s: token %u is '%.*s', but '%.*s' in the model's file: this tokenizer belongs to another model",
                o->name, id, (int)(text.len < 64 ? text.len : 64), text.data, (int)(s.len < 64 ? s.len : 64), s.data);
    }
    return WK_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static wk_status find_sections(struct opening *o, const char *text, size_t len)
{
    struct json_reader r;
    uint64_t seen = 0;
    jr_open(&r, text, len, o->name, "", o->err);
    if (jr_object(&r)) {
        for (size_t i; (i = hf_member(&r, section_names, S_COUNT, &seen)) != SIZE_MAX;)
            if (!(i == S_MODEL ? read_model(o, &r) : jr_raw(&r, &o->section[i]))) break;
        if (jr_finish(&r) && !o->vocab.data) (void)jr_fail(&r, WK_INVALID, "has no model: it is no tokenizer.json");
    }
    for (size_t i = 0; i < S_COUNT; i++)
        if (!o->section[i].data) o->section[i] = (struct json_text){ "null", 4 };
    jr_close(&r);
    return r.status;
}

static wk_status check_model(const struct opening *o, const struct hf_pipeline *p)
{
    if (p->byte_level && o->byte_fallback)
        return wk_fail(o->err, WK_UNSUPPORTED, "%s: model.byte_fallback: expected false in a byte-level tokenizer",
                       o->name);
    if (!p->byte_level && !o->byte_fallback)
        return wk_fail(o->err, WK_UNSUPPORTED,
                       "%s: model: neither byte-level (pre_tokenizer ByteLevel) nor with byte_fallback: not every text "
                       "could be encoded",
                       o->name);
    return WK_OK;
}

static wk_status check_bytes(const struct opening *o, const struct vocab *v)
{
    for (unsigned b = 0; v->model == VOCAB_SPM && b < 256; b++)
        if (v->byte_id[b] == TOKEN_NONE)
            return wk_fail(o->err, WK_INVALID, "%s: byte_fallback needs a token <0x%02X>", o->vocab_path, b);
    return WK_OK;
}

static wk_status open_all(struct opening *o, const struct gguf *file, struct vocab *v, struct bpe_merges *m,
                          struct pretokenizer *words, struct hf_pipeline *p)
{
    wk_status status;
    bool strips;
    if ((status = hf_read_normalizer(p, o->section[S_NORMALIZER], o->name, o->err)) ||
        (status = hf_read_pretokenizer(p, words, o->section[S_PRETOKENIZER], o->name, o->err)) ||
        (status = hf_read_decoder(p, &strips, o->section[S_DECODER], o->name, o->err)) ||
        (status = check_model(o, p)) || (status = read_vocab(o)) || (status = read_added(o)))
        return status;
    words->ignore_merges = o->ignore_merges;
    vocab_begin(v, p->byte_level ? VOCAB_BPE : VOCAB_SPM, o->vocab_path);
    v->add_space_prefix = strips;
    if ((status = place_tokens(o, v)) || (status = set_types(o, v)) || (status = vocab_table(v, o->err)) ||
        (status = check_texts(o, v)) || (status = compare_embedded(o, v, file)) || (status = set_roles(o, v, file)) ||
        (status = vocab_complete(v, o->err)) || (status = check_bytes(o, v)) || (status = read_merges(o, v, m)) ||
        (status = open_specials(o, v, p, false)))
        return status;
    return open_specials(o, v, p, true);
}

wk_status hf_open_text(const char *text, size_t len, const char *name, const struct gguf *file, uint32_t rows,
                       struct vocab *v, struct bpe_merges *m, struct pretokenizer *words, struct hf_pipeline *p,
                       const struct wk_err *err)
{
    struct opening o = { .name = name, .err = err, .rows = rows };
    if (rows > TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "%s: the model's vocabulary has %u tokens; at most %d are supported", name,
                       rows, TOKENIZER_MAX_VOCAB);
    const struct gguf_kv *embedded = file ? gguf_find(file, "tokenizer.ggml.tokens") : NULL;
    if (embedded && embedded->type == GGUF_ARRAY && embedded->count <= TOKENIZER_MAX_VOCAB)
        o.embedded = (uint32_t)embedded->count;
    (void)snprintf(o.vocab_path, sizeof o.vocab_path, "%.200s: model.vocab", name);
    (void)snprintf(o.merges_path, sizeof o.merges_path, "%.200s: model.merges", name);
    (void)snprintf(o.added_path, sizeof o.added_path, "%.200s: added_tokens", name);
    if (!sha256_hex(text, len, p->digest)) return wk_fail(err, WK_INTERNAL, "%s: no SHA-256 of it can be made", name);
    wk_status status = find_sections(&o, text, len);
    if (!status) status = open_all(&o, file, v, m, words, p);
    v->where = "model.vocab";
    free(o.texts.data);
    free(o.entry);
    free(o.added);
    return status;
}

static wk_status read_whole(int fd, const char *path, char **out, size_t *len, const struct wk_err *err)
{
    struct stat st;
    if (fstat(fd, &st)) return wk_fail(err, WK_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size < 1 || st.st_size > MAX_FILE)
        return wk_fail(err, WK_INVALID, "%s: expected a file of 1 to %d bytes", path, MAX_FILE);
    *out = malloc((size_t)st.st_size);
    if (!*out) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for %lld bytes", path, (long long)st.st_size);
    for (*len = 0; *len < (size_t)st.st_size;) {
        const ssize_t n = read(fd, *out + *len, (size_t)st.st_size - *len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return wk_fail(err, WK_IO, "%s: %s", path, strerror(errno));
        if (n == 0) break; /* shorter than it was: what is there must be whole */
        *len += (size_t)n;
    }
    return WK_OK;
}

wk_status hf_open(const char *path, const struct gguf *file, uint32_t rows, struct vocab *v, struct bpe_merges *m,
                  struct pretokenizer *words, struct hf_pipeline *p, const struct wk_err *err)
{
    char *text = NULL;
    size_t len = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return wk_fail(err, WK_IO, "%s: %s", path, strerror(errno));
    wk_status status = read_whole(fd, path, &text, &len, err);
    (void)close(fd);
    if (!status) status = hf_open_text(text, len, path, file, rows, v, m, words, p, err);
    free(text);
    return status;
}
