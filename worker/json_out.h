/* json_out.h: JSON on standard output. */
#ifndef WORKER_JSON_OUT_H
#define WORKER_JSON_OUT_H

#include <jansson.h>

#include "capability/json_text.h"
#include "gguf/gguf.h"

/* Prints and releases a document, with nothing in it that a terminal obeys; NULL (memory ran out while building it) is
 * a failure. Returns the exit status. */
int json_print(json_t *document);
/* A metadata value: scalars and strings as they are, arrays as {"array": element type, "count": n}. */
json_t *json_kv(const struct gguf *file, const struct gguf_kv *kv);

#endif
