/* capability.h: what a model asks for (Model Capability Descriptor, MCD), what this worker serves (Engine Capability
 * Profile, ECP), and the comparison of the two. A model can run iff its MCD is a subset of the ECP. */
#ifndef CORE_CAPABILITY_CAPABILITY_H
#define CORE_CAPABILITY_CAPABILITY_H

#include <jansson.h>

#include "device/device.h"
#include "gguf/gguf.h"
#include "plugin/plugin.h"
#include "tape/tape.h"

enum { CAPABILITIES_MAX_MISSING = 80, CAPABILITIES_MAX_CONTEXT = 1 << 24 /* positions that one may ask for */ };

/* ECP as JSON (contracts/ecp-schema.json). worker_id NULL: after the host; gpu NULL: there is none. NULL: out of
 * memory. [any thread] */
json_t *capabilities_profile(const struct plugin_registry *r, const char *worker_id, const struct device_info *gpu);
/* "a, b, c" of an array of strings into out, cut where it does not fit; "none" of an empty one. */
void capabilities_join(const json_t *array, char *out, size_t cap);

/* What a file's encoding is called: after its general.file_type, "Q4_K_M"; a number that has no name here, or a file
 * without one, after the type that holds most bytes. "?": it has no tensors. [any thread] */
enum { QUANTIZATION_TEXT = 32 };
void capabilities_quantization(const struct gguf *file, const struct plugin_registry *r, char out[QUANTIZATION_TEXT]);

/* Positions that the model is made for: {architecture}.context_length of its file, whatever context it was recorded
 * with. */
uint32_t capabilities_context(const struct tape_program *program);

/* MCD as JSON (contracts/mcd-schema.json). NULL: out of memory. */
json_t *capabilities_descriptor(const char *model_id, const struct plugin_registry *r,
                                const struct tape_program *program);

/* Records the model's pass on its header. *out NULL with a status: it cannot run here; err says why. The caller frees
 * it with tape_free. accepted: keys that may be there unread; NULL: none. */
wk_status capabilities_record(const struct gguf *file, const struct plugin_registry *r, struct gguf_accepted *accepted,
                              struct tape_program **out, const struct wk_err *err);

/* What the file asks for and nobody serves, a sentence each: "model requires architecture mamba, worker only supports
 * llama, qwen2". */
struct missing {
    char *sentence[CAPABILITIES_MAX_MISSING];
    uint32_t n;
};
void capabilities_missing(const struct gguf *file, const struct plugin_registry *r, struct missing *out);
/* Is the descriptor a subset of the profile? What is not is added to *out, which is initialised. */
void capabilities_compare(const json_t *mcd, const json_t *ecp, struct missing *out);
void missing_free(struct missing *m);

/* <model>.mcd.json beside the file: may add or rename what the file leaves open, never contradict it. WK_OK also if
 * there is none; else its model_id replaces the given one. */
wk_status capabilities_sidecar(const struct gguf *file, json_t *descriptor, const struct wk_err *err);

#endif
