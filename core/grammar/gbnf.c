/* gbnf.c: llama.cpp's grammar notation. What is regular between two references to rules becomes one language; the rest
 * becomes nodes. See grammar_from_gbnf in grammar.h. */
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/node.h"
#include "tokenizer/tokenizer.h"
#include "base/utf8.h"

enum { MAX_COUNT = 1 << 20 };

/* What was read: a language, or (language LANG_NONE) a node. */
struct item {
    lang_id language;
    node_id node;
};

struct rule {
    const char *name;
    size_t len;
    node_id node;
    size_t defined_at, used_at; /* SIZE_MAX: not yet */
};

struct gbnf {
    struct grammar *g;
    struct langs *x;
    const struct tokenizer *tokenizer;
    const char *text;
    size_t n, at;
    struct rule *rules;
    uint32_t n_rules, cap_rules;
    uint32_t *buckets; /* [N_BUCKETS]: chains through next[] */
    uint32_t *next;
    struct item *items; /* of all sequences being read, as a stack */
    size_t n_items, cap_items;
    wk_status status;
    const struct wk_err *err;
};
enum { N_BUCKETS = 4096 };

/* Refuses at a byte of the text. Always false. */
WK_PRINTF(4, 5)
static bool refuse(struct gbnf *p, wk_status status, size_t at, const char *format, ...)
{
    char what[200];
    size_t line = 1, column = 1;
    va_list args;
    if (p->status) return false;
    for (size_t i = 0; i < at && i < p->n; i++) {
        const bool newline = p->text[i] == '\n';
        line += newline;
        column = newline ? 1 : column + (((unsigned char)p->text[i] & 0xC0) != 0x80);
    }
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    p->status = wk_fail(p->err, status, "grammar, line %zu, column %zu: %s", line, column, what);
    return false;
}

/* How much of a name a message shows. */
static int shown(size_t len) { return len < 80 ? (int)len : 80; }

static bool no_memory(struct gbnf *p)
{
    if (!p->status) p->status = wk_fail(p->err, WK_NO_MEMORY, "no memory for a grammar");
    return false;
}

/* ---- characters ---------------------------------------------------------------------------------------------------
 */

