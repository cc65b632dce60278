/* adapter.h: the file of a LoRA adapter, checked by itself: what it is and for whom, and that each of its tensors has
 * its partner. What it changes is found while a model is recorded (adapt.c).
 *
 * Of a model's tensor NAME the file has NAME.lora_a and NAME.lora_b, of one rank. A matrix W then counts as
 * W + s B A, a table of embeddings whose row is looked up has the row plus s B A[row]; s is what adapter_factor says.
 * [any thread] */
#ifndef CORE_TAPE_ADAPTER_H
#define CORE_TAPE_ADAPTER_H

#include "gguf/gguf.h"

enum { ADAPTERS_MAX = 16, ADAPTER_TEXT = 256 };

struct adapter {
    struct gguf *file;   /* the caller's; alive as long as what was recorded with it */
    double alpha, scale; /* the file's; the user's. scale 0: it is checked, and changes nothing */
    /* general.architecture; what the file says of its use, "" where it says nothing: UTF-8 or not, cut to fit */
    char architecture[64], task[ADAPTER_TEXT], prefix[ADAPTER_TEXT];
};

enum adapter_half { ADAPTER_A = 0, ADAPTER_B = 1 };

/* WK_INVALID, with what the file is and where it goes, if its general.type says that it is no model: an adapter, or an
 * importance matrix. */
wk_status adapter_not_model(const struct gguf *file, const struct wk_err *err);
/* Reads and checks all that can be checked without a model. `file` stays the caller's. WK_INVALID, with the file's
 * path: not an adapter, damaged, or of numbers that are none; WK_UNSUPPORTED: of a kind that is not served. */
wk_status adapter_read(struct gguf *file, double scale, struct adapter *out, const struct wk_err *err);
/* The adapter's half of the model's tensor of that name; NULL: it has none. */
const struct gguf_tensor *adapter_find(const struct adapter *a, const char *name, enum adapter_half half);
/* Length of the name of the model's tensor in a tensor's name of an adapter, and which half it is; 0: neither. */
size_t adapter_name(const struct gguf_tensor *t, enum adapter_half *half);
/* What B A is multiplied by: scale * alpha / rank; of alpha 0 the scale alone. */
float adapter_factor(const struct adapter *a, uint64_t rank);

#endif
