/* document.c: worker-document, run by the build: writes the man pages and the completions from the tables that the
 * parser uses.
 *     worker-document man FOLDER      worker.1, and worker-COMMAND.1 of each command, into FOLDER
 *     worker-document bash | zsh      a completion, to standard output */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "errors.h"
#include "options.h"

/* ---- man pages ----------------------------------------------------------------------------------------- */

enum { MAN_WIDTH = 72 };

/* A page that is being written. Its text is wrapped, since lines of more than 80 bytes are poor style in a page. */
struct page {
    FILE *out;
    size_t column; /* bytes of the line so far */
};

/* For troff: a hyphen that one may type, no request at a line's start, no escapes. */
static void man_word(struct page *p, const char *word, size_t n)
{
    if (p->column == 0 && n && (word[0] == '.' || word[0] == '\'')) (void)fputs("\\&", p->out);
    for (size_t i = 0; i < n; i++) {
        if (word[i] == '-')
            (void)fputs("\\-", p->out);
        else if (word[i] == '\\')
            (void)fputs("\\e", p->out);
        else
            (void)fputc(word[i], p->out);
    }
    p->column += n;
}

/* Ends the line of text, if there is one. */
static void man_end(struct page *p)
{
    if (p->column) (void)fputc('\n', p->out);
    p->column = 0;
}

/* Words, behind those that are there; where the line is full, on the next one. */
static void man_text(struct page *p, const char *text)
{
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        const size_t n = strcspn(text, " ");
        if (p->column + 1 + n > MAN_WIDTH)
            man_end(p);
        else if (p->column)
            p->column += fputc(' ', p->out) == ' ';
        man_word(p, text, n);
        text += n;
    }
}

/* Text as lines of their own. */
static void man_paragraph(struct page *p, const char *text)
{
    man_text(p, text);
    man_end(p);
}

static void man_option(struct page *p, const struct option_def *def)
{
    char limits[96], variable[64], text[640];
    (void)fputs(".TP\n.B ", p->out);
    if (def->letter) (void)fprintf(p->out, "\\-%c, ", def->letter);
    man_word(p, "--", 2);
    man_word(p, def->name, strlen(def->name));
    if (def->argument) (void)fprintf(p->out, " \\fI%s\\fR", def->argument);
    man_end(p);
    option_limits(def, limits, sizeof limits);
    (void)snprintf(text, sizeof text, "%s%s%s.", def->help, limits[0] ? "; " : "", limits);
    man_paragraph(p, text);
    if (!def->environment) return;
    option_environment(def, variable);
    (void)fprintf(p->out, "Environment: \\fB%s\\fR.\n", variable);
}

/* Begins a page: NAME in capitals, an empty one for the program; words are not broken, since one copies them. */
static void man_title(struct page *p, const char *name)
{
    (void)fputs(".TH WORKER", p->out);
    if (*name) (void)fputs("\\-", p->out);
    for (; *name; name++) (void)fputc(toupper((unsigned char)*name), p->out);
    (void)fputs(" 1 " WORKER_DATE " \"worker " WORKER_VERSION "\" \"User Commands\"\n.nh\n.ad l\n", p->out);
}

/* Lists other pages of section 1: worker, or all commands but one. */
static void man_see_also(struct page *p, enum command but)
{
    (void)fputs(".SH SEE ALSO\n", p->out);
    if (but != CMD_COUNT) (void)fputs(".BR worker (1),\n", p->out);
    const char *gap = "";
    for (int c = 0; c < CMD_COUNT; c++) {
        if (c == (int)but) continue;
        (void)fprintf(p->out, "%s.BR worker\\-%s (1)", gap, command_table[c].name);
        gap = ",\n";
    }
    (void)fputc('\n', p->out);
}

static void man_exit_status(struct page *p)
{
    (void)fputs(
        ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nFailed; the last line on standard error carries a code.\n"
        ".TP\n.B 2\nWrong usage.\n.TP\n.B 70\nThe device was lost; start the process again.\n.TP\n.B 130\n"
        "Stopped by an interrupt.\n",
        p->out);
}

static void man_command(struct page *p, enum command c)
{
    const struct command_def *def = &command_table[c];
    man_title(p, def->name);
    p->column = (size_t)fprintf(p->out, ".SH NAME\nworker\\-%s \\-", def->name);
    man_paragraph(p, def->summary);
    (void)fprintf(p->out, ".SH SYNOPSIS\n.B worker %s\n[\\fIOPTION\\fR...]\n", def->name);
    man_paragraph(p, def->operands);
    (void)fputs(".SH DESCRIPTION\n", p->out);
    man_paragraph(p, def->description);
    (void)fputs(".SH OPTIONS\n", p->out);
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_of(&option_table[i], c)) man_option(p, &option_table[i]);
    man_exit_status(p);
    man_see_also(p, c);
}

