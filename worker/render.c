/* render.c: `worker render`: what a chat template makes of a conversation, as text, as ids, or with where each byte
 * comes from. The model's file may be a vocabulary alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat.h"
#include "chat/clock.h"
#include "commands.h"
#include "errors.h"
#include "gguf/gguf.h"
#include "json_out.h"
#include "setup.h"
#include "terminal.h"
#include "text.h"
#include "tokenizer/json_reader.h"

struct render {
    const struct options *o;
    struct gguf *file;
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct text template, messages, tools, context;
    struct conversation conversation;
    struct jinja_options clock;
    struct chat_prompt prompt;
};

static struct token_bytes bytes_of(struct text t) { return (struct token_bytes){ t.bytes, t.len }; }

/* What goes wrong in a template is said on one line, whatever it says itself. */
static int refuse(const struct chat_problem *why)
{
    char line[sizeof why->text];
    return fail(why->status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_INVALID_REQUEST, "%s",
                text_printable(why->text, line, sizeof line));
}

/* ---- what there is to render --------------------------------------------------------------------------- */

static int check_usage(const struct options *o)
{
    const bool context = option_text(o, OPT_CONTEXT_FILE), messages = option_text(o, OPT_MESSAGES);
    if (!option_text(o, OPT_MODEL) && !option_text(o, OPT_TEMPLATE))
        return fail_usage("render", "--model FILE or --template FILE is needed");
    if (option_text(o, OPT_TEMPLATE) && option_text(o, OPT_CHAT_TEMPLATE))
        return fail_usage("render", "--template and --chat-template exclude each other");
    if (option_text(o, OPT_CHAT_TEMPLATE) && !option_text(o, OPT_MODEL))
        return fail_usage("render", "--chat-template takes the place of a model's own: name it with --model, or use "
                                    "--template alone");
    if (context == messages) return fail_usage("render", "either --messages FILE or --context FILE is needed");
    if (context && (option_text(o, OPT_TOOLS) || option_text(o, OPT_KWARGS)))
        return fail_usage("render", "--context is the whole context: --tools and --kwargs go with --messages");
    if (option_flag(o, OPT_PRINT_IDS) && option_flag(o, OPT_RUNS))
        return fail_usage("render", "--ids and --runs exclude each other");
    if (option_flag(o, OPT_PRINT_IDS) && !option_text(o, OPT_MODEL))
        return fail_usage("render", "--ids needs a vocabulary: --model FILE");
    return EXIT_DONE;
}

static int open_chat(struct render *r)
{
    const struct options *o = r->o;
    const char *path = option_text(o, OPT_TEMPLATE) ? option_text(o, OPT_TEMPLATE) : option_text(o, OPT_CHAT_TEMPLATE);
    ERROR_TEXT(err);
    int result = option_text(o, OPT_MODEL) ? open_model_file(o, false, &r->file) : EXIT_DONE;
    if (!result && path) result = text_read(NULL, path, &r->template);
    if (result) return result;
    struct gguf_accepted accepted = accepted_keys(o);
    wk_status status =
        r->file ? tokenizer_open_for(r->file, option_text(o, OPT_TOKENIZER), 0, &accepted, &r->tokenizer, &err) : WK_OK;
    if (status) return fail_status(STAGE_MODEL, status, &err);
    if (r->file && !r->tokenizer)
        return fail(CODE_MODEL_LOAD_FAILED,
                    "%s: the file embeds no tokenizer and there is no tokenizer.json beside it; give one with "
                    "--tokenizer",
                    option_text(o, OPT_MODEL));
    const struct chat_source source = { .file = r->file,
                                        .t = r->tokenizer,
                                        .template = bytes_of(r->template),
                                        .template_name = path,
                                        .as_is = option_flag(o, OPT_AS_IS) || option_text(o, OPT_CONTEXT_FILE) };
    status = chat_open(&source, &r->chat, &err);
    if (!status) return EXIT_DONE;
    char line[sizeof err_text];
    return fail(status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_INVALID_REQUEST, "%s",
                text_printable(err_text, line, sizeof line));
}

static int read_inputs(struct render *r)
{
    const struct options *o = r->o;
    const struct {
        enum option_id option;
        struct text *out;
    } files[] = { { OPT_MESSAGES, &r->messages }, { OPT_TOOLS, &r->tools }, { OPT_CONTEXT_FILE, &r->context } };
    const char *now = option_text(o, OPT_NOW);
    r->clock = chat_clock_now();
    if (now && !chat_clock_read(now, &r->clock))
        return fail_usage("render", "--now: expected a time of RFC 3339, such as 2026-07-04T09:05:03, got \"%.40s\"",
                          now);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = option_text(o, files[i].option);
        const int result = path ? text_read(NULL, path, files[i].out) : EXIT_DONE;
        if (result) return result;
    }
    return EXIT_DONE;
}

/* ---- rendering ----------------------------------------------------------------------------------------- */

static void put_token(FILE *out, const char *name, const struct tokenizer *t, uint32_t id)
{
    const struct token_bytes text = t && id != TOKEN_NONE ? tokenizer_text(t, id) : (struct token_bytes){ "", 0 };
    json_t *value = json_bytes(text.data, text.len);
    char *json = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    (void)fprintf(out, ",\"%s\":%s", name, json ? json : "\"\"");
    free(json);
    json_decref(value);
}

