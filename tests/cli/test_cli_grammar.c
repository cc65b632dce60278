/* test_cli_grammar.c: worker grammar, as a user meets it. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "maker.h"

static void expect(const char *const *args, int status, const char *out, const char *err)
{
    struct cli_result r = cli(args, NULL);
    if (r.status != status || !matches(r.out, out) || !matches(r.err, err))
        fail_msg("%s %s: status %d, output: %s, standard error: %s", args[1], args[2], r.status, r.out, r.err);
    cli_free(&r);
}
#define EXPECT(status, out, err, ...) expect((const char *const[]){ "grammar", __VA_ARGS__, NULL }, status, out, err)

static void holds(void **state)
{
    (void)state;
    EXPECT(0, "^[0-9]+ nodes, [0-9]+ states, [0-9]+ bytes, compiled in [0-9.]+ us\n$", "^$", "--regex", "[a-z]+");
    make_file("list.gbnf", "root ::= (\"- \" [a-z]+ \"\\n\")+\n", 29);
    EXPECT(0, "; first mask in [0-9.]+ us, [0-9]+ tokens allowed\n$", "^$", "--grammar", "list.gbnf", "--model",
           "embedded:haiku");
    make_file("schema.json", "{\"type\":\"boolean\"}", 18);
    EXPECT(0, "^[0-9]+ nodes", "^$", "--schema", "schema.json");
}

static void accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out;
    } cases[] = { { "- a\n- bc\n", "^\\{\"accepted\": true, \"at\": 9\\}\n$" },
                  { "- a\n- bc", "^\\{\"accepted\": false, \"at\": 8\\}\n$" },
                  { "- a\n-bc\n", "^\\{\"accepted\": false, \"at\": 5\\}\n$" },
                  { "- a\xff\n", "^\\{\"accepted\": false, \"at\": 3\\}\n$" },
                  { "", "^\\{\"accepted\": false, \"at\": 0\\}\n$" } };
    make_file("list.gbnf", "root ::= (\"- \" [a-z]+ \"\\n\")+\n", 29);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_file("text", cases[i].text, strlen(cases[i].text));
        EXPECT(0, cases[i].out, "^$", "--grammar", "list.gbnf", "--accepts", "text");
        EXPECT(0, cases[i].out, "^$", "--grammar", "list.gbnf", "--accepts", "text", "--model", "embedded:haiku");
    }
}

/* A file ends with a newline: around a JSON value it is nothing, else it is told. */
static void newline_at_end(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out;
    } cases[] = { { "true\n", "^\\{\"accepted\": true, \"at\": 5\\}\n$" },
                  { " \t\r\nfalse \n", "^\\{\"accepted\": true, \"at\": 11\\}\n$" },
                  { " tru\n", "^\\{\"accepted\": false, \"at\": 4\\}\n$" },
                  { " nil\n", "^\\{\"accepted\": false, \"at\": 1\\}\n$" },
                  { "\n", "^\\{\"accepted\": false, \"at\": [01]\\}\n$" },
                  { "true true\n", "^\\{\"accepted\": false, \"at\": 4\\}\n$" } };
    make_file("schema.json", "{\"type\":\"boolean\"}", 18);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_file("text", cases[i].text, strlen(cases[i].text));
        EXPECT(0, cases[i].out, "^$", "--schema", "schema.json", "--accepts", "text");
        EXPECT(0, cases[i].out, "", "--schema", "schema.json", "--accepts", "text", "--model", "embedded:haiku");
    }
    make_file("text", "ab\n", 3);
    EXPECT(0, "^\\{\"accepted\": false, \"at\": 2\\}\n$", "newline at the file's end", "--regex", "ab", "--accepts",
           "text");
    EXPECT(0, "^\\{\"accepted\": false, \"at\": 1\\}\n$", "^$", "--regex", "ac", "--accepts", "text");
    EXPECT(0, "^\\{\"accepted\": true, \"at\": 3\\}\n$", "^$", "--regex", "ab\\n", "--accepts", "text");
}

static void refuses(void **state)
{
    (void)state;
    EXPECT(1, "^$", "^worker: error: INVALID_REQUEST: regular expression, byte 1: [^\n]*\n$", "--regex", "a)");
    make_file("left.gbnf", "root ::= \"x\" a\na ::= a \"y\" | \"z\"\n", 33);
    EXPECT(1, "^$", "^worker: error: INVALID_REQUEST: grammar, line 2, column 1: rule \"a\" [^\n]*\n$", "--grammar",
           "left.gbnf");
    EXPECT(1, "^$", "missing.gbnf: cannot be opened: [^;]*\n$", "--grammar", "missing.gbnf");
    EXPECT(1, "^$", "expected the name of a file, or - and the JSON on standard input", "--schema", "{}");
    EXPECT(2, "^$", "expected one of --schema FILE, --grammar FILE and --regex REGEX", "--regex", "a", "--grammar",
           "left.gbnf");
}

#define RUN(status, out, err, ...) \
    expect((const char *const[]){ "run", "-p", "A pet", "--seed", "1", __VA_ARGS__, NULL }, status, out, err)

/* worker run: what it writes is of the form, and ends where that does. */
static void answers(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"cat\",\"dog\"]}},\"required\":"
        "[\"a\"],\"additionalProperties\":false}",
                      choice[] = "root ::= \"yes\" | \"no\"\n";
    make_file("pet.json", schema, sizeof schema - 1);
    make_file("choice.gbnf", choice, sizeof choice - 1);
    make_file("bad.json", "{\"type\":\"blue\"}", 15);
    RUN(0, "^[{][[:space:]]*\"a\"[[:space:]]*:[[:space:]]*\"(cat|dog)\"[[:space:]]*[}]\n$", "finish stop",
        "--json-schema", "pet.json");
    RUN(0, "^(yes|no)\n$", "finish stop", "--grammar", "choice.gbnf", "--raw");
    RUN(0, "^20[0-9][0-9]\n$", "finish stop", "--regex", "20[0-9]{2}", "--temperature", "2");
    RUN(0, "^20\n$|^2\n$", "raise --max-tokens\n.*finish length", "--regex", "20[0-9]{20}", "-n", "2");
    RUN(1, "^$", "INVALID_REQUEST: JSON schema, \"type\" at #", "--json-schema", "bad.json");
    RUN(1, "^$", "INVALID_REQUEST: regular expression, byte 0", "--regex", "(");
    RUN(1, "^$", "missing.gbnf: cannot be opened", "--grammar", "missing.gbnf");
    RUN(2, "^$", "exclude each other", "--regex", "a", "--grammar", "choice.gbnf");
    expect((const char *const[]){ "run", "--grammar", "-", NULL }, 2, "^$", "standard input is the prompt already");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(holds), cmocka_unit_test(accepts),
                                        cmocka_unit_test(newline_at_end), cmocka_unit_test(refuses),
                                        cmocka_unit_test(answers) };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
