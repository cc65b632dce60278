/* unigram.c: SentencePiece's unigram model (Kudo 2018): a text is normalised by the map that the vocabulary was trained
 * with, and of all ways to spell it by tokens the one with the highest sum of scores is taken.
 *
 * The map is a double-array trie (Aoe 1989) of UTF-8 texts to texts, as SentencePiece stores it: the longest text that
 * begins at a place is replaced. It is untrusted: every index is checked where it is used, and neither a text of it nor
 * what takes its place is longer than MAX_MAPPED, so that a map whose units go in circles, or whose texts are very
 * long, costs no more time than another. */
#include "tokenizer/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "gguf/gguf.h"

enum {
    SPACE = 3,                /* bytes of U+2581 */
    MAX_TOKEN = 512,          /* bytes of one that text may become: bounds the time of an encode */
    MAX_MAP = 16 << 20,       /* bytes */
    MAX_MAPPED = 512,         /* bytes of a text of the map; what Unicode's normal forms need are some tens */
    MAX_NORMAL = HF_MAX_TEXT, /* bytes of a text after normalising */
};
/* A character that no token spells costs so much more than the worst token. */
static const float UNKNOWN_PENALTY = 10.0f;

/* ---- opening ------------------------------------------------------------------------------------------- */

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static wk_status read_map(struct unigram *u, const struct gguf *file, const struct wk_err *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(file, key);
    if (!kv || !kv->count) return WK_OK; /* texts stay as they are */
    if (kv->type != GGUF_ARRAY || (kv->element_type != GGUF_U8 && kv->element_type != GGUF_I8))
        return wk_fail(err, WK_INVALID, "%s: expected an array of bytes", key);
    if (kv->count < 5 || kv->count > MAX_MAP)
        return wk_fail(err, WK_INVALID, "%s: %llu bytes; 5 to %d are expected", key, (unsigned long long)kv->count,
                       MAX_MAP);
    u->map = malloc((size_t)kv->count);
    if (!u->map) return wk_fail(err, WK_NO_MEMORY, "no memory for %llu bytes of a map", (unsigned long long)kv->count);
    for (uint64_t i = 0; i < kv->count; i++) {
        int64_t byte;
        if (gguf_i64_at(file, kv, i, &byte, err)) return WK_INVALID;
        u->map[i] = (uint8_t)byte;
    }
    const uint32_t bytes = read_u32(u->map);
    if (!bytes || bytes % 4 || bytes > kv->count - 5 || u->map[kv->count - 1])
        return wk_fail(err, WK_INVALID,
                       "%s: a trie of %u bytes, and texts that end with a zero byte, do not fill its %llu bytes", key,
                       bytes, (unsigned long long)kv->count);
    u->n_units = bytes / 4;
    u->texts = (const char *)u->map + 4 + bytes;
    u->n_texts = (size_t)kv->count - 4 - bytes;
    for (size_t at = 0, len; at < u->n_texts; at += len + 1) {
        len = strlen(u->texts + at);
        if (len > MAX_MAPPED)
            return wk_fail(err, WK_INVALID, "%s: a text of %zu bytes; at most %d are supported here", key, len,
                           MAX_MAPPED);
    }
    return WK_OK;
}

static int compare_texts(const void *a, const void *b, void *vocab)
{
    const struct token_bytes x = vocab_text(vocab, *(const uint32_t *)a), y = vocab_text(vocab, *(const uint32_t *)b);
    const int order = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return order ? order : (x.len > y.len) - (x.len < y.len);
}

static void sort_texts(struct unigram *u, const struct vocab *v)
{
    qsort_r(u->order, u->n, sizeof *u->order, compare_texts, (void *)(uintptr_t)v); /* it is only read */
    uint32_t at = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        while (at < u->n && (unsigned char)vocab_text(v, u->order[at]).data[0] < byte) at++;
        u->first[byte] = at;
    }
    u->first[256] = u->n;
}

wk_status unigram_open(struct unigram *u, const struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    float least = 0;
    u->order = malloc(v->n * sizeof *u->order);
    if (!u->order) return wk_fail(err, WK_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n);
    for (uint32_t id = 0; id < v->n; id++) {
        const size_t len = vocab_text(v, id).len;
        if (v->type[id] != TOKEN_NORMAL || !len) continue;
        if (len > MAX_TOKEN)
            return wk_fail(err, WK_INVALID, "tokenizer.ggml.tokens[%u]: %zu bytes; at most %d are supported here", id,
                           len, MAX_TOKEN);
        if (v->score[id] < least) least = v->score[id];
        u->order[u->n++] = id;
    }
    u->unknown = least - UNKNOWN_PENALTY;
    sort_texts(u, v);
    return read_map(u, file, err);
}