static void man_overview(struct page *p)
{
    man_title(p, "");
    (void)fputs(
        ".SH NAME\nworker \\- runs a language model from a GGUF file\n.SH SYNOPSIS\n"
        ".B worker\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.br\n.B worker\n\\-\\-version\n.SH DESCRIPTION\n"
        "worker loads one model, whose weights stay as they are encoded in the file,\nand runs it. "
        "Architectures and encodings come from plugins.\n"
        "Results go to standard output, everything else to standard error.\n.PP\n"
        "A value comes from the option, else from the environment, else from the file of\n\\fB\\-\\-config\\fR, "
        "else it is the default; it is checked wherever it came from.\n.SH COMMANDS\n"
        "Each has a page of its own, with its options.\n",
        p->out);
    for (int c = 0; c < CMD_COUNT; c++) {
        (void)fprintf(p->out, ".TP\n.BR worker\\-%s (1)\n", command_table[c].name);
        man_paragraph(p, command_table[c].summary);
    }
    man_exit_status(p);
    (void)fputs(".SH ERROR CODES\n", p->out);
    for (int i = 0; i < CODE_COUNT; i++) {
        char text[512];
        (void)fprintf(p->out, ".TP\n.B %s\n", error_table[i].name);
        (void)snprintf(text, sizeof text, "%s. Exit status %d.", error_table[i].meaning, error_table[i].status);
        man_paragraph(p, text);
    }
    (void)fputs(".SH FILES\n.TP\n.I model.mcd.json\nBeside \\fImodel.gguf\\fR: a Model Capability Descriptor that may\n"
                "name the model and must not contradict its file.\n"
                ".SH ENVIRONMENT\n.TP\n.B WORKER_PLUGIN_PATH\nFolders with plugins, separated by colons. The options "
                "name their own\nvariables.\n"
                ".SH EXAMPLES\n.nf\nworker run \\-\\-prompt \"Write a haiku about rain\"\nworker run \\-m model.gguf "
                "\\-\\-raw \\-\\-temperature 0 < story.txt\n"
                "worker plan model.gguf \\-\\-context 8192 \\-\\-json\nworker quantize model\\-f16.gguf "
                "model\\-q4_k_m.gguf Q4_K_M\n.fi\n",
                p->out);
    man_see_also(p, CMD_COUNT);
}

/* Writes the page of a command, or with CMD_COUNT the program's. */
static bool man_page(const char *folder, enum command c)
{
    char path[4096];
    const bool whole = c == CMD_COUNT;
    const int n =
        snprintf(path, sizeof path, "%s/worker%s%s.1", folder, whole ? "" : "-", whole ? "" : command_table[c].name);
    struct page p = { n > 0 && (size_t)n < sizeof path ? fopen(path, "w") : NULL, 0 };
    if (!p.out) {
        (void)fprintf(stderr, "worker-document: %s/worker.1 and its like cannot be written\n", folder);
        return false;
    }
    if (whole)
        man_overview(&p);
    else
        man_command(&p, c);
    const bool written = !ferror(p.out);
    if (fclose(p.out) == 0 && written) return true;
    (void)fprintf(stderr, "worker-document: %s was not written whole\n", path);
    return false;
}

static bool man(const char *folder)
{
    for (int c = 0; c <= CMD_COUNT; c++)
        if (!man_page(folder, (enum command)c)) return false;
    return true;
}

/* ---- bash ---------------------------------------------------------------------------------------------- */

static bool takes_path(const struct option_def *def)
{
    return def->argument && (strcmp(def->argument, "FILE") == 0 || strcmp(def->argument, "OUT") == 0 ||
                             strcmp(def->argument, "DIR") == 0);
}

static bool has_words(const struct option_def *def) { return def->type == OPTION_CHOICE || def->type == OPTION_SWITCH; }

static void bash_words(const char *alternatives)
{
    for (const char *p = alternatives; *p; p++) (void)putchar(*p == '|' ? ' ' : *p);
}

