/* json_text.h: text as JSON strings. */
#ifndef CORE_CAPABILITY_JSON_TEXT_H
#define CORE_CAPABILITY_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Any bytes as a JSON string: what is not UTF-8 becomes U+FFFD. NULL: out of memory. [any thread] */
json_t *json_bytes(const char *bytes, size_t len);
/* Lower-case copy of a type's name: the spelling of capability documents. */
json_t *json_lower(const char *name);

#endif
