/* parse_nested.c: arguments as elements within each other, each tag behind a mark: a member of an object is an element
 * of its name, an item of an array one that is called item, and everything else is text, whose type the schema gives.
 */
#include <string.h>

#include "tokenizer/vocab.h"
#include "tools/parser.h"

static bool lost_memory(struct tools_parser *p)
{
    p->status = WK_NO_MEMORY;
    return false;
}

void parser_begin_nested(struct tools_parser *p)
{
    struct nested *n = &p->nest;
    n->state = NESTED_TEXT;
    n->depth = 0;
    n->keys.n = 0;
    p->raw.n = p->n_tail = 0;
    p->more_keys = false;
    parser_begin_call(p);
    parser_arguments(p, "{", 1);
}

/* What the schema says of the innermost open element. */
static unsigned kinds_here(const struct tools_parser *p)
{
    const struct nested *n = &p->nest;
    struct token_bytes path[NESTED_DEPTH];
    if (!p->set) return KIND_ALL;
    for (uint32_t i = 0; i < n->depth; i++) {
        const bool item = i && n->level[i - 1].kind == ELEMENT_ARRAY;
        path[i] =
            item ? (struct token_bytes){ 0 } : (struct token_bytes){ n->keys.data + n->level[i].key, n->level[i].len };
    }
    return set_kinds_at(p->function, path, n->depth);
}

static bool raw_is_blank(const struct tools_parser *p)
{
    for (size_t i = 0; i < p->raw.n; i++)
        if (!unit_is_space((unsigned char)p->raw.data[i])) return false;
    return true;
}

/* ", " and "key": as the place wants them. */
static bool tell_name(struct tools_parser *p, bool more, bool named)
{
    struct byte_buffer text = { 0 };
    struct raw_text raw = { 0 };
    bool ok = !more || tools_put(&text, ", ", 2);
    if (named) {
        ok = ok && tools_put(&text, "\"", 1);
        for (size_t i = 0; ok && i < p->n_key; i++) ok = raw_put(&raw, (unsigned char)p->key[i], &text);
        ok = ok && raw_end(&raw, &text) && tools_put(&text, "\": ", 3);
    }
    if (ok) parser_arguments(p, text.data, text.n);
    free(text.data);
    return ok || lost_memory(p);
}

static bool open_element(struct tools_parser *p)
{
    struct nested *n = &p->nest;
    static const char item[] = "item";
    if (!raw_is_blank(p) || n->depth == NESTED_DEPTH) return false;
    if (n->depth && n->level[n->depth - 1].kind == ELEMENT_LEAF) {
        const bool array =
            p->n_key == sizeof item - 1 && memcmp(p->key, item, p->n_key) == 0 && kinds_here(p) & KIND_ARRAY;
        n->level[n->depth - 1].kind = array ? ELEMENT_ARRAY : ELEMENT_OBJECT;
        parser_arguments(p, array ? "[" : "{", 1);
    }
    bool *more = n->depth ? &n->level[n->depth - 1].more : &p->more_keys;
    if (!tell_name(p, *more, !n->depth || n->level[n->depth - 1].kind == ELEMENT_OBJECT)) return false;
    *more = true;
    n->level[n->depth].key = n->keys.n;
    n->level[n->depth].len = p->n_key;
    n->level[n->depth].kind = ELEMENT_LEAF;
    n->level[n->depth].more = false;
    n->depth++;
    p->raw.n = 0;
    return tools_put(&n->keys, p->key, p->n_key) || lost_memory(p);
}

/* Text, or nothing: then it is what the schema lets be empty. */
static void tell_leaf(struct tools_parser *p)
{
    const unsigned kinds = kinds_here(p);
    if (!raw_is_blank(p) || kinds & KIND_STRING)
        parser_tell_text(p, p->raw.data, p->raw.n, kinds);
    else if (kinds & KIND_OBJECT)
        parser_arguments(p, "{}", 2);
    else if (kinds & KIND_ARRAY)
        parser_arguments(p, "[]", 2);
    else
        parser_arguments(p, "null", 4);
}

static bool close_element(struct tools_parser *p)
{
    struct nested *n = &p->nest;
    const uint32_t last = n->depth - 1;
    const char *key = n->keys.data + n->level[last].key;
    if (p->n_key != n->level[last].len || memcmp(p->key, key, p->n_key) != 0) return false;
    if (n->level[last].kind == ELEMENT_LEAF)
        tell_leaf(p);
    else if (raw_is_blank(p))
        parser_arguments(p, n->level[last].kind == ELEMENT_ARRAY ? "]" : "}", 1);
    else
        return false;
    n->keys.n = n->level[last].key;
    n->depth--;
    p->raw.n = 0;
    return !p->status;
}

/* Is tail[from..] the beginning of the mark, the parameter's first literal without its bracket? */
static enum lit mark_matches(const struct tools_parser *p, size_t from)
{
    const struct step *s = &p->model->parameter[0];
    uint16_t at = 0;
    for (; from < p->n_tail; from++, at++)
        if (at == s->n - 1 || p->tail[from] != (s->units[at] & (unit)~UNIT_SPACE_BEFORE)) return LIT_DEAD;
    return at == s->n - 1 ? LIT_DONE : LIT_MORE;
}

static bool feed_text(struct tools_parser *p, unit u)
{
    size_t from = 0;
    p->tail[p->n_tail++] = u;
    enum lit lit = mark_matches(p, 0);
    while (lit == LIT_DEAD && from < p->n_tail) {
        const unit text = p->tail[from++];
        if (text >= UNIT_MARK) return false;
        if (!tools_put(&p->raw, &(char){ (char)text }, 1)) return lost_memory(p);
        lit = from < p->n_tail ? mark_matches(p, from) : LIT_MORE;
    }
    p->n_tail -= from;
    memmove(p->tail, p->tail + from, p->n_tail * sizeof *p->tail);
    if (lit != LIT_DONE || !p->n_tail) return true;
    p->nest.mark_at = p->at - p->n_tail;
    p->nest.state = NESTED_MARK;
    p->n_tail = 0;
    return true;
}

static enum nested_result end_tag(struct tools_parser *p)
{
    p->nest.state = NESTED_TEXT;
    if (!p->n_key) return NESTED_LOST;
    if (!p->nest.closing) return open_element(p) ? NESTED_MORE : NESTED_LOST;
    if (p->nest.depth) return close_element(p) ? NESTED_MORE : NESTED_LOST;
    if (!raw_is_blank(p)) return NESTED_LOST;
    parser_arguments(p, "}", 1);
    return NESTED_CLOSED;
}

enum nested_result parser_nested(struct tools_parser *p, unit u)
{
    struct nested *n = &p->nest;
    switch (n->state) {
    case NESTED_TEXT: return feed_text(p, u) ? NESTED_MORE : NESTED_LOST;
    case NESTED_MARK:
        n->state = NESTED_FIRST;
        n->closing = false;
        p->n_key = 0;
        return u == '<' ? NESTED_MORE : NESTED_LOST;
    case NESTED_FIRST:
        n->state = NESTED_NAME;
        n->closing = u == '/';
        if (n->closing) return NESTED_MORE;
        break;
    default: break;
    }
    if (u == '>') return end_tag(p);
    if (u >= UNIT_MARK || u <= ' ' || u == '<' || p->n_key == sizeof p->key) return NESTED_LOST;
    p->key[p->n_key++] = (char)u;
    return NESTED_MORE;
}
