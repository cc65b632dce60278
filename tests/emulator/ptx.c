/* ptx.c: reads PTX. Declarations when a module is registered; a kernel's instructions at its first launch, with
 * functions that it calls read in place.
 *
 * The grammar is what nvcc writes and what inline assembly adds: scopes in braces with registers and labels of their
 * own. An instruction is looked up by its whole name with all modifiers; what is not in a table is refused by that
 * name, so no modifier is ever ignored. */
#include "emulator.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"

static void *grow(void *p, size_t count, size_t size)
{
    if (count & (count - 1)) return p; /* room for the next power of two is there */
    void *more = realloc(p, (count ? 2 * count : 1) * size);
    if (!more) abort();
    return more;
}

/* ---- text ---------------------------------------------------------------------------------------------- */

struct reader {
    const char *p;
    uint32_t line;
    jmp_buf *failed;
    char *error;
    size_t error_bytes;
};

_Noreturn __attribute__((format(printf, 2, 3))) static void refuse(struct reader *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = snprintf(r->error, r->error_bytes, "line %u of the PTX: ", r->line);
    (void)vsnprintf(r->error + n, r->error_bytes - (size_t)n, format, list);
    va_end(list);
    longjmp(*r->failed, 1);
}

static void skip(struct reader *r)
{
    for (;; r->p++) {
        if (*r->p == '\n')
            r->line++;
        else if (r->p[0] == '/' && r->p[1] == '/') {
            while (r->p[1] && r->p[1] != '\n') r->p++;
        } else if (r->p[0] == '/' && r->p[1] == '*') {
            for (r->p += 2; r->p[0] && (r->p[0] != '*' || r->p[1] != '/'); r->p++)
                if (*r->p == '\n') r->line++;
            r->p++;
        } else if (!isspace((unsigned char)*r->p))
            return;
    }
}

static bool accept(struct reader *r, char c)
{
    skip(r);
    if (*r->p != c) return false;
    r->p++;
    return true;
}
static void expect(struct reader *r, char c)
{
    if (!accept(r, c)) refuse(r, "'%c' expected at \"%.20s\"", c, r->p);
}
static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}

/* A name, with the dots and double colons of instructions; empty: there is none. */
static uint32_t word(struct reader *r, char *out, size_t bytes)
{
    uint32_t n = 0;
    skip(r);
    while (word_char(r->p[n]) && !(r->p[n] == ':' && (r->p[n + 1] != ':' && (n == 0 || r->p[n - 1] != ':')))) n++;
    if (n >= bytes) refuse(r, "a name of %u characters", n);
    memcpy(out, r->p, n);
    out[n] = '\0';
    r->p += n;
    return n;
}
static uint64_t number(struct reader *r)
{
    char *end;
    skip(r);
    const uint64_t v = strtoull(r->p, &end, 0);
    if (end == r->p) refuse(r, "a number expected at \"%.20s\"", r->p);
    while (*end == 'U' || *end == 'L') end++;
    r->p = end;
    return v;
}
static void skip_statement(struct reader *r)
{
    while (*r->p && *r->p != ';') {
        if (*r->p == '\n') r->line++;
        r->p++;
    }
    if (*r->p) r->p++;
}
static void skip_line(struct reader *r)
{
    while (*r->p && *r->p != '\n') r->p++;
}

/* Bits of a register or bytes of a value of a type: ".b32" or ".v4.f32". */
static uint32_t type_bits(struct reader *r, const char *type)
{
    if (!strcmp(type, ".pred")) return 1;
    const char *digits = type + strcspn(type, "0123456789");
    const int bits = atoi(digits);
    if (type[0] != '.' || (bits != 8 && bits != 16 && bits != 32 && bits != 64)) refuse(r, "type %s", type);
    return (uint32_t)bits;
}

/* ---- a variable's declaration, behind .shared, .param and so on ---------------------------------------- */

static struct symbol *declare(struct reader *r, enum symbol_space space)
{
    struct symbol *s = calloc(1, sizeof *s);
    char text[1024];
    uint64_t elements = 1;
    if (!s) abort();
    s->space = space;
    for (;;) {
        word(r, text, sizeof text);
        if (!strcmp(text, ".align"))
            s->align = (uint32_t)number(r);
        else if (!strcmp(text, ".ptr") || !strcmp(text, ".global"))
            continue;
        else
            break;
    }
    s->bytes = type_bits(r, text) / 8;
    if (!s->align) s->align = (uint32_t)s->bytes;
    word(r, text, sizeof text);
    if (!strcmp(text, ".ptr")) {
        do word(r, text, sizeof text);
        while (text[0] == '.' && (strcmp(text, ".align") || (number(r), true)));
    }
    s->name = strdup(text);
    while (accept(r, '[')) {
        elements = *(skip(r), r->p) == ']' ? 0 : number(r);
        expect(r, ']');
    }
    s->bytes *= elements;
    if (space == SYM_SHARED && elements == 0) s->space = SYM_DYNAMIC;
    return s;
}

