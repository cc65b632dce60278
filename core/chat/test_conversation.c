/* test_conversation.c: messages and tools of requests, and what is refused of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "chat/clock.h"
#include "chat/conversation.h"

static bool is(struct token_bytes t, const char *text) { return t.len == strlen(text) && !memcmp(t.data, text, t.len); }

static void read_ok(const char *json, struct conversation *c)
{
    struct chat_problem why;
    if (!conversation_read(json, strlen(json), c, &why)) fail_msg("%s: %s", json, why.text);
}

static void test_messages(void **state)
{
    (void)state;
    struct conversation c;
    read_ok(
        "[{\"role\":\"system\",\"content\":\"S\\u00e4\"},"
        "{\"content\":[{\"type\":\"text\",\"text\":\"A\"},{\"text\":\"B\\n\",\"type\":\"text\"}],\"role\":\"user\","
        "\"name\":\"me\",\"unknown\":{\"a\":[1]}},"
        "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"R\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 12345678901234567890}\"}},"
        "{\"function\":{\"arguments\":{\"y\":1e400},\"name\":\"g\"}},{\"function\":{\"name\":\"h\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"\"},"
        "{\"role\":\"assistant\"},{\"role\":\"developer\",\"content\":[]},"
        "{\"role\":\"assistant\",\"content\":null,\"refusal\":\"No.\",\"tool_calls\":null}]",
        &c);
    assert_int_equal(c.n, 7);
    assert_true(c.messages[0].role == CHAT_SYSTEM && is(c.messages[0].text, "S\xC3\xA4"));
    const struct chat_message *m = &c.messages[1];
    assert_true(m->role == CHAT_USER && m->in_parts && m->n_parts == 2 && is(m->text, "A\nB\n") && is(m->name, "me"));
    assert_true(is(c.parts[m->part], "A") && is(c.parts[m->part + 1], "B\n"));
    m = &c.messages[2];
    assert_true(!m->has_content && !m->text.len && is(m->reasoning, "R") && m->n_calls == 3);
    assert_true(is(c.calls[m->call].id, "c1") && is(c.calls[m->call].name, "f") &&
                is(c.calls[m->call].arguments, "{\"x\": 12345678901234567890}"));
    assert_true(!c.calls[m->call + 1].id.data && is(c.calls[m->call + 1].arguments, "{\"y\":1e400}"));
    assert_true(is(c.calls[m->call + 2].arguments, "{}"));
    assert_true(c.messages[3].role == CHAT_TOOL && is(c.messages[3].call_id, "c1") && c.messages[3].has_content);
    assert_true(c.messages[5].role == CHAT_DEVELOPER && c.messages[5].in_parts && !c.messages[5].n_parts);
    assert_true(is(c.messages[6].text, "No."));
    conversation_free(&c);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *field, *said;
    } cases[] = {
        { "", "messages", "list" },
        { "[]", "messages", "one message or more" },
        { "{}", "messages", "list" },
        { "[{\"role\":\"user\",\"content\":\"x\"}", "messages", "" },
        { "[{\"role\":\"user\",\"content\":\"x\"}] x", "messages", "" },
        { "[{\"role\":\"user\",\"content\":\"\\ud800\"}]", "messages", "" },
        { "[5]", "messages[0]", "object" },
        { "[{}]", "messages[0].role", "none" },
        { "[{\"role\":5}]", "messages[0].role", "system" },
        { "[{\"role\":\"robot\",\"content\":\"\"}]", "messages[0].role", "robot" },
        { "[{\"role\":\"function\",\"content\":\"\"}]", "messages[0].role", "tool" },
        { "[{\"role\":\"user\"}]", "messages[0].content", "string" },
        { "[{\"role\":\"tool\",\"content\":null}]", "messages[0].content", "string" },
        { "[{\"role\":\"user\",\"content\":5}]", "messages[0].content", "string" },
        { "[{\"role\":\"user\",\"content\":[5]}]", "messages[0].content", "part 0" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content", "no text" },
        { "[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]", "messages[0].content", "(none)" },
        { "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0].content", "image_url" },
        { "[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]",
          "messages[0].tool_calls", "assistant" },
        { "[{\"role\":\"assistant\",\"tool_calls\":5}]", "messages[0].tool_calls", "list" },
        { "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"}]}]", "messages[0].tool_calls", "name" },
        { "[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"function\":{\"name\":\"f\"}}]}]",
          "messages[0].tool_calls", "custom" },
        { "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":5}}]}]",
          "messages[0].tool_calls", "arguments" },
        { "[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"}}]", "messages[0].function_call",
          "leave it out" },
        { "[{\"role\":\"assistant\",\"reasoning_content\":5}]", "messages[0].reasoning_content", "string" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conversation c;
        struct chat_problem why;
        assert_false(conversation_read(cases[i].json, strlen(cases[i].json), &c, &why));
        if (strcmp(why.field, cases[i].field) != 0 || !strstr(why.text, cases[i].said))
            fail_msg("%s: field %s, text %s", cases[i].json, why.field, why.text);
        assert_null(c.messages);
    }
}

/* No beginning of a document crashes or is taken. */
static void test_cut(void **state)
{
    (void)state;
    static const char json[] =
        "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e4\"}],\"tool_calls\":[{\"id\":\"c\","
        "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,{}]}}}]},{\"role\":\"user\",\"content\":\"x\"}]";
    for (size_t n = 0; n < sizeof json; n++) {
        struct conversation c;
        struct chat_problem why;
        const bool ok = conversation_read(json, n, &c, &why);
        assert_int_equal(ok, n == sizeof json - 1);
        if (ok) conversation_free(&c);
    }
}

