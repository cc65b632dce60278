/* importance.h: importance matrices as `worker imatrix` writes them and `worker quantize --imatrix` reads them: GGUF
 * files in llama.cpp's form.
 *
 * general.type is "imatrix". Of a matrix NAME with rows of k values and n slabs (experts, heads; else 1) the file has
 * NAME.in_sum2, F32 [n][k], the sums of the squares of what its columns were multiplied with, and NAME.counts, F32
 * [n][1], how many rows that were. A file of llama.cpp may have one count for all slabs, and then [1][n * k] sums. */
#ifndef WORKER_IMPORTANCE_H
#define WORKER_IMPORTANCE_H

#include "gguf/gguf.h"

#define IMPORTANCE_TYPE "imatrix"
#define IMPORTANCE_SUMS ".in_sum2"
#define IMPORTANCE_COUNTS ".counts"

struct importance {
    struct gguf *file; /* its own; NULL: there is none */
};

/* Opens and checks all that can be checked without a model. WK_INVALID, with the path: no such file, damaged, or of
 * numbers that are none. */
wk_status importance_open(const char *path, struct importance *out, const struct wk_err *err);
void importance_close(struct importance *i);
/* Is it of this model? Each of its matrices must be there and have its size. WK_INVALID names what is not. */
wk_status importance_suits(const struct importance *i, const struct gguf *model, const struct wk_err *err);
bool importance_has(const struct importance *i, const struct gguf_tensor *t);
/* What an error in each column of a model's tensor costs, in units of the costliest of its slab: *out [slabs][k], the
 * caller's to free. Slabs that nothing was multiplied with, and all of a tensor that is not in the file, have ones.
 * After importance_suits. WK_NO_MEMORY, WK_IO. */
wk_status importance_of(const struct importance *i, const struct gguf_tensor *t, float **out, const struct wk_err *err);

#endif
