/* test_tools_templates.c: which row is a template's: every row is found by what it writes and refused by what it does
 * not. With test data: what real templates write. */
#include "tools/test_functions.h"

#include <dirent.h>

#include "chat/chat.h"
#include "test_data.h"
#include "tools/internal.h"

/* As the row's template shows it. */
static void show_row(const struct tools_format *f, const struct tools_written *calls, size_t n, struct byte_buffer *out)
{
    struct tools_format shown = *f;
    if (f->shown) shown.object = f->shown;
    write_row(&shown, calls, n, out);
    if (!f->misspelt[0]) return;
    struct byte_buffer spelt = { 0 };
    const size_t len = strlen(f->misspelt[0]);
    for (const char *at = out->data; *at; at++) {
        const bool here = strncmp(at, f->misspelt[0], len) == 0;
        append(&spelt, here ? bytes(f->misspelt[1]) : (struct token_bytes){ at, 1 });
        if (here) at += len - 1;
    }
    free(out->data);
    *out = spelt;
}

static void test_rows_are_found_by_what_a_template_writes(void **state)
{
    size_t rows;
    const struct tools_format *f = tools_formats(&rows);
    char text[256];
    const struct wk_err err = { text, sizeof text };
    (void)state;
    for (size_t i = 0; i < rows; i++) {
        struct byte_buffer one = { 0 }, two = { 0 }, template = { 0 };
        struct tools_format found;
        bool single;
        for (size_t k = 0; k < 2; k++)
            if (f[i].marks[k]) append(&template, bytes(f[i].marks[k]));
        append(&one, bytes("<user>\n<assistant>"));
        append(&two, bytes("<user>\n<assistant>"));
        show_row(&f[i], tools_probes, 1, &one);
        if (!f[i].single) show_row(&f[i], tools_probes, 2, &two);
        const struct tools_rendered r = { .template = { template.data, template.n },
                                          .one = { one.data, one.n },
                                          .two = { f[i].single ? NULL : two.data, two.n } };
        if (tools_find(&r, &found, &single, &err)) fail_msg("%s: %s", f[i].name, text);
        assert_string_equal(found.name, f[i].name);
        assert_int_equal(single, f[i].single);
        /* The same marks, another form: refused. */
        one.data[one.n - 1] ^= 1;
        one.data[one.n / 2] ^= 1;
        assert_int_equal(tools_find(&r, &found, &single, &err), WK_UNSUPPORTED);
        assert_non_null(strstr(text, f[i].name) ? text : strstr(text, "call format"));
        free(one.data);
        free(two.data);
        free(template.data);
    }
    const struct tools_rendered unknown = { .template = bytes("{{ x }}"), .one = bytes("x") },
                                none = { .template = bytes("<tool_call>") };
    struct tools_format found;
    bool single;
    assert_int_equal(tools_find(&unknown, &found, &single, &err), WK_UNSUPPORTED);
    assert_int_equal(tools_find(&none, &found, &single, &err), WK_UNSUPPORTED);
}

/* ---- real templates --------------------------------------------------------------------------------------- */

/* The family of each rendering; NULL: not served; docs/http.md says why ("Formats of calls"). */
static const struct {
    const char *template, *format;
} families[] = {
    { "Qwen-Qwen3-4B-Instruct-2507", "hermes" },
    { "Qwen-Qwen3-Coder-30B-A3B-Instruct", "qwen-xml" },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama-3" },
    { "meta-llama-Llama-3.2-3B-Instruct", "llama-3" },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral" },
    { "Mistral-Small-3.2-24B-Instruct-2506", "mistral-3.2" },
    { "mistralai-Devstral-Small-2-24B-Instruct-2512", "devstral" },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1" },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek-v3.1" },
    { "deepseek-ai-DeepSeek-V3.2", "deepseek-v3.2" },
    { "meetkai-functionary-medium-v3.1", "functionary-3.1" },
    { "zai-org-GLM-4.5-Air", "glm-4.5" },
    { "GLM-4.7-Flash", "glm-4.7" },
    { "moonshotai-Kimi-K2.6", "kimi-k2" },
    { "MiniMax-M2", "minimax-m2" },
    { "ibm-granite-granite-4.0", "hermes" },
    { "NVIDIA-Nemotron-Nano-v2", "nemotron-nano" },
    { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen-xml" },
    { "google-gemma-4-31B-it", "gemma-4" },
    { "Apertus-8B-Instruct", "apertus" },
    { "LFM2.5-8B-A1B", "lfm2" },
    { "ByteDance-Seed-OSS", "seed" },
    { "StepFun3.5-Flash", "qwen-xml" },
    { "unsloth-Apriel-1.5", "apriel" },
    { "Kimi-K3", "kimi-k3" },
    { "XiaomiMiMo-MiMo-V2-Flash", "mimo" },
};

