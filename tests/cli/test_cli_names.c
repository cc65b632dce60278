/* test_cli_names.c: models by their names: the model folder, Ollama's store and the hub's cache, in this order, and
 * what is said when a name means none or several. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maker.h"

#define DIGEST "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LAYERS "{\"schemaVersion\": 2, \"layers\": ["
#define MODEL_LAYER                                            \
    "{\"mediaType\": \"application/vnd.ollama.image.model\", " \
    "\"digest\": \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}"

static char here[2048];

static void folder(const char *path)
{
    char at[512];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(at, sizeof at, "%.*s", (int)(slash - path), path);
        (void)mkdir(at, 0755);
    }
}

static void model(const char *path)
{
    folder(path);
    make_tiny(&(struct tiny_model){ .path = path });
}

static void text(const char *path, const char *content)
{
    folder(path);
    make_file(path, content, strlen(content));
}

static void variable(const char *name, const char *below)
{
    char value[4096];
    (void)snprintf(value, sizeof value, "%s/%s", here, below);
    assert_int_equal(setenv(name, value, 1), 0);
}

static int setup(void **state)
{
    if (enter_scratch(state) || !getcwd(here, sizeof here)) return -1;
    variable("HOME", "home");
    assert_int_equal(unsetenv("XDG_DATA_HOME") | unsetenv("XDG_CACHE_HOME") | unsetenv("OLLAMA_MODELS") |
                         unsetenv("HF_HOME") | unsetenv("HF_HUB_CACHE"),
                     0);
    model("home/.local/share/worker/models/alone.gguf");
    model("home/.local/share/worker/models/everywhere.gguf");
    model("home/.local/share/worker/models/sub/twice.gguf");
    model("home/.local/share/worker/models/other/twice.gguf");
    model("home/.local/share/worker/models/org/name/m-Q4_K_M.gguf");
    model("home/.local/share/worker/models/org/name/m-Q8_0.gguf");
    model("home/.local/share/worker/models/org/single/one.gguf");
    text("home/.local/share/worker/models/org/name/m-Q6_K.gguf.part", "");
    text("home/.local/share/worker/models/notes.txt", "");
    model("home/.ollama/models/blobs/" DIGEST);
    text("home/.ollama/models/manifests/registry.ollama.ai/library/little/latest", LAYERS MODEL_LAYER "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/little/1b", LAYERS MODEL_LAYER "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/everywhere/latest", LAYERS MODEL_LAYER "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/me/mine/latest", LAYERS MODEL_LAYER "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/cloud/latest", LAYERS "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/pair/latest",
         LAYERS MODEL_LAYER ", " MODEL_LAYER "]}");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/broken/latest", "{");
    text("home/.ollama/models/manifests/registry.ollama.ai/library/escape/latest",
         LAYERS "{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:../../../alone\"}]}");
    model("home/.cache/huggingface/hub/models--big--cached/blobs/abc");
    text("home/.cache/huggingface/hub/models--big--cached/refs/main", "1111");
    text("home/.cache/huggingface/hub/models--big--cached/snapshots/1111/x", "");
    assert_int_equal(
        symlink("../../blobs/abc", "home/.cache/huggingface/hub/models--big--cached/snapshots/1111/cached-F16.gguf"),
        0);
    model("home/.cache/huggingface/hub/models--big--cached/snapshots/0000/old-F16.gguf");
    model("home/.cache/huggingface/hub/models--org--name/snapshots/2222/m-Q2_K.gguf");
    text("home/.cache/huggingface/hub/models--org--name/refs/main", "2222\n");
    text("home/.cache/huggingface/hub/models--bad--ref/refs/main", "../../models--big--cached/snapshots/0000");
    model("tiny.gguf");
    model("bare");
    return 0;
}

/* inspect prints the path of the file that it opened. */
static void expect_file(const char *name, const char *file)
{
    char path[4096];
    struct cli_result r = CLI("inspect", name);
    (void)snprintf(path, sizeof path, "file           %s%s%s\n", file[0] == '.' ? here : "",
                   file[0] == '.' ? "/home/" : "", file);
    if (r.status != 0 || strncmp(r.out, path, strlen(path)) != 0)
        fail_msg("%s: status %d, expected %s, got %.300s%s", name, r.status, path, r.out, r.err);
    cli_free(&r);
}

static void expect_none(const char *name, const char *pattern)
{
    struct cli_result r = CLI("inspect", name);
    if (r.status != 1 || !matches(r.err, pattern)) fail_msg("%s: status %d: %s", name, r.status, r.err);
    assert_non_null(strstr(last_line(r.err), "worker: error: MODEL_LOAD_FAILED: "));
    cli_free(&r);
}

