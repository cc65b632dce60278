/* vocab.c: reads the vocabulary of a GGUF file into a struct vocab and proves it consistent.
 *
 * Everything about it is untrusted: arrays may be short, ids out of range, texts repeated or absurd. What passes here
 * is safe to use by index everywhere else. The byte alphabet is GPT-2's (Radford et al. 2019, encoder.py). */
#include "tokenizer/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "gguf/gguf.h"
#include "base/utf8.h"

bool array_reserve(void **array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return true;
    size_t grown = *cap + *cap / 2 + 64;
    if (grown < need) grown = need;
    if (grown > SIZE_MAX / size) return false;
    void *p = realloc(*array, grown * size);
    if (!p) return false;
    *array = p;
    *cap = grown;
    return true;
}

/* ---- text -> id ---------------------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t seed, const char *data, size_t len)
{
    uint64_t h = hash_mix(seed, len), word;
    for (; len >= 8; data += 8, len -= 8) {
        memcpy(&word, data, 8);
        h = hash_mix(h ^ word, seed);
    }
    word = 0;
    memcpy(&word, data, len);
    return hash_mix(h ^ word, ~seed);
}

/* The slot that holds `text`, or the free one where it would go. */
static uint32_t *find_slot(const struct vocab *v, const char *text, size_t len)
{
    uint32_t at = (uint32_t)hash_bytes(v->seed, text, len) & v->slot_mask;
    for (;; at = (at + 1) & v->slot_mask) {
        uint32_t *slot = &v->slot[at];
        if (*slot == TOKEN_NONE) return slot;
        const struct token_bytes have = vocab_text(v, *slot);
        if (have.len == len && memcmp(have.data, text, len) == 0) return slot;
    }
}

uint32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    return len && len <= v->longest ? *find_slot(v, text, len) : TOKEN_NONE;
}

/* Padding tokens may repeat a text: a normal token wins, else the first. Two normal tokens of one text would make ids
 * ambiguous. */
wk_status vocab_table(struct vocab *v, const struct wk_err *err)
{
    uint32_t slots = 16;
    while (slots < 2 * v->n) slots *= 2;
    v->slot = malloc(slots * sizeof *v->slot);
    if (!v->slot) return wk_fail(err, WK_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n);
    memset(v->slot, 0xFF, slots * sizeof *v->slot);
    v->slot_mask = slots - 1;
    for (uint32_t id = 0; id < v->n; id++) {
        const struct token_bytes text = vocab_text(v, id);
        if (!text.len) continue;
        uint32_t *slot = find_slot(v, text.data, text.len);
        if (*slot == TOKEN_NONE || (v->type[*slot] != TOKEN_NORMAL && v->type[id] == TOKEN_NORMAL))
            *slot = id;
        else if (v->type[*slot] == TOKEN_NORMAL && v->type[id] == TOKEN_NORMAL)
            return wk_fail(err, WK_INVALID, "%s: tokens %u and %u are both normal and have the same text", v->where,
                           *slot, id);
    }
    return WK_OK;
}

/* ---- arrays of the file -------------------------------------------------------------------------------- */

static wk_status find_array(const struct gguf *file, const char *key, uint64_t n, const struct gguf_kv **out,
                            const struct wk_err *err)
{
    *out = gguf_find(file, key);
    if (!*out) return WK_OK;
    if ((*out)->type != GGUF_ARRAY)
        return wk_fail(err, WK_INVALID, "%s: expected an array, found %s", key, gguf_type_name((*out)->type));
    if ((*out)->count != n)
        return wk_fail(err, WK_INVALID, "%s: has %llu entries but tokenizer.ggml.tokens has %llu", key,
                       (unsigned long long)(*out)->count, (unsigned long long)n);
    return WK_OK;
}

