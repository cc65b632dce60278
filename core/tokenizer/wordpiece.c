/* wordpiece.c: WordPiece (Schuster and Nakajima 2012) as BERT has it (Devlin et al. 2019): a text is cleaned, cut at
 * white space, punctuation and ideographs, and each word is spelt by the longest tokens that fit, from its beginning.
 *
 * In a GGUF file a token that begins a word begins with U+2581, the others go on with one. What Hugging Face's
 * BertNormalizer and BertPreTokenizer do with a text is done here in one walk over it. */
#include "tokenizer/model.h"

#include <string.h>

#include "base/utf8.h"

enum {
    WORD_CHARACTERS = 100 /* of a longer word nothing is looked up: it is unknown */,
    MARK = 3 /* bytes of U+2581 */
};

/* White space as it parts words; other controls are left out. */
static bool is_space(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || (unicode_is_space(c) && unicode_kind_of(c) != UNICODE_CONTROL);
}

/* Ideographs are words by themselves: the blocks that BERT's authors named. */
static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Those of ASCII that are symbols in Unicode count, too. */
static bool is_punctuation(uint32_t c)
{
    if (c < 0x80) return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
    return unicode_kind_of(c) == UNICODE_PUNCTUATION;
}

/* Is the character left out? So is what is no UTF-8. */
static bool is_left_out(uint32_t c) { return c == 0xFFFD || (!is_space(c) && unicode_kind_of(c) == UNICODE_CONTROL); }

/* ---- a word -------------------------------------------------------------------------------------------- */

/* The word that is being read, behind a mark: e->buffer[0, n), so many characters. */
struct word {
    size_t n;
    uint32_t characters;
};

static void begin_word(const struct encoder *e, struct word *w)
{
    memcpy(e->buffer, "\xE2\x96\x81", MARK);
    *w = (struct word){ .n = MARK };
}

/* The longest token that text[0, len) begins with; *used: its bytes. inside: it goes on with a word, so a mark that the
 * word has itself begins no other one. */
static uint32_t longest(const struct vocab *v, const char *text, size_t len, bool inside, size_t *used)
{
    if (len > v->longest) len = v->longest;
    if (inside && len > MARK && memcmp(text, "\xE2\x96\x81", MARK) == 0) len = MARK;
    for (; len; len--) {
        if (((unsigned char)text[len] & 0xC0) == 0x80) continue; /* within a character; behind the word is a NUL */
        const uint32_t id = vocab_find(v, text, len);
        if (id == TOKEN_NONE || !vocab_is_text(v, id)) continue;
        *used = len;
        return id;
    }
    return TOKEN_NONE;
}

/* Its tokens, or, if one is missing or it is too long, the unknown one. */
static bool end_word(const struct vocab *v, const struct encoder *e, struct word *w, struct tokens *out)
{
    const size_t before = out->n;
    bool ok = true, known = w->characters <= WORD_CHARACTERS;
    if (!w->characters) return true;
    if (known) e->buffer[w->n] = '\0';
    for (size_t at = 0, used; ok && known && at < w->n; at += used) {
        const uint32_t id = longest(v, e->buffer + at, w->n - at, at, &used);
        /* The mark alone is no beginning of a word. */
        known = id != TOKEN_NONE && at + used > MARK;
        ok = !known || tokens_add(out, id);
        if (!known) break;
    }
    begin_word(e, w);
    if (known || !ok) return ok;
    out->n = before;
    return tokens_add(out, v->unk);
}

static void add_character(const struct encoder *e, struct word *w, uint32_t c)
{
    char bytes[4];
    const size_t n = utf8_encode(c, bytes);
    if (++w->characters > WORD_CHARACTERS) return; /* its text is not needed any more */
    memcpy(e->buffer + w->n, bytes, n);
    w->n += n;
}

/* ---- a text -------------------------------------------------------------------------------------------- */

/* One character behind cleaning and stripping. */
static bool take(const struct vocab *v, const struct encoder *e, uint32_t c, struct word *w, struct tokens *out)
{
    uint32_t lower[2] = { c };
    bool ok = true;
    if (is_space(c)) return end_word(v, e, w, out);
    const bool alone = is_ideograph(c);
    const size_t n = v->lowercase ? unicode_lower(c, lower) : 1;
    for (size_t i = 0; ok && i < n; i++) {
        const bool cut = alone || is_punctuation(lower[i]);
        ok = !cut || end_word(v, e, w, out);
        add_character(e, w, lower[i]);
        ok = ok && (!cut || end_word(v, e, w, out));
    }
    return ok;
}

/* The text without what is left out; white space as it is. */
static bool clean(const char *text, size_t n, struct byte_buffer *out)
{
    out->n = 0;
    if (!array_reserve((void **)&out->data, &out->cap, n + 1, 1)) return false;
    for (size_t i = 0; i < n;) {
        const size_t len = utf8_sequence((const unsigned char *)text + i, n - i);
        if (len && !is_left_out(utf8_decode((const unsigned char *)text + i, len))) {
            memcpy(out->data + out->n, text + i, len);
            out->n += len;
        }
        i += len ? len : 1;
    }
    return true;
}

static bool is_ascii(const struct byte_buffer *text)
{
    size_t i = 0;
    while (i < text->n && (unsigned char)text->data[i] < 0x80) i++;
    return i == text->n;
}

wk_status wordpiece_encode(const struct vocab *v, struct encoder *e, const char *text, size_t n, struct tokens *out,
                           const struct wk_err *err)
{
    const struct byte_buffer *from = &e->normal;
    struct word w;
    bool ok = clean(text, n, &e->normal) &&
              array_reserve((void **)&e->buffer, &e->buffer_cap, MARK + 4 * WORD_CHARACTERS + 1, 1);
    if (ok && v->lowercase && !is_ascii(from)) {
        e->spare.n = 0;
        ok = unicode_strip_marks(e->normal.data, e->normal.n, &e->spare);
        from = &e->spare;
    }
    if (ok) begin_word(e, &w);
    for (size_t i = 0; ok && i < from->n;) {
        const unsigned char *at = (const unsigned char *)from->data + i;
        const size_t len = utf8_sequence(at, from->n - i);
        ok = merger_goes_on(&e->merger) && take(v, e, utf8_decode(at, len), &w, out);
        i += len;
    }
    ok = ok && end_word(v, e, &w, out);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
}
