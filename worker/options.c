/* options.c: parses the command line by the tables of option_table.c. Default, environment and flag pass through the
 * same check. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LONG_FIRST = 256 /* getopt_long's val of option i is LONG_FIRST + i */ };

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

static const char *option_nearest(enum command c, const char *name)
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

enum command command_named(const char *name)
{
    int c = 0;
    while (c < CMD_COUNT && strcmp(command_table[c].name, name) != 0) c++;
    return (enum command)c;
}

/* ---- values -------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool usage(enum command c, const char *format, ...)
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
    case OPTION_LIST: return true; /* how many there may be is add_to_list's */
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
    if (option_is_secret(id)) return usage(c, "%s: expected %s, got %zu", where, expected, strlen(text));
    return usage(c, "%s: expected %s, got \"%.80s\"", where, expected, text);
}

/* Checks text against the option's type and range and stores it; `where` ("--seed", "WORKER_SEED") is for the message.
 * Not of lists, which have neither default nor environment: add_to_list. */
static bool store(struct options *o, enum option_id id, const char *text, const char *where)
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

static bool add_to_list(struct options *o, enum option_id id, const char *text, const char *where)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_list; i++) n += o->list[i].option == id;
    if ((double)n >= option_table[id].max)
        return usage(o->command, "%s: given more than %.0f times", where, option_table[id].max);
    struct option_entry *longer = realloc(o->list, (o->n_list + 1) * sizeof *longer);
    if (!longer) return usage(o->command, "out of memory");
    o->list = longer;
    o->list[o->n_list++] = (struct option_entry){ id, text };
    return true;
}

bool option_from_file(struct options *o, enum option_id id, const char *text, const char *where)
{
    if (o->value[id].given) return true; /* by flag or environment */
    o->value[id].filed = true;
    return option_table[id].type == OPTION_LIST ? add_to_list(o, id, text, where) : store(o, id, text, where);
}

static bool defaults_and_environment(struct options *o)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_def *def = &option_table[i];
        char name[64];
        if (!option_of(def, o->command)) continue;
        if (def->preset && !store(o, (enum option_id)i, def->preset, "default")) return false;
        if (!def->environment) continue;
        option_environment(def, name);
        const char *text = getenv(name);
        if (!text || environment_is_link(name, text)) continue;
        if (!store(o, (enum option_id)i, text, name)) return false;
        o->value[i].given = true;
    }
    return true;
}

/* ---- the command line ---------------------------------------------------------------------------------- */

struct getopt_tables {
    struct option longs[OPT_COUNT + 1];
    char shorts[2 * OPT_COUNT + 2];
};

static void make_getopt_tables(enum command c, struct getopt_tables *t)
{
    size_t n = 0, s = 0;
    memset(t, 0, sizeof *t);
    t->shorts[s++] = ':'; /* tell a missing argument from an unknown option */
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_def *def = &option_table[i];
        if (!option_of(def, c)) continue;
        t->longs[n++] =
            (struct option){ def->name, def->argument ? required_argument : no_argument, NULL, LONG_FIRST + i };
        if (!def->letter) continue;
        t->shorts[s++] = def->letter;
        if (def->argument) t->shorts[s++] = ':';
    }
}

static enum option_id option_of_letter(enum command c, int letter)
{
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_table[i].letter == letter && option_of(&option_table[i], c)) return (enum option_id)i;
    return OPT_COUNT;
}

/* getopt_long answered '?' or ':' about `word`; optopt is the letter or the long option's val, 0 for an unknown long
 * name. */
static bool complain(enum command c, int answer, const char *word)
{
    if (answer == ':') return usage(c, "%s: needs a value", word);
    if (optopt >= LONG_FIRST) return usage(c, "%.80s: takes no value", word);
    if (optopt) return usage(c, "-%c: unknown option", optopt);
    char name[32];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *nearest = option_nearest(c, name);
    return usage(c, "%.80s: unknown or ambiguous option%s%s%s", word, nearest ? "; did you mean --" : "",
                 nearest ? nearest : "", nearest ? "?" : "");
}