/* The renderings' ids of Kimi are not of its form; the form holds the name. */
static void name_ids(char *text, size_t cap)
{
    static const char *const ids[][2] = { { "call00001", "functions.get_weather:0" },
                                          { "call00002", "functions.search:1" } };
    for (size_t i = 0; i < 2; i++) {
        char *at = strstr(text, ids[i][0]);
        if (!at) continue;
        const size_t n = strlen(ids[i][1]), tail = strlen(at + 9) + 1;
        assert_true((size_t)(at - text) + n + tail <= cap);
        memmove(at + n, at + 9, tail);
        memcpy(at, ids[i][1], n);
    }
}

static const char *family_of(const char *template)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].template, template) == 0) return families[i].format;
    return NULL;
}

static void data_renderings_of_real_templates(void **state)
{
    size_t n, index, seen = 0;
    char *file = data_read("templates_real/tool_call_renderings.json", &n);
    json_t *all = json_loadb(file, n, 0, NULL), *rendering;
    (void)state;
    assert_non_null(all);
    struct expected calls[2];
    char *arguments[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *call = json_array_get(json_object_get(all, "calls"), i);
        arguments[i] = json_dumps(json_object_get(call, "arguments"), 0);
        calls[i] = (struct expected){ json_string_value(json_object_get(call, "name")), arguments[i] };
    }
    json_array_foreach (json_object_get(all, "formats"), index, rendering) {
        const char *template = json_string_value(json_object_get(rendering, "template"));
        const char *format = family_of(template);
        if (!format) continue;
        seen++;
        struct tools_model *m = model_of(row(format), NULL);
        for (size_t i = 0; i < 2; i++) {
            char text[4096];
            const char *given = json_string_value(json_object_get(rendering, i ? "two_calls" : "one_call"));
            if (!given) continue;
            /* Bare JSON is the answer's beginning; what was rendered before it is the prompt. */
            const char *begin = strcmp(format, "llama-3") == 0 ? strstr(given, "{\"name\"") : given;
            (void)snprintf(text, sizeof text, "%s", begin);
            if (row(format)->ids == TOOLS_ID_KIMI) name_ids(text, sizeof text);
            expect(m, text, strlen(text), calls, i + 1, NULL, template);
        }
        tools_model_close(m);
    }
    assert_int_equal(seen, sizeof families / sizeof *families);
    for (size_t i = 0; i < 2; i++) free(arguments[i]);
    json_decref(all);
    free(file);
}

