/* scheduler.c: see scheduler.h. */
#include "scheduler.h"

#include "body.h"
#include "gate/gate.h"

static struct engine_tuning command_line(const struct serve *s)
{
    const struct engine_options *o = &s->o->engine;
    return (struct engine_tuning){ o->preempt, o->high_priority, o->timeslice_tokens };
}

static void take(struct engine_tuning *t, const struct policy_scheduler *p)
{
    if (p->has_preempt) t->preempt = p->preempt;
    if (p->has_high_priority) t->high_priority = p->high_priority;
    if (p->has_timeslice) t->timeslice_tokens = p->timeslice_tokens;
}

/* What the policy and the command line say. */
static struct engine_tuning chosen(const struct serve *s)
{
    struct engine_tuning t = command_line(s);
    if (!s->gate) return t;
    const struct policy *p = policies_now(gate_policies(s->gate));
    take(&t, &p->scheduler);
    policy_release(p);
    return t;
}

void scheduler_now(const struct serve *s, struct engine_tuning *out)
{
    const struct serve_model *m = atomic_load(&s->model);
    if (m)
        engine_tuning(m->engine, out);
    else
        *out = chosen(s);
}

static void tune(const struct serve *s, const struct engine_tuning *t)
{
    const struct serve_model *m = atomic_load(&s->model);
    if (m) engine_tune(m->engine, t->preempt, t->high_priority, t->timeslice_tokens);
}

void scheduler_follow(struct serve *s)
{
    const struct engine_tuning t = chosen(s);
    tune(s, &t);
}

bool scheduler_set(struct serve *s, const json_t *body, struct refusal *why)
{
    static const char *const names[] = { "preempt", "high_priority", "timeslice_tokens" };
    const struct body_object o = { body, "" };
    struct engine_tuning t = command_line(s);
    int64_t high = t.high_priority, slice = t.timeslice_tokens;
    if (!body_knows(&o, names, 3, why) || !body_flag(&o, "preempt", &t.preempt, why) ||
        !body_integer(&o, "high_priority", 0, 1000, &high, why) ||
        !body_integer(&o, "timeslice_tokens", 0, 1048576, &slice, why))
        return false;
    if (!atomic_load(&s->model))
        return refuse(why, SERVE_NOT_READY, NULL, "no model yet: there is nothing to schedule");
    t.high_priority = (int32_t)high;
    t.timeslice_tokens = (uint32_t)slice;
    tune(s, &t);
    return true;
}
