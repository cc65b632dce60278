/* parse.c: expressions into a syntax tree, by jinja2's grammar. Recursion is bounded: a tree is at most JINJA_MAX_DEPTH
 * deep, as in Python, whose compiler refuses deeper ones as well. */
#include "parse.h"

#include <stdio.h>

#include "base/utf8.h"

static struct node *parse_operators(struct parser *p, int level);

/* What follows the backslash of an escape at s[i]; the place behind it. */
static uint32_t unescape(struct parser *p, struct buf *b, const struct token *t, uint32_t i)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = t->text[i];
    const char *letter = c ? strchr(letters, c) : NULL;
    uint32_t code = 0, n = 0;
    if (letter) {
        jn_buf_add(b, &values[letter - letters], 1, JINJA_TEMPLATE);
        return i + 1;
    }
    if (c == '\n') return i + 1;
    if (c >= '0' && c <= '7') {
        for (; n < 3 && t->text[i + n] >= '0' && t->text[i + n] <= '7'; n++)
            code = code * 8 + (uint32_t)(t->text[i + n] - '0');
        jn_buf_char(b, code, JINJA_TEMPLATE);
        return i + n;
    }
    const uint32_t want = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (want) {
        for (n = 1; n <= want; n++) {
            const char h = t->text[i + n], low = (char)(h | 32);
            if (!((h >= '0' && h <= '9') || (low >= 'a' && low <= 'f')) || i + n >= t->n - 1)
                jn_fail_syntax(p->m, t->at + i, "an escape \\%c needs %u hexadecimal digits", c, want);
            code = code * 16 + (uint32_t)(h <= '9' ? h - '0' : low - 'a' + 10);
        }
        if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
            jn_fail_syntax(p->m, t->at + i, "an escape names no character: U+%X", code);
        jn_buf_char(b, code, JINJA_TEMPLATE);
        return i + n;
    }
    if (c == 'N') jn_fail_syntax(p->m, t->at + i, "escapes with a character's name are not supported");
    jn_buf_add(b, "\\", 1, JINJA_TEMPLATE);
    if ((unsigned char)c < 0x80) return i;
    /* Python turns other characters into escapes before it reads escapes: the backslash takes the escape's own. */
    char text[16];
    uint32_t len;
    const uint32_t other = jn_char_at(&(struct str){ .data = t->text, .n = t->n }, i, &len);
    (void)snprintf(text, sizeof text, other < 0x100 ? "x%02x" : other < 0x10000 ? "u%04x" : "U%08x", (unsigned)other);
    jn_buf_text(b, text, JINJA_TEMPLATE);
    return i + len;
}

static void add_string(struct parser *p, struct buf *b, const struct token *t)
{
    for (uint32_t i = 1; i < t->n - 1;) {
        if (t->text[i] == '\\') {
            i = unescape(p, b, t, i + 1);
            continue;
        }
        uint32_t end = i;
        while (end < t->n - 1 && t->text[end] != '\\') end++;
        jn_buf_add(b, t->text + i, end - i, JINJA_TEMPLATE);
        i = end;
    }
}

static val number_constant(struct parser *p, const struct token *t)
{
    const struct str *text = token_str(p, t);
    const val v = t->kind == T_FLOAT ? jn_float_parse(p->m, text) : jn_integer_parse(p->m, text, 0);
    if (v.kind == V_MISSING) jn_fail_syntax(p->m, t->at, "not a number: %.*s", (int)(t->n < 40 ? t->n : 40), t->text);
    return v;
}

static struct node *constant(struct parser *p, uint32_t at, val v)
{
    struct node *n = make(p, N_CONST, at);
    n->v = v;
    return n;
}

struct node *jn_parse_variable(struct parser *p, const struct token *t, enum use use)
{
    struct node *n = make(p, N_NAME, t->at);
    n->name = token_str(p, t);
    n->id = jn_name_id(p->t, n->name);
    n->op = (uint8_t)use;
    return n;
}

static struct node *parse_items(struct parser *p, enum node_kind kind, enum token_kind close, const char *what)
{
    struct node *n = make(p, kind, p->now.at);
    struct nodes items = { 0 };
    advance(p);
    for (bool first = true; !is(p, close); first = false) {
        if (!first) expect(p, T_COMMA, "','");
        if (is(p, close)) break;
        append(&items, jn_parse_expression(p));
        if (kind != N_DICT) continue;
        expect(p, T_COLON, "':'");
        append(&items, jn_parse_expression(p));
    }
    expect(p, close, what);
    n->a = children(p, n, &items);
    return n;
}

