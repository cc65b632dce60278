/* tool_grammar.c: see tool_grammar.h. */
#include "tool_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "chat/chat.h"
#include "grammar/grammar.h"
#include "grammars.h"

struct making {
    const struct serve_model *m;
    const struct openai_tools *t;
    bool *strict; /* of each function, whether it is held to its schema */
    struct tools_refusal *refusals;
    struct chat_problem *why;
};

static bool is_required(const struct openai_tools *t) { return t->choice != TOOLS_CHOICE_AUTO; }

/* The member that asks for what cannot be done; false: nothing is asked for. */
static bool what_asks(const struct openai_tools *t, char field[96])
{
    (void)snprintf(field, 96, "tool_choice");
    if (is_required(t)) return true;
    for (size_t i = 0; i < t->list.n; i++) {
        (void)snprintf(field, 96, "tools[%zu].function.strict", i);
        if (t->list.list[i].strict) return true;
    }
    return false;
}

/* What makes grammars differ. */
static bool digest_of(const struct openai_tools *t, char hex[65])
{
    char head[96];
    struct sha256 *s = sha256_begin();
    if (!s) return false;
    (void)snprintf(head, sizeof head, "tools %d %d %zu %zu ", (int)t->choice, t->one, t->named.len, t->list.n);
    sha256_update(s, head, strlen(head));
    if (t->named.len) sha256_update(s, t->named.data, t->named.len);
    for (size_t i = 0; i < t->list.n; i++) {
        const struct chat_tool *f = &t->list.list[i];
        (void)snprintf(head, sizeof head, " %zu %zu %d ", f->name.len, f->parameters.len, f->strict);
        sha256_update(s, head, strlen(head));
        sha256_update(s, f->name.data, f->name.len);
        if (f->parameters.len) sha256_update(s, f->parameters.data, f->parameters.len);
    }
    return sha256_end(s, hex);
}

/* One try; functions that could not be held to their schema are in refusals. */
static wk_status compile(const struct making *x, struct grammar **out, const struct wk_err *err)
{
    const struct openai_tools *t = x->t;
    struct tools_function *functions = calloc(t->list.n, sizeof *functions);
    static const char nothing[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    const struct token_bytes none = { nothing, sizeof nothing - 1 }; /* a function without parameters takes none */
    struct tools_set *set = NULL;
    struct harmony_ids ids;
    bool single;
    const char *unknown;
    const struct tools_model *form = chat_calls(x->m->chat, &single, &unknown);
    const struct tools_rule rule = { .required = is_required(t), .single = single || t->one, .named = t->named };
    if (!functions) return wk_fail(err, WK_NO_MEMORY, "no memory for the tools");
    memset(x->refusals, 0, t->list.n * sizeof *x->refusals);
    for (size_t i = 0; i < t->list.n; i++)
        functions[i] = t->list.list[i].parameters.data
                           ? (struct tools_function){ t->list.list[i].name, t->list.list[i].parameters, x->strict[i] }
                           : (struct tools_function){ t->list.list[i].name, none, true };
    wk_status status = tools_set_open(functions, t->list.n, &set, err);
    if (!status)
        status = form ? tools_grammar(form, set, &rule, x->refusals, out, err)
                 : harmony_find_ids(x->m->model->tokenizer, &ids)
                     ? tools_harmony_grammar(&ids, set, &rule, x->refusals, out, err)
                     : wk_fail(err, WK_UNSUPPORTED, "the vocabulary has no tokens for calls");
    tools_set_close(set);
    free(functions);
    return status;
}

/* Functions that were refused: a strict one is the request's failure, another is not held to its schema. */
static bool relax(const struct making *x, bool *again)
{
    *again = false;
    for (size_t i = 0; i < x->t->list.n; i++) {
        char field[96];
        (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
        if (!x->refusals[i].refused) continue;
        if (x->t->list.list[i].strict || !x->strict[i])
            return chat_refuse(x->why, WK_UNSUPPORTED, field, "%s", x->refusals[i].text);
        x->strict[i] = false;
        *again = true;
    }
    return true;
}

static bool make(const struct making *x, struct grammar **out)
{
    char said[384] = "", field[96];
    const struct wk_err err = { said, sizeof said };
    bool again;
    wk_status status = compile(x, out, &err);
    if (!relax(x, &again)) {
        grammar_close(*out);
        *out = NULL;
        return false;
    }
    if (again) {
        grammar_close(*out);
        status = compile(x, out, &err);
    }
    if (!status || (status != WK_NO_MEMORY && !what_asks(x->t, field))) return true;
    return chat_refuse(x->why, status, status == WK_NO_MEMORY ? "tools" : field, "%s", said);
}

bool tool_grammar_make(const struct serve_model *m, const struct openai_tools *t, struct grammar **out,
                       struct chat_problem *why)
{
    char said[256] = "", field[96], digest[65];
    const struct grammar_index *index;
    *out = NULL;
    if (grammars_index(m->grammars, &index, &(struct wk_err){ said, sizeof said }))
        return !what_asks(t, field) ||
               chat_refuse(why, WK_UNSUPPORTED, field, "this model's answers cannot be constrained: %s", said);
    if (!digest_of(t, digest)) return chat_refuse(why, WK_INTERNAL, "tools", "no digest of the tools can be made");
    *out = grammars_find(m->grammars, digest);
    if (*out) return true;
    struct making x = { .m = m,
                        .t = t,
                        .strict = calloc(t->list.n, sizeof *x.strict),
                        .refusals = calloc(t->list.n, sizeof *x.refusals),
                        .why = why };
    bool ok = x.strict && x.refusals;
    if (!ok) (void)chat_refuse(why, WK_NO_MEMORY, "tools", "no memory for the tools");
    for (size_t i = 0; ok && i < t->list.n; i++) x.strict[i] = t->list.list[i].strict || is_required(t);
    ok = ok && make(&x, out);
    if (ok && *out) grammars_keep(m->grammars, *out, digest);
    free(x.strict);
    free(x.refusals);
    return ok;
}
