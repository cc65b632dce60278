/* policy_json.c: the strict reader of the policy document. A description of each object (its members, their ranges)
 * stands in the function that reads it; whatever it does not name is refused. Every refusal begins with its path. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hex.h"
#include "gate/policy_internal.h"

#define LATEST INT64_C(253402300799) /* the last second of the year 9999 */
#define MOST_REQUESTS INT64_C(1000000000)
#define MOST_TOKENS INT64_C(4294967295) /* what rates count to (RATES_LIMIT_MOST) */
#define MOST_GENERATION (INT64_C(1) << 62)
enum { MOST_PRIORITY = 1000, MOST_TIMESLICE = 1048576, MOST_URL = 1024, MOST_OPA_PATH = 256, SHOWN = 64 };

/* ---- where the reader stands ------------------------------------------------------------------------------------ */

/* A step of the path, on the stack of the function that takes it. */
struct at {
    const struct at *up; /* NULL: the whole */
    const char *name;    /* NULL: index of an array */
    size_t index;
};

static size_t path_of(const struct at *at, char *out, size_t cap)
{
    if (!at || (!at->up && !at->name)) return 0;
    const size_t n = path_of(at->up, out, cap);
    if (n >= cap) return n;
    const int more = at->name ? snprintf(out + n, cap - n, "%s%s", n ? "." : "", at->name)
                              : snprintf(out + n, cap - n, "[%zu]", at->index);
    return n + (more > 0 ? (size_t)more : 0);
}

/* A text of a document for a message: at most SHOWN bytes, whole characters, none that controls a terminal. */
static const char *shown(const char *text, char out[SHOWN + 4])
{
    size_t n = strlen(text);
    const bool cut = n > SHOWN;
    if (cut)
        for (n = SHOWN; n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80;) n--;
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)text[i];
        const bool c1 = c == 0xc2 && (uint8_t)text[i + 1] < 0xa0;
        out[i] = c < 0x20 || c == 0x7f || c1 ? '?' : (char)c;
        if (c1) out[++i] = '?';
    }
    memcpy(out + n, cut ? "..." : "", cut ? 4 : 1);
    return out;
}

WK_PRINTF(3, 4)
static wk_status wrong(const struct at *at, const struct wk_err *err, const char *format, ...)
{
    char path[256], clean[sizeof path], text[384];
    size_t n = path_of(at, path, sizeof path);
    if (n >= sizeof path) n = sizeof path - 1;
    path[n] = '\0';
    for (size_t i = 0; i <= n; i++) /* names of roles may have any characters but these */
        clean[i] = ((uint8_t)path[i] < 0x20 && path[i]) || path[i] == 0x7f ? '?' : path[i];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return wk_fail(err, WK_INVALID, "%s%s%s", n ? clean : "the document", ": ", text);
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number with a fraction or out of range";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something else";
}

/* names: [n] of the members that there may be. */
static wk_status object(const struct at *at, const json_t *o, const char *const *names, size_t n,
                        const struct wk_err *err)
{
    if (!json_is_object(o)) return wrong(at, err, "an object is expected, found %s", type_name(o));
    for (void *it = json_object_iter((json_t *)(uintptr_t)o); it;
         it = json_object_iter_next((json_t *)(uintptr_t)o, it)) {
        const char *name = json_object_iter_key(it);
        char safe[SHOWN + 4], known[256] = "";
        size_t i = 0, len = 0;
        while (i < n && strcmp(names[i], name) != 0) i++;
        if (i < n) continue;
        for (i = 0; i < n && len < sizeof known; i++)
            len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", names[i]);
        return wrong(at, err, "there is no member \"%s\" here, only %s", shown(name, safe), known);
    }
    return WK_OK;
}
#define OBJECT(at, o, err, ...)                         \
    object(at, o, (const char *const[]){ __VA_ARGS__ }, \
           sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *), err)

