/* classes.c: see classes.h. Unicode properties are PCRE2's: it is asked which characters of all have one, which takes
 * some milliseconds, so the answers are kept for all grammars of the process. */
#include "grammar/classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/lang_internal.h"
#include "base/utf8.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

lang_id classes_digit(struct langs *x) { return lang_chars(x, &(struct lang_range){ '0', '9' }, 1); }

lang_id classes_word(struct langs *x)
{
    static const struct lang_range word[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
    return lang_chars(x, word, LENGTH(word));
}

lang_id classes_space(struct langs *x)
{
    static const struct lang_range space[] = { { 0x09, 0x0D },     { ' ', ' ' },       { 0xA0, 0xA0 },
                                               { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
                                               { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 },
                                               { 0xFEFF, 0xFEFF } };
    return lang_chars(x, space, LENGTH(space));
}

lang_id classes_dot(struct langs *x)
{
    static const struct lang_range dot[] = { { 0, 0x09 }, { 0x0B, 0x0C }, { 0x0E, 0x2027 }, { 0x202A, LANG_MAX_CHAR } };
    return lang_chars(x, dot, LENGTH(dot));
}

lang_id classes_negated(struct langs *x, lang_id a)
{
    if (a == LANG_NOTHING) return LANG_ANY_CHAR;
    if (a == LANG_ANY_CHAR) return LANG_NOTHING;
    if (!a) return LANG_NONE;
    const struct char_set s = x->sets[x->exprs[a].a];
    struct lang_range *rest = malloc((s.n + 1) * sizeof *rest);
    if (!rest) return langs_fail(x, WK_NO_MEMORY, "no memory for a class of characters");
    uint32_t n = 0, from = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        const struct lang_range r = x->ranges[s.at + i];
        if (r.first > from) rest[n++] = (struct lang_range){ from, r.first - 1 };
        from = r.last + 1;
    }
    if (from <= LANG_MAX_CHAR) rest[n++] = (struct lang_range){ from, LANG_MAX_CHAR };
    const lang_id id = lang_chars(x, rest, n);
    free(rest);
    return id;
}

/* ---- Unicode properties ---------------------------------------------------------------------------------------- */

/* ECMA-262's long names of general categories; PCRE2 knows the short ones. */
static const char *short_name(const char *name)
{
    static const char *const names[][2] = {
        { "Letter", "L" },
        { "Cased_Letter", "L&" },
        { "Uppercase_Letter", "Lu" },
        { "Lowercase_Letter", "Ll" },
        { "Titlecase_Letter", "Lt" },
        { "Modifier_Letter", "Lm" },
        { "Other_Letter", "Lo" },
        { "Mark", "M" },
        { "Nonspacing_Mark", "Mn" },
        { "Spacing_Mark", "Mc" },
        { "Enclosing_Mark", "Me" },
        { "Number", "N" },
        { "Decimal_Number", "Nd" },
        { "digit", "Nd" },
        { "Letter_Number", "Nl" },
        { "Other_Number", "No" },
        { "Punctuation", "P" },
        { "punct", "P" },
        { "Connector_Punctuation", "Pc" },
        { "Dash_Punctuation", "Pd" },
        { "Open_Punctuation", "Ps" },
        { "Close_Punctuation", "Pe" },
        { "Initial_Punctuation", "Pi" },
        { "Final_Punctuation", "Pf" },
        { "Other_Punctuation", "Po" },
        { "Symbol", "S" },
        { "Math_Symbol", "Sm" },
        { "Currency_Symbol", "Sc" },
        { "Modifier_Symbol", "Sk" },
        { "Other_Symbol", "So" },
        { "Separator", "Z" },
        { "Space_Separator", "Zs" },
        { "Line_Separator", "Zl" },
        { "Paragraph_Separator", "Zp" },
        { "Other", "C" },
        { "Control", "Cc" },
        { "Format", "Cf" },
        { "Private_Use", "Co" },
        { "Unassigned", "Cn" },
    };
    for (size_t i = 0; i < LENGTH(names); i++)
        if (!strcmp(name, names[i][0])) return names[i][1];
    return name;
}

/* The name as PCRE2 has it. False: it cannot be one. */
static bool pcre_name(const char *name, size_t n, char out[LANG_MAX_NAME])
{
    static const char *const prefixes[] = { "General_Category=", "gc=", "Script=", "sc=" };
    char text[LANG_MAX_NAME];
    if (!n || n >= LANG_MAX_NAME) return false;
    for (size_t i = 0; i < n; i++) {
        const bool letter = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z');
        if (!letter && !(name[i] >= '0' && name[i] <= '9') && name[i] != '_' && name[i] != '=') return false;
    }
    memcpy(text, name, n);
    text[n] = '\0';
    const char *value = text;
    for (size_t i = 0; i < LENGTH(prefixes); i++)
        if (!strncmp(text, prefixes[i], strlen(prefixes[i]))) value = text + strlen(prefixes[i]);
    if (strchr(value, '=')) return false;
    (void)snprintf(out, LANG_MAX_NAME, "%s", short_name(value));
    return true;
}

/* Characters that have a property, as ranges. */
struct property {
    char key[LANG_MAX_NAME];
    struct lang_range *ranges;
    uint32_t n, cap;
    struct property *next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct property
    *kept; /* at most one for each name that PCRE2 has; none goes, so they are read without the lock */

static void close_property(struct property *p)
{
    if (p) free(p->ranges);
    free(p);
}

static bool add_range(struct property *p, uint32_t first, uint32_t last)
{
    if (p->n && p->ranges[p->n - 1].last + 1 == first) {
        p->ranges[p->n - 1].last = last;
        return true;
    }
    if (p->n == p->cap) {
        const uint32_t cap = p->cap ? 2 * p->cap : 64;
        struct lang_range *moved = realloc(p->ranges, cap * sizeof *moved);
        if (!moved) return false;
        p->ranges = moved;
        p->cap = cap;
    }
    p->ranges[p->n++] = (struct lang_range){ first, last };
    return true;
}

/* Adds those of the characters first..first + BLOCK - 1 that match. A block's text fits a cache. */
enum { BLOCK = 0x800 };
static bool add_block(struct property *p, uint32_t first, const pcre2_code *code, pcre2_match_data *match)
{
    char text[4 * BLOCK];
    size_t n = 0;
    for (uint32_t c = first; c < first + BLOCK; c++) n += utf8_encode(c, text + n);
    for (size_t at = 0; pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0;) {
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        const unsigned char *begin = (unsigned char *)text + found[0], *end = (unsigned char *)text + found[1] - 1;
        while ((*end & 0xC0) == 0x80) end--;
        at = found[1];
        if (!add_range(p, utf8_decode(begin, utf8_sequence(begin, n - found[0])),
                       utf8_decode(end, at - (size_t)((char *)end - text))))
            return false;
    }
    return true;
}

/* NULL: no memory. */
static struct property *make_property(const char *key, pcre2_code *code)
{
    struct property *p = calloc(1, sizeof *p);
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    bool made = p && match;
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where there is none, PCRE2 interprets */
    for (uint32_t c = 0; c <= LANG_MAX_CHAR && made; c += BLOCK)
        if (c < 0xD800 || c > 0xDFFF) made = add_block(p, c, code, match);
    pcre2_match_data_free(match);
    if (made) memcpy(p->key, key, LANG_MAX_NAME);
    if (made) return p;
    close_property(p);
    return NULL;
}

/* The set of what `code` matches. PCRE2 does not look at case and underscores in names, nor does the key. */
static lang_id set_of(struct langs *x, const char *name, pcre2_code *code)
{
    char key[LANG_MAX_NAME] = { 0 };
    for (size_t i = 0, n = 0; name[i]; i++)
        if (name[i] != '_') key[n++] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    (void)pthread_mutex_lock(&lock);
    struct property *p = kept;
    while (p && strcmp(p->key, key) != 0) p = p->next;
    if (!p) {
        p = make_property(key, code);
        if (p) p->next = kept;
        if (p) kept = p;
    }
    (void)pthread_mutex_unlock(&lock);
    return p ? lang_chars(x, p->ranges, p->n) : langs_fail(x, WK_NO_MEMORY, "no memory for a Unicode property");
}

lang_id classes_property(struct langs *x, const char *name, size_t n)
{
    char short_form[LANG_MAX_NAME], pattern[LANG_MAX_NAME + 16];
    int code_error;
    PCRE2_SIZE offset;
    if (n == 3 && !memcmp(name, "Any", 3)) return LANG_ANY_CHAR;
    if (!pcre_name(name, n, short_form)) return LANG_NOTHING;
    for (uint32_t i = 0; i < x->n_properties; i++)
        if (!strcmp(x->properties[i].name, short_form)) return x->properties[i].set;
    if (x->n_properties == LANG_MAX_PROPERTIES)
        return langs_fail(x, WK_UNSUPPORTED, "more than 8 different Unicode properties");
    (void)snprintf(pattern, sizeof pattern, "\\p{%s}+", short_form);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code_error, &offset, NULL);
    if (!code) return LANG_NOTHING;
    const lang_id id = set_of(x, short_form, code);
    pcre2_code_free(code);
    struct unicode_property *known = &x->properties[x->n_properties++];
    memcpy(known->name, short_form, sizeof known->name);
    known->set = id;
    return id;
}
