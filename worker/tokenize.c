/* tokenize.c: `worker tokenize` and `worker detokenize`. The model's file may be a vocabulary alone: no plugin and no
 * weight is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands.h"
#include "errors.h"
#include "setup.h"
#include "terminal.h"
#include "text.h"

static int print_ids(const struct options *o, const struct tokenizer *t, const struct text *text)
{
    struct tokens tokens = { 0 };
    const bool special = option_flag(o, OPT_SPECIAL);
    ERROR_TEXT(err);
    const bool no_bos = option_flag(o, OPT_NO_BOS);
    wk_status status = tokenizer_encode(t, text->bytes, text->len, special, !no_bos, &tokens, &err);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    for (size_t i = 0; i < tokens.n; i++) (void)printf("%s%u", i ? " " : "", tokens.ids[i]);
    if (no_bos && tokenizer_adds_eos(t)) (void)printf("%s%u", tokens.n ? " " : "", tokenizer_eos(t));
    (void)putchar('\n');
    tokens_free(&tokens);
    return EXIT_DONE;
}

int command_tokenize(const struct options *o)
{
    struct tokenizer *t;
    struct text text;
    const char *argument = o->n_operands ? o->operands[0] : NULL, *path = option_text(o, OPT_FILE);
    if (!argument == !path) return fail_usage("tokenize", "expected either TEXT or --file FILE");
    int result = open_tokenizer(o, &t);
    if (result) return result;
    result = text_read(argument, path, &text);
    if (!result) {
        result = print_ids(o, t, &text);
        text_free(&text);
    }
    tokenizer_close(t);
    return result;
}

/* The operands as one list, so that ids may also come as "1 2 3" in one argument. */
static int operands_to_ids(const struct options *o, uint32_t limit, struct id_list *out)
{
    char *joined = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&joined, &size);
    if (!f) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the ids");
    for (int i = 0; i < o->n_operands; i++) (void)fprintf(f, "%s ", o->operands[i]);
    int result = fclose(f) ? fail(CODE_INSUFFICIENT_MEMORY, "no memory for the ids") : ids_parse(joined, limit, out);
    free(joined);
    return result;
}

int command_detokenize(const struct options *o)
{
    struct tokenizer *t;
    struct id_list list;
    ERROR_TEXT(err);
    int result = open_tokenizer(o, &t);
    if (result) return result;
    result = operands_to_ids(o, tokenizer_size(t), &list);
    if (!result) {
        char *bytes;
        size_t len;
        wk_status status = tokenizer_decode(t, list.ids, list.n, true, &bytes, &len, &err);
        if (status) {
            result = fail_status(STAGE_TOKENS, status, &err);
        } else {
            struct terminal out = { .out = stdout, .shows = isatty(STDOUT_FILENO) };
            terminal_write(&out, bytes, len);
            terminal_end(&out);
            free(bytes);
        }
        free(list.ids);
    }
    tokenizer_close(t);
    return result;
}
