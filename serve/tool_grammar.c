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
    const struct tools_model *form;
    const struct openai_tools *t;
    bool formed;
    struct work *work;
    struct chat_problem *why;
    struct tools_function *functions; /* that may be called */
    size_t *place;                    /* of each in t->list */
    size_t n;
    struct tools_refusal *refusals; /* [n] */
};

static bool is_required(const struct openai_tools *t) { return t->choice != TOOLS_CHOICE_AUTO; }

/* The member that asks for what cannot be done; false: nothing is asked for. */
static bool what_asks(const struct openai_tools *t, bool formed, char field[96])
{
    (void)snprintf(field, 96, "tool_choice");
    if (is_required(t)) return true;
    for (size_t i = 0; i < t->list.n; i++) {
        (void)snprintf(field, 96, "tools[%zu].function.strict", i);
        if (t->list.list[i].strict && !openai_tools_barred(t, i)) return true;
    }
    (void)snprintf(field, 96, "tools");
    return formed;
}

/* What makes grammars differ. */
static bool digest_of(const struct openai_tools *t, bool formed, char hex[65])
{
    char head[96];
    struct sha256 *s = sha256_begin();
    if (!s) return false;
    (void)snprintf(head, sizeof head, "tools %d %d %d %zu %zu ", (int)t->choice, t->one, formed, t->named.len,
                   t->list.n);
    sha256_update(s, head, strlen(head));
    if (t->named.len) sha256_update(s, t->named.data, t->named.len);
    for (size_t i = 0; i < t->list.n; i++) {
        const struct chat_tool *f = &t->list.list[i];
        if (openai_tools_barred(t, i)) continue;
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
    struct tools_set *set;
    struct harmony_ids ids;
    bool single;
    const char *unknown;
    (void)chat_calls(x->m->chat, &single, &unknown);
    const struct lang_watch watch = work_watch(x->work);
    const struct tools_rule rule = {
        .required = is_required(t) || x->formed, .single = single || t->one, .named = t->named, .watch = &watch
    };
    memset(x->refusals, 0, x->n * sizeof *x->refusals);
    wk_status status = tools_set_open(x->functions, x->n, &set, err);
    if (status) return status;
    status = x->form ? tools_grammar(x->form, set, &rule, x->refusals, out, err)
             : harmony_find_ids(x->m->facts.tokenizer, &ids)
                 ? tools_harmony_grammar(&ids, set, &rule, x->refusals, out, err)
                 : wk_fail(err, WK_UNSUPPORTED, "the vocabulary has no tokens for calls");
    tools_set_close(set);
    return status;
}

/* Functions that were refused: a strict one is the request's failure, another is not held to its schema. */
static bool relax(const struct making *x, bool *again)
{
    *again = false;
    for (size_t i = 0; i < x->n; i++) {
        char field[96];
        (void)snprintf(field, sizeof field, "tools[%zu].function.parameters", x->place[i]);
        if (!x->refusals[i].refused) continue;
        if (x->t->list.list[x->place[i]].strict || !x->functions[i].strict)
            return chat_refuse(x->why, WK_UNSUPPORTED, field, "%s", x->refusals[i].text);
        x->functions[i].strict = false;
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
    const bool ended = status == WK_NO_MEMORY || status == WK_CANCELLED;
    if (!status || (!ended && !what_asks(x->t, x->formed, field))) return true;
    return chat_refuse(x->why, status, ended ? "tools" : field, "%s", said);
}

static void choose_functions(struct making *x)
{
    static const char nothing[] = "{\"type\":\"object\",\"additionalProperties\":false}";
    static const struct token_bytes none = { nothing, sizeof nothing - 1 };
    for (size_t i = 0; i < x->t->list.n; i++) {
        const struct chat_tool *f = &x->t->list.list[i];
        const bool strict = f->strict || is_required(x->t);
        if (openai_tools_barred(x->t, i)) continue;
        x->place[x->n] = i;
        x->functions[x->n++] = f->parameters.data ? (struct tools_function){ f->name, f->parameters, strict }
                                                  : (struct tools_function){ f->name, none, true }; /* takes none */
    }
}

static bool compile_kept(struct making *x, const char digest[65], struct grammar **out)
{
    const size_t n = x->t->list.n;
    x->functions = calloc(n, sizeof *x->functions);
    x->place = calloc(n, sizeof *x->place);
    x->refusals = calloc(n, sizeof *x->refusals);
    bool ok = x->functions && x->place && x->refusals;
    if (ok) {
        choose_functions(x);
        ok = make(x, out);
    } else {
        (void)chat_refuse(x->why, WK_NO_MEMORY, "tools", "no memory for the tools");
    }
    if (ok && *out) grammars_keep(x->m->grammars, *out, digest);
    free(x->functions);
    free(x->place);
    free(x->refusals);
    return ok;
}

bool tool_grammar_make(const struct serve_model *m, const struct tools_model *form, const struct openai_tools *t,
                       bool formed, struct work *work, struct grammar **out, struct chat_problem *why)
{
    char said[256] = "", field[96], digest[65];
    const struct grammar_index *index;
    struct refusal ended = { 0 };
    struct making x = { .m = m, .form = form, .t = t, .formed = formed, .work = work, .why = why };
    *out = NULL;
    if (grammars_index(m->grammars, &index, &(struct wk_err){ said, sizeof said }))
        return !what_asks(t, formed, field) ||
               chat_refuse(why, WK_UNSUPPORTED, field, "this model's answers cannot be constrained: %s", said);
    if (!digest_of(t, formed, digest))
        return chat_refuse(why, WK_INTERNAL, "tools", "no digest of the tools can be made");
    *out = grammars_find(m->grammars, digest);
    if (*out) return true;
    if (!work_turn(work, &ended)) return chat_refuse(why, WK_CANCELLED, "", "%s", ended.text);
    return compile_kept(&x, digest, out);
}
