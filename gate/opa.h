/* opa.h: a decision of a policy server (Open Policy Agent's REST API, POST /v1/data/PATH). Closed: whatever is not a
 * clear yes within a second is a no that says why. */
#ifndef GATE_OPA_H
#define GATE_OPA_H

#include <jansson.h>

#include "fetch.h"

enum { OPA_TIMEOUT_MS = 1000, OPA_MOST_ANSWER = 64 << 10, OPA_MOST_TOKENS = 1 << 24 };

struct opa;

struct opa_config {      /* copied */
    const char *url;     /* http://HOST[:PORT], https://HOST[:PORT], unix:/PATH */
    const char *path;    /* of the rule: "worker/allow"; letters, digits, _ - . between slashes */
    const char *ca_file; /* NULL: the system's */
};

/* f: outlives it. Connects to nobody yet. WK_INVALID: what of the configuration is wrong. [main thread] */
wk_status opa_open(const struct opa_config *c, struct fetch *f, struct opa **out, const struct wk_err *err);
void opa_close(struct opa *p); /* NULL allowed [main thread] */

struct opa_input { /* {"input": {...}}: a member that is NULL is left out */
    const char *request_id;
    const char *key_id;
    uint32_t scopes; /* enum gate_scope, sent as names */
    const char *route;
    const char *model;
    json_t *parameters;    /* an object, borrowed; no other thread has it meanwhile */
    int64_t prompt_tokens; /* -1: left out, as the two below */
    int64_t prompt_chars;
    int64_t max_tokens;
    const char *prompt_hmac;
    const char *prompt;      /* only where the operator wants it to be sent */
    size_t prompt_len;       /* bytes; not UTF-8: U+FFFD instead */
    const char *traceparent; /* W3C's, sent as a header; NULL: none */
};

enum opa_kind {
    OPA_UNREACHABLE = 0, /* no answer, or not in time */
    OPA_STATUS,          /* not 200 */
    OPA_UNDEFINED,       /* 200 without a result */
    OPA_WRONG,           /* not JSON, or a result of another form */
    OPA_DENIED,          /* the policy says no */
    OPA_ALLOWED
};

struct opa_decision {
    enum opa_kind kind;
    char reason[400];      /* why not; of the policy, if it gave one. UTF-8, cut at a whole character. "": allowed */
    int64_t max_tokens;    /* at most; -1: the policy says nothing */
    json_t *obligations;   /* an array or an object; the caller's; NULL: none. Who does not know one refuses */
    char decision_id[129]; /* for the audit; "": none was given */
};

/* true: allowed (kind is OPA_ALLOWED). Waits OPA_TIMEOUT_MS at most. *out is always filled; opa_decision_free.
 * [any thread] */
bool opa_allows(struct opa *p, const struct opa_input *input, struct opa_decision *out);
void opa_decision_free(struct opa_decision *d);
const char *opa_kind_name(enum opa_kind kind); /* "unreachable", ..., "allowed": a label */

/* The part that reads an answer. [any thread] */
bool opa_read(uint32_t status, const char *body, size_t n, struct opa_decision *out);

#endif
