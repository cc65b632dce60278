/* gate.c: the three questions. */
#include "gate.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <jansson.h>

#include "base/sha256.h"
#include "gate/attempts.h"
#include "gate/guardrails.h"
#include "gate/policy_internal.h"

enum { RATE_PLACES = 1 << 15 };

struct gate {
    enum gate_share share;
    bool open_metrics, asks, keeps, audit_text, audit_required;
    char issuer[1024]; /* "": no tokens */
    struct policies *policies;
    struct oidc *oidc; /* NULL: no tokens */
    struct attempts *attempts;
    struct rates *rates;
    struct guardrails *guardrails;
    struct audit *audit; /* NULL: none */
    _Atomic uint64_t refused[GATE_UNAVAILABLE + 1];
};

/* ---- open and close ------------------------------------------------------------------------------------ */

static wk_status open_policies(struct gate *g, const struct gate_options *o, const struct wk_err *err)
{
    struct store store;
    if (!o->policy_file) return policies_open(NULL, &g->policies, err);
    const wk_status status = store_file_open(o->policy_file, o->passphrase, o->passphrase_n, &store, err);
    return status ? status : policies_open(&store, &g->policies, err);
}

wk_status gate_open(const struct gate_options *o, struct gate **out, const struct wk_err *err)
{
    struct gate *g = calloc(1, sizeof *g);
    if (o->passphrase_n && !o->policy_file) OPENSSL_cleanse(o->passphrase, o->passphrase_n);
    if (!g) return wk_fail(err, WK_NO_MEMORY, "no memory for the gate");
    g->share = o->share;
    g->open_metrics = o->open_metrics;
    g->asks = o->oidc || o->policy_file;
    g->keeps = o->policy_file != NULL;
    g->audit_required = o->audit && o->audit->required;
    g->audit_text = o->audit && o->audit->raw;
    if (o->oidc) (void)snprintf(g->issuer, sizeof g->issuer, "%s", o->oidc->issuer);
    wk_status status = open_policies(g, o, err);
    if (!status && o->oidc) status = oidc_open(o->oidc, o->fetch, &g->oidc, err);
    if (!status) status = attempts_open(&g->attempts, err);
    if (!status) status = rates_open(RATE_PLACES, &g->rates, err);
    if (!status) status = guardrails_open(o->fetch, &g->guardrails, err);
    if (!status && o->audit) status = audit_open(o->audit, &g->audit, err);
    if (!status && g->audit)
        status = audit_write(g->audit, &(struct audit_entry){ .kind = AUDIT_START, .note = o->version }, err);
    if (status)
        gate_close(g);
    else
        *out = g;
    return status;
}

void gate_close(struct gate *g)
{
    if (!g) return;
    guardrails_close(g->guardrails);
    oidc_close(g->oidc);
    if (g->policies) (void)policies_close(g->policies, NULL); /* last uses alone can be lost: to the minute or hour */
    attempts_close(g->attempts);
    rates_close(g->rates);
    if (g->audit) (void)audit_write(g->audit, &(struct audit_entry){ .kind = AUDIT_STOP }, NULL);
    audit_close(g->audit);
    free(g);
}

void gate_lost(struct gate *g, const char *why)
{
    if (g->audit) (void)audit_write(g->audit, &(struct audit_entry){ .kind = AUDIT_STOP, .note = why }, NULL);
}

static int64_t now_s(void) { return (int64_t)time(NULL); }

bool gate_asks(const struct gate *g) { return g->asks; }

bool gate_has_keys(struct gate *g)
{
    const struct policy *p = policies_now(g->policies);
    const bool has = g->oidc || p->n_keys;
    policy_release(p);
    return has;
}

void gate_tick(struct gate *g)
{
    (void)policies_tick(g->policies, now_s(), NULL);
    if (g->audit) audit_tick(g->audit);
}

wk_status gate_reopen(struct gate *g, const struct wk_err *err)
{
    return g->audit ? audit_reopen(g->audit, err) : WK_OK;
}

bool gate_keeps(const struct gate *g) { return g->keeps; }
struct policies *gate_policies(struct gate *g) { return g->policies; }

/* ---- who asks ------------------------------------------------------------------------------------------ */

static void count(struct gate *g, enum gate_why why)
{
    atomic_fetch_add_explicit(&g->refused[why], 1, memory_order_relaxed);
}

/* The digest of a caller's id or tenant: one byte tells them apart. since: a key that was deleted and made again under
 * its id is another one. False: libcrypto failed; callers must not share what it would be then. */
