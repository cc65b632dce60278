/* parse_statements.c: statements and the whole template into a syntax tree, by jinja2's grammar. */
#include "parse.h"

static void assign_to(struct parser *p, struct node *n)
{
    if (n->kind == N_TUPLE) {
        for (struct node *i = n->a; i; i = i->next) assign_to(p, i);
    } else if (n->kind == N_NAME) {
        n->op = USE_STORE;
    } else if (n->kind != N_NSREF) {
        jn_fail_syntax(p->m, n->at, "cannot assign to this expression");
    }
}

static struct node *parse_target(struct parser *p, const char *end_name, bool namespaces)
{
    struct node *n = jn_parse_tuple(p, true, true, end_name, false, namespaces);
    assign_to(p, n);
    return n;
}

static struct node *parse_name_target(struct parser *p, enum use use)
{
    const struct token t = expect(p, T_NAME, "a name");
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None" };
    for (size_t i = 0; i < 6; i++)
        if (token_is_name(&t, constants[i])) jn_fail_syntax(p->m, t.at, "cannot assign to %s", constants[i]);
    return jn_parse_variable(p, &t, use);
}

static void parse_body(struct parser *p, const char *const *ends, struct nodes *body);

/* The statements up to one of the names; the name stays. */
static struct node *parse_statements(struct parser *p, struct node *of, const char *const *ends)
{
    struct nodes body = { 0 };
    (void)skip(p, T_COLON);
    expect(p, T_BLOCK_END, "end of statement block");
    parse_body(p, ends, &body);
    if (is(p, T_END)) jn_fail_syntax(p->m, of->at, "the block has no end: expected {%% %s %%}", ends[0]);
    return children(p, of, &body);
}

static struct node *parse_for(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_FOR, at);
    n->a = child(p, n, parse_target(p, "in", false));
    if (!skip_name(p, "in")) unexpected(p, "'in'");
    n->b = child(p, n, jn_parse_tuple(p, false, false, "recursive", false, false));
    if (skip_name(p, "if")) n->e = child(p, n, jn_parse_expression(p));
    n->op = skip_name(p, "recursive");
    n->c = parse_statements(p, n, (const char *const[]){ "endfor", "else", NULL });
    if (is_name(p, "else")) {
        advance(p);
        n->d = parse_statements(p, n, (const char *const[]){ "endfor", NULL });
    }
    advance(p);
    return n;
}

static struct node *parse_if(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_IF, at), *branch = n;
    struct nodes elifs = { 0 };
    for (;;) {
        branch->a = child(p, branch, jn_parse_tuple(p, false, false, NULL, false, false));
        branch->b = parse_statements(p, branch, (const char *const[]){ "endif", "elif", "else", NULL });
        if (branch != n) append(&elifs, branch);
        if (is_name(p, "elif")) {
            branch = make(p, N_IF, p->now.at);
            advance(p);
            continue;
        }
        if (is_name(p, "else")) {
            advance(p);
            n->d = parse_statements(p, n, (const char *const[]){ "endif", NULL });
        }
        advance(p);
        n->c = children(p, n, &elifs);
        return n;
    }
}

static struct node *parse_set(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_SET, at);
    n->a = child(p, n, parse_target(p, NULL, true));
    if (skip(p, T_ASSIGN)) {
        n->b = child(p, n, jn_parse_tuple(p, false, true, NULL, false, false));
        return n;
    }
    n->kind = N_SET_BLOCK;
    n->b = child(p, n, jn_parse_filters(p, NULL, false));
    n->c = parse_statements(p, n, (const char *const[]){ "endset", NULL });
    advance(p);
    return n;
}

static void parse_signature(struct parser *p, struct node *n)
{
    struct nodes parameters = { 0 }, defaults = { 0 };
    expect(p, T_LPAREN, "'('");
    for (bool first = true; !is(p, T_RPAREN); first = false) {
        if (!first) expect(p, T_COMMA, "','");
        struct node *parameter = parse_name_target(p, USE_PARAM);
        for (const struct node *k = parameters.first; k; k = k->next)
            if (k->id == parameter->id) jn_fail_syntax(p->m, parameter->at, "two parameters have one name");
        append(&parameters, parameter);
        if (skip(p, T_ASSIGN))
            append(&defaults, jn_parse_expression(p));
        else if (defaults.first)
            jn_fail_syntax(p->m, parameter->at, "a parameter without a default follows one with a default");
    }
    expect(p, T_RPAREN, "')'");
    n->a = children(p, n, &parameters);
    n->b = children(p, n, &defaults);
}

static struct node *parse_macro(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_MACRO, at);
    const struct node *name = parse_name_target(p, USE_STORE);
    n->name = name->name;
    n->id = name->id;
    parse_signature(p, n);
    n->c = parse_statements(p, n, (const char *const[]){ "endmacro", NULL });
    advance(p);
    return n;
}