static wk_status required(const struct at *at, const json_t *o, const char *name, const struct wk_err *err)
{
    return json_object_get(o, name) ? WK_OK : wrong(at, err, "the member \"%s\" is missing", name);
}

/* A member that may be missing: *out stays. */
static wk_status whole(const struct at *at, const json_t *o, const char *name, int64_t least, int64_t most,
                       int64_t *out, const struct wk_err *err)
{
    const struct at here = { at, name, 0 };
    const json_t *v = json_object_get(o, name);
    if (!v) return WK_OK;
    if (!json_is_integer(v))
        return wrong(&here, err, "a whole number from %" PRId64 " to %" PRId64 " is expected, found %s", least, most,
                     type_name(v));
    if (json_integer_value(v) < least || json_integer_value(v) > most)
        return wrong(&here, err, "%" JSON_INTEGER_FORMAT " is not from %" PRId64 " to %" PRId64, json_integer_value(v),
                     least, most);
    *out = json_integer_value(v);
    return WK_OK;
}

static wk_status boolean(const struct at *at, const json_t *o, const char *name, bool *out, const struct wk_err *err)
{
    const struct at here = { at, name, 0 };
    const json_t *v = json_object_get(o, name);
    if (v && !json_is_boolean(v)) return wrong(&here, err, "true or false is expected, found %s", type_name(v));
    if (v) *out = json_is_true(v);
    return WK_OK;
}

/* A string of least to most bytes; *out: the document's. A NUL may stand in the body of a request, and would be read
 * back by nobody. */
static wk_status string(const struct at *at, const json_t *v, size_t least, size_t most, const char **out,
                        const struct wk_err *err)
{
    if (!json_is_string(v)) return wrong(at, err, "a string is expected, found %s", type_name(v));
    const size_t n = json_string_length(v);
    if (n < least || n > most) return wrong(at, err, "has %zu bytes; %zu to %zu are allowed", n, least, most);
    if (strlen(json_string_value(v)) != n) return wrong(at, err, "has a character NUL");
    *out = json_string_value(v);
    return WK_OK;
}

static bool has_controls(const char *s)
{
    for (; *s; s++)
        if ((uint8_t)*s < 0x20 || *s == 0x7f || ((uint8_t)s[0] == 0xc2 && (uint8_t)s[1] < 0xa0)) return true;
    return false;
}

static bool is_id(const char *s)
{
    if (*s == '.' || *s == '_' || *s == '-') return false;
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(s);
}

/* An id or tenant that may be missing. */
static wk_status id_of(const struct at *at, const json_t *o, const char *name, const char **out,
                       const struct wk_err *err)
{
    const struct at here = { at, name, 0 };
    const json_t *v = json_object_get(o, name);
    const char *s = NULL;
    char safe[SHOWN + 4];
    if (!v) return WK_OK;
    const wk_status status = string(&here, v, 1, POLICY_ID_BYTES, &s, err);
    if (status != WK_OK) return status;
    if (!is_id(s)) return wrong(&here, err, "\"%s\" is not of the form ^[a-z0-9][a-z0-9._-]{0,63}$", shown(s, safe));
    *out = s;
    return WK_OK;
}

/* ---- parts that keys and roles have in common -------------------------------------------------------------------- */

static wk_status scopes_of(const struct at *at, const json_t *o, uint32_t *out, const struct wk_err *err)
{
    const struct at here = { at, "scopes", 0 };
    const json_t *list = json_object_get(o, "scopes");
    *out = 0;
    if (!list) return WK_OK;
    if (!json_is_array(list)) return wrong(&here, err, "an array of scopes is expected, found %s", type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct at one = { &here, NULL, i };
        const json_t *v = json_array_get(list, i);
        char safe[SHOWN + 4];
        if (!json_is_string(v)) return wrong(&one, err, "the name of a scope is expected, found %s", type_name(v));
        const uint32_t scope = scope_named(json_string_value(v), json_string_length(v));
        if (!scope)
            return wrong(&one, err, "\"%s\" is not a scope; there are inference, embed, metrics, admin:read, admin",
                         shown(json_string_value(v), safe));
        if (*out & scope) return wrong(&one, err, "\"%s\" stands here twice", json_string_value(v));
        *out |= scope;
    }
    return WK_OK;
}

