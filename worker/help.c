/* help.c: what `worker --help` and `worker COMMAND --help` print, from the tables. */
#include "options.h"

#include <string.h>

enum { HELP_INDENT = 30, HELP_WIDTH = 100 };

/* Prints text wrapped at HELP_WIDTH; the cursor stands in column `column`, further lines begin in column `indent`. */
static void wrap(FILE *out, const char *text, size_t column, size_t indent)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column + n > HELP_WIDTH && column > indent) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        }
        (void)fprintf(out, "%.*s", (int)n, text);
        column += n;
        text += n;
        if (*text == ' ') {
            text++;
            if (column + 1 + strcspn(text, " ") <= HELP_WIDTH) {
                (void)fputc(' ', out);
                column++;
            } else {
                column = HELP_WIDTH + 1; /* the next word begins a line */
            }
        }
    }
    (void)fputc('\n', out);
}

static void help_option(const struct option_def *def, FILE *out)
{
    char head[128], text[512], limits[96], variable[64] = "";
    int n = def->letter ? snprintf(head, sizeof head, "  -%c, --%s", def->letter, def->name)
                        : snprintf(head, sizeof head, "      --%s", def->name);
    if (def->argument) (void)snprintf(head + n, sizeof head - (size_t)n, " %s", def->argument);
    option_limits(def, limits, sizeof limits);
    if (def->environment) option_environment(def, variable);
    bool notes = limits[0] || variable[0];
    (void)snprintf(text, sizeof text, "%s%s%s%s%s%s", def->help, notes ? " (" : "", limits,
                   limits[0] && variable[0] ? "; " : "", variable, notes ? ")" : "");
    (void)fprintf(out, "%-*s", HELP_INDENT, head);
    if (strlen(head) >= HELP_INDENT) (void)fprintf(out, "\n%*s", HELP_INDENT, "");
    wrap(out, text, HELP_INDENT, HELP_INDENT);
}

void help_command(enum command c, FILE *out)
{
    const struct command_def *def = &command_table[c];
    char usage[512];
    (void)fprintf(out, "worker %s: %s\n\n", def->name, def->summary);
    (void)snprintf(usage, sizeof usage, "usage: worker %s [OPTION...]%s%s", def->name, def->operands[0] ? " " : "",
                   def->operands);
    wrap(out, usage, 0, HELP_INDENT);
    (void)fputc('\n', out);
    wrap(out, def->description, 0, 0);
    (void)fputs("\noptions:\n", out);
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_of(&option_table[i], c)) help_option(&option_table[i], out);
}

void help_overview(FILE *out)
{
    (void)fputs("worker: runs a language model from a GGUF file\n\nusage: worker COMMAND [OPTION...]\n       worker "
                "--version\n\ncommands:\n",
                out);
    for (int c = 0; c < CMD_COUNT; c++)
        (void)fprintf(out, "  %-14s%s\n", command_table[c].name, command_table[c].summary);
    (void)fputs(
        "\nworker help COMMAND explains one. Results go to standard output, everything else to standard error.\n"
        "Exit status: 0 done, 1 failed, 2 wrong usage, 70 device lost, 130 stopped by Ctrl-C.\n",
        out);
}
