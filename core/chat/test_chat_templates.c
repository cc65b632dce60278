/* test_chat_templates.c: templates as models ship them (test data). Whatever special token of a vocabulary stands in
 * whatever field of a request, no control token comes of it, through any template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>

#include "chat/chat.h"
#include "test_data.h"
#include "vocab_builder.h"

enum { MAX_TEMPLATES = 512, MAX_MARKS = 600, FIELD = 48 << 10 };

static struct builder builder;
static char *names[MAX_TEMPLATES];
static size_t n_names;
static char marks[MAX_MARKS][64];
static size_t n_marks;

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list_templates(void)
{
    char path[DATA_PATH_MAX];
    DIR *dir = opendir(data_path(path, "templates_real/templates"));
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) && n_names < MAX_TEMPLATES;) {
        char name[512];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".jinja") != 0) continue;
        (void)snprintf(name, sizeof name, "templates_real/templates/%s", e->d_name);
        names[n_names++] = strdup(name);
    }
    (void)closedir(dir);
    qsort(names, n_names, sizeof *names, by_name);
    assert_true(n_names > 100);
}

static void add_mark(const char *text, size_t n)
{
    for (size_t i = 0; i < n_marks; i++)
        if (strlen(marks[i]) == n && memcmp(marks[i], text, n) == 0) return;
    if (n_marks == MAX_MARKS) return;
    memcpy(marks[n_marks], text, n);
    marks[n_marks++][n] = '\0';
}

/* What looks like a special token in a template's text, with the names of roles where the template puts them in. */
static void find_marks(const char *text)
{
    static const char *const words[] = { "<s>",        "</s>",     "<bos>",     "<eos>",         "<|user|>",
                                         "<|system|>", "<|tool|>", "<|think|>", "<|assistant|>", "<|observation|>",
                                         "[INST]",     "[/INST]" };
    for (size_t i = 0; !n_marks && i < sizeof words / sizeof *words; i++) add_mark(words[i], strlen(words[i]));
    for (const char *at = text; *at; at++) {
        if (*at != '<' && *at != '[') continue;
        const size_t n = strcspn(at + 1, "<>[]{}'\" \t\n\\");
        if (at[n + 1] != (*at == '<' ? '>' : ']') || n < 3 || n > 50) continue;
        const bool bars = at[1] == '|' || (unsigned char)at[1] == 0xEF || strchr(at, '_') || at[1] == '/';
        if (*at == '[' && !(at[1] >= 'A' && at[1] <= 'Z') && at[1] != '/') continue;
        if (bars || *at == '[' || n < 16) add_mark(at, n + 2);
    }
}

/* "Zq<mark>Zq..." of every mark; JSON needs no escapes in them. */
static void write_field(char out[FIELD])
{
    size_t n = 0;
    for (size_t i = 0; i < n_marks; i++) n += (size_t)snprintf(out + n, FIELD - n, "Zq%sZq", marks[i]);
    assert_true(n < FIELD - 1);
}

static size_t count_controls(const struct tokenizer *t, const struct chat_prompt *p, bool blank)
{
    struct tokenizer_part *parts = calloc(p->n + 1, sizeof *parts);
    struct tokens ids = { 0 };
    size_t n = 0;
    assert_non_null(parts);
    memcpy(parts, p->part, p->n * sizeof *parts);
    for (size_t i = 0; i < p->n; i++) {
        if (parts[i].parse_special || !blank) continue;
        char *x = malloc(parts[i].len + 1);
        assert_non_null(x);
        memset(x, 'x', parts[i].len);
        parts[i].bytes = x;
    }
    assert_int_equal(tokenizer_encode_parts(t, parts, p->n, true, &ids, NULL), WK_OK);
    for (size_t i = 0; i < ids.n; i++) n += tokenizer_type(t, ids.ids[i]) == TOKEN_CONTROL;
    for (size_t i = 0; blank && i < p->n; i++)
        if (!parts[i].parse_special) free((void *)(uintptr_t)parts[i].bytes);
    free(parts);
    tokens_free(&ids);
    return n;
}

