/* admin.c: /admin/...: the policy (API keys, roles, rates, guardrails), the scheduler's figures, models and the audit
 * log. Every change is stored before it is answered, told to the audit log, and holds from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>

#include "body.h"
#include "caller.h"
#include "capability/json_text.h"
#include "inside.h"
#include "scheduler.h"

enum { ADMIN_BODY_MAX = 4 << 20 };

static int64_t now_s(void) { return (int64_t)time(NULL); }

/* ---- bodies, refusals and entries ---------------------------------------------------------------------- */

/* The body as an object, {} where there is none. False: answered. */
static bool read_object(struct serve *s, struct http_request *r, json_t **out)
{
    struct refusal why = { 0 };
    const char *bytes;
    size_t n;
    if (!serve_body(r, ADMIN_BODY_MAX, &bytes, &n)) return false;
    if (body_parse(n ? bytes : "{}", n ? n : 2, out, &why)) return true;
    serve_refuse(s, r, &why);
    return false;
}

/* The live policy. False: there is none, and that was answered. */
static bool has_policy(struct serve *s, struct http_request *r, struct policies **out)
{
    struct refusal why = { 0 };
    if (s->gate && gate_keeps(s->gate)) {
        *out = gate_policies(s->gate);
        return true;
    }
    (void)refuse(&why, SERVE_NOT_FOUND, NULL, "this worker keeps no policy: start it with --policy-file FILE");
    serve_refuse(s, r, &why);
    return false;
}

static void refuse_change(struct serve *s, struct http_request *r, enum policy_why what, const char *text)
{
    struct refusal why = { 0 };
    const enum serve_code code = what == POLICY_WRONG                                   ? SERVE_INVALID_REQUEST
                                 : what == POLICY_NO_SUCH_KEY                           ? SERVE_NOT_FOUND
                                 : what == POLICY_KEY_EXISTS || what == POLICY_CONFLICT ? SERVE_CONFLICT
                                                                                        : SERVE_INTERNAL;
    (void)refuse(&why, code, NULL, "%s", text);
    serve_refuse(s, r, &why);
}

/* The audit log's entry of a change, before it is answered. False: it is demanded and cannot be written, which is
 * answered: the change holds all the same. */
static bool record(struct serve *s, struct http_request *r, const char *action, const char *target, const json_t *body)
{
    struct serve_caller *c = serve_caller(r);
    struct refusal why = { 0 };
    const char *name;
    char text[256] = "";
    json_t *value;
    if (!s->gate || !gate_audits(s->gate)) return true;
    const char **fields = calloc(json_object_size(body) + 1, sizeof *fields);
    struct audit_entry e = { .kind = AUDIT_ADMIN,
                             .request = http_id(r),
                             .address = c->address[0] ? c->address : NULL,
                             .method = http_method(r),
                             .route = http_path(r),
                             .status = 200,
                             .action = action,
                             .target = target,
                             .fields = fields };
    json_object_foreach ((json_t *)(uintptr_t)body, name, value)
        if (fields) fields[e.n_fields++] = name;
    c->recorded = true;
    const wk_status status = gate_record(s->gate, &c->who, &e, &(struct wk_err){ text, sizeof text });
    free(fields);
    if (!status) return true;
    (void)refuse(&why, SERVE_AUDIT_FAILED, NULL, "the change holds, but the audit log cannot be written: %s", text);
    serve_refuse(s, r, &why);
    return false;
}

/* What came of a change of the policy, once it was tried. True: it holds and is told to the audit log, and is still to
 * be answered. text: why it failed. */
static bool holds(struct serve *s, struct http_request *r, wk_status status, const struct policy_done *done,
                  const char *text, const char *action, const char *target, const json_t *body)
{
    if (!status) return record(s, r, action, target, body);
    refuse_change(s, r, done->why, text);
    return false;
}

/* ---- API keys ------------------------------------------------------------------------------------------ */

static void list_keys(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct policies *policies;
    if (!has_policy(s, r, &policies)) return;
    const struct policy *p = policies_now(policies);
    json_t *document = policy_keys_json(p);
    policy_release(p);
    serve_answer(s, r, 200, document);
}

/* One key as the policy has it now, with the secret that was made just now, if one was. */
static void answer_key(struct serve *s, struct http_request *r, struct policies *policies, const char *id, int status,
                       struct policy_done *done)
{
    const struct policy *p = policies_now(policies);
    const struct policy_key *key = policy_key_of(p, id);
    struct refusal why = { 0 };
    const bool found = key != NULL;
    json_t *document = found ? policy_key_json(p, key) : NULL;
    if (document && done && done->secret[0]) (void)json_object_set_new(document, "secret", json_string(done->secret));
    policy_release(p);
    if (done) OPENSSL_cleanse(done->secret, sizeof done->secret);
    if (found) {
        http_extra(r, "Cache-Control", "no-store");
        serve_answer(s, r, status, document);
    } else {
        (void)refuse(&why, SERVE_NOT_FOUND, NULL, "there is no key of this id");
        serve_refuse(s, r, &why);
    }
}