/* ---- modules ------------------------------------------------------------------------------------------- */

static void global_values(struct reader *r, struct symbol *s)
{
    unsigned char *to = device_alloc(s->bytes);
    if (!to) refuse(r, "no memory for %s", s->name);
    memset(to, 0, s->bytes);
    s->address = (uint64_t)(uintptr_t)to;
    if (!accept(r, '=')) return;
    uint64_t n = 1;
    const char *end = strchr(r->p, ';');
    if (accept(r, '{')) {
        n = 1;
        for (const char *c = r->p; c < end; c++) n += *c == ',';
    }
    const uint64_t size = s->bytes / n; /* every initialiser that nvcc writes is complete */
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t v = number(r);
        memcpy(to + i * size, &v, size < 8 ? size : 8);
        (void)accept(r, ',');
    }
    (void)accept(r, '}');
}

static void skip_body(struct reader *r)
{
    int depth = 0;
    do {
        if (*r->p == '{') depth++;
        if (*r->p == '}') depth--;
        if (*r->p == '\n') r->line++;
        if (!*r->p) refuse(r, "the text ends inside a function");
        r->p++;
    } while (depth);
}

static void read_params(struct reader *r, struct kernel *k, struct symbol **list)
{
    char text[64];
    if (!accept(r, '(')) return;
    while (!accept(r, ')')) {
        word(r, text, sizeof text);
        if (strcmp(text, ".param")) refuse(r, "%s among the parameters", text);
        struct symbol *s = declare(r, SYM_PARAM);
        k->param_bytes = (k->param_bytes + s->align - 1) / s->align * s->align;
        s->address = k->param_bytes;
        k->params = grow(k->params, k->n_params, sizeof *k->params);
        k->params[k->n_params++] = (struct param){ k->param_bytes, (uint32_t)s->bytes };
        k->param_bytes += (uint32_t)s->bytes;
        s->next = *list;
        *list = s;
        (void)accept(r, ',');
    }
}

static void read_entry(struct reader *r, struct module *m)
{
    char text[1024];
    struct symbol *unused = NULL;
    m->kernels = grow(m->kernels, m->n_kernels, sizeof *m->kernels);
    struct kernel *k = &m->kernels[m->n_kernels++];
    memset(k, 0, sizeof *k);
    k->module = m;
    k->max_threads = 1024;
    k->min_blocks = 1;
    word(r, text, sizeof text);
    k->name = strdup(text);
    k->text = r->p;
    k->line = r->line;
    read_params(r, k, &unused);
    while (!(skip(r), *r->p == '{')) {
        uint32_t v[3] = { 1, 1, 1 }, n = 0;
        word(r, text, sizeof text);
        if (text[0] != '.') refuse(r, "\"%.20s\" behind the parameters of %s", r->p, k->name);
        while (skip(r), isdigit((unsigned char)*r->p)) {
            v[n < 3 ? n++ : 2] = (uint32_t)number(r);
            (void)accept(r, ',');
        }
        if (!strcmp(text, ".maxntid") || !strcmp(text, ".reqntid"))
            k->max_threads = v[0] * v[1] * v[2];
        else if (!strcmp(text, ".minnctapersm"))
            k->min_blocks = v[0];
        else if (!strcmp(text, ".reqnctapercluster"))
            memcpy(k->cluster, v, sizeof v);
        else if (strcmp(text, ".maxnreg") && strcmp(text, ".explicitcluster") && strcmp(text, ".maxclusterrank"))
            refuse(r, "directive %s of %s", text, k->name);
    }
    skip_body(r);
}

static void read_function(struct reader *r, struct module *m)
{
    char text[1024];
    struct function *f = calloc(1, sizeof *f);
    if (!f) abort();
    f->text = (skip(r), r->p);
    f->line = r->line;
    if (accept(r, '(')) {
        while (*r->p && *r->p != ')') r->p++;
        expect(r, ')');
    }
    word(r, text, sizeof text);
    f->name = strdup(text);
    f->name_bytes = (uint32_t)strlen(text);
    while (*r->p && *r->p != ';' && *r->p != '{') {
        if (*r->p == '\n') r->line++;
        r->p++;
    }
    if (accept(r, ';')) { /* declared only */
        free(f);
        return;
    }
    skip_body(r);
    f->next = m->functions;
    m->functions = f;
}

