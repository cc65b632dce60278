/* chat.c: `worker chat`: a conversation, line by line: what is typed goes to whoever answers, and lines that begin with
 * a slash are commands. Without a terminal it reads lines all the same, and shows answers and calls alone. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "commands.h"
#include "errors.h"
#include "line_input.h"
#include "setup.h"
#include "responder.h"
#include "text.h"
#include "tools/tools.h"

struct talk {
    const struct options *o;
    struct sampling *sampling;
    struct responder responder;
    struct dialog dialog;
    struct line_input *input;
    bool terminal;   /* standard input and output are one */
    json_t *pending; /* calls of the last answer whose results are wanted; borrowed from the dialog */
    size_t n_given;  /* results that were typed: the dialog's last messages */
    int status;      /* of the first thing that failed */
    bool over;
};

/* Of who types. */
static void note(const struct talk *t, const char *text)
{
    if (t->terminal) (void)printf("%s\n", text);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

/* *kept: something was said, and is part of the conversation now. */
static int keep_answer(struct talk *t, struct spoken *s, bool *kept)
{
    json_t *message = spoken_message(s);
    if (s->failed) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the answer");
    if (!message) return EXIT_DONE;
    json_t *calls = json_object_get(message, "tool_calls");
    const int result = dialog_answer(&t->dialog, message);
    *kept = !result;
    t->pending = result ? NULL : calls;
    t->n_given = 0;
    if (t->pending) note(t, "(type the result of each call; /clear begins anew)");
    return result;
}

/* Answers what was added last: a message, or the results of calls, which are taken back if nothing is said to them. */
static void answer(struct talk *t)
{
    struct spoken s;
    enum responder_end end = RESPONDER_STOP;
    bool kept = false;
    json_t *const asked = t->pending;
    const size_t added = asked ? t->n_given : 1;
    int result = sampling_seed(t->o, t->sampling);
    spoken_open(&s, isatty(STDOUT_FILENO));
    if (!result) result = t->responder.answer(t->responder.self, &t->dialog, &s, &end);
    spoken_end(&s, result || end != RESPONDER_STOP);
    if (!result) result = keep_answer(t, &s, &kept);
    spoken_close(&s);
    if (!kept) {
        dialog_take_back(&t->dialog, added);
        t->pending = asked;
        t->n_given = 0;
    }
    if (!t->status) t->status = result;
    if (!result && end == RESPONDER_LENGTH)
        LOG(LOG_WARN, "answer_cut", "the limit came before the answer's end: raise --max-tokens, or --context");
    if (!t->terminal && interrupted()) t->over = true;
    if (t->terminal) interrupts_forget();
    note(t, "");
}

/* What was typed: something new, or the result of a call. */
static void say(struct talk *t, const char *text)
{
    int result;
    if (t->pending) {
        const json_t *call = json_array_get(t->pending, t->n_given);
        result = dialog_result(&t->dialog, json_string_value(json_object_get(call, "id")), text);
        if (!result && ++t->n_given < json_array_size(t->pending)) return;
    } else {
        result = dialog_user(&t->dialog, text);
    }
    if (!result)
        answer(t);
    else if (!t->status)
        t->status = result;
}

/* ---- commands ------------------------------------------------------------------------------------------ */

/* Calls that wait for a result are forgotten with what they belong to. */
static void forget_pending(struct talk *t)
{
    t->pending = NULL;
    t->n_given = 0;
}

static int set_system(struct talk *t, const char *text)
{
    const int result = dialog_system(&t->dialog, text[0] ? text : NULL);
    if (!result) note(t, text[0] ? "(the system prompt is set)" : "(there is no system prompt now)");
    return result;
}

static void note_count(const struct talk *t, const json_t *list, const char *what)
{
    const size_t n = json_array_size(list);
    char text[64];
    (void)snprintf(text, sizeof text, "(%zu %s%s)", n, what, n == 1 ? "" : "s");
    note(t, text);
}

static int set_tools(struct talk *t, const char *path)
{
    const int result = dialog_tools(&t->dialog, path[0] ? path : NULL);
    if (!result) note_count(t, t->dialog.tools, "function");
    return result;
}

static int save(struct talk *t, const char *path)
{
    const int result =
        path[0] ? dialog_save(&t->dialog, path) : fail(CODE_INVALID_REQUEST, "/save: expected a file's name");
    if (!result) note(t, "(saved)");
    return result;
}

static int load(struct talk *t, const char *path)
{
    const int result =
        path[0] ? dialog_load(&t->dialog, path) : fail(CODE_INVALID_REQUEST, "/load: expected a file's name");
    if (result) return result;
    forget_pending(t);
    note_count(t, t->dialog.messages, "message");
    return EXIT_DONE;
}

static int clear(struct talk *t, const char *rest)
{
    (void)rest;
    dialog_clear(&t->dialog);
    forget_pending(t);
    note(t, "(begun anew)");
    return EXIT_DONE;
}

static int quit(struct talk *t, const char *rest)
{
    (void)rest;
    t->over = true;
    return EXIT_DONE;
}

static int help(struct talk *t, const char *rest);

static const struct {
    const char *name, *argument;
    const char *help; /* NULL: not shown */
    int (*run)(struct talk *t, const char *rest);
} commands[] = {
    { "system", "[TEXT]", "set the system prompt; without TEXT there is none", set_system },
    { "tools", "[FILE]", "offer the functions in FILE (OpenAI's tools); without FILE none", set_tools },
    { "save", "FILE", "write the conversation to FILE, as JSON", save },
    { "load", "FILE", "go on with the conversation in FILE", load },
    { "clear", "", "begin anew; system prompt and tools stay", clear },
    { "help", "", "show this", help },
    { "quit", "", "end; so do /exit, /bye and Ctrl-D", quit },
    { "exit", "", NULL, quit }, /* the words of other programs */
    { "bye", "", NULL, quit },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help(struct talk *t, const char *rest)
{
    (void)rest;
    (void)t;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].help) (void)printf("/%-7s%-8s %s\n", commands[i].name, commands[i].argument, commands[i].help);
    (void)printf("Ctrl-C ends an answer. A line that begins with // is text that begins with /.\n");
    return EXIT_DONE;
}

