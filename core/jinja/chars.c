/* chars.c: what Python's str knows of characters, and its changes of case. */
#include "internal.h"

#include "char_table.h"
#include "base/utf8.h"

#define RECORD(c) (&char_record[char_index[char_block[(c) / CHAR_BLOCK] * CHAR_BLOCK + (c) % CHAR_BLOCK]])

unsigned jn_char_flags(uint32_t c) { return c < 0x110000 ? RECORD(c)->flags : 0; }

unsigned jn_char_digit(uint32_t c) { return c < 0x110000 ? RECORD(c)->digit : 15; }

bool jn_char_is_space(uint32_t c) { return jn_char_flags(c) & CHAR_SPACE; }

bool jn_char_is_word(uint32_t c)
{
    return c == '_' || jn_char_flags(c) & (CHAR_ALPHA | CHAR_DECIMAL | CHAR_DIGIT | CHAR_NUMERIC);
}

bool jn_char_is_line_end(uint32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static void put_mapped(struct buf *b, uint32_t c, int32_t mapping, unsigned origin)
{
    if (mapping < CHAR_LONGER) {
        jn_buf_char(b, (uint32_t)((int32_t)c + mapping), origin);
        return;
    }
    const uint32_t *longer = char_longer[mapping - CHAR_LONGER];
    for (int i = 0; i < 3 && longer[i]; i++) jn_buf_char(b, longer[i], origin);
}

void jn_buf_title_char(struct buf *b, uint32_t c, unsigned origin) { put_mapped(b, c, RECORD(c)->title, origin); }

/* A capital sigma that ends a word has a small form of its own: a cased letter before it, none behind it, both looked
 * for past what case ignores. */
static bool is_final_sigma(const struct str *s, uint32_t begin, uint32_t at, uint32_t end)
{
    uint32_t len;
    bool cased = false;
    for (uint32_t i = at; i > begin && !cased;) {
        do i--;
        while (i > begin && ((unsigned char)s->data[i] & 0xC0) == 0x80);
        const unsigned flags = jn_char_flags(jn_char_at(s, i, &len));
        if (flags & CHAR_IGNORABLE) continue;
        if (!(flags & CHAR_CASED)) return false;
        cased = true;
    }
    if (!cased) return false;
    for (uint32_t i = at + 2; i < end; i += len) {
        const unsigned flags = jn_char_flags(jn_char_at(s, i, &len));
        if (flags & CHAR_IGNORABLE) continue;
        return !(flags & CHAR_CASED);
    }
    return true;
}

static void put_lower(struct buf *b, const struct str *s, uint32_t begin, uint32_t at, uint32_t end, uint32_t c,
                      unsigned origin)
{
    if (c == 0x3A3)
        jn_buf_char(b, is_final_sigma(s, begin, at, end) ? 0x3C2 : 0x3C3, origin);
    else
        put_mapped(b, c, RECORD(c)->lower, origin);
}

/* ASCII from s[begin] on, of one origin: most texts as a whole. Returns where it ends. */
static uint32_t put_ascii(struct buf *b, const struct str *s, uint32_t begin, uint32_t end, enum char_case how,
                          bool *cased)
{
    char text[256];
    const unsigned origin = jn_str_origin(s, begin);
    uint32_t n = 0;
    if (s->runs && jn_str_run_end(s, begin) < end) end = jn_str_run_end(s, begin);
    for (; n < sizeof text && begin + n < end; n++) {
        const char c = s->data[begin + n], letter = (char)(c | 32);
        if ((unsigned char)c >= 0x80) break;
        const bool is_letter = letter >= 'a' && letter <= 'z', upper = is_letter && c != letter;
        const bool raise = how == CASE_UPPER || (how == CASE_TITLE && !*cased) || (how == CASE_SWAP && !upper);
        text[n] = (char)(!is_letter ? c : raise ? letter - 32 : letter);
        *cased = is_letter;
    }
    jn_buf_add(b, text, n, origin);
    return begin + n;
}

void jn_buf_case(struct buf *b, const struct str *s, uint32_t begin, uint32_t end, enum char_case how)
{
    bool cased = false; /* the character before */
    uint32_t len;
    jn_spend_chars(b->m, end - begin);
    for (uint32_t i = begin; i < end; i += len) {
        if ((unsigned char)s->data[i] < 0x80) {
            len = put_ascii(b, s, i, end, how, &cased) - i;
            continue;
        }
        const uint32_t c = jn_char_at(s, i, &len);
        const unsigned origin = jn_str_origin(s, i);
        const unsigned flags = jn_char_flags(c);
        switch (how) {
        case CASE_UPPER: put_mapped(b, c, RECORD(c)->upper, origin); break;
        case CASE_LOWER: put_lower(b, s, begin, i, end, c, origin); break;
        case CASE_FOLD: put_mapped(b, c, RECORD(c)->fold, origin); break;
        case CASE_TITLE:
            if (cased)
                put_lower(b, s, begin, i, end, c, origin);
            else
                put_mapped(b, c, RECORD(c)->title, origin);
            cased = flags & CHAR_CASED;
            break;
        case CASE_SWAP:
            if (flags & CHAR_UPPER)
                put_lower(b, s, begin, i, end, c, origin);
            else if (flags & CHAR_LOWER)
                put_mapped(b, c, RECORD(c)->upper, origin);
            else
                jn_buf_char(b, c, origin);
            break;
        }
    }
}
