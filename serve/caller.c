/* caller.c: see caller.h. */
#include "caller.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "inside.h"
#include "log/log.h"
#include "log_names.h"
#include "scopes.h"
#include "stream.h"
#include "trace.h"

_Static_assert(sizeof(struct serve_caller) <= HTTP_CALLER_BYTES, "a caller fits into its request");

struct serve_caller *serve_caller(struct http_request *r) { return http_caller(r); }

/* ---- who it is ----------------------------------------------------------------------------------------- */

static void read_address(const struct http_request *r, char *out, size_t cap)
{
    struct sockaddr_storage peer;
    http_address(r, &peer);
    const void *at = peer.ss_family == AF_INET    ? (const void *)&((const struct sockaddr_in *)&peer)->sin_addr
                     : peer.ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)&peer)->sin6_addr
                                                  : NULL;
    if (!at || !inet_ntop(peer.ss_family, at, out, (socklen_t)cap)) out[0] = 0;
}

static enum serve_code code_of(enum gate_why why)
{
    static const enum serve_code codes[] = {
        [GATE_UNAUTHORIZED] = SERVE_UNAUTHORIZED, [GATE_ATTEMPTS] = SERVE_RATE_LIMITED,
        [GATE_FORBIDDEN] = SERVE_FORBIDDEN,       [GATE_RATE] = SERVE_RATE_LIMITED,
        [GATE_TOO_MUCH] = SERVE_INVALID_REQUEST,  [GATE_BLOCKED] = SERVE_GUARDRAIL_BLOCKED,
        [GATE_UNAVAILABLE] = SERVE_NOT_READY
    };
    return codes[why];
}

static bool refused_by(const struct gate_refusal *by, struct refusal *why)
{
    (void)refuse(why, code_of(by->why), by->why == GATE_TOO_MUCH ? "max_tokens" : NULL, "%s", by->text);
    why->retry_after_s = by->retry_after_s < UINT32_MAX ? (uint32_t)by->retry_after_s : UINT32_MAX;
    return false;
}

static bool may_pass(struct serve *s, struct http_request *r, uint32_t scope)
{
    struct serve_caller *c = serve_caller(r);
    struct gate_refusal by;
    struct refusal why = { 0 };
    const struct gate_credentials credentials = { .authorization = http_header(r, "Authorization"),
                                                  .api_key = http_header(r, "x-api-key"),
                                                  .address = c->address };
    read_address(r, c->address, sizeof c->address);
    /* Probes need no key; one that is shown all the same must be good. */
    if (c->open && !credentials.authorization && !credentials.api_key) return true;
    if (gate_identify(s->gate, &credentials, c->open ? 0 : scope, &c->who, &by)) return true;
    (void)refused_by(&by, &why);
    if (by.why == GATE_UNAUTHORIZED) http_extra(r, "WWW-Authenticate", "Bearer realm=\"worker\"");
    serve_refuse(s, r, &why);
    return false;
}

bool caller_admit(void *user, struct http_request *r, const struct http_route *route)
{
    struct serve *s = user;
    struct serve_caller *c = serve_caller(r);
    const uint32_t scope = serve_scope_of(route);
    c->begun_ns = serve_now_ns();
    c->kind = AUDIT_REQUEST;
    c->known = true;
    c->open = scope == SCOPE_OPEN;
    trace_begin(s, r);
    return !s->gate || may_pass(s, r, scope);
}

bool caller_has(const struct serve *s, struct http_request *r, uint32_t scope)
{
    return !s->gate || serve_caller(r)->who.scopes & scope;
}

int32_t caller_max_priority(const struct serve *s, struct http_request *r)
{
    const struct gate_caller *who = &serve_caller(r)->who;
    return !s->gate || who->max_priority < 0 ? s->o->max_priority : who->max_priority;
}

const uint64_t *caller_sees(const struct serve *s, struct http_request *r)
{
    return caller_has(s, r, SCOPE_ADMIN_READ) ? NULL : serve_caller(r)->who.self;
}

/* ---- how much ------------------------------------------------------------------------------------------ */

static void tell_figure(struct http_request *r, const char *what, const struct rates_figure *f)
{
    char name[64], text[RATES_TEXT];
    if (!f->limit) return;
    (void)snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
    (void)snprintf(text, sizeof text, "%" PRIu64, f->limit);
    http_extra(r, name, text);
    (void)snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
    (void)snprintf(text, sizeof text, "%" PRIu64, f->remaining);
    http_extra(r, name, text);
    (void)snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
    http_extra(r, name, rates_duration(f->reset_ns, text));
}

/* The request as the gate is told of it. */
static uint64_t tokens_in(const struct stream *x)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->n_prompts; i++) n += x->prompts[i].ids.n;
    return n * x->each; /* each answer is a job of its own, which reads its prompt */
}

/* What one answer to prompt p may have at most: the context ends it, too. */
static uint64_t most_of(const struct stream *x, const struct stream_prompt *p)
{
    const uint64_t room = x->m->facts.context - p->ids.n;
    return x->q.max_tokens < room ? x->q.max_tokens : room;
}