static wk_status read_texts(struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, "tokenizer.ggml.tokens");
    struct gguf_strings it;
    struct gguf_str s;
    if (!kv) return wk_fail(err, WK_UNSUPPORTED, "the file embeds no vocabulary (tokenizer.ggml.tokens is absent)");
    if (gguf_strings_begin(file, kv, &it, err)) return WK_INVALID;
    if (kv->count < 1 || kv->count > TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "tokenizer.ggml.tokens: %llu tokens; 1 to %d are supported",
                       (unsigned long long)kv->count, TOKENIZER_MAX_VOCAB);
    v->n = (uint32_t)kv->count;
    v->text_at = malloc((v->n + (size_t)1) * sizeof *v->text_at);
    if (!v->text_at) return wk_fail(err, WK_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n);
    uint32_t total = 0; /* <= 2^20 tokens: the cap of each keeps the sum far below what follows */
    for (uint32_t id = 0; id < v->n; id++) {
        if (!gguf_strings_next(&it, &s))
            return wk_fail(err, WK_INVALID, "tokenizer.ggml.tokens: ends after %u tokens", id);
        if (s.len > TOKENIZER_MAX_TOKEN_BYTES || s.len > (UINT32_MAX / 2) - total)
            return wk_fail(err, WK_INVALID,
                           "tokenizer.ggml.tokens[%u]: %llu bytes; at most %d are supported (and 2 GiB in all)", id,
                           (unsigned long long)s.len, TOKENIZER_MAX_TOKEN_BYTES);
        v->text_at[id] = total;
        total += (uint32_t)s.len;
        if (s.len > v->longest) v->longest = (size_t)s.len;
    }
    v->text_at[v->n] = total;
    v->text = malloc(total ? total : 1);
    if (!v->text) return wk_fail(err, WK_NO_MEMORY, "no memory for %u bytes of token texts", total);
    if (gguf_strings_begin(file, kv, &it, err)) return WK_INVALID;
    for (uint32_t id = 0; id < v->n && gguf_strings_next(&it, &s); id++)
        if (s.len) memcpy(v->text + v->text_at[id], s.data, (size_t)s.len);
    return WK_OK;
}

static wk_status read_types(struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct gguf_kv *kv;
    if (find_array(file, "tokenizer.ggml.token_type", v->n, &kv, err)) return WK_INVALID;
    v->type = malloc(v->n);
    if (!v->type) return wk_fail(err, WK_NO_MEMORY, "no memory for %u token types", v->n);
    memset(v->type, TOKEN_NORMAL, v->n);
    for (uint32_t id = 0; kv && id < v->n; id++) {
        int64_t type;
        if (gguf_i64_at(file, kv, id, &type, err)) return WK_INVALID;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return wk_fail(err, WK_INVALID, "tokenizer.ggml.token_type[%u]: %lld is no token type (1 to 6)", id,
                           (long long)type);
        v->type[id] = (uint8_t)type;
    }
    return WK_OK;
}

static wk_status read_scores(struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct gguf_kv *kv;
    if (find_array(file, "tokenizer.ggml.scores", v->n, &kv, err)) return WK_INVALID;
    if (!kv) return wk_fail(err, WK_INVALID, "tokenizer.ggml.scores is absent; a SentencePiece vocabulary needs it");
    v->score = malloc(v->n * sizeof *v->score);
    if (!v->score) return wk_fail(err, WK_NO_MEMORY, "no memory for %u token scores", v->n);
    for (uint32_t id = 0; id < v->n; id++) {
        double score;
        if (gguf_f64_at(file, kv, id, &score, err)) return WK_INVALID;
        if (isnan(score)) return wk_fail(err, WK_INVALID, "tokenizer.ggml.scores[%u] is not a number", id);
        v->score[id] = (float)score;
    }
    return WK_OK;
}

/* ---- ids with a role ----------------------------------------------------------------------------------- */

