/* regex.c: regular expressions as people write them, parsed into languages. See lang_regex in lang.h.
 *
 * Anchors. What a part of an expression matches may depend on whether its text begins (or ends) where the whole text
 * does. So a part is four languages, by these two facts; they differ only below an anchor. Look-ahead asks about all of
 * the text that follows: where it stands, an alternative is built from its end, as the language of all that follows
 * each place, and `(?=a)` and `(?!a)` are intersections. A group that holds look-ahead is kept as its branches, of
 * which each is put before what follows the group; so it cannot be repeated.
 */
#include "grammar/lang_internal.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/classes.h"
#include "base/utf8.h"

enum { MAX_LEVELS = 64, MAX_COUNT = 1 << 20, MAX_PATTERN = 1 << 20 };

/* language[b][e]: what is matched where the text is known to begin (b) and to end (e) with it. */
struct part {
    lang_id language[2][2];
    bool anchored; /* they may differ */
    bool look, look_not;
    const struct branch *branches; /* of a group with look-ahead in it; NULL: the languages are all of it */
};
/* One alternative of such a group. */
struct branch {
    const struct branch *next;
    struct branch *made; /* the parser's list of all */
    size_t n;
    struct part parts[];
};

struct parser {
    struct langs *x;
    const char *text;
    size_t n, at;
    enum lang_match match;
    struct part *parts; /* of all sequences being read, as a stack */
    size_t n_parts, cap_parts;
    struct branch *made;
    wk_status status;
    const struct wk_err *err;
};

static bool refuse(struct parser *p, wk_status status, size_t at, const char *what)
{
    if (!p->status) p->status = wk_fail(p->err, status, "regular expression, byte %zu: %s", at, what);
    return false;
}

static struct part plain(lang_id a) { return (struct part){ .language = { { a, a }, { a, a } } }; }

/* The language without the empty text. */
static lang_id filled(struct langs *x, lang_id a)
{
    if (!a || !lang_accepts(x, a)) return a;
    return lang_and(x, a, lang_length(x, 1, LANG_UNBOUNDED));
}

static bool has_empty(const struct langs *x, lang_id a) { return a && lang_accepts(x, a); }

/* What both parts match, one after the other, at one pair of facts. */
static lang_id join_at(struct langs *x, const struct part *a, const struct part *b, int begins, int ends)
{
    lang_id all = lang_concat(x, filled(x, a->language[begins][0]), filled(x, b->language[0][ends]));
    if (has_empty(x, a->language[begins][0])) all = lang_or(x, all, filled(x, b->language[begins][ends]));
    if (has_empty(x, b->language[0][ends])) all = lang_or(x, all, filled(x, a->language[begins][ends]));
    if (has_empty(x, a->language[begins][ends]) && has_empty(x, b->language[begins][ends]))
        all = lang_or(x, all, LANG_EMPTY);
    return all;
}

static struct part join(struct langs *x, const struct part *a, const struct part *b)
{
    if (!a->anchored && !b->anchored) return plain(lang_concat(x, a->language[0][0], b->language[0][0]));
    struct part all = { .anchored = true };
    for (int i = 0; i < 4; i++) all.language[i >> 1][i & 1] = join_at(x, a, b, i >> 1, i & 1);
    return all;
}

/* One of n parts. */
static struct part either(struct langs *x, const struct part *parts, size_t n)
{
    struct part all = plain(LANG_NONE);
    lang_id *each = malloc(n * sizeof *each);
    if (!each) (void)langs_fail(x, WK_NO_MEMORY, "no memory for a regular expression");
    for (size_t k = 0; each && k < n; k++) all.anchored = all.anchored || parts[k].anchored;
    for (int i = 0; each && i < (all.anchored ? 4 : 1); i++) {
        for (size_t k = 0; k < n; k++) each[k] = parts[k].language[i >> 1][i & 1];
        all.language[i >> 1][i & 1] = lang_any_of(x, each, n);
    }
    free(each);
    return all.anchored ? all : plain(all.language[0][0]);
}