struct module *module_read(const char *ptx)
{
    char error[512], text[128];
    jmp_buf failed;
    struct reader r = { ptx, 1, &failed, error, sizeof error };
    struct module *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->ptx = ptx;
    if (setjmp(failed)) {
        (void)fprintf(stderr, "emulator: a module cannot be read: %s\n", error);
        exit(2);
    }
    while (skip(&r), *r.p) {
        word(&r, text, sizeof text);
        if (!strcmp(text, ".target")) {
            word(&r, text, sizeof text);
            m->compute = strncmp(text, "sm_", 3) ? 0 : (uint32_t)strtoul(text + 3, NULL, 10);
            skip_line(&r);
        } else if (!strcmp(text, ".version") || !strcmp(text, ".address_size") || !strcmp(text, ".file"))
            skip_line(&r);
        else if (!strcmp(text, ".visible") || !strcmp(text, ".weak") || !strcmp(text, ".extern"))
            continue;
        else if (!strcmp(text, ".entry"))
            read_entry(&r, m);
        else if (!strcmp(text, ".func"))
            read_function(&r, m);
        else if (!strcmp(text, ".section"))
            break; /* debugging information, at the end */
        else if (!strcmp(text, ".pragma"))
            skip_statement(&r);
        else if (!strcmp(text, ".global") || !strcmp(text, ".const") || !strcmp(text, ".shared")) {
            struct symbol *s = declare(&r, strcmp(text, ".shared") ? SYM_GLOBAL : SYM_SHARED);
            if (s->space == SYM_GLOBAL) global_values(&r, s);
            expect(&r, ';');
            s->next = m->symbols;
            m->symbols = s;
        } else
            refuse(&r, "\"%s%.20s\" is not understood", text, r.p);
    }
    return m;
}

struct kernel *module_find(struct module *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_kernels; i++)
        if (!strcmp(m->kernels[i].name, name)) return &m->kernels[i];
    return NULL;
}

/* ---- a kernel's body ----------------------------------------------------------------------------------- */

struct declaration {
    struct declaration *next;
    char *name;
    bool many;
    uint32_t count, bits, first;
};
struct alias {
    struct alias *next;
    char *name;
    struct symbol *symbol;
};
struct scope {
    struct scope *outer;
    struct declaration *registers;
    struct symbol *symbols;
    struct alias *aliases;
};
struct label {
    const struct scope *scope;
    char *name;
    uint32_t at;
};
struct jump {
    const struct scope *scope;
    char *name;
    uint32_t insn, line;
};
enum operand_kind { OPERAND_REGISTER, OPERAND_VALUE, OPERAND_SINK };
struct operand {
    enum operand_kind kind;
    bool memory, after_bar;
    uint32_t id;
    uint64_t value;
    int64_t offset;
    const struct symbol *symbol;
    uint8_t special;
};
struct body {
    struct reader r;
    struct kernel *k;
    struct virtual_insn *code;
    uint32_t n_code;
    int32_t *operands; /* of all instructions: register, or -1 - constant */
    uint32_t n_operands;
    struct virtual_register *registers;
    uint32_t n_registers, n_labels, n_jumps, n_scopes;
    struct label *labels;
    struct jump *jumps;
    struct scope **scopes;
    struct symbol *locals;
    const struct scope *return_to; /* inside a called function: its scope, whose label "return" is the end */
    int depth;
};

static const struct {
    const char *name;
    enum special special;
} specials[] = {
    { "%tid.x", TID_X },
    { "%tid.y", TID_Y },
    { "%tid.z", TID_Z },
    { "%ntid.x", NTID_X },
    { "%ntid.y", NTID_Y },
    { "%ntid.z", NTID_Z },
    { "%ctaid.x", CTAID_X },
    { "%ctaid.y", CTAID_Y },
    { "%ctaid.z", CTAID_Z },
    { "%nctaid.x", NCTAID_X },
    { "%nctaid.y", NCTAID_Y },
    { "%nctaid.z", NCTAID_Z },
    { "%laneid", LANEID },
    { "%warpid", WARPID },
    { "%nwarpid", NWARPID },
    { "%smid", SMID },
    { "%nsmid", NSMID },
    { "%lanemask_eq", LANEMASK_EQ },
    { "%lanemask_lt", LANEMASK_LT },
    { "%lanemask_le", LANEMASK_LE },
    { "%lanemask_gt", LANEMASK_GT },
    { "%lanemask_ge", LANEMASK_GE },
    { "%cluster_ctarank", CLUSTER_CTARANK },
    { "%cluster_nctarank", CLUSTER_NCTARANK },
    { "%cluster_ctaid.x", CLUSTER_CTAID_X },
    { "%cluster_ctaid.y", CLUSTER_CTAID_Y },
    { "%cluster_ctaid.z", CLUSTER_CTAID_Z },
    { "%cluster_nctaid.x", CLUSTER_NCTAID_X },
    { "%cluster_nctaid.y", CLUSTER_NCTAID_Y },
    { "%cluster_nctaid.z", CLUSTER_NCTAID_Z },
    { "%clusterid.x", CLUSTERID_X },
    { "%clusterid.y", CLUSTERID_Y },
    { "%clusterid.z", CLUSTERID_Z },
    { "%nclusterid.x", NCLUSTERID_X },
    { "%nclusterid.y", NCLUSTERID_Y },
    { "%nclusterid.z", NCLUSTERID_Z },
    { "%dynamic_smem_size", DYNAMIC_SMEM },
    { "%clock", CLOCK },
    { "%clock64", CLOCK64 },
    { "%globaltimer", GLOBALTIMER },
};