/* Element i as an id; TOKEN_NONE of the two spellings of "none" that converters write, -1 and 2^32 - 1. */
static wk_status id_at(const struct vocab *v, const struct gguf *file, const char *key, uint64_t i, uint32_t *id,
                       const struct wk_err *err)
{
    int64_t value;
    if (gguf_i64_at(file, gguf_find(file, key), i, &value, err)) return WK_INVALID;
    if (value == -1 || value == (int64_t)UINT32_MAX) {
        *id = TOKEN_NONE;
        return WK_OK;
    }
    if (value < 0 || value >= (int64_t)v->n)
        return wk_fail(err, WK_INVALID, "%s: id %lld is not in the vocabulary of %u tokens", key, (long long)value,
                       v->n);
    *id = (uint32_t)value;
    return WK_OK;
}

/* An absent key leaves *id alone. */
static wk_status read_id(const struct vocab *v, const struct gguf *file, const char *key, uint32_t *id,
                         const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    int64_t one;
    if (!kv) return WK_OK;
    return gguf_i64(file, kv, &one, err) ? WK_INVALID : id_at(v, file, key, 0, id, err);
}

/* Ids that end an answer: one, or an array of them, each of which does. *first: the first, which has the role; NULL:
 * none has. */
static wk_status read_ends(struct vocab *v, const struct gguf *file, const char *key, uint32_t *first,
                           const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    if (!kv) return WK_OK;
    if (!kv->count || kv->count > VOCAB_MAX_FILE_ENDS - v->n_file_ends)
        return wk_fail(err, WK_INVALID, "%s: %llu ids; 1 to %d are supported, with those of other keys", key,
                       (unsigned long long)kv->count, VOCAB_MAX_FILE_ENDS);
    for (uint64_t i = 0; i < kv->count; i++) {
        uint32_t *id = &v->file_ends[v->n_file_ends];
        if (id_at(v, file, key, i, id, err)) return WK_INVALID;
        if (!i && first) *first = *id;
        if (*id != TOKEN_NONE) v->n_file_ends++;
    }
    return WK_OK;
}

static wk_status read_flag(const struct gguf *file, const char *key, bool *flag, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, key);
    return kv ? gguf_bool(file, kv, flag, err) : WK_OK;
}

wk_status vocab_read_roles(struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct {
        const char *key;
        uint32_t *id;
    } ids[] = {
        { "tokenizer.ggml.bos_token_id", &v->bos },
        { "tokenizer.ggml.unknown_token_id", &v->unk },
        { "tokenizer.ggml.padding_token_id", &v->pad },
        { "tokenizer.ggml.seperator_token_id", &v->sep }, /* as converters spell it */
        { "tokenizer.ggml.separator_token_id", &v->sep },
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (read_id(v, file, ids[i].key, ids[i].id, err)) return WK_INVALID;
    if (read_ends(v, file, "tokenizer.ggml.eos_token_id", &v->eos, err) ||
        read_ends(v, file, "tokenizer.ggml.eot_token_id", &v->eot, err) ||
        read_ends(v, file, "tokenizer.ggml.eom_token_id", &v->eom, err) ||
        read_ends(v, file, "tokenizer.ggml.eos_token_ids", NULL, err))
        return WK_INVALID;
    if (read_flag(file, "tokenizer.ggml.add_bos_token", &v->add_bos, err) ||
        read_flag(file, "tokenizer.ggml.add_sep_token", &v->add_sep, err))
        return WK_INVALID;
    return read_flag(file, "tokenizer.ggml.add_eos_token", &v->add_eos, err);
}

/* WordPiece: [CLS] and [SEP] stand around a text, whatever ids other keys name; they are known by keys of their own or
 * by their spelling. */
static wk_status read_wordpiece(struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct {
        const char *text;
        uint32_t *id;
    } usual[] = { { "[CLS]", &v->bos }, { "[SEP]", &v->eos }, { "[UNK]", &v->unk } };
    uint32_t found[] = { TOKEN_NONE, v->sep, v->unk };
    if (read_id(v, file, "tokenizer.ggml.cls_token_id", &found[0], err) ||
        read_flag(file, "tokenizer.ggml.normalizer.lowercase", &v->lowercase, err))
        return WK_INVALID;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const char *text = usual[i].text;
        if (found[i] == TOKEN_NONE) found[i] = vocab_find(v, text, strlen(text));
        if (found[i] != TOKEN_NONE) *usual[i].id = found[i];
        if (*usual[i].id == TOKEN_NONE)
            return wk_fail(err, WK_INVALID, "%s: WordPiece needs %s, which neither a key nor its spelling names",
                           v->where, text);
    }
    return WK_OK;
}

