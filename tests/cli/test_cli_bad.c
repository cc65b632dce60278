/* test_cli_bad.c: bad input of every kind. Each gives one clear line with its code, exit status 1, no output and no
 * file. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "maker.h"

/* Files that lie in the working directory while the table runs. */
static void make_bad_files(void)
{
    static const unsigned char hostile_count[] = { 'G', 'G', 'U', 'F', 3, 0, 0, 0, 255, 255, 255, 255,
                                                   255, 255, 255, 127, 1, 0, 0, 0, 0,   0,   0,   0 };
    static const unsigned char hostile_string[] = { 'G', 'G', 'U', 'F', 3,   0,   0,   0,   0,   0,  0,
                                                    0,   0,   0,   0,   0,   1,   0,   0,   0,   0,  0,
                                                    0,   0,   255, 255, 255, 255, 255, 255, 255, 255 };
    static const unsigned char version_1[] = { 'G', 'G', 'U', 'F', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    static const unsigned char swapped[] = { 'G', 'G', 'U', 'F', 0, 0, 0, 3, 0, 0, 0, 0,
                                             0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0 };
    make_file("page.gguf", "<!DOCTYPE html><html><body>404 Not Found</body></html>", 54);
    make_file("empty.gguf", "", 0);
    make_file("count.gguf", hostile_count, sizeof hostile_count);
    make_file("string.gguf", hostile_string, sizeof hostile_string);
    make_file("v1.gguf", version_1, sizeof version_1);
    make_file("swapped.gguf", swapped, sizeof swapped);
    make_file("bytes.txt", "abc\xff\xfe", 5);
    make_file("text.so", "not a shared object", 19);
    make_tiny(&(struct tiny_model){ .path = "good.gguf" });
    make_tiny(&(struct tiny_model){ .path = "nan.gguf", .nan_weight = 1 });
    make_tiny(&(struct tiny_model){ .path = "arch.gguf", .architecture = "mamba" });
    make_tiny(&(struct tiny_model){ .path = "type.gguf", .embedding_type = 77 });
    make_tiny(&(struct tiny_model){ .path = "i8.gguf", .embedding_type = 24 });
    make_tiny(&(struct tiny_model){ .path = "vocabulary.gguf", .vocabulary_only = 1 });
    make_tiny(&(struct tiny_model){ .path = "jinja.gguf",
                                    .chat_template = "{% for m in messages %}{{ m.strange }}{% endfor %}" });
    make_truncated("cut-header.gguf", "good.gguf", 200);
    make_truncated("cut-data.gguf", "good.gguf", 30000);
    make_tiny(&(struct tiny_model){ .path = "beside.gguf" });
    make_file("beside.mcd.json", "{\"vocab_size\": 7}", 17);
}

static const char long_prompt[] =
    "This prompt has more bytes than the sixty-four positions of the model's context, and every byte is a token.";

static const struct {
    const char *args[14];
    const char *input, *pattern;
} bad[] = {
    /* files */
    { { "run", "--model", "nowhere.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: nowhere.gguf: .*No such file" },
    { { "run", "--model", ".", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: \\.: " },
    { { "run", "--model", "page.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: page.gguf: .*GGUF" },
    { { "run", "--model", "empty.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: empty.gguf: " },
    { { "run", "--model", "count.gguf", "--prompt", "x" },
      NULL,
      "MODEL_LOAD_FAILED: count.gguf: .*9223372036854775807" },
    { { "run", "--model", "string.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: string.gguf: " },
    { { "run", "--model", "v1.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: v1.gguf: .*version 1" },
    { { "run", "--model", "swapped.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: swapped.gguf: .*big-endian" },
    { { "run", "--model", "cut-header.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: cut-header.gguf: " },
    { { "run", "--model", "cut-data.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: cut-data.gguf: " },
    { { "run", "--model", "embedded:nobody", "--prompt", "x" },
      NULL,
      "MODEL_LOAD_FAILED: embedded:nobody: not a model of this program, which has embedded:haiku" },
    { { "inspect", "embedded:" }, NULL, "MODEL_LOAD_FAILED: embedded:: not a model of this program" },
    { { "inspect", "page.gguf" }, NULL, "MODEL_LOAD_FAILED: page.gguf: " },
    { { "inspect", "--json", "cut-data.gguf" }, NULL, "MODEL_LOAD_FAILED: cut-data.gguf: " },
    { { "inspect", "--json", "beside.gguf" },
      NULL,
      "MODEL_LOAD_FAILED: beside.mcd.json: vocab_size is 7, but the model's file has 260" },
    { { "plan", "beside.gguf" }, NULL, "MODEL_LOAD_FAILED: beside.mcd.json: vocab_size is 7" },
    { { "run", "--model", "beside.gguf", "--prompt", "x" },
      NULL,
      "MODEL_LOAD_FAILED: beside.mcd.json: vocab_size is 7" },
    { { "tokenize", "--model", "page.gguf", "x" }, NULL, "MODEL_LOAD_FAILED: page.gguf: " },
    { { "quantize", "page.gguf", "new.gguf", "Q8_0" }, NULL, "MODEL_LOAD_FAILED: page.gguf: " },
    /* what nobody serves */
    { { "run", "--model", "arch.gguf", "--prompt", "x" },
      NULL,
      "MODEL_LOAD_FAILED: arch.gguf: model requires architecture mamba, worker only supports .*llama" },
    { { "run", "--model", "type.gguf", "--prompt", "x" },
      NULL,
      "MODEL_LOAD_FAILED: type.gguf: model requires ggml type 77, worker only supports .*f32" },
    { { "plan", "arch.gguf" },
      NULL,
      "MODEL_LOAD_FAILED: arch.gguf: model requires architecture mamba, worker only supports .*llama" },
    { { "plan", "type.gguf" },
      NULL,
      "MODEL_LOAD_FAILED: type.gguf: model requires ggml type 77, worker only supports .*f32" },
    { { "quantize", "type.gguf", "new.gguf", "Q8_0" },
      NULL,
      "MODEL_LOAD_FAILED: type.gguf: tensor token_embd.weight: .*77" },
    { { "plan", "i8.gguf" }, NULL, "MODEL_LOAD_FAILED: i8.gguf: model requires i8, worker only supports .*f32" },
    { { "quantize", "i8.gguf", "new.gguf", "Q8_0" },
      NULL,
      "MODEL_LOAD_FAILED: i8.gguf: tensor token_embd.weight: is of i8, which no plugin serves" },
    { { "quantize", "good.gguf", "new.gguf", "Q9_X" }, NULL, "INVALID_REQUEST: Q9_X: neither a mixture .* nor a type" },
    { { "quantize", "good.gguf", "good.gguf", "Q8_0" }, NULL, "INVALID_REQUEST: good.gguf: is the input itself" },
    { { "quantize", "good.gguf", "nodir/new.gguf", "Q8_0" }, NULL, "OUTPUT_FAILED: nodir/new.gguf" },
    { { "quantize", "nan.gguf", "new.gguf", "Q8_0" },
      NULL,
      "MODEL_LOAD_FAILED: nan.gguf: tensor blk.0.attn_q.weight: value 37 is not a finite number" },
    { { "run", "--model", "vocabulary.gguf", "--prompt", "x" }, NULL, "MODEL_LOAD_FAILED: " },
    { { "run", "--model", "jinja.gguf", "--prompt", "x" }, NULL, "INVALID_REQUEST: .*--raw" },
    { { "run", "--model", "good.gguf", "--chat", "--prompt", "x" }, NULL, "INVALID_REQUEST: .*--raw" },
    /* plugins */
    { { "run", "--plugin-dir", "/nodir", "--model", "good.gguf", "--prompt", "x" },
      NULL,
      "PLUGIN_REFUSED: .*/nodir.*No such file" },
    { { "run", "--plugin-dir", "relative", "--model", "good.gguf", "--prompt", "x" },
      NULL,
      "PLUGIN_REFUSED: .*/relative.*No such file" },
    { { "plugin", "info", "text.so" }, NULL, "PLUGIN_REFUSED: .*text.so" },
    { { "plugin", "info", "nowhere.so" }, NULL, "PLUGIN_REFUSED: .*nowhere.so" },
    { { "plugin", "list", "--prefer", "nonsense" }, NULL, "PLUGIN_REFUSED: .*nonsense" },
    /* text and ids */
    { { "run", "--model", "good.gguf", "--file", "bytes.txt" },
      NULL,
      "INVALID_REQUEST: bytes.txt: byte 3 \\(0xff\\) is not valid UTF-8" },
    { { "run", "--model", "good.gguf" },
      "ab\x80",
      "INVALID_REQUEST: standard input: byte 2 \\(0x80\\) is not valid UTF-8" },
    { { "run", "--model", "good.gguf", "--prompt", "\xc3" },
      NULL,
      "INVALID_REQUEST: text: byte 0 \\(0xc3\\) is not valid UTF-8" },
    { { "run", "--model", "good.gguf", "--file", "nowhere.txt" },
      NULL,
      "INVALID_REQUEST: nowhere.txt: cannot be opened: No such file" },
    { { "run", "--model", "good.gguf", "--prompt", long_prompt },
      NULL,
      "CONTEXT_LENGTH_EXCEEDED: the prompt has [0-9]+ tokens, the context 64" },
    { { "run", "--model", "good.gguf", "--prompt", "x", "--logit-bias", "9999=1" }, NULL, "INVALID_REQUEST: .*9999" },
    { { "run", "--model", "good.gguf", "--prompt", "x", "--top-k", "1000" }, NULL, "INVALID_REQUEST: .*top_k" },
    { { "tokenize", "--model", "good.gguf", "--file", "bytes.txt" }, NULL, "INVALID_REQUEST: bytes.txt: byte 3" },
    { { "detokenize", "--model", "good.gguf", "1", "two" }, NULL, "INVALID_REQUEST: ids: \"two" },
    { { "detokenize", "--model", "good.gguf", "260" }, NULL, "INVALID_REQUEST: ids: \"260.*0 to 259" },
    { { "detokenize", "--model", "good.gguf", "99999999999999999999999" }, NULL, "INVALID_REQUEST: ids: " },
    { { "score", "--model", "good.gguf", "--ids", "1 2 260" }, NULL, "INVALID_REQUEST: ids: \"260" },
    { { "score", "--model", "good.gguf", "--ids", " " }, NULL, "INVALID_REQUEST: no tokens" },
    { { "debug", "tap", "--model", "good.gguf", "--text", long_prompt, "--tap", "logits", "--out", "taps" },
      NULL,
      "CONTEXT_LENGTH_EXCEEDED: " },
    { { "score", "--model", "good.gguf", "--text", "x", "--logits", "nodir/out" }, NULL, "OUTPUT_FAILED: nodir/out" },
    { { "bench", "--model", "good.gguf", "--context", "32", "-p", "32", "-n", "1", "-r", "1" },
      NULL,
      "CONTEXT_LENGTH_EXCEEDED: " },
    { { "debug", "tap", "--model", "good.gguf", "--text", "x", "--tap", "blk.0.nothing", "--out", "taps" },
      NULL,
      "MODEL_LOAD_FAILED: .*blk.0.nothing" },
    /* weights that are not numbers */
    { { "run", "--model", "nan.gguf", "--prompt", "x" }, NULL, "INFERENCE_FAILED: " },
    { { "score", "--model", "nan.gguf", "--text", "xyz", "--logits", "out.f32" }, NULL, "INFERENCE_FAILED: " },
};

static void each_has_its_line(void **state)
{
    (void)state;
    make_bad_files();
    const unsigned files = files_here();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cli_result r = cli(bad[i].args, bad[i].input);
        char whole[8192];
        (void)snprintf(whole, sizeof whole, "%s", r.err);
        const char *line = last_line(r.err);
        if (r.status != 1 || r.out[0] || strncmp(line, "worker: error: ", 15) != 0 || !matches(line, bad[i].pattern))
            fail_msg("row %zu (%s %s %s): status %d\nstandard output: %s\nstandard error: %s\nexpected: %s", i,
                     bad[i].args[0], bad[i].args[1], bad[i].args[2], r.status, r.out, whole, bad[i].pattern);
        if (files_here() != files) fail_msg("row %zu (%s): a file was written", i, bad[i].args[0]);
        cli_free(&r);
    }
}

static void json_narration_ends_in_an_error_event(void **state)
{
    (void)state;
    struct cli_result r = CLI("inspect", "page.gguf", "--log", "json");
    assert_int_equal(r.status, 1);
    assert_true(matches(last_line(r.err), "^\\{.*\"event\":\"error\".*\"code\":\"MODEL_LOAD_FAILED\".*\\}$"));
    cli_free(&r);
}

/* A new folder inside the working directory, as an absolute path. */
static const char *make_folder(const char *name, char out[512])
{
    char here[400];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(mkdir(name, 0777), 0);
    (void)snprintf(out, 512, "%s/%s", here, name);
    return out;
}

/* A foreign file among plugins is named, and the others still serve. */
static void foreign_shared_object(void **state)
{
    (void)state;
    char folder[512];
    (void)make_folder("dir", folder);
    make_file("dir/foreign.so", "\177ELF but no more", 16);
    struct cli_result list = CLI("plugin", "list", "--plugin-dir", folder),
                      run = CLI("run", "--plugin-dir", folder, "--model", "good.gguf", "--prompt", "x", "-n", "1");
    assert_int_equal(list.status, 0);
    assert_true(matches(list.out, "refused .*foreign.so"));
    assert_true(matches(list.out, "found .*org.worker"));
    assert_int_equal(run.status, 0);
    assert_true(matches(run.err, "warning: .*foreign.so"));
    cli_free(&list);
    cli_free(&run);
}

/* A plugin built against other headers: a real one whose note has another hash. */
static void other_headers(void **state)
{
    (void)state;
    const char *folder = getenv("WORKER_PLUGIN_PATH");
    char path[512], other[512], *bytes;
    assert_non_null(folder);
    (void)snprintf(path, sizeof path, "%s/llama.so", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, n, f), n);
    (void)fclose(f);
    /* The note's name, type word before it; the major version lies 6 bytes into the descriptor (worker/abi.h). */
    char *note = NULL;
    for (size_t i = 4; !note && i + 300 < n; i++)
        if (memcmp(bytes + i, "\x01\x00\x4b\x57worker\0\0", 12) == 0) note = bytes + i + 12;
    assert_non_null(note);
    note[6] ^= 0x55;
    (void)make_folder("other", other);
    make_file("other/llama.so", bytes, n);
    free(bytes);
    struct cli_result list = CLI("plugin", "list", "--plugin-dir", other),
                      info = CLI("plugin", "info", "other/llama.so");
    assert_int_equal(list.status, 0);
    assert_true(matches(list.out, "refused .*other/llama.so"));
    assert_true(matches(list.out, "was built for plugin ABI 84"));
    assert_int_equal(info.status, 1);
    assert_true(matches(info.err, "PLUGIN_REFUSED: .*other/llama.so.*was built for plugin ABI 84"));
    cli_free(&list);
    cli_free(&info);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_has_its_line),
                                        cmocka_unit_test(json_narration_ends_in_an_error_event),
                                        cmocka_unit_test(foreign_shared_object), cmocka_unit_test(other_headers) };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