/* A limit: a number, or "none", which is `none`. */
static wk_status limit_of(const struct at *at, const json_t *o, const char *name, int64_t most, uint64_t none,
                          uint64_t *out, const struct wk_err *err)
{
    const struct at here = { at, name, 0 };
    const json_t *v = json_object_get(o, name);
    int64_t n = 0;
    if (json_is_string(v)) {
        if (json_string_length(v) != 4 || strcmp(json_string_value(v), "none") != 0)
            return wrong(&here, err, "a whole number or \"none\" is expected, found another string");
        *out = none;
        return WK_OK;
    }
    const wk_status status = whole(at, o, name, 0, most, &n, err);
    if (status == WK_OK) *out = (uint64_t)n;
    return status;
}

static wk_status limits_in(const struct at *here, const json_t *limits, uint64_t none, struct policy_limits *out,
                           const struct wk_err *err)
{
    wk_status status = OBJECT(here, limits, err, "requests_per_minute", "tokens_per_minute");
    if (status == WK_OK)
        status = limit_of(here, limits, "requests_per_minute", MOST_REQUESTS, none, &out->requests_per_minute, err);
    if (status == WK_OK)
        status = limit_of(here, limits, "tokens_per_minute", MOST_TOKENS, none, &out->tokens_per_minute, err);
    return status;
}

static wk_status own_limits(const struct at *at, const json_t *o, struct policy_limits *out, const struct wk_err *err)
{
    const struct at here = { at, "limits", 0 };
    const json_t *limits = json_object_get(o, "limits");
    return limits ? limits_in(&here, limits, POLICY_UNLIMITED, out, err) : WK_OK;
}

