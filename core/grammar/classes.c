/* classes.c: see classes.h. Unicode properties are PCRE2's: it is asked once which characters of all have one. */
#include "grammar/classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/lang_internal.h"
#include "tokenizer/utf8.h"

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

/* All characters as UTF-8, in order; the caller frees. */
static char *all_characters(size_t *n)
{
    char *all = malloc(4 * (size_t)(LANG_MAX_CHAR + 1));
    *n = 0;
    for (uint32_t c = 0; all && c <= LANG_MAX_CHAR; c++)
        if (c < 0xD800 || c > 0xDFFF) *n += utf8_encode(c, all + *n);
    return all;
}

/* The characters that have a property, found once for the process: there are some hundred properties. */
struct property {
    struct property *next;
    struct lang_range *ranges;
    size_t n;
    char name[LANG_MAX_NAME];
};

/* The runs of matching characters. False: no memory. */
static bool match_runs(const pcre2_code *code, pcre2_match_data *match, struct property *out)
{
    size_t n, cap = 0;
    char *all = all_characters(&n);
    bool held = all != NULL;
    for (size_t at = 0; held && pcre2_match(code, (PCRE2_SPTR)all, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0;) {
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        size_t last = found[1] - 1;
        while (((unsigned char)all[last] & 0xC0) == 0x80) last--;
        if (out->n == cap) {
            cap = cap ? 2 * cap : 64;
            struct lang_range *moved = realloc(out->ranges, cap * sizeof *moved);
            held = moved != NULL;
            if (!held) break;
            out->ranges = moved;
        }
        const unsigned char *first = (const unsigned char *)all + found[0];
        out->ranges[out->n++] = (struct lang_range){ utf8_decode(first, utf8_sequence(first, n - found[0])),
                                                     utf8_decode((const unsigned char *)all + last, found[1] - last) };
        at = found[1];
    }
    free(all);
    return held;
}

/* NULL: PCRE2 does not know it (*known false), or no memory. */
static struct property *find_characters(const char *name, bool *known)
{
    char pattern[LANG_MAX_NAME + 16];
    int code_error;
    PCRE2_SIZE offset;
    (void)snprintf(pattern, sizeof pattern, "\\p{%s}+", name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code_error, &offset, NULL);
    *known = code != NULL;
    if (!code) return NULL;
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* some times as fast, where it can be had */
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
    struct property *p = calloc(1, sizeof *p);
    if (!match || !p || !match_runs(code, match, p)) {
        if (p) free(p->ranges);
        free(p);
        p = NULL;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    if (p) (void)snprintf(p->name, sizeof p->name, "%s", name);
    return p;
}

/* Lives as long as the process. NULL: as find_characters has it. [any thread] */
static const struct property *property_of(const char *name, bool *known)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct property *all;
    *known = true;
    (void)pthread_mutex_lock(&lock);
    struct property *p = all;
    while (p && strcmp(p->name, name) != 0) p = p->next;
    if (!p && (p = find_characters(name, known))) {
        p->next = all;
        all = p;
    }
    (void)pthread_mutex_unlock(&lock);
    return p;
}

lang_id classes_property(struct langs *x, const char *name, size_t n)
{
    char short_form[LANG_MAX_NAME];
    bool known;
    if (n == 3 && !memcmp(name, "Any", 3)) return LANG_ANY_CHAR;
    if (!pcre_name(name, n, short_form)) return LANG_NOTHING;
    for (uint32_t i = 0; i < x->n_properties; i++)
        if (!strcmp(x->properties[i].name, short_form)) return x->properties[i].set;
    if (x->n_properties == LANG_MAX_PROPERTIES)
        return langs_fail(x, WK_UNSUPPORTED, "more than 8 different Unicode properties");
    const struct property *p = property_of(short_form, &known);
    if (!known) return LANG_NOTHING;
    if (!p) return langs_fail(x, WK_NO_MEMORY, "no memory for a Unicode property");
    struct unicode_property *mine = &x->properties[x->n_properties++];
    memcpy(mine->name, short_form, sizeof mine->name);
    return mine->set = lang_chars(x, p->ranges, p->n);
}
