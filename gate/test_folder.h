/* test_folder.h: a folder of a test's own, with a file "policy" in it, and files as bytes. For tests alone, after
 * <cmocka.h>. */
#ifndef GATE_TEST_FOLDER_H
#define GATE_TEST_FOLDER_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate/store.h"

static char folder[64], path[96], state_path[112];
static char text[1024];
static const struct wk_err err = { text, sizeof text };

static inline int make_folder(void **state)
{
    (void)state;
    text[0] = '\0';
    (void)snprintf(folder, sizeof folder, "/tmp/worker-gate-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/policy", folder);
    (void)snprintf(state_path, sizeof state_path, "%s.generation", path);
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

struct bytes {
    unsigned char *b;
    size_t n;
};

/* For free. */
static inline struct bytes get(const char *name)
{
    struct bytes out = { malloc(1 << 20), 0 };
    FILE *f = fopen(name, "rb");
    assert_non_null(out.b);
    assert_non_null(f);
    out.n = fread(out.b, 1, 1 << 20, f);
    (void)fclose(f);
    return out;
}

static inline void put(const char *name, const void *b, size_t n)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && fchmod(fd, 0600) == 0);
    assert_int_equal(write(fd, b, n), n);
    assert_int_equal(close(fd), 0);
}

/* passphrase NULL: none. */
static inline wk_status open_store(const char *passphrase, struct store *out)
{
    char copy[64] = "";
    if (passphrase) (void)snprintf(copy, sizeof copy, "%s", passphrase);
    const size_t n = strlen(copy);
    const wk_status status = store_file_open(path, copy, n, out, &err);
    for (size_t i = 0; i < n; i++) assert_int_equal(copy[i], 0); /* whatever came of it */
    return status;
}

static inline struct store opened(const char *passphrase)
{
    struct store store;
    if (open_store(passphrase, &store) != WK_OK) fail_msg("%s", text);
    return store;
}

#endif
