/* capabilities.h: what a model asks for (Model Capability Descriptor, MCD), what this worker serves (Engine Capability Profile, ECP), and
 * the comparison of the two. A model can run iff its MCD is a subset of the ECP. */
#ifndef WORKER_CAPABILITIES_H
#define WORKER_CAPABILITIES_H

#include <jansson.h>

#include "gguf/gguf.h"
#include "plugin/plugin.h"
#include "tape/tape.h"

enum { CAPABILITIES_MAX_MISSING = 80 };

/* ECP as JSON (contracts/ecp-schema.json); NULL: out of memory. */
json_t *capabilities_profile(const struct plugin_registry *r);

/* Positions that the model is made for: {architecture}.context_length of its file, whatever context it was recorded with. */
uint32_t capabilities_context(const struct tape_program *program);

/* MCD as JSON (contracts/mcd-schema.json). NULL: out of memory. */
json_t *capabilities_descriptor(const char *model_id, const struct plugin_registry *r, const struct tape_program *program);

/* Records the model's pass on its header. *out NULL with a status: it cannot run here; err says why. The caller frees it with tape_free. */
wk_status capabilities_record(const struct gguf *file, const struct plugin_registry *r, struct tape_program **out, const struct wk_err *err);

/* What the file asks for and nobody serves, a sentence each: "model requires architecture mamba, worker only supports llama, qwen2". */
struct missing { char *sentence[CAPABILITIES_MAX_MISSING]; uint32_t n; };
void capabilities_missing(const struct gguf *file, const struct plugin_registry *r, struct missing *out);
/* Refuses the file in one error that names each of them; EXIT_DONE: nothing is missing. */
int missing_refuse(const struct missing *m, const char *path);
void missing_free(struct missing *m);

/* Refuses a model whose <model>.mcd.json contradicts it. */
int capabilities_check_sidecar(const struct gguf *file, const struct plugin_registry *r, const struct tape_program *program);

/* general.name, else the file's stem. */
void capabilities_model_id(const struct gguf *file, char out[128]);

/* <model>.mcd.json beside the file: may add or rename what the file leaves open, never contradict it. WK_OK also if there is none; else
 * its model_id replaces the given one. */
wk_status capabilities_sidecar(const struct gguf *file, json_t *descriptor, const struct wk_err *err);

#endif