/* line: behind the slash. */
static void command(struct talk *t, const char *line)
{
    const size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    int result = -1;
    for (size_t i = 0; i < N_COMMANDS && result < 0; i++)
        if (strlen(commands[i].name) == n && strncmp(commands[i].name, line, n) == 0)
            result = !commands[i].argument[0] && *rest
                         ? fail(CODE_INVALID_REQUEST, "/%s takes nothing behind it", commands[i].name)
                         : commands[i].run(t, rest);
    if (result < 0) result = fail(CODE_INVALID_REQUEST, "/%.40s: unknown command; /help shows those there are", line);
    if (result && !t->status) t->status = result;
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static void make_prompt(const struct talk *t, char *out, size_t cap)
{
    const json_t *call = json_array_get(t->pending, t->n_given);
    const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
    char shown[TOOLS_MAX_NAME + 1];
    if (name) /* whoever answered may call it what he wants */
        (void)snprintf(out, cap, "result of %s> ", text_printable(name, shown, sizeof shown));
    else
        (void)snprintf(out, cap, "> ");
}

static void take_line(struct talk *t, const char *line, size_t n)
{
    if (memchr(line, 0, n)) {
        const int result = fail(CODE_INVALID_REQUEST, "a line with a zero byte is no text");
        if (!t->status) t->status = result;
    } else if (line[0] == '/' && line[1] != '/') {
        command(t, line + 1);
    } else if (n || t->pending) {
        say(t, line[0] == '/' ? line + 1 : line);
    }
    (void)fflush(stdout);
}

static int follow(struct talk *t)
{
    char prompt[TOOLS_MAX_NAME + 32];
    while (!t->over) {
        const char *line;
        size_t n;
        make_prompt(t, prompt, sizeof prompt);
        switch (line_input_next(t->input, prompt, &line, &n)) {
        case LINE_READ: take_line(t, line, n); break;
        case LINE_END: note(t, ""); return t->terminal ? EXIT_DONE : t->status;
        case LINE_INTERRUPTED:
            if (!t->terminal) return EXIT_INTERRUPTED;
            interrupts_forget();
            note(t, "^C");
            break;
        case LINE_FAILED: return fail(CODE_INVALID_REQUEST, "standard input cannot be read, or a line is too long");
        }
    }
    if (!t->terminal && interrupted()) return EXIT_INTERRUPTED;
    return t->terminal ? EXIT_DONE : t->status;
}

static int talk(struct talk *t)
{
    char title[600];
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* what libedit shows */
    t->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (t->terminal)
        interrupts_ask();
    else
        interrupts_catch();
    int result = dialog_open(&t->dialog);
    t->input = result ? NULL : line_input_open(t->terminal);
    if (!result && !t->input) result = fail(CODE_INTERNAL, "the terminal cannot be used; is TERM set?");
    (void)snprintf(title, sizeof title, "%s\n/help shows the commands, Ctrl-D ends", t->responder.title);
    if (!result) note(t, title);
    if (!result) result = follow(t);
    line_input_close(t->input);
    dialog_close(&t->dialog);
    return result;
}

int command_chat(const struct options *o)
{
    bool elsewhere;
    struct talk t = { .o = o, .sampling = calloc(1, sizeof *t.sampling) };
    if (!t.sampling) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for a conversation");
    int result = client_wanted(o, &elsewhere);
    if (!result) result = sampling_read(o, t.sampling);
    if (!result) result = (elsewhere ? responder_elsewhere : responder_here)(o, t.sampling, &t.responder);
    if (!result) result = talk(&t);
    responder_close(&t.responder);
    free(t.sampling);
    return result;
}