/* Messages, tools and variables as they are, as one context. */
static int make_context(struct render *r)
{
    const char *kwargs = option_text(r->o, OPT_KWARGS), *inside = kwargs ? strchr(kwargs, '{') : NULL;
    if (kwargs && !jr_is_object(kwargs, strlen(kwargs)))
        return fail(CODE_INVALID_REQUEST, "--kwargs: expected a JSON object");
    FILE *out = open_memstream(&r->context.bytes, &r->context.len);
    if (!out) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the context");
    (void)fprintf(out, "{\"messages\":");
    (void)fwrite(r->messages.bytes, 1, r->messages.len, out);
    if (r->tools.bytes) {
        (void)fprintf(out, ",\"tools\":");
        (void)fwrite(r->tools.bytes, 1, r->tools.len, out);
    }
    (void)fprintf(out, ",\"add_generation_prompt\":true");
    put_token(out, "bos_token", r->tokenizer, r->tokenizer ? tokenizer_bos(r->tokenizer) : TOKEN_NONE);
    put_token(out, "eos_token", r->tokenizer, r->tokenizer ? tokenizer_eos(r->tokenizer) : TOKEN_NONE);
    const bool more = inside && inside[1 + strspn(inside + 1, " \t\r\n")] != '}';
    (void)fprintf(out, "%s%s", more ? "," : "", more ? inside + 1 : "}");
    return fclose(out) ? fail(CODE_INSUFFICIENT_MEMORY, "no memory for the context") : EXIT_DONE;
}

static int render(struct render *r)
{
    struct chat_problem why;
    const char *kwargs = option_text(r->o, OPT_KWARGS);
    if (option_flag(r->o, OPT_AS_IS) && r->messages.bytes) {
        const int result = make_context(r);
        if (result) return result;
    }
    if (r->context.bytes)
        return chat_render_context(r->chat, bytes_of(r->context), &r->clock, &r->prompt, &why) ? EXIT_DONE
                                                                                               : refuse(&why);
    if (!conversation_read(r->messages.bytes, r->messages.len, &r->conversation, &why)) return refuse(&why);
    struct chat_request q = CHAT_REQUEST_OF(&r->conversation);
    q.tools = bytes_of(r->tools);
    q.kwargs = (struct token_bytes){ kwargs, kwargs ? strlen(kwargs) : 0 };
    q.clock = r->clock;
    q.clock_set = option_text(r->o, OPT_NOW);
    return chat_render(r->chat, &q, &r->prompt, &why) ? EXIT_DONE : refuse(&why);
}

/* ---- results ------------------------------------------------------------------------------------------- */

static int print_ids(const struct render *r)
{
    struct tokens tokens = { 0 };
    ERROR_TEXT(err);
    const wk_status status = tokenizer_encode_parts(r->tokenizer, r->prompt.part, r->prompt.n, true, &tokens, &err);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    for (size_t i = 0; i < tokens.n; i++) (void)printf("%s%u", i ? " " : "", tokens.ids[i]);
    (void)putchar('\n');
    tokens_free(&tokens);
    return EXIT_DONE;
}

static int print_runs(const struct render *r)
{
    json_t *list = json_array();
    size_t at = 0;
    for (size_t i = 0; list && i < r->prompt.n; i++) {
        const struct tokenizer_part *part = &r->prompt.part[i];
        json_t *run =
            json_pack("{s:s, s:I, s:I, s:o}", "origin", part->parse_special ? "template" : "input", "begin",
                      (json_int_t)at, "end", (json_int_t)(at + part->len), "text", json_bytes(part->bytes, part->len));
        if (!run || json_array_append_new(list, run)) {
            json_decref(list);
            list = NULL;
        }
        at += part->len;
    }
    return json_print(list);
}

static int print_text(const struct render *r)
{
    struct terminal out = { .out = stdout, .shows = isatty(STDOUT_FILENO) };
    for (size_t i = 0; i < r->prompt.n; i++) {
        const struct tokenizer_part *part = &r->prompt.part[i];
        if (out.shows)
            terminal_write(&out, part->bytes, part->len);
        else
            (void)fwrite(part->bytes, 1, part->len, stdout);
    }
    return EXIT_DONE;
}

int command_render(const struct options *o)
{
    struct render r = { .o = o };
    int result = check_usage(o);
    if (!result) result = read_inputs(&r);
    if (!result) result = open_chat(&r);
    if (!result) result = render(&r);
    if (!result)
        result = option_flag(o, OPT_PRINT_IDS) ? print_ids(&r)
                 : option_flag(o, OPT_RUNS)    ? print_runs(&r)
                                               : print_text(&r);
    chat_prompt_free(&r.prompt);
    conversation_free(&r.conversation);
    chat_close(r.chat);
    tokenizer_close(r.tokenizer);
    gguf_close(r.file);
    text_free(&r.template);
    text_free(&r.messages);
    text_free(&r.tools);
    text_free(&r.context);
    return result;
}
