/* session_tokens.c: ids for commands that run a given text once. */
#include "session_tokens.h"

#include <stdlib.h>

#include "errors.h"

int session_tokens_usage(const struct options *o)
{
    if (!!option_text(o, OPT_IDS) + !!option_text(o, OPT_TEXT) + !!option_text(o, OPT_FILE) == 1) return EXIT_DONE;
    return fail_usage(command_table[o->command].name, "expected one of --ids, --text and --file");
}

static int from_text(const struct options *o, const struct model *m, struct id_list *out)
{
    struct text text;
    struct tokens tokens = { 0 };
    ERROR_TEXT(err);
    if (!m->tokenizer)
        return fail(CODE_INVALID_REQUEST, "%s: the file has no tokenizer%s; give token ids with --ids", m->name,
                    tokenizer_served(m->file) ? "" : " of a kind that is served");
    int result = text_read(option_text(o, OPT_TEXT), option_text(o, OPT_FILE), &text);
    if (result) return result;
    wk_status status = tokenizer_encode(m->tokenizer, text.bytes, text.len, false, true, &tokens, &err);
    text_free(&text);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    *out = (struct id_list){ tokens.ids, (uint32_t)tokens.n }; /* an encode takes at most 8 MiB */
    return EXIT_DONE;
}

int session_tokens(const struct options *o, const struct model *m, struct id_list *out)
{
    const char *ids = option_text(o, OPT_IDS);
    *out = (struct id_list){ NULL, 0 };
    int result = ids ? ids_parse(ids, m->program->n_vocab, out) : from_text(o, m, out);
    for (uint32_t i = 0; !result && i < out->n; i++)
        if (out->ids[i] >= m->program->n_vocab)
            result = fail(CODE_INVALID_REQUEST, "%s: its tokenizer gives id %u, but the model has %u", m->name,
                          out->ids[i], m->program->n_vocab);
    if (!result && out->n == 0) result = fail(CODE_INVALID_REQUEST, "no tokens: the text is empty");
    if (result) {
        free(out->ids);
        *out = (struct id_list){ NULL, 0 };
    }
    return result;
}
