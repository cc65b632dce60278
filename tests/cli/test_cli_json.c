/* test_cli_json.c: every JSON document against its schema, the plan against its own sum, and the documents made from
 * the table of options. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "maker.h"
#include "options.h"
#include "schema.h"

static int setup(void **state)
{
    if (enter_scratch(state)) return -1;
    make_tiny(&(struct tiny_model){ .path = "tiny.gguf" });
    make_tiny(&(struct tiny_model){ .path = "vocabulary.gguf", .vocabulary_only = 1 });
    return 0;
}

static json_t *document(struct cli_result r)
{
    json_error_t why;
    json_t *d = json_loads(r.out, 0, &why);
    if (!d) fail_msg("status %d, not JSON (%s): %s\n%s", r.status, why.text, r.out, r.err);
    cli_free(&r);
    return d;
}

static void assert_schema(const char *name, const json_t *value)
{
    char path[512], why[512] = "";
    (void)snprintf(path, sizeof path, "%s/%s", WORKER_CONTRACTS, name);
    json_t *schema = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(schema);
    if (!schema_accepts(schema, value, why, sizeof why)) fail_msg("%s: %s", name, why);
    json_decref(schema);
}

/* The checker itself must be able to say no. */
static void checker_refuses(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "[]",
        "{}",
        "{\"model_id\":\"x\"}",
        "{\"model_id\":\"\",\"architecture\":\"llama\",\"positional\":\"none\",\"attention\":\"mha\",\"quant\":[],"
        "\"context_max\":1,\"vocab_size\":0}",
        "{\"model_id\":\"x\",\"architecture\":\"llama\",\"positional\":\"spiral\",\"attention\":\"mha\",\"quant\":[],"
        "\"context_max\":1,\"vocab_size\":0}",
        "{\"model_id\":\"x\",\"architecture\":\"llama\",\"positional\":\"none\",\"attention\":\"mha\",\"quant\":[1],"
        "\"context_max\":1,\"vocab_size\":0}",
        "{\"model_id\":\"x\",\"architecture\":\"llama\",\"positional\":\"none\",\"attention\":\"mha\",\"quant\":[],"
        "\"context_max\":0,\"vocab_size\":0}",
        "{\"model_id\":\"x\",\"architecture\":\"llama\",\"positional\":\"none\",\"attention\":\"mha\",\"quant\":[],"
        "\"context_max\":1,\"vocab_size\":0,\"more\":1}",
        "{\"model_id\":\"x\",\"architecture\":\"llama\",\"positional\":\"none\",\"attention\":\"swa mha\",\"quant\":[],"
        "\"context_max\":1,\"vocab_size\":0}"
    };
    json_t *schema = json_load_file(WORKER_CONTRACTS "/mcd-schema.json", 0, NULL);
    char why[512];
    assert_non_null(schema);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *value = json_loads(wrong[i], 0, NULL);
        assert_non_null(value);
        if (schema_accepts(schema, value, why, sizeof why)) fail_msg("accepted: %s", wrong[i]);
        json_decref(value);
    }
    json_decref(schema);
}

static void profile(void **state)
{
    (void)state;
    json_t *d = document(CLI("capabilities", "--json"));
    assert_schema("ecp-schema.json", d);
    struct cli_result text = CLI("capabilities");
    assert_int_equal(text.status, 0);
    assert_true(matches(text.out, "supports_quant .*q8_0"));
    cli_free(&text);
    json_decref(d);
}

static void descriptor(void **state)
{
    (void)state;
    json_t *d = document(CLI("inspect", "--json", "tiny.gguf")), *mcd = json_object_get(d, "mcd");
    assert_schema("mcd-schema.json", mcd);
    assert_string_equal(json_string_value(json_object_get(mcd, "model_id")), "tiny");
    assert_string_equal(json_string_value(json_object_get(mcd, "positional")), "rope_llama");
    assert_string_equal(json_string_value(json_object_get(mcd, "attention")), "mqa");
    assert_int_equal(json_integer_value(json_object_get(mcd, "context_max")), 64);
    assert_int_equal(json_integer_value(json_object_get(mcd, "vocab_size")), TINY_VOCAB);
    assert_int_equal(json_array_size(json_object_get(d, "tensors")), 12);
    json_decref(d);
    d = document(CLI("inspect", "--json", "vocabulary.gguf"));
    assert_true(json_is_null(json_object_get(d, "mcd")));
    assert_true(json_string_length(json_object_get(d, "reason")) > 0);
    json_decref(d);
}

/* Of every architecture that is part of the program; gpt-oss has windows and sinks. */
static void descriptors_of_all(void **state)
{
    (void)state;
    static const char *const models[][2] = { { "embedded:haiku", "gqa" }, { "embedded:haiku-moe", "gqa swa sinks" } };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        json_t *d = document(CLI("inspect", "--json", models[i][0])), *mcd = json_object_get(d, "mcd");
        assert_schema("mcd-schema.json", mcd);
        assert_string_equal(json_string_value(json_object_get(mcd, "attention")), models[i][1]);
        assert_int_equal(json_array_size(json_object_get(d, "missing")), 0);
        json_decref(d);
    }
}