static wk_status priority_of(const struct at *at, const json_t *o, int32_t *out, const struct wk_err *err)
{
    int64_t priority = -1;
    const wk_status status = whole(at, o, "max_priority", 0, MOST_PRIORITY, &priority, err);
    *out = (int32_t)priority;
    return status;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static wk_status hash_of(const struct at *at, const json_t *o, uint8_t hash[SECRET_HASH], const struct wk_err *err)
{
    const struct at here = { at, "hash", 0 };
    const char *hex = NULL;
    wk_status status = required(at, o, "hash", err);
    if (status == WK_OK)
        status = string(&here, json_object_get(o, "hash"), 2 * SECRET_HASH, 2 * SECRET_HASH, &hex, err);
    if (status != WK_OK) return status;
    if (strspn(hex, "0123456789abcdef") != 2 * SECRET_HASH)
        return wrong(&here, err, "64 hexadecimal digits in lower case are expected");
    hex_read(hex, SECRET_HASH, hash);
    return WK_OK;
}

static wk_status secret_of(const struct at *at, const json_t *o, struct policy_secret *out, const struct wk_err *err)
{
    const struct at hint_at = { at, "hint", 0 };
    const char *hint = NULL;
    *out = (struct policy_secret){ 0 };
    wk_status status = OBJECT(at, o, err, "hash", "hint", "created", "expires");
    if (status == WK_OK) status = hash_of(at, o, out->hash, err);
    if (status == WK_OK) status = required(at, o, "hint", err);
    if (status == WK_OK) status = string(&hint_at, json_object_get(o, "hint"), SECRET_HINT, SECRET_HINT, &hint, err);
    if (status == WK_OK && has_controls(hint)) status = wrong(&hint_at, err, "has control characters");
    if (status == WK_OK) memcpy(out->hint, hint, SECRET_HINT);
    if (status == WK_OK) status = whole(at, o, "created", 0, LATEST, &out->created, err);
    if (status == WK_OK) status = whole(at, o, "expires", 0, LATEST, &out->expires, err);
    return status;
}

static wk_status secrets_of(const struct at *at, const json_t *o, struct policy_key *key, const struct wk_err *err)
{
    const struct at here = { at, "secrets", 0 };
    const json_t *list = json_object_get(o, "secrets");
    if (!list) return WK_OK;
    if (!json_is_array(list)) return wrong(&here, err, "an array of secrets is expected, found %s", type_name(list));
    if (json_array_size(list) > POLICY_SECRETS)
        return wrong(&here, err, "has %zu secrets; at most %d are allowed", json_array_size(list), POLICY_SECRETS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct at one = { &here, NULL, i };
        const wk_status status = secret_of(&one, json_array_get(list, i), &key->secrets[i], err);
        if (status != WK_OK) return status;
        key->n_secrets++;
    }
    return WK_OK;
}

static wk_status name_of(const struct at *at, const json_t *o, const char **out, const struct wk_err *err)
{
    const struct at here = { at, "name", 0 };
    const json_t *v = json_object_get(o, "name");
    if (!v) return WK_OK;
    const wk_status status = string(&here, v, 0, POLICY_NAME_BYTES, out, err);
    return status == WK_OK && has_controls(*out) ? wrong(&here, err, "has control characters") : status;
}

static wk_status key_members(const struct at *at, const json_t *o, enum key_form form, const struct wk_err *err)
{
    switch (form) {
    case KEY_UPDATED:
        return OBJECT(at, o, err, "name", "tenant", "scopes", "expires", "disabled", "limits", "max_priority");
    case KEY_CREATED:
        return OBJECT(at, o, err, "id", "name", "tenant", "scopes", "expires", "disabled", "limits", "max_priority");
    case KEY_STORED: break;
    }
    return OBJECT(at, o, err, "id", "name", "tenant", "scopes", "secrets", "created", "expires", "disabled", "limits",
                  "max_priority", "last_used");
}

/* last_used: of the document. */
static wk_status key_in(const struct at *at, const json_t *o, enum key_form form, struct policy_key *key,
                        int64_t *last_used, const struct wk_err *err)
{
    *key = (struct policy_key){ .name = "", .max_priority = -1 };
    *last_used = 0;
    wk_status status = key_members(at, o, form, err);
    if (status == WK_OK && form != KEY_UPDATED) status = required(at, o, "id", err);
    if (status == WK_OK) status = id_of(at, o, "id", &key->id, err);
    key->tenant = key->id;
    if (status == WK_OK) status = name_of(at, o, &key->name, err);
    if (status == WK_OK) status = id_of(at, o, "tenant", &key->tenant, err);
    if (status == WK_OK) status = scopes_of(at, o, &key->scopes, err);
    if (status == WK_OK) status = secrets_of(at, o, key, err);
    if (status == WK_OK) status = whole(at, o, "created", 0, LATEST, &key->created, err);
    if (status == WK_OK) status = whole(at, o, "expires", 0, LATEST, &key->expires, err);
    if (status == WK_OK) status = boolean(at, o, "disabled", &key->disabled, err);
    if (status == WK_OK) status = own_limits(at, o, &key->limits, err);
    if (status == WK_OK) status = priority_of(at, o, &key->max_priority, err);
    if (status == WK_OK) status = whole(at, o, "last_used", 0, LATEST, last_used, err);
    return status;
}

/* So that one array is sorted and the other follows. */
struct key_row {
    struct policy_key key;
    json_t *object;
};

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct key_row *)a)->key.id, ((const struct key_row *)b)->key.id);
}

static struct policy_use *new_use(int64_t at)
{
    struct policy_use *use = calloc(1, sizeof *use);
    if (!use) return NULL;
    atomic_init(&use->refs, 1);
    atomic_init(&use->at, at);
    use->written = at;
    return use;
}

