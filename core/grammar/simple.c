/* simple.c: grammars that are one node: a regular expression, a choice of texts, any JSON object. */
#include "grammar/grammar.h"
#include "grammar/node.h"

static wk_status seal(struct grammar *g, node_id root, struct grammar **out, const struct wk_err *err)
{
    const wk_status status = grammar_seal(g, root, err);
    if (status)
        grammar_close(g);
    else
        *out = g;
    return status;
}

wk_status grammar_from_regex(const char *text, size_t n, const struct lang_watch *watch, struct grammar **out,
                             const struct wk_err *err)
{
    struct grammar *g;
    *out = NULL;
    wk_status status = grammar_open(watch, &g, err);
    if (status) return status;
    const lang_id language = lang_regex(grammar_langs(g), text, n, LANG_WHOLE, &status, err);
    if (!status) return seal(g, node_text(g, language), out, err);
    grammar_close(g);
    return status;
}

wk_status grammar_from_choice(const struct lang_word *choices, size_t n, const struct lang_watch *watch,
                              struct grammar **out, const struct wk_err *err)
{
    struct grammar *g;
    *out = NULL;
    const wk_status status = grammar_open(watch, &g, err);
    return status ? status : seal(g, node_text(g, lang_words(grammar_langs(g), choices, n)), out, err);
}

wk_status grammar_from_json_object(struct grammar **out, const struct wk_err *err)
{
    struct grammar *g;
    *out = NULL;
    const wk_status status = grammar_open(NULL, &g, err);
    return status ? status : seal(g, node_json_object(g), out, err);
}