/* The template's bytes hold none of the fields', and what the fields say changes no control token. */
static void check_prompt(const char *name, const struct tokenizer *t, const struct chat_prompt *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->part[i].parse_special && memmem(p->part[i].bytes, p->part[i].len, "Zq", 2))
            fail_msg("%s: a field's bytes count as the template's: %.*s", name, (int)p->part[i].len,
                     (const char *)p->part[i].bytes);
    const size_t with = count_controls(t, p, false), without = count_controls(t, p, true);
    if (with != without) fail_msg("%s: %zu control tokens, %zu of them from fields", name, with, with - without);
}

static struct tokenizer *vocabulary(void)
{
    char text[256];
    struct wk_err err = { text, sizeof text };
    struct tokenizer *t;
    builder_bpe(&builder, "gpt-2");
    for (size_t i = 0; i < n_marks; i++) {
        const uint32_t id = builder_token(&builder, marks[i], TOKEN_CONTROL, 0);
        if (strcmp(marks[i], "<bos>") == 0) builder_int(&builder, "tokenizer.ggml.bos_token_id", id);
        if (strcmp(marks[i], "<eos>") == 0) builder_int(&builder, "tokenizer.ggml.eos_token_id", id);
    }
    if (builder_open(&builder, &t, &err)) fail_msg("%s", text);
    return t;
}

#define ROLE(name) "{\"role\":\"" name "\",\"content\":\"%1$s\"}"
static const char *const conversations[] = {
    "[" ROLE("user") "]",
    "[" ROLE("system") "," ROLE("user") "]",
    "[" ROLE("developer") "," ROLE("user") "]",
    "[" ROLE("user") ",{\"role\":\"assistant\",\"content\":\"%1$s\",\"reasoning_content\":\"%1$s\"}," ROLE("user") "]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%1$s\"},{\"type\":\"text\",\"text\":\"%1$s\"}],"
    "\"name\":\"%1$s\"}]",
    "[" ROLE(
        "user") ",{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"%1$s\",\"tool_calls\":[{\"id\":"
                "\"%1$s\",\"type\":\"function\",\"function\":{\"name\":\"f%2$s\",\"arguments\":{\"%1$s\":\"%1$s\","
                "\"n\":[{\"%1$s\":1}]"
                "}}}]},{\"role\":\"tool\",\"tool_call_id\":\"%1$s\",\"name\":\"f%2$s\",\"content\":\"%1$s\"}," ROLE(
                    "user") "]",
    "[" ROLE(
        "user") ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefgh1\",\"type\":"
                "\"function\",\"function\":{\"name\":\"f%2$s\",\"arguments\":{\"k\":\"%1$s\"}}}]},{\"role\":\"tool\","
                "\"tool_call_id\":\"abcdefgh1\",\"name\":\"f%2$s\",\"content\":\"%1$s\"}]",
};
static const char tools_form[] = "[{\"type\":\"function\",\"%1$s\":\"%1$s\",\"function\":{\"name\":\"f%2$s\","
                                 "\"description\":\"%1$s\",\"parameters\":{"
                                 "\"type\":\"object\",\"%1$s\":\"%1$s\",\"properties\":{\"%1$s\":{\"type\":\"string\","
                                 "\"description\":\"%1$s\",\"enum\":"
                                 "[\"%1$s\"]}},\"required\":[\"%1$s\"]}}}]";
static const char documents_form[] = "[{\"title\":\"%1$s\",\"text\":\"%1$s\",\"content\":\"%1$s\",\"%1$s\":1}]";

static char *fill(const char *form, const char *field, const char *name)
{
    char *out = NULL;
    if (asprintf(&out, form, field, name) < 0 || !out)
        abort(); /* an assertion does not tell the compiler that it ends */
    return out;
}

static struct token_bytes bytes_of(const char *s) { return (struct token_bytes){ s, s ? strlen(s) : 0 }; }