/* Reads the keys into rows and sorts them; those read have their use, also on failure. */
static wk_status key_rows(const struct at *here, const json_t *list, struct key_row *rows, uint32_t *n,
                          const struct wk_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct at one = { here, NULL, i };
        struct key_row *row = &rows[i];
        int64_t last_used;
        row->object = json_array_get(list, i);
        const wk_status status = key_in(&one, row->object, KEY_STORED, &row->key, &last_used, err);
        if (status != WK_OK) return status;
        row->key.use = new_use(last_used);
        if (!row->key.use) return wk_fail(err, WK_NO_MEMORY, "no memory for the policy's keys");
        *n = (uint32_t)i + 1;
    }
    qsort(rows, *n, sizeof *rows, by_id);
    for (uint32_t i = 1; i < *n; i++)
        if (strcmp(rows[i - 1].key.id, rows[i].key.id) == 0)
            return wrong(here, err, "two keys have the id \"%s\"", rows[i].key.id);
    return WK_OK;
}

static wk_status keys_of(const struct at *at, struct snapshot *s, const struct wk_err *err)
{
    const struct at here = { at, "keys", 0 };
    const json_t *list = json_object_get(s->root, "keys");
    if (!list) return WK_OK;
    if (!json_is_array(list)) return wrong(&here, err, "an array of keys is expected, found %s", type_name(list));
    const size_t n = json_array_size(list);
    if (n > POLICY_MOST_KEYS) return wrong(&here, err, "has %zu keys; at most %d are allowed", n, POLICY_MOST_KEYS);
    struct key_row *rows = calloc(n + 1, sizeof *rows);
    s->keys = calloc(n + 1, sizeof *s->keys);
    s->key_objects = calloc(n + 1, sizeof(json_t *));
    wk_status status = WK_OK;
    if (!rows || !s->keys || !s->key_objects)
        status = wk_fail(err, WK_NO_MEMORY, "no memory for the policy's %zu keys", n);
    if (status == WK_OK) {
        status = key_rows(&here, list, rows, &s->p.n_keys, err);
        for (uint32_t i = 0; i < s->p.n_keys; i++) {
            s->keys[i] = rows[i].key;
            s->key_objects[i] = rows[i].object;
        }
    }
    free(rows);
    s->p.keys = s->keys;
    return status;
}

/* ---- roles ------------------------------------------------------------------------------------------------------- */

static wk_status role_in(const struct at *at, const json_t *o, struct policy_role *role, const struct wk_err *err)
{
    *role = (struct policy_role){ .name = at->name, .max_priority = -1 };
    const size_t n = strlen(role->name);
    if (n == 0 || n > POLICY_NAME_BYTES || has_controls(role->name))
        return wrong(at->up, err, "the name of a role has 1 to %d bytes and no control characters", POLICY_NAME_BYTES);
    wk_status status = OBJECT(at, o, err, "scopes", "limits", "tenant", "max_priority");
    if (status == WK_OK) status = scopes_of(at, o, &role->scopes, err);
    if (status == WK_OK) status = own_limits(at, o, &role->limits, err);
    if (status == WK_OK) status = id_of(at, o, "tenant", &role->tenant, err);
    if (status == WK_OK) status = priority_of(at, o, &role->max_priority, err);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct policy_role *)a)->name, ((const struct policy_role *)b)->name);
}

/* *out: for free, on failure too. */
static wk_status roles_in(const struct at *here, const json_t *o, struct policy_role **out, uint32_t *n,
                          const struct wk_err *err)
{
    *out = NULL;
    *n = 0;
    if (!json_is_object(o)) return wrong(here, err, "an object of roles is expected, found %s", type_name(o));
    if (json_object_size(o) > POLICY_MOST_ROLES)
        return wrong(here, err, "has %zu roles; at most %d are allowed", json_object_size(o), POLICY_MOST_ROLES);
    *out = calloc(json_object_size(o) + 1, sizeof **out);
    if (!*out) return wk_fail(err, WK_NO_MEMORY, "no memory for the policy's roles");
    json_t *roles = (json_t *)(uintptr_t)o;
    for (void *it = json_object_iter(roles); it; it = json_object_iter_next(roles, it)) {
        const struct at one = { here, json_object_iter_key(it), 0 };
        const wk_status status = role_in(&one, json_object_iter_value(it), &(*out)[*n], err);
        if (status != WK_OK) return status;
        ++*n;
    }
    qsort(*out, *n, sizeof **out, by_name);
    return WK_OK;
}

