/* schema.c: the JSON Schema compiler's entry: see schema.h and schema_internal.h. */
#include "grammar/schema.h"

#include "grammar/grammar.h"
#include "grammar/schema_form.h"

static bool compile(struct schema_ctx *c, const char *text, size_t n, node_id *root)
{
    if (!js_read(c, text, n)) return false;
    if (c->root->kind != JR_OBJECT && c->root->kind != JR_BOOL)
        return sch_fail(c, WK_INVALID, NULL, NULL, "expected a schema: an object, true or false");
    const struct js_value *dialect = js_get(c->root, "$schema");
    c->draft = schema_draft_of(dialect, DRAFT_2020);
    if (c->draft == DRAFT_UNKNOWN)
        return sch_fail(c, WK_UNSUPPORTED, c->root, "$schema",
                        "expected draft-04, -06, -07, 2019-09 or 2020-12, found %.*s",
                        (int)(dialect->text.len < 128 ? dialect->text.len : 128), dialect->text.data);
    if (!ref_collect(c) || !forms_open(c)) return false;
    *root = schema_emit(c, set_of(c, c->root, false, false));
    return !c->status;
}

wk_status grammar_from_schema(const char *text, size_t n, const struct schema_options *options, struct grammar **out,
                              const struct wk_err *err)
{
    static const struct grammar_space none = { 0 };
    struct schema_ctx c = { .err = err, .strict = options && options->strict };
    node_id root = NODE_NONE;
    *out = NULL;
    wk_status status = grammar_open(&c.grammar, err);
    if (status) return status;
    if (options && options->compact) grammar_set_space(c.grammar, &none);
    c.compact = options && options->compact;
    c.langs = grammar_langs(c.grammar);
    c.arena = arena_new();
    if (!c.arena)
        status = wk_fail(err, WK_NO_MEMORY, "no memory for a schema's compiler");
    else if (!compile(&c, text, n, &root))
        status = c.status;
    else
        status = grammar_seal(c.grammar, root, err);
    arena_free(c.arena);
    if (status)
        grammar_close(c.grammar);
    else
        *out = c.grammar;
    return status;
}