static bool next_is(const struct gbnf *p, char c) { return p->at < p->n && p->text[p->at] == c; }
static bool take(struct gbnf *p, char c)
{
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* White space and comments; newlines only where a rule may go on behind them. */
static void skip(struct gbnf *p, bool newlines)
{
    while (p->at < p->n) {
        const char c = p->text[p->at];
        if (c == '#') {
            while (p->at < p->n && p->text[p->at] != '\n' && p->text[p->at] != '\r') p->at++;
        } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static bool take_hex(struct gbnf *p, size_t from, int digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char c = p->at < p->n ? p->text[p->at] : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return refuse(p, WK_INVALID, from, "expected %d hexadecimal digits in the escape", digits);
        value = value << 4 | (uint32_t)digit;
    }
    if (value > LANG_MAX_CHAR || (value >= 0xD800 && value <= 0xDFFF))
        return refuse(p, WK_INVALID, from, "the escape is no Unicode character");
    *out = value;
    return true;
}

/* One character of a literal or a class, escaped or not. */
static bool take_char(struct gbnf *p, uint32_t *c)
{
    const size_t from = p->at;
    if (!take(p, '\\')) {
        const size_t len = utf8_sequence((const unsigned char *)p->text + p->at, p->n - p->at);
        if (!len) return refuse(p, WK_INVALID, from, "the text is not UTF-8");
        *c = utf8_decode((const unsigned char *)p->text + p->at, len);
        p->at += len;
        return true;
    }
    if (p->at == p->n) return refuse(p, WK_INVALID, from, "nothing follows the backslash");
    const char letter = p->text[p->at++];
    switch (letter) {
    case 'x': return take_hex(p, from, 2, c);
    case 'u': return take_hex(p, from, 4, c);
    case 'U': return take_hex(p, from, 8, c);
    case 'n': *c = '\n'; return true;
    case 't': *c = '\t'; return true;
    case 'r': *c = '\r'; return true;
    default: break;
    }
    if ((unsigned char)letter >= 0x80 || letter < ' ' || (is_word(letter) && letter != '-' && letter != '_'))
        return refuse(p, WK_INVALID, from,
                      "an escape that is not known; there are \\n \\t \\r \\xHH \\uHHHH \\UHHHHHHHH");
    *c = (unsigned char)letter;
    return true;
}

/* ---- atoms ---------------------------------------------------------------------------------------------------------
 */

static bool literal(struct gbnf *p, struct item *out)
{
    const size_t from = p->at++;
    struct lang_word word = { NULL, 0 };
    char *text = malloc(p->n - p->at + 4); /* an escape is never shorter than what it stands for */
    if (!text) return no_memory(p);
    bool read = true;
    while (read && !next_is(p, '"')) {
        uint32_t c;
        if (p->at == p->n || next_is(p, '\n')) {
            read = refuse(p, WK_INVALID, from, "the literal has no closing quote");
        } else if ((read = take_char(p, &c))) {
            word.len += utf8_encode(c, text + word.len);
        }
    }
    p->at++;
    if (read) out->language = lang_text(p->x, text, word.len);
    free(text);
    return read;
}

static bool class_ranges(struct gbnf *p, size_t from, struct lang_range *ranges, size_t *n)
{
    while (!next_is(p, ']')) {
        struct lang_range r;
        if (p->at == p->n || next_is(p, '\n')) return refuse(p, WK_INVALID, from, "the class has no ]");
        const size_t begin = p->at;
        if (!take_char(p, &r.first)) return false;
        r.last = r.first;
        if (next_is(p, '-') && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            if (!take_char(p, &r.last)) return false;
            if (r.last < r.first) return refuse(p, WK_INVALID, begin, "a range ends before it begins");
        }
        ranges[(*n)++] = r;
    }
    p->at++;
    return true;
}

static bool class_atom(struct gbnf *p, struct item *out)
{
    const size_t from = p->at++;
    const bool negated = take(p, '^');
    size_t end = p->at, n = 0;
    while (end < p->n && p->text[end] != '\n') end++;
    struct lang_range *ranges = malloc((end - p->at + 1) * sizeof *ranges);
    if (!ranges) return no_memory(p);
    const bool read = class_ranges(p, from, ranges, &n);
    if (read) {
        const lang_id chars = lang_chars(p->x, ranges, n);
        out->language = negated ? lang_and(p->x, LANG_ANY_CHAR, lang_not(p->x, chars)) : chars;
    }
    free(ranges);
    return read;
}

/* <[id]> or <text>, which is the name of a token with its brackets. */
static bool token_atom(struct gbnf *p, struct item *out)
{
    const size_t from = p->at;
    const bool except = take(p, '!');
    const size_t begin = p->at;
    if (!take(p, '<')) return refuse(p, WK_INVALID, from, "expected <token> or <[id]> behind !");
    while (p->at < p->n && p->text[p->at] != '>' && p->text[p->at] != '\n') p->at++;
    if (!take(p, '>')) return refuse(p, WK_INVALID, from, "the token has no >");
    const char *name = p->text + begin;
    const size_t len = p->at - begin;
    uint32_t id = TOKEN_NONE;
    if (len > 4 && name[1] == '[' && name[len - 2] == ']') {
        uint64_t value = 0;
        for (size_t i = 2; i < len - 2; i++) {
            if (name[i] < '0' || name[i] > '9' || value >= TOKENIZER_MAX_VOCAB)
                return refuse(p, WK_INVALID, from, "%.*s is no token's id", shown(len), name);
            value = value * 10 + (uint64_t)(name[i] - '0');
        }
        id = (uint32_t)value;
        if (p->tokenizer && id >= tokenizer_size(p->tokenizer))
            return refuse(p, WK_INVALID, from, "this model has %u ids, so none is %u", tokenizer_size(p->tokenizer),
                          id);
    } else if (!p->tokenizer) {
        return refuse(p, WK_UNSUPPORTED, from, "%.*s can be looked up only where a model is given", shown(len), name);
    } else if ((id = tokenizer_find(p->tokenizer, name, len)) == TOKEN_NONE) {
        return refuse(p, WK_INVALID, from, "this model has no token %.*s", shown(len), name);
    }
    out->node = node_token(p->g, &id, 1, except);
    return true;
}

/* ---- rules by name
 * ---------------------------------------------------------------------------------------------------- */

static uint32_t hash_name(const char *name, size_t len)
{
    uint32_t h = 0x811C9DC5u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)name[i]) * 0x01000193u;
    return (h ^ h >> 15) % N_BUCKETS;
}