/* What holds where a GGUF file has no key. */
static void preset_roles(struct vocab *v)
{
    const bool spm = v->model == VOCAB_SPM;
    if (spm) { /* SentencePiece's fixed ids, as far as so small a vocabulary has them */
        v->unk = 0;
        if (v->n > 1) v->bos = 1;
        if (v->n > 2) v->eos = 2;
    }
    v->add_bos = v->add_space_prefix = spm;
    if (v->model == VOCAB_UNIGRAM) { /* T5's ids, as far as there are any */
        v->pad = 0;
        if (v->n > 1) v->eos = 1;
        if (v->n > 2) v->unk = 2;
        v->add_eos = v->add_space_prefix = v->trims_spaces = true;
    }
    if (v->model == VOCAB_WORDPIECE) v->add_bos = v->add_eos = v->add_space_prefix = v->lowercase = true;
}

static void add_end(struct vocab *v, uint32_t id)
{
    if (id == TOKEN_NONE || vocab_ends(v, id)) return;
    size_t at = v->n_end++;
    for (; at && v->end_ids[at - 1] > id; at--) v->end_ids[at] = v->end_ids[at - 1];
    v->end_ids[at] = id;
}

/* Files name one eos and often the wrong one; the texts are what chat models really end a turn with. In the harmony
 * format
 * `<|end|>` closes a message, not the answer, whatever a file says. */
static void find_ends(struct vocab *v)
{
    static const char *const texts[] = { "<|eot_id|>",      "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                                         "<|end_of_text|>", "<|eom_id|>", "<EOT>",   "<|return|>",    "<|call|>" };
    const bool harmony = vocab_find(v, "<|return|>", 10) != TOKEN_NONE && vocab_find(v, "<|call|>", 8) != TOKEN_NONE;
    const uint32_t roles[] = { v->eos, v->eot, v->eom }, /* SentencePiece's eos is in no key */
        message_end = harmony ? vocab_find(v, "<|end|>", 7) : TOKEN_NONE;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!harmony || strcmp(texts[i], "<|end|>")) add_end(v, vocab_find(v, texts[i], strlen(texts[i])));
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i] != message_end) add_end(v, roles[i]);
    for (size_t i = 0; i < v->n_file_ends; i++)
        if (v->file_ends[i] != message_end) add_end(v, v->file_ends[i]);
}

bool vocab_ends(const struct vocab *v, uint32_t id)
{
    for (size_t i = 0; i < v->n_end; i++)
        if (v->end_ids[i] == id) return true;
    return false;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* Printable Latin-1 stands for itself; the other 68 bytes, ascending, are 256, 257, ... */
static bool is_printable_byte(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

static uint32_t byte_symbol(unsigned char byte)
{
    if (is_printable_byte(byte)) return byte;
    if (byte <= 32) return 256u + byte;
    if (byte <= 160) return 256u + 33u + (byte - 127u);
    return 256u + 33u + 34u; /* 173, the soft hyphen */
}

size_t vocab_put_symbol(unsigned char byte, char out[2])
{
    const uint32_t c = byte_symbol(byte);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3F));
    return 2;
}