/* A part that holds anchors, repeated: only the first time can begin the text, only the last one end it. */
static struct part repeat_anchored(struct langs *x, const struct part *a, uint32_t min, uint32_t max)
{
    struct part all = { .anchored = true };
    const uint32_t more = max == LANG_UNBOUNDED ? max : max < 2 ? 0 : max - 2;
    for (int i = 0; i < 4; i++) {
        const int b = i >> 1, e = i & 1;
        lang_id l = a->language[b][e];
        if (max > 1) {
            const lang_id middle = lang_repeat(x, a->language[0][0], 0, more);
            l = lang_or(x, l, lang_concat(x, a->language[b][0], lang_concat(x, middle, a->language[0][e])));
        }
        all.language[b][e] = min ? l : lang_or(x, l, LANG_EMPTY);
    }
    return all;
}

/* ---- characters and classes ------------------------------------------------------------------------------------ */

static bool more(const struct parser *p) { return p->at < p->n; }
static bool next_is(const struct parser *p, char c) { return more(p) && p->text[p->at] == c; }
static bool take(struct parser *p, char c)
{
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}
static bool take_text(struct parser *p, const char *text)
{
    const size_t n = strlen(text);
    if (p->n - p->at < n || memcmp(p->text + p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* `digits` hexadecimal ones; false, and nothing taken: they are not there. */
static bool take_hex(struct parser *p, size_t digits, uint32_t *out)
{
    uint32_t value = 0;
    if (p->n - p->at < digits) return false;
    for (size_t i = 0; i < digits; i++) {
        const int v = hex_value(p->text[p->at + i]);
        if (v < 0) return false;
        value = value << 4 | (uint32_t)v;
    }
    p->at += digits;
    *out = value;
    return true;
}

static bool check_char(struct parser *p, size_t from, uint32_t c)
{
    if (c > LANG_MAX_CHAR || (c >= 0xD800 && c <= 0xDFFF))
        return refuse(p, WK_INVALID, from, "the escape is no Unicode character");
    return true;
}

/* Behind "\u": {X...}, XXXX, or two of these that make a surrogate pair. */
static bool take_unicode(struct parser *p, size_t from, uint32_t *c)
{
    if (take(p, '{')) {
        uint32_t value = 0, digits = 0;
        for (int v; more(p) && (v = hex_value(p->text[p->at])) >= 0 && digits < 8; p->at++, digits++)
            value = value << 4 | (uint32_t)v;
        if (!digits || !take(p, '}')) return refuse(p, WK_INVALID, from, "expected \\u{X} with hexadecimal digits");
        *c = value;
        return check_char(p, from, value);
    }
    if (!take_hex(p, 4, c)) return refuse(p, WK_INVALID, from, "expected \\uXXXX with 4 hexadecimal digits");
    const size_t behind = p->at;
    uint32_t low;
    if (*c >= 0xD800 && *c <= 0xDBFF && take_text(p, "\\u") && take_hex(p, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
        *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    else
        p->at = behind;
    return check_char(p, from, *c);
}

/* An escape that stands for one character; p stands behind the backslash and its letter. */
static bool escaped_char(struct parser *p, char letter, bool in_class, uint32_t *c)
{
    const size_t from = p->at - 2;
    switch (letter) {
    case 'n': *c = '\n'; return true;
    case 't': *c = '\t'; return true;
    case 'r': *c = '\r'; return true;
    case 'f': *c = '\f'; return true;
    case 'v': *c = '\v'; return true;
    case 'x':
        if (!take_hex(p, 2, c)) return refuse(p, WK_INVALID, from, "expected \\xHH with 2 hexadecimal digits");
        return true;
    case 'u': return take_unicode(p, from, c);
    case 'U':
        if (!take_hex(p, 8, c)) return refuse(p, WK_INVALID, from, "expected \\UXXXXXXXX with 8 hexadecimal digits");
        return check_char(p, from, *c);
    case 'c':
        if (!more(p) || !((p->text[p->at] | 0x20) >= 'a' && (p->text[p->at] | 0x20) <= 'z'))
            return refuse(p, WK_INVALID, from, "expected a letter behind \\c");
        *c = (uint32_t)(p->text[p->at++] & 0x1F);
        return true;
    case '0':
        if (more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9')
            return refuse(p, WK_UNSUPPORTED, from, "octal escapes are not supported; write \\xHH");
        *c = 0;
        return true;
    case 'b':
        if (!in_class) return refuse(p, WK_UNSUPPORTED, from, "word boundaries (\\b, \\B) are not supported");
        *c = '\b';
        return true;
    case 'B': return refuse(p, WK_UNSUPPORTED, from, "word boundaries (\\b, \\B) are not supported");
    case 'k': return refuse(p, WK_UNSUPPORTED, from, "backreferences are not supported");
    default: break;
    }
    if (letter >= '1' && letter <= '9') return refuse(p, WK_UNSUPPORTED, from, "backreferences are not supported");
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return refuse(p, WK_INVALID, from, "an escape that is not known");
    if ((unsigned char)letter >= 0x80) return refuse(p, WK_INVALID, from, "an escape that is not known");
    *c = (unsigned char)letter;
    return true;
}

/* Behind "\p" or "\P": {Name}. */
static bool property(struct parser *p, bool negated, lang_id *out)
{
    const size_t from = p->at - 2;
    if (!take(p, '{')) return refuse(p, WK_INVALID, from, "expected \\p{Name}");
    const size_t begin = p->at;
    while (more(p) && p->text[p->at] != '}') p->at++;
    const size_t len = p->at - begin;
    if (!take(p, '}')) return refuse(p, WK_INVALID, from, "\\p{ has no }");
    *out = classes_property(p->x, p->text + begin, len);
    if (*out == LANG_NONE) return false;
    if (*out == LANG_NOTHING) return refuse(p, WK_UNSUPPORTED, from, "a Unicode property that is not known");
    if (negated) *out = classes_negated(p->x, *out);
    return *out != LANG_NONE;
}

/* An escape that stands for a set: \d and its like. *out LANG_NONE: it is none of them. */
static bool escaped_set(struct parser *p, char letter, lang_id *out)
{
    *out = LANG_NONE;
    switch (letter) {
    case 'd':
    case 'D': *out = classes_digit(p->x); break;
    case 'w':
    case 'W': *out = classes_word(p->x); break;
    case 's':
    case 'S': *out = classes_space(p->x); break;
    case 'p':
    case 'P': return property(p, letter == 'P', out);
    default: return true;
    }
    if (*out && letter < 'a') *out = classes_negated(p->x, *out);
    return *out != LANG_NONE;
}

static bool plain_char(struct parser *p, uint32_t *c)
{
    const size_t len = utf8_sequence((const unsigned char *)p->text + p->at, p->n - p->at);
    if (!len) return refuse(p, WK_INVALID, p->at, "the text is not UTF-8");
    *c = utf8_decode((const unsigned char *)p->text + p->at, len);
    p->at += len;
    return true;
}

/* One member of a class: a character, or (*set) a set. */
static bool class_member(struct parser *p, uint32_t *c, lang_id *set)
{
    *set = LANG_NONE;
    if (!take(p, '\\')) return plain_char(p, c);
    if (!more(p)) return refuse(p, WK_INVALID, p->at - 1, "nothing follows the backslash");
    const char letter = p->text[p->at++];
    if (!escaped_set(p, letter, set)) return false;
    return *set || escaped_char(p, letter, true, c);
}

/* The characters of a class that were read as ranges; joined to *all at the end, since each join costs. */
static bool add_range(struct parser *p, struct numbers *ranges, uint32_t first, uint32_t last)
{
    return numbers_push(p->x, ranges, first) && numbers_push(p->x, ranges, last);
}

static bool class_members(struct parser *p, size_t from, struct numbers *ranges, lang_id *sets)
{
    while (!next_is(p, ']')) {
        uint32_t first, last;
        lang_id set;
        if (!more(p)) return refuse(p, WK_INVALID, from, "the class has no ]");
        const size_t at = p->at;
        if (!class_member(p, &first, &set)) return false;
        if (set) {
            *sets = lang_or(p->x, *sets, set);
            continue;
        }
        last = first;
        if (next_is(p, '-') && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            if (!class_member(p, &last, &set)) return false;
            if (set) { /* [a-\d]: the dash is itself */
                *sets = lang_or(p->x, *sets, set);
                last = first;
                if (!add_range(p, ranges, '-', '-')) return false;
            } else if (last < first) {
                return refuse(p, WK_INVALID, at, "a range ends before it begins");
            }
        }
        if (!add_range(p, ranges, first, last)) return false;
    }
    p->at++;
    return true;
}

static bool class_atom(struct parser *p, lang_id *out)
{
    const size_t from = p->at - 1;
    const bool negated = take(p, '^');
    struct numbers ranges = { 0 };
    lang_id sets = LANG_NOTHING;
    bool read = class_members(p, from, &ranges, &sets);
    if (read) {
        struct lang_range *list = malloc((ranges.n / 2 + 1) * sizeof *list);
        for (uint32_t i = 0; list && i < ranges.n / 2; i++)
            list[i] = (struct lang_range){ ranges.list[2 * i], ranges.list[2 * i + 1] };
        *out = list ? lang_or(p->x, sets, lang_chars(p->x, list, ranges.n / 2))
                    : langs_fail(p->x, WK_NO_MEMORY, "no memory for a class of characters");
        if (*out && negated) *out = classes_negated(p->x, *out);
        free(list);
    }
    free(ranges.list);
    return read && *out;
}

/* ---- sequences, groups, repetition ----------------------------------------------------------------------------------
 */

static bool alternatives(struct parser *p, uint32_t level, struct part *out);

/* As long as there is no part there is no memory either. */
static struct part *parts_from(const struct parser *p, size_t at) { return p->parts ? p->parts + at : NULL; }

static bool push_part(struct parser *p, struct part part)
{
    if (p->n_parts == p->cap_parts) {
        const size_t cap = p->cap_parts ? 2 * p->cap_parts : 64;
        struct part *moved = realloc(p->parts, cap * sizeof *moved);
        if (!moved) return langs_fail(p->x, WK_NO_MEMORY, "no memory for a regular expression");
        p->parts = moved;
        p->cap_parts = cap;
    }
    p->parts[p->n_parts++] = part;
    return true;
}

static struct part anchor(bool at_end)
{
    struct part a = { .anchored = true };
    for (int i = 0; i < 4; i++) a.language[i >> 1][i & 1] = (at_end ? i & 1 : i >> 1) ? LANG_EMPTY : LANG_NOTHING;
    return a;
}

static bool skip_name(struct parser *p)
{
    const size_t from = p->at;
    while (more(p) && p->text[p->at] != '>') p->at++;
    if (!take(p, '>')) return refuse(p, WK_INVALID, from, "the name of a group has no >");
    return true;
}

static bool group(struct parser *p, uint32_t level, struct part *out)
{
    const size_t from = p->at - 1;
    bool look = false, look_not = false;
    if (level >= MAX_LEVELS) return refuse(p, WK_UNSUPPORTED, from, "groups are nested more than 64 levels deep");
    if (take(p, '?')) {
        if (take_text(p, "<=") || take_text(p, "<!"))
            return refuse(p, WK_UNSUPPORTED, from, "look-behind is not supported");
        if (take(p, '=')) {
            look = true;
        } else if (take(p, '!')) {
            look = look_not = true;
        } else if (take_text(p, "P<") || take(p, '<')) {
            if (!skip_name(p)) return false;
        } else if (!take(p, ':')) {
            return refuse(p, WK_UNSUPPORTED, from,
                          "only (...), (?:...), (?<name>...), (?=...) and (?!...) are supported of what begins with (");
        }
    }
    if (!alternatives(p, level + 1, out)) return false;
    if (!take(p, ')')) return refuse(p, WK_INVALID, from, "the group has no )");
    out->look = look;
    out->look_not = look_not;
    return true;
}

static bool escape_atom(struct parser *p, struct part *out, uint32_t *c, bool *single)
{
    lang_id set;
    if (!more(p)) return refuse(p, WK_INVALID, p->at - 1, "nothing follows the backslash");
    const char letter = p->text[p->at++];
    if (letter == 'A' || letter == 'Z' || letter == 'z') {
        *out = anchor(letter != 'A');
        return true;
    }
    if (!escaped_set(p, letter, &set)) return false;
    if (set) {
        *out = plain(set);
        return true;
    }
    *single = true;
    return escaped_char(p, letter, false, c);
}

/* One atom. *single: it is the character *c. */
static bool atom(struct parser *p, uint32_t level, struct part *out, uint32_t *c, bool *single)
{
    const size_t from = p->at;
    lang_id set;
    *single = false;
    switch (p->text[p->at]) {
    case '(': p->at++; return group(p, level, out);
    case '[':
        p->at++;
        if (!class_atom(p, &set)) return false;
        *out = plain(set);
        return true;
    case '.':
        p->at++;
        *out = plain(classes_dot(p->x));
        return out->language[0][0] != LANG_NONE;
    case '^':
    case '$': *out = anchor(p->text[p->at++] == '$'); return true;
    case '\\': p->at++; return escape_atom(p, out, c, single);
    case '*':
    case '+':
    case '?': return refuse(p, WK_INVALID, from, "there is nothing to repeat");
    default: *single = true; return plain_char(p, c);
    }
}

static bool take_count(struct parser *p, uint32_t *out, bool *too_large)
{
    const size_t from = p->at;
    uint32_t value = 0;
    for (; more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
        value = value * 10 + (uint32_t)(p->text[p->at] - '0');
        if (value > MAX_COUNT) {
            *too_large = true;
            value = MAX_COUNT;
        }
    }
    *out = value;
    return p->at > from;
}

/* {m}, {m,}, {m,n} or {,n}. Not taken: it is text like any other. */
static bool take_braces(struct parser *p, uint32_t *min, uint32_t *max, bool *too_large)
{
    const size_t from = p->at;
    if (!take(p, '{')) return false;
    const bool has_min = take_count(p, min, too_large);
    *max = *min;
    bool right = has_min;
    if (take(p, ',')) {
        const bool has_max = take_count(p, max, too_large);
        if (!has_max) *max = LANG_UNBOUNDED;
        right = has_min || has_max;
    }
    if (right && take(p, '}')) return true;
    p->at = from;
    *too_large = false;
    return false;
}

/* A quantifier. False: there is none, or it is refused (status). */
static bool quantifier(struct parser *p, uint32_t *min, uint32_t *max)
{
    const size_t from = p->at;
    bool too_large = false;
    if (take(p, '*')) {
        *min = 0, *max = LANG_UNBOUNDED;
    } else if (take(p, '+')) {
        *min = 1, *max = LANG_UNBOUNDED;
    } else if (take(p, '?')) {
        *min = 0, *max = 1;
    } else if (!take_braces(p, min, max, &too_large)) {
        return false;
    }
    if (too_large) return refuse(p, WK_UNSUPPORTED, from, "a count is larger than 1,048,576");
    if (*min > *max) return refuse(p, WK_INVALID, from, "the least count is larger than the largest");
    (void)take(p, '?'); /* lazy: the same texts */
    if (next_is(p, '+')) return refuse(p, WK_UNSUPPORTED, p->at, "possessive quantifiers are not supported");
    if (next_is(p, '*') || next_is(p, '?')) return refuse(p, WK_INVALID, p->at, "there is nothing to repeat");
    return true;
}

/* A copy of n parts. NULL: no memory. */
static struct branch *add_branch(struct parser *p, const struct part *parts, size_t n)
{
    struct branch *b = malloc(sizeof *b + n * sizeof *b->parts);
    if (!b || !langs_step(p->x, 1 + n)) {
        free(b);
        (void)langs_fail(p->x, WK_NO_MEMORY, "no memory for a regular expression");
        return NULL;
    }
    *b = (struct branch){ .made = p->made, .n = n };
    if (n) memcpy(b->parts, parts, n * sizeof *parts);
    return p->made = b;
}

/* The group may be left out. */
static bool add_empty_branch(struct parser *p, struct part *group)
{
    struct branch *b = add_branch(p, NULL, 0);
    if (!b) return false;
    b->next = group->branches;
    group->branches = b;
    return true;
}

static bool repeat_part(struct parser *p, size_t from, struct part *part, uint32_t min, uint32_t max)
{
    if (part->branches && !min && max == 1) return add_empty_branch(p, part);
    if (part->look || part->branches) return refuse(p, WK_UNSUPPORTED, from, "look-ahead cannot be repeated");
    if (!part->anchored) {
        *part = plain(lang_repeat(p->x, part->language[0][0], min, max));
        return true;
    }
    if (!max) {
        *part = plain(LANG_EMPTY);
    } else {
        if (min > 1) return refuse(p, WK_UNSUPPORTED, from, "an anchor in what is repeated more than once");
        *part = repeat_anchored(p->x, part, min, max);
    }
    return true;
}

/* The characters of `run` become one part. */
static bool flush_run(struct parser *p, struct byte_run *run)
{
    if (!run->n) return true;
    const lang_id text = lang_text(p->x, run->bytes, run->n);
    run->n = 0;
    return text && push_part(p, plain(text));
}

/* Pushes the parts of a sequence up to | ) or the end. */
static bool sequence(struct parser *p, uint32_t level)
{
    struct byte_run run = { .n = 0 };
    while (more(p) && !next_is(p, '|') && !next_is(p, ')')) {
        struct part part = plain(LANG_EMPTY);
        uint32_t c = 0, min, max;
        bool single;
        const size_t from = p->at;
        if (!atom(p, level, &part, &c, &single)) return false;
        const bool repeated = quantifier(p, &min, &max);
        if (p->status) return false;
        if (single && !repeated) {
            run.n += utf8_encode(c, run.bytes + run.n);
            if (run.n > sizeof run.bytes - 4 && !flush_run(p, &run)) return false;
            continue;
        }
        if (!flush_run(p, &run)) return false;
        if (single) part = plain(lang_chars(p->x, &(struct lang_range){ c, c }, 1));
        if (repeated && !repeat_part(p, from, &part, min, max)) return false;
        if (!push_part(p, part)) return false;
    }
    return flush_run(p, &run);
}

/* The rest of a group's alternatives, the parts of the one that was read lying from `base` on. */
static bool branches(struct parser *p, uint32_t level, size_t base, struct branch *all, struct part *out)
{
    for (;;) {
        struct branch *b = add_branch(p, parts_from(p, base), p->n_parts - base);
        if (!b) return false;
        b->next = all;
        all = b;
        p->n_parts = base;
        if (!take(p, '|')) break;
        if (!sequence(p, level)) return false;
    }
    *out = (struct part){ .branches = all };
    return true;
}

static bool holds_look(const struct parser *p, size_t base)
{
    for (size_t i = base; i < p->n_parts; i++)
        if (p->parts[i].look || p->parts[i].branches) return true;
    return false;
}

static bool alternatives(struct parser *p, uint32_t level, struct part *out)
{
    const size_t first = p->n_parts;
    do {
        const size_t base = p->n_parts;
        if (!sequence(p, level)) return false;
        if (holds_look(p, base)) { /* those that were read before are one branch */
            struct branch *before = NULL;
            if (base > first) {
                const struct part all = either(p->x, parts_from(p, first), base - first);
                if (!(before = add_branch(p, &all, 1))) return false;
            }
            const bool read = branches(p, level, base, before, out);
            p->n_parts = first;
            return read && !langs_status(p->x, NULL);
        }
        struct part all = plain(LANG_EMPTY);
        while (p->n_parts > base) all = join(p->x, &p->parts[--p->n_parts], &all);
        if (!push_part(p, all)) return false;
    } while (take(p, '|'));
    *out = either(p->x, parts_from(p, first), p->n_parts - first);
    p->n_parts = first;
    return !langs_status(p->x, NULL);
}

/* ---- the outermost level
 * ----------------------------------------------------------------------------------------------- */

/* rest[b]: all that may follow up to the text's end, where it begins there (b) or not. A part is put before it. */
static void put_before(struct langs *x, const struct part *a, lang_id rest[2])
{
    const struct part behind = { .language = { { rest[0], rest[0] }, { rest[1], rest[1] } },
                                 .anchored = rest[0] != rest[1] };
    const struct part all = join(x, a, &behind);
    rest[0] = all.language[0][1];
    rest[1] = all.language[1][1];
}

static void put_parts(struct langs *x, const struct part *parts, size_t n, lang_id rest[2]);

/* Each branch before what follows the group. Depth: of groups, which is bounded. */
static void put_branches(struct langs *x, const struct branch *b, lang_id rest[2])
{
    lang_id all[2] = { LANG_NOTHING, LANG_NOTHING };
    for (; b; b = b->next) {
        lang_id one[2] = { rest[0], rest[1] };
        put_parts(x, b->parts, b->n, one);
        for (int i = 0; i < 2; i++) all[i] = lang_or(x, all[i], one[i]);
    }
    rest[0] = all[0];
    rest[1] = all[1];
}

static void put_look(struct langs *x, const struct part *a, lang_id rest[2])
{
    lang_id seen[2] = { LANG_EVERYTHING, LANG_EVERYTHING };
    if (a->branches)
        put_branches(x, a->branches, seen);
    else
        put_before(x, a, seen);
    for (int b = 0; b < 2; b++) rest[b] = a->look_not ? lang_minus(x, rest[b], seen[b]) : lang_and(x, rest[b], seen[b]);
}

static void put_parts(struct langs *x, const struct part *parts, size_t n, lang_id rest[2])
{
    while (n) {
        const struct part *a = &parts[--n];
        if (a->look)
            put_look(x, a, rest);
        else if (a->branches)
            put_branches(x, a->branches, rest);
        else
            put_before(x, a, rest);
    }
}

static bool whole(struct parser *p, lang_id *out)
{
    struct langs *x = p->x;
    do {
        const size_t base = p->n_parts;
        if (!sequence(p, 0)) return false;
        const lang_id end = p->match == LANG_SEARCH ? LANG_EVERYTHING : LANG_EMPTY;
        lang_id rest[2] = { end, end };
        if (p->n_parts > base) put_parts(x, parts_from(p, base), p->n_parts - base, rest);
        p->n_parts = base;
        const struct part all = { .language = { { rest[0], rest[0] }, { rest[1], rest[1] } },
                                  .anchored = rest[0] != rest[1] };
        if (!push_part(p, all)) return false;
    } while (take(p, '|'));
    if (more(p)) return refuse(p, WK_INVALID, p->at, "a ) without its (");
    const struct part found = either(x, p->parts, p->n_parts);
    const lang_id all[2] = { found.language[0][0], found.language[1][0] };
    *out = all[1];
    if (p->match == LANG_SEARCH) {
        const lang_id later = all[0] == all[1] ? LANG_EVERYTHING : lang_length(x, 1, LANG_UNBOUNDED);
        *out = all[0] == all[1] ? lang_concat(x, later, all[0]) : lang_or(x, all[1], lang_concat(x, later, all[0]));
    }
    return *out != LANG_NONE;
}

lang_id lang_regex(struct langs *x, const char *pattern, size_t n, enum lang_match match, wk_status *status,
                   const struct wk_err *err)
{
    struct parser p = { .x = x, .text = pattern, .n = n, .match = match, .err = err };
    lang_id id = LANG_NONE;
    if (n > MAX_PATTERN) {
        *status = wk_fail(err, WK_UNSUPPORTED, "a regular expression has more than 1 MiB");
        return LANG_NONE;
    }
    const bool parsed = whole(&p, &id);
    for (struct branch *b = p.made, *next; b; b = next) {
        next = b->made;
        free(b);
    }
    free(p.parts);
    *status = p.status ? p.status : langs_status(x, err);
    return parsed && !*status ? id : LANG_NONE;
}
