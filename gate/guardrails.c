/* guardrails.c: see guardrails.h. */
#include "guardrails.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/opa.h"
#include "log/log.h"

/* Made of one policy's guardrails. */
struct made {
    atomic_uint uses;
    uint64_t since;         /* policy.guardrails_since */
    struct blocklist *list; /* NULL: no phrases */
    struct opa *opa;        /* NULL: no policy server */
    bool send_text, answers;
    char failure[256]; /* "": they can be used */
};

struct guardrails {
    struct fetch *fetch;
    pthread_mutex_t lock;
    struct made *now; /* under the lock; NULL: nothing was asked for yet */
};

static void made_free(struct made *m)
{
    if (!m || atomic_fetch_sub(&m->uses, 1) > 1) return;
    blocklist_free(m->list);
    opa_close(m->opa);
    free(m);
}

/* "*sex" is found within words, too. */
static struct blocklist_phrase phrase_of(const char *text)
{
    const bool anywhere = text[0] == '*' && text[1];
    return (struct blocklist_phrase){ text + anywhere, strlen(text + anywhere), anywhere };
}

static wk_status make_list(const struct policy_guardrails *r, struct blocklist **out, const struct wk_err *err)
{
    if (!r->n_phrases) return WK_OK;
    struct blocklist_phrase *phrases = calloc(r->n_phrases, sizeof *phrases);
    if (!phrases) return wk_fail(err, WK_NO_MEMORY, "no memory for the blocklist");
    for (uint32_t i = 0; i < r->n_phrases; i++) phrases[i] = phrase_of(r->blocklist[i]);
    const wk_status status = blocklist_build(phrases, r->n_phrases, out, err);
    free(phrases);
    return status;
}

static wk_status make(struct fetch *f, const struct policy_guardrails *r, struct made *m, const struct wk_err *err)
{
    m->send_text = r->opa_send_text;
    m->answers = r->block_output;
    wk_status status = make_list(r, &m->list, err);
    const struct opa_config config = { .url = r->opa_url, .path = r->opa_path };
    if (!status && r->opa_url) status = opa_open(&config, f, &m->opa, err);
    return status;
}

/* Those of policy p, for one user; NULL: no memory. */
static struct made *made_of(struct guardrails *g, const struct policy *p)
{
    (void)pthread_mutex_lock(&g->lock);
    if (!g->now || g->now->since != p->guardrails_since) {
        struct made *m = calloc(1, sizeof *m);
        if (m) {
            atomic_init(&m->uses, 1);
            m->since = p->guardrails_since;
            (void)make(g->fetch, &p->guardrails, m, &(struct wk_err){ m->failure, sizeof m->failure });
            if (m->failure[0]) LOG(LOG_ERROR, "error", m->failure, log_s("code", "NOT_READY"));
        }
        made_free(g->now);
        g->now = m;
    }
    struct made *m = g->now;
    if (m) atomic_fetch_add(&m->uses, 1);
    (void)pthread_mutex_unlock(&g->lock);
    return m;
}

wk_status guardrails_open(struct fetch *f, struct guardrails **out, const struct wk_err *err)
{
    struct guardrails *g = calloc(1, sizeof *g);
    if (!g) return wk_fail(err, WK_NO_MEMORY, "no memory for guardrails");
    g->fetch = f;
    (void)pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return WK_OK;
}

void guardrails_close(struct guardrails *g)
{
    if (!g) return;
    made_free(g->now);
    (void)pthread_mutex_destroy(&g->lock);
    free(g);
}

wk_status guardrails_try(const struct policy_guardrails *r, const struct wk_err *err)
{
    struct made *m = calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "no memory for guardrails");
    atomic_init(&m->uses, 1);
    const wk_status status = make(NULL, r, m, err);
    made_free(m);
    return status;
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