/* Each row's templates among the test data; those of no row call nothing, or in a form that is not served. */
static const struct {
    const char *format, *templates;
} found_rows[] = {
    { "apertus", " Apertus-8B-Instruct.jinja " },
    { "apriel-id", " Apriel-1.6-15b-Thinker-fixed.jinja ServiceNow-AI-Apriel-1.5-15b-Thinker.jinja "
                   "unsloth-Apriel-1.5.jinja " },
    { "deepseek-r1", " deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja "
                     "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@56a144.jinja llama-cpp-deepseek-r1.jinja "
                     "microsoft-MAI-DS-R1.jinja "
                     "unsloth-r1-1776.jinja " },
    { "deepseek-v3.1", " deepseek-ai-DeepSeek-V3.1.jinja " },
    { "deepseek-v3.2", " deepseek-ai-DeepSeek-V3.2.jinja " },
    { "deepseek-v4", " deepseek-ai-DeepSeek-V4-Flash-0731.jinja deepseek-ai-DeepSeek-V4.jinja "
                     "unsloth-DeepSeek-V4-Flash.jinja " },
    { "devstral", " mistralai-Devstral-Small-2-24B-Instruct-2512.jinja "
                  "mistralai-Ministral-3-14B-Reasoning-2512.jinja "
                  "mistralai-Ministral-3-3B-Instruct-2512.jinja unsloth-mistral-Devstral-Small-2507.jinja " },
    { "frog", " microsoft-FrogBoss-32B-2510.jinja " },
    { "functionary-3.1", " kakaocorp-kanana-1.5-8b-instruct-2505.jinja meetkai-functionary-medium-v3.1.jinja " },
    { "functionary-3.2", " meetkai-functionary-medium-v3.2.jinja " },
    { "gemma-4", " google-gemma-4-26B-A4B-it.jinja google-gemma-4-31B-it-interleaved.jinja "
                 "google-gemma-4-31B-it.jinja google-gemma-4-E4B-it.jinja " },
    { "gigachat-3.1", " GigaChat3.1-10B-A1.8B.jinja ai-sage-GigaChat3.1-Audio-10B-A1.8B.jinja " },
    { "glm-4.5", " GLM-4.6.jinja poolside-Laguna-XS-2.1.jinja poolside-Laguna-XS.2.jinja "
                 "zai-org-GLM-4.5-Air.jinja zai-org-GLM-4.6V.jinja " },
    { "glm-4.7", " GLM-4.7-Flash.jinja poolside-Laguna-S-2.1.jinja zai-org-GLM-5.1.jinja "
                 "zai-org-GLM-5.2.jinja " },
    { "hermes", " Bielik-11B-v3.0-Instruct.jinja JetBrains-Mellum2-12B-A2.5B-Instruct.jinja MiMo-VL.jinja "
                "NightPrince-Muslim-6B-PRO.jinja NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja "
                "NousResearch-Hermes-4-14B.jinja Qwen-QwQ-32B.jinja Qwen-QwQ-32B@16488a.jinja "
                "Qwen-Qwen2.5-7B-Instruct.jinja Qwen-Qwen3-0.6B.jinja Qwen-Qwen3-4B-Instruct-2507.jinja "
                "Qwen-Qwen3-4B-Thinking-2507.jinja Qwen-Qwen3-Embedding-8B.jinja "
                "Qwen-Qwen3-Omni-30B-A3B-Instruct.jinja Qwen-Qwen3-VL-8B-Instruct.jinja "
                "ibm-granite-granite-4.0.jinja ibm-granite-granite-4.1.jinja "
                "ibm-granite-granite-switch-4.1-3b-preview.jinja ibm-granite-granite-vision-4.1-4b.jinja " },
    { "intern", " internlm-Intern-S1-mini.jinja " },
    { "kimi-k2", " moonshotai-Kimi-K2.5.jinja moonshotai-Kimi-K2.6.jinja moonshotai-Kimi-K2.7-Code.jinja "
                 "moonshotai-Kimi-K2.jinja moonshotai-Kimi-Linear-48B-A3B-Instruct.jinja " },
    { "kimi-k3", " Kimi-K3.jinja " },
    { "lfm2", " LFM2.5-8B-A1B.jinja " },
    { "lfm2-double", " LiquidAI-LFM2.5-VL-450M.jinja " },
    { "ling", " inclusionAI-Ring-2.6-1T.jinja inclusionai-ling-3.0-flash.jinja " },
    { "llama-3", " meta-llama-Llama-3.1-8B-Instruct.jinja meta-llama-Llama-3.2-3B-Instruct.jinja " },
    { "mimo", " XiaomiMiMo-MiMo-V2-Flash.jinja " },
    { "minicpm3", " openbmb-MiniCPM3-4B.jinja " },
    { "minicpm-5", " openbmb-MiniCPM-SALA.jinja openbmb-MiniCPM5-1B.jinja " },
    { "minimax-m1", " MiniMax-M1.jinja " },
    { "minimax-m3", " MiniMax-M3.jinja " },
    { "minimax-m2", " MiniMax-M2.jinja MiniMaxAI-MiniMax-M2.5.jinja " },
    { "mistral", " 0xA50C1A1-Mistral-Nemo-Instruct-2407-Heretic-v2.jinja "
                 "mistralai-Mistral-Nemo-Instruct-2407.jinja " },
    { "mistral-0.3", " mistralai-Mistral-7B-Instruct-v0.3.jinja " },
    { "mistral-3.2", " Mistral-Small-3.2-24B-Instruct-2506.jinja " },
    { "nemotron-nano", " NVIDIA-Nemotron-Nano-v2.jinja " },
    { "olmo-3", " allenai-Olmo-3-7B-Instruct.jinja " },
    { "qwen-xml", " NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja Qwen-Qwen3-Coder-30B-A3B-Instruct.jinja "
                  "Qwen-Qwen3-Coder-Next.jinja Qwen-Qwen3.6-35B-A3B.jinja Qwen3-Coder.jinja Qwen3.5-4B.jinja "
                  "StepFun3.5-Flash.jinja arcee-ai-Trinity-Large-Thinking.jinja nvidia-Cosmos3-Edge.jinja "
                  "stepfun-ai-Step-3.7-Flash.jinja " },
    { "seed", " ByteDance-Seed-OSS.jinja " },
    { "solar", " upstage-Solar-Open-100B.jinja " },
    { "gigachat-3", " GigaChat3-10B-A1.8B.jinja " },
};

