/* test_json_calls.c: functions, calls and results as texts, for templates that have no form for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "chat/chat.h"

#define TURN "{{ m.role[0] ~ ':' ~ m.content ~ ';' }}"
static const char plain[] = "{% for m in messages %}" TURN "{% endfor %}",
                  turns[] = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] or (m.role == 'user') != "
                            "(loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}" TURN "{% endfor %}",
                  own[] = "{% for t in tools or [] %}{{ '<' ~ t.function.name ~ '>' }}{% endfor %}{% for m in messages "
                          "%}{{ m.role[0] ~ ':' ~ (m.content or '') }}{% for c in m.tool_calls or [] %}{{ '!' ~ "
                          "c.function.name ~ c.function.arguments }}{% endfor %};{% endfor %}",
                  hermes[] =
                      "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content }}{% for c in m.tool_calls or [] %}{{ "
                      "'<tool_call>\\n{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' }}{{ "
                      "c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %};{% endfor %}";

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALL(id, name, arguments) \
    "{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define FUNCTION "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define TOLD(how) \
    "You can call functions. They are, as JSON:\n" FUNCTION "\nTo call " how ", \"arguments\": {the parameters}}"
#define LIST \
    TOLD("functions, answer with a JSON list of calls and nothing else: [{\"name\": \"the function's name\"") ", ...]"
#define ONE TOLD("one, answer with a JSON object and nothing else: {\"name\": \"the function's name\"")

static struct chat *open_chat(const char *template, bool json)
{
    char said[256];
    const struct wk_err err = { said, sizeof said };
    const struct chat_source source = { .template = { template, strlen(template) },
                                        .template_name = "test",
                                        .json_calls = json };
    struct chat *c;
    if (chat_open(&source, &c, &err)) fail_msg("%s", said);
    return c;
}

/* What is made of messages; or the field that is refused, and the text. */
static void render(const struct chat *c, const char *messages, bool tools, bool one, char out[4096])
{
    struct conversation conversation;
    struct chat_problem why;
    struct chat_prompt prompt;
    size_t n = 0;
    assert_true(conversation_read(messages, strlen(messages), &conversation, &why));
    struct chat_request q = CHAT_REQUEST_OF(&conversation);
    if (tools) q.tools = (struct token_bytes){ FUNCTION, sizeof FUNCTION - 1 };
    q.one_call = one;
    if (!chat_render(c, &q, &prompt, &why)) n = (size_t)snprintf(out, 4096, "%s", why.text);
    for (size_t i = 0; i < prompt.n; i++) {
        assert_true(n + prompt.part[i].len < 4096);
        memcpy(out + n, prompt.part[i].bytes, prompt.part[i].len);
        n += prompt.part[i].len;
    }
    out[n] = '\0';
    chat_prompt_free(&prompt);
    conversation_free(&conversation);
}

#define HISTORY                                                                                                  \
    SAID("user", "Q")                                                                                            \
    ",{\"role\":\"assistant\",\"content\":\"Well.\",\"tool_calls\":[" CALL("a", "f", "{\\\"x\\\": 1}") "," CALL( \
        "b", "g", "") "]}," RESULT("a", "R") "," RESULT("b", "S") ",{\"role\":\"assistant\",\"content\":null,"   \
                                                                  "\"tool_calls\":[" CALL("c", "f",              \
                                                                                          "{}") "]}," RESULT("c", "T")
#define FIRST "a:Well.\n[{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"g\", \"arguments\": {}}];"

static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *template, *messages;
        bool tools, one;
        const char *expected;
    } cases[] = {
        { plain, SAID("user", "Q"), true, false, "s:" LIST ";u:Q;" },
        { plain, SAID("user", "Q"), true, true, "s:" ONE ";u:Q;" },
        { plain, SAID("user", "Q"), false, false, "u:Q;" },
        { plain, SAID("system", "S") "," SAID("user", "Q"), true, false, "s:" LIST "\n\nS;u:Q;" },
        { plain, HISTORY, false, false,
          "u:Q;" FIRST
          "u:Result of f:\nR;u:Result of g:\nS;a:[{\"name\": \"f\", \"arguments\": {}}];u:Result of f:\nT;" },
        { plain, HISTORY, false, true,
          "u:Q;" FIRST
          "u:Result of f:\nR;u:Result of g:\nS;a:{\"name\": \"f\", \"arguments\": {}};u:Result of f:\nT;" },
        { plain, "{\"role\":\"tool\",\"content\":\"R\"}", false, false, "u:Result:\nR;" },
        { turns, HISTORY, true, false,
          "u:" LIST "\n\nQ;" FIRST "u:Result of f:\nR\n\nResult of g:\nS;a:[{\"name\": \"f\", \"arguments\": {}}];"
          "u:Result of f:\nT;" },
        { own, HISTORY, true, false, "<f>u:Q;a:Well.!f{\"x\": 1}!g{};t:R;t:S;a:!f{};t:T;" },
        /* what is wrong has the request's own places */
        { plain, SAID("user", "Q") "," SAID("assistant", "A"), true, false,
          "messages[1].role: the last message is an answer: continue_final_message goes on with it; else a user or a "
          "tool speaks last" },
        { plain,
          SAID("user", "Q") ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{") "]}," RESULT("a", "R"),
          true, false, "messages[1].tool_calls: the arguments of f are no JSON object" },
    };
    char got[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char messages[2048];
        struct chat *c = open_chat(cases[i].template, true);
        assert_non_null(chat_json_calls(c, cases[i].one));
        (void)snprintf(messages, sizeof messages, "[%s]", cases[i].messages);
        render(c, messages, cases[i].tools, cases[i].one, got);
        assert_string_equal(got, cases[i].expected);
        chat_close(c);
    }
}

/* A message that the template leaves out is called as the request has it, though another one stands before it. */
static void test_places(void **state)
{
    (void)state;
    static const char drops[] =
        "{% for m in messages %}{% if not (loop.last and loop.index0 > 2) %}" TURN "{% endif %}{% endfor %}";
    struct chat *c = open_chat(drops, true);
    char got[4096];
    render(c, "[" SAID("user", "Q") "," SAID("assistant", "A") "," SAID("user", "R") "]", true, false, got);
    assert_string_equal(
        got, "messages[2].role: this model's template leaves a user message at this place out of the prompt");
    chat_close(c);
}

/* A form that is known is the model's own; nothing is told that was not asked for. */
static void test_not_needed(void **state)
{
    (void)state;
    char got[4096];
    struct chat *c = open_chat(hermes, true);
    bool single;
    const char *why;
    assert_non_null(chat_calls(c, &single, &why));
    assert_null(chat_json_calls(c, false));
    chat_close(c);
    c = open_chat(plain, false);
    assert_null(chat_calls(c, &single, &why));
    assert_null(chat_json_calls(c, true));
    render(c, "[" SAID("user", "Q") "]", true, false, got);
    assert_string_equal(got, "tools: this model's template has no form for tools");
    chat_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_messages), cmocka_unit_test(test_places),
                                        cmocka_unit_test(test_not_needed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
