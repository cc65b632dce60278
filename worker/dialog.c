/* dialog.c: see dialog.h. */
#include "dialog.h"

#include <stdlib.h>
#include <string.h>

#include "base/result_file.h"
#include "errors.h"
#include "text.h"

static int no_memory(void) { return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the conversation"); }

int dialog_open(struct dialog *d)
{
    *d = (struct dialog){ .messages = json_array() };
    return d->messages ? EXIT_DONE : no_memory();
}

void dialog_close(struct dialog *d)
{
    json_decref(d->messages);
    json_decref(d->tools);
    *d = (struct dialog){ 0 };
}

/* ---- what is said -------------------------------------------------------------------------------------- */

static bool has_system(const struct dialog *d)
{
    const char *role = json_string_value(json_object_get(json_array_get(d->messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

/* A message of this role; NULL: said. */
static json_t *message_of(const char *role, const char *text)
{
    json_t *content = json_string(text);
    if (!content) {
        (void)fail(CODE_INVALID_REQUEST, "the text is not valid UTF-8; convert it to UTF-8");
        return NULL;
    }
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!m) (void)no_memory();
    return m;
}

int dialog_system(struct dialog *d, const char *text)
{
    json_t *m = text ? message_of("system", text) : NULL;
    if (text && !m) return EXIT_FAILED;
    if (has_system(d)) (void)json_array_remove(d->messages, 0);
    return !m || !json_array_insert_new(d->messages, 0, m) ? EXIT_DONE : no_memory();
}

int dialog_user(struct dialog *d, const char *text)
{
    json_t *m = message_of("user", text);
    if (!m) return EXIT_FAILED;
    return json_array_append_new(d->messages, m) ? no_memory() : EXIT_DONE;
}

int dialog_result(struct dialog *d, const char *call_id, const char *text)
{
    json_t *m = message_of("tool", text);
    if (!m) return EXIT_FAILED;
    const bool bad = json_object_set_new(m, "tool_call_id", json_string(call_id)) != 0;
    if (!bad) return json_array_append_new(d->messages, m) ? no_memory() : EXIT_DONE;
    json_decref(m);
    return no_memory();
}

int dialog_answer(struct dialog *d, json_t *message)
{
    return json_array_append_new(d->messages, message) ? no_memory() : EXIT_DONE;
}

void dialog_take_back(struct dialog *d, size_t n)
{
    for (size_t left = json_array_size(d->messages); n && left; n--) (void)json_array_remove(d->messages, --left);
}

void dialog_clear(struct dialog *d) { dialog_take_back(d, json_array_size(d->messages) - (has_system(d) ? 1 : 0)); }

/* ---- files --------------------------------------------------------------------------------------------- */

/* A file's JSON; the caller's. */
static int read_json(const char *path, json_t **out)
{
    struct text t;
    json_error_t error;
    const int result = text_read(NULL, path, &t);
    if (result) return result;
    *out = json_loadb(t.bytes, t.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    text_free(&t);
    return *out ? EXIT_DONE : fail(CODE_INVALID_REQUEST, "%s: line %d: not JSON: %s", path, error.line, error.text);
}

/* Objects with a text of this name, one at least. What else stands in them whoever answers says. */
static bool is_list_of(const json_t *list, const char *member)
{
    size_t i;
    json_t *entry;
    json_array_foreach (list, i, entry)
        if (!json_is_string(json_object_get(entry, member))) return false;
    return json_array_size(list) > 0;
}

static int refuse_tools(const char *path)
{
    return fail(CODE_INVALID_REQUEST,
                "%s: expected a list of functions, as OpenAI's tools: [{\"type\": \"function\", \"function\": "
                "{\"name\": ...}}]",
                path);
}

int dialog_tools(struct dialog *d, const char *path)
{
    json_t *tools = NULL;
    const int result = path ? read_json(path, &tools) : EXIT_DONE;
    if (result) return result;
    if (path && !is_list_of(tools, "type")) {
        json_decref(tools);
        return refuse_tools(path);
    }
    json_decref(d->tools);
    d->tools = tools;
    return EXIT_DONE;
}

int dialog_save(const struct dialog *d, const char *path)
{
    struct result_file f;
    ERROR_TEXT(err);
    json_t *all = d->tools ? json_pack("{s:O, s:O}", "messages", d->messages, "tools", d->tools)
                           : json_pack("{s:O}", "messages", d->messages);
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!text) return no_memory();
    wk_status status = result_file_open_private(path, &f, &err);
    if (!status && result_file_write(&f, text, strlen(text))) (void)result_file_write(&f, "\n", 1);
    if (!status) status = result_file_finish(&f, &err);
    free(text);
    return status ? fail(CODE_OUTPUT_FAILED, "%s", err_text) : EXIT_DONE;
}

int dialog_load(struct dialog *d, const char *path)
{
    json_t *all;
    const int result = read_json(path, &all);
    if (result) return result;
    json_t *messages = json_is_array(all) ? all : json_object_get(all, "messages"),
           *tools = json_object_get(all, "tools");
    const bool good = is_list_of(messages, "role"), known = !tools || is_list_of(tools, "type");
    if (good && known) {
        dialog_close(d);
        *d = (struct dialog){ json_incref(messages), json_incref(tools) };
    }
    json_decref(all);
    if (!good)
        return fail(CODE_INVALID_REQUEST,
                    "%s: expected {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}, as /save writes it, or the "
                    "list alone",
                    path);
    return known ? EXIT_DONE : refuse_tools(path);
}