static bool parse_arguments(struct options *o, int argc, char **argv)
{
    struct getopt_tables tables;
    make_getopt_tables(o->command, &tables);
    opterr = 0;
    for (;;) {
        int got = getopt_long(argc, argv, tables.shorts, tables.longs, NULL);
        if (got == -1) break;
        if (got == '?' || got == ':') return complain(o->command, got, argv[optind - 1]);
        enum option_id id = got >= LONG_FIRST ? (enum option_id)(got - LONG_FIRST) : option_of_letter(o->command, got);
        const struct option_def *def = &option_table[id];
        char where[64];
        (void)snprintf(where, sizeof where, "--%s", def->name);
        if (def->type == OPTION_LIST ? !add_to_list(o, id, optarg, where)
                                     : !store(o, id, def->argument ? optarg : "1", where))
            return false;
        o->value[id].given = o->value[id].flag = true;
    }
    o->operands = argv + optind;
    o->n_operands = argc - optind;
    return true;
}

/* `worker --model ...` is `worker serve --model ...`: how a pool manager starts one. */
static enum command command_of(const char *word) { return word[0] == '-' && word[1] ? CMD_SERVE : command_named(word); }

static bool names_model(const char *word)
{
    const char *dot = strrchr(word, '.');
    return dot ? strcmp(dot, ".gguf") == 0 : strncmp(word, "embedded:", 9) == 0;
}

/* What was meant by a first word that is no command; the words of other programs among them. */
static const char *command_hint(const char *word)
{
    static const struct {
        const char *word, *command;
    } others[] = { { "version", "--version" }, { "ls", "list" },       { "ps", "status" },   { "show", "inspect" },
                   { "kill", "cancel" },       { "download", "pull" }, { "generate", "run" } };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(word, others[i].word) == 0) return others[i].command;
    return names_model(word) ? "run --model" : command_nearest(word);
}

/* Where the command takes none: the option that was meant, by what it looks like. */
static const char *operand_hint(const struct options *o)
{
    const bool model = option_of(&option_table[OPT_MODEL], o->command),
               prompt = option_of(&option_table[OPT_PROMPT], o->command),
               url = option_of(&option_table[OPT_URL], o->command);
    if (model && prompt && o->n_operands > 1) return "; did you mean --model and --prompt?";
    if (model && (!prompt || names_model(o->operands[0]))) return "; did you mean --model?";
    return prompt ? "; did you mean --prompt?" : url ? "; did you mean --url?" : "";
}

bool options_parse(int argc, char **argv, struct options *out)
{
    memset(out, 0, sizeof *out);
    const char *nearest = NULL;
    out->command = command_of(argv[1]);
    if (out->command == CMD_COUNT) {
        nearest = command_hint(argv[1]);
        (void)fprintf(stderr, "worker: %.80s: unknown command%s%s%s; see worker --help\n", argv[1],
                      nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
        return false;
    }
    const struct command_def *def = &command_table[out->command];
    const int named = argv[1][0] != '-';
    bool ok = defaults_and_environment(out) && parse_arguments(out, argc - named, argv + named);
    out->help = option_flag(out, OPT_HELP);
    if (ok && !out->help && option_text(out, OPT_CONFIG)) ok = config_read(out, option_text(out, OPT_CONFIG));
    if (ok && !out->help) ok = environment_check(out);
    if (ok && !out->help && (out->n_operands < def->min_operands || out->n_operands > def->max_operands))
        ok = usage(out->command, "expected %s, got %d operand%s%s", def->operands[0] ? def->operands : "no operands",
                   out->n_operands, out->n_operands == 1 ? "" : "s", def->operands[0] ? "" : operand_hint(out));
    if (!ok) options_free(out);
    return ok;
}

void options_free(struct options *o)
{
    for (uint32_t i = 0; i < o->n_kept; i++) free(o->kept[i]);
    free(o->kept);
    free(o->list);
    o->kept = NULL;
    o->list = NULL;
    o->n_kept = o->n_list = 0;
}