static struct scope *open_scope(struct body *b, struct scope *outer)
{
    struct scope *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->outer = outer;
    b->scopes = grow(b->scopes, b->n_scopes, sizeof *b->scopes);
    return b->scopes[b->n_scopes++] = s;
}

static uint32_t new_register(struct body *b, uint32_t bits)
{
    b->registers = grow(b->registers, b->n_registers, sizeof *b->registers);
    b->registers[b->n_registers] = (struct virtual_register){ (uint8_t)(bits == 1 ? 1 : bits == 64 ? 64 : 32), -1 };
    return b->n_registers++;
}

static void declare_registers(struct body *b, struct scope *s)
{
    char text[256];
    word(&b->r, text, sizeof text);
    const uint32_t bits = type_bits(&b->r, text);
    do {
        struct declaration *d = calloc(1, sizeof *d);
        if (!d) abort();
        word(&b->r, text, sizeof text);
        *d = (struct declaration){ s->registers, strdup(text), false, 1, bits, b->n_registers };
        if (accept(&b->r, '<')) {
            d->many = true;
            d->count = (uint32_t)number(&b->r);
            expect(&b->r, '>');
        }
        for (uint32_t i = 0; i < d->count; i++) (void)new_register(b, bits);
        s->registers = d;
    } while (accept(&b->r, ','));
    expect(&b->r, ';');
}

static bool find_register(const struct scope *s, const char *name, uint32_t *id)
{
    const size_t bytes = strlen(name);
    size_t stem = bytes;
    while (stem && isdigit((unsigned char)name[stem - 1])) stem--;
    for (; s; s = s->outer)
        for (const struct declaration *d = s->registers; d; d = d->next) {
            if (!d->many && !strcmp(d->name, name)) {
                *id = d->first;
                return true;
            }
            if (d->many && stem < bytes && strlen(d->name) == stem && !strncmp(d->name, name, stem)) {
                const unsigned long n = strtoul(name + stem, NULL, 10);
                if (n >= d->count) continue;
                *id = d->first + (uint32_t)n;
                return true;
            }
        }
    return false;
}

static struct symbol *find_symbol(const struct body *b, const struct scope *s, const char *name)
{
    for (; s; s = s->outer) {
        for (const struct alias *a = s->aliases; a; a = a->next)
            if (!strcmp(a->name, name)) return a->symbol;
        for (struct symbol *y = s->symbols; y; y = y->next)
            if (!strcmp(y->name, name)) return y;
    }
    for (struct symbol *y = b->k->module->symbols; y; y = y->next)
        if (!strcmp(y->name, name)) return y;
    return NULL;
}

/* A variable in local memory: the kernel's own, and the parameters of calls. */
static struct symbol *place_local(struct body *b, struct scope *s, struct symbol *y)
{
    y->space = SYM_LOCAL;
    b->k->local_bytes = (b->k->local_bytes + y->align - 1) / y->align * y->align;
    y->address = b->k->local_bytes;
    b->k->local_bytes += (uint32_t)y->bytes;
    y->next = s->symbols;
    return s->symbols = y;
}

static void place_shared(struct kernel *k, struct symbol *y)
{
    const uint32_t align = y->align ? y->align : 1;
    if (y->used) return;
    y->used = true;
    if (y->space == SYM_DYNAMIC) {
        if (k->dynamic_at < align) k->dynamic_at = align; /* until the kernel is read: the largest alignment */
        return;
    }
    k->shared_bytes = (k->shared_bytes + align - 1) / align * align;
    y->address = SHARED_BASE + k->shared_bytes;
    k->shared_bytes += (uint32_t)y->bytes;
}

static int32_t constant(struct body *b, uint8_t bits, const struct operand *o)
{
    struct kernel *k = b->k;
    const struct constant c = { o->special, bits, bits == 32 ? (uint32_t)o->value : o->value, o->symbol, 0 };
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const struct constant *have = &k->constants[i];
        if (have->special == c.special && have->bits == c.bits && have->value == c.value && have->symbol == c.symbol)
            return -1 - (int32_t)i;
    }
    k->constants = grow(k->constants, k->n_constants, sizeof *k->constants);
    k->constants[k->n_constants] = c;
    return -1 - (int32_t)k->n_constants++;
}

/* ---- operands ------------------------------------------------------------------------------------------ */

