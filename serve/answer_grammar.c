/* answer_grammar.c: see answer_grammar.h. */
#include "answer_grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/hex.h"
#include "base/sha256.h"
#include "chat/constraint.h"
#include "grammars.h"

/* The text that an answer may be is of a form; calls that must come leave it no place. */
static bool may_be_text(const struct stream *x) { return x->formed && !x->must_call; }

const char *answer_held_by(const struct stream *x)
{
    return may_be_text(x) ? x->q.form.field : x->grammar ? "tools" : NULL;
}

/* What stands before the answer, and what it may be instead. The grammar of calls begins with harmony's headers itself.
 */
static struct constraint_lead lead_of(const struct stream *x)
{
    const bool marked = x->q.chat && !chat_is_harmony(x->m->chat) && x->marks.open && x->marks.open[0];
    return (struct constraint_lead){ .marks = marked ? &x->marks : NULL,
                                     .header = may_be_text(x) ? x->header : NULL,
                                     .other = may_be_text(x) ? x->grammar : NULL };
}

/* The grammar of the request's form. What is not kept is compiled here, on the request's thread, in the request's turn:
 * who sends a form again waits for nobody. */
bool answer_make_grammar(struct stream *x, struct refusal *why)
{
    const struct structured *form = &x->q.form;
    const struct grammar_index *index;
    char text[768] = "";
    const struct wk_err err = { text, sizeof text };
    if (form->from.kind == GRAMMAR_NONE) return true;
    if (x->q.ignore_eos)
        return refuse(why, SERVE_INVALID_REQUEST, "ignore_eos",
                      "ignore_eos: expected false with %s: the answer ends where its form does", form->field);
    x->formed = grammars_kept(x->m->grammars, &form->from);
    if (!x->formed && !work_turn(x->work, why)) return false;
    const struct lang_watch watch = work_watch(x->work);
    wk_status status = grammars_index(x->m->grammars, &index, &err);
    if (!status && !x->formed) status = grammars_get(x->m->grammars, &form->from, &watch, &x->formed, &err);
    if (!status && x->q.chat && x->m->chat && chat_is_harmony(x->m->chat))
        status = grammars_harmony(x->m->grammars, &x->header, &err);
    if (status == WK_CANCELLED) return work_refuse(x->work, why);
    if (status) return refuse(why, serve_code_of_status(status), form->field, "%s: %s", form->field, text);
    return !work_stopped(x->work) || work_refuse(x->work, why);
}

bool answer_constrain(const struct stream *x, struct sampler_constraint *out, struct refusal *why)
{
    char text[256] = "";
    const struct constraint_lead lead = lead_of(x);
    const struct wk_err err = { text, sizeof text };
    const struct grammar_index *index;
    struct grammar *grammar = may_be_text(x) ? x->formed : x->grammar;
    if (!grammar) return true;
    wk_status status = grammars_index(x->m->grammars, &index, &err);
    if (!status) status = constraint_open(grammar, index, x->m->facts.tokenizer, x->m->facts.n_vocab, &lead, out, &err);
    return !status || refuse(why, serve_code_of_status(status), answer_held_by(x), "%s: %s", answer_held_by(x), text);
}

bool answer_digest(const struct stream *x, uint8_t out[ENGINE_DIGEST])
{
    char form[65], hex[65], head[64];
    const struct constraint_lead lead = lead_of(x);
    const char *open = lead.marks ? lead.marks->open : "", *close = lead.marks ? lead.marks->close : "";
    if (x->grammar || !x->formed || !grammars_digest(&x->q.form.from, form)) return false;
    struct sha256 *s = sha256_begin();
    if (!s) return false;
    (void)snprintf(head, sizeof head, " %d %d %d %zu %zu ", lead.header != NULL, lead.marks != NULL,
                   lead.marks && lead.marks->opened, strlen(open), strlen(close));
    sha256_update(s, form, strlen(form));
    sha256_update(s, head, strlen(head));
    sha256_update(s, open, strlen(open));
    sha256_update(s, close, strlen(close));
    if (!sha256_end(s, hex)) return false;
    hex_read(hex, ENGINE_DIGEST, out);
    return true;
}