/* By the way that a model's own template goes. */
static void row_of_template(const char *source, size_t len, char out[64])
{
    struct chat *c;
    bool single;
    const char *why;
    out[0] = '\0';
    if (chat_open_text(source, len, NULL, NULL, &c, NULL)) return;
    const struct tools_model *m = chat_calls(c, &single, &why);
    if (m) (void)snprintf(out, 64, "%s", m->format.name);
    chat_close(c);
}

static void data_real_templates_find_their_rows(void **state)
{
    char path[DATA_PATH_MAX], name[512];
    size_t n_found = 0, expected = 0;
    DIR *folder = opendir(data_path(path, "templates_real/templates"));
    (void)state;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        size_t len;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(name, sizeof name, "templates_real/templates/%s", e->d_name);
        char *source = data_read(name, &len);
        char found[64];
        row_of_template(source, len, found);
        (void)snprintf(name, sizeof name, " %s ", e->d_name);
        free(source);
        const char *row_name = "";
        for (size_t i = 0; i < sizeof found_rows / sizeof *found_rows; i++)
            if (strstr(found_rows[i].templates, name)) row_name = found_rows[i].format;
        if (strcmp(found, row_name) != 0) fail_msg("%s: expected row \"%s\", found \"%s\"", name, row_name, found);
        n_found += *found != '\0';
    }
    (void)closedir(folder);
    for (size_t i = 0; i < sizeof found_rows / sizeof *found_rows; i++)
        for (const char *at = found_rows[i].templates; (at = strstr(at, ".jinja")); at++) expected++;
    assert_int_equal(n_found, expected);
}

/* ---- histories ---------------------------------------------------------------------------------------------- */

static const char write_schema[] =
    "{\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\"}, \"n\": {\"type\": \"number\"}, \"i\": "
    "{\"type\": \"integer\"}, \"flag\": {\"type\": \"boolean\"}, \"list\": {\"type\": \"array\"}, \"obj\": {\"type\": "
    "\"object\"}, \"none\": {\"type\": \"null\"}}}";
static const struct tools_function writer = { { "write", 5 }, { write_schema, sizeof write_schema - 1 }, false };

static const char *const carried[] = {
    "{\"text\": \"plain\"}",
    "{\"text\": \"it's \\\"quoted\\\" and \\\\ back\"}",
    "{\"text\": \"one\\n\\ttwo\\n\\nthree\"}",
    "{\"text\": \"K\xC3\xB6ln \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80 <b>&amp;</b>\"}",
    "{\"text\": \"12\"}",
    "{\"text\": \"\"}",
    "{\"text\": \"a <tool_call> [TOOL_CALLS] <function=x> <|tool_call_begin|> [{ b\"}",
    "{\"text\": \"true\", \"flag\": true, \"i\": -42, \"n\": 0.25}",
    "{\"obj\": {\"a\": {\"b\": [1, \"x y\", null, true, {}]}, \"e\": {}}, \"list\": [], \"text\": \"t\"}",
    "{\"list\": [[1, 2], [\"a, b\", \"c: d\"]], \"none\": null}",
    "{}",
};

/* A conversation in which an answer calls, or says the call as this text; without a call: up to where it begins. */
static bool render_history(const struct chat *c, const struct tools_written *call, const char *says,
                           struct byte_buffer *out)
{
    char offered[2048];
    struct conversation said;
    struct chat_problem why;
    struct chat_prompt p;
    json_t *calls = call ? json_pack("[{s:s%, s:s, s:{s:s%, s:s%}}]", "id", call->id.data, call->id.len, "type",
                                     "function", "function", "name", call->name.data, call->name.len, "arguments",
                                     call->arguments.data, call->arguments.len)
                         : NULL;
    json_t *all = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s, s:s, s:s%}]", "role", "user", "content", "u", "role",
                            "assistant", "content", says ? says : "", "role", "tool", "content", "r", "name", "write",
                            "tool_call_id", call ? call->id.data : "x", call ? call->id.len : 1);
    assert_non_null(all);
    if (!call) assert_int_equal(json_array_remove(all, 1) + json_array_remove(all, 1), 0);
    if (says)
        json_decref(calls);
    else if (call)
        assert_int_equal(json_object_set_new(json_array_get(all, 1), "tool_calls", calls), 0);
    char *json = json_dumps(all, 0);
    (void)snprintf(offered, sizeof offered,
                   "[{\"type\": \"function\", \"function\": {\"name\": \"write\", \"description\": \"d\", "
                   "\"parameters\": %s}}]",
                   write_schema);
    if (!conversation_read(json, strlen(json), &said, &why)) fail_msg("%s: %s", json, why.text);
    struct chat_request q = CHAT_REQUEST_OF(&said);
    q.no_generation = call != NULL;
    bool ok = false;
    for (int with_tools = 1; with_tools >= 0 && !ok; with_tools--) { /* some templates show calls, but no functions */
        q.tools = with_tools ? bytes(offered) : (struct token_bytes){ 0 };
        ok = chat_render(c, &q, &p, &why);
        for (size_t i = 0; ok && i < p.n; i++) append(out, (struct token_bytes){ p.part[i].bytes, p.part[i].len });
        chat_prompt_free(&p);
    }
    conversation_free(&said);
    json_decref(all);
    free(json);
    return ok;
}