static struct node *parse_name(struct parser *p, bool namespaces)
{
    const struct token t = p->now;
    advance(p);
    if (token_is_name(&t, "true") || token_is_name(&t, "True")) return constant(p, t.at, jn_v_bool(true));
    if (token_is_name(&t, "false") || token_is_name(&t, "False")) return constant(p, t.at, jn_v_bool(false));
    if (token_is_name(&t, "none") || token_is_name(&t, "None")) return constant(p, t.at, jn_v_none());
    struct node *n = jn_parse_variable(p, &t, USE_LOAD);
    if (namespaces && skip(p, T_DOT)) {
        const struct token attribute = expect(p, T_NAME, "a name");
        n->kind = N_NSREF;
        n->v = jn_str_constant(p->m, attribute.text, attribute.n, JINJA_TEMPLATE);
    }
    return n;
}

static struct node *parse_primary(struct parser *p, bool namespaces)
{
    const struct token t = p->now;
    struct node *n;
    switch (t.kind) {
    case T_NAME: return parse_name(p, namespaces);
    case T_STRING: {
        struct buf b;
        jn_buf_open(&b, p->m);
        for (; is(p, T_STRING); advance(p)) add_string(p, &b, &p->now);
        return constant(p, t.at, jn_buf_value(&b, false));
    }
    case T_INTEGER:
    case T_FLOAT: advance(p); return constant(p, t.at, number_constant(p, &t));
    case T_LPAREN:
        advance(p);
        n = jn_parse_tuple(p, false, true, NULL, true, false);
        expect(p, T_RPAREN, "')'");
        return n;
    case T_LBRACKET: return parse_items(p, N_LIST, T_RBRACKET, "']'");
    case T_LBRACE: return parse_items(p, N_DICT, T_RBRACE, "'}'");
    default: jn_fail_syntax(p->m, t.at, "unexpected %s", jn_token_words(p->m, &t));
    }
}

static struct node *parse_subscribed(struct parser *p)
{
    struct node *n = make(p, N_SLICE, p->now.at), *first = NULL;
    if (!is(p, T_COLON)) {
        first = jn_parse_expression(p);
        if (!is(p, T_COLON)) return first;
    }
    advance(p);
    n->a = child(p, n, first);
    if (!is(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA)) n->b = child(p, n, jn_parse_expression(p));
    if (skip(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA)) n->c = child(p, n, jn_parse_expression(p));
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *object)
{
    const struct token t = p->now;
    advance(p);
    struct node *n = make(p, N_ITEM, t.at);
    n->a = child(p, n, object);
    if (t.kind == T_DOT) {
        const struct token name = p->now;
        advance(p);
        if (name.kind == T_NAME) {
            n->kind = N_ATTR;
            n->name = token_str(p, &name);
        } else if (name.kind == T_INTEGER) {
            n->b = constant(p, name.at, number_constant(p, &name));
        } else {
            jn_fail_syntax(p->m, name.at, "expected a name or a number");
        }
        return n;
    }
    struct nodes items = { 0 };
    uint32_t count = 0;
    for (; !is(p, T_RBRACKET); count++) {
        if (count) expect(p, T_COMMA, "','");
        append(&items, parse_subscribed(p));
    }
    expect(p, T_RBRACKET, "']'");
    if (count == 1) {
        n->b = child(p, n, items.first);
    } else {
        struct node *tuple = make(p, N_TUPLE, t.at);
        tuple->a = children(p, tuple, &items);
        n->b = child(p, n, tuple);
    }
    return n;
}

static struct node *wrapped(struct parser *p, enum node_kind kind, struct node *a)
{
    struct node *n = make(p, kind, p->now.at);
    n->a = child(p, n, a);
    return n;
}

/* (a, b, c=1, *d, **e) into n->b and n->c. */
static void parse_arguments(struct parser *p, struct node *n)
{
    const uint32_t at = p->now.at;
    struct nodes positional = { 0 }, named = { 0 };
    bool star = false, stars = false, comma = false;
    expect(p, T_LPAREN, "'('");
    for (; !is(p, T_RPAREN); comma = true) {
        if (comma) {
            expect(p, T_COMMA, "','");
            if (is(p, T_RPAREN)) break;
        }
        bool right = true;
        if (is(p, T_MUL)) {
            right = !star && !stars;
            star = true;
            advance(p);
            append(&positional, wrapped(p, N_STAR, jn_parse_expression(p)));
        } else if (is(p, T_POW)) {
            right = !stars;
            stars = true;
            advance(p);
            append(&named, wrapped(p, N_STARS, jn_parse_expression(p)));
        } else if (is(p, T_NAME) && look(p).kind == T_ASSIGN) {
            right = !stars;
            const struct token name = p->now;
            advance(p);
            advance(p);
            struct node *keyword = wrapped(p, N_KEYWORD, jn_parse_expression(p));
            keyword->name = token_str(p, &name);
            for (const struct node *k = named.first; k; k = k->next)
                if (k->kind == N_KEYWORD && jn_str_same(k->name, keyword->name))
                    jn_fail_syntax(p->m, name.at, "keyword argument repeated: %.*s", (int)name.n, name.text);
            append(&named, keyword);
        } else {
            right = !star && !stars && !named.first;
            append(&positional, jn_parse_expression(p));
        }
        if (!right) jn_fail_syntax(p->m, at, "invalid syntax for a call");
    }
    expect(p, T_RPAREN, "')'");
    n->b = children(p, n, &positional);
    n->c = children(p, n, &named);
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = make(p, N_CALL, p->now.at);
    n->a = child(p, n, callee);
    parse_arguments(p, n);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (is(p, T_DOT) || is(p, T_LBRACKET))
            n = parse_subscript(p, n);
        else if (is(p, T_LPAREN))
            n = parse_call(p, n);
        else
            return n;
    }
}

