/* option_values.c: names and values of options: what a text means as a value of an option, whether it is one, and which
 * name a mistyped one is nearest to. Command line, environment and configuration file take their values through it. */
#include "option_values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void option_environment(const struct option_def *def, char out[64])
{
    int n = snprintf(out, 64, "WORKER_%s", def->name);
    for (int i = 0; i < n && i < 63; i++) out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

void option_file_key(enum option_id id, char out[64])
{
    for (const struct option_key *k = option_keys; k->key; k++) {
        if (k->option != id) continue;
        (void)snprintf(out, 64, "%s", k->key);
        return;
    }
    (void)snprintf(out, 64, "%s", option_table[id].name);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : *c;
}

void option_limits(const struct option_def *def, char *out, size_t cap)
{
    char range[64] = "", preset[64] = "";
    if (def->type == OPTION_INTEGER && def->max < 0x1p64)
        (void)snprintf(range, sizeof range, "%.0f to %.0f", def->min, def->max);
    if (def->type == OPTION_REAL) (void)snprintf(range, sizeof range, "%g to %g", def->min, def->max);
    if (def->type == OPTION_LIST) (void)snprintf(range, sizeof range, "at most %.0f", def->max);
    if (def->preset) (void)snprintf(preset, sizeof preset, "%sdefault %s", range[0] ? ", " : "", def->preset);
    (void)snprintf(out, cap, "%s%s", range, preset);
}

uint32_t option_list(const struct options *o, enum option_id id, const char **out, uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_list && n < cap; i++)
        if (o->list[i].option == id) out[n++] = o->list[i].text;
    return n;
}

/* ---- names that were nearly right ---------------------------------------------------------------------- */

/* Edit distance (Levenshtein 1965) of words of up to 31 bytes; longer ones are far from everything. */
static unsigned distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    unsigned row[32];
    if (na > 31 || nb > 31) return 99;
    for (size_t j = 0; j <= nb; j++) row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned replace = diagonal + (a[i - 1] != b[j - 1]);
            unsigned shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            diagonal = row[j];
            row[j] = replace < shorter + 1 ? replace : shorter + 1;
        }
    }
    return row[nb];
}

static const char *nearer(const char *name, const char *candidate, const char *best)
{
    unsigned d = distance(name, candidate);
    if (d > 1 + strlen(name) / 3) return best;
    return best && distance(name, best) <= d ? best : candidate;
}

const char *command_nearest(const char *name)
{
    const char *best = NULL;
    for (int c = 0; c < CMD_COUNT; c++) best = nearer(name, command_table[c].name, best);
    return best;
}

const char *option_nearest(enum command c, const char *name)
{
    const char *best = NULL;
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_of(&option_table[i], c)) best = nearer(name, option_table[i].name, best);
    return best;
}

const struct option_def *option_of_near_variable(const char *name)
{
    char as_option[32];
    const char *best = NULL;
    const struct option_def *def = NULL;
    (void)snprintf(as_option, sizeof as_option, "%s", name);
    for (char *c = as_option; *c; c++) *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    for (int i = 0; i < OPT_COUNT; i++) {
        if (!option_table[i].environment) continue;
        const char *now = nearer(as_option, option_table[i].name, best);
        if (now != best) def = &option_table[i];
        best = now;
    }
    return def;
}

/* ---- values -------------------------------------------------------------------------------------------- */

bool option_usage(enum command c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "worker %s: ", command_table[c].name);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "; see worker %s --help\n", command_table[c].name);
    va_end(args);
    return false;
}

static bool word_of(const char *words, const char *text)
{
    size_t n = strlen(text);
    for (const char *w = words; w && n; w = strchr(w, '|')) {
        if (*w == '|') w++;
        if (strncmp(w, text, n) == 0 && (w[n] == '|' || w[n] == '\0')) return true;
    }
    return false;
}

static bool parse_integer(const struct option_def *def, const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)text[0])) return false;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || (double)value < def->min || (def->max < 0x1p64 && (double)value > def->max)) return false;
    *out = value;
    return true;
}

