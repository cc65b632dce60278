/* json_out.h: JSON on standard output. */
#ifndef WORKER_JSON_OUT_H
#define WORKER_JSON_OUT_H

#include <jansson.h>

#include "gguf/gguf.h"

/* Prints and releases a document; NULL (memory ran out while building it) is a failure. Returns the exit status. */
int json_print(json_t *document);
/* Any bytes as a JSON string: what is not UTF-8 becomes U+FFFD. */
json_t *json_bytes(const char *bytes, size_t len);
/* Lower-case copy of a type's name: the spelling of capability documents. */
json_t *json_lower(const char *name);
/* A metadata value: scalars and strings as they are, arrays as {"array": element type, "count": n}. */
json_t *json_kv(const struct gguf *file, const struct gguf_kv *kv);

#endif
