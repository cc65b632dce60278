/* test_model_ref.c: what a model_ref can name, and that nothing outside of the folder can be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_ref.h"

static char root[64], dir[128];

static void put(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
}

static void folder(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int make(void **state)
{
    (void)state;
    char path[256];
    (void)snprintf(root, sizeof root, "/tmp/worker-ref-XXXXXX");
    if (!mkdtemp(root)) return -1;
    static const char *const folders[] = { "models",           "models/org",      "models/org/one", "models/org/two",
                                           "models/org/split", "models/org/none", "models/linked",  "models/json",
                                           "models/mcd",       "models/plain",    "secret" };
    static const char *const files[] = { "secret/key.gguf",
                                         "models/a.gguf",
                                         "models/..a..gguf",
                                         "models/linked/m-00001-of-00002.gguf",
                                         "models/json/m.gguf",
                                         "models/mcd/m.gguf",
                                         "models/plain/m.gguf",
                                         "models/plain/tokenizer.json",
                                         "models/org/one/only.gguf",
                                         "models/org/one/README.md",
                                         "models/org/two/x.gguf",
                                         "models/org/two/y.gguf",
                                         "models/org/split/m-00001-of-00002.gguf",
                                         "models/org/split/m-00002-of-00002.gguf" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) folder(folders[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) put(files[i]);
    (void)snprintf(dir, sizeof dir, "%s/models", root);
    (void)snprintf(path, sizeof path, "%s/models/link.gguf", root);
    if (symlink("../secret/key.gguf", path)) return -1;
    (void)snprintf(path, sizeof path, "%s/models/near.gguf", root);
    if (symlink("a.gguf", path)) return -1;
    (void)snprintf(path, sizeof path, "%s/models/out", root);
    if (symlink("../secret", path)) return -1;
    /* What opening a model opens besides. */
    static const char *const links[] = { "linked/m-00002-of-00002.gguf", "json/tokenizer.json", "mcd/m.mcd.json" };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        (void)snprintf(path, sizeof path, "%s/models/%s", root, links[i]);
        if (symlink("../../secret/key.gguf", path)) return -1;
    }
    (void)snprintf(path, sizeof path, "%s/models/fifo.gguf", root);
    return mkfifo(path, 0644);
}

static int clean(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void gives(const char *ref, const char *expected)
{
    char out[MODEL_PATH_MAX], why[512], whole[512];
    if (!model_ref_resolve(dir, ref, out, why, sizeof why)) fail_msg("%s: %s", ref, why);
    (void)snprintf(whole, sizeof whole, "%s/%s", dir, expected);
    assert_string_equal(out, whole);
}

static void test_names(void **state)
{
    (void)state;
    char absolute[256];
    gives("a.gguf", "a.gguf");
    gives("org/one/only.gguf", "org/one/only.gguf");
    gives("..a..gguf", "..a..gguf"); /* no folder */
    gives("plain/m.gguf", "plain/m.gguf");
    gives("hf:org/one", "org/one/only.gguf");
    gives("hf:org/two/y.gguf", "org/two/y.gguf");
    gives("hf:org/split", "org/split/m-00001-of-00002.gguf");
    (void)snprintf(absolute, sizeof absolute, "%s/a.gguf", dir);
    gives(absolute, "a.gguf");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const refs[] = { "",
                                        "hf:",
                                        "/",
                                        ".",
                                        "..",
                                        "../secret/key.gguf",
                                        "org/../../secret/key.gguf",
                                        "/etc/passwd",
                                        "org/../a.gguf", /* stays below, and is refused all the same */
                                        "hf:org/../a.gguf",
                                        "linked/m-00001-of-00002.gguf",
                                        "hf:linked",
                                        "json/m.gguf",
                                        "mcd/m.gguf",
                                        "link.gguf",
                                        "near.gguf",
                                        "out/key.gguf",
                                        "hf:../secret/key.gguf",
                                        "hf:org/two",
                                        "hf:org/none",
                                        "hf:org",
                                        "org/one",
                                        "missing.gguf",
                                        "fifo.gguf",
                                        "a.gguf/",
                                        "a.gguf/..",
                                        "hf:/etc",
                                        "hf:out" };
    char out[MODEL_PATH_MAX], why[512], absolute[256], *long_one = malloc(8192);
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        if (model_ref_resolve(dir, refs[i], out, why, sizeof why)) fail_msg("%s: resolved to %s", refs[i], out);
        assert_null(strstr(why, root)); /* no path of this machine goes out */
    }
    (void)snprintf(absolute, sizeof absolute, "%s/../secret/key.gguf", dir);
    assert_false(model_ref_resolve(dir, absolute, out, why, sizeof why));
    (void)snprintf(absolute, sizeof absolute, "%sx/a.gguf", dir);
    assert_false(model_ref_resolve(dir, absolute, out, why, sizeof why));
    assert_false(model_ref_resolve(NULL, "a.gguf", out, why, sizeof why));
    assert_non_null(strstr(why, "--model-dir"));
    assert_non_null(long_one);
    memset(long_one, 'a', 8191);
    long_one[8191] = '\0';
    assert_false(model_ref_resolve(dir, long_one, out, why, sizeof why));
    free(long_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, make, clean);
}
