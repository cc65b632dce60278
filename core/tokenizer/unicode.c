/* unicode.c: see unicode.h. Hangul syllables are computed, all else is looked up in the generated table. */
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode_table.h"
#include "base/utf8.h"
#include "tokenizer/vocab.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* Index of the last entry of an ascending table whose first number is at most c, or SIZE_MAX. */
#define FIND_LAST(table, field, value, out)            \
    do {                                               \
        size_t low_ = 0, high_ = LENGTH(table);        \
        while (low_ < high_) {                         \
            const size_t middle_ = (low_ + high_) / 2; \
            if ((table)[middle_].field <= (value))     \
                low_ = middle_ + 1;                    \
            else                                       \
                high_ = middle_;                       \
        }                                              \
        (out) = low_ ? low_ - 1 : SIZE_MAX;            \
    } while (0)

bool unicode_is_space(uint32_t c)
{
    return c == ' ' || (c >= 0x09 && c <= 0x0D) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool unicode_is_word(uint32_t c)
{
    size_t i;
    FIND_LAST(word_characters, begin, c, i);
    return i != SIZE_MAX && c <= word_characters[i].end;
}

enum unicode_kind unicode_kind_of(uint32_t c)
{
    size_t i;
    FIND_LAST(character_kinds, begin, c, i);
    return i != SIZE_MAX && c <= character_kinds[i].end ? (enum unicode_kind)character_kinds[i].kind : UNICODE_PLAIN;
}

size_t unicode_lower(uint32_t c, uint32_t out[2])
{
    size_t i = SIZE_MAX;
    out[0] = c;
    out[1] = 0x307;
    if (c == 0x130) { /* I with a dot above: i, and the dot */
        out[0] = 'i';
        return 2;
    }
    if (c < 0x80)
        out[0] = c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
    else
        FIND_LAST(lower_cases, c, c, i);
    if (i != SIZE_MAX && lower_cases[i].c == c) out[0] = lower_cases[i].lower;
    return 1;
}

static uint8_t combining_class(uint32_t c)
{
    size_t i;
    if (c < 0x300) return 0;
    FIND_LAST(combining_classes, begin, c, i);
    return i != SIZE_MAX && c <= combining_classes[i].end ? combining_classes[i].combining : 0;
}

enum { HANGUL = 0xAC00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7, N_L = 19, N_V = 21, N_T = 28 };

/* ---- decomposition ------------------------------------------------------------------------------------- */

/* Characters with their combining class above bit 24. A byte that is no UTF-8 is a starter that nothing meets. */
struct characters {
    uint32_t *list;
    size_t n, cap;
};
enum { CHARACTER = 0x1FFFFF, STRAY = 1 << 21, CLASS_SHIFT = 24 };

static bool add_character(struct characters *s, uint32_t c, uint8_t combining)
{
    if (!array_reserve((void **)&s->list, &s->cap, s->n + 1, sizeof *s->list)) return false;
    s->list[s->n++] = c | (uint32_t)combining << CLASS_SHIFT;
    return true;
}

/* Depth is bounded by the table: a character's first half decomposes at most three times more. */
static bool decompose(struct characters *s, uint32_t c)
{
    size_t i = SIZE_MAX;
    if (c >= HANGUL && c < HANGUL + N_L * N_V * N_T) {
        const uint32_t index = c - HANGUL, t = index % N_T;
        return add_character(s, HANGUL_L + index / (N_V * N_T), 0) &&
               add_character(s, HANGUL_V + index / N_T % N_V, 0) && (!t || add_character(s, HANGUL_T + t, 0));
    }
    if (c >= 0xC0) FIND_LAST(decompositions, c, c, i);
    if (i == SIZE_MAX || decompositions[i].c != c) return add_character(s, c, combining_class(c));
    return decompose(s, decompositions[i].first) &&
           (!decompositions[i].second || decompose(s, decompositions[i].second));
}

/* Puts each run of marks in the order of their classes, marks of one class in the order that they have: a counting
 * sort, since runs may be of any length. */
static bool order_marks(struct characters *s)
{
    struct characters sorted = { 0 };
    for (size_t i = 0; i < s->n;) {
        if (!(s->list[i] >> CLASS_SHIFT)) {
            i++;
            continue;
        }
        size_t end = i, disorder = 0, at[257] = { 0 };
        for (; end < s->n && s->list[end] >> CLASS_SHIFT; end++) {
            at[(s->list[end] >> CLASS_SHIFT) + 1]++;
            disorder += end > i && s->list[end] >> CLASS_SHIFT < s->list[end - 1] >> CLASS_SHIFT;
        }
        if (disorder) {
            if (!array_reserve((void **)&sorted.list, &sorted.cap, end - i, sizeof *sorted.list)) return false;
            for (size_t k = 1; k < LENGTH(at); k++) at[k] += at[k - 1];
            for (size_t k = i; k < end; k++) sorted.list[at[s->list[k] >> CLASS_SHIFT]++] = s->list[k];
            memcpy(s->list + i, sorted.list, (end - i) * sizeof *s->list);
        }
        i = end;
    }
    free(sorted.list);
    return true;
}

/* ---- composition --------------------------------------------------------------------------------------- */

/* What a and b make together, or 0. */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    if (a >= HANGUL_L && a < HANGUL_L + N_L)
        return b >= HANGUL_V && b < HANGUL_V + N_V ? HANGUL + ((a - HANGUL_L) * N_V + b - HANGUL_V) * N_T : 0;
    if (a >= HANGUL && a < HANGUL + N_L * N_V * N_T && (a - HANGUL) % N_T == 0)
        return b > HANGUL_T && b < HANGUL_T + N_T ? a + b - HANGUL_T : 0;
    size_t low = 0, high = LENGTH(compositions);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const uint32_t first = compositions[middle].first, second = compositions[middle].second;
        if (first == a && second == b) return compositions[middle].c;
        if (first < a || (first == a && second < b))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* In place: each character joins the last starter unless one between them has the same class or a higher one. */
static void compose(struct characters *s)
{
    size_t kept = 0, starter = SIZE_MAX;
    uint32_t last = 0; /* class of the last one kept after the starter */
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t c = s->list[i] & (CHARACTER | STRAY), combining = s->list[i] >> CLASS_SHIFT;
        const bool adjacent = starter != SIZE_MAX && kept == starter + 1,
                   free_way = adjacent || (last && last < combining);
        const uint32_t made = starter != SIZE_MAX && free_way ? compose_pair(s->list[starter], c) : 0;
        if (made) {
            s->list[starter] = made;
            continue;
        }
        if (!combining) starter = kept;
        last = combining;
        s->list[kept++] = c;
    }
    s->n = kept;
}

