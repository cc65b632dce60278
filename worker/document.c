/* document.c: worker-document, run by the build: writes the man page and the completions from the tables that the
 * parser uses.
 *     worker-document man | bash | zsh */
#include <stdio.h>
#include <string.h>

#include "errors.h"
#include "options.h"

/* ---- worker.1 ------------------------------------------------------------------------------------------ */

/* Text for troff: a hyphen that one may type, no request at a line's start, no escapes. */
static void roff(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '-')
            (void)fputs("\\-", stdout);
        else if (*p == '\\')
            (void)fputs("\\e", stdout);
        else if ((*p == '.' || *p == '\'') && p == text)
            (void)printf("\\&%c", *p);
        else
            (void)putchar(*p);
    }
}

static void man_option(const struct option_def *def)
{
    char limits[96], variable[64];
    (void)puts(".TP");
    (void)fputs(".B ", stdout);
    if (def->letter) (void)printf("\\-%c, ", def->letter);
    (void)fputs("\\-\\-", stdout);
    roff(def->name);
    if (def->argument) (void)printf(" \\fI%s\\fR", def->argument);
    (void)putchar('\n');
    roff(def->help);
    option_limits(def, limits, sizeof limits);
    if (limits[0]) {
        (void)fputs("; ", stdout);
        roff(limits);
    }
    (void)fputs(".\n", stdout);
    if (!def->environment) return;
    option_environment(def, variable);
    (void)printf("Environment: \\fB%s\\fR.\n", variable);
}

static void man_command(enum command c)
{
    const struct command_def *def = &command_table[c];
    (void)printf(".SS worker %s \\fR[\\fIOPTION\\fR...]%s\\fI%s\\fR\n", def->name, def->operands[0] ? " " : "",
                 def->operands);
    roff(def->description);
    (void)putchar('\n');
    for (int i = 0; i < OPT_COUNT; i++)
        if (option_of(&option_table[i], c) && i != OPT_HELP) man_option(&option_table[i]);
}

static void man(void)
{
    (void)puts(".TH WORKER 1 \"\" \"worker " WORKER_VERSION
               "\" \"User Commands\"\n.SH NAME\nworker \\- runs a language model from a GGUF file\n.SH SYNOPSIS\n"
               ".B worker\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.br\n.B worker\n\\-\\-version\n.SH DESCRIPTION\n"
               "worker loads one model, whose weights stay as they are encoded in the file, and runs it. Architectures "
               "and encodings come from plugins.\n"
               "Results go to standard output, everything else to standard error.\n"
               "A value comes from the option, else from the environment, else it is the default; it is checked "
               "wherever it came from.\n.SH COMMANDS");
    for (int c = 0; c < CMD_COUNT; c++) man_command((enum command)c);
    (void)puts(".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 1\nFailed; the last line on standard error carries a "
               "code.\n.TP\n.B 2\nWrong usage.\n.TP\n.B 70\n"
               "The device was lost; start the process again.\n.TP\n.B 130\nStopped by an interrupt.\n.SH ERROR CODES");
    for (int i = 0; i < CODE_COUNT; i++) {
        (void)printf(".TP\n.B %s\n", error_table[i].name);
        roff(error_table[i].meaning);
        (void)printf(". Exit status %d.\n", error_table[i].status);
    }
    (void)puts(".SH FILES\n.TP\n.I model.mcd.json\nBeside \\fImodel.gguf\\fR: a Model Capability Descriptor that may "
               "name the model and must not contradict its file.\n"
               ".SH ENVIRONMENT\n.TP\n.B WORKER_PLUGIN_PATH\nFolders with plugins, separated by colons. The options "
               "above name their own variables.\n"
               ".SH EXAMPLES\n.nf\nworker run \\-\\-prompt \"Write a haiku about rain\"\nworker run \\-m model.gguf "
               "\\-\\-raw \\-\\-temperature 0 < story.txt\n"
               "worker plan model.gguf \\-\\-context 8192 \\-\\-json\nworker quantize model\\-f16.gguf "
               "model\\-q4_k_m.gguf Q4_K_M\n.fi");
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
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "man") == 0)
        man();
    else if (strcmp(what, "bash") == 0)
        bash();
    else if (strcmp(what, "zsh") == 0)
        zsh();
    else {
        (void)fputs("usage: worker-document man | bash | zsh\n", stderr);
        return EXIT_USAGE;
    }
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}