static bool digest(char kind, const char *text, int64_t since, uint64_t out[2])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char bytes[GATE_ID + 32];
    const int n = snprintf(bytes, sizeof bytes, "%c%s %lld", kind, text, (long long)since);
    if (EVP_Digest(bytes, (size_t)n, hash, NULL, EVP_sha256(), NULL) != 1) return false;
    memcpy(out, hash, 2 * sizeof *out);
    return true;
}

static bool no_digest(struct gate_refusal *why)
{
    return gate_refuse(why, GATE_UNAVAILABLE, "no memory to tell who asks, or libcrypto has no SHA-256");
}

static bool settle_identity(const struct gate *g, int64_t since, struct gate_caller *who, struct gate_refusal *why)
{
    if (!digest('k', who->id, since, who->self)) return no_digest(why);
    who->owner = who->self[0] | 1;
    if (g->share == SHARE_KEY) memcpy(who->salt, who->self, sizeof who->salt);
    return g->share != SHARE_TENANT || digest('t', who->tenant, 0, who->salt) || no_digest(why);
}

/* A failed authentication: 401, or, too often, 429. */
static bool fail(struct gate *g, const struct gate_credentials *c, struct gate_refusal *why, const char *text)
{
    const uint64_t seconds = attempts_failed(g->attempts, c->address ? c->address : "", rates_now());
    if (!seconds) return gate_refuse(why, GATE_UNAUTHORIZED, "%s", text);
    (void)gate_refuse(why, GATE_ATTEMPTS, "too many requests of this address had no valid key; wait %llu s",
                      (unsigned long long)seconds);
    why->retry_after_s = seconds;
    return false;
}

static struct rates_limits limits_of(const struct policy *p, const struct policy_limits *own)
{
    const struct policy_limits l = policy_limits_of(p, own);
    return (struct rates_limits){ l.requests_per_minute, l.tokens_per_minute };
}

static bool identify_key(struct gate *g, const struct policy *p, const struct gate_credentials *c, const char *text,
                         struct gate_caller *who, struct gate_refusal *why)
{
    const int64_t now = now_s();
    uint32_t at;
    switch (policy_find(p, text, strlen(text), now, &at)) {
    case POLICY_FOUND: break;
    case POLICY_MALFORMED: return fail(g, c, why, "this is no key: its form or its check digits are wrong");
    case POLICY_DISABLED: return fail(g, c, why, "this key is disabled");
    case POLICY_EXPIRED: return fail(g, c, why, "this key has expired");
    default: return fail(g, c, why, "this key is not known here");
    }
    const struct policy_key *key = &p->keys[at];
    policy_used(key, now);
    (void)snprintf(who->id, sizeof who->id, "%s", key->id);
    (void)snprintf(who->tenant, sizeof who->tenant, "%s", key->tenant);
    who->scopes = scope_closure(key->scopes);
    who->max_priority = key->max_priority;
    who->limits = limits_of(p, &key->limits);
    return settle_identity(g, key->created, who, why);
}

/* The more generous of two limits, of which 0 is none. */
static uint64_t wider(uint64_t a, uint64_t b) { return !a || !b ? 0 : a > b ? a : b; }

/* What the policy allows the token's names together. Its scopes are names as its roles are: each counts where the
 * policy has a role of that name, and a scope that the policy does not know allows nothing. */
static void take_roles(const struct policy *p, const struct jwt_claims *claims, struct gate_caller *who)
{
    bool any = false;
    uint32_t i = 0;
    for (const char *name = jwt_next_name(claims, NULL); name; name = jwt_next_name(claims, name), i++) {
        const struct policy_role *role = policy_role_of(p, name, strlen(name));
        if (!role) continue;
        const struct rates_limits l = limits_of(p, &role->limits);
        who->scopes |= role->scopes;
        who->limits.requests = any ? wider(who->limits.requests, l.requests) : l.requests;
        who->limits.tokens = any ? wider(who->limits.tokens, l.tokens) : l.tokens;
        if (!any || role->max_priority < 0 || (who->max_priority >= 0 && role->max_priority > who->max_priority))
            who->max_priority = role->max_priority;
        if (role->tenant && !who->tenant[0]) (void)snprintf(who->tenant, sizeof who->tenant, "%s", role->tenant);
        any = true;
    }
    if (!any) who->limits = limits_of(p, &(struct policy_limits){ 0, 0 });
    who->scopes = scope_closure(who->scopes);
}

/* Nobody chooses a subject so that it looks like another one, or like a key. False: libcrypto failed. */
static bool name_subject(const struct gate *g, const struct jwt_claims *claims, char out[GATE_ID])
{
    char text[sizeof g->issuer + sizeof claims->subject], hex[65];
    const int n = snprintf(text, sizeof text, "%s\n%s", g->issuer, claims->subject);
    if (!sha256_hex(text, (size_t)n, hex)) return false;
    (void)snprintf(out, GATE_ID, "oidc:%.32s", hex);
    return true;
}