void unigram_close(struct unigram *u)
{
    free(u->map);
    free(u->order);
}

/* ---- normalising --------------------------------------------------------------------------------------- */

/* A unit of the trie: where its children lie, the byte that leads to it, whether a text ends there. */
static uint32_t unit_at(const struct unigram *u, uint32_t i) { return read_u32(u->map + 4 + 4 * (size_t)i); }
static uint32_t unit_offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
static uint32_t unit_label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
static bool unit_has_leaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t unit_value(uint32_t unit) { return unit & ((1u << 31) - 1); }

/* The longest text of the map that text[0, n) begins with: its bytes, and what takes its place; 0 and an
 * empty text: none. */
static size_t find_mapped(const struct unigram *u, const char *text, size_t n, struct token_bytes *to)
{
    size_t found = 0;
    *to = (struct token_bytes){ NULL, 0 };
    uint32_t at = u->n_units ? unit_offset(unit_at(u, 0)) : 0;
    for (size_t i = 0; u->n_units && i < n && i < MAX_MAPPED; i++) {
        at ^= (unsigned char)text[i];
        if (at >= u->n_units) break;
        const uint32_t unit = unit_at(u, at);
        if (unit_label(unit) != (unsigned char)text[i]) break;
        at ^= unit_offset(unit);
        if (!unit_has_leaf(unit)) continue;
        if (at >= u->n_units) break;
        const uint32_t value = unit_value(unit_at(u, at));
        if (value >= u->n_texts) break;
        *to = (struct token_bytes){ u->texts + value, strlen(u->texts + value) };
        found = i + 1;
    }
    return found;
}

/* What stands at the beginning of text[0, n) and what it becomes: of the map, one character, or, of what is no UTF-8,
 * U+FFFD. */
static size_t next_part(const struct unigram *u, const char *text, size_t n, struct token_bytes *to)
{
    const size_t mapped = find_mapped(u, text, n, to);
    if (mapped) return mapped;
    const size_t len = utf8_sequence((const unsigned char *)text, n);
    *to = len ? (struct token_bytes){ text, len } : (struct token_bytes){ "\xEF\xBF\xBD", 3 };
    return len ? len : 1;
}

static bool put(struct byte_buffer *out, const char *bytes, size_t n)
{
    if (n > MAX_NORMAL - out->n || !array_reserve((void **)&out->data, &out->cap, out->n + n, 1)) return false;
    memcpy(out->data + out->n, bytes, n);
    out->n += n;
    return true;
}

static bool put_part(struct byte_buffer *out, struct token_bytes part)
{
    bool ok = true;
    for (size_t i = 0; ok && i < part.len; i++)
        ok = part.data[i] == ' ' ? put(out, "\xE2\x96\x81", SPACE) : put(out, part.data + i, 1);
    return ok;
}

/* The text as the model's words have it, spaces as U+2581, in e->normal. space: put the one that begins a text. False:
 * no memory, it becomes too long, or stopped. */
static bool normalise(const struct unigram *u, const struct vocab *v, struct encoder *e, const char *text, size_t n,
                      bool space)
{
    struct byte_buffer *out = &e->normal;
    bool after_space = v->trims_spaces, begun = !space, ok = true;
    out->n = 0;
    for (size_t i = 0; ok && i < n;) {
        struct token_bytes part;
        if (!merger_goes_on(&e->merger)) return false;
        i += next_part(u, text + i, n - i, &part);
        for (; after_space && part.len && part.data[0] == ' '; part.len--) part.data++;
        if (!part.len) continue;
        if (!begun) ok = put(out, "\xE2\x96\x81", SPACE);
        begun = true;
        ok = ok && put_part(out, part);
        after_space = v->trims_spaces && part.data[part.len - 1] == ' ';
    }
    while (v->trims_spaces && out->n >= SPACE && memcmp(out->data + out->n - SPACE, "\xE2\x96\x81", SPACE) == 0)
        out->n -= SPACE;
    return ok;
}

/* ---- the best way -------------------------------------------------------------------------------------- */