/* The rule of this name, new if it was not met before; NULL: no memory, or too many. */
static struct rule *find_rule(struct gbnf *p, const char *name, size_t len)
{
    uint32_t *bucket = &p->buckets[hash_name(name, len)];
    for (uint32_t i = *bucket; i; i = p->next[i - 1])
        if (p->rules[i - 1].len == len && !memcmp(p->rules[i - 1].name, name, len)) return &p->rules[i - 1];
    if (p->n_rules == p->cap_rules) {
        const uint32_t cap = p->cap_rules ? 2 * p->cap_rules : 64;
        struct rule *rules = realloc(p->rules, cap * sizeof *rules);
        if (rules) p->rules = rules;
        uint32_t *next = rules ? realloc(p->next, cap * sizeof *next) : NULL;
        if (next) p->next = next;
        if (!next) return (void)no_memory(p), NULL;
        p->cap_rules = cap;
    }
    p->rules[p->n_rules] = (struct rule){ name, len, node_rule(p->g, name, len), SIZE_MAX, SIZE_MAX };
    p->next[p->n_rules] = *bucket;
    *bucket = ++p->n_rules;
    return &p->rules[p->n_rules - 1];
}

static struct rule *take_name(struct gbnf *p)
{
    const size_t begin = p->at;
    while (p->at < p->n && is_word(p->text[p->at])) p->at++;
    if (p->at == begin) return (void)refuse(p, WK_INVALID, begin, "expected the name of a rule"), NULL;
    return find_rule(p, p->text + begin, p->at - begin);
}

/* ---- sequences, alternatives
 * --------------------------------------------------------------------------------------------- */

static bool alternatives(struct gbnf *p, uint32_t level, struct item *out);

static bool push_item(struct gbnf *p, struct item item)
{
    if (!item.language && !item.node) return false; /* the grammar's failure, or the languages' */
    if (p->n_items == p->cap_items) {
        const size_t cap = p->cap_items ? 2 * p->cap_items : 64;
        struct item *moved = realloc(p->items, cap * sizeof *moved);
        if (!moved) return no_memory(p);
        p->items = moved;
        p->cap_items = cap;
    }
    p->items[p->n_items++] = item;
    return true;
}

static node_id node_of(struct gbnf *p, struct item item)
{
    return item.language ? node_text(p->g, item.language) : item.node;
}

static bool atom(struct gbnf *p, uint32_t level, struct item *out)
{
    const size_t from = p->at;
    struct rule *rule;
    *out = (struct item){ LANG_NONE, NODE_NONE };
    switch (p->text[p->at]) {
    case '"': return literal(p, out);
    case '[': return class_atom(p, out);
    case '<':
    case '!': return token_atom(p, out);
    case '.':
        p->at++;
        out->language = LANG_ANY_CHAR;
        return true;
    case '(':
        p->at++;
        if (level == GRAMMAR_MAX_LEVELS)
            return refuse(p, WK_UNSUPPORTED, from, "groups are nested more than %d levels deep", GRAMMAR_MAX_LEVELS);
        skip(p, true);
        if (!alternatives(p, level + 1, out)) return false;
        return take(p, ')') || refuse(p, WK_INVALID, p->at, "expected ) for the ( before");
    case '*':
    case '+':
    case '?':
    case '{': return refuse(p, WK_INVALID, from, "there is nothing to repeat");
    default: break;
    }
    if (!is_word(p->text[p->at])) return refuse(p, WK_INVALID, from, "expected a literal, a class, a rule or a group");
    rule = take_name(p);
    if (!rule) return false;
    if (rule->used_at == SIZE_MAX) rule->used_at = from;
    out->node = rule->node;
    return true;
}