static void test_tools(void **state)
{
    (void)state;
    static const char good[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"D\",\"parameters\":"
        "{\"type\":\"object\"},\"strict\":true}},{\"function\":{\"name\":\"g\",\"parameters\":null"
        "},\"type\":\"function\"}]";
    struct chat_tools t;
    struct chat_problem why;
    if (!chat_tools_read(good, sizeof good - 1, &t, &why)) fail_msg("%s", why.text);
    assert_true(t.n == 2 && is(t.list[0].name, "f") && is(t.list[0].description, "D") &&
                is(t.list[0].parameters, "{\"type\":\"object\"}") && is(t.list[1].name, "g") &&
                !t.list[1].parameters.data);
    chat_tools_free(&t);
    static const struct {
        const char *json, *field;
    } bad[] = {
        { "{}", "tools" },
        { "[1]", "tools[0]" },
        { "[{\"function\":{\"name\":\"f\"}}]", "tools[0].type" },
        { "[{\"type\":\"web_search\"}]", "tools[0].type" },
        { "[{\"type\":\"function\"}]", "tools[0].function" },
        { "[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}]", "tools[0].function" },
        { "[{\"name\":\"f\",\"input_schema\":{}}]", "tools[0].type" },
        { "[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]", "tools[0].function.name" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]", "tools[0].function.parameters" },
        { "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{\"name\":"
          "\"f\"}}]",
          "tools[1].function.name" }
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(chat_tools_read(bad[i].json, strlen(bad[i].json), &t, &why));
        assert_string_equal(why.field, bad[i].field);
    }
}

static void test_clock(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t now;
        int32_t offset;
    } good[] = { { "1970-01-01", 0, 0 },
                 { "2026-07-04T09:05:03", 1783155903, 0 },
                 { "2026-07-04T09:05:03Z", 1783155903, 0 },
                 { "2026-07-04T09:05:03.25+02:00", 1783148703, 7200 },
                 { "2024-02-29 23:59:59-11:30", 1709292599, -41400 } };
    static const char *const bad[] = { "",
                                       "2026",
                                       "2026-7-4",
                                       "2026-13-01",
                                       "2026-02-29",
                                       "2026-07-04T",
                                       "2026-07-04T24:00:00",
                                       "2026-07-04T09:05",
                                       "2026-07-04T09:05:03+2",
                                       "2026-07-04T09:05:03 x",
                                       "now" };
    struct jinja_options o;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(chat_clock_read(good[i].text, &o));
        assert_int_equal(o.now, good[i].now);
        assert_int_equal(o.utc_offset, good[i].offset);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(chat_clock_read(bad[i], &o));
}

