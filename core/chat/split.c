/* split.c: answers of the past whose calls are text, as clients send them back that show all text. They are read by the
 * row of the model's form (tools/tools.h), so that the template writes the marks; as text, marks would be no marks. */
#include <stdlib.h>
#include <string.h>

#include "chat/caps.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/vocab.h"

struct place {
    size_t at, len;
};
struct found {
    struct place name, id, arguments;
};
struct reading {
    struct chat_split *out;
    struct found found[CHAT_SPLIT_CALLS];
    size_t n, before;   /* before: bytes of text before the first call */
    bool other, failed; /* there is text behind a call; no memory */
};

static bool put(struct reading *r, struct token_bytes text, struct place *where)
{
    struct byte_buffer *b = &r->out->texts;
    if (!array_reserve((void **)&b->data, &b->cap, b->n + text.len + 1, 1)) return !(r->failed = true);
    if (where) *where = (struct place){ b->n, text.len };
    if (text.len) memcpy(b->data + b->n, text.data, text.len);
    b->n += text.len;
    return true;
}

static bool is_blank(struct token_bytes t)
{
    while (t.len && strchr(" \t\r\n", t.data[t.len - 1]) && t.data[t.len - 1]) t.len--;
    return !t.len;
}

static void take(struct reading *r, const struct tools_event *e)
{
    struct found *f = r->n ? &r->found[r->n - 1] : NULL;
    switch (e->kind) {
    case TOOLS_TEXT:
        if (!f) r->before += e->text.len;
        if (f && !is_blank(e->text)) r->other = true;
        break;
    case TOOLS_CALL:
        if (r->n == CHAT_SPLIT_CALLS) {
            r->other = true;
            break;
        }
        f = &r->found[r->n++];
        if (put(r, e->text, &f->name) && put(r, e->id, &f->id))
            (void)put(r, (struct token_bytes){ "", 0 }, &f->arguments);
        break;
    case TOOLS_ARGUMENTS:
        if (f && put(r, e->text, NULL)) f->arguments.len += e->text.len;
        break;
    case TOOLS_BROKEN: r->other = true; break;
    default: break;
    }
}

static bool read_all(struct reading *r, const struct tools_model *m, uint64_t seed, struct token_bytes text)
{
    struct tools_parser *p;
    const struct tools_event *e;
    size_t n;
    if (tools_parser_open(m, NULL, seed, false, &p, NULL)) return false;
    bool ok = !tools_parser_push(p, TOKEN_NONE, text, &e, &n);
    for (size_t i = 0; ok && i < n; i++) take(r, &e[i]);
    ok = ok && !tools_parser_finish(p, &e, &n);
    for (size_t i = 0; ok && i < n; i++) take(r, &e[i]);
    r->other = r->other || tools_parser_malformed(p);
    tools_parser_close(p);
    return ok && !r->failed;
}

static struct token_bytes text_at(const struct chat_split *s, struct place p)
{
    return (struct token_bytes){ s->texts.data + p.at, p.len };
}

bool chat_split_calls(const struct tools_model *m, bool parallel, uint64_t seed, struct token_bytes *text,
                      struct chat_split *out)
{
    struct reading r = { .out = out };
    *out = (struct chat_split){ 0 };
    if (!m || !text->len || !tools_model_notices(m, *text)) return true;
    if (!read_all(&r, m, seed, *text)) {
        chat_split_free(out);
        return false;
    }
    for (size_t i = 0; i < r.n; i++) /* half of a surrogate pair is none */
        r.other = r.other || !jr_is_object(text_at(out, r.found[i].arguments).data, r.found[i].arguments.len);
    if (r.other || (r.n > 1 && !parallel)) r.n = 0;
    for (size_t i = 0; i < r.n; i++)
        out->calls[i] = (struct chat_call){ .id = text_at(out, r.found[i].id),
                                            .name = text_at(out, r.found[i].name),
                                            .arguments = text_at(out, r.found[i].arguments) };
    out->n = r.n;
    while (r.n && r.before && strchr("\r\n", text->data[r.before - 1]) && text->data[r.before - 1]) r.before--;
    if (r.n) text->len = r.before;
    return true;
}

void chat_split_free(struct chat_split *s)
{
    free(s->texts.data);
    *s = (struct chat_split){ 0 };
}
