/* formats.c: the table of formats: how families of models write calls, the texts of their own templates; and which row
 * is a model's. */
#include <string.h>

#include "tools/internal.h"

#define XML_CALL "<tool_call>\n<function=$NAME>\n$PARAMS</function>\n</tool_call>"
#define NAME_AND_ARGUMENTS .name_key = "name", .arguments_key = "arguments"
#define GLM_PARAMETER "<arg_key>$KEY</arg_key>\n<arg_value>$VALUE</arg_value>"
#define DSML_CALL "<｜DSML｜invoke name=\"$NAME\">\n$PARAMS</｜DSML｜invoke>\n"
#define DSML_PARAMETER "<｜DSML｜parameter name=\"$KEY\" string=\"$IS\">$VALUE</｜DSML｜parameter>\n"

/* Of rows that a template's marks fit, the first whose text is the template's is taken: so rows that differ in white
 * space alone stand beside each other. */
static const struct tools_format formats[] = {
    /* JSON in a tag */
    { .name = "hermes",
      .marks = { "<tool_call>" },
      .between = "\n",
      .call = "<tool_call>\n$OBJECT\n</tool_call>",
      NAME_AND_ARGUMENTS },
    { .name = "exaone",
      .marks = { "<tool_call>" },
      .between = "\n",
      .call = "<tool_call>$OBJECT</tool_call>",
      NAME_AND_ARGUMENTS },
    { .name = "ax", .marks = { "<tool_call>" }, .call = "<tool_call>$OBJECT</tool_call>", NAME_AND_ARGUMENTS },
    { .name = "longcat-flash",
      .marks = { "<longcat_tool_call>" },
      .call = "<longcat_tool_call>\n$OBJECT\n</longcat_tool_call>",
      NAME_AND_ARGUMENTS },
    { .name = "intern",
      .marks = { "<|action_start|><|plugin|>" },
      .between = "\n",
      .call = "<|action_start|><|plugin|>\n$OBJECT\n<|action_end|>",
      .name_key = "name",
      .arguments_key = "parameters" },
    { .name = "minimax-m1",
      .marks = { "<tool_calls>" },
      .begin = "<tool_calls>\n",
      .between = "\n",
      .end = "\n</tool_calls>",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS },
    { .name = "gigachat-3.1",
      .marks = { "<|function_call|>" },
      .call = "<|function_call|>$OBJECT",
      NAME_AND_ARGUMENTS,
      .single = true },
    { .name = "gigachat-3",
      .marks = { "function call" },
      .single = true,
      .call = "<|message_sep|>\n\nfunction call<|role_sep|>\n$OBJECT",
      NAME_AND_ARGUMENTS },
    /* a JSON array of calls in a tag */
    { .name = "nemotron-nano",
      .marks = { "<TOOLCALL>" },
      .begin = "<TOOLCALL>[",
      .between = ", ",
      .end = "]</TOOLCALL>",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS },
    { .name = "apriel",
      .marks = { "<tool_calls>" },
      .begin = "<tool_calls>[",
      .between = ", ",
      .end = "]</tool_calls>",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS },
    { .name = "apriel-id",
      .marks = { "<tool_calls>" },
      .begin = "<tool_calls>[",
      .between = ", ",
      .end = "]</tool_calls>",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS,
      .id_key = "id" },
    { .name = "apertus",
      .marks = { "<|tools_prefix|>" },
      .begin = "<|tools_prefix|>[",
      .between = ", ",
      .end = "]<|tools_suffix|>",
      .call = "$OBJECT" },
    { .name = "mistral",
      .marks = { "[TOOL_CALLS]" },
      .begin = "[TOOL_CALLS][",
      .between = ", ",
      .end = "]",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS,
      .id_key = "id",
      .ids = TOOLS_ID_NINE },
    { .name = "mistral-0.3",
      .marks = { "[TOOL_CALLS]" },
      .begin = "[TOOL_CALLS] [",
      .between = ", ",
      .end = "]",
      .call = "$OBJECT",
      NAME_AND_ARGUMENTS,
      .id_key = "id",
      .ids = TOOLS_ID_NINE },
    /* the name outside, arguments as JSON */
    { .name = "mistral-3.2",
      .marks = { "[TOOL_CALLS]", "[CALL_ID]" },
      .call = "[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]$ARGS",
      .ids = TOOLS_ID_NINE },
    { .name = "devstral",
      .marks = { "[TOOL_CALLS]", "[ARGS]" },
      .call = "[TOOL_CALLS]$NAME[ARGS]$ARGS",
      .ids = TOOLS_ID_NINE },
    { .name = "deepseek-r1",
      .marks = { "<｜tool▁calls▁begin｜>", "```json" },
      .begin = "<｜tool▁calls▁begin｜>",
      .between = "\n",
      .end = "<｜tool▁calls▁end｜>",
      .call = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$NAME\n"
              "```json\n$ARGS\n```<｜tool▁call▁end｜>" },
    { .name = "deepseek-v3.1",
      .marks = { "<｜tool▁calls▁begin｜>" },
      .begin = "<｜tool▁calls▁begin｜>",
      .end = "<｜tool▁calls▁end｜>",
      .call = "<｜tool▁call▁begin｜>$NAME<｜tool▁sep｜>$ARGS<｜tool▁call▁end｜>" },
    { .name = "kimi-k2",
      .marks = { "<|tool_calls_section_begin|>" },
      .begin = "<|tool_calls_section_begin|>",
      .end = "<|tool_calls_section_end|>",
      .ids = TOOLS_ID_KIMI,
      .call = "<|tool_call_begin|>$ID<|tool_call_argument_begin|>$ARGS<|tool_call_end|>" },
    { .name = "solar",
      .marks = { "<|tool_call:begin|>" },
      .begin = "<|tool_calls|>",
      .end = "<|calls|>",
      .call = "<|tool_call:begin|>$ID<|tool_call:name|>$NAME<|tool_call:args|>$ARGS<|tool_call:end|>" },
    { .name = "hunyuan",
      .marks = { "<tool_calls>", "```json" },
      .begin = "<tool_calls>",
      .between = "\n",
      .end = "</tool_calls>",
      .call = "<tool_call>$NAME\n```json\n$ARGS\n```</tool_call>" },
    { .name = "step-audio", .marks = { "<|CALL_START|>" }, .call = "<|CALL_START|>function\n$NAME\n$ARGS<|CALL_END|>" },
    { .name = "functionary-3.1", .marks = { "<function=" }, .call = "<function=$NAME>$ARGS</function>" },
    /* parameters in tags */
    { .name = "qwen-xml",
      .marks = { "<function=", "<parameter=" },
      .between = "\n",
      .call = XML_CALL,
      .parameter = "<parameter=$KEY>\n$VALUE\n</parameter>\n" },
    { .name = "zyphra",
      .marks = { "<zyphra_tool_call>" },
      .between = "\n",
      .call = "<zyphra_tool_call>\n<function=$NAME>\n$PARAMS</function>\n</zyphra_tool_call>",
      .parameter = "<parameter=$KEY>\n$VALUE\n</parameter>\n" },
    { .name = "step",
      .marks = { "<function=", "<parameter=" },
      .call = XML_CALL,
      .parameter = "<parameter=$KEY>\n$VALUE\n</parameter>\n" },
    { .name = "mimo",
      .marks = { "<function=", "<parameter=" },
      .call = XML_CALL,
      .parameter = "<parameter=$KEY>$VALUE</parameter>\n" },
    { .name = "frog",
      .marks = { "<function=", "<parameter=" },
      .between = "\n",
      .call = "<function=$NAME>\n$PARAMS</function>",
      .parameter = "  <parameter=$KEY>$VALUE</parameter>\n" },
    { .name = "seed",
      .marks = { "<seed:tool_call>" },
      .between = "\n",
      .call = "<seed:tool_call>\n<function=$NAME>\n$PARAMS</function>\n</seed:tool_call>",
      .parameter = "<parameter=$KEY>$VALUE</parameter>\n" },
    { .name = "glm-4.5",
      .marks = { "<arg_key>" },
      .between = "\n",
      .call = "<tool_call>$NAME\n$PARAMS</tool_call>",
      .parameter = GLM_PARAMETER "\n" },
    { .name = "glm-4.7",
      .marks = { "<arg_key>" },
      .call = "<tool_call>$NAME$PARAMS</tool_call>",
      .parameter = "<arg_key>$KEY</arg_key><arg_value>$VALUE</arg_value>" },
    { .name = "ling",
      .marks = { "<arg_key>" },
      .between = "\n",
      .call = "<tool_call>$NAME\n$PARAMS\n</tool_call>",
      .parameter = GLM_PARAMETER },
    { .name = "longcat",
      .marks = { "<longcat_tool_call>" },
      .between = "\n",
      .call = "<longcat_tool_call>$NAME\n$PARAMS</longcat_tool_call>",
      .parameter = "<longcat_arg_key>$KEY</longcat_arg_key>\n<longcat_arg_value>$VALUE</longcat_arg_value>\n" },
    { .name = "solar-2",
      .marks = { "<|tool_call:start|>" },
      .between = "\n",
      .call = "<|tool_call:start|>$NAME\n$PARAMS<|tool_call:end|>",
      .parameter = "<|tool_arg:start|>$KEY<|tool_arg:value|>$VALUE<|tool_arg:end|>\n" },
    { .name = "minimax-m2",
      .marks = { "<minimax:tool_call>" },
      .begin = "<minimax:tool_call>\n",
      .end = "</minimax:tool_call>",
      .call = "<invoke name=\"$NAME\">\n$PARAMS</invoke>\n",
      .parameter = "<parameter name=\"$KEY\">$VALUE</parameter>\n" },
    { .name = "deepseek-v3.2",
      .marks = { "｜DSML｜", "function_calls" },
      .begin = "<｜DSML｜function_calls>\n",
      .end = "</｜DSML｜function_calls>",
      .call = DSML_CALL,
      .parameter = DSML_PARAMETER },
    { .name = "deepseek-v4",
      .marks = { "｜DSML｜", "tool_calls" },
      .begin = "<｜DSML｜tool_calls>\n",
      .end = "</｜DSML｜tool_calls>",
      .call = DSML_CALL,
      .parameter = DSML_PARAMETER },
    { .name = "kimi-k3",
      .marks = { "<|open|>" },
      .begin = "<|open|>tools<|sep|>",
      .end = "<|close|>tools<|sep|>",
      .trigger = "<|open|>tools<|sep|>",
      .call = "<|open|>call tool=\"$NAME\" index=\"$INDEX\"<|sep|>$PARAMS<|close|>call<|sep|>",
      .parameter = "<|open|>argument key=\"$KEY\" type=\"$TYPE\"<|sep|>$VALUE<|close|>argument<|sep|>" },
    /* calls as Python writes them, and Gemma's own */
    { .name = "lfm2",
      .marks = { "<|tool_call_start|>" },
      .begin = "<|tool_call_start|>[",
      .between = ", ",
      .end = "]<|tool_call_end|>",
      .call = "$NAME$PYTHON" },
    { .name = "lfm2-double",
      .marks = { "<|tool_call_start|>" },
      .begin = "<|tool_call_start|>[",
      .between = ", ",
      .end = "]<|tool_call_end|>",
      .call = "$NAME$PYTHON",
      .double_quotes = true },
    { .name = "minicpm3",
      .marks = { "<|tool_call_start|>", "```python" },
      .begin = "<|tool_call_start|>\n```python\n",
      .between = "\n",
      .end = "\n```\n<|tool_call_end|>",
      .call = "$NAME$PYTHON",
      .double_quotes = true,
      .tight = true },
    { .name = "olmo-3",
      .marks = { "<function_calls>" },
      .begin = "<function_calls>",
      .between = "\n",
      .end = "</function_calls>",
      .call = "$NAME$PYTHON",
      .double_quotes = true },
    { .name = "gemma-4", .marks = { "<|tool_call>", "call:" }, .call = "<|tool_call>call:$NAME$GEMMA<tool_call|>" },
    /* bare JSON */
    { .name = "llama-3",
      .marks = { "\"parameters\"" },
      .call = "$OBJECT",
      .name_key = "name",
      .arguments_key = "parameters",
      .single = true },
};