static void create_key(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct policies *policies;
    struct policy_done done;
    char text[512] = "";
    json_t *body;
    if (!has_policy(s, r, &policies) || !read_object(s, r, &body)) return;
    const char *id = json_string_value(json_object_get(body, "id"));
    const wk_status status = policies_create_key(policies, body, now_s(), &done, &(struct wk_err){ text, sizeof text });
    if (holds(s, r, status, &done, text, "api-keys.create", id, body)) answer_key(s, r, policies, id, 201, &done);
    OPENSSL_cleanse(done.secret, sizeof done.secret);
    json_decref(body);
}

static void show_key(void *user, struct http_request *r)
{
    struct policies *policies;
    if (has_policy(user, r, &policies)) answer_key(user, r, policies, http_rest(r), 200, NULL);
}

static void update_key(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct policies *policies;
    struct policy_done done;
    char text[512] = "";
    json_t *body;
    if (!has_policy(s, r, &policies) || !read_object(s, r, &body)) return;
    const char *id = http_rest(r);
    const wk_status status =
        policies_update_key(policies, id, body, now_s(), &done, &(struct wk_err){ text, sizeof text });
    if (holds(s, r, status, &done, text, "api-keys.update", id, body)) answer_key(s, r, policies, id, 200, NULL);
    json_decref(body);
}

static void delete_key(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct policies *policies;
    struct policy_done done;
    char text[512] = "";
    if (!has_policy(s, r, &policies)) return;
    const char *id = http_rest(r);
    const wk_status status = policies_delete_key(policies, id, now_s(), &done, &(struct wk_err){ text, sizeof text });
    if (holds(s, r, status, &done, text, "api-keys.delete", id, NULL))
        serve_answer(s, r, 200, json_pack("{s:s, s:b}", "id", id, "deleted", 1));
}

/* ID/rotate: {grace_seconds?}. */
static void rotate_key(void *user, struct http_request *r)
{
    static const char *const names[] = { "grace_seconds" };
    struct serve *s = user;
    struct policies *policies;
    struct policy_done done = { 0 };
    struct refusal why = { 0 };
    char text[512] = "", id[POLICY_ID_BYTES + 1];
    int64_t grace_s = POLICY_GRACE_S;
    json_t *body;
    const char *end = strchr(http_rest(r), '/');
    if (!has_policy(s, r, &policies) || !read_object(s, r, &body)) return;
    const struct body_object o = { body, "" };
    const size_t n = end ? (size_t)(end - http_rest(r)) : sizeof id;
    if (n >= sizeof id || strcmp(end, "/rotate") != 0) {
        (void)refuse(&why, SERVE_NOT_FOUND, NULL, "there is no such path; POST /admin/api-keys/ID/rotate is one");
        serve_refuse(s, r, &why);
    } else if (!body_knows(&o, names, 1, &why) ||
               !body_integer(&o, "grace_seconds", 0, POLICY_MOST_GRACE_S, &grace_s, &why)) {
        serve_refuse(s, r, &why);
    } else {
        (void)snprintf(id, sizeof id, "%.*s", (int)n, http_rest(r));
        const wk_status status =
            policies_rotate_key(policies, id, grace_s, now_s(), &done, &(struct wk_err){ text, sizeof text });
        if (holds(s, r, status, &done, text, "api-keys.rotate", id, body)) answer_key(s, r, policies, id, 200, &done);
    }
    OPENSSL_cleanse(done.secret, sizeof done.secret);
    json_decref(body);
}

/* ---- sections of the policy ---------------------------------------------------------------------------- */

static const struct section {
    const char *path, *action;
    enum policy_section section;
} sections[] = { { "/admin/rate-limits", "rate-limits.replace", POLICY_LIMITS },
                 { "/admin/guardrails", "guardrails.replace", POLICY_GUARDRAILS },
                 { "/admin/roles", "roles.replace", POLICY_ROLES } };

static const struct section *section_of(const struct http_request *r)
{
    const struct section *at = sections;
    while (strcmp(at->path, http_path(r)) != 0) at++;
    return at;
}