static const struct str *dotted_name(struct parser *p)
{
    struct token t = expect(p, T_NAME, "a name");
    struct buf b;
    jn_buf_open(&b, p->m);
    jn_buf_add(&b, t.text, t.n, JINJA_TEMPLATE);
    while (skip(p, T_DOT)) {
        t = expect(p, T_NAME, "a name");
        jn_buf_add(&b, ".", 1, JINJA_TEMPLATE);
        jn_buf_add(&b, t.text, t.n, JINJA_TEMPLATE);
    }
    return jn_buf_value(&b, false).u.s;
}

struct node *jn_parse_filters(struct parser *p, struct node *n, bool begun)
{
    for (; begun || is(p, T_PIPE); begun = false) {
        if (!begun) advance(p);
        struct node *f = make(p, N_FILTER, p->now.at);
        f->name = dotted_name(p);
        f->a = child(p, f, n);
        if (is(p, T_LPAREN)) parse_arguments(p, f);
        n = f;
    }
    return n;
}

static struct node *parse_test(struct parser *p, struct node *value)
{
    advance(p);
    const bool negated = skip_name(p, "not");
    struct node *n = make(p, N_TEST, p->now.at);
    n->name = dotted_name(p);
    n->a = child(p, n, value);
    if (is(p, T_LPAREN)) {
        parse_arguments(p, n);
    } else if ((is(p, T_NAME) && !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and")) || is(p, T_STRING) ||
               is(p, T_INTEGER) || is(p, T_FLOAT) || is(p, T_LBRACKET) || is(p, T_LBRACE)) {
        if (is_name(p, "is")) jn_fail_syntax(p->m, p->now.at, "tests cannot be chained with is");
        n->b = child(p, n, parse_postfix(p, parse_primary(p, false)));
    }
    return negated ? wrapped(p, N_NOT, n) : n;
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    struct node *n;
    enter(p);
    if (is(p, T_SUB) || is(p, T_ADD)) {
        n = make(p, is(p, T_SUB) ? N_NEG : N_POS, p->now.at);
        advance(p);
        n->a = child(p, n, parse_unary(p, false));
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    while (filters) {
        if (is(p, T_PIPE))
            n = jn_parse_filters(p, n, false);
        else if (is_name(p, "is"))
            n = parse_test(p, n);
        else if (is(p, T_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    leave(p);
    return n;
}

enum level { L_OR, L_AND, L_NOT, L_COMPARE, L_SUM, L_CONCAT, L_PRODUCT, L_POWER, L_NONE };

static int level_now(struct parser *p)
{
    switch (p->now.kind) {
    case T_NAME: {
        if (is_name(p, "or")) return L_OR;
        if (is_name(p, "and")) return L_AND;
        if (is_name(p, "in")) return L_COMPARE;
        if (!is_name(p, "not")) return L_NONE;
        const struct token next = look(p);
        return token_is_name(&next, "in") ? L_COMPARE : L_NONE;
    }
    case T_EQ:
    case T_NE:
    case T_LT:
    case T_LE:
    case T_GT:
    case T_GE: return L_COMPARE;
    case T_ADD:
    case T_SUB: return L_SUM;
    case T_TILDE: return L_CONCAT;
    case T_MUL:
    case T_DIV:
    case T_FLOOR_DIV:
    case T_MOD: return L_PRODUCT;
    case T_POW: return L_POWER;
    default: return L_NONE;
    }
}

static enum comparison comparison_now(const struct parser *p)
{
    switch (p->now.kind) {
    case T_EQ: return CMP_EQ;
    case T_NE: return CMP_NE;
    case T_LT: return CMP_LT;
    case T_LE: return CMP_LE;
    case T_GT: return CMP_GT;
    case T_GE: return CMP_GE;
    default: return is_name(p, "in") ? CMP_IN : CMP_NOT_IN;
    }
}

static struct node *parse_comparisons(struct parser *p, struct node *left)
{
    struct node *n = make(p, N_COMPARE, p->now.at);
    struct nodes operands = { 0 };
    n->a = child(p, n, left);
    while (level_now(p) == L_COMPARE) {
        struct node *operand = make(p, N_OPERAND, p->now.at);
        operand->op = (uint8_t)comparison_now(p);
        if (operand->op == CMP_NOT_IN) advance(p);
        advance(p);
        operand->a = child(p, operand, parse_operators(p, L_SUM));
        append(&operands, operand);
    }
    n->b = children(p, n, &operands);
    return n;
}

static struct node *parse_concat(struct parser *p, struct node *left)
{
    struct node *n = make(p, N_CONCAT, p->now.at);
    struct nodes items = { 0 };
    append(&items, left);
    while (skip(p, T_TILDE)) append(&items, parse_operators(p, L_PRODUCT));
    n->a = children(p, n, &items);
    return n;
}

static struct node *parse_binary(struct parser *p, struct node *left, int level)
{
    static const uint8_t operations[] = { [T_ADD] = BIN_ADD, [T_SUB] = BIN_SUB, [T_MUL] = BIN_MUL,
                                          [T_DIV] = BIN_DIV, [T_MOD] = BIN_MOD, [T_FLOOR_DIV] = BIN_FLOOR_DIV,
                                          [T_POW] = BIN_POW };
    struct node *n = make(p, level == L_OR ? N_OR : level == L_AND ? N_AND : N_BINARY, p->now.at);
    if (n->kind == N_BINARY) n->op = operations[p->now.kind];
    advance(p);
    n->a = child(p, n, left);
    n->b = child(p, n, parse_operators(p, level == L_SUM ? L_CONCAT : level + 1));
    return n;
}

/* Operators that bind at least as tightly as `level`. */
static struct node *parse_operators(struct parser *p, int level)
{
    struct node *n;
    if (level <= L_NOT && is_name(p, "not")) {
        enter(p);
        n = make(p, N_NOT, p->now.at);
        advance(p);
        n->a = child(p, n, parse_operators(p, L_NOT));
        leave(p);
    } else {
        n = parse_unary(p, true);
    }
    for (int now; (now = level_now(p)) != L_NONE && now >= level;)
        n = now == L_COMPARE ? parse_comparisons(p, n) : now == L_CONCAT ? parse_concat(p, n) : parse_binary(p, n, now);
    return n;
}

struct node *jn_parse_expression(struct parser *p)
{
    struct node *n = parse_operators(p, L_OR);
    while (is_name(p, "if")) {
        struct node *condition = make(p, N_COND, p->now.at);
        advance(p);
        condition->a = child(p, condition, n);
        condition->b = child(p, condition, parse_operators(p, L_OR));
        if (skip_name(p, "else")) {
            enter(p);
            condition->c = child(p, condition, jn_parse_expression(p));
            leave(p);
        }
        n = condition;
    }
    return n;
}

struct node *jn_parse_tuple(struct parser *p, bool targets, bool conditions, const char *end_name, bool parentheses,
                            bool namespaces)
{
    struct nodes items = { 0 };
    const uint32_t at = p->now.at;
    bool tuple = false;
    for (uint32_t n = 0;; n++) {
        if (n) expect(p, T_COMMA, "','");
        if (is(p, T_VARIABLE_END) || is(p, T_BLOCK_END) || is(p, T_RPAREN) || (end_name && is_name(p, end_name))) break;
        if (targets) enter(p); /* else parse_unary counts */
        append(&items, targets      ? parse_primary(p, namespaces)
                       : conditions ? jn_parse_expression(p)
                                    : parse_operators(p, L_OR));
        if (targets) leave(p);
        if (!is(p, T_COMMA)) break;
        tuple = true;
    }
    if (!tuple) {
        if (items.first) return items.first;
        if (!parentheses)
            jn_fail_syntax(p->m, p->now.at, "expected an expression, got %s", jn_token_words(p->m, &p->now));
    }
    struct node *n = make(p, N_TUPLE, at);
    n->a = children(p, n, &items);
    return n;
}

void jn_each_child(struct node *n, void (*f)(void *, struct node *), void *context)
{
    /* jinja2 visits a node's parts in the order of its class's fields. */
    struct node *order[5] = { n->a, n->b, n->c, n->d, n->e };
    if (n->kind == N_CALL_BLOCK) { /* the call first */
        struct node *const calls[] = { n->d, n->a, n->b, n->c, NULL };
        memcpy(order, calls, sizeof order);
    } else if (n->kind == N_COND) { /* the test first */
        struct node *const condition[] = { n->b, n->a, n->c, NULL, NULL };
        memcpy(order, condition, sizeof order);
    }
    for (int i = 0; i < 5; i++)
        for (struct node *c = order[i]; c; c = c->next) f(context, c);
}
