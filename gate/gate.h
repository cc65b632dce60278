/* gate.h: who may ask, how much of it, and what is written down. The service asks three times: when a request's header
 * was read (gate_identify), before its jobs are submitted (gate_admit), and when it has ended (gate_settle,
 * gate_record).
 *
 * The gate knows neither HTTP nor the engine. Order of the checks: key or token, scope, rates, blocklist, policy
 * server. Whatever cannot be decided is refused. A service without a gate has none of this, and no cost of it.
 *
 * Who asks is an API key of the policy, or a token of an OpenID Connect issuer, whose roles the policy turns into
 * scopes. */
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "gate/audit.h"
#include "gate/blocklist.h"
#include "gate/oidc.h"
#include "gate/policy.h"
#include "gate/rates.h"

enum {
    GATE_ID = 72,     /* bytes of a caller's id: of a key; "oidc:" and 32 digits of the digest of issuer and subject */
    GATE_HEADER = 512 /* bytes of text in a refusal */
};

/* Whose prompts share pages of the prefix cache. */
enum gate_share { SHARE_KEY = 0, SHARE_TENANT, SHARE_GLOBAL };

struct gate_options {        /* texts and structs are copied or taken, as said */
    const char *policy_file; /* NULL: there are no keys, and no other policy. Given: without a key of it, or a token,
                                only probes are answered; that holds also while it has no key at all */
    void *passphrase;        /* of that file, [passphrase_n], wiped; n 0: it is not encrypted */
    size_t passphrase_n;
    struct fetch *fetch; /* what asks other hosts; outlives the gate; may be NULL without policy_file and oidc */
    const struct oidc_config *oidc;    /* NULL: no tokens */
    const struct audit_options *audit; /* NULL: no audit log */
    enum gate_share share;
    bool open_metrics;   /* /metrics asks for no key */
    const char *version; /* of the program, for the audit log */
};

struct gate;

/* WK_INVALID, WK_IO, WK_NO_MEMORY: which part does not start, and why. Does not wait for other hosts. [main thread] */
wk_status gate_open(const struct gate_options *o, struct gate **out, const struct wk_err *err);
/* Ends the audit log in order. NULL allowed. No other thread is in a call. [main thread] */
void gate_close(struct gate *g);
/* The process ends without gate_close, since threads may hang: the audit log says so. [any thread] */
void gate_lost(struct gate *g, const char *why);
/* Does it ask for keys or tokens? False: there is an audit log alone, and everybody has all scopes. [any thread] */
bool gate_asks(const struct gate *g);
bool gate_has_keys(struct gate *g); /* or tokens: is there anybody whom it lets in? [any thread] */
/* To be called about once a second: uses, checkpoints. [one thread] */
void gate_tick(struct gate *g);
/* The audit log's file was renamed by somebody else: the chain goes on in a new one. [any thread] */
wk_status gate_reopen(struct gate *g, const struct wk_err *err);

/* A caller, from the first question to the last. Zeroed: nobody. */
struct gate_caller {
    char id[GATE_ID], tenant[GATE_ID]; /* "": of a worker that asks for no keys */
    uint32_t scopes;                   /* closed (scope_closure) */
    int32_t max_priority;              /* -1: the command line's */
    uint64_t owner;                    /* of the id, for fairness; 0: nobody's */
    uint64_t self[2], salt[2];         /* digests: of the id; of whom the prefix cache is shared with */
    struct rates_limits limits;
    struct rates_hold hold;
    struct rates_answer rates;
    bool rated;         /* rates tells figures */
    char decision[129]; /* of the policy server or the blocklist, for the audit; "": none */
};

