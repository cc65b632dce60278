/* schema_document.h: does a grammar made of a JSON Schema accept a document, in whatever order its keys stand? For
 * tests and benchmarks.
 *
 * A validator knows no order of keys; a grammar has the schema's. So the document is written anew while the grammar
 * watches: keys that may come next are tried, first those behind which
 * most others still may. */
#ifndef TESTS_SUPPORT_SCHEMA_DOCUMENT_H
#define TESTS_SUPPORT_SCHEMA_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

struct grammar;
struct js_value;

/* True: some order of its keys is accepted whole. */
bool document_accepted(struct grammar *g, const struct js_value *document);
/* The text as it is. *at (may be NULL): bytes taken. */
bool text_accepted(struct grammar *g, const char *text, size_t n, size_t *at);

#endif