/* A file's own words cannot command a terminal. */
static void names_are_harmless(void **state)
{
    (void)state;
    make_tiny(&(struct tiny_model){ .path = "loud.gguf",
                                    .name = "\x1b]0;owned\x07\xc2\x9b"
                                            "31m" });
    struct cli_result text = CLI("inspect", "loud.gguf"), plan = CLI("plan", "loud.gguf"),
                      json = CLI("inspect", "--json", "loud.gguf"),
                      run = CLI("run", "-m", "loud.gguf", "-p", "x", "-n", "1");
    assert_int_equal(text.status | plan.status | json.status | run.status, 0);
    assert_null(strpbrk(text.out, "\x1b\x07"));
    assert_null(strstr(text.out, "\xc2\x9b"));
    assert_null(strpbrk(plan.out, "\x1b\x07"));
    assert_null(strpbrk(json.out, "\x1b\x07"));
    assert_null(strpbrk(run.err, "\x1b\x07"));
    cli_free(&text);
    cli_free(&plan);
    cli_free(&json);
    cli_free(&run);
}

static void sidecar_names_the_model(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_id\": \"org/tiny-one\", \"vocab_size\": 260, \"context_max\": 64, \"note\": \"kept out\"}";
    make_tiny(&(struct tiny_model){ .path = "named.gguf" });
    make_file("named.mcd.json", text, sizeof text - 1);
    json_t *d = document(CLI("inspect", "--json", "named.gguf")), *mcd = json_object_get(d, "mcd");
    assert_schema("mcd-schema.json", mcd);
    assert_string_equal(json_string_value(json_object_get(mcd, "model_id")), "org/tiny-one");
    json_decref(d);
    struct cli_result shorter =
        CLI("plan", "named.gguf", "--context", "32"); /* a context asked for is no contradiction */
    assert_int_equal(shorter.status, 0);
    cli_free(&shorter);
}

static void plan_adds_up(void **state)
{
    (void)state;
    json_t *d = document(CLI("plan", "tiny.gguf", "--json", "--max-sequences", "4")),
           *bytes = json_object_get(d, "bytes");
    json_int_t total = 0;
    const char *kind;
    json_t *value;
    json_object_foreach (bytes, kind, value) total += json_integer_value(value);
    assert_true(json_is_true(json_object_get(d, "feasible")));
    assert_int_equal(total, json_integer_value(json_object_get(d, "total")));
    assert_true(json_integer_value(json_object_get(bytes, "weights")) > 0);
    assert_int_equal(json_integer_value(json_object_get(d, "context")), 64);
    /* keys and values, F16, one layer, one head of 16, 64 positions, 4 sequences: at least these */
    assert_true(json_integer_value(json_object_get(bytes, "kv")) >= 4 * 64 * 2 * 16 * 2);
    const json_t *groups = json_object_get(d, "kv_groups"), *all = json_array_get(groups, 0);
    assert_int_equal(json_array_size(groups), 1);
    assert_int_equal(json_integer_value(json_object_get(all, "window")), 0);
    assert_int_equal(json_integer_value(json_object_get(all, "layers")), 1);
    assert_int_equal(json_integer_value(json_object_get(all, "pages")), 4 * 64 / 32);
    assert_int_equal(json_integer_value(json_object_get(all, "bytes")),
                     json_integer_value(json_object_get(bytes, "kv")));
    json_decref(d);
}

static void plan_names_what_is_missing(void **state)
{
    (void)state;
    make_tiny(&(struct tiny_model){ .path = "strange.gguf", .architecture = "mamba", .embedding_type = 77 });
    struct cli_result r = CLI("plan", "strange.gguf", "--json");
    assert_int_equal(r.status, 1);
    assert_true(matches(last_line(r.err), "MODEL_LOAD_FAILED: strange.gguf: model requires ggml type 77"));
    json_t *d = document(r);
    assert_true(json_is_false(json_object_get(d, "feasible")));
    assert_int_equal(json_array_size(json_object_get(d, "missing")), 2);
    json_decref(d);
}

static void plugins_are_listed(void **state)
{
    (void)state;
    json_t *d = document(CLI("plugin", "list", "--json")), *list = json_object_get(d, "plugins");
    assert_true(json_array_size(list) >= 3);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i),
               *one = document(CLI("plugin", "info", "--json", json_string_value(json_object_get(e, "path"))));
        static const char *const keys[] = { "id", "kind", "claims", "path", "sha256" };
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            assert_true(json_string_length(json_object_get(e, keys[k])) > 0);
            assert_true(json_equal(json_object_get(e, keys[k]),
                                   json_object_get(one, keys[k]))); /* what runs is what the note says */
        }
        json_decref(one);
        if (!json_object_get(e, "cuda"))
            continue; /* a build with CUDA: the module says that it belongs to this plugin */
        char kind[64];
        (void)snprintf(kind, sizeof kind, "%s-cuda", json_string_value(json_object_get(e, "kind")));
        one = document(CLI("plugin", "info", "--json", json_string_value(json_object_get(e, "cuda"))));
        assert_string_equal(json_string_value(json_object_get(one, "kind")), kind);
        assert_true(json_equal(json_object_get(one, "id"), json_object_get(e, "id")));
        json_decref(one);
    }
    json_decref(d);
}