enum gate_why {
    GATE_UNAUTHORIZED = 1, /* no key or token, or one that is not valid */
    GATE_ATTEMPTS,         /* too many of those from one address */
    GATE_FORBIDDEN,        /* the scope */
    GATE_RATE,
    GATE_TOO_MUCH,   /* more than the caller may have in a whole minute: the same request is never admitted */
    GATE_BLOCKED,    /* blocklist or policy server */
    GATE_UNAVAILABLE /* it cannot be decided: there are no keys of the issuer, no memory */
};
struct gate_refusal {
    enum gate_why why;
    uint64_t retry_after_s; /* 0: none can be said */
    char text[GATE_HEADER];
};

struct gate_credentials {
    const char *authorization, *api_key; /* the headers Authorization and x-api-key; NULL: absent */
    const char *address;                 /* of the other end, as text */
};

/* Who is it, and has it one of these scopes? *who is filled also when the scope is missing. False: *why. May wait for
 * an issuer's keys, OIDC_WAIT_MS at most. [any thread] */
bool gate_identify(struct gate *g, const struct gate_credentials *c, uint32_t scopes, struct gate_caller *who,
                   struct gate_refusal *why);

/* What is about to be done. gate_reads and gate_admit judge it by one snapshot of the policy (policies_now of
 * gate_policies): what is changed meanwhile holds for the next request. */
struct gate_work { /* prompts: none unless gate_reads */
    const char *request, *route, *model;
    const struct audit_text *prompts; /* [n_prompts] texts */
    const struct audit_text *marked;  /* [n_prompts] the same with their control tokens as text: a phrase that stands
                                         beside one is a word there, one that is split by one is a word without it */
    size_t n_prompts;
    uint64_t tokens_in, tokens_out; /* of all prompts; at most, of all answers */
    const char *prompt_hmac;
    const char *traceparent; /* NULL: none */
};

/* What of it may be done. */
struct gate_grant {
    uint64_t tokens_out;       /* work's, or what the policy server allows of it */
    struct blocklist *answers; /* that answers are to be held to: one use, blocklist_free; NULL: none */
};

/* Do the guardrails want to see prompts? [any thread] */
bool gate_reads(const struct policy *p);
/* May it be done? Charges the caller's rates, of which gate_settle gives back what was not used. False: *why; no tokens
 * stay charged, and nothing is granted. Waits OPA_TIMEOUT_MS at most. [any thread] */
bool gate_admit(struct gate *g, const struct policy *p, struct gate_caller *who, const struct gate_work *w,
                struct gate_grant *out, struct gate_refusal *why);
/* An answer was blocked: it counts. [any thread] */
void gate_blocked(struct gate *g);
/* The work has ended, or was not begun: so many tokens were used. Again: nothing. [any thread] */
void gate_settle(struct gate *g, struct gate_caller *who, uint64_t tokens);

/* who->rates as they are now, if its rates were charged before. [any thread] */
void gate_look(struct gate *g, struct gate_caller *who);

/* Is there an audit log? Then: an entry, whose key and tenant are the caller's. WK_IO: audit_required, and it was not
 * written. [any thread] */
bool gate_audits(const struct gate *g);
bool gate_audit_required(const struct gate *g); /* must an entry be in the log before anything is generated? */
bool gate_audits_text(const struct gate *g);    /* does it hold prompts and answers themselves? */
wk_status gate_record(struct gate *g, const struct gate_caller *who, struct audit_entry *e, const struct wk_err *err);

/* ---- for the administrator [any thread] ---- */
bool gate_keeps(const struct gate *g); /* is there a policy that can be changed? */
struct policies *gate_policies(struct gate *g);
/* Guardrails as the policy document has them, tried before they are stored: can they be used? WK_INVALID: why not. */
wk_status gate_check_guardrails(const struct json_t *body, const struct wk_err *err);
struct gate_figures {
    uint64_t unauthorized, attempts, forbidden, rate, blocked, unavailable; /* refusals */
    uint64_t keys, phrases;
    bool oidc, audit;
    struct oidc_state issuer;
    struct audit_figures log;
};
void gate_figures(struct gate *g, struct gate_figures *out);

#endif