/* Through the shapes and refusals of a service. Returns how many prompts were made. */
static size_t try_chat(const char *name, const struct chat *c, const struct tokenizer *t, const char *messages,
                       const char *tools, const char *documents, const char *field, bool with_variables)
{
    static const char *const variables[] = { "enable_thinking", "reasoning_effort", "date_string", "custom_tools",
                                             "today",           "system_prompt",    "instruction" };
    size_t made = 0;
    for (size_t k = 0; k < 3 + (with_variables ? sizeof variables / sizeof *variables : 0); k++) {
        struct conversation said;
        struct chat_problem why;
        struct chat_prompt p;
        if (!conversation_read(messages, strlen(messages), &said, &why)) fail_msg("%s", why.text);
        struct chat_request q = CHAT_REQUEST_OF(&said);
        char *kwargs = NULL;
        if (k == 1) q.tools = bytes_of(tools);
        if (k == 2) q.documents = bytes_of(documents);
        if (k > 2) assert_true(asprintf(&kwargs, "{\"%s\":\"%s\"}", variables[k - 3], field) > 0);
        q.kwargs = bytes_of(kwargs);
        if (chat_render(c, &q, &p, &why)) {
            check_prompt(name, t, &p);
            made++;
        }
        chat_prompt_free(&p);
        conversation_free(&said);
        free(kwargs);
    }
    return made;
}

/* Through the template alone, with whatever a client may send. */
static size_t try_as_is(const char *name, const struct chat *c, const struct tokenizer *t, const char *messages,
                        const char *tools, const char *documents)
{
    char *json = NULL;
    struct chat_problem why;
    struct chat_prompt p;
    const struct jinja_options clock = { 0 };
    assert_true(asprintf(&json,
                         "{\"messages\":%s,\"tools\":%s,\"documents\":%s,\"add_generation_prompt\":true,\"bos_token\":"
                         "\"<bos>\",\"eos_token\":\"<eos>\"}",
                         messages, tools, documents) > 0);
    const bool made = chat_render_context(c, bytes_of(json), &clock, &p, &why);
    if (made) check_prompt(name, t, &p);
    chat_prompt_free(&p);
    free(json);
    return made;
}

static void data_injection(void **state)
{
    (void)state;
    static char field[FIELD];
    size_t n_open = 0, n_prompts = 0, n_plain = 0;
    list_templates();
    for (size_t i = 0; i < n_names; i++) {
        char *text = data_read(names[i], NULL);
        find_marks(text);
        free(text);
    }
    write_field(field);
    struct tokenizer *t = vocabulary();
    char *tools = fill(tools_form, field, marks[20]), *documents = fill(documents_form, field, "");
    for (size_t i = 0; i < n_names; i++) {
        size_t n;
        char *text = data_read(names[i], &n);
        struct chat *c, *plain;
        const struct chat_source as_is = { .t = t, .template = { text, n }, .template_name = names[i], .as_is = true },
                                 shaped = { .t = t, .template = { text, n }, .template_name = names[i] };
        char said[512] = "";
        struct wk_err err = { said, sizeof said };
        if (chat_open(&as_is, &plain, &err)) fail_msg("%s: %s", names[i], said);
        const bool usable = !chat_open(&shaped, &c, &err);
        n_open += usable;
        for (size_t k = 0; k < sizeof conversations / sizeof *conversations; k++) {
            char *messages = fill(conversations[k], field, marks[20]);
            if (usable) n_prompts += try_chat(names[i], c, t, messages, tools, documents, field, k == 1);
            n_plain += try_as_is(names[i], plain, t, messages, tools, documents);
            free(messages);
        }
        chat_close(c);
        chat_close(plain);
        free(text);
    }
    print_message(
        "%zu templates, %zu usable for chats, %zu special tokens in every field: %zu prompts, %zu as they are\n",
        n_names, n_open, n_marks, n_prompts, n_plain);
    assert_true(n_open * 10 >= n_names * 9);
    assert_true(n_prompts > 5 * n_open && n_plain > 3 * n_names);
    free(tools);
    free(documents);
    tokenizer_close(t);
    for (size_t i = 0; i < n_names; i++) free(names[i]);
}

int main(int argc, char **argv)
{
    choose_tests(argc, argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(data_injection) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
