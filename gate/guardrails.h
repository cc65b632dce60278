/* guardrails.h: what a prompt and an answer must pass: the blocklist, then the policy server; both as the policy says.
 *
 * They are made of a policy's guardrails once and used until a policy brings others. Closed: guardrails that cannot be
 * made refuse everything, and the log says why. */
#ifndef GATE_GUARDRAILS_H
#define GATE_GUARDRAILS_H

#include "gate/gate.h"

struct guardrails;

/* f: what the policy server is asked through; outlives it. [main thread] */
wk_status guardrails_open(struct fetch *f, struct guardrails **out, const struct wk_err *err);
void guardrails_close(struct guardrails *g); /* NULL allowed [main thread] */

/* Does the work pass those of policy p? out, which has the work's tokens_out: what they leave of it, and what they
 * demand of answers. False: *why, and `decision` names what decided, for the audit. [any thread] */
bool guardrails_pass(struct guardrails *g, const struct policy *p, const struct gate_caller *who,
                     const struct gate_work *w, struct gate_grant *out, char decision[129], struct gate_refusal *why);
/* Can these be made? [any thread] */
wk_status guardrails_try(const struct policy_guardrails *r, const struct wk_err *err);

/* Fills *why; for gate.c, too. Returns false. */
WK_PRINTF(3, 4)
bool gate_refuse(struct gate_refusal *why, enum gate_why as, const char *format, ...);

#endif