static void names_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file;
    } rows[] = {
        { "alone", ".local/share/worker/models/alone.gguf" },
        { "m-Q8_0", ".local/share/worker/models/org/name/m-Q8_0.gguf" },
        { "hf:org/name:q4_k_m", ".local/share/worker/models/org/name/m-Q4_K_M.gguf" },
        { "hf:org/name/m-Q8_0.gguf", ".local/share/worker/models/org/name/m-Q8_0.gguf" },
        { "hf:org/name/m-Q8_0", ".local/share/worker/models/org/name/m-Q8_0.gguf" },
        { "hf:org/single", ".local/share/worker/models/org/single/one.gguf" },
        { "everywhere", ".local/share/worker/models/everywhere.gguf" },
        { "little", ".ollama/models/blobs/" DIGEST },
        { "little:latest", ".ollama/models/blobs/" DIGEST },
        { "little:1b", ".ollama/models/blobs/" DIGEST },
        { "ollama:little", ".ollama/models/blobs/" DIGEST },
        { "ollama:everywhere", ".ollama/models/blobs/" DIGEST },
        { "ollama:me/mine", ".ollama/models/blobs/" DIGEST },
        { "ollama:me/mine:latest", ".ollama/models/blobs/" DIGEST },
        { "cached-F16", ".cache/huggingface/hub/models--big--cached/snapshots/1111/cached-F16.gguf" },
        { "hf:big/cached", ".cache/huggingface/hub/models--big--cached/snapshots/1111/cached-F16.gguf" },
        { "hf:org/name:Q2_K", ".cache/huggingface/hub/models--org--name/snapshots/2222/m-Q2_K.gguf" },
        { "tiny.gguf", "tiny.gguf" },
        { "embedded:haiku", "embedded:haiku" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_file(rows[i].name, rows[i].file);
}

static void names_that_mean_nothing(void **state)
{
    (void)state;
    expect_none("nothing", "these models are there:\n.*  alone\n.*nothing: no model is called that in "
                           "[^ ]*home/.local/share/worker/models \\(--model-dir\\), in [^ ]*home/.ollama/models "
                           "\\(Ollama\\) or in [^ ]*home/.cache/huggingface/hub \\(the hub's cache\\)");
    expect_none("bare", "no model is called that in .*; the file here of that name is ./bare");
    expect_none("hf:org/other", "hf:org/other: no model is called that .*; worker pull fetches it");
    expect_none("hf:org/name:Q3_K", "worker pull fetches it");
    expect_none("hf:org", "expected hf:ORG/NAME");
    expect_none("hf:../../x/y", "expected hf:ORG/NAME");
    expect_none("old-F16", "no model is called that");
    expect_none("ollama:alone", "no model is called that");
    expect_none("twice", "sub/twice.gguf\n.*twice: 2 models are called that: name the file by its path");
    expect_none("hf:org/name", "hf:org/name/m-Q4_K_M.gguf\n.*2 GGUF models are there: name one of those above");
    expect_none("cloud", "cloud:latest: it has no model file here");
    expect_none("pair", "pair:latest: it has several model files");
    expect_none("broken", "broken:latest: its manifest cannot be read");
    expect_none("escape", "escape:latest: its manifest names no digest");
    expect_none("missing.gguf", "missing.gguf: cannot be opened");
    expect_none("./nothing", "nothing: cannot be opened");
}

/* --model-dir, its variable and XDG's move the folder that is looked at first. */
static void the_folder_can_be_another(void **state)
{
    (void)state;
    model("elsewhere/alone.gguf");
    model("xdg/worker/models/of-xdg.gguf");
    struct cli_result a = CLI("inspect", "alone", "--model-dir", "elsewhere");
    assert_int_equal(a.status, 0);
    assert_true(matches(a.out, "^file +elsewhere/alone.gguf\n"));
    variable("WORKER_MODEL_DIR", "elsewhere");
    struct cli_result b = CLI("inspect", "alone");
    assert_int_equal(unsetenv("WORKER_MODEL_DIR"), 0);
    assert_true(matches(b.out, "^file +/.*/elsewhere/alone.gguf\n"));
    variable("XDG_DATA_HOME", "xdg");
    struct cli_result c = CLI("inspect", "of-xdg"), d = CLI("inspect", "alone");
    assert_int_equal(setenv("XDG_DATA_HOME", "xdg", 1), 0); /* not absolute: as if it were not set */
    struct cli_result e = CLI("inspect", "alone");
    assert_int_equal(unsetenv("XDG_DATA_HOME"), 0);
    assert_true(matches(c.out, "^file +/.*/xdg/worker/models/of-xdg.gguf\n"));
    assert_int_equal(d.status, 1);
    assert_true(matches(e.out, "^file +/.*/home/.local/share/worker/models/alone.gguf\n"));
    cli_free(&a);
    cli_free(&b);
    cli_free(&c);
    cli_free(&d);
    cli_free(&e);
}

static void ollama_and_cache_can_be_elsewhere(void **state)
{
    (void)state;
    model("store/blobs/" DIGEST);
    text("store/manifests/hf.co/org/name/Q8_0", LAYERS MODEL_LAYER "]}");
    model("hfhome/hub/models--a--b/snapshots/1/there.gguf");
    text("hfhome/hub/models--a--b/refs/main", "1");
    variable("OLLAMA_MODELS", "store");
    variable("HF_HOME", "hfhome");
    struct cli_result a = CLI("inspect", "ollama:hf.co/org/name:Q8_0"), b = CLI("inspect", "hf:a/b");
    assert_int_equal(unsetenv("OLLAMA_MODELS") | unsetenv("HF_HOME"), 0);
    assert_int_equal(a.status, 0);
    assert_true(matches(a.out, "^file +/.*/store/blobs/" DIGEST "\n"));
    assert_int_equal(b.status, 0);
    assert_true(matches(b.out, "^file +/.*/hfhome/hub/models--a--b/snapshots/1/there.gguf\n"));
    cli_free(&a);
    cli_free(&b);
}

/* Every command that takes a model takes its name. */
static void every_command_takes_names(void **state)
{
    (void)state;
    struct cli_result rows[] = {
        CLI("run", "-m", "alone", "-p", "a", "-n", "1", "--raw"),
        CLI("tokenize", "-m", "alone", "abc"),
        CLI("score", "-m", "alone", "--text", "abc"),
        CLI("plan", "alone"),
        CLI("verify", "-m", "little"),
        CLI("quantize", "alone", "out.gguf", "F16"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].status != 0) fail_msg("row %zu: status %d: %s", i, rows[i].status, rows[i].err);
        cli_free(&rows[i]);
    }
    struct cli_result s = CLI("serve", "-m", "nothing");
    assert_int_equal(s.status, 1);
    assert_non_null(strstr(s.err, "nothing: no model is called that"));
    cli_free(&s);
}