/* How a text is best spelt up to a byte: by a token that begins at `from`. */
struct unigram_place {
    float score;
    uint32_t from, id; /* id TOKEN_NONE: nothing ends here */
};

static void reach(struct unigram_place *to, uint32_t from, uint32_t id, float score)
{
    if (to->id == TOKEN_NONE || score > to->score) *to = (struct unigram_place){ score, from, id };
}

/* The first of order[low, high), tokens that agree in their first `depth` bytes, whose next byte is `byte` or more. */
static uint32_t bound(const struct unigram *u, const struct vocab *v, uint32_t low, uint32_t high, size_t depth,
                      int byte)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct token_bytes t = vocab_text(v, u->order[middle]);
        const int next = t.len > depth ? (unsigned char)t.data[depth] : -1;
        if (next < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Every token that begins at `at`, and the unknown one where no token is the character there. */
static void spell_from(const struct unigram *u, const struct vocab *v, const struct byte_buffer *text, uint32_t at,
                       struct unigram_place *place)
{
    const char *begin = text->data + at;
    const size_t n = text->n - at, sequence = utf8_sequence((const unsigned char *)begin, n),
                 character = sequence ? sequence : 1;
    const unsigned char first = (unsigned char)begin[0];
    uint32_t low = u->first[first], high = u->first[first + 1];
    bool spelt = false;
    for (size_t depth = 1; low < high; depth++) {
        const uint32_t id = u->order[low];
        if (vocab_text(v, id).len == depth) {
            reach(&place[at + depth], at, id, place[at].score + v->score[id]);
            spelt = spelt || depth == character;
        }
        if (depth == n) break;
        const int byte = (unsigned char)begin[depth];
        low = bound(u, v, low, high, depth, byte);
        high = bound(u, v, low, high, depth, byte + 1);
    }
    if (!spelt) reach(&place[at + character], at, v->unk, place[at].score + u->unknown);
}

/* A character without a token: its bytes' tokens, if there are all of them; else the unknown token, once for
 * neighbours. */
static bool put_unknown(const struct vocab *v, const char *text, uint32_t len, size_t before, struct tokens *out)
{
    bool bytes = true, ok = true;
    for (uint32_t i = 0; i < len; i++) bytes = bytes && v->byte_id[(unsigned char)text[i]] != TOKEN_NONE;
    if (!bytes) return (out->n > before && out->ids[out->n - 1] == v->unk) || tokens_add(out, v->unk);
    for (uint32_t i = 0; ok && i < len; i++) ok = tokens_add(out, v->byte_id[(unsigned char)text[i]]);
    return ok;
}

/* The way back from the end, as a chain of places from the beginning: place[from].from becomes the next place. */
static void turn_round(struct unigram_place *place, uint32_t n)
{
    for (uint32_t at = n, next = n; at;) {
        const uint32_t from = place[at].from;
        place[at].from = next;
        next = at;
        at = from;
        if (!at) place[0].from = next;
    }
}

wk_status unigram_encode(const struct unigram *u, const struct vocab *v, struct encoder *e, const char *text, size_t n,
                         bool space, struct tokens *out, const struct wk_err *err)
{
    const struct byte_buffer *normal = &e->normal;
    const size_t before = out->n;
    if (!normalise(u, v, e, text, n, space)) {
        if (normal->n > MAX_NORMAL / 2)
            return wk_fail(err, WK_INVALID, "the text is longer than %d bytes after normalising", MAX_NORMAL);
        return wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
    }
    const uint32_t length = (uint32_t)normal->n;
    struct unigram_place *place = length ? malloc((length + (size_t)1) * sizeof *place) : NULL;
    if (!place) return length ? wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n) : WK_OK;
    for (uint32_t i = 0; i <= length; i++) place[i] = (struct unigram_place){ .id = i ? TOKEN_NONE : 0 };
    bool ok = true;
    for (uint32_t i = 0; ok && i < length; i++) {
        ok = merger_goes_on(&e->merger);
        if (ok && place[i].id != TOKEN_NONE) spell_from(u, v, normal, i, place);
    }
    if (ok) turn_round(place, length);
    for (uint32_t at = 0, next; ok && at < length; at = next) {
        next = place[at].from;
        ok = place[next].id != v->unk ? tokens_add(out, place[next].id)
                                      : put_unknown(v, normal->data + at, next - at, before, out);
    }
    free(place);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
}