/* ---- documents ----------------------------------------------------------------------------------------- */

static char *made(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", WORKER_DOCUMENTS, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 1000);
    (void)fclose(f);
    return text;
}

/* A page for each command, that has the options of the command and no other one. */
static void manual_names_every_option(void **state)
{
    (void)state;
    free(made("man1/worker.1"));
    for (int c = 0; c < CMD_COUNT; c++) {
        char name[64];
        (void)snprintf(name, sizeof name, "man1/worker-%s.1", command_table[c].name);
        char *page = made(name);
        for (int i = 0; i < OPT_COUNT; i++) {
            char option[96] = "\\-\\-", *out = option + 4;
            for (const char *p = option_table[i].name; *p; p++) {
                if (*p == '-') *out++ = '\\';
                *out++ = *p;
            }
            memcpy(out, "\n", 2);
            if (option_table[i].argument) memcpy(out, " \\fI", 5);
            bool has = false; /* at the end of a line that may have the letter in front */
            for (const char *at = page; !has && (at = strstr(at, option)); at++)
                has = strncmp(at - 3, ".B ", 3) == 0 || strncmp(at - 8, ".B \\-", 5) == 0;
            bool wanted = false; /* some names are two options, each of some commands */
            for (int k = 0; k < OPT_COUNT; k++)
                wanted = wanted || (strcmp(option_table[k].name, option_table[i].name) == 0 &&
                                    option_of(&option_table[k], (enum command)c) &&
                                    !option_table[k].argument == !option_table[i].argument);
            if (has != wanted) fail_msg("%s: --%s: %s", name, option_table[i].name, wanted ? "missing" : "not its own");
        }
        free(page);
    }
    if (system("command -v groff >/dev/null") == 0)
        assert_int_equal(system("for f in '" WORKER_DOCUMENTS "'/man1/*.1; do test -z \"$(groff -man -ww -Tutf8 -z "
                                "\"$f\" 2>&1)\" || exit 1; done"),
                         0);
    if (system("command -v mandoc >/dev/null") == 0)
        assert_int_equal(system("mandoc -T lint '" WORKER_DOCUMENTS "'/man1/*.1"), 0);
    if (system("command -v lexgrog >/dev/null") == 0)
        assert_int_equal(system("lexgrog '" WORKER_DOCUMENTS "'/man1/*.1 >/dev/null"), 0);
}

static void completions_name_every_option(void **state)
{
    (void)state;
    char *bash = made("worker.bash"), *zsh = made("_worker");
    for (int i = 0; i < OPT_COUNT; i++) {
        char plain[64];
        (void)snprintf(plain, sizeof plain, "--%s", option_table[i].name);
        if (!strstr(bash, plain)) fail_msg("bash completion: no %s", plain);
        if (!strstr(zsh, plain)) fail_msg("zsh completion: no %s", plain);
    }
    free(bash);
    free(zsh);
    assert_int_equal(system("bash -n '" WORKER_DOCUMENTS "/worker.bash'"), 0);
    if (system("command -v zsh >/dev/null") == 0) assert_int_equal(system("zsh -n '" WORKER_DOCUMENTS "/_worker'"), 0);
}

static void bash_completes(void **state)
{
    (void)state;
    assert_int_equal(system("bash -c '. " WORKER_DOCUMENTS
                            "/worker.bash; COMP_WORDS=(worker run --tempe); COMP_CWORD=2; _worker; "
                            "test \"${COMPREPLY[*]}\" = --temperature'"),
                     0);
    assert_int_equal(
        system("bash -c '. " WORKER_DOCUMENTS
               "/worker.bash; COMP_WORDS=(worker det); COMP_CWORD=1; _worker; test \"${COMPREPLY[*]}\" = detokenize'"),
        0);
    assert_int_equal(system("bash -c '. " WORKER_DOCUMENTS
                            "/worker.bash; COMP_WORDS=(worker run --device c); COMP_CWORD=3; "
                            "_worker; test \"${COMPREPLY[*]}\" = \"cpu cuda\"'"),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(checker_refuses),
                                        cmocka_unit_test(profile),
                                        cmocka_unit_test(descriptor),
                                        cmocka_unit_test(descriptors_of_all),
                                        cmocka_unit_test(names_are_harmless),
                                        cmocka_unit_test(sidecar_names_the_model),
                                        cmocka_unit_test(plan_adds_up),
                                        cmocka_unit_test(plan_names_what_is_missing),
                                        cmocka_unit_test(plugins_are_listed),
                                        cmocka_unit_test(manual_names_every_option),
                                        cmocka_unit_test(completions_name_every_option),
                                        cmocka_unit_test(bash_completes) };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
