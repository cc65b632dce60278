/* schema.c: see schema.h. */
#include "schema.h"

#include <regex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_type(const json_t *value, const char *type)
{
    if (strcmp(type, "object") == 0) return json_is_object(value);
    if (strcmp(type, "array") == 0) return json_is_array(value);
    if (strcmp(type, "string") == 0) return json_is_string(value);
    if (strcmp(type, "integer") == 0) return json_is_integer(value);
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(type, "null") == 0) return json_is_null(value);
    return false;
}

static bool has_one_type(const json_t *value, const json_t *rule)
{
    if (json_is_string(rule)) return has_type(value, json_string_value(rule));
    for (size_t i = 0; i < json_array_size(rule); i++)
        if (has_type(value, json_string_value(json_array_get(rule, i)))) return true;
    return false;
}

static bool has_pattern(const json_t *value, const char *pattern)
{
    regex_t expression;
    if (!json_is_string(value)) return true;
    if (regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB)) return false;
    const bool good = regexec(&expression, json_string_value(value), 0, NULL, 0) == 0;
    regfree(&expression);
    return good;
}

static bool among(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value)) return true;
    return false;
}

static bool properties_accept(const json_t *schema, const json_t *value, char *why, size_t cap)
{
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (json_object_get(value, name)) continue;
        (void)snprintf(why, cap, "%s: required and missing", name);
        return false;
    }
    for (void *at = json_object_iter((json_t *)(uintptr_t)value); at;
         at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
        const char *name = json_object_iter_key(at);
        const json_t *sub = json_object_get(properties, name);
        if (!sub && json_is_false(json_object_get(schema, "additionalProperties"))) {
            (void)snprintf(why, cap, "%s: not in the schema", name);
            return false;
        }
        if (sub && !schema_accepts(sub, json_object_iter_value(at), why, cap)) {
            char inner[256];
            (void)snprintf(inner, sizeof inner, "%s", why);
            (void)snprintf(why, cap, "%s: %s", name, inner);
            return false;
        }
    }
    return true;
}

static bool keyword_accepts(const char *keyword, const json_t *rule, const json_t *value)
{
    if (strcmp(keyword, "type") == 0) return has_one_type(value, rule);
    if (strcmp(keyword, "pattern") == 0) return has_pattern(value, json_string_value(rule));
    if (strcmp(keyword, "enum") == 0) return among(rule, value);
    if (strcmp(keyword, "minimum") == 0)
        return !json_is_number(value) || json_number_value(value) >= json_number_value(rule);
    if (strcmp(keyword, "minLength") == 0) return json_string_length(value) >= (size_t)json_integer_value(rule);
    static const char *const handled[] = { "$schema",  "title",      "description",
                                           "required", "properties", "additionalProperties",
                                           "items" };
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        if (strcmp(keyword, handled[i]) == 0) return true;
    return false;
}

bool schema_accepts(const json_t *schema, const json_t *value, char *why, size_t cap)
{
    const json_t *items = json_object_get(schema, "items");
    for (void *at = json_object_iter((json_t *)(uintptr_t)schema); at;
         at = json_object_iter_next((json_t *)(uintptr_t)schema, at)) {
        if (keyword_accepts(json_object_iter_key(at), json_object_iter_value(at), value)) continue;
        char *is = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        (void)snprintf(why, cap, "%s refuses %s", json_object_iter_key(at), is ? is : "?");
        free(is);
        return false;
    }
    if (json_is_object(value) && !properties_accept(schema, value, why, cap)) return false;
    for (size_t i = 0; items && i < json_array_size(value); i++)
        if (!schema_accepts(items, json_array_get(value, i), why, cap)) return false;
    return true;
}