static uint64_t tokens_out(const struct stream *x)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < x->n_prompts; i++) n += most_of(x, &x->prompts[i]) * x->each;
    return n;
}

/* The entry that all others of a request are made of. */
static struct audit_entry entry_of(const struct serve_caller *c, const struct http_request *r, char word[LOG_WORD])
{
    return (struct audit_entry){ .request = http_id(r),
                                 .method = http_method(r),
                                 .address = c->address[0] ? c->address : NULL,
                                 .route = serve_log_path(http_path(r), word),
                                 .model = c->model,
                                 .prompt = { c->asked.data, c->asked.n, c->prompt_hmac, c->prompt_sha256 },
                                 .target = c->target };
}

/* With --audit-required nothing is generated whose request does not stand in the log. */
static bool record_admission(const struct stream *x, struct serve_caller *c, struct refusal *why)
{
    char word[LOG_WORD], text[256] = "";
    struct audit_entry e = entry_of(c, x->r, word);
    e.kind = AUDIT_ADMISSION;
    return !gate_audit_required(x->s->gate) ||
           !gate_record(x->s->gate, &c->who, &e, &(struct wk_err){ text, sizeof text }) ||
           refuse(why, SERVE_AUDIT_FAILED, NULL, "the audit log cannot be written: %s", text);
}

/* What log and policy server are told of the prompts: of several, the digest of all behind each other, a query first,
 * with line ends between. */
static bool digest_prompts(struct stream *x, struct serve_caller *c, struct refusal *why)
{
    const bool kept = gate_audits_text(x->s->gate);
    c->model = x->m->name;
    c->counted = true;
    c->tokens_in = tokens_in(x);
    memcpy(c->prompt_hmac, x->prompts[0].prompt_hmac, sizeof c->prompt_hmac);
    memcpy(c->prompt_sha256, x->prompts[0].prompt_sha256, sizeof c->prompt_sha256);
    if (x->n_prompts == 1 && !x->query.data && !kept) return true;
    if (x->query.data) http_text_add(&c->asked, x->query.data, x->query.len);
    for (uint32_t i = 0; i < x->n_prompts; i++) {
        if (i || x->query.data) http_text_add(&c->asked, "\n", 1);
        http_text_add(&c->asked, x->prompts[i].text, x->prompts[i].len);
    }
    bool ok = !c->asked.failed;
    if (ok && (x->n_prompts > 1 || x->query.data))
        ok = log_hmac(c->asked.data, c->asked.n, c->prompt_hmac) &&
             (!x->s->o->plain_sha256 || sha256_hex(c->asked.data, c->asked.n, c->prompt_sha256));
    if (!kept) http_text_free(&c->asked);
    return ok || refuse(why, SERVE_INTERNAL, NULL, "no digest of the prompts can be made");
}

/* The prompts as the model is given them, so that ids, roles and escapes hide nothing: without their control tokens,
 * and with them. Of texts that become rows the former are as they were sent, and a query behind them: what a tokenizer
 * does to case, spaces and words that it does not know hides nothing either. */
struct prompt_texts {
    struct audit_text *plain, *marked; /* [n]; NULL: nobody wants to see them */
    uint32_t n;
};

static bool copy_sent(struct token_bytes sent, struct audit_text *out, struct refusal *why)
{
    char *copy = malloc(sent.len + 1);
    if (!copy) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the prompts");
    memcpy(copy, sent.data, sent.len);
    *out = (struct audit_text){ .bytes = copy, .len = sent.len };
    return true;
}

static bool read_prompt(const struct stream *x, uint32_t i, bool marked, struct audit_text *out, struct refusal *why)
{
    char text[256] = "", *bytes = NULL;
    const struct stream_prompt *p = &x->prompts[i];
    const struct tokens *ids = &p->ids;
    if (!marked && p->as_sent) return copy_sent((struct token_bytes){ p->text, p->len }, out, why);
    if (tokenizer_decode(x->m->facts.tokenizer, ids->ids, ids->n, marked, &bytes, &out->len,
                         &(struct wk_err){ text, sizeof text }))
        return refuse(why, SERVE_INTERNAL, NULL, "the prompt cannot be read back for the guardrails: %s", text);
    out->bytes = bytes;
    return true;
}

static bool read_prompts(const struct stream *x, struct prompt_texts *t, struct refusal *why)
{
    const uint32_t n = x->n_prompts + (x->query.data != NULL);
    t->plain = calloc(n, sizeof *t->plain);
    t->marked = calloc(n, sizeof *t->marked);
    if (!t->plain || !t->marked) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the prompts");
    t->n = n;
    for (uint32_t i = 0; i < x->n_prompts; i++)
        if (!read_prompt(x, i, false, &t->plain[i], why) || !read_prompt(x, i, true, &t->marked[i], why)) return false;
    return !x->query.data ||
           (copy_sent(x->query, &t->plain[n - 1], why) && copy_sent(x->query, &t->marked[n - 1], why));
}

static void free_prompts(struct prompt_texts *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        free((void *)(uintptr_t)t->plain[i].bytes);
        free((void *)(uintptr_t)t->marked[i].bytes);
    }
    free(t->plain);
    free(t->marked);
}