static bool identify_token(struct gate *g, const struct policy *p, const struct gate_credentials *c, const char *text,
                           struct gate_caller *who, struct gate_refusal *why)
{
    char said[256] = "";
    struct jwt_claims claims;
    /* A valid token is always let in, as a valid key is: others of the same address may have failed. Only what costs
     * more, the issuer's keys fetched again, is not done for such an address. */
    const bool failed_often = attempts_wait(g->attempts, c->address ? c->address : "", rates_now()) > 0;
    const wk_status status = (failed_often ? oidc_check_now : oidc_check)(g->oidc, text, strlen(text), &claims, NULL,
                                                                          &(struct wk_err){ said, sizeof said });
    if (status == WK_INVALID) return fail(g, c, why, said);
    if (status)
        return gate_refuse(why, GATE_UNAVAILABLE, "tokens cannot be checked now: there are no keys of their issuer");
    if (!name_subject(g, &claims, who->id)) return no_digest(why);
    who->max_priority = -1;
    take_roles(p, &claims, who);
    if (!who->tenant[0]) memcpy(who->tenant, who->id, sizeof who->tenant);
    return settle_identity(g, 0, who, why);
}

/* The key or token of the headers; NULL: *text says what is wrong. */
static const char *credential_of(const struct gate_credentials *c, const char **text)
{
    const char *bearer = NULL;
    *text = "no key: send the header Authorization: Bearer KEY, or x-api-key: KEY";
    if (c->authorization) {
        bearer = c->authorization + strlen("Bearer");
        if (strncasecmp(c->authorization, "Bearer", strlen("Bearer")) != 0 || (*bearer && *bearer != ' ')) {
            *text = "the header Authorization is of another scheme than Bearer";
            return NULL;
        }
        while (*bearer == ' ') bearer++;
        if (!*bearer) {
            *text = "the header Authorization says Bearer, but no key follows";
            return NULL;
        }
    }
    if (bearer && c->api_key && strcmp(bearer, c->api_key) != 0) {
        *text = "Authorization and x-api-key name two different keys: send one";
        return NULL;
    }
    return bearer ? bearer : c->api_key;
}

static bool looks_like_token(const char *text) { return strncmp(text, "wk_", 3) != 0 && strchr(text, '.'); }

static bool has_scope(const struct gate_caller *who, uint32_t scopes, struct gate_refusal *why)
{
    char names[128] = "";
    int n = 0;
    if (!scopes || who->scopes & scopes) return true;
    for (uint32_t s = 1; s < SCOPE_ALL; s <<= 1)
        if (scopes & s) n += snprintf(names + n, sizeof names - (size_t)n, "%s%s", n ? " or " : "", scope_name(s));
    return gate_refuse(why, GATE_FORBIDDEN, "this needs the scope %s, which %s does not have", names, who->id);
}

bool gate_identify(struct gate *g, const struct gate_credentials *c, uint32_t scope, struct gate_caller *who,
                   struct gate_refusal *why)
{
    const char *text;
    const struct policy *p = policies_now(g->policies);
    bool ok = true;
    if (!g->asks) {
        who->scopes = SCOPE_ALL;
        who->max_priority = -1;
    } else if (!(scope == SCOPE_METRICS && g->open_metrics && !c->authorization && !c->api_key)) {
        const char *secret = credential_of(c, &text);
        ok = !secret                               ? fail(g, c, why, text)
             : g->oidc && looks_like_token(secret) ? identify_token(g, p, c, secret, who, why)
                                                   : identify_key(g, p, c, secret, who, why);
        ok = ok && has_scope(who, scope, why);
    }
    policy_release(p);
    if (!ok) count(g, why->why);
    return ok;
}

/* ---- how much ------------------------------------------------------------------------------------------ */