static struct operand one_operand(struct body *b, const struct scope *s)
{
    struct reader *r = &b->r;
    struct operand o = { .special = SPECIALS };
    char text[1024];
    skip(r);
    if (*r->p == '-' || isdigit((unsigned char)*r->p)) {
        if (r->p[0] == '0' && (r->p[1] == 'f' || r->p[1] == 'd')) {
            char *end;
            o.value = strtoull(r->p + 2, &end, 16);
            r->p = end;
        } else
            o.value = number(r);
        o.kind = OPERAND_VALUE;
        return o;
    }
    if (*r->p == '!') refuse(r, "a negated predicate as an operand");
    word(r, text, sizeof text);
    if (!strcmp(text, "_")) {
        o.kind = OPERAND_SINK;
        return o;
    }
    if (find_register(s, text, &o.id)) {
        o.kind = OPERAND_REGISTER;
        return o;
    }
    o.kind = OPERAND_VALUE;
    for (uint32_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (!strcmp(specials[i].name, text)) {
            o.special = (uint8_t)specials[i].special;
            if (o.special >= CLOCK) b->k->clocks = true;
            return o;
        }
    struct symbol *y = find_symbol(b, s, text);
    if (!y) refuse(r, "%s is not declared", text);
    if (y->space == SYM_SHARED || y->space == SYM_DYNAMIC) place_shared(b->k, y);
    o.symbol = y;
    return o;
}

enum { MAX_OPERANDS = 300 };

static void add_operand(struct body *b, struct operand *list, uint32_t *n, struct operand o)
{
    if (*n == MAX_OPERANDS) refuse(&b->r, "an instruction of more than %d operands", MAX_OPERANDS);
    list[(*n)++] = o;
}

/* All operands of an instruction, vectors taken apart; shape: 'v' for a vector's place, 's' else, in order. */
static uint32_t read_operands(struct body *b, const struct scope *s, struct operand *list, char shape[16])
{
    struct reader *r = &b->r;
    uint32_t n = 0, places = 0;
    shape[0] = '\0';
    while (!(skip(r), *r->p == ';')) {
        const bool vector = accept(r, '{');
        if (vector) {
            do add_operand(b, list, &n, one_operand(b, s));
            while (accept(r, ','));
            expect(r, '}');
        } else if (accept(r, '[')) {
            struct operand o = one_operand(b, s);
            o.memory = true;
            if (accept(r, '+'))
                o.offset = (int64_t)number(r);
            else if (skip(r), *r->p == '-')
                o.offset = (int64_t)number(r);
            expect(r, ']');
            add_operand(b, list, &n, o);
        } else {
            add_operand(b, list, &n, one_operand(b, s));
            if (accept(r, '|')) {
                struct operand o = one_operand(b, s);
                o.after_bar = true;
                add_operand(b, list, &n, o);
            } else if (list[n - 1].symbol && accept(r, '+'))
                list[n - 1].value += number(r);
        }
        if (places < 15) {
            shape[places++] = vector ? 'v' : 's';
            shape[places] = '\0';
        }
        if (!accept(r, ',')) break;
    }
    return n;
}

/* Of the entries of that name the one with as many operands. */
const struct instruction *find_instruction(const char *name, uint32_t n_operands)
{
    static const struct instruction *const tables[] = { plain_instructions, float_instructions, memory_instructions,
                                                        warp_instructions, wgmma_instructions };
    for (uint32_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct instruction *e = tables[t]; e->name; e++) {
            uint32_t most = 0, optional = 0;
            if (strcmp(e->name, name)) continue;
            for (const char *c = e->signature; *c; c++) most += *c != ':' && *c != '_', optional += *c == '_';
            if (n_operands <= most && n_operands + optional >= most) return e;
        }
    return NULL;
}

/* ---- instructions -------------------------------------------------------------------------------------- */

static void encode(struct body *b, struct virtual_insn *v, struct insn *i, const char *name, const char *signature,
                   struct operand *o, uint32_t n)
{
    uint32_t at = 0, memories = 0, defs = 0;
    bool sources = false;
    v->first = b->n_operands;
    for (const char *c = signature; *c; c++) {
        if (*c == ':') {
            sources = true;
            defs = v->n;
            continue;
        }
        const bool optional = c[1] == '_';
        struct operand none = { .kind = OPERAND_SINK, .special = SPECIALS }, *x = at < n ? &o[at] : NULL;
        if (optional && (!x || !x->after_bar))
            x = &none;
        else
            at++;
        if (!x) refuse(&b->r, "%s: %u operands, signature %s", name, n, signature);
        if (x->memory != (*c == 'm'))
            refuse(&b->r, "%s: operand %u is %san address", name, at, x->memory ? "" : "not ");
        uint8_t bits = *c == 'p' ? 1 : *c == 'l' ? 64 : 32;
        if (*c == 'm') {
            const bool wide = x->kind == OPERAND_REGISTER ? b->registers[x->id].bits == 64 : true;
            bits = wide ? 64 : 32;
            if (wide) i->wide |= (uint8_t)(1u << memories);
            if (x->offset != (int32_t)x->offset || memories == 3) refuse(&b->r, "%s: address", name);
            i->imm[memories++] = (int32_t)x->offset;
        }
        int32_t operand;
        if (x->kind == OPERAND_SINK) {
            if (sources) refuse(&b->r, "%s: _ as a source", name);
            operand = (int32_t)new_register(b, bits);
        } else if (x->kind == OPERAND_REGISTER) {
            if (b->registers[x->id].bits != bits)
                refuse(&b->r, "%s: operand %u is a register of %u bits, %u expected", name, at,
                       b->registers[x->id].bits, bits);
            operand = (int32_t)x->id;
        } else {
            if (!sources) refuse(&b->r, "%s: a constant as destination", name);
            operand = constant(b, bits, x);
        }
        b->operands = grow(b->operands, b->n_operands, sizeof *b->operands);
        b->operands[b->n_operands++] = operand;
        v->n++;
        c += optional;
    }
    if (at != n) refuse(&b->r, "%s: %u operands, signature %s", name, n, signature);
    for (uint32_t d = 0; signature[d] == 'a'; d++) { /* sums are read, too */
        b->operands = grow(b->operands, b->n_operands, sizeof *b->operands);
        b->operands[b->n_operands] = b->operands[v->first + d];
        b->n_operands++;
        v->n++;
    }
    v->defs = defs;
}

static void add_code(struct body *b, struct insn i, struct virtual_insn v)
{
    struct kernel *k = b->k;
    i.line = b->r.line;
    k->code = grow(k->code, k->n_code, sizeof *k->code);
    k->code[k->n_code++] = i;
    b->code = grow(b->code, b->n_code, sizeof *b->code);
    b->code[b->n_code++] = v;
}

static enum outcome run_jump(struct warp *w, const struct insn *i)
{
    (void)w, (void)i;
    return JUMP;
}
static enum outcome run_exit(struct warp *w, const struct insn *i)
{
    (void)w, (void)i;
    return EXIT;
}

static void add_jump(struct body *b, const struct scope *s, const char *to, int32_t guard, bool negated)
{
    b->jumps = grow(b->jumps, b->n_jumps, sizeof *b->jumps);
    b->jumps[b->n_jumps++] = (struct jump){ s, strdup(to), b->n_code, b->r.line };
    add_code(b, (struct insn){ .run = run_jump, .guard = guard, .negated = negated },
             (struct virtual_insn){ .guard = guard, .jumps = true, .falls_through = guard >= 0 });
}

static void add_label(struct body *b, const struct scope *s, const char *name)
{
    b->labels = grow(b->labels, b->n_labels, sizeof *b->labels);
    b->labels[b->n_labels++] = (struct label){ s, strdup(name), b->n_code };
}

static void read_scope(struct body *b, struct scope *s);

static void bind(struct body *b, struct scope *s, struct symbol *const *actual, uint32_t n_actual)
{
    char text[1024];
    uint32_t n = 0;
    if (!accept(&b->r, '(')) return;
    while (!accept(&b->r, ')')) {
        word(&b->r, text, sizeof text); /* .param */
        struct symbol *y = declare(&b->r, SYM_PARAM);
        struct alias *a = calloc(1, sizeof *a);
        if (!a || n == n_actual) refuse(&b->r, "a call with other parameters than its function");
        *a = (struct alias){ s->aliases, y->name, actual[n++] };
        s->aliases = a;
        (void)accept(&b->r, ',');
    }
}

static uint32_t actuals(struct body *b, const struct scope *s, struct symbol **list)
{
    char text[1024];
    uint32_t n = 0;
    if (!accept(&b->r, '(')) return 0;
    while (!accept(&b->r, ')')) {
        word(&b->r, text, sizeof text);
        if (n == 16 || !(list[n++] = find_symbol(b, s, text))) refuse(&b->r, "a call's parameter %s", text);
        (void)accept(&b->r, ',');
    }
    return n;
}

/* The function's text in the place of the call. */
static void read_call(struct body *b, struct scope *outer)
{
    struct symbol *results[16], *params[16];
    char text[1024];
    const uint32_t n_results = actuals(b, outer, results);
    if (n_results) expect(&b->r, ',');
    word(&b->r, text, sizeof text);
    const uint32_t n_params = accept(&b->r, ',') ? actuals(b, outer, params) : 0;
    expect(&b->r, ';');
    const struct function *f = b->k->module->functions;
    while (f && strcmp(f->name, text)) f = f->next;
    if (!f) refuse(&b->r, "call of %s, which has no body here", text);
    if (++b->depth > 8) refuse(&b->r, "calls nested deeper than 8: recursion?");
    const struct reader back = b->r;
    const struct scope *return_to = b->return_to;
    struct scope *s = open_scope(b, NULL);
    b->r.p = f->text;
    b->r.line = f->line;
    bind(b, s, results, n_results);
    word(&b->r, text, sizeof text);
    bind(b, s, params, n_params);
    while (!(skip(&b->r), *b->r.p == '{')) b->r.p++;
    expect(&b->r, '{');
    b->return_to = s;
    read_scope(b, s);
    add_label(b, s, "return");
    b->return_to = return_to;
    b->depth--;
    b->r = back;
}

static void read_instruction(struct body *b, struct scope *s, const char *name, int32_t guard, bool negated)
{
    static struct operand list[MAX_OPERANDS]; /* launches are serialized */
    char text[1024], shape[16];
    if (!strcmp(name, "ret") || !strcmp(name, "exit")) {
        expect(&b->r, ';');
        if (b->return_to && name[0] == 'r') {
            add_jump(b, b->return_to, "return", guard, negated);
            return;
        }
        add_code(b, (struct insn){ .run = run_exit, .guard = guard, .negated = negated },
                 (struct virtual_insn){ .guard = guard, .falls_through = guard >= 0 });
        return;
    }
    if (!strcmp(name, "bra") || !strcmp(name, "bra.uni")) {
        word(&b->r, text, sizeof text);
        expect(&b->r, ';');
        add_jump(b, s, text, guard, negated);
        return;
    }
    if (!strcmp(name, "call.uni") || !strcmp(name, "call")) {
        if (guard >= 0) refuse(&b->r, "a guarded call");
        read_call(b, s);
        return;
    }
    struct virtual_insn v = { .guard = guard, .falls_through = true };
    struct insn i = { .guard = guard, .negated = negated };
    struct form form;
    const uint32_t n = read_operands(b, s, list, shape);
    char full[160];
    (void)snprintf(full, sizeof full, "%.120s", name);
    if (!strncmp(name, "mov.", 4) && shape[0] && shape[0] != shape[1])
        (void)snprintf(full, sizeof full, "%.120s.%s%u", name, shape[0] == 'v' ? "unpack" : "pack", n - 1);
    uint32_t bits = 32;
    for (uint32_t o = 0; o < n && list[o].kind == OPERAND_REGISTER && !list[o].memory; o++)
        if (b->registers[list[o].id].bits == 64) bits = 64;
    if (memory_form(full, bits, &form)) {
        i.run = form.run;
        i.vector = form.vector;
        i.space = form.space;
        const struct operand *at = NULL;
        for (uint32_t o = 0; o < n && !at; o++) at = list[o].memory ? &list[o] : NULL;
        if (i.space == SPACE_PARAM && at && at->symbol && at->symbol->space == SYM_LOCAL) i.space = SPACE_LOCAL;
        encode(b, &v, &i, full, form.signature, list, n);
    } else {
        const struct instruction *e = find_instruction(full, n);
        if (!e) refuse(&b->r, "the emulator has no instruction %s with %u operands", full, n);
        i.run = e->run;
        i.collective = e->collective;
        encode(b, &v, &i, full, e->signature, list, n);
    }
    expect(&b->r, ';');
    i.n_args = (uint8_t)(v.n < 255 ? v.n : 255);
    add_code(b, i, v);
}

static void read_statement(struct body *b, struct scope *s)
{
    struct reader *r = &b->r;
    char text[1024];
    int32_t guard = -1;
    bool negated = false;
    if (accept(r, '@')) {
        uint32_t id;
        negated = accept(r, '!');
        word(r, text, sizeof text);
        if (!find_register(s, text, &id) || b->registers[id].bits != 1) refuse(r, "guard %s", text);
        guard = (int32_t)id;
    }
    if (!word(r, text, sizeof text)) refuse(r, "\"%.20s\" is not understood", r->p);
    if (guard < 0 && *r->p == ':') {
        r->p++;
        add_label(b, s, text);
    } else if (text[0] != '.')
        read_instruction(b, s, text, guard, negated);
    else if (!strcmp(text, ".reg"))
        declare_registers(b, s);
    else if (!strcmp(text, ".loc"))
        skip_line(r);
    else if (!strcmp(text, ".pragma"))
        skip_statement(r);
    else if (!strcmp(text, ".local") || !strcmp(text, ".param")) {
        (void)place_local(b, s, declare(r, SYM_LOCAL));
        expect(r, ';');
    } else if (!strcmp(text, ".shared")) {
        struct symbol *y = declare(r, SYM_SHARED);
        expect(r, ';');
        y->next = s->symbols;
        s->symbols = y;
    } else
        refuse(r, "directive %s", text);
}

/* Behind the opening brace, up to and with the closing one. */
static void read_scope(struct body *b, struct scope *s)
{
    while (!accept(&b->r, '}')) {
        if (!*b->r.p) refuse(&b->r, "the text ends inside a kernel");
        if (accept(&b->r, ';')) continue;
        if (accept(&b->r, '{'))
            read_scope(b, open_scope(b, s));
        else
            read_statement(b, s);
    }
}

/* ---- putting it together ------------------------------------------------------------------------------- */

static void resolve_jumps(struct body *b)
{
    for (uint32_t j = 0; j < b->n_jumps; j++) {
        const struct jump *jump = &b->jumps[j];
        int64_t to = -1;
        for (const struct scope *s = jump->scope; s && to < 0; s = s->outer)
            for (uint32_t l = 0; l < b->n_labels && to < 0; l++)
                if (b->labels[l].scope == s && !strcmp(b->labels[l].name, jump->name)) to = b->labels[l].at;
        b->r.line = jump->line;
        if (to < 0) refuse(&b->r, "label %s is nowhere", jump->name);
        b->k->code[jump->insn].imm[0] = (int32_t)to;
        b->code[jump->insn].target = (int32_t)to;
    }
}

static void place_constants(struct kernel *k)
{
    for (uint32_t i = 0; i < k->n_constants; i++) {
        struct constant *c = &k->constants[i];
        if (c->bits == 1) continue;
        c->at = (int32_t)(k->register_bytes + k->constant_bytes);
        k->constant_bytes += (uint32_t)c->bits * LANES / 8;
    }
    if (!(k->constant_values = calloc(1, k->constant_bytes + 1))) abort();
    for (uint32_t i = 0; i < k->n_constants; i++) {
        const struct constant *c = &k->constants[i];
        const struct symbol *y = c->symbol;
        const uint64_t v = c->value + (!y ? 0 : y->space == SYM_DYNAMIC ? k->dynamic_at : y->address);
        unsigned char *to = k->constant_values + c->at - (int32_t)k->register_bytes;
        if (c->bits == 32) EACH_LANE((uint32_t *)(void *)to)[l] = (uint32_t)v;
        if (c->bits == 64) EACH_LANE((uint64_t *)(void *)to)[l] = v;
    }
}

static void finish(struct body *b)
{
    struct kernel *k = b->k;
    uint32_t count[3]; /* of 1, 32 and 64 bits */
    add_code(b, (struct insn){ .run = run_exit, .guard = -1 },
             (struct virtual_insn){ .guard = -1 }); /* behind the last label */
    resolve_jumps(b);
    assign_slots(b->code, b->n_code, b->operands, b->registers, b->n_registers, count);
    k->register_bytes = count[1] * 4 * LANES + count[2] * 8 * LANES;
    const uint32_t align = k->dynamic_at ? k->dynamic_at : 16;
    k->dynamic_at = (SHARED_BASE + k->shared_bytes + align - 1) / align * align;
    place_constants(k);
    uint32_t constant_predicates = 0;
    for (uint32_t i = 0; i < k->n_constants; i++)
        if (k->constants[i].bits == 1) k->constants[i].at = (int32_t)(count[0] + constant_predicates++);
    k->n_predicates = count[0] + constant_predicates;
    if (!(k->args = calloc(b->n_operands + 1, sizeof *k->args))) abort();
    for (uint32_t i = 0; i < b->n_operands; i++) {
        const int32_t o = b->operands[i];
        if (o < 0)
            k->args[i] = k->constants[-1 - o].at;
        else if (b->registers[o].bits == 64)
            k->args[i] = (int32_t)(count[1] * 4 * LANES) + b->registers[o].slot * 8 * LANES;
        else
            k->args[i] = b->registers[o].slot * (b->registers[o].bits == 1 ? 1 : 4 * LANES);
    }
    for (uint32_t i = 0; i < k->n_code; i++) {
        k->code[i].arg = k->args + b->code[i].first;
        if (k->code[i].guard >= 0) k->code[i].guard = b->registers[k->code[i].guard].slot;
    }
}

static void free_body(struct body *b)
{
    for (uint32_t i = 0; i < b->n_labels; i++) free(b->labels[i].name);
    for (uint32_t i = 0; i < b->n_jumps; i++) free(b->jumps[i].name);
    for (uint32_t i = 0; i < b->n_scopes; i++) {
        for (struct declaration *d = b->scopes[i]->registers, *next; d; d = next) {
            next = d->next;
            free(d->name);
            free(d);
        }
        free(b->scopes[i]); /* symbols stay: constants name them */
    }
    free(b->labels);
    free(b->jumps);
    free(b->scopes);
    free(b->code);
    free(b->operands);
    free(b->registers);
}

bool kernel_read(struct kernel *k, char *error, size_t error_bytes)
{
    jmp_buf failed;
    static struct body b; /* launches are serialized */
    char text[256];
    struct kernel scratch = { 0 };
    if (k->parsed) return true;
    memset(&b, 0, sizeof b);
    b.r = (struct reader){ k->text, k->line, &failed, error, error_bytes };
    b.k = k;
    for (struct symbol *y = k->module->symbols; y; y = y->next) y->used = false;
    if (setjmp(failed)) return false;
    struct scope *params = open_scope(&b, NULL);
    read_params(&b.r, &scratch, &params->symbols);
    free(scratch.params);
    while (!(skip(&b.r), *b.r.p == '{')) {
        if (*b.r.p == ',' || isdigit((unsigned char)*b.r.p))
            b.r.p++;
        else
            word(&b.r, text, sizeof text);
    }
    expect(&b.r, '{');
    read_scope(&b, open_scope(&b, params));
    finish(&b);
    free_body(&b);
    return k->parsed = true;
}
