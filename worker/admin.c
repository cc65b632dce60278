/* admin.c: `worker admin`: the policy of a running worker, or, with --policy-file, that of a file which no worker has
 * open. The same changes by the same code: gate/policy.h makes them here or there. */
#include <jansson.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client.h"
#include "commands.h"
#include "errors.h"
#include "gate.h"
#include "json_out.h"
#include "text.h"

enum { MAX_SETS = 64, PATH_BYTES = 2048 };

/* What the command does. */
enum verb { VERB_LIST, VERB_SHOW, VERB_CREATE, VERB_UPDATE, VERB_ROTATE, VERB_DELETE, VERB_REPLACE, VERB_COUNT };
static const struct {
    const char *name, *method;
    bool id, body;
} verbs[VERB_COUNT] = {
    [VERB_LIST] = { "list", "GET", false, false },      [VERB_SHOW] = { "show", "GET", true, false },
    [VERB_CREATE] = { "create", "POST", true, true },   [VERB_UPDATE] = { "update", "PATCH", true, true },
    [VERB_ROTATE] = { "rotate", "POST", true, true },   [VERB_DELETE] = { "delete", "DELETE", true, false },
    [VERB_REPLACE] = { "replace", "PUT", false, true },
};
#define CAN(v) (1u << VERB_##v)
static const struct resource {
    const char *name;
    unsigned verbs;
    bool section; /* of the policy: `section` says which */
    enum policy_section which;
} resources[] = {
    { "api-keys", CAN(LIST) | CAN(SHOW) | CAN(CREATE) | CAN(UPDATE) | CAN(ROTATE) | CAN(DELETE), false, 0 },
    { "rate-limits", CAN(SHOW) | CAN(REPLACE), true, POLICY_LIMITS },
    { "guardrails", CAN(SHOW) | CAN(REPLACE), true, POLICY_GUARDRAILS },
    { "roles", CAN(SHOW) | CAN(REPLACE), true, POLICY_ROLES },
    { "scheduler", CAN(SHOW) | CAN(REPLACE), true, POLICY_SCHEDULER },
    { "models", CAN(SHOW), false, 0 },
    { "audit", CAN(SHOW), false, 0 },
};

struct admin {
    const struct options *o;
    const struct resource *resource;
    enum verb verb;
    const char *id; /* NULL: none */
    json_t *body;   /* an object; NULL: none is sent */
};

/* ---- the command line ---------------------------------------------------------------------------------- */

static bool is_keys(const struct resource *r) { return r == &resources[0]; }

/* "api-keys revoke": what can be done with api-keys instead. */
static int refuse_verb(const struct resource *r, const char *word)
{
    char names[128] = "";
    size_t n = 0;
    for (int v = 0; v < VERB_COUNT; v++)
        if (r->verbs >> v & 1) n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", verbs[v].name);
    return fail_usage("admin", "%s: expected %s, got %.80s", r->name, names, word);
}

static int read_words(struct admin *a)
{
    const struct options *o = a->o;
    const char *name = o->operands[0], *word = o->operands[1];
    for (size_t i = 0; i < sizeof resources / sizeof *resources; i++)
        if (strcmp(resources[i].name, name) == 0) a->resource = &resources[i];
    if (!a->resource)
        return fail_usage("admin",
                          "%.80s: expected api-keys, rate-limits, guardrails, roles, scheduler, models or audit", name);
    a->verb = VERB_COUNT;
    for (int v = 0; v < VERB_COUNT; v++)
        if (strcmp(verbs[v].name, word) == 0 && a->resource->verbs >> v & 1) a->verb = (enum verb)v;
    if (a->verb == VERB_COUNT) return refuse_verb(a->resource, word);
    const bool wants = verbs[a->verb].id && is_keys(a->resource);
    if (wants != (o->n_operands == 3))
        return fail_usage("admin", wants ? "%s %s: expected an id" : "%s %s takes no id", name, word);
    a->id = wants ? o->operands[2] : NULL;
    for (const char *c = a->id; c && *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", *c))
            return fail_usage("admin", "%.80s: an id has lower-case letters, digits and . _ - alone", a->id);
    return EXIT_DONE;
}

/* a,b,c as a list of texts. */
static json_t *listed(const char *text)
{
    json_t *list = json_array();
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        if (n) (void)json_array_append_new(list, json_stringn(at, n));
        at += n;
        if (!*at) return list;
    }
}

/* JSON, or a list where one is wanted, or a text. */
static json_t *value_of(const char *name, const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (value) return value;
    return strcmp(name, "scopes") == 0 || strcmp(name, "blocklist") == 0 ? listed(text) : json_string(text);
}

/* a.b.c = value, in objects that are made on the way. */
static int set_member(json_t *object, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[256];
    if (!equals || equals == entry || (size_t)(equals - entry) >= sizeof name)
        return fail_usage("admin", "--set: expected NAME=VALUE, got \"%.80s\"", entry);
    (void)snprintf(name, sizeof name, "%.*s", (int)(equals - entry), entry);
    char *at = name;
    for (char *dot; (dot = strchr(at, '.')); at = dot + 1) {
        *dot = 0;
        json_t *next = json_object_get(object, at);
        if (!json_is_object(next)) {
            next = json_object();
            (void)json_object_set_new(object, at, next);
        }
        object = next;
    }
    if (json_object_set_new(object, at, value_of(at, equals + 1)))
        return fail_usage("admin", "--set: %.80s is not UTF-8", entry);
    return EXIT_DONE;
}