/* ---- text ---------------------------------------------------------------------------------------------- */

bool unicode_plain(const char *text, size_t n)
{
    /* Below U+0300 all is form C and no mark: their lead bytes are below 0xCC. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xCC) return false;
    return true;
}

static bool to_characters(const char *text, size_t n, struct characters *s)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        const size_t len = utf8_sequence(bytes + i, n - i);
        if (!(len ? decompose(s, utf8_decode(bytes + i, len)) : add_character(s, STRAY | bytes[i], 0))) return false;
        i += len ? len : 1;
    }
    return true;
}

static bool to_text(const struct characters *s, struct byte_buffer *out)
{
    if (!array_reserve((void **)&out->data, &out->cap, out->n + 4 * s->n, 1)) return false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->list[i] & STRAY)
            out->data[out->n++] = (char)(s->list[i] & 0xFF);
        else
            out->n += utf8_encode(s->list[i] & CHARACTER, out->data + out->n);
    }
    return true;
}

bool unicode_nfc(const char *text, size_t n, struct byte_buffer *out)
{
    struct characters s = { 0 };
    bool ok = to_characters(text, n, &s) && order_marks(&s);
    if (ok) {
        compose(&s);
        ok = to_text(&s, out);
    }
    free(s.list);
    return ok;
}

bool unicode_strip_marks(const char *text, size_t n, struct byte_buffer *out)
{
    struct characters s = { 0 };
    bool ok = to_characters(text, n, &s) && order_marks(&s);
    size_t kept = 0;
    for (size_t i = 0; ok && i < s.n; i++) {
        const uint32_t c = s.list[i] & (CHARACTER | STRAY);
        if (c & STRAY || unicode_kind_of(c) != UNICODE_MARK) s.list[kept++] = c;
    }
    s.n = kept;
    ok = ok && to_text(&s, out);
    free(s.list);
    return ok;
}
