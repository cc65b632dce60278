/* schema.h: checks a JSON document against the part of JSON Schema that contracts/ uses. */
#ifndef TESTS_CLI_SCHEMA_H
#define TESTS_CLI_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* type, enum, required, properties, additionalProperties: false, items, minimum, minLength. A keyword that is not known
 * fails, so that a schema cannot promise what nobody checks. False: `why` says what and where. */
bool schema_accepts(const json_t *schema, const json_t *value, char *why, size_t cap);

#endif