static void answer_section(struct serve *s, struct http_request *r, struct policies *policies,
                           enum policy_section section)
{
    const struct policy *p = policies_now(policies);
    json_t *document = policy_section_json(p, section);
    policy_release(p);
    serve_answer(s, r, 200, document);
}

static void show_section(void *user, struct http_request *r)
{
    struct policies *policies;
    if (has_policy(user, r, &policies)) answer_section(user, r, policies, section_of(r)->section);
}

static void replace_section(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct section *at = section_of(r);
    struct policies *policies;
    struct policy_done done = { .why = POLICY_WRONG };
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    json_t *body;
    if (!has_policy(s, r, &policies) || !read_object(s, r, &body)) return;
    wk_status status = WK_OK;
    if (at->section == POLICY_GUARDRAILS) status = gate_check_guardrails(body, &err);
    if (!status) status = policies_replace(policies, at->section, body, now_s(), &done, &err);
    if (holds(s, r, status, &done, text, at->action, NULL, body)) answer_section(s, r, policies, at->section);
    json_decref(body);
}

/* ---- the scheduler ------------------------------------------------------------------------------------- */

static void answer_scheduler(struct serve *s, struct http_request *r)
{
    struct engine_tuning t;
    scheduler_now(s, &t);
    serve_answer(s, r, 200,
                 json_pack("{s:b, s:I, s:I}", "preempt", t.preempt, "high_priority", (json_int_t)t.high_priority,
                           "timeslice_tokens", (json_int_t)t.timeslice_tokens));
}

static void show_scheduler(void *user, struct http_request *r) { answer_scheduler(user, r); }

/* All of it; a member that is absent is the command line's again. */
static void replace_scheduler(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct refusal why = { 0 };
    struct policy_done done = { .why = POLICY_WRONG };
    char text[512] = "";
    json_t *body;
    if (!read_object(s, r, &body)) return;
    if (s->gate && gate_keeps(s->gate)) {
        const wk_status status = policies_replace(gate_policies(s->gate), POLICY_SCHEDULER, body, now_s(), &done,
                                                  &(struct wk_err){ text, sizeof text });
        if (!status) scheduler_follow(s);
        if (holds(s, r, status, &done, text, "scheduler.replace", NULL, body)) answer_scheduler(s, r);
    } else if (!scheduler_set(s, body, &why)) {
        serve_refuse(s, r, &why);
    } else if (record(s, r, "scheduler.replace", NULL, body)) {
        answer_scheduler(s, r);
    }
    json_decref(body);
}

/* ---- what there is ------------------------------------------------------------------------------------- */

static void show_models(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *list = json_array();
    if (m)
        (void)json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:I}", "id", m->name, "path",
                                                    json_bytes(m->path, strlen(m->path)), "state",
                                                    serve_state_name(serve_state_of(s)), "device", s->device_text,
                                                    "quantization", m->quant_kind, "digest", serve_digest_text(m),
                                                    "ready_at", (json_int_t)m->ready_at));
    serve_answer(s, r, 200, json_pack("{s:s, s:o}", "state", serve_state_name(serve_state_of(s)), "models", list));
}

static void show_audit(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct gate_figures f = { 0 };
    if (s->gate) gate_figures(s->gate, &f);
    serve_answer(s, r, 200,
                 json_pack("{s:b, s:I, s:I, s:I, s:b}", "enabled", f.audit, "written", (json_int_t)f.log.written,
                           "dropped", (json_int_t)f.log.dropped, "rotated", (json_int_t)f.log.rotated, "failing",
                           f.log.failing));
}

const struct http_route serve_admin_routes[] = {
    { "GET", "/admin/api-keys", list_keys, false },       { "POST", "/admin/api-keys", create_key, false },
    { "GET", "/admin/api-keys/", show_key, false },       { "PATCH", "/admin/api-keys/", update_key, false },
    { "DELETE", "/admin/api-keys/", delete_key, false },  { "POST", "/admin/api-keys/", rotate_key, false },
    { "GET", "/admin/rate-limits", show_section, false }, { "PUT", "/admin/rate-limits", replace_section, false },
    { "GET", "/admin/guardrails", show_section, false },  { "PUT", "/admin/guardrails", replace_section, false },
    { "GET", "/admin/roles", show_section, false },       { "PUT", "/admin/roles", replace_section, false },
    { "GET", "/admin/scheduler", show_scheduler, false }, { "PUT", "/admin/scheduler", replace_scheduler, false },
    { "GET", "/admin/models", show_models, false },       { "GET", "/admin/audit", show_audit, false },
};
const uint32_t serve_n_admin_routes = sizeof serve_admin_routes / sizeof *serve_admin_routes;
