/* store.h: where the policy document is kept. It is JSON text for a store, whose only number of it is the generation:
 * it grows by one with each change, and tells an older document from a newer one.
 *
 * The first store is a file, encrypted if there is a passphrase (store_file.c). */
#ifndef GATE_STORE_H
#define GATE_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { STORE_MOST_BYTES = 16 << 20 /* of a document */ };

/* All functions: [serialised, any one thread]. Failures: WK_INVALID: what is stored is damaged, older than what was
 * stored before, or of another passphrase; WK_IO; WK_NO_MEMORY. */
struct store {
    void *self;
    /* The document: *json is the caller's, to be given to free, terminated behind its n bytes; NULL: nothing is stored
     * yet. *generation: the one that the store vouches for, which the document must have; 0: it knows none. */
    wk_status (*load)(void *self, char **json, size_t *n, uint64_t *generation, const struct wk_err *err);
    /* Keeps the document for good, in place of the one before: after WK_OK it survives kill -9 and loss of power. After
     * a failure either of the two is kept. */
    wk_status (*save)(void *self, const char *json, size_t n, uint64_t generation, const struct wk_err *err);
    void (*close)(void *self); /* frees self */
};

/* The file `path`, made with the first save. passphrase: n bytes, wiped before this returns; n > 0: the file is
 * encrypted, and one that is not is refused. n = 0: the file is plain JSON, refused if others than its owner can read
 * or write it, and an encrypted one is refused. Beside the file: PATH.lock, held until close, so that two workers do
 * not write one file; with a passphrase PATH.generation, by which an older file that was put back is refused.
 * A wrong passphrase is found by load. [any thread]
 *
 * WK_IO: another process has the file open, or the system refuses; WK_INVALID: the file is damaged or of another form;
 * WK_NO_MEMORY. */
wk_status store_file_open(const char *path, void *passphrase, size_t n, struct store *out, const struct wk_err *err);

#endif