/* Without HOME there is no place but a folder that is named. */
static void without_a_home(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("HOME"), 0);
    struct cli_result a = CLI("inspect", "alone"),
                      b = CLI("inspect", "alone", "--model-dir", "home/.local/share/worker/models");
    variable("HOME", "home");
    assert_int_equal(a.status, 1);
    assert_non_null(strstr(a.err, "(HOME is not set)"));
    assert_int_equal(b.status, 0);
    cli_free(&a);
    cli_free(&b);
}

static json_t *listed(json_t *document, const char *name)
{
    json_t *models = json_object_get(document, "models"), *found = NULL;
    for (size_t i = 0; i < json_array_size(models); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(models, i), "name")), name) == 0)
            found = json_array_get(models, i);
    if (!found) fail_msg("%s is not listed", name);
    return found;
}

static bool is_true(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Every model of every place, what it is, and whether it runs; what is broken is listed with its reason. */
static void list_says_what_runs(void **state)
{
    (void)state;
    folder("lists/x");
    make_tiny(&(struct tiny_model){ .path = "lists/tiny.gguf" });
    make_tiny(&(struct tiny_model){ .path = "lists/other.gguf", .architecture = "mystery" });
    make_truncated("lists/cut.gguf", "lists/tiny.gguf", 3000);
    make_file("lists/split-00001-of-00002.gguf", "GGUF", 4);
    make_file("lists/\x1b[2J.gguf", "GGUF", 4);
    struct cli_result r = CLI("list", "--json", "--model-dir", "lists"), t = CLI("list", "--model-dir", "lists");
    assert_int_equal(r.status, 0);
    json_t *d = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(d);
    assert_string_equal(word(d, "device"), "cpu");
    const json_t *tiny = listed(d, "tiny"), *other = listed(d, "other"), *cut = listed(d, "cut"),
                 *split = listed(d, "split"), *blob = listed(d, "little:latest"), *cloud = listed(d, "cloud:latest"),
                 *cached = listed(d, "hf:big/cached/cached-F16.gguf");
    assert_true(is_true(tiny, "runs") && is_true(tiny, "generates"));
    assert_string_equal(word(tiny, "architecture"), "llama");
    assert_string_equal(word(tiny, "quantization"), "f32");
    assert_string_equal(word(tiny, "path"), "lists/tiny.gguf");
    assert_string_equal(word(tiny, "place"), "folder");
    struct stat st;
    assert_int_equal(stat("lists/tiny.gguf", &st), 0);
    assert_int_equal(json_integer_value(json_object_get(tiny, "bytes")), st.st_size);
    assert_true(json_real_value(json_object_get(tiny, "tokens_per_second")) > 0);
    assert_true(json_real_value(json_object_get(tiny, "bytes_per_token")) > 0);
    assert_true(json_integer_value(json_object_get(tiny, "needs_bytes")) > st.st_size);
    assert_false(is_true(other, "runs"));
    assert_non_null(strstr(word(other, "reason"), "mystery"));
    assert_true(json_is_null(json_object_get(other, "tokens_per_second")));
    assert_false(is_true(cut, "runs"));
    assert_non_null(strstr(word(cut, "reason"), "cut.gguf"));
    assert_non_null(strstr(word(split, "reason"), "file 2 of 2 is not there"));
    assert_true(is_true(blob, "runs"));
    assert_string_equal(word(blob, "place"), "ollama");
    assert_non_null(strstr(word(cloud, "reason"), "no model file here"));
    assert_true(is_true(cached, "runs"));
    assert_string_equal(word(cached, "place"), "hub");
    assert_int_equal(json_array_size(json_object_get(d, "places")), 3);
    json_decref(d);
    assert_int_equal(t.status, 0);
    assert_null(strchr(t.out, 0x1b));
    assert_true(matches(t.out, "NAME +SIZE +FORMAT +ARCHITECTURE +RUNS +TOK/S +PLACE\n"));
    assert_true(matches(t.out, "\ntiny +[0-9.]+ kB +f32 +llama +yes +[0-9]+ +folder\n"));
    assert_true(matches(t.out, "\nother +[0-9.]+ kB +f32 +mystery +no +- +folder\n    .*mystery"));
    assert_true(matches(t.out, "\nmodel folder +lists, 4 models\n"));
    cli_free(&r);
    cli_free(&t);
    struct cli_result huge =
        CLI("list", "--json", "--model-dir", "lists", "--context", "16777216", "--max-sequences", "512");
    d = json_loads(huge.out, JSON_REJECT_DUPLICATES, NULL);
    assert_false(is_true(listed(d, "tiny"), "runs"));
    assert_true(matches(word(listed(d, "tiny"), "reason"), "needs [0-9]+ bytes, [0-9]+ are available"));
    json_decref(d);
    cli_free(&huge);
}

/* What list shows is what --model takes. */
static void every_listed_name_is_found(void **state)
{
    (void)state;
    struct cli_result r = CLI("list", "--json");
    json_t *d = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    size_t tried = 0;
    assert_non_null(d);
    for (size_t i = 0; i < json_array_size(json_object_get(d, "models")); i++) {
        const json_t *m = json_array_get(json_object_get(d, "models"), i);
        if (!is_true(m, "runs") || strcmp(word(m, "name"), "twice") == 0) continue;
        struct cli_result one = CLI("inspect", word(m, "name"));
        if (one.status != 0 || !strstr(one.out, word(m, "path"))) fail_msg("%s: %s", word(m, "name"), one.err);
        cli_free(&one);
        tried++;
    }
    assert_true(tried >= 9);
    json_decref(d);
    cli_free(&r);
}

static void an_empty_list_says_where_and_how(void **state)
{
    (void)state;
    variable("HOME", "nobody");
    struct cli_result r = CLI("list"), j = CLI("list", "--json");
    variable("HOME", "home");
    assert_int_equal(r.status, 0);
    assert_true(matches(r.out, "^model folder +/.*/nobody/.local/share/worker/models, 0 models\nOllama .*, 0 models\n"
                               "hub's cache .*, 0 models\n.*worker pull hf:ORG/NAME"));
    json_t *d = json_loads(j.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(d, "models")), 0);
    json_decref(d);
    cli_free(&r);
    cli_free(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(names_that_mean_nothing),
        cmocka_unit_test(the_folder_can_be_another),
        cmocka_unit_test(ollama_and_cache_can_be_elsewhere),
        cmocka_unit_test(every_command_takes_names),
        cmocka_unit_test(without_a_home),
        cmocka_unit_test(list_says_what_runs),
        cmocka_unit_test(every_listed_name_is_found),
        cmocka_unit_test(an_empty_list_says_where_and_how),
    };
    return cmocka_run_group_tests(tests, setup, leave_scratch);
}
