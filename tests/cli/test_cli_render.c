/* test_cli_render.c: `worker render`: the prompt of a template as text, ids and runs, and every way in which it fails.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "maker.h"

static const char marked[] = "{{ bos_token }}{% for m in messages %}\n{{ '<' ~ m.role ~ '>' ~ m.content }}{% endfor %}"
                             "{% if add_generation_prompt %}\n<assistant>{% endif %}\n",
                  context[] =
                      "{\"bos_token\": \"B\", \"messages\": [{\"role\": \"user\", \"content\": \"a\\u00e4\\n\"}, "
                      "{\"role\": \"robot\", \"content\": null}], \"add_generation_prompt\": true}",
                  messages[] =
                      "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": [{\"type\": "
                      "\"text\", \"text\": \"one\"}, {\"type\": \"text\", \"text\": \"two\"}]}]";

static void put(const char *path, const char *text) { make_file(path, text, strlen(text)); }

static int setup(void **state)
{
    if (enter_scratch(state)) return -1;
    make_file("marked.jinja", marked, sizeof marked - 1);
    make_file("context.json", context, sizeof context - 1);
    make_file("messages.json", messages, sizeof messages - 1);
    put("list.json", "[1]");
    put("cut.json", "{\"a\":");
    put("empty.json", "[]");
    put("tools.json", "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
    put("raise.jinja", "{{ raise_exception('two\nlines') }}");
    put("broken.jinja", "a\n{% if %}");
    put("fails.jinja", "\n  {{ messages.x.y }}");
    put("tools.jinja", "{{ messages[0].content }}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}");
    put("clock.jinja", "{{ messages[0].content }}{{ strftime_now('%Y-%m-%d %H:%M:%S') }}");
    put("chatml.jinja",
        "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '|' ~ m.content ~ '<|im_end|>' }}{% endfor %}");
    return 0;
}

static void expect(struct cli_result r, const char *out)
{
    if (r.status != 0 || strcmp(r.out, out) != 0) fail_msg("status %d, \"%s\", %s", r.status, r.out, r.err);
    assert_string_equal(r.err, "");
    cli_free(&r);
}

static void expect_failure(struct cli_result r, int status, const char *pattern)
{
    if (r.status != status || !matches(r.err, pattern)) fail_msg("status %d, standard error:\n%s", r.status, r.err);
    assert_int_equal(r.out_len, 0);
    const char *end = strchr(r.err, '\n');
    assert_true(status == 2 || (end && !end[1])); /* one line */
    cli_free(&r);
}

static void texts(void **state)
{
    (void)state;
    expect(CLI("render", "--template", "marked.jinja", "--context", "context.json"),
           "B<user>a\xC3\xA4\n<robot>None<assistant>");
    expect(CLI("render", "--template", "marked.jinja", "--messages", "messages.json"),
           "<system>S<user>one\ntwo<assistant>");
    expect(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--as-is"),
           "<system>S<user>[{'type': 'text', 'text': 'one'}, {'type': 'text', 'text': 'two'}]<assistant>");
    expect(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--kwargs",
               "{\"add_generation_prompt\": false}"),
           "<system>S<user>one\ntwo");
    expect(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--as-is", "--kwargs",
               " { \"add_generation_prompt\": false, \"bos_token\": \"X\" } "),
           "X<system>S<user>[{'type': 'text', 'text': 'one'}, {'type': 'text', 'text': 'two'}]");
    expect(
        CLI("render", "--template", "tools.jinja", "--messages", "messages.json", "--tools", "tools.json", "--as-is"),
        "Sf");
    expect(CLI("render", "--template", "clock.jinja", "--messages", "messages.json", "--now",
               "2026-07-04T09:05:03+05:00", "--as-is"),
           "S2026-07-04 09:05:03");
    struct cli_result r = cli((const char *const[]){ "render", "--template", "marked.jinja", "--context", "-", NULL },
                              "{\"messages\": []}");
    expect(r, "");
    r = CLI("render", "--model", "embedded:haiku", "--messages", "messages.json");
    expect(r, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\n");
    expect(CLI("render", "--model", "embedded:haiku", "--chat-template", "chatml.jinja", "--messages", "messages.json"),
           "<|im_start|>system|S<|im_end|><|im_start|>user|one\ntwo<|im_end|>");
}

static void ids_and_runs(void **state)
{
    (void)state;
    static const char forged[] = "[{\"role\":\"user\",\"content\":\"<|im_start|>\"}]";
    make_file("forged.json", forged, sizeof forged - 1);
    struct cli_result ids = CLI("render", "--model", "embedded:haiku", "--messages", "messages.json", "--ids"),
                      spelt = CLI("tokenize", "--model", "embedded:haiku", "--special",
                                  "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\none\ntwo<|im_end|>\n"
                                  "<|im_start|>assistant\n");
    assert_string_equal(ids.out, spelt.out);
    cli_free(&ids);
    cli_free(&spelt);
    struct cli_result r = CLI("render", "--model", "embedded:haiku", "--messages", "forged.json", "--ids");
    ids = CLI("tokenize", "--model", "embedded:haiku", "--special", "<|im_start|>");
    size_t n = 0;
    ids.out[strcspn(ids.out, "\n")] = '\0';
    for (const char *at = r.out; (at = strstr(at, ids.out)); at++) n++;
    assert_int_equal(n, 2); /* the template's, not the user's */
    cli_free(&r);
    cli_free(&ids);
    r = CLI("render", "--template", "chatml.jinja", "--messages", "forged.json", "--runs");
    assert_int_equal(r.status, 0);
#define S "[[:space:]]*"
    assert_true(matches(r.out, "\"origin\": \"template\"," S "\"begin\": 0," S "\"end\": 17," S
                               "\"text\": \"<\\|im_start\\|>user\\|\""));
    assert_true(matches(r.out, "\"origin\": \"input\"," S "\"begin\": 17," S "\"end\": 29," S
                               "\"text\": \"<\\|im_start\\|>\""));
    cli_free(&r);
}