/* Calls and their results. */
static void test_calls(void **state)
{
    (void)state;
#define HISTORY(arguments, id)                                                                                    \
    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{" \
    "\"name\""                                                                                                    \
    ":\"f\",\"arguments\":" arguments "}}]},{\"role\":\"tool\"," id "\"content\":\"r\"}]"
    static const struct {
        const char *json, *field; /* NULL: they fit */
    } cases[] = {
        { HISTORY("\"{}\"", "\"tool_call_id\":\"c\","), NULL },
        { HISTORY("\"\"", "\"tool_call_id\":\"c\","), NULL },
        { HISTORY("{\"x\":1}", "\"tool_call_id\":\"c\","), NULL },
        { HISTORY("\"{\"", "\"tool_call_id\":\"c\","), "messages[1].tool_calls[0].function.arguments" },
        { HISTORY("\"[]\"", "\"tool_call_id\":\"c\","), "messages[1].tool_calls[0].function.arguments" },
        { HISTORY("\"{} {}\"", "\"tool_call_id\":\"c\","), "messages[1].tool_calls[0].function.arguments" },
        { HISTORY("\"{}\"", "\"tool_call_id\":\"d\","), "messages[2].tool_call_id" },
        { HISTORY("\"{}\"", ""), "messages[2].tool_call_id" },
        { "[{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}]", "messages[0].tool_call_id" },
        { "[{\"role\":\"assistant\",\"content\":\"a "
          "call\"},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}]",
          NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conversation c;
        struct chat_problem why = { 0 };
        assert_true(conversation_read(cases[i].json, strlen(cases[i].json), &c, &why));
        assert_int_equal(conversation_check_calls(&c, &why), !cases[i].field);
        if (cases[i].field) assert_string_equal(why.field, cases[i].field);
        conversation_free(&c);
    }
}

#define CALL(id, name) "{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":\"{}\"}}"
#define CALLS(list) "{\"role\":\"assistant\",\"tool_calls\":[" list "]}"

/* Ids that come twice: in two messages they are two calls; in one they are refused where it matters. */
static void test_ids(void **state)
{
    (void)state;
    static const struct {
        const char *json, *in_prompt, *hidden; /* the field that is refused, NULL: none */
    } cases[] = {
        { "[" CALLS(CALL("a", "f") "," CALL("b", "g")) "]", NULL, NULL },
        { "[" CALLS(CALL("a", "f")) "," CALLS(CALL("a", "g")) "]", NULL, NULL },
        { "[" CALLS(CALL("a", "f") "," CALL("a", "f")) "]", "messages[0].tool_calls[1].id", NULL },
        { "[" CALLS(CALL("a", "f")) "," CALLS(CALL("b", "f") "," CALL("a", "f") "," CALL("a", "g")) "]",
          "messages[1].tool_calls[2].id", "messages[1].tool_calls[2].id" },
        { "[" CALLS("{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}") "]", NULL, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int in_prompt = 0; in_prompt < 2; in_prompt++) {
            const char *field = in_prompt ? cases[i].in_prompt : cases[i].hidden;
            struct conversation c;
            struct chat_problem why = { 0 };
            assert_true(conversation_read(cases[i].json, strlen(cases[i].json), &c, &why));
            assert_int_equal(conversation_check_ids(&c, in_prompt, &why), !field);
            if (field) assert_string_equal(why.field, field);
            conversation_free(&c);
        }
}

/* A result is of the latest call of its id. */
static void test_called(void **state)
{
    (void)state;
#define RESULT(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"r\"}"
    static const char json[] = "[" RESULT("a") "," CALLS(CALL("a", "f") "," CALL("b", "g")) "," RESULT("b") "," RESULT(
        "a") "," CALLS(CALL("a", "h")) "," RESULT("a") "," RESULT("b") "," RESULT("c") "]";
    static const char *const called[] = { NULL, NULL, "g", "f", NULL, "h", "g", NULL };
    struct conversation c;
    struct chat_problem why;
    assert_true(conversation_read(json, sizeof json - 1, &c, &why));
    assert_int_equal(c.n, sizeof called / sizeof *called);
    for (size_t i = 0; i < c.n; i++) {
        const struct token_bytes got = c.messages[i].called;
        assert_int_equal(got.data != NULL, called[i] != NULL);
        if (!called[i]) continue;
        assert_int_equal(got.len, strlen(called[i]));
        assert_memory_equal(got.data, called[i], got.len);
    }
    conversation_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_messages), cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_cut),      cmocka_unit_test(test_tools),
                                        cmocka_unit_test(test_clock),    cmocka_unit_test(test_calls),
                                        cmocka_unit_test(test_ids),      cmocka_unit_test(test_called) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