static struct node *parse_call_block(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_CALL_BLOCK, at);
    if (is(p, T_LPAREN)) parse_signature(p, n);
    n->d = child(p, n, jn_parse_expression(p));
    if (n->d->kind != N_CALL) jn_fail_syntax(p->m, at, "expected a call");
    n->c = parse_statements(p, n, (const char *const[]){ "endcall", NULL });
    advance(p);
    return n;
}

static struct node *parse_generation(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_CALL_BLOCK, at);
    n->c = parse_statements(p, n, (const char *const[]){ "endgeneration", NULL });
    advance(p);
    return n;
}

static struct node *parse_filter_block(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_FILTER_BLOCK, at);
    n->b = child(p, n, jn_parse_filters(p, NULL, true));
    n->c = parse_statements(p, n, (const char *const[]){ "endfilter", NULL });
    advance(p);
    return n;
}

static struct node *parse_with(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_WITH, at);
    struct nodes targets = { 0 }, values = { 0 };
    while (!is(p, T_BLOCK_END)) {
        if (targets.first) expect(p, T_COMMA, "','");
        append(&targets, parse_target(p, NULL, false));
        expect(p, T_ASSIGN, "'='");
        append(&values, jn_parse_expression(p));
    }
    n->a = children(p, n, &targets);
    n->b = children(p, n, &values);
    n->c = parse_statements(p, n, (const char *const[]){ "endwith", NULL });
    advance(p);
    return n;
}

static struct node *parse_block(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_BLOCK, at);
    const struct token name = expect(p, T_NAME, "a name");
    n->name = token_str(p, &name);
    if (is_name(p, "scoped") || is_name(p, "required"))
        jn_fail_syntax(p->m, p->now.at, "blocks that are scoped or required are not supported");
    n->c = parse_statements(p, n, (const char *const[]){ "endblock", NULL });
    advance(p);
    if (is(p, T_NAME) && p->now.n == name.n && memcmp(p->now.text, name.text, name.n) == 0) advance(p);
    return n;
}

static struct node *parse_print(struct parser *p, uint32_t at)
{
    struct node *n = make(p, N_PRINT, at);
    struct nodes items = { 0 };
    while (!is(p, T_BLOCK_END)) {
        if (items.first) expect(p, T_COMMA, "','");
        append(&items, jn_parse_expression(p));
    }
    n->a = children(p, n, &items);
    return n;
}

static struct node *parse_statement(struct parser *p)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *, uint32_t);
    } statements[] = { { "for", parse_for },         { "if", parse_if },
                       { "set", parse_set },         { "macro", parse_macro },
                       { "call", parse_call_block }, { "filter", parse_filter_block },
                       { "with", parse_with },       { "block", parse_block },
                       { "print", parse_print },     { "generation", parse_generation } };
    static const char *const refused[] = {
        "include", "import", "from", "extends", "autoescape", "do", "trans", "debug"
    };
    const struct token t = p->now;
    if (t.kind != T_NAME)
        jn_fail_syntax(p->m, t.at, "expected the name of a statement, got %s", jn_token_words(p->m, &t));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (is_name(p, refused[i])) jn_fail_syntax(p->m, t.at, "the statement '%s' is not supported", refused[i]);
    advance(p);
    if (token_is_name(&t, "break")) return make(p, N_BREAK, t.at);
    if (token_is_name(&t, "continue")) return make(p, N_CONTINUE, t.at);
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!token_is_name(&t, statements[i].name)) continue;
        enter(p);
        struct node *n = statements[i].parse(p, t.at);
        leave(p);
        return n;
    }
    jn_fail_syntax(p->m, t.at, "unknown statement %s", jn_token_words(p->m, &t));
}

static void parse_body(struct parser *p, const char *const *ends, struct nodes *body)
{
    while (!is(p, T_END)) {
        const struct token t = p->now;
        if (t.kind == T_DATA) {
            struct node *n = make(p, N_DATA, t.at);
            n->v = jn_str_constant(p->m, t.text, t.n, JINJA_TEMPLATE);
            append(body, n);
            advance(p);
        } else if (t.kind == T_VARIABLE_BEGIN) {
            struct node *n = make(p, N_PRINT, t.at);
            advance(p);
            n->a = child(p, n, jn_parse_tuple(p, false, true, NULL, false, false));
            append(body, n);
            expect(p, T_VARIABLE_END, "end of print statement");
        } else {
            advance(p);
            for (const char *const *end = ends; end && *end; end++)
                if (is_name(p, *end)) return;
            append(body, parse_statement(p));
            expect(p, T_BLOCK_END, "end of statement block");
        }
    }
}

struct node *jn_parse(struct jinja_template *t, struct lexer *l)
{
    struct parser p = { .m = &t->m, .t = t, .l = l };
    struct nodes body = { 0 };
    advance(&p);
    parse_body(&p, NULL, &body);
    return body.first;
}