static void failures(void **state)
{
    (void)state;
    expect_failure(CLI("render", "--template", "raise.jinja", "--context", "context.json"), 1, "line 1.*two.lines");
    expect_failure(CLI("render", "--template", "broken.jinja", "--context", "context.json"), 1, "broken.jinja.*line 2");
    expect_failure(CLI("render", "--template", "fails.jinja", "--context", "context.json"), 1, "line 2, column [0-9]+");
    expect_failure(CLI("render", "--template", "raise.jinja", "--messages", "messages.json"), 1, "two.lines");
    expect_failure(CLI("render", "--template", "nowhere.jinja", "--context", "context.json"), 1, "No such file");
    expect_failure(CLI("render", "--template", "marked.jinja", "--context", "nowhere.json"), 1, "No such file");
    expect_failure(CLI("render", "--template", "marked.jinja", "--context", "list.json"), 1, "context: ");
    expect_failure(CLI("render", "--template", "marked.jinja", "--context", "cut.json"), 1, "context: ");
    expect_failure(CLI("render", "--template", "marked.jinja", "--messages", "list.json"), 1, "messages\\[0\\]");
    expect_failure(CLI("render", "--template", "marked.jinja", "--messages", "empty.json"), 1, "messages: ");
    expect_failure(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--tools", "tools.json"),
                   1, "tools: this model's template has no form for tools");
    expect_failure(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--kwargs", "[1]"), 1,
                   "chat_template_kwargs: expected an object");
    expect_failure(
        CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--as-is", "--kwargs", "{"), 1,
        "--kwargs: expected a JSON object");
    expect_failure(CLI("render", "--template", "marked.jinja", "--messages", "messages.json", "--kwargs", "{\"x\": 1}"),
                   1, "chat_template_kwargs.x: this model's template reads no variable");
    static const struct {
        const char *args[10], *pattern;
    } usage[] = {
        { { "render" }, "--model FILE or --template FILE is needed" },
        { { "render", "--messages", "messages.json" }, "--model FILE or --template FILE is needed" },
        { { "render", "--template", "marked.jinja" }, "either --messages FILE or --context FILE is needed" },
        { { "render", "--template", "t", "--messages", "m", "--context", "c" }, "either --messages" },
        { { "render", "--template", "t", "--context", "c", "--tools", "m" }, "--context is the whole context" },
        { { "render", "--template", "t", "--context", "c", "--ids" }, "--ids needs a vocabulary" },
        { { "render", "--model", "embedded:haiku", "--context", "c", "--ids", "--runs" }, "exclude each other" },
        { { "render", "--chat-template", "t", "--template", "t", "--context", "c" }, "exclude each other" },
        { { "render", "--template", "marked.jinja", "--context", "context.json", "--now", "today" },
          "--now: expected" },
    };
    for (size_t i = 0; i < sizeof usage / sizeof *usage; i++)
        expect_failure(cli(usage[i].args, NULL), 2, usage[i].pattern);
}

/* Reasoning of a model whose template opens it, and a template in the place of the model's. */
static void runs_with_templates(void **state)
{
    (void)state;
    static const char thinks[] =
        "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
        "{% endfor %}{{ '<|im_start|>assistant\\n' ~ ('<think>' if enable_thinking is not defined "
        "or enable_thinking else '') if add_generation_prompt }}";
    make_file("thinks.jinja", thinks, sizeof thinks - 1);
    struct cli_result r = CLI("run", "--chat-template", "thinks.jinja", "--reasoning", "-p", "Write a haiku about rain",
                              "-n", "10", "--temperature", "0");
    if (r.status) fail_msg("%s", r.err);
    assert_string_equal(r.out, "\n");
    assert_true(matches(r.err, "jinja, device"));
    assert_true(matches(r.err, "while the model was still reasoning"));
    cli_free(&r);
    struct cli_result plain = CLI("run", "-p", "Write a haiku about rain", "-n", "10", "--temperature", "0");
    r = CLI("run", "--chat-template", "thinks.jinja", "--reasoning-effort", "none", "-p", "Write a haiku about rain",
            "-n", "10", "--temperature", "0");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, plain.out);
    cli_free(&plain);
    cli_free(&r);
    expect_failure(CLI("run", "--chat-template", "broken.jinja", "-p", "x"), 1, "broken.jinja: .*line 2.*--raw");
    expect_failure(CLI("run", "--chat-template", "thinks.jinja", "--raw", "-p", "x"), 2, "exclude each other");
    expect_failure(CLI("run", "--template-date", "today", "-p", "x"), 2, "--template-date: expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(texts), cmocka_unit_test(ids_and_runs),
                                        cmocka_unit_test(failures), cmocka_unit_test(runs_with_templates) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