/* The byte that a code point stands for, or -1. */
static int symbol_byte(uint32_t c)
{
    if (c < 256) return is_printable_byte(c) ? (int)c : -1;
    if (c <= 288) return (int)(c - 256);
    if (c <= 322) return (int)(c - 289 + 127);
    return c == 323 ? 173 : -1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vocab_byte_value(struct token_bytes t)
{
    if (t.len != 6 || memcmp(t.data, "<0x", 3) != 0 || t.data[5] != '>') return -1;
    const int high = hex_digit(t.data[3]), low = hex_digit(t.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* May its tokens <0xHH> be bytes? */
static bool has_bytes(const struct vocab *v) { return v->model == VOCAB_SPM || v->model == VOCAB_UNIGRAM; }

/* A file without token types calls everything normal; the tokens that must not be made from ordinary text are known by
 * their spelling and role. */
static void infer_types(struct vocab *v)
{
    for (uint32_t id = 0; has_bytes(v) && id < v->n; id++)
        if (vocab_byte_value(vocab_text(v, id)) >= 0) v->type[id] = TOKEN_BYTE;
    const uint32_t control[] = { v->bos, v->eos, v->pad, v->eot, v->eom };
    for (size_t i = 0; i < sizeof control / sizeof *control; i++)
        if (control[i] != TOKEN_NONE) v->type[control[i]] = TOKEN_CONTROL;
    if (v->unk != TOKEN_NONE) v->type[v->unk] = TOKEN_UNKNOWN;
}

/* The bytes that byte-level text stands for; code points outside the alphabet stand for themselves. Never longer than
 * the text. */
static size_t unmap_text(struct token_bytes text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        const unsigned char *p = (const unsigned char *)text.data + i;
        const size_t len = utf8_sequence(p, text.len - i);
        const int byte = len ? symbol_byte(utf8_decode(p, len)) : -1;
        if (byte >= 0)
            out[n++] = (char)byte;
        else {
            memcpy(out + n, p, len ? len : 1);
            n += len ? len : 1;
        }
        i += len ? len : 1;
    }
    return n;
}

/* SentencePiece text with U+2581 as the space that it stands for. */
static size_t unescape_text(struct token_bytes text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.len - i >= 3 && memcmp(text.data + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else
            out[n++] = text.data[i++];
    }
    return n;
}

static wk_status build_pieces(struct vocab *v, const struct wk_err *err)
{
    v->piece_at = malloc((v->n + (size_t)1) * sizeof *v->piece_at);
    v->piece = malloc(v->text_at[v->n] ? v->text_at[v->n] : 1);
    if (!v->piece_at || !v->piece) return wk_fail(err, WK_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n);
    uint32_t at = 0;
    for (uint32_t id = 0; id < v->n; id++) {
        const struct token_bytes text = vocab_text(v, id);
        char *out = v->piece + at;
        v->piece_at[id] = at;
        if (v->type[id] == TOKEN_BYTE) {
            const int value = vocab_byte_value(text);
            if (value < 0)
                return wk_fail(err, WK_INVALID, "%s[%u]: a byte token must be spelt <0xHH>, found '%.*s'", v->where, id,
                               (int)(text.len < 32 ? text.len : 32), text.data);
            *out = (char)value;
            at++;
        } else if (v->type[id] == TOKEN_NORMAL)
            at += (uint32_t)(v->model == VOCAB_BPE ? unmap_text(text, out) : unescape_text(text, out));
        else {
            if (text.len) memcpy(out, text.data, text.len);
            at += (uint32_t)text.len;
        }
    }
    v->piece_at[v->n] = at;
    return WK_OK;
}

/* A byte that hardly any text holds: of no UTF-8 (0xC0, 0xC1, 0xF5 to 0xFF), of planes with no script (0xF1 to 0xF4), a
 * control character. Vocabularies that were trained on texts may have no token for it. */
static bool is_rare_byte(unsigned b)
{
    return b == 0xC0 || b == 0xC1 || b >= 0xF1 || b == 0x7F || (b < ' ' && b != '\t' && b != '\n' && b != '\r');
}

/* The token for a byte that has none, or TOKEN_NONE: text of users never becomes a token that begins or ends a text. */
static uint32_t stand_in(const struct vocab *v)
{
    if (v->unk == TOKEN_NONE || v->type[v->unk] == TOKEN_CONTROL || v->unk == v->bos || v->unk == v->eos)
        return TOKEN_NONE;
    return v->unk;
}

/* The token of each byte; WordPiece has none. SPM encodes all of them: one without a token becomes the unknown one.
 * Byte-level BPE may have none for rare bytes: texts with them are refused then, unless there is an unknown token. */
static wk_status find_bytes(struct vocab *v, const struct wk_err *err)
{
    for (unsigned b = 0; b < 256; b++) v->byte_id[b] = TOKEN_NONE;
    if (v->model == VOCAB_WORDPIECE) return WK_OK;
    for (uint32_t id = 0; has_bytes(v) && id < v->n; id++) {
        if (v->type[id] != TOKEN_BYTE) continue;
        uint32_t *slot = &v->byte_id[(unsigned char)vocab_piece(v, id).data[0]];
        if (*slot == TOKEN_NONE) *slot = id;
    }
    for (unsigned b = 0; b < 256; b++) {
        if (v->model == VOCAB_BPE) {
            char symbol[2];
            const size_t len = vocab_put_symbol((unsigned char)b, symbol);
            const uint32_t id = vocab_find(v, symbol, len);
            const bool has = id != TOKEN_NONE && vocab_is_text(v, id);
            if (!has && !is_rare_byte(b))
                return wk_fail(err, WK_INVALID,
                               "%s: byte-level BPE needs a normal token for every byte; 0x%02X has none", v->where, b);
            v->byte_id[b] = has ? id : stand_in(v);
        } else if (v->byte_id[b] == TOKEN_NONE && v->unk == TOKEN_NONE)
            return wk_fail(err, WK_INVALID, "%s: no token <0x%02X> and no unknown token to stand in for it", v->where,
                           b);
    }
    return WK_OK;
}

void vocab_begin(struct vocab *v, enum vocab_model model, const char *where)
{
    *v = (struct vocab){ .model = model, .where = where };
    v->bos = v->eos = v->unk = v->pad = v->eot = v->eom = v->sep = TOKEN_NONE;
    if (getrandom(&v->seed, sizeof v->seed, GRND_NONBLOCK) != (ssize_t)sizeof v->seed) v->seed = (uint64_t)(uintptr_t)v;
}

wk_status vocab_complete(struct vocab *v, const struct wk_err *err)
{
    wk_status status = build_pieces(v, err);
    if (!status) status = find_bytes(v, err);
    if (!status) find_ends(v);
    return status;
}

wk_status vocab_open(struct vocab *v, const struct gguf *file, enum vocab_model model, const struct wk_err *err)
{
    wk_status status;
    vocab_begin(v, model, "tokenizer.ggml.tokens");
    if ((status = read_texts(v, file, err)) || (status = read_types(v, file, err))) return status;
    preset_roles(v);
    if ((status = vocab_read_roles(v, file, err)) ||
        (status = read_flag(file, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err)) ||
        (status = read_flag(file, "tokenizer.ggml.remove_extra_whitespaces", &v->trims_spaces, err)))
        return status;
    if (model == VOCAB_UNIGRAM && v->unk == TOKEN_NONE)
        return wk_fail(err, WK_INVALID, "%s: a unigram vocabulary needs an unknown token", v->where);
    if (has_bytes(v) && (status = read_scores(v, file, err))) return status;
    const bool typed = gguf_find(file, "tokenizer.ggml.token_type");
    if (!typed) infer_types(v);
    if ((status = vocab_table(v, err))) return status;
    if (model == VOCAB_WORDPIECE && (status = read_wordpiece(v, file, err))) return status;
    if (!typed) infer_types(v); /* of those, too, whose roles their spelling has told */
    return vocab_complete(v, err);
}

void vocab_close(struct vocab *v)
{
    free(v->text);
    free(v->text_at);
    free(v->piece);
    free(v->piece_at);
    free(v->type);
    free(v->score);
    free(v->slot);
}
