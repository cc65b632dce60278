/* prompt.c: see prompt.h. */
#include "prompt.h"

#include <string.h>
#include <unistd.h>

#include "errors.h"

/* run's --prompt is complete's operand. */
static const char *given(const struct options *o)
{
    return o->n_operands ? o->operands[0] : option_text(o, OPT_PROMPT);
}
static const char *name(const struct options *o) { return o->command == CMD_COMPLETE ? "PROMPT" : "--prompt"; }

int prompt_read(const struct options *o, struct text *out)
{
    const char *prompt = given(o), *file = option_text(o, OPT_FILE), *command = command_table[o->command].name;
    if (prompt && file) return fail_usage(command, "%s and --file exclude each other", name(o));
    if (!prompt && !file && isatty(STDIN_FILENO))
        return fail_usage(command, "no prompt: give %s%s, --file FILE or text on standard input", name(o),
                          o->command == CMD_COMPLETE ? "" : " TEXT");
    return text_read(prompt, prompt || file ? file : "-", out);
}

int prompt_check_form(const struct options *o)
{
    const char *schema = option_text(o, OPT_JSON_SCHEMA), *grammar = option_text(o, OPT_GRAMMAR),
               *command = command_table[o->command].name;
    if (!!schema + !!grammar + !!option_text(o, OPT_REGEX) > 1)
        return fail_usage(command, "--json-schema, --grammar and --regex exclude each other");
    const char *from = schema ? schema : grammar;
    if (from && strcmp(from, "-") == 0 && !given(o) && !option_text(o, OPT_FILE))
        return fail_usage(command, "--%s -: standard input is the prompt already; give %s or --file",
                          schema ? "json-schema" : "grammar", name(o));
    return EXIT_DONE;
}