static void bash(void)
{
    (void)puts("# bash completion for worker; made by the build from the table of options\n_worker()\n{\n"
               "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} "
               "options=\"\" commands=\"\"\n    COMPREPLY=()");
    (void)fputs("    commands=\"", stdout);
    for (int c = 0; c < CMD_COUNT; c++) (void)printf("%s%s", c ? " " : "", command_table[c].name);
    (void)puts("\"\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        COMPREPLY=($(compgen -W \"$commands --help "
               "--version\" -- \"$cur\"))\n        return\n    fi\n    case $prev in");
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_def *def = &option_table[i];
        if (!has_words(def) && !takes_path(def)) continue;
        (void)printf("    --%s) ", def->name);
        if (has_words(def)) {
            (void)fputs("COMPREPLY=($(compgen -W \"", stdout);
            bash_words(def->argument);
            (void)puts("\" -- \"$cur\")); return ;;");
        } else {
            (void)printf("COMPREPLY=($(compgen -%c -- \"$cur\")); return ;;\n",
                         strcmp(def->argument, "DIR") == 0 ? 'd' : 'f');
        }
    }
    (void)puts("    esac\n    case $command in");
    for (int c = 0; c < CMD_COUNT; c++) {
        (void)printf("    %s) options=\"", command_table[c].name);
        const char *gap = "";
        for (int i = 0; i < OPT_COUNT; i++) {
            if (!option_of(&option_table[i], (enum command)c)) continue;
            (void)printf("%s--%s", gap, option_table[i].name);
            gap = " ";
        }
        (void)puts("\" ;;");
    }
    (void)puts("    esac\n    case $command:$cur in\n    *:-*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
               "    help:*) COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\")) ;;\n    plugin:*) COMPREPLY=($(compgen "
               "-f -W \"list info check new\" -- \"$cur\")) ;;\n"
               "    audit:*) COMPREPLY=($(compgen -f -W \"verify\" -- \"$cur\")) ;;\n"
               "    debug:*) COMPREPLY=($(compgen -W \"tap tape\" -- \"$cur\")) ;;\n    *) COMPREPLY=($(compgen -f -- "
               "\"$cur\")) ;;\n    esac\n}\n"
               "complete -o filenames -F _worker worker");
}

/* ---- zsh ----------------------------------------------------------------------------------------------- */

/* Text inside a single-quoted _arguments specification. */
static void zsh_text(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            (void)fputs("'\\''", stdout);
        else if (*p == ':' || *p == '[' || *p == ']')
            (void)printf("\\%c", *p);
        else
            (void)putchar(*p);
    }
}

static void zsh_option(const struct option_def *def)
{
    (void)printf(" \\\n            '%s--%s%s[", def->type == OPTION_LIST ? "*" : "", def->name,
                 def->argument ? "=" : "");
    zsh_text(def->help);
    (void)putchar(']');
    if (def->argument) {
        (void)fputs(":", stdout);
        if (has_words(def)) {
            (void)printf("%s:(", def->name);
            bash_words(def->argument);
            (void)putchar(')');
        } else {
            zsh_text(def->argument);
            (void)fputs(!takes_path(def)                    ? ":"
                        : strcmp(def->argument, "DIR") == 0 ? ":_directories"
                                                            : ":_files",
                        stdout);
        }
    }
    (void)putchar('\'');
}

static void zsh(void)
{
    (void)puts("#compdef worker\n# zsh completion for worker; made by the build from the table of options\n_worker() "
               "{\n    local -a commands\n    commands=(");
    for (int c = 0; c < CMD_COUNT; c++) {
        (void)printf("        '%s:", command_table[c].name);
        zsh_text(command_table[c].summary);
        (void)puts("'");
    }
    (void)puts("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n   "
               " local command=$words[2]\n"
               "    shift words\n    (( CURRENT-- ))\n    case $command in");
    for (int c = 0; c < CMD_COUNT; c++) {
        (void)printf("        %s) _arguments", command_table[c].name);
        for (int i = 0; i < OPT_COUNT; i++)
            if (option_of(&option_table[i], (enum command)c)) zsh_option(&option_table[i]);
        if (c == CMD_HELP)
            (void)puts(" \\\n            '1:command:{_describe command commands}' ;;");
        else
            (void)puts(" \\\n            '*:file:_files' ;;");
    }
    (void)puts("    esac\n}\n_worker \"$@\"");
}

int main(int argc, char **argv)
{
    const char *what = argc >= 2 ? argv[1] : "";
    if (argc == 3 && strcmp(what, "man") == 0) return man(argv[2]) ? EXIT_DONE : EXIT_FAILED;
    if (argc == 2 && strcmp(what, "bash") == 0)
        bash();
    else if (argc == 2 && strcmp(what, "zsh") == 0)
        zsh();
    else {
        (void)fputs("usage: worker-document man FOLDER | bash | zsh\n", stderr);
        return EXIT_USAGE;
    }
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}
