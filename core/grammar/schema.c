/* schema.c: the JSON Schema compiler's entry: see schema.h and schema_internal.h. */
#include "grammar/schema.h"

#include "grammar/grammar.h"
#include "grammar/schema_form.h"

static bool read(struct schema_ctx *c, const char *text, size_t n)
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
    return ref_collect(c) && forms_open(c);
}

/* members NULL: the whole schema as *node. */
static wk_status compile(struct grammar *g, const char *text, size_t n, const struct schema_options *options,
                         node_id *node, struct schema_member **members, size_t *n_members, const struct wk_err *err)
{
    struct schema_ctx c = { .grammar = g, .err = err, .strict = options && options->strict };
    c.compact = options && options->compact;
    c.langs = grammar_langs(g);
    c.arena = arena_new();
    if (!c.arena) return wk_fail(err, WK_NO_MEMORY, "no memory for a schema's compiler");
    if (read(&c, text, n)) {
        const struct want_set *root = set_of(&c, c.root, false, false);
        if (members)
            (void)schema_emit_members(&c, root, members, n_members);
        else
            *node = schema_emit(&c, root);
    }
    arena_free(c.arena);
    return c.status;
}

wk_status schema_node(struct grammar *g, const char *text, size_t n, const struct schema_options *options, node_id *out,
                      const struct wk_err *err)
{
    *out = NODE_NONE;
    return compile(g, text, n, options, out, NULL, NULL, err);
}

wk_status schema_members(struct grammar *g, const char *text, size_t n, const struct schema_options *options,
                         struct schema_member **out, size_t *n_out, const struct wk_err *err)
{
    *out = NULL;
    *n_out = 0;
    return compile(g, text, n, options, NULL, out, n_out, err);
}

wk_status grammar_from_schema(const char *text, size_t n, const struct schema_options *options,
                              const struct lang_watch *watch, struct grammar **out, const struct wk_err *err)
{
    static const struct grammar_space none = { 0 };
    struct grammar *g;
    node_id root;
    *out = NULL;
    wk_status status = grammar_open(watch, &g, err);
    if (status) return status;
    if (options && options->compact) grammar_set_space(g, &none);
    status = schema_node(g, text, n, options, &root, err);
    if (!status) status = grammar_seal(g, root, err);
    if (status)
        grammar_close(g);
    else
        *out = g;
    return status;
}