const struct tools_format *tools_formats(size_t *n)
{
    *n = sizeof formats / sizeof *formats;
    return formats;
}

#define BYTES(text) { text, sizeof text - 1 }
const struct tools_written tools_probes[TOOLS_PROBES] = {
    { BYTES("probe_one"), BYTES("{\"text\": \"a b\", \"total\": 3}"), BYTES("probe0001") },
    { BYTES("probe_two"), BYTES("{\"line\": \"c d\"}"), BYTES("probe0002") },
};

static bool holds(struct token_bytes text, const char *part, size_t n)
{
    for (size_t at = 0; n && at + n <= text.len; at++)
        if (memcmp(text.data + at, part, n) == 0) return true;
    return !n;
}

static bool has_marks(const struct tools_format *f, struct token_bytes template)
{
    for (size_t i = 0; i < sizeof f->marks / sizeof *f->marks; i++)
        if (f->marks[i] && !holds(template, f->marks[i], strlen(f->marks[i]))) return false;
    return true;
}

/* Is the row's text of the first n probes in what the template rendered? Ids may be the probes' or by the row's rule.
 */
static wk_status writes(const struct tools_format *f, size_t n, struct token_bytes rendered, bool *out,
                        const struct wk_err *err)
{
    struct tools_written calls[TOOLS_PROBES];
    char ids[TOOLS_PROBES][TOOLS_ID];
    *out = false;
    for (int by_rule = 0; by_rule < 2 && !*out; by_rule++) {
        struct byte_buffer text = { 0 };
        for (size_t i = 0; i < n; i++) {
            calls[i] = tools_probes[i];
            if (by_rule && f->ids == TOOLS_ID_KIMI) calls[i].id = tools_kimi_id(calls[i].name, (uint32_t)i, ids[i]);
        }
        const wk_status status = tools_write(f, calls, n, &text, err);
        *out = !status && holds(rendered, text.data, text.n);
        free(text.data);
        if (status) return status;
    }
    return WK_OK;
}

wk_status tools_find(struct token_bytes template, struct token_bytes one, struct token_bytes two,
                     const struct tools_format **out, bool *single, const struct wk_err *err)
{
    const char *nearest = NULL;
    *out = NULL;
    *single = false;
    if (!one.data)
        return wk_fail(err, WK_UNSUPPORTED,
                       "the model's template does not render a call of a function: its form of "
                       "calls is not known, tools cannot be served");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct tools_format *f = &formats[i];
        bool same = false;
        if (!has_marks(f, template)) continue;
        wk_status status = writes(f, 1, one, &same, err);
        if (!status && same && two.data && !f->single) status = writes(f, 2, two, &same, err);
        if (status) return status;
        if (!nearest) nearest = f->name;
        if (!same) continue;
        *out = f;
        *single = f->single || !two.data;
        return WK_OK;
    }
    if (nearest)
        return wk_fail(err, WK_UNSUPPORTED,
                       "the model's template has marks of the call format \"%s\", but writes a "
                       "call in another way: tools cannot be served",
                       nearest);
    return wk_fail(err, WK_UNSUPPORTED, "no known call format in the model's template: tools cannot be served");
}
