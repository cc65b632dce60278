/* tests.c: what `is` asks. */
#include "filters.h"

enum test {
    T_ODD,
    T_EVEN,
    T_DIVISIBLEBY,
    T_DEFINED,
    T_UNDEFINED,
    T_FILTER,
    T_TEST,
    T_NONE,
    T_BOOLEAN,
    T_FALSE,
    T_TRUE,
    T_INTEGER,
    T_FLOAT,
    T_LOWER,
    T_UPPER,
    T_STRING,
    T_MAPPING,
    T_NUMBER,
    T_SEQUENCE,
    T_ITERABLE,
    T_CALLABLE,
    T_SAMEAS,
    T_ESCAPED,
    T_IN,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE
};

static const struct {
    const char *name;
    uint8_t id;
    const char *parameters;
} tests[] = { { "odd", T_ODD, "" },
              { "even", T_EVEN, "" },
              { "divisibleby", T_DIVISIBLEBY, "num" },
              { "defined", T_DEFINED, "" },
              { "undefined", T_UNDEFINED, "" },
              { "filter", T_FILTER, "" },
              { "test", T_TEST, "" },
              { "none", T_NONE, "" },
              { "boolean", T_BOOLEAN, "" },
              { "false", T_FALSE, "" },
              { "true", T_TRUE, "" },
              { "integer", T_INTEGER, "" },
              { "float", T_FLOAT, "" },
              { "lower", T_LOWER, "" },
              { "upper", T_UPPER, "" },
              { "string", T_STRING, "" },
              { "mapping", T_MAPPING, "" },
              { "number", T_NUMBER, "" },
              { "sequence", T_SEQUENCE, "" },
              { "iterable", T_ITERABLE, "" },
              { "callable", T_CALLABLE, "/" },
              { "sameas", T_SAMEAS, "other" },
              { "escaped", T_ESCAPED, "" },
              { "in", T_IN, "seq" },
              { "==", T_EQ, "/b" },
              { "eq", T_EQ, "/b" },
              { "equalto", T_EQ, "/b" },
              { "!=", T_NE, "/b" },
              { "ne", T_NE, "/b" },
              { ">", T_GT, "/b" },
              { "gt", T_GT, "/b" },
              { "greaterthan", T_GT, "/b" },
              { "ge", T_GE, "/b" },
              { ">=", T_GE, "/b" },
              { "<", T_LT, "/b" },
              { "lt", T_LT, "/b" },
              { "lessthan", T_LT, "/b" },
              { "<=", T_LE, "/b" },
              { "le", T_LE, "/b" } };

int jn_test_find(const struct str *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (jn_str_is(name, tests[i].name)) return (int)i;
    return -1;
}

static bool divides(struct vm *m, val v, val by, int64_t rest)
{
    return jn_equal(m, jn_binary(m, BIN_MOD, v, by), jn_v_int(rest));
}

/* Python's `is`: the same object. Small integers and what has one object alone are always the same. */
static bool same_object(val a, val b)
{
    if (a.kind != b.kind) return false;
    switch ((enum kind)a.kind) {
    case V_NONE: return true;
    case V_BOOL: return a.u.b == b.u.b;
    case V_INT: return a.u.i == b.u.i && a.u.i >= -5 && a.u.i <= 256;
    case V_FLOAT: return false;
    case V_STRING: return a.u.s == b.u.s || (a.u.s->n < 2 && jn_str_same(a.u.s, b.u.s));
    case V_FUNCTION: return a.aux == b.aux;
    default: return a.u.list == b.u.list;
    }
}

static bool is_callable(val v)
{
    switch ((enum kind)v.kind) {
    case V_MACRO:
    case V_METHOD:
    case V_FUNCTION:
    case V_LOOP:
    case V_JOINER:
    case V_UNDEFINED: return true;
    default: return false;
    }
}

static bool is_sequence(val v)
{
    switch ((enum kind)v.kind) {
    case V_STRING:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_UNDEFINED: return true;
    default: return false;
    }
}

static bool names(struct vm *m, val v, int (*find)(const struct str *))
{
    jn_check_key(m, v);
    return v.kind == V_STRING && find(v.u.s) >= 0;
}

bool jn_test_call(struct vm *m, unsigned id, val v, const struct args *a)
{
    val b = jn_v_missing();
    jn_bind(m, tests[id].name, a, tests[id].parameters, *tests[id].parameters && tests[id].id != T_CALLABLE, &b);
    switch ((enum test)tests[id].id) {
    case T_ODD: return divides(m, v, jn_v_int(2), 1);
    case T_EVEN: return divides(m, v, jn_v_int(2), 0);
    case T_DIVISIBLEBY: return divides(m, v, b, 0);
    case T_DEFINED: return !jn_is_undefined(v);
    case T_UNDEFINED: return jn_is_undefined(v);
    case T_FILTER: return names(m, v, jn_filter_find);
    case T_TEST: return names(m, v, jn_test_find);
    case T_NONE: return v.kind == V_NONE;
    case T_BOOLEAN: return v.kind == V_BOOL;
    case T_FALSE: return v.kind == V_BOOL && !v.u.b;
    case T_TRUE: return v.kind == V_BOOL && v.u.b;
    case T_INTEGER: return v.kind == V_INT || v.kind == V_BIG;
    case T_FLOAT: return v.kind == V_FLOAT;
    case T_LOWER: return jn_str_is_case(jn_to_str(m, v), false);
    case T_UPPER: return jn_str_is_case(jn_to_str(m, v), true);
    case T_STRING: return v.kind == V_STRING;
    case T_MAPPING: return v.kind == V_DICT;
    case T_NUMBER: return jn_is_number(v);
    case T_SEQUENCE: return is_sequence(v);
    case T_ITERABLE: return jn_is_iterable(v);
    case T_CALLABLE: return is_callable(v);
    case T_SAMEAS: return same_object(v, b);
    case T_ESCAPED: return v.kind == V_STRING && v.u.s->markup;
    case T_IN: return jn_contains(m, b, v);
    case T_EQ: return jn_compare(m, CMP_EQ, v, b);
    case T_NE: return jn_compare(m, CMP_NE, v, b);
    case T_GT: return jn_compare(m, CMP_GT, v, b);
    case T_GE: return jn_compare(m, CMP_GE, v, b);
    case T_LT: return jn_compare(m, CMP_LT, v, b);
    case T_LE: return jn_compare(m, CMP_LE, v, b);
    }
    return false;
}