static bool take_count(struct gbnf *p, uint32_t *out)
{
    const size_t from = p->at;
    uint32_t value = 0;
    for (; p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++) {
        value = value * 10 + (uint32_t)(p->text[p->at] - '0');
        if (value > MAX_COUNT) return refuse(p, WK_UNSUPPORTED, from, "a count is larger than 1,048,576");
    }
    if (p->at == from) return refuse(p, WK_INVALID, from, "expected a number");
    *out = value;
    return true;
}

static bool braces(struct gbnf *p, bool newlines, uint32_t *min, uint32_t *max)
{
    const size_t from = p->at++;
    skip(p, newlines);
    *min = 0;
    if (!next_is(p, ',') && !take_count(p, min)) return false;
    *max = *min;
    skip(p, newlines);
    if (take(p, ',')) {
        skip(p, newlines);
        *max = LANG_UNBOUNDED;
        if (!next_is(p, '}') && !take_count(p, max)) return false;
        skip(p, newlines);
    }
    if (!take(p, '}')) return refuse(p, WK_INVALID, p->at, "expected } for the { before");
    return *min <= *max || refuse(p, WK_INVALID, from, "the least count is larger than the largest");
}

/* *found: there is a repetition. False: refused. */
static bool repetition(struct gbnf *p, bool newlines, bool *found, uint32_t *min, uint32_t *max)
{
    *found = true;
    *min = 0;
    *max = LANG_UNBOUNDED;
    if (take(p, '*')) return true;
    if (take(p, '?')) {
        *max = 1;
        return true;
    }
    if (take(p, '+')) {
        *min = 1;
        return true;
    }
    if (next_is(p, '{')) return braces(p, newlines, min, max);
    *found = false;
    return true;
}

/* The items from base on become one. */
static struct item join(struct gbnf *p, size_t base)
{
    lang_id pending = LANG_EMPTY; /* languages that follow each other, joined from the right */
    const size_t n = p->n_items;
    struct item all = { LANG_NONE, NODE_NONE };
    node_id *parts = malloc((n - base + 1) * sizeof *parts);
    if (!parts) {
        (void)no_memory(p);
        return all;
    }
    size_t at = n - base + 1; /* parts are filled from their end */
    for (size_t i = n; i > base; i--) {
        const struct item item = p->items[i - 1];
        if (item.language) {
            pending = lang_concat(p->x, item.language, pending);
            continue;
        }
        if (pending != LANG_EMPTY) parts[--at] = node_text(p->g, pending);
        parts[--at] = item.node;
        pending = LANG_EMPTY;
    }
    if (at == n - base + 1) {
        all.language = pending;
    } else {
        if (pending != LANG_EMPTY) parts[--at] = node_text(p->g, pending);
        all.node = node_sequence(p->g, parts + at, n - base + 1 - at);
    }
    free(parts);
    p->n_items = base;
    return all;
}

static bool sequence(struct gbnf *p, uint32_t level, struct item *out)
{
    const size_t base = p->n_items;
    while (p->at < p->n && !next_is(p, '|') && !next_is(p, ')') && !next_is(p, '\n') && !next_is(p, '\r')) {
        struct item item;
        bool repeated;
        uint32_t min, max;
        if (!atom(p, level, &item)) return false;
        for (;;) {
            skip(p, level > 0);
            if (!repetition(p, level > 0, &repeated, &min, &max)) return false;
            if (!repeated) break;
            if (item.language)
                item.language = lang_repeat(p->x, item.language, min, max);
            else
                item.node = node_repeat(p->g, item.node, min, max);
        }
        if (!push_item(p, item)) return false;
    }
    *out = join(p, base);
    return out->language || out->node;
}

