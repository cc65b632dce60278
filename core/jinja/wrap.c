/* wrap.c: lines cut to a width as Python's textwrap cuts them, and texts without their tags. */
#include "filters.h"

#include "base/utf8.h"

enum { NONE = UINT32_MAX };

/* textwrap's own idea of space: ASCII's alone. */
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_letter(uint32_t c) { return jn_char_is_word(c) && !(jn_char_flags(c) & (1u << 1)); }

/* The character that ends at `at`, which moves to its beginning; 0 at the text's beginning. */
static uint32_t step_back(const struct str *s, uint32_t *at)
{
    uint32_t len;
    if (!*at) return 0;
    do --*at;
    while (*at && ((unsigned char)s->data[*at] & 0xC0) == 0x80);
    return jn_char_at(s, *at, &len);
}

static uint32_t before(const struct str *s, uint32_t at) { return step_back(s, &at); }

static uint32_t step_on(const struct str *s, uint32_t *at)
{
    uint32_t len;
    if (*at >= s->n) return 0;
    const uint32_t c = jn_char_at(s, *at, &len);
    *at += len;
    return c;
}

/* May a line end behind the hyphen at s[at]? Behind two letters, or letter-letter, and before two letters, or
 * letter-letter: "well-known", not "3-4", "--option", "a-b". */
static bool breaks_at_hyphen(const struct str *s, uint32_t at)
{
    uint32_t back = at, on = at + 1;
    if (!is_letter(step_back(s, &back))) return false;
    uint32_t c = step_back(s, &back);
    if (c == '-') c = step_back(s, &back);
    if (!is_letter(c) || !is_letter(step_on(s, &on))) return false;
    c = step_on(s, &on);
    return is_letter(c == '-' ? step_on(s, &on) : c);
}

struct chunk {
    uint32_t begin, end, chars;
};

static void add_chunk(struct vm *m, const struct str *s, struct chunk **chunks, uint32_t *n, uint32_t *cap,
                      uint32_t begin, uint32_t end)
{
    if (begin >= end) return;
    *chunks = jn_heap_grow(m, *chunks, *n, cap, (size_t)*n + 1, sizeof **chunks);
    (*chunks)[(*n)++] = (struct chunk){ begin, end, (uint32_t)utf8_count(s->data + begin, end - begin) };
}

/* Words, the spaces between them, and runs of dashes inside of words. */
static struct chunk *chunks_of(struct vm *m, const struct str *s, bool hyphens, uint32_t *n)
{
    struct chunk *chunks = NULL;
    uint32_t cap = 0;
    *n = 0;
    jn_spend_chars(m, s->n);
    for (uint32_t i = 0; i < s->n;) {
        uint32_t end = i;
        if (is_space(s->data[i])) {
            while (end < s->n && is_space(s->data[end])) end++;
            add_chunk(m, s, &chunks, n, &cap, i, end);
            i = end;
            continue;
        }
        while (end < s->n && !is_space(s->data[end])) end++;
        uint32_t begin = i;
        for (uint32_t k = i; hyphens && k < end; k++) {
            if (s->data[k] != '-') continue;
            uint32_t dashes = k;
            while (dashes < end && s->data[dashes] == '-') dashes++;
            uint32_t len;
            if (dashes - k >= 2 && k > begin && dashes < end && jn_char_is_word(jn_char_at(s, dashes, &len)) &&
                (jn_char_is_word(before(s, k)) || strchr("!\"'&.,?", (char)before(s, k)))) {
                add_chunk(m, s, &chunks, n, &cap, begin, k);
                add_chunk(m, s, &chunks, n, &cap, k, dashes);
                begin = dashes;
            } else if (dashes - k == 1 && k > begin && breaks_at_hyphen(s, k)) {
                add_chunk(m, s, &chunks, n, &cap, begin, k + 1);
                begin = k + 1;
            }
            k = dashes - 1;
        }
        add_chunk(m, s, &chunks, n, &cap, begin, end);
        i = end;
    }
    return chunks;
}

static bool blank(const struct str *s, uint32_t begin, uint32_t end)
{
    uint32_t len;
    for (uint32_t i = begin; i < end; i += len)
        if (!jn_char_is_space(jn_char_at(s, i, &len))) return false;
    return true;
}

/* As much of a word as the line has room for; at least one character. Behind its last hyphen, if there is one. */
static uint32_t long_word_end(const struct str *s, const struct chunk *c, int64_t room, bool hyphens)
{
    const struct str word = { .data = s->data + c->begin, .n = c->end - c->begin };
    uint32_t end = jn_str_byte(&word, (uint32_t)room);
    if (hyphens && c->chars > room) {
        for (uint32_t i = end; i-- > 1;) {
            if (word.data[i] != '-') continue;
            bool any = false;
            for (uint32_t k = 0; k < i; k++) any |= word.data[k] != '-';
            if (any) end = i + 1;
            break;
        }
    }
    return c->begin + end;
}

/* One line from chunks[*i] on: its bytes, without the space at its end. Where a word is cut but no room is left for any
 * of it, textwrap adds an empty piece, so that the space before it stays: so do we. */
