/* fold.c: see fold.h. What each code point becomes, its class and how segments compose is libutf8proc's. */
#include "fold.h"

#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

enum { REPLACEMENT = 0xfffd, LONGEST = 24 /* code points of one, decomposed: 18 in Unicode */ };
static const utf8proc_option_t options =
    UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE;

/* ---- symbols ---------------------------------------------------------------------------------------------------- */

enum kind { OTHER, WORD, SPACE, AS_BEFORE };

static enum kind kind_of(int32_t c)
{
    if (c < 0x80) {
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return WORD;
        return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
    }
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return WORD;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return AS_BEFORE;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return SPACE;
    default: return c == 0x85 ? SPACE : OTHER;
    }
}

static void border(struct fold *f, bool word, uint64_t origin)
{
    if (f->word != word) f->take(f->user, FOLD_BORDER, origin);
    f->word = word;
}

static void take(struct fold *f, int32_t c, uint64_t origin)
{
    unsigned char bytes[4];
    const enum kind kind = kind_of(c);
    if (kind == SPACE) {
        if (f->space) return;
        c = ' ';
    }
    f->space = kind == SPACE;
    border(f, kind == WORD || (kind == AS_BEFORE && f->word), origin);
    if (c < 0x80) {
        f->take(f->user, (unsigned char)c, origin);
        return;
    }
    const utf8proc_ssize_t n = utf8proc_encode_char(c, bytes);
    for (utf8proc_ssize_t i = 0; i < n; i++) f->take(f->user, bytes[i], origin);
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

static int combining_class(int32_t c) { return (int)utf8proc_get_property(c)->combining_class; }

/* Canonical order: each run of marks by class, those of one class as they came. */
static void order_marks(int32_t *s, unsigned n)
{
    for (unsigned i = 1; i < n; i++) {
        const int32_t c = s[i];
        const int class = combining_class(c);
        unsigned to = i;
        for (; class && to && combining_class(s[to - 1]) > class; to--) s[to] = s[to - 1];
        s[to] = c;
    }
}

static void end_segment(struct fold *f)
{
    if (f->n_segment > 1) {
        order_marks(f->segment, f->n_segment);
        f->n_segment = (unsigned)utf8proc_normalize_utf32(f->segment, (utf8proc_ssize_t)f->n_segment,
                                                          UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    }
    for (unsigned i = 0; i < f->n_segment; i++) take(f, f->segment[i], f->begin_at);
    f->n_segment = 0;
}

/* Code points without a combining class that compose with the one before them nevertheless (NFC_Quick_Check=Maybe). */
static bool joins(int32_t c)
{
    static const int32_t others[] = { 0x09be,  0x09d7,  0x0b3e,  0x0b56,  0x0b57,  0x0bbe,  0x0bd7,  0x0cc2,
                                      0x0cd5,  0x0cd6,  0x0d3e,  0x0d57,  0x0dcf,  0x0ddf,  0x102e,  0x1b35,
                                      0x11127, 0x1133e, 0x11357, 0x114b0, 0x114ba, 0x114bd, 0x115af, 0x11930 };
    if (c < 0x300) return false;
    if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11a8 && c <= 0x11c2)) return true; /* Hangul vowels and finals */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (c == others[i]) return true;
    return combining_class(c) != 0;
}

/* What a reader does not see, beyond the code points that libutf8proc ignores: control characters that are no white
 * space, marks of annotations, noncharacters, and those not yet assigned that Unicode keeps for what shows nothing. */
static bool shows_nothing(int32_t c)
{
    if (c < 0xa0) return (c < ' ' && !(c >= '\t' && c <= '\r')) || (c >= 0x7f && c != 0x85);
    return (c >= 0xfff0 && c <= 0xfffb) || (c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef) ||
           (c >= 0xe0000 && c <= 0xe0fff);
}

/* A code point that begins at `at`. */
static void push(struct fold *f, int32_t c, uint64_t at)
{
    int32_t become[LONGEST];
    int last = UTF8PROC_BOUNDCLASS_START;
    utf8proc_ssize_t n = 1;
    if (shows_nothing(c)) return;
    become[0] = c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    if (c >= 0x80) n = utf8proc_decompose_char(c, become, LONGEST, options, &last);
    if (n <= 0 || n > LONGEST) return; /* ignored */
    if (!joins(become[0]) || f->n_segment + (unsigned)n > FOLD_SEGMENT) end_segment(f);
    if (!f->n_segment) f->begin_at = at;
    memcpy(f->segment + f->n_segment, become, (size_t)n * sizeof *become);
    f->n_segment += (unsigned)n;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

void fold_begin(struct fold *f, fold_take *take_symbol, void *user)
{
    *f = (struct fold){ .take = take_symbol, .user = user };
}

static void feed_byte(struct fold *f, unsigned char b)
{
    if (f->n_partial && !utf8_continues(f->partial[0], f->n_partial, b)) {
        push(f, REPLACEMENT, f->at - f->n_partial);
        f->n_partial = 0;
    }
    f->partial[f->n_partial++] = b;
    f->at++;
    const size_t length = utf8_length(f->partial[0]);
    if (f->n_partial < length) return;
    push(f, length ? (int32_t)utf8_decode(f->partial, length) : REPLACEMENT, f->at - f->n_partial);
    f->n_partial = 0;
}

void fold_feed(struct fold *f, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) feed_byte(f, p[i]);
}

void fold_end(struct fold *f)
{
    if (f->n_partial) push(f, REPLACEMENT, f->at - f->n_partial);
    f->n_partial = 0;
    end_segment(f);
    border(f, false, f->at);
}

uint64_t fold_done(const struct fold *f) { return f->n_segment ? f->begin_at : f->at - f->n_partial; }