static int read_body(struct admin *a)
{
    const char *path = option_text(a->o, OPT_BODY), *sets[MAX_SETS];
    const uint32_t n = option_list(a->o, OPT_SET, sets, MAX_SETS);
    if (!verbs[a->verb].body)
        return path || n ? fail_usage("admin", "%s %s sends no object: --body and --set mean nothing",
                                      a->resource->name, verbs[a->verb].name)
                         : EXIT_DONE;
    int result = EXIT_DONE;
    if (path) {
        struct text t;
        json_error_t error;
        result = text_read(NULL, path, &t);
        if (result) return result;
        a->body = json_loadb(t.bytes, t.len, JSON_REJECT_DUPLICATES, &error);
        text_free(&t);
        if (!json_is_object(a->body))
            return fail_usage("admin", "--body %s: expected a JSON object%s%s", path, a->body ? "" : ": ",
                              a->body ? "" : error.text);
    } else {
        a->body = json_object();
    }
    for (uint32_t i = 0; !result && i < n; i++) result = set_member(a->body, sets[i]);
    if (!result && a->verb == VERB_CREATE) (void)json_object_set_new(a->body, "id", json_string(a->id));
    return result;
}

/* ---- a running worker ---------------------------------------------------------------------------------- */

static int path_of(const struct admin *a, char path[PATH_BYTES])
{
    const bool named = a->id && a->verb != VERB_CREATE;
    const int n = snprintf(path, PATH_BYTES, "/admin/%s%s%s%s", a->resource->name, named ? "/" : "", named ? a->id : "",
                           a->verb == VERB_ROTATE ? "/rotate" : "");
    return n > 0 && n < PATH_BYTES ? EXIT_DONE : fail_usage("admin", "%.80s...: the id is too long", a->id);
}

static int ask_worker(const struct admin *a)
{
    char path[PATH_BYTES];
    struct client *c = NULL;
    json_t *document = NULL;
    int result = path_of(a, path);
    if (!result) result = client_open(a->o, &c);
    if (!result) result = client_object(c, verbs[a->verb].method, path, a->body, 0, NULL, &document);
    if (!result) result = json_print(document);
    client_close(c);
    return result;
}

/* ---- a file -------------------------------------------------------------------------------------------- */

/* What the policy has now of what was shown or changed. */
static int show(const struct admin *a, struct policies *policies, struct policy_done *done)
{
    const struct policy *p = policies_now(policies);
    const struct policy_key *key = a->id ? policy_key_of(p, a->id) : NULL;
    json_t *document = NULL;
    int result = EXIT_DONE;
    if (a->resource->section)
        document = policy_section_json(p, a->resource->which);
    else if (a->verb == VERB_LIST)
        document = policy_keys_json(p);
    else if (a->verb == VERB_DELETE)
        document = json_pack("{s:s, s:b}", "id", a->id, "deleted", 1);
    else if (key)
        document = policy_key_json(p, key);
    else
        result = fail(CODE_INVALID_REQUEST, "there is no key %s", a->id);
    if (document && done && done->secret[0]) (void)json_object_set_new(document, "secret", json_string(done->secret));
    policy_release(p);
    return result ? result : json_print(document);
}

static wk_status change(const struct admin *a, struct policies *p, struct policy_done *done, const struct wk_err *err)
{
    const int64_t now = (int64_t)time(NULL);
    switch (a->verb) {
    case VERB_CREATE: return policies_create_key(p, a->body, now, done, err);
    case VERB_UPDATE: return policies_update_key(p, a->id, a->body, now, done, err);
    case VERB_DELETE: return policies_delete_key(p, a->id, now, done, err);
    case VERB_REPLACE: return policies_replace(p, a->resource->which, a->body, now, done, err);
    case VERB_ROTATE: {
        const json_t *grace = json_object_get(a->body, "grace_seconds");
        if (json_object_size(a->body) != (grace ? 1u : 0u) || (grace && !json_is_integer(grace)))
            return wk_fail(err, WK_INVALID, "rotate takes grace_seconds alone, a whole number");
        return policies_rotate_key(p, a->id, grace ? (int64_t)json_integer_value(grace) : POLICY_GRACE_S, now, done,
                                   err);
    }
    default: return WK_OK;
    }
}

static int work_on_file(const struct admin *a)
{
    char passphrase[PASSPHRASE_MOST];
    size_t n;
    struct store store;
    struct policies *policies = NULL;
    struct policy_done done = { 0 };
    ERROR_TEXT(err);
    if (!is_keys(a->resource) && !a->resource->section)
        return fail_usage("admin", "%s is of a running worker: without --policy-file", a->resource->name);
    int result = gate_passphrase(a->o, passphrase, &n);
    if (result) return result;
    wk_status status = store_file_open(option_text(a->o, OPT_POLICY_FILE), passphrase, n, &store, &err);
    if (!status) status = policies_open(&store, &policies, &err);
    if (!status && a->verb == VERB_REPLACE && a->resource->which == POLICY_GUARDRAILS)
        status = gate_check_guardrails(a->body, &err);
    if (!status) status = change(a, policies, &done, &err);
    result = status ? fail(CODE_INVALID_REQUEST, "%s", err_text) : show(a, policies, &done);
    OPENSSL_cleanse(&done, sizeof done);
    if (policies && policies_close(policies, &err) && !result) result = fail(CODE_OUTPUT_FAILED, "%s", err_text);
    return result;
}

int command_admin(const struct options *o)
{
    struct admin a = { .o = o };
    int result = read_words(&a);
    if (!result) result = read_body(&a);
    if (!result) result = option_text(o, OPT_POLICY_FILE) ? work_on_file(&a) : ask_worker(&a);
    json_decref(a.body);
    return result;
}