static uint32_t wrap_line(struct vm *m, const struct str *s, struct chunk *chunks, uint32_t n, uint32_t *i,
                          int64_t width, bool break_long, bool hyphens)
{
    const uint32_t first = *i;
    uint32_t end = chunks[first].begin, last = end; /* last: where the line's last piece begins */
    int64_t used = 0;
    while (*i < n && used + chunks[*i].chars <= width) {
        used += chunks[*i].chars;
        last = chunks[*i].begin;
        end = chunks[(*i)++].end;
        jn_spend(m, 0);
    }
    if (*i < n && chunks[*i].chars > width) {
        struct chunk *c = &chunks[*i];
        if (break_long) {
            last = end = c->begin;
            if (used < width) {
                end = c->begin = long_word_end(s, c, width - used, hyphens);
                const uint32_t taken = end - last;
                c->chars -= (uint32_t)utf8_count(s->data + last, taken);
                jn_spend_chars(m, taken);
                if (c->begin == c->end) ++*i;
            }
        } else if (*i == first) {
            last = c->begin;
            end = c->end;
            ++*i;
        }
    }
    return blank(s, last, end) ? last : end;
}

val jn_str_wrap(struct vm *m, const struct str *s, int64_t width, bool break_long, const struct str *line_end,
                bool hyphens)
{
    uint32_t n, lines = 0;
    struct chunk *chunks = chunks_of(m, s, hyphens, &n);
    struct buf b;
    jn_buf_open(&b, m);
    if (width <= 0) jn_fail(m, "invalid width %lld (must be > 0)", (long long)width);
    for (uint32_t i = 0; i < n;) {
        if (lines && blank(s, chunks[i].begin, chunks[i].end)) i++; /* no line begins with space, but the first */
        if (i >= n) break;
        const uint32_t begin = chunks[i].begin;
        const uint32_t end = wrap_line(m, s, chunks, n, &i, width, break_long, hyphens);
        if (end <= begin) continue;
        jn_spend(m, lines ? line_end->n : 0);
        if (lines++) jn_buf_str(&b, line_end);
        jn_buf_slice(&b, s, begin, end);
    }
    return jn_buf_value(&b, s->markup);
}

/* s without what stands from each `open` to the next `close` behind it. */
static const struct str *without(struct vm *m, const struct str *s, const char *open, const char *close)
{
    const struct str *begin = jn_v_text(m, open).u.s, *end = jn_v_text(m, close).u.s;
    struct buf b;
    jn_buf_open(&b, m);
    uint32_t from = 0;
    for (;;) {
        const uint32_t at = jn_str_find(s, begin, from, s->n);
        const uint32_t to = at == NONE ? NONE : jn_str_find(s, end, at, s->n);
        jn_spend(m, 0);
        if (to == NONE) break;
        jn_buf_slice(&b, s, from, at);
        from = to + end->n;
    }
    jn_buf_slice(&b, s, from, s->n);
    return jn_buf_value(&b, false).u.s;
}

/* The character that a reference at s[at] stands for, and its end; 0: it is none. The names are XML's own. */
static uint32_t reference(const struct str *s, uint32_t at, uint32_t *end)
{
    static const struct {
        char text[7];
        uint32_t c;
    } names[] = { { "&amp;", '&' },  { "&lt;", '<' },    { "&gt;", '>' },
                  { "&quot;", '"' }, { "&apos;", '\'' }, { "&nbsp;", 0xA0 } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i].text);
        if (s->n - at < n || memcmp(s->data + at, names[i].text, n) != 0) continue;
        *end = at + (uint32_t)n;
        return names[i].c;
    }
    if (s->n - at < 4 || s->data[at + 1] != '#') return 0;
    const bool hex = (s->data[at + 2] | 32) == 'x';
    uint32_t i = at + 2 + hex, c = 0;
    const uint32_t first = i;
    for (; i < s->n && i < first + 7; i++) {
        const char d = s->data[i], low = (char)(d | 32);
        if (d >= '0' && d <= '9')
            c = c * (hex ? 16 : 10) + (uint32_t)(d - '0');
        else if (hex && low >= 'a' && low <= 'f')
            c = c * 16 + (uint32_t)(low - 'a' + 10);
        else
            break;
    }
    if (i == first || !c || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *end = i + (i < s->n && s->data[i] == ';');
    return c;
}

val jn_str_strip_tags(struct vm *m, const struct str *s)
{
    s = without(m, without(m, s, "<!--", "-->"), "<", ">");
    struct buf b;
    jn_buf_open(&b, m);
    uint32_t len;
    bool any = false, space = false;
    jn_spend_chars(m, s->n);
    for (uint32_t i = 0; i < s->n; i += len) { /* runs of space become one space */
        if (jn_char_is_space(jn_char_at(s, i, &len))) {
            space = true;
            continue;
        }
        if (space && any) jn_buf_text(&b, " ", JINJA_TEMPLATE);
        space = false;
        any = true;
        jn_buf_slice(&b, s, i, i + len);
    }
    const struct str *text = jn_buf_value(&b, false).u.s;
    jn_buf_open(&b, m);
    for (uint32_t i = 0; i < text->n;) {
        uint32_t end = i + 1;
        const uint32_t c = text->data[i] == '&' ? reference(text, i, &end) : 0;
        if (c)
            jn_buf_char(&b, c, jn_str_origin(text, i));
        else
            jn_buf_slice(&b, text, i, i + 1);
        i = c ? end : i + 1;
    }
    return jn_buf_value(&b, false);
}