static bool alternatives(struct gbnf *p, uint32_t level, struct item *out)
{
    const size_t base = p->n_items;
    do {
        struct item item;
        skip(p, true); /* behind | a rule goes on */
        if (!sequence(p, level, &item) || !push_item(p, item)) return false;
        skip(p, level > 0);
    } while (take(p, '|'));
    size_t n = 0, n_languages = 0;
    node_id *parts = malloc((p->n_items - base + 1) * sizeof *parts);
    lang_id *languages = malloc((p->n_items - base) * sizeof *languages);
    if (parts && languages) {
        for (size_t i = base; i < p->n_items; i++) {
            if (p->items[i].language)
                languages[n_languages++] = p->items[i].language;
            else
                parts[n++] = p->items[i].node;
        }
        *out = (struct item){ lang_any_of(p->x, languages, n_languages), NODE_NONE };
        if (n) {
            if (n_languages) parts[n++] = node_text(p->g, out->language);
            *out = (struct item){ LANG_NONE, node_any_of(p->g, parts, n) };
        }
    } else {
        (void)no_memory(p);
        *out = (struct item){ LANG_NONE, NODE_NONE };
    }
    free(parts);
    free(languages);
    p->n_items = base;
    return out->language || out->node;
}

static bool definition(struct gbnf *p)
{
    struct item body;
    const size_t from = p->at;
    struct rule *rule = take_name(p);
    if (!rule) return false;
    if (rule->defined_at != SIZE_MAX)
        return refuse(p, WK_INVALID, from, "rule \"%.*s\" is defined twice", shown(rule->len), rule->name);
    rule->defined_at = from;
    const node_id node = rule->node;
    skip(p, false);
    if (p->n - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0)
        return refuse(p, WK_INVALID, p->at, "expected ::= behind the name of a rule");
    p->at += 3;
    if (!alternatives(p, 0, &body)) return false;
    if (next_is(p, ')')) return refuse(p, WK_INVALID, p->at, "a ) without its (");
    node_define(p->g, node, node_of(p, body));
    return true;
}

static bool grammar(struct gbnf *p, node_id *root)
{
    for (skip(p, true); p->at < p->n; skip(p, true))
        if (!definition(p)) return false;
    struct rule *rule = find_rule(p, "root", 4);
    if (!rule) return false;
    if (rule->defined_at == SIZE_MAX) return refuse(p, WK_INVALID, p->n, "there is no rule \"root\"");
    *root = rule->node;
    for (uint32_t i = 0; i < p->n_rules; i++) {
        rule = &p->rules[i];
        if (rule->defined_at == SIZE_MAX)
            return refuse(p, WK_INVALID, rule->used_at, "rule \"%.*s\" is not defined", shown(rule->len), rule->name);
    }
    return true;
}

/* A failure of grammar_seal that is about a rule gets the rule's line. */
static wk_status seal(struct gbnf *p, node_id root)
{
    char why[300];
    const wk_status status = grammar_seal(p->g, root, &(struct wk_err){ why, sizeof why });
    for (uint32_t i = 0; status && i < p->n_rules; i++) {
        const struct rule *r = &p->rules[i];
        if (!strncmp(why, "rule \"", 6) && !strncmp(why + 6, r->name, r->len) && why[6 + r->len] == '"') {
            (void)refuse(p, status, r->defined_at, "%s", why);
            return p->status;
        }
    }
    return status ? wk_fail(p->err, status, "grammar: %s", why) : WK_OK;
}

wk_status grammar_from_gbnf(const char *text, size_t n, const struct tokenizer *t, const struct lang_watch *watch,
                            struct grammar **out, const struct wk_err *err)
{
    struct gbnf p = { .tokenizer = t, .text = text, .n = n, .err = err };
    node_id root = NODE_NONE;
    *out = NULL;
    if (n > GRAMMAR_MAX_TEXT) return wk_fail(err, WK_UNSUPPORTED, "the grammar's text has more than 1 MiB");
    p.status = grammar_open(watch, &p.g, err);
    if (p.status) return p.status;
    p.x = grammar_langs(p.g);
    p.buckets = calloc(N_BUCKETS, sizeof *p.buckets);
    if (!p.buckets) (void)no_memory(&p);
    const bool read = !p.status && grammar(&p, &root);
    wk_status status = p.status;
    if (!status) status = seal(&p, read ? root : NODE_NONE);
    if (status)
        grammar_close(p.g);
    else
        *out = p.g;
    free(p.buckets);
    free(p.next);
    free(p.rules);
    free(p.items);
    return status;
}