/* ---- guardrails, scheduler ----------------------------------------------------------------------------------------
 */

static wk_status blocklist_in(const struct at *at, const json_t *o, const char ***out, uint32_t *n,
                              const struct wk_err *err)
{
    const struct at here = { at, "blocklist", 0 };
    const json_t *list = json_object_get(o, "blocklist");
    if (!list) return WK_OK;
    if (!json_is_array(list)) return wrong(&here, err, "an array of phrases is expected, found %s", type_name(list));
    if (json_array_size(list) > POLICY_MOST_PHRASES)
        return wrong(&here, err, "has %zu phrases; at most %d are allowed", json_array_size(list), POLICY_MOST_PHRASES);
    *out = calloc(json_array_size(list) + 1, sizeof **out);
    if (!*out) return wk_fail(err, WK_NO_MEMORY, "no memory for the blocklist");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct at one = { &here, NULL, i };
        const wk_status status = string(&one, json_array_get(list, i), 1, POLICY_PHRASE_BYTES, &(*out)[i], err);
        if (status != WK_OK) return status;
    }
    *n = (uint32_t)json_array_size(list);
    return WK_OK;
}

static bool is_url(const char *s)
{
    if (strncmp(s, "http://", 7) != 0 && strncmp(s, "https://", 8) != 0 && strncmp(s, "unix:", 5) != 0) return false;
    for (const char *c = s; *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return true;
}

static bool is_opa_path(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") == strlen(s) && *s != '/';
}

static wk_status opa_in(const struct at *at, const json_t *o, struct policy_guardrails *g, const struct wk_err *err)
{
    const struct at here = { at, "opa", 0 }, url = { &here, "url", 0 }, path = { &here, "path", 0 };
    const json_t *opa = json_object_get(o, "opa");
    if (!opa) return WK_OK;
    wk_status status = OBJECT(&here, opa, err, "url", "path", "send_text");
    if (status == WK_OK) status = required(&here, opa, "url", err);
    if (status == WK_OK) status = required(&here, opa, "path", err);
    if (status == WK_OK) status = string(&url, json_object_get(opa, "url"), 1, MOST_URL, &g->opa_url, err);
    if (status == WK_OK) status = string(&path, json_object_get(opa, "path"), 1, MOST_OPA_PATH, &g->opa_path, err);
    if (status == WK_OK && !is_url(g->opa_url))
        status = wrong(&url, err, "is no URL that begins with http://, https:// or unix:");
    if (status == WK_OK && !is_opa_path(g->opa_path))
        status = wrong(&path, err,
                       "is no path of a decision, \"worker/allow\": letters, digits and _.-/, not beginning with /");
    if (status == WK_OK) status = boolean(&here, opa, "send_text", &g->opa_send_text, err);
    return status;
}

/* *phrases: for free, on failure too. */
static wk_status guardrails_in(const struct at *here, const json_t *o, struct policy_guardrails *g,
                               const char ***phrases, const struct wk_err *err)
{
    *phrases = NULL;
    wk_status status = OBJECT(here, o, err, "blocklist", "block_output", "opa");
    if (status == WK_OK) status = blocklist_in(here, o, phrases, &g->n_phrases, err);
    if (status == WK_OK) status = boolean(here, o, "block_output", &g->block_output, err);
    if (status == WK_OK) status = opa_in(here, o, g, err);
    g->blocklist = *phrases;
    return status;
}

static wk_status scheduler_in(const struct at *here, const json_t *o, struct policy_scheduler *out,
                              const struct wk_err *err)
{
    int64_t high = 0, slice = 0;
    wk_status status = OBJECT(here, o, err, "preempt", "high_priority", "timeslice_tokens");
    if (status == WK_OK) status = boolean(here, o, "preempt", &out->preempt, err);
    if (status == WK_OK) status = whole(here, o, "high_priority", 0, MOST_PRIORITY, &high, err);
    if (status == WK_OK) status = whole(here, o, "timeslice_tokens", 0, MOST_TIMESLICE, &slice, err);
    if (status != WK_OK) return status;
    out->has_preempt = json_object_get(o, "preempt") != NULL;
    out->has_high_priority = json_object_get(o, "high_priority") != NULL;
    out->has_timeslice = json_object_get(o, "timeslice_tokens") != NULL;
    out->high_priority = (int32_t)high;
    out->timeslice_tokens = (uint32_t)slice;
    return WK_OK;
}

/* ---- the whole, and parts alone ------------------------------------------------------------------------------------
 */

const char *json_section_name(enum policy_section section)
{
    switch (section) {
    case POLICY_LIMITS: return "limits";
    case POLICY_GUARDRAILS: return "guardrails";
    case POLICY_SCHEDULER: return "scheduler";
    case POLICY_ROLES: break;
    }
    return "roles";
}

/* A section that stands at `here` in the document or alone, into s. */
static wk_status section_in(const struct at *here, enum policy_section section, const json_t *o, struct snapshot *s,
                            const struct wk_err *err)
{
    wk_status status = WK_OK;
    switch (section) {
    case POLICY_LIMITS: return limits_in(here, o, 0, &s->p.defaults, err);
    case POLICY_GUARDRAILS: return guardrails_in(here, o, &s->p.guardrails, &s->phrases, err);
    case POLICY_SCHEDULER: return scheduler_in(here, o, &s->p.scheduler, err);
    case POLICY_ROLES:
        status = roles_in(here, o, &s->roles, &s->p.n_roles, err);
        s->p.roles = s->roles;
        break;
    }
    return status;
}

wk_status json_read_document(struct snapshot *s, const struct wk_err *err)
{
    const struct at at = { NULL, NULL, 0 };
    int64_t format = 0, generation = 0;
    wk_status status =
        OBJECT(&at, s->root, err, "format", "generation", "keys", "roles", "limits", "guardrails", "scheduler");
    if (status == WK_OK) status = required(&at, s->root, "format", err);
    if (status == WK_OK) status = whole(&at, s->root, "format", POLICY_FORMAT, POLICY_FORMAT, &format, err);
    if (status == WK_OK) status = required(&at, s->root, "generation", err);
    if (status == WK_OK) status = whole(&at, s->root, "generation", 0, MOST_GENERATION, &generation, err);
    if (status == WK_OK) status = keys_of(&at, s, err);
    for (enum policy_section section = POLICY_LIMITS; status == WK_OK && section <= POLICY_ROLES; section++) {
        const struct at here = { &at, json_section_name(section), 0 };
        const json_t *o = json_object_get(s->root, here.name);
        if (o) status = section_in(&here, section, o, s, err);
    }
    s->p.generation = (uint64_t)generation;
    return status;
}

wk_status json_read_key(const json_t *o, enum key_form form, struct policy_key *key, const struct wk_err *err)
{
    const struct at at = { NULL, NULL, 0 };
    int64_t last_used;
    return key_in(&at, o, form, key, &last_used, err);
}

wk_status json_check_members(const json_t *o, enum key_form form, const struct wk_err *err)
{
    const struct at at = { NULL, NULL, 0 };
    return key_members(&at, o, form, err);
}

wk_status json_check_section(enum policy_section section, const json_t *o, const struct wk_err *err)
{
    const struct at at = { NULL, NULL, 0 };
    struct snapshot s = { .root = NULL };
    const wk_status status = section_in(&at, section, o, &s, err);
    free(s.phrases);
    free(s.roles);
    return status;
}