/* A call that the template shows is read back as it was; the same call as an answer's text makes the same prompt. */
static void check_history(const char *name, const struct chat *c, const struct tools_model *m, const char *arguments)
{
    struct byte_buffer prompt = { 0 }, whole = { 0 }, row_text = { 0 }, as_text = { 0 };
    struct answer a = { 0 };
    const struct tools_format *f = &m->format;
    const struct tools_written call = { bytes("write"), bytes(arguments), bytes("call00001") };
    const struct expected expected = { "write", arguments };
    size_t from = 0;
    if (!render_history(c, NULL, NULL, &prompt) || !render_history(c, &call, NULL, &whole))
        fail_msg("%s (%s): refused: %s", name, f->name, arguments);
    while (from < prompt.n && from < whole.n && prompt.data[from] == whole.data[from]) from++;
    for (size_t back = 0; back < 8 && from && !strchr("<[\n", whole.data[from]); back++) from--;
    /* Elements are empty for null, and for what a schema does not say to be an object. */
    const bool lost = strstr(f->call, "$NESTED") && strstr(arguments, "null");
    if (!f->misspelt[0] && !lost) {
        parse(m, whole.data + from, whole.n - from, 1, 0, false, &a);
        if (a.n != 1) fail_msg("%s (%s): %u calls in %s", name, f->name, a.n, whole.data + from);
        expect_call(&a, 0, &expected, name);
    }
    const char *object = f->object ? f->object : "";
    /* Between tags, templates print other values than strings as Python does; a text stays what it was. */
    const bool printed = f->parameter && (strstr(arguments, "flag") || strstr(arguments, "list"));
    if (!format_is_bare(f) && !strstr(object, "$ID") && f->ids != TOOLS_ID_KIMI && !printed) {
        assert_int_equal(tools_write(f, &call, 1, &row_text, NULL), WK_OK);
        append(&row_text, bytes(""));
        if (!render_history(c, &call, row_text.data, &as_text)) fail_msg("%s (%s)", name, f->name);
        if (as_text.n != whole.n || memcmp(as_text.data, whole.data, whole.n) != 0)
            fail_msg("%s (%s): as text:\n%s\nas a call:\n%s", name, f->name, as_text.data + from, whole.data + from);
    }
    answer_free(&a);
    free(prompt.data);
    free(whole.data);
    free(row_text.data);
    free(as_text.data);
}

static void data_histories_are_read_back(void **state)
{
    char path[DATA_PATH_MAX], name[512], text[256];
    const struct wk_err err = { text, sizeof text };
    DIR *folder = opendir(data_path(path, "templates_real/templates"));
    struct tools_set *functions_of_all = set;
    (void)state;
    assert_non_null(folder);
    assert_int_equal(tools_set_open(&writer, 1, &set, &err), WK_OK);
    for (struct dirent *e; (e = readdir(folder));) {
        size_t len;
        struct chat *c;
        bool single;
        const char *why;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(name, sizeof name, "templates_real/templates/%s", e->d_name);
        char *source = data_read(name, &len);
        if (!chat_open_text(source, len, NULL, NULL, &c, NULL)) {
            const struct tools_model *m = chat_calls(c, &single, &why);
            for (size_t i = 0; m && i < sizeof carried / sizeof *carried; i++)
                check_history(e->d_name, c, m, carried[i]);
            chat_close(c);
        }
        free(source);
    }
    (void)closedir(folder);
    tools_set_close(set);
    set = functions_of_all;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_found_by_what_a_template_writes),
        cmocka_unit_test(data_renderings_of_real_templates),
        cmocka_unit_test(data_real_templates_find_their_rows),
        cmocka_unit_test(data_histories_are_read_back),
    };
    choose_tests(argc, argv);
    return cmocka_run_group_tests(tests, open_set, close_set);
}