bool gate_refuse(struct gate_refusal *why, enum gate_why as, const char *format, ...)
{
    va_list args;
    *why = (struct gate_refusal){ .why = as };
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

static bool list_passes(const struct made *m, const struct gate_work *w, char decision[129], struct gate_refusal *why)
{
    char text[128] = "";
    for (size_t i = 0; m->list && i < 2 * w->n_prompts; i++) {
        const struct audit_text *prompt = &(i % 2 ? w->marked : w->prompts)[i / 2];
        uint32_t phrase = BLOCKLIST_NONE;
        if (blocklist_find(m->list, prompt->bytes, prompt->len, &phrase, &(struct wk_err){ text, sizeof text }))
            return gate_refuse(why, GATE_UNAVAILABLE, "the prompt cannot be compared with the blocklist: %s", text);
        if (phrase == BLOCKLIST_NONE) continue;
        (void)snprintf(decision, 129, "blocklist:%u", phrase);
        return gate_refuse(why, GATE_BLOCKED, "the prompt has a phrase that this worker's blocklist does not allow");
    }
    return true;
}

/* The prompts as one text, with a line end between them; the caller frees. NULL: no memory. */
static char *joined(const struct gate_work *w, size_t *n)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < w->n_prompts; i++) total += w->prompts[i].len + 1;
    char *text = malloc(total + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < w->n_prompts; i++) {
        if (i) text[at++] = '\n';
        if (w->prompts[i].len) memcpy(text + at, w->prompts[i].bytes, w->prompts[i].len);
        at += w->prompts[i].len;
    }
    text[at] = 0;
    *n = at;
    return text;
}

static bool server_passes(const struct made *m, const struct gate_caller *who, const struct gate_work *w,
                          uint64_t *tokens_out, char decision[129], struct gate_refusal *why)
{
    if (!m->opa) return true;
    struct opa_input input = { .request_id = w->request,
                               .key_id = who->id[0] ? who->id : NULL,
                               .scopes = who->scopes,
                               .route = w->route,
                               .model = w->model,
                               .prompt_tokens = (int64_t)w->tokens_in,
                               .prompt_chars = -1,
                               .max_tokens = (int64_t)*tokens_out,
                               .prompt_hmac = w->prompt_hmac,
                               .traceparent = w->traceparent };
    struct opa_decision d;
    char *text = NULL;
    if (m->send_text) {
        text = joined(w, &input.prompt_len);
        if (!text) return gate_refuse(why, GATE_UNAVAILABLE, "no memory for the question to the policy server");
        input.prompt = text;
    }
    const bool allowed = opa_allows(m->opa, &input, &d);
    free(text);
    (void)snprintf(decision, 129, "%s", d.decision_id);
    bool passes = allowed;
    if (d.kind == OPA_DENIED) {
        (void)gate_refuse(why, GATE_BLOCKED, "the policy server does not allow this request%s%s",
                          d.reason[0] ? ": " : "", d.reason);
    } else if (!allowed) { /* where it is, and what it said, is the operator's to know */
        LOG(LOG_WARN, "policy_server", d.reason, log_s("result", opa_kind_name(d.kind)),
            log_s("request_id", w->request));
        (void)gate_refuse(why, GATE_BLOCKED, "the policy server gave no clear answer");
    } else if (d.obligations) {
        passes = gate_refuse(why, GATE_BLOCKED, "the policy server demands obligations, and this worker knows none");
    } else if (d.max_tokens >= 0 && (uint64_t)d.max_tokens < *tokens_out) {
        *tokens_out = (uint64_t)d.max_tokens;
    }
    opa_decision_free(&d);
    return passes;
}

bool guardrails_pass(struct guardrails *g, const struct policy *p, const struct gate_caller *who,
                     const struct gate_work *w, struct gate_grant *out, char decision[129], struct gate_refusal *why)
{
    if (!p->guardrails.n_phrases && !p->guardrails.opa_url) return true;
    struct made *m = made_of(g, p);
    if (!m) return gate_refuse(why, GATE_UNAVAILABLE, "no memory for guardrails");
    const bool passes =
        m->failure[0] ? gate_refuse(why, GATE_UNAVAILABLE, "the guardrails cannot be used") /* why is the operator's */
                      : list_passes(m, w, decision, why) && server_passes(m, who, w, &out->tokens_out, decision, why);
    if (passes && m->list && m->answers) out->answers = blocklist_share(m->list);
    made_free(m);
    return passes;
}