static bool ask_gate(struct stream *x, const struct policy *p, struct serve_caller *c, const struct prompt_texts *t,
                     struct refusal *why)
{
    char trace[HTTP_TRACE_BYTES + 1];
    struct gate_refusal by;
    struct gate_grant grant;
    const struct gate_work work = { .request = http_id(x->r),
                                    .route = http_path(x->r),
                                    .model = x->m->name,
                                    .prompts = t->plain,
                                    .marked = t->marked,
                                    .n_prompts = t->n,
                                    .tokens_in = c->tokens_in,
                                    .tokens_out = tokens_out(x),
                                    .prompt_hmac = c->prompt_hmac,
                                    .traceparent = trace_parent(x->r, trace) ? trace : NULL };
    if (!gate_admit(x->s->gate, p, &c->who, &work, &grant, &by)) return refused_by(&by, why);
    if (grant.tokens_out < work.tokens_out) x->q.max_tokens = (uint32_t)(grant.tokens_out / x->n_answers);
    x->list = grant.answers;
    return true;
}

bool caller_may_begin(struct stream *x, struct refusal *why)
{
    struct serve_caller *c = serve_caller(x->r);
    struct prompt_texts texts = { 0 };
    if (!x->s->gate) return true;
    const struct policy *p = policies_now(gate_policies(x->s->gate));
    const bool may = digest_prompts(x, c, why) && (!gate_reads(p) || read_prompts(x, &texts, why)) &&
                     ask_gate(x, p, c, &texts, why) && record_admission(x, c, why);
    policy_release(p);
    free_prompts(&texts);
    return may;
}

void caller_rates(struct stream *x, bool begins)
{
    struct serve_caller *c = serve_caller(x->r);
    if (!x->s->gate) return;
    if (!begins) {
        gate_settle(x->s->gate, &c->who, 0);
        gate_look(x->s->gate, &c->who);
    }
    if (!c->who.rated) return;
    tell_figure(x->r, "requests", &c->who.rates.requests);
    tell_figure(x->r, "tokens", &c->who.rates.tokens);
}

void caller_said(struct stream *x, const char *text, size_t n)
{
    if (x->s->gate && gate_audits(x->s->gate)) http_text_add(&serve_caller(x->r)->said, text, n);
}

void caller_blocked(struct stream *x, uint32_t phrase)
{
    struct gate_caller *who = &serve_caller(x->r)->who;
    (void)snprintf(who->decision, sizeof who->decision, "blocklist:%u", phrase);
    gate_blocked(x->s->gate);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static enum audit_kind kind_of(const struct serve_caller *c, int status)
{
    return c->kind == AUDIT_REQUEST && status >= 400 ? AUDIT_REFUSAL : c->kind;
}

static void record(struct serve *s, struct serve_caller *c, struct http_request *r)
{
    char word[LOG_WORD], text[256] = "";
    struct audit_entry e = entry_of(c, r, word);
    c->recorded = true;
    e.kind = kind_of(c, http_status(r));
    e.status = (uint32_t)http_status(r);
    e.code = c->code;
    e.counted = c->counted;
    e.tokens_in = c->tokens_in;
    e.tokens_out = c->tokens_out;
    e.tokens_cached = c->tokens_cached;
    e.duration_us = (serve_now_ns() - c->begun_ns) / 1000;
    e.response = (struct audit_text){ .bytes = c->said.data, .len = c->said.n };
    if (gate_record(s->gate, &c->who, &e, &(struct wk_err){ text, sizeof text }))
        LOG(LOG_ERROR, "error", text, log_s("code", "AUDIT_FAILED"), log_s("request_id", http_id(r)));
}

/* What was answered stands in the log, whatever becomes of the process. */
void caller_answering(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct serve_caller *c = serve_caller(r);
    if (c->known && gate_audits(s->gate) && !c->recorded && (!c->open || http_status(r) >= 400)) record(s, c, r);
}

void caller_ended(struct stream *x, const struct answer *a, const struct ending *e)
{
    struct serve_caller *c = serve_caller(x->r);
    trace_answer(x, a, e);
    if (!x->s->gate) return;
    c->tokens_out += a->tokens_out;
    c->tokens_cached += e->f.n_cached;
    if (a->started) c->used += stream_tokens_in(x, a) + e->f.n_generated;
    if (!e->good && !c->code) c->code = serve_codes[e->why.code].name;
    if (x->n_over < x->n_answers) return;
    /* before the client knows: its next request finds given back what this one did not use */
    gate_settle(x->s->gate, &c->who, c->used);
    if (http_status(x->r)) caller_answering(x->s, x->r); /* a stream that has begun; whole answers: with their status */
}

void caller_over(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct serve_caller *c = serve_caller(r);
    if (!c->known) return;
    if (s->gate) gate_settle(s->gate, &c->who, c->used);
    if (s->gate) caller_answering(s, r);
    trace_over(s, r);
    http_text_free(&c->asked);
    http_text_free(&c->said);
}
