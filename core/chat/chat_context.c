/* chat_context.c: a template with a context of the caller's, as it is (chat.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/chat_inside.h"
#include "tokenizer/json_reader.h"

/* Is it a string that says `text`? */
static bool is_text(struct json_text raw, struct token_bytes text)
{
    struct json_reader r;
    struct json_text said;
    char unused[128];
    const struct wk_err err = { unused, sizeof unused };
    jr_open(&r, raw.data, raw.len, "context", "", &err);
    const bool same = text.len && jr_peek(&r) == JR_STRING && jr_string(&r, &said) && said.len == text.len &&
                      memcmp(said.data, text.data, text.len) == 0;
    jr_close(&r);
    return same;
}

/* A message, whose role becomes the template's own word. */
static struct jinja_value *message_as_is(struct jinja_values *values, struct json_text raw, const struct wk_err *err)
{
    struct jinja_value *m = NULL;
    struct json_reader r;
    struct json_text key;
    char said[128];
    const struct wk_err ignored = { said, sizeof said };
    if (jinja_from_json(values, raw.data, raw.len, "messages", &m, err)) return NULL;
    jr_open(&r, raw.data, raw.len, "messages", "", &ignored);
    if (jr_peek(&r) == JR_OBJECT && jr_object(&r))
        while (jr_member(&r, &key)) {
            struct json_text role;
            if (!jr_is(key, "role") || jr_peek(&r) != JR_STRING) {
                (void)jr_skip(&r);
            } else if (jr_string(&r, &role)) {
                for (enum chat_role k = CHAT_SYSTEM; k <= CHAT_TOOL; k++)
                    if (jr_is(role, chat_role_name(k)))
                        (void)jinja_dict_set(values, m, "role",
                                             jinja_string(values, role.data, role.len, JINJA_TEMPLATE));
            }
        }
    jr_close(&r);
    return m;
}

static struct jinja_value *messages_as_is(struct jinja_values *values, struct json_text raw, const struct wk_err *err)
{
    struct jinja_value *list = jinja_list(values), *m;
    struct json_reader r;
    bool ok = list != NULL;
    jr_open(&r, raw.data, raw.len, "messages", "", err);
    if (ok && jr_array(&r))
        while (ok && jr_element(&r)) {
            struct json_text one;
            ok = jr_raw(&r, &one) && (m = message_as_is(values, one, err)) && jinja_list_add(values, list, m);
        }
    ok = ok && !r.status;
    jr_close(&r);
    return ok ? list : NULL;
}

static struct jinja_value *member_as_is(const struct chat *c, struct jinja_values *values, const char *key,
                                        struct json_text raw, const struct wk_err *err)
{
    struct jinja_value *out = NULL;
    if (strcmp(key, "messages") == 0 && raw.data[0] == '[') return messages_as_is(values, raw, err);
    if (strcmp(key, "bos_token") == 0 && is_text(raw, c->bos))
        return jinja_string(values, c->bos.data, c->bos.len, JINJA_TEMPLATE);
    if (strcmp(key, "eos_token") == 0 && is_text(raw, c->eos))
        return jinja_string(values, c->eos.data, c->eos.len, JINJA_TEMPLATE);
    return jinja_from_json(values, raw.data, raw.len, key, &out, err) ? NULL : out;
}

/* The context's members, one by one. */
static bool context_as_is(const struct chat *c, struct token_bytes json, struct jinja_values *values,
                          struct jinja_value *context, struct chat_problem *why)
{
    struct json_reader r;
    struct json_text key, raw;
    char said[256] = "";
    const struct wk_err err = { said, sizeof said };
    bool ok = true;
    jr_open(&r, json.data, json.len, "context", "", &err);
    ok = jr_object(&r);
    while (ok && jr_member(&r, &key)) {
        char *name = malloc(key.len + 1);
        ok = name != NULL;
        if (ok) {
            memcpy(name, key.data, key.len);
            name[key.len] = '\0';
            struct jinja_value *value = jr_raw(&r, &raw) ? member_as_is(c, values, name, raw, &err) : NULL;
            ok = value && jinja_dict_set(values, context, name, value);
        }
        free(name);
    }
    ok = ok && !r.status && jr_finish(&r);
    jr_close(&r);
    return ok || chat_refuse(why, said[0] ? WK_INVALID : WK_NO_MEMORY, "", "%s", said[0] ? said : "no memory");
}

bool chat_render_context(const struct chat *c, struct token_bytes json, const struct jinja_options *clock,
                         struct chat_prompt *out, struct chat_problem *why)
{
    char said[384] = "";
    const struct wk_err err = { said, sizeof said };
    *out = (struct chat_prompt){ .marks = { "", "", false } };
    *why = (struct chat_problem){ 0 };
    if (!c->plain.template) return chat_refuse(why, WK_UNSUPPORTED, "", "the model's file has no chat template");
    struct jinja_values *values = jinja_values_new();
    struct jinja_value *context = values ? jinja_dict(values) : NULL;
    bool ok = context || chat_refuse(why, WK_NO_MEMORY, "", "no memory for the context");
    ok = ok && context_as_is(c, json, values, context, why);
    if (ok && jinja_render(c->plain.template, context, clock, &out->made, &err))
        ok = chat_refuse(why, out->made.end == JINJA_NO_MEMORY ? WK_NO_MEMORY : WK_UNSUPPORTED, "", "%s", said);
    ok = ok && chat_make_parts(out, out->made.n, why);
    jinja_values_free(values);
    return ok;
}