static bool parse_real(const struct option_def *def, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < def->min || value > def->max) return false;
    *out = value;
    return true;
}

static bool parse_flag(const char *text, uint64_t *out)
{
    bool on = strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0;
    bool off = strcmp(text, "0") == 0 || strcasecmp(text, "false") == 0 || strcasecmp(text, "no") == 0;
    *out = on;
    return on || off;
}

static bool parse_switch(const char *text, uint64_t *out)
{
    const bool on = strcasecmp(text, "on") == 0, off = strcasecmp(text, "off") == 0;
    if (!on && !off) return parse_flag(text, out);
    *out = on;
    return true;
}

/* Text as a value of the option; false: it is none. */
static bool parse_value(const struct option_def *def, const char *text, struct option_value *v)
{
    switch (def->type) {
    case OPTION_FLAG: return parse_flag(text, &v->integer);
    case OPTION_SWITCH: return parse_switch(text, &v->integer);
    case OPTION_INTEGER: return parse_integer(def, text, &v->integer);
    case OPTION_REAL: return parse_real(def, text, &v->real);
    case OPTION_CHOICE: return word_of(def->argument, text);
    case OPTION_TEXT: return (double)strlen(text) >= def->min && (double)strlen(text) <= def->max;
    case OPTION_LIST: return true; /* how many there may be is option_add's */
    }
    return false;
}

static void describe_value(const struct option_def *def, char *out, size_t cap)
{
    char limits[96];
    option_limits(def, limits, sizeof limits);
    switch (def->type) {
    case OPTION_FLAG: (void)snprintf(out, cap, "1 or 0"); break;
    case OPTION_SWITCH: (void)snprintf(out, cap, "on or off"); break;
    case OPTION_INTEGER:
        (void)snprintf(out, cap, "a whole number%s%s", limits[0] ? ", " : " below 2^64", limits);
        break;
    case OPTION_REAL: (void)snprintf(out, cap, "a number, %s", limits); break;
    case OPTION_CHOICE: (void)snprintf(out, cap, "%s", def->argument); break;
    case OPTION_TEXT: (void)snprintf(out, cap, "%.0f to %.0f bytes", def->min, def->max); break;
    case OPTION_LIST: (void)snprintf(out, cap, "text"); break;
    }
}

bool option_is_secret(enum option_id id)
{
    return id == OPT_POLICY_PASSPHRASE || id == OPT_API_KEY || id == OPT_AUDIT_KEY;
}

static bool refuse_value(enum command c, enum option_id id, const char *text, const char *where)
{
    char expected[128];
    describe_value(&option_table[id], expected, sizeof expected);
    if (option_is_secret(id)) return option_usage(c, "%s: expected %s, got %zu", where, expected, strlen(text));
    return option_usage(c, "%s: expected %s, got \"%.80s\"", where, expected, text);
}

bool option_store(struct options *o, enum option_id id, const char *text, const char *where)
{
    if (!parse_value(&option_table[id], text, &o->value[id])) return refuse_value(o->command, id, text, where);
    o->value[id].text = text;
    return true;
}

bool option_check(enum command c, enum option_id id, const char *text, const char *where)
{
    struct option_value ignored;
    return parse_value(&option_table[id], text, &ignored) || refuse_value(c, id, text, where);
}

bool option_add(struct options *o, enum option_id id, const char *text, const char *where)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_list; i++) n += o->list[i].option == id;
    if ((double)n >= option_table[id].max)
        return option_usage(o->command, "%s: given more than %.0f times", where, option_table[id].max);
    struct option_entry *longer = realloc(o->list, (o->n_list + 1) * sizeof *longer);
    if (!longer) return option_usage(o->command, "out of memory");
    o->list = longer;
    o->list[o->n_list++] = (struct option_entry){ id, text };
    return true;
}

bool option_from_file(struct options *o, enum option_id id, const char *text, const char *where)
{
    if (o->value[id].given) return true; /* by flag or environment */
    o->value[id].filed = true;
    return option_table[id].type == OPTION_LIST ? option_add(o, id, text, where) : option_store(o, id, text, where);
}
