/* options.c: reads a command line: defaults, environment, flags, then a configuration file, each value by the one check
 * of option_values.c. */
#include "option_values.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_FIRST = 256 /* getopt_long's val of option i is LONG_FIRST + i */ };

enum command command_named(const char *name)
{
    int c = 0;
    while (c < CMD_COUNT && strcmp(command_table[c].name, name) != 0) c++;
    return (enum command)c;
}

static bool defaults_and_environment(struct options *o)
{
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_def *def = &option_table[i];
        char name[64];
        if (!option_of(def, o->command)) continue;
        if (def->preset && !option_store(o, (enum option_id)i, def->preset, "default")) return false;
        if (!def->environment) continue;
        option_environment(def, name);
        const char *text = getenv(name);
        if (!text || environment_is_link(name, text)) continue;
        if (!option_store(o, (enum option_id)i, text, name)) return false;
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
    if (answer == ':') return option_usage(c, "%s: needs a value", word);
    if (optopt >= LONG_FIRST) return option_usage(c, "%.80s: takes no value", word);
    if (optopt) return option_usage(c, "-%c: unknown option", optopt);
    char name[32];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *nearest = option_nearest(c, name);
    return option_usage(c, "%.80s: unknown or ambiguous option%s%s%s", word, nearest ? "; did you mean --" : "",
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
        if (def->type == OPTION_LIST ? !option_add(o, id, optarg, where)
                                     : !option_store(o, id, def->argument ? optarg : "1", where))
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
        ok = option_usage(out->command, "expected %s, got %d operand%s%s",
                          def->operands[0] ? def->operands : "no operands", out->n_operands,
                          out->n_operands == 1 ? "" : "s", def->operands[0] ? "" : operand_hint(out));
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