static bool charge(struct gate *g, struct gate_caller *who, uint64_t tokens, struct gate_refusal *why)
{
    char text[256] = "";
    if (!who->id[0] || (!who->limits.requests && !who->limits.tokens)) return true;
    const wk_status status = rates_reserve(g->rates, who->id, strlen(who->id), &who->limits, tokens, rates_now(),
                                           &who->hold, &who->rates, &(struct wk_err){ text, sizeof text });
    if (status) return gate_refuse(why, GATE_UNAVAILABLE, "the rates of %s cannot be counted: %s", who->id, text);
    const struct rates_answer *a = &who->rates;
    who->rated = true;
    switch (a->verdict) {
    case RATES_ADMITTED: return true;
    case RATES_NEVER:
        return gate_refuse(why, GATE_TOO_MUCH,
                           "the request may take %llu tokens, and %s has %llu a minute: ask for fewer (max_tokens)",
                           (unsigned long long)tokens, who->id, (unsigned long long)a->tokens.limit);
    case RATES_WAIT:
        (void)gate_refuse(why, GATE_RATE, "%s has used up its %s of this minute (%llu)", who->id, a->what,
                          (unsigned long long)(a->what[0] == 'r' ? a->requests.limit : a->tokens.limit));
        break;
    default: (void)gate_refuse(why, GATE_RATE, "too many keys have used up their rates at once"); break;
    }
    why->retry_after_s = rates_retry_after(a->wait_ns);
    return false;
}

bool gate_admit(struct gate *g, const struct policy *p, struct gate_caller *who, const struct gate_work *w,
                struct gate_grant *out, struct gate_refusal *why)
{
    const uint64_t most = UINT64_MAX - w->tokens_in;
    *out = (struct gate_grant){ .tokens_out = w->tokens_out };
    bool passes = charge(g, who, w->tokens_in + (w->tokens_out < most ? w->tokens_out : most), why);
    if (passes) {
        passes = guardrails_pass(g->guardrails, p, who, w, out, who->decision, why);
        if (!passes) gate_settle(g, who, 0);
    }
    if (!passes) count(g, why->why);
    return passes;
}

bool gate_reads(const struct policy *p)
{
    return p->guardrails.n_phrases || (p->guardrails.opa_url && p->guardrails.opa_send_text);
}

void gate_blocked(struct gate *g) { count(g, GATE_BLOCKED); }

void gate_settle(struct gate *g, struct gate_caller *who, uint64_t tokens)
{
    if (who->hold.held) rates_settle(g->rates, &who->hold, tokens, rates_now());
}

void gate_look(struct gate *g, struct gate_caller *who)
{
    if (who->rated)
        who->rated = !rates_look(g->rates, who->id, strlen(who->id), &who->limits, rates_now(), &who->rates, NULL);
}

/* ---- what is written down ------------------------------------------------------------------------------ */

bool gate_audits(const struct gate *g) { return g->audit != NULL; }
bool gate_audit_required(const struct gate *g) { return g->audit_required; }
bool gate_audits_text(const struct gate *g) { return g->audit_text; }

wk_status gate_record(struct gate *g, const struct gate_caller *who, struct audit_entry *e, const struct wk_err *err)
{
    if (!g->audit) return WK_OK;
    const char *decisions[] = { who->decision };
    if (who->id[0]) e->key = who->id;
    if (who->tenant[0]) e->tenant = who->tenant;
    if (who->decision[0]) {
        e->decisions = decisions;
        e->n_decisions = 1;
    }
    const wk_status status = audit_write(g->audit, e, err);
    e->decisions = NULL;
    e->n_decisions = 0;
    return status;
}

/* ---- for the administrator ----------------------------------------------------------------------------- */

wk_status gate_check_guardrails(const struct json_t *body, const struct wk_err *err)
{
    struct snapshot *s;
    json_t *document =
        json_pack("{s:i, s:i, s:O}", "format", POLICY_FORMAT, "generation", 1, "guardrails", (json_t *)(uintptr_t)body);
    wk_status status = snapshot_read(document, &s, err);
    if (status) return status;
    status = guardrails_try(&s->p.guardrails, err);
    policy_release(&s->p);
    return status;
}

void gate_figures(struct gate *g, struct gate_figures *out)
{
    const struct policy *p = policies_now(g->policies);
    *out = (struct gate_figures){ .unauthorized = atomic_load(&g->refused[GATE_UNAUTHORIZED]),
                                  .attempts = atomic_load(&g->refused[GATE_ATTEMPTS]),
                                  .forbidden = atomic_load(&g->refused[GATE_FORBIDDEN]),
                                  .rate = atomic_load(&g->refused[GATE_RATE]) + atomic_load(&g->refused[GATE_TOO_MUCH]),
                                  .blocked = atomic_load(&g->refused[GATE_BLOCKED]),
                                  .unavailable = atomic_load(&g->refused[GATE_UNAVAILABLE]),
                                  .keys = p->n_keys,
                                  .phrases = p->guardrails.n_phrases,
                                  .oidc = g->oidc,
                                  .audit = g->audit };
    policy_release(p);
    if (g->oidc) oidc_state(g->oidc, &out->issuer);
    if (g->audit) audit_figures(g->audit, &out->log);
}
